//! What bounds a deployment, what a better data sheet would bring, and which changes bring how much.
// ci: args --slo-ttft-ms 1000 --slo-tpot-ms 40
// ci: args --model llama-3.1-70b --count 4 --weights fp8 --prompt 4000 --output 500
// ci: args --model qwen2.5-coder-7b --device rtx-4090-24gb --engine llama-cpp-cuda-2026 --weights q8_0

mod shared;

use clap::Parser;
use llm_roofline::planner::{PriceChoice, Question};
use llm_roofline::prelude::*;
use llm_roofline::serving::{Statistic, Target};
use llm_roofline::workload::Slo;
use std::error::Error;

/// Diagnoses a deployment before the contract is signed.
#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    #[arg(long, default_value = "h100-sxm-80gb")]
    device: String,
    #[arg(long, default_value_t = 1)]
    count: u32,
    #[arg(long, default_value = "vllm-2026")]
    engine: String,
    /// Format of the weights; without, that of the checkpoint
    #[arg(long)]
    weights: Option<String>,
    #[arg(long, default_value_t = 1000)]
    prompt: u64,
    #[arg(long, default_value_t = 300)]
    output: u64,
    /// Limit on the 90th percentile of the time to first token
    #[arg(long)]
    slo_ttft_ms: Option<f64>,
    /// Limit on the 90th percentile of the time per output token
    #[arg(long)]
    slo_tpot_ms: Option<f64>,
    /// USD for one device and hour; without, the median of known prices
    #[arg(long)]
    price: Option<f64>,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let Arguments { model, device, count, engine, weights, prompt, output, .. } = arguments;
    let device = shared::device(device)?;
    let price = arguments.price.map(|price| PriceChoice::Fixed(UsdPerHour::from_usd_per_hour(price)));
    let quote = price.clone().unwrap_or_default().quote(&device);
    let deployment = shared::deployment(model, System::new(device, *count)?, engine, weights.as_deref(), None)?;
    let mut text = format!("{model} on {count} x {}, {prompt} + {output} tokens", deployment.system().device().name());
    let mut question = Question::new(deployment, *prompt, *output)?;
    match quote {
        Ok(quote) => {
            text += &format!("\n{quote}");
            question = question.with_price(quote.usd_per_device_hour)?;
        }
        // A price that was stated has to be one; without any there are no costs.
        Err(error) if price.is_some() => return Err(error.into()),
        Err(_) => text += "\nno price known",
    }
    let mut slo = Slo::default();
    slo.ttft = arguments.slo_ttft_ms.map(Seconds::from_millis);
    slo.tpot = arguments.slo_tpot_ms.map(Seconds::from_millis);
    if !slo.is_empty() {
        text += &format!(", p90 of {slo}");
        question = question.with_target(Target::at(&slo, Statistic::P90)?);
    }
    let (diagnosis, levers) = (question.diagnose()?, question.levers()?);
    Ok(format!("{text}\n\n{diagnosis}\n\n{}\n\n{levers}\n", diagnosis.sensitivity))
}
