//! What the rules of the wire say of frames (`docs/wire.md`, N1 to N15), by frames that a hostile side makes by hand.

use std::net::SocketAddr;

use cutthrough_engine::check::Breach;
use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::{Bodies, Body, Ending};
use cutthrough_engine::net::inbox::{Ready, ReadyPayload};
use cutthrough_engine::net::{CallError, Cargo, NetEvent};
use cutthrough_wire::frame::{
    BODY_MIN, Greeting, HEADER_BYTES, Header, Kind, Limits, Note, OPENING_BYTES, Opening, Refusal, SEAL_BYTES,
    SEALED_BYTES,
};
use cutthrough_wire::seal::OPENING_NUMBER;
use cutthrough_wire::slot::CONTROL_MAX;

use super::wire::{Faults, World, pattern, sum};

/// First message of the handshake that the guard of the world takes.
pub(crate) const FIRST: &[u8] = b"how do you do";

/// The node that is attacked.
pub(crate) const VICTIM: usize = 1;

/// A side that makes its frames by hand.
pub(crate) struct Forger {
    pub(crate) address: SocketAddr,
    pub(crate) tag: u32,
    pub(crate) generation: u32,
    pub(crate) number: u64,
    /// The least number of which it waits for an acknowledgement.
    pub(crate) awaited: u32,
    /// Whether it says that it has more to send than its window takes.
    pub(crate) waits: bool,
}

/// A frame as bytes, with a seal that fits.
pub(crate) fn sealed(header: &Header, body: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut head, mut body) = (header.to_bytes(), body.to_vec());
    let (protected, place) = head.split_at_mut(SEALED_BYTES);
    let number = if header.kind.greets() { 0 } else { header.number };
    let payload = match body.split_first_chunk_mut::<OPENING_BYTES>() {
        Some((opening, payload)) if header.kind == Kind::Open => {
            let (plain, seal) = opening.split_at_mut(OPENING_BYTES - SEAL_BYTES);
            seal.copy_from_slice(&sum(number | OPENING_NUMBER, [protected, plain]));
            &*payload
        }
        _ => &body[..],
    };
    place.copy_from_slice(&sum(number, [protected, payload]));
    (head.to_vec(), body)
}

pub(crate) fn greeting(cookie: u64) -> Greeting {
    let limits = Limits { messages: 64, unasked: 64 << 10 };
    Greeting { tag: 3, generation: 5, life: 7, cookie, body: BODY_MIN, limits, process: 0, user: 0 }
}

pub(crate) fn opening(payload: u32, unasked: u32) -> Vec<u8> {
    let limits = Limits { messages: 64, unasked: 64 << 10 };
    let control = [1; CONTROL_MAX];
    Opening { payload, unasked, token: None, pages: true, limits, control_len: 8, control }.to_bytes().to_vec()
}

impl Forger {
    /// A stranger: it knows no channel.
    pub(crate) fn stranger(host: u8) -> Self {
        let address = SocketAddr::from(([10, 0, 0, host], 7));
        Self { address, tag: 0, generation: 0, number: 0, awaited: 0, waits: false }
    }

    /// One that was let in.
    pub(crate) fn joined(world: &mut World) -> Self {
        Self::joined_as(world, 9)
    }

    /// One that was let in, from this host.
    pub(crate) fn joined_as(world: &mut World, host: u8) -> Self {
        let mut forger = Self::stranger(host);
        let retry = forger.hello(world, 0, FIRST, BODY_MIN).expect("a cookie");
        let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
        let welcome = forger.hello(world, cookie, FIRST, BODY_MIN).expect("let in");
        let (greeting, _) = Greeting::from_bytes(&welcome[HEADER_BYTES..]).unwrap();
        (forger.tag, forger.generation) = (greeting.tag, greeting.generation);
        forger.send(world, Kind::Probe, [0, 0], &[]);
        assert!(matches!(forger.events(world)[..], [NetEvent::Opened(_)]));
        forger
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says hello with a body of at least `len` bytes: how many it had.
    pub(crate) fn says_hello(&mut self, world: &mut World, cookie: u64, first: &[u8], len: u16) -> usize {
        let mut body = greeting(cookie).to_bytes(u16::try_from(first.len()).unwrap()).to_vec();
        body.extend_from_slice(first);
        body.resize(body.len().max(usize::from(len)), 0);
        let header = self.header(Kind::Hello, [0, 0], &body);
        self.bring(world, &header, &body);
        body.len()
    }

    /// As [`Forger::says_hello`]: the answer, if there is one.
    pub(crate) fn hello(&mut self, world: &mut World, cookie: u64, first: &[u8], len: u16) -> Option<Vec<u8>> {
        let said = self.says_hello(world, cookie, first, len);
        let answer = world.nodes[VICTIM].net.greeting();
        assert!(world.nodes[VICTIM].net.greeting().is_none());
        answer.map(|(to, frame)| {
            assert_eq!(to, self.address);
            assert!(frame.len() <= HEADER_BYTES + said, "{} bytes answer {said}", frame.len());
            frame
        })
    }

    pub(crate) fn header(&self, kind: Kind, words: [u32; 2], body: &[u8]) -> Header {
        Header {
            kind,
            body: u16::try_from(body.len()).unwrap(),
            tag: self.tag,
            generation: self.generation,
            awaited: self.awaited,
            number: self.number,
            below: 0,
            held: 0,
            waits: self.waits,
            calls: 0,
            asks: 0,
            bits: 0,
            words,
        }
    }

    pub(crate) fn bring(&self, world: &mut World, header: &Header, body: &[u8]) {
        let (head, mut body) = sealed(header, body);
        let now = world.now();
        let head = head.first_chunk().unwrap();
        world.nodes[VICTIM].net.frame(now, self.address, head, Body::Aside(&mut body), None);
    }

    /// Sends a frame with the next number.
    pub(crate) fn send(&mut self, world: &mut World, kind: Kind, words: [u32; 2], body: &[u8]) {
        let header = self.header(kind, words, body);
        self.number += 1;
        self.bring(world, &header, body);
    }

    pub(crate) fn events(&self, world: &mut World) -> Vec<NetEvent<Vec<u8>>> {
        std::iter::from_fn(|| world.nodes[VICTIM].net.next_event()).collect()
    }

    /// The rule that this side has broken, if its channel has ended by that.
    pub(crate) fn breach(&self, world: &mut World) -> Option<Breach> {
        self.events(world).into_iter().find_map(|event| match event {
            NetEvent::Closed(index, Ending::Breach(breach)) if index == self.tag as usize => Some(breach),
            _ => None,
        })
    }

    /// Headers and bodies of what the victim sends this side now.
    pub(crate) fn hears(&self, world: &mut World) -> Vec<(Header, Vec<u8>)> {
        let now = world.now();
        let (net, mut batch, mut heard) = (&mut world.nodes[VICTIM].net, Batch::default(), Vec::new());
        net.hurry();
        while let Some((index, to)) = net.batch(now, &mut batch, 65_000) {
            if index != self.tag as usize {
                continue;
            }
            assert_eq!(to, self.address);
            let frames = batch.own().chunks(batch.segment());
            heard.extend(frames.map(|frame| {
                let (head, body) = frame.split_first_chunk().unwrap();
                (Header::from_bytes(head).unwrap(), body.to_vec())
            }));
        }
        heard
    }
}

/// A world with an honest channel, and a forger who was let in.
pub(crate) fn world() -> (World, usize, Forger) {
    let mut world = World::new(21, Faults::NONE);
    let (a, _) = world.join();
    world.settle();
    let forger = Forger::joined(&mut world);
    (world, a, forger)
}

/// The honest channel is as it was.
pub(crate) fn still_works(world: &mut World, a: usize) {
    world.nodes[0].net.send(a, b"still here", None).unwrap();
    let (_, message) = world.message(VICTIM);
    assert_eq!(&message.control[..usize::from(message.control_len)], b"still here");
}

fn note(ranges: &[(u32, u32)], grants: &[(u32, u32)]) -> Vec<u8> {
    let len = |entries: &[(u32, u32)]| u16::try_from(entries.len()).unwrap();
    let limits = Limits { messages: 64, unasked: 64 << 10 };
    let mut body = Note::head(limits, len(ranges), len(grants)).to_vec();
    ranges.iter().chain(grants).for_each(|entry| body.extend_from_slice(&Note::entry(entry.0, entry.1)));
    body
}

pub(crate) fn records(count: u32) -> Vec<u8> {
    let mut body = Limits { messages: 64, unasked: 64 << 10 }.to_bytes().to_vec();
    (0..count).for_each(|_| body.extend_from_slice(&[1, 0, 7]));
    body
}

#[test]
fn no_answer_to_a_hello_is_longer_than_the_hello() {
    let mut world = World::new(22, Faults::NONE);
    let mut forger = Forger::stranger(9);
    let retry = forger.hello(&mut world, 0, FIRST, BODY_MIN).unwrap();
    assert_eq!((retry[1], retry.len()), (Kind::Retry as u8, HEADER_BYTES + 8));
    let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
    let refused = forger.hello(&mut world, cookie, b"another key", BODY_MIN).unwrap();
    assert_eq!((refused[1], refused[HEADER_BYTES]), (Kind::Refuse as u8, Refusal::Key as u8));
    for len in [0, BODY_MIN - 1] {
        assert!(forger.hello(&mut world, cookie, FIRST, len).is_none());
    }
    assert_eq!(world.nodes[VICTIM].net.channels(), 0);
    let welcome = forger.hello(&mut world, cookie, FIRST, BODY_MIN).unwrap();
    assert_eq!((welcome[1], welcome.len()), (Kind::Welcome as u8, HEADER_BYTES + usize::from(BODY_MIN)));
    world.nodes[VICTIM].net.listen(false);
    let nobody = forger.hello(&mut world, cookie, FIRST, BODY_MIN).unwrap();
    assert_eq!((nobody[1], nobody[HEADER_BYTES]), (Kind::Refuse as u8, Refusal::Nobody as u8));
}

#[test]
fn a_cookie_is_good_for_one_address() {
    let mut world = World::new(23, Faults::NONE);
    let retry = Forger::stranger(9).hello(&mut world, 0, FIRST, BODY_MIN).unwrap();
    let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
    let other = Forger::stranger(10).hello(&mut world, cookie, FIRST, BODY_MIN).unwrap();
    assert_eq!(other[1], Kind::Retry as u8);
    assert_eq!(world.nodes[VICTIM].net.channels(), 0);
}

#[test]
fn a_hello_of_another_version_is_refused_by_name() {
    let mut world = World::new(24, Faults::NONE);
    let forger = Forger::stranger(9);
    let mut body = greeting(0).to_bytes(0).to_vec();
    body.resize(usize::from(BODY_MIN), 0);
    let mut head = forger.header(Kind::Hello, [0, 0], &body).to_bytes();
    (head[0], head[50]) = (2, 1);
    let now = world.now();
    world.nodes[VICTIM].net.frame(now, forger.address, &head, Body::Aside(&mut body), None);
    let (_, refusal) = world.nodes[VICTIM].net.greeting().unwrap();
    let header = Header::from_bytes(refusal.first_chunk().unwrap()).unwrap();
    assert_eq!((header.kind, header.tag, header.generation), (Kind::Refuse, 3, 5));
    assert_eq!(refusal[HEADER_BYTES..], [Refusal::Version as u8, 1]);
}

#[test]
fn a_refusal_of_another_version_is_heard() {
    let mut world = World::new(29, Faults::NONE);
    let mut forger = Forger::stranger(9);
    let now = world.now();
    let index = world.nodes[VICTIM].net.call(now, forger.address, 1408).unwrap();
    let (_, hello) = world.nodes[VICTIM].net.greeting().unwrap();
    let (said, _) = Greeting::from_bytes(&hello[HEADER_BYTES..]).unwrap();
    let refusal = |forger: &Forger, world: &mut World| {
        let mut head = forger.header(Kind::Refuse, [0, 0], &[0; 2]).to_bytes();
        head[0] = 2;
        let mut body = [Refusal::Version as u8, 2];
        world.nodes[VICTIM].net.frame(now, forger.address, &head, Body::Aside(&mut body), None);
    };
    (forger.tag, forger.generation) = (said.tag, said.generation ^ 1);
    refusal(&forger, &mut world);
    assert!(forger.events(&mut world).is_empty());
    forger.generation = said.generation;
    refusal(&forger, &mut world);
    let events = forger.events(&mut world);
    let [NetEvent::Failed(failed, CallError::Version(2))] = events[..] else { panic!("{events:?}") };
    assert_eq!(failed, index);
}

#[test]
fn a_frame_of_another_life_address_or_seal_is_none() {
    let (mut world, a, mut forger) = world();
    let body = records(1);
    let header = forger.header(Kind::Records, [0, 1], &body);
    forger.bring(&mut world, &Header { generation: header.generation ^ 1, ..header }, &body);
    forger.bring(&mut world, &Header { tag: 99, ..header }, &body);
    Forger { address: SocketAddr::from(([10, 0, 0, 10], 7)), ..forger }.bring(&mut world, &header, &body);
    let (mut head, mut sent) = sealed(&header, &body);
    head[63] ^= 1;
    let now = world.now();
    world.nodes[VICTIM].net.frame(now, forger.address, head.first_chunk().unwrap(), Body::Aside(&mut sent), None);
    assert!(forger.events(&mut world).is_empty());
    let tally = *world.nodes[VICTIM].net.tally();
    assert_eq!((tally.stale, tally.forged), (3, 1));
    // None of them has used the number up.
    forger.send(&mut world, Kind::Records, [0, 1], &body);
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Message(..)]));
    still_works(&mut world, a);
}

#[test]
fn a_number_is_taken_once_and_what_follows_a_body_is_padding() {
    let (mut world, _, mut forger) = world();
    let body = records(1);
    let header = forger.header(Kind::Records, [0, 1], &body);
    forger.number += 1;
    let (head, mut long) = sealed(&header, &body);
    long.extend_from_slice(&[9; 50]);
    for _ in 0..2 {
        let (now, head) = (world.now(), head.first_chunk().unwrap());
        world.nodes[VICTIM].net.frame(now, forger.address, head, Body::Aside(&mut long.clone()), None);
    }
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Message(..)]));
    assert_eq!(world.nodes[VICTIM].net.tally().duplicates, 1);
    let short = Header { number: forger.number, ..header };
    let (head, _) = sealed(&short, &body);
    let now = world.now();
    let cut = &mut body[..4].to_vec();
    world.nodes[VICTIM].net.frame(now, forger.address, head.first_chunk().unwrap(), Body::Aside(cut), None);
    assert_eq!(world.nodes[VICTIM].net.tally().stale, 1);
}

#[test]
fn what_has_arrived_is_acknowledged_by_number() {
    let (mut world, _, mut forger) = world();
    // Numbers 0 to 2 come, 3 is missing, 4 and 100 come.
    for number in [1, 2, 4, 100] {
        forger.number = number;
        forger.send(&mut world, Kind::Probe, [0, 0], &[]);
    }
    let heard = forger.hears(&mut world);
    let [(header, body)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((header.kind, header.below, header.bits), (Kind::Note, 3, 1));
    let note = Note::from_bytes(body).unwrap();
    assert_eq!(note.ranges().collect::<Vec<_>>(), [(100, 1)]);
    // Who waits for nothing below 90 says so, and the gap is closed.
    let header = Header { number: 101, awaited: 90, ..forger.header(Kind::Probe, [0, 0], &[]) };
    forger.bring(&mut world, &header, &[]);
    let heard = forger.hears(&mut world);
    assert_eq!((heard[0].0.below, heard[0].0.bits), (90, 0b110 << 8));
}

#[test]
fn acknowledgements_and_grants_of_what_was_never_sent_are_breaches() {
    type Lie = fn(&mut Forger, &mut World);
    let lies: [Lie; 4] = [
        |forger, world| forger.bring(world, &Header { below: 50, ..forger.header(Kind::Probe, [0, 0], &[]) }, &[]),
        |forger, world| forger.bring(world, &Header { bits: 1 << 40, ..forger.header(Kind::Probe, [0, 0], &[]) }, &[]),
        |forger, world| forger.send(world, Kind::Note, [0, 0], &note(&[(0, 70)], &[])),
        |forger, world| forger.send(world, Kind::Note, [0, 0], &note(&[], &[(0, 10)])),
    ];
    for lie in lies {
        let (mut world, a, mut forger) = world();
        lie(&mut forger, &mut world);
        assert_eq!(forger.breach(&mut world), Some(Breach::Index));
        still_works(&mut world, a);
    }
}

#[test]
fn bodies_that_make_no_sense_are_breaches() {
    let open = opening(10, 10);
    let bad = Opening::to_bytes(&Opening {
        payload: 5,
        unasked: 6,
        ..Opening::from_bytes(open[..].first_chunk().unwrap()).unwrap()
    });
    let many: Vec<(u32, u32)> = vec![(0, 1); 33];
    let bodies: [(Kind, [u32; 2], Vec<u8>); 10] = [
        (Kind::Records, [0, 2], records(1)),
        (Kind::Records, [0, 1], vec![0; 7]),
        (Kind::Records, [0, 1], [&[0; 8][..], &[97, 0], &[0; 97]].concat()),
        (Kind::Open, [0, 0], bad.to_vec()),
        (Kind::Note, [0, 0], vec![0; 15]),
        (Kind::Note, [0, 0], [note(&[], &[]), vec![0; 8]].concat()),
        (Kind::Note, [0, 0], note(&many, &[])),
        (Kind::Note, [0, 0], note(&[(0, 1), (0, 1)], &[])),
        (Kind::Note, [0, 0], note(&[(0, 1), (1, 1)], &[])),
        (Kind::Note, [0, 0], note(&[(0, 0)], &[])),
    ];
    for (kind, words, body) in bodies {
        let (mut world, a, mut forger) = world();
        forger.send(&mut world, kind, words, &body);
        assert_eq!(forger.breach(&mut world), Some(Breach::Descriptor), "{kind:?} {body:?}");
        still_works(&mut world, a);
    }
}

#[test]
fn more_than_the_limits_allow_is_a_breach() {
    let (mut world, a, mut forger) = world();
    forger.send(&mut world, Kind::Records, [63, 1], &records(1));
    assert_eq!(forger.breach(&mut world), None);
    forger.send(&mut world, Kind::Records, [64, 1], &records(1));
    assert_eq!(forger.breach(&mut world), Some(Breach::Index));
    still_works(&mut world, a);
    // Half of 64 KiB is there for the second channel.
    let (mut world, a, mut forger) = world_with_openings(&[20_000]);
    forger.send(&mut world, Kind::Open, [1, 0], &opening(20_000, 20_000));
    assert_eq!(forger.breach(&mut world), Some(Breach::Length));
    still_works(&mut world, a);
}

/// A world whose forger has opened messages with payloads so long, all unasked, and sent none of the bytes.
fn world_with_openings(payloads: &[u32]) -> (World, usize, Forger) {
    let (mut world, a, mut forger) = world();
    for (number, payload) in (0..).zip(payloads) {
        forger.send(&mut world, Kind::Open, [number, 0], &opening(*payload, *payload));
    }
    assert_eq!(forger.breach(&mut world), None);
    (world, a, forger)
}

#[test]
fn payload_bytes_that_were_not_allowed_are_a_breach() {
    for (offset, len) in [(9_990, 11), (20_000, 1), (u32::MAX, 1)] {
        let (mut world, a, mut forger) = world();
        forger.send(&mut world, Kind::Open, [0, 0], &opening(20_000, 10_000));
        forger.send(&mut world, Kind::Data, [0, offset], &vec![1; len]);
        assert_eq!(forger.breach(&mut world), Some(Breach::Length), "{offset}");
        still_works(&mut world, a);
    }
}

/// What comes before its opening cannot have been asked for: of it, no more may be there than goes unasked.
#[test]
fn payload_bytes_that_came_before_they_were_allowed_are_a_breach() {
    for (unasked, breach) in [(1000, None), (999, Some(Breach::Length)), (0, Some(Breach::Length))] {
        let (mut world, a, mut forger) = world();
        forger.send(&mut world, Kind::Data, [0, 0], &[1; 1000]);
        forger.send(&mut world, Kind::Open, [0, 0], &opening(20_000, unasked));
        match breach {
            Some(_) => assert_eq!(forger.breach(&mut world), breach, "{unasked}"),
            None => assert!(forger.events(&mut world).is_empty()),
        }
        still_works(&mut world, a);
    }
}

#[test]
fn a_payload_is_asked_for_and_lands_in_any_order() {
    let (mut world, _, mut forger) = world();
    let bytes = pattern(4, 3000);
    forger.send(&mut world, Kind::Data, [0, 1000], &bytes[1000..2000]);
    forger.send(&mut world, Kind::Open, [0, 0], &[opening(3000, 2000), bytes[..1000].to_vec()].concat());
    let now = world.now();
    world.nodes[VICTIM].net.looked(now);
    let heard = forger.hears(&mut world);
    let grants: Vec<_> = heard.iter().filter(|(header, _)| header.kind == Kind::Note).collect();
    let [(header, body)] = grants[..] else { panic!("{heard:?}") };
    assert_eq!(header.words[0], 1, "a note with grants wants to be acknowledged");
    assert_eq!(Note::from_bytes(body).unwrap().grants().collect::<Vec<_>>(), [(0, 3000)]);
    forger.send(&mut world, Kind::Data, [0, 2000], &bytes[2000..]);
    let [NetEvent::Message(_, Ready { payload: ReadyPayload::Landed(place, story), .. })] =
        &forger.events(&mut world)[..]
    else {
        panic!("no payload")
    };
    assert_eq!((&place[..], story.bytes), (&bytes[..], 3000));
}

#[test]
fn a_payload_that_is_not_wanted_ends_at_its_sender() {
    let mut world = World::new(26, Faults::NONE);
    let (a, b) = world.join();
    let cargo = Cargo { load: pattern(1, 500_000), token: None, pages: false, cookie: Some(4) };
    world.nodes[0].net.send(a, b"long", Some(cargo)).unwrap();
    let (_, message) = world.message(VICTIM);
    let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{message:?}") };
    world.nodes[VICTIM].net.forget(b, number);
    assert_eq!(world.completed(0), 4);
    world.settle();
}

#[test]
fn who_never_hears_what_is_unwanted_is_told_no_new_limits() {
    let (mut world, _, mut forger) = world();
    let index = forger.tag as usize;
    // It opens one message after the other, never acknowledges, and the victim wants none of them.
    let mut message = 0;
    let breach = loop {
        let open = Opening { pages: false, ..Opening::from_bytes(opening(9000, 0).first_chunk().unwrap()).unwrap() };
        forger.send(&mut world, Kind::Open, [message, 0], &open.to_bytes());
        message += 1;
        for event in forger.events(&mut world) {
            match event {
                NetEvent::Message(_, Ready { payload: ReadyPayload::Arriving(number, _), .. }) => {
                    world.nodes[VICTIM].net.forget(index, number);
                }
                NetEvent::Closed(_, ending) => assert_eq!(ending, Ending::Breach(Breach::Index)),
                event => panic!("{event:?}"),
            }
        }
        forger.hears(&mut world);
        if world.nodes[VICTIM].net.counts(index).is_none() {
            break message;
        }
        assert!(message < 1000, "it goes on and on");
    };
    assert!((64..=130).contains(&breach), "{breach}");
}

#[test]
fn a_close_counts_the_messages_before_it() {
    let (mut world, a, mut forger) = world();
    forger.send(&mut world, Kind::Close, [2, 0], &[]);
    forger.send(&mut world, Kind::Records, [1, 1], &records(1));
    assert!(forger.events(&mut world).is_empty());
    forger.send(&mut world, Kind::Records, [0, 1], &records(1));
    let mut events = forger.events(&mut world);
    assert_eq!(forger.hears(&mut world).last().map(|(header, _)| header.below), Some(4));
    events.extend(std::iter::from_fn(|| world.nodes[VICTIM].net.next_event()));
    assert_eq!(events.iter().filter(|event| matches!(event, NetEvent::Message(..))).count(), 2);
    assert!(matches!(events.last(), Some(NetEvent::Closed(_, Ending::Peer))), "{events:?}");
    still_works(&mut world, a);
}

#[test]
fn a_payload_that_landed_at_an_offset_beyond_its_place_is_forged() {
    let (mut world, a, mut forger) = world();
    forger.send(&mut world, Kind::Open, [0, 0], &opening(3000, 3000));
    for offset in [2999, 3000, 5000, u32::MAX] {
        let header = forger.header(Kind::Data, [0, offset], &[1, 2]);
        let (head, _) = sealed(&header, &[1, 2]);
        let (now, body) = (world.now(), Body::Landed { opening: None, len: 2 });
        world.nodes[VICTIM].net.frame(now, forger.address, head.first_chunk().unwrap(), body, None);
    }
    assert_eq!(world.nodes[VICTIM].net.tally().forged, 4);
    assert_eq!(forger.breach(&mut world), None);
    still_works(&mut world, a);
}

#[test]
fn frames_that_came_together_with_the_last_numbers_there_are_prove_nothing() {
    let (mut world, a, mut forger) = world();
    forger.send(&mut world, Kind::Open, [0, 0], &opening(3000, 3000));
    for number in [u64::MAX, u64::MAX - 1, u64::MAX - 2] {
        let heads = [0, 1, 2].map(|k| {
            let header = forger.header(Kind::Data, [0, k * 1000], &[7; 1000]);
            let header = Header { number: number.wrapping_add(k.into()), ..header };
            *sealed(&header, &[7; 1000]).0.first_chunk::<HEADER_BYTES>().unwrap()
        });
        let now = world.now();
        assert_eq!(world.nodes[VICTIM].net.run(now, forger.address, (&heads, Bodies::Landed), None), 0);
    }
    still_works(&mut world, a);
}

#[test]
fn a_caller_follows_one_forged_cookie_at_a_time() {
    let mut world = World::new(27, Faults::NONE);
    world.nodes[VICTIM].net.listen(false);
    let mut forger = Forger::stranger(9);
    let now = world.now();
    let index = world.nodes[VICTIM].net.call(now, forger.address, 1408).unwrap();
    let (_, hello) = world.nodes[VICTIM].net.greeting().unwrap();
    let (said, _) = Greeting::from_bytes(&hello[HEADER_BYTES..]).unwrap();
    (forger.tag, forger.generation) = (said.tag, said.generation);
    for cookie in 1..1000_u64 {
        forger.send(&mut world, Kind::Retry, [0, 0], &cookie.to_le_bytes());
    }
    assert_eq!(std::iter::from_fn(|| world.nodes[VICTIM].net.greeting()).count(), 1);
    // The second is used when it is time to say hello again; it has ended the call that the others name.
    world.nodes[VICTIM].net.tick(now.after(1_000_000_000));
    let (_, hello) = world.nodes[VICTIM].net.greeting().unwrap();
    let (said, _) = Greeting::from_bytes(&hello[HEADER_BYTES..]).unwrap();
    assert_eq!((said.cookie, said.generation != forger.generation), (2, true));
    forger.generation = said.generation;
    forger.send(&mut world, Kind::Refuse, [0, 0], &[Refusal::Channels as u8, 1]);
    let event = world.nodes[VICTIM].net.next_event();
    assert!(matches!(event, Some(NetEvent::Failed(at, CallError::Refused(Refusal::Channels))) if at == index));
}
