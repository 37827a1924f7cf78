//! What cannot be summarised.

use super::Convention;
use super::{LoadSummary, Percentiles};
use crate::profile::ProfileError;
use std::fmt;

/// A latency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Inter-token latency.
    Itl,
    /// Time to the last token.
    E2e,
}

impl Metric {
    /// This latency of a report.
    pub const fn of(self, summary: &LoadSummary) -> Option<Percentiles> {
        match self {
            Self::Ttft => summary.ttft,
            Self::Tpot => summary.tpot,
            Self::Itl => summary.itl,
            Self::E2e => summary.e2e,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
            Self::Itl => "ITL",
            Self::E2e => "E2E",
        })
    }
}

/// Times that are not those of requests, or a summary that does not exist.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// A percentile of nothing.
    #[error("no samples, expected at least one")]
    NoSamples,
    /// A duration that is negative or not finite.
    #[error("{what} is {seconds} s, expected a finite number of seconds that is not negative")]
    NotADuration {
        /// What the number is.
        what: &'static str,
        /// The number.
        seconds: f64,
    },
    /// A duration over which no rate can be taken.
    #[error("the duration of the run is {seconds} s, expected a finite number of seconds above 0")]
    NoDuration {
        /// The number.
        seconds: f64,
    },
    /// Times that run backwards.
    #[error("request {index}: {later} at {later_seconds} s comes before {earlier} at {earlier_seconds} s")]
    OutOfOrder {
        /// Position of the request, from 0.
        index: usize,
        /// What has to come first.
        earlier: &'static str,
        /// When it came.
        earlier_seconds: f64,
        /// What has to come later.
        later: &'static str,
        /// When it came.
        later_seconds: f64,
    },
    /// An answer of no tokens.
    #[error("request {index} has no output tokens, expected at least 1")]
    NoTokens {
        /// Position of the request, from 0.
        index: usize,
    },
    /// The only token of an answer arrives twice.
    #[error("request {index} has one output token, yet its last token is {seconds} s after its first")]
    OneTokenTwice {
        /// Position of the request, from 0.
        index: usize,
        /// Time between the two.
        seconds: f64,
    },
    /// More pieces of the stream than tokens, or none.
    #[error("request {index} has {chunks} chunks, expected from 1 to its {tokens} output tokens")]
    Chunks {
        /// Position of the request, from 0.
        index: usize,
        /// The pieces.
        chunks: u64,
        /// The tokens.
        tokens: u64,
    },
    /// Gaps that are not those of the request.
    #[error(
        "request {index}: the gaps between its chunks add up to {gaps} s, but its last token is {span} s after its first"
    )]
    GapsDoNotAddUp {
        /// Position of the request, from 0.
        index: usize,
        /// Sum of the gaps in seconds.
        gaps: f64,
        /// From the first to the last token in seconds.
        span: f64,
    },
    /// The tool refuses answers of one token.
    #[error("request {index} has one output token, and {convention} needs at least 2 for a time per token")]
    SingleToken {
        /// Position of the request, from 0.
        index: usize,
        /// The tool.
        convention: Convention,
    },
    /// More requests completed than there were.
    #[error("{completed} requests completed of {requests}")]
    MoreThanSent {
        /// Completed requests.
        completed: u64,
        /// All requests.
        requests: u64,
    },
    /// A load on no devices.
    #[error("a deployment on 0 devices, expected at least 1")]
    NoDevices,
    /// A share that is none.
    #[error("{what} is {value}, expected a number {expected}")]
    NotAShare {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A limit of no known name.
    #[error("no {kind} is named `{name}`{}; known are {known}", .nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default())]
    UnknownName {
        /// What was looked for.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The nearest known name.
        nearest: Option<&'static str>,
        /// All known names.
        known: String,
    },
    /// The embedded table has a mistake in it.
    #[error(transparent)]
    Table(#[from] ProfileError),
}
