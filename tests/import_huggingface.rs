//! Reading `config.json`: families, defaults, refusals, and hostile input.

use llm_roofline::import::ImportError;
use llm_roofline::import::huggingface::{ImportOptions, families, model_from_config, model_from_config_with};
use llm_roofline::import::safetensors::index_total;
use llm_roofline::model::{Architecture, Mixer, Model, Reach};
use proptest::prelude::*;
use serde_json::{Value, json};

fn import(config: &Value) -> Result<Model, ImportError> {
    model_from_config(&config.to_string(), "config.json")
}

fn architecture(config: &Value) -> Architecture {
    import(config).unwrap().architecture().unwrap().clone()
}

/// A configuration that gives every family all that it asks for, in small.
fn everything(family: &str) -> Value {
    let mut config = json!({
        "model_type": family, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16"
    });
    let add = |config: &mut Value, more: Value| {
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
    };
    let experts = json!({ "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32 });
    let latent = json!({
        "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16
    });
    match family {
        "dbrx" => add(
            &mut config,
            json!({
                "attn_config": { "kv_n_heads": 2 },
                "ffn_config": { "ffn_hidden_size": 128, "moe_num_experts": 4, "moe_top_k": 2 }
            }),
        ),
        "nemotron-nas" => add(
            &mut config,
            json!({ "block_configs": [
            { "attention": { "n_heads_in_group": 2 }, "ffn": { "ffn_mult": 2.5 } },
            { "attention": { "no_op": true }, "ffn": { "ffn_mult": 1.0 } },
            { "attention": { "replace_with_linear": true }, "ffn": { "replace_with_linear": true } },
            { "attention": { "n_heads_in_group": 4 }, "ffn": { "no_op": true } }
        ] }),
        ),
        "mamba2" => add(&mut config, json!({ "num_heads": 2, "head_dim": 64, "state_size": 16 })),
        "nemotron_h" => {
            add(
                &mut config,
                json!({
                    "hybrid_override_pattern": "ME*-", "mamba_num_heads": 2, "mamba_head_dim": 64, "ssm_state_size": 16,
                    "n_groups": 1
                }),
            );
            add(&mut config, experts);
        }
        "granitemoehybrid" => add(
            &mut config,
            json!({
                "layer_types": ["mamba", "attention", "mamba", "mamba"], "shared_intermediate_size": 64,
                "mamba_n_heads": 2, "mamba_d_head": 64, "num_local_experts": 4, "num_experts_per_tok": 2
            }),
        ),
        "kimi_linear" => {
            add(&mut config, latent);
            add(&mut config, experts);
            add(
                &mut config,
                json!({ "linear_attn_config": {
                "full_attn_layers": [4], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4
            } }),
            );
        }
        "qwen3_next" | "qwen3_5_moe" | "qwen3_5" => {
            if family != "qwen3_5" {
                add(&mut config, experts);
            }
            add(
                &mut config,
                json!({
                    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                    "linear_value_head_dim": 16
                }),
            );
        }
        "minicpm3" => add(&mut config, latent),
        "mllama" => add(&mut config, json!({ "cross_attention_layers": [1] })),
        "olmo_hybrid" => add(
            &mut config,
            json!({
                "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                "linear_value_head_dim": 16
            }),
        ),
        "bamba" => add(&mut config, json!({ "attn_layer_indices": [2], "mamba_n_heads": 4, "mamba_d_head": 32 })),
        "lfm2" => add(&mut config, json!({ "full_attn_idxs": [2] })),
        "mimo_v2" | "mimo_v2_flash" => {
            add(&mut config, experts);
            add(
                &mut config,
                json!({
                    "hybrid_layer_pattern": [0, 1, 1, 1], "moe_layer_freq": [0, 1, 1, 1], "sliding_window": 128,
                    "swa_num_key_value_heads": 4, "v_head_dim": 8
                }),
            );
        }
        "deepseek_v4" => {
            add(&mut config, experts);
            add(
                &mut config,
                json!({
                    "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 16,
                    "sliding_window": 128, "compress_ratios": [0, 4, 128, 4, 0], "index_n_heads": 2, "index_head_dim": 16,
                    "index_topk": 64, "hc_mult": 4, "num_hash_layers": 1, "num_nextn_predict_layers": 1
                }),
            );
        }
        "deepseek_v2" | "deepseek_v3" | "deepseek_v32" | "kimi_k2" | "glm_moe_dsa" | "glm4_moe_lite" | "mistral4" => {
            add(&mut config, latent);
            add(&mut config, experts);
            add(&mut config, json!({ "first_k_dense_replace": 1, "num_nextn_predict_layers": 1 }));
        }
        "minimax_m3" => {
            add(&mut config, experts);
            add(&mut config, json!({ "dense_intermediate_size": 128, "first_k_dense_replace": 1 }));
        }
        "gemma3n" => add(&mut config, json!({ "num_kv_shared_layers": 2 })),
        name if name.contains("moe")
            || [
                "deepseek",
                "dots1",
                "gpt_oss",
                "grok-1",
                "hunyuan",
                "hy_v3",
                "jamba",
                "llama4",
                "minimax",
                "minimax_m1",
                "minimax_m2",
                "minimax_text_01",
                "mixtral",
                "step3p5",
                "step3p7",
                "solar_open",
            ]
            .contains(&name) =>
        {
            add(&mut config, experts);
        }
        _ => {}
    }
    config
}

#[test]
fn every_family_survives_the_profile_format() {
    for family in families() {
        let model = import(&everything(family)).unwrap_or_else(|error| panic!("{family}: {error}"));
        let text = model.to_toml();
        assert_eq!(Model::from_toml(&text, family).unwrap(), model, "{family}\n{text}");
        let mut tensors = 0;
        model.architecture().unwrap().for_each_tensor(|tensor| tensors += tensor.params);
        assert_eq!(tensors, model.params_total(), "{family}");
        assert!(model.params_active() > 0, "{family}");
    }
}

#[test]
fn absent_keys_take_the_defaults_of_the_family() {
    let attention = |config: &Value| match architecture(config).iter_layers().next().unwrap().mixer.clone() {
        Mixer::Attention(attention) => attention,
        other => panic!("{other:?}"),
    };
    let mut config = everything("llama");
    config.as_object_mut().unwrap().remove("num_key_value_heads");
    assert_eq!((attention(&config).kv_heads, attention(&config).head_dim), (4, 16));
    // Class defaults of Gemma3TextConfig in transformers: 8 heads, 4 key-value heads, head_dim 256, vocabulary 262,208.
    let gemma = json!({ "model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024
    } });
    let read = attention(&gemma);
    assert_eq!((read.heads, read.kv_heads, read.head_dim, read.reach), (8, 4, 256, Reach::Window(1024)));
    assert_eq!(architecture(&gemma).vocab_size, 262_208);
    // Text part of google/gemma-3-4b-it: 4,300,079,472 published elements less 419,816,304 of SigLIP tower and projector.
    assert_eq!(architecture(&gemma).params_total(), 4_300_079_472 - 419_816_304);
}

fn windows(config: &Value) -> Vec<bool> {
    let local = |mixer: &Mixer| matches!(mixer, Mixer::Attention(attention) if attention.reach != Reach::Full);
    architecture(config).iter_layers().map(|layer| local(&layer.mixer)).collect()
}

#[test]
fn patterns_of_windows() {
    let with = |family: &str, more: Value| {
        let mut config = everything(family);
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        windows(&config)
    };
    let (l, g) = (true, false);
    assert_eq!(with("gemma2", json!({})), [l, g, l, g]);
    assert_eq!(with("gemma3", json!({ "sliding_window_pattern": 2 })), [l, g, l, g]);
    assert_eq!(with("gemma3", json!({ "num_hidden_layers": 7 })), [l, l, l, l, l, g, l]);
    assert_eq!(with("cohere2", json!({})), [l, l, l, g]);
    assert_eq!(with("exaone4", json!({ "sliding_window_pattern": "LLLG" })), [l, l, l, g]);
    assert_eq!(with("exaone4", json!({ "sliding_window": null })), [g, g, g, g]);
    assert_eq!(with("mistral", json!({})), [l, l, l, l]);
    assert_eq!(with("mistral", json!({ "sliding_window": null })), [g, g, g, g]);
    assert_eq!(with("qwen2", json!({ "sliding_window": 64, "use_sliding_window": false })), [g, g, g, g]);
    let from_two = json!({ "sliding_window": 64, "use_sliding_window": true, "max_window_layers": 2 });
    assert_eq!(with("qwen2", from_two), [g, g, l, l]);
    assert_eq!(with("gpt_oss", json!({})), [l, g, l, g]);
    assert_eq!(with("llama4", json!({})), [l, l, l, g]);
    let stated = json!({ "sliding_window": 64, "layer_types": [
        "full_attention", "sliding_attention", "full_attention", "full_attention"
    ] });
    assert_eq!(with("gemma2", stated), [g, l, g, g]);
}

/// Totals that the makers publish for relatives of the profiled models.
#[test]
fn relatives_of_profiled_models() {
    let with = |more: Value| {
        let mut config = json!({ "max_position_embeddings": 4096, "tie_word_embeddings": false });
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        architecture(&config).params_total() as f64 / 1e9
    };
    // OpenAI GPT-2 small: 124,439,808 parameters (Hugging Face openai-community/gpt2).
    let gpt2 = json!({ "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
        "vocab_size": 50257, "tie_word_embeddings": true });
    assert_eq!(architecture(&gpt2).params_total(), 124_439_808);
    // Phi-3.5-MoE technical report: 16 x 3.8B, 42 billion.
    let phimoe = json!({ "model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32064, "num_local_experts": 16,
        "num_experts_per_tok": 2, "attention_bias": true, "lm_head_bias": true });
    assert_eq!(format!("{:.1}", with(phimoe)), "41.9");
    // Moonlight-16B-A3B (arXiv 2502.16982): 15.29 billion without embeddings, 15.96 with.
    let moonlight = json!({ "model_type": "deepseek_v3", "hidden_size": 2048, "intermediate_size": 11264,
        "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "q_lora_rank": null,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
        "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1, "vocab_size": 163840 });
    assert_eq!(format!("{:.2}", with(moonlight)), "15.96");
    // Kimi Linear (arXiv 2510.26692): 48 billion, 49.1 in the published files.
    let kimi = json!({ "model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216,
        "moe_intermediate_size": 1024, "num_hidden_layers": 27, "num_attention_heads": 32, "q_lora_rank": null,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256,
        "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 163840,
        "linear_attn_config": { "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
            "short_conv_kernel_size": 4 } });
    assert_eq!(format!("{:.1}", with(kimi)), "49.1");
    // GLM-4.7-Flash model card: 30B-A3B.
    let flash = json!({ "model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10240,
        "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20, "q_lora_rank": 768,
        "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "n_routed_experts": 64,
        "num_experts_per_tok": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 154880 });
    assert_eq!(format!("{:.0}", with(flash)), "30");
    // Ling-lite (arXiv 2503.05139): 16.8 billion.
    let ling = json!({ "model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4,
        "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "first_k_dense_replace": 0,
        "vocab_size": 126464 });
    assert_eq!(format!("{:.1}", with(ling)), "16.8");
}

/// GLM-5.2 lists its indexers; older files of the family give the period only. Both must mean the same.
#[test]
fn shared_indexers_by_list_or_period() {
    let mut listed = everything("glm_moe_dsa");
    let sizes = json!({ "index_n_heads": 2, "index_head_dim": 16, "index_topk": 64, "num_hidden_layers": 7 });
    sizes.as_object().unwrap().iter().for_each(|(key, value)| listed[key] = value.clone());
    let mut periodic = listed.clone();
    listed["indexer_types"] = json!(["full", "full", "full", "shared", "shared", "shared", "full"]);
    periodic["index_topk_freq"] = json!(4);
    periodic["index_skip_topk_offset"] = json!(3);
    assert_eq!(architecture(&listed), architecture(&periodic));
}

#[test]
fn which_layers_are_mixtures() {
    let with = |family: &str, more: Value| -> Vec<bool> {
        let mut config = everything(family);
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        architecture(&config).iter_layers().map(|layer| layer.feed_forward.moe().is_some()).collect()
    };
    let (m, d) = (true, false);
    assert_eq!(with("deepseek_v3", json!({ "first_k_dense_replace": 2 })), [d, d, m, m]);
    assert_eq!(with("deepseek_v2", json!({ "first_k_dense_replace": 1, "moe_layer_freq": 2 })), [d, d, m, d]);
    assert_eq!(with("qwen3_moe", json!({ "mlp_only_layers": [0, 2] })), [d, m, d, m]);
    assert_eq!(with("qwen2_moe", json!({ "decoder_sparse_step": 2 })), [d, m, d, m]);
    assert_eq!(with("llama4", json!({ "interleave_moe_layer_step": 2 })), [d, m, d, m]);
    assert_eq!(with("llama4", json!({ "moe_layers": [0, 1] })), [m, m, d, d]);
    assert_eq!(with("jamba", json!({ "expert_layer_period": 2, "expert_layer_offset": 1 })), [d, m, d, m]);
    assert_eq!(with("step3p5", json!({ "moe_layers_enum": "2,3" })), [d, d, m, m]);
    assert_eq!(with("nemotron_h", json!({})), [d, m, d, d]);
}

#[test]
fn text_part_of_multimodal_models() {
    let text = everything("qwen2");
    let nested = json!({ "model_type": "llava", "text_config": text, "vision_config": { "num_experts": 7 } });
    assert_eq!(architecture(&nested), architecture(&text));
    let mut omni = everything("qwen3_omni_moe_text");
    omni["num_experts"] = json!(8);
    omni["num_experts_per_tok"] = json!(2);
    omni["moe_intermediate_size"] = json!(32);
    let omni = json!({ "model_type": "qwen3_omni_moe", "thinker_config": { "text_config": omni } });
    assert_eq!(import(&omni).unwrap().family, "qwen3_omni_moe");
}

#[test]
fn weight_formats() {
    let format = |more: Value| {
        let mut config = everything("llama");
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        import(&config).unwrap().native_format
    };
    let is = |name: &str| Some(name.to_string());
    assert_eq!(format(json!({})), is("bf16"));
    assert_eq!(format(json!({ "torch_dtype": "float16" })), is("fp16"));
    let method = |value: Value| format(json!({ "quantization_config": value }));
    assert_eq!(method(json!({ "quant_method": "fp8", "weight_block_size": [128, 128] })), is("fp8-block"));
    assert_eq!(method(json!({ "quant_method": "mxfp4" })), is("mxfp4"));
    assert_eq!(method(json!({ "quant_method": "awq", "bits": 4 })), is("awq-int4"));
    assert_eq!(method(json!({ "quant_method": "gptq", "bits": 4 })), is("gptq-int4"));
    assert_eq!(method(json!({ "quant_method": "modelopt", "quant_algo": "NVFP4" })), is("nvfp4"));
    let packed = json!({ "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
        "config_groups": { "group_0": { "weights": { "num_bits": 4, "type": "float" } } } });
    assert_eq!(method(packed), is("nvfp4"));
    assert_eq!(method(json!({ "quant_method": "of tomorrow" })), None);
}

#[test]
fn unknown_families_are_refused_with_help() {
    let error = import(&everything("qwen3_mo")).unwrap_err().to_string();
    assert!(error.contains("did you mean `qwen3_moe`") && error.contains("hidden_size"), "{error}");
    let mut config = everything("newcomer");
    config["num_local_experts"] = json!(8);
    let error = import(&config).unwrap_err().to_string();
    assert!(error.contains("num_local_experts"), "{error}");
    let options = ImportOptions::default().with_assume_llama_like(true);
    assert!(model_from_config_with(&config.to_string(), "config.json", options).is_err());
    let plain = model_from_config_with(&everything("newcomer").to_string(), "config.json", options).unwrap();
    assert!(plain.notes[0].contains("newcomer"));
    assert_eq!(plain.params_total(), import(&everything("llama")).unwrap().params_total());
}

#[test]
fn experts_in_a_dense_family_are_refused() {
    let keys = ["num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank", "ssm_state_size"];
    for key in keys {
        let mut config = everything("llama");
        config[key] = json!(8);
        let error = import(&config).unwrap_err();
        assert!(matches!(error, ImportError::Contradiction { .. }) && error.to_string().contains(key), "{error}");
        config[key] = Value::Null;
        assert!(import(&config).is_ok());
    }
    let mut nested = everything("mpt");
    nested["ffn_config"] = json!({ "moe_num_experts": 8 });
    assert!(import(&nested).unwrap_err().to_string().contains("ffn_config.moe_num_experts"));
    let mut types = everything("qwen3");
    types["layer_types"] = json!(["linear_attention", "full_attention", "full_attention", "full_attention"]);
    assert!(import(&types).unwrap_err().to_string().contains("layer_types"));
}

#[test]
fn errors_name_file_line_and_key() {
    let text = "{\n \"model_type\": \"llama\",\n \"hidden_size\": \"wide\"\n}";
    let error = model_from_config(text, "a.json").unwrap_err().to_string();
    assert!(error.starts_with("a.json, line 3: key `hidden_size` is \"wide\""), "{error}");
    let error = model_from_config("{\n \"model_type\": ", "a.json").unwrap_err().to_string();
    assert!(error.starts_with("a.json, line 2"), "{error}");
    let mut config = json!({ "text_config": everything("qwen3") });
    config["text_config"].as_object_mut().unwrap().remove("vocab_size");
    let error = import(&config).unwrap_err().to_string();
    assert!(error.contains("text_config.vocab_size"), "{error}");
}

#[test]
fn impossible_sizes_are_refused() {
    for (key, value) in [
        ("num_attention_heads", json!(0)),
        ("num_key_value_heads", json!(3)),
        ("hidden_size", json!(0)),
        ("num_hidden_layers", json!(1_000_000_000)),
        ("num_hidden_layers", json!(0)),
        ("vocab_size", json!(u64::MAX)),
        ("intermediate_size", json!(-1)),
        ("hidden_size", json!(1e300)),
        ("max_position_embeddings", json!(0.5)),
    ] {
        let mut config = everything("llama");
        config[key] = value.clone();
        assert!(import(&config).is_err(), "{key} = {value}");
    }
}

#[test]
fn python_writes_infinity() {
    let text =
        everything("llama").to_string().replacen('{', "{\"time_step_limit\": [0.0, Infinity], \"note\": \"NaN\",", 1);
    assert!(model_from_config(&text, "config.json").is_ok());
}

#[test]
fn index_of_a_checkpoint() {
    let missing = index_total("{\"weight_map\": {}}", "i.json").unwrap_err().to_string();
    assert!(missing.contains("metadata.total_size"), "{missing}");
    assert!(index_total("{\"metadata\": {\"total_size\": -5}, \"weight_map\": {}}", "i.json").is_err());
    assert!(index_total("[1]", "i.json").is_err());
}

/// Whatever the file says, the answer is a model that can be computed with, or an error.
fn exercise(text: &str) {
    let Ok(model) = model_from_config(text, "config.json") else { return };
    let architecture = model.architecture().unwrap();
    let mut tensors = 0u64;
    architecture.for_each_tensor(|tensor| tensors += tensor.params);
    assert_eq!(tensors, model.params_total());
    assert!(model.params_active() > 0);
    assert!(architecture.kv_elements_per_token().is_finite() && architecture.kv_elements(1 << 20).is_finite());
    architecture.state_elements();
    assert_eq!(Model::from_toml(&model.to_toml(), "again").unwrap(), model);
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..9).prop_map(Value::from),
        (0u32..64).prop_map(|bits| Value::from((1u64 << bits) - 1)),
        (0u32..25).prop_map(|bits| Value::from(1u64 << bits)),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zM*E-]{0,6}".prop_map(Value::from),
        prop::collection::vec(0u64..200, 0..6).prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn hostile_values_never_panic(
        family in prop::sample::select(families().collect::<Vec<_>>()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..4),
    ) {
        let mut config = everything(family);
        let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        for (index, value) in changes {
            let key = index.get(&keys);
            if key != "model_type" {
                config[key] = value;
            }
        }
        exercise(&config.to_string());
    }

    #[test]
    fn cut_files_never_panic(family in prop::sample::select(families().collect::<Vec<_>>()), cut in 0usize..600) {
        let text = everything(family).to_string();
        exercise(text.get(..cut.min(text.len())).unwrap_or_default());
    }

    #[test]
    fn any_text_never_panics(text in "\\PC*") {
        exercise(&text);
        let _ = index_total(&text, "index.json");
    }

    #[test]
    fn deep_nesting_never_overflows(depth in 1usize..5000) {
        exercise(&"{\"text_config\":".repeat(depth));
        exercise(&"[".repeat(depth));
    }
}
