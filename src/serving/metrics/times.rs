//! When a request arrived, started and ended.

use super::MetricsError;
use crate::units::Seconds;

/// Gaps between pieces of a stream may differ from the time between first and last token by this share, for sums of rounded numbers.
const GAP_TOLERANCE: f64 = 1e-6;

/// The times of one completed request, on any clock that they share.
///
/// ```
/// use llm_roofline::{serving::metrics::RequestTimes, units::Seconds};
/// let ms = Seconds::from_millis;
/// let request = RequestTimes::new(ms(0.0), ms(200.0), ms(1190.0), 100);
/// assert_eq!(request.ttft().to_string(), "200 ms");
/// assert_eq!(request.tpot().unwrap().to_string(), "10.0 ms"); // 990 ms for the 99 tokens after the first
/// assert_eq!(request.e2e().to_string(), "1.19 s");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RequestTimes {
    /// When someone wanted it to be served.
    pub arrival: Seconds,
    /// When it was sent to the server: later than its arrival if the client holds requests back.
    pub sent: Seconds,
    /// When the first token came.
    pub first_token: Seconds,
    /// When the last token came; of an answer of one token that is the first.
    pub last_token: Seconds,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Pieces in which the answer was streamed; where none are stated, every token is one, evenly spaced.
    pub chunks: Option<Chunks>,
}

/// The pieces in which an answer is streamed. With speculative decoding a piece holds several tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Chunks {
    /// So many pieces, evenly spaced.
    Even(u64),
    /// The gaps between pieces, in any order.
    Gaps(Vec<GapRun>),
}

/// Some equal gaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapRun {
    /// Time from a piece to the next.
    pub gap: Seconds,
    /// How many such gaps.
    pub count: u64,
}

impl Chunks {
    /// Pieces by the gaps between them, one by one.
    pub fn from_gaps(gaps: impl IntoIterator<Item = Seconds>) -> Self {
        let mut runs: Vec<GapRun> = Vec::new();
        for gap in gaps {
            match runs.last_mut() {
                Some(run) if run.gap == gap => run.count += 1,
                _ => runs.push(GapRun { gap, count: 1 }),
            }
        }
        Self::Gaps(runs)
    }

    /// How many pieces.
    pub fn count(&self) -> u64 {
        match self {
            Self::Even(count) => *count,
            Self::Gaps(runs) => runs.iter().fold(1_u64, |sum, run| sum.saturating_add(run.count)),
        }
    }
}

impl RequestTimes {
    /// A request that was sent when it arrived, streamed token by token at an even pace.
    pub const fn new(sent: Seconds, first_token: Seconds, last_token: Seconds, output_tokens: u64) -> Self {
        Self { arrival: sent, sent, first_token, last_token, output_tokens, chunks: None }
    }

    /// The same, having arrived at the client before it was sent.
    #[must_use]
    pub fn with_arrival(self, arrival: Seconds) -> Self {
        Self { arrival, ..self }
    }

    /// The same, streamed in pieces.
    #[must_use]
    pub fn with_chunks(self, chunks: Chunks) -> Self {
        Self { chunks: Some(chunks), ..self }
    }

    /// Time to first token, since the request was sent.
    pub fn ttft(&self) -> Seconds {
        self.first_token - self.sent
    }

    /// Mean time per token after the first; none for answers of one token.
    ///
    /// # Formula
    /// `TPOT = (E2E - TTFT) / (N - 1)`, so that `E2E = TTFT + (N - 1) * TPOT`.
    pub fn tpot(&self) -> Option<Seconds> {
        (self.output_tokens > 1).then(|| (self.last_token - self.first_token) / (self.output_tokens - 1) as f64)
    }

    /// Time to the last token, since the request was sent.
    pub fn e2e(&self) -> Seconds {
        self.last_token - self.sent
    }

    /// Mean gap between the pieces of the stream; none where there is one piece.
    ///
    /// # Formula
    /// `(E2E - TTFT) / (pieces - 1)`: with a piece per token this is the TPOT, with `k` tokens per piece about `k` times it.
    pub fn mean_gap(&self) -> Option<Seconds> {
        let gaps = self.chunk_count().saturating_sub(1);
        (gaps > 0).then(|| (self.last_token - self.first_token) / gaps as f64)
    }

    /// How many pieces the answer was streamed in.
    pub fn chunk_count(&self) -> u64 {
        self.chunks.as_ref().map_or(self.output_tokens, Chunks::count)
    }

    /// The gaps between the pieces of the stream.
    pub fn gaps(&self) -> impl Iterator<Item = GapRun> + '_ {
        let (stated, even) = match &self.chunks {
            Some(Chunks::Gaps(runs)) => (runs.as_slice(), None),
            _ => (&[][..], self.mean_gap().map(|gap| GapRun { gap, count: self.chunk_count() - 1 })),
        };
        stated.iter().copied().chain(even).filter(|run| run.count > 0)
    }

    /// Checks that the times are those of a request: finite, in order, with as many pieces as there can be.
    ///
    /// # Errors
    /// [`MetricsError`] with the position of the request that was passed in.
    pub fn check(&self, index: usize) -> Result<(), MetricsError> {
        let times = [
            ("the arrival", self.arrival),
            ("the sending", self.sent),
            ("the first token", self.first_token),
            ("the last token", self.last_token),
        ];
        for (what, time) in times {
            if !time.is_finite() {
                return Err(MetricsError::NotADuration { what, seconds: time.as_seconds() });
            }
        }
        for pair in times.windows(2) {
            let [(earlier, before), (later, after)] = [pair[0], pair[1]];
            if after < before {
                let (earlier_seconds, later_seconds) = (before.as_seconds(), after.as_seconds());
                return Err(MetricsError::OutOfOrder { index, earlier, earlier_seconds, later, later_seconds });
            }
        }
        let span = self.last_token - self.first_token;
        match self.output_tokens {
            0 => return Err(MetricsError::NoTokens { index }),
            1 if span > Seconds::ZERO => {
                return Err(MetricsError::OneTokenTwice { index, seconds: span.as_seconds() });
            }
            _ => {}
        }
        self.check_chunks(index, span)
    }

    fn check_chunks(&self, index: usize, span: Seconds) -> Result<(), MetricsError> {
        let Some(chunks) = &self.chunks else { return Ok(()) };
        let count = chunks.count();
        if !(1..=self.output_tokens).contains(&count) {
            return Err(MetricsError::Chunks { index, chunks: count, tokens: self.output_tokens });
        }
        let Chunks::Gaps(runs) = chunks else { return Ok(()) };
        if let Some(run) = runs.iter().find(|run| !run.gap.is_finite() || run.gap < Seconds::ZERO) {
            return Err(MetricsError::NotADuration { what: "a gap between chunks", seconds: run.gap.as_seconds() });
        }
        let gaps: Seconds = runs.iter().map(|run| run.gap * run.count as f64).sum();
        // Rounding grows with the clock's reading, not with the span alone.
        let rounding = self.last_token.as_seconds().abs() * f64::EPSILON * count as f64;
        if (gaps - span).as_seconds().abs() > span.as_seconds() * GAP_TOLERANCE + rounding {
            return Err(MetricsError::GapsDoNotAddUp { index, gaps: gaps.as_seconds(), span: span.as_seconds() });
        }
        Ok(())
    }
}
