//! What planning costs: cells of a sweep, deployments of a search with and without a load, frontiers, sensitivities.

mod shared;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use llm_roofline::planner::{Axis, Frontier, Objective, PriceChoice, Question, Search, SearchSpace, Sweep, Tradeoff};
use llm_roofline::prelude::*;
use llm_roofline::serving::metrics::Metric;
use llm_roofline::serving::{Statistic, Target};
use llm_roofline::workload::{Lengths, Slo, Workload};
use shared::deployment;
use std::hint::black_box;
use std::sync::Arc;

/// Every device, 16 layouts of up to 16 devices, four formats of the weights, two of the cache; any number of replicas.
fn everything(model: &str) -> SearchSpace {
    let catalog = Catalog::embedded();
    let devices: Vec<Arc<Device>> =
        catalog.devices().map(|entry| catalog.device(&entry.head().slug).expect("a device")).collect();
    SearchSpace::new(catalog.model(model).expect("a model"), catalog.engine("vllm-2026").expect("an engine"))
        .with_devices(devices)
        .with_weights(["bf16", "fp8", "int8", "awq-int4"].map(|name| name.parse().expect("a format")))
        .with_kv(["bf16", "fp8"].map(|name| name.parse().expect("a format")))
}

fn workload(rate: f64) -> Workload {
    let rate = RequestsPerSecond::from_requests_per_second(rate);
    Workload::poisson(rate, Lengths::fixed(1000, 300).expect("lengths")).expect("a workload")
}

fn target() -> Target {
    let slo = Slo::ttft_tpot(Seconds::from_millis(1000.0), Seconds::from_millis(50.0));
    Target::at(&slo, Statistic::P99).expect("a target")
}

fn search<'a>(space: &'a SearchSpace, rate: f64) -> Search<'a> {
    let search = Search::new(space, &workload(rate), &target()).expect("a search");
    #[cfg(feature = "random")]
    let search = search.with_simulated_requests(0);
    search.with_prices(PriceChoice::Fixed(UsdPerHour::from_usd_per_hour(2.0)))
}

/// On one thread, so that figures are those of a core.
fn on_one_core<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    #[cfg(feature = "parallel")]
    return rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread").install(work);
    #[cfg(not(feature = "parallel"))]
    work()
}

fn sweeps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep");
    for (name, engine) in [("ideal", "ideal"), ("vllm-2026", "vllm-2026")] {
        let base = deployment("llama-3.1-70b", "h100-sxm-80gb", 4, "fp8", engine);
        let sweep = Sweep::new(&base, &Request::new(1000, 300))
            .over(Axis::tensor_parallel([2, 4, 8]))
            .and_then(|sweep| sweep.over(Axis::weights(["fp8", "bf16"].map(|name| name.parse().expect("a format")))))
            .and_then(|sweep| sweep.over(Axis::counts((1..=64).map(|count| 8 * count))))
            .and_then(|sweep| sweep.over(Axis::prompts((1..=64).map(|index| 100 * index))))
            .expect("a sweep");
        group.throughput(Throughput::Elements(3 * 2 * 64 * 64));
        group.bench_function(format!("TPOT of 24,576 deployments, {name}"), |b| {
            on_one_core(|| b.iter(|| sweep.run(|cell| Ok(cell.estimate()?.tpot))));
        });
    }
    group.finish();
}

fn searches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("search");
    group.sample_size(10);
    for model in ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3"] {
        let space = everything(model);
        group.throughput(Throughput::Elements(space.len() as u64));
        for (name, rate) in [("2 req/s", 2.0), ("200 req/s", 200.0)] {
            let search = search(&space, rate);
            group.bench_function(format!("cheapest of all devices, {model}, {name}"), |b| {
                on_one_core(|| b.iter(|| black_box(&search).run()));
            });
        }
    }
    let space = everything("llama-3.1-70b");
    group.throughput(Throughput::Elements(space.len() as u64));
    let objectives = [
        ("tokens", Objective::CostPerMillionTokens),
        ("devices", Objective::Devices),
        ("energy", Objective::Energy),
        ("latency", Objective::Latency(Metric::E2e, Statistic::P50)),
    ];
    for (name, objective) in objectives {
        let search = search(&space, 20.0).minimising(objective).with_most_devices(1024);
        group.bench_function(format!("least {name} of all devices, llama-3.1-70b"), |b| {
            on_one_core(|| b.iter(|| black_box(&search).run()));
        });
    }
    group.finish();
}

fn questions(criterion: &mut Criterion) {
    let base = deployment("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026");
    let question = Question::new(base, 1000, 300).expect("a question").with_target(target());
    criterion.bench_function("sensitivity", |b| b.iter(|| black_box(&question).sensitivity()));
    criterion.bench_function("levers", |b| b.iter(|| black_box(&question).levers()));
    let catalog = Catalog::embedded();
    let space = SearchSpace::new(
        catalog.model("llama-3.1-70b").expect("a model"),
        catalog.engine("vllm-2026").expect("an engine"),
    )
    .with_devices(["h100-sxm-80gb", "h200-sxm-141gb"].map(|name| catalog.device(name).expect("a device")));
    let lengths = Lengths::fixed(1000, 300).expect("lengths");
    criterion.bench_function("frontier of two devices", |b| {
        b.iter(|| {
            Frontier::new(&space, &lengths, &[1, 4, 16, 64, 256], Tradeoff::UserAgainstDevice, &PriceChoice::Median)
        });
    });
}

criterion_group!(benches, sweeps, searches, questions);
criterion_main!(benches);
