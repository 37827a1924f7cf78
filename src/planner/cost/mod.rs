//! What serving costs: tokens, fleets that follow the day, and devices that are bought instead of rented.

mod fleet;
mod ownership;
mod token_cost;

pub use fleet::{Fleet, FleetCost, FleetPlan, FleetStretch};
pub use ownership::{Breakeven, Ownership};
pub use token_cost::TokenCost;
pub(super) use token_cost::utilization;

use super::PlannerError;
use super::error::{above_zero, not_negative};
use crate::units::{FlopsPerSecond, TokensPerSecond, Usd, UsdPerHour, UsdPerMillionTokens};
use serde::{Deserialize, Serialize};

/// What a million tokens cost of something that costs so much per hour and makes so many per second.
///
/// # Formula
/// `USD/Mtok = (USD/h) / (3600 tok/s) * 10^6`, with the price of all devices that make the rate.
///
/// # Errors
/// [`PlannerError::Number`] for a price that is negative, or a rate that is not above 0.
///
/// # References
/// DeepSeek's inference system (deepseek-ai/open-infra-index, day 6): a node of eight H800 at 2 USD/h each decodes 14,800 tokens per second.
/// ```
/// use llm_roofline::planner::usd_per_million_tokens;
/// let price = usd_per_million_tokens("16 USD/h".parse()?, "14800 tok/s".parse()?)?;
/// assert_eq!(format!("{price:.4}"), "0.3003 USD/Mtok");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn usd_per_million_tokens(price: UsdPerHour, rate: TokensPerSecond) -> Result<UsdPerMillionTokens, PlannerError> {
    not_negative("the price in USD per hour", price.as_usd_per_hour())?;
    above_zero("the rate in tokens per second", rate.as_tokens_per_second())?;
    finite("the price of a million tokens in USD", price / rate, UsdPerMillionTokens::as_usd_per_million_tokens)
}

/// The arithmetic that one US dollar per hour rents.
///
/// # Formula
/// `peak / (price in USD/h)`. Times 3,600 s it is the operations that a dollar buys.
///
/// # Errors
/// [`PlannerError::Number`] unless both are above 0.
///
/// # References
/// How To Scale Your Model, chapter 8 (jax-ml/scaling-book), whose column "FLOPs / $" it is.
/// ```
/// use llm_roofline::planner::peak_per_usd_hour;
/// let h100 = peak_per_usd_hour("990 TFLOP/s".parse()?, "10.8 USD/h".parse()?)?;
/// assert_eq!(h100.to_string(), "91.7 TFLOP/s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn peak_per_usd_hour(peak: FlopsPerSecond, price: UsdPerHour) -> Result<FlopsPerSecond, PlannerError> {
    above_zero("the rate of arithmetic in FLOP/s", peak.as_flops_per_second())?;
    let price = above_zero("the price in USD per hour", price.as_usd_per_hour())?;
    finite("the rate of arithmetic for one USD per hour in FLOP/s", peak / price, FlopsPerSecond::as_flops_per_second)
}

/// The profit as a share of the *cost*: 5.45 is "545 %". See [`margin_of_revenue`] for the other convention, and say which one a figure is.
///
/// # Formula
/// `(revenue - cost) / cost`
///
/// # Errors
/// [`PlannerError::Number`] for a revenue that is negative, or a cost that is not above 0.
///
/// # References
/// deepseek-ai/open-infra-index, day 6.
/// ```
/// use llm_roofline::planner::{margin_of_revenue, margin_over_cost};
/// use llm_roofline::units::Usd;
/// let (revenue, cost) = (Usd::from_usd(562_027.0), Usd::from_usd(87_072.0));
/// assert_eq!(format!("{:.0} %", 100.0 * margin_over_cost(revenue, cost)?), "545 %");
/// assert_eq!(format!("{:.1} %", 100.0 * margin_of_revenue(revenue, cost)?), "84.5 %");
/// # Ok::<(), llm_roofline::planner::PlannerError>(())
/// ```
pub fn margin_over_cost(revenue: Usd, cost: Usd) -> Result<f64, PlannerError> {
    let revenue = not_negative("the revenue in USD", revenue.as_usd())?;
    let cost = above_zero("the cost in USD", cost.as_usd())?;
    finite("the margin over the cost", (revenue - cost) / cost, |margin| margin)
}

/// The profit as a share of the *revenue*, at most 1: what accountants call a margin.
///
/// # Formula
/// `(revenue - cost) / revenue`
///
/// # Errors
/// [`PlannerError::Number`] for a revenue that is not above 0, or a cost that is negative.
pub fn margin_of_revenue(revenue: Usd, cost: Usd) -> Result<f64, PlannerError> {
    let revenue = above_zero("the revenue in USD", revenue.as_usd())?;
    let cost = not_negative("the cost in USD", cost.as_usd())?;
    finite("the margin of the revenue", (revenue - cost) / revenue, |margin| margin)
}

/// How many tokens of each kind were served in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenCounts {
    /// Prompt tokens that were found in a cache.
    pub cached: f64,
    /// Prompt tokens that had to be computed.
    pub missed: f64,
    /// Tokens of answers.
    pub output: f64,
}

impl TokenCounts {
    /// The share of prompt tokens that were found in a cache; none without prompts.
    pub fn hit_rate(&self) -> Option<f64> {
        let rate = self.cached / (self.cached + self.missed);
        rate.is_finite().then_some(rate)
    }
}

/// What a provider asks for a million tokens of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tariff {
    /// Prompt tokens that are found in a cache.
    pub cached: UsdPerMillionTokens,
    /// Prompt tokens that have to be computed.
    pub missed: UsdPerMillionTokens,
    /// Tokens of answers.
    pub output: UsdPerMillionTokens,
}

impl Tariff {
    /// What so many tokens bring in.
    ///
    /// # Formula
    /// The sum over all kinds of price times count.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for counts or prices that are negative or not finite.
    ///
    /// # References
    /// deepseek-ai/open-infra-index, day 6: one day at the prices of DeepSeek-R1. Rounded counts bring 562,100 USD, the published figure is 562,027.
    /// ```
    /// use llm_roofline::planner::{Tariff, TokenCounts};
    /// let tariff = Tariff { cached: "0.14 USD/Mtok".parse()?, missed: "0.55 USD/Mtok".parse()?, output: "2.19 USD/Mtok".parse()? };
    /// let day = TokenCounts { cached: 342e9, missed: 266e9, output: 168e9 };
    /// assert_eq!(tariff.revenue(&day)?.to_string(), "562100 USD");
    /// assert_eq!(format!("{:.2} %", 100.0 * day.hit_rate().unwrap()), "56.25 %");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revenue(&self, counts: &TokenCounts) -> Result<Usd, PlannerError> {
        let kinds = [(self.cached, counts.cached), (self.missed, counts.missed), (self.output, counts.output)];
        let mut revenue = Usd::ZERO;
        for (price, count) in kinds {
            not_negative("the price of tokens in USD per million", price.as_usd_per_million_tokens())?;
            revenue += price.of_tokens(not_negative("the number of tokens", count)?);
        }
        finite("the revenue in USD", revenue, Usd::as_usd)
    }
}

/// The value, if it did not overflow.
pub(super) fn finite<T: Copy>(what: &'static str, value: T, number: impl Fn(T) -> f64) -> Result<T, PlannerError> {
    let value_of = number(value);
    let expected = "a finite number";
    if value_of.is_finite() { Ok(value) } else { Err(PlannerError::Number { what, value: value_of, expected }) }
}
