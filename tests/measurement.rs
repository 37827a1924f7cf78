//! Published measurements: reading them, predicting rows, scoring predictions.
#![cfg(feature = "calibrate")]

use llm_roofline::calibrate::*;
use llm_roofline::format::KvFormat;
use llm_roofline::hardware::Device;
use llm_roofline::model::{Model, Totals};
use llm_roofline::prelude::*;
use proptest::prelude::*;

const PUBLISHED: &str = include_str!("data/measurements.csv");
const HEADER: &str = "id,engine,device,device_count,tp,model,weight_format,mode,concurrency,input_tokens,context_tokens,output_tokens,metric,value,tags";

fn read(text: &str) -> Result<Vec<Measurement>, MeasurementError> {
    read_measurements(text.as_bytes(), "rows.csv")
}

/// Reads rows that are given from the column `mode` on.
fn rows(device_and_model: &str, cells: &[&str]) -> Vec<Measurement> {
    let lines: Vec<String> =
        cells.iter().enumerate().map(|(id, cells)| format!("{id},ideal,{device_and_model},{cells}")).collect();
    read(&format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap()
}

/// 70 billion parameters at 4 bits are 35 GB; a card of 1000 GB/s, 100 TFLOP/s and 48 GB.
fn by_hand() -> Catalog {
    let card = Device::from_specs(
        "card",
        Bytes::from_gb(48.0),
        BytesPerSecond::from_gb_per_second(1000.0),
        FlopsPerSecond::from_tflops_per_second(100.0),
    );
    let totals = Totals::dense(70_000_000_000, 4.0, Bytes::ZERO);
    Catalog::embedded().with_device(card.unwrap()).with_model(Model::from_totals("house", totals))
}

#[test]
fn published_rows_are_read() {
    let rows = read(PUBLISHED).unwrap();
    assert_eq!(rows.len(), PUBLISHED.lines().filter(|line| !line.starts_with('#')).count() - 1);
    let row = rows.iter().find(|row| row.id == "llama-cpp-benches-00188").unwrap();
    assert_eq!((row.engine.as_str(), row.engine_version.as_deref()), ("llama.cpp", Some("b7948 b828e18c7")));
    assert_eq!((row.device_count, row.concurrency, row.context_tokens), (1, Some(2.0), Some(512.0)));
    assert_eq!((row.flash_attention, row.core, row.request_rate), (Some(true), Some(true), None));
    assert_eq!((row.metric.as_str(), row.value), ("decode_tps_total", 204.99));
    assert_eq!((row.tag("ub"), row.has_tag("ub"), row.has_tag("wip")), (Some("2048"), true, false));
    assert_eq!((row.column("model"), row.column("colour")), (Some("gemma-3-4b".into()), None));
}

#[test]
fn published_rows_are_predicted() {
    let mut predictor = Predictor::new(Catalog::embedded());
    for row in read(PUBLISHED).unwrap() {
        match (row.mode.as_str(), predictor.predict(&row)) {
            (_, Ok(prediction)) => {
                let Prediction { predicted, low, high, assumptions, .. } = prediction;
                assert!(
                    predicted > 0.0 && low <= predicted && predicted <= high,
                    "{}: {low} {predicted} {high}",
                    row.id
                );
                assert!(assumptions.iter().any(|assumption| assumption.starts_with(&row.engine)), "{assumptions:?}");
            }
            (mode, other) => panic!("{} of mode {mode}: {other:?}", row.id),
        }
    }
}

#[test]
fn errors_name_line_column_value_and_what_is_expected() {
    let message = |text: &str| read(text).unwrap_err().to_string();
    let good = "a,x,d,1,1,m,q8_0,single_stream,1,,,,tpot_ms,5,";
    let broken = |from: &str, to: &str| message(&format!("# comment\n{HEADER}\n{}\n", good.replacen(from, to, 1)));
    assert_eq!(broken(",5,", ",fast,"), "rows.csv, line 3, column `value`: `fast`, expected a finite number above 0");
    assert_eq!(broken(",5,", ",0,"), "rows.csv, line 3, column `value`: `0`, expected a finite number above 0");
    assert_eq!(broken("d,1,1", "d,1,0"), "rows.csv, line 3, column `tp`: `0`, expected a whole number from 1");
    assert!(broken("1,,,,", "-1,,,,").contains("column `concurrency`: `-1`, expected a finite number"));
    assert!(broken("tpot_ms", "").contains("column `metric`: ``, expected some text"));
    assert!(broken(",5,", ",5,,").contains("line: 3"), "{}", broken(",5,", ",5,,"));
    assert_eq!(
        message(&HEADER.replace("metric", "metrics")),
        "rows.csv: no column `metric` (is `metrics` meant for it?)"
    );
    assert_eq!(
        message(&format!("{HEADER}\n{good}\n{good}\n")),
        "rows.csv, line 3, column `id`: `a` is also the id of an earlier row"
    );
    let flash = message(&format!("{HEADER},flash_attention\n{good},onn\n"));
    assert!(flash.ends_with("`onn`, expected on, off, or nothing (did you mean `on`?)"), "{flash}");
}

#[test]
fn predictions_can_be_checked_by_hand() {
    // Reading 35 GB at 1000 GB/s: 35 ms. 1,000 prompt tokens of 2 * 70e9 operations at 100 TFLOP/s: 1.4 s.
    let cases = [
        ("single_stream,1,1000,,101,tpot_ms,1,", 35.0),
        ("single_stream,,1000,,101,decode_tps_per_stream,1,", 1000.0 / 35.0),
        ("single_stream,1,,,,decode_tps_per_stream,1,lengths-missing", 1000.0 / 35.0),
        ("static_batch,8,1000,,101,decode_tps_total,1,", 8000.0 / 35.0),
        ("single_stream,1,1000,,,ttft_ms,1,", 1400.0),
        ("single_stream,1,1000,0,0,prefill_tps,1,", 1000.0 / 1.4),
        // Ten tokens at a time read the weights a hundred times.
        ("single_stream,1,1000,0,0,prefill_tps,1,ub=10", 1000.0 / 3.5),
        ("static_batch,2,1000,,,ttft_ms,1,", 2800.0),
        ("single_stream,1,1000,,101,e2e_ms,1,", 1400.0 + 100.0 * 35.0),
        ("single_stream,1,1000,,101,output_tps_total,1,", 101.0 / 4.9),
        ("static_batch,2,1000,,101,total_tps,1,", 2202.0 / 6.3),
        ("single_stream,1,1000,,101,oom,1,", 0.0),
        ("single_stream,1,1000,,101,oom,1,device-memory-gb=24", 1.0),
    ];
    let mut predictor = Predictor::new(&by_hand());
    let cells = cases.map(|(cells, _)| cells);
    for (row, (cells, expected)) in rows("card,1,1,house,", &cells).iter().zip(cases) {
        let predicted = predictor.predict(row).unwrap().predicted;
        assert!((predicted - expected).abs() <= 1e-9 * expected, "{cells}: {predicted}, expected {expected}");
    }
}

#[test]
fn predictions_agree_with_the_unloaded_request() {
    let cells = ["e2e_ms", "ttft_ms", "tpot_ms"].map(|metric| format!("static_batch,4,1000,,200,{metric},1,"));
    let rows = rows("h100-sxm-80gb,2,2,llama-3.1-8b,fp8", &cells.each_ref().map(String::as_str));
    let mut predictor = Predictor::new(Catalog::embedded());
    let (deployment, _) = predictor.deployment(&rows[0]).unwrap();
    let model = StepModel::compile(&deployment).unwrap();
    let answer = model.request(&Request::new(1000, 200).with_batch(4)).unwrap();
    let expected = [answer.e2e, answer.ttft, answer.tpot.unwrap()].map(Seconds::as_millis);
    for (row, expected) in rows.iter().zip(expected) {
        let predicted = predictor.predict(row).unwrap().predicted;
        assert!((predicted / expected - 1.0).abs() < 1e-9, "{}: {predicted}, expected {expected}", row.metric);
    }
}

#[test]
fn refusals_say_why() {
    let mut predictor = Predictor::new(&by_hand());
    let mut refusal = |device_and_model: &str, cells: &str| {
        predictor.predict(&rows(device_and_model, &[cells])[0]).unwrap_err().to_string()
    };
    let card = "card,1,1,house,";
    assert_eq!(
        refusal(card, "disaggregated,8,1000,,100,tpot_ms,1,"),
        "mode `disaggregated` is not predicted, only single_stream, static_batch, closed_loop, open_loop and offline are"
    );
    assert_eq!(
        refusal(card, "single_stream,1,1000,,100,tpot,1,"),
        "metric `tpot` is not predicted (did you mean `tpot_ms`?)"
    );
    assert_eq!(refusal(card, "single_stream,1,,,,ttft_ms,1,"), "input_tokens is not stated, which ttft_ms depends on");
    assert_eq!(refusal(card, "single_stream,1,9,,0,e2e_ms,1,"), "output_tokens is 0, which e2e_ms depends on");
    assert_eq!(
        refusal(card, "single_stream,1,9,,,ttft_ms,1,ub=many"),
        "tag ub is `many`, expected a whole number from 1 to 2^40"
    );
    assert!(refusal("h100-sxm-80gb,1,1,llama-3.1-8b,q4_k_n", "single_stream,1,9,,,ttft_ms,1,").contains("`q4_k_"));
    assert!(refusal("h1000,1,1,house,", "single_stream,1,9,,,ttft_ms,1,").contains("no device is named `h1000`"));
    assert!(refusal("card,1,2,house,", "single_stream,1,9,,,ttft_ms,1,").contains("tensor parallelism 2"));
}

#[test]
fn what_the_row_leaves_open_is_assumed_and_said() {
    let header = "id,engine,engine_version,device,device_count,tp,model,weight_format,kv_format,mode,metric,value";
    let kv = |cells: &str| {
        let rows = read(&format!("{header}\na,{cells},single_stream,tpot_ms,1\n")).unwrap();
        let (deployment, assumptions) = Predictor::new(Catalog::embedded()).deployment(&rows[0]).unwrap();
        (*deployment.kv(), assumptions.len())
    };
    assert_eq!(kv("tensorrt-llm,0.17,h100-sxm-80gb,1,1,llama-3.1-8b,fp8,"), (KvFormat::Fp8, 2));
    assert_eq!(kv("tensorrt-llm,0.9.0,h100-sxm-80gb,1,1,llama-3.1-8b,fp8,"), (KvFormat::Bf16, 1));
    assert_eq!(kv("tensorrt-llm,1.0,h200-sxm-141gb,1,1,mixtral-8x7b,fp8,"), (KvFormat::Bf16, 1));
    assert_eq!(kv("tensorrt-llm,1.0,b200-sxm-180gb,1,1,mixtral-8x7b,nvfp4,"), (KvFormat::Fp8, 2));
    assert_eq!(kv("vllm,0.10.0,h100-sxm-80gb,1,1,llama-3.1-8b,fp8,"), (KvFormat::Bf16, 1));
    assert_eq!(kv("llama.cpp,b7948,m2-ultra-76c,1,1,llama-3.1-8b,q8_0,k-q8_0-v-fp16"), (KvFormat::Fp16, 2));
}

/// Three configurations; the first has two rows, which share its weight.
fn scored() -> Vec<(Measurement, Scored)> {
    let rows = read(&format!(
        "{HEADER}\n\
         a1,x,h100,1,1,m,bf16,single_stream,1,,,,tpot_ms,10,\n\
         a2,x,h100,1,1,m,bf16,single_stream,1,,,,tpot_ms,20,\n\
         b,x,h100,1,1,m,fp8,single_stream,1,,,,decode_tps_total,100,\n\
         c,x,h100,1,1,m,q4_0,single_stream,1,,,,tpot_ms,5,\n\
         d,x,h100,1,1,m,q4_0,single_stream,1,,,,oom,1,\n"
    ));
    let predicted = [Some(9.0), Some(26.0), Some(120.0), None, Some(1.0)];
    let rows = rows.unwrap().into_iter().zip(predicted);
    rows.map(|(row, predicted)| {
        let mut scored = Scored::new(&row, None);
        scored.predicted = predicted;
        scored.interval = predicted.map(|predicted| (predicted * 0.8, predicted * 1.2));
        (row, scored)
    })
    .collect()
}

fn with(row: &Scored, value: f64, predicted: f64) -> Scored {
    let mut row = row.clone();
    (row.value, row.predicted, row.interval) = (value, Some(predicted), None);
    row
}

#[test]
fn scores_can_be_checked_by_hand() {
    // APE 0.1 and 0.3 with weight 1/2 each, 0.2 with weight 1; speed ratios 10/9, 20/26, 120/100.
    let scored = scored();
    let score = Score::of(scored.iter().map(|(_, scored)| scored));
    assert_eq!((score.rows, score.groups, score.predicted_rows), (4, 3, 3));
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    close(score.coverage, 2.0 / 3.0);
    let errors = score.errors.unwrap();
    close(errors.median_ape, 0.2);
    close(errors.mean_ape, (0.05 + 0.15 + 0.2) / 2.0);
    close(errors.p90_ape, 0.3);
    close(errors.bias, 0.2);
    // Cumulated weights of the sorted ratios are 1/2, 1, 2: half of the weight is met exactly at 10/9, so the midpoint to 1.2 counts.
    close(errors.speed_ratio.unwrap(), (10.0 / 9.0 + 1.2) / 2.0);
    close(errors.within_2x, 1.0);
    // 20 lies outside of 20.8 to 31.2, the others inside.
    close(errors.interval_coverage.unwrap(), 0.75);
    assert_eq!(errors.spearman, None, "two rows of a metric have no rank correlation");
    let oom = OomRecall::of(scored.iter().map(|(_, scored)| scored));
    assert_eq!((oom.rows, oom.predicted_rows, oom.recall), (1, 1, Some(1.0)));
}

/// Effects beyond 5 %: 1.5 foreseen as faster (right), 0.8 as faster (wrong), 1.2 as slower (wrong), 0.7 and 0.6 as slower (right); 1.04 is none,
/// another metric and a refusal do not count.
#[test]
fn the_sign_of_a_benefit_is_on_either_side_of_one() {
    let mut row = scored().remove(0).1;
    row.metric = "speedup".into();
    let pairs = [(1.5, 1.1), (0.8, 1.3), (1.2, 0.9), (0.7, 0.99), (0.6, 0.9), (1.04, 0.5)];
    let mut rows: Vec<_> = pairs.iter().map(|&(value, predicted)| with(&row, value, predicted)).collect();
    let mut other = with(&row, 2.0, 0.5);
    other.metric = "tpot_ms".into();
    rows.push(other);
    let mut refused = with(&row, 2.0, 0.5);
    refused.predicted = None;
    rows.push(refused);
    let sign = BenefitSign::of(&rows);
    assert_eq!((sign.rows, sign.right), (5, Some(0.6)));
    assert_eq!(BenefitSign::of(&rows[5..6]).right, None);
}

#[test]
fn rank_correlation_is_that_of_spearman() {
    // Ranks 1 2 3 4 5 against 2 1 4 3 5: 1 - 6 * 4 / (5 * 24) = 0.8.
    let values = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 5.0)];
    let row = scored().remove(0).1;
    let rows = values.map(|(value, predicted)| with(&row, value, predicted));
    assert!((Score::of(&rows).errors.unwrap().spearman.unwrap() - 0.8).abs() < 1e-12);
}

#[test]
fn tables_split_the_rows() {
    let scored = scored();
    let table = ScoreTable::by("format", &scored, |row| Some(row.weight_format.clone()));
    let lines: Vec<(&str, usize)> = table.lines.iter().map(|(key, score)| (key.as_str(), score.rows)).collect();
    assert_eq!(lines, [("bf16", 2), ("fp8", 1), ("q4_0", 1)]);
    assert!(
        table.to_string().contains("| fp8 | 1 | 1 | 100.0 % | 20.0 % | 20.0 % | +20.0 % | 100 % | 100.0 % |"),
        "{table}"
    );
    assert!(table.to_string().contains("| q4_0 | 1 | 1 | 0.0 % | - | - | - | - | - |"), "{table}");
    let page = accuracy_report(Catalog::embedded(), &scored);
    assert!(page.contains("## All rows") && page.contains("| hopper | 4 | 3 |"), "{page}");
    assert!(!page.contains("count for the targets"), "no row says that it counts: {page}");
    assert!(page.contains("Of 1 configurations that do not fit, 1 were predicted, 100 % rightly."), "{page}");
}

#[test]
fn metrics_and_formats_have_families() {
    assert_eq!(Phase::of("tpot_ms"), Some(Phase::Decode));
    assert_eq!(Phase::of("ttft_ms"), Some(Phase::Prefill));
    assert_eq!(Phase::of("total_tps"), Some(Phase::Whole));
    assert_eq!(Phase::of("ttft_ms_p99"), None);
    let families =
        ["bf16", "fp8-block", "nvfp4", "gptq-int8", "ud-q4_k_xl", "iq4_xs", "q4_k_m", "q8_0"].map(format_family);
    for (index, family) in families.iter().enumerate() {
        assert!(!families[..index].contains(family), "{family} twice");
    }
    assert_eq!(format_family("awq-int4"), format_family("gptq-int8"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z0-9,;=\"#.\\n -]{0,200}") {
        let _ = read(&text);
        let _ = read(&format!("{HEADER}\n{text}"));
    }

    /// A factor on all predictions and measurements changes no relative error.
    #[test]
    fn scores_do_not_depend_on_the_unit(
        values in proptest::collection::vec((0.1..100.0_f64, 0.1..100.0_f64, 0_usize..4), 1..20),
    ) {
        let template = scored().remove(0).1;
        let score = |factor: f64| {
            let row = |(value, predicted, group): &(f64, f64, usize)| {
                let mut row = with(&template, value * factor, predicted * factor);
                row.group = group.to_string();
                row
            };
            Score::of(&values.iter().map(row).collect::<Vec<_>>()).errors.unwrap()
        };
        // Powers of two scale exactly.
        prop_assert_eq!(score(1.0), score(1024.0));
    }

    /// Predictions move as physics says: a longer context never decodes faster, a larger batch never has a smaller total.
    #[test]
    fn longer_contexts_do_not_decode_faster(context in 0_u64..20_000, more in 1_u64..20_000, batch in 1_u64..64) {
        let cells = [context, context + more].map(|context| format!("static_batch,{batch},0,{context},64,tpot_ms,1,"));
        let rows = rows("h100-sxm-80gb,1,1,llama-3.1-8b,bf16", &cells.each_ref().map(String::as_str));
        let mut predictor = Predictor::new(Catalog::embedded());
        let times: Vec<f64> = rows.iter().map(|row| predictor.predict(row).unwrap().predicted).collect();
        prop_assert!(times[1] >= times[0] * (1.0 - 1e-12), "{:?}", times);
    }
}
