//! `model.safetensors.index.json`: how large a checkpoint is and how it is cut into files.

use super::ImportError;
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
///                   "model.embed_tokens.weight": "model-00001-of-00004.safetensors" }
/// }"#;
/// let index = llm_roofline::import::safetensors::index_total(text, "model.safetensors.index.json").unwrap();
/// assert_eq!(index.total_size.as_gb(), 16.060522496);
/// assert_eq!((index.tensors, index.files), (2, 2));
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
    Ok(SafetensorsIndex { total_size: Bytes::from_bytes(bytes), tensors: map.len(), files: files.len() })
}
