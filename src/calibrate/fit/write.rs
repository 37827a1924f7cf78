//! Fitted constants back into the text of a profile, everything else untouched.

use super::refit::FreeParameter;
use crate::units::Seconds;
use toml_edit::{DocumentMut, Item, Value};

/// The text of a profile with the parameter set to a new number, and marked as fitted; `None` if it holds no such parameter.
///
/// Numbers are rounded to three significant digits: more would pretend.
pub fn set_in_text(text: &str, parameter: &FreeParameter, number: f64) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let mut item: &mut Item = document.as_item_mut();
    for key in path(&parameter.parameter) {
        item = item.get_mut(key)?;
    }
    let value = item.get_mut("value")?.as_value_mut()?;
    let decor = value.decor().clone();
    let new = match value {
        Value::String(_) => Value::from(rounded_time(number)),
        _ => Value::from(rounded(number)),
    };
    *value = new;
    *value.decor_mut() = decor;
    let kind = item.get_mut("kind")?.as_value_mut()?;
    let decor = kind.decor().clone();
    *kind = Value::from("fitted");
    *kind.decor_mut() = decor;
    Some(document.to_string())
}

/// The keys of `law.parameter` or `law.parameter.table.key`, of which the last may hold dots.
fn path(name: &str) -> impl Iterator<Item = &str> {
    name.splitn(4, '.')
}

/// Three significant digits.
pub(super) fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let digits = 2 - number.abs().log10().floor() as i32;
    // The shortest text of the rounded number, read again: no trailing noise.
    let shift = 10_f64.powi(digits.abs());
    if digits >= 0 { (number * shift).round() / shift } else { (number / shift).round() * shift }
}

fn rounded_time(seconds: f64) -> String {
    let micros = rounded(Seconds::from_seconds(seconds).as_micros());
    if micros >= 1000.0 { format!("{} ms", rounded(micros / 1000.0)) } else { format!("{micros} us") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_and_its_kind_change() {
        let text = "[gemm.compute]\nvalue = 0.5 # half\nkind = \"assumed\"\nby_generation.rdna3.5 = { value = 1.0, kind = \"assumed\" }\n\
                    [host]\nper_step = { value = \"1 ms\", kind = \"fitted\" }\n";
        let set = |text: &str, name: &str, number| {
            let parameter = FreeParameter { profile: "p".into(), parameter: name.into(), prior: 1.0, log_sd: 1.0 };
            set_in_text(text, &parameter, number)
        };
        let changed = set(text, "gemm.compute", 0.123456).unwrap();
        assert!(changed.starts_with("[gemm.compute]\nvalue = 0.123 # half\nkind = \"fitted\"\n"), "{changed}");
        let changed = set(text, "host.per_step", 0.000_251_7).unwrap();
        assert!(changed.contains("value = \"252 us\""), "{changed}");
        assert!(set(text, "gemm.memory", 1.0).is_none());
        assert_eq!([rounded(1234.5), rounded(0.00012345), rounded(0.0)], [1230.0, 0.000123, 0.0]);
    }
}
