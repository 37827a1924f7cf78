//! Gathers the profile files into tables that the library embeds.
//!
//! Each of the folders below becomes a file in `OUT_DIR` with one entry per profile: the keys at its head (what a listing and a
//! lookup need) and its text. The head is read here, line by line, so that finding one profile at run time parses no other; a
//! test compares every head with the parsed profile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDERS: [(&str, &str); 3] =
    [("hardware-profiles", "devices.rs"), ("model-profiles", "models.rs"), ("engine-profiles", "engines.rs")];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    for (folder, table) in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        let mut entries = String::new();
        for path in profiles_in(&root.join(folder))? {
            entries.push_str(&entry(folder, &path)?);
        }
        fs::write(out.join(table), format!("&[\n{entries}]\n"))?;
    }
    Ok(())
}

fn profiles_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    match fs::read_dir(folder) {
        Ok(files) => {
            for file in files {
                let path = file?.path();
                if path.extension().is_some_and(|extension| extension == "toml") {
                    paths.push(path);
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    paths.sort();
    Ok(paths)
}

fn entry(folder: &str, path: &Path) -> io::Result<String> {
    let file = format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy());
    let text = fs::read_to_string(path)?;
    let head = head(&text).map_err(|message| io::Error::other(format!("{file}: {message}")))?;
    if one(&head, "slug") != path.file_stem().and_then(|stem| stem.to_str()) {
        return Err(io::Error::other(format!("{file}: the file must be named after its `slug`")));
    }
    let mut out = String::new();
    let _ = writeln!(out, "    Embedded {{");
    for key in ["slug", "name", "family"] {
        let value = one(&head, key).unwrap_or_default();
        if value.is_empty() && key != "family" {
            return Err(io::Error::other(format!("{file}: no `{key}` before the first table")));
        }
        let _ = writeln!(out, "        {key}: {value:?},");
    }
    let _ = writeln!(out, "        generation: {:?},", one(&head, "generation"));
    let aliases = head.iter().find(|(key, _)| key == "aliases").map_or(&[][..], |(_, values)| values);
    let _ = writeln!(out, "        aliases: &{aliases:?},");
    let _ = writeln!(out, "        file: {file:?},");
    let _ = writeln!(out, "        text: include_str!({:?}),\n    }},", path.to_string_lossy());
    Ok(out)
}

fn one<'a>(head: &'a [(String, Vec<String>)], key: &str) -> Option<&'a str> {
    head.iter().find(|(found, _)| found == key).and_then(|(_, values)| values.first()).map(String::as_str)
}

/// The keys before the first table, each with the strings in its value.
fn head(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut keys = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line.starts_with('[') {
            break;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        if value.trim_start().starts_with("\"\"\"") || value.trim_start().starts_with("'''") {
            return Err(format!("key `{}`: multi-line strings are not read at the head of a profile", key.trim()));
        }
        let mut found = Vec::new();
        let mut open = strings(value, &mut found)?;
        while open > 0 {
            let next = lines.next().ok_or_else(|| format!("key `{}`: the array does not end", key.trim()))?;
            open += strings(next, &mut found)?;
        }
        keys.push((key.trim().to_string(), found));
    }
    Ok(keys)
}

/// Collects the quoted strings of a line; returns how many more brackets it opens than it closes.
fn strings(line: &str, found: &mut Vec<String>) -> Result<i32, String> {
    let mut open = 0;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '#' => break,
            '[' => open += 1,
            ']' => open -= 1,
            '"' | '\'' => {
                let mut string = String::new();
                loop {
                    match rest.next() {
                        None => return Err(format!("a string does not end: {line}")),
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => {
                            string.push(escape(&mut rest).ok_or_else(|| format!("unknown escape: {line}"))?);
                        }
                        Some(other) => string.push(other),
                    }
                }
                found.push(string);
            }
            _ => {}
        }
    }
    Ok(open)
}

fn escape(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let digits = match rest.next()? {
        c @ ('"' | '\\') => return Some(c),
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        't' => return Some('\t'),
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let hex: String = rest.by_ref().take(digits).collect();
    char::from_u32(u32::from_str_radix(&hex, 16).ok()?)
}
