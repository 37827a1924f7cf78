//! Distributions of lengths as they were observed.

use super::distribution::MAX_TOKENS;
use super::error::WorkloadError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An observed distribution, as points of its cumulative distribution.
///
/// Between two points the lengths are equally likely: those in `(t1, t2]` share the probability `c2 - c1`. The first point's probability lies
/// on its own length.
///
/// ```
/// use llm_roofline::workload::{Empirical, LengthDistribution};
///
/// // Half of the requests have 1 to 100 tokens, half 101 to 300.
/// let observed = Empirical::from_cumulative(vec![(0, 0.0), (100, 0.5), (300, 1.0)])?;
/// assert_eq!(LengthDistribution::from(observed).mean(), 0.5 * 50.5 + 0.5 * 200.5);
/// let counted = Empirical::from_samples(&[5, 20, 20, 35])?;
/// assert_eq!(LengthDistribution::from(counted).mean(), 20.0);
/// # Ok::<(), llm_roofline::workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, f64)>", into = "Vec<(u64, f64)>")]
pub struct Empirical {
    points: Arc<[(u64, f64)]>,
}

impl Empirical {
    /// A distribution of which the cumulative probabilities are known at some lengths, both rising.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without points, [`WorkloadError::Cumulative`] for a point whose length or probability is not above (for the
    /// probability: not below) the one before, or a last probability that differs from 1 by more than one in a million (less is set to 1).
    /// [`WorkloadError::TooLong`] for lengths beyond 2^40.
    pub fn from_cumulative(mut points: Vec<(u64, f64)>) -> Result<Self, WorkloadError> {
        let last = points.len().wrapping_sub(1);
        let mut before: Option<(u64, f64)> = None;
        for (index, &(tokens, cumulative)) in points.iter().enumerate() {
            let wrong = |expected| WorkloadError::Cumulative { index, tokens, cumulative, expected };
            if tokens > MAX_TOKENS {
                return Err(WorkloadError::TooLong { what: "length", tokens, limit: MAX_TOKENS });
            }
            if !(0.0..=1.0 + 1e-6).contains(&cumulative) {
                return Err(wrong("a probability from 0 to 1 expected"));
            }
            if before.is_some_and(|(shorter, _)| tokens <= shorter) {
                return Err(wrong("more tokens than at the point before expected"));
            }
            if before.is_some_and(|(_, less)| cumulative < less) {
                return Err(wrong("no less probability than at the point before expected"));
            }
            if index == last && (cumulative - 1.0).abs() > 1e-6 {
                return Err(wrong("1 expected at the last point"));
            }
            before = Some((tokens, cumulative));
        }
        let Some(end) = points.last_mut() else {
            return Err(WorkloadError::TooFew { what: "points of a cumulative distribution", count: 0, limit: 1 });
        };
        end.1 = 1.0;
        for point in &mut points {
            point.1 = point.1.min(1.0);
        }
        Ok(Self { points: points.into() })
    }

    /// The distribution of counted lengths: each sample is as likely as any other.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without samples, [`WorkloadError::TooLong`] for lengths beyond 2^40.
    pub fn from_samples(samples: &[u64]) -> Result<Self, WorkloadError> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let Some(&longest) = sorted.last() else {
            return Err(WorkloadError::TooFew { what: "samples of a length", count: 0, limit: 1 });
        };
        if longest > MAX_TOKENS {
            return Err(WorkloadError::TooLong { what: "length", tokens: longest, limit: MAX_TOKENS });
        }
        let mut points: Vec<(u64, f64)> = Vec::new();
        let mut seen = 0;
        for equal in sorted.chunk_by(|a, b| a == b) {
            let tokens = equal[0];
            let below = points.last().map(|&(tokens, cumulative)| (tokens + 1, cumulative));
            if let Some((_, cumulative)) = below.filter(|(free, _)| *free < tokens) {
                points.push((tokens - 1, cumulative));
            }
            seen += equal.len();
            points.push((tokens, seen as f64 / sorted.len() as f64));
        }
        Ok(Self { points: points.into() })
    }

    /// The points: length in tokens, probability that a request has no more.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// Stretches of equally likely lengths: shortest, longest, probability. Those without probability are left out.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        let first = self.points.iter().take(1).map(|&(tokens, cumulative)| (tokens, tokens, cumulative));
        let others = self.points.windows(2).map(|pair| (pair[0].0 + 1, pair[1].0, pair[1].1 - pair[0].1));
        first.chain(others).filter(|(_, _, probability)| *probability > 0.0)
    }

    /// The smallest length whose cumulative probability reaches `u`.
    pub(super) fn quantile(&self, u: f64) -> u64 {
        let index = self.points.partition_point(|&(_, cumulative)| cumulative < u.max(f64::MIN_POSITIVE));
        let (tokens, cumulative) = self.points[index.min(self.points.len() - 1)];
        let Some(&(shorter, less)) = index.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return tokens;
        };
        let share = ((u - less) / (cumulative - less)).clamp(0.0, 1.0);
        let steps = (share * (tokens - shorter) as f64 - 1e-9).ceil().max(1.0);
        (shorter + steps as u64).min(tokens)
    }
}

impl TryFrom<Vec<(u64, f64)>> for Empirical {
    type Error = WorkloadError;

    fn try_from(points: Vec<(u64, f64)>) -> Result<Self, WorkloadError> {
        Self::from_cumulative(points)
    }
}

impl From<Empirical> for Vec<(u64, f64)> {
    fn from(empirical: Empirical) -> Self {
        empirical.points.to_vec()
    }
}
