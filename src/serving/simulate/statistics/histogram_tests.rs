//! Histograms against sorted samples.

use super::Histogram;
use crate::serving::metrics::{PercentileRule, Percentiles};
use crate::units::Seconds;
use proptest::prelude::*;

/// Durations from nanoseconds to hours, some of them equal.
fn durations() -> impl Strategy<Value = Vec<f64>> {
    let spread = (-8.0..4.0_f64).prop_map(|exponent| 10.0_f64.powf(exponent));
    let few = (0_u32..5).prop_map(|step| f64::from(step) * 0.025);
    prop::collection::vec(prop_oneof![spread, 0.1..0.2_f64, few], 1..300)
}

fn recorded(durations: &[f64]) -> Histogram {
    let mut histogram = Histogram::new();
    for &seconds in durations {
        histogram.record(seconds);
    }
    histogram
}

/// Equal but for the rounding of sums.
fn assert_same(a: &Histogram, b: &Histogram) {
    assert_eq!((a.count(), a.min(), a.max()), (b.count(), b.min(), b.max()));
    assert_eq!(a.quantile(0.37), b.quantile(0.37));
    assert_eq!(a.percentiles().map(|of| of.p99), b.percentiles().map(|of| of.p99));
    let (mean, other) = (a.mean().unwrap().as_seconds(), b.mean().unwrap().as_seconds());
    assert!((mean - other).abs() <= 1e-12 * mean.abs(), "{mean} {other}");
}

fn assert_close(found: Seconds, expected: Seconds, relative: f64) {
    let difference = (found - expected).as_seconds().abs();
    assert!(difference <= relative * expected.as_seconds() + 2e-9, "{found} instead of {expected}");
}

proptest! {
    #[test]
    fn percentiles_are_those_of_the_samples(durations in durations()) {
        let found = recorded(&durations).percentiles().unwrap();
        let samples = durations.iter().map(|&seconds| Seconds::from_seconds(seconds));
        let expected = Percentiles::of(samples, PercentileRule::Linear).unwrap();
        assert_close(found.mean, expected.mean, 1e-12);
        for (found, expected) in found.named().into_iter().zip(expected.named()) {
            assert_close(found.1, expected.1, Histogram::RESOLUTION);
        }
    }

    #[test]
    fn merging_is_recording_everything_in_one(a in durations(), b in durations(), c in durations()) {
        let merged = |parts: &[&Histogram]| {
            let mut all = Histogram::new();
            parts.iter().for_each(|part| all.merge(part));
            all
        };
        let [x, y, z] = [&a, &b, &c].map(|part| recorded(part));
        assert_eq!(merged(&[&x, &y]), merged(&[&y, &x]));
        let all = recorded(&[a, b, c].concat());
        assert_same(&merged(&[&x, &y, &z]), &all);
        assert_same(&merged(&[&x, &merged(&[&y, &z])]), &all);
    }

    #[test]
    fn a_line_is_the_loop(first in 1e-4..1.0_f64, growth in -1e-6..1e-3_f64, steps in 1_u64..400, each in 1_u64..5) {
        let growth = growth.max(-first / steps as f64);
        let (mut line, mut loop_of) = (Histogram::new(), Histogram::new());
        line.record_line(first, growth, steps, each);
        (0..steps).for_each(|step| loop_of.record_many(first + growth * step as f64, each));
        prop_assert_eq!(line.count(), loop_of.count());
        assert_close(line.mean().unwrap(), loop_of.mean().unwrap(), 1e-9);
        for quantile in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let (a, b) = (line.quantile(quantile).unwrap(), loop_of.quantile(quantile).unwrap());
            assert_close(a, b, Histogram::RESOLUTION);
        }
    }

    #[test]
    fn shares_are_those_of_the_samples(durations in durations(), limit in 0.0..0.3_f64) {
        let found = recorded(&durations).share_up_to(Seconds::from_seconds(limit)).unwrap();
        let share = |limit: f64| durations.iter().filter(|&&s| s <= limit).count() as f64 / durations.len() as f64;
        let width = Histogram::RESOLUTION * limit + 2e-9;
        prop_assert!((share(limit - width)..=share(limit + width)).contains(&found), "{}", found);
    }
}

#[test]
fn a_single_value_is_returned_exactly() {
    let mut histogram = Histogram::new();
    histogram.record_many(0.1234567, 1_000_003);
    let value = Seconds::from_seconds(0.1234567);
    assert_eq!(histogram.percentiles(), Some(Percentiles::constant(value)));
    assert_eq!(histogram.share_up_to(value), Some(1.0));
    assert_eq!(histogram.share_up_to(value * 0.999), Some(0.0));
}

#[test]
fn nothing_has_no_quantile() {
    let mut histogram = Histogram::new();
    histogram.record_many(1.0, 0);
    histogram.record_line(1.0, 1.0, 0, 1);
    assert_eq!((histogram.mean(), histogram.quantile(0.5), histogram.share_up_to(Seconds::ZERO)), (None, None, None));
    assert_eq!(histogram, Histogram::default());
}

#[test]
fn no_number_breaks_it() {
    let mut histogram = Histogram::new();
    for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300, 1e-300, f64::MIN_POSITIVE] {
        histogram.record(seconds);
        histogram.record_line(seconds, seconds, 10, 1);
        histogram.record_line(1.0, seconds, u64::MAX, 1);
        histogram.record_many(seconds, u64::MAX);
    }
    assert!(histogram.held_bins() <= 60 * 128 + 64, "{}", histogram.held_bins());
    assert!(histogram.quantile(f64::NAN).is_none());
    for quantile in [-1.0, 0.0, 0.3, 0.999, 1.0, 7.0] {
        assert!(histogram.quantile(quantile).unwrap().is_finite());
    }
    assert!(histogram.mean().unwrap().is_finite());
}

#[test]
fn cleared_is_empty_and_usable() {
    let mut histogram = recorded(&[0.1, 0.2, 3.0]);
    let held = histogram.held_bins();
    histogram.clear();
    assert_eq!((&histogram, histogram.held_bins()), (&Histogram::new(), held));
    histogram.record(0.5);
    assert_eq!(histogram, recorded(&[0.5]));
}
