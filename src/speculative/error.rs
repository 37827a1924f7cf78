//! What cannot be speculated with.

use crate::memory::DraftingError;
use crate::request::RequestError;
use crate::step::CompileError;

/// A way of speculating that makes no sense, or that the models cannot be used for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculationError {
    /// A probability outside of 0 to 1.
    #[error("{what} is {value}, expected a number from 0 to 1")]
    NotAProbability {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// A ratio of costs that is negative or not finite.
    #[error("{what} is {value}, expected a finite number that is not negative")]
    NotARatio {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// More tokens per step than are proposed, or less than the one that the target adds itself.
    #[error("{tokens} tokens per step, expected from 1 to {most}: at most {} accepted and one of the target's own", .most - 1.0)]
    TokensPerStep {
        /// The measured length.
        tokens: f64,
        /// The longest possible one.
        most: f64,
    },
    /// A number of proposed tokens, passes or candidates that is zero although others are not, or too large.
    #[error("{what} is {value}, expected from {least} to {most}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least that makes sense.
        least: u64,
        /// The most that makes sense.
        most: u64,
    },
    /// A method of no known name.
    #[error("no method of speculating is called `{method}`{}", .nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default())]
    UnknownMethod {
        /// The name.
        method: String,
        /// A similar one that is known.
        nearest: Option<&'static str>,
    },
    /// A draft model that is not named.
    #[error("a draft model is a deployment of its own: use Speculation::draft_model")]
    NoDraftModel,
    /// A list of rates that is empty.
    #[error("no acceptance rates, expected at least one")]
    NoRates,
    /// A drafter that is cut out of the target needs one whose layers are known.
    #[error("{method} is built from the layers of the target, and {model} is known by its totals only")]
    NoLayers {
        /// The method.
        method: &'static str,
        /// The target.
        model: String,
    },
    /// The target cannot be run.
    #[error("target: {0}")]
    Target(#[source] CompileError),
    /// The drafter cannot be run.
    #[error("drafter: {0}")]
    Drafter(#[source] CompileError),
    /// The drafter cannot be put beside the target.
    #[error(transparent)]
    Drafting(#[from] DraftingError),
    /// The request cannot be answered.
    #[error(transparent)]
    Request(#[from] RequestError),
}
