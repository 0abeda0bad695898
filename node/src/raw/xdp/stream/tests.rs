//! Pages across a veth pair, with strays, loss, other orders, and another sender in between.

use std::net::UdpSocket;
use std::time::{Duration, Instant as Clock};

use cutthrough_engine::time::Instant;

use super::super::XdpRing;
use super::*;
use crate::raw::{Hop, Ring};
use crate::sys::xdp::wire::{FAR, FAR_MAC, NEAR, NEAR_MAC, PORT, Wire};

const PATIENCE: Duration = Duration::from_secs(10);
const NEAR_END: SocketAddrV4 = SocketAddrV4::new(NEAR, PORT);
const FAR_END: SocketAddrV4 = SocketAddrV4::new(FAR, PORT);

fn key(number: u32) -> Key {
    Key { tag: 3, generation: 0xfeed_f00d, message: number / 2, first: number % 2 * 8192 }
}

fn content(key: Key, page: u32) -> Vec<u8> {
    let seed = key.message.wrapping_mul(131).wrapping_add(key.first);
    (0..page).map(|at| (at.wrapping_mul(at >> 2).wrapping_add(seed).wrapping_mul(7) >> 3).to_le_bytes()[0]).collect()
}

/// A stream at the near end, a kernel socket beside it, and whoever sends from the far end.
struct Setting {
    placement: Placement,
    stream: Stream,
    beside: UdpSocket,
    sender: XdpRing,
    hop: Hop,
    complete: Vec<Complete>,
}

impl Setting {
    fn new(wire: &Wire, mode: Mode, placement: Placement) -> Self {
        let (stream, beside) = wire.near(|| {
            let interface = Interface::named("near").unwrap();
            let stream = Stream::open(&interface, NEAR_END, (0, mode), placement).unwrap();
            (stream, UdpSocket::bind(NEAR_END).unwrap())
        });
        beside.set_nonblocking(true).unwrap();
        let (sender, index) = wire.far(|| {
            let interface = Interface::named("far").unwrap();
            (XdpRing::open(&interface, FAR_END, 0, None, 0).unwrap(), interface.index)
        });
        let hop = Hop::new((FAR_END, FAR_MAC), (NEAR_END, NEAR_MAC), index, Instant::default());
        Self { placement, stream, beside, sender, hop, complete: Vec::new() }
    }

    /// Fragments of a page in the order of their arrival: offset and bytes.
    fn fragments(&self) -> Vec<(u32, u32)> {
        let Placement { page, slice, cut, .. } = self.placement;
        let mut all: Vec<_> = (0..page).step_by(slice as usize).map(|at| (at, slice.min(page - at))).collect();
        if !cut {
            all.reverse();
        }
        all
    }

    fn send(&mut self, key: Key, (offset, bytes): (u32, u32)) {
        let header = Header {
            kind: Kind::Data,
            body: u16::try_from(bytes).unwrap(),
            tag: key.tag,
            generation: key.generation,
            awaited: 0,
            number: 1,
            below: 0,
            held: 0,
            waits: false,
            calls: 0,
            asks: 0,
            bits: 0,
            words: [key.message, key.first + offset],
        };
        let payload = content(key, self.placement.page);
        let payload = &payload[offset as usize..][..bytes as usize];
        let header = header.to_bytes();
        let parts = [std::io::IoSlice::new(&header), std::io::IoSlice::new(payload)];
        assert!(self.sender.send(&self.hop, &parts, 64 + bytes as usize).unwrap());
    }

    /// Waits until the stream has seen as many frames, and the socket as many datagrams. What was stray in the stream.
    fn settle(&mut self, taken: u32, passed: usize) -> usize {
        let begun = Clock::now();
        let (mut datagrams, mut strays) = (0, 0);
        while self.stream.pages.seen < taken || datagrams < passed {
            let complete = &mut self.complete;
            self.stream
                .receive(&mut |arrived| match arrived {
                    Arrived::Page(page) => complete.push(page),
                    Arrived::Stray(..) => strays += 1,
                })
                .unwrap();
            while self.beside.recv(&mut [0; 10_000]).is_ok() {
                datagrams += 1;
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {taken} and {datagrams} of {passed}", self.stream.pages.seen);
        }
        strays
    }

    /// Compares and gives back what is complete. How many copies that took.
    fn check(&mut self) -> u32 {
        let mut copies = 0;
        for page in std::mem::take(&mut self.complete) {
            assert!(self.stream.page(page.at) == content(page.key, self.placement.page), "{page:?}");
            copies += page.copies;
            self.stream.release(page);
        }
        copies
    }
}

fn placement(page: u32, slice: u32, cut: bool) -> Placement {
    Placement { page, slice, cut, strict: true, window: 4 }
}

#[test]
fn every_page_lands_where_it_belongs_in_both_orders_modes_and_mtus() {
    for (mtu, page, slice, cut) in [
        (1500, 4096, 1408, false),
        (1500, 4096, 1408, true),
        (1500, 8192, 1408, false),
        (1500, 8192, 1408, true),
        (9000, 8192, 8192, true),
        (9000, 4096, 2048, false),
    ] {
        for mode in [Mode::Generic, Mode::Native] {
            let Some(wire) = Wire::make(mtu) else { return };
            let mut setting = Setting::new(&wire, mode, placement(page, slice, cut));
            let fragments = setting.fragments();
            let mut sent = 0;
            for number in 0..100 {
                let window = [key(4 * number), key(4 * number + 1), key(4 * number + 2), key(4 * number + 3)];
                for key in window {
                    assert!(setting.stream.expect(key).unwrap(), "{number}");
                }
                for (key, fragment) in window.iter().flat_map(|key| fragments.iter().map(move |one| (*key, *one))) {
                    setting.send(key, fragment);
                    sent += 1;
                }
                assert_eq!(setting.settle(sent, 0), 0);
                assert_eq!(setting.complete.len(), 4);
                assert_eq!(setting.check(), 0, "{mode:?} {page} {slice} {cut}");
            }
            assert_eq!((setting.stream.counts().misses, setting.stream.dropped()), (0, 0));
        }
    }
}

/// What is not announced goes to the kernel's socket and disturbs nothing; a page that was given up leaves places that
/// cost the next page some copies, and no more.
#[test]
fn strays_loss_and_other_orders_never_break_a_page() {
    for cut in [true, false] {
        let Some(wire) = Wire::make(1500) else { return };
        let mut setting = Setting::new(&wire, Mode::Generic, placement(8192, 1408, cut));
        let fragments = setting.fragments();
        // Duplicates, another tag, a fragment too early, and plain datagrams, between the right ones.
        assert!(setting.stream.expect(key(0)).unwrap());
        let mut passed = 0;
        for (number, fragment) in fragments.iter().enumerate() {
            let stranger = Key { tag: 4, ..key(0) };
            setting.send(stranger, *fragment);
            setting.send(key(1), *fragment);
            setting.send(key(0), *fragment);
            setting.send(key(0), *fragment);
            passed += 3;
            if let Some(early) = fragments.get(number + 2) {
                setting.send(key(0), *early);
                passed += 1;
            }
            setting.sender.send(&setting.hop, &[std::io::IoSlice::new(&[10; 700])], 700).unwrap();
            passed += 1;
        }
        assert_eq!(setting.settle(6, passed), 0);
        assert_eq!((setting.complete.len(), setting.check()), (1, 0));

        // The second fragment is lost: the rest passes to the socket, until the page is given up.
        assert!(setting.stream.expect(key(2)).unwrap());
        for (number, fragment) in fragments.iter().enumerate() {
            if number != 1 {
                setting.send(key(2), *fragment);
            }
        }
        setting.settle(7, 4);
        assert!(setting.complete.is_empty());
        assert!(setting.stream.expect(key(3)).unwrap());
        setting.stream.give_up(key(2));
        // Five places are left over. The next page had places of its own already, which come after them.
        for fragment in &fragments {
            setting.send(key(3), *fragment);
        }
        setting.settle(13, 0);
        let first = setting.complete.len();
        assert_eq!((first, setting.check()), (1, 6), "cut {cut}");
        for number in 4..20 {
            assert!(setting.stream.expect(key(number)).unwrap());
            for fragment in &fragments {
                setting.send(key(number), *fragment);
            }
            setting.settle(13 + 6 * (number - 3), 0);
            // Five of its places are left over in turn; they go to the page that follows, and then the shift has ended.
            assert_eq!(setting.check(), if number == 4 { 5 } else { 0 }, "page {number}, cut {cut}");
        }
    }
}

/// A page that was given up while the one before it is awaited, and was expected and given up again, is not taken.
#[test]
fn a_page_is_given_up_as_often_as_it_is_expected() {
    let Some(wire) = Wire::make(1500) else { return };
    let mut setting = Setting::new(&wire, Mode::Generic, placement(8192, 1408, true));
    assert!(setting.stream.expect(key(0)).unwrap());
    for _ in 0..2 {
        assert!(setting.stream.expect(key(1)).unwrap());
        setting.stream.give_up(key(1));
    }
    let fragments = setting.fragments();
    for fragment in &fragments {
        setting.send(key(0), *fragment);
    }
    setting.settle(6, 0);
    for fragment in &fragments {
        setting.send(key(1), *fragment);
    }
    assert_eq!(setting.settle(6, 6), 0);
    assert_eq!((setting.complete.len(), setting.stream.taken()), (1, 6));
}

/// The adapter of the paper: no register, so that strangers take places. Every page that is complete is right.
#[test]
fn without_the_register_strangers_cost_copies_and_break_nothing() {
    for cut in [true, false] {
        let Some(wire) = Wire::make(1500) else { return };
        let mut setting = Setting::new(&wire, Mode::Generic, Placement { strict: false, ..placement(8192, 1408, cut) });
        let fragments = setting.fragments();
        let (mut pages, mut copies, mut sent) = (0, 0, 0);
        for number in 0..200 {
            assert!(setting.stream.expect(key(number)).unwrap(), "page {number}");
            for (turn, fragment) in fragments.iter().enumerate() {
                if number % 4 == 1 && turn == 2 {
                    // A whole fragment of somebody else's, longer than the last one of a page.
                    setting.send(Key { tag: 4, ..key(number) }, (0, 1408));
                    sent += 1;
                }
                setting.send(key(number), *fragment);
                sent += 1;
                setting.settle(sent, 0);
            }
            pages += setting.complete.len();
            copies += setting.check();
            setting.stream.give_up(key(number));
        }
        assert_eq!(pages, 200, "cut {cut}");
        let counts = *setting.stream.counts();
        assert!(copies > 0 && u64::from(copies) == counts.copies && counts.strays == 50, "{counts:?}");
        assert!(counts.hits > 900, "{counts:?}");
    }
}

#[test]
fn pages_that_cannot_be_placed_are_refused() {
    let interface = Interface::made_up();
    for wrong in [
        placement(0, 1408, true),
        placement(4096, 0, true),
        // A last fragment of 10 bytes; frames of several pieces with headers; more fragments than are counted.
        placement(2 * 1408 + 10, 1408, true),
        placement(8192, 8192, false),
        placement(8192, 100, false),
        Placement { window: 64, ..placement(4096, 1408, true) },
    ] {
        let refused = Stream::open(&interface, NEAR_END, (0, Mode::Generic), wrong).map(drop);
        assert!(matches!(refused, Err(XdpError::Refused { .. })), "{wrong:?}");
    }
}
