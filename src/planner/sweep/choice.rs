//! How to speculate, said before the target is known.

use crate::deployment::Deployment;
use crate::planner::PlannerError;
use crate::speculative::{Method, Speculation, SpeculationError, SpeculativeModel};
use std::fmt;
use std::str::FromStr;

/// A way of speculating that is made for each target of a sweep, or none.
///
/// ```
/// use llm_roofline::planner::SpeculationChoice;
/// use llm_roofline::speculative::Method;
///
/// let head = SpeculationChoice::from(Method::Eagle3).with_draft_tokens(4).with_acceptance_rate(0.7);
/// assert_eq!(head.to_string(), "EAGLE-3 x 4 at 0.7");
/// let read: SpeculationChoice = "eagle3 x 4 at 0.7".parse()?;
/// assert_eq!(read.to_string(), head.to_string());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SpeculationChoice {
    how: How,
    draft_tokens: Option<u64>,
    acceptance_rate: Option<f64>,
}

#[derive(Clone, Debug)]
enum How {
    Plainly,
    By(Method),
    As(Box<Speculation>),
}

impl SpeculationChoice {
    /// Plain decoding.
    pub const fn none() -> Self {
        Self::by(How::Plainly)
    }

    const fn by(how: How) -> Self {
        Self { how, draft_tokens: None, acceptance_rate: None }
    }

    /// With chains of so many tokens; without, the usual proposal of the method.
    #[must_use]
    pub fn with_draft_tokens(self, draft_tokens: u64) -> Self {
        Self { draft_tokens: Some(draft_tokens), ..self }
    }

    /// Each proposal accepted with this probability if all before it were; without, the typical published acceptance of the method.
    #[must_use]
    pub fn with_acceptance_rate(self, rate: f64) -> Self {
        Self { acceptance_rate: Some(rate), ..self }
    }

    /// What that is for one target; none for plain decoding.
    ///
    /// # Errors
    /// [`SpeculationError`] where the method has no drafter for the target, and for numbers that are none.
    pub fn of(&self, target: &Deployment) -> Result<Option<Speculation>, SpeculationError> {
        let mut speculation = match &self.how {
            How::Plainly => return Ok(None),
            How::By(method) => Speculation::new(*method, target)?,
            How::As(given) => given.as_ref().clone(),
        };
        if let Some(draft_tokens) = self.draft_tokens {
            speculation = speculation.with_draft_tokens(draft_tokens)?;
        }
        if let Some(rate) = self.acceptance_rate {
            speculation = speculation.with_acceptance_rate(rate)?;
        }
        Ok(Some(speculation))
    }

    /// Target and drafter; none for plain decoding.
    pub(super) fn compile(&self, target: &Deployment) -> Result<Option<SpeculativeModel>, PlannerError> {
        let speculation = self.of(target)?;
        Ok(speculation.map(|speculation| SpeculativeModel::compile(target, &speculation)).transpose()?)
    }

    fn method(&self) -> Option<Method> {
        match &self.how {
            How::Plainly => None,
            How::By(method) => Some(*method),
            How::As(given) => Some(given.method()),
        }
    }

    fn drafter(&self) -> Option<&str> {
        match &self.how {
            How::As(given) if given.method() == Method::DraftModel => given.drafter().map(|draft| &*draft.model().slug),
            _ => None,
        }
    }

    /// Chains of so many, where that is known before the target.
    fn drafted(&self) -> Option<u64> {
        let given = match &self.how {
            How::As(given) => Some(given.proposal().draft_tokens()),
            _ => None,
        };
        self.draft_tokens.or(given)
    }
}

impl From<Method> for SpeculationChoice {
    /// The method with its usual proposal and its typical published acceptance.
    fn from(method: Method) -> Self {
        Self::by(How::By(method))
    }
}

impl From<Speculation> for SpeculationChoice {
    /// The same for every target: what a draft model is.
    fn from(speculation: Speculation) -> Self {
        Self::by(How::As(Box::new(speculation)))
    }
}

impl fmt::Display for SpeculationChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(method) = self.method() else { return f.pad("none") };
        let mut text = method.to_string();
        if let Some(drafter) = self.drafter() {
            text = format!("{text} {drafter}");
        }
        if let Some(draft_tokens) = self.drafted() {
            text = format!("{text} x {draft_tokens}");
        }
        if let Some(rate) = self.acceptance_rate {
            text = format!("{text} at {rate}");
        }
        f.pad(&text)
    }
}

impl FromStr for SpeculationChoice {
    type Err = PlannerError;

    /// Reads `none`, a method, `eagle3 x 4` (draft tokens) and `eagle3 x 4 at 0.7` (acceptance rate).
    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let unreadable = || PlannerError::Unreadable {
            what: "speculation",
            text: text.chars().take(100).collect(),
            reason: "expected `none`, `eagle3`, `eagle3 x 4` or `eagle3 x 4 at 0.7`".into(),
        };
        let (rest, rate) = match text.split_once(" at ") {
            Some((rest, rate)) => (rest, Some(rate.trim().parse().map_err(|_| unreadable())?)),
            None => (text, None),
        };
        let (name, draft_tokens) = match rest.split_once(" x ") {
            Some((name, tokens)) => (name, Some(tokens.trim().parse().map_err(|_| unreadable())?)),
            None => (rest, None),
        };
        let plain = name.trim().eq_ignore_ascii_case("none");
        if plain && (rate.is_some() || draft_tokens.is_some()) {
            return Err(unreadable());
        }
        let choice = if plain { Self::none() } else { name.parse::<Method>()?.into() };
        Ok(Self { draft_tokens, acceptance_rate: rate, ..choice })
    }
}
