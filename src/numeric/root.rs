//! Roots of continuous functions between two ends of different sign.

use super::NumericError;

/// How exact a root has to be: the interval that holds it is at most `relative * |root| + absolute` wide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// In parts of the root.
    pub relative: f64,
    /// In the unit of the root.
    pub absolute: f64,
}

impl Tolerance {
    /// All digits but the last two: for results that are differentiated or compared.
    pub const TIGHT: Self = Self { relative: 1e-14, absolute: 0.0 };
    /// Nine digits: for quantities that nobody measures better than to a percent.
    pub const LOOSE: Self = Self { relative: 1e-9, absolute: 0.0 };

    fn width(self, root: f64) -> f64 {
        2.0 * f64::EPSILON * root.abs() + self.relative.max(0.0) * root.abs() + self.absolute.max(0.0)
    }
}

/// Enough to halve any interval of floating-point numbers until its ends are neighbours.
const MOST_STEPS: usize = 2200;

/// The argument between `low` and `high` at which a continuous function is zero.
///
/// # Method
/// Chandrupatla's mixture of inverse quadratic interpolation and bisection: never slower than bisection by more than a few steps, and about
/// ten evaluations for smooth functions (T. R. Chandrupatla, Advances in Engineering Software 28 (1997) 145, doi:10.1016/S0965-9978(96)00051-8).
///
/// # Errors
/// [`NumericError::NoBracket`] if the function has the same sign at both ends, [`NumericError::NotFinite`] if a value is not finite,
/// [`NumericError::NoInterval`] if the ends are not two finite numbers in order.
///
/// ```
/// use llm_roofline::numeric::{Tolerance, find_root};
///
/// let root = find_root(|x| x * x - 2.0, 0.0, 2.0, Tolerance::TIGHT)?;
/// assert!((root - 2.0_f64.sqrt()).abs() < 1e-14);
/// # Ok::<(), llm_roofline::numeric::NumericError>(())
/// ```
pub fn find_root(
    mut f: impl FnMut(f64) -> f64,
    low: f64,
    high: f64,
    tolerance: Tolerance,
) -> Result<f64, NumericError> {
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(NumericError::NoInterval { low, high });
    }
    let mut value = |x: f64| finite(x, f(x));
    let (mut a, mut b) = (high, low);
    let (mut at_a, mut at_b) = (value(a)?, value(b)?);
    if at_a == 0.0 || at_b == 0.0 {
        return Ok(if at_b == 0.0 { b } else { a });
    }
    if at_a.signum() == at_b.signum() {
        return Err(NumericError::NoBracket { low, at_low: at_b, high, at_high: at_a });
    }
    let mut share = 0.5;
    for _ in 0..MOST_STEPS {
        // Rounding may not leave an interval whose ends differ by many orders of magnitude.
        let x = (a + share * (b - a)).clamp(a.min(b), a.max(b));
        let at_x = value(x)?;
        // `a` becomes the newest point, `b` the one on the other side, `c` the one before.
        let (c, at_c) = if at_x.signum() == at_a.signum() {
            (a, at_a)
        } else {
            let old = (b, at_b);
            (b, at_b) = (a, at_a);
            old
        };
        (a, at_a) = (x, at_x);
        let best = if at_a.abs() < at_b.abs() { a } else { b };
        let smallest = 0.5 * tolerance.width(best) / (b - a).abs();
        if at_a == 0.0 || smallest > 0.5 || !smallest.is_finite() {
            return Ok(best);
        }
        share = interpolated(a, b, c, at_a, at_b, at_c).unwrap_or(0.5).clamp(smallest, 1.0 - smallest);
    }
    Ok(if at_a.abs() < at_b.abs() { a } else { b })
}

/// Where inverse quadratic interpolation puts the root, as a share of the way from `a` to `b`, if it can be trusted.
fn interpolated(a: f64, b: f64, c: f64, at_a: f64, at_b: f64, at_c: f64) -> Option<f64> {
    let (position, height) = ((a - b) / (c - b), (at_a - at_b) / (at_c - at_b));
    if !(height * height < position && (1.0 - height) * (1.0 - height) < 1.0 - position) {
        return None;
    }
    let share = at_a / (at_b - at_a) * (at_c / (at_b - at_c))
        + (c - a) / (b - a) * (at_a / (at_c - at_a)) * (at_b / (at_c - at_b));
    share.is_finite().then_some(share)
}

fn finite(at: f64, value: f64) -> Result<f64, NumericError> {
    if value.is_finite() { Ok(value) } else { Err(NumericError::NotFinite { at, value }) }
}

/// The root of a monotone function somewhere above `low`: steps of doubling length, from `step` on, until the sign changes.
///
/// # Errors
/// As [`find_root`]; [`NumericError::NoBracket`] if the sign is the same up to 2^1000 steps.
///
/// ```
/// use llm_roofline::numeric::{Tolerance, find_root_above};
///
/// let root = find_root_above(|x| x - 1e6, 0.0, 1.0, Tolerance::TIGHT)?;
/// assert_eq!(root, 1e6);
/// # Ok::<(), llm_roofline::numeric::NumericError>(())
/// ```
pub fn find_root_above(
    mut f: impl FnMut(f64) -> f64,
    low: f64,
    step: f64,
    tolerance: Tolerance,
) -> Result<f64, NumericError> {
    if !(low.is_finite() && step.is_finite() && step > 0.0) {
        return Err(NumericError::NoInterval { low, high: low + step });
    }
    let at_low = finite(low, f(low))?;
    if at_low == 0.0 {
        return Ok(low);
    }
    let (mut from, mut length, mut last) = (low, step, (low, at_low));
    for _ in 0..1000 {
        let to = low + length;
        if !to.is_finite() {
            break;
        }
        let at_to = finite(to, f(to))?;
        if at_to == 0.0 || at_to.signum() != at_low.signum() {
            return find_root(f, from, to, tolerance);
        }
        (from, last) = (to, (to, at_to));
        length *= 2.0;
    }
    Err(NumericError::NoBracket { low, at_low, high: last.0, at_high: last.1 })
}
