//! What a deployment makes of a scenario.

use super::{Demand, Felt, Scenario};
use crate::serving::{Binding, Capacity, SteadyState};
use crate::text::{Density, Experience};
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use std::fmt;

/// What one replica of a deployment makes of a scenario. As text: a sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScenarioAnswer {
    /// The scenario's name.
    pub scenario: String,
    /// What was asked.
    pub demand: Demand,
    /// Whether any load meets the limits; for a batch, whether it is done in time.
    pub meets: bool,
    /// Requests per second that are answered within the limits; zero where none are.
    pub rate: RequestsPerSecond,
    /// Output tokens per second of everything at that load.
    pub output_tps_total: TokensPerSecond,
    /// The largest load within the limits, and what binds, where that was asked.
    pub capacity: Option<Capacity>,
    /// The steady state at that load; that of a request that is alone where no load meets the limits.
    pub state: SteadyState,
    /// How long a batch takes, without the last answers that run on when there are no more requests.
    pub duration: Option<Seconds>,
    /// How people feel it at that load.
    pub experience: Option<Experience>,
}

impl ScenarioAnswer {
    pub(super) fn new(scenario: &Scenario, state: SteadyState, capacity: Option<Capacity>, meets: bool) -> Self {
        let rate = capacity.as_ref().map_or(state.rate, |capacity| capacity.rate);
        let output_tps_total = state.summary.output_tps_total.filter(|_| rate > RequestsPerSecond::ZERO);
        Self {
            scenario: scenario.name.clone(),
            demand: scenario.demand,
            meets,
            rate,
            output_tps_total: output_tps_total.unwrap_or(TokensPerSecond::ZERO),
            experience: scenario.felt.and_then(|felt| experience(felt, &state)),
            capacity,
            state,
            duration: None,
        }
    }

    /// How many users it is enough for, those that think included; none where users were not asked for.
    pub fn users(&self) -> Option<f64> {
        let users = matches!(self.demand, Demand::Users { .. });
        self.capacity.as_ref().filter(|_| users).map(|capacity| capacity.concurrency)
    }

    /// What keeps the load from being larger, where the largest one was asked for.
    pub fn binding(&self) -> Option<&Binding> {
        self.capacity.as_ref().map(|capacity| &capacity.binding)
    }
}

/// The verdict for 19 of 20 requests.
fn experience(felt: Felt, state: &SteadyState) -> Option<Experience> {
    let ttft = state.summary.ttft.map(|ttft| ttft.p95);
    match felt {
        Felt::Reading => state.summary.tpot.map(|tpot| Experience::reading(tpot.p95, &Density::rule_of_thumb())),
        Felt::Voice { speech } => ttft.map(|ttft| Experience::voice(ttft + speech)),
        Felt::InlineCompletion => ttft.map(Experience::inline_completion),
    }
}

impl fmt::Display for ScenarioAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, rate, output_tps_total, .. } = self;
        match (self.demand, self.duration, self.binding()) {
            (Demand::Batch { requests, streams, within }, Some(duration), _) => {
                let hours = |time: Seconds| time.as_seconds() / 3600.0;
                let (needed, verdict) = (hours(duration), if self.meets { "in time" } else { "too slow" });
                write!(
                    f,
                    "{scenario}: {requests} requests, {streams} at a time, take {needed:.1} h of {:.1} h: {verdict}, {output_tps_total} in total",
                    hours(within)
                )?;
            }
            (_, _, Some(binding)) if !self.meets => {
                write!(f, "{scenario}: not within its limits at any load; {binding}")?
            }
            (Demand::Users { .. }, _, Some(binding)) => {
                write!(
                    f,
                    "{scenario}: {:.0} users, {rate}, {output_tps_total} in total; {binding}",
                    self.users().unwrap_or(0.0)
                )?;
            }
            (_, _, Some(binding)) => write!(f, "{scenario}: {rate}, {output_tps_total} in total; {binding}")?,
            _ => {
                write!(f, "{scenario}: {rate}, {output_tps_total} in total; more is kept out by {}", self.state.limit)?
            }
        }
        self.experience.map_or(Ok(()), |experience| write!(f, "; {experience}"))
    }
}
