//! Drafters and cycles counted by hand: the matrices of published heads, the passes of a cycle, what engines add.

use llm_roofline::memory::MemoryModel;
use llm_roofline::prelude::*;
use llm_roofline::speculative::{Acceptance, Method, Proposal};

const BYTES_PER_WEIGHT: u64 = 2;

fn target(model: &str, engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h200-sxm-141gb").unwrap(), 1).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system)
        .with_weights("bf16".parse().unwrap())
        .with_engine(catalog.engine(engine).unwrap())
}

fn compile(model: &str, engine: &str, method: Method, proposal: Proposal) -> SpeculativeModel {
    let target = target(model, engine);
    let speculation = Speculation::new(method, &target).unwrap().with_proposal(proposal);
    SpeculativeModel::compile(&target, &speculation).unwrap()
}

/// Weights that a pass of the drafter reads, embedding rows and activations left out: those of its matrix products.
fn weights_read(model: &SpeculativeModel) -> f64 {
    let pass = model.explain_draft_pass(1, 1000).unwrap();
    let products = pass.operators.iter().filter(|operator| operator.class == OperatorClass::Gemm);
    let operations: f64 = products.map(|operator| operator.work.flops.as_flops()).sum();
    operations / 2.0
}

/// Published heads: SpecForge `configs/llama3-8B-eagle3.json` (hidden 4096, intermediate 14336, 32 heads of 128, 8 of keys and values, draft
/// vocabulary 32000); Vicuna-7B of the EAGLE and Medusa papers (hidden 4096, intermediate 11008, 32 heads, vocabulary 32000).
#[test]
fn a_pass_meets_the_matrices_of_published_heads() {
    let chain = Proposal::chain(3).unwrap();
    let (hidden, attention) = (4096.0, 4096.0 * 4096.0);
    let grouped = (4096 + 2 * 1024) as f64;
    let eagle3 = 3.0 * hidden * hidden // three hidden states joined
        + 2.0 * hidden * grouped // queries, keys and values of both inputs
        + attention
        + 3.0 * hidden * 14336.0
        + hidden * 32000.0;
    assert_eq!(weights_read(&compile("llama-3.1-8b", "ideal", Method::Eagle3, chain)), eagle3);
    assert_eq!(eagle3, 424_673_280.0); // 0.4B, as the card of the head says

    let eagle = 2.0 * hidden * hidden + 4.0 * attention + 3.0 * hidden * 11008.0 + hidden * 32000.0;
    assert_eq!(weights_read(&compile("llama-2-7b", "ideal", Method::Eagle, chain)), eagle);
    // Four heads, each a square matrix and an output head.
    let medusa = 4.0 * (hidden * hidden + hidden * 32000.0);
    assert_eq!(weights_read(&compile("llama-2-7b", "ideal", Method::Medusa, chain)), medusa);
    let hydra = 2.0 * hidden * hidden + hidden * hidden + hidden * 32000.0;
    assert_eq!(weights_read(&compile("llama-2-7b", "ideal", Method::Hydra, chain)), hydra);
    // SpecForge `configs/qwen3-8b-dflash.json`: five layers (intermediate 12288, 32 heads of 128, 8 of keys and values) over five joined states.
    let layer = hidden * grouped + attention + 3.0 * hidden * 12288.0;
    let dflash = 5.0 * hidden * hidden + 5.0 * layer + hidden * 151_936.0;
    assert_eq!(weights_read(&compile("qwen3-8b", "ideal", Method::DFlash, chain)), dflash);
}

/// Without a dense layer a head is as wide as what a token passes: 8 experts of 768 in Qwen3-30B-A3B, as in SpecForge `configs/qwen3-30B-eagle3.json`.
#[test]
fn a_head_of_a_mixture_is_as_wide_as_what_a_token_passes() {
    let (hidden, chain) = (2048.0, Proposal::chain(3).unwrap());
    let qkv = 2.0 * hidden * (4096.0 + 2.0 * 512.0);
    let expected = 3.0 * hidden * hidden + qkv + 4096.0 * hidden + 3.0 * hidden * 6144.0 + hidden * 32000.0;
    assert_eq!(weights_read(&compile("qwen3-30b-a3b", "ideal", Method::Eagle3, chain)), expected);
}

/// DeepSeek-V3 (arXiv:2412.19437, section 2.2): the module is one more layer with experts, behind a matrix of 2 x 7168 inputs, with the
/// embedding and the output head of the model, in its format.
#[test]
fn a_prediction_module_is_a_last_layer() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h200-sxm-141gb").unwrap(), 8).unwrap();
    let target = Deployment::new(catalog.model("deepseek-v3").unwrap(), system);
    let speculation = Speculation::new(Method::Mtp, &target).unwrap();
    let drafter = speculation.drafter().unwrap();
    assert_eq!(drafter.weights(), target.weights());
    let (module, model) = (drafter.model().architecture().unwrap(), target.model().architecture().unwrap());
    assert_eq!((module.layers(), module.vocab_size), (1, model.vocab_size));
    assert_eq!(module.iter_layers().next(), model.iter_layers().last());
    assert_eq!(module.global_linears.iter().map(|join| join.params()).sum::<u64>(), 2 * 7168 * 7168);
    // What memory holds beside the target: the layer and the joining matrix, not the tables.
    let memory = MemoryModel::with_drafter(&target, 1, speculation.drafting());
    let alone = StepModel::compile(drafter).unwrap().weight_bytes_per_device();
    let table = (129_280 * 7168 * BYTES_PER_WEIGHT) as f64 / 8.0;
    let shared = (alone - memory.drafter_weights()).as_bytes();
    assert!((shared / (2.0 * table) - 1.0).abs() < 1e-6, "{shared} for {table}");
}

/// Tables that a head shares with its target are not held twice: EAGLE both, EAGLE-3 the embeddings, Medusa none.
#[test]
fn shared_tables_are_held_once() {
    let target = target("llama-3.1-8b", "ideal");
    let shared = |method| {
        let speculation = Speculation::new(method, &target).unwrap();
        let drafting = speculation.drafting().unwrap();
        (drafting.shared_embedding, drafting.shared_lm_head)
    };
    assert_eq!([Method::Eagle, Method::DFlash, Method::Mtp].map(shared), [(true, true); 3]);
    assert_eq!([Method::Eagle3, Method::Hydra].map(shared), [(true, false); 2]);
    assert_eq!(shared(Method::Medusa), (false, false));
}

/// The first pass is over the tokens that were accepted last, the others over one row, or the best candidates of a tree.
#[test]
fn a_cycle_has_the_passes_of_its_method() {
    let chain = |tokens| Proposal::chain(tokens).unwrap();
    let draft = |method, proposal| compile("llama-3.1-8b", "ideal", method, proposal).cycle(4, 1000).draft;
    let pass = |model: &SpeculativeModel, rows, cached| {
        let drafter = model.drafter().unwrap();
        let mut load = drafter.load();
        load.add_decode(cached, rows, 4.0);
        drafter.cost(&load).total()
    };
    let close = |a: Seconds, b: Seconds| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    let eagle3 = compile("llama-3.1-8b", "ideal", Method::Eagle3, chain(5));
    // Contexts of the four further passes are 1001 to 1004, 1002 in the middle.
    close(draft(Method::Eagle3, chain(5)), pass(&eagle3, 6, 1000) + pass(&eagle3, 1, 1002) * 4.0);
    let tree = Proposal::tree(3, 5, 12).unwrap();
    close(draft(Method::Eagle3, tree), pass(&eagle3, 6, 1000) + pass(&eagle3, 3, 1002) * 4.0);
    close(draft(Method::Medusa, tree), pass(&compile("llama-3.1-8b", "ideal", Method::Medusa, tree), 1, 1000));
    let hydra = compile("llama-3.1-8b", "ideal", Method::Hydra, chain(4));
    close(draft(Method::Hydra, chain(4)), pass(&hydra, 1, 1000) * 4.0);
    // A block of seven guesses behind the last token, in one pass.
    close(draft(Method::DFlash, chain(7)), pass(&compile("llama-3.1-8b", "ideal", Method::DFlash, chain(7)), 8, 1000));
    assert_eq!(draft(Method::NGram, chain(5)), Seconds::ZERO);
}

/// What an engine adds is what its profile says, and a pass takes `draft_pass` in place of the host's time of a step.
#[test]
fn engines_add_what_their_profiles_say() {
    let (chain, tree) = (Proposal::chain(3).unwrap(), Proposal::tree(4, 3, 8).unwrap());
    for (engine, model, recurrent) in [
        ("sglang-2026", "llama-3.1-8b", 0.0),
        ("sglang-2026", "qwen3-next-80b-a3b", 36.0),
        ("vllm-2026", "qwen3-next-80b-a3b", 36.0),
        ("transformers", "llama-3.1-8b", 0.0),
        ("llama-cpp-cuda-2026", "llama-3.1-8b", 0.0),
    ] {
        let profile = Catalog::embedded().engine(engine).unwrap();
        let law = |name: &str| profile.parameter(&format!("speculation.{name}")).unwrap_or(0.0);
        for (proposal, branches) in [(chain, 0.0), (tree, 1.0)] {
            let model = compile(model, engine, Method::Eagle3, proposal);
            let cycle = model.cycle(2, 1000);
            let expected = law("cycle") + branches * law("tree") + recurrent * law("take_back");
            assert!((cycle.overhead.as_seconds() - expected).abs() < 1e-12, "{engine}: {}", cycle.overhead);
            let drafter = model.drafter().unwrap();
            let mut first = drafter.load();
            first.add_decode(1000, 4, 2.0);
            let mut further = drafter.load();
            further.add_decode(1001, proposal.top_k(), 2.0);
            let pass = |load| {
                let cost = drafter.cost(load);
                match profile.parameter("speculation.draft_pass") {
                    Some(around) => cost.total() - cost.time(OperatorClass::Overhead) + Seconds::from_seconds(around),
                    None => cost.total(),
                }
            };
            let expected = pass(&first) + pass(&further) * 2.0;
            assert!((cycle.draft / expected - 1.0).abs() < 1e-9, "{engine}: {} {expected}", cycle.draft);
        }
    }
}

/// A closed loop: while one prompt is processed all sequences wait, so each request is delayed by as many prompts as are in flight.
#[test]
fn prompts_of_a_closed_loop_delay_everybody() {
    let model = compile("llama-3.1-8b", "vllm-2026", Method::Eagle3, Proposal::chain(3).unwrap());
    let model = model.with_acceptance(Acceptance::rate(0.7).unwrap());
    let (batch, request) = (8, Request::new(2000, 200).with_batch(8));
    let prompt = |model: &StepModel| model.prefill(&Request::new(2000, 1)).total() * batch as f64;
    let plain = prompt(model.target()) + model.target().decode_run(batch, 2000, 199).total();
    let cycles: Seconds = (0..199).map(|position| model.cycle(batch, 2000 + position).total()).sum();
    let with = prompt(model.target()) + prompt(model.drafter().unwrap()) + cycles / model.tokens_per_step();
    assert!((model.closed_loop_speedup(&request).expected / (plain / with) - 1.0).abs() < 1e-9);
    // Prompts gain nothing: the whole is less than decoding alone.
    assert!(model.closed_loop_speedup(&request).expected < model.speedup(batch, 2100));
}

/// Memory of a request: the head and its cache beside the target, and a state more for each proposal (Qwen3-Next, 36 recurrent layers).
#[test]
fn proposals_take_memory() {
    let request = Request::new(1000, 200);
    let dense = compile("llama-3.1-8b", "ideal", Method::Eagle3, Proposal::chain(3).unwrap());
    let answer = dense.request(&request).unwrap();
    // 424,689,664 parameters in 16 bits, the shared embeddings left out; one more layer of 8 heads of 128, keys and values.
    assert_eq!(answer.memory.drafter_weights.as_bytes(), 849_379_328.0);
    let cache = (answer.memory.kv_cache - answer.plain.memory.kv_cache).as_bytes();
    assert!(cache >= (1200 * 2 * 8 * 128 * BYTES_PER_WEIGHT) as f64, "{cache}");

    let state = |proposed: u64| {
        let model = compile("qwen3-next-80b-a3b", "vllm-2026", Method::NGram, Proposal::chain(proposed).unwrap());
        model.memory().state_per_sequence()
    };
    let steps = [state(2) - state(1), state(3) - state(2)];
    assert!(steps[0] > Bytes::ZERO && (steps[0] / steps[1] - 1.0).abs() < 0.2, "{steps:?}");
}

/// Whoever names no engine for a draft model does not get the ideal one: the engine of the target runs it.
#[test]
fn a_draft_model_runs_under_the_engine_of_its_target() {
    let target = target("llama-3.1-70b", "vllm-2026").with_weights("fp8".parse().unwrap());
    let catalog = Catalog::embedded();
    let draft = Deployment::new(catalog.model("llama-3.2-1b").unwrap(), target.system().clone());
    let cycle = |draft: Deployment| {
        let speculation = Speculation::draft_model(draft).with_draft_tokens(4).unwrap();
        SpeculativeModel::compile(&target, &speculation).unwrap().cycle(1, 1000)
    };
    let same = cycle(draft.clone().with_engine(catalog.engine("vllm-2026").unwrap()));
    assert_eq!(cycle(draft), same);
}
