//! How fast would a model run that no catalog knows? Reads `config.json`, `model.safetensors.index.json` or a GGUF file.
// ci: args tests/data/import/olmo-2-7b/config.json

mod shared;

use clap::Parser;
use llm_roofline::format::WeightFormat;
use llm_roofline::import::{gguf, huggingface, safetensors};
use llm_roofline::prelude::*;
use serde_json::json;
use std::error::Error;
use std::path::PathBuf;

/// Imports a model: prints its profile as TOML, and how fast it runs on a device.
#[derive(Parser)]
struct Arguments {
    /// config.json, model.safetensors.index.json, or all parts of a GGUF file
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
        return describe(&imported.model, Some(imported.weight_format()?), arguments);
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    if text.contains("\"weight_map\"") {
        let index = safetensors::index_total(&text, &name)?;
        let (bytes, tensors, files) = (index.total_size.as_bytes(), index.tensors, index.files);
        return Ok(json!({ "weights_bytes": bytes, "tensors": tensors, "files": files }).to_string());
    }
    let options = huggingface::ImportOptions::default().with_assume_llama_like(arguments.assume_llama_like);
    describe(&huggingface::model_from_config_with(&text, &name, options)?, None, arguments)
}

fn describe(model: &Model, weights: Option<WeightFormat>, arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let architecture = model.architecture().ok_or("only totals are known")?;
    if arguments.json {
        let facts = json!({
            "name": model.name, "family": model.family, "layers": architecture.layers(),
            "params_total": model.params_total(), "params_active": model.params_active(),
            "params_mtp": architecture.mtp.map_or(0, |mtp| mtp.modules * mtp.params_per_module),
            "kv_bytes_per_token": 2.0 * architecture.kv_elements_per_token(),
            "state_bytes_per_sequence": 2 * architecture.state_elements(),
            "max_context_tokens": architecture.max_context_tokens, "native_format": model.native_format,
            "weights_bytes": architecture.weight_bytes(&weights.unwrap_or_default()).as_bytes(), "notes": model.notes,
        });
        return Ok(serde_json::to_string_pretty(&facts)?);
    }
    let (device, prompt) = (shared::device(&arguments.device)?, 2000.min(architecture.max_context_tokens / 2));
    let mut text = model.to_toml();
    for count in [1, 2, 4, 8, 16, 32] {
        let deployment = Deployment::new(model.clone(), System::new(device.clone(), count)?);
        let native = deployment.weights().clone();
        let compiled = StepModel::compile(&deployment.with_weights(weights.clone().unwrap_or(native)))?;
        match compiled.request(&Request::new(prompt, prompt / 4)) {
            Ok(answer) => return Ok(text + "\n# " + &answer.summary(&compiled).to_string().replace('\n', "\n# ")),
            Err(reason) => text += &format!("# {count} x {}: {reason}\n", device.slug()),
        }
    }
    Ok(text)
}
