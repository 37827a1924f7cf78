//! The stages of a pipeline: which layers each holds, and whether embeddings and output head.

use super::Deployment;
use crate::model::Architecture;

/// One stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    /// How many layers of each kind it holds.
    pub kind_counts: Vec<u64>,
    /// Whether it holds the embeddings.
    pub is_first: bool,
    /// Whether it holds the output head.
    pub is_last: bool,
}

impl Deployment {
    /// Layers of the largest stage: `layers / stages`, rounded up, if they are equal; `None` if only the totals of the model are known.
    pub fn layers_per_stage(&self) -> Option<u64> {
        if self.is_divided() {
            return self.layers_of_stages().into_iter().max();
        }
        let layers = self.model().architecture()?.layers() as u64;
        Some(layers.div_ceil(u64::from(self.pipeline_parallel().max(1))))
    }

    /// Layers of each stage in order: equal shares, the rest one each from the last but one stage backwards, as the last has the output
    /// head and the first the embeddings. Unequal devices and a host have shares of their own
    /// ([`with_unequal_devices`](Self::with_unequal_devices), [`Offload`](super::Offload)). Empty if only the totals of the model are known.
    ///
    /// Source: vLLM, vllm/distributed/utils.py, `get_pp_indices`.
    ///
    /// ```
    /// # use llm_roofline::prelude::*;
    /// # let catalog = Catalog::embedded();
    /// # let system = System::new(catalog.device("h100-sxm-80gb")?, 3)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_tensor_parallel(1);
    /// assert_eq!(deployment.with_pipeline_parallel(3).layers_of_stages(), [11, 11, 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layers_of_stages(&self) -> Vec<u64> {
        let Some(model) = self.model().architecture() else { return Vec::new() };
        if self.is_divided() {
            return self.layers_on_devices(model);
        }
        stage_sizes(model.layers(), self.stage_count(model))
    }

    /// The stages of the pipeline.
    pub(crate) fn stages(&self, architecture: &Architecture) -> Vec<Stage> {
        let sizes = stage_sizes(architecture.layers(), self.stage_count(architecture));
        let last = sizes.len().saturating_sub(1);
        let mut layers = architecture.layer_order.iter();
        let stage = |(index, size): (usize, u64)| {
            let mut kind_counts = vec![0; architecture.layer_kinds.len()];
            layers.by_ref().take(size as usize).for_each(|&kind| kind_counts[kind] += 1);
            Stage { kind_counts, is_first: index == 0, is_last: index == last }
        };
        sizes.into_iter().enumerate().map(stage).collect()
    }

    /// A deployment that was not checked may ask for more stages than there are layers.
    fn stage_count(&self, architecture: &Architecture) -> usize {
        (self.pipeline_parallel() as usize).clamp(1, architecture.layers().max(1))
    }
}

fn stage_sizes(layers: usize, stages: usize) -> Vec<u64> {
    let (each, rest) = (layers / stages, layers % stages);
    let has_one_more = |stage: usize| stage + 1 < stages && stage + 1 + rest >= stages;
    (0..stages).map(|stage| (each + usize::from(has_one_more(stage))) as u64).collect()
}
