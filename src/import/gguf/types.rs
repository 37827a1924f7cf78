//! Tensor types of GGML: how many weights share a block and how many bytes the block takes.

/// A tensor type that files can hold.
///
/// Source: `GGML_QUANT_SIZES` and `GGMLQuantizationType` of gguf-py 0.19.0 (`gguf/constants.py` in llama.cpp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GgmlType {
    pub(super) name: &'static str,
    /// Weights per block.
    pub(super) block: u64,
    /// Bytes per block.
    pub(super) bytes: u64,
}

const fn of(name: &'static str, block: u64, bytes: u64) -> Option<GgmlType> {
    Some(GgmlType { name, block, bytes })
}

impl GgmlType {
    /// The type with this number in files.
    pub(super) const fn from_id(id: u32) -> Option<Self> {
        match id {
            0 => of("F32", 1, 4),
            1 => of("F16", 1, 2),
            2 => of("Q4_0", 32, 18),
            3 => of("Q4_1", 32, 20),
            6 => of("Q5_0", 32, 22),
            7 => of("Q5_1", 32, 24),
            8 => of("Q8_0", 32, 34),
            9 => of("Q8_1", 32, 40),
            10 => of("Q2_K", 256, 84),
            11 => of("Q3_K", 256, 110),
            12 => of("Q4_K", 256, 144),
            13 => of("Q5_K", 256, 176),
            14 => of("Q6_K", 256, 210),
            15 => of("Q8_K", 256, 292),
            16 => of("IQ2_XXS", 256, 66),
            17 => of("IQ2_XS", 256, 74),
            18 => of("IQ3_XXS", 256, 98),
            19 => of("IQ1_S", 256, 50),
            20 => of("IQ4_NL", 32, 18),
            21 => of("IQ3_S", 256, 110),
            22 => of("IQ2_S", 256, 82),
            23 => of("IQ4_XS", 256, 136),
            24 => of("I8", 1, 1),
            25 => of("I16", 1, 2),
            26 => of("I32", 1, 4),
            27 => of("I64", 1, 8),
            28 => of("F64", 1, 8),
            29 => of("IQ1_M", 256, 56),
            30 => of("BF16", 1, 2),
            34 => of("TQ1_0", 256, 54),
            35 => of("TQ2_0", 256, 66),
            39 => of("MXFP4", 32, 17),
            40 => of("NVFP4", 64, 36),
            41 => of("Q1_0", 128, 18),
            _ => None,
        }
    }

    /// Why a number is none of the types, for error messages.
    pub(super) const fn hint(id: u32) -> &'static str {
        match id {
            4 | 5 | 31..=33 | 36..=38 => " (removed from GGML: convert the model again)",
            _ => "",
        }
    }
}

/// Name of a mixed quantization (`general.file_type`).
///
/// Source: `LlamaFileType` of gguf-py 0.19.0.
pub(super) const fn file_type_name(id: u64) -> Option<&'static str> {
    Some(match id {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4_MOE",
        39 => "NVFP4",
        40 => "Q1_0",
        _ => return None,
    })
}
