//! Speculative decoding in the simulation against the closed form.
#![cfg(feature = "random")]

use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{EngineSettings, Simulation};
use llm_roofline::speculative::{Method, Speculation, SpeculativeModel};
use llm_roofline::workload::{Lengths, Workload};

fn model(engine: &str, rate: f64) -> SpeculativeModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let target =
        Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system).with_engine(catalog.engine(engine).unwrap());
    let speculation = Speculation::new(Method::Eagle3, &target).unwrap();
    let speculation = speculation.with_draft_tokens(3).unwrap().with_acceptance_rate(rate).unwrap();
    SpeculativeModel::compile(&target, &speculation).unwrap()
}

/// A request that is alone: its mean time per token is that of a cycle over the tokens that it yields, which the closed form takes as well.
#[test]
fn one_request_at_a_time_agrees_with_the_closed_form() {
    for rate in [0.0, 0.5, 0.8, 1.0] {
        let model = model("sglang-2026", rate);
        let (prompt, output) = (600, 400);
        let clients = Workload::closed_loop(1, Lengths::fixed(prompt, output).unwrap()).unwrap();
        let outcome = Simulation::speculating(&model).with_seed(3).run(&clients, 400).unwrap();
        let tpot = outcome.statistics.tpot.unwrap().mean;
        let cycle = model.cycle(1, prompt + output / 2).total();
        let expected = cycle / model.tokens_per_step();
        // The last cycle yields no more than what is left.
        let bound = 0.01 + tpot.relative().unwrap_or(0.0) * 2.0;
        let off = tpot.value / expected - 1.0;
        assert!(
            off.abs() < bound,
            "rate {rate}: {} simulated, {expected} expected ({:+.1} %)",
            tpot.value,
            100.0 * off
        );
    }
}

#[test]
fn every_token_is_emitted_once_even_where_the_cache_is_full() {
    for (engine, blocks) in [("sglang-2026", 6_000), ("vllm-2026", 400), ("tensorrt-llm-2026", 400)] {
        let model = model(engine, 0.7);
        let lengths = Lengths::pairs((1..400).map(|n| (1 + n * 37 % 900, 1 + n * 61 % 300)).collect()).unwrap();
        let workload = Workload::poisson("20 req/s".parse().unwrap(), lengths).unwrap();
        let mut settings = EngineSettings::default();
        settings.kv_blocks = Some(blocks);
        let simulation = Simulation::speculating(&model).with_settings(settings).keep_requests();
        let outcome = simulation.run(&workload, 2_000).unwrap();
        let requests = outcome.statistics.requests.as_ref().unwrap();
        assert_eq!((outcome.completed, requests.len()), (2_000, 2_000), "{engine}");
        let tokens: u64 = requests.iter().map(|request| request.output_tokens).sum();
        assert_eq!(outcome.output_tokens, tokens, "{engine}");
        assert!(requests.iter().all(|request| request.first_token <= request.last_token), "{engine}");
        assert_eq!(simulation.run(&workload, 2_000).unwrap(), outcome, "{engine}: the same seed");
        assert_ne!(simulation.with_seed(9).run(&workload, 2_000).unwrap(), outcome, "{engine}: another seed");
    }
}

#[test]
fn static_batches_are_refused() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let target = Deployment::new(catalog.model("llama-3.1-8b").unwrap(), system)
        .with_engine(catalog.engine("transformers").unwrap());
    let speculation = Speculation::new(Method::Eagle3, &target).unwrap().with_acceptance_rate(0.5).unwrap();
    let model = SpeculativeModel::compile(&target, &speculation).unwrap();
    let workload = Workload::poisson("1 req/s".parse().unwrap(), Lengths::fixed(100, 10).unwrap()).unwrap();
    let error = Simulation::speculating(&model).run(&workload, 10).unwrap_err();
    assert!(error.to_string().contains("static batches"), "{error}");
}
