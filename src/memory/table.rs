//! The breakdown as a table.

use super::{Location, MemoryModel, MemoryPart, MemoryPlan};
use crate::units::Bytes;
use std::fmt;

/// Where the memory goes, part by part, a column for every place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemoryTable {
    /// Sequences of one replica.
    pub sequences: u64,
    /// Tokens of each.
    pub context: u64,
    /// The plan of each place.
    pub places: Vec<(Location, MemoryPlan)>,
}

impl MemoryModel {
    /// The breakdown for `sequences` of `context` tokens, ready for printing.
    pub fn table(&self, sequences: u64, context: u64) -> MemoryTable {
        MemoryTable { sequences, context, places: self.plans(sequences, context).collect() }
    }
}

impl MemoryTable {
    /// The warning of the fullest place that still fits, if there is one.
    pub fn warning(&self) -> Option<String> {
        let fullest = |a: &&MemoryPlan, b: &&MemoryPlan| a.utilization().total_cmp(&b.utilization());
        self.places.iter().map(|(_, plan)| plan).filter(|plan| plan.fits()).max_by(fullest)?.warning()
    }

    /// Places with different plans, and how many have each.
    fn distinct(&self) -> Vec<(Location, MemoryPlan, usize)> {
        let mut distinct: Vec<(Location, MemoryPlan, usize)> = Vec::new();
        for &(location, plan) in &self.places {
            match distinct.iter_mut().find(|(_, known, _)| *known == plan) {
                Some((_, _, count)) => *count += 1,
                None => distinct.push((location, plan, 1)),
            }
        }
        distinct
    }
}

impl fmt::Display for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.distinct();
        write!(f, "{:<26}", format!("{} x {} tokens", self.sequences, self.context))?;
        for (location, _, count) in &places {
            write!(f, "  {:>22}", column(location, *count))?;
        }
        let mut row = |name: &str, value: &dyn Fn(&MemoryPlan) -> Bytes| {
            write!(f, "\n{name:<26}")?;
            places.iter().try_for_each(|(_, plan, _)| write!(f, "  {:>18.2} GiB", value(plan).as_gib()))
        };
        let used = |part: MemoryPart| places.iter().any(|(_, plan, _)| plan.part(part) > Bytes::ZERO);
        for part in MemoryPart::ALL.into_iter().filter(|part| used(*part)) {
            row(&part.to_string(), &|plan| plan.part(part))?;
        }
        row("needed", &MemoryPlan::needed)?;
        row("may be used", &|plan| plan.capacity)?;
        row("visible", &|plan| plan.visible)?;
        write!(f, "\n{:<26}", "")?;
        for (_, plan, _) in &places {
            let verdict = match plan.fits() {
                true => format!("fits, {:.2} GiB left", plan.spare().as_gib()),
                false => format!("short by {:.2} GiB", plan.short_by().as_gib()),
            };
            write!(f, "  {verdict:>22}")?;
        }
        self.warning().map_or(Ok(()), |warning| write!(f, "\n{warning}"))
    }
}

fn column(location: &Location, count: usize) -> String {
    match (location, count) {
        (Location::Devices, _) => "each device".into(),
        (Location::Stage { stage, of }, 1) => format!("stage {stage} of {of}"),
        (Location::Stage { stage, of }, count) => format!("stage {stage} of {of}, {count} alike"),
        (Location::Host, _) => "host".into(),
    }
}
