//! How a model is laid out over devices: tensor, pipeline, expert and data parallelism, replicas.
//!
//! One stage of a pipeline is `tensor_parallel * data_parallel_attention` devices. Attention, dense layers and embeddings are cut
//! `tensor_parallel` ways and held by each of the `data_parallel_attention` ranks, which have different sequences. The routed experts
//! are spread `expert_parallel` ways over the whole stage, and each of them is cut over the devices that remain.

use super::{Deployment, DeploymentError};
use crate::model::{Architecture, Mixer};

/// Degrees of parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    tensor: u32,
    pipeline: u32,
    expert: u32,
    data_attention: u32,
    replicas: u32,
}

impl Layout {
    pub(super) const fn tensor_parallel(degree: u32) -> Self {
        Self { tensor: degree, pipeline: 1, expert: 1, data_attention: 1, replicas: 1 }
    }

    /// The same without stages and replicas, and without spreading experts unless there are some.
    pub(super) const fn of_one_stage(self, has_experts: bool) -> Self {
        Self { pipeline: 1, replicas: 1, expert: if has_experts { self.expert } else { 1 }, ..self }
    }

    /// Whether a system of so many devices can hold it.
    pub(super) fn check(&self, devices: u32) -> Result<(), DeploymentError> {
        let Self { tensor, pipeline, expert, data_attention, replicas } = *self;
        if tensor == 0 {
            return Err(DeploymentError::NoDevices);
        }
        let others = [
            ("pipeline_parallel", pipeline),
            ("expert_parallel", expert),
            ("data_parallel_attention", data_attention),
            ("replicas", replicas),
        ];
        if let Some((key, _)) = others.into_iter().find(|(_, degree)| *degree == 0) {
            return Err(DeploymentError::NoDegree { key });
        }
        if tensor > devices {
            return Err(DeploymentError::NotEnoughDevices { tensor_parallel: tensor, devices });
        }
        let needed = product([tensor, pipeline, data_attention, replicas]);
        if needed > u64::from(devices) {
            return Err(DeploymentError::LayoutTooLarge {
                tensor_parallel: tensor,
                pipeline_parallel: pipeline,
                data_parallel_attention: data_attention,
                replicas,
                needed,
                devices,
            });
        }
        let group = product([tensor, data_attention]);
        if group % u64::from(expert) != 0 {
            return Err(DeploymentError::ExpertParallelDoesNotDivide { expert_parallel: expert, group });
        }
        Ok(())
    }

    /// Whether layers, heads and experts can be divided so.
    pub(super) fn check_architecture(&self, architecture: &Architecture) -> Result<(), DeploymentError> {
        let layers = architecture.layers() as u64;
        if u64::from(self.pipeline) > layers {
            return Err(DeploymentError::TooManyStages { pipeline_parallel: self.pipeline, layers });
        }
        self.check_experts(architecture)?;
        check_heads(architecture, self.tensor)
    }

    /// The same for a model known by its totals.
    pub(super) const fn check_totals(&self) -> Result<(), DeploymentError> {
        let expert_parallel = self.expert;
        if expert_parallel > 1 { Err(DeploymentError::NoExperts { expert_parallel }) } else { Ok(()) }
    }

    fn check_experts(&self, architecture: &Architecture) -> Result<(), DeploymentError> {
        let expert_parallel = self.expert;
        if expert_parallel == 1 {
            return Ok(());
        }
        let mut without = true;
        for kind in &architecture.layer_kinds {
            let Some(moe) = kind.layer.feed_forward.moe() else { continue };
            if u64::from(expert_parallel) > moe.experts {
                let (experts, layer) = (moe.experts, kind.name.clone());
                return Err(DeploymentError::TooFewExperts { expert_parallel, experts, layer });
            }
            without = false;
        }
        if without { Err(DeploymentError::NoExperts { expert_parallel }) } else { Ok(()) }
    }
}

impl Deployment {
    /// Every matrix cut so many ways (vLLM `--tensor-parallel-size`); at first as many as the system has devices.
    #[must_use]
    pub fn with_tensor_parallel(self, tensor_parallel: u32) -> Self {
        Self { layout: Layout { tensor: tensor_parallel, ..self.layout }, ..self }
    }

    /// The layers in so many consecutive stages on devices of their own (vLLM `--pipeline-parallel-size`); at first 1.
    #[must_use]
    pub fn with_pipeline_parallel(self, pipeline_parallel: u32) -> Self {
        Self { layout: Layout { pipeline: pipeline_parallel, ..self.layout }, ..self }
    }

    /// Whole experts spread so many ways over the devices of a stage (vLLM `--enable-expert-parallel`: as many as the stage has
    /// devices). At first 1: every expert is cut over all of them.
    #[must_use]
    pub fn with_expert_parallel(self, expert_parallel: u32) -> Self {
        Self { layout: Layout { expert: expert_parallel, ..self.layout }, ..self }
    }

    /// So many ranks that each hold attention and dense layers and serve a share of the sequences, while the experts are spread over
    /// all (vLLM `--data-parallel-size`, SGLang `--enable-dp-attention`); at first 1.
    #[must_use]
    pub fn with_data_parallel_attention(self, data_parallel_attention: u32) -> Self {
        Self { layout: Layout { data_attention: data_parallel_attention, ..self.layout }, ..self }
    }

    /// So many copies of everything that share nothing but the requests; at first 1.
    #[must_use]
    pub fn with_replicas(self, replicas: u32) -> Self {
        Self { layout: Layout { replicas, ..self.layout }, ..self }
    }

    /// Ways in which every matrix is cut.
    pub const fn tensor_parallel(&self) -> u32 {
        self.layout.tensor
    }

    /// Stages of the pipeline.
    pub const fn pipeline_parallel(&self) -> u32 {
        self.layout.pipeline
    }

    /// Ways in which whole experts are spread.
    pub const fn expert_parallel(&self) -> u32 {
        self.layout.expert
    }

    /// Ranks of data-parallel attention.
    pub const fn data_parallel_attention(&self) -> u32 {
        self.layout.data_attention
    }

    /// Copies of everything.
    pub const fn replicas(&self) -> u32 {
        self.layout.replicas
    }

    /// Devices of one stage: `tensor_parallel * data_parallel_attention`. The experts of a layer are on these.
    pub fn devices_per_stage(&self) -> u32 {
        self.layout.tensor.saturating_mul(self.layout.data_attention)
    }

    /// Devices of one replica: those of all its stages.
    pub fn devices_per_replica(&self) -> u32 {
        self.devices_per_stage().saturating_mul(self.layout.pipeline)
    }

    /// Devices of all replicas.
    pub fn devices_used(&self) -> u32 {
        self.devices_per_replica().saturating_mul(self.layout.replicas)
    }

    /// How many devices share one routed expert: `devices_per_stage / expert_parallel`.
    pub(crate) fn expert_slices(&self) -> u64 {
        u64::from((self.devices_per_stage() / self.layout.expert.max(1)).max(1))
    }
}

fn product(degrees: impl IntoIterator<Item = u32>) -> u64 {
    degrees.into_iter().fold(1, |product: u64, degree| product.saturating_mul(degree.into()))
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
