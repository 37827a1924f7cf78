//! Serving under load: many requests at once, in steady state.

mod capacity;
mod disaggregated;
mod draw;
mod error;
pub mod metrics;
mod mix;
mod operating;
mod pattern;
mod published;
mod replicas;
mod requests;
mod rules;
mod scenario;
mod scene;
mod server;
mod steady;
mod whole_batch;

pub use capacity::{
    Binding, Capacity, Criterion, CurvePoint, Knee, Stability, Statistic, Target, TargetBreach, Verdict,
};
pub use disaggregated::{
    Bottleneck, Disaggregated, DisaggregatedState, KvTransfer, Pool, PromptOrder, Reuse, Split, balanced_ratio,
};
pub use error::ServingError;
pub use published::{BenchmarkClient, BenchmarkEstimate};
pub use replicas::{Replicas, ReplicatedState, Router};
pub use rules::{Limit, ServingRules};
pub use scenario::{Demand, Felt, Scenario, ScenarioAnswer, ScenarioError};
pub use server::Server;
pub use steady::{ClassState, SteadyState, TimeToFirstToken};
