//! Why the program did not end well: one line that says what is wrong and what to do about it.

use std::fmt;
use std::io;

use cutthrough::{MapError, OpenError};
use rustix::io::Errno;

/// What the library says at the end of some remedies; nobody chooses a pool by an option of this program.
const POOLS: &str = ", or choose smaller pools";

/// The program could not do what it was asked, or a check that it was asked for failed.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 2: bad use, or a privilege, feature or resource is missing.
    CannotRun {
        /// What is wrong, in one line.
        what: String,
        /// What the user can do about it, in one line.
        remedy: String,
    },
    /// Exit code 1: it ran, and a check failed.
    CheckFailed {
        /// What is wrong, in one line.
        what: String,
    },
    /// Whoever read standard output has gone (`cutthrough info | head -1`). Not an error to report.
    ReaderGone,
    /// This one, of a program that was asked to end: nobody who may read of it is waited for.
    InHaste(Box<Failure>),
}

impl Failure {
    /// A failure that says `what` is wrong and the `remedy`.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::CannotRun { what: what.into(), remedy: remedy.into() }
    }

    /// A check failed; `what` says which.
    pub fn check(what: impl Into<String>) -> Self {
        Self::CheckFailed { what: what.into() }
    }

    /// The same, but whoever reads of it is not waited for.
    #[must_use]
    pub fn in_haste(self) -> Self {
        if matches!(self, Self::ReaderGone) { self } else { Self::InHaste(Box::new(self)) }
    }

    /// What came of telling something where more is to be done than that: no failure if its reader has gone.
    ///
    /// # Errors
    /// Any other failure.
    pub fn unless_reader_gone(told: Result<(), Self>) -> Result<(), Self> {
        told.or_else(|failure| if matches!(failure, Self::ReaderGone) { Ok(()) } else { Err(failure) })
    }

    /// What some error says; its text may end in a remedy after a semicolon, else this one is told.
    pub fn from_error(error: &impl fmt::Display, remedy: &str) -> Self {
        let text = error.to_string();
        match text.split_once("; ") {
            Some((what, remedy)) => Self::new(what, remedy.strip_suffix(POOLS).unwrap_or(remedy)),
            None => Self::new(text, remedy),
        }
    }

    /// An endpoint that could not be opened: memory may be short, or a sandbox stricter than the program expects.
    #[must_use]
    pub fn of_memory(error: &OpenError) -> Self {
        let said = match error {
            OpenError::System { errno, .. }
            | OpenError::Memory(MapError::Create(errno) | MapError::Map { errno, .. }) => Some(*errno),
            _ => None,
        };
        let remedy = match said {
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => {
                "let this process make that call, if a sandbox forbids it"
            }
            _ => "use smaller sizes",
        };
        Self::from_error(error, remedy)
    }

    /// A process that could not be started. Where a limit is the cause, that one is named.
    #[must_use]
    pub fn of_start(what: &str, error: &io::Error) -> Self {
        let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE) => "raise the limit of open files (ulimit -n)",
            // Of a thread it may be memory that is short, too.
            Some(Errno::AGAIN) => "raise the limits of processes and memory (ulimit -u, ulimit -v), or end some",
            Some(Errno::NOMEM) => "free memory",
            _ => "try again",
        };
        Self::new(format!("{what}: {error}"), remedy)
    }

    /// A failure to write the program's own output.
    #[must_use]
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ReaderGone;
        }
        Self::new(format!("cannot write the output: {error}"), "check where standard output goes")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotRun { what, remedy } => write!(f, "{what}; {remedy}"),
            Self::CheckFailed { what } => f.write_str(what),
            Self::ReaderGone => f.write_str("the reader of the output has gone"),
            Self::InHaste(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}
