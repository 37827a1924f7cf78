//! The derivatives of the step model against finite differences of recompiled models, and against Euler's theorem.

mod common;
#[path = "common/served.rs"]
mod served;

use common::*;
use llm_roofline::deployment::{Host, Offload, Spec};
use llm_roofline::prelude::*;
use llm_roofline::step::{ResourceShares, StepSensitivity};
use proptest::prelude::*;
use served::deployment;

/// Everything that the time depends on adds up to it.
fn adds_up(shares: &ResourceShares) -> bool {
    adds_up_to(shares, 1e-12)
}

fn adds_up_to(shares: &ResourceShares, tolerance: f64) -> bool {
    (shares.sum() / shares.total() - 1.0).abs() < tolerance
}

/// Half the change of the time over 2 `h`, as a share of it: the elasticity, with an error of `h^2`.
fn by_difference(spec: Spec, model: &StepModel, load: &StepLoad) -> f64 {
    const H: f64 = 1e-5;
    let at = |factor: f64| {
        let changed = spec.times(factor, model.deployment()).unwrap();
        StepModel::compile(&changed).unwrap().cost(load).total()
    };
    (at(1.0 + H) - at(1.0 - H)) / (model.cost(load).total() * (2.0 * H))
}

/// Whether every elasticity agrees with that of recompiled models, to 10^-5 of the time.
fn check(what: &str, sensitivity: &StepSensitivity<'_>, load: &StepLoad) {
    let (model, shares) = (sensitivity.model(), sensitivity.shares(load));
    assert!((shares.total() / model.cost(load).total() - 1.0).abs() < 1e-12, "{what}");
    // What unequal stages lose is no sum of times, and the only derivative with an error beyond rounding.
    let tolerance = if what.starts_with("unequal") { 1e-6 } else { 1e-12 };
    assert!(adds_up_to(&shares, tolerance), "{what}: {} of {}", shares.sum().as_seconds(), shares.total().as_seconds());
    for (spec, _) in shares.iter() {
        let (exact, difference) = (shares.elasticity(spec), by_difference(spec, model, load));
        assert!((exact - difference).abs() < 1e-5, "{what}, {spec}: {exact} by derivative, {difference} by difference");
    }
}

fn loads(model: &StepModel) -> Vec<(&'static str, StepLoad)> {
    let load = |prefill: &[(u64, u64)], decode: &[(u64, f64)]| {
        let mut load = model.load();
        prefill.iter().for_each(|&(cached, new)| load.add_prefill(cached, new, true));
        decode.iter().for_each(|&(cached, sequences)| load.add_decode(cached, 1, sequences));
        load
    };
    vec![
        ("one sequence", load(&[], &[(1000, 1.0)])),
        ("a batch", load(&[], &[(700, 24.0), (3000, 9.0)])),
        ("a large batch", load(&[], &[(1500, 300.0)])),
        ("a prompt", load(&[(0, 1800)], &[])),
        ("chunks beside answers", load(&[(512, 512), (0, 77)], &[(2000, 40.0)])),
    ]
}

fn check_deployment(what: &str, deployment: &Deployment) {
    let model = StepModel::compile(deployment).unwrap();
    let sensitivity = model.sensitivity().unwrap();
    for (name, load) in loads(&model) {
        check(&format!("{what}, {name}"), &sensitivity, &load);
    }
}

#[test]
fn derivatives_are_those_of_recompiled_models() {
    let gpu = ["vllm-2026", "sglang-2026", "tensorrt-llm-2025", "ideal"];
    let cases = [
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16"),
        ("llama-3.1-8b", "l4-24gb", 1, "fp8"),
        ("llama-3.1-8b", "a100-sxm-80gb", 1, "awq-int4"),
        ("qwen3-8b", "rtx-4090-24gb", 1, "fp8"),
        ("llama-3.1-70b", "h200-sxm-141gb", 4, "fp8"),
        ("llama-3.1-70b", "l40s-48gb", 8, "bf16"),
        ("mixtral-8x7b", "a100-sxm-80gb", 2, "bf16"),
        ("deepseek-v3", "h200-sxm-141gb", 16, "fp8"),
    ];
    for (model, device, count, weights) in cases {
        for engine in gpu {
            let what = format!("{model} on {count} x {device} in {weights} under {engine}");
            check_deployment(&what, &deployment(model, device, count, weights, engine));
        }
    }
}

#[test]
fn derivatives_hold_for_local_engines_hosts_and_stages() {
    let catalog = Catalog::embedded();
    let local = |device: &str, count| deployment("llama-3.1-8b", device, count, "q4_k_m", "llama-cpp-cuda-2026");
    check_deployment("llama.cpp", &local("rtx-4090-24gb", 1));
    let cpu = deployment("llama-3.1-8b", "ryzen-9-7950x", 1, "q4_k_m", "llama-cpp-cpu-2026");
    check_deployment("llama.cpp on a processor", &cpu);
    let host = Host::new(catalog.device("ryzen-9-7950x").unwrap(), catalog.engine("llama-cpp-cpu-2026").unwrap());
    let half = local("rtx-4090-24gb", 1).with_host(host.clone()).with_offload(Offload::Layers { on_device: 17 });
    check_deployment("half of the layers on the host", &half);
    let experts = deployment("mixtral-8x7b", "rtx-4090-24gb", 1, "q4_k_m", "llama-cpp-cuda-2026")
        .with_host(host)
        .with_offload(Offload::Experts { layers: 20 });
    check_deployment("experts on the host", &experts);
    let pair = || vec![catalog.device("rtx-4090-24gb").unwrap(), catalog.device("rtx-3070-8gb").unwrap()];
    check_deployment("unequal devices", &local("rtx-4090-24gb", 1).with_unequal_devices(pair()));
    // Decode batches that follow one another wait for the slower device: by how much depends on both of its limits.
    let waiting = deployment("llama-3.1-8b", "rtx-4090-24gb", 1, "bf16", "vllm-2026").with_unequal_devices(pair());
    check_deployment("unequal devices that split batches", &waiting);
    let stages = deployment("llama-3.1-70b", "h100-sxm-80gb", 16, "bf16", "vllm-2026")
        .with_tensor_parallel(8)
        .with_pipeline_parallel(2);
    check_deployment("two stages", &stages);
    let ranks = deployment("deepseek-v3", "h200-sxm-141gb", 16, "fp8", "sglang-2026")
        .with_tensor_parallel(1)
        .with_data_parallel_attention(16)
        .with_expert_parallel(16);
    check_deployment("ranks and experts", &ranks);
}

#[test]
fn shares_of_a_request_are_those_of_its_steps() {
    let engines = ["vllm-2026", "llama-cpp-cuda-2026"];
    for ((count, tensor, pipeline), engine) in
        [((1, 1, 1), engines[0]), ((4, 2, 2), engines[0]), ((2, 1, 2), engines[1])]
    {
        let deployment = deployment("llama-3.1-8b", "h100-sxm-80gb", count, "bf16", engine)
            .with_tensor_parallel(tensor)
            .with_pipeline_parallel(pipeline);
        let model = StepModel::compile(&deployment).unwrap();
        // Prompts of several steps, which follow one another through the stages.
        let request = Request::new(9000, 120).with_batch(3);
        let (answer, shares) =
            (model.request(&request).unwrap(), model.sensitivity().unwrap().request_shares(&request).unwrap());
        assert!((shares.prefill.total() / answer.ttft - 1.0).abs() < 1e-12);
        assert!((shares.e2e().total() / answer.e2e - 1.0).abs() < 1e-12);
        for part in [&shares.prefill, &shares.decode, &shares.e2e()] {
            assert!((part.sum() / part.total() - 1.0).abs() < 1e-11);
        }
        for (spec, _) in shares.prefill.iter() {
            const H: f64 = 1e-5;
            let at = |factor: f64| {
                let changed = StepModel::compile(&spec.times(factor, &deployment).unwrap()).unwrap();
                let answer = changed.request(&request).unwrap();
                (answer.ttft, answer.tpot.unwrap())
            };
            let (more, less) = (at(1.0 + H), at(1.0 - H));
            let ttft = (more.0 - less.0) / (answer.ttft * (2.0 * H));
            let tpot = (more.1 - less.1) / (answer.tpot.unwrap() * (2.0 * H));
            assert!((ttft - shares.prefill.elasticity(spec)).abs() < 1e-5, "{spec}: TTFT {ttft}");
            assert!((tpot - shares.decode.elasticity(spec)).abs() < 1e-5, "{spec}: TPOT {tpot}");
        }
    }
}

#[test]
fn one_resource_has_all_of_the_textbook_roofline() {
    // 70 billion weights of 4 bits and no cache: a decode step reads them, and does nothing else.
    let model = Model::from_totals("70B at 4 bits", Totals::dense(70_000_000_000, 4.0, Bytes::ZERO));
    let (bandwidth, peak) = (BytesPerSecond::from_tb_per_second(1.0), FlopsPerSecond::from_tflops_per_second(165.0));
    let card = Device::from_specs("card", Bytes::from_gb(48.0), bandwidth, peak).unwrap();
    let model = StepModel::compile(&Deployment::new(model, System::new(card, 1).unwrap())).unwrap();
    let sensitivity = model.sensitivity().unwrap();
    let shares = sensitivity.decode_shares(1, 100, 10);
    assert!((shares.elasticity(Spec::MemoryBandwidth) + 1.0).abs() < 1e-12);
    assert!(shares.elasticity(Spec::ComputeAll).abs() < 1e-12);
    let mut prompt = model.load();
    prompt.add_prefill(0, 10_000, true);
    assert!((sensitivity.shares(&prompt).elasticity(Spec::ComputeAll) + 1.0).abs() < 1e-12);
    assert_eq!(sensitivity.shares(&model.load()), sensitivity.decode_shares(1, 100, 0)); // no step, no time
}

proptest! {
    #![proptest_config(cases(128, "tests/step_sensitivity.proptest-regressions"))]

    #[test]
    fn all_that_time_depends_on_adds_up_to_it(setup in any_setup(), parts in any_parts()) {
        let model = setup.model();
        let shares = model.sensitivity().unwrap().shares(&load_of(&model, &parts));
        prop_assert!(adds_up(&shares), "{} of {}", shares.sum().as_seconds(), shares.total().as_seconds());
        // A better resource never costs time.
        for (spec, share) in shares.iter() {
            prop_assert!(share >= shares.total() * -1e-12, "{spec}: {share}");
        }
    }

    #[test]
    fn derivatives_are_differences_away_from_kinks(setup in any_setup(), parts in any_parts()) {
        let model = setup.model();
        let (load, sensitivity) = (load_of(&model, &parts), model.sensitivity().unwrap());
        let shares = sensitivity.shares(&load);
        for (spec, _) in shares.iter() {
            // A kink within the difference shows as one side's slope differing from the other's.
            let side = |factor: f64| {
                let changed = spec.times(factor, model.deployment()).unwrap();
                StepModel::compile(&changed).unwrap().cost(&load).total() / model.cost(&load).total() - 1.0
            };
            let (up, down) = (side(1.002), side(1.0 / 1.002));
            if (up + down).abs() > 1e-5 {
                continue;
            }
            let (exact, difference) = (shares.elasticity(spec), by_difference(spec, &model, &load));
            prop_assert!((exact - difference).abs() < 1e-5, "{spec}: {exact} by derivative, {difference} by difference");
        }
    }
}
