//! Dynamic batching with a largest batch.

use super::md1::decay_of;
use super::poisson::probability;
use super::{BandRow, BatchQueue, BatchTime, QueueError, check, stationary};

/// Poisson arrivals, one server that takes all that wait as one batch, but at most `largest`.
///
/// # Method
/// The number that waits when a batch ends is a Markov chain: `x` is followed by `(x - largest)^+` plus the arrivals during the next batch. It is solved by
/// eliminating states from the top (Grassmann, Taksar and Heyman: no subtraction, so no digits are lost), up to where the geometric tail leaves `1e-18`. Jumps that
/// are less probable than that are left out, which makes it a band: the effort grows with the states times `largest`, about 0.1 ms for 8 and 8 ms for 512. A limit that is
/// never reached in practice costs nothing.
///
/// # Formula
/// Mean sojourn by Little's law, over one batch of `b` out of `x` waiting: `E[(x - b)^+ tau(b) + lambda tau(b)^2/2 + b tau(b)] / E[b]`.
///
/// A larger limit always saves fixed times, but not always waiting: jobs of a batch end together, so where `per_batch` is small, small batches are better.
///
/// References: M. L. Chaudhry and J. G. C. Templeton, A First Course in Bulk Queues, 1983; W. K. Grassmann et al., Operations Research 33 (1985) 1107.
///
/// ```
/// use llm_roofline::queueing::{BatchTime, LimitedBatchQueue};
///
/// let time = BatchTime::new(0.1438, 1.8874)?; // ms
/// let queue = LimitedBatchQueue::new(2.0, time, 8)?; // batches of 8 could serve 2.63 per ms
/// assert_eq!(format!("{:.2}", queue.load()), "0.76");
/// assert!(queue.mean_batch() < 8.0 && queue.mean_sojourn() > 4.0);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitedBatchQueue {
    load: f64,
    mean_batch: f64,
    mean_sojourn: f64,
    utilization: f64,
    full: f64,
}

/// Jumps that are less probable are left out.
const NEGLIGIBLE: f64 = 1e-18;
/// The most transitions that are kept.
const TRANSITION_LIMIT: u64 = 50_000_000;

impl LimitedBatchQueue {
    /// A server that gets `arrival_rate` jobs per unit of time and serves at most `largest` together.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 1e-90 to 1e90, [`QueueError::Count`] for a largest batch that is not from 1 to 100,000,
    /// [`QueueError::Unstable`] if full batches cannot keep up, [`QueueError::NoEnd`] so near to that point that the queue has too many states.
    pub fn new(arrival_rate: f64, time: BatchTime, largest: u64) -> Result<Self, QueueError> {
        let arrival_rate = check::positive("arrival rate", arrival_rate)?;
        let largest = check::count("largest batch", largest, 1, 100_000)?;
        let load = check::stable(arrival_rate * time.of(largest) / largest as f64)?;
        match BatchQueue::new(arrival_rate, time) {
            Ok(unlimited) if never_reaches(&unlimited, largest) => Ok(Self::unlimited(&unlimited, load)),
            _ => Ok(Chain::new(arrival_rate, time, largest, load)?.solve()),
        }
    }

    fn unlimited(queue: &BatchQueue, load: f64) -> Self {
        let (mean_batch, mean_sojourn) = (queue.mean_batch(), queue.mean_sojourn());
        Self { load, mean_batch, mean_sojourn, utilization: queue.utilization(), full: 0.0 }
    }

    /// Jobs per unit of time in parts of what full batches could serve.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Mean size of a batch.
    pub const fn mean_batch(&self) -> f64 {
        self.mean_batch
    }

    /// Mean time in queue and service.
    pub const fn mean_sojourn(&self) -> f64 {
        self.mean_sojourn
    }

    /// Share of time that the server works.
    pub const fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Share of batches that are full.
    pub const fn share_of_full_batches(&self) -> f64 {
        self.full
    }
}

/// Whether batches without a limit are so much smaller than it that it does not matter.
fn never_reaches(unlimited: &BatchQueue, largest: u64) -> bool {
    let mean = unlimited.mean_batch();
    let deviation = (unlimited.batch_second_moment() - mean * mean).max(mean).sqrt();
    mean + 40.0 * deviation + 100.0 < largest as f64
}

/// The chain of how many wait when a batch ends.
struct Chain {
    arrival_rate: f64,
    time: BatchTime,
    largest: u64,
    load: f64,
    rows: Vec<BandRow>,
}

impl Chain {
    fn new(arrival_rate: f64, time: BatchTime, largest: u64, load: f64) -> Result<Self, QueueError> {
        // The probability of one more decays by e^-z per state.
        let decay = if load < 1e-200 { 460.0 } else { decay_of(load) };
        let states = largest as f64 + 42.0 / decay + 10.0 * (largest as f64).sqrt() + 30.0;
        if states * (20.0 * (largest as f64).sqrt() + 40.0) > TRANSITION_LIMIT as f64 {
            return Err(QueueError::NoEnd { states: states as u64, ratio: (-decay).exp() });
        }
        let states = states as usize;
        let mut chain = Self { arrival_rate, time, largest, load, rows: Vec::with_capacity(states) };
        for waiting in 0..states {
            let batch = chain.batch(waiting);
            let left = waiting.saturating_sub(batch as usize);
            let row = arrivals(arrival_rate * time.of(batch), left, states);
            chain.rows.push(row);
        }
        Ok(chain)
    }

    fn batch(&self, waiting: usize) -> u64 {
        (waiting as u64).clamp(1, self.largest)
    }

    fn solve(mut self) -> LimitedBatchQueue {
        let probabilities = stationary(std::mem::take(&mut self.rows));
        let (mut jobs, mut presence, mut working, mut full) = (0.0, 0.0, 0.0, 0.0);
        for (waiting, &probability) in probabilities.iter().enumerate() {
            let batch = self.batch(waiting);
            let (size, time) = (batch as f64, self.time.of(batch));
            let left = (waiting as f64 - size).max(0.0);
            jobs += probability * size;
            presence += probability * time * (left + self.arrival_rate * time / 2.0 + size);
            working += probability * time;
            full += if batch == self.largest { probability } else { 0.0 };
        }
        let idle = probabilities[0] / self.arrival_rate;
        LimitedBatchQueue {
            load: self.load,
            mean_batch: jobs,
            mean_sojourn: presence / jobs,
            utilization: working / (working + idle),
            full,
        }
    }
}

/// Probabilities of `left` plus a Poisson number of arrivals; the last state takes what lies beyond.
fn arrivals(mean: f64, left: usize, states: usize) -> BandRow {
    let mode = mean.floor();
    let peak = probability(mode, mean);
    let (mut lower, mut value, mut k) = (Vec::new(), peak, mode);
    while k > 0.0 && value > NEGLIGIBLE {
        value *= k / mean;
        k -= 1.0;
        lower.push(value);
    }
    let first = left + (mode as usize - lower.len());
    let mut jumps: Vec<f64> = lower.into_iter().rev().collect();
    let (mut value, mut k) = (peak, mode);
    while value > NEGLIGIBLE {
        jumps.push(value);
        k += 1.0;
        value *= mean / k;
    }
    let last = states - 1;
    let first = first.min(last);
    if first + jumps.len() > states {
        let beyond: f64 = jumps.drain(states - first..).sum();
        // `first` is a state, so one jump at least is left.
        if let Some(last) = jumps.last_mut() {
            *last += beyond;
        }
    }
    BandRow { first, jumps }
}
