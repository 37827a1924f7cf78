//! Queueing theory as pure mathematics: it knows arrivals and services, and nothing of language models.
//!
//! Times are plain numbers in any one unit (seconds, milliseconds, mean services), rates are per that unit: the mathematics has no dimension, and
//! neither have its numbers. Every constructor checks what it gets and returns a [`QueueError`]; a queue to which more work arrives than it can do is
//! [`QueueError::Unstable`], never an infinite wait. What a valid queue answers is always finite.
//!
//! | question | queue | how exact |
//! |---|---|---|
//! | one server, exponential times | [`Mm1`] | exact |
//! | one server, constant times: mean and all quantiles | [`Md1`] | exact |
//! | one server, any times | [`Mg1`] | means and variances exact, tails by two moments ([`Tail`]) |
//! | one server, arrivals that are not Poisson | [`Gg1`] | a bound and an approximation |
//! | several servers | [`Mmc`], [`Mdc`], [`MphC`] | exact, also [`erlang_b`] and [`erlang_c`] |
//! | several servers, any times | [`Mgc`] | within a few percent, see [`WaitFormula`] |
//! | one service split over machines | [`mean_sojourn_in_stages`], [`mean_sojourn_sped_up`], [`mean_sojourn_on_replicas`] | exact |
//! | all served at once | [`ProcessorSharing`] | exact |
//! | a speed that depends on how many are present | [`BirthDeath`] | exact |
//! | all that wait are served as one batch | [`BatchQueue`], [`LimitedBatchQueue`], [`VariedBatchQueue`] | exact, and a bound in closed form |
//! | a fixed number of customers that come back | [`ClosedNetwork`], [`BirthDeath::closed`] | exact, and bounds |
//!
//! Notation: arrival rate `lambda`, mean service time `S`, offered load `a = lambda S`, load per server `rho = a/c`; *wait* is the time in the queue,
//! *sojourn* that in queue and service; *SCV* a squared coefficient of variation.

mod band;
mod batch;
mod birth_death;
mod check;
mod closed;
mod compound;
mod erlang;
mod error;
mod gg1;
mod limited_batch;
mod matrix;
mod md1;
mod mdc;
mod mg1;
mod mgc;
mod mm1;
mod mmc;
mod mphc;
mod poisson;
mod service;
mod sharing;
mod states;
mod tail;
mod tandem;
mod varied_batch;

pub(crate) use band::{BandRow, stationary};
pub use batch::{BatchQueue, BatchTime};
pub use birth_death::{BirthDeath, BirthDeathSummary};
pub use closed::{ClosedNetwork, ClosedSolution, Station, ThroughputBounds};
pub(crate) use compound::CompoundPoisson;
pub use erlang::{erlang_b, erlang_c, servers_with_absence};
pub use error::QueueError;
pub use gg1::Gg1;
pub use limited_batch::LimitedBatchQueue;
pub use md1::Md1;
pub(crate) use md1::decay_of;
pub use mdc::Mdc;
pub use mg1::Mg1;
pub use mgc::{Mgc, WaitFormula};
pub use mm1::Mm1;
pub use mmc::Mmc;
pub use mphc::{MphC, TwoPhase};
pub use service::Service;
pub use sharing::ProcessorSharing;
pub use states::States;
pub use tail::Tail;
pub use tandem::{mean_sojourn_in_stages, mean_sojourn_on_replicas, mean_sojourn_sped_up};
pub use varied_batch::VariedBatchQueue;
