//! What will requests feel? Simulates every one of them, random or from a trace, and says how certain the answer is.
// ci: args --requests 20000 --slo-ttft-ms 200 --slo-tpot-ms 12

mod shared;

use clap::Parser;
use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{EngineSettings, Simulation};
use llm_roofline::workload::{Lengths, Slo, Workload};
use std::{error::Error, time::Instant};

/// Simulates a deployment request by request.
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
    /// Requests per second, independent of each other; a trace keeps its own times without it
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    #[arg(long, default_value_t = 1024)]
    prompt: u64,
    #[arg(long, default_value_t = 256)]
    output: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A trace: Azure, BurstGPT, Vidur or any CSV with times and lengths, or Mooncake's JSON lines
    #[arg(long)]
    trace: Option<String>,
    /// Sequences that run at once at most (vLLM --max-num-seqs)
    #[arg(long)]
    max_sequences: Option<u64>,
    /// Leap over decode steps between events, or run every step
    #[arg(long, value_parser = ["leap", "step"], default_value = "leap")]
    mode: String,
    #[arg(long)]
    slo_ttft_ms: Option<f64>,
    #[arg(long)]
    slo_tpot_ms: Option<f64>,
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let system = System::new(shared::device(&arguments.device)?, arguments.count)?;
    let model = StepModel::compile(&shared::deployment(&arguments.model, system, &arguments.engine, None, None)?)?;
    let (mut slo, mut settings) = (Slo::default(), EngineSettings::default());
    slo.ttft = arguments.slo_ttft_ms.map(Seconds::from_millis);
    slo.tpot = arguments.slo_tpot_ms.map(Seconds::from_millis);
    settings.max_sequences = arguments.max_sequences;
    let leaping = Simulation::new(&model).with_seed(arguments.seed).with_slo(slo).with_settings(settings);
    let simulation = if arguments.mode == "step" { leaping.stepping() } else { leaping };
    let rate = arguments.rate.map(RequestsPerSecond::from_requests_per_second);
    let trace = arguments.trace.as_ref().map(|file| shared::trace(file, rate, &model)).transpose()?;
    let lengths = Lengths::fixed(arguments.prompt, arguments.output)?;
    let workload = Workload::poisson(rate.unwrap_or(RequestsPerSecond::from_requests_per_second(8.0)), lengths)?;
    let start = Instant::now();
    let outcome = match &trace {
        Some(trace) => simulation.replay(trace)?,
        None => simulation.run(&workload, arguments.requests)?,
    };
    let (wall, steps) = (start.elapsed().as_secs_f64(), outcome.steps);
    let (speed, step_speed) = (outcome.completed as f64 / wall, steps as f64 / wall);
    if arguments.json {
        let more = format!(r#","wall_seconds":{wall},"requests_per_second":{speed},"steps":{steps}}}"#);
        return Ok(format!("{}{more}\n", outcome.summary.to_json().trim_end_matches('}')));
    }
    Ok(format!("{outcome}\n\nsimulated in {:.1} ms: {speed:.0} requests/s, {step_speed:.0} steps/s\n", wall * 1e3))
}
