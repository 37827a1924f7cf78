//! How NCCL counts: bus bandwidth, steps, and the latencies by which its tuner chooses an algorithm.

use crate::units::Seconds;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Collective {
    /// Every device gets the sum of all messages.
    AllReduce,
    /// Every device gets the parts of all.
    AllGather,
    /// Every device gets its part of the sum.
    ReduceScatter,
    /// Every device gets a different part from each.
    AllToAll,
}

impl Collective {
    /// Bus bandwidth over algorithm bandwidth: how often each link moves the message, `2(n-1)/n` for an all-reduce, `(n-1)/n` for the
    /// others.
    ///
    /// Source: nccl-tests, doc/PERFORMANCE.md.
    ///
    /// ```
    /// use llm_roofline::collective::Collective;
    /// assert_eq!(Collective::AllReduce.bus_bandwidth_factor(8), 1.75);
    /// assert_eq!(Collective::AllToAll.bus_bandwidth_factor(8), 0.875);
    /// ```
    pub fn bus_bandwidth_factor(self, devices: u64) -> f64 {
        if devices <= 1 {
            return 0.0;
        }
        self.passes() as f64 * (devices - 1) as f64 / devices as f64
    }

    /// Steps around a ring: `2(n-1)` for an all-reduce, `n-1` for the others.
    pub const fn ring_steps(self, devices: u64) -> u64 {
        self.passes() * devices.saturating_sub(1)
    }

    const fn passes(self) -> u64 {
        match self {
            Self::AllReduce => 2,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => 1,
        }
    }
}

/// The latency model of NCCL's tuner for one algorithm and protocol: a base and hops.
///
/// Source: NVIDIA/nccl, src/graph/tuning.cc, which also has the constants by version, algorithm, protocol and link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclLatency {
    /// Time of a call without hops.
    pub base: Seconds,
    /// Time of a hop within a node.
    pub hop_inside: Seconds,
    /// Time of a hop between nodes.
    pub hop_across: Seconds,
}

impl NcclLatency {
    /// Around a ring of `devices` over `nodes`: `base + (steps - across) hop_inside + across hop_across`, where `across` are the steps
    /// around a ring of the nodes.
    ///
    /// ```
    /// use llm_roofline::{collective::{Collective, NcclLatency}, units::Seconds};
    /// let us = Seconds::from_micros;
    /// let low_latency = NcclLatency { base: us(6.6), hop_inside: us(0.6), hop_across: us(2.7) };
    /// assert_eq!(low_latency.ring(Collective::AllReduce, 8, 1).to_string(), "15.0 us");
    /// ```
    pub fn ring(&self, collective: Collective, devices: u64, nodes: u64) -> Seconds {
        let steps = collective.ring_steps(devices);
        let across = collective.ring_steps(nodes).min(steps);
        self.base + self.hop_inside * (steps - across) as f64 + self.hop_across * across as f64
    }

    /// All-reduce up and down a tree of nodes, a chain in each: `base + 2 ((devices/nodes - 1) hop_inside + log2(nodes) hop_across)`, with
    /// the logarithm rounded down.
    pub fn tree_all_reduce(&self, devices: u64, nodes: u64) -> Seconds {
        let nodes = nodes.clamp(1, devices.max(1));
        let chain = (devices / nodes).saturating_sub(1) as f64;
        self.base + (self.hop_inside * chain + self.hop_across * f64::from(nodes.ilog2())) * 2.0
    }
}
