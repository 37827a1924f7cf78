//! What tools for load tests report, from the times of requests: latencies, percentiles, goodput.
//!
//! The same run has a different "ITL" in every tool, because they disagree about which gaps are averaged, how a percentile is read
//! off, and what a request without a second token counts as. [`Convention`] names seven tools and says what each does;
//! [`summarise`] applies one to the times of requests:
//!
//! ```
//! use llm_roofline::serving::metrics::{Convention, RequestTimes, summarise};
//! use llm_roofline::units::Seconds;
//! use llm_roofline::workload::Slo;
//!
//! // 10 gaps of 10 ms, and 100 gaps of 40 ms.
//! let ms = Seconds::from_millis;
//! let requests = [
//!     RequestTimes::new(ms(0.0), ms(200.0), ms(300.0), 11),
//!     RequestTimes::new(ms(0.0), ms(200.0), ms(4200.0), 101),
//! ];
//! let itl = |convention| summarise(&requests, convention, &Slo::default(), ms(4200.0)).map(|report| report.itl.unwrap().mean.to_string());
//! assert_eq!(itl(Convention::Vllm)?, "37.3 ms"); // the mean over all gaps ...
//! assert_eq!(itl(Convention::AiPerf)?, "25.0 ms"); // ... and over the requests
//! # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
//! ```
//!
//! [`LoadSummary`] is the report of a deployment under load, whether it was computed or simulated. [`named_slo`] knows the limits of
//! MLPerf and others.

mod convention;
mod error;
mod goodput;
mod limits;
mod load_summary;
mod percentiles;
mod report;
mod times;

#[cfg(test)]
mod tests;

pub use crate::workload::{Latencies, Slo};
pub use convention::{Convention, Definition, Gaps, GoodputRule, PerToken, SingleToken, Start, Weight};
pub use error::{Metric, MetricsError};
pub use goodput::{Attainment, Goodput, goodput};
pub use limits::{
    Breach, NamedSlo, ResponseLimit, mlperf_queries, named_slo, named_slos, queries_needed, response_limit,
    response_limits,
};
pub use load_summary::LoadSummary;
pub use percentiles::{PercentileRule, Percentiles};
pub use report::{StreamRate, ToolReport, summarise};
pub use times::{Chunks, GapRun, RequestTimes};
