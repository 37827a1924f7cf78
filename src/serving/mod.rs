//! Serving under load: many requests at once, in steady state or one by one.
//!
//! An unloaded latency is not what users see. [`Server`] is one replica with requests of some lengths; it answers what happens at a rate
//! ([`Server::open_loop`]), with a number of clients ([`Server::closed_loop`]) or with more requests than can run ([`Server::offline`]).
//!
//! ```
//! use llm_roofline::prelude::*;
//! use llm_roofline::serving::Server;
//! use llm_roofline::workload::{Lengths, Slo};
//!
//! let catalog = Catalog::embedded();
//! let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
//! let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
//! let model = StepModel::compile(&deployment)?;
//! let server = Server::new(&model, &Lengths::fixed(1000, 250)?)?;
//!
//! let slo = Slo::ttft_tpot("500 ms".parse()?, "50 ms".parse()?);
//! let (calm, busy) = (server.open_loop(server.max_rate() * 0.3, &slo)?, server.open_loop(server.max_rate() * 0.9, &slo)?);
//! assert!(busy.ttft.total() > calm.ttft.total()); // more requests in the same steps, longer steps
//! assert!(busy.summary.tpot.unwrap().mean > calm.summary.tpot.unwrap().mean * 2.0);
//! assert!(calm.summary.goodput.unwrap().share > 0.99);
//! // Beyond the capacity there is no latency to speak of.
//! assert!(!server.open_loop(server.max_rate() * 1.1, &slo)?.summary.stable);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A published table is something else: its client starts with a burst ([`BenchmarkClient`]). Bursts, traces, full caches, priorities and outages
//! are for the simulation ([`simulate`]), which serves every request by the same rules. Formulas: docs/theory.md, section 22.

mod backlog;
mod capacity;
mod disaggregated;
mod draw;
mod error;
pub mod metrics;
mod mix;
mod open_mean;
mod operating;
mod pattern;
mod phases;
mod published;
mod replicas;
mod requests;
mod rules;
mod scenario;
mod scene;
mod server;
#[cfg(feature = "random")]
pub mod simulate;
mod steady;
mod whole_batch;

pub use capacity::{
    Binding, Capacity, Criterion, CurvePoint, Knee, Need, Stability, Statistic, Target, TargetBreach, Verdict,
};
pub use disaggregated::{
    Bottleneck, Disaggregated, DisaggregatedState, KvTransfer, Pool, PromptOrder, Reuse, Split, balanced_ratio,
};
pub use error::ServingError;
pub use phases::{MeanTokens, PhaseTimes};
pub use published::{BenchmarkClient, BenchmarkEstimate};
pub use replicas::{Replicas, ReplicatedState, Router};
pub use rules::{Limit, ServingRules};
pub use scenario::{Demand, Felt, Scenario, ScenarioAnswer, ScenarioError};
pub use server::Server;
pub use steady::{ClassState, SteadyState, TimeToFirstToken};
