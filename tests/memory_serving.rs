//! Caches of SGLang, TensorRT-LLM, LMDeploy and ExLlamaV2 against logs and documentation.

#[path = "common/table.rs"]
mod table;

use llm_roofline::hardware::Device;
use llm_roofline::memory::MemoryModel;
use llm_roofline::model::{Model, Totals};
use llm_roofline::prelude::*;
use table::Row;

const LOGS: &str = include_str!("data/memory_serving.csv");

fn rows() -> Vec<Row> {
    table::rows(LOGS)
}

fn memory(row: &Row) -> Option<Bytes> {
    Some(row.text("memory")).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

fn deployment(row: &Row) -> Deployment {
    let catalog = Catalog::embedded();
    let engine = catalog.engine(row.text("engine")).unwrap();
    let tp = row.number::<u32>("tp");
    let mut device = catalog.device(row.text("device")).unwrap();
    if row.text("expect") == "pool" {
        device = visible(memory(row).unwrap(), row).into();
    }
    let system = System::new(device, tp).unwrap();
    let model = match row.text("model") {
        "totals" => {
            let loaded = Bytes::from_gib(row.text("loaded").parse().unwrap_or(1.0));
            let weights = loaded * f64::from(tp) - overhead(row, catalog);
            // 8 bits each.
            Model::from_totals("loaded", Totals::dense(weights.as_bytes() as u64, 8.0, Bytes::from_kib(1.0))).into()
        }
        slug => catalog.model(slug).unwrap(),
    };
    let mut deployment = Deployment::new(model, system).with_engine(engine).with_tensor_parallel(tp);
    if !row.text("weights").is_empty() {
        deployment =
            deployment.with_weights(row.text("weights").parse().unwrap()).with_kv(row.text("kv").parse().unwrap());
    }
    match row.text("set").split_once('=') {
        Some(("fraction", share)) => deployment.with_memory_fraction(share.parse().unwrap()),
        Some(("block", tokens)) => deployment.with_block_tokens(tokens.parse().unwrap()),
        _ => deployment,
    }
}

/// TensorRT-LLM and LMDeploy state what is free of the whole card: the context is part of what is loaded there.
fn overhead(row: &Row, catalog: &Catalog) -> Bytes {
    let counts = row.text("expect") == "pool" && !row.text("engine").starts_with("sglang");
    if counts { context(row, catalog) } else { Bytes::ZERO }
}

/// SGLang states what is free after its context was created.
fn visible(memory: Bytes, row: &Row) -> Device {
    let catalog = Catalog::embedded();
    let before = if row.text("engine").starts_with("sglang") { context(row, catalog) } else { Bytes::ZERO };
    let (bandwidth, peak) =
        (BytesPerSecond::from_gb_per_second(3000.0), FlopsPerSecond::from_tflops_per_second(1000.0));
    Device::from_specs("card", memory + before, bandwidth, peak).unwrap()
}

fn context(row: &Row, catalog: &Catalog) -> Bytes {
    catalog.engine(row.text("engine")).unwrap().memory.context.as_ref().unwrap().value
}

fn found(row: &Row) -> f64 {
    let deployment = deployment(row);
    let model = MemoryModel::new(&deployment);
    match row.text("expect") {
        "tokens" => model.kv_pool_in(memory(row).unwrap(), 4096).tokens as f64,
        "bytes_per_token" => (model.kv_per_sequence(8192) / 8192.0).as_bytes(),
        "pool" => model.kv_pool(4096).memory.as_gib(),
        "share" => {
            // Free before loading, less what weights and cache get, is kept.
            let plan = model.plan(0, 4096);
            let free = plan.visible - plan.overhead;
            (model.kv_pool(4096).memory + plan.weights) / free
        }
        other => panic!("expect is `{other}`"),
    }
}

#[test]
fn caches_are_those_of_the_logs() {
    let mut wrong = Vec::new();
    for row in rows() {
        let (found, logged, tolerance) = (found(&row), row.number::<f64>("value"), row.number::<f64>("tolerance"));
        if (found - logged).abs() > logged * tolerance {
            let (id, expect, source) = (row.text("id"), row.text("expect"), row.text("source"));
            wrong.push(format!("{id}: {expect} {found:.4}, {logged} in {source}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// InternLM/lmdeploy, TensorRT-LLM: a card that weights fill to the brim leaves nothing, and no sequence fits.
#[test]
fn nothing_is_left_of_a_full_card() {
    for engine in ["tensorrt-llm-2026", "lmdeploy", "sglang-2026"] {
        let catalog = Catalog::embedded();
        let system = System::new(catalog.device("rtx-4090-24gb").unwrap(), 1).unwrap();
        let full = Deployment::new(catalog.model("llama-3.1-70b").unwrap(), system);
        let full = full.with_engine(catalog.engine(engine).unwrap()).with_weights("fp8".parse().unwrap());
        assert_eq!((full.kv_pool(4096).tokens, full.max_sequences(4096)), (0, Some(0)), "{engine}");
        assert!(full.fit(1, 4096).is_err());
    }
}
