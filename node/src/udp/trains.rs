//! Trains in: scattered by the guess of where their frames belong, and brought in frame by frame.

use std::io::IoSliceMut;
use std::net::SocketAddr;

use cutthrough_engine::net::channel::{Bodies, Body};
use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::memory::Place as _;
use cutthrough_engine::net::{Guess, Net};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, low};
use rustix::io::Errno;

use super::door::{Core, bring_in};
use super::memory::Stores;
use super::plan::{FRAMES, Stretch};
use crate::clock;
use crate::sys::datagram::Received;

/// Trains whose first header is looked at before they are received, after frames that belonged elsewhere.
const UNFORESEEN: u32 = 256;

/// There is no train.
struct Nothing;

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
        let (misses, hits) = (self.net.tally().misses, self.net.tally().hits);
        let any = self.receive_as(guess, placing, reading);
        if any {
            let missed = self.net.tally().misses > misses;
            self.unforeseen = if missed { UNFORESEEN } else { self.unforeseen.saturating_sub(1) };
            if missed || self.net.tally().hits > hits {
                let (messages, segment) = self.came;
                self.like.came(messages, segment);
            }
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
            let guess = self.net.guess(reader);
            return Ok(guess.map(|(guess, full)| match guess {
                // Messages in frames of their own follow each other as short as the last ones were.
                Guess::Fresh { .. } => (guess, self.like.segment.unwrap_or(full)),
                // What goes on is cut as it was before.
                Guess::Rest { .. } => (guess, self.like.last.unwrap_or(full)),
            }));
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
        let Some((guess, full)) = guess else { return self.receive_aside(placing, reading) };
        self.plan.begin(full);
        let (begin, end) = match guess {
            Guess::Fresh { .. } => (0, usize::MAX),
            Guess::Rest { begin, end, .. } => (begin as usize, end as usize),
        };
        let reader = reading_of(guess, &mut reading);
        let mut opens = matches!(guess, Guess::Fresh { .. });
        let mut places = self.net.landings(guess, reader.is_some());
        let mut run: Option<&mut [u8]> = match reader {
            Some(reading) => reading.into.get_mut(begin..end),
            None => places.next().map(|place| place.piece(begin, end - begin)),
        };
        let mut runs: Vec<&mut [u8]> = Vec::new();
        let mut first = begin;
        let mut messages = self.like.messages.max(1);
        while messages > 0
            && let Some(bytes) = run
            && self.plan.add(first, (bytes.as_ptr().addr(), bytes.len()), opens)
        {
            if !bytes.is_empty() {
                runs.push(bytes);
            }
            (first, opens, messages) = (0, true, messages - 1);
            run = places.next().map(|place| place.piece(0, usize::MAX));
        }
        drop(places);
        let mut parts: Vec<IoSliceMut<'_>> = Vec::with_capacity(self.plan.frames() * 2 + runs.len() + 1);
        let (mut heads, mut scraps) = (&mut *self.heads, &mut *self.scraps);
        let mut runs = runs.into_iter();
        let (mut run, mut stretch): (&mut [u8], _) = (runs.next().unwrap_or_default(), 0);
        for planned in self.plan.iter() {
            if planned.stretch > stretch {
                (run, stretch) = (runs.next().unwrap_or_default(), planned.stretch);
            }
            let (head, other_heads) = heads.split_at_mut(planned.head_len);
            let (body, rest) = run.split_at_mut(planned.len);
            parts.push(IoSliceMut::new(head));
            parts.push(IoSliceMut::new(body));
            (heads, run) = (other_heads, rest);
            if planned.pad > 0 {
                let (pad, others) = scraps.split_at_mut(planned.pad);
                parts.push(IoSliceMut::new(pad));
                scraps = others;
            }
        }
        parts.push(IoSliceMut::new(&mut self.aside));
        let received = match self.socket.receive(&mut parts) {
            Ok(received) => received,
            Err(_) => return false,
        };
        drop((parts, runs));
        let now = clock::now();
        if received.truncated || received.bytes == 0 {
            self.troubles.cut_trains += u64::from(received.truncated);
            return true;
        }
        let segment = self.is_like(&received);
        if self.plan.frames() == 0 {
            self.bring_in_all(now, (received.from, received.bytes, segment), reading);
        } else {
            self.take_in(now, (received.from, received.bytes, segment), (guess, full), reading);
        }
        self.greet_from(received.local);
        true
    }

    /// Remembers what a train is like, but for its messages. Bytes of its frames.
    fn is_like(&mut self, received: &Received) -> usize {
        let segment = usize::from(received.segment).max(1);
        self.came = (0, (received.bytes > segment).then_some(segment));
        segment
    }

    /// Takes one train in that is not scattered.
    fn receive_aside(&mut self, placing: bool, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let Ok(received) = self.socket.receive(&mut [IoSliceMut::new(&mut self.aside)]) else { return false };
        let segment = self.is_like(&received);
        let wrong = received.truncated || placing && !self.may_bring_in(received.bytes.min(self.aside.len()), segment);
        self.troubles.cut_trains += u64::from(wrong);
        if !wrong {
            self.bring_in_all(clock::now(), (received.from, received.bytes, segment), reading);
            self.greet_from(received.local);
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
            let kind = heads.get(k).map(|head| head[1]);
            let opens = kind == Some(Kind::Open as u8);
            self.came.0 += usize::from(opens || k == 0);
            together |= opens;
            if together && kind == Some(Kind::Data as u8) {
                let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
                let taken = self.net.run(now, from, (&heads[k..], Bodies::Aside(rest, segment)), reading);
                // What cannot be taken in together is not tried again, up to the next message.
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
        (guess, full): (Guess, usize),
        mut reading: Option<(usize, &mut Reading<'_>)>,
    ) {
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
        for k in 0..count {
            let (begin, end) = (k * segment, bytes.min((k + 1) * segment));
            let good = aligned && self.is_as_guessed(k, end - begin, guess, &mut message);
            let lying = (!good).then(|| {
                if begin >= scattered {
                    return Lying::Aside(begin - scattered, end - begin);
                }
                let at = self.gathered.len();
                self.gather(begin, end, guess, reading_of(guess, &mut reading).map(|reading| &*reading.into));
                Lying::Gathered(at, end - begin)
            });
            let kind = match lying {
                None => self.plan.get(k).and_then(|planned| self.heads.get(planned.head + 1)),
                Some(Lying::Gathered(at, _)) => self.gathered.get(at + 1),
                Some(Lying::Aside(at, _)) => self.aside.get(at + 1),
            };
            self.came.0 += usize::from(k == 0 || kind == Some(&(Kind::Open as u8)));
            aside.push(lying);
        }
        // The stretch whose message has got another place than planned.
        let (mut failed, mut k) = (None, 0);
        while let Some(lying) = aside.get(k) {
            let stretch = self.plan.get(k).map(|planned| planned.stretch);
            if lying.is_none() && !self.is_there(k, guess) {
                failed = stretch;
            }
            let failed_now = failed.is_some() && failed == stretch;
            if lying.is_none() && !failed_now {
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
                None if failed_now => {
                    let at = self.gathered.len();
                    self.gather(begin, end, guess, None);
                    Some(Lying::Gathered(at, end - begin))
                }
                lying => lying,
            };
            let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
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
                        let len = (end - begin - planned.head_len).min(planned.len);
                        if !self.net.frame(now, from, head, Body::Landed { opening, len }, reading) {
                            failed = stretch;
                        }
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
        let most = most.min(self.plan.stretch(first.stretch).map_or(0, |stretch| stretch.end() - k));
        let heads = &self.heads[first.head..first.head + most * HEADER_BYTES];
        self.net.run(now, from, (heads.as_chunks().0, Bodies::Landed), reading)
    }

    /// Whether the frame that has landed as the `k`-th of the plan is what the plan was made for. Its header is only an
    /// allegation: whether it is true is seen when it is brought in.
    fn is_as_guessed(&self, k: usize, len: usize, guess: Guess, message: &mut Option<u32>) -> bool {
        let Some(planned) = self.plan.get(k) else { return false };
        if planned.head_len > HEADER_BYTES {
            *message = None;
        }
        // What follows the last one lies aside, and so does what is behind its end.
        if len < planned.head_len || len > planned.bytes() && k + 1 < self.plan.frames() {
            return false;
        }
        let Some(head) = self.heads[planned.head..].first_chunk::<HEADER_BYTES>() else { return false };
        let Ok(header) = Header::from_bytes(head) else { return false };
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        let whole = usize::from(header.body) + HEADER_BYTES;
        if header.tag as usize != channel || whole > len || whole > planned.head_len + planned.len {
            return false;
        }
        if planned.head_len > HEADER_BYTES {
            *message = Some(header.words[0]);
            return header.kind == Kind::Open && usize::from(header.body) >= OPENING_BYTES;
        }
        header.kind == Kind::Data && Some(header.words[0]) == *message && header.words[1] as usize == planned.offset
    }

    /// Whether the message that the `k`-th frame of the plan opens, if it opens one, would get the place now that was
    /// planned for it.
    fn is_there(&mut self, k: usize, guess: Guess) -> bool {
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        let stretch = self.plan.get(k).and_then(|planned| self.plan.stretch(planned.stretch)).copied();
        let Some(stretch) = stretch.filter(|stretch| stretch.opens() && stretch.frame == k) else { return true };
        let place = self.net.guessed(Guess::Fresh { channel });
        place.is_some_and(|(place, _)| place.piece(0, 1).as_ptr().addr() == stretch.at)
    }

    /// Copies bytes of a train together that have been scattered by the plan.
    fn gather(&mut self, begin: usize, end: usize, guess: Guess, reader: Option<&[u8]>) {
        let whole = self.gathered.len() + end - begin;
        let mut at = 0;
        let (mut from, to) = (begin, end);
        for planned in self.plan.iter() {
            let scrap = self.plan.scrap(planned.stretch);
            for (part, len) in [(Part::Head, planned.head_len), (Part::Body, planned.len), (Part::Pad, planned.pad)] {
                if from < at + len && from < to && from >= at {
                    let (skip, take) = (from - at, to.min(at + len) - from);
                    match part {
                        Part::Head => {
                            let start = planned.head + skip;
                            self.gathered.extend_from_slice(&self.heads[start..start + take]);
                        }
                        Part::Pad => {
                            let start = scrap + skip;
                            self.gathered.extend_from_slice(&self.scraps[start..start + take]);
                        }
                        Part::Body => {
                            let start = planned.offset + skip;
                            let stretch = self.plan.stretch(planned.stretch).copied();
                            let bytes = match (reader.filter(|_| planned.stretch == 0), stretch) {
                                (Some(reader), _) => reader.get(start..start + take),
                                (None, Some(stretch)) => landed(&mut self.net, guess, &stretch)
                                    .and_then(|run| run.get(start - stretch.first..start - stretch.first + take)),
                                (None, None) => None,
                            };
                            self.gathered.extend_from_slice(bytes.unwrap_or(&[]));
                        }
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

/// The parts of a frame that is scattered.
#[derive(Clone, Copy)]
enum Part {
    Head,
    Body,
    Pad,
}

/// The run of a stretch that is no reader's, as long as it has not been given to another message.
fn landed<'a>(net: &'a mut Net<Stores>, guess: Guess, stretch: &Stretch) -> Option<&'a [u8]> {
    let mut places = net.landings(guess, false).take(FRAMES + 1);
    places.find_map(|place| {
        let run = place.piece(stretch.first, stretch.len);
        (run.as_ptr().addr() == stretch.at && run.len() == stretch.len).then_some(&*run)
    })
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
