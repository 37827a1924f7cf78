//! A number of an operator law: its value, where it comes from, and how it varies with hardware and number format.

use crate::profile::Provenance;
use crate::units::Seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a parameter can be: a share, a plain number or a time.
pub trait Quantity: Copy {
    /// What is expected, for messages.
    const EXPECTED: &'static str;

    /// Whether it is a time.
    const IS_TIME: bool = false;

    /// The number in the base unit.
    fn number(self) -> f64;

    /// From the number in the base unit.
    fn from_number(number: f64) -> Self;

    /// Whether the number is in the range.
    fn is_valid(number: f64) -> bool;

    /// The nearest number in the range: a product of factors may leave it.
    fn clamped(number: f64) -> f64;
}

/// Declares a quantity that is a plain number: what is expected of it, its range, and the nearest number in the range.
macro_rules! plain_number {
    ($(#[$meta:meta])* $name:ident, $expected:literal, $is_valid:expr, $clamped:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl Quantity for $name {
            const EXPECTED: &'static str = $expected;

            fn number(self) -> f64 {
                self.0
            }

            fn from_number(number: f64) -> Self {
                Self(number)
            }

            fn is_valid(number: f64) -> bool {
                let is_valid: fn(f64) -> bool = $is_valid;
                is_valid(number)
            }

            fn clamped(number: f64) -> f64 {
                let clamped: fn(f64) -> f64 = $clamped;
                clamped(number)
            }
        }
    };
}

plain_number! {
    /// A share of a peak that is reached, above 0 and at most 1.
    Share, "a share above 0 and at most 1", |number| number > 0.0 && number <= 1.0, |number| number.min(1.0)
}

plain_number! {
    /// A number that is not negative: a count, bytes or operations per element, a share that may be zero.
    Number, "a finite number that is not negative", |number| number.is_finite() && number >= 0.0, |number| number
}

plain_number! {
    /// A positive number that may exceed 1: a share of a unit's nominal rate that kernels can exceed.
    Positive, "a positive finite number", |number| number.is_finite() && number > 0.0, |number| number
}

impl Quantity for Seconds {
    const EXPECTED: &'static str = "a finite time that is not negative";
    const IS_TIME: bool = true;

    fn number(self) -> f64 {
        self.as_seconds()
    }

    fn from_number(number: f64) -> Self {
        Self::from_seconds(number)
    }

    fn is_valid(number: f64) -> bool {
        number.is_finite() && number >= 0.0
    }

    fn clamped(number: f64) -> f64 {
        number
    }
}

/// A number of an operator law.
///
/// # Formula
/// `value * by_generation[first known key of the device] * product of by_format[every known key of the operand]`. A key that is not
/// listed has factor 1: that is how hardware and formats without measurements get their defaults. Shares are cut at 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter<Q> {
    /// The value where no factor applies.
    pub value: Q,
    /// How it was obtained.
    pub kind: Provenance,
    /// Key into the sources of the profile.
    pub source: String,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Factors by hardware, see [`Keys`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_generation: BTreeMap<String, Factor>,
    /// Factors by number format, head size or link, see [`Keys`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_format: BTreeMap<String, Factor>,
}

/// A factor on a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The factor.
    pub value: f64,
    /// How it was obtained.
    pub kind: Provenance,
    /// Key into the sources of the profile.
    pub source: String,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What factors are looked up by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys<'a> {
    /// The device, from special to general: `ampere-hbm`, `ampere`, `nvidia`. The first that a table lists applies.
    pub generation: &'a [&'a str],
    /// The operand: format of weights (`q4_0`, `fp8`) or cache, head size (`head-64`), link (`pcie`). All that a table lists apply.
    pub format: &'a [&'a str],
}

/// A parameter for one device and one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolved {
    /// The number in its base unit.
    pub value: f64,
    /// The weakest provenance among the value and the factors used.
    pub kind: Provenance,
    /// Whether the device is listed, or the parameter does not depend on it.
    pub known: bool,
}

impl<Q: Quantity> Parameter<Q> {
    /// The parameter for a device and an operand.
    pub fn at(&self, keys: &Keys<'_>) -> Resolved {
        let mut resolved = Resolved { value: self.value.number(), kind: self.kind, known: true };
        if !self.by_generation.is_empty() {
            let factor = keys.generation.iter().find_map(|&key| self.by_generation.get(key));
            resolved.apply(factor);
            resolved.known = factor.is_some();
        }
        if !self.by_format.is_empty() {
            for &key in keys.format {
                resolved.apply(self.by_format.get(key));
            }
        }
        resolved.value = Q::clamped(resolved.value);
        resolved
    }
}

impl Resolved {
    fn apply(&mut self, factor: Option<&Factor>) {
        if let Some(factor) = factor {
            self.value *= factor.value;
            self.kind = self.kind.max(factor.kind);
        }
    }
}

/// A parameter whatever its unit: for checks, listings and fits.
pub trait AnyParameter {
    /// The value in the base unit.
    fn number(&self) -> f64;
    /// Sets the value.
    fn set_number(&mut self, number: f64);
    /// Whether the number is in the range of the quantity.
    fn is_valid(&self) -> bool;
    /// What is expected, for messages.
    fn expected(&self) -> &'static str;
    /// Whether it is a time.
    fn is_time(&self) -> bool;
    /// Provenance of the value.
    fn kind(&self) -> Provenance;
    /// Source of the value.
    fn source(&self) -> &str;
    /// The two tables of factors with their names.
    fn factors(&self) -> [(&'static str, &BTreeMap<String, Factor>); 2];
    /// A factor by the name of its table and its key.
    fn factor_mut(&mut self, table: &str, key: &str) -> Option<&mut Factor>;
}

impl<Q: Quantity> AnyParameter for Parameter<Q> {
    fn number(&self) -> f64 {
        self.value.number()
    }

    fn set_number(&mut self, number: f64) {
        self.value = Q::from_number(number);
    }

    fn is_valid(&self) -> bool {
        Q::is_valid(self.value.number())
    }

    fn expected(&self) -> &'static str {
        Q::EXPECTED
    }

    fn is_time(&self) -> bool {
        Q::IS_TIME
    }

    fn kind(&self) -> Provenance {
        self.kind
    }

    fn source(&self) -> &str {
        &self.source
    }

    fn factors(&self) -> [(&'static str, &BTreeMap<String, Factor>); 2] {
        [("by_generation", &self.by_generation), ("by_format", &self.by_format)]
    }

    fn factor_mut(&mut self, table: &str, key: &str) -> Option<&mut Factor> {
        match table {
            "by_generation" => self.by_generation.get_mut(key),
            "by_format" => self.by_format.get_mut(key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_keys_beat_general_ones_and_unlisted_hardware_gets_the_default() {
        let parameter: Parameter<Share> = toml::from_str(
            r#"
            value = 0.8
            kind = "measured"
            source = "s"
            by_generation.ampere = { value = 0.5, kind = "fitted", source = "s" }
            by_generation.ampere-hbm = { value = 0.9, kind = "fitted", source = "s" }
            by_format.fp8 = { value = 2.0, kind = "assumed", source = "s" }
            "#,
        )
        .unwrap();
        let at = |generation: &[&str], format: &[&str]| parameter.at(&Keys { generation, format });
        assert_eq!(at(&["ampere-hbm", "ampere"], &[]).value, 0.8 * 0.9);
        assert_eq!(at(&["ampere-gddr", "ampere"], &[]), Resolved { value: 0.4, kind: Provenance::Fitted, known: true });
        assert_eq!(at(&["rubin"], &["bf16"]), Resolved { value: 0.8, kind: Provenance::Measured, known: false });
        assert_eq!(at(&["rubin"], &["fp8"]).value, 1.0); // 1.6, and no share is above 1
    }
}
