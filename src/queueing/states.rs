//! The probabilities of how many are present.

use super::{BirthDeathSummary, QueueError, check};

/// Probability of every number present in a [`BirthDeath`](super::BirthDeath) chain.
#[derive(Clone, Debug, PartialEq)]
pub struct States {
    probabilities: Vec<f64>,
    summary: BirthDeathSummary,
}

impl States {
    pub(super) const fn new(probabilities: Vec<f64>, summary: BirthDeathSummary) -> Self {
        Self { probabilities, summary }
    }

    /// Probabilities of 0, 1, 2, ... present. Without a capacity, what is left out has a probability of at most [`BirthDeathSummary::tail`]; the list also
    /// ends where probabilities are less than any number.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// Means over the states.
    pub const fn summary(&self) -> &BirthDeathSummary {
        &self.summary
    }

    /// Probability that `number` are present.
    pub fn probability_of(&self, number: usize) -> f64 {
        self.probabilities.get(number).copied().unwrap_or(0.0)
    }

    /// Probability that more than `number` are present.
    pub fn exceeds(&self, number: usize) -> f64 {
        self.probabilities.iter().skip(number.saturating_add(1)).rev().sum::<f64>().min(1.0)
    }

    /// The number present that is not exceeded in a share `q` of the time.
    ///
    /// # Errors
    /// [`QueueError::Number`] unless `0 <= q < 1`.
    pub fn quantile(&self, q: f64) -> Result<usize, QueueError> {
        // From the end, where probabilities are small and their sum exact.
        let beyond = 1.0 - check::level(q)?;
        let mut sum = 0.0;
        for (number, probability) in self.probabilities.iter().enumerate().rev() {
            sum += probability;
            if sum > beyond {
                return Ok(number);
            }
        }
        Ok(0)
    }

    /// The buffer, for the next [`solve_into`](super::BirthDeath::solve_into).
    pub fn into_buffer(self) -> Vec<f64> {
        self.probabilities
    }
}
