//! Tables of published figures: CSV with comment lines that start with `#` and fields in quotes where they hold commas.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// One line of a table.
pub struct Row(BTreeMap<String, String>);

/// Every line.
pub fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let header: Vec<String> = lines.next().expect("a header").split(',').map(str::to_owned).collect();
    let row = |line: &str| {
        let fields = split_quoted(line);
        assert_eq!(fields.len(), header.len(), "{line}");
        Row(header.iter().cloned().zip(fields).collect())
    };
    lines.map(row).collect()
}

fn split_quoted(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("at least one field").push(c),
        }
    }
    fields
}

impl Row {
    pub fn id(&self) -> &str {
        self.text("id")
    }

    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).unwrap_or_else(|| panic!("no column {column}"))
    }

    pub fn number<T: FromStr<Err: Display>>(&self, column: &str) -> T {
        self.text(column).parse().unwrap_or_else(|error| panic!("{self}, {column}: {error}"))
    }

    /// A number, if the cell is not empty.
    pub fn stated<T: FromStr<Err: Display>>(&self, column: &str) -> Option<T> {
        (!self.text(column).is_empty()).then(|| self.number(column))
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
