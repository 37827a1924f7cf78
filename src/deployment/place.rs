//! Where the parts of a model live: stages of devices, equal or not, and the host.

use super::stage::Stage;
use super::{Deployment, DeploymentError, Offload};
use crate::engine::Engine;
use crate::hardware::{Device, System};
use crate::model::Architecture;
use std::sync::Arc;

/// A part of a model and the memory that it lives in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// The device, or the host's processor.
    pub device: Arc<Device>,
    /// Whose laws hold there.
    pub engine: Arc<Engine>,
    /// Equal devices over which this part is cut.
    pub devices: u32,
    /// Whether it is the host.
    pub is_host: bool,
    /// Which layers, of each kind how many, without their routed experts; and whether embeddings and output head.
    ///
    /// The caches of these layers live here too.
    pub stage: Stage,
    /// Of how many layers of each kind the routed experts live here.
    pub experts_of_kind: Vec<u64>,
}

impl Place {
    /// Whether anything lives here.
    pub fn is_empty(&self) -> bool {
        let layers: u64 = self.stage.kind_counts.iter().chain(&self.experts_of_kind).sum();
        layers == 0 && !self.stage.is_first && !self.stage.is_last
    }
}

/// Devices of one pipeline that are not equal, each a stage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UnequalDevices {
    pub(super) devices: Vec<Arc<Device>>,
    /// Shares that layers are split by; none means usable memory.
    split: Option<Vec<f64>>,
}

impl Deployment {
    /// On these devices, each with layers of its own in proportion to its usable memory (llama.cpp `--split-mode layer`): pipeline stages,
    /// whose memories are never summed up. Takes the place of the system and of the layout.
    ///
    /// # Formula
    /// Layer `i` of `n`, or the output head as layer `n`, of which the first `s` are not on devices, goes to the first device at which the
    /// shares sum up to more than `(i - s) / (n + 1 - s)` of all. Source: llama.cpp, `load_tensors` in src/llama-model.cpp.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let (large, small) = (catalog.device("rtx-4090-24gb")?, catalog.device("rtx-3070-8gb")?);
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(large.clone(), 1)?);
    /// let both = deployment.with_unequal_devices(vec![large, small]);
    /// assert_eq!(both.layers_of_stages(), [25, 7]); // and the output head on the small one
    /// assert_eq!(both.with_layer_split(vec![1.0, 1.0]).layers_of_stages(), [17, 15]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_unequal_devices(self, devices: Vec<Arc<Device>>) -> Self {
        let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let first = devices.first().and_then(|device| System::new(device.clone(), count).ok());
        let deployment = self.with_tensor_parallel(1).with_expert_parallel(1).with_data_parallel_attention(1);
        let deployment = deployment.with_replicas(1).with_pipeline_parallel(count);
        let system = first.unwrap_or_else(|| deployment.system.clone());
        Self { system, unequal: Some(UnequalDevices { devices, split: None }), ..deployment }
    }

    /// With the layers of unequal devices split in these proportions instead (llama.cpp `--tensor-split`); equal devices have equal shares.
    #[must_use]
    pub fn with_layer_split(self, proportions: Vec<f64>) -> Self {
        let unequal = self.unequal.map(|unequal| UnequalDevices { split: Some(proportions), ..unequal });
        Self { unequal, ..self }
    }

    /// The devices, one for every stage of the pipeline.
    pub(super) fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        let equal = self.unequal.is_none().then(|| self.system.device());
        equal.into_iter().chain(self.unequal.iter().flat_map(|unequal| &unequal.devices))
    }

    /// Whether the devices were given one by one.
    pub(crate) const fn has_unequal_devices(&self) -> bool {
        self.unequal.is_some()
    }

    /// Rows from which the engine copies weights on the host to the device.
    pub(crate) fn offload_rows(&self) -> Option<f64> {
        self.engine.scheduling.offload_rows.as_ref().map(|rows| rows.value as f64)
    }

    /// Whether layers or experts are meant to live on the host.
    pub(crate) const fn has_parts_on_host(&self) -> bool {
        matches!(self.offload, Offload::Layers { .. } | Offload::Experts { .. })
    }

    /// Whether parts of the model run under different laws.
    pub(crate) const fn is_divided(&self) -> bool {
        self.unequal.is_some() || self.has_parts_on_host()
    }

    pub(super) fn check_unequal(&self) -> Result<(), DeploymentError> {
        let Some(UnequalDevices { devices, split }) = &self.unequal else { return Ok(()) };
        let found = devices.len();
        if u32::try_from(found) != Ok(self.devices_per_replica()) || self.devices_per_stage() != 1 {
            let (stages, per_stage) = (self.pipeline_parallel(), self.devices_per_stage());
            return Err(DeploymentError::UnequalLayout { found, stages, per_stage });
        }
        if self.model.architecture().is_none() {
            return Err(DeploymentError::OffloadOfTotals { what: "layers" });
        }
        let Some(split) = split else { return Ok(()) };
        let valid =
            split.iter().all(|share| *share >= 0.0 && share.is_finite()) && split.iter().any(|share| *share > 0.0);
        if split.len() == found && valid {
            return Ok(());
        }
        Err(DeploymentError::LayerSplit { split: split.clone(), devices: found })
    }

    /// Every part of one replica of the model and where it lives, in the order in which a token passes them; nothing for a model known by its
    /// totals. The host is first if layers live there, last if only experts do.
    pub(crate) fn places(&self) -> Vec<Place> {
        let Some(architecture) = self.model.architecture() else { return Vec::new() };
        let on_host = self.layers_on_host(architecture);
        let mut places = Vec::new();
        if let (Some(host), true) = (&self.host, on_host > 0) {
            places.push(self.place(host.device(), host.engine(), true, stage(architecture, 0..on_host)));
        }
        for (device, stage) in self.stages_on_devices(architecture, on_host) {
            places.push(self.place(device, &self.engine, false, stage));
        }
        self.move_experts(architecture, &mut places);
        places.retain(|place| !place.is_empty());
        places
    }

    /// How many of the first layers, the output head being the last, live on the host.
    fn layers_on_host(&self, architecture: &Architecture) -> u64 {
        match (self.offload, &self.host) {
            (Offload::Layers { on_device }, Some(_)) => (architecture.layers() as u64 + 1).saturating_sub(on_device),
            _ => 0,
        }
    }

    /// Layers on each device of a divided model, in order.
    pub(super) fn layers_on_devices(&self, architecture: &Architecture) -> Vec<u64> {
        let stages = self.stages_on_devices(architecture, self.layers_on_host(architecture));
        stages.iter().map(|(_, stage)| stage.kind_counts.iter().sum()).collect()
    }

    fn place(&self, device: &Arc<Device>, engine: &Arc<Engine>, is_host: bool, stage: Stage) -> Place {
        let devices = if is_host { 1 } else { self.devices_per_stage() };
        let experts_of_kind = stage.kind_counts.clone();
        Place { device: device.clone(), engine: engine.clone(), devices, is_host, stage, experts_of_kind }
    }

    /// Stages of the devices, without the first `on_host` layers.
    fn stages_on_devices(&self, architecture: &Architecture, on_host: u64) -> Vec<(&Arc<Device>, Stage)> {
        let device = self.system.device();
        match &self.unequal {
            None if on_host == 0 => self.stages(architecture).into_iter().map(|stage| (device, stage)).collect(),
            None => {
                let equal = vec![1.0; self.pipeline_parallel() as usize];
                let stages = split_layers(architecture, &equal, on_host);
                stages.into_iter().map(|stage| (device, stage)).collect()
            }
            Some(UnequalDevices { devices, split }) => {
                let memory = || devices.iter().map(|device| device.usable_memory().as_bytes()).collect();
                let shares = split.clone().unwrap_or_else(memory);
                devices.iter().zip(split_layers(architecture, &shares, on_host)).collect()
            }
        }
    }

    /// Moves the routed experts of the first layers to the host.
    fn move_experts(&self, architecture: &Architecture, places: &mut Vec<Place>) {
        let (Offload::Experts { layers }, Some(host)) = (self.offload, &self.host) else { return };
        let mut moved = vec![0; architecture.layer_kinds.len()];
        let first = architecture.layer_order.iter().take(usize::try_from(layers).unwrap_or(usize::MAX));
        for &kind in first.filter(|&&kind| architecture.layer_kinds[kind].layer.feed_forward.moe().is_some()) {
            moved[kind] += 1;
        }
        let mut left = moved.clone();
        for place in places.iter_mut() {
            for (experts, left) in place.experts_of_kind.iter_mut().zip(&mut left) {
                let taken = (*experts).min(*left);
                *experts -= taken;
                *left -= taken;
            }
        }
        let nothing = Stage { kind_counts: vec![0; moved.len()], is_first: false, is_last: false };
        places.push(Place { experts_of_kind: moved, ..self.place(host.device(), host.engine(), true, nothing) });
    }

    /// The deployment that everything of one place would be, alone on its device.
    pub(crate) fn at(&self, place: &Place) -> Self {
        // Equal devices keep their links; a single device cannot be refused.
        let alone = (place.is_host || self.unequal.is_some()).then(|| System::new(place.device.clone(), 1).ok());
        let system = alone.flatten().unwrap_or_else(|| self.system.clone());
        self.alone_on(system, &place.engine)
    }

    /// The deployment that everything would be on the first device.
    pub(crate) fn on_first_device(&self) -> Self {
        self.alone_on(self.system.clone(), &self.engine)
    }

    fn alone_on(&self, system: System, engine: &Arc<Engine>) -> Self {
        let alone = Self {
            system,
            engine: engine.clone(),
            kv: Some(*self.kv()),
            host: None,
            offload: Offload::None,
            unequal: None,
            ..self.clone()
        };
        alone.with_pipeline_parallel(1).with_replicas(1)
    }
}

/// The layers of a range, in which the output head is the layer after the last.
fn stage(architecture: &Architecture, layers: std::ops::Range<u64>) -> Stage {
    let mut kind_counts = vec![0; architecture.layer_kinds.len()];
    let (from, to) = (layers.start as usize, (layers.end as usize).min(architecture.layers()));
    for &kind in architecture.layer_order.get(from..to).unwrap_or_default() {
        kind_counts[kind] += 1;
    }
    let head = architecture.layers() as u64;
    Stage { kind_counts, is_first: from == 0 && !layers.is_empty(), is_last: layers.contains(&head) }
}

/// The stages of devices with these shares, after the first layers that are elsewhere.
fn split_layers(architecture: &Architecture, shares: &[f64], elsewhere: u64) -> Vec<Stage> {
    let (end, total) = (architecture.layers() as u64 + 1, shares.iter().sum::<f64>());
    let here = end.saturating_sub(elsewhere) as f64;
    let (mut sum, mut from) = (0.0, elsewhere);
    let last = shares.len().saturating_sub(1);
    let mut next = |(index, share): (usize, &f64)| {
        sum += share;
        let is_here = |layer: &u64| index == last || ((layer - elsewhere) as f64 / here) < sum / total;
        let to = (from..end).take_while(is_here).last().map_or(from, |layer| layer + 1);
        let stage = stage(architecture, from..to);
        from = to;
        stage
    };
    shares.iter().enumerate().map(&mut next).collect()
}
