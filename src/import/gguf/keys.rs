//! Typed access to the keys of an architecture.

use super::{Header, Value};
use crate::import::ImportError;

/// The keys `<architecture>.*` of a header.
pub(super) struct Keys<'a> {
    pub(super) header: &'a Header,
    pub(super) architecture: &'a str,
}

/// A number that is the same for all layers, or one per layer.
pub(super) enum PerLayer {
    Same(u64),
    Each(Vec<u64>),
}

impl PerLayer {
    pub(super) fn at(&self, layer: usize) -> u64 {
        match self {
            Self::Same(value) => *value,
            Self::Each(values) => values.get(layer).copied().unwrap_or(0),
        }
    }
}

/// Counts of heads, experts and layers beyond this are refused.
pub(super) const COUNT_LIMIT: u64 = 1 << 16;
/// Widths beyond this are refused.
pub(super) const WIDTH_LIMIT: u64 = 1 << 24;

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.header.get(&self.full(key))
    }

    pub(super) fn wrong(&self, key: &str, expected: &str) -> ImportError {
        self.header.wrong_type(&self.full(key), expected)
    }

    /// A number up to the limit, if the key is there.
    pub(super) fn optional(&self, key: &str, limit: u64) -> Result<Option<u64>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match value.as_count().filter(|&count| count <= limit) {
                Some(count) => Ok(Some(count)),
                None => Err(self.wrong(key, &format!("a whole number up to {limit}"))),
            },
        }
    }

    /// A positive number up to the limit.
    pub(super) fn required(&self, key: &str, limit: u64) -> Result<u64, ImportError> {
        match self.optional(key, limit)? {
            Some(count) if count > 0 => Ok(count),
            _ => Err(self.wrong(key, &format!("a whole number from 1 to {limit}"))),
        }
    }

    /// A number for all layers or an array with one for each of (at least) `layers` layers.
    pub(super) fn per_layer(&self, key: &str, layers: usize, limit: u64) -> Result<Option<PerLayer>, ImportError> {
        match self.value(key) {
            Some(Value::Array(array)) => match &array.counts {
                Some(counts) if counts.len() >= layers && counts.iter().all(|&count| count <= limit) => {
                    Ok(Some(PerLayer::Each(counts.clone())))
                }
                _ => {
                    Err(self
                        .wrong(key, &format!("an array with a whole number up to {limit} for each of {layers} layers")))
                }
            },
            _ => Ok(self.optional(key, limit)?.map(PerLayer::Same)),
        }
    }
}
