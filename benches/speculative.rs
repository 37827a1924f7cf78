//! What answers about speculative decoding cost: a speed-up, the best length of chains, a request, a compilation.

mod shared;

use criterion::{Criterion, criterion_group, criterion_main};
use llm_roofline::prelude::*;
use llm_roofline::speculative::{Method, Proposal, Speculation, SpeculativeModel};
use shared::deployment;
use std::hint::black_box;

fn speculative(criterion: &mut Criterion) {
    let head = |name, target: Deployment, method| {
        let speculation = Speculation::new(method, &target).expect("a drafter");
        (name, target, speculation)
    };
    let dense = deployment("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", "vllm-2026");
    let small = deployment("llama-3.2-1b", "h100-sxm-80gb", 1, "bf16", "vllm-2026");
    let cases = [
        head("llama-3.1-70b fp8 tp4 with EAGLE-3, vllm-2026", dense.clone(), Method::Eagle3),
        head("llama-3.1-70b fp8 tp4 with n-grams, vllm-2026", dense.clone(), Method::NGram),
        ("llama-3.1-70b fp8 tp4 with llama-3.2-1b, vllm-2026", dense, Speculation::draft_model(small)),
        head(
            "deepseek-v3 fp8-block tp8 with MTP, sglang-2026",
            deployment("deepseek-v3", "h200-sxm-141gb", 8, "fp8-block", "sglang-2026"),
            Method::Mtp,
        ),
        head(
            "qwen3-next-80b-a3b bf16 tp4 with MTP, sglang-2026",
            deployment("qwen3-next-80b-a3b", "h100-sxm-80gb", 4, "bf16", "sglang-2026"),
            Method::Mtp,
        ),
    ];
    for (name, target, speculation) in &cases {
        let speculation = speculation.clone().with_draft_tokens(3).expect("a chain");
        let speculation = speculation.with_acceptance_rate(0.7).expect("a rate");
        let model = SpeculativeModel::compile(target, &speculation).expect("a possible deployment");
        criterion.bench_function(&format!("best draft tokens of 16, {name}"), |b| {
            b.iter(|| model.best_draft_tokens(black_box(16), 1000, 16))
        });
        criterion.bench_function(&format!("speed-up, {name}"), |b| b.iter(|| model.speedup(black_box(16), 1000)));
        let tree = model.clone().with_proposal(Proposal::tree(8, 5, 32).expect("a tree"));
        criterion
            .bench_function(&format!("speed-up of a tree, {name}"), |b| b.iter(|| tree.speedup(black_box(16), 1000)));
        let request = Request::new(2000, 500);
        criterion.bench_function(&format!("request, {name}"), |b| b.iter(|| model.request(black_box(&request))));
        criterion.bench_function(&format!("break-even batch up to 512, {name}"), |b| {
            b.iter(|| model.break_even_batch(black_box(1000), 512))
        });
        criterion.bench_function(&format!("compile, {name}"), |b| {
            b.iter(|| SpeculativeModel::compile(black_box(target), black_box(&speculation)))
        });
    }
}

criterion_group!(benches, speculative);
criterion_main!(benches);
