//! Is this rate what the hardware gives, or is something broken? Give the deployment and the measured rate.
// ci: args --device rtx-4090-24gb --model llama-3.1-8b --weights q4_k_m --engine llama.cpp --tps 60

mod shared;

use clap::Parser;
use llm_roofline::prelude::*;
use llm_roofline::request::{Measured, Observation};
use std::error::Error;
use std::fmt::Write;

/// Judges a measured rate: how near is it to the hardware's limit, what is usual, and where does the rest go?
#[derive(Parser)]
struct Arguments {
    /// Device: a slug or alias of the catalog, or a profile file (.toml)
    #[arg(long)]
    device: String,
    /// Devices that share every layer (tensor parallelism)
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Model: a slug or alias of the catalog, a profile, a Hugging Face configuration or a GGUF file
    #[arg(long)]
    model: String,
    /// Weight format (bf16, fp8, awq-int4, q4_k_m, ...); default: that of the published checkpoint
    #[arg(long)]
    weights: Option<String>,
    /// Format of the key-value cache (bf16, fp8, q8_0, ...); the choice of the engine by default
    #[arg(long)]
    kv: Option<String>,
    /// Engine: a slug or alias of the catalog, or a profile file (.toml)
    #[arg(long, default_value = "vllm")]
    engine: String,
    /// Measured decode rate of one stream, in tokens per second
    #[arg(long, required_unless_present = "prefill_tps")]
    tps: Option<f64>,
    /// Measured prefill rate of all prompts together instead, in tokens per second
    #[arg(long, conflicts_with = "tps")]
    prefill_tps: Option<f64>,
    /// Tokens in the cache while it was measured; of a prefill, tokens of each prompt
    #[arg(long, default_value_t = 1000)]
    context: u64,
    /// Sequences at once
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Show every operator of the predicted step too
    #[arg(long)]
    explain: bool,
}

fn main() -> std::process::ExitCode {
    shared::finish(run())
}

fn run() -> Result<String, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let system = System::new(shared::device(&arguments.device)?, arguments.count)?;
    let (weights, kv) = (arguments.weights.as_deref(), arguments.kv.as_deref());
    let deployment = shared::deployment(&arguments.model, system, &arguments.engine, weights, kv)?;
    let rate = TokensPerSecond::from_tokens_per_second;
    let measured = match (arguments.tps, arguments.prefill_tps) {
        (Some(tps), _) => Measured::TpsPerStream(rate(tps)),
        (_, tps) => Measured::PrefillTps(rate(tps.unwrap_or_default())),
    };
    let observation = Observation::new(measured, arguments.context).with_batch(arguments.batch);
    let diagnosis = StepModel::compile(&deployment)?.why_slow(&observation)?;
    let mut out = diagnosis.to_string();
    if arguments.explain {
        write!(out, "\nThe expected step\n\n{}", diagnosis.explanation)?;
    }
    // Nothing is lost on the way: the parts and what no law explains are the measured time.
    let parts: Seconds = diagnosis.parts().into_iter().map(|(_, time)| time).sum();
    assert!(((parts + diagnosis.unexplained()) / diagnosis.measured - 1.0).abs() < 1e-9);
    Ok(out)
}
