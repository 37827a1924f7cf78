//! The profiles of one kind and the names that lead to them.

use super::embedded::Embedded;
use super::{CatalogError, Entry, Profile};
use crate::profile::{folded, nearest};
use std::collections::HashMap;
use std::sync::Arc;

/// How many similar names an error lists at most.
const SUGGESTIONS: usize = 8;

#[derive(Debug)]
pub(super) struct Shelf<T> {
    /// Sorted by slug.
    entries: Vec<Arc<Entry<T>>>,
    /// Folded name to the entries that answer to it.
    index: HashMap<String, Vec<Claim<T>>>,
    /// How many times profiles were added.
    layers: u32,
}

/// An entry's claim to a name. Later layers beat earlier ones, and within a layer a slug beats an alias.
#[derive(Debug)]
struct Claim<T> {
    rank: (u32, bool),
    entry: Arc<Entry<T>>,
}

impl<T> Clone for Claim<T> {
    fn clone(&self) -> Self {
        Self { rank: self.rank, entry: Arc::clone(&self.entry) }
    }
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), index: self.index.clone(), layers: self.layers }
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), index: HashMap::new(), layers: 0 }
    }
}

impl<T: Profile> Shelf<T> {
    pub(super) fn embedded(profiles: &[Embedded]) -> Self {
        let mut shelf = Self::default();
        shelf.shadow(profiles.iter().map(Entry::embedded).collect());
        shelf
    }

    /// Adds a layer of profiles over those that are there.
    pub(super) fn shadow(&mut self, layer: Vec<Entry<T>>) {
        for entry in layer {
            let entry = Arc::new(entry);
            let slug = folded(&entry.head().slug);
            self.forget(&slug);
            for name in entry.head().names() {
                let name = folded(name);
                let rank = (self.layers, name == slug);
                let claims = self.index.entry(name).or_default();
                if !claims.iter().any(|claim| Arc::ptr_eq(&claim.entry, &entry)) {
                    claims.push(Claim { rank, entry: Arc::clone(&entry) });
                }
            }
            self.entries.push(entry);
        }
        self.entries.sort_by(|a, b| a.head().slug.cmp(&b.head().slug));
        self.layers += 1;
    }

    /// Removes the entry of a folded slug, if there is one.
    fn forget(&mut self, slug: &str) {
        let claims = self.index.get(slug).map_or(&[][..], Vec::as_slice);
        let Some(old) = claims.iter().find(|claim| claim.rank.1).map(|claim| Arc::clone(&claim.entry)) else { return };
        self.entries.retain(|entry| !Arc::ptr_eq(entry, &old));
        for name in old.head().names() {
            if let Some(claims) = self.index.get_mut(&folded(name)) {
                claims.retain(|claim| !Arc::ptr_eq(&claim.entry, &old));
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter().map(Arc::as_ref)
    }

    pub(super) fn get(&self, name: &str) -> Result<Arc<T>, CatalogError> {
        Ok(self.find(name)?.load()?)
    }

    pub(super) fn find(&self, name: &str) -> Result<&Entry<T>, CatalogError> {
        let claims = self.index.get(&folded(name)).map_or(&[][..], Vec::as_slice);
        let best = claims.iter().map(|claim| claim.rank).max();
        let mut winners = claims.iter().filter(|claim| Some(claim.rank) == best);
        match (winners.next(), winners.next()) {
            (Some(claim), None) => Ok(&claim.entry),
            (None, _) => Err(self.not_found(name)),
            (Some(_), Some(_)) => {
                let tied = claims.iter().filter(|claim| Some(claim.rank) == best);
                let mut candidates: Vec<String> = tied.map(|claim| claim.entry.head().slug.clone()).collect();
                candidates.sort();
                Err(CatalogError::Ambiguous { kind: T::KIND, name: name.into(), candidates })
            }
        }
    }

    fn not_found(&self, name: &str) -> CatalogError {
        CatalogError::NotFound {
            kind: T::KIND,
            name: name.into(),
            similar: self.similar(name),
            known: self.entries.len(),
        }
    }

    fn similar(&self, name: &str) -> Vec<String> {
        let part = folded(name);
        if part.len() > 1 {
            let contains = |entry: &&Entry<T>| entry.head().names().any(|name| folded(name).contains(&part));
            let slugs: Vec<String> =
                self.iter().filter(contains).take(SUGGESTIONS).map(|entry| entry.head().slug.clone()).collect();
            if !slugs.is_empty() {
                return slugs;
            }
        }
        let names = self.iter().flat_map(|entry| entry.head().names());
        nearest(name, names).map(Into::into).into_iter().collect()
    }
}
