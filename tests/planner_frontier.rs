//! Fronts against plain comparison of all points, and pools for prefill and decode against replicas that do both.

use llm_roofline::planner::{
    Disaggregation, Frontier, FrontierPoint, PlannerError, PriceChoice, SearchSpace, Tradeoff, pareto_front,
};
use llm_roofline::prelude::*;
use llm_roofline::serving::metrics::Metric;
use llm_roofline::serving::{Disaggregated, KvTransfer, Server, Target};
use llm_roofline::workload::{Lengths, Slo};
use proptest::prelude::*;
use std::ops::ControlFlow;

const CONCURRENCIES: [u64; 5] = [1, 4, 16, 64, 256];

fn space(devices: &[&str]) -> SearchSpace {
    let catalog = Catalog::embedded();
    SearchSpace::new(catalog.model("llama-3.1-8b").unwrap(), catalog.engine("vllm-2026").unwrap())
        .with_devices(devices.iter().map(|name| catalog.device(name).unwrap()))
        .with_weights(["bf16", "fp8"].map(|name| name.parse().unwrap()))
        .with_most_devices_per_replica(4)
}

fn deployment(device: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), 1).unwrap();
    Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system).with_engine(catalog.engine("vllm-2026").unwrap())
}

proptest! {
    #[test]
    fn a_front_is_what_nothing_beats(points in prop::collection::vec((0_u8..12, 0_u8..12), 0..40)) {
        let costs = |&(a, b): &(u8, u8)| (f64::from(a), f64::from(b));
        let beats = |a: &(u8, u8), b: &(u8, u8)| a.0 <= b.0 && a.1 <= b.1 && a != b;
        let mut expected: Vec<_> =
            points.iter().filter(|point| !points.iter().any(|other| beats(other, point))).copied().collect();
        expected.sort_unstable();
        expected.dedup();
        prop_assert_eq!(pareto_front(points, costs), expected);
    }
}

/// Every deployment with every number of requests, asked one by one.
#[test]
fn the_front_of_a_space_is_that_of_all_its_points() {
    let space = space(&["l40s-48gb", "h100-sxm-80gb"]);
    let lengths = Lengths::fixed(1000, 200).unwrap();
    let front = Frontier::new(&space, &lengths, &CONCURRENCIES, Tradeoff::default(), &PriceChoice::Median).unwrap();
    let mut all = Vec::new();
    for deployment in space.deployments().unwrap() {
        let model = StepModel::compile(&deployment).unwrap();
        let Ok(server) = Server::new(&model, &lengths) else { continue };
        for count in CONCURRENCIES.into_iter().filter(|count| *count <= server.rules().slots().0) {
            let summary = server.closed_loop(count as f64, Seconds::ZERO, &Slo::default()).unwrap().summary;
            let user = summary.tpot.unwrap().mean.token_rate().as_tokens_per_second();
            all.push((user, summary.output_tps_per_device.unwrap().as_tokens_per_second()));
        }
    }
    assert_eq!(front.candidates, all.len() as u64);
    let of = |point: &FrontierPoint| {
        let (user, device) = (point.output_tps_per_user, point.output_tps_per_device);
        (user.as_tokens_per_second(), device.as_tokens_per_second())
    };
    for (user, device) in front.points.iter().map(of) {
        assert!(!all.iter().any(|other| other.0 > user && other.1 > device), "{user}, {device}");
    }
    for (user, device) in all {
        assert!(front.points.iter().map(of).any(|known| known.0 >= user && known.1 >= device), "{user}, {device}");
    }
    // One more token per second for a user always costs tokens per device.
    assert!(front.points.windows(2).all(|pair| of(&pair[0]).0 > of(&pair[1]).0 && of(&pair[0]).1 < of(&pair[1]).1));
    assert_eq!(front.to_csv().lines().count(), front.points.len() + 1);
}

#[test]
fn costs_need_prices() {
    let lengths = Lengths::fixed(1000, 200).unwrap();
    let tradeoff = Tradeoff::CostAgainstLatency(Metric::E2e);
    let front = |devices: &[&str], prices: &PriceChoice| {
        Frontier::new(&space(devices), &lengths, &CONCURRENCIES, tradeoff, prices).unwrap()
    };
    let both = front(&["l40s-48gb", "h100-sxm-80gb"], &PriceChoice::Median);
    assert!(both.points.windows(2).all(|pair| {
        pair[0].e2e < pair[1].e2e && pair[0].usd_per_million_output_tokens > pair[1].usd_per_million_output_tokens
    }));
    assert!(front(&["h100-sxm-80gb"], &PriceChoice::Provider("nobody".into())).points.is_empty());
    // Twice the price, the same points.
    let at = |usd: f64| front(&["h100-sxm-80gb"], &PriceChoice::Fixed(UsdPerHour::from_usd_per_hour(usd)));
    let (cheap, dear) = (at(1.0), at(2.0));
    assert_eq!(cheap.points.len(), dear.points.len());
    for (cheap, dear) in cheap.points.iter().zip(&dear.points) {
        let ratio = dear.usd_per_million_output_tokens.unwrap() / cheap.usd_per_million_output_tokens.unwrap();
        assert!((ratio - 2.0).abs() < 1e-12 && cheap.e2e == dear.e2e);
    }
}

#[test]
fn a_front_can_be_stopped_and_needs_requests() {
    let (space, lengths) = (space(&["h100-sxm-80gb"]), Lengths::fixed(1000, 200).unwrap());
    let stopped = Frontier::with_progress(
        &space,
        &lengths,
        &CONCURRENCIES,
        Tradeoff::default(),
        &PriceChoice::Median,
        |progress| {
            assert!(progress.done <= progress.total);
            ControlFlow::Break(())
        },
    );
    assert_eq!(stopped.unwrap_err(), PlannerError::Cancelled);
    let none = Frontier::new(&space, &lengths, &[], Tradeoff::default(), &PriceChoice::Median);
    assert!(matches!(none, Err(PlannerError::Empty { .. })));
}

/// The split of every number of devices, by hand.
#[test]
fn the_best_pools_are_those_of_plain_enumeration() {
    let (deployment, lengths) = (deployment("h100-sxm-80gb"), Lengths::fixed(3000, 300).unwrap());
    let slo = Slo::ttft_tpot("1 s".parse().unwrap(), "20 ms".parse().unwrap());
    let network = KvTransfer::new(BytesPerSecond::from_gb_per_second(50.0)).unwrap();
    let compared = Disaggregation::new(&deployment, &lengths, (&slo, 0.9), 4, network).unwrap();
    let catalog = Catalog::embedded();
    let models = [1, 2, 4].map(|degree| {
        let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), degree).unwrap();
        let cut = deployment.clone().with_system(system).with_tensor_parallel(degree);
        (degree, StepModel::compile(&cut).unwrap())
    });
    let target = Target::goodput(slo, 0.9).unwrap();
    let mut together = RequestsPerSecond::ZERO;
    let mut apart = RequestsPerSecond::ZERO;
    for (degree, model) in &models {
        let one = Server::new(model, &lengths).unwrap().max_rate_under(&target).unwrap().rate;
        together = together.max(one * f64::from(4 / degree));
        for (other, decode) in &models {
            if degree + other <= 4 {
                let split = Disaggregated::best_split(model, decode, network, &lengths, 4, (&slo, 0.9)).unwrap();
                apart = apart.max(split.rate);
            }
        }
    }
    assert_eq!(compared.aggregated.as_ref().unwrap().1, together);
    assert_eq!(compared.disaggregated.as_ref().unwrap().2, apart);
    assert_eq!(compared.gain(), Some(apart / together));
}

/// Which pool needs more devices depends on the lengths (sgl-project/sglang-omni#1760 asks for the ratio).
#[test]
fn long_prompts_want_prefill_devices_and_long_answers_decode_devices() {
    let deployment = deployment("h100-sxm-80gb");
    let slo = Slo::ttft_tpot("2 s".parse().unwrap(), "15 ms".parse().unwrap());
    let network = KvTransfer::new(BytesPerSecond::from_gb_per_second(50.0)).unwrap();
    let devices_for_prompts = |prompt, output| {
        let lengths = Lengths::fixed(prompt, output).unwrap();
        let compared = Disaggregation::new(&deployment, &lengths, (&slo, 0.9), 8, network).unwrap();
        let (prefill, _, _) = compared.disaggregated.unwrap();
        prefill.replicas * prefill.configuration.devices_per_replica
    };
    let (documents, chat) = (devices_for_prompts(6000, 100), devices_for_prompts(300, 600));
    assert!(documents >= 5 && chat <= 3, "{documents} and {chat} of 8 devices for prompts");
    // Limits that nothing meets.
    let impossible = Slo::default().with_tpot("1 ms".parse().unwrap());
    let lengths = Lengths::fixed(1000, 100).unwrap();
    let none = Disaggregation::new(&deployment, &lengths, (&impossible, 0.9), 4, network).unwrap();
    assert!(none.aggregated.is_none() && none.disaggregated.is_none() && none.gain().is_none());
}
