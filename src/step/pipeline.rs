//! Layers over devices one after another: how much of a step runs at the same time in different stages.

use crate::deployment::Deployment;
use crate::engine::{Keys, Number, Parameter};

/// The pipeline of a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pipeline {
    stages: f64,
    /// Micro-batches of a prompt that are under way at once.
    in_flight: f64,
    splits_decode_batches: bool,
    imbalance: f64,
    prompt_loss: f64,
    /// Share of the time of one pass that the slowest stage takes, where stages differ.
    longest_stage: Option<f64>,
}

impl Pipeline {
    /// Micro-batches follow one another no faster than the slowest stage works; beside a host they do not.
    pub(super) fn new(deployment: &Deployment, longest_stage: Option<f64>) -> Self {
        let (law, scheduling) = (&deployment.engine().pipeline, &deployment.engine().scheduling);
        let stages = f64::from(deployment.pipeline_parallel());
        let number = |parameter: &Option<Parameter<Number>>| {
            parameter.as_ref().map_or(0.0, |parameter| parameter.at(&Keys::default()).value)
        };
        let in_flight = scheduling.micro_batches_in_flight.as_ref().map_or(1.0, |count| count.value as f64);
        let most = if deployment.has_parts_on_host() { 1.0 } else { longest_stage.map_or(stages, f64::recip) };
        Self {
            stages,
            longest_stage,
            in_flight: in_flight.min(stages).min(most),
            splits_decode_batches: scheduling.splits_decode_batches.as_ref().is_some_and(|splits| splits.value),
            imbalance: number(&law.imbalance),
            prompt_loss: number(&law.prompt_loss),
        }
    }

    /// Micro-batches that the sequences of a decode step are split into.
    ///
    /// With as many as stages, every stage always works on one of them; each still passes all stages, so that a step takes as long as one of them
    /// does alone.
    #[inline]
    pub(super) fn decode_micro_batches(&self, sequences: f64) -> f64 {
        if self.splits_decode_batches { sequences.clamp(1.0, self.stages) } else { 1.0 }
    }

    /// Time with unequal stages over that with equal ones, when all of them work.
    #[inline]
    pub(super) fn stage_loss(&self, micro_batches: f64) -> f64 {
        if micro_batches <= 1.0 {
            return 1.0;
        }
        let slowest = self.longest_stage.map_or(1.0, |share| (micro_batches * share).max(1.0));
        slowest * (1.0 + self.imbalance * (self.stages - 1.0))
    }

    /// Share of the time of the steps of prompts that they take when they follow one another through the stages, of which the longest takes the
    /// share `longest` of that time.
    ///
    /// # Formula
    /// `(1 + (q - 1) longest) / q * (1 + loss (1 - longest))` for `q` steps in flight: all steps pass one stage, the longest one the others as
    /// well. 1 for one step; `(u + q - 1) / (u q)` for `u` equal ones, near `1/q` for many.
    pub(super) fn prompt_share(&self, longest: f64) -> f64 {
        let q = self.in_flight;
        (1.0 + (q - 1.0) * longest) / q * if q > 1.0 { 1.0 + self.prompt_loss * (1.0 - longest) } else { 1.0 }
    }

    /// The derivative of [`prompt_share`](Self::prompt_share).
    pub(super) fn prompt_share_slope(&self, longest: f64) -> f64 {
        let q = self.in_flight;
        if q <= 1.0 {
            return 0.0;
        }
        let loss = self.prompt_loss;
        ((q - 1.0) * (1.0 + loss * (1.0 - longest)) - (1.0 + (q - 1.0) * longest) * loss) / q
    }
}
