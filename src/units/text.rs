//! Reading and writing quantities as text: a number, a space, a unit.

/// How a unit relates to the base unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    /// A power of ten.
    Decimal(i32),
    /// A power of two.
    Binary(u32),
    /// A plain factor.
    Times(f64),
}

/// A unit as it is spelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) symbol: &'static str,
    pub(super) scale: Scale,
}

/// A text that is not a quantity of the expected kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// There is a number but no unit.
    #[error("{text:?} has no unit: {what} is written as a number and one of {units}")]
    MissingUnit {
        /// The text that was read.
        text: String,
        /// What was expected.
        what: &'static str,
        /// The units understood.
        units: String,
    },
    /// The unit is not one of this quantity.
    #[error("{text:?}: unknown unit {unit:?} for {what}, expected one of {units}{hint}")]
    UnknownUnit {
        /// The text that was read.
        text: String,
        /// The unit in it.
        unit: String,
        /// What was expected.
        what: &'static str,
        /// The units understood.
        units: String,
        /// A hint for units of bits, otherwise empty.
        hint: &'static str,
    },
    /// There is no number before the unit.
    #[error("{text:?} does not start with a number: {what} is written as a number and one of {units}")]
    NotANumber {
        /// The text that was read.
        text: String,
        /// What was expected.
        what: &'static str,
        /// The units understood.
        units: String,
    },
    /// The number is negative, infinite or NaN.
    #[error("{text:?}: {what} must be a finite number that is not negative")]
    OutOfRange {
        /// The text that was read.
        text: String,
        /// What was expected.
        what: &'static str,
    },
}

/// Reads `"3.35 TB/s"` and the like into the base unit.
pub(super) fn parse(text: &str, what: &'static str, units: &[Unit]) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let digits = number_length(trimmed);
    let (number, symbol) = trimmed.split_at(digits);
    let symbol = symbol.trim_start();
    if number.is_empty() {
        let lower = trimmed.trim_start_matches(['+', '-']).to_ascii_lowercase();
        if lower.starts_with("nan") || lower.starts_with("inf") {
            return Err(UnitError::OutOfRange { text: text.into(), what });
        }
        return Err(UnitError::NotANumber { text: text.into(), what, units: spelled(units) });
    }
    if symbol.is_empty() {
        return Err(UnitError::MissingUnit { text: text.into(), what, units: spelled(units) });
    }
    let Some(unit) = units.iter().find(|unit| unit.symbol == symbol) else {
        return Err(UnitError::UnknownUnit {
            text: text.into(),
            unit: symbol.into(),
            what,
            units: spelled(units),
            hint: if speaks_of_bits(symbol) { " (bits are not accepted: divide by 8 and write bytes)" } else { "" },
        });
    };
    match scaled(number, unit.scale) {
        Some(value) if value.is_finite() && value >= 0.0 && !number.starts_with('-') => Ok(value),
        Some(_) => Err(UnitError::OutOfRange { text: text.into(), what }),
        None => Err(UnitError::NotANumber { text: text.into(), what, units: spelled(units) }),
    }
}

/// How many bytes at the start of the text belong to a number (sign, digits, point, exponent).
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let start = end;
    while end < bytes.len() && (bytes[end].is_ascii_digit() || bytes[end] == b'.') {
        end += 1;
    }
    if end == start {
        return 0;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        let digits = bytes[exponent.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            end = exponent + digits;
        }
    }
    end
}

/// The number times its scale, rounded once: `"3.35"` tera is exactly the float nearest to 3.35e12.
fn scaled(number: &str, scale: Scale) -> Option<f64> {
    let plain: f64 = number.parse().ok()?;
    match scale {
        Scale::Decimal(0) => Some(plain),
        Scale::Decimal(power) if !number.contains(['e', 'E']) => format!("{number}e{power}").parse().ok(),
        Scale::Decimal(power) => Some(plain * 10f64.powi(power)),
        Scale::Binary(power) => Some(plain * 2f64.powi(power as i32)),
        Scale::Times(factor) => Some(plain * factor),
    }
}

fn factor(scale: Scale) -> f64 {
    match scale {
        Scale::Decimal(power) => 10f64.powi(power),
        Scale::Binary(power) => 2f64.powi(power as i32),
        Scale::Times(factor) => factor,
    }
}

fn spelled(units: &[Unit]) -> String {
    units.iter().map(|unit| unit.symbol).collect::<Vec<_>>().join(", ")
}

fn speaks_of_bits(symbol: &str) -> bool {
    let amount = symbol.split('/').next().unwrap_or(symbol);
    let amount = amount.trim_end_matches("ps");
    amount.to_ascii_lowercase().ends_with("bit") || (amount.len() <= 3 && amount.ends_with('b'))
}

/// The largest shown unit in which the value is at least one, for people.
pub(super) fn show(value: f64, precision: Option<usize>, units: &[Unit], shown: &[&str]) -> String {
    // 999.96 ms would be rounded to 1000.0 ms.
    let unit = largest_fitting(value * (1.0 + 5e-5), units, shown);
    let number = value / factor(unit.scale);
    let digits = precision.unwrap_or(match number.abs() {
        x if x >= 100.0 && (x - x.round()).abs() < 1e-6 => 0,
        x if x >= 1000.0 => 0,
        x if x >= 10.0 => 1,
        _ => 2,
    });
    format!("{number:.digits$} {}", unit.symbol)
}

/// A text that reads back as exactly the same number.
pub(super) fn write(value: f64, units: &[Unit], shown: &[&str]) -> String {
    let preferred = largest_fitting(value, units, shown);
    let base = units.iter().find(|unit| matches!(unit.scale, Scale::Decimal(0)));
    for unit in std::iter::once(&preferred).chain(base) {
        let number = value / factor(unit.scale);
        let text = number.to_string();
        if scaled(&text, unit.scale) == Some(value) {
            return format!("{text} {}", unit.symbol);
        }
    }
    format!("{value} {}", base.map_or("", |unit| unit.symbol))
}

fn largest_fitting(value: f64, units: &[Unit], shown: &[&str]) -> Unit {
    let mut candidates = shown.iter().filter_map(|symbol| units.iter().find(|unit| unit.symbol == *symbol));
    let mut best = *candidates.next().unwrap_or(&units[0]);
    for unit in candidates {
        if value.abs() >= factor(unit.scale) {
            best = *unit;
        }
    }
    if value == 0.0 {
        best = units.iter().copied().find(|unit| matches!(unit.scale, Scale::Decimal(0))).unwrap_or(best);
    }
    best
}

/// Pads to the width that was asked for; the precision was used for the digits already.
pub(super) fn pad(f: &mut std::fmt::Formatter<'_>, text: &str) -> std::fmt::Result {
    match (f.width(), f.align()) {
        (Some(width), Some(std::fmt::Alignment::Right)) => write!(f, "{text:>width$}"),
        (Some(width), Some(std::fmt::Alignment::Center)) => write!(f, "{text:^width$}"),
        (Some(width), _) => write!(f, "{text:<width$}"),
        (None, _) => f.write_str(text),
    }
}
