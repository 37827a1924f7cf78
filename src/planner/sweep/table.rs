//! Grids as text: CSV for programs, a table for people.

use super::Grid;
use super::grid::finite;
use crate::planner::PlannerError;
use std::fmt;
use std::io;

/// A column of a table: its name, and the number in it; `None` leaves the field empty.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> Option<f64>);

impl<T> Grid<T> {
    /// A line per cell: its labels, these numbers, and why it was refused. Units belong into the names of the columns.
    ///
    /// ```
    /// use llm_roofline::planner::{Axis, Sweep};
    /// use llm_roofline::prelude::*;
    /// let catalog = Catalog::embedded();
    /// let base = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("l4-24gb")?, 1)?);
    /// let grid = Sweep::new(&base, &Request::new(1000, 100)).over(Axis::outputs([1, 0]))?.requests()?;
    /// let csv = grid.to_csv(&[("tpot_ms", &|answer| answer.tpot.map(|tpot| tpot.as_millis()))]);
    /// assert_eq!(csv, "outputs,tpot_ms,refused\n1,,\n0,,\"output tokens is 0, expected at least 1\"\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_csv(&self, columns: &[Column<'_, T>]) -> String {
        let mut text = Vec::new();
        let written = self.write_csv(&mut text, columns);
        debug_assert!(written.is_ok(), "writing into memory does not fail");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The same, written line by line.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_csv(&self, writer: impl io::Write, columns: &[Column<'_, T>]) -> io::Result<()> {
        let mut table = csv::Writer::from_writer(writer);
        let names = self.axes().iter().map(|axis| axis.name);
        table.write_record(names.chain(columns.iter().map(|(name, _)| *name)).chain(["refused"]))?;
        for (labels, cell) in self.iter() {
            for label in labels {
                table.write_field(label)?;
            }
            for (_, number) in columns {
                let number = finite(cell.as_ref().ok().map(number));
                table.write_field(number.map_or(String::new(), |number| number.to_string()))?;
            }
            table.write_field(cell.as_ref().err().map_or(String::new(), ToString::to_string))?;
            table.write_record(None::<&[u8]>)?;
        }
        table.flush()
    }
}

impl<T: fmt::Display> fmt::Display for Grid<T> {
    /// A table with the last axis from left to right, and a line for every combination of the others. Refused cells say so and no more:
    /// [`Grid::refused`] has the reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<_> = self.iter().collect();
        let text = |cell: &Result<T, PlannerError>| cell.as_ref().map_or("refused".into(), ToString::to_string);
        let Some((across, down)) = self.axes().split_last() else {
            return cells.iter().try_for_each(|(_, cell)| writeln!(f, "{}", text(cell)));
        };
        let names = down.iter().map(|axis| axis.name.to_string());
        let head = names.chain([format!("{}:", across.name)]).chain(across.labels.iter().cloned());
        let mut lines: Vec<Vec<String>> = vec![head.collect()];
        for row in cells.chunks(across.labels.len().max(1)) {
            let labels = row.iter().take(1).flat_map(|(labels, _)| labels).take(down.len());
            let line = labels.map(ToString::to_string).chain([String::new()]);
            lines.push(line.chain(row.iter().map(|(_, cell)| text(cell))).collect());
        }
        write_aligned(f, &lines, down.len() + 1)
    }
}

/// Columns as wide as their widest field: the first ones of text, the others of numbers, which end below each other.
fn write_aligned(f: &mut fmt::Formatter<'_>, lines: &[Vec<String>], of_text: usize) -> fmt::Result {
    let columns = lines.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|field| field.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    for line in lines {
        for (column, (field, &width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            if column < of_text {
                write!(f, "{gap}{field:<width$}")?;
            } else {
                write!(f, "{gap}{field:>width$}")?;
            }
        }
        writeln!(f)?;
    }
    Ok(())
}
