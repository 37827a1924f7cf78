//! First-generation state spaces, and stacks of attention with short convolutions, Mamba-2 or delta nets beside dense branches.

use super::config::Config;
use super::hybrid::{Mamba2, UNBOUNDED_CONTEXT, gated_delta, kernel, mixers};
use super::moe::{experts, with_router_bias};
use super::shape::{Defaults, QkNorm, Shape, Style};
use crate::import::ImportError;
use crate::model::{Architecture, FeedForward, Layer, Mixer, Moe, Reach, Recurrent};

type Read = Result<Architecture, ImportError>;

/// Mamba, in the format of transformers or of the state-spaces repository, and Falcon Mamba.
pub(super) fn mamba(config: &Config) -> Read {
    let defaults = Defaults { tied: true, context: Some(UNBOUNDED_CONTEXT), ..Defaults::default() };
    let shape = Shape::without_attention(config, defaults)?;
    let pad = config.count_or(&["pad_vocab_size_multiple"], 1)?.max(1);
    let shape = Shape { vocab: shape.vocab.next_multiple_of(pad), ..shape };
    let nested = config.inner("ssm_cfg");
    let sizes = nested.as_ref().unwrap_or(config);
    let expanded = sizes.count_or(&["expand"], 2)?.saturating_mul(shape.hidden);
    let mixer = Mamba1 {
        inner: config.count_or(&["intermediate_size", "d_inner"], expanded)?,
        state: sizes.count_or(&["state_size", "d_state"], 16)?,
        conv_kernel: sizes.count_or(&["conv_kernel", "d_conv"], 4)?,
        dt_rank: dt_rank(sizes, &["time_step_rank", "dt_rank"], shape.hidden)?,
        conv_bias: config.flag("use_conv_bias", true)?,
        bias: config.flag("use_bias", false)?,
        inner_norms: false,
    };
    let layer = mixer.layer(config, shape.hidden)?;
    Ok(shape.build(vec![layer; shape.layers], shape.hidden))
}

/// The rank of the time step: a number, or `auto`.
fn dt_rank(config: &Config, keys: &[&str], hidden: u64) -> Result<u64, ImportError> {
    let automatic = |key: &&str| config.value(key).and_then(serde_json::Value::as_str) == Some("auto");
    if keys.iter().any(automatic) { Ok(hidden.div_ceil(16)) } else { config.count_or(keys, hidden.div_ceil(16)) }
}

/// Sizes of a first-generation state-space layer as files state them.
struct Mamba1 {
    inner: u64,
    state: u64,
    conv_kernel: u64,
    dt_rank: u64,
    conv_bias: bool,
    bias: bool,
    /// Norms of the time step and of input and output maps, as in Jamba.
    inner_norms: bool,
}

impl Mamba1 {
    /// A layer of norm and mixer; its vectors are the convolution, decay rates, skips and time-step biases.
    fn layer(&self, config: &Config, hidden: u64) -> Result<Layer, ImportError> {
        let Self { inner, state, conv_kernel, dt_rank, .. } = *self;
        let decay = inner.checked_mul(state).ok_or_else(|| config.unsupported("a state of that size"))?;
        let biases = if self.conv_bias { inner } else { 0 } + if self.bias { 2 * inner + hidden } else { 0 };
        let norms = hidden + if self.inner_norms { dt_rank + 2 * state } else { 0 };
        let vectors = decay.checked_add(kernel(config, inner, conv_kernel)?);
        let vectors = vectors.and_then(|sum| sum.checked_add(2 * inner + biases + norms));
        Ok(Layer {
            mixer: Mixer::Recurrent(Recurrent::Mamba1 { inner, state, conv_kernel, dt_rank }),
            feed_forward: FeedForward::None,
            extra: Vec::new(),
            vector_params: vectors.ok_or_else(|| config.unsupported("a state of that size"))?,
        })
    }
}

/// Jamba: first-generation state-space layers, attention once per period, experts in every other layer.
pub(super) fn jamba(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { kv_heads: Some(8), ..Defaults::default() })?;
    let width = config.count(&["intermediate_size"])?;
    let dense = FeedForward::Dense { intermediate: width, gated: true };
    let moe = if config.count_or(&["num_experts"], 16)? > 1 {
        FeedForward::Moe(experts(config, width)?)
    } else {
        dense.clone()
    };
    let full = Style::LLAMA.layer(shape.hidden, shape.attention(Reach::Full), FeedForward::None);
    let mamba = Mamba1 {
        inner: config.count_or(&["mamba_expand"], 2)?.saturating_mul(shape.hidden),
        state: config.count_or(&["mamba_d_state"], 16)?,
        conv_kernel: config.count_or(&["mamba_d_conv"], 4)?,
        dt_rank: dt_rank(config, &["mamba_dt_rank"], shape.hidden)?,
        conv_bias: config.flag("mamba_conv_bias", true)?,
        bias: config.flag("mamba_proj_bias", false)?,
        inner_norms: true,
    };
    let mamba = mamba.layer(config, shape.hidden)?;
    // Every layer has a norm before its feed-forward, which `full` counts already.
    let mamba = Layer { vector_params: mamba.vector_params.saturating_add(shape.hidden), ..mamba };
    let period = |name: &str, period: u64, offset: u64| -> Result<(u64, u64), ImportError> {
        let every = config.count_or(&[&format!("{name}_layer_period")], period)?;
        Ok((every, config.count_or(&[&format!("{name}_layer_offset")], offset)?))
    };
    let (attention, expert) = (period("attn", 8, 4)?, period("expert", 2, 1)?);
    let hits = |(every, offset): (u64, u64), index: usize| (index as u64).checked_rem(every) == Some(offset);
    let layers = (0..shape.layers).map(|index| {
        let layer = if hits(attention, index) { full.clone() } else { mamba.clone() };
        Layer { feed_forward: if hits(expert, index) { moe.clone() } else { dense.clone() }, ..layer }
    });
    Ok(shape.build(layers.collect(), shape.hidden))
}

/// Bamba: Mamba-2 with attention in the listed layers, a dense branch in all.
pub(super) fn bamba(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { kv_heads: Some(8), ..Defaults::default() })?;
    let mlp_bias = config.flag("mlp_bias", false)?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias, ..Style::LLAMA };
    let intermediate = config.count(&["intermediate_size"])?;
    let dense = FeedForward::Dense { intermediate, gated: true };
    let full = style.layer(shape.hidden, shape.attention(Reach::Full), dense.clone());
    let ssm = Mamba2::of_transformers(config, &shape, config.count_or(&["mamba_n_heads"], 128)?)?;
    let recurrent = ssm.layer(config, &shape)?;
    let branch = shape.hidden + if mlp_bias { 2 * intermediate + shape.hidden } else { 0 };
    let recurrent =
        Layer { feed_forward: dense, vector_params: recurrent.vector_params.saturating_add(branch), ..recurrent };
    let listed = config.indices("attn_layer_indices")?.unwrap_or_default();
    let layer = |index: usize| if listed.contains(&(index as u64)) { full.clone() } else { recurrent.clone() };
    Ok(shape.build((0..shape.layers).map(layer).collect(), shape.hidden))
}

/// LFM2: gated short convolutions with attention in some layers; in its mixtures the first layers are dense.
pub(super) fn lfm2(config: &Config) -> Read {
    let dense = FeedForward::Dense { intermediate: lfm2_width(config)?, gated: true };
    lfm2_stack(config, &dense, &dense, 0)
}

/// LFM2 mixtures, with a bias per expert.
pub(super) fn lfm2_moe(config: &Config) -> Read {
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let moe = FeedForward::Moe(Moe { ..experts(config, config.count(&["moe_intermediate_size"])?)? });
    lfm2_stack(config, &dense, &moe, config.count_or(&["num_dense_layers"], 2)?)
}

fn lfm2_stack(config: &Config, first: &FeedForward, rest: &FeedForward, first_layers: u64) -> Read {
    let shape = Shape::read(config, Defaults { tied: true, kv_heads: Some(8), ..Defaults::default() })?;
    let shape = Shape { tied: config.flag("tie_embedding", shape.tied)?, ..shape };
    let expert_bias = config.flag("use_expert_bias", true)?;
    let style = Style { qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    let conv_kernel = config.count_or(&["conv_L_cache"], 3)?;
    let biases = if config.flag("conv_bias", false)? { 5 * shape.hidden } else { 0 };
    let convolution = Layer {
        mixer: Mixer::Recurrent(Recurrent::ShortConvolution { width: shape.hidden, conv_kernel }),
        feed_forward: FeedForward::None,
        extra: Vec::new(),
        vector_params: kernel(config, shape.hidden, conv_kernel)? + 2 * shape.hidden + biases,
    };
    let full = style.layer(shape.hidden, shape.attention(Reach::Full), FeedForward::None);
    let listed = config.indices("full_attn_idxs")?;
    let is_full = |index: usize| listed.as_ref().is_none_or(|listed| listed.contains(&(index as u64)));
    let which = mixers(config, "layer_types", &shape, "full_attention", "conv", is_full)?;
    let layers = which.into_iter().enumerate().map(|(index, is_full)| {
        let layer = if is_full { full.clone() } else { convolution.clone() };
        let feed_forward = if (index as u64) < first_layers { first.clone() } else { rest.clone() };
        with_router_bias(Layer { feed_forward, ..layer }, expert_bias)
    });
    Ok(shape.build(layers.collect(), shape.hidden))
}

/// Two thirds of the stated width times a factor, rounded up, unless the file says that the width is final.
fn lfm2_width(config: &Config) -> Result<u64, ImportError> {
    let stated = config.count(&["block_ff_dim", "intermediate_size"])?;
    if !config.flag("block_auto_adjust_ff_dim", true)? {
        return Ok(stated);
    }
    let reduced = 2 * stated / 3;
    let key = "block_ffn_dim_multiplier";
    let one = serde_json::json!(1.0);
    let factor = match config.value(key) {
        None if config.states(key) => return Ok(reduced),
        factor => factor.unwrap_or(&one),
    };
    let number = factor.as_f64().filter(|number| *number > 0.0 && *number <= 1024.0);
    let number = number.ok_or_else(|| config.invalid(key, factor, "a positive number up to 1024"))?;
    let multiple = config.count_or(&["block_multiple_of"], 256)?.max(1);
    Ok(((number * reduced as f64) as u64).next_multiple_of(multiple))
}

/// OLMo Hybrid: delta nets with attention in every fourth layer, dense branches; norms of queries and keys over all heads.
pub(super) fn olmo_hybrid(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::AllHeads, ..Style::LLAMA };
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let full = style.layer(shape.hidden, shape.attention(Reach::Full), dense.clone());
    let (delta, vectors) = gated_delta(config)?;
    let vector_params = vectors + 2 * shape.hidden;
    let linear = Layer { mixer: Mixer::Recurrent(delta), feed_forward: dense, extra: Vec::new(), vector_params };
    let which = mixers(config, "layer_types", &shape, "full_attention", "linear_attention", |index| index % 4 == 3)?;
    let layers = which.into_iter().map(|is_full| if is_full { full.clone() } else { linear.clone() });
    Ok(shape.build(layers.collect(), shape.hidden))
}
