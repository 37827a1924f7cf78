//! The reference simulation of the tests, against what is known exactly: single requests, schedules traced by hand, queueing theory.

#[path = "common/stepping/mod.rs"]
mod stepping;

use llm_roofline::prelude::*;
use llm_roofline::step::StepLoad;
use stepping::*;

const POLICIES: [Policy; 3] =
    [Policy::Mixed { budget: 8192 }, Policy::PromptsFirst { budget: 8192 }, Policy::WholeBatch];

fn compiled(model: &str, engine: &str) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let deployment = Deployment::new(catalog.model(model).unwrap(), system);
    StepModel::compile(&deployment.with_engine(catalog.engine(engine).unwrap())).unwrap()
}

fn llama() -> StepModel {
    compiled("llama-3.1-8b", "ideal")
}

/// The price of a step of prompt chunks `(cached, new, emits)` and decoding sequences with these contexts.
fn price(model: &StepModel, chunks: &[(u64, u64, bool)], contexts: &[u64]) -> Seconds {
    let mut load: StepLoad = model.load();
    chunks.iter().for_each(|&(cached, new, emits)| load.add_prefill(cached, new, emits));
    contexts.iter().for_each(|&context| load.add_decode(context, 1, 1.0));
    model.cost(&load).total()
}

#[track_caller]
fn assert_close(value: Seconds, expected: Seconds, tolerance: f64) {
    let error = value / expected - 1.0;
    assert!(error.abs() <= tolerance, "{value} instead of {expected}: {:.4} %", 100.0 * error);
}

fn seconds(seconds: f64) -> Seconds {
    Seconds::from_seconds(seconds)
}

#[test]
fn a_single_request_is_answered_as_if_alone() {
    // Full attention, sliding windows; one step for a prompt, or chunks of 8192 tokens.
    for (model, engine) in [("llama-3.1-8b", "ideal"), ("gemma-3-12b", "ideal"), ("llama-3.1-8b", "vllm-2026")] {
        let model = compiled(model, engine);
        let budget = model.deployment().engine().scheduling.max_tokens_per_step.as_ref().map_or(1 << 20, |of| of.value);
        for policy in [Policy::Mixed { budget }, Policy::PromptsFirst { budget }, Policy::WholeBatch] {
            for lengths in [Lengths::new(1, 1), Lengths::new(3000, 400), Lengths::new(5000, 2).with_cached(4000)] {
                let outcome = Simulation::new(&model, policy).run(&Arrivals::Open(vec![(seconds(5.0), lengths)]));
                let request = Request::new(lengths.prompt, lengths.output).with_cached_prompt_tokens(lengths.cached);
                let expected = model.request(&request).unwrap();
                let served = outcome.requests[0];
                assert_eq!((served.arrival, served.admitted), (seconds(5.0), seconds(5.0)));
                if model.prefill_steps(&request) == 1 || matches!(policy, Policy::Mixed { .. }) {
                    assert_close(served.ttft(), expected.ttft, 1e-10);
                }
                assert_eq!(served.tpot().is_some(), expected.tpot.is_some());
                if let (Some(tpot), Some(expected)) = (served.tpot(), expected.tpot) {
                    assert_close(tpot, expected, 1e-10);
                }
            }
        }
    }
}

#[test]
fn long_prompts_are_chunked_as_those_of_a_single_request() {
    let model = compiled("llama-3.1-8b", "vllm-2026");
    let budget = model.deployment().engine().scheduling.max_tokens_per_step.as_ref().unwrap().value;
    let request = Request::new(3 * budget + 100, 5);
    assert_eq!(model.prefill_steps(&request), 4);
    let simulation = Simulation::new(&model, Policy::Mixed { budget });
    let outcome = simulation.run(&Arrivals::Offline(vec![Lengths::new(3 * budget + 100, 5)]));
    assert_close(outcome.requests[0].e2e(), model.request(&request).unwrap().e2e, 1e-10);
    assert_eq!(outcome.whole.steps, 4 + 4);
}

#[test]
fn one_client_is_always_alone() {
    let model = llama();
    let lengths = vec![Lengths::new(700, 30), Lengths::new(20, 1), Lengths::new(4000, 90).with_cached(512)];
    let (front_end, think) = (seconds(0.02), seconds(0.5));
    for policy in POLICIES {
        let arrivals = Arrivals::Closed { concurrency: 1, think, lengths: lengths.clone(), start: Start::Burst };
        for async_scheduling in [false, true] {
            let outcome = Simulation { front_end, async_scheduling, ..Simulation::new(&model, policy) }.run(&arrivals);
            let mut arrival = Seconds::ZERO;
            for (served, lengths) in outcome.requests.iter().zip(&lengths) {
                let request = Request::new(lengths.prompt, lengths.output).with_cached_prompt_tokens(lengths.cached);
                let expected = model.request(&request).unwrap();
                assert!((served.arrival - arrival).as_seconds().abs() < 1e-9);
                assert_close(served.ttft(), expected.ttft + front_end, 1e-9);
                assert_close(served.e2e(), expected.e2e + front_end, 1e-9);
                arrival = served.last_token + think;
            }
        }
    }
}

#[test]
fn a_batch_that_fits_is_one_prefill_and_one_run_of_decode_steps() {
    let model = llama();
    let arrivals = Arrivals::Offline(vec![Lengths::new(100, 60); 40]);
    for policy in POLICIES {
        let outcome = Simulation::new(&model, policy).run(&arrivals);
        let expected = model.request(&Request::new(100, 60).with_batch(40)).unwrap();
        for served in &outcome.requests {
            assert_close(served.ttft(), expected.ttft, 1e-10);
            assert_close(served.e2e(), expected.e2e, 1e-10);
        }
        assert_close(outcome.whole.busy, outcome.whole.time, 1e-12);
        assert_eq!((outcome.whole.steps, outcome.whole.output_tokens), (60, 40 * 60));
    }
}

#[test]
fn mixed_steps_as_traced_by_hand() {
    let model = llama();
    let lengths = vec![Lengths::new(10, 3), Lengths::new(5, 2), Lengths::new(9, 1).with_cached(1)];
    let simulation = Simulation { max_sequences: 8, ..Simulation::new(&model, Policy::Mixed { budget: 8 }) };
    let outcome = simulation.run(&Arrivals::Offline(lengths));
    let steps = [
        price(&model, &[(0, 8, false)], &[]),
        // One token of the third prompt fits beside the rest of the first and the second.
        price(&model, &[(8, 2, true), (0, 5, true), (1, 1, false)], &[]),
        price(&model, &[(2, 6, false)], &[10, 5]),
        price(&model, &[(8, 1, true)], &[11]),
    ];
    let end = |count: usize| steps[..count].iter().copied().sum::<Seconds>();
    let times: Vec<_> = outcome.requests.iter().map(|of| (of.admitted, of.first_token, of.last_token)).collect();
    assert_eq!(
        times,
        [(Seconds::ZERO, end(2), end(4)), (end(1), end(2), end(3)), (end(1), end(4), end(4))],
        "{steps:?}"
    );
    let gaps = outcome.itl();
    assert_eq!(gaps.count, 3);
    assert_close(gaps.percentile(1.0), steps[2].max(steps[3]), 1e-12);
    assert_close(gaps.percentile(0.0), steps[2].min(steps[3]), 1e-12);
}

#[test]
fn decoding_stalls_while_prompts_come_first() {
    let model = llama();
    let (first, second) = (Lengths::new(100, 3), Lengths::new(3000, 2));
    let prompt = price(&model, &[(0, 100, true)], &[]);
    // The second request arrives in the middle of the first decode step.
    let arrival = prompt + price(&model, &[], &[100]) * 0.5;
    let arrivals = Arrivals::Open(vec![(Seconds::ZERO, first), (arrival, second)]);
    let simulation = Simulation::new(&model, Policy::PromptsFirst { budget: 500 });
    let outcome = simulation.run(&arrivals);
    let (stall, both) = (price(&model, &[(0, 3000, true)], &[]), price(&model, &[], &[101, 3000]));
    let start = prompt + price(&model, &[], &[100]);
    let [first, second] = outcome.requests[..] else { panic!() };
    assert_eq!((second.admitted, second.first_token), (start, start + stall));
    assert_eq!((first.last_token, second.last_token), (start + stall + both, start + stall + both));
    assert_close(outcome.itl().percentile(1.0), stall + both, 1e-12);
    // One request waits for half a step.
    assert_close(second.wait(), price(&model, &[], &[100]) * 0.5, 1e-12);
    assert_close(outcome.whole.time * outcome.whole.waiting, second.wait(), 1e-9);
}

#[test]
fn whole_prompts_share_a_budget() {
    let model = llama();
    // The first exceeds the budget and runs alone, the next three fill it.
    let lengths = [(700, 0), (200, 0), (200, 0), (200, 150), (1, 0)];
    let lengths = lengths.map(|(prompt, cached)| Lengths::new(prompt, 1).with_cached(cached));
    let outcome =
        Simulation::new(&model, Policy::PromptsFirst { budget: 450 }).run(&Arrivals::Offline(lengths.to_vec()));
    let steps = [
        price(&model, &[(0, 700, true)], &[]),
        price(&model, &[(0, 200, true), (0, 200, true), (150, 50, true)], &[]),
        price(&model, &[(0, 1, true)], &[]),
    ];
    let end = |count: usize| steps[..count].iter().copied().sum::<Seconds>();
    let first: Vec<_> = outcome.requests.iter().map(|served| served.first_token).collect();
    assert_eq!(first, [end(1), end(2), end(2), end(2), end(3)]);
}

#[test]
fn preemption_as_traced_by_hand() {
    let model = llama();
    let two = [Lengths::new(4, 4); 2];
    let three = [two[0], two[1], Lengths::new(3, 1)];
    let prompts = price(&model, &[(0, 4, true), (0, 4, true)], &[]);
    let steps = [
        prompts,
        // Ten tokens are held after this step. The second request gives way, and its prompt and two tokens are computed again. The third one
        // would have had room before.
        price(&model, &[], &[4, 4]),
        price(&model, &[], &[5]),
        price(&model, &[], &[6]),
        price(&model, &[(0, 6, true), (0, 3, true)], &[]),
        price(&model, &[], &[6]),
    ];
    let end = |count: usize| steps[..count].iter().copied().sum::<Seconds>();
    for policy in [Policy::Mixed { budget: 256 }, Policy::PromptsFirst { budget: 256 }] {
        let outcome = Simulation { cache_tokens: 10.0, ..Simulation::new(&model, policy) }
            .run(&Arrivals::Offline(three.to_vec()));
        let times: Vec<_> = outcome.requests.iter().map(|of| (of.first_token, of.last_token, of.preemptions)).collect();
        assert_eq!(times, [(end(1), end(4), 0), (end(1), end(6), 1), (end(5), end(5), 0)], "{steps:?}");
        assert_eq!((outcome.whole.steps, outcome.whole.output_tokens), (6, 9));
        assert_eq!((outcome.requests[1].admitted, outcome.requests[2].admitted), (Seconds::ZERO, end(4)));
        // Whoever reserves what an answer will take has one after the other.
        let reserving = Simulation { cache_tokens: 10.0, reserve_output: true, ..Simulation::new(&model, policy) };
        let outcome = reserving.run(&Arrivals::Offline(two.to_vec()));
        assert_eq!((outcome.whole.steps, outcome.preemptions()), (8, 0));
        assert_eq!(outcome.requests[1].admitted, outcome.requests[0].last_token);
        assert!((outcome.whole.cache_tokens - 8.0).abs() < 1e-9);
    }
}

#[test]
fn a_whole_batch_waits_for_its_longest_answer() {
    let model = llama();
    let lengths = vec![Lengths::new(4, 2), Lengths::new(6, 4), Lengths::new(8, 1)];
    let two = Simulation { max_sequences: 2, ..Simulation::new(&model, Policy::WholeBatch) };
    let outcome = two.run(&Arrivals::Offline(lengths.clone()));
    let steps = [
        price(&model, &[(0, 4, true), (0, 6, true)], &[]),
        price(&model, &[], &[4, 6]),
        // The first answer has ended and is computed on.
        price(&model, &[], &[5, 7]),
        price(&model, &[], &[6, 8]),
        price(&model, &[(0, 8, true)], &[]),
    ];
    let end = |count: usize| steps[..count].iter().copied().sum::<Seconds>();
    let last: Vec<_> = outcome.requests.iter().map(|served| served.last_token).collect();
    assert_eq!(last, [end(2), end(4), end(5)]);
    assert_eq!((outcome.requests[2].admitted, outcome.whole.output_tokens), (end(4), 7));
    // Memory for two prompts of 10 tokens in all and twice the longest answer, not for three prompts: the same batches.
    let small = Simulation { cache_tokens: 18.0, ..Simulation::new(&model, Policy::WholeBatch) };
    assert_eq!(small.run(&Arrivals::Offline(lengths.clone())).requests, outcome.requests);
    let smaller = Simulation { cache_tokens: 17.0, ..small }.run(&Arrivals::Offline(lengths));
    assert_eq!(smaller.requests[1].admitted, smaller.requests[0].last_token);
}

#[test]
fn asynchronous_scheduling_misses_one_step() {
    let model = llama();
    let prompt = price(&model, &[(0, 100, true)], &[]);
    let arrival = prompt + price(&model, &[], &[100]) * 0.5;
    let arrivals = Arrivals::Open(vec![(Seconds::ZERO, Lengths::new(100, 9)), (arrival, Lengths::new(50, 1))]);
    for policy in [Policy::Mixed { budget: 256 }, Policy::PromptsFirst { budget: 256 }] {
        let admitted = [false, true].map(|async_scheduling| {
            Simulation { async_scheduling, ..Simulation::new(&model, policy) }.run(&arrivals).requests[1].admitted
        });
        let next = prompt + price(&model, &[], &[100]);
        assert_eq!(admitted, [next, next + price(&model, &[], &[101])]);
    }
}

/// Pollaczek and Khinchine: the mean wait of M/D/1 is `rho S / (2 (1 - rho))` (Kleinrock, Queueing Systems I, 1975, section 5.6).
#[test]
fn one_place_is_a_single_server_with_fixed_service_times() {
    let model = llama();
    for (output, rho, seed) in [(1, 0.6, 1), (1, 0.8, 2), (10, 0.6, 3)] {
        let service = model.request(&Request::new(500, output)).unwrap().e2e;
        let rate = RequestsPerSecond::from_requests_per_second(rho / service.as_seconds());
        let count = 300_000 / output as usize;
        let arrivals = Arrivals::open(poisson(rate, count, seed), vec![Lengths::new(500, output); count]);
        let expected = service * (rho / (2.0 * (1.0 - rho)));
        for policy in POLICIES {
            let simulation = Simulation { max_sequences: 1, cut: 0.01, ..Simulation::new(&model, policy) };
            let outcome = simulation.run(&arrivals);
            // Several standard errors of the mean of correlated waits.
            assert_close(mean(&outcome.wait()), expected, if output == 1 { 0.04 } else { 0.08 });
            assert_close(mean(&outcome.e2e()), expected + service, if output == 1 { 0.03 } else { 0.06 });
            // Utilisation, and Little's law for the queue.
            assert!((outcome.steady.busy / outcome.steady.time / rho - 1.0).abs() < 0.03);
            let waits = rate.requests_in(mean(&outcome.wait()));
            assert!((outcome.steady.waiting / waits - 1.0).abs() < 0.03, "{} {waits}", outcome.steady.waiting);
        }
    }
}

/// The interactive response time law: `N = X (R + Z)` (Lazowska et al., Quantitative System Performance, 1984, chapter 3).
#[test]
fn clients_are_either_served_or_think() {
    let model = llama();
    let mut random = Random::new(7);
    let lengths: Vec<_> = (0..4000).map(|_| Lengths::new(random.between(50, 900), random.between(1, 60))).collect();
    let think = seconds(0.05);
    for policy in POLICIES {
        for start in [Start::Burst, Start::Ramp(seconds(1.0)), Start::Spread] {
            let arrivals = Arrivals::Closed { concurrency: 12, think, lengths: lengths.clone(), start };
            let simulation = Simulation { max_sequences: 8, cut: 0.1, ..Simulation::new(&model, policy) };
            let outcome = simulation.run(&arrivals);
            let rate = outcome.steady.answered as f64 / outcome.steady.time.as_seconds();
            let clients = rate * (mean(&outcome.e2e()) + think).as_seconds();
            assert!((clients / 12.0 - 1.0).abs() < 0.01, "{clients}");
            let Averages { running, waiting, .. } = outcome.steady;
            // In a whole batch, answers that have ended keep their places while their clients think or wait again.
            let most = if policy == Policy::WholeBatch { 12.0 + 7.0 } else { 12.0 };
            assert!(running <= 8.0 + 1e-9 && running + waiting <= most, "{policy:?} {start:?}: {running} {waiting}");
        }
    }
}

#[test]
fn nothing_is_lost() {
    let model = compiled("gemma-3-12b", "ideal");
    let mut preempted = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut length = || {
            let prompt = random.between(1, 300);
            Lengths::new(prompt, random.geometric(40.0).min(200)).with_cached(random.between(0, prompt - 1))
        };
        let lengths: Vec<_> = (0..100).map(|_| length()).collect();
        let policy = [Policy::Mixed { budget: random.between(16, 600) }, POLICIES[1], POLICIES[2]][seed as usize % 3];
        let simulation = Simulation {
            max_sequences: random.between(1, 16) as usize,
            cache_tokens: random.between(500, 3000) as f64,
            front_end: seconds(random.unit() * 0.01),
            reserve_output: seed % 5 == 0,
            async_scheduling: seed % 2 == 0,
            ..Simulation::new(&model, policy)
        };
        let arrivals = match random.between(0, 2) {
            0 => Arrivals::Offline(lengths.clone()),
            1 => Arrivals::open(poisson(RequestsPerSecond::from_requests_per_second(20.0), 100, seed), lengths.clone()),
            _ => {
                let (concurrency, think) = (random.between(1, 30) as usize, seconds(random.unit() * 0.1));
                Arrivals::Closed { concurrency, think, lengths: lengths.clone(), start: Start::Spread }
            }
        };
        let outcome = simulation.run(&arrivals);
        assert_eq!(outcome, simulation.run(&arrivals));
        check_conservation(&simulation, &lengths, &outcome);
        preempted += outcome.preemptions();
    }
    assert!(preempted > 100, "{preempted} preemptions test nothing");
}

fn check_conservation(simulation: &Simulation<'_>, lengths: &[Lengths], outcome: &Outcome) {
    let Outcome { requests, whole, .. } = outcome;
    let total = |value: &dyn Fn(&Served) -> Seconds| requests.iter().map(value).sum::<Seconds>();
    let tokens: u64 = lengths.iter().map(|lengths| lengths.output).sum();
    assert_eq!((requests.len(), whole.answered, whole.output_tokens), (lengths.len(), lengths.len() as u64, tokens));
    for (served, lengths) in requests.iter().zip(lengths) {
        assert_eq!((served.prompt, served.output), (lengths.prompt, lengths.output));
        assert!(served.arrival + simulation.front_end <= served.admitted);
        assert!(served.admitted < served.first_token && served.first_token <= served.last_token);
    }
    assert!(requests.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival));
    assert!(requests.windows(2).all(|pair| pair[0].admitted <= pair[1].admitted), "first come, first served");
    let gaps = outcome.itl();
    assert_eq!(gaps.count, tokens - lengths.len() as u64);
    assert_close(gaps.mean() * gaps.count as f64, total(&|of| of.last_token - of.first_token), 1e-9);
    assert!(whole.busy <= whole.time * (1.0 + 1e-12) && whole.decoding <= whole.running);
    assert!(whole.running <= simulation.max_sequences as f64 && whole.cache_tokens <= simulation.cache_tokens);
    // Little's law, exact over a whole run. Preempted requests wait again; places of a whole batch are kept to its end.
    let in_system = whole.time * (whole.running + whole.waiting);
    let residence = total(&|of| of.e2e() - simulation.front_end);
    if simulation.policy == Policy::WholeBatch {
        assert!(in_system >= residence * (1.0 - 1e-9));
        return;
    }
    assert_close(in_system, residence, 1e-9);
    if outcome.preemptions() == 0 {
        assert_close(whole.time * whole.running, total(&|of| of.last_token - of.admitted), 1e-9);
    }
    assert!(!simulation.reserve_output || outcome.preemptions() == 0);
}

#[test]
fn percentiles_interpolate_as_numpy_does() {
    // numpy.percentile([1, 2, 3, 4], [0, 50, 99, 100]) = [1, 2.5, 3.97, 4]
    let values = [1.0, 2.0, 3.0, 4.0].map(seconds);
    let percentiles = [0.0, 0.5, 0.99, 1.0].map(|share| percentile(&values, share).as_seconds());
    for (value, expected) in percentiles.into_iter().zip([1.0, 2.5, 3.97, 4.0]) {
        assert!((value - expected).abs() < 1e-12, "{value} instead of {expected}");
    }
}

/// The generator against its authors' C code (prng.di.unimi.it/splitmix64.c) with state 1234567, and the moments of what is drawn.
#[test]
fn random_numbers_are_those_of_the_published_generator() {
    let mut random = Random::new(1_234_567);
    let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    assert_eq!([random.bits(), random.bits(), random.bits()], first);
    let count = 200_000;
    let exponential = (0..count).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(count);
    let geometric = (0..count).map(|_| random.geometric(20.0) as f64).sum::<f64>() / f64::from(count);
    let uniform = (0..count).map(|_| random.between(10, 19) as f64).sum::<f64>() / f64::from(count);
    assert!((exponential - 3.0).abs() < 0.04 && (geometric - 20.0).abs() < 0.25 && (uniform - 14.5).abs() < 0.04);
}
