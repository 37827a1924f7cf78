//! Sizes of formats and of model files against published numbers.

#[path = "common/table.rs"]
mod table;

use llm_roofline::catalog::Catalog;
use llm_roofline::format::{GgufType, KvFormat, TensorClass, TensorPlace, WeightFormat};
use llm_roofline::model::Architecture;

fn deviation_pct(value: f64, expected: f64) -> f64 {
    100.0 * (value / expected - 1.0)
}

fn format(name: &str) -> WeightFormat {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn known(repository: &str) -> Architecture {
    let model = Catalog::embedded().model(repository).unwrap_or_else(|error| panic!("{error}"));
    model.architecture().cloned().unwrap_or_else(|| panic!("{repository} is known by its totals only"))
}

#[test]
fn every_published_bit_rate_is_reproduced() {
    let llama = known("meta-llama/Llama-3.1-8B");
    for row in table::rows(include_str!("data/quantization.csv")) {
        let name = row.text("format");
        let up = TensorPlace::in_layer(TensorClass::FfnUp, 4096, 14336, 0, 32);
        let found = match row.text("kind") {
            "tensor" => GgufType::ALL.iter().find(|known| known.name() == name).map(|known| known.bits_per_weight()),
            "file" => Some(8.0 * llama.weight_bytes(&format(name)).as_bytes() / llama.params_total() as f64),
            "weights" => Some(format(name).bits_per_weight(&up)),
            "expert" => {
                let expert = TensorPlace { class: TensorClass::ExpertUp, experts: 32, ..up };
                Some(format(name).bits_per_weight(&expert))
            }
            "cache" => name.parse().ok().map(|cache: KvFormat| cache.bits_per_element(128)),
            "latent" => {
                name.parse().ok().map(|cache: KvFormat| cache.sparse_latent_bytes_per_token(512, 64).as_bytes())
            }
            kind => panic!("kind {kind}"),
        };
        let found = found.unwrap_or_else(|| panic!("unknown format {name}"));
        let (expected, tolerance): (f64, f64) = (row.number("expected"), row.number("tolerance_pct"));
        let deviation = deviation_pct(found, expected);
        assert!(deviation.abs() <= tolerance, "{name}: {found} bits, published {expected} ({deviation:+.2} %)");
    }
}

#[test]
fn every_published_file_size_is_reproduced() {
    let mut compared = 0;
    for row in table::rows(include_str!("data/model_file_sizes.csv")) {
        if row.text("tolerance_pct") == "skip" {
            assert!(!row.text("why").is_empty(), "{row}");
            continue;
        }
        let mut model = known(row.text("repository"));
        if row.text("variant") == "separate_head" {
            model.tied_embeddings = false;
        }
        let found = model.weight_bytes(&format(row.text("format"))).as_gib();
        let (expected, tolerance): (f64, f64) = (row.number("size_gib"), row.number("tolerance_pct"));
        let deviation = deviation_pct(found, expected);
        println!("{deviation:+6.2} %  {found:8.3} GiB  {} {}", row.text("model"), row.text("format"));
        assert!(
            deviation.abs() <= tolerance,
            "{} {}: {found:.3} GiB, published {expected} ({deviation:+.2} %)",
            row.text("model"),
            row.text("format")
        );
        compared += 1;
    }
    assert!(compared >= 120, "{compared} rows compared");
}

#[test]
fn tensors_add_up_to_the_parameters() {
    // Published totals: safetensors indices of the repositories.
    for (repository, published) in [
        ("meta-llama/Llama-3.1-8B", 8_030_261_248_u64),
        ("openai/gpt-oss-20b", 20_914_757_184),
        ("microsoft/phi-4", 14_659_507_200),
    ] {
        let model = known(repository);
        let (mut params, mut tensors) = (0, 0);
        model.for_each_tensor(|tensor| {
            params += tensor.params;
            tensors += 1;
        });
        assert_eq!(params, model.params_total(), "{repository}");
        assert!(tensors > 5 * model.layers());
        // Biases and attention sinks are left out of the test shapes.
        assert!(deviation_pct(params as f64, published as f64).abs() < 0.01, "{repository}: {params}");
    }
}

#[test]
fn native_gpt_oss_checkpoint_has_its_published_size() {
    // Experts in MXFP4, the rest at 16 bits: the same tensors as the GGUF files that are named F16 (12.833 and 60.868 GiB,
    // lhl/strix-halo-testing).
    for (repository, gib) in [("openai/gpt-oss-20b", 12.833), ("openai/gpt-oss-120b", 60.868)] {
        let size = known(repository).weight_bytes(&format("mxfp4")).as_gib();
        assert!(deviation_pct(size, gib).abs() < 0.3, "{repository}: {size}");
    }
}

#[test]
fn classes_add_up_to_the_file() {
    let model = known("Qwen/Qwen3-30B-A3B");
    let q4 = format("q4_k_m");
    let by_class = model.weight_bytes_by_class(&q4);
    let sum: f64 = by_class.iter().map(|bytes| bytes.as_bytes()).sum();
    assert_eq!(sum, model.weight_bytes(&q4).as_bytes());
    let experts: f64 = TensorClass::ALL
        .iter()
        .zip(by_class)
        .filter(|(class, _)| class.is_expert())
        .map(|(_, bytes)| bytes.as_bytes())
        .sum();
    assert!(experts / sum > 0.9, "experts are 95 % of the weights");
}
