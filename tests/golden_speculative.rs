//! Published numbers of speculative decoding, each recomputed with the public API.
//!
//! `tests/data/golden_speculative.csv` names the source of every number. A row without a recipe fails the test, unless the table says that it is
//! skipped, and why.

#[path = "common/table.rs"]
mod table;

use llm_roofline::speculative::{Acceptance, AcceptanceRate, Proposal, speedup_of_costs};
use table::{Row, rows};

const TABLE: &str = include_str!("data/golden_speculative.csv");
/// Rows of the table, and those among them that are skipped: a row is lost if these change.
const ROWS: usize = 66;
const SKIPPED: usize = 9;

/// The inputs of a row, `name=value` pairs.
struct Inputs<'a>(&'a Row);

impl Inputs<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let pairs = self.0.text("inputs").split(';').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> f64 {
        let text = self.text(name).unwrap_or_else(|| panic!("{}: no input {name}", self.0.id()));
        text.parse().unwrap_or_else(|_| panic!("{}: input {name} is no number", self.0.id()))
    }

    fn rate(&self) -> AcceptanceRate {
        AcceptanceRate::new(self.number("alpha")).unwrap()
    }

    fn draft_tokens(&self) -> u64 {
        let number = self.number("gamma");
        assert_eq!(number.fract(), 0.0, "{}", self.0.id());
        number as u64
    }
}

/// The quantity of a row as this crate computes it.
fn recompute(row: &Row) -> Option<f64> {
    let inputs = Inputs(row);
    let (rate, number) = (inputs.rate(), |name| inputs.number(name));
    Some(match row.text("quantity") {
        "operations factor" => rate.operations_factor(inputs.draft_tokens(), number("c_hat")).unwrap(),
        "walltime speed-up"
        | "expected speed-up (Thm 3.8)"
        | "MEASURED speed-up, TPU v4, batch 1"
        | "bigram draft speed-up"
        | "temp=0 lenience speed-up" => rate.speedup(inputs.draft_tokens(), number("c")).unwrap(),
        // Corollary 3.9: a draft that is cheaper than it is right pays with chains of one.
        "guaranteed gain (1+alpha)/(1+c)" => rate.speedup(1, number("c")).unwrap(),
        "optimal gamma" => rate.best_draft_tokens(number("c")).unwrap() as f64,
        "speed-up at optimal gamma" => {
            let best = rate.best_draft_tokens(number("c")).unwrap();
            rate.speedup(best, number("c")).unwrap()
        }
        "tokens per step lower end; MEASURED 1.8x TPS" => {
            Acceptance::from(rate).tokens_per_step(&Proposal::chain(inputs.draft_tokens()).unwrap())
        }
        "speed-up = Omega/(gamma*TD/TT + TV/TT)" => {
            let tokens = rate.tokens_per_step(inputs.draft_tokens());
            speedup_of_costs(tokens, inputs.draft_tokens(), number("TD_over_TT"), number("TV_over_TT")).unwrap()
        }
        _ => return None,
    })
}

#[test]
fn published_numbers_are_reproduced() {
    /// Exact rows may differ by the rounding of floating-point sums.
    const ROUNDING: f64 = 1e-12;
    let rows = rows(TABLE);
    let (mut reproduced, mut skipped, mut misses) = (0, 0, String::new());
    for row in &rows {
        let (id, quantity) = (row.id(), row.text("quantity"));
        assert!(!row.text("source").is_empty(), "{id}: no source");
        if row.text("tolerance_pct") == "skip" {
            assert!(!row.text("notes").is_empty(), "{id}: skipped without a reason");
            println!("skipped: {id} {quantity}: {}", row.text("notes"));
            skipped += 1;
            continue;
        }
        let expected: f64 = row.number("expected");
        let found = recompute(row).unwrap_or_else(|| panic!("{id}: no recipe for {quantity}"));
        let (deviation, tolerance) = ((found / expected - 1.0).abs(), row.number::<f64>("tolerance_pct") / 100.0);
        if deviation <= tolerance.max(ROUNDING) {
            reproduced += 1;
        } else {
            let percent = 100.0 * deviation;
            misses += &format!("{id} {expected:>10} {found:>12.6} off by {percent:.3} %: {quantity}\n");
        }
    }
    assert!(misses.is_empty(), "published, computed:\n{misses}");
    assert_eq!((rows.len(), skipped), (ROWS, SKIPPED));
    assert_eq!(reproduced, ROWS - SKIPPED);
}

/// Rows that are skipped because their source contradicts itself: the formula gives less at every length, and as much as the note says at best.
#[test]
fn skipped_rows_are_beyond_the_formula_of_their_source() {
    let mut checked = 0;
    for row in rows(TABLE) {
        let Some((_, reach)) = row.text("notes").split_once("maximised over gamma gives only ") else { continue };
        let inputs = Inputs(&row);
        let (rate, cost) = (inputs.rate(), inputs.number("c"));
        let best = rate.speedup(rate.best_draft_tokens(cost).unwrap(), cost).unwrap();
        assert!(best < row.number::<f64>("expected") * 0.97, "{}: {best}", row.id());
        assert_eq!(format!("{best:.2}"), reach, "{}", row.id());
        checked += 1;
    }
    assert_eq!(checked, 4);
}
