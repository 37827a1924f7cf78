//! Which number of a data sheet the latency of a request is made of.

use super::{Request, RequestError};
use crate::step::{ResourceShares, StepSensitivity};
use crate::units::Seconds;
use serde::Serialize;

/// The latency of an unloaded request, by the resources that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RequestShares {
    /// Of the time to first token.
    pub prefill: ResourceShares,
    /// Of all decode steps together; the elasticities are those of the time per output token.
    pub decode: ResourceShares,
}

impl RequestShares {
    /// Of the end-to-end latency.
    pub fn e2e(&self) -> ResourceShares {
        let mut both = self.prefill.clone();
        both += &self.decode;
        both
    }
}

impl StepSensitivity<'_> {
    /// What the latency of an unloaded request is made of: the sum over its prefill steps, and the closed form of its decode steps.
    ///
    /// # Errors
    /// [`RequestError`] as [`StepModel::request`](crate::step::StepModel::request).
    ///
    /// ```
    /// use llm_roofline::deployment::Spec;
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system))?;
    /// let shares = model.sensitivity()?.request_shares(&Request::new(4000, 200))?;
    /// // The prompt waits for arithmetic, the answer for memory.
    /// assert_eq!(shares.prefill.largest(), Some(Spec::ComputeAll));
    /// assert_eq!(shares.decode.largest(), Some(Spec::MemoryBandwidth));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request_shares(&self, request: &Request) -> Result<RequestShares, RequestError> {
        // Refuses what cannot be answered.
        self.model().request(request)?;
        let decode = self.decode_shares(request.batch, request.prompt_tokens, request.output_tokens - 1);
        Ok(RequestShares { prefill: self.prefill_shares(request), decode })
    }

    /// Steps that overlap in a pipeline take `g(l) T` of their sum `T`, with the share `l` of the longest: its derivative is `(g - g' l) dT + g' d(longest)`.
    fn prefill_shares(&self, request: &Request) -> ResourceShares {
        let (mut all, mut longest) = (ResourceShares::default(), ResourceShares::default());
        self.model().each_prefill_step(request, |load| {
            let step = self.shares(load);
            all += &step;
            if step.total() > longest.total() {
                longest = step;
            }
        });
        if all.total() <= Seconds::ZERO || longest.total() >= all.total() {
            return all;
        }
        let share = longest.total() / all.total();
        let (value, slope) = (self.model().prompt_pipeline_share(share), self.model().prompt_pipeline_slope(share));
        let mut overlapped = all * (value - slope * share);
        overlapped += &(longest * slope);
        overlapped
    }
}
