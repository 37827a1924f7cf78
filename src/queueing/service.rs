//! Service times, described by their moments.

use super::{QueueError, check};

/// How long services take: mean, second and (if known) third moment.
///
/// The squared coefficient of variation (*SCV*) is variance over squared mean: 0 if all take the same time, 1 for exponential times.
///
/// ```
/// use llm_roofline::queueing::Service;
///
/// let service = Service::exponential(2.0)?;
/// assert_eq!((service.mean(), service.second_moment(), service.third_moment()), (2.0, 8.0, Some(48.0)));
/// assert_eq!(service.scv(), 1.0);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    mean: f64,
    second_moment: f64,
    third_moment: Option<f64>,
}

impl Service {
    /// All take the same time.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless the mean is from 1e-90 to 1e90; the same for the other constructors.
    pub fn constant(mean: f64) -> Result<Self, QueueError> {
        Self::gamma(mean, 0.0)
    }

    /// Exponentially distributed times.
    ///
    /// # Errors
    /// As [`constant`](Self::constant).
    pub fn exponential(mean: f64) -> Result<Self, QueueError> {
        Self::gamma(mean, 1.0)
    }

    /// Gamma-distributed times: Erlang times if `1/scv` is an integer.
    ///
    /// # Formula
    /// `E[S^2] = m^2 (1 + c)`, `E[S^3] = m^3 (1 + c)(1 + 2c)` for mean `m` and SCV `c`.
    ///
    /// # Errors
    /// As [`constant`](Self::constant), and for an SCV that is not from 0 to 1e12.
    pub fn gamma(mean: f64, scv: f64) -> Result<Self, QueueError> {
        let known = Self::with_scv(mean, scv)?;
        Ok(Self { third_moment: Some(mean.powi(3) * (1.0 + scv) * (1.0 + 2.0 * scv)), ..known })
    }

    /// Log-normally distributed times.
    ///
    /// # Formula
    /// `E[S^k] = m^k (1 + c)^(k(k-1)/2)` for mean `m` and SCV `c`.
    ///
    /// # Errors
    /// As [`gamma`](Self::gamma).
    pub fn log_normal(mean: f64, scv: f64) -> Result<Self, QueueError> {
        let known = Self::with_scv(mean, scv)?;
        Ok(Self { third_moment: Some(mean.powi(3) * (1.0 + scv).powi(3)), ..known })
    }

    /// Times of which only mean and SCV are known: enough for mean waits, not for their variance.
    ///
    /// # Errors
    /// As [`gamma`](Self::gamma).
    pub fn with_scv(mean: f64, scv: f64) -> Result<Self, QueueError> {
        let mean = check::positive("mean service time", mean)?;
        let scv = check::scv("squared coefficient of variation of the service time", scv)?;
        Ok(Self { mean, second_moment: mean * mean * (1.0 + scv), third_moment: None })
    }

    /// Times with known first moments.
    ///
    /// # Errors
    /// [`QueueError::Number`] for moments that no distribution of times has: `E[S^2] >= E[S]^2` and `E[S] E[S^3] >= E[S^2]^2` must hold (up to
    /// rounding).
    pub fn from_moments(mean: f64, second_moment: f64, third_moment: Option<f64>) -> Result<Self, QueueError> {
        /// What decimal digits of moments may be short of.
        const ROUNDING: f64 = 1e-12;
        let mean = check::positive("mean service time", mean)?;
        let least = mean * mean * (1.0 - ROUNDING);
        let second_moment = check::within("second moment of the service time", second_moment, least, 1e13 * least)?;
        if let Some(third) = third_moment {
            let least = second_moment / mean * second_moment * (1.0 - ROUNDING);
            check::within("third moment of the service time", third, least, 1e13 * least)?;
        }
        Ok(Self { mean, second_moment, third_moment })
    }

    /// The mean.
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The mean of the square.
    pub const fn second_moment(&self) -> f64 {
        self.second_moment
    }

    /// The mean of the third power, if known.
    pub const fn third_moment(&self) -> Option<f64> {
        self.third_moment
    }

    /// Squared coefficient of variation.
    pub fn scv(&self) -> f64 {
        (self.second_moment / (self.mean * self.mean) - 1.0).max(0.0)
    }

    /// Mean time that is left of a service in progress, seen at a random moment: `E[S^2] / (2 E[S])`.
    pub fn mean_residual(&self) -> f64 {
        self.second_moment / (2.0 * self.mean)
    }
}
