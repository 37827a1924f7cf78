//! Models read from the files that they are published in.

mod error;
pub mod gguf;

pub use error::ImportError;
