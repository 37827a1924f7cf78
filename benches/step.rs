//! What pricing costs: a step, a request, a compilation, a look-up.

mod shared;

use criterion::{Criterion, criterion_group, criterion_main};
use llm_roofline::memory::MemoryModel;
use llm_roofline::prelude::*;
use shared::deployment;
use std::hint::black_box;

fn step(criterion: &mut Criterion) {
    let cases = [
        ("llama-3.1-70b fp8 tp4, ideal", deployment("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", "ideal")),
        ("deepseek-v3 fp8-block tp16, ideal", deployment("deepseek-v3", "h200-sxm-141gb", 16, "fp8-block", "ideal")),
        ("nemotron-super-49b bf16 tp2, ideal", deployment("nemotron-super-49b", "h100-sxm-80gb", 2, "bf16", "ideal")),
        ("llama-3.1-70b fp8 tp4, vllm-2026", deployment("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", "vllm-2026")),
        (
            "llama-3.1-8b q4_k_m, llama-cpp-cuda-2026",
            deployment("llama-3.1-8b", "rtx-4090-24gb", 1, "q4_k_m", "llama-cpp-cuda-2026"),
        ),
        ("gpt-oss-120b mxfp4, vllm-2026", deployment("gpt-oss-120b", "h100-sxm-80gb", 1, "mxfp4", "vllm-2026")),
        (
            "deepseek-v3 fp8-block tp8, sglang-2026",
            deployment("deepseek-v3", "h200-sxm-141gb", 8, "fp8-block", "sglang-2026"),
        ),
    ];
    for (name, deployment) in &cases {
        let model = StepModel::compile(deployment).expect("a possible deployment");
        let mut decode = model.load();
        decode.add_decode(2000, 1, 32.0);
        let mut mixed = decode;
        mixed.add_prefill(0, 512, false);
        criterion.bench_function(&format!("price a decode step, {name}"), |b| {
            b.iter(|| model.cost(black_box(&decode)).total())
        });
        criterion.bench_function(&format!("price a mixed step, {name}"), |b| {
            b.iter(|| model.cost(black_box(&mixed)).total())
        });
        let request = Request::new(2000, 500);
        criterion
            .bench_function(&format!("unloaded request, {name}"), |b| b.iter(|| model.request(black_box(&request))));
        // The same answer priced token by token: what the closed form saves.
        criterion.bench_function(&format!("unloaded request step by step, {name}"), |b| {
            b.iter(|| {
                let decode: Seconds = (0..499).map(|step| model.decode_step(1, black_box(2000) + step).total()).sum();
                model.prefill(black_box(&request)).total() + decode
            });
        });
        criterion.bench_function(&format!("compile, {name}"), |b| b.iter(|| StepModel::compile(black_box(deployment))));
    }
}

fn catalog(criterion: &mut Criterion) {
    let catalog = Catalog::embedded();
    let _ = catalog.model("llama-3.1-70b");
    criterion.bench_function("catalog look-up, second time", |b| b.iter(|| catalog.model(black_box("llama-3.1-70b"))));
}

fn memory(criterion: &mut Criterion) {
    let cases = [
        ("llama-3.1-70b fp8 tp4, vllm-2026", deployment("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", "vllm-2026")),
        ("qwen3.6-27b fp8 tp2, vllm-2026", deployment("qwen3.6-27b", "rtx-5090-32gb", 2, "fp8", "vllm-2026")),
        (
            "llama-3.1-8b q4_k_m, llama-cpp-cuda-2026",
            deployment("llama-3.1-8b", "rtx-4090-24gb", 1, "q4_k_m", "llama-cpp-cuda-2026"),
        ),
    ];
    for (name, deployment) in &cases {
        let memory = MemoryModel::new(deployment);
        criterion
            .bench_function(&format!("memory model, {name}"), |b| b.iter(|| MemoryModel::new(black_box(deployment))));
        criterion.bench_function(&format!("memory plan, {name}"), |b| b.iter(|| memory.plan(black_box(8), 4096)));
        criterion.bench_function(&format!("cache pool, {name}"), |b| b.iter(|| memory.kv_pool(black_box(8192))));
        criterion.bench_function(&format!("longest context, {name}"), |b| {
            b.iter(|| memory.max_context_tokens(black_box(1)))
        });
    }
    let too_large = deployment("llama-3.1-70b", "h100-sxm-80gb", 1, "bf16", "vllm-2026");
    criterion
        .bench_function("suggestions for a model that does not fit", |b| b.iter(|| black_box(&too_large).fit(1, 8192)));
}

criterion_group!(benches, step, memory, catalog);
criterion_main!(benches);
