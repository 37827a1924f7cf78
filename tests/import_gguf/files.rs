//! Whole files, cut-off files, split models, and headers written by other tools.

use super::builder::{F32, Gguf, llama_8b, shape};
use llm_roofline::import::ImportError;
use llm_roofline::import::gguf::Header;
use std::fs;
use std::path::PathBuf;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/gguf").join(name)
}

/// A directory of this test's own, removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_header_alone_is_enough_and_says_what_is_missing() {
    let file = Gguf::new("llama").tensor("t", F32, &[100]);
    let header = file.header();
    let padding = header.data_offset().as_bytes() - file.bytes().len() as f64;
    assert!((0.0..32.0).contains(&padding));
    assert_eq!(header.missing_bytes().as_bytes(), padding + 400.0);

    let mut whole = file.bytes();
    whole.resize(header.data_offset().as_bytes() as usize + 400, 0);
    assert_eq!(Header::read(&whole).unwrap().missing_bytes().as_bytes(), 0.0);
    assert_eq!(Header::read(&whole[..whole.len() - 1]).unwrap().missing_bytes().as_bytes(), 1.0);
}

#[test]
fn files_are_opened_by_path() {
    let directory = Directory::new("files_are_opened_by_path");
    let path = directory.write("tiny-q4_k_m.gguf", &llama_8b().bytes());
    assert_eq!(Header::open(&path).unwrap().model().unwrap().weights, llama_8b().import().weights);
    let missing = Header::open(directory.0.join("none.gguf")).unwrap_err();
    assert!(matches!(&missing, ImportError::Io { file, .. } if file.ends_with("none.gguf")), "{missing}");
}

/// Tokens of an embedded vocabulary are counted, not kept.
#[test]
fn vocabularies_are_skipped() {
    let tokens = 5000u64;
    let list: Vec<u8> = (0..tokens).flat_map(|i| super::builder::string(&format!("token{i}"))).collect();
    let value = [8u32.to_le_bytes().to_vec(), tokens.to_le_bytes().to_vec(), list].concat();
    let header = Gguf::new("llama").raw("tokenizer.ggml.tokens", 9, &value).text("after", "x").header();
    assert_eq!(header.get("tokenizer.ggml.tokens").unwrap().to_string(), "an array of 5000 string");
    assert_eq!(header.get("after").unwrap().as_str(), Some("x"));
}

fn part(number: u16, count: u16, tensors: u32, names: &[&str]) -> Vec<u8> {
    let file = match number {
        0 => Gguf::new("llama")
            .counts(&[("block_count", 1), ("context_length", 100), ("embedding_length", 64)])
            .counts(&[("attention.head_count", 4)]),
        _ => Gguf::new("llama"),
    };
    let file = file.raw("split.no", 2, &number.to_le_bytes()).raw("split.count", 2, &count.to_le_bytes()).raw(
        "split.tensors.count",
        5,
        &tensors.to_le_bytes(),
    );
    names.iter().fold(file, |file, name| file.tensor(name, F32, &[64, 64])).bytes()
}

#[test]
fn split_models_are_joined_in_any_order() {
    let directory = Directory::new("split_models_are_joined_in_any_order");
    let names = ["token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"];
    let paths = [
        directory.write("m-00001-of-00003.gguf", &part(0, 3, 5, &names[..1])),
        directory.write("m-00002-of-00003.gguf", &part(1, 3, 5, &names[1..])),
        directory.write("m-00003-of-00003.gguf", &part(2, 3, 5, &["blk.0.attn_output.weight"])),
    ];
    let header = Header::read_split(paths.iter().rev()).unwrap();
    assert_eq!(header.tensors().len(), 5);
    assert_eq!(header.model().unwrap().model.params_total(), 5 * 64 * 64);

    let missing = Header::read_split(&paths[1..2]).unwrap_err();
    assert!(matches!(&missing, ImportError::MissingParts { missing, count: 3, .. } if missing[..] == [1, 3]));
    assert!(missing.to_string().contains("missing are numbers 1, 3"), "{missing}");
    let alone = Header::open(&paths[0]).unwrap().model().unwrap_err();
    assert!(matches!(&alone, ImportError::MissingParts { missing, .. } if missing[..] == [2, 3]));

    let twice = Header::read_split([&paths[0], &paths[0]]).unwrap_err();
    assert!(twice.to_string().contains("is part 1 of the model, and so is"), "{twice}");
    let other = directory.write("other.gguf", &part(1, 4, 5, &[]));
    assert!(Header::read_split([&paths[0], &other]).unwrap_err().to_string().contains("`split.count` is 4"));
    let short = directory.write("short.gguf", &part(2, 3, 5, &[]));
    let lacking = Header::read_split([&paths[0], &paths[1], &short]).unwrap_err();
    assert!(lacking.to_string().contains("`split.tensors.count` is 5, the files hold 4"), "{lacking}");
    let again = directory.write("again.gguf", &part(2, 3, 5, &names[..1]));
    assert!(Header::read_split([&paths[0], &paths[1], &again]).unwrap_err().to_string().contains("in two files"));
}

#[test]
fn headers_written_by_gguf_py_are_read() {
    // See tests/data/gguf/README.md. Totals: Hugging Face safetensors.
    let smol = Header::open(data("smollm2-135m-q8_0.gguf")).unwrap();
    assert_eq!(smol.version(), 3);
    assert_eq!(smol.alignment().as_bytes(), 32.0);
    let smol = smol.model().unwrap();
    assert_eq!(smol.model.params_total(), 134_515_008);
    assert_eq!(shape(&smol).kv_elements_per_token(), f64::from(30 * 2 * 3 * 64));
    assert_eq!(smol.model.native_format.as_deref(), Some("q8_0"));

    let gemma = Header::open(data("gemma-2-2b-bf16.gguf")).unwrap();
    assert_eq!(gemma.alignment().as_bytes(), 64.0);
    let gemma = gemma.model().unwrap();
    assert_eq!(gemma.model.params_total(), 2_614_341_888);
    assert_eq!(shape(&gemma).kv_elements(8192), f64::from(2 * 4 * 256 * 13 * (4096 + 8192)));
}

/// Some tools write counts as 64-bit integers, others as floats.
#[test]
fn counts_of_any_numeric_type() {
    for (kind, bytes) in [(10, 8192u64.to_le_bytes().to_vec()), (6, 8192f32.to_le_bytes().to_vec())] {
        let header = Gguf::new("llama").raw("llama.context_length", kind, &bytes).header();
        assert_eq!(header.get("llama.context_length").and_then(|value| value.as_count()), Some(8192));
    }
    for bytes in [0.5f32, -1.0, f32::NAN, f32::INFINITY] {
        let header = Gguf::new("llama").raw("llama.context_length", 6, &bytes.to_le_bytes()).header();
        assert_eq!(header.get("llama.context_length").and_then(|value| value.as_count()), None);
    }
}
