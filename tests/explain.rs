//! Explanations under real engines: they sum to the cost, name the laws, and lose time nowhere below the hardware's limit; verdicts on
//! measured rates.

use llm_roofline::prelude::*;
use llm_roofline::request::{Cause, Diagnosis, DiagnosisError, Measured, Observation, RequestError, Verdict};
use llm_roofline::step::Explanation;

fn deployment(model: &str, weights: &str, device: &str, count: u32, engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system)
        .with_weights(weights.parse().unwrap())
        .with_engine(catalog.engine(engine).unwrap())
}

fn compiled(model: &str, weights: &str, device: &str, count: u32, engine: &str) -> StepModel {
    StepModel::compile(&deployment(model, weights, device, count, engine)).unwrap()
}

fn close(a: Seconds, b: Seconds) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

/// Dense, mixture of experts, latent attention, sliding windows, recurrences.
const MODELS: [&str; 6] =
    ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "gemma-3-27b", "qwen3-next-80b-a3b"];

fn steps(model: &StepModel) -> [StepLoad; 4] {
    let [mut one, mut many, mut prompt, mut mixed] = [model.load(); 4];
    one.add_decode(1000, 1, 1.0);
    many.add_decode(3000, 1, 64.0);
    prompt.add_prefill(0, 2000, true);
    mixed.add_decode(500, 1, 7.0);
    mixed.add_prefill(1000, 300, false);
    [one, many, prompt, mixed]
}

fn check(explanation: &Explanation, what: &str) {
    let lost: Seconds = explanation.operators.iter().map(|operator| operator.lost()).sum();
    assert!(close(lost + explanation.ideal(), explanation.total), "{what}");
    for operator in &explanation.operators {
        let (name, efficiency) = (operator.name, operator.efficiency());
        assert!((0.0..=1.0 + 1e-9).contains(&efficiency), "{what}, {name}: efficiency {efficiency}");
        let overlapped = operator.time - operator.fixed;
        assert!(overlapped >= operator.ideal * (1.0 - 1e-9), "{what}, {name}: {overlapped} below {}", operator.ideal);
    }
    let losses = explanation.lost_by_class();
    assert!(losses.classes.is_sorted_by(|a, b| a.time >= b.time), "{losses}");
    let shares: f64 = losses.classes.iter().map(|loss| loss.share).sum();
    assert!(losses.classes.is_empty() || (shares - 1.0).abs() < 1e-6, "{what}: {losses}");
}

#[test]
fn explanations_sum_to_the_cost_and_stay_above_the_limit() {
    for (engine, weights, device, count) in [
        ("vllm-2026", "fp8", "h100-sxm-80gb", 8),
        ("vllm-2026", "awq-int4", "a100-sxm-80gb", 4),
        ("llama-cpp-cuda-2026", "q4_k_m", "rtx-4090-24gb", 1),
        ("llama-cpp-cuda-2026", "bf16", "rtx-3090-24gb", 1),
    ] {
        for name in MODELS {
            let model = compiled(name, weights, device, count, engine);
            for load in steps(&model) {
                let (cost, explanation) = (model.cost(&load), model.explain(&load));
                assert!(close(explanation.total, cost.total()), "{engine}, {name}");
                for class in OperatorClass::ALL {
                    let of_class = explanation.operators.iter().filter(|operator| operator.class == class);
                    let time: Seconds = of_class.map(|operator| operator.time).sum();
                    assert!(close(time + cost.total(), cost.time(class) + cost.total()), "{engine}, {name}, {class}");
                }
                check(&explanation, &format!("{engine}, {name}"));
                for operator in &explanation.operators {
                    let loses = operator.lost() > operator.time * 1e-9;
                    assert!(!loses || !operator.laws.is_empty(), "{engine}, {name}: no law for {operator:?}");
                }
            }
        }
    }
}

#[test]
fn no_engine_beats_the_hardware() {
    let catalog = Catalog::embedded();
    for engine in catalog.engines() {
        for (device, weights) in
            [("rtx-4090-24gb", "q4_k_m"), ("m3-ultra-80c", "q8_0"), ("h100-sxm-80gb", "fp8"), ("mi300x-192gb", "bf16")]
        {
            for name in ["llama-3.1-8b", "qwen3-30b-a3b"] {
                let model = compiled(name, weights, device, 1, &engine.head().slug);
                for load in steps(&model) {
                    check(&model.explain(&load), &format!("{}, {device}, {weights}, {name}", engine.head().slug));
                }
            }
        }
    }
}

#[test]
fn a_prefill_in_chunks_is_explained_as_a_whole() {
    let request = Request::new(2000, 1).with_batch(3);
    for count in [1, 2] {
        let deployment = deployment("llama-3.1-8b", "q4_k_m", "rtx-4090-24gb", count, "llama-cpp-cuda-2026")
            .with_tensor_parallel(1)
            .with_pipeline_parallel(count);
        let model = StepModel::compile(&deployment).unwrap();
        assert!(model.prefill_steps(&request) > 10);
        let explanation = model.explain_prefill(&request);
        assert!(close(explanation.total, model.request(&request).unwrap().ttft));
        check(&explanation, "prefill");
        let work = llm_roofline::operator::total(explanation.operators.iter().map(|operator| operator.work));
        assert!((work.bytes / model.prefill(&request).bytes() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_pipeline_that_splits_batches_is_explained_too() {
    let deployment = deployment("llama-3.1-70b", "bf16", "h100-sxm-80gb", 4, "vllm-2026")
        .with_tensor_parallel(2)
        .with_pipeline_parallel(2);
    let model = StepModel::compile(&deployment).unwrap();
    for load in steps(&model) {
        let explanation = model.explain(&load);
        assert!(close(explanation.total, model.cost(&load).total()));
        check(&explanation, "pipeline");
    }
}

#[test]
fn every_law_has_a_public_source() {
    let model = compiled("deepseek-v3", "fp8-block", "h200-sxm-141gb", 8, "vllm-2026");
    let mut load = model.load();
    load.add_prefill(0, 32_000, true);
    load.add_decode(1000, 1, 16.0);
    let explanation = model.explain(&load);
    let laws = explanation.laws();
    assert!(laws.len() > 10);
    for law in &laws {
        assert!(!law.sources.is_empty() && law.sources.iter().all(|source| source.reference.len() > 10), "{law:?}");
    }
    let latent = laws.iter().find(|law| law.parameter == "prefill_attention.latent_compute");
    assert!(latent.is_some(), "{explanation}");
    let text = explanation.to_string();
    let table: Vec<usize> = text.lines().take_while(|line| !line.is_empty()).map(|line| line.chars().count()).collect();
    assert!(table.iter().all(|width| *width == table[0] && *width <= 140), "{text}");
    assert!(text.contains("lost against the hardware's limit") && text.contains("aiconfigurator"), "{text}");
}

#[test]
fn the_ideal_engine_loses_nothing() {
    let model = compiled("qwen3-30b-a3b", "bf16", "h100-sxm-80gb", 2, "ideal");
    for load in steps(&model) {
        let explanation = model.explain(&load);
        assert_eq!((explanation.lost(), explanation.efficiency()), (Seconds::ZERO, 1.0));
        assert!(explanation.lost_by_class().classes.is_empty() && explanation.laws().is_empty());
    }
}

#[test]
fn summaries_show_intervals_of_real_engines_only() {
    let request = Request::new(1000, 100);
    let json = |engine| {
        let model = compiled("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, engine);
        let answer = model.request(&request).unwrap();
        let summary = answer.summary(&model);
        (serde_json::to_value(&summary).unwrap(), summary.to_string())
    };
    let keys = ["ttft_low_ms", "ttft_high_ms", "tpot_low_ms", "tpot_high_ms", "e2e_low_ms", "e2e_high_ms"];
    let (ideal, text) = json("ideal");
    assert!(keys.iter().all(|key| ideal.get(key).is_none()) && !text.contains("low to high"));
    let (real, text) = json("vllm-2026");
    assert_eq!(real["engine"], "vllm-2026");
    let number = |key: &str| real[key].as_f64().unwrap();
    for metric in ["ttft", "tpot", "e2e"] {
        let [low, middle, high] = ["_low", "", "_high"].map(|end| number(&format!("{metric}{end}_ms")));
        assert!(low < middle && middle < high, "{metric}: {low} {middle} {high}");
    }
    assert!(text.contains("vllm-2026 engine") && text.contains("low to high"), "{text}");
}

fn tps(model: &StepModel, rate: f64, context: u64, batch: u64) -> Diagnosis {
    let measured = Measured::TpsPerStream(TokensPerSecond::from_tokens_per_second(rate));
    model.why_slow(&Observation::new(measured, context).with_batch(batch)).unwrap()
}

#[test]
fn verdicts_change_at_the_ends_of_the_interval() {
    let model = compiled("llama-3.1-8b", "q4_k_m", "rtx-4090-24gb", 1, "llama.cpp");
    let judge = |time| model.why_slow(&Observation::new(Measured::Tpot(time), 1000)).unwrap();
    let Diagnosis { predicted, ideal, .. } = judge(Seconds::from_millis(10.0));
    assert_eq!(predicted.expected, model.decode_step(1, 1000).total());
    assert!(ideal < predicted.low);
    let (broken, just) = (predicted.high * Verdict::BROKEN_FROM, 1.0 + 1e-9);
    for (time, verdict) in [
        (ideal * (1.0 / just), Verdict::Impossible),
        (ideal, Verdict::FasterThanExpected),
        (predicted.low * (1.0 / just), Verdict::FasterThanExpected),
        (predicted.low, Verdict::Healthy),
        (predicted.expected, Verdict::Healthy),
        (predicted.high, Verdict::Healthy),
        (predicted.high * just, Verdict::Slow),
        (broken, Verdict::Slow),
        (broken * just, Verdict::Broken),
    ] {
        let diagnosis = judge(time);
        assert_eq!(diagnosis.verdict, verdict, "{time}");
        let parts: Seconds = diagnosis.parts().into_iter().map(|(_, time)| time).sum();
        assert!(close(parts + diagnosis.unexplained(), time), "{diagnosis}");
        assert!(diagnosis.parts().iter().all(|(_, time)| *time >= Seconds::from_seconds(-1e-12)), "{diagnosis}");
        assert_eq!(diagnosis.parts()[0], (Cause::Limit, diagnosis.ideal));
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let model = compiled("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "vllm");
    let judge = |rate, context, batch| {
        let measured = Measured::TpsPerStream(TokensPerSecond::from_tokens_per_second(rate));
        model.why_slow(&Observation::new(measured, context).with_batch(batch)).unwrap_err()
    };
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = judge(rate, 1000, 1);
        assert!(matches!(error, DiagnosisError::Measurement { unit: "tok/s", .. }), "{error}");
    }
    assert!(matches!(judge(10.0, 1000, 0), DiagnosisError::Request(RequestError::Zero { .. })));
    assert!(matches!(judge(10.0, 1 << 20, 1), DiagnosisError::Request(RequestError::ContextTooLong { .. })));
}

/// XiongjieDai/GPU-Benchmarks-on-LLM-Inference, llama-bench of May 2024, Llama 3 8B Q4_K_M, 1,024 tokens generated.
#[test]
fn published_llama_bench_rates_are_healthy() {
    for (device, rate) in [("rtx-3090-24gb", 111.74), ("rtx-4090-24gb", 127.74)] {
        let deployment =
            deployment("llama-3-8b", "q4_k_m", device, 1, "llama-cpp-cuda-2024").with_flash_attention(false);
        let diagnosis = tps(&StepModel::compile(&deployment).unwrap(), rate, 512, 1);
        assert_eq!(diagnosis.verdict, Verdict::Healthy, "{diagnosis}");
        assert!(diagnosis.suspects.is_empty(), "{diagnosis}");
    }
}

/// NVIDIA/dgx-spark-playbooks issue 91: "is 4 tok/s for a 70B on a Spark a fault?" The issue counts 40.61 GB per token at 273 GB/s, a limit of
/// 6.72 tok/s, and measures 4.0 to 4.2.
#[test]
fn a_70b_on_a_dgx_spark_reaches_three_fifths_of_the_limit() {
    let model = compiled("llama-3.3-70b", "nvfp4", "dgx-spark", 1, "vllm");
    let diagnosis = tps(&model, 4.1, 100, 1);
    let limit = 1.0 / diagnosis.ideal.as_seconds();
    assert!((limit / 6.72 - 1.0).abs() < 0.02, "{limit}");
    assert!((0.59..0.64).contains(&diagnosis.fraction_of_limit()), "{diagnosis}");
    assert_eq!(diagnosis.verdict, Verdict::Slow, "{diagnosis}");
}

/// Blaizzy/mlx-vlm issue 1547: MiniMax-M3 in 6 to 8 bits on an M3 Ultra, 170 tokens in 574 s. A fault of the software.
#[test]
fn a_third_of_a_token_per_second_is_broken() {
    let model = compiled("minimax-m3", "q6_k", "m3-ultra-80c", 1, "mlx");
    let diagnosis = tps(&model, 170.0 / 574.0, 276, 1);
    assert_eq!(diagnosis.verdict, Verdict::Broken, "{diagnosis}");
    assert!(diagnosis.fraction_of_limit() < 0.05, "{diagnosis}");
}

#[test]
fn suspects_agree_with_what_was_measured() {
    // The rate of the 16-bit weights, told to be that of 4-bit ones.
    let sixteen = compiled("llama-3.1-8b", "bf16", "rtx-4090-24gb", 1, "llama.cpp").decode_step(1, 1000).total();
    let model = compiled("llama-3.1-8b", "q4_k_m", "rtx-4090-24gb", 1, "llama.cpp");
    let diagnosis = tps(&model, 1.0 / sixteen.as_seconds(), 1000, 1);
    let text = diagnosis.to_string();
    assert_eq!(diagnosis.suspects[0].what, "weights in 16 bits", "{text}");
    assert!(close(diagnosis.suspects[0].time, sixteen), "{text}");
    // A part of the layers on the host, as llama.cpp allows and vLLM does not.
    assert!(text.contains("weights read from main memory"), "{text}");
    assert!(diagnosis.does_not_fit.is_none() && diagnosis.fraction_of_limit() < diagnosis.expected_fraction_of_limit());
    let vllm = compiled("llama-3.1-8b", "awq-int4", "rtx-4090-24gb", 1, "vllm");
    assert!(!tps(&vllm, 20.0, 1000, 1).to_string().contains("main memory"));
    // A 70B in 4 bits does not fit on this card, whatever runs it.
    let large = compiled("llama-3.1-70b", "q4_k_m", "rtx-4090-24gb", 1, "llama.cpp");
    let diagnosis = tps(&large, 2.0, 1000, 1);
    assert!(diagnosis.does_not_fit.is_some() && diagnosis.to_string().contains("Memory: does not fit"), "{diagnosis}");
}

#[test]
fn layers_split_between_devices_are_suspected() {
    let split = deployment("llama-3.1-70b", "fp8", "h100-sxm-80gb", 4, "vllm");
    let one_by_one = split.clone().with_tensor_parallel(1).with_pipeline_parallel(4);
    let time = StepModel::compile(&one_by_one).unwrap().decode_step(1, 1000).total();
    let diagnosis = tps(&StepModel::compile(&split).unwrap(), 1.0 / time.as_seconds(), 1000, 1);
    let found = diagnosis.suspects.iter().find(|suspect| suspect.what.contains("one after another"));
    assert!(found.is_some_and(|suspect| close(suspect.time, time)), "{diagnosis}");
}

#[test]
fn prefills_are_judged_by_their_rate() {
    let model = compiled("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "vllm");
    let ttft = model.request(&Request::new(4000, 1).with_batch(2)).unwrap().ttft;
    let rate = TokensPerSecond::from_tokens_per_second(8000.0 / ttft.as_seconds());
    let observation = Observation::new(Measured::PrefillTps(rate), 4000).with_batch(2);
    let diagnosis = model.why_slow(&observation).unwrap();
    assert!(close(diagnosis.measured, diagnosis.predicted.expected), "{diagnosis}");
    assert_eq!((diagnosis.verdict, diagnosis.mbu), (Verdict::Healthy, None));
    let mfu = diagnosis.mfu.unwrap();
    assert!(mfu > 0.2 && mfu < 1.0 && mfu <= diagnosis.fraction_of_limit(), "{diagnosis}");
}
