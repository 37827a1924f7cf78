//! The sizes of a model in one flat record, for JSON and CSV.

use super::{Model, ModelBody};
use serde::Serialize;

/// What a model's shape says, flattened: units in the names, cache and state in 16 bits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFacts {
    /// Published name.
    pub name: String,
    /// Architecture family, or `totals`.
    pub family: String,
    /// Layers; null if only totals are known, like everything below that is null.
    pub layers: Option<u64>,
    /// Parameters stored, see [`Model::params_total`].
    pub params_total: u64,
    /// Parameters read to decode one token, see [`Model::params_active`].
    pub params_active: u64,
    /// Parameters of multi-token-prediction modules, not in the totals.
    pub params_mtp: Option<u64>,
    /// Bytes of keys and values (or latents, and index keys) that a token adds, in bf16, windows counted as if they were open.
    pub kv_bytes_per_token: Option<f64>,
    /// Bytes of recurrent state of a sequence, in bf16.
    pub state_bytes_per_sequence: Option<u64>,
    /// Longest context that the model is made for.
    pub max_context_tokens: Option<u64>,
    /// Weight format of the published checkpoint.
    pub native_format: Option<String>,
    /// Disagreements between sources, and what was assumed.
    pub notes: Vec<String>,
}

impl Model {
    /// The sizes of the model in one flat record.
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// let facts = Catalog::embedded().model("deepseek-v3")?.facts();
    /// assert_eq!(facts.kv_bytes_per_token, Some(70272.0)); // DeepSeek-AI, Insights into DeepSeek-V3, table 1
    /// assert_eq!(facts.layers, Some(61));
    /// # Ok::<(), llm_roofline::catalog::CatalogError>(())
    /// ```
    pub fn facts(&self) -> ModelFacts {
        const BYTES: f64 = 2.0;
        let architecture = self.architecture();
        let kv = match &self.body {
            ModelBody::Architecture(architecture) => BYTES * architecture.kv_elements_per_token(),
            ModelBody::Totals(totals) => totals.kv_bytes_per_token.as_bytes(),
        };
        ModelFacts {
            name: self.name.clone(),
            family: self.family.clone(),
            layers: architecture.map(|shape| shape.layers() as u64),
            params_total: self.params_total(),
            params_active: self.params_active(),
            params_mtp: architecture.map(|shape| shape.mtp.map_or(0, |mtp| mtp.modules * mtp.params_per_module)),
            kv_bytes_per_token: Some(kv),
            state_bytes_per_sequence: architecture.map(|shape| 2 * shape.state_elements()),
            max_context_tokens: architecture.map(|shape| shape.max_context_tokens),
            native_format: self.native_format.clone(),
            notes: self.notes.clone(),
        }
    }
}
