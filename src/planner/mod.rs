//! The inverse questions: what to buy, how to run it, what if.

mod configuration;
mod cost;
mod disaggregation;
mod energy;
mod error;
mod frontier;
mod parallel;
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
