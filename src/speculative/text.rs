//! The answer as text.

use super::SpeculativeEstimate;
use crate::units::{Seconds, TokensPerSecond};
use std::fmt;

impl fmt::Display for SpeculativeEstimate {
    /// A table of what the client sees without and with speculation, and where a cycle's time goes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plain, cycle, .. } = self;
        let optional = |time: Option<Seconds>| time.map_or("-".into(), |time| time.to_string());
        let rate = |rate: Option<TokensPerSecond>| rate.map_or("-".into(), |rate| format!("{rate:.1}"));
        writeln!(f, "{}", self.request)?;
        writeln!(f, "{:<28}{:>14}{:>14}", "", "without", "with")?;
        let rows = [
            ("time to first token", plain.ttft.to_string(), self.ttft.to_string()),
            ("gap between arrivals (ITL)", optional(plain.tpot), optional(self.chunk_interval)),
            ("time per output token", optional(plain.tpot), optional(self.tpot)),
            ("end to end", plain.e2e.to_string(), self.e2e.to_string()),
            ("decode rate per stream", rate(plain.tps_per_stream), rate(self.tps_per_stream)),
            ("memory needed per device", plain.memory.needed().to_string(), self.memory.needed().to_string()),
        ];
        for (name, without, with) in rows {
            writeln!(f, "{name:<28}{without:>14}{with:>14}")?;
        }
        let Some(speedup) = self.speedup else { return Ok(()) };
        writeln!(f, "decode is {speedup} as fast, {} end to end", self.e2e_speedup)?;
        let steps = cycle.verify.total() / plain.tpot.unwrap_or(cycle.verify.total());
        write!(
            f,
            "{:.2} tokens a cycle of {}: drafting {}, verifying {} ({steps:.2} steps without), around {}",
            self.tokens_per_step,
            cycle.total(),
            cycle.draft,
            cycle.verify.total(),
            cycle.overhead
        )
    }
}
