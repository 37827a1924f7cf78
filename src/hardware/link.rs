//! What connects devices.

use crate::profile::Provenance;
use crate::units::BytesPerSecond;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The technology of a link between devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LinkKind {
    /// NVIDIA NVLink on a baseboard or in a rack, with or without NVSwitch.
    Nvlink,
    /// NVIDIA NVLink bridges across PCIe cards.
    NvlinkBridge,
    /// AMD Infinity Fabric (xGMI).
    InfinityFabric,
    /// Intel Xe Link.
    XeLink,
    /// Google TPU inter-chip interconnect.
    Ici,
    /// AWS NeuronLink.
    Neuronlink,
    /// Ethernet ports on the device itself, as on Intel Gaudi.
    Ethernet,
    /// Chip-to-chip links of other accelerators.
    C2c,
    /// The PCIe host link, device to device over a switch or the host.
    Pcie,
    /// The network between nodes (InfiniBand or Ethernet).
    Network,
}

impl LinkKind {
    /// The name in lower case, as in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvlink => "nvlink",
            Self::NvlinkBridge => "nvlink_bridge",
            Self::InfinityFabric => "infinity_fabric",
            Self::XeLink => "xe_link",
            Self::Ici => "ici",
            Self::Neuronlink => "neuronlink",
            Self::Ethernet => "ethernet",
            Self::C2c => "c2c",
            Self::Pcie => "pcie",
            Self::Network => "network",
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How the devices of a scale-up domain are wired; decides what a group smaller than the domain gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Topology {
    /// A switch (or a bridge between two): any group gets the whole bandwidth of its devices.
    #[default]
    Switched,
    /// A fixed share of the links to every other device of the domain: a group of `g` in a domain of `n` gets `(g-1)/(n-1)`.
    Mesh,
    /// A ring or torus: neighbours in every dimension. Taken at the whole bandwidth, which holds for groups that are rings in
    /// every dimension.
    Torus,
}

/// The link that limits a group of devices.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Link {
    /// Bandwidth of one device into the group, per direction.
    pub bandwidth: BytesPerSecond,
    /// The technology.
    pub kind: LinkKind,
    /// How the bandwidth was obtained.
    pub provenance: Provenance,
    /// What was supposed or left out, for the list of assumptions.
    pub note: Option<String>,
}

/// The links of a group of devices that may span nodes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupLinks {
    /// Devices of the group.
    pub size: u32,
    /// Devices of the group in one node, the last one perhaps in part.
    pub devices_per_node: u32,
    /// Nodes.
    pub nodes: u32,
    /// The link within a node; `None` if the group has one device in each.
    pub inside: Option<Link>,
    /// The network between the nodes; `None` if there is one node.
    pub across: Option<Link>,
}
