//! Matrix products of tokens with weights.

use crate::roofline::Work;
use crate::units::{Bytes, Flops};

/// Bits of what a matrix product moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmFormats {
    /// Bits per weight, scales included.
    pub weight_bits: f64,
    /// Bits per input activation.
    pub input_bits: f64,
    /// Bits per output activation.
    pub output_bits: f64,
}

impl GemmFormats {
    /// 16 bits everywhere.
    pub const SIXTEEN_BIT: Self = Self { weight_bits: 16.0, input_bits: 16.0, output_bits: 16.0 };

    /// Weights of `weight_bits`, activations of 16 bits.
    pub const fn weight_only(weight_bits: f64) -> Self {
        Self { weight_bits, ..Self::SIXTEEN_BIT }
    }
}

/// `tokens x in_features` times `in_features x out_features`.
///
/// # Formula
/// `flops = 2 * T * I * O`; `bytes = I * O * w + T * I * a_in + T * O * a_out` with the byte widths of weights and activations.
///
/// # Examples
/// The query projection of Llama-2-7B over 2,048 tokens in 16 bits has intensity 1,024 (Yuan et al., LLM Inference Unveiled,
/// arXiv 2402.16363, table 1):
/// ```
/// use llm_roofline::operator::{gemm, GemmFormats};
/// let work = gemm(2048.0, 4096, 4096, GemmFormats::SIXTEEN_BIT);
/// assert_eq!(work.flops.to_string(), "68.7 GFLOP");
/// assert_eq!(work.bytes.to_string(), "67.1 MB");
/// assert_eq!(work.intensity().as_flops_per_byte(), 1024.0);
/// ```
pub fn gemm(tokens: f64, in_features: u64, out_features: u64, formats: GemmFormats) -> Work {
    let (inputs, outputs) = (in_features as f64, out_features as f64);
    let bits =
        inputs * outputs * formats.weight_bits + tokens * (inputs * formats.input_bits + outputs * formats.output_bits);
    Work { flops: Flops::from_flops(2.0 * tokens * inputs * outputs), bytes: Bytes::from_bytes(bits / 8.0) }
}
