//! Dense decoders in the line of Llama: RMS norms, rotary positions, gated feed-forward.
//!
//! Defaults are those of the families' configuration classes in Hugging Face transformers.

use super::config::Config;
use super::shape::{Defaults, QkNorm, Shape, Style, full, reaches};
use crate::import::ImportError;
use crate::model::{Architecture, Layer, Reach};

type Read = Result<Architecture, ImportError>;

const INTERMEDIATE: &[&str] = &["intermediate_size", "ffn_hidden_size", "n_inner"];
const UNTIED: Defaults = Defaults {
    tied: false,
    hidden: None,
    heads: None,
    kv_heads: None,
    head_dim: None,
    layers: None,
    vocab: None,
    context: None,
};
const TIED: Defaults = Defaults { tied: true, ..UNTIED };

/// Llama and what is saved under its name: Yi, SmolLM2, DeepSeek-Coder, Baichuan, ...
pub(super) fn llama(config: &Config) -> Read {
    let defaults = if config.is_nested() { CLASS } else { UNTIED };
    let shape = Shape::read(config, Defaults { context: Some(2048), ..defaults })?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias: config.flag("mlp_bias", false)?, ..Style::LLAMA };
    let intermediate =
        if config.is_nested() { config.count_or(INTERMEDIATE, 11_008) } else { config.count(INTERMEDIATE) };
    Ok(style.decoder(&shape, &full(shape.layers), intermediate?))
}

/// Files of multimodal models leave out of the text part what equals the defaults of its class.
const CLASS: Defaults =
    Defaults { hidden: Some(4096), heads: Some(32), layers: Some(32), vocab: Some(32_000), ..UNTIED };

/// MiniCPM: the shape of Llama, output head tied; sparse attention of later files is a choice of the engine.
pub(super) fn minicpm(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { context: Some(2048), ..TIED })?;
    Ok(Style::LLAMA.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// Arcee (AFM): squared ReLU without gate.
pub(super) fn arcee(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = config.flag("attention_bias", false)?;
    let mlp_bias = config.flag("mlp_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias, gated: false, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// Apertus: norms of queries and keys, an activation with two learned and two fixed numbers per layer, no gate.
pub(super) fn apertus(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::PerHead, gated: false, ..Style::LLAMA };
    let mut architecture = style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?);
    let activation = if config.text("hidden_act")?.unwrap_or("xielu") == "xielu" { 4 } else { 0 };
    for kind in &mut architecture.layer_kinds {
        kind.layer.vector_params += activation;
    }
    Ok(architecture)
}

/// BitNet b1.58: one norm more inside each branch.
pub(super) fn bitnet(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, norms: 3, ..Style::LLAMA };
    let intermediate = config.count(INTERMEDIATE)?;
    let mut architecture = style.decoder(&shape, &full(shape.layers), intermediate);
    for kind in &mut architecture.layer_kinds {
        kind.layer.vector_params += intermediate;
    }
    Ok(architecture)
}

/// Helium: one flag for the bias of queries, keys and values.
pub(super) fn helium(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let mlp_bias = config.flag("mlp_bias", false)?;
    let style = Style { qkv_bias: config.flag("attention_bias", false)?, mlp_bias, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// Code World Model: one full layer, then three with a window, and so on.
pub(super) fn cwm(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..UNTIED })?;
    let style = Style { mlp_bias: config.flag("mlp_bias", false)?, ..Style::LLAMA };
    let window = stated_or(config, "sliding_window", 8192)?;
    let reaches = reaches(config, shape.layers, window, |layer| layer % 4 != 0)?;
    Ok(style.decoder(&shape, &reaches, config.count(INTERMEDIATE)?))
}

/// InternLM3: flags for the bias of queries, keys and values, and of all other matrices.
pub(super) fn internlm3(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = config.flag("bias", false)?;
    let style = Style { qkv_bias: config.flag("qkv_bias", false)?, o_bias: bias, mlp_bias: bias, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// InternLM: one flag for the bias of the attention.
pub(super) fn internlm(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { context: Some(2048), ..UNTIED })?;
    let bias = config.flag("bias", true)?;
    let style = Style { qkv_bias: bias, o_bias: bias, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// Qwen of 2023: bias on queries, keys and values; `intermediate_size` counts gate and up projection.
pub(super) fn qwen(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = !config.flag("no_bias", true)?;
    let style = Style { qkv_bias: true, o_bias: bias, mlp_bias: bias, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)? / 2))
}

/// MiMo: Qwen 2 with prediction modules.
pub(super) fn mimo(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let style = Style { qkv_bias: config.flag("attention_bias", true)?, ..Style::LLAMA };
    let intermediate = config.count(INTERMEDIATE)?;
    let architecture = style.decoder(&shape, &qwen_reaches(config, shape.layers)?, intermediate);
    let modules = config.count_or(&["num_nextn_predict_layers"], 0)?;
    let layers: Vec<Layer> = architecture.iter_layers().take(1).cloned().collect();
    Ok(Architecture { mtp: shape.mtp(config, modules, &layers, false)?, ..architecture })
}

/// Mistral: a window of 4,096 tokens unless the file states another or `null`.
pub(super) fn mistral(config: &Config) -> Read {
    let nested = config.is_nested();
    let defaults = if nested { Defaults { kv_heads: Some(8), context: Some(131_072), ..CLASS } } else { UNTIED };
    let shape = Shape::read(config, defaults)?;
    let window = stated_or(config, "sliding_window", 4096)?;
    let reaches = reaches(config, shape.layers, window, |_| true)?;
    let intermediate = if nested { config.count_or(INTERMEDIATE, 14_336) } else { config.count(INTERMEDIATE) };
    Ok(Style::LLAMA.decoder(&shape, &reaches, intermediate?))
}

/// Ministral 3: no window unless the file states one.
pub(super) fn ministral3(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..UNTIED })?;
    windowed(config, &shape, Style::LLAMA)
}

/// Phi-3 and Phi-4.
pub(super) fn phi3(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    windowed(config, &shape, Style::LLAMA)
}

/// Qwen 1.5, 2 and 2.5: bias on queries, keys and values.
pub(super) fn qwen2(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let style = Style { qkv_bias: true, ..Style::LLAMA };
    Ok(style.decoder(&shape, &qwen_reaches(config, shape.layers)?, config.count(INTERMEDIATE)?))
}

/// Qwen3: norms of queries and keys instead of the bias.
pub(super) fn qwen3(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..UNTIED })?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    Ok(style.decoder(&shape, &qwen_reaches(config, shape.layers)?, config.count(INTERMEDIATE)?))
}

/// Windows of the Qwen families: only with `use_sliding_window`, and only from layer `max_window_layers` on.
pub(super) fn qwen_reaches(config: &Config, layers: usize) -> Result<Vec<Reach>, ImportError> {
    let window =
        if config.flag("use_sliding_window", false)? { stated_or(config, "sliding_window", 4096)? } else { None };
    let first = config.count_or(&["max_window_layers"], 28)?;
    reaches(config, layers, window, |layer| layer as u64 >= first)
}

/// OLMo: norms without weights.
pub(super) fn olmo(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, norms: 0, final_norms: 0, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// OLMo 2: norms of queries and keys over all heads.
pub(super) fn olmo2(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    Ok(olmo2_style(config)?.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// OLMo 3: three of four layers have a window.
pub(super) fn olmo3(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let window = stated_or(config, "sliding_window", 4096)?;
    let reaches = reaches(config, shape.layers, window, |layer| (layer + 1) % 4 != 0)?;
    Ok(olmo2_style(config)?.decoder(&shape, &reaches, config.count(INTERMEDIATE)?))
}

fn olmo2_style(config: &Config) -> Result<Style, ImportError> {
    let bias = config.flag("attention_bias", false)?;
    Ok(Style { qkv_bias: bias, o_bias: bias, qk_norm: QkNorm::AllHeads, ..Style::LLAMA })
}

/// Command R: one norm per layer for the parallel branches, output head tied.
pub(super) fn cohere(config: &Config) -> Read {
    let shape = Shape::read(config, TIED)?;
    let bias = config.flag("attention_bias", false)?;
    let qk_norm = if config.flag("use_qk_norm", false)? { QkNorm::AllHeads } else { QkNorm::None };
    let style = Style { qkv_bias: bias, o_bias: bias, qk_norm, norms: 1, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// Command R7B and Command A: three of four layers have a window.
pub(super) fn cohere2(config: &Config) -> Read {
    let shape = Shape::read(config, TIED)?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, norms: 1, ..Style::LLAMA };
    let window = stated_or(config, "sliding_window", 4096)?;
    let every = config.count_or(&["sliding_window_pattern", "_sliding_window_pattern"], 4)?;
    let reaches = reaches(config, shape.layers, window, every_but_last_of(every))?;
    Ok(style.decoder(&shape, &reaches, config.count(INTERMEDIATE)?))
}

/// EXAONE 4: windows by a repeating pattern, which is a period or letters such as `LLLG`.
pub(super) fn exaone4(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let style = Style { qk_norm: QkNorm::PerHead, ..Style::LLAMA };
    let window = stated_or(config, "sliding_window", 4096)?;
    let reaches = exaone_reaches(config, shape.layers, window)?;
    Ok(style.decoder(&shape, &reaches, config.count(INTERMEDIATE)?))
}

pub(super) fn exaone_reaches(config: &Config, layers: usize, window: Option<u64>) -> Result<Vec<Reach>, ImportError> {
    let key = "sliding_window_pattern";
    match config.value(key) {
        Some(serde_json::Value::String(pattern)) if !pattern.is_empty() => {
            let letters: Vec<char> = pattern.chars().collect();
            let letter = |layer: usize| letters.get(layer % letters.len()) == Some(&'L');
            reaches(config, layers, window, |layer| layer + 1 != layers && letter(layer))
        }
        _ => reaches(config, layers, window, every_but_last_of(config.count_or(&[key], 4)?)),
    }
}

/// Seed-OSS: bias on queries, keys and values by default.
pub(super) fn seed_oss(config: &Config) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..UNTIED })?;
    let style = Style {
        qkv_bias: config.flag("attention_bias", true)?,
        o_bias: config.flag("attention_out_bias", false)?,
        mlp_bias: config.flag("mlp_bias", false)?,
        ..Style::LLAMA
    };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// GLM-4 of April 2025: norms before and after each branch.
pub(super) fn glm4(config: &Config) -> Read {
    glm(config, 4)
}

/// GLM-4 of 2024 in transformers' own format.
pub(super) fn glm_2024(config: &Config) -> Read {
    glm(config, 2)
}

/// GLM-4.1V: as GLM-4 of 2025, with bias on queries, keys and values whatever the file says.
pub(super) fn glm4v(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let style = Style { qkv_bias: true, norms: 4, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

fn glm(config: &Config, norms: u64) -> Read {
    let shape = Shape::read(config, Defaults { head_dim: Some(128), ..UNTIED })?;
    let style = Style { qkv_bias: config.flag("attention_bias", true)?, norms, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// ERNIE 4.5: one flag for the bias of all matrices.
pub(super) fn ernie4_5(config: &Config) -> Read {
    let shape = Shape::read(config, TIED)?;
    let bias = config.flag("use_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias: bias, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// SmolLM3: rotary positions in three of four layers, which changes nothing that is counted here.
pub(super) fn smollm3(config: &Config) -> Read {
    let shape = Shape::read(config, TIED)?;
    let bias = config.flag("attention_bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, mlp_bias: config.flag("mlp_bias", false)?, ..Style::LLAMA };
    let window = if config.flag("use_sliding_window", false)? { config.optional(&["sliding_window"])? } else { None };
    let reaches = reaches(config, shape.layers, window, |_| true)?;
    Ok(style.decoder(&shape, &reaches, config.count(INTERMEDIATE)?))
}

/// InternLM2: one flag for the bias of the attention; every released model switches it off.
pub(super) fn internlm2(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let bias = config.flag("bias", false)?;
    let style = Style { qkv_bias: bias, o_bias: bias, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// Hunyuan dense: norms of queries and keys.
pub(super) fn hunyuan(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    if config.flag("use_cla", false)? {
        return Err(config.unsupported("sharing of caches between layers (`use_cla`)"));
    }
    let bias = config.flag("attention_bias", false)?;
    let qk_norm = if config.flag("use_qk_norm", true)? { QkNorm::PerHead } else { QkNorm::None };
    let style =
        Style { qkv_bias: bias, o_bias: bias, qk_norm, mlp_bias: config.flag("mlp_bias", false)?, ..Style::LLAMA };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// ChatGLM2, ChatGLM3 and GLM-4 in their first format.
pub(super) fn chatglm(config: &Config) -> Read {
    let shape = Shape::read(config, UNTIED)?;
    let grouped = config.flag("multi_query_attention", false)?;
    let shape = Shape { kv_heads: if grouped { shape.kv_heads } else { shape.heads }, ..shape };
    let linear_bias = config.flag("add_bias_linear", false)?;
    let style = Style {
        qkv_bias: linear_bias || config.flag("add_qkv_bias", false)?,
        o_bias: linear_bias,
        mlp_bias: linear_bias,
        ..Style::LLAMA
    };
    Ok(style.decoder(&shape, &full(shape.layers), config.count(INTERMEDIATE)?))
}

/// The window of every layer, if the file states one.
fn windowed(config: &Config, shape: &Shape, style: Style) -> Read {
    let reaches = reaches(config, shape.layers, config.optional(&["sliding_window"])?, |_| true)?;
    Ok(style.decoder(shape, &reaches, config.count(INTERMEDIATE)?))
}

/// A count that may be `null`: absent means the default of the family, `null` means none.
pub(super) fn stated_or(config: &Config, key: &str, default: u64) -> Result<Option<u64>, ImportError> {
    if config.states(key) { config.optional(&[key]) } else { Ok(Some(default)) }
}

/// Whether a layer is not the last of its group of `every` layers.
pub(super) fn every_but_last_of(every: u64) -> impl Fn(usize) -> bool {
    move |layer| (layer as u64 + 1).checked_rem(every).is_some_and(|rest| rest != 0)
}
