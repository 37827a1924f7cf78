//! Independent runs put together.
#![cfg(feature = "random")]

#[path = "common/served.rs"]
mod served;

use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::Simulation;
use llm_roofline::workload::{Lengths, Workload};
use served::compile;
use std::num::NonZeroUsize;

fn model() -> StepModel {
    compile("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026")
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

#[test]
fn the_answer_does_not_depend_on_the_number_of_threads() {
    let model = model();
    let workload = Workload::poisson("10 req/s".parse().unwrap(), Lengths::fixed(800, 150).unwrap()).unwrap();
    let simulation = Simulation::new(&model).with_seed(5).keep_requests();
    let one = simulation.replicate(&workload, 500, 7, threads(1)).unwrap();
    for count in [2, 3, 16] {
        assert_eq!(simulation.replicate(&workload, 500, 7, threads(count)).unwrap(), one, "{count} threads");
    }
    assert_eq!((one.arrived, one.completed), (3500, 3500));
    assert_eq!(one.statistics.requests.as_ref().unwrap().len(), 3500);
}

/// Counts add up, and what is pooled lies between the runs.
#[test]
fn runs_are_put_together() {
    let model = model();
    let workload = Workload::poisson("10 req/s".parse().unwrap(), Lengths::fixed(800, 150).unwrap()).unwrap();
    let simulation = Simulation::new(&model);
    let runs: Vec<_> = (0..4).map(|seed| simulation.clone().with_seed(seed).run(&workload, 1000).unwrap()).collect();
    let all = simulation.replicate(&workload, 1000, 4, threads(2)).unwrap();
    assert_eq!(all.steps, runs.iter().map(|run| run.steps).sum::<u64>());
    assert_eq!(all.statistics.counted, runs.iter().map(|run| run.statistics.counted).sum::<u64>());
    let means: Vec<_> = runs.iter().map(|run| run.summary.ttft.unwrap().mean).collect();
    let (low, high) = means.iter().fold((means[0], means[0]), |(low, high), mean| (low.min(*mean), high.max(*mean)));
    let mean = all.statistics.ttft.as_ref().unwrap().mean;
    assert!(low <= mean.value && mean.value <= high);
    // Four observations: Student's t for three degrees of freedom times their standard error.
    let average = means.iter().copied().sum::<Seconds>() / 4.0;
    let squares: f64 = means.iter().map(|mean| (*mean - average).as_seconds().powi(2)).sum();
    let half = 3.182_446 * (squares / 12.0).sqrt();
    assert!((mean.half_width.unwrap().as_seconds() / half - 1.0).abs() < 0.02, "{:?} and {half}", mean.half_width);
    assert!(simulation.replicate(&workload, 1000, 0, threads(1)).is_err());
}
