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

    /// Whether the tensor belongs to a feed-forward: dense, routed or shared.
    pub const fn is_feed_forward(self) -> bool {
        matches!(
            self,
            Self::FfnGate
                | Self::FfnUp
                | Self::FfnDown
                | Self::ExpertGate
                | Self::ExpertUp
                | Self::ExpertDown
                | Self::SharedExpertGate
                | Self::SharedExpertUp
                | Self::SharedExpertDown
        )
    }

    /// Whether the tensor belongs to the routed experts.
    pub const fn is_expert(self) -> bool {
        matches!(self, Self::ExpertGate | Self::ExpertUp | Self::ExpertDown)
    }
}

/// Families of models that llama.cpp's quantizer treats in their own way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GgufFamily {
    /// Query, key and value are separate matrices.
    #[default]
    Separate,
    /// Query, key and value are stored as one matrix: Phi-3 and Phi-4, MPT, GPT-NeoX, BLOOM, DBRX.
    FusedQkv,
    /// Falcon: one matrix too, and rules of its own for the other tensors.
    Falcon,
}

impl GgufFamily {
    /// The family of a Hugging Face `model_type` or a GGUF architecture.
    pub fn of(architecture: &str) -> Self {
        match architecture {
            "phi3" | "mpt" | "gpt_neox" | "gptneox" | "bloom" | "dbrx" | "gpt2" | "gpt_bigcode" | "chatglm"
            | "qwen" => Self::FusedQkv,
            "falcon" => Self::Falcon,
            _ => Self::Separate,
        }
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
    /// Query heads per key-value head of the model (1 for multi-head attention, 0 where there is no attention).
    pub queries_per_kv_head: u32,
    /// Routed experts of the model, 0 if it is dense. The same for all tensors, those of dense layers included.
    pub experts: u32,
    /// Whether the output head is the embedding table.
    pub tied_embeddings: bool,
    /// Position from 0 among the tensors that mixed formats count together: layers that project values for the tensors of a
    /// token mixer; for feed-forwards the layer, in dense models the layers that have one.
    pub ordinal: u32,
    /// How many they are; 0 for tensors outside the layers.
    pub count: u32,
    /// Part of the weights that is stored in one matrix with the values and treated like them: 1 for the query and key of fused
    /// projections, the share of query, key and value for a linear-attention input projection, otherwise 0.
    pub value_share: f64,
    /// Whether it belongs to latent attention (MLA).
    pub latent_attention: bool,
    /// Family by llama.cpp's quantizer.
    pub family: GgufFamily,
}

impl TensorPlace {
    /// A tensor of an ordinary layer: dense, multi-head attention, no sharing of matrices.
    pub const fn in_layer(class: TensorClass, in_features: u64, out_features: u64, layer: u32, layers: u32) -> Self {
        Self {
            class,
            layer,
            layers,
            in_features,
            out_features,
            queries_per_kv_head: 1,
            experts: 0,
            tied_embeddings: false,
            ordinal: layer,
            count: layers,
            value_share: 0.0,
            latent_attention: false,
            family: GgufFamily::Separate,
        }
    }

    /// Whether the tensor stands outside the layers.
    pub const fn is_outside_layers(&self) -> bool {
        self.count == 0
    }
}
