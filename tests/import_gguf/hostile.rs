//! Bytes that are wrong, by accident or on purpose: an error that says what and where, never a panic, never much memory.

use super::builder::{F32, Gguf, Q4_K, string};
use llm_roofline::import::ImportError;
use llm_roofline::import::gguf::{Header, Value};
use proptest::prelude::*;

/// A number of `/proc/self/status` in bytes: `VmPeak` is the most that was ever reserved, `VmHWM` the most in use.
fn status(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// How much the peak rises while the header and its model are read; 0 on systems that do not tell.
fn rise(key: &str, bytes: &[u8]) -> u64 {
    let before = status(key);
    let _ = Header::read(bytes).and_then(|header| header.model());
    status(key).zip(before).map_or(0, |(after, before)| after - before)
}

/// More than all threads of the tests reserve, far less than any of the claims below would take.
const RESERVED: u64 = 4 << 30;
/// Memory per byte of file that is allowed.
const FACTOR: usize = 24;

fn start(version: u32, tensors: u64, pairs: u64) -> Vec<u8> {
    [&b"GGUF"[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &pairs.to_le_bytes()].concat()
}

fn message(bytes: &[u8]) -> String {
    Header::read(bytes).unwrap_err().to_string()
}

#[test]
fn other_versions_and_formats_are_named() {
    assert!(message(&start(1, 0, 0)).contains("GGUF version 1, expected 2 or 3"));
    assert!(message(&start(4, 0, 0)).contains("GGUF version 4"));
    assert!(message(&start(3u32.swap_bytes(), 0, 0)).contains("big-endian"));
    assert!(message(b"tjgg\x03\0\0\0").contains("from before GGUF"));
    assert!(message(b"").contains("the file ends within the magic number"));
}

#[test]
fn claims_beyond_the_end_of_the_file_cost_nothing() {
    let long_string =
        [start(3, 0, 1), string("k"), 8u32.to_le_bytes().into(), (1u64 << 40).to_le_bytes().into()].concat();
    let array = |element: u32, len: u64| {
        let head = [string("k"), 9u32.to_le_bytes().into(), element.to_le_bytes().into()].concat();
        [start(3, 0, 1), head, len.to_le_bytes().into()].concat()
    };
    let files = [
        start(3, 1 << 36, 0),
        start(3, 1 << 40, 0),
        start(3, 1 << 63, 0),
        start(3, 0, 1 << 63),
        start(3, u64::MAX, u64::MAX),
        long_string,
        array(0, u64::MAX),
        array(8, 1 << 62),
        array(9, 1 << 62),
        array(12, u64::MAX / 8),
    ];
    for file in files {
        assert!(message(&file).contains("only"), "{}", message(&file));
        assert!(rise("VmPeak", &file) < RESERVED);
        // The same from a stream of unknown length.
        let error = Header::from_reader(&file[..], "stream", None).unwrap_err();
        assert!(error.to_string().starts_with("stream, byte"), "{error}");
    }
}

#[test]
fn memory_stays_within_a_multiple_of_the_file() {
    // The densest entries: tensors without dimensions, keys of one byte, short lists of bytes.
    let tensors: Vec<u8> =
        (0..40_000u32).flat_map(|i| [string(&format!("{i:x}")), vec![0; 4], vec![0; 4], vec![0; 8]].concat()).collect();
    let lists: Vec<u8> = (0..2000u32)
        .flat_map(|i| {
            let head = [string(&format!("{i:x}")), vec![9, 0, 0, 0], vec![0; 4]].concat();
            [head, 1024u64.to_le_bytes().to_vec(), vec![7; 1024]].concat()
        })
        .collect();
    for file in [[start(3, 40_000, 0), tensors].concat(), [start(3, 0, 2000), lists].concat()] {
        assert!(Header::read(&file).is_ok());
        assert!(rise("VmHWM", &file) < (FACTOR * file.len()) as u64, "{} of {}", rise("VmHWM", &file), file.len());
    }
}

#[test]
fn deep_nesting_is_refused() {
    let level = [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat();
    let nested = |depth: usize| {
        let inner =
            [level.repeat(depth), 4u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec(), vec![0; 4]].concat();
        [start(3, 0, 1), string("k"), 9u32.to_le_bytes().to_vec(), inner].concat()
    };
    assert!(matches!(Header::read(&nested(3)).unwrap().get("k"), Some(Value::Array(array)) if array.len == 1));
    assert!(message(&nested(5000)).contains("deeper than the limit of 16"));
}

#[test]
fn bad_entries_are_named_with_their_place() {
    let tensor = |name: &str, shape: &[u64], kind| Gguf::new("llama").tensor(name, kind, shape).bytes();
    let at = start(3, 1, 1).len() + string("general.architecture").len() + 4 + string("llama").len();
    let expect = |file: &[u8], what: &str| {
        let Err(ImportError::Gguf { offset, what: found, .. }) = Header::read(file) else { panic!() };
        assert!(found.contains(what), "{found}");
        assert_eq!(offset, at as u64);
    };
    expect(&tensor("t", &[1 << 32, 1 << 32], F32), "more than the limit of 17592186044416 weights");
    expect(&tensor("t", &[u64::MAX, u64::MAX, 4], F32), "more than the limit");
    expect(&tensor("t", &[0, u64::MAX], F32), "dimension of 0");
    expect(&tensor("t", &[1; 5], F32), "has 5 dimensions, the limit is 4");
    expect(&tensor("t", &[100], Q4_K), "rows of 100 weights, not a multiple of the block of Q4_K: 256");
    expect(&tensor("t", &[100], 31), "unknown type 31 (removed from GGML");
    expect(&tensor("t", &[100], u32::MAX), "unknown type 4294967295");
    expect(&tensor(&"t".repeat(2000), &[1], F32), "2000 bytes, the limit is 1024");

    let twice = Gguf::new("llama").tensor("t", F32, &[1]).tensor("t", F32, &[1]).bytes();
    assert!(message(&twice).contains("tensor `t` occurs twice"));
    assert!(message(&Gguf::new("llama").text("k", "a").text("k", "b").bytes()).contains("key `k` occurs twice"));
    let value_type = Gguf::new("llama").raw("k", 13, &[]).bytes();
    assert!(message(&value_type).contains("value of type 13"));
    let truth = Gguf::new("llama").raw("k", 7, &[2]).bytes();
    assert!(message(&truth).contains("truth value 2"));
    let text = Gguf::new("llama").raw("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).bytes();
    assert!(message(&text).contains("the value of key `k` is not UTF-8"));
    let alignment = Gguf::new("llama").raw("general.alignment", 4, &48u32.to_le_bytes()).bytes();
    assert!(message(&alignment).contains("expected a power of two"));
    let alignment = Gguf::new("llama").text("general.alignment", "32").bytes();
    assert!(matches!(Header::read(&alignment), Err(ImportError::Invalid { .. })));
}

/// A small valid file with every kind of value.
fn small() -> Gguf {
    let hybrid: &[(&str, &[u64])] = &[
        ("attn_norm", &[32]),
        ("attn_q", &[32, 32]),
        ("attn_k", &[32, 16]),
        ("attn_v", &[32, 16]),
        ("attn_output", &[32, 32]),
        ("ffn_gate_inp", &[32, 4]),
        ("ffn_up_exps", &[32, 64, 4]),
        ("ffn_down_exps", &[64, 32, 4]),
        ("ffn_up_exps.bias", &[64, 4]),
    ];
    let mut file = Gguf::new("gemma3")
        .ends(32, 50, false)
        .counts(&[("block_count", 2), ("context_length", 64), ("embedding_length", 32), ("expert_used_count", 2)])
        .counts(&[("attention.head_count", 4), ("attention.sliding_window", 8)])
        .each("attention.head_count_kv", [2, 2])
        .flags("attention.sliding_window_pattern", [true, false])
        .raw("a", 0, &[1])
        .raw("b", 1, &[255])
        .raw("c", 3, &[1, 0])
        .raw("d", 6, &1f32.to_le_bytes())
        .raw("e", 10, &1u64.to_le_bytes())
        .raw("f", 11, &(-1i64).to_le_bytes())
        .raw("g", 12, &1f64.to_le_bytes());
    for layer in 0..2 {
        file = file.layer(layer, F32, hybrid);
    }
    file
}

#[test]
fn every_truncation_is_an_error() {
    let whole = small().bytes();
    small().import();
    for len in 0..whole.len() {
        let error = Header::read(&whole[..len]).unwrap_err();
        assert!(matches!(error, ImportError::Gguf { .. }), "{len}: {error}");
        let error = Header::from_reader(&whole[..len], "stream", None).unwrap_err();
        assert!(error.to_string().contains("the file ends within"), "{len}: {error}");
    }
}

#[test]
fn every_bit_flip_is_read_or_refused() {
    let whole = small().bytes();
    for bit in 0..8 * whole.len() {
        let mut file = whole.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        let _ = Header::read(&file).and_then(|header| header.model());
    }
}

#[test]
fn extreme_numbers_in_keys_are_refused() {
    let base = small();
    let keys = [
        "block_count",
        "context_length",
        "embedding_length",
        "expert_used_count",
        "attention.head_count",
        "attention.sliding_window",
        "attention.kv_lora_rank",
        "nextn_predict_layers",
        "attention.key_length",
        "attention.shared_kv_layers",
    ];
    for key in keys {
        for value in [0u64, 1, 1 << 16, 1 << 24, 1 << 31, 1 << 40, 1 << 63, u64::MAX] {
            let key = format!("gemma3.{key}");
            let mut bytes = base.bytes();
            // Renames the key that is there, then adds the extreme one.
            if let Some(at) = bytes.windows(key.len()).position(|window| window == key.as_bytes()) {
                bytes[at] = b'G';
            }
            let added = [string(&key), 10u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat();
            let pairs = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 1;
            bytes[16..24].copy_from_slice(&pairs.to_le_bytes());
            bytes.splice(24..24, added);
            // `max_context` and windows are free; anything else must fit the tensors. Never a panic.
            let _ = Header::read(&bytes).unwrap().model();
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..400), version in 2u32..4) {
        let _ = Header::read(&tail);
        let file = [&b"GGUF"[..], &version.to_le_bytes(), &tail].concat();
        let _ = Header::read(&file).and_then(|header| header.model());
    }

    #[test]
    fn random_shapes_never_panic(
        shapes in prop::collection::vec(prop::collection::vec(1u64..1 << 20, 1..4), 13),
        counts in prop::collection::vec(prop_oneof![0u32..9, any::<u32>()], 9),
        architecture in prop::sample::select(vec!["deepseek2", "mamba2", "qwen3next", "gemma4", "llama4", "kimi-linear"]),
        family in 0usize..5,
    ) {
        let names: &[&str] = [
            &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "ffn_gate_inp", "ffn_down_exps"][..],
            &["attn_kv_a_mqa", "attn_q", "attn_kv_b", "attn_output", "indexer.attn_k.weight", "indexer.proj.weight"],
            &["ssm_in", "ssm_conv1d", "ssm_out", "ssm_dt", "ssm_a", "ssm_x"],
            &["ssm_ba", "attn_qkv", "attn_gate", "ssm_conv1d", "ssm_out"],
            &["ssm_f_a", "attn_q", "ssm_beta", "ssm_conv1d_q", "attn_output"],
        ][family];
        let keys = [
            "attention.head_count", "attention.head_count_kv", "attention.kv_lora_rank", "ssm.state_size",
            "ssm.group_count", "ssm.time_step_rank", "expert_used_count", "attention.indexer.top_k",
            "attention.sliding_window",
        ];
        let mut file = Gguf::new(architecture).ends(64, 100, true)
            .counts(&[("block_count", 1), ("context_length", 100), ("embedding_length", 64)]);
        for (key, &count) in keys.iter().zip(&counts) {
            file = file.counts(&[(key, count)]);
        }
        for (name, shape) in names.iter().zip(&shapes) {
            file = file.layer(0, F32, &[(name, shape)]);
        }
        if let Ok(header) = Header::read(&file.bytes()) {
            let _ = header.model();
        }
    }
}
