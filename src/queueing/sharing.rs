//! Processor sharing: one server works on all that are present at once.

use super::{QueueError, check};

/// M/G/1 processor sharing: Poisson arrivals, and each of `n` present is served at one `n`th of the speed.
///
/// Everything here depends on the mean of the service times only, not on their distribution (S. F. Yashkov, Queueing Systems 2 (1987) 1). A server that becomes faster with
/// more work at once, such as one that batches, is a [`BirthDeath`](super::BirthDeath) chain.
///
/// ```
/// use llm_roofline::queueing::ProcessorSharing;
///
/// let queue = ProcessorSharing::new(0.8, 1.0)?;
/// assert_eq!(format!("{:.1} {:.1}", queue.mean_sojourn(), queue.mean_sojourn_of(3.0)?), "5.0 15.0");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorSharing {
    load: f64,
    mean_service: f64,
}

impl ProcessorSharing {
    /// A server that gets `arrival_rate` arrivals per unit of time, each of which would take `mean_service` alone.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 0 to 1e90 or a time that is not from 1e-90 to 1e90, [`QueueError::Unstable`] if the load is not
    /// below 1.
    pub fn new(arrival_rate: f64, mean_service: f64) -> Result<Self, QueueError> {
        let rate = check::not_negative("arrival rate", arrival_rate)?;
        let mean_service = check::positive("mean service time", mean_service)?;
        Ok(Self { load: check::stable(rate * mean_service)?, mean_service })
    }

    /// Share of time that the server is busy.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// How many times longer everything takes than alone: `1 / (1 - rho)`, whatever its size.
    pub fn slowdown(&self) -> f64 {
        1.0 / (1.0 - self.load)
    }

    /// Mean time present.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_service * self.slowdown()
    }

    /// Mean time present of those that would take `service` alone.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a time that is negative or not finite.
    pub fn mean_sojourn_of(&self, service: f64) -> Result<f64, QueueError> {
        Ok(check::not_negative("service time", service)? * self.slowdown())
    }

    /// Mean number present: `rho / (1 - rho)`.
    pub fn mean_number(&self) -> f64 {
        self.load * self.slowdown()
    }

    /// Probability that `number` are present: `(1 - rho) rho^n`.
    pub fn probability_of(&self, number: u64) -> f64 {
        (1.0 - self.load) * self.load.powf(number as f64)
    }
}
