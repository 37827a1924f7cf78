//! What is asked of a deployment: requests, limits and a price.

use super::{Measures, Spec};
use crate::deployment::Deployment;
use crate::planner::PlannerError;
use crate::planner::error::{not_negative, share};
use crate::request::Request;
use crate::serving::{Server, Target};
use crate::step::StepModel;
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond, UsdPerHour};
use crate::workload::{Lengths, SharedPrefix};

/// A deployment and what it is used for: the point at which sensitivities are taken.
///
/// ```
/// use llm_roofline::planner::Question;
/// use llm_roofline::prelude::*;
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
/// let question = Question::new(deployment, 1000, 200)?.with_price(UsdPerHour::from_usd_per_hour(2.0))?;
/// let found = question.measure()?;
/// // What a device-hour answers, and what one answer costs: both say the same.
/// let answers = found.max_rate.unwrap().as_requests_per_second() * 3600.0;
/// assert!((2.0 / answers / found.usd_per_request.unwrap().as_usd() - 1.0).abs() < 1e-12);
/// assert_eq!(found.rate_under, None); // no limits were asked for
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Question {
    deployment: Deployment,
    prompt_tokens: u64,
    output_tokens: u64,
    cached_share: f64,
    target: Option<Target>,
    usd_per_device_hour: Option<UsdPerHour>,
    batch: Option<u64>,
}

impl Question {
    /// Requests of these lengths, without limits, price and cached prompts.
    ///
    /// # Errors
    /// [`PlannerError::Workload`] for lengths of 0 tokens.
    pub fn new(deployment: Deployment, prompt_tokens: u64, output_tokens: u64) -> Result<Self, PlannerError> {
        Lengths::fixed(prompt_tokens, output_tokens)?;
        let (cached_share, target, usd_per_device_hour, batch) = (0.0, None, None, None);
        Ok(Self { deployment, prompt_tokens, output_tokens, cached_share, target, usd_per_device_hour, batch })
    }

    /// With limits that the load has to keep to.
    #[must_use]
    pub fn with_target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }

    /// With the price of one device for an hour.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a price that is negative or not finite.
    pub fn with_price(self, usd_per_device_hour: UsdPerHour) -> Result<Self, PlannerError> {
        not_negative("the price of a device in USD per hour", usd_per_device_hour.as_usd_per_hour())?;
        Ok(Self { usd_per_device_hour: Some(usd_per_device_hour), ..self })
    }

    /// With the number of equal requests for which the rate of a batch is asked.
    #[must_use]
    pub fn with_batch(self, batch: u64) -> Self {
        Self { batch: Some(batch), ..self }
    }

    /// With this share of every prompt found in the prefix cache.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a share that is not from 0 to 1.
    pub fn with_cached_share(self, cached_share: f64) -> Result<Self, PlannerError> {
        Ok(Self { cached_share: share("the share of cached prompt tokens", cached_share)?, ..self })
    }

    /// With other lengths.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_lengths(self, prompt_tokens: u64, output_tokens: u64) -> Result<Self, PlannerError> {
        Lengths::fixed(prompt_tokens, output_tokens)?;
        Ok(Self { prompt_tokens, output_tokens, ..self })
    }

    /// The same asked of another deployment.
    #[must_use]
    pub fn with_deployment(self, deployment: Deployment) -> Self {
        Self { deployment, ..self }
    }

    /// The same with one number of the data sheet, the engine or the invoice times a factor. A price that was not stated stays so.
    ///
    /// # Errors
    /// As [`Spec::times`].
    pub fn with_spec_times(&self, spec: Spec, factor: f64) -> Result<Self, PlannerError> {
        let deployment = spec.times(factor, &self.deployment)?;
        let same = self.clone().with_deployment(deployment);
        match self.usd_per_device_hour {
            Some(price) if spec == Spec::Price => same.with_price(price * factor),
            _ => Ok(same),
        }
    }

    /// The deployment.
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Tokens of a prompt.
    pub const fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// Tokens of an answer.
    pub const fn output_tokens(&self) -> u64 {
        self.output_tokens
    }

    /// Share of every prompt that is found in the prefix cache.
    pub const fn cached_share(&self) -> f64 {
        self.cached_share
    }

    /// The limits.
    pub const fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// The price of one device for an hour.
    pub const fn usd_per_device_hour(&self) -> Option<UsdPerHour> {
        self.usd_per_device_hour
    }

    /// The numbers that exist: rates of all replicas, requests spread evenly over them.
    ///
    /// # Errors
    /// [`PlannerError`] for a deployment that is impossible, and for requests that do not fit or are longer than the model allows.
    pub fn measure(&self) -> Result<Measures, PlannerError> {
        self.measure_model(&StepModel::compile(&self.deployment)?)
    }

    pub(super) fn measure_model(&self, model: &StepModel) -> Result<Measures, PlannerError> {
        let answer = model.request(&self.request())?;
        let server = self.server(model)?;
        let replicas = f64::from(self.deployment.replicas());
        let under = self.target.as_ref().map(|target| server.max_rate_under(target)).transpose()?;
        let rate_under =
            under.filter(|capacity| capacity.rate > RequestsPerSecond::ZERO).map(|under| under.rate * replicas);
        let batched = self.batch.map(|batch| model.request(&self.request().with_batch(batch)));
        let mut measures = Measures {
            devices: self.deployment.devices_used(),
            ttft: Some(answer.ttft),
            tpot: answer.tpot,
            e2e: Some(answer.e2e),
            // A batch that has no room is an answer: there is no such rate.
            output_tps_total: batched.and_then(Result::ok).map(|answer| answer.output_tps_total * replicas),
            max_rate: Some(server.max_rate() * replicas),
            rate_under,
            concurrency: model
                .memory()
                .max_sequences(self.request().context_tokens())
                .map(|count| count as f64 * replicas),
            usd_per_million_output_tokens: None,
            usd_per_request: None,
        };
        self.add_costs(&mut measures);
        Ok(measures)
    }

    /// What the devices cost for the requests that they answer: within the limits where there are some, all that they can otherwise.
    pub(super) fn add_costs(&self, measures: &mut Measures) {
        let rate = if self.target.is_some() { measures.rate_under } else { measures.max_rate };
        let (Some(price), Some(rate)) = (self.usd_per_device_hour, rate) else { return };
        let all = price * f64::from(measures.devices);
        let tokens = TokensPerSecond::from_tokens_per_second(rate.as_requests_per_second() * self.output_tokens as f64);
        measures.usd_per_million_output_tokens = Some(all / tokens);
        measures.usd_per_request = Some(all * Seconds::from_seconds(1.0 / rate.as_requests_per_second()));
    }

    /// One request, alone.
    pub(super) fn request(&self) -> Request {
        let cached = (self.cached_share * self.prompt_tokens as f64) as u64;
        let cached = cached.min(self.prompt_tokens.saturating_sub(1));
        Request::new(self.prompt_tokens, self.output_tokens).with_cached_prompt_tokens(cached)
    }

    pub(super) fn lengths(&self) -> Result<Lengths, PlannerError> {
        Ok(Lengths::fixed(self.prompt_tokens, self.output_tokens)?)
    }

    pub(super) fn server<'m>(&self, model: &'m StepModel) -> Result<Server<'m>, PlannerError> {
        Ok(Server::with_prefix(model, &self.lengths()?, &SharedPrefix::share(self.cached_share)?)?)
    }
}
