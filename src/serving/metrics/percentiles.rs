//! Mean and percentiles of a latency.

use super::MetricsError;
use crate::units::Seconds;
use serde::{Deserialize, Serialize};

/// The quantiles that are reported beside the mean.
const QUANTILES: [f64; 4] = [0.50, 0.90, 0.95, 0.99];

/// How a percentile is read off sorted samples `x[0] <= ... <= x[n-1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PercentileRule {
    /// Between neighbours: position `p (n - 1)`, as `numpy.percentile` does if not told otherwise.
    Linear,
    /// `x[floor(p n)]`, as MLPerf's LoadGen.
    OrderStatistic,
    /// The first sample below or at which there is a share of at least `p`: `x[ceil(p n) - 1]`.
    Cumulative,
}

impl PercentileRule {
    /// Position below, and how far on towards the next one.
    fn position(self, quantile: f64, samples: u64) -> (u64, f64) {
        let last = samples.saturating_sub(1);
        let n = samples as f64;
        match self {
            Self::Linear => {
                let at = quantile * last as f64;
                ((at.floor() as u64).min(last), at.fract())
            }
            Self::OrderStatistic => (((quantile * n).floor() as u64).min(last), 0.0),
            // 0.95 * 20 is above 19 in floating point, and its ceiling 20.
            Self::Cumulative => {
                (((quantile * n * (1.0 - 4.0 * f64::EPSILON)).ceil() as u64).clamp(1, samples) - 1, 0.0)
            }
        }
    }
}

/// Mean and percentiles of a latency. In JSON and TOML: `{ mean, p50, p90, p95, p99 }` in milliseconds.
///
/// ```
/// use llm_roofline::serving::metrics::{PercentileRule, Percentiles};
/// use llm_roofline::units::Seconds;
/// let samples = || (1..=100).map(|i| Seconds::from_millis(f64::from(i)));
/// let p99 = |rule| Percentiles::of(samples(), rule).map(|found| found.p99.as_millis());
/// assert!((p99(PercentileRule::Linear)? - 99.01).abs() < 1e-9); // numpy.percentile(range(1, 101), 99)
/// assert_eq!(p99(PercentileRule::OrderStatistic)?, 100.0);
/// assert_eq!(p99(PercentileRule::Cumulative)?, 99.0);
/// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    /// Arithmetic mean.
    #[serde(with = "millis")]
    pub mean: Seconds,
    /// Median.
    #[serde(with = "millis")]
    pub p50: Seconds,
    /// Nine of ten are not above.
    #[serde(with = "millis")]
    pub p90: Seconds,
    /// 19 of 20 are not above.
    #[serde(with = "millis")]
    pub p95: Seconds,
    /// 99 of 100 are not above.
    #[serde(with = "millis")]
    pub p99: Seconds,
}

impl Percentiles {
    /// Of samples, each of which counts once. See [`Percentiles::of_slice`].
    ///
    /// # Errors
    /// [`MetricsError::NoSamples`]; [`MetricsError::NotADuration`] for a sample that is negative or not finite.
    pub fn of(samples: impl IntoIterator<Item = Seconds>, rule: PercentileRule) -> Result<Self, MetricsError> {
        Self::of_slice(&mut samples.into_iter().collect::<Vec<_>>(), rule)
    }

    /// Of samples in place, which puts them into another order. Takes time proportional to their number, and no memory.
    ///
    /// # Errors
    /// As [`Percentiles::of`].
    pub fn of_slice(samples: &mut [Seconds], rule: PercentileRule) -> Result<Self, MetricsError> {
        let mut sum = 0.0;
        for &sample in &*samples {
            sum += checked(sample)?;
        }
        let count = samples.len() as u64;
        if count == 0 {
            return Err(MetricsError::NoSamples);
        }
        let mut unsorted = 0;
        let quantiles = QUANTILES.map(|quantile| {
            let (index, fraction) = rule.position(quantile, count);
            // What is below an earlier quantile stays there: only the rest is looked at again.
            let index = index as usize;
            let tail = &mut samples[unsorted..];
            let (_, &mut below, above) =
                tail.select_nth_unstable_by(index - unsorted, |a, b| a.as_seconds().total_cmp(&b.as_seconds()));
            let next = if fraction > 0.0 { above.iter().copied().reduce(Seconds::min) } else { None };
            unsorted = index;
            between(below, next, fraction)
        });
        Self::with_mean(sum / count as f64, quantiles)
    }

    /// Of samples that count several times, as if each were repeated so often. Takes time proportional to the number of different
    /// samples.
    ///
    /// ```
    /// use llm_roofline::serving::metrics::{PercentileRule, Percentiles};
    /// use llm_roofline::units::Seconds;
    /// let gaps = [(Seconds::from_millis(10.0), 10), (Seconds::from_millis(40.0), 100)];
    /// let itl = Percentiles::weighted(gaps, PercentileRule::Linear)?;
    /// assert_eq!((itl.mean.to_string(), itl.p50.to_string()), ("37.3 ms".into(), "40.0 ms".into()));
    /// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Percentiles::of`]; samples that count 0 times are none.
    pub fn weighted(
        samples: impl IntoIterator<Item = (Seconds, u64)>,
        rule: PercentileRule,
    ) -> Result<Self, MetricsError> {
        let mut samples: Vec<(Seconds, u64)> = samples.into_iter().filter(|&(_, count)| count > 0).collect();
        let (mut sum, mut weight, mut total) = (0.0, 0.0, 0_u64);
        for &(sample, count) in &samples {
            sum += checked(sample)? * count as f64;
            weight += count as f64;
            total = total.saturating_add(count);
        }
        if total == 0 {
            return Err(MetricsError::NoSamples);
        }
        let mut tail = samples.as_mut_slice();
        let mut before = 0; // how often the samples count that are left of the tail
        let quantiles = QUANTILES.map(|quantile| {
            let (index, fraction) = rule.position(quantile, total);
            let (at, below) = select_weighted(tail, index - before);
            before += below;
            tail = &mut std::mem::take(&mut tail)[at..];
            let (value, count) = tail[0];
            let repeats = index + 1 < before.saturating_add(count);
            let next = if fraction > 0.0 && !repeats {
                tail[1..].iter().map(|next| next.0).reduce(Seconds::min)
            } else {
                None
            };
            between(value, next, fraction)
        });
        Self::with_mean(sum / weight, quantiles)
    }

    /// Of a distribution that is known: its mean, and a function that gives its quantile at 0.5, 0.9, 0.95 and 0.99.
    ///
    /// # Errors
    /// [`MetricsError::NotADuration`] where the mean or a quantile is negative or not finite.
    pub fn from_quantiles(mean: Seconds, mut quantile: impl FnMut(f64) -> Seconds) -> Result<Self, MetricsError> {
        let mut quantiles = [Seconds::ZERO; QUANTILES.len()];
        for (out, &at) in quantiles.iter_mut().zip(&QUANTILES) {
            *out = quantile(at);
            checked(*out)?;
        }
        Self::with_mean(mean.as_seconds(), quantiles)
    }

    /// Of something that is always the same.
    pub const fn constant(value: Seconds) -> Self {
        Self { mean: value, p50: value, p90: value, p95: value, p99: value }
    }

    /// The percentile at one of the reported quantiles: 0.5, 0.9, 0.95, 0.99.
    pub fn at(&self, quantile: f64) -> Option<Seconds> {
        let index = QUANTILES.iter().position(|&known| (known - quantile).abs() < 1e-9)?;
        Some([self.p50, self.p90, self.p95, self.p99][index])
    }

    /// The mean of huge samples may overflow.
    fn with_mean(mean: f64, [p50, p90, p95, p99]: [Seconds; 4]) -> Result<Self, MetricsError> {
        let mean = Seconds::from_seconds(mean);
        checked(mean)?;
        Ok(Self { mean, p50, p90, p95, p99 })
    }

    /// The numbers with their names, in the order of the fields.
    pub fn named(&self) -> [(&'static str, Seconds); 5] {
        [("mean", self.mean), ("p50", self.p50), ("p90", self.p90), ("p95", self.p95), ("p99", self.p99)]
    }
}

fn checked(sample: Seconds) -> Result<f64, MetricsError> {
    let seconds = sample.as_seconds();
    if seconds.is_finite() && seconds >= 0.0 {
        Ok(seconds)
    } else {
        Err(MetricsError::NotADuration { what: "a sample", seconds })
    }
}

/// numpy's interpolation, which never leaves the two neighbours.
fn between(below: Seconds, next: Option<Seconds>, fraction: f64) -> Seconds {
    let next = next.unwrap_or(below);
    let width = next - below;
    let value = if fraction < 0.5 { below + width * fraction } else { next - width * (1.0 - fraction) };
    value.max(below).min(next)
}

/// Puts the sample into place that stands at a position of the sorted list in which each is repeated as often as it counts: what is left
/// of it is not larger, what is right of it not smaller. Gives its index, and how often the samples left of it count.
///
/// Halves the list until one sample is left.
fn select_weighted(samples: &mut [(Seconds, u64)], position: u64) -> (usize, u64) {
    let (mut start, mut end, mut before) = (0, samples.len(), 0_u64);
    while end - start > 1 {
        let half = (end - start) / 2;
        let part = &mut samples[start..end];
        part.select_nth_unstable_by(half, |a, b| a.0.as_seconds().total_cmp(&b.0.as_seconds()));
        let below = part[..half].iter().fold(before, |sum, (_, count)| sum.saturating_add(*count));
        if position < below {
            end = start + half;
        } else {
            (start, before) = (start + half, below);
        }
    }
    (start, before)
}

mod millis {
    use crate::units::Seconds;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Seconds, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = value.as_millis();
        if millis.is_finite() { serializer.serialize_some(&millis) } else { serializer.serialize_none() }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        let millis = f64::deserialize(deserializer)?;
        if millis.is_finite() && millis >= 0.0 {
            Ok(Seconds::from_millis(millis))
        } else {
            Err(serde::de::Error::custom(format!("{millis} ms is no duration: expected a finite number from 0")))
        }
    }
}
