//! Who sends what, and when.

use super::Simulation;
use llm_roofline::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Prompt tokens, cached ones included.
    pub prompt: u64,
    /// Prompt tokens that need not be computed.
    pub cached: u64,
    /// Tokens of the answer.
    pub output: u64,
}

impl Lengths {
    /// Nothing cached.
    pub const fn new(prompt: u64, output: u64) -> Self {
        Self { prompt, cached: 0, output }
    }

    /// With so many prompt tokens in the prefix cache.
    pub const fn with_cached(self, cached: u64) -> Self {
        Self { cached, ..self }
    }
}

/// The requests of a run.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// At given times, in any order.
    Open(Vec<(Seconds, Lengths)>),
    /// Clients that each send the next request of the list once their answer has ended.
    Closed {
        /// Clients.
        concurrency: usize,
        /// Between the end of an answer and the next request of the client.
        think: Seconds,
        /// Requests in the order in which they are sent.
        lengths: Vec<Lengths>,
        /// When the clients start.
        start: Start,
    },
    /// All at once.
    Offline(Vec<Lengths>),
}

/// When the clients of a closed loop start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Together.
    Burst,
    /// Evenly over a time.
    Ramp(Seconds),
    /// Evenly over about the time that a request takes while all clients are served.
    Spread,
}

impl Arrivals {
    /// Requests at these times.
    pub fn open(times: Vec<Seconds>, lengths: impl IntoIterator<Item = Lengths>) -> Self {
        let requests: Vec<_> = times.into_iter().zip(lengths).collect();
        Self::Open(requests)
    }

    pub(super) fn source(&self, simulation: &Simulation<'_>) -> Source {
        let mut source = match self {
            Self::Open(requests) => {
                let mut requests = requests.clone();
                requests.sort_by(|(a, _), (b, _)| a.as_seconds().total_cmp(&b.as_seconds()));
                let (times, lengths): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
                Source::new(lengths, &times, None)
            }
            Self::Offline(lengths) => Source::new(lengths.clone(), &vec![Seconds::ZERO; lengths.len()], None),
            Self::Closed { concurrency, think, lengths, start } => {
                assert!(*concurrency > 0 && *think >= Seconds::ZERO);
                let clients = (*concurrency).min(lengths.len());
                let over = match start {
                    Start::Burst => Seconds::ZERO,
                    Start::Ramp(time) => *time,
                    Start::Spread => time_together(simulation, clients, lengths),
                };
                let times: Vec<_> = (0..clients).map(|client| over * (client as f64 / clients as f64)).collect();
                Source::new(lengths.clone(), &times, Some(*think))
            }
        };
        source.lengths.iter().for_each(|&lengths| simulation.check(lengths));
        source.front_end = simulation.front_end;
        source
    }
}

/// About how long a request of mean lengths takes while `clients` are served.
fn time_together(simulation: &Simulation<'_>, clients: usize, lengths: &[Lengths]) -> Seconds {
    let mean = |count: fn(&Lengths) -> u64| lengths.iter().map(count).sum::<u64>() / lengths.len().max(1) as u64;
    let (prompt, cached, output) = (mean(|of| of.prompt), mean(|of| of.cached), mean(|of| of.output));
    let together = clients.min(simulation.max_sequences);
    let mut load = simulation.model.load();
    load.add_prefill(cached, prompt - cached, true);
    let decode = simulation.model.decode_run(together as u64, prompt, output);
    simulation.model.cost(&load).total() * together as f64 + decode.total()
}

/// Hands out the requests in the order of their times.
pub(super) struct Source {
    pub(super) lengths: Vec<Lengths>,
    /// Times at which requests will be sent, as bits: positive floats are ordered as their bits are. Equal times in the order of their making.
    sends: BinaryHeap<Reverse<(u64, usize)>>,
    scheduled: usize,
    sent: usize,
    /// Time until a client that was answered sends again; `None` if nobody does.
    think: Option<Seconds>,
    front_end: Seconds,
}

/// A request on its way.
pub(super) struct Sent {
    pub(super) id: usize,
    pub(super) lengths: Lengths,
    pub(super) arrival: Seconds,
    /// When it may be admitted.
    pub(super) ready: Seconds,
}

impl Source {
    fn new(lengths: Vec<Lengths>, times: &[Seconds], think: Option<Seconds>) -> Self {
        let sends = BinaryHeap::with_capacity(times.len());
        let mut source = Self { lengths, sends, scheduled: 0, sent: 0, think, front_end: Seconds::ZERO };
        times.iter().for_each(|&time| source.schedule(time));
        source
    }

    fn schedule(&mut self, time: Seconds) {
        assert!(time.as_seconds() >= 0.0 && time.is_finite(), "a request at {time}");
        // Adding zero turns -0 into 0.
        self.sends.push(Reverse(((time + Seconds::ZERO).as_seconds().to_bits(), self.scheduled)));
        self.scheduled += 1;
    }

    /// A client has its answer.
    pub(super) fn answered(&mut self, now: Seconds) {
        if let Some(think) = self.think.filter(|_| self.scheduled < self.lengths.len()) {
            self.schedule(now + think);
        }
    }

    /// When the next request may be admitted.
    pub(super) fn next_ready(&self) -> Option<Seconds> {
        self.sends.peek().map(|Reverse((bits, _))| Seconds::from_seconds(f64::from_bits(*bits)) + self.front_end)
    }

    /// The next request that may be admitted by now.
    pub(super) fn next(&mut self, now: Seconds) -> Option<Sent> {
        let ready = self.next_ready().filter(|&ready| ready <= now)?;
        let Reverse((bits, _)) = self.sends.pop()?;
        let id = self.sent;
        self.sent += 1;
        Some(Sent { id, lengths: self.lengths[id], arrival: Seconds::from_seconds(f64::from_bits(bits)), ready })
    }
}

/// Arrivals of a Poisson process: `count` times with exponential gaps of mean `1 / rate`.
pub fn poisson(rate: RequestsPerSecond, count: usize, seed: u64) -> Vec<Seconds> {
    let mut random = Random::new(seed);
    let mut time = 0.0;
    let mut next = || {
        time += random.exponential(rate.interval().as_seconds());
        Seconds::from_seconds(time)
    };
    (0..count).map(|_| next()).collect()
}

/// Pseudo-random numbers (splitmix64: Steele, Lea, Flood 2014, doi 10.1145/2714064.2660195).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low ..= high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.unit() * (high - low + 1) as f64) as u64
    }

    /// Exponential.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Geometric on 1, 2, ...: lengths without memory.
    pub fn geometric(&mut self, mean: f64) -> u64 {
        if mean <= 1.0 { 1 } else { 1 + ((1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln()) as u64 }
    }
}
