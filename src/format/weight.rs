//! Weight formats: how many bits each tensor of a model takes, and in which format it is multiplied.

use super::{FileTensors, GgufFileType, NumberFormat, TensorClass as Class, TensorPlace, gguf_mixes};
use std::sync::Arc;

/// How the weights of a model are stored.
///
/// Read from text (`"q4_k_m".parse()`) in the names that vLLM, llama.cpp and Hugging Face users know; see
/// [`names`](Self::names). Formats differ in which tensors they leave at 16 bits; [`bits_per_weight`](Self::bits_per_weight) tells
/// the true bits of every tensor, scales included.
///
/// ```
/// use llm_roofline::format::{NumberFormat, TensorClass, TensorPlace, WeightFormat};
///
/// let awq: WeightFormat = "awq-int4".parse()?;
/// let up = TensorPlace::in_layer(TensorClass::FfnUp, 4096, 14336, 0, 32);
/// assert_eq!(awq.bits_per_weight(&up), 4.15625); // 4 bits, and a 16-bit scale and a 4-bit zero per 128 weights
/// assert_eq!(awq.compute_format(), NumberFormat::Fp16); // dequantized before it is multiplied
/// # Ok::<(), llm_roofline::format::FormatError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WeightFormat {
    /// Everything in 32-bit floats.
    Fp32,
    /// Everything in 16-bit floats with 5 exponent bits.
    Fp16,
    /// Everything in 16-bit floats with 8 exponent bits.
    Bf16,
    /// Matrices of the layers in 8-bit floats, one 32-bit scale per output channel.
    Fp8,
    /// Matrices of the layers in 8-bit floats, one 32-bit scale per 128x128 block (DeepSeek-V3).
    Fp8Block,
    /// As `Fp8Block`, but routed experts in 4-bit floats with an 8-bit exponent per 32 weights (DeepSeek-V4).
    Fp8BlockMxfp4Experts,
    /// Matrices of the layers in 8-bit integers, one 32-bit scale per output channel; activations too (W8A8).
    Int8,
    /// Matrices of the layers in 8-bit floats, an 8-bit exponent per 32 weights (OCP microscaling).
    Mxfp8,
    /// Matrices of the layers in 6-bit floats, an 8-bit exponent per 32 weights (OCP microscaling).
    Mxfp6,
    /// 4-bit floats, an 8-bit exponent per 32 weights (OCP microscaling). In a mixture of experts only the routed experts, as
    /// gpt-oss is published; in a dense model all matrices of the layers.
    Mxfp4,
    /// Matrices of the layers in 4-bit floats, an 8-bit float scale per 16 weights. Latent attention stays at 16 bits, as in NVIDIA's
    /// published DeepSeek checkpoints.
    Nvfp4,
    /// 4-bit integers, one 16-bit scale per 32 weights: in a mixture of experts only the routed experts (Kimi K2 Thinking, Kimi
    /// K2.5), in a dense model every matrix, embeddings and output head included (MLC `q4f16_1`).
    Int4,
    /// AWQ: matrices of the layers in 4-bit integers, a 16-bit scale and a 4-bit zero per group of input features.
    Awq {
        /// Weights per group.
        group: u32,
    },
    /// GPTQ: matrices of the layers in integers, a 16-bit scale and a zero of `bits` bits per group of input features.
    Gptq {
        /// Bits of a weight.
        bits: u8,
        /// Weights per group; `None` for one group per output channel.
        group: Option<u32>,
        /// Without zeros (Marlin, compressed-tensors W4A16).
        symmetric: bool,
    },
    /// bitsandbytes NF4: matrices of the layers in 4 bits, a 32-bit scale per 64 weights.
    Nf4 {
        /// The scales are themselves stored in 8 bits, with a 32-bit scale per 256 of them.
        double_quant: bool,
    },
    /// MLX: every matrix, embeddings and output head included, in integers, a 16-bit scale and bias per group.
    Mlx {
        /// Bits of a weight.
        bits: u8,
        /// Weights per group.
        group: u32,
    },
    /// EXL2 and EXL3: matrices of the layers at a chosen average, output head at 6 bits, embeddings at 16.
    Exl2 {
        /// Average bits per weight, in thousandths.
        millibits: u32,
    },
    /// A GGUF file made by llama.cpp's quantizer.
    Gguf(GgufFileType),
    /// gpt-oss in GGUF with everything but the experts at 16 bits (the files that are named F16).
    Mxfp4MoeF16,
    /// A GGUF file with Unsloth's dynamic recipe, approximated within 10 %: the recipe differs from model to model.
    UnslothDynamic {
        /// The file type in its name.
        base: GgufFileType,
        /// Whether the name ends in `XL`.
        extra_large: bool,
    },
    /// DeepSeek-V4 for the engine ds4: expert gate and up in `IQ2_XXS`, expert down in `Q2_K`, embeddings and compressors at 16
    /// bits, the rest in `Q8_0`.
    Ds4Q2Mix,
    /// ik_llama.cpp mix: expert gate and up in `IQ4_K`, expert down in `IQ5_K`, the rest in `Q8_0`.
    IkMixIq4kIq5k,
    /// ik_llama.cpp mix for dense models, approximated: feed-forwards in `IQ3_K`, attention in `IQ4_K`, embeddings in `Q8_0`.
    IkMixIq3k,
    /// The same bits for every matrix, norms at 16 bits: for estimates.
    Uniform {
        /// Bits per weight, in thousandths.
        millibits: u32,
    },
    /// What was found in a file, tensor by tensor.
    FromTensors(Arc<FileTensors>),
}

/// Bits of a 16-bit scale, an 8-bit scale, a 32-bit scale.
const SCALE_16: f64 = 16.0;
const SCALE_8: f64 = 8.0;
const SCALE_32: f64 = 32.0;

impl WeightFormat {
    /// Bits that a weight of this tensor takes, scales included.
    ///
    /// # Formula
    /// Grouped formats: `bits + scale_bits * ceil(in_features / group) / in_features`; GGUF: see
    /// [`GgufFileType::tensor_type`], with its fallbacks for rows that blocks do not divide.
    ///
    /// # Validity
    /// Exact for every format but the ones documented as approximated. Allocates nothing.
    pub fn bits_per_weight(&self, place: &TensorPlace) -> f64 {
        match self {
            Self::Fp32 => 32.0,
            Self::Fp16 | Self::Bf16 => 16.0,
            Self::Gguf(file) => file.bits_per_weight(place),
            Self::Mxfp4MoeF16 if place.class.is_expert() => GgufFileType::MXFP4_MOE.bits_per_weight(place),
            Self::Mxfp4MoeF16 => GgufFileType::F16.bits_per_weight(place),
            Self::UnslothDynamic { base, extra_large } => gguf_mixes::unsloth_dynamic(*base, *extra_large, place),
            Self::Ds4Q2Mix => gguf_mixes::ds4_q2(place),
            Self::IkMixIq4kIq5k => gguf_mixes::ik_iq4k_iq5k(place),
            Self::IkMixIq3k => gguf_mixes::ik_iq3k(place),
            Self::FromTensors(tensors) => tensors.bits_per_weight(place),
            _ if !self.quantizes(place) => 16.0,
            _ => self.quantized_bits(place),
        }
    }

    /// Whether a format with 16-bit remainder quantizes this tensor.
    fn quantizes(&self, place: &TensorPlace) -> bool {
        let class = place.class;
        let is_embedding = matches!(class, Class::TokenEmbedding | Class::LookupTable | Class::LmHead);
        let is_matrix = class != Class::Vector;
        let in_layer_matrix = is_matrix
            && !is_embedding
            && !place.is_outside_layers()
            && !matches!(class, Class::Router | Class::RecurrentSmall);
        match self {
            Self::Uniform { .. } | Self::Mlx { .. } => is_matrix,
            Self::Int4 | Self::Mxfp4 if place.experts > 0 => class.is_expert(),
            Self::Int4 => is_matrix,
            Self::Exl2 { .. } => in_layer_matrix || class == Class::LmHead,
            Self::Nvfp4 => in_layer_matrix && (class.is_feed_forward() || !place.latent_attention),
            _ => in_layer_matrix,
        }
    }

    fn quantized_bits(&self, place: &TensorPlace) -> f64 {
        let per_group = |group: u32| {
            let groups = place.in_features.div_ceil(u64::from(group).max(1));
            groups as f64 / place.in_features.max(1) as f64
        };
        let per_channel = 1.0 / place.in_features.max(1) as f64;
        match *self {
            Self::Fp8 | Self::Int8 => 8.0 + SCALE_32 * per_channel,
            Self::Fp8BlockMxfp4Experts if place.class.is_expert() => 4.0 + SCALE_8 * per_group(32),
            Self::Fp8Block | Self::Fp8BlockMxfp4Experts => 8.0 + SCALE_32 * per_group(128) / 128.0,
            Self::Mxfp8 => 8.0 + SCALE_8 * per_group(32),
            Self::Mxfp6 => 6.0 + SCALE_8 * per_group(32),
            Self::Mxfp4 => 4.0 + SCALE_8 * per_group(32),
            Self::Nvfp4 => 4.0 + SCALE_8 * per_group(16),
            Self::Int4 => 4.0 + SCALE_16 * per_group(32),
            Self::Awq { group } => 4.0 + (SCALE_16 + 4.0) * per_group(group),
            Self::Gptq { bits, group, symmetric } => {
                let zero = if symmetric { 0.0 } else { f64::from(bits) };
                f64::from(bits) + (SCALE_16 + zero) * group.map_or(per_channel, per_group)
            }
            Self::Nf4 { double_quant: false } => 4.0 + SCALE_32 / 64.0,
            Self::Nf4 { double_quant: true } => 4.0 + SCALE_8 / 64.0 + SCALE_32 / (64.0 * 256.0),
            Self::Mlx { bits, group } => f64::from(bits) + 2.0 * SCALE_16 * per_group(group),
            Self::Exl2 { .. } if place.class == Class::LmHead => 6.0,
            Self::Exl2 { millibits } | Self::Uniform { millibits } => f64::from(millibits) / 1000.0,
            _ => 16.0,
        }
    }

    /// The format in which the matrix products run, on hardware that has it: 8-bit formats in 8 bits, 4-bit floats in 4-bit
    /// floats, everything that is only stored small in 16 bits.
    ///
    /// Hardware without it must fall back: weights in `mxfp4` on a GPU without 4-bit units are multiplied in 16 bits.
    pub fn compute_format(&self) -> NumberFormat {
        match self {
            Self::Fp32 | Self::Gguf(GgufFileType::F32) => NumberFormat::Fp32,
            Self::Bf16 | Self::Gguf(GgufFileType::BF16) => NumberFormat::Bf16,
            Self::Fp8 | Self::Fp8Block | Self::Fp8BlockMxfp4Experts | Self::Mxfp8 => NumberFormat::Fp8,
            Self::Int8 => NumberFormat::Int8,
            Self::Mxfp6 => NumberFormat::Fp6,
            Self::Mxfp4 | Self::Nvfp4 => NumberFormat::Fp4,
            _ => NumberFormat::Fp16,
        }
    }

    /// The kernels that engines have for it: what efficiencies are looked up by. Formats that differ in scales only share a key.
    ///
    /// ```
    /// use llm_roofline::format::WeightFormat;
    /// assert_eq!("q5_k_m".parse::<WeightFormat>()?.kernel_key(), "k-quant");
    /// # Ok::<(), llm_roofline::format::FormatError>(())
    /// ```
    pub fn kernel_key(&self) -> &'static str {
        match self {
            Self::Fp32 => "f32",
            Self::Fp16 | Self::Bf16 => "f16",
            Self::Fp8 | Self::Mxfp8 | Self::Mxfp6 => "fp8",
            Self::Fp8Block | Self::Fp8BlockMxfp4Experts => "fp8-block",
            Self::Int8 => "int8",
            Self::Mxfp4 | Self::Mxfp4MoeF16 => "mxfp4",
            Self::Nvfp4 => "nvfp4",
            Self::Gptq { bits: 8.., .. } => "gptq-int8",
            Self::Int4 | Self::Awq { .. } | Self::Gptq { .. } | Self::Nf4 { .. } => "int4",
            Self::Mlx { .. } => "mlx",
            Self::Exl2 { .. } => "exl2",
            Self::Gguf(file_type) => file_type.base_type().kernel_key(),
            Self::UnslothDynamic { base, .. } => base.base_type().kernel_key(),
            _ => "k-quant",
        }
    }

    /// Whether only the weights are small: they are widened before they are multiplied, so small weights speed up decode but
    /// not prefill.
    pub fn is_weight_only(&self) -> bool {
        match self {
            Self::Fp32 | Self::Fp16 | Self::Bf16 => false,
            Self::Gguf(GgufFileType::F32 | GgufFileType::F16 | GgufFileType::BF16) => false,
            _ => matches!(self.compute_format(), NumberFormat::Fp16),
        }
    }
}

impl Default for WeightFormat {
    /// 16-bit brain floats.
    fn default() -> Self {
        Self::Bf16
    }
}

impl WeightFormat {
    /// Whether equal tensors of different layers may take different bits.
    pub const fn depends_on_layer(&self) -> bool {
        matches!(self, Self::Gguf(_) | Self::UnslothDynamic { .. } | Self::FromTensors(_))
    }
}
