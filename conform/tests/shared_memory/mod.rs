//! Two endpoints of one process, joined over shared memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use cutthrough_conform::{Capability, Join};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Joins over shared memory; the sockets lie in a folder of its own.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    folder: PathBuf,
}

impl SharedMemory {
    /// A way of joining with names that nobody else uses.
    pub(crate) fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("cutthrough-conform-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self { folder }
    }
}

impl Join for SharedMemory {
    fn address(&self) -> String {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        format!("shm:{}", self.folder.join(format!("{number}.sock")).display())
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        match capability {
            Capability::ManyEndpoints => None,
            Capability::SharedPages => None,
            Capability::ThousandChannels => raise_files(8192).err(),
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Lets this process have at least so many open files.
fn raise_files(least: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= least) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(least), ..limit };
    setrlimit(Resource::Nofile, raised).map_err(|error| format!("{least} open files: {error}"))
}
