//! Buying a device against renting it.

use super::super::PlannerError;
use super::super::error::{above_zero, not_negative, share};
use super::finite;
use crate::units::{Seconds, Usd, UsdPerHour, Watts};
use serde::Serialize;
use std::fmt;

/// An hour.
const HOUR: Seconds = Seconds::from_seconds(3600.0);

/// A device that is bought: what it costs at once, and what it costs to run.
///
/// # Formula
/// With purchase `P`, residual value `R`, electricity at `e`, other cost `c` per hour, and a device that is used for the share `u` of all hours:
/// ```text
/// running(u) = c + e (W_used u + W_unused (1 - u))          per hour of the calendar
/// owned(t)   = P - R + t running(u)
/// rented(t)  = t rent u
/// ```
/// They are equal after `t = (P - R) / (rent u - running(u))`, and over the lifetime `L` at the use `u = ((P - R)/L + running(0)) / (rent - e (W_used - W_unused))`.
///
/// # Units
/// All is per device, with its share of server, network and racks. Power is that of the facility, cooling included ([`EnergyUse`](crate::planner::EnergyUse)).
///
/// # Validity
/// Free of interest: put what capital costs into the other cost. The device is sold for the residual value whenever that is. Rent is paid for the hours of use only; a device
/// that is reserved by the month is one with `u = 1`.
///
/// ```
/// use llm_roofline::planner::Ownership;
/// use llm_roofline::units::Usd;
/// let device = Ownership::new(Usd::from_usd(35_000.0), "1460 d".parse()?)?
///     .with_electricity(0.10, "1200 W".parse()?, "200 W".parse()?)?
///     .with_other_cost("0.20 USD/h".parse()?)?;
/// let rent = "2.69 USD/h".parse()?;
/// let always = device.breakeven(rent, 1.0)?.unwrap();
/// assert_eq!(always.to_string(), "even after 14768 h (20.2 months of 730 h), within the lifetime"); // 35,000 / (2.69 - 0.20 - 0.12)
/// assert_eq!(format!("{:.3}", device.breakeven_use(rent)?.unwrap()), "0.471");
/// // Used less than that, it never pays.
/// assert!(!device.breakeven(rent, 0.4)?.unwrap().within_lifetime);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ownership {
    purchase: Usd,
    residual: Usd,
    lifetime: Seconds,
    usd_per_kwh: f64,
    used: Watts,
    unused: Watts,
    other: UsdPerHour,
}

/// When a device that is bought has cost as much as one that is rented.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Breakeven {
    /// After so much time of the calendar.
    pub after: Seconds,
    /// Whether the device lives that long.
    pub within_lifetime: bool,
}

impl Ownership {
    /// A device at this price that is in service for this time. Until they are stated, running it costs nothing and nobody buys it in the end.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a price that is negative, or a lifetime that is not above 0.
    pub fn new(purchase: Usd, lifetime: Seconds) -> Result<Self, PlannerError> {
        not_negative("the purchase price in USD", purchase.as_usd())?;
        above_zero("the lifetime in seconds", lifetime.as_seconds())?;
        let (residual, other) = (Usd::ZERO, UsdPerHour::ZERO);
        Ok(Self { purchase, residual, lifetime, usd_per_kwh: 0.0, used: Watts::ZERO, unused: Watts::ZERO, other })
    }

    /// With electricity at this price, and the power that the facility takes while the device is used, and while it is not (0 if it is switched off).
    ///
    /// # Errors
    /// [`PlannerError::Number`] for negative numbers, or more power without use than with it.
    pub fn with_electricity(self, usd_per_kwh: f64, used: Watts, unused: Watts) -> Result<Self, PlannerError> {
        let usd_per_kwh = not_negative("the price of electricity in USD per kWh", usd_per_kwh)?;
        not_negative("the power in use in watts", used.as_watts())?;
        let value = not_negative("the power without use in watts", unused.as_watts())?;
        if unused > used {
            let what = "the power without use in watts";
            return Err(PlannerError::Number { what, value, expected: "at most the power in use" });
        }
        Ok(Self { usd_per_kwh, used, unused, ..self })
    }

    /// With other cost per hour of the calendar: colocation, staff, maintenance, interest.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a cost that is negative.
    pub fn with_other_cost(self, other: UsdPerHour) -> Result<Self, PlannerError> {
        not_negative("the other cost in USD per hour", other.as_usd_per_hour())?;
        Ok(Self { other, ..self })
    }

    /// With a price for which the device is sold in the end.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a price that is negative, or above that of the purchase.
    pub fn with_residual(self, residual: Usd) -> Result<Self, PlannerError> {
        let value = not_negative("the residual value in USD", residual.as_usd())?;
        if residual > self.purchase {
            let what = "the residual value in USD";
            return Err(PlannerError::Number { what, value, expected: "at most the purchase price" });
        }
        Ok(Self { residual, ..self })
    }

    /// What running the device costs per hour of the calendar, when it is used for this share of them.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a use that is no share.
    pub fn running_cost(&self, used: f64) -> Result<UsdPerHour, PlannerError> {
        let used = share("the share of hours in use", used)?;
        let power = self.used * used + self.unused * (1.0 - used);
        let electricity = UsdPerHour::from_usd_per_hour(self.usd_per_kwh * power.as_kilowatts());
        finite("the running cost in USD per hour", self.other + electricity, UsdPerHour::as_usd_per_hour)
    }

    /// What the device costs per hour of the calendar over its lifetime, purchase included, when it is used for this share of them.
    ///
    /// # Errors
    /// As [`running_cost`](Self::running_cost).
    pub fn cost_per_hour(&self, used: f64) -> Result<UsdPerHour, PlannerError> {
        let bought = UsdPerHour::from_usd_per_hour(self.lost_value().as_usd() / (self.lifetime / HOUR));
        let cost = bought + self.running_cost(used)?;
        finite("the cost of an owned device in USD per hour", cost, UsdPerHour::as_usd_per_hour)
    }

    /// The same per hour of use: what a rent has to be compared with. None without use.
    ///
    /// # Errors
    /// As [`running_cost`](Self::running_cost).
    pub fn cost_per_used_hour(&self, used: f64) -> Result<Option<UsdPerHour>, PlannerError> {
        let cost = self.cost_per_hour(used)? / used;
        Ok(cost.is_finite().then_some(cost))
    }

    /// What the device has cost after some time of the calendar, if it is sold then.
    ///
    /// # Errors
    /// As [`running_cost`](Self::running_cost), and for a time that is negative.
    ///
    /// # Validity
    /// Beyond the lifetime it is still the same device: the next one is not counted.
    pub fn owned_after(&self, time: Seconds, used: f64) -> Result<Usd, PlannerError> {
        not_negative("the time in seconds", time.as_seconds())?;
        finite("the cost of an owned device in USD", self.lost_value() + self.running_cost(used)? * time, Usd::as_usd)
    }

    /// What renting one for the hours of use has cost after some time of the calendar.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a rent or a time that is negative, or a use that is no share.
    pub fn rented_after(rent: UsdPerHour, time: Seconds, used: f64) -> Result<Usd, PlannerError> {
        not_negative("the rent in USD per hour", rent.as_usd_per_hour())?;
        not_negative("the time in seconds", time.as_seconds())?;
        finite(
            "the cost of a rented device in USD",
            rent * time * share("the share of hours in use", used)?,
            Usd::as_usd,
        )
    }

    /// When buying has cost as much as renting. None if running the device costs as much as the rent, so that buying never pays.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a rent that is negative, or a use that is no share.
    pub fn breakeven(&self, rent: UsdPerHour, used: f64) -> Result<Option<Breakeven>, PlannerError> {
        not_negative("the rent in USD per hour", rent.as_usd_per_hour())?;
        let saved = rent * used - self.running_cost(used)?;
        let after = self.lost_value() / saved;
        let exists = saved > UsdPerHour::ZERO && after.is_finite();
        Ok(exists.then(|| Breakeven { after, within_lifetime: after <= self.lifetime }))
    }

    /// The share of hours in use at which buying costs as much as renting over the lifetime; more use favours buying. None if no use is enough.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a rent that is negative.
    pub fn breakeven_use(&self, rent: UsdPerHour) -> Result<Option<f64>, PlannerError> {
        not_negative("the rent in USD per hour", rent.as_usd_per_hour())?;
        let unused = self.cost_per_hour(0.0)?;
        let more = self.cost_per_hour(1.0)? - unused;
        let used = unused / (rent - more);
        Ok((rent > more && used <= 1.0).then_some(used))
    }

    fn lost_value(&self) -> Usd {
        self.purchase - self.residual
    }
}

impl Breakeven {
    /// The time in months of 730 hours.
    pub fn months(&self) -> f64 {
        self.after / HOUR / 730.0
    }
}

impl fmt::Display for Breakeven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lives = if self.within_lifetime { "within" } else { "beyond" };
        let (hours, months) = (self.after / HOUR, self.months());
        write!(f, "even after {hours:.0} h ({months:.1} months of 730 h), {lives} the lifetime")
    }
}

impl fmt::Display for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { purchase, lifetime, other, usd_per_kwh, used, residual, .. } = self;
        let years = *lifetime / HOUR / 8760.0;
        write!(
            f,
            "{purchase:.0} for {years:.1} years, then worth {residual:.0}; {other} and {used} at {usd_per_kwh} USD/kWh"
        )
    }
}
