//! Rows of `data/memory_vllm.csv` as deployments.

pub mod drafter;
#[path = "../common/table.rs"]
mod table;

use llm_roofline::memory::{KvPool, MemoryModel, MemoryPlan};
use llm_roofline::prelude::*;
use table::Row;

/// One start-up log.
pub struct Log(Row);

/// Every log.
pub fn all() -> Vec<Log> {
    table::rows(include_str!("../data/memory_vllm.csv")).into_iter().map(Log).collect()
}

/// The log of that name.
pub fn of(id: &str) -> Log {
    all().into_iter().find(|log| log.id() == id).unwrap_or_else(|| panic!("no log {id}"))
}

impl Log {
    pub fn id(&self) -> &str {
        self.0.id()
    }

    pub fn title(&self) -> String {
        format!(
            "{} {} TP{} PP{} {}",
            self.text("model"),
            self.text("weights"),
            self.text("tp"),
            self.text("pp"),
            self.text("engine")
        )
    }

    pub fn text(&self, column: &str) -> &str {
        self.0.text(column)
    }

    /// A number, if it was printed.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.0.stated(column)
    }

    fn count(&self, column: &str) -> Option<u64> {
        self.number(column).map(|number| number as u64)
    }

    /// `--max-model-len`, or the model's own.
    pub fn longest_context(&self) -> u64 {
        let of_model = || self.model().architecture().expect("a known architecture").max_context_tokens;
        self.count("max_model_len").unwrap_or_else(of_model)
    }

    fn model(&self) -> Model {
        Catalog::embedded().model(self.text("model")).unwrap().as_ref().clone()
    }

    /// Bytes of the weights outside of the text tower, in 16 bits on every device.
    pub fn vision_tower(&self) -> Bytes {
        let published = self.model().published.and_then(|published| published.params_outside_decoder);
        let parameters = published.filter(|_| self.text("model").starts_with("gemma")).unwrap_or(0).max(0);
        Bytes::from_bytes(2.0 * parameters as f64)
    }

    /// The configuration, nothing else.
    pub fn deployment(&self) -> Deployment {
        let catalog = Catalog::embedded();
        let device = catalog.device(self.text("device")).unwrap().as_ref().clone();
        let device = match self.number("visible_gib") {
            Some(visible) => with_visible(device, Bytes::from_gib(visible)),
            None => device,
        };
        let count = self.count("count").unwrap() as u32;
        let system = System::new(device, count).unwrap();
        let mut deployment = Deployment::new(self.model(), system)
            .with_engine(catalog.engine(self.text("engine")).unwrap())
            .with_weights(self.text("weights").parse().unwrap())
            .with_kv(self.text("kv").parse().unwrap())
            .with_tensor_parallel(self.count("tp").unwrap() as u32)
            .with_pipeline_parallel(self.count("pp").unwrap() as u32);
        if let Some(utilization) = self.number("utilization") {
            deployment = deployment.with_memory_fraction(utilization);
        }
        if let Some(tokens) = self.count("max_batched_tokens") {
            deployment = deployment.with_max_tokens_per_step(tokens);
        }
        if let Some(sequences) = self.count("max_sequences") {
            deployment = deployment.with_max_sequences(sequences);
        }
        if let Some(tokens) = self.count("block_tokens") {
            deployment = deployment.with_block_tokens(tokens);
        }
        deployment
    }

    /// What a device of the first stage holds, which prints first.
    pub fn plan_of_first_stage(&self) -> MemoryPlan {
        let model = MemoryModel::new(&self.deployment());
        let (_, plan) = model.plans(1, self.longest_context()).next().expect("a stage");
        plan
    }

    /// [`pool_as_printed`] of the configuration.
    pub fn pool_as_printed(&self) -> Option<KvPool> {
        pool_as_printed(self, &MemoryModel::new(&self.deployment()))
    }

    /// The pool of the printed GiB as they stand.
    pub fn pool_from_gib(&self) -> Option<KvPool> {
        let memory = Bytes::from_gib(self.number("kv_gib")?);
        Some(MemoryModel::new(&self.deployment()).kv_pool_in(memory, self.longest_context()))
    }

    /// What the log says about the size of the pool, most exact first: name, printed, found.
    pub fn printed_size(&self, pool: &KvPool) -> (&'static str, f64, f64) {
        let sizes = [
            ("tokens", self.number("tokens"), pool.tokens as f64),
            ("blocks", self.number("blocks"), pool.blocks as f64),
            ("GiB", self.number("kv_gib"), pool.memory.as_gib()),
        ];
        let printed = sizes.into_iter().find_map(|(what, printed, found)| Some((what, printed?, found)));
        printed.unwrap_or_else(|| panic!("{}: no size printed", self.id()))
    }
}

/// The smallest pool that has the printed memory, to its two decimals, and agrees with everything that the log prints in
/// blocks, tokens and sequences, to the last digit.
pub fn pool_as_printed(log: &Log, model: &MemoryModel) -> Option<KvPool> {
    let block = model.kv_pool_in(Bytes::from_gib(1.0), log.longest_context()).block_bytes;
    let pool = |blocks: u64| model.kv_pool_in(block * (blocks as f64 + 0.5), log.longest_context());
    let agrees = |found: &KvPool| {
        let blocks = log.number("blocks").is_none_or(|printed| found.blocks as f64 == printed);
        let tokens = log.number("tokens").is_none_or(|printed| found.tokens as f64 == printed);
        let concurrency = log.number("concurrency").is_none_or(|printed| (found.concurrency - printed).abs() < 0.00501);
        blocks && tokens && concurrency
    };
    let tolerance = log.number("pool_tol_pct").unwrap_or(0.0) / 100.0;
    let blocks = |gib: f64| (Bytes::from_gib(gib.max(0.0)) / block) as u64;
    let admitted =
        |gib: f64| blocks((gib - ROUNDING_GIB) * (1.0 - tolerance))..=blocks((gib + ROUNDING_GIB) * (1.0 + tolerance));
    log.number("kv_gib").map_or(0..=1 << 20, admitted).map(pool).find(agrees)
}

/// Two decimals are printed.
const ROUNDING_GIB: f64 = 0.0051;

/// The same device with so much memory visible.
fn with_visible(device: Device, visible: Bytes) -> Device {
    let share =
        device.usable_memory() / device.clone().with_memory_capacity(Bytes::from_gib(1.5)).unwrap().usable_memory();
    let capacity = Bytes::from_gib(1.5) * (share * (visible / device.usable_memory()));
    device.with_memory_capacity(capacity).unwrap()
}
