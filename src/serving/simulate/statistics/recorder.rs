//! What a simulation reports to while it runs.

use super::backlog::Backlog;
use super::batches::{Batch, Batches, judged_sections, sections};
use super::confidence::Sections;
use super::latency::{Latency, p99};
use super::request::CompletedRequest;
use super::result::{ClassStatistics, Scale, Statistics};
use super::timeline::Timeline;
use super::totals::Totals;
use super::warm_up::WarmUp;
use crate::units::Seconds;
use crate::workload::Slo;
use std::ops::Range;

/// A tail is not known from fewer requests.
const FEWEST_REQUESTS: u64 = 1000;
/// Nor from fewer batches.
const FEWEST_BATCHES: usize = 10;

/// What is recorded.
#[derive(Clone, Debug, Default)]
pub(in crate::serving::simulate) struct RecorderSettings {
    /// The limits of each class. Requests of classes that have none belong to the last one; without any, every request is good.
    pub(in crate::serving::simulate) slos: Vec<Slo>,
    /// What is left out at the start.
    pub(in crate::serving::simulate) warm_up: WarmUp,
    /// How many requests are left out at the end.
    pub(in crate::serving::simulate) tail: u64,
    /// Whether requests arrive whatever the deployment does, over some time.
    pub(in crate::serving::simulate) open: bool,
    /// Blocks of the cache of one replica.
    pub(in crate::serving::simulate) kv_blocks: u64,
    /// Devices of all replicas.
    pub(in crate::serving::simulate) devices: u32,
    /// Whether every request is kept.
    pub(in crate::serving::simulate) keep_requests: bool,
}

/// Takes down what happens in a simulation, in bounded memory unless requests are kept.
///
/// Durations and times are finite and not negative; others count as 0.
#[derive(Clone, Debug)]
pub(in crate::serving::simulate) struct Recorder {
    settings: RecorderSettings,
    pub(super) batches: Batches,
    timeline: Timeline,
    /// One more than the largest id that was answered.
    ids: u64,
    requests: Vec<CompletedRequest>,
}

impl Recorder {
    pub(in crate::serving::simulate) fn new(mut settings: RecorderSettings) -> Self {
        if settings.slos.is_empty() {
            settings.slos.push(Slo::default());
        }
        let batches = Batches::new(settings.slos.len());
        Self { settings, batches, timeline: Timeline::new(), ids: 0, requests: Vec::new() }
    }

    /// Whether [`Recorder::mark`] is to be called at the arrival of a request.
    #[inline]
    pub(in crate::serving::simulate) const fn needs_mark(&self, id: u64) -> bool {
        self.batches.is_due(id)
    }

    /// Takes down the state of the run just before a request arrives.
    pub(in crate::serving::simulate) fn mark(&mut self, id: u64, totals: Totals) {
        self.batches.start(id, totals);
    }

    /// A request was answered.
    #[inline]
    pub(in crate::serving::simulate) fn completed(&mut self, request: &CompletedRequest) {
        let class = (request.class as usize).min(self.settings.slos.len() - 1);
        let good = self.settings.slos[class].meets(&request.latencies());
        self.batches.of(request.id).completed(request, good, class);
        self.ids = self.ids.max(request.id.saturating_add(1));
        if self.settings.keep_requests {
            self.requests.push(*request);
        }
    }

    /// So many tokens came after the same gap.
    #[inline]
    pub(in crate::serving::simulate) fn gap(&mut self, gap_s: f64, tokens: u64) {
        self.batches.latest().itl.record_many(gap_s, tokens);
    }

    /// Steps whose length grows evenly, with some tokens each.
    #[inline]
    pub(in crate::serving::simulate) fn gaps(&mut self, first_s: f64, growth_s: f64, steps: u64, tokens_per_step: u64) {
        self.batches.latest().itl.record_line(first_s, growth_s, steps, tokens_per_step);
    }

    /// Whether [`Recorder::sample`] is to be called at this time.
    #[inline]
    pub(in crate::serving::simulate) fn due(&self, time_s: f64) -> bool {
        self.timeline.due(time_s)
    }

    /// Takes down the state of the run for the timeline.
    pub(in crate::serving::simulate) fn sample(&mut self, totals: Totals) {
        self.timeline.mark(totals);
    }

    /// Whether the 99th percentiles of TTFT, TPOT and E2E are each known to within a share of their value, at 95 % confidence.
    ///
    /// The last batch does not count, since its requests may still be running: those that are answered are the short ones. Not known from
    /// fewer than 1,000 requests.
    pub(in crate::serving::simulate) fn p99_known_within(&self, share: f64) -> bool {
        let whole = self.batches.all().len().saturating_sub(1);
        let counted = self.counted(self.ids);
        let batches = &self.batches.all()[counted.start.min(whole)..counted.end.min(whole)];
        if batches.len() < FEWEST_BATCHES || completed(batches) < FEWEST_REQUESTS {
            return false;
        }
        let known = |of: fn(&Batch) -> &super::Histogram| match p99(sections(batches, of)) {
            Some(p99) => p99.half_width.is_some_and(|half| half <= p99.value * share),
            // Answers of one token have no time per further token.
            None => true,
        };
        known(|batch| &batch.ttft) && known(|batch| &batch.tpot) && known(|batch| &batch.e2e)
    }

    /// What came of the run.
    pub(in crate::serving::simulate) fn finish(mut self, end: Totals) -> Statistics {
        let counted = self.counted(self.ids.max(end.arrived));
        let (before, rest) = self.batches.all().split_at(counted.start);
        let (batches, after) = rest.split_at(counted.len());
        let latency = |of: fn(&Batch) -> &super::Histogram| Latency::of(sections(batches, of), Sections::OfOneRun);
        let classes = 0..self.settings.slos.len();
        let scale = Scale { kv_blocks: self.settings.kv_blocks, devices: self.settings.devices };
        let mut statistics = Statistics {
            counted: completed(batches),
            left_out_at_start: completed(before),
            left_out_at_end: completed(after),
            ttft: latency(|batch| &batch.ttft),
            tpot: latency(|batch| &batch.tpot),
            itl: latency(|batch| &batch.itl),
            e2e: latency(|batch| &batch.e2e),
            queue: latency(|batch| &batch.queue),
            goodput: ClassStatistics::of(judged_sections(batches, None), Sections::OfOneRun),
            classes: classes
                .map(|class| ClassStatistics::of(judged_sections(batches, Some(class)), Sections::OfOneRun))
                .collect(),
            backlog: self.backlog(),
            timeline: self.timeline.points(end, self.settings.kv_blocks),
            ..Statistics::default()
        };
        statistics.set_rates(self.window(&counted, end), scale);
        if self.settings.keep_requests {
            self.requests.sort_by_key(|request| request.id);
            statistics.requests = Some(self.requests);
        }
        statistics
    }

    fn counted(&self, requests: u64) -> Range<usize> {
        self.batches.counted(self.settings.warm_up, self.settings.tail, requests)
    }

    /// What happened in the time that rates are taken over.
    fn window(&self, counted: &Range<usize>, end: Totals) -> Totals {
        let batches = self.batches.all();
        let start = if counted.start == 0 { Totals::default() } else { batches[counted.start].start };
        // After its last arrival an open system drains, which is as little of its steady state as the start is. A run that leaves
        // nothing out on principle is measured as benchmark clients do, until the last answer.
        let drains = self.settings.open && self.settings.warm_up != WarmUp::None && batches.len() >= FEWEST_BATCHES;
        let stop = match batches.get(counted.end) {
            Some(left_out) => left_out.start,
            None if drains || counted.start > 0 => batches.last().map_or(end, |last| last.start),
            None => end,
        };
        if stop.time_s > start.time_s { stop - start } else { end - start }
    }

    fn backlog(&self) -> Backlog {
        if !self.settings.open {
            return Backlog::Steady;
        }
        let readings: Vec<Totals> = self.batches.all().iter().map(|batch| batch.start).collect();
        let first = self.batches.all().iter().find_map(|batch| Some(batch.e2e.mean()? - batch.queue.mean()?));
        Backlog::of(&readings, first.unwrap_or(Seconds::ZERO).as_seconds())
    }
}

fn completed(batches: &[Batch]) -> u64 {
    batches.iter().map(|batch| batch.completed).sum()
}
