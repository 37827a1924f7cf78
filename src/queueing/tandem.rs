//! One constant service on several machines: in stages one after another, on all at once, or each on one of them.
//!
//! The formulas by which DistServe chooses how to split prefills (Y. Zhong et al., OSDI 2024, arXiv:2401.09670, equations 1 to 3); all of them are M/D/1 queues.

use super::{Md1, QueueError, check};

/// Mean time in queue and service if a service of constant length is cut into `stages` equal ones, each on a machine of its own.
///
/// # Formula
/// `D` plus the wait of M/D/1 with services of `D/n`: equal constant services never wait behind the first stage. For two stages
/// `D + lambda D^2 / (4 (2 - lambda D))` (DistServe, equation 2).
///
/// # Errors
/// As [`Md1::new`]; [`QueueError::Count`] without stages or for more than a million.
///
/// ```
/// use llm_roofline::queueing::mean_sojourn_in_stages;
///
/// assert_eq!(format!("{:.4}", mean_sojourn_in_stages(4.0, 0.1, 1)?), "0.1333");
/// assert_eq!(format!("{:.5}", mean_sojourn_in_stages(4.0, 0.1, 2)?), "0.10625");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
pub fn mean_sojourn_in_stages(arrival_rate: f64, service: f64, stages: u64) -> Result<f64, QueueError> {
    let stages = check::count("stages", stages, 1, 1_000_000)? as f64;
    Ok(check::positive("service time", service)? + Md1::new(arrival_rate, service / stages)?.mean_wait())
}

/// Mean time in queue and service if all machines work on the same service and make it `speedup` times faster.
///
/// # Formula
/// M/D/1 with services of `D/K`: `D/K + lambda D^2 / (2 K (K - lambda D))` (DistServe, equation 3, with `K` from 1 to 2 on two machines).
///
/// # Errors
/// As [`Md1::new`]; [`QueueError::Number`] for a speed-up that is not from 1e-90 to 1e90.
///
/// ```
/// use llm_roofline::queueing::mean_sojourn_sped_up;
///
/// assert_eq!(format!("{:.4}", mean_sojourn_sped_up(4.0, 0.1, 1.6)?), "0.0729");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
pub fn mean_sojourn_sped_up(arrival_rate: f64, service: f64, speedup: f64) -> Result<f64, QueueError> {
    let speedup = check::positive("speed-up", speedup)?;
    Ok(Md1::new(arrival_rate, check::positive("service time", service)? / speedup)?.mean_sojourn())
}

/// Mean time in queue and service if each of `replicas` machines gets an equal share of the arrivals at random.
///
/// # Formula
/// M/D/1 with arrivals of `lambda/n`. A common queue for all ([`Mdc`](super::Mdc)) waits less.
///
/// # Errors
/// As [`Md1::new`]; [`QueueError::Count`] without replicas or for more than a million.
pub fn mean_sojourn_on_replicas(arrival_rate: f64, service: f64, replicas: u64) -> Result<f64, QueueError> {
    let replicas = check::count("replicas", replicas, 1, 1_000_000)? as f64;
    Ok(Md1::new(arrival_rate / replicas, service)?.mean_sojourn())
}
