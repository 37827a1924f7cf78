//! Lines of decode steps against the prices of single steps.

use llm_roofline::prelude::*;
use llm_roofline::step::Lockstep;

fn model(name: &str, device: &str, count: u32, engine: &str) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    let deployment = Deployment::new(catalog.model(name).unwrap(), system).with_engine(catalog.engine(engine).unwrap());
    StepModel::compile(&deployment).unwrap()
}

/// Sequences that join at different times, bend and leave: every step of every line costs what the step model says.
#[test]
fn lines_agree_with_single_steps_through_bends_and_changes() {
    let cases = [
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026"),
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "ideal"),
        ("gemma-3-27b", "h100-sxm-80gb", 2, "vllm-2026"),
        ("gpt-oss-20b", "h100-sxm-80gb", 1, "vllm-2026"),
        ("deepseek-v3", "h200-sxm-141gb", 8, "sglang-2026"),
        ("llama-4-scout", "h200-sxm-141gb", 8, "vllm-2026"),
        ("qwen3-next-80b-a3b", "h200-sxm-141gb", 4, "vllm-2026"),
    ];
    for (name, device, count, engine) in cases {
        let model = model(name, device, count, engine);
        let mut batch = Lockstep::new(model.reaches());
        // Context when it joined, steps since then, context at its last bend and steps then.
        let mut members: Vec<(u64, u64)> = Vec::new();
        let mut checked = 0;
        for join in [3_u64, 100, 127, 128, 900, 1023, 1024, 2047, 5000, 8190, 8191, 8192, 40_000] {
            batch.add(join);
            members.push((join, 0));
            for _ in 0..3 {
                let line = model.decode_line(&model.decode_base(batch.sequences()), &batch);
                let bends = members.iter().filter_map(|(bent, steps)| Some(batch.steps_to_bend(*bent)? - steps)).min();
                let steps = line.steps.min(bends.unwrap_or(u64::MAX)).min(700);
                for step in [0, 1, steps / 2, steps - 1].into_iter().filter(|step| *step < steps) {
                    let mut load = model.load();
                    for (bent, passed) in &members {
                        load.add_decode(bent + passed + step, 1, 1.0);
                    }
                    let single = model.cost(&load).total();
                    let off = (line.at(step) / single - 1.0).abs();
                    assert!(off < 1e-10, "{name}: step {step} of {steps}: {} instead of {single}", line.at(step));
                    checked += 1;
                }
                batch.advance(steps);
                for (bent, passed) in &mut members {
                    *passed += steps;
                    if batch.steps_to_bend(*bent) == Some(*passed) {
                        batch.bend(*bent, *passed);
                        (*bent, *passed) = (*bent + *passed, 0);
                    }
                }
            }
        }
        assert!(checked > 50);
        for (bent, passed) in members {
            batch.remove(bent + passed);
        }
        assert_eq!(batch, Lockstep::new(model.reaches()), "{name}: nothing is left");
    }
}

/// The step in which a moment falls is the first that does not end before it.
#[test]
fn a_moment_falls_into_the_step_that_has_it() {
    let model = model("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026");
    let mut batch = Lockstep::new(model.reaches());
    (0..40).for_each(|sequence| batch.add(100 * sequence));
    let line = model.decode_line(&model.decode_base(40), &batch);
    for step in [0, 1, 2, 17, 999, 123_456] {
        let (start, end) = (line.total(step), line.total(step + 1));
        assert_eq!(line.step_at(end), step, "the end of step {step}");
        assert_eq!(line.step_at((start + end) / 2.0), step);
        assert_eq!(line.step_at(end + Seconds::from_nanos(1.0)), step + 1);
    }
    assert_eq!(line.step_at(Seconds::ZERO), 0);
}

/// The time of a step is what it costs, and what it is made of.
#[test]
fn times_are_those_of_costs() {
    for (name, device, count, engine) in [
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026"),
        ("gpt-oss-20b", "h100-sxm-80gb", 1, "ideal"),
        ("deepseek-v3", "h200-sxm-141gb", 8, "sglang-2026"),
    ] {
        let model = model(name, device, count, engine);
        for (prompt, decoders) in [(0, 7), (900, 0), (900, 40), (4000, 3)] {
            let mut load = model.load();
            if prompt > 0 {
                load.add_prefill(100, prompt, true);
            }
            load.add_decode(1500, 1, f64::from(decoders));
            let cost = model.cost(&load).total();
            let parts = model.time_without_attention(&load).unwrap() + model.attention_time(&load);
            assert!((model.time(&load) / cost - 1.0).abs() < 1e-12, "{name}");
            assert!((parts / cost - 1.0).abs() < 1e-12, "{name}");
        }
    }
}
