//! Bits per weight as found in a file.

use super::{TensorClass, TensorPlace, WeightFormat};
use crate::units::Bytes;
use std::sync::Arc;

/// True bits per weight of every tensor class and layer of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileTensors {
    name: String,
    /// Per class and layer; 0 where the file has no such tensor.
    bits: Vec<f64>,
    layers: usize,
    /// Per class over all layers, the average of the file where the class does not occur.
    class_average: [f64; TensorClass::ALL.len()],
}

/// A list of tensors that cannot be one of a model file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileTensorsError {
    /// No tensors, or none with weights.
    #[error("format `{name}` has no tensors")]
    Empty {
        /// Name of the format.
        name: String,
    },
    /// Bytes are not a positive number of at most 16 per weight.
    #[error(
        "a {class:?} tensor of layer {layer} has {bytes} for {params} weights, expected more than 0 and at most 16 bytes each"
    )]
    BadSize {
        /// Its class.
        class: TensorClass,
        /// Its layer.
        layer: u32,
        /// Its weights.
        params: u64,
        /// Its bytes.
        bytes: Bytes,
    },
    /// A layer number beyond anything that exists.
    #[error("layer {layer} is more than the limit of {limit}")]
    TooManyLayers {
        /// The layer.
        layer: u32,
        /// The limit.
        limit: u32,
    },
}

const LAYER_LIMIT: u32 = 1 << 16;

impl WeightFormat {
    /// A format with the bits found in a file: class, layer (0 outside the layers), weights and bytes of each tensor. Several
    /// tensors of one class and layer are averaged by weight.
    ///
    /// # Errors
    /// [`FileTensorsError`] for an empty list, bytes that weights cannot have, or absurd layer numbers.
    ///
    /// ```
    /// use llm_roofline::format::{GgufType, TensorClass, TensorPlace, WeightFormat};
    /// let file = WeightFormat::from_tensors(
    ///     "my-file.gguf",
    ///     [(TensorClass::FfnUp, 0, 4096, GgufType::Q4_K.bytes(4096)), (TensorClass::FfnUp, 1, 4096, GgufType::Q6_K.bytes(4096))],
    /// )?;
    /// let up = TensorPlace::in_layer(TensorClass::FfnUp, 64, 64, 1, 2);
    /// assert_eq!(file.bits_per_weight(&up), 6.5625);
    /// # Ok::<(), llm_roofline::format::FileTensorsError>(())
    /// ```
    pub fn from_tensors(
        name: impl Into<String>,
        tensors: impl IntoIterator<Item = (TensorClass, u32, u64, Bytes)>,
    ) -> Result<Self, FileTensorsError> {
        FileTensors::new(name.into(), tensors).map(|tensors| Self::FromTensors(Arc::new(tensors)))
    }
}

impl FileTensors {
    fn new(
        name: String,
        tensors: impl IntoIterator<Item = (TensorClass, u32, u64, Bytes)>,
    ) -> Result<Self, FileTensorsError> {
        let tensors: Vec<_> = tensors.into_iter().filter(|&(_, _, params, _)| params > 0).collect();
        for &(class, layer, params, bytes) in &tensors {
            if layer >= LAYER_LIMIT {
                return Err(FileTensorsError::TooManyLayers { layer, limit: LAYER_LIMIT });
            }
            let per_weight = bytes.as_bytes() / params as f64;
            if !(per_weight > 0.0 && per_weight <= 16.0) {
                return Err(FileTensorsError::BadSize { class, layer, params, bytes });
            }
        }
        let Some(last_layer) = tensors.iter().map(|&(_, layer, _, _)| layer).max() else {
            return Err(FileTensorsError::Empty { name });
        };
        let layers = last_layer as usize + 1;
        let average = |chosen: &dyn Fn(TensorClass) -> bool| {
            let chosen = tensors.iter().filter(|&&(class, ..)| chosen(class));
            let (params, bytes) = chosen
                .fold((0.0, 0.0), |(params, sum), &(_, _, more, bytes)| (params + more as f64, sum + bytes.as_bytes()));
            if params > 0.0 { 8.0 * bytes / params } else { 0.0 }
        };
        let overall = average(&|_| true);
        let class_average = TensorClass::ALL.map(|class| match average(&|other| other == class) {
            0.0 => overall,
            bits => bits,
        });

        let mut sums = vec![(0.0, 0.0); TensorClass::ALL.len() * layers];
        for (class, layer, params, bytes) in tensors {
            if let Some((known_params, known_bytes)) = sums.get_mut(class as usize * layers + layer as usize) {
                *known_params += params as f64;
                *known_bytes += bytes.as_bytes();
            }
        }
        let bits = sums.into_iter().map(|(params, bytes)| if params > 0.0 { 8.0 * bytes / params } else { 0.0 });
        Ok(Self { name, bits: bits.collect(), layers, class_average })
    }

    /// Name of the format: that of the file, or what the caller called it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bits per weight; for a tensor that the file does not have, the average of its class, then of the file.
    pub(super) fn bits_per_weight(&self, place: &TensorPlace) -> f64 {
        let class = place.class as usize;
        let layer = place.layer as usize;
        let found = if layer < self.layers { self.bits.get(class * self.layers + layer).copied() } else { None };
        match found {
            Some(bits) if bits > 0.0 => bits,
            _ => self.class_average.get(class).copied().unwrap_or(16.0),
        }
    }
}
