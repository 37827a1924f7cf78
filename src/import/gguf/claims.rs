//! What each tensor of a layer is for, and the account of it: every weight is claimed exactly once.

use super::keys::WIDTH_LIMIT;
use super::{Header, TensorInfo};
use crate::format::TensorClass;
use crate::import::ImportError;
use std::collections::BTreeMap;

/// The tensors of one layer by short name: `attn_q` for `blk.7.attn_q.weight`, `attn_q.bias` for its bias.
pub(super) struct View<'a> {
    header: &'a Header,
    pub(super) layer: usize,
    tensors: BTreeMap<&'a str, &'a TensorInfo>,
}

/// A part of a tensor and the role it plays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) class: TensorClass,
    pub(super) params: u64,
    pub(super) bytes: u64,
}

/// The name without the suffix of ordinary weights.
pub(super) fn short_name(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

/// Splits `blk.7.attn_q.weight` into 7 and `attn_q`.
pub(super) fn layer_and_name(name: &str) -> Option<(u64, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, short_name(rest)))
}

/// Norms, biases, scales, convolutions and decay rates: kept in full precision and never worth a matrix product.
pub(super) fn is_vector(name: &str) -> bool {
    let suffix = [".bias", ".scale", ".input_scale"].iter().any(|suffix| name.ends_with(suffix));
    suffix
        || name.contains("norm")
        || matches!(
            name,
            "ssm_a"
                | "ssm_d"
                | "ssm_conv1d"
                | "ssm_conv1d_q"
                | "ssm_conv1d_k"
                | "ssm_conv1d_v"
                | "shortconv.conv"
                | "attn_sinks"
                | "exp_probs_b"
                | "ffn.act"
                | "ffn_act"
                | "layer_output_scale"
                | "altup_correct_coef"
                | "altup_correct_scale"
                | "altup_predict_coef"
        )
}

/// Rotary tables: computed from the configuration, not trained.
pub(super) fn is_table(name: &str) -> bool {
    matches!(name, "rope_freqs" | "rope_factors_long" | "rope_factors_short" | "attn_rot_embd")
}

impl<'a> View<'a> {
    pub(super) fn new(header: &'a Header, layer: usize) -> Self {
        Self { header, layer, tensors: BTreeMap::new() }
    }

    /// Adds a tensor; `false` if one of that name is there (`attn_q` and `attn_q.weight`).
    pub(super) fn add(&mut self, name: &'a str, tensor: &'a TensorInfo) -> bool {
        self.tensors.insert(name, tensor).is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a TensorInfo)> {
        self.tensors.iter().map(|(&name, &tensor)| (name, tensor))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(super) fn elements(&self, name: &str) -> u64 {
        self.tensors.get(name).map_or(0, |tensor| tensor.elements)
    }

    pub(super) fn error(&self, what: impl std::fmt::Display) -> ImportError {
        self.header.inconsistent(format!("layer {}: {what}", self.layer))
    }

    /// Input features, output features and copies of a matrix, if it is there.
    pub(super) fn matrix(&self, name: &str) -> Result<Option<[u64; 3]>, ImportError> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let [inputs, outputs, copies, rest] = tensor.dimensions;
        if rest != 1 || inputs.max(outputs).max(copies) > WIDTH_LIMIT {
            let shape = tensor.shape();
            return Err(self.error(format!(
                "tensor `{}` has the shape {shape:?}, expected up to 3 dimensions of up to {WIDTH_LIMIT}",
                tensor.name
            )));
        }
        Ok(Some([inputs, outputs, copies]))
    }

    /// The same for a matrix that must be there.
    pub(super) fn dimensions(&self, name: &str) -> Result<[u64; 3], ImportError> {
        self.matrix(name)?.ok_or_else(|| self.error(format!("tensor `{name}` is missing")))
    }

    /// Refuses a dimension that contradicts another number.
    pub(super) fn require(&self, what: &str, found: u64, expected: u64) -> Result<(), ImportError> {
        if found == expected { Ok(()) } else { Err(self.error(format!("{what} is {found}, expected {expected}"))) }
    }

    /// Divides a dimension among heads.
    pub(super) fn share(&self, name: &str, width: u64, heads: u64, of: &str) -> Result<u64, ImportError> {
        match width.checked_rem(heads) {
            Some(0) if width > 0 => Ok(width / heads),
            _ => Err(self.error(format!("`{name}` is {width} wide, not a multiple of {heads} {of}"))),
        }
    }
}

impl Claim {
    pub(super) const fn whole(class: TensorClass, tensor: &TensorInfo) -> Self {
        Self { class, params: tensor.elements, bytes: tensor.bytes }
    }

    /// Some rows of a tensor whose rows belong to several classes. Exact, because a row is a whole number of blocks.
    pub(super) fn rows(class: TensorClass, tensor: &TensorInfo, rows: u64) -> Self {
        let all = tensor.elements / tensor.dimensions[0].max(1);
        let per_row = |total: u64| total / all.max(1) * rows;
        Self { class, params: per_row(tensor.elements), bytes: per_row(tensor.bytes) }
    }
}
