//! In which number format a matrix product really runs.

use super::Device;
use crate::format::NumberFormat;
use crate::units::FlopsPerSecond;

/// The arithmetic that a matrix product gets.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MatmulPeak {
    /// The format in which both operands are multiplied.
    pub format: NumberFormat,
    /// Its dense peak.
    pub peak: FlopsPerSecond,
    /// Whether the device lacks the format that the operands asked for.
    pub fallback: bool,
}

impl Device {
    /// The format and the peak of a matrix product of weights and activations stored in the given formats.
    ///
    /// The operands meet in the wider of the two formats, because kernels expand the narrower one on the fly (4-bit weights with
    /// 16-bit activations compute in 16 bits); at equal width in that of the activations. A format that the device lacks is
    /// replaced by one that it has: 8-, 6- and 4-bit floats and 8-bit integers by 16 bits, as the weight-only kernels of engines do (vLLM
    /// runs MXFP4 and NVFP4 on Hopper that way), 4-bit integers by 8-bit ones, bfloat16 by half precision, and single precision at last.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::format::NumberFormat::{Bf16, Fp8, Int4};
    /// # use llm_roofline::hardware::Device;
    /// # use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
    /// # let bandwidth = BytesPerSecond::from_gb_per_second(1555.0);
    /// # let peak = FlopsPerSecond::from_tflops_per_second(312.0);
    /// # let a100 = Device::from_specs("A100 SXM 40GB", Bytes::from_gb(40.0), bandwidth, peak)?;
    /// assert_eq!(a100.matmul_peak(Int4, Bf16).format, Bf16); // weight-only quantization
    /// let without_fp8 = a100.matmul_peak(Fp8, Fp8);
    /// assert_eq!((without_fp8.format, without_fp8.fallback), (Bf16, true));
    /// assert_eq!(without_fp8.peak.as_tflops_per_second(), 312.0);
    /// # Ok::<(), llm_roofline::hardware::DeviceError>(())
    /// ```
    pub fn matmul_peak(&self, weights: NumberFormat, activations: NumberFormat) -> MatmulPeak {
        let wanted = if weights.storage_bits() > activations.storage_bits() { weights } else { activations };
        let found = preferences(wanted).iter().find_map(|&format| Some((format, self.peak(format)?)));
        // Unreachable for a checked device: it has one of the four floats in which every list ends.
        let (format, peak) = found.unwrap_or((wanted, FlopsPerSecond::ZERO));
        MatmulPeak { format, peak, fallback: format != wanted }
    }
}

/// The format itself, then what replaces it, best first. Every list holds fp32, tf32, fp16 and bf16.
const fn preferences(format: NumberFormat) -> &'static [NumberFormat] {
    use NumberFormat::{Bf16, Fp4, Fp6, Fp8, Fp16, Fp32, Int4, Int8, Tf32};
    match format {
        Fp32 => &[Fp32, Tf32, Bf16, Fp16],
        Tf32 => &[Tf32, Fp32, Bf16, Fp16],
        Fp16 => &[Fp16, Bf16, Tf32, Fp32],
        Bf16 => &[Bf16, Fp16, Tf32, Fp32],
        Fp8 => &[Fp8, Bf16, Fp16, Tf32, Fp32],
        Int8 => &[Int8, Bf16, Fp16, Tf32, Fp32],
        Fp6 => &[Fp6, Bf16, Fp16, Tf32, Fp32],
        Fp4 => &[Fp4, Bf16, Fp16, Tf32, Fp32],
        Int4 => &[Int4, Int8, Bf16, Fp16, Tf32, Fp32],
    }
}
