//! Models and devices as sparse as the sources describe them.

use crate::table::{Row, Value};
use llm_roofline::collective::Group;
use llm_roofline::format::KvFormat;
use llm_roofline::memory::MemoryModel;
use llm_roofline::model::{Architecture, Attention, FeedForward, Layer, Mixer};
use llm_roofline::prelude::*;

pub const PLENTY: BytesPerSecond = BytesPerSecond::from_tb_per_second(1e6);
pub const FAST: FlopsPerSecond = FlopsPerSecond::from_tflops_per_second(1e9);

/// A model known by its totals on devices known by their roofline.
pub fn totals(params: f64, bits: f64, kv_per_token: Bytes, roofline: Roofline, devices: u32) -> Deployment {
    totals_within(Bytes::from_tb(1000.0), params, bits, kv_per_token, roofline, devices)
}

pub fn totals_within(
    capacity: Bytes,
    params: f64,
    bits: f64,
    kv_per_token: Bytes,
    roofline: Roofline,
    devices: u32,
) -> Deployment {
    let device = Device::from_specs("device", capacity, roofline.bandwidth, roofline.peak).unwrap();
    let model = Model::from_totals("model", Totals::dense(params as u64, bits, kv_per_token));
    Deployment::new(model, System::new(device, devices).unwrap())
}

pub fn step(deployment: &Deployment) -> StepModel {
    StepModel::compile(deployment).unwrap()
}

/// Time of a decode step of `batch` sequences that each read `context` tokens.
pub fn decode(deployment: &Deployment, batch: u64, context: u64) -> Seconds {
    step(deployment).decode_step(batch, context - 1).total()
}

/// Time to read `params` weights once.
pub fn weight_time(params: f64, bits: f64, bandwidth: BytesPerSecond, devices: u32) -> Seconds {
    decode(&totals(params, bits, Bytes::ZERO, Roofline::new(FAST, bandwidth), devices), 1, 1)
}

/// Time to first token, arithmetic alone.
pub fn prefill_time(params: f64, tokens: u64, peak: FlopsPerSecond, devices: u32) -> Seconds {
    let deployment = totals(params, 16.0, Bytes::ZERO, Roofline::new(peak, PLENTY), devices);
    step(&deployment).request(&Request::new(tokens, 1)).unwrap().ttft
}

/// Rate of a batch that gets one token each per step.
pub fn batch_rate(batch: u64, step: Seconds) -> TokensPerSecond {
    step.token_rate() * batch as f64
}

pub fn attention(heads: u64, kv_heads: u64, head_dim: u64) -> Mixer {
    Mixer::Attention(Attention::full(heads, kv_heads, head_dim))
}

/// Equal layers without vectors, embeddings tied.
pub fn stack(layers: u64, hidden: u64, vocab: u64, mixer: Mixer, feed_forward: FeedForward) -> Architecture {
    let layer = Layer { mixer, feed_forward, extra: Vec::new(), vector_params: 0 };
    let layers = (0..layers).map(|_| ("layer".to_string(), layer.clone()));
    let mut architecture = Architecture::from_layers(hidden, vocab, 1 << 20, layers);
    architecture.vector_params = 0;
    architecture.tied_embeddings = true;
    architecture
}

/// The stack of the GPT papers: full multi-head attention, a feed-forward of four times the width, no gate.
pub fn gpt(layers: u64, hidden: u64, vocab: u64) -> Architecture {
    let feed_forward = FeedForward::Dense { intermediate: 4 * hidden, gated: false };
    stack(layers, hidden, vocab, attention(hidden / 128, hidden / 128, 128), feed_forward)
}

/// Attention layers and nothing else.
pub fn attention_only(layers: u64, kv_heads: u64, head_dim: u64) -> Architecture {
    stack(layers, kv_heads * head_dim, 0, attention(kv_heads, kv_heads, head_dim), FeedForward::None)
}

pub fn on_one_device(architecture: Architecture) -> Deployment {
    let device = Device::from_specs("device", Bytes::from_tb(1.0), PLENTY, FAST).unwrap();
    Deployment::new(Model::from_architecture("model", "gpt", architecture), System::new(device, 1).unwrap())
}

pub fn kv_bytes(architecture: Architecture, bytes: u64, tokens: u64) -> Bytes {
    // 8-bit floats of plain attention carry no scales per element.
    let format = if bytes == 1 { KvFormat::Fp8 } else { KvFormat::Bf16 };
    MemoryModel::new(&on_one_device(architecture).with_kv(format)).kv_per_sequence(tokens)
}

/// Operations of the matrix products of one step.
pub fn gemm_flops(deployment: &Deployment, tokens: u64) -> Flops {
    let model = step(deployment);
    let mut load = model.load();
    load.add_decode(0, tokens, 1.0);
    let operators = model.explain(&load).operators;
    operators.iter().filter(|operator| operator.class == OperatorClass::Gemm).map(|operator| operator.work.flops).sum()
}

/// The all-reduces of `layers` layers, two each, over more devices than any bound depends on.
pub fn all_reduces(layers: u64, tokens: f64, hidden: u64, bytes: f64, bandwidth: BytesPerSecond) -> Seconds {
    let group = Group::textbook(1 << 40, bandwidth, Seconds::ZERO);
    group.all_reduce(Bytes::from_bytes(tokens * hidden as f64 * bytes)) * (2 * layers) as f64
}

/// Tokens of cache that fit into the free memory.
pub fn cache_capacity(row: &Row) -> Option<Value> {
    let (room, per_token) = (Bytes::from_gb(row.number("free_GB")), Bytes::from_gb(row.number("kv_GB_per_tok")));
    let deployment = totals_within(room, 0.0, 16.0, per_token, Roofline::new(FAST, PLENTY), 1);
    deployment.max_context_tokens(1).map(|tokens| Value::Count(tokens as f64))
}
