//! Many verifications at once, and what a verification is made of.

use crate::REGRESSIONS;
use crate::common::{Setup, any_architecture, any_setup_of, at_most, cases, close, layer};
use llm_roofline::model::{Architecture, FeedForward, Mixer, Recurrent};
use llm_roofline::prelude::*;
use llm_roofline::step::StepCost;
use proptest::prelude::*;

fn verification(model: &StepModel, new: u64, sequences: u64, cached: u64) -> StepCost {
    let mut load = model.load();
    load.add_decode(cached, new, sequences as f64);
    model.cost(&load)
}

proptest! {
    #![proptest_config(cases(1200, REGRESSIONS))]

    /// Windows, chunks, selections, compressed caches and latents; runs across all of their bends.
    #[test]
    fn a_run_of_verifications_is_the_sum_of_them(
        setup in any_setup_of(any_architecture()), new in 1u64..80, sequences in 1u64..300, cached in 0u64..1500,
        steps in 1u64..900,
    ) {
        let model = setup.model();
        let run = model.decode_run_of(new, sequences, cached, steps);
        let mut sum = StepCost::default();
        for step in 0..steps {
            sum += verification(&model, new, sequences, cached + step);
        }
        for class in OperatorClass::ALL {
            prop_assert!(
                close(run.time(class).as_seconds(), sum.time(class).as_seconds()),
                "{}: {} at once, {} one by one", class, run.time(class), sum.time(class)
            );
        }
        prop_assert!(close(run.total().as_seconds(), sum.total().as_seconds()));
        prop_assert!(close(run.flops().as_flops(), sum.flops().as_flops()), "operations");
        prop_assert!(close(run.bytes().as_bytes(), sum.bytes().as_bytes()), "bytes");
    }

    #[test]
    fn a_run_of_one_token_is_plain_decoding(
        setup in any_setup_of(any_architecture()), sequences in 1u64..300, cached in 0u64..100_000, steps in 0u64..5000,
    ) {
        let model = setup.model();
        prop_assert_eq!(model.decode_run_of(1, sequences, cached, steps), model.decode_run(sequences, cached, steps));
        prop_assert_eq!(model.decode_run_of(0, sequences, cached, steps), StepCost::default());
    }

    /// Verifying more tokens takes no less time, and less than decoding them one after another.
    #[test]
    fn verifying_is_between_one_step_and_as_many(
        setup in any_setup_of(any_architecture()), new in 1u64..80, sequences in 1u64..300, cached in 0u64..5000,
    ) {
        let model = setup.model();
        let [one, fewer, all] =
            [1, new.div_ceil(2), new].map(|new| verification(&model, new, sequences, cached).total());
        prop_assert!(at_most(one, fewer) && at_most(fewer, all), "{one}, {fewer}, {all}");
        if setup.engine == llm_roofline::engine::Engine::ideal() {
            let one_by_one: Seconds =
                (0..new).map(|step| verification(&model, 1, sequences, cached + step).total()).sum();
            prop_assert!(at_most(all, one_by_one), "{all} at once, {one_by_one} one by one");
        }
    }

    /// States are read once for each sequence and written once for each token, since those behind a rejected token have to be taken back.
    #[test]
    fn a_state_is_written_for_every_token(kind in 0usize..3, layers in 1u64..5, new in 2u64..64) {
        let mixer = [
            Recurrent::Mamba2 { heads: 16, head_dim: 32, groups: 1, state: 64, conv_kernel: 4 },
            Recurrent::GatedDeltaNet { key_heads: 8, value_heads: 16, key_dim: 32, value_dim: 32, conv_kernel: 4 },
            Recurrent::Lightning { heads: 8, head_dim: 64 },
        ][kind]
            .clone();
        let feed_forward = FeedForward::Dense { intermediate: 512, gated: true };
        let layer = layer(Mixer::Recurrent(mixer), feed_forward, 0);
        let architecture =
            Architecture::from_layers(512, 1000, 1 << 20, (0..layers).map(|_| ("layer".into(), layer.clone())));
        let model = Setup::new(architecture).model();
        let bytes = |load: StepLoad| model.cost(&load).bytes().as_bytes();
        let (mut verified, mut separate, mut prompt) = (model.load(), model.load(), model.load());
        let (mut emitting, mut silent) = (model.load(), model.load());
        verified.add_decode(1000, new, 1.0);
        separate.add_decode(1000, 1, new as f64);
        prompt.add_prefill(1000, new, true);
        emitting.add_prefills(1000, 1, true, 2.0);
        silent.add_prefill(1000, 1, true);
        silent.add_prefill(1000, 1, false);
        // A prompt emits one token, a verification as many as it is long.
        let emitted = bytes(emitting) - bytes(silent);
        let written = (bytes(verified) - bytes(prompt)) / (new - 1) as f64 - emitted;
        let read = (bytes(separate) - bytes(verified)) / (new - 1) as f64;
        prop_assert!((written / read - 1.0).abs() < 1e-6, "{written} written, {read} read");
        let state = model.memory_plan(1, 1000).state.as_bytes();
        prop_assert!((read / state - 1.0).abs() < 1e-6, "{read} read, {state} kept");
    }
}
