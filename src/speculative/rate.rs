//! The probability that a proposed token is accepted, and what follows from it in closed form.

use super::{DRAFT_TOKEN_LIMIT, SpeculationError};

/// Probability that the target accepts a proposed token whose predecessors were accepted; the same at every position.
///
/// With rejection sampling it is `sum over tokens of min(p, q)` for the distributions `p` of the target and `q` of the draft (Leviathan et al.,
/// arXiv:2211.17192, corollary 3.6); under greedy decoding, the share of positions at which both prefer the same token.
///
/// ```
/// use llm_roofline::speculative::AcceptanceRate;
///
/// let rate = AcceptanceRate::new(0.8)?;
/// assert_eq!(format!("{:.4}", rate.tokens_per_step(4)), "3.3616"); // of at most five
/// // A draft that costs a twentieth of the target, eight tokens at a time: three times as fast.
/// assert_eq!(rate.best_draft_tokens(0.05)?, 8);
/// assert_eq!(format!("{:.3}", rate.speedup(8, 0.05)?), "3.092");
/// # Ok::<(), llm_roofline::speculative::SpeculationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct AcceptanceRate(f64);

impl AcceptanceRate {
    /// Nothing is ever accepted.
    pub const NEVER: Self = Self(0.0);
    /// Everything is always accepted.
    pub const ALWAYS: Self = Self(1.0);

    /// A rate from 0 to 1.
    ///
    /// # Errors
    /// [`SpeculationError::NotAProbability`] for any other number.
    pub fn new(rate: f64) -> Result<Self, SpeculationError> {
        probability("acceptance rate", rate).map(Self)
    }

    /// The rate at which chains of `draft_tokens` give so many tokens per step, the target's own token included: the inverse of
    /// [`tokens_per_step`](Self::tokens_per_step).
    ///
    /// # Errors
    /// [`SpeculationError::TokensPerStep`] for less than 1 or more than `draft_tokens + 1`; a chain of none has no rate.
    ///
    /// ```
    /// # use llm_roofline::speculative::AcceptanceRate;
    /// let rate = AcceptanceRate::from_tokens_per_step(2.5, 3)?;
    /// assert!((rate.tokens_per_step(3) - 2.5).abs() < 1e-9);
    /// # Ok::<(), llm_roofline::speculative::SpeculationError>(())
    /// ```
    pub fn from_tokens_per_step(tokens: f64, draft_tokens: u64) -> Result<Self, SpeculationError> {
        check_count("draft tokens", draft_tokens, 1)?;
        check_tokens(tokens, draft_tokens as f64 + 1.0)?;
        Ok(solve(|rate| rate.tokens_per_step(draft_tokens) - tokens))
    }

    /// The rate at which chains of `draft_tokens` give so many accepted tokens per step, the target's own token *not* included.
    ///
    /// # Errors
    /// As [`from_tokens_per_step`](Self::from_tokens_per_step).
    pub fn from_accepted_per_step(accepted: f64, draft_tokens: u64) -> Result<Self, SpeculationError> {
        Self::from_tokens_per_step(accepted + 1.0, draft_tokens)
    }

    /// The rate behind `accepted / proposed` of chains of `draft_tokens`: what vLLM, llama.cpp and others print as their acceptance rate.
    ///
    /// That quotient is *not* the rate: what follows the first rejection counts as proposed but was never compared, so it is lower the
    /// longer the chain. At a rate of 0.8 it is 0.80, 0.72, 0.59 and 0.42 for chains of 1, 2, 4 and 8.
    ///
    /// # Errors
    /// [`SpeculationError::NotAProbability`] for a share outside of 0 to 1.
    ///
    /// ```
    /// # use llm_roofline::speculative::AcceptanceRate;
    /// // 59 % of the proposals of chains of four were accepted: four of five comparisons were.
    /// let rate = AcceptanceRate::from_accepted_share(0.5904, 4)?;
    /// assert_eq!(format!("{:.3}", rate.value()), "0.800");
    /// # Ok::<(), llm_roofline::speculative::SpeculationError>(())
    /// ```
    pub fn from_accepted_share(share: f64, draft_tokens: u64) -> Result<Self, SpeculationError> {
        let share = probability("accepted / proposed", share)?;
        Self::from_accepted_per_step(share * draft_tokens as f64, draft_tokens)
    }

    /// The probability.
    pub const fn value(self) -> f64 {
        self.0
    }

    /// Tokens that one step of the target yields in the mean: the accepted ones of a chain of `draft_tokens`, and one of its own.
    ///
    /// # Formula
    /// `(1 - a^(g+1)) / (1 - a)`, from 1 at `a = 0` to `g + 1` at `a = 1` (Leviathan et al., equation 1).
    pub fn tokens_per_step(self, draft_tokens: u64) -> f64 {
        let (rate, positions) = (self.0, draft_tokens as f64 + 1.0);
        // Near 1 the quotient loses digits; the sum it stands for has few terms then only if the chain is short.
        let rejected = 1.0 - rate;
        if rejected * positions < 1e-6 {
            return positions - rejected * positions * (positions - 1.0) / 2.0;
        }
        -(positions * rate.ln()).exp_m1() / rejected
    }

    /// Proposals accepted per step: [`tokens_per_step`](Self::tokens_per_step) less the target's own token.
    pub fn accepted_per_step(self, draft_tokens: u64) -> f64 {
        self.tokens_per_step(draft_tokens) - 1.0
    }

    /// Accepted proposals over all proposals, as engines print it; see [`from_accepted_share`](Self::from_accepted_share). The rate itself for
    /// chains of one.
    pub fn accepted_share(self, draft_tokens: u64) -> f64 {
        self.accepted_per_step(draft_tokens) / draft_tokens.max(1) as f64
    }

    /// How many times faster than without speculation, if a pass of the draft costs `draft_cost` steps of the target and verifying costs
    /// exactly one: the textbook's formula, for small batches and short contexts. [`SpeculativeModel`](super::SpeculativeModel) prices both.
    ///
    /// # Formula
    /// `tokens_per_step / (g c + 1)` (Leviathan et al., theorem 3.8).
    ///
    /// # Errors
    /// [`SpeculationError::NotARatio`] for a cost that is negative or not finite.
    pub fn speedup(self, draft_tokens: u64, draft_cost: f64) -> Result<f64, SpeculationError> {
        let cost = ratio("cost of the draft", draft_cost)?;
        Ok(self.tokens_per_step(draft_tokens) / (draft_tokens as f64 * cost + 1.0))
    }

    /// How many times the arithmetic of plain decoding is done, if the draft needs `draft_operations` times the target's per token.
    ///
    /// # Formula
    /// `(g c + g + 1) / tokens_per_step` (Leviathan et al., theorem 3.11).
    ///
    /// # Errors
    /// [`SpeculationError::NotARatio`] for a ratio that is negative or not finite, or a factor that is not.
    pub fn operations_factor(self, draft_tokens: u64, draft_operations: f64) -> Result<f64, SpeculationError> {
        let cost = ratio("operations of the draft", draft_operations)?;
        let proposed = draft_tokens as f64;
        ratio("operations factor", (proposed * cost + proposed + 1.0) / self.tokens_per_step(draft_tokens))
    }

    /// The length of chains with the largest [`speedup`](Self::speedup), up to 256; 0 if none gains.
    ///
    /// # Errors
    /// [`SpeculationError::NotARatio`] for a cost that is negative or not finite.
    ///
    /// # Validity
    /// The cost of verifying is taken as one step however long the chain; [`SpeculativeModel::best_draft_tokens`](super::SpeculativeModel::best_draft_tokens)
    /// prices each length.
    pub fn best_draft_tokens(self, draft_cost: f64) -> Result<u64, SpeculationError> {
        let (mut best, mut fastest) = (0, 1.0);
        for draft_tokens in 1..=DRAFT_TOKEN_LIMIT {
            let speedup = self.speedup(draft_tokens, draft_cost)?;
            // Where nothing more is to be gained digits are lost; a longer chain must be better by more than that.
            if speedup > fastest * (1.0 + 1e-12) {
                (best, fastest) = (draft_tokens, speedup);
            }
        }
        Ok(best)
    }
}

impl std::fmt::Display for AcceptanceRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How many times faster than without speculation, from what drafting and verifying cost in steps of the target.
///
/// # Formula
/// `tokens_per_step / (g T_D/T_T + T_V/T_T)` (MagicDec, arXiv:2408.11049, equation 2).
///
/// # Errors
/// [`SpeculationError::NotARatio`] for numbers that are negative or not finite, and where both costs are too small for a finite
/// speed-up.
///
/// ```
/// use llm_roofline::speculative::{AcceptanceRate, speedup_of_costs};
/// let tokens = AcceptanceRate::new(0.6)?.tokens_per_step(5);
/// // Verifying six tokens for each of many sequences is three steps' work: slower than without.
/// assert_eq!(format!("{:.3}", speedup_of_costs(tokens, 5, 0.05, 3.0)?), "0.733");
/// # Ok::<(), llm_roofline::speculative::SpeculationError>(())
/// ```
pub fn speedup_of_costs(
    tokens_per_step: f64,
    draft_tokens: u64,
    draft_cost: f64,
    verify_cost: f64,
) -> Result<f64, SpeculationError> {
    let tokens = ratio("tokens per step", tokens_per_step)?;
    let cycle =
        draft_tokens as f64 * ratio("cost of the draft", draft_cost)? + ratio("cost of verifying", verify_cost)?;
    ratio("speed-up", tokens / cycle)
}

pub(super) fn probability(what: &'static str, value: f64) -> Result<f64, SpeculationError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(SpeculationError::NotAProbability { what, value }) }
}

fn ratio(what: &'static str, value: f64) -> Result<f64, SpeculationError> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(SpeculationError::NotARatio { what, value }) }
}

pub(super) fn check_count(what: &'static str, value: u64, least: u64) -> Result<(), SpeculationError> {
    let most = DRAFT_TOKEN_LIMIT;
    if (least..=most).contains(&value) { Ok(()) } else { Err(SpeculationError::Count { what, value, least, most }) }
}

pub(super) fn check_tokens(tokens: f64, most: f64) -> Result<(), SpeculationError> {
    if (1.0..=most).contains(&tokens) { Ok(()) } else { Err(SpeculationError::TokensPerStep { tokens, most }) }
}

/// The rate at which a function that grows with it reaches zero, by bisection to the last digit.
pub(super) fn solve(excess: impl Fn(AcceptanceRate) -> f64) -> AcceptanceRate {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if excess(AcceptanceRate(middle)) < 0.0 { low = middle } else { high = middle }
    }
    AcceptanceRate(high)
}
