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
pub fn largest_where(low: u64, high: u64, holds: impl FnMut(u64) -> bool) -> Option<u64> {
    largest_where_until(low, high, holds, |_, _| false).map(|(yes, _)| yes)
}

/// The same until the bounds are close enough: the largest number for which the condition is known to hold, and the smallest for which it is known not to (`high + 1` if
/// none is). The numbers that are tried do not depend on when it ends.
pub fn largest_where_until(
    low: u64,
    high: u64,
    mut holds: impl FnMut(u64) -> bool,
    mut enough: impl FnMut(u64, u64) -> bool,
) -> Option<(u64, u64)> {
    if low > high || !holds(low) {
        return None;
    }
    let (mut yes, mut step) = (low, 1_u64);
    let beyond = high.saturating_add(1);
    loop {
        if enough(yes, beyond) {
            return Some((yes, beyond));
        }
        let next = yes.saturating_add(step).min(high);
        if next == yes {
            return Some((high, beyond));
        }
        if !holds(next) {
            return Some(bisect(yes, next, holds, enough));
        }
        (yes, step) = (next, step.saturating_mul(2));
    }
}

/// Halves the distance between a number for which a condition holds and a larger one for which it does not until they are neighbours, or close enough.
///
/// ```
/// use llm_roofline::numeric::bisect;
///
/// assert_eq!(bisect(0, 1024, |n| n * n <= 90, |_, _| false), (9, 10));
/// assert_eq!(bisect(0, 1024, |n| n * n <= 90, |low, high| low / 8 == high / 8), (8, 12));
/// ```
pub fn bisect(
    mut yes: u64,
    mut no: u64,
    mut holds: impl FnMut(u64) -> bool,
    mut enough: impl FnMut(u64, u64) -> bool,
) -> (u64, u64) {
    while no.saturating_sub(yes) > 1 && !enough(yes, no) {
        let middle = yes + (no - yes) / 2;
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    (yes, no)
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
