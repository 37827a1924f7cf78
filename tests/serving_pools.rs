//! Static batching, prefix caches, replicas, and pools of prefill and decode: against the reference simulation, limits and published numbers.

#[path = "common/stepping/mod.rs"]
mod stepping;

use llm_roofline::model::{Model, Totals};
use llm_roofline::prelude::*;
use llm_roofline::serving::{
    Bottleneck, Disaggregated, KvTransfer, Pool, PromptOrder, Replicas, Router, Server, ServingError,
};
use llm_roofline::workload::{LengthDistribution, Lengths, SharedPrefix, Slo};
use stepping::{Arrivals, Policy, Random, Simulation, Start, mean, percentile, poisson};

fn deployment(engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system)
        .with_engine(without_front_end(&catalog.engine(engine).unwrap()))
}

/// The simulation has neither a front end nor a scheduler that plans ahead.
fn without_front_end(engine: &Engine) -> Engine {
    let mut engine = engine.clone();
    engine.host.per_request = None;
    engine.scheduling.prompt_wait_steps = None;
    engine
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
    for (most, kind, rho, seed) in
        [(1, 1, 0.6, 1), (8, 0, 0.5, 2), (8, 1, 0.8, 3), (32, 1, 0.5, 4), (32, 2, 0.8, 5), (16, 2, 0.3, 6)]
    {
        let model = static_batching(most);
        let lengths = kinds()[kind].clone();
        let server = Server::new(&model, &lengths).unwrap();
        let rate = server.max_rate() * rho;
        let state = server.open_loop(rate, &Slo::default()).unwrap();
        let count = 150_000;
        let arrivals = Arrivals::open(poisson(rate, count, seed), drawn(&lengths, count, seed + 100));
        let front_end = server.rules().front_end;
        let simulation = Simulation {
            max_sequences: most as usize,
            front_end,
            record_gaps: false,
            cut: 0.05,
            ..Simulation::new(&model, Policy::WholeBatch)
        };
        let outcome = simulation.run(&arrivals);
        let (ttft, tpot, e2e) = (state.summary.ttft.unwrap(), state.summary.tpot.unwrap(), state.summary.e2e.unwrap());
        // Six classes stand for the longest answer: enough for means, not for the 99th percentile of answers with a long tail.
        let (of_mean, of_p99) = if kind == 2 { (0.08, 0.25) } else { (0.03, 0.09) };
        let near = |value: Seconds, expected: Seconds, tolerance: f64| {
            assert_near(value.as_seconds(), expected.as_seconds(), tolerance)
        };
        near(ttft.mean, mean(&outcome.ttft()), of_mean);
        near(e2e.mean, mean(&outcome.e2e()), of_mean);
        near(tpot.mean, mean(&outcome.tpot()), 0.002);
        near(ttft.p50, percentile(&outcome.ttft(), 0.5), 0.11);
        near(ttft.p99, percentile(&outcome.ttft(), 0.99), of_p99);
        near(e2e.p99, percentile(&outcome.e2e(), 0.99), of_p99);
        near(tpot.p99, percentile(&outcome.tpot(), 0.99), 0.02);
        assert_near(state.summary.mean_batch.unwrap(), outcome.steady.running, 0.015);
    }
}

/// Saturated, and one client who never waits.
#[test]
fn whole_batches_in_the_limits() {
    let model = static_batching(16);
    let server = Server::new(&model, &kinds()[0]).unwrap();
    let batch = model.request(&Request::new(500, 100).with_batch(16)).unwrap();
    assert_near(server.max_rate().as_requests_per_second(), 16.0 / batch.e2e.as_seconds(), 0.01);
    let offline = server.offline(&Slo::default());
    assert_near(offline.rate / server.max_rate(), 1.0, 1e-9);
    let alone = model.request(&Request::new(500, 100)).unwrap();
    let rare = server.open_loop(per_second(1e-6), &Slo::default()).unwrap();
    assert_near(rare.ttft.total() / alone.ttft, 1.0, 0.01);
    assert_near(rare.summary.tpot.unwrap().mean / alone.tpot.unwrap(), 1.0, 1e-3);
    assert!(!server.open_loop(server.max_rate() * 1.1, &Slo::default()).unwrap().summary.stable);
}

#[test]
fn whole_batches_with_clients() {
    for (most, kind, clients, think) in [
        (8, 0, 8, 0.0),
        (8, 1, 20, 0.0),
        (32, 2, 16, 0.0),
        (8, 1, 8, 0.5),
        (8, 1, 8, 3.0),
        (8, 1, 24, 3.0),
        (16, 2, 16, 20.0),
        (8, 0, 1, 2.0),
    ] {
        let model = static_batching(most);
        let lengths = kinds()[kind].clone();
        let server = Server::new(&model, &lengths).unwrap();
        let state = server.closed_loop(f64::from(clients), seconds(think), &Slo::default()).unwrap();
        let front_end = server.rules().front_end;
        let simulation = Simulation {
            max_sequences: most as usize,
            front_end,
            record_gaps: false,
            cut: 0.1,
            ..Simulation::new(&model, Policy::WholeBatch)
        };
        let arrivals = Arrivals::Closed {
            concurrency: clients as usize,
            think: seconds(think),
            lengths: drawn(&lengths, 3000, 9),
            start: Start::Burst,
        };
        let outcome = simulation.run(&arrivals);
        let rate = outcome.steady.answered as f64 / outcome.steady.time.as_seconds();
        assert_near(state.rate.as_requests_per_second(), rate, 0.03);
        // Where clients are away for long, the server is often idle, and batches are of many sizes.
        assert_near(
            state.ttft.total().as_seconds(),
            mean(&outcome.ttft()).as_seconds(),
            if think > 10.0 { 0.3 } else { 0.02 },
        );
        assert_near(state.summary.mean_batch.unwrap(), outcome.steady.running, if think > 10.0 { 0.16 } else { 0.02 });
    }
}

#[test]
fn one_replica_is_the_server_and_random_ones_share_the_rate() {
    let model = compiled("vllm-2026");
    let lengths = kinds()[1].clone();
    let server = Server::new(&model, &lengths).unwrap();
    let slo = Slo::ttft_tpot(seconds(0.3), seconds(0.02));
    for router in [Router::Random, Router::RoundRobin, Router::LeastLoaded, Router::Affinity { groups: 10 }] {
        for rho in [0.0, 0.3, 0.9, 1.5] {
            let alone = server.open_loop(server.max_rate() * rho, &slo).unwrap();
            let one = Replicas::new(&server, 1, router).unwrap().open_loop(server.max_rate() * rho, &slo).unwrap();
            assert_eq!((one.replica.summary, one.imbalance), (alone.summary, 1.0), "{router:?} {rho}");
        }
    }
    let rate = server.max_rate() * 0.7;
    let alone = server.open_loop(rate, &slo).unwrap();
    let six = Replicas::new(&server, 6, Router::Random).unwrap().open_loop(rate * 6.0, &slo).unwrap();
    assert_eq!(six.summary.ttft, alone.summary.ttft);
    assert_near(six.summary.output_tps_total.unwrap() / alone.summary.output_tps_total.unwrap(), 6.0, 1e-9);
    assert_eq!(six.summary.output_tps_per_device, alone.summary.output_tps_per_device);
    assert_near(six.rate / (rate * 6.0), 1.0, 1e-9);
}

#[test]
fn better_routers_wait_less() {
    let model = StepModel::compile(&deployment("vllm-2026").with_max_sequences(8)).unwrap();
    let server = Server::new(&model, &kinds()[1]).unwrap();
    for rho in [0.5, 0.8, 0.95] {
        let at = |router| {
            let state = Replicas::new(&server, 4, router)
                .unwrap()
                .open_loop(server.max_rate() * (4.0 * rho), &Slo::default())
                .unwrap();
            assert!(state.summary.stable);
            state.summary.ttft.unwrap().mean
        };
        let [random, robin, least] = [Router::Random, Router::RoundRobin, Router::LeastLoaded].map(at);
        assert!(least < robin && robin < random, "{rho}: {least} {robin} {random}");
    }
    // Few prefixes make loads uneven; many are as good as random ones.
    let most = |groups| Replicas::new(&server, 4, Router::Affinity { groups }).unwrap().max_rate();
    assert!(most(10) < most(100) && most(100) < most(1_000_000) && most(1_000_000) <= server.max_rate() * 4.0);
    assert_near(most(1_000_000) / server.max_rate(), 4.0, 0.01);
    let uneven = Replicas::new(&server, 12, Router::Affinity { groups: 200 }).unwrap();
    let rate = uneven.max_rate() * 0.9;
    let state = uneven.open_loop(rate, &Slo::default()).unwrap();
    assert_near(state.rate / rate, 1.0, 1e-6);
    assert_near(
        state.summary.output_tps_total.unwrap().as_tokens_per_second(),
        rate.as_requests_per_second() * 100.0,
        1e-6,
    );
}

/// A conversation's history is where its last turn was: at random, in one of the replicas.
#[test]
fn affinity_keeps_hits() {
    let chat = SharedPrefix::share(0.8).unwrap();
    assert_eq!(Router::Random.prefix(&chat, 4).unwrap(), SharedPrefix::share(0.2).unwrap());
    assert_eq!(Router::Affinity { groups: 9 }.prefix(&chat, 4).unwrap(), chat);
    let system = SharedPrefix::fixed(100, 0.9).unwrap();
    assert_eq!(Router::RoundRobin.prefix(&system, 4).unwrap(), system);
    assert!(matches!(Router::Random.prefix(&chat, 0), Err(ServingError::Number { .. })));
}

/// Shared first tokens are held once, and hits are computed no more.
#[test]
fn shared_prefixes_are_held_once() {
    let model = compiled("vllm-2026");
    let lengths = Lengths::fixed(20_000, 100).unwrap();
    let plain = Server::new(&model, &lengths).unwrap();
    let share = Server::with_prefix(&model, &lengths, &SharedPrefix::share(0.9).unwrap()).unwrap();
    let fixed = Server::with_prefix(&model, &lengths, &SharedPrefix::fixed(18_000, 1.0).unwrap()).unwrap();
    assert_eq!(share.rules().cache_sequences, plain.rules().cache_sequences);
    let tokens = |server: &Server<'_>, each: f64| server.rules().cache_sequences as f64 * each;
    assert_near(tokens(&fixed, 2050.0) + 18_000.0, tokens(&plain, 20_050.0), 0.06);
    assert!(fixed.max_rate() > share.max_rate() && share.max_rate() > plain.max_rate());
    let none = Server::with_prefix(&model, &lengths, &SharedPrefix::share(0.0).unwrap()).unwrap();
    assert_eq!(none.max_rate(), plain.max_rate());
    // A request alone: what Request says, the cached tokens attended to.
    let alone = model.request(&Request::new(20_000, 100).with_cached_prompt_tokens(18_000)).unwrap();
    let state = fixed.open_loop(per_second(1e-6), &Slo::default()).unwrap();
    assert_near(state.ttft.total() / alone.ttft, 1.0, 0.01);
    assert_near(state.summary.tpot.unwrap().mean / alone.tpot.unwrap(), 1.0, 0.01);
}

fn network(gigabytes: f64) -> KvTransfer {
    KvTransfer::new(BytesPerSecond::from_gb_per_second(gigabytes)).unwrap()
}

#[test]
fn pools_in_the_limits() {
    let model = compiled("vllm-2026");
    let pool = |replicas| Pool { model: &model, replicas };
    let lengths = Lengths::fixed(4000, 200).unwrap();
    let endless = KvTransfer::new(BytesPerSecond::from_bytes_per_second(f64::INFINITY)).unwrap();
    let pools = Disaggregated::new(pool(1), pool(1), endless, &lengths).unwrap();
    // Nobody else: the request alone.
    let alone = model.request(&Request::new(4000, 200)).unwrap();
    let state = pools.open_loop(per_second(1e-9), &Slo::default()).unwrap();
    assert_eq!((state.transfer, state.exposed_transfer), (Seconds::ZERO, Seconds::ZERO));
    assert_near(state.ttft.prefill / alone.ttft, 1.0, 0.02);
    assert_near(state.summary.tpot.unwrap().mean / alone.tpot.unwrap(), 1.0, 0.01);
    // Constant prompts one after another are M/D/1 (Kleinrock, Queueing Systems I, 1975, section 5.6).
    let most = pools.max_rate();
    let prefill = state.ttft.prefill;
    for rho in [0.3, 0.8] {
        let state = pools.open_loop(most * rho, &Slo::default()).unwrap();
        assert_eq!(state.bottleneck, Bottleneck::Prefill);
        assert_near(state.ttft.queue / (prefill * (rho / (2.0 * (1.0 - rho)))), 1.0, 1e-6);
        assert_near(state.rate / (most * rho), 1.0, 1e-12);
        let (tpot, e2e) = (state.summary.tpot.unwrap().mean, state.summary.e2e.unwrap().mean);
        assert_near((e2e - state.summary.ttft.unwrap().mean) / (tpot * 199.0), 1.0, 0.02);
    }
    assert!(!pools.open_loop(most * 1.01, &Slo::default()).unwrap().summary.stable);
    // A slow link is the bottleneck, and is not hidden.
    let slow = Disaggregated::new(pool(1), pool(1), network(1.0), &lengths).unwrap();
    let state = slow.open_loop(slow.max_rate() * 0.5, &Slo::default()).unwrap();
    assert_eq!(state.bottleneck, Bottleneck::Link);
    assert!(state.exposed_transfer > state.transfer && slow.max_rate() < most);
    // Layer by layer: between the last layer and everything.
    let hidden = Disaggregated::new(pool(1), pool(1), network(50.0).layer_by_layer(), &lengths).unwrap();
    let state = hidden.open_loop(per_second(0.1), &Slo::default()).unwrap();
    assert_near(state.exposed_transfer / state.transfer, 1.0 / 32.0, 1e-6);
    for (rate, what) in [(-1.0, "requests per second"), (f64::NAN, "requests per second")] {
        let error = pools.open_loop(per_second(rate), &Slo::default()).unwrap_err();
        assert!(matches!(error, ServingError::Number { what: found, .. } if found == what));
    }
    assert!(Disaggregated::new(pool(0), pool(1), endless, &lengths).is_err());
    assert!(KvTransfer::new(BytesPerSecond::ZERO).is_err());
}

/// DistServe (OSDI 2024), section 3.3: a prompt of 512 tokens of OPT-66B has a cache of 1.13 GB, and ten requests per second need 90 Gbit/s.
#[test]
fn bandwidth_of_caches_as_distserve_has_it() {
    let model = Model::from_totals("OPT-66B", Totals::dense(66_000_000_000, 16.0, Bytes::from_gb(1.13 / 512.0)));
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("a100-sxm-80gb").unwrap(), 4).unwrap();
    let model = StepModel::compile(&Deployment::new(model, system).with_tensor_parallel(4)).unwrap();
    let pool = |replicas| Pool { model: &model, replicas };
    let lengths = Lengths::fixed(512, 64).unwrap();
    let pools = Disaggregated::new(pool(4), pool(4), network(100.0), &lengths).unwrap();
    let state = pools.open_loop(per_second(10.0), &Slo::default()).unwrap();
    assert_near(state.network.as_gb_per_second() * 8.0, 90.0, 0.006);
}

/// How To Scale Your Model, chapter 8 (Llama 3 70B in bf16 on 16 TPU v5e of 16 GB and 820 GB/s, 324 kB of cache per token): 43 caches of 8192 tokens fit,
/// a step with full memory takes 19 ms, and answers of 512 tokens come at 0.27 per second and chip.
#[test]
fn decoding_as_the_scaling_book_has_it() {
    let model = Model::from_totals("70B", Totals::dense(70_000_000_000, 16.0, Bytes::from_kb(324.0)));
    let chip = Device::from_specs(
        "v5e",
        Bytes::from_gb(16.0),
        BytesPerSecond::from_gb_per_second(820.0),
        FlopsPerSecond::from_tflops_per_second(197.0),
    )
    .unwrap();
    let deployment = Deployment::new(model, System::new(chip, 16).unwrap()).with_tensor_parallel(16);
    assert_eq!(deployment.max_sequences(8192), Some(43));
    let model = StepModel::compile(&deployment).unwrap();
    // 8192 tokens in the cache, on average: 7936 and half of the answer.
    let pool = Pool { model: &model, replicas: 1 };
    let pools = Disaggregated::new(pool, pool, network(1e6), &Lengths::fixed(7936, 512).unwrap()).unwrap();
    let decode = pools.limits()[2].1.unwrap();
    assert_near(decode.as_requests_per_second() / 16.0, 0.27, 0.03);
    assert_near(model.decode_step(43, 8192).total().as_millis(), 19.0, 0.03);
}

#[test]
fn the_best_split_follows_the_prompts() {
    let model = compiled("vllm-2026");
    let split = |prompt, output| {
        let lengths = Lengths::fixed(prompt, output).unwrap();
        Disaggregated::best_split(&model, &model, network(50.0), &lengths, 8, (&Slo::default(), 1.0)).unwrap()
    };
    // sglang-omni#1760: the best ratio turns around with the length of the prompts.
    let (long, short) = (split(8000, 100), split(200, 1000));
    assert!(long.prefill > 4 && short.prefill == 1, "{long:?} {short:?}");
    assert_eq!((long.devices, short.devices), (8, 8));
    let slo = Slo::ttft_tpot(seconds(1.0), seconds(0.012));
    let lengths = Lengths::fixed(4000, 200).unwrap();
    let within = Disaggregated::best_split(&model, &model, network(50.0), &lengths, 8, (&slo, 0.9)).unwrap();
    let server = Server::new(&model, &lengths).unwrap();
    let colocated = Replicas::new(&server, 8, Router::Random).unwrap();
    let together = colocated.max_rate_within(&slo, 0.9).unwrap();
    // A tight limit on the time per token is what disaggregation is for (DistServe, section 2.3).
    assert!(within.rate > together * 1.5, "{within:?}, together {together}");
    let loose = Slo::ttft_tpot(seconds(10.0), seconds(0.2));
    let apart = Disaggregated::best_split(&model, &model, network(50.0), &lengths, 8, (&loose, 0.9)).unwrap();
    assert!(apart.rate < colocated.max_rate_within(&loose, 0.9).unwrap(), "{apart:?}");
    let batched = Disaggregated::new(
        Pool { model: &model, replicas: 4 },
        Pool { model: &model, replicas: 4 },
        network(50.0),
        &Lengths::fixed(100, 100).unwrap(),
    )
    .unwrap();
    let batched = batched.with_prompts(PromptOrder::Batched);
    let state = batched.open_loop(batched.max_rate() * 0.5, &slo).unwrap();
    assert!(state.summary.ttft.unwrap().mean.is_finite() && state.ttft.queue > Seconds::ZERO);
}
