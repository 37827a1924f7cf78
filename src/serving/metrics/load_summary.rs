//! The report of a deployment under load.

use super::goodput::judge;
use super::{Convention, Goodput, MetricsError, Percentiles, RequestTimes, summarise};
use crate::units::{Seconds, TokensPerSecond};
use crate::workload::Slo;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::fmt;

/// A deployment under load: the same report whether it was computed (steady state) or simulated.
///
/// What does not exist is none, and `null` in JSON: the latencies of an unstable queue grow without bound, a steady state has no number of
/// requests. TTFT and E2E count from sending; TPOT is a mean per request, ITL pools the gaps of all requests (as vLLM).
///
/// The keys in JSON are `requests, completed, stable, rho, ttft_ms, tpot_ms, itl_ms, e2e_ms, output_tps_total, output_tps_per_device,
/// goodput_rate, goodput_share, mean_batch, kv_utilization`; each latency is `{ mean, p50, p90, p95, p99 }` in milliseconds, rates
/// are per second.
///
/// ```
/// use llm_roofline::serving::metrics::LoadSummary;
/// let overloaded = LoadSummary { stable: false, rho: Some(1.25), ..LoadSummary::default() };
/// assert!(overloaded.to_json().starts_with(r#"{"requests":null,"completed":null,"stable":false,"rho":1.25,"ttft_ms":{"mean":null,"#));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadSummary {
    /// Requests that arrived.
    pub requests: Option<u64>,
    /// Requests that were answered completely.
    pub completed: Option<u64>,
    /// Whether the deployment keeps up with the arrivals.
    pub stable: bool,
    /// Offered load over capacity; below 1 if stable.
    pub rho: Option<f64>,
    /// Time to first token.
    pub ttft: Option<Percentiles>,
    /// Time per output token, one number per request.
    pub tpot: Option<Percentiles>,
    /// Gaps between tokens or pieces of the stream, of all requests together.
    pub itl: Option<Percentiles>,
    /// Time to the last token.
    pub e2e: Option<Percentiles>,
    /// Output tokens per second of everything.
    pub output_tps_total: Option<TokensPerSecond>,
    /// Output tokens per second and device.
    pub output_tps_per_device: Option<TokensPerSecond>,
    /// Requests that met all limits.
    pub goodput: Option<Goodput>,
    /// Sequences in a step, averaged over time.
    pub mean_batch: Option<f64>,
    /// Share of the cache in use, averaged over time.
    pub kv_utilization: Option<f64>,
}

impl LoadSummary {
    /// The latencies, rates and goodput of requests that ran for a duration; a stable load of which the rest is not known.
    ///
    /// `requests` are all that arrived, `completed` the times of those that were answered: the others count against the share of good ones.
    /// Latencies follow the convention (none where its tool has none); goodput is joint over all limits.
    ///
    /// # Errors
    /// As [`summarise`]; [`MetricsError::MoreThanSent`], [`MetricsError::NoDevices`].
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::serving::metrics::{Convention, LoadSummary, RequestTimes};
    /// use llm_roofline::{units::Seconds, workload::Slo};
    /// let ms = Seconds::from_millis;
    /// let times = [RequestTimes::new(ms(0.0), ms(200.0), ms(1190.0), 100)];
    /// let summary = LoadSummary::measured(2, &times, Convention::Vllm, &Slo::default(), Seconds::from_seconds(2.0), 4)?;
    /// assert_eq!(summary.output_tps_total.unwrap().to_string(), "50.0 tok/s");
    /// assert_eq!(summary.output_tps_per_device.unwrap().to_string(), "12.5 tok/s");
    /// assert_eq!(summary.goodput.unwrap().share, 0.5); // one of two was answered, and in time
    /// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
    /// ```
    pub fn measured(
        requests: u64,
        completed: &[RequestTimes],
        convention: Convention,
        slo: &Slo,
        duration: Seconds,
        devices: u32,
    ) -> Result<Self, MetricsError> {
        let report = summarise(completed, convention, slo, duration)?;
        if report.requests > requests {
            return Err(MetricsError::MoreThanSent { completed: report.requests, requests });
        }
        if devices == 0 {
            return Err(MetricsError::NoDevices);
        }
        let (goodput, _) = judge(completed, convention, slo, duration);
        let share_completed = report.requests as f64 / requests.max(1) as f64;
        let goodput = match goodput {
            Some(good) => Some(Goodput { share: good.share * share_completed, ..good }),
            None if completed.is_empty() && requests > 0 => Some(Goodput::default()),
            None => None,
        };
        Ok(Self {
            requests: Some(requests),
            completed: Some(report.requests),
            stable: true,
            rho: None,
            ttft: report.ttft,
            tpot: report.tpot,
            itl: report.itl,
            e2e: report.e2e,
            output_tps_total: Some(report.output_tps_total),
            output_tps_per_device: Some(report.output_tps_total / f64::from(devices)),
            goodput,
            mean_batch: None,
            kv_utilization: None,
        })
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        // Only maps with keys that are no strings, and numbers that are none, cannot be written: there are neither.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Serialize for LoadSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rate = |rate: Option<TokensPerSecond>| finite(rate.map(TokensPerSecond::as_tokens_per_second));
        let mut out = serializer.serialize_struct("LoadSummary", 14)?;
        out.serialize_field("requests", &self.requests)?;
        out.serialize_field("completed", &self.completed)?;
        out.serialize_field("stable", &self.stable)?;
        out.serialize_field("rho", &finite(self.rho))?;
        out.serialize_field("ttft_ms", &Millis::of(self.ttft))?;
        out.serialize_field("tpot_ms", &Millis::of(self.tpot))?;
        out.serialize_field("itl_ms", &Millis::of(self.itl))?;
        out.serialize_field("e2e_ms", &Millis::of(self.e2e))?;
        out.serialize_field("output_tps_total", &rate(self.output_tps_total))?;
        out.serialize_field("output_tps_per_device", &rate(self.output_tps_per_device))?;
        out.serialize_field("goodput_rate", &finite(self.goodput.map(|good| good.rate.as_requests_per_second())))?;
        out.serialize_field("goodput_share", &finite(self.goodput.map(|good| good.share)))?;
        out.serialize_field("mean_batch", &finite(self.mean_batch))?;
        out.serialize_field("kv_utilization", &finite(self.kv_utilization))?;
        out.end()
    }
}

/// The percentiles of a latency that may not exist: the keys are there anyway.
#[derive(Serialize)]
struct Millis {
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

impl Millis {
    fn of(latency: Option<Percentiles>) -> Self {
        let millis = |of: fn(Percentiles) -> Seconds| finite(latency.map(|latency| of(latency).as_millis()));
        Self {
            mean: millis(|latency| latency.mean),
            p50: millis(|latency| latency.p50),
            p90: millis(|latency| latency.p90),
            p95: millis(|latency| latency.p95),
            p99: millis(|latency| latency.p99),
        }
    }
}

fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

impl fmt::Display for LoadSummary {
    /// A table: a line of requests, the latencies, a line of rates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let percent = |share: Option<f64>| or_dash(finite(share).map(|share| format!("{:.1} %", 100.0 * share)));

        write!(f, "{}", if self.stable { "stable" } else { "UNSTABLE: the queue grows without bound" })?;
        if let Some(rho) = finite(self.rho) {
            write!(f, ", load {rho:.2} of capacity")?;
        }
        if let (Some(completed), Some(requests)) = (self.completed, self.requests) {
            write!(f, ", {completed} of {requests} requests completed")?;
        }
        writeln!(f)?;
        writeln!(f, "{:<6}{:>10}{:>10}{:>10}{:>10}{:>10}", "", "mean", "p50", "p90", "p95", "p99")?;
        for (name, latency) in [("TTFT", self.ttft), ("TPOT", self.tpot), ("ITL", self.itl), ("E2E", self.e2e)] {
            write!(f, "{name:<6}")?;
            for at in 0..5 {
                let shown = latency.map(|latency| latency.named()[at].1).filter(|value| value.is_finite());
                write!(f, "{:>10}", or_dash(shown.map(|value| value.to_string())))?;
            }
            writeln!(f)?;
        }
        let rate = |rate: Option<TokensPerSecond>| or_dash(rate.filter(|rate| rate.is_finite()).map(|r| r.to_string()));
        writeln!(
            f,
            "output {} in total, {} per device",
            rate(self.output_tps_total),
            rate(self.output_tps_per_device)
        )?;
        let goodput = self.goodput.filter(|good| good.rate.is_finite());
        writeln!(
            f,
            "goodput {}, {} of requests",
            or_dash(goodput.map(|good| good.rate.to_string())),
            percent(goodput.map(|good| good.share))
        )?;
        let batch = or_dash(finite(self.mean_batch).map(|batch| format!("{batch:.1}")));
        write!(f, "mean batch {batch}, cache {} full", percent(self.kv_utilization))
    }
}
