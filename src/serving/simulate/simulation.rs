//! What is simulated, and how.

use super::control::Controls;
use super::fleet::Fleet;
use super::log::Log;
use super::network::Network;
use super::outcome::{Outcome, Progress, ReplicaOutcome, summarise};
use super::replica::{Replica, Role};
use super::routing::{Router, Routing};
use super::rules::{EngineSettings, Rules};
use super::scaling::{Autoscaler, Outage};
use super::sink::Sink;
use super::source::Source;
use super::speculating::Speculating;
use super::statistics::{Recorder, RecorderSettings, Statistics, WarmUp};
use crate::engine::PromptPolicy;
use crate::serving::disaggregated::{CacheBytes, layers};
use crate::serving::error::above_zero;
use crate::serving::{KvTransfer, Pool, Server, ServingError};
use crate::speculative::SpeculativeModel;
use crate::step::StepModel;
use crate::units::{RequestsPerSecond, Seconds};
use crate::workload::{Arrivals, Lengths, Slo, Trace, Workload, WorkloadError};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// A deployment to be simulated: replicas, the router before them, and what is to be known.
///
/// Runs are the same for the same seed on every platform (generator: PCG 64 MCG, M. E. O'Neill, 2014) as far as its floating-point arithmetic is.
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::serving::simulate::{Routing, Simulation};
/// use llm_roofline::workload::{Lengths, Workload};
///
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
/// let model = StepModel::compile(&deployment)?;
/// let workload = Workload::poisson("40 req/s".parse()?, Lengths::fixed(1000, 200)?)?;
/// let run = |routing| Simulation::new(&model).with_replicas(4).with_routing(routing).run(&workload, 5_000);
/// let (any, least) = (run(Routing::Random)?, run(Routing::LeastLoaded)?);
/// // Whoever knows how busy the replicas are makes requests wait less.
/// assert!(least.summary.ttft.unwrap().p99 < any.summary.ttft.unwrap().p99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulation<'a> {
    pools: Vec<Pool<'a>>,
    transfer: Option<KvTransfer>,
    routing: Routing,
    settings: EngineSettings,
    seed: u64,
    stepping: bool,
    warm_up: Option<WarmUp>,
    slo: Slo,
    keep_requests: bool,
    events: usize,
    outages: Vec<Outage>,
    autoscaler: Option<Autoscaler<'a>>,
    precision: Option<f64>,
    speculation: Option<&'a SpeculativeModel>,
}

impl<'a> Simulation<'a> {
    /// One replica.
    pub fn new(model: &'a StepModel) -> Self {
        Self::of_pools(vec![Pool { model, replicas: 1 }])
    }

    /// Replicas of different kinds behind one router.
    pub fn of_pools(pools: Vec<Pool<'a>>) -> Self {
        Self {
            pools,
            transfer: None,
            routing: Routing::default(),
            settings: EngineSettings::default(),
            seed: 0,
            stepping: false,
            warm_up: None,
            slo: Slo::default(),
            keep_requests: false,
            events: 0,
            outages: Vec::new(),
            autoscaler: None,
            precision: None,
            speculation: None,
        }
    }

    /// One replica with speculative decoding, in which every proposal is accepted or not by chance. Replicas of a pool that is added do the same.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::simulate::Simulation;
    /// use llm_roofline::speculative::{Method, Speculation, SpeculativeModel};
    /// use llm_roofline::workload::{Lengths, Workload};
    ///
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let target = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("sglang")?);
    /// let speculation = Speculation::new(Method::Eagle3, &target)?.with_draft_tokens(3)?.with_acceptance_rate(0.7)?;
    /// let model = SpeculativeModel::compile(&target, &speculation)?;
    /// let workload = Workload::poisson("1 req/s".parse()?, Lengths::fixed(500, 200)?)?;
    /// let plain = Simulation::new(model.target()).run(&workload, 500)?.summary.tpot.unwrap();
    /// let fast = Simulation::speculating(&model).run(&workload, 500)?.summary.tpot.unwrap();
    /// assert!(fast.mean < plain.mean * 0.8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn speculating(model: &'a SpeculativeModel) -> Self {
        Self { speculation: Some(model), ..Self::new(model.target()) }
    }

    /// Replicas that compute prompts and first tokens, and others that write the rest. Caches go over the link of the replica that computed them, one
    /// after another. Both pools have routers of the same kind.
    pub fn disaggregated(prefill: Pool<'a>, decode: Pool<'a>, transfer: KvTransfer) -> Self {
        Self { transfer: Some(transfer), ..Self::of_pools(vec![prefill, decode]) }
    }

    /// So many replicas of the first kind.
    #[must_use]
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        if let Some(pool) = self.pools.first_mut() {
            pool.replicas = replicas;
        }
        self
    }

    /// How requests are shared among replicas.
    #[must_use]
    pub fn with_routing(self, routing: Routing) -> Self {
        Self { routing, ..self }
    }

    /// Settings of the engines.
    #[must_use]
    pub fn with_settings(self, settings: EngineSettings) -> Self {
        Self { settings, ..self }
    }

    /// Another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Prices every step on its own, by [`StepModel::cost`], instead of leaping: the same times, more slowly.
    #[must_use]
    pub fn stepping(self) -> Self {
        Self { stepping: true, ..self }
    }

    /// What is left out at the start; absent means [`WarmUp::Automatic`] for requests that come at random or from clients, and
    /// nothing for traces and requests that all come at once.
    #[must_use]
    pub fn with_warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up: Some(warm_up), ..self }
    }

    /// Limits of requests that belong to no class.
    #[must_use]
    pub fn with_slo(self, slo: Slo) -> Self {
        Self { slo, ..self }
    }

    /// Keeps every request: memory grows with their number.
    #[must_use]
    pub fn keep_requests(self) -> Self {
        Self { keep_requests: true, ..self }
    }

    /// Keeps the first so many events.
    #[must_use]
    pub fn with_events(self, events: usize) -> Self {
        Self { events, ..self }
    }

    /// Replicas that are lost during the run.
    #[must_use]
    pub fn with_outages(self, outages: Vec<Outage>) -> Self {
        Self { outages, ..self }
    }

    /// A rule for the number of replicas.
    #[must_use]
    pub fn with_autoscaler(self, autoscaler: Autoscaler<'a>) -> Self {
        Self { autoscaler: Some(autoscaler), ..self }
    }

    /// Stops as soon as the 99th percentiles of TTFT, TPOT and E2E are known to this share of their values (95 % confidence).
    ///
    /// # Errors
    /// [`ServingError::Number`] for a share that is not above 0.
    pub fn until_p99_is_known_within(self, share: f64) -> Result<Self, ServingError> {
        let share = above_zero("the precision of percentiles", share)?;
        Ok(Self { precision: Some(share), ..self })
    }

    /// Serves so many requests of a workload, fewer if its arrivals end before.
    ///
    /// # Errors
    /// [`ServingError`] for requests that do not fit, settings that no engine could run, and workloads that are none.
    pub fn run(&self, workload: &Workload, requests: u64) -> Result<Outcome, ServingError> {
        self.run_with(workload, requests, |_| ControlFlow::Continue(()))
    }

    /// The same, telling its progress after every thousand requests; it stops where the answer is to break.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(
        &self,
        workload: &Workload,
        requests: u64,
        progress: impl FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Outcome, ServingError> {
        if requests == 0 {
            return Err(WorkloadError::TooFew { what: "requests to simulate", count: 0, limit: 1 }.into());
        }
        let source = Source::new(workload, requests, self.seed)?;
        let arrivals = workload.arrivals();
        let mut recording = self.recording(match arrivals {
            Arrivals::AllAtOnce { .. } => WarmUp::None,
            _ => WarmUp::Automatic,
        });
        recording.open = arrivals.mean_rate().is_some();
        if let Arrivals::ClosedLoop { concurrency, .. } = arrivals {
            recording.tail = *concurrency;
        }
        if !workload.classes().is_empty() {
            recording.slos = workload.classes().iter().map(|class| class.slo).collect();
        }
        let shares = workload.prefix().is_some();
        let endless = recording.open;
        let mut outcome = self.serve(source, recording, workload.lengths(), shares, requests, progress)?;
        outcome.summary = summarise(&outcome.statistics, outcome.arrived, outcome.completed, endless);
        outcome.summary.rho = self.rho(workload, outcome.statistics.request_rate);
        Ok(outcome)
    }

    /// Serves the requests of a trace, at their times, with the blocks of their prompts if it has some.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn replay(&self, trace: &Trace) -> Result<Outcome, ServingError> {
        self.replay_with(trace, |_| ControlFlow::Continue(()))
    }

    /// The same, telling its progress, as [`run_with`](Self::run_with).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn replay_with(
        &self,
        trace: &Trace,
        progress: impl FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Outcome, ServingError> {
        let mut recording = self.recording(WarmUp::None);
        recording.open = true;
        let requests = trace.requests().len() as u64;
        let shares = trace.requests().iter().any(|request| !request.block_hashes.is_empty());
        let mut outcome =
            self.serve(Source::of_trace(trace), recording, trace.lengths(), shares, requests, progress)?;
        outcome.summary = summarise(&outcome.statistics, outcome.arrived, outcome.completed, false);
        Ok(outcome)
    }

    fn recording(&self, warm_up: WarmUp) -> RecorderSettings {
        RecorderSettings {
            slos: vec![self.slo],
            warm_up: self.warm_up.unwrap_or(warm_up),
            keep_requests: self.keep_requests,
            ..RecorderSettings::default()
        }
    }

    /// Offered load over what equal replicas can serve at most, by the steady state; of clients that wait, what was answered.
    fn rho(&self, workload: &Workload, answered: RequestsPerSecond) -> Option<f64> {
        let [Pool { model, replicas }] = self.pools[..] else { return None };
        let rate = match workload.arrivals() {
            Arrivals::ClosedLoop { .. } => answered,
            arrivals => arrivals.mean_rate()?,
        };
        let server = match workload.prefix() {
            Some(prefix) => Server::with_prefix(model, workload.lengths(), prefix),
            None => Server::new(model, workload.lengths()),
        };
        let server = server.ok().filter(|server| server.rules().prompts != PromptPolicy::Batch)?;
        let usual = self.settings == EngineSettings::default() && self.speculation.is_none();
        Some(rate / (server.max_rate() * f64::from(replicas))).filter(|_| usual)
    }

    fn serve(
        &self,
        source: Source<'_>,
        recording: RecorderSettings,
        lengths: &Lengths,
        shares_prefixes: bool,
        requests: u64,
        mut progress: impl FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Outcome, ServingError> {
        let mut fleet = self.fleet(source, recording, lengths, shares_prefixes)?;
        let (mut cancelled, mut known) = (false, false);
        let mut looked_at = 0;
        fleet.run(|fleet| {
            let Fleet { arrived, completed, now, .. } = *fleet;
            let state = Progress { arrived, completed, requests, time: Seconds::from_seconds(now) };
            cancelled = progress(&state).is_break();
            // Looking costs more than a thousand requests: the longer the run, the rarer.
            if let Some(precision) = self.precision.filter(|_| arrived >= looked_at + looked_at / 8 + LOOK_AFTER) {
                looked_at = arrived;
                known = fleet.sink.recorder.p99_known_within(precision);
            }
            !cancelled && !known
        });
        Ok(outcome(fleet, cancelled, known))
    }

    fn fleet<'r>(
        &self,
        source: Source<'r>,
        mut recording: RecorderSettings,
        lengths: &Lengths,
        shares_prefixes: bool,
    ) -> Result<Fleet<'r>, ServingError>
    where
        'a: 'r,
    {
        let mut replicas = Vec::new();
        for (number, pool) in self.pools.iter().enumerate() {
            let memory = self.speculation.map_or(pool.model.memory(), SpeculativeModel::memory);
            let mut rules = Rules::new(pool.model, memory, lengths, &self.settings, shares_prefixes)?;
            rules.stepping = self.stepping;
            let role = if self.transfer.is_some() && number == 0 { Role::Prefill } else { Role::Everything };
            if self.speculation.is_some() || self.transfer.is_some() {
                rules.refuse_static_batches()?;
            }
            for _ in 0..pool.replicas {
                let index = replicas.len() as u32;
                let mut replica = Replica::new(pool.model, rules.clone(), role, index);
                replica.speculating =
                    self.speculation.map(|model| Speculating::new(model, self.seed.wrapping_add(u64::from(index))));
                replicas.push(replica);
            }
            let devices = pool.replicas.saturating_mul(pool.model.deployment().devices_per_replica());
            recording.devices = recording.devices.saturating_add(devices);
        }
        let count = replicas.len();
        let entry = match self.transfer {
            Some(_) => 0..self.pools[0].replicas as usize,
            None => 0..count,
        };
        if entry.is_empty() || self.transfer.is_some() && entry.end == count {
            let expected = "1 or more of each kind";
            return Err(ServingError::Number { what: "number of replicas", value: 0.0, expected });
        }
        self.check_outages(count)?;
        if let Some(fewest) =
            self.autoscaler.map(|autoscaler| autoscaler.fewest).filter(|fewest| *fewest as usize > count)
        {
            let expected = "no more than the simulation has";
            return Err(ServingError::Number { what: "fewest replicas", value: f64::from(fewest), expected });
        }
        if let Some(fewest) = self.autoscaler.map(|autoscaler| autoscaler.fewest)
            && self.transfer.is_some()
            && fewest as usize <= entry.end
        {
            let expected = "all that compute prompts, and one that decodes";
            return Err(ServingError::Number { what: "fewest replicas", value: f64::from(fewest), expected });
        }
        recording.kv_blocks =
            (replicas.iter().map(|replica| u128::from(replica.kv.total())).sum::<u128>() / count as u128) as u64;
        let network = self.transfer.map(|transfer| {
            let model = self.pools[0].model;
            Network::new(transfer, CacheBytes::new(model), layers(model), count)
        });
        if let Some(autoscaler) = &self.autoscaler {
            replicas.iter_mut().skip(autoscaler.fewest as usize).for_each(|replica| replica.is_up = false);
        }
        let up = replicas.iter().filter(|replica| replica.is_up).count() as u32;
        let log = (self.events > 0).then(|| Log { events: Vec::new(), limit: self.events });
        let recorder = Recorder::new(recording);
        Ok(Fleet {
            due: vec![f64::INFINITY; count],
            next_arrival: 0.0,
            next_other: 0.0,
            front_end: replicas[0].rules.front_end_s,
            replicas,
            decode: entry.end..count,
            entry,
            router: Router::new(self.routing, self.seed),
            decode_router: Router::new(self.routing, self.seed ^ 1),
            source,
            sink: Sink { recorder, log, ended: 0, ended_at: 0.0, handoffs: Vec::new() },
            network,
            controls: Controls::new(&self.outages, self.autoscaler, up),
            stranded: VecDeque::new(),
            now: 0.0,
            arrived: 0,
            completed: 0,
        })
    }

    fn check_outages(&self, replicas: usize) -> Result<(), ServingError> {
        let wrong = |what, value, expected| Err(ServingError::Number { what, value, expected });
        for outage in &self.outages {
            let at = outage.at.as_seconds();
            if outage.replica as usize >= replicas {
                return wrong(
                    "the replica that is lost",
                    f64::from(outage.replica),
                    "one that there is, counted from 0",
                );
            }
            if !(at >= 0.0 && at.is_finite()) {
                return wrong("the time of an outage in seconds", at, "a finite number, 0 or more");
            }
            if let Some(until) = outage.until.filter(|until| !(*until >= outage.at && until.is_finite())) {
                return wrong(
                    "the end of an outage in seconds",
                    until.as_seconds(),
                    "a finite number, not before its start",
                );
            }
        }
        Ok(())
    }
}

/// Requests after which precision is looked at first.
const LOOK_AFTER: u64 = 4096;

fn outcome(mut fleet: Fleet<'_>, cancelled: bool, known: bool) -> Outcome {
    let totals = fleet.totals();
    let replicas = fleet.replicas.iter().map(|replica| ReplicaOutcome {
        completed: replica.totals.completed,
        steps: replica.totals.steps,
        busy: Seconds::from_seconds(replica.totals.busy_s),
        output_tokens: replica.totals.output_tokens,
        prompt_tokens: replica.totals.prompt_tokens,
        cached_tokens: replica.totals.cached_tokens,
        preemptions: replica.totals.preemptions,
    });
    let replicas = replicas.collect();
    let statistics: Statistics = fleet.sink.recorder.finish(totals);
    Outcome {
        statistics,
        arrived: fleet.arrived,
        completed: fleet.completed,
        output_tokens: totals.output_tokens,
        steps: totals.steps,
        time: Seconds::from_seconds(fleet.now),
        cancelled,
        known,
        replicas,
        events: fleet.sink.log.map_or_else(Vec::new, |log| log.events),
        ..Outcome::default()
    }
}
