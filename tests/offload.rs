//! Models in several memories: layers and experts on the host, weights and cache streamed, unequal devices.

use llm_roofline::deployment::{DeploymentError, Host, Offload, Store};
use llm_roofline::prelude::*;
use llm_roofline::step::Explanation;
use std::sync::Arc;

const DENSE: &str = "qwen2.5-14b";
const MOE: &str = "qwen3-30b-a3b";

fn device(name: &str) -> Arc<Device> {
    Catalog::embedded().device(name).unwrap()
}

fn engine(name: &str) -> Arc<Engine> {
    Catalog::embedded().engine(name).unwrap()
}

fn host() -> Host {
    Host::new(device("ryzen-9-7950x"), engine("llama-cpp-cpu-2026"))
}

/// On one graphics card, with a host beside it.
fn on(card: impl Into<Arc<Device>>, model: &str) -> Deployment {
    Deployment::new(Catalog::embedded().model(model).unwrap(), System::new(card, 1).unwrap())
        .with_weights("q4_k_m".parse().unwrap())
        .with_engine(engine("llama-cpp-cuda-2026"))
        .with_host(host())
}

fn base(model: &str) -> Deployment {
    on(device("rtx-4090-24gb"), model)
}

fn layers(on_device: u64) -> Offload {
    Offload::Layers { on_device }
}

fn compiled(deployment: &Deployment) -> StepModel {
    StepModel::compile(deployment).unwrap()
}

fn decode(deployment: &Deployment) -> Seconds {
    compiled(deployment).decode_step(1, 1000).total()
}

fn close(a: Seconds, b: Seconds) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

fn explained(deployment: &Deployment, load: impl Fn(&mut StepLoad)) -> Explanation {
    let model = compiled(deployment);
    let mut step = model.load();
    load(&mut step);
    model.explain(&step)
}

#[test]
fn all_layers_on_the_device_is_no_offload() {
    for model in [DENSE, MOE, "gemma-3-27b", "qwen3-next-80b-a3b"] {
        let none = base(model);
        let (all, none) = (compiled(&none.clone().with_offload(layers(999))), compiled(&none));
        assert_eq!(all.decode_step(3, 2000), none.decode_step(3, 2000), "{model}");
        let request = Request::new(3000, 20);
        assert_eq!(all.prefill(&request), none.prefill(&request), "{model}");
    }
}

#[test]
fn no_layer_on_the_device_is_the_host_alone() {
    for model in [DENSE, MOE] {
        let on_host = base(model).with_offload(layers(0));
        let alone = Deployment::new(on_host.model().clone(), System::new(host().device().clone(), 1).unwrap())
            .with_weights("q4_k_m".parse().unwrap())
            .with_engine(host().engine().clone());
        assert_eq!(compiled(&on_host).decode_step(2, 500), compiled(&alone).decode_step(2, 500), "{model}");
    }
}

#[test]
fn every_layer_moved_to_the_faster_device_helps_decoding() {
    for model in [DENSE, MOE] {
        let times: Vec<Seconds> = (0..=49).map(|n| decode(&base(model).with_offload(layers(n)))).collect();
        assert!(times.is_sorted_by(|slower, faster| faster < slower), "{model}: {times:?}");
        let experts: Vec<Seconds> =
            (0..=48).map(|layers| decode(&base(MOE).with_offload(Offload::Experts { layers }))).collect();
        assert!(experts.is_sorted_by(|faster, slower| faster < slower), "{experts:?}");
    }
}

/// llama.cpp counts from the end, and the output head is the last of `layers + 1`: 1 of 29 puts an output layer of 80.60 MiB on the device
/// (gpustack/gguf-parser-go#42).
#[test]
fn the_output_head_is_the_first_to_move_to_the_device() {
    let groups = |on_device| {
        let explanation = explained(&base(DENSE).with_offload(layers(on_device)), |load| load.add_decode(100, 1, 1.0));
        let count = |group: &str| {
            let of_group = |operator: &&llm_roofline::step::OperatorCost| &*operator.group == group;
            explanation.operators.iter().find(of_group).map(|operator| operator.count)
        };
        ["full_dense on host", "full_dense", "output on host", "output"].map(count)
    };
    assert_eq!(groups(0), [Some(48.0), None, Some(1.0), None]);
    assert_eq!(groups(1), [Some(48.0), None, None, Some(1.0)]);
    assert_eq!(groups(2), [Some(47.0), Some(1.0), None, Some(1.0)]);
    assert_eq!(groups(49), [None, Some(48.0), None, Some(1.0)]);
    assert_eq!(base(DENSE).with_offload(layers(2)).layers_of_stages(), [1]);
}

#[test]
fn no_place_reads_faster_than_its_memory() {
    let offloads = [layers(0), layers(20), Offload::Experts { layers: 30 }];
    for (offload, sequences) in offloads.into_iter().flat_map(|offload| [(offload, 1.0), (offload, 16.0)]) {
        let explanation = explained(&base(MOE).with_offload(offload), |load| load.add_decode(2000, 1, sequences));
        for (on_host, bandwidth) in [(true, host().device().bandwidth()), (false, device("rtx-4090-24gb").bandwidth())]
        {
            let there = |operator: &&llm_roofline::step::OperatorCost| operator.group.ends_with(" on host") == on_host;
            let operators = || explanation.operators.iter().filter(there);
            let time: Seconds = operators().map(|operator| operator.time).sum();
            let bytes: Bytes = operators().map(|operator| operator.work.bytes).sum();
            assert!(time >= bytes / bandwidth, "{offload:?}, host {on_host}: {time} for {bytes}");
        }
    }
}

#[test]
fn experts_on_the_host_are_between_both_extremes() {
    let on_device = decode(&base(MOE));
    let experts_on_host = decode(&base(MOE).with_offload(Offload::Experts { layers: 99 }));
    let all_on_host = decode(&base(MOE).with_offload(layers(0)));
    assert!(on_device < experts_on_host && experts_on_host < all_on_host);
}

#[test]
fn explanations_of_divided_models_sum_to_the_cost() {
    let unequal = vec![device("rtx-4090-24gb"), device("rtx-3090-24gb")];
    let stream = Offload::Stream { weights: Bytes::from_gb(4.0), cache_share: 0.5, from: Store::Host };
    let deployments = [
        base(MOE).with_offload(layers(0)),
        base(MOE).with_offload(layers(30)),
        base(MOE).with_offload(Offload::Experts { layers: 20 }),
        base(MOE).with_offload(stream),
        base("gemma-3-27b").with_offload(stream),
        base(MOE).with_unequal_devices(unequal.clone()),
        base("deepseek-v3").with_unequal_devices(unequal).with_offload(Offload::Experts { layers: 50 }),
    ];
    for deployment in deployments {
        let model = compiled(&deployment);
        let [mut one, mut many, mut prompt, mut mixed] = [model.load(); 4];
        one.add_decode(1000, 1, 1.0);
        many.add_decode(3000, 1, 64.0);
        prompt.add_prefill(0, 500, true);
        mixed.add_decode(500, 1, 7.0);
        mixed.add_prefill(1000, 20, false);
        for load in [one, many, prompt, mixed] {
            let (cost, explanation) = (model.cost(&load), model.explain(&load));
            assert!(close(explanation.total, cost.total()), "{:?}", deployment.offload());
            for class in OperatorClass::ALL {
                let of_class = explanation.operators.iter().filter(|operator| operator.class == class);
                let time: Seconds = of_class.map(|operator| operator.time).sum();
                assert!((time - cost.time(class)).as_seconds().abs() < 1e-12 + 1e-9 * time.as_seconds(), "{class}");
            }
            for operator in &explanation.operators {
                assert!(operator.efficiency() <= 1.0 + 1e-9, "{}: {}", operator.group, operator.name);
            }
            let bounds = [Bound::Compute, Bound::Memory, Bound::Interconnect, Bound::Overhead];
            assert!(close(bounds.into_iter().map(|bound| cost.bound_time(bound)).sum(), cost.total()));
        }
        for sequences in [1, 40] {
            let one_by_one: Seconds = (0..300).map(|step| model.decode_run(sequences, 900 + step, 1).total()).sum();
            assert!(close(model.decode_run(sequences, 900, 300).total(), one_by_one));
            assert!(close(model.decode_run(sequences, 900, 1).total(), model.decode_step(sequences, 900).total()));
        }
    }
}

/// Weights of 40 GB on a card of 24 GB: decoding is tens of times slower than if they fitted, and the link decides.
#[test]
fn streaming_weights_is_a_cliff() {
    let fits = base("llama-3.1-70b");
    let weights = Bytes::from_gb(22.0);
    let stream = |from| fits.clone().with_offload(Offload::Stream { weights, cache_share: 0.0, from });
    let over_link = compiled(&stream(Store::Host)).decode_step(1, 1000);
    let link = device("rtx-4090-24gb").host_link().unwrap().bandwidth.value;
    // The embeddings are not read.
    assert!(over_link.total() > weights * 0.95 / link);
    assert!(over_link.total() > decode(&fits) * 15.0);
    assert_eq!(over_link.bound(), Bound::Interconnect);
    let bandwidth = BytesPerSecond::from_gb_per_second(5.0);
    let from_disk = decode(&stream(Store::Storage { bandwidth }));
    assert!(from_disk > weights * 0.95 / bandwidth && from_disk > over_link.total());
}

#[test]
fn of_streamed_experts_only_those_in_use_are_read() {
    let all = base(MOE).with_offload(Offload::Stream {
        weights: compiled(&base(MOE)).weight_bytes_per_device(),
        cache_share: 0.0,
        from: Store::Host,
    });
    let link = device("rtx-4090-24gb").host_link().unwrap().bandwidth.value;
    let time = |sequences| compiled(&all).decode_step(sequences, 100).time(OperatorClass::Collective);
    let whole = compiled(&base(MOE)).weight_bytes_per_device() / link;
    // 3.3 of 30.5 billion parameters are active per token.
    assert!(time(1) > whole * 0.1 && time(1) < whole * 0.2, "{} of {whole}", time(1));
    assert!(time(8) > time(1) * 3.0);
}

#[test]
fn a_cache_in_main_memory_arrives_over_the_link() {
    let stream = Offload::Stream { weights: Bytes::ZERO, cache_share: 1.0, from: Store::Host };
    let (model, here) = (compiled(&base("llama-3.1-8b").with_offload(stream)), compiled(&base("llama-3.1-8b")));
    let link = device("rtx-4090-24gb").host_link().unwrap().bandwidth.value;
    // 128 KiB per token.
    let (cost, context) = (model.decode_step(4, 100_000), 100_001.0);
    assert!(cost.time(OperatorClass::Collective) >= Bytes::from_kib(128.0) * (4.0 * context) / link);
    assert!(cost.total() > here.decode_step(4, 100_000).total() * 10.0);
    assert_eq!(cost.bound(), Bound::Interconnect);
}

/// llama.cpp copies weights of the host for batches of 32 tokens and more, once per step.
#[test]
fn prompts_wait_for_the_weights_of_the_host_once_per_step() {
    let model = compiled(&base(DENSE).with_offload(layers(1)));
    let step = |tokens| {
        let mut load = model.load();
        load.add_prefill(0, tokens, false);
        model.cost(&load)
    };
    assert_eq!(step(31).time(OperatorClass::Collective).as_millis().round(), 0.0);
    let link = device("rtx-4090-24gb").host_link().unwrap().bandwidth.value;
    // 48 layers of 14.8 billion parameters at 4.5 bits and more, without embeddings and head.
    let copied = step(32).time(OperatorClass::Collective);
    assert!(copied > Bytes::from_gb(7.2) / link && copied < Bytes::from_gb(8.2) / link / 0.85, "{copied}");
    assert_eq!(step(512).bound(), Bound::Interconnect);
    assert!(step(512).total() < step(32).total() * 2.0);
    // Without a device to copy to, the processor would take far longer.
    let alone = Deployment::new(model.deployment().model().clone(), System::new(host().device().clone(), 1).unwrap());
    let alone = compiled(&alone.with_weights("q4_k_m".parse().unwrap()).with_engine(host().engine().clone()));
    let mut load = alone.load();
    load.add_prefill(0, 512, false);
    assert!(alone.cost(&load).total() > step(512).total() * 4.0);
}

#[test]
fn two_equal_devices_are_a_pipeline_of_two() {
    for model in [DENSE, MOE] {
        let pipeline = base(model).with_system(System::new(device("rtx-3090-24gb"), 2).unwrap());
        let pipeline = pipeline.with_tensor_parallel(1).with_pipeline_parallel(2);
        let one_by_one = base(model).with_unequal_devices(vec![device("rtx-3090-24gb"); 2]);
        let (one, two) = (compiled(&one_by_one), compiled(&pipeline));
        assert!(close(one.decode_step(1, 1000).total(), two.decode_step(1, 1000).total()), "{model}");
    }
}

/// llama.cpp, `load_tensors`: layer `i` goes to the first device whose cumulative share exceeds `i / 33`.
#[test]
fn layers_follow_the_memory_of_each_device() {
    let sized = |gigabytes: f64| {
        let mut profile = device("rtx-3090-24gb").as_ref().clone().into_profile();
        profile.memory.usable = None;
        profile.memory.capacity.value = Bytes::from_gb(gigabytes);
        Arc::new(Device::new(profile).unwrap())
    };
    let split = |devices: Vec<f64>| base("llama-3.1-8b").with_unequal_devices(devices.into_iter().map(sized).collect());
    // 24/33 < 3/4 <= 25/33.
    assert_eq!(split(vec![24.0, 8.0]).layers_of_stages(), [25, 7]);
    assert_eq!(split(vec![8.0, 24.0]).layers_of_stages(), [9, 23]);
    assert_eq!(split(vec![24.0, 24.0]).layers_of_stages(), [17, 15]);
    assert_eq!(split(vec![24.0, 8.0]).with_layer_split(vec![1.0, 1.0]).layers_of_stages(), [17, 15]);
    assert_eq!(split(vec![24.0, 8.0]).with_layer_split(vec![0.0, 1.0]).layers_of_stages(), [0, 32]);
    // With the first 20 layers on the host, 13 slots remain: 9/13 < 3/4 <= 10/13.
    assert_eq!(split(vec![24.0, 8.0]).with_offload(layers(13)).layers_of_stages(), [10, 2]);
}

#[test]
fn a_slower_second_device_costs_its_share() {
    let with = |second: &str| base(DENSE).with_unequal_devices(vec![device("rtx-4090-24gb"), device(second)]);
    let (fast, slow) = (with("rtx-4090-24gb"), with("p40-24gb"));
    let (fast, slow) = (decode(&fast), decode(&slow));
    assert!(slow > fast && slow < fast * 2.5);
    // Prompts in several steps overlap no better than the slowest device allows.
    let request = Request::new(8192, 1);
    let prompt = |second: &str| compiled(&with(second)).prefill(&request).total();
    assert!(prompt("p40-24gb") > prompt("rtx-4090-24gb") * 2.0);
}

#[test]
fn what_cannot_be_is_an_error() {
    let error = |deployment: Deployment| deployment.check().unwrap_err();
    let hostless = || {
        let system = System::new(device("rtx-4090-24gb"), 1).unwrap();
        Deployment::new(Catalog::embedded().model(MOE).unwrap(), system)
    };
    let stream = |weights, cache_share, from| Offload::Stream { weights, cache_share, from };
    assert_eq!(error(hostless().with_offload(layers(3))), DeploymentError::NoHost { what: "layers" });
    assert_eq!(error(base(DENSE).with_offload(Offload::Experts { layers: 3 })), DeploymentError::NoExpertsToOffload);
    for shared in ["m4-pro-16c", "dgx-spark", "strix-halo-128gb"] {
        let shared = |offload| on(device(shared), MOE).with_offload(offload);
        for offload in [layers(3), Offload::Experts { layers: 3 }, stream(Bytes::ZERO, 0.5, Store::Host)] {
            let error = error(shared(offload));
            assert!(matches!(error, DeploymentError::UnifiedMemory { .. }), "{error}");
            assert!(error.to_string().contains("shares its memory with the host"));
        }
        let bandwidth = BytesPerSecond::from_gb_per_second(5.0);
        shared(stream(Bytes::from_gb(1.0), 0.0, Store::Storage { bandwidth })).check().unwrap();
    }
    let bandwidth = BytesPerSecond::ZERO;
    let refused = error(base(MOE).with_offload(stream(Bytes::ZERO, 0.0, Store::Storage { bandwidth })));
    assert_eq!(refused, DeploymentError::StorageBandwidth { bandwidth });
    let refused = error(base(MOE).with_offload(stream(Bytes::from_gb(100.0), 0.0, Store::Host)));
    assert!(matches!(refused, DeploymentError::StreamedWeights { .. }));
    for weights in [Bytes::from_gb(-1.0), Bytes::from_bytes(f64::NAN)] {
        assert!(base(MOE).with_offload(stream(weights, 0.0, Store::Host)).check().is_err());
    }
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(base(MOE).with_offload(stream(Bytes::ZERO, share, Store::Host)).check().is_err());
    }
    let two = base(MOE).with_system(System::new(device("rtx-4090-24gb"), 2).unwrap()).with_tensor_parallel(2);
    let refused = error(two.with_offload(layers(3)));
    assert_eq!(refused, DeploymentError::OffloadOfCutLayers { what: "layers", devices: 2 });
    let totals = Model::from_totals("7B", Totals::dense(7_000_000_000, 16.0, Bytes::from_kib(512.0)));
    let totals = || Deployment::new(totals.clone(), System::new(device("rtx-4090-24gb"), 1).unwrap()).with_host(host());
    assert_eq!(error(totals().with_offload(layers(3))), DeploymentError::OffloadOfTotals { what: "layers" });
    let unequal = || base(MOE).with_unequal_devices(vec![device("rtx-4090-24gb"), device("rtx-3090-24gb")]);
    unequal().check().unwrap();
    assert!(matches!(
        error(unequal().with_tensor_parallel(2)),
        DeploymentError::NotEnoughDevices { .. }
            | DeploymentError::LayoutTooLarge { .. }
            | DeploymentError::UnequalLayout { .. }
    ));
    assert!(matches!(error(unequal().with_pipeline_parallel(1)), DeploymentError::UnequalLayout { .. }));
    assert!(base(MOE).with_unequal_devices(Vec::new()).check().is_err());
    for split in [vec![1.0], vec![1.0, -1.0], vec![0.0, 0.0], vec![f64::NAN, 1.0]] {
        let refused = error(unequal().with_layer_split(split));
        assert!(matches!(refused, DeploymentError::LayerSplit { devices: 2, .. }));
    }
}

#[test]
fn totals_can_be_streamed() {
    let model = Model::from_totals("7B", Totals::dense(7_000_000_000, 16.0, Bytes::from_kib(512.0)));
    let deployment = Deployment::new(model, System::new(device("rtx-4090-24gb"), 1).unwrap());
    let half = Offload::Stream { weights: Bytes::from_gb(7.0), cache_share: 0.0, from: Store::Host };
    let time = compiled(&deployment.with_offload(half)).decode_step(1, 10).time(OperatorClass::Collective);
    let link = device("rtx-4090-24gb").host_link().unwrap().bandwidth.value;
    assert!(close(time, Bytes::from_gb(7.0) / link));
}

#[test]
fn assumptions_name_the_host() {
    let assumptions = base(MOE).with_offload(layers(20)).assumptions().join("\n");
    assert!(assumptions.contains("Ryzen 9 7950X: memory.bandwidth"), "{assumptions}");
    let whole = base(MOE).assumptions().join("\n");
    assert!(!whole.contains("Ryzen"));
}
