//! What is varied: an axis of a sweep with its values, and a point with one value of each.

use super::SpeculationChoice;
use crate::engine::Engine;
use crate::format::{KvFormat, WeightFormat};
use crate::hardware::Device;
use crate::model::Model;
use crate::planner::PlannerError;
use crate::profile::{folded, nearest};
use crate::units::RequestsPerSecond;
use std::sync::Arc;

/// One thing that a sweep varies, with its values and a label for each.
///
/// Labels are the names that people write: `h100-sxm-80gb`, `fp8`, `4`, `2 req/s`.
///
/// ```
/// use llm_roofline::catalog::Catalog;
/// use llm_roofline::planner::Axis;
///
/// let catalog = Catalog::embedded();
/// let devices = Axis::devices([catalog.device("h100-sxm-80gb")?, catalog.device("l4-24gb")?]);
/// assert_eq!((devices.name(), devices.labels()), ("devices", &["h100-sxm-80gb".to_string(), "l4-24gb".to_string()][..]));
/// assert_eq!(Axis::prompts([500, 8000]).labels(), ["500", "8000"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Axis {
    values: Values,
    labels: Vec<String>,
}

/// The values of an axis.
#[derive(Clone, Debug)]
enum Values {
    Models(Vec<Arc<Model>>),
    Devices(Vec<Arc<Device>>),
    Engines(Vec<Arc<Engine>>),
    Weights(Vec<WeightFormat>),
    Kv(Vec<KvFormat>),
    TensorParallel(Vec<u32>),
    PipelineParallel(Vec<u32>),
    ExpertParallel(Vec<u32>),
    DataParallelAttention(Vec<u32>),
    Speculation(Vec<SpeculationChoice>),
    Prompts(Vec<u64>),
    Outputs(Vec<u64>),
    Counts(Vec<u32>),
    Batches(Vec<u64>),
    Rates(Vec<RequestsPerSecond>),
}

/// Names of all axes, in the order in which cells are computed: what costs most to change comes first.
pub(super) const NAMES: [&str; 15] = [
    "models",
    "devices",
    "engines",
    "weights",
    "kv",
    "tensor_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "data_parallel_attention",
    "speculation",
    "prompts",
    "outputs",
    "counts",
    "batches",
    "rates",
];

/// Position of the first axis in [`NAMES`] that needs nothing to be compiled.
pub(super) const PROMPTS: usize = 10;
/// Position of the number of devices in [`NAMES`].
pub(super) const COUNTS: usize = 12;

/// One value of each axis; none where nothing is varied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point<'a> {
    pub(super) model: Option<&'a Arc<Model>>,
    pub(super) device: Option<&'a Arc<Device>>,
    pub(super) engine: Option<&'a Arc<Engine>>,
    pub(super) weights: Option<&'a WeightFormat>,
    pub(super) kv: Option<KvFormat>,
    pub(super) tensor_parallel: Option<u32>,
    pub(super) pipeline_parallel: Option<u32>,
    pub(super) expert_parallel: Option<u32>,
    pub(super) data_parallel_attention: Option<u32>,
    pub(super) speculation: Option<&'a SpeculationChoice>,
    pub(super) prompt: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) count: Option<u32>,
    pub(super) batch: Option<u64>,
    pub(super) rate: Option<RequestsPerSecond>,
}

impl Axis {
    /// Models (axis `models`), labelled with their slugs.
    ///
    /// A base deployment in the native format of its model has each model in its own; any other format is kept for all.
    pub fn models<M: Into<Arc<Model>>>(models: impl IntoIterator<Item = M>) -> Self {
        Self::labelled(models.into_iter().map(Into::into), |model| model.slug.clone(), Values::Models)
    }

    /// Devices (axis `devices`), labelled with their slugs, in nodes of the size that is usual for each.
    pub fn devices<D: Into<Arc<Device>>>(devices: impl IntoIterator<Item = D>) -> Self {
        Self::labelled(devices.into_iter().map(Into::into), |device| device.slug().into(), Values::Devices)
    }

    /// Engines (axis `engines`), labelled with their slugs. Settings of the base deployment that its own engine holds, such as its share of the
    /// memory, do not pass to others.
    pub fn engines<E: Into<Arc<Engine>>>(engines: impl IntoIterator<Item = E>) -> Self {
        Self::labelled(engines.into_iter().map(Into::into), |engine| engine.slug.clone(), Values::Engines)
    }

    /// Formats of the weights (axis `weights`).
    pub fn weights(formats: impl IntoIterator<Item = WeightFormat>) -> Self {
        Self::labelled(formats, ToString::to_string, Values::Weights)
    }

    /// Formats of the key-value cache (axis `kv`).
    pub fn kv(formats: impl IntoIterator<Item = KvFormat>) -> Self {
        Self::labelled(formats, ToString::to_string, Values::Kv)
    }

    /// Devices of the system (axis `counts`). See [`Sweep`](super::Sweep) for what becomes of them.
    pub fn counts(counts: impl IntoIterator<Item = u32>) -> Self {
        Self::labelled(counts, ToString::to_string, Values::Counts)
    }

    /// Degrees of tensor parallelism (axis `tensor_parallel`).
    pub fn tensor_parallel(degrees: impl IntoIterator<Item = u32>) -> Self {
        Self::labelled(degrees, ToString::to_string, Values::TensorParallel)
    }

    /// Stages of the pipeline (axis `pipeline_parallel`).
    pub fn pipeline_parallel(degrees: impl IntoIterator<Item = u32>) -> Self {
        Self::labelled(degrees, ToString::to_string, Values::PipelineParallel)
    }

    /// Ways in which whole experts are spread (axis `expert_parallel`).
    pub fn expert_parallel(degrees: impl IntoIterator<Item = u32>) -> Self {
        Self::labelled(degrees, ToString::to_string, Values::ExpertParallel)
    }

    /// Ranks of data-parallel attention (axis `data_parallel_attention`).
    pub fn data_parallel_attention(degrees: impl IntoIterator<Item = u32>) -> Self {
        Self::labelled(degrees, ToString::to_string, Values::DataParallelAttention)
    }

    /// Ways of speculating (axis `speculation`), plain decoding among them: see [`SpeculationChoice`].
    pub fn speculation<C: Into<SpeculationChoice>>(choices: impl IntoIterator<Item = C>) -> Self {
        Self::labelled(choices.into_iter().map(Into::into), ToString::to_string, Values::Speculation)
    }

    /// Requests that start together (axis `batches`).
    pub fn batches(batches: impl IntoIterator<Item = u64>) -> Self {
        Self::labelled(batches, ToString::to_string, Values::Batches)
    }

    /// Tokens of the prompt (axis `prompts`).
    pub fn prompts(tokens: impl IntoIterator<Item = u64>) -> Self {
        Self::labelled(tokens, ToString::to_string, Values::Prompts)
    }

    /// Tokens of the answer (axis `outputs`).
    pub fn outputs(tokens: impl IntoIterator<Item = u64>) -> Self {
        Self::labelled(tokens, ToString::to_string, Values::Outputs)
    }

    /// Requests per second that come to one replica (axis `rates`).
    pub fn rates(rates: impl IntoIterator<Item = RequestsPerSecond>) -> Self {
        Self::labelled(rates, |rate| format!("{} req/s", rate.as_requests_per_second()), Values::Rates)
    }

    /// With other labels: for variants of one device, or engines that differ in their settings only.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::planner::{Axis, Sweep};
    /// let catalog = Catalog::embedded();
    /// let mac = catalog.device("apple-m4-max")?;
    /// let smaller = mac.as_ref().clone().with_memory_capacity(Bytes::from_gb(36.0))?;
    /// let sizes = Axis::devices([mac.clone(), smaller.into()]).with_labels(["128 GB", "36 GB"]);
    /// let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(mac, 1)?);
    /// assert_eq!(Sweep::new(&base, &Request::new(500, 500)).over(sizes)?.requests()?.axes()[0].labels, ["128 GB", "36 GB"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_labels<L: Into<String>>(self, labels: impl IntoIterator<Item = L>) -> Self {
        Self { labels: labels.into_iter().map(Into::into).collect(), ..self }
    }

    fn labelled<T>(
        values: impl IntoIterator<Item = T>,
        label: impl Fn(&T) -> String,
        wrap: impl Fn(Vec<T>) -> Values,
    ) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        Self { labels: values.iter().map(label).collect(), values: wrap(values) }
    }

    /// What is varied.
    pub fn name(&self) -> &'static str {
        NAMES.get(self.rank()).copied().unwrap_or_default()
    }

    /// The labels, one per value.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Position in [`NAMES`].
    pub(super) const fn rank(&self) -> usize {
        match self.values {
            Values::Models(_) => 0,
            Values::Devices(_) => 1,
            Values::Engines(_) => 2,
            Values::Weights(_) => 3,
            Values::Kv(_) => 4,
            Values::TensorParallel(_) => 5,
            Values::PipelineParallel(_) => 6,
            Values::ExpertParallel(_) => 7,
            Values::DataParallelAttention(_) => 8,
            Values::Speculation(_) => 9,
            Values::Prompts(_) => PROMPTS,
            Values::Outputs(_) => 11,
            Values::Counts(_) => COUNTS,
            Values::Batches(_) => 13,
            Values::Rates(_) => 14,
        }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        match &self.values {
            Values::Models(values) => values.len(),
            Values::Devices(values) => values.len(),
            Values::Engines(values) => values.len(),
            Values::Weights(values) => values.len(),
            Values::Kv(values) => values.len(),
            Values::Speculation(values) => values.len(),
            Values::Rates(values) => values.len(),
            Values::TensorParallel(values)
            | Values::PipelineParallel(values)
            | Values::ExpertParallel(values)
            | Values::DataParallelAttention(values)
            | Values::Counts(values) => values.len(),
            Values::Prompts(values) | Values::Outputs(values) | Values::Batches(values) => values.len(),
        }
    }

    /// The numbers of devices, if this is their axis.
    pub(super) fn device_counts(&self) -> &[u32] {
        match &self.values {
            Values::Counts(values) => values,
            _ => &[],
        }
    }

    /// Moves a point to a value of this axis.
    #[inline]
    pub(super) fn put<'a>(&'a self, at: usize, point: &mut Point<'a>) {
        match &self.values {
            Values::Models(values) => point.model = values.get(at),
            Values::Devices(values) => point.device = values.get(at),
            Values::Engines(values) => point.engine = values.get(at),
            Values::Weights(values) => point.weights = values.get(at),
            Values::Kv(values) => point.kv = values.get(at).copied(),
            Values::TensorParallel(values) => point.tensor_parallel = values.get(at).copied(),
            Values::PipelineParallel(values) => point.pipeline_parallel = values.get(at).copied(),
            Values::ExpertParallel(values) => point.expert_parallel = values.get(at).copied(),
            Values::DataParallelAttention(values) => point.data_parallel_attention = values.get(at).copied(),
            Values::Speculation(values) => point.speculation = values.get(at),
            Values::Prompts(values) => point.prompt = values.get(at).copied(),
            Values::Outputs(values) => point.output = values.get(at).copied(),
            Values::Counts(values) => point.count = values.get(at).copied(),
            Values::Batches(values) => point.batch = values.get(at).copied(),
            Values::Rates(values) => point.rate = values.get(at).copied(),
        }
    }

    /// Whether it has values, and a label of its own for each.
    pub(super) fn check(&self) -> Result<(), PlannerError> {
        if self.len() == 0 {
            return Err(PlannerError::Empty { what: self.name() });
        }
        if self.labels.len() != self.len() {
            let (found, expected) = (self.labels.len(), self.len());
            return Err(PlannerError::Labels { axis: self.name(), found, expected });
        }
        let mut sorted: Vec<&String> = self.labels.iter().collect();
        sorted.sort();
        match sorted.windows(2).find_map(|pair| pair.first().zip(pair.get(1)).filter(|(a, b)| a == b)) {
            Some((label, _)) => Err(PlannerError::Repeated {
                what: format!("a value of the axis {}", self.name()),
                name: label.to_string(),
            }),
            None => Ok(()),
        }
    }
}

/// The name that was meant among those that are valid: the same, or the same but for case, spaces, dashes and underscores.
pub(super) fn position_of(what: &str, name: &str, valid: &[&str]) -> Result<usize, PlannerError> {
    let same = valid.iter().position(|known| *known == name);
    let alike = || valid.iter().position(|known| folded(known) == folded(name));
    same.or_else(alike).ok_or_else(|| PlannerError::Unknown {
        what: what.into(),
        name: name.chars().take(100).collect(),
        expected: valid.iter().map(ToString::to_string).collect(),
        nearest: nearest(name, valid.iter().copied()).map(Into::into),
    })
}
