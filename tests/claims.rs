//! What people say about inference speed, as calls on real models and devices. Each claim holds under the conditions of its test.

use llm_roofline::prelude::*;
use llm_roofline::request::RequestError;
use llm_roofline::text::{Experience, Language, Tokenizer};

fn compiled(model: &str, weights: &str, device: &str, count: u32) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    let deployment = Deployment::new(catalog.model(model).unwrap(), system).with_weights(weights.parse().unwrap());
    StepModel::compile(&deployment).unwrap()
}

fn answer(model: &StepModel, request: Request) -> RequestEstimate {
    model.request(&request).unwrap()
}

/// "A 4,000-token prompt of code: TTFT 500 ms to 3 s without prompt cache, about 50 ms with it": a 70B on one A100.
#[test]
fn a_prompt_cache_turns_seconds_into_milliseconds() {
    let model = compiled("llama-3.1-70b", "awq-int4", "a100-sxm-80gb", 1);
    let cold = answer(&model, Request::new(4000, 100)).ttft;
    let warm = answer(&model, Request::new(4000, 100).with_cached_prompt_tokens(3920)).ttft;
    assert!(cold > Seconds::from_millis(500.0) && cold < Seconds::from_seconds(3.0), "{cold}");
    assert!(warm > Seconds::from_millis(20.0) && warm < Seconds::from_millis(60.0), "{warm}");
}

/// "Prefill grows more than proportionally from 2,000 to 100,000 tokens", because of attention.
#[test]
fn attention_makes_long_prompts_disproportionately_slow() {
    let model = compiled("llama-3.1-70b", "fp8", "h100-sxm-80gb", 4);
    let attention = |prompt: u64| {
        let explanation = model.explain_prefill(&Request::new(prompt, 1));
        let times = explanation.operators.iter().filter(|operator| operator.class == OperatorClass::PrefillAttention);
        explanation.share(times.map(|operator| operator.time).sum())
    };
    let ttft = |prompt: u64| answer(&model, Request::new(prompt, 100)).ttft;
    assert!(ttft(100_000) / ttft(2_000) > 50.0);
    assert!(attention(2_000) < 0.05 && attention(100_000) > 0.4);
    assert_eq!(model.explain_prefill(&Request::new(100_000, 1)).longest().unwrap().name, "attention");
}

/// "35 GB at 1000 GB/s, RTX 4090 class": the bandwidth is there, the memory is not.
#[test]
fn a_70b_at_4_bits_does_not_fit_on_one_rtx_4090_but_on_two() {
    let refused = compiled("llama-3.1-70b", "q4_0", "rtx-4090-24gb", 1).request(&Request::new(100, 100));
    let Err(RequestError::DoesNotFit(reason)) = refused else { panic!("{refused:?}") };
    // 40 GB of weights (4.5 bits, embeddings and head in more) on a card that offers at most 24 GiB.
    assert!(reason.short_by > Bytes::from_gb(14.0) && reason.short_by < Bytes::from_gb(17.0), "{reason}");
    let model = compiled("llama-3.1-70b", "q4_0", "rtx-4090-24gb", 2);
    assert!(answer(&model, Request::new(100, 100)).tpot.unwrap() > Seconds::from_millis(19.0));
}

/// "Inline completion: 3B to 7B models show first characters in 40 to 80 ms": prompts of 400 to 800 tokens on an RTX 4090.
#[test]
fn small_models_complete_inline_in_time() {
    for (model, prompt) in [("qwen2.5-3b", 1500), ("qwen2.5-7b", 600), ("llama-3.1-8b", 500)] {
        let ttft = answer(&compiled(model, "bf16", "rtx-4090-24gb", 1), Request::new(prompt, 20)).ttft;
        assert!(ttft > Seconds::from_millis(40.0) && ttft < Seconds::from_millis(80.0), "{model}: {ttft}");
        assert!(Experience::inline_completion(ttft).is_good());
    }
    let large = answer(&compiled("llama-3.1-70b", "fp8", "h100-sxm-80gb", 1), Request::new(4000, 20)).ttft;
    assert!(!Experience::inline_completion(large).is_good(), "{large}");
}

/// "Overnight batch: 256 streams reach 4,000 tokens/s in total": far below what four H100 could do at best.
#[test]
fn batching_multiplies_the_total_and_costs_each_stream_little() {
    let model = compiled("llama-3.1-70b", "fp8", "h100-sxm-80gb", 4);
    let one = answer(&model, Request::new(1000, 500));
    let many = answer(&model, Request::new(1000, 500).with_batch(256));
    let (total, alone) = (many.tps_total.unwrap(), one.tps_total.unwrap());
    assert!(total.as_tokens_per_second() > 4000.0, "{total}");
    assert!(total / alone > 60.0, "{total} against {alone}");
    assert!(many.tpot.unwrap() / one.tpot.unwrap() < 4.0);
}

/// "TPS of different models do not compare when their tokenizers differ": Llama 2 writes shorter tokens than Llama 3.
#[test]
fn equal_token_rates_are_different_amounts_of_text() {
    let text = |model: &str| {
        let model = Catalog::embedded().model(model).unwrap();
        let density = Tokenizer::density_or_default(model.tokenizer.as_deref(), Language::Russian).unwrap();
        density.rate(TokensPerSecond::from_tokens_per_second(50.0)).characters_per_second
    };
    assert!(text("llama-3.1-8b") / text("llama-2-7b") > 1.3);
}

/// "Quantizing helps decode, not compute-bound prefill", unless the arithmetic is quantized too.
#[test]
fn weight_only_formats_speed_up_decode_and_fp8_speeds_up_both() {
    let times = |weights: &str| {
        let answer = answer(&compiled("llama-3.1-8b", weights, "h100-sxm-80gb", 1), Request::new(8000, 100));
        (answer.ttft, answer.tpot.unwrap())
    };
    let (bf16, awq, fp8) = (times("bf16"), times("awq-int4"), times("fp8"));
    assert!(awq.0 / bf16.0 > 0.97 && awq.1 / bf16.1 < 0.45, "{awq:?} against {bf16:?}");
    assert!(fp8.0 / bf16.0 < 0.62 && fp8.1 / bf16.1 < 0.65, "{fp8:?} against {bf16:?}");
}

/// An answer lists the suppositions that it rests on, and no others.
#[test]
fn assumptions_are_those_of_the_answer() {
    let on = |weights: &str, count: u32| {
        compiled("qwen3-8b", weights, "h100-nvl-94gb", count).deployment().assumptions().join("\n")
    };
    assert!(on("bf16", 1).contains("compute.bf16") && !on("bf16", 1).contains("compute.fp8"));
    assert!(on("fp8", 1).contains("compute.fp8"));
    assert!(!on("fp8", 1).contains("int4") && !on("fp8", 1).contains("tdp"));
    let on_h100 = |count| compiled("qwen3-8b", "bf16", "h100-sxm-80gb", count).deployment().assumptions().join("\n");
    assert!(!on_h100(8).contains("are linked by") && on_h100(16).contains("are linked by"));
}

/// KV bytes per token and layer: 1,152 in 16 bits for every DeepSeek; in fp8 576, but 656 where sparse kernels want their own layout
/// (DeepSeek-AI, FlashMLA README), and one byte per index key of 128 elements.
#[test]
fn latent_caches_in_8_bits() {
    let per_token = |model: &str, kv: &str| {
        let model = compiled(model, "fp8-block", "h200-sxm-141gb", 8);
        let deployment = model.deployment().clone().with_kv(kv.parse().unwrap());
        llm_roofline::memory::MemoryModel::new(&deployment).kv_per_sequence(1000).as_bytes() / 1000.0 / 61.0
    };
    assert_eq!(per_token("deepseek-v3", "bf16").round(), 1152.0);
    assert_eq!(per_token("deepseek-v3", "fp8").round(), 576.0);
    assert_eq!(per_token("deepseek-v3.2", "fp8").round(), 656.0 + 128.0);
}
