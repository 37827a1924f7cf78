//! What may be bought and how it may be run: the deployments that a search looks through.

use crate::catalog::{Catalog, CatalogError};
use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::format::{KvFormat, WeightFormat};
use crate::hardware::{Device, System};
use crate::model::{Architecture, Mixer, Model};
use crate::planner::{PlannerError, ReplicaLayout};
use crate::step::CompileError;
use crate::units::Bytes;
use std::sync::Arc;

/// The deployments of one replica among which a [`Search`](super::Search) chooses: every model, device, engine, format of weights and of the cache that is named, in
/// every layout.
///
/// Layouts are powers of two: tensor parallelism within a node, stages of a pipeline within a node and beyond. For mixtures of experts also whole experts
/// spread over the replica, and with latent attention data-parallel attention beside it.
///
/// ```
/// use llm_roofline::catalog::Catalog;
/// use llm_roofline::planner::SearchSpace;
/// let catalog = Catalog::embedded();
/// let space = SearchSpace::new(catalog.model("llama-3.1-70b")?, catalog.engine("vllm-2026")?)
///     .with_devices([catalog.device("h100-sxm-80gb")?, catalog.device("h200-sxm-141gb")?])
///     .with_weights(["bf16".parse()?, "fp8".parse()?]);
/// assert_eq!(space.len(), 2 * 2 * 14); // TP 1 to 8 and PP 1 to 16 on up to 16 devices
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SearchSpace {
    models: Vec<Arc<Model>>,
    devices: Vec<Arc<Device>>,
    engines: Vec<Arc<Engine>>,
    /// None: the model's own.
    weights: Vec<Option<WeightFormat>>,
    /// None: the engine's own.
    kv: Vec<Option<KvFormat>>,
    most_devices: u32,
}

/// One replica of a space, by its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) model: u32,
    pub(super) device: u32,
    engine: u32,
    weights: u32,
    kv: u32,
    pub(super) layout: ReplicaLayout,
}

impl Key {
    /// What decides how large the weights are.
    pub(super) const fn weight_parts(&self) -> (u32, u32, u32) {
        (self.model, self.weights, self.engine)
    }
}

impl SearchSpace {
    /// One model under one engine, on devices that are still to be named, in the formats of the checkpoint and of the engine.
    pub fn new(model: impl Into<Arc<Model>>, engine: impl Into<Arc<Engine>>) -> Self {
        Self {
            models: vec![model.into()],
            devices: Vec::new(),
            engines: vec![engine.into()],
            weights: vec![None],
            kv: vec![None],
            most_devices: 16,
        }
    }

    /// On any of these devices.
    #[must_use]
    pub fn with_devices<D: Into<Arc<Device>>>(self, devices: impl IntoIterator<Item = D>) -> Self {
        Self { devices: devices.into_iter().map(Into::into).collect(), ..self }
    }

    /// On any device of a catalog that has a price.
    ///
    /// # Errors
    /// [`CatalogError`] for a profile that cannot be read.
    pub fn with_priced_devices(self, catalog: &Catalog) -> Result<Self, CatalogError> {
        let mut devices = Vec::new();
        for entry in catalog.devices() {
            let device = catalog.device(&entry.head().slug)?;
            if !device.prices().is_empty() {
                devices.push(device);
            }
        }
        Ok(Self { devices, ..self })
    }

    /// Any of these models would do.
    #[must_use]
    pub fn with_models<M: Into<Arc<Model>>>(self, models: impl IntoIterator<Item = M>) -> Self {
        Self { models: models.into_iter().map(Into::into).collect(), ..self }
    }

    /// Under any of these engines.
    #[must_use]
    pub fn with_engines<E: Into<Arc<Engine>>>(self, engines: impl IntoIterator<Item = E>) -> Self {
        Self { engines: engines.into_iter().map(Into::into).collect(), ..self }
    }

    /// With weights in any of these formats. How well the model answers in them is not known here.
    #[must_use]
    pub fn with_weights(self, formats: impl IntoIterator<Item = WeightFormat>) -> Self {
        Self { weights: formats.into_iter().map(Some).collect(), ..self }
    }

    /// With a cache in any of these formats.
    #[must_use]
    pub fn with_kv(self, formats: impl IntoIterator<Item = KvFormat>) -> Self {
        Self { kv: formats.into_iter().map(Some).collect(), ..self }
    }

    /// With at most so many devices in a replica; 16 at first.
    #[must_use]
    pub fn with_most_devices_per_replica(self, devices: u32) -> Self {
        Self { most_devices: devices, ..self }
    }

    /// How many deployments of one replica there are, possible or not. Any number of replicas of each is looked at.
    pub fn len(&self) -> usize {
        self.keys().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The deployments of one replica, possible or not, in the order in which equals are preferred.
    ///
    /// # Errors
    /// [`PlannerError::Empty`] where nothing is named, [`PlannerError::System`] for numbers of devices that no system has.
    pub fn deployments(&self) -> Result<Vec<Deployment>, PlannerError> {
        self.check()?;
        self.keys().iter().map(|key| self.deployment(key)).collect()
    }

    pub(super) fn check(&self) -> Result<(), PlannerError> {
        let lists = [
            ("models", self.models.len()),
            ("devices", self.devices.len()),
            ("engines", self.engines.len()),
            ("formats of the weights", self.weights.len()),
            ("formats of the cache", self.kv.len()),
            ("devices of a replica", self.most_devices as usize),
        ];
        match lists.iter().find(|(_, length)| *length == 0) {
            Some((what, _)) => Err(PlannerError::Empty { what }),
            None => Ok(()),
        }
    }

    /// Whether the models and the engines can be any.
    pub(super) fn check_parts(&self) -> Result<(), PlannerError> {
        for model in &self.models {
            for engine in &self.engines {
                let system = System::new(Arc::clone(&self.devices[0]), 1)?;
                let deployment = Deployment::new(Arc::clone(model), system).with_engine(Arc::clone(engine));
                deployment.check_parts().map_err(CompileError::from)?;
            }
        }
        Ok(())
    }

    pub(super) fn device(&self, key: &Key) -> &Arc<Device> {
        &self.devices[key.device as usize]
    }

    pub(super) fn deployment(&self, key: &Key) -> Result<Deployment, PlannerError> {
        let ReplicaLayout { tensor_parallel, pipeline_parallel, expert_parallel, data_parallel_attention } = key.layout;
        let system = System::new(Arc::clone(self.device(key)), key.layout.devices())?;
        let mut deployment = Deployment::new(Arc::clone(&self.models[key.model as usize]), system)
            .with_engine(Arc::clone(&self.engines[key.engine as usize]))
            .with_tensor_parallel(tensor_parallel)
            .with_pipeline_parallel(pipeline_parallel)
            .with_expert_parallel(expert_parallel)
            .with_data_parallel_attention(data_parallel_attention);
        if let Some(format) = &self.weights[key.weights as usize] {
            deployment = deployment.with_weights(format.clone());
        }
        if let Some(format) = self.kv[key.kv as usize] {
            deployment = deployment.with_kv(format);
        }
        Ok(deployment)
    }

    /// The weights of a key's model: with any layout all devices together hold at least as much.
    pub(super) fn weights_at_least(&self, key: &Key) -> Result<Bytes, PlannerError> {
        let alone = Key { layout: ReplicaLayout::cut(1, 1), ..*key };
        Ok(self.deployment(&alone)?.weight_bytes_per_device())
    }

    /// Every combination; the first model, device, engine and format come first, and few devices before many.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for (model, body) in self.models.iter().enumerate() {
            for (device, of) in self.devices.iter().enumerate() {
                let layouts = self.layouts(body, of);
                for engine in 0..self.engines.len() {
                    for weights in 0..self.weights.len() {
                        for kv in 0..self.kv.len() {
                            let [model, device, engine, weights, kv] =
                                [model, device, engine, weights, kv].map(|index| index as u32);
                            let key = |&layout| Key { model, device, engine, weights, kv, layout };
                            keys.extend(layouts.iter().map(key));
                        }
                    }
                }
            }
        }
        keys
    }

    fn layouts(&self, model: &Model, device: &Arc<Device>) -> Vec<ReplicaLayout> {
        let per_node = System::new(Arc::clone(device), 1).map_or(1, |system| system.devices_per_node());
        let powers = |limit: u32| (0..u32::BITS).map(|power| 1 << power).take_while(move |degree| *degree <= limit);
        let mut layouts = Vec::new();
        for devices in powers(self.most_devices) {
            for tensor in powers(devices.min(per_node)) {
                layouts.push(ReplicaLayout::cut(tensor, devices / tensor));
            }
            if devices > 1 && model.architecture().is_some_and(Architecture::has_experts) {
                if devices <= per_node {
                    layouts.push(ReplicaLayout { expert_parallel: devices, ..ReplicaLayout::cut(devices, 1) });
                }
                if model.architecture().is_some_and(has_latent_attention) {
                    let spread = ReplicaLayout { expert_parallel: devices, ..ReplicaLayout::cut(1, 1) };
                    layouts.push(ReplicaLayout { data_parallel_attention: devices, ..spread });
                }
            }
        }
        layouts
    }
}

fn has_latent_attention(architecture: &Architecture) -> bool {
    architecture.layer_kinds.iter().any(|kind| matches!(kind.layer.mixer, Mixer::LatentAttention(_)))
}
