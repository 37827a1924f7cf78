//! Laws of unloaded requests, their errors, and the claims that people make about prefill and decode.

mod common;

use common::*;
use llm_roofline::deployment::DeploymentError;
use llm_roofline::engine::{Parameter, Positive};
use llm_roofline::memory::MemoryModel;
use llm_roofline::memory::{DoesNotFit, MemoryPart};
use llm_roofline::model::{Architecture, FeedForward, Mixer, Reach};
use llm_roofline::prelude::*;
use llm_roofline::request::RequestError;
use llm_roofline::step::CompileError;
use proptest::prelude::*;

fn any_request() -> impl Strategy<Value = Request> {
    (1u64..3000, 0f64..1.0, 1u64..500, 1u64..20).prop_map(|(prompt, cached, output, batch)| {
        Request::new(prompt, output).with_cached_prompt_tokens((cached * prompt as f64) as u64).with_batch(batch)
    })
}

/// Ordinary numbers, and every magnitude up to the largest.
fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..3000, (0u32..64).prop_map(|bits| 1 << bits), Just(u64::MAX)]
}

fn answer(model: &StepModel, request: Request) -> RequestEstimate {
    model.request(&request).unwrap()
}

fn answer_with(model: &StepModel, mut request: Request, change: impl FnOnce(&mut Request)) -> RequestEstimate {
    change(&mut request);
    answer(model, request)
}

fn has_chunks(model: &StepModel) -> bool {
    model.reaches().as_slice().iter().any(|reach| matches!(reach, Reach::Chunk(_)))
}

proptest! {
    #![proptest_config(cases(384, "tests/request_properties.proptest-regressions"))]

    #[test]
    fn latencies_and_rates_fit_together(setup in any_setup(), request in any_request()) {
        let model = setup.model();
        let answer = answer(&model, request);
        let steps = (request.output_tokens - 1) as f64;
        prop_assert_eq!(answer.tpot.is_some(), request.output_tokens > 1);
        let tpot = answer.tpot.unwrap_or(Seconds::ZERO);
        prop_assert!(close(answer.e2e.as_seconds(), (answer.ttft + tpot * steps).as_seconds()));
        let tokens = (request.output_tokens * request.batch) as f64;
        prop_assert!(close(answer.output_tps_total.as_tokens_per_second() * answer.e2e.as_seconds(), tokens));
        if let (Some(per_stream), Some(total)) = (answer.tps_per_stream, answer.tps_total) {
            prop_assert!(close(per_stream.as_tokens_per_second(), tpot.token_rate().as_tokens_per_second()));
            prop_assert!(close(total / per_stream, request.batch as f64));
        }
        if let (Some(first), Some(last), false) = (answer.itl_first, answer.itl_last, has_chunks(&model)) {
            prop_assert!(at_most(first, last));
            prop_assert!(at_most(first, tpot) && at_most(tpot, last));
        }
        prop_assert!(answer.mfu > 0.0 && answer.mbu.is_none_or(|mbu| mbu > 0.0 && mbu <= 1.0 + 1e-9));
        let one_more = answer_with(&model, request, |r| r.output_tokens += 1);
        let gap = model.itl(&request, request.output_tokens + 1);
        prop_assert!(close(one_more.e2e.as_seconds(), (answer.e2e + gap).as_seconds()));
    }

    #[test]
    fn longer_prompts_take_no_less_time(setup in any_setup(), request in any_request(), more in 1u64..2000) {
        let model = setup.model();
        let longer = answer_with(&model, request, |request| request.prompt_tokens += more);
        prop_assert!(at_most(answer(&model, request).ttft, longer.ttft));
    }

    #[test]
    fn cached_tokens_never_slow_down(setup in any_setup(), request in any_request()) {
        let model = setup.model();
        let uncached = answer(&model, request.with_cached_prompt_tokens(0));
        let cached = answer(&model, request);
        prop_assert!(at_most(cached.ttft, uncached.ttft));
        prop_assert_eq!(cached.decode, uncached.decode);
        prop_assert_eq!(cached.memory, uncached.memory);
    }

    #[test]
    fn batching_shares_weights(setup in any_setup(), request in any_request()) {
        let model = setup.model();
        let (alone, together) = (answer(&model, request.with_batch(1)), answer(&model, request));
        let batch = request.batch as f64;
        prop_assert!(at_most(alone.ttft, together.ttft) && at_most(together.ttft, alone.ttft * batch));
        prop_assert!(at_most(alone.e2e, together.e2e) && at_most(together.e2e, alone.e2e * batch));
        prop_assert!(close(together.memory.kv_cache.as_bytes(), alone.memory.kv_cache.as_bytes() * batch));
        let Request { prompt_tokens, output_tokens, cached_prompt_tokens, .. } = request;
        let single = Request::new(prompt_tokens, output_tokens).with_cached_prompt_tokens(cached_prompt_tokens);
        prop_assert_eq!(answer(&model, single), alone);
    }

    #[test]
    fn chunked_prefill_does_the_same_arithmetic_in_more_steps(
        setup in any_setup_of(any_plain_architecture()), prompt in 1u64..3000, batch in 1u64..4, budget in 1u64..2000,
    ) {
        let whole_setup = Setup { engine: llm_roofline::engine::Engine::ideal(), tensor_parallel: 1, ..setup };
        let chunked = Setup { engine: chunking_engine(budget), ..whole_setup.clone() };
        let request = Request::new(prompt, 1).with_batch(batch);
        let (whole, chunked) = (answer(&whole_setup.model(), request), answer(&chunked.model(), request));
        prop_assert!(close(chunked.prefill.flops().as_flops(), whole.prefill.flops().as_flops()));
        prop_assert!(at_most(whole.ttft, chunked.ttft));
        let steps = (prompt * batch).div_ceil(budget) as f64;
        let again = (whole.memory.weights + whole.memory.kv_cache) * (steps - 1.0);
        // Chunks of attention may be bound by different limits, which do not overlap across steps.
        let attention = whole.prefill.time(OperatorClass::PrefillAttention);
        prop_assert!(at_most(chunked.ttft, whole.ttft + again / whole_setup.bandwidth + attention));
        if steps == 1.0 {
            prop_assert_eq!(chunked.prefill, whole.prefill);
        }
    }

    #[test]
    fn what_fits_fits_and_one_more_does_not(
        setup in any_setup(), context in 2u64..5000, sequences in 1u64..50, room in 0f64..3.0,
    ) {
        let plan = setup.deployment().memory_plan(sequences, context);
        let setup = Setup { capacity: plan.weights + (plan.kv_cache + plan.state) * room + Bytes::from_bytes(1.0), ..setup };
        let deployment = setup.deployment();
        if let Some(most) = deployment.max_sequences(context) {
            prop_assert!(deployment.memory_plan(most, context).fits());
            prop_assert!(!deployment.memory_plan(most + 1, context).fits());
        } else {
            prop_assert_eq!(plan.kv_cache + plan.state, Bytes::ZERO);
        }
        if let Some(longest) = deployment.max_context_tokens(sequences) {
            prop_assert!(longest == 0 || deployment.memory_plan(sequences, longest).fits());
            prop_assert!(!deployment.memory_plan(sequences, longest + 1).fits());
        }
    }

    /// Whatever the numbers are: an error or an answer of numbers, and the parts of an answer take any number too.
    #[test]
    fn no_request_panics(
        setup in any_setup(), prompt in any_count(), cached in any_count(), output in any_count(), batch in any_count(),
    ) {
        let model = setup.model();
        let request = Request::new(prompt, output).with_cached_prompt_tokens(cached).with_batch(batch);
        if let Ok(answer) = model.request(&request) {
            prop_assert!(answer.e2e.is_finite() && answer.e2e > Seconds::ZERO);
            prop_assert!(answer.mfu.is_finite() && answer.mbu.is_none_or(f64::is_finite));
        }
        prop_assert!(model.prefill(&request).total().is_finite());
        prop_assert!(model.itl(&request, output).is_finite());
        prop_assert!(model.explain_prefill(&request).total.is_finite());
        prop_assert!(model.explain_decode(&request, output).total.is_finite());
        prop_assert!(model.decode_step(batch, prompt).total().is_finite());
        prop_assert!(model.memory_plan(batch, prompt).needed().is_finite());
        if !has_chunks(&model) {
            prop_assert!(model.decode_run(batch, prompt, output).total().is_finite());
        }
    }

    #[test]
    fn key_value_heads_are_replicated_when_they_run_out(halvings in 0u32..4, context in 1u64..5000) {
        let kv_heads = 8 >> halvings;
        let on = |tensor_parallel| {
            let setup = Setup { tensor_parallel, ..Setup::new(dense(2, 2048, kv_heads)) };
            MemoryModel::new(&setup.deployment()).kv_per_sequence(context).as_bytes()
        };
        for devices in [1u32, 2, 4, 8] {
            let share = u64::from(devices).min(kv_heads) as f64;
            prop_assert!(close(on(devices), on(1) / share), "{} devices, {} heads", devices, kv_heads);
        }
    }
}

#[test]
fn impossible_requests_are_refused_with_their_numbers() {
    let model = Setup::new(dense(2, 1024, 8)).model();
    let error = |request: Request| model.request(&request).unwrap_err();
    assert_eq!(error(Request::new(0, 1)), RequestError::Zero { what: "prompt tokens" });
    assert_eq!(error(Request::new(1, 0)), RequestError::Zero { what: "output tokens" });
    assert_eq!(error(Request::new(1, 1).with_batch(0)), RequestError::Zero { what: "batch" });
    assert_eq!(
        error(Request::new(100, 1).with_cached_prompt_tokens(100)),
        RequestError::TooManyCached { cached: 100, prompt: 100 }
    );
    assert!(model.request(&Request::new(100, 1).with_cached_prompt_tokens(99)).is_ok());
    assert!(matches!(error(Request::new(1, u64::MAX)), RequestError::TooLarge { value: u64::MAX, .. }));
}

#[test]
fn shapes_that_no_model_has_are_refused_instead_of_dividing_by_zero() {
    let refuses = |change: fn(&mut Architecture)| {
        let mut architecture = dense(2, 1024, 8);
        change(&mut architecture);
        let error = StepModel::compile(&Setup::new(architecture).deployment()).unwrap_err();
        assert!(matches!(error, CompileError::Deployment(DeploymentError::Model(_))), "{error}");
    };
    fn of_attention(architecture: &mut Architecture, change: fn(&mut llm_roofline::model::Attention)) {
        match &mut architecture.layer_kinds[0].layer.mixer {
            Mixer::Attention(attention) => change(attention),
            other => panic!("{other:?}"),
        }
    }
    refuses(|architecture| of_attention(architecture, |attention| attention.kv_heads = 0));
    refuses(|architecture| of_attention(architecture, |attention| attention.head_dim = 1 << 40));
    refuses(|architecture| of_attention(architecture, |attention| attention.reach = Reach::Chunk(0)));
    refuses(|architecture| architecture.hidden_size = 0);
    refuses(|architecture| architecture.layer_order.push(7));
    let mut engine = Engine::ideal();
    engine.gemm.compute = Some(Parameter::assumed(Positive(0.0)));
    let error = StepModel::compile(&Setup::new(dense(2, 1024, 8)).deployment().with_engine(engine)).unwrap_err();
    assert_eq!(error.to_string(), "ideal: key `gemm.compute`: is 0, expected a positive finite number");
    let totals = |bits| Model::from_totals("totals", Totals::dense(7_000_000_000, bits, Bytes::ZERO));
    let system = || Setup::new(dense(2, 1024, 8)).deployment().system().clone();
    assert!(StepModel::compile(&Deployment::new(totals(16.0), system())).is_ok());
    assert!(StepModel::compile(&Deployment::new(totals(f64::NAN), system())).is_err());
    let shrinking = Totals::dense(7_000_000_000, 16.0, Bytes::from_bytes(-1.0));
    let error = StepModel::compile(&Deployment::new(Model::from_totals("totals", shrinking), system())).unwrap_err();
    assert_eq!(error.to_string(), "kv_bytes_per_token is -1.00 B, expected at least 0 B");
}

#[test]
fn contexts_beyond_the_model_need_consent() {
    let setup = Setup::new(dense(2, 1024, 8));
    let limit = setup.architecture.max_context_tokens;
    let (fitting, too_long) = (Request::new(limit - 10, 10), Request::new(limit - 10, 11));
    let model = setup.model();
    assert!(model.request(&fitting).is_ok());
    assert_eq!(model.request(&too_long), Err(RequestError::ContextTooLong { tokens: limit + 1, limit }));
    let model = StepModel::compile(&setup.deployment().with_long_context_allowed()).unwrap();
    assert!(model.request(&too_long).is_ok());
}

/// Llama-3.1-8B (Hugging Face config.json of meta-llama/Llama-3.1-8B): 8,030,261,248 parameters on its model card's safetensors index.
fn llama_3_1_8b() -> Architecture {
    let mixer = Mixer::Attention(attention(32, 8, 128, Reach::Full));
    let layer = layer(mixer, FeedForward::Dense { intermediate: 14336, gated: true }, 2 * 4096);
    Architecture::from_layers(4096, 128_256, 131_072, (0..32).map(|_| ("layer".to_string(), layer.clone())))
}

#[test]
fn what_does_not_fit_is_short_by_exact_numbers() {
    const PARAMS: u64 = 8_030_261_248;
    assert_eq!(llama_3_1_8b().params_total(), PARAMS);
    let setup = Setup { capacity: Bytes::from_gb(24.0), ..Setup::new(llama_3_1_8b()) };
    // Keys and values of 32 layers, 8 heads of 128 elements, 2 bytes each: 128 KiB per token.
    let per_token = (2 * 32 * 8 * 128 * 2) as f64;
    let weights = Bytes::from_bytes(PARAMS as f64 * 2.0);
    let error = setup.model().request(&Request::new(10_000, 1000).with_batch(6)).unwrap_err();
    let RequestError::DoesNotFit(reason) = error else { panic!("{error}") };
    let DoesNotFit { devices, needed, short_by, largest, plan, .. } = *reason;
    let cache = Bytes::from_bytes(6.0 * 11_000.0 * per_token);
    assert_eq!((plan.weights, plan.kv_cache, plan.capacity), (weights, cache, Bytes::from_gb(24.0)));
    assert_eq!((devices, needed, short_by), (1, weights + cache, weights + cache - Bytes::from_gb(24.0)));
    assert_eq!(largest, MemoryPart::Weights);
    let error = setup.model().request(&Request::new(120_000, 1000).with_batch(2)).unwrap_err();
    assert!(matches!(error, RequestError::DoesNotFit(reason) if reason.largest == MemoryPart::KvCache));
    assert!(setup.model().request(&Request::new(10_000, 1000).with_batch(5)).is_ok());
    let two = Setup { tensor_parallel: 2, ..setup };
    assert!(two.model().request(&Request::new(10_000, 1000).with_batch(6)).is_ok());
}

#[test]
fn tensor_parallelism_that_no_engine_could_run_is_refused() {
    let compile = |kv_heads, tensor_parallel| {
        StepModel::compile(&Setup { tensor_parallel, ..Setup::new(dense(2, 12 * 128, kv_heads)) }.deployment())
            .map(|_| ())
    };
    let error = |kv_heads, tensor_parallel| match compile(kv_heads, tensor_parallel).unwrap_err() {
        CompileError::Deployment(error) => error,
        other => panic!("{other}"),
    };
    let layer = || "layer".to_string();
    assert_eq!(error(12, 5), DeploymentError::HeadsDoNotDivide { tensor_parallel: 5, heads: 12, layer: layer() });
    assert_eq!(error(4, 6), DeploymentError::KvHeadsDoNotDivide { tensor_parallel: 6, kv_heads: 4, layer: layer() });
    assert!(compile(3, 6).is_ok());
    let deployment = Setup::new(dense(2, 1024, 8)).deployment();
    let refused = |tensor_parallel| deployment.clone().with_tensor_parallel(tensor_parallel).check().unwrap_err();
    assert_eq!(refused(2), DeploymentError::NotEnoughDevices { tensor_parallel: 2, devices: 1 });
    assert_eq!(refused(0), DeploymentError::NoDevices);
}

/// NVIDIA H100 SXM datasheet: 80 GB, 3.35 TB/s, 989 TFLOP/s dense in bfloat16.
fn on_h100(architecture: Architecture) -> Setup {
    Setup {
        capacity: Bytes::from_gb(80.0),
        bandwidth: BytesPerSecond::from_tb_per_second(3.35),
        peak: FlopsPerSecond::from_tflops_per_second(989.0),
        ..Setup::new(architecture)
    }
}

/// A model of 70 billion parameters without a cache on one card.
fn seventy_billion(bits: f64, bandwidth_gb_per_second: f64, peak_tflops_per_second: f64) -> StepModel {
    let (bandwidth, peak) = (
        BytesPerSecond::from_gb_per_second(bandwidth_gb_per_second),
        FlopsPerSecond::from_tflops_per_second(peak_tflops_per_second),
    );
    let card = Device::from_specs("card", Bytes::from_gb(200.0), bandwidth, peak).unwrap();
    let model = Model::from_totals("70B", Totals::dense(70_000_000_000, bits, Bytes::ZERO));
    StepModel::compile(&Deployment::new(model, System::new(card, 1).unwrap())).unwrap()
}

#[test]
fn thirty_five_gigabytes_at_a_thousand_per_second_take_35_ms_per_token() {
    let answer = answer(&seventy_billion(4.0, 1000.0, 165.0), Request::new(100, 200));
    assert_eq!(answer.tpot.unwrap().to_string(), "35.0 ms");
    assert_eq!(format!("{:.2}", answer.tps_per_stream.unwrap()), "28.57 tok/s");
    assert_eq!(answer.decode_bound(), Bound::Memory);
}

#[test]
fn less_than_30_ms_per_token_is_more_than_33_tokens_per_second() {
    // 35 GB in less than 30 ms need more than 1,167 GB/s.
    for (bandwidth, comfortable) in [(1166.0, false), (1168.0, true)] {
        let answer = answer(&seventy_billion(4.0, bandwidth, 165.0), Request::new(100, 200));
        assert_eq!(answer.tpot.unwrap() < Seconds::from_millis(30.0), comfortable);
        assert_eq!(answer.tps_per_stream.unwrap().as_tokens_per_second() > 33.34, comfortable);
    }
}

#[test]
fn fifty_times_the_prompt_takes_more_than_fifty_times_as_long() {
    let model = on_h100(llama_3_1_8b()).model();
    let (short, long) = (Request::new(2_000, 1), Request::new(100_000, 1));
    let growth = answer(&model, long).ttft / answer(&model, short).ttft;
    assert!(growth > 50.0, "{growth}");
    let share = |request: &Request, class| {
        let explanation = model.explain_prefill(request);
        let operators = explanation.operators.iter().filter(|operator| operator.class == class);
        explanation.share(operators.map(|operator| operator.time).sum())
    };
    // Attention of all pairs against products of 2 operations per weight: 4 * 4096 * 32 * n / 2 operations per token and
    // 13.96e9 (7.0 billion weights of the layers), which is 3.6 % and 65 %.
    let attention = [&short, &long].map(|request| share(request, OperatorClass::PrefillAttention));
    assert!((0.03..0.04).contains(&attention[0]) && (0.6..0.7).contains(&attention[1]), "{attention:?}");
    for class in OperatorClass::ALL {
        if class != OperatorClass::PrefillAttention {
            assert!(share(&long, class) <= share(&short, class), "the share of {class} grew");
        }
    }
    assert_eq!(answer(&model, long).prefill_bound(), Bound::Compute);
}

#[test]
fn a_cached_prompt_starts_an_order_of_magnitude_sooner() {
    let model = on_h100(llama_3_1_8b()).model();
    let request = Request::new(32_000, 1);
    let ratio = answer(&model, request).ttft / answer(&model, request.with_cached_prompt_tokens(31_999)).ttft;
    assert!(ratio > 10.0, "{ratio}");
}

#[test]
fn quantized_weights_speed_up_decode_and_not_prefill() {
    let request = Request::new(4_000, 200);
    let wide = answer(&on_h100(llama_3_1_8b()).model(), request);
    let narrow = answer(&Setup { weights: "awq-int4", ..on_h100(llama_3_1_8b()) }.model(), request);
    assert_eq!((wide.prefill_bound(), wide.decode_bound()), (Bound::Compute, Bound::Memory));
    let speedup = wide.tpot.unwrap() / narrow.tpot.unwrap();
    // 7.0 of 7.5 billion weights that a token reads shrink from 16 to 4.16 bits, the output head and the cache do not.
    assert!(speedup > 2.5 && speedup < 16.0 / 4.15625, "{speedup}");
    assert!((wide.ttft / narrow.ttft - 1.0).abs() < 0.001);
}

#[test]
fn arithmetic_does_not_help_decode_and_bandwidth_does_not_help_a_long_prefill() {
    let request = Request::new(8_000, 200);
    let base = on_h100(llama_3_1_8b());
    let more_arithmetic = Setup { peak: base.peak * 2.0, ..base.clone() };
    let more_bandwidth = Setup { bandwidth: base.bandwidth * 2.0, ..base.clone() };
    let [base, arithmetic, bandwidth] =
        [base, more_arithmetic, more_bandwidth].map(|setup| answer(&setup.model(), request));
    assert_eq!(arithmetic.tpot, base.tpot);
    assert!((base.ttft / arithmetic.ttft - 2.0).abs() < 0.01);
    assert!((base.ttft / bandwidth.ttft - 1.0).abs() < 0.01);
    assert!((base.tpot.unwrap() / bandwidth.tpot.unwrap() - 2.0).abs() < 1e-9);
}

/// "A prompt of 2,000 tokens takes about as long as generating 100": true where one step could take 20 prompt tokens in the time in
/// which it reads the weights. That is a GeForce RTX 3090 with 4-bit weights (936 GB/s, 71 TFLOP/s dense with 32-bit accumulation:
/// NVIDIA GA102 whitepaper), and far from true on an H100 with 16-bit weights, where such a prompt takes as long as 7 tokens.
#[test]
fn two_thousand_prompt_tokens_take_as_long_as_a_hundred_generated_where_twenty_are_critical() {
    let tokens_for_the_prompt = |model: &StepModel| {
        let answer = answer(model, Request::new(2_000, 101));
        answer.ttft / answer.tpot.unwrap()
    };
    let rtx_3090 = tokens_for_the_prompt(&seventy_billion(4.0, 936.0, 71.0));
    assert!((90.0..110.0).contains(&rtx_3090), "{rtx_3090}");
    let h100 = tokens_for_the_prompt(&seventy_billion(16.0, 3350.0, 989.0));
    assert!((6.0..8.0).contains(&h100), "{h100}");
}
