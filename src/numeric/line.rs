//! The straight line through points, by least squares.

use super::NumericError;

/// A straight line and how well points lie on it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Line {
    /// Rise per unit of the argument.
    pub slope: f64,
    /// Value at zero.
    pub intercept: f64,
    /// Coefficient of determination: 1 if all points lie on the line, 0 if it explains nothing.
    pub r_squared: f64,
}

impl Line {
    /// The value at an argument.
    pub const fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// The line with the least sum of squared vertical distances from points `(x, y)`.
///
/// # Errors
/// [`NumericError::NoLine`] for points at fewer than two places, or numbers whose squares are not finite.
///
/// ```
/// use llm_roofline::numeric::fit_line;
///
/// let line = fit_line(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)])?;
/// assert_eq!((line.slope, line.intercept, line.r_squared), (2.0, 1.0, 1.0));
/// # Ok::<(), llm_roofline::numeric::NumericError>(())
/// ```
pub fn fit_line(points: &[(f64, f64)]) -> Result<Line, NumericError> {
    let count = points.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for point in points {
        let (dx, dy) = (point.0 - x, point.1 - y);
        (xx, xy, yy) = (xx + dx * dx, xy + dx * dy, yy + dy * dy);
    }
    let slope = xy / xx;
    let intercept = y - slope * x;
    let missed: f64 = points.iter().map(|point| (point.1 - intercept - slope * point.0).powi(2)).sum();
    // Points on a horizontal line leave nothing to explain.
    let r_squared = if yy == 0.0 { 1.0 } else { (1.0 - missed / yy).clamp(0.0, 1.0) };
    if !(slope.is_finite() && intercept.is_finite() && r_squared.is_finite()) {
        return Err(NumericError::NoLine { points: points.len(), distinct: distinct(points) });
    }
    Ok(Line { slope, intercept, r_squared })
}

fn distinct(points: &[(f64, f64)]) -> usize {
    let mut places: Vec<f64> = points.iter().map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places.len()
}
