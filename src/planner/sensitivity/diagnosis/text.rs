//! The diagnosis in words and as a table.

use super::{DeploymentDiagnosis, NOTHING, PhaseBound};
use crate::planner::sensitivity::text::wrapped;
use crate::planner::sensitivity::{Measure, Spec};
use crate::serving::{Binding, Limit};
use std::fmt;

impl DeploymentDiagnosis {
    /// One paragraph: what bounds, what helps most, what is wasted.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, phase) in self.phases.iter().enumerate() {
            let share = phase.bounds.iter().find(|(bound, _)| *bound == phase.bound).map_or(0.0, |(_, share)| *share);
            let start = if index == 0 { "" } else { "; " };
            text += &format!(
                "{start}{} is bound by {} ({:.0} % of {})",
                phase.phase,
                phase.bound,
                100.0 * share,
                phase.time
            );
        }
        text += ". ";
        if let Some(binding) = &self.binding {
            text += &format!("The load ends because {}. ", Reason(binding));
        }
        let improving = self.doublings.iter().filter_map(|doubling| Some((doubling.spec, doubling.gain(self.main)?)));
        let improving: Vec<_> = improving.collect();
        match improving.first().filter(|(_, gain)| *gain > NOTICED) {
            Some((spec, gain)) => {
                text += &format!("Worth most for {}: {spec} twice as good is {gain:.2} times better. ", self.main);
            }
            None => text += &format!("No single resource twice as good changes {}. ", self.main),
        }
        let idle: Vec<String> = improving
            .iter()
            .filter(|(_, gain)| (gain - 1.0).abs() < NOTHING)
            .map(|(spec, _)| spec.to_string())
            .collect();
        if !idle.is_empty() {
            text += &format!("Wasted on it: {}. ", idle.join(", "));
        }
        text += &self.memory();
        text
    }

    /// What more memory would do, in a sentence.
    fn memory(&self) -> String {
        let twice = self.doublings.iter().find(|doubling| doubling.spec == Spec::MemoryCapacity);
        let gain = |measure| twice.and_then(|twice| twice.gain(measure)).unwrap_or(1.0);
        let slots = self.slots;
        match self.limit {
            _ if self.wants_memory() => format!(
                "The cache has room for {slots} sequences and is what limits them: twice the memory holds {:.1} times as many and answers {:.2} times as much.",
                gain(Measure::Concurrency),
                gain(Measure::MaxRate)
            ),
            Limit::Cache => format!(
                "The cache has room for {slots} sequences, and the load ends before: more memory would not help."
            ),
            Limit::Sequences => format!(
                "The engine runs {slots} sequences at once, for which the cache has room: more memory would not help."
            ),
            _ => "Memory does not limit how many run at once.".into(),
        }
    }
}

/// A gain below this is not worth a word.
const NOTICED: f64 = 1.005;
/// Why a load ends, as the end of a sentence.
struct Reason<'a>(&'a Binding);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Binding::Target(breach) => write!(f, "with slightly more, {breach}"),
            Binding::Unloaded(breach) => write!(f, "already alone, {breach}"),
            Binding::Deployment(limit) => write!(f, "no more are answered, for {limit}"),
        }
    }
}

impl fmt::Display for DeploymentDiagnosis {
    /// Phases, doublings, and the paragraph.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20}{:>9}{:>10}  bound by", "", "sequences", "time")?;
        for PhaseBound { phase, sequences, time, bounds, .. } in &self.phases {
            write!(f, "{phase:<20}{sequences:>9.1}{:>10}  ", time.to_string())?;
            let mut shares: Vec<_> = bounds.iter().filter(|(_, share)| *share >= 0.005).collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (index, (bound, share)) in shares.into_iter().enumerate() {
                write!(f, "{}{bound} {:.0} %", if index == 0 { "" } else { ", " }, 100.0 * share)?;
            }
            writeln!(f)?;
        }
        let known = |measure: &Measure| self.doublings.iter().any(|doubling| doubling.gain(*measure).is_some());
        let shown: Vec<Measure> =
            Measure::ALL.into_iter().filter(|measure| known(measure) && *measure != Measure::CostPerRequest).collect();
        write!(f, "\n{:<17}", "twice as good:")?;
        shown.iter().try_for_each(|measure| write!(f, "{measure:>10}"))?;
        for doubling in self.doublings.iter().filter(|doubling| !doubling.is_idle()) {
            write!(f, "\n{:<17}", doubling.spec)?;
            for measure in &shown {
                match doubling.gain(*measure) {
                    Some(gain) => write!(f, "{gain:>9.2}x")?,
                    None => write!(f, "{:>10}", "-")?,
                }
            }
        }
        write!(f, "\n\n{}", wrapped(&self.text()))
    }
}
