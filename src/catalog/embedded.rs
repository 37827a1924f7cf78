//! The embedded profiles, gathered by the build script.

/// A profile as the build script found it: its head, and its text still to be parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Embedded {
    pub(super) slug: &'static str,
    pub(super) name: &'static str,
    pub(super) family: &'static str,
    pub(super) generation: Option<&'static str>,
    pub(super) aliases: &'static [&'static str],
    pub(super) file: &'static str,
    pub(super) text: &'static str,
}

pub(super) const DEVICES: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/devices.rs"));

pub(super) const MODELS: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/models.rs"));

pub(super) const ENGINES: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/engines.rs"));

/// The text of an embedded engine profile.
pub(super) fn engine_text(slug: &str) -> Option<&'static str> {
    ENGINES.iter().find(|engine| engine.slug == slug).map(|engine| engine.text)
}

/// Slugs and texts of an embedded engine profile and of those that it extends, nearest first.
pub(super) fn engine_lineage(slug: &str) -> Vec<(&'static str, &'static str)> {
    let mut lineage = Vec::new();
    let mut next = Some(slug.to_string());
    while let Some(engine) = next.and_then(|slug| ENGINES.iter().find(|engine| engine.slug == slug)) {
        if lineage.len() > ENGINES.len() {
            break;
        }
        lineage.push((engine.slug, engine.text));
        let table: Option<toml::Table> = engine.text.parse().ok();
        next = table.and_then(|table| Some(table.get("extends")?.as_str()?.to_string()));
    }
    lineage
}
