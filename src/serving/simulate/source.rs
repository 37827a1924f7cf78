//! Requests as they come, one after another: never more of them in memory than are under way.

use super::sequence::{Asked, Prefix};
use crate::serving::ServingError;
use crate::workload::{ArrivalTimes, Arrivals, SharedPrefix, Trace, TraceRequest, Workload};
use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times and lengths have generators of their own: other lengths leave the times as they are.
const LENGTHS: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hash of the tokens that all prompts of a workload share.
const SHARED: u64 = 1;

/// The requests of a run.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    kind: Kind<'a>,
    /// The next request of an open source.
    next: Option<Asked<'a>>,
    sent: u64,
    /// The most that the client has under way, and how many it has.
    most: u64,
    under_way: u64,
}

#[derive(Clone, Debug)]
enum Kind<'a> {
    Open { times: ArrivalTimes<'a>, drawing: Drawing<'a>, left: u64 },
    Clients { sends: BinaryHeap<Reverse<(u64, u64)>>, thinking: Thinking, drawing: Drawing<'a>, left: u64 },
    Trace { requests: std::slice::Iter<'a, TraceRequest>, block_tokens: u64 },
}

/// Time from an answer to the client's next request: always the same, or exponentially distributed.
#[derive(Clone, Debug)]
struct Thinking {
    mean: f64,
    rng: Option<Box<Pcg64Mcg>>,
}

impl Thinking {
    #[inline]
    fn time(&mut self) -> f64 {
        match &mut self.rng {
            None => self.mean,
            Some(rng) => self.mean * rng.sample::<f64, _>(Exp1),
        }
    }
}

/// Random requests of a workload.
#[derive(Clone, Debug)]
struct Drawing<'a> {
    workload: &'a Workload,
    rng: Pcg64Mcg,
}

impl<'a> Drawing<'a> {
    fn new(workload: &'a Workload, seed: u64) -> Self {
        Self { workload, rng: Pcg64Mcg::seed_from_u64(seed ^ LENGTHS) }
    }

    #[inline]
    fn draw(&mut self, id: u64, arrival: f64) -> Asked<'a> {
        let drawn = self.workload.sample(&mut self.rng);
        let priority = self.workload.classes().get(drawn.class).map_or(0, |class| class.priority);
        let (cached, prefix) = match self.workload.prefix() {
            // What all share is a matter of the cache.
            Some(SharedPrefix::Fixed { .. }) if drawn.cached_tokens > 0 => {
                (0, Prefix::Shared { hash: SHARED, tokens: drawn.cached_tokens })
            }
            _ => (drawn.cached_tokens, Prefix::Own),
        };
        let (prompt, output) = (drawn.prompt_tokens, drawn.output_tokens);
        Asked { id, arrival, prompt, output, cached, class: drawn.class as u32, priority, prefix }
    }
}

impl<'a> Source<'a> {
    /// `requests` of a workload.
    pub(super) fn new(workload: &'a Workload, requests: u64, seed: u64) -> Result<Self, ServingError> {
        let drawing = Drawing::new(workload, seed);
        let kind = match workload.arrivals() {
            Arrivals::ClosedLoop { concurrency, think_time, ramp, random_thinking } => {
                let clients = (*concurrency).min(requests);
                let rng = random_thinking.then(|| Box::new(Pcg64Mcg::seed_from_u64(seed)));
                let mut thinking = Thinking { mean: think_time.as_seconds(), rng };
                let mut start = |client: u64| match ramp {
                    Some(ramp) => ramp.as_seconds() * (client as f64 / clients as f64),
                    None if *random_thinking => thinking.time(),
                    None => 0.0,
                };
                let sends = (0..clients).map(|client| Reverse((start(client).to_bits(), client))).collect();
                Kind::Clients { sends, thinking, drawing, left: requests }
            }
            Arrivals::AllAtOnce { requests: most, .. } => {
                Kind::Open { times: workload.arrivals().times(seed)?, drawing, left: requests.min(*most) }
            }
            arrivals => Kind::Open { times: arrivals.times(seed)?, drawing, left: requests },
        };
        let most = match workload.arrivals() {
            Arrivals::ClosedLoop { .. } => u64::MAX,
            _ => workload.max_concurrency().unwrap_or(u64::MAX),
        };
        let mut source = Self { kind, next: None, sent: 0, most, under_way: 0 };
        source.prepare(0.0);
        Ok(source)
    }

    /// The requests of a trace.
    pub(super) fn of_trace(trace: &'a Trace) -> Self {
        let kind = Kind::Trace { requests: trace.requests().iter(), block_tokens: trace.block_tokens() };
        let mut source = Self { kind, next: None, sent: 0, most: u64::MAX, under_way: 0 };
        source.prepare(0.0);
        source
    }

    /// When the next request is sent, in seconds; infinite if that is not known yet, or never.
    #[inline]
    pub(super) fn next_time(&self) -> f64 {
        match (&self.kind, &self.next) {
            (Kind::Clients { sends, left, .. }, _) if *left > 0 => {
                sends.peek().map_or(f64::INFINITY, |Reverse((bits, _))| f64::from_bits(*bits))
            }
            (_, Some(next)) if self.under_way < self.most => next.arrival,
            _ => f64::INFINITY,
        }
    }

    /// The next request.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Asked<'a>> {
        if let Kind::Clients { sends, drawing, left, .. } = &mut self.kind {
            let Reverse((bits, _)) = sends.pop().filter(|_| *left > 0)?;
            *left -= 1;
            self.sent += 1;
            return Some(drawing.draw(self.sent - 1, f64::from_bits(bits)));
        }
        let next = self.next.take()?;
        self.under_way += 1;
        self.prepare(next.arrival);
        Some(next)
    }

    /// Draws the next request of an open source; it is not sent before `now`.
    #[inline]
    fn prepare(&mut self, now: f64) {
        let id = self.sent;
        self.next = match &mut self.kind {
            Kind::Clients { .. } => None,
            Kind::Open { times, drawing, left } => match left.checked_sub(1) {
                Some(rest) => {
                    *left = rest;
                    times.next().map(|time| drawing.draw(id, time.as_seconds().max(now)))
                }
                None => None,
            },
            Kind::Trace { requests, block_tokens } => requests.next().map(|request| Asked {
                id,
                arrival: request.arrival.as_seconds().max(now),
                prompt: request.prompt_tokens,
                output: request.output_tokens,
                cached: request.cached_tokens,
                class: 0,
                priority: 0,
                prefix: match request.block_hashes.is_empty() {
                    true => Prefix::Own,
                    false => Prefix::Blocks { hashes: &request.block_hashes, block_tokens: *block_tokens },
                },
            }),
        };
        self.sent += u64::from(self.next.is_some());
    }

    /// So many answers have come at this time: their clients think, or send what they held back.
    #[inline]
    pub(super) fn answered(&mut self, answers: u64, now: f64) {
        match &mut self.kind {
            Kind::Clients { sends, thinking, .. } => {
                for _ in 0..answers {
                    sends.push(Reverse(((now + thinking.time()).to_bits(), self.sent)));
                }
            }
            _ if self.most < u64::MAX => {
                if self.under_way >= self.most
                    && let Some(next) = &mut self.next
                {
                    next.arrival = next.arrival.max(now);
                }
                self.under_way -= answers;
            }
            _ => {}
        }
    }

    /// Whether answers decide when requests are sent.
    pub(super) const fn hears_of_answers(&self) -> bool {
        matches!(self.kind, Kind::Clients { .. }) || self.most < u64::MAX
    }
}
