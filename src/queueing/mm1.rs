//! M/M/1: the simplest queue, one server with exponential times.

use super::{QueueError, check};

/// Poisson arrivals, exponential services, one server, first come first served.
///
/// ```
/// use llm_roofline::queueing::Mm1;
///
/// let queue = Mm1::new(0.8, 1.0)?; // 0.8 arrivals per unit of time, one unit each
/// assert_eq!(format!("{:.1} {:.1}", queue.mean_wait(), queue.mean_number()), "4.0 4.0");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mm1 {
    load: f64,
    mean_service: f64,
}

impl Mm1 {
    /// A queue of `arrival_rate` arrivals per unit of time, with `mean_service` units of time each.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 0 to 1e90 or a time that is not from 1e-90 to 1e90, [`QueueError::Unstable`] if
    /// the load `arrival_rate * mean_service` is not below 1.
    pub fn new(arrival_rate: f64, mean_service: f64) -> Result<Self, QueueError> {
        let rate = check::not_negative("arrival rate", arrival_rate)?;
        let mean_service = check::positive("mean service time", mean_service)?;
        Ok(Self { load: check::stable(rate * mean_service)?, mean_service })
    }

    /// Share of time that the server is busy, and probability that an arrival has to wait.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Mean time in the queue: `rho S / (1 - rho)`.
    pub fn mean_wait(&self) -> f64 {
        self.load * self.mean_sojourn()
    }

    /// Mean time in queue and service: `S / (1 - rho)`.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_service / (1.0 - self.load)
    }

    /// Mean number present: `rho / (1 - rho)`.
    pub fn mean_number(&self) -> f64 {
        self.load / (1.0 - self.load)
    }

    /// Probability that `number` are present: `(1 - rho) rho^n`.
    pub fn probability_of(&self, number: u64) -> f64 {
        (1.0 - self.load) * self.load.powf(number as f64)
    }

    /// Probability of a wait longer than `time`: `rho e^(-(1 - rho) t / S)`.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a time that is negative or not finite.
    pub fn wait_exceeds(&self, time: f64) -> Result<f64, QueueError> {
        Ok(self.load * self.sojourn_exceeds(time)?)
    }

    /// Probability of a time in queue and service longer than `time`: `e^(-(1 - rho) t / S)`.
    ///
    /// # Errors
    /// As [`wait_exceeds`](Self::wait_exceeds).
    pub fn sojourn_exceeds(&self, time: f64) -> Result<f64, QueueError> {
        Ok((-check::not_negative("time", time)? / self.mean_sojourn()).exp())
    }

    /// The wait that a share `q` of the arrivals does not exceed; 0 for those that need not wait.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless `0 <= q < 1`.
    pub fn wait_quantile(&self, q: f64) -> Result<f64, QueueError> {
        Ok((self.mean_sojourn() * (self.load / (1.0 - check::level(q)?)).ln()).max(0.0))
    }

    /// The time in queue and service that a share `q` of the arrivals does not exceed: `-ln(1 - q) S / (1 - rho)`.
    ///
    /// # Errors
    /// As [`wait_quantile`](Self::wait_quantile).
    pub fn sojourn_quantile(&self, q: f64) -> Result<f64, QueueError> {
        Ok(-(-check::level(q)?).ln_1p() * self.mean_sojourn())
    }
}
