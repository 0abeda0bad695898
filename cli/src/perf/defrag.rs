//! `perf defrag`: the matrix of Speculative Defragmentation (Kurmann, Rauch, Stricker, 2000) across a veth pair. Which
//! sender, which receiver, how fragments are placed, one sender or two; how many fragments landed where they belong,
//! how often the rest was copied, and what a wrong guess costs.
//!
//! One page at a time is asked for, by word of mouth, so that the times are those of the fragments alone: both ends are
//! in this process, and the far end sends when the near one has posted its places. Two senders without admission
//! control send their fragments in turn, the worst that can happen; with it, the second one sends when the first one's
//! page has arrived.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use cutthrough_node::raw::xdp::place::Counts;
use cutthrough_node::raw::xdp::raw::Raw;
use cutthrough_node::sys::xdp::Mode;
use serde::Serialize;

use self::fragments::IpEnds;
use self::own::OwnEnds;
use crate::args::DefragArgs;
use crate::cpu;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, Times, tenths, thousandths};
use crate::progress;
use crate::stats::Samples;
use crate::table::{Table, wrapped};
use crate::units;
use crate::veth::Pair;

mod fragments;
mod own;

const NEAR: SocketAddrV4 = end(Pair::NEAR);
const FAR: SocketAddrV4 = end(Pair::FAR);
/// Where a page lies in the sender's memory: pages of the two senders, far enough apart.
const SECOND: usize = 16 << 10;
/// How long a page is waited for.
const LOST: Duration = Duration::from_millis(20);

/// In which frames pages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Ours: a header before each fragment.
    Own,
    /// Fragments of IP, as kernels make them.
    Ip,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Ip => "ip",
        }
    }

    /// What the figures are of, for people.
    const fn pages(self) -> &'static str {
        match self {
            Self::Own => "Pages in fragments",
            Self::Ip => "Pages as datagrams in fragments of IP",
        }
    }
}

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

impl Senders {
    /// In a table for people.
    const fn short(self) -> &'static str {
        match self {
            Self::One => "1",
            Self::Two => "2 at once",
            Self::TwoMatched => "2 matched",
            Self::TwoAdmitted => "2 admitted",
        }
    }
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
/// If there is no veth pair, no ring can be opened, pages are not fragmented at this MTU, or a page is wrong.
pub fn run(args: &DefragArgs, output: Output) -> Result<(), Failure> {
    let machine = Machine::here();
    let form = if args.fragments { Form::Ip } else { Form::Own };
    let mode = if args.native { Mode::Native } else { Mode::Generic };
    let pair = Pair::make(args.veth)?;
    let mut table = Table::new(&["page", "sender", "placement", "senders", "whole", "placed", "copies", "p50", "miss"]);
    let (rows, mut strays) = (rows(form), 0);
    let bar = progress::bar(rows.len());
    for (page, from, to, senders) in rows {
        let case = Case { args, form, mode, page, from, to, senders };
        let line = match form {
            Form::Own => case.measure(&pair, &machine)?,
            // A ring takes the fragments of one processor at a time: see `cutthrough_node::sys::xdp::fragments`.
            Form::Ip => cpu::on(cpu::allowed()[0], || case.measure(&pair, &machine))
                .map_err(|error| Failure::from_error(&error, "see which cores this process may use"))??,
        };
        bar.inc(1);
        table.row(vec![
            page.to_string(),
            line.sender.clone(),
            line.placement.clone(),
            senders.short().into(),
            format!("{:.1} %", line.complete as f64 * 100.0 / line.count.max(1) as f64),
            format!("{:.1} %", line.placed_ratio * 100.0),
            format!("{:.2}", line.copies_per_page),
            line.times.p50_ns.map(units::time).unwrap_or_default(),
            line.miss_penalty_ns.map(|ns| format!("{:+.2} us", ns / 1e3)).unwrap_or_default(),
        ]);
        strays += line.strays;
        output.line(&line)?;
    }
    bar.finish_and_clear();
    let explanation = format!(
        "{} across a veth pair of MTU {}, {} mode. Whole: pages that came in time, placed or by the kernel's socket. \
         Copies: of fragments in user space, for each page. Miss: what pages with a wrong guess take longer. Two \
         senders send at once, where a ring takes every fragment or the announced ones (matched), or one after the \
         other (admitted). Frames of others that came to the rings: {strays}.",
        form.pages(),
        args.veth,
        mode.name()
    );
    output.say(&format!("{}\n\n{table}\n\n{}", wrapped(&machine.to_string()), wrapped(&explanation)))
}

/// A kernel sends the first fragment of a datagram first: it has no row with the last one first.
fn rows(form: Form) -> Vec<(usize, From, To, Senders)> {
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
            if (form, from, to) != (Form::Ip, From::Kernel, To::Reverse) {
                rows.push((page, from, to, Senders::One));
            }
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
    form: Form,
    mode: Mode,
    page: usize,
    from: From,
    to: To,
    senders: Senders,
}

/// Both ends of a row, in one of the forms.
trait Ends {
    /// Has one page of each of these senders sent, at once, in a turn with a number of its own, and receives them. How
    /// many came whole; the others are given up.
    fn exchange(&mut self, turn: u32, senders: &[u8]) -> Result<u64, Failure>;

    /// What has been counted so far. Where nothing is placed by a ring, hits are those of the kernel.
    fn counts(&self) -> Counts;

    /// How many hits a page is whose fragments all land where they belong.
    fn hits_of_a_page(&self) -> f64;

    /// Frames that found no place.
    fn dropped(&self) -> u64;
}

/// What became of the pages of a turn.
struct Turn {
    /// How many came whole.
    complete: u64,
    /// How long each took, if all of them did.
    took: Option<Duration>,
    /// Whether a fragment of them was copied.
    copied: bool,
}

impl Case<'_> {
    fn measure(self, pair: &Pair, machine: &Machine) -> Result<DefragLine, Failure> {
        let mut ends: Box<dyn Ends> = match self.form {
            Form::Own => Box::new(OwnEnds::open(self, pair)?),
            Form::Ip => Box::new(IpEnds::open(self, pair)?),
        };
        let warm = self.args.pages / 10;
        let turns = self.args.pages + warm;
        for turn in 0..warm {
            self.turn(ends.as_mut(), turn)?;
        }
        let base = ends.counts();
        let mut complete = 0;
        let (mut all, mut hit, mut miss) = (Samples::new(), Samples::new(), Samples::new());
        for turn in warm..turns {
            let turn = self.turn(ends.as_mut(), turn)?;
            complete += turn.complete;
            if let Some(took) = turn.took {
                all.record_duration(took);
                if turn.copied { &mut miss } else { &mut hit }.record_duration(took);
            }
        }
        let counts = ends.counts();
        if self.senders == Senders::Two {
            // What the same pages take when no guess is wrong, to say what a wrong one costs.
            let admitted = Case { senders: Senders::TwoAdmitted, ..self };
            for turn in turns..turns + self.args.pages / 2 {
                let turn = admitted.turn(ends.as_mut(), turn)?;
                turn.took.filter(|_| !turn.copied).into_iter().for_each(|took| hit.record_duration(took));
            }
        }
        let p50 =
            |samples: &Samples| samples.quantiles(1.0).filter(|found| found.count >= 10).map(|found| found.p50_ns);
        let penalty = p50(&miss).zip(p50(&hit)).map(|(miss, hit)| tenths(miss - hit));
        let asked = u64::from(self.args.pages) * self.tags().len() as u64;
        // A fragment that the kernel writes to several places is one, placed when all of them were right.
        let placed = ((counts.hits - base.hits) as f64 / ends.hits_of_a_page() / asked.max(1) as f64).min(1.0);
        Ok(DefragLine {
            test: "defrag",
            form: self.form.name(),
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
            dropped: ends.dropped(),
            times: all.quantiles(1.0).as_ref().map(Times::from).unwrap_or_default(),
            miss_penalty_ns: penalty,
            machine: machine.clone(),
        })
    }

    /// The senders.
    fn tags(self) -> &'static [u8] {
        if self.senders == Senders::One { &[1] } else { &[1, 2] }
    }

    /// One page of each sender: those that are admitted together at once.
    fn turn(self, ends: &mut dyn Ends, turn: u32) -> Result<Turn, Failure> {
        let tags = self.tags();
        let copies = ends.counts().copies;
        let begun = Instant::now();
        let mut complete = 0;
        for admitted in tags.chunks(if self.senders == Senders::TwoAdmitted { 1 } else { tags.len() }) {
            complete += ends.exchange(turn, admitted)?;
        }
        let took = begun.elapsed() / u32::try_from(tags.len()).unwrap_or(1);
        let took = (complete == tags.len() as u64).then_some(took);
        Ok(Turn { complete, took, copied: ends.counts().copies > copies })
    }

    /// The ring of the first sender, with room for two pages, if there is one in this row.
    fn sender(self, pair: &Pair) -> Result<Option<Raw>, Failure> {
        let open = || Raw::open(FAR, NEAR, Some(self.mode), 2 * SECOND as u64);
        (self.from == From::Raw).then(|| opened(pair.far.within(open))).transpose()
    }
}

const fn end(ip: IpAddr) -> SocketAddrV4 {
    match ip {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, 7000),
        IpAddr::V6(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7000),
    }
}

/// What was opened in a namespace, if the thread came there.
fn opened<T, E: fmt::Display>(within: io::Result<Result<T, E>>) -> Result<T, Failure> {
    let refused = |error: &dyn fmt::Display| Failure::from_error(&error, "run it as root, and see 'ip link'");
    within.map_err(|error| refused(&error))?.map_err(|error| refused(&error))
}

fn again(error: impl fmt::Display) -> Failure {
    Failure::from_error(&error, "run it again")
}

/// Tries to send until there is room, as long as a page is waited for.
fn send(mut try_to: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !try_to()? {
        if begun.elapsed() > LOST {
            return Err(Failure::new("fragments cannot be sent", "run it again"));
        }
    }
    Ok(())
}

/// The first byte of a fragment, by which it is known again.
fn content(turn: u32, tag: u8, at: usize) -> u8 {
    let [a, b, ..] = turn.to_le_bytes();
    a ^ b.rotate_left(3) ^ u8::try_from(at / 64 % 251).unwrap_or(0) ^ tag.rotate_left(6)
}
