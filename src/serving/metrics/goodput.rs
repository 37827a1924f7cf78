//! Which requests were good, and which limits were met.

use super::{Convention, Metric, MetricsError, RequestTimes, SingleToken};
use crate::units::{RequestsPerSecond, Seconds};
use crate::workload::Slo;
use serde::Serialize;

/// Requests that met *all* their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Goodput {
    /// Good requests per second.
    pub rate: RequestsPerSecond,
    /// Good requests as a share of all.
    pub share: f64,
}

/// The share of requests that met each limit, one by one; none where there is no limit, or the tool has no such metric.
///
/// Each is at least the share that meets all of them, where every request is judged: 95 % in time for TTFT and 95 % for TPOT may be as
/// little as 90 % for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Attainment {
    /// Share in time for the first token.
    pub ttft: Option<f64>,
    /// Share within the time per output token.
    pub tpot: Option<f64>,
    /// Share within the inter-token latency.
    pub itl: Option<f64>,
    /// Share in time for the last token.
    pub e2e: Option<f64>,
}

impl Attainment {
    /// The share of one metric.
    pub const fn of(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Ttft => self.ttft,
            Metric::Tpot => self.tpot,
            Metric::Itl => self.itl,
            Metric::E2e => self.e2e,
        }
    }
}

/// Requests that meet all limits at once, by the definitions of a tool (also where the tool itself reports no goodput); none where
/// there is no request that can be judged.
///
/// # Formula
/// `rate = good / duration`, `share = good / judged`. Every request is judged, except that GuideLLM leaves out answers of one token if the
/// time per token is limited, even if they break another limit. Without limits every request is good. A limit on a metric that the tool
/// does not have is met by none.
///
/// # Errors
/// As [`summarise`](super::summarise).
pub fn goodput(
    requests: &[RequestTimes],
    convention: Convention,
    slo: &Slo,
    duration: Seconds,
) -> Result<Option<Goodput>, MetricsError> {
    check(requests, convention, duration)?;
    Ok(judge(requests, convention, slo, duration).0)
}

pub(super) fn check(requests: &[RequestTimes], convention: Convention, duration: Seconds) -> Result<(), MetricsError> {
    let seconds = duration.as_seconds();
    // Rates over next to nothing would be infinite.
    let tokens = requests.iter().map(|request| request.output_tokens as f64).sum::<f64>();
    if !(seconds.is_finite() && seconds > 0.0 && (tokens / seconds).is_finite()) {
        return Err(MetricsError::NoDuration { seconds });
    }
    let refused = convention.definition().single_token == SingleToken::Refused;
    for (index, request) in requests.iter().enumerate() {
        request.check(index)?;
        if refused && request.output_tokens == 1 {
            return Err(MetricsError::SingleToken { index, convention });
        }
    }
    Ok(())
}

/// Goodput and attainment of requests that were checked.
pub(super) fn judge(
    requests: &[RequestTimes],
    convention: Convention,
    slo: &Slo,
    duration: Seconds,
) -> (Option<Goodput>, Attainment) {
    let [mut all, mut ttft, mut tpot, mut itl, mut e2e] = [Tally::default(); 5];
    let rule = convention.definition().single_token;
    for request in requests {
        let found = convention.latencies(request);
        let single = request.output_tokens == 1;
        let verdicts = [
            verdict(slo.ttft, found.ttft, None),
            verdict(slo.tpot, found.tpot, single.then_some(rule)),
            verdict(slo.itl, found.itl, (request.chunk_count() == 1).then_some(rule)),
            verdict(slo.e2e, found.e2e, None),
        ];
        for (tally, verdict) in [&mut ttft, &mut tpot, &mut itl, &mut e2e].into_iter().zip(verdicts) {
            tally.count(verdict);
        }
        all.count(together(verdicts));
    }
    let share = |limit: Option<Seconds>, metric: Metric, tally: Tally| {
        limit.filter(|_| convention.has(metric)).and_then(|_| tally.share())
    };
    let attainment = Attainment {
        ttft: share(slo.ttft, Metric::Ttft, ttft),
        tpot: share(slo.tpot, Metric::Tpot, tpot),
        itl: share(slo.itl, Metric::Itl, itl),
        e2e: share(slo.e2e, Metric::E2e, e2e),
    };
    let rate = RequestsPerSecond::from_requests_per_second(all.good as f64 / duration.as_seconds());
    (all.share().map(|share| Goodput { rate, share }), attainment)
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Good,
    Bad,
    Open,
}

fn verdict(limit: Option<Seconds>, found: Option<Seconds>, missing: Option<SingleToken>) -> Verdict {
    match (limit, found, missing) {
        (None, ..) => Verdict::Good,
        (Some(limit), Some(found), _) if found <= limit => Verdict::Good,
        (_, Some(_), _) => Verdict::Bad,
        (_, None, Some(SingleToken::LeftOutGood)) => Verdict::Good,
        (_, None, Some(SingleToken::LeftOutOpen)) => Verdict::Open,
        (_, None, _) => Verdict::Bad,
    }
}

fn together(verdicts: [Verdict; 4]) -> Verdict {
    if verdicts.contains(&Verdict::Open) {
        Verdict::Open
    } else if verdicts.contains(&Verdict::Bad) {
        Verdict::Bad
    } else {
        Verdict::Good
    }
}

#[derive(Clone, Copy, Default)]
struct Tally {
    good: u64,
    judged: u64,
}

impl Tally {
    fn count(&mut self, verdict: Verdict) {
        self.good += u64::from(verdict == Verdict::Good);
        self.judged += u64::from(verdict != Verdict::Open);
    }

    fn share(self) -> Option<f64> {
        (self.judged > 0).then(|| self.good as f64 / self.judged as f64)
    }
}
