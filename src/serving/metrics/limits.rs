//! Limits that others have published, by name.

use super::{Metric, MetricsError, ToolReport};
use crate::profile::{self, ProfileError, Sources, folded, nearest};
use crate::units::Seconds;
use crate::workload::Slo;
use serde::Deserialize;
use statrs::distribution::{ContinuousCDF, Normal};
use std::fmt;
use std::sync::LazyLock;

const TABLE: &str = include_str!("limits.toml");
const FILE: &str = "limits.toml";

/// Published limits on requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NamedSlo {
    /// Who, for which model or use, in which scenario: `mlperf/llama2-70b/interactive`.
    pub name: String,
    /// The limits.
    pub slo: Slo,
    /// The share of requests that has to meet each limit, one limit at a time; 0.99 is the 99th percentile.
    pub percentile: f64,
    /// Where they were published.
    pub sources: Vec<String>,
    /// Other limits that another source gives for the same, and that source.
    pub alternative: Option<(Slo, String)>,
    /// Disagreements and remarks.
    pub note: Option<String>,
}

/// A limit that a report does not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breach {
    /// The metric.
    pub metric: Metric,
    /// Its limit.
    pub limit: Seconds,
    /// What was reported at the percentile; none where the tool does not report the metric.
    pub found: Option<Seconds>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found {
            Some(found) => write!(f, "{} is {found}, limit {}", self.metric, self.limit),
            None => write!(f, "{} was not reported, limit {}", self.metric, self.limit),
        }
    }
}

impl NamedSlo {
    /// The limits that a report breaks: each metric is tested at the percentile by itself, as MLPerf does. Empty if it passes.
    ///
    /// # Errors
    /// [`MetricsError::NotAShare`] where the percentile is none of those that are reported.
    pub fn breaches(&self, report: &ToolReport) -> Result<Vec<Breach>, MetricsError> {
        let metrics = [
            (Metric::Ttft, self.slo.ttft, report.ttft),
            (Metric::Tpot, self.slo.tpot, report.tpot),
            (Metric::Itl, self.slo.itl, report.itl),
            (Metric::E2e, self.slo.e2e, report.e2e),
        ];
        let mut breaches = Vec::new();
        for (metric, limit, percentiles) in metrics {
            let Some(limit) = limit else { continue };
            let found = match percentiles {
                Some(percentiles) => Some(percentiles.at(self.percentile).ok_or(MetricsError::NotAShare {
                    what: "the percentile",
                    value: self.percentile,
                    expected: "out of 0.5, 0.9, 0.95, 0.99",
                })?),
                None => None,
            };
            if found.is_none_or(|found| found > limit) {
                breaches.push(Breach { metric, limit, found });
            }
        }
        Ok(breaches)
    }
}

/// How long people wait before something changes for them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResponseLimit {
    /// Who, and what: `nielsen/attention`.
    pub name: String,
    /// The limit.
    pub limit: Seconds,
    /// Where it was published.
    pub source: String,
    /// What happens there.
    pub note: Option<String>,
}

/// All published limits on requests.
///
/// # Errors
/// [`MetricsError::Table`] if the embedded table has a mistake in it.
pub fn named_slos() -> Result<&'static [NamedSlo], MetricsError> {
    Ok(&table()?.slos)
}

/// All published limits on how long people wait.
///
/// # Errors
/// As [`named_slos`].
pub fn response_limits() -> Result<&'static [ResponseLimit], MetricsError> {
    Ok(&table()?.responses)
}

/// The published limits of a name; case, spaces, dashes and underscores do not matter.
///
/// ```
/// use llm_roofline::serving::metrics::named_slo;
/// let limits = named_slo("mlperf/llama2-70b/interactive")?;
/// assert_eq!(limits.slo.to_string(), "TTFT <= 450 ms, TPOT <= 40.0 ms");
/// assert_eq!(limits.percentile, 0.99);
/// assert!(named_slo("mlperf/llama2-70b/interactiv").unwrap_err().to_string().contains("did you mean `mlperf/llama2-70b/interactive`?"));
/// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
/// ```
///
/// # Errors
/// [`MetricsError::UnknownName`] with the nearest known name.
pub fn named_slo(name: &str) -> Result<&'static NamedSlo, MetricsError> {
    find(named_slos()?, name, "service-level objective", |known| &known.name)
}

/// The published limit on waiting of a name, looked up as [`named_slo`] does.
///
/// ```
/// use llm_roofline::serving::metrics::response_limit;
/// assert_eq!(response_limit("Nielsen/attention")?.limit.as_seconds(), 10.0);
/// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
/// ```
///
/// # Errors
/// [`MetricsError::UnknownName`] with the nearest known name.
pub fn response_limit(name: &str) -> Result<&'static ResponseLimit, MetricsError> {
    find(response_limits()?, name, "limit on waiting", |known| &known.name)
}

fn find<T>(
    all: &'static [T],
    name: &str,
    kind: &'static str,
    name_of: fn(&T) -> &String,
) -> Result<&'static T, MetricsError> {
    let wanted = folded(name);
    all.iter().find(|known| folded(name_of(known)) == wanted).ok_or_else(|| {
        let names: Vec<&'static str> = all.iter().map(|known| name_of(known).as_str()).collect();
        MetricsError::UnknownName {
            kind,
            name: name.into(),
            nearest: nearest(name, names.iter().copied()),
            known: names.join(", "),
        }
    })
}

/// How many requests a load test needs, to say that a share of them meets a limit.
///
/// # Formula
/// ```text
/// n = z^2 p (1 - p) / margin^2,   z the normal quantile at (1 + confidence) / 2
/// ```
/// rounded up: the share found among `n` independent requests is within `margin` of the true share `p` with that confidence.
///
/// # Validity
/// Independent requests. Those of one run are not: a queue that is long now will be long for the next request too, so a run near its
/// capacity needs more.
///
/// # Errors
/// [`MetricsError::NotAShare`] unless all three are above 0 and below 1.
///
/// # Examples
/// ```
/// use llm_roofline::serving::metrics::queries_needed;
/// assert_eq!(queries_needed(0.99, 0.99, 0.0005)?, 262_742); // p99 to a twentieth of a percent
/// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
/// ```
///
/// # References
/// Reddi et al., *MLPerf Inference Benchmark*, ISCA 2020 (arXiv:1911.02549), table IV, which takes a twentieth of `1 - p` as margin.
pub fn queries_needed(percentile: f64, confidence: f64, margin: f64) -> Result<u64, MetricsError> {
    for (what, value) in [("the percentile", percentile), ("the confidence", confidence), ("the margin", margin)] {
        if !(value > 0.0 && value < 1.0) {
            return Err(MetricsError::NotAShare { what, value, expected: "above 0 and below 1" });
        }
    }
    let z = Normal::standard().inverse_cdf(0.5 + confidence / 2.0);
    let queries = z * z * percentile * (1.0 - percentile) / (margin * margin);
    Ok(queries.ceil() as u64) // saturates
}

/// The number of queries that MLPerf asks for: [`queries_needed`] at 99 % confidence with a margin of a twentieth of `1 - p`, rounded up
/// to a multiple of 2^13.
///
/// ```
/// use llm_roofline::serving::metrics::mlperf_queries;
/// assert_eq!(mlperf_queries(0.99)?, 270_336); // 33 * 2^13
/// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
/// ```
///
/// # Errors
/// [`MetricsError::NotAShare`] unless the percentile is above 0 and below 1.
///
/// # References
/// Reddi et al., *MLPerf Inference Benchmark*, ISCA 2020 (arXiv:1911.02549), table IV.
pub fn mlperf_queries(percentile: f64) -> Result<u64, MetricsError> {
    const MULTIPLE: u64 = 1 << 13;
    let queries = queries_needed(percentile, 0.99, (1.0 - percentile) / 20.0)?;
    Ok(queries.div_ceil(MULTIPLE).saturating_mul(MULTIPLE))
}

struct Table {
    slos: Vec<NamedSlo>,
    responses: Vec<ResponseLimit>,
}

fn table() -> Result<&'static Table, MetricsError> {
    static READ: LazyLock<Result<Table, ProfileError>> = LazyLock::new(|| read(TABLE));
    READ.as_ref().map_err(|error| error.clone().into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    slo: Vec<RawSlo>,
    response: Vec<RawResponse>,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSlo {
    name: String,
    percentile: f64,
    ttft: Option<Seconds>,
    tpot: Option<Seconds>,
    itl: Option<Seconds>,
    e2e: Option<Seconds>,
    sources: Vec<String>,
    alternative: Option<RawAlternative>,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlternative {
    ttft: Option<Seconds>,
    tpot: Option<Seconds>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResponse {
    name: String,
    limit: Seconds,
    source: String,
    note: Option<String>,
}

fn read(text: &str) -> Result<Table, ProfileError> {
    let raw: RawTable = profile::read(text, FILE)?;
    let reference = |key: &String| {
        let missing = || ProfileError::at_key(FILE, "sources", format!("`{key}` is not among the sources"));
        raw.sources.get(key).cloned().ok_or_else(missing)
    };
    let slo = |raw: RawSlo| {
        if !(raw.percentile > 0.0 && raw.percentile < 1.0) {
            let message = format!("{} of {} is no share", raw.percentile, raw.name);
            return Err(ProfileError::at_key(FILE, "percentile", message));
        }
        let limits =
            [(Metric::Ttft, raw.ttft), (Metric::Tpot, raw.tpot), (Metric::Itl, raw.itl), (Metric::E2e, raw.e2e)];
        let alternative = raw.alternative.map(|other| {
            Ok((slo_of([(Metric::Ttft, other.ttft), (Metric::Tpot, other.tpot)]), reference(&other.source)?))
        });
        Ok(NamedSlo {
            slo: slo_of(limits),
            percentile: raw.percentile,
            sources: raw.sources.iter().map(reference).collect::<Result<_, _>>()?,
            alternative: alternative.transpose()?,
            note: raw.note,
            name: raw.name,
        })
    };
    let response = |raw: RawResponse| {
        Ok(ResponseLimit { source: reference(&raw.source)?, name: raw.name, limit: raw.limit, note: raw.note })
    };
    Ok(Table {
        slos: raw.slo.into_iter().map(slo).collect::<Result<_, _>>()?,
        responses: raw.response.into_iter().map(response).collect::<Result<_, _>>()?,
    })
}

fn slo_of<const N: usize>(limits: [(Metric, Option<Seconds>); N]) -> Slo {
    let mut slo = Slo::default();
    for (metric, limit) in limits {
        let field = match metric {
            Metric::Ttft => &mut slo.ttft,
            Metric::Tpot => &mut slo.tpot,
            Metric::Itl => &mut slo.itl,
            Metric::E2e => &mut slo.e2e,
        };
        *field = limit;
    }
    slo
}
