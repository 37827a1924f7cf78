//! What a benchmark client measures: a run of so many requests from an empty server on, not a steady state.

use super::draw::{self, Drawn, Waits};
use super::error::{above_zero, not_negative};
use super::metrics::Percentiles;
use super::operating::{Clients, Operating};
use super::pattern::prompt_steps;
use super::requests::Drawing;
use super::scene::Scene;
use super::{Server, ServingError};
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use crate::workload::Slo;

/// How a benchmark was run: what published tables are measured with.
///
/// The mean time to first token of a closed loop is mostly its start: all clients send at once, and one of ten requests waits in a queue of prompts
/// that never forms again. A table is reproduced with it; who plans capacity asks for the steady state ([`Server::closed_loop`]).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenchmarkClient {
    /// Requests in all; by default ten for each in flight (InferenceX), 1,000 in an open loop (`vllm bench serve`).
    pub requests: Option<f64>,
    /// Whether all clients of a closed loop send their first request at the same time.
    pub burst: bool,
    /// Whether requests came before those that are measured.
    pub warmed_up: bool,
}

impl Default for BenchmarkClient {
    fn default() -> Self {
        Self { requests: None, burst: true, warmed_up: true }
    }
}

impl BenchmarkClient {
    /// With so many requests in all.
    #[must_use]
    pub const fn with_requests(self, requests: f64) -> Self {
        Self { requests: Some(requests), ..self }
    }

    /// Without requests before those that are measured: the first of them wait for what the engine does at first use.
    #[must_use]
    pub const fn without_warm_up(self) -> Self {
        Self { warmed_up: false, ..self }
    }

    fn requests(&self, by_default: f64) -> Result<f64, ServingError> {
        above_zero("the number of requests of a benchmark", self.requests.unwrap_or(by_default))
    }

    /// With clients that start one after the other, so that nothing is measured but the steady state.
    #[must_use]
    pub const fn with_ramp(self) -> Self {
        Self { burst: false, ..self }
    }
}

/// What the client prints.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenchmarkEstimate {
    /// Time to first token.
    pub ttft: Percentiles,
    /// Time per output token.
    pub tpot: Percentiles,
    /// Gaps between tokens.
    pub itl: Percentiles,
    /// Time to the last token.
    pub e2e: Percentiles,
    /// Requests per second over the whole run.
    pub rate: RequestsPerSecond,
    /// Output tokens per second of everything, over the whole run.
    pub output_tps_total: TokensPerSecond,
}

/// Requests for each in flight, unless the client says otherwise.
const WAVES: f64 = 10.0;
/// Requests of an open loop, unless the client says otherwise.
const OPEN_REQUESTS: f64 = 1000.0;
/// Requests of a burst that stand for all of it.
const BURST: usize = 64;

impl Server<'_> {
    /// A closed loop with so many requests in flight.
    ///
    /// # Formula
    /// `1/w` of the requests are the burst at the start: `c` prompts, as many per step as there is room for, and each waits for those before it. Of the
    /// others, requests of random lengths find the steady state. Requests of one fixed length stay in step (a convoy): one comes first and is processed alone, the
    /// others wait for it and are processed together, for ever.
    ///
    /// # Errors
    /// [`ServingError::Number`] unless there are requests in flight, and any in all.
    pub fn published_closed_loop(
        &self,
        concurrency: f64,
        client: &BenchmarkClient,
    ) -> Result<BenchmarkEstimate, ServingError> {
        above_zero("the number of requests in flight", concurrency)?;
        let requests = client.requests(WAVES * concurrency)?;
        let (mix, rules) = (&self.mix, &self.rules);
        let away = rules.front_end;
        let clients = Clients { count: concurrency, away, meets_step: away > Seconds::ZERO && concurrency > 1.0 };
        let steady = Operating::closed(mix, rules, clients);
        let scene = Scene::closed(mix, rules, &steady, clients.meets_step, self.residence_scv());
        let waits = Waits::Steady { mean: steady.wait + steady.held, deviation: Seconds::ZERO };
        let drawing =
            Drawing { scene: &scene, lengths: &self.drawn_lengths, front_end: rules.front_end, waits: &waits };
        let mut drawn = drawing.requests();
        let mut ttft = steady.first.total() + steady.wait + rules.front_end;
        if let Some(convoy) = self.convoy(concurrency, &steady) {
            ttft = convoy.mean + steady.wait + rules.front_end;
            convoy.put_into(&mut drawn, steady.wait + rules.front_end, concurrency);
        }
        let waves = (requests / concurrency).max(1.0);
        if client.burst {
            let burst = self.burst(concurrency.min(steady.placed), steady.pattern.room);
            let share = 1.0 / waves;
            let first_use = if client.warmed_up { Seconds::ZERO } else { rules.first_use };
            let besides = first_use + steady.wait + rules.front_end;
            ttft = ttft * (1.0 - share) + (burst.mean() + besides) * share;
            burst.add_to(&mut drawn, share, besides);
        }
        let tpot = steady.pattern.mean();
        let e2e = ttft + tpot * mix.decode_steps;
        let rate = RequestsPerSecond::from_requests_per_second(concurrency / e2e.as_seconds());
        Ok(self.estimate(&drawn, ttft, tpot, drawing.gaps(tpot), rate))
    }

    /// All of so many requests sent at once (rate `inf`).
    ///
    /// # Formula
    /// As many as have a place run; the others follow. `duration = requests / rate + drain`: at the end the places run empty, over the time of the longest
    /// answers.
    ///
    /// # Errors
    /// [`ServingError::Number`] unless there are requests.
    pub fn published_offline(&self, requests: f64) -> Result<BenchmarkEstimate, ServingError> {
        above_zero("the number of requests", requests)?;
        let (mix, rules) = (&self.mix, &self.rules);
        let (slots, _) = rules.slots();
        let count = requests.min(slots as f64).max(1.0);
        let steady = Operating::closed(mix, rules, Clients { count, away: Seconds::ZERO, meets_step: false });
        let residence = Seconds::from_seconds(steady.placed / steady.rate);
        let scene = Scene::closed(mix, rules, &steady, false, self.residence_scv());
        let tpot = steady.pattern.mean();
        if requests <= count {
            // All start at once, and nobody follows: prompts first, then answers, of which the long ones are left over.
            let prompts = self.burst(count, steady.pattern.room);
            let rate = RequestsPerSecond::from_requests_per_second(
                requests / (prompts.last + self.drained(count)).as_seconds(),
            );
            let waits = Waits::Steady { mean: Seconds::ZERO, deviation: Seconds::ZERO };
            let drawing =
                Drawing { scene: &scene, lengths: &self.drawn_lengths, front_end: rules.front_end, waits: &waits };
            let mut drawn = drawing.requests();
            prompts.add_to(&mut drawn, ALMOST_ALL, rules.front_end);
            return Ok(self.estimate(&drawn, prompts.mean() + rules.front_end, tpot, drawing.gaps(tpot), rate));
        }
        let duration = Seconds::from_seconds(requests / steady.rate) + residence * self.tail_share();
        let rate = RequestsPerSecond::from_requests_per_second(requests / duration.as_seconds());
        let span = (duration - residence).max(Seconds::ZERO);
        let waits = Waits::Uniform { longest: span };
        let drawing =
            Drawing { scene: &scene, lengths: &self.drawn_lengths, front_end: rules.front_end, waits: &waits };
        let drawn = drawing.requests();
        let ttft = span / 2.0 + steady.first.total() + rules.front_end;
        Ok(self.estimate(&drawn, ttft, tpot, drawing.gaps(tpot), rate))
    }

    /// Requests at a rate, until all of them are answered.
    ///
    /// # Formula
    /// Below saturation the steady state. Beyond it the queue grows: of `N` requests the mean one waits `N/2 (1/X - 1/lambda)`. The rate is measured over the whole run,
    /// to the last answer: `N / (N/lambda + E2E)`.
    ///
    /// # Errors
    /// [`ServingError`].
    pub fn published_open_loop(
        &self,
        rate: RequestsPerSecond,
        client: &BenchmarkClient,
    ) -> Result<BenchmarkEstimate, ServingError> {
        not_negative("requests per second", rate.as_requests_per_second())?;
        let requests = client.requests(OPEN_REQUESTS)?;
        // A run that is short for its load never comes to a steady state.
        let state = self.open_loop(rate * (1.0_f64).min(NEARLY / (rate / self.max_rate)), &Slo::default())?;
        let behind = if rate > self.max_rate { self.max_rate.interval() - rate.interval() } else { Seconds::ZERO };
        let longest = behind * requests;
        let delayed = |summary: Percentiles| Percentiles {
            mean: summary.mean + longest / 2.0,
            p50: summary.p50 + longest * 0.5,
            p90: summary.p90 + longest * 0.9,
            p95: summary.p95 + longest * 0.95,
            p99: summary.p99 + longest * 0.99,
        };
        let summary = &state.summary;
        let missing = Percentiles::constant(Seconds::ZERO);
        let (ttft, e2e) = (delayed(summary.ttft.unwrap_or(missing)), delayed(summary.e2e.unwrap_or(missing)));
        let duration = rate.interval() * requests + e2e.mean + longest / 2.0;
        let rate = RequestsPerSecond::from_requests_per_second(requests / duration.as_seconds());
        let tokens = rate.as_requests_per_second() * self.mix.output_tokens;
        Ok(BenchmarkEstimate {
            ttft,
            tpot: summary.tpot.unwrap_or(missing),
            itl: summary.itl.unwrap_or(missing),
            e2e,
            rate,
            output_tps_total: TokensPerSecond::from_tokens_per_second(tokens),
        })
    }

    fn estimate(
        &self,
        drawn: &[Drawn],
        ttft: Seconds,
        tpot: Seconds,
        itl: Percentiles,
        rate: RequestsPerSecond,
    ) -> BenchmarkEstimate {
        let e2e = ttft + tpot * self.mix.decode_steps;
        let [ttft, tpot, e2e] = draw::percentiles(drawn, [ttft, tpot, e2e]);
        let output_tps_total =
            TokensPerSecond::from_tokens_per_second(rate.as_requests_per_second() * self.mix.output_tokens);
        BenchmarkEstimate { ttft, tpot, itl, e2e, rate, output_tps_total }
    }

    /// So many prompts that come at once.
    fn burst(&self, count: f64, room: f64) -> Burst {
        let room = room.max(1.0);
        let (per_step, steps) = if count <= room { (count, 1.0) } else { (room, (count / room).ceil()) };
        let step = prompt_steps(&self.mix, room, per_step);
        Burst { step, steps, last: step * steps }
    }

    /// Decoding of so many answers that start together, until the last one ends.
    fn drained(&self, count: f64) -> Seconds {
        let longest = self.lengths.longest().1 as f64;
        let mean = self.mix.decode_steps;
        let full = self.mix.step(0.0, count) * mean;
        // Long answers go on with fewer others.
        full + self.mix.step(0.0, (count * 0.1).max(1.0)) * ((longest - 1.0 - mean).max(0.0) * 0.5).min(2.0 * mean)
    }

    /// Time in which the places run empty, over the time of a request.
    fn tail_share(&self) -> f64 {
        // Answers of one length start one after the other, and end so: what is missing at the end was there at the start.
        self.residence_scv().sqrt().min(1.0)
    }

    /// The convoy of requests of one length.
    fn convoy(&self, concurrency: f64, steady: &Operating) -> Option<Convoy> {
        if !self.lengths.is_fixed() || concurrency <= 1.0 || steady.wait > Seconds::ZERO {
            return None;
        }
        let room = steady.pattern.room.max(1.0);
        let first = prompt_steps(&self.mix, room, 1.0);
        let rest = concurrency - 1.0;
        let others = if concurrency <= room {
            first + prompt_steps(&self.mix, room, rest)
        } else {
            prompt_steps(&self.mix, room, room)
        };
        Some(Convoy { first, others, mean: (first + others * rest) / concurrency })
    }
}

/// The share of a burst that is everything.
const ALMOST_ALL: f64 = 0.999;
/// An open loop beyond this share of the capacity is as if saturated.
const NEARLY: f64 = 0.97;

/// Prompts that come at once, so many per step.
struct Burst {
    step: Seconds,
    steps: f64,
    last: Seconds,
}

impl Burst {
    fn mean(&self) -> Seconds {
        self.step * ((self.steps + 1.0) / 2.0)
    }

    /// As a share of all requests.
    fn add_to(&self, drawn: &mut Vec<Drawn>, share: f64, besides: Seconds) {
        let total: f64 = drawn.iter().map(|request| request.weights.0).sum();
        let each = total * share / (1.0 - share).max(1e-9) / BURST as f64;
        for (index, request) in drawn.clone().iter().take(BURST).enumerate() {
            let part = (index as f64 + 0.5) / BURST as f64;
            let step = (part * self.steps).floor() + 1.0;
            let ttft = (self.step * step + besides).as_seconds();
            let e2e = request.e2e - request.ttft + ttft;
            drawn.push(Drawn { weights: (each, request.weights.1), ttft, tpot: request.tpot, e2e });
        }
    }
}

/// Requests of one length that stay in step.
struct Convoy {
    first: Seconds,
    others: Seconds,
    mean: Seconds,
}

impl Convoy {
    fn put_into(&self, drawn: &mut [Drawn], besides: Seconds, concurrency: f64) {
        let count = drawn.len() as f64;
        for (index, request) in drawn.iter_mut().enumerate() {
            let ttft = if (index as f64 + 0.5) / count < 1.0 / concurrency { self.first } else { self.others };
            let ttft = (ttft + besides).as_seconds();
            *request =
                Drawn { weights: (1.0, request.weights.1), ttft, e2e: request.e2e - request.ttft + ttft, ..*request };
        }
    }
}
