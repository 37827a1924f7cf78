//! Speculative decoding: every sequence gets as many tokens per cycle as luck has it, so that cycles are run one by one.

use super::kv::KvBlocks;
use super::replica::Replica;
use super::sequence::Sequences;
use super::sink::Sink;
use crate::speculative::{AcceptanceRate, SpeculativeModel};
use crate::step::StepLoad;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Sequences that decode in cycles of drafting and verifying.
///
/// # Formula
/// A cycle yields `1 + a` tokens for a sequence, of which `a` follows a chain: each proposal is accepted with the rate that gives the speculation's
/// tokens per step in the mean, until the first that is not.
///
/// # Validity
/// Draft passes and verification are priced at the mean context of the sequences. Trees are taken as chains of their depth with the same mean.
#[derive(Clone, Debug)]
pub(super) struct Speculating<'a> {
    model: &'a SpeculativeModel,
    rate: f64,
    /// Proposals that may be accepted at most, and tokens that are verified for each sequence.
    most: u64,
    verified: u64,
    rng: Pcg64Mcg,
    slots: Vec<u32>,
    /// Tokens in the cache of all of them.
    cached: u64,
}

impl<'a> Speculating<'a> {
    pub(super) fn new(model: &'a SpeculativeModel, seed: u64) -> Self {
        let proposal = model.speculation().proposal();
        let most = proposal.most_accepted();
        let rate = AcceptanceRate::from_tokens_per_step(model.tokens_per_step(), most);
        Self {
            model,
            rate: rate.map_or(0.0, |rate| rate.value()),
            most,
            verified: proposal.verified_tokens(),
            rng: Pcg64Mcg::seed_from_u64(seed ^ 0xA076_1D64_78BD_642F),
            slots: Vec::new(),
            cached: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Tokens that every sequence puts into a step.
    pub(super) const fn verified(&self) -> u64 {
        self.verified
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.cached = 0;
    }

    pub(super) fn join(&mut self, sequences: &mut Sequences<'_>, slot: u32) {
        let sequence = sequences.at_mut(slot);
        sequence.joined = 0;
        sequence.finish = u64::MAX;
        self.cached += sequence.context(0);
        self.slots.push(slot);
    }

    pub(super) fn leave(&mut self, sequences: &mut Sequences<'_>, slot: u32) {
        let sequence = sequences.at_mut(slot);
        sequence.finish = 0;
        self.cached -= sequence.context(0);
        self.slots.retain(|other| *other != slot);
    }

    /// Whether the blocks suffice if all proposals are accepted.
    pub(super) fn has_room(&self, sequences: &Sequences<'_>, kv: &KvBlocks) -> bool {
        let needed = |slot: &u32| {
            let held = sequences.at(*slot).held_tokens;
            kv.blocks_between(held, held + self.most + 1)
        };
        self.slots.iter().map(needed).sum::<u64>() <= kv.free()
    }

    fn mean_context(&self) -> u64 {
        self.cached.checked_div(self.count()).unwrap_or(0)
    }

    /// Adds the verification of all sequences to a step.
    pub(super) fn add_to(&self, load: &mut StepLoad) {
        load.add_decode(self.mean_context(), self.verified, self.count() as f64);
    }

    /// Seconds of a cycle beside the step that verifies: drafting, and what the engine does around it.
    pub(super) fn around(&self) -> f64 {
        let cycle = self.model.cycle(self.count(), self.mean_context());
        (cycle.draft + cycle.overhead).as_seconds()
    }

    /// Proposals that are accepted.
    fn accepted(&mut self) -> u64 {
        let mut accepted = 0;
        while accepted < self.most && ((self.rng.next_u64() >> 11) as f64) < self.rate * (1_u64 << 53) as f64 {
            accepted += 1;
        }
        accepted
    }
}

impl<'a> Replica<'a> {
    /// A cycle has ended: everybody has one token or more.
    pub(super) fn end_cycle(&mut self, sink: &mut Sink<'a>) {
        let Some(mut speculating) = self.speculating.take() else { return };
        let now = self.end;
        let mut ended = Vec::new();
        for index in 0..speculating.slots.len() {
            let slot = speculating.slots[index];
            let accepted = speculating.accepted();
            let sequence = self.sequences.at_mut(slot);
            let tokens = (1 + accepted).min(sequence.asked.output - sequence.emitted);
            sink.recorder.gap((now - sequence.last_token) / tokens as f64, tokens);
            sequence.emitted += tokens;
            sequence.last_token = now;
            if !self.rules.reserves_output {
                self.kv.extend(sequence.held_tokens, sequence.held_tokens + tokens);
                sequence.held_tokens += tokens;
            }
            speculating.cached += tokens;
            self.totals.output_tokens += tokens;
            if sequence.emitted == sequence.asked.output {
                ended.push(slot);
            }
        }
        self.speculating = Some(speculating);
        ended.into_iter().for_each(|slot| self.answer(slot, sink));
    }
}
