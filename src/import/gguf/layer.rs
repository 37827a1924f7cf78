//! One layer, from its tensors.

use super::TensorInfo;
use super::claims::{Claim, View, is_table, is_vector};
use super::keys::{COUNT_LIMIT, Keys};
use super::mixer::{self, AttentionKeys, MixerKind};
use crate::format::TensorClass as Class;
use crate::import::ImportError;
use crate::model::{Attention, FeedForward, KvSource, Layer, Linear, Mixer, Moe, Reach, Split};
use std::collections::BTreeMap;

/// A layer and the account of its tensors.
pub(super) struct BuiltLayer {
    pub(super) name: String,
    pub(super) layer: Layer,
    pub(super) claims: Vec<Claim>,
    /// Bytes of rotary tables and duplicates.
    pub(super) other_bytes: u64,
    /// Names of tensors whose role is unknown.
    pub(super) unknown: Vec<String>,
    /// Parameters that are stored but never read.
    pub(super) unused: u64,
}

/// Builds a layer and checks that it accounts for every weight.
pub(super) fn build(
    view: &View<'_>,
    keys: &Keys<'_>,
    attention: &AttentionKeys,
    hidden_size: u64,
    has_windows: bool,
) -> Result<BuiltLayer, ImportError> {
    let kind = MixerKind::of(view)?;
    let mixer = mixer::build(kind, view, keys, attention, hidden_size)?;
    let feed_forward = feed_forward(view, keys, hidden_size)?;
    let name = name(&mixer, kind, &feed_forward, has_windows);
    let layer = Layer { mixer, feed_forward, extra: Vec::new(), vector_params: 0 };
    let mut built = BuiltLayer { name, layer, claims: Vec::new(), other_bytes: 0, unknown: Vec::new(), unused: 0 };
    for (tensor_name, tensor) in view.iter() {
        built.claim(view, kind, tensor_name, tensor)?;
    }
    if built.unknown.is_empty() {
        built.balance(view, hidden_size)?;
    }
    Ok(built)
}

fn name(mixer: &Mixer, kind: MixerKind, feed_forward: &FeedForward, has_windows: bool) -> String {
    let mixer = match (mixer, kind) {
        (Mixer::Attention(Attention { reach: Reach::Full, .. }), _) if has_windows => "global",
        (Mixer::Attention(Attention { reach: Reach::Full, .. }), _) => "",
        (Mixer::Attention(_), _) => "local",
        (_, MixerKind::Mamba1) => "mamba",
        (_, MixerKind::Mamba2) => "mamba2",
        (_, MixerKind::DeltaNet) => "delta_net",
        (_, MixerKind::KimiDelta) => "kimi_delta",
        (_, MixerKind::ShortConvolution) => "convolution",
        (Mixer::Linear, _) => "linear",
        (Mixer::None, _) => "feed_forward",
        _ => "",
    };
    let feed_forward = match feed_forward {
        FeedForward::Moe(_) => "moe",
        FeedForward::None if mixer.is_empty() => "attention",
        _ if mixer.is_empty() => "dense",
        _ => "",
    };
    match (mixer, feed_forward) {
        (mixer, "") => mixer.into(),
        ("" | "feed_forward", feed_forward) => feed_forward.into(),
        (mixer, feed_forward) => format!("{mixer}_{feed_forward}"),
    }
}

fn feed_forward(view: &View<'_>, keys: &Keys<'_>, hidden_size: u64) -> Result<FeedForward, ImportError> {
    let dense = match view.matrix("ffn_down")? {
        None => None,
        Some([intermediate, outputs, _]) => {
            view.require("the output of `ffn_down`", outputs, hidden_size)?;
            let fused = view.matrix("ffn_up")?.is_some_and(|[_, width, _]| width == 2 * intermediate);
            Some((intermediate, view.has("ffn_gate") || fused))
        }
    };
    if view.has("ffn_gate_inp") {
        return moe(view, keys, hidden_size, dense.map_or(0, |(width, _)| width)).map(FeedForward::Moe);
    }
    Ok(match dense {
        Some((intermediate, gated)) => FeedForward::Dense { intermediate, gated },
        None => FeedForward::None,
    })
}

fn moe(view: &View<'_>, keys: &Keys<'_>, hidden_size: u64, dense: u64) -> Result<Moe, ImportError> {
    let [_, experts, _] = view.dimensions("ffn_gate_inp")?;
    if experts > COUNT_LIMIT {
        return Err(view.error(format!("{experts} experts, the limit is {COUNT_LIMIT}")));
    }
    let experts_per_token = keys.required("expert_used_count", experts)?;
    if let Some(claimed) = keys.optional("expert_count", COUNT_LIMIT)?.filter(|&claimed| claimed > 0) {
        view.require("the output of `ffn_gate_inp`", experts, claimed)?;
    }
    let latent_size = view.matrix("ffn_latent_down")?.map(|[_, width, _]| width);
    let (intermediate, gated) = match view.matrix("ffn_down_exps")? {
        Some([intermediate, outputs, copies]) => {
            view.require("the output of `ffn_down_exps`", outputs, latent_size.unwrap_or(hidden_size))?;
            view.require("the number of experts in `ffn_down_exps`", copies, experts)?;
            (intermediate, view.has("ffn_gate_exps") || view.has("ffn_gate_up_exps"))
        }
        // Files of 2023 and early 2024 keep one matrix per expert.
        None => {
            let [intermediate, outputs, _] = view.dimensions("ffn_down.0")?;
            view.require("the output of `ffn_down.0`", outputs, hidden_size)?;
            (intermediate, view.has("ffn_gate.0"))
        }
    };
    let shared = dense + view.matrix("ffn_down_shexp")?.map_or(0, |[width, ..]| width);
    let biases = ["ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias", "ffn_gate_up_exps.bias"];
    let per_expert = |name: &&str| view.elements(name).checked_div(experts).unwrap_or(0);
    Ok(Moe {
        experts,
        experts_per_token,
        intermediate,
        gated,
        shared_intermediate: (shared > 0).then_some(shared),
        latent_size,
        vector_params_per_expert: biases.iter().map(per_expert).sum(),
        shared_gate: view.has("ffn_gate_inp_shexp"),
    })
}

impl BuiltLayer {
    fn claim(&mut self, view: &View<'_>, kind: MixerKind, name: &str, tensor: &TensorInfo) -> Result<(), ImportError> {
        if is_table(name) || (name == "attn_kv_b" && view.has("attn_k_b")) {
            self.other_bytes += tensor.bytes;
            return Ok(());
        }
        if is_vector(name) {
            self.claims.push(Claim::whole(Class::Vector, tensor));
            return Ok(());
        }
        if let (MixerKind::Attention, "attn_qkv", Mixer::Attention(attention)) = (kind, name, &self.layer.mixer) {
            let (keys, values) = (attention.kv_heads * attention.head_dim, attention.kv_heads * attention.value_dim());
            let [_, width, _] = view.dimensions(name)?;
            let queries = width.saturating_sub(keys + values);
            let own = [(Class::AttentionQ, queries), (Class::AttentionK, keys), (Class::AttentionV, values)];
            self.claims.extend(own.map(|(class, rows)| Claim::rows(class, tensor, rows)));
            return Ok(());
        }
        let experts = matches!(self.layer.feed_forward, FeedForward::Moe(_));
        if let Some([gate, up]) = self.fused_gate_up(view, name, experts)? {
            let half = tensor.elements / tensor.dimensions[0] / 2;
            self.claims.extend([gate, up].map(|class| Claim::rows(class, tensor, half)));
            return Ok(());
        }
        let shared_kv = matches!(&self.layer.mixer, Mixer::Attention(a) if a.kv == KvSource::Shared);
        if shared_kv && matches!(name, "attn_k" | "attn_v") {
            self.unused += tensor.elements;
            self.claims.push(Claim::whole(Class::LookupTable, tensor));
            return Ok(());
        }
        if let Some(class) = mixer_class(kind, name).or_else(|| feed_forward_class(name, experts)) {
            self.claims.push(Claim::whole(class, tensor));
            return Ok(());
        }
        match extra(kind, name) {
            Some((class, split)) => {
                let [in_features, out_features, copies] = view.dimensions(name)?;
                let gates_output = name == "attn_gate"
                    && matches!(&self.layer.mixer, Mixer::Attention(a) if out_features == a.heads * a.value_dim());
                if gates_output {
                    self.claims.push(Claim::whole(Class::AttentionQ, tensor));
                } else {
                    self.layer.extra.push(Linear { class, in_features, out_features, copies, split });
                    self.claims.push(Claim::whole(class, tensor));
                }
            }
            None => self.unknown.push(tensor.name.clone()),
        }
        Ok(())
    }

    /// The classes of the two halves of a tensor that holds gate and up projection.
    fn fused_gate_up(&self, view: &View<'_>, name: &str, experts: bool) -> Result<Option<[Class; 2]>, ImportError> {
        let fused = match name {
            "ffn_gate_up_exps" => Some([Class::ExpertGate, Class::ExpertUp]),
            "ffn_up" if !view.has("ffn_gate") => {
                let (Some([_, width, _]), Some([intermediate, ..])) = (view.matrix(name)?, view.matrix("ffn_down")?)
                else {
                    return Ok(None);
                };
                let classes = if experts {
                    [Class::SharedExpertGate, Class::SharedExpertUp]
                } else {
                    [Class::FfnGate, Class::FfnUp]
                };
                (width == 2 * intermediate).then_some(classes)
            }
            _ => None,
        };
        Ok(fused)
    }

    /// Compares the weights of each class with what the layer is said to consist of; what is left are vectors.
    fn balance(&mut self, view: &View<'_>, hidden_size: u64) -> Result<(), ImportError> {
        let mut held: BTreeMap<Class, u128> = BTreeMap::new();
        for claim in &self.claims {
            *held.entry(claim.class).or_default() += u128::from(claim.params);
        }
        let vectors = held.remove(&Class::Vector).unwrap_or(0);
        held.remove(&Class::LookupTable);

        let moe = self.layer.feed_forward.moe();
        let experts = moe.map_or(0, |moe| moe.experts);
        let mut described: BTreeMap<Class, u128> = BTreeMap::new();
        for linear in self.layer.linears(hidden_size) {
            *described.entry(linear.class).or_default() += u128::from(linear.params());
        }
        for linear in self.layer.expert_linears(hidden_size) {
            *described.entry(linear.class).or_default() += u128::from(linear.params()) * u128::from(experts);
        }
        for class in held.keys().chain(described.keys()) {
            let (held, described) = (held.get(class).unwrap_or(&0), described.get(class).unwrap_or(&0));
            if held != described {
                return Err(view.error(format!(
                    "the tensors of class {class:?} hold {held} weights, a layer of this kind has {described}"
                )));
            }
        }
        let in_experts = u128::from(experts * moe.map_or(0, |moe| moe.vector_params_per_expert));
        let own = vectors.checked_sub(in_experts).and_then(|own| u64::try_from(own).ok());
        self.layer.vector_params =
            own.ok_or_else(|| view.error(format!("{vectors} vector weights, fewer than {in_experts} of the experts")))?;
        Ok(())
    }
}

fn mixer_class(kind: MixerKind, name: &str) -> Option<Class> {
    use MixerKind as K;
    Some(match (kind, name) {
        (K::Attention | K::Latent, "attn_q") => Class::AttentionQ,
        (K::Attention, "attn_k") => Class::AttentionK,
        (K::Attention, "attn_v") => Class::AttentionV,
        (K::Attention | K::Latent, "attn_output") => Class::AttentionOutput,
        (K::Linear, "attn_output") => Class::OtherMatrix,
        (K::Latent, "attn_q_a") => Class::LatentQDown,
        (K::Latent, "attn_q_b") => Class::LatentQUp,
        (K::Latent, "attn_kv_a_mqa") => Class::LatentKvDown,
        (K::Latent, "attn_kv_b" | "attn_k_b" | "attn_v_b") => Class::LatentKvUp,
        (K::Latent, "indexer.proj" | "indexer.attn_k" | "indexer.attn_q_b") => Class::Indexer,
        (K::Mamba1 | K::Mamba2 | K::DeltaNet, "ssm_in") => Class::RecurrentIn,
        (K::DeltaNet, "attn_qkv" | "attn_gate") => Class::RecurrentIn,
        (K::KimiDelta, "attn_q" | "attn_k" | "attn_v") => Class::RecurrentIn,
        (K::Mamba1, "ssm_x" | "ssm_dt") => Class::RecurrentSmall,
        (K::DeltaNet, "ssm_ba" | "ssm_alpha" | "ssm_beta") => Class::RecurrentSmall,
        (K::KimiDelta, "ssm_f_a" | "ssm_f_b" | "ssm_g_a" | "ssm_g_b" | "ssm_beta") => Class::RecurrentSmall,
        (K::Mamba1 | K::Mamba2 | K::DeltaNet, "ssm_out") => Class::RecurrentOut,
        (K::KimiDelta, "attn_output") => Class::RecurrentOut,
        (K::ShortConvolution, "shortconv.in_proj") => Class::RecurrentIn,
        (K::ShortConvolution, "shortconv.out_proj") => Class::RecurrentOut,
        _ => return None,
    })
}

fn feed_forward_class(name: &str, experts: bool) -> Option<Class> {
    let of_expert = |prefix: &str| name.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok());
    Some(match name {
        "ffn_gate" if experts => Class::SharedExpertGate,
        "ffn_up" if experts => Class::SharedExpertUp,
        "ffn_down" if experts => Class::SharedExpertDown,
        "ffn_gate" => Class::FfnGate,
        "ffn_up" => Class::FfnUp,
        "ffn_down" => Class::FfnDown,
        "ffn_gate_exps" => Class::ExpertGate,
        "ffn_up_exps" => Class::ExpertUp,
        "ffn_down_exps" => Class::ExpertDown,
        "ffn_gate_shexp" => Class::SharedExpertGate,
        "ffn_up_shexp" => Class::SharedExpertUp,
        "ffn_down_shexp" => Class::SharedExpertDown,
        "ffn_gate_inp" | "ffn_gate_inp_shexp" => Class::Router,
        "ffn_latent_down" | "ffn_latent_up" => Class::OtherMatrix,
        _ if of_expert("ffn_gate.") => Class::ExpertGate,
        _ if of_expert("ffn_up.") => Class::ExpertUp,
        _ if of_expert("ffn_down.") => Class::ExpertDown,
        _ => return None,
    })
}

/// Matrices beside mixer and feed-forward: gates, per-layer inputs and low-rank residuals of Gemma 3n and 4.
fn extra(kind: MixerKind, name: &str) -> Option<(Class, Split)> {
    match (kind, name) {
        (MixerKind::Attention, "attn_gate") => Some((Class::OtherMatrix, Split::Output)),
        (_, "inp_gate" | "proj" | "altup_router" | "laurel_l" | "laurel_r") => {
            Some((Class::OtherMatrix, Split::Replicated))
        }
        _ => None,
    }
}
