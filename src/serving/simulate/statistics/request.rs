//! A request that was answered.

use crate::units::Seconds;
use crate::workload::Latencies;

/// A request that was answered, with the times of its stages on the simulation's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompletedRequest {
    /// Position in the order of arrival, from 0.
    pub id: u64,
    /// Its class, from 0.
    pub class: u32,
    /// Tokens of the prompt, those found in the prefix cache included.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that were found in the prefix cache.
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// When it arrived.
    pub arrival: Seconds,
    /// When it was first given a place in a batch.
    pub admitted: Seconds,
    /// When its first token came.
    pub first_token: Seconds,
    /// When its last token came.
    pub last_token: Seconds,
    /// How often it lost its place.
    pub preemptions: u32,
}

impl CompletedRequest {
    /// Time until it was given a place in a batch.
    pub fn queue_time(&self) -> Seconds {
        self.admitted - self.arrival
    }

    /// Time to first token, since it arrived.
    pub fn ttft(&self) -> Seconds {
        self.first_token - self.arrival
    }

    /// Mean time per token after the first; none for answers of one token.
    ///
    /// # Formula
    /// `TPOT = (E2E - TTFT) / (N - 1)`.
    pub fn tpot(&self) -> Option<Seconds> {
        (self.output_tokens > 1).then(|| (self.last_token - self.first_token) / (self.output_tokens - 1) as f64)
    }

    /// Time to the last token, since it arrived.
    pub fn e2e(&self) -> Seconds {
        self.last_token - self.arrival
    }

    /// What is held against limits. The mean gap between the tokens of a request is its TPOT.
    pub fn latencies(&self) -> Latencies {
        let tpot = self.tpot();
        Latencies { ttft: Some(self.ttft()), tpot, itl: tpot, e2e: Some(self.e2e()) }
    }
}
