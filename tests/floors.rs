//! The floors of docs/architecture.md: a module imports only from its own floor and those below, and never in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules and their floors, from the ground up.
const FLOORS: [(u32, &[&str]); 10] = [
    (0, &["units", "numeric", "parallel", "queueing", "profile"]),
    (1, &["hardware", "model", "format", "engine"]),
    (2, &["catalog", "import"]),
    (3, &["operator", "roofline"]),
    (4, &["deployment", "memory", "collective"]),
    (5, &["step"]),
    (6, &["request", "speculative", "workload", "text", "delivery"]),
    (7, &["serving"]),
    (8, &["planner", "report", "plot", "calibrate"]),
    (9, &["prelude"]),
];

#[test]
fn imports_only_go_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    rust_files(&root, &mut paths);
    assert!(paths.len() > 10, "found only {} source files", paths.len());
    let sources = paths.iter().map(|path| {
        let relative = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        (relative, fs::read_to_string(path).unwrap())
    });
    let violations = check(&sources.collect::<Vec<_>>());
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// Everything that is wrong with the imports of these files (path below `src`, text).
fn check(sources: &[(String, String)]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in sources {
        let module = module_path(file);
        // The crate root re-exports what it likes; test files may look anywhere.
        let Some(from) = module.first() else { continue };
        let Some(floor) = floor_of(from) else {
            violations
                .push(format!("src/{file}: module `{from}` has no floor: add it to the table in tests/floors.rs"));
            continue;
        };
        if module.last().is_some_and(|last| last == "tests") {
            continue;
        }
        for (line, to) in imports(&without_tests(&code_only(text)), module.len()) {
            match floor_of(&to) {
                None => violations.push(format!("src/{file}:{line}: `crate::{to}` is not a module with a floor")),
                Some(target) if target > floor => {
                    violations.push(format!("src/{file}:{line}: {from} (floor {floor}) imports {to} (floor {target})"));
                }
                Some(_) if to != *from => {
                    edges.entry(from.clone()).or_default().insert(to);
                }
                Some(_) => {}
            }
        }
    }
    violations.extend(cycles(&edges));
    violations
}

fn floor_of(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// `step/cost.rs` is the module `step::cost`, `step/mod.rs` is `step`, `lib.rs` is the root.
fn module_path(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(Into::into).collect();
    if path.last().is_some_and(|last| last == "mod" || last == "lib") {
        path.pop();
    }
    path
}

/// Blanks comments and string literals, keeping the lines.
fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let next = chars.get(at + 1).copied();
        let end = match (chars[at], next) {
            ('/', Some('/')) => skip_until(&chars, at, |rest| rest[0] == '\n'),
            ('/', Some('*')) => skip_block_comment(&chars, at),
            ('r', Some('"' | '#')) if at == 0 || !chars[at - 1].is_alphanumeric() => skip_raw_string(&chars, at),
            ('"', _) => skip_string(&chars, at),
            ('\'', _) => skip_char(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

fn skip_until(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|&at| stop(&chars[at..])).unwrap_or(chars.len())
}

fn skip_block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn skip_string(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn skip_raw_string(chars: &[char], from: usize) -> usize {
    let hashes = chars[from + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(from + 1 + hashes) != Some(&'"') {
        return from; // a raw identifier
    }
    let is_end = |rest: &[char]| rest[0] == '"' && rest[1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    (skip_until(chars, from + 2 + hashes, is_end) + 1 + hashes).min(chars.len())
}

/// A character literal; a lifetime is left alone.
fn skip_char(chars: &[char], from: usize) -> usize {
    match chars[from + 1..] {
        ['\\', _, ..] => (skip_until(chars, from + 3, |rest| rest[0] == '\'') + 1).min(chars.len()),
        [_, '\'', ..] => from + 3,
        _ => from,
    }
}

/// Blanks every item under `#[cfg(test)]`, keeping the lines.
fn without_tests(code: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(ATTRIBUTE) {
        out.push_str(&rest[..start]);
        let item = &rest[start..];
        let mut depth = 0;
        let end = item.char_indices().find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0 && (c == '}' || c == ';')).then_some(at + 1)
        });
        let end = end.unwrap_or(item.len());
        out.extend(item[..end].chars().filter(|&c| c == '\n'));
        rest = &item[end..];
    }
    out.push_str(rest);
    out
}

/// Top-level modules that the code names, with the line: after `crate::`, or after enough `super::` to reach the root from a
/// module `depth` levels below it.
fn imports(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let climb = "super::".repeat(depth);
    for root in ["crate::", climb.as_str()] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | ':')) {
                continue;
            }
            let line = 1 + code[..at].matches('\n').count();
            out.extend(first_segments(&code[at + root.len()..]).into_iter().map(|name| (line, name)));
        }
    }
    out
}

/// The first segment of a path, or of each path of a `{...}` group.
fn first_segments(path: &str) -> Vec<String> {
    let identifier = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = path.strip_prefix('{') else { return vec![identifier(path)] };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                names.push(identifier(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names.retain(|name: &String| !name.is_empty());
    names
}

/// One message per group of modules that import each other in a circle.
fn cycles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reachable = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.to_string()];
        while let Some(module) = open.pop() {
            for next in edges.get(&module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let circles: BTreeSet<Vec<String>> = edges
        .keys()
        .filter(|module| reachable(module).contains(*module))
        .map(|module| {
            let both_ways = |other: &String| reachable(other).contains(module);
            reachable(module).into_iter().filter(both_ways).collect()
        })
        .collect();
    circles.into_iter().map(|circle| format!("modules import each other: {}", circle.join(", "))).collect()
}

fn check_one(file: &str, text: &str) -> Vec<String> {
    check(&[(file.into(), text.into())])
}

#[test]
fn the_checker_sees_an_import_that_goes_up() {
    let up = "\n\nuse crate::step::StepModel;\n";
    assert_eq!(check_one("model/mod.rs", up), ["src/model/mod.rs:3: model (floor 1) imports step (floor 5)"]);
    assert_eq!(check_one("units.rs", "fn f() -> crate::model::Model { loop {} }").len(), 1);
    assert_eq!(check_one("units.rs", "use super::model::Model;").len(), 1);
    assert_eq!(
        check_one("units/text.rs", "use super::super::{\n    profile::{self, nearest},\n    model::Model,\n};").len(),
        1
    );
    assert_eq!(check_one("model/mod.rs", "use crate::{units::Bytes, step::{a, b}, planner};").len(), 2);
}

#[test]
fn the_checker_sees_unknown_modules() {
    assert!(check_one("helpers.rs", "")[0].contains("module `helpers` has no floor"));
    assert!(check_one("model/mod.rs", "use crate::helpers;")[0].contains("src/model/mod.rs:1: `crate::helpers`"));
}

#[test]
fn the_checker_sees_circles() {
    let sources = [("memory.rs", "use crate::deployment;"), ("deployment/mod.rs", "use crate::memory::fits;")];
    let sources = sources.map(|(file, text)| (file.to_string(), text.to_string()));
    assert_eq!(check(&sources), ["modules import each other: deployment, memory"]);
    assert_eq!(check(&sources[..1]), Vec::<String>::new());
}

#[test]
fn the_checker_ignores_comments_strings_and_tests() {
    let text = r##"
//! See crate::planner.
/* crate::planner /* nested */ crate::planner */
use crate::units::Bytes;
use super::layer; // crate::planner
const A: &str = "crate::planner \" crate::planner";
const B: &str = r#"crate::planner " crate::planner"#;
const C: [char; 2] = ['"', '\''];
fn f<'a>(x: &'a str) {}
#[cfg(test)]
mod tests {
    use crate::planner;
    fn g() { { } }
}
#[cfg(test)]
use crate::planner;
"##;
    assert_eq!(check_one("model/layer.rs", text), Vec::<String>::new());
    assert_eq!(check_one("model/tests.rs", "use crate::planner;"), Vec::<String>::new());
    let after = format!("{text}\nuse crate::planner;");
    assert_eq!(
        check_one("model/layer.rs", &after),
        ["src/model/layer.rs:18: model (floor 1) imports planner (floor 8)"]
    );
}
