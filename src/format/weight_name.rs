//! Names of weight formats: reading and writing.

use super::{GgufFileType, WeightFormat};
use crate::profile::nearest;
use std::fmt;
use std::str::FromStr;

/// A format name that means nothing here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// No format has this name.
    #[error("unknown {what} `{name}`{hint}")]
    Unknown {
        /// Weight format or cache format.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// The nearest valid name, or the names to choose from.
        hint: String,
    },
    /// A number in the name is out of its range.
    #[error("`{name}`: {what} is {value}, expected {expected}")]
    OutOfRange {
        /// What was asked for.
        name: String,
        /// Which number.
        what: &'static str,
        /// The number as written.
        value: String,
        /// The range.
        expected: &'static str,
    },
}

pub(super) fn unknown<'a>(what: &'static str, name: &str, valid: impl Iterator<Item = &'a str> + Clone) -> FormatError {
    let hint = match nearest(name, valid.clone()) {
        Some(nearest) => format!(" (did you mean `{nearest}`?)"),
        None => format!(", expected one of {}", valid.collect::<Vec<_>>().join(", ")),
    };
    FormatError::Unknown { what, name: name.chars().take(100).collect(), hint }
}

/// Formats without a number in their name.
const FIXED: &[(&str, WeightFormat)] = &[
    ("fp32", WeightFormat::Fp32),
    ("fp16", WeightFormat::Fp16),
    ("bf16", WeightFormat::Bf16),
    ("fp8", WeightFormat::Fp8),
    ("fp8-block", WeightFormat::Fp8Block),
    ("fp8-block-mxfp4-experts", WeightFormat::Fp8BlockMxfp4Experts),
    ("int8", WeightFormat::Int8),
    ("mxfp8", WeightFormat::Mxfp8),
    ("mxfp6", WeightFormat::Mxfp6),
    ("mxfp4", WeightFormat::Mxfp4),
    ("nvfp4", WeightFormat::Nvfp4),
    ("int4", WeightFormat::Int4),
    ("nf4", WeightFormat::Nf4 { double_quant: false }),
    ("nf4-dq", WeightFormat::Nf4 { double_quant: true }),
    ("mxfp4_moe-f16", WeightFormat::Mxfp4MoeF16),
    ("ds4-q2-mix", WeightFormat::Ds4Q2Mix),
    ("ik-mix-iq4_k-iq5_k", WeightFormat::IkMixIq4kIq5k),
    ("ik-mix-iq3_k", WeightFormat::IkMixIq3k),
];

/// Examples of formats with a number in their name, for suggestions.
const PARAMETRIC: &[&str] = &[
    "awq-int4",
    "awq-int4-g64",
    "gptq-int4",
    "gptq-int4-g32",
    "gptq-int4-sym",
    "gptq-int4-channel",
    "gptq-int8",
    "mlx-int4",
    "mlx-int4-g32",
    "mlx-int8",
    "exl2-4.25bpw",
    "bits-4.5",
    "ud-q4_k_xl",
];

/// Group size of AWQ and GPTQ where the name says none.
const DEFAULT_GROUP: u32 = 128;
/// Group size of MLX where the name says none.
const MLX_GROUP: u32 = 64;

impl WeightFormat {
    /// Names to choose from: every format without a number in its name, examples of the others, every GGUF file type.
    ///
    /// The others are `awq-int4[-gN]`, `gptq-intN[-gN|-channel][-sym]`, `mlx-intN[-gN]`, `exl2-Nbpw`, `bits-N`, and
    /// `ud-<file type>` or `ud-<qN_k>_xl` for Unsloth's files. `gguf-` may stand before any file type, and must before `bf16` and
    /// `nvfp4`, which otherwise name the formats of Hugging Face checkpoints.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        let fixed = FIXED.iter().map(|(name, _)| *name);
        fixed.chain(PARAMETRIC.iter().copied()).chain(GgufFileType::ALL.iter().map(|file| file.name()))
    }
}

impl FromStr for WeightFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let name = text.trim().to_lowercase();
        if let Some((_, format)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Ok(format.clone());
        }
        if let Some(file) = gguf_file(name.strip_prefix("gguf-").unwrap_or(&name)) {
            return Ok(Self::Gguf(file));
        }
        let parsed = match name.split_once('-') {
            Some(("awq", rest)) => awq(text, rest)?,
            Some(("gptq", rest)) => gptq(text, rest)?,
            Some(("mlx", rest)) => mlx(text, rest)?,
            Some(("exl2" | "exl3", rest)) => exl2(text, rest.strip_suffix("bpw").unwrap_or(rest))?,
            Some(("bits", rest)) => Some(Self::Uniform { millibits: millibits(text, rest)? }),
            Some(("ud", rest)) => unsloth(rest),
            _ => None,
        };
        parsed.ok_or_else(|| unknown("weight format", text, Self::names()))
    }
}

fn gguf_file(name: &str) -> Option<GgufFileType> {
    GgufFileType::ALL.iter().copied().find(|file| file.name() == name)
}

fn unsloth(rest: &str) -> Option<WeightFormat> {
    let (base, extra_large) = match rest {
        "q2_k_xl" => (GgufFileType::Q2_K, true),
        "q3_k_xl" => (GgufFileType::Q3_K_M, true),
        "q4_k_xl" => (GgufFileType::Q4_K_M, true),
        "q5_k_xl" => (GgufFileType::Q5_K_M, true),
        "q6_k_xl" => (GgufFileType::Q6_K, true),
        "q8_k_xl" => (GgufFileType::Q8_0, true),
        _ => (gguf_file(rest)?, false),
    };
    Some(WeightFormat::UnslothDynamic { base, extra_large })
}

fn awq(text: &str, rest: &str) -> Result<Option<WeightFormat>, FormatError> {
    let Some(rest) = rest.strip_prefix("int4") else { return Ok(None) };
    Ok(match rest.strip_prefix("-g") {
        None if rest.is_empty() => Some(WeightFormat::Awq { group: DEFAULT_GROUP }),
        None => None,
        Some(group) => Some(WeightFormat::Awq { group: group_size(text, group)? }),
    })
}

fn gptq(text: &str, rest: &str) -> Result<Option<WeightFormat>, FormatError> {
    let (rest, symmetric) = match rest.strip_suffix("-sym") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let Some(rest) = rest.strip_prefix("int") else { return Ok(None) };
    let (bits, group) = rest.split_once('-').unwrap_or((rest, ""));
    let bits = integer_bits(text, bits, 2)?;
    let group = match group {
        "" => Some(DEFAULT_GROUP),
        "channel" | "g-1" => None,
        group => match group.strip_prefix('g') {
            Some(group) => Some(group_size(text, group)?),
            None => return Ok(None),
        },
    };
    Ok(Some(WeightFormat::Gptq { bits, group, symmetric }))
}

fn mlx(text: &str, rest: &str) -> Result<Option<WeightFormat>, FormatError> {
    let Some(rest) = rest.strip_prefix("int") else { return Ok(None) };
    let (bits, group) = rest.split_once("-g").unwrap_or((rest, ""));
    let bits = integer_bits(text, bits, 2)?;
    let group = if group.is_empty() { MLX_GROUP } else { group_size(text, group)? };
    Ok(Some(WeightFormat::Mlx { bits, group }))
}

fn exl2(text: &str, bits: &str) -> Result<Option<WeightFormat>, FormatError> {
    Ok(Some(WeightFormat::Exl2 { millibits: millibits(text, bits)? }))
}

fn integer_bits(text: &str, bits: &str, least: u8) -> Result<u8, FormatError> {
    bits.parse().ok().filter(|bits| (least..=8).contains(bits)).ok_or_else(|| FormatError::OutOfRange {
        name: text.into(),
        what: "bits",
        value: bits.into(),
        expected: "an integer from 2 to 8",
    })
}

fn group_size(text: &str, group: &str) -> Result<u32, FormatError> {
    group.parse().ok().filter(|group| (8..=65_536).contains(group)).ok_or_else(|| FormatError::OutOfRange {
        name: text.into(),
        what: "group size",
        value: group.into(),
        expected: "an integer from 8 to 65536",
    })
}

fn millibits(text: &str, bits: &str) -> Result<u32, FormatError> {
    let value: Option<f64> = bits.parse().ok();
    match value.map(|bits| (bits * 1000.0).round()) {
        Some(millibits) if (100.0..=64_000.0).contains(&millibits) => Ok(millibits as u32),
        _ => Err(FormatError::OutOfRange {
            name: text.into(),
            what: "bits per weight",
            value: bits.into(),
            expected: "a number from 0.1 to 64",
        }),
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Awq { group: DEFAULT_GROUP } => "awq-int4".into(),
            Self::Awq { group } => format!("awq-int4-g{group}"),
            Self::Gptq { bits, group, symmetric } => {
                let group = match group {
                    Some(DEFAULT_GROUP) => String::new(),
                    Some(group) => format!("-g{group}"),
                    None => "-channel".into(),
                };
                format!("gptq-int{bits}{group}{}", if *symmetric { "-sym" } else { "" })
            }
            Self::Mlx { bits, group: MLX_GROUP } => format!("mlx-int{bits}"),
            Self::Mlx { bits, group } => format!("mlx-int{bits}-g{group}"),
            Self::Exl2 { millibits } => format!("exl2-{:?}bpw", f64::from(*millibits) / 1000.0),
            Self::Uniform { millibits } => format!("bits-{}", f64::from(*millibits) / 1000.0),
            Self::Gguf(file @ (GgufFileType::BF16 | GgufFileType::NVFP4)) => format!("gguf-{file}"),
            Self::Gguf(file) => file.name().into(),
            Self::UnslothDynamic { base, extra_large: false } => format!("ud-{base}"),
            Self::UnslothDynamic { base, extra_large: true } => {
                let stem = base.name().trim_end_matches("_m").trim_end_matches("_0");
                format!("ud-{}_xl", if stem == "q8" { "q8_k" } else { stem })
            }
            Self::FromTensors(tensors) => tensors.name().into(),
            fixed => FIXED.iter().find(|(_, format)| format == fixed).map_or("", |(name, _)| name).into(),
        };
        f.pad(&name)
    }
}

impl serde::Serialize for WeightFormat {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for WeightFormat {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
