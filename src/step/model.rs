//! The compiled model: prices any step in nanoseconds.

use super::compile::{self, Terms};
use super::cost::{StepCost, Sum, Total};
use super::load::{PhaseLoad, StepLoad};
use super::pipeline::Pipeline;
use super::places::{self, Alone, Divided};
use super::terms::{AttentionTerm, Counted, ExpertTerm, LinearTerm, Named, RecurrentTerm, TransferTerm};
use super::uncertainty::Spread;
use crate::deployment::{Deployment, DeploymentError};
use crate::hardware::SystemError;
use crate::memory::{DoesNotFit, MemoryModel, MemoryPlan};
use crate::model::{Model, ModelBody, Reaches};
use crate::operator::OperatorClass;
use crate::units::{Bytes, Flops, FlopsPerSecond, Seconds};

/// A deployment compiled to coefficients. Everything the library predicts is built from its [`cost`](Self::cost).
///
/// Compiling takes microseconds; pricing takes nanoseconds and allocates nothing.
///
/// ```
/// use llm_roofline::prelude::*;
///
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system))?;
///
/// let mut decode = model.load();
/// decode.add_decode(1000, 1, 1.0); // one sequence of 1,000 cached tokens
/// let mut prefill = model.load();
/// prefill.add_prefill(0, 1000, true); // the same thousand tokens as a prompt
/// let (decode, prefill) = (model.cost(&decode), model.cost(&prefill));
/// assert_eq!((decode.bound(), prefill.bound()), (Bound::Memory, Bound::Compute));
/// // A thousand prompt tokens cost little more than three decoded ones.
/// assert!(prefill.total() < decode.total() * 4.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StepModel {
    deployment: Deployment,
    reaches: Reaches,
    usual: Operators,
    /// Steps with at least so many tokens run elsewhere.
    many_rows: Option<(f64, Box<Operators>)>,
    /// The places of a divided model; none if all of it is on equal devices.
    pub(super) alone: Vec<Alone>,
    memory: MemoryModel,
    params: MultipliedParams,
    pub(super) spread: Spread,
    pub(super) pipeline: Pipeline,
}

/// Operators by name, and as pricing runs over them.
#[derive(Clone, Debug)]
struct Operators {
    named: Terms,
    priced: Priced,
}

impl Operators {
    fn new(named: Terms) -> Self {
        Self { priced: Priced::new(&named), named }
    }

    /// Everything that does not depend on how long the contexts of decoding sequences are.
    #[inline]
    fn sum_without_decode_attention<S: Sum>(&self, load: &StepLoad) -> S {
        let mut cost: S = self.sum_without_attention(load);
        if load.prefill().tokens > 0.0 {
            let terms = self.priced.prefill_attention.iter();
            cost.add_all(OperatorClass::PrefillAttention, terms.map(|term| term.times(load.prefill())));
        }
        cost
    }

    /// Everything but attention.
    #[inline]
    fn sum_without_attention<S: Sum>(&self, load: &StepLoad) -> S {
        let mut cost = S::default();
        if load.tokens() <= 0.0 {
            return cost;
        }
        let Self { named, priced } = self;
        cost.add_all(OperatorClass::Gemm, priced.linears.iter().map(|term| term.times(load)));
        cost.add_all(OperatorClass::ExpertGemm, priced.experts.iter().map(|term| term.times(load)));
        cost.add_all(OperatorClass::Recurrent, priced.recurrent.iter().map(|term| term.times(load)));
        cost.add_all(OperatorClass::Elementwise, named.elementwise.iter().map(|named| named.term.times(load)));
        cost.add_all(OperatorClass::Elementwise, named.sampling.iter().map(|named| named.term.times(load)));
        if let Some(term) = &named.communication {
            cost.add_time(OperatorClass::Collective, term.time(load));
        }
        for term in &priced.transfers {
            cost.add_time(OperatorClass::Collective, term.time_without_cache(load) + term.cache_time(load.prefill()));
        }
        cost.add_time(OperatorClass::Overhead, named.host.time(load));
        cost
    }
}

/// The terms that pricing runs over: equal operators of different layer kinds merged.
#[derive(Clone, Debug, Default)]
pub(super) struct Priced {
    linears: Vec<LinearTerm>,
    experts: Vec<ExpertTerm>,
    prefill_attention: Vec<AttentionTerm>,
    pub(super) decode_attention: Vec<AttentionTerm>,
    recurrent: Vec<RecurrentTerm>,
    pub(super) transfers: Vec<TransferTerm>,
}

/// Parameters by which rows are multiplied with them.
#[derive(Clone, Copy, Debug)]
struct MultipliedParams {
    by_every_token: f64,
    by_emitting: f64,
}

impl MultipliedParams {
    fn of(model: &Model) -> Self {
        let head = model.architecture().map_or(0, |architecture| architecture.vocab_size * architecture.hidden_size);
        Self { by_every_token: (model.params_active() - head) as f64, by_emitting: head as f64 }
    }
}

/// A deployment that cannot be compiled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The deployment is impossible.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// The system has no such group of devices.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl StepModel {
    /// Compiles a deployment.
    ///
    /// # Errors
    /// [`CompileError`] if no engine could run the deployment, memory aside.
    pub fn compile(deployment: &Deployment) -> Result<Self, CompileError> {
        deployment.check_parts()?;
        Self::compile_of_checked_parts(deployment)
    }

    /// The same for a model and an engine that were checked: of many deployments of the same parts, each takes half the time.
    pub(crate) fn compile_of_checked_parts(deployment: &Deployment) -> Result<Self, CompileError> {
        deployment.check_layout()?;
        let reaches = deployment.reaches()?;
        let sharded = deployment.sharded();
        let divided = match &sharded {
            Some(sharded) if deployment.is_divided() => Divided::new(deployment, sharded, &reaches)?,
            Some(sharded) => Divided::undivided(compile::architecture_terms(deployment, sharded, &reaches)?),
            None => Divided::undivided(compile::totals_terms(deployment)),
        };
        let Divided { mut terms, many_rows, alone, longest_stage } = divided;
        let weights = compile::weight_bytes(deployment, sharded.as_ref());
        places::add_streamed(&mut terms, deployment, weights);
        Ok(Self {
            deployment: deployment.clone(),
            reaches,
            usual: Operators::new(terms),
            many_rows: many_rows.map(|(rows, terms)| (rows, Box::new(Operators::new(terms)))),
            memory: MemoryModel::of_parts(deployment, sharded.as_ref()),
            params: MultipliedParams::of(deployment.model()),
            spread: Spread::of_places(deployment, &alone),
            pipeline: Pipeline::new(deployment, longest_stage),
            alone,
        })
    }

    #[inline]
    fn operators(&self, load: &StepLoad) -> &Operators {
        match &self.many_rows {
            Some((rows, many)) if load.tokens() >= *rows => many,
            _ => &self.usual,
        }
    }

    /// The operators of a step by name.
    pub(super) fn terms(&self, load: &StepLoad) -> &Terms {
        &self.operators(load).named
    }

    /// The operators of a step as pricing runs over them.
    pub(super) fn priced(&self, load: &StepLoad) -> &Priced {
        &self.operators(load).priced
    }

    /// The operators of a step of so many tokens as pricing runs over them.
    #[inline]
    pub(super) fn priced_decode(&self, tokens: f64) -> &Priced {
        match &self.many_rows {
            Some((rows, many)) if tokens >= *rows => &many.priced,
            _ => &self.usual.priced,
        }
    }

    /// The deployment that was compiled.
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Bytes of weights on each device.
    pub fn weight_bytes_per_device(&self) -> Bytes {
        self.memory.weights()
    }

    /// What each device must hold for `sequences` of `context` tokens.
    pub fn memory_plan(&self, sequences: u64, context: u64) -> MemoryPlan {
        self.memory.plan(sequences, context)
    }

    /// The plan if `sequences` of `context` tokens fit.
    ///
    /// # Errors
    /// [`DoesNotFit`] with what is missing where, and suggestions, each of which was tried.
    pub fn fit(&self, sequences: u64, context: u64) -> Result<MemoryPlan, Box<DoesNotFit>> {
        let checked = self.memory.check(sequences, context);
        checked.map_err(|reason| reason.with_suggestions(&self.deployment, sequences, context))
    }

    /// The memory need as coefficients.
    pub const fn memory(&self) -> &MemoryModel {
        &self.memory
    }

    /// An empty step for this model.
    pub const fn load(&self) -> StepLoad {
        StepLoad::new(self.reaches)
    }

    /// The reaches that the model's attention distinguishes.
    pub const fn reaches(&self) -> &Reaches {
        &self.reaches
    }

    /// The cost of one step.
    ///
    /// # Formula
    /// The sum over operators, each by its law ([`engine`](crate::engine)), plus communication and the time of the host. Under the ideal
    /// engine an operator costs `max(flops / peak, bytes / bandwidth)`. A step without tokens costs nothing.
    pub fn cost(&self, load: &StepLoad) -> StepCost {
        let micro_batches = self.pipeline.decode_micro_batches(load.sequences());
        if micro_batches > 1.0 {
            return self.cost_at_once(&load.scaled(1.0 / micro_batches)) * self.pipeline.stage_loss(micro_batches);
        }
        self.cost_at_once(load)
    }

    /// Share of the time of prompt steps that a pipeline takes for them, the longest taking the share `longest`.
    pub(crate) fn prompt_pipeline_share(&self, longest: f64) -> f64 {
        self.pipeline.prompt_share(longest)
    }

    /// The derivative of that share with respect to `longest`.
    pub(crate) fn prompt_pipeline_slope(&self, longest: f64) -> f64 {
        self.pipeline.prompt_share_slope(longest)
    }

    /// The part of [`time`](Self::time) that depends on numbers of tokens and sequences only: all but attention. `None` where there is no such part,
    /// since micro-batches or links to other memories depend on contexts.
    pub fn time_without_attention(&self, load: &StepLoad) -> Option<Seconds> {
        let operators = self.operators(load);
        let whole =
            self.pipeline.decode_micro_batches(load.sequences()) <= 1.0 && operators.priced.transfers.is_empty();
        whole.then(|| operators.sum_without_attention::<Total>(load).0)
    }

    /// The other part of [`time`](Self::time): attention of both phases.
    pub fn attention_time(&self, load: &StepLoad) -> Seconds {
        let priced = &self.operators(load).priced;
        let prefill: Seconds = priced.prefill_attention.iter().map(|term| term.times(load.prefill()).total()).sum();
        let decode: Seconds = priced.decode_attention.iter().map(|term| term.times(load.decode()).total()).sum();
        prefill + decode
    }

    /// The time of one step: [`cost`](Self::cost) without what it consists of, somewhat faster.
    pub fn time(&self, load: &StepLoad) -> Seconds {
        let micro_batches = self.pipeline.decode_micro_batches(load.sequences());
        if micro_batches > 1.0 {
            let share = load.scaled(1.0 / micro_batches);
            return self.sum_at_once::<Total>(&share).0 * self.pipeline.stage_loss(micro_batches);
        }
        self.sum_at_once::<Total>(load).0
    }

    /// The time of tokens that pass through the layers together.
    pub(super) fn time_at_once(&self, load: &StepLoad) -> Seconds {
        self.sum_at_once::<Total>(load).0
    }

    /// The cost of tokens that pass through the layers together.
    fn cost_at_once(&self, load: &StepLoad) -> StepCost {
        let mut cost: StepCost = self.sum_at_once(load);
        if load.prefill().tokens > 0.0 {
            cost.prompt_time = cost.total();
        }
        cost
    }

    #[inline]
    fn sum_at_once<S: Sum>(&self, load: &StepLoad) -> S {
        let operators = self.operators(load);
        let mut cost: S = operators.sum_without_decode_attention(load);
        if load.decode().tokens > 0.0 {
            let priced = &operators.priced;
            let terms = priced.decode_attention.iter();
            cost.add_all(OperatorClass::DecodeAttention, terms.map(|term| term.times(load.decode())));
            if !priced.transfers.is_empty() {
                cost.add_time(OperatorClass::Collective, priced.cache_time(load.decode()));
            }
        }
        cost
    }

    /// Everything that does not depend on how long the contexts of decoding sequences are.
    pub(super) fn cost_without_decode_attention(&self, load: &StepLoad) -> StepCost {
        self.operators(load).sum_without_decode_attention(load)
    }

    /// The arithmetic peak of one device at which most of the model's matrices are multiplied, at the engine's efficiency 1.
    pub fn linear_peak(&self) -> FlopsPerSecond {
        let format = match self.deployment.model().body {
            ModelBody::Architecture(_) => self.deployment.weights().compute_format(),
            ModelBody::Totals(_) => compile::TOTALS_FORMAT,
        };
        self.deployment.system().device().matmul_peak(format, format).peak
    }

    /// Operations of the matrix products over all devices: `2 * parameters * tokens`, the output head for emitting positions only. The
    /// numerator of model FLOP/s utilisation.
    pub fn model_flops(&self, tokens: f64, emitting: f64) -> Flops {
        Flops::from_flops(2.0 * (self.params.by_every_token * tokens + self.params.by_emitting * emitting))
    }
}

impl Priced {
    fn new(terms: &Terms) -> Self {
        Self {
            linears: merge(&terms.linears),
            experts: merge(&terms.experts),
            prefill_attention: merge(&terms.prefill_attention),
            decode_attention: merge(&terms.decode_attention),
            recurrent: merge(&terms.recurrent),
            transfers: merge(&terms.transfers),
        }
    }

    /// Time in which the caches of a phase arrive over a link.
    #[inline]
    fn cache_time(&self, phase: &PhaseLoad) -> Seconds {
        self.transfers.iter().map(|term| term.cache_time(phase)).sum()
    }
}

/// Terms with equal coefficients become one with the sum of their counts.
fn merge<T: Counted>(terms: &[Named<T>]) -> Vec<T> {
    let mut merged: Vec<T> = Vec::with_capacity(terms.len());
    for Named { term, .. } in terms {
        match merged.iter_mut().find(|known| known.with_count(term.count()) == *term) {
            Some(known) => *known = known.with_count(known.count() + term.count()),
            None => merged.push(*term),
        }
    }
    merged
}
