//! Typed access to the keys of a `config.json`, with errors that name file, line and dotted key.

use crate::import::ImportError;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// No width, head count or vocabulary comes near this, and the product of two of them fits easily in 64 bits.
const COUNT_LIMIT: u64 = 1 << 24;
/// Layers beyond this are refused: what is built per layer stays small whatever a file claims.
const LAYER_LIMIT: u64 = 1 << 12;
/// Limit of context lengths.
const CONTEXT_LIMIT: u64 = 1 << 40;

/// The keys of one object of the file.
pub(super) struct Config<'a> {
    file: &'a str,
    text: &'a str,
    prefix: String,
    values: &'a Map<String, Value>,
    /// The object around it, asked for the few keys that multimodal configurations keep outside.
    outer: Option<&'a Map<String, Value>>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Config<'a> {
    pub fn new(file: &'a str, text: &'a str, values: &'a Map<String, Value>) -> Self {
        Self { file, text, prefix: String::new(), values, outer: None, read: RefCell::default() }
    }

    /// The object under a key, with this one around it.
    pub fn inner(&self, key: &str) -> Option<Config<'a>> {
        let values = self.values.get(key)?.as_object()?;
        self.note(key);
        Some(Config {
            prefix: format!("{}{key}.", self.prefix),
            values,
            outer: Some(self.values),
            read: RefCell::default(),
            ..*self
        })
    }

    /// The object at a place of the list under a key.
    pub fn entry(&self, key: &str, index: usize, value: &'a Value) -> Result<Config<'a>, ImportError> {
        let values = value.as_object().ok_or_else(|| self.invalid(key, value, "a list of objects"))?;
        let prefix = format!("{}{key}[{index}].", self.prefix);
        Ok(Config { prefix, values, outer: Some(self.values), read: RefCell::default(), ..*self })
    }

    pub fn file(&self) -> &'a str {
        self.file
    }

    /// The keys that were asked for and found, as dotted paths.
    pub fn keys_read(&self) -> Vec<String> {
        self.read.borrow().iter().cloned().collect()
    }

    /// Every key at or below this object that has a value which is not empty, as (dotted path, value).
    pub fn walk(&self, visit: &mut impl FnMut(&str, &str, &Value)) {
        walk(&self.prefix, self.values, visit);
    }

    /// The value of a key; `null` counts as absent.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        let value = self.values.get(key).filter(|value| !value.is_null())?;
        self.note(key);
        Some(value)
    }

    /// Whether this is an object within another, such as the text part of a multimodal configuration.
    pub const fn is_nested(&self) -> bool {
        self.outer.is_some()
    }

    /// Whether the key is written in the file, be it as `null`.
    pub fn states(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The value of a key here or in the object around.
    pub fn value_around(&self, key: &str) -> Option<&'a Value> {
        self.value(key).or_else(|| self.outer?.get(key).filter(|value| !value.is_null()))
    }

    fn note(&self, key: &str) {
        self.read.borrow_mut().insert(format!("{}{key}", self.prefix));
    }

    /// A count under the first of several spellings that is present.
    pub fn optional(&self, keys: &[&str]) -> Result<Option<u64>, ImportError> {
        self.limited(keys, COUNT_LIMIT)
    }

    /// A count that must be present.
    pub fn count(&self, keys: &[&str]) -> Result<u64, ImportError> {
        self.optional(keys)?.ok_or_else(|| self.missing(keys, "a positive integer"))
    }

    /// A count with the default of its family.
    pub fn count_or(&self, keys: &[&str], default: u64) -> Result<u64, ImportError> {
        Ok(self.optional(keys)?.unwrap_or(default))
    }

    /// The number of layers.
    pub fn layers(&self, keys: &[&str], default: Option<usize>) -> Result<usize, ImportError> {
        let layers = self.limited(keys, LAYER_LIMIT)?.map(|layers| layers as usize).or(default);
        layers.ok_or_else(|| self.missing(keys, "the number of layers"))
    }

    /// The longest context.
    pub fn context(&self, keys: &[&str]) -> Result<Option<u64>, ImportError> {
        self.limited(keys, CONTEXT_LIMIT)
    }

    fn limited(&self, keys: &[&str], limit: u64) -> Result<Option<u64>, ImportError> {
        for key in keys {
            if let Some(value) = self.value(key) {
                let count = as_count(value).filter(|count| *count <= limit);
                let expected = || format!("an integer from 0 to {limit}");
                return count.map(Some).ok_or_else(|| self.invalid(key, value, &expected()));
            }
        }
        Ok(None)
    }

    /// A truth value with the default of its family.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, ImportError> {
        match self.value(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(self.invalid(key, value, "true or false")),
        }
    }

    /// Whether the output head is the embedding table; multimodal configurations say so inside or outside.
    pub fn tied(&self, default: bool) -> Result<bool, ImportError> {
        match self.value_around("tie_word_embeddings") {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(self.invalid("tie_word_embeddings", value, "true or false")),
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.invalid(key, value, "a text")),
        }
    }

    /// A list with one text per layer.
    pub fn texts(&self, key: &str, layers: usize) -> Result<Option<Vec<&'a str>>, ImportError> {
        let Some(list) = self.list(key, layers)? else { return Ok(None) };
        let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
        texts.map(Some).ok_or_else(|| self.invalid(key, &Value::Array(list.to_vec()), "a list of texts"))
    }

    /// A list with one number per layer; further entries (of prediction modules) are left out.
    pub fn counts(&self, key: &str, layers: usize) -> Result<Option<Vec<u64>>, ImportError> {
        let Some(list) = self.list(key, layers)? else { return Ok(None) };
        self.all_counts(key, list).map(Some)
    }

    /// A list of layer numbers, of any length.
    pub fn indices(&self, key: &str) -> Result<Option<Vec<u64>>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(list)) => self.all_counts(key, list).map(Some),
            Some(value) => Err(self.invalid(key, value, "a list of layer numbers")),
        }
    }

    /// A number for all layers, or a list with one per layer.
    pub fn per_layer(&self, keys: &[&str], layers: usize) -> Result<Option<Vec<u64>>, ImportError> {
        let Some(key) = keys.iter().find(|key| self.value(key).is_some()) else { return Ok(None) };
        match self.value(key) {
            Some(Value::Array(_)) => self.counts(key, layers),
            _ => Ok(self.optional(&[key])?.map(|count| vec![count; layers])),
        }
    }

    fn list(&self, key: &str, layers: usize) -> Result<Option<&'a [Value]>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            // Some families write an empty list where they mean their default pattern.
            Some(Value::Array(list)) if list.is_empty() => Ok(None),
            Some(Value::Array(list)) if list.len() >= layers => Ok(Some(&list[..layers])),
            Some(Value::Array(list)) => Err(ImportError::Invalid {
                file: self.file.into(),
                line: self.line(key),
                key: format!("{}{key}", self.prefix),
                found: format!("a list of {}", list.len()),
                expected: format!("a list of {layers}, one entry per layer"),
            }),
            Some(value) => Err(self.invalid(key, value, &format!("a list of {layers}, one entry per layer"))),
        }
    }

    fn all_counts(&self, key: &str, list: &[Value]) -> Result<Vec<u64>, ImportError> {
        let limited = |value: &Value| as_count(value).filter(|count| *count <= COUNT_LIMIT);
        let counts: Option<Vec<u64>> = list.iter().map(limited).collect();
        counts.ok_or_else(|| self.invalid(key, &Value::Array(list.to_vec()), &format!("integers up to {COUNT_LIMIT}")))
    }

    /// An error about a key that has a value.
    pub fn invalid(&self, key: &str, value: &Value, expected: &str) -> ImportError {
        let mut found = value.to_string();
        if let Some((end, _)) = found.char_indices().nth(60) {
            found.truncate(end);
            found.push_str("...");
        }
        let (file, key_path) = (self.file.into(), format!("{}{key}", self.prefix));
        ImportError::Invalid { file, line: self.line(key), key: key_path, found, expected: expected.into() }
    }

    /// An error about a key that is absent under all its spellings.
    pub fn missing(&self, keys: &[&str], expected: &str) -> ImportError {
        let spelled: Vec<String> = keys.iter().map(|key| format!("{}{key}", self.prefix)).collect();
        ImportError::Missing { file: self.file.into(), key: spelled.join(" or "), expected: expected.into() }
    }

    /// An error about a feature that cannot be expressed.
    pub fn unsupported(&self, what: impl Into<String>) -> ImportError {
        ImportError::Unsupported { file: self.file.into(), what: what.into() }
    }

    fn line(&self, key: &str) -> Option<usize> {
        let quoted = format!("\"{key}\"");
        self.text.lines().position(|line| line.contains(&quoted)).map(|index| index + 1)
    }
}

/// Python writes some integers as floats.
fn as_count(value: &Value) -> Option<u64> {
    let whole =
        |float: f64| (float >= 0.0 && float <= CONTEXT_LIMIT as f64 && float.fract() == 0.0).then_some(float as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

fn walk(prefix: &str, values: &Map<String, Value>, visit: &mut impl FnMut(&str, &str, &Value)) {
    for (key, value) in values {
        let path = format!("{prefix}{key}");
        match value {
            Value::Object(inner) if !OTHER_TOWERS.contains(&key.as_str()) => walk(&format!("{path}."), inner, visit),
            _ => visit(&path, key, value),
        }
    }
}

/// Objects that describe something else than the text decoder.
const OTHER_TOWERS: [&str; 6] =
    ["vision_config", "audio_config", "quantization_config", "rope_parameters", "rope_scaling", "talker_config"];

/// JSON as Python writes it, with `NaN` and infinities replaced by `null` (no key that is read here may have them).
pub(super) fn without_python_floats(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let (mut in_string, mut escaped) = (false, false);
    while let Some(next) = rest.chars().next() {
        if !in_string {
            let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| rest.starts_with(word));
            if let Some(word) = word {
                out.push_str("null");
                rest = rest.get(word.len()..).unwrap_or_default();
                continue;
            }
        }
        in_string = if next == '"' && !escaped { !in_string } else { in_string };
        escaped = in_string && next == '\\' && !escaped;
        out.push(next);
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    out
}
