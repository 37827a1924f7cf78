//! A latency of all requests that count.

use super::Histogram;
use super::confidence::{Estimate, Section, Sections};
use crate::serving::metrics::Percentiles;
use crate::units::Seconds;

/// A latency of all requests that count: its histogram, and mean and percentiles with their intervals.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Latency {
    /// Every duration.
    pub histogram: Histogram,
    /// Arithmetic mean.
    pub mean: Estimate<Seconds>,
    /// Median.
    pub p50: Estimate<Seconds>,
    /// Nine of ten are not above.
    pub p90: Estimate<Seconds>,
    /// 19 of 20 are not above.
    pub p95: Estimate<Seconds>,
    /// 99 of 100 are not above.
    pub p99: Estimate<Seconds>,
}

impl Latency {
    /// Of the histograms of sections; none if they are empty.
    pub(super) fn of(parts: &[Histogram], sections: Sections) -> Option<Self> {
        let mut histogram = Histogram::new();
        for part in parts {
            histogram.merge(part);
        }
        let estimate = |statistic: &dyn Fn(&Histogram) -> Option<Seconds>| {
            let value = statistic(&histogram)?;
            Some(Estimate { value, half_width: half_width(value, parts, statistic, sections) })
        };
        let quantile = |quantile: f64| estimate(&move |of| of.quantile(quantile));
        let mean = estimate(&Histogram::mean)?;
        let (p50, p90, p95, p99) = (quantile(0.5)?, quantile(0.9)?, quantile(0.95)?, quantile(0.99)?);
        Some(Self { mean, p50, p90, p95, p99, histogram })
    }

    /// The values without their intervals.
    pub const fn percentiles(&self) -> Percentiles {
        Percentiles {
            mean: self.mean.value,
            p50: self.p50.value,
            p90: self.p90.value,
            p95: self.p95.value,
            p99: self.p99.value,
        }
    }
}

/// The 99th percentile alone.
pub(super) fn p99(parts: &[Histogram]) -> Option<Estimate<Seconds>> {
    let mut all = Histogram::new();
    for part in parts {
        all.merge(part);
    }
    let statistic = |of: &Histogram| of.quantile(0.99);
    let value = statistic(&all)?;
    Some(Estimate { value, half_width: half_width(value, parts, &statistic, Sections::OfOneRun) })
}

fn half_width(
    value: Seconds,
    parts: &[Histogram],
    statistic: &dyn Fn(&Histogram) -> Option<Seconds>,
    sections: Sections,
) -> Option<Seconds> {
    let section =
        |part: &Histogram| Some(Section { value: statistic(part)?.as_seconds(), samples: part.count() as f64 });
    let found: Vec<Section> = parts.iter().filter_map(section).collect();
    sections.half_width(value.as_seconds(), &found).map(Seconds::from_seconds)
}
