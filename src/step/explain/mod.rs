//! A step taken apart: every operator with its work, its bound, its share of the time, and how far it is from the hardware's limit.

mod build;
mod source;
mod table;

pub(crate) use build::Explainer;
pub use source::{LawReference, LawSource, LawValue};

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
    /// The part of it that does not depend on the work: launches, walks along inputs, quantization of inputs.
    pub fixed: Seconds,
    /// The hardware's limit.
    ///
    /// # Formula
    /// `max(operations / peak, bytes / bandwidth)` with the same parallelism and fused attention, at the fastest of the number format's peak
    /// and that of the units that the engine multiplies with; for communication the links' bandwidth without latency; 0 for overhead.
    pub ideal: Seconds,
    /// What limits it.
    pub bound: Bound,
    /// The parameters of the engine's laws that decide its time, the most important one first; none under the ideal engine.
    pub laws: Vec<LawSource>,
}

impl OperatorCost {
    /// Share of the hardware's limit that is reached: ideal time over time, at most 1; 0 for overhead.
    pub fn efficiency(&self) -> f64 {
        self.ideal / self.time
    }

    /// Time lost against the hardware's limit.
    pub fn lost(&self) -> Seconds {
        self.time - self.ideal
    }
}

/// The cost of a step as a tree: groups of layers, and the operators in them.
///
/// Its text form is the table that `quickstart` prints; its times sum to [`StepCost::total`](super::StepCost::total).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// Slug of the engine; with `and`, those of several where parts of the model run under another.
    pub engine: String,
    /// Operators in the order in which they run, layer kind by layer kind.
    pub operators: Vec<OperatorCost>,
    /// Time of the whole step.
    pub total: Seconds,
}

impl StepModel {
    /// The cost of a step, operator by operator. For people; [`cost`](Self::cost) gives the sum a thousand times faster.
    ///
    /// ```
    /// # use llm_roofline::prelude::*;
    /// # let catalog = Catalog::embedded();
    /// # let system = System::new(catalog.device("rtx-4090-24gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system)
    ///     .with_weights("q4_k_m".parse()?)
    ///     .with_engine(catalog.engine("llama.cpp")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let mut load = model.load();
    /// load.add_decode(1000, 1, 1.0);
    /// let explanation = model.explain(&load);
    /// let slowest = explanation.longest().unwrap();
    /// assert_eq!((slowest.name, slowest.bound), ("gate_up_proj", Bound::Memory));
    /// assert!(slowest.efficiency() > 0.8 && slowest.efficiency() < 1.0);
    /// assert_eq!(slowest.laws[0].parameter, "gemm.memory"); // the share of the bandwidth that these kernels reach ...
    /// assert!(slowest.laws[0].sources[0].reference.contains("llama.cpp discussions")); // ... and who measured it
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain(&self, load: &StepLoad) -> Explanation {
        let mut explainer = Explainer::new(self);
        explainer.add(load);
        explainer.finish(1.0)
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

    /// The hardware's limit for the whole step: the sum over its operators, which run one after another.
    pub fn ideal(&self) -> Seconds {
        self.operators.iter().map(|operator| operator.ideal).sum()
    }

    /// Share of the hardware's limit that the step reaches; 1 for a step without operators.
    pub fn efficiency(&self) -> f64 {
        if self.total > Seconds::ZERO { self.ideal() / self.total } else { 1.0 }
    }

    /// Time lost against the hardware's limit.
    pub fn lost(&self) -> Seconds {
        self.total - self.ideal()
    }

    /// Where the time between the hardware's limit and the prediction goes, the largest loss first.
    pub fn lost_by_class(&self) -> Losses {
        let lost = self.lost();
        let of_class = |class| -> Seconds {
            self.operators.iter().filter(|operator| operator.class == class).map(OperatorCost::lost).sum()
        };
        let mut classes: Vec<Loss> = OperatorClass::ALL
            .into_iter()
            .map(|class| (class, of_class(class)))
            .filter(|(_, time)| *time > Seconds::ZERO)
            .map(|(class, time)| Loss { class, time, share: time / lost })
            .collect();
        classes.sort_by(|a, b| b.time.as_seconds().total_cmp(&a.time.as_seconds()));
        Losses { lost, total: self.total, classes }
    }

    /// Every parameter of the engine's laws that the operators name, once per value.
    pub fn laws(&self) -> Vec<&LawSource> {
        let mut laws: Vec<&LawSource> = Vec::new();
        for law in self.operators.iter().flat_map(|operator| &operator.laws) {
            if !laws.contains(&law) {
                laws.push(law);
            }
        }
        laws.sort_by(|a, b| a.parameter.cmp(b.parameter));
        laws
    }
}

/// Where a step loses time against the hardware's limit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Losses {
    /// Time lost in all.
    pub lost: Seconds,
    /// Time of the step.
    pub total: Seconds,
    /// Classes of operators that lose time, the largest loss first.
    pub classes: Vec<Loss>,
}

/// Time that a class of operators loses.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// The class.
    pub class: OperatorClass,
    /// Time lost.
    pub time: Seconds,
    /// Share of what the step loses in all.
    pub share: f64,
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.classes.is_empty() {
            return write!(f, "nothing lost against the hardware's limit");
        }
        let share = 100.0 * (self.lost / self.total);
        write!(f, "{} of {} ({share:.0} %) lost against the hardware's limit: ", self.lost, self.total)?;
        for (index, Loss { class, share, .. }) in self.classes.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{class} {:.0} %", 100.0 * share)?;
        }
        Ok(())
    }
}
