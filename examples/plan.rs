//! Which devices, how many, laid out how: the best plans for a load within limits, each confirmed by simulation.
// ci: args --model llama-3.1-70b --weights fp8,bf16 --rate 40 --slo-ttft-ms 1000 --slo-tpot-ms 50
// ci: args --model llama-3.1-8b --devices l4-24gb,l40s-48gb,h100-sxm-80gb --users 500 --think-s 20 --minimise devices --json

mod shared;

use clap::{Parser, ValueEnum};
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
    #[arg(long, value_enum, default_value_t = Minimise::Cost)]
    minimise: Minimise,
    #[arg(long, default_value_t = 1024)]
    max_devices: u32,
    /// Whose prices; without, the median
    #[arg(long)]
    provider: Option<String>,
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
#[rustfmt::skip]
enum Minimise { Cost, Tokens, Devices, Energy, Latency }

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let mut space = SearchSpace::new(shared::model(&arguments.model)?, shared::engine(&arguments.engine)?);
    space = match arguments.devices.as_slice() {
        [] => space.with_priced_devices(Catalog::embedded())?,
        names => space.with_devices(names.iter().map(|name| shared::device(name)).collect::<Result<Vec<_>, _>>()?),
    };
    if !arguments.weights.is_empty() {
        space = space.with_weights(arguments.weights.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>()?);
    }
    let mut workload = Workload::poisson(
        RequestsPerSecond::from_requests_per_second(arguments.rate),
        Lengths::fixed(arguments.prompt, arguments.output)?,
    )?;
    if let Some(users) = arguments.users {
        let think = Seconds::from_seconds(arguments.think_s);
        workload = workload.with_arrivals(Arrivals::closed_loop_with(users, think, None)?);
    }
    let [ttft, tpot] = [arguments.slo_ttft_ms, arguments.slo_tpot_ms].map(Seconds::from_millis);
    let target = Target::at(&Slo::ttft_tpot(ttft, tpot), Statistic::P99)?;
    let objective = match arguments.minimise {
        Minimise::Cost => Objective::CostPerHour,
        Minimise::Tokens => Objective::CostPerMillionTokens,
        Minimise::Devices => Objective::Devices,
        Minimise::Energy => Objective::Energy,
        Minimise::Latency => Objective::Latency(Metric::E2e, Statistic::P50),
    };
    let search =
        Search::new(&space, &workload, &target)?.minimising(objective).with_most_devices(arguments.max_devices);
    let prices = arguments.provider.clone().map_or(PriceChoice::Median, PriceChoice::Provider);
    let answer = search.with_prices(prices).run()?;
    Ok(if arguments.json { answer.to_json() } else { answer.to_string() } + "\n")
}
