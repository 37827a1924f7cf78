//! Blocks that sequences take while all of them grow by one token per step.

use crate::memory::{CacheGroup, CachePool};
use std::collections::BTreeMap;

/// The sequences that grow, without a list of them: only in which steps they will take blocks.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    /// Steps that have passed.
    step: u64,
    groups: Vec<GroupGrowth>,
    /// Blocks that one step takes at most, and the binary logarithm of the shortest block's tokens, rounded down: for a look at a glance.
    most_per_step: u64,
    log_block: u32,
    has_windows: bool,
}

/// The same in one group of layers.
///
/// # Formula
/// A sequence of `c` tokens takes a block in the steps `t` for which `c + t` is a multiple of the tokens `B` of a block. With `n` sequences, of
/// which `s[i]` do so in the steps `i` modulo `B`, the next `k = q B + m` steps take `q n + s[0] + ... + s[m - 1]` blocks, counted from
/// the step that is next.
#[derive(Clone, Debug)]
struct GroupGrowth {
    group: CacheGroup,
    block: Block,
    /// Sequences that still take blocks.
    growing: u64,
    /// Sequences by the step, modulo the tokens of a block, in which they take the next one.
    slots: Vec<u32>,
    /// Steps that have passed, modulo the tokens of a block.
    phase: u64,
    /// Where a window ends: sequences by the step in which they have all that they will keep.
    ends: BTreeMap<u64, u32>,
}

/// Blocks of more tokens are counted as several: no table is longer.
const LONGEST_BLOCK: u64 = 1 << 20;

/// No answer is longer.
const MOST_STEPS: u64 = 1 << 40;

impl Growth {
    pub(super) fn new(pool: &CachePool) -> Self {
        let groups: Vec<_> = pool.groups.iter().map(|group| GroupGrowth::new(*group)).collect();
        let shortest = groups.iter().map(|group| group.group.block_tokens).min().unwrap_or(1);
        let has_windows = groups.iter().any(GroupGrowth::is_window);
        Self { step: 0, groups, most_per_step: 0, log_block: shortest.ilog2(), has_windows }
    }

    /// The groups, with blocks of bounded length.
    pub(super) fn groups(&self) -> impl Iterator<Item = &CacheGroup> {
        self.groups.iter().map(|growing| &growing.group)
    }

    /// Blocks that a sequence takes for so many tokens.
    #[inline]
    pub(super) fn blocks_of(&self, tokens: u64) -> u64 {
        self.groups.iter().fold(0, |sum, growing| sum.saturating_add(growing.blocks_of(tokens)))
    }

    /// A sequence of so many tokens grows from now on.
    #[inline]
    pub(super) fn join(&mut self, tokens: u64) {
        for group in &mut self.groups {
            group.join(self.step, tokens);
        }
        self.count_most();
    }

    /// A sequence that has grown to so many tokens grows no longer.
    #[inline]
    pub(super) fn leave(&mut self, tokens: u64) {
        for group in &mut self.groups {
            group.leave(self.step, tokens);
        }
        self.count_most();
    }

    /// The largest number of steps, at most `most` (and 2^40), in which no more than `free` blocks are taken.
    pub(super) fn steps_that_fit(&self, most: u64, free: u64) -> u64 {
        let most = most.min(MOST_STEPS);
        if self.fits_for_sure(most, free) || self.taken(most) <= free {
            return most;
        }
        // Here it is tight, so that the number is small.
        let (mut fits, mut width) = (0, 1);
        while width < most - fits && self.taken(fits + width) <= free {
            fits += width;
            width = width.saturating_mul(2);
        }
        let mut too_many = most.min(fits.saturating_add(width));
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if self.taken(middle) <= free { fits = middle } else { too_many = middle }
        }
        fits
    }

    /// Whether so many steps take no more than `free` blocks, seen at a glance.
    #[inline]
    pub(super) const fn fits_for_sure(&self, steps: u64, free: u64) -> bool {
        self.most_per_step.saturating_mul((steps >> self.log_block) + 1) <= free
    }

    #[inline]
    fn count_most(&mut self) {
        let most = |group: &GroupGrowth| group.group.count.saturating_mul(group.growing);
        self.most_per_step = self.groups.iter().fold(0, |sum: u64, group| sum.saturating_add(most(group)));
    }

    /// So many steps pass; returns the blocks that were taken in them.
    #[inline]
    pub(super) fn advance(&mut self, steps: u64) -> u64 {
        let mut taken: u64 = 0;
        for group in &mut self.groups {
            taken = taken.saturating_add(group.advance(self.step, steps));
        }
        self.step = self.step.saturating_add(steps);
        if self.has_windows {
            self.count_most();
        }
        taken
    }

    /// Blocks that the next steps take.
    pub(super) fn taken(&self, steps: u64) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.taken(self.step, steps)))
    }
}

impl GroupGrowth {
    fn new(group: CacheGroup) -> Self {
        let group = CacheGroup { block_tokens: group.block_tokens.clamp(1, LONGEST_BLOCK), ..group };
        let slots = vec![0; group.block_tokens as usize];
        Self { group, block: Block::new(group.block_tokens), growing: 0, slots, phase: 0, ends: BTreeMap::new() }
    }

    fn join(&mut self, step: u64, tokens: u64) {
        if tokens >= self.group.most_tokens {
            return;
        }
        let slot = self.slot(tokens);
        self.slots[slot] += 1;
        self.growing += 1;
        if self.is_window() {
            *self.ends.entry(self.end(step, tokens)).or_default() += 1;
        }
    }

    fn leave(&mut self, step: u64, tokens: u64) {
        if tokens >= self.group.most_tokens {
            return;
        }
        let slot = self.slot(tokens);
        debug_assert!(self.slots[slot] > 0, "no sequence of {tokens} tokens grows");
        self.slots[slot] = self.slots[slot].saturating_sub(1);
        self.growing = self.growing.saturating_sub(1);
        if self.is_window() {
            let end = self.end(step, tokens);
            if let Some(sequences) = self.ends.get_mut(&end) {
                *sequences -= 1;
                if *sequences == 0 {
                    self.ends.remove(&end);
                }
            }
        }
    }

    /// [`CacheGroup::blocks_of`], faster.
    #[inline]
    fn blocks_of(&self, tokens: u64) -> u64 {
        let CacheGroup { count, block_tokens, most_tokens, beyond } = self.group;
        let blocks = self.block.whole(tokens.min(most_tokens).saturating_add(block_tokens - 1));
        count.saturating_mul(blocks.saturating_add(beyond))
    }

    const fn is_window(&self) -> bool {
        self.group.most_tokens < u64::MAX
    }

    /// The step in which a sequence has all tokens that it will keep.
    const fn end(&self, step: u64, tokens: u64) -> u64 {
        step.saturating_add(self.group.most_tokens - tokens)
    }

    /// Where sequences of so many tokens are counted.
    fn slot(&self, tokens: u64) -> usize {
        let block = self.group.block_tokens;
        let slot = self.phase + block - self.block.rest(tokens);
        (if slot >= block { slot - block } else { slot }) as usize
    }

    /// Blocks that the next steps take.
    fn taken(&self, step: u64, steps: u64) -> u64 {
        let (rounds, rest) = (self.block.whole(steps), self.block.rest(steps));
        let all = self.growing.saturating_mul(rounds).saturating_add(self.counted(rest));
        let last = step.saturating_add(steps);
        let ended = self.ends.range(..last).fold(0, |sum: u64, (end, sequences)| {
            sum.saturating_add(self.taken_after(last - end).saturating_mul(u64::from(*sequences)))
        });
        self.group.count.saturating_mul(all.saturating_sub(ended))
    }

    /// Sequences that take a block in the next steps, fewer than a block has tokens.
    fn counted(&self, steps: u64) -> u64 {
        let (from, steps) = (self.phase as usize, steps as usize);
        let sum = |slots: &[u32]| slots.iter().map(|count| u64::from(*count)).sum::<u64>();
        match (from + steps).checked_sub(self.slots.len()) {
            Some(beyond) => sum(&self.slots[from..]) + sum(&self.slots[..beyond]),
            None => sum(&self.slots[from..from + steps]),
        }
    }

    /// Blocks that a sequence would take in so many steps after its window is full, and does not.
    const fn taken_after(&self, steps: u64) -> u64 {
        steps.saturating_sub(self.room_at_end()).div_ceil(self.group.block_tokens)
    }

    /// Tokens that the last block has room for when the window is full.
    const fn room_at_end(&self) -> u64 {
        let block = self.group.block_tokens;
        (block - self.group.most_tokens % block) % block
    }

    fn advance(&mut self, step: u64, steps: u64) -> u64 {
        if self.growing == 0 {
            self.phase = self.block.rest(self.phase + self.block.rest(steps));
            return 0;
        }
        let taken = self.taken(step, steps);
        let block = self.group.block_tokens;
        self.phase += self.block.rest(steps);
        self.phase -= if self.phase >= block { block } else { 0 };
        let now = step.saturating_add(steps);
        while let Some(entry) = self.ends.first_entry().filter(|entry| *entry.key() <= now) {
            let (end, sequences) = entry.remove_entry();
            self.end_of(now - end, sequences);
        }
        taken
    }

    /// Sequences whose windows were full so many steps ago take no more blocks.
    fn end_of(&mut self, steps_ago: u64, sequences: u32) {
        let slot = self.slot(self.group.most_tokens.saturating_add(steps_ago));
        self.slots[slot] = self.slots[slot].saturating_sub(sequences);
        self.growing = self.growing.saturating_sub(u64::from(sequences));
    }
}

/// The tokens of a block, as what is divided by: a shift where it is a power of two, as it nearly always is.
#[derive(Clone, Copy, Debug)]
struct Block {
    tokens: u64,
    log: u32,
}

impl Block {
    const fn new(tokens: u64) -> Self {
        Self { tokens, log: if tokens.is_power_of_two() { tokens.ilog2() } else { u64::BITS } }
    }

    #[inline]
    const fn whole(self, tokens: u64) -> u64 {
        if self.log < u64::BITS { tokens >> self.log } else { tokens / self.tokens }
    }

    #[inline]
    const fn rest(self, tokens: u64) -> u64 {
        if self.log < u64::BITS { tokens & (self.tokens - 1) } else { tokens % self.tokens }
    }
}
