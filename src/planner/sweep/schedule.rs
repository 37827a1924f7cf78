//! The order in which the cells of a sweep are computed, and what neighbours share.

use super::axis::{Axis, COUNTS, PROMPTS, Point};
use super::deployed::filled;
use super::{Cell, Sweep};
use crate::deployment::Deployment;
use crate::planner::PlannerError;
use crate::speculative::SpeculativeModel;
use crate::step::StepModel;
use std::ops::Range;

/// Most cells of a sweep, 2^31: more would fit into no memory.
const CELL_LIMIT: f64 = 2_147_483_648.0;

/// Cells in the order in which they are computed: a block per compiled model, and the requests to it within.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    sweep: &'a Sweep,
    /// Axes whose values need a model of their own.
    outer: Digits<'a>,
    /// The others.
    inner: Digits<'a>,
    /// Index of the axis of numbers of devices, if it is one of the others.
    inner_counts: Option<usize>,
}

/// Some of the axes, as the digits of a number: the last one changes first.
#[derive(Debug)]
pub(super) struct Digits<'a> {
    axes: Vec<(usize, &'a Axis)>,
    len: usize,
}

/// What all cells of a block share.
#[derive(Debug)]
pub(super) struct Compiled {
    model: Compilation,
    /// By the number of devices; one where that does not vary within the block.
    systems: Vec<Result<Deployment, PlannerError>>,
}

#[derive(Debug)]
enum Compilation {
    Plain(Box<StepModel>),
    Speculative(Box<SpeculativeModel>),
}

impl<'a> Schedule<'a> {
    pub(super) fn new(sweep: &'a Sweep) -> Result<Self, PlannerError> {
        let mut axes: Vec<(usize, &Axis)> = sweep.axes.iter().enumerate().collect();
        axes.sort_by_key(|(_, axis)| axis.rank());
        // The number of devices is that of replicas if one replica is cut in a stated number of ways, and else the number of ways.
        let states_cuts = axes.iter().any(|(_, axis)| axis.name() == "tensor_parallel");
        let needs_compiling = |axis: &Axis| axis.rank() < PROMPTS || (axis.rank() == COUNTS && !states_cuts);
        let (outer, inner): (Vec<_>, Vec<_>) = axes.into_iter().partition(|(_, axis)| needs_compiling(axis));
        let inner_counts = inner.iter().find(|(_, axis)| axis.rank() == COUNTS).map(|(index, _)| *index);
        let (outer, inner) = (Digits::new(outer), Digits::new(inner));
        let cells = outer.len as f64 * inner.len as f64;
        if cells > CELL_LIMIT {
            let expected = "at most 2^31";
            return Err(PlannerError::Number { what: "the number of cells", value: cells, expected });
        }
        Ok(Self { sweep, outer, inner, inner_counts })
    }

    pub(super) const fn sweep(&self) -> &'a Sweep {
        self.sweep
    }

    pub(super) fn axes(&self) -> &'a [Axis] {
        &self.sweep.axes
    }

    pub(super) const fn outer(&self) -> &Digits<'a> {
        &self.outer
    }

    pub(super) const fn inner(&self) -> &Digits<'a> {
        &self.inner
    }

    /// All cells.
    pub(super) const fn cells(&self) -> usize {
        self.outer.len * self.inner.len
    }

    /// The blocks that some cells are in.
    pub(super) const fn blocks_of(&self, window: &Range<usize>) -> Range<usize> {
        window.start / self.inner.len..window.end.div_ceil(self.inner.len)
    }

    /// Those of the cells that are in a block, from one of its cells to another.
    pub(super) fn cells_within(&self, block: usize, window: &Range<usize>) -> (usize, usize) {
        let first = block * self.inner.len;
        (window.start.saturating_sub(first), (window.end - first).min(self.inner.len))
    }

    /// Axes by index, in the order of the computation.
    pub(super) fn order(&self) -> Vec<usize> {
        self.outer.axes.iter().chain(&self.inner.axes).map(|(index, _)| *index).collect()
    }

    /// Which of the block's systems a cell has.
    pub(super) fn inner_count(&self, at: &[usize]) -> usize {
        self.inner_counts.and_then(|index| at.get(index)).copied().unwrap_or(0)
    }

    /// Compiles the model of a block.
    pub(super) fn compile(&self, block: usize) -> Result<Compiled, PlannerError> {
        let mut point = Point::default();
        let mut at = vec![0; self.axes().len()];
        self.outer.place(block, &mut at, &mut point);
        let systems = self.inner_counts.and_then(|index| self.axes().get(index));
        // Any number of devices makes the same replica, but there is to be one.
        if let Some(counts) = systems {
            counts.put(0, &mut point);
        }
        let replica = self.sweep.replica(&point)?;
        let speculative = point.speculation.map(|choice| choice.compile(&replica)).transpose()?.flatten();
        let model = match speculative {
            Some(model) => Compilation::Speculative(Box::new(model)),
            None => Compilation::Plain(Box::new(StepModel::compile(&replica)?)),
        };
        let systems = match systems {
            None => vec![Ok(replica)],
            Some(counts) => counts.device_counts().iter().map(|count| filled(&replica, *count)).collect(),
        };
        Ok(Compiled { model, systems })
    }

    /// Computes some neighbouring cells of a block.
    pub(super) fn compute<T>(
        &self,
        compiled: &Result<Compiled, PlannerError>,
        (block, from, to): (usize, usize, usize),
        stopped: impl Fn() -> bool,
        answer: impl Fn(&Cell<'_>) -> Result<T, PlannerError>,
    ) -> Result<Vec<Result<T, PlannerError>>, PlannerError> {
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(reason) => return Ok((from..to).map(|_| Err(reason.clone())).collect()),
        };
        let mut cell = Cell::new(self, compiled, block, from);
        let mut cells = Vec::with_capacity(to - from);
        for number in from..to {
            if stopped() {
                return Err(PlannerError::Cancelled);
            }
            if number > from {
                cell.advance();
            }
            cells.push(cell.refused().map_or_else(|| answer(&cell), |reason| Err(reason.clone())));
        }
        Ok(cells)
    }
}

impl Compiled {
    /// The model without speculation.
    pub(super) fn model(&self) -> &StepModel {
        match &self.model {
            Compilation::Plain(model) => model,
            Compilation::Speculative(model) => model.target(),
        }
    }

    pub(super) fn speculative(&self) -> Option<&SpeculativeModel> {
        match &self.model {
            Compilation::Plain(_) => None,
            Compilation::Speculative(model) => Some(model),
        }
    }

    /// The deployment of the cells with that number of devices.
    pub(super) fn system(&self, count: usize) -> Result<&Deployment, &PlannerError> {
        self.systems.get(count).map_or_else(|| Ok(self.model().deployment()), Result::as_ref)
    }
}

impl<'a> Digits<'a> {
    fn new(axes: Vec<(usize, &'a Axis)>) -> Self {
        let len = axes.iter().fold(1, |len: usize, (_, axis)| len.saturating_mul(axis.len()));
        Self { axes, len }
    }

    /// Moves the digits and the point to a number.
    pub(super) fn place(&self, number: usize, at: &mut [usize], point: &mut Point<'a>) {
        let mut rest = number;
        for (index, axis) in self.axes.iter().rev() {
            let digit = rest % axis.len().max(1);
            rest /= axis.len().max(1);
            if let Some(place) = at.get_mut(*index) {
                *place = digit;
            }
            axis.put(digit, point);
        }
    }

    /// The next number, touching only what changes.
    #[inline]
    pub(super) fn advance(&self, at: &mut [usize], point: &mut Point<'a>) {
        for (index, axis) in self.axes.iter().rev() {
            let Some(digit) = at.get_mut(*index) else { return };
            *digit = if *digit + 1 < axis.len() { *digit + 1 } else { 0 };
            axis.put(*digit, point);
            if *digit > 0 {
                return;
            }
        }
    }
}
