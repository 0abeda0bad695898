//! The ends of `perf defrag` in our own form: a header of 64 bytes, and a slice of a page whose first byte says which
//! one it is.

use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::time::Instant;

use cutthrough_node::raw::xdp::place::{Counts, Key};
use cutthrough_node::raw::xdp::raw::Raw;
use cutthrough_node::raw::xdp::stream::{Arrived, Placement, Stream};
use cutthrough_node::sys::datagram::Datagrams;
use cutthrough_node::sys::xdp::Interface;
use cutthrough_node::sys::xdp::program::ENVELOPE_BYTES;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use super::{Case, Ends, FAR, LOST, NEAR, Senders, To, again, content, opened, send};
use crate::failure::Failure;
use crate::veth::Pair;

/// Bytes of our header before each fragment.
const HEADER: usize = 64;
/// Most bytes of a frame that the kernel writes to one place.
const PIECE: usize = 3840;

/// Both ends of a row: a page is sent as frames of ours.
pub(super) struct OwnEnds {
    kernel: Datagrams,
    raw: Option<Raw>,
    backwards: bool,
    receiver: Receiver,
}

impl OwnEnds {
    /// # Errors
    /// If a socket or a ring cannot be opened.
    pub(super) fn open(case: Case<'_>, pair: &Pair) -> Result<Self, Failure> {
        let slice = slice(case);
        // A socket that gets datagrams one by one: those of a ring would be joined to trains.
        let socket = opened(pair.near.within(|| UdpSocket::bind(NEAR)))?;
        let kernel = opened(pair.far.within(|| Datagrams::bind(FAR.into())))?;
        let inside = match case.to {
            To::Kernel => Inside::Kernel,
            To::Copy => Inside::Copy(Box::new(opened(pair.near.within(|| Raw::open(NEAR, FAR, Some(case.mode), 0)))?)),
            To::Reverse | To::Cut => {
                let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
                let placement = Placement {
                    page: number(case.page),
                    slice: number(slice),
                    cut: case.to == To::Cut,
                    strict: case.senders == Senders::TwoMatched,
                    window: 4,
                };
                Inside::Placed(Box::new(opened(
                    pair.near.within(|| Stream::open(&Interface::named("near")?, NEAR, (0, case.mode), placement)),
                )?))
            }
        };
        let receiver = Receiver {
            socket,
            inside,
            page: vec![0; case.page],
            slice,
            counts: Counts::default(),
            expected: Vec::new(),
        };
        Ok(Self { kernel, raw: case.sender(pair)?, backwards: case.to == To::Reverse, receiver })
    }

    /// Sends one fragment: the second sender is always the kernel's socket.
    fn send(&mut self, key: Key, (at, bytes): (usize, usize)) -> Result<(), Failure> {
        let header = header(key, at, bytes);
        send(|| match &mut self.raw {
            Some(raw) if key.tag == 1 => {
                // The page's contents: the sender has made them there.
                raw.page(at as u64, bytes)[0] = content_of(key, at);
                raw.send(&header, at as u64, bytes).map_err(again)
            }
            _ => {
                let mut payload = vec![0; bytes];
                payload[0] = content_of(key, at);
                let parts = [IoSlice::new(&header), IoSlice::new(&payload)];
                Ok(self.kernel.send(Some(NEAR.into()), &parts, None).is_ok())
            }
        })
    }
}

impl Ends for OwnEnds {
    fn exchange(&mut self, turn: u32, senders: &[u8]) -> Result<u64, Failure> {
        let keys = senders.iter().map(|tag| Key { tag: u32::from(*tag), generation: 77, message: turn, first: 0 });
        let keys: Vec<Key> = keys.collect();
        let (page, slice) = (self.receiver.page.len(), self.receiver.slice);
        let mut fragments: Vec<_> = (0..page).step_by(slice).map(|at| (at, slice.min(page - at))).collect();
        if self.backwards {
            fragments.reverse();
        }
        for key in &keys {
            self.receiver.expect(*key)?;
        }
        for fragment in fragments {
            for key in &keys {
                self.send(*key, fragment)?;
            }
        }
        self.receiver.wait()
    }

    fn counts(&self) -> Counts {
        self.receiver.counts()
    }

    fn hits_of_a_page(&self) -> f64 {
        let Receiver { inside, page, slice, .. } = &self.receiver;
        // How many places a whole fragment takes.
        let places = if matches!(inside, Inside::Placed(_)) { slice.div_ceil(PIECE) } else { 1 };
        (page.len().div_ceil(*slice) * places) as f64
    }

    fn dropped(&self) -> u64 {
        if let Inside::Placed(stream) = &self.receiver.inside { stream.dropped() } else { 0 }
    }
}

/// What the fragments of a row come into.
struct Receiver {
    socket: UdpSocket,
    inside: Inside,
    /// The page of the kernel's socket and of the ring that copies.
    page: Vec<u8>,
    slice: usize,
    /// What was counted outside of the places.
    counts: Counts,
    /// Pages that are expected, and which of their fragments have come another way than to their places.
    expected: Vec<(Key, u64)>,
}

enum Inside {
    Kernel,
    Copy(Box<Raw>),
    Placed(Box<Stream>),
}

impl Receiver {
    fn expect(&mut self, key: Key) -> Result<(), Failure> {
        self.expected.push((key, 0));
        if let Inside::Placed(stream) = &mut self.inside {
            stream.expect(key).map_err(again)?;
        }
        Ok(())
    }

    /// Receives until all expected pages are whole, or time is over. How many were whole.
    fn wait(&mut self) -> Result<u64, Failure> {
        let begun = Instant::now();
        let mut whole = 0;
        while !self.expected.is_empty() && begun.elapsed() < LOST {
            whole += match &mut self.inside {
                Inside::Kernel => 0,
                Inside::Copy(raw) => {
                    let (page, expected, counts) = (&mut self.page, &mut self.expected, &mut self.counts);
                    let slice = self.slice;
                    let mut done = 0;
                    raw.receive(&mut |body| {
                        let Some((header, payload)) = body.split_at_checked(HEADER) else { return };
                        let Some((tag, message, at)) = parse(header) else { return };
                        if let Some(place) = page.get_mut(at..at + payload.len()) {
                            place.copy_from_slice(payload);
                            counts.misses += 1;
                            counts.copies += 1;
                            done += note(expected, (tag, message, at), slice, page.len());
                        }
                    });
                    done
                }
                Inside::Placed(stream) => {
                    let mut pages = Vec::new();
                    let received = stream.receive(&mut |arrived| {
                        if let Arrived::Page(page) = arrived {
                            pages.push(page);
                        }
                    });
                    received.map_err(again)?;
                    for page in &pages {
                        let bytes = stream.page(page.at);
                        for at in (0..bytes.len()).step_by(self.slice) {
                            if bytes[at] != content_of(page.key, at) {
                                return Err(Failure::check(format!("page {} is wrong at byte {at}", page.key.message)));
                            }
                        }
                        stream.release(*page);
                        self.expected.retain(|(key, _)| *key != page.key);
                    }
                    pages.len() as u64
                }
            };
            whole += self.by_socket();
        }
        // What has not come by now is lost.
        for (key, _) in std::mem::take(&mut self.expected) {
            if let Inside::Placed(stream) = &mut self.inside {
                stream.give_up(key);
            }
        }
        Ok(whole)
    }

    /// Takes in one datagram of the kernel's socket: its fragment is put where the next one is expected.
    fn by_socket(&mut self) -> u64 {
        let bytes = self.page.len();
        let Some((first, come)) = self.expected.first().copied() else { return 0 };
        let guess = ((come.trailing_ones() as usize) * self.slice).min(bytes - 1);
        let room = self.slice.min(bytes - guess);
        let mut header = [0; HEADER];
        let mut rest = [0; 9000];
        let place = &mut self.page[guess..guess + room];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(place), IoSliceMut::new(&mut rest)];
        let mut nothing = RecvAncillaryBuffer::default();
        let received = recvmsg(&self.socket, &mut parts, &mut nothing, RecvFlags::DONTWAIT);
        let Ok(received) = received else { return 0 };
        let Some((tag, message, at)) = parse(&header).filter(|_| received.bytes >= HEADER) else { return 0 };
        let right = (tag, message, at) == (first.tag, first.message, guess);
        self.counts.hits += u64::from(right);
        if !right {
            self.counts.misses += 1;
            self.counts.copies += 1;
            // Where it lies now, up to what fits, to where it belongs.
            let length = (received.bytes - HEADER).min(room).min(bytes.saturating_sub(at));
            self.page.copy_within(guess..guess + length, at.min(bytes - length));
        }
        let whole = note(&mut self.expected, (tag, message, at), self.slice, bytes);
        if let (1, Inside::Placed(stream)) = (whole, &mut self.inside) {
            stream.give_up(Key { tag, message, ..first });
        }
        whole
    }

    fn counts(&self) -> Counts {
        let mine = self.counts;
        match &self.inside {
            Inside::Kernel => mine,
            // What the socket takes beside a ring has not landed where the ring is measured.
            Inside::Copy(_) => Counts { hits: 0, ..mine },
            Inside::Placed(stream) => {
                let placed = *stream.counts();
                Counts { misses: mine.misses + placed.misses, copies: mine.copies + placed.copies, ..placed }
            }
        }
    }
}

/// Notes that a fragment has come outside of the places. 1 if its page is whole now.
fn note(expected: &mut Vec<(Key, u64)>, (tag, message, at): (u32, u32, usize), slice: usize, bytes: usize) -> u64 {
    let found = expected.iter().position(|(key, _)| (key.tag, key.message) == (tag, message));
    let Some(index) = found else { return 0 };
    expected[index].1 |= 1 << (at / slice).min(63);
    if expected[index].1.count_ones() as usize == bytes.div_ceil(slice) {
        expected.remove(index);
        return 1;
    }
    0
}

/// Bytes of payload of a frame.
fn slice(case: Case<'_>) -> usize {
    let fits = case.args.veth as usize + 14 - ENVELOPE_BYTES - HEADER;
    // A frame that ends up in one buffer of the kernel's, but where headers are cut off: that may be several.
    let fits = if case.to == To::Reverse { fits.min(PIECE - ENVELOPE_BYTES - HEADER) } else { fits };
    (fits / 64 * 64).min(case.page)
}

fn content_of(key: Key, at: usize) -> u8 {
    content(key.message, u8::try_from(key.tag).unwrap_or(0), at)
}

fn header(key: Key, at: usize, bytes: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    // As `cutthrough_wire::frame` has it: version 1, kind Data, the body's bytes, tag, generation, message, offset.
    header[..2].copy_from_slice(&[1, 10]);
    header[2..4].copy_from_slice(&u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes());
    header[4..8].copy_from_slice(&key.tag.to_le_bytes());
    header[8..12].copy_from_slice(&key.generation.to_le_bytes());
    header[40..44].copy_from_slice(&key.message.to_le_bytes());
    let offset = key.first + u32::try_from(at).unwrap_or(u32::MAX);
    header[44..48].copy_from_slice(&offset.to_le_bytes());
    header
}

/// Tag, message, and where the fragment belongs.
fn parse(header: &[u8]) -> Option<(u32, u32, usize)> {
    let word = |at: usize| header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    Some((word(4)?, word(40)?, usize::try_from(word(44)?).ok()?))
}
