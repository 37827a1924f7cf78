//! Plans that are simulated before they are returned.

use super::demand::Load;
use super::plan::{Confirmation, Plan};
use super::{Objective, Search};
use crate::planner::PlannerError;
use crate::serving::simulate::Simulation;
use crate::step::StepModel;
use crate::units::Seconds;
use crate::workload::{Arrivals, Workload};

/// A plan whose simulation breaks the target gets a twentieth more replicas, so often.
const ATTEMPTS: u32 = 16;

/// How plans are simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    requests: u64,
    seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { requests: 20_000, seed: 0 }
    }
}

impl Confirmation {
    /// Whether the simulation kept up with the load, and met the target.
    pub fn is_met(&self) -> bool {
        self.summary.stable && self.breaches.is_empty()
    }
}

impl Search<'_> {
    /// With so many simulated requests of each plan; 20,000 at first, none for 0.
    #[must_use]
    pub fn with_simulated_requests(mut self, requests: u64) -> Self {
        self.simulation.requests = requests;
        self
    }

    /// With another seed of the simulation.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.simulation.seed = seed;
        self
    }

    /// The best of the plans that their simulations confirm, in order. A plan that needs more replicas than its steady state says takes its place among the others anew.
    pub(super) fn confirmed(&self, mut plans: Vec<Plan>) -> Result<Vec<Plan>, PlannerError> {
        let mut ranked = Vec::with_capacity(self.ranks);
        while ranked.len() < self.ranks && !plans.is_empty() {
            plans.sort_by(|a, b| a.score.order(&b.score));
            let plan = plans.remove(0);
            if self.simulation.requests == 0 {
                ranked.push(plan);
                continue;
            }
            let confirmation = self.simulated(&plan)?;
            if confirmation.is_met() {
                ranked.push(Plan { confirmation: Some(confirmation), ..plan });
            } else if let Some(larger) = self.enlarged(plan, confirmation)? {
                plans.push(larger);
            }
        }
        Ok(ranked)
    }

    /// The plan with more replicas, if the budget allows and that can help.
    fn enlarged(&self, plan: Plan, confirmation: Confirmation) -> Result<Option<Plan>, PlannerError> {
        let added = (plan.replicas / 20).max(1);
        let replicas = plan.replicas.saturating_add(added);
        let candidate = self.candidate(
            plan.score.index,
            plan.configuration.deployment.system().device(),
            plan.configuration.deployment.devices_per_replica(),
        );
        let Ok(candidate) = candidate else { return Ok(None) };
        let given = confirmation.added_replicas.saturating_add(added);
        let is_latency = matches!(self.objective, Objective::Latency(..));
        if replicas > candidate.most || is_latency || given / added >= ATTEMPTS {
            return Ok(None);
        }
        let Ok(mut score) = self.score_of(&plan.configuration.deployment, &candidate, replicas) else {
            return Ok(None);
        };
        if self.objective == Objective::CostPerMillionTokens {
            score.value = plan.score.value;
        }
        let larger = self.plan(plan.configuration.deployment, replicas, score)?;
        Ok(Some(Plan { confirmation: Some(Confirmation { added_replicas: given, ..confirmation }), ..larger }))
    }

    /// Serves requests with the plan: with one replica where it gets its part of independent requests, with all where their arrivals are something else.
    fn simulated(&self, plan: &Plan) -> Result<Confirmation, PlannerError> {
        let model = StepModel::compile(&plan.configuration.deployment)?;
        let (workload, replicas) = self.simulated_workload(plan.replicas)?;
        let requests = self.simulation.requests.saturating_mul(u64::from(replicas).min(16));
        let simulation =
            Simulation::new(&model).with_replicas(replicas).with_slo(self.target.slo()).with_seed(self.simulation.seed);
        let outcome = simulation.run(&workload, requests)?;
        Ok(Confirmation {
            requests,
            replicas,
            breaches: self.target.breaches_in(&outcome.summary),
            summary: outcome.summary,
            added_replicas: plan.confirmation.as_ref().map_or(0, |before| before.added_replicas),
        })
    }

    fn simulated_workload(&self, replicas: u32) -> Result<(Workload, u32), PlannerError> {
        let same = || self.workload.clone();
        Ok(match (self.load.share(replicas), self.workload.arrivals()) {
            (Load::Rate(part), Arrivals::Poisson { .. }) => (same().at_rate(part)?, 1),
            // The peak of a schedule is what the plan is for.
            (Load::Rate(part), Arrivals::Schedule(_)) => (same().with_arrivals(Arrivals::poisson(part)?), 1),
            (Load::Rate(_), _) => (same(), replicas),
            (Load::Users { count, think }, arrivals) => {
                let ramp = match arrivals {
                    Arrivals::ClosedLoop { ramp, .. } => *ramp,
                    _ => None,
                };
                let users = Arrivals::closed_loop_with(count, think, ramp)?;
                // People do not all think for equally long; nor do they come in convoys.
                (same().with_arrivals(if think > Seconds::ZERO { users.with_random_thinking() } else { users }), 1)
            }
        })
    }
}
