//! Tensor types of GGML, as stored in GGUF files.

use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Gives an enum of llama.cpp the numbers that stand for it in GGUF files.
macro_rules! numbered {
    ($type:ident { $($name:ident = $id:literal),* }) => {
        impl $type {
            /// All of them, by rising number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The one with this number in a GGUF file; `None` for numbers that were never given or that llama.cpp has withdrawn.
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The number in a GGUF file.
            pub const fn id(self) -> u32 {
                match self {
                    $(Self::$name => $id,)*
                }
            }
        }
    };
}
pub(super) use numbered;

/// Declares the tensor types from one table: number in the file, weights per block, bytes per block.
macro_rules! gguf_types {
    ($($(#[$meta:meta])* $name:ident = $id:literal, $block:literal => $bytes:literal;)*) => {
        /// A tensor type of GGML. Weights are stored in blocks along the input dimension; a block holds its own scales.
        ///
        /// Sources: `GGML_QUANT_SIZES` of the Python package gguf 0.19.0, gguf-parser-go `ggml.go`, and `ggml.h` of llama.cpp.
        ///
        /// ```
        /// use llm_roofline::format::GgufType;
        /// assert_eq!(GgufType::Q4_K.bits_per_weight(), 4.5); // 144 bytes for 256 weights
        /// assert_eq!(GgufType::from_id(12), Some(GgufType::Q4_K));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        // The names are GGML's own; any other spelling would be one more to remember.
        #[allow(non_camel_case_types)]
        #[non_exhaustive]
        pub enum GgufType {
            $($(#[$meta])* $name,)*
        }

        numbered!(GgufType { $($name = $id),* });

        impl GgufType {
            /// Weights per block; rows must be a multiple of it.
            pub const fn block_size(self) -> u64 {
                match self {
                    $(Self::$name => $block,)*
                }
            }

            /// Bytes per block, scales included.
            pub const fn block_bytes(self) -> u64 {
                match self {
                    $(Self::$name => $bytes,)*
                }
            }

            /// The name, as in GGML.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

gguf_types! {
    /// 32-bit float.
    F32 = 0, 1 => 4;
    /// 16-bit float.
    F16 = 1, 1 => 2;
    /// 4 bits, one 16-bit scale per 32 weights.
    Q4_0 = 2, 32 => 18;
    /// 4 bits, 16-bit scale and minimum per 32 weights.
    Q4_1 = 3, 32 => 20;
    /// 5 bits, one 16-bit scale per 32 weights.
    Q5_0 = 6, 32 => 22;
    /// 5 bits, 16-bit scale and minimum per 32 weights.
    Q5_1 = 7, 32 => 24;
    /// 8 bits, one 16-bit scale per 32 weights.
    Q8_0 = 8, 32 => 34;
    /// 8 bits, scale and sum per 32 values; for activations only. The Python package counts 40 bytes, the C struct has 36.
    Q8_1 = 9, 32 => 36;
    /// 2 bits, 4-bit scales and minima per 16 weights.
    Q2_K = 10, 256 => 84;
    /// 3 bits, 6-bit scales per 16 weights.
    Q3_K = 11, 256 => 110;
    /// 4 bits, 6-bit scales and minima per 32 weights.
    Q4_K = 12, 256 => 144;
    /// 5 bits, 6-bit scales and minima per 32 weights.
    Q5_K = 13, 256 => 176;
    /// 6 bits, 8-bit scales per 16 weights.
    Q6_K = 14, 256 => 210;
    /// 8 bits; for activations only.
    Q8_K = 15, 256 => 292;
    /// About 2 bits from a codebook.
    IQ2_XXS = 16, 256 => 66;
    /// About 2.3 bits from a codebook.
    IQ2_XS = 17, 256 => 74;
    /// About 3 bits from a codebook.
    IQ3_XXS = 18, 256 => 98;
    /// About 1.6 bits from a codebook.
    IQ1_S = 19, 256 => 50;
    /// 4 bits on a non-linear grid, one 16-bit scale per 32 weights.
    IQ4_NL = 20, 32 => 18;
    /// About 3.4 bits from a codebook.
    IQ3_S = 21, 256 => 110;
    /// About 2.6 bits from a codebook.
    IQ2_S = 22, 256 => 82;
    /// 4 bits on a non-linear grid, 6-bit scales per 32 weights.
    IQ4_XS = 23, 256 => 136;
    /// 8-bit integer.
    I8 = 24, 1 => 1;
    /// 16-bit integer.
    I16 = 25, 1 => 2;
    /// 32-bit integer.
    I32 = 26, 1 => 4;
    /// 64-bit integer.
    I64 = 27, 1 => 8;
    /// 64-bit float.
    F64 = 28, 1 => 8;
    /// About 1.75 bits from a codebook.
    IQ1_M = 29, 256 => 56;
    /// 16-bit float with 8 exponent bits.
    BF16 = 30, 1 => 2;
    /// Ternary, packed densely.
    TQ1_0 = 34, 256 => 54;
    /// Ternary in 2 bits.
    TQ2_0 = 35, 256 => 66;
    /// 4-bit float, one shared exponent per 32 weights (OCP microscaling).
    MXFP4 = 39, 32 => 17;
    /// 4-bit float, one 8-bit float scale per 16 weights.
    NVFP4 = 40, 64 => 36;
    /// 1 bit (sign), one 16-bit scale per 128 weights.
    Q1_0 = 41, 128 => 18;
    /// 2 bits, one 16-bit scale per 64 weights.
    Q2_0 = 42, 64 => 18;
}

impl GgufType {
    /// The kernels that engines have for it: see [`WeightFormat::kernel_key`](super::WeightFormat::kernel_key).
    pub fn kernel_key(self) -> &'static str {
        match self.name() {
            "F32" => "f32",
            "F16" | "BF16" => "f16",
            "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1" => "q4",
            "Q8_0" | "Q8_1" => "q8",
            "MXFP4" => "mxfp4",
            "IQ4_NL" | "IQ4_XS" => "k-quant",
            name if name.starts_with("IQ") => "iq",
            _ => "k-quant",
        }
    }

    /// Bits per weight, scales included: `8 * block_bytes / block_size`.
    pub const fn bits_per_weight(self) -> f64 {
        (8 * self.block_bytes()) as f64 / self.block_size() as f64
    }

    /// Bytes of a tensor with so many weights.
    ///
    /// ```
    /// use llm_roofline::format::GgufType;
    /// assert_eq!(GgufType::Q6_K.bytes(4096 * 4096).as_bytes(), 13_762_560.0);
    /// ```
    pub const fn bytes(self, weights: u64) -> Bytes {
        Bytes::from_bytes(weights as f64 * self.block_bytes() as f64 / self.block_size() as f64)
    }
}

impl fmt::Display for GgufType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
