//! The heart: what one step of an inference engine costs.
//!
//! An engine runs steps (forward passes). A step processes prompt chunks and decode tokens together; a [`StepLoad`] sums up
//! what it has to do, a [`StepModel`] prices it, a [`StepCost`] says where the time goes. Unloaded requests, queueing and
//! simulation are all built from this one function, so they cannot disagree about physics.

mod compile;
mod cost;
mod explain;
mod laws;
mod load;
mod lockstep;
mod model;
mod pipeline;
mod places;
mod run;
mod sensitivity;
mod terms;
mod uncertainty;

pub use cost::StepCost;
pub(crate) use explain::Explainer;
pub use explain::{Explanation, LawReference, LawSource, LawValue, Loss, Losses, OperatorCost};
pub use load::{PhaseLoad, StepLoad};
pub use lockstep::{DecodeBase, DecodeLine, Lockstep};
pub use model::{CompileError, StepModel};
pub use sensitivity::{ResourceShares, SensitivityError, StepSensitivity};
pub use uncertainty::Interval;
