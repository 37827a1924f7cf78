//! Durations counted in bins of equal relative width.

use crate::numeric::float;
use crate::serving::metrics::Percentiles;
use crate::units::Seconds;

/// Bits of the mantissa that tell bins apart: 128 bins per octave.
const MANTISSA_BITS: u32 = 7;
const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - MANTISSA_BITS;
/// Shorter durations count as none, 2^-30 s.
const SMALLEST_S: f64 = 1.0 / (1_u64 << 30) as f64;
/// Longer durations count as this long, 2^30 s.
const LARGEST_S: f64 = (1_u64 << 30) as f64;
/// The bits in front of the first bin.
const BASE: u64 = SMALLEST_S.to_bits() >> SHIFT;
/// The range of bins grows by so many at once.
const GROWTH: usize = 32;

/// A histogram of durations, from which any quantile can be read.
///
/// Bins are linear within an octave and double from octave to octave, 128 in each: the bin of a number is the head of its bits. Memory
/// is taken for the range of bins that occurs. Count, mean, shortest and longest are exact.
///
/// # Validity
/// A quantile lies in the same bin as that of the samples themselves, so it is off by at most [`Histogram::RESOLUTION`] of its value;
/// by half of that where a bin holds one sample, and by far less where samples lie evenly in their bin. Durations below 1 ns share one bin.
/// Those above 2^30 s count as 2^30 s. What is no number, or negative, counts as 0 s.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Counts of the bins from `first_bin` on.
    counts: Vec<u64>,
    first_bin: usize,
    /// Durations that are shorter than the first bin.
    zero: u64,
    count: u64,
    sum_s: f64,
    min_s: f64,
    max_s: f64,
}

impl Histogram {
    /// The widest that a bin is, relative to the durations in it.
    pub const RESOLUTION: f64 = 1.0 / (1_u64 << MANTISSA_BITS) as f64;

    /// A histogram of nothing.
    pub const fn new() -> Self {
        Self {
            counts: Vec::new(),
            first_bin: 0,
            zero: 0,
            count: 0,
            sum_s: 0.0,
            min_s: f64::INFINITY,
            max_s: f64::NEG_INFINITY,
        }
    }

    /// Counts a duration, in seconds.
    #[inline]
    pub fn record(&mut self, seconds: f64) {
        let bin = (seconds.to_bits() >> SHIFT).wrapping_sub(BASE + self.first_bin as u64);
        match self.counts.get_mut(bin as usize) {
            Some(sum) if seconds >= SMALLEST_S => {
                *sum = sum.wrapping_add(1);
                self.note(seconds, seconds, seconds, 1);
            }
            _ => self.record_many(seconds, 1),
        }
    }

    /// Counts a duration several times.
    pub fn record_many(&mut self, seconds: f64, count: u64) {
        if self.record_in_bins_at_hand(seconds, 0.0, 1, count) || count == 0 {
            return;
        }
        let seconds = within_limits(seconds);
        self.note(seconds, seconds, seconds * count as f64, count);
        self.add(seconds, count);
    }

    /// Counts the durations `first_s + growth_s * j` of `j` from 0 to `steps - 1`, each of them `each` times.
    ///
    /// Takes constant time if all lie in one bin, else time proportional to the bins between the first and the last. A duration on
    /// the edge of two bins may be counted in either.
    ///
    /// # Formula
    /// The sum is `each (steps first_s + growth_s steps (steps - 1) / 2)`.
    pub fn record_line(&mut self, first_s: f64, growth_s: f64, steps: u64, each: u64) {
        if self.record_in_bins_at_hand(first_s, growth_s, steps, each) || steps == 0 || each == 0 {
            return;
        }
        let first = within_limits(first_s);
        let last = within_limits(first_s + growth_s * (steps - 1) as f64);
        let (low, high) = (first.min(last), first.max(last));
        let count = steps.saturating_mul(each);
        self.note(low, high, (low + high) / 2.0 * count as f64, count);
        if bin(low) == bin(high) {
            self.add(low, count);
        } else {
            self.add_line(low, (high - low) / (steps - 1) as f64, steps, each);
        }
    }

    /// The usual case: all of them lie in one bin that is there already, or in two neighbours.
    #[inline]
    fn record_in_bins_at_hand(&mut self, first_s: f64, growth_s: f64, steps: u64, each: u64) -> bool {
        let last_s = first_s + growth_s * (float(steps) - 1.0);
        let (first, last) = (first_s.to_bits() >> SHIFT, last_s.to_bits() >> SHIFT);
        let bin = first.wrapping_sub(BASE + self.first_bin as u64) as usize;
        let usual = steps > 0 && growth_s >= 0.0 && first_s >= SMALLEST_S && last - first <= 1;
        if !usual || bin.saturating_add(1) >= self.counts.len() {
            return false;
        }
        let mut below = steps;
        if first != last {
            let edge = f64::from_bits(last << SHIFT);
            // Steps before the edge, rounded up.
            let before = (edge - first_s) / growth_s;
            let whole = before as u64;
            below = whole.saturating_add(u64::from(float(whole) < before)).clamp(1, steps);
            let above = &mut self.counts[bin + 1];
            *above = above.wrapping_add((steps - below).wrapping_mul(each));
        }
        let sum = &mut self.counts[bin];
        *sum = sum.wrapping_add(below.wrapping_mul(each));
        let count = steps.wrapping_mul(each);
        self.count = self.count.wrapping_add(count);
        self.sum_s += 0.5 * (first_s + last_s) * float(count);
        if each > 0 {
            self.min_s = self.min_s.min(first_s);
            self.max_s = self.max_s.max(last_s);
        }
        true
    }

    /// Adds everything that another histogram counted.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.note(other.min_s, other.max_s, other.sum_s, other.count);
        self.zero = self.zero.saturating_add(other.zero);
        let Some((start, counts)) = other.occupied() else { return };
        self.reserve(start, start + counts.len());
        let offset = start - self.first_bin;
        for (sum, count) in self.counts[offset..].iter_mut().zip(counts) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// Forgets everything; the memory is kept.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        let (counts, first_bin) = (std::mem::take(&mut self.counts), self.first_bin);
        *self = Self { counts, first_bin, ..Self::new() };
    }

    /// How many durations were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The exact arithmetic mean; none of nothing.
    pub fn mean(&self) -> Option<Seconds> {
        let mean = self.sum_s / self.count as f64;
        // The sum is rounded, and equal durations have no other mean.
        (self.count > 0).then(|| Seconds::from_seconds(mean.clamp(self.min_s, self.max_s)))
    }

    /// The shortest duration.
    pub fn min(&self) -> Option<Seconds> {
        (self.count > 0).then(|| Seconds::from_seconds(self.min_s))
    }

    /// The longest duration.
    pub fn max(&self) -> Option<Seconds> {
        (self.count > 0).then(|| Seconds::from_seconds(self.max_s))
    }

    /// The duration below or at which there is a share of all, from 0 to 1; none of nothing, or for a share that is no number.
    ///
    /// # Formula
    /// Position `quantile (n - 1)` of the sorted durations, between neighbours, as
    /// [`PercentileRule::Linear`](crate::serving::metrics::PercentileRule::Linear). The durations of a bin are taken to lie evenly in it.
    pub fn quantile(&self, quantile: f64) -> Option<Seconds> {
        if self.count == 0 || quantile.is_nan() {
            return None;
        }
        let position = quantile.clamp(0.0, 1.0) * (self.count - 1) as f64;
        let (below, above) = self.neighbours(position as u64);
        Some(Seconds::from_seconds(below + (above - below) * position.fract()))
    }

    /// The share of durations up to a limit; none of nothing.
    pub fn share_up_to(&self, limit: Seconds) -> Option<f64> {
        let limit = limit.as_seconds();
        if self.count == 0 {
            return None;
        }
        if limit >= self.max_s {
            return Some(1.0);
        }
        if limit.is_nan() || limit < self.min_s {
            return Some(0.0);
        }
        let below: f64 = self.bins().map(|bin| bin.count as f64 * bin.clipped(self).share_below(limit)).sum();
        Some((below / self.count as f64).min(1.0))
    }

    /// Mean and percentiles; none of nothing. The mean is exact.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let [p50, p90, p95, p99] = [0.5, 0.9, 0.95, 0.99].map(|quantile| self.quantile(quantile));
        Some(Percentiles { mean: self.mean()?, p50: p50?, p90: p90?, p95: p95?, p99: p99? })
    }

    /// How many bins memory is held for.
    #[cfg(test)]
    pub(super) fn held_bins(&self) -> usize {
        self.counts.len()
    }

    /// Counts what is exact.
    fn note(&mut self, min_s: f64, max_s: f64, sum_s: f64, count: u64) {
        self.count = self.count.saturating_add(count);
        self.sum_s += sum_s;
        self.min_s = self.min_s.min(min_s);
        self.max_s = self.max_s.max(max_s);
    }

    fn add(&mut self, seconds: f64, count: u64) {
        let Some(bin) = bin(seconds) else {
            self.zero = self.zero.saturating_add(count);
            return;
        };
        if bin.wrapping_sub(self.first_bin) >= self.counts.len() {
            self.reserve(bin, bin + 1);
        }
        if let Some(sum) = self.counts.get_mut(bin.wrapping_sub(self.first_bin)) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Goes from edge to edge of the bins that a rising line crosses.
    fn add_line(&mut self, first_s: f64, growth_s: f64, steps: u64, each: u64) {
        let mut step = 0;
        while step < steps {
            let seconds = first_s + growth_s * step as f64;
            let edge = bin(seconds).map_or(SMALLEST_S, |bin| lower_edge(bin + 1));
            let next = (((edge - first_s) / growth_s).ceil() as u64).clamp(step + 1, steps);
            self.add(seconds, (next - step).saturating_mul(each));
            step = next;
        }
    }

    /// Makes room for bins.
    #[cold]
    #[inline(never)]
    fn reserve(&mut self, start: usize, end: usize) {
        let held = self.first_bin..self.first_bin + self.counts.len();
        if held.start <= start && end <= held.end {
            return;
        }
        let (start, end) = if held.is_empty() { (start, end) } else { (start.min(held.start), end.max(held.end)) };
        let (start, end) = (start / GROWTH * GROWTH, end.next_multiple_of(GROWTH));
        let mut counts = vec![0; end - start];
        if !held.is_empty() {
            counts[held.start - start..held.end - start].copy_from_slice(&self.counts);
        }
        (self.counts, self.first_bin) = (counts, start);
    }

    /// The bins from the first that is not empty to the last.
    fn occupied(&self) -> Option<(usize, &[u64])> {
        let start = self.counts.iter().position(|&count| count > 0)?;
        let end = self.counts.iter().rposition(|&count| count > 0)?;
        Some((self.first_bin + start, &self.counts[start..=end]))
    }

    fn bins(&self) -> impl Iterator<Item = Bin> + '_ {
        let zero = Bin { lower_s: 0.0, upper_s: 0.0, count: self.zero };
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let others = counted.map(|(index, &count)| {
            let bin = self.first_bin + index;
            Bin { lower_s: lower_edge(bin), upper_s: lower_edge(bin + 1), count }
        });
        (self.zero > 0).then_some(zero).into_iter().chain(others)
    }

    /// The durations at an index of the sorted list, and at the next.
    fn neighbours(&self, index: u64) -> (f64, f64) {
        if self.min_s == self.max_s {
            return (self.min_s, self.max_s);
        }
        let (mut below, mut before) = (None, 0_u64);
        for bin in self.bins() {
            let end = before.saturating_add(bin.count);
            let at = |index: u64| match index {
                0 => self.min_s,
                _ if index + 1 >= self.count => self.max_s,
                _ => bin.clipped(self).at(index - before).clamp(self.min_s, self.max_s),
            };
            if below.is_none() && index < end {
                below = Some(at(index));
            }
            if let Some(below) = below
                && index + 1 < end
            {
                return (below, at(index + 1));
            }
            before = end;
        }
        (below.unwrap_or(self.max_s), self.max_s)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Equal if everything is that was counted, whatever memory is held for it.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let exact = |of: &Self| (of.count, of.zero, of.sum_s, of.min_s, of.max_s);
        exact(self) == exact(other) && self.occupied() == other.occupied()
    }
}

/// A bin that is not empty.
#[derive(Clone, Copy)]
struct Bin {
    lower_s: f64,
    upper_s: f64,
    count: u64,
}

impl Bin {
    /// Without what is shorter or longer than anything that was counted.
    fn clipped(self, within: &Histogram) -> Self {
        let lower_s = self.lower_s.max(within.min_s);
        Self { lower_s, upper_s: self.upper_s.min(within.max_s).max(lower_s), ..self }
    }

    /// A duration of the bin by its position among them.
    fn at(self, index: u64) -> f64 {
        self.lower_s + (self.upper_s - self.lower_s) * ((index as f64 + 0.5) / self.count as f64)
    }

    fn share_below(self, limit_s: f64) -> f64 {
        if limit_s >= self.upper_s { 1.0 } else { ((limit_s - self.lower_s) / (self.upper_s - self.lower_s)).max(0.0) }
    }
}

/// A number that has a bin; what is no number becomes 0.
fn within_limits(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds.min(LARGEST_S) } else { 0.0 }
}

/// The bin of a duration, if it is long enough to have one.
fn bin(seconds: f64) -> Option<usize> {
    (seconds >= SMALLEST_S).then(|| ((seconds.to_bits() >> SHIFT) - BASE) as usize)
}

fn lower_edge(bin: usize) -> f64 {
    f64::from_bits((bin as u64 + BASE) << SHIFT)
}
