//! Which deployment, and how many of it: the search for the best plan.

mod answer;
mod best_first;
mod candidate;
#[cfg(feature = "random")]
mod confirm;
mod demand;
mod figures;
mod loss;
mod objective;
mod plan;
mod refusal;
mod space;

pub use answer::{Answer, Nearest};
pub use loss::Loss;
pub use objective::Objective;
pub use plan::{Confirmation, Plan};
pub use refusal::{Refusal, Tally};
pub use space::SearchSpace;

use super::error::{above_zero, not_negative};
use super::{Configuration, PlannerError, Power, PriceChoice};
use crate::deployment::Deployment;
use crate::hardware::Device;
use crate::serving::Target;
use crate::units::UsdPerHour;
use crate::workload::Workload;
use best_first::{Found, Known};
use candidate::Valued;
use demand::{Load, Outlook};
use space::Key;
use std::ops::ControlFlow;

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// Deployments of a replica that need no further look.
    pub done: u64,
    /// All of them.
    pub total: u64,
    /// Those whose steady states were looked at.
    pub solved: u64,
    /// The objective of the best plan so far.
    pub best: Option<f64>,
}

/// Looks for the best way to serve a workload within limits: what to buy, how to lay it out, how many replicas.
///
/// # Method
/// Enumeration of every deployment of a replica in a [`SearchSpace`], with as many replicas of each as the load needs
/// ([`Server::replicas_for_rate`](crate::serving::Server::replicas_for_rate)), best bound first: by the price of one replica, then by the replicas that the load needs at their
/// largest rate without any limits, and only then by steady states under the target. A candidate whose bound is above what was found is left out, which never changes the
/// answer ([`exhaustive`](Self::exhaustive) looks at all). The winners are simulated (feature `random`), and get more replicas until the simulation meets the target too.
///
/// A closed-loop workload asks for users, one with a rate for requests per second, one with a schedule for its peak. Replicas share the load at random
/// ([`Router::Random`](crate::serving::Router::Random)).
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::planner::{Search, SearchSpace};
/// use llm_roofline::serving::{Statistic, Target};
/// use llm_roofline::workload::{Lengths, Slo, Workload};
///
/// let catalog = Catalog::embedded();
/// let devices = [catalog.device("l40s-48gb")?, catalog.device("a100-sxm-80gb")?, catalog.device("h100-sxm-80gb")?];
/// let space = SearchSpace::new(catalog.model("llama-3.1-8b")?, catalog.engine("vllm-2026")?).with_devices(devices);
/// let workload = Workload::poisson("20 req/s".parse()?, Lengths::fixed(1000, 200)?)?;
/// let target = Target::at(&Slo::ttft_tpot("500 ms".parse()?, "30 ms".parse()?), Statistic::P95)?;
///
/// let answer = Search::new(&space, &workload, &target)?.run()?;
/// let best = answer.best().expect("there are devices enough");
/// assert!(best.headroom >= 0.0 && best.utilization < 1.0);
/// assert!(answer.plans[1].usd_per_hour >= best.usd_per_hour); // the runner-up, of another device, and why it lost:
/// assert!(answer.plans[1].loss.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Validity
/// That of the steady state and of its intervals; classes of a workload share the limits. Prices are those of single devices, the same for any number.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    space: &'a SearchSpace,
    workload: Workload,
    load: Load,
    target: Target,
    objective: Objective,
    prices: PriceChoice,
    power: Option<Power>,
    headroom: f64,
    most_devices: Option<u32>,
    most_usd_per_hour: Option<UsdPerHour>,
    ranks: usize,
    one_per_device: bool,
    prune: bool,
    #[cfg(feature = "random")]
    simulation: confirm::Settings,
}

impl<'a> Search<'a> {
    /// Plans for a workload within limits, at the least cost per hour.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a workload without a rate or clients, [`PlannerError::Empty`] for a space with nothing in it, [`PlannerError::Compile`] for a model or an engine that cannot be
    /// one.
    pub fn new(space: &'a SearchSpace, workload: &Workload, target: &Target) -> Result<Self, PlannerError> {
        space.check()?;
        Ok(Self {
            space,
            workload: workload.clone(),
            load: Load::of(workload)?,
            target: target.clone(),
            objective: Objective::default(),
            prices: PriceChoice::default(),
            power: None,
            headroom: 0.0,
            most_devices: None,
            most_usd_per_hour: None,
            ranks: 5,
            one_per_device: true,
            prune: true,
            #[cfg(feature = "random")]
            simulation: confirm::Settings::default(),
        })
    }

    /// With something else as small as possible.
    #[must_use]
    pub fn minimising(self, objective: Objective) -> Self {
        Self { objective, ..self }
    }

    /// With other prices.
    #[must_use]
    pub fn with_prices(self, prices: PriceChoice) -> Self {
        Self { prices, ..self }
    }

    /// With this power of each device, whatever it is; otherwise shares of its thermal design power ([`Power::of`]).
    #[must_use]
    pub fn with_power(self, power: Power) -> Self {
        Self { power: Some(power), ..self }
    }

    /// With room for this share more than the load: 0.25 for replicas that have a fifth of their capacity to spare. Objectives other than latencies get the replicas for it.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a share that is negative or not finite.
    pub fn with_headroom(self, share: f64) -> Result<Self, PlannerError> {
        Ok(Self { headroom: not_negative("the headroom", share)?, ..self })
    }

    /// With at most so many devices in all replicas together.
    #[must_use]
    pub fn with_most_devices(self, devices: u32) -> Self {
        Self { most_devices: Some(devices), ..self }
    }

    /// For at most so much per hour in all.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a budget that is not above 0.
    pub fn with_most_usd_per_hour(self, budget: UsdPerHour) -> Result<Self, PlannerError> {
        above_zero("the budget in USD per hour", budget.as_usd_per_hour())?;
        Ok(Self { most_usd_per_hour: Some(budget), ..self })
    }

    /// With so many plans in the answer, at least one; 5 at first.
    #[must_use]
    pub fn with_ranks(self, ranks: usize) -> Self {
        Self { ranks: ranks.max(1), ..self }
    }

    /// With any number of plans on the same device; otherwise the answer has the best one of each model on each device.
    #[must_use]
    pub fn with_several_per_device(self) -> Self {
        Self { one_per_device: false, ..self }
    }

    /// Without leaving out what cannot be among the best: the same answer, more slowly.
    #[must_use]
    pub fn exhaustive(self) -> Self {
        Self { prune: false, ..self }
    }

    /// The best plans.
    ///
    /// # Errors
    /// [`PlannerError`] for a space that is none, for [`Objective::Latency`] without a budget. That no deployment meets the target is an answer.
    pub fn run(&self) -> Result<Answer, PlannerError> {
        self.run_with(|_| ControlFlow::Continue(()))
    }

    /// The same, telling its progress; it stops with [`PlannerError::Cancelled`] where the answer is to break.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(
        &self,
        mut progress: impl FnMut(&SearchProgress) -> ControlFlow<()>,
    ) -> Result<Answer, PlannerError> {
        self.check()?;
        // More than are shown, since simulation may say that some need more replicas.
        let mut known = Known::new(self);
        let Found { best, tally, nearest } =
            self.best_first(&mut known, Outlook::Expected, 2 * self.ranks, &mut progress)?;
        let plan = |(key, valued): (Key, Valued)| self.valued_plan(self.space.deployment(&key)?, valued);
        let plans = best.into_iter().map(plan).collect::<Result<Vec<_>, PlannerError>>()?;
        #[cfg(feature = "random")]
        let plans = self.confirmed(plans)?;
        let plans: Vec<Plan> = plans.into_iter().take(self.ranks).collect();
        let robust = self.best_first(&mut known, Outlook::Pessimistic, 1, &mut progress)?.best.into_iter().next();
        let robust = robust.map(|(key, valued)| self.plan(self.space.deployment(&key)?, valued.replicas, valued.score));
        let robust = robust.transpose()?;
        let nearest = match nearest.filter(|_| plans.is_empty()) {
            Some((key, reason)) => {
                Some(Nearest { configuration: Configuration::of(&self.space.deployment(&key)?), reason })
            }
            None => None,
        };
        Ok(Answer::new(self, plans, robust, nearest, tally))
    }

    fn check(&self) -> Result<(), PlannerError> {
        self.space.check()?;
        if matches!(self.objective, Objective::Latency(..))
            && self.most_devices.is_none()
            && self.most_usd_per_hour.is_none()
        {
            let (what, expected) = ("the budget of a search for the lowest latency", "a limit of devices or of costs");
            return Err(PlannerError::Number { what, value: 0.0, expected });
        }
        self.space.check_parts()
    }

    /// The power of a device: the caller's, or by its thermal design power.
    fn power_of(&self, device: &Device) -> Result<Power, Refusal> {
        let known = self.power.map_or_else(|| Power::of(device), Ok);
        known.map_err(|_| Refusal::NoPower { device: device.name().into() })
    }

    /// One deployment of a replica under the search's workload, target and objective, with as many replicas as that needs.
    ///
    /// # Errors
    /// [`Refusal`] says why it is no plan.
    pub fn assess(&self, deployment: &Deployment) -> Result<Plan, Refusal> {
        self.assessed(deployment)
    }
}
