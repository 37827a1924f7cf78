//! How accurate is the library? Predicts every row of a file of published measurements and tells how far off it is.
// ci: args tests/data/measurements.csv --where core=1 --speedups tests/data/speculation.csv

mod shared;

use clap::Parser;
use llm_roofline::{calibrate::*, prelude::*};

/// Predicts published measurements and prints error tables.
#[derive(Parser)]
struct Arguments {
    /// File of measurements (.csv); its columns are the fields of `calibrate::Measurement`
    measurements: String,
    /// Another one, of speed-ups by speculative decoding, scored whatever --where says
    #[arg(long)]
    speedups: Option<String>,
    /// Where to write the predictions
    #[arg(long)]
    out: Option<String>,
    /// Where to write the accuracy page (Markdown)
    #[arg(long)]
    report: Option<String>,
    /// Score only rows in which a column has a value, as column=value (several values: a|b)
    #[arg(long = "where", value_delimiter = ',')]
    conditions: Vec<String>,
    /// Print a table by these columns instead of the accuracy page
    #[arg(long, value_delimiter = ',')]
    by: Vec<String>,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let catalog = Catalog::embedded();
    let mut rows = shared::measurements([&arguments.measurements])?;
    let filtered = rows.len();
    rows.extend(shared::measurements(&arguments.speedups)?);
    let mut predictor = Predictor::new(catalog);
    let predictions: Vec<_> = rows.iter().map(|row| predictor.predict(row)).collect();
    if let Some(out) = &arguments.out {
        write_predictions(out, &rows, &predictions).map_err(|error| format!("{out}: {error}"))?;
    }
    let mut scored = Vec::new();
    for (index, (row, prediction)) in rows.iter().zip(&predictions).enumerate() {
        if index >= filtered || matches(row, &arguments.conditions)? {
            scored.push((row.clone(), Scored::new(row, prediction.as_ref().ok())));
        }
    }
    let page = accuracy_report(catalog, &scored);
    if let Some(report) = &arguments.report {
        std::fs::write(report, &page).map_err(|error| format!("{report}: {error}"))?;
    }
    if arguments.by.is_empty() {
        return Ok(page);
    }
    let key = |row: &Measurement| arguments.by.iter().map(|column| row.column(column)).collect::<Option<Vec<_>>>();
    let table = ScoreTable::by(arguments.by.join(" / "), &scored, |row| key(row).map(|key| key.join(" / ")));
    if table.lines.is_empty() { Err("--by: no such column, or no rows".into()) } else { Ok(table.to_string()) }
}

fn matches(row: &Measurement, conditions: &[String]) -> Result<bool, String> {
    conditions.iter().try_fold(true, |all, condition| {
        let (column, values) = condition.split_once('=').ok_or("--where wants column=value")?;
        let found = row.column(column).ok_or(format!("--where {condition}: no column `{column}`"))?;
        Ok(all && values.split('|').any(|value| value == found))
    })
}

fn write_predictions(path: &str, rows: &[Measurement], results: &[Result<Prediction, Refusal>]) -> csv::Result<()> {
    let mut writer = csv::Writer::from_path(path)?;
    writer.write_record(["id", "predicted", "low", "high", "reason"])?;
    for (row, result) in rows.iter().zip(results) {
        let number = |value: fn(&Prediction) -> f64| result.as_ref().map(|p| value(p).to_string()).unwrap_or_default();
        let reason = result.as_ref().err().map(Refusal::to_string).unwrap_or_default();
        writer.write_record([&row.id, &number(|p| p.predicted), &number(|p| p.low), &number(|p| p.high), &reason])?;
    }
    Ok(writer.flush()?)
}
