use super::embedded::Embedded;
use super::shelf::Shelf;
use super::*;
use crate::model::Totals;
use crate::profile::folded;
use crate::units::Bytes;
use proptest::prelude::*;

const GOOD: &str = "schema_version = 1\nslug = \"one-7b\"\nname = \"acme/One-7B\"\nfamily = \"totals\"\n[totals]\n\
                    params_total = 7_000_000_000\nparams_active = 7_000_000_000\nbits_per_weight = 16.0\n\
                    kv_bytes_per_token = \"128 KiB\"\n";

const fn profile(slug: &'static str, aliases: &'static [&'static str], text: &'static str) -> Embedded {
    Embedded { slug, name: slug, family: "totals", generation: None, aliases, file: "in memory", text }
}

fn shelf() -> Shelf<Model> {
    Shelf::embedded(&[
        profile("one-7b", &["The One", "shared name"], GOOD),
        profile("broken", &["shared_name"], "this is not TOML"),
        profile("three", &["one 7b"], "nor is this"),
    ])
}

#[test]
fn a_name_is_found_however_it_is_spelled() {
    let shelf = shelf();
    for name in ["one-7b", "ONE_7B", "One 7B", "one7b", "the-one", " The One "] {
        assert_eq!(shelf.get(name).unwrap().name, "acme/One-7B", "{name}");
    }
}

#[test]
fn a_profile_is_parsed_once_and_alone() {
    let shelf = shelf();
    // The two others would fail if they were parsed.
    let first = shelf.get("one-7b").unwrap();
    assert!(Arc::ptr_eq(&first, &shelf.get("the one").unwrap()));
    assert!(Arc::ptr_eq(&first, &shelf.clone().get("the one").unwrap()));
    assert!(matches!(shelf.get("broken").unwrap_err(), CatalogError::Profile(error) if error.file == "in memory"));
}

#[test]
fn a_shared_alias_is_an_error_that_lists_the_candidates() {
    let error = shelf().get("Shared Name").unwrap_err();
    let CatalogError::Ambiguous { candidates, .. } = &error else { panic!("{error}") };
    assert_eq!(candidates, &["broken", "one-7b"]);
    assert!(error.to_string().contains("broken, one-7b"));
}

#[test]
fn a_slug_beats_an_alias() {
    assert_eq!(shelf().find("one 7b").unwrap().head().slug, "one-7b");
}

#[test]
fn an_unknown_name_suggests_the_nearest() {
    let error = shelf().get("one-8b").unwrap_err();
    assert!(error.to_string().contains("did you mean `one-7b`?"), "{error}");
    assert!(error.to_string().contains("Catalog::models() lists the 3 that are known"), "{error}");
}

#[test]
fn a_part_of_a_name_suggests_all_that_contain_it() {
    let error = shelf().get("Shared").unwrap_err();
    assert!(error.to_string().contains("did you mean `broken` or `one-7b`?"), "{error}");
}

#[test]
fn the_users_profile_shadows_slug_and_aliases() {
    let base = Catalog { models: shelf(), ..Catalog::empty() };
    let totals = Totals::dense(1_000_000, 16.0, Bytes::from_kib(1.0));

    let same_slug = base.with_model(Model::from_totals("One 7B", totals.clone()));
    assert_eq!(same_slug.model("one-7b").unwrap().params_total(), 1_000_000);
    assert_eq!(same_slug.models().count(), 3);
    // The names of the shadowed profile are gone with it.
    assert!(matches!(same_slug.model("the one").unwrap_err(), CatalogError::NotFound { .. }));

    let mut alias_only = Model::from_totals("mine", totals);
    alias_only.aliases = vec!["one-7b".into(), "shared name".into()];
    let shadowed = base.with_model(alias_only);
    for name in ["one-7b", "shared name"] {
        assert_eq!(shadowed.model(name).unwrap().slug, "mine");
    }
    assert_eq!(shadowed.model("the one").unwrap().slug, "one-7b");
    // The catalog it was made from is as before.
    assert_eq!(base.model("one-7b").unwrap().params_total(), 7_000_000_000);
}

#[test]
fn listing_parses_nothing() {
    let shelf = shelf();
    let slugs: Vec<&str> = shelf.iter().map(|entry| entry.head().slug.as_str()).collect();
    assert_eq!(slugs, ["broken", "one-7b", "three"]);
}

/// Every embedded profile can be parsed, its head is what the build script read, and its names lead to it alone.
fn check_embedded<T: Profile>(profiles: &[Embedded]) {
    let shelf = Shelf::<T>::embedded(profiles);
    assert_eq!(shelf.iter().count(), profiles.len());
    for entry in shelf.iter() {
        let profile = entry.load().unwrap();
        assert_eq!(entry.head(), &profile.head(), "{}", entry.file());
        for name in entry.head().names() {
            assert_eq!(shelf.find(name).unwrap().head().slug, entry.head().slug, "{name}");
        }
    }
}

#[test]
fn embedded_devices_are_consistent() {
    check_embedded::<Device>(embedded::DEVICES);
}

#[test]
fn embedded_models_are_consistent() {
    check_embedded::<Model>(embedded::MODELS);
}

#[test]
fn embedded_engines_are_consistent() {
    check_embedded::<Engine>(embedded::ENGINES);
}

proptest! {
    #[test]
    fn any_name_is_answered(name in ".{0,40}") {
        let _ = shelf().get(&name);
        let once = folded(&name);
        prop_assert_eq!(folded(&once), once);
    }
}
