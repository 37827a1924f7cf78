//! Why a deployment is not a plan.

use crate::memory::DoesNotFit;
use crate::planner::{PlannerError, ReplicaLayout};
use crate::serving::metrics::Metric;
use crate::serving::{ServingError, TargetBreach};
use crate::step::CompileError;
use crate::units::Bytes;
use serde::Serialize;
use std::fmt;

/// Why a deployment of one replica is refused, whatever the number of replicas.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The model cannot be laid out so.
    #[error("{layout}: {error}")]
    Layout {
        /// The layout.
        layout: ReplicaLayout,
        /// What is wrong with it.
        error: CompileError,
    },
    /// Not even one request of the longest kind fits.
    #[error("one request does not fit, short by {short_by} on a device")]
    Memory {
        /// Missing on each device where it is tightest.
        short_by: Bytes,
    },
    /// Requests are longer than the model allows.
    #[error("prompt and answer of up to {tokens} tokens, the model's context ends at {limit}")]
    Context {
        /// Tokens of the longest request.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// Already a request that is alone breaks the target, or with all replicas of the budget it is still broken.
    #[error("{0}")]
    Target(TargetBreach),
    /// Not even one replica, or not as many as the load needs.
    #[error("the budget is too small")]
    Budget,
    /// Nobody's price of the device is known.
    #[error("no price of {device} is known")]
    NoPrice {
        /// Name of the device.
        device: String,
    },
    /// The power of the device is not known.
    #[error("the thermal design power of {device} is not known")]
    NoPower {
        /// Name of the device.
        device: String,
    },
    /// Answers of one token have no time per further token.
    #[error("there is no {metric} of such requests")]
    NoLatency {
        /// The latency that was to be small.
        metric: Metric,
    },
    /// Something else.
    #[error(transparent)]
    Failed(PlannerError),
}

impl Refusal {
    pub(super) fn of(error: ServingError) -> Self {
        match error {
            ServingError::DoesNotFit(reason) => Self::of_memory(&reason),
            ServingError::Context { tokens, limit } => Self::Context { tokens, limit },
            other => Self::Failed(other.into()),
        }
    }

    const fn of_memory(reason: &DoesNotFit) -> Self {
        Self::Memory { short_by: reason.short_by }
    }

    /// By which factor the target is missed, if that is the reason.
    pub(super) fn excess(&self) -> Option<f64> {
        match self {
            Self::Target(TargetBreach::Latency { limit, found: Some(found), .. }) => Some(*found / *limit),
            Self::Target(TargetBreach::Goodput { share, found, .. }) if *found > 0.0 => Some(share / found),
            _ => None,
        }
    }
}

/// What became of the deployments of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// Deployments of one replica in the space.
    pub deployments: u64,
    /// Cannot be laid out.
    pub layout: u64,
    /// Do not fit.
    pub memory: u64,
    /// Break the target already with one request.
    pub target: u64,
    /// Need more than the budget.
    pub budget: u64,
    /// Have no known price.
    pub no_price: u64,
    /// Have no known power, where the objective is energy.
    pub no_power: u64,
    /// Refused for another reason: contexts, latencies that do not exist.
    pub other: u64,
    /// Compiled, with the largest rate of a replica.
    pub compiled: u64,
    /// Of the compiled ones those whose steady states under the target were looked at.
    pub solved: u64,
    /// Left out or given up, since what is known of them is worse than what was found.
    pub outbid: u64,
}

impl Tally {
    pub(super) fn count(&mut self, refusal: &Refusal) {
        let counter = match refusal {
            Refusal::Layout { .. } => &mut self.layout,
            Refusal::Memory { .. } => &mut self.memory,
            Refusal::Target(_) => &mut self.target,
            Refusal::Budget => &mut self.budget,
            Refusal::NoPrice { .. } => &mut self.no_price,
            Refusal::NoPower { .. } => &mut self.no_power,
            _ => &mut self.other,
        };
        *counter += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deployments, compiled, solved, .. } = self;
        write!(f, "{deployments} deployments of a replica, {compiled} compiled, {solved} solved under load")?;
        let counts = [
            (self.layout, "cannot be laid out"),
            (self.memory, "do not fit"),
            (self.target, "miss the target"),
            (self.budget, "are beyond the budget"),
            (self.no_price, "have no price"),
            (self.no_power, "have no known power"),
            (self.other, "cannot serve such requests"),
            (self.outbid, "cost more than what was found"),
        ];
        counts.iter().filter(|(count, _)| *count > 0).try_for_each(|(count, what)| write!(f, "; {count} {what}"))
    }
}
