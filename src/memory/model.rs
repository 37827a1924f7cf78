//! The memory need of a deployment as coefficients.

use super::activations::Activations;
use super::cache::{Cache, Need};
use super::drafting::{Drafter, Drafting, Speculation};
use super::pool::KvPool;
use super::{DoesNotFit, Location, MemoryPlan, Shortage, weights};
use crate::deployment::{Deployment, Offload, Place, ShardedModel};
use crate::engine::{Budget, ByDevice};
use crate::hardware::Device;
use crate::model::{Architecture, ModelBody, Totals};
use crate::profile::Sourced;
use crate::units::Bytes;
use std::sync::Arc;

/// Memory need of a deployment as coefficients: compiled once, evaluated for any batch and context without allocation.
///
/// Every stage of a pipeline, and the host if parts of the model live there, is accounted for by itself: memories are never summed up.
/// Sequences are spread evenly over the ranks of data-parallel attention; those of other replicas are not counted.
///
/// A drafter for speculative decoding ([`with_drafter`](Self::with_drafter)) is part of the last stage.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryModel {
    /// Never empty.
    pub(super) places: Vec<PlaceMemory>,
    devices: u32,
    /// Ranks that sequences are spread over.
    pub(super) data_parallel: u64,
}

/// One place: equal devices that hold the same share of the same layers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaceMemory {
    pub(super) location: Location,
    weights: Bytes,
    drafter_weights: Bytes,
    overhead: Bytes,
    graphs: Bytes,
    pub(super) activations: Activations,
    drafter_activations: Option<Activations>,
    pub(super) cache: Cache,
    /// Share of the cache that is here; the rest is streamed.
    pub(super) cache_share: f64,
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

    /// The memory need of a deployment with speculative decoding: `draft_tokens` are proposed at once, by a drafter or, without one, by
    /// looking them up in the text. Without both it is that of [`new`](Self::new).
    ///
    /// # Formula
    /// On top of what the deployment needs, with `k` proposed tokens:
    /// - on each device of the last stage, a share of the drafter's weights without those of the target ([`Drafting`]), and its cache: its
    ///   layers join the groups of the target's in a paged cache;
    /// - `k` more states per sequence for layers with states, and for those of a grouped pool `k` more inputs that a convolution remembers;
    /// - in paged caches, `k` more tokens per sequence while they are verified, and `k` more that a drafter proposes next, but no more than
    ///   the model's longest context;
    /// - activations of the larger of the two, which run one after the other; where memory is allocated as needed, of both.
    ///
    /// A drafter that is cut over fewer devices than the stage has is counted where it is.
    ///
    /// # Source
    /// vLLM: vllm/v1/core/kv_cache_manager.py (`allocate_slots`), vllm/v1/kv_cache_interface.py (`num_speculative_blocks`),
    /// vllm/model_executor/layers/mamba/mamba_utils.py (`num_spec`); start-up logs in the test data.
    ///
    /// # Validity
    /// Hidden vectors of inner layers, which EAGLE-3 keeps for its head, are not counted among the activations.
    pub fn with_drafter(deployment: &Deployment, draft_tokens: u64, drafter: Option<&Drafting>) -> Self {
        let speculation = Speculation { draft_tokens, drafting: drafter };
        Self::with_speculation(deployment, deployment.sharded().as_ref(), &speculation)
    }

    /// The need of the deployment alone, with the model taken apart already.
    pub(crate) fn of_parts(deployment: &Deployment, sharded: Option<&ShardedModel<'_>>) -> Self {
        Self::with_speculation(deployment, sharded, &Speculation::default())
    }

    fn with_speculation(
        deployment: &Deployment,
        sharded: Option<&ShardedModel<'_>>,
        speculation: &Speculation<'_>,
    ) -> Self {
        let places = match (&deployment.model().body, sharded) {
            (ModelBody::Architecture(architecture), Some(sharded)) => {
                of_architecture(deployment, architecture, sharded, speculation)
            }
            (ModelBody::Architecture(_), None) => Vec::new(),
            (ModelBody::Totals(totals), _) => vec![PlaceMemory::of_totals(deployment, totals, speculation)],
        };
        Self {
            places,
            devices: deployment.devices_per_replica(),
            data_parallel: u64::from(deployment.data_parallel_attention().max(1)),
        }
    }

    /// Bytes of weights on one device of the stage that has most, replicated parts and the drafter included.
    pub fn weights(&self) -> Bytes {
        self.on_devices().map(|place| place.weights + place.drafter_weights).fold(Bytes::ZERO, Bytes::max)
    }

    /// Bytes of the drafter's weights on one device that holds it, without those that are the target's too.
    pub fn drafter_weights(&self) -> Bytes {
        self.places.iter().map(|place| place.drafter_weights).fold(Bytes::ZERO, Bytes::max)
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
        self.smallest_pool(longest_context, |place| place.cache_memory(1, longest_context))
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
    speculation: &Speculation<'_>,
) -> Vec<PlaceMemory> {
    // The last stage has the hidden states that heads start from. Where nothing is on devices, the drafter is not either.
    let places = sharded.places();
    let last_stage = places.iter().rposition(|place| !place.is_host).or(places.len().checked_sub(1));
    let stages = sharded.places().iter().filter(|place| !place.is_host).count() as u32;
    let mut stage = 0;
    let mut memory = |(index, place): (usize, &Place)| {
        stage += u32::from(!place.is_host);
        let location = match (place.is_host, stages) {
            (true, _) => Location::Host,
            (false, 1) => Location::Devices,
            (false, of) => Location::Stage { stage, of },
        };
        let drafting = speculation.drafting.filter(|_| Some(index) == last_stage);
        let here = (place.is_host || drafting.is_some()).then(|| deployment.at(place));
        let drafter = drafting
            .zip(here.as_ref())
            .map(|(drafting, here)| Drafter::new(drafting, here.system().clone(), place.engine.clone()));
        let here = here.as_ref().filter(|_| place.is_host).unwrap_or(deployment);
        let parts = Parts { deployment, here, architecture, sharded, place, speculation, drafter: drafter.as_ref() };
        PlaceMemory::new(&parts, location)
    };
    places.iter().enumerate().map(&mut memory).collect()
}

/// What a place is made of.
struct Parts<'a> {
    deployment: &'a Deployment,
    /// The same as if everything were at this place, where that is the host.
    here: &'a Deployment,
    architecture: &'a Architecture,
    sharded: &'a ShardedModel<'a>,
    place: &'a Place,
    speculation: &'a Speculation<'a>,
    /// The drafter, if it is here.
    drafter: Option<&'a Drafter<'a>>,
}

impl PlaceMemory {
    fn new(parts: &Parts<'_>, location: Location) -> Self {
        let Parts { deployment, here, architecture, sharded, place, speculation, drafter } = *parts;
        let empty = Self::without_model(here, &place.device, location);
        let cache = Cache::new(here, architecture, &place.stage.kind_counts, speculation, drafter);
        let weights = weights::of_place(deployment, architecture, sharded, place);
        let drafter_weights = drafter.map_or(Bytes::ZERO, |drafter| drafter.weights(Some((sharded, place))));
        match deployment.offload() {
            Offload::Stream { weights: streamed, cache_share, .. } => {
                let weights = (weights - streamed).max(Bytes::ZERO);
                Self { weights, drafter_weights, cache, cache_share: 1.0 - cache_share, ..empty }
            }
            _ => Self { weights, drafter_weights, cache, ..empty },
        }
        .with_activations(parts)
    }

    fn of_totals(deployment: &Deployment, totals: &Totals, speculation: &Speculation<'_>) -> Self {
        let shares = f64::from(deployment.tensor_parallel()) * f64::from(deployment.pipeline_parallel().max(1));
        let empty = Self::without_model(deployment, deployment.system().device(), Location::Devices);
        let (mut weights, mut cache_share) = (totals.weight_bytes() / shares, 1.0);
        if let Offload::Stream { weights: streamed, cache_share: away, .. } = deployment.offload() {
            (weights, cache_share) = ((weights - streamed).max(Bytes::ZERO), 1.0 - away);
        }
        let drafter = speculation
            .drafting
            .map(|drafting| Drafter::new(drafting, deployment.system().clone(), Arc::new(deployment.engine().clone())));
        let cache = Cache::of_totals(totals.kv_bytes_per_token / shares, speculation, drafter.as_ref());
        let place = Self { weights, cache, cache_share, ..empty };
        let Some(drafter) = drafter else { return place };
        Self { drafter_weights: drafter.weights(None), drafter_activations: activations_of(&drafter), ..place }
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
            drafter_weights: Bytes::ZERO,
            overhead: context + communication,
            graphs: Bytes::ZERO,
            activations: Activations::default(),
            drafter_activations: None,
            cache: Cache::empty(),
            cache_share: 1.0,
            visible: device.usable_memory(),
            budget: rules.budget.as_ref().map(|rule| rule.value).unwrap_or_default(),
            fraction: rules.fraction.as_ref().map_or(1.0, |fraction| fraction.on(device)),
            reserve: rules.reserve.as_ref().map(|rule| rule.on(device) + per_device),
        }
    }

    fn with_activations(self, parts: &Parts<'_>) -> Self {
        let Parts { here: deployment, architecture, sharded, place, drafter, .. } = *parts;
        let (rules, device) = (&deployment.engine().memory, &place.device);
        let layers = place.stage.kind_counts.iter().sum::<u64>() + drafter.map_or(0, Drafter::layers);
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
        Self { activations, graphs, drafter_activations: drafter.and_then(activations_of), ..self }
    }

    pub(super) fn plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        let Need { cache, state } = self.cache.need(sequences, context);
        let plan = MemoryPlan { kv_cache: cache * self.cache_share, state, ..self.loaded(sequences, context) };
        MemoryPlan { capacity: self.capacity(&plan), ..plan }
    }

    /// Everything but the cache.
    fn loaded(&self, sequences: u64, context: u64) -> MemoryPlan {
        MemoryPlan {
            weights: self.weights,
            drafter_weights: self.drafter_weights,
            activations: self.activations(sequences, context),
            graphs: self.graphs,
            overhead: self.overhead,
            visible: self.visible,
            ..MemoryPlan::default()
        }
    }

    /// Target and drafter run one after the other in the same memory, unless each allocates what it needs.
    fn activations(&self, sequences: u64, context: u64) -> Bytes {
        let of_target = self.activations.at(sequences, context);
        match self.drafter_activations.as_ref().map(|activations| activations.at(sequences, context)) {
            None => of_target,
            Some(of_drafter) if self.budget == Budget::AsNeeded => of_target + of_drafter,
            Some(of_drafter) => of_target.max(of_drafter),
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

    /// Memory that is left for the cache of so many sequences of up to this context.
    pub(super) fn cache_memory(&self, sequences: u64, longest_context: u64) -> Bytes {
        let plan = self.loaded(sequences, longest_context);
        (self.capacity(&plan) - plan.fixed()).max(Bytes::ZERO)
    }

    /// Whether so many sequences fit into so much memory for the cache.
    pub(super) fn fits_in(&self, memory: Bytes, sequences: u64, context: u64) -> bool {
        let Need { cache, state } = self.cache.need(sequences, context);
        cache * self.cache_share + state <= memory
    }
}

fn activations_of(drafter: &Drafter<'_>) -> Option<Activations> {
    Some(Activations::new(&drafter.deployment, drafter.architecture()?, true))
}

fn bytes(rule: &Option<Sourced<Bytes>>) -> Bytes {
    rule.as_ref().map_or(Bytes::ZERO, |rule| rule.value)
}
