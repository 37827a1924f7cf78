//! Why a deployment cannot be.

use crate::model::ModelError;
use crate::profile::ProfileError;
use crate::units::{Bytes, BytesPerSecond};

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
    /// Another degree of zero.
    #[error("{key} is 0, expected at least 1")]
    NoDegree {
        /// Which degree.
        key: &'static str,
    },
    /// More devices in the group than in the system.
    #[error("tensor parallelism {tensor_parallel} on a system of {devices} devices")]
    NotEnoughDevices {
        /// Degree of tensor parallelism.
        tensor_parallel: u32,
        /// Devices of the system.
        devices: u32,
    },
    /// Stages, ranks and replicas need more devices than the system has.
    #[error(
        "tensor parallelism {tensor_parallel} x pipeline parallelism {pipeline_parallel} x data-parallel attention \
         {data_parallel_attention} x {replicas} replica(s) is {needed} devices, the system has {devices}"
    )]
    LayoutTooLarge {
        /// Degree of tensor parallelism.
        tensor_parallel: u32,
        /// Stages of the pipeline.
        pipeline_parallel: u32,
        /// Ranks of data-parallel attention.
        data_parallel_attention: u32,
        /// Replicas.
        replicas: u32,
        /// Devices needed.
        needed: u64,
        /// Devices of the system.
        devices: u32,
    },
    /// A stage would have no layer.
    #[error("pipeline parallelism {pipeline_parallel} for {layers} layers, expected at most one stage per layer")]
    TooManyStages {
        /// Stages of the pipeline.
        pipeline_parallel: u32,
        /// Layers of the model.
        layers: u64,
    },
    /// Expert parallelism of a model without experts.
    #[error("expert parallelism {expert_parallel} for a model without known experts, expected 1")]
    NoExperts {
        /// Degree of expert parallelism.
        expert_parallel: u32,
    },
    /// Experts cannot be spread evenly over the devices of a stage.
    #[error(
        "expert parallelism {expert_parallel} does not divide the {group} devices of a stage (tensor parallelism x data-parallel \
         attention): use a divisor of {group}"
    )]
    ExpertParallelDoesNotDivide {
        /// Degree of expert parallelism.
        expert_parallel: u32,
        /// Devices of a stage.
        group: u64,
    },
    /// A device would have no expert.
    #[error(
        "expert parallelism {expert_parallel} for the {experts} experts of layer kind `{layer}`, expected at most {experts}"
    )]
    TooFewExperts {
        /// Degree of expert parallelism.
        expert_parallel: u32,
        /// Experts of a layer.
        experts: u64,
        /// Layer kind.
        layer: String,
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
    /// Parts of the model on a host that is not there.
    #[error("{what} on the host, but no host: name its processor with `Deployment::with_host`")]
    NoHost {
        /// What should live there.
        what: &'static str,
    },
    /// The device's memory is the host's.
    #[error(
        "{device} shares its memory with the host: moving parts of the model there frees nothing; what the device may use of the memory is a \
         setting of the driver, and only a disk (`Store::Storage`) can hold more"
    )]
    UnifiedMemory {
        /// The device.
        device: String,
    },
    /// Layers or experts on the host while the others are cut over several devices.
    #[error("{what} on the host with layers cut over {devices} devices, expected pipeline stages of 1 device")]
    OffloadOfCutLayers {
        /// What should live on the host.
        what: &'static str,
        /// Devices of a stage.
        devices: u32,
    },
    /// Layers of a model whose layers are not known.
    #[error("{what} of a model known by its totals cannot be placed, expected an architecture")]
    OffloadOfTotals {
        /// What should be placed.
        what: &'static str,
    },
    /// Experts of a dense model.
    #[error("experts on the host for a model without experts: offload layers instead (`Offload::Layers`)")]
    NoExpertsToOffload,
    /// More weights streamed than there are, or fewer than none.
    #[error("{weights} of weights streamed to each device, expected 0 to the {limit} that it would hold")]
    StreamedWeights {
        /// Weights streamed.
        weights: Bytes,
        /// Weights of a device.
        limit: Bytes,
    },
    /// Not a share.
    #[error("a share of {cache_share} of the cache streamed, expected 0 to 1")]
    StreamedCache {
        /// The share.
        cache_share: f64,
    },
    /// Nothing is known of how the device reads the main memory.
    #[error("{device} has no known link to the host, expected one in its profile (`links.host`)")]
    NoHostLink {
        /// The device.
        device: String,
    },
    /// A disk that reads nothing.
    #[error("storage bandwidth is {bandwidth}, expected a positive finite one")]
    StorageBandwidth {
        /// The bandwidth.
        bandwidth: BytesPerSecond,
    },
    /// Unequal devices that are not one pipeline.
    #[error(
        "{found} unequal device(s) for {stages} stage(s) of {per_stage} device(s), expected one device per stage: matrices are not cut over \
         unequal devices"
    )]
    UnequalLayout {
        /// Devices given.
        found: usize,
        /// Stages of the pipeline.
        stages: u32,
        /// Devices of a stage.
        per_stage: u32,
    },
    /// Proportions that do not say how to split.
    #[error(
        "layers split in proportions {split:?} over {devices} device(s), expected one per device, none negative, one positive"
    )]
    LayerSplit {
        /// The proportions.
        split: Vec<f64>,
        /// Devices.
        devices: usize,
    },
}
