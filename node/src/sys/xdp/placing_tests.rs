//! The placing program on frames of all kinds, against the same decisions in plain words.

use cutthrough_engine::register::{Expected, Whose};
use cutthrough_wire::frame::{Header, Kind, OPENING_BYTES};
use proptest::collection::vec;
use proptest::prelude::*;

use super::machine::{BEYOND, MEMORY, Machine, REDIRECT, RINGS, set_word as put, word as get};
use super::placing::{ANY, CLOSED, LOGGED, Slots, placing, shared};
use super::plain::{Aim, payload};
use super::program_tests::{OURS, PASS, frame, frames, is_ours};

const DROP: u64 = 1;
const SLOTS: Slots = Slots { count_log: 7, bytes_log: 11, free: 64 };
const SLICE: u32 = 200;
/// The least number of a message that may begin; the one before it is sent again.
const AWAITED: u32 = u32::MAX;

#[test]
fn as_many_slots_stay_free_as_there_are_processors() {
    for processors in [0, 2, 64, 65, 128, 129, 512, 8192] {
        for frame_max in [1514, 9014, 65_549] {
            let Slots { count_log, bytes_log, free } = Slots::of(frame_max, processors);
            assert!(free >= processors.max(64) && 2 * free <= 1 << count_log, "{processors}: {free} of 2^{count_log}");
            assert!((7..=16).contains(&count_log) && (7..=16).contains(&bytes_log));
        }
    }
    assert_eq!(Slots::of(1514, 128), Slots { count_log: 10, bytes_log: 11, free: 128 });
    assert_eq!(Slots::of(9014, 128), Slots { count_log: 8, bytes_log: 14, free: 128 });
}

fn at(place: u64) -> usize {
    usize::try_from(place).unwrap()
}

fn memory() -> Vec<u8> {
    vec![0; at(SLOTS.shared_bytes())]
}

/// Aimed at a message that has begun, or at the next one, up to `end`; and at one behind it that is as long.
fn aimed((tag, generation): (u32, u32), fresh: bool, end: u32) -> Aim {
    let (message, begin) = if fresh { (None, 0) } else { (Some(1), 300) };
    let mut listed = payload(message, AWAITED, (begin, begin + end), SLICE);
    listed.extend(payload(None, if fresh { 0 } else { 2 }, (0, end), SLICE));
    Aim { tag, generation, listed, ..Aim::default() }
}

fn made(aim: &Aim, kind: Kind, message: u32, offset: u32, payload: u32, number: u64) -> Vec<u8> {
    let opening = if kind == Kind::Open { OPENING_BYTES } else { 0 };
    let body = vec![7; opening + payload as usize];
    let header = Header {
        kind,
        body: u16::try_from(body.len()).unwrap(),
        tag: aim.tag,
        generation: aim.generation,
        awaited: 1,
        number,
        below: 2,
        held: 3,
        waits: false,
        calls: 0,
        asks: 0,
        bits: 4,
        words: [message, offset],
    };
    frame(&[&header.to_bytes()[..], &body].concat())
}

#[derive(Debug, Clone)]
enum Arrival {
    /// The frame that is awaited, as long as this part of a full one in 255; and this byte of it changed by this much.
    Next(u8, Option<(usize, u8)>),
    /// Some frame of the channel.
    Other(bool, u32, u32, u32),
    Noise(Vec<u8>),
    /// On another queue.
    Elsewhere,
    /// What comes from now on comes on this processor.
    On(u32),
    /// User space has read so many slots.
    Read(u32),
    /// It falls asleep, or wakes up.
    Sleep(bool),
    /// It closes the register, and aims anew.
    Again(bool),
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        8 => Just(Arrival::Next(255, None)),
        1 => any::<u8>().prop_map(|part| Arrival::Next(part, None)),
        2 => (0..110_usize, 1..=255_u8).prop_map(|change| Arrival::Next(255, Some(change))),
        2 => (any::<bool>(), 0..4_u32, 0..1000_u32, 0..300_u32)
            .prop_map(|(open, message, at, bytes)| Arrival::Other(open, message.wrapping_sub(2), at, bytes)),
        1 => frames().prop_map(Arrival::Noise),
        1 => Just(Arrival::Elsewhere),
        1 => (0..2_u32).prop_map(Arrival::On),
        1 => (0..100_u32).prop_map(Arrival::Read),
        1 => any::<bool>().prop_map(Arrival::Sleep),
        1 => any::<bool>().prop_map(Arrival::Again),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever comes, the register lets through exactly what it awaits, cut to its payload and logged; the rest of
    /// what is ours lies in the slots, in order and whole, or goes to the kernel while there is none, or user space
    /// sleeps; and what `NEXT` says is how far it has come.
    #[test]
    fn the_program_is_the_register_in_plain_words(
        arrivals in vec(arrival(), 0..200), split in 106..400_usize, end in 0..4000_u32, fresh: bool,
    ) {
        let program = placing(&OURS, 1, SLOTS, RINGS, MEMORY);
        let mut memory = memory();
        let (mut aim, mut epoch) = (aimed((3, 4), fresh, end), 7);
        aim.announce(&mut memory, epoch);
        let (mut logged, mut given, mut seen, mut asleep) = (Vec::new(), Vec::<Option<Vec<u8>>>::new(), 0_u32, false);
        let mut processor = 0;
        for (number, arrival) in arrivals.into_iter().enumerate() {
            let next = |part: u8| {
                // Behind the last one comes another one like it.
                let due = aim.next().or(aim.listed.last()).copied();
                let due = due.unwrap_or(Expected { whose: Whose::Opened, offset: 0, bytes: SLICE, at: 0 });
                let (kind, message) = match due.whose {
                    Whose::Opens(_) => (Kind::Open, aim.message.wrapping_add(1)),
                    Whose::Known(message) => (Kind::Data, message),
                    Whose::Opened => (Kind::Data, aim.message),
                };
                made(&aim, kind, message, due.offset, due.bytes * u32::from(part) / 255, number as u64)
            };
            let (whole, queue) = match arrival {
                Arrival::Next(part, change) => {
                    let mut frame = next(part);
                    if let Some((at, by)) = change && at < frame.len() {
                        frame[at] = frame[at].wrapping_add(by);
                    }
                    (frame, 1)
                }
                Arrival::Other(open, message, offset, payload) => {
                    let kind = if open { Kind::Open } else { Kind::Data };
                    (made(&aim, kind, message, offset, payload, number as u64), 1)
                }
                Arrival::Noise(frame) => (frame, 1),
                Arrival::Elsewhere => (next(255), 0),
                Arrival::On(other) => {
                    processor = other;
                    continue;
                }
                Arrival::Read(count) => {
                    seen = (seen + count).min(u32::try_from(given.len()).unwrap());
                    put(&mut memory, shared::SEEN, seen);
                    continue;
                }
                Arrival::Sleep(sleeps) => {
                    asleep = sleeps;
                    put(&mut memory, shared::ASLEEP, u32::from(sleeps));
                    continue;
                }
                Arrival::Again(fresh) => {
                    epoch += 1;
                    aim = Aim { message: aim.message, ..aimed((3, 4), fresh, end) };
                    aim.announce(&mut memory, epoch);
                    continue;
                }
            };
            let linear = &whole[..whole.len().min(split)];
            let beyond = whole.len() - linear.len();
            let mut machine =
                Machine { linear, beyond, queue, processor, rings: &[0, 1], memory: &mut memory, cut: 0 };
            let verdict = machine.run(&program);
            let was_cut = machine.cut;
            let mut seen_whole = linear.to_vec();
            seen_whole.resize(whole.len(), BEYOND);
            if !is_ours(linear) || queue != 1 || whole.len() > 1514 {
                prop_assert_eq!((verdict, was_cut), (PASS, 0));
            } else if let Some(cut) = aim.takes(linear, beyond, processor) {
                prop_assert_eq!((verdict, was_cut), (REDIRECT, cut));
                logged.push((seen_whole[..cut].to_vec(), given.len()));
            } else {
                let full = u32::try_from(given.len()).unwrap() - seen > 64;
                prop_assert_eq!((verdict, was_cut), (if full || asleep { PASS } else { DROP }, 0));
                if !full {
                    given.push((!asleep).then_some(seen_whole));
                    let index = u32::try_from(given.len() - 1).unwrap();
                    let stamp = (get(&memory, SLOTS.at(index)), get(&memory, SLOTS.at(index) + 4));
                    let bytes = if asleep { 0 } else { u32::try_from(whole.len()).unwrap() };
                    prop_assert_eq!(stamp, (index + 1, bytes));
                }
            }
            prop_assert_eq!(get(&memory, shared::TAKEN) as usize, logged.len());
            prop_assert_eq!(get(&memory, shared::GIVEN) as usize, given.len());
            prop_assert_eq!(get(&memory, shared::FAILED), 0);
            prop_assert_eq!(get(&memory, shared::PROCESSOR), aim.processor.unwrap_or(ANY));
            prop_assert_eq!((get(&memory, shared::NEXT), get(&memory, shared::NEXT + 4)), aim.says(epoch));
        }
        for (index, frame) in given.iter().enumerate().skip(seen as usize) {
            let place = at(SLOTS.at(u32::try_from(index).unwrap()) + shared::IN_SLOT);
            if let Some(frame) = frame {
                prop_assert_eq!(&memory[place..place + frame.len()], &frame[..]);
            }
        }
        for (index, (head, before)) in logged.iter().enumerate().rev().take(LOGGED as usize) {
            let place = at(shared::LOG) + index % LOGGED as usize * 256;
            prop_assert_eq!(&memory[place..place + head.len()], &head[..]);
            let said = get(&memory, place as u64 + shared::BEFORE);
            prop_assert_eq!(said as usize, *before);
        }
    }

    /// Whatever user space has written into the shared memory, the program stays inside of it, and a register that is
    /// closed lets nothing through.
    #[test]
    fn it_is_safe_with_any_memory(
        noise in vec(any::<u32>(), 256), linear in frames(), open: bool, near: bool, closed: bool,
    ) {
        let mut memory = memory();
        for (place, word) in memory.as_chunks_mut::<4>().0.iter_mut().zip(&noise) {
            *place = word.to_le_bytes();
        }
        put(&mut memory, shared::NEXT, if closed { noise[0] | CLOSED } else { noise[0] & !CLOSED });
        let aim = Aim { tag: noise[2], generation: noise[3], ..Aim::default() };
        let kind = if open { Kind::Open } else { Kind::Data };
        let near = near.then(|| made(&aim, kind, noise[4], noise[65], noise[5] % 1000, 1));
        let linear = near.unwrap_or(linear);
        let mut machine =
            Machine { linear: &linear, beyond: 0, queue: 1, processor: 0, rings: &[1], memory: &mut memory, cut: 0 };
        let verdict = machine.run(&placing(&OURS, 1, SLOTS, RINGS, MEMORY));
        // User space never writes a limit that far.
        let limited = get(&memory, shared::LIMIT) <= 1 << 30;
        prop_assert!(!closed || !limited || verdict != REDIRECT);
    }
}
