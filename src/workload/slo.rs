//! Service-level objectives: the limits that make a request a good one.

use crate::units::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Limits on the latencies of a request. A limit that is not set holds always; a latency equal to its limit meets it.
///
/// In TOML and JSON the limits are texts with units: `{ ttft = "450 ms", tpot = "40 ms" }`.
///
/// ```
/// use llm_roofline::units::Seconds;
/// use llm_roofline::workload::{Latencies, Slo};
///
/// let slo = Slo::ttft_tpot(Seconds::from_millis(450.0), Seconds::from_millis(40.0));
/// let mut request = Latencies { ttft: Some(Seconds::from_millis(300.0)), tpot: Some(Seconds::from_millis(40.0)), ..Latencies::default() };
/// assert!(slo.meets(&request));
/// request.ttft = Some(Seconds::from_millis(451.0));
/// assert!(!slo.meets(&request));
/// assert_eq!(slo.to_string(), "TTFT <= 450 ms, TPOT <= 40.0 ms");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Slo {
    /// Longest time to the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<Seconds>,
    /// Longest time per output token after the first, as a mean over the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Seconds>,
    /// Longest gap between tokens (or pieces of the stream), as a mean over the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itl: Option<Seconds>,
    /// Longest time to the last token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e: Option<Seconds>,
}

/// The latencies of one request, as far as they exist: an answer of one token has no time per further token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Time to first token.
    pub ttft: Option<Seconds>,
    /// Time per output token after the first.
    pub tpot: Option<Seconds>,
    /// Mean gap between tokens, or pieces of the stream.
    pub itl: Option<Seconds>,
    /// Time to the last token.
    pub e2e: Option<Seconds>,
}

impl Slo {
    /// The usual pair: a limit on the start of an answer, and one on its pace.
    pub const fn ttft_tpot(ttft: Seconds, tpot: Seconds) -> Self {
        Self { ttft: Some(ttft), tpot: Some(tpot), itl: None, e2e: None }
    }

    /// The same with a limit on the time to first token.
    #[must_use]
    pub const fn with_ttft(self, ttft: Seconds) -> Self {
        Self { ttft: Some(ttft), ..self }
    }

    /// The same with a limit on the time per output token.
    #[must_use]
    pub const fn with_tpot(self, tpot: Seconds) -> Self {
        Self { tpot: Some(tpot), ..self }
    }

    /// The same with a limit on the inter-token latency.
    #[must_use]
    pub const fn with_itl(self, itl: Seconds) -> Self {
        Self { itl: Some(itl), ..self }
    }

    /// The same with a limit on the time to the last token.
    #[must_use]
    pub const fn with_e2e(self, e2e: Seconds) -> Self {
        Self { e2e: Some(e2e), ..self }
    }

    /// Whether nothing is limited.
    pub const fn is_empty(&self) -> bool {
        self.ttft.is_none() && self.tpot.is_none() && self.itl.is_none() && self.e2e.is_none()
    }

    /// Whether a request meets *every* limit. A latency that does not exist breaks none; one that is no number breaks any.
    pub fn meets(&self, measured: &Latencies) -> bool {
        let holds = |limit: Option<Seconds>, latency: Option<Seconds>| match (limit, latency) {
            (Some(limit), Some(latency)) => latency <= limit,
            _ => true,
        };
        holds(self.ttft, measured.ttft)
            && holds(self.tpot, measured.tpot)
            && holds(self.itl, measured.itl)
            && holds(self.e2e, measured.e2e)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = [("TTFT", self.ttft), ("TPOT", self.tpot), ("ITL", self.itl), ("E2E", self.e2e)];
        let set: Vec<String> =
            limits.iter().filter_map(|(name, limit)| limit.map(|limit| format!("{name} <= {limit}"))).collect();
        if set.is_empty() { f.pad("no limits") } else { f.pad(&set.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: f64) -> Option<Seconds> {
        Some(Seconds::from_millis(millis))
    }

    #[test]
    fn each_limit_alone_can_fail_a_request() {
        let good = Latencies { ttft: ms(1.0), tpot: ms(2.0), itl: ms(3.0), e2e: ms(4.0) };
        let slo = Slo { ttft: ms(1.0), tpot: ms(2.0), itl: ms(3.0), e2e: ms(4.0) };
        assert!(slo.meets(&good));
        for late in [
            Latencies { ttft: ms(1.1), ..good },
            Latencies { tpot: ms(2.1), ..good },
            Latencies { itl: ms(3.1), ..good },
            Latencies { e2e: ms(4.1), ..good },
            Latencies { ttft: ms(f64::NAN), ..good },
        ] {
            assert!(!slo.meets(&late), "{late:?}");
            assert!(Slo::default().meets(&late));
        }
    }

    #[test]
    fn what_does_not_exist_breaks_no_limit() {
        let slo = Slo::ttft_tpot(Seconds::from_millis(10.0), Seconds::from_millis(1.0));
        assert!(slo.meets(&Latencies { ttft: ms(5.0), ..Latencies::default() }));
    }

    #[test]
    fn limits_are_read_with_units_and_unknown_ones_refused() {
        let slo: Slo = toml::from_str("ttft = \"2 s\"\ntpot = \"200 ms\"").unwrap();
        assert_eq!(slo, Slo::ttft_tpot(Seconds::from_seconds(2.0), Seconds::from_millis(200.0)));
        assert_eq!(serde_json::from_str::<Slo>(&serde_json::to_string(&slo).unwrap()).unwrap(), slo);
        assert!(toml::from_str::<Slo>("latency = \"2 s\"").is_err());
        assert!(toml::from_str::<Slo>("ttft = \"-2 s\"").is_err());
    }
}
