//! Sweeps: an answer for every combination of devices, formats, layouts, requests and rates, as one labelled array.

mod axis;
mod cell;
mod choice;
mod deployed;
mod grid;
mod named;
mod run;
mod schedule;
mod table;

pub use axis::Axis;
pub use cell::Cell;
pub use choice::SpeculationChoice;
pub use grid::{AxisLabels, Grid};
pub use run::SweepProgress;
pub use table::Column;

use super::PlannerError;
use crate::deployment::Deployment;
use crate::request::{Request, RequestEstimate};
use crate::serving::SteadyState;
use crate::speculative::{Method, Speculation, SpeculativeEstimate, SpeculativeModel};
use crate::units::RequestsPerSecond;
use crate::workload::Slo;

/// A deployment and a request, and the axes along which they are varied.
///
/// Every combination of values is a cell. What an axis does not set stays as in the base point.
///
/// ```
/// use llm_roofline::planner::{Axis, Sweep};
/// use llm_roofline::prelude::*;
///
/// let catalog = Catalog::embedded();
/// let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?);
/// let answers = Sweep::new(&base, &Request::new(1000, 200))
///     .over(Axis::named(catalog, "devices", ["h100-sxm-80gb", "l4-24gb", "rtx-4070-12gb"])?)?
///     .over(Axis::named(catalog, "weights", ["bf16", "fp8"])?)?
///     .requests()?;
/// let tpot = answers.map(|answer| answer.tpot.map_or("-".into(), |tpot| tpot.to_string()));
/// assert_eq!(
///     tpot.to_string(),
///     "\
/// devices        weights:     bf16      fp8
/// h100-sxm-80gb            4.53 ms  2.44 ms
/// l4-24gb                  50.5 ms  27.3 ms
/// rtx-4070-12gb            refused  16.2 ms
/// "
/// );
/// // 15.0 GB of weights in 16 bits and 0.14 GB of cache, at 300 GB/s. In 8 bits it is 8.03 GB, since the output head stays in 16: 12 GB hold that,
/// // and nothing larger.
/// assert!(answers.get(&[("devices", "rtx-4070-12gb"), ("weights", "bf16")]).unwrap_err().to_string().starts_with("does not fit"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # How many devices
/// - Axes of tensor or pipeline parallelism, or of data-parallel attention: the system has the devices of one replica,
///   `tensor_parallel x pipeline_parallel x data_parallel_attention`.
/// - An axis of counts besides one of tensor parallelism: the system has so many devices, and `count / devices per replica` replicas. Where that is
///   no whole number, the cell is refused ([`PlannerError::DoesNotDivide`]).
/// - An axis of counts alone: one replica has all of them, as in [`Deployment::new`]; with stages or ranks of attention, tensor parallelism is
///   what remains of the count.
/// - Neither: devices and replicas of the base.
///
/// Answers are those of one replica; [`Cell::replicas`] says how many there are.
///
/// # Cost
/// One compilation for each combination of the axes of the deployment, and again after every 32,768 cells of it. The cells within share the model,
/// and cost what their answers cost.
#[derive(Clone, Debug)]
pub struct Sweep {
    base: Deployment,
    request: Request,
    rate: Option<RequestsPerSecond>,
    axes: Vec<Axis>,
}

impl Sweep {
    /// The base point. Without axes it is the only cell.
    pub fn new(base: &Deployment, request: &Request) -> Self {
        Self { base: base.clone(), request: *request, rate: None, axes: Vec::new() }
    }

    /// With so many requests per second to each replica, unless an axis says otherwise.
    #[must_use]
    pub fn with_rate(self, rate: RequestsPerSecond) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Varied along this axis too. Grids have their axes in the order in which they are added.
    ///
    /// # Errors
    /// [`PlannerError::Empty`] for an axis without values, [`PlannerError::Repeated`] for a kind of axis or a label that is there already,
    /// [`PlannerError::Labels`] for labels that are not one per value.
    pub fn over(mut self, axis: Axis) -> Result<Self, PlannerError> {
        axis.check()?;
        if self.axes.iter().any(|known| known.name() == axis.name()) {
            return Err(PlannerError::Repeated { what: "an axis of the sweep".into(), name: axis.name().into() });
        }
        self.axes.push(axis);
        Ok(self)
    }

    /// The axes, in the order in which they were added.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The unloaded request in every cell: see [`Cell::estimate`]. Rates and numbers of replicas change nothing in it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`PlannerError::Unsupported`] with an axis of speculation: see
    /// [`speculative_requests`](Self::speculative_requests).
    pub fn requests(&self) -> Result<Grid<RequestEstimate>, PlannerError> {
        if self.axes.iter().any(|axis| axis.name() == "speculation") {
            return Err(PlannerError::Unsupported {
                what: "plain requests over an axis of speculation",
                instead: "ask for Sweep::speculative_requests, whose answers have the plain one beside them",
            });
        }
        self.run(|cell| cell.estimate())
    }

    /// The unloaded request in every cell, with the speculation of the cell. Cells without are answered as if nothing were ever drafted: their
    /// speed-up is 1.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// ```
    /// use llm_roofline::planner::{Axis, Sweep};
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let base = Deployment::new(catalog.model("llama-3.1-70b")?, System::new(catalog.device("h100-sxm-80gb")?, 4)?);
    /// let answers = Sweep::new(&base, &Request::new(1000, 200))
    ///     .over(Axis::named(catalog, "speculation", ["none", "eagle3 x 3 at 0.7"])?)?
    ///     .over(Axis::batches([1, 256]))?
    ///     .speculative_requests()?;
    /// let speedup = answers.map(|answer| answer.speedup.map_or(0.0, |speedup| speedup.expected));
    /// assert_eq!(*speedup.get(&[("speculation", "none"), ("batches", "1")])?, 1.0);
    /// let head = |batch| speedup.get(&[("speculation", "EAGLE-3 x 3 at 0.7"), ("batches", batch)]).copied();
    /// assert!(head("1")? > 2.0 && head("256")? < head("1")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn speculative_requests(&self) -> Result<Grid<SpeculativeEstimate>, PlannerError> {
        self.run(|cell| match cell.speculative_estimate()? {
            Some(estimate) => Ok(estimate),
            None => {
                let target = cell.model().deployment();
                let nothing = Speculation::new(Method::NGram, target)?.with_draft_tokens(0)?;
                Ok(SpeculativeModel::compile(target, &nothing)?.request(cell.request())?)
            }
        })
    }

    /// The steady state of one replica in every cell: see [`Cell::steady`]. Batches and numbers of replicas change nothing in it.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// ```
    /// use llm_roofline::planner::{Axis, Sweep};
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::workload::Slo;
    /// let catalog = Catalog::embedded();
    /// let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?)
    ///     .with_engine(catalog.engine("vllm-2026")?);
    /// let states = Sweep::new(&base, &Request::new(1000, 200))
    ///     .over(Axis::named(catalog, "rates", ["1 req/s", "10 req/s"])?)?
    ///     .steady(&Slo::default())?;
    /// let waits = states.map(|state| state.ttft.total());
    /// assert!(waits.get(&[("rates", "1 req/s")])? < waits.get(&[("rates", "10 req/s")])?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn steady(&self, slo: &Slo) -> Result<Grid<SteadyState>, PlannerError> {
        self.run(|cell| cell.steady(slo))
    }
}
