//! How far off predictions are.

use super::{Measurement, Prediction};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A measurement beside its prediction, reduced to what scores are computed from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scored {
    /// The configuration: engine, device, number of devices, tensor parallelism, model, weight format.
    pub group: String,
    /// The metric.
    pub metric: String,
    /// What was measured.
    pub value: f64,
    /// What was predicted, in the same unit; `None` if the prediction was refused.
    pub predicted: Option<f64>,
    /// The interval in which the measured value was expected.
    pub interval: Option<(f64, f64)>,
}

impl Scored {
    /// A row and its prediction.
    pub fn new(row: &Measurement, prediction: Option<&Prediction>) -> Self {
        let Measurement { engine, device, device_count, tp, model, weight_format, .. } = row;
        Self {
            group: format!("{engine}\t{device}\t{device_count}\t{tp}\t{model}\t{weight_format}"),
            metric: row.metric.clone(),
            value: row.value,
            predicted: prediction.map(|prediction| prediction.predicted),
            interval: prediction.map(|prediction| (prediction.low, prediction.high)),
        }
    }

    /// Times are better when smaller, rates when larger.
    fn is_time(&self) -> bool {
        self.metric.contains("_ms")
    }

    /// Predicted over measured speed; above 1 the prediction is too fast.
    fn speed_ratio(&self, predicted: f64) -> f64 {
        match (self.is_time(), predicted > 0.0) {
            (true, true) => self.value / predicted,
            (true, false) => f64::INFINITY,
            (false, true) => predicted / self.value,
            (false, false) => 0.0,
        }
    }
}

/// How many rows a score speaks of, and how far off they are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// Rows.
    pub rows: usize,
    /// Configurations.
    pub groups: usize,
    /// Rows with a prediction.
    pub predicted_rows: usize,
    /// Share of the weight that was predicted; 0 without rows.
    pub coverage: f64,
    /// The errors; `None` if nothing was predicted.
    pub errors: Option<ErrorStatistics>,
}

/// Errors of predictions. Every configuration weighs the same, shared equally by its rows, so that a large sweep counts as much
/// as a single number.
///
/// With `v` measured and `p` predicted, the absolute percentage error (APE) is `|p - v| / v`, as a fraction. Quantiles are weighted: the smallest value
/// up to which the cumulated weight reaches the share, the midpoint to the next one where it is met exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ErrorStatistics {
    /// Median APE.
    pub median_ape: f64,
    /// Mean APE.
    pub mean_ape: f64,
    /// 90th percentile of the APE.
    pub p90_ape: f64,
    /// Median of `(p - v) / v`.
    pub bias: f64,
    /// Median of predicted over measured speed; above 1 the predictions are too fast. `None` if not finite.
    pub speed_ratio: Option<f64>,
    /// Share within a factor of 2.
    pub within_2x: f64,
    /// Spearman's rank correlation within each metric, averaged by rows; `None` where ranks say nothing.
    pub spearman: Option<f64>,
    /// Share of measured values within the predicted interval; `None` without intervals.
    pub interval_coverage: Option<f64>,
}

/// How many of the configurations that are known not to fit were predicted not to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OomRecall {
    /// Rows of metric `oom`.
    pub rows: usize,
    /// Those with a prediction.
    pub predicted_rows: usize,
    /// Share of them that were predicted not to fit.
    pub recall: Option<f64>,
}

impl Score {
    /// Scores rows; those of metric `oom` are left out (see [`OomRecall::of`]).
    ///
    /// ```
    /// use llm_roofline::calibrate::{Score, Scored, read_measurements};
    /// let file = "id,engine,device,device_count,tp,model,weight_format,mode,metric,value\n\
    ///             a,x,card,1,1,small,q8_0,single_stream,tpot_ms,10\n\
    ///             b,x,card,1,1,small,q4_0,single_stream,tpot_ms,5\n";
    /// let rows = read_measurements(file.as_bytes(), "two.csv")?;
    /// let mut scored: Vec<Scored> = rows.iter().map(|row| Scored::new(row, None)).collect();
    /// scored[0].predicted = Some(8.0);
    /// let score = Score::of(&scored);
    /// assert_eq!((score.rows, score.coverage), (2, 0.5));
    /// let errors = score.errors.unwrap();
    /// assert_eq!((errors.median_ape, errors.bias, errors.speed_ratio), (0.2, -0.2, Some(1.25)));
    /// # Ok::<(), llm_roofline::calibrate::MeasurementError>(())
    /// ```
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Scored>) -> Self {
        let rows: Vec<&Scored> = rows.into_iter().filter(|row| row.metric != OOM).collect();
        let sizes = group_sizes(rows.iter().copied());
        let weight = |row: &Scored| 1.0 / sizes.get(row.group.as_str()).map_or(1.0, |size| *size as f64);
        let predicted: Vec<(&Scored, f64)> =
            rows.iter().filter_map(|row| row.predicted.map(|predicted| (*row, predicted))).collect();
        // An empty sum of floats is -0, which prints badly.
        let covered = 0.0 + predicted.iter().map(|(row, _)| weight(row)).sum::<f64>();
        let coverage = if sizes.is_empty() { 0.0 } else { (covered / sizes.len() as f64).min(1.0) };
        Self {
            rows: rows.len(),
            groups: sizes.len(),
            predicted_rows: predicted.len(),
            coverage,
            errors: (!predicted.is_empty()).then(|| ErrorStatistics::of(&predicted)),
        }
    }
}

const OOM: &str = "oom";

fn group_sizes<'a>(rows: impl Iterator<Item = &'a Scored>) -> HashMap<&'a str, usize> {
    let mut sizes = HashMap::new();
    for row in rows {
        *sizes.entry(row.group.as_str()).or_insert(0) += 1;
    }
    sizes
}

impl ErrorStatistics {
    fn of(rows: &[(&Scored, f64)]) -> Self {
        let sizes = group_sizes(rows.iter().map(|(row, _)| *row));
        let weight = |row: &Scored| 1.0 / sizes.get(row.group.as_str()).map_or(1.0, |size| *size as f64);
        let total: f64 = rows.iter().map(|(row, _)| weight(row)).sum();
        let weighted = |value: &dyn Fn(&Scored, f64) -> f64| -> Vec<(f64, f64)> {
            rows.iter().map(|(row, predicted)| (value(row, *predicted), weight(row))).collect()
        };
        let share = |chosen: &dyn Fn(&Scored, f64) -> bool| -> f64 {
            0.0 + rows
                .iter()
                .filter(|(row, predicted)| chosen(row, *predicted))
                .map(|(row, _)| weight(row))
                .sum::<f64>()
        };
        let error = |row: &Scored, predicted: f64| (predicted - row.value) / row.value;
        let apes = weighted(&|row, predicted| error(row, predicted).abs());
        let mean_ape = apes.iter().map(|(ape, weight)| ape * weight).sum::<f64>() / total;
        let within_2x = share(&|row, predicted| (0.5..=2.0).contains(&row.speed_ratio(predicted)));
        let with_interval = share(&|row, _| row.interval.is_some());
        let inside = share(&|row, _| row.interval.is_some_and(|(low, high)| low <= row.value && row.value <= high));
        Self {
            median_ape: weighted_quantile(&apes, 0.5),
            mean_ape,
            p90_ape: weighted_quantile(&apes, 0.9),
            bias: weighted_quantile(&weighted(&error), 0.5),
            speed_ratio: Some(weighted_quantile(&weighted(&Scored::speed_ratio), 0.5))
                .filter(|ratio| ratio.is_finite()),
            within_2x: (within_2x / total).min(1.0),
            spearman: mean_spearman(rows),
            interval_coverage: (with_interval > 0.0).then(|| (inside / with_interval).min(1.0)),
        }
    }
}

impl OomRecall {
    /// The recall over rows of metric `oom`; the others are left out. A prediction of 0.5 or more means that it does not fit.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Scored>) -> Self {
        let predictions: Vec<Option<f64>> =
            rows.into_iter().filter(|row| row.metric == OOM).map(|row| row.predicted).collect();
        let predicted: Vec<f64> = predictions.iter().copied().flatten().collect();
        let found = predicted.iter().filter(|predicted| **predicted >= 0.5).count();
        Self {
            rows: predictions.len(),
            predicted_rows: predicted.len(),
            recall: (!predicted.is_empty()).then(|| found as f64 / predicted.len() as f64),
        }
    }
}

/// How often it was foreseen whether speculative decoding makes it faster or slower.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenefitSign {
    /// Predicted rows of metric `speedup` that are more than 5 % away from 1.
    pub rows: usize,
    /// Share of them on the side of 1 that was predicted; `None` without rows.
    pub right: Option<f64>,
}

impl BenefitSign {
    /// The share over rows of metric `speedup`; the others, and those without a prediction, are left out.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Scored>) -> Self {
        let clear = rows.into_iter().filter(|row| row.metric == SPEEDUP && (row.value - 1.0).abs() > CLEAR_EFFECT);
        let right: Vec<bool> =
            clear.filter_map(|row| row.predicted.map(|predicted| (predicted > 1.0) == (row.value > 1.0))).collect();
        let share = |right: &[bool]| right.iter().filter(|right| **right).count() as f64 / right.len() as f64;
        Self { rows: right.len(), right: (!right.is_empty()).then(|| share(&right)) }
    }
}

pub(super) const SPEEDUP: &str = "speedup";
/// Effects below this are within what repeats differ by.
const CLEAR_EFFECT: f64 = 0.05;

/// The smallest value up to which the cumulated weight reaches the share; NaN without values.
fn weighted_quantile(values: &[(f64, f64)], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut cumulated = 0.0;
    let mut rest = sorted.iter().peekable();
    while let Some((value, weight)) = rest.next() {
        cumulated += weight;
        match rest.peek() {
            Some((next, _)) if (cumulated - share * total).abs() < 1e-12 * total => return (value + next) / 2.0,
            _ if cumulated >= share * total => return *value,
            _ => {}
        }
    }
    sorted.last().map_or(f64::NAN, |(value, _)| *value)
}

/// Rank correlation between measured and predicted values within each metric, averaged by rows.
fn mean_spearman(rows: &[(&Scored, f64)]) -> Option<f64> {
    let mut by_metric: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (row, predicted) in rows {
        let (values, predictions) = by_metric.entry(&row.metric).or_default();
        values.push(row.value);
        predictions.push(*predicted);
    }
    let (mut sum, mut count) = (0.0, 0.0);
    for (values, predictions) in by_metric.values() {
        if let Some(correlation) = spearman(values, predictions) {
            sum += correlation * values.len() as f64;
            count += values.len() as f64;
        }
    }
    (count > 0.0).then(|| sum / count)
}

fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 3 {
        return None;
    }
    let (a, b) = (ranks(a), ranks(b));
    let mean = |ranks: &[f64]| ranks.iter().sum::<f64>() / ranks.len() as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let square = |ranks: &[f64], mean: f64| ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>();
    let (square_a, square_b) = (square(&a, mean_a), square(&b, mean_b));
    let product: f64 = a.iter().zip(&b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum();
    (square_a > 0.0 && square_b > 0.0).then(|| product / (square_a * square_b).sqrt())
}

/// Ranks from 0; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| a.0 == b.0) {
        let rank = (2 * first + equal.len() - 1) as f64 / 2.0;
        for (_, place) in equal {
            if let Some(slot) = ranks.get_mut(*place) {
                *slot = rank;
            }
        }
        first += equal.len();
    }
    ranks
}

/// Scores of parts of the rows, by a key; those with most configurations first.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreTable {
    /// What the key is.
    pub title: String,
    /// Key and score.
    pub lines: Vec<(String, Score)>,
}

impl ScoreTable {
    /// Splits rows by a key; rows without one are left out.
    pub fn by<'a>(
        title: impl Into<String>,
        rows: impl IntoIterator<Item = &'a (Measurement, Scored)>,
        key: impl Fn(&Measurement) -> Option<String>,
    ) -> Self {
        let mut parts: BTreeMap<String, Vec<&Scored>> = BTreeMap::new();
        for (row, scored) in rows {
            if let Some(key) = key(row).filter(|_| scored.metric != OOM) {
                parts.entry(key).or_default().push(scored);
            }
        }
        let mut lines: Vec<(String, Score)> = parts.into_iter().map(|(key, rows)| (key, Score::of(rows))).collect();
        lines.sort_by_key(|(_, score)| std::cmp::Reverse(score.groups));
        Self { title: title.into(), lines }
    }
}

impl fmt::Display for ScoreTable {
    /// As a table in Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| {} | rows | groups | coverage | median APE | p90 APE | bias | within 2x | in interval |",
            self.title
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")?;
        for (key, score) in &self.lines {
            let key = if key.is_empty() { "(not stated)" } else { key };
            write!(f, "| {key} | {} | {} | {:.1} % |", score.rows, score.groups, score.coverage * 100.0)?;
            let Some(errors) = &score.errors else {
                writeln!(f, " - | - | - | - | - |")?;
                continue;
            };
            let (median, p90, bias) = (errors.median_ape * 100.0, errors.p90_ape * 100.0, errors.bias * 100.0);
            let inside = errors.interval_coverage.map_or("-".into(), |share| format!("{:.1} %", share * 100.0));
            writeln!(f, " {median:.1} % | {p90:.1} % | {bias:+.1} % | {:.0} % | {inside} |", errors.within_2x * 100.0)?;
        }
        Ok(())
    }
}
