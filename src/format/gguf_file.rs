//! File types of llama.cpp: recipes that give each tensor of a model its own type.

use super::GgufType;
use super::gguf_type::numbered;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Declares the file types from one table: number in the file, name, type of most tensors.
macro_rules! gguf_file_types {
    ($($(#[$meta:meta])* $name:ident = $id:literal, $text:literal, $base:ident;)*) => {
        /// A file type of llama.cpp (`llama_ftype`): which tensor gets which [`GgufType`].
        ///
        /// Only the base type is in the name: a `Q4_K_M` file keeps half of its value and down projections in `Q6_K`, its
        /// output head in `Q6_K` and its norms in `F32`. [`tensor_type`](Self::tensor_type) gives the type of each tensor.
        ///
        /// The number stands under `general.file_type`. Source: `llama.h` and `llama-quant.cpp` of llama.cpp.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        // The names are llama.cpp's own; any other spelling would be one more to remember.
        #[allow(non_camel_case_types)]
        #[non_exhaustive]
        pub enum GgufFileType {
            $($(#[$meta])* $name,)*
        }

        numbered!(GgufFileType { $($name = $id),* });

        impl GgufFileType {
            /// The name in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The type of most of its tensors.
            pub const fn base_type(self) -> GgufType {
                match self {
                    $(Self::$name => GgufType::$base,)*
                }
            }
        }
    };
}

gguf_file_types! {
    /// Everything in 32 bits.
    F32 = 0, "f32", F32;
    /// Matrices in 16 bits.
    F16 = 1, "f16", F16;
    /// 4 bits, simple blocks.
    Q4_0 = 2, "q4_0", Q4_0;
    /// 4 bits, simple blocks with minimum.
    Q4_1 = 3, "q4_1", Q4_1;
    /// 8 bits, simple blocks.
    Q8_0 = 7, "q8_0", Q8_0;
    /// 5 bits, simple blocks.
    Q5_0 = 8, "q5_0", Q5_0;
    /// 5 bits, simple blocks with minimum.
    Q5_1 = 9, "q5_1", Q5_1;
    /// 2 bits, sensitive tensors more.
    Q2_K = 10, "q2_k", Q2_K;
    /// 3 bits, small.
    Q3_K_S = 11, "q3_k_s", Q3_K;
    /// 3 bits, medium.
    Q3_K_M = 12, "q3_k_m", Q3_K;
    /// 3 bits, large.
    Q3_K_L = 13, "q3_k_l", Q3_K;
    /// 4 bits, small.
    Q4_K_S = 14, "q4_k_s", Q4_K;
    /// 4 bits, medium: the usual choice.
    Q4_K_M = 15, "q4_k_m", Q4_K;
    /// 5 bits, small.
    Q5_K_S = 16, "q5_k_s", Q5_K;
    /// 5 bits, medium.
    Q5_K_M = 17, "q5_k_m", Q5_K;
    /// 6 bits.
    Q6_K = 18, "q6_k", Q6_K;
    /// 2.06 bits, needs an importance matrix.
    IQ2_XXS = 19, "iq2_xxs", IQ2_XXS;
    /// 2.31 bits, needs an importance matrix.
    IQ2_XS = 20, "iq2_xs", IQ2_XS;
    /// 2 bits, small, needs an importance matrix.
    Q2_K_S = 21, "q2_k_s", Q2_K;
    /// 3.3 bits.
    IQ3_XS = 22, "iq3_xs", IQ3_S;
    /// 3.06 bits, needs an importance matrix.
    IQ3_XXS = 23, "iq3_xxs", IQ3_XXS;
    /// 1.56 bits, needs an importance matrix.
    IQ1_S = 24, "iq1_s", IQ1_S;
    /// 4.5 bits, non-linear.
    IQ4_NL = 25, "iq4_nl", IQ4_NL;
    /// 3.44 bits.
    IQ3_S = 26, "iq3_s", IQ3_S;
    /// 3.66 bits.
    IQ3_M = 27, "iq3_m", IQ3_S;
    /// 2.5 bits, needs an importance matrix.
    IQ2_S = 28, "iq2_s", IQ2_XS;
    /// 2.7 bits, needs an importance matrix.
    IQ2_M = 29, "iq2_m", IQ2_S;
    /// 4.25 bits, non-linear.
    IQ4_XS = 30, "iq4_xs", IQ4_XS;
    /// 1.75 bits, needs an importance matrix.
    IQ1_M = 31, "iq1_m", IQ1_M;
    /// Matrices in 16 bits with 8 exponent bits.
    BF16 = 32, "bf16", BF16;
    /// Ternary, packed densely.
    TQ1_0 = 36, "tq1_0", TQ1_0;
    /// Ternary in 2 bits.
    TQ2_0 = 37, "tq2_0", TQ2_0;
    /// Experts in MXFP4, everything else in Q8_0 (gpt-oss).
    MXFP4_MOE = 38, "mxfp4_moe", MXFP4;
    /// 4-bit float with 8-bit float scales.
    NVFP4 = 39, "nvfp4", NVFP4;
    /// 1 bit.
    Q1_0 = 40, "q1_0", Q1_0;
    /// 2 bits, simple blocks.
    Q2_0 = 41, "q2_0", Q2_0;
}

impl fmt::Display for GgufFileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
