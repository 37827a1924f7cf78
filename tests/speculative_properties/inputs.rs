//! Numbers and names that make no sense.

use crate::REGRESSIONS;
use crate::common::cases;
use crate::setups::{Case, serve};
use llm_roofline::prelude::*;
use llm_roofline::speculative::*;
use proptest::prelude::*;

const NONSENSE: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -1e-300, 1.0 + 1e-9, 1e300, f64::MAX];

/// Whether an error names the value and its limits.
fn names_value_and_limits(error: &SpeculationError, value: impl std::fmt::Display) -> bool {
    let text = error.to_string();
    text.contains(&value.to_string()) && text.contains("expected")
}

#[test]
fn rates_are_from_zero_to_one() {
    let chain = Proposal::chain(3).unwrap();
    for rate in NONSENSE {
        let rejected = [
            AcceptanceRate::new(rate).err(),
            Acceptance::rate(rate).err(),
            Acceptance::per_position([0.5, rate]).err(),
            Acceptance::per_rank([rate]).err(),
            AcceptanceRate::from_accepted_share(rate, 4).err(),
        ];
        // A sum of ranks may be off by a digit.
        for (index, error) in rejected.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{rate} accepted, {index}"));
            assert!(matches!(error, SpeculationError::NotAProbability { .. }), "{error}");
            assert!(names_value_and_limits(&error, rate), "{error}");
        }
        if rate.is_nan() || !(1.0..=4.0).contains(&rate) {
            let measured = Acceptance::measured(rate, chain).unwrap_err();
            assert!(matches!(measured, SpeculationError::TokensPerStep { most: 4.0, .. }), "{measured}");
            assert!(names_value_and_limits(&measured, rate), "{measured}");
            assert!(AcceptanceRate::from_tokens_per_step(rate, 3).is_err());
        }
        if !(0.0..=3.0).contains(&rate) && rate != -1e-300 {
            assert!(AcceptanceRate::from_accepted_per_step(rate, 3).is_err(), "{rate}");
        }
    }
    assert_eq!(Acceptance::per_position([]), Err(SpeculationError::NoRates));
    assert_eq!(Acceptance::per_rank([]), Err(SpeculationError::NoRates));
    assert!(Acceptance::per_rank([0.6, 0.5]).unwrap_err().to_string().contains("1.1"));
}

#[test]
fn costs_are_finite_and_not_negative() {
    let rate = AcceptanceRate::new(0.7).unwrap();
    for cost in NONSENSE.into_iter().filter(|cost| !(cost.is_finite() && *cost > 0.0)) {
        let rejected = [
            rate.speedup(3, cost).err(),
            rate.operations_factor(3, cost).err(),
            rate.best_draft_tokens(cost).err(),
            speedup_of_costs(cost, 3, 0.1, 1.0).err(),
            speedup_of_costs(2.0, 3, cost, 1.0).err(),
            speedup_of_costs(2.0, 3, 0.1, cost).err(),
        ];
        for (index, error) in rejected.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{cost} accepted, {index}"));
            assert!(matches!(error, SpeculationError::NotARatio { .. }), "{error}");
            assert!(names_value_and_limits(&error, cost), "{error}");
        }
    }
    assert!(speedup_of_costs(2.0, 3, 0.0, 0.0).is_err());
    assert!(speedup_of_costs(2.0, 0, 1.0, 0.0).is_err());
}

#[test]
fn no_answer_is_infinite() {
    let rate = AcceptanceRate::new(0.7).unwrap();
    for draft_tokens in [0, 1, 256, 257, u64::MAX] {
        for cost in [0.0, 1e-300, 1.0, 1e300, f64::MAX] {
            for rate in [AcceptanceRate::NEVER, rate, AcceptanceRate::ALWAYS] {
                let speedup = rate.speedup(draft_tokens, cost).map_or(0.0, |speedup| speedup);
                let operations = rate.operations_factor(draft_tokens, cost).map_or(0.0, |factor| factor);
                assert!(speedup.is_finite() && operations.is_finite(), "{draft_tokens} {cost}: {speedup} {operations}");
            }
            let costs = speedup_of_costs(f64::MAX, draft_tokens, cost, 1e-300).map_or(0.0, |speedup| speedup);
            assert!(costs.is_finite(), "{draft_tokens} {cost}: {costs}");
        }
    }
}

#[test]
fn counts_have_limits() {
    for count in [257, 10_000, u64::MAX] {
        let rejected = [
            Proposal::chain(count).err(),
            Proposal::tree(count, 3, 3).err(),
            Proposal::tree(3, count, 3).err(),
            Proposal::tree(3, 3, count).err(),
            AcceptanceRate::from_tokens_per_step(2.0, count).err(),
            AcceptanceRate::from_accepted_share(0.5, count).err(),
        ];
        for error in rejected {
            let error = error.unwrap_or_else(|| panic!("{count} accepted"));
            assert!(matches!(error, SpeculationError::Count { value, .. } if value == count), "{error}");
            assert!(names_value_and_limits(&error, count), "{error}");
        }
    }
    for zero in [Proposal::tree(0, 3, 3), Proposal::tree(3, 0, 3), Proposal::tree(3, 3, 0)] {
        assert!(matches!(zero, Err(SpeculationError::Count { value: 0, least: 1, .. })), "{zero:?}");
    }
    assert!(AcceptanceRate::from_tokens_per_step(1.0, 0).is_err());
    // More nodes than a tree has: 2 + 4.
    assert!(matches!(Proposal::tree(2, 2, 7), Err(SpeculationError::Count { value: 7, most: 6, .. })));
    assert!(Proposal::tree(256, 256, 256).is_ok() && Proposal::chain(256).is_ok());
}

#[test]
fn models_answer_or_say_why_not() {
    let model = Case::new("llama-3.1-8b", "sglang-2026").compile();
    let error = model.best_draft_tokens(1, 100, 257).unwrap_err();
    assert!(names_value_and_limits(&error, 257), "{error}");
    for batch in [0, 1, u64::MAX] {
        for cached in [0, 1, u64::MAX] {
            let cycle = model.cycle(batch, cached).total().as_seconds();
            let speedup = model.speedup(batch, cached);
            assert!(cycle.is_finite() && speedup.is_finite() && speedup > 0.0, "{batch} {cached}");
            assert!(model.best_draft_tokens(batch, cached, 16).unwrap().speedup.is_finite());
            let _ = model.break_even_acceptance(batch, cached);
        }
    }
    for request in [
        Request::new(0, 10),
        Request::new(10, 0),
        Request::new(10, 10).with_batch(0),
        Request::new(u64::MAX, u64::MAX),
        Request::new(10, 10).with_batch(u64::MAX),
    ] {
        assert!(matches!(model.request(&request), Err(SpeculationError::Request(_))), "{request:?}");
    }
    let target = serve("llama-3.1-8b", "vllm-2026", 1);
    assert_eq!(Speculation::new(Method::DraftModel, &target).unwrap_err(), SpeculationError::NoDraftModel);
    let wide = Speculation::draft_model(serve("llama-3.2-1b", "vllm-2026", 2));
    assert!(matches!(SpeculativeModel::compile(&target, &wide), Err(SpeculationError::Drafting(_))));
    let totals = Model::from_totals("totals", Totals::dense(7_000_000_000, 16.0, Bytes::from_bytes(1e5)));
    let totals = target.with_model(totals);
    for method in [Method::Eagle, Method::Eagle2, Method::Eagle3, Method::Medusa, Method::Hydra, Method::Mtp] {
        assert!(matches!(Speculation::new(method, &totals), Err(SpeculationError::NoLayers { .. })), "{method}");
    }
    assert!(SpeculativeModel::compile(&totals, &Speculation::new(Method::NGram, &totals).unwrap()).is_ok());
}

#[test]
fn methods_are_known_by_their_names() {
    for method in Method::ALL {
        assert_eq!(method.name().parse(), Ok(method));
        assert_eq!(method.name().to_uppercase().replace(['-', ' '], "_").parse(), Ok(method));
        let serialized = serde_json::to_value(method).unwrap();
        assert_eq!(serialized.as_str().unwrap().parse(), Ok(method));
    }
    for (text, nearest) in
        [("eagel3", "eagle3"), ("medussa", "medusa"), ("n-gramm", "ngram"), ("lookahaed", "lookahead")]
    {
        let error = text.parse::<Method>().unwrap_err();
        assert!(error.to_string().contains(&format!("did you mean `{nearest}`")), "{error}");
    }
    let error = "".parse::<Method>().unwrap_err();
    assert!(matches!(error, SpeculationError::UnknownMethod { nearest: None, .. }), "{error}");
}

proptest! {
    #![proptest_config(cases(2000, REGRESSIONS))]

    #[test]
    fn no_name_panics(text in ".{0,40}") {
        if let Err(error) = text.parse::<Method>() {
            let is_named = matches!(&error, SpeculationError::UnknownMethod { method, .. } if text.starts_with(method));
            prop_assert!(is_named, "{}", error);
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_number_panics(numbers in prop::collection::vec(any::<f64>(), 0..5), counts in any::<[u64; 3]>(), small in any::<[u8; 3]>()) {
        for [a, b, c] in [counts, small.map(u64::from)] {
            let tree = Proposal::tree(a, b, c);
            let chain = Proposal::chain(a);
            for proposal in [tree, chain].into_iter().flatten() {
                for &number in &numbers {
                    let acceptances = [Acceptance::rate(number), Acceptance::measured(number, proposal)];
                    for acceptance in acceptances.into_iter().flatten() {
                        prop_assert!(acceptance.tokens_per_step(&proposal).is_finite());
                    }
                }
                let lists = [Acceptance::per_position(numbers.clone()), Acceptance::per_rank(numbers.clone())];
                for acceptance in lists.into_iter().flatten() {
                    prop_assert!(acceptance.tokens_per_step(&proposal).is_finite());
                }
            }
            for &number in &numbers {
                let rates = [
                    AcceptanceRate::from_tokens_per_step(number, a),
                    AcceptanceRate::from_accepted_per_step(number, a),
                    AcceptanceRate::from_accepted_share(number, a),
                ];
                for rate in rates.into_iter().flatten() {
                    prop_assert!((0.0..=1.0).contains(&rate.value()));
                }
            }
        }
    }
}
