//! One profile of a catalog, parsed when it is first needed.

use super::embedded::{self, Embedded};
use crate::engine::Engine;
use crate::hardware::Device;
use crate::model::Model;
use crate::profile::ProfileError;
use std::sync::{Arc, OnceLock};

/// What a catalog must know about a kind of profile.
pub trait Profile: Sized {
    /// What it is called in messages.
    const KIND: &'static str;
    /// Top-level keys of which a file of this kind has at least one, and no other kind has any.
    const MARKS: &'static [&'static str];

    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`] with file, line and key.
    fn parse(text: &str, file: &str) -> Result<Self, ProfileError>;

    /// What a catalog lists of it.
    fn head(&self) -> Head;
}

impl Profile for Device {
    const KIND: &'static str = "device";
    const MARKS: &'static [&'static str] = &["compute"];

    fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        Self::from_toml(text, file)
    }

    fn head(&self) -> Head {
        Head {
            slug: self.slug().into(),
            name: self.name().into(),
            family: self.family().into(),
            generation: Some(self.generation().into()),
            aliases: self.profile().aliases.clone(),
        }
    }
}

impl Profile for Model {
    const KIND: &'static str = "model";
    const MARKS: &'static [&'static str] = &["architecture", "totals"];

    fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        Self::from_toml(text, file)
    }

    fn head(&self) -> Head {
        Head {
            slug: self.slug.clone(),
            name: self.name.clone(),
            family: self.family.clone(),
            generation: None,
            aliases: self.aliases.clone(),
        }
    }
}

impl Profile for Engine {
    const KIND: &'static str = "engine";
    const MARKS: &'static [&'static str] =
        &["extends", "gemm", "experts", "prefill_attention", "decode_attention", "elementwise", "host", "scheduling"];

    fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        Self::from_toml_over(text, file, embedded::engine_text)
    }

    fn head(&self) -> Head {
        Head {
            slug: self.slug.clone(),
            name: self.name.clone(),
            family: String::new(),
            generation: None,
            aliases: self.aliases.clone(),
        }
    }
}

/// What is known of a profile without parsing it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Short name, unique in a catalog.
    pub slug: String,
    /// Published name.
    pub name: String,
    /// Family: of architectures for a model, of products for a device; empty where the kind has none.
    pub family: String,
    /// Hardware generation, for devices.
    pub generation: Option<String>,
    /// Other names it answers to.
    pub aliases: Vec<String>,
}

impl Head {
    /// Every name that it answers to: slug, published name, aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [self.slug.as_str(), self.name.as_str()].into_iter().chain(self.aliases.iter().map(String::as_str))
    }
}

/// A profile of a catalog: its head, and itself once it has been asked for.
#[derive(Debug)]
pub struct Entry<T> {
    head: Head,
    file: String,
    text: &'static str,
    parsed: OnceLock<Result<Arc<T>, ProfileError>>,
}

impl<T: Profile> Entry<T> {
    pub(super) fn embedded(profile: &Embedded) -> Self {
        Self {
            head: Head {
                slug: profile.slug.into(),
                name: profile.name.into(),
                family: profile.family.into(),
                generation: profile.generation.map(Into::into),
                aliases: profile.aliases.iter().map(|&alias| alias.into()).collect(),
            },
            file: profile.file.into(),
            text: profile.text,
            parsed: OnceLock::new(),
        }
    }

    /// An entry that needs no parsing any more.
    pub(super) fn loaded(profile: T, file: &str) -> Self {
        let head = profile.head();
        Self { head, file: file.into(), text: "", parsed: OnceLock::from(Ok(Arc::new(profile))) }
    }

    /// What is known of it without parsing.
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// Where it comes from: a file name, or `caller`.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The profile, parsed at the first call.
    ///
    /// # Errors
    /// [`ProfileError`] when it has a mistake in it.
    pub fn load(&self) -> Result<Arc<T>, ProfileError> {
        self.parsed.get_or_init(|| T::parse(self.text, &self.file).map(Arc::new)).clone()
    }
}
