//! A target and its drafter, compiled: what a cycle of drafting and verifying costs.

use super::{Acceptance, Method, Proposal, Speculation, SpeculationError};
use crate::deployment::Deployment;
use crate::engine::{Keys, Parameter, Quantity};
use crate::memory::MemoryModel;
use crate::model::{Layer, Mixer};
use crate::operator::OperatorClass;
use crate::step::{Explanation, StepCost, StepModel};
use crate::units::Seconds;

/// A deployment with speculative decoding, compiled. Everything is priced by the two [`StepModel`]s of target and drafter.
///
/// A cycle proposes tokens for every sequence, lets the target compute all of them in one step, and keeps what it agrees with. Verifying is
/// priced as that step: matrices meet `draft_tokens + 1` rows per sequence, the cache is read once for all of them, mixtures of experts touch more
/// experts, states of recurrent layers are written for each.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::speculative::{Method, Speculation, SpeculativeModel};
///
/// let catalog = Catalog::embedded();
/// let target = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?)
///     .with_engine(catalog.engine("sglang")?);
/// let speculation = Speculation::new(Method::Eagle3, &target)?.with_draft_tokens(3)?.with_acceptance_rate(0.7)?;
/// let model = SpeculativeModel::compile(&target, &speculation)?;
///
/// // Alone, a short sequence decodes nearly twice as fast; among 512 nothing is gained. Among as many long ones it is.
/// let [alone, many, long] = [(1, 500), (512, 500), (512, 30_000)].map(|(batch, cached)| model.speedup(batch, cached));
/// assert!(alone > 1.8 && many < 1.1 && long > 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SpeculativeModel {
    speculation: Speculation,
    target: StepModel,
    drafter: Option<StepModel>,
    law: CycleLaw,
    memory: MemoryModel,
    tokens_per_step: f64,
}

/// What a cycle costs beside the passes of the models.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CycleLaw {
    cycle: Seconds,
    tree: Seconds,
    /// In place of the host's time of a step; `None` where a pass is a step like any other.
    draft_pass: Option<Seconds>,
    /// Standard deviation of the logarithm of speed-ups.
    deviation: f64,
}

/// What one cycle costs, on each device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CycleCost {
    /// All passes of the drafter, with what the engine does around each.
    pub draft: Seconds,
    /// The step of the target over all proposals.
    pub verify: StepCost,
    /// What the engine does once in a cycle: choosing, comparing, preparing.
    pub overhead: Seconds,
}

impl CycleCost {
    /// Drafting, verifying, and what is around.
    pub fn total(&self) -> Seconds {
        self.draft + self.verify.total() + self.overhead
    }
}

impl std::ops::Mul<f64> for CycleCost {
    type Output = Self;
    fn mul(self, times: f64) -> Self {
        Self { draft: self.draft * times, verify: self.verify * times, overhead: self.overhead * times }
    }
}

impl SpeculativeModel {
    /// Compiles target and drafter; the engine of the target runs both.
    ///
    /// # Errors
    /// [`SpeculationError::Target`] and [`SpeculationError::Drafter`] if no engine could run them, memory aside.
    pub fn compile(target: &Deployment, speculation: &Speculation) -> Result<Self, SpeculationError> {
        if let Some(drafting) = speculation.drafting() {
            drafting.check(target)?;
        }
        let drafter = speculation.drafter().map(|drafter| drafter.clone().under_engine_of(target));
        let drafter = drafter.as_ref().map(StepModel::compile).transpose().map_err(SpeculationError::Drafter)?;
        Ok(Self {
            target: StepModel::compile(target).map_err(SpeculationError::Target)?,
            drafter,
            law: CycleLaw::of(target),
            memory: memory(target, speculation),
            tokens_per_step: speculation.tokens_per_step(),
            speculation: speculation.clone(),
        })
    }

    /// The same accepted otherwise.
    #[must_use]
    pub fn with_acceptance(self, acceptance: impl Into<Acceptance>) -> Self {
        let speculation = self.speculation.with_acceptance(acceptance);
        Self { tokens_per_step: speculation.tokens_per_step(), speculation, ..self }
    }

    /// The same with proposals of another shape: nothing is compiled anew.
    #[must_use]
    pub fn with_proposal(self, proposal: Proposal) -> Self {
        let speculation = self.speculation.with_proposal(proposal);
        let memory = memory(self.target.deployment(), &speculation);
        Self { tokens_per_step: speculation.tokens_per_step(), memory, speculation, ..self }
    }

    /// What was compiled.
    pub const fn speculation(&self) -> &Speculation {
        &self.speculation
    }

    /// The target, which is the deployment without speculation.
    pub const fn target(&self) -> &StepModel {
        &self.target
    }

    /// The drafter; `None` where candidates come from no model.
    pub const fn drafter(&self) -> Option<&StepModel> {
        self.drafter.as_ref()
    }

    /// The memory need of target, drafter and proposals.
    pub const fn memory(&self) -> &MemoryModel {
        &self.memory
    }

    /// Tokens that a cycle yields for each sequence in the mean: the accepted proposals and one of the target's own.
    pub const fn tokens_per_step(&self) -> f64 {
        self.tokens_per_step
    }

    /// Standard deviation of the logarithm of speed-ups.
    pub(super) const fn log_deviation(&self) -> f64 {
        self.law.deviation
    }

    /// The cost of one cycle of `batch` sequences that each have `cached` tokens in the cache.
    pub fn cycle(&self, batch: u64, cached: u64) -> CycleCost {
        let plain = self.plain(batch, cached, 1);
        self.cycles(self.speculation.proposal(), batch, cached, 1, &plain)
    }

    /// Verification operator by operator: the step of the target over all proposals of `batch` sequences.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::speculative::Method;
    ///
    /// let catalog = Catalog::embedded();
    /// let target = Deployment::new(catalog.model("qwen3-30b-a3b")?, System::new(catalog.device("h200-sxm-141gb")?, 1)?);
    /// let model = SpeculativeModel::compile(&target, &Speculation::new(Method::Eagle3, &target)?.with_draft_tokens(3)?)?;
    /// // Of 128 experts, 32 tokens are sent to 112, the 8 tokens of a step without speculation to 52.
    /// let bytes = |explanation: &step::Explanation| {
    ///     explanation.operators.iter().find(|operator| operator.class == OperatorClass::ExpertGemm).unwrap().work.bytes
    /// };
    /// let (verification, step) = (model.explain_verification(8, 1000), target_step(&model));
    /// assert_eq!(format!("{:.2}", bytes(&verification) / bytes(&step)), "2.17");
    /// # use llm_roofline::step;
    /// # fn target_step(model: &SpeculativeModel) -> step::Explanation {
    /// #     let mut load = model.target().load();
    /// #     load.add_decode(1000, 1, 8.0);
    /// #     model.target().explain(&load)
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_verification(&self, batch: u64, cached: u64) -> Explanation {
        let mut load = self.target.load();
        load.add_decode(cached, self.speculation.proposal().verified_tokens(), batch as f64);
        self.target.explain(&load)
    }

    /// A pass of the drafter after the first, operator by operator; `None` where candidates come from no model.
    ///
    /// In place of the step's overhead an engine may have a time of its own per pass, see [`SpeculationLaw`](crate::engine::SpeculationLaw).
    pub fn explain_draft_pass(&self, batch: u64, cached: u64) -> Option<Explanation> {
        let drafter = self.drafter.as_ref()?;
        let mut load = drafter.load();
        load.add_decode(cached, self.speculation.proposal().top_k(), batch as f64);
        Some(drafter.explain(&load))
    }

    /// Cost of steps without speculation from every length that contexts of `cached` tokens and more pass through.
    pub(super) fn plain(&self, batch: u64, cached: u64, lengths: u64) -> StepCost {
        self.target.decode_run(batch, cached, lengths)
    }

    /// Cost of cycles from as many lengths (see [`StepModel::decode_run_of`]), at which steps without speculation cost `plain`.
    pub(super) fn cycles(
        &self,
        proposal: &Proposal,
        batch: u64,
        cached: u64,
        lengths: u64,
        plain: &StepCost,
    ) -> CycleCost {
        if proposal.draft_tokens() == 0 || batch == 0 {
            return CycleCost { verify: *plain, ..CycleCost::default() };
        }
        let verify = self.target.decode_run_of(proposal.verified_tokens(), batch, cached, lengths);
        let tree = if proposal.is_tree() { self.law.tree } else { Seconds::ZERO };
        CycleCost {
            draft: self.draft(proposal, batch, cached, lengths),
            // Where kernels for many rows are faster than those for few, an engine could decode with them too: speculation gains nothing by that.
            verify: if verify.total() < plain.total() { *plain } else { verify },
            overhead: (self.law.cycle + tree) * lengths as f64,
        }
    }

    /// The passes of the drafter: the first one over the tokens that were accepted last, the others over the best candidates of the one before.
    fn draft(&self, proposal: &Proposal, batch: u64, cached: u64, lengths: u64) -> Seconds {
        let Some(drafter) = &self.drafter else { return Seconds::ZERO };
        let method = self.speculation.method();
        let first_rows = if starts_with_a_block(method) { proposal.most_accepted() + 1 } else { 1 };
        let first = self.pass(drafter.decode_run_of(first_rows, batch, cached, lengths), lengths);
        let further = if method.is_sequential() { proposal.depth() - 1 } else { 0 };
        if further == 0 {
            return first;
        }
        // In the mean the others find as many tokens more in the cache as half of them.
        let pass = drafter.decode_run_of(proposal.top_k(), batch, cached.saturating_add(further.div_ceil(2)), lengths);
        first + self.pass(pass, lengths) * further as f64
    }

    /// The time of passes as part of cycles.
    fn pass(&self, cost: StepCost, passes: u64) -> Seconds {
        match self.law.draft_pass {
            Some(around) => cost.total() - cost.time(OperatorClass::Overhead) + around * passes as f64,
            None => cost.total(),
        }
    }
}

fn memory(target: &Deployment, speculation: &Speculation) -> MemoryModel {
    let draft_tokens = speculation.proposal().draft_tokens();
    let drafting = speculation.drafting().filter(|_| draft_tokens > 0);
    MemoryModel::with_drafter(target, draft_tokens, drafting)
}

/// Whether the first pass is over as many positions as may be accepted and one: the accepted tokens from the target's hidden states, or a whole
/// block of guesses; a draft model has cached its own proposals.
const fn starts_with_a_block(method: Method) -> bool {
    matches!(method, Method::Eagle | Method::Eagle2 | Method::Eagle3 | Method::DFlash | Method::Mtp)
}

impl CycleLaw {
    fn of(target: &Deployment) -> Self {
        let law = &target.engine().speculation;
        let time = |parameter| number(target, parameter).map(Seconds::from_seconds);
        let take_back = time(&law.take_back).unwrap_or(Seconds::ZERO) * recurrent_layers(target);
        Self {
            cycle: time(&law.cycle).unwrap_or(Seconds::ZERO) + take_back,
            tree: time(&law.tree).unwrap_or(Seconds::ZERO),
            draft_pass: time(&law.draft_pass),
            deviation: number(target, &target.engine().uncertainty.speculation).unwrap_or(0.0),
        }
    }
}

fn recurrent_layers(target: &Deployment) -> f64 {
    let is_recurrent = |layer: &&Layer| matches!(layer.mixer, Mixer::Recurrent(_));
    target.model().architecture().map_or(0.0, |model| model.iter_layers().filter(is_recurrent).count() as f64)
}

/// A parameter on the devices of a deployment, in the base unit.
fn number<Q: Quantity>(deployment: &Deployment, parameter: &Option<Parameter<Q>>) -> Option<f64> {
    let keys = deployment.system().device().kernel_keys();
    let generation = keys.each_ref().map(String::as_str);
    parameter.as_ref().map(|parameter| parameter.at(&Keys { generation: &generation, format: &[] }).value)
}
