//! GI/G/1: arrivals that are not Poisson, by two moments.

use super::{QueueError, Service, check};

/// Independent times between arrivals and independent service times, one server, first come first served.
///
/// ```
/// use llm_roofline::queueing::{Gg1, Service};
///
/// // Bursty arrivals with a squared coefficient of variation of 4.
/// let queue = Gg1::new(0.8, 4.0, Service::exponential(1.0)?)?;
/// assert_eq!(format!("{:.2} {:.2}", queue.mean_wait(), queue.mean_wait_bound()), "9.28 14.50");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gg1 {
    arrival_rate: f64,
    arrival_scv: f64,
    service: Service,
    load: f64,
}

impl Gg1 {
    /// A queue of `arrival_rate` arrivals per unit of time; `arrival_scv` is the squared coefficient of variation of the times between them: 0 for a clock, 1 for
    /// Poisson arrivals, `1/k` for gamma-distributed gaps of shape `k` (which load generators call burstiness).
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 1e-90 to 1e90 or an SCV that is not from 0 to 1e12, [`QueueError::Unstable`] if the load is
    /// not below 1.
    pub fn new(arrival_rate: f64, arrival_scv: f64, service: Service) -> Result<Self, QueueError> {
        let arrival_rate = check::positive("arrival rate", arrival_rate)?;
        let arrival_scv = check::scv("squared coefficient of variation of the arrivals", arrival_scv)?;
        let load = check::stable(arrival_rate * service.mean())?;
        Ok(Self { arrival_rate, arrival_scv, service, load })
    }

    /// Share of time that the server is busy.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// A time that the mean wait never exceeds.
    ///
    /// # Formula
    /// `lambda (Var A + Var S) / (2 (1 - rho))` (J. F. C. Kingman, Biometrika 49 (1962) 315).
    ///
    /// # Validity
    /// Holds for all independent times; exact in the limit of high loads. At low loads it may be any number of times too long.
    pub fn mean_wait_bound(&self) -> f64 {
        let service = self.load * self.service.mean() * self.service.scv();
        (self.arrival_scv / self.arrival_rate + service) / (2.0 * (1.0 - self.load))
    }

    /// Mean time in the queue, approximately.
    ///
    /// # Formula
    /// `rho S (ca + cs) / (2 (1 - rho))` times `exp(-2 (1 - rho)(1 - ca)^2 / (3 rho (ca + cs)))` for `ca <= 1` or
    /// `exp(-(1 - rho)(ca - 1) / (ca + 4 cs))` for `ca > 1`, with the SCVs of arrivals and services `ca` and `cs` (W. Kraemer and M. Langenbach-Belz, ITC 8, 1976).
    ///
    /// # Validity
    /// Exact for Poisson arrivals; otherwise two moments do not determine the wait, and it may be off by tens of percent at low loads with `ca` above 1.
    pub fn mean_wait(&self) -> f64 {
        let (ca, cs, idle) = (self.arrival_scv, self.service.scv(), 1.0 - self.load);
        // A clock that serves the same time each: nobody ever waits.
        if ca + cs == 0.0 {
            return 0.0;
        }
        let exponent = if ca <= 1.0 {
            2.0 * idle / 3.0 * ((1.0 - ca) * (1.0 - ca) / (self.load * (ca + cs)))
        } else {
            idle * (ca - 1.0) / (ca + 4.0 * cs)
        };
        self.load * self.service.mean() * (ca + cs) / (2.0 * idle) * (-exponent).exp()
    }

    /// Mean time in queue and service, approximately.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait() + self.service.mean()
    }
}
