//! `perf defrag`: the matrix of Speculative Defragmentation (Kurmann, Rauch, Stricker, 2000) across a veth pair. Which
//! sender, which receiver, how fragments are placed, one sender or two; how many fragments landed where they belong,
//! how often the rest was copied, and what a wrong guess costs.
//!
//! One page at a time is asked for, by word of mouth, so that the times are those of the fragments alone: both ends are
//! in this process, and the far end sends when the near one has posted its places. Two senders without admission
//! control send their fragments in turn, the worst that can happen; with it, the second one sends when the first one's
//! page has arrived.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use cutthrough_node::raw::xdp::place::{Counts, Key};
use cutthrough_node::raw::xdp::raw::Raw;
use cutthrough_node::raw::xdp::stream::{Arrived, Placement, Stream};
use cutthrough_node::sys::datagram::Datagrams;
use cutthrough_node::sys::xdp::program::ENVELOPE_BYTES;
use cutthrough_node::sys::xdp::{Interface, Mode};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
use serde::Serialize;

use self::frame::{HEADER, content, header, parse};
use super::limits::Wire;
use crate::args::DefragArgs;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, Times, tenths, thousandths};
use crate::progress;
use crate::stats::{Quantiles, Samples};
use crate::table::Table;
use crate::units;
use crate::veth::Pair;

mod fragments;
mod frame;

/// Where a page lies in the sender's memory: pages of the two senders, far enough apart.
const SECOND: usize = 16 << 10;
/// How long a page is waited for.
const LOST: Duration = Duration::from_millis(20);

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Kernel,
    Raw,
}

/// Who receives, and how fragments are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// The kernel's socket: headers aside, fragments where they belong, by the list of the call.
    Kernel,
    /// A ring, out of whose buffers everything is copied.
    Copy,
    /// Last fragment first; headers are overwritten.
    Reverse,
    /// Headers are cut off.
    Cut,
}

/// One or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Senders {
    One,
    /// Fragments in turn, and every fragment is taken: the adapter of the paper.
    Two,
    /// Fragments in turn, and only the announced ones are taken: the paper's matching register.
    TwoMatched,
    /// One page after the other.
    TwoAdmitted,
}

impl fmt::Display for Senders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Two => "two at once",
            Self::TwoMatched => "two, matched",
            Self::TwoAdmitted => "two, admitted",
        })
    }
}

/// One row of the matrix.
#[derive(Clone, Debug, Serialize)]
struct DefragLine {
    /// Always `defrag`.
    test: &'static str,
    /// `own`: a header of ours before each fragment; `ip`: fragments of IP, as kernels make them.
    form: &'static str,
    veth: u32,
    /// `generic` or `native`, where rings are used.
    mode: &'static str,
    /// `kernel` or `raw`; of the first sender.
    sender: String,
    /// `kernel`, `copy`, `reverse` or `cut`.
    placement: String,
    senders: String,
    /// Bytes of a page.
    size: u64,
    /// Pages that were asked for, and that arrived whole in time.
    count: u64,
    complete: u64,
    /// Part of the fragments that landed where they belong, 0 to 1.
    placed_ratio: f64,
    /// Copies of fragments in user space, for each page.
    copies_per_page: f64,
    /// Frames of others, duplicates, and the like that came to the ring.
    strays: u64,
    /// Frames that found no place.
    dropped: u64,
    /// From the word to the sender until the page is whole.
    #[serde(flatten)]
    times: Times,
    /// Median of the pages with a wrong guess less that of those without; absent if there were none with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_penalty_ns: Option<f64>,
    machine: Machine,
}

/// Measures the matrix and prints it.
///
/// # Errors
/// If there is no veth pair, or no ring can be opened.
pub fn run(args: &DefragArgs, output: Output) -> Result<(), Failure> {
    if args.fragments {
        return fragments::run(args, output);
    }
    let machine = Machine::here();
    let mode = if args.native { Mode::Native } else { Mode::Generic };
    let wire = Wire::veth(args.veth)?;
    let mut table =
        Table::new(&["page", "sender", "placement", "senders", "placed", "copies", "strays", "p50", "miss"]);
    let rows = rows();
    let bar = progress::bar(rows.len());
    for (page, from, to, senders) in rows {
        let line = Case { args, mode, page, from, to, senders }.run(&wire, &machine)?;
        bar.inc(1);
        table.row(vec![
            page.to_string(),
            line.sender.clone(),
            line.placement.clone(),
            line.senders.clone(),
            format!("{:.2} %", line.placed_ratio * 100.0),
            format!("{:.2}", line.copies_per_page),
            line.strays.to_string(),
            line.times.p50_ns.map(units::time).unwrap_or_default(),
            line.miss_penalty_ns.map(|ns| format!("{:+.2} us", ns / 1e3)).unwrap_or_default(),
        ]);
        output.line(&line)?;
    }
    bar.finish_and_clear();
    output.say(&format!(
        "Pages in fragments across a veth pair of MTU {}, {} mode. Copies: of fragments in user space, for each \
         page. Miss: what pages with a wrong guess take longer.\n\n{table}",
        args.veth,
        mode.name()
    ))
}

fn rows() -> Vec<(usize, From, To, Senders)> {
    let mut rows = Vec::new();
    for page in [4096, 8192] {
        for (from, to) in [
            (From::Kernel, To::Kernel),
            (From::Raw, To::Kernel),
            (From::Kernel, To::Copy),
            (From::Kernel, To::Reverse),
            (From::Kernel, To::Cut),
            (From::Raw, To::Copy),
            (From::Raw, To::Reverse),
            (From::Raw, To::Cut),
        ] {
            rows.push((page, from, to, Senders::One));
        }
        for to in [To::Kernel, To::Reverse, To::Cut] {
            rows.push((page, From::Raw, to, Senders::Two));
            if to != To::Kernel {
                rows.push((page, From::Raw, to, Senders::TwoMatched));
            }
            rows.push((page, From::Raw, to, Senders::TwoAdmitted));
        }
    }
    rows
}

/// What is measured in one row.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    args: &'a DefragArgs,
    mode: Mode,
    page: usize,
    from: From,
    to: To,
    senders: Senders,
}

/// Both ends of a row.
struct Ends {
    kernel: Datagrams,
    raw: Option<Raw>,
    near: SocketAddrV4,
    receiver: Receiver,
}

impl Case<'_> {
    /// Bytes of payload of a frame.
    fn slice(&self) -> usize {
        let fits = self.args.veth as usize + 14 - ENVELOPE_BYTES - HEADER;
        // A frame that ends up in one buffer of the kernel's, but where headers are cut off: that may be several.
        let fits = if self.to == To::Reverse { fits.min(3840 - ENVELOPE_BYTES - HEADER) } else { fits };
        (fits / 64 * 64).min(self.page)
    }

    fn run(self, wire: &Wire, machine: &Machine) -> Result<DefragLine, Failure> {
        let mut ends = self.open(wire)?;
        let mut whole = [Samples::new(), Samples::new()];
        let mut all = Samples::new();
        let (mut complete, mut asked) = (0, 0);
        let warm = self.args.pages / 10;
        for turn in 0..self.args.pages + warm {
            if turn == warm {
                (complete, asked) = (0, 0);
                ends.receiver.forget();
                [all, whole[0], whole[1]] = [Samples::new(), Samples::new(), Samples::new()];
            }
            let copies = ends.receiver.copies();
            let begun = Instant::now();
            let keys = self.keys(turn);
            asked += keys.len() as u64;
            let came = self.ask(&mut ends, &keys)?;
            let took = begun.elapsed() / u32::try_from(keys.len()).unwrap_or(1);
            complete += came;
            if came == keys.len() as u64 {
                all.record_duration(took);
                whole[usize::from(ends.receiver.copies() > copies)].record_duration(took);
            }
        }
        let counts = ends.receiver.counts();
        if self.senders == Senders::Two {
            // What the same pages take when no guess is wrong, to say what a wrong one costs.
            let admitted = Case { senders: Senders::TwoAdmitted, ..self };
            for turn in (self.args.pages + warm..).take(self.args.pages as usize / 2) {
                let (copies, begun, keys) = (ends.receiver.copies(), Instant::now(), self.keys(turn));
                let came = admitted.ask(&mut ends, &keys)?;
                let took = begun.elapsed() / u32::try_from(keys.len()).unwrap_or(1);
                if came == keys.len() as u64 && ends.receiver.copies() == copies {
                    whole[0].record_duration(took);
                }
            }
        }
        let quantiles: Option<Quantiles> = all.quantiles(1.0);
        let p50 =
            |samples: &Samples| samples.quantiles(1.0).filter(|found| found.count >= 10).map(|found| found.p50_ns);
        let penalty = p50(&whole[1]).zip(p50(&whole[0])).map(|(miss, hit)| tenths(miss - hit));
        let fragments = (asked * self.page.div_ceil(self.slice()) as u64).max(1);
        // A fragment that the kernel writes to several places is one, placed when all of them were right.
        let placed = (counts.hits as f64 / ends.receiver.pieces() / fragments as f64).min(1.0);
        Ok(DefragLine {
            test: "defrag",
            form: "own",
            veth: self.args.veth,
            mode: self.mode.name(),
            sender: format!("{:?}", self.from).to_lowercase(),
            placement: format!("{:?}", self.to).to_lowercase(),
            senders: self.senders.to_string(),
            size: self.page as u64,
            count: asked,
            complete,
            placed_ratio: thousandths(placed * 100.0) / 100.0,
            copies_per_page: thousandths(counts.copies as f64 / asked.max(1) as f64),
            strays: counts.strays,
            dropped: ends.receiver.dropped(),
            times: quantiles.as_ref().map(Times::from).unwrap_or_default(),
            miss_penalty_ns: penalty,
            machine: machine.clone(),
        })
    }

    fn open(self, wire: &Wire) -> Result<Ends, Failure> {
        let refused = |error: &dyn fmt::Display| Failure::from_error(&error, "run it as root, and see 'ip link'");
        let pair = wire.pair().ok_or_else(|| Failure::new("no veth pair", "give --veth 1500"))?;
        let v4 = |ip: IpAddr, port| match ip {
            IpAddr::V4(ip) => SocketAddrV4::new(ip, port),
            IpAddr::V6(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port),
        };
        let (near, far) = (v4(Pair::NEAR, 7000), v4(Pair::FAR, 7000));
        let bind = |at: SocketAddrV4| Datagrams::bind(SocketAddr::V4(at));
        // A socket that gets datagrams one by one: those of a ring would be joined to trains.
        let socket =
            pair.near.within(|| UdpSocket::bind(near)).and_then(|made| made).map_err(|error| refused(&error))?;
        let kernel = pair.far.within(|| bind(far)).and_then(|made| made).map_err(|error| refused(&error))?;
        let page = vec![0; self.page];
        let inside = pair.near.within(|| match self.to {
            To::Kernel => Ok(Inside::Kernel),
            To::Copy => Raw::open(near, far, Some(self.mode), 0)
                .map(Box::new)
                .map(Inside::Copy)
                .map_err(|error| refused(&error)),
            To::Reverse | To::Cut => {
                let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
                let placement = Placement {
                    page: number(self.page),
                    slice: number(self.slice()),
                    cut: self.to == To::Cut,
                    strict: self.senders == Senders::TwoMatched,
                    window: 4,
                };
                let interface = Interface::named("near").map_err(|error| refused(&error))?;
                let stream = Stream::open(&interface, near, (0, self.mode), placement);
                stream.map(Box::new).map(Inside::Placed).map_err(|error| refused(&error))
            }
        });
        let inside = inside.map_err(|error| refused(&error))??;
        let raw = if self.from == From::Raw {
            let opened = pair.far.within(|| Raw::open(far, near, Some(self.mode), 2 * SECOND as u64));
            Some(opened.and_then(|made| made).map_err(|error| refused(&error))?)
        } else {
            None
        };
        let receiver = Receiver {
            socket,
            inside,
            page,
            slice: self.slice(),
            counts: Counts::default(),
            base: Counts::default(),
            expected: Vec::new(),
        };
        Ok(Ends { kernel, raw, near, receiver })
    }

    /// The pages of a turn: one of each sender.
    fn keys(self, turn: u32) -> Vec<Key> {
        let key = |tag| Key { tag, generation: 77, message: turn, first: 0 };
        if self.senders == Senders::One { vec![key(1)] } else { vec![key(1), key(2)] }
    }

    /// Has these pages sent, and receives them. How many came whole.
    fn ask(self, ends: &mut Ends, keys: &[Key]) -> Result<u64, Failure> {
        let fragments: Vec<(usize, usize)> = {
            let slice = self.slice();
            let mut all: Vec<_> = (0..self.page).step_by(slice).map(|at| (at, slice.min(self.page - at))).collect();
            if self.to == To::Reverse {
                all.reverse();
            }
            all
        };
        let mut came = 0;
        let rounds: Vec<&[Key]> =
            if self.senders == Senders::TwoAdmitted { keys.chunks(1).collect() } else { vec![keys] };
        for admitted in rounds {
            for key in admitted {
                ends.receiver.expect(*key)?;
            }
            for fragment in &fragments {
                for key in admitted {
                    ends.send(*key, *fragment)?;
                }
            }
            came += ends.receiver.wait()?;
        }
        Ok(came)
    }
}

impl Ends {
    /// Sends one fragment: the second sender is always the kernel's socket.
    fn send(&mut self, key: Key, (at, bytes): (usize, usize)) -> Result<(), Failure> {
        let failed = |error: &dyn fmt::Display| Failure::from_error(&error, "run it again");
        let header = header(key, at, bytes);
        let begun = Instant::now();
        loop {
            let sent = match &mut self.raw {
                Some(raw) if key.tag == 1 => {
                    let place = if key.tag == 1 { 0 } else { SECOND } + at;
                    let page = raw.page(place as u64, bytes);
                    // The page's contents: the sender has made them there.
                    page[0] = content(key, at);
                    raw.send(&header, place as u64, bytes).map_err(|error| failed(&error))?
                }
                _ => {
                    let mut payload = vec![0; bytes];
                    payload[0] = content(key, at);
                    let parts = [IoSlice::new(&header), IoSlice::new(&payload)];
                    self.kernel.send(Some(self.near.into()), &parts, None).is_ok()
                }
            };
            if sent {
                return Ok(());
            }
            if begun.elapsed() > LOST {
                return Err(Failure::new("fragments cannot be sent", "run it again"));
            }
        }
    }
}

/// What the fragments of a row come into.
struct Receiver {
    socket: UdpSocket,
    inside: Inside,
    /// The page of the kernel's socket and of the ring that copies.
    page: Vec<u8>,
    slice: usize,
    counts: Counts,
    /// What had been counted when the measurement began.
    base: Counts,
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
            stream.expect(key).map_err(|error| Failure::from_error(&error, "run it again"))?;
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
                    received.map_err(|error| Failure::from_error(&error, "run it again"))?;
                    for page in &pages {
                        let bytes = stream.page(page.at);
                        for at in (0..bytes.len()).step_by(self.slice) {
                            if bytes[at] != content(page.key, at) {
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

    /// What is counted from now on.
    fn forget(&mut self) {
        self.base = self.total();
    }

    fn total(&self) -> Counts {
        let (mine, placed) = (
            self.counts,
            match &self.inside {
                Inside::Placed(stream) => *stream.counts(),
                _ => Counts::default(),
            },
        );
        Counts {
            hits: mine.hits * if matches!(self.inside, Inside::Kernel) { 1 } else { 0 } + placed.hits,
            misses: mine.misses + placed.misses,
            strays: mine.strays + placed.strays,
            lost: placed.lost,
            lies: placed.lies,
            copies: mine.copies + placed.copies,
        }
    }

    fn counts(&self) -> Counts {
        let (now, base) = (self.total(), self.base);
        Counts {
            hits: now.hits - base.hits,
            misses: now.misses - base.misses,
            strays: now.strays - base.strays,
            lost: now.lost - base.lost,
            lies: now.lies - base.lies,
            copies: now.copies - base.copies,
        }
    }

    fn copies(&self) -> u64 {
        self.total().copies
    }

    fn dropped(&self) -> u64 {
        if let Inside::Placed(stream) = &self.inside { stream.dropped() } else { 0 }
    }

    /// How many places a whole fragment takes.
    fn pieces(&self) -> f64 {
        let places =
            if matches!(self.inside, Inside::Placed(_)) && self.slice > 3840 { self.slice.div_ceil(3840) } else { 1 };
        places as f64
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
