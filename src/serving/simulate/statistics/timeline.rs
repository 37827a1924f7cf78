//! What happened when, in bounded memory.

use super::totals::Totals;
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};

/// More points than this are thinned out to half.
pub(super) const MOST_POINTS: usize = 512;
/// The first distance between points.
const FIRST_INTERVAL_S: f64 = 1.0 / 1024.0;

/// What a deployment did in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TimelinePoint {
    /// Start of the stretch.
    pub start: Seconds,
    /// End of the stretch.
    pub end: Seconds,
    /// Sequences that run on a replica, averaged over time.
    pub mean_batch: f64,
    /// Requests that wait on all replicas, averaged over time.
    pub mean_waiting: f64,
    /// Share of the cache in use, averaged over time.
    pub kv_utilization: f64,
    /// Share of the time in which replicas run a step.
    pub utilization: f64,
    /// Output tokens per second of everything.
    pub output_tps_total: TokensPerSecond,
    /// Requests that arrive per second.
    pub request_rate: RequestsPerSecond,
    /// Requests that lost their place.
    pub preemptions: u64,
}

/// Readings at about equal distances, at most 512: the distance doubles as the run gets longer.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    readings: Vec<Totals>,
    interval_s: f64,
    due_s: f64,
}

impl Timeline {
    pub(super) fn new() -> Self {
        Self { readings: Vec::new(), interval_s: FIRST_INTERVAL_S, due_s: FIRST_INTERVAL_S }
    }

    /// Whether it is time for a reading.
    #[inline]
    pub(super) fn due(&self, time_s: f64) -> bool {
        time_s >= self.due_s
    }

    pub(super) fn mark(&mut self, totals: Totals) {
        if self.readings.len() + 1 >= MOST_POINTS {
            self.thin_out();
        }
        self.readings.push(totals);
        self.due_s = totals.time_s + self.interval_s;
    }

    /// The stretches between the readings, the last one until the end of the run.
    pub(super) fn points(&self, end: Totals, kv_blocks: u64) -> Vec<TimelinePoint> {
        let mut before = Totals::default();
        let readings = self.readings.iter().filter(|reading| reading.time_s < end.time_s).chain([&end]);
        let mut points = Vec::with_capacity(self.readings.len() + 1);
        for &reading in readings {
            if reading.time_s > before.time_s {
                points.push(point(before, reading, kv_blocks));
                before = reading;
            }
        }
        points
    }

    /// Doubles the distance until half of the readings are gone. Readings are sums since the start, so that leaving one out merges its
    /// neighbours.
    fn thin_out(&mut self) {
        while self.readings.len() > MOST_POINTS / 2 {
            self.interval_s *= 2.0;
            let mut kept_s = 0.0;
            self.readings.retain(|reading| {
                let keep = reading.time_s >= kept_s + self.interval_s;
                kept_s = if keep { reading.time_s } else { kept_s };
                keep
            });
        }
    }
}

fn point(start: Totals, end: Totals, kv_blocks: u64) -> TimelinePoint {
    let between = end - start;
    TimelinePoint {
        start: start.duration(),
        end: end.duration(),
        mean_batch: between.mean_batch(),
        mean_waiting: between.mean_waiting(),
        kv_utilization: between.kv_utilization(kv_blocks),
        utilization: between.utilization(),
        output_tps_total: between.output_tps(),
        request_rate: RequestsPerSecond::from_requests_per_second(between.per_second(between.arrived as f64)),
        preemptions: between.preemptions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(time_s: f64) -> Totals {
        let arrived = (time_s * 8.0) as u64;
        Totals { time_s, busy_s: time_s / 2.0, available_s: time_s, arrived, ..Totals::default() }
    }

    #[test]
    fn long_runs_have_few_points_that_cover_all() {
        for step_s in [0.03, 1e-4, 7.0] {
            let mut timeline = Timeline::new();
            for step in 1..=200_000 {
                let time_s = f64::from(step) * step_s;
                if timeline.due(time_s) {
                    timeline.mark(reading(time_s));
                }
            }
            let end = reading(200_001.0 * step_s);
            let points = timeline.points(end, 10);
            assert!((200..=MOST_POINTS).contains(&points.len()), "{}", points.len());
            assert_eq!((points[0].start, points[points.len() - 1].end), (Seconds::ZERO, end.duration()));
            assert!(points.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(points.iter().all(|point| (point.utilization - 0.5).abs() < 1e-6));
            let longest = points.iter().map(|point| point.end - point.start).fold(Seconds::ZERO, Seconds::max);
            assert!(longest / end.duration() < 1.0 / 100.0);
        }
    }

    #[test]
    fn bursts_at_one_moment_end() {
        let mut timeline = Timeline::new();
        for _ in 0..2000 {
            timeline.mark(reading(1.0));
        }
        assert_eq!(timeline.points(reading(1.0), 1).len(), 1);
    }
}
