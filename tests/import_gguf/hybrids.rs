//! Published models with recurrent layers. Sources as in `models`.

use super::builder::{BF16, F32, Gguf, Q8_0, attention, shape};
use llm_roofline::model::{FeedForward, Mixer, Recurrent};

fn add_attention(file: Gguf, layer: u64, of: [u64; 4]) -> Gguf {
    let [hidden, heads, kv_heads, head_dim] = of;
    let tensors = attention(hidden, heads, kv_heads, head_dim);
    tensors.iter().fold(file, |file, (name, shape)| file.layer(layer, BF16, &[(name, shape)]))
}

fn add_mamba2(file: Gguf, layer: u64, hidden: u64, heads: u64, head_dim: u64, groups: u64, state: u64) -> Gguf {
    let (inner, maps) = (heads * head_dim, 2 * groups * state);
    file.layer(layer, BF16, &[("ssm_in", &[hidden, 2 * inner + maps + heads]), ("ssm_conv1d", &[4, inner + maps])])
        .layer(layer, BF16, &[("ssm_conv1d.bias", &[inner + maps]), ("ssm_dt.bias", &[heads])])
        .layer(layer, BF16, &[("ssm_a", &[1, heads]), ("ssm_d", &[1, heads])])
        .layer(layer, BF16, &[("ssm_norm", &[inner / groups, groups]), ("ssm_out", &[inner, hidden])])
}

#[test]
fn mamba_codestral_7b() {
    let mut file = Gguf::new("mamba2").ends(4096, 32_768, false).counts(&[
        ("block_count", 64),
        ("context_length", 262_144),
        ("embedding_length", 4096),
        ("attention.head_count", 0),
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", 8192),
        ("ssm.state_size", 128),
        ("ssm.time_step_rank", 128),
        ("ssm.group_count", 8),
    ]);
    for layer in 0..64 {
        file = add_mamba2(file, layer, 4096, 128, 64, 8, 128).layer(layer, BF16, &[("attn_norm", &[4096])]);
    }
    let imported = file.import();
    // Mistral AI, Codestral Mamba announcement: 7,285,403,648 parameters.
    assert_eq!(imported.model.params_total(), 7_285_403_648);
    assert_eq!(shape(&imported).kv_elements_per_token(), 0.0);
    assert_eq!(shape(&imported).state_elements(), 64 * (8192 * 128 + 3 * (8192 + 2 * 8 * 128)));
}

#[test]
fn jamba_mixes_mamba_attention_and_experts() {
    let mut file = Gguf::new("jamba")
        .ends(4096, 65_536, false)
        .counts(&[
            ("block_count", 32),
            ("context_length", 262_144),
            ("embedding_length", 4096),
            ("attention.head_count", 32),
            ("expert_count", 16),
            ("expert_used_count", 2),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 8192),
            ("ssm.state_size", 16),
            ("ssm.time_step_rank", 256),
        ])
        .each("attention.head_count_kv", (0..32).map(|layer| if layer % 8 == 4 { 8 } else { 0 }));
    for layer in 0..32 {
        file = match layer % 8 {
            4 => add_attention(file, layer, [4096, 32, 8, 128]),
            _ => file
                .layer(layer, BF16, &[("ssm_in", &[4096, 16_384]), ("ssm_conv1d", &[4, 8192])])
                .layer(layer, BF16, &[("ssm_conv1d.bias", &[8192]), ("ssm_x", &[8192, 256 + 32])])
                .layer(layer, BF16, &[("ssm_dt", &[256, 8192]), ("ssm_dt.bias", &[8192]), ("ssm_a", &[16, 8192])])
                .layer(layer, BF16, &[("ssm_d", &[8192]), ("ssm_dt_norm", &[256]), ("ssm_b_norm", &[16])])
                .layer(layer, BF16, &[("ssm_c_norm", &[16]), ("ssm_out", &[8192, 4096])]),
        };
        file = file.layer(layer, F32, &[("attn_norm", &[4096]), ("ffn_norm", &[4096])]);
        file = match layer % 2 {
            1 => file
                .layer(layer, F32, &[("ffn_gate_inp", &[4096, 16])])
                .layer(layer, Q8_0, &[("ffn_gate_exps", &[4096, 14_336, 16]), ("ffn_up_exps", &[4096, 14_336, 16])])
                .layer(layer, Q8_0, &[("ffn_down_exps", &[14_336, 4096, 16])]),
            _ => file.layer(layer, Q8_0, &[("ffn_gate", &[4096, 14_336]), ("ffn_up", &[4096, 14_336])]).layer(
                layer,
                Q8_0,
                &[("ffn_down", &[14_336, 4096])],
            ),
        };
    }
    let imported = file.import();
    assert_eq!(imported.model.params_total(), 51_570_323_328);
    // Lieber et al., Jamba (arXiv 2403.19887): 12B active parameters, 4 GB of 16-bit cache at 256K tokens.
    assert_eq!((imported.model.params_active() as f64 / 1e9).round(), 12.0);
    assert_eq!(shape(&imported).kv_elements(262_144) * 2.0, f64::from(1u32 << 31) * 2.0);
    let names: Vec<&str> = shape(&imported).layer_kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, ["mamba", "mamba_moe", "dense"]);
}

#[test]
fn nemotron_3_nano_has_one_mixer_or_feed_forward_per_layer() {
    // hybrid_override_pattern in config.json: M Mamba-2, E experts, * attention.
    let pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
    let mut file = Gguf::new("nemotron_h_moe")
        .ends(2688, 131_072, false)
        .counts(&[
            ("block_count", 52),
            ("context_length", 262_144),
            ("embedding_length", 2688),
            ("attention.head_count", 32),
            ("attention.key_length", 128),
            ("attention.value_length", 128),
            ("expert_count", 128),
            ("expert_used_count", 6),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 4096),
            ("ssm.state_size", 128),
            ("ssm.time_step_rank", 64),
            ("ssm.group_count", 8),
        ])
        .each("attention.head_count_kv", pattern.chars().map(|kind| if kind == '*' { 2 } else { 0 }))
        .each("feed_forward_length", pattern.chars().map(|kind| if kind == 'E' { 1856 } else { 0 }));
    for (layer, kind) in (0..).zip(pattern.chars()) {
        file = file.layer(layer, F32, &[("attn_norm", &[2688])]);
        file = match kind {
            'M' => add_mamba2(file, layer, 2688, 64, 64, 8, 128),
            '*' => add_attention(file, layer, [2688, 32, 2, 128]),
            _ => file
                .layer(layer, F32, &[("ffn_gate_inp", &[2688, 128]), ("exp_probs_b.bias", &[128])])
                .layer(layer, BF16, &[("ffn_up_exps", &[2688, 1856, 128]), ("ffn_down_exps", &[1856, 2688, 128])])
                .layer(layer, BF16, &[("ffn_up_shexp", &[2688, 3712]), ("ffn_down_shexp", &[3712, 2688])]),
        };
    }
    let imported = file.import();
    // The published total leaves out the routers' 23 x 128 correction biases.
    assert_eq!(imported.model.params_total(), 31_577_937_344 + 23 * 128);
    // Model card: 3.6B active, embedding table included.
    let active = imported.model.params_active() + 131_072 * 2688;
    assert_eq!(format!("{:.1}", active as f64 / 1e9), "3.6");
    assert_eq!(shape(&imported).kv_elements_per_token(), f64::from(6 * 2 * 2 * 128));
    let moe = shape(&imported).layer_kinds[1].layer.feed_forward.moe().unwrap();
    assert_eq!((moe.gated, moe.shared_intermediate), (false, Some(3712)));
}

#[test]
fn qwen3_next_alternates_delta_nets_and_gated_attention() {
    let mut file = Gguf::new("qwen3next").ends(2048, 151_936, false).counts(&[
        ("block_count", 48),
        ("context_length", 262_144),
        ("embedding_length", 2048),
        ("attention.head_count", 16),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("expert_count", 512),
        ("expert_used_count", 10),
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", 4096),
        ("ssm.state_size", 128),
        ("ssm.time_step_rank", 32),
        ("ssm.group_count", 16),
    ]);
    for layer in 0..48 {
        file = match layer % 4 {
            3 => file
                .layer(layer, BF16, &[("attn_q", &[2048, 8192]), ("attn_k", &[2048, 512]), ("attn_v", &[2048, 512])])
                .layer(layer, BF16, &[("attn_output", &[4096, 2048]), ("attn_q_norm", &[256])])
                .layer(layer, BF16, &[("attn_k_norm", &[256])]),
            _ => file
                .layer(layer, BF16, &[("attn_qkv", &[2048, 8192]), ("attn_gate", &[2048, 4096])])
                .layer(layer, BF16, &[("ssm_conv1d", &[4, 8192]), ("ssm_dt.bias", &[32]), ("ssm_a", &[32])])
                .layer(layer, BF16, &[("ssm_ba", &[2048, 64]), ("ssm_norm", &[128]), ("ssm_out", &[4096, 2048])]),
        };
        file = file
            .layer(layer, F32, &[("attn_norm", &[2048]), ("post_attention_norm", &[2048])])
            .layer(layer, F32, &[("ffn_gate_inp", &[2048, 512]), ("ffn_gate_inp_shexp", &[2048])])
            .layer(layer, BF16, &[("ffn_gate_up_exps", &[2048, 1024, 512]), ("ffn_down_exps", &[512, 2048, 512])])
            .layer(layer, BF16, &[("ffn_gate_shexp", &[2048, 512]), ("ffn_up_shexp", &[2048, 512])])
            .layer(layer, BF16, &[("ffn_down_shexp", &[512, 2048])]);
    }
    let imported = file.import();
    // Model card: 79.67B parameters without the multi-token-prediction module.
    assert_eq!(format!("{:.2}", imported.model.params_total() as f64 / 1e9), "79.67");
    assert_eq!(shape(&imported).kv_elements_per_token(), f64::from(12 * 2 * 2 * 256));
    let Mixer::Recurrent(recurrent) = &shape(&imported).layer_kinds[0].layer.mixer else { panic!() };
    let expected =
        Recurrent::GatedDeltaNet { key_heads: 16, value_heads: 32, key_dim: 128, value_dim: 128, conv_kernel: 4 };
    assert_eq!(*recurrent, expected);
    let Mixer::Attention(attention) = &shape(&imported).layer_kinds[1].layer.mixer else { panic!() };
    assert!(attention.output_gate);
    assert!(matches!(&shape(&imported).layer_kinds[1].layer.feed_forward, FeedForward::Moe(moe) if moe.shared_gate));
}

#[test]
fn lfm2_keeps_no_cache_but_a_state_in_convolution_layers() {
    let keys = [("block_count", 2), ("context_length", 100), ("embedding_length", 64), ("attention.head_count", 4)];
    let mut file = Gguf::new("lfm2").ends(64, 100, true).counts(&keys).each("attention.head_count_kv", [0, 2]);
    file = file
        .layer(0, BF16, &[("shortconv.in_proj.weight", &[64, 192]), ("shortconv.out_proj.weight", &[64, 64])])
        .layer(0, F32, &[("shortconv.conv.weight", &[3, 64])]);
    file = add_attention(file, 1, [64, 4, 2, 16]);
    for layer in 0..2 {
        file = file.layer(layer, BF16, &[("attn_norm", &[64]), ("ffn_norm", &[64]), ("ffn_gate", &[64, 256])]).layer(
            layer,
            BF16,
            &[("ffn_up", &[64, 256]), ("ffn_down", &[256, 64])],
        );
    }
    let imported = file.import();
    assert_eq!(shape(&imported).kv_elements_per_token(), f64::from(2 * 2 * 16));
    // The last two of three inputs of a convolution over 64 channels.
    assert_eq!(shape(&imported).state_elements(), 2 * 64);
}

#[test]
fn kimi_linear_has_delta_attention_and_latent_attention() {
    // Three heads of 16 in a hidden size of 64; names as in llama.cpp src/models/kimi-linear.cpp.
    let file = Gguf::new("kimi-linear")
        .ends(64, 100, false)
        .counts(&[("block_count", 2), ("context_length", 100), ("embedding_length", 64), ("attention.head_count", 3)])
        .counts(&[("attention.kv_lora_rank", 32), ("kda.head_dim", 16)])
        .layer(0, BF16, &[("attn_q", &[64, 48]), ("attn_k", &[64, 48]), ("attn_v", &[64, 48]), ("ssm_a", &[1, 3])])
        .layer(0, BF16, &[("ssm_conv1d_q", &[4, 48]), ("ssm_conv1d_k", &[4, 48]), ("ssm_conv1d_v", &[4, 48])])
        .layer(
            0,
            BF16,
            &[("ssm_f_a", &[64, 16]), ("ssm_f_b", &[16, 48]), ("ssm_g_a", &[64, 16]), ("ssm_beta", &[64, 3])],
        )
        .layer(0, BF16, &[("ssm_g_b", &[16, 48]), ("ssm_dt.bias", &[48]), ("ssm_norm", &[16])])
        .layer(0, BF16, &[("attn_output", &[48, 64]), ("attn_norm", &[64])])
        .layer(1, BF16, &[("attn_q", &[64, 3 * 24]), ("attn_kv_a_mqa", &[64, 40]), ("attn_kv_a_norm", &[32])])
        .layer(1, BF16, &[("attn_k_b", &[16, 32, 3]), ("attn_v_b", &[32, 16, 3]), ("attn_output", &[48, 64])]);
    let imported = file.import();
    let kinds = &shape(&imported).layer_kinds;
    let Mixer::Recurrent(delta) = &kinds[0].layer.mixer else { panic!() };
    assert_eq!(*delta, Recurrent::KimiDelta { heads: 3, head_dim: 16, conv_kernel: 4, full_rank_gate: false });
    assert_eq!(shape(&imported).kv_elements_per_token(), 40.0);
}

#[test]
fn parallel_attention_and_state_space_is_refused() {
    let keys = [("block_count", 1), ("context_length", 100), ("embedding_length", 64), ("attention.head_count", 4)];
    let file = add_attention(Gguf::new("falcon-h1").ends(64, 100, true).counts(&keys), 0, [64, 4, 4, 16]);
    let file = add_mamba2(file, 0, 64, 4, 16, 1, 8);
    assert!(file.header().model().unwrap_err().to_string().contains("side by side"));
}
