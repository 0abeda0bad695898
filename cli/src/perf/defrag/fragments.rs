//! The ends of `perf defrag --fragments`: the paper's own frames. A page is one datagram, and travels as the fragments
//! of IP that any kernel makes of it; so an ordinary socket can be at either end.
//!
//! A kernel sends the first fragment first, and all of a datagram at once: it has no row with the last one first, and
//! none in turn with another sender. Both senders of the rows with two are datagrams of the ring's.

use std::net::{SocketAddrV4, UdpSocket};
use std::time::Instant;

use cutthrough_node::raw::xdp::fragments::{Fragments, Paging, Placing};
use cutthrough_node::raw::xdp::place::Counts;
use cutthrough_node::raw::xdp::raw::Raw;
use cutthrough_node::sys::xdp::Interface;

use super::{Case, Ends, FAR, LOST, NEAR, SECOND, Senders, To, again, content, opened, send};
use crate::failure::Failure;
use crate::veth::Pair;

/// Both ends of a row: a page is sent as one datagram.
pub(super) struct IpEnds {
    /// Bytes of a page, and where in it each fragment begins.
    page: usize,
    begins: Vec<usize>,
    backwards: bool,
    /// The sender's socket, its ring, and the page that the socket sends.
    kernel: UdpSocket,
    raw: Option<Raw>,
    made: Vec<u8>,
    /// The receiver's socket, its pages, and the page that the socket fills: too long ones are known by a byte more.
    socket: UdpSocket,
    placed: Option<Fragments>,
    came: Vec<u8>,
    /// Fragments that the kernel has put where they belong.
    by_kernel: u64,
}

impl IpEnds {
    /// # Errors
    /// If pages are not fragmented at this MTU, or a socket or a ring cannot be opened.
    pub(super) fn open(case: Case<'_>, pair: &Pair) -> Result<Self, Failure> {
        let Case { args, page, .. } = case;
        // Bytes of IP payload of each fragment but the last one.
        let slice = (args.veth as usize).saturating_sub(20) / 8 * 8;
        if slice < 64 || page + 8 <= slice {
            let text = format!("a page of {page} bytes is not in fragments at MTU {}", args.veth);
            return Err(Failure::new(text, "give --veth 1500"));
        }
        let bind = |at: SocketAddrV4| {
            let socket = UdpSocket::bind(at)?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = opened(pair.near.within(|| bind(NEAR)))?;
        let kernel = opened(pair.far.within(|| bind(FAR)))?;
        let placing = match case.to {
            To::Kernel => None,
            To::Copy => Some(Placing::Copy),
            To::Reverse => Some(Placing::Reverse),
            To::Cut => Some(Placing::Cut),
        };
        let placed = placing.map(|placing| {
            let bytes = u32::try_from(page).unwrap_or(u32::MAX);
            let paging = Paging { page: bytes, placing, strict: case.senders != Senders::Two, window: 4 };
            opened(pair.near.within(|| Fragments::open(&Interface::named("near")?, NEAR, (0, case.mode), paging)))
        });
        Ok(Self {
            page,
            begins: (0..page + 8).step_by(slice).map(|at| at.saturating_sub(8)).collect(),
            backwards: case.to == To::Reverse,
            kernel,
            raw: case.sender(pair)?,
            made: vec![0; page],
            socket,
            placed: placed.transpose()?,
            came: vec![0; page + 1],
            by_kernel: 0,
        })
    }

    /// Sends these pages; if there are two, their fragments in turn.
    fn send(&mut self, turn: u32, tags: &[u8]) -> Result<(), Failure> {
        let Self { page: bytes, begins, .. } = self;
        let Some(raw) = &mut self.raw else {
            for tag in tags {
                // The page's contents: the sender has made them there.
                begins.iter().for_each(|at| self.made[*at] = content(turn, *tag, *at));
                self.kernel.send_to(&self.made, NEAR).map_err(again)?;
            }
            return Ok(());
        };
        let mut datagrams = Vec::new();
        for tag in tags {
            let place = usize::from(tag - 1) * SECOND;
            let page = raw.page(place as u64, *bytes);
            begins.iter().for_each(|at| page[*at] = content(turn, *tag, *at));
            datagrams.push(raw.datagram(place as u64, *bytes, false).map_err(again)?);
        }
        if let [one] = &datagrams[..] {
            return send(|| raw.send_fragments(one, self.backwards).map_err(again));
        }
        for step in 0..begins.len() {
            let part = if self.backwards { begins.len() - 1 - step } else { step };
            for datagram in &datagrams {
                send(|| raw.send_fragment(datagram, part).map_err(again))?;
            }
        }
        Ok(())
    }

    /// Receives until so many pages are whole, or time is over. How many were whole; the others are given up.
    fn wait(&mut self, turn: u32, pages: u64, mut expected: Vec<u32>) -> Result<u64, Failure> {
        let begins = &self.begins;
        let right = |page: &[u8]| {
            [1, 2].iter().any(|tag| begins.iter().all(|at| page.get(*at) == Some(&content(turn, *tag, *at))))
        };
        let begun = Instant::now();
        let mut whole = 0;
        while whole < pages && begun.elapsed() < LOST {
            if let Some(placed) = &mut self.placed {
                let mut arrived = Vec::new();
                placed.receive(&mut |page| arrived.push(page)).map_err(again)?;
                for page in arrived {
                    if !right(placed.page(page.at)) {
                        return Err(Failure::check(format!("a page of turn {turn} is wrong")));
                    }
                    placed.release(page);
                    expected.retain(|number| *number != page.number);
                    whole += 1;
                }
            }
            if let Ok(bytes) = self.socket.recv(&mut self.came) {
                // A page of an earlier turn may come late.
                if bytes == self.page && right(&self.came) {
                    self.by_kernel += begins.len() as u64;
                    whole += 1;
                }
            }
        }
        if let Some(placed) = &mut self.placed {
            expected.iter().for_each(|number| placed.give_up(*number));
        }
        Ok(whole)
    }
}

impl Ends for IpEnds {
    fn exchange(&mut self, turn: u32, senders: &[u8]) -> Result<u64, Failure> {
        let mut expected = Vec::new();
        if let Some(placed) = &mut self.placed {
            for _ in senders {
                expected.extend(placed.expect(FAR).map_err(again)?);
            }
        }
        self.send(turn, senders)?;
        self.wait(turn, senders.len() as u64, expected)
    }

    fn counts(&self) -> Counts {
        let by_kernel = Counts { hits: self.by_kernel, ..Counts::default() };
        self.placed.as_ref().map_or(by_kernel, |placed| *placed.counts())
    }

    fn hits_of_a_page(&self) -> f64 {
        self.begins.len() as f64
    }

    fn dropped(&self) -> u64 {
        self.placed.as_ref().map_or(0, Fragments::dropped)
    }
}
