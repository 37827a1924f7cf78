//! What the examples have in common: names on the command line, and errors in words.
#![allow(dead_code)] // no example needs everything

use llm_roofline::prelude::*;
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Ends a program: prints its text; an error goes to the standard error stream in words, and makes the program fail.
pub fn finish(result: Result<String, Box<dyn Error>>) -> ExitCode {
    let printed = result.and_then(|text| match std::io::stdout().write_all(text.as_bytes()) {
        // A reader such as `head` may have enough before the end.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A device by its name in the catalog, or from a profile file (.toml).
pub fn device(name: &str) -> Result<Arc<Device>, Box<dyn Error>> {
    match profile_text(name)? {
        Some(text) => Ok(Arc::new(Device::from_toml(&text, name)?)),
        None => Ok(Catalog::embedded().device(name)?),
    }
}

/// A model by its name in the catalog, or from a profile file (.toml).
pub fn model(name: &str) -> Result<Arc<Model>, Box<dyn Error>> {
    match profile_text(name)? {
        Some(text) => Ok(Arc::new(Model::from_toml(&text, name)?)),
        None => Ok(Catalog::embedded().model(name)?),
    }
}

/// An engine by its name in the catalog, or from a profile file (.toml).
pub fn engine(name: &str) -> Result<Arc<Engine>, Box<dyn Error>> {
    match profile_text(name)? {
        Some(text) => Ok(Arc::new(Engine::from_toml(&text, name)?)),
        None => Ok(Catalog::embedded().engine(name)?),
    }
}

fn profile_text(name: &str) -> Result<Option<String>, Box<dyn Error>> {
    if !name.ends_with(".toml") {
        return Ok(None);
    }
    std::fs::read_to_string(name).map(Some).map_err(|error| format!("{name}: {error}").into())
}
