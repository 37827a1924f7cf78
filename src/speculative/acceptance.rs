//! How often proposals are accepted, in the forms in which it is published.

use super::proposal::independent;
use super::rate::{check_tokens, probability, solve};
use super::{AcceptanceRate, Proposal, SpeculationError};

/// How often the target accepts what is proposed.
///
/// Publications give it in four forms that must not be mixed up: the rate per comparison ([`AcceptanceRate`]), rates by position, the
/// *length* with the target's own token (tau of EAGLE and Medusa, "mean acceptance length" of vLLM and SGLang) or without it, and accepted over
/// proposed tokens ("draft acceptance rate" of vLLM, "accept" of llama.cpp), which is none of the others.
///
/// ```
/// use llm_roofline::speculative::{Acceptance, Proposal};
///
/// // Measured: 2.9 tokens per step with chains of three. What would chains of five give?
/// let measured = Acceptance::measured(2.9, Proposal::chain(3)?)?;
/// assert_eq!(format!("{:.2}", measured.tokens_per_step(&Proposal::chain(5)?)), "3.59");
/// # Ok::<(), llm_roofline::speculative::SpeculationError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    form: Form,
}

#[derive(Clone, Debug, PartialEq)]
enum Form {
    /// The same at every position.
    Rate(AcceptanceRate),
    /// By position; the last one holds for all that follow.
    PerPosition(Vec<AcceptanceRate>),
    /// By rank among the candidates of a position, the best first.
    PerRank(Vec<f64>),
    /// Tokens per step as measured, and the rate that this means for other shapes.
    Measured { tokens: f64, proposal: Proposal, rate: AcceptanceRate },
}

impl Acceptance {
    /// The same rate at every position.
    ///
    /// # Errors
    /// [`SpeculationError::NotAProbability`] for a number outside of 0 to 1.
    pub fn rate(rate: f64) -> Result<Self, SpeculationError> {
        AcceptanceRate::new(rate).map(Self::from)
    }

    /// A rate for each position, given that all before it were accepted; the last one holds for all positions that follow.
    ///
    /// # Errors
    /// [`SpeculationError::NotAProbability`] for a number outside of 0 to 1, [`SpeculationError::NoRates`] for an empty list.
    pub fn per_position(rates: impl IntoIterator<Item = f64>) -> Result<Self, SpeculationError> {
        let rates: Vec<_> = rates.into_iter().map(AcceptanceRate::new).collect::<Result<_, _>>()?;
        if rates.is_empty() { Err(SpeculationError::NoRates) } else { Ok(Self { form: Form::PerPosition(rates) }) }
    }

    /// For trees: the probability of each candidate of a position to be the right one, in any order.
    ///
    /// # Errors
    /// [`SpeculationError::NotAProbability`] for a number outside of 0 to 1 and for ranks that sum up to more than 1,
    /// [`SpeculationError::NoRates`] for an empty list.
    pub fn per_rank(rates: impl IntoIterator<Item = f64>) -> Result<Self, SpeculationError> {
        let mut rates: Vec<f64> =
            rates.into_iter().map(|rate| probability("acceptance rate", rate)).collect::<Result<_, _>>()?;
        rates.sort_by(|a, b| b.total_cmp(a));
        if rates.is_empty() {
            return Err(SpeculationError::NoRates);
        }
        // A digit of slack for sums of decimal fractions.
        let sum: f64 = rates.iter().sum();
        probability("sum of the rates of all ranks", if sum < 1.0 + 1e-9 { sum.min(1.0) } else { sum })?;
        Ok(Self { form: Form::PerRank(rates) })
    }

    /// The tokens per step, the target's own included, that were measured with a shape of proposals.
    ///
    /// For that shape it is taken as it is; for others, as the rate (the same at every position) that gives it. Real rates fall with the
    /// position, so that the gain of longer chains is overestimated a little.
    ///
    /// # Errors
    /// [`SpeculationError::TokensPerStep`] for less than 1 or more than can be accepted and one.
    pub fn measured(tokens_per_step: f64, proposal: Proposal) -> Result<Self, SpeculationError> {
        check_tokens(tokens_per_step, proposal.most_accepted() as f64 + 1.0)?;
        let of_rate = |rate| proposal.tokens_per_step(|_, rank| independent(rate, rank));
        let rate =
            if proposal.depth() == 0 { AcceptanceRate::NEVER } else { solve(|rate| of_rate(rate) - tokens_per_step) };
        Ok(Self { form: Form::Measured { tokens: tokens_per_step, proposal, rate } })
    }

    /// Tokens that a step of the target yields in the mean, its own included, for proposals of this shape.
    ///
    /// Candidates of a tree are taken as independent where only a rate is known: an upper bound.
    pub fn tokens_per_step(&self, proposal: &Proposal) -> f64 {
        match &self.form {
            Form::Rate(rate) if !proposal.is_tree() => rate.tokens_per_step(proposal.draft_tokens()),
            Form::Rate(rate) => proposal.tokens_per_step(|_, rank| independent(*rate, rank)),
            Form::Measured { tokens, proposal: measured, .. } if measured == proposal => *tokens,
            Form::Measured { rate, .. } => proposal.tokens_per_step(|_, rank| independent(*rate, rank)),
            Form::PerPosition(rates) => proposal.tokens_per_step(|position, rank| {
                let known = usize::try_from(position).ok().and_then(|position| rates.get(position)).or(rates.last());
                known.map_or(0.0, |rate| independent(*rate, rank))
            }),
            Form::PerRank(rates) => {
                let known = |rank| usize::try_from(rank).ok().and_then(|rank: usize| rates.get(rank));
                proposal.tokens_per_step(|_, rank| known(rank).copied().unwrap_or(0.0))
            }
        }
    }
}

impl From<AcceptanceRate> for Acceptance {
    fn from(rate: AcceptanceRate) -> Self {
        Self { form: Form::Rate(rate) }
    }
}
