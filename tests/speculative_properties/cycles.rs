//! Cycles and requests against plain decoding and against each other.

use crate::REGRESSIONS;
use crate::common::{at_most, cases, close};
use crate::setups::*;
use llm_roofline::prelude::*;
use llm_roofline::speculative::{Acceptance, Method, Proposal, SpeculativeModel};
use proptest::prelude::*;
use proptest::sample::select;

fn seconds_close(a: Seconds, b: Seconds) -> bool {
    close(a.as_seconds(), b.as_seconds())
}

fn same(a: Seconds, b: Seconds) -> bool {
    (a.as_seconds() - b.as_seconds()).abs() <= 1e-12 * a.as_seconds()
}

proptest! {
    #![proptest_config(cases(1600, REGRESSIONS))]

    #[test]
    fn nothing_proposed_is_plain_decoding(case in any_case(), batch in any_batch(), context in any_context(), output in 1u64..2000) {
        let speculation = case.speculation();
        let none = speculation.clone().with_draft_tokens(0).unwrap();
        prop_assert_eq!(none.proposal(), &Proposal::NONE);
        let compiled = SpeculativeModel::compile(&case.target(), &none).unwrap();
        let plain = StepModel::compile(&case.target()).unwrap();
        let request = Request::new(context, output).with_batch(batch);
        let expected = plain.request(&request).unwrap();
        for model in [compiled, case.compile().with_proposal(Proposal::NONE)] {
            let answer = model.request(&request).unwrap();
            prop_assert_eq!(answer.plain, expected);
            prop_assert_eq!((answer.ttft, answer.memory), (expected.ttft, expected.memory));
            prop_assert!(same(answer.e2e, expected.e2e));
            prop_assert_eq!(answer.tpot.is_some(), expected.tpot.is_some());
            if let Some((with, without)) = answer.tpot.zip(expected.tpot) {
                prop_assert!(same(with, without), "{with} {without}");
                prop_assert!((answer.speedup.unwrap().expected - 1.0).abs() < 1e-12);
            }
            prop_assert!((answer.e2e_speedup.expected - 1.0).abs() < 1e-12);
            prop_assert!((answer.tokens_per_step - 1.0).abs() < 1e-12);
            for (with, without) in [
                (Some(answer.output_tps_total), Some(expected.output_tps_total)),
                (answer.tps_total, expected.tps_total),
                (answer.tps_per_stream, expected.tps_per_stream),
            ] {
                let [with, without] = [with, without].map(|rate| rate.map_or(0.0, |rate| rate.as_tokens_per_second()));
                prop_assert!((with - without).abs() <= 1e-12 * without);
            }
            let cycle = model.cycle(batch, context);
            prop_assert_eq!((cycle.draft, cycle.overhead), (Seconds::ZERO, Seconds::ZERO));
            prop_assert!(same(cycle.total(), plain.decode_step(batch, context).total()));
            prop_assert!((model.speedup(batch, context) - 1.0).abs() < 1e-12);
        }
    }

    /// Verifying is never cheaper than a plain step, also where an engine switches to faster kernels for more rows.
    #[test]
    fn no_speedup_beyond_what_can_be_accepted(case in any_case(), batch in any_batch(), context in any_context()) {
        let model = Case { rate: 1.0, ..case }.compile();
        let plain = model.target().decode_step(batch, context).total();
        let verify = model.cycle(batch, context).verify.total();
        prop_assert!(at_most(plain, verify), "verified in {verify}, a step is {plain}");
        let most = case.proposal.most_accepted() as f64 + 1.0;
        prop_assert!(model.speedup(batch, context) <= most * (1.0 + 1e-12));
        let request = Request::new(context, 50).with_batch(batch);
        let answer = model.request(&request).unwrap();
        prop_assert!(answer.speedup.unwrap().expected <= most * (1.0 + 1e-9));
        prop_assert!(model.closed_loop_speedup(&request).expected <= most * (1.0 + 1e-9));
    }

    #[test]
    fn more_acceptance_is_never_slower(case in any_case(), other in any_rate(), batch in any_batch(), context in any_context()) {
        let model = case.compile();
        let request = Request::new(context, 100).with_batch(batch);
        let of_rate = |rate: f64| model.clone().with_acceptance(Acceptance::rate(rate).unwrap());
        let [low, high] = [case.rate.min(other), case.rate.max(other)].map(of_rate);
        prop_assert!(low.speedup(batch, context) <= high.speedup(batch, context) * (1.0 + 1e-9));
        let [low, high] = [low, high].map(|model| model.request(&request).unwrap());
        prop_assert!(at_most(high.tpot.unwrap(), low.tpot.unwrap()) && at_most(high.e2e, low.e2e));
        prop_assert_eq!((low.ttft, low.chunk_interval), (high.ttft, high.chunk_interval));
    }

    #[test]
    fn more_to_do_makes_no_cycle_shorter(case in any_case(), batch in any_batch(), context in any_context(), more in 1u64..300) {
        let model = case.compile();
        let cycle = |batch, context| model.cycle(batch, context).total();
        // A larger batch may leave the vector kernels.
        let base = cycle(batch, context).min(case.compile_with_matrix_kernels().cycle(batch, context).total());
        prop_assert!(at_most(base, cycle(batch + more, context)), "{base}, of more {}", cycle(batch + more, context));
        prop_assert!(at_most(base, cycle(batch, context + more)), "{base}, of longer {}", cycle(batch, context + more));
    }

    #[test]
    fn a_request_adds_up(case in any_case(), batch in any_batch(), context in any_context(), output in 1u64..300) {
        let model = case.compile();
        let request = Request::new(context, output).with_batch(batch);
        let answer = model.request(&request).unwrap();
        let further = (output - 1) as f64;
        prop_assert!(seconds_close(answer.e2e, answer.ttft + answer.tpot.unwrap_or(Seconds::ZERO) * further));
        prop_assert!(seconds_close(answer.cycle.total(), answer.cycle.draft + answer.cycle.verify.total() + answer.cycle.overhead));
        prop_assert!(close(answer.tokens_per_step, case.speculation().tokens_per_step()));
        prop_assert!(close(answer.output_tps_total.as_tokens_per_second(), (batch * output) as f64 / answer.e2e.as_seconds()));
        prop_assert!(close(answer.e2e_speedup.expected, answer.plain.e2e / answer.e2e));
        let drafts = model.drafter().map_or(Seconds::ZERO, |drafter| drafter.prefill(&request).total());
        prop_assert!(seconds_close(answer.ttft, answer.plain.ttft + drafts));
        let is_open = output == 1;
        prop_assert_eq!([answer.tpot.is_none(), answer.chunk_interval.is_none(), answer.speedup.is_none()], [is_open; 3]);
        if let Some((tpot, interval)) = answer.tpot.zip(answer.chunk_interval) {
            prop_assert!(seconds_close(interval, tpot * answer.tokens_per_step));
            prop_assert!(seconds_close(interval, answer.cycle.total()));
            let plain = answer.plain.tpot.unwrap();
            prop_assert!(at_most(plain, interval), "a client waits {interval} for a chunk, {plain} for a token");
            prop_assert!(close(answer.tps_per_stream.unwrap().as_tokens_per_second() * tpot.as_seconds(), 1.0));
            prop_assert!(close(answer.tps_total.unwrap().as_tokens_per_second() * tpot.as_seconds(), batch as f64));
            let speedup = answer.speedup.unwrap();
            prop_assert!(close(speedup.expected, plain / tpot));
            prop_assert!(speedup.low <= speedup.expected && speedup.expected <= speedup.high && speedup.low > 0.0);
        }
        let alone = model.request(&request.with_batch(1)).unwrap();
        prop_assert_eq!(alone, model.request(&Request::new(context, output)).unwrap());
    }

    /// The closed form against one cycle for every length that the context passes through.
    #[test]
    fn the_mean_cycle_is_the_mean_of_cycles(case in any_case(), batch in any_batch(), context in any_context(), output in 2u64..200) {
        let model = case.compile();
        let answer = model.request(&Request::new(context, output).with_batch(batch)).unwrap();
        let cycles: Vec<_> = (0..output - 1).map(|position| model.cycle(batch, context + position)).collect();
        let count = cycles.len() as f64;
        let draft: Seconds = cycles.iter().map(|cycle| cycle.draft).sum();
        let verify: Seconds = cycles.iter().map(|cycle| cycle.verify.total()).sum();
        let overhead: Seconds = cycles.iter().map(|cycle| cycle.overhead).sum();
        prop_assert!(seconds_close(answer.cycle.draft * count, draft));
        prop_assert!(seconds_close(answer.cycle.overhead * count, overhead));
        // Where verifying is held at the price of a step, cycle by cycle or all together, the sum of the larger is at least the larger sum.
        let step = |position: usize| model.target().decode_step(batch, context + position as u64).total();
        let is_held = cycles.iter().enumerate().any(|(position, cycle)| cycle.verify.total() == step(position));
        let whole = answer.cycle.verify.total() * count;
        prop_assert!(seconds_close(whole, verify) || is_held && at_most(whole, verify));
    }

    /// Where engines have no numbers of their own for passes of a draft, each is a step of the draft model, its context growing meanwhile.
    #[test]
    fn a_draft_model_takes_a_step_for_every_token(
        engine in select(vec!["ideal", "transformers", "llama-cpp-cuda-2026"]), proposal in any_chain(), batch in any_batch(),
        context in any_context(),
    ) {
        let case = Case { method: Method::DraftModel, proposal, ..Case::new("llama-3.1-8b", engine) };
        let (model, draft_tokens) = (case.compile(), proposal.draft_tokens());
        let steps = |context| model.drafter().unwrap().decode_step(batch, context).total() * draft_tokens as f64;
        let draft = model.cycle(batch, context).draft;
        prop_assert!(at_most(steps(context), draft) && at_most(draft, steps(context + draft_tokens)));
    }

    #[test]
    fn a_drafter_takes_memory(case in any_case(), batch in any_batch(), context in any_context()) {
        let model = case.compile();
        let (with, without) = (model.memory().plan(batch, context), model.target().memory_plan(batch, context));
        prop_assert!(with.needed() >= without.needed(), "{} {}", with.needed(), without.needed());
        prop_assert!(with.state >= without.state, "{} {}", with.state, without.state);
        // Beside states, blocks of the cache are as large as a state with its proposals, and larger ones may be filled better.
        let shares_blocks = without.state > Bytes::ZERO;
        prop_assert!(shares_blocks || with.kv_cache >= without.kv_cache, "{} {}", with.kv_cache, without.kv_cache);
        prop_assert!(with.activations >= without.activations);
        prop_assert_eq!(with.drafter_weights > Bytes::ZERO, model.drafter().is_some());
        prop_assert_eq!(with.weights, without.weights);
    }
}

/// MagicDec (arXiv:2408.11049): with the batch the arithmetic of verifying takes over and the gain is lost; long contexts bring it back, since the
/// caches of all sequences are read once for all proposals. Without grouped queries 512 tokens of each of 64 sequences are long contexts already.
#[test]
fn gains_fall_with_the_batch_and_return_with_the_context() {
    for engine in ENGINES {
        for (model, tensor_parallel) in [("llama-3.1-8b", 1), ("llama-3.1-70b", 4)] {
            for method in [Method::NGram, Method::Eagle3] {
                let case = Case { tensor_parallel, method, ..Case::new(model, engine) };
                // Vector kernels of llama.cpp may be slower for eight rows than matrix kernels for 32, see `no_speedup_beyond_what_can_be_accepted`.
                let compiled = case.compile_with_matrix_kernels();
                for context in [16, 128, 512] {
                    let speedups = [1, 8, 64, 512].map(|batch| compiled.speedup(batch, context));
                    // As long as nothing is computing at its limit, what the host does per sequence is shared by the tokens of a cycle: a plateau may
                    // rise a little.
                    let falls = speedups.windows(2).all(|pair| pair[0] >= pair[1] * (1.0 - 1e-3));
                    let falls = falls && speedups[3] < 0.9 * speedups[0];
                    assert!(falls, "{case:?} at {context}: {speedups:?}");
                }
                let speedups = [512, 4_000, 32_000].map(|context| compiled.speedup(256, context));
                // Kernels that write the scores of every pair to memory gain nothing from reading the cache once.
                let is_fused =
                    case.target().engine().scheduling.flash_attention.as_ref().is_none_or(|fused| fused.value);
                let returns = speedups.is_sorted() && speedups[2] > 1.05 * speedups[0];
                assert!(returns || !is_fused, "{case:?}: {speedups:?}");
            }
        }
    }
}

/// Launches of a drafter do not get fewer when its matrices are cut, and all-reduces come on top.
#[test]
fn a_drafter_keeps_its_launches_on_eight_devices() {
    for engine in ENGINES {
        let draft = |tensor_parallel| serve("llama-3.2-1b", engine, tensor_parallel);
        let target = serve("llama-3.1-70b", engine, 8);
        let draft_tokens = 4;
        let compiled = |draft: Deployment| {
            let speculation = llm_roofline::speculative::Speculation::draft_model(draft);
            SpeculativeModel::compile(&target, &speculation.with_draft_tokens(draft_tokens).unwrap()).unwrap()
        };
        let (one, eight) = (compiled(draft(1)), compiled(draft(8)));
        let pass = |model: &SpeculativeModel| model.drafter().unwrap().decode_step(1, 500);
        let launches =
            |cost: llm_roofline::step::StepCost| cost.bound_time(Bound::Overhead) - cost.time(OperatorClass::Overhead);
        let (alone, together) = (pass(&one), pass(&eight));
        let all_reduces = together.bound_time(Bound::Interconnect);
        assert_eq!(alone.bound_time(Bound::Interconnect), Seconds::ZERO);
        assert!(all_reduces > Seconds::ZERO, "{engine}");
        let least = (launches(alone) + all_reduces) * draft_tokens as f64;
        let cycle = eight.cycle(1, 500);
        assert!(at_most(least, cycle.draft), "{engine}: drafted in {}, launched in {least}", cycle.draft);
    }
}

/// More devices shorten the step of the target by more than the passes of its head, which are mostly launches.
#[test]
fn more_devices_help_the_target_more_than_its_head() {
    for engine in ["vllm-2026", "sglang-2026", "tensorrt-llm-2026", "vllm-2024"] {
        for method in [Method::Eagle, Method::Eagle3] {
            let cycles = [1, 2, 4, 8].map(|tensor_parallel| {
                let proposal = Proposal::chain(3).unwrap();
                Case { tensor_parallel, method, proposal, ..Case::new("llama-3.1-70b", engine) }.compile().cycle(1, 500)
            });
            for pair in cycles.windows(2) {
                let (verify, draft) = (pair[1].verify.total() / pair[0].verify.total(), pair[1].draft / pair[0].draft);
                assert!(verify < draft, "{engine}, {method}: {verify} of the step, {draft} of the draft");
                assert!(verify < 1.0, "{engine}, {method}");
            }
        }
    }
}
