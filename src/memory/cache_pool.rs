//! The rules of the cache as numbers, for those who keep accounts of many sequences at once.

use super::MemoryModel;
use super::cache::Cache;
use super::model::PlaceMemory;
use super::pool::largest;
use crate::units::Bytes;

/// The cache of a replica as a pool of blocks, and what a sequence takes of it.
///
/// # Formula
/// A sequence of `c` tokens takes `per_sequence + Σ count * (ceil(min(c + tokens_ahead, most_tokens) / block_tokens) + beyond)` blocks, the
/// sum over [`groups`](Self::groups).
///
/// # Source
/// As the engine keeps accounts ([`CacheAccounting`](crate::engine::CacheAccounting)). vLLM: vllm/v1/core/kv_cache_utils.py,
/// vllm/v1/kv_cache_interface.py (`max_memory_usage_bytes`).
///
/// # Validity
/// - Ranks of data-parallel attention count together. A sequence lives on one of them: what is left on each may be too small for it.
/// - Where engines have no blocks, a block is the largest number of bytes that goes into what a token takes in every kind of layer (a token
///   where there is one kind), times the granularity of contexts; windows that are no multiple of the granularity are rounded up. In a
///   cache for all sequences at once, what windows keep beside them and what is rounded is set aside once.
/// - Tokens ahead are counted up to the model's longest context, too, and beyond it.
///
/// ```
/// use llm_roofline::memory::MemoryModel;
/// use llm_roofline::prelude::*;
///
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
/// let pool = MemoryModel::new(&deployment).cache_pool(8192);
/// assert_eq!((pool.blocks_of(1), pool.blocks_of(16), pool.blocks_of(17), pool.blocks_of(8192)), (1, 1, 2, 512));
/// assert_eq!(pool.blocks, deployment.kv_pool(8192).blocks);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CachePool {
    /// Blocks that there are, those of all ranks of data-parallel attention together; [`UNLIMITED`](Self::UNLIMITED) where memory is no limit.
    pub blocks: u64,
    /// Blocks that a sequence takes whatever its length: recurrent states.
    pub per_sequence: u64,
    /// Blocks that it takes for its tokens.
    pub groups: Vec<CacheGroup>,
    /// Tokens beyond its context that a sequence takes blocks for, with speculative decoding.
    pub tokens_ahead: u64,
    /// Sequences that may be there at most, where states have a pool of their own.
    pub max_sequences: Option<u64>,
}

/// Layers that keep the same tokens of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheGroup {
    /// Blocks that are taken at once.
    pub count: u64,
    /// Tokens of a block, at least 1.
    pub block_tokens: u64,
    /// Tokens that a sequence keeps at most (sliding windows); `u64::MAX` for all.
    pub most_tokens: u64,
    /// Blocks beyond those: a window that slides may begin and end within a block.
    pub beyond: u64,
}

impl CachePool {
    /// Blocks of a pool that memory does not limit.
    pub const UNLIMITED: u64 = u64::MAX / 4;

    /// Blocks that a sequence of this context takes.
    pub fn blocks_of(&self, context: u64) -> u64 {
        let tokens = context.saturating_add(self.tokens_ahead);
        self.groups.iter().fold(self.per_sequence, |sum, group| sum.saturating_add(group.blocks_of(tokens)))
    }

    /// How many sequences of this context there is room for.
    ///
    /// # Validity
    /// Equal to [`MemoryModel::max_sequences`] at the context that the pool was made for, up to one sequence less for each rank of
    /// data-parallel attention there, and up to rounding where an engine has no blocks.
    pub fn sequences_of(&self, context: u64) -> u64 {
        let by_blocks = self.blocks.checked_div(self.blocks_of(context)).unwrap_or(Self::UNLIMITED);
        by_blocks.min(self.max_sequences.unwrap_or(u64::MAX))
    }

    /// The pool of so many ranks.
    fn of_ranks(self, ranks: u64) -> Self {
        let max_sequences = self.max_sequences.map(|most| most.saturating_mul(ranks));
        Self { blocks: self.blocks.saturating_mul(ranks).min(Self::UNLIMITED), max_sequences, ..self }
    }
}

impl CacheGroup {
    pub(super) const fn new(count: u64, block_tokens: u64, most_tokens: u64, beyond: u64) -> Self {
        Self { count, block_tokens: if block_tokens == 0 { 1 } else { block_tokens }, most_tokens, beyond }
    }

    /// Blocks that a sequence takes for so many tokens.
    pub const fn blocks_of(&self, tokens: u64) -> u64 {
        let kept = if tokens < self.most_tokens { tokens } else { self.most_tokens };
        self.count.saturating_mul(kept.div_ceil(self.block_tokens).saturating_add(self.beyond))
    }
}

impl MemoryModel {
    /// The cache that is left when everything else is loaded, as a pool of blocks: that of the place where the fewest sequences of
    /// `longest_context` tokens fit.
    ///
    /// # Validity
    /// Where stages keep different kinds of layers, another one may be tighter at shorter contexts. Activations are those of the longest
    /// context; with one cache for all sequences, those of a cache that is full.
    pub fn cache_pool(&self, longest_context: u64) -> CachePool {
        let pools = self.places.iter().map(|place| place.cache_pool(longest_context));
        let tightest = pools.min_by_key(|pool| pool.sequences_of(longest_context)).unwrap_or_default();
        tightest.of_ranks(self.data_parallel)
    }
}

impl PlaceMemory {
    fn cache_pool(&self, longest_context: u64) -> CachePool {
        if !self.plan(0, longest_context).fits() {
            return CachePool { max_sequences: Some(0), ..CachePool::default() };
        }
        match &self.cache {
            Cache::Paged(paged) => paged.cache_pool_in(self.cache_memory(1, longest_context), self.cache_share),
            Cache::Kept(kept) => {
                // In one cache for all sequences masks reach over all of them: they grow with what is in it.
                let (sequences, context) = match kept.is_unified() {
                    false => (1, longest_context),
                    true if kept.is_plain() => (1, largest(|tokens| self.plan(1, tokens).fits())),
                    true => (largest(|sequences| self.plan(sequences, longest_context).fits()), longest_context),
                };
                kept.cache_pool_in(self.cache_memory(sequences.max(1), context), self.cache_share)
            }
        }
    }
}

/// Whole pieces of this size in so much memory.
pub(super) fn pieces(memory: Bytes, piece: Bytes) -> u64 {
    if piece <= Bytes::ZERO {
        return CachePool::UNLIMITED;
    }
    // A float beyond the largest integer becomes that integer.
    ((memory.max(Bytes::ZERO) / piece).floor() as u64).min(CachePool::UNLIMITED)
}

/// The largest number of bytes of which all of these are multiples; 0 for none.
pub(super) fn common_bytes(sizes: impl Iterator<Item = Bytes>) -> u64 {
    sizes.map(|size| size.as_bytes().ceil() as u64).fold(0, common_divisor)
}

/// The greatest common divisor.
const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::deployment::Deployment;
    use crate::hardware::System;

    const MODELS: [&str; 8] = [
        "llama-3.1-8b",
        "gemma-3-27b",
        "gpt-oss-20b",
        "qwen3-next-80b-a3b",
        "jamba-v0.1",
        "deepseek-v2-lite",
        "mamba2-2.7b",
        "llama-4-scout",
    ];
    const ENGINES: [&str; 9] = [
        "ideal",
        "vllm-2024",
        "vllm-0.9",
        "vllm-2026",
        "sglang-2026",
        "tensorrt-llm-2026",
        "llama-cpp-cuda-2026",
        "exllamav2",
        "transformers",
    ];

    const CONTEXTS: [u64; 4] = [1, 700, 5_000, 100_000];

    fn deployment(model: &str, engine: &str, devices: u32) -> Deployment {
        let catalog = Catalog::embedded();
        let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), devices).unwrap();
        Deployment::new(catalog.model(model).unwrap(), system).with_engine(catalog.engine(engine).unwrap())
    }

    /// The pool and the plan, where both are limited.
    fn compared(engine: &str, model: &str, context: u64) -> Option<(u64, u64)> {
        let memory = MemoryModel::new(&deployment(model, engine, 4));
        let pool = memory.cache_pool(context);
        match memory.max_sequences(context) {
            Some(expected) => Some((pool.sequences_of(context), expected)),
            None => {
                assert!(pool.sequences_of(context) > 1 << 39, "{engine}, {model}, {context}: {pool:?}");
                None
            }
        }
    }

    #[test]
    fn as_many_sequences_fit_as_the_plan_says() {
        let mut exact = 0;
        for engine in ENGINES {
            for (model, context) in MODELS.iter().flat_map(|model| CONTEXTS.map(|context| (model, context))) {
                let Some((found, expected)) = compared(engine, model, context) else { continue };
                exact += u32::from(found == expected);
                // Several kinds of layers in one cache for all sequences: masks grow with them, and windows are rounded together.
                let tolerance = if engine.starts_with("llama-cpp") { 1 + expected / 100 } else { 1 };
                let difference = found.abs_diff(expected);
                assert!(difference <= tolerance, "{engine}, {model}, {context}: {found}, not {expected}");
            }
        }
        assert!(exact >= 280, "{exact} of 288");
    }

    #[test]
    fn ranks_count_together() {
        let one = MemoryModel::new(&deployment("deepseek-v2-lite", "vllm-2026", 1));
        let all = deployment("deepseek-v2-lite", "vllm-2026", 4).with_tensor_parallel(1);
        let all = MemoryModel::new(&all.with_data_parallel_attention(4).with_expert_parallel(4));
        let (one, all) = (one.cache_pool(4096), all.cache_pool(4096));
        assert_eq!(one.groups, all.groups);
        assert_eq!(all.blocks % 4, 0);
        assert!(all.blocks > 4 * one.blocks, "experts are divided: {} and {}", all.blocks, one.blocks);
    }

    #[test]
    fn nothing_fits_beside_weights_that_do_not() {
        let memory = MemoryModel::new(&deployment("llama-3.1-405b", "vllm-2026", 1));
        assert_eq!(memory.cache_pool(4096).sequences_of(1), 0);
    }
}
