//! How fast would a model run that no catalog knows? Reads `config.json`, `model.safetensors.index.json` or a GGUF file.
// ci: args tests/data/import/olmo-2-7b/config.json

mod shared;

use clap::Parser;
use llm_roofline::import::{gguf, huggingface, safetensors};
use llm_roofline::{format::WeightFormat, model::ModelFacts, prelude::*};
use std::error::Error;
use std::path::PathBuf;

/// Imports a model: prints its profile as TOML, and how fast it runs on a device.
#[derive(Parser)]
struct Arguments {
    /// config.json, model.safetensors.index.json (with config.json beside it), or all parts of a GGUF file
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Device for the answer
    #[arg(long, default_value = "h100-sxm-80gb")]
    device: String,
    /// Read an unknown model_type as a plain Llama-like decoder
    #[arg(long)]
    assume_llama_like: bool,
    /// Print JSON: parameters, cache and state in bf16, layers
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    shared::finish(import(&Arguments::parse()).map(|text| text + "\n"))
}

fn import(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let (path, name) = (&arguments.files[0], arguments.files[0].display().to_string());
    if path.extension().is_some_and(|extension| extension == "gguf") {
        let imported = gguf::Header::read_split(&arguments.files)?.model()?;
        return describe(&imported.model, imported.model.facts(), Some(imported.weight_format()?), arguments);
    }
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let options = huggingface::ImportOptions::default().with_assume_llama_like(arguments.assume_llama_like);
    let (text, config) = (read(path)?, path.with_file_name("config.json"));
    if !text.contains("\"weight_map\"") {
        let model = huggingface::model_from_config_with(&text, &name, options)?;
        return describe(&model, model.facts(), None, arguments);
    }
    let index = safetensors::index_total(&text, &name)?;
    if !config.exists() {
        let model = index.totals(&name)?;
        let facts = ModelFacts { layers: index.layers, kv_bytes_per_token: None, ..model.facts() };
        return describe(&model, facts, None, arguments);
    }
    // The index knows the bytes, the configuration beside it the shape: together they give the true bits per weight.
    let model = huggingface::model_from_config_with(&read(&config)?, &config.display().to_string(), options)?;
    let bits = 8.0 * index.total_size.as_bytes() / model.params_total() as f64;
    describe(&model, model.facts(), Some(format!("bits-{bits:.3}").parse()?), arguments)
}

type Text = Result<String, Box<dyn Error>>;

fn describe(model: &Model, facts: ModelFacts, weights: Option<WeightFormat>, arguments: &Arguments) -> Text {
    let device = shared::device(&arguments.device)?;
    let prompt = facts.max_context_tokens.map_or(2000, |context| 2000.min(context / 2));
    let mut text = model.to_toml();
    for count in [1, 2, 4, 8, 16, 32] {
        let deployment = Deployment::new(model.clone(), System::new(device.clone(), count)?);
        let deployment =
            weights.iter().fold(deployment, |deployment, weights| deployment.with_weights(weights.clone()));
        let compiled = StepModel::compile(&deployment)?;
        if arguments.json {
            let mut json = serde_json::to_value(facts)?;
            json["weights_bytes"] = compiled.weight_bytes_per_device().as_bytes().into();
            return Ok(serde_json::to_string_pretty(&json)?);
        }
        match compiled.request(&Request::new(prompt, prompt / 4)) {
            Ok(answer) => return Ok(text + "\n# " + &answer.summary(&compiled).to_string().replace('\n', "\n# ")),
            Err(reason) => text += &format!("# {count} x {}: {reason}\n", device.slug()),
        }
    }
    Ok(text)
}
