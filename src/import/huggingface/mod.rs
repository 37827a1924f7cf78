//! `config.json` of a Hugging Face model: from its keys to an [`Architecture`].
//!
//! Parameter counts come out exactly as the published checkpoints have them; what is left out is listed in
//! [`Architecture::params_total`]. Every family is read by its own meaning of the keys, with the defaults of its
//! configuration class where a key is absent; a family that is not known is an error, never a guess.

mod checks;
mod classic;
mod config;
mod dense;
mod format;
mod gemma;
mod hybrid;
mod irregular;
mod latent;
mod moe;
mod shape;
mod state_space;

use crate::import::{ImportError, UnknownFamily};
use crate::model::{Architecture, Model};
use config::Config;
use serde_json::{Map, Value};

/// How to read a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportOptions {
    /// Reads an unknown `model_type` as a plain Llama-like decoder, if none of its keys speaks against it. The model then
    /// carries a note that says so.
    pub assume_llama_like: bool,
}

impl ImportOptions {
    /// The same options with `assume_llama_like` set.
    #[must_use]
    pub const fn with_assume_llama_like(self, assume_llama_like: bool) -> Self {
        Self { assume_llama_like }
    }
}

/// Reads the text of a `config.json`; `file` names it in errors and, unless the text states a name, the model.
///
/// Of a multimodal model the text decoder is read; vision and audio towers are not counted.
///
/// # Errors
/// [`ImportError`] for text that is not JSON, missing keys, values of the wrong kind, a `model_type` that is not known, keys
/// that contradict the family, and numbers that cannot be those of a model.
///
/// # Examples
/// ```
/// use llm_roofline::import::huggingface::model_from_config;
///
/// let config = r#"{
///     "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
///     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
///     "max_position_embeddings": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"
/// }"#;
/// let model = model_from_config(config, "Llama-3.1-8B/config.json").unwrap();
/// assert_eq!(model.slug, "llama-3.1-8b");
/// assert_eq!(model.params_total(), 8_030_261_248);
/// assert_eq!(model.architecture().unwrap().kv_elements_per_token() * 2.0, 131_072.0); // bytes in 16 bits
/// ```
pub fn model_from_config(text: &str, file: &str) -> Result<Model, ImportError> {
    model_from_config_with(text, file, ImportOptions::default())
}

/// [`model_from_config`] with options.
///
/// # Errors
/// As [`model_from_config`].
pub fn model_from_config_with(text: &str, file: &str, options: ImportOptions) -> Result<Model, ImportError> {
    let root = parse(text, file)?;
    let outer = Config::new(file, text, &root);
    let nested = text_config(&outer);
    let config = nested.as_ref().unwrap_or(&outer);
    let model_type = family_name(&outer, config)?;
    let reader = match reader(&model_type) {
        Some(reader) => reader,
        None if options.assume_llama_like && checks::structural_keys(config).is_empty() => dense::llama,
        None => return Err(unknown_family(config, &model_type)),
    };
    let architecture = reader(config)?.checked();
    let architecture = architecture.map_err(|error| ImportError::Model { file: file.into(), error })?;
    checks::contradictions(config, &model_type, &architecture)?;

    let mut model = Model::from_architecture(model_name(&outer, file), model_type.clone(), architecture);
    if self::reader(&model_type).is_none() {
        model.notes.push(format!("`{model_type}` is not a known family; read as a plain Llama-like decoder"));
    }
    let (native_format, note) = format::native_format(config, &outer);
    model.native_format = native_format;
    model.notes.extend(note);
    model.tokenizer =
        model.architecture().and_then(|architecture| tokenizer(&model_type, architecture)).map(Into::into);
    Ok(model)
}

/// The families whose configurations are understood, by `model_type`.
pub fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

type Reader = fn(&Config) -> Result<Architecture, ImportError>;

/// `model_type` (without the suffix `_text`) and how to read it.
const FAMILIES: &[(&str, Reader)] = &[
    ("afmoe", moe::afmoe),
    ("apertus", dense::apertus),
    ("arcee", dense::arcee),
    ("baichuan", dense::llama),
    ("bailing_moe", moe::bailing),
    ("bailing_moe_v2", moe::bailing),
    ("bamba", state_space::bamba),
    ("bitnet", dense::bitnet),
    ("bloom", classic::bloom),
    ("chatglm", dense::chatglm),
    ("codegen", classic::gptj),
    ("cohere", dense::cohere),
    ("cohere2", dense::cohere2),
    ("cwm", dense::cwm),
    ("dbrx", moe::dbrx),
    ("deepseek", moe::deepseek),
    ("deepseek_v2", latent::deepseek_v2),
    ("deepseek_v3", latent::deepseek_v3),
    ("deepseek_v32", latent::deepseek_v3),
    ("deepseek_v4", latent::deepseek_v4),
    ("dots1", moe::dots1),
    ("ernie4_5", dense::ernie4_5),
    ("ernie4_5_moe", moe::ernie4_5_moe),
    ("exaone", dense::llama),
    ("exaone4", dense::exaone4),
    ("exaone_moe", moe::exaone_moe),
    ("falcon", classic::falcon),
    ("falcon_mamba", state_space::mamba),
    ("gemma", gemma::gemma),
    ("gemma2", gemma::gemma2),
    ("gemma3", gemma::gemma3),
    ("gemma3n", gemma::gemma3n),
    ("gemma4", gemma::gemma4),
    ("glm", dense::glm_2024),
    ("glm4", dense::glm4),
    ("glm4_moe", moe::glm4_moe),
    ("glm4_moe_lite", latent::glm4_moe_lite),
    ("glm4v", dense::glm4v),
    ("glm4v_moe", moe::glm4v_moe),
    ("glm_moe_dsa", latent::glm_moe_dsa),
    ("gpt2", classic::gpt2),
    ("gpt3", classic::gpt2),
    ("gpt_bigcode", classic::gpt_bigcode),
    ("gpt_neo", classic::gpt_neo),
    ("gpt_neox", classic::gpt_neox),
    ("gpt_oss", moe::gpt_oss),
    ("gptj", classic::gptj),
    ("granite", dense::llama),
    ("granitemoe", moe::granitemoe),
    ("granitemoehybrid", hybrid::granite_hybrid),
    ("granitemoeshared", moe::granitemoe),
    ("grok-1", moe::grok1),
    ("helium", dense::helium),
    ("hunyuan", irregular::hunyuan_moe),
    ("hunyuan_v1_dense", dense::hunyuan),
    ("hunyuan_v1_moe", irregular::hunyuan_moe),
    ("hy_v3", moe::hy_v3),
    ("internlm", dense::internlm),
    ("internlm2", dense::internlm2),
    ("internlm3", dense::internlm3),
    ("jamba", state_space::jamba),
    ("kimi_k2", latent::deepseek_v3),
    ("kimi_linear", hybrid::kimi_linear),
    ("lfm2", state_space::lfm2),
    ("lfm2_moe", state_space::lfm2_moe),
    ("llama", dense::llama),
    ("llama4", moe::llama4),
    ("mamba", state_space::mamba),
    ("mamba2", hybrid::mamba2),
    ("mimo", dense::mimo),
    ("mimo_v2", irregular::mimo_v2),
    ("mimo_v2_flash", irregular::mimo_v2),
    ("minicpm", dense::minicpm),
    ("minicpm3", latent::minicpm3),
    ("minimax", hybrid::minimax),
    ("minimax_m1", hybrid::minimax),
    ("minimax_m2", moe::minimax_m2),
    ("minimax_m3", moe::minimax_m3),
    ("minimax_text_01", hybrid::minimax),
    ("ministral", dense::mistral),
    ("ministral3", dense::ministral3),
    ("mistral", dense::mistral),
    ("mistral3", dense::mistral),
    ("mistral4", latent::mistral4),
    ("mixtral", moe::mixtral),
    ("mllama", irregular::mllama),
    ("mpt", classic::mpt),
    ("nemotron", classic::nemotron),
    ("nemotron-nas", irregular::nemotron_nas),
    ("nemotron_h", hybrid::nemotron_h),
    ("olmo", dense::olmo),
    ("olmo2", dense::olmo2),
    ("olmo3", dense::olmo3),
    ("olmo_hybrid", state_space::olmo_hybrid),
    ("olmoe", moe::olmoe),
    ("opt", classic::opt),
    ("palm", classic::palm),
    ("persimmon", classic::persimmon),
    ("phi", classic::phi),
    ("phi-msft", classic::phi),
    ("phi3", dense::phi3),
    ("phi4_multimodal", dense::phi3),
    ("phi4mm", dense::phi3),
    ("phimoe", moe::phimoe),
    ("qwen", dense::qwen),
    ("qwen2", dense::qwen2),
    ("qwen2_5_omni", dense::qwen2),
    ("qwen2_5_vl", dense::qwen2),
    ("qwen2_moe", moe::qwen2_moe),
    ("qwen2_vl", dense::qwen2),
    ("qwen3", dense::qwen3),
    ("qwen3_5", hybrid::qwen3_5),
    ("qwen3_5_moe", hybrid::qwen3_next),
    ("qwen3_moe", moe::qwen3_moe),
    ("qwen3_next", hybrid::qwen3_next),
    ("qwen3_omni_moe", moe::qwen3_moe),
    ("qwen3_vl", dense::qwen3),
    ("qwen3_vl_moe", moe::qwen3_moe),
    ("seed_oss", dense::seed_oss),
    ("smollm3", dense::smollm3),
    ("solar_open", moe::solar_open),
    ("stablelm", classic::stablelm),
    ("starcoder2", classic::starcoder2),
    ("step3p5", irregular::step3p5),
    ("step3p7", irregular::step3p5),
    ("yi", dense::llama),
];

fn reader(model_type: &str) -> Option<Reader> {
    FAMILIES.iter().find(|(name, _)| *name == model_type).map(|(_, reader)| *reader)
}

fn parse(text: &str, file: &str) -> Result<Map<String, Value>, ImportError> {
    // Some editors start files with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let parsed = serde_json::from_str(text).or_else(|_| serde_json::from_str(&config::without_python_floats(text)));
    parsed.map_err(|error| ImportError::Syntax {
        file: file.into(),
        line: error.line(),
        column: error.column(),
        message: error.to_string(),
    })
}

/// The part that describes the text decoder, where it is not the whole.
fn text_config<'a>(outer: &Config<'a>) -> Option<Config<'a>> {
    let thinker = outer.inner("thinker_config");
    let around = thinker.as_ref().unwrap_or(outer);
    ["text_config", "llm_config", "language_config"].into_iter().find_map(|key| around.inner(key))
}

/// The family: `model_type` of the text part, else of the whole, in lower case and without `_text` or `_text_model`.
fn family_name(outer: &Config, config: &Config) -> Result<String, ImportError> {
    let stated = config.text("model_type")?.or(outer.text("model_type")?);
    let name = match stated {
        Some(name) => name,
        // Files of the state-spaces repository have no model_type.
        None if config.inner("ssm_cfg").is_some() => {
            let ssm = config.inner("ssm_cfg").and_then(|ssm| ssm.text("layer").ok().flatten());
            if ssm == Some("Mamba2") { "mamba2" } else { "mamba" }
        }
        None => return Err(outer.missing(&["model_type"], "the name of an architecture family, such as llama")),
    };
    let name = name.to_lowercase();
    let text_part = name.strip_suffix("_text_model").or_else(|| name.strip_suffix("_text"));
    Ok(text_part.map_or(name.clone(), Into::into))
}

fn unknown_family(config: &Config, model_type: &str) -> ImportError {
    // The outcome does not matter: asking tells which keys a plain decoder would have used.
    let _ = dense::llama(config);
    ImportError::UnknownFamily(Box::new(UnknownFamily {
        file: config.file().into(),
        model_type: model_type.into(),
        nearest: crate::profile::nearest(model_type, families()).map(Into::into),
        understood: config.keys_read(),
        structural: checks::structural_keys(config),
    }))
}

/// `_name_or_path` if it is a name, else the file's name, or that of its folder if it is just `config.json`.
fn model_name(outer: &Config, file: &str) -> String {
    let stated = outer.text("_name_or_path").ok().flatten().unwrap_or_default();
    if stated.split('/').count() == 2 && !stated.starts_with(['.', '/', '~']) && !stated.ends_with('/') {
        return stated.into();
    }
    let mut parts = file.rsplit(['/', '\\']);
    let stem = parts.next().map(|name| name.strip_suffix(".json").unwrap_or(name)).unwrap_or_default();
    let name = if stem == "config" { parts.next().unwrap_or(stem) } else { stem };
    name.replace("__", "/")
}

/// The tokenizer, where vocabulary and family leave no doubt.
fn tokenizer(family: &str, architecture: &Architecture) -> Option<&'static str> {
    match (family, architecture.vocab_size) {
        ("llama" | "nemotron-nas" | "smollm3", 128_256) => Some("Llama 3"),
        ("llama", 32_000 | 32_016) => Some("Llama 2"),
        ("gemma" | "gemma2", 256_000) => Some("Gemma 2"),
        ("gemma3" | "gemma3n", 262_144 | 262_208 | 262_400) => Some("Gemma 3"),
        ("qwen2" | "qwen2_moe" | "qwen2_vl" | "qwen2_5_vl", 151_936 | 152_064) => Some("Qwen2.5"),
        ("qwen3" | "qwen3_moe" | "qwen3_next" | "qwen3_vl" | "qwen3_vl_moe", 151_936) => Some("Qwen3"),
        ("deepseek_v3" | "deepseek_v32", 129_280) => Some("DeepSeek V3"),
        ("mistral", 131_072) => Some("Tekken"),
        ("gpt_oss", 201_088) => Some("o200k"),
        _ => None,
    }
}
