//! Poisson probabilities that keep their digits for large numbers.

use statrs::function::gamma::ln_gamma;
use std::f64::consts::PI;

/// Probability of `k` for a Poisson number of mean `mean`, without cancellation for large ones.
pub(super) fn probability(k: f64, mean: f64) -> f64 {
    if k < 20.0 {
        return (k * mean.ln() - mean - ln_gamma(k + 1.0)).exp();
    }
    // Stirling's series; the rest is below 1e-13.
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * k * k)) / (k * k)) / k;
    let ratio = mean / k;
    (-k * (ratio - 1.0 - ratio.ln()) - series).exp() / (2.0 * PI * k).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Poisson probabilities sum up to one, on both sides of the switch between formulas.
    #[test]
    fn poisson_probabilities_sum_to_one() {
        for mean in [0.5, 10.0, 19.5, 300.0] {
            let sum: f64 = (0..2000).map(|k| probability(f64::from(k), mean)).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{mean}: {sum}");
        }
    }
}
