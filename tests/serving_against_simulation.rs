//! The analytic steady state against a simulation that goes step by step, on the same step model.

#[path = "common/load_cases.rs"]
mod load_cases;
#[path = "common/stepping/mod.rs"]
mod stepping;

use llm_roofline::engine::PromptPolicy;
use llm_roofline::prelude::*;
use llm_roofline::serving::Server;
use llm_roofline::workload::Slo;
use load_cases::{CASES, Case, lengths};
use stepping::{Arrivals, Lengths as Asked, Policy, Random, Simulation, Start, mean, percentile, poisson};

fn model(case: &Case) -> StepModel {
    let (model, format, device, count, engine, ..) = *case;
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    // The simulation has neither a front end nor a scheduler that plans ahead.
    let mut engine = Engine::clone(&catalog.engine(engine).unwrap());
    engine.host.per_request = None;
    engine.scheduling.prompt_wait_steps = None;
    let deployment = Deployment::new(catalog.model(model).unwrap(), system).with_engine(engine);
    StepModel::compile(&deployment.with_weights(format.parse().unwrap())).unwrap()
}

fn asked(case: &Case, count: usize) -> Vec<Asked> {
    let (.., prompt, output, spread) = *case;
    let mut random = Random::new(7);
    let mut around =
        |tokens: u64| (tokens as f64 * (1.0 + spread * (2.0 * random.unit() - 1.0))).round().max(1.0) as u64;
    (0..count).map(|_| Asked::new(around(prompt), around(output))).collect()
}

fn simulation<'a>(model: &'a StepModel, server: &Server<'_>) -> Simulation<'a> {
    let rules = server.rules();
    let budget = rules.max_tokens_per_step.unwrap();
    let policy = match rules.prompts {
        PromptPolicy::First => Policy::PromptsFirst { budget },
        _ => Policy::Mixed { budget },
    };
    Simulation { max_sequences: rules.slots().0 as usize, cut: 0.1, ..Simulation::new(model, policy) }
}

/// Predicted over simulated, less 1; a message if it is more than that off.
fn compare(what: &str, predicted: Seconds, simulated: Seconds, bound: f64) -> Option<String> {
    let off = predicted / simulated - 1.0;
    (off.abs() > bound).then(|| format!("{what}: {predicted} predicted, {simulated} simulated, {:+.1} %", 100.0 * off))
}

/// How far means and 99th percentiles may be off.
struct Bounds {
    ttft: f64,
    p99_ttft: f64,
    tpot: f64,
    p99_tpot: f64,
    e2e: f64,
}

/// What is more off than `bounds` at this share of the capacity.
fn compare_open_loop(case: &Case, rho: f64, bounds: &Bounds) -> Vec<String> {
    let model = model(case);
    let server = Server::new(&model, &lengths(case)).unwrap();
    let rate = server.max_rate() * rho;
    let state = server.open_loop(rate, &Slo::default()).unwrap().summary;
    let count = 40_000;
    let run = simulation(&model, &server).run(&Arrivals::open(poisson(rate, count, 11), asked(case, count)));
    let (ttft, tpot, e2e) = (run.ttft(), run.tpot(), run.e2e());
    let [at, paces, ends] = [state.ttft, state.tpot, state.e2e].map(Option::unwrap);
    let mut found = vec![
        compare("mean TTFT", at.mean, mean(&ttft), bounds.ttft),
        compare("p99 TTFT", at.p99, percentile(&ttft, 0.99), bounds.p99_ttft),
        compare("mean TPOT", paces.mean, mean(&tpot), bounds.tpot),
        compare("p99 TPOT", paces.p99, percentile(&tpot, 0.99), bounds.p99_tpot),
        compare("mean E2E", ends.mean, mean(&e2e), bounds.e2e),
    ];
    if bounds.p99_ttft < 0.15 {
        let (gaps, itl) = (state.itl.unwrap(), run.itl());
        found.push(compare("p99 E2E", ends.p99, percentile(&e2e, 0.99), 0.10));
        found.push(compare("median ITL", gaps.p50, itl.percentile(0.5), 0.05));
        found.push(compare("p99 ITL", gaps.p99, itl.percentile(0.99), 0.15));
    }
    found.into_iter().flatten().map(|found| format!("{case:?} at {rho}: {found}")).collect()
}

#[test]
fn open_loops_agree_with_the_simulation_up_to_four_fifths_of_the_capacity() {
    let mut wrong = Vec::new();
    for case in &CASES {
        for rho in [0.3, 0.6, 0.8] {
            // The number of requests in the system relaxes slowly near saturation: means of the simulation scatter by 2 % there.
            let means = if rho < 0.7 { 0.03 } else { 0.05 };
            let bounds = Bounds { ttft: means + 0.01, p99_ttft: 0.13, tpot: means, p99_tpot: 0.10, e2e: means };
            wrong.extend(compare_open_loop(case, rho, &bounds));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Loads of long prompts and short answers: steps have room for one prompt or two, and most of the time they are full.
#[test]
fn open_loops_of_mostly_prompts_agree_with_the_simulation() {
    let cases: [Case; 5] = [
        ("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "vllm-2026", 4000, 40, 0.0),
        ("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "sglang-2026", 4000, 40, 0.0),
        ("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "vllm-2026", 4000, 400, 0.5),
        ("qwen2.5-coder-7b", "bf16", "rtx-4090-24gb", 1, "vllm-2026", 2000, 30, 0.0),
        ("llama-3.1-70b", "fp8", "h100-sxm-80gb", 4, "vllm-2026", 3000, 100, 0.3),
    ];
    let mut wrong = Vec::new();
    for case in &cases {
        for (rho, ttft, tpot) in [(0.3, 0.02, 0.03), (0.6, 0.04, 0.05), (0.8, 0.07, 0.07)] {
            let bounds = Bounds { ttft, p99_ttft: 0.20, tpot, p99_tpot: 0.18, e2e: 0.06 };
            wrong.extend(compare_open_loop(case, rho, &bounds));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn closed_loops_agree_with_the_simulation() {
    let mut wrong = Vec::new();
    for case in &CASES {
        let model = model(case);
        let server = Server::new(&model, &lengths(case)).unwrap();
        for concurrency in [1, 4, 16, 64] {
            let state = server.closed_loop(concurrency as f64, Seconds::ZERO, &Slo::default()).unwrap().summary;
            let count = concurrency * 40;
            let clients = Arrivals::Closed {
                concurrency,
                think: Seconds::ZERO,
                lengths: asked(case, count),
                start: Start::Spread,
            };
            let run = Simulation { cut: 0.2, ..simulation(&model, &server) }.run(&clients);
            let simulated = run.steady.output_tps_total();
            let off = state.output_tps_total.unwrap() / simulated - 1.0;
            // Few requests of random lengths are not the mean ones.
            let bound = if case.7 > 0.0 && concurrency < 16 { 0.06 } else { 0.03 };
            if off.abs() > bound {
                wrong.push(format!("{case:?} with {concurrency}: output {:+.1} %", 100.0 * off));
            }
            let found = compare("mean TPOT", state.tpot.unwrap().mean, mean(&run.tpot()), bound);
            wrong.extend(found.map(|found| format!("{case:?} with {concurrency}: {found}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
