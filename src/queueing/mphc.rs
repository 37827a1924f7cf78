//! M/Ph/c: several servers and services of two phases; exact, for any variability from a half on.

use super::matrix::Matrix;
use super::{QueueError, check};

/// A service of up to two exponential phases: Erlang, hypoexponential, exponential, hyperexponential times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoPhase {
    /// Probability of starting in the first phase.
    first: f64,
    /// Probability of going on to the second phase after the first.
    both: f64,
    /// Rates of the phases.
    rates: (f64, f64),
}

impl TwoPhase {
    /// Services with a mean and a squared coefficient of variation: two phases one after another below 1, one of two at random above 1, with *balanced means* (each
    /// phase contributes half of the mean).
    ///
    /// # Formula
    /// Below 1: phases of means `S (1 +- sqrt(2c - 1))/2`. Above 1: the first phase with probability `p = (1 + sqrt((c-1)/(c+1)))/2` at rate `2p/S`, the second at
    /// rate `2(1-p)/S`.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a mean that is not from 1e-90 to 1e90 or an SCV that is not from 0.5 to 1e6.
    pub fn with_scv(mean: f64, scv: f64) -> Result<Self, QueueError> {
        /// Nearer to 1 than this is exponential.
        const EXPONENTIAL: f64 = 1e-9;
        let mean = check::within("mean service time", mean, 1e-90, 1e90)?;
        let scv = check::within("squared coefficient of variation of the service time", scv, 0.5, 1e6)?;
        Ok(if (scv - 1.0).abs() < EXPONENTIAL {
            Self { first: 1.0, both: 0.0, rates: (1.0 / mean, 1.0 / mean) }
        } else if scv < 1.0 {
            let difference = (2.0 * scv - 1.0).sqrt();
            let rates = (2.0 / (mean * (1.0 + difference)), 2.0 / (mean * (1.0 - difference)));
            Self { first: 1.0, both: 1.0, rates }
        } else {
            let first = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
            let second = 0.5 * (2.0 / (scv + 1.0)) / (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
            Self { first, both: 0.0, rates: (2.0 * first / mean, 2.0 * second / mean) }
        })
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.first / self.rates.0 + (1.0 - self.first + self.first * self.both) / self.rates.1
    }
}

/// Poisson arrivals, services of two phases, `c` servers, one queue, first come first served.
///
/// # Method
/// The chain of (number present, servers in the second phase). With all servers busy its levels are alike: the matrix by which their probabilities decay comes from
/// logarithmic reduction (G. Latouche and V. Ramaswami, Journal of Applied Probability 30 (1993) 650); the levels below are eliminated from the top. The effort grows with the third power of
/// the servers: 60 us for eight.
///
/// ```
/// use llm_roofline::queueing::{MphC, TwoPhase};
///
/// // Four servers, hyperexponential services with an SCV of 4.
/// let queue = MphC::new(2.8, TwoPhase::with_scv(1.0, 4.0)?, 4)?;
/// assert_eq!(format!("{:.4}", queue.mean_wait()), "0.7807");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MphC {
    load: f64,
    mean_service: f64,
    mean_wait: f64,
    waiting: f64,
}

impl MphC {
    /// A queue of `arrival_rate` arrivals per unit of time.
    ///
    /// # Errors
    /// [`QueueError::Number`] for an offered load that is not from 1e-6 on (rates are from 1e-90), [`QueueError::Count`] for servers that are not from 1 to 128,
    /// [`QueueError::Unstable`] if the load per server is not below 1.
    pub fn new(arrival_rate: f64, service: TwoPhase, servers: u64) -> Result<Self, QueueError> {
        let arrival_rate = check::positive("arrival rate", arrival_rate)?;
        let servers = check::count("servers", servers, 1, 128)?;
        let mean_service = service.mean();
        let offered = check::within("offered load", arrival_rate * mean_service, 1e-6, f64::MAX)?;
        let load = check::stable(offered / servers as f64)?;
        // In units of the mean service, so that rates are moderate.
        let rates = (service.rates.0 * mean_service, service.rates.1 * mean_service);
        let levels = Levels { arrivals: offered, service: TwoPhase { rates, ..service }, servers: servers as usize };
        let (queue, waiting) = levels.solve();
        Ok(Self { load, mean_service, mean_wait: queue / offered * mean_service, waiting })
    }

    /// Share of time that a server is busy.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Probability that an arrival has to wait.
    pub const fn probability_of_waiting(&self) -> f64 {
        self.waiting
    }

    /// Mean time in the queue.
    pub const fn mean_wait(&self) -> f64 {
        self.mean_wait
    }

    /// Mean time in queue and service.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait + self.mean_service
    }
}

/// Levels of the chain: the number present; states of a level: how many servers are in the second phase.
struct Levels {
    arrivals: f64,
    service: TwoPhase,
    servers: usize,
}

impl Levels {
    /// Mean number queued and probability that all servers are busy.
    fn solve(&self) -> (f64, f64) {
        let c = self.servers;
        let decay = self.decay();
        // From the top: level n in parts of level n - 1.
        let mut ratios = Vec::with_capacity(c);
        let mut above = decay.times(&self.down(c + 1));
        for level in (1..=c).rev() {
            let ratio = self.up(level - 1).times(&self.within(level).plus(&above, 1.0).negated().inverse());
            above = ratio.times(&self.down(level));
            ratios.push(ratio);
        }
        let mut level = vec![1.0];
        let mut sum = 0.0;
        for ratio in ratios.iter().rev() {
            sum += level.iter().sum::<f64>();
            level = ratio.after(&level);
        }
        let all = Matrix::identity(c + 1).plus(&decay, -1.0).inverse();
        let busy = all.after(&level);
        let queue = all.after(&decay.after(&busy));
        let (busy, queue) = (busy.iter().sum::<f64>(), queue.iter().sum::<f64>());
        (queue / (sum + busy), busy / (sum + busy))
    }

    /// The matrix by which the probabilities of levels with all servers busy follow one another.
    fn decay(&self) -> Matrix {
        let (c, lambda) = (self.servers, self.arrivals);
        let identity = Matrix::identity(c + 1);
        let within = self.within(c + 1);
        let inverse = within.clone().negated().inverse();
        let (mut up, mut down) = (inverse.times(&identity.clone().scaled(lambda)), inverse.times(&self.down(c + 1)));
        let (mut first_passage, mut path) = (down.clone(), up.clone());
        for _ in 0..64 {
            let both = up.times(&down).plus(&down.times(&up), 1.0);
            let inverse = identity.plus(&both, -1.0).inverse();
            (up, down) = (inverse.times(&up.times(&up)), inverse.times(&down.times(&down)));
            first_passage = first_passage.plus(&path.times(&down), 1.0);
            path = path.times(&up);
            if path.largest() < 1e-17 {
                break;
            }
        }
        within.plus(&first_passage, lambda).negated().inverse().scaled(lambda)
    }

    /// Arrivals, from a level to the one above.
    fn up(&self, level: usize) -> Matrix {
        let first = self.service.first;
        Matrix::new(level.min(self.servers) + 1, (level + 1).min(self.servers) + 1, |from, to| {
            let share = if level >= self.servers {
                f64::from(u8::from(to == from))
            } else if to == from {
                first
            } else {
                (1.0 - first) * f64::from(u8::from(to == from + 1))
            };
            self.arrivals * share
        })
    }

    /// Changes of phase, and on the diagonal everything that leaves a state.
    fn within(&self, level: usize) -> Matrix {
        let busy = level.min(self.servers);
        Matrix::new(busy + 1, busy + 1, |from, to| {
            let (first, second) = self.phase_rates(busy, from);
            if to == from {
                -(self.arrivals + first + second)
            } else if to == from + 1 {
                first * self.service.both
            } else {
                0.0
            }
        })
    }

    /// Departures, from a level to the one below; the next in the queue takes the place.
    fn down(&self, level: usize) -> Matrix {
        let busy = level.min(self.servers);
        // Probability that the server that becomes free is then in the second phase, or in the first one: nobody takes it if none queue.
        let queued = level > self.servers;
        Matrix::new(busy + 1, (level - 1).min(self.servers) + 1, |from, to| {
            let (first, second) = self.phase_rates(busy, from);
            let done_first = first * (1.0 - self.service.both);
            let (into_first, into_second) =
                if queued { (self.service.first, 1.0 - self.service.first) } else { (1.0, 0.0) };
            if to == from {
                done_first * into_first + second * into_second
            } else if to == from + 1 {
                done_first * into_second
            } else if to + 1 == from {
                second * into_first
            } else {
                0.0
            }
        })
    }

    /// Rates at which first and second phases end.
    fn phase_rates(&self, busy: usize, in_second: usize) -> (f64, f64) {
        ((busy - in_second) as f64 * self.service.rates.0, in_second as f64 * self.service.rates.1)
    }
}
