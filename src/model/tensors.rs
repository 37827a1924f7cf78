//! Every weight tensor of a model, one by one: what files hold and what quantization schemes look at.

use super::{Architecture, FeedForward, KvSource, Layer, Linear, Mixer, Recurrent};
use crate::format::{GgufFamily, TensorClass, TensorPlace};

/// A weight tensor (or several equal ones, such as the experts of a layer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    /// Role, place and shape.
    pub place: TensorPlace,
    /// Weights in it, all copies together.
    pub params: u64,
    /// Where it comes from in the architecture.
    pub origin: TensorOrigin,
}

/// Where a tensor comes from in the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorOrigin {
    /// The token embedding table.
    Embedding,
    /// The output head, where it is not the embedding table.
    LmHead,
    /// Other look-up tables.
    Lookup,
    /// The matrix of this index in `global_linears`.
    Global(usize),
    /// The vectors outside the layers.
    GlobalVectors,
    /// A matrix of a layer.
    Layer {
        /// Index in `layer_kinds`.
        kind: usize,
        /// Index among the common matrices of the layer ([`Layer::linears`]), followed by those of one expert.
        slot: usize,
    },
    /// The vectors of a layer of this index in `layer_kinds`.
    LayerVectors(usize),
}

impl Architecture {
    /// Calls `visit` for every weight tensor of the model; their `params` sum to [`params_total`](Self::params_total).
    ///
    /// Vectors of a layer (norms, biases, kernels) are visited together as one [`TensorClass::Vector`].
    pub fn for_each_tensor(&self, visit: impl FnMut(Tensor)) {
        self.visit_tensors(true, visit);
    }

    /// The same, but of every kind of layer only the first: enough for formats that treat equal layers alike.
    pub fn for_each_distinct_tensor(&self, visit: impl FnMut(Tensor)) {
        self.visit_tensors(false, visit);
    }

    fn visit_tensors(&self, every_layer: bool, mut visit: impl FnMut(Tensor)) {
        let common = self.common_place();
        let outside = |class, in_features, out_features| TensorPlace { class, in_features, out_features, ..common };
        let embedding = self.vocab_size * self.hidden_size;
        let place = outside(TensorClass::TokenEmbedding, self.hidden_size, self.vocab_size);
        visit(Tensor { place, params: embedding, origin: TensorOrigin::Embedding });
        if !self.tied_embeddings {
            let place = outside(TensorClass::LmHead, self.hidden_size, self.vocab_size);
            visit(Tensor { place, params: embedding, origin: TensorOrigin::LmHead });
        }
        if self.lookup_params > 0 {
            let place = outside(TensorClass::LookupTable, self.hidden_size, self.lookup_params / self.hidden_size);
            visit(Tensor { place, params: self.lookup_params, origin: TensorOrigin::Lookup });
        }
        for (index, linear) in self.global_linears.iter().enumerate() {
            let place = outside(linear.class, linear.in_features, linear.out_features);
            visit(Tensor { place, params: linear.params(), origin: TensorOrigin::Global(index) });
        }
        let place = outside(TensorClass::Vector, self.vector_params, 1);
        visit(Tensor { place, params: self.vector_params, origin: TensorOrigin::GlobalVectors });

        let linears: Vec<[Vec<Linear>; 2]> = self
            .layer_kinds
            .iter()
            .map(|kind| [kind.layer.linears(self.hidden_size), kind.layer.expert_linears(self.hidden_size)])
            .collect();
        let is_dense = common.experts == 0;
        let value_layers = self.iter_layers().filter(|layer| self.projects_values(layer)).count() as u32;
        let (mut values_before, mut feed_forwards_before) = (0, 0);
        let mut seen = vec![every_layer; self.layer_kinds.len()];
        for (index, &kind) in self.layer_order.iter().enumerate() {
            let layer = &self.layer_kinds[kind].layer;
            let place = TensorPlace { layer: index as u32, ..common };
            let mixer = TensorPlace {
                ordinal: values_before,
                count: value_layers.max(1),
                latent_attention: matches!(layer.mixer, Mixer::LatentAttention(_)),
                ..place
            };
            let ordinal = if is_dense { feed_forwards_before } else { place.layer };
            let feed_forward = TensorPlace { ordinal, count: common.layers, ..place };
            if every_layer || !std::mem::replace(&mut seen[kind], true) {
                self.visit_layer(kind, &linears[kind], [mixer, feed_forward], &mut visit);
            }
            values_before += u32::from(self.projects_values(layer));
            feed_forwards_before += u32::from(layer.feed_forward != FeedForward::None);
        }
    }

    /// What all tensors of the model have in common.
    fn common_place(&self) -> TensorPlace {
        let experts = self.layer_kinds.iter().filter_map(|kind| kind.layer.feed_forward.moe()).map(|moe| moe.experts);
        TensorPlace {
            queries_per_kv_head: self.iter_layers().map(queries_per_kv_head).find(|&queries| queries > 0).unwrap_or(0),
            experts: experts.max().unwrap_or(0) as u32,
            tied_embeddings: self.tied_embeddings,
            count: 0,
            family: self.gguf_family,
            ..TensorPlace::in_layer(TensorClass::Vector, 1, 1, 0, self.layers() as u32)
        }
    }

    fn visit_layer(
        &self,
        kind: usize,
        linears: &[Vec<Linear>; 2],
        places: [TensorPlace; 2],
        visit: &mut impl FnMut(Tensor),
    ) {
        let layer = &self.layer_kinds[kind].layer;
        let [mixer, feed_forward] = places;
        let place = |linear: &Linear| {
            let Linear { class, in_features, out_features, .. } = *linear;
            let value_share = self.value_share(class, layer);
            let around = if class.is_feed_forward() { feed_forward } else { mixer };
            TensorPlace { class, in_features, out_features, value_share, ..around }
        };
        let moe = layer.feed_forward.moe();
        let experts = moe.map_or(0, |moe| moe.experts);
        let [common, expert] = linears;
        for (slot, linear) in common.iter().chain(expert).enumerate() {
            let copies = if slot < common.len() { 1 } else { experts };
            let origin = TensorOrigin::Layer { kind, slot };
            visit(Tensor { place: place(linear), params: copies * linear.params(), origin });
        }
        let vectors = layer.vector_params + experts * moe.map_or(0, |moe| moe.vector_params_per_expert);
        if vectors > 0 {
            let vector = Linear::new(TensorClass::Vector, vectors, 1, super::Split::Replicated);
            visit(Tensor { place: place(&vector), params: vectors, origin: TensorOrigin::LayerVectors(kind) });
        }
    }

    /// Whether the layer has a matrix that GGUF files count as value projection.
    fn projects_values(&self, layer: &Layer) -> bool {
        match &layer.mixer {
            Mixer::Attention(attention) => attention.kv == KvSource::Own || self.gguf_family != GgufFamily::Separate,
            Mixer::Recurrent(recurrent) => matches!(recurrent, Recurrent::GatedDeltaNet { .. }),
            Mixer::None | Mixer::Linear | Mixer::LatentAttention(_) | Mixer::CompressedAttention(_) => false,
        }
    }

    fn value_share(&self, class: TensorClass, layer: &Layer) -> f64 {
        match (class, &layer.mixer) {
            (TensorClass::AttentionQ | TensorClass::AttentionK, Mixer::Attention(_))
                if self.gguf_family != GgufFamily::Separate =>
            {
                1.0
            }
            (
                TensorClass::RecurrentIn,
                &Mixer::Recurrent(Recurrent::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, .. }),
            ) => {
                // Query, key and value are one matrix; the rest is the output gate.
                let (keys, values) = ((key_heads * key_dim) as f64, (value_heads * value_dim) as f64);
                (2.0 * keys + values) / (2.0 * keys + 2.0 * values)
            }
            _ => 0.0,
        }
    }
}

fn queries_per_kv_head(layer: &Layer) -> u32 {
    match &layer.mixer {
        Mixer::Attention(attention) => (attention.heads / attention.kv_heads) as u32,
        Mixer::LatentAttention(attention) => attention.heads as u32,
        Mixer::CompressedAttention(attention) => attention.heads as u32,
        Mixer::None | Mixer::Linear | Mixer::Recurrent(_) => 0,
    }
}
