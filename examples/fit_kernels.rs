//! What do the kernels of real engines cost? Fits the laws of single operators to a folder of measurements.
// ci: args --help

use clap::Parser;
use llm_roofline::calibrate::fit::kernels::{Fitted, fit_folder};
use std::error::Error;
use std::path::PathBuf;

/// Fits kernel laws and prints one line per group of measurements.
#[derive(Parser)]
struct Arguments {
    /// Folder with gemm.csv, decode_attention.csv, prefill_attention.csv, moe.csv, all_reduce.csv, specs.csv
    folder: PathBuf,
    /// Also write the constants, one per line, to this CSV file
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let fits = fit_folder(&arguments.folder)?;
    for fit in &fits {
        println!("{fit}");
    }
    if let Some(path) = arguments.out {
        let lines: String = fits.iter().map(Fitted::csv).collect();
        std::fs::write(path, format!("{}\n{lines}", Fitted::CSV_HEADER))?;
    }
    Ok(())
}
