//! Traces as tables of comma-separated values with a header.

use super::columns::Columns;
use super::error::TraceError;
use super::{Rows, Trace, TraceRequest};
use crate::units::Seconds;
use std::io::Read;

pub(super) fn read(file: &str, text: impl Read, columns: &Columns) -> Result<Trace, TraceError> {
    let malformed = |error: csv::Error| TraceError::Malformed {
        file: file.into(),
        line: error.position().map(csv::Position::line),
        message: error.to_string(),
    };
    let mut table = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = table.headers().map_err(malformed)?.clone();
    let names: Vec<&str> = header.iter().map(|name| name.trim_start_matches('\u{feff}')).collect();
    let (time, prompt, output) = columns.find(file, 1, &names)?;
    let mut rows = Rows::new(file, columns);
    let mut record = csv::StringRecord::new();
    while table.read_record(&mut record).map_err(malformed)? {
        let line = record.position().map_or(0, csv::Position::line);
        // Records are as long as the header: the table is not flexible.
        let field = |index: usize| (names[index], record.get(index).unwrap_or_default());
        let arrival = match time.map(field) {
            Some((column, text)) => rows.arrival(line, column, text)?,
            None => Seconds::ZERO,
        };
        let count = |index| {
            let (column, text) = field(index);
            rows.tokens(line, column, text)
        };
        let (prompt_tokens, output_tokens) = (count(prompt)?, count(output)?);
        rows.add(TraceRequest { arrival, prompt_tokens, output_tokens, ..TraceRequest::default() });
    }
    rows.finish()
}
