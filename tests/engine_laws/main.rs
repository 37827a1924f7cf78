//! Laws of physics that every engine profile obeys on every kind of device: nothing beats the hardware, better hardware is never slower, more
//! work is never faster, and layouts of one device are no layout.

#[path = "../common/mod.rs"]
mod common;
mod deployments;

use common::{cases, close};
use deployments::*;
use llm_roofline::hardware::DeviceProfile;
use llm_roofline::prelude::*;
use llm_roofline::roofline::smooth_max;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

const REGRESSIONS: &str = "tests/engine_laws.proptest-regressions";
/// Rounding.
const SAME: f64 = 1.0 + 1e-9;

#[test]
fn no_engine_beats_the_roofline_on_any_hardware() {
    let works = [
        Work { sequences: 1, context: 1000, prompt: 0, cached: 0 },
        Work { sequences: 64, context: 3000, prompt: 0, cached: 0 },
        Work { sequences: 0, context: 0, prompt: 512, cached: 0 },
        Work { sequences: 7, context: 500, prompt: 2000, cached: 1000 },
    ];
    for engine in ENGINES.iter() {
        for device in DEVICES.iter() {
            for (model, weights) in [("llama-3.1-8b", "q4_k_m"), ("qwen3-30b-a3b", "bf16"), ("deepseek-v2-lite", "fp8")]
            {
                let deployment = on(device, model, weights, engine, Layout::One);
                let (real, limits) = (compiled(&deployment), at_peak(&deployment).map(|peak| compiled(&peak)));
                for work in works {
                    let time = real.cost(&work.load(&real)).total();
                    let limit = limits.each_ref().map(|limit| limit.cost(&work.load(limit)).total());
                    let limit = limit[0].min(limit[1]);
                    assert!(time * SAME >= limit, "{}: {time} below {limit} at {work:?}", what(&deployment));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(400, REGRESSIONS))]

    #[test]
    fn no_layout_beats_the_roofline(deployment in any_deployment(), work in any_work(), output in 2u64..500) {
        let deployment = deployment.deployment();
        let time = work.time(&deployment);
        let limits = at_peak(&deployment);
        let limit = work.time(&limits[0]).min(work.time(&limits[1]));
        prop_assert!(time * SAME >= limit, "{}: {} below {}", what(&deployment), time, limit);
        let request = Request::new(work.context + work.prompt + 1, output).with_batch(work.sequences.max(1));
        let [real, native, units] =
            [&deployment, &limits[0], &limits[1]].map(|deployment| compiled(deployment).request(&request).unwrap());
        prop_assert!(real.ttft * SAME >= native.ttft.min(units.ttft), "{}: {request:?}", what(&deployment));
        prop_assert!(real.e2e * SAME >= native.e2e.min(units.e2e), "{}: {request:?}", what(&deployment));
    }

    #[test]
    fn better_hardware_is_never_slower(deployment in any_deployment(), work in any_work(), factor in 1.0..8.0_f64) {
        let deployment = deployment.deployment();
        let time = work.time(&deployment);
        let bandwidth = with_device(&deployment, |device| {
            device.memory.bandwidth.value = device.memory.bandwidth.value * factor;
        });
        let arithmetic = with_device(&deployment, |device| scale_compute(device, factor));
        let links = with_device(&deployment, |device| {
            let (scale_up, host) = (&mut device.links.scale_up, &mut device.links.host);
            let bandwidths = scale_up.as_mut().map(|link| &mut link.bandwidth).into_iter()
                .chain(host.as_mut().map(|link| &mut link.bandwidth))
                .chain(&mut device.links.scale_out);
            bandwidths.for_each(|bandwidth| bandwidth.value = bandwidth.value * factor);
        });
        for (better, name) in [(bandwidth, "bandwidth"), (arithmetic, "arithmetic"), (links, "links")] {
            let faster = work.time(&better);
            prop_assert!(faster <= time * SAME, "{name} x {factor}: {faster} instead of {time}, {}", what(&deployment));
        }
    }

    #[test]
    fn more_work_takes_no_less_time(
        deployment in any_deployment(),
        context in 0u64..20_000,
        more in 1u64..20_000,
        sequences in 1u64..300,
        chunks in 1u64..40,
    ) {
        let deployment = deployment.deployment();
        let model = compiled(&deployment);
        let decode = |context| model.decode_step(sequences, context).total();
        prop_assert!(decode(context) <= decode(context + more) * SAME, "context, {}", what(&deployment));
        // Whole multiples of 64 tokens: a rest of a few rows may take slower kernels than a few rows more.
        let ttft = |prompt| model.request(&Request::new(prompt, 1)).unwrap().ttft;
        let (short, long) = (ttft(64 * chunks), ttft(64 * (chunks + more % 40 + 1)));
        prop_assert!(short <= long * SAME, "prompts of {chunks} and more chunks: {short}, {long}, {}", what(&deployment));
        let e2e = |output| model.request(&Request::new(500, output)).unwrap().e2e;
        prop_assert!(e2e(context % 1000 + 1) <= e2e(context % 1000 + 1 + more) * SAME, "output, {}", what(&deployment));
    }

    #[test]
    fn intervals_enclose_the_prediction(deployment in any_deployment(), work in any_work()) {
        let deployment = deployment.deployment();
        let model = compiled(&deployment);
        let interval = model.interval(&model.cost(&work.load(&model)));
        prop_assert_eq!(interval.expected, work.time(&deployment));
        if deployment.engine().slug == "ideal" {
            prop_assert!(interval.low == interval.expected && interval.high == interval.expected);
        } else {
            prop_assert!(interval.low < interval.expected && interval.expected < interval.high, "{}", what(&deployment));
            prop_assert!(interval.low > Seconds::ZERO && interval.high < interval.expected * 10.0, "{interval}");
        }
    }

    #[test]
    fn runs_equal_the_sum_of_their_steps(
        deployment in any_deployment(),
        sequences in 1u64..100,
        cached in prop_oneof![0u64..200, 200u64..40_000],
        steps in 1u64..300,
    ) {
        let deployment = deployment.deployment();
        let model = compiled(&deployment);
        let run = model.decode_run(sequences, cached, steps);
        let single = |step| model.decode_step(sequences, cached + step);
        let total: Seconds = (0..steps).map(|step| single(step).total()).sum();
        prop_assert!(close(run.total().as_seconds(), total.as_seconds()), "{} {total}", run.total());
        for class in OperatorClass::ALL {
            let time: Seconds = (0..steps).map(|step| single(step).time(class)).sum();
            prop_assert!(close((run.time(class) + total).as_seconds(), (time + total).as_seconds()), "{class}");
        }
    }

    #[test]
    fn degrees_of_one_change_nothing(
        device in 0..DEVICES.len(),
        engine in 0..ENGINES.len(),
        model in select(&MODELS[..]),
        work in any_work(),
    ) {
        let one = on(&DEVICES[device], model, "bf16", &ENGINES[engine], Layout::One);
        let among_many = on(&DEVICES[device], model, "bf16", &ENGINES[engine], Layout::Pipeline(4))
            .with_pipeline_parallel(1)
            .with_expert_parallel(1)
            .with_data_parallel_attention(1)
            .with_replicas(1);
        prop_assert_eq!(work.time(&one), work.time(&among_many));
        // One sequence in a batch is a single one.
        let model = compiled(&one);
        let (single, batch) = (Request::new(work.context + 1, 50), Request::new(work.context + 1, 50).with_batch(1));
        prop_assert_eq!(model.request(&single).unwrap(), model.request(&batch).unwrap());
    }

    /// A token passes every layer, wherever the layer lies: what a split saves is memory, not time.
    #[test]
    fn one_stream_gains_nothing_from_a_pipeline(
        device in 0..DEVICES.len(),
        engine in 0..ENGINES.len(),
        model in select(&MODELS[..]),
        weights in select(&WEIGHTS[..]),
        stages in 2u32..5,
        context in 0u64..30_000,
    ) {
        let [one, split] = [Layout::One, Layout::Pipeline(stages)]
            .map(|layout| on(&DEVICES[device], model, weights, &ENGINES[engine], layout));
        let [alone, spread] = [&one, &split].map(|deployment| compiled(deployment).decode_step(1, context).total());
        prop_assert!(spread * SAME >= alone, "{}: {spread} instead of {alone}", what(&split));
    }

    #[test]
    fn overlap_lies_between_the_longer_and_the_sum(
        a in 0.0..1e3_f64,
        b in 0.0..1e3_f64,
        more in 0.0..1e3_f64,
        serialised in 0.0..1.0_f64,
    ) {
        let time = smooth_max(a, b, serialised);
        prop_assert!(time * SAME >= a.max(b) && time <= (a + b) * SAME);
        prop_assert!(close(time, smooth_max(b, a, serialised)));
        prop_assert!(smooth_max(a + more, b, serialised) * SAME >= time);
        prop_assert!(smooth_max(a, b, serialised + (1.0 - serialised) * 0.5) * SAME >= time);
        prop_assert!(close(smooth_max(a * 3.0, b * 3.0, serialised), time * 3.0));
    }
}

fn embedded(device: &str, model: &str, weights: &str, engine: &str, layout: Layout) -> Deployment {
    let catalog = Catalog::embedded();
    on(&catalog.device(device).unwrap(), model, weights, &catalog.engine(engine).unwrap(), layout)
}

fn log_width(deployment: &Deployment, work: Work) -> f64 {
    let model = compiled(deployment);
    let interval = model.interval(&model.cost(&work.load(&model)));
    (interval.high / interval.low).ln()
}

/// The same chip, of a generation that no one has measured.
fn of_unknown_generation(profile: &mut DeviceProfile) {
    profile.generation = "custom".into();
    profile.family = "custom".into();
    profile.vendor = "unknown".into();
}

#[test]
fn unknown_generations_have_wider_intervals() {
    let works = [
        Work { sequences: 1, context: 1000, prompt: 0, cached: 0 },
        Work { sequences: 0, context: 0, prompt: 2000, cached: 0 },
    ];
    for (engine, device, weights) in [
        ("vllm-2026", "h100-sxm-80gb", "bf16"),
        ("vllm-2026", "a100-sxm-80gb", "bf16"),
        ("sglang-2026", "h200-sxm-141gb", "fp8"),
        ("tensorrt-llm-2026", "b200-sxm-180gb", "fp8"),
        ("llama-cpp-cuda-2026", "rtx-4090-24gb", "q4_k_m"),
        ("llama-cpp-metal-2026", "m2-ultra-76c", "q4_k_m"),
    ] {
        for model in ["llama-3.1-8b", "qwen3-30b-a3b"] {
            let known = embedded(device, model, weights, engine, Layout::One);
            let unknown = with_device(&known, of_unknown_generation);
            for work in works {
                let [narrow, wide] = [&known, &unknown].map(|deployment| log_width(deployment, work));
                assert!(wide > narrow, "{}: {wide} not above {narrow}", what(&known));
            }
        }
    }
}

#[test]
fn a_device_known_by_three_numbers_works_with_every_engine() {
    let device = Device::from_specs(
        "next year's card",
        Bytes::from_gb(96.0),
        BytesPerSecond::from_tb_per_second(2.0),
        FlopsPerSecond::from_tflops_per_second(400.0),
    );
    let device = Arc::new(device.unwrap());
    let work = Work { sequences: 4, context: 1000, prompt: 500, cached: 0 };
    for engine in ENGINES.iter() {
        for (model, weights) in [("llama-3.1-8b", "q4_k_m"), ("qwen3-30b-a3b", "fp8"), ("gemma-3-4b", "bf16")] {
            let deployment = on(&device, model, weights, engine, Layout::One);
            let time = work.time(&deployment);
            assert!(time > Seconds::ZERO && time < Seconds::from_seconds(10.0), "{}: {time}", what(&deployment));
            let width = log_width(&deployment, work);
            assert!(engine.slug == "ideal" || width > 0.2, "{}: {width}", what(&deployment));
        }
    }
}

/// Time of a decoded token on so many cards over so many.
fn speedup(device: &str, model: &str, weights: &str, counts: [u32; 2]) -> f64 {
    let [few, many] = counts.map(|count| {
        let deployment = embedded(device, model, weights, "vllm-2026", Layout::Tensor(count));
        compiled(&deployment).decode_step(1, 1000).total()
    });
    few / many
}

/// Two all-reduces per layer cost more than the halved weights of a small model save, and hardly less than those of a larger one.
#[test]
fn cards_over_pcie_do_not_speed_up_a_small_model() {
    for device in ["l40-48gb", "rtx-4090-24gb", "a100-pcie-40gb"] {
        let slower = speedup(device, "tinyllama-1.1b", "awq-int4", [1, 2]);
        assert!(slower < 1.0, "{device}: {slower}");
        assert!(speedup(device, "llama-3.2-1b", "awq-int4", [2, 4]) < 1.0, "{device}");
        let small = speedup(device, "llama-3.1-8b", "awq-int4", [1, 2]);
        let large = speedup(device, "llama-3.1-8b", "bf16", [1, 2]);
        assert!(1.0 < small && small < large && large < 2.0, "{device}: {small}, {large}");
    }
}

#[test]
fn cards_over_nvlink_speed_up_a_large_model() {
    let times = [1, 2, 4, 8].map(|count| {
        let deployment = embedded("h100-sxm-80gb", "llama-3.1-70b", "fp8", "vllm-2026", Layout::Tensor(count));
        compiled(&deployment).decode_step(1, 1000).total()
    });
    assert!(times.is_sorted_by(|few, many| *many < *few), "{times:?}");
    assert!(times[0] / times[1] > 1.5 && times[0] / times[3] < 8.0, "{times:?}");
}

#[cfg(feature = "calibrate")]
#[test]
fn versions_lead_to_profiles_that_say_what_was_assumed() {
    let catalog = Catalog::embedded();
    let note = |name, version, date, device| {
        let device = catalog.device(device).unwrap();
        llm_roofline::catalog::engine_for(catalog, name, version, date, Some(&device)).unwrap().note
    };
    assert_eq!(note("vllm", Some("0.6.3"), None, "h100-sxm-80gb"), "version 0.6.3: profile vllm-2024");
    assert_eq!(
        note("llama.cpp", None, Some("2024-11"), "rtx-4090-24gb"),
        "no version known, dated 2024-11: profile llama-cpp-cuda-2024-mmq"
    );
    assert_eq!(
        note("sglang", None, None, "h100-sxm-80gb"),
        "version and date unknown, the newest is assumed: profile sglang-2026"
    );
    // Of all backends of ik_llama.cpp, none is for Apple's.
    assert_eq!(
        note("ik_llama.cpp", None, None, "m2-ultra-76c"),
        "version and date unknown, the newest is assumed: profile ik-llama-cpp-cuda"
    );
    assert!(note("a house engine", None, None, "h100-sxm-80gb").ends_with("is no known engine: profile serving"));
}
