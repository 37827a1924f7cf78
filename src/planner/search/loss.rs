//! Why a plan is not the best one.

use super::objective::Objective;
use super::plan::Plan;
use crate::units::UsdPerHour;
use serde::Serialize;
use std::fmt;

/// How much worse a plan is than the best one, and where that comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Loss {
    /// What was to be small.
    pub objective: Objective,
    /// Its value over that of the best plan, at least 1; none where the best one costs nothing.
    pub factor: Option<f64>,
    /// Devices of this plan and of the best one.
    pub devices: (u32, u32),
    /// Price of a device, of this plan and of the best one, if both are known.
    pub usd_per_device_hour: Option<(UsdPerHour, UsdPerHour)>,
    /// Requests per second that a device can do within the target, over those of the best plan.
    pub rate_per_device: f64,
    /// What keeps a replica of this plan from taking more.
    pub binding: String,
}

impl Loss {
    pub(super) fn new(objective: Objective, plan: &Plan, best: &Plan) -> Self {
        let price = |of: &Plan| of.quote.as_ref().map(|quote| quote.usd_per_device_hour);
        let capacity = |of: &Plan| (1.0 + of.headroom) * of.rate.as_requests_per_second() / f64::from(of.devices);
        Self {
            objective,
            factor: (best.score.value > 0.0).then(|| plan.score.value / best.score.value),
            devices: (plan.devices, best.devices),
            usd_per_device_hour: price(plan).zip(price(best)),
            rate_per_device: capacity(plan) / capacity(best),
            binding: plan.binding.to_string(),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objective, factor, devices: (own, best), rate_per_device, .. } = self;
        match factor.filter(|factor| *factor > 1.0 + 1e-9) {
            Some(factor) => write!(f, "loses by {:.0} % of {objective}: ", (factor - 1.0) * 100.0)?,
            None => write!(f, "as good, but for what counts next: ")?,
        }
        match &self.usd_per_device_hour {
            Some((price, price_of_best)) => {
                let [price, price_of_best] = [price, price_of_best].map(|of| of.as_usd_per_hour());
                write!(f, "{own} devices at {price:.2} against {best} at {price_of_best:.2} USD/h; ")?;
            }
            None => write!(f, "{own} devices against {best}; ")?,
        }
        write!(f, "a device carries {rate_per_device:.2} times the load")
    }
}
