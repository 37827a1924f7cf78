//! Requests that stand for all: drawn evenly instead of at random, so that percentiles need few of them and are the same every time.

use super::metrics::Percentiles;
use crate::units::Seconds;
use crate::workload::Slo;
use std::sync::LazyLock;

/// Directions in which requests differ.
const DIRECTIONS: usize = 8;
/// How many requests are drawn.
pub(super) const DRAWS: usize = 512;

/// Where one of the requests that stand for all lies in each direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Which situation it finds.
    pub(super) whom: f64,
    /// At which moment of a step it comes.
    pub(super) when: f64,
    /// How long prompts before it take: the share of those that take longer.
    pub(super) before: f64,
    /// How fast it gets its tokens, in standard deviations.
    pub(super) pace: f64,
    /// How long it waits for a place.
    pub(super) wait: f64,
    /// How many prompts share its step.
    pub(super) together: f64,
    /// Lengths, in two directions.
    pub(super) lengths: (f64, f64),
    /// Weight for everything until the first token, and for the pace.
    pub(super) weights: (f64, f64),
}

/// The places, which are always the same: points of the lattice of powers of the generalized golden ratio (M. Roberts, The unreasonable effectiveness of
/// quasirandom sequences, 2018), with more of them towards rare long times and weights that make up for it.
pub(super) fn places() -> &'static [Place] {
    static PLACES: LazyLock<Vec<Place>> = LazyLock::new(|| (0..DRAWS).map(place).collect());
    &PLACES
}

fn place(index: usize) -> Place {
    let [whom, when, before, pace, wait, together, prompt, output] = shares(index);
    let ((before, before_weight), (pace, pace_weight)) = (towards_one(before), towards_one(pace));
    let ((wait, wait_weight), (together, together_weight)) = (towards_one(wait), towards_one(together));
    Place {
        whom,
        when,
        before: 1.0 - before,
        pace: normal(pace),
        wait,
        together,
        lengths: (prompt, output),
        weights: (before_weight * wait_weight * together_weight, pace_weight),
    }
}

/// A share between 0 and 1 for each direction.
fn shares(index: usize) -> [f64; DIRECTIONS] {
    // The root of x^(d + 1) = x + 1 for d = 8.
    const RATIO: f64 = 1.085_070_245_491_450_8;
    let mut step = 1.0;
    [(); DIRECTIONS].map(|()| {
        step /= RATIO;
        (0.5 + step * (index as f64 + 1.0)).fract()
    })
}

/// The same with more points towards 1, and the weight that makes up for it.
fn towards_one(share: f64) -> (f64, f64) {
    let rest = 1.0 - share;
    (1.0 - rest * rest, 2.0 * rest)
}

/// One of the requests that stand for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Drawn {
    /// Weights for everything until the first token, and for the pace.
    pub(super) weights: (f64, f64),
    pub(super) ttft: f64,
    pub(super) tpot: f64,
    pub(super) e2e: f64,
}

/// Percentiles of the times to first token, times per token and end-to-end latencies; their means are known better than the requests tell.
pub(super) fn percentiles(drawn: &[Drawn], means: [Seconds; 3]) -> [Percentiles; 3] {
    let mut buffer = [(0.0, 0.0); MOST];
    [0, 1, 2].map(|metric| {
        for (sample, request) in buffer.iter_mut().zip(drawn) {
            let (start, pace) = request.weights;
            *sample = [(request.ttft, start), (request.tpot, pace), (request.e2e, start * pace)][metric];
        }
        weighted(&mut buffer[..drawn.len()], means[metric], true)
    })
}

/// Percentiles of weighted samples. Between two neighbours there are values on a line, if what is sampled is `continuous`.
pub(super) fn weighted(samples: &mut [(f64, f64)], mean: Seconds, continuous: bool) -> Percentiles {
    let [p50, p90, p95, p99] = quantiles(samples, continuous).map(Seconds::from_seconds);
    Percentiles { mean, p50, p90, p95, p99 }
}

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];
const BUCKETS: usize = 128;
/// Samples at most.
const MOST: usize = DRAWS + 64;

/// Values go into buckets of equal width, and only the buckets with a quantile are sorted.
fn quantiles(samples: &mut [(f64, f64)], continuous: bool) -> [f64; 4] {
    let (mut least, mut most, mut total) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
    for &(value, weight) in samples.iter() {
        if weight > 0.0 {
            (least, most, total) = (smaller(least, value), larger(most, value), total + weight);
        }
    }
    if most.partial_cmp(&least) != Some(std::cmp::Ordering::Greater) {
        return [most.max(0.0); 4];
    }
    let scale = BUCKETS as f64 / (most - least);
    let bucket = |value: f64| (((value - least) * scale) as usize).min(BUCKETS - 1);
    let mut buckets = [Bucket { weight: 0.0, largest: f64::NEG_INFINITY }; BUCKETS];
    for &(value, weight) in samples.iter() {
        if weight > 0.0 {
            let bucket = &mut buckets[bucket(value)];
            bucket.weight += weight;
            bucket.largest = larger(bucket.largest, value);
        }
    }
    let mut chosen = QUANTILES.map(|quantile| Chosen::of(quantile * total, &buckets));
    // The samples of the chosen buckets come first, in order.
    let mut wanted = [false; BUCKETS];
    chosen.iter().for_each(|chosen| wanted[chosen.bucket] = true);
    let mut count = 0;
    for index in 0..samples.len() {
        let (value, weight) = samples[index];
        if wanted[bucket(value)] && weight > 0.0 {
            samples.swap(count, index);
            count += 1;
        }
    }
    let inside = &mut samples[..count];
    inside.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    chosen.each_mut().map(|chosen| {
        let from = inside.partition_point(|sample| bucket(sample.0) < chosen.bucket);
        for &(value, weight) in &inside[from..] {
            if bucket(value) > chosen.bucket {
                break;
            }
            chosen.below += weight;
            if chosen.below >= chosen.wanted {
                let part = 1.0 - (chosen.below - chosen.wanted) / weight;
                let last = chosen.last;
                return if continuous && last.is_finite() { last + (value - last) * part } else { value };
            }
            chosen.last = value;
        }
        // Rounding may leave the bucket just below what is wanted.
        chosen.last
    })
}

/// Of two numbers the smaller: in one instruction, as nothing is `NaN`.
fn smaller(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// Of two numbers the larger.
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// Samples of about the same value.
#[derive(Clone, Copy)]
struct Bucket {
    weight: f64,
    largest: f64,
}

/// The bucket with a quantile.
struct Chosen {
    /// Weight below the quantile.
    wanted: f64,
    bucket: usize,
    /// Weight before the bucket, later before a sample in it.
    below: f64,
    /// The sample before.
    last: f64,
}

impl Chosen {
    fn of(wanted: f64, buckets: &[Bucket; BUCKETS]) -> Self {
        let (mut below, mut last) = (0.0, f64::NEG_INFINITY);
        for (index, bucket) in buckets.iter().enumerate() {
            if below + bucket.weight >= wanted {
                return Self { wanted, bucket: index, below, last };
            }
            below += bucket.weight;
            last = larger(last, bucket.largest);
        }
        Self { wanted, bucket: BUCKETS - 1, below: below - buckets[BUCKETS - 1].weight, last }
    }
}

/// Share of the drawn requests that meet all limits together.
pub(super) fn good_share(drawn: &[Drawn], slo: &Slo) -> f64 {
    good_share_between(drawn, slo, (0.0, 1.0))
}

/// The same of those whose lengths stand between two shares of the distribution: a class of a mixture; 0 of none.
pub(super) fn good_share_between(drawn: &[Drawn], slo: &Slo, (from, to): (f64, f64)) -> f64 {
    let within = |limit: Option<Seconds>, value: f64| limit.is_none_or(|limit| value <= limit.as_seconds());
    let good = |request: &Drawn| {
        within(slo.ttft, request.ttft)
            && within(slo.tpot, request.tpot)
            && within(slo.itl, request.tpot)
            && within(slo.e2e, request.e2e)
    };
    let (mut all, mut met) = (0.0, 0.0);
    for (request, place) in drawn.iter().zip(places()) {
        if (from..to).contains(&place.lengths.0) {
            let weight = request.weights.0 * request.weights.1;
            all += weight;
            met += if good(request) { weight } else { 0.0 };
        }
    }
    if all > 0.0 { met / all } else { 0.0 }
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
    /// Anything up to the longest.
    Uniform { longest: Seconds },
    /// Quantiles.
    Table(Box<[f64; TABLE]>),
}

impl Waits {
    pub(super) fn at(&self, share: f64) -> f64 {
        match self {
            Self::Steady { mean, deviation } => (mean.as_seconds() + deviation.as_seconds() * normal(share)).max(0.0),
            Self::Uniform { longest } => longest.as_seconds() * share,
            Self::Exponential { share: positive, mean } => {
                let rest = 1.0 - share;
                if rest >= *positive || *positive <= 0.0 {
                    0.0
                } else {
                    mean.as_seconds() / positive * (positive / rest).ln()
                }
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
    let value = t
        - (2.515_517 + 0.802_853 * t + 0.010_328 * t * t)
            / (1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t * t * t);
    if share < 0.5 { -value } else { value }
}
