//! Searches against trying everything.

use crate::REGRESSIONS;
use crate::common::cases;
use crate::setups::*;
use llm_roofline::speculative::{Acceptance, AcceptanceRate, Proposal, SpeculativeModel};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(1000, REGRESSIONS))]

    #[test]
    fn the_best_chain_is_the_best_of_all(case in any_case(), batch in any_batch(), context in any_context(), most in 0u64..20) {
        let found = case.compile().best_draft_tokens(batch, context, most).unwrap();
        let speedup = |draft_tokens| {
            Case { proposal: Proposal::chain(draft_tokens).unwrap(), ..case.clone() }.compile().speedup(batch, context)
        };
        let tried: Vec<f64> = (0..=most).map(speedup).collect();
        let best = tried.iter().copied().fold(0.0, f64::max);
        prop_assert!((found.speedup / best - 1.0).abs() < 1e-12, "{found:?}, tried: {tried:?}");
        prop_assert!((tried[found.draft_tokens as usize] / best - 1.0).abs() < 1e-12);
        prop_assert!(found.draft_tokens <= most && found.speedup >= 1.0);
    }

    #[test]
    fn nothing_is_gained_at_the_break_even_rate(case in any_case(), batch in any_batch(), context in any_context()) {
        let model = case.compile();
        let speedup = |rate: f64| {
            model.clone().with_acceptance(Acceptance::rate(rate).unwrap()).speedup(batch, context)
        };
        match model.break_even_acceptance(batch, context) {
            None => prop_assert!(speedup(1.0) < 1.0, "{}", speedup(1.0)),
            Some(rate) => {
                let rate = rate.value();
                prop_assert!((speedup(rate) - 1.0).abs() < 1e-6, "{} at {rate}", speedup(rate));
                // Drafts that cost nothing are never slower.
                prop_assert!(rate < 1e-6 || speedup(rate * 0.9) < 1.0);
                if (1e-6..0.9).contains(&rate) {
                    prop_assert!(speedup(rate * 1.1) > 1.0);
                }
                prop_assert!(speedup(1.0) >= 1.0 - 1e-12);
            }
        }
    }

    #[test]
    fn paying_batches_are_those_that_pay(case in any_case(), context in any_context(), most in 0u64..130) {
        let model = case.compile();
        let pays: Vec<u64> = (1..=most).filter(|&batch| model.speedup(batch, context) > 1.0).collect();
        let ranges = model.paying_batches(context, most);
        let listed: Vec<u64> = ranges.iter().cloned().flatten().collect();
        prop_assert_eq!(&listed, &pays);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end() + 1 < *pair[1].start()), "{:?}", ranges);
        let first = (1..=most).find(|batch| !pays.contains(batch));
        prop_assert_eq!(model.break_even_batch(context, most), first);
    }

    /// The textbook's formula is the search over lengths that anyone would write.
    #[test]
    fn the_textbook_is_maximised(rate in 0f64..0.99, cost in 0.001f64..2.0) {
        let known = AcceptanceRate::new(rate).unwrap();
        let best = known.best_draft_tokens(cost).unwrap();
        let speedup = |draft_tokens| known.speedup(draft_tokens, cost).unwrap();
        let most = (0..=256).map(speedup).fold(0.0, f64::max);
        prop_assert!((speedup(best) / most - 1.0).abs() < 1e-11, "{} at {best}, {most} at best", speedup(best));
        // Leviathan et al., corollary 3.9: it pays exactly if the draft is right more often than it costs.
        prop_assert!((rate - cost).abs() < 1e-9 || (best > 0) == (rate > cost));
    }
}

/// Compiled once, asked with another shape: the same answer as compiled anew.
#[test]
fn another_shape_needs_no_compiling() {
    for engine in ENGINES {
        let (short, tree) = (Case::new("llama-3.1-8b", engine), Proposal::tree(4, 5, 20).unwrap());
        let changed = short.compile().with_proposal(tree);
        let anew: SpeculativeModel = Case { proposal: tree, ..short }.compile();
        assert_eq!(changed.cycle(8, 700), anew.cycle(8, 700), "{engine}");
        assert_eq!(changed.tokens_per_step(), anew.tokens_per_step(), "{engine}");
        assert_eq!(changed.memory().plan(8, 700), anew.memory().plan(8, 700), "{engine}");
    }
}
