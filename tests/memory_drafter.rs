//! Memory with speculative decoding: drafters by hand arithmetic, and what must hold of any. Start-up logs are in `memory_vllm.rs`.

mod common;

use common::cases;
use llm_roofline::deployment::{Host, Offload};
use llm_roofline::format::TensorClass;
use llm_roofline::memory::{Drafting, DraftingError, Location, MemoryModel, MemoryPart, MemoryPlan};
use llm_roofline::model::{Architecture, Attention, FeedForward, Layer, Linear, Mixer, Split};
use llm_roofline::prelude::*;
use proptest::prelude::*;
use proptest::sample::select;

fn deployment(model: &str, devices: u32, engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), devices).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system).with_engine(catalog.engine(engine).unwrap())
}

/// The head of Llama-3.1-8B: SpecForge, configs/llama3-8B-eagle3.json (hidden 4096, intermediate 14336, 32 heads, 8 key-value heads of
/// 128, draft vocabulary 32,000). vLLM, vllm/model_executor/models/llama_eagle3.py: queries, keys and values read the embedding and the
/// hidden state, and a replicated matrix merges three hidden states of the target.
fn eagle3_head(vocab_size: u64) -> Model {
    let (hidden, keys) = (4096, 8 * 128);
    let attention = Attention::full(32, 8, 128);
    let layer = Layer {
        mixer: Mixer::Attention(attention),
        feed_forward: FeedForward::Dense { intermediate: 14_336, gated: true },
        extra: vec![
            Linear::new(TensorClass::AttentionQ, hidden, hidden, Split::Output),
            Linear::new(TensorClass::AttentionK, hidden, keys, Split::KvHeads(8)),
            Linear::new(TensorClass::AttentionV, hidden, keys, Split::KvHeads(8)),
            Linear::new(TensorClass::OtherMatrix, 3 * hidden, hidden, Split::Replicated),
        ],
        // Norms of the embedding, of the hidden state, and after attention.
        vector_params: 3 * hidden,
    };
    let architecture = Architecture::from_layers(hidden, vocab_size, 131_072, [("head".to_string(), layer)]);
    Model::from_architecture("EAGLE3-LLaMA3.1-Instruct-8B", "llama", architecture)
}

fn eagle3(target: &Deployment, vocab_size: u64) -> Drafting {
    let deployment = Deployment::new(eagle3_head(vocab_size), target.system().clone());
    Drafting::new(deployment.with_tensor_parallel(target.tensor_parallel()))
}

fn plan(target: &Deployment, drafting: &Drafting) -> MemoryPlan {
    MemoryModel::with_drafter(target, 3, Some(drafting)).plan(1, 8192)
}

/// `q 8192x4096 + k, v 2 x 8192x1024 + o 4096x4096 + 3 x 4096x14336 + fc 12288x4096 + lm_head 32000x4096 + 4 norms`, two bytes each.
#[test]
fn an_eagle3_head_beside_llama_3_1_8b() {
    let target = deployment("llama-3.1-8b", 1, "ideal");
    let drafting = eagle3(&target, 32_000).with_shared_embedding();
    let with = plan(&target, &drafting);
    assert_eq!(with.drafter_weights.as_bytes(), 2.0 * 424_689_664.0);
    let alone = target.memory_plan(1, 8192);
    assert_eq!((with.weights, with.part(MemoryPart::Drafter)), (alone.weights, with.drafter_weights));
    assert_eq!(with.fixed(), alone.fixed() + with.drafter_weights);
    // 33 layers of 2 x 8 x 128 elements, two bytes each.
    let memory = MemoryModel::with_drafter(&target, 3, Some(&drafting));
    assert_eq!(memory.kv_per_sequence(8192).as_bytes(), 8192.0 * 33.0 * 4096.0);
    assert_eq!(memory.weights(), alone.weights + memory.drafter_weights());
    // Two devices: the merging matrix and the norms are on each.
    let two = deployment("llama-3.1-8b", 2, "ideal");
    let half = plan(&two, &eagle3(&two, 32_000).with_shared_embedding()).drafter_weights;
    let replicated = 12_288.0 * 4096.0 + 4.0 * 4096.0;
    assert_eq!(half.as_bytes(), 424_689_664.0 - replicated + 2.0 * replicated);
}

/// Tables of the target are not counted twice: EAGLE-1 and MTP share both of them, 128,256 x 4096 in two bytes each.
#[test]
fn shared_tables_are_counted_once() {
    let target = deployment("llama-3.1-8b", 1, "ideal");
    let of = |drafting: Drafting| plan(&target, &drafting).drafter_weights.as_bytes();
    let table = 2.0 * 128_256.0 * 4096.0;
    let own = of(eagle3(&target, 128_256));
    assert_eq!(own - of(eagle3(&target, 128_256).with_shared_embedding()), table);
    assert_eq!(own - of(eagle3(&target, 128_256).with_shared_lm_head()), table);
    assert_eq!(own - of(eagle3(&target, 128_256).with_shared_embedding().with_shared_lm_head()), 2.0 * table);
    // A tied table is one.
    let tied = || Drafting::new(deployment("llama-3.2-1b", 1, "ideal"));
    let (own, table) = (of(tied()), 2.0 * 128_256.0 * 2048.0);
    for shared in [tied().with_shared_embedding(), tied().with_shared_lm_head()] {
        assert_eq!(own - of(shared.clone()), table);
        assert_eq!(own - of(shared.with_shared_lm_head()), table);
    }
}

/// Llama-3.2-1B has 1,235,814,400 parameters (Hugging Face), of which 33 norms of 2048 are on every device, and 16 layers of 2 x 8 x 64
/// cached elements beside the 80 of 2 x 8 x 128 of the target.
#[test]
fn a_small_model_beside_llama_3_1_70b() {
    let target = deployment("llama-3.1-70b", 4, "ideal");
    let small = deployment("llama-3.2-1b", 4, "ideal");
    let cut = |degree: u32| Drafting::new(small.clone().with_tensor_parallel(degree));
    let weights = |degree: u32| plan(&target, &cut(degree)).drafter_weights.as_bytes();
    let norms = 33.0 * 2048.0;
    let matrices = 1_235_814_400.0 - norms;
    assert_eq!([weights(1), weights(2), weights(4)], [1.0, 2.0, 4.0].map(|tp| 2.0 * (matrices / tp + norms)));
    // The target's share is a fourth; that of the drafter follows its own devices.
    let cache = |degree: u32| plan(&target, &cut(degree)).kv_cache.as_bytes();
    assert_eq!(cache(4), 8192.0 * (327_680.0 + 32_768.0) / 4.0);
    assert_eq!(cache(1), 8192.0 * (327_680.0 / 4.0 + 32_768.0));
}

/// vLLM, `allocate_slots`: blocks of 16 tokens for the context, the proposals that are verified, and the next ones; a prompt look-up has no
/// next ones, and nothing lies beyond `--max-model-len`.
#[test]
fn blocks_for_proposed_tokens() {
    let target = deployment("llama-3.1-8b", 1, "vllm-2026");
    let drafting = eagle3(&target, 32_000).with_shared_embedding();
    let (with, without) = (4096.0 * 33.0, 4096.0 * 32.0);
    let of = |draft_tokens: u64, drafting: Option<&Drafting>, context: u64| {
        MemoryModel::with_drafter(&target, draft_tokens, drafting).kv_per_sequence(context).as_bytes() / 16.0
    };
    assert_eq!(of(8, Some(&drafting), 8192), with * 513.0);
    assert_eq!(of(9, Some(&drafting), 8192), with * 514.0);
    assert_eq!(of(9, None, 8192), without * 513.0);
    assert_eq!(of(9, Some(&drafting), 131_072), with * 8192.0);
    // The size of the pool that is printed does not count them.
    let pool = MemoryModel::with_drafter(&target, 9, Some(&drafting)).kv_pool_in(Bytes::from_gib(40.0), 8192);
    assert_eq!(pool.concurrency, pool.blocks as f64 / 512.0);
}

/// A state for each proposed token, without a drafter as well.
#[test]
fn states_for_proposed_tokens() {
    for engine in ["ideal", "sglang-2026", "vllm-2024"] {
        let target = deployment("qwen3.6-27b", 2, engine);
        let states = |tokens: u64| MemoryModel::with_drafter(&target, tokens, None).state_per_sequence();
        assert_eq!([states(1), states(5)], [states(0) * 2.0, states(0) * 6.0], "{engine}");
    }
    // vLLM: 2 + k blocks for each of three groups with prefix caching.
    let target = deployment("qwen3.6-27b", 2, "vllm-2026");
    let memory = |tokens: u64| MemoryModel::with_drafter(&target, tokens, None);
    let blocks = |tokens: u64| memory(tokens).state_per_sequence() / memory(tokens).kv_pool(8192).block_bytes;
    assert_eq!([blocks(0), blocks(3)], [6.0, 15.0]);
}

/// The last stage has the drafter and, as the first does not lend them, embeddings of its own: 128,256 x 4096 in two bytes.
#[test]
fn the_last_stage_has_the_drafter() {
    let target = deployment("llama-3.1-8b", 2, "vllm-2026").with_tensor_parallel(1).with_pipeline_parallel(2);
    let drafting = eagle3(&target, 32_000).with_shared_embedding();
    let memory = MemoryModel::with_drafter(&target, 3, Some(&drafting));
    let plans: Vec<MemoryPlan> = memory.plans(1, 8192).map(|(_, plan)| plan).collect();
    let embeddings = 2.0 * 128_256.0 * 4096.0;
    assert_eq!(plans[0].drafter_weights, Bytes::ZERO);
    assert_eq!(plans[1].drafter_weights.as_bytes(), 2.0 * 424_689_664.0 + embeddings);
    // 16 layers, and 16 with the head's.
    assert_eq!(plans[1].kv_cache / plans[0].kv_cache, 17.0 / 16.0);
    // Both stages have as many blocks as the one with less room and larger blocks.
    let printed = memory.kv_pool(8192).tokens;
    assert!(printed < target.kv_pool(8192).tokens, "{printed}");
    let table = memory.table(1, 8192).to_string();
    assert!(table.contains("weights of the drafter") && !target_table(&target).contains("drafter"), "{table}");
}

fn target_table(target: &Deployment) -> String {
    MemoryModel::new(target).table(1, 8192).to_string()
}

/// On unequal cards it is on the last, beside layers on the host on the devices, and on the host if nothing else is anywhere else.
#[test]
fn places_of_a_drafter() {
    let catalog = Catalog::embedded();
    let host = || Host::new(catalog.device("ryzen-9-7950x").unwrap(), catalog.engine("llama-cpp-cpu-2026").unwrap());
    let target = deployment("llama-3.1-8b", 1, "llama-cpp-cuda-2026").with_weights("q4_k_m".parse().unwrap());
    let drafting = Drafting::new(deployment("llama-3.2-1b", 1, "ideal").with_weights("q8_0".parse().unwrap()));
    let (large, small) = (catalog.device("rtx-4090-24gb").unwrap(), catalog.device("rtx-3070-8gb").unwrap());
    let with_it = |target: &Deployment| -> Vec<Location> {
        let memory = MemoryModel::with_drafter(target, 8, Some(&drafting));
        let plans = memory.plans(1, 8192).filter(|(_, plan)| plan.drafter_weights > Bytes::ZERO);
        plans.map(|(location, _)| location).collect()
    };
    assert_eq!(with_it(&target), [Location::Devices]);
    let unequal = target.clone().with_unequal_devices(vec![large, small]);
    assert_eq!(with_it(&unequal), [Location::Stage { stage: 2, of: 2 }]);
    let divided = |on_device| target.clone().with_host(host()).with_offload(Offload::Layers { on_device });
    assert_eq!((with_it(&divided(10)), with_it(&divided(0))), (vec![Location::Devices], vec![Location::Host]));
    // llama.cpp has a context of its own for it, with activations beside the target's.
    let activations =
        |target: &Deployment| plan(target, &drafting).activations - target.memory_plan(1, 8192).activations;
    let alone = drafting.deployment.clone().with_engine(catalog.engine("llama-cpp-cuda-2026").unwrap());
    assert_eq!(activations(&target), alone.memory_plan(1, 8192).activations);
}

/// Models known by their totals: 1 GB of weights and 32 KiB per token beside 14 GB and 512 KiB.
#[test]
fn drafters_and_targets_known_by_their_totals() {
    let totals = |params: u64, kib: f64| {
        let model = Model::from_totals("totals", Totals::dense(params, 16.0, Bytes::from_kib(kib)));
        Deployment::new(model, deployment("llama-3.1-8b", 1, "ideal").system().clone())
    };
    let target = totals(7_000_000_000, 512.0);
    let with = plan(&target, &Drafting::new(totals(500_000_000, 32.0)));
    assert_eq!((with.weights.as_gb(), with.drafter_weights.as_gb()), (14.0, 1.0));
    assert_eq!(with.kv_cache.as_kib(), 8192.0 * (512.0 + 32.0));
    // A layered head beside totals, and totals beside layers.
    let head = plan(&target, &eagle3(&target, 32_000).with_shared_embedding());
    assert_eq!(head.drafter_weights.as_bytes(), 2.0 * 424_689_664.0);
    assert_eq!(head.kv_cache.as_kib(), 8192.0 * (512.0 + 4.0));
    let beside_layers = plan(&deployment("llama-3.1-8b", 1, "vllm-2026"), &Drafting::new(totals(500_000_000, 32.0)));
    assert_eq!(
        (beside_layers.drafter_weights.as_gb(), beside_layers.kv_cache.as_kib()),
        (1.0, 8208.0 * (128.0 + 32.0))
    );
}

#[test]
fn drafters_that_cannot_be() {
    let target = deployment("llama-3.1-8b", 2, "ideal").with_tensor_parallel(1);
    let wide = Drafting::new(deployment("llama-3.2-1b", 2, "ideal"));
    assert_eq!(wide.check(&target), Err(DraftingError::TooManyDevices { devices: 2, of_stage: 1 }));
    assert_eq!(wide.check(&target.clone().with_tensor_parallel(2)), Ok(()));
    let nothing = Drafting::new(deployment("llama-3.2-1b", 1, "ideal").with_tensor_parallel(0));
    assert!(matches!(nothing.check(&target), Err(DraftingError::Deployment(_))));
    // Numbers that nobody means stay numbers.
    let plan = MemoryModel::with_drafter(&target, u64::MAX, Some(&wide)).plan(u64::MAX, u64::MAX);
    assert!(plan.needed().as_bytes().is_finite() && !plan.fits());
}

const TARGETS: [&str; 8] = [
    "llama-3.1-8b",
    "gemma-3-12b",
    "gpt-oss-20b",
    "deepseek-v2-lite",
    "qwen3.5-27b",
    "qwen3-next-80b-a3b",
    "nemotron-3-nano-30b-a3b",
    "qwen3-0.6b",
];

fn engines() -> Vec<String> {
    Catalog::embedded().engines().map(|entry| entry.load().unwrap().slug.clone()).collect()
}

prop_compose! {
    fn any_target()(model in select(&TARGETS[..]), engine in select(engines())) -> Deployment {
        deployment(model, 1, &engine)
    }
}

proptest! {
    #![proptest_config(cases(200, "tests/memory_drafter.proptest-regressions"))]

    #[test]
    fn without_drafter_and_proposals_it_is_the_plain_need(
        target in any_target(), sequences in 1u64..200, context in 1u64..200_000,
    ) {
        let (plain, with) = (MemoryModel::new(&target), MemoryModel::with_drafter(&target, 0, None));
        prop_assert_eq!(with.plan(sequences, context), target.memory_plan(sequences, context));
        prop_assert_eq!(with.kv_pool(context), target.kv_pool(context));
        prop_assert_eq!(with, plain);
    }

    #[test]
    fn more_proposals_never_need_less(
        target in any_target(), drafts in any::<bool>(), tokens in 0u64..16, more in 1u64..16, sequences in 1u64..200,
        context in 1u64..200_000,
    ) {
        let drafting = Drafting::new(deployment("llama-3.2-1b", 1, "ideal"));
        let memory = |tokens: u64| MemoryModel::with_drafter(&target, tokens, drafts.then_some(&drafting));
        let (few, many) = (memory(tokens), memory(tokens + more));
        prop_assert!(many.plan(sequences, context).needed() >= few.plan(sequences, context).needed());
        prop_assert!(many.state_per_sequence() >= few.state_per_sequence());
        prop_assert!(!many.fits(sequences, context) || few.fits(sequences, context));
    }

    #[test]
    fn a_drafter_takes_memory(
        target in any_target(), tokens in 0u64..16, sequences in 1u64..200, context in 1u64..200_000,
    ) {
        let drafting = Drafting::new(deployment("qwen3-0.6b", 1, "ideal"));
        let with = MemoryModel::with_drafter(&target, tokens, Some(&drafting));
        let without = MemoryModel::with_drafter(&target, tokens, None);
        let (plan, plain) = (with.plan(sequences, context), without.plan(sequences, context));
        prop_assert!(plan.drafter_weights > Bytes::ZERO && plan.weights == plain.weights);
        prop_assert!(plan.fixed() >= plain.fixed() + plan.drafter_weights);
        prop_assert_eq!(with.check(sequences, context).is_ok(), with.fits(sequences, context));
        if let Err(reason) = with.check(sequences, context) {
            prop_assert_eq!(reason.plan, plan);
        }
    }
}
