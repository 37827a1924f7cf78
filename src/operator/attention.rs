//! Attention over a cache.

use crate::model::Attention;
use crate::roofline::Work;
use crate::units::{Bytes, Flops};

/// One layer's attention of `sequences` decode tokens, each over `context` cached tokens (its own included).
///
/// # Formula
/// Per sequence and attended token: `flops = 2 * heads * (head_dim + v_head_dim)`, bytes of `kv_heads * (head_dim + v_head_dim)` cache
/// elements; plus query and output, in 16 bits. For long contexts the intensity is `2 * heads / (kv_heads * bytes per element)`, 4 operations
/// per byte for 32 query heads on 8 key-value heads in 16 bits: memory-bound everywhere.
///
/// The new token's own entry is read; that it is also written is not counted here (the step model counts it).
pub fn decode_attention(attention: &Attention, sequences: f64, context: u64, kv_bits: f64) -> Work {
    let attended = sequences * attention.reach.attended(context);
    attention_work(attention, attended, attended, sequences, kv_bits)
}

/// One layer's attention of a prompt chunk of `new` tokens after `cached` ones, fused (no score matrix in memory).
///
/// # Formula
/// Exact causal pairs `new * cached + new * (new + 1) / 2` (fewer under a window), `2 * heads * (head_dim + v_head_dim)` operations each;
/// every reachable cache entry is read once, queries and outputs move once. Writing the new entries is not counted here.
pub fn prefill_attention(attention: &Attention, cached: u64, new: u64, kv_bits: f64) -> Work {
    let (pairs, read) = (attention.reach.pairs(cached, new), attention.reach.read(cached, new));
    attention_work(attention, pairs, read, new as f64, kv_bits)
}

fn attention_work(attention: &Attention, pairs: f64, read: f64, tokens: f64, kv_bits: f64) -> Work {
    let dims = (attention.head_dim + attention.value_dim()) as f64;
    let cache_bits = read * attention.kv_heads as f64 * dims * kv_bits;
    let io_bits = tokens * attention.heads as f64 * dims * 16.0;
    Work {
        flops: Flops::from_flops(2.0 * pairs * attention.heads as f64 * dims),
        bytes: Bytes::from_bytes((cache_bits + io_bits) / 8.0),
    }
}

/// The three operators of attention without fusion, the whole score matrix passing through memory.
///
/// What flash attention avoids; counted without causal saving, as LLM-Viewer does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnfusedAttention {
    /// Queries times keys.
    pub scores: Work,
    /// Softmax of the scores, 5 operations per score.
    pub softmax: Work,
    /// Scores times values.
    pub weighted_sum: Work,
}

/// Unfused multi-head attention of `queries` tokens over `context` tokens in 16 bits.
///
/// # References
/// Yuan et al., LLM Inference Unveiled (arXiv 2402.16363), table 1.
pub fn unfused_attention(heads: u64, head_dim: u64, queries: u64, context: u64) -> UnfusedAttention {
    let (heads, dim, queries, context) = (heads as f64, head_dim as f64, queries as f64, context as f64);
    let scores = heads * queries * context;
    let matmul = Work {
        flops: Flops::from_flops(2.0 * scores * dim),
        bytes: Bytes::from_bytes(2.0 * (heads * dim * (queries + context) + scores)),
    };
    let softmax = Work { flops: Flops::from_flops(5.0 * scores), bytes: Bytes::from_bytes(2.0 * 2.0 * scores) };
    UnfusedAttention { scores: matmul, softmax, weighted_sum: matmul }
}
