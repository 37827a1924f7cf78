//! Whether it feels fast: thresholds of human perception and a verdict on them.

use super::Density;
use crate::units::Seconds;
use std::fmt;

/// Longest pause in a spoken conversation that goes unnoticed.
///
/// Turns of human conversation follow each other after about 200 ms (Stivers et al., PNAS 2009); builders of voice agents plan for
/// 300 to 700 ms in total, and call 800 ms slow.
pub const VOICE_PAUSE: Seconds = Seconds::from_millis(500.0);

/// Latest useful start of an inline completion: someone who types 5 characters per second types the next one after 200 ms.
///
/// A practitioners' figure without a primary source; products aim at 200 to 240 ms at the 95th percentile.
pub const INLINE_COMPLETION: Seconds = Seconds::from_millis(150.0);

/// Time per token up to which streamed text feels fluent.
///
/// The limit of MLPerf Inference for interactive Llama 3.1 8B (99th percentile of TPOT).
pub const COMFORTABLE_READING: Seconds = Seconds::from_millis(30.0);

/// How fast adults read English non-fiction silently, in words per minute.
///
/// Source: Brysbaert, How many words do we read per minute? Journal of Memory and Language 109 (2019), 104047.
pub const READING_WORDS_PER_MINUTE: f64 = 238.0;

/// How fast adults read English aloud, in words per minute: the pace that speech synthesis must be fed at. Source: as above.
pub const READING_ALOUD_WORDS_PER_MINUTE: f64 = 183.0;

/// A verdict on a latency, with the limit that it was held against.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Experience {
    /// Text streams fluently.
    ReadsComfortably {
        /// Time per token.
        itl: Seconds,
        /// [`COMFORTABLE_READING`].
        limit: Seconds,
    },
    /// Text appears visibly piece by piece, but a reader does not have to wait for it.
    KeepsUpWithReader {
        /// Time per token.
        itl: Seconds,
        /// Time per token at which a reader reads.
        limit: Seconds,
    },
    /// A reader waits for the text.
    ReaderWaits {
        /// Time per token.
        itl: Seconds,
        /// Time per token at which a reader reads.
        limit: Seconds,
    },
    /// The answer follows like in a conversation.
    FeelsLive {
        /// Pause until something is heard.
        pause: Seconds,
        /// [`VOICE_PAUSE`].
        limit: Seconds,
    },
    /// The pause is noticed.
    PauseIsNoticed {
        /// Pause until something is heard.
        pause: Seconds,
        /// [`VOICE_PAUSE`].
        limit: Seconds,
    },
    /// The completion appears before the next key is struck.
    CompletesInTime {
        /// Time until it appears.
        delay: Seconds,
        /// [`INLINE_COMPLETION`].
        limit: Seconds,
    },
    /// The completion comes when its reader has typed on.
    CompletesTooLate {
        /// Time until it appears.
        delay: Seconds,
        /// [`INLINE_COMPLETION`].
        limit: Seconds,
    },
}

impl Experience {
    /// Reading streamed text at a time per token.
    ///
    /// # Formula
    /// A reader takes `60 s / (238 * tokens_per_word)` per token; text without words is held against
    /// [`COMFORTABLE_READING`] only.
    ///
    /// ```
    /// use llm_roofline::text::{Density, Experience};
    /// use llm_roofline::units::Seconds;
    /// let verdict = |millis| Experience::reading(Seconds::from_millis(millis), &Density::rule_of_thumb()).to_string();
    /// assert_eq!(verdict(20.0), "reads comfortably: 20.0 ms per token, limit 30.0 ms");
    /// assert_eq!(verdict(100.0), "keeps up with a reader: 100 ms per token, a reader takes 189.1 ms");
    /// assert_eq!(verdict(400.0), "the reader waits: 400 ms per token, a reader takes 189.1 ms");
    /// ```
    pub fn reading(itl: Seconds, density: &Density) -> Self {
        if itl <= COMFORTABLE_READING {
            return Self::ReadsComfortably { itl, limit: COMFORTABLE_READING };
        }
        match density.tokens_per_word.map(|tokens_per_word| pace(READING_WORDS_PER_MINUTE, tokens_per_word)) {
            Some(limit) if itl <= limit => Self::KeepsUpWithReader { itl, limit },
            Some(limit) => Self::ReaderWaits { itl, limit },
            None => Self::ReaderWaits { itl, limit: COMFORTABLE_READING },
        }
    }

    /// A spoken answer that starts after a pause: the client's TTFT and what speech synthesis adds to it.
    ///
    /// ```
    /// use llm_roofline::text::Experience;
    /// use llm_roofline::units::Seconds;
    /// let pause = Seconds::from_millis(180.0) + Seconds::from_millis(120.0);
    /// assert_eq!(Experience::voice(pause).to_string(), "feels live: a pause of 300 ms, limit 500 ms");
    /// ```
    pub fn voice(pause: Seconds) -> Self {
        let limit = VOICE_PAUSE;
        if pause <= limit { Self::FeelsLive { pause, limit } } else { Self::PauseIsNoticed { pause, limit } }
    }

    /// An inline completion that appears after a delay.
    pub fn inline_completion(delay: Seconds) -> Self {
        let limit = INLINE_COMPLETION;
        if delay <= limit { Self::CompletesInTime { delay, limit } } else { Self::CompletesTooLate { delay, limit } }
    }

    /// Whether nobody has to wait.
    pub const fn is_good(&self) -> bool {
        match self {
            Self::ReadsComfortably { .. }
            | Self::KeepsUpWithReader { .. }
            | Self::FeelsLive { .. }
            | Self::CompletesInTime { .. } => true,
            Self::ReaderWaits { .. } | Self::PauseIsNoticed { .. } | Self::CompletesTooLate { .. } => false,
        }
    }
}

fn pace(words_per_minute: f64, tokens_per_word: f64) -> Seconds {
    Seconds::from_seconds(60.0 / (words_per_minute * tokens_per_word))
}

impl fmt::Display for Experience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadsComfortably { itl, limit } => {
                write!(f, "reads comfortably: {itl} per token, limit {limit}")
            }
            Self::KeepsUpWithReader { itl, limit } => {
                write!(f, "keeps up with a reader: {itl} per token, a reader takes {limit:.1}")
            }
            Self::ReaderWaits { itl, limit } => {
                write!(f, "the reader waits: {itl} per token, a reader takes {limit:.1}")
            }
            Self::FeelsLive { pause, limit } => write!(f, "feels live: a pause of {pause}, limit {limit}"),
            Self::PauseIsNoticed { pause, limit } => write!(f, "the pause is noticed: {pause}, limit {limit}"),
            Self::CompletesInTime { delay, limit } => write!(f, "completes in time: after {delay}, limit {limit}"),
            Self::CompletesTooLate { delay, limit } => write!(f, "completes too late: after {delay}, limit {limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Brysbaert 2019 at 0.75 words per token: 238 wpm is 5.2889 tok/s, 183 wpm is 4.0667 tok/s.
    #[test]
    fn reading_pace_in_tokens() {
        let rate = |wpm| format!("{:.4}", pace(wpm, 1.0 / 0.75).token_rate().as_tokens_per_second());
        assert_eq!(rate(READING_WORDS_PER_MINUTE), "5.2889");
        assert_eq!(rate(READING_ALOUD_WORDS_PER_MINUTE), "4.0667");
    }

    #[test]
    fn limits_themselves_are_good() {
        assert!(Experience::voice(VOICE_PAUSE).is_good());
        assert!(!Experience::voice(Seconds::from_millis(501.0)).is_good());
        assert!(Experience::inline_completion(INLINE_COMPLETION).is_good());
        assert!(!Experience::inline_completion(Seconds::from_millis(151.0)).is_good());
        assert!(Experience::reading(COMFORTABLE_READING, &Density::rule_of_thumb()).is_good());
    }

    #[test]
    fn a_latency_that_is_no_number_is_never_good() {
        let nan = Seconds::from_seconds(f64::NAN);
        assert!(!Experience::voice(nan).is_good());
        assert!(!Experience::inline_completion(nan).is_good());
        assert!(!Experience::reading(nan, &Density::rule_of_thumb()).is_good());
    }

    #[test]
    fn text_without_words_is_held_against_the_fluent_limit() {
        let wordless = Density { tokens_per_word: None, ..Density::rule_of_thumb() };
        assert!(Experience::reading(Seconds::from_millis(25.0), &wordless).is_good());
        assert!(!Experience::reading(Seconds::from_millis(35.0), &wordless).is_good());
    }
}
