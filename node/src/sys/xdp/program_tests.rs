//! The programs on frames of all kinds, against the same decisions in plain words.

use std::net::{Ipv4Addr, SocketAddrV4};

use cutthrough_wire::frame::{Header, Kind};
use proptest::collection::vec;
use proptest::prelude::*;

use super::machine::{MEMORY, Machine, REDIRECT, RINGS, memory};
use super::program::{ANNOUNCED, ENVELOPE_BYTES, LOGGED, Matching, Ours, matching, redirect, shared};

pub(super) const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 200, 255), 40_007);
pub(super) const OURS: Ours = Ours { local: LOCAL, frame_max: 1514, of_rings: true };
pub(super) const PASS: u64 = 2;

/// A datagram for us with this body.
pub(super) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ENVELOPE_BYTES];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[18..20].copy_from_slice(b"ct");
    frame[20] = 0x40;
    frame[23] = 17;
    frame[30..34].copy_from_slice(&LOCAL.ip().octets());
    frame[36..38].copy_from_slice(&LOCAL.port().to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// What the document of the program says, in plain words.
pub(super) fn is_ours(linear: &[u8]) -> bool {
    is_for_us(linear) && linear[18..20] == *b"ct"
}

/// Whoever has sent it.
fn is_for_us(linear: &[u8]) -> bool {
    linear.len() >= ENVELOPE_BYTES
        && linear[12..14] == [8, 0]
        && linear[14] == 0x45
        && linear[20..22] == [0x40, 0]
        && linear[23] == 17
        && linear[30..34] == LOCAL.ip().octets()
        && linear[36..38] == LOCAL.port().to_be_bytes()
}

/// Frames for us, with some bytes changed and their ends cut off, and noise.
pub(super) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let change = (0..120_usize, any::<u8>(), any::<bool>());
    let ours = (vec(any::<u8>(), 0..300), vec(change, 0..3), prop_oneof![Just(1000_usize), 0..110_usize]).prop_map(
        |(body, changes, keep)| {
            let mut frame = frame(&body);
            for (at, byte, bit) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = if bit { *place ^ (1 << (byte & 7)) } else { byte };
                }
            }
            frame.truncate(keep);
            frame
        },
    );
    prop_oneof![4 => ours, 1 => vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The verdict is the plain one, and the machine panics if anything is read out of bounds.
    #[test]
    fn redirect_takes_ours_and_nothing_else(
        linear in frames(), beyond in prop_oneof![Just(0_usize), 0..3000_usize], queue in 0..4_u32, of_rings: bool,
    ) {
        let mut memory = memory();
        let length = linear.len() + beyond;
        let rings = [0, 2];
        let mut machine =
            Machine { linear: &linear, beyond, queue, processor: 0, rings: &rings, memory: &mut memory, cut: 0 };
        let verdict = machine.run(&redirect(&Ours { of_rings, ..OURS }, RINGS));
        let ours = if of_rings { is_ours(&linear) } else { is_for_us(&linear) };
        let taken = ours && length <= 1514 && rings.contains(&queue);
        prop_assert_eq!(verdict, if taken { REDIRECT } else { PASS });
        prop_assert_eq!(machine.cut, 0);
    }
}

/// One page that is announced.
#[derive(Debug, Clone, Copy)]
struct Page {
    tag: u32,
    generation: u32,
    message: u32,
    first: u32,
    bytes: u32,
}

const SLICE: u32 = 48;

/// The register as a list: the fragments that come next, in order.
#[derive(Debug)]
struct Oracle {
    expected: Vec<(Page, u32, u32)>,
    taken: Vec<Vec<u8>>,
}

impl Oracle {
    fn new(pages: &[Page], backwards: bool) -> Self {
        let of_page = |page: &Page| {
            let page = *page;
            let mut parts: Vec<_> = (0..page.bytes.div_ceil(SLICE))
                .map(|part| (page, page.first + part * SLICE, SLICE.min(page.bytes - part * SLICE)))
                .collect();
            if backwards {
                parts.reverse();
            }
            parts
        };
        Self { expected: pages.iter().flat_map(of_page).collect(), taken: Vec::new() }
    }

    /// Whether this frame is the one that is expected.
    fn takes(&mut self, linear: &[u8], beyond: usize) -> bool {
        let Some((page, offset, bytes)) = self.expected.first().copied() else { return false };
        let body = &linear[ENVELOPE_BYTES.min(linear.len())..];
        let Some((head, rest)) = body.split_first_chunk::<64>() else { return false };
        // Whether the two bytes that have no meaning are zero is not the program's business.
        let mut plain = *head;
        plain[30..32].fill(0);
        let Ok(header) = Header::from_bytes(&plain) else { return false };
        let is = header.kind == Kind::Data
            && (header.tag, header.generation) == (page.tag, page.generation)
            && header.words == [page.message, offset]
            && u32::from(header.body) == bytes
            && rest.len() + beyond == bytes as usize;
        if is {
            self.expected.remove(0);
            self.taken.push(head.to_vec());
        }
        is
    }
}

fn announce(memory: &mut [u8], pages: &[Page], backwards: bool) {
    let mut put = |at: u64, value: u32| {
        let at = usize::try_from(at).unwrap();
        memory[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    for (number, page) in pages.iter().enumerate() {
        let next = if backwards { page.first + (page.bytes - 1) / SLICE * SLICE } else { page.first };
        let at = shared::ANNOUNCEMENTS + number as u64 % u64::from(ANNOUNCED) * shared::ANNOUNCEMENT_BYTES;
        let words = [page.tag, page.generation, page.message, next, page.first, page.bytes];
        for (place, word) in words.into_iter().enumerate() {
            put(at + 4 * place as u64, word);
        }
    }
    put(shared::END, u32::try_from(pages.len()).unwrap());
}

fn fragment(page: Page, offset: u32, bytes: u32, number: u64) -> Vec<u8> {
    let header = Header {
        kind: Kind::Data,
        body: u16::try_from(bytes).unwrap(),
        tag: page.tag,
        generation: page.generation,
        awaited: 1,
        number,
        below: 2,
        held: 3,
        waits: false,
        calls: 0,
        asks: 0,
        bits: 4,
        words: [page.message, offset],
    };
    frame(&[&header.to_bytes()[..], &vec![7; bytes as usize]].concat())
}

fn pages() -> impl Strategy<Value = Vec<Page>> {
    let page =
        (0..3_u32, 0..2_u32, 0..3_u32, 0..2_u32, 14..200_u32).prop_map(|(tag, generation, message, at, bytes)| Page {
            tag,
            generation,
            message,
            first: at * 4096,
            // The last fragment is no shorter than what the kernel leaves of a frame.
            bytes: if bytes % SLICE < 14 { bytes + 14 - bytes % SLICE } else { bytes },
        });
    vec(page, 0..5)
}

/// What may come instead of the next fragment.
#[derive(Debug, Clone)]
enum Arrival {
    /// The one that is expected, and this byte of it changed by this much.
    Next(Option<(usize, u8)>),
    /// One that came before, or will come.
    Other(usize, i32),
    Noise(Vec<u8>),
    /// The one that is expected, on another queue.
    Elsewhere,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        6 => Just(Arrival::Next(None)),
        2 => (0..110_usize, 1..=255_u8).prop_map(|change| Arrival::Next(Some(change))),
        2 => (0..20_usize, -1..=1_i32).prop_map(|(which, longer)| Arrival::Other(which, longer)),
        1 => frames().prop_map(Arrival::Noise),
        1 => Just(Arrival::Elsewhere),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Without the register, every fragment with its whole header is taken and logged, whosever it is.
    #[test]
    fn without_announcements_all_fragments_are_taken(
        linear in frames(), beyond in prop_oneof![Just(0_usize), 0..3000_usize], cut: bool, data: bool,
    ) {
        let mut linear = linear;
        if data && linear.len() > 43 {
            linear[42..44].copy_from_slice(&[1, Kind::Data as u8]);
        }
        let settings = Matching { queue: 1, slice: SLICE, cut, backwards: false, strict: false };
        let mut memory = memory();
        let mut machine =
            Machine { linear: &linear, beyond, queue: 1, processor: 0, rings: &[1], memory: &mut memory, cut: 0 };
        let verdict = machine.run(&matching(&OURS, &settings, RINGS, MEMORY));
        let whole = is_ours(&linear) && linear.len() >= 106 && linear[42..44] == [1, Kind::Data as u8];
        let logged = whole && linear.len() + beyond <= 1514;
        let taken = logged && (!cut || linear.len() >= 120);
        prop_assert_eq!(verdict, if taken { REDIRECT } else { PASS });
        let at = usize::try_from(shared::LOG).unwrap();
        prop_assert!(!logged || memory[at..at + 64] == linear[42..106]);
    }

    /// The matching register takes exactly the list of announced fragments, whatever comes in between, and logs their
    /// headers in order; other queues work as without it.
    #[test]
    fn matching_takes_the_next_fragment_and_nothing_else(
        pages in pages(), backwards: bool, cut: bool, arrivals in vec(arrival(), 0..60), split in 106..160_usize,
    ) {
        let settings = Matching { queue: 1, slice: SLICE, cut, backwards, strict: true };
        let program = matching(&OURS, &settings, RINGS, MEMORY);
        let mut memory = memory();
        announce(&mut memory, &pages, backwards);
        let mut oracle = Oracle::new(&pages, backwards);
        let all: Vec<_> = Oracle::new(&pages, backwards).expected;
        for (number, arrival) in arrivals.into_iter().enumerate() {
            let next = oracle.expected.first().copied();
            let make = |(page, offset, bytes)| fragment(page, offset, bytes, number as u64);
            let (whole, queue) = match arrival {
                Arrival::Next(change) => {
                    let mut frame = next.map(make).unwrap_or_default();
                    if let Some((at, by)) = change && at < frame.len() {
                        frame[at] = frame[at].wrapping_add(by);
                    }
                    (frame, 1)
                }
                Arrival::Other(which, longer) => {
                    let one = all.get(which % all.len().max(1)).copied();
                    let one = one.map(|(page, offset, bytes)| (page, offset, bytes.saturating_add_signed(longer)));
                    (one.map(make).unwrap_or_default(), 1)
                }
                Arrival::Noise(frame) => (frame, 1),
                Arrival::Elsewhere => (next.map(make).unwrap_or_default(), 0),
            };
            // A part of the frame may lie beyond what the program can read.
            let linear = &whole[..whole.len().min(split)];
            let beyond = whole.len() - linear.len();
            let mut machine =
                Machine { linear, beyond, queue, processor: 0, rings: &[0, 1], memory: &mut memory, cut: 0 };
            let verdict = machine.run(&program);
            let was_cut = machine.cut;
            let (expected, expected_cut) = if queue == 0 {
                (is_ours(linear), 0)
            } else {
                let takes = is_ours(linear) && oracle.takes(linear, beyond);
                // The kernel does not cut a frame to less than an Ethernet header; then the socket gets it whole.
                let cuts = takes && cut && linear.len() >= 106 + 14;
                (takes && (!cut || cuts), if cuts { 106 } else { 0 })
            };
            prop_assert_eq!(verdict, if expected { REDIRECT } else { PASS });
            prop_assert_eq!(was_cut, expected_cut);
            let taken = &memory[usize::try_from(shared::TAKEN).unwrap()..][..4];
            prop_assert_eq!(u32::from_le_bytes(taken.try_into().unwrap()) as usize, oracle.taken.len());
        }
        for (number, header) in oracle.taken.iter().enumerate() {
            let at = usize::try_from(shared::LOG).unwrap() + number % LOGGED as usize * 64;
            prop_assert_eq!(&memory[at..at + 64], &header[..]);
        }
    }

    /// Whatever user space has written into the shared memory, the program stays inside of it.
    #[test]
    fn matching_is_safe_with_any_memory(
        noise in vec(any::<u32>(), 600), linear in frames(), settings in (any::<bool>(), any::<bool>()), near: bool,
    ) {
        let mut memory = memory();
        for (place, word) in memory.as_chunks_mut::<4>().0.iter_mut().zip(noise) {
            *place = word.to_le_bytes();
        }
        // A frame that fits the announcement that is due, so that the program goes on.
        let mut linear = linear;
        if near {
            let current = u32::from_le_bytes(memory[..4].try_into().unwrap()) % ANNOUNCED;
            let at = usize::try_from(shared::ANNOUNCEMENTS).unwrap() + current as usize * 32;
            let words: Vec<u32> =
                memory[at..at + 24].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let page =
                Page { tag: words[0], generation: words[1], message: words[2], first: words[4], bytes: words[5] };
            let left = u64::from(page.first) + u64::from(page.bytes);
            let left = left.wrapping_sub(u64::from(words[3])).min(u64::from(SLICE));
            linear = fragment(page, words[3], u32::try_from(left).unwrap(), 1);
        }
        let settings = Matching { queue: 1, slice: SLICE, cut: settings.0, backwards: settings.1, strict: true };
        let mut machine =
            Machine { linear: &linear, beyond: 0, queue: 1, processor: 0, rings: &[1], memory: &mut memory, cut: 0 };
        machine.run(&matching(&OURS, &settings, RINGS, MEMORY));
    }
}
