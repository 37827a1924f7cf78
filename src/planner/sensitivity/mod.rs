//! What if: how much every measure depends on every number, what bounds a deployment, and which changes bring how much.

mod diagnosis;
mod elasticity;
mod levers;
mod metric;
mod question;
mod text;

pub use crate::deployment::{Spec, SpecError};
pub use diagnosis::{DeploymentDiagnosis, Doubling, Phase, PhaseBound};
pub use elasticity::{Sensitivity, SpecEffect};
pub use levers::{Lever, LeverChange, Levers};
pub use metric::{Measure, Measures};
pub use question::Question;
