//! The files that the rules are about.

use std::path::{Path, PathBuf};

/// Folders that hold what others have made: results of builds, what the fuzzer has found, the repository's own files.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "shared"];

/// A text file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the repository's folder on, with forward slashes.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

impl Source {
    /// The ending of its name, without the dot.
    pub(crate) fn ending(&self) -> &str {
        Path::new(&self.path).extension().and_then(|ending| ending.to_str()).unwrap_or("")
    }

    /// Its lines with their numbers, from 1 on.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// Every text file with one of these endings, in order of their paths.
pub(crate) fn find(root: &Path, endings: &[&str]) -> Vec<Source> {
    let mut folders = vec![root.to_owned()];
    let mut paths: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                folders.push(entry.path());
            } else if kind.is_file() {
                paths.push(entry.path());
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let ending = path.extension()?.to_str()?;
        let text = endings.contains(&ending).then(|| std::fs::read_to_string(&path).ok())??;
        let path = path.strip_prefix(root).ok()?.to_string_lossy().replace('\\', "/");
        Some(Source { path, text })
    };
    paths.into_iter().filter_map(read).collect()
}
