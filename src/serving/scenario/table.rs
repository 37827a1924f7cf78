//! The embedded table of scenarios.

use super::{Demand, Felt, Scenario, ScenarioError};
use crate::profile::{self, ProfileError, Sources};
use crate::serving::metrics::{Metric, NamedSlo, named_slo, named_slos};
use crate::serving::{Statistic, Target};
use crate::text::{INLINE_COMPLETION, VOICE_PAUSE};
use crate::workload::{LengthDistribution, Lengths, SharedPrefix};
use serde::Deserialize;
use std::sync::LazyLock;

const TABLE: &str = include_str!("../scenarios.toml");
const FILE: &str = "scenarios.toml";

pub(super) fn scenarios() -> Result<&'static [Scenario], ScenarioError> {
    static READ: LazyLock<Result<Vec<Scenario>, ScenarioError>> = LazyLock::new(|| read(TABLE));
    READ.as_deref().map_err(Clone::clone)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    dataset: Vec<RawDataset>,
    scenario: Vec<RawScenario>,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDataset {
    benchmark: String,
    data: String,
    model: String,
    prompt: LengthDistribution,
    output: LengthDistribution,
    sources: Vec<String>,
    assumed: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: String,
    what: String,
    demand: Demand,
    prompt: LengthDistribution,
    output: LengthDistribution,
    prefix: Option<SharedPrefix>,
    limits: Option<String>,
    goodput: Option<f64>,
    percentile: Option<f64>,
    felt: Option<Felt>,
    sources: Vec<String>,
    assumed: Vec<String>,
}

fn read(text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    let RawTable { dataset, scenario, sources } = profile::read(text, FILE)?;
    let mut all = Vec::new();
    for raw in scenario {
        all.push(raw.scenario(&sources)?);
    }
    for raw in dataset {
        raw.scenarios(&sources, &mut all)?;
    }
    Ok(all)
}

impl RawScenario {
    fn scenario(self, sources: &Sources) -> Result<Scenario, ScenarioError> {
        let limits = self.limits.as_deref().map(named_slo).transpose()?;
        let mut references = resolved(&self.sources, sources)?;
        references.extend(limits.iter().flat_map(|limits| limits.sources.clone()));
        Ok(Scenario {
            lengths: lengths(self.prompt.clone(), self.output.clone())?,
            target: self.target(limits)?,
            name: self.name,
            what: self.what,
            model: None,
            prefix: self.prefix,
            demand: self.demand,
            felt: self.felt,
            sources: references,
            assumptions: self.assumed,
        })
    }

    fn target(&self, limits: Option<&NamedSlo>) -> Result<Target, ScenarioError> {
        let target = match (limits, self.goodput) {
            (Some(limits), Some(share)) => Target::goodput(limits.slo, share)?,
            (Some(limits), None) => Target::named(limits)?,
            (None, _) => Target::default(),
        };
        let pause = match self.felt {
            Some(Felt::Voice { speech }) => VOICE_PAUSE - speech,
            Some(Felt::InlineCompletion) => INLINE_COMPLETION,
            _ => return Ok(target),
        };
        let statistic = self.percentile.map_or(Ok(Statistic::P95), Statistic::percentile)?;
        Ok(target.with_latency(Metric::Ttft, statistic, pause)?)
    }
}

impl RawDataset {
    /// The scenarios of a benchmark: one for each of its published limits, and one without.
    fn scenarios(self, sources: &Sources, all: &mut Vec<Scenario>) -> Result<(), ScenarioError> {
        let lengths = lengths(self.prompt, self.output)?;
        let references = resolved(&self.sources, sources)?;
        let scenario = |name: String, demand: Demand, target: Target, more: &[String]| Scenario {
            what: format!("MLPerf Inference, {}", self.data),
            name,
            model: Some(self.model.clone()),
            lengths: lengths.clone(),
            prefix: None,
            demand,
            target,
            felt: None,
            sources: references.iter().chain(more).cloned().collect(),
            assumptions: self.assumed.clone(),
        };
        for limits in named_slos()?
            .iter()
            .filter(|limits| limits.name.rsplit_once('/').is_some_and(|name| name.0 == self.benchmark))
        {
            all.push(scenario(limits.name.clone(), Demand::Rate, Target::named(limits)?, &limits.sources));
        }
        all.push(scenario(format!("{}/offline", self.benchmark), Demand::Offline, Target::default(), &[]));
        Ok(())
    }
}

fn lengths(prompt: LengthDistribution, output: LengthDistribution) -> Result<Lengths, ScenarioError> {
    Lengths::independent(prompt, output).map_err(|error| ProfileError::at_key(FILE, "prompt", error).into())
}

fn resolved(keys: &[String], sources: &Sources) -> Result<Vec<String>, ProfileError> {
    let missing = |key: &String| ProfileError::at_key(FILE, "sources", format!("`{key}` is not among the sources"));
    keys.iter().map(|key| sources.get(key).cloned().ok_or_else(|| missing(key))).collect()
}
