//! The cache against one that keeps every block by itself, and against the reuse of traces.

use super::super::kv::KvBlocks;
use super::{Held, Hit, PrefixCache, Segment, Unit};
use crate::memory::{CacheGroup, CachePool};
use crate::units::Seconds;
use crate::workload::{Trace, TraceRequest};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

/// A pool of so many blocks of 16 tokens.
fn pool(blocks: u64) -> CachePool {
    let group = CacheGroup { count: 1, block_tokens: BLOCK, most_tokens: u64::MAX, beyond: 0 };
    CachePool { blocks, groups: vec![group], ..CachePool::default() }
}

const BLOCK: u64 = 16;

/// vLLM's queue of single blocks, which gives back at once what was computed twice.
struct Naive {
    /// What a block is known as, and how many use it.
    blocks: Vec<(Option<(u64, u64)>, u32)>,
    queue: VecDeque<usize>,
    known: HashMap<(u64, u64), usize>,
}

impl Naive {
    fn new(blocks: usize) -> Self {
        Self { blocks: vec![(None, 0); blocks], queue: (0..blocks).collect(), known: HashMap::new() }
    }

    fn hits(&self, names: &[(u64, u64)]) -> Vec<usize> {
        names.iter().map_while(|name| self.known.get(name).copied()).collect()
    }

    /// Free blocks beside those that are hit.
    fn room(&self, hits: &[usize]) -> usize {
        self.queue.len() - hits.iter().filter(|block| self.blocks[**block].1 == 0).count()
    }

    fn touch(&mut self, block: usize) {
        if self.blocks[block].1 == 0 {
            self.queue.retain(|free| *free != block);
        }
        self.blocks[block].1 += 1;
    }

    fn take(&mut self) -> usize {
        let block = self.queue.pop_front().unwrap();
        if let Some(name) = self.blocks[block].0.take() {
            self.known.remove(&name);
        }
        self.blocks[block].1 = 1;
        block
    }

    fn give_back(&mut self, block: usize) {
        self.blocks[block].1 -= 1;
        if self.blocks[block].1 == 0 {
            self.queue.push_back(block);
        }
    }

    /// The first blocks of a request are computed.
    fn name(&mut self, blocks: &mut [usize], names: &[(u64, u64)]) {
        let mut twice = Vec::new();
        for (block, name) in blocks.iter_mut().zip(names) {
            match self.known.get(name).copied() {
                Some(same) if same == *block => {}
                Some(same) => {
                    twice.push(std::mem::replace(block, same));
                    self.touch(same);
                }
                None => {
                    self.known.insert(*name, *block);
                    self.blocks[*block].0 = Some(*name);
                }
            }
        }
        twice.into_iter().for_each(|block| self.give_back(block));
    }
}

struct Running {
    segments: Vec<Segment>,
    held: Held,
    context: u64,
    blocks: Vec<usize>,
    names: Vec<(u64, u64)>,
}

/// A prompt of some of few conversations, each turn of which has one of few continuations.
fn segments(choices: &[u64], blocks_of: fn(u64) -> u64) -> (Vec<Segment>, Vec<(u64, u64)>) {
    let (mut segments, mut names, mut hash) = (Vec::new(), Vec::new(), 1_u64);
    for choice in choices {
        hash = (hash ^ (choice + 1)).wrapping_mul(0x2545_F491_4F6C_DD1D);
        let blocks = blocks_of(hash);
        segments.push(Segment { hash, tokens: blocks * BLOCK });
        names.extend((0..blocks).map(|block| (hash, block)));
    }
    (segments, names)
}

/// One event: the turns of a prompt, tokens after them, whether it is admitted or another one ends.
type Event = (Vec<u64>, u64, u8);

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((prop::collection::vec(0_u64..3, 0..6), 1_u64..60, 0_u8..4), 1..150)
}

/// Both caches go through the same; the same must be found, and the same be free.
fn compare(size: u64, events: &[Event], blocks_of: fn(u64) -> u64) -> Result<(), TestCaseError> {
    let (mut cache, mut naive) = (KvBlocks::new(&pool(size)), Naive::new(size as usize));
    let mut running: Vec<Running> = Vec::new();
    for (choices, tail, kind) in events {
        let (segments, names) = segments(choices, blocks_of);
        let context = names.len() as u64 * BLOCK + tail;
        let hit = cache.matched(&segments, context);
        let hits = naive.hits(&names);
        prop_assert_eq!((hit.blocks, hit.tokens), (hits.len() as u64, hits.len() as u64 * BLOCK));
        let own = context.div_ceil(BLOCK) as usize - hits.len();
        let fits = own <= naive.room(&hits);
        prop_assert_eq!(cache.fits(context, &hit, 0), fits);
        if *kind < 2 && fits {
            let mut held = cache.admit(context, &segments, &hit);
            cache.insert(&segments, &mut held, context - tail);
            hits.iter().for_each(|block| naive.touch(*block));
            let mut blocks = hits;
            blocks.extend((0..own).map(|_| naive.take()));
            naive.name(&mut blocks, &names);
            running.push(Running { segments, held, context, blocks, names });
        } else if !running.is_empty() {
            let request = running.swap_remove(*tail as usize % running.len());
            prop_assert!(request.names.len() <= request.blocks.len());
            cache.release(request.context, &request.segments, request.held);
            request.blocks.into_iter().rev().for_each(|block| naive.give_back(block));
        }
        prop_assert_eq!(cache.free(), naive.queue.len() as u64);
    }
    for request in running {
        cache.release(request.context, &request.segments, request.held);
    }
    prop_assert_eq!(cache.used(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn segments_of_a_block_are_kept_as_single_blocks(size in 8_u64..120, events in events()) {
        compare(size, &events, |_| 1)?;
    }

    /// A segment loses its end block by block, and gets it back: nothing is lost by keeping it as one.
    #[test]
    fn longer_segments_are_kept_as_single_blocks(size in 20_u64..300, events in events()) {
        compare(size, &events, |hash| 1 + hash % 9)?;
    }
}

#[test]
fn a_trace_finds_what_the_trace_says() {
    // Conversations of some turns that come in between each other, and a prompt that is asked twice.
    let turns = (0..40_u64).map(|index| {
        let (conversation, turn) = (index % 7, index / 7);
        let prompt_tokens = 700 + 450 * turn + 13 * conversation;
        let blocks = prompt_tokens.div_ceil(512);
        let name = |block| if block == 0 { 0 } else { conversation * 1000 + block };
        // The last block of a prompt is shorter, and another one.
        let last = |block| if (block + 1) * 512 > prompt_tokens { turn * 100_000 + 50_000 } else { 0 };
        let block_hashes = (0..blocks).map(|block| name(block) + last(block)).collect();
        let arrival = Seconds::from_seconds((index - u64::from(index == 39)) as f64);
        TraceRequest { arrival, prompt_tokens, output_tokens: 10, block_hashes, ..TraceRequest::default() }
    });
    let mut requests: Vec<TraceRequest> = turns.collect();
    requests.push(TraceRequest { arrival: Seconds::from_seconds(60.0), ..requests[38].clone() });
    let trace = Trace::new(requests).unwrap();
    let mut cache = PrefixCache::new(Unit { tokens: 1, blocks: 1 });
    for request in trace.requests() {
        let segments = segments_of(request, trace.block_tokens());
        let hit = cache.matched(&segments, request.prompt_tokens);
        let mut held = cache.pin(&segments, &hit);
        cache.insert(&segments, &mut held, request.prompt_tokens);
        assert_eq!(held.blocks(), request.prompt_tokens);
        cache.unpin(&segments, held);
    }
    let expected = trace.prefix_reuse(None);
    assert_eq!((cache.queried_tokens, cache.hit_tokens), (expected.prompt_tokens, expected.reused_tokens));
    assert!(expected.token_hit_rate() > 0.5 && cache.pinned_blocks() == 0);
}

/// The blocks of a trace as segments, the last one shorter.
fn segments_of(request: &TraceRequest, block_tokens: u64) -> Vec<Segment> {
    let tokens = |index: usize| block_tokens.min(request.prompt_tokens - index as u64 * block_tokens);
    request.block_hashes.iter().enumerate().map(|(index, &hash)| Segment { hash, tokens: tokens(index) }).collect()
}

#[test]
fn the_oldest_loses_its_end_first() {
    let mut cache = KvBlocks::new(&pool(20));
    let (first, second) = ([Segment { hash: 1, tokens: 160 }], [Segment { hash: 2, tokens: 80 }]);
    for segments in [&first, &second] {
        let mut held = cache.admit(segments[0].tokens, segments, &Hit::default());
        cache.insert(segments, &mut held, segments[0].tokens);
        cache.release(segments[0].tokens, segments, held);
    }
    assert_eq!((cache.used(), cache.free()), (0, 20));
    // Five were never used; three more are taken from the end of the first prompt.
    cache.take(8 * BLOCK);
    assert_eq!(
        cache.matched(&first, 161),
        Hit { segments: 1, tokens: 112, blocks: 7, idle_blocks: 7, prompt_tokens: 161 }
    );
    assert_eq!(cache.matched(&second, 81).tokens, 80);
    // Using the first prompt computes its end again, and makes it the newest.
    let hit = cache.matched(&first, 161);
    assert!(cache.fits(160, &hit, 2) && !cache.fits(160, &hit, 3));
    let mut held = cache.admit(160, &first, &hit);
    cache.insert(&first, &mut held, 160);
    cache.release(160, &first, held);
    assert_eq!((cache.matched(&first, 161).tokens, cache.matched(&second, 81).tokens), (160, 32));
}

#[test]
fn nothing_grows_when_prompts_come_and_go() {
    let mut cache = PrefixCache::new(Unit { tokens: 16, blocks: 1 });
    for round in 0..10_000_u64 {
        let segments = [0, 1].map(|part| Segment { hash: (round % 50) * 2 + part, tokens: 64 });
        let hit = cache.matched(&segments, 200);
        let mut held = cache.pin(&segments, &hit);
        cache.insert(&segments, &mut held, 128);
        cache.add_anonymous(3);
        cache.unpin(&segments, held);
        let room = 200;
        cache.evict(cache.evictable_blocks().saturating_sub(room));
    }
    assert!(cache.entries.len() < 120, "{}", cache.entries.len());
}
