//! The simulation against real runs of vLLM 0.19: the same 300 requests of ShareGPT, sent at the same times.
//!
//! Source: casys-kaist/LLMServingSim (MIT): lengths and arrivals of `workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl`; results of `bench/`
//! (`validation/summary.txt`, `vllm/meta.json`: `--max-num-batched-tokens 2048`, the cards' names, the numbers of blocks).
//!
//! Five constants of the engine profiles were fitted to the first two runs (source `llmservingsim` in engine-profiles/serving.toml): the scheduling of
//! requests is what this tests.
#![cfg(feature = "random")]

use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{EngineSettings, Outcome, Simulation};
use llm_roofline::workload::{Trace, TraceRequest};

/// What was measured: mean and 99th percentile of TTFT and TPOT, in ms, and output tokens per second.
type Measured = [f64; 5];

const RTX_4090: Measured = [65_456.6, 137_356.3, 32.4466, 56.0039, 1066.382];
const RTX_PRO_6000: Measured = [7097.16, 19_755.25, 32.458, 37.3442, 2969.264];
const RTX_PRO_6000_TWO_RANKS: Measured = [1085.98, 9587.91, 47.2863, 53.2688, 3116.138];

fn deployment(model: &str, device: &str, count: u32) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system).with_engine(catalog.engine("vllm-0.17").unwrap())
}

fn trace() -> Trace {
    let file = "tests/data/traces/llmservingsim_sharegpt_300.csv";
    let trace = Trace::read(file, std::fs::File::open(file).unwrap()).unwrap();
    assert_eq!(trace.requests().len(), 300);
    trace
}

fn run(deployment: &Deployment, trace: &Trace, max_sequences: u64, kv_blocks: Option<u64>) -> Outcome {
    let model = StepModel::compile(deployment).unwrap();
    let mut settings = EngineSettings::default();
    settings.max_sequences = Some(max_sequences);
    settings.max_tokens_per_step = Some(2048);
    settings.kv_blocks = kv_blocks;
    Simulation::new(&model).with_settings(settings).replay(trace).unwrap()
}

/// Fails unless TTFT is within `ttft` of what was measured, TPOT and output within `tpot`.
fn compare(what: &str, outcome: &Outcome, measured: Measured, ttft: f64, tpot: f64) {
    let (first, pace) = (outcome.summary.ttft.unwrap(), outcome.summary.tpot.unwrap());
    let [a, b, c, d] = [first.mean, first.p99, pace.mean, pace.p99].map(Seconds::as_millis);
    let found = [a, b, c, d, outcome.summary.output_tps_total.unwrap().as_tokens_per_second()];
    let names = ["TTFT", "p99 TTFT", "TPOT", "p99 TPOT", "output"];
    let off: Vec<f64> = found.iter().zip(measured).map(|(found, measured)| found / measured - 1.0).collect();
    let said: Vec<String> = names.iter().zip(&off).map(|(name, off)| format!("{name} {:+.1} %", 100.0 * off)).collect();
    println!("{what}: {}", said.join(", "));
    for (name, off, bound) in [
        (names[0], off[0], ttft),
        (names[1], off[1], ttft),
        (names[2], off[2], tpot),
        (names[3], off[3], tpot),
        (names[4], off[4], tpot),
    ] {
        assert!(off.abs() < bound, "{what}: {name} {:+.1} %", 100.0 * off);
    }
}

/// A cache that is always full: requests are preempted, and found again in part. The number of blocks is predicted, then the one that was printed.
#[test]
fn a_card_whose_cache_is_full() {
    let deployment = deployment("llama-3.1-8b", "rtx-4090-24gb", 1);
    compare("RTX 4090", &run(&deployment, &trace(), 256, None), RTX_4090, 0.10, 0.10);
    let outcome = run(&deployment, &trace(), 256, Some(2588));
    assert!(outcome.statistics.preemptions > 100);
    compare("RTX 4090 with 2588 blocks", &outcome, RTX_4090, 0.10, 0.10);
}

/// All places are taken. The card's edition is named in the source, and left open in tables made from it.
#[test]
fn a_card_whose_places_are_taken() {
    let server = deployment("llama-3.1-8b", "rtx-pro-6000-server-96gb", 1);
    compare("RTX PRO 6000 Server", &run(&server, &trace(), 128, None), RTX_PRO_6000, 0.10, 0.10);
    let workstation = deployment("llama-3.1-8b", "rtx-pro-6000-96gb", 1);
    compare("RTX PRO 6000", &run(&workstation, &trace(), 128, None), RTX_PRO_6000, 0.20, 0.10);
}

/// The same texts cut by another tokenizer, of which only the mean lengths are known: 862 and 665 instead of 857 and 653 tokens.
fn recut(trace: &Trace) -> Trace {
    let longer = |tokens: u64, by: f64| (tokens as f64 * by).round() as u64;
    let request = |request: &TraceRequest| TraceRequest {
        prompt_tokens: longer(request.prompt_tokens, 862.0 / 857.0),
        output_tokens: longer(request.output_tokens, 665.0 / 653.0),
        ..request.clone()
    };
    Trace::new(trace.requests().iter().map(request).collect()).unwrap()
}

/// Two ranks of data-parallel attention, experts over both. Hardly anybody waits, so that a few per cent of a step's time are a third of TTFT.
#[test]
fn two_cards_with_experts_over_both() {
    let deployment = deployment("qwen3-30b-a3b", "rtx-pro-6000-server-96gb", 2);
    let deployment = deployment.with_tensor_parallel(1).with_data_parallel_attention(2).with_expert_parallel(2);
    let outcome = run(&deployment, &recut(&trace()), 128, None);
    compare("two RTX PRO 6000 Server", &outcome, RTX_PRO_6000_TWO_RANKS, 0.35, 0.10);
}
