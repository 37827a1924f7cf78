//! Architectures for the size tests, from the config.json of the Hugging Face repository that each is named after.

use llm_roofline::format::{GgufFamily, TensorClass};
use llm_roofline::model::{
    Architecture, Attention, CompressedAttention, FeedForward, Indexer, KvSource, LatentAttention, Layer, Linear,
    Mixer, Moe, Reach, Recurrent, SparseSelection, Split,
};
use std::collections::BTreeMap;

/// The architecture of a repository, if it is known here.
pub fn architecture(name: &str) -> Option<Architecture> {
    plain(name).or_else(|| match name {
        "Qwen/Qwen3.5-27B" | "Qwen/Qwen3.6-27B" => Some(qwen_3_5(5120, 64, 24, 4, 48, dense(17408))),
        "Qwen/Qwen3.5-35B-A3B" | "Qwen/Qwen3.6-35B-A3B" => Some(qwen_3_5(2048, 40, 16, 2, 32, qwen_moe(256, 512))),
        "Qwen/Qwen3.5-122B-A10B" => Some(qwen_3_5(3072, 48, 32, 2, 64, qwen_moe(256, 1024))),
        "google/gemma-4-26B-A4B-it" => Some(gemma_4_26b()),
        "google/gemma-4-31B-it" => Some(gemma_4_31b()),
        "google/gemma-4-E2B-it" => Some(gemma_4_e(1536, 35, 8, 1, 6144, 20, 5, true)),
        "google/gemma-4-E4B-it" => Some(gemma_4_e(2560, 42, 8, 2, 10240, 18, 6, false)),
        "deepseek-ai/DeepSeek-R1" => Some(deepseek_r1()),
        "deepseek-ai/DeepSeek-V4-Flash" => Some(deepseek_v4_flash()),
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B" => Some(nemotron_3_super()),
        _ => None,
    })
}

/// Rows of a CSV file whose comment lines start with `#`, as maps from column to text.
pub fn csv(text: &str) -> Vec<BTreeMap<&str, String>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines
        .map(|line| {
            let fields = split_quoted(line);
            assert_eq!(fields.len(), header.len(), "{line}");
            header.iter().copied().zip(fields).collect()
        })
        .collect()
}

fn split_quoted(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("at least one field").push(c),
        }
    }
    fields
}

fn plain(name: &str) -> Option<Architecture> {
    let rows = csv(include_str!("../data/model_shapes.csv"));
    let row = rows.iter().find(|row| row["model"] == name)?;
    let number = |column: &str| row[column].parse::<u64>().unwrap_or_else(|_| panic!("{name}: {column}"));
    let hidden = number("hidden_size");
    let moe = Moe {
        experts: number("experts"),
        experts_per_token: 1,
        intermediate: number("expert_intermediate"),
        gated: true,
        shared_intermediate: Some(number("shared_intermediate")).filter(|&width| width > 0),
        latent_size: None,
        vector_params_per_expert: number("vector_params_per_expert"),
        shared_gate: false,
    };
    let layers = (0..number("layers")).map(|layer| {
        let is_dense = moe.experts == 0 || layer < number("dense_layers");
        let feed_forward = if is_dense { dense(number("intermediate")) } else { FeedForward::Moe(moe.clone()) };
        let attention = attention(number("heads"), number("kv_heads"), number("head_dim"));
        layer_of(Mixer::Attention(attention), feed_forward, hidden)
    });
    let mut architecture = from_layers(hidden, number("vocab_size"), layers);
    architecture.tied_embeddings = row["tied_embeddings"] == "true";
    if row["fused_qkv"] == "true" {
        architecture.gguf_family = GgufFamily::FusedQkv;
    }
    Some(architecture)
}

fn from_layers(hidden: u64, vocab: u64, layers: impl IntoIterator<Item = Layer>) -> Architecture {
    Architecture::from_layers(hidden, vocab, 4096, layers.into_iter().map(|layer| ("layer".into(), layer)))
}

fn layer_of(mixer: Mixer, feed_forward: FeedForward, hidden: u64) -> Layer {
    Layer { mixer, feed_forward, extra: Vec::new(), vector_params: 2 * hidden }
}

fn attention(heads: u64, kv_heads: u64, head_dim: u64) -> Attention {
    Attention {
        heads,
        kv_heads,
        head_dim,
        v_head_dim: None,
        reach: Reach::Full,
        output_gate: false,
        kv: KvSource::Own,
        sparse: None,
    }
}

fn dense(intermediate: u64) -> FeedForward {
    FeedForward::Dense { intermediate, gated: true }
}

fn moe(experts: u64, intermediate: u64, shared: Option<u64>) -> Moe {
    Moe {
        experts,
        experts_per_token: 1,
        intermediate,
        gated: true,
        shared_intermediate: shared,
        latent_size: None,
        vector_params_per_expert: 0,
        shared_gate: false,
    }
}

fn qwen_moe(experts: u64, intermediate: u64) -> FeedForward {
    FeedForward::Moe(Moe { shared_gate: true, ..moe(experts, intermediate, Some(intermediate)) })
}

fn qwen_3_5(
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    value_heads: u64,
    feed_forward: FeedForward,
) -> Architecture {
    let layers = (0..layers).map(|layer| {
        let mixer = if layer % 4 == 3 {
            Mixer::Attention(Attention { output_gate: true, ..attention(heads, kv_heads, 256) })
        } else {
            Mixer::Recurrent(Recurrent::GatedDeltaNet {
                key_heads: 16,
                value_heads,
                key_dim: 128,
                value_dim: 128,
                conv_kernel: 4,
            })
        };
        let convolution = 4 * (2 * 16 + value_heads) * 128;
        Layer { vector_params: 2 * hidden + convolution, ..layer_of(mixer, feed_forward.clone(), hidden) }
    });
    from_layers(hidden, 248_320, layers)
}

fn gemma_4_26b() -> Architecture {
    let layers = (0..30).map(|layer| {
        let attention = if layer % 6 == 5 {
            Attention { kv: KvSource::KeyIsValue, ..attention(16, 2, 512) }
        } else {
            attention(16, 8, 256)
        };
        layer_of(Mixer::Attention(attention), FeedForward::Moe(moe(128, 704, Some(2112))), 2816)
    });
    let mut architecture = from_layers(2816, 262_144, layers);
    architecture.tied_embeddings = true;
    architecture
}

fn gemma_4_31b() -> Architecture {
    let layers = (0..60).map(|layer| {
        let attention = if layer % 6 == 5 {
            Attention { kv: KvSource::KeyIsValue, ..attention(32, 4, 512) }
        } else {
            attention(32, 16, 256)
        };
        layer_of(Mixer::Attention(attention), dense(21504), 5376)
    });
    let mut architecture = from_layers(5376, 262_144, layers);
    architecture.tied_embeddings = true;
    architecture
}

/// Gemma 4 with per-layer embeddings: the last `shared` layers read the cache of earlier ones.
#[allow(clippy::too_many_arguments)]
fn gemma_4_e(
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    intermediate: u64,
    shared: u64,
    period: u64,
    doubled: bool,
) -> Architecture {
    const PER_LAYER: u64 = 256;
    let list = (0..layers).map(|layer| {
        let shares = layer >= layers - shared;
        let head_dim = if layer % period == period - 1 { 512 } else { 256 };
        let kv = if shares { KvSource::Shared } else { KvSource::Own };
        let width = if shares && doubled { 2 * intermediate } else { intermediate };
        let mut built =
            layer_of(Mixer::Attention(Attention { kv, ..attention(heads, kv_heads, head_dim) }), dense(width), hidden);
        built.extra.push(Linear::new(TensorClass::OtherMatrix, hidden, PER_LAYER, Split::Replicated));
        built.extra.push(Linear::new(TensorClass::OtherMatrix, PER_LAYER, hidden, Split::Replicated));
        built
    });
    let mut architecture = from_layers(hidden, 262_144, list);
    architecture.tied_embeddings = true;
    architecture.lookup_params = 262_144 * layers * PER_LAYER;
    architecture.global_linears.push(Linear::new(
        TensorClass::OtherMatrix,
        hidden,
        layers * PER_LAYER,
        Split::Replicated,
    ));
    architecture
}

fn deepseek_r1() -> Architecture {
    let layers = (0..61).map(|layer| {
        let attention = LatentAttention {
            heads: 128,
            q_lora_rank: Some(1536),
            kv_lora_rank: 512,
            qk_nope_head_dim: 128,
            qk_rope_head_dim: 64,
            v_head_dim: 128,
            output_gate: false,
            sparse: None,
        };
        let feed_forward = if layer < 3 { dense(18432) } else { FeedForward::Moe(moe(256, 2048, Some(2048))) };
        layer_of(Mixer::LatentAttention(attention), feed_forward, 7168)
    });
    from_layers(7168, 129_280, layers)
}

fn deepseek_v4_flash() -> Architecture {
    let layers = (0..43u64).map(|layer| {
        let compress_ratio = match layer {
            0 | 1 => 0,
            layer if layer % 2 == 0 => 4,
            _ => 128,
        };
        let indexer = Some(Indexer { heads: 64, head_dim: 128 });
        let attention = CompressedAttention {
            heads: 64,
            head_dim: 512,
            q_lora_rank: 1024,
            o_groups: 8,
            o_lora_rank: 1024,
            window: 128,
            compress_ratio,
            sparse: (compress_ratio == 4).then_some(SparseSelection { top_k: 512, indexer }),
        };
        layer_of(Mixer::CompressedAttention(attention), FeedForward::Moe(moe(256, 2048, Some(2048))), 4096)
    });
    from_layers(4096, 129_280, layers)
}

fn nemotron_3_super() -> Architecture {
    const PATTERN: &str = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME";
    let layers = PATTERN.chars().map(|kind| match kind {
        'M' => {
            let mamba = Recurrent::Mamba2 { heads: 128, head_dim: 64, groups: 8, state: 128, conv_kernel: 4 };
            layer_of(Mixer::Recurrent(mamba), FeedForward::None, 4096)
        }
        '*' => layer_of(Mixer::Attention(attention(32, 2, 128)), FeedForward::None, 4096),
        _ => {
            let moe = Moe { gated: false, latent_size: Some(1024), ..moe(512, 2688, Some(5376)) };
            layer_of(Mixer::None, FeedForward::Moe(moe), 4096)
        }
    });
    from_layers(4096, 131_072, layers)
}
