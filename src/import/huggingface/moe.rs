//! Mixtures of experts over standard attention.

use super::config::Config;
use super::dense::{every_but_last_of, exaone_reaches, qwen_reaches, stated_or};
use super::shape::{Defaults, QkNorm, Shape, Style, full, reaches};
use crate::format::TensorClass as Class;
use crate::import::ImportError;
use crate::model::{Architecture, Attention, FeedForward, Indexer, Layer, Linear, Moe, Reach, SparseSelection, Split};

type Read = Result<Architecture, ImportError>;

pub(super) const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
pub(super) const CHOSEN: &[&str] = &[
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "num_selected_experts",
    "moe_topk",
    "moe_k",
    "moe_top_k",
];
pub(super) const EXPERT_WIDTH: &[&str] = &["moe_intermediate_size", "intermediate_size"];
pub(super) const SHARED: &[&str] =
    &["n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"];

/// Gated experts of the given width without shared ones.
pub(super) fn experts(config: &Config, intermediate: u64) -> Result<Moe, ImportError> {
    Ok(Moe {
        experts: config.count(EXPERTS)?,
        experts_per_token: config.count(CHOSEN)?,
        intermediate,
        gated: true,
        shared_intermediate: None,
        latent_size: None,
        vector_params_per_expert: 0,
        shared_gate: false,
    })
}

/// Gated experts and `shared` more of the same width that every token passes.
pub(super) fn with_shared(config: &Config, shared: u64) -> Result<Moe, ImportError> {
    let intermediate = config.count(EXPERT_WIDTH)?;
    let shared_intermediate = (shared > 0).then_some(shared * intermediate);
    Ok(Moe { shared_intermediate, ..experts(config, intermediate)? })
}

/// Feed-forwards in order: the mixture where `is_moe`, else the dense one.
fn alternate(layers: usize, is_moe: impl Fn(usize) -> bool, moe: Moe, dense: Option<u64>) -> Vec<FeedForward> {
    let dense = FeedForward::Dense { intermediate: dense.unwrap_or(0), gated: true };
    let moe = FeedForward::Moe(moe);
    (0..layers).map(|layer| if is_moe(layer) { moe.clone() } else { dense.clone() }).collect()
}

/// A decoder whose layers differ in reach and feed-forward; `router_bias` adds one parameter per expert.
fn decoder(
    shape: &Shape,
    style: &Style,
    reaches: &[Reach],
    feed_forwards: Vec<FeedForward>,
    router_bias: bool,
) -> Architecture {
    let layers = reaches.iter().zip(feed_forwards).map(|(reach, feed_forward)| {
        let layer = style.layer(shape.hidden, shape.attention(*reach), feed_forward);
        with_router_bias(layer, router_bias)
    });
    shape.build(layers.collect(), style.final_vectors(shape))
}

/// One bias (or correction term of load balancing) per expert.
pub(super) fn with_router_bias(layer: Layer, router_bias: bool) -> Layer {
    let experts = layer.feed_forward.moe().map_or(0, |moe| moe.experts);
    Layer { vector_params: layer.vector_params + if router_bias { experts } else { 0 }, ..layer }
}

/// Every layer a mixture, one style.
fn uniform(config: &Config, shape: &Shape, style: &Style, moe: Moe, router_bias: bool) -> Read {
    let reaches = reaches(config, shape.layers, config.optional(&["sliding_window"])?, |_| true)?;
    Ok(decoder(shape, style, &reaches, alternate(shape.layers, |_| true, moe, None), router_bias))
}

/// Mixtral.
pub(super) fn mixtral(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    uniform(config, &shape, &Style::LLAMA, experts(config, config.count(EXPERT_WIDTH)?)?, false)
}

/// Phi-3.5-MoE: layer norms with bias, bias on attention and output head by flags.
pub(super) fn phimoe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let head_bias = config.flag("lm_head_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, norms: 4, final_norms: 2, head_bias, ..Style::LLAMA };
    uniform(config, &shape, &style, experts(config, config.count(EXPERT_WIDTH)?)?, false)
}

/// OLMoE: norms of queries and keys over all heads.
pub(super) fn olmoe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::AllHeads, ..Style::LLAMA };
    uniform(config, &shape, &style, experts(config, config.count(EXPERT_WIDTH)?)?, false)
}

/// Grok-1: four norms per layer, output head tied.
pub(super) fn grok1(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { tied: true, ..Defaults::default() })?;
    let style = Style { norms: 4, ..Style::LLAMA };
    uniform(config, &shape, &style, experts(config, config.count(EXPERT_WIDTH)?)?, false)
}

/// DBRX: sizes in `attn_config` and `ffn_config`.
pub(super) fn dbrx(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let attention = config.inner("attn_config").ok_or_else(|| config.missing(&["attn_config"], "an object"))?;
    let ffn = config.inner("ffn_config").ok_or_else(|| config.missing(&["ffn_config"], "an object"))?;
    let shape = Shape { kv_heads: attention.count_or(&["kv_n_heads"], 1)?, ..shape };
    let moe = experts(&ffn, ffn.count(&["ffn_hidden_size"])?)?;
    uniform(config, &shape, &Style::LLAMA, moe, false)
}

/// Granite 3 mixtures, in some with a shared branch.
pub(super) fn granitemoe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let shared = config.optional(&["shared_intermediate_size"])?.filter(|width| *width > 0);
    let moe = Moe { shared_intermediate: shared, ..experts(config, config.count(&["intermediate_size"])?)? };
    uniform(config, &shape, &Style { qkv_bias: bias, o_bias: bias, ..Style::LLAMA }, moe, false)
}

/// Qwen1.5-MoE and Qwen2-MoE: a gated shared expert, bias on queries, keys and values.
pub(super) fn qwen2_moe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let style = Style { qkv_bias: config.flag("qkv_bias", true)?, ..Style::LLAMA };
    qwen_sparse(config, &shape, &style)
}

/// Qwen3-MoE and its coder, vision and omni variants: norms of queries and keys, no shared expert.
pub(super) fn qwen3_moe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    qwen_sparse(config, &shape, &Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::PerHead, ..Style::LLAMA })
}

fn qwen_sparse(config: &Config, shape: &Shape, style: &Style) -> Read {
    let moe = qwen_experts(config)?;
    let dense = config.indices("mlp_only_layers")?.unwrap_or_default();
    let step = config.count_or(&["decoder_sparse_step"], 1)?;
    let is_moe = |layer: usize| {
        let layer = layer as u64;
        !dense.contains(&layer) && (layer + 1).checked_rem(step) == Some(0)
    };
    let width = config.optional(&["intermediate_size"])?;
    if width.is_none() && !(0..shape.layers).all(is_moe) {
        return Err(config.missing(&["intermediate_size"], "the width of the dense layers"));
    }
    let reaches = qwen_reaches(config, shape.layers)?;
    Ok(decoder(shape, style, &reaches, alternate(shape.layers, is_moe, moe, width), false))
}

/// The experts of the Qwen families; the shared expert, where there is one, has a scalar gate.
pub(super) fn qwen_experts(config: &Config) -> Result<Moe, ImportError> {
    let shared = config.optional(&["shared_expert_intermediate_size"])?.filter(|width| *width > 0);
    let moe = experts(config, config.count(&["moe_intermediate_size"])?)?;
    Ok(Moe { shared_intermediate: shared, shared_gate: shared.is_some(), ..moe })
}

/// gpt-oss: every second layer has a window, attention sinks, bias everywhere, also in the experts.
pub(super) fn gpt_oss(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(64), ..Defaults::default() })?;
    let bias = config.flag("attention_bias", true)?;
    let style = Style { qkv_bias: bias, o_bias: bias, ..Style::LLAMA };
    let window = stated_or(config, "sliding_window", 128)?;
    let reaches = reaches(config, shape.layers, window, |layer| layer % 2 == 0)?;
    let intermediate = config.count(&["intermediate_size"])?;
    let moe = Moe { vector_params_per_expert: 2 * intermediate + shape.hidden, ..experts(config, intermediate)? };
    let layers = reaches.iter().map(|reach| {
        let layer = style.layer(shape.hidden, shape.attention(*reach), FeedForward::Moe(moe.clone()));
        let sinks = shape.heads;
        with_router_bias(Layer { vector_params: layer.vector_params + sinks, ..layer }, true)
    });
    Ok(shape.build(layers.collect(), style.final_vectors(&shape)))
}

/// MiniMax-M2: norms of queries and keys over all heads, a routing bias.
pub(super) fn minimax_m2(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let style = Style { qk_norm: minimax_norm(config, "per_layer")?, ..Style::LLAMA };
    let moe = experts(config, config.count(&["intermediate_size"])?)?;
    let shared = config.optional(&["shared_intermediate_size"])?.filter(|width| *width > 0);
    uniform(config, &shape, &style, Moe { shared_intermediate: shared, ..moe }, config.flag("use_routing_bias", true)?)
}

/// MiniMax-M3: dense first layers, then a shared expert and attention to blocks that an indexer selects.
pub(super) fn minimax_m3(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let style = Style { qk_norm: minimax_norm(config, "per_head")?, ..Style::LLAMA };
    let moe = with_shared(config, config.count_or(SHARED, 0)?)?;
    let is_moe = moe_layers(config, shape.layers, 0)?;
    let dense = config.count(&["dense_intermediate_size"])?;
    let router_bias = config.flag("use_routing_bias", true)?;
    let (sparse, is_sparse) = minimax_indexer(config, shape.layers)?;
    let feed_forwards = alternate(shape.layers, |layer| is_moe.get(layer) == Some(&true), moe, Some(dense));
    let layers = feed_forwards.into_iter().zip(is_sparse).map(|(feed_forward, is_sparse)| {
        let sparse = sparse.filter(|_| is_sparse);
        // Queries and keys of the indexer have a norm each.
        let norms = sparse.and_then(|sparse| sparse.indexer).map_or(0, |indexer| 2 * indexer.head_dim);
        let attention = Attention { sparse, ..shape.attention(Reach::Full) };
        let layer = style.layer(shape.hidden, attention, feed_forward);
        with_router_bias(Layer { vector_params: layer.vector_params + norms, ..layer }, router_bias)
    });
    Ok(shape.build(layers.collect(), style.final_vectors(&shape)))
}

fn minimax_norm(config: &Config, default: &str) -> Result<QkNorm, ImportError> {
    if !config.flag("use_qk_norm", true)? {
        return Ok(QkNorm::None);
    }
    match config.text("qk_norm_type")?.unwrap_or(default) {
        "per_layer" => Ok(QkNorm::AllHeads),
        "per_head" => Ok(QkNorm::PerHead),
        other => Err(config.invalid("qk_norm_type", &other.into(), "per_layer or per_head")),
    }
}

fn minimax_indexer(config: &Config, layers: usize) -> Result<(Option<SparseSelection>, Vec<bool>), ImportError> {
    let Some(sparse) = config.inner("sparse_attention_config") else { return Ok((None, vec![false; layers])) };
    if !sparse.flag("use_sparse_attention", true)? {
        return Ok((None, vec![false; layers]));
    }
    let indexer =
        Indexer { heads: sparse.count(&["sparse_num_index_heads"])?, head_dim: sparse.count(&["sparse_index_dim"])? };
    let top_k = sparse.count(&["sparse_topk_blocks"])? * sparse.count(&["sparse_block_size"])?;
    let which = sparse.counts("sparse_attention_freq", layers)?;
    let which = which.map_or_else(|| vec![true; layers], |list| list.iter().map(|flag| *flag != 0).collect());
    Ok((Some(SparseSelection { top_k, indexer: Some(indexer) }), which))
}

/// Llama 4: chunked attention in three of four layers, one expert of many and a shared one.
pub(super) fn llama4(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, ..Style::LLAMA };
    let chunk = Reach::Chunk(config.count_or(&["attention_chunk_size"], 8192)?);
    let every = config.count_or(&["no_rope_layer_interval"], 4)?;
    let rope = config.counts("no_rope_layers", shape.layers)?;
    // Layers with rotary positions are the chunked ones.
    let is_chunked = |layer: usize| match &rope {
        Some(rope) => rope.get(layer) != Some(&0),
        None => every_but_last_of(every)(layer),
    };
    let reaches = if config.states("layer_types") {
        reaches(config, shape.layers, None, |_| false)?
    } else {
        (0..shape.layers).map(|layer| if is_chunked(layer) { chunk } else { Reach::Full }).collect()
    };
    let step = config.count_or(&["interleave_moe_layer_step"], 1)?;
    let listed = config.indices("moe_layers")?;
    let is_moe = |layer: usize| match &listed {
        Some(listed) => listed.contains(&(layer as u64)),
        None => (layer as u64 + 1).checked_rem(step) == Some(0),
    };
    let moe = with_shared(config, 1)?;
    let dense = config.count_or(&["intermediate_size_mlp"], 16384)?;
    Ok(decoder(&shape, &style, &reaches, alternate(shape.layers, is_moe, moe, Some(dense)), false))
}

/// Small differences between the families that put DeepSeek's experts on grouped-query attention.
struct DeepSeekLike {
    qkv_bias: &'static str,
    /// Bias on queries, keys and values when the file does not say.
    default_qkv_bias: bool,
    o_bias: Option<&'static str>,
    qk_norm: bool,
    router_bias: bool,
    /// Shared experts when the file does not say.
    shared: u64,
    /// Dense first layers when the file does not say.
    first_dense: u64,
    /// Whether prediction modules store a copy of embedding and head.
    mtp_copies: bool,
}

impl DeepSeekLike {
    const PLAIN: Self = Self {
        qkv_bias: "attention_bias",
        default_qkv_bias: false,
        o_bias: Some("attention_bias"),
        qk_norm: false,
        router_bias: false,
        shared: 0,
        first_dense: 0,
        mtp_copies: false,
    };
}

/// EXAONE-MoE and K-EXAONE: three of four layers have a window, norms of queries and keys.
pub(super) fn exaone_moe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let style = Style { qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    let moe = with_shared(config, config.count_or(SHARED, 1)?)?;
    let window = stated_or(config, "sliding_window", 4096)?;
    let reaches = exaone_reaches(config, shape.layers, window)?;
    with_dense_first(config, &shape, &style, &reaches, moe, 1)
}

/// Trinity (AFMoE): three of four layers have a window; an output gate, norms around each branch, the first layers dense.
pub(super) fn afmoe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..Defaults::default() })?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::PerHead, norms: 4, ..Style::LLAMA };
    let moe = with_shared(config, config.count_or(SHARED, 2)?)?;
    let window = stated_or(config, "sliding_window", 1024)?;
    let every = config.count_or(&["global_attn_every_n_layers"], 4)?;
    let reaches = reaches(config, shape.layers, window, every_but_last_of(every))?;
    let first = config.count_or(&["num_dense_layers"], 1)?;
    let dense = FeedForward::Dense { intermediate: config.count(&["intermediate_size"])?, gated: true };
    let layers = reaches.iter().enumerate().map(|(index, reach)| {
        let feed_forward = if index as u64 >= first { FeedForward::Moe(moe.clone()) } else { dense.clone() };
        // The gate is a matrix of its own, without bias.
        let layer = style.layer(shape.hidden, shape.attention(*reach), feed_forward);
        let gate = Linear::new(Class::AttentionQ, shape.hidden, shape.heads * shape.head_dim, Split::Output);
        with_router_bias(Layer { extra: vec![gate], ..layer }, true)
    });
    Ok(shape.build(layers.collect(), style.final_vectors(&shape)))
}

/// Hunyuan 3: norms of queries and keys, the first layer dense.
pub(super) fn hy_v3(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..Defaults::default() })?;
    if config.flag("mlp_bias", false)? {
        return Err(config.unsupported("experts with bias (`mlp_bias`)"));
    }
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    let moe = with_shared(config, config.count_or(SHARED, 1)?)?;
    with_dense_first(config, &shape, &style, &full(shape.layers), moe, 1)
}

/// Solar Open: every layer a mixture with a shared expert.
pub(super) fn solar_open(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..Defaults::default() })?;
    let style = Style { qkv_bias: config.flag("attention_bias", false)?, ..Style::LLAMA };
    let moe = with_shared(config, config.count_or(SHARED, 1)?)?;
    let feed_forwards = alternate(shape.layers, |_| true, moe, None);
    Ok(decoder(&shape, &style, &full(shape.layers), feed_forwards, true))
}

/// Mixtures with a bias per expert behind a few dense layers.
fn with_dense_first(
    config: &Config,
    shape: &Shape,
    style: &Style,
    reaches: &[Reach],
    moe: Moe,
    first_dense: u64,
) -> Read {
    let is_moe = moe_layers(config, shape.layers, first_dense)?;
    let dense = config.count(&["intermediate_size"])?;
    let feed_forwards = alternate(shape.layers, |layer| is_moe.get(layer) == Some(&true), moe, Some(dense));
    Ok(decoder(shape, style, reaches, feed_forwards, true))
}

/// DeepSeekMoE 16B.
pub(super) fn deepseek(config: &Config) -> Read {
    deepseek_like(config, &DeepSeekLike::PLAIN)
}

/// dots.llm1.
pub(super) fn dots1(config: &Config) -> Read {
    deepseek_like(config, &DeepSeekLike { qk_norm: true, router_bias: true, ..DeepSeekLike::PLAIN })
}

/// GLM-4.5, 4.6 and 4.7.
pub(super) fn glm4_moe(config: &Config) -> Read {
    glm_mixture(config, false)
}

/// GLM-4.5V and 4.6V.
pub(super) fn glm4v_moe(config: &Config) -> Read {
    glm_mixture(config, true)
}

fn glm_mixture(config: &Config, default_qkv_bias: bool) -> Read {
    let qk_norm = config.flag("use_qk_norm", false)?;
    let like = DeepSeekLike {
        default_qkv_bias,
        o_bias: None,
        qk_norm,
        router_bias: true,
        shared: 1,
        first_dense: 1,
        mtp_copies: true,
        ..DeepSeekLike::PLAIN
    };
    deepseek_like(config, &like)
}

/// Ling and Ring.
pub(super) fn bailing(config: &Config) -> Read {
    let qk_norm = config.flag("use_qk_norm", false)?;
    let router_bias = config.flag("moe_router_enable_expert_bias", qk_norm)?;
    let (qkv_bias, o_bias) = ("use_qkv_bias", Some("use_bias"));
    deepseek_like(config, &DeepSeekLike { qkv_bias, o_bias, qk_norm, router_bias, ..DeepSeekLike::PLAIN })
}

fn deepseek_like(config: &Config, like: &DeepSeekLike) -> Read {
    let shape = Shape::read(config, Defaults::default())?;
    let qk_norm = if like.qk_norm { QkNorm::PerHead } else { QkNorm::None };
    let qkv_bias = config.flag(like.qkv_bias, like.default_qkv_bias)?;
    let o_bias = like.o_bias.map_or(Ok(false), |key| config.flag(key, false))?;
    let style = Style { qkv_bias, o_bias, qk_norm, ..Style::LLAMA };
    let moe = with_shared(config, config.count_or(SHARED, like.shared)?)?;
    let is_moe = moe_layers(config, shape.layers, like.first_dense)?;
    let dense = config.count(&["intermediate_size"])?;
    let window = config.optional(&["sliding_window"])?;
    let first = config.count_or(&["max_window_layers"], 0)?;
    let window = if config.flag("use_sliding_window", window.is_some())? { window } else { None };
    let reaches = reaches(config, shape.layers, window, |layer| layer as u64 >= first)?;
    let feed_forwards = alternate(shape.layers, |layer| is_moe.get(layer) == Some(&true), moe.clone(), Some(dense));
    let architecture = decoder(&shape, &style, &reaches, feed_forwards, like.router_bias);
    let predictor = style.layer(shape.hidden, shape.attention(Reach::Full), FeedForward::Moe(moe));
    let predictor = with_router_bias(predictor, like.router_bias);
    let modules = config.count_or(&["num_nextn_predict_layers"], 0)?;
    Ok(Architecture { mtp: shape.mtp(config, modules, &[predictor], like.mtp_copies)?, ..architecture })
}

/// Which layers are mixtures in the DeepSeek families: not the first `first_k_dense_replace`, then every
/// `moe_layer_freq`-th; or one flag per layer.
pub(super) fn moe_layers(config: &Config, layers: usize, first_dense: u64) -> Result<Vec<bool>, ImportError> {
    if let Some(types) = config.texts("mlp_layer_types", layers)? {
        return Ok(types.iter().map(|kind| *kind == "sparse").collect());
    }
    let first = config.count_or(&["first_k_dense_replace"], first_dense)?;
    if let Some(serde_json::Value::Array(_)) = config.value("moe_layer_freq") {
        let flags = config.counts("moe_layer_freq", layers)?.unwrap_or_default();
        return Ok(flags.iter().map(|flag| *flag != 0).collect());
    }
    let every = config.count_or(&["moe_layer_freq"], 1)?;
    let is_moe = |layer: u64| layer >= first && layer.checked_rem(every) == Some(0);
    Ok((0..layers as u64).map(is_moe).collect())
}

/// ERNIE 4.5 mixtures.
pub(super) fn ernie4_5_moe(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { tied: true, ..Defaults::default() })?;
    if config.flag("use_bias", false)? {
        return Err(config.unsupported("experts with bias (`use_bias`)"));
    }
    let style = Style::LLAMA;
    let moe = with_shared(config, config.count_or(SHARED, 0)?)?;
    let first = config.count_or(&["moe_layer_start_index"], 1)?;
    // -1 stands for the last layer.
    let to_the_end = config.value("moe_layer_end_index").is_none_or(|last| last.as_i64() == Some(-1));
    let last = if to_the_end { u64::MAX } else { config.count(&["moe_layer_end_index"])? };
    let every = config.count_or(&["moe_layer_interval"], 1)?;
    let is_moe = |layer: usize| {
        let layer = layer as u64;
        layer >= first && layer <= last && (layer + 1).checked_rem(every) == Some(0)
    };
    let dense = config.count(&["intermediate_size"])?;
    let feed_forwards = alternate(shape.layers, is_moe, moe, Some(dense));
    let architecture =
        decoder(&shape, &style, &full(shape.layers), feed_forwards, config.flag("moe_use_aux_free", true)?);
    let predictor = FeedForward::Dense { intermediate: dense, gated: true };
    let predictor = style.layer(shape.hidden, shape.attention(Reach::Full), predictor);
    let modules = config.count_or(&["num_nextn_predict_layers"], 0)?;
    Ok(Architecture { mtp: shape.mtp(config, modules, &[predictor], false)?, ..architecture })
}
