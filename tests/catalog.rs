//! A user's own profiles from files and folders, in tests/data.

use llm_roofline::catalog::{Catalog, CatalogError};
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

#[test]
fn a_folder_joins_the_embedded_profiles() {
    let catalog = Catalog::embedded().with_folder(data("catalog")).unwrap();
    assert_eq!(catalog.models().count(), Catalog::embedded().models().count() + 2);
    let tiny = catalog.model("the small one").unwrap();
    // By hand: 32000*256 + 6*(256*(2*8*32 + 2*4*32) + 3*256*1024 + 512) + 256
    assert_eq!(tiny.params_total(), 14_093_568);
    assert_eq!(catalog.model("totals 70b").unwrap().name, "70B at 4 bits");
    assert_eq!(catalog.device("House_Accelerator").unwrap().bandwidth().as_gb_per_second(), 1000.0);
    assert_eq!(catalog.engine("house engine").unwrap().slug, "house-engine");
    let entry =
        catalog.models().find(|entry| entry.head().family == "llama" && entry.head().slug == "tiny-13m").unwrap();
    assert!(entry.file().ends_with("tiny-13m.toml"));
}

#[test]
fn a_file_joins_too() {
    let catalog = Catalog::empty().with_file(data("catalog/totals-70b.toml")).unwrap();
    assert_eq!(catalog.model("70b at 4 bits").unwrap().slug, "totals-70b");
    assert!(matches!(catalog.model("tiny"), Err(CatalogError::NotFound { known: 1, .. })));
}

#[test]
fn a_mistake_is_reported_with_file_line_and_key() {
    let error = Catalog::empty().with_file(data("catalog-mistakes/misspelled.toml")).unwrap_err();
    assert!(error.file.ends_with("misspelled.toml"));
    assert_eq!((error.line, error.key.as_deref()), (Some(9), Some("params_activ")));
    assert!(error.message.contains("did you mean `params_active`?"), "{error}");
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let error = Catalog::empty().with_file(data("catalog-mistakes/other.toml")).unwrap_err();
    assert!(error.to_string().contains("device ([compute]), model ([architecture] or [totals]), engine"), "{error}");
}

#[test]
fn two_files_of_a_folder_must_not_share_a_slug() {
    let error = Catalog::empty().with_folder(data("catalog-duplicate")).unwrap_err();
    assert_eq!((error.line, error.key.as_deref()), (Some(3), Some("slug")));
    assert!(error.message.contains("again.toml"), "{error}");
}

#[test]
fn a_missing_path_is_named() {
    let error = Catalog::empty().with_folder(data("nowhere")).unwrap_err();
    assert!(error.file.ends_with("nowhere") && error.message.contains("cannot be listed"), "{error}");
    let error = Catalog::empty().with_file(data("nowhere.toml")).unwrap_err();
    assert!(error.file.ends_with("nowhere.toml") && error.message.contains("cannot be read"), "{error}");
}
