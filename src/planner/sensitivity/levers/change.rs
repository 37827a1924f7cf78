//! Which changes there are.

use super::Question;
use crate::format::{KvFormat, WeightFormat};
use crate::memory::{Change, smaller_caches, smaller_weights};
use crate::planner::PlannerError;
use crate::step::StepModel;
use serde::{Serialize, Serializer};
use std::fmt;

/// A change that an operator can make.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LeverChange {
    /// Weights in fewer bits.
    Weights(WeightFormat),
    /// The cache in fewer bits.
    Cache(KvFormat),
    /// Twice as many sequences at once, or half as many.
    Sequences {
        /// Sequences at once, over all ranks of data-parallel attention.
        at_once: u64,
    },
    /// This share of every prompt is found in the prefix cache. Assumed: whether it is so is a matter of the prompts.
    CachedPrompts {
        /// The share.
        share: f64,
    },
    /// Speculative decoding by the best published method.
    Speculation,
    /// Twice as many devices, each matrix cut in twice as many parts.
    TensorParallel {
        /// Parts after the change.
        degree: u32,
    },
    /// Of twice as many devices, a half for prompts and a half for answers; compared with two equal replicas.
    SplitPhases,
    /// Answers shorter by a quarter.
    ShorterAnswers {
        /// Tokens after the change.
        tokens: u64,
    },
    /// Prompts shorter by a quarter.
    ShorterPrompts {
        /// Tokens after the change.
        tokens: u64,
    },
}

/// Shares of a prompt that a prefix cache is assumed to hold: a long system prompt, and the next turn of a conversation.
const CACHED_SHARES: [f64; 2] = [0.5, 0.9];

impl LeverChange {
    /// All changes that make sense for a question, in a fixed order.
    pub(super) fn all(question: &Question) -> Result<Vec<Self>, PlannerError> {
        let deployment = question.deployment();
        let formats = |changes: Vec<Change>| {
            changes.into_iter().filter_map(|change| match change {
                Change::Weights(format) => Some(Self::Weights(format)),
                Change::Kv(format) => Some(Self::Cache(format)),
                _ => None,
            })
        };
        let mut all: Vec<Self> =
            formats(smaller_weights(deployment)).chain(formats(smaller_caches(deployment))).collect();
        let model = StepModel::compile(deployment)?;
        let (slots, _) = question.server(&model)?.rules().slots();
        if slots <= MOST_SEQUENCES {
            let batches = [slots.saturating_mul(2), (slots / 2).max(1)];
            all.extend(
                batches.into_iter().filter(|at_once| *at_once != slots).map(|at_once| Self::Sequences { at_once }),
            );
        }
        let more = CACHED_SHARES.into_iter().filter(|share| *share > question.cached_share());
        all.extend(more.map(|share| Self::CachedPrompts { share }));
        all.push(Self::Speculation);
        all.push(Self::TensorParallel { degree: deployment.tensor_parallel().saturating_mul(2) });
        all.push(Self::SplitPhases);
        let shorter = |tokens: u64| Some(tokens - tokens / 4).filter(|shorter| *shorter < tokens);
        all.extend(shorter(question.output_tokens()).map(|tokens| Self::ShorterAnswers { tokens }));
        all.extend(shorter(question.prompt_tokens()).map(|tokens| Self::ShorterPrompts { tokens }));
        Ok(all)
    }

    /// Whether a token is another thing afterwards, so that costs have to be compared per request.
    pub(super) const fn changes_lengths(&self) -> bool {
        matches!(self, Self::ShorterAnswers { .. } | Self::ShorterPrompts { .. })
    }
}

/// Beyond this nothing limits the sequences: memory without end under an engine without rules.
const MOST_SEQUENCES: u64 = 1 << 20;

impl fmt::Display for LeverChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights(format) => write!(f, "weights in {format}"),
            Self::Cache(format) => write!(f, "cache in {format}"),
            Self::Sequences { at_once } => write!(f, "at most {at_once} sequences at once"),
            Self::CachedPrompts { share } => write!(f, "{:.0} % of prompts cached", 100.0 * share),
            Self::Speculation => f.write_str("speculative decoding"),
            Self::TensorParallel { degree } => write!(f, "tensor parallelism {degree}"),
            Self::SplitPhases => f.write_str("prefill and decode apart"),
            Self::ShorterAnswers { tokens } => write!(f, "answers of {tokens} tokens"),
            Self::ShorterPrompts { tokens } => write!(f, "prompts of {tokens} tokens"),
        }
    }
}

impl Serialize for LeverChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
