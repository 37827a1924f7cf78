//! What happens between two tokens of an answer: steps with and without prompts.

use super::mix::StepMix;
use super::rules::ServingRules;
use crate::engine::PromptPolicy;
use crate::units::Seconds;

/// The gaps between two tokens while `sequences` are being answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pattern {
    /// Sequences that are being answered.
    pub(super) sequences: f64,
    /// A gap without prompts.
    pub(super) pure: Seconds,
    /// A gap with prompts, in the mean.
    pub(super) busy: Seconds,
    /// Share of gaps with prompts.
    pub(super) share: f64,
    /// Prompts in a gap that has some; a part of one where prompts come in chunks.
    pub(super) prompts: f64,
    /// Prompts that a step has room for; less than 1 where they come in chunks.
    pub(super) room: f64,
}

impl Pattern {
    /// With `per_gap` prompts of others in the mean: as many as answers end in a gap, and as many at a time as chance has it.
    pub(super) fn new(mix: &StepMix<'_>, rules: &ServingRules, sequences: f64, per_gap: f64) -> Self {
        let room = prompts_per_step(mix, rules, sequences);
        let pure = if sequences > 0.0 { mix.step(0.0, sequences) } else { Seconds::ZERO };
        let nothing = Self { sequences, pure, busy: pure, share: 0.0, prompts: 0.0, room };
        nothing.with_prompts(mix, rules, per_gap, 1.0 - (-per_gap).exp())
    }

    /// With so many prompts per gap in the mean, and at most that share of gaps with some.
    fn with_prompts(self, mix: &StepMix<'_>, rules: &ServingRules, per_gap: f64, share: f64) -> Self {
        if per_gap <= 0.0 {
            return self;
        }
        let alone = rules.prompts == PromptPolicy::First;
        // Steps that have room for several prompts take what is there; chunks of a prompt fill one step after another.
        let most = if alone { f64::INFINITY } else { self.room };
        let chunks = if self.room < 1.0 { per_gap / self.room } else { 0.0 };
        let share = share.max(per_gap / most).max(chunks).min(1.0);
        let prompts = (per_gap / share).min(most);
        let busy =
            if alone { self.pure + prompt_steps(mix, self.room, prompts) } else { mix.step(prompts, self.sequences) };
        Self { busy, share, prompts, ..self }
    }

    /// The mean gap.
    pub(super) fn mean(&self) -> Seconds {
        self.pure * (1.0 - self.share) + self.busy * self.share
    }

    /// Mean square of the gap over its mean: what a request that comes at random sees.
    pub(super) fn seen(&self) -> Seconds {
        let square = |time: Seconds| time.as_seconds() * time.as_seconds();
        let mean = self.mean().as_seconds();
        if mean <= 0.0 {
            return Seconds::ZERO;
        }
        Seconds::from_seconds((square(self.pure) * (1.0 - self.share) + square(self.busy) * self.share) / mean)
    }
}

/// Prompts that a step has room for beside the sequences that are being answered.
pub(super) fn prompts_per_step(mix: &StepMix<'_>, rules: &ServingRules, sequences: f64) -> f64 {
    let Some(tokens) = rules.max_tokens_per_step else { return f64::INFINITY };
    let tokens = tokens as f64;
    let room = match rules.prompts {
        PromptPolicy::First | PromptPolicy::Batch => tokens,
        PromptPolicy::Chunked | PromptPolicy::Whole => (tokens - sequences).max(1.0),
    } / mix.prompt_tokens;
    if rules.prompts == PromptPolicy::Whole { room.max(1.0) } else { room }
}

/// Steps of nothing but prompts.
pub(super) fn prompt_steps(mix: &StepMix<'_>, room: f64, prompts: f64) -> Seconds {
    if prompts <= room { mix.step(prompts, 0.0) } else { mix.step(room, 0.0) * (prompts / room) }
}
