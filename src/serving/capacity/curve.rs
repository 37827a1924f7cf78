//! Latency against throughput: the curve, and its knee.

use crate::serving::metrics::Percentiles;
use crate::serving::{Server, ServingError, SteadyState};
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use crate::workload::Slo;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A point of a latency-throughput curve. In JSON all latencies are in milliseconds, and rates per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CurvePoint {
    /// Requests per second.
    #[serde(rename = "request_rate", with = "requests")]
    pub rate: RequestsPerSecond,
    /// The same over the largest rate.
    pub rho: f64,
    /// Output tokens per second of everything.
    #[serde(with = "tokens")]
    pub output_tps_total: TokensPerSecond,
    /// Requests with a place, in the mean.
    pub mean_batch: f64,
    /// Time to first token.
    #[serde(rename = "ttft_ms")]
    pub ttft: Percentiles,
    /// Time per output token; none where answers are one token long.
    #[serde(rename = "tpot_ms")]
    pub tpot: Option<Percentiles>,
    /// Time to the last token.
    #[serde(rename = "e2e_ms")]
    pub e2e: Percentiles,
}

impl CurvePoint {
    /// Kleinrock's power: requests per second over the mean time that one takes, in 1/s².
    pub fn power(&self) -> f64 {
        self.rate.as_requests_per_second() / self.e2e.mean.as_seconds()
    }

    fn of(rate: RequestsPerSecond, state: &SteadyState) -> Option<Self> {
        let summary = &state.summary;
        Some(Self {
            rate,
            rho: rate / state.max_rate,
            output_tps_total: summary.output_tps_total?,
            mean_batch: summary.mean_batch?,
            ttft: summary.ttft?,
            tpot: summary.tpot,
            e2e: summary.e2e?,
        })
    }
}

/// Where latency begins to grow faster than throughput.
///
/// # Formula
/// The rate at which the power `rate / E2E` is largest, with the mean end-to-end latency. There `dE2E / E2E = d rate / rate`: one percent more throughput costs
/// one percent more latency, less of it below and more of it above. It needs neither a limit nor a scale, unlike the point of largest curvature, which moves with
/// the units of the plot and with how far it is drawn. M/M/1 has it at half of the capacity, M/D/1 at 2 - √2 = 0.586 of it.
///
/// # References
/// L. Kleinrock, *Power and deterministic rules of thumb for probabilistic problems in computer communications*, ICC 1979, 43.1.1-43.1.10.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Knee {
    /// The load.
    pub point: CurvePoint,
    /// Mean end-to-end latency there, over that of a request that is alone.
    pub stretch: f64,
}

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CurvePoint { rate, rho, e2e, .. } = &self.point;
        write!(
            f,
            "{rate} ({rho:.2} of capacity), where E2E is {}, {:.2} times that of a request alone",
            e2e.mean, self.stretch
        )
    }
}

impl Server<'_> {
    /// Latency against throughput from next to no load to 0.98 of the largest rate, in order; points are close together around the knee.
    ///
    /// # Method
    /// Points are even under a hyperbolic sine around the knee (Roberts' stretching of grids towards an interior point, Anderson, Tannehill and Pletcher,
    /// *Computational Fluid Mechanics and Heat Transfer*, 1984, section 5.6), about four times denser there than at the ends.
    ///
    /// # Errors
    /// [`ServingError::Number`] for fewer than 2 points or more than 100,000; as [`Server::open_loop`].
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::Server;
    /// use llm_roofline::workload::Lengths;
    ///
    /// let catalog = Catalog::embedded();
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?);
    /// let model = StepModel::compile(&deployment)?;
    /// let server = Server::new(&model, &Lengths::fixed(1000, 200)?)?;
    /// let curve = server.curve(30)?;
    /// assert!(curve.windows(2).all(|pair| pair[0].rate < pair[1].rate && pair[0].e2e.mean <= pair[1].e2e.mean));
    /// let knee = server.knee()?;
    /// assert!(curve.iter().all(|point| point.power() <= 1.001 * knee.point.power()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn curve(&self, points: usize) -> Result<Vec<CurvePoint>, ServingError> {
        if !(2..=MOST_POINTS).contains(&points) {
            let (what, expected) = ("the number of points of a curve", "2 to 100,000");
            return Err(ServingError::Number { what, value: points as f64, expected });
        }
        let knee = self.knee()?.point.rho;
        let stretched = Stretched::around((knee / END).clamp(0.05, 0.95));
        let share = |index: usize| START + (END - START) * stretched.at(index as f64 / (points - 1) as f64);
        (0..points).map(|index| self.point(share(index))).collect()
    }

    /// The knee of the curve.
    ///
    /// # Method
    /// The largest power of a few loads, refined by golden section between its neighbours until the load is known to a thousandth of the capacity.
    ///
    /// # Errors
    /// As [`Server::open_loop`].
    pub fn knee(&self) -> Result<Knee, ServingError> {
        let at = |index: usize| END * (index as f64 + 1.0) / COARSE as f64;
        let coarse = (0..COARSE).map(|index| self.point(at(index))).collect::<Result<Vec<_>, _>>()?;
        let powers = coarse.iter().map(CurvePoint::power).enumerate();
        let best = powers.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(index, _)| index);
        let (mut low, mut high) = (if best > 0 { at(best - 1) } else { START }, at((best + 1).min(COARSE - 1)));
        let mut point = coarse[best];
        let mut left = self.point(high - GOLDEN * (high - low))?;
        let mut right = self.point(low + GOLDEN * (high - low))?;
        while high - low > 1e-3 {
            if left.power() >= right.power() {
                (high, right) = (right.rho, left);
                left = self.point(high - GOLDEN * (high - low))?;
            } else {
                (low, left) = (left.rho, right);
                right = self.point(low + GOLDEN * (high - low))?;
            }
            for candidate in [left, right] {
                if candidate.power() > point.power() {
                    point = candidate;
                }
            }
        }
        let alone = self.alone()?;
        Ok(Knee { point, stretch: point.e2e.mean / alone })
    }

    fn point(&self, rho: f64) -> Result<CurvePoint, ServingError> {
        let rate = self.max_rate() * rho;
        let state = self.open_loop(rate, &Slo::default())?;
        CurvePoint::of(rate, &state).ok_or(ServingError::Number { what: "the load", value: rho, expected: "below 1" })
    }

    fn alone(&self) -> Result<Seconds, ServingError> {
        let state = self.open_loop(RequestsPerSecond::ZERO, &Slo::default())?;
        Ok(state.summary.e2e.map_or(Seconds::ZERO, |e2e| e2e.mean))
    }
}

const START: f64 = 1e-3;
const END: f64 = 0.98;
const COARSE: usize = 12;
const GOLDEN: f64 = 0.618_033_988_749_894_8;
const MOST_POINTS: usize = 100_000;

/// Even numbers from 0 to 1 moved towards a point between.
struct Stretched {
    point: f64,
    at: f64,
}

/// How strongly.
const STRETCH: f64 = 3.0;

impl Stretched {
    fn around(point: f64) -> Self {
        let share = (1.0 + STRETCH.exp_m1() * point) / (1.0 + (-STRETCH).exp_m1() * point);
        Self { point, at: share.ln() / (2.0 * STRETCH) }
    }

    fn at(&self, even: f64) -> f64 {
        let moved = (STRETCH * (even - self.at)).sinh() / (STRETCH * self.at).sinh();
        (self.point * (1.0 + moved)).clamp(0.0, 1.0)
    }
}

/// Rates in JSON: numbers per second.
macro_rules! per_second {
    ($module:ident, $unit:ident, $from:ident, $into:ident) => {
        mod $module {
            use super::$unit;
            use serde::{Deserialize, Deserializer, Serializer};

            pub(super) fn serialize<S: Serializer>(rate: &$unit, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_f64(rate.$into())
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$unit, D::Error> {
                f64::deserialize(deserializer).map($unit::$from)
            }
        }
    };
}

per_second!(requests, RequestsPerSecond, from_requests_per_second, as_requests_per_second);
per_second!(tokens, TokensPerSecond, from_tokens_per_second, as_tokens_per_second);
