//! The register across a veth pair, with all that may come instead of what it awaits, against a model in plain words.

use std::io::IoSlice;
use std::net::UdpSocket;
use std::time::Duration;

use cutthrough_engine::register::{AHEAD, Expected, Whose};
use cutthrough_wire::frame::{Header, Kind};

use super::super::tests::{FAR_END, NEAR_END};
use super::*;
use crate::clock;
use crate::raw::{Hop, Ring};
use crate::sys::xdp::plain::{Aim, payload};
use crate::sys::xdp::wire::{FAR_MAC, NEAR_MAC, Wire, stay};
use crate::sys::xdp::{Interface, Mode};

const PAGES: u64 = 256 << 10;
const PATIENCE_NS: u64 = 10_000_000_000;

struct Ends {
    near: XdpRing,
    far: XdpRing,
    to_near: Hop,
    /// Bytes of payload of a full frame.
    slice: u32,
}

fn ends(wire: &Wire, mode: Mode) -> Ends {
    stay();
    let (near, near_index) = wire.near(|| {
        let interface = Interface::named("near").unwrap();
        (XdpRing::open_placing(&interface, NEAR_END, 0, Some(mode), PAGES).unwrap(), interface.index)
    });
    let (far, far_index) = wire.far(|| {
        let interface = Interface::named("far").unwrap();
        (XdpRing::open(&interface, FAR_END, 0, Some(mode), 0).unwrap(), interface.index)
    });
    assert!(near_index > 0);
    let slice = u32::try_from(near.body_max() - HEADER_BYTES).unwrap();
    let to_near = Hop::new((FAR_END, FAR_MAC), (NEAR_END, NEAR_MAC), far_index, Instant::default());
    Ends { near, far, to_near, slice }
}

/// Numbers that look random.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(end.max(1))).unwrap()
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }
}

/// The body of a datagram.
fn body((tag, generation): (u32, u32), kind: Kind, message: u32, offset: u32, bytes: u32, seed: u32) -> Vec<u8> {
    let opening = if kind == Kind::Open { OPENING_BYTES } else { 0 };
    let header = Header {
        kind,
        body: u16::try_from(opening + bytes as usize).unwrap(),
        tag,
        generation,
        awaited: 1,
        number: u64::from(seed),
        below: 2,
        held: 3,
        waits: false,
        calls: 0,
        asks: 0,
        bits: 4,
        words: [message, offset],
    };
    let noise = (0..opening + bytes as usize).map(|at| ((at * 7 + seed as usize * 31) / 3).to_le_bytes()[0]);
    header.to_bytes().into_iter().chain(noise).collect()
}

/// Lists the frames of a payload from `begin` to `end`, where byte `begin` belongs at `at`: the rest of this message,
/// or of one that begins.
fn frames(message: Option<u32>, (begin, end): (u32, u32), at: u64, slice: u32) -> Vec<Expected> {
    let frames = payload(message, u32::MAX, (begin, end), slice);
    frames.into_iter().map(|frame| Expected { at: at + frame.at - u64::from(begin), ..frame }).collect()
}

fn settle(ring: &mut XdpRing, landed: &mut Vec<Landed>) {
    let begun = clock::now();
    while !ring.is_quiet(clock::now()) {
        landed.extend(ring.landed(true));
        assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "not quiet");
    }
}

/// Many lists, one after the other: of whichever messages come next and of one that has begun, in the middle of a page
/// and across pages; and frames of all kinds, some of them expected. What is expected lies where it belongs, what is
/// not is whole in the slots, and each comes in the order in which it was sent; and not one byte besides has changed
/// when the register is quiet.
#[test]
fn nothing_is_written_but_what_is_expected_where_it_belongs() {
    for (mtu, mode) in [(1500, Mode::Generic), (9000, Mode::Generic), (1500, Mode::Native), (9000, Mode::Native)] {
        let Some(wire) = Wire::make(mtu) else { return };
        // A driver may have no room for such frames.
        let Ends { mut near, mut far, to_near, slice } = ends(&wire, mode);
        let base = near.pages().1;
        let mut memory = vec![0; usize::try_from(PAGES).unwrap()];
        let mut draw = Draw(u64::from(mtu));
        let (mut hits, mut others) = (0, 0);
        let mut message = 0;
        for round in 0..400 {
            let begin = if draw.one_in(2) { 0 } else { draw.below(5000) };
            let (first, second) = (base + u64::from(draw.below(64 << 10)), base + (160 << 10));
            let of = (draw.below(3), 7 + draw.below(2));
            let known = (begin > 0).then(|| draw.below(4));
            let mut listed = frames(known, (begin, begin + 1 + draw.below(60_000)), first, slice);
            listed.extend(frames(None, (0, 1 + draw.below(30_000)), second, slice));
            near.aim(of, listed);
            let listed: Vec<_> = near.cut().unwrap().register().listed(0).map(|(_, frame)| *frame).collect();
            let mut model = Aim { tag: of.0, generation: of.1, listed, message, ..Aim::default() };
            let (mut expected, mut aside, mut order) = (Vec::new(), Vec::new(), Vec::new());
            for number in 0..draw.below(40) {
                let seed = round * 64 + number;
                let due = *model.next().or(model.listed.last()).unwrap();
                let (mut kind, mut message) = match due.whose {
                    Whose::Opens(_) => (Kind::Open, model.message.wrapping_add(1)),
                    Whose::Known(message) => (Kind::Data, message),
                    Whose::Opened => (Kind::Data, model.message),
                };
                let (mut offset, mut bytes, mut of) = (due.offset, due.bytes, of);
                match draw.below(20) {
                    0 => bytes = draw.below(bytes + 1),
                    1 => offset = offset.wrapping_add(draw.below(3)).wrapping_sub(1),
                    2 => message = message.wrapping_sub(draw.below(5)),
                    3 => of.0 ^= 1,
                    4 => of.1 ^= 1,
                    5 => kind = if draw.one_in(2) { Kind::Records } else { Kind::Open },
                    _ => {}
                }
                let bytes = bytes.min(if kind == Kind::Open { slice - 144 } else { slice });
                let datagram = body(of, kind, message, offset, bytes, seed);
                let lands = model.takes(&[&[0; ENVELOPE_BYTES][..], &datagram].concat(), 0, 0).is_some();
                order.push(lands);
                if lands {
                    expected.push((due.at, datagram.clone()));
                } else {
                    aside.push(datagram.clone());
                }
                let begun = clock::now();
                while !far.send(&to_near, &[IoSlice::new(&datagram)], datagram.len()).unwrap() {
                    assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "no room to send");
                }
            }
            message = model.message;
            let (mut landed, mut came, mut ordered) = (Vec::new(), Vec::new(), Vec::new());
            let begun = clock::now();
            while landed.len() < expected.len() || came.len() < aside.len() {
                while let Some(one) = near.landed(false) {
                    landed.push(one);
                    ordered.push(true);
                }
                if let Some((from, body)) = near.aside() {
                    assert_eq!(from, FAR_END);
                    came.push(body.to_vec());
                    ordered.push(false);
                    near.done_aside(true);
                }
                let waited = clock::now().saturating_since(begun) < PATIENCE_NS;
                assert!(waited, "{mode:?} {mtu}: {} of {} landed", landed.len(), expected.len());
            }
            settle(&mut near, &mut landed);
            assert!(came == aside && landed.len() == expected.len(), "{mode:?} {mtu} round {round}");
            // What has landed is never taken before what came before it.
            let before = |all: &[bool]| -> Vec<usize> {
                let mut aside = 0;
                all.iter()
                    .filter_map(|lands| {
                        if *lands {
                            Some(aside)
                        } else {
                            aside += 1;
                            None
                        }
                    })
                    .collect()
            };
            assert!(before(&ordered).iter().zip(before(&order)).all(|(is, was)| *is >= was), "{ordered:?} {order:?}");
            for (landed, (place, datagram)) in landed.iter().zip(&expected) {
                let opening = if datagram[1] == Kind::Open as u8 { OPENING_BYTES } else { 0 };
                let (head, rest) = datagram.split_at(HEADER_BYTES);
                assert_eq!((&landed.head[..], landed.from), (head, FAR_END));
                assert_eq!(landed.opening.as_ref().map_or(&[][..], |opening| opening), &rest[..opening]);
                assert_eq!((landed.at, landed.bytes), (*place, rest.len() - opening));
                let place = usize::try_from(landed.at - base).unwrap();
                memory[place..place + landed.bytes].copy_from_slice(&rest[opening..]);
            }
            assert!(near.pages().0.frame(base, memory.len()) == memory, "{mode:?} {mtu} round {round}");
            (hits, others) = (hits + expected.len(), others + aside.len());
        }
        assert!(hits > 1000 && others > 500, "{hits} {others}");
        assert!(near.broken.is_none());
        assert_eq!(near.counts().overflows, 0);
    }
}

/// More frames than places are offered ahead: more are listed while they come.
#[test]
fn a_long_run_is_extended() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, slice } = ends(&wire, Mode::Generic);
    let (at, of) = (near.pages().1, (1, 2));
    let all = frames(Some(3), (0, 180 * slice), at, slice / 4);
    assert!(all.len() > 2 * AHEAD);
    near.aim(of, all.iter().copied());
    for (number, frame) in all.iter().enumerate() {
        if near.cut().unwrap().register().is_low() {
            near.extend(all[number..].iter().copied());
        }
        assert!(near.cut().unwrap().register().awaits(of, frame), "{frame:?}");
        let datagram = body(of, Kind::Data, 3, frame.offset, frame.bytes, frame.offset);
        assert!(far.send(&to_near, &[IoSlice::new(&datagram)], 4000).unwrap());
        let begun = clock::now();
        let landed = loop {
            if let Some(landed) = near.landed(false) {
                break landed;
            }
            assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "{frame:?}");
        };
        assert_eq!((landed.at, landed.bytes), (frame.at, frame.bytes as usize));
    }
    assert!(near.cut().unwrap().register().is_through(of));
}

/// While the endpoint sleeps, what is not awaited goes to its socket; before and after, to the slots. More than there
/// are slots for goes to the socket too, and nothing is lost.
#[test]
fn a_sleeper_is_woken_by_its_socket() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let socket = wire.near(|| UdpSocket::bind(NEAR_END).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut send = |text: &[u8]| assert!(far.send(&to_near, &[IoSlice::new(text)], 2000).unwrap());
    let take = |near: &mut XdpRing| {
        let begun = clock::now();
        loop {
            if let Some((_, body)) = near.aside() {
                let body = body.to_vec();
                near.done_aside(true);
                return body;
            }
            assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "nothing in the slots");
        }
    };
    let mut room = [0; 2000];
    for _ in 0..3 {
        send(b"awake");
        assert_eq!(take(&mut near), b"awake");
        assert!(near.doze());
        send(b"asleep");
        assert_eq!(socket.recv(&mut room).unwrap(), 6);
        assert_eq!(&room[..6], b"asleep");
        near.wake();
    }
    send(b"something");
    let begun = clock::now();
    while near.doze() {
        near.wake();
        assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "what has come keeps nobody awake");
    }
    near.wake();
    assert_eq!(take(&mut near), b"something");
    // As many more as the socket has room for.
    for number in 0..1100_u32 {
        send(&number.to_le_bytes());
    }
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let slots = std::iter::from_fn(|| {
        let body = near.aside()?.1.to_vec();
        near.done_aside(true);
        Some(body)
    });
    let mut all: Vec<Vec<u8>> = slots.collect();
    assert!(all.len() > 900, "{}", all.len());
    while let Ok(bytes) = socket.recv(&mut room) {
        all.push(room[..bytes].to_vec());
    }
    assert!(all.iter().map(|body| u32::from_le_bytes(body[..].try_into().unwrap())).eq(0..1100));
}
