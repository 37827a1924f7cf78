//! How a simulated replica serves: the engine's rules, and what its user sets otherwise.

use super::waiting::Order;
use crate::engine::{Exhaustion, PromptPolicy};
use crate::memory::{CachePool, MemoryModel};
use crate::serving::ServingError;
use crate::serving::error::{above_zero, not_negative};
use crate::serving::rules::ServingRules;
use crate::step::StepModel;
use crate::units::{BytesPerSecond, Seconds};
use crate::workload::Lengths;

/// Settings of an engine that a user changes; what is not set is the engine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EngineSettings {
    /// Sequences that run at once at most (vLLM `--max-num-seqs`, llama.cpp `--parallel`); of each rank of data-parallel attention, as the next.
    pub max_sequences: Option<u64>,
    /// Tokens of a step at most (vLLM `--max-num-batched-tokens`).
    pub max_tokens_per_step: Option<u64>,
    /// Blocks of the cache (vLLM `--num-gpu-blocks-override`).
    pub kv_blocks: Option<u64>,
    /// Tokens of a block (vLLM `--block-size`); counted in blocks of this size, of one group of layers.
    pub block_tokens: Option<u64>,
    /// Share of the blocks that stays free when a request is admitted beside others (vLLM V0: 0.01).
    pub watermark: Option<f64>,
    /// In which order requests that wait are admitted.
    pub order: Order,
    /// Whether blocks of earlier prompts, and of requests that lost their place, are found again (vLLM `--enable-prefix-caching`): absent means as
    /// the engine does, and in any case where prompts say what they share.
    pub prefix_caching: Option<bool>,
    /// How preempted caches are treated: absent means as the engine does.
    pub exhaustion: Option<Exhaustion>,
    /// The link over which caches are swapped; absent means that of the device to its host.
    pub swap_bandwidth: Option<BytesPerSecond>,
    /// Steps that an arrival waits before the engine looks for it; absent means the engine's own.
    pub prompt_wait_steps: Option<u64>,
    /// Time of a request outside of steps; absent means the engine's own.
    pub front_end: Option<Seconds>,
}

/// The rules of one replica.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) prompts: PromptPolicy,
    pub(super) budget: u64,
    pub(super) max_sequences: u64,
    pub(super) wait_steps: u64,
    pub(super) reserves_output: bool,
    pub(super) watermark_blocks: u64,
    pub(super) order: Order,
    pub(super) prefix_caching: bool,
    /// Whether preempted caches are moved to the host, and seconds that a byte takes.
    pub(super) swap: bool,
    pub(super) swap_seconds_per_byte: f64,
    pub(super) front_end_s: f64,
    pub(super) pool: CachePool,
    /// Price every step on its own.
    pub(super) stepping: bool,
}

impl Rules {
    /// The rules of a deployment under the settings, for requests of these lengths.
    pub(super) fn new(
        model: &StepModel,
        need: &MemoryModel,
        lengths: &Lengths,
        settings: &EngineSettings,
        shares_prefixes: bool,
    ) -> Result<Self, ServingError> {
        let engine = ServingRules::new(model, lengths)?;
        let memory = &model.deployment().engine().memory;
        let mut pool = need.cache_pool(lengths.longest_total());
        if let Some(tokens) = settings.block_tokens {
            pool = in_blocks_of(&pool, at_least_one("tokens of a block", tokens)?);
        }
        if let Some(blocks) = settings.kv_blocks {
            pool.blocks = at_least_one("blocks of the cache", blocks)?.min(CachePool::UNLIMITED);
        }
        let own = &model.deployment().engine().scheduling.watermark;
        let watermark = settings.watermark.or(own.as_ref().map(|share| share.value)).unwrap_or(0.0);
        if !(0.0..1.0).contains(&watermark) {
            let expected = "a share of the blocks, from 0 to below 1";
            return Err(ServingError::Number { what: "the watermark", value: watermark, expected });
        }
        // Ranks of data-parallel attention have schedulers of their own.
        let ranks = u64::from(model.deployment().data_parallel_attention());
        let max_sequences = match settings.max_sequences {
            Some(most) => at_least_one("sequences that run at once", most)?.saturating_mul(ranks),
            None => engine.max_sequences,
        };
        let budget = match settings.max_tokens_per_step {
            Some(most) => at_least_one("tokens of a step", most)?.saturating_mul(ranks),
            None => engine.max_tokens_per_step.unwrap_or(u64::MAX),
        };
        let exhaustion = settings.exhaustion.or(memory.exhaustion.as_ref().map(|rule| rule.value)).unwrap_or_default();
        let caches = &model.deployment().engine().scheduling.prefix_caching;
        let caches = caches.as_ref().is_some_and(|rule| rule.value);
        // States are not kept block by block: what is found of the keys and values is of no use without them.
        let has_states = pool.per_sequence > 0 || pool.max_sequences.is_some();
        if let Some(bandwidth) = settings.swap_bandwidth {
            above_zero("the bandwidth of swapping in bytes per second", bandwidth.as_bytes_per_second())?;
        }
        let front_end = settings.front_end.unwrap_or(engine.front_end).as_seconds();
        let host = model.deployment().system().device().host_link().map(|link| link.bandwidth.value);
        let bandwidth = settings.swap_bandwidth.or(host).map_or(0.0, BytesPerSecond::as_bytes_per_second);
        let rules = Self {
            prompts: engine.prompts,
            budget,
            max_sequences: max_sequences.min(pool.max_sequences.unwrap_or(u64::MAX)),
            wait_steps: settings.prompt_wait_steps.unwrap_or(engine.prompt_wait_steps.round() as u64),
            reserves_output: engine.reserves_output || engine.prompts == PromptPolicy::Batch,
            watermark_blocks: (watermark * pool.blocks as f64) as u64,
            order: settings.order,
            prefix_caching: settings.prefix_caching.unwrap_or(shares_prefixes || caches && !has_states),
            // Without a link caches are computed again.
            swap: exhaustion == Exhaustion::Swap && bandwidth > 0.0,
            swap_seconds_per_byte: bandwidth.recip(),
            front_end_s: not_negative("the time of a request outside of steps in seconds", front_end)?,
            pool,
            stepping: false,
        };
        rules.check(lengths)?;
        Ok(rules)
    }

    /// Batches that end as a whole neither speculate nor hand their caches over.
    pub(super) fn refuse_static_batches(&self) -> Result<(), ServingError> {
        if self.prompts != PromptPolicy::Batch {
            return Ok(());
        }
        let (what, expected) = ("speculation or pools with static batches", "an engine with continuous batching");
        Err(ServingError::Number { what, value: 1.0, expected })
    }

    /// Whether the longest request has room when it is alone.
    fn check(&self, lengths: &Lengths) -> Result<(), ServingError> {
        let (what, expected) = ("blocks of the cache", "as many as the longest request takes, or more");
        if self.pool.blocks_of(lengths.longest_total()) > self.pool.blocks {
            return Err(ServingError::Number { what, value: self.pool.blocks as f64, expected });
        }
        // A step has a token for every sequence that may run.
        if self.budget < self.max_sequences && self.budget < 2 {
            let expected = "2 or more";
            return Err(ServingError::Number { what: "tokens of a step", value: self.budget as f64, expected });
        }
        Ok(())
    }
}

/// A pool of the same number of tokens in blocks of another size.
fn in_blocks_of(pool: &CachePool, block_tokens: u64) -> CachePool {
    let mut other = pool.clone();
    let tokens = pool.groups.iter().map(|group| group.block_tokens).min().unwrap_or(1);
    other.blocks = pool.blocks.saturating_mul(tokens) / block_tokens;
    other.groups.iter_mut().for_each(|group| group.block_tokens = block_tokens);
    other
}

fn at_least_one(what: &'static str, value: u64) -> Result<u64, ServingError> {
    if value > 0 { Ok(value) } else { Err(ServingError::Number { what, value: 0.0, expected: "1 or more" }) }
}
