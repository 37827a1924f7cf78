//! What can be a model: no zero sizes, heads that divide, and no number so large that a product of it overflows.

use super::{
    Architecture, Attention, CompressedAttention, FeedForward, LatentAttention, Layer, LayerKind, Linear, Mixer, Moe,
    MtpModules, Reach, Recurrent, SparseSelection, Totals,
};
use crate::units::Bytes;

/// A model whose numbers cannot be those of a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A count that must be positive is zero.
    #[error("{key} is 0, expected at least 1{}", .layer.as_ref().map(|layer| format!(" (layer kind `{layer}`)")).unwrap_or_default())]
    Zero {
        /// The key.
        key: &'static str,
        /// Layer kind it was found in.
        layer: Option<String>,
    },
    /// A number is beyond anything that exists, so that products of it could overflow.
    #[error("{key} is {value}, more than the limit of {limit}")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// The number.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// Query heads are not a multiple of key-value heads.
    #[error("layer kind `{layer}`: {heads} query heads are not a multiple of {kv_heads} key-value heads")]
    HeadsDoNotDivide {
        /// Layer kind.
        layer: String,
        /// Query heads.
        heads: u64,
        /// Key-value heads.
        kv_heads: u64,
    },
    /// More experts per token than experts.
    #[error("layer kind `{layer}`: {chosen} experts per token of {experts} experts")]
    TooManyExpertsPerToken {
        /// Layer kind.
        layer: String,
        /// Experts per token.
        chosen: u64,
        /// Experts.
        experts: u64,
    },
    /// The layer order names a kind that is not declared.
    #[error("layer_order names `{name}`, declared are {declared}{hint}")]
    UnknownLayerKind {
        /// The name.
        name: String,
        /// The declared names.
        declared: String,
        /// The nearest one.
        hint: String,
    },
    /// An amount of data is negative or not a number.
    #[error("{key} is {value}, expected at least 0 B")]
    Negative {
        /// The key.
        key: &'static str,
        /// The amount.
        value: Bytes,
    },
    /// A fraction is not a positive number.
    #[error("{key} is {value}, expected a positive number")]
    NotPositive {
        /// The key.
        key: &'static str,
        /// The number.
        value: f64,
    },
}

/// Layers beyond this are refused.
pub(super) const LAYER_LIMIT: u64 = 1 << 16;
/// Heads, groups, experts and copies beyond this are refused.
const COUNT_LIMIT: u64 = 1 << 16;
/// Widths, ranks and states beyond this are refused: a product of heads and two of them fits easily in 64 bits.
const WIDTH_LIMIT: u64 = 1 << 20;
/// Inputs or outputs of a matrix beyond this are refused.
const FEATURE_LIMIT: u64 = 1 << 28;
/// Windows, chunks and contexts beyond this are refused.
const CONTEXT_LIMIT: u64 = 1 << 40;
/// Vectors and tables beyond this are refused.
const TABLE_LIMIT: u64 = 1 << 48;
/// Parameters and state elements of a whole model beyond this are refused: a million times the largest known.
const TOTAL_LIMIT: u64 = 1 << 60;

impl Totals {
    /// The same totals, if they can be those of a model.
    ///
    /// # Errors
    /// [`ModelError`] for zero parameters, bits that are not a positive number, or a negative cache.
    pub fn checked(self) -> Result<Self, ModelError> {
        if self.params_total == 0 || self.params_active == 0 {
            return Err(ModelError::Zero { key: "params_total", layer: None });
        }
        if self.params_active > self.params_total {
            let (value, limit) = (self.params_active, self.params_total);
            return Err(ModelError::TooLarge { key: "params_active", value, limit });
        }
        if !(self.bits_per_weight.is_finite() && self.bits_per_weight > 0.0) {
            return Err(ModelError::NotPositive { key: "bits_per_weight", value: self.bits_per_weight });
        }
        let cache = self.kv_bytes_per_token;
        if !(cache.is_finite() && cache >= Bytes::ZERO) {
            return Err(ModelError::Negative { key: "kv_bytes_per_token", value: cache });
        }
        Ok(self)
    }
}

impl Architecture {
    /// The same architecture, if it can be one: positive sizes, heads that divide, no number so large that a product of it
    /// overflows.
    ///
    /// # Errors
    /// [`ModelError`] naming the key, the value and the limit.
    pub fn checked(self) -> Result<Self, ModelError> {
        self.check().map(|()| self)
    }

    /// Whether it can be an architecture, see [`checked`](Self::checked).
    ///
    /// # Errors
    /// [`ModelError`] naming the key, the value and the limit.
    pub fn check(&self) -> Result<(), ModelError> {
        within("hidden_size", self.hidden_size, WIDTH_LIMIT, None)?;
        within("vocab_size", self.vocab_size, FEATURE_LIMIT, None)?;
        within("layer_order", self.layer_order.len() as u64, LAYER_LIMIT, None)?;
        within("max_context_tokens", self.max_context_tokens, CONTEXT_LIMIT, None)?;
        limited("lookup_params", self.lookup_params, TABLE_LIMIT)?;
        limited("vector_params", self.vector_params, TABLE_LIMIT)?;
        if let Some(MtpModules { modules, params_per_module }) = self.mtp {
            limited("modules", modules, COUNT_LIMIT)?;
            limited("params_per_module", params_per_module, TABLE_LIMIT >> 4)?;
        }
        for LayerKind { name, layer } in &self.layer_kinds {
            check_layer(name, layer, self.hidden_size)?;
        }
        limited("global_linears", self.global_linears.len() as u64, COUNT_LIMIT)?;
        for linear in &self.global_linears {
            check_linear(linear)?;
        }
        for &kind in &self.layer_order {
            limited("layer_order", kind as u64, (self.layer_kinds.len() as u64).saturating_sub(1))?;
        }
        self.check_totals()
    }

    /// Every term is below its limit; their sums are taken with 128 bits.
    fn check_totals(&self) -> Result<(), ModelError> {
        let embedding = 2 * u128::from(self.vocab_size) * u128::from(self.hidden_size);
        let global: u128 = self.global_linears.iter().map(|linear| u128::from(linear.params())).sum();
        let tables = u128::from(self.lookup_params) + u128::from(self.vector_params);
        let (mut params, mut state) = (embedding + global + tables, 0);
        for (count, LayerKind { layer, .. }) in self.kind_counts().into_iter().zip(&self.layer_kinds) {
            params += u128::from(count) * u128::from(layer.params(self.hidden_size));
            state += u128::from(count) * u128::from(layer.state_elements());
        }
        limited_sum("params_total", params)?;
        limited_sum("state_elements", state)
    }
}

fn check_layer(name: &str, layer: &Layer, hidden_size: u64) -> Result<(), ModelError> {
    let kind = Some(name);
    match &layer.mixer {
        Mixer::Attention(attention) => check_attention(name, attention)?,
        Mixer::LatentAttention(attention) => check_latent(kind, attention)?,
        Mixer::CompressedAttention(attention) => check_compressed(kind, attention)?,
        Mixer::Recurrent(recurrent) => check_recurrent(kind, recurrent)?,
        Mixer::None | Mixer::Linear => {}
    }
    match &layer.feed_forward {
        FeedForward::Dense { intermediate, .. } => within("intermediate", *intermediate, FEATURE_LIMIT, kind)?,
        FeedForward::Moe(moe) => check_moe(name, moe)?,
        FeedForward::None | FeedForward::Linear => {}
    }
    limited("vector_params", layer.vector_params, TABLE_LIMIT >> 8)?;
    limited("extra", layer.extra.len() as u64, 64)?;
    for linear in layer.linears(hidden_size).iter().chain(&layer.expert_linears(hidden_size)) {
        check_linear(linear)?;
    }
    Ok(())
}

fn check_attention(name: &str, attention: &Attention) -> Result<(), ModelError> {
    let Attention { heads, kv_heads, head_dim, v_head_dim, reach, sparse, .. } = attention;
    let kind = Some(name);
    within("heads", *heads, COUNT_LIMIT, kind)?;
    within("kv_heads", *kv_heads, COUNT_LIMIT, kind)?;
    within("head_dim", *head_dim, WIDTH_LIMIT, kind)?;
    within("v_head_dim", v_head_dim.unwrap_or(1), WIDTH_LIMIT, kind)?;
    if heads % kv_heads != 0 {
        return Err(ModelError::HeadsDoNotDivide { layer: name.into(), heads: *heads, kv_heads: *kv_heads });
    }
    let tokens = match reach {
        Reach::Full => 1,
        Reach::Window(tokens) | Reach::Chunk(tokens) | Reach::Selected { ratio: tokens, .. } => *tokens,
    };
    within("reach", tokens, CONTEXT_LIMIT, kind)?;
    check_sparse(kind, *sparse)
}

fn check_latent(kind: Option<&str>, attention: &LatentAttention) -> Result<(), ModelError> {
    within("heads", attention.heads, COUNT_LIMIT, kind)?;
    within("q_lora_rank", attention.q_lora_rank.unwrap_or(1), WIDTH_LIMIT, kind)?;
    within("kv_lora_rank", attention.kv_lora_rank, WIDTH_LIMIT, kind)?;
    within("v_head_dim", attention.v_head_dim, WIDTH_LIMIT, kind)?;
    within("qk_nope_head_dim", attention.qk_nope_head_dim, WIDTH_LIMIT, kind)?;
    limited("qk_rope_head_dim", attention.qk_rope_head_dim, WIDTH_LIMIT)?;
    check_sparse(kind, attention.sparse)
}

fn check_compressed(kind: Option<&str>, attention: &CompressedAttention) -> Result<(), ModelError> {
    within("heads", attention.heads, COUNT_LIMIT, kind)?;
    within("head_dim", attention.head_dim, WIDTH_LIMIT, kind)?;
    within("q_lora_rank", attention.q_lora_rank, WIDTH_LIMIT, kind)?;
    within("o_groups", attention.o_groups, COUNT_LIMIT, kind)?;
    within("o_lora_rank", attention.o_lora_rank, WIDTH_LIMIT, kind)?;
    within("window", attention.window, CONTEXT_LIMIT, kind)?;
    limited("compress_ratio", attention.compress_ratio, WIDTH_LIMIT)?;
    check_sparse(kind, attention.sparse)
}

fn check_sparse(kind: Option<&str>, sparse: Option<SparseSelection>) -> Result<(), ModelError> {
    let Some(SparseSelection { top_k, indexer }) = sparse else { return Ok(()) };
    within("top_k", top_k, CONTEXT_LIMIT, kind)?;
    let Some(indexer) = indexer else { return Ok(()) };
    within("indexer.heads", indexer.heads, COUNT_LIMIT, kind)?;
    within("indexer.head_dim", indexer.head_dim, WIDTH_LIMIT, kind)
}

fn check_recurrent(kind: Option<&str>, recurrent: &Recurrent) -> Result<(), ModelError> {
    let (heads, widths, kernel) = match *recurrent {
        Recurrent::Mamba1 { inner, state, conv_kernel, dt_rank } => ([1, 1], [inner, state, dt_rank], conv_kernel),
        Recurrent::Mamba2 { heads, head_dim, groups, state, conv_kernel } => {
            ([heads, groups], [head_dim, state, 1], conv_kernel)
        }
        Recurrent::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel } => {
            ([key_heads, value_heads], [key_dim, value_dim, 1], conv_kernel)
        }
        Recurrent::KimiDelta { heads, head_dim, conv_kernel, .. } => ([heads, 1], [head_dim, 1, 1], conv_kernel),
        Recurrent::Lightning { heads, head_dim } => ([heads, 1], [head_dim, 1, 1], 0),
        Recurrent::ShortConvolution { width, conv_kernel } => ([1, 1], [width, 1, 1], conv_kernel),
    };
    for count in heads {
        within("heads", count, COUNT_LIMIT, kind)?;
    }
    for width in widths {
        within("head_dim", width, WIDTH_LIMIT, kind)?;
    }
    limited("conv_kernel", kernel, COUNT_LIMIT)
}

fn check_moe(name: &str, moe: &Moe) -> Result<(), ModelError> {
    let kind = Some(name);
    within("experts", moe.experts, COUNT_LIMIT, kind)?;
    within("experts_per_token", moe.experts_per_token, COUNT_LIMIT, kind)?;
    within("intermediate", moe.intermediate, FEATURE_LIMIT, kind)?;
    within("shared_intermediate", moe.shared_intermediate.unwrap_or(1), FEATURE_LIMIT, kind)?;
    within("latent_size", moe.latent_size.unwrap_or(1), WIDTH_LIMIT, kind)?;
    limited("vector_params_per_expert", moe.vector_params_per_expert, FEATURE_LIMIT)?;
    if moe.experts_per_token > moe.experts {
        let (chosen, experts) = (moe.experts_per_token, moe.experts);
        return Err(ModelError::TooManyExpertsPerToken { layer: name.into(), chosen, experts });
    }
    Ok(())
}

fn check_linear(linear: &Linear) -> Result<(), ModelError> {
    within("in_features", linear.in_features, FEATURE_LIMIT, None)?;
    within("out_features", linear.out_features, FEATURE_LIMIT, None)?;
    within("copies", linear.copies, COUNT_LIMIT, None)?;
    let params = u128::from(linear.copies) * u128::from(linear.in_features) * u128::from(linear.out_features);
    // With the limits on experts and extra matrices, the parameters of one layer stay below 2^60.
    limited("in_features x out_features", u64::try_from(params).unwrap_or(u64::MAX), 1 << 40)
}

/// At least 1 and at most the limit.
fn within(key: &'static str, value: u64, limit: u64, layer: Option<&str>) -> Result<(), ModelError> {
    if value == 0 { Err(ModelError::Zero { key, layer: layer.map(Into::into) }) } else { limited(key, value, limit) }
}

fn limited(key: &'static str, value: u64, limit: u64) -> Result<(), ModelError> {
    if value > limit { Err(ModelError::TooLarge { key, value, limit }) } else { Ok(()) }
}

fn limited_sum(key: &'static str, value: u128) -> Result<(), ModelError> {
    limited(key, u64::try_from(value).unwrap_or(u64::MAX), TOTAL_LIMIT)
}

impl ModelError {
    /// The key concerned.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Zero { key, .. }
            | Self::TooLarge { key, .. }
            | Self::NotPositive { key, .. }
            | Self::Negative { key, .. } => key,
            Self::HeadsDoNotDivide { .. } => "heads",
            Self::TooManyExpertsPerToken { .. } => "experts_per_token",
            Self::UnknownLayerKind { .. } => "layer_order",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Indexer, KvSource, Split};
    use proptest::prelude::*;

    /// Numbers of every magnitude, those that are allowed somewhere more often.
    fn number() -> impl Strategy<Value = u64> {
        let power = |bits: std::ops::Range<u32>| bits.prop_map(|bits| 1 << bits);
        prop_oneof![24 => 1u64..9, 24 => power(0..21), 2 => power(0..64), 1 => any::<u64>()]
    }

    fn sparse() -> impl Strategy<Value = Option<SparseSelection>> {
        let indexer = prop::option::of((number(), number()).prop_map(|(heads, head_dim)| Indexer { heads, head_dim }));
        prop::option::of((number(), indexer).prop_map(|(top_k, indexer)| SparseSelection { top_k, indexer }))
    }

    fn reach() -> impl Strategy<Value = Reach> {
        let compressed = (number(), number()).prop_map(|(ratio, top)| Reach::Selected { ratio, top });
        prop_oneof![Just(Reach::Full), number().prop_map(Reach::Window), number().prop_map(Reach::Chunk), compressed]
    }

    fn mixer() -> impl Strategy<Value = Mixer> {
        let five = || [number(), number(), number(), number(), number()];
        let attention = (five(), reach(), sparse(), any::<bool>()).prop_map(|(n, reach, sparse, output_gate)| {
            let [heads, kv_heads, head_dim, v_head_dim, _] = n;
            let kv = KvSource::Own;
            let v_head_dim = Some(v_head_dim);
            Mixer::Attention(Attention { heads, kv_heads, head_dim, v_head_dim, reach, output_gate, kv, sparse })
        });
        let latent = (five(), number(), sparse()).prop_map(|(n, q_lora_rank, sparse)| {
            let [heads, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim] = n;
            let q_lora_rank = Some(q_lora_rank);
            let output_gate = true;
            Mixer::LatentAttention(LatentAttention {
                heads,
                q_lora_rank,
                kv_lora_rank,
                qk_nope_head_dim,
                qk_rope_head_dim,
                v_head_dim,
                output_gate,
                sparse,
            })
        });
        let compressed = (five(), number(), number(), sparse()).prop_map(|(n, window, compress_ratio, sparse)| {
            let [heads, head_dim, q_lora_rank, o_groups, o_lora_rank] = n;
            Mixer::CompressedAttention(CompressedAttention {
                heads,
                head_dim,
                q_lora_rank,
                o_groups,
                o_lora_rank,
                window,
                compress_ratio,
                sparse,
            })
        });
        let recurrent = (five(), 0..6).prop_map(|([a, b, c, d, e], which)| {
            Mixer::Recurrent(match which {
                0 => Recurrent::Mamba1 { inner: a, state: b, conv_kernel: c, dt_rank: d },
                1 => Recurrent::Mamba2 { heads: a, head_dim: b, groups: c, state: d, conv_kernel: e },
                2 => {
                    Recurrent::GatedDeltaNet { key_heads: a, value_heads: b, key_dim: c, value_dim: d, conv_kernel: e }
                }
                4 => Recurrent::ShortConvolution { width: a, conv_kernel: b },
                3 => Recurrent::KimiDelta { heads: a, head_dim: b, conv_kernel: c, full_rank_gate: d > 1 },
                _ => Recurrent::Lightning { heads: a, head_dim: b },
            })
        });
        prop_oneof![Just(Mixer::None), Just(Mixer::Linear), attention, latent, compressed, recurrent]
    }

    fn feed_forward() -> impl Strategy<Value = FeedForward> {
        let dense = number().prop_map(|intermediate| FeedForward::Dense { intermediate, gated: true });
        let moe = ([number(), number(), number(), number()], prop::option::of(number()), prop::option::of(number()));
        let moe = moe.prop_map(|([experts, experts_per_token, intermediate, vectors], shared, latent_size)| {
            FeedForward::Moe(Moe {
                experts,
                experts_per_token,
                intermediate,
                gated: true,
                shared_intermediate: shared,
                latent_size,
                vector_params_per_expert: vectors,
                shared_gate: true,
            })
        });
        prop_oneof![Just(FeedForward::None), Just(FeedForward::Linear), dense, moe]
    }

    fn layer() -> impl Strategy<Value = Layer> {
        let linear = [number(), number(), number()].prop_map(|[in_features, out_features, copies]| Linear {
            copies,
            ..Linear::new(crate::format::TensorClass::OtherMatrix, in_features, out_features, Split::Output)
        });
        (mixer(), feed_forward(), prop::collection::vec(linear, 0..2), number())
            .prop_map(|(mixer, feed_forward, extra, vector_params)| Layer { mixer, feed_forward, extra, vector_params })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// Overflow checks are on in tests: what passes the check can be computed with.
        #[test]
        fn what_passes_does_not_overflow(
            layers in prop::collection::vec(layer(), 1..3),
            sizes in [number(), number(), number()],
            vectors in [number(), number()],
        ) {
            let named = layers.into_iter().map(|layer| ("layer".to_string(), layer));
            let architecture = Architecture::from_layers(sizes[0], sizes[1], sizes[2], named);
            let [lookup_params, vector_params] = vectors;
            let architecture = Architecture { lookup_params, vector_params, ..architecture };
            let Ok(architecture) = architecture.checked() else { return Ok(()) };
            let mut tensors = 0;
            architecture.for_each_tensor(|tensor| tensors += tensor.params);
            prop_assert_eq!(tensors, architecture.params_total());
            prop_assert!(architecture.params_active() <= architecture.params_total() + sizes[0] * sizes[1]);
            prop_assert!(architecture.kv_elements(sizes[2]).is_finite());
            prop_assert!(architecture.kv_elements_per_token().is_finite());
            for layer in architecture.iter_layers() {
                if let Mixer::Recurrent(recurrent) = &layer.mixer {
                    prop_assert!(recurrent.scan_flops_per_token() >= recurrent.heads());
                    prop_assert!(recurrent.io_elements_per_token() > 0);
                }
            }
            prop_assert!(architecture.state_elements() <= TOTAL_LIMIT);
        }
    }
}
