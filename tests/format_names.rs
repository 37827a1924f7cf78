//! Names of formats: what must be read, what must be refused, and what no text may do.

use llm_roofline::format::{
    FileTensorsError, FormatError, GgufFileType, GgufType, KvFormat, NumberFormat, TensorClass, TensorPlace,
    WeightFormat,
};
use llm_roofline::units::Bytes;
use proptest::prelude::*;

/// Names under which published measurements list their weights.
const MEASURED: &[&str] = &[
    "fp32",
    "fp16",
    "bf16",
    "fp8",
    "fp8-block",
    "int8",
    "int4",
    "nvfp4",
    "mxfp4",
    "awq-int4",
    "gptq-int4",
    "gptq-int8",
    "q4_0",
    "q4_1",
    "q5_0",
    "q8_0",
    "q2_k",
    "q2_k_s",
    "q3_k_s",
    "q4_k_s",
    "q4_k_m",
    "q5_k_s",
    "q6_k",
    "iq2_xxs",
    "iq2_xs",
    "iq2_m",
    "iq3_xxs",
    "iq3_s",
    "iq4_nl",
    "iq4_xs",
    "ud-q3_k_s",
    "ud-q3_k_xl",
    "ud-q4_k_xl",
    "ud-q8_k_xl",
    "ud-iq2_xxs",
    "ud-iq3_xxs",
    "mlx-int4",
    "mlx-int4-g32",
    "mlx-int5",
    "mlx-int5-g32",
    "mlx-int8",
    "exl2-2.5bpw",
    "exl2-3.0bpw",
    "exl2-4.0bpw",
    "exl2-5.0bpw",
    "ds4-q2-mix",
    "ik-mix-iq3_k",
    "ik-mix-iq4_k-iq5_k",
];

#[test]
fn measured_names_are_canonical() {
    for name in MEASURED {
        let format: WeightFormat = name.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(format.to_string(), *name);
        assert_eq!(name.to_uppercase().parse(), Ok(format), "in capitals");
    }
}

#[test]
fn listed_names_are_read_and_written_alike() {
    for name in WeightFormat::names() {
        let format: WeightFormat = name.parse().unwrap_or_else(|error| panic!("{error}"));
        let spelled = format.to_string();
        assert_eq!(spelled.parse(), Ok(format), "{name} becomes {spelled}");
    }
    for format in KvFormat::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
}

#[test]
fn prefix_gguf_separates_files_from_checkpoints() {
    assert_eq!("bf16".parse(), Ok(WeightFormat::Bf16));
    assert_eq!("gguf-bf16".parse(), Ok(WeightFormat::Gguf(GgufFileType::BF16)));
    assert_eq!("nvfp4".parse(), Ok(WeightFormat::Nvfp4));
    assert_eq!("gguf-q4_k_m".parse(), Ok(WeightFormat::Gguf(GgufFileType::Q4_K_M)));
}

#[test]
fn errors_help() {
    let error = "q4_k_n".parse::<WeightFormat>().unwrap_err().to_string();
    assert_eq!(error, "unknown weight format `q4_k_n` (did you mean `q4_k_m`?)");
    let error = "gptq-int9".parse::<WeightFormat>().unwrap_err();
    assert_eq!(error.to_string(), "`gptq-int9`: bits is 9, expected an integer from 2 to 8");
    let error = "awq-int4-g0".parse::<WeightFormat>().unwrap_err();
    assert!(matches!(error, FormatError::OutOfRange { what: "group size", .. }), "{error}");
    for bits in ["bits-0", "bits--4", "bits-nan", "bits-inf", "exl2-1e9bpw"] {
        assert!(matches!(bits.parse::<WeightFormat>(), Err(FormatError::OutOfRange { .. })), "{bits}");
    }
    let error = "q8_1".parse::<KvFormat>().unwrap_err().to_string();
    assert!(error.contains("did you mean `q8_0`"), "{error}");
}

#[test]
fn numbers_in_files_are_those_of_ggml() {
    // ggml.h and llama.h of llama.cpp.
    for (id, name, block, bytes) in
        [(8, "Q8_0", 32, 34), (14, "Q6_K", 256, 210), (30, "BF16", 1, 2), (39, "MXFP4", 32, 17)]
    {
        let known = GgufType::from_id(id).expect("a known number");
        assert_eq!((known.name(), known.block_size(), known.block_bytes(), known.id()), (name, block, bytes, id));
    }
    for removed in [4, 5, 31, 32, 33, 36, 37, 38, 1000, u32::MAX] {
        assert_eq!(GgufType::from_id(removed), None);
    }
    assert_eq!(GgufFileType::from_id(15), Some(GgufFileType::Q4_K_M));
    assert_eq!(GgufFileType::from_id(33), None);
}

#[test]
fn weight_only_formats_multiply_in_16_bits() {
    for name in ["awq-int4", "gptq-int8", "q4_k_m", "nf4", "mlx-int4", "exl2-4.0bpw", "int4", "bits-4.5", "mxfp4_moe"] {
        let format: WeightFormat = name.parse().unwrap();
        assert!(format.is_weight_only(), "{name}");
        assert_eq!(format.compute_format(), NumberFormat::Fp16, "{name}");
    }
    let computed = [("fp8", NumberFormat::Fp8), ("int8", NumberFormat::Int8), ("nvfp4", NumberFormat::Fp4)];
    for (name, expected) in computed {
        let format: WeightFormat = name.parse().unwrap();
        assert!(!format.is_weight_only(), "{name}");
        assert_eq!(format.compute_format(), expected, "{name}");
    }
}

#[test]
fn checkpoints_keep_sensitive_tensors_at_16_bits() {
    let place = |class| TensorPlace::in_layer(class, 4096, 4096, 3, 32);
    for name in ["awq-int4", "gptq-int4", "fp8", "fp8-block", "nvfp4", "mxfp4", "int8", "nf4"] {
        let format: WeightFormat = name.parse().unwrap();
        for class in [TensorClass::TokenEmbedding, TensorClass::LmHead, TensorClass::Router, TensorClass::Vector] {
            assert_eq!(format.bits_per_weight(&place(class)), 16.0, "{name} {class:?}");
        }
        assert!(format.bits_per_weight(&place(TensorClass::FfnUp)) < 8.1, "{name}");
    }
}

#[test]
fn rows_that_blocks_do_not_divide_fall_back() {
    // llama.cpp: Q4_K needs multiples of 256 and becomes Q5_0, Q6_K becomes Q8_0; below 32 only F16 is left.
    let gate = |in_features| TensorPlace::in_layer(TensorClass::FfnGate, in_features, 1024, 8, 32);
    assert_eq!(GgufFileType::Q4_K_M.tensor_type(&gate(2816)), GgufType::Q4_K);
    assert_eq!(GgufFileType::Q4_K_M.tensor_type(&gate(2880)), GgufType::Q5_0);
    assert_eq!(GgufFileType::Q6_K.tensor_type(&gate(2880)), GgufType::Q8_0);
    assert_eq!(GgufFileType::IQ4_XS.tensor_type(&gate(704)), GgufType::IQ4_NL);
    assert_eq!(GgufFileType::Q4_K_M.tensor_type(&gate(100)), GgufType::F16);
}

#[test]
fn eight_experts_get_rules_of_their_own() {
    // Mixtral: keys and values in Q8_0, attention output in Q5_K.
    let place = |class| TensorPlace { experts: 8, ..TensorPlace::in_layer(class, 4096, 1024, 8, 32) };
    assert_eq!(GgufFileType::Q4_K_M.tensor_type(&place(TensorClass::AttentionV)), GgufType::Q8_0);
    assert_eq!(GgufFileType::Q4_K_M.tensor_type(&place(TensorClass::AttentionK)), GgufType::Q8_0);
    assert_eq!(GgufFileType::Q4_K_M.tensor_type(&place(TensorClass::AttentionOutput)), GgufType::Q5_K);
}

#[test]
fn tensors_of_a_file_are_checked() {
    let empty = WeightFormat::from_tensors("empty", []);
    assert_eq!(empty, Err(FileTensorsError::Empty { name: "empty".into() }));
    for bytes in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
        let bad = WeightFormat::from_tensors("bad", [(TensorClass::FfnUp, 0, 100, Bytes::from_bytes(bytes))]);
        assert!(matches!(bad, Err(FileTensorsError::BadSize { .. })), "{bytes}");
    }
    let far = WeightFormat::from_tensors("far", [(TensorClass::FfnUp, u32::MAX, 8, Bytes::from_bytes(8.0))]);
    assert!(matches!(far, Err(FileTensorsError::TooManyLayers { .. })));
}

#[test]
fn tensors_that_a_file_lacks_take_the_average_of_their_class() {
    let tensors =
        [(TensorClass::FfnUp, 0, 8, Bytes::from_bytes(8.0)), (TensorClass::LmHead, 0, 8, Bytes::from_bytes(16.0))];
    let file = WeightFormat::from_tensors("some.gguf", tensors).unwrap();
    assert_eq!(file.to_string(), "some.gguf");
    let bits = |class| file.bits_per_weight(&TensorPlace::in_layer(class, 8, 8, 7, 32));
    assert_eq!((bits(TensorClass::FfnUp), bits(TensorClass::LmHead), bits(TensorClass::FfnDown)), (8.0, 16.0, 12.0));
}

fn any_format() -> impl Strategy<Value = WeightFormat> {
    let names: Vec<&'static str> = WeightFormat::names().chain(MEASURED.iter().copied()).collect();
    prop_oneof![
        proptest::sample::select(names).prop_map(|name| name.parse().unwrap()),
        (8u32..=65_536).prop_map(|group| WeightFormat::Awq { group }),
        (2u8..=8, proptest::option::of(8u32..=65_536), any::<bool>())
            .prop_map(|(bits, group, symmetric)| WeightFormat::Gptq { bits, group, symmetric }),
        (2u8..=8, 8u32..=65_536).prop_map(|(bits, group)| WeightFormat::Mlx { bits, group }),
        (100u32..=64_000).prop_map(|millibits| WeightFormat::Exl2 { millibits }),
        (100u32..=64_000).prop_map(|millibits| WeightFormat::Uniform { millibits }),
    ]
}

proptest! {
    #[test]
    fn text_never_panics(text in ".{0,40}") {
        let _ = text.parse::<WeightFormat>();
        let _ = text.parse::<KvFormat>();
    }

    #[test]
    fn text_like_a_name_never_panics(text in "(awq|gptq|mlx|exl2|bits|ud|gguf)-?(int)?[0-9.]{0,12}(-g|-sym|bpw|-channel)?[0-9-]{0,12}") {
        let _ = text.parse::<WeightFormat>();
    }

    #[test]
    fn display_is_read_back(format in any_format()) {
        prop_assert_eq!(format.to_string().parse::<WeightFormat>(), Ok(format));
    }

    #[test]
    fn bits_are_sane_everywhere(
        format in any_format(),
        class in proptest::sample::select(TensorClass::ALL.to_vec()),
        in_features in 1u64..100_000,
        layer in 0u32..100,
        more_layers in 1u32..100,
        experts in prop_oneof![Just(0u32), Just(8), 1u32..512],
    ) {
        let place = TensorPlace { experts, ..TensorPlace::in_layer(class, in_features, 4096, layer, layer + more_layers) };
        let bits = format.bits_per_weight(&place);
        prop_assert!(bits.is_finite() && bits > 0.0 && bits <= 64.0, "{bits}");
        if class == TensorClass::Vector {
            prop_assert!(bits >= 16.0);
        }
    }

    #[test]
    fn file_types_only_use_types_that_divide_the_row(
        file in proptest::sample::select(GgufFileType::ALL.to_vec()),
        class in proptest::sample::select(TensorClass::ALL.to_vec()),
        in_features in 1u64..20_000,
        layer in 0u32..80,
    ) {
        let chosen = file.tensor_type(&TensorPlace::in_layer(class, in_features, 64, layer, 80));
        prop_assert_eq!(in_features % chosen.block_size(), 0);
    }
}
