//! Stacks that mix attention with recurrent layers, and pure state-space models.

use super::config::Config;
use super::latent::{latent, latent_layer};
use super::moe::{SHARED, experts, moe_layers, qwen_experts, with_router_bias, with_shared};
use super::shape::{Defaults, QkNorm, Shape, Style};
use crate::import::ImportError;
use crate::model::{Architecture, Attention, FeedForward, LatentAttention, Layer, Mixer, Moe, Reach, Recurrent};

type Read = Result<Architecture, ImportError>;

/// Pure state-space models have no longest context; their files name none.
pub(super) const UNBOUNDED_CONTEXT: u64 = 1 << 20;

/// Qwen3-Next and Qwen3.5 mixtures.
pub(super) fn qwen3_next(config: &Config) -> Read {
    let moe = FeedForward::Moe(qwen_experts(config)?);
    let dense = config.indices("mlp_only_layers")?.is_some_and(|layers| !layers.is_empty());
    if dense || config.count_or(&["decoder_sparse_step"], 1)? != 1 {
        let keys = "`mlp_only_layers`, `decoder_sparse_step`";
        return Err(config.unsupported(format!("a hybrid mixture with dense layers ({keys})")));
    }
    gated_delta_stack(config, &moe)
}

/// Qwen3.5 dense.
pub(super) fn qwen3_5(config: &Config) -> Read {
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    gated_delta_stack(config, &dense)
}

/// Gated delta nets, every fourth layer attention with an output gate. A prediction module is an attention layer; files of
/// Qwen3-Next do not mention theirs, though every release has one.
fn gated_delta_stack(config: &Config, feed_forward: &FeedForward) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(256), ..Defaults::default() })?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    let output_gate = config.flag("attn_output_gate", true)?;
    let full =
        style.layer(shape.hidden, Attention { output_gate, ..shape.attention(Reach::Full) }, feed_forward.clone());
    let (delta, delta_vectors) = gated_delta(config)?;
    let linear = Layer {
        mixer: Mixer::Recurrent(delta),
        feed_forward: feed_forward.clone(),
        extra: Vec::new(),
        vector_params: delta_vectors + 2 * shape.hidden,
    };
    let every = config.count_or(&["full_attention_interval"], 4)?;
    let is_full = |index: usize| (index as u64 + 1).checked_rem(every) == Some(0);
    let which = mixers(config, "layer_types", &shape, "full_attention", "linear_attention", is_full)?;
    let layers = which.into_iter().map(|is_full| if is_full { full.clone() } else { linear.clone() });
    let modules = config.count_or(&["mtp_num_hidden_layers", "num_nextn_predict_layers"], 1)?;
    let copies = config.flag("mtp_use_dedicated_embeddings", false)?;
    let mtp = shape.mtp(config, modules, std::slice::from_ref(&full), copies)?;
    Ok(Architecture { mtp, ..shape.build(layers.collect(), shape.hidden) })
}

/// The delta net and its convolution, decay rates, time-step biases and output norm.
pub(super) fn gated_delta(config: &Config) -> Result<(Recurrent, u64), ImportError> {
    let (key_heads, value_heads) =
        (config.count(&["linear_num_key_heads"])?, config.count(&["linear_num_value_heads"])?);
    let (key_dim, value_dim) = (config.count(&["linear_key_head_dim"])?, config.count(&["linear_value_head_dim"])?);
    let conv_kernel = config.count_or(&["linear_conv_kernel_dim"], 4)?;
    let channels = 2 * key_heads * key_dim + value_heads * value_dim;
    let vectors = kernel(config, channels, conv_kernel)? + 2 * value_heads + value_dim;
    Ok((Recurrent::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel }, vectors))
}

/// Weights of a depthwise convolution.
pub(super) fn kernel(config: &Config, channels: u64, width: u64) -> Result<u64, ImportError> {
    channels.checked_mul(width).ok_or_else(|| config.unsupported("a convolution of that size"))
}

/// Which layers are attention: from a list of texts, or by the family's pattern.
pub(super) fn mixers(
    config: &Config,
    key: &str,
    shape: &Shape,
    attention: &str,
    recurrent: &str,
    is_attention: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, ImportError> {
    let Some(types) = config.texts(key, shape.layers)? else {
        return Ok((0..shape.layers).map(is_attention).collect());
    };
    let read = |kind: &str| match kind {
        kind if kind == attention => Ok(true),
        kind if kind == recurrent => Ok(false),
        // One vocabulary for all families since transformers 5.
        "full_attention" => Ok(true),
        "linear_attention" => Ok(false),
        other => Err(config.invalid(key, &other.into(), &format!("{attention} or {recurrent}"))),
    };
    types.into_iter().map(read).collect()
}

/// Kimi Linear and Kimi K3: delta attention with latent attention in between, experts that may work in a smaller width.
pub(super) fn kimi_linear(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(1), ..Defaults::default() })?;
    let linear = config.inner("linear_attn_config");
    let (attention, bias) = latent(config, shape.heads, None, None)?;
    let attention = LatentAttention { output_gate: config.flag("mla_use_output_gate", false)?, ..attention };
    let (delta, delta_vectors) = kimi_delta(linear.as_ref().unwrap_or(config), linear.is_some())?;
    let moe = with_shared(config, config.count_or(SHARED, 0)?)?;
    let latent_size = config.optional(&["routed_expert_hidden_size"])?.filter(|width| *width != shape.hidden);
    // The down-projection into the experts' width ends with a norm.
    let latent_norm = latent_size.unwrap_or(0);
    let moe = FeedForward::Moe(Moe { latent_size, ..moe });
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let is_full = match &linear {
        Some(linear) => {
            let full = linear.indices("full_attn_layers")?;
            let full = full.ok_or_else(|| linear.missing(&["full_attn_layers"], "a list of layer numbers"))?;
            // Layers are numbered from 1 here.
            (1..=shape.layers as u64).map(|layer| full.contains(&layer)).collect()
        }
        None => {
            let key = "layer_types";
            if !config.states(key) {
                return Err(config.missing(&["linear_attn_config", key], "which layers are attention"));
            }
            mixers(config, key, &shape, "full_attention", "linear_attention", |_| false)?
        }
    };
    let layers = moe_layers(config, shape.layers, u64::from(linear.is_none()))?.into_iter().zip(is_full).map(
        |(is_moe, is_full)| {
            let feed_forward = if is_moe { moe.clone() } else { dense.clone() };
            let mut layer = if is_full {
                latent_layer(&shape, attention.clone(), bias, feed_forward)
            } else {
                let vector_params = 2 * shape.hidden + delta_vectors;
                Layer { mixer: Mixer::Recurrent(delta.clone()), feed_forward, extra: Vec::new(), vector_params }
            };
            layer.vector_params += if is_moe { latent_norm } else { 0 };
            with_router_bias(layer, true)
        },
    );
    Ok(shape.build(layers.collect(), shape.hidden))
}

/// Sizes in an object of their own, or since transformers 5 beside those of the model.
fn kimi_delta(config: &Config, nested: bool) -> Result<(Recurrent, u64), ImportError> {
    let [heads, head_dim, conv_kernel] = if nested {
        ["num_heads", "head_dim", "short_conv_kernel_size"]
    } else {
        ["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"]
    };
    let (heads, head_dim) = (config.count(&[heads])?, config.count(&[head_dim])?);
    let conv_kernel = config.count_or(&[conv_kernel], 4)?;
    let full_rank_gate = config.flag("use_full_rank_gate", false)?;
    let inner = heads * head_dim;
    let vectors = kernel(config, 3 * inner, conv_kernel)? + inner + heads + head_dim;
    Ok((Recurrent::KimiDelta { heads, head_dim, conv_kernel, full_rank_gate }, vectors))
}

/// MiniMax-Text-01 and M1: lightning attention, softmax attention in every eighth layer, all layers mixtures.
pub(super) fn minimax(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let moe = FeedForward::Moe(experts(config, config.count(&["intermediate_size"])?)?);
    if config.optional(&["shared_intermediate_size"])?.is_some_and(|width| width > 0) {
        return Err(config.unsupported("a shared expert beside lightning attention (`shared_intermediate_size`)"));
    }
    let full = Style::LLAMA.layer(shape.hidden, shape.attention(Reach::Full), moe.clone());
    let lightning = Recurrent::Lightning { heads: shape.heads, head_dim: shape.head_dim };
    let linear = Layer {
        mixer: Mixer::Recurrent(lightning),
        feed_forward: moe,
        extra: Vec::new(),
        vector_params: 2 * shape.hidden + shape.heads * shape.head_dim,
    };
    let which = match config.counts("attn_type_list", shape.layers)? {
        Some(list) => list.iter().map(|kind| *kind == 1).collect(),
        None => mixers(config, "layer_types", &shape, "full_attention", "linear_attention", |index| index % 2 == 1)?,
    };
    let layers = which.into_iter().map(|is_full| if is_full { full.clone() } else { linear.clone() });
    Ok(shape.build(layers.collect(), shape.hidden))
}

/// Mamba-2, in the format of transformers or of the state-spaces repository.
pub(super) fn mamba2(config: &Config) -> Read {
    let shape = Shape::without_attention(config, Defaults { context: Some(UNBOUNDED_CONTEXT), ..Defaults::default() })?;
    if config.value("attn_layer_idx").and_then(serde_json::Value::as_array).is_some_and(|layers| !layers.is_empty()) {
        return Err(config.unsupported("attention layers in a Mamba-2 model (`attn_layer_idx`)"));
    }
    let pad = config.count_or(&["pad_vocab_size_multiple"], 1)?.max(1);
    let shape = Shape { vocab: shape.vocab.next_multiple_of(pad), ..shape };
    let nested = config.inner("ssm_cfg");
    // The state-spaces repository ties by default and spells the key without `word`.
    let tied = config.flag("tie_embeddings", nested.is_some())? || shape.tied;
    let shape = Shape { tied, ..shape };
    let sizes = nested.as_ref().unwrap_or(config);
    let head_dim = sizes.count_or(&["head_dim", "headdim"], 64)?;
    let inner = config.count_or(&["expand"], 2)?.saturating_mul(shape.hidden);
    let derived = inner.checked_div(head_dim).unwrap_or(0);
    let ssm = Mamba2 {
        heads: sizes.count_or(&["num_heads"], derived)?,
        head_dim,
        groups: sizes.count_or(&["n_groups", "ngroups"], 1)?,
        state: sizes.count_or(&["state_size", "d_state"], 128)?,
        conv_kernel: sizes.count_or(&["conv_kernel", "d_conv"], 4)?,
        conv_bias: config.flag("use_conv_bias", true)?,
        bias: config.flag("use_bias", false)?,
    };
    let layer = ssm.layer(config, &shape)?;
    Ok(shape.build(vec![layer; shape.layers], shape.hidden))
}

/// Sizes of a Mamba-2 layer as files state them.
pub(super) struct Mamba2 {
    pub heads: u64,
    pub head_dim: u64,
    pub groups: u64,
    pub state: u64,
    pub conv_kernel: u64,
    pub conv_bias: bool,
    pub bias: bool,
}

impl Mamba2 {
    /// The keys and defaults that Granite 4 and Bamba share.
    pub fn of_transformers(config: &Config, shape: &Shape, heads: u64) -> Result<Self, ImportError> {
        Ok(Self {
            heads,
            head_dim: mamba_head_dim(config, shape, heads)?,
            groups: config.count_or(&["mamba_n_groups"], 1)?,
            state: config.count_or(&["mamba_d_state"], 256)?,
            conv_kernel: config.count_or(&["mamba_d_conv"], 4)?,
            conv_bias: config.flag("mamba_conv_bias", true)?,
            bias: config.flag("mamba_proj_bias", false)?,
        })
    }

    /// A layer of norm and mixer; its vectors are the convolution, decay rates, skips, time-step biases and the gated norm.
    pub fn layer(&self, config: &Config, shape: &Shape) -> Result<Layer, ImportError> {
        let Self { heads, head_dim, groups, state, conv_kernel, .. } = *self;
        let inner = heads * head_dim;
        let channels = (groups * state).checked_mul(2).map(|maps| inner + maps);
        let channels = channels.ok_or_else(|| config.unsupported("a state of that size"))?;
        let biases = if self.conv_bias { channels } else { 0 }
            + if self.bias { inner + channels + heads + shape.hidden } else { 0 };
        Ok(Layer {
            mixer: Mixer::Recurrent(Recurrent::Mamba2 { heads, head_dim, groups, state, conv_kernel }),
            feed_forward: FeedForward::None,
            extra: Vec::new(),
            vector_params: kernel(config, channels, conv_kernel)? + biases + 3 * heads + inner + shape.hidden,
        })
    }
}

/// Granite 4: Mamba-2 or attention, then a shared branch with or without experts beside it.
pub(super) fn granite_hybrid(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let shared = config.count(&["shared_intermediate_size"])?;
    let feed_forward = if config.count_or(&["num_local_experts"], 0)? == 0 {
        FeedForward::Dense { intermediate: shared, gated: true }
    } else {
        let moe = experts(config, config.count(&["intermediate_size"])?)?;
        FeedForward::Moe(Moe { shared_intermediate: Some(shared), ..moe })
    };
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, ..Style::LLAMA };
    let full = style.layer(shape.hidden, shape.attention(Reach::Full), feed_forward.clone());
    let types = mixers(config, "layer_types", &shape, "attention", "mamba", |_| false)?;
    let mamba = if types.iter().all(|is_attention| *is_attention) {
        full.clone()
    } else {
        let heads = config.count(&["mamba_n_heads"])?;
        let layer = Mamba2::of_transformers(config, &shape, heads)?.layer(config, &shape)?;
        Layer { feed_forward, vector_params: layer.vector_params + shape.hidden, ..layer }
    };
    let layers = types.into_iter().map(|is_attention| if is_attention { full.clone() } else { mamba.clone() });
    Ok(shape.build(layers.collect(), shape.hidden))
}

/// `mamba_d_head`, or `auto`: the inner width divided by the heads.
fn mamba_head_dim(config: &Config, shape: &Shape, heads: u64) -> Result<u64, ImportError> {
    let key = "mamba_d_head";
    if config.value(key).is_some_and(|value| value.as_str() != Some("auto")) {
        return config.count(&[key]);
    }
    let inner = config.count_or(&["mamba_expand"], 2)?.saturating_mul(shape.hidden);
    let derived = inner.checked_div(heads);
    derived.ok_or_else(|| config.missing(&[key], "a positive integer"))
}

/// Nemotron-H and Nemotron 3: one mixer or one feed-forward per layer, spelled `M` (Mamba-2), `*` (attention), `-` (dense) and
/// `E` (experts) in `hybrid_override_pattern`.
pub(super) fn nemotron_h(config: &Config) -> Read {
    let pattern = match config.text("hybrid_override_pattern")? {
        Some(pattern) => pattern.to_string(),
        None => block_pattern(config)?,
    };
    let defaults = Defaults { layers: Some(pattern.chars().count()), ..Defaults::default() };
    let mut shape = Shape::read(config, defaults)?;
    if config.flag("mlp_bias", false)? {
        return Err(config.unsupported("feed-forwards with bias (`mlp_bias`)"));
    }
    if pattern.chars().count() != shape.layers {
        let expected = format!("{} letters, one per layer", shape.layers);
        return Err(config.invalid("hybrid_override_pattern", &pattern.into(), &expected));
    }
    shape.head_dim = config.count_or(&["attention_head_dim"], shape.head_dim)?;
    let layers: Result<Vec<Layer>, ImportError> =
        pattern.chars().map(|letter| nemotron_layer(config, &shape, letter)).collect();
    let modules = config.count_or(&["num_nextn_predict_layers"], 0)?;
    let predictor = config.text("mtp_hybrid_override_pattern")?.unwrap_or("*E");
    let mtp = if modules > 0 {
        let layers: Result<Vec<Layer>, ImportError> =
            predictor.chars().map(|letter| nemotron_layer(config, &shape, letter)).collect();
        shape.mtp(config, modules, &layers?, false)?
    } else {
        None
    };
    Ok(Architecture { mtp, ..shape.build(layers?, shape.hidden) })
}

/// Newer files list the blocks by name.
fn block_pattern(config: &Config) -> Result<String, ImportError> {
    let keys = ["layers_block_type", "layer_types"];
    let found = keys.into_iter().find_map(|key| Some((key, config.value(key)?.as_array()?)));
    let missing = || config.missing(&["hybrid_override_pattern", keys[0], keys[1]], "the kind of every layer");
    let (key, blocks) = found.ok_or_else(missing)?;
    let letter = |block: &serde_json::Value| match block.as_str() {
        Some("mamba" | "linear_attention") => Ok('M'),
        Some("attention" | "full_attention") => Ok('*'),
        Some("mlp") => Ok('-'),
        Some("moe") => Ok('E'),
        _ => Err(config.invalid(key, block, "mamba, attention, mlp or moe")),
    };
    blocks.iter().map(letter).collect()
}

fn nemotron_layer(config: &Config, shape: &Shape, letter: char) -> Result<Layer, ImportError> {
    let bias = config.flag("use_bias", false)?;
    let feed_forward =
        |feed_forward: FeedForward| Layer { feed_forward, vector_params: shape.hidden, ..Layer::default() };
    match letter {
        'M' => {
            let ssm = Mamba2 {
                heads: config.count(&["mamba_num_heads"])?,
                head_dim: config.count(&["mamba_head_dim"])?,
                groups: config.count_or(&["n_groups"], 8)?,
                state: config.count_or(&["ssm_state_size"], 128)?,
                conv_kernel: config.count_or(&["conv_kernel"], 4)?,
                conv_bias: config.flag("use_conv_bias", true)?,
                bias,
            };
            ssm.layer(config, shape)
        }
        '*' => {
            let bias = config.flag("attention_bias", false)?;
            let style = Style { qkv_bias: bias, o_bias: bias, norms: 1, ..Style::LLAMA };
            Ok(style.layer(shape.hidden, shape.attention(Reach::Full), FeedForward::None))
        }
        '-' => {
            Ok(feed_forward(FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: false }))
        }
        'E' => {
            let moe = experts(config, config.count(&["moe_intermediate_size"])?)?;
            let shared = config.optional(&["moe_shared_expert_intermediate_size"])?.filter(|width| *width > 0);
            let latent_size = config.optional(&["moe_latent_size"])?;
            let moe = Moe { gated: false, shared_intermediate: shared, latent_size, ..moe };
            Ok(with_router_bias(feed_forward(FeedForward::Moe(moe)), true))
        }
        other => {
            let found = other.to_string().into();
            Err(config.invalid("hybrid_override_pattern", &found, "the letters M, *, - and E"))
        }
    }
}
