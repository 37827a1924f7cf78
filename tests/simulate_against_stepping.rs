//! The simulation that leaps against one that goes step by step and shares nothing with it but the step model: the same times for every request.
#![cfg(feature = "random")]

#[path = "common/stepping/mod.rs"]
mod stepping;

use llm_roofline::engine::PromptPolicy;
use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{CompletedRequest, EngineSettings, Outcome, Simulation};
use llm_roofline::workload::{Trace, TraceRequest, Workload};
use stepping::{Arrivals, Lengths as Asked, Policy, Random, Served, Start, poisson};

/// A deployment whose engine has neither a front end nor a scheduler that plans ahead, unless `waits`.
fn model(model: &str, device: &str, count: u32, engine: &str, waits: bool) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    let mut engine = Engine::clone(&catalog.engine(engine).unwrap());
    engine.host.per_request = None;
    if !waits {
        engine.scheduling.prompt_wait_steps = None;
    }
    let deployment = Deployment::new(catalog.model(model).unwrap(), system).with_engine(engine);
    StepModel::compile(&deployment).unwrap()
}

/// Requests of random lengths around a mean.
fn asked(count: usize, prompt: u64, output: u64, seed: u64) -> Vec<Asked> {
    let mut random = Random::new(seed);
    let mut around = |tokens: u64| (tokens as f64 * (0.1 + 1.8 * random.unit())).round().max(1.0) as u64;
    (0..count).map(|_| Asked::new(around(prompt), around(output))).collect()
}

fn trace(times: &[Seconds], asked: &[Asked]) -> Trace {
    let request = |(arrival, asked): (&Seconds, &Asked)| TraceRequest {
        arrival: *arrival,
        prompt_tokens: asked.prompt,
        output_tokens: asked.output,
        cached_tokens: asked.cached,
        block_hashes: Vec::new(),
    };
    Trace::new(times.iter().zip(asked).map(request).collect()).unwrap()
}

fn settings(max_sequences: usize, cache_tokens: u64) -> EngineSettings {
    let mut settings = EngineSettings::default();
    settings.max_sequences = Some(max_sequences as u64);
    settings.block_tokens = Some(1);
    settings.kv_blocks = Some(cache_tokens);
    // The other simulation computes again whatever was preempted, and fills the cache to its last token.
    settings.prefix_caching = Some(false);
    settings.watermark = Some(0.0);
    settings
}

/// Every time of every request, to 1e-9 of the times themselves.
fn same(found: &CompletedRequest, judged: &Served) -> Result<(), String> {
    let pairs = [
        (found.arrival, judged.arrival),
        (found.admitted, judged.admitted),
        (found.first_token, judged.first_token),
        (found.last_token, judged.last_token),
    ];
    for (own, other) in pairs {
        if (own - other).as_seconds().abs() > 1e-9 * other.as_seconds().max(1e-3) {
            return Err(format!("{found:?}\n{judged:?}"));
        }
    }
    let counts = (found.prompt_tokens, found.output_tokens, found.preemptions);
    if counts == (judged.prompt, judged.output, judged.preemptions) {
        Ok(())
    } else {
        Err(format!("{counts:?} {judged:?}"))
    }
}

fn compare(what: &str, outcome: &Outcome, judge: &stepping::Outcome) {
    let requests = outcome.statistics.requests.as_ref().unwrap();
    assert_eq!(requests.len(), judge.requests.len(), "{what}");
    for (found, judged) in requests.iter().zip(&judge.requests) {
        same(found, judged).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    }
    assert_eq!(outcome.steps, judge.whole.steps, "{what}: steps");
    assert_eq!(outcome.output_tokens, judge.whole.output_tokens, "{what}: tokens");
    if outcome.statistics.left_out_at_start + outcome.statistics.left_out_at_end > 0 {
        return;
    }
    let [own, others] = [outcome.statistics.itl.as_ref().unwrap().histogram.mean().unwrap(), judge.itl().mean()];
    assert!((own / others - 1.0).abs() < 1e-6, "{what}: mean gap {own} and {others}");
}

struct Case {
    model: &'static str,
    device: &'static str,
    count: u32,
    engine: &'static str,
    prompt: u64,
    output: u64,
    rate: f64,
    places: usize,
    cache: u64,
    waits: bool,
}

const CASES: [Case; 9] = [
    Case {
        model: "llama-3.1-8b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "vllm-2026",
        prompt: 1000,
        output: 200,
        rate: 8.0,
        places: 256,
        cache: 400_000,
        waits: false,
    },
    Case {
        model: "llama-3.1-8b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "vllm-2026",
        prompt: 1000,
        output: 200,
        rate: 20.0,
        places: 256,
        cache: 400_000,
        waits: true,
    },
    // Few places, then a small cache: requests wait and are preempted.
    Case {
        model: "llama-3.1-8b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "vllm-2026",
        prompt: 500,
        output: 300,
        rate: 12.0,
        places: 16,
        cache: 400_000,
        waits: true,
    },
    Case {
        model: "llama-3.1-8b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "vllm-2026",
        prompt: 300,
        output: 400,
        rate: 10.0,
        places: 256,
        cache: 9_000,
        waits: false,
    },
    // Prompts of several chunks.
    Case {
        model: "llama-3.1-8b",
        device: "l40s-48gb",
        count: 1,
        engine: "vllm-2026",
        prompt: 6000,
        output: 100,
        rate: 0.6,
        places: 64,
        cache: 100_000,
        waits: true,
    },
    Case {
        model: "llama-3.1-8b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "sglang-2026",
        prompt: 1000,
        output: 200,
        rate: 10.0,
        places: 256,
        cache: 400_000,
        waits: true,
    },
    Case {
        model: "llama-3.1-8b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "vllm-2024",
        prompt: 800,
        output: 400,
        rate: 10.0,
        places: 256,
        cache: 20_000,
        waits: false,
    },
    // Windows of 128 and 1024 tokens, where sums over contexts bend; chunks of 8192 are in the unit tests.
    Case {
        model: "gpt-oss-20b",
        device: "h100-sxm-80gb",
        count: 1,
        engine: "vllm-2026",
        prompt: 200,
        output: 300,
        rate: 15.0,
        places: 128,
        cache: 10_000_000,
        waits: false,
    },
    Case {
        model: "gemma-3-27b",
        device: "h100-sxm-80gb",
        count: 2,
        engine: "vllm-2026",
        prompt: 900,
        output: 300,
        rate: 4.0,
        places: 128,
        cache: 10_000_000,
        waits: true,
    },
];

#[test]
fn every_request_has_the_times_of_a_simulation_step_by_step() {
    for case in &CASES {
        let Case { prompt, output, rate, places, cache, waits, .. } = *case;
        let what = format!("{} {} {prompt}/{output} at {rate}", case.model, case.engine);
        let model = model(case.model, case.device, case.count, case.engine, waits);
        let (count, budget) = (1500, model.deployment().max_tokens_per_step().unwrap());
        let policy = match model.deployment().engine().scheduling.prompts.as_ref().map(|rule| rule.value) {
            Some(PromptPolicy::First) => Policy::PromptsFirst { budget },
            _ => Policy::Mixed { budget },
        };
        let times = poisson(RequestsPerSecond::from_requests_per_second(rate), count, 3);
        let lengths = asked(count, prompt, output, 5);
        let judge = stepping::Simulation {
            max_sequences: places,
            cache_tokens: cache as f64,
            async_scheduling: waits,
            ..stepping::Simulation::new(&model, policy)
        };
        let judge = judge.run(&Arrivals::open(times.clone(), lengths.clone()));
        let trace = trace(&times, &lengths);
        let simulation = Simulation::new(&model).with_settings(settings(places, cache)).keep_requests();
        compare(&what, &simulation.replay(&trace).unwrap(), &judge);
        compare(&format!("{what}, stepping"), &simulation.stepping().replay(&trace).unwrap(), &judge);
        println!("{what}: {} preemptions", judge.preemptions());
    }
}

#[test]
fn clients_that_wait_have_the_times_of_a_simulation_step_by_step() {
    let model = model("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026", true);
    let budget = model.deployment().max_tokens_per_step().unwrap();
    for (concurrency, think) in [(1, 0.0), (16, 0.0), (64, 1.5)] {
        let count = concurrency * 20;
        let lengths = vec![Asked::new(700, 150); count];
        let think = Seconds::from_seconds(think);
        let clients = Arrivals::Closed { concurrency, think, lengths, start: Start::Burst };
        let judge = stepping::Simulation {
            async_scheduling: true,
            ..stepping::Simulation::new(&model, Policy::Mixed { budget })
        };
        let lengths = llm_roofline::workload::Lengths::fixed(700, 150).unwrap();
        let arrivals = llm_roofline::workload::Arrivals::closed_loop_with(concurrency as u64, think, None).unwrap();
        let outcome = Simulation::new(&model).with_settings(settings(256, 10_000_000)).keep_requests();
        let outcome = outcome.run(&Workload::new(arrivals, lengths), count as u64).unwrap();
        compare(&format!("{concurrency} clients"), &outcome, &judge.run(&clients));
    }
}

#[test]
fn static_batches_have_the_times_of_a_simulation_step_by_step() {
    let mut engine = Engine::clone(&Catalog::embedded().engine("vllm-2026").unwrap());
    engine.host.per_request = None;
    engine.scheduling.prompt_wait_steps = None;
    engine.scheduling.max_tokens_per_step = None;
    engine.scheduling.prompts = Catalog::embedded().engine("transformers").unwrap().scheduling.prompts.clone();
    let system = System::new(Catalog::embedded().device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let deployment = Deployment::new(Catalog::embedded().model("llama-3.1-8b").unwrap(), system).with_engine(engine);
    let model = StepModel::compile(&deployment).unwrap();
    let (times, lengths) = (poisson("3 req/s".parse().unwrap(), 600, 3), asked(600, 500, 150, 5));
    let judge = stepping::Simulation {
        max_sequences: 24,
        cache_tokens: 20_000.0,
        ..stepping::Simulation::new(&model, Policy::WholeBatch)
    };
    let judge = judge.run(&Arrivals::open(times.clone(), lengths.clone()));
    let simulation = Simulation::new(&model).with_settings(settings(24, 20_000)).keep_requests();
    compare("static batches", &simulation.replay(&trace(&times, &lengths)).unwrap(), &judge);
}

/// A request that is alone has the times of the closed form, whatever the engine.
#[test]
fn one_request_at_a_time_is_an_unloaded_request() {
    for (name, device, count, engine) in [
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "ideal"),
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026"),
        ("llama-3.1-70b", "h100-sxm-80gb", 4, "tensorrt-llm-2026"),
        ("gpt-oss-20b", "h100-sxm-80gb", 1, "sglang-2026"),
        ("qwen3-30b-a3b", "h100-sxm-80gb", 1, "vllm-2024"),
        ("llama-3.1-8b", "rtx-4090-24gb", 1, "llama-cpp-cuda-2026"),
        ("llama-4-scout", "h200-sxm-141gb", 8, "vllm-2026"),
    ] {
        let model = model(name, device, count, engine, true);
        for (prompt, output) in [(1, 1), (700, 1), (700, 300), (9000, 20)] {
            let alone = model.request(&Request::new(prompt, output)).unwrap();
            let lengths = llm_roofline::workload::Lengths::fixed(prompt, output).unwrap();
            let clients = Workload::closed_loop(1, lengths).unwrap();
            let outcome = Simulation::new(&model).keep_requests().run(&clients, 3).unwrap();
            for request in outcome.statistics.requests.as_ref().unwrap() {
                let off = |found: Seconds, expected: Seconds| (found / expected - 1.0).abs();
                assert!(off(request.ttft(), alone.ttft) < 1e-9, "{name} {engine} {prompt}: {}", request.ttft());
                assert!(off(request.e2e(), alone.e2e) < 1e-9, "{name} {engine} {output}: {}", request.e2e());
            }
        }
    }
}
