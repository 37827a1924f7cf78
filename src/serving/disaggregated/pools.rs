//! The two pools by themselves.

use super::PromptOrder;
use super::transfer::CacheBytes;
use crate::queueing::{BatchTime, LimitedBatchQueue, Mgc, Service};
use crate::request::Request;
use crate::serving::mix::StepMix;
use crate::serving::{ServingError, ServingRules};
use crate::step::{StepLoad, StepModel};
use crate::units::Bytes;
use crate::workload::Lengths;

/// Time of a prompt that is alone, in seconds. Under data-parallel attention it is alone on its rank, while the other ranks work on prompts of their own.
pub(super) fn prompt_time(model: &StepModel, prompt: f64, cached: &impl Fn(f64) -> f64) -> f64 {
    let tokens = prompt.round().max(1.0) as u64;
    let found = (cached(prompt).round().max(0.0) as u64).min(tokens - 1);
    let ranks = model.deployment().data_parallel_attention();
    if ranks <= 1 {
        return model.prefill(&Request::new(tokens, 1).with_cached_prompt_tokens(found)).total().as_seconds();
    }
    let most = model.deployment().max_tokens_per_step().unwrap_or(tokens).max(1);
    let (mut done, mut time) = (found, 0.0);
    while done < tokens {
        let chunk = most.min(tokens - done);
        let mut load = model.load();
        load.add_prefills(done, chunk, done + chunk == tokens, f64::from(ranks));
        time += model.cost(&load).total().as_seconds();
        done += chunk;
    }
    time
}

/// The same prompts with answers of one token.
pub(super) fn first_tokens(lengths: &Lengths) -> Result<Lengths, ServingError> {
    let parts = lengths
        .points()
        .iter()
        .map(|point| Ok((point.weight, Lengths::fixed(point.prompt.round().max(1.0) as u64, 1)?)));
    let longest = (1e-12, Lengths::fixed(lengths.longest().0, 1)?);
    let parts = parts.chain([Ok(longest)]).collect::<Result<Vec<_>, ServingError>>()?;
    Ok(Lengths::mixture(parts.into_iter().filter(|part| part.0 > 0.0).collect())?)
}

/// One prefill replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefill {
    /// Mean time of a prompt, and its squared coefficient of variation.
    pub(super) mean: f64,
    scv: f64,
    /// Mean bytes of a prompt's cache.
    pub(super) cache: Bytes,
    /// Ranks of data-parallel attention: each has prompts of its own, and its part of the link.
    pub(super) ranks: u32,
    /// Prompts that fit into a step, and the time of such batches.
    room: u64,
    batch: Option<BatchTime>,
    pub(super) order: PromptOrder,
}

/// From arrival to first token, means in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstTokens {
    pub(super) wait: f64,
    /// Share of the prompts that wait.
    pub(super) waiting: f64,
    pub(super) service: f64,
    pub(super) link_wait: f64,
}

impl Prefill {
    pub(super) fn new(model: &StepModel, lengths: &Lengths, cached: &impl Fn(f64) -> f64, bytes: &CacheBytes) -> Self {
        let (mut mean, mut square, mut tokens, mut cache) = (0.0, 0.0, 0.0, Bytes::ZERO);
        let mut prompt: StepLoad = model.load();
        for point in lengths.points() {
            let (found, all) =
                (cached(point.prompt).min(point.prompt - 1.0).max(0.0).round(), point.prompt.round().max(1.0));
            let time = prompt_time(model, point.prompt, cached);
            mean += point.weight * time;
            square += point.weight * time * time;
            tokens += point.weight * (all - found);
            cache += bytes.of(all as u64) * point.weight;
            prompt.add_prefills(found as u64, (all - found) as u64, true, point.weight);
        }
        let ranks = f64::from(model.deployment().data_parallel_attention());
        let most = model.deployment().max_tokens_per_step().map_or(1e6, |limit| limit as f64 * ranks);
        let room = (most / tokens).floor().clamp(1.0, 256.0);
        let together = |prompts: f64| model.cost(&prompt.scaled(prompts)).total().as_seconds();
        let alone = if ranks > 1.0 { together(1.0).min(mean) } else { mean };
        let slope =
            if room > 1.0 { ((together(room) - together(1.0)) / (room - 1.0)).clamp(0.0, alone) } else { alone };
        let scv = (square / (mean * mean) - 1.0).max(0.0);
        let scv = if scv < 1e-12 { 0.0 } else { scv };
        Self {
            mean,
            scv,
            cache,
            room: room as u64,
            batch: BatchTime::new(slope, (alone - slope).max(0.0)).ok(),
            ranks: model.deployment().data_parallel_attention().max(1),
            order: PromptOrder::default(),
        }
    }

    /// Prompts per second of one replica.
    pub(super) fn max_rate(&self) -> f64 {
        match (self.order, self.batch) {
            (PromptOrder::Batched, Some(time)) => self.room as f64 / time.of(self.room),
            _ => f64::from(self.ranks) / self.mean,
        }
    }

    /// With so many prompts per second for all replicas, each of which sends caches that take `transfer` seconds.
    ///
    /// Behind the prefill a cache waits for the link only if it takes longer than the prefill: constant services one after another wait as long as for the longest of them
    /// (H. D. Friedman, Operations Research 13 (1965) 121).
    pub(super) fn first_token(&self, rate: f64, replicas: u32, transfer: f64) -> Result<FirstTokens, ServingError> {
        let none = FirstTokens { wait: 0.0, waiting: 0.0, service: self.mean, link_wait: 0.0 };
        if rate <= 0.0 {
            return Ok(none);
        }
        let servers = u64::from(replicas) * u64::from(self.ranks);
        let wait = |service: f64| {
            Ok::<f64, ServingError>(Mgc::new(rate, Service::with_scv(service, self.scv)?, servers)?.mean_wait()?)
        };
        let each = rate / f64::from(replicas);
        let first = match (self.order, self.batch) {
            (PromptOrder::Batched, Some(time)) if self.room > 1 => {
                let queue = LimitedBatchQueue::new(each, time, self.room)?;
                // What a prompt's batch takes; long ones have more prompts.
                let service = time.of(1) + time.per_job() * (queue.mean_batch() - 1.0);
                FirstTokens {
                    wait: (queue.mean_sojourn() - service).max(0.0),
                    waiting: queue.utilization(),
                    service,
                    link_wait: 0.0,
                }
            }
            _ => {
                let queue = Mgc::new(rate, Service::with_scv(self.mean, self.scv)?, servers)?;
                FirstTokens { wait: queue.mean_wait()?, waiting: queue.exponential().probability_of_waiting(), ..none }
            }
        };
        let link_wait = if transfer > self.mean { wait(transfer)? - wait(self.mean.min(transfer))? } else { 0.0 };
        Ok(FirstTokens { link_wait: link_wait.max(0.0), ..first })
    }
}

/// One decode replica.
#[derive(Clone, Debug)]
pub(super) struct Decode<'a> {
    mix: StepMix<'a>,
    slots: f64,
    pub(super) cache_sequences: f64,
    /// Mean decode steps of an answer.
    pub(super) steps: f64,
    /// Squared coefficient of variation of the answers.
    scv: f64,
    /// Requests per second with all places taken.
    pub(super) max_rate: f64,
}

/// A decode replica at work, times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoding {
    pub(super) sequences: f64,
    pub(super) step: f64,
    pub(super) wait: f64,
    /// By how much a step is longer for a standard deviation of the number of sequences.
    spread: f64,
    fastest: f64,
}

impl Decoding {
    /// The step at so many standard deviations.
    pub(super) fn step_at(&self, deviations: f64) -> f64 {
        (self.step + self.spread * deviations).max(self.fastest)
    }
}

impl<'a> Decode<'a> {
    pub(super) fn new(model: &'a StepModel, lengths: &Lengths) -> Result<Self, ServingError> {
        let rules = ServingRules::new(model, lengths)?;
        // Prompts come computed.
        let mix = StepMix::new(model, lengths, |prompt| prompt);
        let slots = (rules.slots().0 as f64).min(65_536.0);
        let moments = lengths.moments();
        let deviation = moments.output_deviation() / moments.output;
        let steps = mix.decode_steps;
        let mut decode = Self {
            mix,
            slots,
            cache_sequences: rules.cache_sequences as f64,
            steps,
            scv: deviation * deviation,
            max_rate: f64::INFINITY,
        };
        if steps > 0.0 {
            decode.max_rate = slots / (steps * decode.step(slots));
        }
        Ok(decode)
    }

    fn step(&self, sequences: f64) -> f64 {
        self.mix.step(0.0, sequences.max(1.0)).as_seconds()
    }

    pub(super) fn at(&self, rate: f64) -> Result<Decoding, ServingError> {
        let alone = self.step(1.0);
        let idle = Decoding { sequences: 0.0, step: alone, wait: 0.0, spread: 0.0, fastest: alone };
        if self.steps <= 0.0 || rate <= 0.0 {
            return Ok(idle);
        }
        // What is served grows with the number that is there.
        let (mut low, mut high) = (0.0, self.slots);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if middle / (self.steps * self.step(middle)) < rate { low = middle } else { high = middle }
        }
        let sequences = 0.5 * (low + high);
        let width = (0.05 * sequences).max(1.0);
        let slope = ((self.step(sequences + width) - self.step(sequences)) / width).max(0.0);
        // Numbers fluctuate as a Poisson number does, more where many sequences make each other slower.
        let own = (slope * sequences / self.step(sequences)).min(0.95);
        let variance = (sequences / (1.0 - own)).min(sequences * self.slots);
        // A token is seen by more sequences than there are in the mean over time.
        let seen = (sequences + variance / sequences.max(1e-9)).clamp(1.0, self.slots.max(1.0));
        let step = self.step(seen);
        let residence = self.steps * self.step(sequences);
        let full = Mgc::new(rate, Service::with_scv(residence, self.scv)?, self.slots as u64)
            .and_then(|queue| queue.mean_wait());
        let wait = match full {
            Ok(wait) => wait,
            Err(crate::queueing::QueueError::Unstable { .. }) => 0.0,
            Err(other) => return Err(other.into()),
        };
        let busy = -(-sequences).exp_m1();
        Ok(Decoding {
            sequences,
            step,
            wait: wait + busy * step / 2.0,
            spread: slope * variance.sqrt(),
            fastest: alone,
        })
    }
}
