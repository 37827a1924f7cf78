//! How fast does a real model run on a real device, and why?
//!
//! Without arguments: Llama 3.1 70B in FP8 on four H100 under vLLM. Everything can be changed, see `--help`.

mod shared;

use clap::Parser;
use llm_roofline::prelude::*;
use std::error::Error;
use std::fmt::Write;

/// Predicts the latency of an unloaded request: TTFT, ITL, TPS, E2E, memory, and what limits them.
#[derive(Parser)]
struct Arguments {
    /// Model: a slug or alias of the catalog, or a profile file (.toml)
    #[arg(long, default_value = "llama-3.1-70b")]
    model: String,
    /// Device: a slug or alias of the catalog, or a profile file (.toml)
    #[arg(long, default_value = "h100-sxm-80gb")]
    device: String,
    /// Devices that share every layer (tensor parallelism); the default fits the default model
    #[arg(long)]
    count: Option<u32>,
    /// Weight format (bf16, fp8, awq-int4, q4_k_m, ...); default: that of the published checkpoint, fp8 for the default model
    #[arg(long)]
    weights: Option<String>,
    /// Format of the key-value cache (bf16, fp8, q8_0, ...); the choice of the engine by default
    #[arg(long)]
    kv: Option<String>,
    /// Engine: a slug or alias of the catalog, a profile file (.toml), or `ideal` for the hardware's limit
    #[arg(long, default_value = "vllm")]
    engine: String,
    /// Prompt tokens
    #[arg(long, default_value_t = 2000)]
    prompt: u64,
    /// Output tokens
    #[arg(long, default_value_t = 500)]
    output: u64,
    /// Requests that start together
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    shared::finish(run())
}

fn run() -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    let arguments = Arguments::parse();
    let is_default = arguments.model == "llama-3.1-70b" && arguments.device == "h100-sxm-80gb";
    let count = arguments.count.unwrap_or(if is_default { 4 } else { 1 });
    let system = System::new(shared::device(&arguments.device)?, count)?;
    let (weights, kv) = (arguments.weights.as_deref().or(is_default.then_some("fp8")), arguments.kv.as_deref());
    let deployment = shared::deployment(&arguments.model, system, &arguments.engine, weights, kv)?;
    let model = StepModel::compile(&deployment)?;
    let request = Request::new(arguments.prompt, arguments.output).with_batch(arguments.batch);
    let summary = model.request(&request)?.summary(&model);
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&summary)?)?;
        return Ok(out);
    }
    writeln!(out, "{summary}")?;
    writeln!(out, "Why: the prefill of the prompt\n\n{}", model.explain_prefill(&request))?;
    if request.output_tokens > 1 {
        writeln!(out, "Why: the last decode step\n\n{}", model.explain_decode(&request, request.output_tokens))?;
    }
    writeln!(out, "Assumptions:")?;
    for assumption in &summary.assumptions {
        writeln!(out, "  - {assumption}")?;
    }
    Ok(out)
}
