//! What a prefix cache would find of a trace's prompts.

use super::Trace;
use std::collections::{BTreeMap, HashMap};

/// How much of the prompts of a trace a prefix cache finds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PrefixReuse {
    /// Blocks in all prompts.
    pub blocks: u64,
    /// Of these, blocks at the start of a prompt that are in the cache, one after the other.
    pub reused_blocks: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens in the blocks that are reused; at least one token per prompt is computed.
    pub reused_tokens: u64,
}

impl PrefixReuse {
    /// Share of the blocks that is reused; 0 where the trace has no blocks.
    pub fn block_hit_rate(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { self.reused_blocks as f64 / self.blocks as f64 }
    }

    /// Share of the prompt tokens that is reused.
    pub fn token_hit_rate(&self) -> f64 {
        if self.prompt_tokens == 0 { 0.0 } else { self.reused_tokens as f64 / self.prompt_tokens as f64 }
    }
}

impl Trace {
    /// Tokens that a block hash stands for: 512 unless [`with_block_tokens`](Self::with_block_tokens) said otherwise.
    pub fn block_tokens(&self) -> u64 {
        self.block_tokens
    }

    /// The same trace with hashes that stand for so many tokens; 0 counts as 1.
    #[must_use]
    pub fn with_block_tokens(self, block_tokens: u64) -> Self {
        Self { block_tokens: block_tokens.max(1), ..self }
    }

    /// What a cache of so many blocks finds, if the block that was used the longest time ago makes room (the end of a prompt before its start);
    /// without a number the cache never forgets. Answers are not cached: the hashes cover prompts only, a later turn brings the answer's blocks
    /// as its own.
    pub fn prefix_reuse(&self, capacity_blocks: Option<u64>) -> PrefixReuse {
        let mut cache = Cache::new(capacity_blocks);
        let mut reuse = PrefixReuse::default();
        for request in self.requests() {
            let hits = cache.serve(&request.block_hashes);
            reuse.blocks += request.block_hashes.len() as u64;
            reuse.reused_blocks += hits;
            reuse.prompt_tokens += request.prompt_tokens;
            reuse.reused_tokens += reused_tokens(hits, self.block_tokens, request.prompt_tokens);
        }
        reuse
    }

    /// The same trace with the cached tokens of each request as such a cache would find them.
    #[must_use]
    pub fn with_prefix_cache(&self, capacity_blocks: Option<u64>) -> Self {
        let mut cache = Cache::new(capacity_blocks);
        let mut trace = self.clone();
        for request in &mut trace.requests {
            let hits = cache.serve(&request.block_hashes);
            request.cached_tokens = reused_tokens(hits, self.block_tokens, request.prompt_tokens);
        }
        trace
    }
}

fn reused_tokens(blocks: u64, block_tokens: u64, prompt_tokens: u64) -> u64 {
    blocks.saturating_mul(block_tokens).min(prompt_tokens.saturating_sub(1))
}

/// Blocks, each with the time of its last use.
struct Cache {
    capacity: Option<usize>,
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    now: u64,
}

impl Cache {
    fn new(capacity: Option<u64>) -> Self {
        let capacity = capacity.map(|blocks| usize::try_from(blocks).unwrap_or(usize::MAX));
        Self { capacity, used: HashMap::new(), by_use: BTreeMap::new(), now: 0 }
    }

    /// How many blocks at the start of a prompt are there; then all of them are, as far as they fit.
    fn serve(&mut self, blocks: &[u64]) -> u64 {
        let hits = blocks.iter().take_while(|block| self.used.contains_key(block)).count();
        // The start of the prompt is used last, so that it stays longest.
        for &block in blocks.iter().rev() {
            self.now += 1;
            if let Some(before) = self.used.insert(block, self.now) {
                self.by_use.remove(&before);
            }
            if self.capacity.is_some() {
                self.by_use.insert(self.now, block);
            }
            while self.capacity.is_some_and(|most| self.used.len() > most) {
                let Some((_, oldest)) = self.by_use.pop_first() else { break };
                self.used.remove(&oldest);
            }
        }
        hits as u64
    }
}
