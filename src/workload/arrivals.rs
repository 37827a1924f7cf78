//! When requests arrive.

use super::error::{WorkloadError, at_least, checked, positive};
use super::schedule::RateSchedule;
use crate::units::{RequestsPerSecond, Seconds};
use serde::{Deserialize, Serialize};

/// When requests arrive: at times of their own (open), or when an answer has come (closed).
///
/// ```
/// use llm_roofline::units::RequestsPerSecond;
/// use llm_roofline::workload::Arrivals;
///
/// let rate: RequestsPerSecond = "4 req/s".parse()?;
/// // `vllm bench serve --request-rate 4 --burstiness 0.5`: a lower burstiness means more bursts.
/// let bursty = Arrivals::gamma(rate, 0.5)?;
/// assert_eq!(bursty.mean_rate(), Some(rate));
/// assert_eq!(bursty.gap_variation(), Some(2.0));
/// assert_eq!(Arrivals::poisson(rate)?.gap_variation(), Some(1.0));
/// // Ten clients that ask again as soon as they have their answer: the rate depends on the server.
/// assert_eq!(Arrivals::closed_loop(10)?.mean_rate(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "RawArrivals")]
#[non_exhaustive]
pub enum Arrivals {
    /// Independent of each other (vLLM: `--request-rate`, the default burstiness). Made by [`poisson`](Self::poisson).
    #[non_exhaustive]
    Poisson {
        /// Mean rate.
        rate: RequestsPerSecond,
    },
    /// With gaps that follow a gamma distribution (vLLM: `--burstiness`). Made by [`gamma`](Self::gamma).
    #[non_exhaustive]
    Gamma {
        /// Mean rate.
        rate: RequestsPerSecond,
        /// Shape of the gamma distribution: 1 is Poisson, less is more bursty, more is steadier.
        burstiness: f64,
    },
    /// With equal gaps (vLLM: `--burstiness inf`). Made by [`uniform`](Self::uniform).
    #[non_exhaustive]
    Uniform {
        /// Rate.
        rate: RequestsPerSecond,
    },
    /// Several at a time, at regular intervals. Made by [`bursts`](Self::bursts).
    #[non_exhaustive]
    Bursts {
        /// Requests that come at the same time.
        size: u64,
        /// From one burst to the next.
        interval: Seconds,
    },
    /// At a rate that changes with time.
    Schedule(RateSchedule),
    /// From clients that wait for their answer before they ask again (vLLM: `--max-concurrency` without a rate). Made by
    /// [`closed_loop`](Self::closed_loop).
    #[non_exhaustive]
    ClosedLoop {
        /// How many clients there are: the most requests at a time.
        concurrency: u64,
        /// From an answer to the client's next request.
        think_time: Seconds,
        /// In which the clients start, one after the other at equal gaps; without it all start at once, or after a time to think where that is random.
        ramp: Option<Seconds>,
        /// Whether times to think are exponentially distributed around their mean, as of people; otherwise all are equal.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        random_thinking: bool,
    },
    /// All at the start (vLLM: `--request-rate inf`). Made by [`all_at_once`](Self::all_at_once).
    #[non_exhaustive]
    AllAtOnce {
        /// How many there are.
        requests: u64,
    },
}

impl Arrivals {
    /// Requests that come independently of each other.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a rate that is not a finite number above 0.
    pub fn poisson(rate: RequestsPerSecond) -> Result<Self, WorkloadError> {
        check_rate(rate)?;
        Ok(Self::Poisson { rate })
    }

    /// Requests whose gaps follow a gamma distribution of shape `burstiness`: their squared coefficient of variation is `1 / burstiness`.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a rate or a burstiness that is not a finite number above 0, or a burstiness beyond 10^-4 to 10^9.
    pub fn gamma(rate: RequestsPerSecond, burstiness: f64) -> Result<Self, WorkloadError> {
        check_rate(rate)?;
        check_burstiness(burstiness)?;
        Ok(Self::Gamma { rate, burstiness })
    }

    /// Requests at equal gaps.
    ///
    /// # Errors
    /// As [`poisson`](Self::poisson).
    pub fn uniform(rate: RequestsPerSecond) -> Result<Self, WorkloadError> {
        check_rate(rate)?;
        Ok(Self::Uniform { rate })
    }

    /// `size` requests at the same time, every `interval`.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] for a size of 0, [`WorkloadError::OutOfRange`] for an interval that is not a finite number above 0, or a mean
    /// rate beyond 10^-12 to 10^12 req/s.
    pub fn bursts(size: u64, interval: Seconds) -> Result<Self, WorkloadError> {
        at_least("requests in a burst", size, 1)?;
        positive("interval of bursts", interval.as_seconds(), "a number of seconds above 0")?;
        check_rate(burst_rate(size, interval))?;
        Ok(Self::Bursts { size, interval })
    }

    /// Requests at a rate that changes with time.
    pub fn schedule(schedule: RateSchedule) -> Self {
        Self::Schedule(schedule)
    }

    /// Clients that ask again as soon as they have their answer; they all start at once.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] for none.
    pub fn closed_loop(concurrency: u64) -> Result<Self, WorkloadError> {
        Self::closed_loop_with(concurrency, Seconds::ZERO, None)
    }

    /// Clients that think between an answer and their next request, and that start one after the other over `ramp`.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] for no clients, [`WorkloadError::OutOfRange`] for times that are negative or not finite.
    pub fn closed_loop_with(
        concurrency: u64,
        think_time: Seconds,
        ramp: Option<Seconds>,
    ) -> Result<Self, WorkloadError> {
        at_least("concurrent clients", concurrency, 1)?;
        let limit = "a number of seconds, at least 0";
        checked("think time", think_time.as_seconds(), limit, think_time >= Seconds::ZERO)?;
        if let Some(ramp) = ramp {
            checked("ramp", ramp.as_seconds(), limit, ramp >= Seconds::ZERO)?;
        }
        Ok(Self::ClosedLoop { concurrency, think_time, ramp, random_thinking: false })
    }

    /// The same with times to think that are exponentially distributed; nothing changes for other arrivals than clients'.
    ///
    /// Clients that all think for the same time come together for ever once their answers end together: a convoy, which people do not form.
    #[must_use]
    pub fn with_random_thinking(self) -> Self {
        match self {
            Self::ClosedLoop { concurrency, think_time, ramp, .. } => {
                Self::ClosedLoop { concurrency, think_time, ramp, random_thinking: true }
            }
            other => other,
        }
    }

    /// So many requests, all at the start.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] for none.
    pub fn all_at_once(requests: u64) -> Result<Self, WorkloadError> {
        at_least("requests", requests, 1)?;
        Ok(Self::AllAtOnce { requests })
    }

    /// Whether requests come at times of their own, whatever the server does.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::ClosedLoop { .. })
    }

    /// The rate in the long run. None for clients that wait, and for requests that all come at once.
    pub fn mean_rate(&self) -> Option<RequestsPerSecond> {
        match self {
            Self::Poisson { rate } | Self::Gamma { rate, .. } | Self::Uniform { rate } => Some(*rate),
            Self::Bursts { size, interval } => Some(burst_rate(*size, *interval)),
            Self::Schedule(schedule) => Some(schedule.mean_rate()),
            Self::ClosedLoop { .. } | Self::AllAtOnce { .. } => None,
        }
    }

    /// The highest rate that lasts: the peak of a schedule, else the mean rate.
    pub fn peak_rate(&self) -> Option<RequestsPerSecond> {
        match self {
            Self::Schedule(schedule) => Some(schedule.peak_rate()),
            _ => self.mean_rate(),
        }
    }

    /// Squared coefficient of variation of the gaps, `ca2` in queueing formulas: 1 for Poisson, `1 / burstiness` for gamma, 0 for equal gaps,
    /// `size - 1` for bursts (most of whose gaps are 0). For a schedule, of the gaps around the rate of the moment: a slowly changing rate is
    /// no randomness, price it at its [`peak_rate`](Self::peak_rate). None for clients that wait and for requests that all come at once.
    pub fn gap_variation(&self) -> Option<f64> {
        match self {
            Self::Poisson { .. } => Some(1.0),
            Self::Gamma { burstiness, .. } => Some(1.0 / burstiness),
            Self::Uniform { .. } => Some(0.0),
            Self::Bursts { size, .. } => Some((size - 1) as f64),
            Self::Schedule(schedule) => Some(1.0 / schedule.burstiness()),
            Self::ClosedLoop { .. } | Self::AllAtOnce { .. } => None,
        }
    }

    /// The same arrivals `factor` times as fast; thinking and the start of clients shorten as well. All at once stays so.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a factor that is not a finite number above 0, or a rate that leaves the range.
    pub fn faster(&self, factor: f64) -> Result<Self, WorkloadError> {
        positive("factor of the rate", factor, "a number above 0")?;
        match self {
            Self::Poisson { rate } => Self::poisson(*rate * factor),
            Self::Gamma { rate, burstiness } => Self::gamma(*rate * factor, *burstiness),
            Self::Uniform { rate } => Self::uniform(*rate * factor),
            Self::Bursts { size, interval } => Self::bursts(*size, *interval / factor),
            Self::Schedule(schedule) => schedule.with_rates_times(factor).map(Self::Schedule),
            Self::ClosedLoop { concurrency, think_time, ramp, random_thinking } => {
                let same = Self::closed_loop_with(*concurrency, *think_time / factor, ramp.map(|ramp| ramp / factor))?;
                Ok(if *random_thinking { same.with_random_thinking() } else { same })
            }
            Self::AllAtOnce { requests } => Self::all_at_once(*requests),
        }
    }

    /// The same pattern at another mean rate; bursts keep their size, schedules their shape.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a rate that is not a finite number above 0, [`WorkloadError::NoRate`] for arrivals without one.
    pub fn at_rate(&self, rate: RequestsPerSecond) -> Result<Self, WorkloadError> {
        check_rate(rate)?;
        let mean = self.mean_rate().ok_or(WorkloadError::NoRate { arrivals: self.name() })?;
        self.faster(rate / mean)
    }

    /// Times at which requests arrive, from the start on, in order: always the same for the same seed. They never end, except for a schedule
    /// that stops and for requests that all come at once. The first request comes after a gap.
    ///
    /// # Errors
    /// [`WorkloadError::NoTimes`] for clients that wait.
    ///
    /// ```
    /// # use llm_roofline::units::RequestsPerSecond;
    /// # use llm_roofline::workload::Arrivals;
    /// let arrivals = Arrivals::poisson(RequestsPerSecond::from_requests_per_second(10.0))?;
    /// let times: Vec<_> = arrivals.times(42)?.take(1000).collect();
    /// assert!(times.is_sorted() && (80.0..120.0).contains(&times[999].as_seconds()));
    /// assert_eq!(arrivals.times(42)?.next(), Some(times[0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "random")]
    pub fn times(&self, seed: u64) -> Result<super::ArrivalTimes<'_>, WorkloadError> {
        super::ArrivalTimes::new(self, seed)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::ClosedLoop { .. } => "clients in a closed loop",
            Self::AllAtOnce { .. } => "requests that all come at once",
            _ => "arrivals",
        }
    }
}

fn burst_rate(size: u64, interval: Seconds) -> RequestsPerSecond {
    RequestsPerSecond::from_requests_per_second(size as f64 / interval.as_seconds())
}

pub(super) fn check_rate(rate: RequestsPerSecond) -> Result<f64, WorkloadError> {
    let value = rate.as_requests_per_second();
    checked("request rate", value, "a number of req/s above 10^-12 and below 10^12", (1e-12..1e12).contains(&value))
}

pub(super) fn check_burstiness(burstiness: f64) -> Result<f64, WorkloadError> {
    checked("burstiness", burstiness, "a number from 10^-4 to 10^9", (1e-4..=1e9).contains(&burstiness))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RawArrivals {
    Poisson {
        rate: RequestsPerSecond,
    },
    Gamma {
        rate: RequestsPerSecond,
        burstiness: f64,
    },
    Uniform {
        rate: RequestsPerSecond,
    },
    Bursts {
        size: u64,
        interval: Seconds,
    },
    Schedule(RateSchedule),
    ClosedLoop {
        concurrency: u64,
        #[serde(default)]
        think_time: Seconds,
        #[serde(default)]
        ramp: Option<Seconds>,
        #[serde(default)]
        random_thinking: bool,
    },
    AllAtOnce {
        requests: u64,
    },
}

impl TryFrom<RawArrivals> for Arrivals {
    type Error = WorkloadError;

    fn try_from(raw: RawArrivals) -> Result<Self, WorkloadError> {
        match raw {
            RawArrivals::Poisson { rate } => Self::poisson(rate),
            RawArrivals::Gamma { rate, burstiness } => Self::gamma(rate, burstiness),
            RawArrivals::Uniform { rate } => Self::uniform(rate),
            RawArrivals::Bursts { size, interval } => Self::bursts(size, interval),
            RawArrivals::Schedule(schedule) => Ok(Self::Schedule(schedule)),
            RawArrivals::ClosedLoop { concurrency, think_time, ramp, random_thinking } => {
                let same = Self::closed_loop_with(concurrency, think_time, ramp)?;
                Ok(if random_thinking { same.with_random_thinking() } else { same })
            }
            RawArrivals::AllAtOnce { requests } => Self::all_at_once(requests),
        }
    }
}
