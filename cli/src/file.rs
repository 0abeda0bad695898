//! Files: a real one, read into memory, whose pages are served or checked against; and those that are written at last.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;
use crate::units::Size;

/// Most bytes that are read of a file; three copies of it are held at a time.
pub const MOST: u64 = 256 << 20;

/// A file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its bytes from the beginning, [`MOST`] of them at most. Never empty.
    pub bytes: Vec<u8>,
    /// Whether there is more of it.
    pub cut: bool,
}

/// Reads a file, or as much of it as is used.
///
/// # Errors
/// If it is no file, cannot be read, is empty, or there is no memory for it.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    load_at_most(path, MOST)
}

fn load_at_most(path: &Path, most: u64) -> Result<Loaded, Failure> {
    let name = path.display();
    let refuse = |why: &str| Failure::new(format!("{name}: {why}"), "choose another file with --file");
    let unreadable = |error: io::Error| refuse(&error.to_string());
    // Asked before it is opened: opening a pipe would wait for somebody to write into it.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(refuse("is a directory"));
    }
    if !metadata.is_file() {
        return Err(refuse("is not a regular file"));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let expected = usize::try_from(metadata.len().min(most) + 1).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(expected).is_err() {
        let needed = Size(metadata.len().min(most));
        return Err(Failure::new(format!("{name}: no memory for {needed}"), "free memory, or choose a smaller file"));
    }
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let cut = bytes.len() as u64 > most;
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    if bytes.is_empty() { Err(refuse("is empty")) } else { Ok(Loaded { bytes, cut }) }
}

/// Makes sure that a file can be written later. Where there is none, none is left, whatever comes in between.
///
/// # Errors
/// If it cannot.
pub fn writable(path: &Path) -> io::Result<()> {
    match File::options().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map(drop),
    }
    match File::options().append(true).create_new(true).open(path) {
        Ok(_) => std::fs::remove_file(path),
        // A link to nowhere, or somebody was quicker: it is written when it is time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_is_not_made_yet() {
        let path = std::env::temp_dir().join(format!("cutthrough-writable-{}", std::process::id()));
        assert!(writable(&path).is_ok() && !path.exists());
        std::fs::write(&path, "text").expect("a file can be written");
        assert!(writable(&path).is_ok());
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "text");
        std::fs::remove_file(&path).expect("it is there");
        for path in ["/", "/no/such/folder/file", "/proc/no-such-file"] {
            assert!(writable(Path::new(path)).is_err(), "{path}");
        }
    }

    fn refusal(path: &str) -> String {
        load(Path::new(path)).expect_err("no such file").to_string()
    }

    #[test]
    fn what_is_no_file_is_refused() {
        assert!(refusal("/no/such/file").starts_with("/no/such/file: "));
        assert!(refusal("/").starts_with("/: is a directory; "));
        assert!(refusal("/dev/null").contains("is not a regular file"));
        assert!(refusal("/proc/self/mountinfo/x").ends_with("choose another file with --file"));
    }

    #[test]
    fn a_long_file_is_cut() {
        let path = std::env::current_exe().expect("this test is a file");
        let loaded = load_at_most(&path, 1000).expect("it can be read");
        assert_eq!((loaded.bytes.len(), loaded.cut), (1000, true));
    }

    #[test]
    fn a_file_that_does_not_know_its_length_is_read_all_the_same() {
        let loaded = load(Path::new("/proc/self/stat")).expect("it can be read");
        assert!(!loaded.bytes.is_empty() && !loaded.cut);
    }
}
