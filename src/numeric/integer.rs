//! Bisection over integers.

/// The largest integer from `low` to `high` for which a condition holds that, once false, stays false; none if it is false at `low`.
///
/// About `2 log2(answer - low)` evaluations: steps of doubling length first, since the answer is often far below the upper end.
///
/// ```
/// use llm_roofline::numeric::largest_where;
///
/// assert_eq!(largest_where(1, 1_000_000, |n| n * n <= 90), Some(9));
/// assert_eq!(largest_where(10, 1_000_000, |n| n * n <= 90), None);
/// assert_eq!(largest_where(0, 5, |_| true), Some(5));
/// ```
pub fn largest_where(low: u64, high: u64, mut holds: impl FnMut(u64) -> bool) -> Option<u64> {
    if low > high || !holds(low) {
        return None;
    }
    let (mut yes, mut step) = (low, 1_u64);
    let mut no = loop {
        let next = yes.saturating_add(step).min(high);
        if next == yes {
            return Some(high);
        }
        if !holds(next) {
            break next;
        }
        (yes, step) = (next, step.saturating_mul(2));
    };
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    Some(yes)
}

/// The smallest integer from `low` to `high` for which a condition holds that, once true, stays true; none if it is false at `high`.
///
/// ```
/// use llm_roofline::numeric::smallest_where;
///
/// assert_eq!(smallest_where(1, 1_000_000, |n| n * n >= 90), Some(10));
/// assert_eq!(smallest_where(1, 9, |n| n * n >= 90), None);
/// ```
pub fn smallest_where(low: u64, high: u64, mut holds: impl FnMut(u64) -> bool) -> Option<u64> {
    if low > high {
        return None;
    }
    match largest_where(low, high, |n| !holds(n)) {
        None => Some(low),
        Some(last) if last == high => None,
        Some(last) => Some(last + 1),
    }
}

/// A count as a float: one instruction, where the full range of `u64` takes many. Counts are below 2^63.
#[inline]
pub(crate) const fn float(count: u64) -> f64 {
    count as i64 as f64
}
