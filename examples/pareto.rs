//! Fast for one user or cheap for all: the deployments that no other beats in both, and whether pools for prefill and decode would help.
// ci: args --weights fp8,bf16
// ci: args --model deepseek-v3 --devices h200-sxm-141gb --engine sglang-2026 --csv

mod shared;

use clap::Parser;
use llm_roofline::planner::{Disaggregation, Frontier, PriceChoice, SearchSpace, Tradeoff};
use llm_roofline::prelude::*;
use llm_roofline::serving::{KvTransfer, metrics::Metric};
use llm_roofline::workload::{Lengths, Slo};
use std::error::Error;

/// Draws the front of speed per user against speed per device, or of costs against latency.
#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "llama-3.1-70b")]
    model: String,
    #[arg(long, value_delimiter = ',', default_value = "h100-sxm-80gb,h200-sxm-141gb")]
    devices: Vec<String>,
    #[arg(long, default_value = "vllm-2026")]
    engine: String,
    #[arg(long, value_delimiter = ',')]
    weights: Vec<String>,
    #[arg(long, default_value_t = 1000)]
    prompt: u64,
    #[arg(long, default_value_t = 300)]
    output: u64,
    /// Cost of tokens against time to the last one, instead of tokens per second and user against those per device
    #[arg(long)]
    cost: bool,
    /// Nothing but the front, as CSV
    #[arg(long)]
    csv: bool,
    /// Devices of the first kind for the comparison with pools
    #[arg(long, default_value_t = 16)]
    pool_devices: u32,
    #[arg(long, default_value_t = 1000.0)]
    slo_ttft_ms: f64,
    #[arg(long, default_value_t = 30.0)]
    slo_tpot_ms: f64,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let devices = arguments.devices.iter().map(|name| shared::device(name)).collect::<Result<Vec<_>, _>>()?;
    let mut space = SearchSpace::new(shared::model(&arguments.model)?, shared::engine(&arguments.engine)?)
        .with_devices(devices.clone())
        .with_most_devices_per_replica(8);
    if !arguments.weights.is_empty() {
        space = space.with_weights(arguments.weights.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>()?);
    }
    let lengths = Lengths::fixed(arguments.prompt, arguments.output)?;
    let concurrencies = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
    let tradeoff = match arguments.cost {
        true => Tradeoff::CostAgainstLatency(Metric::E2e),
        false => Tradeoff::UserAgainstDevice,
    };
    let front = Frontier::new(&space, &lengths, &concurrencies, tradeoff, &PriceChoice::Median)?;
    if arguments.csv {
        return Ok(front.to_csv());
    }
    let system = System::new(devices.into_iter().next().ok_or("no device is named")?, 1)?;
    let weights = arguments.weights.first().map(String::as_str);
    let deployment = shared::deployment(&arguments.model, system, &arguments.engine, weights, None)?;
    let slo = Slo::ttft_tpot(Seconds::from_millis(arguments.slo_ttft_ms), Seconds::from_millis(arguments.slo_tpot_ms));
    let network = KvTransfer::new(BytesPerSecond::from_gb_per_second(50.0))?.layer_by_layer();
    let compared = Disaggregation::new(&deployment, &lengths, (&slo, 0.9), arguments.pool_devices, network)?;
    Ok(format!(
        "{front}\n\n90 % of requests within {slo}, {network_text}:\n{compared}\n",
        network_text = "50 GB/s out of a replica"
    ))
}
