//! How accurate the predictions are, as a page of tables.

use super::score::SPEEDUP;
use super::{BenefitSign, Measurement, OomRecall, ScoreTable, Scored};
use crate::catalog::Catalog;
use std::fmt::{self, Write};

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The processing of the prompt.
    Prefill,
    /// The generation of tokens after the first.
    Decode,
    /// Whole requests.
    Whole,
}

impl Phase {
    /// The phase of a metric; `None` for those that are neither time nor rate of a phase, percentiles among them.
    pub fn of(metric: &str) -> Option<Self> {
        match metric {
            "ttft_ms" | "prefill_tps" => Some(Self::Prefill),
            "tpot_ms" | "decode_tps_per_stream" | "decode_tps_total" => Some(Self::Decode),
            "e2e_ms" | "output_tps_total" | "total_tps" => Some(Self::Whole),
            _ => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Whole => "whole requests",
        })
    }
}

/// The family of a weight format by its name, for tables: `K-quants` for `q4_k_m`.
pub fn format_family(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    match name.as_str() {
        "" => "not stated",
        "fp32" | "fp16" | "bf16" | "f32" | "f16" => "16 and 32 bits",
        _ if starts(&["fp8", "mxfp8"]) => "8-bit floats",
        _ if starts(&["nvfp4", "mxfp4", "mxfp6"]) => "4- and 6-bit floats",
        _ if starts(&["awq", "gptq", "int", "nf4"]) => "integers (AWQ, GPTQ, ...)",
        _ if starts(&["mlx"]) => "MLX",
        _ if starts(&["exl"]) => "EXL2",
        _ if starts(&["ud-"]) => "GGUF, Unsloth dynamic",
        _ if starts(&["iq"]) => "GGUF, IQ",
        _ if starts(&["q"]) && name.contains("_k") => "GGUF, K-quants",
        _ if starts(&["q"]) => "GGUF, older quants",
        _ => "other mixes",
    }
}

/// The accuracy page: the rows that count for the targets, then all rows, each split by phase, mode, metric, engine, hardware
/// generation and format; and speed-ups by speculative decoding by themselves. In Markdown.
pub fn accuracy_report(catalog: &Catalog, rows: &[(Measurement, Scored)]) -> String {
    let (speedups, rows): (Vec<_>, Vec<_>) = rows.iter().cloned().partition(|(row, _)| row.metric == SPEEDUP);
    let core: Vec<(Measurement, Scored)> = rows.iter().filter(|(row, _)| row.core == Some(true)).cloned().collect();
    let mut page = String::from(INTRODUCTION);
    for (title, rows) in [("Rows that count for the targets", &core), ("All rows", &rows)] {
        if !rows.is_empty() {
            // Writing into a string cannot fail.
            let _ = section(&mut page, catalog, title, rows);
        }
    }
    if !speedups.is_empty() {
        let _ = speculation(&mut page, &speedups);
    }
    page
}

/// Speed-ups by speculative decoding, given how much is accepted.
fn speculation(page: &mut String, rows: &[(Measurement, Scored)]) -> fmt::Result {
    writeln!(page, "\n## Speculative decoding: how many times faster, given the acceptance\n")?;
    let tag = |row: &Measurement, name| row.tag(name).map(String::from);
    let shape = |row: &Measurement| Some(format!("{} / {}", tag(row, "steps")?, tag(row, "topk")?));
    let tables = [
        ScoreTable::by("speed-ups", rows, |_| Some("all".into())),
        ScoreTable::by("engine", rows, |row| Some(row.engine.clone())),
        ScoreTable::by("model", rows, |row| Some(row.model.clone())),
        ScoreTable::by("method", rows, |row| tag(row, "method")),
        ScoreTable::by("batch", rows, |row| row.column("concurrency")),
        ScoreTable::by("steps / top-k", rows, shape),
    ];
    for table in tables.iter().filter(|table| !table.lines.is_empty()) {
        writeln!(page, "{table}")?;
    }
    let sign = BenefitSign::of(rows.iter().map(|(_, scored)| scored));
    let Some(right) = sign.right else { return Ok(()) };
    writeln!(page, "Of {} effects beyond 5 %, {:.1} % were predicted with the right sign.", sign.rows, right * 100.0)
}

const INTRODUCTION: &str = "# Accuracy\n\n\
Predictions against published measurements, written by `cargo run --release --example validate`. Every configuration (engine, device, number \
of devices, tensor parallelism, model, weight format) has the same weight in each line, shared by its rows. APE is |predicted - measured| / measured; \
bias is the median of (predicted - measured) / measured; coverage is the share that was predicted at all.\n";

fn section(page: &mut String, catalog: &Catalog, title: &str, rows: &[(Measurement, Scored)]) -> fmt::Result {
    writeln!(page, "\n## {title}")?;
    for table in tables(catalog, rows) {
        write!(page, "\n{table}")?;
    }
    let oom = OomRecall::of(rows.iter().map(|(_, scored)| scored));
    if let Some(recall) = oom.recall {
        let (rows, predicted) = (oom.rows, oom.predicted_rows);
        writeln!(
            page,
            "\nOf {rows} configurations that do not fit, {predicted} were predicted, {:.0} % rightly.",
            recall * 100.0
        )?;
    }
    Ok(())
}

fn tables(catalog: &Catalog, rows: &[(Measurement, Scored)]) -> [ScoreTable; 7] {
    let generation = |row: &Measurement| catalog.device(&row.device).map(|device| device.generation().to_string());
    [
        ScoreTable::by("overall", rows, |_| Some("all".into())),
        ScoreTable::by("phase", rows, |row| Phase::of(&row.metric).map(|phase| phase.to_string())),
        ScoreTable::by("mode", rows, |row| Some(row.mode.clone())),
        ScoreTable::by("metric", rows, |row| Some(row.metric.clone())),
        ScoreTable::by("engine", rows, |row| Some(row.engine.clone())),
        ScoreTable::by("generation", rows, |row| Some(generation(row).unwrap_or_else(|_| "unknown".into()))),
        ScoreTable::by("format", rows, |row| Some(format_family(&row.weight_format).into())),
    ]
}
