//! How much of the start of a run is left out.

use super::confidence::widening;

/// Automatic truncation needs so many batches.
const FEWEST_BATCHES: usize = 10;
/// How many standard errors the start has to be away from the rest.
const SURE_DIFFERENCE: f64 = 3.0;
/// Deviations from the mean below this are rounding.
const ROUNDING: f64 = 1e-9;

/// How many of the first requests are left out, because they met a system that was still empty.
///
/// Requests are left out in whole batches, of which a run has up to 64: a few more than asked for may go. If nothing would be left,
/// nothing is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmUp {
    /// None: everything counts.
    None,
    /// As many as make the mean of the rest most certain, at most half.
    ///
    /// # Formula
    /// MSER: of the batch means `y[0..n]` of the time to the last token, those before `d` go, with `d <= n / 2` such that
    /// `sum((y[i] - mean(y[d..]))^2 for i >= d) / (n - d)^2` is least.
    ///
    /// They stay if their mean is within 3 standard errors of that of the rest, widened for correlation as in
    /// [`Estimate`](super::Estimate): the rule alone would drop busy moments as well. Where all requests arrive at once nothing goes, nor
    /// from fewer than ten batches.
    ///
    /// # References
    /// K. P. White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69 (1997) 323.
    #[default]
    Automatic,
    /// So many.
    Requests(u64),
}

/// How many of the first batch means to leave out so that the standard error of the rest is least.
pub(super) fn truncation(means: &[f64]) -> usize {
    let count = means.len();
    if count < FEWEST_BATCHES {
        return 0;
    }
    // Differences from a typical value lose fewer digits.
    let shift = means.iter().sum::<f64>() / count as f64;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for (from, mean) in means.iter().enumerate().rev() {
        let difference = mean - shift;
        sum += difference;
        squares += difference * difference;
        let left = (count - from) as f64;
        let spread = (squares - sum * sum / left).max(left * (shift * ROUNDING).powi(2));
        let error = spread / (left * left);
        if from <= count / 2 && error <= best.0 {
            best = (error, from);
        }
    }
    if differs(means, best.1) { best.1 } else { 0 }
}

/// Whether the first batches differ by more than chance from the rest: else a busy moment near the start would go, and with it a part of
/// the tail of the latencies.
fn differs(means: &[f64], first: usize) -> bool {
    let (dropped, rest) = means.split_at(first);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let expected = mean(rest);
    let variance = rest.iter().map(|value| (value - expected).powi(2)).sum::<f64>() / (rest.len() - 1) as f64;
    let error = (variance * (1.0 / dropped.len() as f64 + 1.0 / rest.len() as f64)).sqrt();
    !dropped.is_empty() && (mean(dropped) - expected).abs() > SURE_DIFFERENCE * error * widening(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise between -1 and 1 that has no pattern.
    fn noise(index: usize) -> f64 {
        (index as f64 * 0.754_877_666).fract() * 2.0 - 1.0
    }

    #[test]
    fn an_initial_transient_goes() {
        let means: Vec<f64> = (0..60).map(|i| 10.0 - 8.0 * (-(i as f64) / 4.0).exp() + 0.3 * noise(i)).collect();
        let dropped = truncation(&means);
        assert!((6..=25).contains(&dropped), "{dropped}");
    }

    #[test]
    fn nothing_goes_from_a_constant_or_from_few() {
        assert_eq!(truncation(&[0.1; 40]), 0);
        assert_eq!(truncation(&[1.0, 5.0, 5.0, 5.0]), 0);
        assert_eq!(truncation(&[]), 0);
    }

    #[test]
    fn at_most_half_goes() {
        let trend: Vec<f64> = (0..40).map(|i| f64::from(i) + noise(i as usize)).collect();
        assert!(truncation(&trend) <= 20);
    }
}
