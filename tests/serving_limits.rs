//! Where the steady state must be exact: one request, one place, no load, endless load.

use llm_roofline::prelude::*;
use llm_roofline::queueing::Md1;
use llm_roofline::serving::{BenchmarkClient, Server, ServingError, balanced_ratio};
use llm_roofline::workload::{Arrivals, LengthDistribution, Lengths, Slo};

fn model(name: &str, device: &str, count: u32, engine: &str) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    // A front end is no part of an unloaded request's steps.
    let mut engine = Engine::clone(&catalog.engine(engine).unwrap());
    engine.host.per_request = None;
    let deployment = Deployment::new(catalog.model(name).unwrap(), system).with_engine(engine);
    StepModel::compile(&deployment).unwrap()
}

fn close(a: Seconds, b: Seconds, bound: f64) {
    assert!((a / b - 1.0).abs() < bound, "{a} against {b}");
}

#[test]
fn no_load_and_one_client_are_the_unloaded_request() {
    for (name, device, count, engine, prompt, output) in [
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026", 1000, 200),
        ("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026", 30_000, 100),
        ("llama-3.1-70b", "h100-sxm-80gb", 4, "tensorrt-llm-2026", 2000, 300),
        ("gemma-3-12b", "h100-sxm-80gb", 1, "sglang-2026", 3000, 500),
        ("deepseek-v3", "h200-sxm-141gb", 8, "sglang-2026", 1000, 100),
    ] {
        let model = model(name, device, count, engine);
        let answer = model.request(&Request::new(prompt, output)).unwrap();
        let server = Server::new(&model, &Lengths::fixed(prompt, output).unwrap()).unwrap();
        let idle = server.open_loop(RequestsPerSecond::ZERO, &Slo::default()).unwrap().summary;
        let alone = server.closed_loop(1.0, Seconds::ZERO, &Slo::default()).unwrap().summary;
        for state in [&idle, &alone] {
            close(state.ttft.unwrap().mean, answer.ttft, 1e-9);
            close(state.tpot.unwrap().mean, answer.tpot.unwrap(), 1e-9);
            close(state.e2e.unwrap().mean, answer.e2e, 1e-9);
            assert!(state.stable);
        }
        // A little load is next to none.
        let little = server.open_loop(server.max_rate() * 1e-6, &Slo::default()).unwrap().summary;
        close(little.tpot.unwrap().mean, answer.tpot.unwrap(), 1e-3);
        close(little.ttft.unwrap().mean, answer.ttft, 5e-3);
    }
}

#[test]
fn one_place_and_one_length_is_m_d_1() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let mut engine = Engine::clone(&catalog.engine("vllm-2026").unwrap());
    engine.host.per_request = None;
    engine.scheduling.prompt_wait_steps = None;
    let deployment = Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system).with_engine(engine);
    let model = StepModel::compile(&deployment.with_max_sequences(1)).unwrap();
    let answer = model.request(&Request::new(1000, 100)).unwrap();
    let server = Server::new(&model, &Lengths::fixed(1000, 100).unwrap()).unwrap();
    close(server.max_rate().interval(), answer.e2e, 1e-9);
    for rho in [0.3, 0.6, 0.8] {
        let rate = server.max_rate() * rho;
        let state = server.open_loop(rate, &Slo::default()).unwrap();
        let exact = Md1::new(rate.as_requests_per_second(), answer.e2e.as_seconds()).unwrap();
        close(state.ttft.queue, Seconds::from_seconds(exact.mean_wait()), 1e-6);
        close(state.ttft.total(), answer.ttft + Seconds::from_seconds(exact.mean_wait()), 1e-6);
        let p99 = answer.ttft + Seconds::from_seconds(exact.wait_quantile(0.99).unwrap());
        close(state.summary.ttft.unwrap().p99, p99, 0.03);
    }
}

#[test]
fn endless_load_is_the_offline_rate() {
    let model = model("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026");
    let server = Server::new(&model, &Lengths::fixed(1000, 200).unwrap()).unwrap();
    let offline = server.offline(&Slo::default());
    let (slots, _) = server.rules().slots();
    let crowd = server.closed_loop(100.0 * slots as f64, Seconds::ZERO, &Slo::default()).unwrap();
    assert!((crowd.rate / offline.rate - 1.0).abs() < 1e-6, "{} {}", crowd.rate, offline.rate);
    assert!((offline.rate / server.max_rate() - 1.0).abs() < 1e-12);
    let over = server.open_loop(server.max_rate() * 1.01, &Slo::default()).unwrap();
    assert!(!over.summary.stable && over.summary.ttft.is_none());
    assert!((over.rate / server.max_rate() - 1.0).abs() < 1e-12);
    assert_eq!(server.open_loop(server.max_rate(), &Slo::default()).map(|state| state.summary.stable), Ok(false));
}

#[test]
fn laws_of_response_times_hold() {
    let model = model("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026");
    let varied = LengthDistribution::uniform_ratio(800, 0.5).unwrap();
    let lengths = Lengths::independent(varied, LengthDistribution::uniform_ratio(200, 0.5).unwrap()).unwrap();
    let server = Server::new(&model, &lengths).unwrap();
    for (clients, think) in [(1.0, 0.0), (8.0, 0.5), (64.0, 2.0), (2000.0, 0.0)] {
        let think = Seconds::from_seconds(think);
        let state = server.closed_loop(clients, think, &Slo::default()).unwrap();
        let cycle = state.summary.e2e.unwrap().mean + think;
        let there = state.rate.requests_in(cycle);
        assert!((there / clients - 1.0).abs() < 0.01, "{there} of {clients}");
    }
    let e2e_of = |ttft: Seconds, tpot: Seconds| ttft + tpot * 199.0;
    let state = server.open_loop(server.max_rate() * 0.7, &Slo::default()).unwrap().summary;
    close(state.e2e.unwrap().mean, e2e_of(state.ttft.unwrap().mean, state.tpot.unwrap().mean), 1e-9);
    assert!((state.rho.unwrap() - 0.7).abs() < 1e-12);
}

#[test]
fn arrivals_in_bursts_wait_longer_and_regular_ones_shorter() {
    let model = model("llama-3.1-8b", "h100-sxm-80gb", 1, "vllm-2026");
    let server = Server::new(&model, &Lengths::fixed(4000, 200).unwrap()).unwrap();
    let rate = server.max_rate() * 0.7;
    let tpot = |arrivals: &Arrivals| server.steady(arrivals, &Slo::default()).unwrap().summary.tpot.unwrap().p99;
    let bursts = tpot(&Arrivals::gamma(rate, 0.25).unwrap());
    let poisson = tpot(&Arrivals::poisson(rate).unwrap());
    let regular = tpot(&Arrivals::uniform(rate).unwrap());
    assert!(bursts > poisson * 1.05 && poisson > regular * 1.05, "{bursts} {poisson} {regular}");
    assert!(matches!(
        server.open_loop(RequestsPerSecond::from_requests_per_second(f64::NAN), &Slo::default()),
        Err(ServingError::Number { .. })
    ));
}

#[test]
fn what_is_no_load_is_an_error_and_every_load_has_a_finite_answer() {
    for engine in ["vllm-2026", "transformers"] {
        let model = model("llama-3.1-8b", "h100-sxm-80gb", 1, engine);
        let server = Server::new(&model, &Lengths::fixed(1000, 200).unwrap()).unwrap();
        let (slo, client) = (Slo::default(), BenchmarkClient::default());
        let closed = |clients: f64, think: f64| server.closed_loop(clients, Seconds::from_seconds(think), &slo);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(closed(wrong, 0.0), Err(ServingError::Number { .. })), "{wrong}");
            assert!(server.published_closed_loop(wrong, &client).is_err(), "{wrong}");
            assert!(server.published_closed_loop(8.0, &client.with_requests(wrong)).is_err(), "{wrong}");
            assert!(server.published_offline(wrong).is_err(), "{wrong}");
            assert!(balanced_ratio(Seconds::from_seconds(1.0), Seconds::from_seconds(1.0), wrong, 1.0).is_err());
        }
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(closed(1.0, wrong), Err(ServingError::Number { .. })), "{wrong}");
            let rate = RequestsPerSecond::from_requests_per_second(wrong);
            assert!(matches!(server.published_open_loop(rate, &client), Err(ServingError::Number { .. })), "{wrong}");
        }
        for clients in [1e-12, 0.5, 1.0, 1.5, 1e3, 1e9, 1e15] {
            let state = closed(clients, 1.0).unwrap();
            assert!(state.rate > RequestsPerSecond::ZERO && state.rate.is_finite(), "{clients} {}", state.rate);
            assert!(state.summary.e2e.unwrap().p99.is_finite(), "{clients}");
            let printed = [server.published_closed_loop(clients, &client), server.published_offline(clients)];
            for estimate in printed.map(Result::unwrap) {
                assert!(estimate.rate > RequestsPerSecond::ZERO && estimate.rate.is_finite(), "{clients}");
                assert!(estimate.ttft.p99.is_finite() && estimate.e2e.p99.is_finite(), "{clients} {estimate:?}");
            }
        }
    }
}
