//! Speculative decoding: when it pays, by how much, with which draft length.
//!
//! A drafter proposes a few tokens, the target computes all of them in one step and keeps those that it would have chosen itself. How much is
//! gained depends on how often proposals are accepted ([`Acceptance`]), on what drafting costs (the drafter is a deployment of its own, see
//! [`Speculation`]), and on what verifying costs: one step while the target waits for memory, several when it is busy computing.
//! [`SpeculativeModel`] prices all of it with the same step model as everything else.
//!
//! ```
//! use llm_roofline::prelude::*;
//! use llm_roofline::speculative::Method;
//!
//! let catalog = Catalog::embedded();
//! let target = Deployment::new(catalog.model("llama-3.1-70b")?, System::new(catalog.device("h100-sxm-80gb")?, 4)?)
//!     .with_engine(catalog.engine("vllm")?);
//! let head = Speculation::new(Method::Eagle3, &target)?.with_draft_tokens(3)?.with_acceptance_rate(0.7)?;
//! let model = SpeculativeModel::compile(&target, &head)?;
//! let answer = model.request(&Request::new(1000, 500))?;
//! // Tokens come faster, in chunks that are further apart than tokens were.
//! let (gap, token, before) = (answer.chunk_interval.unwrap(), answer.tpot.unwrap(), answer.plain.tpot.unwrap());
//! assert!(token < before && before < gap);
//! // Two to three tokens a chunk: more than twice as fast alone; nothing is gained among 256.
//! assert!(answer.speedup.unwrap().expected > 2.0 && model.speedup(256, 500) < 1.0);
//! // Alone longer chains are worth their drafts, among 64 shorter ones.
//! let best = |batch| model.best_draft_tokens(batch, 1000, 16).map(|best| best.draft_tokens);
//! assert!(best(1)? > 3 && best(64)? < best(1)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
