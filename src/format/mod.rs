//! Number formats: how many bits a weight or a cached key really takes.

mod tensor;

pub use tensor::{TensorClass, TensorPlace};
