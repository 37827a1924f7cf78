//! Targets of every kind under engines of every kind, and ways to speculate for them.

use llm_roofline::prelude::*;
use llm_roofline::speculative::{Acceptance, Method, Proposal, Speculation, SpeculativeModel};
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::{Arc, LazyLock};

pub const ENGINES: [&str; 8] = [
    "ideal",
    "vllm-2024",
    "vllm-2026",
    "sglang-2026",
    "tensorrt-llm-2026",
    "llama-cpp-cuda-2026",
    "llama-cpp-cuda-2024",
    "transformers",
];

/// Dense with grouped queries, dense multi-head, mixtures of experts, latent attention with and without selection, sliding windows, hybrids.
pub const MODELS: [&str; 10] = [
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-2-13b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
    "deepseek-v2-lite",
    "deepseek-v3.2",
    "gemma-3-4b",
    "gpt-oss-20b",
    "qwen3-next-80b-a3b",
];
const WEIGHTS: [&str; 4] = ["bf16", "fp8", "awq-int4", "q4_k_m"];
const METHODS: [Method; 7] =
    [Method::NGram, Method::Eagle3, Method::Eagle2, Method::Medusa, Method::DFlash, Method::Mtp, Method::DraftModel];

/// A few generations, with memory for any of the models and batches.
static DEVICES: LazyLock<Vec<Arc<Device>>> = LazyLock::new(|| {
    let roomy = |name| {
        let mut profile = Catalog::embedded().device(name).unwrap().profile().clone();
        profile.memory.capacity.value = Bytes::from_tb(1000.0);
        profile.memory.usable = None;
        Arc::new(Device::new(profile).unwrap())
    };
    ["h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm-180gb", "rtx-4090-24gb"].map(roomy).to_vec()
});

/// A deployment on devices whose memory never ends, by its names.
pub fn serve(model: &str, engine: &str, tensor_parallel: u32) -> Deployment {
    serve_on(0, model, "bf16", Catalog::embedded().engine(engine).unwrap(), tensor_parallel)
}

fn serve_on(device: usize, model: &str, weights: &str, engine: Arc<Engine>, tensor_parallel: u32) -> Deployment {
    let catalog = Catalog::embedded();
    Deployment::new(catalog.model(model).unwrap(), System::new(Arc::clone(&DEVICES[device]), tensor_parallel).unwrap())
        .with_weights(weights.parse().unwrap())
        .with_engine(engine)
        .with_tensor_parallel(tensor_parallel)
        .with_long_context_allowed()
}

/// A target and a method, by name, so that failures are short to read.
#[derive(Clone, Debug)]
pub struct Case {
    pub model: &'static str,
    pub device: usize,
    pub weights: &'static str,
    pub engine: &'static str,
    pub tensor_parallel: u32,
    pub method: Method,
    pub proposal: Proposal,
    pub rate: f64,
}

impl Case {
    /// EAGLE-3 with chains of three for a target in 16 bits on one H100.
    pub fn new(model: &'static str, engine: &'static str) -> Self {
        let proposal = Proposal::chain(3).unwrap();
        let (weights, method) = ("bf16", Method::Eagle3);
        Self { model, device: 0, weights, engine, tensor_parallel: 1, method, proposal, rate: 0.7 }
    }

    pub fn target(&self) -> Deployment {
        self.target_under(Catalog::embedded().engine(self.engine).unwrap())
    }

    fn target_under(&self, engine: Arc<Engine>) -> Deployment {
        serve_on(self.device, self.model, self.weights, engine, self.tensor_parallel)
    }

    pub fn speculation(&self) -> Speculation {
        self.speculation_for(&self.target())
    }

    fn speculation_for(&self, target: &Deployment) -> Speculation {
        let speculation = match self.method {
            Method::DraftModel => {
                let engine = Arc::new(target.engine().clone());
                Speculation::draft_model(serve_on(self.device, "llama-3.2-1b", "bf16", engine, 1))
            }
            method => Speculation::new(method, target).unwrap(),
        };
        speculation.with_proposal(self.proposal).with_acceptance(Acceptance::rate(self.rate).unwrap())
    }

    pub fn compile(&self) -> SpeculativeModel {
        SpeculativeModel::compile(&self.target(), &self.speculation()).unwrap()
    }

    /// The same if the engine had no vector kernels for few rows: where it has, prices may jump down when it switches to matrix kernels.
    pub fn compile_with_matrix_kernels(&self) -> SpeculativeModel {
        let mut engine = Catalog::embedded().engine(self.engine).unwrap().as_ref().clone();
        (engine.scheduling.vector_rows, engine.scheduling.unshared_expert_rows) = (None, None);
        let target = self.target_under(Arc::new(engine));
        SpeculativeModel::compile(&target, &self.speculation_for(&target)).unwrap()
    }
}

pub fn any_chain() -> impl Strategy<Value = Proposal> {
    (1u64..17).prop_map(|draft_tokens| Proposal::chain(draft_tokens).unwrap())
}

pub fn any_tree() -> impl Strategy<Value = Proposal> {
    (1u64..9, 1u64..8, 0f64..=1.0).prop_map(|(top_k, depth, share)| {
        let nodes: u64 = (1..=depth as u32).map(|level| top_k.pow(level)).sum();
        let draft_tokens = (share * nodes.min(64) as f64).ceil().max(1.0);
        Proposal::tree(top_k, depth, draft_tokens as u64).unwrap()
    })
}

pub fn any_proposal() -> impl Strategy<Value = Proposal> {
    prop_oneof![3 => any_chain(), 2 => any_tree()]
}

/// Any rate, the ends often enough.
pub fn any_rate() -> impl Strategy<Value = f64> {
    prop_oneof![6 => 0f64..=1.0, 1 => Just(0.0), 1 => Just(1.0)]
}

pub fn any_case() -> impl Strategy<Value = Case> {
    any_case_of(any_proposal())
}

pub fn any_case_of(proposal: impl Strategy<Value = Proposal>) -> impl Strategy<Value = Case> {
    let parts = (
        select(&MODELS[..]),
        0..DEVICES.len(),
        select(&WEIGHTS[..]),
        select(&ENGINES[..]),
        0u32..4,
        select(&METHODS[..]),
        proposal,
        any_rate(),
    );
    parts.prop_map(|(model, device, weights, engine, doublings, method, proposal, rate)| {
        let tensor_parallel = 1 << doublings;
        Case { model, device, weights, engine, tensor_parallel, method, proposal, rate }
    })
}

pub fn any_batch() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 1u64..9, 2 => 1u64..65, 1 => 1u64..=512]
}

pub fn any_context() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..600, 1u64..8_000, 1u64..100_000]
}
