//! Layouts of a model over devices: what each holds, what adds up, what is refused.

mod common;

use common::{Setup, any_setup, attention, cases, dense, layer};
use llm_roofline::deployment::DeploymentError;
use llm_roofline::format::TensorClass;
use llm_roofline::memory::{Location, MemoryModel, MemoryPlan};
use llm_roofline::model::{Architecture, FeedForward, Mixer, Moe, Reach, Recurrent};
use llm_roofline::prelude::*;
use proptest::prelude::*;

fn close(a: Bytes, b: Bytes) -> bool {
    (a.as_bytes() - b.as_bytes()).abs() <= 1e-9 * b.as_bytes().abs()
}

/// On more devices than any test needs, on one of them at first.
fn on_many(setup: &Setup) -> Deployment {
    Setup { tensor_parallel: 1 << 10, ..setup.clone() }.deployment().with_tensor_parallel(1)
}

fn catalog(model: &str, devices: u32) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), devices).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system).with_tensor_parallel(1)
}

/// Layers of full attention over many small experts, no vectors.
fn experts(layers: u64, experts: u64) -> Architecture {
    let moe = Moe {
        experts,
        experts_per_token: 2,
        intermediate: 256,
        gated: true,
        shared_intermediate: Some(512),
        latent_size: None,
        vector_params_per_expert: 0,
        shared_gate: false,
    };
    let layer = layer(Mixer::Attention(attention(8, 8, 64, Reach::Full)), FeedForward::Moe(moe), 0);
    let layers = (0..layers).map(|_| ("moe".to_string(), layer.clone()));
    let mut architecture = Architecture::from_layers(512, 1000, 1 << 20, layers);
    architecture.vector_params = 0;
    architecture
}

fn bytes_of(setup: &Setup, class: impl Fn(TensorClass) -> bool) -> Bytes {
    let format = setup.weights.parse().unwrap();
    let by_class = setup.architecture.weight_bytes_by_class(&format);
    TensorClass::ALL.into_iter().zip(by_class).filter(|(of, _)| class(*of)).map(|(_, bytes)| bytes).sum()
}

fn is_expert(class: TensorClass) -> bool {
    matches!(class, TensorClass::ExpertGate | TensorClass::ExpertUp | TensorClass::ExpertDown)
}

proptest! {
    #![proptest_config(cases(64, "tests/parallelism.proptest-regressions"))]

    #[test]
    fn degrees_of_one_change_nothing(setup in any_setup()) {
        let plain = setup.deployment();
        let ones = plain.clone()
            .with_pipeline_parallel(1)
            .with_expert_parallel(1)
            .with_data_parallel_attention(1)
            .with_replicas(1);
        prop_assert_eq!(plain.memory_plan(7, 1000), ones.memory_plan(7, 1000));
        let alone = Setup { tensor_parallel: 1, ..setup.clone() };
        let one_of_many = on_many(&setup);
        prop_assert_eq!(alone.deployment().memory_plan(7, 1000), one_of_many.memory_plan(7, 1000));
        let model = StepModel::compile(&one_of_many).unwrap();
        prop_assert_eq!(alone.model().decode_step(3, 100), model.decode_step(3, 100));
        prop_assert_eq!(plain.devices_used(), setup.tensor_parallel);
    }

    #[test]
    fn stages_hold_every_weight_once(setup in any_setup(), stages in 1u32..9) {
        let whole = on_many(&setup);
        let stages = stages.min(setup.architecture.layers() as u32);
        let pipeline = whole.clone().with_pipeline_parallel(stages);
        prop_assert!(pipeline.check().is_ok());
        let each = pipeline.weight_bytes_of_stages();
        let twice = setup.architecture.tied_embeddings && stages > 1;
        let embedding = if twice { bytes_of(&setup, |class| class == TensorClass::TokenEmbedding) } else { Bytes::ZERO };
        prop_assert_eq!(each.len() as u32, stages);
        prop_assert!(close(each.iter().copied().sum(), whole.weight_bytes_per_device() + embedding));
        let largest = each.into_iter().reduce(Bytes::max).unwrap();
        let memory = MemoryModel::new(&pipeline);
        prop_assert_eq!(memory.weights(), largest);
        // All stages together cache what the whole model does.
        let parts: Vec<MemoryPlan> = memory.plans(3, 500).map(|(_, plan)| plan).collect();
        let all = whole.memory_plan(3, 500);
        prop_assert!(close(parts.iter().map(|plan| plan.kv_cache).sum(), all.kv_cache));
        prop_assert!(close(parts.iter().map(|plan| plan.state).sum(), all.state));
    }

    #[test]
    fn stages_have_equal_layers_but_for_one(layers in 1u64..100, stages in 1u32..20) {
        let stages = stages.min(layers as u32);
        let pipeline = on_many(&Setup::new(dense(layers, 256, 2))).with_pipeline_parallel(stages);
        let sizes = pipeline.layers_of_stages();
        prop_assert_eq!(sizes.iter().sum::<u64>(), layers);
        prop_assert_eq!(sizes.iter().max().copied(), pipeline.layers_per_stage());
        prop_assert!(sizes.iter().all(|&size| size == layers / u64::from(stages) || size == layers.div_ceil(u64::from(stages))));
    }

    #[test]
    fn ranks_hold_dense_parts_each_and_experts_together(doublings in 0u32..4, weights in prop::sample::select(common::QUANTIZED.to_vec())) {
        let setup = Setup { weights, ..Setup::new(experts(3, 16)) };
        let ranks = 1 << doublings;
        let (of_experts, of_others) = (bytes_of(&setup, is_expert), bytes_of(&setup, |class| !is_expert(class)));
        let attention = on_many(&setup).with_data_parallel_attention(ranks);
        for expert_parallel in (0..=doublings).map(|doublings| 1 << doublings) {
            // Whole experts or slices: every device has its share.
            let each = attention.clone().with_expert_parallel(expert_parallel).weight_bytes_per_device();
            prop_assert!(close(each, of_others + of_experts / f64::from(ranks)), "{expert_parallel}");
        }
        // The same devices with tensor parallelism hold a slice of everything but the router.
        let router = bytes_of(&setup, |class| class == TensorClass::Router);
        let sliced = on_many(&setup).with_tensor_parallel(8).with_expert_parallel(ranks).weight_bytes_per_device();
        prop_assert!(close(sliced * 8.0, of_others + of_experts + router * 7.0));
    }
}

/// vLLM, vllm/distributed/utils.py, `get_pp_indices`: the rest goes to the stages before the last, evaluated.
#[test]
fn layers_are_divided_as_vllm_does() {
    let of =
        |layers, stages| on_many(&Setup::new(dense(layers, 256, 2))).with_pipeline_parallel(stages).layers_of_stages();
    assert_eq!(of(32, 4), [8, 8, 8, 8]);
    assert_eq!(of(22, 4), [5, 6, 6, 5]);
    assert_eq!(of(7, 3), [2, 3, 2]);
    assert_eq!(of(5, 3), [2, 2, 1]);
    assert_eq!(of(3, 2), [2, 1]);
    assert_eq!(of(43, 10), [4, 4, 4, 4, 4, 4, 5, 5, 5, 4]);
}

/// DeepSeek-V3 technical report (arXiv 2412.19437), section 3.4.1: prefill units of 4 nodes with 32 GPUs, attention in TP4 with DP8, MoE in
/// EP32, each GPU with 8 of the 256 experts (the redundant ninth left out here). Experts of 3 matrices of 7168 x 2048 in 58 layers.
#[test]
fn deepseek_v3_prefill_unit() {
    let unit =
        catalog("deepseek-v3", 32).with_tensor_parallel(4).with_data_parallel_attention(8).with_expert_parallel(32);
    unit.check().unwrap();
    assert_eq!((unit.devices_per_stage(), unit.devices_used()), (32, 32));
    let sliced = unit.clone().with_expert_parallel(1);
    assert!(close(unit.weight_bytes_per_device(), sliced.weight_bytes_per_device()));
    let weights = unit.clone().with_weights("bits-8".parse().unwrap());
    let more = weights.clone().with_data_parallel_attention(4).with_expert_parallel(16).weight_bytes_per_device();
    // Half the devices: 8 more experts on each.
    let expert = Bytes::from_bytes(3.0 * 7168.0 * 2048.0);
    assert!(close(more - weights.weight_bytes_per_device(), expert * (8.0 * 58.0)));
}

#[test]
fn a_device_with_one_expert_more_decides() {
    let deployment =
        |ways: u32| on_many(&Setup::new(experts(1, 10))).with_data_parallel_attention(ways).with_expert_parallel(ways);
    let of_experts = |ways| {
        let others = bytes_of(&Setup::new(experts(1, 10)), |class| !is_expert(class));
        (deployment(ways).weight_bytes_per_device() - others).as_bytes()
    };
    // 10 experts on 4 ways: 3, 3, 2, 2.
    assert!((of_experts(4) / of_experts(1) - 0.3).abs() < 1e-9);
}

#[test]
fn sequences_are_spread_over_ranks_and_layers_over_stages() {
    let setup = Setup { capacity: Bytes::from_gb(10.0), ..Setup::new(dense(10, 1024, 8)) };
    let one = on_many(&setup);
    let most = |plans: Vec<MemoryPlan>| plans.iter().map(|plan| plan.kv_cache).fold(Bytes::ZERO, Bytes::max);
    let cache = |deployment: &Deployment, sequences| {
        most(MemoryModel::new(deployment).plans(sequences, 1000).map(|(_, plan)| plan).collect())
    };
    let ranks = one.clone().with_data_parallel_attention(4);
    assert_eq!(cache(&ranks, 8), cache(&one, 2));
    assert_eq!(cache(&ranks, 9), cache(&one, 3));
    assert_eq!(ranks.max_sequences(1000), one.max_sequences(1000).map(|sequences| 4 * sequences));
    assert_eq!(ranks.memory_plan(1, 1).weights, one.memory_plan(1, 1).weights);
    // 10 layers in 4 stages: 3 in the largest.
    let stages = one.clone().with_pipeline_parallel(4);
    assert!(close(cache(&stages, 1), cache(&one, 1) * 0.3));
    assert!(stages.max_sequences(1000) > one.max_sequences(1000));
    // Replicas share nothing.
    let replicas = one.clone().with_replicas(3);
    assert_eq!((replicas.memory_plan(5, 1000), replicas.devices_used()), (one.memory_plan(5, 1000), 3));
}

/// One stage has the cache, the other most of the states: each is accounted for by itself.
#[test]
fn each_stage_of_a_hybrid_has_needs_of_its_own() {
    let attention = layer(Mixer::Attention(attention(8, 8, 64, Reach::Full)), FeedForward::None, 0);
    let scan = Recurrent::Mamba2 { heads: 16, head_dim: 32, groups: 1, state: 64, conv_kernel: 4 };
    let recurrent = layer(Mixer::Recurrent(scan), FeedForward::None, 0);
    let order = [&attention, &recurrent, &recurrent, &recurrent];
    let layers = order.map(|layer| ("layer".to_string(), layer.clone()));
    let one = on_many(&Setup::new(Architecture::from_layers(512, 1000, 1 << 20, layers)));
    let all = one.memory_plan(1, 100);
    let two = one.with_pipeline_parallel(2);
    let memory = MemoryModel::new(&two);
    let stages: Vec<(Location, MemoryPlan)> = memory.plans(1, 100).collect();
    let [(first, with_cache), (second, without)] = stages[..] else { panic!("{stages:?}") };
    assert_eq!((first, second), (Location::Stage { stage: 1, of: 2 }, Location::Stage { stage: 2, of: 2 }));
    assert_eq!((with_cache.kv_cache, without.kv_cache), (all.kv_cache, Bytes::ZERO));
    assert!(close(with_cache.state, all.state * (1.0 / 3.0)) && close(without.state, all.state * (2.0 / 3.0)));
    assert_eq!(two.weight_bytes_of_stages(), [with_cache.weights, without.weights]);
    assert_eq!(two.memory_plan(1, 100), if with_cache.needed() > without.needed() { with_cache } else { without });
}

#[test]
fn models_known_by_their_totals_are_divided_evenly() {
    let model = Model::from_totals("70B", Totals::dense(70_000_000_000, 8.0, Bytes::from_kib(320.0)));
    let system = System::new(Catalog::embedded().device("h100-sxm-80gb").unwrap(), 8).unwrap();
    let deployment = Deployment::new(model, system).with_tensor_parallel(2).with_pipeline_parallel(2);
    deployment.check().unwrap();
    assert_eq!(deployment.weight_bytes_per_device().as_gb(), 17.5);
    assert_eq!(deployment.memory_plan(1, 1).kv_cache.as_kib(), 80.0);
    assert_eq!(deployment.weight_bytes_of_stages().len(), 2);
    assert_eq!((deployment.layers_per_stage(), deployment.layers_of_stages()), (None, vec![]));
    let refused = deployment.with_expert_parallel(2).check().unwrap_err();
    assert_eq!(refused, DeploymentError::NoExperts { expert_parallel: 2 });
}

#[test]
fn layouts_that_no_engine_could_run_are_refused() {
    let (llama, mixtral) = (catalog("llama-3.1-8b", 8), catalog("mixtral-8x7b", 16));
    for (key, deployment) in [
        ("pipeline_parallel", llama.clone().with_pipeline_parallel(0)),
        ("expert_parallel", llama.clone().with_expert_parallel(0)),
        ("data_parallel_attention", llama.clone().with_data_parallel_attention(0)),
        ("replicas", llama.clone().with_replicas(0)),
    ] {
        let error = deployment.check().unwrap_err();
        assert_eq!(error, DeploymentError::NoDegree { key });
        assert_eq!(error.to_string(), format!("{key} is 0, expected at least 1"));
        assert!(deployment.memory_plan(1, 1).needed().is_finite(), "{key}");
    }
    let message = |deployment: Deployment| deployment.check().unwrap_err().to_string();
    assert_eq!(
        message(llama.clone().with_tensor_parallel(4).with_pipeline_parallel(2).with_replicas(2)),
        "tensor parallelism 4 x pipeline parallelism 2 x data-parallel attention 1 x 2 replica(s) is 16 devices, \
         the system has 8"
    );
    let huge =
        llama.clone().with_pipeline_parallel(u32::MAX).with_replicas(u32::MAX).with_data_parallel_attention(u32::MAX);
    assert!(matches!(huge.check(), Err(DeploymentError::LayoutTooLarge { .. })));
    assert!(huge.memory_plan(1, 1).needed().is_finite());
    assert_eq!(
        message(catalog("llama-3.1-8b", 64).with_pipeline_parallel(33)),
        "pipeline parallelism 33 for 32 layers, expected at most one stage per layer"
    );
    let without = llama.clone().with_data_parallel_attention(2).with_expert_parallel(2).check();
    assert_eq!(without, Err(DeploymentError::NoExperts { expert_parallel: 2 }));
    let odd = mixtral.clone().with_tensor_parallel(4).with_expert_parallel(3).check();
    assert_eq!(odd, Err(DeploymentError::ExpertParallelDoesNotDivide { expert_parallel: 3, group: 4 }));
    assert_eq!(
        message(mixtral.clone().with_data_parallel_attention(16).with_expert_parallel(16)),
        "expert parallelism 16 for the 8 experts of layer kind `full_moe`, expected at most 8"
    );
    mixtral.with_tensor_parallel(2).with_data_parallel_attention(8).with_expert_parallel(8).check().unwrap();
    // Heads are cut over tensor parallelism only.
    llama.with_tensor_parallel(2).with_data_parallel_attention(4).check().unwrap();
}

#[test]
fn supposed_links_are_named_for_groups_and_stages() {
    let links = |deployment: Deployment| -> Vec<String> {
        deployment.assumptions().into_iter().filter(|assumption| assumption.contains("linked by")).collect()
    };
    let over_nodes = catalog("llama-3.1-70b", 16).with_tensor_parallel(8).with_pipeline_parallel(2);
    let supposed = links(over_nodes.clone());
    assert_eq!(supposed.len(), 1, "{supposed:?}");
    assert!(supposed[0].starts_with("pipeline stages are linked by network of 50.0 GB/s"), "{supposed:?}");
    assert!(links(over_nodes.with_tensor_parallel(4)).is_empty());
}

#[test]
fn flash_attention_is_left_to_the_engine_unless_said() {
    let deployment = catalog("llama-3.1-8b", 1);
    assert!(deployment.flash_attention());
    assert!(!deployment.with_flash_attention(false).flash_attention());
}
