//! The file of counters that any process can offer to `cutthrough stat`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use arbitrary::Arbitrary;
use cutthrough_node::stat::Watch;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;

/// The first word of a true file of counters.
const MAGIC: u64 = 0x5441_5453_5455_4302;

/// A file of counters.
#[derive(Debug, Arbitrary)]
pub struct Counters {
    /// Bytes from its start on.
    pub bytes: Vec<u8>,
    /// Whether it starts as a true one does.
    pub magic: bool,
    /// Bytes of the file, if that is not as many as there are bytes; at most 1 GiB.
    pub length: Option<u32>,
    /// Whether it is sealed.
    pub sealed: bool,
}

/// Watches any file.
///
/// # Panics
/// If the system gives no memory file, or what was read cannot be shown as it is.
pub fn stat(counters: &Counters) {
    let file = file(counters);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(watch) = Watch::open(Path::new(&path)) else { return };
    let snapshot = watch.snapshot();
    assert!(!snapshot.name.chars().any(char::is_control), "a name is printed on a terminal: {:?}", snapshot.name);
}

fn file(counters: &Counters) -> OwnedFd {
    let file = memfd_create("counters", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file");
    let length = counters.length.map_or(counters.bytes.len() as u64, |length| u64::from(length % (1 << 30)));
    pwrite(&file, &counters.bytes, 0).expect("a memory file can be written");
    if counters.magic {
        pwrite(&file, &MAGIC.to_le_bytes(), 0).expect("a memory file can be written");
    }
    ftruncate(&file, length).expect("a memory file can be cut");
    if counters.sealed {
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .expect("a memory file can be sealed");
    }
    file
}
