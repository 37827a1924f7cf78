//! Memory of what is computed in between: activations of the largest step, and the logits of the sampler.

use crate::deployment::Deployment;
use crate::engine::MemoryRules;
use crate::model::{Architecture, FeedForward, Layer, Mixer};
use crate::profile::Sourced;
use crate::units::Bytes;

/// Activations of one device as a function of the longest context.
///
/// # Formula
/// `max(t * (per_token + context * per_context_token), logits)` with `t` tokens in the largest step: those that the engine profiles, or a whole
/// prompt as long as the context where prompts are not cut.
///
/// # Source
/// vLLM sets aside what a run of its largest step takes (`profile_run`); llama.cpp plans the graph of its largest micro-batch
/// (`ggml_gallocr_reserve`). Vectors alive at the peak are rules of the engine profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Activations {
    step_tokens: f64,
    /// Contexts up to which a prompt is one step.
    whole_prompts_up_to: u64,
    per_token: f64,
    per_context_token: f64,
    logits: f64,
}

impl Activations {
    pub(super) fn new(deployment: &Deployment, architecture: &Architecture) -> Self {
        let (rules, scheduling) = (&deployment.engine().memory, &deployment.engine().scheduling);
        let largest_step = scheduling.max_tokens_per_step.as_ref();
        let step_tokens = rules.profiled_tokens.as_ref().or(largest_step).map_or(0.0, |tokens| tokens.value as f64);
        let bytes = value(&rules.activation_bits, 16.0) / 8.0;
        let hidden = architecture.hidden_size as f64;
        let widest = architecture.layer_kinds.iter().map(|kind| widest(deployment, &kind.layer, rules));
        let vectors = bytes * (value(&rules.live_hidden, 0.0) * hidden + widest.fold(0.0, f64::max));
        let mask = if deployment.flash_attention() { &rules.mask_bytes } else { &rules.unfused_mask_bytes };
        let mask = value(mask, 0.0);
        let scores = match deployment.flash_attention() {
            true => 0.0,
            false => value(&rules.unfused_score_bytes, 0.0) * most_heads(deployment, architecture),
        };
        let copies = rules.pipeline_copies.as_ref().filter(|_| deployment.pipeline_parallel() > 1);
        let copies = copies.map_or(0.0, |copies| copies.value as f64);
        let copied_mask = value(&rules.unfused_mask_bytes, 0.0);
        Self {
            step_tokens,
            whole_prompts_up_to: rules.whole_prompts_up_to.as_ref().map_or(0, |limit| limit.value),
            per_token: vectors + copies * bytes * hidden,
            per_context_token: mask + scores + copies * copied_mask,
            logits: logits(deployment, architecture, step_tokens, bytes * hidden),
        }
    }

    /// Bytes at the peak when the longest context is this.
    pub(super) fn at(&self, context: u64) -> Bytes {
        let whole = if context <= self.whole_prompts_up_to { context as f64 } else { 0.0 };
        let tokens = self.step_tokens.max(whole);
        let forward = tokens * (self.per_token + context as f64 * self.per_context_token);
        Bytes::from_bytes(forward.max(self.logits))
    }

    /// The context beyond which activations are smaller than just below it, if there is one.
    pub(super) const fn drops_after(&self) -> Option<u64> {
        if self.whole_prompts_up_to > 0 { Some(self.whole_prompts_up_to) } else { None }
    }
}

/// Bytes at the peak of sampling.
fn logits(deployment: &Deployment, architecture: &Architecture, step_tokens: f64, hidden_bytes: f64) -> f64 {
    let rules = &deployment.engine().memory;
    let of_all = rules.logits_of_all.as_ref().is_some_and(|all| all.value);
    let row = value(&rules.bytes_per_logit, 0.0) * architecture.vocab_size as f64;
    match (of_all, &rules.max_sequences) {
        (true, _) => step_tokens * (row + hidden_bytes),
        (false, Some(sequences)) => sequences.value as f64 * row,
        (false, None) => 0.0,
    }
}

/// Elements per token of the widest moment of a layer besides its hidden vectors: the queries of attention, or the intermediate
/// vectors of the feed-forward.
fn widest(deployment: &Deployment, layer: &Layer, rules: &MemoryRules) -> f64 {
    let tp = f64::from(deployment.tensor_parallel());
    let queries = match &layer.mixer {
        Mixer::Attention(attention) => (attention.heads * attention.head_dim) as f64 / tp,
        Mixer::LatentAttention(latent) => {
            (latent.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)) as f64 / tp
        }
        _ => 0.0,
    };
    let live = value(&rules.live_intermediate, 0.0);
    // Without a gate there is one vector less.
    let intermediate = |width: u64, gated: bool| (if gated { live } else { live * 2.0 / 3.0 }) * width as f64 / tp;
    let feed_forward = match &layer.feed_forward {
        FeedForward::Dense { intermediate: width, gated } => intermediate(*width, *gated),
        FeedForward::Moe(moe) => {
            let routed = moe.experts_per_token as f64 * intermediate(moe.intermediate, moe.gated);
            routed.max(intermediate(moe.shared_intermediate.unwrap_or(0), moe.gated))
        }
        FeedForward::None | FeedForward::Linear => 0.0,
    };
    feed_forward.max(value(&rules.live_queries, 0.0) * queries)
}

/// Query heads of the layer that has most, on one device.
fn most_heads(deployment: &Deployment, architecture: &Architecture) -> f64 {
    let passes = architecture.layer_kinds.iter().flat_map(|kind| kind.layer.attention_passes());
    let heads = passes.map(|pass| pass.heads).max().unwrap_or(0);
    heads as f64 / f64::from(deployment.tensor_parallel())
}

fn value(rule: &Option<Sourced<f64>>, absent: f64) -> f64 {
    rule.as_ref().map_or(absent, |rule| rule.value)
}
