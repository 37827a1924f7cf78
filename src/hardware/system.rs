//! Several equal devices and what connects them.

use super::{Device, GroupLinks, Link, LinkKind, Topology};
use crate::profile::Provenance;
use crate::units::BytesPerSecond;
use std::sync::Arc;

/// A system or a group in it that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// A number of devices is zero or beyond anything that exists.
    #[error("{key} is {value} devices, expected 1 to {limit}")]
    Count {
        /// What is counted.
        key: &'static str,
        /// The number.
        value: u32,
        /// The largest accepted number.
        limit: u32,
    },
    /// A bandwidth is zero, negative, not a number or infinite.
    #[error("scale-out bandwidth is {value}, expected a positive finite one, per device and direction")]
    ScaleOut {
        /// The bandwidth.
        value: BytesPerSecond,
    },
}

/// A number of equal devices and their links.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    device: Arc<Device>,
    count: u32,
    devices_per_node: u32,
    scale_out: Option<BytesPerSecond>,
}

const COUNT_LIMIT: u32 = 1 << 20;
/// The usual number of PCIe cards or modules in one server.
const CARDS_PER_NODE: u32 = 8;
/// One 400 Gbit/s InfiniBand port per device, as in DGX H100 and its successors.
const USUAL_SCALE_OUT: BytesPerSecond = BytesPerSecond::from_gb_per_second(50.0);

impl System {
    /// `count` devices. A node holds the whole scale-up domain of the device, and 8 devices if it has a host link.
    ///
    /// # Errors
    /// [`SystemError`] for no devices, or more than a million.
    pub fn new(device: impl Into<Arc<Device>>, count: u32) -> Result<Self, SystemError> {
        let device = device.into();
        let count = counted("count", count, COUNT_LIMIT)?;
        Ok(Self { devices_per_node: usual_node(&device), device, count, scale_out: None })
    }

    /// As many devices of another kind, on the same network if one was set, in nodes of the usual size.
    #[must_use]
    pub fn with_device(self, device: impl Into<Arc<Device>>) -> Self {
        let device = device.into();
        Self { devices_per_node: usual_node(&device), device, ..self }
    }

    /// Sets how many devices one node holds: none reaches beyond it over scale-up or host links. In rack-scale systems the rack is
    /// the node.
    ///
    /// # Errors
    /// [`SystemError`] for no devices, or more than a million.
    pub fn with_devices_per_node(self, devices: u32) -> Result<Self, SystemError> {
        Ok(Self { devices_per_node: counted("devices_per_node", devices, COUNT_LIMIT)?, ..self })
    }

    /// Sets the bandwidth of the network between nodes, per device and direction.
    ///
    /// # Errors
    /// [`SystemError`] for a bandwidth that is not positive and finite.
    pub fn with_scale_out(self, bandwidth: BytesPerSecond) -> Result<Self, SystemError> {
        if !(bandwidth > BytesPerSecond::ZERO && bandwidth.is_finite()) {
            return Err(SystemError::ScaleOut { value: bandwidth });
        }
        Ok(Self { scale_out: Some(bandwidth), ..self })
    }

    /// The same with another number of devices.
    ///
    /// # Errors
    /// [`SystemError`] for no devices, or more than a million.
    pub fn with_count(self, count: u32) -> Result<Self, SystemError> {
        Ok(Self { count: counted("count", count, COUNT_LIMIT)?, ..self })
    }

    /// The same with a variant of the device in the place of each; nodes and network stay as they are.
    #[must_use]
    pub fn with_changed_device(self, device: impl Into<Arc<Device>>) -> Self {
        Self { device: device.into(), ..self }
    }

    /// The device.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Number of devices.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Devices of one node.
    pub const fn devices_per_node(&self) -> u32 {
        self.devices_per_node
    }

    /// Nodes that the devices fill, the last one perhaps in part.
    pub const fn nodes(&self) -> u32 {
        self.count.div_ceil(self.devices_per_node)
    }

    /// The link that limits a tensor-parallel group of `group_size` neighbouring devices: scale-up within its domain, the host
    /// link within a node, the network beyond.
    ///
    /// A group of one needs no link, and gets the one that a group of two would use.
    ///
    /// # Formula
    /// In a mesh of `n` devices a group of `g` uses `(g-1)/(n-1)` of a device's scale-up bandwidth; elsewhere all of it.
    ///
    /// # Errors
    /// [`SystemError`] for a group of none, or larger than the system.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::hardware::{Device, LinkKind, System};
    /// # use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
    /// # let bandwidth = BytesPerSecond::from_gb_per_second(1555.0);
    /// # let peak = FlopsPerSecond::from_tflops_per_second(312.0);
    /// # let device = Device::from_specs("A100 SXM 40GB", Bytes::from_gb(40.0), bandwidth, peak)?;
    /// let link = System::new(device, 16)?.group_link(16)?; // nothing known of its links
    /// assert_eq!((link.kind, link.bandwidth.to_string()), (LinkKind::Network, "50.0 GB/s".into()));
    /// assert_eq!(link.note.as_deref(), Some("one 400 Gbit/s network port per device is assumed"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_link(&self, group_size: u32) -> Result<Link, SystemError> {
        let group = counted("group_size", group_size, self.count)?.max(2);
        let in_node = group <= self.devices_per_node;
        let scale_up = self.scale_up_link(group).filter(|_| in_node);
        let host = self.host_link().filter(|_| in_node);
        Ok(scale_up.or(host).unwrap_or_else(|| self.scale_out_link()))
    }

    /// The links of a group of `group_size` neighbouring devices: those within its nodes, and the network if it spans several.
    ///
    /// # Errors
    /// [`SystemError`] for a group of none, or larger than the system.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::{catalog::Catalog, hardware::{LinkKind, System}};
    /// let links = System::new(Catalog::embedded().device("h100-sxm-80gb")?, 16)?.group_links(16)?;
    /// assert_eq!((links.nodes, links.devices_per_node), (2, 8));
    /// assert_eq!(links.inside.unwrap().kind, LinkKind::Nvlink);
    /// assert_eq!(links.across.unwrap().kind, LinkKind::Network);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_links(&self, group_size: u32) -> Result<GroupLinks, SystemError> {
        let size = counted("group_size", group_size, self.count)?;
        let devices_per_node = size.min(self.devices_per_node);
        let nodes = size.div_ceil(devices_per_node);
        let inside = if devices_per_node > 1 { Some(self.group_link(devices_per_node)?) } else { None };
        let across = (nodes > 1).then(|| self.scale_out_link());
        Ok(GroupLinks { size, devices_per_node, nodes, inside, across })
    }

    /// The link between two devices that are `distance` apart (1 for neighbours), such as the same device of two pipeline stages.
    ///
    /// # Formula
    /// In a mesh of `n` devices a pair has `1/(n-1)` of a device's scale-up bandwidth; elsewhere all of it.
    ///
    /// # Errors
    /// [`SystemError`] for no distance, or one that leads out of the system.
    pub fn pair_link(&self, distance: u32) -> Result<Link, SystemError> {
        let distance = counted("distance", distance, self.count.saturating_sub(1))?;
        let near = |domain: u32| distance < domain && distance < self.devices_per_node;
        if self.device.scale_up().is_some_and(|scale_up| near(scale_up.domain)) {
            return self.group_link(2);
        }
        let host = self.host_link().filter(|_| near(u32::MAX));
        Ok(host.unwrap_or_else(|| self.scale_out_link()))
    }

    fn scale_up_link(&self, group: u32) -> Option<Link> {
        let scale_up = self.device.scale_up().filter(|scale_up| group <= scale_up.domain)?;
        let share = match scale_up.topology {
            Topology::Mesh => f64::from(group - 1) / f64::from(scale_up.domain - 1),
            Topology::Switched | Topology::Torus => 1.0,
        };
        Some(Link {
            bandwidth: scale_up.bandwidth.value * share,
            kind: scale_up.kind,
            provenance: scale_up.bandwidth.kind,
            note: scale_up.bandwidth.note.clone(),
        })
    }

    fn host_link(&self) -> Option<Link> {
        let host = self.device.host_link()?;
        Some(Link {
            bandwidth: host.bandwidth.value,
            kind: LinkKind::Pcie,
            provenance: host.bandwidth.kind,
            note: Some(format!("devices exchange data over {}", host.kind)),
        })
    }

    /// The link between nodes: what the caller set, the device's own port, or one usual network port per device.
    pub fn scale_out_link(&self) -> Link {
        let kind = LinkKind::Network;
        if let Some(bandwidth) = self.scale_out {
            let note = Some("network bandwidth given by the caller".into());
            return Link { bandwidth, kind, provenance: Provenance::Assumed, note };
        }
        if let Some(own) = &self.device.profile().links.scale_out {
            return Link { bandwidth: own.value, kind, provenance: own.kind, note: own.note.clone() };
        }
        let note = Some("one 400 Gbit/s network port per device is assumed".into());
        Link { bandwidth: USUAL_SCALE_OUT, kind, provenance: Provenance::Assumed, note }
    }
}

/// The whole scale-up domain of the device, and 8 devices if it has a host link.
fn usual_node(device: &Device) -> u32 {
    let domain = device.scale_up().map_or(1, |scale_up| scale_up.domain);
    let cards = if device.host_link().is_some() { CARDS_PER_NODE } else { 1 };
    domain.max(cards)
}

const fn counted(key: &'static str, value: u32, limit: u32) -> Result<u32, SystemError> {
    if value == 0 || value > limit { Err(SystemError::Count { key, value, limit }) } else { Ok(value) }
}
