//! A step taken apart: every operator with its work, its bound and its share of the time.

use super::cost::OperatorTimes;
use super::load::StepLoad;
use super::model::StepModel;
use crate::operator::OperatorClass;
use crate::roofline::{Bound, Work};
use crate::units::Seconds;
use std::fmt;
use std::sync::Arc;

/// One operator of a step on one device, over all layers of its kind.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperatorCost {
    /// Layer kind, or where the operator stands outside the layers.
    pub group: Arc<str>,
    /// Name.
    pub name: &'static str,
    /// Class.
    pub class: OperatorClass,
    /// In how many layers it runs.
    pub count: f64,
    /// Operations and bytes, all layers together; zero for communication and overhead.
    pub work: Work,
    /// Time.
    pub time: Seconds,
    /// What limits it.
    pub bound: Bound,
}

/// The cost of a step as a tree: groups of layers, and the operators in them.
///
/// Its text form is the table that `quickstart` prints; its times sum to [`StepCost::total`](super::StepCost::total).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// Operators in the order in which they run, layer kind by layer kind.
    pub operators: Vec<OperatorCost>,
    /// Time of the whole step.
    pub total: Seconds,
}

impl StepModel {
    /// The cost of a step, operator by operator. For people; [`cost`](Self::cost) gives the sum a thousand times faster.
    pub fn explain(&self, load: &StepLoad) -> Explanation {
        let mut operators = Vec::new();
        if load.tokens() > 0.0 {
            self.explain_operators(load, &mut operators);
        }
        // Operators of one layer kind belong together, in the order in which the kinds first appear.
        let mut groups: Vec<Arc<str>> = Vec::new();
        for operator in &operators {
            if !groups.contains(&operator.group) {
                groups.push(operator.group.clone());
            }
        }
        operators.sort_by_key(|operator| groups.iter().position(|group| *group == operator.group));
        let total = operators.iter().map(|operator| operator.time).sum();
        Explanation { operators, total }
    }

    fn explain_operators(&self, load: &StepLoad, out: &mut Vec<OperatorCost>) {
        let mut push = |group: &Arc<str>, name, class, count, times: OperatorTimes| {
            let (bound, time) = (times.bound(), times.total());
            if time > Seconds::ZERO {
                out.push(OperatorCost { group: group.clone(), name, class, count, work: times.work, time, bound });
            }
        };
        let terms = &self.terms;
        for named in &terms.linears {
            push(&named.group, named.name, named.class, named.term.count, named.term.times(load));
        }
        for named in &terms.experts {
            push(&named.group, named.name, named.class, named.term.count, named.term.times(load));
        }
        for named in &terms.prefill_attention {
            push(&named.group, named.name, named.class, named.term.count, named.term.times(load.prefill()));
        }
        for named in &terms.decode_attention {
            push(&named.group, named.name, named.class, named.term.count, named.term.times(load.decode()));
        }
        for named in &terms.recurrent {
            push(&named.group, named.name, named.class, named.term.count, named.term.times(load));
        }
        if let Some(term) = self.elementwise() {
            let group = "outside layers".into();
            push(&group, "embedding, norms", OperatorClass::Elementwise, 1.0, term.times(load));
        }
        if let Some(term) = self.sampling() {
            push(&"output".into(), "sampling", OperatorClass::Elementwise, 1.0, term.times(load));
        }
        self.explain_times(load, out);
    }

    fn explain_times(&self, load: &StepLoad, out: &mut Vec<OperatorCost>) {
        let mut push = |group: &str, name, class, count, time, bound| {
            if time > Seconds::ZERO {
                out.push(OperatorCost { group: group.into(), name, class, count, work: Work::default(), time, bound });
            }
        };
        if let Some(term) = &self.terms.communication {
            let class = OperatorClass::Collective;
            if term.all_reduces > 0.0 {
                let (reduce, gather) = (term.all_reduce_time(load), term.gather_time(load));
                push("communication", "all-reduce", class, term.all_reduces, reduce, Bound::Interconnect);
                push("communication", "gather logits", class, 1.0, gather, Bound::Interconnect);
            }
            push(
                "communication",
                "expert exchange",
                class,
                term.exchanges,
                term.exchange_time(load),
                Bound::Interconnect,
            );
            push("communication", "stage hops", class, term.hops, term.hop_time(load), Bound::Interconnect);
        }
        let overhead = self.cost(load).time(OperatorClass::Overhead);
        push("engine", "step overhead", OperatorClass::Overhead, 1.0, overhead, Bound::Overhead);
    }
}

impl Explanation {
    /// Time of a group.
    pub fn group_time(&self, group: &str) -> Seconds {
        self.operators.iter().filter(|operator| &*operator.group == group).map(|operator| operator.time).sum()
    }

    /// Share of the whole time.
    pub fn share(&self, time: Seconds) -> f64 {
        if self.total > Seconds::ZERO { time / self.total } else { 0.0 }
    }

    /// The operator that takes longest.
    pub fn longest(&self) -> Option<&OperatorCost> {
        self.operators.iter().max_by(|a, b| a.time.as_seconds().total_cmp(&b.time.as_seconds()))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<34} {:>6} {:>12} {:>10} {:>14} {:>12} {:>10} {:>6}",
            "operator", "layers", "operations", "bytes", "intensity", "bound", "time", "share"
        )?;
        writeln!(
            f,
            "{:<34} {:>6} {:>12} {:>10} {:>14} {:>12} {:>10} {:>6}",
            "step", "", "", "", "", "", self.total, "100 %"
        )?;
        let mut operators = self.operators.as_slice();
        while let Some(first) = operators.first() {
            let in_group = operators.iter().take_while(|operator| operator.group == first.group).count();
            let (group, rest) = operators.split_at(in_group);
            let last_group = rest.is_empty();
            self.write_group(f, group, last_group)?;
            operators = rest;
        }
        Ok(())
    }
}

impl Explanation {
    fn write_group(&self, f: &mut fmt::Formatter<'_>, group: &[OperatorCost], last: bool) -> fmt::Result {
        let Some(first) = group.first() else { return Ok(()) };
        let (branch, stem) = if last { ("└─", "  ") } else { ("├─", "│ ") };
        let time = self.group_time(&first.group);
        let share = 100.0 * self.share(time);
        let title = format!("{branch} {}", first.group);
        writeln!(f, "{title:<34} {:>6} {:>12} {:>10} {:>14} {:>12} {time:>10} {share:>4.0} %", "", "", "", "", "")?;
        for (index, operator) in group.iter().enumerate() {
            let leaf = if index + 1 == group.len() { "└─" } else { "├─" };
            let name = format!("{stem} {leaf} {}", operator.name);
            let share = 100.0 * self.share(operator.time);
            write!(f, "{name:<34} {:>6} ", operator.count)?;
            if operator.work == Work::default() {
                write!(f, "{:>12} {:>10} {:>14} ", "", "", "")?;
            } else {
                let Work { flops, bytes } = operator.work;
                write!(f, "{flops:>12} {bytes:>10} {:>14.1} ", operator.work.intensity())?;
            }
            writeln!(f, "{:>12} {:>10} {share:>4.0} %", operator.bound, operator.time)?;
        }
        Ok(())
    }
}
