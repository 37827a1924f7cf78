//! Latent attention (MLA), with and without a sparse indexer, and the compressed attention of DeepSeek-V4.

use super::config::Config;
use super::moe::{moe_layers, with_router_bias, with_shared};
use super::shape::{Defaults, Shape, Style};
use crate::format::TensorClass;
use crate::import::ImportError;
use crate::model::{
    Architecture, CompressedAttention, FeedForward, Indexer, LatentAttention, Layer, Linear, Mixer, SparseSelection,
    Split,
};

type Read = Result<Architecture, ImportError>;

/// DeepSeek-V2: no correction bias of the router unless it balances without an auxiliary loss.
pub(super) fn deepseek_v2(config: &Config) -> Read {
    let router_bias = config.text("topk_method")? == Some("noaux_tc");
    experts_on_latent(config, &Family { router_bias, first_dense: 0, q_lora_rank: 1536, mtp_copies: false })
}

/// DeepSeek-V3, R1, V3.1, V3.2, Kimi K2 and Moonlight; the published files repeat embedding and head in the prediction module.
pub(super) fn deepseek_v3(config: &Config) -> Read {
    experts_on_latent(config, &Family { router_bias: true, first_dense: 3, q_lora_rank: 1536, mtp_copies: true })
}

/// GLM-5: latent attention whose indexer may be shared between layers.
pub(super) fn glm_moe_dsa(config: &Config) -> Read {
    experts_on_latent(config, &Family { router_bias: true, first_dense: 3, q_lora_rank: 2048, mtp_copies: false })
}

/// Mistral Small 4: every layer a mixture, no correction bias of the router.
pub(super) fn mistral4(config: &Config) -> Read {
    experts_on_latent(config, &Family { router_bias: false, first_dense: 0, q_lora_rank: 1024, mtp_copies: false })
}

/// GLM-4.7-Flash.
pub(super) fn glm4_moe_lite(config: &Config) -> Read {
    experts_on_latent(config, &Family { router_bias: true, first_dense: 1, q_lora_rank: 768, mtp_copies: true })
}

/// MiniCPM3: latent attention in a dense model.
pub(super) fn minicpm3(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(1), tied: true, ..Defaults::default() })?;
    let value_dim = shape.hidden.checked_div(shape.heads);
    let (attention, bias) = latent(config, shape.heads, Some(768), value_dim)?;
    let intermediate = config.count(&["intermediate_size"])?;
    let mlp_bias = if config.flag("mlp_bias", false)? { 2 * intermediate + shape.hidden } else { 0 };
    let layer = latent_layer(&shape, attention, bias + mlp_bias, FeedForward::Dense { intermediate, gated: true });
    Ok(shape.build(vec![layer; shape.layers], shape.hidden))
}

struct Family {
    router_bias: bool,
    /// Dense first layers when the file does not say.
    first_dense: u64,
    /// Rank of the query compression when the file does not say (`null` says that there is none).
    q_lora_rank: u64,
    /// Whether prediction modules store a copy of embedding and head.
    mtp_copies: bool,
}

fn experts_on_latent(config: &Config, family: &Family) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(1), ..Defaults::default() })?;
    if config.flag("mlp_bias", false)? {
        return Err(config.unsupported("experts with bias (`mlp_bias`)"));
    }
    let moe = FeedForward::Moe(with_shared(config, config.count_or(&["n_shared_experts"], 0)?)?);
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let is_moe = moe_layers(config, shape.layers, family.first_dense)?;
    let sparse = indexer(config)?;
    let attention = latent(config, shape.heads, Some(family.q_lora_rank), None)?;
    let layer = |feed_forward: &FeedForward, shares_indexer: bool| {
        let sparse =
            sparse.map(|sparse| SparseSelection { indexer: sparse.indexer.filter(|_| !shares_indexer), ..sparse });
        let layer =
            latent_layer(&shape, LatentAttention { sparse, ..attention.0.clone() }, attention.1, feed_forward.clone());
        with_router_bias(layer, family.router_bias)
    };
    let layers = is_moe.iter().zip(shares_indexer(config, shape.layers)?);
    let layers = layers.map(|(is_moe, shares)| layer(if *is_moe { &moe } else { &dense }, shares));
    let architecture = shape.build(layers.collect(), shape.hidden);
    let modules = config.count_or(&["num_nextn_predict_layers"], 0)?;
    Ok(Architecture { mtp: shape.mtp(config, modules, &[layer(&moe, false)], family.mtp_copies)?, ..architecture })
}

/// Which layers reuse the selection of an earlier layer: by a list, or all but the first and every so many after.
fn shares_indexer(config: &Config, layers: usize) -> Result<Vec<bool>, ImportError> {
    if let Some(types) = config.texts("indexer_types", layers)? {
        return Ok(types.iter().map(|kind| *kind == "shared").collect());
    }
    let every = config.count_or(&["index_topk_freq"], 1)?.max(1);
    let first = config.count_or(&["index_skip_topk_offset"], 0)?;
    let shares = |layer: u64| layer >= first && (layer - first) % every != every - 1;
    Ok((0..layers as u64).map(shares).collect())
}

/// The latent attention that a file describes, and the bias parameters of its projections.
pub(super) fn latent(
    config: &Config,
    heads: u64,
    default_q_lora_rank: Option<u64>,
    default_v_head_dim: Option<u64>,
) -> Result<(LatentAttention, u64), ImportError> {
    let key = "q_lora_rank";
    let q_lora_rank = if config.states(key) { config.optional(&[key])? } else { default_q_lora_rank };
    let v_head_dim = match config.optional(&["v_head_dim"])? {
        Some(width) => width,
        None => default_v_head_dim.ok_or_else(|| config.missing(&["v_head_dim"], "a positive integer"))?,
    };
    let attention = LatentAttention {
        heads,
        q_lora_rank,
        kv_lora_rank: config.count(&["kv_lora_rank"])?,
        qk_nope_head_dim: config.count(&["qk_nope_head_dim"])?,
        qk_rope_head_dim: config.count(&["qk_rope_head_dim"])?,
        v_head_dim,
        output_gate: false,
        sparse: None,
    };
    let latent = attention.kv_lora_rank + attention.qk_rope_head_dim;
    let bias = if config.flag("attention_bias", false)? {
        q_lora_rank.unwrap_or(0) + latent + config.count(&["hidden_size"])?
    } else {
        0
    };
    Ok((attention, bias))
}

/// A layer with norms of the compressed queries and keys, and of the indexer's keys (with bias).
pub(super) fn latent_layer(shape: &Shape, attention: LatentAttention, bias: u64, feed_forward: FeedForward) -> Layer {
    let index_norm = attention.sparse.and_then(|sparse| sparse.indexer).map_or(0, |indexer| 2 * indexer.head_dim);
    Layer {
        vector_params: 2 * shape.hidden
            + attention.q_lora_rank.unwrap_or(0)
            + attention.kv_lora_rank
            + index_norm
            + bias,
        mixer: Mixer::LatentAttention(attention),
        feed_forward,
        extra: Vec::new(),
    }
}

/// The sparse selection of DeepSeek-V3.2 and its followers.
fn indexer(config: &Config) -> Result<Option<SparseSelection>, ImportError> {
    let Some(heads) = config.optional(&["index_n_heads"])? else { return Ok(None) };
    let indexer = Indexer { heads, head_dim: config.count(&["index_head_dim"])? };
    Ok(Some(SparseSelection { top_k: config.count(&["index_topk"])?, indexer: Some(indexer) }))
}

/// Compression beyond this ratio attends to all entries, below it an indexer selects some.
const DENSELY_ATTENDED_RATIO: u64 = 32;

/// DeepSeek-V4: a window, a compressed cache, and several residual streams mixed by small matrices (hyper-connections).
pub(super) fn deepseek_v4(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let moe = FeedForward::Moe(with_shared(config, config.count_or(&["n_shared_experts"], 0)?)?);
    let sparse = indexer(config)?;
    let streams = config.count_or(&["hc_mult"], 1)?;
    let attention = CompressedAttention {
        heads: shape.heads,
        head_dim: shape.head_dim,
        q_lora_rank: config.count(&["q_lora_rank"])?,
        o_groups: config.count(&["o_groups"])?,
        o_lora_rank: config.count(&["o_lora_rank"])?,
        window: config.count(&["sliding_window"])?,
        compress_ratio: 0,
        sparse: None,
    };
    let layer = |compress_ratio: u64, router_bias: bool| {
        let sparse = sparse.filter(|_| compress_ratio > 0 && compress_ratio < DENSELY_ATTENDED_RATIO);
        let attention = CompressedAttention { compress_ratio, sparse, ..attention.clone() };
        let layer = Layer {
            vector_params: compressed_vectors(&attention) + 2 * shape.hidden + 2 * hyper_vectors(streams),
            mixer: Mixer::CompressedAttention(attention),
            feed_forward: moe.clone(),
            extra: vec![Linear { copies: 2, ..mixing(streams, shape.hidden, (2 + streams).saturating_mul(streams)) }],
        };
        with_router_bias(layer, router_bias)
    };
    let ratios = compress_ratios(config, shape.layers)?;
    // The first layers route by a hash of the token: a table of experts instead of a router bias.
    let by_hash = match config.texts("mlp_layer_types", shape.layers)? {
        Some(kinds) => kinds.iter().map(|kind| *kind == "hash_moe").collect(),
        None => {
            let first = config.count_or(&["num_hash_layers"], 0)?;
            (0..shape.layers as u64).map(|layer| layer < first).collect::<Vec<_>>()
        }
    };
    let hashed = by_hash.iter().filter(|by_hash| **by_hash).count() as u64;
    let layers = ratios.iter().zip(&by_hash).map(|(ratio, by_hash)| layer(*ratio, !by_hash)).collect();
    let table = shape.vocab * config.count(&["num_experts_per_tok"])?;
    let lookup = hashed.checked_mul(table).ok_or_else(|| config.unsupported("a routing table of that size"))?;
    let modules = config.count_or(&["num_nextn_predict_layers"], 0)?;
    let merge = mixing(streams, shape.hidden, streams);
    let predictor = Layer { vector_params: layer(0, true).vector_params + streams + 1, ..layer(0, true) };
    let predictor = Layer { extra: [predictor.extra, vec![merge]].concat(), ..predictor };
    Ok(Architecture {
        lookup_params: lookup,
        global_linears: vec![merge],
        mtp: shape.mtp(config, modules, &[predictor], false)?,
        ..shape.build(layers, Style::LLAMA.final_vectors(&shape) + streams + 1)
    })
}

/// A list of ratios, or since transformers 5 the kind of every layer and the ratio of every kind.
fn compress_ratios(config: &Config, layers: usize) -> Result<Vec<u64>, ImportError> {
    if let Some(ratios) = config.counts("compress_ratios", layers)? {
        return Ok(ratios);
    }
    let key = "layer_types";
    let missing = || config.missing(&["compress_ratios", key], "a list with one entry per layer");
    let kinds = config.texts(key, layers)?.ok_or_else(missing)?;
    let rates = config.inner("compress_rates");
    let rate = |kind: &str, default: u64| rates.as_ref().map_or(Ok(default), |rates| rates.count_or(&[kind], default));
    let light = rate("compressed_sparse_attention", 4)?;
    let heavy = rate("heavily_compressed_attention", 128)?;
    let ratio = |kind: &str| match kind {
        "sliding_attention" => Ok(0),
        "compressed_sparse_attention" => Ok(light),
        "heavily_compressed_attention" => Ok(heavy),
        other => Err(config.invalid(key, &other.into(), "a kind of windowed or compressed attention")),
    };
    kinds.into_iter().map(ratio).collect()
}

/// Norms, attention sinks, and the positions and norms of the compressors.
fn compressed_vectors(attention: &CompressedAttention) -> u64 {
    let CompressedAttention { heads, head_dim, q_lora_rank, compress_ratio, sparse, .. } = attention;
    let common = q_lora_rank + head_dim + heads;
    let index_dim = sparse.and_then(|sparse| sparse.indexer).map_or(0, |indexer| indexer.head_dim);
    match (compress_ratio, sparse) {
        (0, _) => common,
        (ratio, None) => common + ratio * head_dim + head_dim,
        (ratio, Some(_)) => common + (2 * ratio + 1) * (head_dim + index_dim),
    }
}

fn mixing(streams: u64, hidden: u64, out: u64) -> Linear {
    Linear::new(TensorClass::OtherMatrix, streams * hidden, out, Split::Replicated)
}

fn hyper_vectors(streams: u64) -> u64 {
    (2 + streams).saturating_mul(streams) + 3
}
