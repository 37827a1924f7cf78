//! Loads that cannot be served.

use crate::memory::DoesNotFit;
use crate::queueing::QueueError;
use crate::workload::WorkloadError;

/// Why there is no answer for a deployment under load.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServingError {
    /// Not even one request of the longest kind fits.
    #[error(transparent)]
    DoesNotFit(#[from] Box<DoesNotFit>),
    /// A request is longer than the model allows.
    #[error("prompt and answer of up to {tokens} tokens, the model's context ends at {limit}")]
    Context {
        /// Tokens of the longest request.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// The description of the load is wrong.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A queue that has no steady state, or one that cannot be computed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A number that is no number of what it should count.
    #[error("{what} is {value}, expected {expected}")]
    Number {
        /// What it is.
        what: &'static str,
        /// The value.
        value: f64,
        /// What would do.
        expected: &'static str,
    },
}

/// The value, if it is finite and above 0.
pub(super) fn above_zero(what: &'static str, value: f64) -> Result<f64, ServingError> {
    let expected = "a finite number above 0";
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(ServingError::Number { what, value, expected }) }
}

/// The value, if it is finite and not negative.
pub(super) fn not_negative(what: &'static str, value: f64) -> Result<f64, ServingError> {
    let expected = "a finite number, 0 or more";
    if value >= 0.0 && value.is_finite() { Ok(value) } else { Err(ServingError::Number { what, value, expected }) }
}

/// The share of requests that must be good, if it is one.
pub(super) fn share_of_requests(value: f64) -> Result<f64, ServingError> {
    let (what, expected) = ("the share of good requests", "a number above 0, 1 at most");
    if value > 0.0 && value <= 1.0 { Ok(value) } else { Err(ServingError::Number { what, value, expected }) }
}
