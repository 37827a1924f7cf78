//! What prompts have in common, and need not be computed again.

use super::error::{WorkloadError, at_least, checked};
use super::lengths::Lengths;
use serde::{Deserialize, Serialize};

/// The part of the prompts that an earlier request has left in the prefix cache. Prompt lengths always include it.
///
/// ```
/// use llm_roofline::workload::{Lengths, SharedPrefix};
///
/// // A system prompt of 800 tokens, found in the cache by 95 of 100 requests.
/// let system = SharedPrefix::fixed(800, 0.95)?;
/// assert_eq!(system.cached_tokens(1000.0), 760.0);
/// assert_eq!(system.mean_cached_tokens(&Lengths::fixed(1000, 100)?), 760.0);
/// // A prompt that is shorter ends inside: its last token is always computed, for it gives the first token of the answer.
/// assert_eq!(SharedPrefix::fixed(800, 1.0)?.cached_tokens(500.0), 499.0);
/// # Ok::<(), llm_roofline::workload::WorkloadError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "RawPrefix")]
#[non_exhaustive]
pub enum SharedPrefix {
    /// The same first tokens in all prompts (a system prompt, examples; vLLM: `--random-prefix-len`). Made by [`fixed`](Self::fixed).
    #[non_exhaustive]
    Fixed {
        /// How many.
        tokens: u64,
        /// Share of the requests that find them in the cache.
        hit_rate: f64,
    },
    /// A share of every prompt, as dashboards of engines report it (vLLM: `prefix cache hit rate`). Made by [`share`](Self::share).
    #[non_exhaustive]
    Share {
        /// Share of the prompt tokens that is found in the cache.
        hit_rate: f64,
    },
    /// Conversations: a prompt repeats all that was said, and adds to it. Made by [`Sessions::prefix`].
    #[non_exhaustive]
    Turns {
        /// Prompt tokens of a conversation's first turn; longer prompts are of later turns.
        first_prompt: u64,
        /// Tokens that a later turn adds after the last answer.
        new_tokens: u64,
        /// Share of the later turns that find their history in the cache.
        hit_rate: f64,
    },
}

impl SharedPrefix {
    /// First tokens that all prompts share.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a hit rate that is not from 0 to 1.
    pub fn fixed(tokens: u64, hit_rate: f64) -> Result<Self, WorkloadError> {
        Ok(Self::Fixed { tokens, hit_rate: check_hit_rate(hit_rate)? })
    }

    /// A share of the tokens of each prompt.
    ///
    /// # Errors
    /// As [`fixed`](Self::fixed).
    pub fn share(hit_rate: f64) -> Result<Self, WorkloadError> {
        Ok(Self::Share { hit_rate: check_hit_rate(hit_rate)? })
    }

    /// Mean number of tokens that a prompt of this length finds in the cache; always at least one short of the prompt.
    pub fn cached_tokens(&self, prompt: f64) -> f64 {
        let (tokens, hit_rate) = match *self {
            Self::Fixed { tokens, hit_rate } => (tokens as f64, hit_rate),
            Self::Share { hit_rate } => (hit_rate * prompt, 1.0),
            Self::Turns { first_prompt, new_tokens, hit_rate } => {
                (if prompt > first_prompt as f64 { prompt - new_tokens as f64 } else { 0.0 }, hit_rate)
            }
        };
        hit_rate * tokens.min(prompt - 1.0).max(0.0)
    }

    /// The mean of [`cached_tokens`](Self::cached_tokens) over requests of these lengths, taken over their points.
    pub fn mean_cached_tokens(&self, lengths: &Lengths) -> f64 {
        lengths.points().iter().map(|point| point.weight * self.cached_tokens(point.prompt)).sum()
    }

    /// Share of the prompt tokens that is found in the cache.
    pub fn token_hit_rate(&self, lengths: &Lengths) -> f64 {
        self.mean_cached_tokens(lengths) / lengths.moments().prompt
    }
}

/// Conversations of several turns, each of which sends all that was said before.
///
/// # Formula
/// With first prompt `n`, `u` new tokens per later turn and answers of `m`, turn `t = 0, 1, ...` has a prompt of `n + t (u + m)` tokens, of which
/// all but `u` were in the turn before.
///
/// ```
/// use llm_roofline::workload::Sessions;
///
/// let chat = Sessions::new(4, 500, 100, 200)?;
/// assert_eq!(chat.prompt_tokens(3), 1400);
/// assert_eq!(chat.lengths()?.moments().prompt, 950.0);
/// // 0, 700, 1000 and 1300 of 500, 800, 1100 and 1400 tokens.
/// assert_eq!(chat.prefix(1.0)?.mean_cached_tokens(&chat.lengths()?), 3000.0 / 4.0);
/// # Ok::<(), llm_roofline::workload::WorkloadError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    turns: u64,
    first_prompt: u64,
    new_tokens: u64,
    output: u64,
}

/// The most turns that a conversation may have: each is a request of its own.
const MAX_TURNS: u64 = 100_000;

impl Sessions {
    /// Conversations of so many turns: tokens of the first prompt, of what each later turn adds, and of each answer.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] for no turns or lengths of 0, [`WorkloadError::OutOfRange`] for more than 100,000 turns,
    /// [`WorkloadError::TooLong`] if the last prompt is beyond 2^40 tokens.
    pub fn new(turns: u64, first_prompt: u64, new_tokens: u64, output: u64) -> Result<Self, WorkloadError> {
        at_least("turns", turns, 1)?;
        checked("turns", turns as f64, "at most 100000", turns <= MAX_TURNS)?;
        let sessions = Self { turns, first_prompt, new_tokens, output };
        at_least("new tokens in a turn", new_tokens, 1)?;
        Lengths::fixed(first_prompt, output)?;
        Lengths::fixed(sessions.prompt_tokens(turns - 1), output)?;
        Ok(sessions)
    }

    /// Prompt tokens of a turn, counted from 0.
    pub fn prompt_tokens(&self, turn: u64) -> u64 {
        self.first_prompt.saturating_add(turn.saturating_mul(self.new_tokens.saturating_add(self.output)))
    }

    /// Number of turns: requests per conversation.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Lengths of the requests.
    ///
    /// # Errors
    /// None after construction; those of [`Lengths::pairs`] by its type.
    pub fn lengths(&self) -> Result<Lengths, WorkloadError> {
        Lengths::pairs((0..self.turns).map(|turn| (self.prompt_tokens(turn), self.output)).collect())
    }

    /// What the requests find in the cache, if a share `hit_rate` of the later turns finds its history there.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a hit rate that is not from 0 to 1.
    pub fn prefix(&self, hit_rate: f64) -> Result<SharedPrefix, WorkloadError> {
        Ok(SharedPrefix::Turns {
            first_prompt: self.first_prompt,
            new_tokens: self.new_tokens,
            hit_rate: check_hit_rate(hit_rate)?,
        })
    }
}

fn check_hit_rate(hit_rate: f64) -> Result<f64, WorkloadError> {
    checked("hit rate", hit_rate, "from 0 to 1", (0.0..=1.0).contains(&hit_rate))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RawPrefix {
    Fixed { tokens: u64, hit_rate: f64 },
    Share { hit_rate: f64 },
    Turns { first_prompt: u64, new_tokens: u64, hit_rate: f64 },
}

impl TryFrom<RawPrefix> for SharedPrefix {
    type Error = WorkloadError;

    fn try_from(raw: RawPrefix) -> Result<Self, WorkloadError> {
        match raw {
            RawPrefix::Fixed { tokens, hit_rate } => Self::fixed(tokens, hit_rate),
            RawPrefix::Share { hit_rate } => Self::share(hit_rate),
            RawPrefix::Turns { first_prompt, new_tokens, hit_rate } => {
                Ok(Self::Turns { first_prompt, new_tokens, hit_rate: check_hit_rate(hit_rate)? })
            }
        }
    }
}
