//! Payloads that an adapter reads where they lie, and may still read when the other side has them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutthrough_engine::net::batch::{Batch, Piece};
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::memory::{Load, Memory, Placing, Want};
use cutthrough_engine::net::{Cargo, Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::HEADER_BYTES;

use super::wire::{Doorman, pattern};

/// A payload that an adapter reads as long as somebody says so, and that counts when it is given back.
#[derive(Debug)]
struct InPlace {
    bytes: Vec<u8>,
    read: Arc<AtomicBool>,
    back: Arc<AtomicU64>,
}

impl Load for InPlace {
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        self.bytes.piece(offset, most)
    }
    fn is_in_use(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        self.back.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Anywhere;

impl Memory for Anywhere {
    type Load = InPlace;
    type Place = Vec<u8>;
    fn place<'a>(&mut self, _channel: usize, want: &Want, _: impl Iterator<Item = &'a Vec<u8>>) -> Placing<Vec<u8>> {
        Placing::Here(vec![0; want.bytes as usize])
    }
    fn guess(&mut self, _channel: usize) -> Option<&mut Vec<u8>> {
        None
    }
}

const ADDRESSES: [([u8; 4], u16); 2] = [([10, 0, 0, 1], 7), ([10, 0, 0, 2], 7)];

/// Two endpoints, the channel of the first to the second, and the time.
struct Pair {
    ends: [Net<Anywhere>; 2],
    channel: usize,
    now: u64,
}

impl Pair {
    fn new() -> Self {
        let ends = [1, 2].map(|life| {
            let settings = Settings {
                slots: 64,
                unasked: 64 << 10,
                granted: 256 << 10,
                silence_ns: 20_000_000_000,
                deadline_ns: 20_000_000_000,
                channels: 16,
                body: 1408,
                life,
                process: 0,
                user: 0,
            };
            Net::new(settings, Anywhere, Box::new(Doorman::new(life)))
        });
        let mut pair = Self { ends, channel: 0, now: 1 };
        pair.ends[1].listen(true);
        pair.channel = pair.ends[0].call(pair.now(), SocketAddr::from(ADDRESSES[1]), 1408).unwrap();
        pair.carry();
        assert_eq!(pair.ends[0].answer(pair.channel), Some(Ok(())));
        pair
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Carries frames to and fro until nobody has any to send.
    fn carry(&mut self) {
        for _ in 0..200 {
            self.now += 1_000_000;
            let now = self.now();
            for (from, to) in [(0, 1), (1, 0)] {
                let mut frames = Vec::new();
                let net = &mut self.ends[from];
                net.tick(now);
                net.grant(now);
                frames.extend(std::iter::from_fn(|| net.greeting()).map(|(_, frame)| frame));
                let mut batch = Batch::default();
                while let Some((channel, _)) = net.batch(now, &mut batch, 1472) {
                    let mut bytes = Vec::new();
                    for piece in batch.pieces() {
                        match *piece {
                            Piece::Own { at, len } => bytes.extend_from_slice(&batch.own()[at..at + len]),
                            Piece::Payload { message, offset, len } => {
                                bytes.extend_from_slice(net.load(channel, message).unwrap().piece(offset, len));
                            }
                        }
                    }
                    frames.extend(bytes.chunks(batch.segment()).map(<[u8]>::to_vec));
                }
                for mut frame in frames {
                    let (head, body) = frame.split_first_chunk_mut::<HEADER_BYTES>().unwrap();
                    self.ends[to].frame(now, SocketAddr::from(ADDRESSES[from]), head, Body::Aside(body), None);
                }
            }
        }
    }

    /// Sends a payload with this cookie: who says whether it is read, and how many were given back.
    fn send(&mut self, cookie: u64) -> (Arc<AtomicBool>, Arc<AtomicU64>) {
        let (read, back) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let load = InPlace { bytes: pattern(cookie, 5000), read: Arc::clone(&read), back: Arc::clone(&back) };
        let cargo = Cargo { load, token: None, pages: true, cookie: Some(cookie) };
        self.ends[0].send(self.channel, b"in place", Some(cargo)).unwrap();
        (read, back)
    }

    fn completed(&mut self) -> Vec<u64> {
        let events = std::iter::from_fn(|| self.ends[0].next_event());
        let cookie = |event| if let NetEvent::Completed(_, cookie) = event { Some(cookie) } else { None };
        events.filter_map(cookie).collect()
    }

    /// Whether the other side has got all that was sent.
    fn is_there(&mut self) -> bool {
        self.ends[0].is_settled()
    }
}

fn given_back(back: &AtomicU64) -> u64 {
    back.load(Ordering::Relaxed)
}

#[test]
fn a_payload_is_given_back_when_it_is_there_and_nobody_reads_it() {
    let mut pair = Pair::new();
    let (first, second) = (pair.send(1), pair.send(2));
    pair.carry();
    assert!(pair.is_there(), "they take no place among those on their way");
    pair.ends[0].release();
    assert!(pair.completed().is_empty() && pair.ends[0].has_in_use());
    assert_eq!((given_back(&first.1), given_back(&second.1)), (0, 0));
    // Each by itself.
    second.0.store(false, Ordering::Relaxed);
    assert!(pair.completed().is_empty(), "nobody has looked");
    pair.ends[0].release();
    assert_eq!(pair.completed(), [2]);
    assert_eq!((given_back(&first.1), given_back(&second.1)), (0, 1));
    first.0.store(false, Ordering::Relaxed);
    pair.ends[0].release();
    assert_eq!((pair.completed(), given_back(&first.1)), (vec![1], 1));
    assert!(!pair.ends[0].has_in_use());
    // One that nobody reads when it is there goes at once.
    let third = pair.send(3);
    third.0.store(false, Ordering::Relaxed);
    pair.carry();
    assert_eq!((pair.completed(), given_back(&third.1)), (vec![3], 1));
}

#[test]
fn a_channel_that_ends_keeps_nothing_and_has_told_of_all_that_was_there() {
    let mut pair = Pair::new();
    let (read, back) = pair.send(1);
    pair.carry();
    let peers = pair.ends[1].next_event();
    assert!(matches!(peers, Some(NetEvent::Opened(_))), "{peers:?}");
    pair.ends[1].close_all();
    pair.carry();
    pair.ends[1].let_go();
    pair.ends[0].let_go();
    pair.carry();
    let events: Vec<_> = std::iter::from_fn(|| pair.ends[0].next_event()).collect();
    assert!(matches!(events[..], [NetEvent::Completed(_, 1), NetEvent::Closed(..)]), "{events:?}");
    assert_eq!(given_back(&back), 1);
    // What it left behind is nobody's.
    read.store(false, Ordering::Relaxed);
    pair.ends[0].release();
    assert!(!pair.ends[0].has_in_use() && pair.completed().is_empty());
}
