//! Batches with a largest size whose times vary: static batching, where the longest job of a batch decides.

use super::md1::decay_of;
use super::poisson::probability;
use super::{BandRow, QueueError, check, stationary};

/// Poisson arrivals, one server that takes all that wait as one batch, but at most `largest`; the time of a batch of `b` is one of several equally likely ones.
///
/// # Method
/// As [`LimitedBatchQueue`](super::LimitedBatchQueue): how many wait when a batch ends is a Markov chain, solved without subtractions. Arrivals during a batch are a mixture of
/// Poisson numbers, one for each time.
///
/// # Formula
/// Mean wait by Little's law, over one batch of `b` out of `x` waiting: `E[(x - b)^+ T + lambda T^2/2] / E[b]`.
///
/// # Validity
/// Exact for times that depend on the size of the batch and otherwise on nothing. Probabilities below 1e-13 are left out.
///
/// Reference: M. L. Chaudhry and J. G. C. Templeton, A First Course in Bulk Queues, 1983.
///
/// ```
/// use llm_roofline::queueing::{Mg1, Service, VariedBatchQueue};
///
/// // Batches of one are M/G/1: times of 0.5 and 1.5.
/// let queue = VariedBatchQueue::new(0.6, 1, |_| [0.5, 1.5])?;
/// let exact = Mg1::new(0.6, Service::from_moments(1.0, 1.25, None)?)?;
/// assert!((queue.mean_wait() / exact.mean_wait() - 1.0).abs() < 1e-9);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct VariedBatchQueue {
    load: f64,
    largest: u64,
    mean_batch: f64,
    mean_wait: f64,
    utilization: f64,
    waiting: Vec<f64>,
}

/// Jumps that are less probable are left out.
const NEGLIGIBLE: f64 = 1e-13;
/// The most multiplications.
const WORK_LIMIT: f64 = 2e9;

impl VariedBatchQueue {
    /// A server that gets `arrival_rate` jobs per unit of time; `times` are the equally likely times of a batch of so many, which must not shrink with its size.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate or a time that is not from 1e-100 to 1e100, [`QueueError::Count`] for a largest batch that is not from 1 to 100,000,
    /// [`QueueError::Unstable`] if full batches cannot keep up, [`QueueError::NoEnd`] so near to that point that the queue has too many states.
    pub fn new<const K: usize>(
        arrival_rate: f64,
        largest: u64,
        times: impl Fn(u64) -> [f64; K],
    ) -> Result<Self, QueueError> {
        let arrival_rate = check::positive("arrival rate", arrival_rate)?;
        let largest = check::count("largest batch", largest, 1, 100_000)?;
        for time in times(1).into_iter().chain(times(largest)) {
            check::positive("time of a batch", time)?;
        }
        let full = times(largest);
        let load = check::stable(arrival_rate * full.iter().sum::<f64>() / K as f64 / largest as f64)?;
        let chain = Chain { arrival_rate, largest, times: &times };
        let states = chain.states(load, &full);
        let width = 2.0 * 8.0 * (arrival_rate * longest(&full)).sqrt()
            + arrival_rate * (longest(&full) - shortest(&full))
            + 40.0;
        if states * width * width.min(states) > WORK_LIMIT {
            return Err(QueueError::NoEnd { states: states as u64, ratio: 1.0 - chain.decay(load, &full) });
        }
        Ok(chain.solve(states as usize, load))
    }

    /// Jobs per unit of time in parts of what full batches could serve.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Mean size of a batch.
    pub const fn mean_batch(&self) -> f64 {
        self.mean_batch
    }

    /// Mean time until a job's batch starts.
    pub const fn mean_wait(&self) -> f64 {
        self.mean_wait
    }

    /// Share of time that the server works.
    pub const fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Probabilities that so many wait when a batch ends.
    pub fn waiting(&self) -> &[f64] {
        &self.waiting
    }

    /// The size of the batch that is taken out of so many, and how many are left.
    pub fn batch_of(&self, waiting: u64) -> (u64, u64) {
        let batch = waiting.clamp(1, self.largest);
        (batch, waiting.saturating_sub(batch))
    }
}

fn longest(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

fn shortest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

struct Chain<'a, T> {
    arrival_rate: f64,
    largest: u64,
    times: &'a T,
}

impl<const K: usize, T: Fn(u64) -> [f64; K]> Chain<'_, T> {
    /// By how much, about, the logarithm of the probability falls per state beyond full batches.
    fn decay(&self, load: f64, full: &[f64; K]) -> f64 {
        let mean = full.iter().sum::<f64>() / K as f64;
        let spread = full.iter().map(|time| (time / mean - 1.0).powi(2)).sum::<f64>() / K as f64;
        // Variance of arrivals over their mean; in heavy traffic the decay is that of a reflected Brownian motion.
        let dispersion = 1.0 + self.arrival_rate * mean * spread;
        decay_of(load.max(1e-3)).min(8.0) / dispersion
    }

    /// How many states matter.
    fn states(&self, load: f64, full: &[f64; K]) -> f64 {
        let largest = self.largest as f64;
        let most = largest + 32.0 / self.decay(load, full) + 10.0 * largest.sqrt() + 40.0;
        // The size from which arrivals of a batch are practically always fewer.
        let mut size = 1.0_f64;
        for _ in 0..64 {
            let arrivals = self.arrival_rate * longest(&(self.times)((size as u64).clamp(1, self.largest)));
            let next = arrivals + 9.0 * arrivals.sqrt() + 30.0;
            if next <= size {
                break;
            }
            size = next;
            if size >= largest {
                return most;
            }
        }
        (size + 20.0).min(most)
    }

    fn solve(&self, states: usize, load: f64) -> VariedBatchQueue {
        let waiting = stationary(self.rows(states));
        let (mut jobs, mut waits, mut working) = (0.0, 0.0, 0.0);
        for (state, &probability) in waiting.iter().enumerate() {
            let batch = (state as u64).clamp(1, self.largest);
            let left = (state as f64 - batch as f64).max(0.0);
            for time in (self.times)(batch) {
                working += probability * time / K as f64;
                waits += probability * (left * time + self.arrival_rate * time * time / 2.0) / K as f64;
            }
            jobs += probability * batch as f64;
        }
        let idle = waiting[0] / self.arrival_rate;
        VariedBatchQueue {
            load,
            largest: self.largest,
            mean_batch: jobs,
            mean_wait: waits / jobs,
            utilization: working / (working + idle),
            waiting,
        }
    }

    fn rows(&self, states: usize) -> Vec<BandRow> {
        let mut rows: Vec<BandRow> = Vec::with_capacity(states);
        let mut least = usize::MAX;
        for waiting in (0..states).rev() {
            let batch = (waiting as u64).clamp(1, self.largest);
            let left = waiting.saturating_sub(batch as usize);
            let means = (self.times)(batch).map(|time| self.arrival_rate * time);
            let low = |mean: f64| (mean - 8.0 * mean.sqrt() - 8.0).max(0.0) as usize;
            let first = (left + low(shortest(&means))).min(least).min(states - 1);
            least = first;
            let mut jumps = Vec::new();
            for mean in means {
                add_poisson(&mut jumps, mean, left, first, states);
            }
            jumps.iter_mut().for_each(|jump| *jump /= K as f64);
            rows.push(BandRow { first, jumps });
        }
        rows.reverse();
        rows
    }
}

/// Adds the probabilities of `left` plus a Poisson number; the last state takes what lies beyond.
fn add_poisson(jumps: &mut Vec<f64>, mean: f64, left: usize, first: usize, states: usize) {
    let mut add = |count: usize, value: f64| {
        let at = (left + count).min(states - 1) - first;
        if jumps.len() <= at {
            jumps.resize(at + 1, 0.0);
        }
        jumps[at] += value;
    };
    let mode = mean.floor() as usize;
    let peak = probability(mode as f64, mean);
    let (mut value, mut count) = (peak, mode);
    while count > 0 && left + count > first && value > NEGLIGIBLE {
        value *= count as f64 / mean;
        count -= 1;
        add(count, value);
    }
    let (mut value, mut count) = (peak, mode);
    while value > NEGLIGIBLE || count == mode {
        add(count, value);
        count += 1;
        value *= mean / count as f64;
    }
}
