//! Replicas through the day: a fleet of one size against one that follows the load.

use super::super::PlannerError;
use super::super::error::{above_zero, not_negative};
use super::finite;
use crate::units::{RequestsPerSecond, Seconds, Usd, UsdPerHour, UsdPerMillionTokens};
use crate::workload::{RateSchedule, RateSection};
use serde::Serialize;
use std::fmt;

/// A day in seconds.
const DAY: Seconds = Seconds::from_seconds(86_400.0);
/// Days of a month of 730 hours.
const DAYS_PER_MONTH: f64 = 730.0 / 24.0;
/// Beyond so many replicas, or changes of their number, something is wrong with the input.
const MOST: f64 = 1e9;
const MOST_STRETCHES: f64 = 1e5;

/// Replicas that serve a load which changes with the time of day.
///
/// # Formula
/// A stretch of the schedule with the highest rate `r` needs `ceil(r (1 + headroom) / capacity)` replicas, the fleet of one size as many as the busiest
/// stretch. With `T` the time of a stretch and `n` its replicas,
/// ```text
/// cost        = price * devices * (sum of n T)
/// utilization = requests / (capacity * sum of n T)        idle = cost (1 - utilization)
/// ```
///
/// # Validity
/// The sections of the schedule are one period, and the day consists of such periods, whatever [`RateSchedule::end`] says. Replicas start and stop in no time, are paid by
/// the second, and share the load evenly; what starting takes belongs into the headroom, or into longer stretches.
///
/// ```
/// use llm_roofline::planner::Fleet;
/// use llm_roofline::workload::RateSchedule;
/// // 30 requests per second on average, 54 at noon; a replica of one device serves 4 within its limits.
/// let day = RateSchedule::day_curve("30 req/s".parse()?, "54 req/s".parse()?, "24 h".parse()?)?;
/// let fleet = Fleet::new(&day, "4 req/s".parse()?, 1, "2.69 USD/h".parse()?)?.with_output_tokens(250.0)?;
/// let plan = fleet.with_stretches_of("1 h".parse()?)?.plan()?;
/// assert_eq!((plan.fixed.most_replicas, plan.following.most_replicas), (14, 14));
/// assert_eq!(plan.fixed.usd_per_day.to_string(), "903.8 USD"); // 14 * 24 h * 2.69 USD/h
/// assert!(plan.saved_share() > 0.3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet<'a> {
    schedule: &'a RateSchedule,
    capacity: RequestsPerSecond,
    devices_per_replica: u32,
    usd_per_device_hour: UsdPerHour,
    headroom: f64,
    fewest: u64,
    stretch: Option<Seconds>,
    output_tokens: Option<f64>,
}

/// A time with one number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FleetStretch {
    /// When it starts, from the start of the schedule.
    pub start: Seconds,
    /// How long it lasts.
    pub duration: Seconds,
    /// The highest rate in it.
    pub peak_rate: RequestsPerSecond,
    /// Replicas that it needs.
    pub replicas: u64,
}

/// What a fleet costs, of one size or following the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FleetCost {
    /// Replicas in the busiest stretch.
    pub most_replicas: u64,
    /// Replicas, averaged over time.
    pub mean_replicas: f64,
    /// Hours of devices that are paid in a day.
    pub device_hours_per_day: f64,
    /// What a day costs.
    pub usd_per_day: Usd,
    /// What a month of 730 hours costs.
    pub usd_per_month: Usd,
    /// Requests over what the replicas could serve.
    pub utilization: f64,
    /// The part of `usd_per_day` that pays for replicas while they could serve more.
    pub idle_usd_per_day: Usd,
    /// The cost on output tokens alone; none unless the fleet knows their number.
    pub usd_per_million_output_tokens: Option<UsdPerMillionTokens>,
}

/// A fleet of one size beside one that follows the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FleetPlan {
    /// As many replicas as the peak needs, all the time.
    pub fixed: FleetCost,
    /// As many as each stretch needs.
    pub following: FleetCost,
    /// The stretches of one period of the schedule.
    pub stretches: Vec<FleetStretch>,
    /// Requests of a day.
    pub requests_per_day: f64,
}

impl<'a> Fleet<'a> {
    /// Replicas that each serve so many requests per second (see [`Server::max_rate_under`](crate::serving::Server::max_rate_under)), on so many devices at this price.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a capacity that is not above 0, no devices, or a price that is negative.
    pub fn new(
        schedule: &'a RateSchedule,
        capacity: RequestsPerSecond,
        devices_per_replica: u32,
        usd_per_device_hour: UsdPerHour,
    ) -> Result<Self, PlannerError> {
        above_zero("the capacity of a replica in requests per second", capacity.as_requests_per_second())?;
        above_zero("the number of devices of a replica", f64::from(devices_per_replica))?;
        not_negative("the price of a device in USD per hour", usd_per_device_hour.as_usd_per_hour())?;
        let (headroom, fewest, stretch, output_tokens) = (0.0, 0, None, None);
        Ok(Self {
            schedule,
            capacity,
            devices_per_replica,
            usd_per_device_hour,
            headroom,
            fewest,
            stretch,
            output_tokens,
        })
    }

    /// With room for that share more than the rate; without, there is none.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a share that is negative.
    pub fn with_headroom(self, headroom: f64) -> Result<Self, PlannerError> {
        Ok(Self { headroom: not_negative("the headroom", headroom)?, ..self })
    }

    /// Never with fewer replicas; without, a time without requests has none.
    #[must_use]
    pub fn with_fewest_replicas(self, replicas: u64) -> Self {
        Self { fewest: replicas, ..self }
    }

    /// With a number of replicas that changes only at multiples of this time: an hour, say. Without, it may change with each section of the schedule.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a time that is not above 0, or of which the schedule has more than 100,000.
    pub fn with_stretches_of(self, time: Seconds) -> Result<Self, PlannerError> {
        let length = above_zero("the length of a stretch in seconds", time.as_seconds())?;
        let value = self.schedule.duration().as_seconds() / length;
        if value > MOST_STRETCHES {
            let what = "the number of stretches of a schedule";
            return Err(PlannerError::Number { what, value, expected: "100,000 at most" });
        }
        Ok(Self { stretch: Some(time), ..self })
    }

    /// With so many output tokens per request in the mean, for their price.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a number that is not above 0.
    pub fn with_output_tokens(self, mean: f64) -> Result<Self, PlannerError> {
        Ok(Self { output_tokens: Some(above_zero("the mean number of output tokens", mean)?), ..self })
    }

    /// The fleet of one size, and the one that follows the load.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for more than 10^9 replicas, or costs that are not finite.
    pub fn plan(&self) -> Result<FleetPlan, PlannerError> {
        let stretches = self.stretches()?;
        let most = stretches.iter().map(|stretch| stretch.replicas).max().unwrap_or(self.fewest);
        let period = self.schedule.duration();
        let busy = stretches.iter().map(|stretch| stretch.duration * stretch.replicas as f64).sum();
        let requests_per_day = self.schedule.requests() * (DAY / period);
        Ok(FleetPlan {
            fixed: self.cost(most, period * most as f64)?,
            following: self.cost(most, busy)?,
            stretches,
            requests_per_day,
        })
    }

    /// Times with one number of replicas each.
    fn stretches(&self) -> Result<Vec<FleetStretch>, PlannerError> {
        let mut sections = Vec::new();
        let mut start = Seconds::ZERO;
        for section in self.schedule.sections() {
            sections.push((start, section));
            start += section.duration;
        }
        let peak = |section: &RateSection| section.from.max(section.to);
        let Some(length) = self.stretch else {
            return sections.iter().map(|(start, part)| self.stretch(*start, part.duration, peak(part))).collect();
        };
        let period = self.schedule.duration();
        // A period of whole stretches has no more of them because of rounding.
        let count = (period / length - 1e-9).ceil().max(1.0) as u64;
        let window = |index: u64| {
            let from = length * index as f64;
            let to = if index + 1 == count { period } else { length * (index + 1) as f64 };
            let rates = sections.iter().filter_map(|(start, section)| peak_within(*start, section, from, to));
            self.stretch(from, to - from, rates.fold(RequestsPerSecond::ZERO, RequestsPerSecond::max))
        };
        (0..count).map(window).collect()
    }

    fn stretch(
        &self,
        start: Seconds,
        duration: Seconds,
        peak_rate: RequestsPerSecond,
    ) -> Result<FleetStretch, PlannerError> {
        let wanted = peak_rate * (1.0 + self.headroom) / self.capacity;
        if wanted > MOST {
            let what = "the number of replicas";
            return Err(PlannerError::Number { what, value: wanted, expected: "10^9 at most" });
        }
        // Three times the capacity needs three replicas, whatever rounding says.
        let replicas = ((wanted * (1.0 - 1e-12)).ceil() as u64).max(self.fewest);
        Ok(FleetStretch { start, duration, peak_rate, replicas })
    }

    /// The cost with so much time of replicas in one period.
    fn cost(&self, most_replicas: u64, time: Seconds) -> Result<FleetCost, PlannerError> {
        let period = self.schedule.duration();
        let (days, requests) = (period / DAY, self.schedule.requests());
        let device_time = time * (f64::from(self.devices_per_replica) / days);
        let usd_per_day = finite("the cost of a day in USD", self.usd_per_device_hour * device_time, Usd::as_usd)?;
        // Nothing but rounding lifts it above 1.
        let utilization = (requests / self.capacity.requests_in(time)).min(1.0);
        let tokens_per_day = self.output_tokens.map(|tokens| requests / days * tokens);
        let per_million = tokens_per_day.map(|tokens| usd_per_day.as_usd() / tokens * 1e6);
        Ok(FleetCost {
            most_replicas,
            mean_replicas: time / period,
            device_hours_per_day: device_time.as_seconds() / 3600.0,
            usd_per_day,
            usd_per_month: finite("the cost of a month in USD", usd_per_day * DAYS_PER_MONTH, Usd::as_usd)?,
            utilization,
            idle_usd_per_day: usd_per_day * (1.0 - utilization),
            usd_per_million_output_tokens: per_million
                .filter(|price| price.is_finite())
                .map(UsdPerMillionTokens::from_usd_per_million_tokens),
        })
    }
}

/// The highest rate of a section between two times, if it lies there at all.
fn peak_within(start: Seconds, section: &RateSection, from: Seconds, to: Seconds) -> Option<RequestsPerSecond> {
    let (first, last) = (start.max(from), (start + section.duration).min(to));
    let rate = |time: Seconds| {
        section.from + (section.to - section.from) * ((time - start) / section.duration).clamp(0.0, 1.0)
    };
    (last > first).then(|| rate(first).max(rate(last)))
}

impl FleetPlan {
    /// What following the load saves in a day.
    pub fn saved_usd_per_day(&self) -> Usd {
        self.fixed.usd_per_day - self.following.usd_per_day
    }

    /// The same as a share of what the fleet of one size is paid for.
    pub fn saved_share(&self) -> f64 {
        1.0 - self.following.mean_replicas / self.fixed.mean_replicas
    }
}

impl fmt::Display for FleetCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most_replicas, mean_replicas, usd_per_day, usd_per_month, utilization, .. } = self;
        let percent = 100.0 * utilization;
        write!(
            f,
            "{mean_replicas:.1} replicas on average, {most_replicas} at most: {usd_per_day:.0} a day, {usd_per_month:.0} a month, {percent:.0} % used"
        )?;
        match self.usd_per_million_output_tokens {
            Some(price) => write!(f, ", {price:.3} of output"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FleetPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.saved_share();
        write!(f, "one size: {}\nfollowing: {} ({percent:.0} % less)", self.fixed, self.following)
    }
}
