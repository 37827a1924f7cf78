//! Dynamic batching: a server that takes all that wait as one batch.

use super::{QueueError, check};
use crate::numeric::{Line, fit_line};

/// Time of a batch: a fixed part, and one for each job in it.
///
/// ```
/// use llm_roofline::queueing::BatchTime;
///
/// let time = BatchTime::new(0.5, 2.0)?;
/// assert_eq!(time.of(4), 4.0);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTime {
    per_job: f64,
    per_batch: f64,
}

impl BatchTime {
    /// `per_job * b + per_batch` for a batch of `b`.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless both are from 0 to 1e90 and their sum is at least 1e-100.
    pub fn new(per_job: f64, per_batch: f64) -> Result<Self, QueueError> {
        let per_job = check::not_negative("time per job", per_job)?;
        let per_batch = check::not_negative("time per batch", per_batch)?;
        check::within("time of a batch of one", per_job + per_batch, 1e-100, f64::MAX)?;
        Ok(Self { per_job, per_batch })
    }

    /// The least-squares line through measured `(batch, time)` pairs, and how well it fits (see [`Line::r_squared`]).
    ///
    /// # Errors
    /// [`QueueError::Numeric`] for pairs at fewer than two batch sizes; [`QueueError::Number`] if the line is negative somewhere.
    ///
    /// ```
    /// use llm_roofline::queueing::BatchTime;
    ///
    /// // ResNet-50 on a V100: images per second at six batch sizes, as milliseconds per batch.
    /// let table = [(1.0, 476.0), (2.0, 880.0), (4.0, 1631.0), (8.0, 2685.0), (64.0, 5877.0), (128.0, 6275.0)];
    /// let times = table.map(|(batch, rate)| (batch, 1000.0 * batch / rate));
    /// let (time, line) = BatchTime::fit(&times)?;
    /// assert_eq!(format!("{:.4} {:.4} {:.5}", time.per_job(), time.per_batch(), line.r_squared), "0.1438 1.8874 0.99975");
    /// # Ok::<(), llm_roofline::queueing::QueueError>(())
    /// ```
    pub fn fit(times: &[(f64, f64)]) -> Result<(Self, Line), QueueError> {
        let line = fit_line(times)?;
        Ok((Self::new(line.slope, line.intercept)?, line))
    }

    /// Time that each job adds.
    pub const fn per_job(&self) -> f64 {
        self.per_job
    }

    /// Time that every batch takes in addition.
    pub const fn per_batch(&self) -> f64 {
        self.per_batch
    }

    /// Time of a batch of `jobs`.
    pub const fn of(&self, jobs: u64) -> f64 {
        self.per_job * jobs as f64 + self.per_batch
    }
}

/// Poisson arrivals, one server that takes all that wait as one batch, of any size; alone if nobody does.
///
/// # Formula
/// A batch of `B` is followed by one of `A`, the arrivals during `tau(B)`, or of 1 if there are none. All moments follow from the probability `q` of
/// none (with `rho = lambda per_job` and `g = lambda per_batch`):
///
/// ```text
/// E[B]   = (g + q) / (1 - rho)
/// E[B^2] = (E[B] (rho + 2 rho g) + g + g^2 + q) / (1 - rho^2)
/// W      = (E[B^2] - E[B]) / (2 lambda E[B]) + per_job E[B^2]/E[B] + per_batch
/// ```
///
/// And `q` from the generating function `G(z) = e^(-g (1-z)) G(e^(-rho (1-z))) - q (1-z)`, followed from `G(0) = 0` to `G(1) = 1`:
/// `q = H_inf / sum over k of H_k u_k`, with `u_0 = 1`, `u_{k+1} = 1 - e^(-rho u_k)` and `H_k = e^(-g (u_0 + ... + u_{k-1}))`. Only positive terms;
/// where loads above 0.9998 would need more than 200,000 of them, the rest is integrated.
///
/// References: Y. Inoue, Queueing Analysis of GPU-Based Inference Servers with Dynamic Batching, arXiv:1912.06322 (model, lemma 2, bound); the series for `q` follows
/// from his embedded chain.
///
/// # Validity
/// Deterministic batch times; jobs of a batch end together. Batches have no limit: see [`LimitedBatchQueue`](super::LimitedBatchQueue).
///
/// ```
/// use llm_roofline::queueing::{BatchQueue, BatchTime};
///
/// let time = BatchTime::new(0.1438, 1.8874)?; // ms
/// let queue = BatchQueue::new(0.5 / 0.1438, time)?; // half of what endless batches could serve
/// assert_eq!(format!("{:.3} <= {:.3}", queue.mean_sojourn(), queue.mean_sojourn_bound()), "5.902 <= 5.902");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchQueue {
    arrival_rate: f64,
    time: BatchTime,
    load: f64,
    alone: f64,
    mean_batch: f64,
    batch_second_moment: f64,
}

impl BatchQueue {
    /// A server that gets `arrival_rate` jobs per unit of time.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 1e-90 to 1e90, or more than 1e90 arrivals per `per_batch`; [`QueueError::Unstable`] unless
    /// `arrival_rate * per_job` is below 1.
    pub fn new(arrival_rate: f64, time: BatchTime) -> Result<Self, QueueError> {
        let arrival_rate = check::positive("arrival rate", arrival_rate)?;
        let rho = check::stable(arrival_rate * time.per_job)?;
        let gathered = check::not_negative("arrivals per fixed time of a batch", arrival_rate * time.per_batch)?;
        let alone = probability_of_none(rho, gathered);
        // A batch has at least one job, whatever rounding says.
        let mean = ((gathered + alone) / (1.0 - rho)).max(1.0);
        let second = mean * (rho + 2.0 * rho * gathered) + gathered + gathered * gathered + alone;
        let second = (second / ((1.0 - rho) * (1.0 + rho))).max(mean);
        Ok(Self { arrival_rate, time, load: rho, alone, mean_batch: mean, batch_second_moment: second })
    }

    /// Jobs per unit of time in parts of what endless batches could serve.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Mean size of a batch.
    pub const fn mean_batch(&self) -> f64 {
        self.mean_batch
    }

    /// Mean square of the size of a batch.
    pub const fn batch_second_moment(&self) -> f64 {
        self.batch_second_moment
    }

    /// Share of time that the server works.
    pub fn utilization(&self) -> f64 {
        // An idle period, of mean 1/lambda, follows a batch with the probability that nobody arrived during it.
        let working = self.load * self.mean_batch + self.arrival_rate * self.time.per_batch;
        working / (working + self.alone)
    }

    /// Mean time in queue and service, exactly.
    pub fn mean_sojourn(&self) -> f64 {
        let (first, second) = (self.mean_batch, self.batch_second_moment);
        (second - first) / (2.0 * self.arrival_rate * first) + self.time.per_job * second / first + self.time.per_batch
    }

    /// A closed form that the mean time in queue and service does not exceed, and that it approaches as the load grows.
    ///
    /// # Formula
    /// The smaller of two (Inoue, theorem 2; `a` is the time per job, `t` that per batch, `l` the arrival rate):
    ///
    /// ```text
    /// (a + t) / (2 (1 - l a)) (1 + 2 l t + (1 - l t)/(1 + l a))
    /// 3 t / (2 (1 - l a)) + a (l a + 2) / (2 (1 - l^2 a^2))
    /// ```
    ///
    /// # Validity
    /// The first is the smaller one if `l (a + t) <= 1`. On measured batch times at most 8 % above the exact value, and 0.1 % where batches are large.
    pub fn mean_sojourn_bound(&self) -> f64 {
        let (job, fixed, rho, gathered) =
            (self.time.per_job, self.time.per_batch, self.load, self.arrival_rate * self.time.per_batch);
        let idle = 1.0 - rho;
        let light = (job + fixed) / (2.0 * idle) * (1.0 + 2.0 * gathered + (1.0 - gathered) / (1.0 + rho));
        let heavy = 3.0 * fixed / (2.0 * idle) + job * (rho + 2.0) / (2.0 * idle * (1.0 + rho));
        if rho + gathered <= 1.0 { light } else { heavy }
    }

    /// Mean cost per job (energy, say) if a batch costs what a line says: `slope + intercept / E[B]`.
    pub fn mean_cost_per_job(&self, cost: &Line) -> f64 {
        cost.slope + cost.intercept / self.mean_batch
    }
}

/// Probability that nobody arrives during a batch.
fn probability_of_none(rho: f64, gathered: f64) -> f64 {
    const MOST_TERMS: u32 = 200_000;
    let (mut u, mut survival, mut sum) = (1.0_f64, 1.0_f64, 0.0_f64);
    for _ in 0..MOST_TERMS {
        sum += survival * u;
        survival *= (-gathered * u).exp();
        u = -(-rho * u).exp_m1();
        if u <= 1e-17 * (1.0 - rho) * sum.min(1.0 / gathered.max(1.0)) || survival == 0.0 {
            return survival / sum;
        }
    }
    // The terms change so slowly that the rest is an integral, of du/dk = -(1 - rho) u - u^2/2.
    let rest = 2.0 * (u / (2.0 * (1.0 - rho))).ln_1p() + u / 2.0;
    let at_the_end = survival * (-gathered * rest).exp();
    let rest_of_sum = if gathered * rest < 1e-9 { survival * rest } else { (survival - at_the_end) / gathered };
    at_the_end / (sum + rest_of_sum)
}
