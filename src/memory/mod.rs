//! What fits: weights, cache, activations and overhead of each device against its memory, as the engine keeps accounts of them.
//!
//! Everything is asked of a [`Deployment`]: [`memory_plan`](Deployment::memory_plan) for the parts, [`fit`](Deployment::fit) for a verdict
//! with verified suggestions, [`kv_pool`](Deployment::kv_pool) for what the engine prints when it starts, and
//! [`max_context_tokens`](Deployment::max_context_tokens), [`max_sequences`](Deployment::max_sequences),
//! [`with_fewest_devices`](Deployment::with_fewest_devices) for the inverse questions.
//!
//! The rules of engines are data, in the section `[memory]` of their profiles ([`MemoryRules`](crate::engine::MemoryRules)).

mod activations;
mod cache;
mod model;
mod paged;
mod plan;
mod pool;
mod search;
mod suggest;
mod table;

pub(crate) use cache::STATE_BITS;
pub use model::MemoryModel;
pub use plan::{DoesNotFit, Location, MemoryPart, MemoryPlan, Shortage};
pub use pool::KvPool;
pub use suggest::{Change, Suggestion};
pub use table::MemoryTable;
