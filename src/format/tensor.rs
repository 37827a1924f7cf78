//! What a weight tensor is and where it stands: all that a quantization scheme looks at.

use serde::{Deserialize, Serialize};

/// The role of a weight matrix. Quantization schemes and sharding rules treat each role in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TensorClass {
    /// Token embedding table: a look-up, read one row per token.
    TokenEmbedding,
    /// Other look-up tables: positions, per-layer embeddings, hash routing.
    LookupTable,
    /// Output head (unembedding), multiplied only for sequences that emit a token.
    LmHead,
    /// Query projection (with its output gate where the model has one).
    AttentionQ,
    /// Key projection.
    AttentionK,
    /// Value projection.
    AttentionV,
    /// Attention output projection.
    AttentionOutput,
    /// Latent attention: query down-projection.
    LatentQDown,
    /// Latent attention: query up-projection.
    LatentQUp,
    /// Latent attention: joint key-value down-projection (with the rotary key).
    LatentKvDown,
    /// Latent attention: key-value up-projection.
    LatentKvUp,
    /// Projections of a sparse-attention indexer or compressor.
    Indexer,
    /// Dense feed-forward: gate.
    FfnGate,
    /// Dense feed-forward: up.
    FfnUp,
    /// Dense feed-forward: down.
    FfnDown,
    /// Routed experts: gate.
    ExpertGate,
    /// Routed experts: up.
    ExpertUp,
    /// Routed experts: down.
    ExpertDown,
    /// Shared experts, or a dense branch beside the routed experts: gate.
    SharedExpertGate,
    /// Shared experts: up.
    SharedExpertUp,
    /// Shared experts: down.
    SharedExpertDown,
    /// Expert router.
    Router,
    /// Recurrent layer (state space or linear attention): input projection.
    RecurrentIn,
    /// Recurrent layer: output projection.
    RecurrentOut,
    /// Recurrent layer: small projections (gates, time steps).
    RecurrentSmall,
    /// Any other matrix that every token is multiplied with.
    OtherMatrix,
    /// Vectors and kernels: norms, biases, convolutions, decay rates. Kept at full precision by every scheme.
    Vector,
}

impl TensorClass {
    /// Every role, in declaration order.
    pub const ALL: [Self; 27] = [
        Self::TokenEmbedding,
        Self::LookupTable,
        Self::LmHead,
        Self::AttentionQ,
        Self::AttentionK,
        Self::AttentionV,
        Self::AttentionOutput,
        Self::LatentQDown,
        Self::LatentQUp,
        Self::LatentKvDown,
        Self::LatentKvUp,
        Self::Indexer,
        Self::FfnGate,
        Self::FfnUp,
        Self::FfnDown,
        Self::ExpertGate,
        Self::ExpertUp,
        Self::ExpertDown,
        Self::SharedExpertGate,
        Self::SharedExpertUp,
        Self::SharedExpertDown,
        Self::Router,
        Self::RecurrentIn,
        Self::RecurrentOut,
        Self::RecurrentSmall,
        Self::OtherMatrix,
        Self::Vector,
    ];

    /// Whether the tensor belongs to the routed experts.
    pub const fn is_expert(self) -> bool {
        matches!(self, Self::ExpertGate | Self::ExpertUp | Self::ExpertDown)
    }
}

/// One weight tensor in its model, as a quantization scheme sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorPlace {
    /// Its role.
    pub class: TensorClass,
    /// Layer index from 0; 0 for tensors outside the layers.
    pub layer: u32,
    /// Number of layers of the model.
    pub layers: u32,
    /// Input features: the dimension along which blocks of weights share a scale.
    pub in_features: u64,
    /// Output features.
    pub out_features: u64,
    /// Query heads per key-value head (1 for multi-head attention, 0 where there is no attention).
    pub queries_per_kv_head: u32,
    /// Routed experts of the model, 0 if it is dense.
    pub experts: u32,
    /// Whether the output head is the embedding table.
    pub tied_embeddings: bool,
}
