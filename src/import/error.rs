//! Why a file could not be imported.

use super::huggingface::families;
use crate::model::ModelError;

/// A file that could not be imported; every variant names the file and the key concerned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The text is not JSON.
    #[error("{file}, line {line}, column {column}: {message}")]
    Syntax {
        /// File name, or what stands for it.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// A key is absent and its family has no default for it.
    #[error("{file}: key `{key}` is missing, expected {expected}")]
    Missing {
        /// File name, or what stands for it.
        file: String,
        /// Dotted path of the key, alternatives separated by ` or `.
        key: String,
        /// What it should be.
        expected: String,
    },
    /// A key has a value of the wrong kind or beyond a limit.
    #[error("{file}{}: key `{key}` is {found}, expected {expected}", .line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Invalid {
        /// File name, or what stands for it.
        file: String,
        /// Line on which the key first stands, from 1.
        line: Option<usize>,
        /// Dotted path of the key.
        key: String,
        /// The value, shortened.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The architecture family is not known.
    #[error("{0}")]
    UnknownFamily(Box<UnknownFamily>),
    /// Keys describe experts or another attention than the family has, so the result would be wrong.
    #[error("{file}: family `{family}` is read as {read_as}, but the file has {}", .keys.join(", "))]
    Contradiction {
        /// File name, or what stands for it.
        file: String,
        /// The family.
        family: String,
        /// As what its layers were read.
        read_as: &'static str,
        /// The keys that speak against it.
        keys: Vec<String>,
    },
    /// The file asks for something that the family's reader cannot express.
    #[error("{file}: {what} is not supported")]
    Unsupported {
        /// File name, or what stands for it.
        file: String,
        /// The feature and the key that asks for it.
        what: String,
    },
    /// The file could not be read.
    #[error("{file}: {message}")]
    Io {
        /// The file.
        file: String,
        /// What the operating system says.
        message: String,
    },
    /// The bytes are not those of a GGUF header.
    #[error("{file}, byte {offset}: {what}")]
    Gguf {
        /// The file.
        file: String,
        /// Where, in bytes from its start.
        offset: u64,
        /// What was found, what was expected, and the limit.
        what: String,
    },
    /// Files of a split model are missing.
    #[error("{file}: the model is split into {count} files, missing are numbers {}", numbers(.missing))]
    MissingParts {
        /// A file that is there.
        file: String,
        /// Numbers of the missing files, from 1 as in their names (`-00002-of-00003`).
        missing: Vec<u64>,
        /// How many files there should be.
        count: u64,
    },
    /// The architecture of a GGUF file is none that is known, and its tensors do not explain themselves.
    #[error("{file}: architecture `{name}` is not understood{}: {understood}", .nearest.as_ref().map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default())]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// Its architecture.
        name: String,
        /// What is understood, or what was not.
        understood: String,
        /// The nearest architecture that is understood.
        nearest: Option<String>,
    },
    /// Metadata and tensors contradict each other, or hold something that cannot be expressed.
    #[error("{file}: {what}")]
    Inconsistent {
        /// The file.
        file: String,
        /// What contradicts what.
        what: String,
    },
    /// The numbers cannot be those of a model.
    #[error("{file}: {error}")]
    Model {
        /// File name, or what stands for it.
        file: String,
        /// What is wrong with them.
        error: ModelError,
    },
}

fn numbers(numbers: &[u64]) -> String {
    const SHOWN: usize = 20;
    let mut text = numbers.iter().take(SHOWN).map(u64::to_string).collect::<Vec<_>>().join(", ");
    if numbers.len() > SHOWN {
        text.push_str(&format!(" and {} more", numbers.len() - SHOWN));
    }
    text
}

/// A `model_type` that no reader understands, and what can be told about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{file}: model_type `{model_type}` is not understood{}; keys understood: {}{}; families understood: {}",
    .nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default(),
    .understood.join(", "),
    if .structural.is_empty() { String::new() } else { format!("; not a plain decoder, it has {}", .structural.join(", ")) },
    families().collect::<Vec<_>>().join(", ")
)]
#[non_exhaustive]
pub struct UnknownFamily {
    /// File name, or what stands for it.
    pub file: String,
    /// The unknown `model_type`.
    pub model_type: String,
    /// The most similar known family.
    pub nearest: Option<String>,
    /// Keys of the file that a plain decoder would have used.
    pub understood: Vec<String>,
    /// Keys of the file that speak of experts, recurrent layers or compressed attention.
    pub structural: Vec<String>,
}
