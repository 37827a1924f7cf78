//! Communication between the devices of a group: what an all-reduce, a gather, an exchange of experts or a pipeline hop takes.
//!
//! Every law is linear in the bytes, `latency + bytes * seconds per byte` (an [`AlphaBeta`]), or the smallest of a few such lines
//! (an [`AllReduce`]). The numbers come from outside: bandwidths from the [hardware](crate::hardware), latencies and efficiencies as
//! a [`CollectiveLaw`] of the engine. Nothing here is a constant of a machine.
//!
//! More bandwidth is never slower, more bytes are never faster, and a group of one device needs no time.

mod alpha_beta;
mod error;
mod experts;
mod group;
mod law;
mod nccl;
mod pipeline;

pub use alpha_beta::{AllReduce, AlphaBeta};
pub use error::CollectiveError;
pub use experts::ExpertExchange;
pub use group::{Group, HostStaging, Network};
pub use law::{Algorithm, CollectiveLaw, InSwitchReduction, Ring};
pub use nccl::{Collective, NcclLatency};
pub use pipeline::pipeline_bubble;
