//! What a search answers.

use super::loss::Loss;
use super::plan::{Confirmation, Plan};
use super::{Objective, Refusal, Search, Tally};
use crate::planner::Configuration;
use serde::Serialize;
use std::fmt;

/// The best plans, and what became of the rest.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Answer {
    /// What was made small.
    pub objective: Objective,
    /// The target.
    pub target: String,
    /// The plans, best first; each but the first says why it lost. Empty if nothing meets the target.
    pub plans: Vec<Plan>,
    /// The best plan if all times are at the long end of their intervals: nine of ten measurements are shorter. Not simulated.
    pub robust: Option<Plan>,
    /// What came nearest, if nothing meets the target.
    pub nearest: Option<Nearest>,
    /// What became of the deployments.
    pub tally: Tally,
}

/// A deployment that misses the target by less than the others.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Nearest {
    /// One replica of it.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// Why it is no plan.
    #[serde(serialize_with = "as_text")]
    pub reason: Refusal,
}

fn as_text<S: serde::Serializer>(reason: &Refusal, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reason)
}

impl Answer {
    pub(super) fn new(
        search: &Search<'_>,
        mut plans: Vec<Plan>,
        robust: Option<Plan>,
        nearest: Option<Nearest>,
        tally: Tally,
    ) -> Self {
        if let Some((best, others)) = plans.split_first_mut() {
            others.iter_mut().for_each(|plan| plan.loss = Some(Loss::new(search.objective, plan, best)));
        }
        Self { objective: search.objective, target: search.target.to_string(), plans, robust, nearest, tally }
    }

    /// The best plan.
    pub fn best(&self) -> Option<&Plan> {
        self.plans.first()
    }

    /// Everything as one JSON object.
    pub fn to_json(&self) -> String {
        // Only maps with keys that are no strings, and numbers that are none, cannot be written: there are neither.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Answer {
    /// A table of the plans, why each of them lost, the best one in full, what is best at the long end of the intervals, and what was looked at.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Least {} within {}:", self.objective, self.target)?;
        self.table(f)?;
        for (rank, plan) in self.plans.iter().enumerate() {
            if let Some(loss) = &plan.loss {
                writeln!(f, "{} {loss}", rank + 1)?;
            }
        }
        match self.best() {
            Some(best) => writeln!(f, "\n{best}")?,
            None => writeln!(f, "no deployment does")?,
        }
        if let Some(Nearest { configuration, reason }) = &self.nearest {
            writeln!(f, "nearest: {configuration}: {reason}")?;
        }
        match (&self.robust, self.best()) {
            (Some(robust), Some(best)) if robust.decomposition() == best.decomposition() => {
                writeln!(f, "The same is best at the long end of the intervals.")?;
            }
            (Some(robust), _) => writeln!(f, "At the long end of the intervals: {}", robust.decomposition())?,
            (None, Some(_)) => writeln!(f, "At the long end of the intervals nothing meets the target.")?,
            (None, None) => {}
        }
        write!(f, "{}", self.tally)
    }
}

impl Answer {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.plans.iter().map(Plan::decomposition).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        if self.plans.is_empty() {
            return Ok(());
        }
        let head = ["weights", "cache", "USD/h", "USD/Mtok", "J/tok", "busy", "room", "simulated", "long end"];
        write!(f, "  {:<width$}", "devices")?;
        head.iter().try_for_each(|name| write!(f, "{name:>11}"))?;
        writeln!(f)?;
        for (rank, (plan, name)) in self.plans.iter().zip(&names).enumerate() {
            write!(f, "{} {name:<width$}", rank + 1)?;
            plan.cells().iter().try_for_each(|cell| write!(f, "{cell:>11}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Plan {
    /// Formats, cost per hour and per million output tokens, energy per output token, load, headroom, replicas that the simulation added, replicas at the long end of the interval.
    fn cells(&self) -> [String; 9] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let energy = self.energy.and_then(|energy| energy.facility_per_output_token);
        let added = |confirmation: &Confirmation| match confirmation.added_replicas {
            0 => "agrees".into(),
            added => format!("+{added}"),
        };
        [
            self.configuration.weights.clone(),
            self.configuration.kv.clone(),
            or_dash(self.usd_per_hour.map(|cost| format!("{:.2}", cost.as_usd_per_hour()))),
            or_dash(self.usd_per_million_output_tokens.map(|cost| format!("{:.3}", cost.as_usd_per_million_tokens()))),
            or_dash(energy.map(|energy| format!("{:.2}", energy.as_joules_per_token()))),
            percent(self.utilization),
            percent(self.headroom),
            or_dash(self.confirmation.as_ref().map(added)),
            or_dash(self.pessimistic_replicas.map(|replicas| format!("{replicas} repl."))),
        ]
    }
}
