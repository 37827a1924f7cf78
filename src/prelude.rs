//! The names that most programs need: `use llm_roofline::prelude::*;`

pub use crate::catalog::Catalog;
pub use crate::deployment::Deployment;
pub use crate::engine::Engine;
pub use crate::hardware::{Device, System};
pub use crate::model::{Model, Totals};
pub use crate::operator::OperatorClass;
pub use crate::request::{Request, RequestEstimate};
pub use crate::roofline::{Bound, Roofline};
pub use crate::speculative::{Speculation, SpeculativeEstimate, SpeculativeModel};
pub use crate::step::{StepLoad, StepModel};
pub use crate::units::*;
