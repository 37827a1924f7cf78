//! The flat form of an answer: what programs read as JSON and people as a table.

use llm_roofline::prelude::*;
use serde_json::Value;

fn compiled(model: &str, device: &str, count: u32) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    StepModel::compile(&Deployment::new(catalog.model(model).unwrap(), system)).unwrap()
}

fn json(model: &StepModel, request: Request) -> Value {
    serde_json::to_value(model.request(&request).unwrap().summary(model)).unwrap()
}

#[test]
fn json_has_the_documented_keys() {
    let model = compiled("llama-3.1-8b", "h100-sxm-80gb", 1);
    let answer = json(&model, Request::new(1000, 100).with_batch(2));
    let numbers = [
        "ttft_ms",
        "tpot_ms",
        "itl_first_ms",
        "itl_last_ms",
        "e2e_ms",
        "tps_per_stream",
        "tps_total",
        "weights_bytes",
        "kv_cache_bytes",
        "mfu",
        "mbu",
    ];
    for key in numbers {
        assert!(answer[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {}", answer[key]);
    }
    assert_eq!((&answer["prefill_bound"], &answer["decode_bound"]), (&"compute".into(), &"memory".into()));
    assert!(answer["assumptions"].as_array().is_some_and(|assumptions| !assumptions.is_empty()));
    // 8,030,261,248 parameters of 2 bytes (safetensors index of meta-llama/Llama-3.1-8B); 131,072 bytes of cache per token
    // (32 layers, 8 heads of 128, key and value).
    assert_eq!(answer["weights_bytes"], 2.0 * 8_030_261_248.0);
    assert_eq!(answer["kv_cache_bytes"], 2.0 * 1100.0 * 131_072.0);
    let number = |key: &str| answer[key].as_f64().unwrap();
    assert!((number("e2e_ms") / (number("ttft_ms") + 99.0 * number("tpot_ms")) - 1.0).abs() < 1e-12);
    assert!((number("tps_total") / number("tps_per_stream") - 2.0).abs() < 1e-12);
}

#[test]
fn an_answer_of_one_token_has_no_decode() {
    let model = compiled("llama-3.1-8b", "h100-sxm-80gb", 1);
    let request = Request::new(1000, 1);
    let answer = json(&model, request);
    for key in ["tpot_ms", "itl_first_ms", "itl_last_ms", "tps_per_stream", "tps_total", "mbu", "experience"] {
        assert_eq!(answer[key], Value::Null, "{key}");
    }
    assert_eq!(answer["ttft_ms"], answer["e2e_ms"]);
    let table = model.request(&request).unwrap().summary(&model).to_string();
    assert!(!table.contains("TPOT  ") && table.contains("E2E"), "{table}");
}

#[test]
fn tables_are_aligned() {
    for (model, count, batch) in
        [("llama-3.1-8b", 1, 1), ("llama-3.1-8b", 8, 1000), ("deepseek-v3", 8, 1), ("mamba2-2.7b", 1, 7)]
    {
        let model = compiled(model, "b300-sxm-270gb", count);
        let request = Request::new(300, 50).with_batch(batch);
        let table = model.request(&request).unwrap().summary(&model).to_string();
        // Two blanks, a name, a value that ends in column 45, three blanks, the meaning.
        let rows: Vec<&str> = table.lines().skip(3).take_while(|line| !line.is_empty()).collect();
        assert!(rows.len() >= 10, "{table}");
        for row in rows {
            assert!(row.starts_with("  ") && row.get(44..45) != Some(" ") && row.get(45..48) == Some("   "), "{row}");
        }
        let steps = model.explain_prefill(&request).to_string();
        assert!(steps.lines().all(|line| line.ends_with('%') || line.ends_with("share")), "{steps}");
        let widths: Vec<usize> = steps.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}\n{steps}");
    }
}

#[test]
fn what_is_supposed_is_said() {
    let assumptions = |model: &str, device: &str, count| compiled(model, device, count).deployment().assumptions();
    let says = |assumptions: &[String], what: &str| assumptions.iter().any(|assumption| assumption.contains(what));
    // Sixteen devices span two nodes, whose network nobody described.
    let network = assumptions("llama-3.1-70b", "h100-sxm-80gb", 16);
    assert!(says(&network, "one 400 Gbit/s network port per device is assumed"), "{network:?}");
    assert!(!says(&assumptions("llama-3.1-70b", "h100-sxm-80gb", 8), "linked by"));
    let totals = Model::from_totals("7B", Totals::dense(7_000_000_000, 4.5, Bytes::from_kib(128.0)));
    let system = System::new(Catalog::embedded().device("h100-sxm-80gb").unwrap(), 1).unwrap();
    let totals = Deployment::new(totals, system).with_weights("fp8".parse().unwrap());
    assert!(says(&totals.assumptions(), "4.5 bits per weight"), "{:?}", totals.assumptions());
    let model = StepModel::compile(&totals).unwrap();
    let answer = model.request(&Request::new(10_000, 10)).unwrap();
    // Multiplied in 16 bits, and compared with that peak.
    assert!(answer.mfu > 0.9 && answer.mfu <= 1.0, "{}", answer.mfu);
}
