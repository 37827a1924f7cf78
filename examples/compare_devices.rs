//! Which device answers faster? The same model and request on many devices, sorted by end-to-end latency.
// ci: args --model qwen3-8b --weights fp8

mod shared;

use clap::Parser;
use llm_roofline::{format::NumberFormat::Bf16, prelude::*};
use std::error::Error;
use std::fmt::Write;

/// Compares devices for one model and one request.
#[derive(Parser)]
struct Arguments {
    /// Model: a slug or alias of the catalog
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    /// Weight format
    #[arg(long, default_value = "bf16")]
    weights: String,
    /// Devices to compare, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "h200-sxm-141gb,h100-sxm-80gb,a100-sxm-80gb,mi300x-192gb,b200-sxm-180gb,\
        l40s-48gb,l4-24gb,rtx-5090-32gb,rtx-4090-24gb,rtx-3090-24gb,m4-max-40c,m3-ultra-80c,dgx-spark,strix-halo-128gb,epyc-9755"
    )]
    devices: Vec<String>,
    /// Devices of each kind
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Prompt tokens
    #[arg(long, default_value_t = 4000)]
    prompt: u64,
    /// Output tokens
    #[arg(long, default_value_t = 500)]
    output: u64,
}

const HEADER: &str =
    "device                  TFLOP/s    bandwidth       TTFT    bound         TPOT        TPS        E2E";

fn main() -> std::process::ExitCode {
    shared::finish(run())
}

fn run() -> Result<String, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let request = Request::new(arguments.prompt, arguments.output);
    let (mut out, mut answers, mut refused) = (String::new(), Vec::new(), Vec::new());
    for name in &arguments.devices {
        let device = shared::device(name)?;
        let deployment =
            Deployment::new(shared::model(&arguments.model)?, System::new(device.clone(), arguments.count)?)
                .with_weights(arguments.weights.parse()?);
        match StepModel::compile(&deployment)?.request(&request) {
            Ok(answer) => answers.push((device, answer)),
            Err(reason) => refused.push((device, reason)),
        }
    }
    answers.sort_by(|(_, a), (_, b)| a.e2e.as_seconds().total_cmp(&b.e2e.as_seconds()));
    writeln!(out, "{} on {} device(s), {request}, ideal engine\n\n{HEADER}", arguments.model, arguments.count)?;
    for (device, answer) in &answers {
        let peak = device.matmul_peak(Bf16, Bf16).peak.as_tflops_per_second();
        let (tpot, tps) = (answer.tpot.unwrap_or_default(), answer.tps_per_stream.unwrap_or_default());
        writeln!(
            out,
            "{:<20} {peak:>10.0} {:>12} {:>10} {:>8} {tpot:>12} {:>10.1} {:>10}",
            device.slug(),
            device.bandwidth(),
            answer.ttft,
            answer.prefill_bound(),
            tps.as_tokens_per_second(),
            answer.e2e
        )?;
    }
    for (device, reason) in &refused {
        writeln!(out, "{:<20} {reason}", device.slug())?;
    }
    Ok(out + "\nTTFT follows the TFLOP/s, TPOT follows the bandwidth: compare the columns, not the names.")
}
