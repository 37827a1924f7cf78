//! The simulation against queueing theory, in the limits where formulas are exact: it must agree within its own confidence intervals.
//!
//! Deployments are built so that they are textbook queues: one place and whole prompts make a single server, steps that cost in proportion to
//! their sequences make processor sharing, steps that cost the same for any number of sequences make several servers.
#![cfg(feature = "random")]

use llm_roofline::prelude::*;
use llm_roofline::queueing::{ClosedNetwork, Md1, Mdc, Mg1, Mm1, Mmc, ProcessorSharing, Service, Station};
use llm_roofline::serving::simulate::{
    Backlog, EngineSettings, Estimate, Histogram, Latency, Outcome, Routing, Simulation,
};
use llm_roofline::workload::{Arrivals, LengthDistribution, Lengths, Workload};

const SEEDS: [u64; 3] = [1, 2, 3];

/// How far from the formula an estimate may be, in half widths of its 95 % confidence interval.
const HALF_WIDTHS: f64 = 2.0;

/// A model of 2 GB, without a cache, on a device of this bandwidth and peak, with the textbook engine.
fn model(tb_per_second: f64, tflops_per_second: f64) -> StepModel {
    let model = Model::from_totals("1B", Totals::dense(500_000_000, 16.0, Bytes::ZERO));
    let bandwidth = BytesPerSecond::from_tb_per_second(tb_per_second);
    let peak = FlopsPerSecond::from_tflops_per_second(tflops_per_second);
    let device = Device::from_specs("device", Bytes::from_gb(100.0), bandwidth, peak).unwrap();
    let deployment = Deployment::new(model, System::new(device, 1).unwrap()).with_engine(Engine::ideal());
    StepModel::compile(&deployment).unwrap()
}

/// A step costs 20 us per token and nothing else.
fn compute_bound() -> StepModel {
    model(1e6, 100.0)
}

/// A step costs 2 ms for any number of tokens up to 1000.
fn memory_bound() -> StepModel {
    model(1.0, 1000.0)
}

/// The price of a step with this prompt alone, in seconds.
fn prompt_s(model: &StepModel, prompt: u64) -> f64 {
    let mut load = model.load();
    load.add_prefill(0, prompt, true);
    model.cost(&load).total().as_seconds()
}

/// An engine that looks for arrivals before every step, with so many places.
fn places(places: u64) -> EngineSettings {
    let mut settings = EngineSettings::default();
    settings.max_sequences = Some(places);
    settings.prompt_wait_steps = Some(0);
    settings.front_end = Some(Seconds::ZERO);
    settings
}

fn poisson(rate: f64, lengths: &Lengths) -> Workload {
    Workload::poisson(RequestsPerSecond::from_requests_per_second(rate), lengths.clone()).unwrap()
}

/// Answers whose lengths are those of an exponential distribution of this mean, to prompts of one token.
fn exponential_answers(mean: f64) -> Lengths {
    const POINTS: u32 = 5000;
    let at = |point: u32| -mean * (1.0 - (f64::from(point) + 0.5) / f64::from(POINTS)).ln();
    Lengths::pairs((0..POINTS).map(|point| (1, at(point).round().max(1.0) as u64)).collect()).unwrap()
}

/// The same run with several seeds.
fn runs(simulation: &Simulation<'_>, workload: &Workload, requests: u64) -> Vec<Outcome> {
    SEEDS.iter().map(|seed| simulation.clone().with_seed(*seed).run(workload, requests).unwrap()).collect()
}

fn queue(outcome: &Outcome) -> &Latency {
    outcome.statistics.queue.as_ref().unwrap()
}

fn ttft(outcome: &Outcome) -> &Latency {
    outcome.statistics.ttft.as_ref().unwrap()
}

fn e2e(outcome: &Outcome) -> &Latency {
    outcome.statistics.e2e.as_ref().unwrap()
}

/// Each run is as near to the formula as its interval allows, and all together are nearer.
#[track_caller]
fn assert_agree(what: &str, outcomes: &[Outcome], of: impl Fn(&Outcome) -> Estimate<Seconds>, exact: f64, slack: f64) {
    let estimates: Vec<Estimate<Seconds>> = outcomes.iter().map(of).collect();
    let half = |estimate: &Estimate<Seconds>| estimate.half_width.unwrap().as_seconds();
    for estimate in &estimates {
        let off = (estimate.value.as_seconds() - exact).abs();
        assert!(off <= HALF_WIDTHS * half(estimate) + slack, "{what}: {estimate} instead of {exact} s");
    }
    let count = estimates.len() as f64;
    let mean = estimates.iter().map(|estimate| estimate.value.as_seconds()).sum::<f64>() / count;
    let joint = estimates.iter().map(|estimate| half(estimate).powi(2)).sum::<f64>().sqrt() / count;
    println!("{what}: {mean:.5e} s +- {joint:.1e} s, exactly {exact:.5e} s");
    assert!((mean - exact).abs() <= HALF_WIDTHS * joint + slack, "{what}: {mean} s +- {joint} s instead of {exact} s");
}

#[test]
fn deployments_are_the_queues_that_they_stand_for() {
    let (compute, memory) = (compute_bound(), memory_bound());
    let decodes = |model: &StepModel, count: u64| {
        let mut load = model.load();
        load.add_decode(100, 1, count as f64);
        model.cost(&load).total().as_seconds()
    };
    for count in [1, 7, 300] {
        let one = decodes(&compute, 1);
        assert!((decodes(&compute, count) / one - count as f64).abs() < 1e-9 * count as f64);
        assert!((decodes(&memory, count) / decodes(&memory, 1) - 1.0).abs() < 1e-12);
        assert!((prompt_s(&compute, count) / one - count as f64).abs() < 1e-9 * count as f64);
    }
    assert!((prompt_s(&memory, 1) / decodes(&memory, 1) - 1.0).abs() < 1e-12);
}

/// One place, and a prompt of constant length with an answer of one token.
#[test]
fn constant_prompts_with_one_place_are_m_d_1() {
    let model = compute_bound();
    let lengths = Lengths::fixed(1000, 1).unwrap();
    let service = prompt_s(&model, 1000);
    let simulation = Simulation::new(&model).with_settings(places(1));
    for rho in [0.3, 0.6, 0.8] {
        let theory = Md1::new(rho / service, service).unwrap();
        let outcomes = runs(&simulation, &poisson(rho / service, &lengths), 500_000);
        let what = |name: &str| format!("M/D/1 {rho} {name}");
        assert_agree(&what("wait"), &outcomes, |outcome| queue(outcome).mean, theory.mean_wait(), 0.0);
        assert_agree(&what("TTFT"), &outcomes, |outcome| ttft(outcome).mean, theory.mean_sojourn(), 0.0);
        for (quantile, of) in QUANTILES {
            let exact = theory.wait_quantile(quantile).unwrap();
            let name = what(&format!("{quantile} of the wait"));
            assert_agree(&name, &outcomes, |outcome| of(queue(outcome)), exact, Histogram::RESOLUTION * exact);
        }
        for outcome in &outcomes {
            let utilization = outcome.statistics.utilization;
            assert!((utilization - rho).abs() < 0.01, "{rho}: busy {utilization} of the time");
            assert_eq!(outcome.statistics.backlog, Backlog::Steady);
            // Little's law, for those that wait.
            let (waiting, rate) = (outcome.statistics.mean_waiting, outcome.statistics.request_rate);
            let wait = queue(outcome).mean.value.as_seconds();
            assert!((waiting / (rate.as_requests_per_second() * wait) - 1.0).abs() < 0.03, "{rho}: {waiting} wait");
        }
    }
}

type Quantile = (f64, fn(&Latency) -> Estimate<Seconds>);

const QUANTILES: [Quantile; 4] = [
    (0.5, |latency| latency.p50),
    (0.9, |latency| latency.p90),
    (0.95, |latency| latency.p95),
    (0.99, |latency| latency.p99),
];

/// An interval of 95 % should hold the truth 19 times of 20.
#[test]
fn intervals_hold_what_they_promise() {
    let model = compute_bound();
    let lengths = Lengths::fixed(1000, 1).unwrap();
    let service = prompt_s(&model, 1000);
    let simulation = Simulation::new(&model).with_settings(places(1));
    let theory = Md1::new(0.7 / service, service).unwrap();
    let workload = poisson(0.7 / service, &lengths);
    let (mut mean_holds, mut p99_holds) = (0, 0);
    let p99 = theory.wait_quantile(0.99).unwrap();
    for seed in 0..300 {
        let outcome = simulation.clone().with_seed(seed).run(&workload, 20_000).unwrap();
        let holds = |estimate: Estimate<Seconds>, exact: f64| {
            (estimate.value.as_seconds() - exact).abs() <= estimate.half_width.unwrap().as_seconds()
        };
        mean_holds += u32::from(holds(queue(&outcome).mean, theory.mean_wait()));
        p99_holds += u32::from(holds(queue(&outcome).p99, p99));
    }
    println!("the interval holds the mean {mean_holds}, the 99th percentile {p99_holds} times of 300");
    // Of 300 fair intervals fewer than 270 hold the truth once in ten thousand times.
    assert!(mean_holds >= 270 && p99_holds >= 270, "{mean_holds} and {p99_holds} of 300");
}

/// One place, and prompts of any length.
#[test]
fn random_prompts_with_one_place_are_m_g_1() {
    let model = compute_bound();
    let kinds = [
        ("uniform", LengthDistribution::uniform(100, 1900).unwrap()),
        ("log-normal", LengthDistribution::log_normal(1000.0, 1500.0, 1, 20_000).unwrap()),
    ];
    for (name, prompts) in kinds {
        let lengths = Lengths::independent(prompts.clone(), LengthDistribution::Fixed(1)).unwrap();
        // Moments of the price over the distribution, at many even quantiles.
        let (mut mean, mut square) = (0.0, 0.0);
        const POINTS: u32 = 20_000;
        for point in 0..POINTS {
            let length = prompts.quantile((f64::from(point) + 0.5) / f64::from(POINTS));
            let service = prompt_s(&model, length);
            mean += service / f64::from(POINTS);
            square += service * service / f64::from(POINTS);
        }
        let service = Service::from_moments(mean, square, None).unwrap();
        let simulation = Simulation::new(&model).with_settings(places(1));
        for rho in [0.4, 0.75] {
            let theory = Mg1::new(rho / mean, service).unwrap();
            let outcomes = runs(&simulation, &poisson(rho / mean, &lengths), 500_000);
            let what = format!("M/G/1 {name} {rho}");
            assert_agree(&format!("{what} wait"), &outcomes, |outcome| queue(outcome).mean, theory.mean_wait(), 0.0);
            assert_agree(&format!("{what} TTFT"), &outcomes, |outcome| ttft(outcome).mean, theory.mean_sojourn(), 0.0);
        }
    }
}

/// One place, and answers of exponential lengths in steps of equal cost.
#[test]
fn exponential_answers_with_one_place_are_m_m_1() {
    let model = memory_bound();
    let lengths = exponential_answers(300.0);
    let service = prompt_s(&model, 1) * lengths.moments().output;
    let simulation = Simulation::new(&model).with_settings(places(1));
    for rho in [0.5, 0.7] {
        let theory = Mm1::new(rho / service, service).unwrap();
        let outcomes = runs(&simulation, &poisson(rho / service, &lengths), 500_000);
        let what = |name: &str| format!("M/M/1 {rho} {name}");
        // Answers are whole numbers of tokens: their variance is that of the exponential up to a few 10^-4.
        let slack = 1e-3 * theory.mean_sojourn();
        assert_agree(&what("wait"), &outcomes, |outcome| queue(outcome).mean, theory.mean_wait(), slack);
        assert_agree(&what("E2E"), &outcomes, |outcome| e2e(outcome).mean, theory.mean_sojourn(), slack);
        for (quantile, of) in QUANTILES {
            let exact = theory.sojourn_quantile(quantile).unwrap();
            let slack = (Histogram::RESOLUTION + 1e-3) * exact;
            assert_agree(&what(&format!("{quantile} of E2E")), &outcomes, |outcome| of(e2e(outcome)), exact, slack);
        }
    }
}

/// Steps that cost in proportion to their sequences share the device equally, and then only the mean length of the answers counts.
#[test]
fn steps_in_proportion_to_their_sequences_are_processor_sharing() {
    let model = compute_bound();
    let token = prompt_s(&model, 1);
    let mixed = Lengths::mixture(vec![(0.9, Lengths::fixed(1, 500).unwrap()), (0.1, Lengths::fixed(1, 8000).unwrap())]);
    let kinds = [
        ("constant", Lengths::fixed(1, 1250).unwrap()),
        ("exponential", exponential_answers(1250.0)),
        ("two kinds", mixed.unwrap()),
    ];
    for (name, lengths) in kinds {
        let service = token * lengths.moments().output;
        for rho in [0.4, 0.75] {
            let theory = ProcessorSharing::new(rho / service, service).unwrap();
            let outcomes = runs(
                &Simulation::new(&model).with_settings(places(10_000)),
                &poisson(rho / service, &lengths),
                200_000,
            );
            // A request joins at the end of a step, which has as many tokens as there are sequences.
            let slack = token * (1.0 + theory.mean_number());
            let what = format!("M/G/1-PS {name} {rho}");
            assert_agree(&what, &outcomes, |outcome| e2e(outcome).mean, theory.mean_sojourn(), slack);
            for outcome in &outcomes {
                let number = outcome.statistics.mean_batch;
                assert!((number / theory.mean_number() - 1.0).abs() < 0.1, "{what}: {number} run");
            }
        }
    }
}

/// Clients that think go round between themselves and a server that all share. Neither the distribution of their times to think nor that of the answers matters (Baskett,
/// Chandy, Muntz and Palacios, Journal of the ACM 22 (1975) 248), as long as one of them is random.
#[test]
fn clients_that_think_are_a_closed_network() {
    think_in_turn(&exponential_answers(1000.0), false);
    think_in_turn(&Lengths::fixed(1, 1000).unwrap(), true);
}

fn think_in_turn(lengths: &Lengths, random_thinking: bool) {
    let model = compute_bound();
    let service = prompt_s(&model, 1) * lengths.moments().output;
    let think = 10.0 * service;
    let network = ClosedNetwork::new(think, &[Station::Queue(service)]).unwrap();
    let simulation = Simulation::new(&model).with_settings(places(10_000));
    for clients in [1, 4, 10, 30] {
        let theory = network.solve(clients).unwrap();
        let arrivals = Arrivals::closed_loop_with(clients, Seconds::from_seconds(think), None).unwrap();
        let arrivals = if random_thinking { arrivals.with_random_thinking() } else { arrivals };
        let outcomes = runs(&simulation, &Workload::new(arrivals, lengths.clone()), 30_000);
        let slack = prompt_s(&model, 1) * (1.0 + theory.numbers[0]);
        let what = format!("{clients} clients, random thinking {random_thinking}");
        assert_agree(&what, &outcomes, |outcome| e2e(outcome).mean, theory.response_time, slack);
        for outcome in &outcomes {
            let rate = outcome.statistics.request_rate.as_requests_per_second();
            assert!((rate / theory.throughput - 1.0).abs() < 0.015, "{what}: {rate} instead of {}", theory.throughput);
            assert!(outcome.statistics.backlog == Backlog::Steady && outcome.summary.stable);
        }
    }
}

/// Regular arrivals at less than full load never meet each other.
#[test]
fn regular_arrivals_never_wait() {
    let model = compute_bound();
    let service = prompt_s(&model, 1000);
    let rate = RequestsPerSecond::from_requests_per_second(0.95 / service);
    let workload = Workload::new(Arrivals::uniform(rate).unwrap(), Lengths::fixed(1000, 1).unwrap());
    let simulation = Simulation::new(&model).with_settings(places(1)).keep_requests();
    let outcome = simulation.run(&workload, 5_000).unwrap();
    let requests = outcome.statistics.requests.as_ref().unwrap();
    assert_eq!(requests.len(), 5_000);
    assert!(requests.iter().all(|request| request.admitted == request.arrival));
    assert!(requests.iter().all(|request| (request.ttft().as_seconds() / service - 1.0).abs() < 1e-9));
    assert_eq!(queue(&outcome).histogram.max(), Some(Seconds::ZERO));
}

/// Steps that cost the same for one sequence as for four: places are servers that know nothing of each other.
#[test]
fn places_that_do_not_slow_each_other_down_are_servers() {
    let model = memory_bound();
    let lengths = exponential_answers(400.0);
    let step = prompt_s(&model, 1);
    let service = step * lengths.moments().output;
    let simulation = Simulation::new(&model).with_settings(places(4));
    for rho in [0.5, 0.8] {
        let theory = Mmc::new(4.0 * rho / service, service, 4).unwrap();
        let outcomes = runs(&simulation, &poisson(4.0 * rho / service, &lengths), 400_000);
        // Whoever comes during a step waits for its end, even where there is a place.
        let what = format!("M/M/4 {rho}");
        assert_agree(&format!("{what} wait"), &outcomes, |outcome| queue(outcome).mean, theory.mean_wait(), step);
        assert_agree(&format!("{what} E2E"), &outcomes, |outcome| e2e(outcome).mean, theory.mean_sojourn(), step);
        for outcome in &outcomes {
            let number = outcome.statistics.mean_batch;
            assert!((number / (4.0 * rho) - 1.0).abs() < 0.03, "{what}: {number} run");
        }
    }
}

/// Replicas chosen at random are queues of their own; taken in turn, with constant services, they are one queue before several servers, since
/// the next in turn is then always the first that is free.
#[test]
fn routers_are_the_queues_of_theory() {
    let model = compute_bound();
    let lengths = Lengths::fixed(1000, 1).unwrap();
    let service = prompt_s(&model, 1000);
    let rate = 2.0 * 0.8 / service;
    let simulation = Simulation::new(&model).with_replicas(2).with_settings(places(1));
    let outcomes =
        |routing: Routing| runs(&simulation.clone().with_routing(routing), &poisson(rate, &lengths), 500_000);
    let random = Md1::new(rate / 2.0, service).unwrap().mean_wait();
    assert_agree("random", &outcomes(Routing::Random), |outcome| queue(outcome).mean, random, 0.0);
    let in_turn = Mdc::new(rate, service, 2).unwrap().mean_wait();
    assert_agree("in turn", &outcomes(Routing::RoundRobin), |outcome| queue(outcome).mean, in_turn, 0.0);
}

#[test]
fn the_more_a_router_knows_the_less_requests_wait() {
    let model = memory_bound();
    let lengths = exponential_answers(300.0);
    let service = prompt_s(&model, 1) * lengths.moments().output;
    let simulation = Simulation::new(&model).with_replicas(2).with_settings(places(1));
    let workload = poisson(2.0 * 0.75 / service, &lengths);
    let wait = |routing: Routing| {
        let outcomes = runs(&simulation.clone().with_routing(routing), &workload, 400_000);
        outcomes.iter().map(|outcome| queue(outcome).mean.value.as_seconds()).sum::<f64>() / outcomes.len() as f64
    };
    let (random, in_turn) = (wait(Routing::Random), wait(Routing::RoundRobin));
    let (two, least) = (wait(Routing::PowerOfTwoChoices), wait(Routing::LeastLoaded));
    println!("random {random:.3} s, in turn {in_turn:.3} s, of two {two:.3} s, least loaded {least:.3} s");
    // The wait for one queue before both servers is less than any router reaches.
    let best = Mmc::new(2.0 * 0.75 / service, service, 2).unwrap().mean_wait();
    assert!(best < least && least < in_turn && in_turn < random, "{best} {least} {in_turn} {random}");
    assert!(least < two && two < random, "{least} {two} {random}");
}

#[test]
fn overload_is_told_with_its_growth() {
    let model = compute_bound();
    let lengths = Lengths::independent(LengthDistribution::uniform(100, 1900).unwrap(), LengthDistribution::Fixed(1));
    let lengths = lengths.unwrap();
    let service = prompt_s(&model, 1000);
    let simulation = Simulation::new(&model).with_settings(places(1));
    // So many that the arrivals themselves are known to a twentieth of the difference between them and the services.
    for outcome in runs(&simulation, &poisson(1.2 / service, &lengths), 200_000) {
        let Backlog::Growing { requests_per_second } = outcome.statistics.backlog else {
            panic!("{:?}", outcome.statistics.backlog)
        };
        let growth = 0.2 / service;
        assert!((requests_per_second / growth - 1.0).abs() < 0.1, "{requests_per_second} instead of {growth}");
        assert!(!outcome.summary.stable && outcome.summary.ttft.is_none() && outcome.summary.e2e.is_none());
        assert_eq!(outcome.completed, 200_000);
    }
    for outcome in runs(&simulation, &poisson(0.9 / service, &lengths), 20_000) {
        assert!(!matches!(outcome.statistics.backlog, Backlog::Growing { .. }), "{:?}", outcome.statistics.backlog);
        assert!(outcome.summary.stable && outcome.summary.ttft.is_some());
    }
}
