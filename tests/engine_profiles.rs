//! The engine profiles of `engine-profiles/`: all of them read, resolve and name only hardware, formats and links that exist.

use llm_roofline::catalog::{Catalog, CatalogError};
use llm_roofline::engine::{Engine, Keys, Positive};
use llm_roofline::format::WeightFormat;
use llm_roofline::hardware::LinkKind;
use llm_roofline::profile::Provenance;
use llm_roofline::units::Seconds;
use std::collections::BTreeSet;
use std::sync::Arc;

fn all() -> Vec<Arc<Engine>> {
    Catalog::embedded().engines().map(|entry| entry.load().unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn engine(name: &str) -> Arc<Engine> {
    Catalog::embedded().engine(name).unwrap_or_else(|error| panic!("{error}"))
}

/// The number of a parameter by its name.
fn number(engine: &Engine, name: &str) -> f64 {
    let parameters = engine.parameters();
    let found = parameters.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{} has no {name}", engine.slug)).1.number()
}

#[test]
fn every_profile_reads_and_survives_being_written() {
    let engines = all();
    assert_eq!(engines.len(), 42);
    for engine in engines {
        let again = Engine::from_toml(&engine.to_toml(), &engine.slug).unwrap_or_else(|error| panic!("{error}"));
        let mut alone = (*engine).clone();
        alone.extends = None;
        assert_eq!(again, alone);
    }
}

#[test]
fn every_name_leads_to_one_profile() {
    for entry in Catalog::embedded().engines() {
        for name in entry.head().names() {
            assert_eq!(engine(name).slug, entry.head().slug, "{name}");
        }
    }
}

#[test]
fn names_that_users_type_lead_to_the_newest_profile() {
    let newest = [
        ("vLLM", "vllm-2026"),
        ("sglang", "sglang-2026"),
        ("TensorRT-LLM", "tensorrt-llm-2026"),
        ("trtllm", "tensorrt-llm-2026"),
        ("llama.cpp", "llama-cpp-cuda-2026"),
        ("llama-cpp", "llama-cpp-cuda-2026"),
        ("llama-cpp-cuda", "llama-cpp-cuda-2026"),
        ("llama-cpp-metal", "llama-cpp-metal-2026"),
        ("llama-cpp-rocm", "llama-cpp-rocm-2026"),
        ("llama-cpp-vulkan", "llama-cpp-vulkan-2026"),
        ("llama-cpp-cpu", "llama-cpp-cpu-2026"),
        ("mlx-lm", "mlx"),
        ("exl2", "exllamav2"),
        ("hf", "transformers"),
    ];
    for (name, slug) in newest {
        assert_eq!(engine(name).slug, slug);
    }
    assert!(matches!(Catalog::embedded().engine("vllm-1999"), Err(CatalogError::NotFound { .. })));
}

#[test]
fn files_of_llama_cpp_have_kernels_by_family() {
    let key = |name: &str| name.parse::<WeightFormat>().unwrap_or_else(|error| panic!("{error}")).kernel_key();
    let names = ["f32", "f16", "bf16", "q4_0", "q5_1", "q8_0", "q6_k", "q4_k_m", "iq4_xs", "iq3_xxs", "mxfp4_moe"];
    let keys = ["f32", "f16", "f16", "q4", "q4", "q8", "k-quant", "k-quant", "k-quant", "iq", "mxfp4"];
    assert_eq!(names.map(key), keys);
}

#[test]
fn factors_are_keyed_by_hardware_formats_and_links_that_exist() {
    let mut generations = BTreeSet::new();
    for entry in Catalog::embedded().devices() {
        generations.extend(entry.load().unwrap().kernel_keys());
    }
    let weights = [
        "fp32",
        "bf16",
        "fp8",
        "fp8-block",
        "int8",
        "mxfp4",
        "nvfp4",
        "awq-int4",
        "gptq-int8",
        "mlx-int4",
        "q4_0",
        "q8_0",
        "q4_k_m",
        "iq2_xs",
    ];
    let weights = weights.map(|name| name.parse::<WeightFormat>().unwrap_or_else(|error| panic!("{error}")));
    let exl2 = WeightFormat::Exl2 { millibits: 4000 };
    let formats: BTreeSet<&str> = weights.iter().chain([&exl2]).map(WeightFormat::kernel_key).collect();
    let operands = ["cache-8", "cache-16", "head-64", "head-128", "head-256"];
    let links = [
        LinkKind::Nvlink,
        LinkKind::NvlinkBridge,
        LinkKind::InfinityFabric,
        LinkKind::XeLink,
        LinkKind::Ici,
        LinkKind::Neuronlink,
        LinkKind::Ethernet,
        LinkKind::C2c,
        LinkKind::Pcie,
        LinkKind::Network,
    ];
    for engine in all() {
        for (name, parameter) in engine.parameters() {
            let [(_, by_generation), (_, by_format)] = parameter.factors();
            for key in by_generation.keys() {
                assert!(generations.contains(key), "{}: {name}: no device is of `{key}`", engine.slug);
            }
            for key in by_format.keys() {
                let known = match name.split('.').next() {
                    Some("gemm" | "experts") => formats.contains(key.as_str()),
                    Some("prefill_attention" | "decode_attention") => operands.contains(&key.as_str()),
                    Some("communication") => links.iter().any(|link| link.name() == key),
                    _ => false,
                };
                assert!(known, "{}: {name}: `{key}` is looked up by nothing", engine.slug);
            }
        }
    }
}

#[test]
fn shares_stay_positive_and_are_cut_by_little() {
    // A product of factors far above 1 would be a factor of the wrong base.
    for engine in all() {
        for (name, parameter) in engine.parameters().into_iter().filter(|(name, _)| name.ends_with("compute")) {
            let [(_, by_generation), (_, by_format)] = parameter.factors();
            let largest = by_generation.values().map(|factor| factor.value).fold(1.0, f64::max);
            let largest = largest * by_format.values().map(|factor| factor.value).fold(1.0, f64::max);
            assert!(parameter.number() * largest < 1.4, "{}: {name}", engine.slug);
        }
    }
}

/// The operator laws were published with absolute values per generation; base times factor gives them back.
#[test]
fn factors_give_back_the_fitted_values() {
    let serving = engine("serving");
    let at = |generation: &str, format: &str| {
        let (generation, format) = ([generation], [format]);
        let keys = Keys { generation: &generation, format: &format };
        let gemm = &serving.gemm;
        let (launch, per_thousand) = (gemm.launch.as_ref().unwrap(), gemm.per_thousand_inputs.as_ref().unwrap());
        [
            gemm.compute.as_ref().unwrap().at(&keys).value,
            gemm.memory.as_ref().unwrap().at(&keys).value,
            launch.at(&keys).value * 1e6,
            per_thousand.at(&keys).value * 1e6,
        ]
    };
    let fitted = [
        ("ampere", [0.79, 0.78, 5.5, 0.14]),
        ("hopper", [0.679, 0.915, 3.1, 0.35]),
        ("blackwell", [0.655, 0.925, 2.4, 0.46]),
        ("blackwell-gddr", [0.913, 0.95, 2.5, 0.30]),
        ("ada", [0.80, 0.78, 2.5, 0.30]),
        ("cdna3", [0.415, 0.80, 4.0, 0.40]),
        ("a generation to come", [0.77, 0.86, 2.64, 0.37]),
    ];
    for (generation, values) in fitted {
        for (found, value) in at(generation, "f16").into_iter().zip(values) {
            assert!((found / value - 1.0).abs() < 1e-3, "{generation}: {found} instead of {value}");
        }
    }
    assert!((at("default", "fp8-block")[2] - 5.14).abs() < 0.01); // 2.5 us more than in 16 bits
    let share = |keys: &[&str], format: &[&str]| {
        let memory = serving.decode_attention.memory.as_ref().unwrap();
        memory.at(&Keys { generation: keys, format }).value
    };
    assert!((share(&["hopper"], &["cache-16", "head-128"]) - 0.86).abs() < 1e-3);
    assert!((share(&["hopper"], &["cache-8", "head-128"]) - 0.86 * 0.95).abs() < 1e-3);
}

#[test]
fn engines_got_faster_over_the_years() {
    // vLLM, TensorRT-LLM: host time of a step with 32 sequences. llama.cpp: time per kernel.
    let host = |slug: &str| {
        let engine = engine(slug);
        number(&engine, "host.per_step") + 32.0 * number(&engine, "host.per_sequence")
    };
    assert!(host("vllm-2024") > 5.0 * host("vllm-2026"));
    assert!(host("sglang-2024") > host("sglang-2026"));
    assert!(host("nim-2024") > host("tensorrt-llm-2026"));
    assert!(host("transformers") > host("vllm-2026"));
    let kernel = |year: &str| number(&engine(&format!("llama-cpp-cuda-{year}")), "elementwise.launch");
    assert!(kernel("2023") > kernel("2024") && kernel("2024") > kernel("2025") && kernel("2025") > kernel("2026"));
}

#[test]
fn older_profiles_of_llama_cpp_differ_in_what_the_builds_differed_in() {
    for backend in ["cuda", "metal", "rocm", "vulkan"] {
        let [oldest, newest] =
            ["2023", "2026"].map(|year| engine(&format!("llama-cpp-{backend}-{year}")).scheduling.clone());
        assert!(!oldest.flash_attention.unwrap().value && newest.flash_attention.unwrap().value, "{backend}");
        assert!(!oldest.sliding_windows.unwrap().value && newest.sliding_windows.is_none(), "{backend}");
        let in_flight =
            [oldest.micro_batches_in_flight, newest.micro_batches_in_flight].map(|count| count.unwrap().value);
        assert_eq!(in_flight, [1, 4], "{backend}");
    }
    let [cublas, mmq] = ["llama-cpp-cuda-2024", "llama-cpp-cuda-2024-mmq"].map(engine);
    assert!(number(&cublas, "gemm.expand_bytes") > 2.0); // read quantized, written and read in 16 bits
    assert_eq!(number(&cublas, "gemm.unpack_operations"), 0.0);
    assert!(mmq.gemm.expand_bytes.is_none() && number(&mmq, "gemm.unpack_operations") > 0.0);
}

#[test]
fn children_keep_what_they_do_not_change() {
    let [serving, vllm] = ["serving", "vllm-2024"].map(engine);
    assert_eq!(vllm.gemm, serving.gemm);
    assert_eq!(vllm.host.per_sequence.as_ref().unwrap().value, Seconds::from_micros(60.0));
    assert_eq!(vllm.host.per_prompt_step, serving.host.per_prompt_step);
    let nim = engine("nim-2024");
    assert_eq!(nim.experts, engine("tensorrt-llm-0.9").experts);
    assert_eq!(nim.experts.compute.as_ref().unwrap().value, Positive(0.9));
}

#[test]
fn what_no_one_measured_is_called_assumed_and_has_wide_intervals() {
    for slug in ["transformers", "autoawq", "deepspeed", "neuronx", "optimum-habana", "mlc", "lmdeploy"] {
        let engine = engine(slug);
        let host = engine.host.per_step.as_ref().unwrap();
        assert_eq!(host.kind, Provenance::Assumed, "{slug}");
        assert!(
            number(&engine, "uncertainty.decode") > number(&self::engine("serving"), "uncertainty.decode"),
            "{slug}"
        );
    }
}
