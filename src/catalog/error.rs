//! What can go wrong in a lookup.

use crate::profile::ProfileError;

/// A name that leads to no profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// Nothing has that name.
    #[error(
        "no {kind} is named `{name}`{}; Catalog::{kind}s() lists the {known} that are known",
        did_you_mean(.similar)
    )]
    NotFound {
        /// Kind of profile.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// Slugs of profiles with the name in one of theirs, or else the nearest known name; at most 8.
        similar: Vec<String>,
        /// How many profiles of the kind there are.
        known: usize,
    },
    /// Several profiles answer to that name.
    #[error("`{name}` may be any of these {kind}s: {}; use one of these slugs", .candidates.join(", "))]
    Ambiguous {
        /// Kind of profile.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// Slugs of the profiles that answer to it.
        candidates: Vec<String>,
    },
    /// The profile has a mistake in it.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

fn did_you_mean(similar: &[String]) -> String {
    let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match similar {
        [] => String::new(),
        [only] => format!(" (did you mean `{only}`?)"),
        [others @ .., last] => format!(" (did you mean {} or `{last}`?)", quoted(others)),
    }
}
