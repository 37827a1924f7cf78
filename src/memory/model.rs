//! The memory need of a deployment as coefficients.

use super::activations::Activations;
use super::cache::{Cache, Need};
use super::pool::KvPool;
use super::{DoesNotFit, Location, MemoryPlan, Shortage};
use crate::deployment::{Deployment, Offload, Place, ShardedModel};
use crate::engine::{Budget, ByDevice, MemoryRules};
use crate::format::WeightFormat;
use crate::hardware::Device;
use crate::model::{Architecture, Mixer, ModelBody, Totals};
use crate::profile::Sourced;
use crate::units::Bytes;

/// Memory need of a deployment as coefficients: compiled once, evaluated for any batch and context without allocation.
///
/// Every stage of a pipeline, and the host if parts of the model live there, is accounted for by itself: memories are never summed up.
/// Sequences are spread evenly over the ranks of data-parallel attention; those of other replicas are not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryModel {
    /// Never empty.
    places: Vec<PlaceMemory>,
    devices: u32,
    /// Ranks that sequences are spread over.
    data_parallel: u64,
}

/// One place: equal devices that hold the same share of the same layers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaceMemory {
    pub(super) location: Location,
    weights: Bytes,
    overhead: Bytes,
    graphs: Bytes,
    pub(super) activations: Activations,
    pub(super) cache: Cache,
    /// Share of the cache that is here; the rest is streamed.
    cache_share: f64,
    visible: Bytes,
    budget: Budget,
    fraction: f64,
    reserve: Option<Bytes>,
}

impl MemoryModel {
    /// The memory need of a deployment.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::memory::MemoryModel;
    ///
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("rtx-3090-24gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system);
    /// let plan = MemoryModel::new(&deployment).plan(4, 8192);
    /// assert_eq!(format!("{:.2} + {:.2} GiB", plan.weights.as_gib(), plan.kv_cache.as_gib()), "14.96 + 4.00 GiB");
    /// assert!(plan.fits());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(deployment: &Deployment) -> Self {
        Self::of_parts(deployment, deployment.sharded().as_ref())
    }

    /// The same with the model taken apart already.
    pub(crate) fn of_parts(deployment: &Deployment, sharded: Option<&ShardedModel<'_>>) -> Self {
        let places = match (&deployment.model().body, sharded) {
            (ModelBody::Architecture(architecture), Some(sharded)) => {
                of_architecture(deployment, architecture, sharded)
            }
            (ModelBody::Architecture(_), None) => Vec::new(),
            (ModelBody::Totals(totals), _) => vec![PlaceMemory::of_totals(deployment, totals)],
        };
        Self {
            places,
            devices: deployment.devices_per_replica(),
            data_parallel: u64::from(deployment.data_parallel_attention().max(1)),
        }
    }

    /// Bytes of weights on one device of the stage that has most, replicated parts included.
    pub fn weights(&self) -> Bytes {
        self.on_devices().map(|place| place.weights).fold(Bytes::ZERO, Bytes::max)
    }

    /// Bytes of key-value cache for one sequence of `context` tokens on one device of the stage that has most, as the engine charges
    /// them.
    pub fn kv_per_sequence(&self, context: u64) -> Bytes {
        self.most(|need| need.cache, context)
    }

    /// Bytes of recurrent state for one sequence on one device of the stage that has most.
    pub fn state_per_sequence(&self) -> Bytes {
        self.most(|need| need.state, 0)
    }

    fn most(&self, part: impl Fn(Need) -> Bytes, context: u64) -> Bytes {
        self.on_devices().map(|place| part(place.cache.need(1, context))).fold(Bytes::ZERO, Bytes::max)
    }

    fn on_devices(&self) -> impl Iterator<Item = &PlaceMemory> {
        self.places.iter().filter(|place| place.location != Location::Host)
    }

    /// What each device must hold for `sequences` of `context` tokens in one replica, where it is tightest.
    pub fn plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        self.tightest(sequences, context).map(|(_, plan)| plan).unwrap_or_default()
    }

    /// The same for every place: the stages of a pipeline in order, and the host.
    pub fn plans(&self, sequences: u64, context: u64) -> impl Iterator<Item = (Location, MemoryPlan)> + '_ {
        let sequences = sequences.div_ceil(self.data_parallel);
        self.places.iter().map(move |place| (place.location, place.plan(sequences, context)))
    }

    /// The place that lacks most or has least to spare.
    fn tightest(&self, sequences: u64, context: u64) -> Option<(Location, MemoryPlan)> {
        let spare = |(_, plan): &(Location, MemoryPlan)| (plan.capacity - plan.needed()).as_bytes();
        self.plans(sequences, context).min_by(|a, b| spare(a).total_cmp(&spare(b)))
    }

    /// Whether every place has enough for `sequences` of `context` tokens.
    pub fn fits(&self, sequences: u64, context: u64) -> bool {
        self.plans(sequences, context).all(|(_, plan)| plan.fits())
    }

    /// The same with only a share of what may be used.
    pub(super) fn fits_within(&self, share: f64, sequences: u64, context: u64) -> bool {
        self.plans(sequences, context).all(|(_, plan)| plan.needed() <= plan.capacity * share)
    }

    /// The plan where it is tightest, if everything fits.
    ///
    /// # Errors
    /// [`DoesNotFit`] with the shortage of each place, without suggestions; [`Deployment::fit`] makes them.
    pub fn check(&self, sequences: u64, context: u64) -> Result<MemoryPlan, Box<DoesNotFit>> {
        let Some((location, plan)) = self.tightest(sequences, context) else { return Ok(MemoryPlan::default()) };
        if plan.fits() {
            return Ok(plan);
        }
        let short = self.plans(sequences, context).filter(|(_, plan)| !plan.fits());
        let shortages = short.map(|(location, plan)| Shortage { location, short_by: plan.short_by(), plan });
        Err(Box::new(DoesNotFit {
            devices: self.devices,
            location,
            needed: plan.needed(),
            short_by: plan.short_by(),
            largest: plan.largest(),
            plan,
            shortages: shortages.collect(),
            suggestions: Vec::new(),
        }))
    }

    /// The cache that is left when everything else is loaded, for sequences of up to `longest_context` tokens.
    pub fn kv_pool(&self, longest_context: u64) -> KvPool {
        self.smallest_pool(longest_context, |place| place.cache_memory(longest_context))
    }

    /// The same if the cache has this much memory on each device: for checking a log line by line.
    pub fn kv_pool_in(&self, memory: Bytes, longest_context: u64) -> KvPool {
        self.smallest_pool(longest_context, |_| memory)
    }

    /// Engines agree on the smallest pool of all devices.
    fn smallest_pool(&self, longest_context: u64, memory: impl Fn(&PlaceMemory) -> Bytes) -> KvPool {
        let pools = self.on_devices().map(|place| KvPool::new(place, memory(place), longest_context));
        pools.min_by_key(|pool| pool.tokens).unwrap_or_default()
    }

    /// The context beyond which less memory is needed than just below it, if the engine has such a rule.
    pub(super) fn drops_after(&self) -> Option<u64> {
        self.places.iter().filter_map(|place| place.activations.drops_after()).max()
    }
}

/// The places of a model whose layers are known.
fn of_architecture(
    deployment: &Deployment,
    architecture: &Architecture,
    sharded: &ShardedModel<'_>,
) -> Vec<PlaceMemory> {
    let stages = sharded.places().iter().filter(|place| !place.is_host).count() as u32;
    let mut stage = 0;
    let mut memory = |place: &Place| {
        stage += u32::from(!place.is_host);
        let location = match (place.is_host, stages) {
            (true, _) => Location::Host,
            (false, 1) => Location::Devices,
            (false, of) => Location::Stage { stage, of },
        };
        PlaceMemory::new(deployment, architecture, sharded, place, location)
    };
    sharded.places().iter().map(&mut memory).collect()
}

impl PlaceMemory {
    fn new(
        deployment: &Deployment,
        architecture: &Architecture,
        sharded: &ShardedModel<'_>,
        place: &Place,
        location: Location,
    ) -> Self {
        let alone = place.is_host.then(|| deployment.at(place));
        let here = alone.as_ref().unwrap_or(deployment);
        let empty = Self::without_model(here, &place.device, location);
        let cache = Cache::new(here, architecture, &place.stage.kind_counts);
        let weights = weights(deployment, architecture, sharded, place);
        match deployment.offload() {
            Offload::Stream { weights: streamed, cache_share, .. } => {
                let weights = (weights - streamed).max(Bytes::ZERO);
                Self { weights, cache, cache_share: 1.0 - cache_share, ..empty }
            }
            _ => Self { weights, cache, ..empty },
        }
        .with_activations(here, architecture, sharded, place)
    }

    fn of_totals(deployment: &Deployment, totals: &Totals) -> Self {
        let shares = f64::from(deployment.tensor_parallel()) * f64::from(deployment.pipeline_parallel().max(1));
        let empty = Self::without_model(deployment, deployment.system().device(), Location::Devices);
        let (mut weights, mut cache_share) = (totals.weight_bytes() / shares, 1.0);
        if let Offload::Stream { weights: streamed, cache_share: away, .. } = deployment.offload() {
            (weights, cache_share) = ((weights - streamed).max(Bytes::ZERO), 1.0 - away);
        }
        Self { weights, cache: Cache::of_totals(totals.kv_bytes_per_token / shares), cache_share, ..empty }
    }

    /// A device with the engine's rules and nothing loaded.
    fn without_model(deployment: &Deployment, device: &Device, location: Location) -> Self {
        let rules = &deployment.engine().memory;
        let devices = deployment.devices_per_replica();
        let together = devices > 1 && deployment.devices_per_stage() > 1;
        let communication = rules.communication.as_ref().filter(|_| together);
        let communication = communication.map_or(Bytes::ZERO, |rule| rule.on(device));
        let context = rules.context.as_ref().map_or(Bytes::ZERO, |rule| rule.on(device));
        let per_device = bytes(&rules.reserve_per_device) * f64::from(devices);
        Self {
            location,
            weights: Bytes::ZERO,
            overhead: context + communication,
            graphs: Bytes::ZERO,
            activations: Activations::default(),
            cache: Cache::of_totals(Bytes::ZERO),
            cache_share: 1.0,
            visible: device.usable_memory(),
            budget: rules.budget.as_ref().map(|rule| rule.value).unwrap_or_default(),
            fraction: rules.fraction.as_ref().map_or(1.0, |fraction| fraction.on(device)),
            reserve: rules.reserve.as_ref().map(|rule| rule.on(device) + per_device),
        }
    }

    fn with_activations(
        self,
        deployment: &Deployment,
        architecture: &Architecture,
        sharded: &ShardedModel<'_>,
        place: &Place,
    ) -> Self {
        let (rules, device) = (&deployment.engine().memory, &place.device);
        let layers: u64 = place.stage.kind_counts.iter().sum();
        let in_budget = rules.graphs_in_budget.as_ref().is_some_and(|inside| inside.value);
        let of = |rule: &Option<ByDevice<Bytes>>| rule.as_ref().map_or(Bytes::ZERO, |rule| rule.on(device));
        let all = of(&rules.graphs) + of(&rules.graphs_per_layer) * layers as f64;
        let graphs = if in_budget { all } else { Bytes::ZERO };
        let activations = Activations::new(deployment, architecture, place.stage.is_last);
        let copies = deployment.engine().scheduling.offload_rows.is_some() && !place.is_host;
        let activations = match deployment.offload() {
            Offload::Experts { layers } if copies && layers > 0 => {
                activations.with_copied_matrix(deployment, architecture, sharded.largest_expert_matrix())
            }
            Offload::Layers { .. } if copies && sharded.has_layers_on_host() => {
                activations.with_copied_matrix(deployment, architecture, sharded.largest_matrix())
            }
            _ => activations,
        };
        Self { activations, graphs, ..self }
    }

    fn plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        let Need { cache, state } = self.cache.need(sequences, context);
        let plan = MemoryPlan { kv_cache: cache * self.cache_share, state, ..self.loaded(sequences, context) };
        MemoryPlan { capacity: self.capacity(&plan), ..plan }
    }

    /// Everything but the cache.
    fn loaded(&self, sequences: u64, context: u64) -> MemoryPlan {
        MemoryPlan {
            weights: self.weights,
            activations: self.activations.at(sequences, context),
            graphs: self.graphs,
            overhead: self.overhead,
            visible: self.visible,
            ..MemoryPlan::default()
        }
    }

    /// Memory that everything together may take.
    ///
    /// # Formula
    /// Of visible memory `v`, a share `f`, overhead `o`, activations and graphs `a`, weights `w`:
    /// `f v`; of what is free before loading, `o + f (v - o) + a`, at most `v`, where a reserve `r` means `f = 1 - r / v`; of what is free
    /// after loading, `l + f (v - l)` with `l = o + w + a`.
    fn capacity(&self, plan: &MemoryPlan) -> Bytes {
        match self.budget {
            Budget::OfVisible | Budget::AsNeeded => self.visible * self.fraction,
            Budget::OfFreeBeforeLoading => {
                let free = (self.visible - self.overhead).max(Bytes::ZERO);
                let share = self.reserve.map_or(1.0 - self.fraction, |reserve| reserve / self.visible);
                let kept = free * share.clamp(0.0, 1.0);
                (self.visible - kept + plan.activations + plan.graphs).min(self.visible)
            }
            Budget::OfFreeAfterLoading => {
                let loaded = plan.fixed();
                loaded + (self.visible - loaded).max(Bytes::ZERO) * self.fraction
            }
        }
        .min(self.visible)
    }

    /// Memory that is left for the cache.
    fn cache_memory(&self, longest_context: u64) -> Bytes {
        let plan = self.loaded(1, longest_context);
        (self.capacity(&plan) - plan.fixed()).max(Bytes::ZERO)
    }

    /// Whether so many sequences fit into so much memory for the cache.
    pub(super) fn fits_in(&self, memory: Bytes, sequences: u64, context: u64) -> bool {
        let Need { cache, state } = self.cache.need(sequences, context);
        cache * self.cache_share + state <= memory
    }
}

/// Weights as the engine loads them: without embeddings that stay on the host, with padded experts and rotary tables.
fn weights(deployment: &Deployment, architecture: &Architecture, sharded: &ShardedModel<'_>, place: &Place) -> Bytes {
    let rules = &place.engine.memory;
    let stored = sharded.place_bytes(place);
    let embeddings_elsewhere = deployment.engine().memory.embeddings_on_host.as_ref().is_some_and(|rule| rule.value);
    // What the GPU gets of shared memory may be limited: the host's part is not counted then.
    let separate = !place.device.has_unified_memory() || place.device.usable_memory() < place.device.capacity();
    let first = || sharded.places().iter().find(|place| place.stage.is_first);
    let moved = match (embeddings_elsewhere, place.is_host) {
        (true, true) if !place.stage.is_first => first().map_or(Bytes::ZERO, |first| sharded.look_up_bytes(first)),
        (true, false) if separate => Bytes::ZERO - sharded.look_up_bytes(place),
        _ => Bytes::ZERO,
    };
    stored + moved + padding(deployment, sharded, place, rules) + rotary_tables(architecture, place, rules)
}

/// What padding of 4-bit experts to the kernel's tiles adds.
fn padding(deployment: &Deployment, sharded: &ShardedModel<'_>, place: &Place, rules: &MemoryRules) -> Bytes {
    if *deployment.weights() != WeightFormat::Mxfp4 || place.is_host {
        return Bytes::ZERO;
    }
    let hidden = rules.expert_hidden_multiple.as_ref().map_or(1, |rule| rule.value.max(1));
    let intermediate = rules.expert_intermediate_multiple.as_ref().map_or(1, |rule| rule.on(&place.device).max(1));
    sharded.expert_padding(place, deployment.expert_slices(), hidden, intermediate)
}

/// A cosine and a sine for every position and rotary dimension, in 16 bits, for every head size.
fn rotary_tables(architecture: &Architecture, place: &Place, rules: &MemoryRules) -> Bytes {
    if !rules.rotary_table.as_ref().is_some_and(|rule| rule.value) || place.is_host {
        return Bytes::ZERO;
    }
    let mut sizes: Vec<u64> = Vec::new();
    for (kind, _) in architecture.layer_kinds.iter().zip(&place.stage.kind_counts).filter(|(_, count)| **count > 0) {
        let size = match &kind.layer.mixer {
            Mixer::Attention(attention) => attention.head_dim,
            Mixer::LatentAttention(latent) => latent.qk_rope_head_dim,
            _ => continue,
        };
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    let elements = architecture.max_context_tokens as f64 * sizes.iter().sum::<u64>() as f64;
    Bytes::from_bytes(elements * 2.0)
}

fn bytes(rule: &Option<Sourced<Bytes>>) -> Bytes {
    rule.as_ref().map_or(Bytes::ZERO, |rule| rule.value)
}
