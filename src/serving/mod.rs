//! Serving under load: many requests at once, in steady state.

pub mod metrics;
