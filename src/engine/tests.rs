use super::*;
use crate::units::Seconds;

const BASE: &str = r#"
schema_version = 1
slug = "base"
name = "base"
version = "1"
[sources]
lab = "a laboratory"
[gemm.compute]
value = 0.7
kind = "fitted"
source = "lab"
by_generation.hopper = { value = 0.9, kind = "fitted", source = "lab" }
[host]
per_step = { value = "1 ms", kind = "fitted", source = "lab" }
"#;

const CHILD: &str = r#"
schema_version = 1
slug = "child"
name = "child"
version = "2"
extends = "base"
[sources]
field = "the field"
[gemm.compute]
value = 0.6
kind = "measured"
source = "field"
"#;

fn find(slug: &str) -> Option<&'static str> {
    (slug == "base").then_some(BASE)
}

#[test]
fn the_ideal_engine_is_valid_and_has_no_losses() {
    let engine = Engine::ideal();
    assert!(engine.parameters().is_empty());
    assert_eq!(Engine::from_toml(&engine.to_toml(), "copy").unwrap(), engine);
}

#[test]
fn a_profile_keeps_what_it_does_not_change() {
    let child = Engine::from_toml_over(CHILD, "child.toml", find).unwrap();
    let compute = child.gemm.compute.as_ref().unwrap();
    assert_eq!((compute.value, compute.source.as_str()), (Positive(0.6), "field"));
    assert_eq!(compute.by_generation["hopper"].value, 0.9);
    assert_eq!(child.host.per_step.as_ref().unwrap().value, Seconds::from_millis(1.0));
    assert_eq!(child.version, "2");
    // Written out it stands for itself.
    let alone = Engine::from_toml(&child.to_toml(), "copy").unwrap();
    assert_eq!(alone, Engine { extends: None, ..child });
}

#[test]
fn a_rule_of_memory_is_replaced_as_a_whole() {
    let tiers = "profiled_tokens = { value = 8192, below = [{ memory = \"70 GiB\", value = 2048 }], kind = \"assumed\", source = \"lab\" }\n\
                 block_tokens = { value = 16, kind = \"assumed\", source = \"lab\" }\n";
    let base: &'static str = Box::leak(format!("{BASE}\n[memory]\n{tiers}").into_boxed_str());
    let child =
        format!("{CHILD}\n[memory]\nprofiled_tokens = {{ value = 1, kind = \"measured\", source = \"field\" }}\n");
    let child = Engine::from_toml_over(&child, "child.toml", |slug| (slug == "base").then_some(base)).unwrap();
    assert!(child.memory.profiled_tokens.as_ref().unwrap().below.is_empty());
    assert_eq!(child.memory.block_tokens.as_ref().unwrap().value, 16);
    assert_eq!(Engine::from_toml(&child.to_toml(), "copy").unwrap().memory, child.memory);
    for (key, right, wrong) in [
        ("profiled_tokens", "value = 2048", "value = 0"),
        ("profiled_tokens", "\"lab\" }\nblock", "\"hearsay\" }\nblock"),
        ("block_tokens", "value = 16", "value = 1000000000"),
        ("block_token", "block_tokens", "block_token"),
    ] {
        let text = base.replace(right, wrong);
        let error = Engine::from_toml(&text, "mine.toml").unwrap_err();
        assert_eq!(error.line, Some(text.lines().position(|line| line.starts_with(key)).unwrap() + 1), "{error}");
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn bad_profiles_name_key_line_and_limit() {
    let above_one = BASE.replace("gemm.compute", "gemm.memory").replace("value = 0.7", "value = 1.5");
    let error = Engine::from_toml(&above_one, "mine.toml").unwrap_err();
    assert!(error.to_string().contains("gemm.memory") && error.to_string().contains("1.5"), "{error}");
    let unsourced = BASE.replace("source = \"lab\" }\n", "source = \"hearsay\" }\n");
    let error = Engine::from_toml(&unsourced, "mine.toml").unwrap_err();
    assert!(error.to_string().contains("names the source `hearsay`"), "{error}");
    let mistyped = BASE.replace("per_step", "per_stepp");
    let error = Engine::from_toml(&mistyped, "mine.toml").unwrap_err();
    assert!(error.to_string().contains("did you mean `per_step`"), "{error}");
    assert_eq!(error.line, Some(1 + mistyped.lines().position(|line| line.starts_with("per_stepp")).unwrap()));
    let mistyped = CHILD.replace("[gemm.compute]", "[gemm.computer]");
    let error = Engine::from_toml_over(&mistyped, "mine.toml", find).unwrap_err();
    assert!(error.to_string().contains("did you mean `compute`"), "{error}");
    let orphan = CHILD.replace("\"base\"", "\"nothing\"");
    let error = Engine::from_toml_over(&orphan, "mine.toml", find).unwrap_err();
    assert!(error.to_string().contains("key `extends`: names `nothing`"), "{error}");
    assert!(Engine::from_toml_over(CHILD, "circle", |_| Some(CHILD)).is_err());
}

#[test]
fn parameters_are_set_by_name() {
    let mut engine = Engine::from_toml(BASE, "base").unwrap();
    engine.set_parameter("gemm.compute", 0.5).unwrap();
    engine.set_parameter("gemm.compute.by_generation.hopper", 0.8).unwrap();
    let keys = Keys { generation: &["hopper"], format: &[] };
    assert_eq!(engine.gemm.compute.as_ref().unwrap().at(&keys).value, 0.5 * 0.8);
    assert!(engine.set_parameter("gemm.memory", 0.5).is_none());
    assert!(engine.set_parameter("gemm.compute.by_generation.ampere", 0.5).is_none());
    assert!(engine.set_parameter("gemm", 0.5).is_none());
    engine.set_parameter("gemm.compute", f64::NAN).unwrap();
    let error = engine.check().unwrap_err().to_string();
    assert_eq!(error, "base: key `gemm.compute`: is NaN, expected a positive finite number");
}
