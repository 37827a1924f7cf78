//! Writes GGUF headers for tests.

use llm_roofline::import::gguf::{Header, ImportedGguf, TensorBytes};
use llm_roofline::model::Architecture;

pub const F32: u32 = 0;
pub const F16: u32 = 1;
pub const Q8_0: u32 = 8;
pub const Q4_K: u32 = 12;
pub const Q6_K: u32 = 14;
pub const BF16: u32 = 30;
pub const MXFP4: u32 = 39;

/// A header under construction.
#[derive(Clone)]
pub struct Gguf {
    pub version: u32,
    architecture: String,
    pairs: Vec<Vec<u8>>,
    tensors: Vec<(String, u32, Vec<u64>)>,
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Gguf {
    pub fn new(architecture: &str) -> Self {
        let empty = Self { version: 3, architecture: architecture.into(), pairs: Vec::new(), tensors: Vec::new() };
        empty.raw("general.architecture", 8, &string(architecture))
    }

    /// A key with the bytes of its value.
    pub fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.pairs.push([string(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat());
        self
    }

    /// Keys `<architecture>.*` with 32-bit counts.
    pub fn counts(mut self, counts: &[(&str, u32)]) -> Self {
        for (key, count) in counts {
            let key = format!("{}.{key}", self.architecture);
            self = self.raw(&key, 4, &count.to_le_bytes());
        }
        self
    }

    /// A key `<architecture>.*` with an array of 32-bit signed integers.
    pub fn each(self, key: &str, values: impl IntoIterator<Item = u32>) -> Self {
        let values: Vec<u8> = values.into_iter().flat_map(|value| (value as i32).to_le_bytes()).collect();
        let head = [5u32.to_le_bytes().to_vec(), (values.len() as u64 / 4).to_le_bytes().to_vec()].concat();
        let key = format!("{}.{key}", self.architecture);
        self.raw(&key, 9, &[head, values].concat())
    }

    /// A key `<architecture>.*` with an array of truth values.
    pub fn flags(self, key: &str, values: impl IntoIterator<Item = bool>) -> Self {
        let values: Vec<u8> = values.into_iter().map(u8::from).collect();
        let head = [7u32.to_le_bytes().to_vec(), (values.len() as u64).to_le_bytes().to_vec()].concat();
        let key = format!("{}.{key}", self.architecture);
        self.raw(&key, 9, &[head, values].concat())
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        self.raw(key, 8, &string(value))
    }

    pub fn tensor(mut self, name: &str, kind: u32, shape: &[u64]) -> Self {
        self.tensors.push((name.into(), kind, shape.to_vec()));
        self
    }

    /// Weights outside the layers, F16; the output head only if the embeddings are not tied.
    pub fn ends(self, hidden: u64, vocab: u64, tied: bool) -> Self {
        let ends = self.tensor("token_embd.weight", F16, &[hidden, vocab]).tensor("output_norm.weight", F32, &[hidden]);
        if tied { ends } else { ends.tensor("output.weight", F16, &[hidden, vocab]) }
    }

    /// Tensors of a layer: F32 for one dimension, otherwise `kind`. Names without a dot get `.weight`.
    pub fn layer(mut self, layer: u64, kind: u32, tensors: &[(&str, &[u64])]) -> Self {
        for (name, shape) in tensors {
            let suffix = if name.contains('.') || matches!(*name, "ssm_a" | "ssm_d") { "" } else { ".weight" };
            let kind = if shape.len() == 1 || name.starts_with("ssm_") && *name != "ssm_in" { F32 } else { kind };
            self = self.tensor(&format!("blk.{layer}.{name}{suffix}"), kind, shape);
        }
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.pairs.len() as u64).to_le_bytes());
        file.extend(self.pairs.concat());
        for (name, kind, shape) in &self.tensors {
            file.extend(string(name));
            file.extend((shape.len() as u32).to_le_bytes());
            file.extend(shape.iter().flat_map(|dimension| dimension.to_le_bytes()));
            file.extend(kind.to_le_bytes());
            file.extend(0u64.to_le_bytes());
        }
        file
    }

    pub fn header(&self) -> Header {
        Header::read(&self.bytes()).unwrap()
    }

    pub fn import(&self) -> ImportedGguf {
        let imported = self.header().model().unwrap();
        let params: u64 = imported.weights.iter().map(|weights: &TensorBytes| weights.params).sum();
        assert_eq!(params, imported.model.params_total());
        imported
    }
}

pub fn shape(imported: &ImportedGguf) -> &Architecture {
    imported.model.architecture().unwrap()
}

/// Grouped-query attention without biases.
pub fn attention(hidden: u64, heads: u64, kv_heads: u64, head_dim: u64) -> Vec<(&'static str, [u64; 2])> {
    vec![
        ("attn_q", [hidden, heads * head_dim]),
        ("attn_k", [hidden, kv_heads * head_dim]),
        ("attn_v", [hidden, kv_heads * head_dim]),
        ("attn_output", [heads * head_dim, hidden]),
    ]
}

/// Llama-3.1-8B with the tensor types of the Q4_K_M mix.
///
/// Sources: Hugging Face config.json of meta-llama/Llama-3.1-8B; llama.cpp `src/llama-quant.cpp` (`use_more_bits`).
pub fn llama_8b() -> Gguf {
    const LAYERS: u64 = 32;
    let more_bits = |layer: u64| !(LAYERS / 8..7 * LAYERS / 8).contains(&layer) || (layer - LAYERS / 8) % 3 == 2;
    let mut file = Gguf::new("llama")
        .text("general.name", "Meta Llama 3.1 8B")
        .raw("general.file_type", 4, &15u32.to_le_bytes())
        .counts(&[
            ("block_count", 32),
            ("context_length", 131_072),
            ("embedding_length", 4096),
            ("feed_forward_length", 14_336),
            ("attention.head_count", 32),
            ("attention.head_count_kv", 8),
            ("vocab_size", 128_256),
        ])
        .tensor("rope_freqs.weight", F32, &[64])
        .tensor("token_embd.weight", Q4_K, &[4096, 128_256])
        .tensor("output.weight", Q6_K, &[4096, 128_256])
        .tensor("output_norm.weight", F32, &[4096]);
    for layer in 0..LAYERS {
        let better = if more_bits(layer) { Q6_K } else { Q4_K };
        file = file
            .layer(layer, Q4_K, &[("attn_norm", &[4096]), ("attn_q", &[4096, 4096]), ("attn_k", &[4096, 1024])])
            .layer(layer, better, &[("attn_v", &[4096, 1024]), ("ffn_down", &[14_336, 4096])])
            .layer(layer, Q4_K, &[("attn_output", &[4096, 4096]), ("ffn_norm", &[4096])])
            .layer(layer, Q4_K, &[("ffn_gate", &[4096, 14_336]), ("ffn_up", &[4096, 14_336])]);
    }
    file
}
