//! What simulations cost: requests per second of whole runs, steps per second where each is priced on its own.

mod shared;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{EngineSettings, Routing, Simulation};
use llm_roofline::workload::{
    LengthDistribution, Lengths, RequestClass, SharedPrefix, Slo, Trace, TraceRequest, Workload,
};
use shared::deployment;
use std::hint::black_box;
use std::time::Duration;

const REQUESTS: u64 = 100_000;
const STEPPING_REQUESTS: u64 = 10_000;

/// One H100 and eight of them, under the textbook engine and a real one.
fn models() -> Vec<(&'static str, StepModel)> {
    let compiled = |model, count, engine| {
        StepModel::compile(&deployment(model, "h100-sxm-80gb", count, "bf16", engine)).expect("a possible deployment")
    };
    vec![
        ("llama-3.1-8b tp1, ideal", compiled("llama-3.1-8b", 1, "ideal")),
        ("llama-3.1-8b tp1, vllm-2026", compiled("llama-3.1-8b", 1, "vllm-2026")),
        ("llama-3-70b tp8, ideal", compiled("llama-3-70b", 8, "ideal")),
        ("llama-3-70b tp8, vllm-2026", compiled("llama-3-70b", 8, "vllm-2026")),
    ]
}

fn poisson(rate: f64, lengths: Lengths) -> Workload {
    Workload::poisson(RequestsPerSecond::from_requests_per_second(rate), lengths).expect("a rate")
}

/// Eight requests per second, all of 1024 and 256 tokens.
fn plain() -> Workload {
    poisson(8.0, Lengths::fixed(1024, 256).expect("lengths"))
}

/// Log-normal lengths around these means.
fn random_lengths(prompt: f64, output: f64) -> Lengths {
    let prompts = LengthDistribution::log_normal(prompt, 0.5 * prompt, 1, 7000).expect("a distribution");
    let outputs = LengthDistribution::log_normal(output, 0.5 * output, 1, 1024).expect("a distribution");
    Lengths::independent(prompts, outputs).expect("lengths")
}

/// Eight requests per second of random lengths, in three classes with limits, behind a prefix that all share.
fn everything() -> Workload {
    let class = |name: &str, share, prompt, output, ttft_ms, tpot_ms| {
        let slo = Slo::ttft_tpot(Seconds::from_millis(ttft_ms), Seconds::from_millis(tpot_ms));
        RequestClass::new(name, share, random_lengths(prompt, output)).with_slo(slo)
    };
    let classes = vec![
        class("chat", 0.6, 1024.0, 256.0, 200.0, 20.0),
        class("code", 0.3, 1200.0, 200.0, 500.0, 15.0),
        class("batch", 0.1, 800.0, 400.0, 5000.0, 100.0),
    ];
    let prefix = SharedPrefix::fixed(512, 1.0).expect("a prefix");
    plain().with_classes(classes).expect("classes").with_prefix(prefix)
}

/// Conversations of seven turns, each of which repeats what was said: blocks of 512 tokens, the first of which is the same for all.
fn conversations(count: u64) -> Trace {
    const TURNS: u64 = 7;
    const NEW_BLOCKS: u64 = 2;
    let request = |number: u64| {
        // Turns of 64 conversations take turns.
        let (conversation, turn) = (number / (64 * TURNS) * 64 + number % 64, number / 64 % TURNS);
        let own = NEW_BLOCKS * (turn + 1);
        let hash = |block| 1 + conversation * NEW_BLOCKS * TURNS + block;
        let block_hashes: Vec<u64> = std::iter::once(0).chain((0..own).map(hash)).collect();
        TraceRequest {
            arrival: Seconds::from_seconds(number as f64 / 8.0),
            prompt_tokens: 512 * block_hashes.len() as u64 - 100,
            output_tokens: 100 + 50 * (number % 5),
            block_hashes,
            ..TraceRequest::default()
        }
    };
    Trace::new((0..count).map(request).collect()).expect("a trace")
}

/// A group in which one run is one sample.
fn group<'c>(criterion: &'c mut Criterion, name: &str, elements: u64) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Elements(elements));
    group
}

fn leaping(criterion: &mut Criterion) {
    let mut settings = EngineSettings::default();
    settings.kv_blocks = Some(20_000);
    for (name, workload, settings) in
        [("plain", plain(), EngineSettings::default()), ("everything on", everything(), settings)]
    {
        let mut group = group(criterion, &format!("simulate, {name}"), REQUESTS);
        for (name, model) in models() {
            let simulation = Simulation::new(&model).with_settings(settings);
            group.bench_function(name, |b| b.iter(|| simulation.run(black_box(&workload), REQUESTS).expect("a run")));
        }
    }
}

fn stepping(criterion: &mut Criterion) {
    let workload = plain();
    let mut group = group(criterion, "simulate, step by step", STEPPING_REQUESTS);
    for (name, model) in models() {
        let simulation = Simulation::new(&model).stepping();
        let steps = simulation.run(&workload, STEPPING_REQUESTS).expect("a run").steps;
        group.throughput(Throughput::Elements(steps));
        group.bench_function(name, |b| {
            b.iter(|| simulation.run(black_box(&workload), STEPPING_REQUESTS).expect("a run"))
        });
    }
}

fn traces(criterion: &mut Criterion) {
    let trace = conversations(20_160);
    let mut group = group(criterion, "simulate, trace with hashes", trace.requests().len() as u64);
    for (name, model) in models() {
        let simulation = Simulation::new(&model);
        group.bench_function(name, |b| b.iter(|| simulation.replay(black_box(&trace)).expect("a run")));
    }
}

fn replicas(criterion: &mut Criterion) {
    let model = StepModel::compile(&deployment("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026"));
    let model = model.expect("a possible deployment");
    // Eight per second on each.
    let workload = everything().at_rate(RequestsPerSecond::from_requests_per_second(64.0)).expect("a rate");
    let mut group = group(criterion, "simulate, 8 replicas", REQUESTS);
    for (name, routing) in [
        ("random", Routing::Random),
        ("round robin", Routing::RoundRobin),
        ("least loaded", Routing::LeastLoaded),
        ("power of two choices", Routing::PowerOfTwoChoices),
        ("prefix affinity", Routing::PrefixAffinity),
    ] {
        let simulation = Simulation::new(&model).with_replicas(8).with_routing(routing);
        group.bench_function(name, |b| b.iter(|| simulation.run(black_box(&workload), REQUESTS).expect("a run")));
    }
}

criterion_group!(benches, leaping, stepping, traces, replicas);
criterion_main!(benches);
