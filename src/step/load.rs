//! What a step has to do: a sufficient statistic of the requests in it.

use super::lockstep::Lockstep;
use crate::model::Reaches;
use crate::numeric::float;

/// Sums over the sequences of one phase that attention work follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseLoad {
    /// New tokens.
    pub tokens: f64,
    /// Sequences.
    pub sequences: f64,
    /// Tokens that were cached before, over all sequences.
    pub cached: f64,
    /// Query-key pairs, for each reach of the model.
    pub pairs: [f64; Reaches::LIMIT],
    /// Cache entries read, for each reach of the model.
    pub entries: [f64; Reaches::LIMIT],
    /// New tokens times entries read, masked pairs included, for each reach of the model.
    pub rectangles: [f64; Reaches::LIMIT],
}

impl PhaseLoad {
    const EMPTY: Self = Self {
        tokens: 0.0,
        sequences: 0.0,
        cached: 0.0,
        pairs: [0.0; Reaches::LIMIT],
        entries: [0.0; Reaches::LIMIT],
        rectangles: [0.0; Reaches::LIMIT],
    };

    fn scaled(&self, share: f64) -> Self {
        Self {
            tokens: self.tokens * share,
            sequences: self.sequences * share,
            cached: self.cached * share,
            pairs: self.pairs.map(|pairs| pairs * share),
            entries: self.entries.map(|entries| entries * share),
            rectangles: self.rectangles.map(|pairs| pairs * share),
        }
    }

    fn add_phase(&mut self, other: &Self, times: f64) {
        self.tokens += times * other.tokens;
        self.sequences += times * other.sequences;
        self.cached += times * other.cached;
        for index in 0..Reaches::LIMIT {
            self.pairs[index] += times * other.pairs[index];
            self.entries[index] += times * other.entries[index];
            self.rectangles[index] += times * other.rectangles[index];
        }
    }

    fn add(&mut self, reaches: &Reaches, cached: u64, new: u64, times: f64) {
        self.tokens += times * new as f64;
        self.sequences += times;
        self.cached += times * cached as f64;
        for (index, reach) in reaches.as_slice().iter().enumerate() {
            self.pairs[index] += times * reach.pairs(cached, new);
            let read = reach.read(cached, new);
            self.entries[index] += times * read;
            self.rectangles[index] += times * read * new as f64;
        }
    }
}

/// The load of one step: prompt chunks and decode tokens together, as sums instead of a list.
///
/// Adding or removing a request is a few additions, and pricing a step costs the same with 1 or 1,000 requests in it.
///
/// ```
/// use llm_roofline::{model::Reaches, step::StepLoad};
///
/// let mut load = StepLoad::new(Reaches::FULL);
/// load.add_prefill(0, 512, true); // a whole prompt of 512 tokens; its last token emits
/// load.add_decode(1000, 1, 3.0); // three sequences with 1,000 cached tokens decode one token each
/// assert_eq!(load.tokens(), 515.0);
/// assert_eq!(load.emitting(), 4.0);
/// assert_eq!(load.prefill().pairs[0], 512.0 * 513.0 / 2.0);
/// assert_eq!(load.decode().pairs[0], 3.0 * 1001.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLoad {
    reaches: Reaches,
    prefill: PhaseLoad,
    decode: PhaseLoad,
    emitting: f64,
}

impl StepLoad {
    /// An empty step for a model with these reaches; [`StepModel::load`](super::StepModel::load) makes one that fits.
    pub const fn new(reaches: Reaches) -> Self {
        Self { reaches, prefill: PhaseLoad::EMPTY, decode: PhaseLoad::EMPTY, emitting: 0.0 }
    }

    /// Takes everything out: an empty step for the same model.
    pub fn clear(&mut self) {
        let count = self.reaches.as_slice().len();
        for phase in [&mut self.prefill, &mut self.decode] {
            (phase.tokens, phase.sequences, phase.cached) = (0.0, 0.0, 0.0);
            for sums in [&mut phase.pairs, &mut phase.entries, &mut phase.rectangles] {
                sums[..count].fill(0.0);
            }
        }
        self.emitting = 0.0;
    }

    /// Adds a prompt chunk of `new` tokens after `cached` ones; `emits` if it ends the prompt and so yields a token.
    pub fn add_prefill(&mut self, cached: u64, new: u64, emits: bool) {
        self.add_prefills(cached, new, emits, 1.0);
    }

    /// Adds `sequences` equal prompt chunks.
    pub fn add_prefills(&mut self, cached: u64, new: u64, emits: bool, sequences: f64) {
        self.prefill.add(&self.reaches, cached, new, sequences);
        self.emitting += if emits { sequences } else { 0.0 };
    }

    /// Adds `sequences` that each decode `new` tokens after `cached` ones: 1 in plain decoding, gamma + 1 in verification.
    pub fn add_decode(&mut self, cached: u64, new: u64, sequences: f64) {
        self.decode.add(&self.reaches, cached, new, sequences);
        self.emitting += sequences * new as f64;
    }

    /// Adds sequences that decode in lockstep, one token each.
    pub fn add_lockstep(&mut self, batch: &Lockstep) {
        let sequences = float(batch.sequences());
        self.decode.tokens += sequences;
        self.decode.sequences += sequences;
        self.decode.cached += float(batch.cached());
        for index in 0..self.reaches.as_slice().len() {
            let (entries, _) = batch.entries(index);
            self.decode.pairs[index] += entries;
            self.decode.entries[index] += entries;
            self.decode.rectangles[index] += entries;
        }
        self.emitting += sequences;
    }

    /// Takes a prompt chunk out again.
    pub fn remove_prefill(&mut self, cached: u64, new: u64, emits: bool) {
        self.add_prefills(cached, new, emits, -1.0);
    }

    /// Takes decoding sequences out again.
    pub fn remove_decode(&mut self, cached: u64, new: u64, sequences: f64) {
        self.add_decode(cached, new, -sequences);
    }

    /// Adds `times` as much work as another load has: averages over requests are loads too.
    pub fn add_load(&mut self, other: &Self, times: f64) {
        self.prefill.add_phase(&other.prefill, times);
        self.decode.add_phase(&other.decode, times);
        self.emitting += times * other.emitting;
    }

    /// A share of the step: one of several equal micro-batches.
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        Self {
            reaches: self.reaches,
            prefill: self.prefill.scaled(share),
            decode: self.decode.scaled(share),
            emitting: self.emitting * share,
        }
    }

    /// The reaches that the sums are kept for.
    pub const fn reaches(&self) -> &Reaches {
        &self.reaches
    }

    /// Sums over the prompt chunks.
    pub const fn prefill(&self) -> &PhaseLoad {
        &self.prefill
    }

    /// Sums over the decoding sequences.
    pub const fn decode(&self) -> &PhaseLoad {
        &self.decode
    }

    /// Tokens that pass through the layers.
    pub const fn tokens(&self) -> f64 {
        self.prefill.tokens + self.decode.tokens
    }

    /// Sequences in the step.
    pub const fn sequences(&self) -> f64 {
        self.prefill.sequences + self.decode.sequences
    }

    /// Positions for which the output head is computed.
    pub const fn emitting(&self) -> f64 {
        self.emitting
    }
}
