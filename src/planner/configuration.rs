//! How a replica is set up, in words that are written down.

use crate::deployment::Deployment;
use serde::Serialize;
use std::fmt;

/// Degrees of parallelism of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct ReplicaLayout {
    /// Ways in which every matrix is cut.
    pub tensor_parallel: u32,
    /// Stages of the pipeline.
    pub pipeline_parallel: u32,
    /// Ways in which whole experts are spread.
    pub expert_parallel: u32,
    /// Ranks of data-parallel attention.
    pub data_parallel_attention: u32,
}

impl ReplicaLayout {
    pub(super) const fn cut(tensor_parallel: u32, pipeline_parallel: u32) -> Self {
        Self { tensor_parallel, pipeline_parallel, expert_parallel: 1, data_parallel_attention: 1 }
    }

    /// The layout of a deployment.
    pub const fn of(deployment: &Deployment) -> Self {
        Self {
            tensor_parallel: deployment.tensor_parallel(),
            pipeline_parallel: deployment.pipeline_parallel(),
            expert_parallel: deployment.expert_parallel(),
            data_parallel_attention: deployment.data_parallel_attention(),
        }
    }

    /// Devices of one replica.
    pub const fn devices(&self) -> u32 {
        self.tensor_parallel.saturating_mul(self.pipeline_parallel).saturating_mul(self.data_parallel_attention)
    }
}

impl fmt::Display for ReplicaLayout {
    /// As people write it: `TP8`, `TP8 PP2`, `DP8 EP8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let degrees = [
            ("TP", self.tensor_parallel),
            ("PP", self.pipeline_parallel),
            ("DP", self.data_parallel_attention),
            ("EP", self.expert_parallel),
        ];
        let cut: Vec<String> =
            degrees.iter().filter(|(_, degree)| *degree > 1).map(|(name, degree)| format!("{name}{degree}")).collect();
        f.pad(&if cut.is_empty() { "TP1".into() } else { cut.join(" ") })
    }
}

/// One replica as it is set up: the deployment, and its parts by their names.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Configuration {
    /// The replica, to be asked further questions.
    #[serde(skip)]
    pub deployment: Deployment,
    /// Slug of the model.
    pub model: String,
    /// Slug of the device.
    pub device: String,
    /// Slug of the engine.
    pub engine: String,
    /// Format of the weights.
    pub weights: String,
    /// Format of the cache.
    pub kv: String,
    /// The layout.
    pub layout: ReplicaLayout,
    /// Devices of the replica.
    pub devices_per_replica: u32,
}

impl Configuration {
    /// How a deployment is set up; its replicas are not counted.
    pub fn of(deployment: &Deployment) -> Self {
        Self {
            model: deployment.model().slug.clone(),
            device: deployment.system().device().slug().into(),
            engine: deployment.engine().slug.clone(),
            weights: deployment.weights().to_string(),
            kv: deployment.kv().to_string(),
            layout: ReplicaLayout::of(deployment),
            devices_per_replica: deployment.devices_per_replica(),
            deployment: deployment.clone(),
        }
    }

    /// Name of the device as sold.
    pub fn device_name(&self) -> &str {
        self.deployment.system().device().name()
    }

    /// So many replicas as people say it: `40 x H100 SXM5 80GB = 5 replicas x TP8`.
    ///
    /// ```
    /// use llm_roofline::planner::Configuration;
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 8)?;
    /// let of = Configuration::of(&Deployment::new(catalog.model("llama-3.1-70b")?, system));
    /// assert_eq!(of.decomposed(5), "40 x H100 SXM5 80GB = 5 replicas x TP8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decomposed(&self, replicas: u32) -> String {
        let devices = self.devices_per_replica.saturating_mul(replicas);
        let plural = if replicas == 1 { "" } else { "s" };
        format!("{devices} x {} = {replicas} replica{plural} x {}", self.device_name(), self.layout)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, engine, weights, kv, layout, devices_per_replica, .. } = self;
        let device = self.device_name();
        write!(f, "{model} in {weights}, cache in {kv}, {layout} on {devices_per_replica} x {device} under {engine}")
    }
}
