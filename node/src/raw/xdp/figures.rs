//! Figures across a veth pair: the ring, a bare loop over the same socket, and the kernel's UDP, in turn in one run.
//! Nothing is asserted of them: `cargo test --release -p cutthrough-node --lib -- --ignored --nocapture xdp_figures`

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::tests::{Ends, FAR_END, NEAR_END, ends};
use super::*;
use crate::sys::datagram::Datagrams;
use crate::sys::xdp::socket::HEADROOM;
use crate::sys::xdp::wire::Wire;

const ROUNDS: usize = 9;
const TRIPS: u32 = 3000;
const STREAM: std::time::Duration = std::time::Duration::from_millis(200);

/// One way to send and receive.
trait Way: Send {
    /// Sends `bytes` in datagrams of `segment`; how many went.
    fn put(&mut self, bytes: &[u8], segment: usize) -> usize;
    /// Takes in what has come, and copies it to `room`: how many bytes.
    fn take(&mut self, room: &mut [u8]) -> usize;
}

struct ByRing<'a>(&'a mut XdpRing, Hop);

impl Way for ByRing<'_> {
    fn put(&mut self, bytes: &[u8], segment: usize) -> usize {
        let sent = self.0.send(&self.1, &[IoSlice::new(bytes)], segment).unwrap();
        if sent { bytes.len().div_ceil(segment) } else { 0 }
    }

    fn take(&mut self, room: &mut [u8]) -> usize {
        let mut came = 0;
        self.0.receive(64, &mut |_, body| {
            room[came..came + body.len()].copy_from_slice(body);
            came += body.len();
        });
        came
    }
}

/// The socket alone: the same frame each time, sent from where it lies; nothing is looked at.
struct Bare<'a>(&'a mut XdpRing, u32);

impl<'a> Bare<'a> {
    fn new(ring: &'a mut XdpRing, hop: &Hop, segment: usize) -> Self {
        for slot in 0..ring.plan.send_slots {
            let place = ring.plan.send_base + u64::from(slot) * ring.plan.send_stride;
            let frame = ring.memory.frame(place, ENVELOPE_BYTES + segment);
            frame[..ENVELOPE_BYTES].copy_from_slice(&Envelope::write(hop, segment));
        }
        Self(ring, 0)
    }
}

impl Way for Bare<'_> {
    fn put(&mut self, bytes: &[u8], segment: usize) -> usize {
        let ring = &mut *self.0;
        let frames = bytes.len().div_ceil(segment);
        let parts = (ENVELOPE_BYTES + segment).div_ceil(ring.plan.buffer as usize);
        while ring.xsk.completed().unwrap().is_some() {}
        if (ring.xsk.room().unwrap() as usize) < frames * parts {
            ring.xsk.kick().unwrap();
            return 0;
        }
        for _ in 0..frames {
            let place = ring.plan.send_base + u64::from(self.1) * ring.plan.send_stride;
            self.1 = (self.1 + 1) % ring.plan.send_slots;
            let (whole, buffer) = (ENVELOPE_BYTES + segment, ring.plan.buffer as usize);
            for begin in (0..whole).step_by(buffer) {
                let bytes = u32::try_from(buffer.min(whole - begin)).unwrap();
                let part = Descriptor { at: place + begin as u64, bytes, more: begin + buffer < whole };
                assert!(ring.xsk.put(part).unwrap());
            }
        }
        ring.xsk.kick().unwrap();
        frames
    }

    fn take(&mut self, _: &mut [u8]) -> usize {
        let ring = &mut *self.0;
        let (arrived, mut came) = (ring.xsk.arrived().unwrap(), 0);
        for _ in 0..arrived {
            let Some(part) = ring.xsk.take() else { break };
            came += part.bytes as usize - if part.more { 0 } else { ENVELOPE_BYTES };
            ring.xsk.offer((part.at - HEADROOM) / ring.plan.stride * ring.plan.stride).unwrap();
        }
        if arrived > 0 {
            ring.xsk.release();
            ring.xsk.post();
        }
        came
    }
}

struct BySocket(Datagrams, SocketAddrV4);

impl Way for BySocket {
    fn put(&mut self, bytes: &[u8], segment: usize) -> usize {
        let cut = (bytes.len() > segment).then(|| u16::try_from(segment).unwrap());
        self.0.send(Some(self.1.into()), &[IoSlice::new(bytes)], cut).map_or(0, |sent| sent.div_ceil(segment))
    }

    fn take(&mut self, room: &mut [u8]) -> usize {
        self.0.receive(&mut [IoSliceMut::new(room)]).map_or(0, |received| received.bytes)
    }
}

const ROOM: usize = 1 << 18;

/// Nanoseconds from `asked` bytes sent until `answered` bytes are back.
fn trip(near: &mut dyn Way, far: &mut dyn Way, asked: usize, answered: usize, segment: usize) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (body, mut room) = (vec![9; answered], vec![0; ROOM]);
            while !stop.load(Ordering::Relaxed) {
                if far.take(&mut room) > 0 {
                    far.put(&body, segment);
                }
            }
        });
        let (body, mut room) = (vec![7; asked], vec![0; ROOM]);
        let mut turn = || {
            near.put(&body, asked);
            let mut came = 0;
            while came < answered {
                came += near.take(&mut room);
            }
        };
        (0..100).for_each(|_| turn());
        let begun = Instant::now();
        (0..TRIPS).for_each(|_| turn());
        let passed = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        echo.join().unwrap();
        passed.as_secs_f64() * 1e9 / f64::from(TRIPS)
    })
}

/// Bytes in a second that were sent, and that arrived.
fn stream(near: &mut dyn Way, far: &mut dyn Way, segment: usize, batch: usize) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let (mut room, mut came) = (vec![0; 1 << 20], 0);
            while !stop.load(Ordering::Relaxed) {
                came += far.take(&mut room);
            }
            came
        });
        let body = vec![7; segment * batch];
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < STREAM {
            sent += near.put(&body, segment) * segment;
        }
        let passed = begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
        let rate = |bytes: usize| bytes as f64 / passed / 1e9;
        (rate(sent), rate(taker.join().unwrap()))
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

#[derive(Debug, Clone, Copy)]
enum By {
    Ring(Mode),
    Bare(Mode),
    Socket,
}

const WAYS: [By; 5] =
    [By::Ring(Mode::Generic), By::Bare(Mode::Generic), By::Ring(Mode::Native), By::Bare(Mode::Native), By::Socket];

/// Opens both ends and runs this between them.
fn between<R>(wire: &Wire, by: By, segments: [usize; 2], run: impl FnOnce(&mut dyn Way, &mut dyn Way) -> R) -> R {
    match by {
        By::Socket => {
            let near = wire.near(|| Datagrams::bind(NEAR_END.into()).unwrap());
            let far = wire.far(|| Datagrams::bind(FAR_END.into()).unwrap());
            run(&mut BySocket(near, FAR_END), &mut BySocket(far, NEAR_END))
        }
        By::Ring(mode) => {
            let Ends { mut near, mut far, to_near, to_far } = ends(wire, mode);
            run(&mut ByRing(&mut near, to_far), &mut ByRing(&mut far, to_near))
        }
        By::Bare(mode) => {
            let Ends { mut near, mut far, to_near, to_far } = ends(wire, mode);
            run(&mut Bare::new(&mut near, &to_far, segments[0]), &mut Bare::new(&mut far, &to_near, segments[1]))
        }
    }
}

#[test]
#[ignore = "it measures, and takes some time"]
fn xdp_figures() {
    for (mtu, asked, answered, segment) in
        [(1500, 64, 64, 64), (1500, 64, 8192, 1366), (9000, 64, 64, 64), (9000, 64, 8192, 8192)]
    {
        let Some(wire) = Wire::make(mtu) else { return };
        let mut found = WAYS.map(|by| (by, Vec::new()));
        for _ in 0..ROUNDS {
            for (by, trips) in &mut found {
                trips
                    .push(between(&wire, *by, [asked, segment], |near, far| trip(near, far, asked, answered, segment)));
            }
        }
        for (by, trips) in found {
            println!("MTU {mtu}, {asked} B -> {answered} B by {by:?}: {:.2} us", median(trips) / 1e3);
        }
    }
    for (mtu, segment) in [(1500, 64), (1500, 1472), (9000, 8256)] {
        let Some(wire) = Wire::make(mtu) else { return };
        let mut found = WAYS.map(|by| (by, Vec::new(), Vec::new()));
        for _ in 0..ROUNDS {
            for (by, sent, came) in &mut found {
                let batch = if segment > 2000 { 7 } else { 32 };
                let (out, back) = between(&wire, *by, [segment; 2], |near, far| stream(near, far, segment, batch));
                sent.push(out);
                came.push(back);
            }
        }
        for (by, sent, came) in found {
            let (sent, came) = (median(sent), median(came));
            println!("MTU {mtu}, stream of {segment} B by {by:?}: {sent:.3} GB/s sent, {came:.3} GB/s taken");
        }
    }
}
