//! What cannot be queued for.

use crate::numeric::NumericError;

/// Numbers that describe no queue, or a queue that grows for ever.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A number outside of its range, or none at all.
    #[error("{what} is {value}, expected a number from {least:?} to {most:?}")]
    Number {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: f64,
        /// The least that makes sense.
        least: f64,
        /// The most that makes sense.
        most: f64,
    },
    /// A count outside of its range.
    #[error("{what} is {value}, expected from {least} to {most}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least that makes sense.
        least: u64,
        /// The most that can be computed.
        most: u64,
    },
    /// More work arrives than can be done: the queue grows for ever.
    #[error("the load is {rho} of what can be served, expected below 1: the queue would grow for ever")]
    Unstable {
        /// Work that arrives, in parts of what can be served.
        rho: f64,
    },
    /// A third moment is asked for where only two are known.
    #[error("the third moment of the service time is not known: give it, or a family of distributions")]
    NoThirdMoment,
    /// A formula that needs Poisson arrivals.
    #[error("arrivals have a squared coefficient of variation of {arrival_scv}, expected 1 (Poisson arrivals)")]
    NotPoisson {
        /// The squared coefficient of variation.
        arrival_scv: f64,
    },
    /// A rate of service that is negative or no number, or 0 where somebody is served.
    #[error("the service rate with {state} present is {value}, expected a finite number above 0")]
    ServiceRate {
        /// How many are present.
        state: u64,
        /// The rate.
        value: f64,
    },
    /// A chain whose probabilities do not die out within the states that can be computed.
    #[error(
        "the probabilities of {states} states do not die out: the last ones have the ratio {ratio}, expected below 1"
    )]
    NoEnd {
        /// How many states were computed.
        states: u64,
        /// Probability of a state in parts of the one before.
        ratio: f64,
    },
    /// An equation without a solution.
    #[error(transparent)]
    Numeric(#[from] NumericError),
}
