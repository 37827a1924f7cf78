//! Whether a deployment keeps up with the arrivals.

use super::totals::Totals;

/// Fewer requests than this only tell if the backlog grows fast.
const FEW_REQUESTS: u64 = 200;
/// How many deviations the slope of the line has to be away from 0.
const SURE_SLOPE: f64 = 3.0;
/// How many deviations the growth has to be away from what a random walk does.
const SURE_GROWTH: f64 = 2.0;
/// The end of the line over its start, from which on a backlog has grown.
const GROWN: f64 = 1.5;
/// The requests by which it has to have grown.
const GROWN_BY: f64 = 10.0;
/// Answers over arrivals, below which a deployment falls behind.
const BEHIND: f64 = 0.99;
/// The same, for few requests.
const FAR_BEHIND: f64 = 0.9;

/// Whether a deployment keeps up with the arrivals.
///
/// # Formula
/// Looks at the requests in the system at even numbers of arrivals, over the later half of them. The backlog grows if all of this holds:
///
/// - fewer than 99 % of the arrivals were answered in that half;
/// - a straight line through the backlog ends at more than 1.5 times its start, and more than 10 requests higher;
/// - its slope is more than 3 standard errors above 0, and the growth more than 2 deviations of a random walk with the same steps, because
///   a queue near saturation wanders far without growing.
///
/// If it falls behind and only one of the other two holds, the run is undecided. So is a run of fewer than 200 requests, unless fewer than
/// 90 % were answered; and one in which a request takes longer than the earlier half, since the system is still filling up.
///
/// Closed loops, and requests that are all there at the start, are steady by construction.
///
/// # Validity
/// A judgement about the run, not a proof: an overload of a few per cent takes thousands of requests to be told from a long queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Backlog {
    /// It keeps up.
    Steady,
    /// It does not.
    Growing {
        /// By how many requests the backlog grows per second.
        requests_per_second: f64,
    },
    /// The run is too short or too noisy to tell.
    #[default]
    Undecided,
}

impl Backlog {
    /// Of readings at even numbers of arrivals, where the first requests took `filling_s` without their time in the queue.
    pub(super) fn of(readings: &[Totals], filling_s: f64) -> Self {
        let later = &readings[readings.len() / 2..];
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else { return Self::Undecided };
        let Some(line) = Line::through(later) else { return Self::Undecided };
        let few = last.arrived < FEW_REQUESTS;
        if later[0].time_s - first.time_s < filling_s {
            return Self::Undecided;
        }
        let between = *last - later[0];
        let answered = between.completed as f64 / between.arrived as f64;
        let sure = line.deviations > SURE_SLOPE && walk_deviations(later) > SURE_GROWTH;
        let grown = line.end > line.start * GROWN && line.end > line.start + GROWN_BY;
        if answered < if few { FAR_BEHIND } else { BEHIND } {
            if sure && grown {
                return Self::Growing { requests_per_second: line.slope };
            }
            if sure || grown {
                return Self::Undecided;
            }
        }
        if few { Self::Undecided } else { Self::Steady }
    }

    /// Of several runs: what most of them say, and steady only if none grows.
    pub(super) fn of_runs(runs: &[Self]) -> Self {
        let growth = |run: &Self| match run {
            Self::Growing { requests_per_second } => Some(*requests_per_second),
            _ => None,
        };
        let growing: Vec<f64> = runs.iter().filter_map(growth).collect();
        let steady = runs.iter().filter(|run| **run == Self::Steady).count();
        if 2 * growing.len() > runs.len() {
            Self::Growing { requests_per_second: growing.iter().sum::<f64>() / growing.len() as f64 }
        } else if growing.is_empty() && 2 * steady > runs.len() {
            Self::Steady
        } else {
            Self::Undecided
        }
    }
}

/// A least-squares line through the requests in the system over time.
struct Line {
    slope: f64,
    start: f64,
    end: f64,
    /// The slope in units of its standard error.
    deviations: f64,
}

impl Line {
    /// None through fewer than four readings, or through a single moment.
    fn through(readings: &[Totals]) -> Option<Self> {
        let count = readings.len() as f64;
        let (first, last) = (readings.first()?, readings.last()?);
        if readings.len() < 4 || last.time_s <= first.time_s || last.arrived <= first.arrived {
            return None;
        }
        let mean_time = readings.iter().map(|reading| reading.time_s).sum::<f64>() / count;
        let mean = readings.iter().map(Totals::in_system).sum::<f64>() / count;
        let (mut times, mut products) = (0.0, 0.0);
        for reading in readings {
            let time = reading.time_s - mean_time;
            times += time * time;
            products += time * (reading.in_system() - mean);
        }
        let slope = products / times;
        let at = |time_s: f64| mean + slope * (time_s - mean_time);
        let residuals: f64 =
            readings.iter().map(|reading| (reading.in_system() - at(reading.time_s)).powi(2)).sum::<f64>();
        let error = (residuals / (count - 2.0) / times).sqrt();
        // On a perfect line the error is 0, and any growth is sure.
        let deviations = if slope == 0.0 { 0.0 } else { slope / error };
        Some(Self { slope, start: at(first.time_s), end: at(last.time_s), deviations })
    }
}

/// The growth in units of what a walk without drift does in as many steps of the same spread.
fn walk_deviations(readings: &[Totals]) -> f64 {
    let steps: Vec<f64> = readings.windows(2).map(|pair| pair[1].in_system() - pair[0].in_system()).collect();
    let count = steps.len() as f64;
    let growth: f64 = steps.iter().sum();
    let mean = growth / count;
    let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / (count - 1.0);
    if growth == 0.0 { 0.0 } else { growth / (variance * count).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of one system every 10 arrivals, 0.1 s apart.
    fn readings(in_system: impl Fn(u64) -> f64, count: u64) -> Vec<Totals> {
        let reading = |i: u64| {
            let arrived = i * 10 + 500;
            let completed = arrived - in_system(i) as u64;
            Totals { time_s: i as f64 / 10.0, arrived, completed, ..Totals::default() }
        };
        (0..count).map(reading).collect()
    }

    #[test]
    fn a_level_is_steady_and_a_ramp_grows() {
        assert_eq!(Backlog::of(&readings(|i| 20.0 + (i % 3) as f64, 60), 0.1), Backlog::Steady);
        match Backlog::of(&readings(|i| 3.0 * i as f64, 60), 0.1) {
            Backlog::Growing { requests_per_second } => assert!((requests_per_second - 30.0).abs() < 1.0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_system_that_fills_up_is_undecided() {
        assert_eq!(Backlog::of(&readings(|i| 3.0 * i as f64, 60), 3.5), Backlog::Undecided);
    }

    #[test]
    fn too_few_readings_are_undecided() {
        for count in 0..7 {
            assert_eq!(Backlog::of(&readings(|_| 1.0, count), 0.1), Backlog::Undecided);
        }
        let at_once = [Totals { arrived: 1000, ..Totals::default() }; 40];
        assert_eq!(Backlog::of(&at_once, 0.1), Backlog::Undecided);
    }

    #[test]
    fn most_runs_decide() {
        let growing = |requests_per_second| Backlog::Growing { requests_per_second };
        assert_eq!(Backlog::of_runs(&[growing(1.0), growing(3.0), Backlog::Steady]), growing(2.0));
        assert_eq!(Backlog::of_runs(&[Backlog::Steady, Backlog::Steady, Backlog::Undecided]), Backlog::Steady);
        assert_eq!(Backlog::of_runs(&[growing(1.0), Backlog::Steady, Backlog::Steady]), Backlog::Undecided);
        assert_eq!(Backlog::of_runs(&[]), Backlog::Undecided);
    }
}
