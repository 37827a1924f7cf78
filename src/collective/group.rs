//! A group of devices and what its collectives take.

use super::error::{self, CollectiveError};
use super::law::{Algorithm, CollectiveLaw, Ring};
use super::{AllReduce, AlphaBeta, Collective};
use crate::hardware::{GroupLinks, Link, LinkKind};
use crate::units::{Bytes, BytesPerSecond, Seconds};

/// A group of devices that exchange data over equal links, within a node or over several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Devices.
    pub size: u64,
    /// Bandwidth of one device's link within its node, per direction.
    pub bandwidth: BytesPerSecond,
    /// What calls take.
    pub law: CollectiveLaw,
    /// Set where devices cannot reach each other but through the memory of the host (PCIe without peer-to-peer access).
    pub host_staging: Option<HostStaging>,
    /// The network, for a group over several nodes.
    pub network: Option<Network>,
}

/// Transfers staged through host memory: what the host moves is shared by all devices that communicate at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostStaging {
    /// Devices of the node that communicate at the same time, those of other groups included.
    pub sharing_devices: u64,
    /// All of them together move this share of one device's link bandwidth, above 0 and at most 1.
    pub efficiency: f64,
}

/// The network between the nodes of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Nodes, each with an equal part of the group.
    pub nodes: u64,
    /// Bandwidth of one device's network port, per direction.
    pub bandwidth: BytesPerSecond,
    /// Latency and share of the bandwidth reached.
    pub ring: Ring,
}

impl Group {
    /// Equal links at full bandwidth, `hop_latency` per step.
    pub fn textbook(size: u64, bandwidth: BytesPerSecond, hop_latency: Seconds) -> Self {
        Self { size, bandwidth, law: CollectiveLaw::textbook(hop_latency), host_staging: None, network: None }
    }

    /// A group over the links that [`System::group_links`](crate::hardware::System::group_links) found.
    pub fn over(links: &GroupLinks, law: CollectiveLaw, network: Ring) -> Self {
        let across = links.across.as_ref().map(|link| link.bandwidth);
        let inside = links.inside.as_ref().map(|link| link.bandwidth);
        Self {
            size: u64::from(links.size),
            bandwidth: inside.or(across).unwrap_or(BytesPerSecond::ZERO),
            law,
            host_staging: None,
            network: across.map(|bandwidth| Network { nodes: u64::from(links.nodes), bandwidth, ring: network }),
        }
    }

    /// Two devices at the ends of this link, such as one device in each of two pipeline stages
    /// ([`System::pair_link`](crate::hardware::System::pair_link)).
    pub fn pair(link: &Link, law: CollectiveLaw, network: Ring) -> Self {
        let Link { bandwidth, kind, .. } = *link;
        let network = (kind == LinkKind::Network).then_some(Network { nodes: 2, bandwidth, ring: network });
        Self { size: 2, bandwidth, law, host_staging: None, network }
    }

    /// With transfers staged through host memory.
    #[must_use]
    pub const fn with_host_staging(self, staging: HostStaging) -> Self {
        Self { host_staging: Some(staging), ..self }
    }

    /// With this network between its nodes.
    #[must_use]
    pub const fn with_network(self, network: Network) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Whether every number is one that a group can have.
    ///
    /// # Errors
    /// [`CollectiveError`] for bandwidths, shares and times out of range, and for more nodes than devices.
    pub fn check(&self) -> Result<(), CollectiveError> {
        self.law.check()?;
        if self.size > 1 {
            error::bandwidth("bandwidth", self.bandwidth)?;
        }
        if let Some(staging) = &self.host_staging {
            error::share("host_staging.efficiency", staging.efficiency)?;
        }
        let Some(network) = &self.network else { return Ok(()) };
        error::bandwidth("network.bandwidth", network.bandwidth)?;
        network.ring.check(["network.latency", "network.hop_latency", "network.efficiency"])?;
        let (nodes, size) = (network.nodes, self.size);
        if (1..=size).contains(&nodes) { Ok(()) } else { Err(CollectiveError::Nodes { nodes, size }) }
    }

    /// All-reduce of a message that every device holds: the fastest of the algorithms that the law has.
    ///
    /// # Formula
    /// For `n` devices, message `M`, link `B` per direction, and latency `a` and efficiency `e` of each algorithm:
    /// - one-shot: `a + (n-1) M/(e B)`
    /// - two-shot (reduce-scatter, then all-gather): `a + 2 (n-1)/n M/(e B)`
    /// - ring: `a + 2 (n-1) hop + 2 (n-1)/n M/(e B)`
    /// - reduction in the switch: `a + M/(e B)`
    ///
    /// Over `k` nodes of `g` devices: reduce-scatter in each node, all-reduce of the shards over the network
    /// (`a + 2 (k-1) hop + 2 (k-1)/k M/(g e B_network)`), all-gather in each node. Staged through host memory, only the ring runs,
    /// at each device's share of what the host moves. Then `factor * (time + extra)`. One device needs none.
    ///
    /// Source: nccl-tests, PERFORMANCE.md (bus bandwidth factor `2(n-1)/n`).
    ///
    /// ```
    /// use llm_roofline::{collective::Group, units::*};
    /// let nvlink = Group::textbook(8, BytesPerSecond::from_gb_per_second(450.0), Seconds::ZERO);
    /// assert_eq!(nvlink.all_reduce(Bytes::from_mb(16.0)).to_string(), "62.2 us");
    /// ```
    pub fn all_reduce(&self, message: Bytes) -> Seconds {
        self.compile_all_reduce().time(message)
    }

    /// All-gather of a message of which every device holds an equal part: `a + (n-1)/n M/(e B)`.
    ///
    /// Over `k` nodes of `g` devices first over the network, `a + (k-1) hop + (k-1)/k M/(g e B_network)`, then in each node.
    pub fn all_gather(&self, message: Bytes) -> Seconds {
        self.compile_gather().time(message)
    }

    /// Reduce-scatter of a message that every device holds: the way back of an all-gather, and as long.
    pub fn reduce_scatter(&self, message: Bytes) -> Seconds {
        self.compile_gather().time(message)
    }

    /// All-to-all of a buffer of this size on every device, an equal part of it for each: `a + (n-1)/n M/(e B)`.
    ///
    /// Over several nodes of `g` devices the part for other nodes, `(n-g)/n M`, goes over the network while the rest stays inside:
    /// the larger latency and the larger time per byte of the two.
    pub fn all_to_all(&self, buffer: Bytes) -> Seconds {
        self.compile_all_to_all().time(buffer)
    }

    /// A message from one device of the group to another, over the network if the group has one: `a + M/(e B)`.
    pub fn point_to_point(&self, message: Bytes) -> Seconds {
        self.compile_point_to_point().time(message)
    }

    /// [`all_reduce`](Self::all_reduce) as lines in the message, to be priced often.
    pub fn compile_all_reduce(&self) -> AllReduce {
        let (n, law) = (self.size, &self.law);
        if n <= 1 {
            return AllReduce::FREE;
        }
        if let Some(network) = self.spanning() {
            let inside = self.gather_inside(self.devices_per_node());
            let line = self.called(inside + self.across(&network, 2) + inside);
            return AllReduce::fastest(line, [None; 3]);
        }
        let bandwidth = self.inside_bandwidth();
        let through_all = Collective::AllReduce.bus_bandwidth_factor(n);
        let ring = AlphaBeta {
            latency: law.ring.latency_of(Collective::AllReduce.ring_steps(n)),
            seconds_per_byte: per_byte(through_all, bandwidth, law.ring.efficiency),
        };
        let line = |algorithm: Algorithm, traffic| self.called(self.inside(&algorithm, n, traffic));
        let direct = |algorithm: Option<Algorithm>| algorithm.filter(|_| self.host_staging.is_none());
        let in_switch = law.in_switch.filter(|switch| n >= switch.minimum_devices && self.host_staging.is_none());
        let others = [
            direct(law.one_shot).map(|one_shot| line(one_shot, (n - 1) as f64)),
            direct(law.two_shot).map(|two_shot| line(two_shot, through_all)),
            in_switch.map(|switch| {
                let seconds_per_byte = per_byte(1.0, bandwidth, switch.efficiency);
                self.called(AlphaBeta { latency: switch.latency, seconds_per_byte })
            }),
        ];
        AllReduce::fastest(self.called(ring), others)
    }

    /// [`all_gather`](Self::all_gather) and [`reduce_scatter`](Self::reduce_scatter) as a line in the message.
    pub fn compile_gather(&self) -> AlphaBeta {
        if self.size <= 1 {
            return AlphaBeta::FREE;
        }
        let inside = self.gather_inside(self.devices_per_node());
        self.called(self.spanning().map_or(inside, |network| self.across(&network, 1) + inside))
    }

    /// [`all_to_all`](Self::all_to_all) as a line in the buffer.
    pub fn compile_all_to_all(&self) -> AlphaBeta {
        let (n, per_node) = (self.size, self.devices_per_node());
        if n <= 1 {
            return AlphaBeta::FREE;
        }
        let (all, near) = (n as f64, per_node as f64);
        let inside = match per_node {
            1 => AlphaBeta::FREE,
            _ => self.inside(&self.law.all_to_all, n, (near - 1.0) / all),
        };
        let Some(network) = self.spanning() else { return self.called(inside) };
        let far = AlphaBeta {
            latency: network.ring.latency_of(1),
            seconds_per_byte: per_byte((all - near) / all, network.bandwidth, network.ring.efficiency),
        };
        self.called(inside.beside(far))
    }

    /// [`point_to_point`](Self::point_to_point) as a line in the message.
    pub fn compile_point_to_point(&self) -> AlphaBeta {
        if self.size <= 1 {
            return AlphaBeta::FREE;
        }
        self.called(match self.spanning() {
            None => self.inside(&self.law.point_to_point, 2, 1.0),
            Some(network) => AlphaBeta {
                latency: network.ring.latency_of(1),
                seconds_per_byte: per_byte(1.0, network.bandwidth, network.ring.efficiency),
            },
        })
    }

    /// The network, if the group needs it.
    fn spanning(&self) -> Option<Network> {
        self.network.filter(|network| network.nodes > 1)
    }

    fn devices_per_node(&self) -> u64 {
        self.spanning().map_or(self.size, |network| self.size.div_ceil(network.nodes))
    }

    /// Bandwidth of one device within its node, as far as the host lets it.
    fn inside_bandwidth(&self) -> BytesPerSecond {
        match self.host_staging {
            Some(staging) => self.bandwidth * (staging.efficiency / staging.sharing_devices.max(1) as f64),
            None => self.bandwidth,
        }
    }

    /// An algorithm among `devices` of a node that moves `traffic` times the message over each link.
    fn inside(&self, algorithm: &Algorithm, devices: u64, traffic: f64) -> AlphaBeta {
        AlphaBeta {
            latency: algorithm.latency_of(devices),
            seconds_per_byte: per_byte(traffic, self.inside_bandwidth(), algorithm.efficiency),
        }
    }

    fn gather_inside(&self, devices: u64) -> AlphaBeta {
        if devices <= 1 {
            return AlphaBeta::FREE;
        }
        self.inside(&self.law.gather, devices, Collective::AllGather.bus_bandwidth_factor(devices))
    }

    /// So many passes around the nodes, each device with its shard.
    fn across(&self, network: &Network, passes: u64) -> AlphaBeta {
        let traffic = passes as f64 * Collective::AllGather.bus_bandwidth_factor(network.nodes);
        AlphaBeta {
            latency: network.ring.latency_of(passes * Collective::AllGather.ring_steps(network.nodes)),
            seconds_per_byte: per_byte(
                traffic / self.devices_per_node() as f64,
                network.bandwidth,
                network.ring.efficiency,
            ),
        }
    }

    fn called(&self, line: AlphaBeta) -> AlphaBeta {
        let CollectiveLaw { extra, factor, .. } = self.law;
        AlphaBeta { latency: (line.latency + extra) * factor, seconds_per_byte: line.seconds_per_byte * factor }
    }
}

fn per_byte(traffic: f64, bandwidth: BytesPerSecond, efficiency: f64) -> f64 {
    traffic / (bandwidth.as_bytes_per_second() * efficiency)
}
