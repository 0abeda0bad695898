use std::cell::RefCell;
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::route::{RouteError, Routes};
use super::super::veth::{FAR, NEAR, Wire, again, hop, socket, wire};
use super::*;
use crate::sys::datagram::{Datagrams, TRAIN_BYTES};

mod stuck;
mod way;

/// Longest wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// After the last frame nothing more must come; how long that is looked at.
const QUIET: Duration = Duration::from_millis(30);
/// The same between one of many batches and the next: what comes later still is one too many there.
const BETWEEN: Duration = Duration::from_millis(3);

/// An end of the wire: its socket, where that is bound, and its ring.
pub(super) struct End {
    pub(super) socket: Datagrams,
    pub(super) local: SocketAddrV4,
    pub(super) ring: PacketRing,
    pub(super) way: Hop,
}

/// An end for sending to `to`, in the namespace of the calling thread.
fn end(at: Ipv4Addr, to: SocketAddrV4) -> End {
    let (socket, local) = socket(at);
    let (interface, way) = hop(&socket, local, to);
    // What sockets send makes many shapes of frames: it comes to the ring, too.
    let ring = PacketRing::open_for(vec![again(&socket)], local, &interface, false).unwrap();
    End { socket, local, ring, way }
}

pub(super) fn far(wire: &Wire) -> End {
    wire.far.within(|| end(FAR, SocketAddrV4::new(NEAR, 9)))
}

pub(super) fn near(wire: &Wire, to: SocketAddrV4) -> End {
    wire.near.within(|| end(NEAR, to))
}

/// Takes in what the socket has.
pub(super) fn from_socket(socket: &Datagrams, each: &mut dyn FnMut(SocketAddr, &[u8])) -> usize {
    let mut room = vec![0; TRAIN_BYTES];
    let mut count = 0;
    while let Ok(received) = socket.receive(&mut [IoSliceMut::new(&mut room)]) {
        for body in room[..received.bytes].chunks(usize::from(received.segment).max(1)) {
            each(received.from, body);
            count += 1;
        }
    }
    count
}

/// Takes in what comes either way until there are `expected` frames, and a moment longer: by the ring, by the socket.
fn gather(end: &mut End, expected: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    gather_while(end, expected, QUIET, || {})
}

/// As [`gather`], with this moment, while something else is done again and again.
fn gather_while(
    end: &mut End,
    expected: usize,
    moment: Duration,
    mut others: impl FnMut(),
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut ring, mut socket) = (Vec::new(), Vec::new());
    let (begun, mut moved) = (Instant::now(), Instant::now());
    while ring.len() + socket.len() < expected || moved.elapsed() < moment {
        assert!(begun.elapsed() < PATIENCE, "{} and {} of {expected} have come", ring.len(), socket.len());
        others();
        let by_ring = end.ring.receive(7, &mut |_, body| ring.push(body.to_vec()));
        let by_socket = from_socket(&end.socket, &mut |_, body| socket.push(body.to_vec()));
        if by_ring + by_socket > 0 {
            moved = Instant::now();
        } else {
            std::thread::yield_now();
        }
    }
    (ring, socket)
}

/// A body whose bytes tell its number.
fn body(number: usize, bytes: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (0..bytes).map(|at| ((at * 31) ^ number).to_le_bytes()[0]).collect();
    for (target, byte) in body.iter_mut().zip(number.to_le_bytes()) {
        *target = byte;
    }
    body
}

/// How often each is there.
fn counted<'a>(bodies: impl IntoIterator<Item = &'a Vec<u8>>) -> HashMap<&'a [u8], usize> {
    let mut counts = HashMap::new();
    for body in bodies {
        *counts.entry(&body[..]).or_default() += 1;
    }
    counts
}

fn send(socket: &Datagrams, to: SocketAddrV4, bytes: &[u8], segment: Option<usize>) {
    let segment = segment.map(|segment| u16::try_from(segment).unwrap());
    let begun = Instant::now();
    while let Err(error) = socket.send(Some(to.into()), &[IoSlice::new(bytes)], segment) {
        assert!(error == Errno::AGAIN && begun.elapsed() < PATIENCE, "{error}");
    }
}

/// Single datagrams of every length and trains of many shapes, sent by an ordinary socket: each comes exactly once,
/// the short ones by the ring and the long ones by the socket.
fn each_comes_once(mtu: u32, step: usize) {
    let Some(wire) = wire(mtu) else { return };
    let mut receiver = far(&wire);
    let to = receiver.local;
    let (sender, longest) = (wire.near.within(|| socket(NEAR).0), mtu as usize - 28);
    assert_eq!(receiver.ring.body_max(), longest);
    for begin in (1..=longest).step_by(40 * step) {
        let lengths: Vec<usize> = (begin..=longest).step_by(step).take(40).chain([longest]).collect();
        let sent: Vec<Vec<u8>> = lengths.iter().map(|bytes| body(begin + bytes * 7, *bytes)).collect();
        sent.iter().for_each(|body| send(&sender, to, body, None));
        let (ring, socket) = gather_while(&mut receiver, sent.len(), BETWEEN, || {});
        assert_eq!(counted(&ring), counted(&sent));
        assert!(socket.is_empty(), "{} by the socket", socket.len());
    }
    // Pieces and what is left over: around the length that decides, and far from it.
    let piece = [1, 2, 3, 64, 100, longest / 3, longest / 2, longest / 2 + 1, longest - 1, longest];
    for segment in piece {
        for pieces in [1, 2, 3, 7, 40] {
            for rest in [0, 1, segment / 2] {
                let bytes = segment * pieces + rest;
                if bytes > TRAIN_BYTES || rest >= segment {
                    continue;
                }
                let train = body(segment + pieces, bytes);
                send(&sender, to, &train, Some(segment));
                let frames: Vec<Vec<u8>> = train.chunks(segment).map(<[u8]>::to_vec).collect();
                let (ring, socket) = gather_while(&mut receiver, frames.len(), BETWEEN, || {});
                let what = format!("{pieces} of {segment} and {rest}");
                assert_eq!(counted(ring.iter().chain(&socket)), counted(&frames), "{what}");
                assert_eq!(ring.is_empty(), bytes > longest, "{what}");
                assert_eq!(socket.is_empty(), bytes <= longest, "{what}");
            }
        }
    }
    assert_eq!(gather(&mut receiver, 0), (vec![], vec![]));
    assert_eq!(receiver.ring.counts(), RingCounts::default());
}

#[test]
fn each_datagram_comes_once_over_ethernet() {
    each_comes_once(1500, 1);
}

#[test]
fn each_datagram_comes_once_in_jumbo_frames() {
    each_comes_once(9000, 17);
}

#[test]
fn each_datagram_comes_once_in_the_longest_frames() {
    each_comes_once(65_535, 601);
}

/// What another program sends may be fragmented. Put together it can be as short as what the ring takes.
#[test]
fn what_came_in_fragments_comes_by_the_socket() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    wire.near.ip("link set near mtu 600");
    let sender = wire.near.within(|| UdpSocket::bind((NEAR, 0))).unwrap();
    let sent: Vec<Vec<u8>> = [100, 572, 573, 1000, 1472, 1473, 5000].map(|bytes| body(bytes, bytes)).into();
    for body in &sent {
        assert_eq!(sender.send_to(body, receiver.local).unwrap(), body.len());
    }
    let (ring, socket) = gather(&mut receiver, sent.len());
    assert_eq!(counted(ring.iter().chain(&socket)), counted(&sent));
    assert_eq!((ring.len(), socket.len()), (2, 5));
}

/// The ring of an endpoint takes what a ring has sent; what a socket has sent stays with the socket, in its order.
#[test]
fn what_a_socket_has_sent_comes_by_the_socket() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let End { socket, local, .. } = receiver;
    let (interface, way) = wire.far.within(|| hop(&socket, local, SocketAddrV4::new(NEAR, 9)));
    drop(receiver.ring);
    let ring = wire.far.within(|| PacketRing::open(vec![again(&socket)], local, &interface)).unwrap();
    receiver = End { socket, local, ring, way };
    let mut sender = near(&wire, local);
    let by_socket: Vec<Vec<u8>> = [1, 100, 1472].map(|bytes| body(bytes, bytes)).into();
    let by_ring: Vec<Vec<u8>> = [8, 200, 1400].map(|bytes| body(bytes, bytes)).into();
    for (one, two) in by_socket.iter().zip(&by_ring) {
        send(&sender.socket, local, one, None);
        assert!(sender.ring.send(&sender.way, &[IoSlice::new(two)], 1472).unwrap());
    }
    assert_eq!(gather(&mut receiver, 6), (by_ring, by_socket));
}

/// A second socket at the port, joined to the peer, drops what the ring takes as the first one does; and takes it when
/// the ring has ended.
#[test]
fn a_joined_socket_drops_what_the_ring_takes() {
    let Some(wire) = wire(1500) else { return };
    let (main, local) = wire.far.within(|| socket(FAR));
    let joined = wire.far.within(|| Datagrams::unbound(local.into())).unwrap();
    let (interface, way) = wire.far.within(|| hop(&main, local, SocketAddrV4::new(NEAR, 9)));
    let both = vec![again(&main), again(&joined)];
    let ring = wire.far.within(|| PacketRing::open(both, local, &interface)).unwrap();
    let mut sender = near(&wire, local);
    joined.bind_beside(&main, local.into()).unwrap();
    joined.connect(sender.local.into()).unwrap();
    let mut receiver = End { socket: joined, local, ring, way };
    assert!(sender.ring.send(&sender.way, &[IoSlice::new(b"by the ring")], 1472).unwrap());
    send(&sender.socket, local, b"by the socket", None);
    assert_eq!(gather(&mut receiver, 2), (vec![b"by the ring".to_vec()], vec![b"by the socket".to_vec()]));
    assert_eq!(from_socket(&main, &mut |_, _| ()), 0);
    drop(receiver.ring);
    assert!(sender.ring.send(&sender.way, &[IoSlice::new(b"again")], 1472).unwrap());
    let (begun, mut bodies) = (Instant::now(), Vec::new());
    while from_socket(&receiver.socket, &mut |_, body| bodies.push(body.to_vec())) == 0 {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(bodies, [b"again"]);
}

/// What this machine sends to itself never passes the adapter.
#[test]
fn what_comes_another_way_comes_by_the_socket() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let neighbour = wire.far.within(|| socket(FAR).0);
    let sent = body(3, 90);
    send(&neighbour, receiver.local, &sent, None);
    assert_eq!(gather(&mut receiver, 1), (vec![], vec![sent]));
}

#[test]
fn after_the_ring_everything_comes_by_the_socket() {
    let Some(wire) = wire(1500) else { return };
    let (mut receiver, sender) = (far(&wire), wire.near.within(|| socket(NEAR).0));
    send(&sender, receiver.local, b"by the ring", None);
    assert_eq!(gather(&mut receiver, 1), (vec![b"by the ring".to_vec()], vec![]));
    let End { socket, local, ring, .. } = receiver;
    drop(ring);
    send(&sender, local, b"by the socket", None);
    let (begun, mut bodies) = (Instant::now(), Vec::new());
    while from_socket(&socket, &mut |_, body| bodies.push(body.to_vec())) == 0 {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(bodies, [b"by the socket"]);
}

/// Frames of a ring are datagrams to an ordinary socket. All of them stay as they were sent until somebody reads them,
/// though the ring's slots have been used again many times.
#[test]
fn an_ordinary_socket_takes_what_a_ring_sends() {
    for mtu in [1500, 9000] {
        let Some(wire) = wire(mtu) else { return };
        let (listener, to) = wire.far.within(|| socket(FAR));
        if listener.receive_bytes() < 32 << 20 {
            crate::skipped(format_args!(
                "2000 frames do not fit into a receive buffer of {} bytes",
                listener.receive_bytes()
            ));
            return;
        }
        let mut sender = near(&wire, to);
        let longest = sender.ring.body_max();
        let sent: Vec<Vec<u8>> = (0..2000).map(|number| body(number, 8 + number * 97 % (longest - 7))).collect();
        assert!(sent.len() > 2 * sender.ring.room());
        for body in &sent {
            let begun = Instant::now();
            while !sender.ring.send(&sender.way, &[IoSlice::new(body)], longest).unwrap() {
                assert!(begun.elapsed() < PATIENCE);
            }
        }
        let (begun, mut came) = (Instant::now(), Vec::new());
        while came.len() < sent.len() {
            from_socket(&listener, &mut |from, body| {
                assert_eq!(from, SocketAddr::from(sender.local));
                came.push(body.to_vec());
            });
            assert!(begun.elapsed() < PATIENCE, "{} of {}", came.len(), sent.len());
        }
        assert!(came == sent, "a frame has changed after it was sent");
    }
}

/// Whatever the parts are and how long a frame is: the far end gets the bytes in their order, cut as was said.
#[test]
fn parts_are_gathered_and_cut() {
    let Some(wire) = wire(1500) else { return };
    let receiver = far(&wire);
    let sender = near(&wire, receiver.local);
    let (from, way) = (SocketAddr::from(sender.local), sender.way);
    let (sends, receives) = (RefCell::new(sender.ring), RefCell::new(receiver.ring));
    let strategy = (vec(vec(any::<u8>(), 0..700), 1..12), 64..=1472_usize, 1..40_usize);
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let done = runner.run(&strategy, |(parts, segment, most)| {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let all = parts.concat();
        let mut expected: Vec<Vec<u8>> = all.chunks(segment).map(<[u8]>::to_vec).collect();
        if expected.is_empty() {
            expected.push(Vec::new());
        }
        prop_assert!(sends.borrow_mut().send(&way, &slices, segment).unwrap());
        let (begun, mut came) = (Instant::now(), Vec::new());
        while came.len() < expected.len() {
            let count = receives.borrow_mut().receive(most, &mut |whose, body| {
                assert_eq!(whose, from);
                came.push(body.to_vec());
            });
            prop_assert!(count <= most && begun.elapsed() < PATIENCE);
        }
        prop_assert_eq!(came, expected);
        prop_assert!(!receives.borrow().has_frames());
        Ok(())
    });
    done.unwrap();
}

/// What makes the frames of a train as long as each other is not sent; of the last one everything is.
#[test]
fn what_fills_frames_up_is_left_out() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let mut sender = near(&wire, receiver.local);
    sender.ring.leave_padding();
    let frame = |bytes: u8| [vec![1, 10, bytes, 0], body(bytes.into(), 196)].concat();
    let train = [frame(50), vec![7; 200], frame(30)[..150].to_vec()].concat();
    assert!(sender.ring.send(&sender.way, &[IoSlice::new(&train)], 200).unwrap());
    let (ring, socket) = gather(&mut receiver, 3);
    assert_eq!((ring, socket), (vec![train[..114].to_vec(), vec![7; 200], train[400..].to_vec()], Vec::new()));
}

/// A short train is one frame to the tap, and as many datagrams as were sent to its user, a few at a time if he likes.
#[test]
fn a_short_train_is_shown_in_steps() {
    let Some(wire) = wire(1500) else { return };
    let (mut receiver, sender) = (far(&wire), wire.near.within(|| socket(NEAR).0));
    send(&sender, receiver.local, &body(5, 1000), Some(90));
    let (begun, mut came) = (Instant::now(), Vec::new());
    while came.len() < 12 {
        // Who changes what he was shown changes nothing of the rest.
        let count = receiver.ring.receive(5, &mut |_, body| {
            came.push(body.to_vec());
            body.fill(0xff);
        });
        assert!([0, 2, 5].contains(&count) && begun.elapsed() < PATIENCE);
    }
    assert_eq!(came.concat(), body(5, 1000));
    assert!(!receiver.ring.has_frames());
}

/// Frames that no program sends.
#[test]
fn strange_frames_go_where_they_belong() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let mut sender = near(&wire, receiver.local);
    let good = [&Envelope::write(&sender.way, 20)[..], &body(1, 20)].concat();
    let mut put = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        sender.ring.packets.put(frame.len(), |room| room.copy_from_slice(&frame));
        sender.ring.kick().unwrap();
    };
    let checked = |frame: &mut [u8]| {
        let end = 14 + usize::from(frame[14] & 15) * 4;
        frame[24..26].fill(0);
        let sum: u32 = frame[14..end].chunks(2).map(|word| u32::from(word[0]) * 256 + u32::from(word[1])).sum();
        let sum = !u16::try_from(sum % 0xffff).unwrap();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    // Three options that say nothing, and the end of options.
    put(&|frame| {
        frame.splice(34..34, [1, 1, 1, 0]);
        (frame[14], frame[17]) = (0x46, 52);
        checked(frame);
    });
    put(&|frame| {
        frame[20] = 0;
        checked(frame);
    });
    // A datagram that is shorter than its frame.
    put(&|frame| frame.extend([0x5a; 30]));
    let (ring, socket) = gather(&mut receiver, 3);
    assert_eq!((ring, socket), (vec![body(1, 20)], vec![body(1, 20), body(1, 20)]));
    // For another port, address or hardware address; not whole; of another protocol; cut short; with a wrong checksum.
    put(&|frame| frame[36] ^= 1);
    put(&|frame| frame[33] ^= 4);
    put(&|frame| frame[5] ^= 4);
    put(&|frame| {
        frame[20] = 0x60;
        checked(frame);
    });
    put(&|frame| {
        frame[23] = 6;
        checked(frame);
    });
    put(&|frame| frame.truncate(50));
    put(&|frame| frame[24] ^= 1);
    put(&|frame| frame.truncate(20));
    assert_eq!(gather(&mut receiver, 0), (vec![], vec![]));
    assert_eq!(receiver.ring.counts(), RingCounts { strays: 2, ..RingCounts::default() });
    // From where nobody is: the kernel drops those that it looks at, and so does the ring.
    for from in [[127, 0, 0, 1], [224, 0, 0, 251], [255; 4]] {
        for flags in [0x40, 0] {
            put(&|frame| {
                frame[20] = flags;
                frame[26..30].copy_from_slice(&from);
                checked(frame);
            });
        }
    }
    assert_eq!(gather(&mut receiver, 0), (vec![], vec![]));
    assert_eq!(receiver.ring.counts(), RingCounts { strays: 5, ..RingCounts::default() });
}

/// With nobody at the other end frames stay in the ring until it is full, and go when somebody is there again.
#[test]
fn what_cannot_go_now_goes_later() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let mut sender = near(&wire, receiver.local);
    wire.far.ip("link set far down");
    let room = sender.ring.room();
    let mut sent = Vec::new();
    while sent.len() <= room {
        let body = body(sent.len(), 100);
        if !sender.ring.send(&sender.way, &[IoSlice::new(&body)], 100).unwrap() {
            break;
        }
        sent.push(body);
    }
    assert_eq!(sent.len(), room, "all slots, and no more");
    assert!(sender.ring.send(&sender.way, &[IoSlice::new(&[0; 1600])], 1500).is_err(), "longer than the MTU");
    assert!(!sender.ring.send(&sender.way, &[IoSlice::new(&[0; 300])], 100).unwrap());
    assert!(!sender.ring.leaves(), "nobody looks again and again while nobody is there");
    wire.far.ip("link set far up");
    let (begun, mut came) = (Instant::now(), Vec::new());
    while came.len() < sent.len() {
        assert!(begun.elapsed() < PATIENCE, "{} of {}", came.len(), sent.len());
        // It is the sender's next look that sends them.
        sender.ring.receive(1, &mut |_, _| {});
        receiver.ring.receive(usize::MAX, &mut |_, body| came.push(body.to_vec()));
    }
    assert_eq!(came, sent);
    assert_eq!(sender.ring.room(), room);
}

/// What a call has left in the ring, though it has failed in nothing, goes with the next look.
#[test]
fn what_a_call_has_left_goes_later() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let mut sender = near(&wire, receiver.local);
    // It takes the call, and no frame.
    let (nobody, _other) = UnixDatagram::pair().unwrap();
    let kernel = sender.ring.packets.exchange(nobody.into());
    assert!(sender.ring.send(&sender.way, &[IoSlice::new(b"left")], 1472).unwrap());
    sender.ring.packets.exchange(kernel);
    assert!(sender.ring.leaves());
    sender.ring.look_after_sent().unwrap();
    assert_eq!(gather(&mut receiver, 1).0, [b"left"]);
    assert!(!sender.ring.leaves());
}

/// However long frames may be, two batches of as many short ones as a batch may have find room.
#[test]
fn a_batch_of_short_frames_has_room_whatever_the_mtu() {
    for mtu in [1500, 9000, 16_329, 40_000, 65_535] {
        let Some(wire) = wire(mtu) else { return };
        let mut receiver = far(&wire);
        let mut sender = near(&wire, receiver.local);
        let frames: Vec<Vec<u8>> = (0..batch::FRAMES).map(|number| body(number, 100)).collect();
        assert!(sender.ring.room() >= 2 * frames.len(), "MTU {mtu}: {}", sender.ring.room());
        let parts: Vec<IoSlice<'_>> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
        assert!(sender.ring.send(&sender.way, &parts, 100).unwrap());
        assert_eq!(counted(&gather(&mut receiver, frames.len()).0), counted(&frames));
        assert_eq!(receiver.ring.counts(), RingCounts::default());
    }
}

#[test]
fn frames_for_a_full_ring_are_counted() {
    let Some(wire) = wire(1500) else { return };
    let mut receiver = far(&wire);
    let mut sender = near(&wire, receiver.local);
    let slots = MEMORY.0 / 1700;
    let frames = 3 * slots / 50 * 50;
    let begun = Instant::now();
    for _ in 0..frames / 50 {
        while !sender.ring.send(&sender.way, &[IoSlice::new(&[7; 500])], 10).unwrap() {
            assert!(begun.elapsed() < PATIENCE);
        }
    }
    let (mut came, mut lost) = (0, 0);
    while came + lost < frames {
        came += receiver.ring.receive(100, &mut |_, body| assert_eq!(body, [7; 10]));
        lost = usize::try_from(receiver.ring.counts().overflows).unwrap();
        assert!(begun.elapsed() < PATIENCE, "{came} came, {lost} were lost");
    }
    assert!(came >= slots && lost > 0 && came + lost == frames, "{came} came, {lost} were lost, of {frames}");
}

#[test]
fn waiting_ends_when_a_frame_comes() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(wire) = wire(1500) else { return };
    let (mut receiver, sender) = (far(&wire), wire.near.within(|| socket(NEAR).0));
    let readable = |end: &End, milliseconds: i64| {
        let timeout = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
        poll(&mut [PollFd::new(&end.ring.watched(), PollFlags::IN)], Some(&timeout)).unwrap() > 0
    };
    assert!(!readable(&receiver, 1) && !receiver.ring.has_frames());
    for _ in 0..3 {
        send(&sender, receiver.local, b"wake up", None);
    }
    assert!(readable(&receiver, 10_000));
    assert_eq!(gather(&mut receiver, 3).0.len(), 3);
    assert!(!readable(&receiver, 1) && !receiver.ring.has_frames());
}

/// What a ring would refuse is told by who asks whether there can be one.
#[test]
fn an_old_kernel_is_told_before_a_ring_is_opened() {
    for (release, is_new) in
        [("5.15.0-1-amd64", false), ("6.1.9", false), ("6.2.0", true), ("7.0-rc1", true), ("?", true)]
    {
        let told = is_new_enough(release).map_err(|error| error.to_string());
        assert_eq!(told.is_ok(), is_new, "{release}: {told:?}");
        assert!(told.is_ok() || told.is_err_and(|why| why.contains("Linux 6.2") && why.contains(release)));
    }
    let checks = crate::udp::probe(cutthrough_engine::receipt::Adapter::Packet);
    assert!(checks.iter().any(|(what, told)| what.contains("kernel") && told.is_ok() == has_kernel().is_ok()));
}
