//! From a measured row to a prediction: which deployment, which steps, which number.

use super::measurement::Measurement;
use crate::catalog::{Catalog, CatalogError, EngineQuery};
use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::format::{FormatError, KvFormat};
use crate::hardware::{Device, System, SystemError};
use crate::profile::{Sourced, nearest};
use crate::request::Request;
use crate::step::{CompileError, Interval, StepModel};
use crate::units::{Bytes, Seconds};
use std::collections::HashMap;
use std::sync::Arc;

/// The predicted value of a row, in the unit of the row's own value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Expected value.
    pub predicted: f64,
    /// Lower end of the interval in which the measured value is expected.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What was assumed because the row does not say it.
    pub assumptions: Vec<String>,
}

/// Why a row cannot be predicted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The engine was measured in a way that is not priced here.
    #[error("mode `{0}` is not predicted, only single_stream and static_batch are")]
    Mode(String),
    /// The metric is not one of those that are predicted.
    #[error("metric `{metric}` is not predicted{}", .nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default())]
    Metric {
        /// The metric.
        metric: String,
        /// A similar one that is.
        nearest: Option<&'static str>,
    },
    /// A number of tokens on which the metric depends strongly is not stated.
    #[error("{column} is {}, which {metric} depends on", if *.is_zero { "0" } else { "not stated" })]
    Length {
        /// The column.
        column: &'static str,
        /// Whether it is zero instead of empty.
        is_zero: bool,
        /// The metric.
        metric: String,
    },
    /// The micro-batch of tag `ub` is no number of tokens.
    #[error("tag ub is `{0}`, expected a whole number of tokens from 1")]
    MicroBatch(String),
    /// The threads of tag `threads` are no share of the cores.
    #[error("tag threads is `{0}`, expected threads of cores such as 2/16")]
    Threads(String),
    /// The device, the model or the engine is not known.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A number format is not known.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The number of devices is impossible.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No engine could run this.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Predicts rows; keeps the compiled models, so that a sweep over one configuration compiles it once.
#[derive(Clone, Debug)]
pub struct Predictor {
    catalog: Catalog,
    compiled: HashMap<Configuration, Result<Arc<Compiled>, Refusal>>,
}

/// A compiled configuration and what was assumed to get there.
#[derive(Debug)]
struct Compiled {
    model: StepModel,
    assumptions: Vec<String>,
}

/// All of a row that its deployment depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Configuration {
    texts: [String; 10],
    counts: [u32; 5],
    flash_attention: Option<bool>,
}

impl Configuration {
    fn of(row: &Measurement) -> Self {
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
                text(row.tag("ub")),
                text(row.tag("threads")),
            ],
            counts: [row.device_count, row.tp, row.pp, row.ep, row.dp],
            flash_attention: row.flash_attention,
        }
    }
}

impl Predictor {
    /// A predictor with the devices, models and engines of a catalog.
    pub fn new(catalog: &Catalog) -> Self {
        Self { catalog: catalog.clone(), compiled: HashMap::new() }
    }

    /// Predicts the metric of a row.
    ///
    /// Whether the configuration fits into memory is not asked: it ran. Only the metric `oom` is predicted from the memory plan (1: does not fit).
    ///
    /// # Errors
    /// [`Refusal`] if the row's mode or metric is not covered, its names are unknown, or a necessary length is missing.
    pub fn predict(&mut self, row: &Measurement) -> Result<Prediction, Refusal> {
        let plan = Plan::of(row)?;
        let compiled = match self.compiled.get(&Configuration::of(row)) {
            Some(known) => known.clone()?,
            None => {
                let result = compile(&self.catalog, row).map(Arc::new);
                self.compiled.insert(Configuration::of(row), result.clone());
                result?
            }
        };
        let Estimate { low, expected: predicted, high } = plan.price(row, &compiled.model);
        let assumptions = compiled.assumptions.iter().cloned().chain(plan.assumption.map(Into::into)).collect();
        Ok(Prediction { predicted, low, high, assumptions })
    }

    /// The deployment that a row was measured on, as far as it is stated, and what was assumed about the rest, in sentences.
    ///
    /// # Errors
    /// [`Refusal`] for unknown names and formats, and impossible numbers of devices.
    pub fn deployment(&self, row: &Measurement) -> Result<(Deployment, Vec<String>), Refusal> {
        deployment(&self.catalog, row)
    }
}

/// The value of a row's metric, in the row's unit, if it was measured on this model: for deployments that differ from what
/// [`Predictor::deployment`] makes of the row.
///
/// # Errors
/// [`Refusal`] if the row's mode or metric is not covered, or a necessary length is missing.
///
/// ```
/// use llm_roofline::calibrate::{Predictor, price, read_measurements};
/// use llm_roofline::prelude::*;
///
/// let file = "id,engine,device,device_count,tp,model,weight_format,mode,output_tokens,metric,value\n\
///             a,ideal,h100-sxm-80gb,1,1,llama-3.1-8b,bf16,single_stream,100,tpot_ms,6\n";
/// let rows = read_measurements(file.as_bytes(), "house.csv")?;
/// let mut predictor = Predictor::new(Catalog::embedded());
/// let (deployment, _) = predictor.deployment(&rows[0])?;
/// let in_fp8 = StepModel::compile(&deployment.with_weights("fp8".parse()?))?;
/// assert!(price(&rows[0], &in_fp8)? < predictor.predict(&rows[0])?.predicted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn price(row: &Measurement, model: &StepModel) -> Result<f64, Refusal> {
    Ok(Plan::of(row)?.price(row, model).expected)
}

/// A predicted value with the interval in which nine of ten measurements are expected.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    low: f64,
    expected: f64,
    high: f64,
}

impl Estimate {
    const fn certain(value: f64) -> Self {
        Self { low: value, expected: value, high: value }
    }

    fn millis(time: Interval) -> Self {
        Self { low: time.low.as_millis(), expected: time.expected.as_millis(), high: time.high.as_millis() }
    }

    /// Tokens per second: the slowest time is the lowest rate.
    fn rate(tokens: f64, time: Interval) -> Self {
        let per_second = |time: Seconds| tokens / time.as_seconds();
        Self { low: per_second(time.high), expected: per_second(time.expected), high: per_second(time.low) }
    }
}

fn compile(catalog: &Catalog, row: &Measurement) -> Result<Compiled, Refusal> {
    let (deployment, assumptions) = deployment(catalog, row)?;
    Ok(Compiled { model: StepModel::compile(&deployment)?, assumptions })
}

fn deployment(catalog: &Catalog, row: &Measurement) -> Result<(Deployment, Vec<String>), Refusal> {
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
    let engine = with_micro_batch(&choice.engine, row)?;
    let system = System::new(with_threads(device, row)?, row.device_count)?;
    let mut deployment = Deployment::new(Arc::clone(&model), system).with_engine(engine).with_long_context_allowed();
    if row.weight_format.is_empty() {
        assumptions.push(format!("weights in {}, the format of the checkpoint", deployment.weights()));
    } else {
        deployment = deployment.with_weights(row.weight_format.parse()?);
    }
    let (kv, kv_assumption) = kv_format(row)?;
    assumptions.extend(kv_assumption);
    match kv {
        Some(kv) => deployment = deployment.with_kv(kv),
        None if *deployment.kv() == KvFormat::default() => {}
        None => assumptions.push(format!("cache in {}, as its checkpoint asks", deployment.kv())),
    }
    Ok((laid_out(deployment, row), assumptions))
}

/// The row's parallelism and kernels.
fn laid_out(deployment: Deployment, row: &Measurement) -> Deployment {
    let deployment = deployment
        .with_tensor_parallel(row.tp)
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

/// The processor with as many cores at work as the row states: the memory is shared, arithmetic is not.
fn with_threads(device: Arc<Device>, row: &Measurement) -> Result<Arc<Device>, Refusal> {
    let Some(text) = row.tag("threads") else { return Ok(device) };
    let refused = || Refusal::Threads(text.into());
    let (threads, cores) = text.split_once('/').ok_or_else(refused)?;
    let (threads, cores): (u32, u32) = threads.parse().ok().zip(cores.parse().ok()).ok_or_else(refused)?;
    if threads == 0 || threads > cores {
        return Err(refused());
    }
    let mut profile = device.as_ref().clone().into_profile();
    let compute = &mut profile.compute;
    for peak in [&mut compute.fp32, &mut compute.fp16, &mut compute.bf16, &mut compute.int8].into_iter().flatten() {
        peak.value = peak.value * (f64::from(threads) / f64::from(cores));
    }
    Device::new(profile).map(Arc::new).map_err(|_| refused())
}

/// The engine with the micro-batch that the row states.
fn with_micro_batch(engine: &Arc<Engine>, row: &Measurement) -> Result<Arc<Engine>, Refusal> {
    let Some(text) = row.tag("ub") else { return Ok(Arc::clone(engine)) };
    let tokens = text.parse().ok().filter(|tokens| *tokens > 0_u64);
    let tokens = tokens.ok_or_else(|| Refusal::MicroBatch(text.into()))?;
    let mut engine = Engine::clone(engine);
    let source = String::from("measurement");
    engine.sources.insert(source.clone(), "the measured row states it".into());
    engine.scheduling.max_tokens_per_step = Some(Sourced { source, ..Sourced::assumed(tokens) });
    Ok(Arc::new(engine))
}

/// The format of the cache that the row states, and what was assumed about it; without one the engine decides.
fn kv_format(row: &Measurement) -> Result<(Option<KvFormat>, Option<String>), FormatError> {
    let Some(name) = &row.kv_format else { return Ok((None, None)) };
    let different = name.strip_prefix("k-").and_then(|rest| rest.split_once("-v-"));
    let Some((keys, values)) = different else { return Ok((Some(name.parse()?), None)) };
    let (keys, values): (KvFormat, KvFormat) = (keys.parse()?, values.parse()?);
    let wider = if keys.bits_per_element(128) > values.bits_per_element(128) { keys } else { values };
    Ok((Some(wider), Some(format!("keys in {keys} and values in {values} are both counted in {wider}"))))
}

/// Metrics that can be predicted.
const METRICS: [&str; 9] = [
    "prefill_tps",
    "decode_tps_per_stream",
    "decode_tps_total",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "output_tps_total",
    "total_tps",
    "oom",
];
/// Context and length of a decode phase where the row does not say: its speed hardly depends on them.
const USUAL_CONTEXT: u64 = 256;
const USUAL_OUTPUT: u64 = 128;

/// What is to be priced: a batch of equal sequences, from a prompt or from a filled cache on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    batch: u64,
    /// Tokens in the cache before the prompt.
    depth: u64,
    prompt: u64,
    /// Tokens in the cache when the decode phase starts.
    decode_from: u64,
    output: u64,
    assumption: Option<&'static str>,
}

impl Plan {
    /// What a row measured.
    fn of(row: &Measurement) -> Result<Self, Refusal> {
        if !matches!(row.mode.as_str(), "single_stream" | "static_batch") {
            return Err(Refusal::Mode(row.mode.clone()));
        }
        let metric = row.metric.as_str();
        if !METRICS.contains(&metric) {
            return Err(Refusal::Metric { metric: metric.into(), nearest: nearest(metric, METRICS) });
        }
        let count = |tokens: Option<f64>| tokens.map(|tokens| tokens.round() as u64);
        let (input, context, output) = (count(row.input_tokens), count(row.context_tokens), count(row.output_tokens));
        let positive = |tokens: Option<u64>, column| {
            let refused = Refusal::Length { column, is_zero: tokens.is_some(), metric: metric.into() };
            tokens.filter(|tokens| *tokens > 0).ok_or(refused)
        };
        let mut plan = Self {
            batch: count(row.concurrency).unwrap_or(1).max(1),
            depth: context.unwrap_or(0),
            prompt: input.unwrap_or(0),
            decode_from: context.or(input).unwrap_or(0),
            output: output.unwrap_or(0),
            assumption: None,
        };
        match metric {
            "prefill_tps" | "ttft_ms" => plan.prompt = positive(input, "input_tokens")?,
            "e2e_ms" | "output_tps_total" | "total_tps" => {
                plan.prompt = positive(input, "input_tokens")?;
                plan.output = positive(output, "output_tokens")?;
                plan.decode_from = plan.depth + plan.prompt;
            }
            "oom" => {}
            _ => plan.take_usual_lengths(context.or(input), output),
        }
        Ok(plan)
    }

    fn take_usual_lengths(&mut self, from: Option<u64>, output: Option<u64>) {
        self.decode_from = from.unwrap_or(USUAL_CONTEXT);
        self.output = output.filter(|output| *output > 0).unwrap_or(USUAL_OUTPUT);
        self.assumption = match (from, output) {
            (None, _) => Some("lengths not stated: 128 tokens decoded from a context of 256 on"),
            (_, None | Some(0)) => Some("output length not stated: 128 tokens decoded"),
            _ => None,
        };
    }

    /// The value of the row's metric in its unit: milliseconds, tokens per second, or 1 for what does not fit.
    fn price(&self, row: &Measurement, model: &StepModel) -> Estimate {
        let batch = self.batch as f64;
        match row.metric.as_str() {
            "prefill_tps" => Estimate::rate(batch * self.prompt as f64, self.prefill(model)),
            "ttft_ms" => Estimate::millis(self.prefill(model)),
            // The first token comes out of the prefill.
            "tpot_ms" => {
                let steps = self.output.saturating_sub(1).max(1);
                Estimate::millis(self.decode(model, steps) / steps as f64)
            }
            "decode_tps_per_stream" => Estimate::rate(self.output as f64, self.decode(model, self.output)),
            "decode_tps_total" => Estimate::rate(batch * self.output as f64, self.decode(model, self.output)),
            "output_tps_total" => Estimate::rate(batch * self.output as f64, self.whole(model)),
            "total_tps" => Estimate::rate(batch * (self.prompt + self.output) as f64, self.whole(model)),
            "oom" => Estimate::certain(f64::from(u8::from(self.needed(model) > capacity(row, model)))),
            _ => Estimate::millis(self.whole(model)),
        }
    }

    fn prefill(&self, model: &StepModel) -> Interval {
        let request = Request::new(self.depth + self.prompt, 1).with_batch(self.batch);
        model.interval(&model.prefill(&request.with_cached_prompt_tokens(self.depth)))
    }

    fn decode(&self, model: &StepModel, steps: u64) -> Interval {
        model.interval(&model.decode_run(self.batch, self.decode_from, steps))
    }

    /// Prefill, then one decode step for every token but the first.
    fn whole(&self, model: &StepModel) -> Interval {
        self.prefill(model) + self.decode(model, self.output.saturating_sub(1))
    }

    fn needed(&self, model: &StepModel) -> Bytes {
        model.memory_plan(self.batch, self.depth + self.prompt + self.output).needed()
    }
}

/// Memory of one device that the engine may use; less for a device that is sold with several sizes.
fn capacity(row: &Measurement, model: &StepModel) -> Bytes {
    let capacity = model.memory_plan(0, 0).capacity;
    let stated = row.tag("device-memory-gb").and_then(|text| text.parse().ok()).map(Bytes::from_gib);
    let share = stated.map_or(1.0, |stated| stated / model.deployment().system().device().capacity());
    if share.is_finite() && share > 0.0 { capacity * share.min(1.0) } else { capacity }
}
