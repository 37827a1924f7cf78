//! A deployment: a model in some formats on a system under an engine. The one thing that everything is asked of.

mod sharded;

pub(crate) use sharded::{ShardedKind, ShardedLinear, ShardedModel};

use crate::engine::Engine;
use crate::format::{KvFormat, NumberFormat, WeightFormat};
use crate::hardware::System;
use crate::model::{Architecture, Mixer, Model, ModelBody, ModelError, Reaches};
use crate::profile::{ProfileError, Provenance};
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Deployment {
    model: Arc<Model>,
    system: System,
    weights: WeightFormat,
    kv: KvFormat,
    engine: Arc<Engine>,
    tensor_parallel: u32,
    allow_long_context: bool,
}

/// A deployment that no engine could run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeploymentError {
    /// The model cannot be one.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Tensor parallelism of degree zero.
    #[error("tensor parallelism 0, expected at least 1 device")]
    NoDevices,
    /// More devices in the group than in the system.
    #[error("tensor parallelism {tensor_parallel} on a system of {devices} devices")]
    NotEnoughDevices {
        /// Degree of tensor parallelism.
        tensor_parallel: u32,
        /// Devices of the system.
        devices: u32,
    },
    /// Query heads cannot be divided evenly.
    #[error(
        "tensor parallelism {tensor_parallel} does not divide the {heads} heads of layer kind `{layer}`; \
         engines refuse this: use a divisor of {heads}"
    )]
    HeadsDoNotDivide {
        /// Degree of tensor parallelism.
        tensor_parallel: u32,
        /// Heads that must be divided.
        heads: u64,
        /// Layer kind.
        layer: String,
    },
    /// Key-value heads can neither be divided nor replicated evenly.
    #[error(
        "tensor parallelism {tensor_parallel} fits neither way to the {kv_heads} key-value heads of layer kind `{layer}`: up to \
         {kv_heads} devices it must divide them, beyond that engines replicate heads and it must be a multiple of {kv_heads}"
    )]
    KvHeadsDoNotDivide {
        /// Degree of tensor parallelism.
        tensor_parallel: u32,
        /// Key-value heads.
        kv_heads: u64,
        /// Layer kind.
        layer: String,
    },
    /// The engine's numbers cannot be those of one.
    #[error(transparent)]
    Engine(#[from] ProfileError),
    /// The model mixes more kinds of attention reach than a step can keep apart.
    #[error("the model mixes {found} kinds of attention windows, at most {limit} are supported")]
    TooManyReaches {
        /// Kinds found.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

impl Deployment {
    /// The model on all devices of the system with tensor parallelism, in its native weight format and a 16-bit cache, under the
    /// ideal engine. Checkpoints in 32 bits are loaded in 16, as engines do.
    pub fn new(model: impl Into<Arc<Model>>, system: System) -> Self {
        let model = model.into();
        let native = model.native_format.as_deref().and_then(|name| name.parse().ok());
        let native = native.filter(|format| *format != WeightFormat::Fp32);
        Self {
            weights: native.unwrap_or_default(),
            kv: KvFormat::default(),
            engine: Arc::new(Engine::ideal()),
            tensor_parallel: system.count(),
            allow_long_context: false,
            model,
            system,
        }
    }

    /// With weights in this format.
    #[must_use]
    pub fn with_weights(self, weights: WeightFormat) -> Self {
        Self { weights, ..self }
    }

    /// With a key-value cache in this format.
    #[must_use]
    pub fn with_kv(self, kv: KvFormat) -> Self {
        Self { kv, ..self }
    }

    /// Under this engine.
    #[must_use]
    pub fn with_engine(self, engine: impl Into<Arc<Engine>>) -> Self {
        Self { engine: engine.into(), ..self }
    }

    /// On so many devices of the system, each holding a slice of every layer.
    #[must_use]
    pub fn with_tensor_parallel(self, tensor_parallel: u32) -> Self {
        Self { tensor_parallel, ..self }
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
    pub const fn kv(&self) -> &KvFormat {
        &self.kv
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Devices that share every layer.
    pub const fn tensor_parallel(&self) -> u32 {
        self.tensor_parallel
    }

    /// Whether attention is fused: what the engine does.
    pub fn flash_attention(&self) -> bool {
        self.engine.scheduling.flash_attention.as_ref().is_none_or(|fused| fused.value)
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
    /// [`DeploymentError`] if the model or the engine cannot be one, devices are missing or heads cannot be divided.
    pub fn check(&self) -> Result<(), DeploymentError> {
        let (tensor_parallel, devices) = (self.tensor_parallel, self.system.count());
        if tensor_parallel == 0 {
            return Err(DeploymentError::NoDevices);
        }
        if tensor_parallel > devices {
            return Err(DeploymentError::NotEnoughDevices { tensor_parallel, devices });
        }
        self.engine.check()?;
        match &self.model.body {
            ModelBody::Architecture(architecture) => {
                architecture.check()?;
                check_heads(architecture, tensor_parallel)
            }
            ModelBody::Totals(totals) => Ok(totals.clone().checked().map(drop)?),
        }
    }

    /// The reaches of the model's attention.
    pub(crate) fn reaches(&self) -> Result<Reaches, DeploymentError> {
        match &self.model.body {
            ModelBody::Architecture(architecture) => {
                architecture.reaches().map_err(|found| DeploymentError::TooManyReaches { found, limit: Reaches::LIMIT })
            }
            ModelBody::Totals(_) => Ok(Reaches::FULL),
        }
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
        if self.engine.slug == "ideal" {
            assumptions
                .push("ideal engine: every operator reaches the peak, no overhead; real engines are slower".into());
        }
        if self.model.architecture().is_some_and(|architecture| architecture.state_elements() > 0) {
            assumptions.push("recurrent state kept in 16 bits".into());
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
        if self.tensor_parallel > 1 && self.model.architecture().is_some() {
            assumptions.extend(self.assumed_link());
        }
        assumptions
    }

    /// What is supposed about the link of the tensor-parallel group.
    fn assumed_link(&self) -> Option<String> {
        let link = self.system.group_link(self.tensor_parallel).ok()?;
        let note = link.note.map(|note| format!(": {note}")).unwrap_or_default();
        (link.provenance == Provenance::Assumed).then(|| {
            format!(
                "{} devices are linked by {} of {} per direction{note}",
                self.tensor_parallel, link.kind, link.bandwidth
            )
        })
    }
}

fn check_heads(architecture: &Architecture, tensor_parallel: u32) -> Result<(), DeploymentError> {
    let degree = u64::from(tensor_parallel);
    for kind in &architecture.layer_kinds {
        let (heads, kv_heads) = match &kind.layer.mixer {
            Mixer::Attention(attention) => (attention.heads, attention.kv_heads),
            Mixer::LatentAttention(attention) => (attention.heads, 1),
            Mixer::CompressedAttention(attention) => (attention.heads, 1),
            Mixer::Recurrent(recurrent) => (recurrent.heads(), 1),
            Mixer::None | Mixer::Linear => continue,
        };
        let layer = kind.name.clone();
        if heads % degree != 0 {
            return Err(DeploymentError::HeadsDoNotDivide { tensor_parallel, heads, layer });
        }
        if kv_heads % degree != 0 && degree % kv_heads != 0 {
            return Err(DeploymentError::KvHeadsDoNotDivide { tensor_parallel, kv_heads, layer });
        }
    }
    Ok(())
}
