//! Prefill and decode on replicas of their own.

mod pools;
mod split;
mod transfer;

pub use split::{Split, balanced_ratio};
#[cfg(feature = "random")]
pub(super) use transfer::{CacheBytes, layers};
pub use transfer::{KvTransfer, Reuse};

use super::ServingError;
use super::draw::{self, Drawn, Waits, normal, places};
use super::error::{above_zero, not_negative, share_of_requests};
use super::metrics::{Goodput, LoadSummary};
use super::replicas::largest_rate;
use super::steady::TimeToFirstToken;
use crate::step::StepModel;
use crate::units::{Bytes, BytesPerSecond, RequestsPerSecond, Seconds, TokensPerSecond};
use crate::workload::{Lengths, SharedPrefix, Slo};
use pools::{Decode, Prefill};

/// Replicas of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// One replica.
    pub model: &'a StepModel,
    /// How many.
    pub replicas: u32,
}

/// How a prefill replica processes prompts that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptOrder {
    /// One after another, from one queue for all replicas (DistServe, Mooncake): M/G/c with Kimura's formula.
    #[default]
    OneByOne,
    /// All that wait at a replica together, within the engine's tokens per step: a bulk queue at each replica.
    Batched,
}

/// Prefill replicas that compute prompts and the first token, and decode replicas that write the rest of the answers.
///
/// # Formula
/// Prompts queue for the prefill (see [`PromptOrder`]). Their caches go over the link of their replica, at most one at a time, and join the batch of a random decode replica, in
/// which `n = lambda/G m tau(n)` sequences decode undisturbed by prompts. The pools are balanced if both are busy: `P/t_p = G B/(tau m)`.
///
/// References: Y. Zhong et al., DistServe, OSDI 2024, arXiv:2401.09670; P. Patel et al., Splitwise, ISCA 2024, arXiv:2311.18677; J. Austin et al., How to Scale Your Model, 2025,
/// chapter 8.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::serving::{Bottleneck, Disaggregated, KvTransfer, Pool};
/// use llm_roofline::workload::{Lengths, Slo};
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?))?;
/// let pool = |replicas| Pool { model: &model, replicas };
/// let network = KvTransfer::new(BytesPerSecond::from_gb_per_second(50.0))?;
/// let pools = Disaggregated::new(pool(2), pool(1), network, &Lengths::fixed(4000, 200)?)?;
/// let state = pools.open_loop(pools.max_rate() * 0.5, &Slo::default())?;
/// assert_eq!(state.bottleneck, Bottleneck::Prefill);
/// assert!(state.summary.ttft.unwrap().mean < Seconds::from_millis(400.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Disaggregated<'a> {
    prefill: Prefill,
    decode: Decode<'a>,
    transfer: KvTransfer,
    replicas: (u32, u32),
    devices: (u32, u32),
    front_end: Seconds,
    output: f64,
    /// Prompt and answer of the requests that stand for all: time of the prefill, steps, bytes of the cache.
    drawn: Vec<(f64, f64, Bytes)>,
    layers: usize,
}

/// Which part is full first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bottleneck {
    /// The prefill replicas.
    Prefill,
    /// The links of the prefill replicas.
    Link,
    /// The decode replicas.
    Decode,
}

/// Pools in steady state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DisaggregatedState {
    /// The report, rates of all replicas together. The time per output token is `(E2E - TTFT)/(m - 1)`: transfer and wait for the decode replica are in it. Batch and cache
    /// are those of a decode replica.
    pub summary: LoadSummary,
    /// Requests per second that are answered.
    pub rate: RequestsPerSecond,
    /// Requests per second that could be answered at most.
    pub max_rate: RequestsPerSecond,
    /// Parts of the mean time to first token, which comes out of the prefill.
    pub ttft: TimeToFirstToken,
    /// Mean time for which a link is busy with one cache.
    pub transfer: Seconds,
    /// The part of it that the second token waits for, with the wait for the link.
    pub exposed_transfer: Seconds,
    /// Mean wait of the second token for a place, and for the running step to end.
    pub decode_queue: Seconds,
    /// Mean time of a decode step.
    pub step: Seconds,
    /// Work of each part over what it can do.
    pub loads: [(Bottleneck, f64); 3],
    /// The part with the highest load.
    pub bottleneck: Bottleneck,
    /// Bytes of caches per second over all links.
    pub network: BytesPerSecond,
}

impl<'a> Disaggregated<'a> {
    /// Pools that serve requests of some lengths, without anything cached.
    ///
    /// # Errors
    /// [`ServingError`] for pools without replicas, and for requests that do not fit or are longer than the model allows.
    pub fn new(
        prefill: Pool<'_>,
        decode: Pool<'a>,
        transfer: KvTransfer,
        lengths: &Lengths,
    ) -> Result<Self, ServingError> {
        Self::caching(prefill, decode, transfer, lengths, |_| 0.0)
    }

    /// The same with a prefix cache in the prefill replicas; whole caches are sent.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_prefix(
        prefill: Pool<'_>,
        decode: Pool<'a>,
        transfer: KvTransfer,
        lengths: &Lengths,
        prefix: &SharedPrefix,
    ) -> Result<Self, ServingError> {
        Self::caching(prefill, decode, transfer, lengths, |prompt| prefix.cached_tokens(prompt))
    }

    fn caching(
        prefill: Pool<'_>,
        decode: Pool<'a>,
        transfer: KvTransfer,
        lengths: &Lengths,
        cached: impl Fn(f64) -> f64,
    ) -> Result<Self, ServingError> {
        let bytes = transfer::CacheBytes::new(prefill.model);
        let place = |place: &draw::Place| {
            let (prompt, output) = lengths.at(place.lengths.0, place.lengths.1);
            (pools::prompt_time(prefill.model, prompt as f64, &cached), output as f64 - 1.0, bytes.of(prompt))
        };
        let front_end = super::ServingRules::new(prefill.model, &pools::first_tokens(lengths)?)?.front_end;
        let pools = Self {
            prefill: Prefill::new(prefill.model, lengths, &cached, &bytes),
            decode: Decode::new(decode.model, lengths)?,
            transfer,
            replicas: (1, 1),
            devices: (
                prefill.model.deployment().devices_per_replica(),
                decode.model.deployment().devices_per_replica(),
            ),
            front_end,
            output: lengths.moments().output,
            drawn: places().iter().map(place).collect(),
            layers: transfer::layers(prefill.model),
        };
        pools.with_replicas(prefill.replicas, decode.replicas)
    }

    /// The same with other numbers of replicas.
    ///
    /// # Errors
    /// [`ServingError::Number`] for pools without replicas.
    pub fn with_replicas(self, prefill: u32, decode: u32) -> Result<Self, ServingError> {
        if prefill == 0 || decode == 0 {
            return Err(ServingError::Number { what: "number of replicas", value: 0.0, expected: "at least 1" });
        }
        Ok(Self { replicas: (prefill, decode), ..self })
    }

    /// The same with another order of prompts.
    #[must_use]
    pub fn with_prompts(mut self, order: PromptOrder) -> Self {
        self.prefill.order = order;
        self
    }

    /// Prefill and decode replicas.
    pub const fn replicas(&self) -> (u32, u32) {
        self.replicas
    }

    /// Devices of both pools.
    pub const fn devices(&self) -> u32 {
        self.replicas.0 * self.devices.0 + self.replicas.1 * self.devices.1
    }

    /// Requests per second that each part could serve at most; none where there is no limit.
    pub fn limits(&self) -> [(Bottleneck, Option<RequestsPerSecond>); 3] {
        let (prefill, decode) = (f64::from(self.replicas.0), f64::from(self.replicas.1));
        let transfer = self.sent(self.prefill.cache).as_seconds() / f64::from(self.prefill.ranks);
        [
            (Bottleneck::Prefill, prefill * self.prefill.max_rate()),
            (Bottleneck::Link, prefill / transfer),
            (Bottleneck::Decode, decode * self.decode.max_rate),
        ]
        .map(|(part, rate)| (part, rate.is_finite().then(|| RequestsPerSecond::from_requests_per_second(rate))))
    }

    /// Requests per second that could be answered at most.
    pub fn max_rate(&self) -> RequestsPerSecond {
        let limits = self.limits().into_iter().filter_map(|(_, rate)| rate);
        limits.reduce(RequestsPerSecond::min).unwrap_or(RequestsPerSecond::ZERO)
    }

    /// The steady state with requests that come independently of each other.
    ///
    /// # Errors
    /// [`ServingError`]; a rate that is negative or not finite is [`ServingError::Number`].
    pub fn open_loop(&self, rate: RequestsPerSecond, slo: &Slo) -> Result<DisaggregatedState, ServingError> {
        let per_second = not_negative("requests per second", rate.as_requests_per_second())?;
        let max_rate = self.max_rate();
        let loads = self.limits().map(|(part, most)| (part, most.map_or(0.0, |most| rate / most)));
        let bottleneck = self
            .limits()
            .into_iter()
            .reduce(|a, b| if less(b.1, a.1) { b } else { a })
            .map_or(Bottleneck::Prefill, |part| part.0);
        let transfer = self.sent(self.prefill.cache);
        let rho = rate / max_rate;
        let mut state = DisaggregatedState {
            summary: LoadSummary { stable: false, rho: Some(rho), ..self.rates(max_rate) },
            rate: max_rate,
            max_rate,
            ttft: TimeToFirstToken::default(),
            transfer,
            exposed_transfer: Seconds::ZERO,
            decode_queue: Seconds::ZERO,
            step: Seconds::ZERO,
            loads,
            bottleneck,
            network: self.prefill.cache / Seconds::from_seconds(1.0) * max_rate.as_requests_per_second(),
        };
        if rho >= 1.0 {
            return Ok(state);
        }
        let first = self.prefill.first_token(per_second, self.replicas.0, transfer.as_seconds())?;
        let decoding = self.decode.at(per_second / f64::from(self.replicas.1))?;
        let seconds = Seconds::from_seconds;
        let exposed = self.exposed(first.link_wait, self.prefill.mean, self.prefill.cache);
        state.ttft = TimeToFirstToken {
            front_end: self.front_end,
            queue: seconds(first.wait),
            prefill: seconds(first.service),
            ..TimeToFirstToken::default()
        };
        state.exposed_transfer = seconds(exposed);
        state.decode_queue = seconds(decoding.wait);
        state.step = seconds(decoding.step);
        state.rate = rate;
        state.network = self.prefill.cache / seconds(1.0) * per_second;
        let drawn = self.requests(&first, &decoding);
        let ttft = state.ttft.total();
        let steps = self.decode.steps;
        let later = if steps > 0.0 { seconds(exposed + decoding.wait) + state.step * steps } else { Seconds::ZERO };
        let weight = |of: &Drawn| of.weights.0 * of.weights.1;
        let tpot = drawn.iter().map(|of| of.tpot * weight(of)).sum::<f64>() / drawn.iter().map(weight).sum::<f64>();
        let share = draw::good_share(&drawn, slo);
        let [ttfts, tpots, e2es] = draw::percentiles(&drawn, [ttft, seconds(tpot), ttft + later]);
        let gaps = later / steps.max(f64::MIN_POSITIVE);
        let mut steps_seen: Vec<_> = places().iter().map(|place| (decoding.step_at(normal(place.whom)), 1.0)).collect();
        state.summary = LoadSummary {
            rho: Some(rho),
            ttft: Some(ttfts),
            tpot: (steps > 0.0).then_some(tpots),
            itl: (steps > 0.0).then(|| draw::weighted(&mut steps_seen, gaps, true)),
            e2e: Some(e2es),
            goodput: Some(Goodput { rate: rate * share, share }),
            mean_batch: Some(decoding.sequences),
            kv_utilization: Some((decoding.sequences / self.decode.cache_sequences).min(1.0)),
            ..self.rates(rate)
        };
        Ok(state)
    }

    /// The steady state with so many requests in flight: the rate at which an open queue has them in the mean.
    ///
    /// # Errors
    /// [`ServingError::Number`] unless there are clients; as [`open_loop`](Self::open_loop).
    ///
    /// # Validity
    /// Clients wait for each other less than independent requests do: times to first token near saturation are upper bounds.
    pub fn closed_loop(&self, concurrency: f64, slo: &Slo) -> Result<DisaggregatedState, ServingError> {
        above_zero("the number of clients", concurrency)?;
        let most = self.max_rate();
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..30 {
            let share = 0.5 * (low + high);
            let state = self.open_loop(most * share, slo);
            let inside = state
                .ok()
                .and_then(|state| Some(state.summary.e2e?.mean.as_seconds() * state.rate.as_requests_per_second()));
            if inside.is_some_and(|inside| inside < concurrency) { low = share } else { high = share }
        }
        self.open_loop(most * low, slo)
    }

    /// The most requests per second of which a `share` meets the limits; zero if not even a few do.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a share that is not above 0 and at most 1; as [`open_loop`](Self::open_loop).
    pub fn max_rate_within(&self, slo: &Slo, share: f64) -> Result<RequestsPerSecond, ServingError> {
        share_of_requests(share)?;
        largest_rate(self.max_rate(), |rate| {
            let state = self.open_loop(rate, slo)?;
            Ok(state.summary.goodput.is_some_and(|good| good.share >= share))
        })
    }

    /// Time of a cache on its way: a rank of data-parallel attention has its part of the replica's links.
    fn sent(&self, cache: Bytes) -> Seconds {
        self.transfer.time(cache * f64::from(self.prefill.ranks))
    }

    fn exposed(&self, link_wait: f64, prefill: f64, cache: Bytes) -> f64 {
        link_wait
            + self
                .transfer
                .exposed(cache * f64::from(self.prefill.ranks), Seconds::from_seconds(prefill), self.layers)
                .as_seconds()
    }

    fn requests(&self, first: &pools::FirstTokens, decoding: &pools::Decoding) -> Vec<Drawn> {
        let waits = Waits::Exponential { share: first.waiting, mean: Seconds::from_seconds(first.wait) };
        let request = |(place, (prompt, steps, cache)): (&draw::Place, &(f64, f64, Bytes))| {
            let ttft =
                self.front_end.as_seconds() + waits.at(place.wait) + prompt + (first.service - self.prefill.mean);
            let later = self.exposed(first.link_wait, *prompt, *cache)
                + decoding.wait
                + steps * decoding.step_at(normal(place.whom));
            let (tpot, later) = if *steps > 0.0 { (later / steps, later) } else { (0.0, 0.0) };
            Drawn { weights: (place.weights.0, 1.0), ttft, tpot, e2e: ttft + later }
        };
        places().iter().zip(&self.drawn).map(request).collect()
    }

    fn rates(&self, rate: RequestsPerSecond) -> LoadSummary {
        let tokens = rate.as_requests_per_second() * self.output;
        LoadSummary {
            stable: true,
            output_tps_total: Some(TokensPerSecond::from_tokens_per_second(tokens)),
            output_tps_per_device: Some(TokensPerSecond::from_tokens_per_second(tokens / f64::from(self.devices()))),
            ..LoadSummary::default()
        }
    }
}

/// Whether a limit is tighter than another.
fn less(a: Option<RequestsPerSecond>, b: Option<RequestsPerSecond>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a < b,
        (a, _) => a.is_some(),
    }
}
