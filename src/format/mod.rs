//! Number formats: how many bits a weight or a cached key really takes.

mod number;
mod tensor;

pub use number::NumberFormat;
pub use tensor::{TensorClass, TensorPlace};
