//! The rules by which an engine serves many requests: what shares a step, how many run at once, what waits.

use super::ServingError;
use crate::deployment::Deployment;
use crate::engine::{Keys, Parameter, PromptPolicy};
use crate::step::StepModel;
use crate::units::Seconds;
use crate::workload::Lengths;

/// What limits the number of sequences that run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The cache is full.
    Cache,
    /// The engine runs no more (vLLM `--max-num-seqs`, TensorRT-LLM `max_batch_size`).
    Sequences,
    /// Prompts take all the tokens of the steps.
    StepTokens,
    /// No more requests are there.
    Clients,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cache => "the cache",
            Self::Sequences => "the limit of sequences",
            Self::StepTokens => "the tokens of a step",
            Self::Clients => "the clients",
        })
    }
}

/// How one replica of a deployment serves requests of some lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServingRules {
    /// When prompts are processed.
    pub prompts: PromptPolicy,
    /// Most tokens in a step, if they are limited.
    pub max_tokens_per_step: Option<u64>,
    /// Sequences that the engine runs at once at most.
    pub max_sequences: u64,
    /// Sequences whose caches fit at once: their whole answers where the engine reserves them, what they hold on average otherwise.
    pub cache_sequences: u64,
    /// Whether a request starts only if its whole answer has room.
    pub reserves_output: bool,
    /// Time of a request outside of steps.
    pub front_end: Seconds,
    /// What the first requests of an engine wait for once.
    pub first_use: Seconds,
    /// Steps of answers that a new prompt waits in the mean before the engine takes it.
    pub prompt_wait_steps: f64,
}

impl ServingRules {
    /// The rules of the deployment's engine for requests of these lengths.
    ///
    /// # Errors
    /// [`ServingError::DoesNotFit`] if not even the longest request has room, [`ServingError::Context`] if it is longer than the model allows.
    pub fn new(model: &StepModel, lengths: &Lengths) -> Result<Self, ServingError> {
        Self::sharing(model, lengths, 0.0)
    }

    /// The same where all sequences share the cache of their first `shared` tokens, which is held once (in each rank of data-parallel attention).
    pub(super) fn sharing(model: &StepModel, lengths: &Lengths, shared: f64) -> Result<Self, ServingError> {
        let deployment = model.deployment();
        let longest = lengths.longest_total();
        if let Some(limit) = deployment.context_limit().filter(|limit| longest > *limit) {
            return Err(ServingError::Context { tokens: longest, limit });
        }
        model.fit(1, longest)?;
        let scheduling = &deployment.engine().scheduling;
        let prompts = scheduling.prompts.as_ref().map(|rule| rule.value).unwrap_or_default();
        let reserves_output = scheduling.reserves_output.as_ref().is_some_and(|rule| rule.value);
        let moments = lengths.moments();
        // What a running sequence holds on average: long answers run longer, so they are seen more often.
        let held = (moments.product + 0.5 * moments.output_square) / moments.output;
        let context =
            if reserves_output || prompts == PromptPolicy::Batch { moments.prompt + moments.output } else { held };
        let ranks = u64::from(deployment.data_parallel_attention());
        let own = (context - shared).max(1.0).ceil();
        let once = (ranks as f64 * shared / own).ceil() as u64;
        let fitting = model.memory().max_sequences(own as u64);
        let cache_sequences = fitting.map_or(u64::MAX, |sequences| sequences.saturating_sub(once)).max(1);
        Ok(Self {
            prompts,
            max_tokens_per_step: deployment.max_tokens_per_step().map(|tokens| tokens.saturating_mul(ranks)),
            max_sequences: deployment.max_running_sequences().map_or(u64::MAX, |limit| limit.saturating_mul(ranks)),
            cache_sequences,
            reserves_output,
            front_end: host_time(deployment, &deployment.engine().host.per_request),
            first_use: host_time(deployment, &deployment.engine().host.first_use),
            prompt_wait_steps: scheduling.prompt_wait_steps.as_ref().map_or(0.0, |steps| steps.value),
        })
    }

    /// Sequences that run at once at most, and why no more.
    pub fn slots(&self) -> (u64, Limit) {
        if self.cache_sequences < self.max_sequences {
            (self.cache_sequences, Limit::Cache)
        } else {
            (self.max_sequences, Limit::Sequences)
        }
    }
}

/// A time of the host on this hardware.
fn host_time(deployment: &Deployment, parameter: &Option<Parameter<Seconds>>) -> Seconds {
    let keys = deployment.system().device().kernel_keys();
    let generation = keys.each_ref().map(String::as_str);
    let format = [deployment.weights().kernel_key()];
    let keys = Keys { generation: &generation, format: &format };
    parameter.as_ref().map_or(Seconds::ZERO, |parameter| Seconds::from_seconds(parameter.at(&keys).value))
}
