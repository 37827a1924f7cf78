//! Which tensor of a GGUF file gets which type.
//!
//! The rules are those of llama.cpp's quantizer (function `llama_tensor_get_type` in `src/llama-quant.cpp`, read at commit
//! 007dbbf, 2026), told by role of the tensor. Files are taken as made with an importance matrix where their type needs one and
//! without one otherwise.

use super::GgufFileType as File;
use super::GgufType as Type;
use super::{GgufFamily, TensorClass as Class, TensorPlace};

/// What the rules distinguish.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Never quantized, 32 bits.
    Vector,
    /// Never quantized, 16 bits.
    Small,
    Output,
    Embedding,
    Query,
    Key,
    Value,
    AttentionOutput,
    Gate,
    Up,
    Down,
    Other,
}

impl File {
    /// The type of a tensor in a file of this type.
    ///
    /// Where a part of the tensor is stored in one matrix with the values ([`TensorPlace::value_share`]), this is the type of the
    /// remaining part.
    ///
    /// ```
    /// use llm_roofline::format::{GgufFileType, GgufType, TensorClass, TensorPlace};
    /// let mut down = TensorPlace::in_layer(TensorClass::FfnDown, 14336, 4096, 0, 32);
    /// assert_eq!(GgufFileType::Q4_K_M.tensor_type(&down), GgufType::Q6_K); // the first layers are sensitive
    /// down.ordinal = 4;
    /// assert_eq!(GgufFileType::Q4_K_M.tensor_type(&down), GgufType::Q4_K);
    /// ```
    pub fn tensor_type(self, place: &TensorPlace) -> Type {
        self.type_of_role(role(place), place)
    }

    /// Bits per weight of a tensor, parts that are stored with the values included.
    pub fn bits_per_weight(self, place: &TensorPlace) -> f64 {
        let own = self.tensor_type(place).bits_per_weight();
        if place.value_share == 0.0 {
            return own;
        }
        let as_value = self.type_of_role(Role::Value, place).bits_per_weight();
        place.value_share * as_value + (1.0 - place.value_share) * own
    }

    fn type_of_role(self, role: Role, place: &TensorPlace) -> Type {
        let plain = matches!(self, Self::F32 | Self::F16 | Self::BF16);
        let chosen = match role {
            Role::Vector => return Type::F32,
            Role::Small if self == Self::F32 => return Type::F32,
            Role::Small => return Type::F16,
            _ if plain => return self.base_type(),
            Role::Output => self.output(place),
            _ if self == Self::MXFP4_MOE && place.class.is_expert() => Type::MXFP4,
            _ if self == Self::MXFP4_MOE => Type::Q8_0,
            Role::Embedding => self.embedding(),
            _ if self.is_below_3_bits() => self.below_3_bits(role, place),
            Role::Value => self.value(place),
            Role::Key => self.key(place),
            Role::Query => self.query(),
            Role::Down => self.down(place),
            Role::AttentionOutput => self.attention_output(place),
            Role::Gate | Role::Up => self.gate_or_up(place),
            Role::Other => self.base_type(),
        };
        fit_to_row(chosen, place.in_features)
    }

    const fn is_below_3_bits(self) -> bool {
        matches!(self, Self::IQ1_S | Self::IQ1_M | Self::IQ2_XXS | Self::IQ2_XS | Self::IQ2_S | Self::IQ2_M)
    }

    /// The output head, and the embedding table where it serves as one.
    fn output(self, place: &TensorPlace) -> Type {
        let base = self.base_type();
        let ragged = !place.in_features.is_multiple_of(base.block_size());
        if self == Self::MXFP4_MOE || place.family == GgufFamily::Falcon || ragged || base == Type::Q8_0 {
            Type::Q8_0
        } else if self.is_below_3_bits() || self == Self::IQ3_XXS {
            Type::Q5_K
        } else {
            Type::Q6_K
        }
    }

    const fn embedding(self) -> Type {
        match self {
            Self::IQ1_S | Self::IQ1_M | Self::IQ2_XXS | Self::IQ2_XS => Type::Q2_K,
            Self::IQ2_S | Self::IQ2_M | Self::IQ3_XXS => Type::IQ3_S,
            Self::TQ1_0 | Self::TQ2_0 | Self::Q2_0 => Type::Q4_K,
            _ => self.base_type(),
        }
    }

    fn below_3_bits(self, role: Role, place: &TensorPlace) -> Type {
        let larger = matches!(self, Self::IQ2_S | Self::IQ2_M);
        let lifted = if larger { Type::IQ3_S } else { Type::Q2_K };
        match role {
            Role::Value if place.queries_per_kv_head >= 4 || place.experts >= 4 => Type::Q4_K,
            Role::Value => lifted,
            Role::Key if place.experts == 8 => Type::Q4_K,
            Role::Down if is_first_eighth(place) => lifted,
            Role::AttentionOutput if place.experts == 8 => Type::Q5_K,
            Role::AttentionOutput if larger => Type::IQ3_S,
            Role::AttentionOutput if matches!(self, Self::IQ1_S | Self::IQ1_M) => Type::IQ2_XXS,
            _ => self.base_type(),
        }
    }

    fn value(self, place: &TensorPlace) -> Type {
        if place.experts == 8 {
            return Type::Q8_0;
        }
        let grouped = place.queries_per_kv_head >= 4;
        let chosen = match self {
            Self::Q2_K if !grouped => Type::Q3_K,
            Self::Q2_K | Self::Q2_K_S | Self::IQ3_XXS | Self::IQ3_XS | Self::IQ3_S if grouped => Type::Q4_K,
            Self::IQ3_M => Type::Q4_K,
            Self::Q3_K_M if place.ordinal >= 2 => Type::Q4_K,
            Self::Q3_K_M | Self::Q3_K_L => Type::Q5_K,
            Self::IQ4_NL | Self::IQ4_XS if grouped => Type::Q5_K,
            Self::Q4_K_M | Self::Q5_K_M if is_sensitive(place) => Type::Q6_K,
            Self::Q4_K_S if place.ordinal < 4 => Type::Q5_K,
            _ => self.base_type(),
        };
        // llama.cpp knows the 70B models of the Llama and Qwen families by their depth.
        let is_70b = place.layers == 80 && place.queries_per_kv_head > 1;
        if is_70b && matches!(chosen, Type::Q3_K | Type::Q4_K) { Type::Q5_K } else { chosen }
    }

    fn key(self, place: &TensorPlace) -> Type {
        if place.experts == 8 { Type::Q8_0 } else { self.query() }
    }

    const fn query(self) -> Type {
        match self {
            Self::IQ3_XS => Type::IQ3_XXS,
            Self::IQ3_XXS => Type::IQ2_S,
            _ => self.base_type(),
        }
    }

    fn down(self, place: &TensorPlace) -> Type {
        let falcon = place.family == GgufFamily::Falcon;
        let first_sixteenth = place.ordinal < place.count / 16;
        match self {
            Self::Q2_K => Type::Q3_K,
            Self::Q2_K_S if is_first_eighth(place) => Type::Q4_K,
            Self::Q3_K_M if first_sixteenth => Type::Q5_K,
            Self::Q3_K_M if !falcon || is_sensitive(place) => Type::Q4_K,
            Self::IQ3_M if is_first_eighth(place) || (place.experts == 8 && is_sensitive(place)) => Type::Q4_K,
            Self::Q3_K_L if falcon => Type::Q4_K,
            Self::Q3_K_L => Type::Q5_K,
            Self::Q4_K_M if falcon && first_sixteenth => Type::Q6_K,
            Self::Q4_K_M if falcon && is_sensitive(place) => Type::Q5_K,
            Self::Q4_K_M | Self::Q5_K_M if is_sensitive(place) => Type::Q6_K,
            Self::Q4_K_S if !falcon && is_first_eighth(place) => Type::Q5_K,
            Self::IQ4_NL | Self::IQ4_XS if is_first_eighth(place) => Type::Q5_K,
            _ => self.base_type(),
        }
    }

    fn attention_output(self, place: &TensorPlace) -> Type {
        if place.family == GgufFamily::Falcon {
            return if self == Self::Q3_K_L { Type::Q4_K } else { self.base_type() };
        }
        if place.experts == 8 {
            return match self {
                Self::Q2_K
                | Self::Q3_K_S
                | Self::Q3_K_M
                | Self::Q4_K_S
                | Self::Q4_K_M
                | Self::IQ3_XXS
                | Self::IQ3_XS
                | Self::IQ3_S
                | Self::IQ3_M
                | Self::IQ4_NL
                | Self::IQ4_XS => Type::Q5_K,
                _ => self.base_type(),
            };
        }
        match self {
            Self::Q2_K => Type::Q3_K,
            Self::IQ3_XXS => Type::IQ3_S,
            Self::Q3_K_M | Self::IQ3_M => Type::Q4_K,
            Self::Q3_K_L => Type::Q5_K,
            _ => self.base_type(),
        }
    }

    fn gate_or_up(self, place: &TensorPlace) -> Type {
        let in_the_middle = !is_first_eighth(place) && place.ordinal < 7 * place.count / 8;
        if self == Self::IQ3_XS && in_the_middle { Type::IQ3_XXS } else { self.base_type() }
    }
}

fn role(place: &TensorPlace) -> Role {
    match place.class {
        Class::Vector | Class::Router => Role::Vector,
        Class::OtherMatrix if place.is_outside_layers() => Role::Small,
        Class::LmHead => Role::Output,
        Class::TokenEmbedding | Class::LookupTable if place.tied_embeddings => Role::Output,
        Class::TokenEmbedding | Class::LookupTable => Role::Embedding,
        Class::AttentionQ => Role::Query,
        Class::AttentionK => Role::Key,
        Class::AttentionV => Role::Value,
        Class::AttentionOutput => Role::AttentionOutput,
        Class::FfnGate | Class::ExpertGate | Class::SharedExpertGate => Role::Gate,
        Class::FfnUp | Class::ExpertUp | Class::SharedExpertUp => Role::Up,
        Class::FfnDown | Class::ExpertDown | Class::SharedExpertDown => Role::Down,
        Class::LatentQDown
        | Class::LatentQUp
        | Class::LatentKvDown
        | Class::LatentKvUp
        | Class::Indexer
        | Class::RecurrentIn
        | Class::RecurrentOut
        | Class::RecurrentSmall
        | Class::OtherMatrix => Role::Other,
    }
}

const fn is_first_eighth(place: &TensorPlace) -> bool {
    place.ordinal < place.count / 8
}

/// The first and last eighth of the layers, and every third between them, get more bits.
const fn is_sensitive(place: &TensorPlace) -> bool {
    let (i, n) = (place.ordinal, place.count);
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// Rows that blocks do not divide are stored in a type with smaller blocks, in the last resort in 16 bits.
pub(super) const fn fit_to_row(chosen: Type, in_features: u64) -> Type {
    if in_features.is_multiple_of(chosen.block_size()) {
        return chosen;
    }
    let smaller = match chosen {
        Type::IQ1_S
        | Type::IQ1_M
        | Type::IQ2_XXS
        | Type::IQ2_XS
        | Type::IQ2_S
        | Type::IQ3_XXS
        | Type::IQ3_S
        | Type::IQ4_XS => Type::IQ4_NL,
        Type::Q1_0 | Type::Q2_0 | Type::Q2_K | Type::Q3_K | Type::TQ1_0 | Type::TQ2_0 => Type::Q4_0,
        Type::Q4_K => Type::Q5_0,
        Type::Q5_K => Type::Q5_1,
        Type::Q6_K => Type::Q8_0,
        _ => return Type::F16,
    };
    if in_features.is_multiple_of(smaller.block_size()) { smaller } else { Type::F16 }
}
