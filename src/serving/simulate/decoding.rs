//! Sequences that decode in lockstep: when each ends, and what the next steps cost.

use super::sequence::Sequences;
use crate::step::{DecodeBase, DecodeLine, Lockstep, StepLoad, StepModel};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The sequences of a replica whose prompts have been computed.
#[derive(Clone, Debug)]
pub(super) struct Decoding {
    sums: Lockstep,
    /// Decode steps that the replica has made.
    steps: u64,
    /// Steps at which answers end, and at which sums over contexts leave their lines. Entries of sequences that were preempted stay until they
    /// come up.
    ends: Ends,
    bends: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those that have not taken part in a step yet: their last tokens came at other times.
    fresh: Vec<u32>,
    /// Prices without attention, by the number of sequences.
    bases: Vec<Option<DecodeBase>>,
}

impl Decoding {
    pub(super) fn new(model: &StepModel) -> Self {
        Self {
            sums: Lockstep::new(model.reaches()),
            steps: 0,
            ends: Ends::default(),
            bends: BinaryHeap::new(),
            fresh: Vec::new(),
            bases: Vec::new(),
        }
    }

    /// How many there are.
    #[inline]
    pub(super) const fn count(&self) -> u64 {
        self.sums.sequences()
    }

    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn add_to(&self, load: &mut StepLoad) {
        load.add_lockstep(&self.sums);
    }

    /// A sequence has its first token, or resumes: from now on it gets one in every step.
    pub(super) fn join(&mut self, sequences: &mut Sequences<'_>, slot: u32) {
        let sequence = sequences.at_mut(slot);
        sequence.joined = self.steps;
        sequence.finish = self.steps + sequence.asked.output - sequence.emitted;
        let context = sequence.context(self.steps);
        (sequence.bent_context, sequence.bent_at) = (context, self.steps);
        self.sums.add(context);
        self.ends.push(sequence.finish, slot);
        self.fresh.push(slot);
        if let Some(steps) = self.sums.steps_to_bend(context) {
            sequence.bend = self.steps + steps;
            self.bends.push(Reverse((sequence.bend, slot)));
        }
    }

    /// A sequence ends or is preempted.
    pub(super) fn leave(&mut self, sequences: &mut Sequences<'_>, slot: u32) {
        let sequence = sequences.at_mut(slot);
        self.sums.remove(sequence.context(self.steps));
        (sequence.finish, sequence.bend) = (0, 0);
        if sequence.joined == self.steps {
            self.fresh.retain(|other| *other != slot);
        }
    }

    /// Forgets everybody.
    pub(super) fn clear(&mut self, model: &StepModel) {
        self.sums = Lockstep::new(model.reaches());
        self.ends.clear();
        self.bends.clear();
        self.fresh.clear();
    }

    /// Those that have not taken part in a step yet.
    pub(super) fn fresh(&self) -> &[u32] {
        &self.fresh
    }

    /// Steps until the first answer ends or a sum leaves its line; at least 1.
    pub(super) fn steps_to_event(&mut self, sequences: &Sequences<'_>) -> u64 {
        let end = loop {
            match self.ends.first() {
                None => break u64::MAX,
                Some((step, slot)) if sequences.at(slot).finish == step => break step,
                Some(_) => self.ends.pop(),
            }
        };
        let bend = self.bends.peek().map_or(u64::MAX, |Reverse((step, _))| *step);
        end.min(bend).saturating_sub(self.steps).max(1)
    }

    /// The times of the next steps.
    #[inline]
    pub(super) fn line(&mut self, model: &StepModel) -> DecodeLine {
        let count = self.count() as usize;
        if self.bases.len() <= count {
            self.bases.resize(count + 1, None);
        }
        let base = *self.bases[count].get_or_insert_with(|| model.decode_base(count as u64));
        model.decode_line(&base, &self.sums)
    }

    /// Lets everybody decode so many tokens.
    pub(super) fn advance(&mut self, sequences: &mut Sequences<'_>, steps: u64) {
        self.steps += steps;
        self.sums.advance(steps);
        self.fresh.clear();
        while let Some(&Reverse((step, slot))) = self.bends.peek()
            && step <= self.steps
        {
            self.bends.pop();
            self.bend(sequences, slot, step);
        }
    }

    fn bend(&mut self, sequences: &mut Sequences<'_>, slot: u32, step: u64) {
        let sequence = sequences.at_mut(slot);
        if sequence.bend != step || !sequence.decodes() {
            return;
        }
        let passed = step - sequence.bent_at;
        self.sums.bend(sequence.bent_context, passed);
        sequence.bent_context += passed;
        sequence.bent_at = step;
        sequence.bend = 0;
        if let Some(steps) = self.sums.steps_to_bend(sequence.bent_context) {
            sequence.bend = step + steps;
            self.bends.push(Reverse((sequence.bend, slot)));
        }
    }

    /// A sequence whose answer has ended, if there is one.
    #[inline]
    pub(super) fn next_ended(&mut self, sequences: &Sequences<'_>) -> Option<u32> {
        while let Some((step, slot)) = self.ends.first()
            && step <= self.steps
        {
            self.ends.pop();
            if sequences.at(slot).finish == step {
                return Some(slot);
            }
        }
        None
    }
}

/// Steps at which answers end, with their sequences. Answers of one length end in the order in which they began: a queue is enough for them.
#[derive(Clone, Debug, Default)]
struct Ends {
    queue: VecDeque<(u64, u32)>,
    others: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Ends {
    #[inline]
    fn push(&mut self, step: u64, slot: u32) {
        match self.queue.back() {
            Some((last, _)) if *last > step => self.others.push(Reverse((step, slot))),
            _ => self.queue.push_back((step, slot)),
        }
    }

    /// The next end.
    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        let other = self.others.peek().map(|Reverse(end)| *end);
        match (self.queue.front().copied(), other) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        }
    }

    /// Takes the next end away.
    #[inline]
    fn pop(&mut self) {
        match self.queue.front() {
            Some(first) if self.others.peek().is_none_or(|Reverse(other)| first <= other) => {
                self.queue.pop_front();
            }
            _ => {
                self.others.pop();
            }
        }
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.others.clear();
    }
}
