//! Number formats: how many bits a weight or a cached key really takes.

mod file_tensors;
mod gguf_file;
mod gguf_mixes;
mod gguf_rules;
mod gguf_type;
mod kv;
mod number;
mod tensor;
mod weight;
mod weight_name;

pub use file_tensors::{FileTensors, FileTensorsError};
pub use gguf_file::GgufFileType;
pub use gguf_type::GgufType;
pub use kv::KvFormat;
pub use number::NumberFormat;
pub use tensor::{GgufFamily, TensorClass, TensorPlace};
pub use weight::WeightFormat;
pub use weight_name::FormatError;
