//! A model taken apart: its layers in order and what stands around them.

use super::{Layer, Linear, Reach, Reaches};
use crate::format::GgufFamily;
use serde::{Deserialize, Serialize};

/// A named kind of layer; models repeat a few kinds in some order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerKind {
    /// Name within the model, such as `dense`, `moe`, `local`, `global`.
    pub name: String,
    /// The layer.
    pub layer: Layer,
}

/// Multi-token-prediction modules stored beside the model: they draft tokens and take no part in ordinary steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MtpModules {
    /// How many modules.
    pub modules: u64,
    /// Parameters of one module as stored.
    pub params_per_module: u64,
}

/// The shape of a model: everything that operators, memory and traffic follow from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Architecture {
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Vocabulary.
    pub vocab_size: u64,
    /// Longest context that the model is made for, in tokens.
    pub max_context_tokens: u64,
    /// Whether the output head is the embedding table.
    pub tied_embeddings: bool,
    /// Parameters of look-up tables besides the token embeddings (positions, per-layer embeddings, hash routing), and of weights that
    /// checkpoints store although nothing reads them.
    pub lookup_params: u64,
    /// Matrices outside the layers that every token is multiplied with.
    pub global_linears: Vec<Linear>,
    /// Parameters in vectors outside the layers: the final norm, a bias of the output head.
    pub vector_params: u64,
    /// The kinds of layers.
    pub layer_kinds: Vec<LayerKind>,
    /// The layers in order, as indices into `layer_kinds`.
    pub layer_order: Vec<usize>,
    /// Multi-token-prediction modules, not counted in any total below.
    pub mtp: Option<MtpModules>,
    /// How llama.cpp stores and quantizes models of this family.
    pub gguf_family: GgufFamily,
}

impl Architecture {
    /// Makes an architecture from its layers in order, merging equal layers into kinds named by `name`.
    pub fn from_layers(
        hidden_size: u64,
        vocab_size: u64,
        max_context_tokens: u64,
        layers: impl IntoIterator<Item = (String, Layer)>,
    ) -> Self {
        let mut layer_kinds: Vec<LayerKind> = Vec::new();
        let mut layer_order = Vec::new();
        for (name, layer) in layers {
            let known = layer_kinds.iter().position(|kind| kind.layer == layer);
            let index = known.unwrap_or_else(|| {
                let taken = |name: &str| layer_kinds.iter().any(|kind| kind.name == name);
                let mut unique = name.clone();
                let mut number = 2;
                while taken(&unique) {
                    unique = format!("{name}_{number}");
                    number += 1;
                }
                layer_kinds.push(LayerKind { name: unique, layer });
                layer_kinds.len() - 1
            });
            layer_order.push(index);
        }
        Self {
            hidden_size,
            vocab_size,
            max_context_tokens,
            tied_embeddings: false,
            lookup_params: 0,
            global_linears: Vec::new(),
            vector_params: hidden_size,
            layer_kinds,
            layer_order,
            mtp: None,
            gguf_family: GgufFamily::Separate,
        }
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layer_order.len()
    }

    /// The layers in order.
    pub fn iter_layers(&self) -> impl Iterator<Item = &Layer> {
        self.layer_order.iter().map(|&kind| &self.layer_kinds[kind].layer)
    }

    /// How many layers are of each kind, in the order of `layer_kinds`.
    pub fn kind_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.layer_kinds.len()];
        for &kind in &self.layer_order {
            counts[kind] += 1;
        }
        counts
    }

    /// Sums a property over all layers.
    fn sum_layers<T: std::iter::Sum<T> + std::ops::Mul<u64, Output = T>>(&self, of: impl Fn(&Layer) -> T) -> T {
        self.kind_counts().iter().zip(&self.layer_kinds).map(|(&count, kind)| of(&kind.layer) * count).sum()
    }

    /// Parameters of the decoder: embeddings, layers, output head; without multi-token-prediction modules and vision towers.
    pub fn params_total(&self) -> u64 {
        let embedding = self.vocab_size * self.hidden_size;
        let head = if self.tied_embeddings { 0 } else { embedding };
        embedding + head + self.lookup_params + self.layer_params() + self.global_params()
    }

    /// Parameters that are read to decode one token: those it is multiplied with, the output head included, look-up tables not.
    pub fn params_active(&self) -> u64 {
        self.sum_layers(|layer| layer.active_params(self.hidden_size))
            + self.global_params()
            + self.vocab_size * self.hidden_size
    }

    fn layer_params(&self) -> u64 {
        self.sum_layers(|layer| layer.params(self.hidden_size))
    }

    fn global_params(&self) -> u64 {
        self.global_linears.iter().map(Linear::params).sum::<u64>() + self.vector_params
    }

    /// Cache elements that one token adds over all layers while the context is shorter than every window.
    pub fn kv_elements_per_token(&self) -> f64 {
        self.kind_counts()
            .iter()
            .zip(&self.layer_kinds)
            .map(|(&count, kind)| kind.layer.kv_elements_per_token() * count as f64)
            .sum()
    }

    /// Cache elements of one sequence of `context` tokens: windows keep what they can reach.
    pub fn kv_elements(&self, context: u64) -> f64 {
        self.kind_counts()
            .iter()
            .zip(&self.layer_kinds)
            .map(|(&count, kind)| kind.layer.kv_elements(context) * count as f64)
            .sum()
    }

    /// The distinct ways in which the model's attention reaches back: full first, then each window, chunk and selection.
    ///
    /// # Errors
    /// The number found, if a step cannot keep that many sums apart (more than [`Reaches::LIMIT`]).
    pub fn reaches(&self) -> Result<Reaches, usize> {
        self.reaches_as(|reach| reach)
    }

    /// The same for an engine that treats some reaches as others.
    pub(crate) fn reaches_as(&self, treated: impl Fn(Reach) -> Reach) -> Result<Reaches, usize> {
        let mut distinct = vec![Reach::Full];
        for kind in &self.layer_kinds {
            for pass in kind.layer.attention_passes() {
                let reach = treated(pass.reach);
                if !distinct.contains(&reach) {
                    distinct.push(reach);
                }
            }
        }
        Reaches::new(&distinct).ok_or(distinct.len())
    }

    /// Whether any layer is a mixture of experts.
    pub fn has_experts(&self) -> bool {
        self.layer_kinds.iter().any(|kind| kind.layer.feed_forward.moe().is_some())
    }

    /// Recurrent state elements of one sequence, independent of its length.
    pub fn state_elements(&self) -> u64 {
        self.sum_layers(Layer::state_elements)
    }
}
