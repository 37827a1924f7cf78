//! Parameters, active weights, cache and state of every model profile against published numbers.

use llm_roofline::model::{Architecture, Model};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn profile(slug: &str) -> Model {
    let path = folder("model-profiles").join(format!("{slug}.toml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Model::from_toml(&text, slug).unwrap()
}

fn architecture(slug: &str) -> Architecture {
    profile(slug).architecture().unwrap().clone()
}

/// One row of `published_params.csv`; the file's header explains the columns.
struct Row {
    slug: String,
    published: u64,
    counts_mtp: bool,
    outside: i64,
    tolerance_pct: f64,
    active: Option<u64>,
    reason: String,
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(folder("tests/data/published_params.csv")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let read = |line: &str| {
        let cells: Vec<&str> = line.splitn(7, ',').collect();
        Row {
            slug: cells[0].into(),
            published: cells[1].parse().unwrap(),
            counts_mtp: cells[2] == "1",
            outside: cells[3].parse().unwrap(),
            tolerance_pct: cells[4].parse().unwrap(),
            active: cells[5].parse().ok(),
            reason: cells[6].trim_matches('"').into(),
        }
    };
    lines.map(read).collect()
}

#[test]
fn every_profile_has_a_published_total_and_agrees_with_it() {
    let mut exact = 0;
    let mut wrong = Vec::new();
    for row in rows() {
        let model = profile(&row.slug);
        let mtp = model.architecture().unwrap().mtp.map_or(0, |mtp| mtp.modules * mtp.params_per_module);
        let counted = if row.counts_mtp { mtp } else { 0 };
        let total = (model.params_total() + counted) as i64 + row.outside;
        let difference = total - row.published as i64;
        let allowed = row.tolerance_pct / 100.0 * row.published as f64;
        exact += u32::from(difference == 0);
        if difference.unsigned_abs() as f64 > allowed || (row.tolerance_pct > 0.0 && row.reason.is_empty()) {
            wrong.push(format!("{}: {total}, published {}, off by {difference}", row.slug, row.published));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(exact >= 141, "only {exact} profiles agree to the parameter");
}

#[test]
fn the_table_and_the_profiles_are_the_same_set() {
    let mut listed: Vec<String> = rows().into_iter().map(|row| row.slug).collect();
    let entries = std::fs::read_dir(folder("model-profiles")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<String> =
        entries.map(|name| name.to_string_lossy().trim_end_matches(".toml").to_string()).collect();
    listed.sort();
    files.sort();
    assert_eq!(listed, files);
    for slug in files {
        assert_eq!(profile(&slug).slug, slug);
    }
}

#[test]
fn active_weights_agree_with_an_independent_count() {
    let mut compared = 0;
    for row in rows() {
        let Some(expected) = row.active else { continue };
        let active = profile(&row.slug).params_active();
        let off = (active as f64 / expected as f64 - 1.0).abs();
        assert!(off < 1e-3, "{}: {active} active, independently {expected}", row.slug);
        compared += 1;
    }
    assert!(compared >= 160);
}

#[test]
fn profiles_state_what_the_table_leaves_outside() {
    for row in rows().into_iter().filter(|row| row.tolerance_pct == 0.0) {
        let model = profile(&row.slug);
        let published = model.published.clone().unwrap();
        let outside = published.params_outside_decoder.unwrap_or(0);
        assert_eq!(published.params_total, Some(row.published), "{}", row.slug);
        assert_eq!(model.params_total() as i64 + outside, row.published as i64, "{}", row.slug);
    }
}

#[test]
fn names_of_profiles_are_unique() {
    let mut seen = std::collections::BTreeMap::new();
    for row in rows() {
        let model = profile(&row.slug);
        let mut names: Vec<String> =
            model.aliases.iter().chain([&model.slug, &model.name]).map(|name| name.to_lowercase()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let other = seen.insert(name.clone(), row.slug.clone());
            assert_eq!(other, None, "`{name}` also names {}", row.slug);
        }
    }
}

/// DeepSeek-AI, Insights into DeepSeek-V3 (ISCA 2025, arXiv 2505.09343), table 1, in kilobytes of 1,000 bytes at 16 bits; Llama 2 7B
/// by hand: 2 x 32 layers x 4,096 x 2 bytes.
#[test]
fn cache_bytes_per_token() {
    let expected = [
        ("deepseek-v3", 70_272.0),
        ("qwen2.5-72b", 327_680.0),
        ("llama-3.1-405b", 516_096.0),
        ("llama-2-7b", 524_288.0),
        ("gpt-oss-120b", 2.0 * 36.0 * 2.0 * 8.0 * 64.0),
        ("gemma-3-27b", 2.0 * 62.0 * 2.0 * 16.0 * 128.0),
        // 35 layers, of which the last 15 read the caches of others; 2 heads of 256.
        ("gemma-3n-e4b", 2.0 * 20.0 * 2.0 * 2.0 * 256.0),
        // Latent of 576 in 24 of 93 layers.
        ("kimi-k3", 2.0 * 24.0 * 576.0),
        // Latent of 576 and an index key of 128.
        ("deepseek-v3.2", 2.0 * 61.0 * (576.0 + 128.0)),
    ];
    for (slug, bytes) in expected {
        assert_eq!(2.0 * architecture(slug).kv_elements_per_token(), bytes, "{slug}");
    }
}

/// By hand from the configurations: state matrix, and the last inputs of a convolution of width 4.
#[test]
fn state_elements_of_recurrent_models() {
    // 64 layers; 80 heads of 64 with 128 states; 3 inputs of 5,120 + 2 x 1 x 128 channels.
    assert_eq!(architecture("mamba2-2.7b").state_elements(), 64 * (80 * 64 * 128 + 3 * (5_120 + 256)));
    // 36 of 48 layers; 32 value heads of 128 x 128; 3 inputs of 2 x 16 x 128 + 32 x 128 channels.
    assert_eq!(architecture("qwen3-next-80b-a3b").state_elements(), 36 * (32 * 128 * 128 + 3 * (4_096 + 4_096)));
    // 24 of 52 layers; 128 heads of 64 with 128 states; 3 inputs of 8,192 + 2 x 8 x 128 channels.
    assert_eq!(architecture("nemotron-h-8b").state_elements(), 24 * (128 * 64 * 128 + 3 * (8_192 + 2_048)));
    assert_eq!(architecture("llama-3.1-8b").state_elements(), 0);
}

#[test]
fn windows_bound_the_cache_of_long_contexts() {
    // 18 of 36 layers keep all of 131,072 tokens, 18 keep 128 (gpt-oss model card); 2 x 8 heads of 64.
    let kept = architecture("gpt-oss-120b").kv_elements(131_072);
    assert_eq!(kept, 18.0 * (131_072.0 + 128.0) * 2.0 * 8.0 * 64.0);
}
