//! `model.safetensors.index.json`: how large a checkpoint is and how it is cut into files.

use super::ImportError;
use crate::model::{Model, ModelError, Totals};
use crate::units::Bytes;
use std::collections::BTreeSet;

/// What the index of a sharded checkpoint says.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SafetensorsIndex {
    /// Bytes of all tensors together, without the headers of the files (`metadata.total_size`).
    pub total_size: Bytes,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of files that they are spread over.
    pub files: usize,
    /// Number of layers, if the tensors are named after theirs (`model.layers.0.`, `transformer.h.0.`).
    pub layers: Option<u64>,
}

impl SafetensorsIndex {
    /// What is known without the configuration, as a model of totals: 16 bits per weight, every weight active, no cache. Its notes say
    /// so.
    ///
    /// # Errors
    /// [`ModelError`] if the bytes are too few or too many for a model.
    pub fn totals(&self, name: &str) -> Result<Model, ModelError> {
        let totals = Totals::dense((self.total_size.as_bytes() / 2.0) as u64, 16.0, Bytes::ZERO).checked()?;
        let mut model = Model::from_totals(name, totals);
        model.notes.push("read from an index alone: 16 bits per weight assumed, all weights taken as active".into());
        model.notes.push("the cache is not known and counted as nothing: decode is slower than predicted".into());
        Ok(model)
    }
}

/// The number of a layer in the name of one of its tensors.
fn layer_number(tensor: &str) -> Option<u64> {
    let mut parts = tensor.split('.');
    parts.find(|part| matches!(*part, "layers" | "h" | "blocks" | "block"))?;
    parts.next()?.parse().ok()
}

/// Reads a `model.safetensors.index.json`.
///
/// The total is that of the stored tensors: quantization scales, vision towers and multi-token-prediction modules included.
///
/// # Errors
/// [`ImportError`] for text that is not JSON, and for a missing or malformed `metadata.total_size` or `weight_map`.
///
/// # Examples
/// ```
/// let text = r#"{
///   "metadata": { "total_size": 16060522496 },
///   "weight_map": { "lm_head.weight": "model-00004-of-00004.safetensors",
///                   "model.layers.31.mlp.up_proj.weight": "model-00003-of-00004.safetensors" }
/// }"#;
/// let index = llm_roofline::import::safetensors::index_total(text, "model.safetensors.index.json").unwrap();
/// assert_eq!(index.total_size.as_gb(), 16.060522496);
/// assert_eq!((index.tensors, index.files, index.layers), (2, 2, Some(32)));
/// ```
pub fn index_total(text: &str, file: &str) -> Result<SafetensorsIndex, ImportError> {
    let root: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| ImportError::Syntax {
            file: file.into(),
            line: error.line(),
            column: error.column(),
            message: error.to_string(),
        })?;
    let missing = |key: &str, expected: &str| ImportError::Missing {
        file: file.into(),
        key: key.into(),
        expected: expected.into(),
    };
    let size = root.get("metadata").and_then(|metadata| metadata.get("total_size"));
    let size = size.ok_or_else(|| missing("metadata.total_size", "the bytes of all tensors"))?;
    let invalid = || ImportError::Invalid {
        file: file.into(),
        line: text.lines().position(|line| line.contains("\"total_size\"")).map(|index| index + 1),
        key: "metadata.total_size".into(),
        found: size.to_string(),
        expected: "a number of bytes, at least 1".into(),
    };
    // Some writers store the size as a float.
    let bytes = size.as_f64().filter(|bytes| *bytes >= 1.0 && bytes.is_finite()).ok_or_else(invalid)?;
    let map = root.get("weight_map").and_then(serde_json::Value::as_object);
    let map = map.ok_or_else(|| missing("weight_map", "an object from tensor to file"))?;
    let files: BTreeSet<&str> = map.values().filter_map(serde_json::Value::as_str).collect();
    let layers = map.keys().filter_map(|tensor| layer_number(tensor)).max().map(|last| last.saturating_add(1));
    Ok(SafetensorsIndex { total_size: Bytes::from_bytes(bytes), tensors: map.len(), files: files.len(), layers })
}
