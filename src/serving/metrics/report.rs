//! The report of a tool.

use super::convention::Gaps;
use super::goodput::{check, judge};
use super::{Attainment, Convention, Goodput, GoodputRule, MetricsError, PerToken, Percentiles, RequestTimes, Weight};
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use crate::workload::Slo;
use serde::Serialize;

/// What a tool would report about requests. What it does not report is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolReport {
    /// The tool whose definitions hold.
    pub convention: Convention,
    /// Completed requests.
    pub requests: u64,
    /// Time to first token.
    pub ttft: Option<Percentiles>,
    /// Time per output token, by that name.
    pub tpot: Option<Percentiles>,
    /// Inter-token latency, by that name.
    pub itl: Option<Percentiles>,
    /// Time to the last token.
    pub e2e: Option<Percentiles>,
    /// Completed requests per second.
    pub request_rate: RequestsPerSecond,
    /// Output tokens per second of all requests together.
    pub output_tps_total: TokensPerSecond,
    /// Output tokens per second of one stream.
    pub stream_tps: Option<StreamRate>,
    /// Requests that met all limits, where there are limits and the tool tests them together.
    pub goodput: Option<Goodput>,
    /// Share of requests that met each limit.
    pub attainment: Attainment,
}

/// A rate per stream over several requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StreamRate {
    /// Mean over the requests.
    pub mean: TokensPerSecond,
    /// Standard deviation of the sample, with `n - 1`, as llama-bench prints it; none for one request.
    pub deviation: Option<TokensPerSecond>,
}

/// What a tool reports about completed requests that ran for a duration.
///
/// A latency that no request has (a time per token where all answers are one token) is none. The limits may name metrics that the tool
/// itself cannot limit (vLLM knows no limit on ITL): they are tested all the same, with the tool's definition of the metric.
///
/// # Errors
/// [`MetricsError`]: no positive duration, times out of order, answers without tokens, and for MLPerf answers of one token.
/// No requests are no error: every latency is then none, and every rate 0.
///
/// # Examples
/// ```
/// use llm_roofline::serving::metrics::{Convention, RequestTimes, summarise};
/// use llm_roofline::{units::Seconds, workload::Slo};
/// let ms = Seconds::from_millis;
/// let in_time = |start: f64, ttft: f64| RequestTimes::new(ms(start), ms(start + ttft), ms(start + ttft + 400.0), 11);
/// let requests = [in_time(0.0, 300.0), in_time(100.0, 500.0)];
///
/// let slo = Slo::ttft_tpot(ms(450.0), ms(40.0));
/// let report = summarise(&requests, Convention::Vllm, &slo, Seconds::from_seconds(2.0))?;
/// let goodput = report.goodput.unwrap();
/// assert_eq!((goodput.rate.to_string(), goodput.share), ("0.50 req/s".into(), 0.5));
/// assert_eq!((report.attainment.ttft, report.attainment.tpot), (Some(0.5), Some(1.0)));
/// # Ok::<(), llm_roofline::serving::metrics::MetricsError>(())
/// ```
pub fn summarise(
    requests: &[RequestTimes],
    convention: Convention,
    slo: &Slo,
    duration: Seconds,
) -> Result<ToolReport, MetricsError> {
    check(requests, convention, duration)?;
    let definition = convention.definition();
    let (goodput, attainment) = judge(requests, convention, slo, duration);
    let latency = |of: fn(Convention, &RequestTimes) -> Option<Seconds>| {
        let samples: Vec<Seconds> = requests.iter().filter_map(|request| of(convention, request)).collect();
        if_any(samples, |mut samples| Percentiles::of_slice(&mut samples, definition.percentile))
    };
    let seconds = duration.as_seconds();
    let tokens: u64 = requests.iter().fold(0, |sum, request| sum.saturating_add(request.output_tokens));
    Ok(ToolReport {
        convention,
        requests: requests.len() as u64,
        ttft: latency(Convention::ttft)?,
        tpot: per_token(requests, convention, definition.tpot, Convention::tpot)?,
        itl: per_token(requests, convention, definition.itl, Convention::itl)?,
        e2e: latency(Convention::e2e)?,
        request_rate: RequestsPerSecond::from_requests_per_second(requests.len() as f64 / seconds),
        output_tps_total: TokensPerSecond::from_tokens_per_second(tokens as f64 / seconds),
        stream_tps: StreamRate::of(requests, convention),
        goodput: goodput.filter(|_| definition.goodput == GoodputRule::Joint && !slo.is_empty()),
        attainment,
    })
}

fn per_token(
    requests: &[RequestTimes],
    convention: Convention,
    of: Option<PerToken>,
    one: fn(Convention, &RequestTimes) -> Option<Seconds>,
) -> Result<Option<Percentiles>, MetricsError> {
    let Some(PerToken { gaps, weight }) = of else { return Ok(None) };
    let rule = convention.definition().percentile;
    let found = requests.iter().filter_map(|request| Some((one(convention, request)?, request)));
    match (weight, gaps) {
        (Weight::Request, _) => if_any(found.map(|(value, _)| value).collect(), |mut samples: Vec<Seconds>| {
            Percentiles::of_slice(&mut samples, rule)
        }),
        (Weight::Token, Gaps::Chunks) => {
            let pooled = requests.iter().flat_map(RequestTimes::gaps).map(|run| (run.gap, run.count));
            if_any(pooled.collect(), |samples: Vec<_>| Percentiles::weighted(samples, rule))
        }
        (Weight::Token, Gaps::AfterFirst) => {
            let weighted = found.map(|(value, request)| (value, request.output_tokens - 1));
            if_any(weighted.collect(), |samples: Vec<_>| Percentiles::weighted(samples, rule))
        }
        (Weight::Token, Gaps::All) => {
            let weighted = found.map(|(value, request)| (value, request.output_tokens));
            if_any(weighted.collect(), |samples: Vec<_>| Percentiles::weighted(samples, rule))
        }
    }
}

fn if_any<T>(
    samples: Vec<T>,
    summary: impl FnOnce(Vec<T>) -> Result<Percentiles, MetricsError>,
) -> Result<Option<Percentiles>, MetricsError> {
    if samples.is_empty() { Ok(None) } else { summary(samples).map(Some) }
}

impl StreamRate {
    fn of(requests: &[RequestTimes], convention: Convention) -> Option<Self> {
        let rates =
            || requests.iter().filter_map(|request| Some(convention.stream_tps(request)?.as_tokens_per_second()));
        let (count, sum) = rates().fold((0_u64, 0.0), |(count, sum), rate| (count + 1, sum + rate));
        if count == 0 {
            return None;
        }
        let mean = sum / count as f64;
        let deviation = (count > 1).then(|| {
            let squares: f64 = rates().map(|rate| (rate - mean).powi(2)).sum();
            TokensPerSecond::from_tokens_per_second((squares / (count - 1) as f64).sqrt())
        });
        Some(Self { mean: TokensPerSecond::from_tokens_per_second(mean), deviation })
    }
}
