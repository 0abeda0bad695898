//! Which crate may use which: a crate uses only crates in rows above its own, and rows 1 and 2 reach no machine.

use std::path::Path;

use crate::sources::{self, Source};

/// Each crate's folder and row.
const ROWS: [(&str, u32); 12] = [
    ("wire", 1),
    ("space", 1),
    ("engine", 2),
    ("seal", 2),
    ("segment", 2),
    ("node", 3),
    ("sim", 3),
    ("cutthrough", 4),
    ("splitc", 5),
    ("cli", 6),
    ("conform", 6),
    ("xtask", 6),
];

/// Crates without unsafe code, as the compiler checks.
const SAFE: [&str; 9] = ["wire", "space", "engine", "seal", "sim", "cutthrough", "splitc", "cli", "xtask"];

/// Crates that run without an operating system.
const PURE: [&str; 2] = ["wire", "engine"];

/// What breaks the rules, a sentence each.
pub(crate) fn faults(root: &Path) -> Vec<String> {
    let rows = ROWS.iter().flat_map(|(folder, row)| row_faults(root, folder, *row));
    let pure = PURE.iter().flat_map(|folder| pure_faults(root, folder));
    rows.chain(SAFE.iter().filter_map(|folder| forbids_unsafe(root, folder))).chain(pure).collect()
}

fn row_faults(root: &Path, folder: &str, row: u32) -> Vec<String> {
    let manifest = format!("{folder}/Cargo.toml");
    let Ok(text) = std::fs::read_to_string(root.join(&manifest)) else {
        return vec![format!("{manifest}: a crate of the design is missing")];
    };
    let used = dependencies(&text).filter_map(|name| ROWS.iter().find(|(folder, _)| package(folder) == name));
    used.filter(|(_, theirs)| *theirs >= row)
        .map(|(used, theirs)| format!("{manifest}: a crate of row {row} uses `{used}`, which is in row {theirs}"))
        .collect()
}

/// The name of a folder's package.
fn package(folder: &str) -> String {
    match folder {
        "cutthrough" | "xtask" => folder.to_owned(),
        _ => format!("cutthrough-{folder}"),
    }
}

/// Names of a manifest's dependencies, those of its tests left out.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies") && !section.contains("dev-dependencies");
            return None;
        }
        let name = line.split(['.', '=', ' ']).next().filter(|name| !name.is_empty() && !name.starts_with('#'));
        name.filter(|_| inside)
    })
}

fn forbids_unsafe(root: &Path, folder: &str) -> Option<String> {
    let path = if root.join(folder).join("src/lib.rs").exists() { "src/lib.rs" } else { "src/main.rs" };
    let text = std::fs::read_to_string(root.join(folder).join(path)).unwrap_or_default();
    (!text.lines().any(|line| line == "#![forbid(unsafe_code)]"))
        .then(|| format!("{folder}/{path}: lacks `#![forbid(unsafe_code)]`"))
}

fn pure_faults(root: &Path, folder: &str) -> Vec<String> {
    let sources = sources::find(&root.join(folder).join("src"), &["rs"]);
    let no_std = sources.iter().any(|source| source.path == "lib.rs" && source.text.contains("#![no_std]"));
    let lacks = (!no_std).then(|| format!("{folder}/src/lib.rs: lacks `#![no_std]`"));
    lacks.into_iter().chain(sources.iter().flat_map(|source| reaches(folder, source))).collect()
}

/// Where a pure crate reaches for the machine; its unit tests may use collections of `std`, and nothing else of it.
fn reaches(folder: &str, source: &Source) -> Vec<String> {
    const MACHINE: [&str; 6] = ["std::time", "std::net", "std::thread", "std::fs", "std::env", "std::process"];
    let found = source.lines().filter_map(|(number, line)| {
        let reached = MACHINE.iter().find(|module| line.contains(*module))?;
        Some(format!("{folder}/src/{}:{number}: reaches `{reached}`", source.path))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_those_of_the_crate_itself() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n# b = 1\nc = { path = \"c\" }\n\
                        [dev-dependencies]\nd = \"1\"\n[target.\"cfg(loom)\".dependencies]\ne = \"1\"\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["a", "c", "e"]);
    }
}
