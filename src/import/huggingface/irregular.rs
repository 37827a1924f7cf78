//! Stacks whose layers differ in more than their reach.

use super::config::Config;
use super::moe::{CHOSEN, EXPERT_WIDTH, EXPERTS, SHARED, experts, moe_layers, with_router_bias};
use super::shape::{Defaults, QkNorm, Shape, Style, reaches};
use crate::format::TensorClass;
use crate::import::ImportError;
use crate::model::{Architecture, Attention, FeedForward, KvSource, Layer, Linear, Mixer, Moe, Reach, Split};

type Read = Result<Architecture, ImportError>;

/// MiMo-V2-Flash: windowed and global layers with different heads, keys wider than values, sinks in some.
pub(super) fn mimo_v2(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let stated = config.counts("hybrid_layer_pattern", shape.layers)?;
    let renamed = stated.is_none();
    let is_windowed: Vec<bool> = match (stated, config.states("layer_types")) {
        (Some(pattern), _) => pattern.iter().map(|flag| *flag != 0).collect(),
        (None, true) => {
            let window = config.optional(&["sliding_window"])?;
            let reaches = reaches(config, shape.layers, window, |_| false)?;
            reaches.iter().map(|reach| *reach != Reach::Full).collect()
        }
        (None, false) => {
            return Err(config.missing(&["hybrid_layer_pattern", "layer_types"], "which layers have a window"));
        }
    };
    let windowed = mimo_attention(config, &shape, true, renamed)?;
    let global = mimo_attention(config, &shape, false, renamed)?;
    let shared = config.count_or(&["n_shared_experts"], 0)?;
    let width = config.count(&["moe_intermediate_size"])?;
    let moe = experts(config, width)?;
    let moe = FeedForward::Moe(Moe { shared_intermediate: (shared > 0).then_some(shared * width), ..moe });
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, ..Style::LLAMA };
    let is_moe = moe_layers(config, shape.layers, u64::from(renamed))?;
    let layers = is_windowed.into_iter().zip(is_moe).map(|(is_windowed, is_moe)| {
        let (attention, sinks) = if is_windowed { &windowed } else { &global };
        let feed_forward = if is_moe { moe.clone() } else { dense.clone() };
        let layer = style.layer(shape.hidden, attention.clone(), feed_forward);
        with_router_bias(Layer { vector_params: layer.vector_params + sinks, ..layer }, true)
    });
    Ok(shape.build(layers.collect(), shape.hidden))
}

/// One kind of attention and its number of sinks. Files of transformers 5 (`renamed`) leave out what its code fixes: windowed
/// layers have twice the key-value heads, and sinks.
fn mimo_attention(
    config: &Config,
    shape: &Shape,
    windowed: bool,
    renamed: bool,
) -> Result<(Attention, u64), ImportError> {
    let global_values = config.count_or(&["v_head_dim"], shape.head_dim)?;
    if !windowed {
        let attention = Attention { v_head_dim: Some(global_values), ..shape.attention(Reach::Full) };
        let sinks = config.flag("add_full_attention_sink_bias", false)?;
        return Ok((attention, if sinks { shape.heads } else { 0 }));
    }
    let heads = config.count_or(&["swa_num_attention_heads"], shape.heads)?;
    let kv_heads = if renamed { 2 * shape.kv_heads } else { shape.kv_heads };
    let attention = Attention {
        heads,
        kv_heads: config.count_or(&["swa_num_key_value_heads"], kv_heads)?,
        head_dim: config.count_or(&["swa_head_dim"], shape.head_dim)?,
        v_head_dim: Some(config.count_or(&["swa_v_head_dim"], global_values)?),
        reach: Reach::Window(config.count(&["sliding_window", "sliding_window_size"])?),
        ..shape.attention(Reach::Full)
    };
    let sinks = config.flag("add_swa_attention_sink_bias", renamed)?;
    Ok((attention, if sinks { heads } else { 0 }))
}

/// Step-3.5 and Step-3.7: windowed layers with more heads than global ones, a gate per head, dense first layers.
pub(super) fn step3p5(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let reaches = reaches(config, shape.layers, config.optional(&["sliding_window"])?, |_| false)?;
    let windowed = windowed_shape(config, &shape)?;
    let gated = config.flag("use_head_wise_attn_gate", false)?;
    let style = Style { qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    let shared = config.optional(&["share_expert_dim", "share_expert_dims"])?.filter(|width| *width > 0);
    let moe = experts(config, config.count(&["moe_intermediate_size"])?)?;
    let moe = FeedForward::Moe(Moe { shared_intermediate: shared, ..moe });
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let router_bias = config.flag("use_moe_router_bias", false)?;
    let is_moe = step_moe_layers(config, shape.layers)?;
    let layers = reaches.iter().zip(is_moe).map(|(reach, is_moe)| {
        let attention = if *reach == Reach::Full { shape.attention(*reach) } else { windowed.attention(*reach) };
        let gate = Linear::new(TensorClass::OtherMatrix, shape.hidden, attention.heads, Split::Output);
        let layer = style.layer(shape.hidden, attention, if is_moe { moe.clone() } else { dense.clone() });
        with_router_bias(Layer { extra: if gated { vec![gate] } else { Vec::new() }, ..layer }, router_bias)
    });
    Ok(shape.build(layers.collect(), shape.hidden))
}

fn windowed_shape(config: &Config, shape: &Shape) -> Result<Shape, ImportError> {
    let heads = config.count_or(&["num_sliding_attention_heads"], shape.heads)?;
    let Some(other) = config.inner("attention_other_setting") else { return Ok(Shape { heads, ..*shape }) };
    Ok(Shape {
        heads: other.count_or(&["num_attention_heads"], heads)?,
        kv_heads: other.count_or(&["num_attention_groups"], shape.kv_heads)?,
        head_dim: other.count_or(&["head_dim"], shape.head_dim)?,
        ..*shape
    })
}

/// `moe_layers_enum` is a text such as `3,4,5`; without it all layers but the first are mixtures.
fn step_moe_layers(config: &Config, layers: usize) -> Result<Vec<bool>, ImportError> {
    let key = "moe_layers_enum";
    let listed: Vec<usize> = match config.value(key) {
        None => return moe_layers(config, layers, 1),
        Some(serde_json::Value::String(list)) => {
            let numbers: Result<Vec<usize>, _> = list.split(',').map(|number| number.trim().parse()).collect();
            numbers.map_err(|_| config.invalid(key, &list.clone().into(), "layer numbers separated by commas"))?
        }
        Some(_) => config.indices(key)?.unwrap_or_default().iter().map(|index| *index as usize).collect(),
    };
    Ok((0..layers).map(|layer| listed.contains(&layer)).collect())
}

/// Nemotron models found by architecture search: attention or feed-forward removed or replaced by a matrix, layer by layer.
pub(super) fn nemotron_nas(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let key = "block_configs";
    let blocks = config.value(key).and_then(serde_json::Value::as_array).filter(|blocks| blocks.len() == shape.layers);
    let blocks = blocks.ok_or_else(|| config.missing(&[key], "a list with one object per layer"))?;
    let mut layers = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.iter().enumerate() {
        let block = config.entry(key, index, block)?;
        let (mixer, feed_forward) = (nas_mixer(&block, &shape)?, nas_feed_forward(&block, &shape)?);
        // Each part that is there has a norm before it.
        let parts = u64::from(mixer != Mixer::None) + u64::from(feed_forward != FeedForward::None);
        layers.push(Layer { mixer, feed_forward, extra: Vec::new(), vector_params: parts * shape.hidden });
    }
    Ok(shape.build(layers, shape.hidden))
}

fn nas_mixer(block: &Config, shape: &Shape) -> Result<Mixer, ImportError> {
    let Some(attention) = block.inner("attention") else { return Err(block.missing(&["attention"], "an object")) };
    if attention.flag("no_op", false)? {
        return Ok(Mixer::None);
    }
    if attention.flag("replace_with_linear", false)? {
        return Ok(Mixer::Linear);
    }
    let group = attention.count(&["n_heads_in_group"])?;
    let kv_heads = shape.heads.checked_div(group).unwrap_or(0);
    let window = attention.optional(&["window_length"])?;
    let reach = window.map_or(Reach::Full, Reach::Window);
    Ok(Mixer::Attention(Attention { kv_heads, ..shape.attention(reach) }))
}

fn nas_feed_forward(block: &Config, shape: &Shape) -> Result<FeedForward, ImportError> {
    let Some(ffn) = block.inner("ffn") else { return Err(block.missing(&["ffn"], "an object")) };
    if ffn.flag("no_op", false)? {
        return Ok(FeedForward::None);
    }
    if ffn.flag("replace_with_linear", false)? {
        return Ok(FeedForward::Linear);
    }
    if let Some(intermediate) = ffn.optional(&["intermediate_size"])? {
        return Ok(FeedForward::Dense { intermediate, gated: true });
    }
    let multiple = ffn.value("ffn_mult").ok_or_else(|| ffn.missing(&["ffn_mult"], "a positive number"))?;
    let number = multiple.as_f64().filter(|number| *number > 0.0 && *number < 1024.0);
    let number = number.ok_or_else(|| ffn.invalid("ffn_mult", multiple, "a positive number below 1024"))?;
    // Two thirds of the multiple, rounded up to 256, as in Llama.
    let intermediate = ((2.0 * number * shape.hidden as f64 / 3.0) as u64).next_multiple_of(256);
    Ok(FeedForward::Dense { intermediate, gated: true })
}

/// The text decoder of Llama 3.2 Vision. Its layers of attention to the image keep nothing of the text: their projections are
/// counted, their cache is not.
pub(super) fn mllama(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let own = Style::LLAMA.layer(shape.hidden, shape.attention(Reach::Full), dense.clone());
    let mut projections = Vec::new();
    shape.attention(Reach::Full).linears(shape.hidden, &mut projections);
    // Norms of queries and keys, and a scalar gate after each branch.
    let vector_params = 2 * shape.hidden + 2 * shape.head_dim + 2;
    let to_image = Layer { mixer: Mixer::None, feed_forward: dense, extra: projections, vector_params };
    let key = "cross_attention_layers";
    let which = config.indices(key)?.ok_or_else(|| config.missing(&[key], "a list of layer numbers"))?;
    let layer = |index| if which.contains(&index) { to_image.clone() } else { own.clone() };
    let layers = (0..shape.layers as u64).map(layer).collect();
    // Embeddings of eight special tokens have no row in the output head.
    Ok(Architecture { lookup_params: 8 * shape.hidden, ..shape.build(layers, shape.hidden) })
}

/// Hunyuan mixtures: numbers of experts and widths may be given per layer.
pub(super) fn hunyuan_moe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let qk_norm = if config.flag("use_qk_norm", true)? { QkNorm::PerHead } else { QkNorm::None };
    // Layers in between read the cache of the first of their group.
    let group = if config.flag("use_cla", false)? { config.count_or(&["cla_share_factor"], 1)?.max(1) } else { 1 };
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm, ..Style::LLAMA };
    let required = |keys: &[&str]| {
        config.per_layer(keys, shape.layers)?.ok_or_else(|| config.missing(keys, "an integer, or one per layer"))
    };
    let (count, chosen, width) = (required(EXPERTS)?, required(CHOSEN)?, required(EXPERT_WIDTH)?);
    let shared = config.per_layer(SHARED, shape.layers)?.unwrap_or_else(|| vec![1; shape.layers]);
    let shares = (0..).map(|layer: u64| !layer.is_multiple_of(group));
    let layers = count.iter().zip(chosen).zip(width).zip(shared).zip(shares);
    let layers = layers.map(|((((experts, chosen), width), shared), shares)| {
        let moe = Moe {
            experts: *experts,
            experts_per_token: chosen,
            intermediate: width,
            gated: true,
            shared_intermediate: (shared > 0).then_some(shared * width),
            latent_size: None,
            vector_params_per_expert: 0,
            shared_gate: false,
        };
        let kv = if shares { KvSource::Shared } else { KvSource::Own };
        let attention = Attention { kv, ..shape.attention(Reach::Full) };
        style.layer(shape.hidden, attention, FeedForward::Moe(moe))
    });
    Ok(shape.build(layers.collect(), style.final_vectors(&shape)))
}
