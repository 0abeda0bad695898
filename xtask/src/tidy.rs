//! The house rules that no other tool checks.

use std::path::Path;

use crate::crates;
use crate::sources::{self, Source};

/// Most lines of a source file.
const LINES: usize = 600;
/// Most columns of a line.
const COLUMNS: usize = 120;
/// Words that say that something is not finished. In two parts, so that they are not found here.
const LEFTOVERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Lines above an unsafe block among which its reason has to stand.
const REASON_LINES: usize = 8;

/// What breaks the rules, a line each.
pub(crate) fn faults(root: &Path) -> Vec<String> {
    let sources = sources::find(root, &["rs", "md", "toml", "sh", "yml"]);
    let in_sources = sources.iter().flat_map(|source| {
        [length(source), columns(source), leftovers(source), unsafe_place(source), unsafe_reason(source)]
    });
    in_sources.flatten().chain(crates::faults(root)).collect()
}

fn length(source: &Source) -> Vec<String> {
    let lines = source.lines().count();
    let fault = (source.ending() == "rs" && lines > LINES)
        .then(|| format!("{}: {lines} lines; split it, {LINES} are enough", source.path));
    fault.into_iter().collect()
}

/// Long lines; tables and addresses in texts cannot be broken.
fn columns(source: &Source) -> Vec<String> {
    let exempt = |line: &str| match source.ending() {
        "rs" => false,
        "md" => line.trim_start().starts_with('|') || line.contains("://"),
        _ => true,
    };
    let long = |line: &str| line.chars().count() > COLUMNS && !exempt(line);
    at_lines(source, long, &format!("more than {COLUMNS} columns"))
}

fn leftovers(source: &Source) -> Vec<String> {
    let found = |line: &str| words(line).any(|word| LEFTOVERS.contains(&word));
    at_lines(source, found, "something is left to do")
}

/// Unsafe code lives in `segment` and in `node/src/sys`; tests may play the hostile process, and count its calls.
fn unsafe_place(source: &Source) -> Vec<String> {
    let allowed = source.path.starts_with("segment/")
        || source.path.starts_with("node/src/sys/")
        || source.path.starts_with("bench/peers/")
        || source.path.split('/').any(|folder| folder == "tests");
    if allowed || source.ending() != "rs" {
        return Vec::new();
    }
    at_lines(source, is_unsafe, "unsafe code outside of `segment` and `node/src/sys`")
}

fn unsafe_reason(source: &Source) -> Vec<String> {
    if source.ending() != "rs" {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let needs = |line: &str| is_unsafe(line) && !line.contains("unsafe fn") && !line.contains("unsafe trait");
    let has = |number: usize| {
        lines[number.saturating_sub(1 + REASON_LINES)..number].iter().any(|line| line.contains("SAFETY:"))
    };
    let lacking = source.lines().filter(|(number, line)| needs(line) && !has(*number));
    lacking.map(|(number, _)| format!("{}:{number}: unsafe without a SAFETY comment above", source.path)).collect()
}

/// Whether a line of code, not of comment or text, has the keyword.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    let code = code.split('"').next().unwrap_or("");
    words(code).any(|word| word == "unsafe")
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

fn at_lines(source: &Source, fault: impl Fn(&str) -> bool, says: &str) -> Vec<String> {
    let lines = source.lines().filter(|(_, line)| fault(line));
    lines.map(|(number, _)| format!("{}:{number}: {says}", source.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn the_house_is_tidy() {
        let faults = faults(crate::root());
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn long_lines_are_found_where_they_can_be_broken() {
        let long = "x".repeat(COLUMNS + 1);
        assert_eq!(columns(&source("a.rs", &long)).len(), 1);
        assert_eq!(columns(&source("a.md", &long)).len(), 1);
        assert!(columns(&source("a.md", &format!("| {long} |"))).is_empty());
        assert!(columns(&source("a.rs", &"ü".repeat(COLUMNS))).is_empty());
    }

    #[test]
    fn leftovers_are_whole_words() {
        assert_eq!(
            leftovers(&source("a.rs", &format!("// {}: later", LEFTOVERS[0]))),
            ["a.rs:1: something is left to do"]
        );
        assert!(leftovers(&source("a.rs", &format!("let {}S = 1;", LEFTOVERS[0]))).is_empty());
    }

    #[test]
    fn unsafe_code_has_its_places_and_its_reasons() {
        let code = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(unsafe_place(&source("node/src/node.rs", code)).len(), 1);
        assert!(unsafe_place(&source("node/src/sys/call.rs", code)).is_empty());
        assert_eq!(
            unsafe_reason(&source("segment/src/map.rs", code)),
            ["segment/src/map.rs:2: unsafe without a SAFETY comment above"]
        );
        assert!(unsafe_reason(&source("segment/src/map.rs", "// SAFETY: g is harmless.\nunsafe { g() }")).is_empty());
        assert!(!is_unsafe("#![forbid(unsafe_code)]") && !is_unsafe("// unsafe") && !is_unsafe("\"unsafe\""));
    }
}
