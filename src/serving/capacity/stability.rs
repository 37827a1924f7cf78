//! Whether a rate can be kept up with, and how sure that is.

use crate::serving::error::{above_zero, not_negative};
use crate::serving::{Server, ServingError};
use crate::units::RequestsPerSecond;
use serde::Serialize;
use std::fmt;

/// Whether a deployment keeps up with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does, even if its capacity was 20 % less.
    Stable,
    /// It does by this prediction, but not if its capacity was 20 % less.
    NearSaturation,
    /// It does not: the queue grows for as long as the rate holds.
    Unstable,
}

/// A rate against the largest that is answered, with the margin of error that predictions have.
///
/// # Formula
/// ```text
/// rho = rate / max_rate
/// ```
/// Stable up to a `rho` of 0.8, near saturation below 1, unstable from 1 on. With a capacity that is 20 % smaller or larger than predicted `rho` is `rho / 0.8` or
/// `rho / 1.2`: a verdict of a prediction cannot be surer than its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stability {
    /// The verdict.
    pub verdict: Verdict,
    /// Offered load over capacity.
    pub rho: f64,
    /// The same if the capacity was 20 % smaller than predicted.
    pub rho_if_slower: f64,
    /// The same if the capacity was 20 % larger than predicted.
    pub rho_if_faster: f64,
    /// The largest rate at which the verdict is stable: fewer requests would help.
    pub stable_rate: RequestsPerSecond,
    /// So many times the replicas make it stable; below 1 where some could be spared.
    pub replicas_factor: f64,
}

/// Highest `rho` that a capacity 20 % smaller than predicted still answers.
const SLOWER: f64 = 0.8;
/// The same for one 20 % larger.
const FASTER: f64 = 1.2;

impl Stability {
    /// Of a rate that is offered where so much can be answered at most.
    ///
    /// ```
    /// use llm_roofline::serving::{Stability, Verdict};
    /// use llm_roofline::units::RequestsPerSecond;
    /// let rate = RequestsPerSecond::from_requests_per_second;
    /// let stability = Stability::new(rate(9.0), rate(10.0))?;
    /// assert_eq!(stability.verdict, Verdict::NearSaturation);
    /// assert_eq!(format!("{:.3} {:.3}", stability.rho_if_slower, stability.rho_if_faster), "1.125 0.750");
    /// assert_eq!(format!("{:.3}", stability.replicas_factor), "1.125");
    /// # Ok::<(), llm_roofline::serving::ServingError>(())
    /// ```
    ///
    /// # Errors
    /// [`ServingError::Number`] for a rate that is negative or not finite, and a capacity that is not above 0.
    pub fn new(rate: RequestsPerSecond, max_rate: RequestsPerSecond) -> Result<Self, ServingError> {
        let offered = not_negative("requests per second", rate.as_requests_per_second())?;
        let most = above_zero("the largest rate of requests per second", max_rate.as_requests_per_second())?;
        let rho = offered / most;
        let verdict = match rho {
            rho if rho >= 1.0 => Verdict::Unstable,
            rho if rho > SLOWER => Verdict::NearSaturation,
            _ => Verdict::Stable,
        };
        Ok(Self {
            verdict,
            rho,
            rho_if_slower: rho / SLOWER,
            rho_if_faster: rho / FASTER,
            stable_rate: max_rate * SLOWER,
            replicas_factor: rho / SLOWER,
        })
    }
}

impl Server<'_> {
    /// Whether requests at this rate are kept up with.
    ///
    /// # Errors
    /// As [`Stability::new`].
    pub fn stability(&self, rate: RequestsPerSecond) -> Result<Stability, ServingError> {
        Stability::new(rate, self.max_rate())
    }
}

impl fmt::Display for Stability {
    /// A sentence, with what would help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rho, rho_if_slower, rho_if_faster, stable_rate, replicas_factor, .. } = self;
        match self.verdict {
            Verdict::Stable => {
                write!(f, "stable at {rho:.2} of capacity, and at {rho_if_slower:.2} if that is 20 % less")
            }
            Verdict::NearSaturation => write!(
                f,
                "near saturation at {rho:.2} of capacity: {rho_if_slower:.2} if that is 20 % less, {rho_if_faster:.2} if 20 % more; at most \
                 {stable_rate}, or {replicas_factor:.2} times the replicas, would be safe"
            ),
            Verdict::Unstable => write!(
                f,
                "unstable at {rho:.2} of capacity ({rho_if_slower:.2} if that is 20 % less, {rho_if_faster:.2} if 20 % more): the queue grows as \
                 long as this goes on; at most {stable_rate}, or {replicas_factor:.2} times the replicas, would be safe"
            ),
        }
    }
}
