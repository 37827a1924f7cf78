//! Recurrent token mixers: state-space and linear-attention layers with a constant state per sequence.
//!
//! Their cost does not grow with the context. In decode the whole state is read and written once per sequence and step;
//! in prefill it stays on the chip between the tokens of a chunk.

use super::attention::is_false;
use super::{Linear, Split};
use crate::format::TensorClass::{RecurrentIn, RecurrentOut, RecurrentSmall};
use serde::{Deserialize, Serialize};

/// A layer whose memory of the past is a fixed-size state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Recurrent {
    /// Selective state space, first generation (Gu and Dao, arXiv 2312.00752), as in Jamba.
    Mamba1 {
        /// Inner width.
        inner: u64,
        /// State elements per inner channel.
        state: u64,
        /// Convolution kernel.
        conv_kernel: u64,
        /// Rank of the time-step projection.
        dt_rank: u64,
    },
    /// State-space duality (Dao and Gu, arXiv 2405.21060).
    Mamba2 {
        /// Heads.
        heads: u64,
        /// Dimension of a head; the inner width is `heads * head_dim`.
        head_dim: u64,
        /// Groups sharing input and output maps.
        groups: u64,
        /// State elements per channel.
        state: u64,
        /// Convolution kernel.
        conv_kernel: u64,
    },
    /// Gated delta net (Yang et al., arXiv 2412.06464), as in Qwen3-Next and Qwen3.5.
    GatedDeltaNet {
        /// Key heads.
        key_heads: u64,
        /// Value heads.
        value_heads: u64,
        /// Dimension of a key head.
        key_dim: u64,
        /// Dimension of a value head.
        value_dim: u64,
        /// Convolution kernel.
        conv_kernel: u64,
    },
    /// Kimi delta attention (Kimi Linear, arXiv 2510.26692).
    KimiDelta {
        /// Heads.
        heads: u64,
        /// Dimension of a head (keys and values).
        head_dim: u64,
        /// Convolution kernel.
        conv_kernel: u64,
        /// Whether the output gate is a full matrix instead of a low-rank one.
        #[serde(default, skip_serializing_if = "is_false")]
        full_rank_gate: bool,
    },
    /// Lightning linear attention (MiniMax-01, arXiv 2501.08313).
    Lightning {
        /// Heads.
        heads: u64,
        /// Dimension of a head.
        head_dim: u64,
    },
    /// Gated short convolution (LFM2, arXiv 2511.23404): the last inputs of the convolution are all that is remembered.
    ShortConvolution {
        /// Channels.
        width: u64,
        /// Convolution kernel.
        conv_kernel: u64,
    },
}

impl Recurrent {
    /// The weight matrices.
    pub fn linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        let h = hidden_size;
        let mut push = |class, inputs, outputs, split| out.push(Linear::new(class, inputs, outputs, split));
        match *self {
            Self::Mamba1 { inner, state, dt_rank, .. } => {
                push(RecurrentIn, h, 2 * inner, Split::Output);
                push(RecurrentSmall, inner, dt_rank + 2 * state, Split::Input);
                push(RecurrentSmall, dt_rank, inner, Split::Output);
                push(RecurrentOut, inner, h, Split::Input);
            }
            Self::Mamba2 { heads, head_dim, groups, state, .. } => {
                let inner = heads * head_dim;
                push(RecurrentIn, h, 2 * inner + 2 * groups * state + heads, Split::Output);
                push(RecurrentOut, inner, h, Split::Input);
            }
            Self::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, .. } => {
                let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
                push(RecurrentIn, h, 2 * keys + 2 * values, Split::Output);
                push(RecurrentSmall, h, 2 * value_heads, Split::Output);
                push(RecurrentOut, values, h, Split::Input);
            }
            Self::KimiDelta { heads, head_dim, full_rank_gate, .. } => {
                let inner = heads * head_dim;
                push(RecurrentIn, h, 3 * inner, Split::Output);
                if full_rank_gate {
                    push(RecurrentIn, h, inner, Split::Output);
                } else {
                    push(RecurrentSmall, h, head_dim, Split::Replicated);
                    push(RecurrentSmall, head_dim, inner, Split::Output);
                }
                push(RecurrentSmall, h, head_dim, Split::Replicated);
                push(RecurrentSmall, head_dim, inner, Split::Output);
                push(RecurrentSmall, h, heads, Split::Output);
                push(RecurrentOut, inner, h, Split::Input);
            }
            Self::Lightning { heads, head_dim } => {
                let inner = heads * head_dim;
                push(RecurrentIn, h, 3 * inner, Split::Output);
                push(RecurrentIn, h, inner, Split::Output);
                push(RecurrentOut, inner, h, Split::Input);
            }
            Self::ShortConvolution { width, .. } => {
                push(RecurrentIn, h, 3 * width, Split::Output);
                push(RecurrentOut, width, h, Split::Input);
            }
        }
    }

    /// State elements per sequence: the recurrent matrix and the last `conv_kernel - 1` inputs of the convolution.
    ///
    /// # Formula
    /// Mamba-2: `heads * head_dim * state + (conv_kernel - 1) * (heads * head_dim + 2 * groups * state)`;
    /// delta nets: `value_heads * key_dim * value_dim + (conv_kernel - 1) * (2 * keys + values)`.
    pub const fn state_elements(&self) -> u64 {
        let matrix = match *self {
            Self::Mamba1 { inner, state, .. } => inner * state,
            Self::Mamba2 { heads, head_dim, state, .. } => heads * head_dim * state,
            Self::GatedDeltaNet { value_heads, key_dim, value_dim, .. } => value_heads * key_dim * value_dim,
            Self::KimiDelta { heads, head_dim, .. } | Self::Lightning { heads, head_dim } => {
                heads * head_dim * head_dim
            }
            Self::ShortConvolution { .. } => 0,
        };
        matrix + self.convolution_elements()
    }

    /// Of these, the inputs that the convolution remembers; some engines keep them in fewer bits than the matrix.
    pub const fn convolution_elements(&self) -> u64 {
        match *self {
            Self::Mamba1 { inner, conv_kernel, .. } => conv_kernel.saturating_sub(1) * inner,
            Self::Mamba2 { heads, head_dim, groups, state, conv_kernel } => {
                conv_kernel.saturating_sub(1) * (heads * head_dim + 2 * groups * state)
            }
            Self::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel } => {
                conv_kernel.saturating_sub(1) * (2 * key_heads * key_dim + value_heads * value_dim)
            }
            Self::KimiDelta { heads, head_dim, conv_kernel, .. } => {
                conv_kernel.saturating_sub(1) * 3 * heads * head_dim
            }
            Self::Lightning { .. } => 0,
            Self::ShortConvolution { width, conv_kernel } => conv_kernel.saturating_sub(1) * width,
        }
    }

    /// Operations of the recurrence per token: update and read-out of the state, 2 per multiply-add.
    ///
    /// A decayed rank-1 update and a read-out touch each state element with 3 multiply-adds; the delta rule adds one
    /// more pass to predict the value that is corrected.
    pub const fn scan_flops_per_token(&self) -> u64 {
        match *self {
            Self::Mamba1 { inner, state, .. } => 6 * inner * state,
            Self::Mamba2 { heads, head_dim, state, .. } => 6 * heads * head_dim * state,
            Self::GatedDeltaNet { value_heads, key_dim, value_dim, .. } => 8 * value_heads * key_dim * value_dim,
            Self::KimiDelta { heads, head_dim, .. } => 8 * heads * head_dim * head_dim,
            Self::Lightning { heads, head_dim } => 6 * heads * head_dim * head_dim,
            // The convolution, and a gate before and after it.
            Self::ShortConvolution { width, conv_kernel } => 2 * (conv_kernel + 1) * width,
        }
    }

    /// Elements that the recurrence reads and writes per token besides its state: its inputs and its output.
    pub const fn io_elements_per_token(&self) -> u64 {
        match *self {
            Self::Mamba1 { inner, state, .. } => 3 * inner + 2 * state,
            Self::Mamba2 { heads, head_dim, groups, state, .. } => 2 * heads * head_dim + 2 * groups * state + heads,
            Self::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, .. } => {
                2 * key_heads * key_dim + 2 * value_heads * value_dim + 2 * value_heads
            }
            Self::KimiDelta { heads, head_dim, .. } => 5 * heads * head_dim,
            Self::Lightning { heads, head_dim } => 4 * heads * head_dim,
            Self::ShortConvolution { width, .. } => 4 * width,
        }
    }

    /// Heads that tensor parallelism divides.
    pub const fn heads(&self) -> u64 {
        match *self {
            Self::Mamba1 { inner, .. } => inner,
            Self::ShortConvolution { width, .. } => width,
            Self::GatedDeltaNet { value_heads, .. } => value_heads,
            Self::Mamba2 { heads, .. } | Self::KimiDelta { heads, .. } | Self::Lightning { heads, .. } => heads,
        }
    }
}
