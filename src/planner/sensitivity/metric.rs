//! What of a deployment is looked at, and which way of it is better.

use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond, Usd, UsdPerMillionTokens};
use serde::Serialize;
use std::fmt;

/// A number that a deployment is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Measure {
    /// Time to first token of a request that is alone.
    Ttft,
    /// Time per output token of a request that is alone.
    Tpot,
    /// End-to-end latency of a request that is alone.
    E2e,
    /// Output tokens per second of a batch of equal requests that start together.
    OutputTpsTotal,
    /// Requests per second that are answered at most.
    MaxRate,
    /// Requests per second that are answered within the limits.
    RateUnder,
    /// Sequences of full length whose caches fit at once.
    Concurrency,
    /// Price of the devices over the output tokens of the largest rate, within the limits if there are some.
    CostPerMillionOutputTokens,
    /// The same over the requests.
    CostPerRequest,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Self; 9] = [
        Self::Ttft,
        Self::Tpot,
        Self::E2e,
        Self::OutputTpsTotal,
        Self::MaxRate,
        Self::RateUnder,
        Self::Concurrency,
        Self::CostPerMillionOutputTokens,
        Self::CostPerRequest,
    ];

    /// Whether less of it is better.
    pub const fn is_cost(self) -> bool {
        matches!(self, Self::Ttft | Self::Tpot | Self::E2e | Self::CostPerMillionOutputTokens | Self::CostPerRequest)
    }

    /// Whether more devices have more of it without being better: it is compared per device.
    pub const fn is_per_device(self) -> bool {
        matches!(self, Self::OutputTpsTotal | Self::MaxRate | Self::RateUnder | Self::Concurrency)
    }

    /// Whether it is one of a request that is alone.
    pub const fn is_unloaded(self) -> bool {
        matches!(self, Self::Ttft | Self::Tpot | Self::E2e)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
            Self::E2e => "E2E",
            Self::OutputTpsTotal => "tok/s",
            Self::MaxRate => "max req/s",
            Self::RateUnder => "SLO req/s",
            Self::Concurrency => "sequences",
            Self::CostPerMillionOutputTokens => "USD/Mtok",
            Self::CostPerRequest => "USD/request",
        })
    }
}

/// The measures of one deployment; `None` is what does not exist: no limits, no price, a target that no load meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measures {
    /// Devices of all replicas.
    pub devices: u32,
    /// [`Measure::Ttft`].
    pub ttft: Option<Seconds>,
    /// [`Measure::Tpot`]; none for answers of one token.
    pub tpot: Option<Seconds>,
    /// [`Measure::E2e`].
    pub e2e: Option<Seconds>,
    /// [`Measure::OutputTpsTotal`]; none without a batch, or with one that has no room.
    pub output_tps_total: Option<TokensPerSecond>,
    /// [`Measure::MaxRate`].
    pub max_rate: Option<RequestsPerSecond>,
    /// [`Measure::RateUnder`]; none where no load meets the limits.
    pub rate_under: Option<RequestsPerSecond>,
    /// [`Measure::Concurrency`]; none where memory does not limit it.
    pub concurrency: Option<f64>,
    /// [`Measure::CostPerMillionOutputTokens`].
    pub usd_per_million_output_tokens: Option<UsdPerMillionTokens>,
    /// [`Measure::CostPerRequest`].
    pub usd_per_request: Option<Usd>,
}

impl Measures {
    /// The number in its base unit: seconds, tokens or requests per second, sequences, US dollars (per million tokens).
    pub fn number(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Ttft => self.ttft.map(Seconds::as_seconds),
            Measure::Tpot => self.tpot.map(Seconds::as_seconds),
            Measure::E2e => self.e2e.map(Seconds::as_seconds),
            Measure::OutputTpsTotal => self.output_tps_total.map(TokensPerSecond::as_tokens_per_second),
            Measure::MaxRate => self.max_rate.map(RequestsPerSecond::as_requests_per_second),
            Measure::RateUnder => self.rate_under.map(RequestsPerSecond::as_requests_per_second),
            Measure::Concurrency => self.concurrency,
            Measure::CostPerMillionOutputTokens => {
                self.usd_per_million_output_tokens.map(UsdPerMillionTokens::as_usd_per_million_tokens)
            }
            Measure::CostPerRequest => self.usd_per_request.map(Usd::as_usd),
        }
    }

    /// The number in text, with its unit.
    pub fn text(&self, measure: Measure) -> Option<String> {
        match measure {
            Measure::Ttft => self.ttft.map(|time| time.to_string()),
            Measure::Tpot => self.tpot.map(|time| time.to_string()),
            Measure::E2e => self.e2e.map(|time| time.to_string()),
            Measure::OutputTpsTotal => self.output_tps_total.map(|rate| rate.to_string()),
            Measure::MaxRate => self.max_rate.map(|rate| rate.to_string()),
            Measure::RateUnder => self.rate_under.map(|rate| rate.to_string()),
            Measure::Concurrency => self.concurrency.map(|count| format!("{count:.0}")),
            Measure::CostPerMillionOutputTokens => self.usd_per_million_output_tokens.map(|cost| format!("{cost:.3}")),
            Measure::CostPerRequest => self.usd_per_request.map(|cost| format!("{:.6} USD", cost.as_usd())),
        }
    }

    /// How many times better these are than `before`: above 1 faster, cheaper or more (of rates, more per device). `None` where one of them does not exist.
    ///
    /// ```
    /// use llm_roofline::planner::{Measure, Measures};
    /// use llm_roofline::units::Seconds;
    /// let at = |ttft, devices| { let mut at = Measures::default(); (at.ttft, at.devices) = (Some(Seconds::from_millis(ttft)), devices); at };
    /// assert_eq!(at(100.0, 2).gain_over(&at(200.0, 1), Measure::Ttft), Some(2.0)); // a latency is no rate of devices
    /// assert_eq!(at(100.0, 2).gain_over(&at(200.0, 1), Measure::MaxRate), None);
    /// ```
    pub fn gain_over(&self, before: &Self, measure: Measure) -> Option<f64> {
        let number = |measures: &Self| {
            let devices = if measure.is_per_device() { f64::from(measures.devices.max(1)) } else { 1.0 };
            measures.number(measure).map(|number| number / devices)
        };
        let (now, then) = (number(self)?, number(before)?);
        let gain = if measure.is_cost() { then / now } else { now / then };
        // Free devices cost nothing, however good they are.
        (gain.is_finite() && gain > 0.0).then_some(gain)
    }
}
