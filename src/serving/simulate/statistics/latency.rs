//! A latency of all requests that count.

use super::Histogram;
use super::confidence::{Estimate, Section, Sections, levels};
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
    pub(super) fn of(parts: Vec<Histogram>, sections: Sections) -> Option<Self> {
        let parts = Parts::new(parts, sections);
        let quantile = |quantile: f64| parts.estimate(|of| of.quantile(quantile));
        let mean = parts.estimate(Histogram::mean)?;
        let (p50, p90, p95, p99) = (quantile(0.5)?, quantile(0.9)?, quantile(0.95)?, quantile(0.99)?);
        Some(Self { mean, p50, p90, p95, p99, histogram: parts.all })
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

/// The 99th percentile alone, of sections of one run.
pub(super) fn p99(parts: Vec<Histogram>) -> Option<Estimate<Seconds>> {
    Parts::new(parts, Sections::OfOneRun).estimate(|of| of.quantile(0.99))
}

/// Sections, short and long ones, and all of them together.
struct Parts {
    all: Histogram,
    levels: Vec<Vec<Histogram>>,
    sections: Sections,
}

impl Parts {
    fn new(parts: Vec<Histogram>, sections: Sections) -> Self {
        let mut all = Histogram::new();
        for part in &parts {
            all.merge(part);
        }
        Self { all, levels: levels(parts, sections, Histogram::merge), sections }
    }

    fn estimate(&self, statistic: impl Fn(&Histogram) -> Option<Seconds>) -> Option<Estimate<Seconds>> {
        let value = statistic(&self.all)?;
        let section =
            |part: &Histogram| Some(Section { value: statistic(part)?.as_seconds(), samples: part.count() as f64 });
        let half_width = self.sections.widest(value.as_seconds(), &self.levels, section);
        Some(Estimate { value, half_width: half_width.map(Seconds::from_seconds) })
    }
}
