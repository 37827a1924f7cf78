//! The engine profiles of `engine-profiles/`: all of them read, resolve and name only hardware, formats and links that exist.

use llm_roofline::catalog::{Catalog, CatalogError};
use llm_roofline::engine::{Engine, Keys, Parameter, Quantity};
use llm_roofline::format::WeightFormat;
use llm_roofline::hardware::LinkKind;
use llm_roofline::profile::Provenance;
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
    assert_eq!(engines.len(), 53);
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
    let mut formats: BTreeSet<&str> = weights.iter().chain([&exl2]).map(WeightFormat::kernel_key).collect();
    // The 6-bit matrices in files of k-quants, which have kernels of their own.
    formats.insert("q6_k");
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

/// Checks how a parameter resolves for every device that it lists, and for one that no table lists.
fn check_factors<Q: Quantity>(parameter: &Parameter<Q>, format: &str, what: &str) {
    let at = |generation: &[&str], format: &[&str]| parameter.at(&Keys { generation, format });
    let base = parameter.value.number();
    let by_format = parameter.by_format.get(format).map_or(1.0, |factor| factor.value);
    for (key, factor) in &parameter.by_generation {
        let found = at(&["a generation to come", key, "never reached"], &[format, "a format to come"]);
        let expected = Q::clamped(base * factor.value * by_format);
        assert!((found.value - expected).abs() <= 1e-12 * expected, "{what}, {key}: {found:?}, expected {expected}");
        assert!(found.known, "{what}, {key}");
    }
    let unknown = at(&["a generation to come"], &[]);
    assert_eq!((unknown.value, unknown.known), (Q::clamped(base), parameter.by_generation.is_empty()), "{what}");
}

#[test]
fn factors_multiply_and_unknown_hardware_gets_the_base() {
    for engine in all() {
        let slug = &engine.slug;
        for format in ["f16", "fp8", "q4", "k-quant"] {
            let (gemm, experts) = (&engine.gemm, &engine.experts);
            for parameter in [&gemm.compute, &experts.compute].into_iter().flatten() {
                check_factors(parameter, format, slug);
            }
            for parameter in [&gemm.memory, &experts.memory].into_iter().flatten() {
                check_factors(parameter, format, slug);
            }
            for parameter in [&gemm.launch, &gemm.per_thousand_inputs].into_iter().flatten() {
                check_factors(parameter, format, slug);
            }
        }
        for format in ["cache-8", "head-64"] {
            let attention = [&engine.prefill_attention.compute, &engine.decode_attention.memory];
            for parameter in attention.into_iter().flatten() {
                check_factors(parameter, format, slug);
            }
        }
    }
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
    // Expanded to 16 bits first: read quantized, written and read again. Later the quantized matrix is multiplied as it is.
    let [cublas, mmq] = ["llama-cpp-cuda-2024", "llama-cpp-cuda-2024-mmq"].map(engine);
    assert!(number(&cublas, "gemm.expand_bytes") > 0.0 && number(&cublas, "gemm.unpack_operations") == 0.0);
    assert!(mmq.gemm.expand_bytes.is_none() && number(&mmq, "gemm.unpack_operations") > 0.0);
}

#[test]
fn children_keep_what_they_do_not_change() {
    let [serving, vllm] = ["serving", "vllm-2024"].map(engine);
    assert_eq!(vllm.gemm, serving.gemm);
    assert_eq!(vllm.host.per_prompt_step, serving.host.per_prompt_step);
    assert_ne!(
        vllm.host.per_step.as_ref().map(|own| &own.source),
        serving.host.per_step.as_ref().map(|own| &own.source)
    );
    let [nim, trtllm] = ["nim-2024", "tensorrt-llm-0.9"].map(engine);
    assert_eq!(nim.experts, trtllm.experts);
    // A new value in a child keeps the factors of the profile below.
    assert_eq!(
        trtllm.experts.compute.as_ref().map(|own| own.by_generation.keys().collect::<Vec<_>>()),
        serving.experts.compute.as_ref().map(|own| own.by_generation.keys().collect::<Vec<_>>()),
    );
}

#[test]
fn real_engines_scatter_and_those_with_few_measurements_more() {
    for engine in all().iter().filter(|engine| engine.slug != "ideal") {
        for name in ["gemm", "attention", "overhead", "decode", "prefill", "unknown_hardware"] {
            assert!(number(engine, &format!("uncertainty.{name}")) > 0.0, "{}: {name}", engine.slug);
        }
    }
    let decode = |slug: &str| number(&engine(slug), "uncertainty.decode");
    for slug in ["transformers", "autoawq", "deepspeed", "neuronx", "optimum-habana", "mlc"] {
        assert_eq!(engine(slug).uncertainty.decode.as_ref().unwrap().kind, Provenance::Assumed, "{slug}");
        assert!(decode(slug) > decode("vllm-2026"), "{slug}");
    }
}
