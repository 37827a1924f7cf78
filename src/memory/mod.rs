//! What fits: weights, cache and state of each device against its memory.

use crate::deployment::Deployment;
use crate::model::{Architecture, ModelBody, Reach, Split};
use crate::units::Bytes;

/// What each device must hold for a number of sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryPlan {
    /// Weights of one device.
    pub weights: Bytes,
    /// Key-value cache of one device.
    pub kv_cache: Bytes,
    /// Recurrent state of one device.
    pub state: Bytes,
    /// Memory of one device that the engine may use.
    pub capacity: Bytes,
}

/// The deployment needs more memory than its devices have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "does not fit: each of {devices} device(s) needs {needed} but has {}, short by {short_by}; the largest part are the {largest} ({})",
    .plan.capacity, .plan.part(.largest)
)]
pub struct DoesNotFit {
    /// Devices of the tensor-parallel group.
    pub devices: u32,
    /// Needed on each device.
    pub needed: Bytes,
    /// Missing on each device.
    pub short_by: Bytes,
    /// The largest part of the need.
    pub largest: MemoryPart,
    /// The parts.
    pub plan: MemoryPlan,
}

/// A part of the memory need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryPart {
    /// Weights.
    Weights,
    /// Key-value cache.
    KvCache,
    /// Recurrent state.
    State,
}

impl std::fmt::Display for MemoryPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Weights => "weights",
            Self::KvCache => "cached keys and values",
            Self::State => "recurrent states",
        })
    }
}

impl MemoryPlan {
    /// Everything together.
    pub fn needed(&self) -> Bytes {
        self.weights + self.kv_cache + self.state
    }

    /// One part.
    pub const fn part(&self, part: &MemoryPart) -> Bytes {
        match part {
            MemoryPart::Weights => self.weights,
            MemoryPart::KvCache => self.kv_cache,
            MemoryPart::State => self.state,
        }
    }

    /// The plan itself if it fits.
    ///
    /// # Errors
    /// [`DoesNotFit`] with the shortfall of each device.
    pub fn checked(self, devices: u32) -> Result<Self, DoesNotFit> {
        let needed = self.needed();
        if needed <= self.capacity {
            return Ok(self);
        }
        let mut largest = MemoryPart::Weights;
        for part in [MemoryPart::KvCache, MemoryPart::State] {
            if self.part(&part) > self.part(&largest) {
                largest = part;
            }
        }
        Err(DoesNotFit { devices, needed, short_by: needed - self.capacity, largest, plan: self })
    }
}

/// Memory need of a deployment as coefficients: compiled once, evaluated for any batch and context without allocation.
///
/// It is that of one device of the busiest stage. Where no stage of a pipeline has most of everything (embeddings here, one layer more
/// there), the largest weights and the largest cache are taken together, an upper bound. Sequences are spread evenly over the
/// ranks of data-parallel attention, and those of other replicas are not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryModel {
    weights: Bytes,
    /// Bytes per kept cache entry on one device, by how far back entries are kept.
    cache: Vec<(Reach, Bytes)>,
    state_per_sequence: Bytes,
    capacity: Bytes,
    /// Ranks that sequences are spread over.
    data_parallel: u64,
}

impl MemoryModel {
    /// The memory need of a deployment.
    pub fn new(deployment: &Deployment) -> Self {
        Self::with_weights(deployment, deployment.weight_bytes_per_device())
    }

    /// The same with the weight bytes known already.
    pub(crate) fn with_weights(deployment: &Deployment, weights: Bytes) -> Self {
        let fraction = deployment.engine().scheduling.memory_fraction.as_ref().map_or(1.0, |fraction| fraction.value);
        let tp = u64::from(deployment.tensor_parallel());
        let (cache, state_elements) = match &deployment.model().body {
            ModelBody::Architecture(architecture) => {
                (cache_entries(deployment, architecture), largest_state(deployment, architecture))
            }
            ModelBody::Totals(totals) => {
                (vec![(Reach::Full, totals.kv_bytes_per_token / deployment.totals_shares())], 0)
            }
        };
        Self {
            weights,
            cache,
            state_per_sequence: Bytes::from_bytes(state_elements as f64 * STATE_BITS / 8.0 / tp as f64),
            capacity: deployment.system().device().usable_memory() * fraction,
            data_parallel: u64::from(deployment.data_parallel_attention().max(1)),
        }
    }

    /// Bytes of weights on one device, replicated parts included.
    pub const fn weights(&self) -> Bytes {
        self.weights
    }

    /// Bytes of key-value cache on one device for one sequence of `context` tokens; windows keep only what they reach, and key-value
    /// heads are replicated where there are fewer than devices.
    pub fn kv_per_sequence(&self, context: u64) -> Bytes {
        self.cache.iter().map(|(reach, per_entry)| *per_entry * reach.kept(context)).sum()
    }

    /// Bytes of recurrent state on one device for one sequence.
    pub const fn state_per_sequence(&self) -> Bytes {
        self.state_per_sequence
    }

    /// What each device must hold for `sequences` of `context` tokens in one replica.
    pub fn plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        let sequences = sequences.div_ceil(self.data_parallel);
        MemoryPlan {
            weights: self.weights,
            kv_cache: self.kv_per_sequence(context) * sequences as f64,
            state: self.state_per_sequence * sequences as f64,
            capacity: self.capacity,
        }
    }
}

/// Bytes per kept entry in the stage that keeps most.
fn cache_entries(deployment: &Deployment, architecture: &Architecture) -> Vec<(Reach, Bytes)> {
    let mut largest: Vec<(Reach, Bytes)> = Vec::new();
    for stage in deployment.stages(architecture) {
        for (reach, bytes) in stage_cache(deployment, architecture, &stage.kind_counts) {
            match largest.iter_mut().find(|(known, _)| *known == reach) {
                Some((_, most)) => *most = most.max(bytes),
                None => largest.push((reach, bytes)),
            }
        }
    }
    largest
}

fn stage_cache(deployment: &Deployment, architecture: &Architecture, kind_counts: &[u64]) -> Vec<(Reach, Bytes)> {
    let tp = u64::from(deployment.tensor_parallel());
    let mut cache: Vec<(Reach, Bytes)> = Vec::new();
    for (kind, &count) in architecture.layer_kinds.iter().zip(kind_counts) {
        for pass in kind.layer.kept_passes() {
            let bits = deployment.cache_bits(&kind.layer, &pass) * pass.elements_per_entry as f64;
            let share = Split::KvHeads(pass.kv_heads).share(tp);
            let bytes = Bytes::from_bytes(bits * share / 8.0 * count as f64);
            match cache.iter_mut().find(|(known, _)| *known == pass.reach) {
                Some((_, sum)) => *sum += bytes,
                None => cache.push((pass.reach, bytes)),
            }
        }
    }
    cache
}

/// Recurrent state elements of a sequence in the stage that has most.
fn largest_state(deployment: &Deployment, architecture: &Architecture) -> u64 {
    let kinds = &architecture.layer_kinds;
    let of_stage =
        |counts: &[u64]| kinds.iter().zip(counts).map(|(kind, count)| kind.layer.state_elements() * count).sum();
    deployment.stages(architecture).iter().map(|stage| of_stage(&stage.kind_counts)).max().unwrap_or(0)
}

impl Deployment {
    /// Bytes of weights on one device of the stage that has most, replicated parts included.
    pub fn weight_bytes_per_device(&self) -> Bytes {
        self.weight_bytes_of_stages().into_iter().fold(Bytes::ZERO, Bytes::max)
    }

    /// Bytes of weights on one device of each stage of the pipeline, in order. The first stage has the embeddings, the last the
    /// output head; a table that is both is in both.
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
                vec![totals.weight_bytes() / self.totals_shares(); stages as usize]
            }
        }
    }

    /// Devices over which a model known by its totals is divided evenly.
    fn totals_shares(&self) -> f64 {
        f64::from(self.tensor_parallel()) * f64::from(self.pipeline_parallel().max(1))
    }

    /// What each device must hold for `sequences` of `context` tokens in one replica.
    pub fn memory_plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        MemoryModel::new(self).plan(sequences, context)
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
        let one = self.memory_plan(1, context);
        let (each, room) = (one.kv_cache + one.state, one.capacity - one.weights);
        if room < Bytes::ZERO {
            return Some(0);
        }
        let per_rank = (each > Bytes::ZERO).then(|| (room / each).floor() as u64);
        per_rank.map(|sequences| sequences.saturating_mul(u64::from(self.data_parallel_attention())))
    }

    /// The longest context at which `sequences` sequences fit beside the weights, whatever context the model is made for; `None` if
    /// memory does not limit it (windows and recurrent states need no more for longer contexts).
    ///
    /// For one sequence of a model with full attention this is the number of tokens that vLLM prints as KV cache size.
    pub fn max_context_tokens(&self, sequences: u64) -> Option<u64> {
        let memory = MemoryModel::new(self);
        let fits = |context| {
            let plan = memory.plan(sequences, context);
            plan.needed() <= plan.capacity
        };
        let (mut most, mut too_many) = (0, CONTEXT_LIMIT);
        if fits(too_many) {
            return None;
        }
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            if fits(middle) { most = middle } else { too_many = middle }
        }
        Some(most)
    }
}

/// Recurrent states are kept in the model's 16 bits.
pub(crate) const STATE_BITS: f64 = 16.0;
/// Contexts beyond this are never asked for.
const CONTEXT_LIMIT: u64 = 1 << 40;
