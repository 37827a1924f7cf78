//! A replica with its requests: everything that does not depend on how many there are.

use super::mix::StepMix;
use super::rules::ServingRules;
use super::ServingError;
use super::draw::{Place, places};
use crate::step::StepModel;
use crate::units::RequestsPerSecond;
use crate::workload::Lengths;

/// One replica of a deployment that serves requests of some lengths: compiled once, asked for many loads.
#[derive(Clone, Debug)]
pub struct Server<'a> {
    pub(super) mix: StepMix<'a>,
    pub(super) rules: ServingRules,
    pub(super) lengths: Lengths,
    /// Prompt over the mean prompt, and output length, of the requests that stand for all.
    pub(super) drawn_lengths: Vec<(f64, f64)>,
    pub(super) max_rate: RequestsPerSecond,
}

impl<'a> Server<'a> {
    /// Requests of these lengths, without anything cached.
    ///
    /// # Errors
    /// [`ServingError`] for requests that do not fit, or are longer than the model allows.
    pub fn new(model: &'a StepModel, lengths: &Lengths) -> Result<Self, ServingError> {
        let rules = ServingRules::new(model, lengths)?;
        let mean = lengths.moments().prompt;
        let at = |place: &Place| lengths.at(place.lengths.0, place.lengths.1);
        let drawn = places().iter().map(at).map(|(prompt, output)| (prompt as f64 / mean, output as f64));
        let mut server = Self {
            mix: StepMix::new(model, lengths, |_| 0.0),
            rules,
            lengths: lengths.clone(),
            drawn_lengths: drawn.collect(),
            max_rate: RequestsPerSecond::ZERO,
        };
        server.max_rate = RequestsPerSecond::from_requests_per_second(server.saturated().rate);
        Ok(server)
    }

    /// By which factor nine of ten measurements of a time lie above or below the prediction at most: the scatter of the operator laws in a step with prompts and
    /// answers; times to first token scatter more, as a queue amplifies what is wrong with a step.
    pub fn uncertainty(&self, of_first_token: bool) -> f64 {
        let model = self.mix.model();
        let (slots, _) = self.rules.slots();
        let load = self.mix.cost(1.0_f64.min(1.0), (slots as f64).min(16.0));
        let interval = model.interval(&load);
        let step = (interval.high / interval.expected).ln();
        let queue = if of_first_token { 0.45 } else { 0.12 };
        (step * step + queue * queue).sqrt().exp()
    }

    /// The rules that it serves by.
    pub const fn rules(&self) -> &ServingRules {
        &self.rules
    }
}
