//! The steady state: a deployment under arrivals that go on for ever.

use super::draw::{self, Drawn, TABLE, Waits, table_share};
use super::error::{above_zero, not_negative};
use super::metrics::{Goodput, LoadSummary};
use super::mix::StepMix;
use super::open_mean::{MOST_SEQUENCES, OpenMean, Spread};
use super::operating::{Clients, FirstToken, Operating};
use super::replicas::Arriving;
use super::requests::Drawing;
use super::rules::{Limit, ServingRules};
use super::scene::Scene;
use super::{Server, ServingError};
use crate::queueing::{BirthDeath, BirthDeathSummary, Md1, Mgc, Mmc, Service};
use crate::step::StepModel;
use crate::units::{RequestsPerSecond, Seconds, TokensPerSecond};
use crate::workload::{Arrivals, Slo, Workload};

/// Parts of the mean time to first token under load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TimeToFirstToken {
    /// Outside of steps: the front end.
    pub front_end: Seconds,
    /// Waiting for a place.
    pub queue: Seconds,
    /// Steps of answers before the engine takes new prompts.
    pub gathering: Seconds,
    /// Rest of the step that runs when the request comes.
    pub running_step: Seconds,
    /// Prompts that came before.
    pub prompts_before: Seconds,
    /// The steps that process the prompt.
    pub prefill: Seconds,
}

impl TimeToFirstToken {
    /// All parts together.
    pub fn total(&self) -> Seconds {
        self.front_end + self.queue + self.gathering + self.running_step + self.prompts_before + self.prefill
    }
}

impl std::fmt::Display for TimeToFirstToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { front_end, queue, gathering, running_step, prompts_before, prefill } = self;
        write!(
            f,
            "{} = front end {front_end} + waiting for a place {queue} + for the scheduler {gathering} + for the step that runs {running_step} + \
             for prompts before {prompts_before} + own prompt {prefill}",
            self.total()
        )
    }
}

/// A deployment in steady state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SteadyState {
    /// The report with the same keys as that of a simulation.
    pub summary: LoadSummary,
    /// Requests per second that are answered.
    pub rate: RequestsPerSecond,
    /// Requests per second that could be answered at most.
    pub max_rate: RequestsPerSecond,
    /// Parts of the mean time to first token.
    pub ttft: TimeToFirstToken,
    /// What keeps more requests from running.
    pub limit: Limit,
    /// Requests that wait for a place, in the mean.
    pub mean_queue: f64,
    /// The classes of the workload, if it has some.
    pub classes: Vec<ClassState>,
    pub(super) drawn: Vec<Drawn>,
}

/// A class of requests in steady state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassState {
    /// Its name.
    pub name: String,
    /// Requests of it that meet all limits of the class.
    pub goodput: Goodput,
}

impl StepModel {
    /// The steady state of one replica under a workload: its arrivals, lengths, shared prefix and classes.
    ///
    /// # Errors
    /// [`ServingError`] for requests that do not fit, or are longer than the model allows.
    ///
    /// # Validity
    /// Classes share the queue: priorities are not modelled. A schedule of rates is taken at its mean.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::workload::{Lengths, RequestClass, Slo, Workload};
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let slo = Slo::ttft_tpot("200 ms".parse()?, "15 ms".parse()?);
    /// let classes = vec![
    ///     RequestClass::new("chat", 0.8, Lengths::fixed(500, 200)?).with_slo(slo),
    ///     RequestClass::new("documents", 0.2, Lengths::fixed(8000, 100)?).with_slo(slo),
    /// ];
    /// let rate: RequestsPerSecond = "5 req/s".parse()?;
    /// let state = model.serve(&Workload::poisson(rate, Lengths::fixed(1, 1)?)?.with_classes(classes)?)?;
    /// // Long prompts miss the limit that short ones meet.
    /// assert!(state.classes[0].goodput.share > state.classes[1].goodput.share);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve(&self, workload: &Workload) -> Result<SteadyState, ServingError> {
        let server = match workload.prefix() {
            Some(prefix) => Server::with_prefix(self, workload.lengths(), prefix)?,
            None => Server::new(self, workload.lengths())?,
        };
        let mut state = server.steady(workload.arrivals(), &Slo::default())?;
        let mut before = 0.0;
        for class in workload.classes() {
            let share = draw::good_share_between(&state.drawn, &class.slo, (before, before + class.share));
            before += class.share;
            let goodput = Goodput { rate: state.rate * (class.share * share), share };
            state.classes.push(ClassState { name: class.name.clone(), goodput });
        }
        Ok(state)
    }
}

impl Server<'_> {
    /// The steady state under these arrivals.
    ///
    /// # Errors
    /// [`ServingError`].
    pub fn steady(&self, arrivals: &Arrivals, slo: &Slo) -> Result<SteadyState, ServingError> {
        match arrivals {
            Arrivals::ClosedLoop { concurrency, think_time, .. } => {
                self.closed_loop(*concurrency as f64, *think_time, slo)
            }
            Arrivals::AllAtOnce { .. } => Ok(self.offline(slo)),
            other => {
                let rate = other.mean_rate().unwrap_or(RequestsPerSecond::ZERO);
                self.open_loop_of(rate, Arriving::renewal(other.gap_variation().unwrap_or(1.0)), slo)
            }
        }
    }

    /// With requests that come independently of each other.
    ///
    /// # Errors
    /// [`ServingError`].
    pub fn open_loop(&self, rate: RequestsPerSecond, slo: &Slo) -> Result<SteadyState, ServingError> {
        self.open_loop_of(rate, Arriving::POISSON, slo)
    }

    /// The same with requests as a router lets them through, or in bursts.
    pub(super) fn open_loop_of(
        &self,
        rate: RequestsPerSecond,
        arriving: Arriving,
        slo: &Slo,
    ) -> Result<SteadyState, ServingError> {
        let per_second = not_negative("requests per second", rate.as_requests_per_second())?;
        let (mix, rules) = (&self.mix, &self.rules);
        let most = self.max_rate();
        let rho = rate / most;
        if rho >= 1.0 {
            let (slots, limit) = rules.slots();
            return Ok(SteadyState {
                summary: LoadSummary { stable: false, rho: Some(rho), ..self.rates(most, slots as f64) },
                rate: most,
                max_rate: most,
                ttft: TimeToFirstToken::default(),
                limit,
                mean_queue: f64::INFINITY,
                classes: Vec::new(),
                drawn: Vec::new(),
            });
        }
        if per_second == 0.0 {
            let mut alone = self.closed_loop(1.0, Seconds::ZERO, slo)?;
            alone.summary = LoadSummary { rho: Some(0.0), mean_batch: Some(0.0), ..alone.summary };
            return Ok(alone);
        }
        if let Some(whole) = &self.whole {
            return self.whole_batches(whole, rate, slo);
        }
        let spread = self.spread();
        let mean = OpenMean::new(mix, rules, per_second, spread, arriving);
        let scene = Scene::open(mix, rules, &mean, &self.drawn_lengths, spread, arriving);
        let first = scene.first_token();
        let tpot = Seconds::from_seconds(mean.tpot);
        let residence = first.total() + tpot * mix.decode_steps;
        let placed = per_second * residence.as_seconds();
        let waiting = self.waiting(rate, placed, mean.variance, residence)?;
        let waiting = waiting.thinned(arriving.wait_ratio(rho, rules.slots().0, self.residence_scv()));
        let ttft = self.parts(first, waiting.mean);
        let drawing = Drawing {
            scene: &scene,
            lengths: &self.drawn_lengths,
            front_end: self.rules.front_end,
            waits: &waiting.waits,
        };
        let load = Load {
            rate,
            rho: Some(rho),
            ttft,
            tpot,
            batch: placed,
            queue: per_second * waiting.mean.as_seconds(),
            limit: Limit::Clients,
        };
        Ok(self.state(&load, &drawing, slo))
    }

    /// With so many clients, each of which asks again when it has its answer.
    ///
    /// # Errors
    /// [`ServingError::Number`] unless there are clients, and a think time from 0.
    pub fn closed_loop(&self, concurrency: f64, think_time: Seconds, slo: &Slo) -> Result<SteadyState, ServingError> {
        above_zero("the number of clients", concurrency)?;
        not_negative("the time to think in seconds", think_time.as_seconds())?;
        if let Some(whole) = &self.whole {
            return Ok(self.whole_batches_closed(whole, concurrency, think_time, slo));
        }
        let away = think_time + self.rules.front_end;
        let clients = Clients { count: concurrency, away, meets_step: away > Seconds::ZERO };
        let operating = Operating::closed(&self.mix, &self.rules, clients);
        Ok(self.fixed(operating, clients.meets_step && concurrency > 1.0, slo))
    }

    /// With more requests than can ever run.
    pub fn offline(&self, slo: &Slo) -> SteadyState {
        let mut state = match &self.whole {
            Some(whole) => SteadyState {
                limit: whole.limit,
                ..self.whole_batches_closed(whole, whole.largest as f64, Seconds::ZERO - self.rules.front_end, slo)
            },
            None => self.fixed(self.saturated(), false, slo),
        };
        state.summary = LoadSummary { ttft: None, e2e: None, ..state.summary };
        state
    }

    /// Requests per second when there are always more.
    pub fn max_rate(&self) -> RequestsPerSecond {
        self.max_rate
    }

    pub(super) fn saturated(&self) -> Operating {
        let (slots, limit) = self.rules.slots();
        let count = (slots as f64).min(MOST_SEQUENCES);
        let clients = Clients { count, away: Seconds::ZERO, meets_step: false };
        let operating = Operating::closed(&self.mix, &self.rules, clients);
        let limit = if operating.limit == Limit::Clients { limit } else { operating.limit };
        Operating { limit, ..operating }
    }

    fn fixed(&self, operating: Operating, meets_steps: bool, slo: &Slo) -> SteadyState {
        let ttft = self.parts(operating.first, operating.wait);
        let rate = RequestsPerSecond::from_requests_per_second(operating.rate);
        let scv = self.residence_scv();
        let scene = Scene::closed(&self.mix, &self.rules, &operating, meets_steps, scv);
        // The queue in front of the places, and of the steps, is always about as long.
        let queue = operating.rate * operating.wait.as_seconds();
        let mean = operating.wait + operating.held;
        let waiting = operating.rate * mean.as_seconds();
        let waits = Waits::Steady { mean, deviation: mean * (scv.max(0.01) / waiting.max(1.0)).sqrt() };
        let drawing =
            Drawing { scene: &scene, lengths: &self.drawn_lengths, front_end: self.rules.front_end, waits: &waits };
        let load = Load {
            rate,
            rho: None,
            ttft,
            tpot: operating.pattern.mean(),
            batch: operating.placed,
            queue,
            limit: operating.limit,
        };
        self.state(&load, &drawing, slo)
    }

    fn parts(&self, first: FirstToken, queue: Seconds) -> TimeToFirstToken {
        let FirstToken { gathering, running_step, prompts_before, own } = first;
        TimeToFirstToken {
            front_end: self.rules.front_end,
            queue,
            gathering,
            running_step,
            prompts_before,
            prefill: own,
        }
    }

    pub(super) fn rates(&self, rate: RequestsPerSecond, batch: f64) -> LoadSummary {
        let deployment = self.mix.model().deployment();
        let tokens = rate.as_requests_per_second() * self.mix.output_tokens;
        let devices = f64::from(deployment.devices_per_replica());
        let cache = self.rules.cache_sequences as f64;
        LoadSummary {
            stable: true,
            output_tps_total: Some(TokensPerSecond::from_tokens_per_second(tokens)),
            output_tps_per_device: Some(TokensPerSecond::from_tokens_per_second(tokens / devices)),
            mean_batch: Some(batch),
            kv_utilization: Some((batch / cache).min(1.0)),
            ..LoadSummary::default()
        }
    }

    fn state(&self, load: &Load, drawing: &Drawing<'_>, slo: &Slo) -> SteadyState {
        let Load { rate, rho, ttft, tpot, batch, queue, limit } = *load;
        let max_rate = self.max_rate;
        let e2e = ttft.total() + tpot * self.mix.decode_steps;
        let decodes = self.mix.decode_steps > 0.0;
        let drawn = drawing.requests();
        let share = draw::good_share(&drawn, slo);
        let [ttfts, tpots, e2es] = draw::percentiles(&drawn, [ttft.total(), tpot, e2e]);
        let summary = LoadSummary {
            rho: rho.or(Some(rate / max_rate)),
            ttft: Some(ttfts),
            tpot: decodes.then_some(tpots),
            itl: decodes.then(|| drawing.gaps(tpot)),
            e2e: Some(e2es),
            goodput: Some(Goodput { rate: rate * share, share }),
            ..self.rates(rate, batch)
        };
        SteadyState { summary, rate, max_rate, ttft, limit, mean_queue: queue, classes: Vec::new(), drawn }
    }

    /// How much requests differ. Gini's coefficient is 0.57 times the coefficient of variation: within 0.01 for uniform and normal lengths, 0.07 for
    /// exponential ones.
    fn spread(&self) -> Spread {
        let moments = self.lengths.moments();
        let prompts = moments.prompt_deviation() / moments.prompt;
        let outputs = moments.output_deviation() / moments.output;
        Spread { prompts: prompts * prompts, gini: (0.57 * outputs).min(0.9) }
    }

    /// Waiting for a place, where there may be too few.
    fn waiting(
        &self,
        rate: RequestsPerSecond,
        placed: f64,
        variance: f64,
        residence: Seconds,
    ) -> Result<Waiting, ServingError> {
        let (slots, _) = self.rules.slots();
        let none = Waiting { mean: Seconds::ZERO, waits: Waits::Exponential { share: 0.0, mean: Seconds::ZERO } };
        if placed + 6.0 * variance.sqrt() + 6.0 < slots as f64 {
            return Ok(none);
        }
        if slots == 1 && self.lengths.is_fixed() {
            let exact = Md1::new(rate.as_requests_per_second(), residence.as_seconds())?;
            let mut table = [0.0; TABLE];
            for (index, wait) in table.iter_mut().enumerate() {
                *wait = exact.wait_quantile(table_share(index))?;
            }
            return Ok(Waiting {
                mean: Seconds::from_seconds(exact.mean_wait()),
                waits: Waits::Table(Box::new(table)),
            });
        }
        let summary = self.chain(rate, slots)?;
        let mean = Seconds::from_seconds(summary.mean_wait() * self.wait_ratio(rate / self.max_rate, slots));
        Ok(Waiting { mean, waits: Waits::Exponential { share: summary.probability_full, mean } })
    }

    /// The number of requests as a birth-death chain: with so many of them, as many are answered as in a closed loop.
    fn chain(&self, rate: RequestsPerSecond, slots: u64) -> Result<BirthDeathSummary, ServingError> {
        let most = (slots as f64).min(MOST_SEQUENCES);
        let residences = self.residences.get_or_init(|| Residences::new(&self.mix, &self.rules, most));
        let served = |present: usize| present as f64 / residences.at(present as f64);
        let chain = BirthDeath::new(rate.as_requests_per_second(), served, None)?.with_slots(most as usize)?;
        Ok(chain.summary()?)
    }

    /// Mean wait for a place over that of exponential residences: Kimura's where there are few, Lee and Longton's for many, where it is within 1 % if anybody
    /// waits.
    fn wait_ratio(&self, rho: f64, slots: u64) -> f64 {
        const MANY_PLACES: u64 = 32;
        let scv = self.residence_scv();
        if slots > MANY_PLACES {
            return (1.0 + scv) / 2.0;
        }
        let ratio = || {
            let service = Service::with_scv(1.0, scv).ok()?;
            let arrival = rho * slots as f64;
            let all = Mgc::new(arrival, service, slots).ok()?.mean_wait().ok()?;
            let exponential = Mmc::new(arrival, 1.0, slots).ok()?.mean_wait();
            (exponential > 0.0).then_some(all / exponential)
        };
        ratio().unwrap_or((1.0 + scv) / 2.0)
    }

    /// Squared coefficient of variation of the time for which a place is taken: that of the answers' lengths.
    pub(super) fn residence_scv(&self) -> f64 {
        let moments = self.lengths.moments();
        let deviation = moments.output_deviation();
        deviation * deviation / (moments.output * moments.output)
    }
}

/// Seconds that a request stays, at some numbers of requests, and on lines between.
#[derive(Clone, Debug)]
pub(super) struct Residences {
    levels: [(f64, f64); LEVELS],
}

const LEVELS: usize = 6;

impl Residences {
    fn new(mix: &StepMix<'_>, rules: &ServingRules, most: f64) -> Self {
        let levels = std::array::from_fn(|index| {
            let number = (1.0 + (most - 1.0) * (index as f64 / (LEVELS - 1) as f64).powi(2)).round();
            // Where nobody waits for a step: as in saturation, so that the last level is that.
            (number, number / Operating::inside(mix, rules, number, false).rate)
        });
        Self { levels }
    }

    fn at(&self, present: f64) -> f64 {
        let levels = &self.levels;
        let above = levels.iter().position(|level| level.0 >= present).unwrap_or(LEVELS - 1).max(1);
        let (low, high) = (levels[above - 1], levels[above]);
        let width = high.0 - low.0;
        if width > 0.0 { low.1 + (high.1 - low.1) * ((present - low.0) / width) } else { low.1 }
    }
}

/// A load and its means.
struct Load {
    rate: RequestsPerSecond,
    rho: Option<f64>,
    ttft: TimeToFirstToken,
    tpot: Seconds,
    batch: f64,
    queue: f64,
    limit: Limit,
}

/// Waiting for a place.
struct Waiting {
    mean: Seconds,
    waits: Waits,
}

impl Waiting {
    /// With a mean of so many times as much.
    fn thinned(self, ratio: f64) -> Self {
        if ratio == 1.0 {
            return self;
        }
        let waits = match self.waits {
            Waits::Exponential { share, mean } => {
                Waits::Exponential { share: share * ratio.min(1.0).sqrt(), mean: mean * ratio }
            }
            Waits::Steady { mean, deviation } => Waits::Steady { mean: mean * ratio, deviation: deviation * ratio },
            Waits::Uniform { longest } => Waits::Uniform { longest: longest * ratio },
            Waits::Table(mut table) => {
                table.iter_mut().for_each(|wait| *wait *= ratio);
                Waits::Table(table)
            }
        };
        Self { mean: self.mean * ratio, waits }
    }
}
