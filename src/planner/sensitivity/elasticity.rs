//! How much every measure depends on every number of the data sheet, the engine and the invoice.

use super::text::wrapped;
use super::{Measure, Measures, Question, Spec};
use crate::planner::PlannerError;
use crate::request::RequestShares;
use crate::step::StepModel;
use serde::Serialize;
use std::fmt;

/// What changes of one number do to all measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SpecEffect {
    /// The number.
    pub spec: Spec,
    /// `d ln measure / d ln spec` of every measure that exists at both sides, or at one.
    pub elasticities: Vec<(Measure, f64)>,
    /// The measures if it is 1.1 times as good: rates and sizes times 1.1, times and prices over it. `None` where that is impossible.
    pub tenth_better: Option<Measures>,
    /// The measures if it is twice as good.
    pub twice_as_good: Option<Measures>,
}

impl SpecEffect {
    /// `d ln measure / d ln spec`, if the measure exists.
    pub fn elasticity(&self, measure: Measure) -> Option<f64> {
        self.elasticities.iter().find(|(known, _)| *known == measure).map(|(_, elasticity)| *elasticity)
    }

    /// Whether nothing depends on it noticeably: less than half a thousandth, and no change by a factor of 2.
    pub fn is_idle(&self, base: &Measures) -> bool {
        let small = |change: f64| change.abs() < 5e-4;
        let doubled = |measure| self.twice_as_good.and_then(|after| after.gain_over(base, measure));
        self.elasticities.iter().all(|(_, elasticity)| small(*elasticity))
            && Measure::ALL.into_iter().all(|measure| doubled(measure).is_none_or(|gain| small(gain - 1.0)))
    }
}

/// Elasticities of all measures with respect to all numbers.
///
/// # Formula
/// `e = d ln M / d ln S`: by how many percent `M` changes if `S` grows by 1 %. Of unloaded latencies it is the exact derivative
/// ([`StepSensitivity`](crate::step::StepSensitivity)). Of the others it is the central difference of logarithms between `S` times and over 1.001 (times and over 1.05
/// of the memory capacity, since sequences are whole numbers); where one side is impossible, the difference to the other side.
///
/// Latencies of a request alone are homogeneous: the elasticities of all rates, minus that of the overhead, add up to -1.
///
/// # Validity
/// An elasticity is a slope, good for some percent. For more there are the measures at 1.1 and 2 times as good, computed anew. Rates within limits are found to a
/// millionth of the largest rate, so that their elasticities have an error of about 10⁻³. Engines choose settings by the size of the memory
/// (tokens per step, sequences): twice the capacity may cross such a threshold.
///
/// # Examples
/// ```
/// use llm_roofline::planner::{Measure, Question, Spec};
/// use llm_roofline::prelude::*;
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let question = Question::new(Deployment::new(catalog.model("llama-3.1-8b")?, system), 1000, 200)?;
/// let sensitivity = question.sensitivity()?;
/// // Under the ideal engine the answer of one request is all reading: twice the bandwidth, half the time.
/// let bandwidth = sensitivity.of(Spec::MemoryBandwidth).unwrap();
/// assert_eq!(format!("{:.2}", bandwidth.elasticity(Measure::Tpot).unwrap()), "-1.00");
/// assert!(sensitivity.of(Spec::ComputeAll).unwrap().elasticity(Measure::Ttft).unwrap() < -0.9); // a prompt is nearly all arithmetic
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sensitivity {
    /// The measures as they are.
    pub base: Measures,
    /// One entry for every number that exists.
    pub effects: Vec<SpecEffect>,
}

/// Step of the central difference, in the logarithm about a thousandth.
const STEP: f64 = 1.001;
/// The same of the memory: sequences are whole.
const CAPACITY_STEP: f64 = 1.05;

impl Question {
    /// How much all measures depend on all numbers.
    ///
    /// # Errors
    /// As [`measure`](Self::measure): what is impossible with a changed number is left out.
    pub fn sensitivity(&self) -> Result<Sensitivity, PlannerError> {
        let model = StepModel::compile(self.deployment())?;
        let base = self.measure_model(&model)?;
        let exact = model.sensitivity()?.request_shares(&self.request())?;
        let priced = |spec: &Spec| *spec != Spec::Price || self.usd_per_device_hour().is_some();
        let specs = Spec::all(self.deployment()).into_iter().filter(priced);
        let effects = specs.map(|spec| self.effect(spec, &base, &exact)).collect();
        Ok(Sensitivity { base, effects })
    }

    fn effect(&self, spec: Spec, base: &Measures, exact: &RequestShares) -> SpecEffect {
        // What does not fit any more, or is no device any more, has no measures.
        let at = |factor: f64| self.with_spec_times(spec, factor).and_then(|changed| changed.measure()).ok();
        let step = if spec == Spec::MemoryCapacity { CAPACITY_STEP } else { STEP };
        let (more, less) = (at(step), at(1.0 / step));
        let elasticity = |measure: Measure| match measure {
            Measure::Ttft => Some(exact.prefill.elasticity(spec)),
            Measure::Tpot => base.tpot.map(|_| exact.decode.elasticity(spec)),
            Measure::E2e => Some(exact.e2e().elasticity(spec)),
            _ => difference(
                less.and_then(|less| less.number(measure)),
                base.number(measure),
                more.and_then(|more| more.number(measure)),
                step,
            ),
        };
        let elasticities = Measure::ALL.into_iter().filter_map(|measure| Some((measure, elasticity(measure)?)));
        let elasticities = elasticities.collect();
        let better = |times: f64| at(spec.improved(times));
        SpecEffect { spec, elasticities, tenth_better: better(1.1), twice_as_good: better(2.0) }
    }
}

/// The slope of the logarithm between the two sides, or between the middle and the only side that there is.
fn difference(less: Option<f64>, here: Option<f64>, more: Option<f64>, step: f64) -> Option<f64> {
    let slope = |from: f64, to: f64, steps: f64| {
        let slope = (to / from).ln() / (steps * step.ln());
        slope.is_finite().then_some(slope)
    };
    match (less, here?, more) {
        (Some(less), _, Some(more)) => slope(less, more, 2.0),
        (Some(less), here, None) => slope(less, here, 1.0),
        (None, here, Some(more)) => slope(here, more, 1.0),
        (None, _, None) => None,
    }
}

impl Sensitivity {
    /// The effects of one number.
    pub fn of(&self, spec: Spec) -> Option<&SpecEffect> {
        self.effects.iter().find(|effect| effect.spec == spec)
    }

    /// The measures that exist.
    pub fn measures(&self) -> impl Iterator<Item = Measure> + '_ {
        Measure::ALL.into_iter().filter(|measure| self.base.number(*measure).is_some())
    }

    /// How many times better a measure is if a number is twice as good.
    pub fn gain_of_doubling(&self, spec: Spec, measure: Measure) -> Option<f64> {
        self.of(spec)?.twice_as_good?.gain_over(&self.base, measure)
    }
}

impl fmt::Display for Sensitivity {
    /// The elasticities as a table; what nothing depends on is named in the last line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A request is a fixed number of tokens: its cost has the same elasticities as that of a token.
        let measures: Vec<Measure> = self.measures().filter(|measure| *measure != Measure::CostPerRequest).collect();
        write!(f, "{:<17}", "if 1 % more of")?;
        measures.iter().try_for_each(|measure| write!(f, "{measure:>10}"))?;
        let (idle, active): (Vec<_>, Vec<_>) = self.effects.iter().partition(|effect| effect.is_idle(&self.base));
        for effect in active {
            write!(f, "\n{:<17}", effect.spec)?;
            for measure in &measures {
                match effect.elasticity(*measure) {
                    Some(elasticity) => write!(f, "{:>8} %", signed(elasticity))?,
                    None => write!(f, "{:>10}", "-")?,
                }
            }
        }
        if !idle.is_empty() {
            let names: Vec<String> = idle.iter().map(|effect| effect.spec.to_string()).collect();
            write!(f, "\n{}", wrapped(&format!("without effect: {}", names.join(", "))))?;
        }
        Ok(())
    }
}

/// Two digits with a sign; a plain zero for what rounds to it.
fn signed(number: f64) -> String {
    let text = format!("{number:+.2}");
    if text.ends_with("0.00") { "0".into() } else { text }
}
