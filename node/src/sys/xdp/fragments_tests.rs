//! The register for fragments of IP on frames of all kinds, against the same decisions in plain words.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fragments::{ANNOUNCED, ANY, FRESH, Fragmented, LOGGED, OVER, fragments, shared};
use super::machine::{MEMORY, Machine, REDIRECT, RINGS, set_word as put, word as get};
use super::program_tests::{LOCAL, PASS, frames};

const SLICE: u32 = 48;
const SOURCE: [u8; 4] = [10, 1, 200, 1];
const PORT: u16 = 999;

fn at(place: u64) -> usize {
    usize::try_from(place).unwrap()
}

fn memory() -> Vec<u8> {
    let mut memory = vec![0; at(shared::BYTES)];
    put(&mut memory, shared::PROCESSOR, ANY);
    put(&mut memory, shared::LAST, u32::MAX);
    memory
}

fn announcement(number: u32) -> u64 {
    shared::ANNOUNCEMENTS + u64::from(number % ANNOUNCED) * shared::ANNOUNCEMENT_BYTES
}

fn announce(memory: &mut [u8], number: u32, (source, port): ([u8; 4], u16)) {
    let at = announcement(number);
    put(memory, at, FRESH);
    put(memory, at + 4, u32::from_le_bytes(source));
    put(memory, at + 8, u32::from(port.swap_bytes()));
    put(memory, shared::END, number + 1);
}

/// A fragment as a sender makes it: from where in the datagram to where, and whether more follow.
fn fragment((source, port): ([u8; 4], u16), ident: u16, (offset, bytes, more): (u32, u32, bool), of: u32) -> Vec<u8> {
    let mut frame = vec![0; 34];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&u16::try_from(bytes + 20).unwrap().to_be_bytes());
    frame[18..20].copy_from_slice(&ident.to_be_bytes());
    let place = u16::try_from(offset / 8).unwrap() | if more { 0x2000 } else { 0 };
    frame[20..22].copy_from_slice(&place.to_be_bytes());
    frame[23] = 17;
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&LOCAL.ip().octets());
    let mut payload = vec![7; bytes as usize];
    if offset == 0 && bytes >= 8 {
        payload[..2].copy_from_slice(&port.to_be_bytes());
        payload[2..4].copy_from_slice(&LOCAL.port().to_be_bytes());
        payload[4..6].copy_from_slice(&u16::try_from(of).unwrap().to_be_bytes());
    }
    [frame, payload].concat()
}

/// The register in plain words.
#[derive(Debug)]
struct Oracle {
    settings: Fragmented,
    /// Whose datagrams are announced; which of them is due; its identification, and how many fragments it still needs.
    announced: Vec<([u8; 4], u16)>,
    due: usize,
    open: Option<(u16, u32)>,
    last: Option<u16>,
    processor: Option<u32>,
    taken: Vec<(u64, Vec<u8>)>,
    aside: u32,
}

impl Oracle {
    fn new(settings: Fragmented) -> Self {
        let (announced, taken) = (Vec::new(), Vec::new());
        Self { settings, announced, due: 0, open: None, last: None, processor: None, taken, aside: 0 }
    }

    /// Offset and bytes of the fragment that is due, and whether more follow it in the datagram.
    fn next(&self) -> (u32, u32, bool) {
        let Fragmented { bytes, slice, backwards, .. } = self.settings;
        let parts = bytes.div_ceil(slice);
        let left = self.open.map_or(parts, |(_, left)| left);
        let part = if backwards { left - 1 } else { parts - left };
        (part * slice, slice.min(bytes - part * slice), part + 1 < parts)
    }

    /// Whether a frame is taken; what is a fragment for the address and is not, is counted.
    fn takes(&mut self, linear: &[u8], beyond: usize, queue: u32, processor: u32) -> bool {
        let is = linear.len() >= 34
            && linear[12..15] == [8, 0, 0x45]
            && linear[23] == 17
            && linear[30..34] == LOCAL.ip().octets()
            && (linear[20] & 0x3f, linear[21]) != (0, 0)
            && queue == self.settings.queue;
        if !is {
            return false;
        }
        let takes = linear.len() >= 48
            && if self.settings.strict {
                self.is_next(linear, beyond, processor)
            } else {
                linear.len() + beyond <= 34 + SLICE as usize && *self.processor.get_or_insert(processor) == processor
            };
        if !takes {
            self.aside += 1;
            return false;
        }
        let number = if self.settings.strict { self.due as u64 } else { 0 };
        self.taken.push((number, [&linear[14..22], &linear[26..34]].concat()));
        if self.settings.strict {
            let ident = u16::from_be_bytes([linear[18], linear[19]]);
            let left = self.open.map_or(self.settings.parts(), |(_, left)| left) - 1;
            self.open = (left > 0).then_some((ident, left));
            if left == 0 {
                self.due += 1;
                self.last = Some(ident);
            }
        }
        true
    }

    fn is_next(&mut self, linear: &[u8], beyond: usize, processor: u32) -> bool {
        let Some((source, port)) = self.announced.get(self.due).copied() else { return false };
        let field = |at: usize| u16::from_be_bytes([linear[at], linear[at + 1]]);
        let (offset, bytes, more) = self.next();
        let ident = field(18);
        let right = linear[26..30] == source
            && self.open.map_or(self.last != Some(ident), |(of, _)| of == ident)
            && u32::from(field(20)) == offset / 8 + if more { 0x2000 } else { 0 }
            && u32::from(field(16)) == 20 + bytes
            && linear.len() + beyond == 34 + bytes as usize;
        let first =
            offset > 0 || (field(34), field(36)) == (port, LOCAL.port()) && u32::from(field(38)) == self.settings.bytes;
        right && first && *self.processor.get_or_insert(processor) == processor
    }

    /// What the state of the announcement that is due is.
    fn state(&self) -> u32 {
        self.open.map_or(FRESH, |(ident, _)| (u32::from(ident.swap_bytes()) << 16) + self.next().0 / 8)
    }
}

/// What may come, and what user space may do meanwhile.
#[derive(Debug, Clone)]
enum Arrival {
    /// The fragment that is due, with this byte of it changed by this much.
    Next(Option<(usize, u8)>),
    /// The fragment that is due, of which only so much is there.
    Short(usize),
    /// A fragment of anybody's: from whom, identification, offset, bytes, whether more follow.
    Other(bool, u8, u32, u32, bool),
    Noise(Vec<u8>),
    /// The one that is due, on another queue.
    Elsewhere,
    /// What comes from now on comes on this processor.
    On(u32),
    /// A datagram more is announced.
    Announce(bool),
    /// The one that is due is given up.
    GiveUp,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        12 => Just(Arrival::Next(None)),
        3 => (0..60_usize, 1..=255_u8).prop_map(|change| Arrival::Next(Some(change))),
        1 => (0..100_usize).prop_map(Arrival::Short),
        3 => (any::<bool>(), 0..4_u8, 0..40_u32, 14..90_u32, any::<bool>())
            .prop_map(|(other, ident, units, bytes, more)| Arrival::Other(other, ident, units * 8, bytes, more)),
        1 => frames().prop_map(Arrival::Noise),
        1 => Just(Arrival::Elsewhere),
        1 => (0..2_u32).prop_map(Arrival::On),
        3 => any::<bool>().prop_map(Arrival::Announce),
        1 => Just(Arrival::GiveUp),
    ]
}

fn settings() -> impl Strategy<Value = Fragmented> {
    (1..5_u32, 14..=SLICE, any::<[bool; 3]>()).prop_map(|(full, last, [cut, backwards, strict])| Fragmented {
        queue: 1,
        bytes: full * SLICE + last,
        slice: SLICE,
        cut,
        backwards,
        // Most often; the other one has little to decide.
        strict: strict || last > 20,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Whatever comes, exactly the fragments that are due are taken, cut, and written down; the rest goes to the kernel
    /// and is counted.
    #[test]
    fn the_program_takes_what_is_due(
        settings in settings(), arrivals in vec(arrival(), 0..120), split in 48..120_usize,
    ) {
        let program = fragments(LOCAL, &settings, RINGS, MEMORY);
        let (mut memory, mut oracle) = (memory(), Oracle::new(settings));
        let (mut processor, mut number) = (0, 0_u16);
        let who = |other: bool| (SOURCE, if other { PORT + 1 } else { PORT });
        for arrival in arrivals {
            number += 1;
            let due = || {
                let whose = oracle.announced.get(oracle.due).copied().unwrap_or((SOURCE, PORT));
                let ident = oracle.open.map_or(100 + number, |(ident, _)| ident);
                fragment(whose, ident, oracle.next(), settings.bytes)
            };
            let (whole, queue) = match arrival {
                Arrival::Next(change) => {
                    let mut frame = due();
                    if let Some((at, by)) = change && at < frame.len() {
                        frame[at] = frame[at].wrapping_add(by);
                    }
                    (frame, 1)
                }
                Arrival::Short(keep) => {
                    let mut frame = due();
                    frame.truncate(keep);
                    (frame, 1)
                }
                Arrival::Other(other, near, offset, bytes, more) => {
                    let ident = oracle.open.or(oracle.last.map(|last| (last, 0))).map_or(5, |(ident, _)| ident);
                    (fragment(who(other), ident + u16::from(near / 3), (offset, bytes, more), settings.bytes), 1)
                }
                Arrival::Noise(frame) => (frame, 1),
                Arrival::Elsewhere => (due(), 0),
                Arrival::On(other) => {
                    processor = other;
                    continue;
                }
                Arrival::Announce(other) => {
                    announce(&mut memory, u32::try_from(oracle.announced.len()).unwrap(), who(other));
                    oracle.announced.push(who(other));
                    continue;
                }
                Arrival::GiveUp => {
                    let due = u32::try_from(oracle.due).unwrap();
                    if oracle.due < oracle.announced.len() {
                        let state = get(&memory, announcement(due));
                        let left = oracle.open.map_or(settings.parts(), |(_, left)| left);
                        prop_assert!(!settings.strict || settings.taken(state) == settings.parts() - left);
                        put(&mut memory, announcement(due), OVER);
                        put(&mut memory, shared::CURRENT, due + 1);
                        (oracle.due, oracle.open) = (oracle.due + 1, None);
                    }
                    continue;
                }
            };
            let linear = &whole[..whole.len().min(split)];
            let beyond = whole.len() - linear.len();
            let mut machine =
                Machine { linear, beyond, queue, processor, rings: &[0, 1], memory: &mut memory, cut: 0 };
            let verdict = machine.run(&program);
            let was_cut = machine.cut;
            let takes = oracle.takes(linear, beyond, queue, processor);
            prop_assert_eq!(verdict, if takes { REDIRECT } else { PASS });
            prop_assert_eq!(was_cut, if takes && settings.cut { 34 } else { 0 });
            prop_assert_eq!(get(&memory, shared::TAKEN) as usize, oracle.taken.len());
            prop_assert_eq!(get(&memory, shared::ASIDE), oracle.aside);
            prop_assert_eq!(get(&memory, shared::CURRENT) as usize, oracle.due);
            prop_assert_eq!(get(&memory, shared::PROCESSOR), oracle.processor.unwrap_or(ANY));
            if settings.strict && oracle.due < oracle.announced.len() {
                let at = announcement(u32::try_from(oracle.due).unwrap());
                prop_assert_eq!(get(&memory, at), oracle.state());
            }
        }
        for (index, (number, header)) in oracle.taken.iter().enumerate() {
            let place = at(shared::LOG) + index % LOGGED as usize * at(shared::LOG_BYTES);
            prop_assert_eq!(&memory[place..place + 8], &number.to_le_bytes()[..]);
            prop_assert_eq!(&memory[place + 8..place + 24], &header[..]);
        }
    }

    /// Whatever user space has written into the shared memory, the program stays inside of it.
    #[test]
    fn it_is_safe_with_any_memory(
        noise in vec(any::<u32>(), 600), settings in settings(), state in any::<Option<(u16, u8)>>(),
        linear in frames(),
    ) {
        let mut memory = memory();
        for (place, word) in memory.as_chunks_mut::<4>().0.iter_mut().zip(&noise) {
            *place = word.to_le_bytes();
        }
        let mut linear = linear;
        if let Some((ident, units)) = state {
            // A fragment that fits the announcement that is due, so that the program goes on.
            let at = announcement(noise[0] % ANNOUNCED);
            put(&mut memory, at, (u32::from(ident.swap_bytes()) << 16) + u32::from(units));
            put(&mut memory, at + 4, u32::from_le_bytes(SOURCE));
            put(&mut memory, shared::PROCESSOR, ANY);
            let offset = u32::from(units) * 8;
            let last = settings.last() * 8 == offset;
            let bytes = if last { settings.last_bytes() } else { SLICE };
            linear = fragment((SOURCE, PORT), ident, (offset, bytes, !last), settings.bytes);
        }
        let mut machine =
            Machine { linear: &linear, beyond: 0, queue: 1, processor: 0, rings: &[1], memory: &mut memory, cut: 0 };
        machine.run(&fragments(LOCAL, &settings, RINGS, MEMORY));
    }
}
