//! Every model of the catalog on many devices: all deployments compile, and all answers are sane.

use llm_roofline::memory::MemoryModel;
use llm_roofline::prelude::*;
use llm_roofline::request::RequestError;
use llm_roofline::text::Tokenizer;

const FORMATS: [&str; 6] = ["bf16", "fp8", "nvfp4", "awq-int4", "q4_k_m", "iq2_xxs"];

#[test]
fn native_formats_and_tokenizers_are_known() {
    for entry in Catalog::embedded().models() {
        let model = entry.load().unwrap();
        if let Some(format) = &model.native_format {
            assert!(format.parse::<llm_roofline::format::WeightFormat>().is_ok(), "{}: {format}", model.slug);
        }
        if let Some(tokenizer) = &model.tokenizer {
            assert!(Tokenizer::named(tokenizer).is_ok(), "{}: {tokenizer}", model.slug);
        }
    }
}

#[test]
fn every_model_runs_in_every_format() {
    let device = Catalog::embedded().device("b200-sxm-180gb").unwrap();
    for entry in Catalog::embedded().models() {
        let model = entry.load().unwrap();
        let architecture = model.architecture().unwrap();
        let request = Request::new(architecture.max_context_tokens / 3, architecture.max_context_tokens / 3);
        for format in FORMATS {
            let deployment = Deployment::new(model.clone(), System::new(device.clone(), 1).unwrap())
                .with_weights(format.parse().unwrap());
            let compiled =
                StepModel::compile(&deployment).unwrap_or_else(|error| panic!("{} {format}: {error}", model.slug));
            let memory = MemoryModel::new(&deployment);
            let by_tensor = architecture.weight_bytes(deployment.weights());
            assert!((memory.weights() / by_tensor - 1.0).abs() < 1e-9, "{} {format}", model.slug);
            match compiled.request(&request) {
                Ok(answer) => check(&model, &compiled, &answer),
                Err(RequestError::DoesNotFit(reason)) => {
                    assert_eq!(reason.needed, reason.plan.needed(), "{}", model.slug);
                    assert!(reason.needed > reason.plan.capacity, "{}", model.slug);
                }
                Err(error) => panic!("{} {format}: {error}", model.slug),
            }
        }
    }
}

fn check(model: &Model, compiled: &StepModel, answer: &RequestEstimate) {
    let slug = &model.slug;
    let (tpot, e2e) = (answer.tpot.unwrap(), answer.e2e);
    for time in [answer.ttft, tpot, e2e, answer.itl_first.unwrap(), answer.itl_last.unwrap()] {
        assert!(time > Seconds::ZERO && time.is_finite(), "{slug}");
    }
    assert!(answer.mfu > 0.0 && answer.mfu <= 1.0 + 1e-9, "{slug}: MFU {}", answer.mfu);
    assert!(answer.mbu.unwrap() > 0.0 && answer.mbu.unwrap() <= 1.0 + 1e-9, "{slug}: MBU {:?}", answer.mbu);
    let steps = (answer.request.output_tokens - 1) as f64;
    assert!((e2e / (answer.ttft + tpot * steps) - 1.0).abs() < 1e-12, "{slug}");
    let decode = compiled.explain_decode(&answer.request, answer.request.output_tokens);
    assert!((decode.total / answer.itl_last.unwrap() - 1.0).abs() < 1e-9, "{slug}");
    // Every active weight is read in a decode step of one sequence, and not much else is at an empty context.
    let read = compiled.decode_step(1, 1).bytes();
    let active = Bytes::from_bytes(model.params_active() as f64 * 1.5 / 8.0);
    assert!(read > active, "{slug}: a step reads {read}, less than {active}");
}

#[test]
fn every_device_runs_a_small_model() {
    let model = Catalog::embedded().model("smollm2-135m").unwrap();
    for entry in Catalog::embedded().devices() {
        let device = entry.load().unwrap();
        let slug = device.slug().to_string();
        for format in FORMATS {
            let deployment = Deployment::new(model.clone(), System::new(device.clone(), 1).unwrap())
                .with_weights(format.parse().unwrap());
            let compiled = StepModel::compile(&deployment).unwrap_or_else(|error| panic!("{slug}: {error}"));
            match compiled.request(&Request::new(500, 100)) {
                Ok(answer) => check(&model, &compiled, &answer),
                // Only chips that keep everything in SRAM are too small for 135 million parameters.
                Err(error) => assert!(device.usable_memory() < Bytes::from_gb(1.0), "{slug}: {error}"),
            }
        }
    }
}

#[test]
fn every_model_fits_somewhere_and_tensor_parallelism_speeds_it_up() {
    let device = Catalog::embedded().device("h200-sxm-141gb").unwrap();
    for entry in Catalog::embedded().models() {
        let model = entry.load().unwrap();
        let mut last: Option<Seconds> = None;
        for count in [1, 2, 4, 8] {
            let deployment = Deployment::new(model.clone(), System::new(device.clone(), count).unwrap());
            let Ok(compiled) = StepModel::compile(&deployment) else { continue };
            // Decode at batch 1 is all weights: halving them per device must show in any model.
            let time = compiled.decode_step(1, 100).total();
            assert!(last.is_none_or(|last| time < last), "{}: {count} devices are not faster", model.slug);
            last = Some(time);
        }
        assert!(last.is_some(), "{}", model.slug);
    }
}

/// Every engine's rules meet every kind of layer: numbers everywhere, no weights lost, and never more tokens than bytes of cache allow.
#[test]
fn every_engine_accounts_for_every_model() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("b300-sxm-270gb").unwrap(), 8).unwrap();
    let engines: Vec<_> = catalog.engines().map(|entry| entry.load().unwrap()).collect();
    for entry in catalog.models() {
        let model = entry.load().unwrap();
        let architecture = model.architecture().unwrap();
        let whole = architecture.weight_bytes(&"fp8".parse().unwrap());
        let looked_up = architecture.vocab_size * architecture.hidden_size + architecture.lookup_params;
        let looked_up = Bytes::from_bytes(2.0 * looked_up as f64);
        for engine in &engines {
            let name = format!("{} under {}", model.slug, engine.slug);
            let deployment = Deployment::new(model.clone(), system.clone()).with_tensor_parallel(1);
            let deployment = deployment.with_engine(engine.clone()).with_weights("fp8".parse().unwrap());
            let memory = MemoryModel::new(&deployment);
            let (one, two) = (memory.plan(1, 1000), memory.plan(2, 2000));
            assert!(one.needed().is_finite() && two.needed() >= one.needed(), "{name}");
            // Embeddings may be on the host, tables and padding come on top.
            assert!(one.weights > whole * 0.999 - looked_up, "{name}: {} of {whole}", one.weights);
            assert!(one.weights < whole * 1.2 + Bytes::from_mb(1100.0), "{name}: {} of {whole}", one.weights);
            assert!(one.overhead + one.activations + one.graphs < Bytes::from_gib(300.0), "{name}: {one:?}");
            let pool = memory.kv_pool(4096);
            assert!(pool.memory <= one.visible && pool.concurrency.is_finite(), "{name}: {pool}");
        }
    }
}
