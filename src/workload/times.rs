//! Random arrival times.

use super::arrivals::Arrivals;
use super::error::WorkloadError;
use super::schedule::{RateSchedule, ScheduleEnd};
use crate::units::Seconds;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma};
use rand_pcg::Pcg64Mcg;

/// A random number from 0 to 1, 1 excluded, with 53 random bits.
pub(super) fn uniform<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A random index below `count`, which is not 0.
pub(super) fn index<R: Rng + ?Sized>(rng: &mut R, count: usize) -> usize {
    ((uniform(rng) * count as f64) as usize).min(count - 1)
}

/// Times at which requests arrive; made by [`Arrivals::times`].
#[derive(Clone, Debug)]
pub struct ArrivalTimes<'a> {
    rng: Pcg64Mcg,
    source: Source<'a>,
}

#[derive(Clone, Debug)]
enum Source<'a> {
    Renewal { gaps: Gaps, interval: f64, time: f64 },
    Regular { interval: f64, sent: u64 },
    Bursts { size: u64, interval: f64, sent: u64 },
    Schedule { gaps: Gaps, clock: Clock<'a> },
    Start { left: u64 },
}

impl<'a> ArrivalTimes<'a> {
    pub(super) fn new(arrivals: &'a Arrivals, seed: u64) -> Result<Self, WorkloadError> {
        let source = match arrivals {
            Arrivals::Poisson { rate } => {
                Source::Renewal { gaps: Gaps::Exponential, interval: rate.interval().as_seconds(), time: 0.0 }
            }
            Arrivals::Gamma { rate, burstiness } => {
                Source::Renewal { gaps: Gaps::new(*burstiness), interval: rate.interval().as_seconds(), time: 0.0 }
            }
            Arrivals::Uniform { rate } => Source::Regular { interval: rate.interval().as_seconds(), sent: 0 },
            Arrivals::Bursts { size, interval } => {
                Source::Bursts { size: *size, interval: interval.as_seconds(), sent: 0 }
            }
            Arrivals::Schedule(schedule) => {
                Source::Schedule { gaps: Gaps::new(schedule.burstiness()), clock: Clock::new(schedule) }
            }
            Arrivals::AllAtOnce { requests } => Source::Start { left: *requests },
            Arrivals::ClosedLoop { .. } => return Err(WorkloadError::NoTimes { arrivals: arrivals.name() }),
        };
        Ok(Self { rng: Pcg64Mcg::seed_from_u64(seed), source })
    }
}

impl Iterator for ArrivalTimes<'_> {
    type Item = Seconds;

    fn next(&mut self) -> Option<Seconds> {
        let time = match &mut self.source {
            Source::Renewal { gaps, interval, time } => {
                *time += gaps.draw(&mut self.rng) * *interval;
                *time
            }
            Source::Regular { interval, sent } => {
                *sent += 1;
                *sent as f64 * *interval
            }
            Source::Bursts { size, interval, sent } => {
                *sent += 1;
                (*sent).div_ceil(*size) as f64 * *interval
            }
            Source::Schedule { gaps, clock } => clock.advance(gaps.draw(&mut self.rng))?,
            Source::Start { left } => {
                *left = left.checked_sub(1)?;
                0.0
            }
        };
        Some(Seconds::from_seconds(time))
    }
}

/// Random gaps with mean 1.
#[derive(Clone, Debug)]
enum Gaps {
    Exponential,
    Gamma(Gamma<f64>),
}

impl Gaps {
    fn new(burstiness: f64) -> Self {
        match Gamma::new(burstiness, 1.0 / burstiness) {
            Ok(gamma) if burstiness != 1.0 => Self::Gamma(gamma),
            _ => Self::Exponential, // burstiness was checked: it is 1
        }
    }

    fn draw(&self, rng: &mut Pcg64Mcg) -> f64 {
        match self {
            // By the ziggurat of rand_distr: fast, and the same on every platform.
            Self::Exponential => Exp1.sample(rng),
            Self::Gamma(gamma) => gamma.sample(rng),
        }
    }
}

/// A clock on which requests of a schedule come at rate 1, and the time that it stands for.
#[derive(Clone, Debug)]
struct Clock<'a> {
    schedule: &'a RateSchedule,
    section: usize,
    /// When the section began.
    began: f64,
    /// How much of its requests have come.
    done: f64,
    held: bool,
}

impl<'a> Clock<'a> {
    fn new(schedule: &'a RateSchedule) -> Self {
        Self { schedule, section: 0, began: 0.0, done: 0.0, held: false }
    }

    /// The time at which `requests` more are due.
    fn advance(&mut self, requests: f64) -> Option<f64> {
        let mut left = requests;
        while !self.held {
            let Some(section) = self.schedule.sections().get(self.section) else {
                match self.schedule.end() {
                    ScheduleEnd::Repeat => self.section = 0,
                    ScheduleEnd::Hold => self.held = true,
                    ScheduleEnd::Stop => return None,
                }
                continue;
            };
            let due = self.done + left;
            if due < section.requests() {
                self.done = due;
                // The smaller root of from x + (to - from) x^2 / (2 duration) = due, without cancellation.
                let (from, to) = (section.from.as_requests_per_second(), section.to.as_requests_per_second());
                let rate = (from * from + 2.0 * (to - from) * due / section.duration.as_seconds()).max(0.0).sqrt();
                return Some(self.began + (2.0 * due / (from + rate)).min(section.duration.as_seconds()));
            }
            left = due - section.requests();
            self.done = 0.0;
            self.began += section.duration.as_seconds();
            self.section += 1;
        }
        self.began += left / self.schedule.mean_rate().as_requests_per_second();
        Some(self.began)
    }
}
