//! What a simulation found out.

use super::backlog::Backlog;
use super::batches::Judged;
use super::confidence::{Estimate, Section, Sections, levels};
use super::histogram::Histogram;
use super::latency::Latency;
use super::request::CompletedRequest;
use super::timeline::TimelinePoint;
use super::totals::Totals;
use crate::serving::metrics::Goodput;
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};

/// Requests that were judged by the limits of their class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClassStatistics {
    /// How many count.
    pub requests: u64,
    /// The share that met all limits.
    pub share: Estimate<f64>,
    /// Requests per second that met all limits.
    pub rate: RequestsPerSecond,
}

/// What a simulation found out.
///
/// Requests that are left out, because the system was still empty or no longer full, are in none of the numbers. Latencies and shares of
/// good requests are those of the requests that count. Rates and averages over time belong to the `window`: from the arrival of the first
/// request that counts to that of the first that is left out at the end. Where none is left out at either end it is the whole run. It ends
/// at the last of the up to 64 marks, so that draining does not count, where only the start is left out, and in open systems whose warm-up
/// may be.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Requests that count.
    pub counted: u64,
    /// Requests that were left out because the system was still filling up.
    pub left_out_at_start: u64,
    /// Requests that were left out because the system was no longer full.
    pub left_out_at_end: u64,
    /// Time to first token, from arrival.
    pub ttft: Option<Latency>,
    /// Time per output token after the first, one number per request.
    pub tpot: Option<Latency>,
    /// Gaps between tokens, of all requests together.
    pub itl: Option<Latency>,
    /// Time to the last token, from arrival.
    pub e2e: Option<Latency>,
    /// Time until a place in a batch, from arrival.
    pub queue: Option<Latency>,
    /// Requests of all classes that met the limits of their class.
    pub goodput: ClassStatistics,
    /// The same by class.
    pub classes: Vec<ClassStatistics>,
    /// The time over which rates and averages are taken.
    pub window: Seconds,
    /// Requests answered per second.
    pub request_rate: RequestsPerSecond,
    /// Output tokens per second of everything.
    pub output_tps_total: TokensPerSecond,
    /// Output tokens per second and device.
    pub output_tps_per_device: TokensPerSecond,
    /// Sequences that run on a replica, averaged over time.
    pub mean_batch: f64,
    /// Requests that wait on all replicas, averaged over time.
    pub mean_waiting: f64,
    /// Share of the cache in use, averaged over time.
    pub kv_utilization: f64,
    /// Share of the time in which replicas run a step.
    pub utilization: f64,
    /// Share of the prompt tokens that were found in the prefix cache.
    pub prefix_hit_rate: f64,
    /// Requests that lost their place.
    pub preemptions: u64,
    /// Steps that were run.
    pub steps: u64,
    /// Whether the deployment keeps up with the arrivals.
    pub backlog: Backlog,
    /// What happened when, over the whole run.
    pub timeline: Vec<TimelinePoint>,
    /// Every request of the whole run in the order of arrival, if they were kept.
    pub requests: Option<Vec<CompletedRequest>>,
    /// What the rates are computed from.
    pub(super) totals: Totals,
    pub(super) scale: Scale,
}

/// The size of what was simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scale {
    /// Blocks of the cache of one replica.
    pub(super) kv_blocks: u64,
    pub(super) devices: u32,
}

impl Statistics {
    /// Of several independent runs, in their order: each is one section of the confidence intervals, and numbers are those of all requests.
    ///
    /// The timeline is that of the first run. Requests follow one another run by run, if all runs kept them. Of no runs everything is 0 or
    /// none.
    pub(in crate::serving::simulate) fn combined(runs: &[Self]) -> Self {
        let [first, others @ ..] = runs else { return Self::default() };
        if others.is_empty() {
            return first.clone();
        }
        let sum = |of: fn(&Self) -> u64| runs.iter().map(of).sum();
        let latency = |of: fn(&Self) -> &Option<Latency>| {
            let parts: Vec<Histogram> =
                runs.iter().filter_map(|run| Some(of(run).as_ref()?.histogram.clone())).collect();
            Latency::of(parts, Sections::Independent)
        };
        let judged = |of: &dyn Fn(&Self) -> Option<ClassStatistics>| {
            let parts: Vec<Judged> =
                runs.iter().map(|run| of(run).map_or(Judged::default(), |of| of.judged())).collect();
            ClassStatistics::of(parts, Sections::Independent)
        };
        let classes = runs.iter().map(|run| run.classes.len()).max().unwrap_or(0);
        let requests: Option<Vec<_>> = runs.iter().map(|run| run.requests.as_deref()).collect();
        let mut combined = Self {
            counted: sum(|run| run.counted),
            left_out_at_start: sum(|run| run.left_out_at_start),
            left_out_at_end: sum(|run| run.left_out_at_end),
            ttft: latency(|run| &run.ttft),
            tpot: latency(|run| &run.tpot),
            itl: latency(|run| &run.itl),
            e2e: latency(|run| &run.e2e),
            queue: latency(|run| &run.queue),
            goodput: judged(&|run| Some(run.goodput)),
            classes: (0..classes).map(|class| judged(&|run| run.classes.get(class).copied())).collect(),
            backlog: Backlog::of_runs(&runs.iter().map(|run| run.backlog).collect::<Vec<_>>()),
            timeline: first.timeline.clone(),
            requests: requests.map(|requests| requests.concat()),
            ..Self::default()
        };
        let totals = runs.iter().fold(Totals::default(), |sum, run| sum + run.totals);
        combined.set_rates(totals, first.scale);
        combined
    }

    /// Requests that met their limits; none if there were no requests.
    pub fn goodput(&self) -> Option<Goodput> {
        (self.goodput.requests > 0).then_some(Goodput { rate: self.goodput.rate, share: self.goodput.share.value })
    }

    /// Fills in everything that is taken over time.
    pub(super) fn set_rates(&mut self, totals: Totals, scale: Scale) {
        self.window = totals.duration();
        self.request_rate = totals.request_rate();
        self.output_tps_total = totals.output_tps();
        self.output_tps_per_device = self.output_tps_total / f64::from(scale.devices.max(1));
        self.mean_batch = totals.mean_batch();
        self.mean_waiting = totals.mean_waiting();
        self.kv_utilization = totals.kv_utilization(scale.kv_blocks);
        self.utilization = totals.utilization();
        self.prefix_hit_rate = totals.prefix_hit_rate();
        self.preemptions = totals.preemptions;
        self.steps = totals.steps;
        (self.totals, self.scale) = (totals, scale);
        // Good requests are told by their arrival, the window by the clock: shares carry over, counts do not.
        let (rate, counted) = (self.request_rate, self.counted as f64);
        for judged in self.classes.iter_mut().chain([&mut self.goodput]) {
            let of_all = if counted > 0.0 { judged.requests as f64 / counted } else { 0.0 };
            judged.rate = rate * (judged.share.value * of_all);
        }
    }
}

impl ClassStatistics {
    /// Without the rate.
    pub(super) fn of(parts: Vec<Judged>, sections: Sections) -> Self {
        let all = parts.iter().copied().fold(Judged::default(), Judged::plus);
        let share =
            |judged: &Judged| if judged.requests > 0 { judged.good as f64 / judged.requests as f64 } else { 0.0 };
        let section = |part: &Judged| Some(Section { value: share(part), samples: part.requests as f64 });
        let value = share(&all);
        let levels = levels(parts, sections, |sum, next| *sum = sum.plus(*next));
        let half_width = sections.widest(value, &levels, section);
        Self { requests: all.requests, share: Estimate { value, half_width }, rate: RequestsPerSecond::ZERO }
    }

    fn judged(&self) -> Judged {
        Judged { requests: self.requests, good: (self.share.value * self.requests as f64).round() as u64 }
    }
}
