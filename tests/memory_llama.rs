//! Memory of llama.cpp, MLX and ExLlama against what they print and what was measured.

#[path = "common/table.rs"]
mod table;

use llm_roofline::deployment::{Host, Offload};
use llm_roofline::engine::Engine;
use llm_roofline::memory::{Location, MemoryModel, MemoryPlan};
use llm_roofline::prelude::*;
use llm_roofline::profile::Sourced;
use std::sync::Arc;
use table::Row;

const LOGS: &str = include_str!("data/memory_llama.csv");

fn rows() -> Vec<Row> {
    table::rows(LOGS)
}

fn deployment(row: &Row) -> Deployment {
    let catalog = Catalog::embedded();
    let engine = engine(catalog, row);
    let on_processor = row.text("engine").contains("-cpu-");
    let named = row.text("set").strip_prefix("device=");
    let device = catalog.device(named.unwrap_or(if on_processor { "epyc-9654" } else { "h200-sxm-141gb" })).unwrap();
    let one = System::new(device.clone(), 1).unwrap();
    let deployment = Deployment::new(catalog.model(row.text("model")).unwrap(), one)
        .with_weights(row.text("weights").parse().unwrap())
        .with_kv(row.text("kv").parse().unwrap())
        .with_engine(engine)
        .with_flash_attention(row.text("flash_attention") == "on")
        .with_max_tokens_per_step(row.number("ub"))
        .with_long_context_allowed();
    let host = || Host::new(catalog.device("epyc-9654").unwrap(), catalog.engine("llama-cpp-cpu-2024").unwrap());
    match row.text("split") {
        "moe" => deployment.with_host(host()).with_offload(Offload::Experts { layers: 1000 }),
        split if split.starts_with("ngl:") => {
            let on_device = split.trim_start_matches("ngl:").parse().unwrap();
            deployment.with_host(host()).with_offload(Offload::Layers { on_device })
        }
        split if split.contains(':') => {
            let shares: Vec<f64> = split.split(':').map(|share| share.parse().unwrap()).collect();
            deployment.with_unequal_devices(vec![device; shares.len()]).with_layer_split(shares)
        }
        split => {
            let count = split.parse().unwrap();
            deployment.with_system(System::new(device, count).unwrap()).with_pipeline_parallel(count)
        }
    }
}

fn engine(catalog: &Catalog, row: &Row) -> Arc<Engine> {
    let engine = catalog.engine(row.text("engine")).unwrap();
    match row.text("set") {
        set if set.is_empty() || set.starts_with("device=") => engine,
        "copies=0" => {
            let mut engine = Engine::clone(&engine);
            engine.memory.pipeline_copies = Some(Sourced::assumed(0));
            Arc::new(engine)
        }
        other => panic!("set is `{other}`"),
    }
}

/// The plan of the place that a row is about.
fn plan(row: &Row) -> MemoryPlan {
    let model = MemoryModel::new(&deployment(row));
    let plans: Vec<_> = model.plans(row.number("sequences"), row.number("context")).collect();
    let wanted = |location: &Location| match (row.text("where"), location) {
        ("host", Location::Host) | ("1", Location::Devices) => true,
        (stage, Location::Stage { stage: known, .. }) => stage.parse() == Ok(*known),
        _ => false,
    };
    plans.iter().find(|(location, _)| wanted(location)).unwrap_or_else(|| panic!("{row}: {plans:?}")).1
}

/// What all devices hold together.
fn total(row: &Row) -> Bytes {
    let model = MemoryModel::new(&deployment(row));
    let plans = model.plans(row.number("sequences"), row.number("context"));
    plans.filter(|(location, _)| *location != Location::Host).map(|(_, plan)| plan.needed()).sum()
}

/// Half of the last printed digit.
const PRINTED: f64 = 0.005 + 1e-9;

#[test]
fn buffers_are_those_of_the_logs() {
    let mut wrong = Vec::new();
    for row in rows() {
        let plan = plan(&row);
        let found = match row.text("part") {
            "kv" => plan.kv_cache,
            "state" => plan.state,
            "compute" => plan.activations,
            "weights" => plan.weights,
            "needed" => plan.needed(),
            "total" => total(&row),
            other => panic!("part is `{other}`"),
        };
        let (found, logged, tolerance) = (found.as_mib(), row.number::<f64>("mib"), row.number::<f64>("tolerance"));
        let off = (found - logged).abs();
        if off > PRINTED.max(logged * tolerance) {
            let (id, part, percent) = (row.text("id"), row.text("part"), (found / logged - 1.0) * 100.0);
            wrong.push(format!("{id}: {part} {found:.2} MiB, {logged:.2} in {} ({percent:+.2} %)", row.text("source")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Wide tolerances name what is missing.
#[test]
fn wide_tolerances_have_a_reason() {
    for row in rows() {
        let wide = row.number::<f64>("tolerance") > 0.01;
        assert!(!wide || !row.text("why").is_empty(), "{}", row.text("id"));
        assert!(row.text("source").contains(['#', ':']), "{}", row.text("id"));
    }
}

/// ggml-org/llama.cpp#13194: Command-R7B at `-c 31000` takes 11,459 MiB with `--swa-full` and 9,115 without; the cache for windows had
/// room for a batch of 2,048 tokens then.
#[test]
fn windows_save_what_was_measured() {
    let catalog = Catalog::embedded();
    let cache = |engine: &str| {
        let system = System::new(catalog.device("rtx-4090-24gb").unwrap(), 1).unwrap();
        let deployment = Deployment::new(catalog.model("command-r7b").unwrap(), system)
            .with_engine(catalog.engine(engine).unwrap())
            .with_max_tokens_per_step(2048);
        deployment.memory_plan(1, 31_000).kv_cache.as_mib()
    };
    let saved = cache("llama-cpp-cuda-2024") - cache("llama-cpp-cuda-2026");
    assert!((saved / (11_459.0 - 9_115.0) - 1.0).abs() < 0.01, "{saved}");
}

/// Rows split over cards leave the cache on the main one. From June 2026 on tensors are split: ggml-org/llama.cpp#23792 has 149.62 of 448.88 MiB
/// of states on each of three cards.
#[test]
fn tensors_that_are_split_divide_states_and_rows_do_not() {
    let catalog = Catalog::embedded();
    let state = |engine: &str, cards: u32| {
        let system = System::new(catalog.device("rtx-3090-24gb").unwrap(), cards).unwrap();
        let deployment = Deployment::new(catalog.model("qwen3.6-27b").unwrap(), system)
            .with_engine(catalog.engine(engine).unwrap())
            .with_tensor_parallel(cards);
        deployment.memory_plan(3, 4096).state.as_mib()
    };
    assert!((state("llama-cpp-cuda-2026-06", 3) - 149.62).abs() < 0.01);
    assert!((state("llama-cpp-cuda-2025", 3) - 448.88).abs() < 0.01);
}
