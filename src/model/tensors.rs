//! Every weight tensor of a model, one by one: what files hold and what quantization schemes look at.

use super::{Architecture, Layer, Linear, Mixer};
use crate::format::{TensorClass, TensorPlace};

/// A weight tensor (or several equal ones, such as the experts of a layer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    /// Role, place and shape.
    pub place: TensorPlace,
    /// Weights in it, all copies together.
    pub params: u64,
}

impl Architecture {
    /// Calls `visit` for every weight tensor of the model; their `params` sum to [`params_total`](Self::params_total).
    ///
    /// Vectors of a layer (norms, biases, kernels) are visited together as one [`TensorClass::Vector`].
    pub fn for_each_tensor(&self, mut visit: impl FnMut(Tensor)) {
        let outside = |class, in_features, out_features| TensorPlace {
            class,
            layer: 0,
            layers: self.layers() as u32,
            in_features,
            out_features,
            queries_per_kv_head: 0,
            experts: 0,
            tied_embeddings: self.tied_embeddings,
        };
        let embedding = self.vocab_size * self.hidden_size;
        visit(Tensor {
            place: outside(TensorClass::TokenEmbedding, self.hidden_size, self.vocab_size),
            params: embedding,
        });
        if !self.tied_embeddings {
            visit(Tensor { place: outside(TensorClass::LmHead, self.hidden_size, self.vocab_size), params: embedding });
        }
        if self.lookup_params > 0 {
            let place = outside(TensorClass::LookupTable, self.hidden_size, self.lookup_params / self.hidden_size);
            visit(Tensor { place, params: self.lookup_params });
        }
        for linear in &self.global_linears {
            let place = outside(linear.class, linear.in_features, linear.out_features);
            visit(Tensor { place, params: linear.params() });
        }
        visit(Tensor { place: outside(TensorClass::Vector, self.vector_params, 1), params: self.vector_params });

        let linears: Vec<[Vec<Linear>; 2]> = self
            .layer_kinds
            .iter()
            .map(|kind| [kind.layer.linears(self.hidden_size), kind.layer.expert_linears(self.hidden_size)])
            .collect();
        for (layer, &kind) in self.layer_order.iter().enumerate() {
            self.visit_layer(layer as u32, &self.layer_kinds[kind].layer, &linears[kind], &mut visit);
        }
    }

    fn visit_layer(&self, index: u32, layer: &Layer, linears: &[Vec<Linear>; 2], visit: &mut impl FnMut(Tensor)) {
        let moe = layer.feed_forward.moe();
        let experts = moe.map_or(0, |moe| moe.experts);
        let place = |linear: &Linear| TensorPlace {
            class: linear.class,
            layer: index,
            layers: self.layers() as u32,
            in_features: linear.in_features,
            out_features: linear.out_features,
            queries_per_kv_head: queries_per_kv_head(layer),
            experts: experts as u32,
            tied_embeddings: self.tied_embeddings,
        };
        let [common, expert] = linears;
        for linear in common {
            visit(Tensor { place: place(linear), params: linear.params() });
        }
        for linear in expert {
            visit(Tensor { place: place(linear), params: experts * linear.params() });
        }
        let vectors = layer.vector_params + experts * moe.map_or(0, |moe| moe.vector_params_per_expert);
        if vectors > 0 {
            let vector = Linear::new(TensorClass::Vector, vectors, 1, super::Split::Replicated);
            visit(Tensor { place: place(&vector), params: vectors });
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
