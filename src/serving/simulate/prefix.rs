//! What stays of finished requests: a cache of prefixes.
//!
//! # Source
//! vLLM, vllm/v1/core/kv_cache_manager.py (`get_computed_blocks`, `allocate_slots`) and vllm/v1/core/block_pool.py: blocks that nobody uses
//! wait in one queue, new blocks are taken from its front, and a finished request puts its last block there first. Here a queue of runs
//! of blocks does the same.
//!
//! # Validity
//! A block that was computed twice is given back at once, where vLLM keeps both until the requests are finished.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A piece of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Stands for the whole prompt up to the end of this piece: equal hashes promise equal lengths, too.
    pub(super) hash: u64,
    /// Tokens of the piece.
    pub(super) tokens: u64,
}

/// What the cache has of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hit {
    /// Leading segments that are there; of the last one perhaps only a part.
    pub(super) segments: usize,
    /// Tokens that need not be computed: whole blocks, and less than the prompt.
    pub(super) tokens: u64,
    /// Blocks that these are in.
    pub(super) blocks: u64,
    /// Blocks of these segments that nobody uses now: who uses them takes them away from the free ones.
    pub(super) idle_blocks: u64,
    /// The prompt that was looked for.
    prompt_tokens: u64,
}

/// The leading segments of its prompt that a request uses in the cache. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    segments: usize,
    /// Tokens up to the end of these segments.
    tokens: u64,
    /// Blocks that the request has there instead of its own.
    blocks: u64,
}

impl Held {
    /// Blocks that the request has in the cache instead of its own.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// The smallest piece that is cached: blocks that end at the same token in all groups of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Its tokens, at least 1.
    pub(super) tokens: u64,
    /// Its blocks; 0 if nothing can be cached.
    pub(super) blocks: u64,
}

impl Unit {
    /// Blocks of whole units in the first tokens of a prompt.
    const fn blocks_in(self, tokens: u64) -> u64 {
        (tokens / self.tokens).saturating_mul(self.blocks)
    }
}

/// Segments that running or finished requests have computed, and in which order their blocks will be taken.
///
/// Blocks that no hash covers (ends of prompts, answers) take their turn in the queue with the others. In front of the first segment there
/// are none: those are as good as never used, and counted nowhere.
#[derive(Clone, Debug)]
pub(super) struct PrefixCache {
    unit: Unit,
    places: HashMap<u64, u32, BuildHasherDefault<SegmentHasher>>,
    entries: Vec<Entry>,
    /// First of the entries without use, linked by `next`.
    vacant: u32,
    /// Ends of the queue.
    oldest: u32,
    newest: u32,
    pinned: u64,
    evictable: u64,
    queried_tokens: u64,
    hit_tokens: u64,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    /// Blocks that are still there, from the start of the segment on.
    blocks: u64,
    /// Requests that use it, or [`ANONYMOUS`].
    holders: u32,
    previous: u32,
    next: u32,
}

/// Blocks that nobody can find again.
const ANONYMOUS: u32 = u32::MAX;
/// No entry.
const NONE: u32 = u32::MAX;

impl PrefixCache {
    /// An empty cache.
    pub(super) fn new(unit: Unit) -> Self {
        Self {
            unit: Unit { tokens: unit.tokens.max(1), ..unit },
            places: HashMap::default(),
            entries: Vec::new(),
            vacant: NONE,
            oldest: NONE,
            newest: NONE,
            pinned: 0,
            evictable: 0,
            queried_tokens: 0,
            hit_tokens: 0,
        }
    }

    /// Blocks that running requests use, each once.
    pub(super) const fn pinned_blocks(&self) -> u64 {
        self.pinned
    }

    /// Blocks in the queue, from the first segment on.
    pub(super) const fn evictable_blocks(&self) -> u64 {
        self.evictable
    }

    /// The longest run of leading segments that are there, of which at least the last token of the prompt is computed again.
    pub(super) fn matched(&self, segments: &[Segment], prompt_tokens: u64) -> Hit {
        let mut hit = Hit { prompt_tokens, ..Hit::default() };
        let most = self.unit.blocks_in(prompt_tokens.saturating_sub(1));
        let mut tokens = 0;
        for (index, segment) in segments.iter().enumerate() {
            let (start, end) = self.span(&mut tokens, segment);
            if start == end {
                continue;
            }
            let Some(entry) = self.places.get(&segment.hash).map(|place| &self.entries[*place as usize]) else { break };
            // What comes after a segment that has lost its end cannot be used.
            let there = entry.blocks.min(end - start).min(most.saturating_sub(start));
            let usable = there - there % self.unit.blocks;
            if usable == 0 {
                break;
            }
            hit.segments = index + 1;
            hit.blocks = start + usable;
            hit.idle_blocks += if entry.holders == 0 { entry.blocks } else { 0 };
            if usable < end - start {
                break;
            }
        }
        hit.tokens = hit.blocks.checked_div(self.unit.blocks).unwrap_or(0) * self.unit.tokens;
        hit
    }

    /// Lets a request use what was found, and counts it.
    ///
    /// The hit must be of these segments and of the cache as it is now; only what is still there is held.
    pub(super) fn pin(&mut self, segments: &[Segment], hit: &Hit) -> Held {
        self.queried_tokens += hit.prompt_tokens;
        self.hit_tokens += hit.tokens;
        let mut held = Held::default();
        for segment in segments.iter().take(hit.segments) {
            let mut tokens = held.tokens;
            let (start, end) = self.span(&mut tokens, segment);
            if start < end {
                let Some(&place) = self.places.get(&segment.hash) else { break };
                self.hold(place);
            }
            held = Held { segments: held.segments + 1, tokens, blocks: end.min(hit.blocks) };
        }
        held
    }

    /// Puts the segments into the cache that end within the first `computed` tokens of the prompt, and returns how many of the request's own
    /// blocks are now the cache's: those that were missing are used by it from now on, the others were computed twice and are given back.
    pub(super) fn insert(&mut self, segments: &[Segment], held: &mut Held, computed: u64) -> u64 {
        let before = held.blocks;
        let mut duplicates = self.complete(segments, held, computed);
        while let Some(segment) = segments.get(held.segments) {
            let mut tokens = held.tokens;
            let (start, end) = self.span(&mut tokens, segment);
            if tokens > computed {
                break;
            }
            if start < end {
                let place = self.hold_or_add(segment.hash);
                duplicates += (end - start) - self.fill(place, end - start);
            }
            *held = Held { segments: held.segments + 1, tokens, blocks: end };
        }
        self.add_anonymous(duplicates);
        held.blocks - before
    }

    /// Completes the last segment that a request holds, of which it found only a part. Returns the blocks that others had added before.
    fn complete(&mut self, segments: &[Segment], held: &mut Held, computed: u64) -> u64 {
        let end = self.unit.blocks_in(held.tokens);
        let Some(last) = held.segments.checked_sub(1).and_then(|last| segments.get(last)) else { return 0 };
        if held.blocks >= end || held.tokens > computed {
            return 0;
        }
        let start = self.unit.blocks_in(held.tokens.saturating_sub(last.tokens));
        let Some(&place) = self.places.get(&last.hash) else { return 0 };
        let own = end - held.blocks;
        held.blocks = end;
        own - self.fill(place, end - start).min(own)
    }

    /// A request is finished or preempted: the end of its prompt enters the queue first.
    pub(super) fn unpin(&mut self, segments: &[Segment], held: Held) {
        let mut tokens = held.tokens;
        for segment in segments.iter().take(held.segments).rev() {
            let end = self.unit.blocks_in(tokens);
            tokens = tokens.saturating_sub(segment.tokens);
            if self.unit.blocks_in(tokens) < end
                && let Some(&place) = self.places.get(&segment.hash)
            {
                self.let_go(place);
            }
        }
    }

    /// Blocks that no hash covers enter the queue.
    pub(super) fn add_anonymous(&mut self, blocks: u64) {
        if blocks == 0 || self.newest == NONE {
            return;
        }
        self.evictable += blocks;
        let newest = &mut self.entries[self.newest as usize];
        if newest.holders == ANONYMOUS {
            newest.blocks += blocks;
        } else {
            let place = self.new_entry(Entry { hash: 0, blocks, holders: ANONYMOUS, previous: NONE, next: NONE });
            self.push(place);
        }
    }

    /// Takes so many blocks from the front of the queue, or all; a segment loses its end first.
    pub(super) fn evict(&mut self, blocks: u64) {
        let mut left = blocks;
        while left > 0 && self.oldest != NONE {
            let entry = &mut self.entries[self.oldest as usize];
            let taken = left.min(entry.blocks);
            entry.blocks -= taken;
            self.evictable -= taken;
            left -= taken;
            if entry.blocks == 0 {
                self.remove(self.oldest);
            }
        }
        self.forget_anonymous_front();
    }

    /// Blocks of the prompt up to the start and to the end of a segment that begins after so many tokens, which become those after it.
    fn span(&self, tokens: &mut u64, segment: &Segment) -> (u64, u64) {
        let start = self.unit.blocks_in(*tokens);
        *tokens = tokens.saturating_add(segment.tokens);
        (start, self.unit.blocks_in(*tokens))
    }

    /// One more request uses a segment; one that was not there has no blocks yet.
    fn hold_or_add(&mut self, hash: u64) -> u32 {
        if let Some(&place) = self.places.get(&hash) {
            self.hold(place);
            return place;
        }
        let place = self.new_entry(Entry { hash, blocks: 0, holders: 1, previous: NONE, next: NONE });
        self.places.insert(hash, place);
        place
    }

    /// Makes a segment in use as long as this; returns by how many blocks.
    fn fill(&mut self, place: u32, blocks: u64) -> u64 {
        let entry = &mut self.entries[place as usize];
        let missing = blocks.saturating_sub(entry.blocks);
        entry.blocks += missing;
        self.pinned += missing;
        missing
    }

    /// One more request uses a segment.
    fn hold(&mut self, place: u32) {
        let Entry { blocks, holders, .. } = self.entries[place as usize];
        if holders == 0 {
            self.unlink(place);
            self.evictable -= blocks;
            self.pinned += blocks;
            self.forget_anonymous_front();
        }
        self.entries[place as usize].holders = holders + 1;
    }

    /// One request less uses a segment.
    fn let_go(&mut self, place: u32) {
        let entry = &mut self.entries[place as usize];
        if entry.holders == 0 {
            return;
        }
        entry.holders -= 1;
        if entry.holders == 0 {
            self.pinned -= entry.blocks;
            self.evictable += entry.blocks;
            self.push(place);
        }
    }

    /// Blocks that nobody can find again are as good as never used once they are next.
    fn forget_anonymous_front(&mut self) {
        while let Some(front) = self.entries.get(self.oldest as usize).filter(|front| front.holders == ANONYMOUS) {
            self.evictable -= front.blocks;
            self.remove(self.oldest);
        }
    }

    fn new_entry(&mut self, entry: Entry) -> u32 {
        let place = self.vacant;
        if let Some(vacant) = self.entries.get_mut(place as usize) {
            self.vacant = vacant.next;
            *vacant = entry;
            return place;
        }
        self.entries.push(entry);
        (self.entries.len() - 1) as u32
    }

    /// Takes an entry out of the queue for good.
    fn remove(&mut self, place: u32) {
        self.unlink(place);
        let entry = &mut self.entries[place as usize];
        if entry.holders != ANONYMOUS {
            self.places.remove(&entry.hash);
        }
        entry.next = self.vacant;
        self.vacant = place;
    }

    /// Puts an entry at the end of the queue.
    fn push(&mut self, place: u32) {
        let before = std::mem::replace(&mut self.newest, place);
        self.entries[place as usize].previous = before;
        self.entries[place as usize].next = NONE;
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.next = place,
            None => self.oldest = place,
        }
    }

    /// Takes an entry out of the queue; what nobody can find again on both sides of it becomes one.
    fn unlink(&mut self, place: u32) {
        let Entry { previous, next, .. } = self.entries[place as usize];
        self.link(previous, next);
        let anonymous = |place: u32| self.entries.get(place as usize).filter(|entry| entry.holders == ANONYMOUS);
        if let (Some(_), Some(&after)) = (anonymous(previous), anonymous(next)) {
            self.entries[previous as usize].blocks += after.blocks;
            self.link(previous, after.next);
            self.entries[next as usize].next = self.vacant;
            self.vacant = next;
        }
    }

    /// Makes two entries neighbours, or one of them an end of the queue.
    fn link(&mut self, previous: u32, next: u32) {
        match self.entries.get_mut(previous as usize) {
            Some(entry) => entry.next = next,
            None => self.oldest = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.previous = previous,
            None => self.newest = previous,
        }
    }
}

/// Hashes of prompts, and the numbers that traces have for them, are spread by one multiplication (Knuth, The Art of Computer Programming,
/// volume 3, section 6.4): they come from nobody who would want to make them collide.
#[derive(Clone, Copy, Debug, Default)]
struct SegmentHasher(u64);

impl Hasher for SegmentHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table looks at the highest and at the lowest bits.
        let spread = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }
}

#[cfg(test)]
mod tests;
