//! Rules of an engine that are choices, not efficiencies: how it cuts work, which kernels it picks, which arithmetic they use.

use super::ByDevice;
use crate::profile::Sourced;
use serde::{Deserialize, Serialize};

/// How an engine cuts work into steps and what it does by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Scheduling {
    /// Most tokens in one step (chunked prefill; `n_ubatch` of llama.cpp); absent if a prompt is processed in one step, however long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_step: Option<ByDevice<u64>>,
    /// Most sequences that run at once, where it is not the number that memory is set aside for
    /// ([`MemoryRules::max_sequences`](super::MemoryRules::max_sequences)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sequences: Option<ByDevice<u64>>,
    /// When prompts are processed beside answers that are being written; absent means [`PromptPolicy::Chunked`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Sourced<PromptPolicy>>,
    /// Steps of answers that a new prompt waits in the mean, until the engine looks for new requests or has gathered several (half of SGLang's
    /// `--scheduler-recv-interval`, TensorRT-LLM's `batch_wait_timeout_iters`); absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_wait_steps: Option<Sourced<f64>>,
    /// Whether a request starts only if its whole answer has room in the cache; absent means it starts when its prompt has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserves_output: Option<Sourced<bool>>,
    /// Whether blocks of earlier prompts, and of requests that lost their place, are found again as long as nobody has taken them (vLLM
    /// `--enable-prefix-caching`, SGLang's radix cache); absent means they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_caching: Option<Sourced<bool>>,
    /// Share of the cache's blocks that stays free when a request is admitted beside others; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<Sourced<f64>>,
    /// Whether attention is fused when the caller does not say; absent means it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_attention: Option<Sourced<bool>>,
    /// Whether sliding windows are read as such; absent means they are. Engines without it cache and read all keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_windows: Option<Sourced<bool>>,
    /// Rows up to which quantized matrices are multiplied by vector kernels; absent means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vector_rows: Option<Sourced<u64>>,
    /// Rows up to which every token reads its experts for itself, shared or not; absent means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unshared_expert_rows: Option<Sourced<u64>>,
    /// Micro-batches of a prompt in flight over the stages of a pipeline; absent means one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batches_in_flight: Option<Sourced<u64>>,
    /// Whether the sequences of a decode step are split over the stages of a pipeline, so that all of them work; absent means they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub splits_decode_batches: Option<Sourced<bool>>,
    /// Rows from which weights on the host are copied to the device and multiplied there (llama.cpp `--op-offload`); absent means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload_rows: Option<Sourced<u64>>,
    /// Whether checkpoints in 8- and 4-bit floats bring an 8-bit cache with them when the caller does not say; absent means no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_follows_checkpoint: Option<Sourced<bool>>,
}

/// When an engine processes prompts while other answers are being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptPolicy {
    /// In the same steps, cut into chunks that fill the step up to its limit of tokens (Sarathi; vLLM since V1).
    #[default]
    Chunked,
    /// In the same steps, whole: as many as the limit allows, at least one (TensorRT-LLM).
    Whole,
    /// In steps of their own, before answers go on (vLLM V0, SGLang).
    First,
    /// With the whole batch: the next one starts when the last answer has ended (static batching).
    Batch,
}

/// A unit that multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MatrixUnit {
    /// 16-bit floats with 16-bit accumulation where that is faster.
    Fp16Accumulate,
    /// 8-bit integers, at half their rate: quantized weights meet quantized activations, and scales are applied between.
    HalfInt8,
    /// 32-bit floats on vector units.
    Fp32,
}

/// Which units an engine's kernels use; empty lists mean the format's own unit with 32-bit accumulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Arithmetic {
    /// For weights in 16 or 32 bits, and for attention: the fastest of those that the device has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plain: Vec<MatrixUnit>,
    /// For quantized weights: the fastest of those that the device has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quantized: Vec<MatrixUnit>,
}
