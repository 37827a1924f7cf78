//! What is wrong with a description of a workload.

/// A workload that cannot be: the value given, the limit, and the unit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A request without a prompt or without an answer.
    #[error("{what} of {tokens} tokens: every request has at least {limit}")]
    TooShort {
        /// Which length.
        what: &'static str,
        /// The shortest one asked for, in tokens.
        tokens: u64,
        /// The least allowed, in tokens.
        limit: u64,
    },
    /// A length that no model has.
    #[error("{what} of {tokens} tokens: at most {limit} can be reckoned with")]
    TooLong {
        /// Which length.
        what: &'static str,
        /// The longest one asked for, in tokens.
        tokens: u64,
        /// The most allowed, in tokens.
        limit: u64,
    },
    /// Bounds the wrong way round.
    #[error("lengths from {low} to {high} tokens: the lower bound is above the upper one")]
    Bounds {
        /// The lower bound, in tokens.
        low: u64,
        /// The upper bound, in tokens.
        high: u64,
    },
    /// A number outside its range, or none at all.
    #[error("{what} {value}: it must be {limit}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The value given, in the unit that the limit names.
        value: f64,
        /// What is allowed, with its unit.
        limit: &'static str,
    },
    /// A count below its least value.
    #[error("{count} {what}: at least {limit} expected")]
    TooFew {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// The fewest allowed.
        limit: u64,
    },
    /// A cumulative distribution that falls, or does not end at 1.
    #[error("point {index} of the cumulative distribution, {tokens} tokens with {cumulative}: {expected}")]
    Cumulative {
        /// Which point, from 0.
        index: usize,
        /// Its tokens.
        tokens: u64,
        /// Its cumulative probability.
        cumulative: f64,
        /// What was expected of it.
        expected: &'static str,
    },
    /// Shares of classes that do not add up to the whole.
    #[error("the shares of the classes add up to {sum}, expected 1")]
    Shares {
        /// What they add up to.
        sum: f64,
    },
    /// Another rate for arrivals that have none.
    #[error("{arrivals} have no rate that could be set")]
    NoRate {
        /// Which arrivals.
        arrivals: &'static str,
    },
    /// Arrivals whose times depend on the answers.
    #[error("{arrivals} have no times of their own: each request waits for an answer")]
    NoTimes {
        /// Which arrivals.
        arrivals: &'static str,
    },
}

/// The value, if it is a finite number above 0.
pub(crate) fn positive(what: &'static str, value: f64, limit: &'static str) -> Result<f64, WorkloadError> {
    checked(what, value, limit, value > 0.0)
}

/// The value, if it is a finite number and the condition on it holds.
pub(crate) fn checked(what: &'static str, value: f64, limit: &'static str, ok: bool) -> Result<f64, WorkloadError> {
    if value.is_finite() && ok { Ok(value) } else { Err(WorkloadError::OutOfRange { what, value, limit }) }
}

/// The count, if it is not below the least one.
pub(crate) fn at_least(what: &'static str, count: u64, limit: u64) -> Result<u64, WorkloadError> {
    if count >= limit { Ok(count) } else { Err(WorkloadError::TooFew { what, count, limit }) }
}
