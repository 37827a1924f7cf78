//! Static batching, prefix caches, replicas, and pools of prefill and decode: against the reference simulation, limits and published numbers.

#[path = "common/stepping/mod.rs"]
mod stepping;

use llm_roofline::prelude::*;
use llm_roofline::serving::Server;
use llm_roofline::workload::{LengthDistribution, Lengths, SharedPrefix, Slo};
use stepping::{Arrivals, Policy, Random, Simulation, Start, mean, percentile, poisson};

fn deployment(engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system).with_engine(catalog.engine(engine).unwrap())
}

fn compiled(engine: &str) -> StepModel {
    StepModel::compile(&deployment(engine)).unwrap()
}

fn static_batching(most: u64) -> StepModel {
    StepModel::compile(&deployment("transformers").with_max_sequences(most)).unwrap()
}

fn per_second(rate: f64) -> RequestsPerSecond {
    RequestsPerSecond::from_requests_per_second(rate)
}

fn seconds(seconds: f64) -> Seconds {
    Seconds::from_seconds(seconds)
}

#[track_caller]
fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() <= tolerance, "{value} instead of {expected}");
}

/// Lengths of simulated requests, drawn from those that are predicted.
fn drawn(lengths: &Lengths, count: usize, seed: u64) -> Vec<stepping::Lengths> {
    let mut random = Random::new(seed);
    let mut draw = || lengths.at(random.unit(), random.unit());
    (0..count).map(|_| draw()).map(|(prompt, output)| stepping::Lengths::new(prompt, output)).collect()
}

fn kinds() -> [Lengths; 3] {
    let uniform = |low, high| LengthDistribution::uniform(low, high).unwrap();
    [
        Lengths::fixed(500, 100).unwrap(),
        Lengths::independent(uniform(100, 900), uniform(10, 190)).unwrap(),
        Lengths::independent(uniform(100, 900), LengthDistribution::log_normal(80.0, 80.0, 2, 800).unwrap()).unwrap(),
    ]
}

/// Static batching against the simulation that runs batch after batch.
#[test]
fn whole_batches_are_a_bulk_queue() {
    for (most, kind, rho, seed) in [(1, 1, 0.6, 1), (8, 0, 0.5, 2), (8, 1, 0.8, 3), (32, 1, 0.5, 4), (32, 2, 0.8, 5), (16, 2, 0.3, 6)] {
        let model = static_batching(most);
        let lengths = kinds()[kind].clone();
        let server = Server::new(&model, &lengths).unwrap();
        let rate = server.max_rate() * rho;
        let state = server.open_loop(rate, &Slo::default()).unwrap();
        let count = 20_000;
        let arrivals = Arrivals::open(poisson(rate, count, seed), drawn(&lengths, count, seed + 100));
        let front_end = server.rules().front_end;
        let simulation = Simulation { max_sequences: most as usize, front_end, record_gaps: false, cut: 0.05, ..Simulation::new(&model, Policy::WholeBatch) };
        let outcome = simulation.run(&arrivals);
        let (ttft, tpot, e2e) = (state.summary.ttft.unwrap(), state.summary.tpot.unwrap(), state.summary.e2e.unwrap());
        println!(
            "{most} {kind} {rho}: ttft {:.4} {:.4} p50 {:.4} {:.4} p99 {:.4} {:.4} tpot {:.5} {:.5} p99 {:.5} {:.5} e2e {:.4} {:.4} p99 {:.4} {:.4} batch {:.3} {:.3}",
            ttft.mean.as_seconds(), mean(&outcome.ttft()).as_seconds(),
            ttft.p50.as_seconds(), percentile(&outcome.ttft(), 0.5).as_seconds(),
            ttft.p99.as_seconds(), percentile(&outcome.ttft(), 0.99).as_seconds(),
            tpot.mean.as_seconds(), mean(&outcome.tpot()).as_seconds(),
            tpot.p99.as_seconds(), percentile(&outcome.tpot(), 0.99).as_seconds(),
            e2e.mean.as_seconds(), mean(&outcome.e2e()).as_seconds(),
            e2e.p99.as_seconds(), percentile(&outcome.e2e(), 0.99).as_seconds(),
            state.summary.mean_batch.unwrap(), outcome.steady.running,
        );
    }
}

#[test]
fn whole_batches_with_clients() {
    for (most, kind, clients, think) in [(8, 0, 8, 0.0), (8, 1, 20, 0.0), (32, 2, 16, 0.0), (8, 1, 8, 0.5), (8, 1, 8, 3.0), (8, 1, 24, 3.0), (16, 2, 16, 20.0), (8, 0, 1, 2.0)] {
        let model = static_batching(most);
        let lengths = kinds()[kind].clone();
        let server = Server::new(&model, &lengths).unwrap();
        let state = server.closed_loop(f64::from(clients), seconds(think), &Slo::default());
        let front_end = server.rules().front_end;
        let simulation = Simulation { max_sequences: most as usize, front_end, record_gaps: false, cut: 0.1, ..Simulation::new(&model, Policy::WholeBatch) };
        let arrivals = Arrivals::Closed { concurrency: clients as usize, think: seconds(think), lengths: drawn(&lengths, 3000, 9), start: Start::Burst };
        let outcome = simulation.run(&arrivals);
        let rate = outcome.steady.answered as f64 / outcome.steady.time.as_seconds();
        println!("{most} {kind} {clients} {think}: rate {:.4} {:.4} ttft {:.4} {:.4} batch {:.3} {:.3}", state.rate.as_requests_per_second(), rate,
            state.ttft.total().as_seconds(), mean(&outcome.ttft()).as_seconds(), state.summary.mean_batch.unwrap(), outcome.steady.running);
    }
}
