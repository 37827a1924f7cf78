//! Which requests share the next step: the scheduling rules of engines.

use super::kv::KvBlocks;
use super::log::EventKind;
use super::prefix::{Held, Hit, Segment};
use super::replica::{Plan, Replica};
use super::rules::Rules;
use super::sequence::Sequence;
use super::sink::Sink;
use super::speculating::Speculating;
use crate::engine::PromptPolicy;
use crate::step::{DecodeLine, StepLoad};
use crate::units::Seconds;

impl<'a> Replica<'a> {
    /// Decides what to do next, at [`start`](Self::start).
    pub(super) fn form(&mut self, sink: &mut Sink<'a>) {
        self.grown = 0;
        self.swapping = 0.0;
        self.starts = self.sequences.running() == 0;
        match self.rules.prompts {
            PromptPolicy::Chunked | PromptPolicy::Whole => self.form_mixed(sink),
            PromptPolicy::First => self.form_prompts_first(sink),
            PromptPolicy::Batch => self.form_batch(sink),
        }
    }

    /// A token for every decoding sequence, and prompts beside them (vLLM V1, TensorRT-LLM, llama.cpp).
    fn form_mixed(&mut self, sink: &mut Sink<'a>) {
        let preempted = self.make_room(sink);
        if !preempted && self.head_resumes() {
            self.resume(sink);
        }
        if self.prompts.is_empty() && (preempted || !self.head_may_join()) {
            return self.leap(preempted);
        }
        self.grow_one_step();
        let mut load = self.empty_load();
        let each = self.speculating.as_ref().map_or(1, Speculating::verified);
        let mut room = self.rules.budget.saturating_sub(self.decoders() * each);
        for position in 0..self.prompts.len() {
            room -= self.compute(self.prompts[position], room, &mut load);
        }
        let whole = self.rules.prompts == PromptPolicy::Whole;
        while !preempted && room > 0 && self.head_may_join() {
            // Whole prompts wait for a step that has room for them, but the first one goes along anyway.
            let waits = whole && load.tokens() > 0.0 && self.head_tokens() > room;
            if waits || self.head_resumes() || !self.admit(sink) {
                break;
            }
            let most = if whole { self.rules.budget } else { room };
            room = room.saturating_sub(self.compute_last(most, &mut load));
        }
        if load.tokens() == 0.0 {
            self.load = Some(load);
            return self.leap(preempted);
        }
        self.add_decoders(&mut load);
        self.run_step(load, true);
    }

    /// Prompts in steps of their own as long as there are some (vLLM V0, SGLang), decode steps else.
    fn form_prompts_first(&mut self, sink: &mut Sink<'a>) {
        self.resume(sink);
        let mut load = self.empty_load();
        let mut room = self.rules.budget;
        for position in 0..self.prompts.len() {
            room -= self.compute(self.prompts[position], room, &mut load);
        }
        while room > 0 && self.head_may_join() {
            // A prompt that no step holds is cut, but only where it comes first.
            let waits = load.tokens() > 0.0 && self.head_tokens() > room;
            if waits || self.head_resumes() || !self.admit(sink) {
                break;
            }
            room -= self.compute_last(room, &mut load);
        }
        if load.tokens() > 0.0 {
            return self.run_step(load, false);
        }
        self.load = Some(load);
        let preempted = self.make_room(sink);
        self.leap(preempted);
    }

    /// Everybody who waits and has room up to the longest answer, together (static batching).
    fn form_batch(&mut self, sink: &mut Sink<'a>) {
        if self.sequences.running() == 0 {
            self.fill_batch(sink);
        }
        let mut load = self.empty_load();
        let mut room = self.rules.budget;
        for position in 0..self.prompts.len() {
            room -= self.compute(self.prompts[position], room, &mut load);
        }
        match load.tokens() > 0.0 {
            true => self.run_step(load, false),
            false => self.leap(false),
        }
    }

    fn fill_batch(&mut self, sink: &mut Sink<'a>) {
        let (mut prompts, mut longest) = (Vec::new(), 0);
        while let Some(slot) = self.waiting.head() {
            let asked = self.sequences.at(slot).asked;
            prompts.push(asked.prompt);
            let output = longest.max(asked.output);
            let needed = prompts.iter().map(|prompt| self.kv.blocks_of(prompt + output)).sum::<u64>();
            if prompts.len() as u64 > self.rules.max_sequences || needed > self.kv.total() {
                break;
            }
            longest = output;
            self.take_head(sink);
            self.batch.push(slot);
        }
        self.batch_left = self.batch.len() as u64;
        for &slot in &self.batch {
            let sequence = self.sequences.at_mut(slot);
            sequence.held_tokens = sequence.asked.prompt + longest;
            sequence.computed = sequence.cached_for_sure();
            self.totals.cached_tokens += sequence.computed;
            self.kv.take(sequence.held_tokens);
            self.prompts.push_back(slot);
        }
    }

    /// Preempts until the next token of every decoding sequence has room. Whether somebody lost his place.
    fn make_room(&mut self, sink: &mut Sink<'a>) -> bool {
        let mut preempted = false;
        while !self.has_room_for_a_step() && self.sequences.running() > 1 {
            let Some(slot) = self.waiting.victim(&self.sequences) else { break };
            self.preempt(slot, sink);
            preempted = true;
        }
        preempted
    }

    fn has_room_for_a_step(&self) -> bool {
        match &self.speculating {
            Some(speculating) => self.rules.reserves_output || speculating.has_room(&self.sequences, &self.kv),
            None => self.kv.has_room_for_a_step(),
        }
    }

    fn preempt(&mut self, slot: u32, sink: &mut Sink<'a>) {
        self.count_waiting(self.start);
        let sequence = *self.sequences.at(slot);
        sink.log(self.start, self.index, sequence.asked.id, EventKind::Preempted);
        let decoded = sequence.decodes();
        let steps = self.decoding.steps();
        if !decoded {
            self.prompts.retain(|other| *other != slot);
        }
        let swaps = self.rules.swap && decoded;
        self.stop_decoding(slot);
        if self.rules.prefix_caching && !swaps {
            let cached = if decoded { sequence.context(steps) } else { sequence.computed };
            self.sequences.at_mut(slot).own_until = cached;
            self.insert(slot, cached);
        }
        self.release(slot);
        self.sequences.stop(slot);
        if swaps {
            self.swapping += self.swap_time(sequence.context(steps));
        }
        let last_decode = self.last_decode;
        let lost = self.sequences.at_mut(slot);
        if decoded {
            lost.emitted += steps - sequence.joined;
            if steps > sequence.joined {
                lost.last_token = last_decode;
            }
        }
        (lost.computed, lost.eligible, lost.resumes) = (0, 0, swaps);
        lost.preemptions += 1;
        self.totals.preemptions += 1;
        self.waiting.push_back_in_front(&self.sequences, slot);
    }

    fn swap_time(&self, tokens: u64) -> f64 {
        let memory = self.model.memory();
        let bytes = memory.kv_per_sequence(tokens) + memory.state_per_sequence();
        bytes.as_bytes() * self.rules.swap_seconds_per_byte
    }

    /// Sequences whose caches exist elsewhere take their places.
    fn resume(&mut self, sink: &mut Sink<'a>) {
        while let Some(slot) = self.waiting.head()
            && self.sequences.at(slot).resumes
            && self.admit(sink)
        {
            self.prompts.pop_back();
            let sequence = self.sequences.at_mut(slot);
            sequence.resumes = false;
            if sequence.preemptions > 0 && self.rules.swap {
                self.swapping += self.swap_time(self.sequences.at(slot).held_tokens);
            }
            self.decode_from_now(slot);
        }
    }

    /// Takes the blocks for the next token of every decoding sequence, so that admissions see what is left.
    fn grow_one_step(&mut self) {
        if self.decoding.count() > 0 && self.grown == 0 && self.kv.has_room_for_a_step() {
            self.kv.advance(1);
            self.grown = 1;
        }
    }

    /// Whether the first request that waits has come in time and finds a place; its cache is looked at later.
    fn head_may_join(&self) -> bool {
        let Some(slot) = self.waiting.head().filter(|_| self.has_place()) else { return false };
        self.starts || self.sequences.at(slot).eligible <= self.step
    }

    /// Whether the cache of the first request that waits is elsewhere.
    fn head_resumes(&self) -> bool {
        self.waiting.head().is_some_and(|slot| self.sequences.at(slot).resumes)
    }

    /// Tokens that the first request that waits would have computed.
    fn head_tokens(&mut self) -> u64 {
        let Some(slot) = self.waiting.head() else { return 0 };
        let sequence = self.sequences.at(slot);
        let found = find(&self.rules, &self.kv, sequence, &mut self.scratch).tokens;
        sequence.due_tokens() - found.max(sequence.cached_for_sure())
    }

    /// Tokens of a request that the prefix cache has.
    pub(super) fn tokens_found(&mut self, sequence: &Sequence<'_>) -> u64 {
        find(&self.rules, &self.kv, sequence, &mut self.scratch).tokens
    }

    /// Gives the first request that waits a place, if it may have one.
    fn admit(&mut self, sink: &mut Sink<'a>) -> bool {
        let Some(slot) = self.waiting.head().filter(|_| self.head_may_join()) else { return false };
        let sequence = self.sequences.at(slot);
        let hit = find(&self.rules, &self.kv, sequence, &mut self.scratch);
        let reserved = if self.rules.reserves_output { sequence.asked.output - sequence.emitted } else { 0 };
        let (resumes, first) = (sequence.resumes, sequence.admitted < 0.0);
        let tokens = sequence.due_tokens() + reserved;
        let watermark = if self.sequences.running() == 0 { 0 } else { self.rules.watermark_blocks };
        // Whoever resumes decodes in this step, as all the others do.
        let (needed, ahead) = match resumes && !self.rules.reserves_output {
            true => (tokens + 1, self.kv.next_step_blocks()),
            false => (tokens, 0),
        };
        if !self.kv.fits(needed, &hit, watermark + ahead) {
            return false;
        }
        self.take_head(sink);
        let held = self.kv.admit(tokens, &self.scratch, &hit);
        let admitted = self.sequences.at_mut(slot);
        (admitted.held, admitted.held_tokens) = (held, tokens);
        admitted.computed = if resumes { tokens } else { hit.tokens.max(admitted.cached_for_sure()) };
        if !resumes {
            if first {
                admitted.found = admitted.computed;
            }
            // What it had there before a preemption it has computed itself.
            self.totals.cached_tokens += admitted.computed.saturating_sub(admitted.own_until);
        }
        self.prompts.push_back(slot);
        true
    }

    fn take_head(&mut self, sink: &mut Sink<'a>) {
        self.count_waiting(self.start);
        let Some(slot) = self.waiting.pop() else { return };
        self.sequences.start(slot);
        let (start, index) = (self.start, self.index);
        let sequence = self.sequences.at_mut(slot);
        if sequence.admitted < 0.0 {
            // An arrival may be a rounding later than the step that takes it.
            (sequence.admitted, sequence.found) = (start.max(sequence.asked.arrival), sequence.cached_for_sure());
        }
        sink.log(start, index, sequence.asked.id, EventKind::Admitted);
    }

    fn compute_last(&mut self, most: u64, load: &mut StepLoad) -> u64 {
        self.prompts.back().copied().map_or(0, |slot| self.compute(slot, most, load))
    }

    /// Puts the next chunk of a prompt into the step, at most so many tokens. How many they are.
    fn compute(&mut self, slot: u32, most: u64, load: &mut StepLoad) -> u64 {
        let sequence = self.sequences.at_mut(slot);
        let left = sequence.due_tokens() - sequence.computed;
        let new = left.min(most);
        if new == 0 {
            return 0;
        }
        load.add_prefill(sequence.computed, new, new == left);
        sequence.computed += new;
        self.totals.prompt_tokens += new;
        self.remember(slot);
        new
    }

    /// Segments of a prompt that have been computed are there for others.
    fn remember(&mut self, slot: u32) {
        if self.rules.prefix_caching && self.sequences.at(slot).has_segments() {
            self.insert(slot, self.sequences.at(slot).computed);
        }
    }

    /// Puts the first so many tokens of a sequence into the prefix cache.
    fn insert(&mut self, slot: u32, tokens: u64) {
        let mut sequence = *self.sequences.at(slot);
        sequence.segments(&mut self.scratch);
        self.kv.insert(&self.scratch, &mut sequence.held, tokens);
        self.sequences.at_mut(slot).held = sequence.held;
    }

    /// Gives back the blocks of a sequence that has left those that decode.
    pub(super) fn release(&mut self, slot: u32) {
        let sequence = self.sequences.at_mut(slot);
        let (held, tokens) = (std::mem::take(&mut sequence.held), std::mem::take(&mut sequence.held_tokens));
        self.scratch.clear();
        if held != Held::default() {
            sequence.segments(&mut self.scratch);
        }
        self.kv.release(tokens, &self.scratch, held);
    }

    /// A step with nothing in it, in memory that was used before.
    fn empty_load(&mut self) -> Box<StepLoad> {
        let mut load = self.load.take().unwrap_or_else(|| Box::new(self.model.load()));
        load.clear();
        load
    }

    fn add_decoders(&self, load: &mut StepLoad) {
        match &self.speculating {
            Some(speculating) => speculating.add_to(load),
            None => self.decoding.add_to(load),
        }
    }

    /// A step on its own: one with prompts, or a cycle of speculative decoding.
    fn run_step(&mut self, load: Box<StepLoad>, decodes: bool) {
        let time = match self.rules.stepping {
            true => self.model.cost(&load).total().as_seconds(),
            false => self.prices.time(self.model, &load),
        };
        let around = self.speculating.as_ref().filter(|speculating| decodes && speculating.count() > 0);
        let time = time + self.swapping + around.map_or(0.0, Speculating::around);
        self.load = Some(load);
        self.plan = Plan::Prompts { decodes };
        (self.end, self.plan_steps) = (self.start + time, 1);
    }

    /// Decode steps until something happens: an answer ends, sums leave their lines, another limit decides, blocks run out, somebody may join.
    fn leap(&mut self, preempted: bool) {
        if self.decoders() == 0 {
            (self.plan, self.end) = (Plan::Idle, f64::INFINITY);
            return;
        }
        if self.speculating.is_some() {
            let mut load = self.empty_load();
            self.add_decoders(&mut load);
            return self.run_step(load, true);
        }
        let mut line = self.next_steps();
        let mut steps = line.steps.min(self.decoding.steps_to_event(&self.sequences));
        // What was taken away may be enough for whoever waits, before the next step.
        if preempted || self.swapping > 0.0 || self.rules.stepping {
            steps = 1;
        }
        line.first += Seconds::from_seconds(self.swapping);
        if steps > 1 && !self.rules.reserves_output {
            steps = self.kv.steps_that_fit(steps - self.grown) + self.grown;
        }
        if let Some(slot) = self.waiting.head().filter(|_| self.has_place() && !self.starts) {
            let eligible = self.sequences.at(slot).eligible;
            if eligible > self.step {
                steps = steps.min(eligible - self.step);
            }
        }
        self.plan = Plan::Leap(line);
        self.plan_steps = steps.max(1);
        self.end = self.start + line.total(self.plan_steps).as_seconds();
    }

    fn next_steps(&mut self) -> DecodeLine {
        if !self.rules.stepping {
            return self.decoding.line(self.model);
        }
        let mut load = self.model.load();
        self.decoding.add_to(&mut load);
        DecodeLine { first: self.model.cost(&load).total(), growth: Seconds::ZERO, steps: 1 }
    }
}

/// What the prefix cache has of a request; its segments are in `scratch` then.
#[inline]
fn find(rules: &Rules, kv: &KvBlocks, sequence: &Sequence<'_>, scratch: &mut Vec<Segment>) -> Hit {
    scratch.clear();
    if !rules.prefix_caching || sequence.resumes || !sequence.has_segments() {
        return Hit::default();
    }
    sequence.segments(scratch);
    kv.matched(scratch, sequence.due_tokens())
}
