//! Random small deployments for the property tests.
#![allow(dead_code, reason = "each test binary uses a part")]

use llm_roofline::engine::Engine;
use llm_roofline::model::{
    Architecture, Attention, CompressedAttention, FeedForward, Indexer, KvSource, LatentAttention, Layer, Mixer, Moe,
    Reach, Recurrent, SparseSelection,
};
use llm_roofline::prelude::*;
use proptest::prelude::*;

/// A deployment as numbers that can be changed one at a time.
#[derive(Clone, Debug)]
pub struct Setup {
    pub architecture: Architecture,
    pub capacity: Bytes,
    pub bandwidth: BytesPerSecond,
    pub peak: FlopsPerSecond,
    pub link: BytesPerSecond,
    pub weights: &'static str,
    pub kv: &'static str,
    pub tensor_parallel: u32,
    pub engine: Engine,
}

impl Setup {
    /// One device of 1 TB/s, 100 TFLOP/s and much memory, 16 bits, ideal engine.
    pub fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            capacity: Bytes::from_tb(1000.0),
            bandwidth: BytesPerSecond::from_tb_per_second(1.0),
            peak: FlopsPerSecond::from_tflops_per_second(100.0),
            link: BytesPerSecond::from_gb_per_second(100.0),
            weights: "bf16",
            kv: "bf16",
            tensor_parallel: 1,
            engine: Engine::ideal(),
        }
    }

    pub fn deployment(&self) -> Deployment {
        let device = Device::from_specs("device", self.capacity, self.bandwidth, self.peak).unwrap();
        let system = System::new(device, self.tensor_parallel).unwrap().with_scale_out(self.link).unwrap();
        Deployment::new(Model::from_architecture("model", "test", self.architecture.clone()), system)
            .with_weights(self.weights.parse().unwrap())
            .with_kv(self.kv.parse().unwrap())
            .with_engine(self.engine.clone())
    }

    pub fn model(&self) -> StepModel {
        StepModel::compile(&self.deployment()).unwrap()
    }
}

/// An engine with losses everywhere: efficiencies below 1, overheads, unfused elementwise passes.
pub fn lossy_engine() -> Engine {
    Engine::from_toml(include_str!("../data/lossy-engine.toml"), "lossy-engine.toml").unwrap()
}

/// An engine that puts so many tokens into a step at most.
pub fn chunking_engine(max_tokens_per_step: u64) -> Engine {
    let text = format!(
        "{}\nmax_tokens_per_step = {{ value = {max_tokens_per_step}, kind = \"assumed\", source = \"caller\" }}\n",
        include_str!("../../engine-profiles/ideal.toml")
    );
    Engine::from_toml(&text, "chunking").unwrap()
}

pub fn attention(heads: u64, kv_heads: u64, head_dim: u64, reach: Reach) -> Attention {
    Attention {
        heads,
        kv_heads,
        head_dim,
        v_head_dim: None,
        reach,
        output_gate: false,
        kv: KvSource::Own,
        sparse: None,
    }
}

pub fn layer(mixer: Mixer, feed_forward: FeedForward, vector_params: u64) -> Layer {
    Layer { mixer, feed_forward, extra: Vec::new(), vector_params }
}

/// Equal layers of full attention: a dense model of `layers * 12 * hidden_size^2` parameters and a vocabulary.
pub fn dense(layers: u64, hidden_size: u64, kv_heads: u64) -> Architecture {
    let mixer = Mixer::Attention(attention(hidden_size / 128, kv_heads, 128, Reach::Full));
    let feed_forward = FeedForward::Dense { intermediate: hidden_size * 8 / 3, gated: true };
    let layer = layer(mixer, feed_forward, 2 * hidden_size);
    let layers = (0..layers).map(|_| ("layer".to_string(), layer.clone()));
    Architecture::from_layers(hidden_size, 32_000, 1 << 17, layers)
}

pub fn any_reach() -> impl Strategy<Value = Reach> {
    prop_oneof![
        2 => Just(Reach::Full),
        2 => (1u64..400).prop_map(Reach::Window),
        1 => (1u64..400).prop_map(Reach::Chunk),
    ]
}

fn any_selection() -> impl Strategy<Value = Option<SparseSelection>> {
    prop_oneof![
        Just(None),
        (1u64..300)
            .prop_map(|top_k| { Some(SparseSelection { top_k, indexer: Some(Indexer { heads: 4, head_dim: 16 }) }) }),
    ]
}

fn any_attention() -> impl Strategy<Value = Mixer> {
    (prop::sample::select(vec![8u64, 16]), 0u32..4, prop::sample::select(vec![16u64, 32, 64]), any_reach(), 0u8..6)
        .prop_map(|(heads, halvings, head_dim, reach, variant)| {
            let kv = match variant {
                0 => KvSource::KeyIsValue,
                1 => KvSource::Shared,
                _ => KvSource::Own,
            };
            Mixer::Attention(Attention { kv, ..attention(heads, heads >> halvings, head_dim, reach) })
        })
}

fn any_latent_attention() -> impl Strategy<Value = Mixer> {
    (prop::sample::select(vec![8u64, 16, 64]), any_selection(), any::<bool>()).prop_map(
        |(heads, sparse, compressed)| {
            Mixer::LatentAttention(LatentAttention {
                heads,
                q_lora_rank: compressed.then_some(96),
                kv_lora_rank: 128,
                qk_nope_head_dim: 32,
                qk_rope_head_dim: 16,
                v_head_dim: 32,
                output_gate: false,
                sparse,
            })
        },
    )
}

fn any_compressed_attention() -> impl Strategy<Value = Mixer> {
    (any_selection(), 1u64..200, 1u64..30).prop_map(|(sparse, window, compress_ratio)| {
        Mixer::CompressedAttention(CompressedAttention {
            heads: 8,
            head_dim: 64,
            q_lora_rank: 96,
            o_groups: 8,
            o_lora_rank: 32,
            window,
            compress_ratio,
            sparse,
        })
    })
}

fn any_recurrent() -> impl Strategy<Value = Mixer> {
    prop_oneof![
        Just(Recurrent::Mamba2 { heads: 16, head_dim: 32, groups: 1, state: 64, conv_kernel: 4 }),
        Just(Recurrent::GatedDeltaNet { key_heads: 8, value_heads: 16, key_dim: 32, value_dim: 32, conv_kernel: 4 }),
        Just(Recurrent::Lightning { heads: 8, head_dim: 64 }),
    ]
    .prop_map(Mixer::Recurrent)
}

fn any_feed_forward() -> impl Strategy<Value = FeedForward> {
    let dense =
        (1u64..5, any::<bool>()).prop_map(|(width, gated)| FeedForward::Dense { intermediate: 256 * width, gated });
    let moe = (2u64..17, 1u64..5, any::<bool>(), any::<bool>()).prop_map(|(experts, chosen, gated, shared)| {
        FeedForward::Moe(Moe {
            experts,
            experts_per_token: chosen.min(experts),
            intermediate: 256,
            gated,
            shared_intermediate: shared.then_some(256),
            latent_size: None,
            vector_params_per_expert: 0,
            shared_gate: false,
        })
    });
    prop_oneof![dense, moe]
}

/// One or two kinds of layers of every sort, up to eight layers.
pub fn any_architecture() -> impl Strategy<Value = Architecture> {
    let mixer = prop_oneof![
        4 => any_attention(),
        2 => any_latent_attention(),
        1 => any_compressed_attention(),
        1 => any_recurrent(),
    ];
    any_stack((mixer, any_feed_forward()))
}

/// Attention that keeps its own cache and dense feed-forwards only.
pub fn any_plain_architecture() -> impl Strategy<Value = Architecture> {
    let mixer =
        (0u32..4, any_reach()).prop_map(|(halvings, reach)| Mixer::Attention(attention(16, 16 >> halvings, 32, reach)));
    let feed_forward = (1u64..5).prop_map(|width| FeedForward::Dense { intermediate: 256 * width, gated: true });
    any_stack((mixer, feed_forward))
}

fn any_stack(kind: impl Strategy<Value = (Mixer, FeedForward)>) -> impl Strategy<Value = Architecture> {
    (prop::collection::vec(kind, 1..=2), 1usize..5, prop::sample::select(vec![256u64, 512]), any::<bool>()).prop_map(
        |(kinds, repeats, hidden_size, tied)| {
            let layers: Vec<(String, Layer)> = (0..repeats)
                .flat_map(|_| kinds.iter().cloned())
                .map(|(mixer, feed_forward)| ("layer".to_string(), layer(mixer, feed_forward, 2 * hidden_size)))
                .collect();
            let mut architecture = Architecture::from_layers(hidden_size, 1024, 1 << 20, layers);
            architecture.tied_embeddings = tied;
            architecture.checked().unwrap()
        },
    )
}

/// Every format whose matrices are smaller than 16 bits, in the ways in which formats differ.
pub const QUANTIZED: [&str; 7] = ["fp8", "int8", "awq-int4", "nvfp4", "mxfp4", "q4_k_m", "bits-4"];

pub fn any_setup() -> impl Strategy<Value = Setup> {
    any_setup_of(any_architecture())
}

pub fn any_setup_of(architecture: impl Strategy<Value = Architecture>) -> impl Strategy<Value = Setup> {
    let mut weights = QUANTIZED.to_vec();
    weights.push("bf16");
    (
        architecture,
        (50f64..5000.0, 5f64..2000.0, 1f64..1000.0),
        prop::sample::select(weights),
        prop::sample::select(vec!["bf16", "fp8", "q8_0"]),
        0u32..4,
        any::<bool>(),
    )
        .prop_map(|(architecture, (bandwidth, peak, link), weights, kv, doublings, lossy)| Setup {
            bandwidth: BytesPerSecond::from_gb_per_second(bandwidth),
            peak: FlopsPerSecond::from_tflops_per_second(peak),
            link: BytesPerSecond::from_gb_per_second(link),
            weights,
            kv,
            tensor_parallel: 1 << doublings,
            engine: if lossy { lossy_engine() } else { Engine::ideal() },
            ..Setup::new(architecture)
        })
}

/// One request's part in a step.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    Prefill { cached: u64, new: u64, emits: bool },
    Decode { cached: u64, new: u64, sequences: u64 },
}

impl Part {
    pub fn add_to(self, load: &mut StepLoad) {
        match self {
            Self::Prefill { cached, new, emits } => load.add_prefill(cached, new, emits),
            Self::Decode { cached, new, sequences } => load.add_decode(cached, new, sequences as f64),
        }
    }

    pub fn remove_from(self, load: &mut StepLoad) {
        match self {
            Self::Prefill { cached, new, emits } => load.remove_prefill(cached, new, emits),
            Self::Decode { cached, new, sequences } => load.remove_decode(cached, new, sequences as f64),
        }
    }
}

pub fn any_prefill() -> impl Strategy<Value = Part> {
    (0u64..2000, 1u64..600, any::<bool>()).prop_map(|(cached, new, emits)| Part::Prefill { cached, new, emits })
}

pub fn any_decode() -> impl Strategy<Value = Part> {
    (0u64..2000, 1u64..5, 1u64..100).prop_map(|(cached, new, sequences)| Part::Decode { cached, new, sequences })
}

pub fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    prop::collection::vec(prop_oneof![any_prefill(), any_decode()], 1..6)
}

pub fn load_of(model: &StepModel, parts: &[Part]) -> StepLoad {
    let mut load = model.load();
    parts.iter().for_each(|part| part.add_to(&mut load));
    load
}

/// So many cases; failures are kept in `tests/<name>.proptest-regressions`.
pub fn cases(cases: u32, regressions: &'static str) -> ProptestConfig {
    use proptest::test_runner::FileFailurePersistence;
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..ProptestConfig::with_cases(cases)
    }
}

/// Whether two numbers agree to nine digits.
pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Whether `a` is at most `b`, rounding aside.
pub fn at_most(a: Seconds, b: Seconds) -> bool {
    a <= b * (1.0 + 1e-9)
}

/// Latent attention of the shape of DeepSeek-V2 and V3, with compressed queries or without.
pub fn deepseek_attention(q_lora_rank: Option<u64>) -> LatentAttention {
    LatentAttention {
        heads: 128,
        q_lora_rank,
        kv_lora_rank: 512,
        qk_nope_head_dim: 128,
        qk_rope_head_dim: 64,
        v_head_dim: 128,
        output_gate: false,
        sparse: None,
    }
}
