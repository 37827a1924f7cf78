//! Traces as lines of JSON objects.

use super::columns::Columns;
use super::error::TraceError;
use super::{Rows, Trace, TraceRequest};
use crate::units::Seconds;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Read};

/// The key of the blocks of a prompt.
const HASHES: &str = "hash_ids";

pub(super) fn read(file: &str, text: impl Read, columns: &Columns) -> Result<Trace, TraceError> {
    let mut rows = Rows::new(file, columns);
    for (index, text) in BufReader::new(text).lines().enumerate() {
        let line = index as u64 + 1;
        let malformed = |message: String| TraceError::Malformed { file: file.into(), line: Some(line), message };
        let text = text.map_err(|error| malformed(error.to_string()))?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            continue;
        }
        let object: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| malformed(format!("one JSON object per line expected: {error}")))?;
        let request = request(&mut rows, line, &object)?;
        rows.add(request);
    }
    rows.finish()
}

fn request(rows: &mut Rows, line: u64, object: &Map<String, Value>) -> Result<TraceRequest, TraceError> {
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    let (time, prompt, output) = rows.columns.find(rows.file, line, &names)?;
    // Text in quotes and numbers are read alike.
    let text = |index: usize| match &object[names[index]] {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let arrival = match time {
        Some(index) => rows.arrival(line, names[index], &text(index))?,
        None => Seconds::ZERO,
    };
    let prompt_tokens = rows.tokens(line, names[prompt], &text(prompt))?;
    let output_tokens = rows.tokens(line, names[output], &text(output))?;
    let block_hashes = match object.get(HASHES) {
        None | Some(Value::Null) => Vec::new(),
        Some(value) => {
            let hashes = value.as_array().and_then(|hashes| hashes.iter().map(Value::as_u64).collect());
            hashes.ok_or_else(|| rows.wrong(line, HASHES, &value.to_string(), "a list of whole numbers"))?
        }
    };
    Ok(TraceRequest { arrival, prompt_tokens, output_tokens, cached_tokens: 0, block_hashes })
}
