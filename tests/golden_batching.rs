//! Published numbers of batching under load, each recomputed with the public API.
//!
//! `tests/data/golden_batching.csv` names the source of every number. A row without a recipe fails the test, unless the table says that it is skipped, and
//! why.

#[path = "common/golden.rs"]
mod golden;
#[path = "common/table.rs"]
mod table;

use golden::{Inputs, reproduce};
use llm_roofline::prelude::*;
use llm_roofline::queueing::{ClosedNetwork, Station};
use llm_roofline::serving::metrics::{Convention, RequestTimes};
use table::Row;

const TABLE: &str = include_str!("data/golden_batching.csv");
/// Rows of the table, and those among them that are skipped: a row is lost if these change.
const ROWS: usize = 20;
const SKIPPED: usize = 5;

/// The quantity of a row as this crate computes it.
fn recompute(row: &Row) -> Option<f64> {
    let inputs = Inputs(row);
    let number = |name| inputs.number(name);
    Some(match row.text("quantity") {
        // The response-time law: clients that do not think are always in service, each for TTFT and N-1 gaps.
        "throughput = C*N/(TTFT+(N-1)*ITL)" => {
            let tokens = number("out_tokens");
            let gaps = Seconds::from_millis(number("itl_ms")) * (tokens - 1.0);
            let e2e = Seconds::from_millis(number("ttft_ms")) + gaps;
            loop_of(number("concurrency"), e2e).as_requests_per_second() * tokens
        }
        // One place that is always taken: further clients wait for the rate of the others.
        "TTFT increment per extra clients beyond saturation" => {
            let service = Seconds::from_seconds(number("out_tokens") / number("tps"));
            let network = ClosedNetwork::new(0.0, &[Station::Queue(service.as_seconds())]).unwrap();
            let extra = number("extra_clients") as u64;
            let wait = |clients| network.solve(clients).unwrap().response_time;
            wait(200 + extra) - wait(200)
        }
        "output throughput at concurrency 1" => {
            loop_of(1.0, Seconds::from_millis(number("latency_ms"))).as_requests_per_second() * number("osl")
        }
        // The means of many requests, as one of their mean length: the gap of 344.8 tokens is that of 345 by proportion.
        "ITL = (latency-TTFT)/(OSL-1)" => {
            let [ttft, latency] = ["ttft_ms", "latency_ms"].map(|name| Seconds::from_millis(number(name)));
            let tokens = number("osl");
            let request = RequestTimes::new(Seconds::ZERO, ttft, latency, tokens.ceil() as u64);
            (Convention::GenAiPerf.itl(&request)? * ((tokens.ceil() - 1.0) / (tokens - 1.0))).as_millis()
        }
        // A prompt of full attention and its chunks: what chunks read again beyond what they add, in units of a chunk.
        "chunk KV loads (N-1)+(N-2)+..." => chunk_loads(number("chunks") as u64),
        _ => return None,
    })
}

/// The rate of so many clients that do not think, with so long answers.
fn loop_of(clients: f64, e2e: Seconds) -> RequestsPerSecond {
    let network = ClosedNetwork::new(0.0, &[Station::Delay(e2e.as_seconds())]).unwrap();
    RequestsPerSecond::from_requests_per_second(network.solve(clients as u64).unwrap().throughput)
}

/// Chunks of earlier prompt tokens whose cache the chunks of a prompt read again, from the pairs of queries and keys in the engine's steps.
fn chunk_loads(chunks: u64) -> f64 {
    const CHUNK: u64 = 512;
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("a100-sxm-80gb").unwrap(), 1).unwrap();
    let deployment = Deployment::new(catalog.model("llama-2-7b").unwrap(), system);
    let flops = |cached: u64, new: u64| {
        let model = StepModel::compile(&deployment).unwrap();
        let mut load = model.load();
        load.add_prefill(cached, new, false);
        model.cost(&load).flops()
    };
    // Operations of attention are linear in the pairs: a chunk over one earlier chunk sets the unit.
    let unit = flops(CHUNK, CHUNK) - flops(0, CHUNK);
    (0..chunks).map(|before| (flops(before * CHUNK, CHUNK) - flops(0, CHUNK)) / unit).sum()
}

#[test]
fn published_numbers_are_reproduced() {
    reproduce(TABLE, ROWS, SKIPPED, 1e-9, recompute);
}
