//! Every engine on every generation of devices, models of every kind, layouts and loads.

use llm_roofline::engine::{Arithmetic, Parameter, Positive};
use llm_roofline::hardware::DeviceProfile;
use llm_roofline::prelude::*;
use llm_roofline::profile::Sourced;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::{Arc, LazyLock};

/// One device of every generation of the catalog, with memory for any of the models.
pub static DEVICES: LazyLock<Vec<Arc<Device>>> = LazyLock::new(|| {
    let mut devices: Vec<Arc<Device>> = Vec::new();
    for device in Catalog::embedded().devices().map(|entry| entry.load().unwrap()) {
        if !devices.iter().any(|known| known.kernel_keys() == device.kernel_keys()) {
            let mut profile = device.profile().clone();
            profile.memory.capacity.value = Bytes::from_tb(1000.0);
            profile.memory.usable = None;
            devices.push(Arc::new(Device::new(profile).unwrap()));
        }
    }
    devices
});

pub static ENGINES: LazyLock<Vec<Arc<Engine>>> =
    LazyLock::new(|| Catalog::embedded().engines().map(|entry| entry.load().unwrap()).collect());

/// Dense with grouped queries, multi-head, mixture of experts, latent attention, sliding windows, recurrences.
pub const MODELS: [&str; 8] = [
    "llama-3.1-8b",
    "llama-2-7b",
    "qwen3-30b-a3b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "gemma-3-4b",
    "gpt-oss-20b",
    "qwen3-next-80b-a3b",
];
pub const WEIGHTS: [&str; 7] = ["bf16", "fp8", "awq-int4", "mxfp4", "q4_0", "q4_k_m", "q8_0"];

/// What a step has to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub sequences: u64,
    pub context: u64,
    pub prompt: u64,
    pub cached: u64,
}

impl Work {
    pub fn load(&self, model: &StepModel) -> StepLoad {
        let mut load = model.load();
        if self.sequences > 0 {
            load.add_decode(self.context, 1, self.sequences as f64);
        }
        if self.prompt > 0 {
            load.add_prefill(self.cached, self.prompt, true);
        }
        load
    }

    pub fn time(&self, deployment: &Deployment) -> Seconds {
        let model = compiled(deployment);
        model.cost(&self.load(&model)).total()
    }
}

pub fn any_work() -> impl Strategy<Value = Work> {
    let decode = (prop_oneof![1u64..9, 9u64..600], 0u64..30_000);
    let prompt = (prop_oneof![1u64..40, 40u64..8000], prop_oneof![Just(0u64), 1u64..20_000]);
    prop_oneof![
        decode.clone().prop_map(|(sequences, context)| Work { sequences, context, prompt: 0, cached: 0 }),
        prompt.clone().prop_map(|(prompt, cached)| Work { sequences: 0, context: 0, prompt, cached }),
        (decode, prompt).prop_map(|((sequences, context), (prompt, cached))| Work {
            sequences,
            context,
            prompt,
            cached
        }),
    ]
}

/// How a model is laid out over devices.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    One,
    Tensor(u32),
    Pipeline(u32),
    TensorPipeline,
    Experts(u32),
    DataParallelAttention(u32),
}

pub const LAYOUTS: [Layout; 7] = [
    Layout::One,
    Layout::Tensor(2),
    Layout::Tensor(4),
    Layout::Pipeline(3),
    Layout::TensorPipeline,
    Layout::Experts(4),
    Layout::DataParallelAttention(4),
];

pub fn on(device: &Arc<Device>, model: &str, weights: &str, engine: &Arc<Engine>, layout: Layout) -> Deployment {
    let system = |count| System::new(Arc::clone(device), count).unwrap();
    let alone = |count| {
        Deployment::new(Catalog::embedded().model(model).unwrap(), system(count))
            .with_weights(weights.parse().unwrap())
            .with_engine(Arc::clone(engine))
            .with_long_context_allowed()
            .with_tensor_parallel(1)
    };
    match layout {
        Layout::One => alone(1),
        Layout::Tensor(count) => alone(count).with_tensor_parallel(count),
        Layout::Pipeline(count) => alone(count).with_pipeline_parallel(count),
        Layout::TensorPipeline => alone(4).with_tensor_parallel(2).with_pipeline_parallel(2),
        Layout::Experts(count) => alone(count).with_tensor_parallel(count).with_expert_parallel(count),
        Layout::DataParallelAttention(count) => {
            alone(count).with_data_parallel_attention(count).with_expert_parallel(count)
        }
    }
}

pub fn compiled(deployment: &Deployment) -> StepModel {
    StepModel::compile(deployment).unwrap_or_else(|error| panic!("{error}"))
}

/// Experts are only spread where there are some.
pub fn possible(model: &str, layout: Layout) -> bool {
    let spread = matches!(layout, Layout::Experts(_) | Layout::DataParallelAttention(_));
    !spread
        || matches!(model, "qwen3-30b-a3b" | "mixtral-8x7b" | "deepseek-v2-lite" | "gpt-oss-20b" | "qwen3-next-80b-a3b")
}

/// A deployment by its names, so that failures are short to read.
#[derive(Clone, Copy)]
pub struct Chosen {
    device: usize,
    engine: usize,
    model: &'static str,
    weights: &'static str,
    layout: Layout,
    flash_attention: Option<bool>,
    /// Whether the sequences of a decode step are split over the stages of a pipeline.
    splits: bool,
}

impl Chosen {
    pub fn deployment(&self) -> Deployment {
        let mut engine = Arc::clone(&ENGINES[self.engine]);
        if self.splits {
            Arc::make_mut(&mut engine).scheduling.splits_decode_batches = Some(Sourced::assumed(true));
        }
        let deployment = on(&DEVICES[self.device], self.model, self.weights, &engine, self.layout);
        match self.flash_attention {
            Some(fused) => deployment.with_flash_attention(fused),
            None => deployment,
        }
    }
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fused = match self.flash_attention {
            Some(true) => "fused attention",
            Some(false) => "unfused attention",
            None => "the engine's attention",
        };
        let splits = if self.splits { ", batches split" } else { "" };
        write!(f, "{}, {fused}{splits}", what(&self.deployment()))
    }
}

pub fn any_deployment() -> impl Strategy<Value = Chosen> {
    let parts = (
        0..DEVICES.len(),
        0..ENGINES.len(),
        select(&MODELS[..]),
        select(&WEIGHTS[..]),
        select(&LAYOUTS[..]),
        prop::option::of(any::<bool>()),
        any::<bool>(),
    );
    parts.prop_map(|(device, engine, model, weights, layout, flash_attention, splits)| {
        let layout = if possible(model, layout) { layout } else { Layout::One };
        Chosen { device, engine, model, weights, layout, flash_attention, splits }
    })
}

/// The deployment under engines without losses that schedule the same work: with the units that number formats ask for, and with the units
/// that the engine uses instead.
pub fn at_peak(deployment: &Deployment) -> [Deployment; 2] {
    let engine = deployment.engine();
    let mut native = Engine::ideal();
    (native.scheduling, native.sources) = (engine.scheduling.clone(), engine.sources.clone());
    // These choose kernels, and no kernel beats the hardware.
    (native.scheduling.vector_rows, native.scheduling.unshared_expert_rows) = (None, None);
    let mut units = native.clone();
    units.arithmetic = engine.arithmetic.clone();
    if engine.arithmetic != Arithmetic::default() {
        let unlimited = Some(Parameter::assumed(Positive(1e6)));
        (units.gemm.compute, units.experts.compute) = (unlimited.clone(), unlimited);
    }
    [native, units]
        .map(|engine| deployment.clone().with_engine(engine).with_flash_attention(deployment.flash_attention()))
}

pub fn with_device(deployment: &Deployment, change: impl Fn(&mut DeviceProfile)) -> Deployment {
    let mut profile = deployment.system().device().profile().clone();
    change(&mut profile);
    let system = System::new(Device::new(profile).unwrap(), deployment.system().count()).unwrap();
    deployment.clone().with_system(system)
}

pub fn scale_compute(profile: &mut DeviceProfile, factor: f64) {
    let compute = &mut profile.compute;
    let peaks = [
        &mut compute.fp32,
        &mut compute.tf32,
        &mut compute.fp16,
        &mut compute.fp16_fp16_accumulate,
        &mut compute.bf16,
        &mut compute.fp8,
        &mut compute.fp8_fp16_accumulate,
        &mut compute.int8,
        &mut compute.fp6,
        &mut compute.fp4,
        &mut compute.int4,
    ];
    for peak in peaks.into_iter().flatten() {
        peak.value = peak.value * factor;
    }
}

pub fn what(deployment: &Deployment) -> String {
    let (engine, device) = (&deployment.engine().slug, deployment.system().device().slug());
    let layout = format!(
        "tp {} pp {} ep {} dp {}",
        deployment.tensor_parallel(),
        deployment.pipeline_parallel(),
        deployment.expert_parallel(),
        deployment.data_parallel_attention()
    );
    format!("{engine}, {device}, {}, {}, {layout}", deployment.model().name, deployment.weights())
}
