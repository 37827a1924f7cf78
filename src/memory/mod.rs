//! What fits: weights, cache, activations and overhead of each device against its memory, as the engine keeps accounts of them.
//!
//! Everything is asked of a [`Deployment`]: [`Deployment::memory_plan`] for the parts, [`Deployment::fit`] for a verdict with verified
//! suggestions, [`Deployment::kv_pool`] for what the engine prints when it starts, and [`Deployment::max_context_tokens`],
//! [`Deployment::max_sequences`], [`Deployment::with_fewest_devices`] for the inverse questions.
//!
//! [`MemoryModel::cache_pool`] gives the same rules as numbers, for accounts of many sequences of different lengths.
//!
//! With speculative decoding the same is asked of [`MemoryModel::with_drafter`].
//!
//! [`Deployment`]: crate::deployment::Deployment
//! [`Deployment::memory_plan`]: crate::deployment::Deployment::memory_plan
//! [`Deployment::fit`]: crate::deployment::Deployment::fit
//! [`Deployment::kv_pool`]: crate::deployment::Deployment::kv_pool
//! [`Deployment::max_context_tokens`]: crate::deployment::Deployment::max_context_tokens
//! [`Deployment::max_sequences`]: crate::deployment::Deployment::max_sequences
//! [`Deployment::with_fewest_devices`]: crate::deployment::Deployment::with_fewest_devices
//!
//! The rules of engines are data, in the section `[memory]` of their profiles ([`MemoryRules`](crate::engine::MemoryRules)).

mod activations;
mod cache;
mod cache_pool;
mod drafting;
mod model;
mod paged;
mod plan;
mod pool;
mod search;
mod suggest;
mod table;
mod weights;

pub(crate) use cache::STATE_BITS;
pub use cache_pool::{CacheGroup, CachePool};
pub use drafting::{Drafting, DraftingError};
pub use model::MemoryModel;
pub use plan::{DoesNotFit, Location, MemoryPart, MemoryPlan, Shortage};
pub use pool::KvPool;
pub use suggest::{Change, Suggestion};
pub(crate) use suggest::{smaller_caches, smaller_weights};
pub use table::MemoryTable;
