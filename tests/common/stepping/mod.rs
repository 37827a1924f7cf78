//! A plain simulation of continuous batching: one step of the engine after another, nothing leapt over, nothing approximated but what is said
//! here. It is the judge of closed forms under load.
//!
//! - A step takes `StepModel::cost(load).total()`. Whatever arrives while it runs joins the next one; an idle engine starts at once.
//! - The step that ends a prompt emits the first token. From then on a sequence holds `prompt + emitted - 1` tokens of the cache: the last
//!   token is only written by the step that follows it.
//! - Waiting requests are admitted first come first served, when a place is free and the whole prompt fits into the cache.
//! - Where the cache does not hold the next token of every decoding sequence, the last admitted one is preempted: it waits in front of all others,
//!   and prompt and emitted tokens are computed again as its prompt. What it gave up is needed by those
//!   that stay, so a step that preempts admits nobody.
//! - Cached prompt tokens are attended to and held, but not computed. They are held once per request: sharing saves time here, not memory.
//!
//! Steps of prompts that follow one another through a pipeline are not overlapped.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

mod arrivals;
mod engine;
mod outcome;

pub use arrivals::{Arrivals, Lengths, Random, Start, poisson};
pub use outcome::{Averages, Gap, Gaps, Outcome, Served, mean, percentile};

use llm_roofline::prelude::*;

/// How an engine fills its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every decoding sequence gets a token in every step, the rest of the budget goes to prompts, cut where it ends (vLLM since V1).
    Mixed {
        /// Tokens of a step; at least as many as there may be sequences.
        budget: u64,
    },
    /// While prompts wait and fit, steps have whole prompts only, and decoding stalls (vLLM V0, SGLang).
    PromptsFirst {
        /// Prompt tokens of a step, cached ones not counted; one prompt may exceed it.
        budget: u64,
    },
    /// Static batching: what waits starts together, and nobody joins before the longest answer has ended. Sequences that have ended are computed
    /// on; memory is reserved for the longest answer; tokens reach their clients when they are emitted.
    WholeBatch,
}

/// An engine that serves.
#[derive(Clone, Copy, Debug)]
pub struct Simulation<'a> {
    /// Prices the steps.
    pub model: &'a StepModel,
    /// Fills the steps.
    pub policy: Policy,
    /// Places.
    pub max_sequences: usize,
    /// Tokens that the cache holds.
    pub cache_tokens: f64,
    /// Time between the arrival of a request and its first chance to be admitted.
    pub front_end: Seconds,
    /// Whether a request is only admitted when prompt and answer fit (TensorRT-LLM): nothing is ever preempted.
    pub reserve_output: bool,
    /// Whether a step is formed when the one before it starts, so that arrivals miss one; an engine that ran empty forms one at once.
    pub async_scheduling: bool,
    /// Whether the gaps between tokens are kept.
    pub record_gaps: bool,
    /// Share of the requests that is left out of statistics, at either end.
    pub cut: f64,
}

impl<'a> Simulation<'a> {
    /// 256 places, endless memory, no other delays.
    pub const fn new(model: &'a StepModel, policy: Policy) -> Self {
        Self {
            model,
            policy,
            max_sequences: 256,
            cache_tokens: f64::INFINITY,
            front_end: Seconds::ZERO,
            reserve_output: false,
            async_scheduling: false,
            record_gaps: true,
            cut: 0.0,
        }
    }

    /// Serves all requests to their ends.
    ///
    /// # Panics
    /// On settings that no engine could run, and on requests that it could never admit.
    pub fn run(&self, arrivals: &Arrivals) -> Outcome {
        assert!(self.max_sequences > 0, "no places");
        assert!((0.0..0.5).contains(&self.cut), "{} of the requests at either end are left out", self.cut);
        match self.policy {
            Policy::Mixed { budget } => {
                assert!(budget >= self.max_sequences as u64, "{budget} tokens for {} sequences", self.max_sequences);
            }
            Policy::PromptsFirst { budget } => assert!(budget > 0, "no tokens"),
            Policy::WholeBatch => {}
        }
        engine::run(self, arrivals.source(self))
    }

    /// Tokens of the cache that a request needs to get to its end.
    fn most_held(&self, lengths: Lengths) -> u64 {
        let reserved = self.reserve_output || self.policy == Policy::WholeBatch;
        lengths.prompt + lengths.output - u64::from(!reserved)
    }

    fn check(&self, lengths: Lengths) {
        let Lengths { prompt, cached, output } = lengths;
        assert!(cached < prompt && output > 0, "{lengths:?}");
        assert!(
            self.most_held(lengths) as f64 <= self.cache_tokens,
            "{lengths:?} never fits into {}",
            self.cache_tokens
        );
    }
}
