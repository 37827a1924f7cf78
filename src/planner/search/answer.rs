//! What a search answers.

use super::loss::Loss;
use super::plan::Plan;
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Least {} within {}:", self.objective, self.target)?;
        for (rank, plan) in self.plans.iter().enumerate() {
            writeln!(f, "{}. {plan}", rank + 1)?;
            if let Some(loss) = &plan.loss {
                writeln!(f, "  {loss}")?;
            }
        }
        if self.plans.is_empty() {
            writeln!(f, "no deployment does")?;
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
