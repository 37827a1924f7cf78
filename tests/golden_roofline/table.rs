//! The table of published numbers, and results with units to compare with them.

use llm_roofline::units::*;
use std::collections::BTreeMap;

pub struct Row {
    pub id: String,
    pub inputs: BTreeMap<String, String>,
    pub quantity: String,
    pub expected: f64,
    pub unit: String,
    pub tolerance: f64,
}

impl Row {
    pub fn text(&self, name: &str) -> &str {
        self.inputs.get(name).unwrap_or_else(|| panic!("{}: no input {name}", self.id))
    }

    pub fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("{}: input {name} is no number", self.id))
    }

    pub fn count(&self, name: &str) -> u64 {
        let number = self.number(name);
        assert_eq!(number.fract(), 0.0, "{}: input {name} is no count", self.id);
        number as u64
    }

    pub fn flops_per_second(&self, name: &str) -> FlopsPerSecond {
        FlopsPerSecond::from_flops_per_second(self.number(name))
    }

    pub fn bandwidth(&self, name: &str) -> BytesPerSecond {
        BytesPerSecond::from_bytes_per_second(self.number(name))
    }

    pub fn bytes(&self, name: &str) -> Bytes {
        Bytes::from_bytes(self.number(name))
    }
}

pub fn rows() -> Vec<Row> {
    let text = include_str!("../data/golden_roofline.csv");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("id,source,inputs,quantity,expected,unit,tolerance_pct,notes"));
    lines.map(row).collect()
}

pub fn row(line: &str) -> Row {
    let fields = fields(line);
    let [id, _, inputs, quantity, expected, unit, tolerance, _] = fields.as_slice() else {
        panic!("expected 8 columns: {line}")
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or_else(|| panic!("no name=value pair: {pair}"));
        (name.to_string(), value.to_string())
    };
    Row {
        id: id.clone(),
        inputs: inputs.split(';').map(pair).collect(),
        quantity: quantity.clone(),
        expected: expected.parse().unwrap(),
        unit: unit.clone(),
        tolerance: tolerance.parse::<f64>().unwrap() / 100.0,
    }
}

/// Fields of a CSV line; commas and doubled quotes may stand in quoted fields.
pub fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(character),
        }
    }
    fields
}

/// A result with its unit.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Time(Seconds),
    Data(Bytes),
    Bandwidth(BytesPerSecond),
    Operations(Flops),
    Arithmetic(FlopsPerSecond),
    Intensity(FlopsPerByte),
    Rate(TokensPerSecond),
    Count(f64),
}
impl Value {
    pub fn in_unit(self, unit: &str) -> Option<f64> {
        Some(match (self, unit) {
            (Self::Time(time), "s") => time.as_seconds(),
            (Self::Time(time), "ms") => time.as_millis(),
            (Self::Time(time), "us") => time.as_micros(),
            (Self::Data(bytes), "byte") => bytes.as_bytes(),
            (Self::Data(bytes), "kB") => bytes.as_kb(),
            (Self::Data(bytes), "GB") => bytes.as_gb(),
            (Self::Data(bytes), "KiB") => bytes.as_kib(),
            (Self::Data(bytes), "GiB") => bytes.as_gib(),
            (Self::Bandwidth(bandwidth), "TB/s") => bandwidth.as_tb_per_second(),
            (Self::Operations(flops), "FLOP") => flops.as_flops(),
            (Self::Arithmetic(rate), "FLOP/s") => rate.as_flops_per_second(),
            (Self::Intensity(intensity), "FLOP/byte" | "OP/byte") => intensity.as_flops_per_byte(),
            (Self::Rate(rate), "tok/s" | "tok/s/chip") => rate.as_tokens_per_second(),
            (Self::Count(ratio), "%") => 100.0 * ratio,
            (Self::Count(count), "1" | "param" | "token" | "seq" | "chip" | "expert") => count,
            _ => return None,
        })
    }
}
