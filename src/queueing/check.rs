//! Which numbers are taken: a range wide enough for any unit of time, and narrow enough that no product overflows.

use super::QueueError;

/// The smallest and the largest rate or time.
const RANGE: (f64, f64) = (1e-90, 1e90);
/// The largest squared coefficient of variation.
const SCV_LIMIT: f64 = 1e12;

/// A rate or a time that is not zero.
pub(super) fn positive(what: &'static str, value: f64) -> Result<f64, QueueError> {
    within(what, value, RANGE.0, RANGE.1)
}

/// A time, a rate or a load that may be zero.
pub(super) fn not_negative(what: &'static str, value: f64) -> Result<f64, QueueError> {
    within(what, value, 0.0, RANGE.1)
}

/// A squared coefficient of variation.
pub(super) fn scv(what: &'static str, value: f64) -> Result<f64, QueueError> {
    within(what, value, 0.0, SCV_LIMIT)
}

/// A number from `least` to `most`; not a number is in no range.
pub(super) fn within(what: &'static str, value: f64, least: f64, most: f64) -> Result<f64, QueueError> {
    if value >= least && value <= most { Ok(value) } else { Err(QueueError::Number { what, value, least, most }) }
}

/// The level of a quantile: from 0 to below 1.
pub(super) fn level(q: f64) -> Result<f64, QueueError> {
    within("level of the quantile", q, 0.0, 1.0_f64.next_down())
}

/// A count from `least` to `most`.
pub(super) fn count(what: &'static str, value: u64, least: u64, most: u64) -> Result<u64, QueueError> {
    if (least..=most).contains(&value) { Ok(value) } else { Err(QueueError::Count { what, value, least, most }) }
}

/// A load below 1.
pub(super) fn stable(rho: f64) -> Result<f64, QueueError> {
    if rho < 1.0 { Ok(rho) } else { Err(QueueError::Unstable { rho }) }
}
