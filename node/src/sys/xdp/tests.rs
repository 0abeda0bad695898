//! Rings at both ends of a veth pair. What needs the rights of root says so and does nothing without them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cutthrough_segment::map::Writers;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use super::bpf::{Attached, Program, Rings};
use super::program::{Ours, redirect};
use super::wire::{FAR, FAR_MAC, NEAR, NEAR_MAC, PORT, Wire};
use super::*;

/// A ring at an end of a wire: 32 buffers to receive, 32 to send.
struct End {
    xsk: Xsk,
    memory: Memory,
    rings: Rings,
    _attached: Option<Attached>,
}

const BUFFERS: u32 = 32;

fn settings(mode: Mode, queue: u32) -> Settings {
    Settings { queue, mode, buffer_bytes: 4096, unaligned: false, scatter: true, entries: 64 }
}

impl End {
    /// At `name`, in the namespace of the calling thread. With a program, if it shall receive.
    fn open(name: &str, settings: Settings, ours: Option<Ours>) -> Result<Self, XdpError> {
        let memory = Memory::new(u64::from(2 * BUFFERS * settings.buffer_bytes), Writers::Both)?;
        let interface = Interface::named(name)?;
        let rings = Rings::new(interface.queues)?;
        let attached = match ours {
            Some(ours) => {
                Some(Program::load(&redirect(&ours, rings.number()))?.attach(interface.index, settings.mode)?)
            }
            None => None,
        };
        let mut xsk = Xsk::open(&interface, &memory, settings)?;
        for number in 0..BUFFERS {
            assert!(xsk.offer(u64::from(number * settings.buffer_bytes))?);
        }
        xsk.post();
        rings.set(settings.queue, xsk.as_fd())?;
        Ok(Self { xsk, memory, rings, _attached: attached })
    }

    /// Sends one frame, cut into parts of at most a buffer.
    fn send(&mut self, frame: &[u8]) {
        let place = u64::from(BUFFERS * self.xsk.settings().buffer_bytes);
        let parts = frame.chunks(self.xsk.settings().buffer_bytes as usize);
        let count = parts.len();
        for (number, part) in parts.enumerate() {
            let at = place + (number * self.xsk.settings().buffer_bytes as usize) as u64;
            self.memory.frame(at, part.len()).copy_from_slice(part);
            let bytes = u32::try_from(part.len()).unwrap();
            assert!(self.xsk.put(Descriptor { at, bytes, more: number + 1 < count }).unwrap());
        }
        self.xsk.kick().unwrap();
        let begun = Instant::now();
        let mut done = 0;
        while done < count {
            done += usize::from(self.xsk.completed().unwrap().is_some());
            assert!(begun.elapsed() < PATIENCE, "it was not sent");
        }
    }

    /// The next frame, if one comes in time.
    fn receive(&mut self, patience: Duration) -> Option<Vec<u8>> {
        let begun = Instant::now();
        let mut frame = Vec::new();
        loop {
            if self.xsk.arrived().unwrap() > 0 {
                while let Some(part) = self.xsk.take() {
                    frame.extend_from_slice(self.memory.frame(part.at, part.bytes as usize));
                    let buffer = part.at / u64::from(self.xsk.settings().buffer_bytes);
                    assert!(self.xsk.offer(buffer * u64::from(self.xsk.settings().buffer_bytes)).unwrap());
                    if !part.more {
                        self.xsk.release();
                        self.xsk.post();
                        return Some(frame);
                    }
                }
            }
            if begun.elapsed() > patience {
                return None;
            }
            std::thread::yield_now();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);

fn sum(header: &[u8]) -> u16 {
    let total: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (total & 0xffff) + (total >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// A datagram from the far end to the near one, or back, in Ethernet.
fn datagram(to_near: bool, port: u16, body: &[u8]) -> Vec<u8> {
    let (to, from) = if to_near { (NEAR_MAC, FAR_MAC) } else { (FAR_MAC, NEAR_MAC) };
    let (source, target) = if to_near { (FAR, NEAR) } else { (NEAR, FAR) };
    let length = |extra: usize| u16::try_from(body.len() + extra).unwrap().to_be_bytes();
    let mut ip = [vec![0x45, 0], length(28).to_vec(), vec![b'c', b't', 0x40, 0, 64, 17, 0, 0]].concat();
    ip.extend([source.octets(), target.octets()].concat());
    let sum = sum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    let udp = [&PORT.to_be_bytes()[..], &port.to_be_bytes(), &length(8), &[0, 0]].concat();
    [&to[..], &from, &[8, 0], &ip, &udp, body].concat()
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 / 8).to_le_bytes()[0]).collect()
}

const MODES: [Mode; 2] = [Mode::Generic, Mode::Native];

#[test]
fn frames_come_as_they_went_in_both_modes_and_both_mtus() {
    for mtu in [1500, 9000] {
        for mode in MODES {
            let Some(wire) = Wire::make(mtu) else { return };
            let mut near = wire.near(|| End::open("near", settings(mode, 0), Some(wire.ours()))).unwrap();
            // Native mode at the receiving end needs nothing of the sending one.
            let mut far = wire.far(|| End::open("far", settings(Mode::Generic, 0), None)).unwrap();
            for bytes in [1, 64, 1400, 1472, 4000, 8000, 8972] {
                if bytes > mtu as usize - 28 {
                    continue;
                }
                let frame = datagram(true, PORT, &body(bytes));
                far.send(&frame);
                let came = near.receive(PATIENCE).expect("a frame");
                assert!(came[..frame.len()] == frame[..], "{mode:?} {mtu} {bytes}");
            }
            // Back: a kernel socket takes what the ring sends.
            let socket = wire.far(|| UdpSocket::bind((FAR, PORT)).unwrap());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            near.send(&datagram(false, PORT, &body(1000)));
            let mut room = [0; 2000];
            assert_eq!(socket.recv(&mut room).unwrap(), 1000);
            assert_eq!(room[..1000], body(1000));
        }
    }
}

/// The kernel's sockets get everything but our datagrams, trains too.
#[test]
fn everything_else_stays_with_the_kernel() {
    for mode in MODES {
        let Some(wire) = Wire::make(1500) else { return };
        let mut near = wire.near(|| End::open("near", settings(mode, 0), Some(wire.ours()))).unwrap();
        let (mine, other) =
            wire.near(|| (UdpSocket::bind((NEAR, PORT)).unwrap(), UdpSocket::bind((NEAR, PORT + 1)).unwrap()));
        let sender = wire.far(|| UdpSocket::bind((FAR, 0)).unwrap());
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        mine.set_read_timeout(Some(SHORT)).unwrap();
        // veth puts the queue of a kernel's sender down to its processor: either queue may have it.
        let mut room = [0; 70_000];
        for _ in 0..20 {
            sender.send_to(b"other", (NEAR, PORT + 1)).unwrap();
            assert_eq!(other.recv(&mut room).unwrap(), 5);
        }
        // A datagram in three IP fragments: the kernel joins them, and the ring sees none of it.
        let long = body(4096);
        sender.send_to(&long, (NEAR, PORT)).unwrap();
        let mut got = 0;
        while got == 0 {
            got = mine.recv(&mut room).unwrap();
        }
        assert!(room[..got] == long[..]);
        assert_eq!(near.receive(SHORT), None);
        // Taken out of the map, the queue's frames are the kernel's again.
        near.rings.clear(0).unwrap();
        sender.send_to(b"mine", (NEAR, PORT)).unwrap();
        assert_eq!(mine.recv(&mut room).unwrap(), 4);
    }
}

/// A train of the kernel (GSO) comes uncut across a pair: the ring takes none of it, the socket all of it.
#[test]
fn trains_longer_than_the_mtu_pass() {
    use crate::sys::datagram::Datagrams;
    for mode in MODES {
        let Some(wire) = Wire::make(1500) else { return };
        let mut near = wire.near(|| End::open("near", settings(mode, 0), Some(wire.ours()))).unwrap();
        let beside = wire.near(|| Datagrams::bind(SocketAddrV4::new(NEAR, PORT).into()).unwrap());
        let far = wire.far(|| Datagrams::bind(SocketAddrV4::new(FAR, 0).into()).unwrap());
        let train = body(20 * 1400);
        far.send(Some(SocketAddrV4::new(NEAR, PORT).into()), &[IoSlice::new(&train)], Some(1400)).unwrap();
        let mut got = Vec::new();
        let begun = Instant::now();
        while got.len() < train.len() {
            let mut room = vec![0; 65_507];
            if let Ok(received) = beside.receive(&mut [IoSliceMut::new(&mut room)]) {
                got.extend_from_slice(&room[..received.bytes]);
            }
            // A kernel that cuts it before the program sends the segments to the ring: each still comes once.
            if let Some(frame) = near.receive(Duration::ZERO) {
                got.extend_from_slice(&frame[42..]);
            }
            assert!(begun.elapsed() < PATIENCE, "{mode:?}: {} of {} bytes", got.len(), train.len());
        }
        assert!(got == train, "{mode:?}");
    }
}

/// The paper's own frames: 4 KiB of UDP payload in three standard fragments of IP, from a ring to a kernel's socket.
/// The other way, the fragments of a kernel pass a ring's program: see `everything_else_stays_with_the_kernel`.
#[test]
fn a_kernel_joins_the_fragments_of_a_ring() {
    let Some(wire) = Wire::make(1500) else { return };
    let near = wire.near(|| UdpSocket::bind((NEAR, PORT)).unwrap());
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut far = wire.far(|| End::open("far", settings(Mode::Generic, 0), None)).unwrap();
    let page = body(4096);
    let whole = datagram(true, PORT, &page);
    let (headers, payload) = whole.split_at(34);
    for (number, part) in payload.chunks(1480).enumerate() {
        let mut frame = [headers, part].concat();
        let more = if (number + 1) * 1480 < payload.len() { 0x2000 } else { 0 };
        let offset = u16::try_from(number * 1480 / 8).unwrap() | more;
        frame[16..18].copy_from_slice(&u16::try_from(20 + part.len()).unwrap().to_be_bytes());
        frame[18..20].copy_from_slice(&[0x12, 0x34]);
        frame[20..22].copy_from_slice(&offset.to_be_bytes());
        frame[24..26].fill(0);
        let sum = sum(&frame[14..34]).to_be_bytes();
        frame[24..26].copy_from_slice(&sum);
        far.send(&frame);
    }
    let mut room = [0; 5000];
    assert_eq!(near.recv(&mut room).unwrap(), 4096);
    assert!(room[..4096] == page[..]);
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let Some(wire) = Wire::make(1500) else { return };
    let line = |error: XdpError| {
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() < 200, "{text}");
        text
    };
    let open = |settings| wire.near(|| End::open("near", settings, None)).map(drop);
    assert!(matches!(open(settings(Mode::Generic, 2)), Err(XdpError::NoQueue { queue: 2, queues: 2, .. })));
    let zero_copy = open(settings(Mode::ZeroCopy, 0)).expect_err("veth has no zero-copy mode");
    assert!(matches!(zero_copy, XdpError::Unsupported { .. }), "{zero_copy}");
    let _first = wire.near(|| End::open("near", settings(Mode::Generic, 0), Some(wire.ours()))).unwrap();
    let taken = wire.near(|| End::open("near", settings(Mode::Generic, 0), None)).err().expect("the queue is taken");
    assert!(line(taken).contains("queue 0 of near is in use"));
    let occupied = wire.near(|| End::open("near", settings(Mode::Generic, 1), Some(wire.ours()))).err().unwrap();
    assert!(line(occupied).contains("another XDP program is at near"));
    let nowhere = wire.near(|| End::open("nowhere", settings(Mode::Generic, 1), None)).err().unwrap();
    assert!(line(nowhere).contains("no interface nowhere"));
}

/// What a process that has been killed leaves: nothing. `ip` shows no program, and the interface works.
#[test]
fn a_process_that_is_killed_leaves_nothing() {
    for mode in MODES {
        let Some(wire) = Wire::make(1500) else { return };
        let mut child =
            wire.near(|| child("victim").env("XDP_MODE", mode.name()).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        while !said.contains("ready") {
            said.clear();
            assert!(std::io::BufRead::read_line(&mut output, &mut said).unwrap() > 0, "it has ended");
        }
        let shown = || {
            let output = wire.near(|| Command::new("ip").args(["link", "show", "near"]).output().unwrap());
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(shown().contains("xdp"), "{}", shown());
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        while shown().contains("xdp") {
            assert!(begun.elapsed() < PATIENCE, "{}", shown());
        }
        let (socket, sender) =
            (wire.near(|| UdpSocket::bind((NEAR, PORT)).unwrap()), wire.far(|| UdpSocket::bind((FAR, 0)).unwrap()));
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        sender.send_to(b"alive", (NEAR, PORT)).unwrap();
        assert_eq!(socket.recv(&mut [0; 10]).unwrap(), 5);
        // And the next one opens its rings at once.
        wire.near(|| End::open("near", settings(mode, 0), Some(wire.ours()))).map(drop).unwrap();
    }
}

/// This program again, for one of the parts below.
fn child(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("sys::xdp::tests::{part}"), "--ignored", "--nocapture"]);
    command
}

#[test]
#[ignore = "a part of a_process_that_is_killed_leaves_nothing"]
fn victim() {
    let mode = if std::env::var("XDP_MODE").unwrap() == "native" { Mode::Native } else { Mode::Generic };
    let ours = Ours { local: SocketAddrV4::new(NEAR, PORT), frame_max: 1514, of_rings: true };
    let _end = End::open("near", settings(mode, 0), Some(ours)).unwrap();
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
}

/// U-Net's direct access: a process without privileges takes a queue that somebody else has opened.
#[test]
fn a_process_without_privileges_gets_a_queue_of_its_own() {
    const FRAMES: u8 = 20;
    let Some(wire) = Wire::make(1500) else { return };
    let near = wire.near(|| End::open("near", settings(Mode::Generic, 0), Some(wire.ours()))).unwrap();
    let (mine, theirs) = UnixStream::pair().unwrap();
    let mut command = child("stranger");
    let spawned = command.uid(65_534).gid(65_534).stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) => return crate::skipped(format_args!("another user cannot run this program: {error}")),
    };
    let fds = [near.xsk.as_fd(), near.memory.file()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    rustix::net::sendmsg(&mine, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
    // The socket lives on in the child alone; only the program stays here.
    let End { xsk, memory, rings: _rings, _attached } = near;
    drop((xsk, memory));

    let mut far = wire.far(|| End::open("far", settings(Mode::Generic, 0), None)).unwrap();
    let heard = wire.far(|| UdpSocket::bind((FAR, PORT)).unwrap());
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..FRAMES {
        far.send(&datagram(true, PORT, &[number; 100]));
        let mut room = [0; 2000];
        assert_eq!(heard.recv(&mut room).unwrap(), 100);
        assert_eq!(room[..100], [!number; 100]);
    }
    drop(mine);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Has no capabilities and cannot open a socket of AF_XDP; sends back every frame with its bytes inverted.
#[test]
#[ignore = "a part of a_process_without_privileges_gets_a_queue_of_its_own"]
fn stranger() {
    let sets = rustix::thread::capabilities(None).unwrap();
    assert!(sets.effective.is_empty() && sets.permitted.is_empty());
    let refused = Xsk::open(
        &Interface::named("lo").unwrap(),
        &Memory::new(4096, Writers::Maker).unwrap(),
        settings(Mode::Generic, 0),
    );
    assert!(matches!(refused, Err(XdpError::Privilege { right: "CAP_NET_RAW", .. })));
    assert!(matches!(Rings::new(1), Err(XdpError::Privilege { .. })));

    let giver = std::io::stdin();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut room = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(&giver, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut fds = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (socket, file) = (fds.next().unwrap(), fds.next().unwrap());
    drop(fds);
    let mut memory = Memory::open(file).unwrap();
    let mut xsk = Xsk::from_parts(socket, &memory, settings(Mode::Generic, 0)).unwrap();
    let place = u64::from(BUFFERS * xsk.settings().buffer_bytes);
    let mut sent = 0;
    while sent < 20 {
        let mut ready = [rustix::event::PollFd::new(&xsk, rustix::event::PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ready, Some(&patience)).unwrap(), 1, "nothing comes");
        xsk.arrived().unwrap();
        while let Some(part) = xsk.take() {
            let came = memory.frame(part.at, part.bytes as usize).to_vec();
            let inverted: Vec<u8> = came[42..].iter().map(|byte| !byte).collect();
            let answer = datagram(false, PORT, &inverted);
            memory.frame(place, answer.len()).copy_from_slice(&answer);
            let bytes = u32::try_from(answer.len()).unwrap();
            assert!(xsk.put(Descriptor { at: place, bytes, more: false }).unwrap());
            xsk.kick().unwrap();
            xsk.release();
            xsk.offer(part.at - part.at % 4096).unwrap();
            xsk.post();
            while xsk.completed().unwrap().is_none() {}
            sent += 1;
        }
    }
}
