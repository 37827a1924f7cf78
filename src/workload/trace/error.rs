//! Traces that could not be read.

/// A trace that could not be read: where, and what was expected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A column, or a key, that a format needs is not there.
    #[error("{file}, line {line}: no column `{expected}`{}", hint(.nearest.as_deref(), .found))]
    MissingColumn {
        /// File, as the caller calls it.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Its names in the formats that are known, alternatives divided by `|`.
        expected: String,
        /// The columns that there are.
        found: Vec<String>,
        /// The one that may have been meant.
        nearest: Option<String>,
    },
    /// A field that does not hold what it should.
    #[error("{file}, line {line}, column `{column}`: found `{found}`, expected {expected}")]
    Field {
        /// File, as the caller calls it.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Column or key.
        column: String,
        /// What it holds.
        found: String,
        /// What was expected, with its unit.
        expected: &'static str,
    },
    /// Text that is not of the format, or that could not be read at all.
    #[error("{file}{}: {message}", .line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Malformed {
        /// File, as the caller calls it.
        file: String,
        /// Line, from 1, where it is known.
        line: Option<u64>,
        /// What is wrong.
        message: String,
    },
    /// Not one request that could be served.
    #[error("{file}: no requests with prompt and output{}", failures(*.left_out))]
    Empty {
        /// File, as the caller calls it, or what stands for it.
        file: String,
        /// How many rows were left out because they have no prompt or no output.
        left_out: u64,
    },
}

fn hint(nearest: Option<&str>, found: &[String]) -> String {
    match nearest {
        Some(nearest) => format!(" (is `{nearest}` meant?)"),
        None => format!(" among {}", found.join(", ")),
    }
}

fn failures(left_out: u64) -> String {
    if left_out == 0 { String::new() } else { format!(" ({left_out} without)") }
}
