//! What comes of a simulation: latencies with confidence intervals, goodput, rates, stability, a timeline.
//!
//! A run reports to a [`Recorder`] and takes down nothing itself. Requests are kept in up to 64 batches of consecutive ones, each a few
//! [`Histogram`]s: memory stays bounded however long the run is, and the batches tell how much of the start is to be left out
//! ([`WarmUp`]) and how certain the rest is ([`Estimate`]).

mod backlog;
mod batches;
mod confidence;
mod histogram;
mod latency;
mod recorder;
mod request;
mod result;
mod timeline;
mod totals;
mod warm_up;

#[cfg(test)]
mod histogram_tests;
#[cfg(test)]
mod tests;

pub use backlog::Backlog;
pub use confidence::Estimate;
pub use histogram::Histogram;
pub use latency::Latency;
pub(in crate::serving::simulate) use recorder::{Recorder, RecorderSettings};
pub use request::CompletedRequest;
pub use result::{ClassStatistics, Statistics};
pub use timeline::TimelinePoint;
pub(in crate::serving::simulate) use totals::Totals;
pub use warm_up::WarmUp;
