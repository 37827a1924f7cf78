//! One cell of a sweep: everything that its answer may depend on.

use super::axis::Point;
use super::schedule::{Compiled, Schedule};
use crate::deployment::Deployment;
use crate::planner::PlannerError;
use crate::request::{Request, RequestError, RequestEstimate};
use crate::serving::{Server, SteadyState};
use crate::speculative::{SpeculativeEstimate, SpeculativeModel};
use crate::step::StepModel;
use crate::units::RequestsPerSecond;
use crate::workload::{Lengths, SharedPrefix, Slo};
use std::cell::OnceCell;

/// One cell of a sweep, as the function that answers it gets it.
///
/// Cells that differ in their request, rate or number of replicas only share the compiled model; those that differ in their rate only share the
/// server.
#[derive(Debug)]
pub struct Cell<'a> {
    schedule: &'a Schedule<'a>,
    compiled: &'a Compiled,
    /// By axis, in the order in which axes were added.
    at: Vec<usize>,
    point: Point<'a>,
    request: Request,
    server: OnceCell<Result<Server<'a>, PlannerError>>,
}

impl<'a> Cell<'a> {
    /// The cell of that number among those of one compiled model.
    pub(super) fn new(schedule: &'a Schedule<'a>, compiled: &'a Compiled, block: usize, inner: usize) -> Self {
        let mut cell = Self {
            schedule,
            compiled,
            at: vec![0; schedule.axes().len()],
            point: Point::default(),
            request: schedule.sweep().request,
            server: OnceCell::new(),
        };
        schedule.outer().place(block, &mut cell.at, &mut cell.point);
        schedule.inner().place(inner, &mut cell.at, &mut cell.point);
        cell.ask();
        cell
    }

    /// Moves to the next one of the same compiled model.
    pub(super) fn advance(&mut self) {
        let Self { schedule, at, point, request, .. } = self;
        schedule.inner().advance(at, point);
        let before = (request.prompt_tokens, request.output_tokens);
        self.ask();
        if before != (self.request.prompt_tokens, self.request.output_tokens) {
            self.server = OnceCell::new();
        }
    }

    fn ask(&mut self) {
        let base = &self.schedule.sweep().request;
        self.request.prompt_tokens = self.point.prompt.unwrap_or(base.prompt_tokens);
        self.request.output_tokens = self.point.output.unwrap_or(base.output_tokens);
        self.request.batch = self.point.batch.unwrap_or(base.batch);
    }

    /// Why there can be no such cell, if so.
    pub(super) fn refused(&self) -> Option<&PlannerError> {
        self.compiled.system(self.schedule.inner_count(&self.at)).err()
    }

    /// The deployment: all its devices and replicas.
    pub fn deployment(&self) -> &Deployment {
        // A cell whose system is refused is given to nobody.
        self.compiled.system(self.schedule.inner_count(&self.at)).unwrap_or(self.model().deployment())
    }

    /// The compiled model of one replica.
    pub fn model(&self) -> &'a StepModel {
        self.compiled.model()
    }

    /// Target and drafter; `None` where the cell has no speculation.
    pub fn speculative(&self) -> Option<&'a SpeculativeModel> {
        self.compiled.speculative()
    }

    /// The request: prompt, answer and batch.
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Requests per second that come to one replica; `None` unless an axis or [`Sweep::with_rate`](super::Sweep::with_rate) says so.
    pub fn rate(&self) -> Option<RequestsPerSecond> {
        self.point.rate.or(self.schedule.sweep().rate)
    }

    /// Copies of the deployment that share nothing but the requests.
    pub fn replicas(&self) -> u32 {
        self.deployment().replicas()
    }

    /// One replica that serves requests of the cell's lengths, built when it is first asked for. Cached tokens of the prompt are found by every
    /// request, as its own history.
    ///
    /// # Errors
    /// [`PlannerError::Serving`] for requests that do not fit or are too long, [`PlannerError::Unsupported`] in a cell with speculation.
    pub fn server(&self) -> Result<&Server<'a>, PlannerError> {
        self.server.get_or_init(|| self.serve()).as_ref().map_err(Clone::clone)
    }

    fn serve(&self) -> Result<Server<'a>, PlannerError> {
        if self.speculative().is_some() {
            return Err(PlannerError::Unsupported {
                what: "a steady state with speculation",
                instead: "simulate the load, or ask for the unloaded request",
            });
        }
        let Request { prompt_tokens: prompt, cached_prompt_tokens: cached, .. } = self.request;
        let lengths = Lengths::fixed(prompt, self.request.output_tokens).map_err(PlannerError::Workload)?;
        if cached == 0 {
            return Ok(Server::new(self.model(), &lengths)?);
        }
        if cached >= prompt {
            return Err(RequestError::TooManyCached { cached, prompt }.into());
        }
        let prefix = SharedPrefix::share(cached as f64 / prompt as f64).map_err(PlannerError::Workload)?;
        Ok(Server::with_prefix(self.model(), &lengths, &prefix)?)
    }

    /// The unloaded request. Where memory is missing nothing is tried to make it fit, unlike in [`StepModel::request`]: a refusal costs no more
    /// than an answer.
    ///
    /// # Errors
    /// [`PlannerError::Request`] for requests that cannot be answered, [`PlannerError::Unsupported`] in a cell with speculation, whose answer is
    /// a [`speculative_estimate`](Self::speculative_estimate).
    pub fn estimate(&self) -> Result<RequestEstimate, PlannerError> {
        if self.speculative().is_some() {
            return Err(PlannerError::Unsupported {
                what: "a plain request in a cell with speculation",
                instead: "ask for speculative_estimate, which has the plain answer beside it",
            });
        }
        Ok(self.model().request_without_suggestions(&self.request)?)
    }

    /// The unloaded request with speculation; `None` in a cell without.
    ///
    /// # Errors
    /// [`PlannerError::Speculation`] for requests that cannot be answered.
    pub fn speculative_estimate(&self) -> Result<Option<SpeculativeEstimate>, PlannerError> {
        Ok(self.speculative().map(|model| model.request(&self.request)).transpose()?)
    }

    /// The steady state of one replica under the cell's rate: see [`Server::open_loop`].
    ///
    /// # Errors
    /// Those of [`server`](Self::server), and [`PlannerError::Unsupported`] where no rate is known.
    pub fn steady(&self, slo: &Slo) -> Result<SteadyState, PlannerError> {
        let rate = self.rate().ok_or(PlannerError::Unsupported {
            what: "a steady state without a rate of requests",
            instead: "add Axis::rates, or Sweep::with_rate for one that is the same everywhere",
        })?;
        Ok(self.server()?.open_loop(rate, slo)?)
    }

    /// Where the cell lies: the label on each axis, in the order in which axes were added.
    pub fn labels(&self) -> impl Iterator<Item = &'a str> {
        let axes = self.schedule.axes();
        axes.iter().zip(&self.at).filter_map(|(axis, at)| axis.labels().get(*at).map(String::as_str))
    }

    /// The label on the axis of that name, if there is such an axis.
    pub fn label(&self, axis: &str) -> Option<&'a str> {
        let axes = self.schedule.axes();
        let (index, found) = axes.iter().enumerate().find(|(_, known)| known.name() == axis)?;
        found.labels().get(*self.at.get(index)?).map(String::as_str)
    }
}
