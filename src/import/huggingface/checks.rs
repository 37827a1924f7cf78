//! Keys that speak of a structure which the family was not read with.

use super::config::Config;
use crate::import::ImportError;
use crate::model::{Architecture, Attention, KvSource, Layer, Mixer};
use serde_json::Value;

/// Keys that count experts, which only mixtures have. (Widths are no evidence: some dense models state one.)
const EXPERT_KEYS: &[&str] = &[
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "n_shared_experts",
    "num_shared_experts",
    "shared_expert_intermediate_size",
];

/// Keys that only recurrent, hybrid, latent or sparse attention has.
const MIXER_KEYS: &[&str] = &[
    "attn_layer_indices",
    "attn_layer_period",
    "attn_type_list",
    "block_configs",
    "compress_ratios",
    "conv_L_cache",
    "cross_attention_layers",
    "full_attention_interval",
    "hybrid_override_pattern",
    "index_topk",
    "kv_lora_rank",
    "layers_block_type",
    "linear_attn_config",
    "linear_num_value_heads",
    "linear_num_key_heads",
    "mamba_d_ssm",
    "mamba_d_state",
    "mamba_num_heads",
    "mamba_n_heads",
    "sparse_attention_config",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
    "use_cla",
];

/// Keys of the file that a plain decoder does not have, as dotted paths.
pub(super) fn structural_keys(config: &Config) -> Vec<String> {
    let mut found = present(config, EXPERT_KEYS);
    found.extend(present(config, MIXER_KEYS));
    found
}

/// Refuses a result without experts if the file has some, and one with plain attention if the file has another.
pub(super) fn contradictions(config: &Config, family: &str, read: &Architecture) -> Result<(), ImportError> {
    let layers = || read.layer_kinds.iter().map(|kind| &kind.layer);
    let contradiction = |read_as: &'static str, keys: Vec<String>| match keys.is_empty() {
        true => Ok(()),
        false => Err(ImportError::Contradiction { file: config.file().into(), family: family.into(), read_as, keys }),
    };
    if layers().all(|layer| layer.feed_forward.moe().is_none()) && !DENSE_IF_STATED.contains(&family) {
        contradiction("dense", present(config, EXPERT_KEYS))?;
    }
    if layers().all(is_plain) && !PLAIN_IF_STATED.contains(&family) {
        let mut keys = present(config, MIXER_KEYS);
        keys.extend(other_layers(config));
        contradiction("plain attention", keys)?;
    }
    Ok(())
}

/// `layer_types`, if it lists layers that are not attention.
fn other_layers(config: &Config) -> Option<String> {
    let other =
        |kind: &Value| kind.as_str().is_some_and(|kind| !kind.ends_with("attention") || kind == "linear_attention");
    let types = config.value("layer_types")?.as_array()?;
    types.iter().any(other).then(|| "`layer_types`".into())
}

/// Families whose files state the kind of every layer, and keep the sizes of experts when there are none.
const DENSE_IF_STATED: &[&str] = &["nemotron_h"];

/// Hybrid families whose files keep the sizes of recurrent layers when they list attention layers only.
const PLAIN_IF_STATED: &[&str] = &["granitemoehybrid"];

fn is_plain(layer: &Layer) -> bool {
    let plain = |attention: &Attention| attention.sparse.is_none() && attention.kv != KvSource::Shared;
    matches!(&layer.mixer, Mixer::Attention(attention) if plain(attention))
}

/// The keys that are present with a value that means something: not `null`, `false`, 0, 1 or empty.
fn present(config: &Config, keys: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    config.walk(&mut |path, key, value| {
        if keys.contains(&key) && says_something(value) {
            found.push(format!("`{path}`"));
        }
    });
    found
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        // One expert is a dense layer.
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 1.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
    }
}
