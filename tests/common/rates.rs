//! Rates in tokens per second against published ones.

/// Fails where a predicted rate is further from a measured one than the tolerance, as a share of it.
pub fn assert_within(predicted: f64, measured: f64, tolerance: f64, what: &str) {
    let error = predicted / measured - 1.0;
    assert!(
        error.abs() < tolerance,
        "{what}: {predicted:.2} against {measured} tokens per second, {:+.0} %",
        error * 100.0
    );
}
