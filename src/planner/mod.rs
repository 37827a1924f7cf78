//! The inverse questions: what to buy, how to run it, what if.

mod configuration;
mod disaggregation;
mod error;
mod frontier;
mod parallel;
mod price;
mod search;

pub use configuration::{Configuration, ReplicaLayout};
pub use disaggregation::{Disaggregation, PoolLayout};
pub use error::PlannerError;
pub use frontier::{Frontier, FrontierPoint, FrontierProgress, Tradeoff, pareto_front};
pub use price::{PriceChoice, Quote};
pub use search::{
    Answer, Confirmation, Loss, Nearest, Objective, Plan, Refusal, Search, SearchProgress, SearchSpace, Tally,
};
