//! What the client sees of a server's latencies: the network between them, and proxies that hold text back.

use crate::units::Seconds;

/// How the answer travels to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryMode {
    /// Each token is sent when it is there (server-sent events).
    #[default]
    Streaming,
    /// Something on the way, often a reverse proxy with response buffering, keeps the answer until it is complete.
    Buffered,
}

/// The way between server and client.
///
/// ```
/// use llm_roofline::delivery::Delivery;
/// use llm_roofline::units::Seconds;
///
/// let (ttft, e2e) = (Seconds::from_millis(200.0), Seconds::from_seconds(8.0));
/// let streaming = Delivery::streaming(Seconds::from_millis(40.0));
/// assert_eq!(streaming.client_ttft(ttft, e2e).to_string(), "240 ms");
/// assert_eq!(streaming.buffered().client_ttft(ttft, e2e).to_string(), "8.04 s"); // nothing to see until the end
/// assert_eq!(streaming.client_e2e(e2e), streaming.buffered().client_e2e(e2e));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Delivery {
    /// Network round trip: the request travels one half of it, the first token the other. A new TLS connection costs two more.
    pub round_trip: Seconds,
    /// How the answer travels.
    pub mode: DeliveryMode,
}

impl Delivery {
    /// Tokens are streamed over a network with that round trip.
    pub const fn streaming(round_trip: Seconds) -> Self {
        Self { round_trip, mode: DeliveryMode::Streaming }
    }

    /// The same way with a proxy on it that holds the answer back.
    #[must_use]
    pub const fn buffered(self) -> Self {
        Self { mode: DeliveryMode::Buffered, ..self }
    }

    /// Time from sending the request until the client sees the first token.
    ///
    /// # Formula
    /// Streaming: `round_trip + ttft`. Buffered: `round_trip + e2e`, the same as [`client_e2e`](Self::client_e2e).
    pub fn client_ttft(&self, ttft: Seconds, e2e: Seconds) -> Seconds {
        self.round_trip
            + match self.mode {
                DeliveryMode::Streaming => ttft,
                DeliveryMode::Buffered => e2e,
            }
    }

    /// Time from sending the request until the client has the whole answer: `round_trip + e2e`.
    pub fn client_e2e(&self, e2e: Seconds) -> Seconds {
        self.round_trip + e2e
    }
}

/// How fast an answer starts and how fast it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Time to first token.
    pub ttft: Seconds,
    /// Inter-token latency.
    pub itl: Seconds,
}

impl Pace {
    /// Time to the last of `tokens` tokens: `ttft + (tokens - 1) * itl`; nothing for an empty answer.
    pub fn e2e(&self, tokens: u64) -> Seconds {
        match tokens {
            0 => Seconds::ZERO,
            _ => self.ttft + self.itl * (tokens - 1) as f64,
        }
    }
}

/// The answer length at which the one that starts later but writes faster catches up; longer answers it finishes first.
///
/// None if there is no such length: one of them both starts and writes at least as fast as the other.
///
/// # Formula
/// `N = 1 + (ttft_a - ttft_b) / (itl_b - itl_a)`, where both terms have the same sign.
///
/// # Examples
/// 100 tokens per second after 3 s against 40 tokens per second at once: equal after 201 tokens, or 5 s.
/// ```
/// use llm_roofline::delivery::{Pace, crossover_answer_tokens};
/// use llm_roofline::units::Seconds;
/// let fast_writer = Pace { ttft: Seconds::from_seconds(3.0), itl: Seconds::from_millis(10.0) };
/// let fast_starter = Pace { ttft: Seconds::ZERO, itl: Seconds::from_millis(25.0) };
/// let tokens = crossover_answer_tokens(fast_writer, fast_starter).ok_or("never")?;
/// assert_eq!(tokens.round(), 201.0);
/// assert_eq!(fast_writer.e2e(201).to_string(), "5.00 s");
/// # Ok::<(), &str>(())
/// ```
pub fn crossover_answer_tokens(a: Pace, b: Pace) -> Option<f64> {
    let head_start = (a.ttft - b.ttft).as_seconds();
    let gain_per_token = (b.itl - a.itl).as_seconds();
    let tokens = 1.0 + head_start / gain_per_token;
    (head_start * gain_per_token > 0.0 && tokens.is_finite()).then_some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_crossover_where_one_is_better_in_both() {
        let pace = |ttft, itl| Pace { ttft: Seconds::from_seconds(ttft), itl: Seconds::from_seconds(itl) };
        assert_eq!(crossover_answer_tokens(pace(1.0, 0.01), pace(2.0, 0.02)), None);
        assert_eq!(crossover_answer_tokens(pace(1.0, 0.01), pace(2.0, 0.01)), None);
        assert_eq!(crossover_answer_tokens(pace(1.0, 0.01), pace(1.0, 0.02)), None);
        assert_eq!(crossover_answer_tokens(pace(f64::NAN, 0.01), pace(1.0, 0.02)), None);
    }

    proptest! {
        #[test]
        fn both_end_together_at_the_crossover(ttft in 0.0..10f64, itl in 0.001..1f64, late in 0.001..10f64, gain in 0.01..0.99f64) {
            let starter = Pace { ttft: Seconds::from_seconds(ttft), itl: Seconds::from_seconds(itl) };
            let writer = Pace { ttft: Seconds::from_seconds(ttft + late), itl: Seconds::from_seconds(itl * gain) };
            let tokens = crossover_answer_tokens(writer, starter).unwrap();
            prop_assert!(tokens > 1.0);
            prop_assert_eq!(crossover_answer_tokens(starter, writer), Some(tokens));
            let end = |pace: Pace, tokens: f64| (pace.ttft + pace.itl * (tokens - 1.0)).as_seconds();
            prop_assert!((end(writer, tokens) / end(starter, tokens) - 1.0).abs() < 1e-9);
            prop_assert!(end(writer, tokens * 1.1) < end(starter, tokens * 1.1));
        }

        #[test]
        fn buffering_never_shows_anything_earlier(ttft in 0.0..10f64, rest in 0.0..100f64, round_trip in 0.0..1f64) {
            let (ttft, e2e) = (Seconds::from_seconds(ttft), Seconds::from_seconds(ttft + rest));
            let way = Delivery::streaming(Seconds::from_seconds(round_trip));
            prop_assert!(way.buffered().client_ttft(ttft, e2e) >= way.client_ttft(ttft, e2e));
            prop_assert_eq!(way.buffered().client_ttft(ttft, e2e), way.client_e2e(e2e));
        }
    }
}
