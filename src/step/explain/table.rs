//! The text form of an explanation.

use super::{Explanation, LawSource, OperatorCost};
use crate::operator::OperatorClass;
use crate::roofline::Work;
use crate::units::Seconds;
use std::collections::BTreeMap;
use std::fmt;

/// Columns for the law that decides an operator's time.
const LAW_WIDTH: usize = 26;

/// What the columns in the middle say about an operator under an engine with losses.
struct Against<'a> {
    time: Seconds,
    ideal: Seconds,
    law: Option<&'a LawSource>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["operator", "layers", "operations", "bytes", "intensity", "bound"];
        self.write_columns(f, header)?;
        if self.has_losses() {
            writeln!(f, "  {:<LAW_WIDTH$} {:>8} {:>8} {:>5} {:>5}", "main law", "time", "lost", "ideal", "share")?;
        } else {
            writeln!(f, " {:>10} {:>6}", "time", "share")?;
        }
        self.write_columns(f, ["step", "", "", "", "", ""])?;
        self.write_times(f, &Against { time: self.total, ideal: self.ideal(), law: None })?;
        let mut operators = self.operators.as_slice();
        while let Some(first) = operators.first() {
            let in_group = operators.iter().take_while(|operator| operator.group == first.group).count();
            let (group, rest) = operators.split_at(in_group);
            self.write_group(f, group, rest.is_empty())?;
            operators = rest;
        }
        if self.has_losses() { self.write_sources(f) } else { Ok(()) }
    }
}

impl Explanation {
    /// Whether the engine loses anything; the ideal one does not, and its table has fewer columns.
    fn has_losses(&self) -> bool {
        self.operators.iter().any(|operator| !operator.laws.is_empty() || operator.lost() > Seconds::ZERO)
    }

    fn write_group(&self, f: &mut fmt::Formatter<'_>, group: &[OperatorCost], last: bool) -> fmt::Result {
        let Some(first) = group.first() else { return Ok(()) };
        let (branch, stem) = if last { ("└─", "  ") } else { ("├─", "│ ") };
        let time = self.group_time(&first.group);
        let ideal = group.iter().map(|operator| operator.ideal).sum();
        self.write_columns(f, [&format!("{branch} {}", first.group), "", "", "", "", ""])?;
        self.write_times(f, &Against { time, ideal, law: None })?;
        for (index, operator) in group.iter().enumerate() {
            let leaf = if index + 1 == group.len() { "└─" } else { "├─" };
            self.write_operator(f, &format!("{stem} {leaf} {}", self.title(operator, group)), operator)?;
        }
        Ok(())
    }

    /// The phase is named where a step has attention of both.
    fn title(&self, operator: &OperatorCost, group: &[OperatorCost]) -> String {
        let twins = group.iter().filter(|other| other.name == operator.name).count();
        let phase = match operator.class {
            OperatorClass::PrefillAttention if twins > 1 => " (prefill)",
            OperatorClass::DecodeAttention if twins > 1 => " (decode)",
            _ => "",
        };
        format!("{}{phase}", operator.name)
    }

    fn write_operator(&self, f: &mut fmt::Formatter<'_>, name: &str, operator: &OperatorCost) -> fmt::Result {
        let (count, bound) = (operator.count.to_string(), operator.bound.to_string());
        if operator.work == Work::default() {
            self.write_columns(f, [name, &count, "", "", "", &bound])?;
        } else {
            let Work { flops, bytes } = operator.work;
            let intensity = match self.has_losses() {
                true => format!("{:.1}", operator.work.intensity().as_flops_per_byte()),
                false => format!("{:.1}", operator.work.intensity()),
            };
            self.write_columns(f, [name, &count, &flops.to_string(), &bytes.to_string(), &intensity, &bound])?;
        }
        let against = Against { time: operator.time, ideal: operator.ideal, law: operator.laws.first() };
        self.write_times(f, &against)
    }

    fn write_columns(&self, f: &mut fmt::Formatter<'_>, columns: [&str; 6]) -> fmt::Result {
        let [name, count, flops, bytes, intensity, bound] = columns;
        if self.has_losses() {
            let intensity = if intensity == "intensity" { "FLOP/B" } else { intensity };
            write!(f, "{name:<32} {count:>6} {flops:>11} {bytes:>8} {intensity:>7} {bound:>12}")
        } else {
            write!(f, "{name:<34} {count:>6} {flops:>12} {bytes:>10} {intensity:>14} {bound:>12}")
        }
    }

    fn write_times(&self, f: &mut fmt::Formatter<'_>, against: &Against<'_>) -> fmt::Result {
        let &Against { time, ideal, law } = against;
        let share = 100.0 * self.share(time);
        if !self.has_losses() {
            return writeln!(f, " {time:>10} {share:>4.0} %");
        }
        let law = law.map_or(String::new(), in_short);
        let lost = (time - ideal).max(Seconds::ZERO);
        let reached = 100.0 * (ideal / time);
        writeln!(f, "  {law:<LAW_WIDTH$} {time:>8} {lost:>8} {reached:>3.0} % {share:>3.0} %")
    }

    /// Below the table: the gap to the hardware's limit, and the laws with their sources.
    fn write_sources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.lost_by_class())?;
        let laws = self.laws();
        if laws.is_empty() {
            return Ok(());
        }
        writeln!(f, "laws of {}:", self.engine)?;
        for law in &laws {
            writeln!(f, "  {law}")?;
        }
        let sources: BTreeMap<&str, &str> = laws
            .iter()
            .flat_map(|law| &law.sources)
            .map(|source| (source.key.as_str(), source.reference.as_str()))
            .collect();
        writeln!(f, "sources:")?;
        sources.iter().try_for_each(|(key, reference)| writeln!(f, "  {key}: {reference}"))
    }
}

/// A law in one column: long names are cut, the list below the table has them in full.
fn in_short(law: &LawSource) -> String {
    let value = format!(" {} {}", law.value, law.kind_name());
    let room = LAW_WIDTH.saturating_sub(value.chars().count());
    let name = law.short_name();
    if name.len() <= room { format!("{name}{value}") } else { format!("{name:.*}…{value}", room.saturating_sub(1)) }
}
