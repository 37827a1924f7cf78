//! Profiles by name: those embedded in the library, and a user's own beside or instead of them.
//!
//! A name is a slug, an alias or the published name of a profile. Case is ignored, and so are spaces, dashes and underscores:
//! `H100 SXM 80GB`, `h100_sxm_80gb` and `h100-sxm-80gb` are one name. A profile is parsed when it is first asked for, and
//! once only; looking up one name parses no other profile.
//!
//! ```
//! use llm_roofline::catalog::Catalog;
//! use llm_roofline::model::{Model, Totals};
//! use llm_roofline::units::Bytes;
//!
//! let totals = Totals::dense(70_000_000_000, 4.0, Bytes::from_kib(320.0));
//! let catalog = Catalog::embedded().with_model(Model::from_totals("acme/House 70B", totals));
//! assert_eq!(catalog.model("house-70b")?.name, "acme/House 70B");
//! assert_eq!(catalog.model("acme/house_70b")?.params_total(), 70_000_000_000);
//!
//! let error = catalog.model("hause 70b").unwrap_err();
//! assert!(error.to_string().starts_with("no model is named `hause 70b` (did you mean `house-70b`?)"));
//! # Ok::<(), llm_roofline::catalog::CatalogError>(())
//! ```

mod embedded;
mod engine_choice;
mod entry;
mod error;
mod files;
mod shelf;

pub use engine_choice::{EngineChoice, EngineQuery, engine_for};
pub use entry::{Entry, Head, Profile};
pub use error::CatalogError;

use crate::engine::Engine;
use crate::hardware::Device;
use crate::model::Model;
use crate::profile::ProfileError;
use shelf::Shelf;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Devices, models and engines by name.
///
/// Cloning is cheap and shares what has been parsed.
#[derive(Clone, Debug)]
pub struct Catalog {
    devices: Shelf<Device>,
    models: Shelf<Model>,
    engines: Shelf<Engine>,
}

static EMBEDDED: LazyLock<Catalog> = LazyLock::new(|| Catalog {
    devices: Shelf::embedded(embedded::DEVICES),
    models: Shelf::embedded(embedded::MODELS),
    engines: Shelf::embedded(embedded::ENGINES),
});

impl Catalog {
    /// The profiles that come with the library.
    pub fn embedded() -> &'static Self {
        &EMBEDDED
    }

    /// A catalog of nothing, to be filled with a user's own profiles.
    pub fn empty() -> Self {
        Self { devices: Shelf::default(), models: Shelf::default(), engines: Shelf::default() }
    }

    /// The device of that slug, alias or name.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`] with the nearest name, [`CatalogError::Ambiguous`] with the candidates, or
    /// [`CatalogError::Profile`] when the profile cannot be read.
    pub fn device(&self, name: &str) -> Result<Arc<Device>, CatalogError> {
        self.devices.get(name)
    }

    /// The model of that slug, alias or name.
    ///
    /// # Errors
    /// As for [`device`](Self::device).
    pub fn model(&self, name: &str) -> Result<Arc<Model>, CatalogError> {
        self.models.get(name)
    }

    /// The engine of that slug, alias or name.
    ///
    /// # Errors
    /// As for [`device`](Self::device).
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// assert_eq!(Catalog::embedded().engine("Ideal")?.slug, "ideal");
    /// # Ok::<(), llm_roofline::catalog::CatalogError>(())
    /// ```
    pub fn engine(&self, name: &str) -> Result<Arc<Engine>, CatalogError> {
        self.engines.get(name)
    }

    /// The texts of an embedded engine profile and of those that it extends, nearest first, with their slugs; empty for an unknown slug.
    pub fn engine_lineage(slug: &str) -> Vec<(&'static str, &'static str)> {
        embedded::engine_lineage(slug)
    }

    /// All devices, sorted by slug. Their heads are known without parsing, so that filters are cheap:
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// let devices = Catalog::embedded().devices();
    /// for entry in devices.filter(|entry| entry.head().generation.as_deref() == Some("hopper")) {
    ///     println!("{:24} {}", entry.head().slug, entry.head().name);
    /// }
    /// ```
    pub fn devices(&self) -> impl Iterator<Item = &Entry<Device>> {
        self.devices.iter()
    }

    /// All models, sorted by slug, with heads that are known without parsing.
    pub fn models(&self) -> impl Iterator<Item = &Entry<Model>> {
        self.models.iter()
    }

    /// All engines, sorted by slug.
    pub fn engines(&self) -> impl Iterator<Item = &Entry<Engine>> {
        self.engines.iter()
    }

    /// This catalog and a device; it shadows whatever had its slug or answered to its names.
    #[must_use]
    pub fn with_device(&self, device: Device) -> Self {
        let mut catalog = self.clone();
        catalog.devices.shadow(vec![Entry::loaded(device, "caller")]);
        catalog
    }

    /// This catalog and a model; it shadows whatever had its slug or answered to its names.
    #[must_use]
    pub fn with_model(&self, model: Model) -> Self {
        let mut catalog = self.clone();
        catalog.models.shadow(vec![Entry::loaded(model, "caller")]);
        catalog
    }

    /// This catalog and an engine; it shadows whatever had its slug or answered to its names.
    #[must_use]
    pub fn with_engine(&self, engine: Engine) -> Self {
        let mut catalog = self.clone();
        catalog.engines.shadow(vec![Entry::loaded(engine, "caller")]);
        catalog
    }

    /// This catalog and the profile in a file, which shadows whatever had its slug or answers to its names.
    ///
    /// What kind of profile it is shows from its keys (`[compute]`: a device; `[architecture]` or `[totals]`: a model;
    /// `[gemm]`, `[host]` or `extends`: an engine).
    ///
    /// # Errors
    /// [`ProfileError`] naming file, line and key: the file cannot be read, is no profile, or has a mistake in it.
    pub fn with_file(&self, path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        self.with_profiles(&[path.as_ref().to_path_buf()])
    }

    /// This catalog and all profiles (`*.toml`) of a folder, which shadow whatever had their slugs or answers to their names.
    ///
    /// Files may lie in the folder itself or in subfolders named `hardware-profiles`, `model-profiles` and
    /// `engine-profiles`.
    ///
    /// # Errors
    /// [`ProfileError`] naming file, line and key, as for [`with_file`](Self::with_file); also when two files of the folder
    /// have the same slug.
    pub fn with_folder(&self, path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        self.with_profiles(&files::profiles_in(path.as_ref())?)
    }
}

#[cfg(test)]
mod tests;
