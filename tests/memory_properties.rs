//! What must hold of memory under every engine: monotone in what is asked, inverse questions that answer each other, suggestions that help.

mod common;

use common::cases;
use llm_roofline::deployment::{Host, Offload};
use llm_roofline::engine::Budget;
use llm_roofline::format::KvFormat;
use llm_roofline::memory::{Change, Location, MemoryModel};
use llm_roofline::model::{LayerKind, Mixer, ModelBody, Reach};
use llm_roofline::prelude::*;
use llm_roofline::request::RequestError;
use proptest::prelude::*;
use proptest::sample::select;

/// Dense, windowed, latent, hybrid and mixed models, all small enough for some device.
const MODELS: [&str; 8] = [
    "llama-3.1-8b",
    "qwen3-0.6b",
    "gemma-3-12b",
    "gpt-oss-20b",
    "qwen3-30b-a3b",
    "deepseek-v2-lite",
    "qwen3.5-27b",
    "nemotron-3-nano-30b-a3b",
];
const DEVICES: [&str; 6] =
    ["rtx-3090-24gb", "l40s-48gb", "a100-sxm-80gb", "h100-sxm-80gb", "mi300x-192gb", "m2-ultra-76c"];
const WEIGHTS: [&str; 4] = ["bf16", "fp8", "awq-int4", "q4_k_m"];

fn engines() -> Vec<String> {
    Catalog::embedded().engines().map(|entry| entry.load().unwrap().slug.clone()).collect()
}

fn deployment(model: &str, device: &str, engine: &str, weights: &str, devices: u32) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), devices).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system)
        .with_engine(catalog.engine(engine).unwrap())
        .with_weights(weights.parse().unwrap())
}

prop_compose! {
    fn any_deployment()(
        model in select(&MODELS[..]), device in select(&DEVICES[..]), engine in select(engines()),
        weights in select(&WEIGHTS[..]),
    ) -> Deployment {
        deployment(model, device, &engine, weights, 1)
    }
}

/// vLLM before 0.8 cuts prompts only beyond 32,768 tokens, so that 35,000 start where 29,000 are refused (vllm-project/vllm#10517).
fn profiles_whole_prompts(deployment: &Deployment) -> bool {
    deployment.engine().memory.whole_prompts_up_to.is_some()
}

proptest! {
    #![proptest_config(cases(200, "tests/memory_properties.proptest-regressions"))]

    #[test]
    fn longer_contexts_and_more_sequences_need_more(
        deployment in any_deployment(), sequences in 1u64..200, context in 1u64..200_000, more in 1u64..100_000,
    ) {
        let memory = MemoryModel::new(&deployment);
        let (plan, longer) = (memory.plan(sequences, context), memory.plan(sequences, context + more));
        prop_assert!(memory.plan(sequences + 1, context).needed() >= plan.needed());
        prop_assert!(longer.kv_cache >= plan.kv_cache && longer.state >= plan.state);
        if !profiles_whole_prompts(&deployment) {
            prop_assert!(longer.needed() >= plan.needed());
            prop_assert!(!memory.fits(sequences, context + more) || memory.fits(sequences, context));
        }
        prop_assert!(!memory.fits(sequences + 1, context) || memory.fits(sequences, context));
    }

    #[test]
    fn more_devices_need_less_each(deployment in any_deployment(), context in 1u64..50_000, doublings in 0u32..3) {
        let on = |devices: u32| {
            let system = deployment.system().clone().with_count(devices).unwrap();
            deployment.clone().with_system(system).with_tensor_parallel(devices)
        };
        let (some, more) = (on(1 << doublings), on(2 << doublings));
        if some.check().is_ok() && more.check().is_ok() {
            let block = more.kv_pool(context).block_bytes;
            let (some, more) = (some.memory_plan(4, context), more.memory_plan(4, context));
            prop_assert!(more.weights <= some.weights);
            // A block of a hybrid model holds a state, so that its tokens follow the devices in steps; sequences take whole blocks.
            prop_assert!(more.kv_cache <= some.kv_cache + block * 4.0);
            // Communication takes its buffers once.
            prop_assert!(more.needed() <= some.needed() + more.overhead + block * 8.0);
        }
    }

    #[test]
    fn what_was_found_fits_and_one_more_does_not(
        deployment in any_deployment(), sequences in 1u64..100, context in 1u64..100_000,
    ) {
        let memory = MemoryModel::new(&deployment);
        if let Some(most) = memory.max_sequences(context) {
            prop_assert!(most == 0 || memory.fits(most, context));
            prop_assert!(!memory.fits(most + 1, context));
        }
        if let Some(longest) = memory.max_context_tokens(sequences) {
            prop_assert!(longest == 0 || memory.fits(sequences, longest));
            prop_assert!(!memory.fits(sequences, longest + 1));
        }
    }

    #[test]
    fn suggestions_help(
        deployment in any_deployment(), sequences in 1u64..500, context in 1u64..200_000, with_host in any::<bool>(),
    ) {
        let catalog = Catalog::embedded();
        let deployment = match with_host {
            true => deployment.with_host(Host::new(
                catalog.device("ryzen-9-7950x").unwrap(),
                catalog.engine("llama-cpp-cpu-2026").unwrap(),
            )),
            false => deployment,
        };
        let Err(reason) = deployment.fit(sequences, context) else { return Ok(()) };
        prop_assert!(reason.short_by > Bytes::ZERO && reason.needed - reason.plan.capacity == reason.short_by);
        prop_assert!(reason.shortages.iter().all(|shortage| shortage.short_by <= reason.short_by));
        for suggestion in &reason.suggestions {
            let (changed, sequences, context) = suggestion.change.apply(&deployment, sequences, context);
            prop_assert!(changed.check().is_ok(), "{}", suggestion);
            let plan = changed.fit(sequences, context);
            prop_assert_eq!(plan.ok(), Some(suggestion.plan), "{}", suggestion);
        }
    }

    #[test]
    fn pools_and_plans_agree(deployment in any_deployment(), context in 1u64..100_000) {
        let budget = deployment.engine().memory.budget.as_ref().map(|rule| rule.value).unwrap_or_default();
        let memory = MemoryModel::new(&deployment);
        let pool = memory.kv_pool(context);
        prop_assert!(pool.concurrency >= 0.0 && pool.concurrency.is_finite());
        prop_assert!(pool.block_bytes * pool.blocks as f64 <= pool.memory);
        if budget != Budget::AsNeeded {
            let most = memory.max_sequences(context).unwrap();
            prop_assert!((most as f64 - pool.concurrency.floor()).abs() <= 1.0, "{most} {pool}");
        }
        // llama.cpp from June 2026 keeps a layer's quantized cache in 16 bits as well: on a card that is nearly full that may cost more than it saves.
        if deployment.engine().memory.expands_quantized_cache.is_none() {
            let eight_bits = MemoryModel::new(&deployment.with_kv(KvFormat::Fp8)).kv_pool(context);
            prop_assert!(eight_bits.tokens >= pool.tokens);
        }
    }

    #[test]
    fn numbers_of_any_size_give_numbers(deployment in any_deployment(), sequences in any::<u64>(), context in any::<u64>()) {
        let memory = MemoryModel::new(&deployment);
        let plan = memory.plan(sequences, context);
        prop_assert!(plan.needed().is_finite() && plan.utilization().is_finite() && !plan.needed().as_bytes().is_sign_negative());
        prop_assert!(memory.kv_pool(context).concurrency.is_finite());
        prop_assert!(!memory.table(sequences, context).to_string().is_empty());
    }
}

/// vllm-project/vllm#10517: 20,000, 35,000 and 45,000 tokens start on an RTX 3090, 29,000 do not. The longest context lies beyond the gap.
#[test]
fn the_longest_context_is_looked_for_beyond_a_gap() {
    let deployment = deployment("llama-3.1-8b", "rtx-3090-24gb", "vllm-2024", "bf16", 1);
    let starts = |context| MemoryModel::new(&deployment).fits(1, context);
    assert_eq!([20_000, 29_000, 35_000, 45_000].map(starts), [true, false, true, true]);
    let longest = deployment.max_context_tokens(1).unwrap();
    assert!(longest >= 45_000 && starts(longest) && !starts(longest + 1), "{longest}");
    // With more sequences than fit beyond the gap, the answer is before it.
    let longest = deployment.max_context_tokens(3).unwrap();
    assert!(longest < 32_768 && longest > 5_000, "{longest}");
}

/// sgl-project/sglang, model_executor/pool_configurator.py: the pool is what is free after loading less the share of what was free before
/// that is kept, whatever activations take of it.
#[test]
fn a_static_share_is_for_weights_and_cache_alone() {
    let deployment = deployment("llama-3.1-8b", "h100-sxm-80gb", "sglang-2026", "bf16", 1).with_memory_fraction(0.8);
    let (plan, pool) = (deployment.memory_plan(1, 4096), deployment.kv_pool(4096));
    assert!(plan.activations > Bytes::ZERO);
    let expected = (plan.visible - plan.overhead) * 0.8 - plan.weights;
    assert!((pool.memory / expected - 1.0).abs() < 1e-12, "{} for {expected}", pool.memory);
}

/// vllm-project/vllm, vllm/v1/core/kv_cache_utils.py: 10 layers of full attention beside 12 with windows are two groups of 12, not ten of one
/// and two of ten; beside 16 they are a group of ten and two of eight, padded to ten.
#[test]
fn kinds_that_are_nearly_as_frequent_form_a_group_each() {
    let catalog = Catalog::embedded();
    let blocks = |windows: usize| {
        let mut model = catalog.model("gemma-3-12b").unwrap().as_ref().clone();
        let ModelBody::Architecture(architecture) = &mut model.body else { panic!("totals only") };
        let reach = |kind: &LayerKind| match &kind.layer.mixer {
            Mixer::Attention(attention) => attention.reach,
            other => panic!("{other:?}"),
        };
        let full = architecture.layer_kinds.iter().position(|kind| reach(kind) == Reach::Full).unwrap();
        architecture.layer_order = [vec![full; 10], vec![1 - full; windows]].concat();
        let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
        let engine = catalog.engine("vllm-0.17").unwrap();
        let pool = MemoryModel::new(&Deployment::new(model, system).with_engine(engine));
        // 16 tokens, 8 heads of 256 elements, keys and values in 16 bits: 128 KiB per layer.
        pool.kv_pool_in(Bytes::from_kib(128.0) * 1200.0, 4096)
    };
    let (near, far) = (blocks(12), blocks(16));
    assert_eq!((near.blocks, near.tokens), (100, 100 / 2 * 16));
    assert_eq!((far.blocks, far.tokens), (120, 120 / 3 * 16));
}

#[test]
fn the_fewest_devices_are_the_fewest() {
    for (model, engine, weights) in [
        ("llama-3.1-70b", "vllm-2026", "bf16"),
        ("llama-3.1-405b", "sglang-2026", "fp8"),
        ("qwen3-30b-a3b", "llama-cpp-cuda-2026", "q8_0"),
        ("deepseek-v3", "vllm-2026", "fp8-block"),
    ] {
        let one = deployment(model, "h100-sxm-80gb", engine, weights, 1);
        let fewest = one.with_fewest_devices(4, 8192, 64).unwrap();
        assert!(fewest.check().is_ok() && fewest.fit(4, 8192).is_ok(), "{model}");
        let devices = fewest.devices_used();
        assert!(one.with_fewest_devices(4, 8192, devices - 1).is_none(), "{model} on fewer than {devices}");
    }
}

#[test]
fn memories_of_unequal_devices_are_not_summed() {
    let catalog = Catalog::embedded();
    let cards = ["rtx-3090-24gb", "rtx-3070-8gb"].map(|name| catalog.device(name).unwrap());
    let [large, small] = cards.clone();
    let engine = catalog.engine("llama-cpp-cuda-2026").unwrap();
    let model = catalog.model("llama-3.1-70b").unwrap();
    let together = Deployment::new(model, System::new(large.clone(), 1).unwrap()).with_engine(engine);
    let together = together.with_weights("iq3_xxs".parse().unwrap()).with_unequal_devices(cards.to_vec());
    // 27 GB in 32 GB of memory: what counts is each card's own.
    let memory = MemoryModel::new(&together);
    let plans: Vec<_> = memory.plans(1, 4096).collect();
    let [(first, on_large), (second, on_small)] = plans[..] else { panic!("{plans:?}") };
    assert_eq!((first, second), (Location::Stage { stage: 1, of: 2 }, Location::Stage { stage: 2, of: 2 }));
    assert_eq!((on_large.visible, on_small.visible), (large.usable_memory(), small.usable_memory()));
    // Layers are dealt by memory, so weights are too, but for the output head on the last card.
    assert!((on_large.weights / on_small.weights - large.usable_memory() / small.usable_memory()).abs() < 0.5);
    let swapped = together.clone().with_layer_split(vec![1.0, 1.0]);
    let reason = swapped.fit(1, 4096).unwrap_err();
    assert_eq!(reason.location, Location::Stage { stage: 2, of: 2 });
    assert_eq!(reason.shortages.len(), 1);
}

/// ggml-org/llama.cpp#15077: `--n-cpu-moe` moves the experts of the first layers to main memory, nothing else.
#[test]
fn what_leaves_the_device_is_on_the_host() {
    let catalog = Catalog::embedded();
    let host = Host::new(catalog.device("ryzen-9-7950x").unwrap(), catalog.engine("llama-cpp-cpu-2026").unwrap());
    let whole = deployment("qwen3-30b-a3b", "rtx-3090-24gb", "llama-cpp-cuda-2026", "q4_k_m", 1).with_host(host);
    let all = whole.memory_plan(1, 4096);
    let split = whole.with_offload(Offload::Experts { layers: 20 });
    let memory = MemoryModel::new(&split);
    let plans: Vec<_> = memory.plans(1, 4096).collect();
    let [(Location::Devices, device), (Location::Host, host)] = plans[..] else { panic!("{plans:?}") };
    assert_eq!((device.kv_cache, host.kv_cache), (all.kv_cache, Bytes::ZERO));
    // The token embeddings are on the host anyway.
    let embeddings = host.weights + device.weights - all.weights;
    assert!(embeddings > Bytes::from_mb(150.0) && embeddings < Bytes::from_mb(260.0), "{embeddings}");
}

#[test]
fn what_does_not_fit_says_so_before_any_timing() {
    let deployment = deployment("llama-3.1-70b", "rtx-3090-24gb", "llama-cpp-cuda-2026", "q4_k_m", 1);
    let model = StepModel::compile(&deployment).unwrap();
    let error = model.request(&Request::new(1000, 100)).unwrap_err();
    let RequestError::DoesNotFit(reason) = &error else { panic!("{error}") };
    assert!(
        error.to_string().contains("short by") && error.to_string().contains("it would fit with weights in"),
        "{error}"
    );
    let smaller = reason.suggestions.iter().find(|suggestion| matches!(suggestion.change, Change::Weights(_))).unwrap();
    let (changed, ..) = smaller.change.apply(&deployment, 1, 1100);
    assert!(StepModel::compile(&changed).unwrap().request(&Request::new(1000, 100)).is_ok());
}

#[test]
fn nearly_full_is_a_warning() {
    let deployment = deployment("llama-3.1-8b", "rtx-3090-24gb", "llama-cpp-cuda-2026", "f16", 1);
    let most = deployment.max_context_tokens(1).unwrap();
    assert!(deployment.memory_plan(1, most).warning().is_some());
    assert_eq!(deployment.memory_plan(1, 1024).warning(), None);
    let model = StepModel::compile(&deployment).unwrap();
    let answer = model.request(&Request::new(most - 100, 100)).unwrap();
    let summary = answer.summary(&model);
    assert!(summary.to_string().contains("% of the memory that may be used"), "{summary}");
}

#[test]
fn decode_falls_off_a_cliff_when_weights_stream() {
    let deployment = deployment("llama-3.1-70b", "rtx-3090-24gb", "llama-cpp-cuda-2026", "q4_k_m", 1);
    let model = StepModel::compile(&deployment).unwrap();
    let disk = BytesPerSecond::from_gb_per_second(3.0);
    let exhausted = model.exhausted(&Request::new(500, 100), Some(disk)).unwrap().unwrap();
    let [over_pcie, from_disk] = exhausted.streamed[..] else { panic!("{exhausted}") };
    // What is missing arrives over the link in every step, at best at its full bandwidth; embeddings, 1.4 % of the weights, are only looked up.
    let missing = over_pcie.weights * 0.98;
    let link = deployment.system().device().host_link().unwrap().bandwidth.value;
    assert!(over_pcie.tpot >= missing / link && from_disk.tpot >= missing / disk, "{exhausted}");
    assert!(over_pcie.slowdown > 10.0 && from_disk.slowdown > over_pcie.slowdown * 3.0, "{exhausted}");
    assert!(model.exhausted(&Request::new(500, 100).with_batch(1), None).unwrap().is_some());
}

/// What the host holds already would be brought back to the devices by streaming: nothing is said of it.
#[test]
fn what_lives_elsewhere_already_is_not_streamed() {
    let catalog = Catalog::embedded();
    let host = Host::new(catalog.device("ryzen-9-7950x").unwrap(), catalog.engine("llama-cpp-cpu-2026").unwrap());
    let whole = deployment("llama-3.1-70b", "rtx-3090-24gb", "llama-cpp-cuda-2026", "q4_k_m", 1).with_host(host);
    let most = whole.with_offload(Offload::Layers { on_device: 75 });
    let exhausted = StepModel::compile(&most).unwrap().exhausted(&Request::new(500, 100), None).unwrap().unwrap();
    assert!(exhausted.streamed.is_empty() && exhausted.reason.short_by > Bytes::ZERO, "{exhausted}");
}

#[test]
fn engines_that_preempt_run_large_batches_in_waves() {
    let deployment = deployment("llama-3.1-8b", "rtx-3090-24gb", "vllm-2024", "bf16", 1);
    let model = StepModel::compile(&deployment).unwrap();
    let request = Request::new(1000, 1000).with_batch(64);
    let exhausted = model.exhausted(&request, None).unwrap().unwrap();
    let waves = exhausted.waves.unwrap();
    assert_eq!(Some(waves.at_once), deployment.max_sequences(2000));
    assert!(waves.admitted > waves.at_once && waves.preempted == waves.admitted - waves.at_once);
    let fitting = model.request(&request.with_batch(waves.at_once)).unwrap();
    assert!(waves.e2e_last > fitting.e2e * (64 / waves.at_once) as f64);
    assert!(model.exhausted(&request.with_batch(waves.at_once), None).unwrap().is_none());
}
