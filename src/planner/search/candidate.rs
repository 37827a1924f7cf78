//! One deployment of the space: a bound of its value from its price, a better one from its largest rate, and its value.

use super::demand::{Load, Outlook, server};
use super::figures::{Facts, Figures};
use super::objective::{Objective, Score};
use super::space::Key;
use super::{Refusal, Search};
use crate::deployment::Deployment;
use crate::hardware::Device;
use crate::planner::{EnergyUse, PlannerError, Power, ReplicaLayout};
use crate::serving::{Binding, Need, Server, ServingError, Target, TargetBreach};
use crate::step::StepModel;
use crate::units::{Bytes, RequestsPerSecond, Seconds};
use crate::workload::Slo;

/// One replica of the space with what is known before it is compiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) index: usize,
    /// Devices of a replica.
    pub(super) devices: f64,
    /// USD per hour of a replica; 0 where prices do not matter and none is known.
    pub(super) replica_price: f64,
    /// Of a device, where the objective is energy.
    pub(super) power: Option<Power>,
    /// Most replicas that the budget allows.
    pub(super) most: u32,
}

/// The value of a candidate with its replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Valued {
    pub(super) score: Score,
    pub(super) replicas: u32,
}

/// Why a candidate is none, or not worth a further look.
pub(super) enum Dropped {
    Refused(Refusal),
    /// Its value is not below that of what is known.
    Outbid,
}

impl From<Refusal> for Dropped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ServingError> for Dropped {
    fn from(error: ServingError) -> Self {
        Self::Refused(Refusal::of(error))
    }
}

impl Search<'_> {
    /// What a candidate costs and how many of it may be had; refused if not even one.
    pub(super) fn candidate(&self, index: usize, device: &Device, devices: u32) -> Result<Candidate, Refusal> {
        let devices = f64::from(devices);
        let quote = self.prices.quote(device);
        let needs_price = self.objective.is_cost() || self.most_usd_per_hour.is_some();
        let price = match quote {
            Ok(quote) => quote.usd_per_device_hour.as_usd_per_hour() * devices,
            Err(PlannerError::NoPrice { device, .. }) if needs_price => return Err(Refusal::NoPrice { device }),
            Err(error) if needs_price => return Err(Refusal::Failed(error)),
            Err(_) => 0.0,
        };
        let mut most = f64::from(u32::MAX);
        if let Some(limit) = self.most_devices {
            most = most.min((f64::from(limit) / devices).floor());
        }
        if let Some(limit) = self.most_usd_per_hour.filter(|_| price > 0.0) {
            most = most.min((limit.as_usd_per_hour() / price).floor());
        }
        if most < 1.0 {
            return Err(Refusal::Budget);
        }
        let power = match self.objective {
            Objective::Energy => Some(self.power_of(device)?),
            _ => None,
        };
        Ok(Candidate { index, devices, replica_price: price, power, most: most as u32 })
    }

    /// No plan of the candidate has a smaller value: known before it is compiled.
    pub(super) fn first_bound(&self, candidate: &Candidate) -> f64 {
        match self.objective {
            Objective::CostPerHour => candidate.replica_price,
            Objective::Devices => candidate.devices,
            _ => 0.0,
        }
    }

    /// Whether the weights alone are more than all devices of a replica hold: no need to look further.
    pub(super) fn is_hopeless(&self, key: &Key, weights: Bytes) -> bool {
        weights > self.space.device(key).usable_memory() * f64::from(key.layout.devices())
    }

    /// What a replica of the candidate can do, whatever the target and the outlook.
    pub(super) fn facts(&self, deployment: &Deployment) -> Result<Facts, Refusal> {
        let model = self.compiled(deployment)?;
        server(&model, &self.workload).map(|server| Facts::of(&server)).map_err(Refusal::of)
    }

    /// No plan of the candidate has a smaller value, by the largest rate of a replica; refused if its budget is too small for any.
    pub(super) fn bound(&self, candidate: &Candidate, facts: Facts, outlook: Outlook) -> Result<f64, Refusal> {
        Figures { search: self, candidate, facts, slowness: facts.slowness(outlook) }.bound().ok_or(Refusal::Budget)
    }

    /// The value of the candidate, if it is not above `worst`.
    pub(super) fn value(
        &self,
        deployment: &Deployment,
        candidate: &Candidate,
        outlook: Outlook,
        worst: f64,
    ) -> Result<Valued, Dropped> {
        self.looked_at(deployment, candidate, outlook, |look| look.value(worst))
    }

    /// The score of so many replicas, for objectives that grow with their number.
    #[cfg(feature = "random")]
    pub(super) fn score_of(
        &self,
        deployment: &Deployment,
        candidate: &Candidate,
        replicas: u32,
    ) -> Result<Score, Dropped> {
        self.looked_at(deployment, candidate, Outlook::Expected, |look| {
            Ok(look.figures.valued(look.exact_value(replicas)?, replicas).score)
        })
    }

    fn looked_at<T>(
        &self,
        deployment: &Deployment,
        candidate: &Candidate,
        outlook: Outlook,
        look: impl FnOnce(&Look<'_, '_>) -> Result<T, Dropped>,
    ) -> Result<T, Dropped> {
        let model = self.compiled(deployment)?;
        let server = server(&model, &self.workload)?;
        let facts = Facts::of(&server);
        let slowness = facts.slowness(outlook);
        let target = match outlook {
            Outlook::Expected => self.target.clone(),
            Outlook::Pessimistic => slowness.target(&self.target)?,
        };
        let figures = Figures { search: self, candidate, facts, slowness };
        look(&Look { figures, server: &server, target: &target })
    }

    /// A deployment that can be laid out and holds the longest request.
    pub(super) fn compiled(&self, deployment: &Deployment) -> Result<StepModel, Refusal> {
        let model = StepModel::compile_of_checked_parts(deployment);
        let model = model.map_err(|error| Refusal::Layout { layout: ReplicaLayout::of(deployment), error })?;
        let longest = self.workload.lengths().longest_total();
        if let Some(limit) = deployment.context_limit().filter(|limit| longest > *limit) {
            return Err(Refusal::Context { tokens: longest, limit });
        }
        // Without suggestions of what would help, which take longer than everything else.
        match model.memory().check(1, longest) {
            Ok(_) => Ok(model),
            Err(reason) => Err(Refusal::Memory { short_by: reason.short_by }),
        }
    }
}

/// A candidate that was compiled, and what it has to keep to.
struct Look<'a, 'm> {
    figures: Figures<'a>,
    server: &'a Server<'m>,
    target: &'a Target,
}

impl Look<'_, '_> {
    fn value(&self, worst: f64) -> Result<Valued, Dropped> {
        let figures = &self.figures;
        match figures.search.objective {
            Objective::CostPerMillionTokens => self.cheapest_tokens(worst),
            Objective::Latency(metric, statistic) => {
                let replicas = figures.candidate.most;
                let state = figures.load().share(replicas).state(self.server, &self.target.slo())?;
                if let Some(breach) = self.target.breaches(&state).first() {
                    return Err(Refusal::Target(*breach).into());
                }
                let found = metric.of(&state.summary).map(|latencies| statistic.of(&latencies));
                let seconds = found.ok_or(Refusal::NoLatency { metric })?;
                Ok(figures.valued(figures.slowness.of_metric(metric, seconds).as_seconds(), replicas))
            }
            _ => {
                let most = figures.affordable(worst);
                if most == 0 {
                    return Err(Dropped::Outbid);
                }
                match figures.load_with_headroom().need(self.server, self.target, most)? {
                    Need::Replicas(replicas) => match self.exact_value(replicas)? {
                        value if value > worst => Err(Dropped::Outbid),
                        value => Ok(figures.valued(value, replicas)),
                    },
                    Need::Unloaded(breach) => Err(Refusal::Target(breach).into()),
                    Need::MoreThan(limit) if limit == figures.candidate.most => Err(Refusal::Budget.into()),
                    Need::MoreThan(_) => Err(Dropped::Outbid),
                }
            }
        }
    }

    fn exact_value(&self, replicas: u32) -> Result<f64, Dropped> {
        let figures = &self.figures;
        match &figures.candidate.power {
            Some(power) => self.joules_per_token(replicas, power),
            None => Ok(figures.value_of(f64::from(replicas))),
        }
    }

    fn cheapest_tokens(&self, worst: f64) -> Result<Valued, Dropped> {
        let figures = &self.figures;
        let most = self.server.max_rate();
        // A price that is too high already at the rate at which it would be the worst needs no more to be known.
        let enough = most * (figures.per_million(most) / worst * (1.0 - 1e-9));
        if let Load::Rate(_) = figures.load()
            && worst.is_finite()
            && worst > 0.0
            && !self.server.carries(enough, self.target)?
        {
            return Err(self.unloaded()?.map_or(Dropped::Outbid, |breach| Refusal::Target(breach).into()));
        }
        let value = figures.per_million(self.capacity()?);
        if value > worst {
            return Err(Dropped::Outbid);
        }
        match figures.load_with_headroom().need(self.server, self.target, figures.candidate.most)? {
            Need::Replicas(replicas) => Ok(figures.valued(value, replicas)),
            Need::Unloaded(breach) => Err(Refusal::Target(breach).into()),
            Need::MoreThan(_) => Err(Refusal::Budget.into()),
        }
    }

    /// Requests per second of a replica that has as much to do as the target allows, from arrivals or from users.
    fn capacity(&self) -> Result<RequestsPerSecond, Dropped> {
        let capacity = match self.figures.load() {
            Load::Rate(_) if self.target.is_empty() => return Ok(self.server.max_rate()),
            Load::Rate(_) => self.server.max_rate_under(self.target)?,
            Load::Users { think, .. } => self.server.max_users_under(self.target, think)?,
        };
        match capacity.binding {
            _ if capacity.rate > RequestsPerSecond::ZERO => Ok(capacity.rate),
            Binding::Unloaded(breach) | Binding::Target(breach) => Err(Refusal::Target(breach).into()),
            _ => Err(Refusal::Budget.into()),
        }
    }

    /// What a request breaks that is alone.
    fn unloaded(&self) -> Result<Option<TargetBreach>, ServingError> {
        let alone = self.server.closed_loop(1.0, Seconds::ZERO, &self.target.slo())?;
        Ok(self.target.breaches(&alone).into_iter().next())
    }

    /// Energy per output token of so many replicas.
    fn joules_per_token(&self, replicas: u32, power: &Power) -> Result<f64, Dropped> {
        let figures = &self.figures;
        let state = figures.load().share(replicas).state(self.server, &Slo::default())?;
        let used = EnergyUse::new(power, self.server, state.rate).map_err(Refusal::Failed)?;
        Ok(used.facility_power.as_watts() / figures.output_tokens(state.rate / figures.slowness.others))
    }
}
