//! Model profiles as TOML: reading, checking, writing.

use super::check::{LAYER_LIMIT, ModelError};
use super::{Architecture, Layer, Linear, Model, ModelBody, MtpModules, Published, Totals};
use crate::format::{GgufFamily, WeightFormat};
use crate::profile::{self, ProfileError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Absent: that of the model's family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gguf_family: Option<GgufFamily>,
    layer_kinds: BTreeMap<String, Layer>,
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
                let architecture = architecture.unfold(&raw.family).and_then(Architecture::checked);
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
        if let Some(format) = &raw.native_format {
            let known = format.parse::<WeightFormat>();
            known.map_err(|error| ProfileError::at_key(file, "native_format", error).locate(text))?;
        }
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
            ModelBody::Architecture(architecture) => (Some(RawArchitecture::fold(architecture, &self.family)), None),
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
    fn fold(architecture: &Architecture, family: &str) -> Self {
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
            gguf_family: Some(architecture.gguf_family).filter(|known| *known != GgufFamily::of(family)),
            layer_kinds: architecture.layer_kinds.iter().map(|kind| (kind.name.clone(), kind.layer.clone())).collect(),
        }
    }

    fn unfold(self, family: &str) -> Result<Architecture, ModelError> {
        let mut named: Vec<(&str, &Layer)> = Vec::new();
        for run in &self.layer_order {
            let (count, name): (u64, &str) = match run.split_once(" x ") {
                Some((count, name)) if count.trim().parse::<u64>().is_ok() => {
                    (count.trim().parse().unwrap_or(0), name.trim())
                }
                _ => (1, run.trim()),
            };
            let total = count.saturating_add(named.len() as u64);
            if total > LAYER_LIMIT {
                return Err(ModelError::TooLarge { key: "layer_order", value: total, limit: LAYER_LIMIT });
            }
            let Some((name, layer)) = self.layer_kinds.get_key_value(name) else {
                let declared = self.layer_kinds.keys().map(String::as_str);
                let hint = profile::nearest(name, declared.clone());
                return Err(ModelError::UnknownLayerKind {
                    name: name.into(),
                    declared: declared.collect::<Vec<_>>().join(", "),
                    hint: hint.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default(),
                });
            };
            named.extend((0..count).map(|_| (name.as_str(), layer)));
        }
        let named = named.into_iter().map(|(name, layer)| (name.to_string(), layer.clone()));
        let base = Architecture::from_layers(self.hidden_size, self.vocab_size, self.max_context_tokens, named);
        Ok(Architecture {
            tied_embeddings: self.tied_embeddings,
            lookup_params: self.lookup_params,
            global_linears: self.global_linears,
            vector_params: self.vector_params,
            mtp: self.mtp,
            gguf_family: self.gguf_family.unwrap_or_else(|| GgufFamily::of(family)),
            ..base
        })
    }
}
