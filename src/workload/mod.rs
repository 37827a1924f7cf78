//! What is asked of a deployment: arrivals, lengths, shared prefixes, classes of requests, traces.
//!
//! Nothing here knows a model or a device. Names follow the field's clients, above all `vllm bench serve`:
//!
//! | `vllm bench serve` | here |
//! |---|---|
//! | `--request-rate 4` | [`Arrivals::poisson`] |
//! | `--request-rate inf` | [`Arrivals::all_at_once`], [`Workload::offline`] |
//! | `--burstiness 0.5` | [`Arrivals::gamma`] |
//! | `--max-concurrency 32` alone | [`Arrivals::closed_loop`], [`Workload::closed_loop`] |
//! | `--max-concurrency 32` with a rate | [`Workload::with_max_concurrency`] |
//! | `--ramp-up-strategy linear` | [`RateSchedule::ramp_up`] |
//! | `--random-input-len 512 --random-range-ratio 0.1` | [`LengthDistribution::uniform_ratio`] |
//! | `--random-prefix-len 256` | [`SharedPrefix::fixed`] |
//! | `priority` of requests | [`RequestClass`] |

mod arrivals;
mod asked;
mod cells;
mod cluster;
mod distribution;
#[cfg(feature = "random")]
mod draw;
mod empirical;
mod error;
mod lengths;
mod prefix;
mod schedule;
mod slo;
#[cfg(feature = "random")]
mod times;
pub mod trace;

pub use arrivals::Arrivals;
pub use asked::{RequestClass, Workload};
pub use distribution::LengthDistribution;
#[cfg(feature = "random")]
pub use draw::DrawnRequest;
pub use empirical::Empirical;
pub use error::WorkloadError;
pub use lengths::{LengthMoments, LengthPoint, Lengths};
pub use prefix::{Sessions, SharedPrefix};
pub use schedule::{RampUp, RateSchedule, RateSection, ScheduleEnd};
pub use slo::{Latencies, Slo};
#[cfg(feature = "random")]
pub use times::ArrivalTimes;
pub use trace::{ArrivalStatistics, PrefixReuse, Trace, TraceError, TraceRequest};
