//! What a receive call brings: frames that came together, scattered over headers aside and a guessed place.
//!
//! As the adapter over sockets does it: the guess is asked for before the call, so the bytes land by their position
//! alone. Then headers are looked at, what did not land as guessed is gathered aside, and frames are brought in, in
//! their order.

use std::collections::VecDeque;
use std::net::SocketAddr;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::{Bodies, Body};
use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::memory::Place as _;
use cutthrough_engine::net::{Guess, Net};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES};

use super::memory::Host;
use super::network::Frame;

/// Frames that come together at most.
const TOGETHER: usize = 16;

/// A payload that a user is reading, and the memory that is lent for it.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    pub(super) channel: usize,
    pub(super) message: u64,
    pub(super) into: &'a mut [u8],
}

/// A run of bytes of what comes: where it lands.
#[derive(Debug, Clone, Copy)]
enum Run {
    Aside(usize),
    /// From this byte of the guessed place on.
    Landing(usize, usize),
}

/// Takes in the frames at the head of the queue that came together.
pub(super) fn together(
    net: &mut Net<Host>,
    now: Instant,
    queue: &mut VecDeque<Frame>,
    address: impl Fn(usize) -> SocketAddr,
    mut lent: Option<Lent<'_>>,
) {
    let asked = lent.as_ref().and_then(|lent| net.guess(Some((lent.channel, lent.message))));
    let in_lent = asked.is_some();
    let guess = asked.or_else(|| net.guess(None));
    let Some(first) = queue.pop_front() else { return };
    let (from, segment) = (first.from, first.bytes.len());
    let mut frames = vec![first.bytes];
    while frames.len() < TOGETHER
        && frames.last().is_some_and(|last| last.len() == segment)
        && let Some(next) = queue.pop_front_if(|next| next.from == from && next.bytes.len() <= segment)
    {
        frames.push(next.bytes);
    }
    let from = address(from);
    let landed = guess.and_then(|(guess, full)| {
        let place = land(net, guess, in_lent, &mut lent)?;
        let runs = runs(guess, full, place.len());
        let before = scatter(&runs, place, &frames);
        Some((guess, full, runs, before))
    });
    let Some((guess, full, runs, aside)) = landed else {
        let mut at = 0;
        while at < frames.len() {
            let taken = bring_run(net, now, from, &frames[at..], true, &mut lent);
            if taken == 0 {
                bring(net, now, from, &mut frames[at], &mut lent);
            }
            at += taken.max(1);
        }
        return;
    };
    let Some(place) = land(net, guess, in_lent, &mut lent) else { return };
    let place = place.to_vec();
    let mut at = 0;
    let mut first = None;
    let fits: Vec<bool> = frames
        .iter()
        .enumerate()
        .map(|(index, frame)| {
            let begin = at;
            at += frame.len();
            fits(guess, &runs, (index, begin, full), frame, &mut first)
        })
        .collect();
    // What the call has brought is where it landed, and nowhere else.
    let mut at = 0;
    for (frame, fits) in frames.iter_mut().zip(&fits) {
        let range = at..at + frame.len();
        at = range.end;
        if !fits {
            *frame = gather(&runs, &aside, &place, range);
        }
    }
    let mut fits = fits;
    let (mut at, mut next) = (0, 0);
    while next < frames.len() {
        let together = fits[next..].iter().take_while(|fits| **fits).count();
        let taken = bring_run(net, now, from, &frames[next..next + together], false, &mut lent);
        let index = next;
        next += taken.max(1);
        at += frames[index..next].iter().map(Vec::len).sum::<usize>();
        if taken > 0 {
            continue;
        }
        if !fits[index] {
            bring(net, now, from, &mut frames[index], &mut lent);
            continue;
        }
        let held = bring_landed(net, now, from, &mut frames[index], guess, &mut lent);
        if held {
            continue;
        }
        // The first message has another place: what has landed behind it is fetched before anybody else gets that.
        let Some(place) = land(net, guess, in_lent, &mut lent).map(|place| place.to_vec()) else { return };
        let mut begin = at;
        for later in index + 1..frames.len() {
            let range = begin..begin + frames[later].len();
            begin = range.end;
            if core::mem::take(&mut fits[later]) {
                frames[later] = gather(&runs, &aside, &place, range);
            }
        }
    }
}

/// The bytes that a guess speaks of.
fn land<'a>(
    net: &'a mut Net<Host>,
    guess: Guess,
    in_lent: bool,
    lent: &'a mut Option<Lent<'_>>,
) -> Option<&'a mut [u8]> {
    if in_lent {
        let Guess::Rest { begin, end, .. } = guess else { return None };
        return lent.as_mut()?.into.get_mut(begin as usize..end as usize);
    }
    let end = match guess {
        Guess::Rest { begin, end, .. } => (end - begin) as usize,
        Guess::Fresh { .. } => usize::MAX,
    };
    let (place, begin) = net.guessed(guess)?;
    Some(place.piece(begin, end))
}

/// The list of where bytes land; what is beyond it lands aside.
fn runs(guess: Guess, full: usize, room: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < room && runs.len() < 2 * TOGETHER {
        let aside = if runs.is_empty() && matches!(guess, Guess::Fresh { .. }) {
            HEADER_BYTES + OPENING_BYTES
        } else {
            HEADER_BYTES
        };
        let len = (full - aside).min(room - at);
        runs.push(Run::Aside(aside));
        runs.push(Run::Landing(at, len));
        at += len;
    }
    runs.push(Run::Aside(usize::MAX));
    runs
}

/// Each run of a range of what comes: where it lands, and the range.
fn parts(runs: &[Run], range: std::ops::Range<usize>) -> Vec<(Run, usize, usize)> {
    let (mut begin, mut aside, mut found) = (0_usize, 0, Vec::new());
    for run in runs {
        let len = match run {
            Run::Aside(len) | Run::Landing(_, len) => *len,
        };
        let end = begin.saturating_add(len);
        let (from, to) = (range.start.max(begin), range.end.min(end));
        if from < to {
            let skipped = from - begin;
            let part = match run {
                Run::Aside(_) => Run::Aside(aside + skipped),
                Run::Landing(at, _) => Run::Landing(at + skipped, to - from),
            };
            found.push((part, from, to));
        }
        if matches!(run, Run::Aside(_)) {
            aside = aside.saturating_add(len);
        }
        begin = end;
    }
    found
}

/// Lets everything land; what lands aside is given back.
fn scatter(runs: &[Run], place: &mut [u8], frames: &[Vec<u8>]) -> Vec<u8> {
    let all: Vec<u8> = frames.concat();
    let mut aside = Vec::new();
    for (part, from, to) in parts(runs, 0..all.len()) {
        match part {
            Run::Aside(_) => aside.extend_from_slice(&all[from..to]),
            Run::Landing(at, len) => place[at..at + len].copy_from_slice(&all[from..to]),
        }
    }
    aside
}

/// Gathers what has landed of a range.
fn gather(runs: &[Run], aside: &[u8], place: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(range.len());
    for (part, from, to) in parts(runs, range) {
        match part {
            Run::Aside(at) => bytes.extend_from_slice(&aside[at..at + (to - from)]),
            Run::Landing(at, len) => bytes.extend_from_slice(&place[at..at + len]),
        }
    }
    bytes
}

/// Whether a frame lies as the guess said; `first` remembers what the first one is of.
fn fits(
    guess: Guess,
    runs: &[Run],
    (index, begin, full): (usize, usize, usize),
    frame: &[u8],
    first: &mut Option<(u32, u32, u32)>,
) -> bool {
    if begin != index * full || frame.len() > full {
        return false;
    }
    let Some(head) = frame.first_chunk() else { return false };
    let Ok(header) = Header::from_bytes(head) else { return false };
    let (channel, fresh) = match guess {
        Guess::Fresh { channel } => (channel, true),
        Guess::Rest { channel, .. } => (channel, false),
    };
    if header.tag as usize != channel {
        return false;
    }
    let who = (header.tag, header.generation, header.words[0]);
    let opens = fresh && index == 0;
    let before = if opens { HEADER_BYTES + OPENING_BYTES } else { HEADER_BYTES };
    if header.kind != if opens { Kind::Open } else { Kind::Data } || frame.len() < before {
        return false;
    }
    let len = frame.len() - before;
    let offset = match guess {
        Guess::Fresh { .. } => 0,
        Guess::Rest { message, begin, .. } => {
            #[allow(clippy::cast_possible_truncation, reason = "the low half travels")]
            if header.words[0] != message as u32 {
                return false;
            }
            begin as usize
        }
    };
    if !opens && fresh && *first != Some(who) {
        return false;
    }
    if usize::from(header.body) + HEADER_BYTES > frame.len() {
        return false;
    }
    // Padding may lie anywhere, the payload may not.
    let whole = (usize::from(header.body) + HEADER_BYTES).saturating_sub(before).min(len);
    let there = parts(runs, begin + before..begin + before + whole);
    let lies = match there[..] {
        [] => true,
        [(Run::Landing(at, _), ..)] => opens || offset + at == header.words[1] as usize,
        _ => false,
    };
    if lies && opens {
        *first = Some(who);
    }
    lies
}

pub(super) fn bring(
    net: &mut Net<Host>,
    now: Instant,
    from: SocketAddr,
    frame: &mut [u8],
    lent: &mut Option<Lent<'_>>,
) -> bool {
    let Some((head, body)) = frame.split_first_chunk_mut() else { return true };
    let mut reading = lent.as_mut().map(|lent| (lent.channel, Reading { message: lent.message, into: lent.into }));
    let reading = reading.as_mut().map(|(channel, reading)| (*channel, reading));
    net.frame(now, from, head, Body::Aside(body), reading)
}

/// Brings frames in together that lie aside, or have landed: how many of them.
fn bring_run(
    net: &mut Net<Host>,
    now: Instant,
    from: SocketAddr,
    frames: &[Vec<u8>],
    aside: bool,
    lent: &mut Option<Lent<'_>>,
) -> usize {
    let heads = frames.iter().map_while(|frame| frame.first_chunk::<HEADER_BYTES>().copied());
    let heads: Vec<_> = heads.take_while(|head| head[1] == Kind::Data as u8).collect();
    let mut train = if aside { frames.concat() } else { Vec::new() };
    let segment = frames.first().map_or(0, Vec::len);
    let bodies = if aside { Bodies::Aside(&mut train, segment) } else { Bodies::Landed };
    let mut reading = lent.as_mut().map(|lent| (lent.channel, Reading { message: lent.message, into: lent.into }));
    let reading = reading.as_mut().map(|(channel, reading)| (*channel, reading));
    net.run(now, from, (&heads, bodies), reading)
}

fn bring_landed(
    net: &mut Net<Host>,
    now: Instant,
    from: SocketAddr,
    frame: &mut [u8],
    guess: Guess,
    lent: &mut Option<Lent<'_>>,
) -> bool {
    let Some((head, body)) = frame.split_first_chunk_mut::<HEADER_BYTES>() else { return true };
    let opens = head[1] == Kind::Open as u8;
    let body = if opens && matches!(guess, Guess::Fresh { .. }) {
        let (opening, payload) = body.split_at_mut(OPENING_BYTES);
        Body::Landed { opening: Some(opening), len: payload.len() }
    } else {
        Body::Landed { opening: None, len: body.len() }
    };
    let mut reading = lent.as_mut().map(|lent| (lent.channel, Reading { message: lent.message, into: lent.into }));
    let reading = reading.as_mut().map(|(channel, reading)| (*channel, reading));
    net.frame(now, from, head, body, reading)
}

/// The frames of a batch.
pub(super) fn frames(net: &Net<Host>, channel: usize, batch: &Batch) -> Vec<Vec<u8>> {
    use cutthrough_engine::net::batch::Piece;
    use cutthrough_engine::net::memory::Load as _;
    let mut bytes = Vec::with_capacity(batch.bytes());
    for piece in batch.pieces() {
        match *piece {
            Piece::Own { at, len } => bytes.extend_from_slice(&batch.own()[at..at + len]),
            Piece::Payload { message, offset, len } => {
                if let Some(load) = net.load(channel, message) {
                    bytes.extend_from_slice(load.piece(offset, len));
                }
            }
        }
    }
    bytes.chunks(batch.segment().max(1)).map(<[u8]>::to_vec).collect()
}
