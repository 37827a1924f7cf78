//! Distributions fitted to two moments, with a share of exact zeros: what is left when only moments are known.

use super::{QueueError, check};
use crate::numeric::{Tolerance, find_root};
use statrs::function::erf::{erfc, erfc_inv};
use statrs::function::gamma::checked_gamma_ur;
use std::f64::consts::SQRT_2;

/// A time that is zero with some probability, and otherwise of a given family with given mean and variance.
///
/// ```
/// use llm_roofline::queueing::Tail;
///
/// // Nine of ten wait; the mean of all is 4.5 seconds.
/// let wait = Tail::exponential(0.9, 4.5)?;
/// assert_eq!(format!("{:.2}", wait.quantile(0.99)?), "22.50"); // 5 ln 90
/// assert_eq!(wait.quantile(0.05)?, 0.0);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    positive: f64,
    /// Of the times that are not zero.
    mean: f64,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Family {
    Constant,
    Exponential,
    Gamma { shape: f64 },
    LogNormal { sigma: f64 },
}

/// Gamma distributions of larger shape are normal to the cube root (Wilson and Hilferty, PNAS 17 (1931) 684), to nine digits.
const LARGEST_SHAPE: f64 = 1e5;
/// Probabilities, and mean times, that stand for zero.
const NEGLIGIBLE: f64 = 1e-90;
/// Less variance than this is none.
const SMALLEST_SCV: f64 = 1e-18;

impl Tail {
    /// Exponential beyond zero.
    ///
    /// # Formula
    /// `P(T > t) = p e^(-p t / mean)` for the probability `p` that the time is not zero; `mean` is that of all times, zeros included.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a probability outside of 0 to 1 or a mean that is negative or above 1e90.
    pub fn exponential(positive: f64, mean: f64) -> Result<Self, QueueError> {
        let variance = mean * mean * (2.0 / positive - 1.0);
        Self::new(positive, mean, if variance.is_finite() { variance } else { 0.0 }, |_| Family::Exponential)
    }

    /// Gamma-distributed beyond zero; `mean` and `variance` are those of all times, zeros included.
    ///
    /// # Errors
    /// As [`exponential`](Self::exponential); and for a variance that is less than the zeros alone cause.
    pub fn gamma(positive: f64, mean: f64, variance: f64) -> Result<Self, QueueError> {
        Self::new(positive, mean, variance, |scv| Family::Gamma { shape: 1.0 / scv })
    }

    /// Log-normally distributed beyond zero; `mean` and `variance` are those of all times, zeros included.
    ///
    /// # Errors
    /// As [`gamma`](Self::gamma).
    pub fn log_normal(positive: f64, mean: f64, variance: f64) -> Result<Self, QueueError> {
        Self::new(positive, mean, variance, |scv| Family::LogNormal { sigma: scv.ln_1p().sqrt() })
    }

    fn new(positive: f64, mean: f64, variance: f64, family: fn(f64) -> Family) -> Result<Self, QueueError> {
        /// What rounding may take from a variance, in parts of the squared mean.
        const ROUNDING: f64 = 1e-12;
        let positive = check::within("probability that the time is not zero", positive, 0.0, 1.0)?;
        let all = check::not_negative("mean time", mean)?;
        if positive < NEGLIGIBLE || all < NEGLIGIBLE * positive {
            check::within("mean time", all, 0.0, NEGLIGIBLE)?;
            return Ok(Self { positive: 0.0, mean: 0.0, family: Family::Constant });
        }
        let mean = check::not_negative("mean time of those that are not zero", all / positive)?;
        // Variance is that within the positive times plus that between them and the zeros.
        let between = positive * (1.0 - positive) * mean * mean;
        let least = (between - ROUNDING * mean * mean).max(0.0);
        let variance = check::within("variance of the time", variance, least, 1e12 * mean * mean)?;
        let scv = (variance - between) / (positive * mean * mean);
        let family = if scv <= SMALLEST_SCV { Family::Constant } else { family(scv) };
        Ok(Self { positive, mean, family })
    }

    /// Probability that the time is not zero.
    pub const fn positive(&self) -> f64 {
        self.positive
    }

    /// Mean of all times, zeros included.
    pub fn mean(&self) -> f64 {
        self.positive * self.mean
    }

    /// Probability of more than `time`.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a time that is negative or not finite.
    pub fn exceeds(&self, time: f64) -> Result<f64, QueueError> {
        let time = check::not_negative("time", time)?;
        if self.positive == 0.0 {
            return Ok(0.0);
        }
        Ok(self.positive * self.share_beyond(time / self.mean))
    }

    /// The time that a share `q` does not exceed.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless `0 <= q < 1`.
    pub fn quantile(&self, q: f64) -> Result<f64, QueueError> {
        let beyond = 1.0 - check::level(q)?;
        if beyond >= self.positive {
            return Ok(0.0);
        }
        let beyond = beyond / self.positive;
        let means = match self.family {
            Family::Constant => 1.0,
            Family::Exponential => -beyond.ln(),
            Family::LogNormal { sigma } => (sigma * (SQRT_2 * erfc_inv(2.0 * beyond) - sigma / 2.0)).exp(),
            Family::Gamma { shape } if shape > LARGEST_SHAPE => {
                let ninth = 1.0 / (9.0 * shape);
                (1.0 - ninth + SQRT_2 * erfc_inv(2.0 * beyond) * ninth.sqrt()).powi(3)
            }
            Family::Gamma { shape } => gamma_quantile(shape, beyond)?,
        };
        // Tiny times underflow, huge ones cannot: the level leaves at least 1e-16.
        Ok((means * self.mean).clamp(0.0, f64::MAX))
    }

    /// Probability that a time that is not zero exceeds so many means.
    fn share_beyond(&self, means: f64) -> f64 {
        if means == 0.0 {
            return 1.0;
        }
        match self.family {
            Family::Constant => f64::from(u8::from(means < 1.0)),
            Family::Exponential => (-means).exp(),
            Family::LogNormal { sigma } => 0.5 * erfc((means.ln() / sigma + sigma / 2.0) / SQRT_2),
            Family::Gamma { shape } if shape > LARGEST_SHAPE => {
                let ninth = 1.0 / (9.0 * shape);
                0.5 * erfc((means.cbrt() - 1.0 + ninth) / (2.0 * ninth).sqrt())
            }
            Family::Gamma { shape } => gamma_beyond(shape, means),
        }
    }
}

/// Share of a gamma distribution of mean 1 beyond so many means.
fn gamma_beyond(shape: f64, means: f64) -> f64 {
    // The function is defined for positive arguments only, which this one is not where it underflows.
    checked_gamma_ur(shape, shape * means).unwrap_or(1.0).clamp(0.0, 1.0)
}

fn gamma_quantile(shape: f64, beyond: f64) -> Result<f64, QueueError> {
    // In logarithms of the time, as quantiles of small shapes lie many orders of magnitude below the mean.
    let missed = |log: f64| gamma_beyond(shape, log.exp()) - beyond;
    let (low, high) = (-700.0, (60.0 / shape).max(1.0).ln() + 5.0);
    if missed(low) <= 0.0 {
        return Ok(0.0);
    }
    Ok(find_root(missed, low, high, Tolerance { relative: 0.0, absolute: 1e-13 })?.exp())
}
