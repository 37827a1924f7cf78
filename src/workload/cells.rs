//! Distributions cut into cells: the sums over lengths that moments and points are made of.

/// Lengths that lie close together, as their probability and their moments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    /// Probability.
    pub weight: f64,
    /// Mean length.
    pub mean: f64,
    /// Variance within the cell.
    pub variance: f64,
    /// Third central moment within the cell.
    pub third: f64,
}

impl Cell {
    /// One length.
    pub fn atom(tokens: f64, weight: f64) -> Self {
        Self { weight, mean: tokens, ..Self::default() }
    }

    /// Equally likely whole numbers from `low` to `high`.
    pub fn stretch(low: u64, high: u64, weight: f64) -> Self {
        let count = (high - low) as f64 + 1.0;
        Self { weight, mean: low as f64 + (count - 1.0) / 2.0, variance: (count * count - 1.0) / 12.0, third: 0.0 }
    }

    /// Both cells as one; neither may be empty.
    fn merged(self, other: Self) -> Self {
        let weight = self.weight + other.weight;
        let (p, q) = (self.weight / weight, other.weight / weight);
        let distance = other.mean - self.mean;
        Self {
            weight,
            mean: self.mean + q * distance,
            variance: p * self.variance + q * other.variance + p * q * distance * distance,
            third: p * self.third
                + q * other.third
                + 3.0 * p * q * distance * (other.variance - self.variance)
                + p * q * (p - q) * distance.powi(3),
        }
    }

    /// All of them as one.
    pub fn whole(cells: &[Self]) -> Self {
        cells.iter().filter(|cell| cell.weight > 0.0).copied().reduce(Self::merged).unwrap_or_default()
    }

    /// One or two lengths with the weight and the first three moments of the cell (Gauss quadrature with two nodes): they lie between its
    /// shortest and longest length.
    pub fn nodes(&self) -> impl Iterator<Item = (f64, f64)> {
        let spread = self.variance.max(0.0).sqrt();
        let pair = if spread > 1e-9 * self.mean.abs().max(1.0) {
            let skew = self.third / self.variance;
            let root = (skew * skew + 4.0 * self.variance).sqrt();
            // Stable for any sign of the skew: the product of both distances is the variance.
            let far = 0.5 * (skew.abs() + root);
            let near = self.variance / far;
            let (below, above) = if skew >= 0.0 { (near, far) } else { (far, near) };
            let lower = above / (below + above);
            [(self.mean - below, self.weight * lower), (self.mean + above, self.weight * (1.0 - lower))]
        } else {
            [(self.mean, self.weight), (self.mean, 0.0)]
        };
        pair.into_iter().filter(|(_, weight)| *weight > 0.0)
    }
}

/// Sorted cells divided into `count` classes of equal probability; a cell on a border is divided in proportion.
pub(super) fn classes(cells: &[Cell], count: usize) -> Vec<Cell> {
    let total: f64 = cells.iter().map(|cell| cell.weight).sum();
    let share = total / count.max(1) as f64;
    let mut classes = Vec::with_capacity(count);
    let mut class: Option<Cell> = None;
    let mut room = share;
    for cell in cells {
        let mut left = cell.weight;
        while left > room && classes.len() + 1 < count {
            if room > 0.0 {
                let part = Cell { weight: room, ..*cell };
                class = Some(class.map_or(part, |class| class.merged(part)));
                left -= room;
            }
            classes.extend(class.take());
            room = share;
        }
        if left > 0.0 {
            let part = Cell { weight: left, ..*cell };
            class = Some(class.map_or(part, |class| class.merged(part)));
            room -= left;
        }
    }
    classes.extend(class);
    classes
}
