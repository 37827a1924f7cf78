//! The coefficients that a deployment is compiled to: one term per operator, linear in the sums of a step load.

use super::cost::RooflineTimes;
use super::load::{PhaseLoad, StepLoad};
use crate::collective::{AllReduce, AlphaBeta};
use crate::operator::OperatorClass;
use crate::roofline::{Roofline, Work};
use crate::units::{Bytes, Flops, Seconds};

/// Which positions of a step pass through an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rows {
    /// Every token.
    All,
    /// Positions that emit a token.
    Emitting,
}

/// A matrix product: `max(flops, weights + activations)` with both sides linear in the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinearTerm {
    pub(super) count: f64,
    pub(super) rows: Rows,
    pub(super) flops_per_row: f64,
    pub(super) weight_bytes: f64,
    pub(super) bytes_per_row: f64,
    pub(super) roofline: Roofline,
}

impl LinearTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> RooflineTimes {
        let rows = match self.rows {
            Rows::All => load.tokens(),
            Rows::Emitting => load.emitting(),
        };
        if rows == 0.0 {
            return RooflineTimes::default();
        }
        roofline_times(
            rows * self.flops_per_row,
            self.weight_bytes + rows * self.bytes_per_row,
            self.count,
            self.roofline,
        )
    }
}

/// Routed experts: a grouped matrix product over those that the tokens of the step are sent to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExpertTerm {
    pub(super) count: f64,
    /// Experts of the layer.
    pub(super) experts: f64,
    /// Logarithm of the probability that a token is not sent to a given expert.
    pub(super) log_missed: f64,
    pub(super) flops_per_token: f64,
    pub(super) bytes_per_expert: f64,
    pub(super) bytes_per_token: f64,
    pub(super) roofline: Roofline,
}

impl ExpertTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> RooflineTimes {
        let tokens = load.tokens();
        if tokens == 0.0 {
            return RooflineTimes::default();
        }
        // The expected number of distinct experts, as in `Moe::expected_distinct_experts`.
        let distinct = -self.experts * (tokens * self.log_missed).exp_m1();
        let weights = distinct * self.bytes_per_expert;
        roofline_times(
            tokens * self.flops_per_token,
            weights + tokens * self.bytes_per_token,
            self.count,
            self.roofline,
        )
    }
}

/// Attention over the cache in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttentionTerm {
    pub(super) count: f64,
    pub(super) reach: usize,
    pub(super) flops_per_pair: f64,
    pub(super) flops_per_cached: f64,
    pub(super) bytes_per_entry: f64,
    pub(super) bytes_per_token: f64,
    pub(super) roofline: Roofline,
}

impl AttentionTerm {
    #[inline]
    pub(super) fn times(&self, phase: &PhaseLoad) -> RooflineTimes {
        let flops = phase.pairs[self.reach] * self.flops_per_pair + phase.cached * self.flops_per_cached;
        let bytes = phase.entries[self.reach] * self.bytes_per_entry + phase.tokens * self.bytes_per_token;
        roofline_times(flops, bytes, self.count, self.roofline)
    }
}

/// A recurrence: work per token, and the state of each sequence read and written once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RecurrentTerm {
    pub(super) count: f64,
    pub(super) flops_per_token: f64,
    pub(super) bytes_per_token: f64,
    pub(super) state_bytes: f64,
    pub(super) roofline: Roofline,
}

impl RecurrentTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> RooflineTimes {
        let bytes = load.tokens() * self.bytes_per_token + load.sequences() * 2.0 * self.state_bytes;
        roofline_times(load.tokens() * self.flops_per_token, bytes, self.count, self.roofline)
    }
}

/// Everything elementwise of a step: small vectors, embedding rows, unfused passes over the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ElementwiseTerm {
    pub(super) vector_bytes: f64,
    pub(super) bytes_per_token: f64,
    pub(super) roofline: Roofline,
}

impl ElementwiseTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> RooflineTimes {
        let bytes = self.vector_bytes + load.tokens() * self.bytes_per_token;
        roofline_times(0.0, bytes, 1.0, self.roofline)
    }
}

/// All-reduces of the residual stream, and the gathering of logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CollectiveTerm {
    pub(super) all_reduces: f64,
    pub(super) bytes_per_token: f64,
    pub(super) logit_bytes_per_row: f64,
    pub(super) all_reduce: AllReduce,
    pub(super) gather: AlphaBeta,
}

impl CollectiveTerm {
    #[inline]
    pub(super) fn all_reduce_time(&self, load: &StepLoad) -> Seconds {
        self.all_reduce.time(Bytes::from_bytes(load.tokens() * self.bytes_per_token)) * self.all_reduces
    }

    #[inline]
    pub(super) fn gather_time(&self, load: &StepLoad) -> Seconds {
        if load.emitting() == 0.0 {
            return Seconds::ZERO;
        }
        self.gather.time(Bytes::from_bytes(load.emitting() * self.logit_bytes_per_row))
    }
}

#[inline]
fn roofline_times(flops: f64, bytes: f64, count: f64, roofline: Roofline) -> RooflineTimes {
    let work = Work { flops: Flops::from_flops(flops * count), bytes: Bytes::from_bytes(bytes * count) };
    RooflineTimes { work, compute: roofline.compute_time(work), memory: roofline.memory_time(work) }
}

/// An operator of the compiled model with its name, for explanations.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named<T> {
    /// Layer kind, or where it stands outside the layers.
    pub(super) group: std::sync::Arc<str>,
    pub(super) name: &'static str,
    pub(super) class: OperatorClass,
    pub(super) term: T,
}

impl AttentionTerm {
    /// By how much the times grow when pairs and entries grow by `more`.
    #[inline]
    pub(super) fn growth(&self, more: f64) -> RooflineTimes {
        roofline_times(more * self.flops_per_pair, more * self.bytes_per_entry, self.count, self.roofline)
    }
}

/// A term of an operator that runs in several layers.
pub(super) trait Counted: Copy + PartialEq {
    fn count(&self) -> f64;
    fn with_count(self, count: f64) -> Self;
}

macro_rules! counted {
    ($($term:ident),*) => {
        $(impl Counted for $term {
            fn count(&self) -> f64 {
                self.count
            }
            fn with_count(self, count: f64) -> Self {
                Self { count, ..self }
            }
        })*
    };
}

counted!(LinearTerm, ExpertTerm, AttentionTerm, RecurrentTerm);
