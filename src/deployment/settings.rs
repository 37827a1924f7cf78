//! Settings of the engine that users change: each makes a variant of the deployment's engine.

use super::Deployment;
use crate::engine::{ByDevice, Engine};
use crate::profile::Sourced;
use std::sync::Arc;

impl Deployment {
    /// With another share of memory for the engine (vLLM `--gpu-memory-utilization`, SGLang `--mem-fraction-static`, TensorRT-LLM
    /// `free_gpu_memory_fraction`); what it is a share of is the engine's rule.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2024")?);
    /// let more = deployment.clone().with_memory_fraction(0.95).memory_plan(1, 1).capacity - deployment.memory_plan(1, 1).capacity;
    /// assert_eq!(format!("{:.2} GiB", more.as_gib()), "3.96 GiB");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_memory_fraction(self, fraction: f64) -> Self {
        self.with_setting(|engine| {
            engine.memory.fraction = Some(ByDevice::assumed(fraction));
            engine.memory.reserve = None;
            engine.memory.reserve_per_device = None;
        })
    }

    /// With steps of at most so many tokens (vLLM `--max-num-batched-tokens`, llama.cpp `--ubatch-size`, SGLang `--chunked-prefill-size`).
    #[must_use]
    pub fn with_max_tokens_per_step(self, tokens: u64) -> Self {
        self.with_setting(|engine| {
            engine.scheduling.max_tokens_per_step = Some(ByDevice::assumed(tokens));
            engine.memory.profiled_tokens = None;
            engine.memory.whole_prompts_up_to = None;
        })
    }

    /// With at most so many sequences at once (vLLM `--max-num-seqs`).
    #[must_use]
    pub fn with_max_sequences(self, sequences: u64) -> Self {
        self.with_setting(|engine| {
            engine.memory.max_sequences = Some(ByDevice::assumed(sequences));
            engine.scheduling.max_sequences = None;
        })
    }

    /// With so many steps of answers that a new prompt waits in the mean (half of SGLang `--scheduler-recv-interval`, TensorRT-LLM
    /// `batch_wait_timeout_iters`).
    #[must_use]
    pub fn with_prompt_wait_steps(self, steps: f64) -> Self {
        self.with_setting(|engine| engine.scheduling.prompt_wait_steps = Some(Sourced::assumed(steps)))
    }

    /// With blocks of the cache of so many tokens (vLLM `--block-size`).
    #[must_use]
    pub fn with_block_tokens(self, tokens: u64) -> Self {
        self.with_setting(|engine| engine.memory.block_tokens = Some(Sourced::assumed(tokens)))
    }

    fn with_setting(self, set: impl FnOnce(&mut Engine)) -> Self {
        let mut engine = Engine::clone(&self.engine);
        set(&mut engine);
        Self { engine: Arc::new(engine), ..self }
    }

    /// Tokens of the step that memory is set aside for: what the engine profiles, or else its largest step.
    pub(crate) fn memory_step_tokens(&self) -> u64 {
        let (rules, device) = (&self.engine.memory, self.system.device());
        let profiled = rules.profiled_tokens.as_ref().map(|tokens| tokens.on(device));
        profiled.or(self.max_tokens_per_step()).unwrap_or(0)
    }

    /// Most tokens in one step, if the engine limits them.
    pub fn max_tokens_per_step(&self) -> Option<u64> {
        let limit = self.engine.scheduling.max_tokens_per_step.as_ref();
        limit.map(|tokens| tokens.on(self.system.device()).max(1))
    }

    /// Most sequences that the engine runs at once, if it limits them.
    pub fn max_running_sequences(&self) -> Option<u64> {
        let limit = self.engine.scheduling.max_sequences.as_ref();
        limit.map(|sequences| sequences.on(self.system.device())).or_else(|| self.memory_sequences())
    }

    /// Sequences that memory is set aside for, if the engine limits them.
    pub(crate) fn memory_sequences(&self) -> Option<u64> {
        self.engine.memory.max_sequences.as_ref().map(|sequences| sequences.on(self.system.device()))
    }
}
