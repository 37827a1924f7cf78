//! What a data sheet or an engine says about a deployment, one number at a time, and the same deployment with that number changed.

use super::place::UnequalDevices;
use super::{Deployment, Host, Offload, Store};
use crate::format::NumberFormat;
use crate::hardware::{Device, DeviceError, DeviceProfile, SystemError};
use crate::profile::Sourced;
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::Mul;
use std::sync::Arc;

/// A number that a deployment's speed, size or cost depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Spec {
    /// Peak bandwidth of the devices' memory.
    MemoryBandwidth,
    /// Size of the devices' memory, as sold and as programs see it.
    MemoryCapacity,
    /// Every arithmetic peak of the devices at once, those of other accumulations included.
    ComputeAll,
    /// The arithmetic peak of one format, with any accumulation.
    Compute(NumberFormat),
    /// Electrical power that the devices may take: it bounds arithmetic under engines whose profiles say how much a watt sustains.
    Power,
    /// The fast link between neighbouring devices.
    ScaleUp,
    /// The link between a device and its host.
    HostLink,
    /// The network between nodes.
    ScaleOut,
    /// The host's processor: bandwidth of the main memory and all arithmetic peaks together.
    HostProcessor,
    /// The disk that weights are read from in every step.
    Storage,
    /// Every time in the engine's profile: launches, latencies, work of the host between steps. A time, not a rate.
    Overhead,
    /// Price of a device for an hour. No part of a deployment; metrics of cost take it.
    Price,
}

/// A number that cannot be changed as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The deployment has no such thing.
    #[error("the deployment has no {spec}")]
    Absent {
        /// What it lacks.
        spec: Spec,
    },
    /// A factor that makes no number of it.
    #[error("{spec} times {factor}, expected a finite factor above 0")]
    Factor {
        /// What was to be changed.
        spec: Spec,
        /// The factor.
        factor: f64,
    },
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no such system.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl Spec {
    /// Those that exist in a deployment, [`Price`](Self::Price) included.
    ///
    /// ```
    /// use llm_roofline::deployment::Spec;
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("a100-sxm-80gb")?, 1)?;
    /// let specs = Spec::all(&Deployment::new(catalog.model("llama-3.1-8b")?, system));
    /// assert!(specs.contains(&Spec::MemoryBandwidth) && !specs.contains(&Spec::ScaleUp)); // one device talks to nobody
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn all(deployment: &Deployment) -> Vec<Self> {
        let mut all = vec![Self::MemoryBandwidth, Self::MemoryCapacity];
        all.extend(Self::resources(deployment).into_iter().filter(|spec| *spec != Self::MemoryBandwidth));
        let place = all.iter().position(|spec| *spec == Self::ComputeAll).map_or(all.len(), |place| place + 1);
        all.splice(place..place, Self::formats(deployment));
        all.push(Self::Price);
        all
    }

    /// Those that the time of a step is made of, each second of it counted once: all rates and all times.
    pub fn resources(deployment: &Deployment) -> Vec<Self> {
        let all = [
            Self::MemoryBandwidth,
            Self::ComputeAll,
            Self::Power,
            Self::ScaleUp,
            Self::HostLink,
            Self::ScaleOut,
            Self::HostProcessor,
            Self::Storage,
            Self::Overhead,
        ];
        all.into_iter().filter(|spec| spec.exists_in(deployment)).collect()
    }

    /// The arithmetic peaks by format that a device of the deployment has.
    pub fn formats(deployment: &Deployment) -> Vec<Self> {
        let all = NumberFormat::ALL.into_iter().map(Self::Compute);
        all.filter(|spec| spec.exists_in(deployment)).collect()
    }

    /// Whether less of it is better: times and prices.
    pub const fn is_cost(self) -> bool {
        matches!(self, Self::Overhead | Self::Price)
    }

    /// The factor that makes it `better` times as good.
    pub fn improved(self, better: f64) -> f64 {
        if self.is_cost() { better.recip() } else { better }
    }

    /// Whether it means anything there.
    pub fn exists_in(self, deployment: &Deployment) -> bool {
        let some_device = |has: &dyn Fn(&Device) -> bool| deployment.devices().any(|device| has(device));
        let several = deployment.system().count() > 1;
        match self {
            Self::MemoryBandwidth | Self::MemoryCapacity | Self::ComputeAll | Self::Price => true,
            Self::Compute(format) => some_device(&|device| device.peak(format).is_some()),
            Self::Power => some_device(&|device| device.tdp().is_some()),
            Self::ScaleUp => several && some_device(&|device| device.scale_up().is_some()),
            Self::HostLink => {
                let used = several || deployment.offload() != Offload::None;
                used && some_device(&|device| device.host_link().is_some())
            }
            Self::ScaleOut => several,
            Self::HostProcessor => deployment.host().is_some(),
            Self::Storage => matches!(deployment.offload(), Offload::Stream { from: Store::Storage { .. }, .. }),
            Self::Overhead => {
                deployment.engine().has_times() || deployment.host().is_some_and(|host| host.engine().has_times())
            }
        }
    }

    /// The same deployment with this number times a factor; [`Price`](Self::Price) leaves it as it is.
    ///
    /// # Errors
    /// [`SpecError`] for a factor that is not finite and above 0, for what the deployment does not have, and for devices beyond any that exist.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::deployment::Spec;
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?);
    /// let faster = Spec::MemoryBandwidth.times(2.0, &deployment)?;
    /// let step = |deployment| StepModel::compile(deployment).map(|model| model.decode_step(1, 1000).total());
    /// assert!((step(&deployment)? / step(&faster)? - 2.0).abs() < 1e-9); // one sequence decodes at the speed of the memory
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn times(self, factor: f64, deployment: &Deployment) -> Result<Deployment, SpecError> {
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(SpecError::Factor { spec: self, factor });
        }
        if !self.exists_in(deployment) {
            return Err(SpecError::Absent { spec: self });
        }
        let mut changed = deployment.clone();
        match self {
            Self::Price => {}
            Self::Overhead => {
                changed.engine = Arc::new(changed.engine.with_times_scaled(factor));
                changed.host =
                    changed.host.map(|host| Host::new(host.device().clone(), host.engine().with_times_scaled(factor)));
            }
            Self::HostProcessor => {
                if let Some(host) = &changed.host {
                    let device = changed_device(host.device(), |profile| {
                        Self::MemoryBandwidth.change(profile, factor);
                        Self::ComputeAll.change(profile, factor);
                    })?;
                    changed.host = Some(Host::new(device, host.engine().clone()));
                }
            }
            Self::Storage => {
                if let Offload::Stream { from: Store::Storage { bandwidth }, .. } = &mut changed.offload {
                    *bandwidth = *bandwidth * factor;
                }
            }
            Self::ScaleOut => {
                let bandwidth = changed.system.scale_out_link().bandwidth * factor;
                changed.system = changed.system.with_scale_out(bandwidth)?;
            }
            _ => {
                let change = |device: &Arc<Device>| changed_device(device, |profile| self.change(profile, factor));
                if let Some(UnequalDevices { devices, .. }) = &mut changed.unequal {
                    *devices = devices.iter().map(change).collect::<Result<_, _>>()?;
                }
                let device = change(changed.system.device())?;
                changed.system = changed.system.with_changed_device(device);
            }
        }
        Ok(changed)
    }

    /// Changes the line of a data sheet.
    fn change(self, profile: &mut DeviceProfile, factor: f64) {
        let DeviceProfile { memory, compute, links, power, .. } = profile;
        match self {
            Self::MemoryBandwidth => scale(Some(&mut memory.bandwidth), factor),
            Self::MemoryCapacity => {
                scale(Some(&mut memory.capacity), factor);
                scale(memory.usable.as_mut(), factor);
            }
            Self::ComputeAll => {
                for format in NumberFormat::ALL {
                    compute.get_mut(format).into_iter().flatten().for_each(|peak| scale(Some(peak), factor));
                }
            }
            Self::Compute(format) => {
                compute.get_mut(format).into_iter().flatten().for_each(|peak| scale(Some(peak), factor));
            }
            Self::Power => scale(power.tdp.as_mut(), factor),
            Self::ScaleUp => scale(links.scale_up.as_mut().map(|link| &mut link.bandwidth), factor),
            Self::HostLink => scale(links.host.as_mut().map(|link| &mut link.bandwidth), factor),
            _ => {}
        }
    }
}

fn changed_device(device: &Arc<Device>, change: impl FnOnce(&mut DeviceProfile)) -> Result<Arc<Device>, SpecError> {
    let mut profile = device.profile().clone();
    change(&mut profile);
    Ok(Arc::new(Device::new(profile)?))
}

fn scale<Q: Copy + Mul<f64, Output = Q>>(fact: Option<&mut Sourced<Q>>, factor: f64) {
    if let Some(fact) = fact {
        fact.value = fact.value * factor;
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::MemoryBandwidth => "memory bandwidth",
            Self::MemoryCapacity => "memory capacity",
            Self::ComputeAll => "arithmetic",
            Self::Compute(format) => return f.pad(&format!("{} arithmetic", format.name())),
            Self::Power => "power",
            Self::ScaleUp => "scale-up link",
            Self::HostLink => "host link",
            Self::ScaleOut => "network",
            Self::HostProcessor => "host processor",
            Self::Storage => "storage",
            Self::Overhead => "overhead",
            Self::Price => "price",
        };
        f.pad(name)
    }
}

/// As a key: `memory_bandwidth`, `bf16_arithmetic`.
impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string().replace([' ', '-'], "_"))
    }
}
