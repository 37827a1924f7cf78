//! The cache as a pool: blocks, tokens, how many sequences at once.

use super::cache::Cache;
use super::model::PlaceMemory;
use crate::units::Bytes;
use std::fmt;

/// The key-value cache of each device, as the engine prints it when it starts.
///
/// vLLM: "Available KV cache memory", "# GPU blocks", "GPU KV cache size", "Maximum concurrency for N tokens per request".
///
/// ```
/// use llm_roofline::memory::MemoryModel;
/// use llm_roofline::prelude::*;
///
/// // vllm-project/vllm#10517: an RTX 3090 had 3.81 GiB left for the cache of Llama-3.1-8B, "# GPU blocks: 1952", "1.56x".
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("rtx-3090-24gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2024")?);
/// let pool = MemoryModel::new(&deployment).kv_pool_in(Bytes::from_gib(3.8125), 20_000);
/// assert_eq!((pool.blocks, pool.tokens, format!("{:.2}x", pool.concurrency)), (1952, 31_232, "1.56x".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KvPool {
    /// Memory for the cache on each device.
    pub memory: Bytes,
    /// Whole blocks in it; tokens where the engine has no blocks.
    pub blocks: u64,
    /// Tokens of a block.
    pub block_tokens: u64,
    /// Bytes of a block, zero where the engine has no blocks.
    pub block_bytes: Bytes,
    /// Size in tokens as the engine prints it; for engines without a pool the longest context of a single sequence. Each rank of
    /// data-parallel attention has as many.
    pub tokens: u64,
    /// The context for which `concurrency` holds.
    pub longest_context: u64,
    /// How many sequences of the longest context fit at once.
    pub concurrency: f64,
}

impl fmt::Display for KvPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, blocks, block_tokens, tokens, longest_context, concurrency, .. } = self;
        let gib = memory.as_gib();
        write!(
            f,
            "KV cache of {gib:.2} GiB: {tokens} tokens in {blocks} blocks of {block_tokens}; {concurrency:.2} sequences of {longest_context} tokens"
        )
    }
}

impl KvPool {
    pub(super) fn new(place: &PlaceMemory, memory: Bytes, longest_context: u64) -> Self {
        match &place.cache {
            Cache::Paged(paged) => {
                let blocks = paged.blocks_in(memory);
                Self {
                    memory,
                    blocks,
                    block_tokens: paged.block_tokens,
                    block_bytes: paged.block_bytes,
                    tokens: paged.printed_tokens(blocks, longest_context),
                    longest_context,
                    concurrency: paged.concurrency(blocks, longest_context),
                }
            }
            Cache::Kept(_) => {
                let tokens = largest(|context| place.fits_in(memory, 1, context));
                let concurrency = largest(|sequences| place.fits_in(memory, sequences, longest_context)) as f64;
                Self {
                    memory,
                    blocks: tokens,
                    block_tokens: 1,
                    tokens,
                    longest_context,
                    concurrency,
                    ..Self::default()
                }
            }
        }
    }
}

/// The largest number up to [`LIMIT`] that is possible, where everything smaller is as well; 0 if none is.
pub(super) fn largest(possible: impl Fn(u64) -> bool) -> u64 {
    if possible(LIMIT) {
        return LIMIT;
    }
    let (mut most, mut too_many) = (0, LIMIT);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if possible(middle) { most = middle } else { too_many = middle }
    }
    most
}

/// Contexts and batches beyond this are never asked for.
pub(super) const LIMIT: u64 = 1 << 40;
