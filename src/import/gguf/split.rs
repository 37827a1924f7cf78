//! Models split into several files (`llama-gguf-split`: `name-00001-of-00003.gguf`).

use super::{Header, Value};
use crate::import::ImportError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

impl Header {
    /// Reads all files of a split model, in any order.
    ///
    /// # Errors
    /// [`ImportError::MissingParts`] with the numbers of files that are missing, and as [`Header::open`] and
    /// [`Header::merge`].
    pub fn read_split<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, ImportError> {
        Self::merge(paths.into_iter().map(Self::open).collect::<Result<Vec<_>, _>>()?)
    }

    /// Joins the headers of all files of a split model, given in any order.
    ///
    /// # Errors
    /// [`ImportError::MissingParts`] for files that are missing, [`ImportError::Inconsistent`] for files that do not belong
    /// together or tensors that are missing or occur twice.
    pub fn merge(parts: Vec<Self>) -> Result<Self, ImportError> {
        let mut by_number = BTreeMap::new();
        let mut count = 0;
        for part in parts {
            let (number, of) = part.split_place()?.unwrap_or((0, 1));
            if count != 0 && of != count {
                return Err(part.inconsistent(format!("`{COUNT}` is {of}, in another file it is {count}")));
            }
            count = of;
            let file = part.file.clone();
            if let Some(other) = by_number.insert(number, part) {
                let what = format!("is part {} of the model, and so is {}", number + 1, other.file);
                return Err(ImportError::Inconsistent { file, what });
            }
        }
        let Some((&first, part)) = by_number.first_key_value() else {
            let what = "no files of a split model are given".into();
            return Err(ImportError::Inconsistent { file: "GGUF".into(), what });
        };
        let missing: Vec<u64> = (0..count).filter(|number| !by_number.contains_key(number)).map(|n| n + 1).collect();
        if !missing.is_empty() || first != 0 {
            return Err(ImportError::MissingParts { file: part.file.clone(), missing, count });
        }
        Self::join(by_number.into_values())
    }

    /// Number (from 0) and count of the parts, if the file is one of several.
    pub(super) fn split_place(&self) -> Result<Option<(u64, u64)>, ImportError> {
        // llama.cpp keeps both numbers in 16 bits.
        let limit = u64::from(u16::MAX);
        let count = match self.get(COUNT) {
            None => return Ok(None),
            Some(value) => value.as_count().filter(|count| (1..=limit).contains(count)),
        };
        let Some(count) = count else {
            return Err(self.wrong_type(COUNT, &format!("a number of files from 1 to {limit}")));
        };
        let number = self.get(NUMBER).and_then(Value::as_count).filter(|&number| number < count);
        match number {
            Some(number) => Ok(Some((number, count))),
            None => Err(self.wrong_type(NUMBER, &format!("a number from 0 to {}", count - 1))),
        }
    }

    fn join(mut parts: impl Iterator<Item = Self>) -> Result<Self, ImportError> {
        let Some(mut whole) = parts.next() else {
            let what = "no files of a split model are given".into();
            return Err(ImportError::Inconsistent { file: "GGUF".into(), what });
        };
        for part in parts {
            whole.files += part.files;
            whole.missing_bytes = whole.missing_bytes.saturating_add(part.missing_bytes);
            whole.tensors.extend(part.tensors);
        }
        let names: BTreeSet<&str> = whole.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        if names.len() < whole.tensors.len() {
            return Err(whole.inconsistent("a tensor occurs in two files of the split model".into()));
        }
        let claimed = whole.get(TENSORS).and_then(Value::as_count);
        if claimed.is_some_and(|claimed| claimed != whole.tensors.len() as u64) {
            let (found, claimed) = (whole.tensors.len(), claimed.unwrap_or(0));
            return Err(whole.inconsistent(format!("`{TENSORS}` is {claimed}, the files hold {found} tensors")));
        }
        Ok(whole)
    }

    pub(super) fn inconsistent(&self, what: String) -> ImportError {
        ImportError::Inconsistent { file: self.file.clone(), what }
    }

    /// An error about the value of a key that is wrong, or missing.
    pub(super) fn wrong_type(&self, key: &str, expected: &str) -> ImportError {
        let (file, key, expected) = (self.file.clone(), key.to_string(), expected.to_string());
        match self.get(&key) {
            Some(found) => ImportError::Invalid { file, line: None, found: found.to_string(), key, expected },
            None => ImportError::Missing { file, key, expected },
        }
    }
}
