//! Tables of published numbers that are recomputed: inputs of a row, and the check that every row is reproduced or skipped with a reason.
#![allow(dead_code, reason = "each test binary uses a part")]

use super::table::{Row, rows};

/// The inputs of a row, `name=value` pairs.
pub struct Inputs<'a>(pub &'a Row);

impl Inputs<'_> {
    /// The text of an input, if there is one of that name.
    pub fn stated(&self, name: &str) -> Option<&str> {
        let pairs = self.0.text("inputs").split(';').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub fn text(&self, name: &str) -> &str {
        self.stated(name).unwrap_or_else(|| panic!("{}: no input {name}", self.0.id()))
    }

    /// A number, or a fraction such as `1/3`.
    pub fn number(&self, name: &str) -> f64 {
        let number =
            |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{}: input {name} is no number", self.0.id()));
        match self.text(name).split_once('/') {
            Some((above, below)) => number(above) / number(below),
            None => number(self.text(name)),
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        let number = self.number(name);
        assert_eq!(number.fract(), 0.0, "{}: input {name} is no count", self.0.id());
        number as u64
    }
}

/// Recomputes every row of a table that has `count` rows, of which `skipped` are marked so. Exact rows may differ by `rounding`.
pub fn reproduce(table: &str, count: usize, skipped: usize, rounding: f64, recompute: impl Fn(&Row) -> Option<f64>) {
    let rows = rows(table);
    let (mut reproduced, mut left_out, mut misses) = (0, 0, String::new());
    for row in &rows {
        let (id, quantity) = (row.id(), row.text("quantity"));
        assert!(!row.text("source").is_empty(), "{id}: no source");
        if row.text("tolerance_pct") == "skip" {
            assert!(!row.text("notes").is_empty(), "{id}: skipped without a reason");
            println!("skipped: {id} {quantity}: {}", row.text("notes"));
            left_out += 1;
            continue;
        }
        let expected: f64 = row.number("expected");
        let found = recompute(row).unwrap_or_else(|| panic!("{id}: no recipe for {quantity}"));
        let tolerance = (row.number::<f64>("tolerance_pct") / 100.0).max(rounding);
        // Of zero, nothing is a percentage.
        let unit = if expected == 0.0 { 1.0 } else { expected.abs() };
        if (found - expected).abs() <= tolerance * unit {
            reproduced += 1;
        } else {
            let percent = 100.0 * (found - expected) / unit;
            misses += &format!("{id} {expected:>10} {found:>12.6} off by {percent:+.4} %: {quantity}\n");
        }
    }
    assert!(misses.is_empty(), "published, computed:\n{misses}");
    assert_eq!((rows.len(), left_out, reproduced), (count, skipped, count - skipped));
}
