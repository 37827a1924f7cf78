//! Small dense matrices, for chains whose states come in levels.

/// A matrix of numbers, row by row.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// A matrix by its entries.
    pub(super) fn new(rows: usize, columns: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| entry(at / columns, at % columns)).collect();
        Self { columns, values }
    }

    pub(super) fn identity(size: usize) -> Self {
        Self::new(size, size, |row, column| f64::from(u8::from(row == column)))
    }

    pub(super) fn scaled(mut self, by: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= by);
        self
    }

    pub(super) fn negated(self) -> Self {
        self.scaled(-1.0)
    }

    /// The sum with `by` times another matrix.
    pub(super) fn plus(&self, other: &Self, by: f64) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| a + by * b).collect();
        Self { columns: self.columns, values }
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let rows = self.values.chunks(self.columns).flat_map(|row| other.after(row)).collect();
        Self { columns: other.columns, values: rows }
    }

    /// A row of numbers times the matrix.
    pub(super) fn after(&self, row: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; self.columns];
        for (factor, values) in row.iter().zip(self.values.chunks(self.columns)) {
            if *factor != 0.0 {
                product.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
            }
        }
        product
    }

    /// The largest absolute value.
    pub(super) fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |largest, value| value.abs().max(largest))
    }

    /// The inverse of a matrix whose diagonal dominates its rows, as those of Markov chains do: no row needs to be exchanged.
    pub(super) fn inverse(mut self) -> Self {
        let size = self.columns;
        let mut inverse = Self::identity(size);
        for pivot in 0..size {
            let scale = 1.0 / self.values[pivot * size + pivot];
            for values in [&mut self.values, &mut inverse.values] {
                values[pivot * size..(pivot + 1) * size].iter_mut().for_each(|value| *value *= scale);
            }
            let (row, inverse_row) = (self.row(pivot).to_vec(), inverse.row(pivot).to_vec());
            for other in (0..size).filter(|&other| other != pivot) {
                let factor = self.values[other * size + pivot];
                if factor == 0.0 {
                    continue;
                }
                for (values, row) in [(&mut self.values, &row), (&mut inverse.values, &inverse_row)] {
                    let target = &mut values[other * size..(other + 1) * size];
                    target.iter_mut().zip(row).for_each(|(value, subtracted)| *value -= factor * subtracted);
                }
            }
        }
        inverse
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }
}
