//! The coefficients that a deployment is compiled to: one term per operator, linear in the sums of a step load.

use super::cost::OperatorTimes;
use super::load::{PhaseLoad, StepLoad};
use crate::collective::{AllReduce, AlphaBeta};
use crate::operator::OperatorClass;
use crate::roofline::{Work, smooth_max};
use crate::units::{Bytes, Flops, Seconds};

/// Which positions of a step pass through an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Rows {
    /// Every token.
    #[default]
    All,
    /// Positions that emit a token.
    Emitting,
}

impl Rows {
    #[inline]
    fn of(self, load: &StepLoad) -> f64 {
        match self {
            Self::All => load.tokens(),
            Self::Emitting => load.emitting(),
        }
    }
}

/// A matrix product: weights and activations against arithmetic, both linear in the rows. Times in seconds, of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinearTerm {
    pub(super) count: f64,
    pub(super) rows: Rows,
    /// Share of the rows that this device sees.
    pub(super) share_of_rows: f64,
    pub(super) flops_per_row: f64,
    pub(super) weight_bytes: f64,
    pub(super) bytes_per_row: f64,
    /// Seconds per byte at the bandwidth that is reached.
    pub(super) memory_rate: f64,
    pub(super) matrix: MatrixKernel,
    /// Up to so many rows vector kernels take this long instead, per row and once.
    pub(super) vector_rows: f64,
    pub(super) vector_per_row: f64,
    pub(super) vector_once: f64,
    pub(super) serialised: f64,
    /// Launch.
    pub(super) fixed: f64,
    /// Quantization of the inputs.
    pub(super) fixed_per_row: f64,
}

/// Matrix units on a weight matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MatrixKernel {
    pub(super) compute_per_row: f64,
    pub(super) padding_rows: f64,
    /// Unpacking and scaling of quantized weights.
    pub(super) unpack_per_row: f64,
    /// Expansion of quantized weights before the product.
    pub(super) expand: f64,
    /// Walk along the inputs.
    pub(super) walk: f64,
}

impl LinearTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> OperatorTimes {
        let rows = self.rows.of(load) * self.share_of_rows;
        if rows == 0.0 {
            return OperatorTimes::default();
        }
        let bytes = self.weight_bytes + rows * self.bytes_per_row;
        let (compute, unoverlapped, walk) = if rows <= self.vector_rows {
            (self.vector_once + rows * self.vector_per_row, 0.0, 0.0)
        } else {
            let matrix = &self.matrix;
            let compute = (rows + matrix.padding_rows) * matrix.compute_per_row;
            (compute, rows * matrix.unpack_per_row + matrix.expand, matrix.walk)
        };
        let work = Work { flops: Flops::from_flops(rows * self.flops_per_row), bytes: Bytes::from_bytes(bytes) };
        let fixed = self.fixed + walk + rows * self.fixed_per_row;
        operator_times(work, compute, bytes * self.memory_rate, self.serialised, unoverlapped, fixed, self.count)
    }
}

/// Routed experts: a grouped matrix product over those that the tokens of the step are sent to. Times in seconds, of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ExpertTerm {
    pub(super) count: f64,
    /// Experts that this device holds.
    pub(super) experts_here: f64,
    /// Logarithm of the probability that a token is not sent to a given expert.
    pub(super) log_missed: f64,
    /// Rows per token on this device: its share of the chosen experts, in the mean.
    pub(super) rows_per_token: f64,
    pub(super) flops_per_row: f64,
    pub(super) bytes_per_expert: f64,
    pub(super) bytes_per_row: f64,
    pub(super) memory_rate: f64,
    pub(super) activation_rate: f64,
    pub(super) matrix: MatrixKernel,
    /// Busiest device over the mean.
    pub(super) imbalance: f64,
    /// Up to so many tokens every row reads its expert for itself, in vector kernels.
    pub(super) unshared_tokens: f64,
    pub(super) vector_per_row: f64,
    pub(super) serialised: f64,
    pub(super) fixed: f64,
    pub(super) prompt_fixed: f64,
    pub(super) fixed_per_row: f64,
}

/// Below so many rows per expert skewed routing does not make a device the bottleneck: it reads fewer experts instead (aiconfigurator's
/// tables of power-law against balanced routing).
const IMBALANCE_FROM_ROWS_PER_EXPERT: f64 = 16.0;

impl ExpertTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> OperatorTimes {
        let tokens = load.tokens();
        if tokens == 0.0 {
            return OperatorTimes::default();
        }
        let rows = tokens * self.rows_per_token;
        // The expected number of distinct experts, as in `Moe::expected_distinct_experts`.
        let distinct = -self.experts_here * (tokens * self.log_missed).exp_m1();
        let (reads, compute, unoverlapped) = if tokens <= self.unshared_tokens {
            (rows, rows * self.vector_per_row, 0.0)
        } else {
            let matrix = &self.matrix;
            let compute = (rows + distinct * matrix.padding_rows) * matrix.compute_per_row;
            (distinct, compute, rows * matrix.unpack_per_row + distinct * matrix.expand)
        };
        let busiest = if rows > IMBALANCE_FROM_ROWS_PER_EXPERT * self.experts_here { self.imbalance } else { 1.0 };
        let weights = reads * self.bytes_per_expert;
        let activations = rows * self.bytes_per_row;
        let work = Work {
            flops: Flops::from_flops(rows * self.flops_per_row),
            bytes: Bytes::from_bytes(weights + activations),
        };
        let prompt = load.prefill().tokens > 0.0 && tokens > self.unshared_tokens;
        let fixed = self.fixed + if prompt { self.prompt_fixed } else { 0.0 } + rows * self.fixed_per_row;
        if self.activation_rate == self.memory_rate {
            // One stream of bytes, overlapped as a whole: the ideal engine.
            let memory = (weights + activations) * self.memory_rate;
            return operator_times(work, compute * busiest, memory, self.serialised, unoverlapped, fixed, self.count);
        }
        let unoverlapped = (unoverlapped + activations * self.activation_rate) * busiest;
        let memory = weights * self.memory_rate;
        operator_times(work, compute * busiest, memory, self.serialised, unoverlapped, fixed, self.count)
    }
}

/// Time of an operator in steps that follow one another, in seconds: a line, for so many of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) first: f64,
    pub(super) growth: f64,
    pub(super) steps: u64,
}

/// The smallest whole number that is not below a positive one.
#[inline]
fn next_whole(number: f64) -> u64 {
    let below = number as u64;
    below + u64::from((below as f64) < number)
}

/// Attention over the cache in one phase. Times in seconds, of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttentionTerm {
    pub(super) count: f64,
    pub(super) reach: usize,
    pub(super) flops_per_pair: f64,
    pub(super) flops_per_cached: f64,
    pub(super) bytes_per_pair: f64,
    pub(super) bytes_per_entry: f64,
    pub(super) bytes_per_token: f64,
    /// Seconds per operation and per byte at the peaks that are reached.
    pub(super) compute_rate: f64,
    pub(super) memory_rate: f64,
    pub(super) serialised: f64,
    /// Share of the masked pairs that are computed too.
    pub(super) masked_share: f64,
    pub(super) fixed: f64,
}

impl AttentionTerm {
    #[inline]
    pub(super) fn times(&self, phase: &PhaseLoad) -> OperatorTimes {
        if phase.tokens == 0.0 {
            return OperatorTimes::default();
        }
        let pairs = phase.pairs[self.reach];
        let flops = pairs * self.flops_per_pair + phase.cached * self.flops_per_cached;
        let bytes = phase.entries[self.reach] * self.bytes_per_entry
            + pairs * self.bytes_per_pair
            + phase.tokens * self.bytes_per_token;
        let work = Work { flops: Flops::from_flops(flops), bytes: Bytes::from_bytes(bytes) };
        let masked = self.masked_share * (phase.rectangles[self.reach] - pairs) * self.flops_per_pair;
        let (compute, memory) = ((flops + masked) * self.compute_rate, bytes * self.memory_rate);
        operator_times(work, compute, memory, self.serialised, 0.0, self.fixed, self.count)
    }

    /// The time of sequences that decode one token each as a line in the steps: what they read together, and by how much that grows.
    #[inline]
    pub(super) fn line(&self, tokens: f64, cached: f64, entries: f64, growth: f64) -> Line {
        let per_entry = self.bytes_per_entry + self.bytes_per_pair;
        let flops = entries * self.flops_per_pair + cached * self.flops_per_cached;
        let compute = (flops * self.compute_rate, growth * self.flops_per_pair * self.compute_rate);
        let bytes = entries * per_entry + tokens * self.bytes_per_token;
        let memory = (bytes * self.memory_rate, growth * per_entry * self.memory_rate);
        // Which line is above at first, and by how much the other one comes closer with every step.
        let (gap, closing) = (compute.0 - memory.0, memory.1 - compute.1);
        let (line, gap, closing) = match gap > 0.0 || gap == 0.0 && closing < 0.0 {
            true => (compute, gap, closing),
            false => (memory, -gap, -closing),
        };
        Line {
            first: (line.0 + self.fixed) * self.count,
            growth: line.1 * self.count,
            steps: if closing > 0.0 && gap > 0.0 { next_whole(gap / closing) } else { u64::MAX },
        }
    }

    /// By how much the times grow when pairs and entries grow by so many; linear, so nothing overlapped or fixed is in it.
    #[inline]
    pub(super) fn growth(&self, pairs: f64, entries: f64) -> OperatorTimes {
        let flops = pairs * self.flops_per_pair;
        let bytes = entries * self.bytes_per_entry + pairs * self.bytes_per_pair;
        let work = Work { flops: Flops::from_flops(flops), bytes: Bytes::from_bytes(bytes) };
        operator_times(work, flops * self.compute_rate, bytes * self.memory_rate, 0.0, 0.0, 0.0, self.count)
    }
}

/// A recurrence: work per token, the state of each sequence read once and written once, or once for each of several decoded tokens, since those
/// that follow a rejected one have to be taken back. Times in seconds, of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RecurrentTerm {
    pub(super) count: f64,
    pub(super) flops_per_token: f64,
    pub(super) bytes_per_token: f64,
    pub(super) state_bytes: f64,
    pub(super) compute_rate: f64,
    pub(super) memory_rate: f64,
    pub(super) fixed: f64,
}

impl RecurrentTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> OperatorTimes {
        let written = load.prefill().sequences + load.decode().tokens;
        let bytes = load.tokens() * self.bytes_per_token + (load.sequences() + written) * self.state_bytes;
        let flops = load.tokens() * self.flops_per_token;
        let work = Work { flops: Flops::from_flops(flops), bytes: Bytes::from_bytes(bytes) };
        operator_times(work, flops * self.compute_rate, bytes * self.memory_rate, 0.0, 0.0, self.fixed, self.count)
    }
}

/// Everything elementwise of a step: small vectors, embedding rows, activations in and out of small kernels, and their launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ElementwiseTerm {
    pub(super) vector_bytes: f64,
    pub(super) bytes_per_token: f64,
    pub(super) memory_rate: f64,
    pub(super) launches: f64,
    pub(super) prompt_launches: f64,
}

impl ElementwiseTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> OperatorTimes {
        let bytes = self.vector_bytes + load.tokens() * self.bytes_per_token;
        let fixed = if load.prefill().tokens > 0.0 { self.prompt_launches } else { self.launches };
        let work = Work { flops: Flops::ZERO, bytes: Bytes::from_bytes(bytes) };
        operator_times(work, 0.0, bytes * self.memory_rate, 0.0, 0.0, fixed, 1.0)
    }
}

/// Choosing tokens from logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SamplingTerm {
    pub(super) bytes_per_row: f64,
    pub(super) memory_rate: f64,
    pub(super) fixed: f64,
}

impl SamplingTerm {
    #[inline]
    pub(super) fn times(&self, load: &StepLoad) -> OperatorTimes {
        if load.emitting() == 0.0 {
            return OperatorTimes::default();
        }
        let bytes = load.emitting() * self.bytes_per_row;
        let work = Work { flops: Flops::ZERO, bytes: Bytes::from_bytes(bytes) };
        operator_times(work, 0.0, bytes * self.memory_rate, 0.0, 0.0, self.fixed, 1.0)
    }
}

/// Communication of a step: all-reduces of the residual stream, gathering of logits, exchange with experts, hops between stages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CommunicationTerm {
    pub(super) all_reduces: f64,
    pub(super) all_reduce_bytes_per_token: f64,
    pub(super) all_reduce: AllReduce,
    pub(super) logit_bytes_per_row: f64,
    pub(super) gather: AlphaBeta,
    pub(super) exchanges: f64,
    pub(super) exchange_bytes_per_token: f64,
    /// All tokens to all devices and back, or every token to the devices of its experts and back: the faster counts.
    pub(super) exchange: [AlphaBeta; 2],
    pub(super) hops: f64,
    pub(super) hop_bytes_per_token: f64,
    pub(super) hop: AlphaBeta,
}

impl CommunicationTerm {
    #[inline]
    pub(super) fn time(&self, load: &StepLoad) -> Seconds {
        let mut time = Seconds::ZERO;
        if self.all_reduces > 0.0 {
            time += self.all_reduce_time(load) + self.gather_time(load);
        }
        if self.exchanges > 0.0 {
            time += self.exchange_time(load);
        }
        if self.hops > 0.0 {
            time += self.hop_time(load);
        }
        time
    }

    #[inline]
    pub(super) fn all_reduce_time(&self, load: &StepLoad) -> Seconds {
        self.all_reduce.time(Bytes::from_bytes(load.tokens() * self.all_reduce_bytes_per_token)) * self.all_reduces
    }

    #[inline]
    pub(super) fn gather_time(&self, load: &StepLoad) -> Seconds {
        if load.emitting() == 0.0 || self.logit_bytes_per_row == 0.0 {
            return Seconds::ZERO;
        }
        self.gather.time(Bytes::from_bytes(load.emitting() * self.logit_bytes_per_row))
    }

    #[inline]
    pub(super) fn exchange_time(&self, load: &StepLoad) -> Seconds {
        let message = Bytes::from_bytes(load.tokens() * self.exchange_bytes_per_token);
        let [gathered, sent] = self.exchange.map(|line| line.time(message));
        gathered.min(sent) * self.exchanges
    }

    #[inline]
    pub(super) fn hop_time(&self, load: &StepLoad) -> Seconds {
        self.hop.time(Bytes::from_bytes(load.tokens() * self.hop_bytes_per_token)) * self.hops
    }
}

/// What is read over a link to another memory, or handed over to another device, in every step. Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TransferTerm {
    pub(super) count: f64,
    pub(super) rows: Rows,
    /// Latency, and what does not depend on the rows.
    pub(super) fixed: f64,
    pub(super) per_row: f64,
    /// Experts that the step may need, as in [`ExpertTerm`].
    pub(super) experts_here: f64,
    pub(super) log_missed: f64,
    pub(super) per_expert: f64,
    pub(super) reach: usize,
    pub(super) per_entry: f64,
}

impl TransferTerm {
    #[inline]
    pub(super) fn time(&self, load: &StepLoad) -> Seconds {
        self.time_without_cache(load) + self.cache_time(load.prefill()) + self.cache_time(load.decode())
    }

    /// The part that does not depend on contexts.
    #[inline]
    pub(super) fn time_without_cache(&self, load: &StepLoad) -> Seconds {
        let rows = self.rows.of(load);
        if rows == 0.0 {
            return Seconds::ZERO;
        }
        let distinct = -self.experts_here * (rows * self.log_missed).exp_m1();
        Seconds::from_seconds(self.count * (self.fixed + rows * self.per_row + distinct * self.per_expert))
    }

    /// Cached entries that a phase reads.
    #[inline]
    pub(super) fn cache_time(&self, phase: &PhaseLoad) -> Seconds {
        self.entries_time(phase.entries[self.reach])
    }

    #[inline]
    pub(super) fn entries_time(&self, entries: f64) -> Seconds {
        Seconds::from_seconds(self.count * entries * self.per_entry)
    }

    pub(super) fn is_free(&self) -> bool {
        self.fixed == 0.0 && self.per_row == 0.0 && self.per_expert == 0.0 && self.per_entry == 0.0
    }
}

/// Time of the host, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HostTerm {
    pub(super) per_step: f64,
    pub(super) per_sequence: f64,
    pub(super) per_prompt_step: f64,
}

impl HostTerm {
    #[inline]
    pub(super) fn time(&self, load: &StepLoad) -> Seconds {
        let prompt = if load.prefill().tokens > 0.0 { self.per_prompt_step } else { 0.0 };
        Seconds::from_seconds(self.per_step + self.per_sequence * load.sequences() + prompt)
    }
}

/// Puts the times of one layer together and takes them `count` times.
#[inline]
fn operator_times(
    work: Work,
    compute: f64,
    memory: f64,
    serialised: f64,
    unoverlapped: f64,
    fixed: f64,
    count: f64,
) -> OperatorTimes {
    let overlapped = smooth_max(compute, memory, serialised) + unoverlapped;
    OperatorTimes {
        work: work * count,
        compute: Seconds::from_seconds(compute * count),
        memory: Seconds::from_seconds(memory * count),
        overlapped: Seconds::from_seconds(overlapped * count),
        fixed: Seconds::from_seconds(fixed * count),
    }
}

/// An operator of the compiled model with its name, for explanations.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named<T> {
    /// Layer kind, or where it stands outside the layers.
    pub(super) group: std::sync::Arc<str>,
    pub(super) name: &'static str,
    pub(super) class: OperatorClass,
    /// Whose laws hold: position in the places of a divided model, 0 for an undivided one.
    pub(super) place: usize,
    pub(super) term: T,
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

counted!(LinearTerm, ExpertTerm, AttentionTerm, RecurrentTerm, TransferTerm);
