//! What a benchmark client measures: a run of so many requests from an empty server on, not a steady state.

use super::Server;
use super::operating::{Clients, Operating};
use super::pattern::prompt_steps;
use crate::units::{Seconds, TokensPerSecond};

/// How a benchmark was run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenchmarkClient {
    /// Requests in all, over those in flight.
    pub waves: f64,
}

impl Default for BenchmarkClient {
    fn default() -> Self {
        Self { waves: 10.0 }
    }
}

/// What the client prints: means over all requests.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenchmarkEstimate {
    /// Time to first token.
    pub ttft: Seconds,
    /// Time per output token.
    pub tpot: Seconds,
    /// Time to the last token.
    pub e2e: Seconds,
    /// Output tokens per second of everything.
    pub output_tps_total: TokensPerSecond,
}

impl Server<'_> {
    /// A closed loop with so many requests in flight, which all start at once.
    pub fn published_closed_loop(&self, concurrency: f64, client: &BenchmarkClient) -> BenchmarkEstimate {
        let (mix, rules) = (&self.mix, &self.rules);
        let clients = Clients { count: concurrency, away: rules.front_end, meets_step: rules.front_end > Seconds::ZERO };
        let steady = Operating::closed(mix, rules, clients);
        let room = steady.pattern.room.max(1.0);
        let at_once = concurrency.min(steady.placed);
        let (per_step, steps) = if at_once <= room { (at_once, 1.0) } else { (room, (at_once / room).ceil()) };
        let burst = prompt_steps(mix, room, per_step) * ((steps + 1.0) / 2.0);
        let steady_ttft = if self.lengths.is_fixed() && concurrency > 1.0 {
            let whole = prompt_steps(mix, room, 1.0);
            let rest = concurrency - 1.0;
            if concurrency <= room {
                (whole + (whole + prompt_steps(mix, room, rest)) * rest) / concurrency
            } else {
                prompt_steps(mix, room, room)
            }
        } else {
            steady.first.total()
        };
        let ttft = burst / client.waves + steady_ttft * (1.0 - 1.0 / client.waves) + steady.wait + rules.front_end;
        let tpot = steady.pattern.mean();
        let e2e = ttft + tpot * mix.decode_steps;
        let output_tps_total = TokensPerSecond::from_tokens_per_second(concurrency * mix.output_tokens / e2e.as_seconds());
        BenchmarkEstimate { ttft, tpot, e2e, output_tps_total }
    }

    /// All of so many requests sent at once.
    pub fn published_offline(&self, requests: f64) -> BenchmarkEstimate {
        let (mix, rules) = (&self.mix, &self.rules);
        let (slots, _) = rules.slots();
        let count = requests.min(slots as f64);
        let steady = Operating::closed(mix, rules, Clients { count, away: Seconds::ZERO, meets_step: false });
        let duration = Seconds::from_seconds(requests / steady.rate);
        let tpot = steady.pattern.mean();
        let output_tps_total = TokensPerSecond::from_tokens_per_second(requests * mix.output_tokens / duration.as_seconds());
        let ttft = duration / 2.0;
        BenchmarkEstimate { ttft, tpot, e2e: ttft + tpot * mix.decode_steps, output_tps_total }
    }

    /// Requests per second when there are always more.
    pub fn saturated_rate(&self) -> f64 {
        let (slots, _) = self.rules.slots();
        Operating::closed(&self.mix, &self.rules, Clients { count: slots as f64, away: Seconds::ZERO, meets_step: false }).rate
    }

    /// Debugging.
    pub fn operating_batch(&self, count: f64) -> (f64, f64, f64) {
        let steady = Operating::closed(&self.mix, &self.rules, Clients { count, away: Seconds::ZERO, meets_step: false });
        (steady.pattern.sequences, steady.pattern.mean().as_millis(), steady.rate)
    }
}
