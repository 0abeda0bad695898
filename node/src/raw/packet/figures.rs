//! Figures across a veth pair, rings against plain sockets in the same run. Nothing is asserted of them:
//! `cargo test --release -p cutthrough-node --lib -- --ignored --nocapture raw_figures`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::super::veth::{Wire, hop, wire};
use super::tests::{End, far, near};
use super::*;
use crate::sys::datagram::Datagrams;

const ROUNDS: usize = 45;
const TRIPS: u32 = 400;
const STREAM: std::time::Duration = std::time::Duration::from_millis(60);
/// Room for the longest train.
const TRAIN: usize = 1 << 16;

/// One end of the wire, with a ring or without.
struct Side {
    socket: Datagrams,
    ring: Option<PacketRing>,
    way: Hop,
}

/// Both ends, with rings or without: the other's frames do not come here, for the ports differ.
fn sides(wire: &Wire, rings: bool) -> (Side, Side) {
    let mut far = far(wire);
    let near = near(wire, far.local);
    far.way = wire.far.within(|| hop(&far.socket, far.local, near.local).1);
    let side = |End { socket, ring, way, .. }: End| Side { socket, ring: rings.then_some(ring), way };
    (side(near), side(far))
}

/// Sends frames of `segment` bytes: how many went.
fn put(side: &mut Side, trains: bool, bytes: &[u8], segment: usize) -> usize {
    let to = Some(side.way.remote().into());
    let parts = [IoSlice::new(bytes)];
    let frames = bytes.len() / segment;
    match &mut side.ring {
        Some(ring) => ring.send(&side.way, &parts, segment).map_or(0, |sent| if sent { frames } else { 0 }),
        None if trains => {
            side.socket.send(to, &parts, u16::try_from(segment).ok()).map_or(0, |bytes| bytes.div_ceil(segment))
        }
        None => bytes.chunks(segment).filter(|body| side.socket.send(to, &[IoSlice::new(body)], None).is_ok()).count(),
    }
}

fn take(side: &mut Side, room: &mut [u8]) -> usize {
    match &mut side.ring {
        Some(ring) => ring.receive(64, &mut |_, body| room[0] = body[0]),
        None => match side.socket.receive(&mut [std::io::IoSliceMut::new(room)]) {
            Ok(received) => received.bytes.div_ceil(usize::from(received.segment).max(1)),
            Err(_) => 0,
        },
    }
}

/// Leaves nothing behind for the next round.
fn empty(side: &mut Side) {
    let mut room = vec![0; TRAIN];
    while take(side, &mut room) > 0 {}
}

/// Nanoseconds of a round trip.
fn trip((near, far): &mut (Side, Side), bytes: usize) -> f64 {
    let body = vec![7; bytes];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (body, mut room) = (vec![9; bytes], vec![0; TRAIN]);
            while !stop.load(Ordering::Relaxed) {
                if take(far, &mut room) > 0 {
                    put(far, false, &body, bytes);
                }
            }
        });
        let mut room = vec![0; TRAIN];
        let begun = Instant::now();
        for _ in 0..TRIPS {
            put(near, false, &body, bytes);
            while take(near, &mut room) == 0 {}
        }
        let passed = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        echo.join().unwrap();
        passed.as_secs_f64() * 1e9 / f64::from(TRIPS)
    })
}

/// Frames in a second that were sent, and that arrived.
fn stream((near, far): &mut (Side, Side), trains: bool, bytes: usize) -> (f64, f64) {
    let body = vec![7; bytes * 32];
    let stop = AtomicBool::new(false);
    empty(far);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let (mut room, mut came) = (vec![0; TRAIN], 0);
            while !stop.load(Ordering::Relaxed) {
                came += take(far, &mut room);
            }
            came
        });
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < STREAM {
            sent += put(near, trains, &body, bytes);
        }
        let passed = begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a few millions")]
        let rate = |frames: usize| frames as f64 / passed;
        (rate(sent), rate(taker.join().unwrap()))
    })
}

/// Median and least.
fn summed_up(mut of: Vec<f64>) -> (f64, f64) {
    of.sort_by(f64::total_cmp);
    (of[of.len() / 2], of[0])
}

#[test]
#[ignore = "it measures, and takes some time"]
fn raw_figures() {
    for (mtu, bytes) in [(1500, 64), (9000, 64), (9000, 8192)] {
        let Some(wire) = wire(mtu) else { return };
        let mut ways = [("ring", true), ("socket", false)].map(|(by, rings)| (by, sides(&wire, rings), Vec::new()));
        for _ in 0..ROUNDS {
            for (_, sides, trips) in &mut ways {
                trips.push(trip(sides, bytes));
            }
        }
        for (by, _, trips) in ways {
            let (median, least) = summed_up(trips);
            println!(
                "MTU {mtu}, {bytes} B there and back by {by}: {:.2} us, least {:.2} us",
                median / 1e3,
                least / 1e3
            );
        }
    }
    for bytes in [64, 1472] {
        let Some(wire) = wire(1500) else { return };
        let ways = [("ring", true, false), ("socket", false, false), ("socket in trains", false, true)];
        let mut ways = ways.map(|(by, rings, trains)| (by, trains, sides(&wire, rings), Vec::new(), Vec::new()));
        for _ in 0..ROUNDS {
            for (_, trains, sides, sent, came) in &mut ways {
                let (out, back) = stream(sides, *trains, bytes);
                sent.push(out);
                came.push(back);
            }
        }
        for (by, _, _, sent, came) in ways {
            let (sent, came) = (summed_up(sent).0 / 1e6, summed_up(came).0 / 1e6);
            println!("MTU 1500, stream of {bytes} B by {by}: {sent:.3} M frames/s sent, {came:.3} M taken");
        }
    }
}
