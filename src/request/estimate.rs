//! The answer: latencies, rates, utilisations, and where the time goes.

use super::{Request, RequestError};
use crate::memory::{DoesNotFit, MemoryPlan};
use crate::roofline::{self, Bound};
use crate::step::{Explanation, Interval, StepCost, StepModel};
use crate::units::{Bytes, Seconds, TokensPerSecond};

/// How fast a batch of equal requests is answered on an otherwise idle deployment.
///
/// Latencies hold for each request of the batch; rates say in their name whether they are per stream or in total.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RequestEstimate {
    /// The request.
    pub request: Request,
    /// Time to first token: all prompts of the batch are processed, every request has its first token.
    pub ttft: Seconds,
    /// Gap between the first and the second token; `None` for an answer of one token.
    pub itl_first: Option<Seconds>,
    /// Gap before the last token.
    pub itl_last: Option<Seconds>,
    /// Mean time per output token after the first.
    pub tpot: Option<Seconds>,
    /// End-to-end latency: `ttft + (output_tokens - 1) * tpot`.
    pub e2e: Seconds,
    /// Where nine of ten measurements of the time to first token are expected.
    pub ttft_interval: Interval,
    /// The same for the time per output token.
    pub tpot_interval: Option<Interval>,
    /// The same for the end-to-end latency.
    pub e2e_interval: Interval,
    /// Decode rate of one request: `1 / tpot`.
    pub tps_per_stream: Option<TokensPerSecond>,
    /// Decode rate of the batch: `batch / tpot`.
    pub tps_total: Option<TokensPerSecond>,
    /// Output tokens of the batch over the end-to-end latency, prefill included.
    pub output_tps_total: TokensPerSecond,
    /// Prompt tokens of the batch, cached ones not counted, over the time to first token.
    pub prefill_tps_total: TokensPerSecond,
    /// Cost of the prefill, on each device.
    pub prefill: StepCost,
    /// Cost of all decode steps together, on each device.
    pub decode: StepCost,
    /// Memory of each device at the end of the answer.
    pub memory: MemoryPlan,
    /// Model FLOP/s utilisation of the prefill: `2 * parameters * tokens / (ttft * peak of the devices)`, attention not counted, the output head
    /// only for the last token of each prompt.
    pub mfu: f64,
    /// Model bandwidth utilisation of the decode: bytes that the steps must read over `tpot * bandwidth`; `None` without decode.
    pub mbu: Option<f64>,
}

impl RequestEstimate {
    /// What limits the time to first token.
    pub fn prefill_bound(&self) -> Bound {
        self.prefill.bound()
    }

    /// What limits the time per output token; for an answer of one token, that of the prefill.
    pub fn decode_bound(&self) -> Bound {
        if self.request.output_tokens > 1 { self.decode.bound() } else { self.prefill.bound() }
    }

    /// Bytes of the key-value cache (and recurrent states) of the batch on each device, at the end of the answer.
    pub fn kv_cache_bytes_per_device(&self) -> Bytes {
        self.memory.kv_cache + self.memory.state
    }
}

impl StepModel {
    /// Answers a batch of equal requests on an otherwise idle deployment.
    ///
    /// # Formula
    /// `ttft` is the cost of the prefill steps, `tpot` the mean of `output_tokens - 1` decode steps over growing contexts
    /// (summed in closed form), `e2e = ttft + (output_tokens - 1) * tpot`.
    ///
    /// # Errors
    /// [`RequestError`] for zero tokens, a context beyond the model's, or too little memory: checked before any timing.
    pub fn request(&self, request: &Request) -> Result<RequestEstimate, RequestError> {
        self.request_if(request, |sequences, context| self.fit(sequences, context))
    }

    /// The same, but nothing is tried to make it fit if it does not: for questions in large numbers.
    pub(crate) fn request_without_suggestions(&self, request: &Request) -> Result<RequestEstimate, RequestError> {
        self.request_if(request, |sequences, context| self.memory().check(sequences, context))
    }

    fn request_if(
        &self,
        request: &Request,
        fit: impl FnOnce(u64, u64) -> Result<MemoryPlan, Box<DoesNotFit>>,
    ) -> Result<RequestEstimate, RequestError> {
        let deployment = self.deployment();
        request.check(deployment.context_limit(), self.prefill_steps(request))?;
        let memory = fit(request.batch, request.context_tokens())?;
        let (batch, steps) = (request.batch as f64, request.output_tokens - 1);
        let prefill = self.prefill(request);
        let decode = self.decode_run(request.batch, request.prompt_tokens, steps);
        let (ttft_interval, decode_interval) = (self.interval(&prefill), self.interval(&decode));
        let (ttft, decode_time) = (ttft_interval.expected, decode_interval.expected);
        let tpot = (steps > 0).then(|| decode_time / steps as f64);
        let e2e = ttft + decode_time;
        let new_tokens = batch * request.new_prompt_tokens() as f64;
        let rate = |tokens: f64, time: Seconds| TokensPerSecond::from_tokens_per_second(tokens / time.as_seconds());
        Ok(RequestEstimate {
            request: *request,
            ttft,
            itl_first: (steps > 0).then(|| self.itl(request, 2)),
            itl_last: (steps > 0).then(|| self.itl(request, request.output_tokens)),
            tpot,
            e2e,
            ttft_interval,
            tpot_interval: (steps > 0).then(|| decode_interval / steps as f64),
            e2e_interval: ttft_interval + decode_interval,
            tps_per_stream: tpot.map(|tpot| rate(1.0, tpot)),
            tps_total: tpot.map(|tpot| rate(batch, tpot)),
            output_tps_total: rate(batch * request.output_tokens as f64, e2e),
            prefill_tps_total: rate(new_tokens, ttft),
            mfu: self.mfu(new_tokens, batch, ttft),
            mbu: tpot.map(|_| self.mbu(&decode)),
            prefill,
            decode,
            memory,
        })
    }

    /// Gap before the output token at `position` (from 2, since the first comes out of the prefill).
    pub fn itl(&self, request: &Request, position: u64) -> Seconds {
        self.decode_step(request.batch, request.cached_before(position)).total()
    }

    /// The decode step before the output token at `position`, operator by operator.
    pub fn explain_decode(&self, request: &Request, position: u64) -> Explanation {
        let mut load = self.load();
        load.add_decode(request.cached_before(position), 1, request.batch as f64);
        self.explain(&load)
    }

    fn mfu(&self, tokens: f64, emitting: f64, time: Seconds) -> f64 {
        let peak = self.linear_peak() * f64::from(self.deployment().devices_per_replica());
        roofline::mfu(self.model_flops(tokens, emitting), time, peak)
    }

    fn mbu(&self, decode: &StepCost) -> f64 {
        roofline::mbu(decode.bytes(), decode.total(), self.deployment().system().device().bandwidth())
    }
}
