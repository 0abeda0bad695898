//! Sockets of strangers, and files that came by them: closed without waiting for whoever sent them.
//!
//! The last to close a file may have to wait for as long as its sender likes: a socket can linger, and a file system
//! can be a program of the sender's. What lies unread in a socket is closed with it. Memory files alone are known to
//! do no such thing; whatever else there may be is closed by a thread of its own.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutthrough_segment::sync::{AtomicU64, Ordering};
use rustix::fs::fcntl_get_seals;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg, shutdown};

use crate::process::Process;
use crate::sys::forked::Own;

/// Lots of files that may wait to be closed before nobody else is listened to.
const LOTS: u64 = 32;
/// Records that a socket is looked through for, at most. By default one holds eleven.
const RECORDS: u32 = 1024;

/// What has to be closed together.
#[derive(Debug)]
enum Lot {
    /// A stranger's socket, with what lies in it.
    Socket(OwnedFd),
    /// Files that were taken out of one.
    Files(Vec<OwnedFd>),
}

/// What a process has to close.
#[derive(Debug, Default)]
struct Lots {
    /// Those that wait for their thread.
    waiting: Mutex<Vec<Lot>>,
    /// How many are not closed yet.
    open: AtomicU64,
}

static OWN: Own<Lots> = Own::new();

/// A socket to somebody with whom there is no channel yet, and may never be one.
#[derive(Debug)]
pub struct Stranger {
    socket: Option<OwnedFd>,
    /// The process that has it: for a child of that it goes on.
    process: Process,
}

impl Stranger {
    /// Who is at the other end of this socket is not known.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket: Some(socket), process: Process::this() }
    }

    /// There is a channel now.
    ///
    /// # Panics
    /// Never: only this takes it.
    #[must_use]
    pub fn met(mut self) -> OwnedFd {
        self.socket.take().expect("a stranger has a socket")
    }
}

impl AsFd for Stranger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("a stranger has a socket").as_fd()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take().filter(|_| self.process.is_this()) else { return };
        // What was said to it is still heard there, and no more comes.
        if shutdown(&socket, Shutdown::Both).is_err() || has_files(&socket) {
            close(Lot::Socket(socket));
        }
    }
}

/// Files that a stranger has sent.
#[derive(Debug)]
pub(super) struct Files(pub(super) Vec<OwnedFd>);

impl Files {
    /// Whether to close them here is all right.
    pub(super) fn are_memory(&self) -> bool {
        self.0.iter().all(is_memory)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let others: Vec<_> = std::mem::take(&mut self.0).into_iter().filter(|file| !is_memory(file)).collect();
        if !others.is_empty() {
            close(Lot::Files(others));
        }
    }
}

/// Only files that lie in memory, whoever has made them, know of seals.
fn is_memory(file: &OwnedFd) -> bool {
    fcntl_get_seals(file).is_ok()
}

/// Whether files come with any record that lies in a socket. The records before that are taken out.
pub(super) fn has_files(socket: &impl AsFd) -> bool {
    let found = (0..RECORDS).find_map(|_| next_has_files(socket));
    let _ = set_socket_passcred(socket, false);
    found.unwrap_or(true)
}

/// Whether files come with the next record; `None` if not, and there may be another.
fn next_has_files(socket: &impl AsFd) -> Option<bool> {
    match is_cut(socket, false) {
        Ok(true) => Some(true),
        // Every record then names its sender: one without bytes is told from none.
        Ok(false) => match is_cut(socket, true) {
            Ok(true) => {
                skip(socket);
                None
            }
            Ok(false) => Some(false),
            Err(_) => Some(true),
        },
        Err(Errno::AGAIN) => Some(false),
        // What has gone wrong before is told once.
        Err(_) => None,
    }
}

/// Whether anything comes with the bytes of the next record, be it the name of its sender, if that is asked for.
///
/// There is no room for it, so nothing is opened; it is only looked at, so nothing is closed. The name itself is not to
/// be had by way of `rustix`, whose process numbers are never 0: that of a record sent before it was asked for is.
fn is_cut(socket: &impl AsFd, names_sender: bool) -> Result<bool, Errno> {
    set_socket_passcred(socket, names_sender)?;
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut none = RecvAncillaryBuffer::default();
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut none, flags)?;
    Ok(received.flags.contains(ReturnFlags::CTRUNC))
}

/// Whether files come with the next record, which has come. Nothing is taken out.
pub(crate) fn brings_files(socket: &impl AsFd) -> bool {
    is_cut(socket, false).unwrap_or(false)
}

/// Takes the next record out of a socket, without what has come with it. False if that fails.
pub(super) fn skip(socket: &impl AsFd) -> bool {
    recv(socket, &mut [0_u8], RecvFlags::DONTWAIT).is_ok()
}

/// Whether so few files wait to be closed that others may bring more.
pub(crate) fn has_room() -> bool {
    let room = OWN.get().open.load(Ordering::Relaxed) < LOTS;
    if !room && !waiting().is_empty() {
        // There was no thread to be had.
        start();
    }
    room
}

/// Closes files, whatever that takes, elsewhere.
fn close(lot: Lot) {
    OWN.get().open.fetch_add(1, Ordering::Relaxed);
    waiting().push(lot);
    start();
}

/// Starts a thread for each lot: others need not wait for it. One for which there was no thread waits for the next.
fn start() {
    let thread = std::thread::Builder::new().name("cutthrough-close".into()).stack_size(64 << 10);
    let _ = thread.spawn(|| {
        let next = || waiting().pop();
        while let Some(lot) = next() {
            match lot {
                // Closed with records in it, it would have the other side hear of that instead of what was said to it.
                Lot::Socket(socket) => (0..RECORDS).take_while(|_| skip(&socket)).for_each(drop),
                Lot::Files(files) => drop(files),
            }
            OWN.get().open.fetch_sub(1, Ordering::Relaxed);
        }
    });
}

fn waiting() -> MutexGuard<'static, Vec<Lot>> {
    OWN.get().waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
