//! From a point of a sweep to a deployment: which devices, how many replicas.

use super::Sweep;
use super::axis::Point;
use crate::deployment::{Deployment, Offload};
use crate::planner::PlannerError;

/// Devices that a replica is cut over.
#[derive(Clone, Copy, Debug)]
struct Degrees {
    tensor: u32,
    pipeline: u32,
    data_attention: u32,
}

impl Degrees {
    fn of(base: &Deployment, point: &Point<'_>) -> Result<Self, PlannerError> {
        let pipeline = point.pipeline_parallel.unwrap_or(base.pipeline_parallel());
        let data_attention = point.data_parallel_attention.unwrap_or(base.data_parallel_attention());
        let tensor = match (point.tensor_parallel, point.count) {
            (Some(degree), _) => degree,
            (None, Some(count)) => groups(count, pipeline.saturating_mul(data_attention))?,
            (None, None) => base.tensor_parallel(),
        };
        Ok(Self { tensor, pipeline, data_attention })
    }

    fn devices(self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.data_attention)
    }
}

impl Sweep {
    /// The deployment that is compiled at a point. Where tensor parallelism is stated, the number of devices changes nothing but the number of
    /// replicas, and this is one of them.
    pub(super) fn replica(&self, point: &Point<'_>) -> Result<Deployment, PlannerError> {
        let mut deployment = self.with_parts(point)?;
        let degrees = Degrees::of(&self.base, point)?;
        deployment = deployment
            .with_tensor_parallel(degrees.tensor)
            .with_pipeline_parallel(degrees.pipeline)
            .with_data_parallel_attention(degrees.data_attention);
        if let Some(degree) = point.expert_parallel {
            deployment = deployment.with_expert_parallel(degree);
        }
        if !point.moves_devices() {
            return Ok(deployment.with_replicas(self.base.replicas()));
        }
        // No devices at all are refused when the layout is checked, which says what is missing.
        let system = deployment.system().clone().with_count(degrees.devices().max(1))?;
        Ok(deployment.with_system(system).with_replicas(1))
    }

    /// Model, device, engine and formats.
    fn with_parts(&self, point: &Point<'_>) -> Result<Deployment, PlannerError> {
        let base = &self.base;
        if (point.model.is_some() || point.device.is_some() || point.moves_devices()) && is_divided(base) {
            return Err(PlannerError::Unsupported {
                what: "an axis of models, devices or layouts from a deployment whose parts live in different memories",
                instead: "vary formats, engines and requests only, or start from a deployment without offloading",
            });
        }
        let mut deployment = base.clone();
        if let Some(model) = point.model {
            let native = *base.weights() == Deployment::native_weights(base.model());
            deployment = deployment.with_model(model.clone());
            if native {
                deployment = deployment.with_weights(Deployment::native_weights(model));
            }
        }
        if let Some(device) = point.device {
            let system = base.system().clone().with_device(device.clone());
            deployment = deployment.with_system(system);
        }
        if let Some(engine) = point.engine {
            deployment = deployment.with_engine(engine.clone());
        }
        if let Some(weights) = point.weights {
            deployment = deployment.with_weights(weights.clone());
        }
        if let Some(kv) = point.kv {
            deployment = deployment.with_kv(kv);
        }
        Ok(deployment)
    }
}

impl Point<'_> {
    /// Whether the number of devices follows from the axes.
    const fn moves_devices(&self) -> bool {
        self.count.is_some()
            || self.tensor_parallel.is_some()
            || self.pipeline_parallel.is_some()
            || self.data_parallel_attention.is_some()
    }
}

/// A system of `count` devices full of replicas.
pub(super) fn filled(replica: &Deployment, count: u32) -> Result<Deployment, PlannerError> {
    let system = replica.system().clone().with_count(count)?;
    let replicas = groups(count, replica.devices_per_replica())?;
    Ok(replica.clone().with_system(system).with_replicas(replicas))
}

/// How many groups there are of so many devices. A group of none is refused elsewhere, with the degree that is zero.
fn groups(devices: u32, group: u32) -> Result<u32, PlannerError> {
    match (devices.checked_div(group), devices.checked_rem(group)) {
        (Some(groups), Some(0)) => Ok(groups),
        (Some(_), _) => Err(PlannerError::DoesNotDivide { devices, group }),
        (None, _) => Ok(devices),
    }
}

fn is_divided(base: &Deployment) -> bool {
    base.is_divided() || base.offload() != Offload::None
}
