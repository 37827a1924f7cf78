//! Which phase of a request takes how much of a replica's time.

use super::Server;
use crate::step::StepModel;
use crate::units::Seconds;
use serde::Serialize;

/// Time of one replica that a mean request takes, by phase, when there are always more requests than can run.
///
/// # Formula
/// ```text
/// prefill + decode = 1 / max_rate
/// prefill = (step with prompts - step without) / prompts in it
/// ```
/// A mixed step reads the weights once for prompts and answers. They are counted as the answers', whose sequences run in every step; prompts pay what they add. Engines
/// that process prompts in steps of their own, and static batches, have nothing to divide: prompts pay their steps.
///
/// # Validity
/// At saturation. With few requests at once a step without prompts is dearer per token, so that decode takes a larger share. The shares are about money and energy; they say
/// nothing about latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PhaseTimes {
    /// What the prompt takes.
    pub prefill: Seconds,
    /// The part of `prefill` that is owed to tokens found in the prefix cache: new tokens attend to them.
    pub cached: Seconds,
    /// What the tokens after the first one take, and what no prompt is to blame for.
    pub decode: Seconds,
}

impl PhaseTimes {
    /// Both phases: the replica's time per request.
    pub fn total(&self) -> Seconds {
        self.prefill + self.decode
    }

    /// The share of the replica's time that is prefill.
    pub fn prefill_share(&self) -> f64 {
        self.prefill / self.total()
    }
}

/// Tokens of the mean request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MeanTokens {
    /// Prompt tokens that are computed.
    pub input: f64,
    /// Prompt tokens that are found in the prefix cache.
    pub cached: f64,
    /// Tokens of the answer.
    pub output: f64,
}

impl Server<'_> {
    /// Time of the replica that one mean request takes of each phase when the replica is saturated.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::Server;
    /// use llm_roofline::workload::Lengths;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let chat = Server::new(&model, &Lengths::fixed(500, 500)?)?.phase_times();
    /// let documents = Server::new(&model, &Lengths::fixed(8000, 100)?)?.phase_times();
    /// assert!(chat.prefill_share() < 0.4 && documents.prefill_share() > 0.6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn phase_times(&self) -> PhaseTimes {
        let total = self.max_rate().interval();
        let prefill = self.saturated_prefill().max(Seconds::ZERO).min(total);
        let owed = 1.0 - self.mix.alone_uncached / self.mix.alone;
        let cached = if self.mix.cached_tokens > 0.0 { prefill * owed.clamp(0.0, 1.0) } else { Seconds::ZERO };
        PhaseTimes { prefill, cached, decode: total - prefill }
    }

    /// What one prompt adds at saturation.
    fn saturated_prefill(&self) -> Seconds {
        if let Some(whole) = &self.whole {
            return whole.prefill_per_request();
        }
        if self.mix.decode_steps <= 0.0 {
            return self.max_rate().interval();
        }
        let operating = self.saturated();
        let pattern = operating.pattern;
        // A request that is alone has its prompt to itself.
        if pattern.prompts > 0.0 { (pattern.busy - pattern.pure) / pattern.prompts } else { operating.first.own }
    }

    /// Tokens of the mean request, by what they cost.
    pub fn mean_tokens(&self) -> MeanTokens {
        let mix = &self.mix;
        MeanTokens { input: mix.prompt_tokens, cached: mix.cached_tokens, output: mix.output_tokens }
    }

    /// The deployment that serves, compiled.
    pub const fn model(&self) -> &StepModel {
        self.mix.model()
    }
}
