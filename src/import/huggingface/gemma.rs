//! The Gemma families. Google's files leave out what equals the defaults of their configuration classes.

use super::config::Config;
use super::dense::{every_but_last_of, stated_or};
use super::moe::with_router_bias;
use super::shape::{Defaults, QkNorm, Shape, Style, full, reaches};
use crate::format::TensorClass;
use crate::import::ImportError;
use crate::model::{Architecture, Attention, FeedForward, KvSource, Layer, Linear, Mixer, Moe, Reach, Split};

type Read = Result<Architecture, ImportError>;

fn defaults(vocab: u64, context: u64) -> Defaults {
    Defaults { tied: true, head_dim: Some(256), vocab: Some(vocab), context: Some(context), ..Defaults::default() }
}

fn style(config: &Config, norms: u64, qk_norm: QkNorm) -> Result<Style, ImportError> {
    let bias = config.flag("attention_bias", false)?;
    Ok(Style { qkv_bias: bias, o_bias: bias, norms, qk_norm, ..Style::LLAMA })
}

/// Gemma.
pub(super) fn gemma(config: &Config) -> Read {
    let shape = Shape::read(config, defaults(256_000, 8192))?;
    let intermediate = config.count(&["intermediate_size"])?;
    Ok(style(config, 2, QkNorm::None)?.decoder(&shape, &full(shape.layers), intermediate))
}

/// Gemma 2: every other layer has a window.
pub(super) fn gemma2(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { kv_heads: Some(4), ..defaults(256_000, 8192) })?;
    let window = stated_or(config, "sliding_window", 4096)?;
    let reaches = reaches(config, shape.layers, window, |layer| layer % 2 == 0)?;
    Ok(style(config, 4, QkNorm::None)?.decoder(&shape, &reaches, config.count(&["intermediate_size"])?))
}

/// Gemma 3: five of six layers have a window.
pub(super) fn gemma3(config: &Config) -> Read {
    let defaults = Defaults { heads: Some(8), kv_heads: Some(4), ..defaults(262_208, 131_072) };
    let shape = Shape::read(config, defaults)?;
    let window = stated_or(config, "sliding_window", 4096)?;
    let every = config.count_or(&["sliding_window_pattern", "_sliding_window_pattern"], 6)?;
    let reaches = reaches(config, shape.layers, window, every_but_last_of(every))?;
    Ok(style(config, 4, QkNorm::PerHead)?.decoder(&shape, &reaches, config.count(&["intermediate_size"])?))
}

fn without_bias(config: &Config) -> Result<(), ImportError> {
    if config.flag("attention_bias", false)? {
        return Err(config.unsupported("attention with bias (`attention_bias`)"));
    }
    Ok(())
}

fn matrix(inputs: u64, outputs: u64) -> Linear {
    Linear::new(TensorClass::OtherMatrix, inputs, outputs, Split::Replicated)
}

/// Table of per-layer embeddings, `vocabulary x layers x width`.
fn per_layer_table(config: &Config, shape: &Shape, width: u64) -> Result<u64, ImportError> {
    let rows = config.count_or(&["vocab_size_per_layer_input"], 262_144)?;
    let table = rows.checked_mul(shape.layers as u64).and_then(|size| size.checked_mul(width));
    table.ok_or_else(|| config.unsupported("a table of per-layer embeddings of that size"))
}

/// The projection from the hidden state to all per-layer inputs.
fn per_layer_projection(shape: &Shape, width: u64) -> Linear {
    matrix(shape.hidden, shape.layers as u64 * width)
}

/// Gemma 3n: per-layer embeddings, low-rank residuals (LAuReL), alternating updates of parallel streams (AltUp), the last layers
/// reading the caches of earlier ones.
pub(super) fn gemma3n(config: &Config) -> Read {
    let defaults = Defaults { heads: Some(8), kv_heads: Some(2), ..defaults(262_400, 32_768) };
    let shape = Shape::read(config, defaults)?;
    without_bias(config)?;
    let hidden = shape.hidden;
    let window = stated_or(config, "sliding_window", 512)?;
    let reaches = reaches(config, shape.layers, window, every_but_last_of(5))?;
    let widths = config.per_layer(&["intermediate_size"], shape.layers)?;
    let widths = widths.unwrap_or_else(|| vec![16_384; shape.layers]);
    let per_layer = config.count_or(&["hidden_size_per_layer_input"], 256)?;
    let rank = config.count_or(&["laurel_rank"], 64)?;
    let streams = config.count_or(&["altup_num_inputs"], 4)?;
    let shared = config.count_or(&["num_kv_shared_layers"], 15)?;
    let extra = vec![
        matrix(hidden, rank),
        matrix(rank, hidden),
        matrix(hidden, per_layer),
        matrix(per_layer, hidden),
        matrix(hidden, streams),
        matrix(streams, streams * streams),
        matrix(streams, streams),
    ];
    let layers = reaches.iter().zip(widths).enumerate().map(|(index, (reach, intermediate))| {
        let kv = if index as u64 + shared >= shape.layers as u64 { KvSource::Shared } else { KvSource::Own };
        let key_norm = if kv == KvSource::Own { shape.head_dim } else { 0 };
        Layer {
            mixer: Mixer::Attention(Attention { kv, ..shape.attention(*reach) }),
            feed_forward: FeedForward::Dense { intermediate, gated: true },
            extra: extra.clone(),
            // Four norms around the branches, then those of LAuReL, the per-layer input, AltUp's router and its output scale.
            vector_params: 8 * hidden + shape.head_dim + key_norm,
        }
    });
    // The published checkpoints hold keys, values and key norms of the layers that read other caches: stored, never read.
    let unused = shared.min(shape.layers as u64) * (2 * hidden * shape.kv_heads + 1) * shape.head_dim;
    let streams_in_and_out = Linear { copies: 2 * streams.saturating_sub(1), ..matrix(hidden, hidden) };
    Ok(Architecture {
        lookup_params: per_layer_table(config, &shape, per_layer)? + unused,
        global_linears: vec![per_layer_projection(&shape, per_layer), streams_in_and_out],
        ..shape.build(layers.collect(), hidden + per_layer)
    })
}

/// Gemma 4: global layers with wider heads whose keys may serve as values, in some models experts beside the dense branch, in
/// others per-layer embeddings and shared caches.
pub(super) fn gemma4(config: &Config) -> Read {
    let shape = Shape::read(config, defaults(262_144, 131_072))?;
    without_bias(config)?;
    let window = stated_or(config, "sliding_window", 512)?;
    let reaches = reaches(config, shape.layers, window, every_but_last_of(6))?;
    let per_layer = config.count_or(&["hidden_size_per_layer_input"], 0)?;
    let layers: Result<Vec<Layer>, ImportError> = reaches
        .iter()
        .enumerate()
        .map(|(index, reach)| gemma4_layer(config, &shape, index, *reach, per_layer))
        .collect();
    if per_layer == 0 {
        return Ok(shape.build(layers?, shape.hidden));
    }
    Ok(Architecture {
        lookup_params: per_layer_table(config, &shape, per_layer)?,
        global_linears: vec![per_layer_projection(&shape, per_layer)],
        ..shape.build(layers?, shape.hidden + per_layer)
    })
}

fn gemma4_layer(
    config: &Config,
    shape: &Shape,
    index: usize,
    reach: Reach,
    per_layer: u64,
) -> Result<Layer, ImportError> {
    let hidden = shape.hidden;
    let shared = config.count_or(&["num_kv_shared_layers"], 0)?;
    let reads_shared = index as u64 + shared >= shape.layers as u64;
    let attention = gemma4_attention(config, shape, index, reach, reads_shared)?;
    let doubled = reads_shared && config.flag("use_double_wide_mlp", false)?;
    let dense = config.count(&["intermediate_size"])?.saturating_mul(if doubled { 2 } else { 1 });
    // Norms of keys, of queries and around the branches, and the layer's scale.
    let key_norm = if reads_shared { 0 } else { attention.head_dim };
    let mut vector_params = 4 * hidden + 1 + attention.head_dim + key_norm;
    let mut extra = Vec::new();
    if per_layer > 0 {
        extra = vec![matrix(hidden, per_layer), matrix(per_layer, hidden)];
        vector_params += hidden;
    }
    let feed_forward = if config.flag("enable_moe_block", false)? {
        // Three norms more, and the scale of the router's input.
        vector_params += 4 * hidden;
        FeedForward::Moe(Moe {
            experts: config.count(&["num_experts"])?,
            experts_per_token: config.count(&["top_k_experts", "num_experts_per_tok"])?,
            intermediate: config.count(&["moe_intermediate_size", "expert_intermediate_size"])?,
            gated: true,
            shared_intermediate: Some(dense),
            latent_size: None,
            vector_params_per_expert: 0,
            shared_gate: false,
        })
    } else {
        FeedForward::Dense { intermediate: dense, gated: true }
    };
    // Experts have a learned scale each, counted like a router bias.
    Ok(with_router_bias(Layer { mixer: Mixer::Attention(attention), feed_forward, extra, vector_params }, true))
}

fn gemma4_attention(
    config: &Config,
    shape: &Shape,
    index: usize,
    reach: Reach,
    reads_shared: bool,
) -> Result<Attention, ImportError> {
    let own = config.inner("per_layer_config");
    let own = own.as_ref().and_then(|layers| layers.inner(&format!("{index:02}")));
    let is_global = reach == Reach::Full;
    let key_is_value = is_global && config.flag("attention_k_eq_v", false)?;
    let mut kv_heads = shape.kv_heads;
    let mut head_dim = shape.head_dim;
    if is_global {
        head_dim = config.count_or(&["global_head_dim"], head_dim)?;
    }
    if key_is_value {
        kv_heads = config.count_or(&["num_global_key_value_heads"], kv_heads)?;
    }
    if let Some(own) = own {
        head_dim = own.count_or(&["head_dim"], head_dim)?;
        kv_heads = own.count_or(&["num_key_value_heads"], kv_heads)?;
    }
    let kv = match (reads_shared, key_is_value) {
        (true, _) => KvSource::Shared,
        (false, true) => KvSource::KeyIsValue,
        (false, false) => KvSource::Own,
    };
    Ok(Attention { head_dim, kv_heads, kv, ..shape.attention(reach) })
}
