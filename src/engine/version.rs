//! Versions of engines, and which profile is nearest to one.

use std::cmp::Ordering;

/// A version such as `0.6.3.post1` or `b4384`: its numbers, compared one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Vec<u32>);

impl Version {
    /// Reads the numbers of a version; `None` if there are none.
    ///
    /// ```
    /// use llm_roofline::engine::Version;
    /// assert!(Version::parse("0.10.0") > Version::parse("v0.6.3.post1"));
    /// assert_eq!(Version::parse("latest"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split(|c: char| c.is_whitespace() || c == ',' || c == '(').find(|word| {
            word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
        })?;
        let parts = word.trim_start_matches('v').split(['.', '-', '+']);
        let numbers: Vec<u32> = parts.map_while(|part| part.parse().ok()).collect();
        (!numbers.is_empty()).then_some(Self(numbers))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.0.len().max(other.0.len());
        let part = |version: &Self, index: usize| version.0.get(index).copied().unwrap_or(0);
        (0..length)
            .map(|index| part(self, index).cmp(&part(other, index)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// The entry that covers a version: the last of those that start at or before it, the first one for anything older. Entries are sorted.
pub fn nearest_version<'a, T>(entries: &'a [(Version, T)], version: &Version) -> Option<&'a T> {
    let covering = entries.iter().rev().find(|(first, _)| first <= version);
    covering.or(entries.first()).map(|(_, entry)| entry)
}
