//! Published models as their GGUF files describe them: transformers. Parameter totals are those of the safetensors files on
//! Hugging Face unless another source stands beside them; shapes are those of the models' config.json.

use super::builder::{BF16, F32, Gguf, MXFP4, Q8_0, attention, llama_8b, shape};
use llm_roofline::format::TensorClass;
use llm_roofline::import::ImportError;
use llm_roofline::model::{FeedForward, KvSource, Mixer, Reach};

/// Adds the tensors of a layer whose shapes are pairs.
fn add(file: Gguf, layer: u64, kind: u32, tensors: &[(&str, [u64; 2])]) -> Gguf {
    tensors.iter().fold(file, |file, (name, shape)| file.layer(layer, kind, &[(name, shape)]))
}

#[test]
fn llama_8b_in_the_q4_k_m_mix() {
    let imported = llama_8b().import();
    let model = &imported.model;
    assert_eq!(model.params_total(), 8_030_261_248);
    assert_eq!(model.name, "Meta Llama 3.1 8B");
    assert_eq!(model.native_format.as_deref(), Some("q4_k_m"));
    // All but the embedding table, which is looked up.
    assert_eq!(model.params_active(), 8_030_261_248 - 128_256 * 4096);
    assert_eq!(shape(&imported).layers(), 32);
    assert_eq!(shape(&imported).layer_kinds.len(), 1);
    // 2 x 8 heads x 128 x 32 layers x 2 bytes = 128 KiB per token.
    assert_eq!(shape(&imported).kv_elements_per_token() * 2.0, 131_072.0);
    assert_eq!(shape(&imported).max_context_tokens, 131_072);
    // llama.cpp tools/quantize/README.md: 4.8944 bits per weight, 4.58 GiB.
    assert_eq!(format!("{:.4}", imported.bits_per_weight()), "4.8944");
    assert_eq!(format!("{:.2}", imported.weight_bytes().as_gib()), "4.58");
    assert_eq!(imported.other_bytes.as_bytes(), 256.0); // rope_freqs
    let v = |layer| {
        let is_v = |w: &&_| matches!(w, llm_roofline::import::gguf::TensorBytes { class: TensorClass::AttentionV, .. });
        imported.weights.iter().filter(is_v).find(|w| w.layer == Some(layer)).unwrap().bytes.as_bytes()
    };
    assert_eq!(v(0), 4096.0 * 1024.0 / 256.0 * 210.0); // Q6_K
    assert_eq!(v(4), 4096.0 * 1024.0 / 256.0 * 144.0); // Q4_K
}

#[test]
fn version_2_is_read_like_version_3() {
    let mut file = llama_8b();
    file.version = 2;
    assert_eq!(file.header().version(), 2);
    assert_eq!(file.import().weights, llama_8b().import().weights);
}

fn mixtral(one_tensor_per_expert: bool) -> Gguf {
    let mut file = Gguf::new("llama").ends(4096, 32_000, false).counts(&[
        ("block_count", 32),
        ("context_length", 32_768),
        ("embedding_length", 4096),
        ("attention.head_count", 32),
        ("attention.head_count_kv", 8),
        ("expert_count", 8),
        ("expert_used_count", 2),
    ]);
    for layer in 0..32 {
        file = add(file, layer, BF16, &attention(4096, 32, 8, 128));
        file = file.layer(layer, F32, &[("attn_norm", &[4096]), ("ffn_norm", &[4096]), ("ffn_gate_inp", &[4096, 8])]);
        file = match one_tensor_per_expert {
            false => file.layer(
                layer,
                Q8_0,
                &[
                    ("ffn_gate_exps", &[4096, 14_336, 8]),
                    ("ffn_up_exps", &[4096, 14_336, 8]),
                    ("ffn_down_exps", &[14_336, 4096, 8]),
                ],
            ),
            true => (0..8).fold(file, |file, expert| {
                file.layer(layer, Q8_0, &[(&format!("ffn_gate.{expert}.weight"), &[4096, 14_336])])
                    .layer(layer, Q8_0, &[(&format!("ffn_up.{expert}.weight"), &[4096, 14_336])])
                    .layer(layer, Q8_0, &[(&format!("ffn_down.{expert}.weight"), &[14_336, 4096])])
            }),
        };
    }
    file
}

#[test]
fn mixtral_8x7b_in_new_and_old_layout() {
    let imported = mixtral(false).import();
    // Jiang et al., Mixtral of Experts (arXiv 2401.04088): 47B in total, 13B active; Mistral's documentation: 46.7B and 12.9B.
    assert_eq!(format!("{:.1}", imported.model.params_total() as f64 / 1e9), "46.7");
    // The published active count includes the embedding table.
    let active = imported.model.params_active() + 32_000 * 4096;
    assert_eq!(format!("{:.1}", active as f64 / 1e9), "12.9");
    assert_eq!(mixtral(true).import().model.body, imported.model.body);
    assert_eq!(mixtral(true).import().weights, imported.weights);
}

/// `absorbed`: the key-value up-projection as two tensors, as llama.cpp writes it since its MLA cache (2025).
fn deepseek_v2_lite(absorbed: bool) -> Gguf {
    let (key_length, kv_heads) = if absorbed { (576, 1) } else { (192, 16) };
    let mut file = Gguf::new("deepseek2").ends(2048, 102_400, false).counts(&[
        ("block_count", 27),
        ("context_length", 163_840),
        ("embedding_length", 2048),
        ("attention.head_count", 16),
        ("attention.head_count_kv", kv_heads),
        ("attention.key_length", key_length),
        ("attention.kv_lora_rank", 512),
        ("rope.dimension_count", 64),
        ("leading_dense_block_count", 1),
        ("expert_count", 64),
        ("expert_used_count", 6),
        ("expert_shared_count", 2),
    ]);
    for layer in 0..27 {
        file = file.layer(
            layer,
            BF16,
            &[
                ("attn_norm", &[2048]),
                ("attn_q", &[2048, 16 * 192]),
                ("attn_kv_a_mqa", &[2048, 576]),
                ("attn_kv_a_norm", &[512]),
                ("attn_output", &[2048, 2048]),
                ("ffn_norm", &[2048]),
            ],
        );
        file = match absorbed {
            true => file.layer(layer, BF16, &[("attn_k_b", &[128, 512, 16]), ("attn_v_b", &[512, 128, 16])]),
            false => file.layer(layer, BF16, &[("attn_kv_b", &[512, 16 * 256])]),
        };
        file = match layer {
            0 => file.layer(
                layer,
                BF16,
                &[("ffn_gate", &[2048, 10_944]), ("ffn_up", &[2048, 10_944]), ("ffn_down", &[10_944, 2048])],
            ),
            _ => file
                .layer(layer, F32, &[("ffn_gate_inp", &[2048, 64])])
                .layer(layer, BF16, &[("ffn_gate_exps", &[2048, 1408, 64]), ("ffn_up_exps", &[2048, 1408, 64])])
                .layer(layer, BF16, &[("ffn_down_exps", &[1408, 2048, 64]), ("ffn_gate_shexp", &[2048, 2816])])
                .layer(layer, BF16, &[("ffn_up_shexp", &[2048, 2816]), ("ffn_down_shexp", &[2816, 2048])]),
        };
    }
    file
}

#[test]
fn deepseek_v2_lite_keeps_one_latent_per_token() {
    for absorbed in [true, false] {
        let imported = deepseek_v2_lite(absorbed).import();
        assert_eq!(imported.model.params_total(), 15_706_484_224);
        // DeepSeek-V2 (arXiv 2405.04434), appendix B: 2.4B active parameters.
        assert!((imported.model.params_active() as f64 / 1e9 - 2.4).abs() < 0.1);
        assert_eq!(shape(&imported).kv_elements_per_token(), f64::from(27 * (512 + 64)));
        let Mixer::LatentAttention(latent) = &shape(&imported).layer_kinds[0].layer.mixer else { panic!() };
        assert_eq!((latent.qk_nope_head_dim, latent.qk_rope_head_dim, latent.v_head_dim), (128, 64, 128));
        let names: Vec<&str> = shape(&imported).layer_kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["dense", "moe"]);
    }
}

fn gemma_3_1b() -> Gguf {
    let mut file = Gguf::new("gemma3").ends(1152, 262_144, true).counts(&[
        ("block_count", 26),
        ("context_length", 32_768),
        ("embedding_length", 1152),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("attention.sliding_window", 512),
    ]);
    for layer in 0..26 {
        file = add(file, layer, BF16, &attention(1152, 4, 1, 256));
        file = file.layer(
            layer,
            BF16,
            &[
                ("attn_norm", &[1152]),
                ("attn_q_norm", &[256]),
                ("attn_k_norm", &[256]),
                ("post_attention_norm", &[1152]),
                ("ffn_norm", &[1152]),
                ("post_ffw_norm", &[1152]),
                ("ffn_gate", &[1152, 6912]),
                ("ffn_up", &[1152, 6912]),
                ("ffn_down", &[6912, 1152]),
            ],
        );
    }
    file
}

#[test]
fn gemma_3_has_five_local_layers_to_one_global() {
    let imported = gemma_3_1b().import();
    assert_eq!(imported.model.params_total(), 999_885_952);
    assert!(shape(&imported).tied_embeddings);
    // layer_types in config.json: every sixth layer is full_attention, so 4 of 26.
    let order: Vec<usize> = shape(&imported).layer_order.clone();
    let global: Vec<usize> = (0..26).filter(|&layer| order[layer] != order[0]).collect();
    assert_eq!(global, [5, 11, 17, 23]);
    assert_eq!(shape(&imported).kv_elements(10_000), f64::from(512 * (22 * 512 + 4 * 10_000)));
    let names: Vec<&str> = shape(&imported).layer_kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, ["local", "global"]);
}

#[test]
fn a_pattern_in_the_file_wins_over_that_of_the_architecture() {
    let every_third = gemma_3_1b().counts(&[("attention.sliding_window_pattern", 3)]).import();
    assert_eq!(shape(&every_third).kv_elements(10_000), f64::from(512 * (18 * 512 + 8 * 10_000)));
    let first_two = gemma_3_1b().flags("attention.sliding_window_pattern", (0..26).map(|layer| layer < 2)).import();
    assert_eq!(shape(&first_two).kv_elements(10_000), f64::from(512 * (2 * 512 + 24 * 10_000)));
}

#[test]
fn gpt_oss_20b_counts_biases_of_its_experts() {
    let mut file = Gguf::new("gpt-oss").ends(2880, 201_088, false).counts(&[
        ("block_count", 24),
        ("context_length", 131_072),
        ("embedding_length", 2880),
        ("attention.head_count", 64),
        ("attention.head_count_kv", 8),
        ("attention.key_length", 64),
        ("attention.value_length", 64),
        ("attention.sliding_window", 128),
        ("expert_count", 32),
        ("expert_used_count", 4),
    ]);
    for layer in 0..24 {
        file = add(file, layer, BF16, &attention(2880, 64, 8, 64))
            .layer(layer, F32, &[("attn_norm", &[2880]), ("post_attention_norm", &[2880]), ("attn_sinks", &[64])])
            .layer(layer, F32, &[("attn_q.bias", &[4096]), ("attn_k.bias", &[512]), ("attn_v.bias", &[512])])
            .layer(layer, F32, &[("attn_output.bias", &[2880]), ("ffn_gate_inp", &[2880, 32])])
            .layer(layer, F32, &[("ffn_gate_inp.bias", &[32]), ("ffn_down_exps.bias", &[2880, 32])])
            .layer(layer, F32, &[("ffn_gate_exps.bias", &[2880, 32]), ("ffn_up_exps.bias", &[2880, 32])])
            .layer(layer, MXFP4, &[("ffn_gate_exps", &[2880, 2880, 32]), ("ffn_up_exps", &[2880, 2880, 32])])
            .layer(layer, MXFP4, &[("ffn_down_exps", &[2880, 2880, 32])]);
    }
    let imported = file.import();
    assert_eq!(imported.model.params_total(), 20_914_757_184);
    // gpt-oss model card (arXiv 2508.10925), table 1: 3.61B active.
    assert_eq!(format!("{:.2}", imported.model.params_active() as f64 / 1e9), "3.61");
    assert_eq!(shape(&imported).layer_order[..4], [0, 1, 0, 1]);
    assert_eq!(shape(&imported).kv_elements(5000), f64::from(12 * 1024 * (128 + 5000)));
    let expert_bytes: f64 = imported.weights.iter().filter(|w| w.class.is_expert()).map(|w| w.bytes.as_bytes()).sum();
    assert_eq!(expert_bytes, 24.0 * 3.0 * 32.0 * 2880.0 * 2880.0 * 17.0 / 32.0);
}

#[test]
fn phi_3_mini_has_fused_projections() {
    let mut file = Gguf::new("phi3").ends(3072, 32_064, false).counts(&[
        ("block_count", 32),
        ("context_length", 4096),
        ("embedding_length", 3072),
        ("attention.head_count", 32),
        ("attention.head_count_kv", 32),
    ]);
    for layer in 0..32 {
        file = file
            .layer(layer, BF16, &[("attn_norm", &[3072]), ("ffn_norm", &[3072]), ("attn_qkv", &[3072, 9216])])
            .layer(layer, BF16, &[("attn_output", &[3072, 3072]), ("ffn_up", &[3072, 16_384])])
            .layer(layer, BF16, &[("ffn_down", &[8192, 3072])]);
    }
    let imported = file.import();
    assert_eq!(imported.model.params_total(), 3_821_079_552);
    let layer = &shape(&imported).layer_kinds[0].layer;
    assert_eq!(layer.feed_forward, FeedForward::Dense { intermediate: 8192, gated: true });
    let first = |class| imported.weights.iter().find(|w| w.layer == Some(0) && w.class == class).unwrap();
    for class in [TensorClass::AttentionQ, TensorClass::AttentionK, TensorClass::AttentionV] {
        assert_eq!((first(class).params, first(class).bytes.as_bytes()), (3072 * 3072, 2.0 * 3072.0 * 3072.0));
    }
    assert_eq!(first(TensorClass::FfnGate).params, 3072 * 8192);
}

#[test]
fn gemma_3n_shares_caches_and_looks_up_embeddings() {
    let (hidden, vocab) = (2048, 262_400);
    let mut file = Gguf::new("gemma3n")
        .ends(hidden, vocab, true)
        .counts(&[
            ("block_count", 35),
            ("context_length", 32_768),
            ("embedding_length", 2048),
            ("attention.head_count", 8),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 256),
            ("attention.value_length", 256),
            ("attention.sliding_window", 512),
            ("attention.shared_kv_layers", 15),
        ])
        .tensor("per_layer_token_embd.weight", Q8_0, &[256 * 35, 262_144])
        .tensor("per_layer_model_proj.weight", BF16, &[hidden, 256 * 35])
        .tensor("per_layer_proj_norm.weight", F32, &[256])
        .tensor("altup_proj.weight", BF16, &[hidden, hidden, 3])
        .tensor("altup_unembd_proj.weight", BF16, &[hidden, hidden, 3]);
    for layer in 0..35 {
        file = add(file, layer, BF16, &attention(hidden, 8, 2, 256))
            .layer(layer, BF16, &[("attn_norm", &[hidden]), ("attn_q_norm", &[256]), ("attn_k_norm", &[256])])
            .layer(
                layer,
                BF16,
                &[("post_attention_norm", &[hidden]), ("ffn_norm", &[hidden]), ("post_norm", &[hidden])],
            )
            .layer(layer, BF16, &[("post_ffw_norm", &[hidden]), ("ffn_gate", &[hidden, 16_384])])
            .layer(layer, BF16, &[("ffn_up", &[hidden, 16_384]), ("ffn_down", &[16_384, hidden])])
            .layer(layer, BF16, &[("inp_gate", &[hidden, 256]), ("proj", &[256, hidden]), ("laurel_l", &[hidden, 64])])
            .layer(layer, BF16, &[("laurel_r", &[64, hidden]), ("laurel_post_norm", &[hidden])])
            .layer(layer, BF16, &[("altup_correct_coef", &[4, 4]), ("altup_correct_scale", &[hidden])])
            .layer(layer, BF16, &[("altup_predict_coef", &[4, 16]), ("altup_router", &[hidden, 4])])
            .layer(layer, BF16, &[("altup_router_norm", &[hidden])]);
    }
    let imported = file.import();
    // Hugging Face safetensors total of google/gemma-3n-E4B-it (7,849,978,192) less its vision and audio towers, whose
    // 983,281,504 parameters are the same remainder in the E2B model.
    assert_eq!(imported.model.params_total(), 7_849_978_192 - 983_281_504);
    // 20 layers of their own, of which every fifth is global; the other 15 read earlier caches.
    assert_eq!(shape(&imported).kv_elements(10_000), f64::from(2 * 2 * 256 * (16 * 512 + 4 * 10_000)));
    let Mixer::Attention(last) = &shape(&imported).iter_layers().last().unwrap().mixer else { panic!() };
    assert_eq!((last.kv, last.reach), (KvSource::Shared, Reach::Full));
    // Google calls it effectively 4B: per-layer embeddings and unused projections are not read.
    assert_eq!((imported.model.params_active() as f64 / 1e9).round(), 4.0);
}

/// A layer with attention, whose value projection may be missing, and a gated feed-forward.
fn small_layer(file: Gguf, layer: u64, [heads, kv_heads, head_dim]: [u64; 3], with_values: bool) -> Gguf {
    let mut tensors = attention(64, heads, kv_heads, head_dim);
    tensors.retain(|(name, _)| with_values || *name != "attn_v");
    add(file, layer, BF16, &tensors)
        .layer(layer, BF16, &[("attn_norm", &[64]), ("ffn_norm", &[64]), ("ffn_gate", &[64, 128])])
        .layer(layer, BF16, &[("ffn_up", &[64, 128]), ("ffn_down", &[128, 64])])
}

fn small_keys(architecture: &str, blocks: u32, tied: bool) -> Gguf {
    let file = Gguf::new(architecture).ends(64, 100, tied);
    file.counts(&[("block_count", blocks), ("context_length", 100_000), ("embedding_length", 64)])
}

#[test]
fn gemma_4_reuses_keys_as_values_and_has_experts_beside_a_dense_branch() {
    // Keys as in llama.cpp src/models/gemma4.cpp: per-layer heads, wider heads in global layers, one list of truth values.
    let mut file = small_keys("gemma4", 3, true)
        .counts(&[("attention.head_count", 4), ("attention.key_length", 32), ("attention.key_length_swa", 16)])
        .counts(&[("attention.sliding_window", 1024), ("expert_count", 8), ("expert_used_count", 2)])
        .counts(&[("attention.shared_kv_layers", 1)])
        .each("attention.head_count_kv", [2, 1, 2])
        .flags("attention.sliding_window_pattern", [true, false, true]);
    file = small_layer(file, 0, [4, 2, 16], true);
    file = small_layer(file, 1, [4, 1, 32], false);
    file = small_layer(file, 2, [4, 2, 16], true);
    for layer in 0..3 {
        file = file
            .layer(
                layer,
                F32,
                &[("ffn_gate_inp", &[64, 8]), ("ffn_gate_inp.scale", &[64]), ("layer_output_scale", &[1])],
            )
            .layer(layer, BF16, &[("ffn_gate_up_exps", &[64, 64, 8]), ("ffn_down_exps", &[32, 64, 8])])
            .layer(layer, F32, &[("ffn_down_exps.scale", &[8])]);
    }
    let imported = file.import();
    let layers: Vec<_> = shape(&imported).iter_layers().collect();
    let sources = layers.iter().map(|layer| match &layer.mixer {
        Mixer::Attention(attention) => attention.kv,
        _ => panic!(),
    });
    assert_eq!(sources.collect::<Vec<_>>(), [KvSource::Own, KvSource::KeyIsValue, KvSource::Shared]);
    assert_eq!(shape(&imported).kv_elements(5000), f64::from(1024 * 2 * 2 * 16 + 5000 * 2 * 32));
    assert_eq!(layers[0].feed_forward.moe().unwrap().shared_intermediate, Some(128));
}

#[test]
fn llama_4_attends_to_chunks_in_three_layers_of_four() {
    let keys = |blocks| {
        small_keys("llama4", blocks, false).counts(&[("attention.head_count", 4), ("attention.head_count_kv", 2)])
    };
    let file = (0..8).fold(keys(8), |file, layer| small_layer(file, layer, [4, 2, 16], true));
    let reaches = |file: &Gguf| -> Vec<Reach> {
        let imported = file.import();
        let reach = |layer: &llm_roofline::model::Layer| match &layer.mixer {
            Mixer::Attention(attention) => attention.reach,
            _ => panic!(),
        };
        shape(&imported).iter_layers().map(reach).collect()
    };
    let chunk = Reach::Chunk(8192); // attention_chunk_size in config.json
    assert_eq!(reaches(&file), [chunk, chunk, chunk, Reach::Full].repeat(2));
    assert_eq!(reaches(&file.counts(&[("attention.sliding_window", 0)])), [Reach::Full; 8]);
}

#[test]
fn architecture_search_leaves_layers_without_attention() {
    let mut file = small_keys("deci", 4, false)
        .each("attention.head_count", [4, 4, 0, 0])
        .each("attention.head_count_kv", [2, 0, 0, 0]);
    file = small_layer(file, 0, [4, 2, 16], true);
    file = file.layer(1, BF16, &[("attn_output", &[64, 64]), ("attn_norm", &[64])]);
    file = file.layer(2, BF16, &[("ffn_norm", &[64]), ("ffn_gate", &[64, 32]), ("ffn_up", &[64, 32])]);
    file = file.layer(2, BF16, &[("ffn_down", &[32, 64])]);
    let imported = file.import();
    let mixers: Vec<&Mixer> = shape(&imported).iter_layers().map(|layer| &layer.mixer).collect();
    assert!(matches!(mixers[..], [Mixer::Attention(_), Mixer::Linear, Mixer::None, Mixer::None]));
    assert_eq!(shape(&imported).kv_elements_per_token(), f64::from(2 * 2 * 16));
}

#[test]
fn multi_token_prediction_stands_beside_the_model() {
    let layer_of = |file: Gguf, layer| {
        add(file, layer, BF16, &attention(64, 4, 2, 16))
            .layer(layer, BF16, &[("attn_norm", &[64]), ("post_attention_norm", &[64])])
            .layer(layer, BF16, &[("ffn_gate", &[64, 128]), ("ffn_up", &[64, 128]), ("ffn_down", &[128, 64])])
    };
    let keys = |blocks: u32| {
        let file = Gguf::new("glm4moe").ends(64, 100, false);
        file.counts(&[("block_count", blocks), ("context_length", 100), ("embedding_length", 64)])
            .counts(&[("attention.head_count", 4), ("attention.head_count_kv", 2)])
    };
    let without = layer_of(layer_of(keys(2), 0), 1).import();
    let with = layer_of(layer_of(layer_of(keys(3), 0), 1), 2).counts(&[("nextn_predict_layers", 1)]);
    let with = with.layer(2, BF16, &[("nextn.eh_proj", &[128, 64]), ("nextn.enorm", &[64])]).import();
    assert_eq!(with.model.params_total(), without.model.params_total());
    let attention_and_mlp = 64 * 16 * (4 + 2 + 2 + 4) + 3 * 64 * 128 + 2 * 64;
    let mtp = shape(&with).mtp.unwrap();
    assert_eq!((mtp.modules, mtp.params_per_module), (1, attention_and_mlp + 128 * 64 + 64));
    // Everything in 2 bytes but three norms of 64.
    assert_eq!(with.mtp_bytes.as_bytes(), (2 * mtp.params_per_module + 2 * 3 * 64) as f64);
}

#[test]
fn contradictions_are_refused() {
    let error = |file: Gguf| file.header().model().unwrap_err();
    let missing = Gguf::new("llama").ends(64, 100, true);
    assert!(matches!(error(missing), ImportError::Missing { key, .. } if key == "llama.block_count"));

    let wrong = llama_8b().text("llama.expert_used_count", "two").tensor("blk.0.ffn_gate_inp.weight", F32, &[4096, 8]);
    assert!(matches!(error(wrong), ImportError::Invalid { key, .. } if key == "llama.expert_used_count"));

    let unknown = llama_8b().tensor("blk.3.time_mix_key.weight", F32, &[4096, 4096]);
    assert!(error(unknown).to_string().contains("`blk.3.time_mix_key.weight`"));

    let beyond = llama_8b().tensor("blk.32.attn_norm.weight", F32, &[4096]);
    assert!(error(beyond).to_string().contains("layer 32"));

    let projector = Gguf::new("clip");
    assert!(matches!(error(projector), ImportError::UnknownArchitecture { name, .. } if name == "clip"));
}

#[test]
fn an_unknown_architecture_is_derived_or_names_what_it_lacks() {
    let layer = |file: Gguf| {
        add(file, 0, BF16, &attention(64, 4, 2, 16))
            .layer(0, BF16, &[("attn_norm", &[64]), ("ffn_up", &[64, 128]), ("ffn_down", &[128, 64])])
            .counts(&[("block_count", 1), ("context_length", 100), ("embedding_length", 64)])
            .counts(&[("attention.head_count", 4), ("attention.head_count_kv", 2)])
    };
    let plain = layer(Gguf::new("quen3").ends(64, 100, true));
    let imported = plain.import();
    assert!(imported.model.notes.iter().any(|note| note.contains("`quen3` is not known")));
    assert_eq!(
        shape(&imported).layer_kinds[0].layer.feed_forward,
        FeedForward::Dense { intermediate: 128, gated: false }
    );

    let odd = plain.layer(0, BF16, &[("hyper_proj", &[64, 64])]);
    let message = odd.header().model().unwrap_err().to_string();
    assert!(message.contains("`blk.0.hyper_proj.weight`") && message.contains("did you mean `qwen3`"), "{message}");
}
