//! Formats of the key-value cache.

use super::GgufType;
use super::weight_name::{FormatError, unknown};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How keys and values are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[non_exhaustive]
pub enum KvFormat {
    /// 32-bit float.
    Fp32,
    /// 16-bit float with 5 exponent bits.
    Fp16,
    /// 16-bit float with 8 exponent bits: the default of every engine (or `fp16`, of the same size).
    #[default]
    Bf16,
    /// 8-bit float, one scale per tensor (vLLM, SGLang, TensorRT-LLM).
    Fp8,
    /// 8-bit integer, a 16-bit scale and zero per token and head (LMDeploy).
    Int8,
    /// 4-bit integer, a 16-bit scale and zero per token and head (LMDeploy).
    Int4,
    /// 4-bit float, an 8-bit float scale per 16 elements (TensorRT-LLM on Blackwell).
    Nvfp4,
    /// llama.cpp, 8 bits in blocks of 32.
    Q8_0,
    /// llama.cpp, 5 bits in blocks of 32 with minimum.
    Q5_1,
    /// llama.cpp, 5 bits in blocks of 32.
    Q5_0,
    /// llama.cpp, 4 bits in blocks of 32 with minimum.
    Q4_1,
    /// llama.cpp, 4 bits in blocks of 32.
    Q4_0,
    /// llama.cpp, 4 bits on a non-linear grid in blocks of 32.
    Iq4Nl,
}

/// Bits of a scale and a zero per token and head.
const HEAD_SCALE_BITS: f64 = 32.0;

impl KvFormat {
    /// Every format.
    pub const ALL: [Self; 13] = [
        Self::Fp32,
        Self::Fp16,
        Self::Bf16,
        Self::Fp8,
        Self::Int8,
        Self::Int4,
        Self::Nvfp4,
        Self::Q8_0,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4_1,
        Self::Q4_0,
        Self::Iq4Nl,
    ];

    /// Bits that one cached element takes, scales included, for heads of `head_dim` elements.
    ///
    /// # Formula
    /// `int8` and `int4`: `bits + 32 / head_dim` (a 16-bit scale and zero per token and head); blocks of llama.cpp and `nvfp4`
    /// carry their scales at any head size.
    ///
    /// ```
    /// use llm_roofline::format::KvFormat;
    /// assert_eq!(KvFormat::Q8_0.bits_per_element(128), 8.5);
    /// assert_eq!(KvFormat::Int8.bits_per_element(128), 8.25);
    /// assert_eq!(KvFormat::Int8.bits_per_element(64), 8.5);
    /// ```
    pub fn bits_per_element(self, head_dim: u64) -> f64 {
        let head_scale = HEAD_SCALE_BITS / head_dim.max(1) as f64;
        match self {
            Self::Fp32 => 32.0,
            Self::Fp16 | Self::Bf16 => 16.0,
            Self::Fp8 => 8.0,
            Self::Int8 => 8.0 + head_scale,
            Self::Int4 => 4.0 + head_scale,
            Self::Nvfp4 => 4.5,
            Self::Q8_0 => GgufType::Q8_0.bits_per_weight(),
            Self::Q5_1 => GgufType::Q5_1.bits_per_weight(),
            Self::Q5_0 => GgufType::Q5_0.bits_per_weight(),
            Self::Q4_1 => GgufType::Q4_1.bits_per_weight(),
            Self::Q4_0 => GgufType::Q4_0.bits_per_weight(),
            Self::Iq4Nl => GgufType::IQ4_NL.bits_per_weight(),
        }
    }

    /// Bytes that one token takes in one layer of sparse latent attention (DeepSeek-V3.2). Dense latent attention has no layout of its
    /// own: `kv_lora_rank + rope_dim` elements of [`bits_per_element`](Self::bits_per_element).
    ///
    /// # Formula
    /// `(kv_lora_rank + rope_dim) * bits / 8`. In `fp8` the latent carries a 32-bit scale per 128 elements and the rotary key
    /// stays at 16 bits: 512 + 4 * 4 + 64 * 2 = 656 bytes for DeepSeek-V3.2 (FlashMLA README).
    ///
    /// ```
    /// use llm_roofline::format::KvFormat;
    /// assert_eq!(KvFormat::Bf16.sparse_latent_bytes_per_token(512, 64).as_bytes(), 1152.0);
    /// assert_eq!(KvFormat::Fp8.sparse_latent_bytes_per_token(512, 64).as_bytes(), 656.0);
    /// ```
    pub fn sparse_latent_bytes_per_token(self, kv_lora_rank: u64, rope_dim: u64) -> Bytes {
        let bytes = match self {
            Self::Fp8 => kv_lora_rank + 4 * kv_lora_rank.div_ceil(128) + 2 * rope_dim,
            _ => {
                let elements = kv_lora_rank + rope_dim;
                return Bytes::from_bytes(elements as f64 * self.bits_per_element(elements) / 8.0);
            }
        };
        Bytes::from_bytes(bytes as f64)
    }

    /// The name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Nvfp4 => "nvfp4",
            Self::Q8_0 => "q8_0",
            Self::Q5_1 => "q5_1",
            Self::Q5_0 => "q5_0",
            Self::Q4_1 => "q4_1",
            Self::Q4_0 => "q4_0",
            Self::Iq4Nl => "iq4_nl",
        }
    }
}

impl FromStr for KvFormat {
    type Err = FormatError;

    /// Reads a name in any case; also llama.cpp's `f16` and `f32` and vLLM's `fp8_e4m3`, `fp8_e5m2` and `auto`.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let name = text.trim().to_lowercase();
        let known = match name.as_str() {
            "f32" => Some(Self::Fp32),
            "f16" => Some(Self::Fp16),
            "auto" => Some(Self::default()),
            "fp8_e4m3" | "fp8_e5m2" => Some(Self::Fp8),
            _ => Self::ALL.into_iter().find(|format| format.name() == name),
        };
        known.ok_or_else(|| unknown("cache format", text, Self::ALL.iter().map(|format| format.name())))
    }
}

impl TryFrom<String> for KvFormat {
    type Error = FormatError;
    fn try_from(text: String) -> Result<Self, FormatError> {
        text.parse()
    }
}

impl From<KvFormat> for &'static str {
    fn from(format: KvFormat) -> Self {
        format.name()
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
