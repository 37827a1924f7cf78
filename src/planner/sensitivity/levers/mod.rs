//! What an operator can change, applied and measured anew, the best first.

mod change;
mod pull;

pub use change::LeverChange;

use super::text::first_line;
use super::{Measure, Measures, Question};
use crate::planner::PlannerError;
use serde::Serialize;
use std::fmt;

/// A change that an operator can make, and what comes of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lever {
    /// The change.
    pub change: LeverChange,
    /// What is compared: the measure that was asked for, or per request where answers of other lengths make a token another thing.
    pub measure: Measure,
    /// Measures that the change is compared with.
    pub before: Option<Measures>,
    /// Measures after the change, as far as they are known; `None` if it is refused.
    pub after: Option<Measures>,
    /// How many times better the measure becomes: above 1 is a gain; of rates, per device. `None` where there is nothing to compare.
    pub gain: Option<f64>,
    /// Why it is refused, what it takes, or what was assumed.
    pub note: String,
}

/// Changes that an operator can make, ranked: those that make the measure possible at all, then by gain, then what is refused or not known.
///
/// # Validity
/// **Quality is not modelled**: fewer bits, shorter answers and shorter prompts may be worse ones. Nor is the work that a change takes: somebody has to
/// train a drafter, and prompts that share nothing cannot be cached. Each change is made alone; gains of several do not multiply.
///
/// ```
/// use llm_roofline::planner::{LeverChange, Question};
/// use llm_roofline::prelude::*;
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
/// let levers = Question::new(deployment, 1000, 300)?.levers()?;
/// let fp8 = levers.levers.iter().find(|lever| lever.change == LeverChange::Weights("fp8".parse().unwrap())).unwrap();
/// assert!(fp8.gain.unwrap() > 1.3); // half of the bytes of every decode step
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Levers {
    /// The measure that they are ranked by.
    pub measure: Measure,
    /// The measures without any change.
    pub base: Measures,
    /// The changes, the best first.
    pub levers: Vec<Lever>,
}

impl Question {
    /// What changes would bring in the [main measure](Self::main_measure).
    ///
    /// # Errors
    /// As [`measure`](Self::measure): a change that is refused is an answer.
    pub fn levers(&self) -> Result<Levers, PlannerError> {
        self.levers_for(self.main_measure()?)
    }

    /// What changes would bring in this measure.
    ///
    /// # Errors
    /// As [`levers`](Self::levers).
    pub fn levers_for(&self, measure: Measure) -> Result<Levers, PlannerError> {
        let base = self.measure()?;
        let mut levers: Vec<Lever> =
            LeverChange::all(self)?.into_iter().map(|change| self.pull(change, measure, &base)).collect();
        levers.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
        Ok(Levers { measure, base, levers })
    }
}

impl Lever {
    /// What makes something possible comes before all gains, what is refused after them.
    fn rank(&self) -> f64 {
        match self.gain {
            Some(gain) => gain,
            None if self.makes_possible() => f64::INFINITY,
            None => 0.0,
        }
    }

    /// Whether the measure exists only after the change: limits that cannot be met before.
    pub fn makes_possible(&self) -> bool {
        let exists = |measures: &Option<Measures>| measures.is_some_and(|at| at.number(self.measure).is_some());
        exists(&self.after) && !exists(&self.before)
    }
}

impl fmt::Display for Levers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.base.text(self.measure).unwrap_or_else(|| "none".into());
        write!(f, "levers on {}, now {now}; quality is not modelled", self.measure)?;
        for lever in &self.levers {
            let gain = match lever.gain {
                Some(gain) => format!("{gain:.2}x"),
                None if lever.makes_possible() => "possible".into(),
                None => "-".into(),
            };
            let after = lever.after.and_then(|after| after.text(lever.measure)).unwrap_or_default();
            let change = lever.change.to_string();
            write!(f, "\n{gain:>9} {after:>15}  {change}")?;
            if !lever.note.is_empty() {
                write!(f, ": {}", first_line(&lever.note, 29 + change.chars().count()))?;
            }
        }
        Ok(())
    }
}
