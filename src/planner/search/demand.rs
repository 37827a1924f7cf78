//! What has to be served.

use crate::planner::PlannerError;
use crate::serving::metrics::Metric;
use crate::serving::{Need, Server, ServingError, SteadyState, Target};
use crate::step::StepModel;
use crate::units::{RequestsPerSecond, Seconds};
use crate::workload::{Arrivals, Slo, Workload};

/// A load, and whether times are taken as predicted or longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    Rate(RequestsPerSecond),
    Users { count: u64, think: Seconds },
}

impl Load {
    /// The load of a workload; of a schedule its peak, since that has to be served too.
    pub(super) fn of(workload: &Workload) -> Result<Self, PlannerError> {
        match workload.arrivals() {
            Arrivals::ClosedLoop { concurrency, think_time, .. } => {
                Ok(Self::Users { count: *concurrency, think: *think_time })
            }
            arrivals => match arrivals.peak_rate() {
                Some(rate) if rate > RequestsPerSecond::ZERO => Ok(Self::Rate(rate)),
                _ => Err(PlannerError::Number {
                    what: "requests per second of the workload",
                    value: 0.0,
                    expected: "a rate or a number of clients: requests that are all there at once have no deadline",
                }),
            },
        }
    }

    /// The part of one of several replicas, at least one user.
    pub(super) fn share(self, replicas: u32) -> Self {
        match self {
            Self::Rate(rate) => Self::Rate(rate / f64::from(replicas)),
            Self::Users { count, think } => Self::Users { count: count.div_ceil(u64::from(replicas)), think },
        }
    }

    /// A share more of it.
    pub(super) fn grown(self, share: f64) -> Self {
        match self {
            Self::Rate(rate) => Self::Rate(rate * (1.0 + share)),
            Self::Users { count, think } => Self::Users { count: (count as f64 * (1.0 + share)).ceil() as u64, think },
        }
    }

    /// The same for a server whose times are not `factor` times as long: by the same unit of time, more comes.
    pub(super) fn slowed(self, factor: f64) -> Self {
        match self {
            Self::Rate(rate) => Self::Rate(rate * factor),
            Self::Users { count, think } => Self::Users { count, think: think / factor },
        }
    }

    /// The fewest replicas that any target needs, each of which answers so many requests per second at most.
    pub(super) fn fewest(self, max_rate: RequestsPerSecond) -> f64 {
        match self {
            Self::Rate(rate) => (rate / max_rate).ceil().max(1.0),
            Self::Users { .. } => 1.0,
        }
    }

    pub(super) fn need(self, server: &Server<'_>, target: &Target, most: u32) -> Result<Need, ServingError> {
        match self {
            Self::Rate(rate) => server.replicas_for_rate(rate, target, most),
            Self::Users { count, think } => server.replicas_for_users(count, think, target, most),
        }
    }

    pub(super) fn state(self, server: &Server<'_>, slo: &Slo) -> Result<SteadyState, ServingError> {
        match self {
            Self::Rate(rate) => server.open_loop(rate, slo),
            Self::Users { count, think } => server.closed_loop(count as f64, think, slo),
        }
    }
}

/// A server for the lengths and the prefix of a workload.
pub(super) fn server<'m>(model: &'m StepModel, workload: &Workload) -> Result<Server<'m>, ServingError> {
    match workload.prefix() {
        Some(prefix) => Server::with_prefix(model, workload.lengths(), prefix),
        None => Server::new(model, workload.lengths()),
    }
}

/// Whether times are those that are predicted, or the long end of their interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    Expected,
    Pessimistic,
}

/// By which factors times to first token and all others are longer than predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowness {
    pub(super) first_token: f64,
    pub(super) others: f64,
}

impl Slowness {
    /// As predicted.
    pub(super) const NONE: Self = Self { first_token: 1.0, others: 1.0 };

    /// Of nine of ten measurements at most.
    pub(super) fn of(server: &Server<'_>) -> Self {
        Self { first_token: server.uncertainty(true), others: server.uncertainty(false) }
    }

    /// A predicted latency as long as it may be.
    pub(super) fn of_metric(self, metric: Metric, predicted: Seconds) -> Seconds {
        match metric {
            Metric::Ttft => predicted * self.first_token,
            Metric::Tpot | Metric::Itl => predicted * self.others,
            Metric::E2e => predicted * self.first_token.max(self.others),
        }
    }

    /// What the predicted times have to keep so that the longer ones keep the target.
    pub(super) fn target(self, target: &Target) -> Result<Target, ServingError> {
        target.tightened(self.first_token, self.others)
    }
}
