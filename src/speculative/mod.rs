//! Speculative decoding: when it pays, by how much, with which draft length.
//!
//! A drafter proposes a few tokens, the target computes all of them in one step and keeps those that it would have chosen itself. How much is
//! gained depends on how often proposals are accepted ([`Acceptance`]), on what drafting costs (the drafter is a deployment of its own, see
//! [`Speculation`]), and on what verifying costs: one step while the target waits for memory, several when it is busy computing.
//! [`SpeculativeModel`] prices all of it with the same step model as everything else.

mod acceptance;
mod drafter;
mod error;
mod estimate;
mod method;
mod model;
mod proposal;
mod published;
mod rate;
mod search;
mod speculation;
mod text;

pub use acceptance::Acceptance;
pub use error::SpeculationError;
pub use estimate::{SpeculativeEstimate, Speedup};
pub use method::Method;
pub use model::{CycleCost, SpeculativeModel};
pub use proposal::Proposal;
pub use published::{Figure, Published, Task, Typical, published_acceptance, typical};
pub use rate::{AcceptanceRate, speedup_of_costs};
pub use search::BestChain;
pub use speculation::Speculation;

/// Most tokens that are proposed in one cycle.
const DRAFT_TOKEN_LIMIT: u64 = 256;
