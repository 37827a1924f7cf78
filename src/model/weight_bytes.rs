//! How many bytes the weights of a model take in a format.

use super::Architecture;
use crate::format::{TensorClass, WeightFormat};
use crate::units::Bytes;

impl Architecture {
    /// Bytes of all weights in a format, as a file of it holds them (without metadata and vocabulary): every tensor at its
    /// true bits. Multi-token-prediction modules are not counted.
    pub fn weight_bytes(&self, format: &WeightFormat) -> Bytes {
        self.weight_bytes_by_class(format).into_iter().sum()
    }

    /// The same by tensor class, in the order of [`TensorClass::ALL`].
    pub fn weight_bytes_by_class(&self, format: &WeightFormat) -> [Bytes; TensorClass::ALL.len()] {
        let mut bytes = [Bytes::ZERO; TensorClass::ALL.len()];
        self.for_each_tensor(|tensor| {
            let bits = tensor.params as f64 * format.bits_per_weight(&tensor.place);
            bytes[tensor.place.class as usize] += Bytes::from_bytes(bits / 8.0);
        });
        bytes
    }
}
