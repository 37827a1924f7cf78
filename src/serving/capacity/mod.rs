//! What a planner asks: how much of a load meets a target, and what it would take.

mod curve;
mod need;
mod stability;
mod target;

pub use curve::{CurvePoint, Knee};
pub use need::Need;
pub use stability::{Stability, Verdict};
pub use target::{Criterion, Statistic, Target, TargetBreach};

use super::error::not_negative;
use super::{Limit, Server, ServingError, SteadyState};
use crate::numeric::{bisect, largest_where_until};
use crate::queueing::QueueError;
use crate::units::{RequestsPerSecond, Seconds};
use std::fmt;

/// Why a load cannot be larger.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Binding {
    /// Slightly more breaks this condition.
    Target(TargetBreach),
    /// Already a request that is alone breaks this condition: no load meets the target.
    Unloaded(TargetBreach),
    /// The target would allow more, but more are not answered: what keeps further requests from running.
    Deployment(Limit),
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(breach) => write!(f, "slightly more, and {breach}"),
            Self::Unloaded(breach) => write!(f, "already alone, {breach}"),
            Self::Deployment(limit) => write!(f, "no more are answered, for {limit}"),
        }
    }
}

/// The largest load that meets a target.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Capacity {
    /// Requests per second; zero where the target cannot be met.
    pub rate: RequestsPerSecond,
    /// Requests in flight: exactly so many in a closed loop, in the mean (rate times E2E) otherwise.
    pub concurrency: f64,
    /// The steady state at this load; that of a request that is alone where the target cannot be met.
    pub state: SteadyState,
    /// Why it cannot be more.
    pub binding: Binding,
}

impl Capacity {
    /// Whether any load meets the target.
    pub const fn is_met(&self) -> bool {
        !matches!(self.binding, Binding::Unloaded(_))
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, concurrency, binding, .. } = self;
        match self.is_met() {
            true => write!(f, "{rate}, {concurrency:.1} requests in flight; {binding}"),
            false => write!(f, "no load: {binding}"),
        }
    }
}

impl Server<'_> {
    /// The largest rate of independent requests that meets a target.
    ///
    /// # Method
    /// Bisection over multiples of 2^-20 of [`max_rate`](Server::max_rate), always with the same midpoints. So a looser target never has a smaller answer, even where latencies
    /// are not exactly monotone in the rate, and the next larger multiple breaks the target.
    ///
    /// # Errors
    /// As [`Server::open_loop`].
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::{Binding, Server, Statistic, Target};
    /// use llm_roofline::workload::{Lengths, Slo};
    ///
    /// let catalog = Catalog::embedded();
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?)
    ///     .with_engine(catalog.engine("vllm-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let server = Server::new(&model, &Lengths::fixed(1000, 200)?)?;
    ///
    /// let slo = Slo::ttft_tpot(Seconds::from_millis(500.0), Seconds::from_millis(15.0));
    /// let capacity = server.max_rate_under(&Target::at(&slo, Statistic::P90)?)?;
    /// assert!(capacity.rate < server.max_rate() && matches!(capacity.binding, Binding::Target(_)));
    ///
    /// // Below the time of a step without any load: an answer, not an error.
    /// let slo = Slo::default().with_tpot(Seconds::from_millis(1.0));
    /// let none = server.max_rate_under(&Target::at(&slo, Statistic::Mean)?)?;
    /// assert!(none.rate == RequestsPerSecond::ZERO && !none.is_met());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_rate_under(&self, target: &Target) -> Result<Capacity, ServingError> {
        let found = self.rates_under(target, |_, _| false)?;
        let rate = if found.breach_alone.is_some() { RequestsPerSecond::ZERO } else { self.rate_at(found.loads.0) };
        let binding = self.binding(target, &found);
        let concurrency = found.state.summary.e2e.map_or(0.0, |e2e| rate.requests_in(e2e.mean));
        Ok(Capacity { rate, concurrency, state: found.state, binding })
    }

    /// The rate of a tick.
    fn rate_at(&self, tick: u64) -> RequestsPerSecond {
        self.max_rate() * (tick as f64 / TICKS as f64)
    }

    /// Narrows the largest rate that meets a target, in ticks, until that is enough.
    fn rates_under(&self, target: &Target, enough: impl FnMut(u64, u64) -> bool) -> Result<Narrowed, ServingError> {
        let slo = target.slo();
        let state = |tick: u64| match self.open_loop(self.rate_at(tick), &slo) {
            // Next to the largest rate a queue may say that it is the larger one.
            Err(ServingError::Queue(QueueError::Unstable { .. })) => self.open_loop(self.max_rate(), &slo),
            state => state,
        };
        let narrow = |holds: &mut dyn FnMut(u64) -> bool| Some(bisect(0, TICKS, holds, enough));
        self.narrowed(target, state, narrow)
    }

    /// The largest number of requests in flight that meets a target, where every answer is followed by the next request at once.
    ///
    /// Where no limit of the target grows with the queue (only time per token is limited, for example) it is the number of requests that run at once.
    ///
    /// # Errors
    /// None at present; as [`Server::open_loop`].
    pub fn max_concurrency_under(&self, target: &Target) -> Result<Capacity, ServingError> {
        self.max_users_under(target, Seconds::ZERO)
    }

    /// The largest number of users that meets a target, each of whom takes a time to think between an answer and the next request.
    ///
    /// [`Capacity::concurrency`] counts the users, those that think included.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a time that is negative or not finite.
    pub fn max_users_under(&self, target: &Target, think_time: Seconds) -> Result<Capacity, ServingError> {
        let found = self.users_under(target, think_time, |_, _| false)?;
        let (rate, users) = match found.breach_alone {
            Some(_) => (RequestsPerSecond::ZERO, 0),
            None => (found.state.rate, found.loads.0),
        };
        let binding = self.binding(target, &found);
        Ok(Capacity { rate, concurrency: users as f64, state: found.state, binding })
    }

    /// Narrows the largest number of users that meets a target until that is enough.
    fn users_under(
        &self,
        target: &Target,
        think_time: Seconds,
        enough: impl FnMut(u64, u64) -> bool,
    ) -> Result<Narrowed, ServingError> {
        let think = not_negative("the time to think in seconds", think_time.as_seconds())?;
        let (slots, _) = self.rules().slots();
        let (slots, rate) = (slots as f64, self.max_rate().as_requests_per_second());
        // With more users than this every further one only makes the queue longer.
        let busy = (slots.min(MOST_SLOTS) + rate * think).min(MOST_USERS).ceil() as u64;
        let waits = target.criteria().any(|criterion| grows_with_queue(&criterion));
        let most = if waits { MOST_USERS as u64 } else { busy };
        let state = |users: u64| self.closed_loop(users.max(1) as f64, think_time, &target.slo());
        let narrow = |holds: &mut dyn FnMut(u64) -> bool| largest_where_until(1, most, holds, enough);
        self.narrowed(target, state, narrow)
    }

    /// Bounds of the largest load that meets a target; at load 0 a request is alone.
    fn narrowed(
        &self,
        target: &Target,
        state: impl Fn(u64) -> Result<SteadyState, ServingError>,
        narrow: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Option<(u64, u64)>,
    ) -> Result<Narrowed, ServingError> {
        let alone = state(0)?;
        if let Some(breach) = nearest(target, &alone) {
            return Ok(Narrowed { loads: (0, 1), state: alone, beyond: None, breach_alone: Some(breach) });
        }
        let (mut error, mut best, mut beyond) = (None, None, None);
        let loads = narrow(&mut |load| match state(load) {
            Ok(state) if target.is_met(&state) => {
                best = Some(state);
                true
            }
            Ok(state) => {
                beyond = Some(state);
                false
            }
            Err(failure) => {
                error.get_or_insert(failure);
                false
            }
        });
        if let Some(error) = error {
            return Err(error);
        }
        Ok(Narrowed { loads: loads.unwrap_or((0, 1)), state: best.unwrap_or(alone), beyond, breach_alone: None })
    }

    /// Why a load cannot be larger than the one that was found.
    fn binding(&self, target: &Target, found: &Narrowed) -> Binding {
        if let Some(breach) = found.breach_alone {
            return Binding::Unloaded(breach);
        }
        // The last state that broke the target is that of one more.
        let breach = found.beyond.as_ref().and_then(|beyond| nearest(target, beyond));
        breach.map_or_else(|| Binding::Deployment(self.saturated().limit), Binding::Target)
    }
}

/// What is known of the largest load that meets a target.
struct Narrowed {
    /// The largest load that is known to meet it, and the smallest that is known not to.
    loads: (u64, u64),
    /// The steady state at the former.
    state: SteadyState,
    /// The steady state at the latter, if that was looked at.
    beyond: Option<SteadyState>,
    /// What already a request that is alone breaks.
    breach_alone: Option<TargetBreach>,
}

/// The condition that is broken by most, as a factor.
fn nearest(target: &Target, state: &SteadyState) -> Option<TargetBreach> {
    let excess = |breach: &TargetBreach| match breach {
        TargetBreach::Latency { limit, found, .. } => found.map_or(f64::INFINITY, |found| found / *limit),
        TargetBreach::Goodput { share, found, .. } => share / found.max(f64::MIN_POSITIVE),
    };
    target.breaches(state).into_iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))
}

/// Whether a condition breaks when a queue is long enough.
fn grows_with_queue(criterion: &Criterion) -> bool {
    use super::metrics::Metric;
    match criterion {
        Criterion::Latency { metric, .. } => matches!(metric, Metric::Ttft | Metric::E2e),
        Criterion::Goodput { slo, .. } => slo.ttft.is_some() || slo.e2e.is_some(),
    }
}

/// Steps between no load and the largest rate: a millionth, far below what anybody measures.
const TICKS: u64 = 1 << 20;
/// More than any engine runs at once.
const MOST_SLOTS: f64 = 65_536.0;
/// More users than one replica ever has.
const MOST_USERS: f64 = 1e9;
