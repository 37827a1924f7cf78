//! Several replicas behind a router.

use super::draw::{self, Drawn, normal};
use super::error::{above_zero, not_negative, share_of_requests};
use super::metrics::{Goodput, LoadSummary};
use super::steady::{SteadyState, TimeToFirstToken};
use super::{Server, ServingError};
use crate::numeric::largest_where;
use crate::queueing::Mmc;
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use crate::workload::{SharedPrefix, Slo};

/// How requests are shared among replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Router {
    /// Each to any replica: of Poisson arrivals every replica gets Poisson arrivals of `rate / n` (Kleinrock, Queueing Systems I, 1975, section 2.4).
    #[default]
    Random,
    /// One after the other: a replica gets every `n`-th request, so the times between its arrivals are sums of `n`, with a squared coefficient of variation of `1/n`.
    RoundRobin,
    /// To the replica with the fewest requests (join the shortest queue). Taken at its limit, in which replicas fluctuate together: the number in each varies `1/n`
    /// as much as alone, and a request waits for a place only if all replicas are full, as in one queue of all places. That is a lower bound of the wait:
    /// a request stays at the replica that it was given to (for one place per replica see R. D. Nelson and T. K. Philips, ACM SIGMETRICS Performance Evaluation Review 17 (1989) 181).
    LeastLoaded,
    /// Requests with the same prefix to the same replica, by a hash: loads are as uneven as `groups` balls in `n` bins.
    Affinity {
        /// Prefixes (conversations, tenants) that are alive at a time, each with an equal share of the requests.
        groups: u64,
    },
}

impl Router {
    /// What the prefix cache of each replica holds for requests that it gets.
    ///
    /// # Formula
    /// A conversation's history lies in the replica that answered last, which gets the next turn with probability `1/n` unless the router sees to it. First tokens that
    /// all prompts share are in every replica.
    ///
    /// # Validity
    /// Older parts of a history that another replica still holds do not count; the hit rate of the prefix must hold for one replica that sees all turns.
    ///
    /// # Errors
    /// [`ServingError::Number`] without replicas.
    pub fn prefix(&self, prefix: &SharedPrefix, replicas: u32) -> Result<SharedPrefix, ServingError> {
        let count = f64::from(checked(replicas)?);
        let found = if matches!(self, Self::Affinity { .. }) { 1.0 } else { 1.0 / count };
        let mut seen = *prefix;
        match &mut seen {
            SharedPrefix::Fixed { .. } => {}
            SharedPrefix::Share { hit_rate } | SharedPrefix::Turns { hit_rate, .. } => *hit_rate *= found,
        }
        Ok(seen)
    }
}

fn checked(replicas: u32) -> Result<u32, ServingError> {
    if replicas > 0 {
        Ok(replicas)
    } else {
        Err(ServingError::Number { what: "number of replicas", value: 0.0, expected: "at least 1" })
    }
}

/// Requests as a router lets them through to one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arriving {
    /// Squared coefficient of variation of the times between arrivals.
    pub(super) scv: f64,
    /// Replicas that fluctuate together.
    pub(super) together: u64,
}

impl Arriving {
    pub(super) const POISSON: Self = Self { scv: 1.0, together: 1 };

    /// Independent gaps with this squared coefficient of variation: the inverse of vLLM's `--burstiness`.
    pub(super) const fn renewal(scv: f64) -> Self {
        Self { scv, together: 1 }
    }

    fn new(router: Router, count: u32) -> Self {
        let scv = 1.0 / f64::from(count);
        match router {
            Router::Random | Router::Affinity { .. } => Self::POISSON,
            Router::RoundRobin => Self { scv, together: 1 },
            Router::LeastLoaded => Self { scv, together: u64::from(count) },
        }
    }

    /// Variance over mean of the arrivals of what fluctuates together.
    pub(super) fn dispersion(self) -> f64 {
        if self.together > 1 { 1.0 } else { self.scv }
    }

    /// The variance of the number in one replica: its part of the whole, and that it is an integer.
    pub(super) fn shared(self, variance: f64) -> f64 {
        let part = 1.0 / self.together as f64;
        variance * part + (1.0 - part) / 12.0
    }

    /// Mean wait for one of `slots` places over that of Poisson arrivals: M/M/c with the places of all replicas, or two moments of arrivals and services (W. Kraemer and
    /// M. Langenbach-Belz, ITC 8, 1976).
    pub(super) fn wait_ratio(self, rho: f64, slots: u64, service_scv: f64) -> f64 {
        if self.together > 1 {
            let wait = |servers: u64| Mmc::new(rho * servers as f64, 1.0, servers).map(|queue| queue.mean_wait());
            return match (wait(slots), wait(slots.saturating_mul(self.together).min(100_000_000))) {
                (Ok(one), Ok(all)) if one > 0.0 => (all / one).min(1.0),
                _ => 1.0,
            };
        }
        if self.scv == 1.0 {
            return 1.0;
        }
        let (ca, cs) = (self.scv, service_scv);
        let exponent = match ca {
            regular if regular <= 1.0 => {
                2.0 * (1.0 - rho) * (1.0 - ca) * (1.0 - ca) / (3.0 * rho * (ca + cs).max(1e-9))
            }
            _ => (1.0 - rho) * (ca - 1.0) / (ca + 4.0 * cs),
        };
        (ca + cs) / (1.0 + cs) * (-exponent).exp()
    }
}

/// Equal replicas of a deployment behind a router.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::serving::{Replicas, Router, Server};
/// use llm_roofline::workload::{Lengths, Slo};
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?))?;
/// let server = Server::new(&model, &Lengths::fixed(1000, 200)?)?;
/// let four = Replicas::new(&server, 4, Router::Random)?;
/// let state = four.open_loop(server.max_rate() * 2.0, &Slo::default())?;
/// assert_eq!(format!("{:.2}", state.summary.rho.unwrap()), "0.50");
/// // Whoever knows how busy they are makes requests wait less.
/// let better = Replicas::new(&server, 4, Router::LeastLoaded)?.open_loop(server.max_rate() * 2.0, &Slo::default())?;
/// assert!(better.summary.ttft.unwrap().p99 < state.summary.ttft.unwrap().p99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Replicas<'s, 'm> {
    server: &'s Server<'m>,
    count: u32,
    router: Router,
}

/// Replicas in steady state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplicatedState {
    /// Of all replicas together: rates are totals, batches and the cache are those of a mean replica.
    pub summary: LoadSummary,
    /// The busiest replica.
    pub replica: SteadyState,
    /// Replicas.
    pub replicas: u32,
    /// Requests per second that are answered by all.
    pub rate: RequestsPerSecond,
    /// Requests per second at which the busiest replica is full.
    pub max_rate: RequestsPerSecond,
    /// Requests that the busiest replica gets, over the mean.
    pub imbalance: f64,
}

/// Replicas of different loads that are told apart.
const KINDS: u32 = 8;

impl<'s, 'm> Replicas<'s, 'm> {
    /// So many replicas, each of which serves as `server` does.
    ///
    /// # Errors
    /// [`ServingError::Number`] without replicas, or without groups of prefixes.
    pub fn new(server: &'s Server<'m>, count: u32, router: Router) -> Result<Self, ServingError> {
        if router == (Router::Affinity { groups: 0 }) {
            return Err(ServingError::Number { what: "number of prefixes", value: 0.0, expected: "at least 1" });
        }
        Ok(Self { server, count: checked(count)?, router })
    }

    /// Requests per second at which the busiest replica is full.
    pub fn max_rate(&self) -> RequestsPerSecond {
        self.server.max_rate() * f64::from(self.count) / self.imbalance()
    }

    /// Requests that the busiest replica gets, over the mean.
    pub fn imbalance(&self) -> f64 {
        self.shares().into_iter().fold(1.0, f64::max)
    }

    /// The steady state with so many requests per second in all.
    ///
    /// # Errors
    /// [`ServingError`]; a rate that is negative or not finite is [`ServingError::Number`].
    pub fn open_loop(&self, rate: RequestsPerSecond, slo: &Slo) -> Result<ReplicatedState, ServingError> {
        not_negative("requests per second", rate.as_requests_per_second())?;
        let each = rate / f64::from(self.count);
        let arriving = Arriving::new(self.router, self.count);
        let shares = self.shares();
        let states = shares.iter().map(|&share| self.server.open_loop_of(each * share, arriving, slo));
        let states = states.collect::<Result<Vec<_>, _>>()?;
        let summary = self.total(&states, &shares);
        let served: f64 =
            states.iter().map(|state| state.rate.as_requests_per_second()).sum::<f64>() / states.len() as f64;
        let (imbalance, max_rate) = (self.imbalance(), self.max_rate());
        let replica = states
            .into_iter()
            .max_by(|a, b| a.rate.as_requests_per_second().total_cmp(&b.rate.as_requests_per_second()));
        let summary = LoadSummary { rho: Some(rate / max_rate), ..summary };
        let rate = RequestsPerSecond::from_requests_per_second(served * f64::from(self.count));
        let replica =
            replica.ok_or(ServingError::Number { what: "number of replicas", value: 0.0, expected: "at least 1" })?;
        Ok(ReplicatedState { summary, replica, replicas: self.count, rate, max_rate, imbalance })
    }

    /// The steady state with so many clients, bound evenly to the replicas.
    ///
    /// # Errors
    /// [`ServingError::Number`] unless there are clients, and a think time from 0.
    pub fn closed_loop(
        &self,
        concurrency: f64,
        think_time: Seconds,
        slo: &Slo,
    ) -> Result<ReplicatedState, ServingError> {
        above_zero("the number of clients", concurrency)?;
        let count = f64::from(self.count);
        // Fewer clients than replicas: some replicas have nothing to do.
        let busy = count.min(concurrency);
        let replica = self.server.closed_loop(concurrency / busy, think_time, slo)?;
        let summary = LoadSummary {
            rho: replica.summary.rho.map(|rho| rho * busy / count),
            mean_batch: replica.summary.mean_batch.map(|batch| batch * busy / count),
            kv_utilization: replica.summary.kv_utilization.map(|share| share * busy / count),
            output_tps_per_device: replica.summary.output_tps_per_device.map(|rate| rate * (busy / count)),
            ..scaled(&replica.summary, busy)
        };
        let (rate, max_rate) = (replica.rate * busy, self.server.max_rate() * count);
        Ok(ReplicatedState { summary, replica, replicas: self.count, rate, max_rate, imbalance: 1.0 })
    }

    /// The most requests per second of which a `share` meets the limits; zero if not even a few do.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a share that is not above 0 and at most 1; as [`open_loop`](Self::open_loop).
    pub fn max_rate_within(&self, slo: &Slo, share: f64) -> Result<RequestsPerSecond, ServingError> {
        share_of_requests(share)?;
        largest_rate(self.max_rate(), |rate| {
            let state = self.open_loop(rate, slo)?;
            Ok(state.summary.stable && state.summary.goodput.is_some_and(|good| good.share >= share))
        })
    }

    /// What replicas get over the mean, one number per kind of replica; all kinds are equally frequent.
    ///
    /// `K` groups fall on `n` replicas by a hash, so the load of one is binomial: its relative variance is `(n - 1)/K`.
    fn shares(&self) -> Vec<f64> {
        let Router::Affinity { groups } = self.router else { return vec![1.0] };
        let kinds = self.count.min(KINDS);
        let deviation = (f64::from(self.count - 1) / groups as f64).sqrt();
        // The busiest of all is one of them; the others stand for equal parts.
        let quantile = |kind: u32| {
            let count = f64::from(if kind + 1 == kinds { self.count } else { kinds });
            if kind + 1 == kinds { (count - 0.5) / count } else { (f64::from(kind) + 0.5) / count }
        };
        let mut shares: Vec<f64> = (0..kinds).map(|kind| (1.0 + deviation * normal(quantile(kind))).max(0.0)).collect();
        let others = shares[..shares.len() - 1].iter().sum::<f64>();
        let busiest = shares.last().copied().unwrap_or(1.0).min(f64::from(kinds));
        let rest = if others > 0.0 { (f64::from(kinds) - busiest) / others } else { 0.0 };
        if kinds == 1 {
            return vec![1.0];
        }
        shares.iter_mut().for_each(|share| *share *= rest);
        shares.pop();
        shares.push(busiest);
        shares
    }

    fn total(&self, states: &[SteadyState], shares: &[f64]) -> LoadSummary {
        let count = f64::from(self.count);
        let first = &states[0].summary;
        if let [_] = states {
            return scaled(first, count);
        }
        let kinds = states.len() as f64;
        let mean = |of: fn(&LoadSummary) -> Option<f64>| {
            Some(states.iter().filter_map(|state| of(&state.summary)).sum::<f64>() / kinds)
        };
        let tps = mean(|of| of.output_tps_total.map(TokensPerSecond::as_tokens_per_second)).unwrap_or(0.0);
        let per_device = mean(|of| of.output_tps_per_device.map(TokensPerSecond::as_tokens_per_second));
        let good = mean(|of| of.goodput.map(|good| good.rate.as_requests_per_second())).unwrap_or(0.0);
        let rate = states.iter().map(|state| state.rate.as_requests_per_second()).sum::<f64>() / kinds;
        let stable = states.iter().all(|state| state.summary.stable);
        let summary = LoadSummary {
            stable,
            output_tps_total: Some(TokensPerSecond::from_tokens_per_second(tps * count)),
            output_tps_per_device: per_device.map(TokensPerSecond::from_tokens_per_second),
            mean_batch: mean(|of| of.mean_batch),
            kv_utilization: mean(|of| of.kv_utilization),
            ..LoadSummary::default()
        };
        if !stable {
            return summary;
        }
        let weights: f64 = shares.iter().sum();
        let weighted = |of: fn(&SteadyState) -> Option<Seconds>| {
            states.iter().zip(shares).filter_map(|(state, share)| Some(of(state)? * (share / weights))).sum::<Seconds>()
        };
        let means = [
            weighted(|state| state.summary.ttft.map(|ttft| ttft.mean)),
            weighted(|state| state.summary.tpot.map(|tpot| tpot.mean)),
            weighted(|state| state.summary.e2e.map(|e2e| e2e.mean)),
        ];
        let [ttft, tpot, e2e] = draw::percentiles(&merged(states, shares), means);
        let busiest = &states[states.len() - 1].summary;
        LoadSummary {
            ttft: Some(ttft),
            tpot: first.tpot.map(|_| tpot),
            // Gaps of the busiest are close to those of all.
            itl: busiest.itl,
            e2e: Some(e2e),
            goodput: Some(Goodput {
                rate: RequestsPerSecond::from_requests_per_second(good * count),
                share: if rate > 0.0 { good / rate } else { first.goodput.map_or(1.0, |good| good.share) },
            }),
            ..summary
        }
    }
}

/// Every so-manieth request of each replica.
fn merged(states: &[SteadyState], shares: &[f64]) -> Vec<Drawn> {
    let kinds = states.len();
    let mut drawn = Vec::with_capacity(draw::DRAWS);
    for (kind, (state, share)) in states.iter().zip(shares).enumerate() {
        let chosen = state.drawn.iter().skip(kind).step_by(kinds);
        drawn.extend(chosen.map(|request| Drawn {
            weights: (request.weights.0 * share, request.weights.1 * share.max(1e-12)),
            ..*request
        }));
    }
    drawn.truncate(draw::DRAWS);
    drawn
}

/// The report of one replica as that of several alike.
fn scaled(replica: &LoadSummary, count: f64) -> LoadSummary {
    LoadSummary {
        output_tps_total: replica.output_tps_total.map(|rate| rate * count),
        goodput: replica.goodput.map(|good| Goodput { rate: good.rate * count, ..good }),
        ..*replica
    }
}

/// The largest rate below `most` that will do, within 0.1 % of `most`, where everything below does as well.
pub(super) fn largest_rate(
    most: RequestsPerSecond,
    mut will_do: impl FnMut(RequestsPerSecond) -> Result<bool, ServingError>,
) -> Result<RequestsPerSecond, ServingError> {
    const PARTS: u64 = 1000;
    let mut failed = None;
    let found = largest_where(1, PARTS - 1, |part| {
        will_do(most * (part as f64 / PARTS as f64)).unwrap_or_else(|error| {
            // So near to saturation that a queue cannot be computed.
            if part < PARTS * 9 / 10 {
                failed.get_or_insert(error);
            }
            false
        })
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(most * (found.unwrap_or(0) as f64 / PARTS as f64)),
    }
}

impl ReplicatedState {
    /// Parts of the mean time to first token of the busiest replica.
    pub const fn ttft(&self) -> &TimeToFirstToken {
        &self.replica.ttft
    }
}
