//! Static batching: what waits starts together, and nobody joins before the longest answer has ended.

use super::draw::{self, Drawn, Place, normal, places};
use super::metrics::{Goodput, LoadSummary};
use super::mix::StepMix;
use super::rules::{Limit, ServingRules};
use super::steady::{SteadyState, TimeToFirstToken};
use super::{Server, ServingError};
use crate::numeric::largest_where;
use crate::queueing::VariedBatchQueue;
use crate::request::Request;
use crate::units::{RequestsPerSecond, Seconds};
use crate::workload::{Lengths, Slo};

/// Classes of equal probability that stand for the longest answer of a batch.
const CLASSES: usize = 6;
/// Times of a batch: each class with short and with long prompts.
const TIMES: usize = 2 * CLASSES;
/// Answers that stand for all.
const ANSWERS: usize = 1024;
/// Batches beyond this are not told apart.
const LARGEST: u64 = 8192;

/// What batches of any size take.
///
/// # Formula
/// A batch of `b` takes `tau(b) = P(b) + D(b, L)`: the prefill of all its prompts, and decode steps of all its sequences up to the longest answer. With the answers'
/// distribution `F` the longest of `b` has `F^b`. `D(b, s) = s d(b) + g(b) s (s - 1)/2`, as contexts grow by one token per step.
#[derive(Clone, Debug)]
pub(super) struct WholeBatch {
    sizes: Vec<Size>,
    pub(super) largest: u64,
    pub(super) limit: Limit,
    /// Decode steps of the answers that stand for all: mean, and mean of `s (s - 1)`.
    steps: (f64, f64),
}

/// A batch of some size.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    batch: f64,
    /// The prefill, and how much it varies with the prompts, in seconds.
    prompts: f64,
    deviation: f64,
    /// The first decode step, and by how much each is longer than the one before.
    first: f64,
    growth: f64,
    /// Steps of the longest answer: mean and standard deviation of each class.
    longest: [f64; CLASSES],
    within: [f64; CLASSES],
}

impl Size {
    fn decode(&self, steps: f64) -> f64 {
        steps * self.first + self.growth * steps * (steps - 1.0).max(0.0) / 2.0
    }

    fn times(&self) -> [f64; TIMES] {
        let mut times = [0.0; TIMES];
        for (pair, (steps, within)) in times.chunks_exact_mut(2).zip(self.longest.into_iter().zip(self.within)) {
            let time = self.prompts + self.decode(steps);
            let answers = (self.first + self.growth * steps) * within;
            let deviation = self.deviation.hypot(answers).min(0.9 * time);
            (pair[0], pair[1]) = (time - deviation, time + deviation);
        }
        times
    }

    fn time(&self) -> f64 {
        self.times().iter().sum::<f64>() / TIMES as f64
    }

    fn between(&self, other: &Self, batch: f64) -> Self {
        let width = other.batch - self.batch;
        let part = if width > 0.0 { (batch - self.batch) / width } else { 0.0 };
        let at = |own: f64, others: f64| own + (others - own) * part;
        let each =
            |own: [f64; CLASSES], others: [f64; CLASSES]| std::array::from_fn(|class| at(own[class], others[class]));
        Self {
            batch,
            prompts: at(self.prompts, other.prompts),
            deviation: at(self.deviation, other.deviation),
            first: at(self.first, other.first),
            growth: at(self.growth, other.growth),
            longest: each(self.longest, other.longest),
            within: each(self.within, other.within),
        }
    }
}

impl WholeBatch {
    pub(super) fn new(mix: &StepMix<'_>, rules: &ServingRules, lengths: &Lengths) -> Self {
        let answers = answers(lengths);
        let (largest, limit) = largest_batch(mix, rules, lengths, &answers);
        let mut sizes = Vec::new();
        let mut batch = 1;
        loop {
            sizes.push(Size::new(mix, lengths, &answers, batch));
            if batch >= largest {
                break;
            }
            batch = (batch + 1).max(batch * 5 / 4).min(largest);
        }
        let mean = |of: fn(f64) -> f64| answers.iter().map(|&steps| of(steps)).sum::<f64>() / answers.len() as f64;
        let steps = (mean(|steps| steps), mean(|steps| steps * (steps - 1.0).max(0.0)));
        Self { sizes, largest, limit, steps }
    }

    fn at(&self, batch: f64) -> Size {
        let above = self.sizes.partition_point(|size| size.batch < batch).clamp(1, self.sizes.len().max(2) - 1);
        match (&self.sizes[above - 1], self.sizes.get(above)) {
            (low, Some(high)) => low.between(high, batch.min(high.batch)),
            (low, None) => *low,
        }
    }

    /// Requests per second if batches are always full.
    pub(super) fn max_rate(&self) -> f64 {
        self.largest as f64 / self.at(self.largest as f64).time()
    }

    /// What the prompt of one request takes of a full batch.
    pub(super) fn prefill_per_request(&self) -> Seconds {
        let size = self.at(self.largest as f64);
        Seconds::from_seconds(size.prompts / size.batch)
    }

    /// Mean decode time of a request in such a batch, and mean time per token.
    fn decoding(&self, size: &Size) -> (f64, f64) {
        let (steps, pairs) = self.steps;
        let time = steps * size.first + size.growth * pairs / 2.0;
        (time, if steps > 0.0 { time / steps } else { 0.0 })
    }

    /// The mean size of batches with so many clients, and requests per second.
    fn closed(&self, clients: f64, away: f64) -> (f64, f64) {
        let most = clients.min(self.largest as f64);
        if away <= 0.0 {
            return (most, most / self.at(most).time());
        }
        // A client that is back before the batch ends is in the next one, others are in one of the later ones.
        let batches = |batch: f64| {
            let size = self.at(batch.max(1.0));
            let time = size.time();
            let back = |class: f64| (size.prompts + size.decode(class) + away) / time;
            let shares: [f64; 8] = std::array::from_fn(|class| self.quantile((class as f64 + 0.5) / 8.0));
            shares.into_iter().map(|steps| back(steps).ceil()).sum::<f64>() / 8.0
        };
        let mut batch = most;
        for _ in 0..30 {
            batch += 0.5 * ((clients / batches(batch)).min(most) - batch);
        }
        let size = self.at(batch.max(1.0));
        let alone = size.prompts + self.decoding(&size).0 + away;
        // Few clients, or long pauses: the server waits for them.
        let rate = (batch.max(1.0) / size.time()).min(clients / alone);
        (batch.max(1.0), rate)
    }

    fn quantile(&self, share: f64) -> f64 {
        // The longest of one.
        let longest = &self.sizes[0].longest;
        let position = (share * CLASSES as f64 - 0.5).clamp(0.0, (CLASSES - 1) as f64);
        let below = (position as usize).min(CLASSES - 2);
        longest[below] + (longest[below + 1] - longest[below]) * (position - below as f64)
    }
}

impl Size {
    fn new(mix: &StepMix<'_>, lengths: &Lengths, answers: &[f64], batch: u64) -> Self {
        let model = mix.model();
        let b = batch as f64;
        let prompt = (mix.prompt_tokens + mix.cached_tokens).round().max(1.0) as u64;
        let (longest, within) = longest_of(answers, b);
        let most = (longest[CLASSES - 1].round() as u64).max(2);
        let first = model.decode_step(batch, prompt).total().as_seconds();
        let run = model.decode_run(batch, prompt, most).total().as_seconds();
        let steps = most as f64;
        let growth = ((run - first * steps) * 2.0 / (steps * (steps - 1.0))).max(0.0);
        let prompts = prompt_time(mix, b);
        // Prompts vary independently of each other.
        let deviation = alone_deviation(mix, lengths) * b.sqrt() * (prompts / (b * prompt_time(mix, 1.0))).min(1.0);
        Self { batch: b, prompts, deviation, first, growth, longest, within }
    }
}

/// The prefill of a batch: all its prompts, in steps of at most so many tokens as the engine allows.
fn prompt_time(mix: &StepMix<'_>, prompts: f64) -> f64 {
    let room = mix
        .model()
        .deployment()
        .max_tokens_per_step()
        .map_or(f64::INFINITY, |tokens| tokens as f64 / mix.prompt_tokens);
    super::pattern::prompt_steps(mix, room.max(f64::MIN_POSITIVE), prompts).as_seconds()
}

/// Standard deviation of the time of a prompt that is alone, in seconds.
fn alone_deviation(mix: &StepMix<'_>, lengths: &Lengths) -> f64 {
    let share = if mix.prompt_tokens > 0.0 { mix.prompt_tokens / (mix.prompt_tokens + mix.cached_tokens) } else { 1.0 };
    let (mut mean, mut square) = (0.0, 0.0);
    for point in lengths.points() {
        let time =
            mix.model().prefill(&Request::new((point.prompt * share).round().max(1.0) as u64, 1)).total().as_seconds();
        mean += point.weight * time;
        square += point.weight * time * time;
    }
    (square - mean * mean).max(0.0).sqrt()
}

/// Decode steps of answers that stand for all, in order.
fn answers(lengths: &Lengths) -> Vec<f64> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let count = if lengths.is_fixed() { 1 } else { ANSWERS };
    let share = |index: usize| ((index as f64 + 0.5) / count as f64, (0.5 + index as f64 * GOLDEN).fract());
    let mut answers: Vec<f64> =
        (0..count).map(share).map(|(first, second)| lengths.at(first, second).1 as f64 - 1.0).collect();
    answers.sort_by(f64::total_cmp);
    answers
}

/// The longest of `batch` answers: means and standard deviations in classes of equal probability.
fn longest_of(answers: &[f64], batch: f64) -> ([f64; CLASSES], [f64; CLASSES]) {
    let count = answers.len() as f64;
    let (mut classes, mut squares) = ([0.0; CLASSES], [0.0; CLASSES]);
    let mut passed = 0.0_f64;
    for (index, steps) in answers.iter().enumerate() {
        let until = ((index as f64 + 1.0) / count).powf(batch);
        let (mut from, to) = (passed * CLASSES as f64, until * CLASSES as f64);
        while from < to {
            let class = (from as usize).min(CLASSES - 1);
            let end = if class == CLASSES - 1 { to } else { to.min((class + 1) as f64) };
            classes[class] += steps * (end - from);
            squares[class] += steps * steps * (end - from);
            from = end;
        }
        passed = until;
    }
    let within = std::array::from_fn(|class| (squares[class] - classes[class] * classes[class]).max(0.0).sqrt());
    (classes, within)
}

/// The largest batch that has a place each, and room for every prompt and the longest answer as often.
fn largest_batch(mix: &StepMix<'_>, rules: &ServingRules, lengths: &Lengths, answers: &[f64]) -> (u64, Limit) {
    let most = rules.max_sequences.clamp(1, LARGEST);
    let room = |batch: u64| {
        let longest = longest_of(answers, batch as f64).0.iter().sum::<f64>() / CLASSES as f64 + 1.0;
        mix.model().memory().fits(batch, (lengths.moments().prompt + longest).ceil() as u64)
    };
    match largest_where(1, most, room) {
        Some(batch) if batch < most => (batch, Limit::Cache),
        Some(batch) => (batch, Limit::Sequences),
        None => (1, Limit::Cache),
    }
}

impl Server<'_> {
    pub(super) fn whole_batches(
        &self,
        whole: &WholeBatch,
        rate: RequestsPerSecond,
        slo: &Slo,
    ) -> Result<SteadyState, ServingError> {
        let per_second = rate.as_requests_per_second();
        let queue = VariedBatchQueue::new(per_second, whole.largest, |batch| whole.at(batch as f64).times())?;
        let mut means = Means::default();
        for (waiting, &probability) in queue.waiting().iter().enumerate() {
            means.add(whole, queue.batch_of(waiting as u64).0 as f64, probability);
        }
        let means = means.finished(queue.mean_wait());
        let drawn = places()
            .iter()
            .zip(&self.drawn_lengths)
            .map(|(place, lengths)| self.in_batch(whole, &queue, per_second, place, lengths.1));
        let batch = means.batch_over_time * queue.utilization();
        let waits = per_second * queue.mean_wait();
        Ok(self.batched_state(rate, (Some(queue.load()), batch, waits, Limit::Clients), &means, drawn.collect(), slo))
    }

    pub(super) fn whole_batches_closed(
        &self,
        whole: &WholeBatch,
        clients: f64,
        think_time: Seconds,
        slo: &Slo,
    ) -> SteadyState {
        let away = (think_time + self.rules.front_end).as_seconds();
        let (batch, per_second) = whole.closed(clients, away);
        let size = whole.at(batch);
        let mut means = Means::default();
        means.add(whole, batch, 1.0);
        // Little's law: who is neither away nor in a batch waits for one.
        let present = size.prompts + whole.decoding(&size).0 + away;
        let wait = (clients / per_second - present).max(0.0);
        let means = means.finished(wait);
        let drawn = places().iter().zip(&self.drawn_lengths).map(|(place, lengths)| {
            let spread = size.time() * (place.when - 0.5);
            let wait = (wait + spread.clamp(-wait, wait)).max(0.0);
            self.drawn_of(&size, wait, (1.0, 1.0), lengths.1)
        });
        let limit = if clients > batch && batch >= whole.largest as f64 { whole.limit } else { Limit::Clients };
        let busy = (per_second / batch * size.time()).min(1.0);
        let rate = RequestsPerSecond::from_requests_per_second(per_second);
        self.batched_state(rate, (None, batch * busy, per_second * wait, limit), &means, drawn.collect(), slo)
    }

    fn batched_state(
        &self,
        rate: RequestsPerSecond,
        load: (Option<f64>, f64, f64, Limit),
        means: &Means,
        drawn: Vec<Drawn>,
        slo: &Slo,
    ) -> SteadyState {
        let (rho, batch, waiting, limit) = load;
        let seconds = Seconds::from_seconds;
        let ttft = TimeToFirstToken {
            front_end: self.rules.front_end,
            queue: seconds(means.wait),
            prefill: seconds(means.prompts),
            ..TimeToFirstToken::default()
        };
        let (tpot, e2e) = (seconds(means.token), ttft.total() + seconds(means.decode));
        let decodes = self.mix.decode_steps > 0.0;
        let share = draw::good_share(&drawn, slo);
        let [ttfts, tpots, e2es] = draw::percentiles(&drawn, [ttft.total(), tpot, e2e]);
        let mut gaps: Vec<_> =
            drawn.iter().zip(&self.drawn_lengths).map(|(of, lengths)| (of.tpot, lengths.1 - 1.0)).collect();
        let max_rate = self.max_rate();
        let summary = LoadSummary {
            rho: rho.or(Some((rate / max_rate).min(1.0))),
            ttft: Some(ttfts),
            tpot: decodes.then_some(tpots),
            itl: decodes.then(|| draw::weighted(&mut gaps, tpot, false)),
            e2e: Some(e2es),
            goodput: Some(Goodput { rate: rate * share, share }),
            ..self.rates(rate, batch)
        };
        SteadyState { summary, rate, max_rate, ttft, limit, mean_queue: waiting, classes: Vec::new(), drawn }
    }

    /// A request that finds the queue at a random moment.
    fn in_batch(&self, whole: &WholeBatch, queue: &VariedBatchQueue, rate: f64, place: &Place, output: f64) -> Drawn {
        let weights = (place.weights.0, 1.0);
        let idle = 1.0 - queue.utilization();
        if place.whom < idle {
            return self.drawn_of(&whole.at(1.0), 0.0, weights, output);
        }
        let (batch, left) = found_batch(whole, queue, (place.whom - idle) / (1.0 - idle));
        let time = length_biased(&whole.at(batch).times(), place.together);
        let passed = time * place.when;
        let ahead = left + poisson(rate * passed, 1.0 - place.before);
        let largest = whole.largest as f64;
        let full = (ahead / largest).floor();
        let wait = time - passed + full * whole.at(largest).time();
        let behind = poisson(rate * wait, place.wait);
        let own = (ahead - full * largest + 1.0 + behind).min(largest);
        self.drawn_of(&whole.at(own), wait, weights, output)
    }

    fn drawn_of(&self, size: &Size, wait: f64, weights: (f64, f64), output: f64) -> Drawn {
        let steps = output - 1.0;
        let ttft = self.rules.front_end.as_seconds() + wait + size.prompts;
        let decode = size.decode(steps);
        Drawn { weights, ttft, tpot: if steps > 0.0 { decode / steps } else { 0.0 }, e2e: ttft + decode }
    }
}

/// The batch that runs at a random moment while the server works, and how many are left over by it.
fn found_batch(whole: &WholeBatch, queue: &VariedBatchQueue, share: f64) -> (f64, f64) {
    let time =
        |waiting: usize, probability: f64| probability * whole.at(queue.batch_of(waiting as u64).0 as f64).time();
    let states = || queue.waiting().iter().enumerate();
    let total: f64 = states().map(|(waiting, &probability)| time(waiting, probability)).sum();
    let mut passed = 0.0;
    for (waiting, &probability) in states() {
        passed += time(waiting, probability);
        if passed >= share * total {
            let (batch, left) = queue.batch_of(waiting as u64);
            return (batch as f64, left as f64);
        }
    }
    (whole.largest as f64, 0.0)
}

/// One of equally likely times, as a random moment finds it: long ones more often.
fn length_biased(times: &[f64; TIMES], share: f64) -> f64 {
    let total: f64 = times.iter().sum();
    let mut passed = 0.0;
    for &time in times {
        passed += time;
        if passed >= share * total {
            return time;
        }
    }
    times[TIMES - 1]
}

/// The number that a share of a Poisson distribution does not exceed; of large ones by the normal distribution.
fn poisson(mean: f64, share: f64) -> f64 {
    if mean > 50.0 {
        return (mean + mean.sqrt() * normal(share)).round().max(0.0);
    }
    let (mut probability, mut count) = ((-mean).exp(), 0.0);
    let mut passed = probability;
    while share > passed && count < 200.0 {
        count += 1.0;
        probability *= mean / count;
        passed += probability;
    }
    count
}

/// Means over requests.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    jobs: f64,
    time: f64,
    batch_over_time: f64,
    wait: f64,
    prompts: f64,
    decode: f64,
    token: f64,
}

impl Means {
    /// Adds the requests of batches of this size.
    fn add(&mut self, whole: &WholeBatch, batch: f64, probability: f64) {
        let (size, weight) = (whole.at(batch), probability * batch);
        let (decode, token) = whole.decoding(&size);
        self.jobs += weight;
        self.time += probability * size.time();
        self.batch_over_time += weight * size.time();
        self.prompts += weight * size.prompts;
        self.decode += weight * decode;
        self.token += weight * token;
    }

    fn finished(self, wait: f64) -> Self {
        let Self { jobs, time, .. } = self;
        Self {
            wait,
            batch_over_time: self.batch_over_time / time,
            prompts: self.prompts / jobs,
            decode: self.decode / jobs,
            token: self.token / jobs,
            ..self
        }
    }
}
