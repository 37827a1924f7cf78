//! Why a deployment cannot be.

use crate::model::ModelError;
use crate::profile::ProfileError;

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
}
