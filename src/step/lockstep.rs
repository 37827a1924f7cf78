//! Sequences that decode in lockstep: the price of a step as a line in the number of steps.

use super::model::StepModel;
use crate::model::{Reach, Reaches};
use crate::numeric::float;
use crate::units::Seconds;

/// Sequences of different contexts that each decode one token per step, as sums: what attention reads and how it grows.
///
/// [`StepLoad`](super::StepLoad) prices one step of any kind; this prices all steps until the batch changes. Sums are integers, so that millions
/// of additions and removals leave no trace.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::step::Lockstep;
/// # let catalog = Catalog::embedded();
/// # let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// # let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system))?;
/// let mut batch = Lockstep::new(model.reaches());
/// batch.add(1000);
/// batch.add(5000);
/// let line = model.decode_line(&model.decode_base(batch.sequences()), &batch);
/// // A hundred steps on, without looking at those in between.
/// let mut load = model.load();
/// load.add_decode(1100, 1, 1.0);
/// load.add_decode(5100, 1, 1.0);
/// assert!((line.at(100) / model.cost(&load).total() - 1.0).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockstep {
    reaches: Reaches,
    sequences: u64,
    cached: u64,
    /// Tokens that the next queries attend to, for each reach.
    attended: [u64; Reaches::LIMIT],
    /// Sequences in which that grows with every step.
    growing: [u64; Reaches::LIMIT],
}

impl Lockstep {
    /// No sequences, of a model with these reaches.
    pub const fn new(reaches: &Reaches) -> Self {
        Self { reaches: *reaches, sequences: 0, cached: 0, attended: [0; Reaches::LIMIT], growing: [0; Reaches::LIMIT] }
    }

    /// A sequence with so many cached tokens joins.
    #[inline]
    pub fn add(&mut self, cached: u64) {
        self.sequences += 1;
        self.cached += cached;
        for (index, reach) in self.reaches.as_slice().iter().enumerate() {
            self.attended[index] += reach.attended_tokens(cached + 1);
            self.growing[index] += u64::from(reach.grows_at(cached + 1));
        }
    }

    /// A sequence with so many cached tokens leaves. It must be one of those that are there.
    #[inline]
    pub fn remove(&mut self, cached: u64) {
        self.sequences -= 1;
        self.cached -= cached;
        for (index, reach) in self.reaches.as_slice().iter().enumerate() {
            self.attended[index] -= reach.attended_tokens(cached + 1);
            self.growing[index] -= u64::from(reach.grows_at(cached + 1));
        }
    }

    /// Every sequence has got `steps` tokens more: no more than any of them may take to its next bend ([`steps_to_bend`](Self::steps_to_bend)). Those that
    /// have come to theirs are put right by [`bend`](Self::bend).
    #[inline]
    pub fn advance(&mut self, steps: u64) {
        self.cached += self.sequences * steps;
        for index in 0..self.reaches.as_slice().len() {
            self.attended[index] += self.growing[index] * steps;
        }
    }

    /// Steps after which the sums of a sequence with so many cached tokens leave the line that they are on; `None` if they never do.
    #[inline]
    pub fn steps_to_bend(&self, cached: u64) -> Option<u64> {
        self.reaches.as_slice().iter().filter_map(|reach| reach.steps_to_bend(cached + 1)).min()
    }

    /// A sequence has come to a bend: `steps` ago it had `cached` tokens, and from there on it was on the line that ends here.
    pub fn bend(&mut self, cached: u64, steps: u64) {
        for (index, reach) in self.reaches.as_slice().iter().enumerate() {
            let (was, is) = (cached + 1, cached + 1 + steps);
            let on_line = reach.attended_tokens(was) + if reach.grows_at(was) { steps } else { 0 };
            self.attended[index] = self.attended[index] - on_line + reach.attended_tokens(is);
            self.growing[index] = self.growing[index] - u64::from(reach.grows_at(was)) + u64::from(reach.grows_at(is));
        }
    }

    /// How many sequences there are.
    pub const fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Cached tokens of all of them.
    pub const fn cached(&self) -> u64 {
        self.cached
    }

    /// Entries that the next step reads for a reach, and by how much that grows from step to step.
    #[inline]
    pub(super) fn entries(&self, index: usize) -> (f64, f64) {
        let per_token = self.reaches.as_slice().get(index).map_or(1.0, |reach| reach.entries_per_token());
        (float(self.attended[index]) * per_token, float(self.growing[index]) * per_token)
    }
}

/// Everything of a decode step that does not depend on contexts, for some number of sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeBase {
    /// Its time.
    pub time: Seconds,
    /// One over the micro-batches that the sequences are split into.
    per_batch: f64,
    /// Time with unequal stages over that with equal ones.
    stage_loss: f64,
}

/// Times of decode steps of an unchanged batch, one after another: a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeLine {
    /// Time of the next step.
    pub first: Seconds,
    /// By how much each is longer than the one before.
    pub growth: Seconds,
    /// Steps for which the line holds: beyond, another limit decides in some operator.
    pub steps: u64,
}

impl DecodeLine {
    /// Time of step `index`, counted from 0.
    pub fn at(&self, index: u64) -> Seconds {
        self.first + self.growth * index as f64
    }

    /// Time of the first `steps` steps together: `k first + growth k (k - 1) / 2`.
    #[inline]
    pub fn total(&self, steps: u64) -> Seconds {
        let count = float(steps);
        self.first * count + self.growth * (0.5 * count * (count - 1.0))
    }

    /// The step, counted from 0, during which so much time has passed: the smallest whose end is not before. The inverse of
    /// [`total`](Self::total), for a line that does not fall.
    #[inline]
    pub fn step_at(&self, time: Seconds) -> u64 {
        let (first, growth, time) = (self.first.as_seconds(), self.growth.as_seconds(), time.as_seconds());
        if first <= 0.0 || time <= 0.0 {
            return 0;
        }
        // The positive root of growth/2 k^2 + (first - growth/2) k = time, written without cancellation.
        let half = first - 0.5 * growth;
        let root = 2.0 * time / (half + (half * half + 2.0 * growth * time).max(0.0).sqrt());
        let mut step = (root as u64).saturating_sub(u64::from(root == root.trunc()));
        // Rounding may have led to a neighbour.
        while step > 0 && self.total(step).as_seconds() >= time {
            step -= 1;
        }
        while self.total(step + 1).as_seconds() < time {
            step += 1;
        }
        step
    }
}

impl StepModel {
    /// What a decode step of so many sequences costs without attention.
    pub fn decode_base(&self, sequences: u64) -> DecodeBase {
        let micro_batches = self.pipeline.decode_micro_batches(sequences as f64);
        let stage_loss = self.pipeline.stage_loss(micro_batches);
        let mut load = self.load();
        load.add_decode(0, 1, sequences as f64 / micro_batches);
        let time = self.cost_without_decode_attention(&load).total() * stage_loss;
        DecodeBase { time, per_batch: micro_batches.recip(), stage_loss }
    }

    /// The times of the next decode steps of a batch, until it changes; `base` must be that of as many sequences.
    ///
    /// # Formula
    /// Every attention operator costs `max(f0 + f1 j, b0 + b1 j)` in step `j`. Their sum is a line up to the first step in which another limit
    /// decides in one of them.
    #[inline]
    pub fn decode_line(&self, base: &DecodeBase, batch: &Lockstep) -> DecodeLine {
        let (mut first, mut growth, mut steps) = (0.0, 0.0, u64::MAX);
        let per_batch = base.per_batch;
        let tokens = float(batch.sequences) * per_batch;
        let priced = self.priced_decode(tokens);
        for term in &priced.decode_attention {
            let (entries, grown) = batch.entries(term.reach);
            let line = term.line(tokens, float(batch.cached) * per_batch, entries * per_batch, grown * per_batch);
            first += line.first;
            growth += line.growth;
            steps = steps.min(line.steps);
        }
        for term in &priced.transfers {
            let (entries, grown) = batch.entries(term.reach);
            first += term.entries_time(entries * per_batch).as_seconds();
            growth += term.entries_time(grown * per_batch).as_seconds();
        }
        DecodeLine {
            first: base.time + Seconds::from_seconds(first * base.stage_loss),
            growth: Seconds::from_seconds(growth * base.stage_loss),
            steps,
        }
    }
}

impl Reach {
    /// Tokens that the entries stand for to which the query at position `n` (from 1) attends: [`attended`](Self::attended) as an integer.
    #[inline]
    pub(crate) fn attended_tokens(self, n: u64) -> u64 {
        match self {
            Self::Full => n,
            Self::Chunk(chunk) => n.saturating_sub(1) % chunk.max(1) + 1,
            _ => n.min(self.saturated_from()),
        }
    }

    /// Tokens after which that leaves its line.
    #[inline]
    fn steps_to_bend(self, n: u64) -> Option<u64> {
        match self {
            Self::Full => None,
            Self::Chunk(chunk) => Some(chunk.max(1) - n.saturating_sub(1) % chunk.max(1)),
            _ => self.saturated_from().checked_sub(n).filter(|steps| *steps > 0 && self.saturated_from() < u64::MAX),
        }
    }

    /// Whether that grows with the next token.
    #[inline]
    pub(crate) fn grows_at(self, n: u64) -> bool {
        match self {
            Self::Full | Self::Chunk(_) => true,
            _ => n < self.saturated_from(),
        }
    }
}
