//! Published decode rates of processors against predictions. None of them is in the fit of the profiles but where it says so: its only processor is a
//! Ryzen 9 7950X.

#[path = "common/rates.rs"]
mod rates;

use llm_roofline::format::NumberFormat;
use llm_roofline::prelude::*;
use rates::assert_within;
use std::sync::Arc;

fn device(name: &str) -> Arc<Device> {
    Catalog::embedded().device(name).unwrap()
}

/// A processor of the same cores as that of a profile, in another number, at another clock, beside another memory.
fn like(name: &str, cores_and_clock: f64, gigabytes_per_second: f64) -> Arc<Device> {
    let mut profile = device(name).as_ref().clone().into_profile();
    profile.memory.bandwidth.value = BytesPerSecond::from_gb_per_second(gigabytes_per_second);
    let compute = &mut profile.compute;
    for peak in [&mut compute.fp32, &mut compute.fp16, &mut compute.bf16, &mut compute.int8].into_iter().flatten() {
        peak.value = peak.value * cores_and_clock;
    }
    Arc::new(Device::new(profile).unwrap())
}

/// 128 tokens, in tokens per second.
fn decode_rate(processor: Arc<Device>, engine: &str, model: &str, weights: &str) -> f64 {
    let catalog = Catalog::embedded();
    let deployment = Deployment::new(catalog.model(model).unwrap(), System::new(processor, 1).unwrap())
        .with_weights(weights.parse().unwrap())
        .with_engine(catalog.engine(engine).unwrap());
    128.0 / StepModel::compile(&deployment).unwrap().decode_run(1, 0, 128).total().as_seconds()
}

const LLAMA_CPP: &str = "llama-cpp-cpu-2024";
const IK: &str = "ik-llama-cpp-cpu";

/// Two memory channels are what limits decoding, hardly the cores.
///
/// Core i9-13900K, DDR5-6400: ggml-org/llama.cpp#34 (8 threads are fastest). Ryzen 9 7950X and 5900X, both at 3600 MT/s: ggml-org/llama.cpp#4716.
/// Ryzen 9 7950X with 16 threads: ikawrakow/ik_llama.cpp#518.
#[test]
fn desktop_processors() {
    let ryzen_9_5900x = like("ryzen-9-5950x", 12.0 / 16.0, 57.6);
    for (processor, engine, model, weights, measured) in [
        (like("core-i9-13900k", 1.0, 102.4), LLAMA_CPP, "llama-2-7b", "q4_0", 18.27),
        (like("ryzen-9-7950x", 1.0, 57.6), LLAMA_CPP, "mixtral-8x7b", "q8_0", 3.37),
        (ryzen_9_5900x, LLAMA_CPP, "mixtral-8x7b", "q8_0", 3.58),
        (device("ryzen-9-7950x"), LLAMA_CPP, "llama-3.1-8b", "iq3_s", 16.14),
        (device("ryzen-9-7950x"), IK, "llama-3.1-8b", "iq3_s", 15.54),
    ] {
        let what = format!("{} with {model} {weights}", processor.name());
        assert_within(decode_rate(processor, engine, model, weights), measured, 0.15, &what);
    }
}

/// More channels: a smaller share of the bandwidth, which was set by these rows.
///
/// EPYC 9554, 64 cores at 3.75 GHz: ahelpme.com/?p=6685. Threadripper PRO 7965WX, 24 cores, eight channels of DDR5-4800: ikawrakow/ik_llama.cpp#534 and
/// #602. Half of a Graviton4: mozilla-ai/llamafile#503 (Ollama, which had Q4_0 by default).
#[test]
fn processors_with_many_channels() {
    let epyc_9554 = || like("epyc-9654", 64.0 * 3.75 / (96.0 * 3.55), 460.8);
    let threadripper = || like("threadripper-7970x", 24.0 / 32.0, 307.2);
    for (processor, engine, model, weights, measured) in [
        (epyc_9554(), LLAMA_CPP, "phi-4", "q4_k_m", 28.74),
        (epyc_9554(), LLAMA_CPP, "phi-4", "q6_k", 23.25),
        (epyc_9554(), LLAMA_CPP, "phi-4", "q8_0", 19.19),
        (threadripper(), IK, "qwen2.5-72b", "q4_0", 4.74),
        (threadripper(), IK, "qwen3-14b", "q4_0", 22.57),
        (like("graviton4", 0.5, 268.8), LLAMA_CPP, "llama-3.1-70b", "q4_0", 4.62),
    ] {
        let what = format!("{} with {model} {weights}", processor.name());
        assert_within(decode_rate(processor, engine, model, weights), measured, 0.16, &what);
    }
}

/// ikawrakow/ik_llama.cpp discussion 164: two of the sixteen cores of a Ryzen 9 7950X. K-quants and larger ones still read at the speed of the memory,
/// those with look-up tables are bound by arithmetic. These rows are in the fit.
#[test]
fn two_cores() {
    for (engine, weights, measured) in [
        (LLAMA_CPP, "bf16", 4.05),
        (LLAMA_CPP, "q6_k", 7.62),
        (LLAMA_CPP, "q4_k_s", 9.57),
        (LLAMA_CPP, "iq2_xxs", 5.47),
        (IK, "bf16", 4.27),
        (IK, "q8_0", 7.63),
        (IK, "q6_k", 10.05),
    ] {
        let rate = decode_rate(like("ryzen-9-7950x", 2.0 / 16.0, 83.2), engine, "llama-3.1-8b", weights);
        assert_within(rate, measured, 0.2, &format!("{engine} {weights}"));
    }
}

/// Peaks are those of all cores at the clock that they hold together: AMD states 3.55 GHz for the EPYC 9654 and 4.1 for the 9755, Zen 4 does 32 FP32
/// operations per clock and Zen 5 with 512-bit vectors 64; Raptor Lake adds 16 efficient cores at half the width of the eight others.
#[test]
fn peaks_are_those_of_all_cores() {
    let peak = |name| device(name).peak(NumberFormat::Fp32).unwrap().as_tflops_per_second();
    for (name, expected) in [
        ("epyc-9654", 96.0 * 32.0 * 3.55e-3),
        ("epyc-9755", 128.0 * 64.0 * 4.1e-3),
        ("core-i9-14900k", (8.0 * 32.0 * 5.7 + 16.0 * 16.0 * 4.4) * 1e-3),
        ("graviton4", 96.0 * 32.0 * 2.8e-3),
    ] {
        assert!((peak(name) / expected - 1.0).abs() < 0.005, "{name}: {} TFLOP/s, expected {expected}", peak(name));
    }
}

/// Rows that state how many of the cores worked are priced with so many.
#[cfg(feature = "calibrate")]
#[test]
fn rows_with_fewer_threads() {
    use llm_roofline::calibrate::{Predictor, read_measurements};
    let predict = |tags: &str| {
        let file = format!(
            "id,engine,date,device,device_count,tp,model,weight_format,mode,context_tokens,output_tokens,metric,value,tags\n\
             a,llama.cpp,2024-12,ryzen-9-7950x,1,1,llama-3.1-8b,iq2_xxs,single_stream,0,128,decode_tps_per_stream,5.47,{tags}\n"
        );
        let rows = read_measurements(file.as_bytes(), "row.csv").unwrap();
        Predictor::new(Catalog::embedded()).predict(&rows[0]).map(|prediction| prediction.predicted)
    };
    let (all, two) = (predict("").unwrap(), predict("threads=2/16").unwrap());
    assert_within(two, 5.47, 0.2, "two threads");
    assert!(all > 2.0 * two, "{all} with all cores, {two} with two");
    for wrong in ["threads=2", "threads=0/16", "threads=17/16", "threads=two/16"] {
        let refusal = predict(wrong).unwrap_err().to_string();
        assert!(refusal.ends_with("expected threads of cores such as 2/16"), "{refusal}");
    }
}
