//! What came out of a run.

use llm_roofline::prelude::*;

/// A request that was answered. Times count from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// When it was sent.
    pub arrival: Seconds,
    /// Start of the step that first computed something of it.
    pub admitted: Seconds,
    /// End of the step that emitted its first token.
    pub first_token: Seconds,
    /// End of the step that emitted its last token.
    pub last_token: Seconds,
    /// Prompt tokens.
    pub prompt: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// How often it lost its place.
    pub preemptions: u32,
}

impl Served {
    /// From sending to admission.
    pub fn wait(&self) -> Seconds {
        self.admitted - self.arrival
    }

    /// Time to first token.
    pub fn ttft(&self) -> Seconds {
        self.first_token - self.arrival
    }

    /// Mean gap between its tokens; `None` for an answer of one token.
    pub fn tpot(&self) -> Option<Seconds> {
        (self.output > 1).then(|| (self.last_token - self.first_token) / (self.output - 1) as f64)
    }

    /// End-to-end latency.
    pub fn e2e(&self) -> Seconds {
        self.last_token - self.arrival
    }
}

/// Equal gaps before tokens that were emitted together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// When the tokens were emitted.
    pub at: Seconds,
    /// Since the tokens before them.
    pub gap: Seconds,
    /// How many.
    pub count: u32,
}

/// Means over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Averages {
    /// The time.
    pub time: Seconds,
    /// Sequences that have a place.
    pub running: f64,
    /// Of these, sequences whose prompt has been computed.
    pub decoding: f64,
    /// Requests that reached the scheduler and have no place.
    pub waiting: f64,
    /// Tokens that the cache holds or reserves.
    pub cache_tokens: f64,
    /// Steps that were run (not a mean).
    pub steps: u64,
    /// Time in which steps ran (not a mean).
    pub busy: Seconds,
    /// Tokens that were emitted (not a mean).
    pub output_tokens: u64,
    /// Requests that were answered (not a mean).
    pub answered: u64,
}

impl Averages {
    /// Tokens emitted over time.
    pub fn output_tps_total(&self) -> TokensPerSecond {
        TokensPerSecond::from_tokens_per_second(self.output_tokens as f64 / self.time.as_seconds())
    }

    /// Mean time of a step.
    pub fn step_time(&self) -> Seconds {
        self.busy / self.steps as f64
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Requests in the order of their arrivals.
    pub requests: Vec<Served>,
    /// Gaps between tokens, in the order of their ends; empty if they were not to be kept.
    pub gaps: Vec<Gap>,
    /// From time zero to the last token.
    pub whole: Averages,
    /// Between the ends of the first and the last answers that are not cut off, or the whole run if nothing is.
    pub steady: Averages,
    /// Share of the requests that is left out of statistics, at either end.
    pub cut: f64,
}

impl Outcome {
    /// The requests that count.
    pub fn kept(&self) -> &[Served] {
        let count = self.requests.len();
        let cut = cut_off(count, self.cut);
        &self.requests[cut..count - cut]
    }

    /// Values of the requests that count, sorted.
    pub fn sorted(&self, value: impl Fn(&Served) -> Option<Seconds>) -> Vec<Seconds> {
        let mut values: Vec<_> = self.kept().iter().filter_map(value).collect();
        values.sort_by(|a, b| a.as_seconds().total_cmp(&b.as_seconds()));
        values
    }

    /// Sorted times to first token.
    pub fn ttft(&self) -> Vec<Seconds> {
        self.sorted(|served| Some(served.ttft()))
    }

    /// Sorted mean gaps of each request.
    pub fn tpot(&self) -> Vec<Seconds> {
        self.sorted(Served::tpot)
    }

    /// Sorted end-to-end latencies.
    pub fn e2e(&self) -> Vec<Seconds> {
        self.sorted(|served| Some(served.e2e()))
    }

    /// Sorted waits for admission.
    pub fn wait(&self) -> Vec<Seconds> {
        self.sorted(|served| Some(served.wait()))
    }

    /// Gaps between the first arrival that counts and the last, sorted. All of them if nothing is cut off.
    pub fn itl(&self) -> Gaps {
        let inside = |gap: &&Gap| match self.kept() {
            [first, .., last] if self.cut > 0.0 => gap.at >= first.arrival && gap.at <= last.arrival,
            _ => true,
        };
        let mut sorted: Vec<_> = self.gaps.iter().filter(inside).map(|gap| (gap.gap, u64::from(gap.count))).collect();
        sorted.sort_by(|(a, _), (b, _)| a.as_seconds().total_cmp(&b.as_seconds()));
        let count = sorted.iter().map(|(_, count)| count).sum();
        Gaps { sorted, count }
    }

    /// Times that requests lost their places.
    pub fn preemptions(&self) -> u64 {
        self.requests.iter().map(|served| u64::from(served.preemptions)).sum()
    }
}

/// Sorted gaps and how often each occurred.
#[derive(Clone, Debug)]
pub struct Gaps {
    sorted: Vec<(Seconds, u64)>,
    /// How many.
    pub count: u64,
}

impl Gaps {
    /// Over all tokens.
    pub fn mean(&self) -> Seconds {
        self.sorted.iter().map(|&(gap, count)| gap * count as f64).sum::<Seconds>() / self.count as f64
    }

    /// The smallest gap that is at least as long as this share of all; `share` from 0 to 1.
    pub fn percentile(&self, share: f64) -> Seconds {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut passed = 0;
        let at_rank = self.sorted.iter().find(|(_, count)| {
            passed += count;
            passed >= rank
        });
        at_rank.expect("gaps were kept").0
    }
}

/// How many of `count` are left out at either end.
pub(super) const fn cut_off(count: usize, share: f64) -> usize {
    (count as f64 * share) as usize
}

/// The mean.
pub fn mean(values: &[Seconds]) -> Seconds {
    assert!(!values.is_empty(), "the mean of nothing");
    values.iter().copied().sum::<Seconds>() / values.len() as f64
}

/// The percentile of sorted values, interpolated as NumPy and with it the benchmark clients of vLLM and SGLang do; `share` from 0 to 1.
pub fn percentile(sorted: &[Seconds], share: f64) -> Seconds {
    let place = share * (sorted.len() - 1) as f64;
    let below = place as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}
