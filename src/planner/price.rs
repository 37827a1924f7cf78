//! What an hour of a device costs: one of the prices in its profile, or the caller's.

use super::PlannerError;
use super::error::not_negative;
use crate::hardware::Device;
use crate::units::UsdPerHour;
use serde::Serialize;
use std::fmt;

/// Whose price of a device counts.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum PriceChoice {
    /// The middle one of all prices in the profile, the lower of two in the middle: a price that somebody asks.
    #[default]
    Median,
    /// The lowest.
    Cheapest,
    /// The lowest of the providers whose name contains this text, in any case.
    Provider(String),
    /// This one, whatever device it is.
    Fixed(UsdPerHour),
}

/// The price of one device for an hour, with who asks it and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Quote {
    /// For one device.
    pub usd_per_device_hour: UsdPerHour,
    /// Who asks it, and on which terms.
    pub provider: String,
    /// When.
    pub date: String,
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} per device ({}, {})", self.usd_per_device_hour, self.provider, self.date)
    }
}

impl PriceChoice {
    /// The price of a device.
    ///
    /// # Errors
    /// [`PlannerError::NoPrice`] where there is none, [`PlannerError::Number`] for a fixed one that is negative or not finite.
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// use llm_roofline::planner::PriceChoice;
    /// let h100 = Catalog::embedded().device("h100-sxm-80gb")?;
    /// let quote = PriceChoice::Provider("runpod secure".into()).quote(&h100)?;
    /// assert_eq!(quote.to_string(), "2.69 USD/h per device (RunPod secure cloud, 2026-05-22)");
    /// assert!(PriceChoice::Provider("corner shop".into()).quote(&h100).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quote(&self, device: &Device) -> Result<Quote, PlannerError> {
        if let Self::Fixed(price) = self {
            not_negative("the price of a device in USD per hour", price.as_usd_per_hour())?;
            return Ok(Quote { usd_per_device_hour: *price, provider: "stated".into(), date: "-".into() });
        }
        let wanted = match self {
            Self::Provider(name) => Some(name.to_lowercase()),
            _ => None,
        };
        let asked = |provider: &str| wanted.as_ref().is_none_or(|name| provider.to_lowercase().contains(name));
        let mut prices: Vec<_> = device.prices().iter().filter(|price| asked(&price.provider)).collect();
        prices.sort_by(|a, b| a.usd_per_hour.as_usd_per_hour().total_cmp(&b.usd_per_hour.as_usd_per_hour()));
        let middle = prices.len().saturating_sub(1) / 2;
        let chosen = prices.get(if *self == Self::Median { middle } else { 0 });
        let chosen = chosen.ok_or_else(|| PlannerError::NoPrice {
            device: device.name().into(),
            provider: wanted.is_some().then(|| self.to_string()),
        })?;
        Ok(Quote {
            usd_per_device_hour: chosen.usd_per_hour,
            provider: chosen.provider.clone(),
            date: chosen.date.clone(),
        })
    }
}

impl fmt::Display for PriceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Median => f.pad("the median of known prices"),
            Self::Cheapest => f.pad("the lowest known price"),
            Self::Provider(name) => f.pad(name),
            Self::Fixed(price) => write!(f, "{price} per device"),
        }
    }
}
