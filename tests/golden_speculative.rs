//! Published numbers of speculative decoding, each recomputed with the public API.
//!
//! `tests/data/golden_speculative.csv` names the source of every number. A row without a recipe fails the test, unless the table says that it is
//! skipped, and why.

#[path = "common/golden.rs"]
mod golden;
#[path = "common/table.rs"]
mod table;

use golden::{Inputs, reproduce};
use llm_roofline::speculative::{Acceptance, AcceptanceRate, Proposal, speedup_of_costs};
use table::{Row, rows};

const TABLE: &str = include_str!("data/golden_speculative.csv");
/// Rows of the table, and those among them that are skipped: a row is lost if these change.
const ROWS: usize = 66;
const SKIPPED: usize = 9;

impl Inputs<'_> {
    fn rate(&self) -> AcceptanceRate {
        AcceptanceRate::new(self.number("alpha")).unwrap()
    }

    fn draft_tokens(&self) -> u64 {
        self.count("gamma")
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
    reproduce(TABLE, ROWS, SKIPPED, 1e-12, recompute);
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
