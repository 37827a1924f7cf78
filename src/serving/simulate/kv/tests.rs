//! The accounts against a list of sequences that are gone through one by one.

use super::super::prefix::{Held, Hit, Segment};
use super::KvBlocks;
use crate::memory::{CacheGroup, CachePool};
use proptest::prelude::*;

const ALL: u64 = u64::MAX;

/// Groups as `[count, block_tokens, most_tokens, beyond]`.
fn pool(blocks: u64, per_sequence: u64, groups: &[[u64; 4]]) -> CachePool {
    let group = |&[count, block_tokens, most_tokens, beyond]: &[u64; 4]| CacheGroup {
        count,
        block_tokens,
        most_tokens,
        beyond,
    };
    CachePool { blocks, per_sequence, groups: groups.iter().map(group).collect(), ..CachePool::default() }
}

/// Full attention with blocks of any length; windows that begin or end within a block or do not; many small groups; states only.
fn pools() -> Vec<CachePool> {
    let mut pools: Vec<CachePool> = [1, 16, 256].map(|block| pool(4_000 / block + 40, 0, &[[1, block, ALL, 0]])).into();
    pools.push(pool(3_000, 3, &[[2, 16, ALL, 0], [10, 16, 100, 1]]));
    pools.push(pool(9_000, 0, &[[5, 1, ALL, 0], [3, 1, 37, 0], [1, 256, 512, 0]]));
    pools.push(pool(600, 1, &[[1, 16, 129, 1], [1, 16, 48, 0]]));
    pools.push(CachePool { tokens_ahead: 5, ..pool(900, 0, &[[1, 16, ALL, 0], [2, 8, 64, 1]]) });
    pools.push(pool(20, 1, &[]));
    pools
}

fn sum(pool: &CachePool, contexts: &[u64], more: u64) -> u64 {
    contexts.iter().map(|context| pool.blocks_of(context + more)).sum()
}

#[test]
fn a_sequence_takes_what_the_pool_says() {
    for pool in pools() {
        let blocks = KvBlocks::new(&pool);
        for context in 0..600 {
            assert_eq!(blocks.blocks_of(context), pool.blocks_of(context));
        }
    }
}

#[test]
fn the_sequences_of_a_pool_may_be_limited() {
    let pool = CachePool { max_sequences: Some(2), ..pool(100, 0, &[[1, 16, ALL, 0]]) };
    let mut blocks = KvBlocks::new(&pool);
    for _ in 0..2 {
        assert!(blocks.fits(16, &Hit::default(), 0));
        blocks.take(16);
    }
    assert!(!blocks.fits(16, &Hit::default(), 0));
    blocks.release(16, &[], Held::default());
    assert!(blocks.fits(16, &Hit::default(), 98) && !blocks.fits(16, &Hit::default(), 99));
}

#[test]
fn too_much_is_no_panic() {
    let mut blocks = KvBlocks::new(&pool(10, 0, &[[1, 16, ALL, 0]]));
    blocks.take(1600);
    assert_eq!((blocks.used(), blocks.free(), blocks.steps_that_fit(9)), (100, 0, 9));
    blocks.join(1600);
    assert_eq!(blocks.steps_that_fit(9), 0);
    blocks.advance(u64::MAX / 4);
    assert!(blocks.used() > 10);
    let mut without = KvBlocks::new(&pool(10, 0, &[[1, 0, ALL, 0]]));
    without.take(u64::MAX);
    without.join(u64::MAX - 1);
    assert_eq!(without.steps_that_fit(u64::MAX), 0);
}

#[test]
fn blocks_of_different_layers_are_shared_up_to_a_common_end() {
    let segments = [Segment { hash: 7, tokens: 100 }];
    let mut blocks = KvBlocks::new(&pool(100, 0, &[[1, 16, ALL, 0], [2, 24, ALL, 0], [1, 8, 32, 0]]));
    let nothing = blocks.matched(&segments, 101);
    let mut held = blocks.admit(100, &segments, &nothing);
    blocks.insert(&segments, &mut held, 100);
    // 96 tokens end with a block in both: 6 of 16 tokens, 4 of 24 in each of two groups.
    let hit = blocks.matched(&segments, 101);
    assert_eq!((hit.tokens, hit.blocks, hit.idle_blocks), (96, 14, 0));
    assert_eq!(blocks.used(), blocks.blocks_of(100));
    blocks.release(100, &segments, held);
    assert_eq!(blocks.matched(&segments, 101).idle_blocks, 14);
    // The last token is computed in any case, and with it its block.
    assert_eq!(blocks.matched(&segments, 96).tokens, 48);
}

/// What happens: a sequence comes, another goes, steps pass, a prompt is extended.
fn events() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    prop::collection::vec((0_u8..4, 0_u64..700, 0_u64..600), 1..120)
}

proptest! {
    #[test]
    fn used_is_the_sum_over_sequences(index in 0..pools().len(), events in events()) {
        let pool = &pools()[index];
        let mut blocks = KvBlocks::new(pool);
        let (mut growing, mut fixed): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for (kind, a, b) in events {
            match kind {
                0 if blocks.fits(a, &Hit::default(), 0) => {
                    blocks.take(a);
                    if b % 4 == 0 {
                        fixed.push(a);
                    } else {
                        blocks.join(a);
                        growing.push(a);
                    }
                }
                1 if !growing.is_empty() => {
                    let context = growing.swap_remove(a as usize % growing.len());
                    blocks.leave(context);
                    blocks.release(context, &[], Held::default());
                }
                2 if !fixed.is_empty() => {
                    let context = fixed.swap_remove(a as usize % fixed.len());
                    blocks.release(context, &[], Held::default());
                }
                _ => {
                    let fits = |steps: &u64| sum(pool, &growing, *steps) + sum(pool, &fixed, 0) <= pool.blocks;
                    let expected = (0..=a).rev().find(fits).unwrap_or(0);
                    prop_assert_eq!(blocks.steps_that_fit(a), expected);
                    let steps = expected.min(b);
                    blocks.advance(steps);
                    growing.iter_mut().for_each(|context| *context += steps);
                }
            }
            prop_assert_eq!(blocks.used(), sum(pool, &growing, 0) + sum(pool, &fixed, 0));
            prop_assert_eq!(blocks.free() + blocks.used(), pool.blocks);
            prop_assert_eq!(blocks.sequences, (growing.len() + fixed.len()) as u64);
        }
    }
}
