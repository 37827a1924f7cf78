//! A plan: a deployment of a replica, how many of it, and what to expect of them.

use super::candidate::{Dropped, Valued};
use super::demand::{Load, Outlook, Slowness, server};
use super::loss::Loss;
use super::objective::{Objective, Score};
use super::{Refusal, Search};
use crate::deployment::Deployment;
use crate::numeric::smallest_where;
use crate::planner::{Configuration, EnergyUse, Fleet, FleetPlan, PlannerError, Quote, TokenCost};
use crate::serving::metrics::LoadSummary;
use crate::serving::{Binding, Criterion, Need, Replicas, Router, Server, TargetBreach};
use crate::step::StepModel;
use crate::units::{RequestsPerSecond, UsdPerHour, UsdPerMillionTokens};
use crate::workload::Arrivals;
use serde::{Serialize, Serializer};
use std::fmt;

/// A deployment of one replica, how many replicas serve the load, and what to expect of them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// One replica.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// Replicas.
    pub replicas: u32,
    /// Devices of all replicas.
    pub devices: u32,
    /// Price of a device, if one is known.
    pub quote: Option<Quote>,
    /// What all devices cost, idle or not.
    pub usd_per_hour: Option<UsdPerHour>,
    /// What a million output tokens cost at this load, with everything that the devices cost on them.
    pub usd_per_million_output_tokens: Option<UsdPerMillionTokens>,
    /// The same if every replica had as much to do as the target allows.
    pub usd_per_million_output_tokens_full: Option<UsdPerMillionTokens>,
    /// What tokens of each kind cost a replica, and its idle time, if a price is known.
    pub token_cost: Option<TokenCost>,
    /// Replicas that follow the day, of a workload with a schedule.
    pub fleet: Option<FleetPlan>,
    /// What a replica draws, and the energy of its requests and tokens, if the power of the device is known.
    pub energy: Option<EnergyUse>,
    /// Requests per second that are served.
    pub rate: RequestsPerSecond,
    /// By what share the load could grow without another replica.
    pub headroom: f64,
    /// Share of their time for which replicas work.
    pub utilization: f64,
    /// The conditions of the target, each with what is expected: `p99 TTFT 320 ms of 1.00 s`.
    pub kept: Vec<String>,
    /// What keeps a replica from taking more.
    #[serde(serialize_with = "as_text")]
    pub binding: Binding,
    /// All replicas together in steady state.
    pub summary: LoadSummary,
    /// By which factor nine of ten measurements of the time to first token are longer at most, and those of other times.
    pub slowest: (f64, f64),
    /// Replicas that would be needed if all times were at the long end of their intervals; none if no number helped, or the budget ended.
    pub pessimistic_replicas: Option<u32>,
    /// What the simulation says.
    pub confirmation: Option<Confirmation>,
    /// Why another plan is better; none for the best.
    pub loss: Option<Loss>,
    #[serde(skip)]
    pub(super) score: Score,
}

/// A plan that was simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Confirmation {
    /// Requests that were simulated.
    pub requests: u64,
    /// Replicas that were simulated: of requests that come independently of each other, one with its part of them stands for all.
    pub replicas: u32,
    /// What came of it.
    pub summary: LoadSummary,
    /// Replicas that the plan got beyond those of the steady state.
    pub added_replicas: u32,
    /// What the simulation still breaks; empty for every plan that is returned.
    #[serde(serialize_with = "as_texts")]
    pub breaches: Vec<TargetBreach>,
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_texts<S: Serializer>(values: &[TargetBreach], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

impl Search<'_> {
    pub(super) fn assessed(&self, deployment: &Deployment) -> Result<Plan, Refusal> {
        let device = deployment.system().device();
        let candidate = self.candidate(0, device, deployment.devices_per_replica())?;
        let failed = |error: PlannerError| Refusal::Failed(error);
        deployment.check().map_err(|error| failed(PlannerError::Compile(error.into())))?;
        let Valued { score, replicas } =
            self.value(deployment, &candidate, Outlook::Expected, f64::INFINITY).map_err(|dropped| match dropped {
                Dropped::Refused(refusal) => refusal,
                Dropped::Outbid => Refusal::Budget,
            })?;
        self.valued_plan(deployment.clone(), Valued { score, replicas }).map_err(failed)
    }

    /// What to expect of a deployment that was looked at. Of the lowest latencies that the budget allows, the plan has as few replicas as come within 1 % of them.
    pub(super) fn valued_plan(&self, deployment: Deployment, valued: Valued) -> Result<Plan, PlannerError> {
        let Valued { mut score, mut replicas } = valued;
        if let Objective::Latency(metric, statistic) = self.objective {
            let model = StepModel::compile(&deployment)?;
            let server = server(&model, &self.workload)?;
            let found = |replicas: u64| {
                let state = self.load.share(replicas as u32).state(&server, &self.target.slo()).ok()?;
                let latency = statistic.of(&metric.of(&state.summary)?);
                self.target.is_met(&state).then_some(latency)
            };
            let enough = found(u64::from(replicas)).map(|least| least * 1.01);
            let fast =
                |replicas: u64| enough.is_some_and(|enough| found(replicas).is_some_and(|found| found <= enough));
            let fewest = smallest_where(1, u64::from(replicas), fast).unwrap_or(u64::from(replicas)) as u32;
            score.cost *= f64::from(fewest) / f64::from(replicas);
            score.devices = deployment.devices_per_replica().saturating_mul(fewest);
            replicas = fewest;
        }
        self.plan(deployment, replicas, score)
    }

    /// What to expect of so many replicas.
    pub(super) fn plan(&self, deployment: Deployment, replicas: u32, score: Score) -> Result<Plan, PlannerError> {
        let model = StepModel::compile(&deployment)?;
        let server = server(&model, &self.workload)?;
        let Expected { summary, rate, capacity, binding } = self.expected(&server, replicas)?;
        let devices = deployment.devices_per_replica().saturating_mul(replicas);
        let quote = self.prices.quote(deployment.system().device()).ok();
        let price = quote.as_ref().map(|quote| quote.usd_per_device_hour);
        let replica_hour =
            quote.as_ref().map(|of| of.usd_per_device_hour * f64::from(deployment.devices_per_replica()));
        let usd_per_hour = replica_hour.map(|price| price * f64::from(replicas));
        let outputs = self.workload.lengths().moments().output;
        let tokens = |rate: RequestsPerSecond| rate.token_rate(outputs);
        let each = rate / f64::from(replicas);
        let slow = Slowness::of(&server);
        let pessimistic =
            self.load.grown(self.headroom).slowed(slow.others).need(&server, &slow.target(&self.target)?, u32::MAX)?;
        Ok(Plan {
            configuration: Configuration::of(&deployment),
            replicas,
            devices,
            quote,
            usd_per_hour,
            usd_per_million_output_tokens: usd_per_hour.map(|price| price / tokens(rate)),
            usd_per_million_output_tokens_full: replica_hour.map(|price| price / tokens(capacity.rate)),
            token_cost: price.and_then(|price| TokenCost::new(&server, each, price).ok()),
            fleet: price.and_then(|price| self.fleet(capacity.rate, &deployment, price)),
            energy: self
                .power_of(deployment.system().device())
                .ok()
                .and_then(|power| EnergyUse::new(&power, &server, each).ok()),
            rate,
            headroom: capacity.share * f64::from(replicas) - 1.0,
            utilization: rate / (server.max_rate() * f64::from(replicas)),
            kept: self.target.criteria().filter_map(|criterion| kept(&criterion, &summary)).collect(),
            binding,
            summary,
            slowest: (slow.first_token, slow.others),
            pessimistic_replicas: match pessimistic {
                Need::Replicas(replicas) => Some(replicas),
                _ => None,
            },
            confirmation: None,
            loss: None,
            score,
        })
    }

    /// Replicas that follow the schedule of the workload, if it has one.
    fn fleet(&self, capacity: RequestsPerSecond, deployment: &Deployment, price: UsdPerHour) -> Option<FleetPlan> {
        let Arrivals::Schedule(schedule) = self.workload.arrivals() else { return None };
        let capacity = capacity / (1.0 + self.headroom);
        let fleet = Fleet::new(schedule, capacity, deployment.devices_per_replica(), price).ok()?;
        fleet.with_output_tokens(self.workload.lengths().moments().output).ok()?.plan().ok()
    }

    /// The steady state of all replicas, and what one can do under the target.
    fn expected(&self, server: &Server<'_>, replicas: u32) -> Result<Expected, PlannerError> {
        let slo = self.target.slo();
        let all = Replicas::new(server, replicas, Router::Random)?;
        Ok(match self.load {
            Load::Rate(rate) => {
                let found = server.max_rate_under(&self.target)?;
                let capacity = CapacityOfOne { rate: found.rate, share: found.rate / rate };
                let summary = all.open_loop(rate, &slo)?.summary;
                Expected { summary, rate, capacity, binding: found.binding }
            }
            Load::Users { count, think } => {
                let found = server.max_users_under(&self.target, think)?;
                let capacity = CapacityOfOne { rate: found.rate, share: found.concurrency / count as f64 };
                let state = all.closed_loop(count as f64, think, &slo)?;
                Expected { summary: state.summary, rate: state.rate, capacity, binding: found.binding }
            }
        })
    }
}

/// A condition with what is expected.
fn kept(criterion: &Criterion, summary: &LoadSummary) -> Option<String> {
    match criterion {
        Criterion::Latency { metric, statistic, limit } => {
            let found = statistic.of(&metric.of(summary)?);
            Some(format!("{statistic} {metric} {found} of {limit}"))
        }
        Criterion::Goodput { share, .. } => {
            let found = summary.goodput?.share;
            Some(format!("{:.1} % good of {:.1} %", 100.0 * found, 100.0 * share))
        }
    }
}

struct Expected {
    summary: LoadSummary,
    rate: RequestsPerSecond,
    capacity: CapacityOfOne,
    binding: Binding,
}

/// What one replica can do under the target: requests per second, and its share of the whole load.
struct CapacityOfOne {
    rate: RequestsPerSecond,
    share: f64,
}

impl Plan {
    /// The objective: USD per hour or per million tokens, devices, joules per token, or seconds.
    pub const fn objective_value(&self) -> f64 {
        self.score.value
    }

    /// As people say it: `40 x H100 SXM5 80GB = 5 replicas x TP8`.
    pub fn decomposition(&self) -> String {
        self.configuration.decomposed(self.replicas)
    }
}

impl fmt::Display for Plan {
    /// A paragraph: what to buy, what it costs, how much is left, what binds, how certain it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, utilization, headroom, binding, .. } = self;
        let Configuration { model, weights, kv, engine, .. } = &self.configuration;
        writeln!(f, "{}: {model} in {weights}, cache in {kv}, under {engine}", self.decomposition())?;
        if let (Some(cost), Some(per_million), Some(quote)) =
            (self.usd_per_hour, self.usd_per_million_output_tokens, &self.quote)
        {
            writeln!(f, "  {cost:.2} at {quote}; {per_million:.3} of output at this load")?;
        }
        if let Some(token) = self.energy.and_then(|energy| energy.facility_per_output_token) {
            writeln!(f, "  {token} of output, the building included")?;
        }
        if let Some(cost) = &self.token_cost {
            writeln!(f, "  each replica, {cost}")?;
        }
        if let Some(fleet) = &self.fleet {
            writeln!(f, "  following the day: {} ({:.0} % less)", fleet.following, 100.0 * fleet.saved_share())?;
        }
        write!(f, "  {rate}, {:.0} % busy, room for {:.0} % more", utilization * 100.0, headroom * 100.0)?;
        self.kept.iter().try_for_each(|kept| write!(f, ", {kept}"))?;
        writeln!(f, "\n  why a replica takes no more: {binding}")?;
        match self.pessimistic_replicas {
            Some(replicas) if replicas <= self.replicas => write!(f, "  also at the long end of the interval")?,
            Some(replicas) => write!(f, "  {replicas} replicas at the long end of the interval")?,
            None => write!(f, "  not at the long end of the interval, with any number of replicas")?,
        }
        match &self.confirmation {
            Some(Confirmation { requests, added_replicas: 0, .. }) => {
                write!(f, "; {requests} simulated requests agree")
            }
            Some(Confirmation { requests, added_replicas, .. }) => {
                write!(
                    f,
                    "; {added_replicas} replicas more than the steady state needs, after {requests} simulated requests"
                )
            }
            None => Ok(()),
        }
    }
}
