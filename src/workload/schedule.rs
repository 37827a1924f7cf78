//! Request rates that change with time.

use super::arrivals::{check_burstiness, check_rate};
use super::error::{WorkloadError, at_least, checked, positive};
use crate::units::{RequestsPerSecond, Seconds};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Sections into which a curve is divided: the error of a straight line over one is below a thousandth of the peak.
const CURVE_SECTIONS: u32 = 96;

/// What comes after the last section of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleEnd {
    /// The schedule starts again: a day after a day.
    #[default]
    Repeat,
    /// The last rate stays: a ramp up to a steady load.
    Hold,
    /// No more requests.
    Stop,
}

/// A time over which the rate is constant, or changes along a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSection {
    /// How long it lasts.
    pub duration: Seconds,
    /// Rate at its start.
    pub from: RequestsPerSecond,
    /// Rate at its end.
    pub to: RequestsPerSecond,
}

impl RateSection {
    /// A constant rate.
    pub const fn constant(duration: Seconds, rate: RequestsPerSecond) -> Self {
        Self { duration, from: rate, to: rate }
    }

    /// Mean number of requests in it.
    pub fn requests(&self) -> f64 {
        0.5 * (self.from + self.to).requests_in(self.duration)
    }
}

/// How vLLM's client raises its rate (`--ramp-up-strategy`): with the number of requests sent, not with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RampUp {
    /// By the same rate with each request; over time, that is exponential growth.
    Linear,
    /// By the same factor with each request; over time, the gaps shrink along a straight line.
    Exponential,
}

/// A request rate that changes with time, with random arrivals around it.
///
/// ```
/// use llm_roofline::units::{RequestsPerSecond, Seconds};
/// use llm_roofline::workload::{Arrivals, RateSchedule};
///
/// let rate = RequestsPerSecond::from_requests_per_second;
/// // A day: 10 req/s on average, 18 at noon, 2 at midnight.
/// let day = RateSchedule::day_curve(rate(10.0), rate(18.0), Seconds::from_seconds(86_400.0))?;
/// assert_eq!(format!("{:.3} {:.3}", day.mean_rate(), day.peak_rate()), "10.000 req/s 18.000 req/s");
/// assert!((day.rate_at(Seconds::from_seconds(0.0)).as_requests_per_second() - 2.0).abs() < 1e-9);
/// let arrivals = Arrivals::schedule(day);
/// assert_eq!(arrivals.gap_variation(), Some(1.0));
/// # Ok::<(), llm_roofline::workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawSchedule")]
pub struct RateSchedule {
    sections: Vec<RateSection>,
    end: ScheduleEnd,
    burstiness: f64,
}

impl RateSchedule {
    /// A schedule of sections, one after the other.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without sections; [`WorkloadError::OutOfRange`] for durations that are not above 0, rates that are negative or
    /// beyond 10^12, if there is not a request in 10^9 seconds on average, or if the rate that stays is 0.
    pub fn new(sections: Vec<RateSection>, end: ScheduleEnd) -> Result<Self, WorkloadError> {
        at_least("sections of a schedule", sections.len() as u64, 1)?;
        for section in &sections {
            let duration = section.duration.as_seconds();
            checked("duration of a section", duration, "from 10^-9 to 10^12 s", (1e-9..=1e12).contains(&duration))?;
            for rate in [section.from, section.to] {
                let rate = rate.as_requests_per_second();
                checked("request rate", rate, "from 0 to 10^12 req/s", (0.0..=1e12).contains(&rate))?;
            }
        }
        let schedule = Self { sections, end, burstiness: 1.0 };
        let mean = schedule.mean_rate().as_requests_per_second();
        checked("mean rate of a schedule", mean, "at least 10^-9 req/s", mean >= 1e-9)?;
        Ok(schedule)
    }

    /// Constant rates, each for some time.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn steps(steps: &[(Seconds, RequestsPerSecond)], end: ScheduleEnd) -> Result<Self, WorkloadError> {
        Self::new(steps.iter().map(|&(duration, rate)| RateSection::constant(duration, rate)).collect(), end)
    }

    /// A rate that changes along a straight line over a time, and then stays.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn ramp(from: RequestsPerSecond, to: RequestsPerSecond, duration: Seconds) -> Result<Self, WorkloadError> {
        Self::new(vec![RateSection { duration, from, to }], ScheduleEnd::Hold)
    }

    /// vLLM's ramp over so many requests (`--ramp-up-strategy`, `--ramp-up-start-rps`, `--ramp-up-end-rps`, `--num-prompts`), after which it
    /// stops.
    ///
    /// # Formula
    /// With `i` of `N` requests sent the rate is `a + (b - a) i/N` (linear) or `a (b/a)^(i/N)` (exponential); over time, `dλ/dt = λ dλ/di`.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for rates that are not above 0, [`WorkloadError::TooFew`] for fewer than two requests.
    pub fn ramp_up(
        strategy: RampUp,
        from: RequestsPerSecond,
        to: RequestsPerSecond,
        requests: u64,
    ) -> Result<Self, WorkloadError> {
        let (a, b) = (check_rate(from)?, check_rate(to)?);
        at_least("requests of a ramp", requests, 2)?;
        let at = |step: u32| {
            let progress = f64::from(step) / f64::from(CURVE_SECTIONS);
            match strategy {
                RampUp::Linear => a + (b - a) * progress,
                RampUp::Exponential => a * (b / a).powf(progress),
            }
        };
        let share = requests as f64 / f64::from(CURVE_SECTIONS);
        let section = |step| {
            let (from, to) = (at(step), at(step + 1));
            let rate = RequestsPerSecond::from_requests_per_second;
            RateSection { duration: Seconds::from_seconds(2.0 * share / (from + to)), from: rate(from), to: rate(to) }
        };
        Self::new((0..CURVE_SECTIONS).map(section).collect(), ScheduleEnd::Stop)
    }

    /// A sine around a mean rate, lowest at the start and at its peak after half the period, again and again.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a peak below the mean or above twice the mean, else as [`new`](Self::new).
    pub fn day_curve(mean: RequestsPerSecond, peak: RequestsPerSecond, period: Seconds) -> Result<Self, WorkloadError> {
        let (middle, top) = (check_rate(mean)?, check_rate(peak)?);
        checked("peak over mean rate", top / middle, "from 1 to 2", (1.0..=2.0).contains(&(top / middle)))?;
        let at = |step: u32| {
            let phase = TAU * f64::from(step) / f64::from(CURVE_SECTIONS);
            RequestsPerSecond::from_requests_per_second((middle - (top - middle) * phase.cos()).max(0.0))
        };
        let duration = period / f64::from(CURVE_SECTIONS);
        let section = |step| RateSection { duration, from: at(step), to: at(step + 1) };
        Self::new((0..CURVE_SECTIONS).map(section).collect(), ScheduleEnd::Repeat)
    }

    /// The same schedule with gaps that are gamma distributed around the rate of the moment (vLLM: `--burstiness`).
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a burstiness beyond 10^-4 to 10^9.
    pub fn with_burstiness(self, burstiness: f64) -> Result<Self, WorkloadError> {
        check_burstiness(burstiness)?;
        Ok(Self { burstiness, ..self })
    }

    /// The same schedule with all rates times a factor.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a factor that is not above 0, or rates that leave the range.
    pub fn with_rates_times(&self, factor: f64) -> Result<Self, WorkloadError> {
        positive("factor of the rate", factor, "a number above 0")?;
        let scale =
            |section: &RateSection| RateSection { from: section.from * factor, to: section.to * factor, ..*section };
        let scaled = Self::new(self.sections.iter().map(scale).collect(), self.end)?;
        scaled.with_burstiness(self.burstiness)
    }

    /// The sections.
    pub fn sections(&self) -> &[RateSection] {
        &self.sections
    }

    /// What comes after the last one.
    pub fn end(&self) -> ScheduleEnd {
        self.end
    }

    /// Shape of the gaps: 1 is Poisson.
    pub fn burstiness(&self) -> f64 {
        self.burstiness
    }

    /// How long the sections last together.
    pub fn duration(&self) -> Seconds {
        self.sections.iter().map(|section| section.duration).sum()
    }

    /// Mean number of requests in all sections.
    pub fn requests(&self) -> f64 {
        self.sections.iter().map(RateSection::requests).sum()
    }

    /// The rate in the long run: over all sections, or the last one's where that stays.
    pub fn mean_rate(&self) -> RequestsPerSecond {
        match (self.end, self.sections.last()) {
            (ScheduleEnd::Hold, Some(last)) => last.to,
            _ => RequestsPerSecond::from_requests_per_second(self.requests() / self.duration().as_seconds()),
        }
    }

    /// The highest rate.
    pub fn peak_rate(&self) -> RequestsPerSecond {
        self.sections.iter().fold(RequestsPerSecond::ZERO, |peak, section| peak.max(section.from).max(section.to))
    }

    /// The rate at a time after the start.
    pub fn rate_at(&self, time: Seconds) -> RequestsPerSecond {
        let mut left = time.as_seconds().max(0.0);
        if self.end == ScheduleEnd::Repeat {
            left %= self.duration().as_seconds();
        }
        for section in self.sections.iter() {
            let duration = section.duration.as_seconds();
            if left < duration {
                return section.from + (section.to - section.from) * (left / duration);
            }
            left -= duration;
        }
        match (self.end, self.sections.last()) {
            (ScheduleEnd::Hold, Some(last)) => last.to,
            (ScheduleEnd::Repeat, _) => self.sections[0].from, // rounding at the end of the period
            _ => RequestsPerSecond::ZERO,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSchedule {
    sections: Vec<RateSection>,
    #[serde(default)]
    end: ScheduleEnd,
    #[serde(default = "one")]
    burstiness: f64,
}

fn one() -> f64 {
    1.0
}

impl TryFrom<RawSchedule> for RateSchedule {
    type Error = WorkloadError;

    fn try_from(raw: RawSchedule) -> Result<Self, WorkloadError> {
        Self::new(raw.sections, raw.end)?.with_burstiness(raw.burstiness)
    }
}
