//! What is asked of a deployment: arrivals, lengths, shared prefixes, classes of requests, traces.

mod slo;

pub use slo::{Latencies, Slo};
