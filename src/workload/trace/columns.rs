//! Names of columns in the traces that are known.

use super::error::TraceError;
use crate::profile::nearest;

/// Seconds in a unit of a column of times.
const SECOND: f64 = 1.0;
const MILLISECOND: f64 = 1e-3;
const NANOSECOND: f64 = 1e-9;

/// What the columns of a format are called; each may have several names.
#[derive(Debug)]
pub(super) struct Columns {
    /// Times, with their unit if they are numbers.
    pub time: &'static [(&'static str, f64)],
    /// Whether there may be no times at all.
    pub timeless: bool,
    /// Prompt lengths.
    pub prompt: &'static [&'static str],
    /// Output lengths.
    pub output: &'static [&'static str],
}

pub(super) const AZURE: Columns = Columns {
    time: &[("TIMESTAMP", SECOND)],
    timeless: false,
    prompt: &["ContextTokens"],
    output: &["GeneratedTokens"],
};

pub(super) const BURSTGPT: Columns = Columns {
    time: &[("Timestamp", SECOND)],
    timeless: false,
    prompt: &["Request tokens"],
    output: &["Response tokens"],
};

pub(super) const VIDUR: Columns = Columns {
    time: &[("arrived_at", SECOND)],
    timeless: true,
    prompt: &["num_prefill_tokens"],
    output: &["num_decode_tokens"],
};

pub(super) const MOONCAKE: Columns = Columns {
    time: &[("timestamp", MILLISECOND)],
    timeless: false,
    prompt: &["input_length"],
    output: &["output_length"],
};

pub(super) const ANY: Columns = Columns {
    time: &[
        ("TIMESTAMP", SECOND),
        ("Timestamp", SECOND),
        ("timestamp", MILLISECOND),
        ("arrived_at", SECOND),
        ("arrival_time_ns", NANOSECOND),
        ("StartTimeOffset_ns", NANOSECOND),
        ("StartTimeOffset", NANOSECOND),
    ],
    timeless: true,
    prompt: &[
        "ContextTokens",
        "Request tokens",
        "num_prefill_tokens",
        "input_length",
        "input_toks",
        "prompt_tokens",
        "input_tokens",
    ],
    output: &[
        "GeneratedTokens",
        "Response tokens",
        "num_decode_tokens",
        "output_length",
        "output_toks",
        "output_tokens",
        "completion_tokens",
    ],
};

impl Columns {
    /// Seconds in a unit of a column of numbers.
    pub fn time_unit(&self, column: &str) -> f64 {
        self.time.iter().find(|(name, _)| *name == column).map_or(SECOND, |(_, unit)| *unit)
    }

    /// The columns of time, prompt and output among those that there are, by index.
    pub fn find(&self, file: &str, line: u64, found: &[&str]) -> Result<(Option<usize>, usize, usize), TraceError> {
        let times: Vec<&str> = self.time.iter().map(|(name, _)| *name).collect();
        let time = match find(file, line, &times, found) {
            // A time that is misspelt must not become no time.
            Err(TraceError::MissingColumn { nearest: None, .. }) if self.timeless => None,
            other => Some(other?),
        };
        Ok((time, find(file, line, self.prompt, found)?, find(file, line, self.output, found)?))
    }
}

fn find(file: &str, line: u64, names: &[&str], found: &[&str]) -> Result<usize, TraceError> {
    if let Some(index) = names.iter().find_map(|name| found.iter().position(|column| column == name)) {
        return Ok(index);
    }
    Err(TraceError::MissingColumn {
        file: file.into(),
        line,
        expected: names.join("` | `"),
        found: found.iter().map(ToString::to_string).collect(),
        nearest: names.iter().find_map(|name| nearest(name, found.iter().copied())).map(Into::into),
    })
}
