//! Rows that were measured under load: which client, which lengths, which statistic.

use super::launches::{Launched, launched};
use super::measurement::Measurement;
use super::predict::{Estimate, Refusal};
use crate::deployment::Deployment;
use crate::profile::nearest;
use crate::serving::metrics::Percentiles;
use crate::serving::{BenchmarkClient, BenchmarkEstimate, Server};
use crate::step::StepModel;
use crate::units::RequestsPerSecond;
use crate::workload::{LengthDistribution, Lengths};

/// Modes in which many requests are served at once.
pub(super) const MODES: [&str; 3] = ["closed_loop", "open_loop", "offline"];
/// Metrics that are predicted in these modes.
pub(super) const METRICS: [&str; 14] = [
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "output_tps_total",
    "total_tps",
    "ttft_ms_p95",
    "ttft_ms_p99",
    "tpot_ms_p95",
    "tpot_ms_p99",
    "itl_ms_p95",
    "itl_ms_p99",
    "itl_ms_p90",
    "e2e_ms_p95",
    "e2e_ms_p99",
];

/// A row under load.
pub(super) struct LoadPlan {
    lengths: Lengths,
    client: BenchmarkClient,
    /// Requests in flight, or at once; requests per second in an open loop.
    amount: f64,
    replicas: f64,
    pub(super) assumptions: Vec<String>,
}

impl LoadPlan {
    /// # Errors
    /// [`Refusal`] for lengths, concurrency or rates that are missing.
    pub(super) fn of(row: &Measurement) -> Result<Self, Refusal> {
        let metric = row.metric.as_str();
        if !METRICS.contains(&metric) {
            return Err(Refusal::Metric { metric: metric.into(), nearest: nearest(metric, METRICS) });
        }
        let mut assumptions = Vec::new();
        let lengths = lengths(row, &mut assumptions)?;
        let requests =
            row.tag("requests").and_then(|requests| requests.parse().ok()).filter(|requests: &f64| *requests >= 1.0);
        let missing = |column| Refusal::Length { column, is_zero: false, metric: metric.into() };
        let amount = match row.mode.as_str() {
            "closed_loop" => row.concurrency.ok_or_else(|| missing("concurrency"))?,
            "open_loop" => row.request_rate.filter(|rate| *rate > 0.0).ok_or_else(|| missing("request_rate"))?,
            _ => match requests.or(row.concurrency).or_else(|| known_requests(row)) {
                Some(requests) => requests,
                None => {
                    let requests = usual_requests(row);
                    assumptions.push(format!("{requests} requests sent at once"));
                    requests
                }
            },
        };
        if row.mode == "closed_loop" && requests.is_none() {
            assumptions.push("ten requests for each in flight, all clients starting at once".into());
        }
        let mut client = BenchmarkClient::default();
        if let Some(requests) = requests.or_else(|| known_requests(row)) {
            client = client.with_requests(requests);
        }
        if launched(row, Launched::WarmUp) == Some("none") {
            client = client.without_warm_up();
        }
        let replicas = if row.ep > 1 { 1.0 } else { f64::from(row.dp.max(1)) };
        Ok(Self { lengths, client, amount, replicas, assumptions })
    }

    /// # Errors
    /// [`Refusal`] for requests that cannot be served.
    pub(super) fn price(&self, row: &Measurement, model: &StepModel) -> Result<Estimate, Refusal> {
        let server = Server::new(model, &self.lengths)?;
        let estimate = self.estimate(row, &server)?;
        let value = self.value(row, &estimate);
        let factor = server.uncertainty(row.metric.starts_with("ttft"));
        Ok(Estimate { low: value / factor, expected: value, high: value * factor })
    }

    fn estimate(&self, row: &Measurement, server: &Server<'_>) -> Result<BenchmarkEstimate, Refusal> {
        let each = (self.amount / self.replicas).max(f64::MIN_POSITIVE);
        Ok(match row.mode.as_str() {
            "closed_loop" => server.published_closed_loop(each.max(1.0), &self.client)?,
            "open_loop" => {
                server.published_open_loop(RequestsPerSecond::from_requests_per_second(each), &self.client)?
            }
            _ => server.published_offline(each.max(1.0))?,
        })
    }

    fn value(&self, row: &Measurement, estimate: &BenchmarkEstimate) -> f64 {
        let moments = self.lengths.moments();
        let output = estimate.output_tps_total.as_tokens_per_second() * self.replicas;
        let (metric, statistic) = row.metric.rsplit_once("_p").unwrap_or((&row.metric, ""));
        let latency = match metric {
            "ttft_ms" => estimate.ttft,
            "tpot_ms" => estimate.tpot,
            // GenAI-Perf, which NVIDIA measures NIM with, has one gap per request: its mean.
            "itl_ms" if row.engine == "nim" => estimate.tpot,
            "itl_ms" => estimate.itl,
            "e2e_ms" => estimate.e2e,
            "total_tps" => return output * (moments.prompt + moments.output) / moments.output,
            _ => return output,
        };
        at(&latency, statistic, row.tag("stat")).as_millis()
    }
}

fn at(latency: &Percentiles, statistic: &str, central: Option<&str>) -> crate::units::Seconds {
    match (statistic, central) {
        ("90", _) => latency.p90,
        ("95", _) => latency.p95,
        ("99", _) => latency.p99,
        (_, Some("p50")) => latency.p50,
        _ => latency.mean,
    }
}

/// Coefficients of variation of data sets of which only the mean lengths are known: prompts and answers. Azure's traces of conversations have 0.96 and
/// 0.77 (Azure/AzurePublicDataset), lmsys 1.9 and 0.9 (microsoft/apex_plus).
const DATA_SET_VARIATION: (f64, f64) = (0.9, 0.9);
/// Those of ShareGPT as LLMServingSim samples it (casys-kaist/LLMServingSim, workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl).
const SAMPLED_VARIATION: (f64, f64) = (0.6, 0.15);
/// The longest prompts and answers of data sets, over their means.
const LONGEST: f64 = 6.0;

fn lengths(row: &Measurement, assumptions: &mut Vec<String>) -> Result<Lengths, Refusal> {
    let positive = |tokens: Option<f64>, column| {
        let refused = Refusal::Length { column, is_zero: tokens.is_some(), metric: row.metric.clone() };
        tokens.filter(|tokens| *tokens >= 1.0).ok_or(refused)
    };
    let (input, output) = (positive(row.input_tokens, "input_tokens")?, positive(row.output_tokens, "output_tokens")?);
    if row.has_tag("lengths-x0.9") {
        // Lengths between 0.8 and 1.0 of the nominal ones, in the mean 0.9.
        assumptions.push("lengths between 0.8 and 1.0 of the nominal ones".into());
        let around =
            |mean: f64| LengthDistribution::uniform((mean * 8.0 / 9.0).round() as u64, (mean / 0.9).round() as u64);
        return Ok(Lengths::independent(around(input)?, around(output)?)?);
    }
    if let Some(ratio) =
        row.tag("range-ratio").and_then(|ratio| ratio.parse::<f64>().ok()).filter(|ratio| *ratio > 0.0 && *ratio < 1.0)
    {
        let around = |mean: f64| LengthDistribution::uniform_ratio(mean.round() as u64, ratio);
        return Ok(Lengths::independent(around(input)?, around(output)?)?);
    }
    if row.has_tag("lengths-mean") || row.tag("dataset").is_some_and(|dataset| dataset.contains("sharegpt")) {
        let sampled = row.source == "dc-llmservingsim-vllm-traces";
        let variation = if sampled { SAMPLED_VARIATION } else { DATA_SET_VARIATION };
        assumptions.push(format!("lengths of the data set vary by {} and {} of their means", variation.0, variation.1));
        let around = |mean: f64, variation: f64| {
            LengthDistribution::log_normal(mean, mean * variation, 1, (mean * LONGEST).ceil() as u64)
        };
        return Ok(Lengths::independent(around(input, variation.0)?, around(output, variation.1)?)?);
    }
    Ok(Lengths::fixed(input.round() as u64, output.round() as u64)?)
}

/// Requests of an offline benchmark that does not say how many: those of NVIDIA's throughput tables (TensorRT-LLM, docs/source/performance/perf-overview.md).
fn usual_requests(row: &Measurement) -> f64 {
    let tokens = row.input_tokens.unwrap_or_default() + row.output_tokens.unwrap_or_default();
    match tokens {
        tokens if tokens <= 300.0 => 30_000.0,
        tokens if tokens <= 3_000.0 => 3_000.0,
        tokens if tokens <= 10_000.0 => 1_500.0,
        _ => 1_000.0,
    }
}

/// LLMServingSim's runs have 300 requests, NVIDIA's of the Triton backend 500.
fn known_requests(row: &Measurement) -> Option<f64> {
    match row.source.as_str() {
        "dc-llmservingsim-vllm-traces" => Some(300.0),
        "dc-trtllm-perf-overview" if row.has_tag("lengths-mean") => Some(500.0),
        _ => None,
    }
}

/// The layout of a mixture of experts for throughput, where the row says over how many devices it is split but not how: tensor parallelism, or attention
/// on every device for itself and experts spread over all of them, whichever answers more requests per second.
pub(super) fn best_layout(row: &Measurement, deployment: Deployment, assumptions: &mut Vec<String>) -> Deployment {
    let experts = deployment.model().architecture().is_some_and(|architecture| architecture.has_experts());
    let undecided = row.mode == "offline" && experts && row.tp > 1 && row.ep == 1 && row.pp == 1 && row.dp == 1;
    if !undecided {
        return deployment;
    }
    let spread =
        deployment.clone().with_tensor_parallel(1).with_expert_parallel(row.tp).with_data_parallel_attention(row.tp);
    let rate = |deployment: &Deployment| {
        let lengths = lengths(row, &mut Vec::new()).ok()?;
        let model = StepModel::compile(deployment).ok()?;
        Some(Server::new(&model, &lengths).ok()?.max_rate().as_requests_per_second())
    };
    if rate(&spread).unwrap_or(0.0) > rate(&deployment).unwrap_or(0.0) {
        assumptions.push(format!(
            "attention on each of {} devices for itself, experts over all of them: the faster layout",
            row.tp
        ));
        return spread;
    }
    deployment
}
