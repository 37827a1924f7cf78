//! Before a contract is signed: what bounds each phase, and which resource is worth paying for.

mod text;

use super::{Measure, Question, Sensitivity, Spec};
use crate::planner::PlannerError;
use crate::roofline::Bound;
use crate::serving::metrics::Metric;
use crate::serving::{Binding, Limit, Server, SteadyState};
use crate::step::{ResourceShares, StepCost, StepModel, StepSensitivity};
use crate::units::Seconds;
use crate::workload::Slo;
use serde::Serialize;
use std::fmt;

/// A part of the work with a bound of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The prompt of a request that is alone.
    Prefill,
    /// The answer of a request that is alone.
    DecodeAlone,
    /// A decode step with as many sequences as at the largest load within the limits (one where no load meets them), or as run at once where there are no
    /// limits; contexts half way through their answers.
    DecodeAtCapacity,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Prefill => "prefill",
            Self::DecodeAlone => "decode, alone",
            Self::DecodeAtCapacity => "decode, at capacity",
        })
    }
}

/// What bounds a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PhaseBound {
    /// The phase.
    pub phase: Phase,
    /// Sequences at once, in the mean.
    pub sequences: f64,
    /// Of the whole prefill; of one decode step.
    pub time: Seconds,
    /// What most of the time is spent in operators bound by.
    pub bound: Bound,
    /// Share of the time in operators bound by each.
    pub bounds: [(Bound, f64); 4],
    /// The time by what it depends on: what an operator's bound hides.
    pub resources: ResourceShares,
}

/// What a resource that is twice as good brings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Doubling {
    /// The resource: rates and sizes doubled, times halved.
    pub spec: Spec,
    /// How many times better each measure that exists becomes.
    pub gains: Vec<(Measure, f64)>,
}

impl Doubling {
    /// How many times better a measure becomes.
    pub fn gain(&self, measure: Measure) -> Option<f64> {
        self.gains.iter().find(|(known, _)| *known == measure).map(|(_, gain)| *gain)
    }

    /// Whether no measure notices.
    pub fn is_idle(&self) -> bool {
        self.gains.iter().all(|(_, gain)| (gain - 1.0).abs() < NOTHING)
    }
}

/// What bounds a deployment, and what would help.
///
/// # Validity
/// Bounds are those of operators: an operator bound by memory may gain from arithmetic all the same where the two do not overlap fully. The shares by
/// resource say what one percent brings, the doublings what a factor of two does. All devices get better at once.
///
/// ```
/// use llm_roofline::planner::{Measure, Phase, Question};
/// use llm_roofline::prelude::*;
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
/// let diagnosis = Question::new(deployment, 2000, 300)?.diagnose()?;
/// assert_eq!(diagnosis.phase(Phase::Prefill).unwrap().bound, Bound::Compute);
/// assert_eq!(diagnosis.phase(Phase::DecodeAlone).unwrap().bound, Bound::Memory);
/// assert_eq!(diagnosis.main, Measure::E2e);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeploymentDiagnosis {
    /// Prefill, decode alone and decode at capacity; the decode phases only of answers of several tokens.
    pub phases: Vec<PhaseBound>,
    /// The measure that counts.
    pub main: Measure,
    /// What each resource brings if it is twice as good, the largest gain in the main measure first.
    pub doublings: Vec<Doubling>,
    /// Sequences that can run at once.
    pub slots: u64,
    /// What keeps more from running at once.
    #[serde(serialize_with = "as_text")]
    pub limit: Limit,
    /// Why the load cannot be larger within the limits, if there are some.
    #[serde(serialize_with = "as_optional_text")]
    pub binding: Option<Binding>,
    /// All elasticities.
    pub sensitivity: Sensitivity,
}

impl Question {
    /// The measure that counts if nobody says which: the cost of a million output tokens where a price and limits are known, the end-to-end latency otherwise.
    /// Where no load meets the limits it is the latency that is farthest above its own.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn main_measure(&self) -> Result<Measure, PlannerError> {
        let model = StepModel::compile(self.deployment())?;
        let capacity =
            self.target().map(|target| self.server(&model)?.max_rate_under(target).map_err(PlannerError::from));
        Ok(self.main_measure_within(capacity.transpose()?.map(|capacity| capacity.binding).as_ref()))
    }

    fn main_measure_within(&self, binding: Option<&Binding>) -> Measure {
        match (binding, self.usd_per_device_hour()) {
            (Some(Binding::Unloaded(breach)), _) => match breach.metric() {
                Some(Metric::Ttft) => Measure::Ttft,
                Some(Metric::Tpot | Metric::Itl) => Measure::Tpot,
                Some(Metric::E2e) | None => Measure::E2e,
            },
            (Some(_), Some(_)) => Measure::CostPerMillionOutputTokens,
            _ => Measure::E2e,
        }
    }

    /// What bounds each phase, and what better resources would bring.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn diagnose(&self) -> Result<DeploymentDiagnosis, PlannerError> {
        let model = StepModel::compile(self.deployment())?;
        let server = self.server(&model)?;
        let (state, binding) = self.state_at_capacity(&server)?;
        let phases = self.phases(&model, state.summary.mean_batch.unwrap_or(1.0).max(1.0))?;
        let (sensitivity, main) = (self.sensitivity()?, self.main_measure_within(binding.as_ref()));
        let doublings = doublings(self, &sensitivity, main);
        let (slots, limit) = server.rules().slots();
        Ok(DeploymentDiagnosis { phases, main, doublings, slots, limit, binding, sensitivity })
    }

    /// The largest load within the limits, or of all if there are none, and why it cannot be larger.
    pub(super) fn state_at_capacity(
        &self,
        server: &Server<'_>,
    ) -> Result<(SteadyState, Option<Binding>), PlannerError> {
        Ok(match self.target() {
            Some(target) => {
                let capacity = server.max_rate_under(target)?;
                (capacity.state, Some(capacity.binding))
            }
            None => (server.offline(&Slo::default()), None),
        })
    }

    fn phases(&self, model: &StepModel, sequences: f64) -> Result<Vec<PhaseBound>, PlannerError> {
        let (request, sensitivity) = (self.request(), model.sensitivity()?);
        let (answer, shares) = (model.request(&request)?, sensitivity.request_shares(&request)?);
        let mut phases = vec![PhaseBound::new(Phase::Prefill, 1.0, &answer.prefill, shares.prefill)];
        let steps = self.output_tokens().saturating_sub(1);
        if steps > 0 {
            let each = 1.0 / steps as f64;
            phases.push(PhaseBound::new(Phase::DecodeAlone, 1.0, &(answer.decode * each), shares.decode * each));
            phases.push(self.at_capacity(&sensitivity, sequences));
        }
        Ok(phases)
    }

    fn at_capacity(&self, sensitivity: &StepSensitivity<'_>, sequences: f64) -> PhaseBound {
        let mut load = sensitivity.model().load();
        load.add_decode(self.prompt_tokens().saturating_add(self.output_tokens() / 2), 1, sequences);
        let cost = sensitivity.model().cost(&load);
        PhaseBound::new(Phase::DecodeAtCapacity, sequences, &cost, sensitivity.shares(&load))
    }
}

impl PhaseBound {
    fn new(phase: Phase, sequences: f64, cost: &StepCost, resources: ResourceShares) -> Self {
        let time = cost.total();
        let share = |bound| (bound, if time > Seconds::ZERO { cost.bound_time(bound) / time } else { 0.0 });
        let bounds = [Bound::Compute, Bound::Memory, Bound::Interconnect, Bound::Overhead].map(share);
        Self { phase, sequences, time, bound: cost.bound(), bounds, resources }
    }
}

/// Every resource that can be better, the best first.
fn doublings(question: &Question, sensitivity: &Sensitivity, main: Measure) -> Vec<Doubling> {
    let mut resources = Spec::resources(question.deployment());
    resources.push(Spec::MemoryCapacity);
    let gains = |spec: Spec| {
        let gain = |measure: Measure| Some((measure, sensitivity.gain_of_doubling(spec, measure)?));
        Doubling { spec, gains: Measure::ALL.into_iter().filter_map(gain).collect() }
    };
    let mut doublings: Vec<Doubling> = resources.into_iter().map(gains).collect();
    // What the main measure does not notice is ordered by the end-to-end latency.
    let key = |doubling: &Doubling| {
        let gain = |measure| doubling.gain(measure).unwrap_or(0.0);
        ((gain(main) * 1000.0).round(), gain(Measure::E2e))
    };
    doublings.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    doublings
}

impl DeploymentDiagnosis {
    /// What bounds one phase, if there is one.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseBound> {
        self.phases.iter().find(|found| found.phase == phase)
    }

    /// Whether more memory would let more run: the cache is what limits sequences, and no latency ends the load before.
    pub fn wants_memory(&self) -> bool {
        self.limit == Limit::Cache && matches!(self.binding, None | Some(Binding::Deployment(Limit::Cache)))
    }
}

/// A gain of less than this is none.
pub(super) const NOTHING: f64 = 0.001;

fn as_text<S: serde::Serializer>(limit: &Limit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(limit)
}

fn as_optional_text<S: serde::Serializer>(binding: &Option<Binding>, serializer: S) -> Result<S::Ok, S::Error> {
    match binding {
        Some(binding) => serializer.serialize_some(&binding.to_string()),
        None => serializer.serialize_none(),
    }
}
