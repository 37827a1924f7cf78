//! Remarks on published measurements that their collections leave out.

use llm_roofline::calibrate::{Measurement, Tag};
use std::collections::HashMap;
use std::error::Error;

/// Adds the tags of a table `id,tag` to the rows that it names; ids of other files are passed over.
pub fn add(rows: &mut [Measurement], path: &str) -> Result<(), Box<dyn Error>> {
    let mut table = csv::ReaderBuilder::new().comment(Some(b'#')).from_path(path)?;
    let records = table.deserialize::<(String, String)>();
    let tags: HashMap<String, String> =
        records.collect::<Result<_, _>>().map_err(|error| format!("{path}: {error}"))?;
    for row in rows {
        if let Some(tag) = tags.get(&row.id) {
            let (name, value) = tag.split_once('=').map_or((tag.as_str(), None), |(name, value)| (name, Some(value)));
            row.tags.push(Tag { name: name.into(), value: value.map(Into::into) });
        }
    }
    Ok(())
}
