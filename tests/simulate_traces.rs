//! Excerpts of public traces served end to end: every request is answered, prefix caches find what they should, and faster arrivals wait longer.
#![cfg(feature = "random")]

#[path = "common/served.rs"]
mod served;

use llm_roofline::prelude::*;
use llm_roofline::serving::ServingError;
use llm_roofline::serving::simulate::{CompletedRequest, EngineSettings, Outcome, Routing, Simulation};
use llm_roofline::workload::{Trace, TraceRequest};
use served::compile;

const AZURE_CODE: &str = include_str!("data/traces/azure_2023_code.csv");
const AZURE_CONV: &str = include_str!("data/traces/azure_2023_conv.csv");
const MOONCAKE: &str = include_str!("data/traces/mooncake_conversation.jsonl");

/// Tokens of a block of vLLM's cache.
const BLOCK: u64 = 16;

fn azure_code() -> Trace {
    Trace::read_azure("azure_2023_code.csv", AZURE_CODE.as_bytes()).unwrap()
}

fn azure_conv() -> Trace {
    Trace::read_azure("azure_2023_conv.csv", AZURE_CONV.as_bytes()).unwrap()
}

/// Its excerpt begins 20 minutes after the trace.
fn mooncake() -> Trace {
    Trace::read_mooncake("mooncake_conversation.jsonl", MOONCAKE.as_bytes()).unwrap().from_first()
}

/// One H100 with Llama 3.1 8B, whose cache holds all of each excerpt.
fn model() -> StepModel {
    compile("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026")
}

fn blocks(count: u64) -> EngineSettings {
    let mut settings = EngineSettings::default();
    settings.kv_blocks = Some(count);
    settings
}

/// Every request, by its place in the trace.
fn requests(outcome: &Outcome) -> &[CompletedRequest] {
    outcome.statistics.requests.as_deref().unwrap()
}

/// Prompt tokens that were computed, and those that were found, on all replicas.
fn prompt_tokens(outcome: &Outcome) -> (u64, u64) {
    outcome
        .replicas
        .iter()
        .fold((0, 0), |(computed, found), replica| (computed + replica.prompt_tokens, found + replica.cached_tokens))
}

fn cached_tokens(outcome: &Outcome) -> u64 {
    prompt_tokens(outcome).1
}

fn ttft(outcome: &Outcome) -> Seconds {
    outcome.summary.ttft.unwrap().mean
}

/// The same requests at times and with hashes that another made of them.
fn changed(trace: &Trace, change: impl Fn(&TraceRequest) -> TraceRequest) -> Trace {
    Trace::new(trace.requests().iter().map(change).collect()).unwrap()
}

/// Each is answered in full, in the order of its stages, and nothing is counted twice.
#[track_caller]
fn assert_all_answered(trace: &Trace, outcome: &Outcome) {
    let count = trace.requests().len();
    let (prompt, output, _) = trace.total_tokens();
    assert_eq!((outcome.arrived, outcome.completed, outcome.output_tokens), (count as u64, count as u64, output));
    assert_eq!(
        (outcome.summary.requests, outcome.summary.completed, outcome.cancelled),
        (Some(count as u64), Some(count as u64), false)
    );
    let (computed, found) = prompt_tokens(outcome);
    assert_eq!((computed + found, outcome.statistics.preemptions), (prompt, 0));
    let served = requests(outcome);
    assert_eq!((served.len(), outcome.statistics.counted), (count, count as u64));
    assert_eq!(served.iter().map(|request| request.cached_tokens).sum::<u64>(), found);
    for (id, (asked, request)) in trace.requests().iter().zip(served).enumerate() {
        assert_eq!((request.id, request.arrival), (id as u64, asked.arrival));
        assert_eq!((request.prompt_tokens, request.output_tokens), (asked.prompt_tokens, asked.output_tokens));
        assert!(request.cached_tokens < request.prompt_tokens);
        assert!(request.arrival <= request.admitted && request.admitted < request.first_token, "{request:?}");
        assert!(request.first_token <= request.last_token && request.last_token <= outcome.time, "{request:?}");
        assert_eq!(request.tpot().is_some(), request.output_tokens > 1);
    }
}

#[test]
fn every_request_of_an_excerpt_is_answered() {
    for (model, device, count, engine) in [
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026"),
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "sglang-2026"),
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "ideal"),
        ("llama-3.1-70b", "h100-sxm-80gb", 4, "tensorrt-llm-2026"),
        ("gemma-3-27b", "h100-sxm-80gb", 2, "vllm-2026"),
    ] {
        let model = compile(model, device, count, "bf16", engine);
        for trace in [azure_code(), azure_conv(), mooncake()] {
            let simulation = Simulation::new(&model).keep_requests();
            let outcome = simulation.replay(&trace).unwrap();
            assert_all_answered(&trace, &outcome);
            // Nothing is random in a trace, and steps that are priced one by one give the same times.
            assert_eq!(simulation.clone().with_seed(5).replay(&trace).unwrap(), outcome);
            let stepping = simulation.stepping().replay(&trace).unwrap();
            assert_eq!((stepping.steps, cached_tokens(&stepping)), (outcome.steps, cached_tokens(&outcome)));
            for (step, leap) in requests(&stepping).iter().zip(requests(&outcome)) {
                assert!((step.e2e() / leap.e2e() - 1.0).abs() < 1e-9, "{step:?}\n{leap:?}");
            }
        }
    }
}

/// The last answer ends after the last arrival, and no sooner than that request alone would.
#[test]
fn excerpts_take_as_long_as_their_arrivals() {
    let model = model();
    for trace in [azure_code(), azure_conv(), mooncake()] {
        let outcome = Simulation::new(&model).replay(&trace).unwrap();
        let span = trace.arrivals().span;
        assert!(outcome.time > span && outcome.time < span + Seconds::from_seconds(30.0), "{}", outcome.time);
        let busy = outcome.replicas[0].busy;
        assert!(busy > Seconds::ZERO && busy < outcome.time);
        // In steps of no more than a prompt and the answers that run, each request has its unloaded time at least.
        for request in requests(&Simulation::new(&model).keep_requests().replay(&trace).unwrap()) {
            let new = request.prompt_tokens - request.cached_tokens;
            let alone = model.request(&Request::new(new, request.output_tokens)).unwrap();
            assert!(request.e2e() > alone.e2e * 0.999, "{request:?}, {} alone", alone.e2e);
        }
    }
}

/// The same requests so far apart that each is alone.
fn one_by_one(trace: &Trace) -> Trace {
    let apart = |(index, request): (usize, &TraceRequest)| TraceRequest {
        arrival: Seconds::from_seconds(100.0 * index as f64),
        ..request.clone()
    };
    Trace::new(trace.requests().iter().enumerate().map(apart).collect()).unwrap()
}

/// Requests that come one at a time find what a cache without an end has of their prompts, in whole blocks.
#[test]
fn a_large_cache_finds_what_the_trace_repeats() {
    let model = model();
    let (trace, apart) = (mooncake(), one_by_one(&mooncake()));
    let alone = Simulation::new(&model).keep_requests().replay(&apart).unwrap();
    assert_all_answered(&apart, &alone);
    for (request, expected) in requests(&alone).iter().zip(apart.with_prefix_cache(None).requests()) {
        assert_eq!(request.cached_tokens, expected.cached_tokens / BLOCK * BLOCK, "{request:?}");
    }
    let (found, reuse) = (cached_tokens(&alone), trace.prefix_reuse(None));
    assert!(found <= reuse.reused_tokens && found + BLOCK * reuse.blocks > reuse.reused_tokens, "{found} of {reuse:?}");
    // Blocks are found from the step on in which another computes them: little is lost where requests come together.
    for factor in [1.0, 10.0, 1e6] {
        let outcome = Simulation::new(&model).keep_requests().replay(&trace.faster(factor).unwrap()).unwrap();
        let together = cached_tokens(&outcome);
        println!("{factor} times as fast: {together} of {found} tokens found");
        assert!(together <= found && together as f64 > 0.9 * found as f64);
        let rate = together as f64 / trace.total_tokens().0 as f64;
        assert!((outcome.statistics.prefix_hit_rate - rate).abs() < 1e-12);
    }
    // A trace without hashes has nothing to be found.
    let none = Simulation::new(&model).replay(&azure_conv()).unwrap();
    assert_eq!((cached_tokens(&none), none.statistics.prefix_hit_rate), (0, 0.0));
}

#[test]
fn a_small_cache_finds_fewer() {
    let model = model();
    let trace = one_by_one(&mooncake());
    let found = |count: u64| {
        let outcome = Simulation::new(&model).with_settings(blocks(count)).keep_requests().replay(&trace).unwrap();
        assert_all_answered(&trace, &outcome);
        cached_tokens(&outcome)
    };
    // The longest request has 6107 tokens, or 382 blocks; all together have 116,176, or 7261 blocks.
    let tokens = [400, 2500, 3400, 7500, 20_000].map(found);
    println!("tokens found by caches of growing size: {tokens:?}");
    assert!(tokens[..4].windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    assert_eq!((tokens[3], tokens[4]), (trace.prefix_reuse(None).reused_tokens, tokens[3]));
    // Whatever else is lost, the block that all prompts begin with was used a moment ago.
    assert_eq!(tokens[0], 39 * 512);
    let error = Simulation::new(&model).with_settings(blocks(300)).replay(&trace).unwrap_err();
    assert!(matches!(error, ServingError::Number { what: "blocks of the cache", value: 300.0, .. }), "{error}");
}

/// Where the cache is too small for all that run, requests lose their places; each is answered all the same.
#[test]
fn a_full_cache_preempts_and_answers_all() {
    let model = model();
    let trace = mooncake();
    let outcome = Simulation::new(&model).with_settings(blocks(400)).keep_requests().replay(&trace).unwrap();
    assert_eq!((outcome.completed, outcome.output_tokens), (40, trace.total_tokens().1));
    let lost: u64 = requests(&outcome).iter().map(|request| u64::from(request.preemptions)).sum();
    assert_eq!((lost, lost), (outcome.statistics.preemptions, outcome.replicas[0].preemptions));
    assert!(lost > 0);
    let roomy = Simulation::new(&model).replay(&trace).unwrap();
    assert!(outcome.time > roomy.time && ttft(&outcome) > ttft(&roomy));
}

#[test]
fn requests_are_routed_to_the_replica_that_has_their_prompts() {
    let model = model();
    let trace = mooncake();
    let run = |routing| {
        let outcome = Simulation::new(&model).with_replicas(4).with_routing(routing).keep_requests().replay(&trace);
        let outcome = outcome.unwrap();
        assert_all_answered(&trace, &outcome);
        outcome
    };
    let (affine, turns, one) =
        (run(Routing::PrefixAffinity), run(Routing::RoundRobin), Simulation::new(&model).replay(&trace).unwrap());
    let [affine, turns, one] = [&affine, &turns, &one].map(cached_tokens);
    println!("cached: {affine} by affinity, {turns} in turns, {one} on one replica");
    assert!(turns < affine && affine <= one);
}

#[test]
fn faster_arrivals_wait_longer() {
    let model = model();
    for (name, trace) in [("code", azure_code()), ("conv", azure_conv()), ("mooncake", mooncake())] {
        let run = |factor: f64| Simulation::new(&model).replay(&trace.faster(factor).unwrap()).unwrap();
        let outcomes = [0.25, 1.0, 4.0, 16.0, 64.0, 1e6].map(run);
        let waits: Vec<String> = outcomes.iter().map(|outcome| ttft(outcome).to_string()).collect();
        println!("{name}: TTFT {}", waits.join(", "));
        for pair in outcomes.windows(2) {
            assert!(ttft(&pair[1]) >= ttft(&pair[0]), "{name}: {waits:?}");
            // Where nobody waits for arrivals any more, all takes the same time but for how prompts share steps.
            assert!(pair[1].time < pair[0].time * 1.01, "{name}: {} after {}", pair[1].time, pair[0].time);
        }
        assert!(ttft(&outcomes[5]) > ttft(&outcomes[0]) * 2.0, "{name}: {waits:?}");
    }
}

/// What a trace says is cached need not be computed, whatever the replica's own cache has.
#[test]
fn cached_tokens_of_a_trace_are_not_computed() {
    let model = model();
    let trace = mooncake().with_prefix_cache(None);
    let without_hashes = changed(&trace, |request| TraceRequest { block_hashes: Vec::new(), ..request.clone() });
    let (prompt, _, cached) = trace.total_tokens();
    assert_eq!((prompt, cached), (104_931, 26_624));
    let outcome = Simulation::new(&model).keep_requests().replay(&without_hashes).unwrap();
    assert_all_answered(&without_hashes, &outcome);
    assert_eq!(prompt_tokens(&outcome), (prompt - cached, cached));
    for (request, asked) in requests(&outcome).iter().zip(trace.requests()) {
        assert_eq!(request.cached_tokens, asked.cached_tokens);
    }
    let nothing = changed(&without_hashes, |request| TraceRequest { cached_tokens: 0, ..request.clone() });
    let uncached = Simulation::new(&model).replay(&nothing).unwrap();
    assert_eq!(prompt_tokens(&uncached), (prompt, 0));
    assert!(ttft(&outcome) < ttft(&uncached));
    // With both, the longer of the two counts; nothing is counted twice.
    let both = Simulation::new(&model).keep_requests().replay(&trace).unwrap();
    assert_all_answered(&trace, &both);
    assert!(cached_tokens(&both) >= cached, "{}", cached_tokens(&both));
    // A prompt that is cached as a whole has its last token computed.
    let whole = changed(&nothing, |request| TraceRequest { cached_tokens: request.prompt_tokens, ..request.clone() });
    let outcome = Simulation::new(&model).replay(&whole).unwrap();
    assert_eq!(prompt_tokens(&outcome), (40, prompt - 40));
}

fn long(prompt_tokens: u64, output_tokens: u64) -> TraceRequest {
    TraceRequest { prompt_tokens, output_tokens, ..TraceRequest::default() }
}

#[test]
fn requests_beyond_the_context_are_an_error() {
    let model = model();
    let limit = model.deployment().context_limit().unwrap();
    assert_eq!(limit, 131_072);
    let trace = Trace::new(vec![long(1000, 10), long(131_000, 73), long(131_000, 72)]).unwrap();
    let error = Simulation::new(&model).replay(&trace).unwrap_err();
    assert_eq!(error.to_string(), "prompt and answer of up to 131073 tokens, the model's context ends at 131072");
    let shorter = trace.up_to(limit).unwrap();
    assert_eq!(shorter.requests().len(), 2);
    let outcome = Simulation::new(&model).keep_requests().replay(&shorter).unwrap();
    assert_all_answered(&shorter, &outcome);
}

#[test]
fn up_to_leaves_out_what_is_longer() {
    let trace = mooncake().with_block_tokens(256);
    let total = |request: &TraceRequest| request.prompt_tokens + request.output_tokens;
    let mut totals: Vec<u64> = trace.requests().iter().map(total).collect();
    totals.sort_unstable();
    assert_eq!((totals[0], totals[39]), (922, 6107));
    for (count, limit) in totals.iter().enumerate() {
        let kept = trace.up_to(*limit).unwrap();
        // Requests of the limit itself stay, in their order and as they are.
        let expected: Vec<TraceRequest> =
            trace.requests().iter().filter(|request| total(request) <= *limit).cloned().collect();
        assert!(kept.requests().len() > count && kept.requests() == expected);
        assert_eq!((kept.lengths().longest_total(), kept.block_tokens()), (*limit, 256));
    }
    assert_eq!(trace.up_to(u64::MAX).unwrap(), trace);
    assert!(trace.up_to(921).is_none() && trace.up_to(0).is_none());
    let both = Trace::new(vec![long(1 << 40, 1 << 40), long(1, 1)]).unwrap();
    assert_eq!(both.up_to(1 << 40).unwrap().requests(), [long(1, 1)]);
}
