//! One engine at work: what it does next, and what happens when that is done.
//!
//! A replica is always idle, about to form its next step, or busy with a [`Plan`]: a step with prompts, or decode steps of an unchanged batch, which
//! are leapt over at once. An arrival may cut such a leap short, nothing else does.

use super::decoding::Decoding;
use super::fleet::ROUNDING;
use super::kv::KvBlocks;
use super::log::EventKind;
use super::prefix::Segment;
use super::prices::Prices;
use super::rules::Rules;
use super::sequence::{Sequence, Sequences};
use super::sink::{Handoff, Sink};
use super::speculating::Speculating;
use super::statistics::Totals;
use super::waiting::Waiting;
use crate::engine::PromptPolicy;
use crate::numeric::float;
use crate::step::{DecodeLine, StepLoad, StepModel};
use crate::units::Seconds;
use std::collections::VecDeque;

/// Which part of a request's life a replica is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// All of it.
    Everything,
    /// Prompts and first tokens; caches then go elsewhere.
    Prefill,
}

/// What a replica is busy with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    /// Nothing.
    Idle,
    /// It is about to form a step.
    Forming,
    /// Decode steps of an unchanged batch.
    Leap(DecodeLine),
    /// A step with prompts; whether decoding sequences get a token too.
    Prompts { decodes: bool },
}

/// A replica with its requests.
#[derive(Clone, Debug)]
pub(super) struct Replica<'a> {
    pub(super) model: &'a StepModel,
    pub(super) rules: Rules,
    pub(super) role: Role,
    /// In the order of the fleet, for the log.
    pub(super) index: u32,
    pub(super) sequences: Sequences<'a>,
    pub(super) waiting: Waiting,
    /// Running sequences whose prompts are being computed, in the order of their admission.
    pub(super) prompts: VecDeque<u32>,
    pub(super) decoding: Decoding,
    /// In place of it with speculative decoding.
    pub(super) speculating: Option<Speculating<'a>>,
    pub(super) kv: KvBlocks,
    pub(super) plan: Plan,
    /// When the plan began, when it ends, how many steps it has.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) plan_steps: u64,
    /// Steps formed so far: the number of the first step of the plan, while there is one.
    pub(super) step: u64,
    /// Decode steps of the plan for which blocks are taken already.
    pub(super) grown: u64,
    /// When decoding sequences got their last tokens.
    pub(super) last_decode: f64,
    /// Seconds that caches take to and from the host in the step that is being formed.
    pub(super) swapping: f64,
    /// Whether nobody ran when the step was formed: an engine that starts takes everybody who is there.
    pub(super) starts: bool,
    /// Sequences of a static batch, how many of them are not answered yet, and how many decode on although they are.
    pub(super) batch: Vec<u32>,
    pub(super) batch_left: u64,
    pub(super) decoding_on: u64,
    pub(super) totals: Totals,
    /// Until when waiting requests are counted in the totals.
    pub(super) waiting_until: f64,
    pub(super) scratch: Vec<Segment>,
    pub(super) prices: Prices,
    /// Memory for the next step.
    pub(super) load: Option<Box<StepLoad>>,
    /// Whether it takes requests, and since when it does not.
    pub(super) is_up: bool,
    pub(super) down_since: f64,
    /// Until when blocks in use are counted in the totals, within a plan.
    pub(super) caught_up: f64,
}

impl<'a> Replica<'a> {
    pub(super) fn new(model: &'a StepModel, rules: Rules, role: Role, index: u32) -> Self {
        Self {
            model,
            role,
            index,
            sequences: Sequences::default(),
            waiting: Waiting::new(rules.order),
            prompts: VecDeque::new(),
            decoding: Decoding::new(model),
            speculating: None,
            kv: KvBlocks::new(&rules.pool),
            rules,
            plan: Plan::Idle,
            start: 0.0,
            end: f64::INFINITY,
            plan_steps: 0,
            step: 0,
            grown: 0,
            last_decode: 0.0,
            swapping: 0.0,
            batch: Vec::new(),
            batch_left: 0,
            decoding_on: 0,
            starts: true,
            totals: Totals::default(),
            waiting_until: 0.0,
            scratch: Vec::new(),
            prices: Prices::new(),
            load: None,
            is_up: true,
            down_since: 0.0,
            caught_up: 0.0,
        }
    }

    /// Requests that it has, waiting ones included.
    pub(super) fn requests(&self) -> u64 {
        self.sequences.running() - (self.batch.len() as u64 - self.batch_left) + self.waiting.len() as u64
    }

    /// A request: a new one, one with a cache from elsewhere, or one that another replica has lost.
    pub(super) fn queue(&mut self, sequence: Sequence<'a>, now: f64, sink: &mut Sink<'a>) {
        self.count_waiting(now);
        sink.log(now, self.index, sequence.asked.id, EventKind::Queued);
        let eligible = self.eligible_from(now);
        let slot = self.sequences.insert(Sequence { eligible, ..sequence });
        self.waiting.push(&self.sequences, slot);
        match self.plan {
            Plan::Idle => {
                (self.plan, self.start, self.end) = (Plan::Forming, now, now);
            }
            Plan::Leap(line) if self.waiting.head() == Some(slot) && self.has_place() => self.shorten(line, eligible),
            _ => {}
        }
    }

    /// The step, by its number, that may take a request that comes now.
    fn eligible_from(&self, now: f64) -> u64 {
        let running = match self.plan {
            Plan::Idle => return 0,
            // The step before ended at this moment.
            Plan::Forming => return self.step.saturating_add(self.rules.wait_steps),
            Plan::Prompts { .. } => 0,
            // What comes at the end of a step comes before the next one, whatever rounding says.
            Plan::Leap(line) => {
                let passed = now - self.start - ROUNDING * now;
                line.step_at(Seconds::from_seconds(passed)).min(self.plan_steps - 1)
            }
        };
        (self.step + running + 1).saturating_add(self.rules.wait_steps)
    }

    /// Ends a leap before the step of this number.
    fn shorten(&mut self, line: DecodeLine, before: u64) {
        let steps = before.saturating_sub(self.step).max(1);
        if steps < self.plan_steps {
            self.plan_steps = steps;
            self.end = self.start + line.total(steps).as_seconds();
        }
    }

    pub(super) fn has_place(&self) -> bool {
        match self.rules.prompts {
            PromptPolicy::Batch => self.sequences.running() == 0,
            _ => self.sequences.running() < self.rules.max_sequences,
        }
    }

    /// Does what is due at [`end`](Self::end).
    pub(super) fn happen(&mut self, sink: &mut Sink<'a>) {
        match self.plan {
            Plan::Idle => {}
            Plan::Forming => self.form(sink),
            Plan::Leap(line) => self.finish_leap(line, sink),
            Plan::Prompts { decodes } => self.finish_prompts(decodes, sink),
        }
    }

    fn finish_leap(&mut self, line: DecodeLine, sink: &mut Sink<'a>) {
        let steps = self.plan_steps;
        let before = self.kv.used();
        self.kv.advance(steps.saturating_sub(self.grown));
        self.count_time(self.end, steps, before);
        let (first, growth) = (line.first.as_seconds(), line.growth.as_seconds());
        self.emit(self.start + first, first, growth, steps, sink);
        self.decoding.advance(&mut self.sequences, steps);
        self.last_decode = self.end;
        self.step += steps;
        self.end_answers(sink);
        self.form_next();
    }

    fn finish_prompts(&mut self, decodes: bool, sink: &mut Sink<'a>) {
        let time = self.end - self.start;
        self.count_time(self.end, 1, self.kv.used());
        if decodes && self.speculating.is_some() {
            self.end_cycle(sink);
        } else if decodes && self.decoding.count() > 0 {
            self.emit(self.end, time, 0.0, 1, sink);
            self.decoding.advance(&mut self.sequences, 1);
            self.last_decode = self.end;
        }
        self.step += 1;
        while let Some(&slot) = self.prompts.front()
            && self.sequences.at(slot).computed == self.sequences.at(slot).due_tokens()
        {
            self.prompts.pop_front();
            self.finish_prompt(slot, sink);
        }
        self.end_answers(sink);
        self.form_next();
    }

    /// A token of every decoding sequence in each of `steps` steps, the first of which ends at `first_end`.
    fn emit(&mut self, first_end: f64, first: f64, growth: f64, steps: u64, sink: &mut Sink<'a>) {
        let all = self.useful();
        self.totals.output_tokens += all * steps;
        let fresh = self.decoding.fresh().len() as u64;
        let late = self.last_decode < self.start;
        let mut in_line = if late { 0 } else { all - fresh };
        for &slot in self.decoding.fresh() {
            let last = self.sequences.at(slot).last_token;
            if last < self.start {
                sink.recorder.gap(first_end - last, 1);
            } else {
                in_line += 1;
            }
        }
        if late && all > fresh {
            sink.recorder.gap(first_end - self.last_decode, all - fresh);
        }
        if in_line == all || steps == 1 {
            sink.recorder.gaps(first, growth, steps, in_line);
        } else {
            sink.recorder.gaps(first, 0.0, 1, in_line);
            sink.recorder.gaps(first + growth, growth, steps - 1, all);
        }
    }

    /// Sequences among those that decode whose tokens anybody waits for.
    const fn useful(&self) -> u64 {
        self.decoding.count() - self.decoding_on
    }

    /// A prompt has been computed, and the token after it.
    fn finish_prompt(&mut self, slot: u32, sink: &mut Sink<'a>) {
        let now = self.end;
        let sequence = self.sequences.at_mut(slot);
        sequence.emitted += 1;
        if sequence.first_token < 0.0 {
            sequence.first_token = now;
            sink.log(now, self.index, sequence.asked.id, EventKind::FirstToken);
        } else {
            sink.recorder.gap(now - sequence.last_token, 1);
        }
        sequence.last_token = now;
        self.totals.output_tokens += 1;
        if sequence.emitted == sequence.asked.output {
            self.answer(slot, sink);
        } else if self.role == Role::Prefill {
            self.hand_over(slot, sink);
        } else {
            self.decode_from_now(slot);
        }
    }

    pub(super) fn decode_from_now(&mut self, slot: u32) {
        if let Some(speculating) = &mut self.speculating {
            return speculating.join(&mut self.sequences, slot);
        }
        self.decoding.join(&mut self.sequences, slot);
        if !self.rules.reserves_output {
            self.kv.join(self.sequences.at(slot).held_tokens);
        }
    }

    fn end_answers(&mut self, sink: &mut Sink<'a>) {
        while let Some(slot) = self.decoding.next_ended(&self.sequences) {
            self.sequences.at_mut(slot).last_token = self.end;
            self.answer(slot, sink);
        }
    }

    /// Sequences that decode.
    #[inline]
    pub(super) fn decoders(&self) -> u64 {
        self.speculating.as_ref().map_or(self.decoding.count(), Speculating::count)
    }

    /// An answer has come to its end.
    pub(super) fn answer(&mut self, slot: u32, sink: &mut Sink<'a>) {
        let sequence = self.sequences.at(slot);
        sink.log(self.end, self.index, sequence.asked.id, EventKind::Answered);
        sink.answered(sequence, self.end);
        self.totals.completed += 1;
        if self.rules.prompts == PromptPolicy::Batch {
            self.batch_left -= 1;
            self.decoding_on += u64::from(self.sequences.at(slot).decodes());
            if self.batch_left == 0 {
                self.end_batch();
            }
        } else {
            self.give_up_place(slot);
            self.sequences.remove(slot);
        }
    }

    /// The last answer of a static batch has ended.
    fn end_batch(&mut self) {
        for slot in std::mem::take(&mut self.batch) {
            self.release(slot);
            self.sequences.stop(slot);
            self.sequences.remove(slot);
        }
        self.decoding.clear(self.model);
        self.decoding_on = 0;
    }

    /// A prompt's cache goes to another replica. Its blocks are free at once: the link has its own copy.
    fn hand_over(&mut self, slot: u32, sink: &mut Sink<'a>) {
        let from = self.index;
        let sequence = *self.sequences.at(slot);
        self.give_up_place(slot);
        self.sequences.remove(slot);
        sink.handoffs.push(Handoff { sequence, from, computed_in: self.end - sequence.admitted, at: self.end });
    }

    /// Takes place and cache of a running sequence away.
    fn give_up_place(&mut self, slot: u32) {
        self.stop_decoding(slot);
        self.release(slot);
        self.sequences.stop(slot);
    }

    /// Takes a sequence out of those that decode, if it is one of them.
    pub(super) fn stop_decoding(&mut self, slot: u32) {
        if !self.sequences.at(slot).decodes() {
            return;
        }
        if let Some(speculating) = &mut self.speculating {
            speculating.leave(&mut self.sequences, slot);
        } else {
            let context = self.sequences.at(slot).context(self.decoding.steps());
            self.decoding.leave(&mut self.sequences, slot);
            if !self.rules.reserves_output {
                self.kv.leave(context);
                self.sequences.at_mut(slot).held_tokens = context;
            }
        }
    }

    fn form_next(&mut self) {
        (self.plan, self.start) = (Plan::Forming, self.end);
    }

    /// Adds waiting requests up to a moment to the totals.
    pub(super) fn count_waiting(&mut self, now: f64) {
        self.totals.waiting += self.waiting.len() as f64 * (now - self.waiting_until).max(0.0);
        self.waiting_until = self.waiting_until.max(now);
    }

    /// Counts the plan up to a moment, with so many blocks in use at its start.
    fn count_time(&mut self, until: f64, steps: u64, blocks: u64) {
        let time = until - self.start;
        self.totals.running += float(self.sequences.running()) * time;
        let blocks = 0.5 * float(blocks + self.kv.used());
        self.totals.kv_blocks += blocks * (until - self.start.max(self.caught_up)).max(0.0);
        self.totals.busy_s += time;
        self.totals.steps += steps;
        // Whoever still works on what it has is there, too.
        if !self.is_up {
            self.totals.available_s += (until - self.start.max(self.down_since)).max(0.0);
        }
    }

    /// It takes requests again: until now it was there only for those that it had.
    pub(super) fn bring_up(&mut self, now: f64) {
        if matches!(self.plan, Plan::Leap(_) | Plan::Prompts { .. }) {
            self.totals.available_s += (now - self.start.max(self.down_since)).max(0.0);
        }
        self.is_up = true;
    }

    /// Blocks are taken for the steps of a leap that have begun by now.
    pub(super) fn catch_up(&mut self, now: f64) {
        let Plan::Leap(line) = self.plan else { return };
        let begun = (line.step_at(Seconds::from_seconds(now - self.start)) + 1).min(self.plan_steps);
        if begun > self.grown {
            let before = self.kv.used();
            self.kv.advance(begun - self.grown);
            self.grown = begun;
            let blocks = 0.5 * float(before + self.kv.used());
            self.totals.kv_blocks += blocks * (now - self.start.max(self.caught_up));
            self.caught_up = now;
        }
    }

    /// Totals up to a moment within the plan.
    pub(super) fn totals_at(&mut self, now: f64) -> Totals {
        self.count_waiting(now);
        self.catch_up(now);
        let mut totals = self.totals;
        if matches!(self.plan, Plan::Leap(_) | Plan::Prompts { .. }) && now > self.start {
            let until = now.min(self.end);
            let time = until - self.start;
            totals.running += float(self.sequences.running()) * time;
            totals.kv_blocks += float(self.kv.used()) * (until - self.start.max(self.caught_up)).max(0.0);
            totals.busy_s += time;
            if !self.is_up {
                totals.available_s += (until - self.start.max(self.down_since)).max(0.0);
            }
            if let Plan::Leap(line) = self.plan {
                let steps = line.step_at(Seconds::from_seconds(time)).min(self.plan_steps);
                totals.output_tokens += steps * self.useful();
            }
        }
        totals
    }
}
