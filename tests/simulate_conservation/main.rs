//! What every simulation must keep, whatever it simulates: requests, tokens and time are neither lost nor made up, and leaping over steps gives the
//! times of taking them one by one.
#![cfg(feature = "random")]

mod runs;
mod setup;

use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{CompletedRequest, Outcome, Simulation};
use llm_roofline::workload::{Trace, TraceRequest};
use proptest::prelude::*;
use setup::{Fleet, OTHER, REQUESTS, Setup, model, setup};

/// Nothing is lost, nothing is made up.
fn conserves(setup: &Setup, outcome: &Outcome) -> Result<(), TestCaseError> {
    let statistics = &outcome.statistics;
    let requests = statistics.requests.as_ref().unwrap();
    prop_assert_eq!((outcome.arrived, outcome.completed, requests.len() as u64), (REQUESTS, REQUESTS, REQUESTS));
    prop_assert!(requests.iter().zip(0..).all(|(request, id)| request.id == id), "ids are those of arrivals");
    let sum = |of: fn(&CompletedRequest) -> u64| requests.iter().map(of).sum::<u64>();
    prop_assert_eq!(outcome.output_tokens, sum(|request| request.output_tokens));
    let replicas = &outcome.replicas;
    prop_assert_eq!(replicas.iter().map(|replica| replica.completed).sum::<u64>(), REQUESTS);
    prop_assert_eq!(replicas.iter().map(|replica| replica.steps).sum::<u64>(), outcome.steps);
    prop_assert_eq!(replicas.iter().map(|replica| replica.output_tokens).sum::<u64>(), outcome.output_tokens);
    if statistics.left_out_at_end == 0 {
        prop_assert_eq!(replicas.iter().map(|replica| replica.preemptions).sum::<u64>(), statistics.preemptions);
    }
    prop_assert!(replicas.iter().all(|replica| replica.busy <= outcome.time * (1.0 + 1e-9)));
    let processed: u64 = replicas.iter().map(|replica| replica.prompt_tokens + replica.cached_tokens).sum();
    let (prompts, again) = (sum(|request| request.prompt_tokens), sum(|request| u64::from(request.preemptions)));
    prop_assert!(processed >= prompts, "{processed} prompt tokens processed of {prompts}");
    if again == 0 && setup.outages().is_empty() {
        prop_assert_eq!(processed, prompts, "prompt tokens");
        let cached: u64 = replicas.iter().map(|replica| replica.cached_tokens).sum();
        prop_assert_eq!(cached, sum(|request| request.cached_tokens), "cached tokens");
    }
    let last =
        requests.iter().map(|request| request.last_token).max_by(|a, b| a.as_seconds().total_cmp(&b.as_seconds()));
    prop_assert_eq!(Some(outcome.time), last, "the run ends with its last token");
    for share in [statistics.kv_utilization, statistics.utilization] {
        prop_assert!(
            (0.0..=1.0 + 1e-9).contains(&share),
            "shares {} {}",
            statistics.kv_utilization,
            statistics.utilization
        );
    }
    for request in requests {
        in_order(setup, request)?;
    }
    gaps_add_up(outcome)
}

/// Stages follow each other, and no prompt is computed faster than alone.
fn in_order(setup: &Setup, request: &CompletedRequest) -> Result<(), TestCaseError> {
    let CompletedRequest { arrival, admitted, first_token, last_token, output_tokens, .. } = *request;
    prop_assert!(arrival <= admitted && admitted < first_token && first_token <= last_token, "{request:?}");
    prop_assert_eq!(first_token < last_token, output_tokens > 1);
    prop_assert!(request.cached_tokens < request.prompt_tokens);
    // Whoever has lost a replica may find more in the cache of another one.
    if request.preemptions > 0 && !setup.outages().is_empty() {
        return Ok(());
    }
    let alone = |model: &StepModel| {
        let mut load = model.load();
        load.add_prefill(request.cached_tokens, request.prompt_tokens - request.cached_tokens, true);
        model.cost(&load).total()
    };
    // llama.cpp multiplies a few rows by other kernels than many: a short prompt may be dearer alone than with others.
    let engine = if setup.engine.starts_with("llama") { "ideal" } else { setup.engine };
    let mut least = alone(model(setup.model, engine));
    if matches!(setup.fleet, Fleet::Mixed(..)) {
        least = least.min(alone(model(setup.model, OTHER)));
    }
    prop_assert!(first_token - arrival >= least * (1.0 - 1e-9), "{request:?} needs {least} alone");
    Ok(())
}

/// Gaps between tokens fill the time between the first and the last.
fn gaps_add_up(outcome: &Outcome) -> Result<(), TestCaseError> {
    let statistics = &outcome.statistics;
    if statistics.left_out_at_start + statistics.left_out_at_end > 0 {
        return Ok(());
    }
    let requests = statistics.requests.as_ref().unwrap();
    let writing: f64 = requests.iter().map(|request| (request.last_token - request.first_token).as_seconds()).sum();
    let gaps: u64 = requests.iter().map(|request| request.output_tokens - 1).sum();
    let Some(itl) = &statistics.itl else {
        prop_assert_eq!(gaps, 0);
        return Ok(());
    };
    let sum = itl.histogram.mean().unwrap().as_seconds() * itl.histogram.count() as f64;
    prop_assert_eq!(itl.histogram.count(), gaps, "gaps");
    prop_assert!((sum / writing - 1.0).abs() < 1e-6, "gaps of {sum} s in {writing} s");
    Ok(())
}

/// Every time of every request, to 1e-9 of the times themselves.
fn same_times(setup: &Setup, one: &Outcome, other: &Outcome) -> Result<(), TestCaseError> {
    let near = |one: Seconds, other: Seconds| (one - other).as_seconds().abs() <= 1e-9 * other.as_seconds().max(1.0);
    let [ones, others] = [one, other].map(|outcome| outcome.statistics.requests.as_ref().unwrap());
    for (one, other) in ones.iter().zip(others) {
        let times = |of: &CompletedRequest| [of.arrival, of.admitted, of.first_token, of.last_token];
        let same = times(one).into_iter().zip(times(other)).all(|(one, other)| near(one, other));
        prop_assert!(same, "{one:?}\n{other:?}");
        prop_assert_eq!((one.preemptions, one.cached_tokens), (other.preemptions, other.cached_tokens));
    }
    prop_assert_eq!((one.steps, one.output_tokens), (other.steps, other.output_tokens));
    for (one, other) in one.replicas.iter().zip(&other.replicas) {
        prop_assert_eq!((one.steps, one.prompt_tokens), (other.steps, other.prompt_tokens));
        prop_assert!(near(one.busy, other.busy));
    }
    let [one, other] = [one, other].map(|outcome| &outcome.statistics);
    for (one, other) in [(one.mean_batch, other.mean_batch), (one.mean_waiting, other.mean_waiting)] {
        prop_assert!((one - other).abs() <= 1e-6 * other.max(1.0), "{one} instead of {other}");
    }
    // Blocks are taken one by one, and counted as a line over a leap.
    let slack = setup.half_blocks(other.mean_batch);
    let [one, other] = [one, other].map(|statistics| statistics.kv_utilization);
    prop_assert!((one - other).abs() <= (0.03 * other).max(slack), "cache {one} instead of {other}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_tokens_and_time_are_conserved(setup in setup()) {
        let (simulation, workload) = (setup.simulation(), setup.workload());
        let run = |simulation: &Simulation<'_>| simulation.run(&workload, REQUESTS).unwrap();
        let outcome = run(&simulation);
        conserves(&setup, &outcome)?;
        let stepping = run(&simulation.clone().stepping());
        conserves(&setup, &stepping)?;
        same_times(&setup, &outcome, &stepping)?;
        prop_assert_eq!(&outcome, &run(&simulation), "the same seed");
        let other = run(&simulation.with_seed(setup.seed ^ 1));
        prop_assert_ne!(&outcome.statistics.requests, &other.statistics.requests, "another seed");
    }

    /// Conversations: the blocks of a prompt begin as those of an earlier one.
    #[test]
    fn traces_with_blocks_are_conserved(setup in setup(), spread in 1_u64..40, shared in 0_u64..12) {
        let mut setup = setup;
        (setup.prefix, setup.priorities) = (None, false);
        let trace = conversations(&setup, spread, shared);
        let simulation = setup.simulation();
        let outcome = simulation.replay(&trace).unwrap();
        conserves(&setup, &outcome)?;
        let stepping = simulation.stepping().replay(&trace).unwrap();
        conserves(&setup, &stepping)?;
        same_times(&setup, &outcome, &stepping)?;
    }
}

/// Requests of `spread` conversations in blocks of 64 tokens, the first `shared` of which all have in common.
fn conversations(setup: &Setup, spread: u64, shared: u64) -> Trace {
    const BLOCK: u64 = 64;
    let request = |id: u64| {
        let prompt_tokens = 1 + (id * 7919 + setup.seed % 1000) % (2 * setup.prompt);
        let conversation = (id * 31 + setup.seed % 7) % spread;
        let hash = |block: u64| if block < shared { block } else { 1_000_000 * (conversation + 1) + block };
        TraceRequest {
            arrival: Seconds::from_seconds(id as f64 * 0.0371 + (id * id % 13) as f64 * 0.011),
            prompt_tokens,
            output_tokens: 1 + (id * 104_729 + setup.seed % 100) % (2 * setup.output),
            cached_tokens: 0,
            block_hashes: (0..prompt_tokens.div_ceil(BLOCK)).map(hash).collect(),
        }
    };
    Trace::new((0..REQUESTS).map(request).collect()).unwrap().with_block_tokens(BLOCK)
}
