//! What does not live on the accelerator: layers or experts on the host, weights and cache that are fetched in every step.

use super::{Deployment, DeploymentError};
use crate::engine::Engine;
use crate::hardware::Device;
use crate::model::{Architecture, ModelBody};
use crate::units::{Bytes, BytesPerSecond};
use std::sync::Arc;

/// The processor and the main memory beside the accelerators.
///
/// ```
/// use llm_roofline::deployment::{Host, Offload};
/// use llm_roofline::{prelude::*, step::CompileError};
///
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("rtx-4090-24gb")?, 1)?;
/// let host = Host::new(catalog.device("ryzen-9-7950x")?, catalog.engine("llama-cpp-cpu-2026")?);
/// let on_device = Deployment::new(catalog.model("llama-3.1-8b")?, system)
///     .with_weights("q4_k_m".parse()?)
///     .with_engine(catalog.engine("llama-cpp-cuda-2026")?);
/// let half = on_device.clone().with_host(host).with_offload(Offload::Layers { on_device: 17 });
/// let step = |deployment| Ok::<_, CompileError>(StepModel::compile(deployment)?.decode_step(1, 1000).total());
/// assert!(step(&half)? > step(&on_device)? * 5.0); // the main memory is slow
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    device: Arc<Device>,
    engine: Arc<Engine>,
}

impl Host {
    /// A processor with its memory, and the laws of the kernels that run on it (`llama-cpp-cpu-2026`; [`Engine::ideal`] for the bound).
    pub fn new(device: impl Into<Arc<Device>>, engine: impl Into<Arc<Engine>>) -> Self {
        Self { device: device.into(), engine: engine.into() }
    }

    /// The processor: a CPU profile.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The laws of its kernels.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// Which part of a model does not live in the memory of the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Offload {
    /// None.
    #[default]
    None,
    /// Whole layers, their cache included, live and run on the host (llama.cpp `-ngl`).
    ///
    /// The last `on_device` of `layers + 1` are on the devices, where the output head counts as the last: 1 is the head alone, 0 nothing, more
    /// than there are all (`-ngl 99`). llama.cpp: `i_gpu_start = n_layer + 1 - ngl`.
    Layers {
        /// Layers on the devices, the output head included.
        on_device: u64,
    },
    /// The routed experts of the first so many layers live and run on the host (llama.cpp `--n-cpu-moe`; more than there are: all, `--cpu-moe`).
    Experts {
        /// Layers counted from the first, whether or not they have experts.
        layers: u64,
    },
    /// Weights, cache or both live elsewhere and are read over a link in every step that needs them (vLLM `--cpu-offload-gb`, the system
    /// memory fallback of drivers, llama.cpp `mmap` of a file larger than memory).
    Stream {
        /// Weights of each device that it does not hold, taken evenly from all of its matrices.
        weights: Bytes,
        /// Share of the cache that it does not hold, 0 to 1.
        cache_share: f64,
        /// Where they live.
        from: Store,
    },
}

/// A memory that is not the device's own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Store {
    /// Main memory, over the device's link to the host.
    Host,
    /// A disk, through main memory: the slower of its bandwidth and the link's counts.
    Storage {
        /// Sequential reads.
        bandwidth: BytesPerSecond,
    },
}

impl Deployment {
    /// With a host that parts of the model can live on.
    #[must_use]
    pub fn with_host(self, host: Host) -> Self {
        Self { host: Some(host), ..self }
    }

    /// With parts of the model elsewhere than in the devices' memory.
    #[must_use]
    pub fn with_offload(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    /// The host, if one was given.
    pub const fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// What does not live in the devices' memory.
    pub const fn offload(&self) -> Offload {
        self.offload
    }

    /// Bandwidth at which the first device reads the main memory: a share of that of its link, and no more than the memory has. `None` if
    /// nothing is known of a link.
    pub(crate) fn host_bandwidth(&self, efficiency: f64) -> Option<BytesPerSecond> {
        let link = self.system.device().host_link()?.bandwidth.value * efficiency;
        Some(self.host.as_ref().map_or(link, |host| link.min(host.device().bandwidth())))
    }

    /// Bandwidth at which what is streamed arrives; `None` if nothing is, or nothing is known of the link.
    pub(crate) fn stream_bandwidth(&self, efficiency: f64) -> Option<BytesPerSecond> {
        let Offload::Stream { from, .. } = self.offload else { return None };
        // Shared memory has no link: a disk is read right into it.
        let link = self.host_bandwidth(efficiency);
        match from {
            Store::Host => link,
            Store::Storage { bandwidth } => Some(link.map_or(bandwidth, |link| link.min(bandwidth))),
        }
    }

    /// What is supposed about the places of a divided model and the links between them, in sentences.
    pub(super) fn offload_assumptions(&self) -> Vec<String> {
        let mut assumptions = Vec::new();
        if self.is_divided() {
            for alone in self.places().iter().map(|place| self.at(place)) {
                assumptions.extend(alone.hardware_assumptions());
                assumptions.extend(alone.engine_assumptions());
            }
        }
        if self.offload != Offload::None {
            assumptions.extend(self.system.device().assumptions_among(|key| key == "links.host.bandwidth"));
        }
        if let Offload::Stream { .. } = self.offload {
            assumptions.push("what is streamed arrives before it is used: no overlap with arithmetic".into());
        }
        assumptions
    }

    /// Whether anything could be where it was asked to be.
    pub(super) fn check_offload(&self) -> Result<(), DeploymentError> {
        match self.offload {
            Offload::None => Ok(()),
            Offload::Layers { .. } => self.check_host("layers").map(|_| ()),
            Offload::Experts { .. } => {
                let architecture = self.check_host("experts")?;
                if architecture.has_experts() { Ok(()) } else { Err(DeploymentError::NoExpertsToOffload) }
            }
            Offload::Stream { weights, cache_share, from } => self.check_stream(weights, cache_share, from),
        }
    }

    /// The host's part runs beside one device at a time.
    fn check_host(&self, what: &'static str) -> Result<&Architecture, DeploymentError> {
        self.check_separate_memory()?;
        if self.host.is_none() {
            return Err(DeploymentError::NoHost { what });
        }
        let devices = self.devices_per_stage();
        if devices > 1 {
            return Err(DeploymentError::OffloadOfCutLayers { what, devices });
        }
        self.model.architecture().ok_or(DeploymentError::OffloadOfTotals { what })
    }

    fn check_stream(&self, weights: Bytes, cache_share: f64, from: Store) -> Result<(), DeploymentError> {
        let limit = self.largest_weights();
        if !(weights >= Bytes::ZERO && weights <= limit) {
            return Err(DeploymentError::StreamedWeights { weights, limit });
        }
        if !(0.0..=1.0).contains(&cache_share) {
            return Err(DeploymentError::StreamedCache { cache_share });
        }
        match from {
            Store::Host => {
                self.check_separate_memory()?;
                let device = self.system.device();
                device
                    .host_link()
                    .map(|_| ())
                    .ok_or_else(|| DeploymentError::NoHostLink { device: device.name().into() })
            }
            Store::Storage { bandwidth } if bandwidth > BytesPerSecond::ZERO && bandwidth.is_finite() => Ok(()),
            Store::Storage { bandwidth } => Err(DeploymentError::StorageBandwidth { bandwidth }),
        }
    }

    fn check_separate_memory(&self) -> Result<(), DeploymentError> {
        let shared = self.devices().find(|device| device.has_unified_memory());
        shared.map_or(Ok(()), |device| Err(DeploymentError::UnifiedMemory { device: device.name().into() }))
    }

    /// Weights of one device of the stage that has most.
    fn largest_weights(&self) -> Bytes {
        match &self.model.body {
            ModelBody::Architecture(_) => self.sharded().map_or(Bytes::ZERO, |sharded| sharded.weight_bytes()),
            ModelBody::Totals(totals) => totals.weight_bytes() / f64::from(self.devices_per_replica().max(1)),
        }
    }
}
