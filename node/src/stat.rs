//! Counters that anybody who may look at the process can read, without stopping it and without asking it.
//!
//! An endpoint keeps its counters in a sealed memory file of one known name. Whoever may open the process's file
//! descriptors (`/proc/PID/fd`) maps it for reading. Nothing has to be cleaned up when the process dies: the file dies
//! with it.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutthrough_engine::count::{Count, Counter};
use cutthrough_segment::map::{Array, MapError, Mapping, OwnArray, TMPFS};
use cutthrough_segment::record::Words as _;
use cutthrough_segment::sync::{AtomicU64, Ordering};
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, open};
use rustix::io::Errno;

/// Name of the memory file, as `/proc/PID/fd` shows it.
pub const NAME: &str = "cutthrough.stat";
/// First word of the file: tells the layout apart from any other.
const MAGIC: u64 = 0x5441_5453_5455_4302;
/// Words before the counters: magic, process, generation, number of rows, length of the name, then 16 words of name.
const HEAD: usize = 32;
/// First word of the name.
const NAME_WORD: usize = 8;
/// Bytes of a name that are shown.
const NAME_BYTES: usize = 128;
/// Words for counters.
const COUNTERS: usize = 96;
/// Words of a row.
const ROW: usize = 16;
/// Rows that are looked at from outside. Whoever owns the file chooses its length, and each look at a word that was
/// never written costs memory.
const ROWS_SEEN: usize = 1 << 16;

/// What a row says of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum Cell {
    /// 1 while the channel is open.
    Open,
    /// Process number of the peer.
    Peer,
    /// User of the peer.
    User,
    /// Messages sent.
    Sent,
    /// Messages that the peer is known to have taken.
    Acknowledged,
    /// Messages received.
    Received,
    /// Payload bytes sent.
    PayloadSent,
    /// Payload bytes received.
    PayloadReceived,
    /// Pages lent to the peer.
    Lent,
    /// Runs of landing pages posted for the peer.
    Posted,
    /// Bytes in the staging ring towards the peer.
    Staged,
    /// When the channel was opened, in milliseconds since the machine started.
    Opened,
}

/// An endpoint's counters.
#[derive(Debug)]
pub struct Stat {
    words: OwnArray<AtomicU64>,
    _file: OwnedFd,
}

impl Stat {
    /// Counters and `rows` rows, all zero.
    ///
    /// # Errors
    /// [`MapError`], if there is no memory.
    pub fn create(rows: u32, generation: u64) -> Result<Self, MapError> {
        let count = HEAD + COUNTERS + ROW * rows as usize;
        let (words, file) = OwnArray::create(NAME, count)?;
        let stat = Self { words, _file: file };
        stat.store(1, u64::from(std::process::id()));
        stat.store(2, generation);
        stat.store(3, u64::from(rows));
        stat.store(0, MAGIC);
        Ok(stat)
    }

    fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Release);
    }

    /// Says under which name the endpoint listens.
    pub fn set_name(&self, name: &str) {
        let bytes = &name.as_bytes()[..name.len().min(NAME_BYTES)];
        for (place, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.store(NAME_WORD + place, u64::from_le_bytes(word));
        }
        self.store(4, bytes.len() as u64);
    }

    /// Forgets what the row `row` said of the channel before.
    pub fn clear(&self, row: usize) {
        (0..ROW).for_each(|cell| self.store(HEAD + COUNTERS + row * ROW + cell, 0));
    }

    /// Sets a cell of the row `row`. Only the endpoint's own thread writes.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn set(&self, row: usize, cell: Cell, value: u64) {
        self.words[HEAD + COUNTERS + row * ROW + cell as usize].store(value, Ordering::Relaxed);
    }

    /// A counter's value.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.words[HEAD + counter.index()].load(Ordering::Relaxed)
    }
}

impl Count for Stat {
    #[inline]
    fn add(&self, counter: Counter, amount: u64) {
        let word = &self.words[HEAD + counter.index()];
        // One writer: no read-modify-write is needed.
        word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

/// A channel, as seen from outside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Row {
    /// Number of the channel in its endpoint.
    pub channel: usize,
    /// The cells, indexed by [`Cell`].
    pub cells: [u64; ROW],
}

/// An endpoint, as seen from outside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Process number, as the process's own name space counts.
    pub process: u64,
    /// Random number of this life of the endpoint.
    pub generation: u64,
    /// Address that it listens on; empty if it does not listen.
    pub name: String,
    /// Every counter.
    pub counters: Vec<(Counter, u64)>,
    /// Every open channel.
    pub rows: Vec<Row>,
}

/// An endpoint of another process, watched through its memory file.
#[derive(Debug)]
pub struct Watch {
    words: Array<AtomicU64>,
    count: usize,
}

impl Watch {
    /// Opens the counters that a file descriptor of another process holds; `path` is `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// An I/O error, if the process may not be looked at, is gone, or this is not such a file.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = open_harmless(path)?;
        let have = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let bytes = have.min(((HEAD + COUNTERS + ROW * ROWS_SEEN) * 8) as u64);
        let mapping: Arc<Mapping> = Mapping::open(file.as_fd(), bytes, 4096, false).map_err(std::io::Error::other)?;
        let count = usize::try_from(bytes / 8).unwrap_or(0);
        let watch = Self { words: Array::new(&mapping, 0, count), count };
        if count < HEAD + COUNTERS || watch.words.load_acquire(0) != MAGIC {
            return Err(std::io::Error::other("not the counters of an endpoint of this version"));
        }
        Ok(watch)
    }

    /// What the counters say now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let load = |word| self.words.load(word);
        let rows = (self.count - HEAD - COUNTERS) / ROW;
        let name: Vec<u8> = (0..NAME_BYTES / 8).flat_map(|word| load(NAME_WORD + word).to_le_bytes()).collect();
        let name_len = usize::try_from(load(4)).unwrap_or(0).min(NAME_BYTES);
        Snapshot {
            process: load(1),
            generation: load(2),
            name: printable(&name[..name_len]),
            counters: Counter::ALL.iter().map(|counter| (*counter, load(HEAD + counter.index()))).collect(),
            rows: (0..rows)
                .map(|channel| Row {
                    channel,
                    cells: std::array::from_fn(|cell| load(HEAD + COUNTERS + channel * ROW + cell)),
                })
                .filter(|row| row.cells[Cell::Open as usize] == 1)
                .collect(),
        }
    }
}

/// Opens a file for reading if that does nothing but open it. Whoever owns the descriptor may have put anything there
/// meanwhile, also what it may not open itself: to open a pipe lets its writers go on, a terminal may become that of
/// this process, and some devices begin to work. So it is looked at first, which opens nothing.
fn open_harmless(path: &Path) -> rustix::io::Result<OwnedFd> {
    let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !FileType::from_raw_mode(fstat(&found)?.st_mode).is_file() || fstatfs(&found)?.f_type != TMPFS {
        return Err(Errno::NODEV);
    }
    // The file that was looked at, whatever has the name now.
    open(format!("/proc/self/fd/{}", found.as_raw_fd()), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// A text as it may be printed on a terminal, where another process chose its bytes: what a terminal would obey, as
/// escapes and line breaks, is a replacement character each.
#[must_use]
pub fn printable(text: &[u8]) -> String {
    let safe = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(text).chars().map(safe).collect()
}

/// The counters of every endpoint of every process that may be looked at: process number, and the path to open.
///
/// # Errors
/// An I/O error, if `/proc` cannot be read at all, or is not what it should be: not even this process is in it.
pub fn find() -> std::io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    std::fs::metadata("/proc/self/fd")?;
    for process in std::fs::read_dir("/proc")?.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            if target.to_str().is_some_and(|target| target.starts_with(&format!("/memfd:{NAME}"))) {
                found.push((number, file.path()));
            }
        }
    }
    found.sort();
    Ok(found)
}

const _: () = assert!(Counter::ALL.len() <= COUNTERS, "every counter has its word");

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::{CWD, inotify, mknodat};

    use super::*;

    /// Whoever may not open a file can still have a descriptor that names it, and put that where its counters were.
    #[test]
    fn what_is_no_memory_file_is_not_even_opened() {
        let folder = std::env::temp_dir().join(format!("cutthrough-stat-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let (pipe, text) = (folder.join("pipe"), folder.join("text"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        std::fs::write(&text, [0; 8192]).expect("a file");
        let named =
            [&pipe, &text].map(|path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("a name"));
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).expect("a watch");
        inotify::add_watch(&watch, &pipe, inotify::WatchFlags::OPEN).expect("the pipe can be watched");
        for name in &named {
            let path = format!("/proc/self/fd/{}", name.as_raw_fd());
            Watch::open(Path::new(&path)).expect_err("there are no counters");
        }
        let mut room = [MaybeUninit::uninit(); 256];
        let opened = inotify::Reader::new(&watch, &mut room).next().map(|event| event.events());
        std::fs::remove_dir_all(&folder).expect("it was made");
        assert_eq!(opened, Err(Errno::AGAIN), "the pipe was opened");
    }

    #[test]
    fn what_others_say_stays_on_its_line_and_changes_nothing_else() {
        assert_eq!(printable(b"\x1b[2J\nbusy; wait"), "\u{fffd}[2J\u{fffd}busy; wait");
        assert_eq!(printable("caf\u{e9} \u{9b}31m".as_bytes()), "caf\u{e9} \u{fffd}31m");
        assert_eq!(printable(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
}
