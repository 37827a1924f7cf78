//! Many decode steps at once: closed-form sums over growing contexts.

use super::cost::{OperatorTimes, StepCost, Sum};
use super::load::StepLoad;
use super::model::StepModel;
use super::terms::TransferTerm;
use crate::model::{Reach, Reaches};
use crate::operator::OperatorClass;
use crate::units::Seconds;

impl StepModel {
    /// The cost of `steps` consecutive decode steps of `sequences` equal sequences, the first with `cached` cached tokens each.
    ///
    /// # Formula
    /// Between two bends of the model's windows every attention operator costs `max(f0 + f1 j, b0 + b1 j)` in step `j`: the
    /// two lines cross at most once, and each side of the crossing is an arithmetic series. All other operators cost the
    /// same in every step. The result equals the sum of single steps, whatever `steps` is, in constant time.
    ///
    /// ```
    /// # use llm_roofline::prelude::*;
    /// # let catalog = Catalog::embedded();
    /// # let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// # let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system))?;
    /// let at_once = model.decode_run(1, 1000, 500).total();
    /// let one_by_one: Seconds = (0..500).map(|step| model.decode_run(1, 1000 + step, 1).total()).sum();
    /// assert!((at_once / one_by_one - 1.0).abs() < 1e-12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode_run(&self, sequences: u64, cached: u64, steps: u64) -> StepCost {
        self.decode_run_of(1, sequences, cached, steps)
    }

    /// The same of steps in which each sequence decodes `new` tokens at once, of which one is kept: the sum of steps over every length that the
    /// contexts pass through.
    ///
    /// If a step keeps `m` tokens in the mean, each length is one from which a step starts with probability `1 / m`: divided by `m`, this is
    /// the expected cost of the steps of speculative decoding over an answer of `steps` tokens.
    pub fn decode_run_of(&self, new: u64, sequences: u64, cached: u64, steps: u64) -> StepCost {
        if steps == 0 || sequences == 0 || new == 0 {
            return StepCost::default();
        }
        let micro_batches = self.pipeline.decode_micro_batches(sequences as f64);
        let batch = sequences as f64 / micro_batches;
        let mut cost = self.cost_without_decode_attention(&decode_load(self, new, cached, batch)) * steps as f64;
        let (mut cached, mut left) = (cached, steps);
        while left > 0 {
            let load = decode_load(self, new, cached, batch);
            let straight = straight_steps(self.reaches(), new, cached).min(left);
            let pairs = slopes(self.reaches(), batch, |reach| new as f64 * reach.slope(cached.saturating_add(1)));
            let entries = slopes(self.reaches(), batch, |reach| reach.read_slope(cached, new));
            let priced = self.priced(&load);
            for term in &priced.decode_attention {
                let growth = term.growth(pairs[term.reach], entries[term.reach]);
                add_series(&mut cost, &term.times(load.decode()), &growth, straight);
            }
            for term in &priced.transfers {
                add_transfers(&mut cost, term, &load, &entries, straight);
            }
            cached = cached.saturating_add(straight);
            left -= straight;
        }
        cost * self.pipeline.stage_loss(micro_batches)
    }

    /// The cost of the single decode step in which each of `sequences` equal sequences has `cached` cached tokens.
    pub fn decode_step(&self, sequences: u64, cached: u64) -> StepCost {
        let mut load = self.load();
        load.add_decode(cached, 1, sequences as f64);
        self.cost(&load)
    }
}

/// Equal sequences that decode `new` tokens each.
pub(super) fn decode_load(model: &StepModel, new: u64, cached: u64, batch: f64) -> StepLoad {
    let mut load = model.load();
    load.add_decode(cached, new, batch);
    load
}

/// Steps, from contexts of `cached` tokens on, through which every new token, and what they read together, stays on the line of each reach.
pub(super) fn straight_steps(reaches: &Reaches, new: u64, cached: u64) -> u64 {
    let first = cached.saturating_add(1);
    // While the new tokens lie on both sides of a bend, the steps are taken one by one.
    let attended = reaches.line_end(first).map(|end| end.saturating_sub(cached.saturating_add(new)).saturating_add(1));
    let read = reaches.read_line_end(cached, new).map(|end| end - cached);
    attended.unwrap_or(u64::MAX).min(read.unwrap_or(u64::MAX))
}

/// By how much something of each reach grows from step to step, over all sequences.
pub(super) fn slopes(reaches: &Reaches, batch: f64, slope: impl Fn(Reach) -> f64) -> [f64; Reaches::LIMIT] {
    let mut slopes = [0.0; Reaches::LIMIT];
    for (sum, reach) in slopes.iter_mut().zip(reaches.as_slice()) {
        *sum = batch * slope(*reach);
    }
    slopes
}

/// Adds `steps` passes of an attention operator whose times grow by the same from step to step.
fn add_series(cost: &mut StepCost, start: &OperatorTimes, growth: &OperatorTimes, steps: u64) {
    let compute_above = crossing(
        (start.compute.as_seconds(), growth.compute.as_seconds()),
        (start.memory.as_seconds(), growth.memory.as_seconds()),
        steps,
    );
    // On each side of the crossing the same limit decides in every step.
    for (from, to) in [(0, compute_above), (compute_above, steps)] {
        if to > from {
            let count = (to - from) as f64;
            let offsets = (from as f64 + (to - 1) as f64) * count / 2.0;
            let sum = |start: Seconds, growth: Seconds| start * count + growth * offsets;
            let (compute, memory) = (sum(start.compute, growth.compute), sum(start.memory, growth.memory));
            cost.add(
                OperatorClass::DecodeAttention,
                OperatorTimes {
                    work: start.work * count + growth.work * offsets,
                    compute,
                    memory,
                    overlapped: compute.max(memory),
                    fixed: start.fixed * count,
                },
            );
        }
    }
}

/// The same of what arrives over a link.
fn add_transfers(
    cost: &mut StepCost,
    term: &TransferTerm,
    first: &StepLoad,
    slopes: &[f64; Reaches::LIMIT],
    steps: u64,
) {
    let count = steps as f64;
    let start = term.cache_time(first.decode());
    let growth = term.entries_time(slopes[term.reach]);
    cost.add_time(OperatorClass::Collective, start * count + growth * ((count - 1.0) * count / 2.0));
}

/// The first step at which the order of two lines `start + growth * step` differs from that at step 0, or `steps`.
pub(super) fn crossing(a: (f64, f64), b: (f64, f64), steps: u64) -> u64 {
    let (gap, closing) = (a.0 - b.0, b.1 - a.1);
    // Equal at the start: they separate at once, so one side covers all.
    let meets = gap / closing;
    if meets.is_finite() && meets > 0.0 && meets < steps as f64 { meets.ceil() as u64 } else { steps }
}
