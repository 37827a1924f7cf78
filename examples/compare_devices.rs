//! Which device answers faster? The same model and request on many devices, sorted by end-to-end latency.
// ci: args --model qwen3-8b --weights fp8

mod shared;

use clap::Parser;
use llm_roofline::prelude::*;
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
    /// Devices to compare, slugs or aliases separated by commas; default: a selection
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

fn main() -> std::process::ExitCode {
    shared::finish(run())
}

fn run() -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    let arguments = Arguments::parse();
    let request = Request::new(arguments.prompt, arguments.output);
    let mut answers = Vec::new();
    let mut refused = Vec::new();
    for name in &arguments.devices {
        let device = shared::device(name)?;
        let deployment =
            Deployment::new(shared::model(&arguments.model)?, System::new(device.clone(), arguments.count)?)
                .with_weights(arguments.weights.parse()?);
        let model = StepModel::compile(&deployment)?;
        match model.request(&request) {
            Ok(answer) => answers.push((device, model.linear_peak().as_tflops_per_second(), answer)),
            Err(reason) => refused.push((device, reason)),
        }
    }
    answers.sort_by(|(.., a), (.., b)| a.e2e.as_seconds().total_cmp(&b.e2e.as_seconds()));
    writeln!(out, "{} on {} device(s), {request}, ideal engine\n", arguments.model, arguments.count)?;
    writeln!(
        out,
        "device                     TFLOP/s   bandwidth       TTFT         bound       TPOT       TPS        E2E"
    )?;
    for (device, peak, answer) in &answers {
        let (slug, bandwidth, ttft, bound) = (device.slug(), device.bandwidth(), answer.ttft, answer.prefill_bound());
        let tpot = answer.tpot.map_or("-".into(), |tpot| tpot.to_string());
        let tps = answer.tps_per_stream.map_or("-".into(), |tps| format!("{:.1}", tps.as_tokens_per_second()));
        let e2e = answer.e2e;
        writeln!(out, "{slug:<24} {peak:>9.0} {bandwidth:>11} {ttft:>10} {bound:>13} {tpot:>10} {tps:>9} {e2e:>10}")?;
    }
    for (device, reason) in &refused {
        writeln!(out, "{:<24} {reason}", device.slug())?;
    }
    writeln!(out, "\nTTFT follows the TFLOP/s, TPOT follows the bandwidth: compare the columns, not the names.")?;
    Ok(out)
}
