//! How many replicas a load needs.

use super::{Server, TICKS, Target, TargetBreach};
use crate::serving::ServingError;
use crate::serving::error::{above_zero, not_negative};
use crate::units::{RequestsPerSecond, Seconds};

/// Replicas that share a load evenly and meet a target.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Need {
    /// The fewest that do.
    Replicas(u32),
    /// No number does: already a request that is alone breaks this condition.
    Unloaded(TargetBreach),
    /// More than were allowed.
    MoreThan(u32),
}

impl Server<'_> {
    /// The fewest replicas that answer so many requests per second and meet a target, each with an equal part of independent requests
    /// ([`Router::Random`](crate::serving::Router::Random)).
    ///
    /// # Formula
    /// `ceil(rate / capacity)` with the capacity of [`max_rate_under`](Self::max_rate_under), which is only computed as exactly as the answer needs. So a looser target or
    /// less traffic never needs more.
    ///
    /// # Errors
    /// As [`max_rate_under`](Self::max_rate_under); [`ServingError::Number`] for a rate that is not above 0.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::{Need, Server, Statistic, Target};
    /// use llm_roofline::workload::{Lengths, Slo};
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?))?;
    /// let server = Server::new(&model, &Lengths::fixed(1000, 200)?)?;
    /// let target = Target::at(&Slo::ttft_tpot("500 ms".parse()?, "20 ms".parse()?), Statistic::P90)?;
    /// let rate = server.max_rate_under(&target)?.rate;
    /// assert_eq!(server.replicas_for_rate(rate * 2.5, &target, 100)?, Need::Replicas(3));
    /// assert_eq!(server.replicas_for_rate(rate * 2.5, &target, 2)?, Need::MoreThan(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replicas_for_rate(&self, rate: RequestsPerSecond, target: &Target, most: u32) -> Result<Need, ServingError> {
        let per_second = above_zero("requests per second", rate.as_requests_per_second())?;
        let needed = |tick: u64| replicas(per_second / self.rate_at(tick).as_requests_per_second());
        // What no target keeps from the largest rate.
        if needed(TICKS - 1) > f64::from(most) {
            return Ok(Need::MoreThan(most));
        }
        if target.is_empty() {
            return Ok(Need::Replicas(needed(TICKS - 1) as u32));
        }
        let fewest = |beyond: u64| needed(beyond - 1);
        let enough =
            |met: u64, beyond: u64| fewest(beyond) > f64::from(most) || met > 0 && needed(met) == fewest(beyond);
        let found = self.rates_under(target, enough)?;
        Ok(match found.breach_alone {
            Some(breach) => Need::Unloaded(breach),
            None if found.loads.0 == 0 || needed(found.loads.0) > f64::from(most) => Need::MoreThan(most),
            None => Need::Replicas(needed(found.loads.0) as u32),
        })
    }

    /// The fewest replicas that so many users share evenly and that meet a target; each user takes a time to think between an answer and the next request.
    ///
    /// # Formula
    /// `ceil(users / capacity)` with the capacity of [`max_users_under`](Self::max_users_under), only as exact as the answer needs.
    ///
    /// # Errors
    /// As [`max_users_under`](Self::max_users_under); [`ServingError::Number`] for no users.
    pub fn replicas_for_users(
        &self,
        users: u64,
        think_time: Seconds,
        target: &Target,
        most: u32,
    ) -> Result<Need, ServingError> {
        let count = above_zero("the number of users", users as f64)?;
        not_negative("the time to think in seconds", think_time.as_seconds())?;
        let needed = |users: u64| replicas(count / users as f64);
        let enough = |met: u64, beyond: u64| met >= users || needed(met) == needed(beyond - 1);
        let found = self.users_under(target, think_time, enough)?;
        Ok(match found.breach_alone {
            Some(breach) => Need::Unloaded(breach),
            None if found.loads.0 == 0 || needed(found.loads.0) > f64::from(most) => Need::MoreThan(most),
            None => Need::Replicas(needed(found.loads.0) as u32),
        })
    }

    /// Whether one replica answers so many requests per second and meets a target: `rate <= max_rate_under(target)`, with as few steady states as that takes.
    ///
    /// # Errors
    /// As [`max_rate_under`](Self::max_rate_under).
    pub fn carries(&self, rate: RequestsPerSecond, target: &Target) -> Result<bool, ServingError> {
        let per_second = not_negative("requests per second", rate.as_requests_per_second())?;
        if rate >= self.max_rate() {
            return Ok(false);
        }
        let above = |tick: u64| self.rate_at(tick).as_requests_per_second() >= per_second;
        let found = self.rates_under(target, |met, beyond| above(met) || !above(beyond - 1))?;
        Ok(found.breach_alone.is_none() && above(found.loads.0))
    }
}

/// Whole replicas for a load of so many of their capacities; infinite for none.
fn replicas(capacities: f64) -> f64 {
    capacities.ceil().max(1.0)
}
