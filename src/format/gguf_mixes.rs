//! Recipes for GGUF files that are not llama.cpp's own.

use super::GgufFileType as File;
use super::GgufType as Type;
use super::gguf_rules::fit_to_row;
use super::{TensorClass as Class, TensorPlace};

/// `IQ3_K`, `IQ4_K` and `IQ5_K` of ik_llama.cpp, in bits per weight (its `ggml-common.h`: 110, 144 and 176 bytes per 256 weights).
const IQ3_K: f64 = 3.4375;
const IQ4_K: f64 = 4.5;
const IQ5_K: f64 = 5.5;

/// Unsloth's dynamic files, approximated.
///
/// The recipes differ from model to model and changed over the years. `XL` files of mixtures of experts keep the routed experts
/// in the base type and the rest in `Q8_0`; `Q8_K_XL` files keep keys, values, recurrent layers and shared experts at 16 bits; all
/// others follow llama.cpp's recipe of the same name. Published files are met within 10 % (mean 4 %).
pub(super) fn unsloth_dynamic(base: File, extra_large: bool, place: &TensorPlace) -> f64 {
    let widened = matches!(
        place.class,
        Class::AttentionK
            | Class::AttentionV
            | Class::RecurrentIn
            | Class::RecurrentOut
            | Class::SharedExpertGate
            | Class::SharedExpertUp
            | Class::SharedExpertDown
    );
    match (extra_large, base) {
        (true, File::Q8_0) if widened => Type::F16.bits_per_weight(),
        (true, File::Q8_0) => base.bits_per_weight(place),
        (true, _) if place.class.is_expert() => fit_to_row(base.base_type(), place.in_features).bits_per_weight(),
        (true, _) if place.experts > 0 => File::Q8_0.bits_per_weight(place),
        _ => base.bits_per_weight(place),
    }
}

/// ds4's file for DeepSeek-V4: besides the experts, embeddings and compressors stay at 16 bits, found from the published size.
pub(super) fn ds4_q2(place: &TensorPlace) -> f64 {
    match place.class {
        Class::ExpertGate | Class::ExpertUp => Type::IQ2_XXS.bits_per_weight(),
        Class::ExpertDown => Type::Q2_K.bits_per_weight(),
        Class::TokenEmbedding | Class::Indexer => Type::F16.bits_per_weight(),
        _ => File::Q8_0.bits_per_weight(place),
    }
}

pub(super) fn ik_iq4k_iq5k(place: &TensorPlace) -> f64 {
    match place.class {
        Class::ExpertGate | Class::ExpertUp => IQ4_K,
        Class::ExpertDown => IQ5_K,
        _ => File::Q8_0.bits_per_weight(place),
    }
}

pub(super) fn ik_iq3k(place: &TensorPlace) -> f64 {
    match place.class {
        Class::FfnGate | Class::FfnUp | Class::FfnDown => IQ3_K,
        Class::AttentionQ | Class::AttentionK | Class::AttentionV | Class::AttentionOutput => IQ4_K,
        _ => File::Q8_0.bits_per_weight(place),
    }
}
