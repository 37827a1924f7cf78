//! What answers under load cost: steady states, a curve, a knee, the capacity under a target.

mod shared;

use criterion::{Criterion, criterion_group, criterion_main};
use llm_roofline::prelude::*;
use llm_roofline::serving::{Server, Statistic, Target};
use llm_roofline::workload::{LengthDistribution, Lengths, Slo};
use shared::deployment;
use std::hint::black_box;

fn serving(criterion: &mut Criterion) {
    let cases = [
        ("llama-3.1-8b tp1, vllm-2026", deployment("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026")),
        ("llama-3.1-70b fp8 tp4, vllm-2026", deployment("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", "vllm-2026")),
        (
            "deepseek-v3 fp8-block tp8, sglang-2026",
            deployment("deepseek-v3", "h200-sxm-141gb", 8, "fp8-block", "sglang-2026"),
        ),
    ];
    let prompts = LengthDistribution::log_normal(1000.0, 1000.0, 1, 8000).expect("a distribution");
    let outputs = LengthDistribution::log_normal(300.0, 300.0, 1, 2000).expect("a distribution");
    let lengths = Lengths::independent(prompts, outputs).expect("lengths");
    let slo = Slo::ttft_tpot(Seconds::from_millis(1000.0), Seconds::from_millis(50.0));
    let p99 = Target::at(&slo, Statistic::P99).expect("a target");
    for (name, deployment) in &cases {
        let model = StepModel::compile(deployment).expect("a possible deployment");
        let server = Server::new(&model, &lengths).expect("a server");
        let half = server.max_rate() * 0.5;
        let near = server.max_rate() * 0.95;
        criterion.bench_function(&format!("server, {name}"), |b| {
            b.iter(|| Server::new(black_box(&model), black_box(&lengths)))
        });
        criterion.bench_function(&format!("open loop at 0.5, {name}"), |b| {
            b.iter(|| server.open_loop(black_box(half), &slo))
        });
        criterion.bench_function(&format!("open loop at 0.95, {name}"), |b| {
            b.iter(|| server.open_loop(black_box(near), &slo))
        });
        criterion.bench_function(&format!("closed loop of 64, {name}"), |b| {
            b.iter(|| server.closed_loop(black_box(64.0), Seconds::ZERO, &slo))
        });
        criterion.bench_function(&format!("offline, {name}"), |b| b.iter(|| server.offline(black_box(&slo))));
        criterion.bench_function(&format!("curve of 30 points, {name}"), |b| b.iter(|| server.curve(black_box(30))));
        criterion.bench_function(&format!("knee, {name}"), |b| b.iter(|| black_box(&server).knee()));
        criterion.bench_function(&format!("largest rate at p99, {name}"), |b| {
            b.iter(|| server.max_rate_under(black_box(&p99)))
        });
        criterion.bench_function(&format!("most concurrency at p99, {name}"), |b| {
            b.iter(|| server.max_concurrency_under(black_box(&p99)))
        });
    }
}

criterion_group!(benches, serving);
criterion_main!(benches);
