//! Tokens per step: chains and trees against sums and enumerations, and the forms in which acceptance is published against each other.

use crate::REGRESSIONS;
use crate::common::{cases, close};
use crate::setups::{any_chain, any_proposal, any_rate, any_tree};
use llm_roofline::speculative::{Acceptance, AcceptanceRate, Proposal};
use proptest::prelude::*;

/// Rounding.
const SLACK: f64 = 1e-9;

fn rate_of(rate: f64) -> AcceptanceRate {
    AcceptanceRate::new(rate).unwrap()
}

/// Probabilities of the ranks of one position, the best first, that sum up to at most 1.
fn any_ranks() -> impl Strategy<Value = Vec<f64>> {
    (prop::collection::vec(0.01f64..1.0, 1..6), 0.05f64..1.0).prop_map(|(weights, sum)| {
        let total: f64 = weights.iter().sum();
        let mut ranks: Vec<f64> = weights.iter().map(|weight| weight / total * sum).collect();
        ranks.sort_by(|a, b| b.total_cmp(a));
        ranks
    })
}

/// Every form of acceptance.
fn any_acceptance() -> impl Strategy<Value = Acceptance> {
    prop_oneof![
        any_rate().prop_map(|rate| Acceptance::rate(rate).unwrap()),
        prop::collection::vec(any_rate(), 1..9).prop_map(|rates| Acceptance::per_position(rates).unwrap()),
        any_ranks().prop_map(|ranks| Acceptance::per_rank(ranks).unwrap()),
        (any_proposal(), 0f64..=1.0).prop_map(|(proposal, share)| {
            let tokens = 1.0 + share * proposal.most_accepted() as f64;
            Acceptance::measured(tokens, proposal).unwrap()
        }),
    ]
}

proptest! {
    #![proptest_config(cases(3000, REGRESSIONS))]

    #[test]
    fn a_step_yields_one_token_and_at_most_what_is_proposed(acceptance in any_acceptance(), proposal in any_proposal()) {
        let tokens = acceptance.tokens_per_step(&proposal);
        prop_assert!(tokens >= 1.0 - SLACK, "{tokens}");
        prop_assert!(tokens <= proposal.most_accepted() as f64 + 1.0 + SLACK, "{tokens} of {proposal:?}");
        prop_assert!(close(acceptance.tokens_per_step(&Proposal::NONE), 1.0));
    }

    #[test]
    fn better_acceptance_yields_more(a in any_rate(), b in any_rate(), proposal in any_proposal()) {
        let [low, high] = [a.min(b), a.max(b)].map(|rate| Acceptance::rate(rate).unwrap().tokens_per_step(&proposal));
        prop_assert!(low <= high * (1.0 + SLACK), "{low} at {}, {high} at {}", a.min(b), a.max(b));
    }

    #[test]
    fn more_tokens_yield_more(acceptance in any_acceptance(), tree in any_tree(), chain in any_chain()) {
        let Ok(wider) = Proposal::tree(tree.top_k(), tree.depth(), tree.draft_tokens() + 1) else { return Ok(()) };
        let longer = Proposal::chain(chain.draft_tokens() + 1).unwrap();
        for (less, more) in [(tree, wider), (chain, longer)] {
            // What was measured with one shape is taken as it is for this one.
            let of = |proposal| acceptance.tokens_per_step(&proposal);
            let is_measured = [less, more].iter().any(|shape| acceptance == measured_as(&acceptance, shape));
            prop_assert!(is_measured || of(less) <= of(more) * (1.0 + SLACK), "{} {}", of(less), of(more));
        }
    }

    #[test]
    fn more_candidates_and_deeper_trees_yield_more(rate in any_rate(), ranks in any_ranks(), tree in any_tree()) {
        let deeper = Proposal::tree(tree.top_k(), tree.depth() + 1, tree.draft_tokens()).unwrap();
        let wider = Proposal::tree(tree.top_k() + 1, tree.depth(), tree.draft_tokens()).unwrap();
        for acceptance in [Acceptance::rate(rate).unwrap(), Acceptance::per_rank(ranks).unwrap()] {
            let [base, deeper, wider] = [tree, deeper, wider].map(|shape| acceptance.tokens_per_step(&shape));
            prop_assert!(base <= deeper * (1.0 + SLACK), "deeper: {base} {deeper}");
            prop_assert!(base <= wider * (1.0 + SLACK), "more candidates: {base} {wider}");
        }
    }

    #[test]
    fn chains_are_geometric_sums(rate in any_rate(), draft_tokens in 0u64..=256) {
        let sum: f64 = (0..=draft_tokens as i32).map(|position| rate.powi(position)).sum();
        let rate = rate_of(rate);
        let chain = Proposal::chain(draft_tokens).unwrap();
        prop_assert!(close(rate.tokens_per_step(draft_tokens), sum));
        prop_assert!(close(chain.tokens_per_step(|_, _| rate.value()), sum));
        prop_assert!(close(Acceptance::from(rate).tokens_per_step(&chain), sum));
        prop_assert!(close(rate.accepted_per_step(draft_tokens) + 1.0, sum));
    }

    /// Where the closed form subtracts numbers that are nearly equal.
    #[test]
    fn chains_are_geometric_sums_near_one(exponent in 1f64..16.0, draft_tokens in 0u64..=256) {
        let rate = 1.0 - 10f64.powf(-exponent);
        let sum: f64 = (0..=draft_tokens as i32).map(|position| rate.powi(position)).sum();
        prop_assert!(close(rate_of(rate).tokens_per_step(draft_tokens), sum));
    }

    #[test]
    fn rates_by_position_multiply(rates in prop::collection::vec(any_rate(), 1..9), draft_tokens in 0u64..17) {
        let acceptance = Acceptance::per_position(rates.clone()).unwrap();
        let known = |position: usize| rates[position.min(rates.len() - 1)];
        let sum: f64 = (0..=draft_tokens as usize).map(|length| (0..length).map(known).product::<f64>()).sum();
        prop_assert!(close(acceptance.tokens_per_step(&Proposal::chain(draft_tokens).unwrap()), sum));
    }

    #[test]
    fn a_tree_of_one_candidate_is_a_chain(acceptance in any_acceptance(), depth in 1u64..17, fewer in 0u64..16) {
        let draft_tokens = depth.saturating_sub(fewer).max(1);
        let (tree, chain) = (Proposal::tree(1, depth, draft_tokens).unwrap(), Proposal::chain(draft_tokens).unwrap());
        prop_assert!(!tree.is_tree());
        if acceptance != measured_as(&acceptance, &chain) {
            prop_assert!(close(acceptance.tokens_per_step(&tree), acceptance.tokens_per_step(&chain)));
        }
        if draft_tokens == depth {
            prop_assert_eq!(tree, chain);
        }
    }

    /// Every set of nodes that a tree of this size could verify; the best one, played through all outcomes.
    #[test]
    fn trees_are_the_best_of_all_subsets(
        ranks in any_ranks(), rate in any_rate(), shape in prop::sample::select(vec![(2u64, 3u64), (3, 2), (2, 2), (4, 1)]),
        share in 0f64..=1.0,
    ) {
        let (top_k, depth) = shape;
        let nodes: u64 = (1..=depth as u32).map(|level| top_k.pow(level)).sum();
        let draft_tokens = ((share * nodes as f64).ceil() as u64).max(1);
        let tree = Proposal::tree(top_k, depth, draft_tokens).unwrap();
        let independent: Vec<f64> = (0..top_k as i32).map(|rank| rate * (1.0 - rate).powi(rank)).collect();
        let known: Vec<f64> = (0..top_k as usize).map(|rank| ranks.get(rank).copied().unwrap_or(0.0)).collect();
        let by_rate = Acceptance::rate(rate).unwrap().tokens_per_step(&tree);
        let by_rank = Acceptance::per_rank(ranks).unwrap().tokens_per_step(&tree);
        prop_assert!(close(by_rate, best_of_all_subsets(&independent, depth, draft_tokens)));
        prop_assert!(close(by_rank, best_of_all_subsets(&known, depth, draft_tokens)));
    }

    /// Larger trees: the most probable of all paths.
    #[test]
    fn trees_are_their_most_probable_paths(
        rate in any_rate(), tree in any_tree().prop_filter("few enough paths", |tree| tree.top_k().pow(tree.depth() as u32) < 5000),
    ) {
        let (mut paths, mut level) = (Vec::new(), vec![1.0]);
        for _ in 0..tree.depth() {
            let below = |path: f64| (0..tree.top_k() as i32).map(move |rank| path * rate * (1.0 - rate).powi(rank));
            level = level.into_iter().flat_map(below).collect();
            paths.extend(level.iter().copied());
        }
        paths.sort_by(|a, b| b.total_cmp(a));
        let sum: f64 = paths.iter().take(tree.draft_tokens() as usize).sum();
        prop_assert!(close(Acceptance::rate(rate).unwrap().tokens_per_step(&tree), 1.0 + sum));
    }

    #[test]
    fn conversions_are_inverses(rate in any_rate(), draft_tokens in 1u64..=256) {
        let known = rate_of(rate);
        let from = [
            AcceptanceRate::from_tokens_per_step(known.tokens_per_step(draft_tokens), draft_tokens).unwrap(),
            AcceptanceRate::from_accepted_per_step(known.accepted_per_step(draft_tokens), draft_tokens).unwrap(),
            AcceptanceRate::from_accepted_share(known.accepted_share(draft_tokens), draft_tokens).unwrap(),
        ];
        for found in from {
            prop_assert!((found.value() - rate).abs() < 1e-9, "{} for {rate}", found.value());
        }
        let length = 1.0 + rate * draft_tokens as f64;
        let of_length = AcceptanceRate::from_tokens_per_step(length, draft_tokens).unwrap();
        prop_assert!(close(of_length.tokens_per_step(draft_tokens), length));
    }

    #[test]
    fn the_accepted_share_is_below_the_rate(rate in any_rate(), draft_tokens in 1u64..=256) {
        let known = rate_of(rate);
        prop_assert!(known.accepted_share(draft_tokens) <= rate + SLACK);
        prop_assert!(close(known.accepted_share(1) + 1.0, rate + 1.0));
        prop_assert!(known.accepted_share(draft_tokens + 1) <= known.accepted_share(draft_tokens) + SLACK);
    }

    #[test]
    fn what_was_measured_comes_back(proposal in any_proposal(), share in 0f64..=1.0) {
        let tokens = 1.0 + share * proposal.most_accepted() as f64;
        let measured = Acceptance::measured(tokens, proposal).unwrap();
        prop_assert_eq!(measured.tokens_per_step(&proposal), tokens);
        // The rate behind it gives the same, seen through another shape of equal value.
        if !proposal.is_tree() && proposal.depth() == proposal.draft_tokens() {
            let rate = AcceptanceRate::from_tokens_per_step(tokens, proposal.draft_tokens()).unwrap();
            let other = Proposal::chain(proposal.draft_tokens() + 3).unwrap();
            prop_assert!(close(measured.tokens_per_step(&other), rate.tokens_per_step(other.draft_tokens())));
        }
    }

    /// The textbook's formulas for any length of chain, however long.
    #[test]
    fn the_textbook_holds_for_any_length(rate in any_rate(), draft_tokens in 0u64..3000, cost in 0f64..2.0) {
        let known = rate_of(rate);
        let sum: f64 = (0..=draft_tokens as i32).map(|position| rate.powi(position)).sum();
        prop_assert!(close(known.tokens_per_step(draft_tokens), sum));
        let proposed = draft_tokens as f64;
        prop_assert!(close(known.speedup(draft_tokens, cost).unwrap(), sum / (proposed * cost + 1.0)));
        let operations = known.operations_factor(draft_tokens, cost).unwrap();
        prop_assert!(close(operations, (proposed * cost + proposed + 1.0) / sum));
        prop_assert!(operations >= 1.0 - SLACK, "fewer operations than plain decoding");
        prop_assert!(known.speedup(draft_tokens, cost).unwrap() <= proposed + 1.0 + SLACK);
    }
}

/// The acceptance if it was measured with this shape: what it is measured as for others differs.
fn measured_as(acceptance: &Acceptance, proposal: &Proposal) -> Acceptance {
    let tokens = acceptance.tokens_per_step(proposal).clamp(1.0, proposal.most_accepted() as f64 + 1.0);
    Acceptance::measured(tokens, *proposal).unwrap()
}

/// Tokens per step of the best set of `count` nodes that are all reached from the root.
fn best_of_all_subsets(ranks: &[f64], depth: u64, count: u64) -> f64 {
    // Nodes in the order of levels: the children of node `i` (0 is the root) are `i * k + 1 ..= i * k + k`.
    let top_k = ranks.len();
    let nodes: usize = (1..=depth as u32).map(|level| top_k.pow(level)).sum();
    let parent = |node: usize| (node - 1) / top_k;
    let sets = (0u32..1 << nodes).map(|set| set << 1 | 1).filter(|set| u64::from(set.count_ones()) == count + 1);
    let reached = sets.filter(|set| (1..=nodes).all(|node| set >> node & 1 == 0 || set >> parent(node) & 1 == 1));
    reached.map(|set| 1.0 + played_through(set, 0, ranks, nodes)).fold(0.0, f64::max)
}

/// Accepted tokens in the mean below a node of a set, over all outcomes: one of its candidates is right, or none.
fn played_through(set: u32, node: usize, ranks: &[f64], nodes: usize) -> f64 {
    let children = ranks.iter().enumerate().map(|(rank, probability)| (node * ranks.len() + 1 + rank, probability));
    let verified = children.filter(|(child, _)| *child <= nodes && set >> child & 1 == 1);
    verified.map(|(child, probability)| probability * (1.0 + played_through(set, child, ranks, nodes))).sum()
}

/// Candidates are compared in the order of their probabilities, whoever lists them how: 1 + 0.6 + 0.36 + 0.1 with three nodes of two levels.
#[test]
fn ranks_may_be_given_in_any_order() {
    let tree = Proposal::tree(2, 2, 3).unwrap();
    for ranks in [[0.6, 0.1], [0.1, 0.6]] {
        assert!((Acceptance::per_rank(ranks).unwrap().tokens_per_step(&tree) - 2.06).abs() < 1e-12);
    }
}
