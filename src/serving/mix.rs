//! The average request as step loads: what a prompt adds to a step, what a sequence that is being answered adds.

use crate::request::Request;
use crate::step::{StepCost, StepLoad, StepModel};
use crate::units::Seconds;
use crate::workload::Lengths;

/// Requests of some lengths, in the mean over all of them.
///
/// A step with `j` prompts and `n` sequences that are being answered costs the price of `j` mean prompts and `n` mean sequences: loads are sums, so their
/// average is a load. What the price of the average misses against the average of prices (windows that fill, prompts in several chunks) is
/// one factor for each phase, exact for requests that are alone.
#[derive(Clone, Debug)]
pub(super) struct StepMix<'a> {
    model: &'a StepModel,
    /// One prompt, all its chunks together.
    prompt: StepLoad,
    /// One sequence at a random moment of its answer.
    sequence: StepLoad,
    /// Prompt tokens to compute.
    pub(super) prompt_tokens: f64,
    /// Prompt tokens that are cached already.
    pub(super) cached_tokens: f64,
    /// Output tokens.
    pub(super) output_tokens: f64,
    /// Mean decode steps of a request: its first token comes out of the prefill.
    pub(super) decode_steps: f64,
    /// Mean price of prompts that are alone.
    pub(super) alone: Seconds,
    /// The same if there was nothing cached to attend to.
    pub(super) alone_uncached: Seconds,
    prompt_correction: f64,
    decode_correction: f64,
}

/// Moments of an answer at which its context is looked at.
const MOMENTS: u64 = 8;

impl<'a> StepMix<'a> {
    /// `cached` tokens of every prompt are found in a prefix cache, all but the last at most.
    pub(super) fn new(model: &'a StepModel, lengths: &Lengths, cached: impl Fn(f64) -> f64) -> Self {
        let mut mix = Self {
            model,
            prompt: model.load(),
            sequence: model.load(),
            prompt_tokens: 0.0,
            cached_tokens: 0.0,
            output_tokens: lengths.moments().output,
            decode_steps: 0.0,
            alone: Seconds::ZERO,
            alone_uncached: Seconds::ZERO,
            prompt_correction: 1.0,
            decode_correction: 1.0,
        };
        let mut decode = Seconds::ZERO;
        for point in lengths.points() {
            let (prompt, output) = (whole(point.prompt), whole(point.output));
            let cached = whole(cached(point.prompt).min(point.prompt - 1.0));
            let request = Request::new(prompt, output).with_cached_prompt_tokens(cached);
            let steps = output - 1;
            mix.prompt_tokens += point.weight * (prompt - cached) as f64;
            mix.cached_tokens += point.weight * cached as f64;
            mix.decode_steps += point.weight * steps as f64;
            let alone = model.prefill(&request).total();
            let own = if cached > 0 { model.prefill(&Request::new(prompt - cached, output)).total() } else { alone };
            mix.alone += alone * point.weight;
            mix.alone_uncached += own * point.weight;
            decode += model.decode_run(1, prompt, steps).total() * point.weight;
            mix.add_prompt(cached, prompt - cached, point.weight);
            for moment in 0..MOMENTS.min(steps) {
                let passed = ((moment as f64 + 0.5) / MOMENTS.min(steps) as f64 * steps as f64) as u64;
                mix.sequence.add_decode(prompt + passed, 1, point.weight * steps as f64 / MOMENTS.min(steps) as f64);
            }
        }
        if mix.decode_steps > 0.0 {
            mix.sequence = mix.sequence.scaled(1.0 / mix.decode_steps);
            mix.decode_correction = decode / (mix.priced(0.0, 1.0).total() * mix.decode_steps);
        }
        mix.prompt_correction = mix.alone / (mix.priced(1.0 / mix.chunks_alone(), 0.0).total() * mix.chunks_alone());
        mix
    }

    /// A prompt in chunks of the engine's largest step: each reads what those before it cached.
    fn add_prompt(&mut self, cached: u64, new: u64, weight: f64) {
        let step = self.model.deployment().max_tokens_per_step().unwrap_or(new).max(1);
        let mut done = 0;
        // Beyond some chunks the middle one stands for all.
        let chunks = new.div_ceil(step);
        if chunks > 16 {
            let middle = cached + (new - step) / 2;
            self.prompt.add_prefills(middle, step, false, weight * new as f64 / step as f64);
            self.prompt.add_prefills(cached + new - 1, 1, true, weight);
            return;
        }
        while done < new {
            let chunk = step.min(new - done);
            self.prompt.add_prefills(cached + done, chunk, done + chunk == new, weight);
            done += chunk;
        }
    }

    /// Chunks of a mean prompt that is alone.
    fn chunks_alone(&self) -> f64 {
        let step = self.model.deployment().max_tokens_per_step().map_or(f64::INFINITY, |tokens| tokens as f64);
        (self.prompt_tokens / step).max(1.0)
    }

    fn priced(&self, prompts: f64, sequences: f64) -> StepCost {
        let mut load = self.model.load();
        load.add_load(&self.prompt, prompts);
        load.add_load(&self.sequence, sequences);
        self.model.cost(&load)
    }

    /// The cost of a step with so many prompts (or a part of one) and sequences that are being answered.
    pub(super) fn cost(&self, prompts: f64, sequences: f64) -> StepCost {
        let correction = if prompts > 0.0 { self.prompt_correction } else { self.decode_correction };
        self.priced(prompts, sequences) * correction
    }

    /// The time of such a step.
    pub(super) fn step(&self, prompts: f64, sequences: f64) -> Seconds {
        self.cost(prompts, sequences).total()
    }

    pub(super) const fn model(&self) -> &'a StepModel {
        self.model
    }
}

fn whole(tokens: f64) -> u64 {
    tokens.round().max(0.0) as u64
}
