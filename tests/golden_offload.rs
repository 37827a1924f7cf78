//! Published speeds of models in several memories against predictions.
//!
//! Where a report leaves the processor open, the memory bandwidth is the one that its own run without a device implies, and only the others are
//! predicted.

#[path = "common/rates.rs"]
mod rates;

use llm_roofline::deployment::{Host, Offload, Store};
use llm_roofline::prelude::*;
use rates::assert_within;
use std::sync::Arc;

fn device(name: &str) -> Arc<Device> {
    Catalog::embedded().device(name).unwrap()
}

fn engine(name: &str) -> Arc<Engine> {
    Catalog::embedded().engine(name).unwrap()
}

/// A processor with another memory than its profile has.
fn processor(name: &str, gigabytes_per_second: f64) -> Device {
    let mut profile = device(name).as_ref().clone().into_profile();
    profile.memory.bandwidth.value = BytesPerSecond::from_gb_per_second(gigabytes_per_second);
    Device::new(profile).unwrap()
}

/// GeForce RTX 2080: 46 of the 68 units of the RTX 2080 Ti at 1.71 GHz instead of 1.545, and 448 GB/s (NVIDIA Turing whitepaper).
fn rtx_2080() -> Arc<Device> {
    let mut profile = device("rtx-2080-ti-11gb").as_ref().clone().into_profile();
    profile.memory.usable = None;
    profile.memory.capacity.value = Bytes::from_gb(8.0);
    profile.memory.bandwidth.value = BytesPerSecond::from_gb_per_second(448.0);
    let compute = &mut profile.compute;
    for peak in [&mut compute.fp32, &mut compute.fp16, &mut compute.fp16_fp16_accumulate, &mut compute.int8] {
        let peak = peak.as_mut().unwrap();
        peak.value = peak.value * (46.0 * 1.71 / (68.0 * 1.545));
    }
    Arc::new(Device::new(profile).unwrap())
}

fn deployment(card: Arc<Device>, processor: Device, model: &str, weights: &str) -> Deployment {
    Deployment::new(Catalog::embedded().model(model).unwrap(), System::new(card, 1).unwrap())
        .with_weights(weights.parse().unwrap())
        .with_engine(engine("llama-cpp-cuda-2026"))
        .with_host(Host::new(processor, engine("llama-cpp-cpu-2026")))
}

fn decode_rate(deployment: &Deployment, context: u64) -> f64 {
    1.0 / StepModel::compile(deployment).unwrap().decode_step(1, context).total().as_seconds()
}

fn prompt_rate(deployment: &Deployment, tokens: u64) -> f64 {
    let prefill = StepModel::compile(deployment).unwrap().prefill(&Request::new(tokens, 1));
    tokens as f64 / prefill.total().as_seconds()
}

/// inventivehq.com, "VRAM offload cliff": Qwen2.5-Coder-14B Q4_K_M on an RTX 5060 Ti, `-ngl` from 0 to 99. The processor is not named: 2.89
/// tokens per second at 0 are 33 GB/s, those at other numbers follow.
#[test]
fn layers_on_the_host_one_sweep() {
    let card = deployment(device("rtx-5060-ti-16gb"), processor("ryzen-9-7950x", 33.0), "qwen2.5-14b", "q4_k_m");
    for (on_device, measured) in [(8, 3.58), (16, 4.24), (24, 5.61), (32, 7.26), (40, 12.5), (99, 43.18)] {
        let predicted = decode_rate(&card.clone().with_offload(Offload::Layers { on_device }), 256);
        assert_within(predicted, measured, 0.08, &format!("-ngl {on_device}"));
    }
}

/// The time to hand a step over to the host was fitted to the first row and to that of `experts_alone_on_the_host`; nothing else here was.
///
/// AlexsJones/llmfit#755, #775, #778: RTX 2080 with a Core i9-10900X, "102 GB/s", four channels of DDR4-3200, of which the
/// factor of its family was taken by hand. All but the first are means with the prompt's time in it (8 % in
/// #755), so predictions of decoding alone are expected above them.
#[test]
fn layers_and_experts_on_one_workstation() {
    let experts = |layers| Offload::Experts { layers };
    let layers = |on_device| Offload::Layers { on_device };
    for (model, weights, offload, measured) in [
        ("qwen3-30b-a3b", "q4_k_m", experts(36), 36.7),
        ("deepseek-v2-lite", "q4_k_m", experts(16), 49.6),
        ("gpt-oss-20b", "mxfp4", experts(12), 36.4),
        ("gemma-2-9b", "q4_k_m", layers(36), 23.7),
        ("qwen2.5-14b", "q4_k_m", layers(42), 20.8),
        ("mistral-small-24b", "q4_k_m", layers(16), 5.2),
    ] {
        let card = deployment(rtx_2080(), processor("core-i9-10900x", 102.4), model, weights);
        assert_within(decode_rate(&card.with_offload(offload), 500), measured, 0.25, model);
    }
}

/// ggml-org/llama.cpp#12922: DeepSeek-Coder-V2-Lite Q6_K with an 8-bit cache, tg4096 without a layer on the device; a Ryzen 7 5800X with
/// two channels of DDR4-2133, 34 GB/s.
#[test]
fn all_layers_on_a_slow_host() {
    let card = deployment(device("rtx-3070-8gb"), processor("ryzen-7-5800x3d", 34.1), "deepseek-v2-lite", "q6_k");
    let card = card.with_kv("q8_0".parse().unwrap()).with_offload(Offload::Layers { on_device: 0 });
    assert_within(decode_rate(&card, 2048), 9.51, 0.12, "tg4096");
}

/// ollama/ollama#11772: Qwen3.6-35B-A3B in 4 bits on an RTX 5080. All on the processor 14.6 tokens per second, which are 48 GB/s; experts alone
/// on it 36.5.
#[test]
fn experts_alone_on_the_host() {
    let card = deployment(device("rtx-5080-16gb"), processor("ryzen-9-7950x", 48.0), "qwen3.6-35b-a3b", "q4_k_m");
    let rate = |offload| decode_rate(&card.clone().with_offload(offload), 2700);
    assert_within(rate(Offload::Layers { on_device: 0 }), 14.6, 0.05, "all on the processor");
    assert_within(rate(Offload::Experts { layers: 99 }), 36.5, 0.05, "experts on the processor");
}

/// ikawrakow/ik_llama.cpp discussion 357: Qwen3-30B-A3B with experts in IQ4_XS on an RTX 4080 and a Ryzen 9 7950X, the experts of 14 layers on
/// the processor (`-ot`, the last ones, which is the same here), llama.cpp of April 2025.
#[test]
fn experts_of_some_layers_on_the_host() {
    let processor = device("ryzen-9-7950x").as_ref().clone();
    let card = deployment(device("rtx-4080-16gb"), processor, "qwen3-30b-a3b", "iq4_xs");
    let card = card.with_engine(engine("llama-cpp-cuda-2024-mmq")).with_flash_attention(true);
    let card = card.with_offload(Offload::Experts { layers: 14 });
    for (context, measured) in [(64, 68.68), (4160, 62.72), (8256, 58.68)] {
        assert_within(decode_rate(&card, context), measured, 0.15, &format!("context {context}"));
    }
}

/// ai-maestro.online on `--n-cpu-moe` with gpt-oss-120b on an RTX 3090: the experts on the host are copied once per micro-batch, so prompts
/// get faster with its size. Micro-batches of 512 take less than all experts would over PCIe 4.0: not all are chosen.
#[test]
fn larger_micro_batches_copy_the_experts_less_often() {
    for (micro_batch, layers, tokens, measured, tolerance) in [
        (512, 26, 4096, 380.27, 0.3),
        (2048, 25, 4096, 1112.54, 0.15),
        (4096, 26, 4096, 1682.47, 0.15),
        (8192, 28, 8192, 2090.68, 0.15),
    ] {
        let card = deployment(device("rtx-3090-24gb"), processor("ryzen-9-7950x", 83.2), "gpt-oss-120b", "mxfp4");
        let mut engine = card.engine().clone();
        engine.scheduling.max_tokens_per_step.as_mut().unwrap().value = micro_batch;
        let card = card.with_engine(engine).with_offload(Offload::Experts { layers });
        assert_within(prompt_rate(&card, tokens), measured, tolerance, &format!("-ub {micro_batch}"));
    }
}

/// vllm-project/vllm#6317: Llama-3-70B in 16 bits on a GH200 with 96 GB, weights beyond 0.8 of it in the memory of the Grace processor: 4.6
/// tokens per second with the first implementation.
#[test]
fn weights_in_the_memory_of_a_grace_processor() {
    let system = System::new(device("gh200-96gb"), 1).unwrap();
    let model = Catalog::embedded().model("llama-3-70b").unwrap();
    let weights = Bytes::from_gb(70.55 * 2.0 - 96.0 * 0.8);
    let streamed = Offload::Stream { weights, cache_share: 0.0, from: Store::Host };
    let superchip = Deployment::new(model, system).with_engine(engine("vllm-2024")).with_offload(streamed);
    let superchip = superchip.with_host(Host::new(device("grace-72c"), Engine::ideal()));
    assert_within(decode_rate(&superchip, 500), 4.6, 0.25, "--cpu-offload-gb");
}
