//! Consecutive requests in batches of equal size, in bounded memory.

use super::Histogram;
use super::request::CompletedRequest;
use super::totals::Totals;
use super::warm_up::{WarmUp, truncation};
use std::ops::Range;

/// More batches than this are merged pairwise.
pub(super) const MOST_BATCHES: usize = 64;
/// Requests in a batch at first, as a power of two.
const FIRST_SIZE_LOG2: u32 = 3;
/// Parts of the run that intervals are computed from.
const MOST_SECTIONS: usize = 20;

/// Requests of a class that were judged by its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) requests: u64,
    pub(super) good: u64,
}

/// What became of consecutive requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// The run until the first of them arrived.
    pub(super) start: Totals,
    pub(super) completed: u64,
    pub(super) ttft: Histogram,
    pub(super) tpot: Histogram,
    pub(super) e2e: Histogram,
    pub(super) queue: Histogram,
    /// Gaps while the latest arrival was one of them.
    pub(super) itl: Histogram,
    /// By class.
    pub(super) judged: Vec<Judged>,
}

impl Batch {
    /// An empty batch that has room for the durations of another one.
    fn like(other: Option<&Self>, classes: usize) -> Self {
        let Some(other) = other else { return Self { judged: vec![Judged::default(); classes], ..Self::default() } };
        let mut batch = other.clone();
        batch.reuse();
        batch
    }

    pub(super) fn completed(&mut self, request: &CompletedRequest, good: bool, class: usize) {
        self.completed += 1;
        self.ttft.record(request.ttft().as_seconds());
        self.e2e.record(request.e2e().as_seconds());
        self.queue.record(request.queue_time().as_seconds());
        if let Some(tpot) = request.tpot() {
            self.tpot.record(tpot.as_seconds());
        }
        if let Some(judged) = self.judged.get_mut(class) {
            judged.requests += 1;
            judged.good += u64::from(good);
        }
    }

    /// Takes in the batch that follows.
    fn merge(&mut self, next: &Self) {
        self.completed += next.completed;
        self.ttft.merge(&next.ttft);
        self.tpot.merge(&next.tpot);
        self.e2e.merge(&next.e2e);
        self.queue.merge(&next.queue);
        self.itl.merge(&next.itl);
        for (sum, judged) in self.judged.iter_mut().zip(&next.judged) {
            sum.requests += judged.requests;
            sum.good += judged.good;
        }
    }

    /// Empties it for other requests; the memory is kept.
    fn reuse(&mut self) {
        self.completed = 0;
        for histogram in [&mut self.ttft, &mut self.tpot, &mut self.e2e, &mut self.queue, &mut self.itl] {
            histogram.clear();
        }
        self.judged.fill(Judged::default());
    }
}

/// All requests by their position in the order of arrival: batch `i` holds those with `id / size = i`.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    batches: Vec<Batch>,
    /// Batches that were merged into others, for those to come.
    spare: Vec<Batch>,
    size_log2: u32,
    /// The first request of the batch that comes next.
    next_id: u64,
    classes: usize,
}

impl Batches {
    pub(super) fn new(classes: usize) -> Self {
        Self { batches: Vec::new(), spare: Vec::new(), size_log2: FIRST_SIZE_LOG2, next_id: 0, classes }
    }

    /// Whether a request starts a batch.
    #[inline]
    pub(super) const fn is_due(&self, id: u64) -> bool {
        id >= self.next_id
    }

    /// Starts the batch of a request, and those before it that were left out.
    pub(super) fn start(&mut self, id: u64, totals: Totals) {
        while self.is_due(id) {
            if self.batches.len() == MOST_BATCHES {
                self.halve();
            }
            let mut batch = self.spare.pop().unwrap_or_else(|| Batch::like(self.batches.last(), self.classes));
            batch.start = totals;
            self.batches.push(batch);
            self.next_id = self.next_id.saturating_add(1 << self.size_log2);
            if self.next_id == u64::MAX {
                return;
            }
        }
    }

    /// The batch of a request; the last one if it was not started.
    #[inline]
    pub(super) fn of(&mut self, id: u64) -> &mut Batch {
        if self.batches.is_empty() {
            self.start(0, Totals::default());
        }
        let last = self.batches.len() - 1;
        &mut self.batches[((id >> self.size_log2) as usize).min(last)]
    }

    /// The batch of the latest arrival.
    #[inline]
    pub(super) fn latest(&mut self) -> &mut Batch {
        self.of(u64::MAX)
    }

    pub(super) fn all(&self) -> &[Batch] {
        &self.batches
    }

    /// Those that count, if the last `tail` of `requests` do not, nor the warm-up. At least one, if there is one.
    pub(super) fn counted(&self, warm_up: WarmUp, tail: u64, requests: u64) -> Range<usize> {
        let count = self.batches.len();
        // A batch is whole if all of its requests come before the tail.
        let whole = (requests.saturating_sub(tail) >> self.size_log2) as usize;
        let end = if tail == 0 || whole == 0 { count } else { whole.min(count) };
        let start = match warm_up {
            WarmUp::None => 0,
            WarmUp::Requests(requests) => requests.div_ceil(1 << self.size_log2).min(count as u64) as usize,
            WarmUp::Automatic => transient(&self.batches[..end]),
        };
        if start < end { start..end } else { 0..end }
    }

    /// Merges neighbours, so that there are half as many of twice the size.
    fn halve(&mut self) {
        let pairs = self.batches.len() / 2;
        for pair in 0..pairs {
            self.batches.swap(pair, 2 * pair);
            let (front, back) = self.batches.split_at_mut(2 * pair + 1);
            front[pair].merge(&back[0]);
        }
        for mut batch in self.batches.drain(pairs..) {
            batch.reuse();
            self.spare.push(batch);
        }
        self.size_log2 += 1;
    }
}

/// How many of the first batches met a system that was still filling up.
fn transient(batches: &[Batch]) -> usize {
    let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return 0 };
    // Requests that all come at once are a task with a start and an end.
    if last.start.time_s <= first.start.time_s {
        return 0;
    }
    let means: Option<Vec<f64>> = batches.iter().map(|batch| batch.e2e.mean().map(|mean| mean.as_seconds())).collect();
    means.map_or(0, |means| truncation(&means))
}

/// One histogram of each section of consecutive batches: at most 20, of about equal size.
pub(super) fn sections(batches: &[Batch], of: impl Fn(&Batch) -> &Histogram) -> Vec<Histogram> {
    ranges(batches.len())
        .map(|range| {
            let mut section = Histogram::new();
            for batch in &batches[range] {
                section.merge(of(batch));
            }
            section
        })
        .collect()
}

/// The judged requests of each section, of one class or of all.
pub(super) fn judged_sections(batches: &[Batch], class: Option<usize>) -> Vec<Judged> {
    let of_class = |batch: &Batch| match class {
        Some(class) => batch.judged.get(class).copied().unwrap_or_default(),
        None => batch.judged.iter().copied().fold(Judged::default(), Judged::plus),
    };
    ranges(batches.len())
        .map(|range| batches[range].iter().map(of_class).fold(Judged::default(), Judged::plus))
        .collect()
}

impl Judged {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, good: self.good + other.good }
    }
}

fn ranges(batches: usize) -> impl Iterator<Item = Range<usize>> {
    let sections = batches.min(MOST_SECTIONS);
    (0..sections).map(move |section| section * batches / sections..(section + 1) * batches / sections)
}
