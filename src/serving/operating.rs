//! The point at which a deployment works with a fixed number of requests in it.

use super::mix::StepMix;
use super::pattern::{Pattern, prompt_steps, prompts_per_step};
use super::replicas::Arriving;
use super::rules::{Limit, ServingRules};
use crate::engine::PromptPolicy;
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
        let together = (1.0 + rate * pattern.seen().as_seconds()).min(pattern.room.max(1.0));
        let full = full_step(mix, rules, pattern);
        let own = match rules.prompts {
            _ if pattern.room < 1.0 => full / pattern.room,
            PromptPolicy::First => prompt_steps(mix, pattern.room, together),
            _ => mix.step(together, pattern.sequences),
        };
        let overflow = Overflow::new(full, pattern.room, rate, rules.prompts == PromptPolicy::Chunked);
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
}

impl Overflow {
    /// Prompts that are `cut` have a part of them processed in the step that has no room for all.
    pub(super) fn new(full: Seconds, room: f64, rate: f64, cut: bool) -> Self {
        if room >= MANY || rate <= 0.0 {
            return Self { share: 0.0, wait: Seconds::ZERO };
        }
        // A prompt in chunks takes several steps of one server.
        let servers = room.max(1.0);
        let service = full * (servers / room);
        let load = (rate * service.as_seconds() / servers).min(0.999);
        let part = if cut && room > 1.0 { LEFT_OF_CUT } else { 1.0 };
        let share = part * load.powf((2.0 * (servers + 1.0)).sqrt() - 1.0);
        Self { share, wait: service / (2.0 * servers * (1.0 - load)) }
    }

    pub(super) fn mean(&self) -> Seconds {
        self.wait * self.share
    }

    /// With more regular arrivals fewer prompts come together; in bursts they wait for longer.
    pub(super) fn thinned(self, arriving: Arriving) -> Self {
        Self { share: self.share * arriving.scv.min(1.0), wait: self.wait * arriving.scv.max(1.0) }
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
    /// Whether a step runs when a request comes.
    pub(super) meets_step: bool,
}

impl Operating {
    /// With so many clients that send the next request when they have an answer.
    pub(super) fn closed(mix: &StepMix<'_>, rules: &ServingRules, clients: Clients) -> Self {
        let (slots, slot_limit) = rules.slots();
        let slots = slots as f64;
        let mut inside = clients.count;
        let mut operating = Self::inside(mix, rules, inside.min(slots), clients);
        // Those that are away are not in the engine.
        if clients.away > Seconds::ZERO {
            for _ in 0..AWAY_ROUNDS {
                let cycle = inside.min(slots) / operating.rate;
                inside = clients.count * cycle / (cycle + clients.away.as_seconds());
                operating = Self::inside(mix, rules, inside.min(slots).max(1e-3), clients);
                if inside > slots {
                    inside = (clients.count - operating.rate * clients.away.as_seconds()).max(slots);
                }
            }
        }
        let waiting = (inside - slots).max(0.0);
        let limit = if waiting > 0.0 { slot_limit } else { operating.limit };
        Self { wait: Seconds::from_seconds(waiting / operating.rate), limit, ..operating }
    }

    /// With so many requests that have a place.
    pub(super) fn inside(mix: &StepMix<'_>, rules: &ServingRules, placed: f64, clients: Clients) -> Self {
        let steps = mix.decode_steps;
        let met = if clients.meets_step { ((clients.count - 1.0) / clients.count).clamp(0.0, 1.0) } else { 0.0 };
        if steps <= 0.0 {
            return Self::prompts_only(mix, rules, placed);
        }
        // The share of its time that a request is being answered.
        let mut answered = 1.0;
        let mut result = None;
        // A request sees the prompts of all others, but not its own.
        let among = 1.0 - 1.0 / placed.max(1.0);
        for _ in 0..ROUNDS {
            let others = placed * among * answered;
            // A token is emitted in a step with its own sequence.
            let pattern = Pattern::new(mix, rules, others + placed.min(1.0), others / steps);
            let gap = pattern.mean();
            let rate = placed * answered / (steps * gap.as_seconds());
            let room = prompts_per_step(mix, rules, others);
            let found = Pattern { sequences: others, room, ..pattern };
            let (first, overflow) = FirstToken::new(mix, rules, &found, rate * among, met);
            let limit = if pattern.full { Limit::StepTokens } else { Limit::Clients };
            result = Some(Self { pattern, rate, first, overflow, wait: Seconds::ZERO, placed, limit });
            let decode = gap * steps;
            let next = decode / (decode + first.total());
            // Where prompts fill all steps, answers are as many as their prompts can be processed for.
            let bound = if pattern.full { pattern.room * steps / placed } else { f64::INFINITY };
            answered = next.min(bound).max(1e-9);
        }
        result.unwrap_or_else(|| Self::prompts_only(mix, rules, placed))
    }

    /// Answers of one token: nothing but prompts.
    fn prompts_only(mix: &StepMix<'_>, rules: &ServingRules, placed: f64) -> Self {
        let pattern = Pattern::new(mix, rules, 0.0, 0.0);
        let prompts = placed.min(pattern.room.max(1.0));
        let own = prompt_steps(mix, pattern.room, prompts);
        let rate = prompts / own.as_seconds();
        let before = Seconds::from_seconds((placed / rate - own.as_seconds()).max(0.0));
        let first = FirstToken { prompts_before: before, own, ..FirstToken::default() };
        let overflow = Overflow { share: 0.0, wait: Seconds::ZERO };
        Self { pattern, rate, first, overflow, wait: Seconds::ZERO, placed, limit: Limit::StepTokens }
    }
}

const ROUNDS: usize = 5;
const AWAY_ROUNDS: usize = 4;
