//! What the examples have in common: names on the command line, and errors in words.
#![allow(dead_code)] // no example needs everything

use llm_roofline::deployment::Host;
use llm_roofline::import::{gguf, huggingface};
use llm_roofline::prelude::*;
use llm_roofline::workload::Trace;
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Ends a program: prints its text; an error goes to the standard error stream in words, and makes the program fail.
pub fn finish(result: Result<String, Box<dyn Error>>) -> ExitCode {
    let printed = result.and_then(|text| match std::io::stdout().write_all(text.as_bytes()) {
        // A reader such as `head` may have enough before the end.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A device by its name in the catalog, or from a profile file (.toml).
pub fn device(name: &str) -> Result<Arc<Device>, Box<dyn Error>> {
    match name.ends_with(".toml") {
        true => Ok(Arc::new(Device::from_toml(&text(name)?, name)?)),
        false => Ok(Catalog::embedded().device(name)?),
    }
}

/// A model by its name in the catalog, from a profile file (.toml), a Hugging Face configuration (.json) or a GGUF file.
pub fn model(name: &str) -> Result<Arc<Model>, Box<dyn Error>> {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("toml") => Ok(Arc::new(Model::from_toml(&text(name)?, name)?)),
        Some("json") => Ok(Arc::new(huggingface::model_from_config(&text(name)?, name)?)),
        Some("gguf") => Ok(Arc::new(gguf::Header::open(name)?.model()?.model)),
        _ => Ok(Catalog::embedded().model(name)?),
    }
}

/// An engine by its name in the catalog, or from a profile file (.toml).
pub fn engine(name: &str) -> Result<Arc<Engine>, Box<dyn Error>> {
    match name.ends_with(".toml") {
        true => {
            // It may extend a profile of the catalog.
            let below = |slug: &str| Catalog::engine_lineage(slug).first().map(|(_, text)| *text);
            Ok(Arc::new(Engine::from_toml_over(&text(name)?, name, below)?))
        }
        false => Ok(Catalog::embedded().engine(name)?),
    }
}

/// A processor beside accelerators, with the kernels of llama.cpp.
pub fn host(name: &str) -> Result<Host, Box<dyn Error>> {
    Ok(Host::new(device(name)?, Catalog::embedded().engine("llama-cpp-cpu-2026")?))
}

/// A model on a system under an engine, by their names; without formats those of the checkpoint and of the engine.
pub fn deployment(
    model_name: &str,
    system: System,
    engine_name: &str,
    weights: Option<&str>,
    kv: Option<&str>,
) -> Result<Deployment, Box<dyn Error>> {
    let mut deployment = Deployment::new(model(model_name)?, system).with_engine(engine(engine_name)?);
    if let Some(weights) = weights {
        deployment = deployment.with_weights(weights.parse()?);
    }
    if let Some(kv) = kv {
        deployment = deployment.with_kv(kv.parse()?);
    }
    Ok(deployment)
}

/// The rows of files of measurements, one after another.
#[cfg(feature = "calibrate")]
pub fn measurements<'a>(
    paths: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<llm_roofline::calibrate::Measurement>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for path in paths {
        let file = std::fs::File::open(path).map_err(|error| format!("{path}: {error}"))?;
        rows.extend(llm_roofline::calibrate::read_measurements(file, path)?);
    }
    Ok(rows)
}

/// The requests of a trace that the model can take, at another mean rate if there is one.
pub fn trace(path: &str, rate: Option<RequestsPerSecond>, model: &StepModel) -> Result<Trace, Box<dyn Error>> {
    let file = std::fs::File::open(path).map_err(|error| format!("{path}: {error}"))?;
    let mut trace = Trace::read(path, file)?.from_first();
    if let Some(limit) = model.deployment().context_limit() {
        let all = trace.requests().len();
        trace = trace.up_to(limit).ok_or_else(|| format!("{path}: every request is longer than {limit} tokens"))?;
        if trace.requests().len() < all {
            eprintln!("{} of {all} requests are longer than the model's {limit} tokens", all - trace.requests().len());
        }
    }
    Ok(match rate {
        Some(rate) => trace.at_rate(rate)?,
        None => trace,
    })
}

fn text(path: &str) -> Result<String, Box<dyn Error>> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}").into())
}
