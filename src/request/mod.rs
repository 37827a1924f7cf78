//! One unloaded request, or a batch of equal ones: no queue, nobody else on the system.
//!
//! ```
//! use llm_roofline::prelude::*;
//!
//! // 70 billion parameters at 4 bits, read at 1000 GB/s: 35 ms per token.
//! let model = Model::from_totals("70B at 4 bits", Totals::dense(70_000_000_000, 4.0, Bytes::ZERO));
//! let card = Device::from_specs(
//!     "1000 GB/s card",
//!     Bytes::from_gb(48.0),
//!     BytesPerSecond::from_gb_per_second(1000.0),
//!     FlopsPerSecond::from_tflops_per_second(165.0),
//! )?;
//! let model = StepModel::compile(&Deployment::new(model, System::new(card, 1)?))?;
//! let answer = model.request(&Request::new(100, 200))?;
//! assert_eq!(answer.tpot.unwrap().to_string(), "35.0 ms");
//! assert_eq!(format!("{:.2}", answer.tps_per_stream.unwrap()), "28.57 tok/s");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod diagnosis;
mod estimate;
mod exhaustion;
mod prefill;
mod sensitivity;
mod summary;

pub use diagnosis::{Cause, Diagnosis, DiagnosisError, Measured, Observation, Suspect, Verdict};
pub use estimate::RequestEstimate;
pub use exhaustion::{Exhausted, Streamed, Waves};
pub use sensitivity::RequestShares;
pub use summary::Summary;

use crate::memory::DoesNotFit;

/// A batch of equal requests that start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens of the answer; the first comes out of the prefill.
    pub output_tokens: u64,
    /// Requests in the batch.
    pub batch: u64,
    /// Prompt tokens whose keys and values are in the prefix cache: attended to, not computed. At most `prompt_tokens - 1`, since the last token must
    /// be computed to answer.
    pub cached_prompt_tokens: u64,
}

/// A request that cannot be answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A count that must be positive is zero.
    #[error("{what} is 0, expected at least 1")]
    Zero {
        /// What was counted.
        what: &'static str,
    },
    /// More cached tokens than the prompt can have.
    #[error("{cached} cached prompt tokens of a prompt of {prompt} tokens: at most {} can be cached, the last one must be computed", .prompt.saturating_sub(1))]
    TooManyCached {
        /// Cached tokens.
        cached: u64,
        /// Prompt tokens.
        prompt: u64,
    },
    /// Prompt and answer are longer than the model's context.
    #[error(
        "prompt and answer take {tokens} tokens, the model is made for {limit}; allow longer contexts with \
         Deployment::with_long_context_allowed"
    )]
    ContextTooLong {
        /// Tokens of prompt and answer.
        tokens: u64,
        /// Longest context of the model.
        limit: u64,
    },
    /// A number beyond what can be counted exactly.
    #[error("{what} is {value}, more than the limit of {limit}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// The number.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// Not enough memory.
    #[error(transparent)]
    DoesNotFit(#[from] Box<DoesNotFit>),
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { prompt_tokens, output_tokens, batch, cached_prompt_tokens } = self;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        write!(f, "{batch} request{} of {prompt_tokens} prompt token{}", plural(*batch), plural(*prompt_tokens))?;
        if *cached_prompt_tokens > 0 {
            write!(f, " ({cached_prompt_tokens} cached)")?;
        }
        write!(f, " and {output_tokens} output token{}", plural(*output_tokens))
    }
}

impl Request {
    /// One request.
    pub const fn new(prompt_tokens: u64, output_tokens: u64) -> Self {
        Self { prompt_tokens, output_tokens, batch: 1, cached_prompt_tokens: 0 }
    }

    /// So many equal requests that start together and finish together.
    #[must_use]
    pub const fn with_batch(self, batch: u64) -> Self {
        Self { batch, ..self }
    }

    /// With so many prompt tokens in the prefix cache.
    #[must_use]
    pub const fn with_cached_prompt_tokens(self, cached_prompt_tokens: u64) -> Self {
        Self { cached_prompt_tokens, ..self }
    }

    /// Tokens of prompt and answer: the longest context that is reached.
    pub const fn context_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }

    /// Prompt tokens that are computed.
    pub const fn new_prompt_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_sub(self.cached_prompt_tokens)
    }

    /// Tokens in the cache when the output token at `position` is computed; the first one comes out of the prefill.
    const fn cached_before(&self, position: u64) -> u64 {
        self.prompt_tokens.saturating_add(position.saturating_sub(2))
    }

    fn check(&self, context_limit: Option<u64>, prefill_steps: u64) -> Result<(), RequestError> {
        let counts =
            [("prompt tokens", self.prompt_tokens), ("output tokens", self.output_tokens), ("batch", self.batch)];
        for (what, value) in counts {
            if value == 0 {
                return Err(RequestError::Zero { what });
            }
            if value > COUNT_LIMIT {
                return Err(RequestError::TooLarge { what, value, limit: COUNT_LIMIT });
            }
        }
        if self.cached_prompt_tokens >= self.prompt_tokens {
            return Err(RequestError::TooManyCached { cached: self.cached_prompt_tokens, prompt: self.prompt_tokens });
        }
        if prefill_steps > PREFILL_STEP_LIMIT {
            return Err(RequestError::TooLarge {
                what: "prefill steps",
                value: prefill_steps,
                limit: PREFILL_STEP_LIMIT,
            });
        }
        match context_limit {
            Some(limit) if self.context_tokens() > limit => {
                Err(RequestError::ContextTooLong { tokens: self.context_tokens(), limit })
            }
            _ => Ok(()),
        }
    }
}

/// Counts beyond this would not sum up exactly.
const COUNT_LIMIT: u64 = 1 << 30;
/// Prefill steps are priced one by one.
const PREFILL_STEP_LIMIT: u64 = 1 << 20;
