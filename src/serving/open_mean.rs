//! The mean of a system that requests come to at random, and how it fluctuates.

use super::backlog::{Backlog, Coming};
use super::mix::StepMix;
use super::operating::{MANY, most_others};
use super::pattern::{Pattern, prompts_per_step};
use super::replicas::Arriving;
use super::rules::ServingRules;
use super::scene::StepLine;
use crate::engine::PromptPolicy;
use crate::numeric::{Tolerance, find_root};

/// How much requests differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// Variance of the times that prompts take over their mean square.
    pub(super) prompts: f64,
    /// Gini's coefficient of the answers' lengths.
    pub(super) gini: f64,
}

/// An open system in the mean, and how it fluctuates around it.
///
/// # Formula
/// A step with `n` sequences and `J` prompts takes `a + b n + alpha J`. In each, `n / m` answers end, and as many requests have come as did in the
/// step before: in the mean `n = lambda m pure(n) / (1 - lambda alpha)`. The arrivals of a step depend on its length, and so on the arrivals of earlier ones (a Hawkes process):
/// prompts bring prompts at once, in clusters with variance over mean `I = (1 + lambda^2 Var alpha) / (1 - lambda alpha)^2`, and sequences bring
/// sequences over their whole life: `Var n = n (pure / a) (1 + (I - 1)(1 - G))`, with Gini's coefficient `G` of the answers' lengths (those of a cluster that leave
/// one after the other fluctuate less). A token is seen by `n + Var n / n` sequences: time per token is a mean over tokens, not over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenMean {
    /// Sequences that are being answered, over the steps.
    pub(super) sequences: f64,
    /// Their variance.
    pub(super) variance: f64,
    /// Prompts that a step has room for.
    pub(super) room: f64,
    /// What a prompt adds to the time of a step.
    pub(super) stall: f64,
    /// Mean time per output token.
    pub(super) tpot: f64,
    /// By how much a step without prompts grows with one more sequence.
    pub(super) slope: f64,
    /// Requests per second.
    pub(super) rate: f64,
    /// By how many there are more sequences beside a prompt, of those that came shortly before it.
    together: f64,
    /// Most time per output token: all steps are full.
    pub(super) most: f64,
}

impl OpenMean {
    pub(super) fn new(mix: &StepMix<'_>, rules: &ServingRules, rate: f64, spread: Spread, arriving: Arriving) -> Self {
        if rules.slots().0 == 1 {
            return Self::single(mix, rules, rate);
        }
        let steps = mix.decode_steps;
        let sequences = if steps > 0.0 { Self::answered_at_once(mix, rules, rate) } else { 0.0 };
        let line = Pattern::new(mix, rules, sequences.max(1.0), if steps > 0.0 { sequences / steps } else { 0.0 });
        let room = line.room;
        let stall = if line.prompts > 0.0 {
            (line.busy - line.pure).as_seconds() / line.prompts
        } else {
            StepLine::new(mix, rules, 0.0).first / room.min(1.0)
        };
        let width = (0.05 * sequences).max(1.0);
        let pure = line.pure.as_seconds();
        let further = mix.step(0.0, sequences.max(1.0) + width).as_seconds();
        let slope = ((further - pure) / width).max(0.0);
        let own = (rate * stall).min(0.999);
        let base = (pure - slope * sequences).max(0.02 * pure).max(f64::MIN_POSITIVE);
        let clusters = (arriving.dispersion() + own * own * spread.prompts) / ((1.0 - own) * (1.0 - own));
        let clusters = 1.0 + Self::lived(rules.prompts, steps, room, clusters - 1.0);
        let amplified = (pure / base).max(1.0);
        let variance = arriving.shared(sequences * amplified * (1.0 + (clusters - 1.0) * (1.0 - spread.gini)).max(0.0));
        // Sequences as tokens see them, with the token's own.
        let seen = if sequences > 0.0 { sequences + variance / sequences } else { 1.0 };
        let gap = mix.step(0.0, seen.max(1.0)).as_seconds() / (1.0 - own);
        let per_gap = rate * gap;
        // Prompts of the same step are not in each other's way: 1/(1 - own^2) of the cluster.
        let following = arriving.dispersion() * 2.0 * own / ((1.0 - own) * (1.0 - own) * (1.0 + own));
        let following = following + own * own * spread.prompts / ((1.0 - own) * (1.0 - own));
        let together = Self::lived(rules.prompts, steps, room, following) / 2.0;
        let with_prompts = if sequences > 0.0 { stall * per_gap * together / sequences } else { 0.0 };
        let tpot = if steps > 0.0 { gap + with_prompts } else { 0.0 };
        let most = Self::longest_step(mix, rules, room, sequences, variance);
        Self { sequences, variance, room, stall, tpot: tpot.min(most), slope, rate, together, most }
    }

    /// A full step, with as many sequences as there are in few moments; none is the longest where prompts have steps of their own.
    fn longest_step(mix: &StepMix<'_>, rules: &ServingRules, room: f64, sequences: f64, variance: f64) -> f64 {
        if rules.prompts == PromptPolicy::First || room > MANY {
            return f64::INFINITY;
        }
        let others = most_others(mix, rules).min(rules.slots().0 as f64);
        mix.step(room, (sequences + 2.0 * variance.sqrt()).min(others).max(sequences)).as_seconds()
    }

    /// Of the prompts that follow one in its cluster, those within the time of one answer: a queue in front of full steps draws clusters out, so that there are not more
    /// than some part of the prompts that all steps of an answer have room for (which part: simulated).
    fn lived(policy: PromptPolicy, steps: f64, room: f64, following: f64) -> f64 {
        const BESIDE_ANSWERS: f64 = 0.63;
        const STEPS_OF_THEIR_OWN: f64 = 0.22;
        let part = if policy == PromptPolicy::First { STEPS_OF_THEIR_OWN } else { BESIDE_ANSWERS };
        let most = part * steps.max(1.0) * room;
        following / (following / most).hypot(1.0)
    }

    /// By how much full steps take longer for the sequences that came out of those before.
    fn growth(&self, mix: &StepMix<'_>, rules: &ServingRules) -> f64 {
        /// Prompts that a backlog has in front of it, over those of a single prompt: simulated.
        const BACKLOG: f64 = 3.0;
        if rules.prompts == PromptPolicy::First {
            return 0.0;
        }
        let most = most_others(mix, rules).min(rules.slots().0 as f64);
        let more = (self.sequences + BACKLOG * self.together).min(most).max(self.sequences);
        (mix.step(self.room, more) - mix.step(self.room, self.sequences)).as_seconds().max(0.0)
    }

    /// Prompts in front of steps that have room for few.
    pub(super) fn backlog(
        &self,
        mix: &StepMix<'_>,
        rules: &ServingRules,
        lengths: &[(f64, f64)],
        spread: Spread,
    ) -> Option<Backlog> {
        if rules.slots().0 == 1 || self.room > Backlog::LARGEST_ROOM {
            return None;
        }
        let excess = (self.variance / self.sequences.max(1e-9) - 1.0).max(1e-6);
        let nobody = (-self.sequences / excess * excess.ln_1p()).exp();
        let present = (self.sequences / (1.0 - nobody).max(1e-9)).max(1.0);
        let alone = StepLine::new(mix, rules, 0.0);
        let line = if mix.decode_steps > 0.0 { StepLine::new(mix, rules, present) } else { alone };
        let coming = Coming {
            rate: self.rate,
            lengths,
            spread: spread.prompts,
            idle: nobody,
            growth: self.growth(mix, rules),
            steps: 1.0 + mix.decode_steps,
            places: rules.slots().0 as f64,
        };
        Some(Backlog::new(&line, &alone, rules.prompts, self.room, &coming))
    }

    /// A single place: nobody slows down anybody.
    fn single(mix: &StepMix<'_>, rules: &ServingRules, rate: f64) -> Self {
        let tpot = if mix.decode_steps > 0.0 { mix.step(0.0, 1.0).as_seconds() } else { 0.0 };
        let room = prompts_per_step(mix, rules, 0.0);
        Self {
            sequences: 0.0,
            variance: 0.0,
            room,
            stall: 0.0,
            tpot,
            slope: 0.0,
            rate,
            together: 0.0,
            most: f64::INFINITY,
        }
    }

    /// Sequences that are being answered while so many requests come per second: as many answers end as requests come.
    fn answered_at_once(mix: &StepMix<'_>, rules: &ServingRules, rate: f64) -> f64 {
        const TOLERANCE: Tolerance = Tolerance { relative: 1e-10, absolute: 0.0 };
        let served = |sequences: f64| {
            let pattern = Pattern::new(mix, rules, sequences.max(1.0), sequences / mix.decode_steps);
            sequences / (mix.decode_steps * pattern.mean().as_seconds())
        };
        let most = most_others(mix, rules).min(rules.slots().0 as f64).min(MOST_SEQUENCES);
        if served(most) <= rate {
            return most;
        }
        find_root(|sequences| served(sequences) - rate, 0.0, most, TOLERANCE).unwrap_or(most)
    }
}

/// More sequences than any engine runs.
pub(super) const MOST_SEQUENCES: f64 = 65_536.0;
