//! What every decoder has: sizes, standard attention, norms and biases, and how an architecture is put together.

use super::config::Config;
use crate::import::ImportError;
use crate::model::{Architecture, Attention, FeedForward, KvSource, Layer, Mixer, MtpModules, Reach};

/// The sizes that all families share.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub hidden: u64,
    pub layers: usize,
    pub vocab: u64,
    pub context: u64,
    pub tied: bool,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
}

/// What a family supposes when a key is absent.
#[derive(Clone, Copy, Default)]
pub(super) struct Defaults {
    pub tied: bool,
    pub hidden: Option<u64>,
    pub heads: Option<u64>,
    /// Without it, a key-value head for every query head.
    pub kv_heads: Option<u64>,
    /// Without it, `hidden_size / heads`.
    pub head_dim: Option<u64>,
    pub layers: Option<usize>,
    pub vocab: Option<u64>,
    pub context: Option<u64>,
}

const HIDDEN: &[&str] = &["hidden_size", "n_embd", "n_embed", "d_model"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
const KV_HEADS: &[&str] =
    &["num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups"];
const VOCAB: &[&str] = &["vocab_size", "padded_vocab_size"];
const CONTEXT: &[&str] = &[
    "max_position_embeddings",
    "n_positions",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_sequence_length",
    "n_ctx",
];

impl Shape {
    pub fn read(config: &Config, defaults: Defaults) -> Result<Self, ImportError> {
        let hidden = required(config, HIDDEN, defaults.hidden)?;
        let heads = required(config, HEADS, defaults.heads)?;
        let derived = || hidden.checked_div(heads).filter(|dim| *dim > 0);
        let stated = config.optional(&["head_dim", "attention_head_dim", "kv_channels"])?;
        let head_dim = stated.or(defaults.head_dim).or_else(derived);
        Ok(Self {
            heads,
            kv_heads: config.count_or(KV_HEADS, defaults.kv_heads.unwrap_or(heads))?,
            head_dim: head_dim.ok_or_else(|| config.missing(&["head_dim"], "a positive integer"))?,
            ..Self::without_attention(config, defaults)?
        })
    }

    /// The sizes of a model that has no attention.
    pub fn without_attention(config: &Config, defaults: Defaults) -> Result<Self, ImportError> {
        let vocab = config.optional(VOCAB)?.or(defaults.vocab);
        let context = config.context(CONTEXT)?.or(defaults.context);
        Ok(Self {
            hidden: required(config, HIDDEN, defaults.hidden)?,
            layers: config.layers(LAYERS, defaults.layers)?,
            vocab: vocab.ok_or_else(|| config.missing(VOCAB, "the size of the vocabulary"))?,
            context: context.ok_or_else(|| config.missing(CONTEXT, "the longest context in tokens"))?,
            tied: config.tied(defaults.tied)?,
            heads: 0,
            kv_heads: 0,
            head_dim: 0,
        })
    }

    /// Grouped-query attention of these sizes.
    pub const fn attention(&self, reach: Reach) -> Attention {
        Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            v_head_dim: None,
            reach,
            output_gate: false,
            kv: KvSource::Own,
            sparse: None,
        }
    }

    /// Puts the layers together; `final_vectors` are the vectors after the last layer.
    pub fn build(&self, layers: Vec<Layer>, final_vectors: u64) -> Architecture {
        let named = layers.into_iter().map(|layer| (kind_name(&layer), layer));
        Architecture {
            tied_embeddings: self.tied,
            vector_params: final_vectors,
            ..Architecture::from_layers(self.hidden, self.vocab, self.context, named)
        }
    }

    /// Multi-token-prediction modules: the given layers, a projection that joins embedding and hidden state, three norms, and
    /// in some checkpoints a copy of embedding and head.
    pub fn mtp(
        &self,
        config: &Config,
        modules: u64,
        layers: &[Layer],
        copies_embeddings: bool,
    ) -> Result<Option<MtpModules>, ImportError> {
        if modules == 0 {
            return Ok(None);
        }
        let module = self.build(layers.to_vec(), 0).checked();
        let module = module.map_err(|error| ImportError::Model { file: config.file().into(), error })?;
        let layers: u64 = module.iter_layers().map(|layer| layer.params(self.hidden)).sum();
        let copies = if copies_embeddings { 2 * self.vocab * self.hidden } else { 0 };
        let params_per_module = layers + 2 * self.hidden * self.hidden + 3 * self.hidden + copies;
        Ok(Some(MtpModules { modules, params_per_module }))
    }
}

fn required(config: &Config, keys: &[&str], default: Option<u64>) -> Result<u64, ImportError> {
    default.map_or_else(|| config.count(keys), |default| config.count_or(keys, default))
}

/// How queries and keys are normalised.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum QkNorm {
    #[default]
    None,
    /// One weight vector of the head's dimension each for queries and keys.
    PerHead,
    /// The same with a bias each.
    PerHeadWithBias,
    /// Weight vectors over all heads together.
    AllHeads,
}

/// The small tensors of a layer, which tell families apart.
#[derive(Clone, Copy, Default)]
pub(super) struct Style {
    pub qkv_bias: bool,
    pub o_bias: bool,
    pub qk_norm: QkNorm,
    /// Vectors of the hidden size in the norms of a layer (a bias counts as one more).
    pub norms: u64,
    /// The same after the last layer.
    pub final_norms: u64,
    pub gated: bool,
    pub mlp_bias: bool,
    /// Whether the output head has a bias.
    pub head_bias: bool,
}

impl Style {
    /// Two RMS norms, gated feed-forward, no bias.
    pub const LLAMA: Self = Self {
        qkv_bias: false,
        o_bias: false,
        qk_norm: QkNorm::None,
        norms: 2,
        final_norms: 1,
        gated: true,
        mlp_bias: false,
        head_bias: false,
    };

    /// Two layer norms with bias, plain feed-forward, bias everywhere.
    pub const GPT: Self = Self {
        qkv_bias: true,
        o_bias: true,
        qk_norm: QkNorm::None,
        norms: 4,
        final_norms: 2,
        gated: false,
        mlp_bias: true,
        head_bias: false,
    };

    /// Vectors of the norms and of the attention.
    pub fn mixer_vectors(&self, hidden: u64, attention: &Attention) -> u64 {
        // A layer that reads the cache of another has neither keys nor values.
        let own = u64::from(attention.kv != KvSource::Shared);
        let q = attention.heads * attention.head_dim;
        let k = own * attention.kv_heads * attention.head_dim;
        let v = own * attention.kv_heads * attention.value_dim();
        let qk_norm = match self.qk_norm {
            QkNorm::None => 0,
            QkNorm::PerHead => (1 + own) * attention.head_dim,
            QkNorm::PerHeadWithBias => 2 * (1 + own) * attention.head_dim,
            QkNorm::AllHeads => q + k,
        };
        let gate = if attention.output_gate { q } else { 0 };
        let bias = if self.qkv_bias { q + gate + k + v } else { 0 } + if self.o_bias { hidden } else { 0 };
        self.norms * hidden + qk_norm + bias
    }

    /// A layer of attention and feed-forward.
    pub fn layer(&self, hidden: u64, attention: Attention, feed_forward: FeedForward) -> Layer {
        let mlp_bias = match &feed_forward {
            FeedForward::Dense { intermediate, gated } if self.mlp_bias => {
                intermediate * if *gated { 2 } else { 1 } + hidden
            }
            _ => 0,
        };
        Layer {
            vector_params: self.mixer_vectors(hidden, &attention) + mlp_bias,
            mixer: Mixer::Attention(attention),
            feed_forward,
            extra: Vec::new(),
        }
    }

    /// A decoder with one feed-forward width.
    pub fn decoder(&self, shape: &Shape, reaches: &[Reach], intermediate: u64) -> Architecture {
        let feed_forward = FeedForward::Dense { intermediate, gated: self.gated };
        let layer = |reach: &Reach| self.layer(shape.hidden, shape.attention(*reach), feed_forward.clone());
        shape.build(reaches.iter().map(layer).collect(), self.final_vectors(shape))
    }

    /// Vectors after the last layer.
    pub fn final_vectors(&self, shape: &Shape) -> u64 {
        self.final_norms * shape.hidden + if self.head_bias { shape.vocab } else { 0 }
    }
}

/// Reads `layer_types`, or follows the family's pattern: which layers see only `window` tokens.
pub(super) fn reaches(
    config: &Config,
    layers: usize,
    window: Option<u64>,
    is_local: impl Fn(usize) -> bool,
) -> Result<Vec<Reach>, ImportError> {
    let local = |key: &str| window.map(Reach::Window).ok_or_else(|| config.missing(&[key], "the width of the window"));
    let Some(types) = config.texts("layer_types", layers)? else {
        let reach = |layer| window.filter(|_| is_local(layer)).map_or(Reach::Full, Reach::Window);
        return Ok((0..layers).map(reach).collect());
    };
    let read = |kind: &str| match kind {
        "full_attention" | "attention" | "global_attention" => Ok(Reach::Full),
        "sliding_attention" | "local_attention" => local("sliding_window"),
        "chunked_attention" => Ok(Reach::Chunk(config.count(&["attention_chunk_size"])?)),
        other => {
            let expected = "full_attention, sliding_attention or chunked_attention";
            Err(config.invalid("layer_types", &other.into(), expected))
        }
    };
    types.into_iter().map(read).collect()
}

/// Full attention everywhere.
pub(super) fn full(layers: usize) -> Vec<Reach> {
    vec![Reach::Full; layers]
}

fn kind_name(layer: &Layer) -> String {
    let mixer = match &layer.mixer {
        Mixer::None => "",
        Mixer::Linear => "linear",
        Mixer::Attention(attention) => match attention.reach {
            _ if attention.sparse.is_some() => "sparse",
            Reach::Full => "full",
            Reach::Window(_) => "sliding",
            Reach::Chunk(_) => "chunked",
            Reach::Selected { .. } => "compressed",
        },
        Mixer::LatentAttention(_) => "latent",
        Mixer::CompressedAttention(attention) => match (attention.compress_ratio, attention.sparse) {
            (0, _) => "window",
            (_, Some(_)) => "compressed_sparse",
            (_, None) => "compressed",
        },
        Mixer::Recurrent(_) => "recurrent",
    };
    let feed_forward = match &layer.feed_forward {
        FeedForward::None => "",
        FeedForward::Dense { .. } => "dense",
        FeedForward::Linear => "linear_ffn",
        FeedForward::Moe(_) => "moe",
    };
    match (mixer, feed_forward) {
        ("", "") => "empty".into(),
        (one, "") | ("", one) => one.into(),
        (mixer, feed_forward) => format!("{mixer}_{feed_forward}"),
    }
}
