//! A user's own profile files.

use super::{Catalog, Entry, Profile};
use crate::engine::Engine;
use crate::hardware::Device;
use crate::model::Model;
use crate::profile::{self, ProfileError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

const SUBFOLDERS: [&str; 3] = ["hardware-profiles", "model-profiles", "engine-profiles"];

/// The profile files of a folder and of its subfolders for each kind, in order of their names.
pub(super) fn profiles_in(folder: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    let mut paths = toml_files(folder)?;
    for subfolder in SUBFOLDERS.map(|name| folder.join(name)) {
        if subfolder.is_dir() {
            paths.append(&mut toml_files(&subfolder)?);
        }
    }
    if paths.is_empty() {
        let message = format!("holds no *.toml file, nor does a subfolder {}", SUBFOLDERS.join(", "));
        return Err(about_file(folder, message));
    }
    Ok(paths)
}

fn toml_files(folder: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    };
    list().map_err(|error| about_file(folder, format!("cannot be listed: {error}")))
}

fn about_file(path: &Path, message: String) -> ProfileError {
    ProfileError { file: path.display().to_string(), line: None, key: None, message }
}

/// Profiles of one kind, by folded slug.
type Layer<T> = BTreeMap<String, Entry<T>>;

impl Catalog {
    pub(super) fn with_profiles(&self, paths: &[PathBuf]) -> Result<Self, ProfileError> {
        let mut devices = Layer::<Device>::new();
        let mut models = Layer::<Model>::new();
        let mut engines = Layer::<Engine>::new();
        for path in paths {
            let text =
                fs::read_to_string(path).map_err(|error| about_file(path, format!("cannot be read: {error}")))?;
            let file = path.display().to_string();
            let table: toml::Table = profile::read(&text, &file)?;
            if is_a::<Device>(&table) {
                add(&mut devices, &text, &file)?;
            } else if is_a::<Model>(&table) {
                add(&mut models, &text, &file)?;
            } else if is_a::<Engine>(&table) {
                add(&mut engines, &text, &file)?;
            } else {
                let expected = [marks::<Device>(), marks::<Model>(), marks::<Engine>()].join(", ");
                let message = format!("is no profile, expected one of: {expected}");
                return Err(about_file(path, message));
            }
        }
        let mut catalog = self.clone();
        catalog.devices.shadow(devices.into_values().collect());
        catalog.models.shadow(models.into_values().collect());
        catalog.engines.shadow(engines.into_values().collect());
        Ok(catalog)
    }
}

fn is_a<T: Profile>(table: &toml::Table) -> bool {
    T::MARKS.iter().any(|&key| table.contains_key(key))
}

fn marks<T: Profile>() -> String {
    format!("{} ([{}])", T::KIND, T::MARKS.join("] or ["))
}

fn add<T: Profile>(layer: &mut Layer<T>, text: &str, file: &str) -> Result<(), ProfileError> {
    let entry = Entry::loaded(T::parse(text, file)?, file);
    let slug = crate::profile::folded(&entry.head().slug);
    if let Some(other) = layer.get(&slug) {
        let message = format!("`{}` is also the slug of {}", entry.head().slug, other.file());
        return Err(ProfileError::at_key(file, "slug", message).locate(text));
    }
    layer.insert(slug, entry);
    Ok(())
}
