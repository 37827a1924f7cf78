//! Sums of a Poisson number of random sizes.

/// Probabilities of sums of a Poisson number of sizes (H. Panjer, ASTIN Bulletin 12 (1981) 22), and the same times the mean number that makes up the sum.
pub(crate) struct CompoundPoisson {
    pub(crate) sums: Vec<f64>,
    pub(crate) numbers: Vec<f64>,
}

impl CompoundPoisson {
    /// `sizes` are the probabilities of the sizes from 0 on, of which that of 0 is 0; the last sum takes what lies beyond.
    pub(crate) fn new(mean: f64, sizes: &[f64], length: usize) -> Self {
        let (mut sums, mut numbers) = (vec![0.0; length], vec![0.0; length]);
        sums[0] = (-mean).exp();
        for total in 1..length {
            let (mut weighted, mut one_more) = (0.0, 0.0);
            for size in 1..=total.min(sizes.len() - 1) {
                let probability = sizes[size] * sums[total - size];
                one_more += probability;
                weighted += size as f64 * probability;
            }
            sums[total] = mean / total as f64 * weighted;
            numbers[total] = mean * one_more;
        }
        if let (Some(sum), Some(number)) = (sums.last().copied(), numbers.last().copied()) {
            let (beyond, more) = (1.0 - sums.iter().sum::<f64>(), mean - numbers.iter().sum::<f64>());
            sums[length - 1] = sum + beyond.max(0.0);
            numbers[length - 1] = number + more.max(0.0);
        }
        Self { sums, numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of 2: even sums are Poisson probabilities, and each is made up of half as many.
    #[test]
    fn sizes_of_two_are_poisson() {
        let found = CompoundPoisson::new(1.5, &[0.0, 0.0, 1.0], 60);
        let mut probability = (-1.5_f64).exp();
        for number in 0..20 {
            assert!((found.sums[2 * number] / probability - 1.0).abs() < 1e-12, "{number}");
            assert_eq!(found.sums[2 * number + 1], 0.0);
            assert!((found.numbers[2 * number] - number as f64 * probability).abs() < 1e-12, "{number}");
            probability *= 1.5 / (number as f64 + 1.0);
        }
        let mean: f64 = found.sums.iter().enumerate().map(|(sum, probability)| sum as f64 * probability).sum();
        assert!((mean - 3.0).abs() < 1e-12, "{mean}");
    }
}
