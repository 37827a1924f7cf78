//! The answer: latencies and rates with speculation, beside those without.

use super::{CycleCost, SpeculationError, SpeculativeModel};
use crate::memory::MemoryPlan;
use crate::request::{Request, RequestError, RequestEstimate};
use crate::step::{Interval, StepModel};
use crate::units::{Seconds, TokensPerSecond};

/// How fast a batch of equal requests is answered with speculative decoding on an otherwise idle deployment.
///
/// Tokens arrive in chunks: [`chunk_interval`](Self::chunk_interval) is the gap that a client sees between two chunks (the ITL of benchmarks that
/// look at arrivals), [`tpot`](Self::tpot) the mean time per token. With speculation the first grows while the second falls.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpeculativeEstimate {
    /// The request.
    pub request: Request,
    /// Tokens per cycle and sequence in the mean, the target's own included.
    pub tokens_per_step: f64,
    /// The mean cycle of the answer, on each device.
    pub cycle: CycleCost,
    /// Time to first token: the prompts go through the target and the drafter.
    pub ttft: Seconds,
    /// Mean gap between two chunks of tokens; `None` for an answer of one token.
    pub chunk_interval: Option<Seconds>,
    /// Mean time per output token after the first.
    pub tpot: Option<Seconds>,
    /// End-to-end latency: `ttft + (output_tokens - 1) * tpot`.
    pub e2e: Seconds,
    /// Decode rate of one request: `1 / tpot`.
    pub tps_per_stream: Option<TokensPerSecond>,
    /// Decode rate of the batch: `batch / tpot`.
    pub tps_total: Option<TokensPerSecond>,
    /// Output tokens of the batch over the end-to-end latency, prefill included.
    pub output_tps_total: TokensPerSecond,
    /// How many times faster the same deployment decodes than without speculation: the quotient of the times per output token; `None`
    /// without decode.
    pub speedup: Option<Speedup>,
    /// The quotient of the end-to-end latencies: less, since prompts gain nothing.
    pub e2e_speedup: Speedup,
    /// Memory of each device at the end of the answer, drafter and proposals included.
    pub memory: MemoryPlan,
    /// The same request without speculation.
    pub plain: RequestEstimate,
}

/// How many times faster, and where nine of ten measurements are expected if the acceptance is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// The 5 % end.
    pub low: f64,
    /// The prediction; below 1 it is slower.
    pub expected: f64,
    /// The 95 % end.
    pub high: f64,
}

impl std::fmt::Display for Speedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2}x ({:.2} to {:.2})", self.expected, self.low, self.high)
    }
}

impl SpeculativeModel {
    /// Answers a batch of equal requests on an otherwise idle deployment.
    ///
    /// # Formula
    /// `tpot = mean cycle over the contexts of the answer / tokens_per_step`. What is accepted beyond the end of the answer (less than a cycle) is
    /// not counted, as in measured lengths, which divide tokens by cycles.
    ///
    /// # Errors
    /// [`SpeculationError::Request`] for zero tokens, a context beyond the model's, or too little memory for target and drafter.
    pub fn request(&self, request: &Request) -> Result<SpeculativeEstimate, SpeculationError> {
        let plain = self.target().request(request)?;
        let memory = self.memory().check(request.batch, request.context_tokens()).map_err(RequestError::from)?;
        let drafting = self.at_work().map_or(Seconds::ZERO, |drafter| drafter.prefill(request).total());
        let (ttft, batch) = (plain.ttft + drafting, request.batch as f64);
        let lengths = request.output_tokens - 1;
        let proposal = self.speculation().proposal();
        let all = self.cycles(proposal, request.batch, request.prompt_tokens, lengths, &plain.decode);
        let decode = all.total() / self.tokens_per_step();
        let tpot = (lengths > 0).then(|| decode / lengths as f64);
        let cycle = if lengths > 0 { all * (1.0 / lengths as f64) } else { CycleCost::default() };
        let e2e = ttft + decode;
        let rate = |tokens: f64, time: Seconds| TokensPerSecond::from_tokens_per_second(tokens / time.as_seconds());
        Ok(SpeculativeEstimate {
            request: *request,
            tokens_per_step: self.tokens_per_step(),
            cycle,
            ttft,
            chunk_interval: (lengths > 0).then(|| cycle.total()),
            tpot,
            e2e,
            tps_per_stream: tpot.map(|tpot| rate(1.0, tpot)),
            tps_total: tpot.map(|tpot| rate(batch, tpot)),
            output_tps_total: rate(batch * request.output_tokens as f64, e2e),
            speedup: tpot.zip(plain.tpot).map(|(with, without)| self.speedup_of(without / with)),
            e2e_speedup: self.speedup_of(plain.e2e / e2e),
            memory,
            plain,
        })
    }

    /// How many times more requests are answered than without speculation while `batch` are in flight, each replaced when it ends: every prompt
    /// interrupts all others, so it counts once for each of them. Memory is not asked for.
    pub fn closed_loop_speedup(&self, request: &Request) -> Speedup {
        let alone = request.with_batch(1);
        let prompts = |model: &StepModel| model.prefill(&alone).total() * request.batch as f64;
        let lengths = request.output_tokens.saturating_sub(1);
        let (proposal, batch, prompt) = (self.speculation().proposal(), request.batch, request.prompt_tokens);
        let steps = self.plain(batch, prompt, lengths);
        let cycles = self.cycles(proposal, batch, prompt, lengths, &steps).total() / self.tokens_per_step();
        let drafting = self.at_work().map_or(Seconds::ZERO, prompts);
        self.speedup_of((prompts(self.target()) + steps.total()) / (prompts(self.target()) + drafting + cycles))
    }

    /// The drafter, if anything is drafted.
    fn at_work(&self) -> Option<&StepModel> {
        self.drafter().filter(|_| self.speculation().proposal().draft_tokens() > 0)
    }

    /// A speed-up with its interval.
    pub(super) fn speedup_of(&self, expected: f64) -> Speedup {
        let drafts = self.speculation().proposal().draft_tokens() > 0;
        let deviation = if drafts { self.log_deviation() } else { 0.0 };
        let interval = Interval::around(Seconds::from_seconds(expected), deviation);
        Speedup { low: interval.low.as_seconds(), expected, high: interval.high.as_seconds() }
    }
}
