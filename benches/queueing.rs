//! What answers of queueing theory cost: formulas, whole distributions, chains of many states.

use criterion::{Criterion, criterion_group, criterion_main};
use llm_roofline::queueing::{
    BatchQueue, BatchTime, BirthDeath, ClosedNetwork, LimitedBatchQueue, Md1, Mdc, Mgc, Mmc, MphC, Service, Station,
    TwoPhase, erlang_c,
};
use std::hint::black_box;

fn servers(criterion: &mut Criterion) {
    criterion.bench_function("M/D/1, the distribution", |b| b.iter(|| Md1::new(black_box(0.8), 1.0)));
    let queue = Md1::new(0.8, 1.0).expect("a stable queue");
    criterion.bench_function("M/D/1, a quantile", |b| b.iter(|| queue.wait_quantile(black_box(0.99))));
    for servers in [8_u64, 1000, 10_000] {
        let load = 0.95 * servers as f64;
        criterion
            .bench_function(&format!("Erlang C, {servers} servers"), |b| b.iter(|| erlang_c(servers, black_box(load))));
    }
    criterion.bench_function("fewest servers for a service level, about 1000", |b| {
        b.iter(|| Mmc::with_service_level(black_box(950.0), 1.0, 0.1, 0.95))
    });
    for (servers, load) in [(8, 0.5), (8, 0.9), (8, 0.99), (1000, 0.99)] {
        let rate = load * servers as f64;
        criterion.bench_function(&format!("M/D/c, {servers} servers at {load}"), |b| {
            b.iter(|| Mdc::new(black_box(rate), 1.0, servers))
        });
    }
    let service = Service::gamma(1.0, 0.5).expect("a service");
    criterion.bench_function("M/G/c, 8 servers at 0.7", |b| {
        b.iter(|| Mgc::new(black_box(5.6), service, 8).and_then(|queue| queue.mean_wait()))
    });
    let phases = TwoPhase::with_scv(1.0, 4.0).expect("a service");
    for servers in [8, 32] {
        let rate = 0.7 * servers as f64;
        criterion.bench_function(&format!("M/Ph/c, {servers} servers"), |b| {
            b.iter(|| MphC::new(black_box(rate), phases, servers))
        });
    }
}

fn chains(criterion: &mut Criterion) {
    // 256 slots of a server that batches, 1,792 places to wait.
    let rate = |n: usize| {
        let batch = n.min(256) as f64;
        batch / (500.0 * (0.012 + 0.0001 * batch))
    };
    let chain = BirthDeath::new(black_box(13.0), rate, Some(2047)).and_then(|chain| chain.with_slots(256));
    let chain = chain.expect("a chain");
    criterion.bench_function("birth-death, 2048 states, means", |b| b.iter(|| black_box(&chain).summary()));
    let mut buffer = Vec::new();
    criterion.bench_function("birth-death, 2048 states, probabilities in a buffer", |b| {
        b.iter(|| {
            let states = black_box(&chain).solve_into(std::mem::take(&mut buffer)).expect("a stable chain");
            buffer = states.into_buffer();
        })
    });
    let endless = BirthDeath::new(13.0, rate, None).and_then(|chain| chain.with_slots(256)).expect("a chain");
    criterion
        .bench_function("birth-death, 256 slots and no capacity, means", |b| b.iter(|| black_box(&endless).summary()));
    let network = ClosedNetwork::new(10.0, &[Station::Queue(0.25), Station::Queue(0.1), Station::Delay(1.0)]);
    let network = network.expect("a network");
    criterion.bench_function("mean value analysis, 1000 customers, 3 stations", |b| {
        b.iter(|| network.solve(black_box(1000)))
    });
}

fn batches(criterion: &mut Criterion) {
    let time = BatchTime::new(0.1438, 1.8874).expect("a time");
    for load in [0.5, 0.9, 0.99] {
        let rate = load / time.per_job();
        criterion.bench_function(&format!("batches without limit at load {load}"), |b| {
            b.iter(|| BatchQueue::new(black_box(rate), time))
        });
    }
    for largest in [8, 32, 128, 512] {
        let rate = 0.9 * largest as f64 / time.of(largest);
        criterion.bench_function(&format!("batches of at most {largest}, load 0.9"), |b| {
            b.iter(|| LimitedBatchQueue::new(black_box(rate), time, largest))
        });
    }
}

criterion_group!(benches, servers, chains, batches);
criterion_main!(benches);
