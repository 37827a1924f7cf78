//! Capacity under targets, the curve and its knee: laws that hold for every deployment, and values that queueing theory gives.

#[path = "common/served.rs"]
mod served;

use llm_roofline::prelude::*;
use llm_roofline::serving::metrics::Metric;
use llm_roofline::serving::{
    Binding, Criterion, CurvePoint, Limit, Server, ServingError, Stability, Statistic, Target, TargetBreach, Verdict,
};
use llm_roofline::workload::{LengthDistribution, Lengths, Slo};
use proptest::prelude::*;
use served::compile;
use std::sync::LazyLock;

static MODELS: LazyLock<Vec<StepModel>> = LazyLock::new(|| {
    vec![
        compile("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026"),
        compile("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", "tensorrt-llm-2025"),
        compile("qwen3-30b-a3b", "h200-sxm-141gb", 1, "fp8", "sglang-2026"),
        compile("llama-3.1-8b", "l4-24gb", 1, "fp8", "vllm-2024"),
    ]
});

fn varied() -> Lengths {
    let prompts = LengthDistribution::log_normal(800.0, 600.0, 1, 4000).unwrap();
    let outputs = LengthDistribution::log_normal(200.0, 150.0, 1, 1000).unwrap();
    Lengths::independent(prompts, outputs).unwrap()
}

const fn ms(millis: f64) -> Seconds {
    Seconds::from_millis(millis)
}

fn statistics() -> impl Strategy<Value = Statistic> {
    prop::sample::select(vec![Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_looser_limit_never_has_a_smaller_capacity(
        which in 0_usize..4, statistic in statistics(), ttft in 20.0..3000.0, tpot in 3.0..80.0, looser in 1.0..2.0, share in 0.5..0.99, less in 0.5..1.0,
    ) {
        let server = Server::new(&MODELS[which], &varied()).unwrap();
        let slo = |factor: f64| Slo::ttft_tpot(ms(ttft * factor), ms(tpot * factor));
        let targets = [
            (Target::at(&slo(1.0), statistic).unwrap(), Target::at(&slo(looser), statistic).unwrap()),
            (Target::goodput(slo(1.0), share).unwrap(), Target::goodput(slo(looser), share * less).unwrap()),
        ];
        for (strict, loose) in targets {
            let (strict_rate, loose_rate) = (server.max_rate_under(&strict).unwrap(), server.max_rate_under(&loose).unwrap());
            prop_assert!(loose_rate.rate >= strict_rate.rate, "{strict}: {strict_rate}, {loose}: {loose_rate}");
            let (few, many) = (server.max_concurrency_under(&strict).unwrap(), server.max_concurrency_under(&loose).unwrap());
            prop_assert!(many.concurrency >= few.concurrency, "{strict}: {few}, {loose}: {many}");
        }
    }

    #[test]
    fn the_capacity_meets_its_target_and_slightly_more_does_not(which in 0_usize..4, statistic in statistics(), ttft in 60.0..3000.0, tpot in 5.0..80.0) {
        let server = Server::new(&MODELS[which], &varied()).unwrap();
        let target = Target::at(&Slo::ttft_tpot(ms(ttft), ms(tpot)), statistic).unwrap();
        let capacity = server.max_rate_under(&target).unwrap();
        match capacity.binding {
            Binding::Unloaded(breach) => {
                prop_assert_eq!(capacity.rate, RequestsPerSecond::ZERO);
                prop_assert!(target.breaches(&capacity.state).contains(&breach));
            }
            Binding::Target(_) => {
                prop_assert!(target.is_met(&server.open_loop(capacity.rate, &target.slo()).unwrap()));
                // One multiple of 2^-20 of the largest rate further.
                let more = capacity.rate + server.max_rate() * 2.0_f64.powi(-20);
                let beyond = server.open_loop(more, &target.slo());
                prop_assert!(beyond.is_err() || !target.is_met(&beyond.unwrap()));
            }
            ref other => prop_assert!(false, "a queue of any length within {}: {:?}", target, other),
        }
        let closed = server.max_concurrency_under(&target).unwrap();
        if closed.is_met() {
            prop_assert_eq!(closed.concurrency.fract(), 0.0);
            prop_assert!(target.is_met(&server.closed_loop(closed.concurrency, Seconds::ZERO, &target.slo()).unwrap()));
            prop_assert!(!target.is_met(&server.closed_loop(closed.concurrency + 1.0, Seconds::ZERO, &target.slo()).unwrap()));
        }
    }
}

#[test]
fn thinking_users_are_more_than_requests_in_flight() {
    let server = Server::new(&MODELS[0], &varied()).unwrap();
    let target = Target::at(&Slo::ttft_tpot(ms(500.0), ms(20.0)), Statistic::P90).unwrap();
    let (busy, thinking) =
        (server.max_concurrency_under(&target).unwrap(), server.max_users_under(&target, ms(20_000.0)).unwrap());
    assert!(thinking.concurrency > 1.5 * busy.concurrency, "{thinking} {busy}");
    // Little's law: users = rate * (thinking + answering).
    let cycle = ms(20_000.0) + thinking.state.summary.e2e.unwrap().mean;
    let users = thinking.rate.requests_in(cycle);
    assert!((users / thinking.concurrency - 1.0).abs() < 0.15, "{users} {thinking}");
}

#[test]
fn an_unloaded_request_that_is_too_slow_is_an_answer() {
    let server = Server::new(&MODELS[0], &Lengths::fixed(4000, 100).unwrap()).unwrap();
    let target = Target::default().with_latency(Metric::Ttft, Statistic::P50, ms(1.0)).unwrap();
    for capacity in [server.max_rate_under(&target).unwrap(), server.max_concurrency_under(&target).unwrap()] {
        let Binding::Unloaded(TargetBreach::Latency { metric, found: Some(found), .. }) = capacity.binding else {
            panic!("{:?}", capacity.binding)
        };
        assert_eq!((metric, capacity.rate, capacity.concurrency), (Metric::Ttft, RequestsPerSecond::ZERO, 0.0));
        assert_eq!(found, capacity.state.summary.ttft.unwrap().p50);
        assert!(
            found > ms(1.0) && capacity.to_string().starts_with("no load: already alone, p50 TTFT is "),
            "{capacity}"
        );
    }
}

#[test]
fn a_target_that_no_queue_breaks_is_bound_by_the_deployment() {
    let server = Server::new(&MODELS[0], &Lengths::fixed(500, 100).unwrap()).unwrap();
    // A token every ten seconds is reached with the largest batch.
    let target = Target::at(&Slo::default().with_tpot(ms(10_000.0)), Statistic::P99).unwrap();
    let closed = server.max_concurrency_under(&target).unwrap();
    let (slots, limit) = server.rules().slots();
    assert!(matches!(limit, Limit::Cache | Limit::Sequences));
    assert_eq!((closed.binding, closed.concurrency), (Binding::Deployment(limit), slots as f64));
    let open = server.max_rate_under(&target).unwrap();
    assert!(open.rate > server.max_rate() * 0.99, "{open}");
}

#[test]
fn all_limits_at_once_are_stricter_than_one_at_a_time() {
    let server = Server::new(&MODELS[0], &varied()).unwrap();
    let slo = Slo::ttft_tpot(ms(150.0), ms(14.0));
    let one_by_one = server.max_rate_under(&Target::at(&slo, Statistic::P90).unwrap()).unwrap();
    let joint = server.max_rate_under(&Target::goodput(slo, 0.9).unwrap()).unwrap();
    // The percentiles and the share are read off the same requests, but for interpolation.
    assert!(joint.rate <= one_by_one.rate * 1.02 && joint.is_met(), "{joint} {one_by_one}");
    assert!((joint.state.summary.goodput.unwrap().share - 0.9).abs() < 0.02);
}

#[test]
fn the_curve_rises_to_saturation_and_goes_through_the_steady_states() {
    for model in MODELS.iter() {
        for lengths in [varied(), Lengths::fixed(1000, 1).unwrap(), Lengths::fixed(200, 400).unwrap()] {
            let server = Server::new(model, &lengths).unwrap();
            let curve = server.curve(30).unwrap();
            assert_eq!(curve.len(), 30);
            assert!(curve[0].rho < 0.002 && (curve[29].rho - 0.98).abs() < 1e-12);
            for pair in curve.windows(2) {
                let [low, high] = pair else { unreachable!() };
                assert!(low.rate < high.rate && low.output_tps_total < high.output_tps_total);
                assert!(low.e2e.mean <= high.e2e.mean && low.mean_batch <= high.mean_batch, "{low:?} {high:?}");
            }
            for point in &curve {
                let state = server.open_loop(point.rate, &Slo::default()).unwrap().summary;
                assert_eq!((Some(point.ttft), point.tpot, Some(point.e2e)), (state.ttft, state.tpot, state.e2e));
            }
            let knee = server.knee().unwrap();
            assert!(curve.iter().all(|point| point.power() <= 1.01 * knee.point.power()), "{knee}");
            assert!(knee.stretch >= 1.0);
            // Denser around the knee than on average, unless the knee is at an end.
            if (0.1..0.9).contains(&knee.point.rho) {
                let near = curve.iter().filter(|point| (point.rho - knee.point.rho).abs() < 0.1).count();
                assert!(near >= 8, "{near} of 30 points in a fifth of all loads around {knee}");
            }
            let json = serde_json::to_string(&curve).unwrap();
            let read: Vec<CurvePoint> = serde_json::from_str(&json).unwrap();
            assert!(
                (read[7].ttft.p99 / curve[7].ttft.p99 - 1.0).abs() < 1e-12 && json.starts_with(r#"[{"request_rate":"#)
            );
        }
    }
}

/// One request at a time, all alike: M/D/1, whose power `rho / T` with `T = 1 + rho / (2 (1 - rho))` is largest at `2 - sqrt 2`
/// (the Pollaczek-Khinchine formula; Kleinrock 1979 gives 1/2 for M/M/1).
#[test]
fn the_knee_of_a_queue_with_one_server_is_where_theory_has_it() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let deployment = Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system).with_max_sequences(1);
    let model = StepModel::compile(&deployment).unwrap();
    let server = Server::new(&model, &Lengths::fixed(500, 100).unwrap()).unwrap();
    assert_eq!(server.rules().slots().0, 1);
    let knee = server.knee().unwrap();
    assert!((knee.point.rho - (2.0 - 2.0_f64.sqrt())).abs() < 0.03, "{knee}");
    assert!((knee.stretch - (1.0 + 0.5858 / (2.0 * 0.4142))).abs() < 0.1, "{knee}");
}

#[test]
fn verdicts_state_their_margin() {
    let verdict = |rho: f64| {
        Stability::new(
            RequestsPerSecond::from_requests_per_second(rho * 50.0),
            RequestsPerSecond::from_requests_per_second(50.0),
        )
        .unwrap()
    };
    for (rho, expected) in [
        (0.0, Verdict::Stable),
        (0.79, Verdict::Stable),
        (0.81, Verdict::NearSaturation),
        (0.999, Verdict::NearSaturation),
        (1.0, Verdict::Unstable),
        (1.3, Verdict::Unstable),
    ] {
        let stability = verdict(rho);
        assert_eq!(stability.verdict, expected, "{rho}");
        // Whether a capacity that is a fifth smaller would be enough.
        assert_eq!(stability.rho_if_slower < 1.0, expected == Verdict::Stable);
        assert!((stability.replicas_factor * 0.8 - rho).abs() < 1e-12);
    }
    assert_eq!(
        verdict(1.1).to_string(),
        "unstable at 1.10 of capacity (1.38 if that is 20 % less, 0.92 if 20 % more): the queue grows as long as this goes on; at most 40.0 req/s, or 1.38 times the replicas, would be safe"
    );
}

#[test]
fn what_is_no_target_is_refused() {
    let refused = |result: Result<Target, ServingError>| matches!(result, Err(ServingError::Number { .. }));
    let slo = Slo::ttft_tpot(ms(500.0), ms(50.0));
    for share in [0.0, -0.1, 1.1, f64::NAN] {
        assert!(refused(Target::goodput(slo, share)), "{share}");
    }
    for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(Target::default().with_latency(Metric::E2e, Statistic::Mean, ms(limit))), "{limit}");
    }
    assert!(matches!(Statistic::percentile(0.97), Err(ServingError::Number { value: 0.97, .. })));
    let server = Server::new(&MODELS[0], &varied()).unwrap();
    assert!(server.curve(1).is_err() && server.curve(1_000_000).is_err());
    assert!(server.max_users_under(&Target::default(), ms(-1.0)).is_err());
    for rate in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(server.stability(RequestsPerSecond::from_requests_per_second(rate)).is_err());
    }
    let target = Target::at(&slo, Statistic::P95).unwrap();
    assert_eq!(
        target.criteria().next(),
        Some(Criterion::Latency { metric: Metric::Ttft, statistic: Statistic::P95, limit: ms(500.0) })
    );
}
