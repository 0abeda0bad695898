//! Trains in: scattered by the guess of where their frames belong, and brought in frame by frame.

use std::io::IoSliceMut;
use std::net::SocketAddr;

use cutthrough_engine::net::Guess;
use cutthrough_engine::net::channel::{Bodies, Body};
use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::memory::Place as _;
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, low};
use rustix::io::Errno;

use super::door::{Core, bring_in};
use crate::clock;
use crate::sys::datagram::TRAIN_BYTES;

/// Trains whose first header is looked at before they are received, after frames that belonged elsewhere.
const UNFORESEEN: u32 = 256;

/// There is no train.
struct Nothing;

/// How the frames of a train should land: headers aside, one behind the other, bodies in a run of a place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// First byte of the run in the payload, and how many there are.
    first: usize,
    len: usize,
    /// Bytes of a full frame.
    full: usize,
    /// Bytes behind the header of the first frame that are not of the payload.
    opening: usize,
    frames: usize,
}

/// A frame as it should land: where its header lies, and its part of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Planned {
    head: usize,
    head_len: usize,
    offset: usize,
    len: usize,
}

impl Plan {
    /// Frames of `full` bytes into `len` bytes of a place from `first` on, as many as a train has.
    fn new(first: usize, len: usize, full: usize, opening: usize) -> Self {
        let body = full - HEADER_BYTES;
        let frames = if len == 0 { 0 } else { (len + opening).div_ceil(body).min(TRAIN_BYTES / full) };
        Self { first, len: len.min((frames * body).saturating_sub(opening)), full, opening, frames }
    }

    #[inline]
    fn get(&self, k: usize) -> Option<Planned> {
        if k >= self.frames {
            return None;
        }
        let body = self.full - HEADER_BYTES;
        // The opening is behind the first header, and takes that much of the first frame.
        let (before, opening) = if k == 0 { (0, self.opening) } else { (self.opening, 0) };
        let done = k * body - before;
        let len = (body - opening).min(self.len - done);
        let (head, head_len) = (k * HEADER_BYTES + before, HEADER_BYTES + opening);
        Some(Planned { head, head_len, offset: self.first + done, len })
    }

    fn iter(&self) -> impl Iterator<Item = Planned> + use<> {
        let plan = *self;
        (0..plan.frames).map_while(move |k| plan.get(k))
    }

    /// Bytes of all of it.
    const fn bytes(&self) -> usize {
        self.frames * HEADER_BYTES + if self.frames > 0 { self.opening } else { 0 } + self.len
    }
}

/// Where a frame lies in one piece that is not as guessed: from a byte on, so many.
#[derive(Debug, Clone, Copy)]
enum Lying {
    /// Where it was put together.
    Gathered(usize, usize),
    /// Behind the plan.
    Aside(usize, usize),
}

impl Core {
    /// Takes one train in. False if there was none.
    pub(super) fn receive(&mut self, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let placing = self.is_placing();
        // Where a ring places payloads, its register alone has the guess.
        let guess = match self.whats_next(placing, reading.as_ref()) {
            Ok(guess) => guess,
            Err(Nothing) => return false,
        };
        let misses = self.net.tally().misses;
        let any = self.receive_as(guess, placing, reading);
        if any {
            let missed = self.net.tally().misses > misses;
            self.unforeseen = if missed { UNFORESEEN } else { self.unforeseen.saturating_sub(1) };
        }
        any
    }

    /// Where the next train will land. After frames that belonged elsewhere the first header is looked at before the
    /// train is received: that is another call of the kernel, and less than a copy.
    fn whats_next(
        &mut self,
        placing: bool,
        reading: Option<&(usize, &mut Reading<'_>)>,
    ) -> Result<Option<(Guess, usize)>, Nothing> {
        let reader = reading.map(|(channel, reading)| (*channel, reading.message));
        if placing {
            return Ok(None);
        }
        if self.unforeseen == 0 {
            return Ok(self.net.guess(reader));
        }
        let mut head = [0; HEADER_BYTES];
        match self.socket.peek(&mut head) {
            Ok(HEADER_BYTES) => Ok(self.net.foresee(&head, reader)),
            Err(Errno::AGAIN) => Err(Nothing),
            _ => Ok(None),
        }
    }

    fn receive_as(
        &mut self,
        guess: Option<(Guess, usize)>,
        placing: bool,
        mut reading: Option<(usize, &mut Reading<'_>)>,
    ) -> bool {
        self.plan = Plan::default();
        if guess.is_none() {
            return self.receive_aside(placing, reading);
        }
        let mut parts: Vec<IoSliceMut<'_>> = Vec::new();
        if let Some((guess, full)) = guess {
            let (first, run): (usize, &mut [u8]) = match (reading_of(guess, &mut reading), guess) {
                (Some(reading), Guess::Rest { begin, end, .. }) => {
                    (begin as usize, &mut reading.into[begin as usize..end as usize])
                }
                (_, Guess::Fresh { .. }) => match self.net.guessed(guess) {
                    Some((place, _)) => (0, place.piece(0, usize::MAX)),
                    None => (0, &mut []),
                },
                (None, Guess::Rest { begin, end, .. }) => match self.net.guessed(guess) {
                    Some((place, _)) => (begin as usize, place.piece(begin as usize, (end - begin) as usize)),
                    None => (0, &mut []),
                },
            };
            let opening = if matches!(guess, Guess::Fresh { .. }) { OPENING_BYTES } else { 0 };
            self.plan = Plan::new(first, run.len(), full, opening);
            parts.reserve(self.plan.frames * 2 + 1);
            let (mut heads, mut run) = (&mut *self.heads, run);
            for planned in self.plan.iter() {
                let (head, rest) = heads.split_at_mut(planned.head_len);
                let (body, later) = run.split_at_mut(planned.len);
                parts.push(IoSliceMut::new(head));
                parts.push(IoSliceMut::new(body));
                (heads, run) = (rest, later);
            }
        }
        parts.push(IoSliceMut::new(&mut self.aside));
        let received = match self.socket.receive(&mut parts) {
            Ok(received) => received,
            Err(_) => return false,
        };
        drop(parts);
        let now = clock::now();
        if received.truncated || received.bytes == 0 {
            self.troubles.cut_trains += u64::from(received.truncated);
            return true;
        }
        let segment = usize::from(received.segment).max(1);
        if self.plan.frames == 0 {
            self.bring_in_all(now, (received.from, received.bytes, segment), reading);
            return true;
        }
        self.take_in(now, (received.from, received.bytes, segment), guess, reading);
        true
    }

    /// Takes one train in that is not scattered.
    fn receive_aside(&mut self, placing: bool, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let Ok(received) = self.socket.receive(&mut [IoSliceMut::new(&mut self.aside)]) else { return false };
        let segment = usize::from(received.segment).max(1);
        let wrong = received.truncated || placing && !self.may_bring_in(received.bytes.min(self.aside.len()), segment);
        self.troubles.cut_trains += u64::from(wrong);
        if !wrong {
            self.bring_in_all(clock::now(), (received.from, received.bytes, segment), reading);
        }
        true
    }

    /// Brings the frames of a train in that lies aside.
    fn bring_in_all(
        &mut self,
        now: Instant,
        (from, bytes, segment): (SocketAddr, usize, usize),
        mut reading: Option<(usize, &mut Reading<'_>)>,
    ) {
        let bytes = bytes.min(self.aside.len());
        let train = &mut self.aside[..bytes];
        let heads = copy_heads(train, segment, &mut self.heads);
        let (mut together, mut k) = (true, 0);
        while k * segment < train.len() {
            let mut reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            let rest = &mut train[k * segment..];
            if together && heads.get(k).is_some_and(|head| head[1] == Kind::Data as u8) {
                let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
                let taken = self.net.run(now, from, (&heads[k..], Bodies::Aside(rest, segment)), reading);
                // What cannot be taken in together is not tried again.
                together = taken > 0;
                k += taken;
                if together {
                    continue;
                }
            }
            let frame = rest.len().min(segment);
            bring_in(&mut self.net, now, from, &mut rest[..frame], reading);
            k += 1;
        }
    }

    /// Brings the frames of a train in that was scattered by a guess.
    fn take_in(
        &mut self,
        now: Instant,
        (from, bytes, segment): (SocketAddr, usize, usize),
        guess: Option<(Guess, usize)>,
        mut reading: Option<(usize, &mut Reading<'_>)>,
    ) {
        let Some((guess, full)) = guess else { return };
        let count = bytes.div_ceil(segment);
        let aligned = segment == full || count == 1;
        let mut aside: Vec<Option<Lying>> = Vec::with_capacity(count);
        self.gathered.clear();
        let mut message = match guess {
            Guess::Fresh { .. } => None,
            Guess::Rest { message, .. } => Some(low(message)),
        };
        // What is longer than the plan lies in one piece.
        let scattered = self.plan.bytes();
        let mut lost = false;
        for k in 0..count {
            let (begin, end) = (k * segment, bytes.min((k + 1) * segment));
            let good = aligned && !lost && self.is_as_guessed(k, end - begin, guess, &mut message);
            // Behind a first frame that opens nothing there is nothing as guessed.
            lost |= k == 0 && !good && matches!(guess, Guess::Fresh { .. });
            aside.push((!good).then(|| {
                if begin >= scattered {
                    return Lying::Aside(begin - scattered, end - begin);
                }
                let at = self.gathered.len();
                self.gather(begin, end, guess, reading_of(guess, &mut reading).map(|reading| &*reading.into));
                Lying::Gathered(at, end - begin)
            }));
        }
        let (mut failed, mut k) = (false, 0);
        while let Some(lying) = aside.get(k) {
            let mut reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            if lying.is_none() && !failed {
                let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
                let together = aside[k..].iter().take_while(|lying| lying.is_none()).count();
                let taken = self.bring_in_run(now, from, k, together, reading);
                if taken > 0 {
                    k += taken;
                    continue;
                }
            }
            let (begin, end) = (k * segment, bytes.min((k + 1) * segment));
            let lying = match *lying {
                None if failed => {
                    let at = self.gathered.len();
                    self.gather(begin, end, guess, None);
                    Some(Lying::Gathered(at, end - begin))
                }
                lying => lying,
            };
            match lying {
                Some(Lying::Gathered(at, len)) => {
                    bring_in(&mut self.net, now, from, &mut self.gathered[at..at + len], reading);
                }
                Some(Lying::Aside(at, len)) => {
                    bring_in(&mut self.net, now, from, &mut self.aside[at..at + len], reading);
                }
                None => {
                    let Some(planned) = self.plan.get(k) else { break };
                    let head = &mut self.heads[planned.head..planned.head + planned.head_len];
                    if let Some((head, opening)) = head.split_first_chunk_mut::<HEADER_BYTES>() {
                        let opening = (!opening.is_empty()).then_some(opening);
                        let body = Body::Landed { opening, len: end - begin - planned.head_len };
                        failed |= !self.net.frame(now, from, head, body, reading);
                    }
                }
            }
            k += 1;
        }
    }

    /// Brings frames in that have landed as planned, from the `k`-th on: how many of up to `most`.
    fn bring_in_run(
        &mut self,
        now: Instant,
        from: SocketAddr,
        k: usize,
        most: usize,
        reading: Option<(usize, &mut Reading<'_>)>,
    ) -> usize {
        let Some(first) = self.plan.get(k).filter(|first| first.head_len == HEADER_BYTES) else { return 0 };
        let heads = &self.heads[first.head..first.head + most * HEADER_BYTES];
        self.net.run(now, from, (heads.as_chunks().0, Bodies::Landed), reading)
    }

    /// Whether the frame that has landed as the `k`-th of the plan is what the plan was made for. Its header is only an
    /// allegation: whether it is true is seen when it is brought in.
    fn is_as_guessed(&self, k: usize, len: usize, guess: Guess, message: &mut Option<u32>) -> bool {
        let Some(planned) = self.plan.get(k) else { return false };
        if len < planned.head_len || len > planned.head_len + planned.len {
            return false;
        }
        let Some(head) = self.heads[planned.head..].first_chunk::<HEADER_BYTES>() else { return false };
        let Ok(header) = Header::from_bytes(head) else { return false };
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        if header.tag as usize != channel || usize::from(header.body) + HEADER_BYTES > len {
            return false;
        }
        if planned.head_len > HEADER_BYTES {
            *message = Some(header.words[0]);
            return header.kind == Kind::Open && usize::from(header.body) >= OPENING_BYTES;
        }
        header.kind == Kind::Data && Some(header.words[0]) == *message && header.words[1] as usize == planned.offset
    }

    /// Copies bytes of a train together that have been scattered by the plan.
    fn gather(&mut self, begin: usize, end: usize, guess: Guess, reader: Option<&[u8]>) {
        let whole = self.gathered.len() + end - begin;
        let mut at = 0;
        let (mut from, to) = (begin, end);
        for planned in self.plan.iter() {
            for (is_head, len) in [(true, planned.head_len), (false, planned.len)] {
                if from < at + len && from < to && from >= at {
                    let (skip, take) = (from - at, to.min(at + len) - from);
                    if is_head {
                        let start = planned.head + skip;
                        self.gathered.extend_from_slice(&self.heads[start..start + take]);
                    } else if let Some(reader) = reader {
                        let start = planned.offset + skip;
                        self.gathered.extend_from_slice(&reader[start..start + take]);
                    } else {
                        let start = planned.offset + skip;
                        let bytes = self.net.guessed(guess).map(|(place, _)| place.piece(start, take));
                        self.gathered.extend_from_slice(bytes.unwrap_or(&mut []));
                    }
                    from += take;
                }
                at += len;
            }
        }
        if from < to {
            let start = from - at;
            self.gathered.extend_from_slice(&self.aside[start..start + to - from]);
        }
        // A place that was taken away meanwhile leaves a gap; the frame's seal will not fit.
        self.gathered.resize(whole, 0);
    }
}

/// Copies the headers of a train's frames together, as far as there is room: those.
fn copy_heads<'a>(train: &[u8], segment: usize, heads: &'a mut [u8]) -> &'a [[u8; HEADER_BYTES]] {
    let mut count = 0;
    for (head, frame) in heads.as_chunks_mut().0.iter_mut().zip(train.chunks(segment)) {
        let Some(first) = frame.first_chunk::<HEADER_BYTES>() else { break };
        *head = *first;
        count += 1;
    }
    &heads.as_chunks().0[..count]
}

/// The reader whose message a guess speaks of, if it does of one.
fn reading_of<'a, 'b>(guess: Guess, reading: &'a mut Option<(usize, &mut Reading<'b>)>) -> Option<&'a mut Reading<'b>> {
    let Guess::Rest { channel, message, .. } = guess else { return None };
    reading
        .as_mut()
        .filter(|(reader, reading)| (*reader, reading.message) == (channel, message))
        .map(|(_, reading)| &mut **reading)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plan by its definition: frame after frame until the place or the train is full.
    fn step_by_step(first: usize, len: usize, full: usize, opening: usize) -> Vec<Planned> {
        let (mut plan, mut done, mut head, mut total) = (Vec::new(), 0, 0, 0);
        while done < len && total + full <= TRAIN_BYTES {
            let head_len = HEADER_BYTES + if head == 0 { opening } else { 0 };
            let body = (full - head_len).min(len - done);
            plan.push(Planned { head, head_len, offset: first + done, len: body });
            done += body;
            head += head_len;
            total += full;
        }
        plan
    }

    proptest! {
        #[test]
        fn a_plan_is_what_its_definition_says(
            first in 0_usize..1 << 20,
            len in prop_oneof![Just(0_usize), 1_usize..5000, 1_usize..1 << 18],
            full in 300_usize..TRAIN_BYTES,
            opens in any::<bool>(),
        ) {
            let opening = if opens { OPENING_BYTES } else { 0 };
            let plan = Plan::new(first, len, full, opening);
            let planned: Vec<Planned> = plan.iter().collect();
            prop_assert_eq!(&planned, &step_by_step(first, len, full, opening));
            let bytes: usize = planned.iter().map(|planned| planned.head_len + planned.len).sum();
            prop_assert_eq!(plan.bytes(), bytes);
            prop_assert_eq!(plan.get(planned.len()), None);
        }
    }
}
