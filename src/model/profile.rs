//! Model profiles as TOML: reading, checking, writing.

use super::{Architecture, Layer, LayerKind, Linear, Mixer, Model, ModelBody, MtpModules, Published, Totals};
use crate::format::GgufFamily;
use crate::profile::{self, ProfileError};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A model whose numbers cannot be those of a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A count that must be positive is zero.
    #[error("{key} is 0, expected at least 1{}", .layer.as_ref().map(|layer| format!(" (layer kind `{layer}`)")).unwrap_or_default())]
    Zero {
        /// The key.
        key: &'static str,
        /// Layer kind it was found in.
        layer: Option<String>,
    },
    /// A number is beyond anything that exists, so that products of it could overflow.
    #[error("{key} is {value}, more than the limit of {limit}")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// The number.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// Query heads are not a multiple of key-value heads.
    #[error("layer kind `{layer}`: {heads} query heads are not a multiple of {kv_heads} key-value heads")]
    HeadsDoNotDivide {
        /// Layer kind.
        layer: String,
        /// Query heads.
        heads: u64,
        /// Key-value heads.
        kv_heads: u64,
    },
    /// More experts per token than experts.
    #[error("layer kind `{layer}`: {chosen} experts per token of {experts} experts")]
    TooManyExpertsPerToken {
        /// Layer kind.
        layer: String,
        /// Experts per token.
        chosen: u64,
        /// Experts.
        experts: u64,
    },
    /// The layer order names a kind that is not declared.
    #[error("layer_order names `{name}`, declared are {declared}{hint}")]
    UnknownLayerKind {
        /// The name.
        name: String,
        /// The declared names.
        declared: String,
        /// The nearest one.
        hint: String,
    },
    /// An amount of data is negative or not a number.
    #[error("{key} is {value}, expected at least 0 B")]
    Negative {
        /// The key.
        key: &'static str,
        /// The amount.
        value: Bytes,
    },
    /// A fraction is not a positive number.
    #[error("{key} is {value}, expected a positive number")]
    NotPositive {
        /// The key.
        key: &'static str,
        /// The number.
        value: f64,
    },
}

/// Widths, heads and counts beyond this are refused: no product of three of them, times the layers, overflows 64 bits.
const LIMIT: u64 = 1 << 28;
/// Sizes of heads, ranks and states beyond this are refused: a product of three of them stays below 2^60.
const DIMENSION_LIMIT: u64 = 1 << 20;
/// Models of more parameters are refused.
const PARAMS_LIMIT: u64 = 1 << 60;
/// Layers beyond this are refused.
const LAYER_LIMIT: u64 = 1 << 16;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    schema_version: u32,
    slug: String,
    name: String,
    family: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    native_format: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published: Option<Published>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architecture: Option<RawArchitecture>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArchitecture {
    hidden_size: u64,
    vocab_size: u64,
    max_context_tokens: u64,
    tied_embeddings: bool,
    #[serde(default)]
    lookup_params: u64,
    vector_params: u64,
    /// Runs of layers: `"3 x dense"`, or just `"dense"`.
    layer_order: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    global_linears: Vec<Linear>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtp: Option<MtpModules>,
    #[serde(default, skip_serializing_if = "is_default")]
    gguf_family: GgufFamily,
    layer_kinds: BTreeMap<String, Layer>,
}

fn is_default(family: &GgufFamily) -> bool {
    *family == GgufFamily::default()
}

const SCHEMA_VERSION: u32 = 1;

impl Model {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`] with file, line, key and the nearest valid name.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let raw: RawModel = profile::read(text, file)?;
        if raw.schema_version != SCHEMA_VERSION {
            let message = format!("is {}, this version reads {SCHEMA_VERSION}", raw.schema_version);
            return Err(ProfileError::at_key(file, "schema_version", message).locate(text));
        }
        let body = match (raw.architecture, raw.totals) {
            (Some(architecture), None) => {
                let architecture = architecture.unfold().and_then(Architecture::checked);
                ModelBody::Architecture(
                    architecture.map_err(|error| ProfileError::at_key(file, error.key(), &error).locate(text))?,
                )
            }
            (None, Some(totals)) => ModelBody::Totals(
                totals.checked().map_err(|error| ProfileError::at_key(file, error.key(), &error).locate(text))?,
            ),
            _ => {
                let message = "expected exactly one of [architecture] and [totals]";
                return Err(ProfileError::at_key(file, "architecture", message));
            }
        };
        Ok(Self {
            slug: raw.slug,
            name: raw.name,
            family: raw.family,
            aliases: raw.aliases,
            native_format: raw.native_format,
            tokenizer: raw.tokenizer,
            published: raw.published,
            sources: raw.sources,
            notes: raw.notes,
            body,
        })
    }

    /// Writes the profile; reading it again gives an equal model.
    pub fn to_toml(&self) -> String {
        let (architecture, totals) = match &self.body {
            ModelBody::Architecture(architecture) => (Some(RawArchitecture::fold(architecture)), None),
            ModelBody::Totals(totals) => (None, Some(totals.clone())),
        };
        let raw = RawModel {
            schema_version: SCHEMA_VERSION,
            slug: self.slug.clone(),
            name: self.name.clone(),
            family: self.family.clone(),
            aliases: self.aliases.clone(),
            native_format: self.native_format.clone(),
            tokenizer: self.tokenizer.clone(),
            published: self.published.clone(),
            sources: self.sources.clone(),
            notes: self.notes.clone(),
            totals,
            architecture,
        };
        toml::to_string(&raw).unwrap_or_default()
    }
}

impl RawArchitecture {
    fn fold(architecture: &Architecture) -> Self {
        let mut layer_order: Vec<(u64, &str)> = Vec::new();
        for &kind in &architecture.layer_order {
            let name = architecture.layer_kinds[kind].name.as_str();
            match layer_order.last_mut() {
                Some((count, last)) if *last == name => *count += 1,
                _ => layer_order.push((1, name)),
            }
        }
        let spell = |(count, name): (u64, &str)| if count == 1 { name.into() } else { format!("{count} x {name}") };
        Self {
            hidden_size: architecture.hidden_size,
            vocab_size: architecture.vocab_size,
            max_context_tokens: architecture.max_context_tokens,
            tied_embeddings: architecture.tied_embeddings,
            lookup_params: architecture.lookup_params,
            vector_params: architecture.vector_params,
            layer_order: layer_order.into_iter().map(spell).collect(),
            global_linears: architecture.global_linears.clone(),
            mtp: architecture.mtp,
            gguf_family: architecture.gguf_family,
            layer_kinds: architecture.layer_kinds.iter().map(|kind| (kind.name.clone(), kind.layer.clone())).collect(),
        }
    }

    fn unfold(self) -> Result<Architecture, ModelError> {
        let mut named = Vec::new();
        for run in &self.layer_order {
            let (count, name) = match run.split_once(" x ") {
                Some((count, name)) if count.trim().parse::<u64>().is_ok() => {
                    (count.trim().parse().unwrap_or(0), name.trim())
                }
                _ => (1, run.trim()),
            };
            if count > LAYER_LIMIT {
                return Err(ModelError::TooLarge { key: "layer_order", value: count, limit: LAYER_LIMIT });
            }
            let Some(layer) = self.layer_kinds.get(name) else {
                let declared = self.layer_kinds.keys().map(String::as_str);
                let hint = profile::nearest(name, declared.clone());
                return Err(ModelError::UnknownLayerKind {
                    name: name.into(),
                    declared: declared.collect::<Vec<_>>().join(", "),
                    hint: hint.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default(),
                });
            };
            named.extend((0..count).map(|_| (name.to_string(), layer.clone())));
        }
        let base = Architecture::from_layers(self.hidden_size, self.vocab_size, self.max_context_tokens, named);
        Ok(Architecture {
            tied_embeddings: self.tied_embeddings,
            lookup_params: self.lookup_params,
            global_linears: self.global_linears,
            vector_params: self.vector_params,
            mtp: self.mtp,
            gguf_family: self.gguf_family,
            ..base
        })
    }
}

impl Totals {
    /// The same totals, if they can be those of a model.
    ///
    /// # Errors
    /// [`ModelError`] for zero parameters, bits that are not a positive number, or a negative cache.
    pub fn checked(self) -> Result<Self, ModelError> {
        if self.params_total == 0 || self.params_active == 0 {
            return Err(ModelError::Zero { key: "params_total", layer: None });
        }
        if self.params_active > self.params_total {
            let (value, limit) = (self.params_active, self.params_total);
            return Err(ModelError::TooLarge { key: "params_active", value, limit });
        }
        if !(self.bits_per_weight.is_finite() && self.bits_per_weight > 0.0) {
            return Err(ModelError::NotPositive { key: "bits_per_weight", value: self.bits_per_weight });
        }
        let cache = self.kv_bytes_per_token;
        if !(cache.is_finite() && cache >= Bytes::ZERO) {
            return Err(ModelError::Negative { key: "kv_bytes_per_token", value: cache });
        }
        Ok(self)
    }
}

impl Architecture {
    /// The same architecture, if it can be one: positive sizes, heads that divide, no number so large that a product overflows.
    ///
    /// # Errors
    /// [`ModelError`] naming the key, the value and the limit.
    pub fn checked(self) -> Result<Self, ModelError> {
        self.check().map(|()| self)
    }

    /// Whether it can be an architecture, see [`checked`](Self::checked).
    ///
    /// # Errors
    /// [`ModelError`] naming the key, the value and the limit.
    pub fn check(&self) -> Result<(), ModelError> {
        dimension("hidden_size", self.hidden_size, None)?;
        positive("vocab_size", self.vocab_size, None)?;
        limited("vocab_size", self.vocab_size, LIMIT)?;
        positive("layer_order", self.layer_order.len() as u64, None)?;
        limited("layer_order", self.layer_order.len() as u64, LAYER_LIMIT)?;
        positive("max_context_tokens", self.max_context_tokens, None)?;
        for &kind in &self.layer_order {
            limited("layer_order", kind as u64, (self.layer_kinds.len() as u64).saturating_sub(1))?;
        }
        for LayerKind { name, layer } in &self.layer_kinds {
            check_layer(name, layer, self.hidden_size)?;
        }
        for linear in &self.global_linears {
            check_linear(linear)?;
        }
        limited("lookup_params", self.lookup_params, PARAMS_LIMIT)?;
        limited("vector_params", self.vector_params, PARAMS_LIMIT)?;
        let per_layer = self.layer_kinds.iter().map(|kind| kind.layer.params(self.hidden_size));
        let in_layers: u128 =
            per_layer.zip(self.kind_counts()).map(|(params, count)| u128::from(params) * u128::from(count)).sum();
        limited("params_total", u64::try_from(in_layers).unwrap_or(u64::MAX), PARAMS_LIMIT)
    }
}

fn check_layer(name: &str, layer: &Layer, hidden_size: u64) -> Result<(), ModelError> {
    let kind = Some(name);
    // Before any product of them is formed.
    for (key, size) in mixer_dimensions(&layer.mixer) {
        dimension(key, size, kind)?;
    }
    if let Mixer::Attention(attention) = &layer.mixer {
        let (heads, kv_heads) = (attention.heads, attention.kv_heads);
        if heads % kv_heads != 0 {
            return Err(ModelError::HeadsDoNotDivide { layer: name.into(), heads, kv_heads });
        }
    }
    for pass in layer.attention_passes() {
        let positive_reach = match pass.reach {
            super::Reach::Window(n) | super::Reach::Chunk(n) | super::Reach::Compressed { ratio: n, .. } => n,
            super::Reach::Full => 1,
        };
        positive("reach", positive_reach, kind)?;
    }
    if let Some(moe) = layer.feed_forward.moe() {
        positive("experts", moe.experts, kind)?;
        positive("experts_per_token", moe.experts_per_token, kind)?;
        limited("experts", moe.experts, 1 << 16)?;
        limited("vector_params_per_expert", moe.vector_params_per_expert, LIMIT)?;
        if moe.experts_per_token > moe.experts {
            let (chosen, experts) = (moe.experts_per_token, moe.experts);
            return Err(ModelError::TooManyExpertsPerToken { layer: name.into(), chosen, experts });
        }
    }
    limited("vector_params", layer.vector_params, 1 << 40)?;
    limited("state_elements", layer.state_elements(), 1 << 40)?;
    for linear in layer.linears(hidden_size).iter().chain(&layer.expert_linears(hidden_size)) {
        check_linear(linear)?;
    }
    Ok(())
}

/// The sizes of a mixer that must be positive, and small enough that a product of three does not overflow.
fn mixer_dimensions(mixer: &Mixer) -> Vec<(&'static str, u64)> {
    let indexed = |sparse: Option<super::SparseSelection>| {
        let indexer = sparse.and_then(|sparse| sparse.indexer);
        indexer.map_or((1, 1), |indexer| (indexer.heads, indexer.head_dim))
    };
    match mixer {
        Mixer::None | Mixer::Linear => Vec::new(),
        Mixer::Attention(attention) => {
            let (indexer_heads, indexer_dim) = indexed(attention.sparse);
            vec![
                ("heads", attention.heads),
                ("kv_heads", attention.kv_heads),
                ("head_dim", attention.head_dim),
                ("v_head_dim", attention.value_dim()),
                ("indexer.heads", indexer_heads),
                ("indexer.head_dim", indexer_dim),
            ]
        }
        Mixer::LatentAttention(attention) => {
            let (indexer_heads, indexer_dim) = indexed(attention.sparse);
            vec![
                ("heads", attention.heads),
                ("q_lora_rank", attention.q_lora_rank.unwrap_or(1)),
                ("kv_lora_rank", attention.kv_lora_rank),
                ("qk_nope_head_dim", attention.qk_nope_head_dim),
                // Models without rotary keys have none.
                ("qk_rope_head_dim", attention.qk_rope_head_dim.max(1)),
                ("v_head_dim", attention.v_head_dim),
                ("indexer.heads", indexer_heads),
                ("indexer.head_dim", indexer_dim),
            ]
        }
        Mixer::CompressedAttention(attention) => {
            let (indexer_heads, indexer_dim) = indexed(attention.sparse);
            vec![
                ("heads", attention.heads),
                ("head_dim", attention.head_dim),
                ("q_lora_rank", attention.q_lora_rank),
                ("o_groups", attention.o_groups),
                ("o_lora_rank", attention.o_lora_rank),
                ("window", attention.window),
                ("compress_ratio", attention.compress_ratio.max(1)),
                ("indexer.heads", indexer_heads),
                ("indexer.head_dim", indexer_dim),
            ]
        }
        Mixer::Recurrent(recurrent) => recurrent.dimensions(),
    }
}

fn check_linear(linear: &Linear) -> Result<(), ModelError> {
    positive("in_features", linear.in_features, None)?;
    positive("out_features", linear.out_features, None)?;
    limited("in_features", linear.in_features, LIMIT)?;
    limited("out_features", linear.out_features, LIMIT)?;
    let params = u128::from(linear.copies) * u128::from(linear.in_features) * u128::from(linear.out_features);
    limited("in_features x out_features", u64::try_from(params).unwrap_or(u64::MAX), 1 << 38)
}

fn dimension(key: &'static str, value: u64, layer: Option<&str>) -> Result<(), ModelError> {
    positive(key, value, layer)?;
    limited(key, value, DIMENSION_LIMIT)
}

fn positive(key: &'static str, value: u64, layer: Option<&str>) -> Result<(), ModelError> {
    if value == 0 { Err(ModelError::Zero { key, layer: layer.map(Into::into) }) } else { limited(key, value, 1 << 40) }
}

fn limited(key: &'static str, value: u64, limit: u64) -> Result<(), ModelError> {
    if value > limit { Err(ModelError::TooLarge { key, value, limit }) } else { Ok(()) }
}

impl ModelError {
    fn key(&self) -> &'static str {
        match self {
            Self::Zero { key, .. }
            | Self::TooLarge { key, .. }
            | Self::NotPositive { key, .. }
            | Self::Negative { key, .. } => key,
            Self::HeadsDoNotDivide { .. } => "heads",
            Self::TooManyExpertsPerToken { .. } => "experts_per_token",
            Self::UnknownLayerKind { .. } => "layer_order",
        }
    }
}
