//! Models from the files that they are published with: Hugging Face `config.json` and safetensors indices.
//!
//! Nothing is fetched: the caller reads the file and hands over its text.

mod error;
pub mod huggingface;
pub mod safetensors;

pub use error::{ImportError, UnknownFamily};
