//! `perf defrag --fragments`: the matrix with the paper's own frames. A page is one datagram, and travels as the
//! fragments of IP that any kernel makes of it; so an ordinary socket can be at either end.
//!
//! A kernel sends the first fragment first, and all of a datagram at once: it has no row with the last one first, and
//! none in turn with another sender. Both senders of the rows with two are datagrams of the ring's.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Instant;

use cutthrough_node::raw::xdp::fragments::{Fragments, Paging, Placing};
use cutthrough_node::raw::xdp::place::Counts;
use cutthrough_node::raw::xdp::raw::Raw;
use cutthrough_node::sys::xdp::{Interface, Mode};

use super::super::limits::Wire;
use super::{DefragLine, From, LOST, SECOND, Senders, To};
use crate::args::DefragArgs;
use crate::cpu;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, Times, tenths, thousandths};
use crate::progress;
use crate::stats::Samples;
use crate::table::Table;
use crate::units;
use crate::veth::Pair;

/// The longest page.
const PAGE_MAX: usize = 8192;

/// Measures the matrix and prints it.
///
/// # Errors
/// If there is no veth pair, no ring can be opened, pages are not fragmented at this MTU, or a page is wrong.
pub(super) fn run(args: &DefragArgs, output: Output) -> Result<(), Failure> {
    let machine = Machine::here();
    let mode = if args.native { Mode::Native } else { Mode::Generic };
    let wire = Wire::veth(args.veth)?;
    let mut table =
        Table::new(&["page", "sender", "placement", "senders", "whole", "placed", "copies", "strays", "p50", "miss"]);
    let rows = rows();
    let bar = progress::bar(rows.len());
    for (page, from, to, senders) in rows {
        let case = Case { args, mode, page, from, to, senders };
        // A ring takes the fragments of one processor at a time: see `cutthrough_node::sys::xdp::fragments`.
        let core = cpu::allowed()[0];
        let line = cpu::on(core, || case.run(&wire, &machine))
            .map_err(|error| Failure::from_error(&error, "see which cores this process may use"))??;
        bar.inc(1);
        table.row(vec![
            page.to_string(),
            line.sender.clone(),
            line.placement.clone(),
            line.senders.clone(),
            format!("{:.2} %", line.complete as f64 * 100.0 / line.count.max(1) as f64),
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
        "Pages as datagrams in fragments of IP across a veth pair of MTU {}, {} mode. Whole: pages that came, placed \
         or by the kernel's socket. Copies: of fragments in user space, for each page. Miss: what pages with a wrong \
         guess take longer.\n\n{table}",
        args.veth,
        mode.name()
    ))
}

fn rows() -> Vec<(usize, From, To, Senders)> {
    let mut rows = Vec::new();
    for page in [4096, PAGE_MAX] {
        for (from, to) in [
            (From::Kernel, To::Kernel),
            (From::Raw, To::Kernel),
            (From::Kernel, To::Copy),
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
    far: SocketAddrV4,
    near: SocketAddrV4,
    /// The sender's socket, its ring, and the page that the socket sends.
    kernel: UdpSocket,
    raw: Option<Raw>,
    made: Vec<u8>,
    /// The receiver's socket, its pages, and the page that the socket fills.
    socket: UdpSocket,
    placed: Option<Fragments>,
    came: Vec<u8>,
    /// Fragments that the kernel has put where they belong.
    by_kernel: u64,
}

impl Case<'_> {
    /// Bytes of IP payload of each fragment but the last one.
    fn slice(&self) -> usize {
        (self.args.veth as usize).saturating_sub(20) / 8 * 8
    }

    /// Where in the page each fragment begins.
    fn begins(&self) -> Vec<usize> {
        (0..self.page + 8).step_by(self.slice().max(8)).map(|at| at.saturating_sub(8)).collect()
    }

    fn run(self, wire: &Wire, machine: &Machine) -> Result<DefragLine, Failure> {
        let mut ends = self.open(wire)?;
        let mut whole = [Samples::new(), Samples::new()];
        let mut all = Samples::new();
        let (mut complete, mut asked) = (0, 0);
        let warm = self.args.pages / 10;
        let mut base = ends.counts();
        let senders = if self.senders == Senders::One { 1 } else { 2 };
        for turn in 0..self.args.pages + warm {
            if turn == warm {
                (complete, asked, base) = (0, 0, ends.counts());
                [all, whole[0], whole[1]] = [Samples::new(), Samples::new(), Samples::new()];
            }
            let copies = ends.counts().copies;
            let begun = Instant::now();
            let came = self.ask(&mut ends, turn, senders)?;
            let took = begun.elapsed() / senders;
            asked += u64::from(senders);
            complete += came;
            if came == u64::from(senders) {
                all.record_duration(took);
                whole[usize::from(ends.counts().copies > copies)].record_duration(took);
            }
        }
        let counts = ends.counts();
        if self.senders == Senders::Two {
            // What the same pages take when no guess is wrong, to say what a wrong one costs.
            let admitted = Case { senders: Senders::TwoAdmitted, ..self };
            for turn in 0..self.args.pages / 2 {
                let (copies, begun) = (ends.counts().copies, Instant::now());
                let came = admitted.ask(&mut ends, turn, senders)?;
                if came == u64::from(senders) && ends.counts().copies == copies {
                    whole[0].record_duration(begun.elapsed() / senders);
                }
            }
        }
        let quantiles = all.quantiles(1.0);
        let p50 =
            |samples: &Samples| samples.quantiles(1.0).filter(|found| found.count >= 10).map(|found| found.p50_ns);
        let penalty = p50(&whole[1]).zip(p50(&whole[0])).map(|(miss, hit)| tenths(miss - hit));
        let fragments = (asked * self.begins().len() as u64).max(1);
        let placed = (counts.hits - base.hits) as f64 / fragments as f64;
        Ok(DefragLine {
            test: "defrag",
            form: "ip",
            veth: self.args.veth,
            mode: self.mode.name(),
            sender: format!("{:?}", self.from).to_lowercase(),
            placement: format!("{:?}", self.to).to_lowercase(),
            senders: self.senders.to_string(),
            size: self.page as u64,
            count: asked,
            complete,
            placed_ratio: thousandths(placed * 100.0) / 100.0,
            copies_per_page: thousandths((counts.copies - base.copies) as f64 / asked.max(1) as f64),
            strays: counts.strays - base.strays,
            dropped: ends.placed.as_ref().map_or(0, Fragments::dropped),
            times: quantiles.as_ref().map(Times::from).unwrap_or_default(),
            miss_penalty_ns: penalty,
            machine: machine.clone(),
        })
    }

    fn open(self, wire: &Wire) -> Result<Ends, Failure> {
        let refused = |error: &dyn std::fmt::Display| Failure::from_error(&error, "run it as root, and see 'ip link'");
        if self.slice() < 64 || self.page + 8 <= self.slice() {
            let text = format!("a page of {} bytes is not in fragments at MTU {}", self.page, self.args.veth);
            return Err(Failure::new(text, "give --veth 1500"));
        }
        let pair = wire.pair().ok_or_else(|| Failure::new("no veth pair", "give --veth 1500"))?;
        let v4 = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => SocketAddrV4::new(ip, 7000),
            IpAddr::V6(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7000),
        };
        let (near, far) = (v4(Pair::NEAR), v4(Pair::FAR));
        let bind = |at: SocketAddrV4| {
            let socket = UdpSocket::bind(at)?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = pair.near.within(|| bind(near)).and_then(|made| made).map_err(|error| refused(&error))?;
        let kernel = pair.far.within(|| bind(far)).and_then(|made| made).map_err(|error| refused(&error))?;
        let placing = match self.to {
            To::Kernel => None,
            To::Copy => Some(Placing::Copy),
            To::Reverse => Some(Placing::Reverse),
            To::Cut => Some(Placing::Cut),
        };
        let placed = placing.map(|placing| {
            let page = u32::try_from(self.page).unwrap_or(u32::MAX);
            let paging = Paging { page, placing, strict: self.senders != Senders::Two, window: 4 };
            let opened = pair.near.within(|| {
                let interface = Interface::named("near")?;
                Fragments::open(&interface, near, (0, self.mode), paging)
            });
            opened.map_err(|error| refused(&error))?.map_err(|error| refused(&error))
        });
        let raw = (self.from == From::Raw).then(|| {
            let opened = pair.far.within(|| Raw::open(far, near, Some(self.mode), 2 * SECOND as u64));
            opened.and_then(|made| made).map_err(|error| refused(&error))
        });
        let (placed, raw) = (placed.transpose()?, raw.transpose()?);
        let (made, came) = (vec![0; self.page], vec![0; PAGE_MAX + 1]);
        Ok(Ends { far, near, kernel, raw, made, socket, placed, came, by_kernel: 0 })
    }

    /// Has a page of each sender sent in this turn, and receives them. How many came whole.
    fn ask(self, ends: &mut Ends, turn: u32, senders: u32) -> Result<u64, Failure> {
        let mut came = 0;
        let tags: Vec<u8> = (1..=u8::try_from(senders).unwrap_or(2)).collect();
        let at_once = if self.senders == Senders::TwoAdmitted { 1 } else { tags.len() };
        for admitted in tags.chunks(at_once) {
            let mut expected = Vec::new();
            for _ in admitted {
                if let Some(placed) = &mut ends.placed {
                    let number =
                        placed.expect(ends.far).map_err(|error| Failure::from_error(&error, "run it again"))?;
                    expected.extend(number);
                }
            }
            self.send(ends, turn, admitted)?;
            came += self.wait(ends, turn, (admitted.len(), expected))?;
        }
        Ok(came)
    }

    /// Sends these pages; if there are two, their fragments in turn.
    fn send(self, ends: &mut Ends, turn: u32, tags: &[u8]) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::from_error(&error, "run it again");
        let begins = self.begins();
        let backwards = self.to == To::Reverse;
        let Some(raw) = &mut ends.raw else {
            for tag in tags {
                // The page's contents: the sender has made them there.
                begins.iter().for_each(|at| ends.made[*at] = content(turn, *tag, *at));
                ends.kernel.send_to(&ends.made, ends.near).map_err(failed)?;
            }
            return Ok(());
        };
        let mut datagrams = Vec::new();
        for tag in tags {
            let place = usize::from(tag - 1) * SECOND;
            let page = raw.page(place as u64, self.page);
            begins.iter().for_each(|at| page[*at] = content(turn, *tag, *at));
            datagrams.push(raw.datagram(place as u64, self.page, false).map_err(failed)?);
        }
        let begun = Instant::now();
        if let [one] = &datagrams[..] {
            while !raw.send_fragments(one, backwards).map_err(failed)? {
                in_time(begun)?;
            }
            return Ok(());
        }
        for step in 0..begins.len() {
            let part = if backwards { begins.len() - 1 - step } else { step };
            for datagram in &datagrams {
                while !raw.send_fragment(datagram, part).map_err(failed)? {
                    in_time(begun)?;
                }
            }
        }
        Ok(())
    }

    /// Receives until so many pages are whole, or time is over. How many were whole; the others are given up.
    fn wait(self, ends: &mut Ends, turn: u32, (pages, mut expected): (usize, Vec<u32>)) -> Result<u64, Failure> {
        let begins = self.begins();
        let right = |page: &[u8]| {
            [1, 2].iter().any(|tag| begins.iter().all(|at| page.get(*at) == Some(&content(turn, *tag, *at))))
        };
        let wrong = || Failure::check(format!("a page of turn {turn} is wrong"));
        let begun = Instant::now();
        let mut whole = 0;
        while whole < pages && begun.elapsed() < LOST {
            if let Some(placed) = &mut ends.placed {
                let mut arrived = Vec::new();
                let received = placed.receive(&mut |page| arrived.push(page));
                received.map_err(|error| Failure::from_error(&error, "run it again"))?;
                for page in arrived {
                    if !right(placed.page(page.at)) {
                        return Err(wrong());
                    }
                    placed.release(page);
                    expected.retain(|number| *number != page.number);
                    whole += 1;
                }
            }
            if let Ok(bytes) = ends.socket.recv(&mut ends.came) {
                // A page of an earlier turn may come late.
                if bytes == self.page && right(&ends.came) {
                    ends.by_kernel += begins.len() as u64;
                    whole += 1;
                }
            }
        }
        if let Some(placed) = &mut ends.placed {
            expected.iter().for_each(|number| placed.give_up(*number));
        }
        Ok(whole as u64)
    }
}

impl Ends {
    /// What has been counted so far. Where nothing is placed, the kernel puts all fragments where they belong.
    fn counts(&self) -> Counts {
        let by_kernel = Counts { hits: self.by_kernel, ..Counts::default() };
        self.placed.as_ref().map_or(by_kernel, |placed| *placed.counts())
    }
}

fn in_time(begun: Instant) -> Result<(), Failure> {
    if begun.elapsed() > LOST {
        return Err(Failure::new("fragments cannot be sent", "run it again"));
    }
    Ok(())
}

/// The first byte of a fragment, by which it is known again.
fn content(turn: u32, tag: u8, at: usize) -> u8 {
    let [a, b, ..] = turn.to_le_bytes();
    a ^ b.rotate_left(3) ^ u8::try_from(at / 64 % 251).unwrap_or(0) ^ tag.rotate_left(6)
}
