//! Reading `config.json` of many families: counts of an independent implementation, published totals, hostile values.

use llm_roofline::import::ImportError;
use llm_roofline::import::huggingface::{families, model_from_config};
use llm_roofline::model::{Architecture, Model};
use serde_json::{Map, Value, json};

fn import(config: &Value) -> Result<Model, ImportError> {
    model_from_config(&config.to_string(), "config.json")
}

fn architecture(config: &Value) -> Architecture {
    let model = import(config).unwrap_or_else(|error| panic!("{error}"));
    model.architecture().unwrap().clone()
}

fn changed(config: &Value, changes: Value) -> Value {
    let mut config = config.clone();
    changes.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
    config
}

/// The configurations of `transformers_counts.tsv`, whose header explains the columns, each with its parameters.
fn counted() -> Vec<(Value, u64)> {
    let mut rows = Vec::new();
    let mut base = json!({});
    for line in include_str!("data/import/transformers_counts.tsv").lines().filter(|line| !line.starts_with('#')) {
        let [family, keys, params] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let keys: Value = serde_json::from_str(keys).unwrap();
        let config = if family.is_empty() {
            changed(&base, keys)
        } else {
            base = changed(&keys, json!({ "model_type": family }));
            base.clone()
        };
        rows.push((config, params.parse().unwrap()));
    }
    rows
}

/// Transformers 5 makes no keys and values for layers of Gemma 3n that read another cache; the published checkpoints hold them.
fn stored_but_unused(config: &Value) -> u64 {
    let count = |key: &str| config[key].as_u64().unwrap_or_default();
    match config["model_type"] == "gemma3n" {
        true => {
            count("num_kv_shared_layers")
                * count("head_dim")
                * (2 * count("num_key_value_heads") * count("hidden_size") + 1)
        }
        false => 0,
    }
}

#[test]
fn parameters_are_those_of_transformers() {
    let mut wrong = Vec::new();
    let rows = counted();
    assert!(rows.len() > 280);
    for (config, params) in rows {
        match import(&config) {
            Ok(model) if model.params_total() == params + stored_but_unused(&config) => {}
            Ok(model) => wrong.push(format!("{config}: {}, transformers has {params}", model.params_total())),
            Err(error) => wrong.push(format!("{config}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_every_family_of_transformers() {
    let rows = counted();
    let listed = |family: &str| rows.iter().any(|(config, _)| config["model_type"] == family);
    let missing: Vec<&str> = families().filter(|family| !listed(family)).collect();
    // Families with code of their own, or whose classes cannot be built or counted alone.
    let expected = [
        "baichuan",
        "bailing_moe",
        "bailing_moe_v2",
        "chatglm",
        "dbrx",
        "deepseek",
        "gpt3",
        "grok-1",
        "hunyuan",
        "internlm",
        "internlm2",
        "kimi_k2",
        "mimo",
        "mimo_v2",
        "minicpm",
        "minimax",
        "minimax_m1",
        "minimax_m3",
        "minimax_text_01",
        "mistral3",
        "nemotron-nas",
        "palm",
        "phi-msft",
        "phi4_multimodal",
        "phi4mm",
        "qwen",
        "qwen2_5_omni",
        "qwen3_omni_moe",
        "qwen3_vl_moe",
        "step3p5",
        "step3p7",
        "yi",
    ];
    assert_eq!(missing, expected);
}

/// Billions of parameters as the makers publish them (text decoder without prediction modules), cache and state by hand.
#[test]
fn published_totals() {
    let base = json!({ "max_position_embeddings": 4096, "tie_word_embeddings": false });
    let check = |more: Value, published: &str, cache: f64, state: u64| {
        let read = architecture(&changed(&base, more.clone()));
        let digits = published.split('.').nth(1).map_or(0, str::len);
        assert_eq!(format!("{:.*}", digits, read.params_total() as f64 / 1e9), published, "{more}");
        assert_eq!(2.0 * read.kv_elements_per_token(), cache, "{more}");
        assert_eq!(read.state_elements(), state, "{more}");
    };
    // Falcon Mamba (arXiv 2410.05355): 7.27 billion.
    let falcon_mamba = json!({ "model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "expand": 16,
        "num_hidden_layers": 64, "state_size": 16, "conv_kernel": 4, "time_step_rank": 256, "vocab_size": 65024 });
    check(falcon_mamba, "7.27", 0.0, 64 * (8192 * 16 + 3 * 8192));
    // Mamba 2.8B, in the format of the state-spaces repository, which names no family.
    let mamba = json!({ "d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "pad_vocab_size_multiple": 8,
        "tie_word_embeddings": true });
    check(mamba, "2.77", 0.0, 64 * (5120 * 16 + 3 * 5120));
    // LFM2 technical report (arXiv 2511.23404): 1.17 billion in LFM2-1.2B, 8.3 in LFM2-8B-A1B.
    let lfm2 = json!({ "model_type": "lfm2", "block_auto_adjust_ff_dim": true, "block_ff_dim": 12288,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "conv_L_cache": 3, "hidden_size": 2048,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 16, "vocab_size": 65536, "tie_embedding": true });
    check(lfm2, "1.17", 6.0 * 2.0 * 2.0 * 512.0, 10 * 2 * 2048);
    let kinds: Vec<&str> =
        (0..24).map(|layer| if [2, 6, 10, 14, 18, 21].contains(&layer) { "full_attention" } else { "conv" }).collect();
    let lfm2_moe = json!({ "model_type": "lfm2_moe", "conv_L_cache": 3, "layer_types": kinds, "hidden_size": 2048,
        "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 24, "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "vocab_size": 65536,
        "tie_embedding": true });
    check(lfm2_moe, "8.3", 6.0 * 2.0 * 2.0 * 512.0, 18 * 2 * 2048);
    // Bamba-9B model card: 9.78 billion.
    let bamba = json!({ "model_type": "bamba", "attn_layer_indices": [9, 18, 27], "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1 });
    check(bamba, "9.78", 3.0 * 2.0 * 2.0 * 1024.0, 29 * (8192 * 128 + 3 * (8192 + 256)));
    // Llama 3.2 Vision 11B: 9.775 billion in the text model, of whose 40 layers 8 attend to the image.
    let vision = json!({ "model_type": "mllama", "text_config": { "model_type": "mllama_text_model", "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "max_position_embeddings": 131072
    } });
    check(vision, "9.775", 32.0 * 2.0 * 2.0 * 1024.0, 0);
    // Hunyuan-Large (arXiv 2411.02265): 389 billion; two layers share a cache.
    let hunyuan = json!({ "model_type": "hunyuan", "hidden_size": 6400, "intermediate_size": 18304, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "vocab_size": 129024, "use_qk_norm": true, "use_cla": true,
        "cla_share_factor": 2, "num_experts": 16, "num_shared_expert": 1, "moe_topk": 1, "tie_word_embeddings": true });
    check(hunyuan, "389", 32.0 * 2.0 * 2.0 * 640.0, 0);
    // Qwen-7B and Qwen-72B model cards, Qwen technical report (arXiv 2309.16609): 7.7 and 72 billion.
    let qwen = json!({ "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "no_bias": true });
    check(qwen, "7.7", 32.0 * 2.0 * 2.0 * 4096.0, 0);
    // MiniCPM (arXiv 2404.06395): 2.4 billion without embeddings, which are tied.
    let minicpm = json!({ "model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40,
        "num_attention_heads": 36, "vocab_size": 122753, "tie_word_embeddings": true });
    let embeddings = 2304 * 122_753;
    let without = architecture(&changed(&base, minicpm.clone())).params_total() - embeddings;
    assert_eq!(format!("{:.1}", without as f64 / 1e9), "2.4");
    // Jamba Reasoning 3B model card: 3 billion, two attention layers with one key-value head, no experts.
    let jamba = json!({ "model_type": "jamba", "hidden_size": 2560, "intermediate_size": 8192, "num_hidden_layers": 28,
        "num_attention_heads": 20, "num_key_value_heads": 1, "vocab_size": 65536, "attn_layer_offset": 7,
        "attn_layer_period": 14, "expert_layer_offset": 1, "expert_layer_period": 2, "num_experts": 1,
        "num_experts_per_tok": 1, "mamba_d_state": 16, "mamba_dt_rank": 160, "tie_word_embeddings": true });
    check(jamba, "3.0", 2.0 * 2.0 * 2.0 * 128.0, 26 * (5120 * 16 + 3 * 5120));
    // Granite 4.0 Micro model card: 3 billion, 40 attention layers, though the file keeps sizes of Mamba layers.
    let micro = json!({ "model_type": "granitemoehybrid", "hidden_size": 2560, "intermediate_size": 8192,
        "shared_intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8,
        "vocab_size": 100352, "num_local_experts": 0, "layer_types": vec!["attention"; 40], "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_d_state": 256, "tie_word_embeddings": true });
    check(micro, "3", 40.0 * 2.0 * 2.0 * 512.0, 0);
    // Trinity Mini and K-EXAONE model cards: 26 and 236 billion.
    let trinity = json!({ "model_type": "afmoe", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
        "moe_intermediate_size": 1024, "num_hidden_layers": 32, "num_dense_layers": 2, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 200192, "num_experts": 128, "num_experts_per_tok": 8,
        "num_shared_experts": 1, "global_attn_every_n_layers": 4, "sliding_window": 2048 });
    check(trinity, "26", 32.0 * 2.0 * 2.0 * 512.0, 0);
}

/// Text parts of multimodal models leave out what equals the defaults of their class; whole files may not.
#[test]
fn nested_text_parts_take_class_defaults() {
    let vicuna = json!({ "model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064 });
    let llava = json!({ "model_type": "llava", "text_config": vicuna, "vision_config": { "hidden_size": 1024 } });
    // Vicuna 7B, the shape of Llama 2 7B (6,738,415,616) with 64 more rows in embedding and head.
    assert_eq!(architecture(&llava).params_total(), 6_738_415_616 + 2 * 64 * 4096);
    let error = import(&vicuna).unwrap_err().to_string();
    assert!(error.contains("hidden_size"), "{error}");
    // Pixtral 12B: the shape of Mistral Nemo (12,247,782,400), without a number of query heads.
    let nemo = json!({ "model_type": "mistral", "hidden_size": 5120, "head_dim": 128, "intermediate_size": 14336,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "sliding_window": null, "vocab_size": 131072,
        "max_position_embeddings": 1024000 });
    let pixtral = json!({ "model_type": "llava", "text_config": nemo });
    assert_eq!(architecture(&pixtral).params_total(), 12_247_782_400);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let (config, params) = counted().swap_remove(0);
    let model = model_from_config(&format!("\u{feff}{config}"), "config.json").unwrap();
    assert_eq!(model.params_total(), params);
}

/// Files saved by transformers 5 name the same things otherwise.
#[test]
fn old_and_new_spellings_mean_the_same() {
    let rows = counted();
    let base = |family: &str| rows.iter().find(|(config, _)| config["model_type"] == family).unwrap().0.clone();
    let without = |config: &Value, key: &str| {
        let mut config = config.clone();
        config.as_object_mut().unwrap().remove(key);
        config
    };
    let same = |old: &Value, new: Value| assert_eq!(architecture(old), architecture(&new), "{new}");

    let nemotron = base("nemotron_h");
    let kinds = ["linear_attention", "mlp", "linear_attention", "moe", "full_attention", "mlp"];
    same(&nemotron, changed(&without(&nemotron, "hybrid_override_pattern"), json!({ "layer_types": kinds })));
    let granite = base("granitemoehybrid");
    let kinds = ["linear_attention", "linear_attention", "full_attention"].repeat(2);
    same(&granite, changed(&granite, json!({ "layer_types": kinds })));
    let kimi = base("kimi_linear");
    let sizes =
        json!({ "linear_num_heads": 4, "linear_head_dim": 16, "linear_conv_kernel_dim": 4, "layer_types": kinds });
    same(&kimi, changed(&without(&kimi, "linear_attn_config"), sizes));
    let deepseek = base("deepseek_v4");
    let (heavy, light) = ("heavily_compressed_attention", "compressed_sparse_attention");
    let kinds = ["sliding_attention", "sliding_attention", light, heavy, light, heavy];
    let experts = ["hash_moe", "hash_moe", "moe", "moe", "moe", "moe"];
    let renamed = changed(
        &without(&without(&deepseek, "compress_ratios"), "num_hash_layers"),
        json!({ "layer_types": kinds, "mlp_layer_types": experts, "compress_rates": { light: 4, heavy: 128 } }),
    );
    same(&deepseek, renamed);
}

#[test]
fn layers_that_are_not_attention_are_never_read_as_attention() {
    let rows = counted();
    let plain = &rows.iter().find(|(config, _)| config["model_type"] == "llama").unwrap().0;
    assert!(import(plain).is_ok());
    for more in [
        json!({ "layer_types": ["full_attention", "linear_attention", "full_attention", "conv", "mamba", "full_attention"] }),
        json!({ "cross_attention_layers": [1, 4] }),
        json!({ "conv_L_cache": 3 }),
        json!({ "attn_layer_indices": [1, 3] }),
        json!({ "mamba_d_ssm": 128 }),
        json!({ "use_cla": true, "cla_share_factor": 2 }),
        json!({ "num_experts": 8 }),
        json!({ "kv_lora_rank": 16 }),
    ] {
        let error = import(&changed(plain, more.clone())).unwrap_err();
        assert!(matches!(error, ImportError::Contradiction { .. }), "{more}: {error}");
    }
}

/// Whatever a key holds, the answer is a model that can be computed with, or a message of one line.
#[test]
fn every_key_with_every_kind_of_value() {
    let values = [
        Value::Null,
        json!(""),
        json!("x"),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(0.5),
        json!(1e308),
        json!(1u64 << 24),
        json!(u64::MAX),
        json!([]),
        json!([1]),
        json!([null]),
        json!([[1, 2]]),
        json!({}),
        json!({ "a": 1 }),
        json!(vec![1 << 24; 8]),
    ];
    let mut last = String::new();
    for (config, _) in counted() {
        let family = config["model_type"].as_str().unwrap().to_string();
        if family == last {
            continue;
        }
        for key in config.as_object().unwrap().keys() {
            let mut without: Map<String, Value> = config.as_object().unwrap().clone();
            without.remove(key);
            exercise(&Value::Object(without));
            values.iter().for_each(|value| exercise(&changed(&config, json!({ key.as_str(): value }))));
        }
        last = family;
    }
}

fn exercise(config: &Value) {
    match import(config) {
        Ok(model) => {
            let architecture = model.architecture().unwrap();
            assert!(model.params_total() < 1 << 60 && model.params_active() > 0, "{config}");
            assert!(architecture.kv_elements(1 << 30).is_finite(), "{config}");
            architecture.state_elements();
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{config}: {error}"),
    }
}
