//! Memory of what is computed in between: activations of the largest step, and the logits of the sampler.

use super::cache::{is_unified, shares, step_beside_window, window_entries};
use crate::deployment::Deployment;
use crate::engine::MemoryRules;
use crate::format::WeightFormat;
use crate::model::{Architecture, AttentionPass, FeedForward, Layer, LayerKind, Mixer, Moe, Reach, Recurrent};
use crate::profile::Sourced;
use crate::units::Bytes;

/// Activations of one device as a function of the longest context.
///
/// # Formula
/// `max(attention, recurrent, sampling, copied) + t * beside + workspace` with `t` tokens in the largest step: those that the engine
/// profiles, or a whole prompt as long as the context where prompts are not cut.
///
/// - attention: `t * (per_token + entries * per_entry + window_entries * mask) + expanded`; `entries` are those of the cache that a mask
///   reaches over, one sequence's or those of all in a unified cache, `expanded` a layer's quantized cache in 16 bits;
/// - recurrent: `t * (per_token + entries * mask)` of gated delta nets;
/// - sampling: `t * sampling_per_token + sampling`;
/// - copied: a matrix from the host with what is computed of it.
///
/// # Source
/// vLLM sets aside what a run of its largest step takes (`profile_run`, then a run of the sampler); llama.cpp plans the graph of its largest
/// micro-batch (`ggml_gallocr_reserve`). Which vectors are alive at the peak are rules of the engine profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Activations {
    step_tokens: f64,
    /// Contexts up to which a prompt is one step.
    whole_prompts_up_to: u64,
    per_token: f64,
    /// Per token of the step and entry of the cache: masks and scores.
    per_entry: f64,
    /// Layers with windows have a mask of their own.
    windows: Option<WindowMask>,
    /// Whether all sequences are in one cache.
    unified: bool,
    expanded: Expanded,
    recurrent: RecurrentPeak,
    /// At the peak of sampling, per token of the step and besides.
    sampling_per_token: f64,
    sampling: f64,
    /// Per token, kept beside everything else.
    beside: f64,
    workspace: f64,
    copied: Option<CopiedMatrix>,
}

/// A quantized cache of one layer in 16 bits: bytes per entry of layers that keep all entries, and of those with windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Expanded {
    full: f64,
    window: f64,
}

/// The peak of a recurrent layer: vectors of each token of the step, and the mask that stays for layers with attention.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RecurrentPeak {
    per_token: f64,
    mask_per_entry: f64,
}

/// A matrix on the host that is copied to the device for large steps, and what is computed with it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CopiedMatrix {
    matrix: f64,
    per_token: f64,
    mask_per_entry: f64,
}

/// The mask of layers with windows in a cache that keeps a step beside them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WindowMask {
    bytes_per_entry: f64,
    window: u64,
    step_tokens: u64,
    granularity: u64,
}

impl Activations {
    /// Those of a stage; only the last one has the output head.
    pub(super) fn new(deployment: &Deployment, architecture: &Architecture, is_last: bool) -> Self {
        let rules = &deployment.engine().memory;
        let step_tokens = deployment.memory_step_tokens() as f64;
        let element = element_bytes(deployment);
        let hidden = element * architecture.hidden_size as f64;
        let layers = || architecture.layer_kinds.iter().map(|kind| &kind.layer);
        let routed = |layer: &Layer| layer.feed_forward.moe().map_or(0.0, |moe| routed(deployment, moe, architecture));
        let (beside, within) = match rules.keeps_routed.as_ref().map(|keeps| keeps.value) {
            Some(true) => (1.0, 0.0),
            Some(false) => (0.0, 1.0),
            None => (0.0, 0.0),
        };
        let widest = |layer: &Layer| widest(deployment, layer, rules).max(within * routed(layer));
        let widest = layers().map(widest).fold(0.0, f64::max);
        let copies = rules.pipeline_copies.as_ref().filter(|_| deployment.pipeline_parallel() > 1);
        let copies = copies.map_or(0.0, |copies| copies.value as f64);
        let Sampling { per_token, rows } = sampling(deployment, architecture, step_tokens, is_last);
        Self {
            step_tokens,
            whole_prompts_up_to: rules.whole_prompts_up_to.as_ref().map_or(0, |limit| limit.value),
            per_token: value(&rules.live_hidden, 0.0) * hidden + element * widest + copies * hidden,
            per_entry: scores(deployment, architecture) + copies * input_mask(deployment),
            windows: WindowMask::new(deployment, architecture),
            unified: is_unified(deployment),
            expanded: Expanded::new(deployment, architecture),
            recurrent: RecurrentPeak::new(deployment, architecture, element, hidden),
            sampling_per_token: per_token,
            sampling: rows,
            beside: element * beside * layers().map(routed).fold(0.0, f64::max),
            workspace: rules.workspace.as_ref().map_or(0.0, |rule| rule.value.as_bytes()),
            copied: None,
        }
    }

    /// The same where matrices on the host are multiplied on the device: beside the mask, the largest of them, two hidden vectors and
    /// the intermediate vectors of a token.
    ///
    /// Source: ggml-org/llama.cpp#23861 (3,892 MiB without logits, 3,916 here).
    pub(super) fn with_copied_matrix(
        self,
        deployment: &Deployment,
        architecture: &Architecture,
        matrix: Bytes,
    ) -> Self {
        let rules = &deployment.engine().memory;
        let width = |kind: &LayerKind| match &kind.layer.feed_forward {
            FeedForward::Moe(moe) => 3 * moe.experts_per_token * moe.intermediate,
            FeedForward::Dense { intermediate, .. } => 2 * intermediate,
            _ => 0,
        };
        let widest = architecture.layer_kinds.iter().map(width).max().unwrap_or(0);
        let element = value(&rules.activation_bits, 16.0) / 8.0;
        let mask = if deployment.flash_attention() { &rules.mask_bytes } else { &rules.unfused_mask_bytes };
        let per_token = element * (widest + 2 * architecture.hidden_size) as f64;
        let copied = CopiedMatrix { matrix: matrix.as_bytes(), per_token, mask_per_entry: value(mask, 0.0) };
        Self { copied: Some(copied), ..self }
    }

    /// Bytes at the peak for so many sequences, of which the longest context is this.
    pub(super) fn at(&self, sequences: u64, context: u64) -> Bytes {
        let whole = context <= self.whole_prompts_up_to;
        let tokens = if whole { self.step_tokens.max(context as f64) } else { self.step_tokens };
        let together = if self.unified { sequences.max(1) } else { 1 };
        let entries = context.saturating_mul(together);
        let window_mask = self.windows.as_ref().map_or(0.0, |mask| mask.bytes(together, entries));
        let in_windows = self.windows.as_ref().map_or(0.0, |mask| mask.entries(together, entries));
        let expanded = (entries as f64 * self.expanded.full).max(in_windows * self.expanded.window);
        let attention = tokens * (self.per_token + entries as f64 * self.per_entry + window_mask) + expanded;
        let recurrent = match self.recurrent.per_token > 0.0 {
            true => tokens * (self.recurrent.per_token + entries as f64 * self.recurrent.mask_per_entry),
            false => 0.0,
        };
        let forward = attention.max(recurrent);
        // Where long prompts are cut, the run that memory is set aside for cuts them too, and samples nothing.
        let samples = whole || self.whole_prompts_up_to == 0;
        let sampling = if samples { self.sampling + tokens * self.sampling_per_token } else { 0.0 };
        let copied = self.copied.as_ref().map_or(0.0, |copied| {
            copied.matrix + tokens * (copied.per_token + entries as f64 * copied.mask_per_entry + window_mask)
        });
        Bytes::from_bytes(forward.max(sampling).max(copied) + tokens * self.beside + self.workspace)
    }

    /// The context beyond which activations are smaller than just below it, if there is one.
    pub(super) const fn drops_after(&self) -> Option<u64> {
        if self.whole_prompts_up_to > 0 { Some(self.whole_prompts_up_to) } else { None }
    }
}

impl WindowMask {
    fn new(deployment: &Deployment, architecture: &Architecture) -> Option<Self> {
        let rules = &deployment.engine().memory;
        let step_tokens = Some(step_beside_window(deployment)).filter(|tokens| *tokens > 0)?;
        let passes = architecture.layer_kinds.iter().flat_map(|kind| kind.layer.attention_passes());
        let windows = passes.filter_map(|pass| match deployment.reach(pass.reach) {
            Reach::Window(window) => Some(window),
            _ => None,
        });
        let mask = if deployment.flash_attention() { &rules.mask_bytes } else { &rules.unfused_mask_bytes };
        let granularity = rules.block_tokens.as_ref().map_or(1, |tokens| tokens.value.max(1));
        Some(Self { bytes_per_entry: value(mask, 0.0), window: windows.max()?, step_tokens, granularity })
    }

    /// Bytes per token of a step.
    fn bytes(&self, sequences: u64, entries: u64) -> f64 {
        self.bytes_per_entry * self.entries(sequences, entries)
    }

    /// Entries that are kept.
    fn entries(&self, sequences: u64, entries: u64) -> f64 {
        window_entries(self.window, sequences, self.step_tokens, self.granularity).min(entries) as f64
    }
}

impl Expanded {
    fn new(deployment: &Deployment, architecture: &Architecture) -> Self {
        let expands = deployment.engine().memory.expands_quantized_cache.as_ref().is_some_and(|expands| expands.value);
        let mut expanded = Self::default();
        if !expands || !deployment.flash_attention() {
            return expanded;
        }
        for kind in &architecture.layer_kinds {
            for pass in kind.layer.kept_passes().filter(|pass| deployment.cache_bits(&kind.layer, pass) < 16.0) {
                let bytes = 2.0 * pass.elements_per_entry as f64 / shares(deployment) as f64;
                let windowed = matches!(deployment.reach(pass.reach), Reach::Window(_));
                let place = if windowed { &mut expanded.window } else { &mut expanded.full };
                *place = place.max(bytes);
            }
        }
        expanded
    }
}

impl RecurrentPeak {
    /// Only gated delta nets are known; of a mask that attention converts to 16 bits, the converted one is left.
    fn new(deployment: &Deployment, architecture: &Architecture, element: f64, hidden: f64) -> Self {
        let rules = &deployment.engine().memory;
        let (inputs, values) = (value(&rules.live_convolution, 0.0), value(&rules.live_values, 0.0));
        let width = |kind: &LayerKind| match kind.layer.mixer {
            Mixer::Recurrent(Recurrent::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, .. }) => {
                let all_values = (value_heads * value_dim) as f64;
                inputs * ((2 * key_heads * key_dim) as f64 + all_values) + values * all_values
            }
            _ => 0.0,
        };
        let widest = architecture.layer_kinds.iter().map(width).fold(0.0, f64::max) / shares(deployment) as f64;
        let converted = value(&rules.mask_bytes, 0.0).min(2.0);
        let mask_per_entry =
            if deployment.flash_attention() { converted } else { value(&rules.unfused_mask_bytes, 0.0) };
        let per_token = if widest > 0.0 { element * widest + value(&rules.live_hidden, 0.0) * hidden } else { 0.0 };
        Self { per_token, mask_per_entry }
    }
}

/// The peak of sampling.
struct Sampling {
    per_token: f64,
    rows: f64,
}

/// Logits of every sequence that may run, or of every token of the step, beside a hidden vector per token.
fn sampling(deployment: &Deployment, architecture: &Architecture, step_tokens: f64, is_last: bool) -> Sampling {
    let rules = &deployment.engine().memory;
    let element = element_bytes(deployment);
    // Where the engine computes in the model's type, logits come in it too; 2 bytes are counted for it.
    let wider = if rules.activation_bits.is_none() { (element - 2.0).max(0.0) } else { 0.0 };
    let per_logit = rules.bytes_per_logit.as_ref().map_or(0.0, |rule| rule.value + wider);
    let row = per_logit * architecture.vocab_size as f64;
    let workspace = rules.sampling_workspace.as_ref().map_or(0.0, |rule| rule.value.as_bytes());
    let of_all = rules.logits_of_all.as_ref().is_some_and(|all| all.value);
    let sequences = deployment.memory_sequences().map_or(0.0, |sequences| sequences as f64);
    let rows = if of_all { step_tokens } else { sequences.min(step_tokens) };
    let has_states = || architecture.layer_kinds.iter().any(|kind| matches!(kind.layer.mixer, Mixer::Recurrent(_)));
    let samples = !rules.samples_with_states_only.as_ref().is_some_and(|only| only.value) || has_states();
    match is_last && samples && row > 0.0 {
        true => Sampling { per_token: element * architecture.hidden_size as f64, rows: rows * row + workspace },
        false => Sampling { per_token: 0.0, rows: 0.0 },
    }
}

/// Bytes of mask and scores per token of the step and token of the context, in the layer with most of them.
fn scores(deployment: &Deployment, architecture: &Architecture) -> f64 {
    let of_layer = |kind: &LayerKind| {
        let passes = kind.layer.attention_passes();
        passes.iter().map(|pass| pass_scores(deployment, &kind.layer, pass)).fold(0.0, f64::max)
    };
    architecture.layer_kinds.iter().map(of_layer).fold(0.0, f64::max)
}

/// Bytes of the mask as the graph gets it, before fused attention converts it.
fn input_mask(deployment: &Deployment) -> f64 {
    let rules = &deployment.engine().memory;
    let plain = value(&rules.unfused_mask_bytes, 0.0);
    if deployment.flash_attention() { plain.min(value(&rules.mask_bytes, plain)) } else { plain }
}

/// Without a fused kernel, latent attention keeps the scores of positions beside the others.
fn pass_scores(deployment: &Deployment, layer: &Layer, pass: &AttentionPass) -> f64 {
    let rules = &deployment.engine().memory;
    let (head_dim, summands) = match &layer.mixer {
        Mixer::Attention(attention) => (attention.head_dim, 1.0),
        Mixer::LatentAttention(latent) => (latent.kv_lora_rank + latent.qk_rope_head_dim, 2.0),
        _ => (0, 1.0),
    };
    let too_large = rules.largest_fused_head.as_ref().is_some_and(|largest| head_dim > largest.value);
    if deployment.flash_attention() && !too_large {
        return value(&rules.mask_bytes, 0.0);
    }
    let summands = if too_large { summands } else { 1.0 };
    let heads = pass.heads as f64 / shares(deployment) as f64;
    value(&rules.unfused_mask_bytes, 0.0) + summands * heads * value(&rules.unfused_score_bytes, 0.0)
}

/// Elements per token of the widest moment of a layer besides its hidden vectors: the queries of attention, with the gate of its output
/// where there is one, or the intermediate vectors of a dense feed-forward.
fn widest(deployment: &Deployment, layer: &Layer, rules: &MemoryRules) -> f64 {
    let queries = match &layer.mixer {
        Mixer::Attention(attention) => attention.heads * attention.head_dim * if attention.output_gate { 2 } else { 1 },
        Mixer::LatentAttention(latent) => latent.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim),
        _ => 0,
    };
    let (width, gated) = match &layer.feed_forward {
        FeedForward::Dense { intermediate, gated } => (*intermediate, *gated),
        FeedForward::Moe(moe) => (moe.shared_intermediate.unwrap_or(0), moe.gated),
        FeedForward::None | FeedForward::Linear => (0, true),
    };
    // Without a gate there is one vector less.
    let live = value(&rules.live_intermediate, 0.0) * if gated { 1.0 } else { 2.0 / 3.0 };
    (live * width as f64).max(value(&rules.live_queries, 0.0) * queries as f64) / shares(deployment) as f64
}

/// Elements per token of the inputs and outputs of routed experts: `k (max(2 n, h) + n)` with intermediate width `n`. Kernels for 4-bit floats
/// keep them on the chip.
///
/// Source: vLLM, `fused_experts_impl`: caches 1 and 3 share a buffer, cache 2 has its own.
fn routed(deployment: &Deployment, moe: &Moe, architecture: &Architecture) -> f64 {
    if *deployment.weights() == WeightFormat::Mxfp4 {
        return 0.0;
    }
    let width = moe.latent_size.unwrap_or(architecture.hidden_size) as f64;
    let intermediate = moe.intermediate as f64 / deployment.expert_slices() as f64;
    moe.experts_per_token as f64 * ((2.0 * intermediate).max(width) + intermediate)
}

/// Bytes of an element: what the engine computes in, or else 16 bits, 32 for a model that is kept in 32.
fn element_bytes(deployment: &Deployment) -> f64 {
    let of_model = if *deployment.weights() == WeightFormat::Fp32 { 32.0 } else { 16.0 };
    value(&deployment.engine().memory.activation_bits, of_model) / 8.0
}

fn value(rule: &Option<Sourced<f64>>, absent: f64) -> f64 {
    rule.as_ref().map_or(absent, |rule| rule.value)
}
