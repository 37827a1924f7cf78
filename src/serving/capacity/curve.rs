//! Latency against throughput: the curve, and its knee.

use crate::serving::metrics::Percentiles;
use crate::serving::{Server, ServingError, SteadyState};
use crate::units::{RequestsPerSecond, TokensPerSecond};
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
    /// Ten loads that are about even in `-ln(1 - rho)`, which also tell where the knee is, and the others even under a hyperbolic sine around the knee
    /// (Roberts' stretching of grids towards an interior point: Anderson, Tannehill and Pletcher, *Computational Fluid Mechanics and Heat Transfer*, 1984,
    /// section 5.6), several times denser there than at the ends. Every point is the steady state of [`open_loop`](Server::open_loop).
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
    /// assert!(curve.iter().all(|point| point.power() <= 1.01 * knee.point.power()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn curve(&self, points: usize) -> Result<Vec<CurvePoint>, ServingError> {
        if !(2..=MOST_POINTS).contains(&points) {
            let (what, expected) = ("the number of points of a curve", "2 to 100,000");
            return Err(ServingError::Number { what, value: points as f64, expected });
        }
        let nodes = NODES.iter().map(|rho| self.point(*rho)).collect::<Result<Vec<_>, _>>()?;
        let stretched = Stretched::around((Means::through(&nodes).knee() / END).clamp(0.05, 0.95));
        let share = |even: f64| START + (END - START) * stretched.at(even);
        if points <= NODES.len() {
            return (0..points).map(|index| self.point(share(index as f64 / (points - 1) as f64))).collect();
        }
        let others = points - NODES.len();
        let between = (0..others).map(|index| self.point(share((index as f64 + 1.0) / (others as f64 + 1.0))));
        let mut curve = nodes.into_iter().map(Ok).chain(between).collect::<Result<Vec<_>, ServingError>>()?;
        curve.sort_by(|a, b| a.rho.total_cmp(&b.rho));
        Ok(curve)
    }

    /// The knee of the curve.
    ///
    /// # Method
    /// The mean latencies of ten steady states, and between them a cubic in `-ln(1 - rho)` that overshoots nowhere (Fritsch and Butland, SIAM J. Sci. Stat. Comput. 5
    /// (1984) 300): the load of the largest power along it, and the steady state there.
    ///
    /// # Errors
    /// As [`Server::open_loop`].
    pub fn knee(&self) -> Result<Knee, ServingError> {
        let nodes = NODES.iter().map(|rho| self.point(*rho)).collect::<Result<Vec<_>, _>>()?;
        let point = self.point(Means::through(&nodes).knee())?;
        let alone = self.open_loop(RequestsPerSecond::ZERO, &Slo::default())?.summary.e2e;
        Ok(Knee { point, stretch: alone.map_or(1.0, |alone| point.e2e.mean / alone.mean) })
    }

    fn point(&self, rho: f64) -> Result<CurvePoint, ServingError> {
        let rate = self.max_rate() * rho;
        let state = self.open_loop(rate, &Slo::default())?;
        CurvePoint::of(rate, &state).ok_or(ServingError::Number { what: "the load", value: rho, expected: "below 1" })
    }
}

const START: f64 = 1e-3;
const END: f64 = 0.98;
const MOST_POINTS: usize = 100_000;

/// Loads that are computed: latencies rise fast at the start too, where requests begin to meet each other.
const NODES: [f64; 10] = [START, 0.05, 0.18, 0.38, 0.58, 0.74, 0.85, 0.92, 0.96, END];

/// Logarithms of the mean end-to-end latency at the nodes, and a cubic between: monotone where they are.
struct Means {
    values: [f64; NODES.len()],
    slopes: [f64; NODES.len()],
}

impl Means {
    fn through(nodes: &[CurvePoint]) -> Self {
        let values: [f64; NODES.len()] =
            std::array::from_fn(|node| nodes[node].e2e.mean.as_seconds().max(f64::MIN_POSITIVE).ln());
        let x = NODES.map(stretch);
        let last = NODES.len() - 1;
        let chord = |at: usize| (values[at + 1] - values[at]) / (x[at + 1] - x[at]);
        let slopes = std::array::from_fn(|at| match at {
            0 => chord(0),
            at if at == last => chord(last - 1),
            at => {
                let (before, after) = (chord(at - 1), chord(at));
                if before * after <= 0.0 {
                    return 0.0;
                }
                let (left, right) = (x[at] - x[at - 1], x[at + 1] - x[at]);
                let (w1, w2) = (2.0 * right + left, right + 2.0 * left);
                (w1 + w2) / (w1 / before + w2 / after)
            }
        });
        Self { values, slopes }
    }

    fn at(&self, rho: f64) -> f64 {
        let above = NODES.iter().position(|node| rho <= *node).unwrap_or(NODES.len() - 1).max(1);
        let (low, high) = (stretch(NODES[above - 1]), stretch(NODES[above]));
        let width = high - low;
        let part = ((stretch(rho) - low) / width).clamp(0.0, 1.0);
        let rest = 1.0 - part;
        let (from, to) = (self.values[above - 1], self.values[above]);
        let (rise, end) = (self.slopes[above - 1] * width, self.slopes[above] * width);
        from * rest * rest * (1.0 + 2.0 * part) + to * part * part * (1.0 + 2.0 * rest) + rise * part * rest * rest
            - end * part * part * rest
    }

    /// The load of the largest power.
    fn knee(&self) -> f64 {
        const STEPS: u32 = 400;
        let power = |rho: f64| rho.ln() - self.at(rho);
        let loads = (0..=STEPS).map(|step| START + (END - START) * f64::from(step) / f64::from(STEPS));
        loads.max_by(|a, b| power(*a).total_cmp(&power(*b))).unwrap_or(END)
    }
}

fn stretch(rho: f64) -> f64 {
    -(-rho).ln_1p()
}

/// Even numbers from 0 to 1 moved towards a point between.
struct Stretched {
    point: f64,
    at: f64,
}

/// How strongly.
const STRETCH: f64 = 5.0;

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
