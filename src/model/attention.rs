//! Attention layers: their projections, their cache, and the work of one query-key pair.
//!
//! Three kinds keep a cache that grows with the context: [`Attention`] (multi-head, grouped-query, multi-query; full, sliding or chunked),
//! [`LatentAttention`] (MLA, one compressed latent for all heads) and [`CompressedAttention`] (DeepSeek-V4). Each may
//! select the tokens it attends to with a [`SparseSelection`].

use super::{Linear, Reach, Split};
use crate::format::TensorClass::{AttentionK, AttentionOutput, AttentionQ, AttentionV, Indexer as IndexerClass};
use crate::format::TensorClass::{LatentKvDown, LatentKvUp, LatentQDown, LatentQUp};
use serde::{Deserialize, Serialize};

/// Whether a layer keeps a key-value cache of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KvSource {
    /// Own key and value projections, own cache.
    #[default]
    Own,
    /// One projection serves as key and value; both are still cached (Gemma 4's global layers).
    KeyIsValue,
    /// Reads the cache of an earlier layer: no projections, nothing stored, but the same reads (Gemma 3n and 4).
    Shared,
}

/// Scaled dot-product attention with `heads` query heads over `kv_heads` cached heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key-value heads: equal to `heads` for multi-head, fewer for grouped-query, 1 for multi-query attention.
    pub kv_heads: u64,
    /// Dimension of a query and key head.
    pub head_dim: u64,
    /// Dimension of a value head, where it differs from `head_dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v_head_dim: Option<u64>,
    /// Which positions are attended to.
    #[serde(default)]
    pub reach: Reach,
    /// Whether the query projection also produces an output gate of the same width.
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_gate: bool,
    /// Where keys and values come from.
    #[serde(default)]
    pub kv: KvSource,
    /// Selection of the attended tokens by an indexer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse: Option<SparseSelection>,
}

impl Attention {
    /// Plain attention over everything before, with a cache of its own.
    pub const fn full(heads: u64, kv_heads: u64, head_dim: u64) -> Self {
        Self {
            heads,
            kv_heads,
            head_dim,
            v_head_dim: None,
            reach: Reach::Full,
            output_gate: false,
            kv: KvSource::Own,
            sparse: None,
        }
    }
}

/// Multi-head latent attention (DeepSeek-V2): keys and values are expanded from one latent vector per token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentAttention {
    /// Query heads.
    pub heads: u64,
    /// Rank of the query compression, if the model compresses queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q_lora_rank: Option<u64>,
    /// Rank of the cached latent.
    pub kv_lora_rank: u64,
    /// Head dimension without position.
    pub qk_nope_head_dim: u64,
    /// Rotary head dimension; one rotary key per token is cached beside the latent.
    pub qk_rope_head_dim: u64,
    /// Dimension of a value head.
    pub v_head_dim: u64,
    /// Whether an output gate of width `heads * v_head_dim` exists (Kimi K3).
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_gate: bool,
    /// Selection of the attended tokens by an indexer (DeepSeek-V3.2, GLM-5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse: Option<SparseSelection>,
}

/// DeepSeek-V4 attention: one shared key-value head, a sliding window, and a compressed cache of the older tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompressedAttention {
    /// Query heads; all share one key-value head.
    pub heads: u64,
    /// Dimension of the shared key-value head (key and value are the same vector).
    pub head_dim: u64,
    /// Rank of the query compression.
    pub q_lora_rank: u64,
    /// Groups of the output projection.
    pub o_groups: u64,
    /// Rank of each group of the output projection.
    pub o_lora_rank: u64,
    /// Sliding window of uncompressed tokens.
    pub window: u64,
    /// Tokens per compressed entry; 0 for a layer with the window only.
    pub compress_ratio: u64,
    /// Selection of compressed entries by an indexer, for lightly compressed layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse: Option<SparseSelection>,
}

/// A fixed number of tokens (or compressed entries) chosen per query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparseSelection {
    /// Tokens or entries attended to at most.
    pub top_k: u64,
    /// The indexer that scores the candidates; absent where a layer reuses the choice of another layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexer: Option<Indexer>,
}

impl SparseSelection {
    /// The best `top_k` of all earlier tokens.
    const fn reach(self) -> Reach {
        Reach::Selected { ratio: 1, top: self.top_k }
    }
}

/// A light attention that scores all earlier tokens with small heads and one cached key per token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Indexer {
    /// Scoring heads.
    pub heads: u64,
    /// Dimension of a scoring head and of the cached index key.
    pub head_dim: u64,
}

/// The work and traffic of one attention pass, per query-key pair and per cache entry.
///
/// A layer may need several: the core attention and the indexer that selects for it, or a window and a compressed part.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttentionPass {
    /// What it is, for explanations.
    pub name: &'static str,
    /// Which entries are attended to.
    pub reach: Reach,
    /// Query heads that do the work (what tensor parallelism divides).
    pub heads: u64,
    /// Cached heads (what tensor parallelism divides, replicating when there are too few).
    pub kv_heads: u64,
    /// Multiply-add operations x2 of one pair in decode, all heads.
    pub decode_flops_per_pair: f64,
    /// The same in prefill, where it may differ (MLA expands the latent).
    pub prefill_flops_per_pair: f64,
    /// Cache elements read per entry, all cached heads.
    pub elements_per_entry: u64,
    /// Cache elements written per new token by this layer (0 when the cache belongs to another layer).
    pub elements_written_per_token: f64,
    /// Query and output elements moved per new token in decode.
    pub decode_io_elements_per_token: u64,
    /// The same in prefill, where it may differ (MLA works with expanded heads instead of the wider latent).
    pub prefill_io_elements_per_token: u64,
    /// Operations to expand one cached entry before prefill attention can use it (MLA), all heads.
    pub expand_flops_per_entry: f64,
}

impl Attention {
    /// Dimension of a value head.
    pub fn value_dim(&self) -> u64 {
        self.v_head_dim.unwrap_or(self.head_dim)
    }

    /// The weight matrices.
    pub fn linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        let (q_dim, v_dim) = (self.heads * self.head_dim, self.heads * self.value_dim());
        let q_out = q_dim + if self.output_gate { v_dim } else { 0 };
        let kv = Split::KvHeads(self.kv_heads);
        out.push(Linear::new(AttentionQ, hidden_size, q_out, Split::Output));
        if self.kv != KvSource::Shared {
            out.push(Linear::new(AttentionK, hidden_size, self.kv_heads * self.head_dim, kv));
        }
        if self.kv == KvSource::Own {
            out.push(Linear::new(AttentionV, hidden_size, self.kv_heads * self.value_dim(), kv));
        }
        out.push(Linear::new(AttentionOutput, v_dim, hidden_size, Split::Input));
        if let Some(Indexer { heads, head_dim }) = self.sparse.and_then(|sparse| sparse.indexer) {
            out.push(Linear::new(IndexerClass, hidden_size, heads * head_dim, Split::Replicated));
            out.push(Linear::new(IndexerClass, hidden_size, head_dim, Split::Replicated));
        }
    }

    /// Cache elements per token: `kv_heads * (head_dim + v_head_dim)`, 0 if another layer's cache is read; plus the index key.
    pub fn kv_elements_per_token(&self) -> u64 {
        let own = if self.kv == KvSource::Shared { 0 } else { self.kv_heads * (self.head_dim + self.value_dim()) };
        own + index_key_dim(self.sparse)
    }

    /// Attention passes: the core, and the indexer where there is one.
    pub fn passes(&self, out: &mut Vec<AttentionPass>) {
        let reach = self.sparse.map_or(self.reach, SparseSelection::reach);
        let per_entry = self.kv_heads * (self.head_dim + self.value_dim());
        let flops = 2.0 * (self.heads * (self.head_dim + self.value_dim())) as f64;
        out.push(AttentionPass {
            name: "attention",
            reach,
            heads: self.heads,
            kv_heads: self.kv_heads,
            decode_flops_per_pair: flops,
            prefill_flops_per_pair: flops,
            elements_per_entry: per_entry,
            elements_written_per_token: if self.kv == KvSource::Shared { 0.0 } else { per_entry as f64 },
            decode_io_elements_per_token: self.heads * (self.head_dim + self.value_dim()),
            prefill_io_elements_per_token: self.heads * (self.head_dim + self.value_dim()),
            expand_flops_per_entry: 0.0,
        });
        push_indexer(self.sparse, Reach::Full, out);
    }
}

impl LatentAttention {
    /// Cache elements per token: `kv_lora_rank + qk_rope_head_dim`, one latent for all heads (no factor 2), plus the
    /// index key where there is an indexer.
    ///
    /// Source: DeepSeek-AI, Insights into DeepSeek-V3 (ISCA 2025, arXiv 2505.09343), table 1: 70.272 kB per token for 61 layers.
    pub fn kv_elements_per_token(&self) -> u64 {
        self.kv_lora_rank + self.qk_rope_head_dim + index_key_dim(self.sparse)
    }

    /// The weight matrices. The key-value up-projection is multiplied in decode too: absorbed into query and output.
    pub fn linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        let q_dim = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim);
        let v_dim = self.heads * self.v_head_dim;
        match self.q_lora_rank {
            Some(rank) => {
                out.push(Linear::new(LatentQDown, hidden_size, rank, Split::Replicated));
                out.push(Linear::new(LatentQUp, rank, q_dim, Split::Output));
            }
            None => out.push(Linear::new(AttentionQ, hidden_size, q_dim, Split::Output)),
        }
        out.push(Linear::new(LatentKvDown, hidden_size, self.kv_lora_rank + self.qk_rope_head_dim, Split::Replicated));
        let kv_up = self.heads * (self.qk_nope_head_dim + self.v_head_dim);
        out.push(Linear::new(LatentKvUp, self.kv_lora_rank, kv_up, Split::Output));
        if self.output_gate {
            out.push(Linear::new(AttentionQ, hidden_size, v_dim, Split::Output));
        }
        out.push(Linear::new(AttentionOutput, v_dim, hidden_size, Split::Input));
        if let Some(Indexer { heads, head_dim }) = self.sparse.and_then(|sparse| sparse.indexer) {
            let rank = self.q_lora_rank.unwrap_or(hidden_size);
            out.push(Linear::new(IndexerClass, rank, heads * head_dim, Split::Replicated));
            out.push(Linear::new(IndexerClass, hidden_size, head_dim, Split::Replicated));
            out.push(Linear::new(IndexerClass, hidden_size, heads, Split::Replicated));
        }
    }

    /// Attention passes. Decode works on the latent itself (absorbed); prefill expands keys and values per head.
    pub fn passes(&self, out: &mut Vec<AttentionPass>) {
        let latent = self.kv_lora_rank + self.qk_rope_head_dim;
        let expanded = self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim;
        out.push(AttentionPass {
            name: "latent attention",
            reach: self.sparse.map_or(Reach::Full, SparseSelection::reach),
            heads: self.heads,
            kv_heads: 1,
            decode_flops_per_pair: 2.0 * (self.heads * (latent + self.kv_lora_rank)) as f64,
            prefill_flops_per_pair: 2.0 * (self.heads * expanded) as f64,
            elements_per_entry: latent,
            elements_written_per_token: latent as f64,
            decode_io_elements_per_token: self.heads * (latent + self.kv_lora_rank),
            prefill_io_elements_per_token: self.heads * expanded,
            expand_flops_per_entry: 2.0
                * (self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)) as f64,
        });
        push_indexer(self.sparse, Reach::Full, out);
    }
}

impl CompressedAttention {
    /// The weight matrices, compressors and indexer included.
    pub fn linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        let q_dim = self.heads * self.head_dim;
        out.push(Linear::new(LatentQDown, hidden_size, self.q_lora_rank, Split::Replicated));
        out.push(Linear::new(LatentQUp, self.q_lora_rank, q_dim, Split::Output));
        out.push(Linear::new(LatentKvDown, hidden_size, self.head_dim, Split::Replicated));
        let group = Linear::new(AttentionOutput, q_dim / self.o_groups, self.o_lora_rank, Split::Output);
        out.push(Linear { copies: self.o_groups, ..group });
        out.push(Linear::new(AttentionOutput, self.o_groups * self.o_lora_rank, hidden_size, Split::Input));
        if self.compress_ratio == 0 {
            return;
        }
        // Value and gate of the compressor; overlapping windows of the sparse variant need both twice.
        let compressors = if self.sparse.is_some() { 4 } else { 2 };
        out.push(Linear::new(IndexerClass, hidden_size, compressors * self.head_dim, Split::Replicated));
        if let Some(Indexer { heads, head_dim }) = self.sparse.and_then(|sparse| sparse.indexer) {
            out.push(Linear::new(IndexerClass, hidden_size, compressors * head_dim, Split::Replicated));
            out.push(Linear::new(IndexerClass, self.q_lora_rank, heads * head_dim, Split::Replicated));
            out.push(Linear::new(IndexerClass, hidden_size, heads, Split::Replicated));
        }
    }

    /// Cache elements that each token adds once the window is full: compressed entries and index keys.
    pub fn compressed_elements_per_token(&self) -> f64 {
        if self.compress_ratio == 0 {
            return 0.0;
        }
        (self.head_dim + index_key_dim(self.sparse)) as f64 / self.compress_ratio as f64
    }

    /// Attention passes: the window, the compressed entries, and the indexer over them.
    pub fn passes(&self, out: &mut Vec<AttentionPass>) {
        let flops = 4.0 * (self.heads * self.head_dim) as f64;
        let window = AttentionPass {
            name: "window attention",
            reach: Reach::Window(self.window),
            heads: self.heads,
            kv_heads: 1,
            decode_flops_per_pair: flops,
            prefill_flops_per_pair: flops,
            elements_per_entry: self.head_dim,
            elements_written_per_token: self.head_dim as f64,
            decode_io_elements_per_token: 2 * self.heads * self.head_dim,
            prefill_io_elements_per_token: 2 * self.heads * self.head_dim,
            expand_flops_per_entry: 0.0,
        };
        out.push(window);
        if self.compress_ratio == 0 {
            return;
        }
        let ratio = self.compress_ratio;
        out.push(AttentionPass {
            name: "compressed attention",
            reach: Reach::Selected { ratio, top: self.sparse.map_or(0, |sparse| sparse.top_k) },
            elements_written_per_token: self.head_dim as f64 / ratio as f64,
            decode_io_elements_per_token: 0,
            prefill_io_elements_per_token: 0,
            ..window
        });
        push_indexer(self.sparse, Reach::Selected { ratio, top: 0 }, out);
    }
}

fn index_key_dim(sparse: Option<SparseSelection>) -> u64 {
    sparse.and_then(|sparse| sparse.indexer).map_or(0, |indexer| indexer.head_dim)
}

fn push_indexer(sparse: Option<SparseSelection>, reach: Reach, out: &mut Vec<AttentionPass>) {
    let Some(Indexer { heads, head_dim }) = sparse.and_then(|sparse| sparse.indexer) else { return };
    let flops = 2.0 * (heads * head_dim) as f64;
    out.push(AttentionPass {
        name: "indexer",
        reach,
        heads: 1,
        kv_heads: 1,
        decode_flops_per_pair: flops,
        prefill_flops_per_pair: flops,
        elements_per_entry: head_dim,
        elements_written_per_token: match reach {
            Reach::Selected { ratio, .. } => head_dim as f64 / ratio as f64,
            _ => head_dim as f64,
        },
        decode_io_elements_per_token: heads * head_dim,
        prefill_io_elements_per_token: heads * head_dim,
        expand_flops_per_entry: 0.0,
    });
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}
