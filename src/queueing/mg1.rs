//! M/G/1: one server, any service times; its means are exact, its tails two-moment fits.

use super::{QueueError, Service, Tail, check};

/// Poisson arrivals, services with known moments, one server, first come first served.
///
/// ```
/// use llm_roofline::queueing::{Mg1, Service};
///
/// // Services with a squared coefficient of variation of 4 wait 2.5 times as long as exponential ones.
/// let queue = Mg1::new(0.8, Service::from_moments(1.0, 5.0, Some(75.0))?)?;
/// assert_eq!(format!("{:.3}", queue.mean_wait()), "10.000");
/// assert_eq!(format!("{:.1}", queue.wait_second_moment()?), "300.0");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mg1 {
    arrival_rate: f64,
    service: Service,
    load: f64,
}

impl Mg1 {
    /// A queue of `arrival_rate` arrivals per unit of time.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 0 to 1e90, [`QueueError::Unstable`] if the load is not below 1.
    pub fn new(arrival_rate: f64, service: Service) -> Result<Self, QueueError> {
        let arrival_rate = check::not_negative("arrival rate", arrival_rate)?;
        let load = check::stable(arrival_rate * service.mean())?;
        Ok(Self { arrival_rate, service, load })
    }

    /// Share of time that the server is busy, and probability that an arrival has to wait.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Mean time in the queue: `lambda E[S^2] / (2 (1 - rho))` (Pollaczek-Khinchine).
    pub fn mean_wait(&self) -> f64 {
        self.load * self.service.mean_residual() / (1.0 - self.load)
    }

    /// Mean time in queue and service.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait() + self.service.mean()
    }

    /// Mean number present, by Little's law.
    pub fn mean_number(&self) -> f64 {
        self.arrival_rate * self.mean_sojourn()
    }

    /// Second moment of the time in the queue: `2 W^2 + lambda E[S^3] / (3 (1 - rho))` (L. Takács, Operations Research 10 (1962) 861).
    ///
    /// # Errors
    /// [`QueueError::NoThirdMoment`] if the service has none.
    pub fn wait_second_moment(&self) -> Result<f64, QueueError> {
        let third = self.service.third_moment().ok_or(QueueError::NoThirdMoment)?;
        let wait = self.mean_wait();
        Ok(2.0 * wait * wait + self.arrival_rate * third / (3.0 * (1.0 - self.load)))
    }

    /// Mean time in the queue if the server leaves whenever it finds nobody, again and again until somebody is there, for times with the
    /// moments of `vacation`.
    ///
    /// # Formula
    /// Pollaczek-Khinchine plus the rest of a vacation, `E[V^2] / (2 E[V])` (B. T. Doshi, Queueing Systems 1 (1986) 29).
    pub fn mean_wait_with_vacations(&self, vacation: &Service) -> f64 {
        self.mean_wait() + vacation.mean_residual()
    }

    /// The waiting time, its tail taken as exponential.
    ///
    /// # Formula
    /// `P(W > t) = rho e^(-rho t / W)`.
    ///
    /// # Validity
    /// Exact for exponential services, and the limit of high loads for all with a light tail; for constant ones at load 0.8 the quantile 0.99 is 6 %
    /// too long.
    ///
    /// # Errors
    /// [`QueueError::Number`] for mean waits beyond 1e90.
    pub fn exponential_tail(&self) -> Result<Tail, QueueError> {
        Tail::exponential(self.load, self.mean_wait())
    }

    /// The waiting time, its tail a gamma distribution with the first two moments of the waits that are not zero.
    ///
    /// # Validity
    /// Exact in mean, variance and the probability of not waiting. Quantiles 0.9 to 0.999 of constant services are right within 5 % at loads from 0.5 on, and 9 % at 0.3;
    /// those of an exponential tail within 21 % and 35 %.
    ///
    /// # Errors
    /// [`QueueError::NoThirdMoment`] if the service has none, [`QueueError::Number`] for mean waits beyond 1e90.
    pub fn gamma_tail(&self) -> Result<Tail, QueueError> {
        let (mean, second) = (self.mean_wait(), self.wait_second_moment()?);
        Tail::gamma(self.load, mean, second - mean * mean)
    }
}
