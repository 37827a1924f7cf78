//! Models from the files that they are published in: Hugging Face `config.json`, safetensors indices, GGUF headers.
//!
//! Nothing is fetched. JSON is handed over as text; a GGUF header may also be read from a path, since it precedes gigabytes
//! that are not needed.

mod error;
pub mod gguf;
pub mod huggingface;
pub mod safetensors;

pub use error::{ImportError, UnknownFamily};
