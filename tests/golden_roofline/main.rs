//! Published numbers of FLOPs, bytes, rooflines, caches and step times, each recomputed with the public API.
//!
//! `tests/data/golden_roofline.csv` names the source of every number. A row without a recipe fails the test, unless it is in
//! [`NOT_OURS`] with the reason.

mod operators;
mod setup;
mod sources;
mod table;

use table::{Row, Value, rows};

/// Rows that no quantity of this library stands for.
const NOT_OURS: [(&str, &str); 5] = [
    ("RF-013", "four message latencies per layer; an all-reduce without data is one hop here"),
    ("RF-022", "a share scaled by a ratio of parameters, no quantity"),
    ("SB-003", "masked pairs counted; prefill attention counts causal pairs, half as many"),
    ("SB-048", "degree of a two-dimensional mesh at which its links limit; groups have equal links here"),
    ("SB-049", "the same, solved for one dimension"),
];

fn recompute(row: &Row) -> Option<Value> {
    let (family, number) = row.id.split_once('-')?;
    let number = number.parse().ok()?;
    match family {
        "RF" if number < 40 => operators::chen(number, row),
        "RF" => operators::baseten(number, row),
        "LV" => operators::llm_viewer(row),
        "SB" => sources::scaling_book(number, row),
        "CS" => sources::cs336(number, row),
        "LA" => sources::llm_analysis(number, row),
        "PO" | "DB" => sources::utilisation(family, number, row),
        "NV" | "KV" => sources::caches(family, number, row),
        "MOE" => sources::experts(number, row),
        _ => None,
    }
}

#[test]
fn published_numbers_are_reproduced() {
    /// Exact rows may differ by the rounding of floating-point sums.
    const ROUNDING: f64 = 1e-12;
    let rows = rows();
    let (mut reproduced, mut misses) = (0, String::new());
    for row in &rows {
        if NOT_OURS.iter().any(|(id, _)| *id == row.id) {
            continue;
        }
        let found = recompute(row).unwrap_or_else(|| panic!("{}: no recipe for {}", row.id, row.quantity));
        let found_in_unit =
            found.in_unit(&row.unit).unwrap_or_else(|| panic!("{}: {found:?} is not in {}", row.id, row.unit));
        let deviation = (found_in_unit / row.expected - 1.0).abs();
        if deviation <= row.tolerance.max(ROUNDING) {
            reproduced += 1;
        } else {
            let Row { id, quantity, expected, unit, tolerance, .. } = row;
            misses += &format!(
                "{id:8} {expected:>18} {found_in_unit:>22.6} {unit:10} off by {:.3} %, tolerance {:.3} %: {quantity}\n",
                100.0 * deviation,
                100.0 * tolerance,
            );
        }
    }
    assert!(misses.is_empty(), "published, computed:\n{misses}");
    assert_eq!(reproduced, rows.len() - NOT_OURS.len());
    assert_eq!(rows.len(), 210);
}
