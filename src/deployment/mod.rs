//! A deployment: a model in some formats on a system under an engine. The one thing that everything is asked of.

mod error;
mod layout;
mod offload;
mod place;
mod settings;
mod sharded;
mod spec;
mod stage;

pub use error::DeploymentError;
pub use offload::{Host, Offload, Store};
pub(crate) use place::Place;
pub(crate) use sharded::{ShardedKind, ShardedLinear, ShardedModel};
pub use spec::{Spec, SpecError};

use crate::engine::{Engine, Keys};
use crate::format::{KvFormat, NumberFormat, WeightFormat};
use crate::hardware::{Link, System};
use crate::model::{Architecture, Model, ModelBody, Reach, Reaches};
use crate::profile::Provenance;
use layout::Layout;
use place::UnequalDevices;
use std::sync::Arc;

/// A model in given formats, spread over a system, run by an engine.
///
/// Cheap to clone and to vary: the model and the engine are shared.
///
/// ```
/// use llm_roofline::prelude::*;
///
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 4)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-70b")?, system).with_weights("fp8".parse()?);
/// assert_eq!(deployment.tensor_parallel(), 4);
///
/// let two_stages = deployment.clone().with_tensor_parallel(2).with_pipeline_parallel(2);
/// assert_eq!((two_stages.devices_used(), two_stages.layers_per_stage()), (4, Some(40)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Deployment {
    model: Arc<Model>,
    system: System,
    weights: WeightFormat,
    kv: Option<KvFormat>,
    engine: Arc<Engine>,
    layout: Layout,
    host: Option<Host>,
    offload: Offload,
    unequal: Option<UnequalDevices>,
    flash_attention: Option<bool>,
    allow_long_context: bool,
}

/// What engines cache in when nothing else is asked for.
static SIXTEEN_BIT_CACHE: KvFormat = KvFormat::Bf16;

impl Deployment {
    /// The model on all devices of the system with tensor parallelism, in its native weight format and a 16-bit cache, under the
    /// ideal engine. Checkpoints in 32 bits are loaded in 16, as engines do.
    pub fn new(model: impl Into<Arc<Model>>, system: System) -> Self {
        let model = model.into();
        Self {
            weights: Self::native_weights(&model),
            kv: None,
            engine: Engine::ideal_for_all(),
            layout: Layout::tensor_parallel(system.count()),
            host: None,
            offload: Offload::None,
            unequal: None,
            flash_attention: None,
            allow_long_context: false,
            model,
            system,
        }
    }

    /// The format in which engines load a model that nobody converts.
    pub(crate) fn native_weights(model: &Model) -> WeightFormat {
        let native = model.native_format.as_deref().and_then(|name| name.parse().ok());
        native.filter(|format| *format != WeightFormat::Fp32).unwrap_or_default()
    }

    /// With another model on the same devices, all of it: in the same formats, cut as before, without stages and replicas. Experts stay spread if
    /// it has any.
    #[must_use]
    pub fn with_model(self, model: impl Into<Arc<Model>>) -> Self {
        let model = model.into();
        let has_experts = model.architecture().is_some_and(Architecture::has_experts);
        let layout = self.layout.of_one_stage(has_experts);
        Self { model, layout, offload: Offload::None, unequal: None, ..self }
    }

    /// With weights in this format.
    #[must_use]
    pub fn with_weights(self, weights: WeightFormat) -> Self {
        Self { weights, ..self }
    }

    /// With a key-value cache in this format.
    #[must_use]
    pub fn with_kv(self, kv: KvFormat) -> Self {
        Self { kv: Some(kv), ..self }
    }

    /// Under this engine.
    #[must_use]
    pub fn with_engine(self, engine: impl Into<Arc<Engine>>) -> Self {
        Self { engine: engine.into(), ..self }
    }

    /// Under the engine of another deployment.
    #[must_use]
    pub(crate) fn under_engine_of(self, other: &Self) -> Self {
        Self { engine: Arc::clone(&other.engine), ..self }
    }

    /// On other devices, equal ones, divided as before.
    #[must_use]
    pub fn with_system(self, system: System) -> Self {
        Self { system, unequal: None, ..self }
    }

    /// With attention kernels that keep scores on the chip, or explicitly without; engines have a default of their own.
    #[must_use]
    pub fn with_flash_attention(self, flash_attention: bool) -> Self {
        Self { flash_attention: Some(flash_attention), ..self }
    }

    /// Allows contexts beyond what the model was made for.
    #[must_use]
    pub fn with_long_context_allowed(self) -> Self {
        Self { allow_long_context: true, ..self }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The system.
    pub const fn system(&self) -> &System {
        &self.system
    }

    /// Format of the weights.
    pub const fn weights(&self) -> &WeightFormat {
        &self.weights
    }

    /// Format of the key-value cache.
    pub fn kv(&self) -> &KvFormat {
        self.kv.as_ref().unwrap_or(if self.cache_follows_checkpoint() { &KvFormat::Fp8 } else { &SIXTEEN_BIT_CACHE })
    }

    /// Whether the engine takes the 8-bit cache that checkpoints in 8- and 4-bit floats of dense models, and in NVFP4 of any, ask for.
    fn cache_follows_checkpoint(&self) -> bool {
        let follows = self.engine.scheduling.cache_follows_checkpoint.as_ref().is_some_and(|follows| follows.value);
        let is_moe = || self.model.architecture().is_some_and(Architecture::has_experts);
        follows
            && match self.weights {
                WeightFormat::Nvfp4 => true,
                WeightFormat::Fp8 => !is_moe(),
                _ => false,
            }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether attention kernels keep scores on the chip: what was asked for, or else what the engine does.
    pub fn flash_attention(&self) -> bool {
        let of_engine = || self.engine.scheduling.flash_attention.as_ref().is_none_or(|fused| fused.value);
        self.flash_attention.unwrap_or_else(of_engine)
    }

    /// The longest context that may be asked for, `None` without a limit.
    pub fn context_limit(&self) -> Option<u64> {
        match self.model.architecture() {
            Some(architecture) if !self.allow_long_context => Some(architecture.max_context_tokens),
            _ => None,
        }
    }

    /// Whether an engine could run this, memory aside.
    ///
    /// # Errors
    /// [`DeploymentError`] if the model or the engine cannot be one, devices are missing, or heads, layers or experts cannot be divided.
    pub fn check(&self) -> Result<(), DeploymentError> {
        self.check_parts()?;
        self.check_layout()
    }

    /// Whether the model and the engine can be any.
    pub(crate) fn check_parts(&self) -> Result<(), DeploymentError> {
        self.engine.check()?;
        if let Some(host) = &self.host {
            host.engine().check()?;
        }
        match &self.model.body {
            ModelBody::Architecture(architecture) => architecture.check()?,
            ModelBody::Totals(totals) => {
                totals.clone().checked()?;
            }
        }
        Ok(())
    }

    /// Whether a model and an engine that were checked can be laid out so.
    pub(crate) fn check_layout(&self) -> Result<(), DeploymentError> {
        self.layout.check(self.system.count())?;
        match &self.model.body {
            ModelBody::Architecture(architecture) => self.layout.check_architecture(architecture)?,
            ModelBody::Totals(_) => self.layout.check_totals()?,
        }
        self.check_unequal()?;
        self.check_offload()
    }

    /// The reaches of the model's attention.
    pub(crate) fn reaches(&self) -> Result<Reaches, DeploymentError> {
        match &self.model.body {
            ModelBody::Architecture(architecture) => {
                let reaches = architecture.reaches_as(|reach| self.reach(reach));
                reaches.map_err(|found| DeploymentError::TooManyReaches { found, limit: Reaches::LIMIT })
            }
            ModelBody::Totals(_) => Ok(Reaches::FULL),
        }
    }

    /// How far attention looks back under this engine: sliding windows may be ignored.
    pub(crate) fn reach(&self, reach: Reach) -> Reach {
        let windows = self.engine.scheduling.sliding_windows.as_ref().is_none_or(|windows| windows.value);
        if windows || !matches!(reach, Reach::Window(_)) { reach } else { Reach::Full }
    }

    /// What the answer rests on besides measured facts and data sheets, in sentences.
    pub fn assumptions(&self) -> Vec<String> {
        let mut assumptions = self.hardware_assumptions();
        if let ModelBody::Totals(totals) = &self.model.body {
            assumptions.push(format!(
                "model known by its totals only: attention arithmetic, activations and communication are not counted; {} bits per weight and \
                 {} of cache per token whatever formats were asked for, multiplied in 16 bits",
                totals.bits_per_weight, totals.kv_bytes_per_token
            ));
        }
        assumptions.extend(self.engine_assumptions());
        for other in self.offload_assumptions() {
            if !assumptions.contains(&other) {
                assumptions.push(other);
            }
        }
        if self.engine.slug == "ideal" {
            assumptions
                .push("ideal engine: every operator reaches the peak, no overhead; real engines are slower".into());
        }
        if self.model.architecture().is_some_and(|architecture| architecture.state_elements() > 0) {
            assumptions.push("recurrent state kept in 16 bits".into());
        }
        assumptions
    }

    /// What the engine decides by default, and where its laws have no measurement behind them.
    fn engine_assumptions(&self) -> Vec<String> {
        let (engine, device) = (&self.engine, self.system.device());
        let mut assumptions = Vec::new();
        if self.kv.is_none() && self.cache_follows_checkpoint() {
            assumptions.push(format!("cache in {}, as the checkpoint asks and {} does", self.kv(), engine.name));
        }
        let keys = device.kernel_keys();
        let generation = keys.each_ref().map(String::as_str);
        let keys = Keys { generation: &generation, format: &[self.weights.kernel_key()] };
        let resolved = engine.gemm.compute.as_ref().map(|compute| compute.at(&keys));
        if resolved.is_some_and(|compute| !compute.known) {
            assumptions.push(format!(
                "{} has not been measured on {} devices: defaults of its kernels, in a wider interval",
                engine.name,
                device.generation()
            ));
        }
        assumptions
    }

    /// The device facts that the answer depends on and that were not read in a data sheet, and the link that was supposed.
    fn hardware_assumptions(&self) -> Vec<String> {
        let device = self.system.device();
        let mut formats = vec![device.matmul_peak(NumberFormat::Bf16, NumberFormat::Bf16).format];
        if let Some(sharded) = self.sharded() {
            formats.extend(sharded.formats());
        }
        let peaks: Vec<String> = formats.iter().map(|format| format!("compute.{format}")).collect();
        let memory = ["memory.capacity", "memory.usable", "memory.bandwidth"];
        let used = |key: &str| memory.contains(&key) || peaks.iter().any(|peak| peak == key);
        let mut assumptions = device.assumptions_among(used);
        if self.model.architecture().is_some() {
            assumptions.extend(self.assumed_links());
        }
        assumptions
    }

    /// What is supposed about the links within a stage and between stages.
    fn assumed_links(&self) -> impl Iterator<Item = String> {
        let group = self.devices_per_stage();
        let within = (group > 1).then(|| self.system.group_link(group).ok()).flatten();
        let between = (self.pipeline_parallel() > 1).then(|| self.system.pair_link(group).ok()).flatten();
        let within = within.and_then(|link| assumed(&link, format!("{group} devices are linked")));
        let between = between.and_then(|link| assumed(&link, "pipeline stages are linked".into()));
        within.into_iter().chain(between)
    }
}

/// A sentence about a link, if it was supposed.
fn assumed(link: &Link, who: String) -> Option<String> {
    let Link { kind, bandwidth, note, .. } = link;
    let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    (link.provenance == Provenance::Assumed).then(|| format!("{who} by {kind} of {bandwidth} per direction{note}"))
}
