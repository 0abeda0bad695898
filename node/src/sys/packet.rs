//! Rings of Ethernet frames that are shared with the kernel: an `AF_PACKET` socket with `TPACKET_V2` (packet(7)).
//!
//! Both rings lie in one stretch of the kernel's memory, in slots. The first word of a slot says whose it is. Who has
//! it may do with the slot what he likes, then writes the word, and it is the other's. So frames come without a call,
//! and a call is needed to send only because somebody must do the kernel's part of the work.
//!
//! Before each frame lies a head that says how it is to be cut (`PACKET_VNET_HDR`). It is needed both ways:
//!
//! * a short train of datagrams (GSO), where the filter takes it, comes as one frame. The head says how long the
//!   datagrams in it are;
//! * on its way out a frame's bytes stay in the slot until the adapter has read them, and the kernel remembers their
//!   pages. The head asks it to copy the frame at once instead: across a veth pair round trips of 8 KiB were a tenth to
//!   a fifth shorter, and the slot is free at once, whatever the adapter does. Only frames that are longer than any
//!   Ethernet's stay, for which the kernel would need much memory in one piece.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_void, sock_filter, socklen_t, tpacket_req, tpacket2_hdr};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Bytes of the head before each frame (`struct virtio_net_hdr`).
const HEAD: usize = 10;
/// Where the head of a frame that goes out lies in its slot.
const OUT: usize = size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
/// More than the kernel writes into a slot before an Ethernet frame that has come, and somewhat more than the frame.
const IN: usize = 128;
/// Longest frame that the kernel copies at once.
const COPIED: usize = 16 << 10;
/// Bytes of memory that the kernel takes in one piece.
const BLOCK: usize = 64 << 10;
/// Frames begin at lines of the cache.
const LINE: usize = 64;

/// How many slots there are, and where.
#[derive(Debug, Clone, Copy)]
struct Lane {
    begin: usize,
    block: usize,
    blocks: usize,
    slot: usize,
    per_block: usize,
}

impl Lane {
    /// About `bytes` of slots of at least `slot` bytes, from `begin` on, but never fewer than `least` slots.
    fn new(begin: usize, slot: usize, (bytes, least): (usize, usize), page: usize) -> Self {
        let slot = slot.next_multiple_of(LINE);
        let block = slot.max(BLOCK).next_multiple_of(page);
        let per_block = block / slot;
        let blocks = bytes.div_ceil(block).max(least.div_ceil(per_block));
        Self { begin, block, blocks, slot, per_block }
    }

    const fn bytes(&self) -> usize {
        self.block * self.blocks
    }

    const fn slots(&self) -> usize {
        self.per_block * self.blocks
    }

    fn request(&self) -> tpacket_req {
        let number = |value| libc::c_uint::try_from(value).unwrap_or(libc::c_uint::MAX);
        tpacket_req {
            tp_block_size: number(self.block),
            tp_block_nr: number(self.blocks),
            tp_frame_size: number(self.slot),
            tp_frame_nr: number(self.slots()),
        }
    }
}

/// A slot of a lane: where it begins, and what is needed to find the next.
#[derive(Debug, Clone, Copy)]
struct Turn {
    at: usize,
    block: usize,
    within: usize,
}

impl Turn {
    const fn first(lane: &Lane) -> Self {
        Self { at: lane.begin, block: 0, within: 0 }
    }

    /// Goes to the next slot; from the last to the first.
    #[inline]
    fn advance(&mut self, lane: &Lane) {
        self.within += 1;
        self.at += lane.slot;
        if self.within == lane.per_block {
            self.within = 0;
            self.block += 1;
            if self.block == lane.blocks {
                self.block = 0;
            }
            self.at = lane.begin + self.block * lane.block;
        }
    }
}

/// How long rings are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Bytes of the longest frame, Ethernet header included.
    pub(crate) longest: usize,
    /// About how many bytes of the kernel's memory they take, for frames that come and for those that go.
    pub(crate) bytes: (usize, usize),
    /// How many slots each of them has at least, however much memory that takes.
    pub(crate) least: usize,
}

impl Size {
    /// The ring of frames that come, and the one of those that go.
    fn lanes(&self) -> (Lane, Lane) {
        let (page, (arriving, leaving)) = (rustix::param::page_size(), self.bytes);
        let arriving = Lane::new(0, self.longest + IN, (arriving, self.least), page);
        let leaving = Lane::new(arriving.bytes(), self.longest + HEAD + OUT, (leaving, self.least), page);
        (arriving, leaving)
    }

    /// Bytes of memory in all.
    pub(crate) fn all(&self) -> usize {
        let (arriving, leaving) = self.lanes();
        arriving.bytes() + leaving.bytes()
    }
}

/// The pair of rings of one interface.
#[derive(Debug)]
pub(crate) struct Packets {
    fd: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
    arriving: Lane,
    leaving: Lane,
    /// The slot of the next frame that comes.
    next: Turn,
    /// The slot of the next frame that goes out, and that of the last one.
    fill: Turn,
    last: Turn,
    /// The slot of the oldest frame that may still be under way out.
    oldest: Turn,
    under_way: usize,
}

// SAFETY: the mapping is memory that only this value and the kernel reach; it has no ties to a thread.
unsafe impl Send for Packets {}

impl Packets {
    /// Opens rings on the interface of this index. Only frames that `filter` accepts come, from the first one on.
    ///
    /// # Errors
    /// As the kernel says: [`Errno::PERM`] without the right to it (`CAP_NET_RAW`), [`Errno::AFNOSUPPORT`] or
    /// [`Errno::NOPROTOOPT`] if it lacks them, [`Errno::NODEV`] if there is no such interface, [`Errno::NOMEM`].
    pub(crate) fn open(interface: u32, filter: &[sock_filter], size: Size) -> Result<Self, Errno> {
        // Protocol 0 means that nothing comes until it is bound below.
        // SAFETY: three numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the kernel has just opened it, and nobody else knows of it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let option = |option, value: c_int| set(fd.as_fd(), libc::SOL_PACKET, option, &value);
        option(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as c_int)?;
        option(libc::PACKET_VNET_HDR, 1)?;
        // A frame that the kernel does not like is dropped, and does not stop those behind it.
        option(libc::PACKET_LOSS, 1)?;
        option(libc::PACKET_QDISC_BYPASS, 1)?;
        attach(fd.as_fd(), filter)?;
        let (arriving, leaving) = size.lanes();
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &arriving.request())?;
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_TX_RING, &leaving.request())?;
        let bytes = arriving.bytes() + leaving.bytes();
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, &fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let (next, fill) = (Turn::first(&arriving), Turn::first(&leaving));
        let rings = Self { fd, base, bytes, arriving, leaving, next, fill, last: fill, oldest: fill, under_way: 0 };
        bind(rings.fd.as_fd(), interface)?;
        Ok(rings)
    }

    /// The word of a slot that says whose it is.
    #[inline]
    fn owner(&self, turn: Turn) -> &AtomicU32 {
        // SAFETY: a `Turn` names a slot of one of the two lanes, which lie within the mapping; it begins at a line of
        // the cache, so that the word is aligned. Nobody ever reaches this word but by atomics, nor does the kernel.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(turn.at).cast()) }
    }

    /// Whether a frame has come: a look at shared memory.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        self.owner(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Shows the frame that has come first, and how long the datagrams in it are if it is a train of them (0 if not).
    /// If `each` says that it is done, the slot goes back to the kernel; else the frame is shown again next time.
    /// False if none has come.
    #[inline]
    pub(crate) fn take(&mut self, each: impl FnOnce(u16, &mut [u8]) -> bool) -> bool {
        if !self.has_frame() {
            return false;
        }
        // SAFETY: the word says that the slot is ours until we write it below, and it was read with acquire, so that
        // what the kernel wrote before is seen. `&mut self` makes this the only reference; the slot lies within the
        // mapping, is initialised (the kernel zeroes the memory), and its head is aligned as its lines are.
        let slot =
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.next.at + 4), self.arriving.slot - 4) };
        // Fields of the slot's head, behind the word.
        let captured = usize::try_from(word(slot, 4)).unwrap_or(usize::MAX);
        let begin = usize::from(u16::from_ne_bytes([slot[8], slot[9]])).saturating_sub(4);
        let frame = begin.checked_add(captured).filter(|end| *end <= slot.len() && begin >= HEAD);
        let done = frame.is_none_or(|end| {
            // Kind of the cut, and bytes of each piece.
            let train = (slot[begin - HEAD + 1] != 0).then(|| [slot[begin - HEAD + 4], slot[begin - HEAD + 5]]);
            each(train.map_or(0, u16::from_ne_bytes), &mut slot[begin..end])
        });
        if done {
            self.owner(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next.advance(&self.arriving);
        }
        true
    }

    /// Slots that are free for frames to go out.
    #[inline]
    pub(crate) fn free(&mut self) -> usize {
        const TAKEN: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        while self.under_way > 0 && self.owner(self.oldest).load(Ordering::Acquire) & TAKEN == 0 {
            self.oldest.advance(&self.leaving);
            self.under_way -= 1;
        }
        self.leaving.slots() - self.under_way
    }

    /// All slots for frames that come.
    pub(crate) const fn holds(&self) -> usize {
        self.arriving.slots()
    }

    /// All slots for frames to go out.
    pub(crate) const fn slots(&self) -> usize {
        self.leaving.slots()
    }

    /// Puts a frame of `length` bytes into the next slot, which `write` fills. It goes with the next [`Packets::kick`].
    ///
    /// # Panics
    /// If no slot is free (see [`Packets::free`]), or the frame is longer than was said when the rings were opened.
    #[inline]
    pub(crate) fn put(&mut self, length: usize, write: impl FnOnce(&mut [u8])) {
        assert!(self.under_way < self.leaving.slots() || self.free() > 0, "a frame for a ring that is full");
        // SAFETY: the slot is none of those under way, so that its word has said that it is ours, and was read with
        // acquire; the kernel leaves it alone until the word is written below. `&mut self` makes this the only
        // reference; the slot lies within the mapping and is initialised (the kernel zeroes the memory).
        let slot =
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.fill.at + 4), self.leaving.slot - 4) };
        let (fields, room) = slot.split_at_mut(OUT - 4);
        let (head, room) = room.split_at_mut(HEAD);
        let frame = &mut room[..length];
        write(frame);
        let whole = u32::try_from(HEAD + length).unwrap_or(u32::MAX);
        fields[..4].copy_from_slice(&whole.to_ne_bytes());
        head.fill(0);
        // How much of it the kernel copies.
        let copied = if length <= COPIED { length } else { 0 };
        head[2..4].copy_from_slice(&u16::try_from(copied).unwrap_or(0).to_ne_bytes());
        self.owner(self.fill).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.last = self.fill;
        self.fill.advance(&self.leaving);
        self.under_way += 1;
    }

    /// Whether the frame that was put last has still to be sent. The kernel takes them in order.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.under_way > 0 && self.owner(self.last).load(Ordering::Acquire) & libc::TP_STATUS_SEND_REQUEST != 0
    }

    /// Sends what lies in the ring: one call, which never waits. If the socket may not send so much at once, a part of
    /// it ([`Packets::has_unsent`]): the rest waits for the next call.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] or [`Errno::NOBUFS`] if nothing could go now, or not all: the rest waits for the next call.
    /// After the latter the next frame is one that the interface has dropped; it is tried again, and others wait.
    /// [`Errno::NETDOWN`], [`Errno::NXIO`] or others, as the kernel says, if nothing can go.
    #[inline]
    pub(crate) fn kick(&self) -> Result<(), Errno> {
        send(&self.fd, &[], SendFlags::DONTWAIT).map(drop)
    }

    /// The frames that the kernel has still to send, in their order: slot, and bytes of each.
    fn unsent(&self) -> impl Iterator<Item = (Turn, u32)> + '_ {
        let mut next = self.oldest;
        (0..self.under_way).filter_map(move |_| {
            let turn = next;
            next.advance(&self.leaving);
            let waits = self.owner(turn).load(Ordering::Acquire) & libc::TP_STATUS_SEND_REQUEST != 0;
            // SAFETY: the length lies behind the word, within the slot, and aligned as that is. The kernel reads it
            // while `kick` runs alone, and `put` has no reference to it any more.
            waits.then(|| (turn, unsafe { self.length(turn).read() }))
        })
    }

    /// Where the length of a frame that goes out lies.
    fn length(&self, turn: Turn) -> *mut u32 {
        self.base.as_ptr().wrapping_add(turn.at + size_of::<u32>()).cast()
    }

    /// The slot of the frame that the kernel has to send next, if there is one.
    pub(crate) fn head(&self) -> Option<usize> {
        self.unsent().next().map(|(turn, _)| turn.at)
    }

    /// Whether the next frame is longer than one behind it.
    #[cold]
    pub(crate) fn keeps_shorter(&self) -> bool {
        let mut bytes = self.unsent().map(|(_, bytes)| bytes);
        bytes.next().is_some_and(|head| bytes.any(|bytes| bytes < head))
    }

    /// Has the kernel pass over those of the next frames that are longer than the shortest one behind them, with the
    /// next [`Packets::kick`]: they are lost. How many.
    pub(crate) fn pass_over_longer(&mut self) -> u64 {
        let Some(shortest) = self.unsent().map(|(_, bytes)| bytes).min() else { return 0 };
        let longer: Vec<_> = self.unsent().take_while(|(_, bytes)| *bytes > shortest).collect();
        for (turn, _) in &longer {
            // What has not even a head is no frame, and is dropped (`PACKET_LOSS`).
            // SAFETY: as for reading in `unsent`; `&mut self` makes this the only access.
            unsafe { self.length(*turn).write(0) };
        }
        longer.len() as u64
    }

    /// Frames that came while the ring was full, since this was asked last.
    pub(crate) fn lost(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = length_of::<libc::tpacket_stats>();
        let room = (&raw mut statistics).cast::<c_void>();
        let fd = self.fd.as_raw_fd();
        // SAFETY: the room for the value is alive during the call, and its length is right; so is that of the length.
        unsafe { libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, room, &raw mut length) };
        u64::from(statistics.tp_drops)
    }
}

#[cfg(test)]
impl Packets {
    /// Has `other` called in place of the socket, which is given back.
    pub(crate) const fn exchange(&mut self, other: OwnedFd) -> OwnedFd {
        std::mem::replace(&mut self.fd, other)
    }
}

impl AsFd for Packets {
    /// Readable when a frame has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        // SAFETY: it is the mapping made by `open`, of the same length, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Has the kernel run a program of the classic packet filter on what comes to a socket, and drop that for which it
/// returns 0. In place of the program that is there, if any.
///
/// # Errors
/// [`Errno::INVAL`] if it is no program. Others as the kernel says.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: &[sock_filter]) -> Result<(), Errno> {
    let len = libc::c_ushort::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    // The kernel only reads it; the type knows lists for both ways alone. It copies it before the call returns.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Takes the program away again, so that everything comes to the socket.
///
/// # Errors
/// [`Errno::NOENT`] if there is none.
pub(crate) fn detach(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set::<c_int>(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// Has frames come, of IPv4 on one interface. Those that leave by it do not come (they are shown to taps of all
/// protocols alone).
fn bind(fd: BorrowedFd<'_>, interface: u32) -> Result<(), Errno> {
    const PROTOCOL: u16 = 0x0800;
    let address = libc::sockaddr_ll {
        sll_family: FAMILY,
        sll_protocol: PROTOCOL.to_be(),
        sll_ifindex: c_int::try_from(interface).map_err(|_| Errno::NODEV)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let room = (&raw const address).cast::<libc::sockaddr>();
    // SAFETY: the address is alive during the call, and its length is right.
    let done = unsafe { libc::bind(fd.as_raw_fd(), room, length_of::<libc::sockaddr_ll>()) };
    if done != 0 {
        return Err(last_error());
    }
    // An interface that is down is said once, by what would be the first frame.
    match recv(fd, &mut [0_u8][..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Err(Errno::NETDOWN) => Err(Errno::NETDOWN),
        _ => Ok(()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the kernel keeps this small number in two types")]
const FAMILY: libc::c_ushort = libc::AF_PACKET as libc::c_ushort;

/// Sets an option to a value that is a number or a structure of the kernel's.
fn set<T>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    let room = std::ptr::from_ref(value).cast::<c_void>();
    // SAFETY: the value is alive during the call, and its length is right.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, room, length_of::<T>()) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

#[expect(clippy::cast_possible_truncation, reason = "nothing here has more than a few bytes")]
const fn length_of<T>() -> socklen_t {
    size_of::<T>() as socklen_t
}

/// The word at an offset.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().copied().map_or(0, u32::from_ne_bytes)
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn visits every slot once, none across the end of a block, and begins anew.
    #[test]
    fn slots_lie_in_blocks() {
        let cases = [(1, 1, 0), (200, 1 << 20, 5), (1700, 1 << 20, 128), (9200, 4 << 20, 128), (65_700, 1 << 20, 0)];
        for (slot, bytes, least) in cases.into_iter().chain([(9200, 1 << 20, 128), (33_000, 1, 9), (65_700, 1, 128)]) {
            let lane = Lane::new(8192, slot, (bytes, least), 4096);
            assert!(
                lane.slot >= slot
                    && lane.slot.is_multiple_of(LINE)
                    && lane.block.is_multiple_of(4096)
                    && lane.bytes() >= bytes
                    && lane.slots() >= least
            );
            let mut turn = Turn::first(&lane);
            let mut ends = 8192;
            for _ in 0..lane.slots() {
                assert!(turn.at >= ends && turn.at.is_multiple_of(LINE));
                ends = turn.at + lane.slot;
                let within = |at| (at - lane.begin) / lane.block;
                assert_eq!(within(turn.at), within(ends - 1));
                assert!(ends <= lane.begin + lane.bytes());
                turn.advance(&lane);
            }
            assert_eq!(turn.at, lane.begin);
        }
    }
}
