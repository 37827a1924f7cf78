//! What happens beyond the memory: waves, preemption with recomputation or swapping, or weights and cache that are fetched in every step.

use super::{Request, RequestError};
use crate::deployment::{Offload, Store};
use crate::engine::Exhaustion;
use crate::memory::DoesNotFit;
use crate::step::{CompileError, StepModel};
use crate::units::{Bytes, BytesPerSecond, Seconds};
use std::fmt;

/// What becomes of a batch that needs more memory than there is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Exhausted {
    /// What is missing, and what would help.
    pub reason: Box<DoesNotFit>,
    /// What the engine does when its cache is full.
    pub rule: Exhaustion,
    /// How the engine gets through the batch; `None` if not even one request fits, or if it refuses more than fits.
    pub waves: Option<Waves>,
    /// How slow decoding would be if what is missing were fetched in every step: from main memory, then from the disk, if one was given. Empty
    /// where parts of the model live elsewhere already.
    pub streamed: Vec<Streamed>,
}

/// A batch that runs in parts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Waves {
    /// Requests whose whole contexts fit at once.
    pub at_once: u64,
    /// Requests whose prompts alone fit: so many start.
    pub admitted: u64,
    /// Requests of the first wave that lose their cache on the way, as the others grow.
    pub preempted: u64,
    /// Time that their recomputation, or moving their cache out and in again, takes in all.
    pub preemption: Seconds,
    /// End-to-end latency of the last request when all start together: full waves one after another, and the time of preemptions.
    pub e2e_last: Seconds,
}

/// Decoding while a part of weights and cache is fetched in every step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Streamed {
    /// Where it is fetched from.
    pub from: Store,
    /// Weights that each device does not hold.
    pub weights: Bytes,
    /// Share of the cache that each device does not hold.
    pub cache_share: f64,
    /// Mean time per output token.
    pub tpot: Seconds,
    /// Over that of a device with enough memory.
    pub slowdown: f64,
}

impl StepModel {
    /// What becomes of a batch that does not fit; `None` if it does.
    ///
    /// # Formula
    /// Engines that preempt start as many requests as have room for their prompts, `n_p`, and keep as many as have room for prompt and answer,
    /// `n`: `n_p - n` are preempted, on average half-way through their answers. Recomputing one costs the prefill of prompt and half the answer,
    /// swapping one moves its cache out and in over the host link. The batch takes `ceil(batch / n)` waves.
    ///
    /// Streaming is priced by the step model: what is missing, of the cache first, then of the weights, arrives over the link in every
    /// step. `storage` is the bandwidth of a disk to compare with.
    ///
    /// # Errors
    /// [`RequestError`] for requests that could not be answered on any device.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    ///
    /// // A 70B in 4 bits on a card of 24 GB: what is missing comes over PCIe in every step.
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("rtx-4090-24gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-70b")?, system)
    ///     .with_weights("q4_k_m".parse()?)
    ///     .with_engine(catalog.engine("llama-cpp-cuda-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let exhausted = model.exhausted(&Request::new(1000, 100), None)?.expect("42 GB do not fit into 24 GB");
    /// assert!(exhausted.waves.is_none());
    /// assert!(exhausted.streamed[0].slowdown > 10.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exhausted(
        &self,
        request: &Request,
        storage: Option<BytesPerSecond>,
    ) -> Result<Option<Exhausted>, RequestError> {
        request.check(self.deployment().context_limit(), self.prefill_steps(request))?;
        let Err(reason) = self.fit(request.batch, request.context_tokens()) else { return Ok(None) };
        let rule = self.deployment().engine().memory.exhaustion.as_ref().map(|rule| rule.value).unwrap_or_default();
        let streamed = [Some(Store::Host), storage.map(|bandwidth| Store::Storage { bandwidth })];
        let streamed = streamed.into_iter().flatten().filter_map(|from| self.streamed(request, from).ok().flatten());
        Ok(Some(Exhausted { reason, rule, waves: self.waves(request, rule), streamed: streamed.collect() }))
    }

    fn waves(&self, request: &Request, rule: Exhaustion) -> Option<Waves> {
        if rule == Exhaustion::Refuse {
            return None;
        }
        let at_once = self.memory().max_sequences(request.context_tokens()).unwrap_or(request.batch).min(request.batch);
        let prompts = self.memory().max_sequences(request.prompt_tokens + 1).unwrap_or(request.batch);
        if at_once == 0 {
            return None;
        }
        let admitted = prompts.clamp(at_once, request.batch);
        let preempted = admitted - at_once;
        let half_way = request.prompt_tokens + request.output_tokens / 2;
        let preemption = match rule {
            Exhaustion::Swap => self.swap(half_way).unwrap_or_else(|| self.recomputation(half_way)),
            _ => self.recomputation(half_way),
        } * preempted as f64;
        let wave = |batch: u64| {
            let request = request.with_batch(batch);
            let decode = self.decode_run(batch, request.prompt_tokens, request.output_tokens - 1);
            self.interval(&self.prefill(&request)).expected + self.interval(&decode).expected
        };
        let (full, rest) = (request.batch / at_once, request.batch % at_once);
        let last = if rest > 0 { wave(rest) } else { Seconds::ZERO };
        let e2e_last = wave(at_once) * full as f64 + last + preemption;
        Some(Waves { at_once, admitted, preempted, preemption, e2e_last })
    }

    /// Time to compute the cache of a context again.
    fn recomputation(&self, context: u64) -> Seconds {
        self.interval(&self.prefill(&Request::new(context, 1))).expected
    }

    /// Time to move the cache of a context out to the host and in again; `None` without a link.
    fn swap(&self, context: u64) -> Option<Seconds> {
        let link = self.deployment().system().device().host_link()?;
        let moved = self.memory().kv_per_sequence(context) + self.memory().state_per_sequence();
        Some(moved * 2.0 / link.bandwidth.value)
    }

    /// Decoding with everything that is missing fetched from there.
    fn streamed(&self, request: &Request, from: Store) -> Result<Option<Streamed>, CompileError> {
        // Parts that live elsewhere already would be brought back to the devices.
        if self.deployment().offload() != Offload::None {
            return Ok(None);
        }
        let (batch, steps) = (request.batch, request.output_tokens.max(2) - 1);
        let plan = self.memory_plan(batch, request.context_tokens());
        let missing = plan.short_by();
        let cache_share = if plan.kv_cache > Bytes::ZERO { (missing / plan.kv_cache).min(1.0) } else { 0.0 };
        let weights = missing - plan.kv_cache * cache_share;
        if weights > plan.weights {
            return Ok(None);
        }
        let offload = Offload::Stream { weights, cache_share, from };
        let slow = Self::compile(&self.deployment().clone().with_offload(offload))?;
        let tpot = |model: &Self| {
            model.interval(&model.decode_run(batch, request.prompt_tokens, steps)).expected / steps as f64
        };
        let (tpot, fast) = (tpot(&slow), tpot(self));
        Ok(Some(Streamed { from, weights, cache_share, tpot, slowdown: tpot / fast }))
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.waves, self.rule) {
            (Some(waves), rule) => {
                let how = if rule == Exhaustion::Swap { "swapped out and in" } else { "computed again" };
                let Waves { at_once, admitted, preempted, preemption, e2e_last } = waves;
                write!(
                    f,
                    "{admitted} requests start, {at_once} fit to their end; {preempted} are preempted and {how} ({preemption} in all); \
                     the last one ends after {e2e_last}"
                )?;
            }
            (None, Exhaustion::Refuse) => write!(f, "the engine refuses")?,
            (None, _) => write!(f, "not even one request fits: the engine refuses to start")?,
        }
        for Streamed { from, weights, cache_share, tpot, slowdown } in &self.streamed {
            let source = if *from == Store::Host { "main memory" } else { "disk" };
            let cache = 100.0 * cache_share;
            write!(
                f,
                "\nwith {weights} of weights and {cache:.0} % of the cache fetched from {source} in every step: {tpot} per token, {slowdown:.0} times slower"
            )?;
        }
        Ok(())
    }
}
