//! The register across a veth pair, with all that may come instead of what it awaits, against a model in plain words.

use std::io::IoSlice;
use std::net::UdpSocket;
use std::time::Duration;

use cutthrough_engine::register::{AHEAD, LEAST};
use cutthrough_wire::frame::{Header, Kind};

use super::super::tests::{FAR_END, NEAR_END};
use super::*;
use crate::clock;
use crate::raw::{Hop, Ring};
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
fn body(target: &Target, kind: Kind, message: u32, offset: u32, bytes: u32, seed: u32) -> Vec<u8> {
    let opening = if kind == Kind::Open { OPENING_BYTES } else { 0 };
    let header = Header {
        kind,
        body: u16::try_from(opening + bytes as usize).unwrap(),
        tag: target.tag,
        generation: target.generation,
        awaited: 1,
        number: u64::from(seed),
        below: 2,
        held: 3,
        waits: false,
        bits: 4,
        words: [message, offset],
    };
    let noise = (0..opening + bytes as usize).map(|at| ((at * 7 + seed as usize * 31) / 3).to_le_bytes()[0]);
    header.to_bytes().into_iter().chain(noise).collect()
}

/// What the register takes, in plain words: how far it has come.
struct Model {
    target: Target,
    message: Option<u32>,
    next: u32,
    over: bool,
}

impl Model {
    fn takes(&mut self, kind: Kind, message: u32, offset: u32, bytes: u32) -> bool {
        let Target { slice, end, awaited, .. } = self.target;
        let full = if kind == Kind::Open { slice - 144 } else { slice };
        let next = match self.message {
            None => kind == Kind::Open && offset == 0 && message.wrapping_sub(awaited) < 1 << 31,
            Some(known) => kind == Kind::Data && message == known && offset == self.next,
        };
        let fits = (LEAST..=full).contains(&bytes) && offset.checked_add(bytes).is_some_and(|stop| stop <= end);
        if self.over || !next || !fits {
            return false;
        }
        (self.message, self.next, self.over) = (Some(message), offset + bytes, bytes < full);
        true
    }
}

fn settle(ring: &mut XdpRing, landed: &mut Vec<Landed>) {
    let begun = clock::now();
    while !ring.is_quiet(clock::now()) {
        landed.extend(ring.landed());
        assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "not quiet");
    }
}

/// Many targets, one after the other: of whichever message comes next and of one that has begun, in the middle of a
/// page and across pages; and frames of all kinds, some of them expected. What is expected lies where it belongs, what
/// is not is whole in the slots, in order, and not one byte besides has changed when the register is quiet.
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
        for round in 0..400 {
            let begin = if draw.one_in(2) { 0 } else { draw.below(5000) };
            let at = draw.below(128 << 10);
            let target = Target {
                tag: draw.below(3),
                generation: 7 + draw.below(2),
                message: (begin > 0).then(|| draw.below(4)),
                awaited: u32::MAX.wrapping_add(draw.below(3)),
                begin,
                end: begin + 1 + draw.below(100_000),
                at: base + u64::from(at),
                slice,
            };
            near.aim(target);
            let aimed = near.cut().unwrap().is_aimed();
            let reach = near.cut().unwrap().register.reach().unwrap_or(0);
            let mut model =
                Model { target: Target { end: reach, ..target }, message: target.message, next: begin, over: !aimed };
            let (mut expected, mut aside) = (Vec::new(), Vec::new());
            for number in 0..draw.below(40) {
                let seed = round * 64 + number;
                let kind = if model.message.is_none() { Kind::Open } else { Kind::Data };
                let full = if kind == Kind::Open { slice - 144 } else { slice };
                let mut frame = (kind, model.message.unwrap_or(2), model.next, full.min(target.end - model.next));
                let mut of = target;
                match draw.below(20) {
                    0 => frame.3 = draw.below(full + 1),
                    1 => frame.2 = frame.2.wrapping_add(draw.below(3)).wrapping_sub(1),
                    2 => frame.1 = frame.1.wrapping_sub(draw.below(5)),
                    3 => of.tag ^= 1,
                    4 => of.generation ^= 1,
                    5 => frame.0 = if draw.one_in(2) { Kind::Records } else { Kind::Open },
                    _ => {}
                }
                let (kind, message, offset, bytes) = frame;
                let bytes = bytes.min(if kind == Kind::Open { slice - 144 } else { slice });
                let datagram = body(&of, kind, message, offset, bytes, seed);
                let ours = (of.tag, of.generation) == (target.tag, target.generation);
                if ours && model.takes(kind, message, offset, bytes) {
                    expected.push((offset, datagram.clone()));
                } else {
                    aside.push(datagram.clone());
                }
                let begun = clock::now();
                while !far.send(&to_near, &[IoSlice::new(&datagram)], datagram.len()).unwrap() {
                    assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "no room to send");
                }
            }
            let (mut landed, mut came) = (Vec::new(), Vec::new());
            let begun = clock::now();
            while landed.len() < expected.len() || came.len() < aside.len() {
                landed.extend(near.landed());
                if let Some((from, body)) = near.aside() {
                    assert_eq!(from, FAR_END);
                    came.push(body.to_vec());
                    near.done_aside(true);
                }
                let waited = clock::now().saturating_since(begun) < PATIENCE_NS;
                assert!(waited, "{mode:?} {mtu}: {} of {} landed", landed.len(), expected.len());
            }
            settle(&mut near, &mut landed);
            assert!(came == aside && landed.len() == expected.len(), "{mode:?} {mtu} round {round}");
            for (landed, (offset, datagram)) in landed.iter().zip(&expected) {
                let opening = if datagram[1] == Kind::Open as u8 { OPENING_BYTES } else { 0 };
                let (head, rest) = datagram.split_at(HEADER_BYTES);
                assert_eq!((&landed.head[..], landed.from), (head, FAR_END));
                assert_eq!(landed.opening.as_ref().map_or(&[][..], |opening| opening), &rest[..opening]);
                assert_eq!((landed.at, landed.bytes), (target.place(*offset), rest.len() - opening));
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

/// A target of more frames than places are offered ahead: more are offered while it goes on.
#[test]
fn a_long_run_is_extended() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, slice } = ends(&wire, Mode::Generic);
    let at = near.pages().1;
    let end = 180 * slice;
    let mut target =
        Target { tag: 1, generation: 2, message: Some(3), awaited: 0, begin: 0, end, at, slice: slice / 4 };
    near.aim(target);
    let mut offset = 0;
    while offset < end {
        assert!(near.goes_on(&target), "at {offset}");
        let bytes = target.slice.min(end - offset);
        assert!(
            far.send(&to_near, &[IoSlice::new(&body(&target, Kind::Data, 3, offset, bytes, offset))], 4000).unwrap()
        );
        let begun = clock::now();
        let landed = loop {
            if let Some(landed) = near.landed() {
                break landed;
            }
            assert!(clock::now().saturating_since(begun) < PATIENCE_NS, "at {offset}");
        };
        assert_eq!((landed.at, landed.bytes), (at + u64::from(offset), bytes as usize));
        offset += bytes;
        (target.begin, target.at) = (offset, at + u64::from(offset));
    }
    assert!(offset / target.slice > u32::try_from(AHEAD).unwrap());
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
