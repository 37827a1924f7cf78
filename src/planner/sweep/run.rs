//! Runs a sweep: blocks and pieces of them on several threads, the answer in one order.

use super::schedule::Schedule;
use super::{AxisLabels, Cell, Grid, Sweep};
use crate::parallel::{in_order, threads};
use crate::planner::PlannerError;
use ndarray::{ArrayD, IxDyn};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most cells that one thread takes at once.
const PIECE: usize = 64;
/// Cells that are computed before they are put in their place: few enough that the memory for them is used again and again.
const WINDOW: usize = 1 << 15;
/// So many pieces for each thread, if there are as many cells: the slowest then costs little.
const PIECES_PER_THREAD: usize = 8;
/// Progress is told about so often.
const REPORTS: usize = 1000;

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepProgress {
    /// Cells that are computed.
    pub done: usize,
    /// All cells.
    pub total: usize,
}

impl Sweep {
    /// Answers every cell. With the feature `parallel` on as many threads as rayon's pool has; the grid is the same for any number of them.
    ///
    /// A cell that cannot be keeps its reason, and so does one whose answer is an error; others do not notice.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for more than 2^31 cells.
    pub fn run<T: Send>(
        &self,
        answer: impl Fn(&Cell<'_>) -> Result<T, PlannerError> + Sync,
    ) -> Result<Grid<T>, PlannerError> {
        self.run_with(|_| ControlFlow::Continue(()), answer)
    }

    /// The same, telling its progress at most a thousand times; it stops where the answer to that is to break.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`PlannerError::Cancelled`].
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::planner::{Axis, PlannerError, Sweep};
    /// use std::ops::ControlFlow;
    /// let catalog = Catalog::embedded();
    /// let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?);
    /// let sweep = Sweep::new(&base, &Request::new(500, 500)).over(Axis::batches(1..=100))?;
    /// let stopped = sweep.run_with(
    ///     |progress| if progress.done < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) },
    ///     |cell| cell.estimate(),
    /// );
    /// assert_eq!(stopped, Err(PlannerError::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_with<T: Send>(
        &self,
        progress: impl FnMut(&SweepProgress) -> ControlFlow<()> + Send,
        answer: impl Fn(&Cell<'_>) -> Result<T, PlannerError> + Sync,
    ) -> Result<Grid<T>, PlannerError> {
        let schedule = Schedule::new(self)?;
        let total = schedule.cells();
        let piece = piece(total, self.rates());
        let watch = Watch::new(total, progress);
        let mut cells = Vec::new();
        let too_many = |_| PlannerError::Number {
            what: "the number of cells",
            value: total as f64,
            expected: "as many as fit into the memory",
        };
        cells.try_reserve_exact(total).map_err(too_many)?;
        while cells.len() < total {
            let window = cells.len()..(cells.len() + WINDOW).min(total);
            let blocks = in_order(schedule.blocks_of(&window), |block| {
                if watch.is_stopped() {
                    return Err(PlannerError::Cancelled);
                }
                let compiled = schedule.compile(block);
                let (from, to) = schedule.cells_within(block, &window);
                let pieces = in_order(0..(to - from).div_ceil(piece), |number| {
                    let from = from + number * piece;
                    let place = (block, from, to.min(from + piece));
                    let answers = schedule.compute(&compiled, place, || watch.is_stopped(), &answer)?;
                    watch.done(answers.len())?;
                    Ok(answers)
                });
                pieces.into_iter().collect::<Result<Vec<_>, PlannerError>>()
            });
            for block in blocks {
                cells.extend(block?.into_iter().flatten());
            }
        }
        self.grid(&schedule.order(), cells)
    }

    /// Values of the axis of rates.
    fn rates(&self) -> usize {
        self.axes.iter().find(|axis| axis.name() == "rates").map_or(1, |axis| axis.len())
    }

    /// Cells in the order of the computation, as an array in the order of the axes.
    fn grid<T>(&self, order: &[usize], cells: Vec<Result<T, PlannerError>>) -> Result<Grid<T>, PlannerError> {
        let labels = self.axes.iter().map(|axis| AxisLabels { name: axis.name(), labels: axis.labels().to_vec() });
        let axes: Vec<AxisLabels> = labels.collect();
        let length = |index: &usize| axes.get(*index).map_or(1, |axis| axis.labels.len());
        let computed = shaped(order.iter().map(length).collect(), cells)?;
        let place = |index| order.iter().position(|computed| *computed == index).unwrap_or(index);
        let asked = computed.permuted_axes((0..axes.len()).map(place).collect::<Vec<_>>());
        let cells = match asked.is_standard_layout() {
            true => asked,
            false => shaped(asked.shape().to_vec(), asked.into_iter().collect())?,
        };
        Ok(Grid::new(axes, cells))
    }
}

fn shaped<T>(shape: Vec<usize>, cells: Vec<T>) -> Result<ArrayD<T>, PlannerError> {
    let found = cells.len() as f64;
    let expected = "the product of the lengths of all axes";
    let misshaped = |_| PlannerError::Number { what: "the number of cells", value: found, expected };
    ArrayD::from_shape_vec(IxDyn(&shape), cells).map_err(misshaped)
}

/// Cells that are computed one after another. Those that differ in their rate only share a server, so they are kept together where there are enough
/// others.
fn piece(total: usize, rates: usize) -> usize {
    let even = total.div_ceil(PIECES_PER_THREAD * threads()).clamp(1, PIECE);
    if even >= rates { even - even % rates.max(1) } else { even }
}

/// Counts cells, tells the caller, and stops all threads if he wants no more.
struct Watch<P> {
    told: Mutex<Told<P>>,
    stopped: AtomicBool,
}

struct Told<P> {
    progress: P,
    state: SweepProgress,
    next: usize,
}

impl<P: FnMut(&SweepProgress) -> ControlFlow<()>> Watch<P> {
    const fn new(total: usize, progress: P) -> Self {
        let told = Told { progress, state: SweepProgress { done: 0, total }, next: 0 };
        Self { told: Mutex::new(told), stopped: AtomicBool::new(false) }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn done(&self, cells: usize) -> Result<(), PlannerError> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Told { progress, state, next } = &mut *told;
        // Another thread may have come first, and the caller wants no more.
        if self.is_stopped() {
            return Err(PlannerError::Cancelled);
        }
        state.done += cells;
        if state.done < *next && state.done < state.total {
            return Ok(());
        }
        *next = state.done + state.total.div_ceil(REPORTS);
        if progress(state).is_break() {
            self.stopped.store(true, Ordering::Relaxed);
            return Err(PlannerError::Cancelled);
        }
        Ok(())
    }
}
