//! What speculative decoding adds to the memory need: a drafter, and room for what it proposes.

use super::weights::{is_without_embeddings, loaded, rotary_sizes, rotary_tables};
use crate::deployment::{Deployment, DeploymentError, Place, ShardedModel};
use crate::engine::Engine;
use crate::hardware::System;
use crate::model::{Architecture, ModelBody};
use crate::units::Bytes;
use std::sync::Arc;

/// A model that proposes tokens beside the one that verifies them: a head of a layer or a few (MTP, EAGLE), or a small model of its own.
///
/// Its deployment says its layers, its formats and over how many devices each of its matrices is cut. It runs under the engine of the
/// model that it drafts for, on the devices of the last stage, whatever engine and system its deployment names.
///
/// # Shared weights
/// Heads look tokens up in the target's embeddings. EAGLE-1 and MTP have its output head too; EAGLE-3 has one of its own over a smaller
/// vocabulary, which is then the vocabulary of its architecture. Shared tables are not counted twice. On a later stage of a pipeline there are
/// no embeddings to share, and engines load them again: they are counted there.
///
/// # Source
/// vLLM, vllm/v1/spec_decode/eagle.py: `load_model` shares the embeddings without a pipeline only.
///
/// ```
/// use llm_roofline::memory::{Drafting, MemoryModel};
/// use llm_roofline::prelude::*;
///
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 4)?;
/// let serve = |model: &str| Ok::<_, Box<dyn std::error::Error>>(Deployment::new(catalog.model(model)?, system.clone()));
/// let target = serve("llama-3.1-70b")?.with_engine(catalog.engine("vllm-2026")?);
/// let drafter = Drafting::new(serve("llama-3.2-1b")?);
/// let plan = MemoryModel::with_drafter(&target, 5, Some(&drafter)).plan(16, 8192);
/// assert_eq!(format!("{:.2} + {:.2} GiB", plan.weights.as_gib(), plan.drafter_weights.as_gib()), "32.89 + 0.59 GiB");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Drafting {
    /// The drafter: its layers, formats and tensor parallelism.
    pub deployment: Deployment,
    /// Whether its token embeddings are the target's.
    pub shared_embedding: bool,
    /// Whether its output head is the target's.
    pub shared_lm_head: bool,
}

impl Drafting {
    /// A drafter with all weights of its own.
    pub const fn new(deployment: Deployment) -> Self {
        Self { deployment, shared_embedding: false, shared_lm_head: false }
    }

    /// With the token embeddings of the target.
    #[must_use]
    pub fn with_shared_embedding(self) -> Self {
        Self { shared_embedding: true, ..self }
    }

    /// With the output head of the target.
    #[must_use]
    pub fn with_shared_lm_head(self) -> Self {
        Self { shared_lm_head: true, ..self }
    }

    /// Whether an engine could run it beside the target, memory aside.
    ///
    /// # Errors
    /// [`DraftingError`] if it could not run by itself, or is cut over more devices than a stage of the target has.
    pub fn check(&self, target: &Deployment) -> Result<(), DraftingError> {
        self.deployment.check()?;
        let (devices, of_stage) = (self.deployment.tensor_parallel(), target.devices_per_stage());
        if devices > of_stage { Err(DraftingError::TooManyDevices { devices, of_stage }) } else { Ok(()) }
    }
}

/// What is wrong with a drafter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DraftingError {
    /// It could not run by itself.
    #[error("the drafter: {0}")]
    Deployment(#[from] DeploymentError),
    /// It needs more devices than there are where it would be.
    #[error("the drafter is cut over {devices} devices, but the stage of the target that it lives on has {of_stage}")]
    TooManyDevices {
        /// Devices of the drafter.
        devices: u32,
        /// Devices of a stage of the target.
        of_stage: u32,
    },
}

/// Speculative decoding as the accounts of memory see it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speculation<'a> {
    /// Tokens that are proposed at once.
    pub draft_tokens: u64,
    pub drafting: Option<&'a Drafting>,
}

impl Speculation<'_> {
    /// Tokens of a sequence beyond its context that blocks are taken for: those proposed, while they are verified, and where a drafter
    /// has a cache, those that it proposes next.
    ///
    /// Source: vLLM, vllm/v1/core/kv_cache_manager.py, `allocate_slots`: `num_computed_tokens + num_new_tokens + num_lookahead_tokens`,
    /// of which the new tokens are one and the proposals.
    pub(super) fn tokens_ahead(&self) -> u64 {
        self.draft_tokens.saturating_mul(if self.drafting.is_some() { 2 } else { 1 })
    }
}

/// A drafter in its place.
#[derive(Clone, Debug)]
pub(super) struct Drafter<'a> {
    drafting: &'a Drafting,
    /// Alone on devices of this place, under the target's engine.
    pub deployment: Deployment,
}

impl<'a> Drafter<'a> {
    pub(super) fn new(drafting: &'a Drafting, system: System, engine: Arc<Engine>) -> Self {
        // A format of its cache that follows from its own engine is settled before the engine is changed.
        let alone = drafting.deployment.on_first_device();
        Self { drafting, deployment: alone.with_system(system).with_engine(engine) }
    }

    pub(super) fn architecture(&self) -> Option<&Architecture> {
        self.deployment.model().architecture()
    }

    /// Layers that are captured in graphs.
    pub(super) fn layers(&self) -> u64 {
        self.architecture().map_or(0, |architecture| architecture.layers() as u64)
    }

    /// Its weights on one device, beside those of the target at a place.
    pub(super) fn weights(&self, target: Option<(&ShardedModel<'_>, &Place)>) -> Bytes {
        match &self.deployment.model().body {
            ModelBody::Totals(totals) => totals.weight_bytes() / f64::from(self.deployment.tensor_parallel().max(1)),
            ModelBody::Architecture(architecture) => {
                let Some(sharded) = self.deployment.sharded() else { return Bytes::ZERO };
                let own: Bytes =
                    sharded.places().iter().map(|place| self.own_weights(architecture, &sharded, place, target)).sum();
                own + self.embeddings_again(target)
            }
        }
    }

    fn own_weights(
        &self,
        architecture: &Architecture,
        sharded: &ShardedModel<'_>,
        place: &Place,
        target: Option<(&ShardedModel<'_>, &Place)>,
    ) -> Bytes {
        let sizes = self.rotary_sizes(architecture, target);
        let all = loaded(&self.deployment, sharded, place) + rotary_tables(architecture, &sizes, place);
        (all - self.shared_tables(architecture, sharded, place)).max(Bytes::ZERO)
    }

    /// Tables of the target in place of its own.
    fn shared_tables(&self, architecture: &Architecture, sharded: &ShardedModel<'_>, place: &Place) -> Bytes {
        let Drafting { shared_embedding, shared_lm_head, .. } = *self.drafting;
        let head = Bytes::from_bytes(sharded.lm_head.weight_bytes());
        if architecture.tied_embeddings {
            return if shared_embedding || shared_lm_head { head } else { Bytes::ZERO };
        }
        let of_head = if shared_lm_head { head } else { Bytes::ZERO };
        let is_loaded = !is_without_embeddings(&self.deployment, place);
        of_head + if shared_embedding && is_loaded { table(&self.deployment, sharded) } else { Bytes::ZERO }
    }

    /// The target's embeddings, where they are shared but on another stage.
    fn embeddings_again(&self, target: Option<(&ShardedModel<'_>, &Place)>) -> Bytes {
        let Some((sharded, place)) = target.filter(|_| self.drafting.shared_embedding) else { return Bytes::ZERO };
        let is_here = place.stage.is_first || (place.stage.is_last && sharded.architecture.tied_embeddings);
        if is_here || is_without_embeddings(&self.deployment, place) {
            Bytes::ZERO
        } else {
            table(&self.deployment, sharded)
        }
    }

    /// Head sizes of rotary tables that the target does not have: layers with equal heads and positions have one together.
    fn rotary_sizes(&self, architecture: &Architecture, target: Option<(&ShardedModel<'_>, &Place)>) -> Vec<u64> {
        let positions = architecture.max_context_tokens;
        let target = target.filter(|(sharded, _)| sharded.architecture.max_context_tokens == positions);
        let known = |(sharded, place): (&ShardedModel<'_>, &Place)| {
            rotary_sizes(sharded.architecture, &place.stage.kind_counts)
        };
        let known = target.map_or_else(Vec::new, known);
        let mut sizes = rotary_sizes(architecture, &architecture.kind_counts());
        sizes.retain(|size| !known.contains(size));
        sizes
    }
}

/// A table of token embeddings, cut as the matrices of this deployment are.
fn table(deployment: &Deployment, sharded: &ShardedModel<'_>) -> Bytes {
    let rows = sharded.architecture.vocab_size as f64 / f64::from(deployment.tensor_parallel().max(1));
    Bytes::from_bytes(rows * sharded.embedding_row_bytes)
}
