//! What can go wrong in a lookup.

use crate::profile::ProfileError;

/// A name that leads to no profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// Nothing has that name.
    #[error(
        "no {kind} is named `{name}`{}; Catalog::{kind}s() lists the {known} that are known",
        .nearest.as_ref().map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
    )]
    NotFound {
        /// Kind of profile.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The nearest known name.
        nearest: Option<String>,
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
