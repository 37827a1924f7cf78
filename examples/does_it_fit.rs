//! Does it fit, where does the memory go, and what would help? Or: how long a context, how many users, how few devices?
// ci: args --model llama-3.1-70b --device h100-sxm-80gb --context 8192

mod shared;

use clap::Parser;
use llm_roofline::memory::MemoryModel;
use llm_roofline::prelude::*;

/// Fits a model into the memory of devices.
#[derive(Parser)]
struct Arguments {
    /// Model: a name of the catalog, a config.json, a GGUF file or a profile
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    /// Device; several, separated by commas, for unequal ones that share the layers
    #[arg(long, value_delimiter = ',', default_value = "rtx-4090-24gb")]
    device: Vec<String>,
    /// Equal devices that share every layer
    #[arg(long, default_value_t = 1)]
    count: u32,
    #[arg(long, default_value = "vllm-2026")]
    engine: String,
    #[arg(long)]
    weights: Option<String>,
    #[arg(long)]
    kv: Option<String>,
    #[arg(long, default_value_t = 1)]
    sequences: u64,
    /// Tokens of each, prompt and answer
    #[arg(long, default_value_t = 8192)]
    context: u64,
    /// Processor beside the devices, such as ryzen-9-7950x, for layers or experts that do not fit
    #[arg(long)]
    host: Option<String>,
    /// Look for something instead: max-context, max-users or min-devices
    #[arg(long, value_parser = ["max-context", "max-users", "min-devices"])]
    find: Option<String>,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let (sequences, context) = (arguments.sequences, arguments.context);
    let devices = arguments.device.iter().map(|name| shared::device(name)).collect::<Result<Vec<_>, _>>()?;
    let system = System::new(devices[0].clone(), arguments.count)?;
    let (weights, kv) = (arguments.weights.as_deref(), arguments.kv.as_deref());
    let mut deployment = shared::deployment(&arguments.model, system, &arguments.engine, weights, kv)?;
    if devices.len() > 1 {
        deployment = deployment.with_unequal_devices(devices);
    }
    if let Some(host) = &arguments.host {
        deployment = deployment.with_host(shared::host(host)?);
    }
    deployment.check()?;
    let limit = |most: Option<u64>| most.map_or("any number of".into(), |most| most.to_string());
    let found = match arguments.find.as_deref() {
        Some("max-context") => format!("{} tokens per sequence fit", limit(deployment.max_context_tokens(sequences))),
        Some("max-users") => format!("{} sequences at once fit", limit(deployment.max_sequences(context))),
        Some(_) => {
            deployment = deployment.with_fewest_devices(sequences, context, 1024).ok_or("1024 devices are too few")?;
            let (tensor, stages) = (deployment.tensor_parallel(), deployment.pipeline_parallel());
            format!("{} device(s): tensor parallelism {tensor}, {stages} stage(s)", deployment.devices_used())
        }
        None => format!("{} in {}, {}", deployment.model().name, deployment.weights(), deployment.engine().name),
    };
    let table = MemoryModel::new(&deployment).table(sequences, context);
    let end = match deployment.fit(sequences, context) {
        Ok(_) => format!("{}\n", deployment.kv_pool(context)),
        Err(reason) => {
            let request = Request::new(context.div_ceil(2), (context / 2).max(1)).with_batch(sequences);
            let beyond = StepModel::compile(&deployment)?.exhausted(&request, None)?;
            let beyond = beyond.map(|beyond| format!("as it is, {beyond}\n")).unwrap_or_default();
            format!("{}\n{beyond}", reason.help())
        }
    };
    Ok(format!("{found}\n\n{table}\n\n{end}"))
}
