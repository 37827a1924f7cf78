//! What one device of a stage holds: every matrix with its share, its bits and its arithmetic.

use super::{Deployment, Place};
use crate::format::{NumberFormat, TensorClass, WeightFormat};
use crate::hardware::MatmulPeak;
use crate::model::{Architecture, AttentionPass, Layer, Linear, Mixer, Split, Tensor, TensorOrigin};
use crate::units::{Bytes, FlopsPerSecond};

/// A matrix as one device holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShardedLinear {
    /// The whole matrix.
    pub linear: Linear,
    /// Share of it on one device.
    pub share: f64,
    /// Bits per weight, scales included, averaged over the layers of its kind.
    pub bits_per_weight: f64,
    /// Bits per input activation.
    pub input_bits: f64,
    /// Format in which it is multiplied.
    pub format: NumberFormat,
    /// Arithmetic peak in that format.
    pub peak: FlopsPerSecond,
}

impl ShardedLinear {
    /// Weights on one device.
    pub fn params(&self) -> f64 {
        self.linear.params() as f64 * self.share
    }

    /// Bytes of weights on one device.
    pub fn weight_bytes(&self) -> f64 {
        self.params() * self.bits_per_weight / 8.0
    }

    /// Input features on one device, all copies together.
    pub fn inputs(&self) -> f64 {
        let inputs = (self.linear.copies * self.linear.in_features) as f64;
        if self.linear.split == Split::Input || self.linear.copies > 1 { inputs * self.share } else { inputs }
    }

    /// Output features on one device, all copies together.
    pub fn outputs(&self) -> f64 {
        let outputs = (self.linear.copies * self.linear.out_features) as f64;
        if self.linear.split == Split::Input { outputs } else { outputs * self.share }
    }
}

/// A kind of layer as one device holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardedKind<'a> {
    /// Name of the kind.
    pub name: &'a str,
    /// The layer.
    pub layer: &'a Layer,
    /// How many layers are of this kind, in all stages together.
    pub count: u64,
    /// Of how many of them the routed experts are here too.
    pub experts_count: u64,
    /// Matrices that every token is multiplied with.
    pub linears: Vec<ShardedLinear>,
    /// Matrices of one routed expert.
    pub expert: Vec<ShardedLinear>,
    /// Routed experts of which one device holds a slice, on the device that has most; 0 without experts.
    pub experts_per_device: f64,
}

/// A whole model, all its stages, as one device of each holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardedModel<'a> {
    /// The architecture.
    pub architecture: &'a Architecture,
    /// Its kinds of layers.
    pub kinds: Vec<ShardedKind<'a>>,
    /// Matrices outside the layers.
    pub global: Vec<ShardedLinear>,
    /// The output head (the embedding table itself where they are tied).
    pub lm_head: ShardedLinear,
    /// Bytes of the token embedding and other look-up tables on one device; not read as a whole.
    pub lookup_bytes: f64,
    /// Bytes per row of the embedding table.
    pub embedding_row_bytes: f64,
    /// Bits of vectors (norms, biases, kernels).
    pub vector_bits: f64,
    /// Whether the embeddings are here.
    pub is_first: bool,
    /// Whether the output head is here.
    pub is_last: bool,
    /// Where its parts live.
    places: Vec<Place>,
}

impl Deployment {
    /// The model as one device of each stage holds it; `None` if only totals are known.
    pub(crate) fn sharded(&self) -> Option<ShardedModel<'_>> {
        Some(ShardedModel::new(self, self.model().architecture()?))
    }

    /// The same of an architecture that is known already.
    pub(crate) fn sharded_as<'a>(&'a self, architecture: &'a Architecture) -> ShardedModel<'a> {
        ShardedModel::new(self, architecture)
    }

    /// Bits of one cached element of an attention pass.
    pub(crate) fn cache_bits(&self, layer: &Layer, pass: &AttentionPass) -> f64 {
        match &layer.mixer {
            // Kernels of sparse latent attention have a layout of their own in 8 bits; the indexer's keys are plain.
            Mixer::LatentAttention(latent)
                if latent.sparse.is_some()
                    && pass.elements_per_entry == latent.kv_lora_rank + latent.qk_rope_head_dim =>
            {
                let bytes = self.kv().sparse_latent_bytes_per_token(latent.kv_lora_rank, latent.qk_rope_head_dim);
                bytes.as_bytes() * 8.0 / pass.elements_per_entry as f64
            }
            Mixer::Attention(attention) => self.kv().bits_per_element(attention.head_dim),
            _ => self.kv().bits_per_element(pass.elements_per_entry),
        }
    }
}

impl<'a> ShardedModel<'a> {
    fn new(deployment: &'a Deployment, architecture: &'a Architecture) -> Self {
        let tp = u64::from(deployment.tensor_parallel());
        let bits = MeanBits::new(architecture, deployment.weights());
        let shard = |ways| move |linear: &Linear, bits: f64| shard(deployment, linear, ways, bits);
        let (shard, shard_expert) = (shard(tp), shard(deployment.expert_slices()));
        let experts_per_device = |layer: &Layer| {
            let experts = layer.feed_forward.moe().map_or(0, |moe| moe.experts);
            experts.div_ceil(u64::from(deployment.expert_parallel().max(1))) as f64
        };
        let hidden = architecture.hidden_size;
        let kinds = architecture.layer_kinds.iter().zip(architecture.kind_counts()).zip(&bits.layers);
        let kinds = kinds.map(|((kind, count), bits)| {
            let common = kind.layer.linears(hidden);
            let expert = kind.layer.expert_linears(hidden);
            let (common_bits, expert_bits) = bits.split_at(common.len());
            ShardedKind {
                name: &kind.name,
                layer: &kind.layer,
                count,
                experts_count: count,
                linears: common.iter().zip(common_bits).map(|(linear, bits)| shard(linear, *bits)).collect(),
                expert: expert.iter().zip(expert_bits).map(|(linear, bits)| shard_expert(linear, *bits)).collect(),
                experts_per_device: experts_per_device(&kind.layer),
            }
        });
        let table = |class, bits| shard(&Linear::new(class, hidden, architecture.vocab_size, Split::Output), bits);
        let embedding = table(TensorClass::TokenEmbedding, bits.embedding);
        let (lm_head, table_bytes) = match bits.lm_head {
            Some(bits) => (table(TensorClass::LmHead, bits), embedding.weight_bytes()),
            None => (embedding, 0.0),
        };
        let global = architecture.global_linears.iter().zip(&bits.global);
        Self {
            architecture,
            kinds: kinds.collect(),
            global: global.map(|(linear, bits)| shard(linear, *bits)).collect(),
            lm_head,
            lookup_bytes: table_bytes + architecture.lookup_params as f64 * bits.lookup / 8.0 / tp as f64,
            embedding_row_bytes: hidden as f64 * bits.embedding / 8.0,
            vector_bits: bits.vectors,
            is_first: true,
            is_last: true,
            places: deployment.places(),
        }
    }

    /// The number formats in which the matrices are multiplied.
    pub fn formats(&self) -> impl Iterator<Item = NumberFormat> {
        let in_layers = self.kinds.iter().flat_map(|kind| kind.linears.iter().chain(&kind.expert));
        in_layers.chain(&self.global).chain([&self.lm_head]).map(|linear| linear.format)
    }

    /// Only what lives in one place.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Self {
        let counts = place.stage.kind_counts.iter().zip(&place.experts_of_kind);
        for (kind, (&count, &experts_count)) in self.kinds.iter_mut().zip(counts) {
            (kind.count, kind.experts_count) = (count, experts_count);
        }
        (self.is_first, self.is_last) = (place.stage.is_first, place.stage.is_last);
        self
    }

    /// The same without the output head.
    #[must_use]
    pub fn without_head(self) -> Self {
        Self { is_last: false, ..self }
    }

    /// Nothing but the output head, if it is here.
    #[must_use]
    pub fn only_head(mut self) -> Self {
        self.is_first = false;
        self.kinds.iter_mut().for_each(|kind| (kind.count, kind.experts_count) = (0, 0));
        self
    }

    /// How many layers there are here.
    pub fn layers(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// Bytes of all vectors in all stages; every device of a stage holds them whole.
    pub fn vector_bytes(&self) -> f64 {
        let in_layers: u64 = self.kinds.iter().map(|kind| kind.count * kind.layer.vector_params).sum();
        let outside = if self.is_last { self.architecture.vector_params } else { 0 };
        (in_layers + outside) as f64 * self.vector_bits / 8.0
    }

    /// Bytes of all weights on one device of the stage that has most; the host is no stage.
    pub fn weight_bytes(&self) -> Bytes {
        self.weight_bytes_of_stages().fold(Bytes::ZERO, Bytes::max)
    }

    /// Bytes of all weights on one device of each stage, in order.
    pub fn weight_bytes_of_stages(&self) -> impl Iterator<Item = Bytes> {
        self.places.iter().filter(|place| !place.is_host).map(|place| self.place_bytes(place))
    }

    /// Where its parts live.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Bytes of what is only looked up in a place, on one of its devices: embeddings; a table that is the output head too is not.
    pub fn look_up_bytes(&self, place: &Place) -> Bytes {
        let is_head = place.stage.is_last;
        let tied = self.architecture.tied_embeddings && !is_head;
        let table = if tied { self.lm_head.weight_bytes() } else { 0.0 };
        Bytes::from_bytes(if place.stage.is_first { self.lookup_bytes + table } else { 0.0 })
    }

    /// What is added to the routed experts of a place when hidden and intermediate width, cut into `slices`, are padded to these multiples.
    pub fn expert_padding(&self, place: &Place, slices: u64, hidden: u64, intermediate: u64) -> Bytes {
        let padded = |width: u64, multiple: u64| width.div_ceil(multiple) as f64 * multiple as f64 / width as f64;
        let mut added = 0.0;
        for (kind, &count) in self.kinds.iter().zip(&place.experts_of_kind) {
            let Some(moe) = kind.layer.feed_forward.moe() else { continue };
            let width = moe.latent_size.unwrap_or(self.architecture.hidden_size);
            let slice = moe.intermediate.div_ceil(slices.max(1)).max(1);
            let growth = padded(width.max(1), hidden) * padded(slice, intermediate) - 1.0;
            let stored: f64 = kind.expert.iter().map(ShardedLinear::weight_bytes).sum();
            added += count as f64 * kind.experts_per_device * stored * growth;
        }
        Bytes::from_bytes(added)
    }

    /// Bytes of the largest matrix of all routed experts of a layer.
    pub fn largest_expert_matrix(&self) -> Bytes {
        let largest = |kind: &ShardedKind<'_>| kind.expert.iter().map(ShardedLinear::weight_bytes).fold(0.0, f64::max);
        let of_layer = self.kinds.iter().map(|kind| kind.experts_per_device * largest(kind));
        Bytes::from_bytes(of_layer.fold(0.0, f64::max))
    }

    /// The same of all matrices in layers.
    pub fn largest_matrix(&self) -> Bytes {
        let in_layers = self.kinds.iter().flat_map(|kind| &kind.linears).map(ShardedLinear::weight_bytes);
        Bytes::from_bytes(in_layers.fold(0.0, f64::max)).max(self.largest_expert_matrix())
    }

    /// Whether any layer lives on the host.
    pub fn has_layers_on_host(&self) -> bool {
        self.places.iter().any(|place| place.is_host && place.stage.kind_counts.iter().any(|count| *count > 0))
    }

    /// Bytes of all weights that live in a place, on one of its devices.
    pub fn place_bytes(&self, place: &Place) -> Bytes {
        let stage = &place.stage;
        let sum = |linears: &[ShardedLinear]| linears.iter().map(ShardedLinear::weight_bytes).sum::<f64>();
        let kinds = self.kinds.iter().zip(stage.kind_counts.iter().zip(&place.experts_of_kind));
        let (mut in_layers, mut vectors) = (0.0, 0);
        for (kind, (&count, &experts_count)) in kinds {
            let moe = kind.layer.feed_forward.moe();
            let experts = moe.map_or(0.0, |moe| {
                let vectors = moe.vector_params_per_expert as f64 * self.vector_bits / 8.0;
                kind.experts_per_device * (sum(&kind.expert) + vectors)
            });
            in_layers += count as f64 * sum(&kind.linears) + experts_count as f64 * experts;
            vectors += count * kind.layer.vector_params;
        }
        let mut outside = 0.0;
        if stage.is_first {
            outside += sum(&self.global) + self.lookup_bytes;
        }
        // A tied table is the output head of the last stage and the look-up of the first.
        if stage.is_last || (stage.is_first && self.architecture.tied_embeddings) {
            outside += self.lm_head.weight_bytes();
        }
        if stage.is_last {
            vectors += self.architecture.vector_params;
        }
        Bytes::from_bytes(in_layers + outside + vectors as f64 * self.vector_bits / 8.0)
    }
}

/// Bits per weight of every matrix, averaged over the layers of a kind.
struct MeanBits {
    embedding: f64,
    lm_head: Option<f64>,
    lookup: f64,
    global: Vec<f64>,
    vectors: f64,
    /// By layer kind, then by slot: common matrices, then those of an expert.
    layers: Vec<Vec<f64>>,
}

impl MeanBits {
    fn new(architecture: &Architecture, format: &WeightFormat) -> Self {
        let hidden = architecture.hidden_size;
        let slots = |layer: &Layer| layer.linears(hidden).len() + layer.expert_linears(hidden).len();
        let mut bits = Self {
            embedding: 0.0,
            lm_head: None,
            lookup: 0.0,
            global: vec![0.0; architecture.global_linears.len()],
            vectors: 0.0,
            layers: architecture.layer_kinds.iter().map(|kind| vec![0.0; slots(&kind.layer)]).collect(),
        };
        let mut visit = |tensor: Tensor, bits_per_weight: f64| match tensor.origin {
            TensorOrigin::Embedding => bits.embedding = bits_per_weight,
            TensorOrigin::LmHead => bits.lm_head = Some(bits_per_weight),
            TensorOrigin::Lookup => bits.lookup = bits_per_weight,
            TensorOrigin::Global(index) => bits.global[index] = bits_per_weight,
            TensorOrigin::GlobalVectors => bits.vectors = bits_per_weight,
            TensorOrigin::Layer { kind, slot } => bits.layers[kind][slot] += bits_per_weight,
            _ => {}
        };
        if format.depends_on_layer() {
            architecture.for_each_tensor(|tensor| visit(tensor, format.bits_per_weight(&tensor.place)));
            for (kind, count) in bits.layers.iter_mut().zip(architecture.kind_counts()) {
                kind.iter_mut().for_each(|bits| *bits /= count as f64);
            }
        } else {
            architecture.for_each_distinct_tensor(|tensor| visit(tensor, format.bits_per_weight(&tensor.place)));
        }
        bits
    }
}

/// A matrix cut so many ways.
fn shard(deployment: &Deployment, linear: &Linear, ways: u64, bits_per_weight: f64) -> ShardedLinear {
    let (device, weights) = (deployment.system().device(), deployment.weights());
    // A tensor that the format leaves in 16 bits is multiplied in 16 bits, whatever the rest is.
    let wanted = if bits_per_weight == 16.0 { NumberFormat::Bf16 } else { weights.compute_format() };
    let MatmulPeak { format, peak, .. } = device.matmul_peak(wanted, wanted);
    ShardedLinear {
        linear: *linear,
        share: linear.split.share(ways),
        bits_per_weight,
        input_bits: format.storage_bits().min(16.0),
        format,
        peak,
    }
}
