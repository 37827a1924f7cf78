//! What cannot be had together: the best of one thing for every amount of another.

use super::search::SearchSpace;
use super::{Configuration, PlannerError, PriceChoice, Quote};
use crate::deployment::Deployment;
use crate::parallel::in_order;
use crate::serving::metrics::Metric;
use crate::serving::{Server, SteadyState};
use crate::step::StepModel;
use crate::units::{Seconds, TokensPerSecond, UsdPerMillionTokens};
use crate::workload::{Lengths, Slo};
use serde::Serialize;
use std::fmt;
use std::io;
use std::ops::ControlFlow;

/// Which two things are held against each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tradeoff {
    /// Output tokens per second of a user (one over the mean time per token) against output tokens per second and device.
    #[default]
    UserAgainstDevice,
    /// What a million output tokens cost against the mean of a latency.
    CostAgainstLatency(Metric),
}

/// A deployment with a number of requests in flight.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FrontierPoint {
    /// One replica.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// Requests in flight in one replica, each followed by the next.
    pub concurrency: u64,
    /// Output tokens per second that one user sees: one over the mean time per output token.
    pub output_tps_per_user: TokensPerSecond,
    /// Output tokens per second over the devices.
    pub output_tps_per_device: TokensPerSecond,
    /// Mean time to first token.
    pub ttft: Seconds,
    /// Mean time to the last token.
    pub e2e: Seconds,
    /// Price of a device, if one is known.
    pub quote: Option<Quote>,
    /// What a million output tokens cost.
    pub usd_per_million_output_tokens: Option<UsdPerMillionTokens>,
    /// The two things, smaller is better.
    #[serde(skip)]
    costs: (f64, f64),
}

/// The points of which no other is better in both things.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Frontier {
    /// What is held against each other.
    pub tradeoff: Tradeoff,
    /// The points, from the fastest for a user (or the shortest latency) on.
    pub points: Vec<FrontierPoint>,
    /// Points that were looked at.
    pub candidates: u64,
}

/// How far a frontier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontierProgress {
    /// Deployments that were looked at.
    pub done: u64,
    /// All of them.
    pub total: u64,
}

/// Of some things those that no other one beats: at most as large in both numbers, and smaller in one. Of equal ones the first; in the order of the first number.
///
/// ```
/// use llm_roofline::planner::pareto_front;
/// let offers = vec![("slow", 1.0, 9.0), ("fair", 2.0, 5.0), ("beaten", 3.0, 6.0), ("fast", 4.0, 1.0)]; // name, price, latency
/// let front = pareto_front(offers, |&(_, price, latency)| (price, latency));
/// assert_eq!(front.iter().map(|offer| offer.0).collect::<Vec<_>>(), ["slow", "fair", "fast"]);
/// ```
pub fn pareto_front<T>(things: Vec<T>, costs: impl Fn(&T) -> (f64, f64)) -> Vec<T> {
    let mut sorted: Vec<(f64, f64, T)> = things.into_iter().map(|thing| (costs(&thing), thing)).map(flat).collect();
    // The sort is stable: of equals the first stays first.
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    let better = |(_, second, thing): (f64, f64, T)| {
        let is_better = second < least;
        least = least.min(second);
        is_better.then_some(thing)
    };
    sorted.into_iter().filter_map(better).collect()
}

fn flat<T>(((first, second), thing): ((f64, f64), T)) -> (f64, f64, T) {
    (first, second, thing)
}

impl Frontier {
    /// The front over all deployments of a space with some numbers of requests in flight.
    ///
    /// Deployments that cannot be or do not fit are left out, for costs also those without a price.
    ///
    /// # Errors
    /// [`PlannerError`] for a space with nothing in it, or no numbers of requests.
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// use llm_roofline::planner::{Frontier, FrontierPoint, PriceChoice, SearchSpace, Tradeoff};
    /// use llm_roofline::workload::Lengths;
    /// let catalog = Catalog::embedded();
    /// let space = SearchSpace::new(catalog.model("llama-3.1-70b")?, catalog.engine("vllm-2026")?)
    ///     .with_devices([catalog.device("h100-sxm-80gb")?])
    ///     .with_weights(["fp8".parse()?])
    ///     .with_most_devices_per_replica(8);
    /// let lengths = Lengths::fixed(1000, 300)?;
    /// let front = Frontier::new(&space, &lengths, &[1, 8, 64], Tradeoff::UserAgainstDevice, &PriceChoice::Median)?;
    /// let (first, last) = (front.points.first().unwrap(), front.points.last().unwrap());
    /// // From many devices for one user to few devices for many.
    /// let devices = |point: &FrontierPoint| point.configuration.devices_per_replica;
    /// assert!(devices(first) > devices(last) && first.concurrency < last.concurrency);
    /// assert!(first.output_tps_per_user > last.output_tps_per_user);
    /// assert!(first.output_tps_per_device < last.output_tps_per_device);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        space: &SearchSpace,
        lengths: &Lengths,
        concurrencies: &[u64],
        tradeoff: Tradeoff,
        prices: &PriceChoice,
    ) -> Result<Self, PlannerError> {
        Self::with_progress(space, lengths, concurrencies, tradeoff, prices, |_| ControlFlow::Continue(()))
    }

    /// The same, telling its progress; it stops with [`PlannerError::Cancelled`] where the answer is to break.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_progress(
        space: &SearchSpace,
        lengths: &Lengths,
        concurrencies: &[u64],
        tradeoff: Tradeoff,
        prices: &PriceChoice,
        mut progress: impl FnMut(&FrontierProgress) -> ControlFlow<()>,
    ) -> Result<Self, PlannerError> {
        /// Deployments that are looked at between two calls of `progress`.
        const BATCH: usize = 256;
        if concurrencies.iter().all(|count| *count == 0) {
            return Err(PlannerError::Empty { what: "numbers of requests in flight" });
        }
        let deployments = space.deployments()?;
        let total = deployments.len() as u64;
        let (mut points, mut done, mut candidates) = (Vec::new(), 0, 0);
        for batch in deployments.chunks(BATCH) {
            let points_of = |number: usize| points_of(&batch[number], lengths, concurrencies, tradeoff, prices);
            let found = in_order(0..batch.len(), points_of);
            candidates += found.iter().map(Vec::len).sum::<usize>() as u64;
            points.extend(found.into_iter().flatten());
            // Memory stays small, and the front of fronts is the front.
            points = pareto_front(points, |point: &FrontierPoint| point.costs);
            done += batch.len() as u64;
            if progress(&FrontierProgress { done, total }).is_break() {
                return Err(PlannerError::Cancelled);
            }
        }
        Ok(Self { tradeoff, points, candidates })
    }

    /// The points as CSV, with a line of names that state the units.
    pub fn to_csv(&self) -> String {
        let mut text = Vec::new();
        let written = self.write_csv(&mut text);
        debug_assert!(written.is_ok(), "writing into memory does not fail");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The same, written line by line.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_csv(&self, writer: impl io::Write) -> io::Result<()> {
        let mut table = csv::Writer::from_writer(writer);
        table.write_record([
            "model",
            "device",
            "engine",
            "weights",
            "kv",
            "layout",
            "devices",
            "concurrency",
            "output_tps_per_user",
            "output_tps_per_device",
            "ttft_ms",
            "e2e_ms",
            "usd_per_million_output_tokens",
        ])?;
        for point in &self.points {
            let of = &point.configuration;
            let price = point.usd_per_million_output_tokens.map(UsdPerMillionTokens::as_usd_per_million_tokens);
            table.write_record([
                of.model.clone(),
                of.device.clone(),
                of.engine.clone(),
                of.weights.clone(),
                of.kv.clone(),
                of.layout.to_string(),
                of.devices_per_replica.to_string(),
                point.concurrency.to_string(),
                format!("{:.3}", point.output_tps_per_user.as_tokens_per_second()),
                format!("{:.3}", point.output_tps_per_device.as_tokens_per_second()),
                format!("{:.3}", point.ttft.as_millis()),
                format!("{:.3}", point.e2e.as_millis()),
                price.map_or_else(String::new, |price| format!("{price:.5}")),
            ])?;
        }
        table.flush()
    }
}

/// A deployment with each number of requests, as far as it can be.
fn points_of(
    deployment: &Deployment,
    lengths: &Lengths,
    concurrencies: &[u64],
    tradeoff: Tradeoff,
    prices: &PriceChoice,
) -> Vec<FrontierPoint> {
    let Ok(model) = StepModel::compile(deployment) else { return Vec::new() };
    // Before a server is made, as suggestions of what would help take longer.
    if model.memory().check(1, lengths.longest_total()).is_err() {
        return Vec::new();
    }
    let Ok(server) = Server::new(&model, lengths) else { return Vec::new() };
    let quote = prices.quote(deployment.system().device()).ok();
    let slots = server.rules().slots().0;
    // More requests than have a place only wait.
    let counts = concurrencies.iter().filter(|count| (1..=slots).contains(*count));
    let state = |count: &u64| server.closed_loop(*count as f64, Seconds::ZERO, &Slo::default()).ok();
    let point = |count: &u64| point(deployment, *count, &state(count)?, &quote, tradeoff);
    counts.filter_map(point).collect()
}

fn point(
    deployment: &Deployment,
    concurrency: u64,
    state: &SteadyState,
    quote: &Option<Quote>,
    tradeoff: Tradeoff,
) -> Option<FrontierPoint> {
    let summary = &state.summary;
    let (tpot, ttft, e2e) = (summary.tpot?.mean, summary.ttft?.mean, summary.e2e?.mean);
    let per_device = summary.output_tps_per_device?;
    let price = quote.as_ref().map(|quote| quote.usd_per_device_hour / per_device);
    let costs = match tradeoff {
        Tradeoff::UserAgainstDevice => (tpot.as_seconds(), -per_device.as_tokens_per_second()),
        Tradeoff::CostAgainstLatency(metric) => {
            (metric.of(summary)?.mean.as_seconds(), price?.as_usd_per_million_tokens())
        }
    };
    Some(FrontierPoint {
        configuration: Configuration::of(deployment),
        concurrency,
        output_tps_per_user: tpot.token_rate(),
        output_tps_per_device: per_device,
        ttft,
        e2e,
        quote: quote.clone(),
        usd_per_million_output_tokens: price,
        costs,
    })
}

impl fmt::Display for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28}{:<10}{:<10}{:<10}{:>9}{:>13}{:>13}{:>11}{:>11}{:>12}",
            "device", "layout", "weights", "cache", "requests", "tok/s user", "tok/s device", "TTFT", "E2E", "USD/Mtok"
        )?;
        for point in &self.points {
            let of = &point.configuration;
            let price = point.usd_per_million_output_tokens;
            let price = price.map_or("-".into(), |price| format!("{:.3}", price.as_usd_per_million_tokens()));
            writeln!(
                f,
                "{:<28}{:<10}{:<10}{:<10}{:>9}{:>13.1}{:>13.1}{:>11}{:>11}{price:>12}",
                of.device,
                of.layout.to_string(),
                of.weights,
                of.kv,
                point.concurrency,
                point.output_tps_per_user.as_tokens_per_second(),
                point.output_tps_per_device.as_tokens_per_second(),
                point.ttft.to_string(),
                point.e2e.to_string()
            )?;
        }
        write!(f, "{} points of {} are not beaten", self.points.len(), self.candidates)
    }
}
