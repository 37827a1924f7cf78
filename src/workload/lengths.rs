//! Prompt and output lengths together.

use super::cells::{Cell, classes};
use super::cluster::representatives;
use super::distribution::{LengthDistribution, MAX_TOKENS};
use super::error::{WorkloadError, at_least, positive};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How many points stand for all requests at most.
const POINTS: usize = 64;

/// Means over all requests; lengths in tokens, squares and products in tokens squared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LengthMoments {
    /// Mean prompt length, E\[n\].
    pub prompt: f64,
    /// Mean output length, E\[m\].
    pub output: f64,
    /// Mean square of the prompt length, E\[n²\].
    pub prompt_square: f64,
    /// Mean square of the output length, E\[m²\].
    pub output_square: f64,
    /// Mean product of both lengths, E\[n m\]: above the product of the means if long prompts get long answers.
    pub product: f64,
}

impl LengthMoments {
    /// Standard deviation of the prompt length, in tokens.
    pub fn prompt_deviation(&self) -> f64 {
        (self.prompt_square - self.prompt * self.prompt).max(0.0).sqrt()
    }

    /// Standard deviation of the output length, in tokens.
    pub fn output_deviation(&self) -> f64 {
        (self.output_square - self.output * self.output).max(0.0).sqrt()
    }

    /// Correlation of both lengths, from -1 to 1; 0 where one of them is always the same.
    pub fn correlation(&self) -> f64 {
        let deviations = self.prompt_deviation() * self.output_deviation();
        let covariance = self.product - self.prompt * self.output;
        if deviations > 1e-9 * self.prompt * self.output { (covariance / deviations).clamp(-1.0, 1.0) } else { 0.0 }
    }

    /// Mean output length that a running request has, E\[m²\] / E\[m\]: long answers run longer, so they are met more often.
    pub fn running_output(&self) -> f64 {
        self.output_square / self.output
    }

    /// Mean prompt length that a running request has while it decodes, E\[n m\] / E\[m\].
    pub fn running_prompt(&self) -> f64 {
        self.product / self.output
    }

    fn add(&mut self, weight: f64, other: &Self) {
        self.prompt += weight * other.prompt;
        self.output += weight * other.output;
        self.prompt_square += weight * other.prompt_square;
        self.output_square += weight * other.output_square;
        self.product += weight * other.product;
    }

    fn of_point(prompt: f64, output: f64) -> Self {
        Self {
            prompt,
            output,
            prompt_square: prompt * prompt,
            output_square: output * output,
            product: prompt * output,
        }
    }
}

/// One of the lengths that stand for all requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthPoint {
    /// Prompt length, in tokens.
    pub prompt: f64,
    /// Output length, in tokens.
    pub output: f64,
    /// Share of the requests.
    pub weight: f64,
}

/// How long prompts and outputs are, jointly. Cheap to clone: moments and points are computed once.
///
/// ```
/// use llm_roofline::workload::{LengthDistribution, Lengths};
///
/// let chat = Lengths::fixed(1024, 256)?;
/// assert_eq!((chat.moments().prompt, chat.moments().output_square), (1024.0, 65536.0));
///
/// let varied = Lengths::independent(LengthDistribution::uniform_ratio(1024, 0.5)?, LengthDistribution::log_normal(256.0, 300.0, 1, 4096)?)?;
/// // A request that is running is longer than one that arrives.
/// assert_eq!(format!("{:.0}", varied.moments().running_output()), "593");
/// let points = varied.points();
/// let mean: f64 = points.iter().map(|point| point.weight * point.prompt).sum();
/// assert!(points.len() <= 64 && (mean - 1024.0).abs() < 1e-6);
///
/// assert!(Lengths::fixed(1024, 0).is_err());
/// # Ok::<(), llm_roofline::workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Kind", into = "Kind")]
pub struct Lengths {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kind: Kind,
    moments: LengthMoments,
    points: Vec<LengthPoint>,
    longest: (u64, u64),
    longest_total: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Kind {
    Fixed { prompt: u64, output: u64 },
    Independent { prompt: LengthDistribution, output: LengthDistribution },
    Pairs(Vec<(u64, u64)>),
    Mixture(Vec<(f64, Lengths)>),
}

impl Lengths {
    /// The same prompt and output length for all.
    ///
    /// # Errors
    /// [`WorkloadError::TooShort`] for a length of 0, [`WorkloadError::TooLong`] beyond 2^40 tokens.
    pub fn fixed(prompt: u64, output: u64) -> Result<Self, WorkloadError> {
        Self::new(Kind::Fixed { prompt, output })
    }

    /// Prompt and output lengths that do not depend on each other.
    ///
    /// # Errors
    /// As [`fixed`](Self::fixed), for distributions that reach down to 0: give them a lower bound of 1.
    pub fn independent(
        prompt: impl Into<LengthDistribution>,
        output: impl Into<LengthDistribution>,
    ) -> Result<Self, WorkloadError> {
        Self::new(Kind::Independent { prompt: prompt.into(), output: output.into() })
    }

    /// Lengths of requests that were seen, (prompt, output), all equally likely: whether long prompts get long answers is kept.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without requests; as [`fixed`](Self::fixed) for the length of one.
    pub fn pairs(pairs: Vec<(u64, u64)>) -> Result<Self, WorkloadError> {
        Self::new(Kind::Pairs(pairs))
    }

    /// Several kinds of requests with their shares. Shares are taken relative to their sum.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without parts and [`WorkloadError::OutOfRange`] for a share that is not above 0.
    pub fn mixture(parts: Vec<(f64, Lengths)>) -> Result<Self, WorkloadError> {
        Self::new(Kind::Mixture(parts))
    }

    /// Means, mean squares and the mean product of both lengths.
    pub fn moments(&self) -> &LengthMoments {
        &self.shared.moments
    }

    /// Lengths that stand for all requests, at most 64. Weights sum to 1, both means are exact, second moments within 2 % of
    /// [`moments`](Self::moments) (exact for fixed and independent lengths).
    pub fn points(&self) -> &[LengthPoint] {
        &self.shared.points
    }

    /// Whether all requests have the same lengths.
    pub fn is_fixed(&self) -> bool {
        self.shared.points.len() == 1
    }

    /// The longest prompt and the longest output, in tokens; for [`pairs`](Self::pairs) they may be of different requests.
    pub fn longest(&self) -> (u64, u64) {
        self.shared.longest
    }

    /// The most tokens, prompt and output together, that one request has.
    pub fn longest_total(&self) -> u64 {
        self.shared.longest_total
    }

    /// The request that stands at these shares of the distribution, each from 0 to 1: of prompt and output lengths where they are independent; of
    /// pairs that were seen, the first share chooses one. Even shares give even requests.
    ///
    /// ```
    /// use llm_roofline::workload::{LengthDistribution, Lengths};
    /// let lengths = Lengths::independent(LengthDistribution::uniform(100, 200)?, 50)?;
    /// assert_eq!((lengths.at(0.5, 0.1), lengths.at(1.0, 0.1)), ((150, 50), (200, 50)));
    /// # Ok::<(), llm_roofline::workload::WorkloadError>(())
    /// ```
    pub fn at(&self, first: f64, second: f64) -> (u64, u64) {
        match &self.shared.kind {
            Kind::Fixed { prompt, output } => (*prompt, *output),
            Kind::Independent { prompt, output } => (prompt.quantile(first), output.quantile(second)),
            Kind::Pairs(pairs) => pairs[((first * pairs.len() as f64) as usize).min(pairs.len() - 1)],
            Kind::Mixture(parts) => {
                let total: f64 = parts.iter().map(|(share, _)| share).sum();
                let mut left = first * total;
                for (share, lengths) in parts {
                    if left <= *share {
                        return lengths.at(left / share, second);
                    }
                    left -= share;
                }
                parts.last().map_or((1, 1), |(_, lengths)| lengths.at(1.0, second))
            }
        }
    }

    /// Random prompt and output lengths.
    #[cfg(feature = "random")]
    pub fn sample<R: rand::Rng + ?Sized>(&self, rng: &mut R) -> (u64, u64) {
        match &self.shared.kind {
            Kind::Fixed { prompt, output } => (*prompt, *output),
            Kind::Independent { prompt, output } => (prompt.sample(rng), output.sample(rng)),
            Kind::Pairs(pairs) => pairs[super::times::index(rng, pairs.len())],
            Kind::Mixture(parts) => {
                let total: f64 = parts.iter().map(|(share, _)| share).sum();
                let mut left = super::times::uniform(rng) * total;
                let chosen = parts.iter().find(|(share, _)| {
                    left -= share;
                    left < 0.0
                });
                chosen.unwrap_or(&parts[parts.len() - 1]).1.sample(rng)
            }
        }
    }

    fn new(kind: Kind) -> Result<Self, WorkloadError> {
        let (longest, longest_total) = kind.check()?;
        let moments = kind.moments();
        let points = kind.points(POINTS);
        Ok(Self { shared: Arc::new(Shared { moments, points, longest, longest_total, kind }) })
    }
}

impl PartialEq for Lengths {
    fn eq(&self, other: &Self) -> bool {
        self.shared.kind == other.shared.kind
    }
}

impl TryFrom<Kind> for Lengths {
    type Error = WorkloadError;

    fn try_from(kind: Kind) -> Result<Self, WorkloadError> {
        Self::new(kind)
    }
}

impl From<Lengths> for Kind {
    fn from(lengths: Lengths) -> Self {
        lengths.shared.kind.clone()
    }
}

impl Kind {
    /// The longest lengths, and the longest of both together, if all are in range.
    fn check(&self) -> Result<((u64, u64), u64), WorkloadError> {
        match self {
            Self::Fixed { prompt, output } => check_pair(*prompt, *output),
            Self::Independent { prompt, output } => {
                let (shortest, longest) = (prompt.bounds(), output.bounds());
                check_pair(shortest.0, longest.0)?;
                check_pair(shortest.1, longest.1)
            }
            Self::Pairs(pairs) => {
                at_least("requests in a list of lengths", pairs.len() as u64, 1)?;
                pairs.iter().try_fold(((0, 0), 0), |longest, (prompt, output)| {
                    Ok(longer(longest, check_pair(*prompt, *output)?))
                })
            }
            Self::Mixture(parts) => {
                at_least("parts of a mixture of lengths", parts.len() as u64, 1)?;
                parts.iter().try_fold(((0, 0), 0), |longest, (share, lengths)| {
                    positive("share of a kind of requests", *share, "a number above 0")?;
                    Ok(longer(longest, (lengths.longest(), lengths.longest_total())))
                })
            }
        }
    }

    fn moments(&self) -> LengthMoments {
        match self {
            Self::Fixed { prompt, output } => LengthMoments::of_point(*prompt as f64, *output as f64),
            Self::Independent { prompt, output } => LengthMoments {
                prompt: prompt.mean(),
                output: output.mean(),
                prompt_square: prompt.mean_square(),
                output_square: output.mean_square(),
                product: prompt.mean() * output.mean(),
            },
            Self::Pairs(pairs) => {
                let mut moments = LengthMoments::default();
                let weight = 1.0 / pairs.len() as f64;
                pairs.iter().for_each(|(n, m)| moments.add(weight, &LengthMoments::of_point(*n as f64, *m as f64)));
                moments
            }
            Self::Mixture(parts) => {
                let mut moments = LengthMoments::default();
                let total: f64 = parts.iter().map(|(share, _)| share).sum();
                parts.iter().for_each(|(share, lengths)| moments.add(share / total, lengths.moments()));
                moments
            }
        }
    }

    fn points(&self, budget: usize) -> Vec<LengthPoint> {
        match self {
            Self::Fixed { prompt, output } => {
                vec![LengthPoint { prompt: *prompt as f64, output: *output as f64, weight: 1.0 }]
            }
            Self::Independent { prompt, output } => grid(&prompt.cells(), &output.cells(), budget),
            Self::Pairs(_) | Self::Mixture(_) => {
                let mut all = Vec::new();
                self.collect(1.0, &mut all);
                representatives(all, budget)
            }
        }
    }

    /// Adds points for all requests, as many as it takes.
    fn collect(&self, weight: f64, all: &mut Vec<LengthPoint>) {
        match self {
            Self::Pairs(pairs) => {
                let weight = weight / pairs.len() as f64;
                all.extend(pairs.iter().map(|(n, m)| LengthPoint { prompt: *n as f64, output: *m as f64, weight }));
            }
            Self::Mixture(parts) => {
                let total: f64 = parts.iter().map(|(share, _)| share).sum();
                parts.iter().for_each(|(share, lengths)| lengths.shared.kind.collect(weight * share / total, all));
            }
            Self::Fixed { .. } | Self::Independent { .. } => {
                all.extend(
                    self.points(POINTS * POINTS)
                        .into_iter()
                        .map(|point| LengthPoint { weight: point.weight * weight, ..point }),
                );
            }
        }
    }
}

/// Every length of the one with every length of the other.
fn grid(prompts: &[Cell], outputs: &[Cell], budget: usize) -> Vec<LengthPoint> {
    let root = budget.isqrt();
    let (prompts, outputs) = match (prompts.len(), outputs.len()) {
        (1, _) => (side(prompts, 1), side(outputs, budget)),
        (_, 1) => (side(prompts, budget), side(outputs, 1)),
        _ => (side(prompts, root), side(outputs, root)),
    };
    let pair = |&(prompt, p): &(f64, f64)| {
        outputs.iter().map(move |&(output, q)| LengthPoint { prompt, output, weight: p * q }).collect::<Vec<_>>()
    };
    prompts.iter().flat_map(pair).collect()
}

/// At most `count` lengths with their weights: all there are if they are so few, else two for each class of equal probability, so that the
/// first three moments are exact.
fn side(cells: &[Cell], count: usize) -> Vec<(f64, f64)> {
    if cells.len() <= count && cells.iter().all(|cell| cell.variance == 0.0) {
        return cells.iter().filter(|cell| cell.weight > 0.0).map(|cell| (cell.mean, cell.weight)).collect();
    }
    classes(cells, count / 2).iter().flat_map(Cell::nodes).collect()
}

fn check_pair(prompt: u64, output: u64) -> Result<((u64, u64), u64), WorkloadError> {
    for (what, tokens) in [("prompt", prompt), ("output", output)] {
        if tokens == 0 {
            return Err(WorkloadError::TooShort { what, tokens, limit: 1 });
        }
        if tokens > MAX_TOKENS {
            return Err(WorkloadError::TooLong { what, tokens, limit: MAX_TOKENS });
        }
    }
    Ok(((prompt, output), prompt + output))
}

fn longer(a: ((u64, u64), u64), b: ((u64, u64), u64)) -> ((u64, u64), u64) {
    ((a.0.0.max(b.0.0), a.0.1.max(b.0.1)), a.1.max(b.1))
}
