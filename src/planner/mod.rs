//! The inverse questions: what to buy, how to run it, what if.
//!
//! Everything below this floor says what a deployment does. The planner says which deployment does what is wanted:
//!
//! | question | answer |
//! |---|---|
//! | the fewest, cheapest, fastest or most frugal devices for this traffic within these limits? | [`Search`], an [`Answer`] of [`Plan`]s |
//! | how does it change along any axes? | [`Sweep`], a [`Grid`] |
//! | what cannot be had together? | [`Frontier`]; prefill and decode apart: [`Disaggregation`] |
//! | which number of the data sheet is worth paying for, what bounds, what would help? | [`Question`]: [`Sensitivity`], [`DeploymentDiagnosis`], [`Levers`] |
//! | what do tokens cost, by kind, and the idle time? | [`TokenCost`], with the prices of [`PriceChoice`] |
//! | what does it draw? | [`Power`], [`EnergyUse`] |
//! | how many through the day? rent or buy? | [`Fleet`], [`Ownership`] |
//!
//! ```
//! use llm_roofline::planner::{Fleet, PriceChoice, Search, SearchSpace, TokenCost};
//! use llm_roofline::prelude::*;
//! use llm_roofline::serving::{Server, Statistic, Target};
//! use llm_roofline::workload::{Lengths, RateSchedule, Slo, Workload};
//!
//! // 40 requests per second at noon, 20 on average, of 1000 + 250 tokens, on whichever card is the cheapest.
//! let catalog = Catalog::embedded();
//! let cards = ["l4-24gb", "l40s-48gb", "a100-sxm-80gb", "h100-sxm-80gb"].map(|name| catalog.device(name));
//! let cards = cards.into_iter().collect::<Result<Vec<_>, _>>()?;
//! let space = SearchSpace::new(catalog.model("llama-3.1-8b")?, catalog.engine("vllm-2026")?).with_devices(cards);
//! let lengths = Lengths::fixed(1000, 250)?;
//! let noon = Workload::poisson("40 req/s".parse()?, lengths.clone())?;
//! let target = Target::at(&Slo::ttft_tpot("800 ms".parse()?, "40 ms".parse()?), Statistic::P95)?;
//! let answer = Search::new(&space, &noon, &target)?.run()?;
//! let best = answer.best().expect("there are enough of them");
//!
//! // The same replicas, as many as every hour of the day needs.
//! let day = RateSchedule::day_curve("20 req/s".parse()?, "40 req/s".parse()?, "24 h".parse()?)?;
//! let price = best.quote.as_ref().unwrap().usd_per_device_hour;
//! let capacity = best.rate * ((1.0 + best.headroom) / f64::from(best.replicas));
//! let fleet = Fleet::new(&day, capacity, best.configuration.devices_per_replica, price)?.with_stretches_of("1 h".parse()?)?.plan()?;
//! assert_eq!(fleet.fixed.most_replicas, u64::from(best.replicas));
//! assert!(fleet.saved_share() > 0.2);
//!
//! // What of it pays for prompts, what for answers, what for waiting.
//! let model = StepModel::compile(&best.configuration.deployment)?;
//! let server = Server::new(&model, &lengths)?;
//! let cost = TokenCost::new(&server, best.rate / f64::from(best.replicas), price)?;
//! assert!(cost.usd_per_million_input_tokens < cost.usd_per_million_output_tokens && cost.idle > UsdPerHour::ZERO);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Formulas: docs/theory.md, section 24.

mod configuration;
mod cost;
mod disaggregation;
mod energy;
mod error;
mod frontier;
mod price;
mod search;
mod sensitivity;
mod sweep;

pub use configuration::{Configuration, ReplicaLayout};
pub use cost::{
    Breakeven, Fleet, FleetCost, FleetPlan, FleetStretch, Ownership, Tariff, TokenCost, TokenCounts, margin_of_revenue,
    margin_over_cost, peak_per_usd_hour, usd_per_million_tokens,
};
pub use disaggregation::{Disaggregation, PoolLayout};
pub use energy::{EnergyUse, Power, energy_per_query, energy_per_request, energy_per_token};
pub use error::PlannerError;
pub use frontier::{Frontier, FrontierPoint, FrontierProgress, Tradeoff, pareto_front};
pub use price::{PriceChoice, Quote};
pub use search::{
    Answer, Confirmation, Loss, Nearest, Objective, Plan, Refusal, Search, SearchProgress, SearchSpace, Tally,
};
pub use sensitivity::{
    DeploymentDiagnosis, Doubling, Lever, LeverChange, Levers, Measure, Measures, Phase, PhaseBound, Question,
    Sensitivity, Spec, SpecEffect, SpecError,
};
pub use sweep::{Axis, AxisLabels, Cell, Column, Grid, SpeculationChoice, Sweep, SweepProgress};
