//! Operations and bytes of each operator of a transformer, counted from shapes.
//!
//! These are the counting rules that the step model compiles into coefficients, as plain functions: one call, one [`Work`].
//! A multiply-add counts as two operations.

mod attention;
mod elementwise;
mod gemm;

pub use attention::{UnfusedAttention, decode_attention, prefill_attention, unfused_attention};
pub use elementwise::{norm, residual_add};
pub use gemm::{GemmFormats, gemm};

use crate::roofline::Work;
use std::fmt;

/// A class of operators that share an efficiency law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperatorClass {
    /// Dense matrix products.
    Gemm,
    /// Grouped matrix products over experts.
    ExpertGemm,
    /// Attention of prompt chunks.
    PrefillAttention,
    /// Attention of decode tokens.
    DecodeAttention,
    /// State-space and linear-attention scans.
    Recurrent,
    /// Norms, residuals, look-ups, small vectors.
    Elementwise,
    /// Communication between devices.
    Collective,
    /// Time per step that no operator explains.
    Overhead,
}

impl OperatorClass {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Gemm,
        Self::ExpertGemm,
        Self::PrefillAttention,
        Self::DecodeAttention,
        Self::Recurrent,
        Self::Elementwise,
        Self::Collective,
        Self::Overhead,
    ];

    /// Name in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::ExpertGemm => "expert gemm",
            Self::PrefillAttention => "prefill attention",
            Self::DecodeAttention => "decode attention",
            Self::Recurrent => "recurrent",
            Self::Elementwise => "elementwise",
            Self::Collective => "collective",
            Self::Overhead => "overhead",
        }
    }
}

impl fmt::Display for OperatorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Sums the work of several operators.
pub fn total(work: impl IntoIterator<Item = Work>) -> Work {
    work.into_iter().fold(Work::default(), |sum, one| sum + one)
}
