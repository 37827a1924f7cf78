//! Prices every operator twice: under the engine, and at the hardware's limit.

use super::source::LawSources;
use super::{Explanation, OperatorCost};
use crate::deployment::Host;
use crate::engine::{Arithmetic, Engine, Parameter, Positive};
use crate::operator::OperatorClass;
use crate::profile::Sourced;
use crate::roofline::{Bound, Work};
use crate::step::StepLoad;
use crate::step::compile::Terms;
use crate::step::cost::OperatorTimes;
use crate::step::model::StepModel;
use crate::step::terms::CommunicationTerm;
use crate::units::Seconds;
use std::sync::Arc;

/// Explains steps of one model and adds them up.
pub(crate) struct Explainer<'a> {
    model: &'a StepModel,
    /// Of the engine that drives the step, and of every place.
    driver: LawSources<'a>,
    laws: Vec<LawSources<'a>>,
    /// The same deployment without losses; none if the engine has none.
    limits: Vec<StepModel>,
    operators: Vec<Explained>,
    steps: usize,
}

struct Explained {
    cost: OperatorCost,
    /// The longest single step that the cost contains: its bound and laws stand for all.
    longest: Seconds,
    /// The last step that was added to it.
    step: usize,
}

/// What passes the layers together.
struct Step<'a> {
    load: &'a StepLoad,
    /// Factor on all times for stages that wait for one another.
    loss: f64,
}

impl<'a> Explainer<'a> {
    pub(crate) fn new(model: &'a StepModel) -> Self {
        Self {
            model,
            driver: LawSources::new(model.deployment()),
            laws: LawSources::of_places(model),
            limits: limits(model),
            operators: Vec::new(),
            steps: 0,
        }
    }

    /// Adds a step.
    pub(crate) fn add(&mut self, load: &StepLoad) {
        if load.tokens() <= 0.0 {
            return;
        }
        self.steps += 1;
        let pipeline = &self.model.pipeline;
        let micro_batches = pipeline.decode_micro_batches(load.sequences());
        let load = if micro_batches > 1.0 { load.scaled(1.0 / micro_batches) } else { *load };
        let step = Step { load: &load, loss: pipeline.stage_loss(micro_batches) };
        self.add_products(&step);
        self.add_attention(&step);
        self.add_rest(&step);
        self.add_communication(&step);
        let host = self.model.terms(&load).host.time(&load);
        let laws = self.driver.host(&load);
        self.add_time(&step, ("engine", "step overhead"), OperatorClass::Overhead, 1.0, (host, Seconds::ZERO), laws);
    }

    /// The steps together, their times multiplied by `share`: what remains of them when they overlap.
    pub(crate) fn finish(self, share: f64) -> Explanation {
        let mut operators: Vec<OperatorCost> = self.operators.into_iter().map(|explained| explained.cost).collect();
        for operator in &mut operators {
            operator.work = operator.work * share;
            for time in [&mut operator.time, &mut operator.fixed, &mut operator.ideal] {
                *time = *time * share;
            }
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
        Explanation { engine: engines(self.model), operators, total }
    }

    fn add_products(&mut self, step: &Step<'_>) {
        let (model, load) = (self.model, step.load);
        for (index, named) in model.terms(load).linears.iter().enumerate() {
            let times = named.term.times(load);
            let ideal = self.limit(load, &times, |terms| terms.linears.get(index).map(|limit| limit.term.times(load)));
            let laws = self.laws(named.place).linear(&named.term, load, times.bound());
            self.push(step, (&named.group, named.name), named.class, named.term.count, times, ideal, laws);
        }
        for (index, named) in model.terms(load).experts.iter().enumerate() {
            let times = named.term.times(load);
            let ideal = self.limit(load, &times, |terms| terms.experts.get(index).map(|limit| limit.term.times(load)));
            let laws = self.laws(named.place).experts(&named.term, load, times.bound());
            self.push(step, (&named.group, named.name), named.class, named.term.count, times, ideal, laws);
        }
    }

    fn add_attention(&mut self, step: &Step<'_>) {
        let (model, load) = (self.model, step.load);
        for (index, named) in model.terms(load).prefill_attention.iter().enumerate() {
            let times = named.term.times(load.prefill());
            let limit = |terms: &Terms| Some(terms.prefill_attention.get(index)?.term.times(load.prefill()));
            let ideal = self.limit(load, &times, limit);
            let laws = self.laws(named.place).prefill_attention(&named.group, named.name, times.bound());
            self.push(step, (&named.group, named.name), named.class, named.term.count, times, ideal, laws);
        }
        for (index, named) in model.terms(load).decode_attention.iter().enumerate() {
            let times = named.term.times(load.decode());
            let limit = |terms: &Terms| Some(terms.decode_attention.get(index)?.term.times(load.decode()));
            let ideal = self.limit(load, &times, limit);
            let laws = self.laws(named.place).decode_attention(&named.group, named.name, times.bound());
            self.push(step, (&named.group, named.name), named.class, named.term.count, times, ideal, laws);
        }
    }

    fn add_rest(&mut self, step: &Step<'_>) {
        let (model, load) = (self.model, step.load);
        for (index, named) in model.terms(load).recurrent.iter().enumerate() {
            let times = named.term.times(load);
            let ideal =
                self.limit(load, &times, |terms| terms.recurrent.get(index).map(|limit| limit.term.times(load)));
            let laws = self.laws(named.place).recurrent(times.bound());
            self.push(step, (&named.group, named.name), named.class, named.term.count, times, ideal, laws);
        }
        for (index, named) in model.terms(load).elementwise.iter().enumerate() {
            let times = named.term.times(load);
            let ideal = self.limit(load, &times, |terms| Some(terms.elementwise.get(index)?.term.times(load)));
            let laws = self.laws(named.place).elementwise(load, times.bound());
            self.push(step, (&named.group, named.name), named.class, 1.0, times, ideal, laws);
        }
        for (index, named) in model.terms(load).sampling.iter().enumerate() {
            let times = named.term.times(load);
            let ideal = self.limit(load, &times, |terms| Some(terms.sampling.get(index)?.term.times(load)));
            let laws = self.laws(named.place).sampling(times.bound());
            self.push(step, (&named.group, named.name), named.class, 1.0, times, ideal, laws);
        }
    }

    fn add_communication(&mut self, step: &Step<'_>) {
        self.add_transfers(step);
        let Some(term) = &self.model.terms(step.load).communication else { return };
        let reduces = if term.all_reduces > 0.0 { 1.0 } else { 0.0 };
        type Call = (&'static str, f64, fn(&CommunicationTerm, &StepLoad) -> Seconds);
        let calls: [Call; 4] = [
            ("all-reduce", term.all_reduces, CommunicationTerm::all_reduce_time),
            ("gather logits", reduces, CommunicationTerm::gather_time),
            ("expert exchange", term.exchanges, CommunicationTerm::exchange_time),
            ("stage hops", term.hops, CommunicationTerm::hop_time),
        ];
        for (name, count, time) in calls.into_iter().filter(|(_, count, _)| *count > 0.0) {
            let own = time(term, step.load);
            let limits = self.limits.iter().filter_map(|limit| limit.terms(step.load).communication.as_ref());
            let ideal = limits.map(|limit| time(limit, step.load)).reduce(Seconds::min).unwrap_or(own);
            let laws = match name {
                "stage hops" => self.driver.hops(),
                _ => self.driver.communication(ideal > own * 0.5),
            };
            self.add_time(step, ("communication", name), OperatorClass::Collective, count, (own, ideal), laws);
        }
    }

    fn add_transfers(&mut self, step: &Step<'_>) {
        let load = step.load;
        for (index, named) in self.model.terms(load).transfers.iter().enumerate() {
            let own = named.term.time(load);
            let limits = self.limits.iter().filter_map(|limit| limit.terms(load).transfers.get(index));
            let ideal = limits.map(|limit| limit.term.time(load)).reduce(Seconds::min).unwrap_or(own);
            let laws = match named.name {
                "stage hops" => self.driver.hops(),
                _ => self.driver.transfers(ideal > own * 0.5),
            };
            self.add_time(step, (&named.group, named.name), named.class, named.term.count, (own, ideal), laws);
        }
    }

    /// The laws of a place.
    fn laws(&self, place: usize) -> &LawSources<'a> {
        &self.laws[place]
    }

    fn add_time(
        &mut self,
        step: &Step<'_>,
        (group, name): (&str, &'static str),
        class: OperatorClass,
        count: f64,
        (time, ideal): (Seconds, Seconds),
        laws: Vec<super::LawSource>,
    ) {
        let bound = if class == OperatorClass::Collective { Bound::Interconnect } else { Bound::Overhead };
        let fixed = if class == OperatorClass::Collective { Seconds::ZERO } else { time * step.loss };
        let (group, work, time) = (group.into(), Work::default(), time * step.loss);
        self.merge(OperatorCost { group, name, class, count, work, time, fixed, ideal, bound, laws });
    }

    #[allow(clippy::too_many_arguments)] // the parts of an operator
    fn push(
        &mut self,
        step: &Step<'_>,
        (group, name): (&Arc<str>, &'static str),
        class: OperatorClass,
        count: f64,
        times: OperatorTimes,
        ideal: Seconds,
        laws: Vec<super::LawSource>,
    ) {
        self.merge(OperatorCost {
            group: group.clone(),
            name,
            class,
            count,
            work: times.work * step.loss,
            time: times.total() * step.loss,
            fixed: times.fixed * step.loss,
            ideal,
            bound: times.bound(),
            laws,
        });
    }

    /// Adds an operator to the same one of earlier steps.
    fn merge(&mut self, cost: OperatorCost) {
        if cost.time <= Seconds::ZERO {
            return;
        }
        let steps = self.steps;
        // A layer may have two operators of one name; each is added to its own.
        let same = |known: &&mut Explained| {
            let Explained { cost: known, step, .. } = known;
            *step < steps && known.name == cost.name && known.class == cost.class && known.group == cost.group
        };
        let Some(known) = self.operators.iter_mut().find(same) else {
            self.operators.push(Explained { longest: cost.time, cost, step: steps });
            return;
        };
        known.step = steps;
        let sum = &mut known.cost;
        sum.work = sum.work + cost.work;
        sum.time += cost.time;
        sum.fixed += cost.fixed;
        sum.ideal += cost.ideal;
        if cost.time > known.longest {
            known.longest = cost.time;
            (sum.bound, sum.laws) = (cost.bound, cost.laws);
        }
    }

    fn limit(&self, load: &StepLoad, own: &OperatorTimes, times: impl Fn(&Terms) -> Option<OperatorTimes>) -> Seconds {
        let limits = self.limits.iter().filter_map(|limit| times(limit.terms(load)));
        limits.map(|times| times.total()).reduce(Seconds::min).unwrap_or(own.total())
    }
}

/// Slugs of the engines that take part.
fn engines(model: &StepModel) -> String {
    let mut slugs = vec![model.deployment().engine().slug.as_str()];
    for place in &model.alone {
        let slug = place.deployment.engine().slug.as_str();
        if !slugs.contains(&slug) {
            slugs.push(slug);
        }
    }
    slugs.join(" and ")
}

/// The deployment under engines without losses: with the units that the number formats ask for, and with those that the engine uses
/// instead where it chooses others (integer kernels on quantized weights are faster than the 16-bit peak on some devices).
fn limits(model: &StepModel) -> Vec<StepModel> {
    let deployment = model.deployment();
    let (engine, host) = (deployment.engine(), deployment.host());
    if engine.parameters().is_empty() && host.is_none_or(|host| host.engine().parameters().is_empty()) {
        return Vec::new();
    }
    let chosen = |engine: &Engine| engine.arithmetic != Arithmetic::default();
    let mut kinds: Vec<fn(&Engine) -> Engine> = vec![native];
    if chosen(engine) || host.is_some_and(|host| chosen(host.engine())) {
        kinds.push(with_own_units);
    }
    // The cache stays as the engine keeps it.
    let deployment = deployment.clone().with_kv(*deployment.kv());
    let compiled = kinds.into_iter().map(|without_losses| {
        let mut limit = deployment.clone().with_engine(without_losses(engine));
        if let Some(host) = host {
            limit = limit.with_host(Host::new(host.device().clone(), without_losses(host.engine())));
        }
        StepModel::compile(&limit)
    });
    compiled.filter_map(Result::ok).collect()
}

/// No losses, and the same choices where they say what is read.
fn native(engine: &Engine) -> Engine {
    let mut native = Engine::ideal();
    native.scheduling.sliding_windows = engine.scheduling.sliding_windows.clone();
    native.scheduling.splits_decode_batches = engine.scheduling.splits_decode_batches.clone();
    native.scheduling.offload_rows = engine.scheduling.offload_rows.as_ref().map(|rows| Sourced::assumed(rows.value));
    native
}

fn with_own_units(engine: &Engine) -> Engine {
    // Beyond any share: what remains is the rate of the units themselves.
    let unlimited = Some(Parameter::assumed(Positive(1e6)));
    let mut units = Engine { arithmetic: engine.arithmetic.clone(), ..native(engine) };
    (units.gemm.compute, units.experts.compute) = (unlimited.clone(), unlimited);
    units
}
