//! The deployment that a row was measured on, and what had to be assumed about it.

use super::launches::{self, Launched, launched};
use super::load;
use super::measurement::Measurement;
use super::predict::Refusal;
use super::{settings, speculation};
use crate::catalog::{Catalog, EngineQuery};
use crate::deployment::Deployment;
use crate::format::{FormatError, KvFormat, WeightFormat};
use crate::hardware::System;
use crate::model::Model;
use std::sync::Arc;

/// All of a row that its deployment depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Configuration {
    texts: [String; 9],
    settings: Vec<(String, String)>,
    counts: [u32; 5],
    flash_attention: Option<bool>,
}

impl Configuration {
    pub(super) fn of(row: &Measurement) -> Self {
        let text = |text: Option<&str>| text.unwrap_or_default().to_string();
        Self {
            texts: [
                row.engine.clone(),
                text(row.engine_version.as_deref()),
                text(run_date(row)),
                row.device.clone(),
                row.model.clone(),
                row.weight_format.clone(),
                text(row.kv_format.as_deref()),
                text(row.tag("backend")),
                // The layout that answers most depends on the lengths.
                if row.mode == "offline" {
                    format!("{:?} {:?}", row.input_tokens, row.output_tokens)
                } else {
                    String::new()
                },
            ],
            settings: settings::stated(row)
                .into_iter()
                .chain(launches::all(row).map(|(name, value)| (name.into(), value.into())))
                .collect(),
            counts: [row.device_count, row.tp, row.pp, row.ep, row.dp],
            flash_attention: row.flash_attention,
        }
    }
}

/// The deployment of a row, and assumptions.
pub(super) fn deployment(catalog: &Catalog, row: &Measurement) -> Result<(Deployment, Vec<String>), Refusal> {
    let (device, model) = (catalog.device(&row.device)?, catalog.model(&row.model)?);
    let query = EngineQuery {
        version: row.engine_version.as_deref(),
        date: run_date(row),
        device: Some(&device),
        backend: row.tag("backend"),
        ..EngineQuery::new(&row.engine)
    };
    let choice = query.choose(catalog)?;
    let mut assumptions = vec![format!("{} {}", row.engine, choice.note)];
    let device = settings::device(&device, row)?;
    let (devices, tensor_parallel) = speculation::devices(row, &device, &model, &choice.engine, &mut assumptions)?;
    let system = System::new(device, devices)?;
    let deployment = Deployment::new(Arc::clone(&model), system).with_engine(choice.engine).with_long_context_allowed();
    let deployment = as_launched(deployment, row, &mut assumptions);
    let mut deployment = settings::applied(deployment, row)?;
    deployment = deployment.with_weights(weights(row, &model)?);
    if row.weight_format.is_empty() {
        assumptions.push(format!("weights in {}, the format of the checkpoint", deployment.weights()));
    }
    let (kv, kv_assumption) = kv_format(row)?;
    assumptions.extend(kv_assumption);
    match kv {
        Some(kv) => deployment = deployment.with_kv(kv),
        None if *deployment.kv() == KvFormat::default() => {}
        None => assumptions.push(format!("cache in {}, as its checkpoint asks", deployment.kv())),
    }
    let deployment = laid_out(deployment, row).with_tensor_parallel(tensor_parallel);
    Ok((load::best_layout(row, deployment, &mut assumptions), assumptions))
}

/// The format of the weights: as stated, or else that of the checkpoint, of which the name of a drafter trained for it may tell.
pub(super) fn weights(row: &Measurement, model: &Arc<Model>) -> Result<WeightFormat, Refusal> {
    let for_fp8 = row.tag("draft").is_some_and(|draft| draft.to_lowercase().contains("-fp8"));
    Ok(match (row.weight_format.as_str(), for_fp8) {
        ("", true) => WeightFormat::Fp8Block,
        ("", false) => Deployment::native_weights(model),
        (stated, _) => stated.parse()?,
    })
}

/// The row's parallelism and kernels.
fn laid_out(deployment: Deployment, row: &Measurement) -> Deployment {
    let deployment = deployment
        .with_pipeline_parallel(row.pp)
        .with_expert_parallel(row.ep)
        .with_data_parallel_attention(if row.ep > 1 { row.dp } else { 1 })
        .with_replicas(if row.ep > 1 { 1 } else { row.dp });
    match row.flash_attention {
        Some(fused) => deployment.with_flash_attention(fused),
        None => deployment,
    }
}

/// Collections (a part of their names) whose rows carry the date of publication although the runs are older: the runs of
/// LLM-Inference-Bench (arXiv:2411.00136) are from 2023 and 2024, its repository from 2025.
const OLDER_RUNS: [(&str, &str); 1] = [("llm-inference-bench", "2024-06")];

fn run_date(row: &Measurement) -> Option<&str> {
    let older = OLDER_RUNS.iter().find(|(source, _)| row.source.to_lowercase().contains(source));
    older.map(|(_, date)| *date).or(row.date.as_deref())
}

/// With the settings of the benchmark's launch script.
fn as_launched(mut deployment: Deployment, row: &Measurement, assumptions: &mut Vec<String>) -> Deployment {
    for (name, value) in launches::all(row) {
        assumptions.push(format!("{name} {value}, as the benchmark was launched"));
    }
    if let Some(tokens) = launched(row, Launched::StepTokens).and_then(|tokens| tokens.parse().ok()) {
        deployment = deployment.with_max_tokens_per_step(tokens);
    }
    if let Some(steps) = launched(row, Launched::WaitSteps).and_then(|steps| steps.parse().ok()) {
        deployment = deployment.with_prompt_wait_steps(steps);
    }
    deployment
}

/// The format of the cache that the row states, and what was assumed about it; without one the engine decides.
fn kv_format(row: &Measurement) -> Result<(Option<KvFormat>, Option<String>), FormatError> {
    let launched = launched(row, Launched::Cache);
    let Some(name) = row.kv_format.as_deref().or(launched) else { return Ok((None, None)) };
    let different = name.strip_prefix("k-").and_then(|rest| rest.split_once("-v-"));
    let Some((keys, values)) = different else { return Ok((Some(name.parse()?), None)) };
    let (keys, values): (KvFormat, KvFormat) = (keys.parse()?, values.parse()?);
    let wider = if keys.bits_per_element(128) > values.bits_per_element(128) { keys } else { values };
    Ok((Some(wider), Some(format!("keys in {keys} and values in {values} are both counted in {wider}"))))
}
