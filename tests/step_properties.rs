//! Laws that the cost of a step must obey whatever the model, the device and the load.

mod common;

use common::*;
use llm_roofline::collective::Group;
use llm_roofline::model::Reach;
use llm_roofline::prelude::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(512, "tests/step_properties.proptest-regressions"))]

    #[test]
    fn better_hardware_is_never_slower(setup in any_setup(), parts in any_parts(), factor in 1f64..10.0) {
        let base = setup.model();
        let load = load_of(&base, &parts);
        let total = base.cost(&load).total();
        let better = [
            Setup { bandwidth: setup.bandwidth * factor, ..setup.clone() },
            Setup { peak: setup.peak * factor, ..setup.clone() },
            Setup { link: setup.link * factor, ..setup.clone() },
        ];
        for better in better {
            prop_assert!(at_most(better.model().cost(&load).total(), total));
        }
        let ideal = Setup { engine: llm_roofline::engine::Engine::ideal(), ..setup.clone() };
        prop_assert!(at_most(ideal.model().cost(&load).total(), total));
    }

    #[test]
    fn everything_twice_as_fast_takes_half_the_time(mut setup in any_setup(), parts in any_parts()) {
        setup.engine = llm_roofline::engine::Engine::ideal();
        let model = setup.model();
        let load = load_of(&model, &parts);
        let twice = Setup {
            bandwidth: setup.bandwidth * 2.0, peak: setup.peak * 2.0, link: setup.link * 2.0, ..setup.clone()
        };
        let (slow, fast) = (model.cost(&load), twice.model().cost(&load));
        prop_assert!(close(fast.total() / slow.total(), 0.5));
        prop_assert_eq!((slow.flops(), slow.bytes()), (fast.flops(), fast.bytes()));
    }

    #[test]
    fn no_step_beats_the_roofline(setup in any_setup(), parts in any_parts()) {
        let model = setup.model();
        let cost = model.cost(&load_of(&model, &parts));
        prop_assert!(at_most(cost.flops() / setup.peak, cost.total()));
        prop_assert!(at_most(cost.bytes() / setup.bandwidth, cost.total()));
        let ideal = Setup { engine: llm_roofline::engine::Engine::ideal(), tensor_parallel: 1, ..setup.clone() };
        let model = ideal.model();
        let cost = model.cost(&load_of(&model, &parts));
        prop_assert!(at_most(cost.total(), cost.flops() / setup.peak + cost.bytes() / setup.bandwidth));
    }

    #[test]
    fn an_explanation_sums_to_the_cost(setup in any_setup(), parts in any_parts()) {
        let model = setup.model();
        let load = load_of(&model, &parts);
        let (cost, explanation) = (model.cost(&load), model.explain(&load));
        let time: Seconds = explanation.operators.iter().map(|operator| operator.time).sum();
        prop_assert!(close(time.as_seconds(), cost.total().as_seconds()));
        prop_assert!(close(explanation.total.as_seconds(), cost.total().as_seconds()));
        let work = llm_roofline::operator::total(explanation.operators.iter().map(|operator| operator.work));
        prop_assert!(close(work.flops.as_flops(), cost.flops().as_flops()));
        prop_assert!(close(work.bytes.as_bytes(), cost.bytes().as_bytes()));
        for class in OperatorClass::ALL {
            let of_class = explanation.operators.iter().filter(|operator| operator.class == class);
            let time: Seconds = of_class.map(|operator| operator.time).sum();
            prop_assert!(close(time.as_seconds(), cost.time(class).as_seconds()), "{}", class);
        }
        let bounds = [Bound::Compute, Bound::Memory, Bound::Interconnect, Bound::Overhead];
        let bounded: Seconds = bounds.into_iter().map(|bound| cost.bound_time(bound)).sum();
        prop_assert!(close(bounded.as_seconds(), cost.total().as_seconds()));
    }

    #[test]
    fn more_to_do_takes_no_less_time(setup in any_setup(), parts in any_parts(), more in 1u64..500) {
        let model = setup.model();
        let time = |parts: &[Part]| model.cost(&load_of(&model, parts)).total();
        let base = time(&parts);
        for (index, part) in parts.iter().enumerate() {
            let mut grown = parts.clone();
            grown[index] = match *part {
                Part::Prefill { cached, new, emits } => Part::Prefill { cached, new: new + more, emits },
                Part::Decode { cached, new, sequences } => Part::Decode { cached, new, sequences: sequences + more },
            };
            prop_assert!(at_most(base, time(&grown)), "more tokens in part {}", index);
            let mut shrunk = parts.clone();
            shrunk.remove(index);
            prop_assert!(at_most(time(&shrunk), base), "without part {}", index);
            // In chunked attention a new chunk starts with a short context.
            if model.reaches().as_slice().iter().all(|reach| !matches!(reach, Reach::Chunk(_))) {
                grown[index] = match *part {
                    Part::Prefill { cached, new, emits } => Part::Prefill { cached: cached + more, new, emits },
                    Part::Decode { cached, new, sequences } => Part::Decode { cached: cached + more, new, sequences },
                };
                prop_assert!(at_most(base, time(&grown)), "longer context in part {}", index);
            }
        }
    }

    #[test]
    fn a_load_forgets_what_is_removed(setup in any_setup(), parts in any_parts(), passing in any_parts()) {
        let model = setup.model();
        let load = load_of(&model, &parts);
        let mut changed = load;
        passing.iter().for_each(|part| part.add_to(&mut changed));
        passing.iter().rev().for_each(|part| part.remove_from(&mut changed));
        prop_assert_eq!(changed.tokens(), load.tokens());
        prop_assert_eq!(changed.sequences(), load.sequences());
        prop_assert_eq!(changed.emitting(), load.emitting());
        prop_assert!(close(model.cost(&changed).total().as_seconds(), model.cost(&load).total().as_seconds()));
        parts.iter().for_each(|part| part.remove_from(&mut changed));
        prop_assert_eq!(model.cost(&changed).total(), Seconds::ZERO);
    }

    #[test]
    fn equal_sequences_add_up(setup in any_setup(), cached in 0u64..3000, new in 1u64..300, count in 1u64..40) {
        let model = setup.model();
        let (mut together, mut one_by_one) = (model.load(), model.load());
        together.add_prefills(cached, new, true, count as f64);
        together.add_decode(cached, 1, count as f64);
        for _ in 0..count {
            one_by_one.add_prefill(cached, new, true);
            one_by_one.add_decode(cached, 1, 1.0);
        }
        prop_assert!(close(model.cost(&together).total().as_seconds(), model.cost(&one_by_one).total().as_seconds()));
        prop_assert_eq!(together.tokens(), one_by_one.tokens());
    }

    #[test]
    fn one_device_does_not_communicate(setup in any_setup(), parts in any_parts()) {
        let alone = Setup { tensor_parallel: 1, ..setup.clone() }.model();
        prop_assert_eq!(alone.cost(&load_of(&alone, &parts)).time(OperatorClass::Collective), Seconds::ZERO);
        let group = Setup { tensor_parallel: 2, ..setup }.model();
        prop_assert!(group.cost(&load_of(&group, &parts)).time(OperatorClass::Collective) > Seconds::ZERO);
    }

    #[test]
    fn free_communication_makes_more_devices_no_slower(mut setup in any_setup(), parts in any_parts()) {
        setup.link = BytesPerSecond::from_bytes_per_second(1e30);
        setup.engine = llm_roofline::engine::Engine::ideal();
        let times: Vec<Seconds> = [1, 2, 4, 8]
            .map(|tensor_parallel| {
                let model = Setup { tensor_parallel, ..setup.clone() }.model();
                model.cost(&load_of(&model, &parts)).total()
            })
            .to_vec();
        for pair in times.windows(2) {
            prop_assert!(at_most(pair[1], pair[0]), "{:?}", times);
        }
        prop_assert!(at_most(times[0], times[3] * 8.0), "more than linear: {:?}", times);
    }

    #[test]
    fn smaller_weights_never_slow_decoding_down(
        setup in any_setup(), part in any_decode(), weights in prop::sample::select(QUANTIZED.to_vec()),
    ) {
        // GGUF files keep norms and routers in 32 bits, which pays only where reading the large matrices takes the time.
        let peak = if weights == "q4_k_m" { setup.peak * 1e5 } else { setup.peak };
        let with_weights = |weights| Setup { weights, peak, ..setup.clone() }.model();
        let (wide, narrow) = (with_weights("bf16"), with_weights(weights));
        let load = load_of(&wide, &[part]);
        prop_assert!(at_most(narrow.cost(&load).total(), wide.cost(&load).total()));
        prop_assert!(narrow.weight_bytes_per_device() < wide.weight_bytes_per_device());
    }

    #[test]
    fn a_mixed_step_shares_what_its_phases_read(setup in any_setup(), prefill in any_prefill(), decode in any_decode()) {
        let model = setup.model();
        let time = |parts: &[Part]| model.cost(&load_of(&model, parts)).total();
        let (mixed, prefill, decode) = (time(&[prefill, decode]), time(&[prefill]), time(&[decode]));
        prop_assert!(at_most(mixed, prefill + decode));
        prop_assert!(at_most(prefill, mixed) && at_most(decode, mixed));
    }

    #[test]
    fn a_run_is_the_sum_of_its_steps(
        setup in any_setup(), sequences in 1u64..300, cached in 0u64..1000, steps in 1u64..900, split in 0f64..1.0,
    ) {
        let model = setup.model();
        let run = model.decode_run(sequences, cached, steps);
        let mut sum = llm_roofline::step::StepCost::default();
        for step in 0..steps {
            sum += model.decode_step(sequences, cached + step);
        }
        prop_assert!(close(run.flops().as_flops(), sum.flops().as_flops()));
        prop_assert!(close(run.bytes().as_bytes(), sum.bytes().as_bytes()));
        for class in OperatorClass::ALL {
            prop_assert!(close(run.time(class).as_seconds(), sum.time(class).as_seconds()), "{}", class);
        }
        prop_assert!(close(run.total().as_seconds(), sum.total().as_seconds()));
        for bound in [Bound::Compute, Bound::Memory] {
            let difference = run.bound_time(bound) - sum.bound_time(bound);
            // At a crossing both limits are equal, and rounding may count one step to either.
            prop_assert!(difference.max(difference * -1.0) <= sum.total() * (2.0 / steps as f64 + 1e-9));
        }
        let first = (split * steps as f64) as u64;
        let halves = model.decode_run(sequences, cached, first)
            + model.decode_run(sequences, cached + first, steps - first);
        prop_assert!(close(run.total().as_seconds(), halves.total().as_seconds()));
    }

    #[test]
    fn an_all_reduce_moves_what_it_must(size in 2u64..64, megabytes in 0f64..100.0, latency_us in 0f64..100.0) {
        let bandwidth = BytesPerSecond::from_gb_per_second(100.0);
        let latency = Seconds::from_micros(latency_us);
        let group = Group::textbook(size, bandwidth, latency);
        let message = Bytes::from_mb(megabytes);
        // Every device must receive what it lacks of the sum and send what others lack (Patarasuk and Yuan, JPDC 69, 2009).
        let transfer = message / bandwidth * (2.0 * (size - 1) as f64 / size as f64);
        prop_assert!(at_most(latency + transfer, group.all_reduce(message)));
        prop_assert!(at_most(group.all_reduce(message), latency * 2.0 + transfer));
        prop_assert!(at_most(group.all_reduce(message), latency + message / bandwidth * (size - 1) as f64));
    }

    #[test]
    fn memory_holds_every_weight_once(setup in any_setup()) {
        let alone = Setup { tensor_parallel: 1, ..setup.clone() }.deployment();
        let total = setup.architecture.weight_bytes(alone.weights());
        prop_assert!(close(alone.memory_plan(1, 1).weights.as_bytes(), total.as_bytes()));
        let together = setup.deployment().memory_plan(1, 1).weights * f64::from(setup.tensor_parallel);
        prop_assert!(total <= together * (1.0 + 1e-9));
        prop_assert!(setup.model().weight_bytes_per_device() == setup.deployment().memory_plan(1, 1).weights);
    }

    #[test]
    fn what_is_not_replicated_is_divided(doublings in 0u32..4, weights in prop::sample::select(QUANTIZED.to_vec())) {
        let mut architecture = dense(4, 1024, 8);
        architecture.vector_params = 0;
        architecture.layer_kinds.iter_mut().for_each(|kind| kind.layer.vector_params = 0);
        let setup = Setup { weights, ..Setup::new(architecture) };
        let devices = 1 << doublings;
        let share = Setup { tensor_parallel: devices, ..setup.clone() }.deployment().memory_plan(1, 4096);
        let whole = setup.deployment().memory_plan(1, 4096);
        prop_assert!(close((share.weights * f64::from(devices)).as_bytes(), whole.weights.as_bytes()));
        prop_assert!(close((share.kv_cache * f64::from(devices)).as_bytes(), whole.kv_cache.as_bytes()));
    }
}

/// Absorbed latent attention multiplies each entry with all heads: long contexts of big batches turn from memory-bound to
/// compute-bound where the queries' own traffic stops to matter.
#[test]
fn a_run_crosses_from_one_limit_to_the_other() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer};
    let latent = deepseek_attention(None);
    let latent = layer(Mixer::LatentAttention(latent), FeedForward::None, 0);
    let setup = Setup {
        peak: FlopsPerSecond::from_tflops_per_second(150.0),
        ..Setup::new(Architecture::from_layers(2048, 1000, 1 << 20, [("latent".to_string(), latent)]))
    };
    let model = setup.model();
    let bound = |cached| {
        let mut load = model.load();
        load.add_decode(cached, 1, 64.0);
        let explanation = model.explain(&load);
        explanation.operators.iter().find(|operator| operator.class == OperatorClass::DecodeAttention).unwrap().bound
    };
    assert_eq!((bound(1), bound(4000)), (Bound::Memory, Bound::Compute));
    let run = model.decode_run(64, 1, 4000);
    let steps: Seconds = (0..4000).map(|step| model.decode_step(64, 1 + step).total()).sum();
    assert!(close(run.total().as_seconds(), steps.as_seconds()));
}

/// Counted by hand: 8 heads with a state of 64 x 64 each, read once per sequence and step, written once by a prompt and once for every decoded
/// token, 2 bytes per element; query, key, value and output of 512 elements per token. Engines keep the state behind each of several decoded
/// tokens (vLLM, `vllm/v1/kv_cache_interface.py`, `MambaSpec.num_speculative_blocks`), since those behind a rejected one must be taken back.
#[test]
fn a_recurrence_reads_its_state_once_and_writes_it_for_every_decoded_token() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer, Recurrent};
    let lightning = Mixer::Recurrent(Recurrent::Lightning { heads: 8, head_dim: 64 });
    let lightning = layer(lightning, FeedForward::None, 0);
    let model = Setup::new(Architecture::from_layers(512, 1000, 1 << 20, [("layer".to_string(), lightning)])).model();
    let bytes = |new: u64, sequences: f64| {
        let mut load = model.load();
        load.add_decode(500, new, sequences);
        let operators = model.explain(&load).operators;
        operators.iter().find(|operator| operator.class == OperatorClass::Recurrent).unwrap().work.bytes.as_bytes()
    };
    let (state, io) = ((2 * 8 * 64 * 64 * 2) as f64, (4 * 512 * 2) as f64);
    assert_eq!(bytes(1, 1.0), state + io);
    assert_eq!(bytes(5, 1.0), state / 2.0 + 5.0 * (state / 2.0 + io));
    assert_eq!(bytes(1, 7.0), 7.0 * (state + io));
    let mut prompt = model.load();
    prompt.add_prefill(0, 5, true);
    let operators = model.explain(&prompt).operators;
    let recurrence = operators.iter().find(|operator| operator.class == OperatorClass::Recurrent).unwrap();
    assert_eq!(recurrence.work.bytes.as_bytes(), state + 5.0 * io);
}

/// Counted by hand: each token writes the key and value that it adds.
#[test]
fn attention_reads_the_cache_and_writes_its_own_entry() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer};
    let mixer = Mixer::Attention(attention(8, 2, 64, Reach::Full));
    let layer = layer(mixer, FeedForward::None, 0);
    let setup = Setup::new(Architecture::from_layers(512, 1000, 1 << 20, [("layer".to_string(), layer)]));
    let model = setup.model();
    let mut load = model.load();
    load.add_decode(999, 1, 3.0);
    let operators = model.explain(&load).operators;
    let work = operators.iter().find(|operator| operator.class == OperatorClass::DecodeAttention).unwrap().work;
    let (read, written, queries_and_outputs) = (1000 * 2 * 2 * 64 * 2, 2 * 2 * 64 * 2, 2 * 8 * 64 * 2);
    assert_eq!(work.bytes.as_bytes(), 3.0 * (read + written + queries_and_outputs) as f64);
    assert_eq!(work.flops.as_flops(), 3.0 * (1000 * 2 * 8 * (64 + 64)) as f64);
    // Two devices halve everything; of four, two and two hold the same key-value head.
    for (tensor_parallel, cache_share, query_share) in [(2, 2, 2), (4, 2, 4)] {
        let operators = Setup { tensor_parallel, ..setup.clone() }.model().explain(&load).operators;
        let share = operators.iter().find(|operator| operator.class == OperatorClass::DecodeAttention).unwrap().work;
        let expected = (read + written) / cache_share + queries_and_outputs / query_share;
        assert_eq!(share.bytes.as_bytes(), 3.0 * expected as f64);
        assert_eq!(share.flops, work.flops / f64::from(query_share));
    }
}

/// Counted by hand for 128 heads with a latent of 512 + 64, 100 new tokens after 50 cached ones (DeepSeek-V3's attention): prefill works
/// with expanded heads of 128 + 64 and 128, decode with the latent itself.
#[test]
fn latent_attention_expands_in_prefill_and_absorbs_in_decode() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer};
    let latent = deepseek_attention(Some(1536));
    let latent = layer(Mixer::LatentAttention(latent), FeedForward::None, 0);
    let model = Setup::new(Architecture::from_layers(7168, 1000, 1 << 20, [("latent".to_string(), latent)])).model();
    let work = |class, load: StepLoad| {
        let operators = model.explain(&load).operators;
        operators.iter().find(|operator| operator.class == class).unwrap().work
    };
    let mut load = model.load();
    load.add_prefill(50, 100, true);
    let prefill = work(OperatorClass::PrefillAttention, load);
    let pairs = 100_u64 * 50 + 100 * 101 / 2;
    // The 50 cached latents are expanded too; those of the new tokens are a product of their own.
    let expansion = 50_u64 * 2 * 512 * 128 * (128 + 128);
    assert_eq!(prefill.flops.as_flops(), (pairs * 2 * 128 * (128 + 64 + 128) + expansion) as f64);
    let (latents, queries_and_outputs) = ((150 + 100) * 576, 100 * 128 * (128 + 64 + 128));
    assert_eq!(prefill.bytes.as_bytes(), 2.0 * (latents + queries_and_outputs) as f64);
    let mut load = model.load();
    load.add_decode(149, 1, 1.0);
    let decode = work(OperatorClass::DecodeAttention, load);
    assert_eq!(decode.flops.as_flops(), (150 * 2 * 128 * (576 + 512)) as f64);
    assert_eq!(decode.bytes.as_bytes(), 2.0 * (151 * 576 + 128 * (576 + 512)) as f64);
}

/// The operators of the textbook count what the step model counts, the written entries aside.
#[test]
fn operator_functions_agree_with_the_step_model() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer};
    use llm_roofline::operator::{decode_attention, prefill_attention};
    for reach in [Reach::Full, Reach::Window(300), Reach::Chunk(256)] {
        let attention = attention(8, 2, 64, reach);
        let layer = layer(Mixer::Attention(attention.clone()), FeedForward::None, 0);
        let model = Setup::new(Architecture::from_layers(512, 1000, 1 << 20, [("layer".to_string(), layer)])).model();
        let mut load = model.load();
        load.add_prefill(500, 200, true);
        load.add_decode(999, 1, 3.0);
        let operators = model.explain(&load).operators;
        let work = |class| operators.iter().find(|operator| operator.class == class).unwrap().work;
        let written = |tokens: f64| Bytes::from_bytes(tokens * (2 * 2 * 64 * 2) as f64);
        let (prefill, decode) = (work(OperatorClass::PrefillAttention), work(OperatorClass::DecodeAttention));
        let expected = prefill_attention(&attention, 500, 200, 16.0);
        assert_eq!((prefill.flops, prefill.bytes), (expected.flops, expected.bytes + written(200.0)));
        let expected = decode_attention(&attention, 3.0, 1000, 16.0);
        assert_eq!((decode.flops, decode.bytes), (expected.flops, expected.bytes + written(3.0)));
    }
}

/// Megatron-LM (arXiv 1909.08053): one all-reduce after the token mixer and one after the feed-forward; one more after the divided
/// embedding table.
#[test]
fn every_mixer_and_every_feed_forward_ends_in_one_all_reduce() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer, Recurrent};
    let dense = || FeedForward::Dense { intermediate: 256, gated: true };
    let mamba = Mixer::Recurrent(Recurrent::Mamba1 { inner: 512, state: 16, conv_kernel: 4, dt_rank: 16 });
    for (mixer, feed_forward, expected) in [
        (Mixer::Attention(attention(8, 8, 64, Reach::Full)), dense(), 2.0),
        (Mixer::Attention(attention(8, 8, 64, Reach::Full)), FeedForward::None, 1.0),
        (Mixer::Linear, dense(), 2.0),
        (Mixer::Linear, FeedForward::Linear, 2.0),
        (Mixer::None, dense(), 1.0),
        (mamba, FeedForward::None, 1.0),
    ] {
        let name = format!("{mixer:?} {feed_forward:?}");
        let layers = [("layer".to_string(), layer(mixer, feed_forward, 0))];
        let setup = Setup { tensor_parallel: 2, ..Setup::new(Architecture::from_layers(512, 1000, 1 << 20, layers)) };
        let model = setup.model();
        let mut load = model.load();
        load.add_decode(10, 1, 1.0);
        let operators = model.explain(&load).operators;
        assert_eq!(
            operators.iter().find(|operator| operator.name == "all-reduce").unwrap().count,
            expected + 1.0,
            "{name}"
        );
    }
}

#[test]
fn overhead_counts_steps_and_sequences() {
    let model = Setup { engine: lossy_engine(), ..Setup::new(dense(2, 1024, 8)) }.model();
    let overhead = model.decode_run(7, 100, 10).time(OperatorClass::Overhead);
    assert!(close(overhead.as_micros(), 10.0 * (5.0 + 7.0 * 5.0)));
}

/// Counted by hand: each token passes the matrices of its two experts, of which a step reads every distinct one once.
#[test]
fn experts_multiply_each_token_and_are_read_once() {
    use llm_roofline::model::{Architecture, FeedForward, Mixer, Moe};
    let moe = Moe {
        experts: 8,
        experts_per_token: 2,
        intermediate: 256,
        gated: true,
        shared_intermediate: None,
        latent_size: None,
        vector_params_per_expert: 0,
        shared_gate: false,
    };
    let layer = layer(Mixer::None, FeedForward::Moe(moe), 0);
    let model = Setup::new(Architecture::from_layers(512, 1000, 1 << 20, [("layer".to_string(), layer)])).model();
    let work = |tokens: f64| {
        let mut load = model.load();
        load.add_decode(10, 1, tokens);
        let operators = model.explain(&load).operators;
        operators.iter().find(|operator| operator.class == OperatorClass::ExpertGemm).unwrap().work
    };
    let expert = 3 * 512 * 256;
    assert_eq!(work(1.0).flops.as_flops(), (2 * 2 * expert) as f64);
    assert_eq!(work(4.0).flops.as_flops(), 4.0 * (2 * 2 * expert) as f64);
    // Per token and expert, in 16 bits: gate and up share one reading of the input (512) and write 256 each; down reads 256 and
    // writes 512.
    let moved = 2 * 2 * (512 + 2 * 256 + 256 + 512);
    assert!(close(work(1.0).bytes.as_bytes(), (2 * 2 * expert + moved) as f64));
    // Four tokens meet 5.46875 distinct experts of eight on average.
    let expected = 5.46875 * (2 * expert) as f64 + (4 * moved) as f64;
    assert!(close(work(4.0).bytes.as_bytes(), expected));
}

#[test]
fn nothing_to_do_costs_nothing() {
    let model = Setup { engine: lossy_engine(), ..Setup::new(dense(2, 1024, 8)) }.model();
    assert_eq!(model.cost(&model.load()).total(), Seconds::ZERO);
    assert_eq!(model.decode_run(0, 100, 10).total(), Seconds::ZERO);
    assert_eq!(model.decode_run(10, 100, 0).total(), Seconds::ZERO);
    assert!(model.explain(&model.load()).operators.is_empty());
}

/// Counted by hand: vector kernels do 1,000 operations per weight for one row, of which 600 are done once for all rows.
#[test]
fn vector_kernels_unpack_once_for_several_rows() {
    use llm_roofline::engine::{Engine, Number, Parameter, Share};
    use llm_roofline::profile::Sourced;
    let mut engine = Engine::ideal();
    engine.gemm.vector_operations = Some(Parameter::assumed(Number(1000.0)));
    engine.gemm.vector_shared = Some(Parameter::assumed(Share(0.6)));
    engine.scheduling.vector_rows = Some(Sourced::assumed(8));
    let catalog = Catalog::embedded();
    let device = catalog.device("h100-sxm-80gb").unwrap();
    let fp32 = device.peak(llm_roofline::format::NumberFormat::Fp32).unwrap();
    let deployment = Deployment::new(catalog.model("llama-3.1-8b").unwrap(), System::new(device, 1).unwrap());
    let model = StepModel::compile(&deployment.with_engine(engine)).unwrap();
    let down = |rows: u64| {
        let mut load = model.load();
        load.add_decode(100, rows, 1.0);
        let operators = model.explain(&load).operators;
        operators.iter().find(|operator| operator.name == "down_proj").unwrap().time
    };
    let weights = 32.0 * 4096.0 * 14336.0;
    for rows in [1, 5, 8] {
        let operations = Flops::from_flops(weights * (600.0 + 400.0 * rows as f64));
        assert!(close(down(rows).as_seconds(), (operations / fp32).as_seconds()), "{rows}: {}", down(rows));
    }
    // Nine rows meet matrix units.
    assert!(down(9) < down(1));
}
