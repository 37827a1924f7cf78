//! Many decode steps at once: closed-form sums over growing contexts.

use super::cost::{OperatorTimes, StepCost};
use super::load::StepLoad;
use super::model::StepModel;
use super::terms::{AttentionTerm, TransferTerm};
use crate::model::Reaches;
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
        if steps == 0 || sequences == 0 {
            return StepCost::default();
        }
        let micro_batches = self.pipeline.decode_micro_batches(sequences as f64);
        let batch = sequences as f64 / micro_batches;
        let mut load = self.load();
        load.add_decode(cached, 1, batch);
        let mut cost = self.cost_without_decode_attention(&load) * steps as f64;
        let (mut position, mut left) = (cached.saturating_add(1), steps);
        while left > 0 {
            let straight =
                self.reaches().line_end(position).map_or(left, |end| left.min((end - position).saturating_add(1)));
            let first = at_position(self, position, batch);
            let slopes = slopes(self.reaches(), position, batch);
            let priced = self.priced(&load);
            for term in &priced.decode_attention {
                add_series(&mut cost, term, &first, &slopes, straight);
            }
            for term in &priced.transfers {
                add_transfers(&mut cost, term, &first, &slopes, straight);
            }
            position = position.saturating_add(straight);
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

fn at_position(model: &StepModel, position: u64, batch: f64) -> StepLoad {
    let mut load = model.load();
    load.add_decode(position - 1, 1, batch);
    load
}

fn slopes(reaches: &Reaches, position: u64, batch: f64) -> [f64; Reaches::LIMIT] {
    let mut slopes = [0.0; Reaches::LIMIT];
    for (slope, reach) in slopes.iter_mut().zip(reaches.as_slice()) {
        *slope = batch * reach.slope(position);
    }
    slopes
}

/// Adds `steps` passes of an attention operator whose pairs and entries grow by `slopes` per step.
fn add_series(cost: &mut StepCost, term: &AttentionTerm, first: &StepLoad, slopes: &[f64; Reaches::LIMIT], steps: u64) {
    let start = term.times(first.decode());
    let growth = term.growth(slopes[term.reach]);
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
fn crossing(a: (f64, f64), b: (f64, f64), steps: u64) -> u64 {
    let (gap, closing) = (a.0 - b.0, b.1 - a.1);
    // Equal at the start: they separate at once, so one side covers all.
    let meets = gap / closing;
    if meets.is_finite() && meets > 0.0 && meets < steps as f64 { meets.ceil() as u64 } else { steps }
}
