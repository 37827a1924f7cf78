//! The inverse questions: what to buy, how to run it, what if.

mod error;
mod price;

pub use error::PlannerError;
pub use price::{PriceChoice, Quote};
