//! The token mixer of a layer, from the shapes of its tensors.

use super::claims::View;
use super::keys::{COUNT_LIMIT, Keys, WIDTH_LIMIT};
use crate::import::ImportError;
use crate::model::{Attention, Indexer, KvSource, LatentAttention, Mixer, Reach, Recurrent, SparseSelection};

/// Families of token mixers; they share tensor names, so the family decides what a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixerKind {
    None,
    /// An output projection alone.
    Linear,
    Attention,
    Latent,
    Mamba1,
    Mamba2,
    DeltaNet,
    KimiDelta,
    ShortConvolution,
}

/// What the metadata says of the attention of a layer.
pub(super) struct AttentionKeys {
    pub(super) heads: Option<u64>,
    pub(super) kv_heads: Option<u64>,
    pub(super) reach: Reach,
    /// Whether the layer reads the cache of an earlier one.
    pub(super) shared_kv: bool,
}

impl MixerKind {
    pub(super) fn of(view: &View<'_>) -> Result<Self, ImportError> {
        let recurrent = if view.has("ssm_f_a") {
            Some(Self::KimiDelta)
        } else if view.has("ssm_ba") || view.has("ssm_beta") {
            Some(Self::DeltaNet)
        } else if view.has("ssm_x") {
            Some(Self::Mamba1)
        } else if view.has("ssm_in") {
            Some(Self::Mamba2)
        } else {
            None
        };
        let both = matches!(recurrent, Some(Self::Mamba1 | Self::Mamba2)) && view.has("attn_output");
        if both {
            return Err(view.error("attention and a state space side by side in one layer cannot be expressed"));
        }
        Ok(match recurrent {
            Some(kind) => kind,
            None if view.has("attn_kv_a_mqa") => Self::Latent,
            None if view.has("attn_q") || view.has("attn_qkv") => Self::Attention,
            None if view.has("shortconv.in_proj") => Self::ShortConvolution,
            None if view.has("attn_output") => Self::Linear,
            None => Self::None,
        })
    }
}

/// Builds the mixer.
pub(super) fn build(
    kind: MixerKind,
    view: &View<'_>,
    keys: &Keys<'_>,
    attention: &AttentionKeys,
    hidden_size: u64,
) -> Result<Mixer, ImportError> {
    Ok(match kind {
        MixerKind::None => Mixer::None,
        MixerKind::Linear => {
            let [inputs, outputs, _] = view.dimensions("attn_output")?;
            view.require("the input of `attn_output`", inputs, hidden_size)?;
            view.require("the output of `attn_output`", outputs, hidden_size)?;
            Mixer::Linear
        }
        MixerKind::Attention => Mixer::Attention(plain(view, keys, attention)?),
        MixerKind::Latent => Mixer::LatentAttention(latent(view, keys, attention)?),
        MixerKind::Mamba1 => Mixer::Recurrent(mamba1(view)?),
        MixerKind::Mamba2 => Mixer::Recurrent(mamba2(view, keys)?),
        MixerKind::DeltaNet => Mixer::Recurrent(delta_net(view, keys)?),
        MixerKind::KimiDelta => Mixer::Recurrent(kimi_delta(view, attention)?),
        MixerKind::ShortConvolution => Mixer::Recurrent(short_convolution(view, hidden_size)?),
    })
}

fn plain(view: &View<'_>, keys: &Keys<'_>, attention: &AttentionKeys) -> Result<Attention, ImportError> {
    let heads = attention.heads.filter(|&heads| heads > 0);
    let heads = heads.ok_or_else(|| keys.wrong("attention.head_count", "the query heads of every attention layer"))?;
    let kv_heads = attention.kv_heads.unwrap_or(heads);
    let [v_width, ..] = view.dimensions("attn_output")?;
    let v_dim = view.share("attn_output", v_width, heads, "query heads")?;

    let mut kv = if attention.shared_kv { KvSource::Shared } else { KvSource::Own };
    let (q_width, head_dim) = if let Some([_, width, _]) = view.matrix("attn_qkv")? {
        let head_dim = keys.optional("attention.key_length", WIDTH_LIMIT)?.unwrap_or(v_dim);
        let kv_width = kv_heads * (head_dim + v_dim);
        match width.checked_sub(kv_width) {
            Some(q_width) => (q_width, head_dim),
            None => return Err(view.error(format!("`attn_qkv` is {width} wide, its keys and values take {kv_width}"))),
        }
    } else {
        let [_, q_width, _] = view.dimensions("attn_q")?;
        let head_dim = if attention.shared_kv {
            let head_dim = view.share("attn_q", q_width, heads, "query heads")?;
            if head_dim == 2 * v_dim { v_dim } else { head_dim }
        } else {
            let [_, k_width, _] = view.dimensions("attn_k")?;
            match view.matrix("attn_v")? {
                Some([_, width, _]) => view.require("the output of `attn_v`", width, kv_heads * v_dim)?,
                None => kv = KvSource::KeyIsValue,
            }
            view.share("attn_k", k_width, kv_heads, "key-value heads")?
        };
        (q_width, head_dim)
    };
    let gated = q_width == heads * (head_dim + v_dim);
    if !gated {
        view.require("the output of the query projection", q_width, heads * head_dim)?;
    }
    let separate_gate = view.matrix("attn_gate")?.is_some_and(|[_, width, _]| width == v_width);
    Ok(Attention {
        heads,
        kv_heads,
        head_dim,
        v_head_dim: (v_dim != head_dim).then_some(v_dim),
        reach: attention.reach,
        output_gate: gated || separate_gate,
        kv,
        sparse: None,
    })
}

fn latent(view: &View<'_>, keys: &Keys<'_>, attention: &AttentionKeys) -> Result<LatentAttention, ImportError> {
    let heads = attention.heads.filter(|&heads| heads > 0);
    let heads = heads.ok_or_else(|| keys.wrong("attention.head_count", "the query heads of every attention layer"))?;
    let kv_lora_rank = keys.required("attention.kv_lora_rank", WIDTH_LIMIT)?;
    let [_, down, _] = view.dimensions("attn_kv_a_mqa")?;
    let Some(qk_rope_head_dim) = down.checked_sub(kv_lora_rank) else {
        return Err(view.error(format!("`attn_kv_a_mqa` is {down} wide, less than the latent of {kv_lora_rank}")));
    };
    let (q_lora_rank, [_, q_width, _]) = match view.matrix("attn_q_b")? {
        Some(up) => (Some(up[0]), up),
        None => (None, view.dimensions("attn_q")?),
    };
    let q_dim = view.share("the query projection", q_width, heads, "query heads")?;
    let [v_width, ..] = view.dimensions("attn_output")?;
    let v_head_dim = view.share("attn_output", v_width, heads, "query heads")?;
    let Some(qk_nope_head_dim) = q_dim.checked_sub(qk_rope_head_dim) else {
        return Err(
            view.error(format!("query heads of {q_dim} are shorter than their rotary part of {qk_rope_head_dim}"))
        );
    };
    // The two halves of the up-projection are one tensor in files from before their absorption into query and output.
    let up = match view.elements("attn_k_b") {
        0 => view.elements("attn_kv_b"),
        k_b => k_b + view.elements("attn_v_b"),
    };
    let expected = u128::from(kv_lora_rank) * u128::from(heads * (qk_nope_head_dim + v_head_dim));
    if u128::from(up) != expected {
        return Err(view.error(format!("the key-value up-projection has {up} weights, expected {expected}")));
    }
    let sparse = match keys.optional("attention.indexer.top_k", 1 << 40)? {
        Some(top_k) if top_k > 0 => Some(SparseSelection { top_k, indexer: indexer(view)? }),
        _ => None,
    };
    Ok(LatentAttention {
        heads,
        q_lora_rank,
        kv_lora_rank,
        qk_nope_head_dim,
        qk_rope_head_dim,
        v_head_dim,
        output_gate: false,
        sparse,
    })
}

fn indexer(view: &View<'_>) -> Result<Option<Indexer>, ImportError> {
    let Some([_, head_dim, _]) = view.matrix("indexer.attn_k")? else { return Ok(None) };
    let [_, heads, _] = view.dimensions("indexer.proj")?;
    let [_, q_width, _] = view.dimensions("indexer.attn_q_b")?;
    view.require("the output of `indexer.attn_q_b`", q_width, heads * head_dim)?;
    Ok(Some(Indexer { heads, head_dim }))
}

fn mamba1(view: &View<'_>) -> Result<Recurrent, ImportError> {
    let [inner, ..] = view.dimensions("ssm_out")?;
    let [conv_kernel, channels, _] = view.dimensions("ssm_conv1d")?;
    let [dt_rank, ..] = view.dimensions("ssm_dt")?;
    let [state, ..] = view.dimensions("ssm_a")?;
    let [_, x_width, _] = view.dimensions("ssm_x")?;
    let [_, in_width, _] = view.dimensions("ssm_in")?;
    view.require("the channels of `ssm_conv1d`", channels, inner)?;
    view.require("the output of `ssm_in`", in_width, 2 * inner)?;
    view.require("the output of `ssm_x`", x_width, dt_rank + 2 * state)?;
    Ok(Recurrent::Mamba1 { inner, state, conv_kernel, dt_rank })
}

fn mamba2(view: &View<'_>, keys: &Keys<'_>) -> Result<Recurrent, ImportError> {
    let heads = keys.required("ssm.time_step_rank", COUNT_LIMIT)?;
    let state = keys.required("ssm.state_size", WIDTH_LIMIT)?;
    let groups = keys.optional("ssm.group_count", COUNT_LIMIT)?.filter(|&groups| groups > 0).unwrap_or(1);
    let [inner, ..] = view.dimensions("ssm_out")?;
    let [conv_kernel, channels, _] = view.dimensions("ssm_conv1d")?;
    let [_, in_width, _] = view.dimensions("ssm_in")?;
    let head_dim = view.share("ssm_out", inner, heads, "heads (ssm.time_step_rank)")?;
    view.require("the channels of `ssm_conv1d`", channels, inner + 2 * groups * state)?;
    view.require("the output of `ssm_in`", in_width, 2 * inner + 2 * groups * state + heads)?;
    Ok(Recurrent::Mamba2 { heads, head_dim, groups, state, conv_kernel })
}

fn delta_net(view: &View<'_>, keys: &Keys<'_>) -> Result<Recurrent, ImportError> {
    let key_dim = keys.required("ssm.state_size", WIDTH_LIMIT)?;
    let key_heads = keys.required("ssm.group_count", COUNT_LIMIT)?;
    let value_heads = keys.required("ssm.time_step_rank", COUNT_LIMIT)?;
    let [values, ..] = view.dimensions("ssm_out")?;
    let value_dim = view.share("ssm_out", values, value_heads, "value heads (ssm.time_step_rank)")?;
    let [conv_kernel, channels, _] = view.dimensions("ssm_conv1d")?;
    let key_width = key_heads * key_dim;
    view.require("the channels of `ssm_conv1d`", channels, 2 * key_width + values)?;
    Ok(Recurrent::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel })
}

fn kimi_delta(view: &View<'_>, attention: &AttentionKeys) -> Result<Recurrent, ImportError> {
    let [_, head_dim, _] = view.dimensions("ssm_f_a")?;
    let [_, inner, _] = view.dimensions("attn_q")?;
    let [_, heads, _] = view.dimensions("ssm_beta")?;
    let [conv_kernel, ..] = view.dimensions("ssm_conv1d_q")?;
    view.require("the output of `attn_q`", inner, heads * head_dim)?;
    view.require("the number of heads", attention.heads.unwrap_or(heads), heads)?;
    Ok(Recurrent::KimiDelta { heads, head_dim, conv_kernel, full_rank_gate: false })
}

fn short_convolution(view: &View<'_>, hidden_size: u64) -> Result<Recurrent, ImportError> {
    let [width, outputs, _] = view.dimensions("shortconv.out_proj")?;
    let [conv_kernel, channels, _] = view.dimensions("shortconv.conv")?;
    let [_, in_width, _] = view.dimensions("shortconv.in_proj")?;
    view.require("the output of `shortconv.out_proj`", outputs, hidden_size)?;
    view.require("the channels of `shortconv.conv`", channels, width)?;
    view.require("the output of `shortconv.in_proj`", in_width, 3 * width)?;
    Ok(Recurrent::ShortConvolution { width, conv_kernel })
}
