//! Discrete-event simulation: every request of a workload or a trace, served by the rules of the engine on the same step model as the steady
//! state.
//!
//! Between two events (an arrival that may join, the end of an answer, of a prompt's chunk, of the free blocks, a switch of what bounds an operator)
//! the batch is unchanged and its steps cost a line in their number: the simulation leaps over them at once. A request costs a few events, however
//! long its answer is.
//!
//! ```
//! use llm_roofline::prelude::*;
//! use llm_roofline::serving::simulate::Simulation;
//! use llm_roofline::workload::{Lengths, Workload};
//!
//! let catalog = Catalog::embedded();
//! let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
//! let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
//! let model = StepModel::compile(&deployment)?;
//! let workload = Workload::poisson("8 req/s".parse()?, Lengths::fixed(1024, 256)?)?;
//!
//! let outcome = Simulation::new(&model).with_seed(1).run(&workload, 20_000)?;
//! assert!(outcome.summary.stable && outcome.summary.completed == Some(20_000));
//! // How certain is it? The mean time per token is known to 2 %, its 99th percentile to 5 %.
//! let tpot = outcome.statistics.tpot.as_ref().unwrap();
//! assert!(tpot.mean.relative().unwrap() < 0.02 && tpot.p99.relative().unwrap() < 0.05);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Formulas and rules: docs/theory.md, section 23.

mod control;
mod decoding;
mod fleet;
mod form;
mod kv;
mod log;
mod network;
mod outcome;
mod prefix;
mod prices;
mod replica;
mod replications;
mod routing;
mod rules;
mod scaling;
mod sequence;
mod simulation;
mod sink;
mod source;
mod speculating;
mod statistics;
mod waiting;

pub use log::{Event, EventKind};
pub use outcome::{Outcome, Progress, ReplicaOutcome};
pub use routing::Routing;
pub use rules::EngineSettings;
pub use scaling::{Autoscaler, FleetView, Outage};
pub use simulation::Simulation;
pub use statistics::{
    Backlog, ClassStatistics, CompletedRequest, Estimate, Histogram, Latency, Statistics, TimelinePoint, WarmUp,
};
pub use waiting::Order;
