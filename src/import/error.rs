//! What can be wrong with a model file.

use crate::model::ModelError;

/// A model file that could not be understood.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
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
    /// A key that is needed is absent.
    #[error("{file}: key `{key}` is missing, expected {expected}")]
    MissingKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What it should hold.
        expected: String,
    },
    /// A key holds a value of another kind or outside its limits.
    #[error("{file}: key `{key}` is {found}, expected {expected}")]
    WrongType {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// The architecture is none that is known, and its tensors do not explain themselves.
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
        /// The file.
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
