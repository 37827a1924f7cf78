//! Drafters that are built for a target: heads and prediction modules, as small models of their own.

use super::{Method, SpeculationError};
use crate::deployment::Deployment;
use crate::format::{TensorClass, WeightFormat};
use crate::memory::Drafting;
use crate::model::{Architecture, Attention, FeedForward, Layer, LayerKind, Linear, Mixer, Model, Split};

/// The vocabulary of EAGLE-3 heads: the most frequent tokens of the target's (`draft_vocab_size` of published heads).
const EAGLE3_VOCABULARY: u64 = 32_000;
/// Width of a head of attention where the target has none to copy.
const USUAL_HEAD_DIM: u64 = 128;

/// The drafter of a method for a target, on the same devices; `None` where candidates come from no model.
///
/// Heads are held in 16 bits and prediction modules in the format of the target, both cut as the target is: their passes have as many launches
/// and all-reduces on eight devices as on one.
pub(super) fn built_for(method: Method, target: &Deployment) -> Result<Option<Drafting>, SpeculationError> {
    let architecture = || {
        let model = target.model();
        model
            .architecture()
            .ok_or_else(|| SpeculationError::NoLayers { method: method.name(), model: model.name.clone() })
    };
    let drafter = match method {
        Method::NGram | Method::Lookahead | Method::Retrieval => return Ok(None),
        Method::DraftModel => return Err(SpeculationError::NoDraftModel),
        Method::Eagle | Method::Eagle2 => eagle(architecture()?),
        Method::Eagle3 => eagle3(architecture()?),
        Method::Medusa => medusa(architecture()?, method.usual_proposal().depth()),
        Method::Hydra => hydra(architecture()?),
        Method::DFlash => dflash(architecture()?),
        Method::Mtp => mtp(architecture()?),
    };
    let (model, name) = (target.model(), method.name());
    let model = Model::from_architecture(format!("{name} drafter of {}", model.name), model.family.clone(), drafter);
    let format = if method == Method::Mtp { target.weights().clone() } else { WeightFormat::Bf16 };
    let drafting = Drafting::new(target.clone().with_model(model).with_weights(format));
    // Heads of Medusa and Hydra see no tokens, and have output heads of their own; so has EAGLE-3.
    let drafting = if matches!(method, Method::Medusa) { drafting } else { drafting.with_shared_embedding() };
    let shares_head = matches!(method, Method::Eagle | Method::Eagle2 | Method::DFlash | Method::Mtp);
    Ok(Some(if shares_head { drafting.with_shared_lm_head() } else { drafting }))
}

/// One layer behind a matrix that joins the embedding of a token with the target's hidden state, and the target's output head.
fn eagle(target: &Architecture) -> Architecture {
    let hidden = target.hidden_size;
    let join = Linear::new(TensorClass::OtherMatrix, 2 * hidden, hidden, Split::Replicated);
    single_layer(target, layer_like(target), target.vocab_size, join)
}

/// One layer whose queries, keys and values see the embedding and the hidden state side by side; the hidden states of three depths are joined by
/// a matrix before.
fn eagle3(target: &Architecture) -> Architecture {
    let hidden = target.hidden_size;
    let mut layer = layer_like(target);
    if let Mixer::Attention(Attention { heads, kv_heads, head_dim, .. }) = layer.mixer {
        let outputs = (heads + 2 * kv_heads) * head_dim;
        layer.extra.push(Linear::new(TensorClass::AttentionQ, hidden, outputs, Split::Output));
    }
    let join = Linear::new(TensorClass::OtherMatrix, 3 * hidden, hidden, Split::Replicated);
    single_layer(target, layer, EAGLE3_VOCABULARY.min(target.vocab_size), join)
}

/// A residual block and an output head for each position, all in one pass.
fn medusa(target: &Architecture, heads: u64) -> Architecture {
    let (hidden, vocabulary) = (target.hidden_size, target.vocab_size);
    let block = Linear::new(TensorClass::OtherMatrix, hidden, hidden, Split::Replicated);
    let head = Linear::new(TensorClass::OtherMatrix, hidden, vocabulary, Split::Output);
    let layer = Layer { extra: vec![block, head], vector_params: hidden, ..Layer::default() };
    // The last head is the output head of the drafter.
    let layers = (1..heads).map(|_| (String::from("head"), layer.clone()));
    let drafter = Architecture::from_layers(hidden, vocabulary, target.max_context_tokens, layers);
    Architecture { global_linears: vec![block], ..drafter }
}

/// Layers of published DFlash drafters (z-lab's, and SpecForge `configs/qwen3-8b-dflash.json`), and hidden states of the target that are joined.
const DFLASH_LAYERS: usize = 5;

/// A few layers behind a matrix that joins hidden states of as many depths of the target, and the target's output head.
fn dflash(target: &Architecture) -> Architecture {
    let hidden = target.hidden_size;
    let join = Linear::new(TensorClass::OtherMatrix, DFLASH_LAYERS as u64 * hidden, hidden, Split::Replicated);
    let single = single_layer(target, layer_like(target), target.vocab_size, join);
    Architecture { layer_order: vec![0; DFLASH_LAYERS], ..single }
}

/// A head of one hidden layer over the target's hidden state and the token before.
fn hydra(target: &Architecture) -> Architecture {
    let hidden = target.hidden_size;
    let layer = Layer {
        extra: vec![Linear::new(TensorClass::OtherMatrix, hidden, hidden, Split::Replicated)],
        vector_params: hidden,
        ..Layer::default()
    };
    let join = Linear::new(TensorClass::OtherMatrix, 2 * hidden, hidden, Split::Replicated);
    single_layer(target, layer, target.vocab_size, join)
}

/// The module that the target was trained with: a layer like its last one with a cache, behind a matrix that joins embedding and hidden state.
fn mtp(target: &Architecture) -> Architecture {
    let hidden = target.hidden_size;
    let has_cache = |layer: &&Layer| layer.kv_elements_per_token() > 0.0;
    let last = target.layer_order.iter().rev().map(|&kind| &target.layer_kinds[kind].layer);
    let layer = last.clone().find(has_cache).or(last.clone().next()).cloned().unwrap_or_default();
    let join = Linear::new(TensorClass::OtherMatrix, 2 * hidden, hidden, Split::Replicated);
    single_layer(target, layer, target.vocab_size, join)
}

/// A dense layer of the target's width and heads.
fn layer_like(target: &Architecture) -> Layer {
    let hidden = target.hidden_size;
    let attention = target.iter_layers().find_map(|layer| match &layer.mixer {
        Mixer::Attention(attention) => Some((attention.heads, attention.kv_heads, attention.head_dim)),
        Mixer::LatentAttention(latent) => Some((latent.heads, latent.heads, latent.v_head_dim)),
        Mixer::CompressedAttention(compressed) => Some((compressed.heads, 1, compressed.head_dim)),
        _ => None,
    });
    let heads = (hidden / USUAL_HEAD_DIM).max(1);
    let (heads, kv_heads, head_dim) = attention.unwrap_or((heads, heads, USUAL_HEAD_DIM));
    let mixer = Mixer::Attention(Attention::full(heads, kv_heads, head_dim));
    let feed_forward = FeedForward::Dense { intermediate: dense_intermediate(target), gated: true };
    Layer { mixer, feed_forward, extra: Vec::new(), vector_params: 3 * hidden }
}

/// Width of the feed-forward of a dense layer of the target, or of all that a token passes in one of its mixtures of experts.
fn dense_intermediate(target: &Architecture) -> u64 {
    let dense = target.iter_layers().find_map(|layer| match &layer.feed_forward {
        FeedForward::Dense { intermediate, .. } => Some(*intermediate),
        _ => None,
    });
    let chosen = || {
        let moe = target.iter_layers().find_map(|layer| layer.feed_forward.moe());
        moe.map(|moe| moe.experts_per_token * moe.intermediate + moe.shared_intermediate.unwrap_or(0))
    };
    dense.or_else(chosen).unwrap_or(4 * target.hidden_size)
}

/// A drafter of one layer around the target's dimensions.
fn single_layer(target: &Architecture, layer: Layer, vocab_size: u64, join: Linear) -> Architecture {
    Architecture {
        vocab_size,
        tied_embeddings: false,
        lookup_params: 0,
        global_linears: vec![join],
        vector_params: target.hidden_size,
        layer_kinds: vec![LayerKind { name: "draft".into(), layer }],
        layer_order: vec![0],
        mtp: None,
        ..target.clone()
    }
}
