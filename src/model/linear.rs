//! A weight matrix and how tensor parallelism cuts it.

use crate::format::TensorClass;
use serde::{Deserialize, Serialize};

/// How tensor parallelism divides a matrix over the devices of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Split {
    /// Every device holds a slice of the output features.
    #[default]
    Output,
    /// Every device holds a slice of the input features; the partial results are summed by an all-reduce.
    Input,
    /// Output features belong to so many key-value heads: with more devices than heads, heads are replicated.
    KvHeads(u64),
    /// Every device holds the whole matrix.
    Replicated,
}

impl Split {
    /// The share of the matrix that one of `tp` devices holds.
    pub fn share(self, tp: u64) -> f64 {
        match self {
            Self::Output | Self::Input => 1.0 / tp as f64,
            Self::KvHeads(heads) => 1.0 / tp.min(heads.max(1)) as f64,
            Self::Replicated => 1.0,
        }
    }
}

/// One or more equal weight matrices that a token is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Role.
    pub class: TensorClass,
    /// Input features of one matrix.
    pub in_features: u64,
    /// Output features of one matrix.
    pub out_features: u64,
    /// How many such matrices (block-diagonal groups); 1 for an ordinary projection.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub copies: u64,
    /// How tensor parallelism divides it.
    #[serde(default)]
    pub split: Split,
}

impl Linear {
    /// A single matrix.
    pub const fn new(class: TensorClass, in_features: u64, out_features: u64, split: Split) -> Self {
        Self { class, in_features, out_features, copies: 1, split }
    }

    /// Number of weights: `copies * in_features * out_features`.
    pub const fn params(&self) -> u64 {
        self.copies * self.in_features * self.out_features
    }
}

fn one() -> u64 {
    1
}

fn is_one(n: &u64) -> bool {
    *n == 1
}
