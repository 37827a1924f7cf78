//! Estimates and how certain they are.

use statrs::distribution::{ContinuousCDF, StudentsT};
use std::fmt;
use std::ops::{Add, Div, Sub};
use std::sync::OnceLock;

/// Half of the probability outside of a 95 % interval, on one side.
const UPPER: f64 = 0.975;
/// Correlation between neighbours that is taken for chance.
const CHANCE: f64 = 0.2;
/// Fewer sections are not joined to longer ones, nor tested for correlation.
const FEWEST_TO_JOIN: usize = 10;
/// The largest correlation that is believed: intervals become 4.4 times as wide.
const LARGEST: f64 = 0.9;

/// A number from a simulation, with its 95 % confidence interval.
///
/// # Formula
/// The run is cut into `b` sections of consecutive requests, at most 20. With `q[i]` the statistic of section `i`, `w[i]` its share of the
/// samples and `q` that of all, the half width is `t sqrt(b / (b - 1) sum(w[i]^2 (q[i] - q)^2))`, with Student's `t` for `b - 1` degrees of
/// freedom. With equal shares this is `t sqrt(sum((q[i] - q)^2) / (b (b - 1)))`: batch means for a mean, sectioning for a quantile. If
/// neighbouring sections (of ten or more) are correlated by `r > 0.2`, it is widened by `sqrt((1 + r) / (1 - r))`. Ten or more sections are
/// also joined by twos, those by twos again, and the widest interval counts, because long waits outlast short sections. Independent runs
/// are one section each, neither widened nor joined.
///
/// # Validity
/// None of fewer than two sections. Sections should be longer than the memory of the system: near saturation that takes many requests.
///
/// # References
/// S. Asmussen and P. W. Glynn, Stochastic Simulation, Springer 2007, section III.5 (sectioning) and chapter IV (batch means).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate<T> {
    /// The estimate.
    pub value: T,
    /// Half the width of the interval, if there is one.
    pub half_width: Option<T>,
}

impl<T> Estimate<T> {
    /// An estimate of which nothing is known beside its value.
    pub const fn new(value: T) -> Self {
        Self { value, half_width: None }
    }
}

impl<T: Copy> Estimate<T> {
    /// The lower end of the interval.
    pub fn low(&self) -> Option<T>
    where
        T: Sub<Output = T>,
    {
        self.half_width.map(|half| self.value - half)
    }

    /// The upper end of the interval.
    pub fn high(&self) -> Option<T>
    where
        T: Add<Output = T>,
    {
        self.half_width.map(|half| self.value + half)
    }

    /// Half the width of the interval as a share of the value.
    pub fn relative(&self) -> Option<f64>
    where
        T: Div<Output = f64>,
    {
        self.half_width.map(|half| half / self.value)
    }
}

/// `12.3 ms ± 0.200 ms`; the value alone where there is no interval. A precision applies to both numbers.
impl<T: fmt::Display> fmt::Display for Estimate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: &T| match f.precision() {
            Some(digits) => format!("{number:.digits$}"),
            None => number.to_string(),
        };
        let text = match &self.half_width {
            Some(half) => format!("{} ± {}", number(&self.value), number(half)),
            None => number(&self.value),
        };
        match (f.width(), f.align()) {
            (Some(width), Some(fmt::Alignment::Right)) => write!(f, "{text:>width$}"),
            (Some(width), Some(fmt::Alignment::Center)) => write!(f, "{text:^width$}"),
            (Some(width), _) => write!(f, "{text:<width$}"),
            (None, _) => f.write_str(&text),
        }
    }
}

/// A part of a run, or one of several runs: what came of it, and how many samples it had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Section {
    pub(super) value: f64,
    pub(super) samples: f64,
}

/// The same parts, joined by twos, and by fours: what the memory of a system makes of short sections, longer ones show.
pub(super) fn levels<T: Clone>(parts: Vec<T>, sections: Sections, join: impl Fn(&mut T, &T)) -> Vec<Vec<T>> {
    let mut levels = vec![parts];
    while sections == Sections::OfOneRun
        && let Some(finest) = levels.last()
        && finest.len() >= FEWEST_TO_JOIN
    {
        let joined = finest.chunks(2).map(|pair| {
            let mut joined = pair[0].clone();
            pair[1..].iter().for_each(|next| join(&mut joined, next));
            joined
        });
        let joined = joined.collect();
        levels.push(joined);
    }
    levels
}

/// Whether sections may be correlated with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sections {
    /// Consecutive parts of one run.
    OfOneRun,
    /// Runs of their own.
    Independent,
}

impl Sections {
    /// The widest that the interval is at any level; see [`Sections::half_width`].
    pub(super) fn widest<T>(
        self,
        value: f64,
        levels: &[Vec<T>],
        section: impl Fn(&T) -> Option<Section>,
    ) -> Option<f64> {
        let at_level = |parts: &Vec<T>| self.half_width(value, &parts.iter().filter_map(&section).collect::<Vec<_>>());
        levels.iter().filter_map(at_level).reduce(f64::max)
    }

    /// Half the width of the 95 % interval of a statistic that is `value` over all sections; none of fewer than two.
    pub(super) fn half_width(self, value: f64, sections: &[Section]) -> Option<f64> {
        let samples: f64 = sections.iter().map(|section| section.samples).sum();
        let count = sections.iter().filter(|section| section.samples > 0.0).count();
        if count < 2 {
            return None;
        }
        let filled = sections.iter().filter(|section| section.samples > 0.0);
        let squares: f64 =
            filled.clone().map(|section| (section.samples / samples * (section.value - value)).powi(2)).sum();
        let error = (squares * count as f64 / (count - 1) as f64).sqrt();
        let widening = match self {
            // Of few sections the correlation is not known.
            Self::OfOneRun if count >= FEWEST_TO_JOIN => {
                widening(&filled.map(|section| section.value).collect::<Vec<_>>())
            }
            _ => 1.0,
        };
        Some(student_t(count - 1) * error * widening).filter(|half| half.is_finite())
    }
}

/// By how much wider an interval is because neighbouring sections are alike.
pub(super) fn widening(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let with_next: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let correlation = (with_next / variance).min(LARGEST);
    if correlation > CHANCE { ((1.0 + correlation) / (1.0 - correlation)).sqrt() } else { 1.0 }
}

/// The 97.5 % quantile of Student's distribution. Those of one run's sections are computed once.
fn student_t(freedom: usize) -> f64 {
    static KNOWN: [OnceLock<f64>; 20] = [const { OnceLock::new() }; 20];
    let quantile =
        || StudentsT::new(0.0, 1.0, freedom as f64).map_or(f64::INFINITY, |student| student.inverse_cdf(UPPER));
    KNOWN.get(freedom).map_or_else(quantile, |known| *known.get_or_init(quantile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    fn equal(values: &[f64]) -> Vec<Section> {
        values.iter().map(|&value| Section { value, samples: 10.0 }).collect()
    }

    /// The column 0.975 of any table of Student's t.
    #[test]
    fn quantiles_of_student_are_those_of_the_tables() {
        for (freedom, expected) in [(1, 12.706_204_736), (9, 2.262_157_163), (19, 2.093_024_054), (59, 2.000_995_378)] {
            assert!((student_t(freedom) / expected - 1.0).abs() < 1e-8, "{freedom}: {}", student_t(freedom));
        }
    }

    /// The variance is 5 / 4, the standard error a half, and the quantile of Student's t for 4 degrees of freedom 2.776445.
    #[test]
    fn equal_sections_give_the_interval_of_the_mean() {
        let half = Sections::OfOneRun.half_width(2.5, &equal(&[1.0, 3.0, 2.0, 4.0, 2.5])).unwrap();
        assert!((half - 1.388_222).abs() < 1e-6, "{half}");
    }

    #[test]
    fn fewer_than_two_sections_have_no_interval() {
        assert_eq!(Sections::OfOneRun.half_width(1.0, &equal(&[1.0])), None);
        assert_eq!(Sections::Independent.half_width(1.0, &[]), None);
        let empty = [Section { value: 1.0, samples: 3.0 }, Section { value: f64::NAN, samples: 0.0 }];
        assert_eq!(Sections::OfOneRun.half_width(1.0, &empty), None);
    }

    #[test]
    fn correlated_sections_widen_the_interval() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        let half = |sections: Sections| sections.half_width(4.5, &equal(&rising)).unwrap();
        assert!(half(Sections::OfOneRun) > 2.0 * half(Sections::Independent));
        assert!(Sections::OfOneRun.half_width(3.0, &equal(&[3.0; 5])).unwrap().abs() < 1e-12);
    }

    #[test]
    fn sections_of_one_run_are_joined() {
        let sizes = |sections: Sections, count: u64| -> Vec<usize> {
            let levels = levels((0..count).collect(), sections, |sum, next| *sum += next);
            assert!(levels.iter().all(|level| level.iter().sum::<u64>() == (0..count).sum::<u64>()));
            levels.iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(Sections::OfOneRun, 20), [20, 10, 5]);
        assert_eq!(sizes(Sections::OfOneRun, 13), [13, 7]);
        assert_eq!(sizes(Sections::OfOneRun, 0), [0]);
        assert_eq!(sizes(Sections::Independent, 20), [20]);
    }

    #[test]
    fn estimates_print_their_interval() {
        let ms = Seconds::from_millis;
        let known = Estimate { value: ms(12.3), half_width: Some(ms(0.2)) };
        assert_eq!(known.to_string(), "12.3 ms ± 200 us");
        assert_eq!(Estimate::new(ms(12.3)).to_string(), "12.3 ms");
        assert_eq!(format!("{:>8.1}|", Estimate::new(0.25)), "     0.2|");
        assert_eq!((known.low(), known.high()), (Some(ms(12.3) - ms(0.2)), Some(ms(12.3) + ms(0.2))));
        assert!((known.relative().unwrap() - 0.2 / 12.3).abs() < 1e-12);
        assert_eq!(Estimate::new(1.0).relative(), None);
    }
}
