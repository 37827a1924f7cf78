//! Workloads with a name: what is asked, how long requests are, which limits they have.

mod answer;
mod table;

pub use answer::ScenarioAnswer;

use super::metrics::MetricsError;
use super::{Capacity, Server, ServingError, Target};
use crate::profile::{ProfileError, folded, nearest};
use crate::step::StepModel;
use crate::units::Seconds;
use crate::workload::{Lengths, SharedPrefix};
use serde::Deserialize;

/// What is asked of a deployment in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Demand {
    /// The largest rate of independent requests within the limits (MLPerf: server).
    Rate,
    /// The largest number of users within the limits, each of whom waits for an answer and then thinks.
    #[non_exhaustive]
    Users {
        /// From an answer to the next request.
        think_time: Seconds,
    },
    /// How long a number of requests take, so many at a time.
    #[non_exhaustive]
    Batch {
        /// All requests.
        requests: u64,
        /// At a time.
        streams: u64,
        /// For how long there is time.
        within: Seconds,
    },
    /// The largest throughput, without limits (MLPerf: offline).
    Offline,
}

/// How the result is felt by people.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Felt {
    /// They read while the text comes.
    Reading,
    /// They hear it: held against [`VOICE_PAUSE`](crate::text::VOICE_PAUSE).
    #[non_exhaustive]
    Voice {
        /// From the first token to the first sound.
        speech: Seconds,
    },
    /// It appears while they type: held against [`INLINE_COMPLETION`](crate::text::INLINE_COMPLETION).
    InlineCompletion,
}

/// A workload with a name.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::serving::Scenario;
///
/// let scenario = Scenario::named("voice assistant")?;
/// assert_eq!(scenario.target.to_string(), "p95 TTFT <= 380 ms"); // a pause of 500 ms, less 120 ms for speech synthesis
///
/// let catalog = Catalog::embedded();
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?)
///     .with_engine(catalog.engine("vllm-2026")?);
/// let answer = scenario.answer(&StepModel::compile(&deployment)?)?;
/// assert!(answer.meets && answer.users().unwrap() > 10.0);
/// println!("{answer}");
///
/// let error = Scenario::named("voice-asistant").unwrap_err();
/// assert!(error.to_string().contains("did you mean `voice-assistant`?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// `chat`, `voice-assistant`, `mlperf/llama2-70b/interactive`, ...
    pub name: String,
    /// What happens in it.
    pub what: String,
    /// The model that a benchmark prescribes, as the catalog calls it.
    pub model: Option<String>,
    /// How long requests are.
    pub lengths: Lengths,
    /// What of the prompts is cached.
    pub prefix: Option<SharedPrefix>,
    /// What is asked.
    pub demand: Demand,
    /// The limits.
    pub target: Target,
    /// How people feel it.
    pub felt: Option<Felt>,
    /// Where its numbers come from.
    pub sources: Vec<String>,
    /// Numbers that no source gives.
    pub assumptions: Vec<String>,
}

/// Why a scenario has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// A scenario of no known name.
    #[error("no scenario is named `{name}`{}; known are {known}", .nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default())]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The nearest known name.
        nearest: Option<&'static str>,
        /// All known names.
        known: String,
    },
    /// The deployment cannot serve it.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// The limits have a mistake in them.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The embedded table has a mistake in it.
    #[error(transparent)]
    Table(#[from] ProfileError),
}

impl Scenario {
    /// All scenarios.
    ///
    /// # Errors
    /// [`ScenarioError::Table`] if the embedded table has a mistake in it.
    pub fn all() -> Result<&'static [Self], ScenarioError> {
        table::scenarios()
    }

    /// The scenario of a name; case, spaces, dashes and underscores do not matter. MLPerf's server scenarios are also called `conversational`.
    ///
    /// # Errors
    /// [`ScenarioError::UnknownName`] with the nearest known name.
    pub fn named(name: &str) -> Result<&'static Self, ScenarioError> {
        let all = Self::all()?;
        let wanted = folded(&name.replace("/conversational", "/server"));
        all.iter().find(|known| folded(&known.name) == wanted).ok_or_else(|| {
            let names: Vec<&'static str> = all.iter().map(|known| known.name.as_str()).collect();
            let nearest = nearest(name, names.iter().copied());
            ScenarioError::UnknownName { name: name.into(), nearest, known: names.join(", ") }
        })
    }

    /// The same with requests of other lengths.
    #[must_use]
    pub fn with_lengths(self, lengths: Lengths) -> Self {
        Self { lengths, ..self }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_target(self, target: Target) -> Self {
        Self { target, ..self }
    }

    /// The same with another question.
    #[must_use]
    pub fn with_demand(self, demand: Demand) -> Self {
        Self { demand, ..self }
    }

    /// What one replica of a deployment makes of it.
    ///
    /// # Errors
    /// [`ScenarioError::Serving`] for requests that do not fit, or are longer than the model allows.
    pub fn answer(&self, model: &StepModel) -> Result<ScenarioAnswer, ScenarioError> {
        let server = match &self.prefix {
            Some(prefix) => Server::with_prefix(model, &self.lengths, prefix)?,
            None => Server::new(model, &self.lengths)?,
        };
        let answer =
            |capacity: Capacity, meets| ScenarioAnswer::new(self, capacity.state.clone(), Some(capacity), meets);
        match self.demand {
            Demand::Rate => {
                let capacity = server.max_rate_under(&self.target)?;
                let meets = capacity.is_met();
                Ok(answer(capacity, meets))
            }
            Demand::Users { think_time } => {
                let capacity = server.max_users_under(&self.target, think_time)?;
                let meets = capacity.is_met();
                Ok(answer(capacity, meets))
            }
            Demand::Batch { requests, streams, within } => {
                let state = server.closed_loop(streams.max(1) as f64, Seconds::ZERO, &self.target.slo())?;
                let duration = state.rate.interval() * requests as f64;
                let meets = duration <= within && self.target.is_met(&state);
                Ok(ScenarioAnswer { duration: Some(duration), ..ScenarioAnswer::new(self, state, None, meets) })
            }
            Demand::Offline => Ok(ScenarioAnswer::new(self, server.offline(&self.target.slo()), None, true)),
        }
    }
}
