//! The answer of a sweep: an array with names, in which refused cells say why.

use super::axis::position_of;
use crate::planner::PlannerError;
use ndarray::{ArrayD, Axis as ArrayAxis, IxDyn};

/// The name of an axis and the labels along it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AxisLabels {
    /// What is varied.
    pub name: &'static str,
    /// One label per value.
    pub labels: Vec<String>,
}

/// An array of answers with an axis for each thing that was varied.
///
/// ```
/// use llm_roofline::planner::{Axis, PlannerError, Sweep};
/// use llm_roofline::prelude::*;
///
/// let catalog = Catalog::embedded();
/// let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("l4-24gb")?, 1)?);
/// let grid = Sweep::new(&base, &Request::new(1000, 100))
///     .over(Axis::named(catalog, "weights", ["bf16", "fp8"])?)?
///     .over(Axis::batches([1, 64]))?
///     .requests()?;
///
/// // As an array of numbers, in the order of the axes.
/// let tpot = grid.values(|answer| answer.tpot.map(|tpot| tpot.as_millis()));
/// assert_eq!(tpot.shape(), [2, 2]);
/// assert!(tpot[[0, 0]] > tpot[[1, 0]] && tpot[[0, 1]].is_none());
///
/// // By name; 64 requests and weights in 16 bits are too much for 24 GB.
/// assert_eq!(grid.get(&[("weights", "fp8"), ("batches", "1")])?.tpot.unwrap().to_string(), "27.3 ms");
/// let (labels, reason) = grid.refused().next().unwrap();
/// assert_eq!(labels, ["bf16", "64"]);
/// assert!(reason.to_string().starts_with("does not fit"));
/// let misspelled = grid.get(&[("weight", "fp8"), ("batches", "1")]).unwrap_err();
/// assert!(misspelled.to_string().starts_with("no axis is called `weight` (did you mean `weights`?)"));
///
/// let (best, _) = grid.best_by(|answer| answer.tps_total.map(|rate| -rate.as_tokens_per_second())).unwrap();
/// assert_eq!(best, ["fp8", "64"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Grid<T> {
    axes: Vec<AxisLabels>,
    cells: ArrayD<Result<T, PlannerError>>,
}

impl<T> Grid<T> {
    /// An array whose shape is that of the axes.
    pub(super) const fn new(axes: Vec<AxisLabels>, cells: ArrayD<Result<T, PlannerError>>) -> Self {
        Self { axes, cells }
    }

    /// The axes, in the order of the array's.
    pub fn axes(&self) -> &[AxisLabels] {
        &self.axes
    }

    /// The cells: an answer, or the reason why there is none. In standard layout, the last axis changing first.
    pub const fn cells(&self) -> &ArrayD<Result<T, PlannerError>> {
        &self.cells
    }

    /// The cells, without their names.
    pub fn into_cells(self) -> ArrayD<Result<T, PlannerError>> {
        self.cells
    }

    /// The answer in the cell with these labels, given as `(axis, label)`. Axes of a single value may be left out; case, spaces, dashes and
    /// underscores do not matter.
    ///
    /// # Errors
    /// Those of [`position`](Self::position); the reason of the cell if it was refused.
    pub fn get(&self, labels: &[(&str, &str)]) -> Result<&T, PlannerError> {
        let position = self.position(labels)?;
        let outside = || PlannerError::Empty { what: "the grid at that position" };
        self.cells.get(IxDyn(&position)).ok_or_else(outside)?.as_ref().map_err(Clone::clone)
    }

    /// Where in the array the cell with these labels is.
    ///
    /// # Errors
    /// [`PlannerError::Unknown`] for an axis or a label that is not there, with the nearest one that is; [`PlannerError::Repeated`] for an axis that
    /// is named twice; [`PlannerError::Unplaced`] for an axis of several values that is not named.
    pub fn position(&self, labels: &[(&str, &str)]) -> Result<Vec<usize>, PlannerError> {
        let mut found: Vec<Option<usize>> = vec![None; self.axes.len()];
        for (name, label) in labels {
            let (axis, at) = self.place(name, label)?;
            if found.get_mut(axis).and_then(|place| place.replace(at)).is_some() {
                return Err(PlannerError::Repeated { what: "an axis of a cell".into(), name: (*name).into() });
            }
        }
        let placed = found.into_iter().zip(&self.axes).map(|(place, axis)| {
            let (name, values) = (axis.name, axis.labels.len());
            place.or((values == 1).then_some(0)).ok_or(PlannerError::Unplaced { axis: name, values })
        });
        placed.collect()
    }

    /// The index of an axis, and of a label on it.
    fn place(&self, name: &str, label: &str) -> Result<(usize, usize), PlannerError> {
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name).collect();
        let axis = position_of("axis", name, &names)?;
        let labels = self.axes.get(axis).map(|axis| axis.labels.as_slice()).unwrap_or_default();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let what = format!("value of the axis {}", names.get(axis).copied().unwrap_or_default());
        Ok((axis, position_of(&what, label, &labels)?))
    }

    /// Every answer turned into something else; refused cells stay refused.
    pub fn map<U>(&self, mut change: impl FnMut(&T) -> U) -> Grid<U> {
        let cells = self.cells.map(|cell| cell.as_ref().map(&mut change).map_err(Clone::clone));
        Grid { axes: self.axes.clone(), cells }
    }

    /// One number of every answer, for plots and sums. `None` where the cell was refused or the number is none: never a NaN, never infinite.
    pub fn values<N: Into<Option<f64>>>(&self, mut number: impl FnMut(&T) -> N) -> ArrayD<Option<f64>> {
        self.cells.map(|cell| finite(cell.as_ref().ok().map(&mut number)))
    }

    /// The part of the grid with this label, without its axis.
    ///
    /// # Errors
    /// [`PlannerError::Unknown`] for an axis or a label that is not there, with the nearest one that is.
    ///
    /// ```
    /// # use llm_roofline::planner::{Axis, Sweep};
    /// # use llm_roofline::prelude::*;
    /// # let catalog = Catalog::embedded();
    /// # let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("l4-24gb")?, 1)?);
    /// let sweep = Sweep::new(&base, &Request::new(1000, 100)).over(Axis::prompts([500, 1000]))?.over(Axis::batches([1, 2, 4]))?;
    /// let grid = sweep.requests()?.at("prompts", "1000")?;
    /// assert_eq!((grid.axes().len(), grid.axes()[0].name, grid.cells().len()), (1, "batches", 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(&self, axis: &str, label: &str) -> Result<Self, PlannerError>
    where
        T: Clone,
    {
        let (axis, at) = self.place(axis, label)?;
        let mut axes = self.axes.clone();
        axes.remove(axis);
        Ok(Self { axes, cells: self.cells.index_axis(ArrayAxis(axis), at).to_owned() })
    }

    /// All cells with their labels, one per axis, the last axis changing first.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<&str>, &Result<T, PlannerError>)> {
        self.cells.indexed_iter().map(|(index, cell)| (self.labels(&index), cell))
    }

    fn labels(&self, index: &IxDyn) -> Vec<&str> {
        let at = ndarray::Dimension::slice(index).iter();
        self.axes.iter().zip(at).filter_map(|(axis, at)| axis.labels.get(*at).map(String::as_str)).collect()
    }

    /// The refused cells with their labels, and why.
    pub fn refused(&self) -> impl Iterator<Item = (Vec<&str>, &PlannerError)> {
        self.iter().filter_map(|(labels, cell)| Some((labels, cell.as_ref().err()?)))
    }

    /// The cell in which a number is smallest, the first of several; `None` if no cell has a finite one. Negate what should be large.
    pub fn best_by<N: Into<Option<f64>>>(&self, mut number: impl FnMut(&T) -> N) -> Option<(Vec<&str>, &T)> {
        let mut best: Option<(IxDyn, &T, f64)> = None;
        for (index, cell) in self.cells.indexed_iter() {
            let Ok(answer) = cell else { continue };
            let Some(value) = finite(Some(number(answer))) else { continue };
            if best.as_ref().is_none_or(|(_, _, least)| value < *least) {
                best = Some((index, answer, value));
            }
        }
        best.map(|(index, answer, _)| (self.labels(&index), answer))
    }
}

/// The number, if there is one.
pub(super) fn finite<N: Into<Option<f64>>>(number: Option<N>) -> Option<f64> {
    number.and_then(Into::into).filter(|number| number.is_finite())
}
