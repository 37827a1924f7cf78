//! Settings that no engine could run are refused, and those that are only odd do no harm.
#![cfg(feature = "random")]

#[path = "common/served.rs"]
mod served;

use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{Autoscaler, EngineSettings, FleetView, Simulation};
use llm_roofline::workload::{Lengths, Workload};
use served::compile;

fn model() -> StepModel {
    compile("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026")
}

fn workload() -> Workload {
    Workload::poisson("5 req/s".parse().unwrap(), Lengths::fixed(100, 20).unwrap()).unwrap()
}

/// What is said of settings that one change made impossible.
fn refusal(change: impl FnOnce(&mut EngineSettings)) -> String {
    let mut settings = EngineSettings::default();
    change(&mut settings);
    let model = model();
    Simulation::new(&model).with_settings(settings).run(&workload(), 10).unwrap_err().to_string()
}

#[test]
fn impossible_settings_are_refused_with_their_values() {
    let seconds = Seconds::from_seconds;
    let bandwidth = BytesPerSecond::from_bytes_per_second;
    assert!(refusal(|settings| settings.front_end = Some(seconds(f64::NAN))).contains("NaN"));
    assert!(refusal(|settings| settings.front_end = Some(seconds(-1.0))).contains("-1"));
    assert!(refusal(|settings| settings.swap_bandwidth = Some(bandwidth(-5.0))).contains("-5"));
    assert!(refusal(|settings| settings.swap_bandwidth = Some(bandwidth(f64::NAN))).contains("NaN"));
    assert!(refusal(|settings| settings.watermark = Some(1.5)).contains("1.5"));
    assert!(refusal(|settings| settings.max_sequences = Some(0)).contains("sequences"));
    assert!(refusal(|settings| settings.kv_blocks = Some(1)).contains("blocks"));
    let model = model();
    assert!(Simulation::new(&model).with_replicas(0).run(&workload(), 10).is_err());
    assert!(Simulation::new(&model).run(&workload(), 0).is_err());
}

#[test]
fn an_autoscaler_that_wants_more_than_there_is_is_refused() {
    let model = model();
    let rule = |_: &FleetView| 9;
    let second = Seconds::from_seconds(1.0);
    let scaled = |fewest: u32| {
        let autoscaler = Autoscaler::new(second, second, fewest, &rule).unwrap();
        Simulation::new(&model).with_replicas(2).with_autoscaler(autoscaler).run(&workload(), 50)
    };
    assert!(scaled(3).unwrap_err().to_string().contains("fewest replicas is 3"));
    assert_eq!(scaled(2).unwrap().completed, 50);
}

/// Whoever waits for longer than all steps is taken when nobody runs.
#[test]
fn endless_waiting_steps_overflow_nothing() {
    let model = model();
    let mut settings = EngineSettings::default();
    settings.prompt_wait_steps = Some(u64::MAX);
    let outcome = Simulation::new(&model).with_settings(settings).run(&workload(), 200).unwrap();
    assert_eq!(outcome.completed, 200);
}
