//! Single runs: progress, stopping, the log of events, priorities, replicas that do not return.

use super::setup::model;
use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{
    EngineSettings, Event, EventKind, Histogram, Order, Outage, Outcome, Routing, Simulation, WarmUp,
};
use llm_roofline::workload::{LengthDistribution, Lengths, RequestClass, Workload};
use std::ops::ControlFlow;

fn chat() -> Lengths {
    let up_to = |tokens: u64| LengthDistribution::uniform(1, tokens).unwrap();
    Lengths::independent(up_to(800), up_to(200)).unwrap()
}

fn poisson(per_second: f64) -> Workload {
    Workload::poisson(RequestsPerSecond::from_requests_per_second(per_second), chat()).unwrap()
}

fn few_places(places: u64) -> EngineSettings {
    let mut settings = EngineSettings::default();
    settings.max_sequences = Some(places);
    settings
}

fn outage(replica: u32, at: f64, until: Option<f64>) -> Outage {
    Outage { replica, at: Seconds::from_seconds(at), until: until.map(Seconds::from_seconds) }
}

#[test]
fn progress_is_told_and_may_end_the_run() {
    let simulation = Simulation::new(model("llama-3.1-8b", "vllm-2026"));
    let mut told = Vec::new();
    let outcome = simulation.run_with(&poisson(10.0), 10_000, |progress| {
        told.push(*progress);
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    assert!(!outcome.cancelled && outcome.completed == 10_000);
    assert!((8..=10).contains(&told.len()), "told {} times", told.len());
    assert!(told.iter().all(|progress| progress.completed <= progress.arrived && progress.requests == 10_000));
    assert!(told.windows(2).all(|pair| pair[0].arrived < pair[1].arrived && pair[0].time <= pair[1].time));

    let mut left = 3;
    let outcome = simulation.run_with(&poisson(10.0), 10_000, |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.cancelled && !outcome.known);
    assert!(outcome.completed <= outcome.arrived && (2000..5000).contains(&outcome.arrived), "{}", outcome.arrived);
}

#[test]
fn runs_stop_when_percentiles_are_known() {
    let simulation = Simulation::new(model("llama-3.1-8b", "vllm-2026"));
    let few = simulation.clone().until_p99_is_known_within(0.05).unwrap().run(&poisson(10.0), 400_000).unwrap();
    assert!(few.known && !few.cancelled && few.arrived < 400_000, "{} arrived", few.arrived);
    let latencies = [&few.statistics.ttft, &few.statistics.tpot, &few.statistics.e2e];
    // The requests under way when the run stopped move the last section a little.
    assert!(latencies.iter().all(|latency| latency.as_ref().unwrap().p99.relative().unwrap() < 0.07));
    let more = simulation.until_p99_is_known_within(0.02).unwrap().run(&poisson(10.0), 400_000).unwrap();
    assert!(more.known && few.arrived < more.arrived, "{} {}", few.arrived, more.arrived);
}

/// The events of a request, in the order of the log.
fn events_of(outcome: &Outcome, id: u64) -> Vec<&Event> {
    outcome.events.iter().filter(|event| event.request == Some(id)).collect()
}

#[test]
fn events_are_those_of_the_requests() {
    let mut settings = few_places(40);
    settings.kv_blocks = Some(400);
    let simulation = Simulation::new(model("llama-3.1-8b", "vllm-2026")).with_replicas(2).with_settings(settings);
    let simulation = simulation.with_outages(vec![outage(0, 3.0, Some(5.0))]).with_routing(Routing::RoundRobin);
    let outcome = simulation.keep_requests().with_events(1_000_000).run(&poisson(60.0), 400).unwrap();
    assert!(outcome.events.windows(2).all(|pair| pair[0].time <= pair[1].time), "in the order of time");
    let count = |kind: EventKind| outcome.events.iter().filter(|event| event.kind == kind).count() as u64;
    let preemptions: u64 = outcome.replicas.iter().map(|replica| replica.preemptions).sum();
    assert_eq!((count(EventKind::Answered), count(EventKind::FirstToken)), (400, 400));
    assert_eq!((count(EventKind::ReplicaDown), count(EventKind::ReplicaUp)), (1, 1));
    assert!(preemptions > 0 && count(EventKind::Preempted) == preemptions && count(EventKind::Lost) > 0);
    // Whoever has lost his place or his replica is queued or admitted again.
    assert_eq!(count(EventKind::Queued), 400 + count(EventKind::Lost));
    for request in outcome.statistics.requests.as_ref().unwrap() {
        let events = events_of(&outcome, request.id);
        let first = |kind: EventKind| events.iter().position(|event| event.kind == kind).unwrap();
        let stages = [EventKind::Queued, EventKind::Admitted, EventKind::FirstToken, EventKind::Answered].map(first);
        assert!(stages.is_sorted() && stages[3] == events.len() - 1, "{events:?}");
        let times = [request.admitted, request.first_token, request.last_token];
        assert_eq!([1, 2, 3].map(|stage| events[stages[stage]].time), times);
        let again = events.iter().filter(|event| matches!(event.kind, EventKind::Preempted | EventKind::Lost));
        assert_eq!(again.count(), request.preemptions as usize);
    }
}

#[test]
fn urgent_requests_wait_less() {
    let class = |name: &str, priority: i64| RequestClass::new(name, 0.5, chat()).with_priority(priority);
    let workload = poisson(22.0).with_classes(vec![class("now", 0), class("later", 5)]).unwrap();
    let waits = |order: Order| {
        let mut settings = few_places(16);
        settings.order = order;
        let simulation = Simulation::new(model("llama-3.1-8b", "vllm-2026")).with_settings(settings);
        let outcome = simulation.keep_requests().run(&workload, 8_000).unwrap();
        let mut waits = [Histogram::new(), Histogram::new()];
        for request in outcome.statistics.requests.as_ref().unwrap() {
            waits[request.class as usize].record(request.queue_time().as_seconds());
        }
        waits.map(|wait| wait.mean().unwrap().as_seconds())
    };
    let [now, later] = waits(Order::Priority);
    assert!(now < 0.5 * later, "{now} s and {later} s");
    let [one, other] = waits(Order::Fcfs);
    assert!((one / other - 1.0).abs() < 0.1, "{one} s and {other} s");
    assert!(now < one && other < later, "urgent requests wait less than without priorities, the others more");
}

/// What no replica is left for is not answered, and the run ends all the same.
#[test]
fn without_replicas_nothing_is_answered() {
    let simulation = Simulation::new(model("llama-3.1-8b", "vllm-2026")).with_replicas(2).keep_requests();
    let lost = simulation.with_outages(vec![outage(0, 4.0, None), outage(1, 6.0, None)]);
    let outcome = lost.run(&poisson(20.0), 300).unwrap();
    assert_eq!(outcome.arrived, 300);
    assert!(0 < outcome.completed && outcome.completed < 200, "{}", outcome.completed);
    let requests = outcome.statistics.requests.as_ref().unwrap();
    assert_eq!(requests.len() as u64, outcome.completed);
    assert!(requests.iter().all(|request| request.last_token.as_seconds() <= 6.0));
}

/// Steps that end at the moment of an outage have ended.
#[test]
fn an_outage_after_the_last_step_loses_nothing() {
    let workload = Workload::offline(1, Lengths::fixed(100, 50).unwrap()).unwrap();
    let simulation = Simulation::new(model("llama-3.1-8b", "vllm-2026")).with_warm_up(WarmUp::None).keep_requests();
    for simulation in [simulation.clone(), simulation.stepping()] {
        let undisturbed = simulation.run(&workload, 1).unwrap();
        let end = undisturbed.time.as_seconds();
        let outcome = simulation.with_outages(vec![outage(0, end, Some(end + 1.0))]).run(&workload, 1).unwrap();
        assert_eq!(outcome.statistics.requests, undisturbed.statistics.requests);
    }
}
