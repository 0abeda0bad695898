//! The hello over a Unix socket: one record each way, with the files of the sayer's memory beside it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cutthrough_engine::hello::{Greeting, NoChannel, Refusal, hear};
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::MapError;
use cutthrough_wire::hello::{HELLO_BYTES, Word};
use cutthrough_wire::layout::{Line, SizeError, Sizes};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::strangers::{self, Files};
use crate::sys::files;

/// Files beside a hello: out memory, landing memory.
const FILES: usize = 2;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other side's record makes no channel.
    #[error(transparent)]
    NoChannel(#[from] NoChannel),
    /// Memory, ours or the other side's.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// Our own settings are out of their bounds.
    #[error("a setting is out of bounds: {0:?}")]
    Sizes(SizeError),
    /// The socket failed, or the other side went away.
    #[error("the other side went away during the handshake ({0})")]
    Socket(Errno),
}

impl HandshakeError {
    /// What to answer to who has said hello; nothing where nobody hears it. What this side lacks is no fault of theirs.
    #[must_use]
    pub fn answer(&self) -> Option<Refusal> {
        match self {
            Self::NoChannel(no) => no.answer(),
            Self::Memory(MapError::Create(Errno::MFILE | Errno::NFILE)) => Some(Refusal::Files),
            Self::Memory(
                MapError::Create(_) | MapError::TooLong { .. } | MapError::Map { .. } | MapError::Room { .. },
            ) => Some(Refusal::Room),
            Self::Memory(_) => Some(Refusal::Memory),
            Self::Sizes(_) | Self::Socket(_) => None,
        }
    }
}

/// Our side of a channel to be: memory, and the record and files that let the peer map it.
#[derive(Debug)]
pub struct Offer {
    /// Our memory.
    pub own: Own,
    record: [u8; HELLO_BYTES],
    files: [OwnedFd; 2],
}

/// What the peer has said: its greeting and its memory.
#[derive(Debug)]
pub struct Heard {
    /// Sizes and generation.
    pub greeting: Greeting,
    /// Its memory.
    pub peer: Peer,
}

impl Offer {
    /// Makes our side.
    ///
    /// # Errors
    /// [`HandshakeError`], if there is no memory to be had, or the sizes are out of their bounds.
    pub fn make(generation: u64, sizes: &Sizes) -> Result<Self, HandshakeError> {
        let layout = sizes.layout().map_err(HandshakeError::Sizes)?;
        let (own, files) = Own::create(sizes, layout)?;
        let record = Word::Hello { generation, sizes: *sizes }.to_bytes();
        Ok(Self { own, record, files: [files.out, files.landing] })
    }

    /// Says hello. The files need not be kept afterwards: the mapping lives without them.
    ///
    /// # Errors
    /// [`HandshakeError::Socket`].
    pub fn say(&self, socket: &impl AsFd) -> Result<(), HandshakeError> {
        let files = [self.files[0].as_fd(), self.files[1].as_fd()];
        send_record(socket, &self.record, &files).map_err(HandshakeError::Socket)
    }

    /// No channel comes of it. Who has let it in already is not to take this side for dead.
    pub fn withdraw(&self) {
        self.own.set(Line::Left, 1);
    }
}

/// Says no. Whether the other side still hears it does not matter.
pub fn refuse(socket: &impl AsFd, refusal: Refusal) {
    let _ = send_record(socket, &Word::Refuse(refusal).to_bytes(), &[]);
}

/// Listens for the other side's record: `None` if it has not come yet. A record with files that may not be closed here
/// stays in the socket: it goes with that.
///
/// # Errors
/// [`HandshakeError`]: whatever the other side sends, the worst is that no channel comes of it.
pub fn listen(socket: &impl AsFd) -> Result<Option<Heard>, HandshakeError> {
    let mut record = [0; HELLO_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // Only looked at: of what is taken out, the kernel closes those files for which there is no room here.
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut record)], &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Ok(None),
        Err(errno) => return Err(HandshakeError::Socket(errno)),
    };
    let came = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten();
    let came = Files(came.collect());
    let cut = received.flags.contains(ReturnFlags::CTRUNC);
    if !cut && came.are_memory() {
        strangers::skip(socket);
    }
    if received.bytes == 0 {
        return Err(HandshakeError::Socket(Errno::CONNRESET));
    }
    let greeting = hear(&record[..received.bytes.min(record.len())])?;
    // What this process has no room for among its open files, the kernel leaves out, and says so.
    if came.0.len() < FILES && cut {
        return Err(MapError::Create(Errno::MFILE).into());
    }
    let [out, landing] = came.0.as_slice() else { return Err(NoChannel::Malformed.into()) };
    // More than there may be.
    if cut {
        return Err(NoChannel::Malformed.into());
    }
    let peer = Peer::open(out.as_fd(), landing.as_fd(), &greeting.sizes, greeting.layout)?;
    // All that there are have come with the hello.
    files::take_none(socket.as_fd());
    if strangers::has_files(socket) {
        return Err(NoChannel::Malformed.into());
    }
    Ok(Some(Heard { greeting, peer }))
}

fn send_record(socket: &impl AsFd, record: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(record)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
