//! The steps that process the prompts of a batch.

use super::Request;
use crate::step::{Explainer, Explanation, StepCost, StepLoad, StepModel};
use crate::units::Seconds;

impl StepModel {
    /// The cost of processing all prompts of the request: one step, or several where the engine limits the tokens of a step.
    ///
    /// Under a limit, prompts are processed one after another, as many tokens per step as allowed: chunks of long prompts, several short
    /// prompts together. Nothing is checked here: a prompt of which everything is cached costs nothing.
    pub fn prefill(&self, request: &Request) -> StepCost {
        let (cost, share) = self.prefill_one_by_one(request);
        cost * share
    }

    /// The prefill operator by operator, all its steps together.
    pub fn explain_prefill(&self, request: &Request) -> Explanation {
        let mut explainer = Explainer::new(self);
        self.each_prefill_step(request, |load| explainer.add(load));
        explainer.finish(self.prefill_one_by_one(request).1)
    }

    /// Steps that [`prefill`](Self::prefill) takes.
    pub fn prefill_steps(&self, request: &Request) -> u64 {
        let tokens = request.new_prompt_tokens().saturating_mul(request.batch);
        self.deployment().max_tokens_per_step().map_or(1, |budget| tokens.div_ceil(budget))
    }

    /// The steps of the prefill one after another, and the share of their time that it takes: less than 1 where they follow one another
    /// through a pipeline.
    fn prefill_one_by_one(&self, request: &Request) -> (StepCost, f64) {
        let (mut cost, mut longest) = (StepCost::default(), Seconds::ZERO);
        self.each_prefill_step(request, |load| {
            let step = self.cost(load);
            longest = longest.max(step.total());
            cost += step;
        });
        let total = cost.total();
        (cost, if longest < total { self.prompt_pipeline_share(longest / total) } else { 1.0 })
    }

    pub(super) fn each_prefill_step(&self, request: &Request, mut step: impl FnMut(&StepLoad)) {
        let (cached, new) = (request.cached_prompt_tokens, request.new_prompt_tokens());
        let tokens = new.saturating_mul(request.batch);
        let Some(budget) = self.deployment().max_tokens_per_step().filter(|&budget| budget < tokens) else {
            let mut load = self.load();
            load.add_prefills(cached, new, true, request.batch as f64);
            return step(&load);
        };
        let (mut waiting, mut done) = (request.batch, 0);
        while waiting > 0 {
            let mut load = self.load();
            let mut room = budget;
            // Whole prompts in one go, the rest as a chunk that the next step continues.
            while room > 0 && waiting > 0 {
                let whole = if done == 0 { (room / new).min(waiting) } else { 0 };
                if whole > 0 {
                    load.add_prefills(cached, new, true, whole as f64);
                    waiting -= whole;
                    room -= whole * new;
                    continue;
                }
                let chunk = room.min(new - done);
                done += chunk;
                room -= chunk;
                load.add_prefill(cached + done - chunk, chunk, done == new);
                if done == new {
                    waiting -= 1;
                    done = 0;
                }
            }
            step(&load);
        }
    }
}
