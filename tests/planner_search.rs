//! The search for the best plan: against plain enumeration, laws of markets and queues, known answers, its own simulation.

use llm_roofline::planner::{Answer, Objective, PlannerError, PriceChoice, Refusal, Search, SearchSpace};
use llm_roofline::prelude::*;
use llm_roofline::serving::metrics::Metric;
use llm_roofline::serving::{Need, Server, Statistic, Target};
use llm_roofline::workload::{Arrivals, LengthDistribution, Lengths, RateSchedule, SharedPrefix, Slo, Workload};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

const DEVICES: [&str; 4] = ["l4-24gb", "l40s-48gb", "a100-sxm-80gb", "h100-sxm-80gb"];
const OBJECTIVES: [Objective; 5] = [
    Objective::CostPerHour,
    Objective::CostPerMillionTokens,
    Objective::Devices,
    Objective::Energy,
    Objective::Latency(Metric::E2e, Statistic::P90),
];

fn device(name: &str) -> Arc<Device> {
    Catalog::embedded().device(name).unwrap()
}

fn space(devices: impl IntoIterator<Item = Arc<Device>>, weights: &[&str], most: u32) -> SearchSpace {
    let catalog = Catalog::embedded();
    SearchSpace::new(catalog.model("llama-3.1-8b").unwrap(), catalog.engine("vllm-2026").unwrap())
        .with_devices(devices)
        .with_weights(weights.iter().map(|name| name.parse().unwrap()))
        .with_most_devices_per_replica(most)
}

fn per_second(rate: f64) -> RequestsPerSecond {
    RequestsPerSecond::from_requests_per_second(rate)
}

fn poisson(rate: f64, prompt: u64, output: u64) -> Workload {
    Workload::poisson(per_second(rate), Lengths::fixed(prompt, output).unwrap()).unwrap()
}

fn within(ttft_ms: f64, tpot_ms: f64, statistic: Statistic) -> Target {
    let slo = Slo::ttft_tpot(Seconds::from_millis(ttft_ms), Seconds::from_millis(tpot_ms));
    Target::at(&slo, statistic).unwrap()
}

/// Without simulation, where there is one.
fn quick<'a>(space: &'a SearchSpace, workload: &Workload, target: &Target) -> Search<'a> {
    let search = Search::new(space, workload, target).unwrap();
    #[cfg(feature = "random")]
    let search = search.with_simulated_requests(0);
    search
}

fn value(answer: &Answer) -> f64 {
    answer.best().map_or(f64::INFINITY, |plan| plan.objective_value())
}

fn summary_of(answer: &Answer) -> Vec<(String, f64)> {
    answer
        .plans
        .iter()
        .map(|plan| (format!("{} {}", plan.decomposition(), plan.configuration), plan.objective_value()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn leaving_out_what_cannot_win_never_changes_the_answer(
        chosen in prop::sample::subsequence(DEVICES.to_vec(), 1..=3), rate in 0.5..60.0, ttft in 100.0..2000.0, tpot in 8.0..80.0, which in 0_usize..5, several in any::<bool>(),
    ) {
        let space = space(chosen.iter().map(|name| device(name)), &["bf16", "fp8"], 4);
        let search = quick(&space, &poisson(rate, 800, 150), &within(ttft, tpot, Statistic::P90));
        let search = search.minimising(OBJECTIVES[which]).with_most_devices(64).with_ranks(3);
        let search = if several { search.with_several_per_device() } else { search };
        let (pruned, all) = (search.run().unwrap(), search.clone().exhaustive().run().unwrap());
        prop_assert_eq!(summary_of(&pruned), summary_of(&all));
        prop_assert_eq!(pruned.robust.map(|plan| plan.decomposition()), all.robust.map(|plan| plan.decomposition()));
        prop_assert!(pruned.tally.solved <= all.tally.solved);
    }

    #[test]
    fn a_looser_target_and_less_traffic_never_need_more(
        rate in 1.0..80.0, less in 0.2..1.0, ttft in 100.0..2000.0, tpot in 8.0..80.0, looser in 1.0..2.0, which in 0_usize..3,
    ) {
        let space = space(["l40s-48gb", "h100-sxm-80gb"].map(device), &["bf16"], 2);
        let best = |rate: f64, factor: f64| {
            let target = within(ttft * factor, tpot * factor, Statistic::P95);
            value(&quick(&space, &poisson(rate, 1000, 200), &target).minimising(OBJECTIVES[which]).run().unwrap())
        };
        let strict = best(rate, 1.0);
        prop_assert!(best(rate, looser) <= strict);
        prop_assert!(best(rate * less, 1.0) <= strict);
    }

    #[test]
    fn a_cheaper_device_never_makes_the_best_plan_dearer(
        rate in 1.0..80.0, cheaper in 0.3..1.0, which in 0_usize..3, tpot in 10.0..80.0,
    ) {
        let names = ["l4-24gb", "l40s-48gb", "h100-sxm-80gb"];
        let best = |factor: f64| {
            let priced = names.iter().enumerate().map(|(index, name)| {
                let mut profile = Device::clone(&device(name)).into_profile();
                let factor = if index == which { factor } else { 1.0 };
                profile.prices.iter_mut().for_each(|price| price.usd_per_hour = price.usd_per_hour * factor);
                Arc::new(Device::new(profile).unwrap())
            });
            let space = space(priced, &["bf16", "fp8"], 2);
            value(&quick(&space, &poisson(rate, 1000, 200), &within(1000.0, tpot, Statistic::P90)).run().unwrap())
        };
        prop_assert!(best(cheaper) <= best(1.0));
    }
}

/// Capacity of every deployment, replicas, costs: in a loop.
#[test]
fn the_best_plan_is_that_of_plain_enumeration() {
    let space = space(DEVICES.map(device), &["bf16", "fp8"], 4);
    let prompts = LengthDistribution::log_normal(700.0, 500.0, 1, 4000).unwrap();
    let outputs = LengthDistribution::log_normal(200.0, 150.0, 1, 1000).unwrap();
    let lengths = Lengths::independent(prompts, outputs).unwrap();
    let rate = per_second(25.0);
    let workload = Workload::poisson(rate, lengths.clone()).unwrap();
    let target = Target::goodput(Slo::ttft_tpot("600 ms".parse().unwrap(), "40 ms".parse().unwrap()), 0.95).unwrap();
    let (mut cheapest, mut fewest) = (f64::INFINITY, u32::MAX);
    for deployment in space.deployments().unwrap() {
        let model = StepModel::compile(&deployment).unwrap();
        let Ok(server) = Server::new(&model, &lengths) else { continue };
        let capacity = server.max_rate_under(&target).unwrap();
        if capacity.is_met() && capacity.rate > RequestsPerSecond::ZERO {
            let devices = deployment.devices_per_replica() * (rate / capacity.rate).ceil() as u32;
            let price = PriceChoice::Median.quote(deployment.system().device()).unwrap().usd_per_device_hour;
            cheapest = cheapest.min(price.as_usd_per_hour() * f64::from(devices));
            fewest = fewest.min(devices);
        }
    }
    let search = quick(&space, &workload, &target);
    let by_cost = search.run().unwrap();
    assert!((value(&by_cost) - cheapest).abs() < 1e-9 * cheapest, "{by_cost} against {cheapest}");
    assert_eq!(value(&search.minimising(Objective::Devices).run().unwrap()), f64::from(fewest));
}

/// A matrix of weights that is read in 35 ms whatever the batch, ten sequences at once: 100 decode steps and one prefill step of an answer take 3.535 s, so a replica
/// answers 10 / 3.535 s = 2.83 requests per second.
#[test]
fn capacity_by_hand() {
    let model = Model::from_totals("70B at 4 bits", Totals::dense(70_000_000_000, 4.0, Bytes::ZERO));
    let bandwidth = BytesPerSecond::from_gb_per_second(1000.0);
    let peak = FlopsPerSecond::from_tflops_per_second(1e9);
    let card = Device::from_specs("1000 GB/s card", Bytes::from_gb(48.0), bandwidth, peak).unwrap();
    let mut engine = Engine::clone(&Catalog::embedded().engine("ideal").unwrap());
    engine.slug = "ten at once".into();
    let ten = Deployment::new(model.clone(), System::new(card.clone(), 1).unwrap()).with_engine(engine.clone());
    let ten = ten.with_max_sequences(10);
    let space = SearchSpace::new(model, ten.engine().clone()).with_devices([card]).with_most_devices_per_replica(1);
    for (rate, replicas) in [(2.7, 1), (2.9, 2), (5.6, 2), (10.0, 4), (28.0, 10)] {
        let prices = PriceChoice::Fixed(UsdPerHour::from_usd_per_hour(2.0));
        let answer = quick(&space, &poisson(rate, 1, 101), &Target::default()).with_prices(prices).run().unwrap();
        let plan = answer.best().unwrap();
        assert_eq!((plan.replicas, plan.devices), (replicas, replicas), "{rate} req/s: {plan}");
        assert_eq!(plan.usd_per_hour.unwrap().as_usd_per_hour(), 2.0 * f64::from(replicas));
        assert!((plan.utilization - rate * 3.535 / 10.0 / f64::from(replicas)).abs() < 0.01);
    }
}

/// J. Austin et al., How to Scale Your Model, chapter 8: LLaMA 3-70B in bf16 on 16 TPU v5e leaves room for 43 caches of 8192 tokens of 324 kB, reads all in 19 ms, and so
/// answers 43 / (0.019 * 512) = 4.4 requests per second of 512 output tokens, 0.27 per chip; prompts are computed elsewhere.
#[test]
fn chips_for_llama_3_70b_on_tpu_v5e() {
    let mut profile = Device::clone(&device("tpu-v5e")).into_profile();
    profile.memory.usable = None;
    profile.memory.capacity.value = Bytes::from_gb(16.0);
    profile.memory.bandwidth.value = BytesPerSecond::from_gb_per_second(820.0);
    let chip = Device::new(profile).unwrap();
    let model = Model::from_totals("70B", Totals::dense(70_000_000_000, 16.0, Bytes::from_bytes(324_000.0)));
    let space = SearchSpace::new(model, Catalog::embedded().engine("ideal").unwrap()).with_devices([chip]);
    // A running sequence holds 7936 tokens of its prompt and on average 256 of its answer: 8192.
    let workload = poisson(10.0, 7936, 512).with_prefix(SharedPrefix::share(0.9999).unwrap());
    let search = quick(&space, &workload, &Target::default()).minimising(Objective::Devices);
    let answer = search.with_prices(PriceChoice::Fixed(UsdPerHour::from_usd_per_hour(1.2))).run().unwrap();
    let plan = answer.best().unwrap();
    // 10 / 4.42 = 2.3 replicas.
    assert_eq!((plan.devices, plan.replicas, plan.configuration.devices_per_replica), (48, 3, 16), "{plan}");
    let per_chip = (1.0 + plan.headroom) * 10.0 / 48.0;
    assert!((per_chip / 0.276 - 1.0).abs() < 0.03, "{per_chip} requests per second and chip");
    assert!(answer.tally.memory > 0); // 140 GB do not fit on 8 chips
}

#[test]
fn users_and_schedules_are_loads_too() {
    let space = space(["h100-sxm-80gb"].map(device), &["bf16"], 1);
    let target = within(1000.0, 30.0, Statistic::P90);
    let lengths = Lengths::fixed(1000, 200).unwrap();
    // Of a schedule the peak has to be served.
    let day = RateSchedule::day_curve(per_second(20.0), per_second(36.0), Seconds::from_seconds(86_400.0)).unwrap();
    let scheduled = poisson(1.0, 1000, 200).with_arrivals(Arrivals::schedule(day));
    let plan_for = |workload: &Workload| quick(&space, workload, &target).run().unwrap().plans[0].replicas;
    assert_eq!(plan_for(&scheduled), plan_for(&poisson(36.0, 1000, 200)));
    let plan = quick(&space, &scheduled, &target).run().unwrap().plans.remove(0);
    let fleet = plan.fleet.unwrap();
    assert_eq!(fleet.fixed.most_replicas, u64::from(plan.replicas));
    assert!(fleet.following.usd_per_day < fleet.fixed.usd_per_day);
    // As many users as a replica takes need one, one more needs two.
    let model = StepModel::compile(&space.deployments().unwrap()[0]).unwrap();
    let server = Server::new(&model, &lengths).unwrap();
    let think = Seconds::from_seconds(10.0);
    let most = server.max_users_under(&target, think).unwrap().concurrency as u64;
    let users = |count: u64| {
        let arrivals = Arrivals::closed_loop_with(count, think, None).unwrap();
        plan_for(&poisson(1.0, 1000, 200).with_arrivals(arrivals))
    };
    assert_eq!((users(most), users(most + 1), users(2 * most), users(2 * most + 1)), (1, 2, 2, 3));
    assert_eq!(server.replicas_for_users(most + 1, think, &target, 1).unwrap(), Need::MoreThan(1));
    assert!(matches!(
        Search::new(&space, &Workload::offline(5, lengths).unwrap(), &target),
        Err(PlannerError::Number { .. })
    ));
}

#[test]
fn headroom_is_room_that_is_left() {
    let space = space(["l4-24gb", "h100-sxm-80gb"].map(device), &["bf16"], 2);
    for share in [0.0, 0.1, 0.25, 1.0] {
        let search = quick(&space, &poisson(30.0, 1000, 200), &within(500.0, 50.0, Statistic::P95));
        let answer = search.with_headroom(share).unwrap().run().unwrap();
        assert!(answer.plans.iter().all(|plan| plan.headroom >= share - 1e-9), "{share}: {answer}");
        // As many as a load without headroom needs that is larger by as much.
        let larger = poisson(30.0 * (1.0 + share), 1000, 200);
        let same = quick(&space, &larger, &within(500.0, 50.0, Statistic::P95)).run().unwrap();
        assert_eq!(value(&answer), value(&same));
    }
    let search = quick(&space, &poisson(30.0, 1000, 200), &Target::default());
    assert!(matches!(search.with_headroom(-0.1), Err(PlannerError::Number { .. })));
}

/// Dense, mixtures, latent attention, recurrences, windows; engines that chunk, batch statically, or have a place for one: numbers that are numbers.
#[test]
fn every_plan_is_finite() {
    let catalog = Catalog::embedded();
    let devices = ["l4-24gb", "h100-sxm-80gb", "rtx-4090-24gb"];
    let (mut plans, mut refused) = (0, 0);
    for model in ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b", "granite-4.0-h-small"] {
        let model = catalog.model(model).unwrap();
        for engine in ["ideal", "vllm-2026", "sglang-2026", "tensorrt-llm-2025", "llama-cpp-cuda-2026", "transformers"]
        {
            let engine = catalog.engine(engine).unwrap();
            let space = SearchSpace::new(model.clone(), engine.clone())
                .with_devices(devices.map(device))
                .with_most_devices_per_replica(2);
            // Near saturation the steady state of static batches takes long: one objective of them.
            let objectives = if engine.slug == "transformers" { &OBJECTIVES[..1] } else { &OBJECTIVES };
            for (index, objective) in objectives.iter().copied().enumerate() {
                let workload = poisson([0.2, 5.0][index % 2], 600, [100, 1][index % 2]);
                let search = quick(&space, &workload, &within(3000.0, 200.0, Statistic::P90));
                let answer = search.minimising(objective).with_most_devices(64).run().unwrap();
                for plan in answer.plans.iter().chain(&answer.robust) {
                    let numbers =
                        [plan.objective_value(), plan.headroom, plan.utilization, plan.slowest.0, plan.slowest.1];
                    assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{plan}\n{numbers:?}");
                    assert!(
                        plan.utilization < 1.0 && plan.replicas > 0 && plan.slowest.0 >= 1.0 && plan.slowest.1 >= 1.0
                    );
                    plans += 1;
                }
                refused += u32::from(answer.plans.is_empty());
            }
        }
    }
    assert!(plans > 100, "{plans} plans, {refused} searches without any");
}

/// Devices that cost nothing: no quotient of two nothings.
#[test]
fn free_devices_are_planned_for_too() {
    let space = space(["l40s-48gb", "h100-sxm-80gb"].map(device), &["bf16"], 2);
    for objective in [Objective::CostPerHour, Objective::CostPerMillionTokens] {
        let search = quick(&space, &poisson(10.0, 1000, 200), &within(800.0, 40.0, Statistic::P90));
        let free = search.minimising(objective).with_prices(PriceChoice::Fixed(UsdPerHour::ZERO)).run().unwrap();
        assert_eq!((free.plans.len(), value(&free)), (2, 0.0), "{free}");
        assert!(free.plans[1].loss.as_ref().unwrap().factor.is_none() && !free.to_string().contains("NaN"), "{free}");
    }
}

#[test]
fn a_capacity_is_carried_and_no_more() {
    let space = space(["h100-sxm-80gb"].map(device), &["bf16"], 1);
    let model = StepModel::compile(&space.deployments().unwrap()[0]).unwrap();
    let server = Server::new(&model, &Lengths::fixed(1000, 200).unwrap()).unwrap();
    for target in [within(400.0, 20.0, Statistic::P99), within(2000.0, 12.0, Statistic::Mean), Target::default()] {
        let capacity = server.max_rate_under(&target).unwrap().rate;
        let next = capacity + server.max_rate() / f64::from(1 << 20);
        assert!(server.carries(capacity, &target).unwrap());
        assert!(!server.carries(next, &target).unwrap());
        for load in [0.3, 0.999, 1.0, 1.001, 2.0, 7.5] {
            let needed = Need::Replicas((load - 1e-9_f64).ceil() as u32);
            assert_eq!(server.replicas_for_rate(capacity * load, &target, 100).unwrap(), needed, "{target}, {load}");
        }
    }
    let impossible = within(400.0, 0.5, Statistic::Mean);
    assert!(matches!(server.replicas_for_rate(per_second(1.0), &impossible, 100).unwrap(), Need::Unloaded(_)));
    assert!(!server.carries(per_second(1.0), &impossible).unwrap());
}

#[test]
fn what_is_refused_is_counted_and_what_came_nearest_is_named() {
    let catalog = Catalog::embedded();
    let unpriced = Device::from_specs(
        "Unpriced",
        Bytes::from_gb(80.0),
        BytesPerSecond::from_tb_per_second(3.0),
        FlopsPerSecond::from_tflops_per_second(900.0),
    );
    let devices = [device("l4-24gb"), device("h100-sxm-80gb"), Arc::new(unpriced.unwrap())];
    let space = SearchSpace::new(catalog.model("llama-3.1-70b").unwrap(), catalog.engine("vllm-2026").unwrap())
        .with_devices(devices)
        .with_most_devices_per_replica(2);
    let answer = quick(&space, &poisson(1.0, 1000, 100), &within(50.0, 5.0, Statistic::Mean)).run().unwrap();
    // 141 GB in bf16: neither on 2 L4 (TP1, TP2, PP2) nor on one device of the others; nobody rents two of the last one (PP2, as it has no links).
    assert!(answer.plans.is_empty() && answer.robust.is_none());
    let tally = answer.tally;
    assert_eq!((tally.deployments, tally.memory, tally.no_price, tally.target), (8, 5, 1, 2), "{tally}");
    let nearest = answer.nearest.unwrap();
    assert_eq!(
        (nearest.configuration.device.as_str(), nearest.configuration.devices_per_replica),
        ("h100-sxm-80gb", 2)
    );
    assert!(matches!(nearest.reason, Refusal::Target(_)));

    let budget = quick(&space, &poisson(1.0, 1000, 100), &within(2000.0, 100.0, Statistic::Mean));
    let refused = budget.clone().with_most_devices(1).run().unwrap();
    assert!(refused.plans.is_empty() && refused.tally.budget > 0);
    let one = budget.clone().assess(&space.deployments().unwrap()[0]);
    assert!(matches!(one, Err(Refusal::Memory { short_by }) if short_by > Bytes::from_gb(100.0)), "{one:?}");
    assert!(matches!(budget.minimising(OBJECTIVES[4]).run(), Err(PlannerError::Number { .. })));
}

#[test]
fn an_assessed_deployment_is_the_plan_of_the_search() {
    let space = space(["h100-sxm-80gb"].map(device), &["fp8"], 2);
    let search = quick(&space, &poisson(30.0, 1000, 200), &within(500.0, 20.0, Statistic::P95));
    let answer = search.run().unwrap();
    let best = answer.best().unwrap();
    let assessed = search.assess(&best.configuration.deployment).unwrap();
    assert_eq!((assessed.decomposition(), assessed.summary), (best.decomposition(), best.summary));
    // All of it adds up: what it costs, what is served, what binds.
    let price = best.quote.as_ref().unwrap().usd_per_device_hour;
    assert_eq!(best.usd_per_hour.unwrap(), price * f64::from(best.devices));
    let per_million = best.usd_per_million_output_tokens.unwrap();
    let an_hour = per_million.of_tokens(30.0 * 200.0 * 3600.0).as_usd();
    assert!((an_hour - best.usd_per_hour.unwrap().as_usd_per_hour()).abs() < 1e-6);
    assert!(best.usd_per_million_output_tokens_full.unwrap() <= per_million);
    assert!(best.pessimistic_replicas.unwrap() >= best.replicas);
}

#[test]
fn a_search_tells_its_progress_and_can_be_stopped() {
    let space = space(DEVICES.map(device), &["bf16", "fp8"], 8);
    let search = quick(&space, &poisson(30.0, 1000, 200), &within(500.0, 20.0, Statistic::P95));
    let mut seen = Vec::new();
    let answer = search.run_with(|progress| {
        seen.push(*progress);
        ControlFlow::Continue(())
    });
    assert!(answer.is_ok() && seen.len() > 2);
    assert!(seen.iter().all(|progress| progress.done <= progress.total));
    let stopped = search
        .run_with(|progress| if progress.solved > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
    assert_eq!(stopped.unwrap_err(), PlannerError::Cancelled);
}

#[cfg(feature = "random")]
mod simulated {
    use super::*;
    use llm_roofline::serving::simulate::Simulation;

    /// Every plan, with all its replicas and another seed: what its own simulation promised, up to the noise of 99th percentiles.
    #[test]
    fn plans_keep_their_targets_when_they_are_simulated() {
        let space = space(["l40s-48gb", "h100-sxm-80gb"].map(device), &["bf16"], 2);
        for (rate, target) in [(40.0, within(600.0, 30.0, Statistic::P95)), (8.0, within(300.0, 25.0, Statistic::P90))]
        {
            let workload = poisson(rate, 1000, 200);
            let answer = Search::new(&space, &workload, &target).unwrap().run().unwrap();
            assert!(!answer.plans.is_empty());
            for plan in &answer.plans {
                let confirmation = plan.confirmation.as_ref().unwrap();
                assert!(confirmation.is_met() && target.breaches_in(&confirmation.summary).is_empty());
                let model = StepModel::compile(&plan.configuration.deployment).unwrap();
                let fleet = Simulation::new(&model).with_replicas(plan.replicas).with_slo(target.slo()).with_seed(7);
                let outcome = fleet.run(&workload, 20_000 * u64::from(plan.replicas)).unwrap();
                assert!(outcome.summary.stable, "{plan}");
                let slack = Target::tightened(&target, 1.0 / 1.1, 1.0 / 1.1).unwrap();
                assert!(slack.breaches_in(&outcome.summary).is_empty(), "{plan}\n{outcome}");
            }
        }
    }

    /// Users who think for a while come as independently as the steady state has it: it is confirmed as it is, or nearly.
    #[test]
    fn users_who_think_are_confirmed() {
        let space = space(["h100-sxm-80gb"].map(device), &["bf16"], 1);
        let arrivals = Arrivals::closed_loop_with(400, Seconds::from_seconds(20.0), None).unwrap();
        let workload = poisson(1.0, 1000, 300).with_arrivals(arrivals);
        let answer = Search::new(&space, &workload, &within(1000.0, 50.0, Statistic::P99)).unwrap().run().unwrap();
        let plan = answer.best().unwrap();
        let confirmation = plan.confirmation.as_ref().unwrap();
        assert!(confirmation.added_replicas <= 1, "{plan}");
        let tpot = |summary: &llm_roofline::serving::metrics::LoadSummary| summary.tpot.unwrap().mean;
        assert!((tpot(&plan.summary) / tpot(&confirmation.summary) - 1.0).abs() < 0.1, "{plan}");
    }

    /// The steady state takes bursts for independent requests; the simulation does not, and asks for more.
    #[test]
    fn bursts_need_more_than_the_steady_state_says() {
        let space = space(["h100-sxm-80gb"].map(device), &["bf16"], 1);
        let target = within(400.0, 40.0, Statistic::P90);
        let bursts = Arrivals::bursts(60, Seconds::from_seconds(3.0)).unwrap();
        let workload = poisson(20.0, 1000, 200).with_arrivals(bursts);
        let search = Search::new(&space, &workload, &target).unwrap().with_simulated_requests(3_000);
        let plan = search.run().unwrap().plans.remove(0);
        let steady = search.with_simulated_requests(0).run().unwrap().plans.remove(0);
        assert!(plan.replicas > steady.replicas, "{plan}");
        assert_eq!(plan.replicas - steady.replicas, plan.confirmation.unwrap().added_replicas);
    }
}
