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
    assert!(score.rows > 10, "{what}: {} rows", score.rows);
    assert!(errors.median_ape <= bounds[0], "{what}: median error {:.3}, bound {}", errors.median_ape, bounds[0]);
    assert!(errors.p90_ape <= bounds[1], "{what}: 90th percentile {:.3}, bound {}", errors.p90_ape, bounds[1]);
}

/// Bounds are a fifth above the errors of the profiles as they are (core: 6.8 and 27 % in prefill, 9.0 and 28 % in decode, 4.3 and 28 % over both;
/// with the doubtful rows: 7.6 and 37, 9.0 and 28, 17 and 65 %): a refit trades one configuration for another, a mistake in a law costs
/// more. Whoever makes predictions better may lower them.
#[test]
fn errors_stay_within_their_bounds() {
    let rows = scored();
    let (prefill, decode, whole) = (Phase::Prefill, Phase::Decode, Phase::Whole);
    for (phase, bounds) in [(prefill, [0.08, 0.33]), (decode, [0.11, 0.33]), (whole, [0.06, 0.34])] {
        let core = |row: &Measurement| row.core == Some(true) && Phase::of(&row.metric) == Some(phase);
        check(&format!("{phase:?}, core"), &rows, core, bounds);
    }
    for (phase, bounds) in [(prefill, [0.09, 0.45]), (decode, [0.11, 0.33]), (whole, [0.20, 0.78])] {
        check(&format!("{phase:?}"), &rows, |row| Phase::of(&row.metric) == Some(phase), bounds);
    }
}

/// Of configurations that are fully stated, that is; of the others two thirds, as old engines and hosts that no one described were slower in many ways.
#[test]
fn intervals_hold_three_quarters_of_the_measurements() {
    let rows = scored();
    let covered = |core: bool| {
        let chosen = rows.iter().filter(|(row, _)| !core || row.core == Some(true)).map(|(_, scored)| scored);
        Score::of(chosen).errors.unwrap().interval_coverage.unwrap()
    };
    assert!(covered(true) >= 0.75, "{:.3}", covered(true));
    assert!(covered(false) >= 0.65, "{:.3}", covered(false));
    // Nor are they so wide that they hold everything.
    let widest = rows.iter().filter_map(|(_, scored)| scored.interval).map(|(low, high)| high / low);
    let widest = widest.fold(0.0, f64::max);
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
