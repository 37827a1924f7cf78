//! What a search makes as small as possible.

use crate::serving::Statistic;
use crate::serving::metrics::Metric;
use serde::Serialize;
use std::fmt;

/// What should be as small as possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Objective {
    /// What all devices cost per hour, idle or not. For a given load it is also the cost per token.
    #[default]
    CostPerHour,
    /// What a million output tokens cost if every replica had as much to do as the limits allow: of a service that is large, or that shares its
    /// devices. Plans still have whole replicas for the load.
    CostPerMillionTokens,
    /// Devices.
    Devices,
    /// Energy per output token, idle devices included.
    Energy,
    /// A latency, with all the devices that the budget allows: needs a limit of devices or of costs.
    Latency(Metric, Statistic),
}

impl Objective {
    /// Whether it is one of money.
    pub(super) const fn is_cost(self) -> bool {
        matches!(self, Self::CostPerHour | Self::CostPerMillionTokens)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CostPerHour => f.pad("cost per hour"),
            Self::CostPerMillionTokens => f.pad("cost per million output tokens of full replicas"),
            Self::Devices => f.pad("devices"),
            Self::Energy => f.pad("energy per output token"),
            Self::Latency(metric, statistic) => write!(f, "{statistic} {metric}"),
        }
    }
}

/// How good a plan is: by the objective, then by cost, then by devices, then by its place in the space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    pub(super) value: f64,
    pub(super) cost: f64,
    pub(super) devices: u32,
    pub(super) index: usize,
}

impl Score {
    /// Smaller is better; nothing in it is NaN.
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let by_value = self.value.total_cmp(&other.value).then(self.cost.total_cmp(&other.cost));
        by_value.then(self.devices.cmp(&other.devices)).then(self.index.cmp(&other.index))
    }
}
