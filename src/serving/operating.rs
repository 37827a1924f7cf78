//! The point at which a deployment works with a fixed number of requests in it.

use super::mix::StepMix;
use super::pattern::{Pattern, prompt_steps, prompts_per_step};
use super::replicas::Arriving;
use super::rules::{Limit, ServingRules};
use crate::engine::PromptPolicy;
use crate::numeric::{Tolerance, find_root};
use crate::units::Seconds;

/// From the moment that the engine has a request, and a place for it, to its first token: the parts of the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FirstToken {
    /// Steps of answers before the engine takes new prompts.
    pub(super) gathering: Seconds,
    /// Rest of the step that runs when the request comes.
    pub(super) running_step: Seconds,
    /// Prompts that came before and fill the steps.
    pub(super) prompts_before: Seconds,
    /// The steps that process the prompt, with what else is in them.
    pub(super) own: Seconds,
}

impl FirstToken {
    pub(super) fn total(&self) -> Seconds {
        self.gathering + self.running_step + self.prompts_before + self.own
    }

    /// For a request that comes with probability `met` while a step runs. Others come at `rate` per second; those of a step are processed together.
    pub(super) fn new(
        mix: &StepMix<'_>,
        rules: &ServingRules,
        pattern: &Pattern,
        rate: f64,
        met: f64,
    ) -> (Self, Overflow) {
        let seen = Self::seen(mix, rules, pattern, rate);
        // Those that come in the step that runs; where requests come back when a step ends, those whose answers end with it.
        let others = if met > 0.0 { rate * seen.as_seconds() } else { pattern.share * pattern.prompts };
        let together = (1.0 + others).min(pattern.room.max(1.0));
        let full = full_step(mix, rules, pattern);
        let own = match rules.prompts {
            _ if pattern.room < 1.0 => full / pattern.room,
            PromptPolicy::First => prompt_steps(mix, pattern.room, together),
            _ => mix.step(together, pattern.sequences),
        };
        // In a closed loop requests come back as evenly as their prompts were processed.
        let overflow = Overflow::new(full, pattern.room, rate, rules.prompts == PromptPolicy::Chunked).evened();
        let gathering = if pattern.sequences > 0.0 {
            gathering(rules.prompt_wait_steps, pattern.pure, pattern.mean())
        } else {
            Seconds::ZERO
        };
        (Self { gathering, running_step: seen * (met / 2.0), prompts_before: overflow.mean(), own }, overflow)
    }

    /// Twice the mean rest of the step that runs at a random moment.
    fn seen(mix: &StepMix<'_>, rules: &ServingRules, pattern: &Pattern, rate: f64) -> Seconds {
        if rules.prompts != PromptPolicy::First {
            return pattern.seen();
        }
        // Steps of prompts and steps of answers alternate.
        let prompts = pattern.prompts.max(1.0).min(pattern.room.max(1.0));
        let step = prompt_steps(mix, pattern.room.max(1.0), prompts);
        let busy = (rate * step.as_seconds() / prompts).min(1.0);
        step * busy + pattern.pure * (1.0 - busy)
    }
}

/// Time until an engine takes new prompts: the step that is formed already may have prompts in it, others that it waits for have none.
pub(super) fn gathering(steps: f64, pure: Seconds, mean: Seconds) -> Seconds {
    mean * steps.min(1.0) + pure * (steps - 1.0).max(0.0)
}

/// A step with as many prompts as it has room for.
pub(super) fn full_step(mix: &StepMix<'_>, rules: &ServingRules, pattern: &Pattern) -> Seconds {
    let sequences = if rules.prompts == PromptPolicy::First { 0.0 } else { pattern.sequences };
    mix.step(pattern.room.min(MANY), sequences)
}

/// Prompts that find no room in the next step: they wait for one step more, or several.
///
/// Steps with room for `s` prompts serve them like `s` servers would: Sakasegawa's approximation, half of it because a step always takes equally long. With
/// room for one prompt it is M/D/1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Overflow {
    /// Share of the prompts that wait.
    pub(super) share: f64,
    /// How long these wait in the mean.
    pub(super) wait: Seconds,
    /// Load of the steps with prompts.
    load: f64,
}

impl Overflow {
    /// There is room for all.
    pub(super) const NONE: Self = Self { share: 0.0, wait: Seconds::ZERO, load: 0.0 };

    /// Prompts that are `cut` have a part of them processed in the step that has no room for all.
    pub(super) fn new(full: Seconds, room: f64, rate: f64, cut: bool) -> Self {
        if room >= MANY || rate <= 0.0 {
            return Self::NONE;
        }
        // A prompt in chunks takes several steps of one server.
        let servers = room.max(1.0);
        let service = full * (servers / room);
        let load = (rate * service.as_seconds() / servers).min(1.0 - 1e-9);
        let part = if cut && room > 1.0 { LEFT_OF_CUT } else { 1.0 };
        let share = part * load.powf((2.0 * (servers + 1.0)).sqrt() - 1.0);
        Self { share, wait: service / (2.0 * servers * (1.0 - load)), load }
    }

    pub(super) fn mean(&self) -> Seconds {
        self.wait * self.share
    }

    /// With arrivals that have passed these steps before. What leaves a server of constant times has `c^2 = (1 - load^2) c^2` of its arrivals' squared
    /// coefficient of variation (W. Whitt, Bell System Technical Journal 62 (1983) 2779): coming back, it is the more regular the higher the load.
    fn evened(self) -> Self {
        Self { share: self.share * (1.0 - self.load * self.load), ..self }
    }

    /// With more regular arrivals fewer prompts come together; in bursts they wait for longer.
    pub(super) fn thinned(self, arriving: Arriving) -> Self {
        Self { share: self.share * arriving.scv.min(1.0), wait: self.wait * arriving.scv.max(1.0), ..self }
    }
}

/// Share of the waits that is left where a part of the prompt is processed in the step that has no room for all of it: simulated.
const LEFT_OF_CUT: f64 = 0.35;

/// Rooms beyond this are endless.
pub(super) const MANY: f64 = 1e6;

/// A deployment with a fixed number of requests in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operating {
    /// The gaps between tokens.
    pub(super) pattern: Pattern,
    /// Requests per second.
    pub(super) rate: f64,
    /// From having a place to the first token.
    pub(super) first: FirstToken,
    /// Prompts that find no room in a step.
    pub(super) overflow: Overflow,
    /// Wait for a place.
    pub(super) wait: Seconds,
    /// Wait of those that have a place, but whose prompts no step has room for; part of `first`.
    pub(super) held: Seconds,
    /// Requests with a place.
    pub(super) placed: f64,
    /// What keeps more from running.
    pub(super) limit: Limit,
}

/// How requests come back in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clients {
    /// How many requests there are at a time.
    pub(super) count: f64,
    /// From an answer to the arrival of the next request at the engine: thinking, and the front end.
    pub(super) away: Seconds,
    /// Whether a step may run when a request comes.
    pub(super) meets_step: bool,
}

/// A deployment in which a token is emitted beside those of so many other sequences. Everything follows from that number.
#[derive(Clone, Copy, Debug)]
struct Beside {
    others: f64,
    pattern: Pattern,
    first: FirstToken,
    overflow: Overflow,
    /// Time in which an answer is written.
    decode: Seconds,
    /// Prompts per second if all steps are full.
    most: f64,
}

impl Beside {
    fn new(mix: &StepMix<'_>, rules: &ServingRules, others: f64, meets_step: bool) -> Self {
        // A request sees the prompts of all others, but not its own.
        let pattern = Pattern::new(mix, rules, others + 1.0, others / mix.decode_steps);
        let decode = pattern.mean() * mix.decode_steps;
        let room = prompts_per_step(mix, rules, others);
        let found = Pattern { sequences: others, room, ..pattern };
        let met = if meets_step { others / (others + 1.0) } else { 0.0 };
        let (first, overflow) = FirstToken::new(mix, rules, &found, others / decode.as_seconds(), met);
        let most = match rules.prompts {
            PromptPolicy::Chunked | PromptPolicy::Whole if room < MANY => {
                room / full_step(mix, rules, &found).as_seconds()
            }
            _ => f64::INFINITY,
        };
        Self { others, pattern, first, overflow, decode, most }
    }

    /// The share of its time that a request is being answered.
    fn answered(&self) -> f64 {
        self.decode / (self.decode + self.first.total())
    }

    /// Requests with a place: this one, and the others at whatever they are.
    fn placed(&self) -> f64 {
        1.0 + self.others / self.answered()
    }

    /// Requests per second: of the others, and its own, if steps have room for them.
    fn rate(&self) -> f64 {
        ((self.others + self.answered()) / self.decode.as_seconds()).min(self.most)
    }

    /// Clients that make so many others.
    fn clients(&self, away: Seconds) -> f64 {
        self.placed() + self.rate() * away.as_seconds()
    }

    fn operating(self, limit: Limit) -> Operating {
        let (rate, placed) = (self.rate(), self.placed());
        let Self { pattern, mut first, overflow, decode, .. } = self;
        // Where steps are full, what it has a place for and they have no room for waits.
        let held = (Seconds::from_seconds(placed / rate) - decode - first.total()).max(Seconds::ZERO);
        first.prompts_before += held;
        Operating { pattern, rate, first, overflow, wait: Seconds::ZERO, held, placed, limit }
    }
}

impl Operating {
    /// With so many clients that send the next request when they have an answer.
    ///
    /// # Formula
    /// `clients = rate (TTFT + decode + away)`, solved for the sequences beside which a token is emitted.
    pub(super) fn closed(mix: &StepMix<'_>, rules: &ServingRules, clients: Clients) -> Self {
        if mix.decode_steps <= 0.0 {
            return Self::prompts_only(mix, rules, clients);
        }
        let Clients { count, away, meets_step } = clients;
        let at = |others: f64| Beside::new(mix, rules, others, meets_step);
        let alone = at(0.0);
        if count <= alone.clients(away) {
            // One client or less: nobody else is there.
            let cycle = alone.decode + alone.first.total();
            let rate = count / (cycle + away).as_seconds();
            return Self { rate, placed: rate * cycle.as_seconds(), ..alone.operating(Limit::Clients) };
        }
        let (slots, slot_limit) = rules.slots();
        let found = Self::solve(mix, rules, count - 1.0, at, |beside| beside.clients(away) - count);
        if found.placed() <= slots as f64 {
            return Self::of_all(found, count - found.clients(away));
        }
        let inside = Self::inside(mix, rules, slots as f64, meets_step);
        let waiting = (count - slots as f64 - inside.rate * away.as_seconds()).max(0.0);
        Self { wait: Seconds::from_seconds(waiting / inside.rate), limit: slot_limit, ..inside }
    }

    /// With so many requests that have a place, at least one.
    pub(super) fn inside(mix: &StepMix<'_>, rules: &ServingRules, placed: f64, meets_step: bool) -> Self {
        if mix.decode_steps <= 0.0 {
            return Self::prompts_only(mix, rules, Clients { count: placed, away: Seconds::ZERO, meets_step });
        }
        let at = |others: f64| Beside::new(mix, rules, others, meets_step);
        if placed <= 1.0 {
            return at(0.0).operating(Limit::Clients);
        }
        let found = Self::solve(mix, rules, placed - 1.0, at, |beside| beside.placed() - placed);
        Self::of_all(found, placed - found.placed())
    }

    /// The point at which `surplus` is zero, with at most so many others; the last one if prompts fill all steps before.
    fn solve(
        mix: &StepMix<'_>,
        rules: &ServingRules,
        most: f64,
        at: impl Fn(f64) -> Beside,
        surplus: impl Fn(&Beside) -> f64,
    ) -> Beside {
        const TOLERANCE: Tolerance = Tolerance { relative: 1e-11, absolute: 0.0 };
        let last = at(most.min(most_others(mix, rules)));
        if surplus(&last) <= 0.0 {
            return last;
        }
        let root = find_root(|others| surplus(&at(others)), 0.0, last.others, TOLERANCE);
        root.map_or(last, at)
    }

    /// `left` requests have no room in the steps: they wait for others' prompts.
    fn of_all(found: Beside, left: f64) -> Self {
        let Pattern { share, prompts, room, .. } = found.pattern;
        let full = share * prompts >= FULL * room;
        let mut operating = found.operating(if full { Limit::StepTokens } else { Limit::Clients });
        if left > 0.0 {
            let held = Seconds::from_seconds(left / operating.rate);
            operating.held += held;
            operating.first.prompts_before += held;
            operating.placed += left;
        }
        operating
    }

    /// Answers of one token: nothing but prompts.
    fn prompts_only(mix: &StepMix<'_>, rules: &ServingRules, clients: Clients) -> Self {
        let pattern = Pattern::new(mix, rules, 0.0, 0.0);
        let Clients { count, away, .. } = clients;
        let placed = count.min(rules.slots().0 as f64);
        let prompts = placed.clamp(1.0, pattern.room.max(1.0));
        let own = prompt_steps(mix, pattern.room, prompts);
        let most = prompts / own.as_seconds();
        let rate = most.min(count / (own + away).as_seconds());
        let inside = (count - rate * away.as_seconds()).min(placed);
        let before = Seconds::from_seconds((inside / rate - own.as_seconds()).max(0.0));
        let wait = Seconds::from_seconds((count - inside - rate * away.as_seconds()).max(0.0) / rate);
        let first = FirstToken { prompts_before: before, own, ..FirstToken::default() };
        let overflow = Overflow::NONE;
        Self { pattern, rate, first, overflow, wait, held: before, placed: inside, limit: Limit::StepTokens }
    }
}

/// Sequences that can be answered at most before their prompts fill all steps: as many prompts come as there is room for.
pub(super) fn most_others(mix: &StepMix<'_>, rules: &ServingRules) -> f64 {
    let Some(tokens) = rules.max_tokens_per_step else { return f64::INFINITY };
    let limit = tokens as f64 * mix.decode_steps / (mix.prompt_tokens + mix.decode_steps);
    match rules.prompts {
        PromptPolicy::First | PromptPolicy::Batch => f64::INFINITY,
        PromptPolicy::Chunked => limit,
        PromptPolicy::Whole => limit.max(mix.decode_steps),
    }
}

/// Steps are full of prompts if this share of their room is taken.
const FULL: f64 = 0.99;
