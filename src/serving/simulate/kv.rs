//! The accounts of a replica's cache: which blocks are in use, and for how many steps there are enough.

mod growth;
#[cfg(test)]
mod tests;

use super::prefix::{Held, Hit, PrefixCache, Segment, Unit};
use crate::memory::{CacheGroup, CachePool};
use growth::Growth;

/// The cache of one replica.
///
/// Every block is a sequence's own, shared by running requests, waiting to be taken in the queue of the prefix cache, or unused:
/// `own + pinned + evictable + unused = total`. New blocks are taken from the unused ones, then from the front of that queue.
///
/// A sequence [`take`](Self::take)s its blocks when it is admitted, or [`admit`](Self::admit)s with what the prefix cache has of its
/// prompt. When its prompt is computed it [`join`](Self::join)s those that grow by one token in every step; it [`leave`](Self::leave)s them when it is finished or preempted, and [`release`](Self::release)s all blocks of the context
/// that it has by then. Whoever reserves blocks for the whole answer takes them at once and never joins.
///
/// # Validity
/// - The cache believes what it is told: releasing another context than the one that was reached, or leaving without having joined, makes the
///   accounts wrong for good (debug builds stop there). Taking what does not [`fit`](Self::fits) makes [`used`](Self::used) larger than
///   [`total`](Self::total) until as much is released.
/// - Prefixes are shared in layers that keep all tokens. What layers with windows keep, and states, are each sequence's own; a model of
///   windows alone shares nothing.
/// - Blocks of more than 2^20 tokens are counted as blocks of 2^20.
#[derive(Clone, Debug)]
pub(super) struct KvBlocks {
    total: u64,
    own: u64,
    per_sequence: u64,
    tokens_ahead: u64,
    sequences: u64,
    most_sequences: u64,
    growth: Growth,
    prefix: PrefixCache,
}

impl KvBlocks {
    /// An empty cache.
    pub(super) fn new(pool: &CachePool) -> Self {
        let growth = Growth::new(pool);
        Self {
            total: pool.blocks,
            own: 0,
            per_sequence: pool.per_sequence,
            tokens_ahead: pool.tokens_ahead,
            sequences: 0,
            most_sequences: pool.max_sequences.unwrap_or(u64::MAX),
            prefix: PrefixCache::new(unit(growth.groups())),
            growth,
        }
    }

    /// All blocks.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Blocks that running sequences use, shared ones counted once.
    pub(super) const fn used(&self) -> u64 {
        self.own.saturating_add(self.prefix.pinned_blocks())
    }

    /// Blocks that can be taken now, those of finished requests included.
    pub(super) const fn free(&self) -> u64 {
        self.total.saturating_sub(self.used())
    }

    /// Blocks that a sequence of this context takes.
    #[inline]
    pub(super) fn blocks_of(&self, context: u64) -> u64 {
        self.per_sequence.saturating_add(self.growth.blocks_of(self.tokens(context)))
    }

    /// What the prefix cache has of a prompt.
    pub(super) fn matched(&self, segments: &[Segment], prompt_tokens: u64) -> Hit {
        self.prefix.matched(segments, prompt_tokens)
    }

    /// Whether one more sequence of this context fits, of which this was found, if so many blocks have to stay free.
    #[inline]
    pub(super) fn fits(&self, context: u64, hit: &Hit, reserve_blocks: u64) -> bool {
        let own = self.blocks_of(context).saturating_sub(hit.blocks);
        let needed = own.saturating_add(hit.idle_blocks).saturating_add(reserve_blocks);
        needed <= self.free() && self.sequences < self.most_sequences
    }

    /// A sequence of this context takes its blocks.
    #[inline]
    pub(super) fn take(&mut self, context: u64) {
        self.sequences += 1;
        self.allocate(self.blocks_of(context));
    }

    /// A sequence uses what was found of its prompt, and takes the other blocks of this context. The hit must be of now.
    pub(super) fn admit(&mut self, context: u64, segments: &[Segment], hit: &Hit) -> Held {
        self.sequences += 1;
        // First what is used leaves the queue, so that it is not evicted for the rest.
        let held = self.prefix.pin(segments, hit);
        self.allocate(self.blocks_of(context).saturating_sub(held.blocks()));
        held
    }

    /// Blocks that a sequence of one context takes to reach a longer one.
    pub(super) fn blocks_between(&self, from: u64, to: u64) -> u64 {
        self.growth.blocks_of(self.tokens(to)).saturating_sub(self.growth.blocks_of(self.tokens(from)))
    }

    /// A sequence that does not grow in steps takes the blocks of a longer context.
    pub(super) fn extend(&mut self, from: u64, to: u64) {
        self.allocate(self.blocks_between(from, to));
    }

    /// So many tokens of a prompt are computed: whole segments can be found by others from now on.
    pub(super) fn insert(&mut self, segments: &[Segment], held: &mut Held, computed_tokens: u64) {
        let moved = self.prefix.insert(segments, held, computed_tokens);
        debug_assert!(moved <= self.own, "{moved} blocks computed, but only {} taken", self.own);
        self.own = self.own.saturating_sub(moved);
        self.settle();
    }

    /// A sequence that has taken the blocks of this context grows by one token in every step from now on.
    #[inline]
    pub(super) fn join(&mut self, context: u64) {
        self.growth.join(self.tokens(context));
    }

    /// A sequence that has grown to this context grows no longer, and keeps its blocks.
    #[inline]
    pub(super) fn leave(&mut self, context: u64) {
        self.growth.leave(self.tokens(context));
    }

    /// The largest number of steps, at most `most` (and 2^40), through which there are blocks for all sequences that grow.
    #[inline]
    pub(super) fn steps_that_fit(&self, most: u64) -> u64 {
        self.growth.steps_that_fit(most, self.free())
    }

    /// Whether there are blocks for one more step.
    #[inline]
    pub(super) fn has_room_for_a_step(&self) -> bool {
        self.growth.fits_for_sure(1, self.free()) || self.growth.steps_that_fit(1, self.free()) > 0
    }

    /// Blocks that all sequences that grow take in the next step.
    pub(super) fn next_step_blocks(&self) -> u64 {
        self.growth.taken(1)
    }

    /// So many steps pass.
    #[inline]
    pub(super) fn advance(&mut self, steps: u64) {
        let taken = self.growth.advance(steps);
        self.allocate(taken);
    }

    /// A sequence that has this context and does not grow gives its blocks back: those that others can find, and those that nobody can, enter
    /// the queue, the last first.
    #[inline]
    pub(super) fn release(&mut self, context: u64, segments: &[Segment], held: Held) {
        let blocks = self.blocks_of(context).saturating_sub(held.blocks());
        debug_assert!(blocks <= self.own && self.sequences > 0, "{blocks} blocks released of {}", self.own);
        self.own = self.own.saturating_sub(blocks);
        self.sequences = self.sequences.saturating_sub(1);
        self.prefix.add_anonymous(blocks);
        self.prefix.unpin(segments, held);
        self.settle();
    }

    /// Takes so many blocks.
    #[inline]
    fn allocate(&mut self, blocks: u64) {
        self.own = self.own.saturating_add(blocks);
        self.settle();
    }

    /// What is in use leaves no more room for the queue than there is.
    #[inline]
    fn settle(&mut self) {
        let taken = self.used().saturating_add(self.prefix.evictable_blocks());
        if taken > self.total {
            self.prefix.evict(taken - self.total);
        }
    }

    const fn tokens(&self, context: u64) -> u64 {
        context.saturating_add(self.tokens_ahead)
    }
}

/// Blocks of all layers that keep every token, up to the first token where one ends in each of them.
fn unit<'a>(groups: impl Iterator<Item = &'a CacheGroup>) -> Unit {
    let full: Vec<&CacheGroup> = groups.filter(|group| group.most_tokens == u64::MAX && group.count > 0).collect();
    let longest = full.iter().map(|group| group.block_tokens).max().unwrap_or(1);
    // Blocks of different layers divide each other, or nearly so: a long way to a common end means that there is none.
    let common = |tokens: &u64| full.iter().all(|group| tokens.is_multiple_of(group.block_tokens));
    match (1..=MOST_BLOCKS).map(|blocks| blocks * longest).find(common) {
        Some(tokens) => {
            Unit { tokens, blocks: full.iter().map(|group| tokens / group.block_tokens * group.count).sum() }
        }
        None => Unit { tokens: 1, blocks: 0 },
    }
}

/// Blocks of the largest size up to the first common end.
const MOST_BLOCKS: u64 = 1024;
