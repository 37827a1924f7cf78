//! What cannot be solved.

/// A problem that has no solution, or none that can be found.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NumericError {
    /// An interval without a beginning before its end.
    #[error("no interval from {low} to {high}: expected two finite numbers, the lower one first")]
    NoInterval {
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// A function with the same sign at both ends of an interval.
    #[error("no change of sign from {low} (value {at_low}) to {high} (value {at_high})")]
    NoBracket {
        /// The lower end.
        low: f64,
        /// The value there.
        at_low: f64,
        /// The upper end.
        high: f64,
        /// The value there.
        at_high: f64,
    },
    /// A function that is not finite somewhere in the interval.
    #[error("the function is {value} at {at}, expected a finite number")]
    NotFinite {
        /// The argument.
        at: f64,
        /// The value.
        value: f64,
    },
    /// Points that determine no line.
    #[error("{points} points at {distinct} different places, expected at least 2 places and finite numbers")]
    NoLine {
        /// How many points.
        points: usize,
        /// At how many different places.
        distinct: usize,
    },
}
