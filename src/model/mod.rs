//! Models: their architecture, their sizes, their caches.
//!
//! A [`Model`] is either taken apart ([`Architecture`]: layers, heads, experts) or known by its totals only
//! ([`Totals`]: parameters and bits). Both answer how much must be stored, read and computed.

mod architecture;
mod attention;
mod check;
mod facts;
mod feed_forward;
mod layer;
mod linear;
mod profile;
mod reach;
mod recurrent;
mod tensors;
mod weight_bytes;

pub use architecture::{Architecture, LayerKind, MtpModules};
pub use attention::{
    Attention, AttentionPass, CompressedAttention, Indexer, KvSource, LatentAttention, SparseSelection,
};
pub use check::ModelError;
pub use facts::ModelFacts;
pub use feed_forward::{FeedForward, Moe};
pub use layer::{Layer, Mixer};
pub use linear::{Linear, Split};
pub use reach::{Reach, Reaches};
pub use recurrent::Recurrent;
pub use tensors::{Tensor, TensorOrigin};

use crate::format::GgufFamily;
use crate::units::Bytes;

/// A model and where the facts about it come from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// Short name, the key in the catalog.
    pub slug: String,
    /// Published name, such as `meta-llama/Llama-3.1-8B`.
    pub name: String,
    /// Architecture family (`model_type` of its configuration), or `totals`.
    pub family: String,
    /// Other spellings and models of the same shape.
    pub aliases: Vec<String>,
    /// Weight format of the published checkpoint, as text that names a weight format.
    pub native_format: Option<String>,
    /// Name of the tokenizer, for text density.
    pub tokenizer: Option<String>,
    /// What the maker publishes, for comparison.
    pub published: Option<Published>,
    /// Where the facts were read.
    pub sources: Vec<String>,
    /// Disagreements between sources, and what was assumed.
    pub notes: Vec<String>,
    /// What is known of its inside.
    pub body: ModelBody,
}

/// What is known of a model's inside.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelBody {
    /// Everything.
    Architecture(Architecture),
    /// The totals.
    Totals(Totals),
}

/// Published parameter counts.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Total parameters that the source states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_total: Option<u64>,
    /// Active parameters per token that the source states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_active: Option<u64>,
    /// Parameters in the published total that are not in the decoder (vision tower, multi-token prediction, scales).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_outside_decoder: Option<i64>,
    /// Who states it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// A model known by its totals only.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Parameters stored.
    pub params_total: u64,
    /// Parameters read and multiplied per token (equal to the total for a dense model).
    pub params_active: u64,
    /// Average bits per stored parameter.
    pub bits_per_weight: f64,
    /// Cache per token and sequence.
    pub kv_bytes_per_token: Bytes,
}

impl Totals {
    /// A dense model: every parameter is active.
    pub const fn dense(params: u64, bits_per_weight: f64, kv_bytes_per_token: Bytes) -> Self {
        Self { params_total: params, params_active: params, bits_per_weight, kv_bytes_per_token }
    }

    /// Bytes of all weights: `params_total * bits_per_weight / 8`.
    ///
    /// ```
    /// use llm_roofline::{model::Totals, units::Bytes};
    /// let seventy_billion_at_4_bits = Totals::dense(70_000_000_000, 4.0, Bytes::ZERO);
    /// assert_eq!(seventy_billion_at_4_bits.weight_bytes().as_gb(), 35.0);
    /// ```
    pub fn weight_bytes(&self) -> Bytes {
        Bytes::from_bytes(self.params_total as f64 * self.bits_per_weight / 8.0)
    }

    /// Bytes of the weights that one token reads.
    pub fn active_weight_bytes(&self) -> Bytes {
        Bytes::from_bytes(self.params_active as f64 * self.bits_per_weight / 8.0)
    }
}

impl Model {
    /// A model of which only the shape is known: no aliases, no sources.
    pub fn from_architecture(name: impl Into<String>, family: impl Into<String>, architecture: Architecture) -> Self {
        let family = family.into();
        let architecture = Architecture { gguf_family: GgufFamily::of(&family), ..architecture };
        Self::new(name.into(), family, ModelBody::Architecture(architecture))
    }

    /// A model of which only the totals are known.
    pub fn from_totals(name: impl Into<String>, totals: Totals) -> Self {
        Self::new(name.into(), "totals".into(), ModelBody::Totals(totals))
    }

    fn new(name: String, family: String, body: ModelBody) -> Self {
        let slug = name.rsplit('/').next().unwrap_or(&name).to_lowercase().replace(' ', "-");
        Self {
            slug,
            name,
            family,
            aliases: Vec::new(),
            native_format: None,
            tokenizer: None,
            published: None,
            sources: Vec::new(),
            notes: Vec::new(),
            body,
        }
    }

    /// The architecture, unless only totals are known.
    pub const fn architecture(&self) -> Option<&Architecture> {
        match &self.body {
            ModelBody::Architecture(architecture) => Some(architecture),
            ModelBody::Totals(_) => None,
        }
    }

    /// Parameters stored.
    pub fn params_total(&self) -> u64 {
        match &self.body {
            ModelBody::Architecture(architecture) => architecture.params_total(),
            ModelBody::Totals(totals) => totals.params_total,
        }
    }

    /// Parameters read to decode one token.
    pub fn params_active(&self) -> u64 {
        match &self.body {
            ModelBody::Architecture(architecture) => architecture.params_active(),
            ModelBody::Totals(totals) => totals.params_active,
        }
    }
}
