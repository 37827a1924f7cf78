//! What a load has to keep to: limits on statistics of latencies, and shares of good requests.

use crate::serving::error::{above_zero, share_of_requests};
use crate::serving::metrics::{LoadSummary, Metric, NamedSlo, Percentiles};
use crate::serving::{ServingError, SteadyState};
use crate::units::Seconds;
use crate::workload::Slo;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which number of a distribution of latencies is held against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The arithmetic mean.
    Mean,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
}

impl Statistic {
    /// The percentile of a share of requests: 0.99 is [`Statistic::P99`].
    ///
    /// # Errors
    /// [`ServingError::Number`] for a share other than 0.5, 0.9, 0.95 and 0.99.
    pub fn percentile(share: f64) -> Result<Self, ServingError> {
        let known = [(0.5, Self::P50), (0.9, Self::P90), (0.95, Self::P95), (0.99, Self::P99)];
        let found = known.iter().find(|(known, _)| (known - share).abs() < 1e-9);
        found.map(|(_, statistic)| *statistic).ok_or(ServingError::Number {
            what: "the percentile of a target",
            value: share,
            expected: "0.5, 0.9, 0.95 or 0.99",
        })
    }

    /// This number of a distribution.
    pub const fn of(self, latencies: &Percentiles) -> Seconds {
        match self {
            Self::Mean => latencies.mean,
            Self::P50 => latencies.p50,
            Self::P90 => latencies.p90,
            Self::P95 => latencies.p95,
            Self::P99 => latencies.p99,
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
        })
    }
}

/// One condition of a [`Target`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Criterion {
    /// A statistic of a latency has to stay at or below a limit.
    Latency {
        /// The latency.
        metric: Metric,
        /// Its statistic.
        statistic: Statistic,
        /// The limit.
        limit: Seconds,
    },
    /// A share of the requests has to meet all limits at once.
    Goodput {
        /// The limits.
        slo: Slo,
        /// The least share.
        share: f64,
    },
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency { metric, statistic, limit } => write!(f, "{statistic} {metric} <= {limit}"),
            Self::Goodput { slo, share } => write!(f, "{} of requests within {slo}", Percent(*share)),
        }
    }
}

/// A condition that is not met, and by what.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum TargetBreach {
    /// A statistic of a latency is above its limit.
    Latency {
        /// The latency.
        metric: Metric,
        /// Its statistic.
        statistic: Statistic,
        /// The limit.
        limit: Seconds,
        /// What it is; none where the queue grows without bound.
        found: Option<Seconds>,
    },
    /// Too few requests meet all limits at once.
    Goodput {
        /// The limits.
        slo: Slo,
        /// The least share.
        share: f64,
        /// The share that is met.
        found: f64,
        /// The limit that most of the requests at the margin break: the metric whose percentile at `share` is farthest above its limit, where one is.
        worst: Option<Metric>,
    },
}

impl TargetBreach {
    /// The latency that breaks its limit, where it is one.
    pub const fn metric(&self) -> Option<Metric> {
        match self {
            Self::Latency { metric, .. } => Some(*metric),
            Self::Goodput { worst, .. } => *worst,
        }
    }
}

impl fmt::Display for TargetBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency { metric, statistic, limit, found: Some(found) } => {
                write!(f, "{statistic} {metric} is {found}, limit {limit}")
            }
            Self::Latency { metric, statistic, limit, found: None } => {
                write!(f, "{statistic} {metric} grows without bound, limit {limit}")
            }
            Self::Goodput { slo, share, found, worst } => {
                // Rounded down, as it is below the share.
                let found = (1000.0 * found).floor() / 1000.0;
                write!(f, "{} of requests are within {slo}, at least {} should be", Percent(found), Percent(*share))?;
                worst.map_or(Ok(()), |metric| write!(f, " ({metric} is what most of the others break)"))
            }
        }
    }
}

/// Limits that a load has to keep to.
///
/// Two kinds are in use. MLPerf and most operators hold a percentile of each latency against its limit, one at a time
/// ([`Target::at`]); DistServe (Zhong et al., OSDI 2024, section 2.3) asks that a share of the requests meets all limits together
/// ([`Target::goodput`]), which is stricter: 95 % in time for TTFT and 95 % for TPOT may be 90 % for both.
///
/// ```
/// use llm_roofline::serving::{Statistic, Target, metrics::{Metric, named_slo}};
/// use llm_roofline::{units::Seconds, workload::Slo};
///
/// let mlperf = Target::named(named_slo("mlperf/llama2-70b/interactive")?)?;
/// assert_eq!(mlperf.to_string(), "p99 TTFT <= 450 ms, p99 TPOT <= 40.0 ms");
///
/// let distserve = Target::goodput(Slo::ttft_tpot(Seconds::from_millis(200.0), Seconds::from_millis(100.0)), 0.9)?;
/// assert_eq!(distserve.to_string(), "90 % of requests within TTFT <= 200 ms, TPOT <= 100 ms");
///
/// let mixed = Target::default().with_latency(Metric::Ttft, Statistic::P99, Seconds::from_seconds(1.0))?;
/// assert_eq!(mixed.with_latency(Metric::E2e, Statistic::Mean, Seconds::from_seconds(9.0))?.to_string(), "p99 TTFT <= 1.00 s, mean E2E <= 9.00 s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    latencies: Vec<(Metric, Statistic, Seconds)>,
    /// Limits and share; only one pair, as a steady state counts good requests for one.
    goodput: Option<(Slo, f64)>,
}

impl Target {
    /// Every limit holds for the same statistic, one at a time.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a limit that is not a finite time above 0.
    pub fn at(slo: &Slo, statistic: Statistic) -> Result<Self, ServingError> {
        limits(slo).try_fold(Self::default(), |target, (metric, limit)| target.with_latency(metric, statistic, limit))
    }

    /// At least this share of the requests meets all limits at once.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a share that is not above 0 and at most 1.
    pub fn goodput(slo: Slo, share: f64) -> Result<Self, ServingError> {
        Self::default().with_goodput(slo, share)
    }

    /// Published limits, at the percentile for which they were published.
    ///
    /// # Errors
    /// [`ServingError::Number`] where that is none of those that are computed.
    pub fn named(limits: &NamedSlo) -> Result<Self, ServingError> {
        Self::at(&limits.slo, Statistic::percentile(limits.percentile)?)
    }

    /// The same with one more limit.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a limit that is not a finite time above 0.
    pub fn with_latency(mut self, metric: Metric, statistic: Statistic, limit: Seconds) -> Result<Self, ServingError> {
        above_zero("a limit of a target in seconds", limit.as_seconds())?;
        self.latencies.push((metric, statistic, limit));
        Ok(self)
    }

    /// The same, and at least this share of the requests meets all of these limits at once; replaces such a condition that is there already.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a share that is not above 0 and at most 1.
    pub fn with_goodput(mut self, slo: Slo, share: f64) -> Result<Self, ServingError> {
        self.goodput = Some((slo, share_of_requests(share)?));
        Ok(self)
    }

    /// With limits that keep these ones even if times to first token are so many times as long, and all other times so many: limits of the whole
    /// answer are divided by the larger factor. By this a pessimistic end of an interval is asked of the same steady states.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a factor that is not finite and above 0.
    ///
    /// ```
    /// use llm_roofline::serving::{Statistic, Target};
    /// use llm_roofline::workload::Slo;
    /// let target = Target::at(&Slo::ttft_tpot("600 ms".parse()?, "30 ms".parse()?), Statistic::P99)?;
    /// assert_eq!(target.tightened(2.0, 1.5)?.to_string(), "p99 TTFT <= 300 ms, p99 TPOT <= 20.0 ms");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tightened(&self, first_token: f64, others: f64) -> Result<Self, ServingError> {
        let first = above_zero("the factor of times to first token", first_token)?;
        let others = above_zero("the factor of times", others)?;
        let factor = |metric: Metric| match metric {
            Metric::Ttft => first,
            Metric::Tpot | Metric::Itl => others,
            Metric::E2e => first.max(others),
        };
        let divided = |limit: Option<Seconds>, metric| limit.map(|limit| limit / factor(metric));
        let shorter = |slo: &Slo| {
            let mut slo = *slo;
            slo.ttft = divided(slo.ttft, Metric::Ttft);
            slo.tpot = divided(slo.tpot, Metric::Tpot);
            slo.itl = divided(slo.itl, Metric::Itl);
            slo.e2e = divided(slo.e2e, Metric::E2e);
            slo
        };
        let latencies =
            self.latencies.iter().map(|&(metric, statistic, limit)| (metric, statistic, limit / factor(metric)));
        Ok(Self { latencies: latencies.collect(), goodput: self.goodput.map(|(slo, share)| (shorter(&slo), share)) })
    }

    /// Its conditions.
    pub fn criteria(&self) -> impl Iterator<Item = Criterion> + '_ {
        let latency = |&(metric, statistic, limit): &_| Criterion::Latency { metric, statistic, limit };
        let goodput = self.goodput.map(|(slo, share)| Criterion::Goodput { slo, share });
        self.latencies.iter().map(latency).chain(goodput)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.latencies.is_empty() && self.goodput.is_none()
    }

    /// The limits that requests are counted by: those of the goodput, or else those of the latencies, whatever their statistics.
    pub fn slo(&self) -> Slo {
        if let Some((slo, _)) = self.goodput {
            return slo;
        }
        self.latencies.iter().fold(Slo::default(), |slo, &(metric, _, limit)| match metric {
            Metric::Ttft => slo.with_ttft(slo.ttft.map_or(limit, |other| other.min(limit))),
            Metric::Tpot => slo.with_tpot(slo.tpot.map_or(limit, |other| other.min(limit))),
            Metric::Itl => slo.with_itl(slo.itl.map_or(limit, |other| other.min(limit))),
            Metric::E2e => slo.with_e2e(slo.e2e.map_or(limit, |other| other.min(limit))),
        })
    }

    /// The conditions that a steady state under [`slo`](Self::slo) does not meet. A latency that does not exist (the pace of answers of one token) breaks no limit;
    /// an unstable state breaks all.
    pub fn breaches(&self, state: &SteadyState) -> Vec<TargetBreach> {
        self.broken(&state.summary).collect()
    }

    /// The same of a report whose good requests were counted under [`slo`](Self::slo): that of a simulation, or of several replicas.
    pub fn breaches_in(&self, summary: &LoadSummary) -> Vec<TargetBreach> {
        self.broken(summary).collect()
    }

    /// Whether a steady state under [`slo`](Self::slo) meets all conditions.
    pub fn is_met(&self, state: &SteadyState) -> bool {
        self.broken(&state.summary).next().is_none()
    }

    fn broken<'a>(&'a self, summary: &'a LoadSummary) -> impl Iterator<Item = TargetBreach> + 'a {
        let latencies = self.latencies.iter().filter_map(move |&(metric, statistic, limit)| {
            let found = metric.of(summary).map(|latencies| statistic.of(&latencies));
            let broken = !summary.stable || found.is_some_and(|found| found > limit);
            broken.then_some(TargetBreach::Latency {
                metric,
                statistic,
                limit,
                found: found.filter(|_| summary.stable),
            })
        });
        let goodput = self.goodput.and_then(move |(slo, share)| {
            let found = if summary.stable { summary.goodput.map_or(0.0, |good| good.share) } else { 0.0 };
            (found < share).then(|| TargetBreach::Goodput { slo, share, found, worst: worst(summary, &slo, share) })
        });
        latencies.chain(goodput)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("no limits");
        }
        for (index, criterion) in self.criteria().enumerate() {
            write!(f, "{}{criterion}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// The limits that are set.
fn limits(slo: &Slo) -> impl Iterator<Item = (Metric, Seconds)> {
    let all = [(Metric::Ttft, slo.ttft), (Metric::Tpot, slo.tpot), (Metric::Itl, slo.itl), (Metric::E2e, slo.e2e)];
    all.into_iter().filter_map(|(metric, limit)| limit.map(|limit| (metric, limit)))
}

/// The metric that is farthest above its limit at the percentile next to the share.
fn worst(summary: &LoadSummary, slo: &Slo, share: f64) -> Option<Metric> {
    let statistic = match share {
        share if share >= 0.97 => Statistic::P99,
        share if share >= 0.925 => Statistic::P95,
        share if share >= 0.7 => Statistic::P90,
        _ => Statistic::P50,
    };
    let excess = |(metric, limit): (Metric, Seconds)| Some((metric, statistic.of(&metric.of(summary)?) / limit));
    let most = limits(slo).filter_map(excess).max_by(|a, b| a.1.total_cmp(&b.1));
    most.map(|(metric, _)| metric)
}

/// A share in percent, without digits that say nothing.
pub(super) struct Percent(pub(super) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (1000.0 * self.0).round() / 10.0;
        if percent.fract() == 0.0 { write!(f, "{percent:.0} %") } else { write!(f, "{percent:.1} %") }
    }
}
