//! How far an engine's collectives stay from the links' bandwidth, and what a call costs besides.

use super::error::{self, CollectiveError};
use crate::units::Seconds;

/// An algorithm whose number of steps does not depend on the group: `latency + latency_per_device * n` and a share of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Algorithm {
    /// Time without data, whatever the group.
    pub latency: Seconds,
    /// Further time without data for every device of the group.
    pub latency_per_device: Seconds,
    /// Share of the link bandwidth reached, above 0 and at most 1.
    pub efficiency: f64,
}

/// An algorithm that passes the message from neighbour to neighbour: `latency + hops * hop_latency` and a share of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    /// Time without data, whatever the group.
    pub latency: Seconds,
    /// Time of one hop without data.
    pub hop_latency: Seconds,
    /// Share of the link bandwidth reached, above 0 and at most 1.
    pub efficiency: f64,
}

/// A reduction inside the switch (NVLink SHARP, "NVLS"; TensorRT-LLM MultiShot): each device sends its message once and receives the
/// sum once, `latency + M / (efficiency * B)`, however many devices there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InSwitchReduction {
    /// Time without data.
    pub latency: Seconds,
    /// Share of the link bandwidth reached, above 0 and at most 1.
    pub efficiency: f64,
    /// Smallest group for which it is used.
    pub minimum_devices: u64,
}

/// What calls of an engine's collectives take within a node: latencies, shares of the link bandwidth, corrections.
///
/// The formulas are at the methods of [`Group`](super::Group). `M` is the message, `n` the devices, `B` a link per direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveLaw {
    /// All-reduce in which every device reads the messages of all others (custom all-reduce); absent where devices cannot read each
    /// other's memory.
    pub one_shot: Option<Algorithm>,
    /// All-reduce as a reduce-scatter and an all-gather in one kernel; absent where devices cannot read each other's memory.
    pub two_shot: Option<Algorithm>,
    /// All-reduce around a ring: what always works.
    pub ring: Ring,
    /// All-reduce by the switch, where it can.
    pub in_switch: Option<InSwitchReduction>,
    /// All-gather and reduce-scatter as calls of their own.
    pub gather: Algorithm,
    /// Exchange of different parts between all devices (tokens to their experts and back).
    pub all_to_all: Algorithm,
    /// From one device to another (pipeline stages).
    pub point_to_point: Algorithm,
    /// Added to every call.
    pub extra: Seconds,
    /// Multiplies the time of every call, `extra` included.
    pub factor: f64,
}

impl Algorithm {
    /// Full bandwidth after a fixed latency.
    pub const fn textbook(latency: Seconds) -> Self {
        Self { latency, latency_per_device: Seconds::ZERO, efficiency: 1.0 }
    }

    /// Time without data in a group of `devices`.
    pub fn latency_of(&self, devices: u64) -> Seconds {
        self.latency + self.latency_per_device * devices as f64
    }

    fn check(&self, [latency, per_device, efficiency]: [&'static str; 3]) -> Result<(), CollectiveError> {
        error::time(latency, self.latency)?;
        error::time(per_device, self.latency_per_device)?;
        error::share(efficiency, self.efficiency)
    }
}

impl Ring {
    /// Full bandwidth after so long per hop.
    pub const fn textbook(hop_latency: Seconds) -> Self {
        Self { latency: Seconds::ZERO, hop_latency, efficiency: 1.0 }
    }

    /// Time of so many hops without data.
    pub fn latency_of(&self, hops: u64) -> Seconds {
        self.latency + self.hop_latency * hops as f64
    }

    pub(super) fn check(&self, [latency, hop, efficiency]: [&'static str; 3]) -> Result<(), CollectiveError> {
        error::time(latency, self.latency)?;
        error::time(hop, self.hop_latency)?;
        error::share(efficiency, self.efficiency)
    }
}

impl InSwitchReduction {
    /// Two steps whatever the group: a reduce-scatter and an all-gather by multicast.
    ///
    /// Source: NVIDIA, 3x Faster AllReduce with NVSwitch and TensorRT-LLM MultiShot (2024): 2 steps against `2n - 2` around a ring.
    pub fn multi_shot(step_latency: Seconds, efficiency: f64, minimum_devices: u64) -> Self {
        Self { latency: step_latency * 2.0, efficiency, minimum_devices }
    }
}

macro_rules! keys {
    ($name:literal, $per:literal) => {
        [concat!($name, ".latency"), concat!($name, ".", $per), concat!($name, ".efficiency")]
    };
}

impl CollectiveLaw {
    /// Full bandwidth and `hop_latency` per step: one for one-shot, gather and exchange, two for two-shot, `2(n-1)` around a ring.
    pub fn textbook(hop_latency: Seconds) -> Self {
        let one_step = Algorithm::textbook(hop_latency);
        Self {
            one_shot: Some(one_step),
            two_shot: Some(Algorithm::textbook(hop_latency * 2.0)),
            ring: Ring::textbook(hop_latency),
            in_switch: None,
            gather: one_step,
            all_to_all: one_step,
            point_to_point: one_step,
            extra: Seconds::ZERO,
            factor: 1.0,
        }
    }

    /// Full bandwidth, no latency: the ideal engine.
    pub fn ideal() -> Self {
        Self::textbook(Seconds::ZERO)
    }

    /// Whether every number is one that a law can have.
    ///
    /// # Errors
    /// [`CollectiveError`] for shares outside (0, 1], times that are negative or not finite, a factor that is not positive.
    pub fn check(&self) -> Result<(), CollectiveError> {
        if let Some(one_shot) = &self.one_shot {
            one_shot.check(keys!("one_shot", "latency_per_device"))?;
        }
        if let Some(two_shot) = &self.two_shot {
            two_shot.check(keys!("two_shot", "latency_per_device"))?;
        }
        self.ring.check(keys!("ring", "hop_latency"))?;
        if let Some(in_switch) = &self.in_switch {
            error::time("in_switch.latency", in_switch.latency)?;
            error::share("in_switch.efficiency", in_switch.efficiency)?;
        }
        self.gather.check(keys!("gather", "latency_per_device"))?;
        self.all_to_all.check(keys!("all_to_all", "latency_per_device"))?;
        self.point_to_point.check(keys!("point_to_point", "latency_per_device"))?;
        error::time("extra", self.extra)?;
        let possible = self.factor > 0.0 && self.factor.is_finite();
        if possible { Ok(()) } else { Err(CollectiveError::Factor { value: self.factor }) }
    }
}
