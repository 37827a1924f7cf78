//! The whole of what is asked of a deployment.

use super::arrivals::Arrivals;
use super::error::{WorkloadError, at_least, positive};
use super::lengths::Lengths;
use super::prefix::SharedPrefix;
use super::slo::Slo;
use crate::units::{RequestsPerSecond, TokensPerSecond};
use serde::{Deserialize, Serialize};

/// Some of the requests, which are served differently from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RequestClass {
    /// What it is called in results.
    pub name: String,
    /// Share of the requests, from 0 to 1.
    pub share: f64,
    /// The lower, the earlier it is served (as vLLM's `priority`).
    #[serde(default)]
    pub priority: i64,
    /// Lengths of its requests.
    pub lengths: Lengths,
    /// Limits that its requests should meet.
    #[serde(default, skip_serializing_if = "Slo::is_empty")]
    pub slo: Slo,
}

impl RequestClass {
    /// A class of priority 0.
    pub fn new(name: impl Into<String>, share: f64, lengths: Lengths) -> Self {
        Self { name: name.into(), share, priority: 0, lengths, slo: Slo::default() }
    }

    /// The same class with another priority: the lower, the earlier it is served.
    #[must_use]
    pub fn with_priority(self, priority: i64) -> Self {
        Self { priority, ..self }
    }

    /// The same class with limits.
    #[must_use]
    pub fn with_slo(self, slo: Slo) -> Self {
        Self { slo, ..self }
    }
}

/// What is asked of a deployment: when requests arrive, how long they are, and what they share.
///
/// ```
/// use llm_roofline::units::RequestsPerSecond;
/// use llm_roofline::workload::{Lengths, SharedPrefix, Workload};
///
/// let rate: RequestsPerSecond = "5 req/s".parse()?;
/// let chat = Workload::poisson(rate, Lengths::fixed(1000, 200)?)?.with_prefix(SharedPrefix::fixed(400, 1.0)?);
/// assert_eq!(chat.offered_prompt_tokens().unwrap().as_tokens_per_second(), 5000.0);
/// assert_eq!(chat.offered_uncached_tokens().unwrap().as_tokens_per_second(), 3000.0);
/// assert_eq!(chat.offered_output_tokens().unwrap().as_tokens_per_second(), 1000.0);
/// let twice = chat.at_rate(rate * 2.0)?;
/// assert_eq!(twice.arrivals().mean_rate(), Some(rate * 2.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawWorkload")]
pub struct Workload {
    arrivals: Arrivals,
    lengths: Lengths,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<SharedPrefix>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<RequestClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrency: Option<u64>,
}

impl Workload {
    /// Requests of some lengths that arrive in some way, and share nothing.
    pub fn new(arrivals: Arrivals, lengths: Lengths) -> Self {
        Self { arrivals, lengths, prefix: None, classes: Vec::new(), max_concurrency: None }
    }

    /// Requests that come independently of each other.
    ///
    /// # Errors
    /// As [`Arrivals::poisson`].
    pub fn poisson(rate: RequestsPerSecond, lengths: Lengths) -> Result<Self, WorkloadError> {
        Ok(Self::new(Arrivals::poisson(rate)?, lengths))
    }

    /// Clients that ask again as soon as they have their answer.
    ///
    /// # Errors
    /// As [`Arrivals::closed_loop`].
    pub fn closed_loop(concurrency: u64, lengths: Lengths) -> Result<Self, WorkloadError> {
        Ok(Self::new(Arrivals::closed_loop(concurrency)?, lengths))
    }

    /// A batch of requests that are all there at the start.
    ///
    /// # Errors
    /// As [`Arrivals::all_at_once`].
    pub fn offline(requests: u64, lengths: Lengths) -> Result<Self, WorkloadError> {
        Ok(Self::new(Arrivals::all_at_once(requests)?, lengths))
    }

    /// The same requests arriving in another way.
    #[must_use]
    pub fn with_arrivals(self, arrivals: Arrivals) -> Self {
        Self { arrivals, ..self }
    }

    /// Other lengths; classes, which have lengths of their own, are forgotten.
    #[must_use]
    pub fn with_lengths(self, lengths: Lengths) -> Self {
        Self { lengths, classes: Vec::new(), ..self }
    }

    /// Prompts that share a prefix.
    #[must_use]
    pub fn with_prefix(self, prefix: SharedPrefix) -> Self {
        Self { prefix: Some(prefix), ..self }
    }

    /// Classes of requests; the lengths become the mixture of theirs.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without classes, [`WorkloadError::OutOfRange`] for a share that is not above 0, [`WorkloadError::Shares`] if they
    /// differ from 1 in sum by more than a millionth.
    pub fn with_classes(self, classes: Vec<RequestClass>) -> Result<Self, WorkloadError> {
        at_least("classes of requests", classes.len() as u64, 1)?;
        for class in &classes {
            positive("share of a class", class.share, "above 0 and at most 1")?;
        }
        let sum: f64 = classes.iter().map(|class| class.share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            return Err(WorkloadError::Shares { sum });
        }
        let lengths = Lengths::mixture(classes.iter().map(|class| (class.share, class.lengths.clone())).collect())?;
        Ok(Self { lengths, classes, ..self })
    }

    /// A client that sends no more than so many requests at a time, and holds the others back (vLLM: `--max-concurrency` with a rate).
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] for 0.
    pub fn with_max_concurrency(self, requests: u64) -> Result<Self, WorkloadError> {
        at_least("concurrent requests", requests, 1)?;
        Ok(Self { max_concurrency: Some(requests), ..self })
    }

    /// The same requests at another mean rate.
    ///
    /// # Errors
    /// As [`Arrivals::at_rate`].
    pub fn at_rate(&self, rate: RequestsPerSecond) -> Result<Self, WorkloadError> {
        Ok(self.clone().with_arrivals(self.arrivals.at_rate(rate)?))
    }

    /// When requests arrive.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// How long they are, over all classes.
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// What prompts share.
    pub fn prefix(&self) -> Option<&SharedPrefix> {
        self.prefix.as_ref()
    }

    /// Classes of requests; none if all are alike.
    pub fn classes(&self) -> &[RequestClass] {
        &self.classes
    }

    /// The most requests that the client has under way.
    pub fn max_concurrency(&self) -> Option<u64> {
        match self.arrivals {
            Arrivals::ClosedLoop { concurrency, .. } => {
                Some(self.max_concurrency.map_or(concurrency, |most| most.min(concurrency)))
            }
            _ => self.max_concurrency,
        }
    }

    /// Mean number of tokens that a prompt of this length finds in the cache.
    pub fn cached_tokens(&self, prompt: f64) -> f64 {
        self.prefix.map_or(0.0, |prefix| prefix.cached_tokens(prompt))
    }

    /// Mean number of prompt tokens that are found in the cache.
    pub fn mean_cached_tokens(&self) -> f64 {
        self.prefix.map_or(0.0, |prefix| prefix.mean_cached_tokens(&self.lengths))
    }

    /// Prompt tokens that come per second, cached ones included. None for arrivals without a rate.
    pub fn offered_prompt_tokens(&self) -> Option<TokensPerSecond> {
        self.offered(self.lengths.moments().prompt)
    }

    /// Prompt tokens that come per second and are not in the cache. None for arrivals without a rate.
    pub fn offered_uncached_tokens(&self) -> Option<TokensPerSecond> {
        self.offered(self.lengths.moments().prompt - self.mean_cached_tokens())
    }

    /// Output tokens that are asked for per second. None for arrivals without a rate.
    pub fn offered_output_tokens(&self) -> Option<TokensPerSecond> {
        self.offered(self.lengths.moments().output)
    }

    fn offered(&self, tokens: f64) -> Option<TokensPerSecond> {
        let rate = self.arrivals.mean_rate()?;
        Some(TokensPerSecond::from_tokens_per_second(rate.as_requests_per_second() * tokens))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorkload {
    arrivals: Arrivals,
    #[serde(default)]
    lengths: Option<Lengths>,
    #[serde(default)]
    prefix: Option<SharedPrefix>,
    #[serde(default)]
    classes: Vec<RequestClass>,
    #[serde(default)]
    max_concurrency: Option<u64>,
}

impl TryFrom<RawWorkload> for Workload {
    type Error = WorkloadError;

    fn try_from(raw: RawWorkload) -> Result<Self, WorkloadError> {
        // Classes have lengths of their own; those of the workload follow from them.
        let some = raw.lengths.or_else(|| raw.classes.first().map(|class| class.lengths.clone()));
        let lengths = some.ok_or(WorkloadError::TooFew { what: "lengths or classes", count: 0, limit: 1 })?;
        let mut workload = Self { prefix: raw.prefix, ..Self::new(raw.arrivals, lengths) };
        if !raw.classes.is_empty() {
            workload = workload.with_classes(raw.classes)?;
        }
        match raw.max_concurrency {
            Some(most) => workload.with_max_concurrency(most),
            None => Ok(workload),
        }
    }
}
