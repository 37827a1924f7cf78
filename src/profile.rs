//! Profile files: reading TOML with errors that help, and facts that know where they come from.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a fact was obtained; decides how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provenance {
    /// A vendor's sheet or documentation, or a published table of such figures, read; the source says which.
    Datasheet,
    /// A measurement.
    Measured,
    /// A parameter fitted to measurements.
    Fitted,
    /// Quoted from memory, derived or supposed; listed among the assumptions of every prediction that uses it.
    Assumed,
}

/// A fact with its provenance. In TOML: `{ value = "80 GB", kind = "datasheet", source = "nvidia" }`, where `source` is a key
/// of the file's `[sources]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The fact.
    pub value: T,
    /// How it was obtained.
    pub kind: Provenance,
    /// Key into the sources of the file.
    pub source: String,
    /// Disagreements and remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl<T> Sourced<T> {
    /// A fact supposed by the caller.
    pub fn assumed(value: T) -> Self {
        Self { value, kind: Provenance::Assumed, source: "caller".into(), note: None }
    }
}

/// The sources of a profile: key to full reference.
pub type Sources = BTreeMap<String, String>;

/// A profile file that could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}{}: {message}", .line.map(|line| format!(", line {line}")).unwrap_or_default())]
#[non_exhaustive]
pub struct ProfileError {
    /// File name, or what stands for it.
    pub file: String,
    /// Line, from 1, where it is known.
    pub line: Option<usize>,
    /// The key concerned, where it is known.
    pub key: Option<String>,
    /// What is wrong, what was expected, and the nearest valid name.
    pub message: String,
}

impl ProfileError {
    /// An error about a key.
    pub fn at_key(file: &str, key: &str, message: impl std::fmt::Display) -> Self {
        Self { file: file.into(), line: None, key: Some(key.into()), message: format!("key `{key}`: {message}") }
    }

    /// Adds the line on which `key` is first assigned in the text; a dotted key is looked for below the header of its table.
    #[must_use]
    pub fn locate(mut self, text: &str) -> Self {
        if let (None, Some(key)) = (self.line, &self.key) {
            let (table, last) = key.rsplit_once('.').unwrap_or(("", key));
            let header = text.lines().position(|line| assigns(line, table)).unwrap_or(0);
            let below = text.lines().skip(header).position(|line| assigns(line, last));
            self.line = below.map(|index| header + index + 1);
        }
        self
    }
}

fn assigns(line: &str, key: &str) -> bool {
    let line = line.trim_start();
    line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
        || line.strip_prefix('[').is_some_and(|rest| rest.trim_start_matches('[').split(']').next() == Some(key))
}

/// Reads a profile; errors name the file, the line, the key and the nearest valid name.
///
/// # Errors
/// [`ProfileError`] for text that is not TOML, an unknown or missing key, or a value of the wrong kind.
pub fn read<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, ProfileError> {
    toml::from_str(text).map_err(|error| explain(text, file, &error))
}

/// The error of reading a value that did not come from one text: the line is looked for by the key.
pub fn explained(text: &str, file: &str, error: &toml::de::Error) -> ProfileError {
    let error = explain(text, file, error);
    ProfileError { line: None, ..error }.locate(text)
}

fn explain(text: &str, file: &str, error: &toml::de::Error) -> ProfileError {
    let mut message = error.message().trim().to_string();
    let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    let key = quoted(&message, "unknown field `").or_else(|| quoted(&message, "missing field `"));
    if let Some(unknown) = quoted(&message, "unknown field `").or_else(|| quoted(&message, "unknown variant `")) {
        let expected = message.split_once("expected").map_or("", |(_, rest)| rest);
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        if let Some(nearest) = nearest(&unknown, names) {
            message.push_str(&format!(" (did you mean `{nearest}`?)"));
        }
    }
    ProfileError { file: file.into(), line, key, message }
}

fn quoted(message: &str, before: &str) -> Option<String> {
    let rest = &message[message.find(before)? + before.len()..];
    Some(rest.split('`').next()?.to_string())
}

/// A name without what people spell differently: case, and the separators space, dash and underscore.
///
/// ```
/// assert_eq!(llm_roofline::profile::folded("RTX 4090"), llm_roofline::profile::folded("rtx-4090"));
/// ```
pub fn folded(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, ' ' | '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// The valid name nearest to a mistyped one, if any is near.
///
/// ```
/// assert_eq!(llm_roofline::profile::nearest("h100-sxm", ["h100-sxm-80gb", "a100"]), Some("h100-sxm-80gb"));
/// assert_eq!(llm_roofline::profile::nearest("abacus", ["h100-sxm-80gb", "a100"]), None);
/// ```
pub fn nearest<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let score = |candidate: &str| strsim::jaro_winkler(&name, &candidate.to_lowercase());
    valid
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
