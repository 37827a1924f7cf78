//! What would make a deployment fit: changes that were tried.

use super::{DoesNotFit, MemoryModel, MemoryPlan};
use crate::deployment::{Deployment, Offload};
use crate::format::{KvFormat, WeightFormat};
use std::fmt;

/// A change to a deployment or to what is asked of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A larger share of memory for the engine.
    MemoryFraction(f64),
    /// Smaller steps, whose activations take less.
    TokensPerStep(u64),
    /// A cache in fewer bits.
    Kv(KvFormat),
    /// Fewer sequences at once.
    Sequences(u64),
    /// Shorter contexts.
    Context(u64),
    /// Weights in fewer bits.
    Weights(WeightFormat),
    /// More devices of the same kind.
    Devices {
        /// Devices over which every matrix is cut.
        tensor_parallel: u32,
        /// Stages of the pipeline.
        pipeline_parallel: u32,
    },
    /// Layers, or experts, on the host.
    Offload(Offload),
}

/// A change with which the deployment fits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Suggestion {
    /// The change.
    pub change: Change,
    /// The plan with it, where it is tightest.
    pub plan: MemoryPlan,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryFraction(fraction) => write!(f, "with a memory fraction of {fraction:.2}"),
            Self::TokensPerStep(tokens) => write!(f, "in steps of {tokens} tokens"),
            Self::Kv(format) => write!(f, "with the cache in {format}"),
            Self::Sequences(1) => write!(f, "with 1 sequence at a time"),
            Self::Sequences(sequences) => write!(f, "with {sequences} sequences at a time"),
            Self::Context(tokens) => write!(f, "with contexts of {tokens} tokens"),
            Self::Weights(format) => write!(f, "with weights in {format}"),
            Self::Devices { tensor_parallel, pipeline_parallel: 1 } => {
                write!(f, "on {tensor_parallel} devices with tensor parallelism")
            }
            Self::Devices { tensor_parallel: 1, pipeline_parallel } => {
                write!(f, "on {pipeline_parallel} devices, each with a part of the layers")
            }
            Self::Devices { tensor_parallel, pipeline_parallel } => {
                write!(f, "on {pipeline_parallel} stages of {tensor_parallel} devices")
            }
            Self::Offload(Offload::Layers { on_device }) => {
                write!(f, "with {on_device} layers on the devices and the rest on the host")
            }
            Self::Offload(Offload::Experts { layers }) => {
                write!(f, "with the experts of the first {layers} layers on the host")
            }
            Self::Offload(_) => write!(f, "with weights that are streamed"),
        }
    }
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = 100.0 * self.plan.utilization();
        write!(f, "{} ({used:.0} % of the memory it may use)", self.change)
    }
}

impl Change {
    /// The deployment, the sequences and their context after the change.
    pub fn apply(&self, deployment: &Deployment, sequences: u64, context: u64) -> (Deployment, u64, u64) {
        let same = deployment.clone();
        let changed = match self {
            Self::MemoryFraction(fraction) => same.with_memory_fraction(*fraction),
            Self::TokensPerStep(tokens) => same.with_max_tokens_per_step(*tokens),
            Self::Kv(format) => same.with_kv(*format),
            Self::Sequences(fewer) => return (same, *fewer, context),
            Self::Context(shorter) => return (same, sequences, *shorter),
            Self::Weights(format) => same.with_weights(format.clone()),
            Self::Devices { tensor_parallel, pipeline_parallel } => {
                let (tensor, pipeline) = (*tensor_parallel, *pipeline_parallel);
                let devices = tensor.saturating_mul(pipeline).max(1);
                let alone = same.clone().with_expert_parallel(1).with_data_parallel_attention(1).with_replicas(1);
                match same.system().clone().with_count(devices) {
                    Ok(system) => {
                        alone.with_system(system).with_tensor_parallel(tensor).with_pipeline_parallel(pipeline)
                    }
                    Err(_) => same,
                }
            }
            Self::Offload(offload) => same.with_offload(*offload),
        };
        (changed, sequences, context)
    }
}

impl DoesNotFit {
    /// With every change to the deployment that was found to help, the least intrusive first. They are tried without a drafter.
    #[must_use]
    pub fn with_suggestions(mut self: Box<Self>, deployment: &Deployment, sequences: u64, context: u64) -> Box<Self> {
        self.suggestions = suggestions(deployment, sequences, context);
        self
    }
}

/// Engines are not asked to fill more than this share of the visible memory.
const FULLEST: f64 = 0.95;
/// More devices than this are not suggested.
const MOST_DEVICES: u32 = 64;
/// Steps of fewer tokens are not suggested.
const SMALLEST_STEP: u64 = 512;

/// Of each kind of change the smallest that helps, with its plan.
fn suggestions(deployment: &Deployment, sequences: u64, context: u64) -> Vec<Suggestion> {
    // Where nothing else keeps memory free, it should not be filled to the brim.
    let fullest = if is_local(deployment) { FULLEST } else { 1.0 };
    let with_room = |memory: &MemoryModel| memory.fits_within(fullest, sequences, context);
    let tried = |change: Change| {
        let (changed, sequences, context) = change.apply(deployment, sequences, context);
        let memory = changed.check().is_ok().then(|| MemoryModel::new(&changed))?;
        // Asked for the most that fits, an engine gets no room.
        let limit = if matches!(change, Change::Sequences(_) | Change::Context(_)) { 1.0 } else { fullest };
        let plan = memory.fits_within(limit, sequences, context).then(|| memory.plan(sequences, context))?;
        Some(Suggestion { change, plan })
    };
    let memory = MemoryModel::new(deployment);
    let fewer = memory.max_sequences(context).filter(|most| (1..sequences).contains(most)).map(Change::Sequences);
    let shorter = memory.max_context_tokens(sequences).filter(|most| (1..context).contains(most)).map(Change::Context);
    let fewest = deployment.fewest_devices(MOST_DEVICES, with_room).map(|fewest| Change::Devices {
        tensor_parallel: fewest.tensor_parallel(),
        pipeline_parallel: fewest.pipeline_parallel(),
    });
    let kinds = [
        larger_fractions(deployment),
        smaller_steps(deployment),
        smaller_caches(deployment),
        fewer.into_iter().collect(),
        shorter.into_iter().collect(),
        smaller_weights(deployment),
        offloads(deployment),
        fewest.into_iter().collect(),
    ];
    kinds.into_iter().filter_map(|changes| changes.into_iter().find_map(tried)).collect()
}

/// Shares above the engine's own, for engines that take one of all memory.
fn larger_fractions(deployment: &Deployment) -> Vec<Change> {
    let rules = &deployment.engine().memory;
    let now = match &rules.fraction {
        _ if rules.reserve.is_some() => return Vec::new(),
        Some(fraction) => fraction.on(deployment.system().device()),
        None => return Vec::new(),
    };
    let hundredths = (now * 100.0).floor() as u32 + 1..=(FULLEST * 100.0) as u32;
    hundredths.map(|hundredth| Change::MemoryFraction(f64::from(hundredth) / 100.0)).collect()
}

/// Steps of half as many tokens, and so on.
fn smaller_steps(deployment: &Deployment) -> Vec<Change> {
    if deployment.engine().memory.is_empty() {
        return Vec::new();
    }
    let halves = std::iter::successors(Some(deployment.memory_step_tokens() / 2), |tokens| Some(tokens / 2));
    halves.take_while(|tokens| *tokens >= SMALLEST_STEP).map(Change::TokensPerStep).collect()
}

/// Formats of the cache with fewer bits than now, that such engines have.
pub(crate) fn smaller_caches(deployment: &Deployment) -> Vec<Change> {
    let formats: &[KvFormat] = match is_local(deployment) {
        true => &[KvFormat::Q8_0, KvFormat::Q4_0],
        false => &[KvFormat::Fp8],
    };
    let now = deployment.kv().bits_per_element(128);
    formats.iter().filter(|format| format.bits_per_element(128) < now).map(|format| Change::Kv(*format)).collect()
}

/// Formats of the weights with fewer bits than now, from large to small.
pub(crate) fn smaller_weights(deployment: &Deployment) -> Vec<Change> {
    let names: &[&str] = match deployment.weights() {
        WeightFormat::Mlx { .. } => &["mlx-int8", "mlx-int6", "mlx-int4", "mlx-int3"],
        WeightFormat::Exl2 { .. } => &["exl2-6bpw", "exl2-5bpw", "exl2-4bpw", "exl2-3bpw"],
        _ if is_local(deployment) => {
            &["q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xxs", "q2_k", "iq2_xxs"]
        }
        _ => &["fp8", "awq-int4"],
    };
    let bytes = deployment.weight_bytes_per_device();
    let formats = names.iter().filter_map(|name| name.parse::<WeightFormat>().ok());
    let smaller =
        formats.filter(|format| deployment.clone().with_weights(format.clone()).weight_bytes_per_device() < bytes);
    smaller.map(Change::Weights).collect()
}

/// Experts, then layers, on the host, as few as possible.
fn offloads(deployment: &Deployment) -> Vec<Change> {
    let (Some(_), Some(architecture)) = (deployment.host(), deployment.model().architecture()) else {
        return Vec::new();
    };
    let layers = architecture.layers() as u64;
    let experts = (1..=layers).map(|layers| Offload::Experts { layers }).filter(|_| architecture.has_experts());
    let whole = (0..=layers).rev().map(|on_device| Offload::Layers { on_device });
    experts.chain(whole).map(Change::Offload).collect()
}

/// Whether the formats of llama.cpp are the engine's.
fn is_local(deployment: &Deployment) -> bool {
    matches!(deployment.weights(), WeightFormat::Gguf(_)) || deployment.engine().memory.allocates_as_needed()
}
