//! The engine at work.

use super::arrivals::{Lengths, Sent, Source};
use super::outcome::{Averages, Gap, Outcome, Served, cut_off};
use super::{Policy, Simulation};
use llm_roofline::model::{Reach, Reaches};
use llm_roofline::prelude::*;
use llm_roofline::step::StepLoad;
use std::collections::VecDeque;

/// Serves everything that the source sends.
pub(super) fn run(simulation: &Simulation<'_>, source: Source) -> Outcome {
    let mut engine = Engine::new(simulation, source);
    while engine.wait_for_work() {
        let step = engine.form_step();
        engine.run_step(&step);
        if engine.emit(step.decodes) {
            engine.remove_finished();
            engine.watch_window();
        }
    }
    engine.finish()
}

struct Engine<'a> {
    simulation: &'a Simulation<'a>,
    source: Source,
    last_bend: u64,
    now: Seconds,
    waiting: VecDeque<Sequence>,
    /// How many in front of the queue may be admitted in the step that is being formed.
    joinable: usize,
    /// How many waited when the last step was formed.
    seen: usize,
    /// In the order of their admission: `decoding` sequences whose prompt has been computed, then the others.
    running: Vec<Sequence>,
    decoding: usize,
    /// Tokens in the cache, reserved ones included.
    held: u64,
    served: Vec<Served>,
    gaps: Vec<Gap>,
    totals: Totals,
    window: [Option<Totals>; 2],
}

/// A request and how far it is.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    id: usize,
    lengths: Lengths,
    /// Tokens emitted; after the end of an answer, those that were computed for nothing.
    emitted: u64,
    /// Tokens of the prompt, cached ones included, that have been computed. Means nothing once it decodes.
    computed: u64,
    last_token: Seconds,
}

/// A step that is about to run.
struct Step {
    load: StepLoad,
    /// Whether decoding sequences get a token.
    decodes: bool,
}

impl Sequence {
    /// What must be computed before the next token: the prompt, and after a preemption what was emitted before.
    const fn prompt_tokens(&self) -> u64 {
        self.lengths.prompt + self.emitted
    }

    /// Tokens in the cache before the next token, once it decodes.
    const fn context(&self) -> u64 {
        self.lengths.prompt + self.emitted - 1
    }

    const fn is_finished(&self) -> bool {
        self.emitted >= self.lengths.output
    }
}

/// Integrals over time, and counts.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    running: f64,
    decoding: f64,
    waiting: f64,
    cache_tokens: f64,
    time: Seconds,
    busy: Seconds,
    steps: u64,
    output_tokens: u64,
    answered: u64,
}

impl Totals {
    fn since(&self, start: &Self) -> Averages {
        let time = self.time - start.time;
        let mean = |end: f64, start: f64| if time > Seconds::ZERO { (end - start) / time.as_seconds() } else { 0.0 };
        Averages {
            time,
            running: mean(self.running, start.running),
            decoding: mean(self.decoding, start.decoding),
            waiting: mean(self.waiting, start.waiting),
            cache_tokens: mean(self.cache_tokens, start.cache_tokens),
            steps: self.steps - start.steps,
            busy: self.busy - start.busy,
            output_tokens: self.output_tokens - start.output_tokens,
            answered: self.answered - start.answered,
        }
    }
}

impl<'a> Engine<'a> {
    fn new(simulation: &'a Simulation<'a>, source: Source) -> Self {
        let count = source.lengths.len();
        Self {
            simulation,
            source,
            last_bend: last_bend(simulation.model.reaches()),
            now: Seconds::ZERO,
            waiting: VecDeque::new(),
            joinable: 0,
            seen: 0,
            running: Vec::with_capacity(simulation.max_sequences.min(count)),
            decoding: 0,
            held: 0,
            served: Vec::with_capacity(count),
            gaps: Vec::new(),
            totals: Totals::default(),
            window: [(cut_off(count, simulation.cut) == 0).then(Totals::default), None],
        }
    }

    /// Queues what has arrived; an engine without work waits for the next arrival. False if there is none.
    fn wait_for_work(&mut self) -> bool {
        self.receive();
        if self.running.is_empty() && self.waiting.is_empty() {
            let Some(next) = self.source.next_ready() else { return false };
            self.now = next;
            self.totals.time = next;
            self.receive();
        }
        true
    }

    fn receive(&mut self) {
        while let Some(Sent { id, lengths, arrival, ready }) = self.source.next(self.now) {
            debug_assert_eq!(id, self.served.len());
            self.totals.waiting += (self.now - ready).as_seconds();
            self.served.push(Served {
                arrival,
                admitted: Seconds::ZERO,
                first_token: Seconds::ZERO,
                last_token: Seconds::ZERO,
                prompt: lengths.prompt,
                output: lengths.output,
                preemptions: 0,
            });
            self.waiting.push_back(Sequence { id, lengths, emitted: 0, computed: 0, last_token: Seconds::ZERO });
        }
    }

    fn form_step(&mut self) -> Step {
        let missed = self.simulation.async_scheduling && !self.running.is_empty();
        self.joinable = if missed { self.seen } else { self.waiting.len() };
        let step = match self.simulation.policy {
            Policy::Mixed { budget } => self.form_mixed(budget),
            Policy::PromptsFirst { budget } => self.form_prompts(budget).unwrap_or_else(|| self.form_decodes()),
            Policy::WholeBatch if self.running.is_empty() => self.form_batch(),
            Policy::WholeBatch => Step { load: self.decode_load(), decodes: true },
        };
        self.seen = self.waiting.len();
        step
    }

    /// A token for every decoding sequence, then chunks of prompts.
    fn form_mixed(&mut self, budget: u64) -> Step {
        self.make_room();
        let mut load = self.decode_load();
        let mut room = budget - self.decoding as u64;
        let mut next = self.decoding;
        while room > 0 && (next < self.running.len() || self.admit()) {
            let sequence = &mut self.running[next];
            let chunk = room.min(sequence.prompt_tokens() - sequence.computed);
            add_chunk(&mut load, sequence, chunk);
            room -= chunk;
            next += 1;
        }
        Step { load, decodes: true }
    }

    /// Whole prompts, if any wait and fit.
    fn form_prompts(&mut self, budget: u64) -> Option<Step> {
        let mut load = self.simulation.model.load();
        let mut room = budget;
        while let Some(new) = self.waiting.front().map(|next| next.prompt_tokens() - next.lengths.cached) {
            if load.tokens() > 0.0 && new > room || !self.admit() {
                break;
            }
            let sequence = self.running.last_mut().expect("was admitted");
            add_chunk(&mut load, sequence, new);
            room = room.saturating_sub(new);
        }
        (load.tokens() > 0.0).then_some(Step { load, decodes: false })
    }

    /// A token for every decoding sequence.
    fn form_decodes(&mut self) -> Step {
        self.make_room();
        Step { load: self.decode_load(), decodes: true }
    }

    /// The prompts of as many as have room up to the end of the longest answer among them.
    fn form_batch(&mut self) -> Step {
        let mut load = self.simulation.model.load();
        let (mut prompts, mut longest) = (0, 0);
        while let Some(next) = self.waiting.front() {
            (prompts, longest) = (prompts + next.lengths.prompt, longest.max(next.lengths.output));
            let places = self.running.len() + 1;
            let held = prompts + places as u64 * longest;
            if places > self.simulation.max_sequences || held as f64 > self.simulation.cache_tokens {
                break;
            }
            self.held = held;
            let sequence = self.take_next();
            add_chunk(&mut load, sequence, sequence.prompt_tokens() - sequence.computed);
        }
        Step { load, decodes: false }
    }

    /// Preempts until the cache holds a further token of every decoding sequence, and takes it.
    fn make_room(&mut self) {
        if self.simulation.reserve_output {
            return;
        }
        while (self.held + self.decoding as u64) as f64 > self.simulation.cache_tokens {
            let last = self.running.len() - 1;
            self.held -= self.held_by(last);
            let sequence = self.running.pop().expect("one alone has room");
            self.decoding = self.decoding.min(last);
            self.served[sequence.id].preemptions += 1;
            self.waiting.push_front(sequence);
        }
        self.held += self.decoding as u64;
    }

    /// Tokens that a running sequence has in the cache.
    fn held_by(&self, index: usize) -> u64 {
        let sequence = &self.running[index];
        if self.simulation.reserve_output {
            sequence.lengths.prompt + sequence.lengths.output
        } else if index < self.decoding {
            sequence.context()
        } else {
            sequence.prompt_tokens()
        }
    }

    /// Gives the next request a place, if it may have one.
    fn admit(&mut self) -> bool {
        let Some(next) = self.waiting.front().filter(|_| self.joinable > 0) else { return false };
        let reserved = if self.simulation.reserve_output { next.lengths.output } else { next.emitted };
        let held = self.held + next.lengths.prompt + reserved;
        if self.running.len() >= self.simulation.max_sequences || held as f64 > self.simulation.cache_tokens {
            return false;
        }
        self.held = held;
        self.joinable -= 1;
        self.take_next();
        true
    }

    fn take_next(&mut self) -> &mut Sequence {
        let mut sequence = self.waiting.pop_front().expect("somebody waits");
        sequence.computed = sequence.lengths.cached;
        let served = &mut self.served[sequence.id];
        if served.preemptions == 0 {
            served.admitted = self.now;
        }
        self.running.push(sequence);
        self.running.last_mut().expect("was pushed")
    }

    fn decode_load(&self) -> StepLoad {
        let mut load = self.simulation.model.load();
        add_decodes(&mut load, self.last_bend, self.running[..self.decoding].iter().map(Sequence::context));
        load
    }

    /// Lets the time of the step pass.
    fn run_step(&mut self, step: &Step) {
        assert!(step.load.tokens() > 0.0, "{} requests wait for ever", self.waiting.len());
        let time = self.simulation.model.cost(&step.load).total();
        let seconds = time.as_seconds();
        self.totals.running += self.running.len() as f64 * seconds;
        self.totals.decoding += self.decoding as f64 * seconds;
        self.totals.waiting += self.waiting.len() as f64 * seconds;
        self.totals.cache_tokens += self.held as f64 * seconds;
        self.totals.busy += time;
        self.totals.steps += 1;
        self.now += time;
        self.totals.time = self.now;
    }

    /// The tokens that come out of the step: one of each sequence that decoded, one of each whose prompt has ended. Whether an answer ended.
    fn emit(&mut self, decoded: bool) -> bool {
        let answered = self.totals.answered;
        let first = if decoded { 0 } else { self.decoding };
        let prompts = self.running[self.decoding..].iter();
        self.decoding += prompts.take_while(|sequence| sequence.computed == sequence.prompt_tokens()).count();
        for sequence in &mut self.running[first..self.decoding] {
            sequence.emitted += 1;
            if sequence.emitted > sequence.lengths.output {
                continue;
            }
            self.totals.output_tokens += 1;
            if sequence.emitted == 1 {
                self.served[sequence.id].first_token = self.now;
            } else if self.simulation.record_gaps {
                record_gap(&mut self.gaps, self.now, self.now - sequence.last_token);
            }
            sequence.last_token = self.now;
            if sequence.is_finished() {
                self.served[sequence.id].last_token = self.now;
                self.totals.answered += 1;
                self.source.answered(self.now);
            }
        }
        self.totals.answered > answered
    }

    fn remove_finished(&mut self) {
        if self.simulation.policy == Policy::WholeBatch {
            if self.running.iter().all(Sequence::is_finished) {
                self.running.clear();
                (self.decoding, self.held) = (0, 0);
            }
            return;
        }
        let before = self.running.len();
        let reserved = self.simulation.reserve_output;
        self.running.retain(|sequence| {
            if sequence.is_finished() {
                self.held -=
                    if reserved { sequence.lengths.prompt + sequence.lengths.output } else { sequence.context() };
            }
            !sequence.is_finished()
        });
        // Only those can have finished whose prompt has.
        self.decoding -= before - self.running.len();
        debug_assert_eq!(self.held, (0..self.running.len()).map(|index| self.held_by(index)).sum::<u64>());
    }

    /// Marks where statistics begin and end.
    fn watch_window(&mut self) {
        let count = self.source.lengths.len();
        let cut = cut_off(count, self.simulation.cut);
        for (mark, answers) in self.window.iter_mut().zip([cut, count - cut]) {
            if mark.is_none() && self.totals.answered >= answers as u64 {
                *mark = Some(self.totals);
            }
        }
    }

    fn finish(self) -> Outcome {
        assert_eq!(self.totals.answered as usize, self.source.lengths.len(), "every request is answered");
        let [start, end] = self.window.map(Option::unwrap_or_default);
        Outcome {
            requests: self.served,
            gaps: self.gaps,
            whole: self.totals.since(&Totals::default()),
            steady: end.since(&start),
            cut: self.simulation.cut,
        }
    }
}

fn add_chunk(load: &mut StepLoad, sequence: &mut Sequence, new: u64) {
    load.add_prefill(sequence.computed, new, sequence.computed + new == sequence.prompt_tokens());
    sequence.computed += new;
}

/// Adds sequences with these contexts that decode a token each.
///
/// Beyond the last bend of the model's reaches all sums are lines in the context: any contexts with the same sum make the same load.
fn add_decodes(load: &mut StepLoad, last_bend: u64, contexts: impl Iterator<Item = u64>) {
    let (mut count, mut sum) = (0, 0);
    for context in contexts {
        if context >= last_bend {
            (count, sum) = (count + 1, sum + context);
        } else {
            load.add_decode(context, 1, 1.0);
        }
    }
    if let Some(each) = u64::checked_div(sum, count) {
        let rest = sum % count;
        load.add_decode(each, 1, (count - rest) as f64);
        load.add_decode(each + 1, 1, rest as f64);
    }
}

/// Context from which on what a token reads is a line for every reach.
fn last_bend(reaches: &Reaches) -> u64 {
    let bends = reaches.as_slice().iter().map(|reach| match *reach {
        Reach::Full => 0,
        Reach::Window(window) => window,
        Reach::Selected { ratio, top } => ratio.max(1) * top,
        // Chunks, and what may come: never.
        _ => u64::MAX,
    });
    bends.max().unwrap_or(0)
}

fn record_gap(gaps: &mut Vec<Gap>, at: Seconds, gap: Seconds) {
    match gaps.last_mut() {
        Some(last) if last.at == at && last.gap == gap => last.count += 1,
        _ => gaps.push(Gap { at, gap, count: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_long_contexts_is_enough() {
        let windows = [Reach::Full, Reach::Window(300), Reach::Selected { ratio: 4, top: 80 }];
        let chunks = [Reach::Full, Reach::Chunk(100)];
        let contexts = [5, 900, 319, 320, 321, 0, 338];
        for (reaches, bend) in [(&windows[..1], 0), (&windows, 320), (&chunks, u64::MAX)] {
            let reaches = Reaches::new(reaches).unwrap();
            let (mut at_once, mut one_by_one) = (StepLoad::new(reaches), StepLoad::new(reaches));
            assert_eq!(last_bend(&reaches), bend);
            add_decodes(&mut at_once, bend, contexts.into_iter());
            contexts.into_iter().for_each(|context| one_by_one.add_decode(context, 1, 1.0));
            assert_eq!(at_once, one_by_one);
        }
    }
}
