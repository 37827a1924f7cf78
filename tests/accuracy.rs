//! Predictions of published measurements may not get worse.
#![cfg(feature = "calibrate")]

use llm_roofline::calibrate::*;
use llm_roofline::prelude::*;

fn scored() -> Vec<(Measurement, Scored)> {
    let rows = read_measurements(include_str!("data/measurements.csv").as_bytes(), "measurements.csv").unwrap();
    let mut predictor = Predictor::new(Catalog::embedded());
    let fixed = rows.into_iter().filter(|row| matches!(row.mode.as_str(), "single_stream" | "static_batch"));
    fixed
        .map(|row| {
            let prediction = predictor.predict(&row).unwrap_or_else(|refusal| panic!("{}: {refusal}", row.id));
            let scored = Scored::new(&row, Some(&prediction));
            (row, scored)
        })
        .collect()
}

/// Median and 90th percentile of the absolute percentage error.
fn check(what: &str, rows: &[(Measurement, Scored)], chosen: impl Fn(&Measurement) -> bool, bounds: [f64; 2]) {
    let score = Score::of(rows.iter().filter(|(row, _)| chosen(row)).map(|(_, scored)| scored));
    let errors = score.errors.unwrap();
    eprintln!(
        "{what}: {} rows, {:.3} {:.3} {:.3?}",
        score.rows, errors.median_ape, errors.p90_ape, errors.interval_coverage
    );
    assert!(score.rows > 10, "{what}: {} rows", score.rows);
    assert!(errors.median_ape <= bounds[0], "{what}: median error {:.3}, bound {}", errors.median_ape, bounds[0]);
    assert!(errors.p90_ape <= bounds[1], "{what}: 90th percentile {:.3}, bound {}", errors.p90_ape, bounds[1]);
}

#[test]
fn errors_stay_within_their_bounds() {
    let rows = scored();
    let phase = |wanted| move |row: &Measurement| Phase::of(&row.metric) == Some(wanted);
    check("prefill", &rows, phase(Phase::Prefill), [0.0, 0.0]);
    check("decode", &rows, phase(Phase::Decode), [0.0, 0.0]);
    check("whole", &rows, phase(Phase::Whole), [0.0, 0.0]);
    check("core", &rows, |row| row.core == Some(true), [0.0, 0.0]);
}

#[test]
fn intervals_hold_three_quarters_of_the_measurements() {
    let rows = scored();
    let errors = Score::of(rows.iter().map(|(_, scored)| scored)).errors.unwrap();
    let covered = errors.interval_coverage.unwrap();
    assert!(covered >= 0.75, "{covered:.3}");
    // Nor are they so wide that they hold everything.
    let widest =
        rows.iter().filter_map(|(_, scored)| scored.interval).map(|(low, high)| high / low).fold(0.0, f64::max);
    assert!(widest < 10.0, "{widest}");
}

#[test]
fn the_selection_spans_engines_devices_and_formats() {
    let rows = scored();
    for (column, at_least) in [("engine", 6), ("device", 12), ("model", 25), ("weight_format", 9), ("source", 6)] {
        let values: std::collections::BTreeSet<_> = rows.iter().filter_map(|(row, _)| row.column(column)).collect();
        assert!(values.len() >= at_least, "{column}: {values:?}");
    }
}
