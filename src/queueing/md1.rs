//! M/D/1: one server, all services alike; with the whole distribution of the waiting time.

use super::{QueueError, check};
use crate::numeric::{Tolerance, find_root};

/// From so many service times on the distribution is its exponential tail, to all digits.
const TABLE: usize = 48;

/// Poisson arrivals, services of constant length, one server, first come first served.
///
/// # Method
/// Crommelin's distribution of the waiting time is an alternating sum that loses all digits after some ten service times. Three forms
/// without a subtraction replace it:
/// - *Number present.* The balance between "at most `n`" and "more": `p_{n+1} a_0 = p_0 A_n + sum_{i=1..n} p_i A_{n-i+1}`, with `a_k` the
///   probability of `k` arrivals during a service and `A_k` of more than `k`.
/// - *Wait below 48 services.* With `(k-1) D <= t < k D` and `y = lambda (k D - t)`, the wait is longer than `t` if more than `k - 1 - j` queue
///   and `j` arrive in `k D - t`: `P(W > t) = sum_{j<k} P(L_q > k-1-j) e^-y y^j/j! + P(j >= k)` (G. J. Franx, Operations Research Letters 29
///   (2001) 221, doi:10.1016/S0167-6377(01)00108-0, of which this is the complement).
/// - *Longer waits*, and queues beyond 48: `P(W > t) = (1 - rho)/(z - 1 + rho) e^(-z t/D)`, the pole next to zero of the Pollaczek-Khinchine
///   transform, with `z > 0` from `e^z = 1 + z/rho`. The next poles are smaller by `e^(-100)` there at high load.
///
/// ```
/// use llm_roofline::queueing::Md1;
///
/// let queue = Md1::new(0.8, 1.0)?;
/// assert_eq!(format!("{:.3}", queue.mean_wait()), "2.000"); // half of M/M/1
/// assert_eq!(format!("{:.3}", queue.wait_quantile(0.99)?), "10.356");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Md1 {
    load: f64,
    service: f64,
    /// Decay of the tail per service time, and the factor before it.
    decay: f64,
    factor: f64,
    /// Probability that more than `n` queue (not counting the one in service).
    queue_exceeds: [f64; TABLE],
}

impl Md1 {
    /// A queue of `arrival_rate` arrivals per unit of time, each of which is served for `service` units.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 0 to 1e90 or a time that is not from 1e-90 to 1e90, [`QueueError::Unstable`] if
    /// the load `arrival_rate * service` is not below 1.
    pub fn new(arrival_rate: f64, service: f64) -> Result<Self, QueueError> {
        let rate = check::not_negative("arrival rate", arrival_rate)?;
        let service = check::positive("service time", service)?;
        let load = check::stable(rate * service)?;
        // Without load there is no pole, and nobody waits.
        if load < 1e-200 {
            return Ok(Self { load, service, decay: f64::MAX.ln(), factor: 0.0, queue_exceeds: [0.0; TABLE] });
        }
        let decay = decay_of(load);
        let factor = (1.0 - load) / (decay - (1.0 - load));
        Ok(Self { load, service, decay, factor, queue_exceeds: queue_exceeds(load, factor, decay) })
    }

    /// Share of time that the server is busy, and probability that an arrival has to wait.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Mean time in the queue: `rho D / (2 (1 - rho))`.
    pub fn mean_wait(&self) -> f64 {
        self.load * self.service / (2.0 * (1.0 - self.load))
    }

    /// Mean time in queue and service.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait() + self.service
    }

    /// Mean number present, by Little's law.
    pub fn mean_number(&self) -> f64 {
        self.load * self.mean_sojourn() / self.service
    }

    /// Probability of a wait longer than `time`.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a time that is negative or not finite.
    pub fn wait_exceeds(&self, time: f64) -> Result<f64, QueueError> {
        Ok(self.exceeds(check::not_negative("time", time)? / self.service))
    }

    /// The wait that a share `q` of the arrivals does not exceed; 0 for those that need not wait.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless `0 <= q < 1`.
    pub fn wait_quantile(&self, q: f64) -> Result<f64, QueueError> {
        let beyond = 1.0 - check::level(q)?;
        if beyond >= self.load {
            return Ok(0.0);
        }
        let end = TABLE as f64;
        let services = if beyond <= self.exceeds(end) {
            (self.factor / beyond).ln() / self.decay
        } else {
            // In logarithms the tail is almost a straight line.
            find_root(|t| (self.exceeds(t) / beyond).ln(), 0.0, end, Tolerance::TIGHT)?
        };
        Ok(services * self.service)
    }

    /// The time in queue and service that a share `q` of the arrivals does not exceed.
    ///
    /// # Errors
    /// As [`wait_quantile`](Self::wait_quantile).
    pub fn sojourn_quantile(&self, q: f64) -> Result<f64, QueueError> {
        Ok(self.wait_quantile(q)? + self.service)
    }

    /// Probability of a wait longer than so many services.
    fn exceeds(&self, services: f64) -> f64 {
        if services >= TABLE as f64 {
            return self.factor * (-self.decay * services).exp();
        }
        let whole = services as usize; // k - 1 of the formula
        let expected = self.load * ((whole + 1) as f64 - services);
        let (mut arrivals, mut sum) = ((-expected).exp(), 0.0);
        for (j, exceeds) in self.queue_exceeds[..=whole].iter().rev().enumerate() {
            sum += exceeds * arrivals;
            arrivals *= expected / (j + 1) as f64;
        }
        let mut more = whole + 1;
        while arrivals > sum * f64::EPSILON {
            (sum, more) = (sum + arrivals, more + 1);
            arrivals *= expected / more as f64;
        }
        sum.min(self.load)
    }
}

/// The positive solution of `e^z = 1 + z/rho`, by Newton's method from above, where `z - ln(1 + z/rho)` is convex.
pub(crate) fn decay_of(load: f64) -> f64 {
    let mut z = 2.0 - 2.0 * load.ln();
    for _ in 0..200 {
        let step = (z - (z / load).ln_1p()) / (1.0 - 1.0 / (load + z));
        if step <= z * f64::EPSILON || z - step <= 1.0 - load {
            break;
        }
        z -= step;
    }
    z
}

/// Probabilities that more than `n` queue.
fn queue_exceeds(load: f64, factor: f64, decay: f64) -> [f64; TABLE] {
    // Probabilities of `k` arrivals during a service, then of more than `k`.
    let mut arrivals = [0.0; TABLE + 2];
    arrivals[0] = (-load).exp();
    for k in 1..arrivals.len() {
        arrivals[k] = arrivals[k - 1] * load / k as f64;
    }
    let none = arrivals[0];
    let mut more = 0.0;
    for value in arrivals.iter_mut().rev() {
        (*value, more) = (more, more + *value);
    }
    let mut present = [0.0; TABLE + 1];
    present[0] = 1.0 - load;
    for n in 0..TABLE {
        let queued: f64 = (1..=n).map(|i| present[i] * arrivals[n - i + 1]).sum();
        present[n + 1] = (present[0] * arrivals[n] + queued) / none;
    }
    // More than n queue: more than n + 1 are present. The last one from the tail, the others by adding to it.
    let mut exceeds = [0.0; TABLE];
    let mut sum = factor * (-decay * TABLE as f64).exp();
    for n in (0..TABLE).rev() {
        exceeds[n] = sum;
        sum += present[n + 1];
    }
    exceeds
}
