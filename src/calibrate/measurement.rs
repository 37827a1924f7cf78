//! Published measurements as rows of a CSV file.

use crate::profile::nearest;
use std::collections::HashSet;
use std::io::Read;
use std::str::FromStr;

/// One published number: what was measured, on what, and how.
///
/// The fields are the columns of the file; an empty cell, or a column that the file does not have, is `None` or empty text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// Identifies the row; unique in a file.
    pub id: String,
    /// The collection that it comes from.
    pub source: String,
    /// When it was measured or published, from the year on: `2025`, `2025-07`, `2025-07-18`.
    pub date: Option<String>,
    /// Inference engine.
    pub engine: String,
    /// Version, build or commit of the engine.
    pub engine_version: Option<String>,
    /// Slug of the device.
    pub device: String,
    /// Devices used.
    pub device_count: u32,
    /// Devices that share every layer.
    pub tp: u32,
    /// Whether the row says how many devices there are or share every layer; without, both are 1.
    pub layout_stated: bool,
    /// Pipeline stages.
    pub pp: u32,
    /// Ways over which experts are split.
    pub ep: u32,
    /// With `ep`, ranks of data-parallel attention; without, replicas.
    pub dp: u32,
    /// Slug of the model.
    pub model: String,
    /// Format of the weights.
    pub weight_format: String,
    /// Format of the activations.
    pub activation_format: Option<String>,
    /// Format of the key-value cache; absent: the engine's default.
    pub kv_format: Option<String>,
    /// `single_stream`, `static_batch`, `closed_loop`, `open_loop`, `offline`, `disaggregated`.
    pub mode: String,
    /// Sequences in the batch, or requests in flight.
    pub concurrency: Option<f64>,
    /// Requests per second offered; infinite (`inf`) if all are sent at once.
    pub request_rate: Option<f64>,
    /// Prompt tokens processed per stream.
    pub input_tokens: Option<f64>,
    /// Tokens in the cache when the measured phase starts.
    pub context_tokens: Option<f64>,
    /// Generated tokens per stream.
    pub output_tokens: Option<f64>,
    /// Whether flash attention was on, where it is stated.
    pub flash_attention: Option<bool>,
    /// What was measured.
    pub metric: String,
    /// The number, in the unit that goes with the metric (milliseconds or tokens per second); positive.
    pub value: f64,
    /// The unit, as written.
    pub unit: String,
    /// Grade of trust, as written.
    pub trust: String,
    /// Remarks.
    pub tags: Vec<Tag>,
    /// Whether the row counts for accuracy targets; `None` where the file has no such column.
    pub core: Option<bool>,
}

/// A remark on a row: `name` or `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// What stands before the equals sign.
    pub name: String,
    /// What stands behind it.
    pub value: Option<String>,
}

/// A file of measurements that could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasurementError {
    /// A necessary column is not there.
    #[error("{file}: no column `{column}`{}", .found_instead.as_ref().map(|found| format!(" (is `{found}` meant for it?)")).unwrap_or_default())]
    MissingColumn {
        /// The file.
        file: String,
        /// The column.
        column: &'static str,
        /// A column of the file with a similar name that means nothing.
        found_instead: Option<String>,
    },
    /// A cell does not hold what its column is for.
    #[error("{file}, line {line}, column `{column}`: `{value}`, expected {expected}{}", .nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default())]
    Cell {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// What the cell holds.
        value: String,
        /// What was expected.
        expected: &'static str,
        /// The nearest valid value, where the values are names.
        nearest: Option<&'static str>,
    },
    /// Two rows have the same id.
    #[error("{file}, line {line}, column `id`: `{id}` is also the id of an earlier row")]
    DuplicateId {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The id.
        id: String,
    },
    /// Not a table: rows of unequal length, bytes that are not text, or a failed read.
    #[error("{file}: {message}")]
    NotATable {
        /// The file.
        file: String,
        /// What is wrong, with the line where it is known.
        message: String,
    },
}

const COLUMNS: [&str; 28] = [
    "id",
    "source",
    "date",
    "engine",
    "engine_version",
    "device",
    "device_count",
    "tp",
    "pp",
    "ep",
    "dp",
    "model",
    "weight_format",
    "activation_format",
    "kv_format",
    "mode",
    "concurrency",
    "request_rate",
    "input_tokens",
    "context_tokens",
    "output_tokens",
    "flash_attention",
    "metric",
    "value",
    "unit",
    "trust",
    "tags",
    "core",
];

/// Columns without which a row cannot be predicted or scored.
const NECESSARY: [&str; 10] =
    ["id", "engine", "device", "device_count", "tp", "model", "weight_format", "mode", "metric", "value"];

/// Reads a CSV file of measurements: a line of column names (in any order), then a row per line; lines that start with `#` are
/// comments. `file` names it in errors.
///
/// Engines, devices, models, formats, modes and metrics are kept as text, so that a file may hold more than this version can predict.
///
/// # Errors
/// [`MeasurementError`] with file, line, column, value and what was expected.
pub fn read_measurements(reader: impl Read, file: &str) -> Result<Vec<Measurement>, MeasurementError> {
    let not_a_table = |error: csv::Error| MeasurementError::NotATable { file: file.into(), message: error.to_string() };
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(reader);
    let headers = reader.headers().map_err(not_a_table)?.clone();
    check_columns(&headers, file)?;
    let place = COLUMNS.map(|column| headers.iter().position(|header| header == column));
    let (mut rows, mut ids) = (Vec::new(), HashSet::new());
    for record in reader.into_records() {
        let record = record.map_err(not_a_table)?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = Row { file, line, record: &record, place: &place }.measurement()?;
        if !ids.insert(row.id.clone()) {
            return Err(MeasurementError::DuplicateId { file: file.into(), line, id: row.id });
        }
        rows.push(row);
    }
    Ok(rows)
}

fn check_columns(headers: &csv::StringRecord, file: &str) -> Result<(), MeasurementError> {
    match NECESSARY.into_iter().find(|column| !headers.iter().any(|header| header == *column)) {
        None => Ok(()),
        Some(column) => {
            let unknown = headers.iter().filter(|header| !COLUMNS.contains(header));
            let found_instead = nearest(column, unknown).map(Into::into);
            Err(MeasurementError::MissingColumn { file: file.into(), column, found_instead })
        }
    }
}

/// One line of the file, and where its columns are.
struct Row<'a> {
    file: &'a str,
    line: u64,
    record: &'a csv::StringRecord,
    place: &'a [Option<usize>; COLUMNS.len()],
}

impl Row<'_> {
    fn measurement(&self) -> Result<Measurement, MeasurementError> {
        let value = self.positive("value")?;
        Ok(Measurement {
            id: self.needed("id")?,
            source: self.text("source").into(),
            date: self.optional("date"),
            engine: self.needed("engine")?,
            engine_version: self.optional("engine_version"),
            device: self.needed("device")?,
            device_count: self.count("device_count")?,
            tp: self.count("tp")?,
            layout_stated: !(self.text("tp").is_empty() && self.text("device_count").is_empty()),
            pp: self.count("pp")?,
            ep: self.count("ep")?,
            dp: self.count("dp")?,
            model: self.needed("model")?,
            weight_format: self.text("weight_format").into(),
            activation_format: self.optional("activation_format"),
            kv_format: self.optional("kv_format"),
            mode: self.needed("mode")?,
            concurrency: self.amount("concurrency")?,
            request_rate: self.rate("request_rate")?,
            input_tokens: self.amount("input_tokens")?,
            context_tokens: self.amount("context_tokens")?,
            output_tokens: self.amount("output_tokens")?,
            flash_attention: self.switch("flash_attention", ["on", "off"])?,
            metric: self.needed("metric")?,
            value,
            unit: self.text("unit").into(),
            trust: self.text("trust").into(),
            tags: self.text("tags").split(';').filter(|tag| !tag.trim().is_empty()).map(Tag::new).collect(),
            core: self.switch("core", ["1", "0"])?,
        })
    }

    fn text(&self, column: &'static str) -> &str {
        let index = COLUMNS.iter().position(|known| *known == column);
        let place = index.and_then(|index| self.place.get(index).copied().flatten());
        place.and_then(|place| self.record.get(place)).unwrap_or_default()
    }

    fn optional(&self, column: &'static str) -> Option<String> {
        Some(self.text(column)).filter(|text| !text.is_empty()).map(Into::into)
    }

    fn needed(&self, column: &'static str) -> Result<String, MeasurementError> {
        self.optional(column).ok_or_else(|| self.error(column, "some text"))
    }

    /// A number of devices; one where the cell is empty.
    fn count(&self, column: &'static str) -> Result<u32, MeasurementError> {
        let Some(count) = self.parsed::<u32>(column, "a whole number from 1")? else { return Ok(1) };
        if count == 0 { Err(self.error(column, "a whole number from 1")) } else { Ok(count) }
    }

    fn amount(&self, column: &'static str) -> Result<Option<f64>, MeasurementError> {
        let expected = "a finite number that is not negative, or nothing";
        let amount = self.parsed::<f64>(column, expected)?;
        match amount {
            Some(amount) if !(amount.is_finite() && amount >= 0.0) => Err(self.error(column, expected)),
            _ => Ok(amount),
        }
    }

    fn rate(&self, column: &'static str) -> Result<Option<f64>, MeasurementError> {
        let expected = "a number that is not negative, inf, or nothing";
        let rate = self.parsed::<f64>(column, expected)?;
        match rate {
            Some(rate) if rate.is_nan() || rate < 0.0 => Err(self.error(column, expected)),
            _ => Ok(rate),
        }
    }

    fn positive(&self, column: &'static str) -> Result<f64, MeasurementError> {
        let expected = "a finite number above 0";
        let value = self.parsed::<f64>(column, expected)?;
        value.filter(|value| value.is_finite() && *value > 0.0).ok_or_else(|| self.error(column, expected))
    }

    fn parsed<T: FromStr>(&self, column: &'static str, expected: &'static str) -> Result<Option<T>, MeasurementError> {
        match self.text(column) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| self.error(column, expected)),
        }
    }

    fn switch(&self, column: &'static str, names: [&'static str; 2]) -> Result<Option<bool>, MeasurementError> {
        match self.text(column) {
            "" => Ok(None),
            text if text == names[0] => Ok(Some(true)),
            text if text == names[1] => Ok(Some(false)),
            text => {
                let expected = if names[0] == "on" { "on, off, or nothing" } else { "1, 0, or nothing" };
                let mut error = self.error(column, expected);
                if let MeasurementError::Cell { nearest: hint, .. } = &mut error {
                    *hint = nearest(text, names);
                }
                Err(error)
            }
        }
    }

    fn error(&self, column: &'static str, expected: &'static str) -> MeasurementError {
        MeasurementError::Cell {
            file: self.file.into(),
            line: self.line,
            column,
            value: self.text(column).chars().take(100).collect(),
            expected,
            nearest: None,
        }
    }
}

impl Tag {
    fn new(text: &str) -> Self {
        match text.trim().split_once('=') {
            Some((name, value)) => Self { name: name.trim().into(), value: Some(value.trim().into()) },
            None => Self { name: text.trim().into(), value: None },
        }
    }
}

impl Measurement {
    /// Whether the row carries this tag, with or without a value.
    pub fn has_tag(&self, name: &str) -> bool {
        self.tags.iter().any(|tag| tag.name == name)
    }

    /// The value of a tag: `512` for `ub=512`.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find(|tag| tag.name == name).and_then(|tag| tag.value.as_deref())
    }

    /// The text of a column that rows may be grouped or filtered by; `None` for any other name.
    pub fn column(&self, name: &str) -> Option<String> {
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(match name {
            "id" => self.id.clone(),
            "source" => self.source.clone(),
            "date" => optional(&self.date),
            "engine" => self.engine.clone(),
            "engine_version" => optional(&self.engine_version),
            "device" => self.device.clone(),
            "device_count" => self.device_count.to_string(),
            "tp" => self.tp.to_string(),
            "pp" => self.pp.to_string(),
            "ep" => self.ep.to_string(),
            "dp" => self.dp.to_string(),
            "model" => self.model.clone(),
            "weight_format" => self.weight_format.clone(),
            "kv_format" => optional(&self.kv_format),
            "mode" => self.mode.clone(),
            "concurrency" => self.concurrency.map(|batch| batch.to_string()).unwrap_or_default(),
            "metric" => self.metric.clone(),
            "trust" => self.trust.clone(),
            "core" => self.core.map(|core| u8::from(core).to_string()).unwrap_or_default(),
            _ => return None,
        })
    }
}
