//! Number formats that hardware computes in.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number format of arithmetic units. Peaks of 16-bit and 8-bit float formats are meant with 32-bit accumulation, as language
/// models need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NumberFormat {
    /// 32-bit float.
    Fp32,
    /// 19-bit float of NVIDIA tensor cores, stored in 32 bits.
    Tf32,
    /// 16-bit float, 5 exponent bits.
    Fp16,
    /// 16-bit float, 8 exponent bits.
    Bf16,
    /// 8-bit float (E4M3, E5M2, MXFP8).
    Fp8,
    /// 8-bit integer.
    Int8,
    /// 6-bit float.
    Fp6,
    /// 4-bit float (NVFP4, MXFP4).
    Fp4,
    /// 4-bit integer.
    Int4,
}

impl NumberFormat {
    /// Every format.
    pub const ALL: [Self; 9] =
        [Self::Fp32, Self::Tf32, Self::Fp16, Self::Bf16, Self::Fp8, Self::Int8, Self::Fp6, Self::Fp4, Self::Int4];

    /// Bits that one number takes in memory, scales not counted.
    pub const fn storage_bits(self) -> f64 {
        match self {
            Self::Fp32 | Self::Tf32 => 32.0,
            Self::Fp16 | Self::Bf16 => 16.0,
            Self::Fp8 | Self::Int8 => 8.0,
            Self::Fp6 => 6.0,
            Self::Fp4 | Self::Int4 => 4.0,
        }
    }

    /// The name in lower case, as in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Fp6 => "fp6",
            Self::Fp4 => "fp4",
            Self::Int4 => "int4",
        }
    }
}

impl fmt::Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
