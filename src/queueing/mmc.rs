//! M/M/c: several servers before one queue.

use super::erlang::SERVER_LIMIT;
use super::{QueueError, check, erlang_c};
use crate::numeric::{Tolerance, find_root_above, smallest_where};

/// Poisson arrivals, exponential services, `c` servers, one queue, first come first served.
///
/// ```
/// use llm_roofline::queueing::Mmc;
///
/// // A call centre: 100 calls per half hour, three minutes each, fourteen people.
/// let queue = Mmc::new(100.0 / 30.0, 3.0, 14)?;
/// assert_eq!(format!("{:.3}", queue.probability_of_waiting()), "0.174");
/// assert_eq!(format!("{:.3}", queue.service_level(20.0 / 60.0)?), "0.888"); // answered within 20 seconds
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mmc {
    arrival_rate: f64,
    mean_service: f64,
    servers: u64,
    waiting: f64,
}

impl Mmc {
    /// A queue of `arrival_rate` arrivals per unit of time, with `mean_service` units of time each.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 0 to 1e90 or a time that is not from 1e-90 to 1e90, [`QueueError::Count`] without servers or for more
    /// than 100 million, [`QueueError::Unstable`] if the load per server is not below 1.
    pub fn new(arrival_rate: f64, mean_service: f64, servers: u64) -> Result<Self, QueueError> {
        let arrival_rate = check::not_negative("arrival rate", arrival_rate)?;
        let mean_service = check::positive("mean service time", mean_service)?;
        check::count("servers", servers, 1, SERVER_LIMIT)?;
        check::stable(arrival_rate * mean_service / servers as f64)?;
        let waiting = erlang_c(servers, arrival_rate * mean_service)?;
        Ok(Self { arrival_rate, mean_service, servers, waiting })
    }

    /// The fewest servers with which a share `level` of the arrivals waits at most `time`.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`QueueError::Number`] for a share that is not from 0 to below 1; [`QueueError::Unstable`] if 100 million are too few.
    ///
    /// ```
    /// # use llm_roofline::queueing::Mmc;
    /// let queue = Mmc::with_service_level(100.0 / 30.0, 3.0, 20.0 / 60.0, 0.8)?;
    /// assert_eq!(queue.servers(), 14);
    /// # Ok::<(), llm_roofline::queueing::QueueError>(())
    /// ```
    pub fn with_service_level(arrival_rate: f64, mean_service: f64, time: f64, level: f64) -> Result<Self, QueueError> {
        let (time, level) = (check::not_negative("time", time)?, check::level(level)?);
        Self::fewest(arrival_rate, mean_service, |queue| queue.served_within(time) >= level)
    }

    /// The fewest servers with which the mean wait is at most `time`.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`QueueError::Number`] for a time that is negative or not finite; [`QueueError::Unstable`] if 100 million servers are
    /// too few.
    pub fn with_mean_wait(arrival_rate: f64, mean_service: f64, time: f64) -> Result<Self, QueueError> {
        let time = check::not_negative("time", time)?;
        Self::fewest(arrival_rate, mean_service, |queue| queue.mean_wait() <= time)
    }

    fn fewest(arrival_rate: f64, mean_service: f64, good: impl Fn(&Self) -> bool) -> Result<Self, QueueError> {
        let offered =
            check::not_negative("arrival rate", arrival_rate)? * check::positive("mean service time", mean_service)?;
        let least = (offered as u64).saturating_add(1);
        let enough = |servers| Self::new(arrival_rate, mean_service, servers).is_ok_and(|queue| good(&queue));
        let unstable = QueueError::Unstable { rho: offered / SERVER_LIMIT as f64 };
        let servers = smallest_where(least, SERVER_LIMIT, enough).ok_or(unstable)?;
        Self::new(arrival_rate, mean_service, servers)
    }

    /// How many servers.
    pub const fn servers(&self) -> u64 {
        self.servers
    }

    /// Share of time that a server is busy.
    pub fn load(&self) -> f64 {
        self.offered_load() / self.servers as f64
    }

    /// Arrival rate times mean service time: the mean number in service.
    pub fn offered_load(&self) -> f64 {
        self.arrival_rate * self.mean_service
    }

    /// Probability that an arrival has to wait: Erlang C.
    pub const fn probability_of_waiting(&self) -> f64 {
        self.waiting
    }

    /// Mean time in the queue: `C S / (c (1 - rho))`.
    pub fn mean_wait(&self) -> f64 {
        self.waiting * self.mean_wait_of_waiting()
    }

    /// Mean time in the queue of those that have to wait.
    fn mean_wait_of_waiting(&self) -> f64 {
        self.mean_service / (self.servers as f64 - self.offered_load())
    }

    /// Mean time in queue and service.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait() + self.mean_service
    }

    /// Mean number in the queue, by Little's law.
    pub fn mean_queue(&self) -> f64 {
        self.arrival_rate * self.mean_wait()
    }

    /// Mean number in queue and service.
    pub fn mean_number(&self) -> f64 {
        self.mean_queue() + self.offered_load()
    }

    /// Probability of a wait longer than `time`: `C e^(-(c - a) t / S)`.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a time that is negative or not finite.
    pub fn wait_exceeds(&self, time: f64) -> Result<f64, QueueError> {
        Ok(self.waiting * (-check::not_negative("time", time)? / self.mean_wait_of_waiting()).exp())
    }

    /// Share of arrivals that wait at most `time`.
    ///
    /// # Errors
    /// As [`wait_exceeds`](Self::wait_exceeds).
    pub fn service_level(&self, time: f64) -> Result<f64, QueueError> {
        Ok(self.served_within(check::not_negative("time", time)?))
    }

    fn served_within(&self, time: f64) -> f64 {
        1.0 - self.waiting * (-time / self.mean_wait_of_waiting()).exp()
    }

    /// The wait that a share `q` of the arrivals does not exceed; 0 for those that need not wait.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless `0 <= q < 1`.
    pub fn wait_quantile(&self, q: f64) -> Result<f64, QueueError> {
        Ok((self.mean_wait_of_waiting() * (self.waiting / (1.0 - check::level(q)?)).ln()).max(0.0))
    }

    /// Probability of a time in queue and service longer than `time`.
    ///
    /// # Formula
    /// `e^-u (1 + C u (1 - e^-x)/x)` with `u = t/S` and `x = (c - 1 - a) u`: an exponential service, and for those that wait an exponential wait before it.
    ///
    /// # Errors
    /// As [`wait_exceeds`](Self::wait_exceeds).
    pub fn sojourn_exceeds(&self, time: f64) -> Result<f64, QueueError> {
        Ok(self.stays_longer(check::not_negative("time", time)?))
    }

    fn stays_longer(&self, time: f64) -> f64 {
        let services = time / self.mean_service;
        let rate = self.servers as f64 - 1.0 - self.offered_load();
        // e^-u (1 - e^-x)/x u, written so that neither factor overflows where x is negative.
        let exponent = rate * services;
        let both = if exponent.abs() < 1e-8 {
            services * (-services).exp()
        } else {
            ((-services).exp() - (-services - exponent).exp()) / rate
        };
        ((-services).exp() + self.waiting * both).clamp(0.0, 1.0)
    }

    /// The time in queue and service that a share `q` of the arrivals does not exceed.
    ///
    /// # Errors
    /// As [`wait_quantile`](Self::wait_quantile).
    pub fn sojourn_quantile(&self, q: f64) -> Result<f64, QueueError> {
        let beyond = 1.0 - check::level(q)?;
        let missed = |services: f64| self.stays_longer(services * self.mean_service) - beyond;
        Ok(find_root_above(missed, 0.0, 1.0, Tolerance::TIGHT)? * self.mean_service)
    }
}
