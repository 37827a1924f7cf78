//! The metrics that only memory decides: `oom` and `kv_cache_tokens`.
#![cfg(feature = "calibrate")]

use llm_roofline::calibrate::*;
use llm_roofline::hardware::Device;
use llm_roofline::memory::MemoryModel;
use llm_roofline::model::{Model, Totals};
use llm_roofline::prelude::*;

const PUBLISHED: &str = include_str!("data/memory_metrics.csv");
const HEADER: &str = "id,engine,device,device_count,tp,model,weight_format,mode,concurrency,input_tokens,context_tokens,output_tokens,metric,value,tags";

fn row(cells: &str) -> Measurement {
    let mut rows = read_measurements(format!("{HEADER}\na,{cells}\n").as_bytes(), "rows.csv").unwrap();
    rows.pop().unwrap()
}

fn predicted(catalog: &Catalog, cells: &str) -> Prediction {
    Predictor::new(catalog).predict(&row(cells)).unwrap_or_else(|refusal| panic!("{cells}: {refusal}"))
}

#[test]
fn pools_are_those_of_start_up_logs() {
    let rows = read_measurements(PUBLISHED.as_bytes(), "memory_metrics.csv").unwrap();
    let mut predictor = Predictor::new(Catalog::embedded());
    let mut wrong = Vec::new();
    for row in rows {
        let prediction = predictor.predict(&row).unwrap_or_else(|refusal| panic!("{}: {refusal}", row.id));
        // Half a gigabyte of context and libraries is as much as logs of one version differ by, 5 to 8 % of these pools.
        let off = prediction.predicted / row.value - 1.0;
        if off.abs() > 0.1 {
            wrong.push(format!("{}: {} for {} ({:+.1} %)", row.id, prediction.predicted, row.value, off * 100.0));
        }
        let Prediction { low, high, predicted, .. } = prediction;
        assert!(low < predicted && predicted < high && high < low * 1.5, "{}: {low} {predicted} {high}", row.id);
        assert!((low..high).contains(&row.value), "{}: {low} to {high}", row.id);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// vllm-project/vllm#10517 prints every part: 1,952 blocks of 16 tokens, to the block within what two decimals leave open.
#[test]
fn a_log_that_prints_its_parts_is_followed_to_the_block() {
    let parts = "util=0.9;visible-gib=23.58;weights-gib=14.9888;activation-gib=2.0712;non-torch-gib=0.35";
    let cells = format!("vllm-2024,rtx-3090-24gb,1,1,llama-3.1-8b,bf16,startup,,,20000,,kv_cache_tokens,1,{parts}");
    let found = predicted(Catalog::embedded(), &cells).predicted;
    // Half a hundredth of a GiB is 41 tokens of 128 KiB.
    assert!((found - 31_232.0).abs() <= 2.0 * 41.0 && found % 16.0 == 0.0, "{found}");
}

/// 70 billion parameters at 4 bits are 35 GB; a card of 48 GB leaves 13 GB, 130,000 tokens of 100 kB.
fn by_hand() -> Catalog {
    let (bandwidth, peak) = (BytesPerSecond::from_gb_per_second(1000.0), FlopsPerSecond::from_tflops_per_second(100.0));
    let card = Device::from_specs("card", Bytes::from_gb(48.0), bandwidth, peak).unwrap();
    let totals = Totals::dense(70_000_000_000, 4.0, Bytes::from_kb(100.0));
    Catalog::embedded().with_device(card).with_model(Model::from_totals("house", totals))
}

#[test]
fn both_metrics_can_be_checked_by_hand_in_any_mode() {
    let catalog = by_hand();
    let cases = [
        ("startup,,,8192,,kv_cache_tokens,1,", 130_000.0),
        ("open_loop,,,,,kv_cache_tokens,1,max-model-len=4096", 130_000.0),
        ("static_batch,,,,,kv_cache_tokens,1,max_model_len=4096;gpu_memory_utilization=0.75", 10_000.0),
        ("startup,,,,,kv_cache_tokens,1,ctx-size=4096;util=0.75", 10_000.0),
        ("startup,,,4096,,kv_cache_tokens,1,kv-cache-gib=1", 10_737.0),
        ("startup,,,4096,,kv_cache_tokens,1,visible-gib=33.5276126861572265625", 10_000.0),
        ("startup,,,4096,,kv_cache_tokens,1,weights-gib=37.25290298461914", 80_000.0),
        ("closed_loop,13,5000,,5000,oom,1,", 0.0),
        ("closed_loop,14,5000,,5000,oom,1,", 1.0),
        ("startup,1,,,,oom,1,context-length=130001", 1.0),
        ("startup,1,,,,oom,1,device-memory-gb=30.5", 1.0),
    ];
    for (cells, expected) in cases {
        assert_eq!(predicted(&catalog, &format!("ideal,card,1,1,house,,{cells}")).predicted, expected, "{cells}");
    }
}

#[test]
fn the_longest_context_is_that_of_the_model_if_none_is_stated() {
    let catalog = Catalog::embedded();
    let cells =
        |context: &str| format!("vllm,h100-sxm-80gb,1,1,gemma-3-27b,fp8,startup,,,{context},,kv_cache_tokens,1,");
    let of_model = predicted(catalog, &cells("")).predicted;
    assert_eq!(of_model, predicted(catalog, &cells("131072")).predicted);
    let missing = Predictor::new(&by_hand()).predict(&row("ideal,card,1,1,house,,startup,,,,,kv_cache_tokens,1,"));
    assert_eq!(missing.unwrap_err().to_string(), "context_tokens is not stated, which kv_cache_tokens depends on");
}

/// Engines with a pool let sequences wait; llama.cpp sets the cache of all aside before it starts.
#[test]
fn only_engines_without_a_pool_run_out_of_memory_by_the_batch() {
    let catalog = Catalog::embedded();
    let cells = |engine: &str, batch: u64| {
        format!("{engine},rtx-4090-24gb,1,1,llama-3.1-8b,fp16,static_batch,{batch},2000,,2000,oom,1,")
    };
    for (engine, batch, expected) in
        [("vllm", 1, 0.0), ("vllm", 64, 0.0), ("sglang", 64, 0.0), ("llama.cpp", 4, 0.0), ("llama.cpp", 64, 1.0)]
    {
        let prediction = predicted(catalog, &cells(engine, batch));
        assert_eq!(prediction.predicted, expected, "{engine}, {batch}");
        let waits = prediction.assumptions.iter().any(|assumption| assumption.contains("some wait"));
        assert_eq!(waits, batch == 64 && engine != "llama.cpp", "{engine}: {:?}", prediction.assumptions);
    }
    let too_long = "vllm,rtx-4090-24gb,1,1,llama-3.1-8b,fp16,startup,,,,,oom,1,max-model-len=131072";
    assert_eq!(predicted(catalog, too_long).predicted, 1.0);
}

/// Rows split over three cards, which no engine cuts 64 heads into: memory does not ask.
#[test]
fn layouts_that_have_no_price_have_a_memory_need() {
    let catalog = Catalog::embedded();
    let cells =
        |format: &str| format!("llama.cpp,rtx-3090-24gb,3,3,llama-2-70b,{format},single_stream,1,512,,512,oom,1,");
    assert_eq!(predicted(catalog, &cells("fp16")).predicted, 1.0);
    assert_eq!(predicted(catalog, &cells("q4_0")).predicted, 0.0);
}

#[test]
fn prices_of_a_model_agree_with_its_memory() {
    let mut predictor = Predictor::new(Catalog::embedded());
    let row =
        row("vllm,h100-sxm-80gb,1,1,llama-3.1-8b,fp8,startup,,,8192,,kv_cache_tokens,1,block-size=32;max-num-seqs=64");
    let (deployment, _) = predictor.deployment(&row).unwrap();
    let tokens = MemoryModel::new(&deployment).kv_pool(8192);
    assert_eq!((tokens.block_tokens, tokens.tokens % 32), (32, 0));
    assert_eq!(predictor.predict(&row).unwrap().predicted, tokens.tokens as f64);
    let model = StepModel::compile(&deployment).unwrap();
    assert_eq!(price(&row, &model).unwrap(), tokens.tokens as f64);
}

#[test]
fn settings_that_are_no_numbers_are_refused() {
    let refused = |tags: &str| {
        let cells = format!("vllm,h100-sxm-80gb,1,1,llama-3.1-8b,fp8,startup,,,,,kv_cache_tokens,1,{tags}");
        Predictor::new(Catalog::embedded()).predict(&row(&cells)).unwrap_err()
    };
    let expected = "a whole number from 1 to 2^40";
    let tag = |tag: &str, value: &str, expected| Refusal::Tag { tag: tag.into(), value: value.into(), expected };
    assert_eq!(refused("max-model-len=8k"), tag("max-model-len", "8k", expected));
    assert_eq!(refused("ub=0"), tag("ub", "0", expected));
    assert_eq!(refused("max_num_seqs"), tag("max_num_seqs", "", expected));
    assert_eq!(refused("block-size=1.5"), tag("block-size", "1.5", expected));
    for share in ["0", "1.01", "-0.5", "NaN", "90%"] {
        assert_eq!(refused(&format!("util={share}")), tag("util", share, "a number above 0, at most 1"));
    }
    for gigabytes in ["0", "inf", "1e9", "24GB"] {
        let expected = "gigabytes, above 0 and at most 1e6";
        assert_eq!(refused(&format!("device-memory-gb={gigabytes}")), tag("device-memory-gb", gigabytes, expected));
    }
    for threads in ["2", "0/16", "17/16", "two/16"] {
        assert_eq!(refused(&format!("threads={threads}")), tag("threads", threads, "threads of cores such as 2/16"));
    }
    assert_eq!(refused("util=2").to_string(), "tag util is `2`, expected a number above 0, at most 1");
}
