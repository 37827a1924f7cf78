//! What a trace says about arrivals.

use super::Trace;
use crate::units::{RequestsPerSecond, Seconds};
use crate::workload::error::{WorkloadError, checked};
use crate::workload::schedule::{RateSchedule, ScheduleEnd};

/// The most bins that a trace is divided into.
const MAX_BINS: f64 = 1e7;

/// How the requests of a trace arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ArrivalStatistics {
    /// How many there are.
    pub requests: usize,
    /// From the first to the last.
    pub span: Seconds,
    /// Gaps per time: one fewer than requests, over the span. None if all come at once.
    pub mean_rate: Option<RequestsPerSecond>,
    /// Squared coefficient of variation of the gaps, `ca2`. None if all come at once.
    pub gap_variation: Option<f64>,
}

impl Trace {
    /// Rate and variation of the arrivals.
    pub fn arrivals(&self) -> ArrivalStatistics {
        let requests = self.requests().len();
        let times = || self.requests().iter().map(|request| request.arrival.as_seconds());
        let first = times().next().unwrap_or_default();
        let span = times().next_back().unwrap_or_default() - first;
        let mut statistics =
            ArrivalStatistics { requests, span: Seconds::from_seconds(span), mean_rate: None, gap_variation: None };
        let gaps = requests.saturating_sub(1) as f64;
        let rate = gaps / span;
        if span > 0.0 && rate.is_finite() {
            let squares: f64 = times().zip(times().skip(1)).map(|(a, b)| ((b - a) * rate).powi(2)).sum();
            statistics.mean_rate = Some(RequestsPerSecond::from_requests_per_second(rate));
            statistics.gap_variation = Some((squares / gaps - 1.0).max(0.0));
        }
        statistics
    }

    /// Variance over mean of the number of requests in a time: 1 for Poisson at any length. Above the variation of the gaps, it tells that
    /// bursts last, which gaps taken one by one do not show.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a time that is not above 0, or so short that the trace has more than ten million of it;
    /// [`WorkloadError::TooFew`] for a trace shorter than two of it.
    pub fn count_dispersion(&self, time: Seconds) -> Result<f64, WorkloadError> {
        let mut counts = self.counts(time)?;
        counts.pop(); // the last one is not full
        if counts.len() < 2 {
            return Err(WorkloadError::TooFew {
                what: "whole intervals in the trace",
                count: counts.len() as u64,
                limit: 2,
            });
        }
        let number = counts.len() as f64;
        let mean = counts.iter().sum::<u64>() as f64 / number;
        let variance = counts.iter().map(|&count| (count as f64 - mean).powi(2)).sum::<f64>() / number;
        Ok(if mean > 0.0 { variance / mean } else { 0.0 })
    }

    /// The rate as it changes, constant over each `time`, from the first request on: arrivals at random with the trace's days and hours.
    ///
    /// # Errors
    /// As [`count_dispersion`](Self::count_dispersion), but one `time` is enough.
    pub fn rate_schedule(&self, time: Seconds) -> Result<RateSchedule, WorkloadError> {
        let rate = |count: &u64| (time, RequestsPerSecond::from_requests_per_second(*count as f64 / time.as_seconds()));
        let steps: Vec<_> = self.counts(time)?.iter().map(rate).collect();
        RateSchedule::steps(&steps, ScheduleEnd::Stop)
    }

    /// How many requests arrive in each interval, from the first request on.
    fn counts(&self, time: Seconds) -> Result<Vec<u64>, WorkloadError> {
        let bins = self.arrivals().span / time;
        let limit = "above 0, and not below a ten-millionth of the trace";
        checked("interval", time.as_seconds(), limit, time > Seconds::ZERO && bins < MAX_BINS)?;
        let first = self.requests().first().map_or(Seconds::ZERO, |request| request.arrival);
        let mut counts = vec![0_u64; bins as usize + 1];
        let last = counts.len() - 1;
        for request in self.requests() {
            counts[(((request.arrival - first) / time) as usize).min(last)] += 1;
        }
        Ok(counts)
    }
}
