//! What comes of a run.

use super::log::Event;
use super::statistics::{Backlog, Latency, Statistics};
use crate::serving::metrics::{LoadSummary, Percentiles};
use crate::units::Seconds;
use std::fmt;

/// A run that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The report, with the same keys as that of a steady state. Of requests that come at random for ever (a workload with a rate), latencies that
    /// grow with the length of the run are none where the backlog grows; those of the run itself are in [`statistics`](Self::statistics).
    pub summary: LoadSummary,
    /// The same in detail, with confidence intervals.
    pub statistics: Statistics,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were answered.
    pub completed: u64,
    /// Output tokens that were emitted, over all requests.
    pub output_tokens: u64,
    /// Steps of all replicas.
    pub steps: u64,
    /// When the last answer ended, from the start.
    pub time: Seconds,
    /// Whether the run was stopped before its end: requests may be left.
    pub cancelled: bool,
    /// Whether it ended early because the percentiles were known well enough.
    pub known: bool,
    /// Each replica.
    pub replicas: Vec<ReplicaOutcome>,
    /// What happened, if it was to be kept: the first so many events.
    pub events: Vec<Event>,
}

/// What one replica did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplicaOutcome {
    /// Answers that ended there.
    pub completed: u64,
    /// Steps.
    pub steps: u64,
    /// Time in which it ran steps.
    pub busy: Seconds,
    /// Output tokens.
    pub output_tokens: u64,
    /// Prompt tokens that were computed.
    pub prompt_tokens: u64,
    /// Prompt tokens that were found in its cache.
    pub cached_tokens: u64,
    /// How often a request lost its place.
    pub preemptions: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Requests that have arrived.
    pub arrived: u64,
    /// Requests that have been answered.
    pub completed: u64,
    /// Requests that the run has at most.
    pub requests: u64,
    /// Time on the simulation's clock.
    pub time: Seconds,
}

impl fmt::Display for Outcome {
    /// The verdict, a table of latencies with 95 % confidence intervals, rates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { summary, statistics, arrived, completed, .. } = self;
        write!(f, "{}", statistics.backlog)?;
        if let Some(rho) = summary.rho {
            write!(f, ", load {rho:.2} of capacity")?;
        }
        writeln!(f, ", {completed} of {arrived} requests completed in {}", self.time)?;
        if statistics.left_out_at_start + statistics.left_out_at_end > 0 {
            let (start, end) = (statistics.left_out_at_start, statistics.left_out_at_end);
            writeln!(f, "{} count, {start} at the start and {end} at the end do not", statistics.counted)?;
        }
        writeln!(f, "{:<6}{:>24}{:>24}{:>24}{:>24}", "", "mean", "p50", "p90", "p99")?;
        // Without a latency in the summary, that of this run tells how long it was.
        let grows = summary.ttft.is_none();
        let latencies = [
            ("TTFT", &statistics.ttft, grows),
            ("TPOT", &statistics.tpot, false),
            ("ITL", &statistics.itl, false),
            ("E2E", &statistics.e2e, grows),
            ("queue", &statistics.queue, grows),
        ];
        for (name, latency, grows) in latencies {
            let Some(Latency { mean, p50, p90, p99, .. }) = latency else { continue };
            write!(f, "{name:<6}")?;
            if grows {
                writeln!(f, "{:>24}", "grows with the run")?;
                continue;
            }
            [mean, p50, p90, p99].iter().try_for_each(|estimate| write!(f, "{:>24}", estimate.to_string()))?;
            writeln!(f)?;
        }
        let (total, each) = (statistics.output_tps_total, statistics.output_tps_per_device);
        writeln!(f, "answered {}, output {total} in total, {each} per device", statistics.request_rate)?;
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let good = statistics.goodput;
        write!(f, "goodput {}", percent(good.share.value))?;
        good.share.half_width.map_or(Ok(()), |half| write!(f, " ± {}", percent(half)))?;
        writeln!(f, " of requests, {}", good.rate)?;
        let (batch, waiting) = (statistics.mean_batch, statistics.mean_waiting);
        let (cache, busy) = (percent(statistics.kv_utilization), percent(statistics.utilization));
        write!(f, "mean batch {batch:.1}, {waiting:.1} waiting, cache {cache} full, busy {busy} of the time")?;
        if statistics.prefix_hit_rate > 0.0 {
            write!(f, ", {} of prompt tokens cached", percent(statistics.prefix_hit_rate))?;
        }
        if statistics.preemptions > 0 {
            write!(f, ", {} preemptions", statistics.preemptions)?;
        }
        Ok(())
    }
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steady => f.write_str("stable"),
            Self::Growing { requests_per_second } => {
                write!(f, "UNSTABLE: the backlog grows by {requests_per_second:.2} requests per second")
            }
            Self::Undecided => f.write_str("too short a run to tell whether it is stable"),
        }
    }
}

/// The report of statistics; `endless` if the arrivals stand for ones that never stop.
pub(super) fn summarise(statistics: &Statistics, arrived: u64, completed: u64, endless: bool) -> LoadSummary {
    let growing = matches!(statistics.backlog, Backlog::Growing { .. });
    let of = |latency: &Option<Latency>| latency.as_ref().map(Latency::percentiles);
    // What queues in front of a growing backlog only tells how long the run was.
    let queued = |latency: &Option<Latency>| -> Option<Percentiles> { of(latency).filter(|_| !(growing && endless)) };
    let mut summary = LoadSummary::default();
    (summary.requests, summary.completed) = (Some(arrived), Some(completed));
    summary.stable = !growing;
    (summary.ttft, summary.e2e) = (queued(&statistics.ttft), queued(&statistics.e2e));
    (summary.tpot, summary.itl) = (of(&statistics.tpot), of(&statistics.itl));
    summary.output_tps_total = Some(statistics.output_tps_total);
    summary.output_tps_per_device = Some(statistics.output_tps_per_device);
    summary.goodput = statistics.goodput();
    summary.mean_batch = Some(statistics.mean_batch);
    summary.kv_utilization = Some(statistics.kv_utilization);
    summary
}
