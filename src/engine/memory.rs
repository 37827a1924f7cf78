//! How an engine keeps accounts of memory: what it may use, what it takes besides weights, and how it charges the cache.

use crate::hardware::Device;
use crate::profile::{Provenance, Sourced};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which memory the share of [`MemoryRules::fraction`] is taken of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Budget {
    /// The share of all visible memory, for everything; the cache gets what is left of it and is allocated whole (vLLM
    /// `gpu_memory_utilization`).
    OfVisible,
    /// The share of what is free before loading, for weights and cache; activations and graphs live in the rest (SGLang
    /// `mem_fraction_static`).
    OfFreeBeforeLoading,
    /// The share of what is free after loading, for the cache (TensorRT-LLM `free_gpu_memory_fraction`, LMDeploy
    /// `cache_max_entry_count`).
    OfFreeAfterLoading,
    /// The share of all visible memory, for everything; the cache is as large as the context that was asked for (llama.cpp, MLX,
    /// transformers).
    #[default]
    AsNeeded,
}

/// How the cache of layers with unequal needs is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheAccounting {
    /// Every layer keeps what its reach keeps; states are per sequence.
    #[default]
    Kept,
    /// One pool of blocks, each of which holds its tokens in all layers: sliding windows are charged like full attention, states of all sequences
    /// that may run are set aside (vLLM before 0.10).
    Uniform,
    /// Layers of one kind form groups of equal size, and a block holds its tokens in the layers of one group; windows give blocks
    /// back, a state takes a block (vLLM from 0.10).
    Grouped,
    /// A pool of tokens for layers with full attention, one a fixed share of its size for sliding windows, and a fixed share of all for
    /// states (SGLang).
    Pools,
}

/// What the engine prints as the size of its cache in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PrintedTokens {
    /// Blocks over groups, times the tokens of a block.
    #[default]
    Blocks,
    /// How many sequences of the longest context fit, times that context.
    Concurrency,
}

/// What an engine does when the cache is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exhaustion {
    /// It refuses to start or to serve.
    #[default]
    Refuse,
    /// It takes the cache of a sequence away and computes it again later.
    Recompute,
    /// It moves the cache of a sequence to the host and back.
    Swap,
}

/// A rule that depends on the device: its generation, or the size of its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ByDevice<T> {
    /// The value for large devices.
    pub value: T,
    /// Values for smaller ones, the smallest first: the first whose limit the visible memory stays below counts.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<Below<T>>,
    /// The value for devices that share the host's memory, before any limit: vLLM cannot read the size of some of them and takes its defaults for
    /// small ones.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub unified: Option<T>,
    /// Values for generations of devices (`ampere`), which come first.
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    pub by_generation: BTreeMap<String, T>,
    /// How it was obtained.
    pub kind: Provenance,
    /// Key into the sources of the file.
    pub source: String,
    /// Disagreements and remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The value of a rule for devices with less than so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Below<T> {
    /// Visible memory must stay below this.
    pub memory: Bytes,
    /// The value.
    pub value: T,
}

impl<T: Copy> ByDevice<T> {
    /// One value for all devices, supposed by the caller.
    pub fn assumed(value: T) -> Self {
        let (kind, source) = (Provenance::Assumed, "caller".into());
        Self { value, below: Vec::new(), unified: None, by_generation: BTreeMap::new(), kind, source, note: None }
    }

    /// All values, whatever the device.
    pub fn values(&self) -> impl Iterator<Item = T> + '_ {
        let below = self.below.iter().map(|tier| tier.value);
        std::iter::once(self.value).chain(below).chain(self.unified).chain(self.by_generation.values().copied())
    }

    /// The value for a device.
    pub fn on(&self, device: &Device) -> T {
        let visible = device.usable_memory();
        let by_size = || self.below.iter().find(|tier| visible < tier.memory).map_or(self.value, |tier| tier.value);
        let by_kind = || self.unified.filter(|_| device.has_unified_memory());
        self.by_generation.get(device.generation()).copied().or_else(by_kind).unwrap_or_else(by_size)
    }
}

const fn none<T>() -> Option<T> {
    None
}

/// How an engine keeps accounts of memory; without any rule all memory is for weights, cache and states, to the byte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MemoryRules {
    /// Which memory the share is taken of; absent means all that is visible, as needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Sourced<Budget>>,
    /// The share; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<ByDevice<f64>>,
    /// What is kept free of the memory before loading, in place of a share (SGLang).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ByDevice<Bytes>>,
    /// The same for every device of a replica on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_per_device: Option<Sourced<Bytes>>,
    /// Memory of the driver's context and of libraries on each device, outside of what the engine allocates; where it is shared with the host, what
    /// the host's programs and page cache take in the meantime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ByDevice<Bytes>>,
    /// Buffers of the communication library on each device that works together with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication: Option<ByDevice<Bytes>>,
    /// Captured graphs on each device, whatever the layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<ByDevice<Bytes>>,
    /// Captured graphs on each device, per layer of a stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs_per_layer: Option<ByDevice<Bytes>>,
    /// Whether captured graphs come out of the budget; absent means they take what the budget leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs_in_budget: Option<Sourced<bool>>,
    /// Hidden vectors of each token of a step that are alive at the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_hidden: Option<Sourced<f64>>,
    /// Query vectors (all heads) of each token of a step that are alive at the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_queries: Option<Sourced<f64>>,
    /// Inputs of the convolution of a gated delta net, for each token of a step, that are alive at its peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_convolution: Option<Sourced<f64>>,
    /// Value vectors (all heads) of a gated delta net, for each token of a step, that are alive at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_values: Option<Sourced<f64>>,
    /// Intermediate vectors of a feed-forward (gate, up, their product) of each token of a step that are alive at the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_intermediate: Option<Sourced<f64>>,
    /// Whether the inputs and outputs of routed experts are kept beside everything else; if not, they are alive in their layer only. Absent means
    /// that they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps_routed: Option<Sourced<bool>>,
    /// Buffers of kernels beside the activations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Sourced<Bytes>>,
    /// The same for the sampler, on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_workspace: Option<Sourced<Bytes>>,
    /// Whether only models with recurrent states sample in the run that memory is set aside for (vLLM's second model runner, which does not run
    /// them, samples nothing there).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_with_states_only: Option<Sourced<bool>>,
    /// Bits of an element of these vectors; absent means 16, or 32 for weights in 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_bits: Option<Sourced<f64>>,
    /// Bytes per logit at the peak of sampling, for each sequence that may run, or each token of a step (`logits_of_all`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_logit: Option<Sourced<f64>>,
    /// Whether the output head has room for every token of a step instead of one per sequence (llama.cpp).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits_of_all: Option<Sourced<bool>>,
    /// Bytes of the attention mask per token of a step and token of the context, with fused attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_bytes: Option<Sourced<f64>>,
    /// The same without: the mask and the scores of the kernel's heads, `unfused_mask_bytes + heads * unfused_score_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfused_mask_bytes: Option<Sourced<f64>>,
    /// Bytes of a score of one head per token of a step and token of the context, without fused attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfused_score_bytes: Option<Sourced<f64>>,
    /// The largest head for which fused attention has a kernel for prompts; larger ones keep masks and scores as without it. Absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_fused_head: Option<Sourced<u64>>,
    /// Whether fused attention expands the quantized cache of a layer to 16 bits beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expands_quantized_cache: Option<Sourced<bool>>,
    /// Further copies of mask and hidden vectors on each device of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_copies: Option<Sourced<u64>>,
    /// Tokens of the step for which activations are set aside; absent means those of the largest step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiled_tokens: Option<ByDevice<u64>>,
    /// Contexts up to which a prompt is one step, however long, so that activations are set aside for all of it; beyond, prompts are cut into
    /// steps of `profiled_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_prompts_up_to: Option<Sourced<u64>>,
    /// Sequences that may run at once (vLLM `max_num_seqs`): rows of the sampler, and states of some engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sequences: Option<ByDevice<u64>>,
    /// Tokens of a block of the cache; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_tokens: Option<Sourced<u64>>,
    /// Tokens of a block that the kernels of latent attention ask for; a block of any multiple will do. Absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent_block_tokens: Option<ByDevice<u64>>,
    /// Multiple of bytes that an entry of latent attention is padded to in a layer; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent_entry_multiple: Option<Sourced<Bytes>>,
    /// How layers with unequal needs are charged; absent means each keeps what it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting: Option<Sourced<CacheAccounting>>,
    /// Groups are as large as the most frequent kind of layers if it has less than so many times the layers of the rarest; absent means 1.25.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ratio: Option<Sourced<f64>>,
    /// What is printed as the size of the cache; absent means tokens of all blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printed_tokens: Option<Sourced<PrintedTokens>>,
    /// Bits of an element of a recurrent state; absent means 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bits: Option<Sourced<f64>>,
    /// Bits of an element of the inputs that a convolution remembers; absent means 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convolution_bits: Option<Sourced<f64>>,
    /// States that a sequence holds at once (more than 1 for prefix caching); absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states_per_sequence: Option<Sourced<u64>>,
    /// Share of the cache's memory that is set aside for states, where it is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_share: Option<Sourced<f64>>,
    /// Size of the pool for sliding windows over that for full attention, where it is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_share: Option<Sourced<f64>>,
    /// Whether a sliding-window layer keeps the tokens of a step beside its window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows_keep_step: Option<Sourced<bool>>,
    /// Steps whose tokens they keep at once, where the next step is prepared before the last one is done; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_in_flight: Option<Sourced<u64>>,
    /// Whether all sequences share one cache, so that masks and scores reach over the entries of all of them (llama.cpp).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unified_cache: Option<Sourced<bool>>,
    /// Whether the cache, states and activations are whole on one device where matrices are split by rows (llama.cpp).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_on_one_device: Option<Sourced<bool>>,
    /// Whether latent attention keeps the keys and values of all heads instead of the latents (llama.cpp before April 2025).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expands_latents: Option<Sourced<bool>>,
    /// Whether the token embeddings stay in host memory (llama.cpp).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings_on_host: Option<Sourced<bool>>,
    /// Whether a table of rotary angles for every position is loaded with the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_table: Option<Sourced<bool>>,
    /// Multiple that the hidden width of experts in 4-bit floats is padded to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_hidden_multiple: Option<Sourced<u64>>,
    /// Multiple that the intermediate width of experts in 4-bit floats is padded to, on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_intermediate_multiple: Option<ByDevice<u64>>,
    /// What happens when the cache is full; absent means that it refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exhaustion: Option<Sourced<Exhaustion>>,
}

/// A number of a rule with its range.
struct Checked<'a> {
    key: &'static str,
    number: f64,
    range: (f64, f64),
    source: &'a str,
}

impl MemoryRules {
    /// Whether there is no rule at all, as in the ideal engine.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing is set aside for a pool: such engines (llama.cpp, MLX, transformers) split layers over devices and read local formats.
    pub fn allocates_as_needed(&self) -> bool {
        !self.is_empty() && self.budget.as_ref().is_none_or(|rule| rule.value == Budget::AsNeeded)
    }

    /// The first rule whose number is outside its range: key, number, lowest and highest.
    pub(super) fn first_out_of_range(&self) -> Option<(&'static str, f64, f64, f64)> {
        let outside = |rule: &Checked<'_>| !(rule.number >= rule.range.0 && rule.number <= rule.range.1);
        self.checked().iter().find(|rule| outside(rule)).map(|rule| (rule.key, rule.number, rule.range.0, rule.range.1))
    }

    /// Every key that is there, with the source it names.
    pub(super) fn sources(&self) -> Vec<(&'static str, &str)> {
        let numbers = self.checked().into_iter().map(|rule| (rule.key, rule.source));
        macro_rules! plain {
            ($($key:ident),*) => {
                [$((stringify!($key), self.$key.as_ref().map(|rule| rule.source.as_str()))),*]
            };
        }
        let others = plain!(
            budget,
            graphs_in_budget,
            keeps_routed,
            samples_with_states_only,
            logits_of_all,
            accounting,
            printed_tokens,
            windows_keep_step,
            unified_cache,
            cache_on_one_device,
            expands_quantized_cache,
            expands_latents,
            embeddings_on_host,
            rotary_table,
            exhaustion
        );
        numbers.chain(others.into_iter().filter_map(|(key, source)| Some((key, source?)))).collect()
    }

    fn checked(&self) -> Vec<Checked<'_>> {
        let mut all = Vec::new();
        macro_rules! check {
            ($($key:ident: $number:expr, $range:expr;)*) => {$(
                if let Some(rule) = &self.$key {
                    let number: f64 = $number(rule.value);
                    all.push(Checked { key: stringify!($key), number, range: $range, source: &rule.source });
                }
            )*};
        }
        macro_rules! check_tiers {
            ($($key:ident: $number:expr, $range:expr;)*) => {$(
                if let Some(rule) = &self.$key {
                    let values = rule.below.iter().map(|tier| tier.value).chain(rule.by_generation.values().copied());
                    let values = values.chain(rule.unified).chain([rule.value]);
                    all.extend(values.map(|value| {
                        let number: f64 = $number(value);
                        Checked { key: stringify!($key), number, range: $range, source: &rule.source }
                    }));
                }
            )*};
        }
        check_tiers! {
            fraction: f64::from, (f64::MIN_POSITIVE, 1.0);
            reserve: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            context: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            communication: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            graphs: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            graphs_per_layer: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            profiled_tokens: as_number, (1.0, LARGEST_COUNT);
            max_sequences: as_number, (1.0, LARGEST_COUNT);
            latent_block_tokens: as_number, (1.0, 65_536.0);
            expert_intermediate_multiple: as_number, (1.0, 65_536.0);
        }
        check! {
            reserve_per_device: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            workspace: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            sampling_workspace: Bytes::as_bytes, (0.0, LARGEST_BYTES);
            latent_entry_multiple: Bytes::as_bytes, (1.0, 65_536.0);
            live_hidden: f64::from, (0.0, 1000.0);
            live_queries: f64::from, (0.0, 1000.0);
            live_convolution: f64::from, (0.0, 1000.0);
            live_values: f64::from, (0.0, 1000.0);
            live_intermediate: f64::from, (0.0, 1000.0);
            activation_bits: f64::from, (1.0, 64.0);
            mask_bytes: f64::from, (0.0, 1000.0);
            unfused_mask_bytes: f64::from, (0.0, 1000.0);
            unfused_score_bytes: f64::from, (0.0, 1000.0);
            largest_fused_head: as_number, (1.0, 65_536.0);
            pipeline_copies: as_number, (0.0, 1000.0);
            bytes_per_logit: f64::from, (0.0, 1000.0);
            whole_prompts_up_to: as_number, (1.0, LARGEST_COUNT);
            block_tokens: as_number, (1.0, 65_536.0);
            group_ratio: f64::from, (1.0, 1000.0);
            state_bits: f64::from, (1.0, 64.0);
            convolution_bits: f64::from, (1.0, 64.0);
            states_per_sequence: as_number, (1.0, 1000.0);
            steps_in_flight: as_number, (1.0, 1000.0);
            state_share: f64::from, (0.0, 0.99);
            window_share: f64::from, (0.0, 1.0);
            expert_hidden_multiple: as_number, (1.0, 65_536.0);
        }
        all
    }
}

/// No accelerator holds that much.
const LARGEST_BYTES: f64 = 1e15;
/// Counts stay exact in all sums.
const LARGEST_COUNT: f64 = (1_u64 << 40) as f64;

const fn as_number(count: u64) -> f64 {
    count as f64
}
