//! One transformer layer: a token mixer, a feed-forward, and small things beside them.

use super::{Attention, AttentionPass, CompressedAttention, FeedForward, LatentAttention, Linear, Recurrent, Split};
use crate::format::TensorClass;
use serde::{Deserialize, Serialize};

/// How a layer mixes information between tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mixer {
    /// Not at all (a feed-forward layer of a hybrid stack, or attention removed by architecture search).
    #[default]
    None,
    /// A single square matrix in place of attention (found by architecture search).
    Linear,
    /// Multi-head, grouped-query or multi-query attention.
    Attention(Attention),
    /// Latent attention (MLA).
    LatentAttention(LatentAttention),
    /// Windowed attention with a compressed cache (DeepSeek-V4).
    CompressedAttention(CompressedAttention),
    /// State space or linear attention.
    Recurrent(Recurrent),
}

/// A layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Token mixer.
    #[serde(default)]
    pub mixer: Mixer,
    /// Feed-forward.
    #[serde(default)]
    pub feed_forward: FeedForward,
    /// Further matrices that every token is multiplied with (per-layer embeddings, low-rank residuals, ...).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<Linear>,
    /// Parameters in vectors and kernels: norms, biases, convolutions, decay rates, attention sinks.
    #[serde(default)]
    pub vector_params: u64,
}

impl Layer {
    /// All matrices that every token is multiplied with, routed experts left out.
    pub fn linears(&self, hidden_size: u64) -> Vec<Linear> {
        let mut out = Vec::with_capacity(12);
        match &self.mixer {
            Mixer::None => {}
            Mixer::Linear => {
                out.push(Linear::new(TensorClass::OtherMatrix, hidden_size, hidden_size, Split::Input));
            }
            Mixer::Attention(attention) => attention.linears(hidden_size, &mut out),
            Mixer::LatentAttention(attention) => attention.linears(hidden_size, &mut out),
            Mixer::CompressedAttention(attention) => attention.linears(hidden_size, &mut out),
            Mixer::Recurrent(recurrent) => recurrent.linears(hidden_size, &mut out),
        }
        self.feed_forward.linears(hidden_size, &mut out);
        out.extend_from_slice(&self.extra);
        out
    }

    /// The matrices of one routed expert; empty for a dense layer.
    pub fn expert_linears(&self, hidden_size: u64) -> Vec<Linear> {
        let mut out = Vec::with_capacity(3);
        if let Some(moe) = self.feed_forward.moe() {
            moe.expert_linears(hidden_size, &mut out);
        }
        out
    }

    /// Parameters of the layer.
    pub fn params(&self, hidden_size: u64) -> u64 {
        let experts = self.feed_forward.moe().map_or(0, |moe| moe.experts);
        self.params_with(hidden_size, experts)
    }

    /// Parameters that one token is multiplied with.
    pub fn active_params(&self, hidden_size: u64) -> u64 {
        let chosen = self.feed_forward.moe().map_or(0, |moe| moe.experts_per_token);
        self.params_with(hidden_size, chosen)
    }

    fn params_with(&self, hidden_size: u64, experts: u64) -> u64 {
        let common: u64 = self.linears(hidden_size).iter().map(Linear::params).sum();
        let one_expert: u64 = self.expert_linears(hidden_size).iter().map(Linear::params).sum();
        let vectors = self.feed_forward.moe().map_or(0, |moe| moe.vector_params_per_expert);
        common + self.vector_params + experts * (one_expert + vectors)
    }

    /// The attention passes over the cache; empty for recurrent and attention-free layers.
    pub fn attention_passes(&self) -> Vec<AttentionPass> {
        let mut out = Vec::with_capacity(3);
        match &self.mixer {
            Mixer::Attention(attention) => attention.passes(&mut out),
            Mixer::LatentAttention(attention) => attention.passes(&mut out),
            Mixer::CompressedAttention(attention) => attention.passes(&mut out),
            Mixer::None | Mixer::Linear | Mixer::Recurrent(_) => {}
        }
        out
    }

    /// Cache elements that a new token adds to this layer while the context is shorter than every window.
    pub fn kv_elements_per_token(&self) -> f64 {
        match &self.mixer {
            Mixer::Attention(attention) => attention.kv_elements_per_token() as f64,
            Mixer::LatentAttention(attention) => attention.kv_elements_per_token() as f64,
            Mixer::CompressedAttention(attention) => {
                attention.head_dim as f64 + attention.compressed_elements_per_token()
            }
            Mixer::None | Mixer::Linear | Mixer::Recurrent(_) => 0.0,
        }
    }

    /// The attention passes that write a cache of their own; each keeps what its reach keeps.
    pub fn kept_passes(&self) -> impl Iterator<Item = AttentionPass> {
        self.attention_passes().into_iter().filter(|pass| pass.elements_written_per_token > 0.0)
    }

    /// Cache elements of a sequence of `context` tokens.
    pub fn kv_elements(&self, context: u64) -> f64 {
        self.kept_passes().map(|pass| pass.reach.kept(context) * pass.elements_per_entry as f64).sum()
    }

    /// State elements per sequence of a recurrent layer, otherwise 0.
    pub const fn state_elements(&self) -> u64 {
        match &self.mixer {
            Mixer::Recurrent(recurrent) => recurrent.state_elements(),
            _ => 0,
        }
    }
}
