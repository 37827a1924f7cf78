//! A replica with its requests: everything that does not depend on how many there are.

use super::ServingError;
use super::draw::{Place, places};
use super::mix::StepMix;
use super::rules::ServingRules;
use super::steady::Residences;
use super::whole_batch::WholeBatch;
use crate::engine::PromptPolicy;
use crate::step::{Interval, StepModel};
use crate::units::RequestsPerSecond;
use crate::workload::{Lengths, SharedPrefix};
use std::sync::OnceLock;

/// One replica of a deployment that serves requests of some lengths: compiled once, asked for many loads.
#[derive(Clone, Debug)]
pub struct Server<'a> {
    pub(super) mix: StepMix<'a>,
    pub(super) rules: ServingRules,
    pub(super) lengths: Lengths,
    /// Prompt over the mean prompt, and output length, of the requests that stand for all.
    pub(super) drawn_lengths: Vec<(f64, f64)>,
    pub(super) max_rate: RequestsPerSecond,
    /// Where the engine batches statically.
    pub(super) whole: Option<Box<WholeBatch>>,
    /// How long requests stay, by how many there are; computed when places may be too few.
    pub(super) residences: OnceLock<Residences>,
}

impl<'a> Server<'a> {
    /// Requests of these lengths, without anything cached.
    ///
    /// # Errors
    /// [`ServingError`] for requests that do not fit, or are longer than the model allows.
    pub fn new(model: &'a StepModel, lengths: &Lengths) -> Result<Self, ServingError> {
        Self::caching(model, lengths, 0.0, |_| 0.0)
    }

    /// Requests of these lengths, of whose prompts a part is found in the prefix cache.
    ///
    /// # Formula
    /// Of a prompt of `n` tokens with a token hit rate `h`, `n (1 - h)` are computed; attention reads all `n`, in prefill and in decoding, and the cache holds them. A prefix
    /// that all prompts share ([`SharedPrefix::Fixed`]) is held once per replica (once per rank of data-parallel attention), other hits are the request's own history.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Validity
    /// Prompts are computed with their mean number of cached tokens: that some find all and others nothing is not in the percentiles. The hit rate is given, not a result
    /// of the cache's size.
    ///
    /// # Examples
    /// A hit rate is no speed-up: where answers take most of the time, little is saved (vllm-project/vllm#53395: 94.6 % of the tokens were hits, throughput rose by 6 %).
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::Server;
    /// use llm_roofline::workload::{Lengths, SharedPrefix};
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let gain = |prompt, output| {
    ///     let lengths = Lengths::fixed(prompt, output)?;
    ///     let hits = SharedPrefix::share(0.9)?;
    ///     Ok::<f64, Box<dyn std::error::Error>>(Server::with_prefix(&model, &lengths, &hits)?.max_rate() / Server::new(&model, &lengths)?.max_rate())
    /// };
    /// assert!(gain(512, 1024)? < 1.2); // nine of ten tokens are hits, and hardly anything is won
    /// assert!(gain(8192, 16)? > 3.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_prefix(model: &'a StepModel, lengths: &Lengths, prefix: &SharedPrefix) -> Result<Self, ServingError> {
        let shared = match *prefix {
            SharedPrefix::Fixed { tokens, hit_rate } => hit_rate * tokens as f64,
            _ => 0.0,
        };
        Self::caching(model, lengths, shared, |prompt| prefix.cached_tokens(prompt))
    }

    /// `shared` tokens are held once for all.
    fn caching(
        model: &'a StepModel,
        lengths: &Lengths,
        shared: f64,
        cached: impl Fn(f64) -> f64,
    ) -> Result<Self, ServingError> {
        let rules = ServingRules::sharing(model, lengths, shared)?;
        let mix = StepMix::new(model, lengths, &cached);
        let at = |place: &Place| lengths.at(place.lengths.0, place.lengths.1);
        let computed = |prompt: f64| (prompt - cached(prompt).min(prompt - 1.0)) / mix.prompt_tokens;
        let drawn = places().iter().map(at).map(|(prompt, output)| (computed(prompt as f64), output as f64)).collect();
        let whole = (rules.prompts == PromptPolicy::Batch).then(|| Box::new(WholeBatch::new(&mix, &rules, lengths)));
        let mut server = Self {
            mix,
            rules,
            lengths: lengths.clone(),
            drawn_lengths: drawn,
            max_rate: RequestsPerSecond::ZERO,
            whole,
            residences: OnceLock::new(),
        };
        let most = server.whole.as_ref().map_or_else(|| server.saturated().rate, |whole| whole.max_rate());
        server.max_rate = RequestsPerSecond::from_requests_per_second(most);
        Ok(server)
    }

    /// By which factor nine of ten measurements of a time lie above or below the prediction at most: the scatter of the operator laws in a step with prompts and
    /// answers; times to first token scatter more, as a queue amplifies what is wrong with a step.
    pub fn uncertainty(&self, of_first_token: bool) -> f64 {
        /// Sequences of a step that stands for all.
        const SEQUENCES: f64 = 16.0;
        let model = self.mix.model();
        let (slots, _) = self.rules.slots();
        let step = model.interval(&self.mix.cost(1.0, SEQUENCES.min(slots as f64)));
        let law = &model.deployment().engine().uncertainty;
        let parameter = if of_first_token { &law.load_first_token } else { &law.load };
        let deviation = parameter.as_ref().map_or(0.0, |deviation| deviation.value.0);
        let width = |interval: Interval| (interval.high / interval.expected).ln();
        let load = Interval::around(step.expected, deviation);
        width(step).hypot(width(load)).exp()
    }

    /// The rules that it serves by.
    pub const fn rules(&self) -> &ServingRules {
        &self.rules
    }
}
