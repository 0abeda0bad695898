//! Rings across a veth pair; and what no kernel would write into them.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant as Clock};

use cutthrough_engine::time::Instant;

use super::*;
use crate::sys::xdp::wire::{FAR, FAR_MAC, NEAR, NEAR_MAC, PORT, Wire};

mod several;

const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const NEAR_END: SocketAddrV4 = SocketAddrV4::new(NEAR, PORT);
pub(super) const FAR_END: SocketAddrV4 = SocketAddrV4::new(FAR, PORT);
const PAGES: u64 = 64 << 10;

/// Rings at both ends of a wire, and the ways between them.
pub(super) struct Ends {
    pub(super) near: XdpRing,
    pub(super) far: XdpRing,
    pub(super) to_near: Hop,
    pub(super) to_far: Hop,
}

pub(super) fn ends(wire: &Wire, mode: Mode) -> Ends {
    let open = |name: &str, local| {
        let interface = Interface::named(name).unwrap();
        let ring = XdpRing::open(&interface, local, 0, Some(mode), PAGES).unwrap();
        (ring, interface.index)
    };
    let (near, near_index) = wire.near(|| open("near", NEAR_END));
    let (far, far_index) = wire.far(|| open("far", FAR_END));
    let (here, there) = ((NEAR_END, NEAR_MAC), (FAR_END, FAR_MAC));
    let now = Instant::default();
    let to_near = Hop::new(there, here, far_index, now);
    Ends { near, far, to_near, to_far: Hop::new(here, there, near_index, now) }
}

fn body(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at + seed) * 7 / 8).to_le_bytes()[0]).collect()
}

/// Takes `count` frames in.
fn take(ring: &mut XdpRing, count: usize, from: SocketAddrV4) -> Vec<Vec<u8>> {
    let begun = Clock::now();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while frames.len() < count {
        ring.receive(count - frames.len(), &mut |who, body| {
            assert_eq!(who, from.into());
            frames.push(body.to_vec());
        });
        assert!(begun.elapsed() < PATIENCE, "{} of {count} frames came", frames.len());
    }
    frames
}

/// Trains of all lengths, several thousand frames, so that both strips are gone through more than once, and frames of
/// several parts lie across their ends.
#[test]
fn trains_come_whole_in_order_and_once() {
    for (mtu, mode) in [(1500, Mode::Generic), (9000, Mode::Generic), (1500, Mode::Native), (9000, Mode::Native)] {
        let Some(wire) = Wire::make(mtu) else { return };
        let Ends { mut near, mut far, to_near, to_far } = ends(&wire, mode);
        assert_eq!(near.body_max(), mtu as usize - 28);
        assert!(!near.has_frames());
        let mut seed = 0;
        for round in 0..150 {
            let segment = [near.body_max(), 64, 1, 1000, near.body_max() - 1][round % 5];
            let bytes = segment * (1 + round % 20) - round % segment.min(7);
            seed += 1;
            let train = body(bytes, seed);
            let (one, two) = train.split_at(bytes / 3);
            let parts = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(two)];
            assert!(far.send(&to_near, &parts, segment).unwrap());
            let frames = take(&mut near, bytes.div_ceil(segment), FAR_END);
            assert!(frames.iter().all(|frame| frame.len() <= segment) && frames.concat() == train, "{mode:?} {mtu}");
            // And back.
            assert!(near.send(&to_far, &[IoSlice::new(&train[..segment.min(bytes)])], segment).unwrap());
            assert!(take(&mut far, 1, NEAR_END)[0] == train[..segment.min(bytes)]);
        }
        assert_eq!(near.counts(), RingCounts::default());
        assert_eq!(far.counts(), RingCounts::default());
    }
}

/// What makes the frames of a train as long as each other is not sent; of the last one everything is, as of a frame
/// alone, and of what is no frame.
#[test]
fn what_fills_frames_up_is_left_out() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let frame = |bytes: u8| [vec![1, 10, bytes, 0], body(196, bytes.into())].concat();
    let train = [frame(50), frame(136), vec![7; 200], frame(9), frame(20)[..150].to_vec()].concat();
    let part = |at: usize, bytes: usize| train[at * 200..at * 200 + bytes].to_vec();
    for (left_out, lengths) in [(false, [200, 200, 200, 200, 150]), (true, [114, 200, 200, 73, 150])] {
        let expected: Vec<_> = lengths.into_iter().enumerate().map(|(at, bytes)| part(at, bytes)).collect();
        for split in [1, 100, 660] {
            let (one, two) = train.split_at(split);
            let parts = [IoSlice::new(one), IoSlice::new(two)];
            // A header that lies in two parts is not looked at.
            let whole = |frames: Vec<Vec<u8>>| frames == expected || split == 1 && frames[1..] == expected[1..];
            assert!(far.send(&to_near, &parts, 200).unwrap());
            assert!(whole(take(&mut near, 5, FAR_END)), "{left_out} {split}");
            assert!(far.send_pages(&to_near, &parts, 200, &[]).unwrap());
            assert!(whole(take(&mut near, 5, FAR_END)), "{left_out} {split} in place");
        }
        far.leave_padding();
    }
}

#[test]
fn header_and_payload_go_from_where_they_lie() {
    for mtu in [1500, 9000] {
        let Some(wire) = Wire::make(mtu) else { return };
        let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
        let bytes = mtu as usize - 28 - 64;
        let pages = far.pages().1;
        // Anywhere in the pages: at the beginning of a buffer, not aligned, and across the end of a buffer, where the
        // kernel drops a part that is not cut there.
        for begin in [0, 100, 1408, 2047, 4095, 5000] {
            let payload = body(bytes, begin);
            let at = pages + begin as u64;
            far.pages().0.frame(at, bytes).copy_from_slice(&payload);
            assert!(far.send_in_place(&to_near, &[0xaa; 64], at, bytes).unwrap());
            let frame = take(&mut near, 1, FAR_END).remove(0);
            assert!(frame[..64] == [0xaa; 64] && frame[64..] == payload[..], "MTU {mtu}, at {begin}");
            let begun = Clock::now();
            while far.in_place().unwrap() > 0 {
                assert!(begun.elapsed() < PATIENCE);
            }
        }
        assert_eq!(far.counts(), RingCounts::default());
        // Memory that is the ring's own, or nobody's, is not sent.
        for (at, bytes) in [(0, 100), (pages + PAGES - 10, 11), (u64::MAX - 3, 4), (pages, 0), (pages, bytes + 1)] {
            let refused = far.send_in_place(&to_near, &[0; 64], at, bytes).expect_err("no pages there");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }
}

/// More than the ring holds: `send` says when there is no room, and what it has taken arrives.
#[test]
fn a_full_ring_says_so_and_loses_nothing_that_it_took() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let room = far.room();
    assert_eq!(room, ENTRIES as usize);
    let frame = [7; 64];
    let many = vec![IoSlice::new(&frame); room + 1];
    // So many never have room.
    assert_eq!(far.send(&to_near, &many, 64).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    far.free.truncate(room / 2);
    assert!(!far.send(&to_near, &many[..room / 2 + 1], 64).unwrap());
    assert!(far.send(&to_near, &many[..room / 2], 64).unwrap());
    assert_eq!(take(&mut near, room / 2, FAR_END).len(), room / 2);
    let other = Hop::new((FAR_END, FAR_MAC), (NEAR_END, NEAR_MAC), 77, Instant::default());
    assert_eq!(far.send(&other, &many[..1], 64).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let long = vec![0; far.body_max() + 1];
    assert_eq!(far.send(&to_near, &[IoSlice::new(&long)], 9000).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// Where the driver has programs run at other interfaces, the ring is in generic mode, and says why; who asks for
/// another mode is refused.
#[test]
fn where_programs_run_at_other_interfaces_the_mode_is_generic() {
    let Some(wire) = Wire::make(1500) else { return };
    wire.near(|| {
        let interface = Interface { is_virtual: false, passes_down: true, ..Interface::named("near").unwrap() };
        for mode in [Mode::ZeroCopy, Mode::Native] {
            let refused = XdpRing::open(&interface, NEAR_END, 0, Some(mode), 0).expect_err("nothing would come");
            assert!(refused.to_string().contains("generic mode"), "{refused}");
        }
        for placing in [false, true] {
            let open = if placing { XdpRing::open_placing } else { XdpRing::open };
            let ring = open(&interface, NEAR_END, 0, None, PAGES).unwrap();
            assert_eq!(ring.mode(), Mode::Generic);
            let below = |(_, why): &(Mode, XdpError)| matches!(why, XdpError::Below { .. });
            assert!(!ring.declined().is_empty() && ring.declined().iter().all(below), "{:?}", ring.declined());
        }
    });
}

/// What comes to the adapters that a bond is made of comes to a ring at the bond.
#[test]
fn a_ring_at_a_bond_gets_its_frames() {
    let Some(wire) = Wire::make(1500) else { return };
    let made = wire.near(|| {
        let address = format!("addr add {NEAR}/30 dev bond0");
        let words = [
            "link set near down",
            "addr flush dev near",
            "link add bond0 type bond mode active-backup miimon 10",
            "link set bond0 addrgenmode none",
            "link set near master bond0",
            "link set bond0 up",
            &address,
        ];
        let run = |words: &&str| Command::new("ip").args(words.split(' ')).status().is_ok_and(|ran| ran.success());
        words.iter().all(run)
    });
    if !made {
        return crate::skipped("no bond can be made: the kernel has none (CONFIG_BONDING)");
    }
    let mut near = wire.near(|| XdpRing::open(&Interface::named("bond0").unwrap(), NEAR_END, 0, None, PAGES).unwrap());
    let far_interface = wire.far(|| Interface::named("far").unwrap());
    let mut far = wire.far(|| XdpRing::open(&far_interface, FAR_END, 0, None, PAGES).unwrap());
    let to_near = Hop::new((FAR_END, FAR_MAC), (NEAR_END, NEAR_MAC), far_interface.index, Instant::default());
    let (begun, mut came) = (Clock::now(), 0);
    // A bond has its adapters when it has seen that they are up.
    while came == 0 {
        assert!(far.send(&to_near, &[IoSlice::new(b"to the bond")], 64).unwrap());
        std::thread::sleep(Duration::from_millis(10));
        came += near.receive(1, &mut |_, body| assert_eq!(body, b"to the bond"));
        assert!(begun.elapsed() < PATIENCE, "nothing has come, in {:?} mode", near.mode());
    }
}

/// The kernel says late that it has taken a place: there is no room then for one that is given back, and it is offered
/// again when there is.
#[test]
fn a_place_for_which_there_is_no_room_is_offered_later() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    for round in 0..2 {
        assert!(far.send(&to_near, &[IoSlice::new(&[7; 64])], 64).unwrap());
        let begun = Clock::now();
        while !near.has_frames() {
            assert!(begun.elapsed() < PATIENCE);
        }
        if round == 0 {
            // As if it had not said so yet.
            while !near.xsk.offer(near.plan.place_of(ENTRIES - 1)).unwrap() {
                assert!(begun.elapsed() < PATIENCE);
            }
        }
        assert_eq!(take(&mut near, 1, FAR_END).len(), 1);
    }
    assert_eq!(near.offered.iter().position(|offered| !offered), Some(1), "the first place is lost");
}

/// What comes while nobody looks, more than there are buffers for, is lost and counted; the ring goes on.
#[test]
fn an_overflow_is_counted_and_over_with() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let frame = [7; 64];
    let mut sent = 0;
    while sent < 3 * ENTRIES as usize {
        if far.send(&to_near, &[IoSlice::new(&frame); 16], 64).unwrap() {
            sent += 16;
        }
    }
    assert_eq!(take(&mut near, ENTRIES as usize, FAR_END).len(), ENTRIES as usize);
    assert_eq!(near.counts().overflows, 2 * u64::from(ENTRIES));
    assert!(far.send(&to_near, &[IoSlice::new(b"again")], 64).unwrap());
    assert_eq!(take(&mut near, 1, FAR_END), [b"again"]);
}

/// A peer without rings: its kernel takes what the ring sends, and what its kernel sends comes by the socket.
#[test]
fn a_kernel_socket_is_as_good_a_peer() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, far, to_far, .. } = ends(&wire, Mode::Generic);
    drop(far);
    let peer = wire.far(|| UdpSocket::bind(FAR_END).unwrap());
    peer.set_read_timeout(Some(PATIENCE / 100)).unwrap();

    // Another test's child has all descriptors for a moment, and as long the far ring has its program.
    let (mut room, begun, word) = ([0; 2000], Clock::now(), &b"still?"[..]);
    loop {
        assert!(near.send(&to_far, &[IoSlice::new(word)], word.len()).unwrap());
        if peer.recv(&mut room).is_ok() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing came");
    }
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(near.send(&to_far, &[IoSlice::new(&body(2000, 0))], 1000).unwrap());
    for half in body(2000, 0).chunks(1000) {
        let mut len = word.len();
        while len == word.len() {
            len = peer.recv(&mut room).unwrap();
        }
        assert!(room[..len] == *half);
    }
    let beside = wire.near(|| UdpSocket::bind(NEAR_END).unwrap());
    beside.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.send_to(b"hello", NEAR_END).unwrap();
    assert_eq!(beside.recv(&mut room).unwrap(), 5);
    assert_eq!(&room[..5], b"hello");
    near.receive(10, &mut |_, body| panic!("{body:?} by the ring"));
}

/// Somebody else who holds the socket writes what it likes into the receive ring: places outside of the memory, places
/// that the kernel does not have, frames without an end. Nothing panics, nothing is handed up, and the ring goes on.
#[test]
fn a_liar_in_the_receive_ring_is_not_believed() {
    use crate::sys::xdp::ring::Producer;
    let Some(wire) = Wire::make(9000) else { return };
    let Ends { mut near, .. } = ends(&wire, Mode::Generic);
    let at = rustix::net::sockopt::xdp_mmap_offsets(near.watched()).unwrap();
    let mut liar = Producer::<2>::map("receive", near.watched(), 0, at.rx, ENTRIES).unwrap();
    let words = [0, 1, 256, 3840, 4096, near.plan.send_base, near.plan.end, u64::MAX, 1 << 48, 1 << 63, 0xdead_beef];
    let mut seed = 7_u64;
    for round in 0..2000 {
        for _ in 0..round % 40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = |shift: u32| words[usize::try_from(seed >> shift).unwrap() % words.len()];
            let place = if seed >> 60 & 1 == 0 { pick(20).wrapping_add(pick(30)) } else { seed >> 40 };
            // The upper half are the options, of which the lowest bit says that more parts follow.
            let rest = pick(40) & 0xffff | (seed >> 50 & 1) << 32;
            if !liar.put([place, rest]).unwrap() {
                break;
            }
        }
        liar.publish();
        near.receive(usize::MAX, &mut |from, body| panic!("{} bytes from {from}", body.len()));
    }
    assert!(near.broken.is_none() && near.counts().strays > 0);
    // Full to the brim is still a ring; more than that is tested where the indexes are.
    while liar.put([0, 0]).unwrap() {}
    liar.publish();
    near.receive(usize::MAX, &mut |_, _| panic!("a frame"));
    assert!(near.broken.is_none() && !near.has_frames());
}
