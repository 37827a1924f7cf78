//! The inverse questions: how long a context, how many sequences, how few devices.

use super::pool::{LIMIT, largest};
use super::{DoesNotFit, KvPool, MemoryModel, MemoryPlan};
use crate::deployment::Deployment;
use crate::model::ModelBody;
use crate::units::Bytes;

impl MemoryModel {
    /// The longest context at which `sequences` sequences fit; `None` if memory does not limit it (windows and recurrent states need no more for
    /// longer contexts).
    pub fn max_context_tokens(&self, sequences: u64) -> Option<u64> {
        // Engines that process whole prompts up to some length need less memory just beyond it: what is longer may fit again.
        if let Some(limit) = self.drops_after().filter(|limit| self.fits(sequences, limit + 1)) {
            return finite(largest(|context| context <= limit || self.fits(sequences, context)));
        }
        let drop = self.drops_after().unwrap_or(LIMIT);
        finite(largest(|context| context <= drop && self.fits(sequences, context)))
    }

    /// How many sequences of `context` tokens fit; 0 if not even one does, `None` if memory does not limit them.
    pub fn max_sequences(&self, context: u64) -> Option<u64> {
        finite(largest(|sequences| self.fits(sequences, context)))
    }
}

fn finite(number: u64) -> Option<u64> {
    (number < LIMIT).then_some(number)
}

impl Deployment {
    /// Bytes of weights on one device of the stage that has most, replicated parts included.
    pub fn weight_bytes_per_device(&self) -> Bytes {
        self.weight_bytes_of_stages().into_iter().fold(Bytes::ZERO, Bytes::max)
    }

    /// Bytes of weights on one device of each stage of the pipeline, in order. The first stage has the embeddings, the last the
    /// output head; a table that is both is in both. What engines add when they load them is in [`MemoryPlan::weights`].
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 3)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_tensor_parallel(1);
    /// let stages = deployment.with_pipeline_parallel(3).weight_bytes_of_stages();
    /// assert_eq!(stages.iter().map(|bytes| bytes.to_string()).collect::<Vec<_>>(), ["5.85 GB", "4.80 GB", "5.41 GB"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weight_bytes_of_stages(&self) -> Vec<Bytes> {
        match &self.model().body {
            ModelBody::Architecture(_) => {
                self.sharded().map_or_else(Vec::new, |sharded| sharded.weight_bytes_of_stages().collect())
            }
            ModelBody::Totals(totals) => {
                // A deployment that was not checked may ask for more stages than there are devices.
                let stages = self.pipeline_parallel().clamp(1, self.system().count());
                let shares = f64::from(self.tensor_parallel()) * f64::from(self.pipeline_parallel().max(1));
                vec![totals.weight_bytes() / shares; stages as usize]
            }
        }
    }

    /// What each device must hold for `sequences` of `context` tokens in one replica, where it is tightest.
    pub fn memory_plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        MemoryModel::new(self).plan(sequences, context)
    }

    /// The plan if `sequences` of `context` tokens fit.
    ///
    /// # Errors
    /// [`DoesNotFit`] with what is missing where, and suggestions, each of which was tried.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("rtx-4090-24gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-70b")?, system).with_weights("q4_k_m".parse()?);
    /// let reason = deployment.fit(1, 8192).unwrap_err();
    /// assert_eq!(reason.largest.to_string(), "weights");
    /// let suggestion = &reason.suggestions[0];
    /// let (changed, sequences, context) = suggestion.change.apply(&deployment, 1, 8192);
    /// assert!(changed.fit(sequences, context).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fit(&self, sequences: u64, context: u64) -> Result<MemoryPlan, Box<DoesNotFit>> {
        let checked = MemoryModel::new(self).check(sequences, context);
        checked.map_err(|reason| reason.with_suggestions(self, sequences, context))
    }

    /// The key-value cache as the engine prints it when it starts, for sequences of up to `longest_context` tokens (vLLM
    /// `--max-model-len`).
    pub fn kv_pool(&self, longest_context: u64) -> KvPool {
        MemoryModel::new(self).kv_pool(longest_context)
    }

    /// How many sequences of `context` tokens fit beside the weights of one replica; 0 if not even one does, `None` if memory does not limit them.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// // 10 GB beside the weights of Llama-2-7B, 512 KiB of cache per token: four sequences of 4,096 tokens.
    /// let model = Model::from_totals("7B", Totals::dense(7_000_000_000, 16.0, Bytes::from_kib(512.0)));
    /// let (bandwidth, peak) = (BytesPerSecond::from_gb_per_second(600.0), FlopsPerSecond::from_tflops_per_second(125.0));
    /// let a10 = Device::from_specs("A10", Bytes::from_gb(24.0), bandwidth, peak)?;
    /// let deployment = Deployment::new(model, System::new(a10, 1)?);
    /// assert_eq!(deployment.max_sequences(4096), Some(4));
    /// assert_eq!(deployment.max_context_tokens(1), Some(19073));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_sequences(&self, context: u64) -> Option<u64> {
        MemoryModel::new(self).max_sequences(context)
    }

    /// The longest context at which `sequences` sequences fit beside the weights, whatever context the model is made for; `None` if
    /// memory does not limit it (windows and recurrent states need no more for longer contexts).
    pub fn max_context_tokens(&self, sequences: u64) -> Option<u64> {
        MemoryModel::new(self).max_context_tokens(sequences)
    }

    /// The same deployment on as few devices of the same kind as hold `sequences` of `context` tokens, at most `limit`; `None` if that many are not
    /// enough.
    ///
    /// Engines that allocate as needed (llama.cpp) split layers over any number of devices. Others run on 1, 2, 4, 8 devices of a node or on whole
    /// nodes: every matrix is cut over the devices of a node as far as its heads allow, and stages of a pipeline are added beyond.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-405b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let fewest = deployment.with_weights("fp8".parse()?).with_fewest_devices(1, 8192, 64).expect("64 are enough");
    /// assert_eq!((fewest.tensor_parallel(), fewest.devices_used()), (8, 8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_fewest_devices(&self, sequences: u64, context: u64, limit: u32) -> Option<Self> {
        self.fewest_devices(limit, |memory| memory.fits(sequences, context))
    }

    /// The same with another idea of what fits.
    pub(super) fn fewest_devices(&self, limit: u32, fits: impl Fn(&MemoryModel) -> bool) -> Option<Self> {
        (1..=limit)
            .flat_map(|devices| self.layouts_over(devices))
            .find(|candidate| candidate.check().is_ok() && fits(&MemoryModel::new(candidate)))
    }

    /// The ways in which the engine would use so many devices, the usual one first.
    fn layouts_over(&self, devices: u32) -> Vec<Self> {
        let splits_layers = self.engine().memory.allocates_as_needed();
        let Ok(system) = self.system().clone().with_count(devices) else { return Vec::new() };
        let per_node = self.system().devices_per_node().min(devices);
        let usual = devices.is_power_of_two() || devices.is_multiple_of(self.system().devices_per_node());
        let base = self.clone().with_system(system).with_expert_parallel(1).with_data_parallel_attention(1);
        let base = base.with_replicas(1);
        let tensor = |degree: u32| base.clone().with_tensor_parallel(degree).with_pipeline_parallel(devices / degree);
        match splits_layers {
            true => vec![tensor(1)],
            false if !usual => Vec::new(),
            false => (1..=per_node).rev().filter(|degree| devices.is_multiple_of(*degree)).map(tensor).collect(),
        }
    }
}
