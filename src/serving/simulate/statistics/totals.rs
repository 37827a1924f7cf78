//! What a simulation has summed up since its start.

use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use std::ops::{Add, Sub};

/// Integrals over time and counters from the start of the run, summed over the replicas.
///
/// The difference of two is what happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::serving::simulate) struct Totals {
    /// The clock.
    pub(in crate::serving::simulate) time_s: f64,
    /// Integral of the sequences that run.
    pub(in crate::serving::simulate) running: f64,
    /// Integral of the requests that wait.
    pub(in crate::serving::simulate) waiting: f64,
    /// Integral of the cache blocks in use.
    pub(in crate::serving::simulate) kv_blocks: f64,
    /// Integral of the replicas that run a step.
    pub(in crate::serving::simulate) busy_s: f64,
    /// Integral of the replicas that are up.
    pub(in crate::serving::simulate) available_s: f64,
    /// Steps that were run.
    pub(in crate::serving::simulate) steps: u64,
    /// Requests that arrived.
    pub(in crate::serving::simulate) arrived: u64,
    /// Requests that were answered.
    pub(in crate::serving::simulate) completed: u64,
    /// Tokens that were put out.
    pub(in crate::serving::simulate) output_tokens: u64,
    /// Prompt tokens that were computed.
    pub(in crate::serving::simulate) prompt_tokens: u64,
    /// Prompt tokens that were found in the prefix cache.
    pub(in crate::serving::simulate) cached_tokens: u64,
    /// Requests that lost their place in the cache.
    pub(in crate::serving::simulate) preemptions: u64,
}

impl Totals {
    /// Requests that have arrived and not been answered.
    pub(super) fn in_system(&self) -> f64 {
        self.arrived as f64 - self.completed as f64
    }

    /// Something per second of the clock.
    pub(super) fn per_second(&self, amount: f64) -> f64 {
        share(amount, self.time_s)
    }

    pub(super) fn duration(&self) -> Seconds {
        Seconds::from_seconds(self.time_s)
    }

    /// Requests answered per second.
    pub(super) fn request_rate(&self) -> RequestsPerSecond {
        RequestsPerSecond::from_requests_per_second(self.per_second(self.completed as f64))
    }

    pub(super) fn output_tps(&self) -> TokensPerSecond {
        TokensPerSecond::from_tokens_per_second(self.per_second(self.output_tokens as f64))
    }

    /// Sequences that run on a replica that is up.
    pub(super) fn mean_batch(&self) -> f64 {
        share(self.running, self.available_s)
    }

    /// Requests that wait, on all replicas together.
    pub(super) fn mean_waiting(&self) -> f64 {
        self.per_second(self.waiting)
    }

    /// Share of the cache in use on the replicas that are up, of `blocks` each.
    pub(super) fn kv_utilization(&self, blocks: u64) -> f64 {
        share(self.kv_blocks, blocks as f64 * self.available_s)
    }

    /// Share of the time of the replicas that are up in which they run a step.
    pub(super) fn utilization(&self) -> f64 {
        share(self.busy_s, self.available_s)
    }

    /// Share of the prompt tokens that were found in the prefix cache.
    pub(super) fn prefix_hit_rate(&self) -> f64 {
        let cached = self.cached_tokens as f64;
        share(cached, cached + self.prompt_tokens as f64)
    }
}

/// A quotient that is 0 where there is nothing to divide by.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Sub for Totals {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            time_s: self.time_s - earlier.time_s,
            running: self.running - earlier.running,
            waiting: self.waiting - earlier.waiting,
            kv_blocks: self.kv_blocks - earlier.kv_blocks,
            busy_s: self.busy_s - earlier.busy_s,
            available_s: self.available_s - earlier.available_s,
            steps: self.steps.saturating_sub(earlier.steps),
            arrived: self.arrived.saturating_sub(earlier.arrived),
            completed: self.completed.saturating_sub(earlier.completed),
            output_tokens: self.output_tokens.saturating_sub(earlier.output_tokens),
            prompt_tokens: self.prompt_tokens.saturating_sub(earlier.prompt_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(earlier.cached_tokens),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }
}

impl Add for Totals {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            time_s: self.time_s + other.time_s,
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            kv_blocks: self.kv_blocks + other.kv_blocks,
            busy_s: self.busy_s + other.busy_s,
            available_s: self.available_s + other.available_s,
            steps: self.steps.saturating_add(other.steps),
            arrived: self.arrived.saturating_add(other.arrived),
            completed: self.completed.saturating_add(other.completed),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            preemptions: self.preemptions.saturating_add(other.preemptions),
        }
    }
}
