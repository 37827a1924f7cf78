//! From a measured row to a prediction: which deployment, which steps, which number.

use super::deployed::{Configuration, deployment};
use super::load::{self, LoadPlan};
use super::measurement::Measurement;
use super::score::SPEEDUP;
use super::settings::{self, Setting};
use super::speculation::Speculated;
use crate::catalog::{Catalog, CatalogError};
use crate::deployment::Deployment;
use crate::engine::Exhaustion;
use crate::format::FormatError;
use crate::hardware::{DeviceError, SystemError};
use crate::memory::MemoryModel;
use crate::profile::nearest;
use crate::request::Request;
use crate::serving::ServingError;
use crate::speculative::{SpeculationError, Speedup};
use crate::step::{CompileError, Interval, StepModel};
use crate::units::{Bytes, Seconds};
use crate::workload::WorkloadError;
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
    #[error("mode `{0}` is not predicted, only single_stream, static_batch, closed_loop, open_loop and offline are")]
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
    /// A tag that sets something of the engine or of the device holds no such value.
    #[error("tag {tag} is `{value}`, expected {expected}")]
    Tag {
        /// The tag.
        tag: String,
        /// What it holds.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The device, the model or the engine is not known.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A number format is not known.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The number of devices is impossible.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The device does not come with the memory that the row states.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No engine could run this.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// No such load could be served.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// Lengths that no request has.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Nobody could speculate so.
    #[error(transparent)]
    Speculation(#[from] SpeculationError),
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

impl Predictor {
    /// A predictor with the devices, models and engines of a catalog.
    pub fn new(catalog: &Catalog) -> Self {
        Self { catalog: catalog.clone(), compiled: HashMap::new() }
    }

    /// Predicts the metric of a row.
    ///
    /// Whether the configuration fits into memory is not asked: it ran. Only two metrics are predicted from the memory plan, in any mode and
    /// whether or not the step model covers the layout: `oom` (1: does not fit) and `kv_cache_tokens` (the size of the pool as the engine
    /// prints it). Lengths are those of the columns, `max-model-len` that of the tag; engines with a pool let sequences wait that do not fit
    /// beside the others, so that for them one sequence must fit. A `speedup` by speculative decoding is predicted in any mode too, as that of
    /// equal requests in flight.
    ///
    /// # Errors
    /// [`Refusal`] if the row's mode or metric is not covered, its names are unknown, a tag of a setting is malformed, or a necessary length
    /// is missing.
    pub fn predict(&mut self, row: &Measurement) -> Result<Prediction, Refusal> {
        if row.metric == SPEEDUP {
            return self.speedup(row);
        }
        if load::MODES.contains(&row.mode.as_str()) && !MEMORY_METRICS.contains(&row.metric.as_str()) {
            return self.under_load(row);
        }
        let plan = Plan::of(row)?;
        if MEMORY_METRICS.contains(&row.metric.as_str()) {
            let (deployment, mut assumptions) = deployment(&self.catalog, row)?;
            let Estimate { low, expected: predicted, high } = plan.memory(row, &deployment)?;
            assumptions.extend(plan.waves(&deployment));
            return Ok(Prediction { predicted, low, high, assumptions });
        }
        let compiled = self.compiled(row)?;
        let Estimate { low, expected: predicted, high } = plan.price(row, &compiled.model)?;
        let assumptions = compiled.assumptions.iter().cloned().chain(plan.assumption.map(Into::into)).collect();
        Ok(Prediction { predicted, low, high, assumptions })
    }

    fn compiled(&mut self, row: &Measurement) -> Result<Arc<Compiled>, Refusal> {
        let configuration = Configuration::of(row);
        if let Some(known) = self.compiled.get(&configuration) {
            return known.clone();
        }
        let result = compile(&self.catalog, row).map(Arc::new);
        self.compiled.insert(configuration, result.clone());
        result
    }

    fn under_load(&mut self, row: &Measurement) -> Result<Prediction, Refusal> {
        let plan = LoadPlan::of(row)?;
        let compiled = self.compiled(row)?;
        let Estimate { low, expected: predicted, high } = plan.price(row, &compiled.model)?;
        let assumptions = compiled.assumptions.iter().chain(&plan.assumptions).cloned().collect();
        Ok(Prediction { predicted, low, high, assumptions })
    }

    /// A speed-up by speculative decoding; each row is compiled, since its drafter is its own.
    fn speedup(&self, row: &Measurement) -> Result<Prediction, Refusal> {
        let (target, mut assumptions) = deployment(&self.catalog, row)?;
        let speculated = Speculated::of(&self.catalog, row, &target, &mut assumptions)?;
        let Speedup { low, expected: predicted, high } = speculated.speedup();
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
/// [`Predictor::deployment`] makes of the row. A `speedup` is that of this model's deployment with a drafter; draft models are looked up in the
/// embedded catalog.
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
    if row.metric == SPEEDUP {
        let speculated = Speculated::of(Catalog::embedded(), row, model.deployment(), &mut Vec::new())?;
        return Ok(speculated.speedup().expected);
    }
    if load::MODES.contains(&row.mode.as_str()) {
        return Ok(LoadPlan::of(row)?.price(row, model)?.expected);
    }
    Ok(Plan::of(row)?.price(row, model)?.expected)
}

/// A predicted value with the interval in which nine of ten measurements are expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) low: f64,
    pub(super) expected: f64,
    pub(super) high: f64,
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

/// Metrics that can be predicted.
const METRICS: [&str; 11] = [
    "prefill_tps",
    "decode_tps_per_stream",
    "decode_tps_total",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "output_tps_total",
    "total_tps",
    "oom",
    "kv_cache_tokens",
    SPEEDUP,
];
/// Those that only memory decides, in whatever mode.
const MEMORY_METRICS: [&str; 2] = ["oom", "kv_cache_tokens"];
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
        let metric = row.metric.as_str();
        if !matches!(row.mode.as_str(), "single_stream" | "static_batch") && !MEMORY_METRICS.contains(&metric) {
            return Err(Refusal::Mode(row.mode.clone()));
        }
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
            "oom" | "kv_cache_tokens" => {}
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

    /// The value of the row's metric in its unit: milliseconds, tokens per second, tokens, or 1 for what does not fit.
    fn price(&self, row: &Measurement, model: &StepModel) -> Result<Estimate, Refusal> {
        let batch = self.batch as f64;
        Ok(match row.metric.as_str() {
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
            metric if MEMORY_METRICS.contains(&metric) => return self.memory(row, model.deployment()),
            _ => Estimate::millis(self.whole(model)),
        })
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

    /// What only memory decides: whether it does not fit (1 or 0), or how many tokens the pool of the cache has.
    fn memory(&self, row: &Measurement, deployment: &Deployment) -> Result<Estimate, Refusal> {
        let model = MemoryModel::new(deployment);
        let longest = settings::whole(row, Setting::Context)?;
        if row.metric == "oom" {
            let context = longest.unwrap_or(0).max(self.tokens());
            let sequences = if queues(deployment) { 1 } else { self.batch };
            return Ok(Estimate::certain(f64::from(u8::from(!model.fits(sequences, context)))));
        }
        let stated = Some(self.depth).filter(|tokens| *tokens > 0).or(longest);
        let of_model = || deployment.model().architecture().map(|architecture| architecture.max_context_tokens);
        let longest = stated.or_else(of_model).ok_or_else(|| {
            let (column, metric) = ("context_tokens", row.metric.clone());
            Refusal::Length { column, is_zero: row.context_tokens.is_some(), metric }
        })?;
        let predicted = model.kv_pool(longest).memory;
        Ok(match settings::cache_memory(row, predicted, &model.plan(1, longest))? {
            Some(memory) => Estimate::certain(model.kv_pool_in(memory, longest).tokens as f64),
            None => pool(deployment, &model, longest),
        })
    }

    /// Tokens of a sequence at its end.
    const fn tokens(&self) -> u64 {
        self.depth + self.prompt + self.output
    }

    /// What is assumed of a batch that does not fit at once.
    fn waves(&self, deployment: &Deployment) -> Option<String> {
        let in_waves = queues(deployment) && !MemoryModel::new(deployment).fits(self.batch, self.tokens());
        in_waves.then(|| format!("of {} sequences some wait until others are done", self.batch))
    }
}

/// Tokens of the pool; what the driver, libraries and graphs take differs between runs of one version.
fn pool(deployment: &Deployment, model: &MemoryModel, longest: u64) -> Estimate {
    let pool = model.kv_pool(longest);
    let spread = model.plan(0, 0).visible * if deployment.engine().memory.is_empty() { 0.0 } else { POOL_SPREAD };
    let tokens = |memory: Bytes| model.kv_pool_in(memory.max(Bytes::ZERO), longest).tokens as f64;
    Estimate { low: tokens(pool.memory - spread), expected: pool.tokens as f64, high: tokens(pool.memory + spread) }
}

/// Share of a device's memory. Start-up logs of vLLM: 0.01 to 0.35 GiB outside of its budget on one card of 24 to 80 GB, 2.06 to 2.20 GiB on
/// several, up to 1.14 GiB of graphs.
const POOL_SPREAD: f64 = 0.02;

/// Whether sequences that do not fit beside the others wait.
fn queues(deployment: &Deployment) -> bool {
    let rule = deployment.engine().memory.exhaustion.as_ref();
    rule.is_some_and(|rule| rule.value != Exhaustion::Refuse)
}
