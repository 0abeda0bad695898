//! Key files: read only where nobody else can read or change them.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutthrough_seal::{KeyError, Keys, Zeroizing};

/// Bytes of a key file at most.
const MOST: usize = 1 << 20;

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("{path}: {error}; give a key file that this user can read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Others may read or change it.
    #[error(
        "others may read or change the key file {path} (mode {mode:o}); run 'chmod {good:o} {path}', or make a new key \
         with 'cutthrough key'", path = path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Who may do what with it.
        mode: u32,
        /// What it may be at most.
        good: u32,
    },
    /// It is no key file.
    #[error("key file {path}: {fault}", path = path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        fault: KeyError,
    },
}

/// The keys of a file, for [`Config::keys`](crate::config::Config::keys). What is in a key file is said by
/// [`Keys::from_text`]; `cutthrough key FILE` makes one.
///
/// A file of this user's that others may read or change is refused, as ssh does. One of another user's, such as root's
/// for a group, is refused if its group may change it, or everybody may read it.
///
/// # Errors
/// [`KeyFileError`], whose text names the file and says what to do.
pub fn read_keys(path: impl AsRef<Path>) -> Result<Arc<Keys>, KeyFileError> {
    let path = path.as_ref();
    let keys = Keys::from_text(&read_key_text(path)?);
    keys.map(Arc::new).map_err(|fault| KeyFileError::Wrong { path: path.to_owned(), fault })
}

/// The text of a key file, for who hands it on to another process. It is wiped when it is dropped.
///
/// # Errors
/// As [`read_keys`], but what is in the file is not looked at.
pub fn read_key_text(path: impl AsRef<Path>) -> Result<Zeroizing<String>, KeyFileError> {
    let path = path.as_ref();
    let refuse = |error| KeyFileError::Unreadable { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(refuse)?;
    let about = file.metadata().map_err(refuse)?;
    if let Some(good) = better_mode(&about) {
        return Err(KeyFileError::Open { path: path.to_owned(), mode: about.mode() & 0o777, good });
    }
    read_wiped(&mut file).map_err(refuse)
}

/// Bytes of memory that a key file is read into at first: enough for most.
const ROOM: usize = 4096;

/// All the text that there is. Whatever memory it was in meanwhile is wiped: [`io::Read::read_to_string`] asks for more
/// and more, and leaves copies behind, where it is not told how much will come, as of a pipe.
fn read_wiped(from: &mut impl io::Read) -> io::Result<Zeroizing<String>> {
    let (mut bytes, mut have) = (Zeroizing::new(vec![0; ROOM]), 0);
    loop {
        // A device that is named by mistake may have no end.
        if have > MOST {
            return Err(io::Error::other("longer than any key file"));
        }
        if have == bytes.len() {
            let mut more = Zeroizing::new(vec![0; 2 * have]);
            more[..have].copy_from_slice(&bytes);
            bytes = more;
        }
        match from.read(&mut bytes[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let text = str::from_utf8(&bytes[..have]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// What the mode of a key file should be, if others may read or change it. What is no file, such as a pipe that a shell
/// has made, has no mode that says so.
fn better_mode(about: &Metadata) -> Option<u32> {
    let is_ours = about.uid() == rustix::process::geteuid().as_raw();
    let (others, good) = if is_ours { (0o077, 0o600) } else { (0o027, 0o640) };
    (about.is_file() && about.mode() & others != 0).then_some(good)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    /// What is said of a key file with this text and mode; nothing if it is taken.
    fn said(path: &Path, text: &str, mode: u32) -> String {
        std::fs::write(path, text).expect("a file");
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
        read_keys(path).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("cutthrough-node-{}.key", std::process::id()));
        let (name, key) = (path.display(), format!("psk:{}\n", "5a".repeat(32)));
        for mode in [0o600, 0o400] {
            assert_eq!(said(&path, &key, mode), "");
        }
        for mode in [0o644, 0o640, 0o660, 0o604] {
            let expected = format!("others may read or change the key file {name} (mode {mode:o}); run 'chmod 600 ");
            assert!(said(&path, &key, mode).starts_with(&expected), "{mode:o}");
        }
        // One of another user's may be for a group, which may not change it.
        if chown(&path, Some(65_534), None).is_ok() {
            for (mode, refused) in [(0o640, false), (0o660, true), (0o644, true)] {
                assert_eq!(said(&path, &key, mode).contains("run 'chmod 640 "), refused, "{mode:o}");
            }
        } else {
            crate::skipped("only root gives files to others");
        }
        std::fs::remove_file(&path).expect("it was made");
    }

    /// Reads a few bytes at a time, as a pipe may.
    struct Trickle<'a>(&'a [u8]);

    impl io::Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = into.len().min(1000);
            self.0.read(&mut into[..most])
        }
    }

    #[test]
    fn a_text_is_read_whole_whatever_its_length() {
        for bytes in [0, 1, 69, ROOM - 1, ROOM, ROOM + 1, 5 * ROOM] {
            let text = "5".repeat(bytes);
            assert_eq!(*read_wiped(&mut Trickle(text.as_bytes())).expect("a text"), text, "{bytes} bytes");
        }
        let error = read_wiped(&mut Trickle(&[b'p', 0xff])).expect_err("no text");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_is_wrong_with_a_key_file_names_it() {
        let path = std::env::temp_dir().join(format!("cutthrough-node-{}-wrong.key", std::process::id()));
        let name = path.display();
        assert_eq!(
            said(&path, "psk:5a", 0o600),
            format!("key file {name}: line 1: a key has 64 hexadecimal digits, not 2")
        );
        std::fs::remove_file(&path).expect("it was made");
        let missing = read_keys(&path).map(drop).expect_err("there is none").to_string();
        assert!(missing.starts_with(&format!("{name}: ")), "{missing}");
        assert!(missing.ends_with("; give a key file that this user can read"), "{missing}");
        let endless = read_keys("/dev/zero").map(drop).expect_err("it is none").to_string();
        assert!(endless.starts_with("/dev/zero: longer than any key file; "), "{endless}");
    }
}
