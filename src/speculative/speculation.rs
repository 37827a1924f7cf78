//! What is asked for: a method, the shape of its proposals, how often they are accepted.

use super::published::typical_acceptance;
use super::{Acceptance, Method, Proposal, SpeculationError, drafter};
use crate::deployment::Deployment;
use crate::memory::Drafting;

/// A way of speculating for one target: who drafts, what is proposed in each cycle, how often it is accepted.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::speculative::{Method, Proposal, Speculation};
///
/// let catalog = Catalog::embedded();
/// let target = Deployment::new(catalog.model("llama-3.1-70b")?, System::new(catalog.device("h100-sxm-80gb")?, 4)?);
/// let head = Speculation::new(Method::Eagle3, &target)?.with_draft_tokens(5)?.with_acceptance_rate(0.75)?;
/// assert_eq!(format!("{:.2}", head.tokens_per_step()), "3.29");
///
/// // A small model drafts on one of the four devices.
/// let draft = Deployment::new(catalog.model("llama-3.2-1b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?);
/// let draft = Speculation::draft_model(draft).with_draft_tokens(5)?.with_acceptance_rate(0.7)?;
/// assert_eq!(draft.drafter().map(|draft| draft.tensor_parallel()), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Speculation {
    method: Method,
    proposal: Proposal,
    acceptance: Acceptance,
    /// Whether somebody said how often proposals are accepted.
    acceptance_is_typical: bool,
    drafting: Option<Drafting>,
}

impl Speculation {
    /// A method with its usual shape of proposals, a drafter built from the target's dimensions, and the acceptance that is usually published
    /// for it (see [`published_acceptance`](super::published_acceptance)).
    ///
    /// # Errors
    /// [`SpeculationError::NoDraftModel`] for [`Method::DraftModel`], which [`draft_model`](Self::draft_model) is for;
    /// [`SpeculationError::NoLayers`] for drafters of targets that are known by their totals.
    pub fn new(method: Method, target: &Deployment) -> Result<Self, SpeculationError> {
        Ok(Self::by(method, drafter::built_for(method, target)?))
    }

    /// A smaller model drafts on the devices of the target, or on some of them: its deployment says on how many and in which formats. The engine of
    /// the target runs it, whatever engine its deployment names.
    pub fn draft_model(draft: Deployment) -> Self {
        Self::by(Method::DraftModel, Some(Drafting::new(draft)))
    }

    fn by(method: Method, drafting: Option<Drafting>) -> Self {
        Self {
            method,
            proposal: method.usual_proposal(),
            acceptance: typical_acceptance(method),
            acceptance_is_typical: true,
            drafting,
        }
    }

    /// With another drafter: a head of other dimensions, say.
    #[must_use]
    pub fn with_drafter(self, drafter: Drafting) -> Self {
        Self { drafting: Some(drafter), ..self }
    }

    /// With proposals of this shape.
    #[must_use]
    pub fn with_proposal(self, proposal: Proposal) -> Self {
        Self { proposal, ..self }
    }

    /// With chains of so many tokens (vLLM `num_speculative_tokens`); none is plain decoding.
    ///
    /// # Errors
    /// [`SpeculationError::Count`] for more than 256.
    pub fn with_draft_tokens(self, draft_tokens: u64) -> Result<Self, SpeculationError> {
        Ok(self.with_proposal(Proposal::chain(draft_tokens)?))
    }

    /// Accepted so often.
    #[must_use]
    pub fn with_acceptance(self, acceptance: impl Into<Acceptance>) -> Self {
        Self { acceptance: acceptance.into(), acceptance_is_typical: false, ..self }
    }

    /// Each proposal accepted with this probability if all before it were.
    ///
    /// # Errors
    /// [`SpeculationError::NotAProbability`] for a number outside of 0 to 1.
    pub fn with_acceptance_rate(self, rate: f64) -> Result<Self, SpeculationError> {
        Ok(self.with_acceptance(Acceptance::rate(rate)?))
    }

    /// With the tokens per step (the target's own included) that were measured with the present shape of proposals.
    ///
    /// # Errors
    /// [`SpeculationError::TokensPerStep`] for less than 1 or more than can be accepted and one.
    pub fn with_measured_tokens_per_step(self, tokens: f64) -> Result<Self, SpeculationError> {
        let acceptance = Acceptance::measured(tokens, self.proposal)?;
        Ok(self.with_acceptance(acceptance))
    }

    /// The method.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// The shape of the proposals.
    pub const fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    /// How often proposals are accepted.
    pub const fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// What the drafter is and where it runs; `None` where candidates come from no model.
    pub fn drafter(&self) -> Option<&Deployment> {
        self.drafting.as_ref().map(|drafting| &drafting.deployment)
    }

    /// The same with the weights that it shares with the target.
    pub const fn drafting(&self) -> Option<&Drafting> {
        self.drafting.as_ref()
    }

    /// Tokens that a step of the target yields in the mean, its own included.
    pub fn tokens_per_step(&self) -> f64 {
        self.acceptance.tokens_per_step(&self.proposal)
    }

    /// What was supposed because nobody said it, in sentences.
    pub fn assumptions(&self) -> Vec<String> {
        let mut assumptions = Vec::new();
        if self.acceptance_is_typical {
            assumptions.push(format!(
                "{} proposals accepted {:.2} tokens per step, a typical published value: it depends on the task, the draft and the temperature",
                self.method,
                self.tokens_per_step()
            ));
        }
        assumptions
    }
}
