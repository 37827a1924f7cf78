//! How are the constants of the engine profiles found? Fits them to published measurements, and tells how well they carry over.
// ci: args tests/data/measurements.csv engine-profiles/priors.csv --speedups tests/data/speculation.csv

mod shared;

use clap::Parser;
use llm_roofline::calibrate::{Measurement, fit::*};
use llm_roofline::prelude::*;
use std::{collections::BTreeSet, error::Error, fs};

/// Fits the free constants of the engine profiles to measurements; those that none has moved stay as they are.
#[derive(Parser)]
struct Arguments {
    /// File of measurements (.csv), as for `validate`
    measurements: String,
    /// Table of free constants: profile,parameter,prior,log_sd
    priors: String,
    /// Another file of measurements, of speed-ups by speculative decoding
    #[arg(long)]
    speedups: Option<String>,
    /// Folder of the engine profiles to write the constants into
    #[arg(long)]
    write: Option<String>,
    /// Instead of fitting all: leave out the values of this column (device, model, source), fold by fold, and predict them
    #[arg(long)]
    leave_out: Option<String>,
    #[arg(long, default_value_t = 6)]
    folds: usize,
    /// Where to write the predictions of the left-out rows
    #[arg(long, default_value = "left_out.csv")]
    out: String,
}

fn main() -> std::process::ExitCode {
    shared::finish(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let rows = shared::measurements([&arguments.measurements].into_iter().chain(&arguments.speedups))?;
    let free = refit::read_free_parameters(&fs::read_to_string(&arguments.priors)?)?;
    let modes = ["single_stream", "static_batch", "closed_loop", "open_loop", "offline"];
    let rows = rows.iter().filter(|row| modes.contains(&row.mode.as_str()) || row.metric == "speedup");
    let refit = refit::Refit::new(Catalog::embedded(), rows, free)?;
    match &arguments.leave_out {
        Some(column) => leave_out(&refit, column, arguments),
        None => fit_all(&refit, arguments.write.as_deref()),
    }
}

fn fit_all(refit: &refit::Refit<'_>, folder: Option<&str>) -> Result<String, Box<dyn Error>> {
    let solution = refit.solve()?;
    let mut table = format!("{:<24} {:<52} {:>11} {:>11} {:>6}\n", "profile", "parameter", "prior", "fitted", "+- %");
    for ((free, theta), sd) in refit.free().iter().zip(&solution.theta).zip(&solution.sd) {
        let (name, value, percent) = (&free.parameter, theta.exp(), 100.0 * sd);
        table += &format!("{:<24} {name:<52} {:>11.4e} {value:>11.4e} {percent:>6.0}\n", free.profile, free.prior);
        let moved = *sd < 0.95 * free.log_sd || (theta - free.prior.ln()).abs() > 0.25 * free.log_sd;
        if let Some(folder) = folder.filter(|_| moved) {
            let path = format!("{folder}/{}.toml", free.profile);
            let text = set_in_text(&fs::read_to_string(&path)?, free, value);
            fs::write(&path, text.ok_or_else(|| format!("{path}: no {name}"))?)?;
        }
    }
    let (rows, iterations) = (refit.rows().count(), solution.iterations);
    Ok(format!("{table}{rows} rows, objective {:.1} after {iterations} iterations", solution.objective))
}

fn leave_out(refit: &refit::Refit<'_>, column: &str, arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let value = |row: &Measurement| row.column(column).unwrap_or_default();
    let values: BTreeSet<String> = refit.rows().map(value).collect();
    let fold = |row: &Measurement| values.range(..value(row)).count() % arguments.folds;
    let mut writer = csv::Writer::from_path(&arguments.out)?;
    writer.write_record(["id", "predicted"])?;
    for index in 0..arguments.folds {
        for (row, predicted) in refit.predict_left_out(|row| fold(row) == index)? {
            writer.write_record([&row.id, &predicted.to_string()])?;
        }
    }
    writer.flush()?;
    Ok(format!("{} values of {column} left out in {} folds: {}", values.len(), arguments.folds, arguments.out))
}
