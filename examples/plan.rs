//! Which devices, how many, laid out how: the best plans for a load within limits, each confirmed by simulation.
// ci: args --model llama-3.1-70b --weights fp8,bf16 --rate 40 --slo-ttft-ms 1000 --slo-tpot-ms 50
// ci: args --model llama-3.1-8b --devices l4-24gb,l40s-48gb,h100-sxm-80gb --users 500 --think-s 20 --minimise devices --json

mod shared;

use clap::{Parser, builder::PossibleValuesParser};
use llm_roofline::planner::{Objective, PriceChoice, Search, SearchSpace};
use llm_roofline::prelude::*;
use llm_roofline::serving::{Statistic, Target, metrics::Metric};
use llm_roofline::workload::{Arrivals, Lengths, Slo, Workload};
use std::error::Error;

/// Finds the best deployment for a workload.
#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    /// Names of devices; without, all that have a price
    #[arg(long, value_delimiter = ',')]
    devices: Vec<String>,
    #[arg(long, default_value = "vllm-2026")]
    engine: String,
    /// Formats that are good enough
    #[arg(long, value_delimiter = ',')]
    weights: Vec<String>,
    /// Requests per second
    #[arg(long, default_value_t = 10.0, conflicts_with = "users")]
    rate: f64,
    #[arg(long)]
    users: Option<u64>,
    /// From an answer to the user's next request
    #[arg(long, default_value_t = 0.0)]
    think_s: f64,
    #[arg(long, default_value_t = 1000)]
    prompt: u64,
    #[arg(long, default_value_t = 300)]
    output: u64,
    #[arg(long, default_value_t = 1000.0)]
    slo_ttft_ms: f64,
    #[arg(long, default_value_t = 50.0)]
    slo_tpot_ms: f64,
    #[arg(long, default_value = "cost", value_parser = PossibleValuesParser::new(["cost", "tokens", "devices", "energy", "latency"]))]
    minimise: String,
    #[arg(long, default_value_t = 1024)]
    max_devices: u32,
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let space = SearchSpace::new(shared::model(&arguments.model)?, shared::engine(&arguments.engine)?);
    let devices = arguments.devices.iter().map(|name| shared::device(name)).collect::<Result<Vec<_>, _>>()?;
    let mut space =
        if devices.is_empty() { space.with_priced_devices(Catalog::embedded())? } else { space.with_devices(devices) };
    if !arguments.weights.is_empty() {
        space = space.with_weights(arguments.weights.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>()?);
    }
    let arrivals = match arguments.users {
        Some(users) => Arrivals::closed_loop_with(users, Seconds::from_seconds(arguments.think_s), None)?,
        None => Arrivals::poisson(RequestsPerSecond::from_requests_per_second(arguments.rate))?,
    };
    let workload = Workload::new(arrivals, Lengths::fixed(arguments.prompt, arguments.output)?);
    let [ttft, tpot] = [arguments.slo_ttft_ms, arguments.slo_tpot_ms].map(Seconds::from_millis);
    let target = Target::at(&Slo::ttft_tpot(ttft, tpot), Statistic::P99)?;
    let objective = match arguments.minimise.as_str() {
        "tokens" => Objective::CostPerMillionTokens,
        "devices" => Objective::Devices,
        "energy" => Objective::Energy,
        "latency" => Objective::Latency(Metric::E2e, Statistic::P50),
        _ => Objective::CostPerHour,
    };
    let search = Search::new(&space, &workload, &target)?.minimising(objective).with_prices(PriceChoice::Median);
    let answer = search.with_most_devices(arguments.max_devices).run()?;
    Ok(if arguments.json { answer.to_json() } else { answer.to_string() } + "\n")
}
