//! Requests that stand for all: drawn evenly instead of at random, so that percentiles need few of them and are the same every time.

use super::metrics::Percentiles;
use crate::units::Seconds;
use crate::workload::Slo;

/// Directions in which requests differ.
pub(super) const DIRECTIONS: usize = 7;
/// How many requests are drawn.
pub(super) const DRAWS: usize = 512;

/// One of the requests that stand for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Drawn {
    pub(super) weight: f64,
    pub(super) ttft: f64,
    pub(super) tpot: f64,
    pub(super) e2e: f64,
}

/// A share between 0 and 1 for each direction: points of the lattice of powers of the generalized golden ratio (M. Roberts, The unreasonable
/// effectiveness of quasirandom sequences, 2018).
pub(super) fn shares(index: usize) -> [f64; DIRECTIONS] {
    // The root of x^(d + 1) = x + 1 for d = 7.
    const RATIO: f64 = 1.096_981_557_798_559_8;
    let mut step = 1.0;
    let mut shares = [0.0; DIRECTIONS];
    for share in &mut shares {
        step /= RATIO;
        *share = (0.5 + step * (index as f64 + 1.0)).fract();
    }
    shares
}

/// The same with more points towards 1, and the weight that makes up for it: rare long times need more points than common short ones.
pub(super) fn towards_one(share: f64) -> (f64, f64) {
    let rest = 1.0 - share;
    (1.0 - rest * rest, 2.0 * rest)
}

/// Percentiles of one number of the drawn requests; the mean is known better than they tell.
pub(super) fn percentiles(drawn: &[Drawn], mean: Seconds, of: impl Fn(&Drawn) -> f64) -> Percentiles {
    let mut samples = [(0.0, 0.0); DRAWS];
    for (sample, request) in samples.iter_mut().zip(drawn) {
        *sample = (of(request), request.weight);
    }
    weighted(&mut samples[..drawn.len()], mean)
}

/// Percentiles of weighted samples.
pub(super) fn weighted(samples: &mut [(f64, f64)], mean: Seconds) -> Percentiles {
    samples.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = samples.iter().map(|sample| sample.1).sum();
    let mut quantiles = [0.5, 0.9, 0.95, 0.99].into_iter().peekable();
    let mut found = [Seconds::ZERO; 4];
    let (mut passed, mut next) = (0.0, 0);
    let mut before = samples.first().copied().map_or((0.0, 0.0), |first| (first.0, 0.0));
    for &(value, weight) in samples.iter() {
        // Each sample stands at the middle of its weight, and the line between two of them for what is between.
        let middle = (passed + weight / 2.0) / total;
        while let Some(quantile) = quantiles.next_if(|quantile| *quantile <= middle) {
            let width = middle - before.1;
            let part = if width > 0.0 { (quantile - before.1) / width } else { 1.0 };
            found[next] = Seconds::from_seconds(before.0 + (value - before.0) * part);
            next += 1;
        }
        before = (value, middle);
        passed += weight;
    }
    for rest in &mut found[next..] {
        *rest = Seconds::from_seconds(before.0);
    }
    let [p50, p90, p95, p99] = found;
    Percentiles { mean, p50, p90, p95, p99 }
}

/// Share of the drawn requests that meet all limits together.
pub(super) fn good_share(drawn: &[Drawn], slo: &Slo) -> f64 {
    let within = |limit: Option<Seconds>, value: f64| limit.is_none_or(|limit| value <= limit.as_seconds());
    let good = |request: &&Drawn| {
        within(slo.ttft, request.ttft)
            && within(slo.tpot, request.tpot)
            && within(slo.itl, request.tpot)
            && within(slo.e2e, request.e2e)
    };
    let total: f64 = drawn.iter().map(|request| request.weight).sum();
    drawn.iter().filter(good).map(|request| request.weight).sum::<f64>() / total
}

/// Entries of a table of quantiles.
pub(super) const TABLE: usize = 64;
/// The share at which an entry of such a table stands: close together towards 1.
pub(super) fn table_share(index: usize) -> f64 {
    let rest = 1.0 - (index as f64 + 0.5) / TABLE as f64;
    1.0 - rest * rest
}

/// Waits for a place.
pub(super) enum Waits {
    /// Always about the same.
    Steady { mean: Seconds, deviation: Seconds },
    /// None, or an exponential one.
    Exponential { share: f64, mean: Seconds },
    /// Quantiles.
    Table(Box<[f64; TABLE]>),
}

impl Waits {
    pub(super) fn at(&self, share: f64) -> f64 {
        match self {
            Self::Steady { mean, deviation } => (mean.as_seconds() + deviation.as_seconds() * normal(share)).max(0.0),
            Self::Exponential { share: positive, mean } => {
                let rest = 1.0 - share;
                if rest >= *positive || *positive <= 0.0 { 0.0 } else { mean.as_seconds() / positive * (positive / rest).ln() }
            }
            Self::Table(table) => {
                let position = (1.0 - (1.0 - share).sqrt()) * TABLE as f64 - 0.5;
                let below = position.floor().clamp(0.0, (TABLE - 2) as f64);
                let (low, high) = (table[below as usize], table[below as usize + 1]);
                (low + (high - low) * (position - below)).max(0.0)
            }
        }
    }
}

/// The quantile of the standard normal distribution, within 5e-4 (C. Hastings, Approximations for Digital Computers, 1955, sheet 68).
pub(super) fn normal(share: f64) -> f64 {
    let tail = share.min(1.0 - share).max(1e-12);
    let t = (-2.0 * tail.ln()).sqrt();
    let value =
        t - (2.515_517 + 0.802_853 * t + 0.010_328 * t * t) / (1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t * t * t);
    if share < 0.5 { -value } else { value }
}
