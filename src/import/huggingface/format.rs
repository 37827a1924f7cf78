//! The weight format of the checkpoint, from `quantization_config` and `torch_dtype`.

use super::config::Config;
use serde_json::{Map, Value};

/// The name of the format, or a note that says why there is none.
pub(super) fn native_format(config: &Config, outer: &Config) -> (Option<String>, Option<String>) {
    let keys = ["quantization_config", "compression_config"];
    let quantized = keys.iter().find_map(|key| config.value_around(key).or_else(|| outer.value(key))?.as_object());
    if let Some(quantization) = quantized {
        return match quantized_format(quantization) {
            Some(name) => with_experts(config, name),
            None => {
                let method = text(quantization, "quant_method").unwrap_or("unnamed");
                (None, Some(format!("quantization method `{method}` is not known; the weight format is left open")))
            }
        };
    }
    let stated = ["torch_dtype", "dtype"].into_iter();
    let dtype = stated.filter_map(|key| config.value_around(key).or_else(|| outer.value(key))?.as_str()).next();
    match dtype.map(|name| name.trim_start_matches("torch.")) {
        Some("bfloat16") => (Some("bf16".into()), None),
        Some("float16") => (Some("fp16".into()), None),
        Some("float32") => (Some("fp32".into()), None),
        Some(other) => (None, Some(format!("dtype `{other}` is not known; the weight format is left open"))),
        None => (None, None),
    }
}

/// DeepSeek-V4 stores its routed experts in fewer bits than the method says.
fn with_experts(config: &Config, method: &str) -> (Option<String>, Option<String>) {
    match (method, config.value("expert_dtype").and_then(Value::as_str)) {
        (_, None) => (Some(method.into()), None),
        ("fp8-block", Some("fp4")) => (Some("fp8-block-mxfp4-experts".into()), None),
        (_, Some(dtype)) => {
            let note = "which the weight format does not tell";
            (Some(method.into()), Some(format!("routed experts are stored in {dtype} (`expert_dtype`), {note}")))
        }
    }
}

fn quantized_format(quantization: &Map<String, Value>) -> Option<&'static str> {
    match text(quantization, "quant_method")? {
        "fp8" if quantization.get("weight_block_size").is_some_and(|size| !size.is_null()) => Some("fp8-block"),
        "fp8" | "fbgemm_fp8" => Some("fp8"),
        "mxfp4" => Some("mxfp4"),
        "awq" if bits(quantization) == Some(4) => Some("awq-int4"),
        "gptq" if bits(quantization) == Some(4) => Some("gptq-int4"),
        "gptq" if bits(quantization) == Some(8) => Some("gptq-int8"),
        "modelopt" | "modelopt_fp4" => by_algorithm(text(quantization, "quant_algo").unwrap_or("NVFP4")),
        "compressed-tensors" => compressed_tensors(quantization),
        _ => None,
    }
}

fn by_algorithm(algorithm: &str) -> Option<&'static str> {
    match algorithm.to_uppercase().as_str() {
        "NVFP4" | "FP4" => Some("nvfp4"),
        "FP8" => Some("fp8"),
        "MXFP4" => Some("mxfp4"),
        _ => None,
    }
}

/// The first group of a compressed-tensors configuration decides.
fn compressed_tensors(quantization: &Map<String, Value>) -> Option<&'static str> {
    let group = quantization.get("config_groups")?.as_object()?.values().next()?.as_object()?;
    let weights = group.get("weights")?.as_object()?;
    let format = text(group, "format").or_else(|| text(quantization, "format")).unwrap_or_default();
    match (format, text(weights, "type")?, weights.get("num_bits")?.as_u64()?) {
        ("mxfp4-pack-quantized", _, _) => Some("mxfp4"),
        ("nvfp4-pack-quantized", _, _) | (_, "float", 4) => Some("nvfp4"),
        (_, "float", 8) if text(weights, "strategy") == Some("block") => Some("fp8-block"),
        (_, "float", 8) => Some("fp8"),
        (_, "int", 4) => Some("int4"),
        (_, "int", 8) => Some("int8"),
        _ => None,
    }
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

fn bits(quantization: &Map<String, Value>) -> Option<u64> {
    quantization.get("bits")?.as_u64()
}
