//! Does speculative decoding help, by how much, with how many draft tokens, and up to which batch?
// ci: args --model llama-3.1-70b --count 4 --method eagle3 --acceptance 0.7
// ci: args --model qwen3-30b-a3b --device rtx-5090-32gb --engine llama-cpp-cuda-2026 --weights q4_k_m --draft qwen3-0.6b

mod shared;

use clap::Parser;
use llm_roofline::prelude::*;
use llm_roofline::speculative::{Method, Speculation, SpeculativeModel};

/// Compares a deployment with and without speculative decoding.
#[derive(Parser)]
struct Arguments {
    /// Model: a name of the catalog, a config.json, a GGUF file or a profile
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    #[arg(long, default_value = "h100-sxm-80gb")]
    device: String,
    /// Devices that share every layer
    #[arg(long, default_value_t = 1)]
    count: u32,
    #[arg(long, default_value = "sglang-2026")]
    engine: String,
    #[arg(long)]
    weights: Option<String>,
    /// How tokens are drafted: eagle, eagle3, medusa, mtp, ngram, lookahead, ...
    #[arg(long, default_value = "eagle3")]
    method: String,
    /// Draft model, on as many devices as the target
    #[arg(long)]
    draft: Option<String>,
    /// Draft tokens in a chain; without, the method's usual shape
    #[arg(long)]
    draft_tokens: Option<u64>,
    /// Probability that a draft token is accepted if all before it were; without, a typical published value
    #[arg(long)]
    acceptance: Option<f64>,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let system = System::new(shared::device(&arguments.device)?, arguments.count)?;
    let deploy =
        |model: &str| shared::deployment(model, system.clone(), &arguments.engine, arguments.weights.as_deref(), None);
    let target = deploy(&arguments.model)?;
    let mut speculation = match &arguments.draft {
        Some(draft) => Speculation::draft_model(deploy(draft)?),
        None => Speculation::new(arguments.method.parse::<Method>()?, &target)?,
    };
    if let Some(tokens) = arguments.draft_tokens {
        speculation = speculation.with_draft_tokens(tokens)?;
    }
    if let Some(rate) = arguments.acceptance {
        speculation = speculation.with_acceptance_rate(rate)?;
    }
    let model = SpeculativeModel::compile(&target, &speculation)?;
    let mut text = format!("{} for {}\n", speculation.method(), target.model().name);
    text += &format!("{}\n\n", model.request(&Request::new(1000, 500))?);
    text += "Speed-up (and the draft tokens of the best chain), by sequences at once and the tokens that each has cached:\n\n";
    let (batches, contexts) = ([1, 4, 16, 64, 256], [500, 4_000, 16_000, 64_000]);
    text += &format!("{:>8}{}\n", "cached", batches.map(|batch| format!("{batch:>13}")).concat());
    for context in contexts {
        let mut cells = String::new();
        for batch in batches {
            let best = model.best_draft_tokens(batch, context, 16)?;
            cells += &format!("{:>8.2} ({:>2})", model.speedup(batch, context), best.draft_tokens);
        }
        text += &format!("{context:>8}{cells}\n");
    }
    let rate = model.break_even_acceptance(1, 1000).map_or("at no".into(), |rate| format!("from a rate of {rate:.2}"));
    let most = target.max_sequences(500).unwrap_or(2048).min(2048);
    let batch = model.break_even_batch(500, most);
    let batch =
        batch.map_or(format!("at every batch that fits, up to {most}"), |batch| format!("below {batch} sequences"));
    text += &format!("\nAlone it pays {rate} acceptance on, and with contexts of 500 tokens {batch}.\n");
    Ok(text)
}
