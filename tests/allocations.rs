//! Pricing allocates nothing: a what-if over millions of steps and requests stays in the caches of the processor.
#![allow(unsafe_code, reason = "a counting allocator cannot be written without")]

mod common;

use common::{Setup, attention, chunking_engine, dense, layer, lossy_engine};
use llm_roofline::memory::{Drafting, MemoryModel};
use llm_roofline::model::{Architecture, FeedForward, LatentAttention, Mixer, Moe, Reach, Recurrent};
use llm_roofline::prelude::*;
use llm_roofline::speculative::{Acceptance, Method, Proposal, Speculation, SpeculativeModel};
use std::alloc::{GlobalAlloc, Layout, System as Heap};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local number only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { Heap.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and all memory comes from `Heap`.
        unsafe { Heap.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, and all memory comes from `Heap`.
        unsafe { Heap.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of this thread while `work` runs.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = work();
    (ALLOCATIONS.get() - before, result)
}

/// Every sort of layer in one model.
fn mixed() -> Architecture {
    let moe = || {
        FeedForward::Moe(Moe {
            experts: 16,
            experts_per_token: 2,
            intermediate: 256,
            gated: true,
            shared_intermediate: Some(256),
            latent_size: None,
            vector_params_per_expert: 0,
            shared_gate: false,
        })
    };
    let latent = LatentAttention {
        heads: 8,
        q_lora_rank: Some(96),
        kv_lora_rank: 128,
        qk_nope_head_dim: 32,
        qk_rope_head_dim: 16,
        v_head_dim: 32,
        output_gate: false,
        sparse: None,
    };
    let mixers = [
        Mixer::Attention(attention(8, 2, 64, Reach::Window(128))),
        Mixer::Attention(attention(8, 8, 64, Reach::Chunk(100))),
        Mixer::LatentAttention(latent),
        Mixer::Recurrent(Recurrent::Lightning { heads: 8, head_dim: 64 }),
    ];
    Architecture::from_layers(512, 1000, 1 << 20, mixers.map(|mixer| ("layer".to_string(), layer(mixer, moe(), 512))))
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| vec![1u8; 100]).0, 1);
    assert_eq!(allocations(|| 1 + 1).0, 0);
}

#[test]
fn pricing_allocates_nothing() {
    for (architecture, engine) in
        [(dense(4, 1024, 8), lossy_engine()), (mixed(), lossy_engine()), (mixed(), chunking_engine(100))]
    {
        let model = Setup { tensor_parallel: 2, engine, ..Setup::new(architecture) }.model();
        let (load_allocations, load) = allocations(|| {
            let mut load = model.load();
            load.add_prefill(100, 200, true);
            load.add_decode(1000, 1, 64.0);
            load.add_decode(2000, 3, 4.0);
            load.remove_decode(1000, 1, 32.0);
            load.remove_prefill(100, 200, true);
            load
        });
        assert_eq!(load_allocations, 0, "updates of a load");
        let (cost_allocations, cost) = allocations(|| model.cost(&load));
        assert_eq!(cost_allocations, 0, "price of a step");
        assert!(cost.total() > Seconds::ZERO);
        let (run_allocations, run) = allocations(|| model.decode_run(16, 100, 1000));
        assert_eq!(run_allocations, 0, "price of a run");
        assert!(run.total() > cost.total());
        let (request_allocations, answer) = allocations(|| model.request(&Request::new(1000, 500).with_batch(3)));
        assert_eq!(request_allocations, 0, "estimate of a request");
        assert!(answer.is_ok());
    }
}

/// Engines with every law: chunked prompts, vector kernels for few rows, pipelines that split batches, attention in data-parallel ranks.
#[test]
fn pricing_under_real_engines_allocates_nothing() {
    let catalog = Catalog::embedded();
    let deployment = |engine: &str, model: &str, weights: &str, device: &str, count: u32| {
        let system = System::new(catalog.device(device).unwrap(), count).unwrap();
        Deployment::new(catalog.model(model).unwrap(), system)
            .with_weights(weights.parse().unwrap())
            .with_engine(catalog.engine(engine).unwrap())
            .with_tensor_parallel(1)
    };
    for deployment in [
        deployment("llama-cpp-cuda-2026", "llama-3.1-8b", "q4_k_m", "rtx-4090-24gb", 1),
        deployment("llama-cpp-metal-2023", "gemma-3-27b", "q8_0", "m3-ultra-80c", 1),
        deployment("vllm-2026", "llama-3.1-70b", "fp8", "h100-sxm-80gb", 4).with_tensor_parallel(4),
        deployment("vllm-2026", "gpt-oss-120b", "mxfp4", "h100-sxm-80gb", 4).with_pipeline_parallel(4),
        deployment("sglang-2026", "deepseek-v3", "fp8-block", "h200-sxm-141gb", 8)
            .with_data_parallel_attention(8)
            .with_expert_parallel(8),
    ] {
        let model = StepModel::compile(&deployment).unwrap();
        let mut load = model.load();
        load.add_prefill(100, 200, true);
        load.add_decode(1000, 1, 64.0);
        let engine = &deployment.engine().slug;
        let (count, cost) = allocations(|| model.cost(&load));
        assert_eq!(count, 0, "price of a step under {engine}");
        let (count, interval) = allocations(|| model.interval(&cost));
        assert_eq!(count, 0, "interval of a step under {engine}");
        assert!(interval.high > cost.total());
        let (count, answer) = allocations(|| model.request(&Request::new(5000, 500).with_batch(3)));
        assert_eq!(count, 0, "estimate of a request under {engine}");
        assert!(answer.is_ok());
    }
}

/// Memory of a hybrid model with a drafter, on the last of two stages.
#[test]
fn memory_with_a_drafter_allocates_nothing() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("rtx-5090-32gb").unwrap(), 2).unwrap();
    let serve = |model: &str| Deployment::new(catalog.model(model).unwrap(), system.clone()).with_tensor_parallel(1);
    let target = serve("qwen3.6-27b").with_engine(catalog.engine("vllm-2026").unwrap()).with_pipeline_parallel(2);
    let drafting = Drafting::new(serve("qwen3-0.6b"));
    let memory = MemoryModel::with_drafter(&target, 3, Some(&drafting));
    let (count, plans) = allocations(|| memory.plans(4, 8192).map(|(_, plan)| plan.drafter_weights).sum::<Bytes>());
    assert!(count == 0 && plans > Bytes::ZERO, "{count}");
    let (count, pool) = allocations(|| memory.kv_pool(8192));
    assert!(count == 0 && pool.block_bytes > Bytes::ZERO, "{count}");
}

/// Cycles of chains, under drafters of every sort; searches over many of them.
#[test]
fn speculation_with_chains_allocates_nothing() {
    let catalog = Catalog::embedded();
    let serve = |model: &str, devices: u32| {
        let system = System::new(catalog.device("h200-sxm-141gb").unwrap(), devices).unwrap();
        Deployment::new(catalog.model(model).unwrap(), system).with_engine(catalog.engine("sglang-2026").unwrap())
    };
    let dense = serve("llama-3.1-70b", 4);
    let draft = Speculation::draft_model(serve("llama-3.2-1b", 1));
    let hybrid = serve("qwen3-next-80b-a3b", 4);
    let heads = [(&dense, Method::Eagle3), (&dense, Method::NGram), (&hybrid, Method::Mtp)]
        .map(|(target, method)| (target, Speculation::new(method, target).unwrap()));
    for (target, speculation) in heads.into_iter().chain([(&dense, draft)]) {
        for acceptance in [
            Acceptance::rate(0.7).unwrap(),
            Acceptance::per_position([0.8, 0.7, 0.6]).unwrap(),
            Acceptance::measured(2.5, Proposal::chain(4).unwrap()).unwrap(),
        ] {
            let speculation = speculation.clone().with_draft_tokens(3).unwrap().with_acceptance(acceptance);
            let model = SpeculativeModel::compile(target, &speculation).unwrap();
            let method = speculation.method();
            let (count, cycle) = allocations(|| model.cycle(16, 1000));
            assert_eq!(count, 0, "a cycle of {method}");
            assert!(cycle.total() > Seconds::ZERO);
            let (count, speedup) = allocations(|| model.speedup(16, 1000));
            assert!(count == 0 && speedup > 0.0, "a speed-up of {method}");
            let (count, best) = allocations(|| model.best_draft_tokens(16, 1000, 16));
            assert!(count == 0 && best.is_ok(), "the best chain of {method}");
            let (count, _) = allocations(|| (model.break_even_acceptance(16, 1000), model.break_even_batch(1000, 64)));
            assert_eq!(count, 0, "break-even points of {method}");
            let (count, answer) = allocations(|| model.request(&Request::new(1000, 500).with_batch(3)));
            assert!(count == 0 && answer.is_ok(), "estimate of a request with {method}");
        }
    }
}
