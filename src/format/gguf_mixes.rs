//! Recipes for GGUF files that are not llama.cpp's own.

use super::GgufFileType as File;
use super::GgufType as Type;
use super::{TensorClass as Class, TensorPlace};

/// `IQ3_K`, `IQ4_K` and `IQ5_K` of ik_llama.cpp, in bits per weight (its `ggml-common.h`: 110, 144 and 176 bytes per 256 weights).
const IQ3_K: f64 = 3.4375;
const IQ4_K: f64 = 4.5;
const IQ5_K: f64 = 5.5;

/// Unsloth's dynamic files.
pub(super) fn unsloth_dynamic(base: File, _extra_large: bool, place: &TensorPlace) -> f64 {
    base.bits_per_weight(place)
}

pub(super) fn ds4_q2(place: &TensorPlace) -> f64 {
    match place.class {
        Class::ExpertGate | Class::ExpertUp => Type::IQ2_XXS.bits_per_weight(),
        Class::ExpertDown => Type::Q2_K.bits_per_weight(),
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
