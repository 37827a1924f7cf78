//! Elasticities, diagnoses and levers: laws that they obey, and numbers that follow from data sheets by hand.

mod common;
#[path = "common/served.rs"]
mod served;

use common::*;
use llm_roofline::deployment::SpecError;
use llm_roofline::format::NumberFormat;
use llm_roofline::memory::MemoryModel;
use llm_roofline::planner::*;
use llm_roofline::prelude::*;
use llm_roofline::serving::{Limit, Statistic, Target};
use llm_roofline::workload::Slo;
use proptest::prelude::*;
use served::deployment;

fn question(model: &str, device: &str, count: u32, weights: &str, engine: &str) -> Question {
    Question::new(deployment(model, device, count, weights, engine), 1500, 250).unwrap()
}

fn tpot_within(limit_ms: f64) -> Target {
    Target::at(&Slo::default().with_tpot(Seconds::from_millis(limit_ms)), Statistic::P90).unwrap()
}

const CASES: [(&str, &str, u32, &str); 7] = [
    ("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16"),
    ("llama-3.1-8b", "l4-24gb", 1, "fp8"),
    ("qwen3-8b", "rtx-4090-24gb", 1, "awq-int4"),
    ("llama-3.1-70b", "h200-sxm-141gb", 4, "fp8"),
    ("llama-3.1-70b", "l40s-48gb", 4, "fp8"),
    ("mixtral-8x7b", "a100-sxm-80gb", 2, "bf16"),
    ("deepseek-v3", "h200-sxm-141gb", 8, "fp8"),
];
const ENGINES: [&str; 4] = ["ideal", "vllm-2026", "sglang-2026", "tensorrt-llm-2025"];

fn every_question() -> Vec<(String, Question)> {
    let all = CASES.into_iter().flat_map(|(model, device, count, weights)| {
        ENGINES.map(|engine| {
            let what = format!("{model} on {count} x {device} under {engine}");
            (what, question(model, device, count, weights, engine))
        })
    });
    all.collect()
}

#[test]
fn elasticities_of_unloaded_latencies_add_up() {
    for (what, question) in every_question() {
        let sensitivity = question.sensitivity().unwrap();
        for measure in [Measure::Ttft, Measure::Tpot, Measure::E2e] {
            let of = |spec: Spec| sensitivity.of(spec).unwrap().elasticity(measure).unwrap();
            let resources = Spec::resources(question.deployment());
            let sum: f64 = resources.into_iter().map(|spec| if spec.is_cost() { -of(spec) } else { of(spec) }).sum();
            assert!((sum + 1.0).abs() < 1e-11, "{what}, {measure}: {sum}");
        }
    }
}

#[test]
fn elasticities_of_unloaded_latencies_are_those_of_recompiled_deployments() {
    for (what, question) in every_question() {
        let sensitivity = question.sensitivity().unwrap();
        for effect in &sensitivity.effects {
            for measure in [Measure::Ttft, Measure::Tpot, Measure::E2e] {
                let at = |factor| {
                    let changed = question.with_spec_times(effect.spec, factor).unwrap().measure().unwrap();
                    changed.number(measure).unwrap().ln()
                };
                let difference = (at(1.0001) - at(1.0 / 1.0001)) / (2.0 * 1.0001_f64.ln());
                let exact = effect.elasticity(measure).unwrap();
                assert!((exact - difference).abs() < 1e-5, "{what}, {}, {measure}: {exact} {difference}", effect.spec);
            }
        }
    }
}

/// Holds for every engine: no law of a profile is worse on a better device, a single format's peak under a power limit aside
/// (`sustained_tflops_per_watt` is in 16-bit operations, so that more of these alone make a watt worth fewer of the others).
#[test]
fn twice_as_good_is_never_worse_alone() {
    for (what, question) in every_question() {
        let sensitivity = question.sensitivity().unwrap();
        for effect in sensitivity.effects.iter().filter(|effect| !matches!(effect.spec, Spec::Compute(_))) {
            for measure in [Measure::Ttft, Measure::Tpot] {
                let gain = sensitivity.gain_of_doubling(effect.spec, measure).unwrap();
                assert!((1.0 - 1e-9..=2.0 + 1e-9).contains(&gain), "{what}, {}, {measure}: {gain}", effect.spec);
            }
        }
    }
}

/// The exception above: on an L4, whose 72 W sustain less than its peaks, 8-bit products slow down when the 16-bit peak alone is said to be higher.
#[test]
fn a_power_limit_is_counted_in_operations_of_16_bits() {
    let sensitivity = question("llama-3.1-8b", "l4-24gb", 1, "fp8", "vllm-2026").sensitivity().unwrap();
    let of = |spec| sensitivity.of(spec).unwrap().elasticity(Measure::Ttft).unwrap();
    assert!(of(Spec::Compute(NumberFormat::Bf16)) > 0.1);
    assert!(of(Spec::Compute(NumberFormat::Fp8)) < -0.1);
    assert!(of(Spec::Power) < -0.5 && of(Spec::ComputeAll) > -0.2);
}

#[test]
fn costs_follow_rates_and_the_price() {
    let two_dollars = UsdPerHour::from_usd_per_hour(2.0);
    let question = question("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026").with_price(two_dollars).unwrap();
    let sensitivity = question.clone().with_target(tpot_within(30.0)).sensitivity().unwrap();
    for effect in &sensitivity.effects {
        let of = |measure| effect.elasticity(measure).unwrap();
        let expected = if effect.spec == Spec::Price { 1.0 } else { -of(Measure::RateUnder) };
        assert!((of(Measure::CostPerMillionOutputTokens) - expected).abs() < 1e-9, "{}", effect.spec);
        assert!((of(Measure::CostPerRequest) - expected).abs() < 1e-9, "{}", effect.spec);
    }
    // By hand: dollars per hour over tokens per hour.
    let base = sensitivity.base;
    let tokens_per_hour = base.rate_under.unwrap().as_requests_per_second() * 250.0 * 3600.0;
    let cost = base.usd_per_million_output_tokens.unwrap().as_usd_per_million_tokens();
    assert!((cost / (2.0 / tokens_per_hour * 1e6) - 1.0).abs() < 1e-12);
    // A tighter limit answers less, at more cost.
    let tight = question.with_target(tpot_within(15.0)).measure().unwrap();
    assert!(tight.rate_under.unwrap() < base.rate_under.unwrap());
    assert!(tight.gain_over(&base, Measure::CostPerMillionOutputTokens).unwrap() < 1.0);
}

/// NVIDIA H100 and H200 data sheets (SXM): the same arithmetic and links, 3.35 against 4.8 TB/s.
#[test]
fn an_h100_with_the_bandwidth_of_an_h200_is_one() {
    let [h100, h200] =
        ["h100-sxm-80gb", "h200-sxm-141gb"].map(|device| question("llama-3.1-8b", device, 1, "bf16", "vllm-2026"));
    let faster = h100.with_spec_times(Spec::MemoryBandwidth, 4.8 / 3.35).unwrap().measure().unwrap();
    let h200 = h200.measure().unwrap();
    for measure in [Measure::Ttft, Measure::Tpot] {
        let same = faster.gain_over(&h200, measure).unwrap();
        assert!((same - 1.0).abs() < 1e-9, "{measure}: {same}");
    }
}

/// What is left beside weights `W` holds sequences: `n = (C - W) / bytes`, so that `d ln n / d ln C = C / (C - W)`.
#[test]
fn memory_beside_the_weights_holds_sequences() {
    // 512 MiB of cache per sequence of 4,096 tokens: 32 layers, 8 heads, 128 elements of 2 bytes, keys and values (Llama 3, arXiv 2407.21783, table 3).
    let question = Question::new(deployment("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "ideal"), 3840, 256).unwrap();
    let device = question.deployment().system().device().clone();
    let (usable, weights) = (device.usable_memory().as_bytes(), 2.0 * 8.03e9);
    let sensitivity = question.sensitivity().unwrap();
    let sequences = sensitivity.base.concurrency.unwrap();
    assert!((sequences - (usable - weights) / (512.0 * 1024.0 * 1024.0)).abs() < 2.0);
    let elasticity = sensitivity.of(Spec::MemoryCapacity).unwrap().elasticity(Measure::Concurrency).unwrap();
    assert!((elasticity / (usable / (usable - weights)) - 1.0).abs() < 0.1, "{elasticity}");
    // Nothing else makes room.
    let others = sensitivity.effects.iter().filter(|effect| effect.spec != Spec::MemoryCapacity);
    others.for_each(|effect| assert_eq!(effect.elasticity(Measure::Concurrency), Some(0.0), "{}", effect.spec));
}

#[test]
fn specs_are_those_of_the_deployment() {
    let one = deployment("llama-3.1-8b", "a100-sxm-80gb", 1, "bf16", "ideal");
    for absent in [Spec::ScaleUp, Spec::ScaleOut, Spec::HostLink, Spec::Overhead, Spec::HostProcessor, Spec::Storage] {
        assert!(!Spec::all(&one).contains(&absent));
        assert_eq!(absent.times(2.0, &one).unwrap_err(), SpecError::Absent { spec: absent });
    }
    let eight = deployment("llama-3.1-8b", "a100-sxm-80gb", 8, "bf16", "vllm-2026");
    for present in [Spec::ScaleUp, Spec::Overhead, Spec::Power, Spec::Price] {
        assert!(Spec::all(&eight).contains(&present));
    }
    for spec in Spec::all(&eight) {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(spec.times(factor, &eight), Err(SpecError::Factor { .. })), "{spec} times {factor}");
        }
        // Times a factor and over it again is what it was.
        let there_and_back = spec.times(0.5, &spec.times(2.0, &eight).unwrap()).unwrap();
        let step = |deployment| StepModel::compile(deployment).unwrap().decode_step(8, 1000).total();
        assert!(close(step(&there_and_back).as_seconds(), step(&eight).as_seconds()), "{spec}");
        // Layout and everything that is not asked for stay.
        let doubled = spec.times(2.0, &eight).unwrap();
        assert_eq!((doubled.system().count(), doubled.tensor_parallel()), (8, 8));
        assert_eq!(doubled.system().devices_per_node(), eight.system().devices_per_node());
    }
    let doubled = Spec::MemoryCapacity.times(2.0, &eight).unwrap();
    let usable = |deployment: &Deployment| deployment.system().device().usable_memory();
    assert_eq!(usable(&doubled) / usable(&eight), 2.0);
    let network = eight.with_system(
        System::new(Catalog::embedded().device("a100-sxm-80gb").unwrap(), 8)
            .unwrap()
            .with_scale_out(BytesPerSecond::from_gb_per_second(25.0))
            .unwrap(),
    );
    let faster = Spec::ScaleOut.times(2.0, &network).unwrap();
    assert_eq!(faster.system().scale_out_link().bandwidth.as_gb_per_second(), 50.0);
    // Other numbers keep what was set.
    let other = Spec::MemoryBandwidth.times(2.0, &network).unwrap();
    assert_eq!(other.system().scale_out_link().bandwidth.as_gb_per_second(), 25.0);
}

#[test]
fn impossible_questions_are_errors() {
    let fits = || deployment("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026");
    assert!(matches!(Question::new(fits(), 0, 10), Err(PlannerError::Workload(_))));
    let question = Question::new(fits(), 1000, 100).unwrap();
    for price in [-1.0, f64::NAN, f64::INFINITY] {
        let price = UsdPerHour::from_usd_per_hour(price);
        assert!(matches!(question.clone().with_price(price), Err(PlannerError::Number { .. })));
    }
    assert!(matches!(question.clone().with_cached_share(1.5), Err(PlannerError::Number { .. })));
    let large = Question::new(deployment("llama-3.1-70b", "l4-24gb", 1, "bf16", "vllm-2026"), 1000, 100).unwrap();
    assert!(matches!(large.measure(), Err(PlannerError::Request(_))));
    assert!(large.diagnose().is_err() && large.levers().is_err());
}

#[test]
fn a_phase_is_bound_by_what_the_textbook_says() {
    let diagnosis = question("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "ideal").diagnose().unwrap();
    let bound = |phase| diagnosis.phase(phase).unwrap().bound;
    assert_eq!((bound(Phase::Prefill), bound(Phase::DecodeAlone)), (Bound::Compute, Bound::Memory));
    for phase in &diagnosis.phases {
        let sum: f64 = phase.bounds.iter().map(|(_, share)| share).sum();
        assert!(close(sum, 1.0), "{}", phase.phase);
        assert!(close((phase.resources.total() / phase.time).recip(), 1.0));
    }
    // Alone, an answer is nothing but reading: twice the bandwidth is twice as fast.
    let best = &diagnosis.doublings[0];
    assert_eq!(best.spec, Spec::MemoryBandwidth);
    assert!((best.gain(Measure::Tpot).unwrap() - 2.0).abs() < 1e-9);
    let gains: Vec<f64> = diagnosis.doublings.iter().map(|doubling| doubling.gain(diagnosis.main).unwrap()).collect();
    assert!(gains.is_sorted_by(|a, b| a >= &(b - 1e-3)));
    // Answers of one token have no decode phase.
    let short = question("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "ideal").with_lengths(1000, 1).unwrap();
    assert_eq!(short.diagnose().unwrap().phases.len(), 1);
}

#[test]
fn memory_is_wanted_where_the_cache_ends_the_load() {
    // 24 GB hold the weights in 16 bits and a few sequences.
    let tight = question("llama-3.1-8b", "l4-24gb", 1, "bf16", "vllm-2026");
    let diagnosis = tight.diagnose().unwrap();
    assert_eq!(diagnosis.limit, Limit::Cache);
    assert!(diagnosis.wants_memory() && diagnosis.text().contains("is what limits them"));
    let doubling = diagnosis.doublings.iter().find(|doubling| doubling.spec == Spec::MemoryCapacity).unwrap();
    assert!(doubling.gain(Measure::MaxRate).unwrap() > 1.2);
    // A limit on the pace ends the load before.
    let paced = tight.with_target(tpot_within(75.0)).diagnose().unwrap();
    assert!(!paced.wants_memory() && paced.text().contains("more memory would not help"));
    // Nor is the reason memory where the engine runs no more anyway.
    let roomy = deployment("llama-3.1-8b", "h200-sxm-141gb", 1, "bf16", "vllm-2026").with_max_sequences(4);
    let diagnosis = Question::new(roomy, 500, 100).unwrap().diagnose().unwrap();
    assert_eq!((diagnosis.limit, diagnosis.slots), (Limit::Sequences, 4));
    assert!(!diagnosis.wants_memory());
}

fn lever(levers: &Levers, change: &LeverChange) -> Lever {
    levers.levers.iter().find(|lever| lever.change == *change).cloned().unwrap()
}

#[test]
fn levers_are_applied_and_ranked() {
    let two_dollars = UsdPerHour::from_usd_per_hour(2.0);
    let question = question("llama-3.1-8b", "h100-sxm-80gb", 1, "bf16", "vllm-2026");
    let question = question.with_price(two_dollars).unwrap().with_target(tpot_within(30.0));
    let levers = question.levers().unwrap();
    assert_eq!(levers.measure, Measure::CostPerMillionOutputTokens);
    assert_eq!(levers, question.levers().unwrap()); // the same again
    let gains: Vec<f64> = levers.levers.iter().filter_map(|lever| lever.gain).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b) && gains.len() > 5);
    // What is refused stands at the end, with a reason.
    let first_refused = levers.levers.iter().position(|lever| lever.gain.is_none()).unwrap();
    assert!(levers.levers[first_refused..].iter().all(|lever| lever.gain.is_none() && !lever.note.is_empty()));

    let fp8 = lever(&levers, &LeverChange::Weights("fp8".parse().unwrap()));
    let by_hand = question.clone().with_deployment(question.deployment().clone().with_weights("fp8".parse().unwrap()));
    assert_eq!(fp8.after, Some(by_hand.measure().unwrap()));
    // Answers of other lengths are compared by the request.
    let shorter = lever(&levers, &LeverChange::ShorterAnswers { tokens: 188 });
    assert_eq!(shorter.measure, Measure::CostPerRequest);
    // Three quarters of the tokens save at most a quarter of the cost.
    assert!((1.05..=1.0 / 0.75).contains(&shorter.gain.unwrap()));
    // Twice the devices: the price of two, and not twice the rate.
    let wider = lever(&levers, &LeverChange::TensorParallel { degree: 2 });
    assert_eq!(wider.after.unwrap().devices, 2);
    assert!(wider.gain.unwrap() < 1.0);
    let apart = lever(&levers, &LeverChange::SplitPhases);
    assert_eq!((apart.before.unwrap().devices, apart.after.unwrap().devices), (2, 2));
    // More of a prompt in the cache saves more.
    let cached = |share| lever(&levers, &LeverChange::CachedPrompts { share }).gain.unwrap();
    assert!(1.0 < cached(0.5) && cached(0.5) < cached(0.9));
    // Of a load only the pace of as many sequences is known, which gain less than one that is alone.
    let speculation = &lever(&levers, &LeverChange::Speculation).note;
    let factors: Vec<f64> = speculation.split(' ').filter_map(|word| word.strip_suffix('x')?.parse().ok()).collect();
    assert!(factors.len() == 2 && factors[1] < factors[0] && factors[0] > 1.0, "{speculation}");
    let alone = question.levers_for(Measure::E2e).unwrap();
    assert!(lever(&alone, &LeverChange::Speculation).gain.unwrap() > 1.2);
    assert!(lever(&alone, &LeverChange::SplitPhases).note.contains("needs a load"));
}

#[test]
fn levers_that_are_refused_say_why() {
    // All places are taken by the cache: a higher limit of sequences is no use.
    let tight = question("llama-3.1-8b", "l4-24gb", 1, "bf16", "vllm-2026");
    let slots = tight.diagnose().unwrap().slots;
    let more = lever(&tight.levers().unwrap(), &LeverChange::Sequences { at_once: 2 * slots });
    assert_eq!((more.after, more.note), (None, format!("the cache is full with {slots}")));
    // Nine heads are not cut in two.
    let architecture = dense(4, 9 * 128, 9);
    let odd = Question::new(Setup::new(architecture).deployment(), 100, 10).unwrap();
    let wider = lever(&odd.levers().unwrap(), &LeverChange::TensorParallel { degree: 2 });
    assert!(wider.after.is_none() && wider.note.contains('9'), "{}", wider.note);
}

#[test]
fn levers_may_make_limits_possible() {
    // 16 GB at 300 GB/s are 54 ms per token (NVIDIA L4 data sheet); half of the bytes are not.
    let question = question("llama-3.1-8b", "l4-24gb", 1, "bf16", "vllm-2026").with_target(tpot_within(50.0));
    let question = question.with_price(UsdPerHour::from_usd_per_hour(0.5)).unwrap();
    assert_eq!(question.main_measure().unwrap(), Measure::Tpot); // what the limits break on
    assert_eq!(question.measure().unwrap().rate_under, None);
    let fp8 = LeverChange::Weights("fp8".parse().unwrap());
    assert_eq!(lever(&question.levers().unwrap(), &fp8).note, "meets the limits");
    let by_cost = question.levers_for(Measure::CostPerMillionOutputTokens).unwrap();
    let possible = lever(&by_cost, &fp8);
    assert!(possible.makes_possible() && possible.gain.is_none());
    assert!(by_cost.levers[0].makes_possible()); // before everything else
}

#[test]
fn answers_are_text_and_json() {
    let question = question("mixtral-8x7b", "h100-sxm-80gb", 2, "bf16", "vllm-2026").with_batch(16);
    let question = question.with_price(UsdPerHour::from_usd_per_hour(2.5)).unwrap().with_target(tpot_within(40.0));
    let (diagnosis, levers) = (question.diagnose().unwrap(), question.levers().unwrap());
    let text = format!("{diagnosis}\n{}\n{levers}", diagnosis.sensitivity);
    text.lines().for_each(|line| assert!(line.chars().count() <= 100, "{line}"));
    assert!(!text.contains("NaN") && !text.contains("inf"));
    let json = serde_json::to_value(&diagnosis).unwrap();
    assert_eq!(json["phases"][0]["phase"], "prefill");
    assert_eq!(json["sensitivity"]["effects"][0]["spec"], "memory_bandwidth");
    assert!(serde_json::to_string(&levers).unwrap().contains("weights in fp8"));
}

proptest! {
    #![proptest_config(cases(24, "tests/planner_sensitivity.proptest-regressions"))]

    #[test]
    fn better_numbers_are_never_worse(setup in any_setup(), prompt in 1u64..3000, output in 2u64..400) {
        let question = Question::new(setup.deployment().with_long_context_allowed(), prompt, output).unwrap();
        let sensitivity = question.sensitivity().unwrap();
        for effect in &sensitivity.effects {
            for measure in [Measure::Ttft, Measure::Tpot, Measure::E2e] {
                for better in [effect.tenth_better, effect.twice_as_good] {
                    let gain = better.unwrap().gain_over(&sensitivity.base, measure).unwrap();
                    prop_assert!((1.0 - 1e-9..=2.0 + 1e-9).contains(&gain), "{}, {measure}: {gain}", effect.spec);
                }
            }
        }
        // Room depends on nothing but the memory.
        let room = MemoryModel::new(question.deployment()).max_sequences(prompt + output);
        prop_assert_eq!(sensitivity.base.concurrency, room.map(|sequences| sequences as f64));
    }
}
