//! Distributions of prompt and output lengths.

use super::cells::{Cell, classes};
use super::empirical::Empirical;
use super::error::{WorkloadError, checked, positive};
use serde::{Deserialize, Serialize};
use statrs::function::erf::{erfc, erfc_inv};
use std::f64::consts::SQRT_2;

/// The longest length that is reckoned with, in tokens: a trillion, so that cubes stay exact enough.
pub(super) const MAX_TOKENS: u64 = 1 << 40;

/// Cells per standard deviation into which a bell curve is cut where its whole numbers lie closer than that.
const CELLS_PER_DEVIATION: f64 = 256.0;

/// How many cells equally likely lengths are cut into at most.
const CELLS_PER_STRETCH: u64 = 4096;

/// Standard deviations beyond which a bell curve has no weight that a double could tell (1e-19).
const REACH: f64 = 9.0;

/// How long prompts, or outputs, are: whole numbers of tokens.
///
/// ```
/// use llm_roofline::workload::LengthDistribution;
///
/// // `vllm bench serve --random-input-len 1000 --random-range-ratio 0.2`
/// let prompts = LengthDistribution::uniform_ratio(1000, 0.2)?;
/// assert_eq!(prompts.bounds(), (800, 1200));
/// assert_eq!(prompts.mean(), 1000.0);
/// // Chat answers: 200 tokens on average with a long tail.
/// let answers = LengthDistribution::log_normal(200.0, 250.0, 1, 4096)?;
/// assert_eq!(format!("{:.0}", answers.mean()), "200");
/// assert_eq!(answers.quantile(0.5), 125);
/// assert!(LengthDistribution::uniform(20, 10).is_err());
/// # Ok::<(), llm_roofline::workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "RawDistribution")]
#[non_exhaustive]
pub enum LengthDistribution {
    /// Always the same number of tokens.
    Fixed(u64),
    /// Any number from `low` to `high`, both included, equally likely. Made by [`uniform`](Self::uniform).
    #[non_exhaustive]
    Uniform {
        /// Shortest length.
        low: u64,
        /// Longest length.
        high: u64,
    },
    /// Normally distributed, rounded, and clipped to `low..=high`. Made by [`normal`](Self::normal).
    #[non_exhaustive]
    Normal {
        /// Mean before clipping.
        mean: f64,
        /// Standard deviation before clipping.
        deviation: f64,
        /// Shortest length.
        low: u64,
        /// Longest length.
        high: u64,
    },
    /// Log-normally distributed, rounded, and clipped to `low..=high`. Made by [`log_normal`](Self::log_normal).
    #[non_exhaustive]
    LogNormal {
        /// Mean before clipping, of the lengths and not of their logarithms.
        mean: f64,
        /// Standard deviation before clipping, of the lengths and not of their logarithms.
        deviation: f64,
        /// Shortest length.
        low: u64,
        /// Longest length.
        high: u64,
    },
    /// As observed.
    Empirical(Empirical),
}

impl LengthDistribution {
    /// Equally likely lengths from `low` to `high`, both included.
    ///
    /// # Errors
    /// [`WorkloadError::Bounds`] if `low` is above `high`, [`WorkloadError::TooLong`] beyond 2^40.
    pub fn uniform(low: u64, high: u64) -> Result<Self, WorkloadError> {
        check_bounds(low, high)?;
        Ok(Self::Uniform { low, high })
    }

    /// Lengths around a mean as vLLM's random dataset draws them: equally likely from `floor(mean (1 - ratio))`, but at least 1, to
    /// `ceil(mean (1 + ratio))` (`--random-input-len`, `--random-output-len`, `--random-range-ratio` in recent versions).
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a ratio that is not in 0 to 1, 1 excluded; [`WorkloadError::TooLong`] beyond 2^40.
    pub fn uniform_ratio(mean: u64, range_ratio: f64) -> Result<Self, WorkloadError> {
        checked("range ratio", range_ratio, "at least 0 and below 1", (0.0..1.0).contains(&range_ratio))?;
        let low = (mean as f64 * (1.0 - range_ratio)).floor().max(1.0) as u64;
        Self::uniform(low, ((mean as f64 * (1.0 + range_ratio)).ceil() as u64).max(low))
    }

    /// Lengths from `ratio` times the nominal length up to it, equally likely: what earlier versions of vLLM's `benchmark_serving.py` and
    /// SGLang's `bench_serving` draw (`--random-range-ratio`; 1 is always the nominal length, 0 is 1 to nominal).
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a ratio that is not in 0 to 1; [`WorkloadError::TooShort`] for a nominal length of 0,
    /// [`WorkloadError::TooLong`] beyond 2^40.
    pub fn uniform_below(nominal: u64, ratio: f64) -> Result<Self, WorkloadError> {
        checked("range ratio", ratio, "from 0 to 1", (0.0..=1.0).contains(&ratio))?;
        if nominal == 0 {
            return Err(WorkloadError::TooShort { what: "nominal length", tokens: 0, limit: 1 });
        }
        Self::uniform(((nominal as f64 * ratio) as u64).max(1), nominal)
    }

    /// Normally distributed lengths, rounded to the nearest whole number and clipped to `low..=high` (as GuideLLM does with `prompt_tokens`,
    /// `prompt_tokens_stdev`, `prompt_tokens_min` and `prompt_tokens_max`).
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a mean that is not a number or a deviation that is not above 0; the bounds as in
    /// [`uniform`](Self::uniform).
    pub fn normal(mean: f64, deviation: f64, low: u64, high: u64) -> Result<Self, WorkloadError> {
        checked("mean length", mean, "a number of tokens of at most 2^40", mean.abs() <= MAX_TOKENS as f64)?;
        check_deviation(deviation)?;
        check_bounds(low, high)?;
        Ok(Self::Normal { mean, deviation, low, high })
    }

    /// Log-normally distributed lengths, rounded to the nearest whole number and clipped to `low..=high`.
    ///
    /// # Formula
    /// The logarithm is normal with variance `s^2 = ln(1 + (deviation/mean)^2)` and mean `ln(mean) - s^2/2`.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a mean or a deviation that is not above 0; the bounds as in [`uniform`](Self::uniform).
    pub fn log_normal(mean: f64, deviation: f64, low: u64, high: u64) -> Result<Self, WorkloadError> {
        positive("mean length", mean, "a number of tokens above 0")?;
        check_deviation(deviation)?;
        check_bounds(low, high)?;
        checked("deviation over mean", deviation / mean, "below a million", deviation / mean < 1e6)?;
        checked(
            "mean length",
            mean,
            "above a millionth token and at most 2^40",
            (1e-6..=MAX_TOKENS as f64).contains(&mean),
        )?;
        Ok(Self::LogNormal { mean, deviation, low, high })
    }

    /// The shortest and the longest possible length, in tokens.
    pub fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Fixed(tokens) => (*tokens, *tokens),
            Self::Uniform { low, high } | Self::Normal { low, high, .. } | Self::LogNormal { low, high, .. } => {
                (*low, *high)
            }
            Self::Empirical(observed) => {
                let low = observed.stretches().next().map_or(0, |(low, _, _)| low);
                (low, observed.stretches().last().map_or(low, |(_, high, _)| high))
            }
        }
    }

    /// The mean length as sampled: rounded and clipped.
    pub fn mean(&self) -> f64 {
        self.whole().mean
    }

    /// The mean of the squared length as sampled: rounded and clipped.
    pub fn mean_square(&self) -> f64 {
        let whole = self.whole();
        whole.mean * whole.mean + whole.variance
    }

    /// The standard deviation as sampled: rounded and clipped.
    pub fn deviation(&self) -> f64 {
        self.whole().variance.max(0.0).sqrt()
    }

    /// The smallest length that a share `u` of the requests does not exceed. A share below 0 counts as 0, one above 1 or that is no number as 1.
    pub fn quantile(&self, u: f64) -> u64 {
        let u = if u <= 1.0 { u.max(0.0) } else { 1.0 };
        match self {
            Self::Fixed(tokens) => *tokens,
            Self::Uniform { low, high } => {
                let count = (high - low) as f64 + 1.0;
                low + ((u * count - 1e-9).ceil().clamp(1.0, count) as u64 - 1)
            }
            Self::Empirical(observed) => observed.quantile(u),
            Self::Normal { .. } | Self::LogNormal { .. } => {
                let (low, high) = self.bounds();
                // A float becomes the nearest whole number in range; none is out of range for `as`.
                (self.bell().at(-SQRT_2 * erfc_inv(2.0 * u)).round() as u64).clamp(low, high)
            }
        }
    }

    /// Lengths that stand for `n` equally likely classes of requests, in tokens: the mean of each class, shortest first. Their mean is
    /// [`mean`](Self::mean). None for `n = 0`.
    pub fn points(&self, n: usize) -> Vec<f64> {
        if n == 0 {
            return Vec::new();
        }
        classes(&self.cells(), n).iter().map(|class| class.mean).collect()
    }

    /// A random length.
    #[cfg(feature = "random")]
    pub fn sample<R: rand::Rng + ?Sized>(&self, rng: &mut R) -> u64 {
        if let Self::Fixed(tokens) = self { *tokens } else { self.quantile(super::times::uniform(rng)) }
    }

    fn whole(&self) -> Cell {
        match self {
            Self::Fixed(tokens) => Cell::atom(*tokens as f64, 1.0),
            Self::Uniform { low, high } => Cell::stretch(*low, *high, 1.0),
            Self::Empirical(observed) => Cell::whole(
                &observed.stretches().map(|(low, high, weight)| Cell::stretch(low, high, weight)).collect::<Vec<_>>(),
            ),
            Self::Normal { .. } | Self::LogNormal { .. } => Cell::whole(&self.cells()),
        }
    }

    /// The distribution in cells, shortest first; the weights sum to 1.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        match self {
            Self::Fixed(tokens) => cells.push(Cell::atom(*tokens as f64, 1.0)),
            Self::Uniform { low, high } => cut(*low, *high, 1.0, &mut cells),
            Self::Empirical(observed) => {
                observed.stretches().for_each(|(low, high, weight)| cut(low, high, weight, &mut cells));
            }
            Self::Normal { low, high, .. } | Self::LogNormal { low, high, .. } => {
                self.bell().cells(*low, *high, &mut cells)
            }
        }
        cells
    }

    /// The curve before rounding and clipping; a standard normal one for distributions that have none.
    fn bell(&self) -> Bell {
        match *self {
            Self::Normal { mean, deviation, .. } => Bell { centre: mean, deviation, logarithmic: false },
            Self::LogNormal { mean, deviation, .. } => {
                let variance = (deviation / mean).powi(2).ln_1p();
                Bell {
                    centre: mean.ln() - variance / 2.0,
                    deviation: variance.sqrt().max(f64::MIN_POSITIVE),
                    logarithmic: true,
                }
            }
            _ => Bell { centre: 0.0, deviation: 1.0, logarithmic: false },
        }
    }
}

impl From<Empirical> for LengthDistribution {
    fn from(observed: Empirical) -> Self {
        Self::Empirical(observed)
    }
}

impl From<u64> for LengthDistribution {
    fn from(tokens: u64) -> Self {
        Self::Fixed(tokens)
    }
}

fn check_bounds(low: u64, high: u64) -> Result<(), WorkloadError> {
    if low > high {
        return Err(WorkloadError::Bounds { low, high });
    }
    if high > MAX_TOKENS {
        return Err(WorkloadError::TooLong { what: "length", tokens: high, limit: MAX_TOKENS });
    }
    Ok(())
}

fn check_deviation(deviation: f64) -> Result<f64, WorkloadError> {
    let in_range = deviation > 0.0 && deviation <= MAX_TOKENS as f64;
    checked("deviation of the length", deviation, "a number of tokens above 0 and at most 2^40", in_range)
}

/// Adds equally likely lengths in cells of one length, or of several where there are very many.
fn cut(low: u64, high: u64, weight: f64, cells: &mut Vec<Cell>) {
    let count = high - low + 1;
    let width = count.div_ceil(CELLS_PER_STRETCH);
    let mut first = low;
    while first <= high {
        let last = (first + width - 1).min(high);
        cells.push(Cell::stretch(first, last, weight * (last - first + 1) as f64 / count as f64));
        first = last + 1;
    }
}

/// A normal distribution of the length or of its logarithm.
struct Bell {
    centre: f64,
    deviation: f64,
    logarithmic: bool,
}

impl Bell {
    /// The length at so many standard deviations from the centre.
    fn at(&self, deviations: f64) -> f64 {
        let value = self.centre + deviations * self.deviation;
        if self.logarithmic { value.exp() } else { value }
    }

    /// Standard deviations from the centre to a length.
    fn score(&self, tokens: f64) -> f64 {
        let value = if self.logarithmic { tokens.max(0.0).ln() } else { tokens };
        (value - self.centre) / self.deviation
    }

    /// Probability of lengths between two, in whichever tail is exact.
    fn between(&self, from: f64, to: f64) -> f64 {
        let (a, b) = (self.score(from), self.score(to));
        let half = |z: f64| 0.5 * erfc(z / SQRT_2);
        if a > 0.0 { half(a) - half(b) } else { half(-b) - half(-a) }
    }

    /// The slope of the logarithm of the density.
    fn slope(&self, tokens: f64) -> f64 {
        if self.logarithmic {
            -(1.0 + self.score(tokens) / self.deviation) / tokens
        } else {
            -self.score(tokens) / self.deviation
        }
    }

    /// Width of the cell that starts at a whole number: many cells to a standard deviation, of one length at least.
    fn width(&self, tokens: f64) -> u64 {
        let deviation = if self.logarithmic { self.deviation.min(1.0) * tokens } else { self.deviation };
        ((deviation / CELLS_PER_DEVIATION) as u64).max(1)
    }

    fn cells(&self, low: u64, high: u64, cells: &mut Vec<Cell>) {
        if low >= high {
            cells.push(Cell::atom(low as f64, 1.0));
            return;
        }
        // What is rounded to the bounds or beyond lies on them.
        let start = cells.len();
        cells.push(Cell::atom(low as f64, self.between(f64::NEG_INFINITY, low as f64 + 0.5)));
        let mut first = (self.at(-REACH).floor() as u64).max(low + 1);
        let end = (self.at(REACH).ceil() as u64).min(high - 1);
        while first <= end {
            let last = (first + self.width(first as f64) - 1).min(end);
            let mut cell = Cell::stretch(first, last, self.between(first as f64 - 0.5, last as f64 + 0.5));
            // Within a cell the density is a line: its slope moves the mean, the variance changes in the second order only.
            cell.mean += if last > first { self.slope(cell.mean) * cell.variance } else { 0.0 };
            cells.push(cell);
            first = last + 1;
        }
        cells.push(Cell::atom(high as f64, self.between(high as f64 - 0.5, f64::INFINITY)));
        cells[start..].iter_mut().for_each(|cell| cell.weight = cell.weight.max(0.0));
        let total: f64 = cells[start..].iter().map(|cell| cell.weight).sum();
        cells[start..].iter_mut().for_each(|cell| cell.weight /= total);
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RawDistribution {
    Fixed(u64),
    Uniform { low: u64, high: u64 },
    Normal { mean: f64, deviation: f64, low: u64, high: u64 },
    LogNormal { mean: f64, deviation: f64, low: u64, high: u64 },
    Empirical(Empirical),
}

impl TryFrom<RawDistribution> for LengthDistribution {
    type Error = WorkloadError;

    fn try_from(raw: RawDistribution) -> Result<Self, WorkloadError> {
        match raw {
            RawDistribution::Fixed(tokens) => Self::uniform(tokens, tokens).map(|_| Self::Fixed(tokens)),
            RawDistribution::Uniform { low, high } => Self::uniform(low, high),
            RawDistribution::Normal { mean, deviation, low, high } => Self::normal(mean, deviation, low, high),
            RawDistribution::LogNormal { mean, deviation, low, high } => Self::log_normal(mean, deviation, low, high),
            RawDistribution::Empirical(observed) => Ok(observed.into()),
        }
    }
}
