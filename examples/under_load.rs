//! What happens when many ask at once: TTFT and its parts, percentiles, how close to saturation, how much fits under limits.
// ci: args --rate 4 --slo-ttft-ms 500 --slo-tpot-ms 30
// ci: args --model llama-3.1-70b --count 4 --concurrency 64 --json
// ci: args --model qwen2.5-coder-7b --device rtx-4090-24gb --rate 20 --prompt 2000 --output 30

mod shared;

use clap::Parser;
use llm_roofline::prelude::*;
use llm_roofline::serving::{Server, Statistic, Target};
use llm_roofline::workload::{Lengths, Slo};
use std::error::Error;

/// Predicts the steady state of a deployment under load.
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
    /// Requests per second that come independently of each other; without, half of what the deployment can answer
    #[arg(long, conflicts_with = "concurrency")]
    rate: Option<f64>,
    /// Requests in flight, each followed by the next
    #[arg(long)]
    concurrency: Option<u64>,
    #[arg(long, default_value_t = 1000)]
    prompt: u64,
    #[arg(long, default_value_t = 300)]
    output: u64,
    #[arg(long)]
    slo_ttft_ms: Option<f64>,
    #[arg(long)]
    slo_tpot_ms: Option<f64>,
    /// Nothing but the report
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let system = System::new(shared::device(&arguments.device)?, arguments.count)?;
    let deployment = shared::deployment(&arguments.model, system, &arguments.engine, None, None)?;
    let model = StepModel::compile(&deployment)?;
    let server = Server::new(&model, &Lengths::fixed(arguments.prompt, arguments.output)?)?;
    let mut slo = Slo::default();
    slo.ttft = arguments.slo_ttft_ms.map(Seconds::from_millis);
    slo.tpot = arguments.slo_tpot_ms.map(Seconds::from_millis);
    let rate = arguments.rate.map_or(server.max_rate() * 0.5, RequestsPerSecond::from_requests_per_second);
    let (state, verdict) = match arguments.concurrency {
        Some(count) => (server.closed_loop(count.max(1) as f64, Seconds::ZERO, &slo)?, "stable: clients wait".into()),
        None => (server.open_loop(rate, &slo)?, server.stability(rate)?.to_string()),
    };
    if arguments.json {
        return Ok(state.summary.to_json() + "\n");
    }
    let ttft = if state.summary.stable { format!("Mean TTFT {}\n", state.ttft) } else { String::new() };
    let mut text = format!("{} of at most {}: {verdict}\n{}\n{ttft}", state.rate, state.max_rate, state.summary);
    text += &format!("Knee: {}\n", server.knee()?);
    if !slo.is_empty() {
        text += &format!("Within {slo} (p99): {}\n", server.max_rate_under(&Target::at(&slo, Statistic::P99)?)?);
        text += &format!("Within {slo} (90 % of requests): {}\n", server.max_rate_under(&Target::goodput(slo, 0.9)?)?);
    }
    text += "\n         rate   rho   mean TTFT    p99 TTFT   mean TPOT    mean E2E        output\n";
    for point in server.curve(12)? {
        let tpot = point.tpot.map_or("-".into(), |tpot| tpot.mean.to_string());
        let [ttft, p99, e2e] = [point.ttft.mean, point.ttft.p99, point.e2e.mean].map(|latency| latency.to_string());
        let [rate, output] = [point.rate.to_string(), point.output_tps_total.to_string()];
        text += &format!("{rate:>13}{:>6.2}{ttft:>12}{p99:>12}{tpot:>12}{e2e:>12}{output:>14}\n", point.rho);
    }
    Ok(text)
}
