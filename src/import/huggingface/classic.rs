//! Decoders in the line of GPT-2: layer norms with bias, plain or parallel feed-forward, learned positions.

use super::config::Config;
use super::shape::{Defaults, QkNorm, Shape, Style, full, reaches};
use crate::import::ImportError;
use crate::model::{Architecture, Reach};

type Read = Result<Architecture, ImportError>;

const INNER: &[&str] = &["n_inner", "intermediate_size", "ffn_dim", "ffn_hidden_size"];

fn tied(context: Option<u64>) -> Defaults {
    Defaults { tied: true, context, ..Defaults::default() }
}

/// GPT-2 and GPT-3: learned positions, output head tied.
pub(super) fn gpt2(config: &Config) -> Read {
    let shape = Shape::read(config, tied(None))?;
    if config.flag("add_cross_attention", false)? {
        return Err(config.unsupported("attention to an encoder (`add_cross_attention`)"));
    }
    with_positions(config, &shape, &Style::GPT, shape.context)
}

/// StarCoder (GPT-BigCode): GPT-2 with one key-value head.
pub(super) fn gpt_bigcode(config: &Config) -> Read {
    let shape = Shape::read(config, tied(None))?;
    let kv_heads = if config.flag("multi_query", true)? { 1 } else { shape.heads };
    let shape = Shape { kv_heads, ..shape };
    with_positions(config, &shape, &Style::GPT, shape.context)
}

/// OPT: GPT-2 with two more positions.
pub(super) fn opt(config: &Config) -> Read {
    let shape = Shape::read(config, tied(None))?;
    let bias = config.flag("enable_bias", true)?;
    let vectors = if config.flag("layer_norm_elementwise_affine", true)? { 2 } else { 0 };
    // Only models with the norm before each branch end with one.
    let last = config.flag("do_layer_norm_before", true)? && !config.flag("_remove_final_layer_norm", false)?;
    let final_norms = if last { vectors } else { 0 };
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias: bias, norms: 2 * vectors, final_norms, ..Style::GPT };
    let architecture = with_positions(config, &shape, &style, shape.context.saturating_add(2))?;
    let width = config.count_or(&["word_embed_proj_dim"], shape.hidden)?;
    if width == shape.hidden {
        return Ok(architecture);
    }
    Err(config.unsupported("an embedding narrower than the model (`word_embed_proj_dim`)"))
}

fn with_positions(config: &Config, shape: &Shape, style: &Style, positions: u64) -> Read {
    let lookup = positions.checked_mul(shape.hidden);
    let architecture = style.decoder(shape, &full(shape.layers), inner(config, shape)?);
    let lookup_params = lookup.ok_or_else(|| config.unsupported("a position table of that size"))?;
    Ok(Architecture { lookup_params, ..architecture })
}

/// BLOOM: no positions, a norm after the embedding.
pub(super) fn bloom(config: &Config) -> Read {
    let shape = Shape::read(config, tied(Some(2048)))?;
    let style = Style { final_norms: 4, ..Style::GPT };
    Ok(style.decoder(&shape, &full(shape.layers), 4 * shape.hidden))
}

/// GPT-NeoX and Pythia.
pub(super) fn gpt_neox(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", true)?;
    let style = Style { qkv_bias: bias, o_bias: bias, ..Style::GPT };
    Ok(style.decoder(&shape, &full(shape.layers), inner(config, &shape)?))
}

/// GPT-J: one norm for the parallel branches, a bias on the output head.
pub(super) fn gptj(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let style = Style { qkv_bias: false, o_bias: false, norms: 2, head_bias: true, ..Style::GPT };
    Ok(style.decoder(&shape, &full(shape.layers), inner(config, &shape)?))
}

/// GPT-Neo: every other layer has a window; queries, keys and values without bias.
pub(super) fn gpt_neo(config: &Config) -> Read {
    let shape = Shape::read(config, tied(None))?;
    let window = Reach::Window(config.count_or(&["window_size"], 256)?);
    let reaches = match config.texts("attention_layers", shape.layers)? {
        Some(kinds) => kinds.iter().map(|kind| if *kind == "local" { window } else { Reach::Full }).collect(),
        None => (0..shape.layers).map(|layer| if layer % 2 == 1 { window } else { Reach::Full }).collect::<Vec<_>>(),
    };
    let style = Style { qkv_bias: false, ..Style::GPT };
    let architecture = style.decoder(&shape, &reaches, inner(config, &shape)?);
    let lookup = shape.context.checked_mul(shape.hidden);
    let lookup_params = lookup.ok_or_else(|| config.unsupported("a position table of that size"))?;
    Ok(Architecture { lookup_params, ..architecture })
}

/// Persimmon: squared ReLU without gate, layer norms with bias, also of queries and keys.
pub(super) fn persimmon(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let qk_norm = if config.flag("qk_layernorm", true)? { QkNorm::PerHeadWithBias } else { QkNorm::None };
    let style = Style { qk_norm, ..Style::GPT };
    Ok(style.decoder(&shape, &full(shape.layers), inner(config, &shape)?))
}

/// StableLM: layer norms with bias around gated branches, one for both where they are parallel.
pub(super) fn stablelm(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let norms = if config.flag("use_parallel_residual", false)? { 2 } else { 4 };
    // Every head has a norm of its own.
    let qk_norm = if config.flag("qk_layernorm", false)? { QkNorm::AllHeads } else { QkNorm::None };
    let qkv_bias = config.flag("use_qkv_bias", false)?;
    let style = Style { qkv_bias, norms, final_norms: 2, qk_norm, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INNER)?))
}

/// Phi-1 and Phi-2: one norm for the parallel branches, bias everywhere.
pub(super) fn phi(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let qk_norm = if config.flag("qk_layernorm", false)? { QkNorm::PerHeadWithBias } else { QkNorm::None };
    let style = Style { norms: 2, qk_norm, head_bias: true, ..Style::GPT };
    Ok(style.decoder(&shape, &full(shape.layers), inner(config, &shape)?))
}

/// Falcon: multi-query in the first format, grouped-query in the new one; layer norms with bias.
pub(super) fn falcon(config: &Config) -> Read {
    let shape = Shape::read(config, tied(Some(2048)))?;
    let new = config.flag("new_decoder_architecture", false)?;
    let kv_heads = match (new, config.flag("multi_query", true)?) {
        (true, _) => config.count_or(&["num_kv_heads", "num_key_value_heads", "n_head_kv"], shape.heads)?,
        (false, true) => 1,
        (false, false) => shape.heads,
    };
    let bias = config.flag("bias", false)?;
    let parallel = config.flag("parallel_attn", true)?;
    let two_norms = if new { config.count_or(&["num_ln_in_parallel_attn"], 2)? == 2 } else { !parallel };
    let norms = if two_norms { 4 } else { 2 };
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias: bias, norms, ..Style::GPT };
    let shape = Shape { kv_heads, ..shape };
    Ok(style.decoder(&shape, &full(shape.layers), inner(config, &shape)?))
}

/// MPT: norms without bias, ALiBi positions.
pub(super) fn mpt(config: &Config) -> Read {
    let shape = Shape::read(config, tied(None))?;
    if !config.flag("no_bias", true)? {
        return Err(config.unsupported("an MPT model with bias (`no_bias = false`)"));
    }
    let kv_heads = match config.inner("attn_config") {
        Some(attention) if attention.text("attn_type")? == Some("multiquery_attention") => 1,
        Some(attention) => attention.count_or(&["kv_n_heads"], shape.heads)?,
        None => shape.heads,
    };
    let style = Style { qkv_bias: false, o_bias: false, mlp_bias: false, norms: 2, final_norms: 1, ..Style::GPT };
    let intermediate = shape.hidden.saturating_mul(config.count_or(&["expansion_ratio"], 4)?);
    Ok(style.decoder(&Shape { kv_heads, ..shape }, &full(shape.layers), intermediate))
}

/// StarCoder2: rotary positions, windows in every layer where the file states one.
pub(super) fn starcoder2(config: &Config) -> Read {
    let shape = Shape::read(config, tied(None))?;
    let bias = config.flag("use_bias", true)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias: bias, ..Style::GPT };
    let reaches = reaches(config, shape.layers, config.optional(&["sliding_window"])?, |_| true)?;
    Ok(style.decoder(&shape, &reaches, inner(config, &shape)?))
}

/// Nemotron-4 and Minitron: squared-ReLU feed-forward without gate, layer norms with bias, no other bias.
pub(super) fn nemotron(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let mlp_bias = config.flag("mlp_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias, ..Style::GPT };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INNER)?))
}

/// PaLM (arXiv 2204.02311): one key-value head, gated feed-forward, one norm for the parallel branches.
pub(super) fn palm(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { kv_heads: Some(1), ..tied(None) })?;
    let style = Style { norms: 1, qk_norm: QkNorm::None, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INNER)?))
}

fn inner(config: &Config, shape: &Shape) -> Result<u64, ImportError> {
    config.count_or(INNER, 4 * shape.hidden)
}
