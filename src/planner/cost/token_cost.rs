//! The price of an hour, split over the tokens that are served in it.

use super::super::PlannerError;
use super::super::error::not_negative;
use super::finite;
use crate::serving::Server;
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond, UsdPerHour, UsdPerMillionTokens};
use serde::Serialize;
use std::fmt;

/// What tokens of each kind cost one replica at a steady load, and what its idle time costs.
///
/// # Formula
/// A request takes `prefill + decode = 1 / max_rate` of the replica's time ([`PhaseTimes`](crate::serving::PhaseTimes)), the share `cached` of the prefill because
/// of tokens that were found in the prefix cache. With the price `p` of the replica and `n` tokens of a kind per request:
/// ```text
/// input  = p (prefill - cached) / n_input      output = p decode / n_output
/// cached = p cached / n_cached                 idle   = p (1 - rate / max_rate)
/// ```
/// so that the prices of all tokens and `idle` add up to `p`. They do not depend on the rate: what a low load wastes is in `idle` alone, and in the two blended
/// prices, which put everything on some tokens: `p / (rate n_output)` and `p / (rate (n_input + n_cached + n_output))`.
///
/// # Units
/// Prices are of one replica, for as many devices as the layout gives it.
///
/// # Validity
/// The operating point is saturation. The first token of an answer comes out of the prefill, so that answers of one token cost nothing beside their prompts. A cached token
/// costs what attention pays for it in the prefill; what decode steps pay for reading it is in the output.
///
/// # References
/// Providers publish the same three prices (deepseek-ai/open-infra-index, day 6).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TokenCost {
    /// What one replica costs.
    pub usd_per_replica_hour: UsdPerHour,
    /// Requests per second that one replica serves.
    pub rate: RequestsPerSecond,
    /// The same over what it could serve at most.
    pub utilization: f64,
    /// Price of prompt tokens that are computed; none where there are none.
    pub usd_per_million_input_tokens: Option<UsdPerMillionTokens>,
    /// Price of prompt tokens that are found in the prefix cache; none where there are none.
    pub usd_per_million_cached_tokens: Option<UsdPerMillionTokens>,
    /// Price of tokens of answers; none where there are none.
    pub usd_per_million_output_tokens: Option<UsdPerMillionTokens>,
    /// The whole cost, idle time included, on output tokens alone; none without requests.
    pub blended_usd_per_million_output_tokens: Option<UsdPerMillionTokens>,
    /// The whole cost, idle time included, on all tokens alike; none without requests.
    pub blended_usd_per_million_tokens: Option<UsdPerMillionTokens>,
    /// What the replica costs while it could serve more.
    pub idle: UsdPerHour,
    /// Prompt tokens per second that are computed.
    pub input_tps_per_replica: TokensPerSecond,
    /// Prompt tokens per second that are found in the prefix cache.
    pub cached_tps_per_replica: TokensPerSecond,
    /// Output tokens per second.
    pub output_tps_per_replica: TokensPerSecond,
}

impl TokenCost {
    /// Of one replica that gets so many requests per second, at a price for each of its devices.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a rate that is negative or beyond what the replica can serve, or a price that is negative.
    ///
    /// ```
    /// use llm_roofline::planner::TokenCost;
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::Server;
    /// use llm_roofline::workload::{Lengths, SharedPrefix};
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let server = Server::with_prefix(&model, &Lengths::fixed(2000, 300)?, &SharedPrefix::share(0.5)?)?;
    ///
    /// let cost = TokenCost::new(&server, server.max_rate() * 0.5, "3 USD/h".parse()?)?;
    /// assert_eq!(cost.idle.to_string(), "1.50 USD/h"); // half of the time
    /// let prices = (cost.usd_per_million_cached_tokens, cost.usd_per_million_input_tokens, cost.usd_per_million_output_tokens);
    /// assert!(prices.0 < prices.1 && prices.1 < prices.2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        server: &Server<'_>,
        rate: RequestsPerSecond,
        usd_per_device_hour: UsdPerHour,
    ) -> Result<Self, PlannerError> {
        let utilization = utilization(server, rate)?;
        not_negative("the price of a device in USD per hour", usd_per_device_hour.as_usd_per_hour())?;
        let devices = f64::from(server.model().deployment().devices_per_replica());
        let price = usd_per_device_hour * devices;
        finite("the price of a replica in USD per hour", price, UsdPerHour::as_usd_per_hour)?;
        let (phases, tokens) = (server.phase_times(), server.mean_tokens());
        let of_requests = |tokens: f64| TokensPerSecond::from_tokens_per_second(rate.requests_in(ONE_SECOND) * tokens);
        let whole = |count: f64| positive(price / of_requests(count));
        Ok(Self {
            usd_per_replica_hour: price,
            rate,
            utilization,
            usd_per_million_input_tokens: price_of(price, phases.prefill - phases.cached, tokens.input),
            usd_per_million_cached_tokens: price_of(price, phases.cached, tokens.cached),
            usd_per_million_output_tokens: price_of(price, phases.decode, tokens.output),
            blended_usd_per_million_output_tokens: whole(tokens.output),
            blended_usd_per_million_tokens: whole(tokens.input + tokens.cached + tokens.output),
            idle: price * (1.0 - utilization),
            input_tps_per_replica: of_requests(tokens.input),
            cached_tps_per_replica: of_requests(tokens.cached),
            output_tps_per_replica: of_requests(tokens.output),
        })
    }

    /// Of a replica that always has more requests than it can serve: the lowest prices there are.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a price that is negative.
    pub fn saturated(server: &Server<'_>, usd_per_device_hour: UsdPerHour) -> Result<Self, PlannerError> {
        Self::new(server, server.max_rate(), usd_per_device_hour)
    }

    /// The same cost with idle time put on the tokens, in proportion to their prices: what has to be asked for them at this load. Without requests nothing changes.
    #[must_use]
    pub fn with_idle_shared(self) -> Self {
        if self.utilization <= 0.0 {
            return self;
        }
        let shared = |price: Option<UsdPerMillionTokens>| price.map(|price| price / self.utilization);
        Self {
            usd_per_million_input_tokens: shared(self.usd_per_million_input_tokens),
            usd_per_million_cached_tokens: shared(self.usd_per_million_cached_tokens),
            usd_per_million_output_tokens: shared(self.usd_per_million_output_tokens),
            idle: UsdPerHour::ZERO,
            ..self
        }
    }
}

const ONE_SECOND: Seconds = Seconds::from_seconds(1.0);

/// The rate over the largest that the replica can serve.
pub(in crate::planner) fn utilization(server: &Server<'_>, rate: RequestsPerSecond) -> Result<f64, PlannerError> {
    let most = server.max_rate();
    let utilization = rate / most;
    // The largest rate itself, computed in another order.
    if (0.0..=1.0 + 1e-9).contains(&utilization) {
        return Ok(utilization.min(1.0));
    }
    let what = "the rate over what a replica serves at most";
    Err(PlannerError::Number { what, value: utilization, expected: "a number from 0 to 1" })
}

/// Price of tokens, so many of which take this time.
fn price_of(price: UsdPerHour, time: Seconds, tokens: f64) -> Option<UsdPerMillionTokens> {
    (tokens > 0.0).then(|| UsdPerMillionTokens::from_usd_per_million_tokens((price * time).as_usd() / tokens * 1e6))
}

fn positive(price: UsdPerMillionTokens) -> Option<UsdPerMillionTokens> {
    price.is_finite().then_some(price)
}

impl fmt::Display for TokenCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "per million tokens: ")?;
        let kinds = [
            ("input", self.usd_per_million_input_tokens),
            ("cached", self.usd_per_million_cached_tokens),
            ("output", self.usd_per_million_output_tokens),
        ];
        for (kind, price) in kinds.into_iter().filter_map(|(kind, price)| Some((kind, price?))) {
            write!(f, "{kind} {:.4} USD, ", price.as_usd_per_million_tokens())?;
        }
        let percent = 100.0 * self.utilization;
        write!(
            f,
            "and {:.2} of {:.2} for idle time at {percent:.0} % of capacity",
            self.idle, self.usd_per_replica_hour
        )?;
        match self.blended_usd_per_million_output_tokens {
            Some(price) => write!(f, " (everything on outputs: {:.4} USD)", price.as_usd_per_million_tokens()),
            None => Ok(()),
        }
    }
}
