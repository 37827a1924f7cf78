//! A replica with its requests: everything that does not depend on how many there are.

use super::mix::StepMix;
use super::rules::ServingRules;
use super::ServingError;
use crate::step::StepModel;
use crate::workload::Lengths;

/// One replica of a deployment that serves requests of some lengths: compiled once, asked for many loads.
#[derive(Clone, Debug)]
pub struct Server<'a> {
    pub(super) mix: StepMix<'a>,
    pub(super) rules: ServingRules,
    pub(super) lengths: Lengths,
}

impl<'a> Server<'a> {
    /// Requests of these lengths, without anything cached.
    ///
    /// # Errors
    /// [`ServingError`] for requests that do not fit, or are longer than the model allows.
    pub fn new(model: &'a StepModel, lengths: &Lengths) -> Result<Self, ServingError> {
        let rules = ServingRules::new(model, lengths)?;
        Ok(Self { mix: StepMix::new(model, lengths, |_| 0.0), rules, lengths: lengths.clone() })
    }

    /// The rules that it serves by.
    pub const fn rules(&self) -> &ServingRules {
        &self.rules
    }
}
