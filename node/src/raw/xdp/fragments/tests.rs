//! Datagrams in fragments across a veth pair, to and from ordinary sockets, with all that may come in between.

use std::net::UdpSocket;
use std::time::{Duration, Instant as Clock};

use cutthrough_engine::time::Instant;

use super::super::super::Hop;
use super::super::XdpRing;
use super::*;
use crate::sys::xdp::wire::{FAR, FAR_MAC, NEAR, NEAR_MAC, PORT, Wire, stay};

const PATIENCE: Duration = Duration::from_secs(10);
const NEAR_END: SocketAddrV4 = SocketAddrV4::new(NEAR, PORT);
const FAR_END: SocketAddrV4 = SocketAddrV4::new(FAR, PORT);
const CANARY: u8 = 0xa5;

fn content(number: u32, bytes: u32) -> Vec<u8> {
    let word = |at: u32| at.wrapping_mul(at >> 2).wrapping_add(number.wrapping_mul(977)).wrapping_mul(2_654_435_761);
    (0..bytes).map(|at| (word(at) >> 13).to_le_bytes()[0]).collect()
}

fn paging(page: u32, placing: Placing) -> Paging {
    Paging { page, placing, strict: true, window: 4 }
}

/// A socket of the kernel's at this end: a program that another test has begun may have the last one for a moment.
fn bound(end: SocketAddrV4) -> UdpSocket {
    let begun = Clock::now();
    loop {
        match UdpSocket::bind(end) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            bound => return bound.unwrap(),
        }
    }
}

/// Pages at the near end with a kernel's socket beside them; a kernel's socket and a ring at the far end.
struct Setting {
    paging: Paging,
    near: Fragments,
    beside: UdpSocket,
    far: UdpSocket,
    ring: XdpRing,
    hop: Hop,
    whole: Vec<Whole>,
}

impl Setting {
    fn new(wire: &Wire, mode: Mode, paging: Paging) -> Self {
        stay();
        let (mut near, beside) = wire.near(|| {
            let interface = Interface::named("near").unwrap();
            let near = Fragments::open(&interface, NEAR_END, (0, mode), paging).unwrap();
            (near, bound(NEAR_END))
        });
        beside.set_nonblocking(true).unwrap();
        let bytes = usize::try_from(near.pages.memory.bytes()).unwrap();
        near.pages.memory.frame(0, bytes).fill(CANARY);
        let (ring, far, index) = wire.far(|| {
            let interface = Interface::named("far").unwrap();
            let ring = XdpRing::open(&interface, FAR_END, 0, None, 1 << 16).unwrap();
            (ring, bound(FAR_END), interface.index)
        });
        let hop = Hop::new((FAR_END, FAR_MAC), (NEAR_END, NEAR_MAC), index, Instant::default());
        Self { paging, near, beside, far, ring, hop, whole: Vec::new() }
    }

    /// A datagram of the ring's, not sent yet.
    fn made(&mut self, number: u32, vouched: bool) -> Outgoing {
        let (memory, base) = self.ring.pages();
        let at = base + u64::from(number % 4) * 16384;
        let bytes = self.paging.page as usize;
        memory.frame(at, bytes).copy_from_slice(&content(number, self.paging.page));
        self.ring.datagram(&self.hop, at, bytes, vouched).unwrap()
    }

    fn send(&mut self, of: &Outgoing, part: usize) {
        assert!(self.ring.send_fragment(&self.hop, of, part).unwrap());
    }

    fn send_whole(&mut self, number: u32, vouched: bool) {
        let of = self.made(number, vouched);
        let backwards = self.paging.placing == Placing::Reverse;
        assert!(self.ring.send_fragments(&self.hop, &of, backwards).unwrap());
        let begun = Clock::now();
        while self.ring.in_place().unwrap() > 0 {
            assert!(begun.elapsed() < PATIENCE);
        }
    }

    /// Waits until the program has taken so many fragments, and they have been seen.
    fn settle(&mut self, taken: u32) {
        let begun = Clock::now();
        while self.near.pages.seen < taken {
            self.take();
            assert!(begun.elapsed() < PATIENCE, "{taken} fragments: {}", self.state());
        }
        assert_eq!((self.near.pages.seen, self.near.taken()), (taken, taken));
    }

    /// Sends datagrams again that are expected, and of which no fragment has come for long: between the ends of a wire
    /// lies a queue of the machine's, which frames of others may have filled.
    fn send_lost(&mut self, numbers: &[u32], parts: u32) {
        let (begun, whole) = (Clock::now(), |numbers: &[u32]| parts * u32::try_from(numbers.len()).unwrap());
        let before = self.near.pages.seen;
        while self.near.taken() - before < whole(numbers) && begun.elapsed() < PATIENCE / 2 {
            self.take();
        }
        let come = self.near.taken() - before;
        if come < whole(numbers) && come.is_multiple_of(parts) && self.near.left() == 0 {
            eprintln!("{come} of {} fragments have come, the rest is sent again: {}", whole(numbers), self.state());
            for number in &numbers[(come / parts) as usize..] {
                self.far.send_to(&content(*number, self.paging.page), NEAR_END).unwrap();
            }
        }
    }

    fn take(&mut self) {
        let whole = &mut self.whole;
        self.near.receive(&mut |page| whole.push(page)).unwrap();
    }

    /// What has become of fragments so far, for those that do not come.
    fn state(&self) -> String {
        let near = &self.near;
        let processor = near.pages.shared.word(shared::PROCESSOR).load(Ordering::Relaxed);
        format!(
            "{} seen, {} taken, {} left to the kernel, {} dropped, {} damaged, {:?}, processor {processor}, {:?}",
            near.pages.seen,
            near.taken(),
            near.left(),
            near.dropped(),
            near.damaged(),
            near.counts(),
            self.paging,
        )
    }

    /// Waits until the program has left so many to the kernel.
    fn leave(&self, left: u32) {
        let begun = Clock::now();
        while self.near.left() < left {
            assert!(begun.elapsed() < PATIENCE, "{} of {left} fragments", self.near.left());
        }
        assert_eq!(self.near.left(), left);
    }

    /// Compares and gives back what is whole, which carries these pages. How many copies that took.
    fn check(&mut self, numbers: &[u32], vouched: bool) -> u32 {
        let mut copies = 0;
        assert_eq!(self.whole.len(), numbers.len());
        for (page, number) in std::mem::take(&mut self.whole).into_iter().zip(numbers) {
            assert!(page.at.is_multiple_of(4096));
            assert!(self.near.page(page.at) == content(*number, self.paging.page), "{page:?}");
            assert_eq!((page.source, page.vouched), (FAR_END, vouched));
            copies += page.copies;
            self.near.release(page);
        }
        copies
    }

    /// What a kernel's socket gets, which is this page.
    fn by_socket(socket: &UdpSocket, page: &[u8]) {
        let begun = Clock::now();
        let mut room = vec![0; 10_000];
        loop {
            if let Ok(bytes) = socket.recv(&mut room) {
                assert!(room[..bytes] == *page);
                return;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }

    fn nothing_by_socket(&self) {
        assert!(self.beside.recv(&mut [0; 10_000]).is_err());
    }

    /// Nothing has been written but pages, and headers before them.
    fn nothing_outside(&mut self) {
        let shape = self.near.shape;
        let (stride, first) = (shape.stride(false), u64::from(2 * BUFFER - UDP));
        let pages = u64::from(self.paging.window) * 2 + 1;
        for page in 0..pages {
            let end = first + page * stride + u64::from(shape.page);
            let next = first + (page + 1) * stride - u64::from(shape.before);
            let between = self.near.pages.memory.frame(end, usize::try_from(next - end).unwrap());
            assert!(between.iter().all(|byte| *byte == CANARY), "after page {page}");
        }
        let before = usize::try_from(first).unwrap() - shape.before as usize;
        assert!(self.near.pages.memory.frame(0, before).iter().all(|byte| *byte == CANARY));
    }
}

/// An ordinary program sends pages with an ordinary socket; they land whole, and nothing is copied in user space.
#[test]
fn datagrams_of_a_kernel_land_in_pages() {
    for mode in [Mode::Generic, Mode::Native] {
        for (page, parts, placing) in
            [(4096, 3, Placing::Cut), (8192, 6, Placing::Cut), (4096, 3, Placing::Copy), (8192, 6, Placing::Copy)]
        {
            let Some(wire) = Wire::with_queues(1500, 1) else { return };
            let mut setting = Setting::new(&wire, mode, paging(page, placing));
            let mut copies = 0;
            for turn in 0..100 {
                let numbers = [4 * turn, 4 * turn + 1, 4 * turn + 2, 4 * turn + 3];
                for number in numbers {
                    assert_eq!(setting.near.expect(FAR_END).unwrap(), Some(number));
                }
                assert_eq!(setting.near.expect(FAR_END).unwrap(), None);
                for number in numbers {
                    setting.far.send_to(&content(number, page), NEAR_END).unwrap();
                }
                setting.send_lost(&numbers, parts);
                setting.settle(4 * parts * (turn + 1));
                // The kernel has computed all of their checksums, and they are right.
                copies += setting.check(&numbers, true);
            }
            assert_eq!(copies, if placing == Placing::Cut { 0 } else { 400 * parts }, "{mode:?} {page}");
            let counts = *setting.near.counts();
            assert_eq!((counts.strays, counts.lost, counts.lies), (0, 0, 0));
            assert_eq!((setting.near.left(), setting.near.dropped(), setting.near.damaged()), (0, 0, 0));
            setting.nothing_by_socket();
            if placing == Placing::Cut {
                setting.nothing_outside();
            }
        }
    }
}

#[test]
fn datagrams_of_a_ring_land_in_pages_in_both_orders() {
    for mode in [Mode::Generic, Mode::Native] {
        for (page, parts) in [(4096, 3), (8192, 6)] {
            for placing in [Placing::Cut, Placing::Reverse, Placing::Copy] {
                let Some(wire) = Wire::make(1500) else { return };
                let mut setting = Setting::new(&wire, mode, paging(page, placing));
                let mut copies = 0;
                for number in 0..200 {
                    assert_eq!(setting.near.expect(FAR_END).unwrap(), Some(number));
                    setting.send_whole(number, number % 2 == 0);
                    setting.settle(parts * (number + 1));
                    copies += setting.check(&[number], number % 2 == 0);
                }
                assert_eq!(copies, if placing == Placing::Copy { 200 * parts } else { 0 });
                if placing != Placing::Copy {
                    setting.nothing_outside();
                }
            }
        }
    }
}

/// A kernel puts together what a ring has sent, in either order, with and without a checksum.
#[test]
fn a_kernel_takes_the_fragments_of_a_ring() {
    for mtu in [1500, 1400] {
        let Some(wire) = Wire::make(mtu) else { return };
        for (number, page) in [4096, 8192, 4096, 8192, 1473, 2000].into_iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            let mut setting = Setting::new(&wire, Mode::Generic, paging(8192, Placing::Cut));
            for (backwards, vouched) in [(false, false), (false, true), (true, false), (true, true)] {
                setting.paging.page = page;
                let of = setting.made(number, vouched);
                assert!(setting.ring.send_fragments(&setting.hop, &of, backwards).unwrap());
                Setting::by_socket(&setting.beside, &content(number, page));
            }
            // Nothing was announced.
            assert_eq!(setting.near.taken(), 0);
        }
    }
}

/// Duplicates, other ports, other lengths and fragments too early go to the kernel, and the page is not disturbed.
#[test]
fn what_is_not_due_goes_to_the_kernel() {
    let Some(wire) = Wire::make(1500) else { return };
    let mut setting = Setting::new(&wire, Mode::Generic, paging(8192, Placing::Cut));
    let far_port = SocketAddrV4::new(FAR, PORT + 1);
    let stranger = wire.far(|| UdpSocket::bind(far_port).unwrap());
    setting.near.expect(FAR_END).unwrap();
    // A whole datagram of a stranger's before and in between; it arrives by the socket.
    let of = setting.made(0, true);
    let other = setting.made(1, true);
    for part in 0..6 {
        stranger.send_to(&content(9, 8192), NEAR_END).unwrap();
        Setting::by_socket(&setting.beside, &content(9, 8192));
        if part > 0 {
            // Too early, twice, and of another datagram.
            for early in part + 1..6 {
                setting.send(&of, early);
            }
            if part > 1 {
                setting.send(&of, part - 1);
            }
            setting.send(&other, part);
        }
        setting.send(&of, part);
        setting.settle(u32::try_from(part).unwrap() + 1);
    }
    assert_eq!(setting.check(&[0], true), 0);
    // Nothing is expected, then a page; a duplicate of what was complete last is not its beginning. The kernel has had
    // duplicates of all fragments by now.
    setting.nothing_by_socket();
    setting.send(&of, 0);
    Setting::by_socket(&setting.beside, &content(0, 8192));
    setting.near.expect(FAR_END).unwrap();
    setting.send(&of, 0);
    setting.send_whole(2, false);
    setting.settle(12);
    assert_eq!(setting.check(&[2], false), 0);
    assert_eq!((setting.near.counts().misses, setting.near.counts().strays), (0, 0));
    setting.nothing_outside();
}

/// A lost fragment loses its datagram. What follows comes by the kernel's socket until the page is given up, and then
/// to pages again, of which the first ones cost copies.
#[test]
fn a_lost_fragment_shows_no_half_page_and_the_rest_goes_on() {
    for (placing, lost) in
        [(Placing::Cut, 1_usize), (Placing::Cut, 2), (Placing::Cut, 0), (Placing::Reverse, 1), (Placing::Reverse, 0)]
    {
        let Some(wire) = Wire::make(1500) else { return };
        let mut setting = Setting::new(&wire, Mode::Generic, paging(4096, placing));
        let backwards = placing == Placing::Reverse;
        let order: Vec<usize> = if backwards { vec![2, 1, 0] } else { vec![0, 1, 2] };
        assert_eq!(setting.near.expect(FAR_END).unwrap(), Some(0));
        let of = setting.made(0, true);
        for part in order.iter().filter(|part| **part != lost) {
            setting.send(&of, *part);
        }
        let taken = u32::try_from(order.iter().position(|part| *part == lost).unwrap()).unwrap();
        setting.leave(2 - taken);
        setting.settle(taken);
        // Not a fragment of this one is due.
        if taken > 0 {
            setting.send_whole(1, true);
            Setting::by_socket(&setting.beside, &content(1, 4096));
            setting.settle(taken);
        }
        setting.near.give_up(0);
        let mut copies = 0;
        for number in 1..20 {
            assert_eq!(setting.near.expect(FAR_END).unwrap(), Some(number));
            setting.send_whole(number, true);
            setting.settle(taken + 3 * number);
            let more = setting.check(&[number], true);
            assert!(number < 4 || more == 0, "{more} copies for page {number}");
            copies += more;
        }
        assert_eq!(copies > 0, taken > 0, "{placing:?} {lost}");
        setting.nothing_by_socket();
        assert_ne!(setting.near.pages.shared.word(shared::PROCESSOR).load(Ordering::Relaxed), ANY);
    }
}

/// The adapter of the paper: fragments of two datagrams in turn take each other's places. Both pages are right.
#[test]
fn without_the_register_two_datagrams_cost_copies_and_break_nothing() {
    for placing in [Placing::Cut, Placing::Reverse] {
        let Some(wire) = Wire::make(1500) else { return };
        let mut setting = Setting::new(&wire, Mode::Generic, Paging { strict: false, ..paging(8192, placing) });
        let (mut sent, mut copies) = (0, 0);
        for turn in 0..50 {
            setting.near.expect(FAR_END).unwrap();
            setting.near.expect(FAR_END).unwrap();
            let (one, two) = (setting.made(2 * turn, true), setting.made(2 * turn + 1, true));
            for step in 0..6 {
                let part = if placing == Placing::Reverse { 5 - step } else { step };
                setting.send(&one, part);
                setting.send(&two, part);
                sent += 2;
                if step == 2 {
                    // A fragment that comes again is nobody's.
                    setting.send(&two, part);
                    sent += 1;
                }
                setting.settle(sent);
            }
            copies += setting.check(&[2 * turn, 2 * turn + 1], true);
        }
        let counts = *setting.near.counts();
        assert!(copies > 0 && u64::from(copies) == counts.copies, "{counts:?}");
        assert_eq!((counts.strays, counts.lies), (50, 0));
        assert!(counts.hits > 0, "{counts:?}");
    }
}

/// A page whose bytes are not those of its checksum is not handed up.
#[test]
fn damaged_pages_are_dropped_and_counted() {
    let Some(wire) = Wire::make(1500) else { return };
    let mut setting = Setting::new(&wire, Mode::Generic, paging(4096, Placing::Cut));
    for number in 0..20 {
        setting.near.expect(FAR_END).unwrap();
        let of = setting.made(number, true);
        if number % 2 == 0 {
            let (memory, base) = setting.ring.pages();
            memory.frame(base + u64::from(number % 4) * 16384 + u64::from(number) * 200, 1)[0] ^= 1;
        }
        assert!(setting.ring.send_fragments(&setting.hop, &of, false).unwrap());
        setting.settle(3 * (number + 1));
        let right: &[u32] = if number % 2 == 0 { &[] } else { &[number] };
        setting.check(right, true);
    }
    assert_eq!(setting.near.damaged(), 10);
}

#[test]
fn pages_that_cannot_be_placed_are_refused() {
    let interface = Interface::made_up();
    let jumbo = Interface { mtu: 9000, ..interface.clone() };
    for (interface, wrong) in [
        (&interface, paging(0, Placing::Cut)),
        (&interface, paging(u32::MAX, Placing::Cut)),
        // One frame; a last fragment of 25 bytes; one as long as the others; several pieces.
        (&interface, paging(1472, Placing::Cut)),
        (&interface, paging(1472 + 25, Placing::Cut)),
        (&interface, paging(1472 + 1480, Placing::Cut)),
        (&jumbo, paging(16384, Placing::Cut)),
        (&interface, Paging { window: 64, ..paging(4096, Placing::Cut) }),
        (&interface, Paging { window: 0, ..paging(4096, Placing::Cut) }),
    ] {
        let refused = Fragments::open(interface, NEAR_END, (0, Mode::Generic), wrong).map(drop);
        assert!(matches!(refused, Err(XdpError::Refused { .. })), "{wrong:?}");
    }
}
