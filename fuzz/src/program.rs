//! The programs at the interface, run by a machine that panics where the kernel would refuse them, against the same
//! decisions in plain words.

use std::net::{Ipv4Addr, SocketAddrV4};

use arbitrary::Arbitrary;
use cutthrough_node::fuzz::{Ran, run as run_program};
use cutthrough_node::sys::xdp::fragments::{self, Fragmented};
use cutthrough_node::sys::xdp::program::{ANNOUNCED, LOGGED, Matching, Ours, matching, redirect, shared};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use crate::placing::{self, Arrivals};

/// Bytes before our header, and those before a fragment.
pub(crate) const ENVELOPE: usize = 42;
pub(crate) const HEADERS: usize = ENVELOPE + HEADER_BYTES;
/// Bytes that the kernel leaves of a frame at least.
const ETHERNET: usize = 14;
const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 200, 255), 40_007);
pub(crate) const FRAME_MAX: usize = 1514;
pub(crate) const PASS: u64 = 2;
pub(crate) const QUEUE: u32 = 1;

/// A page that is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub struct Page {
    /// Channel, life and message.
    pub of: [u8; 3],
    /// Where it begins, in pieces of 4096 bytes.
    pub first: u8,
    /// Its bytes, less one.
    pub bytes: u8,
}

/// A frame that comes.
#[derive(Debug, Clone, Arbitrary)]
pub enum Frame {
    /// The fragment that is due.
    Due,
    /// It, and some bytes of it changed by this much.
    Changed(Vec<(u8, u8)>),
    /// Fragment of a page: which page, which fragment, and so much longer.
    Other(u8, u8, i8),
    /// A datagram for us with this body.
    Ours(Vec<u8>),
    /// Anything.
    Noise(Vec<u8>),
}

/// One of the programs, and what it is shown.
#[derive(Debug, Clone, Arbitrary)]
pub enum Play {
    /// The program of a ring, and the registers that are measured.
    Rings(Traffic),
    /// That of an endpoint whose payloads land where they belong.
    Placing(Arrivals),
}

impl Play {
    /// Runs it.
    ///
    /// # Panics
    /// As [`run`], and [`placing::run`].
    pub fn run(&self) {
        match self {
            Self::Rings(traffic) => run(traffic),
            Self::Placing(arrivals) => placing::run(arrivals),
        }
    }
}

/// What comes, and on which conditions.
#[derive(Debug, Clone, Arbitrary)]
pub struct Traffic {
    /// Bytes of a fragment, less one.
    pub slice: u8,
    /// Whether headers are cut off, the last fragment comes first, only announced fragments are taken.
    pub cut: bool,
    /// See `cut`.
    pub backwards: bool,
    /// See `cut`.
    pub strict: bool,
    /// Pages that are announced.
    pub pages: Vec<Page>,
    /// Frames: what, whether on the queue of the register, and how many bytes of them can be read.
    pub frames: Vec<(Frame, bool, u16)>,
    /// What stands in the shared memory instead of the announcements.
    pub noise: Option<Vec<u32>>,
}

/// Datagrams for our address, up to the longest frame.
pub(crate) fn ours() -> Ours {
    Ours { local: LOCAL, frame_max: u32::try_from(FRAME_MAX).expect("1514"), of_rings: true }
}

/// A fragment that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    tag: u32,
    generation: u32,
    message: u32,
    offset: u32,
    bytes: u32,
}

/// Lets the frames come.
///
/// # Panics
/// If a program reaches out of bounds, or does other than the plain words.
pub fn run(traffic: &Traffic) {
    fragments_stay_inside(traffic);
    let settings = Matching {
        queue: QUEUE,
        slice: u32::from(traffic.slice) + 1,
        cut: traffic.cut,
        backwards: traffic.backwards,
        strict: traffic.strict,
    };
    let programs = (redirect(&ours(), Ran::RINGS), matching(&ours(), &settings, Ran::RINGS, Ran::MEMORY));
    let mut memory = vec![0; usize::try_from(shared::BYTES).expect("some thousand bytes")];
    let mut due = announce(traffic, &settings, &mut memory);
    let all = due.clone();
    let known = traffic.noise.is_none();
    let mut logged: Vec<Vec<u8>> = Vec::new();
    for (frame, here, split) in &traffic.frames {
        let whole = bytes(frame, &due, &all);
        let linear = &whole[..whole.len().min(usize::from(*split))];
        let beyond = whole.len() - linear.len();
        let queue = if *here { QUEUE } else { 0 };
        let for_us = is_ours(linear);
        let fits = whole.len() <= FRAME_MAX;

        let ran = run_program(&programs.0, linear, beyond, (queue, 0), &[0, QUEUE], &mut memory);
        assert_eq!(ran, Ran { verdict: if for_us && fits { Ran::REDIRECT } else { PASS }, cut: 0 });

        let ran = run_program(&programs.1, linear, beyond, (queue, 0), &[0, QUEUE], &mut memory);
        if !known && settings.strict && *here {
            // Any announcements: it stays inside of the memory, and takes nobody else's frames.
            assert!(for_us || ran == Ran { verdict: PASS, cut: 0 });
            continue;
        }
        let takes = for_us && *here && is_fragment(linear) && {
            if settings.strict { is_due(linear, beyond, &due) } else { fits }
        };
        if takes {
            logged.push(linear[ENVELOPE..HEADERS].to_vec());
            if settings.strict {
                due.remove(0);
            }
        }
        let cuts = takes && settings.cut && linear.len() >= HEADERS + ETHERNET;
        let redirected = if *here { takes && (cuts || !settings.cut) } else { for_us && fits };
        let verdict = if redirected { Ran::REDIRECT } else { PASS };
        assert_eq!(ran, Ran { verdict, cut: if cuts { HEADERS } else { 0 } });
        let taken = usize::try_from(shared::TAKEN).expect("a place");
        if known {
            let taken = u32::from_le_bytes(*memory[taken..].first_chunk().expect("four bytes"));
            assert_eq!(taken as usize, logged.len());
        }
    }
    if known {
        for (number, head) in logged.iter().enumerate().rev().take(LOGGED as usize) {
            let at = usize::try_from(shared::LOG).expect("a place") + number % LOGGED as usize * HEADER_BYTES;
            assert_eq!(memory[at..at + HEADER_BYTES], head[..], "header {number}");
        }
    }
}

/// The register for fragments of IP, in any memory: it stays inside of it, and takes nothing but such fragments.
fn fragments_stay_inside(traffic: &Traffic) {
    let slice = (u32::from(traffic.slice) / 8 + 4) * 8;
    let settings = Fragmented {
        queue: QUEUE,
        bytes: slice + 26 + u32::from(traffic.slice),
        slice,
        cut: traffic.cut,
        backwards: traffic.backwards,
        strict: traffic.strict,
    };
    let program = fragments::fragments(LOCAL, &settings, Ran::RINGS, Ran::MEMORY);
    let mut memory = vec![0; usize::try_from(fragments::shared::BYTES).expect("some thousand bytes")];
    let noise = traffic.noise.iter().flatten().flat_map(|word| word.to_le_bytes());
    memory.iter_mut().zip(noise).for_each(|(place, byte)| *place = byte);
    for (frame, here, split) in &traffic.frames {
        let mut whole = match frame {
            Frame::Ours(_) | Frame::Noise(_) => bytes(frame, &[], &[]),
            // As long as the first or the last one that can be due.
            _ => datagram(&vec![
                7;
                if *split % 2 == 0 { slice - 8 } else { settings.last_bytes().saturating_sub(8) }
                    as usize
            ]),
        };
        if let Some(flags) = whole.get_mut(20).filter(|_| !matches!(frame, Frame::Noise(_))) {
            *flags = if *split % 2 == 0 { 0x20 } else { 0 };
        }
        if let Frame::Changed(changes) = frame {
            for (at, by) in changes {
                if let Some(byte) = whole.get_mut(usize::from(*at)) {
                    *byte = byte.wrapping_add(*by);
                }
            }
        }
        let linear = &whole[..whole.len().min(usize::from(*split))];
        let queue = if *here { QUEUE } else { 0 };
        let ran = run_program(&program, linear, whole.len() - linear.len(), (queue, 0), &[0, QUEUE], &mut memory);
        let fragment = linear.len() >= 48
            && linear[12..15] == [8, 0, 0x45]
            && linear[23] == 17
            && linear[30..34] == LOCAL.ip().octets()
            && (linear[20] & 0x3f, linear[21]) != (0, 0);
        assert!(fragment && *here || ran == Ran { verdict: PASS, cut: 0 });
        assert!(ran.cut == if settings.cut && ran.verdict == Ran::REDIRECT { 34 } else { 0 });
    }
}

/// Writes the announcements, and gives the fragments that are due, in their order.
fn announce(traffic: &Traffic, settings: &Matching, memory: &mut [u8]) -> Vec<Due> {
    let mut put = |at: u64, word: u32| {
        let at = usize::try_from(at).expect("a place");
        memory[at..at + 4].copy_from_slice(&word.to_le_bytes());
    };
    if let Some(noise) = &traffic.noise {
        (0..shared::LOG / 4).zip(noise).for_each(|(place, word)| put(place * 4, *word));
        return Vec::new();
    }
    let pages = &traffic.pages[..traffic.pages.len().min(ANNOUNCED as usize - 1)];
    let mut all = Vec::new();
    for (number, page) in (0..).zip(pages) {
        let [tag, generation, message] = page.of.map(u32::from);
        let (first, bytes) = (u32::from(page.first) * 4096, u32::from(page.bytes) + 1);
        let mut parts: Vec<Due> = (0..bytes.div_ceil(settings.slice))
            .map(|part| part * settings.slice)
            .map(|at| Due { tag, generation, message, offset: first + at, bytes: settings.slice.min(bytes - at) })
            .collect();
        if settings.backwards {
            parts.reverse();
        }
        let words = [tag, generation, message, parts[0].offset, first, bytes];
        let at = shared::ANNOUNCEMENTS + number * shared::ANNOUNCEMENT_BYTES;
        words.into_iter().zip((at..).step_by(4)).for_each(|(word, place)| put(place, word));
        all.extend(parts);
    }
    put(shared::END, u32::try_from(pages.len()).expect("less than 64"));
    all
}

fn bytes(frame: &Frame, due: &[Due], all: &[Due]) -> Vec<u8> {
    match frame {
        Frame::Due => due.first().map(|due| fragment(due, 0)).unwrap_or_default(),
        Frame::Changed(changes) => {
            let mut bytes = due.first().map(|due| fragment(due, 0)).unwrap_or_default();
            for (at, by) in changes {
                if let Some(byte) = bytes.get_mut(usize::from(*at)) {
                    *byte = byte.wrapping_add(*by);
                }
            }
            bytes
        }
        Frame::Other(which, part, longer) => {
            let which = usize::from(*which) << 2 | usize::from(*part & 3);
            all.get(which % all.len().max(1)).map(|due| fragment(due, *longer)).unwrap_or_default()
        }
        Frame::Ours(body) => datagram(body),
        Frame::Noise(bytes) => bytes.clone(),
    }
}

pub(crate) fn datagram(body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ENVELOPE];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[20], frame[23]) = (0x45, 0x40, 17);
    frame[18..20].copy_from_slice(b"ct");
    frame[30..34].copy_from_slice(&LOCAL.ip().octets());
    frame[36..38].copy_from_slice(&LOCAL.port().to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

fn fragment(due: &Due, longer: i8) -> Vec<u8> {
    let bytes = due.bytes.saturating_add_signed(longer.into());
    let header = Header {
        kind: Kind::Data,
        body: u16::try_from(bytes).unwrap_or(u16::MAX),
        tag: due.tag,
        generation: due.generation,
        awaited: 1,
        number: 2,
        below: 3,
        held: 4,
        waits: false,
        calls: 0,
        asks: 0,
        bits: 5,
        words: [due.message, due.offset],
    };
    datagram(&[&header.to_bytes()[..], &vec![7; bytes as usize]].concat())
}

/// IPv4 without options, neither fragment nor to be fragmented, UDP, for our address and port.
pub(crate) fn is_ours(linear: &[u8]) -> bool {
    linear.len() >= ENVELOPE
        && linear[12..15] == [8, 0, 0x45]
        && linear[18..22] == [b'c', b't', 0x40, 0]
        && linear[23] == 17
        && linear[30..34] == LOCAL.ip().octets()
        && linear[36..38] == LOCAL.port().to_be_bytes()
}

/// A frame of kind Data of this version, with all of its header at hand.
fn is_fragment(linear: &[u8]) -> bool {
    let data = [cutthrough_wire::frame::FRAME_VERSION, Kind::Data as u8];
    linear.len() >= HEADERS && linear[ENVELOPE..ENVELOPE + 2] == data
}

/// The fragment that is due, as its header says and as long as that.
fn is_due(linear: &[u8], beyond: usize, due: &[Due]) -> bool {
    let word = |at: usize| u32::from_le_bytes(*linear[ENVELOPE + at..].first_chunk().expect("all of the header"));
    let says = Due {
        tag: word(4),
        generation: word(8),
        message: word(40),
        offset: word(44),
        bytes: u32::from(u16::from_le_bytes([linear[ENVELOPE + 2], linear[ENVELOPE + 3]])),
    };
    due.first() == Some(&says) && linear.len() + beyond == HEADERS + says.bytes as usize
}
