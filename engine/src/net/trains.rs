//! Trains in: scattered by the guess of where their frames belong, and brought in frame by frame.
//!
//! Where bytes land is decided before they come, by the guess alone; what they say of themselves is looked at
//! afterwards. What has landed as it says is taken in where it lies. Everything else is copied together from where it
//! has landed, and taken in as if it had come alone.

mod apart;
mod plan;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::discriminant;
use core::net::SocketAddr;

use arrayvec::ArrayVec;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, low};

use self::apart::{bring, bring_in_apart};
use self::plan::{FRAMES, HEADS, Like, Plan, Stretch};
use super::channel::{Bodies, Body};
use super::inbox::Reading;
use super::memory::{Memory, Place};
use super::{Guess, Net};
use crate::time::Instant;

/// Bytes of a train at most: what one datagram of UDP carries over IPv4, for the kernel makes a train one datagram.
pub const TRAIN_BYTES: usize = 65_535 - 28;

/// Bytes of memory for what is not planned for.
const ASIDE: usize = 1 << 16;
/// Parts of a scatter list at most: of each frame a header, its bytes and what nobody wants behind those; and the rest.
const PARTS: usize = 3 * FRAMES + 1;
/// Trains whose first header is looked at before they are received, after frames that belonged elsewhere.
const UNFORESEEN: u32 = 256;

/// What trains come by: a socket, or what stands for one.
pub trait Line {
    /// A part of a scatter list, as the line wants it.
    type Part<'a>;

    /// This memory as a part of a scatter list.
    fn part(bytes: &mut [u8]) -> Self::Part<'_>;

    /// Copies the first bytes of the next train to `head`, and leaves it where it is: how many bytes. `None` if there
    /// is no train.
    fn peek(&mut self, head: &mut [u8; HEADER_BYTES]) -> Option<usize>;

    /// Receives the next train into `parts`, which are filled in their order. `None` if there is no train.
    fn receive(&mut self, parts: &mut [Self::Part<'_>]) -> Option<Train>;
}

/// What a line says of a train that it has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Train {
    /// When it was received.
    pub at: Instant,
    /// Who has sent it.
    pub from: SocketAddr,
    /// Bytes in all.
    pub bytes: usize,
    /// Bytes of each frame but the last, which may be shorter; as many as `bytes` if there is only one.
    pub segment: usize,
    /// Whether its end is lost, because there was no room.
    pub cut: bool,
}

/// What has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Nothing: there is no train.
    Nothing,
    /// A train, which was taken in.
    Train,
    /// A train whose end is lost. None of it was taken in.
    Cut,
}

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

impl Lying {
    /// Bytes of the frame.
    const fn len(&self) -> usize {
        let (Self::Gathered(_, len) | Self::Aside(_, len)) = *self;
        len
    }
}

/// A part of a payload, as a header has it: the channel and the low number of the message, its begin and its end.
struct Named {
    of: (u32, u32),
    begin: u32,
    end: u32,
}

impl Named {
    fn of(head: &[u8; HEADER_BYTES]) -> Option<Self> {
        let Header { kind, tag, words: [message, offset], body, .. } = Header::from_bytes(head).ok()?;
        let (begin, len) = match kind {
            Kind::Data => (offset, usize::from(body)),
            Kind::Open => (0, usize::from(body).saturating_sub(OPENING_BYTES)),
            _ => return None,
        };
        Some(Self { of: (tag, message), begin, end: begin.saturating_add(u32::try_from(len).ok()?) })
    }

    fn meets(&self, other: &Self) -> bool {
        self.of == other.of && self.begin < other.end && other.begin < self.end
    }
}

/// Receives trains, and brings their frames in.
#[derive(Debug)]
pub struct Trains {
    /// Where headers land, what nobody wants of a train, and what is not planned for.
    heads: Box<[u8]>,
    scraps: Box<[u8]>,
    aside: Box<[u8]>,
    /// Frames put together that have landed in parts where they do not belong.
    gathered: Vec<u8>,
    /// The headers of frames that lie in one piece each.
    others: Vec<[u8; HEADER_BYTES]>,
    /// Where the frames of a train lie that are not as guessed.
    lying: Vec<Option<Lying>>,
    /// How the next train should land.
    plan: Plan,
    /// What trains were like of late.
    like: Like,
    /// Messages of the train that is brought in, and how long its frames are, if it has several.
    came: (usize, Option<usize>),
    /// Trains of which the first header is looked at before they are received; and whether parts of payloads had to be
    /// put together of the one that is brought in, wherever they went.
    unforeseen: u32,
    astray: bool,
}

impl Default for Trains {
    fn default() -> Self {
        Self {
            heads: vec![0; HEADS].into(),
            scraps: vec![0; TRAIN_BYTES].into(),
            aside: vec![0; ASIDE].into(),
            gathered: Vec::new(),
            others: Vec::new(),
            lying: Vec::new(),
            plan: Plan::default(),
            like: Like::default(),
            came: (0, None),
            unforeseen: 0,
            astray: false,
        }
    }
}

impl Trains {
    /// Receives one train where its frames will probably belong, and takes it in.
    pub fn receive<M: Memory, L: Line>(
        &mut self,
        net: &mut Net<M>,
        line: &mut L,
        mut reading: Option<(usize, &mut Reading<'_>)>,
    ) -> Came {
        let reader = reading.as_ref().map(|(channel, reading)| (*channel, reading.message));
        let guess = match self.whats_next(net, line, reader) {
            Ok(Some(guess)) => guess,
            Ok(None) => {
                let came = self.fetch(line);
                return came.map_or_else(|came| came, |train| self.bring_in(net, &train, reading));
            }
            Err(Nothing) => return Came::Nothing,
        };
        let Some(train) = self.scatter(net, line, guess, &mut reading) else { return Came::Nothing };
        if train.cut || train.bytes > self.plan.bytes() + self.aside.len() {
            return Came::Cut;
        }
        self.taking(net, &train, |trains, net| {
            if trains.plan.frames() == 0 {
                trains.bring_in_all(net, &train, reading);
            } else {
                trains.take_in(net, &train, guess, reading);
            }
        })
    }

    /// Receives one train aside, in one piece, to be looked at ([`Trains::aside`]) before it is brought in
    /// ([`Trains::bring_in`]).
    ///
    /// # Errors
    /// [`Came::Nothing`] and [`Came::Cut`].
    pub fn fetch<L: Line>(&mut self, line: &mut L) -> Result<Train, Came> {
        let train = line.receive(&mut [L::part(&mut self.aside)]).ok_or(Came::Nothing)?;
        if train.cut || train.bytes > self.aside.len() { Err(Came::Cut) } else { Ok(train) }
    }

    /// The frames of a train that was fetched, one after the other.
    pub fn aside(&self, train: &Train) -> impl Iterator<Item = &[u8]> {
        self.aside[..train.bytes.min(self.aside.len())].chunks(train.segment.max(1))
    }

    /// Takes in the train that was fetched last.
    pub fn bring_in<M: Memory>(
        &mut self,
        net: &mut Net<M>,
        train: &Train,
        reading: Option<(usize, &mut Reading<'_>)>,
    ) -> Came {
        self.taking(net, train, |trains, net| trains.bring_in_all(net, train, reading))
    }

    /// Takes a train in, and remembers what it is like, for the next one.
    fn taking<M: Memory>(
        &mut self,
        net: &mut Net<M>,
        train: &Train,
        take: impl FnOnce(&mut Self, &mut Net<M>),
    ) -> Came {
        let (misses, hits, opened) = (net.tally().misses, net.tally().hits, net.tally().opened());
        self.astray = false;
        if train.bytes > 0 {
            self.came = (0, (train.bytes > train.segment).then_some(train.segment.max(1)));
            take(self, net);
        } else {
            net.tally.stale += 1;
        }
        // What nobody has proved steers nothing.
        self.astray &= net.tally().opened() > opened;
        let missed = net.tally().misses > misses;
        self.unforeseen = if missed || self.astray { UNFORESEEN } else { self.unforeseen.saturating_sub(1) };
        if missed || net.tally().hits > hits {
            let (messages, segment) = self.came;
            self.like.came(messages, segment);
        }
        Came::Train
    }

    /// Where the next train will land. After frames that belonged elsewhere, or aside, the first header is looked at
    /// before the train is received: that is another call of the kernel, and less than a copy.
    fn whats_next<M: Memory, L: Line>(
        &self,
        net: &mut Net<M>,
        line: &mut L,
        reader: Option<(usize, u64)>,
    ) -> Result<Option<(Guess, usize)>, Nothing> {
        if self.unforeseen == 0 {
            let guess = net.guess(reader);
            return Ok(guess.map(|(guess, full)| match guess {
                // Messages in frames of their own follow each other as short as the last ones were.
                Guess::Fresh { .. } => (guess, self.like.segment.unwrap_or(full)),
                // What goes on is cut as it was before.
                Guess::Rest { .. } => (guess, self.like.last.unwrap_or(full)),
            }));
        }
        let mut head = [0; HEADER_BYTES];
        match line.peek(&mut head) {
            Some(HEADER_BYTES) => Ok(net.foresee(&head, reader)),
            Some(_) => Ok(None),
            None => Err(Nothing),
        }
    }

    /// Makes the plan of a guess, and receives one train by it.
    fn scatter<M: Memory, L: Line>(
        &mut self,
        net: &mut Net<M>,
        line: &mut L,
        (guess, full): (Guess, usize),
        reading: &mut Option<(usize, &mut Reading<'_>)>,
    ) -> Option<Train> {
        self.plan.begin(full);
        let (begin, end) = match guess {
            Guess::Fresh { .. } => (0, usize::MAX),
            Guess::Rest { begin, end, .. } => (begin as usize, end as usize),
        };
        let reader = reading_of(guess, reading);
        let mut opens = matches!(guess, Guess::Fresh { .. });
        // Of a place as much as the last messages had, if all had as much: behind that the next one begins.
        let probable = net.probable(guess);
        let fresh = |place| front(place, probable);
        let mut places = net.landings(guess, reader.is_some());
        let mut run: Option<&mut [u8]> = match reader {
            Some(reading) => reading.into.get_mut(begin..end),
            None if opens => places.next().map(fresh),
            None => places.next().map(|place| place.piece(begin, end - begin)),
        };
        let mut runs = ArrayVec::<&mut [u8], FRAMES>::new();
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
            run = places.next().map(fresh);
        }
        drop(places);
        let mut parts = ArrayVec::<L::Part<'_>, PARTS>::new();
        let runs = runs.iter_mut().map(|run| &mut **run);
        self.plan.scatter((&mut self.heads, &mut self.scraps), runs, |part| parts.push(L::part(part)));
        parts.push(L::part(&mut self.aside));
        line.receive(&mut parts)
    }

    /// Brings the frames of a train in that lies aside.
    fn bring_in_all<M: Memory>(&mut self, net: &mut Net<M>, train: &Train, reading: Option<(usize, &mut Reading<'_>)>) {
        let bytes = train.bytes.min(self.aside.len());
        self.came.0 += bring_in_apart(net, train, (0, &mut self.aside[..bytes]), &mut self.others, reading);
    }

    /// Brings the frames of a train in that was scattered by a guess.
    fn take_in<M: Memory>(
        &mut self,
        net: &mut Net<M>,
        train: &Train,
        (guess, full): (Guess, usize),
        mut reading: Option<(usize, &mut Reading<'_>)>,
    ) {
        let (bytes, segment) = (train.bytes, train.segment.max(1));
        let count = bytes.div_ceil(segment);
        let aligned = segment == full || count == 1;
        let mut aside = core::mem::take(&mut self.lying);
        aside.clear();
        self.gathered.clear();
        let mut message = match guess {
            Guess::Fresh { .. } => None,
            Guess::Rest { message, .. } => Some(low(message)),
        };
        // What is longer than the plan lies in one piece.
        let scattered = self.plan.bytes();
        // Parts of payloads that will be copied to where they belong, over what has landed there of frames behind them.
        let mut copied: Vec<Named> = Vec::new();
        // Whether there are any: their message may get a place that was planned for one behind it.
        let mut astray = false;
        for k in 0..count {
            let (begin, end) = (k * segment, bytes.min((k + 1) * segment));
            let mut good = aligned && self.is_as_guessed(k, end - begin, guess, &mut message);
            if astray && self.opens(k) {
                (good, message) = (false, None);
            }
            let named = |head: Option<&[u8]>| head.and_then(|head| Named::of(head.first_chunk()?));
            let is_copied_over = || {
                let named = named(self.head(k));
                named.is_some_and(|named| copied.iter().any(|other| other.meets(&named)))
            };
            let good = good && (copied.is_empty() || !is_copied_over());
            if good && self.head(k).is_some_and(|head| net.has_parts(head)) {
                // They are copied to the place that it gets, over what has landed there behind it.
                message = None;
            }
            let lying = (!good).then(|| {
                if begin >= scattered {
                    return Lying::Aside(begin - scattered, end - begin);
                }
                let at = self.gathered.len();
                self.gather(net, (begin, end), guess, reading_of(guess, &mut reading).map(|reading| &*reading.into));
                Lying::Gathered(at, end - begin)
            });
            let head = match lying {
                None => self.head(k),
                Some(Lying::Gathered(at, len)) => self.gathered.get(at..at + len),
                Some(Lying::Aside(at, len)) => self.aside.get(at..at + len),
            };
            let part = lying.and_then(|_| named(head));
            astray |= part.is_some() && matches!(lying, Some(Lying::Gathered(..)));
            copied.extend(part);
            let kind = head.and_then(|head| head.get(1));
            self.came.0 += usize::from(k == 0 || kind == Some(&(Kind::Open as u8)));
            aside.push(lying);
        }
        self.astray = astray;
        // The stretch whose message has got another place than planned.
        let (mut failed, mut k) = (None, 0);
        while let Some(lying) = aside.get(k) {
            let stretch = self.plan.get(k).map(|planned| planned.stretch);
            if lying.is_none() && !self.is_there(net, k, guess) {
                failed = stretch;
            }
            let failed_now = failed.is_some() && failed == stretch;
            if lying.is_none() && !failed_now {
                let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
                let together = aside[k..].iter().take_while(|lying| lying.is_none()).count();
                let taken = self.bring_in_run(net, train, (k, together), reading);
                if taken > 0 {
                    k += taken;
                    continue;
                }
            }
            let (begin, end) = (k * segment, bytes.min((k + 1) * segment));
            let lying = match *lying {
                None if failed_now => {
                    let at = self.gathered.len();
                    self.gather(net, (begin, end), guess, None);
                    Some(Lying::Gathered(at, end - begin))
                }
                lying => lying,
            };
            let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            match lying {
                Some(Lying::Gathered(at, len)) if failed_now => {
                    bring(net, train, &mut self.gathered[at..at + len], reading);
                }
                Some(lying) => {
                    // Those behind it that lie so too lie one behind the other.
                    let so = discriminant(&lying);
                    let more = aside[k..].iter().map_while(|other| other.filter(|other| discriminant(other) == so));
                    let (frames, len) = more.fold((0, 0), |(frames, len), other| (frames + 1, len + other.len()));
                    let bytes = match lying {
                        Lying::Gathered(at, _) => &mut self.gathered[at..at + len],
                        Lying::Aside(at, _) => &mut self.aside[at..at + len],
                    };
                    bring_in_apart(net, train, (k, bytes), &mut self.others, reading);
                    k += frames;
                    continue;
                }
                None => {
                    let Some(planned) = self.plan.get(k) else { break };
                    let head = &mut self.heads[planned.head..planned.head + planned.head_len];
                    if let Some((head, opening)) = head.split_first_chunk_mut::<HEADER_BYTES>() {
                        let opening = (!opening.is_empty()).then_some(opening);
                        let len = (end - begin - planned.head_len).min(planned.len);
                        if !net.frame(train.at, train.from, head, Body::Landed { opening, len }, reading) {
                            failed = stretch;
                        }
                    }
                }
            }
            k += 1;
        }
        self.lying = aside;
    }

    /// Whether the `k`-th frame of the plan opens a message.
    fn opens(&self, k: usize) -> bool {
        self.plan.get(k).is_some_and(|planned| planned.head_len > HEADER_BYTES)
    }

    /// The headers from that of the `k`-th frame of the plan on.
    fn head(&self, k: usize) -> Option<&[u8]> {
        self.plan.get(k).and_then(|planned| self.heads.get(planned.head..))
    }

    /// Brings frames in that have landed as planned, from the `k`-th on: how many of up to `most`.
    fn bring_in_run<M: Memory>(
        &self,
        net: &mut Net<M>,
        train: &Train,
        (k, most): (usize, usize),
        reading: Option<(usize, &mut Reading<'_>)>,
    ) -> usize {
        let Some(first) = self.plan.get(k).filter(|first| first.head_len == HEADER_BYTES) else { return 0 };
        let most = most.min(self.plan.stretch(first.stretch).map_or(0, |stretch| stretch.end() - k));
        let heads = &self.heads[first.head..first.head + most * HEADER_BYTES];
        net.run(train.at, train.from, (heads.as_chunks().0, Bodies::Landed), reading)
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
    fn is_there<M: Memory>(&self, net: &mut Net<M>, k: usize, guess: Guess) -> bool {
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        let stretch = self.plan.get(k).and_then(|planned| self.plan.stretch(planned.stretch)).copied();
        let Some(stretch) = stretch.filter(|stretch| stretch.opens() && stretch.frame == k) else { return true };
        let place = net.guessed(Guess::Fresh { channel });
        place.is_some_and(|(place, _)| front(place, usize::MAX).as_ptr().addr() == stretch.at)
    }

    /// Copies bytes of a train together that have been scattered by the plan.
    fn gather<M: Memory>(
        &mut self,
        net: &mut Net<M>,
        (begin, end): (usize, usize),
        guess: Guess,
        reader: Option<&[u8]>,
    ) {
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
                                (None, Some(stretch)) => landed(net, guess, &stretch)
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

/// The first run of a place, of up to `most` bytes.
fn front<P: Place>(place: &mut P, most: usize) -> &mut [u8] {
    if place.is_empty() { &mut [] } else { place.piece(0, most) }
}

/// The run of a stretch that is no reader's, as long as it has not been given to another message.
fn landed<'a, M: Memory>(net: &'a mut Net<M>, guess: Guess, stretch: &Stretch) -> Option<&'a [u8]> {
    let places = net.landings(guess, false).take(FRAMES + 1);
    places.filter(|place| stretch.first < place.len()).find_map(|place| {
        let run = place.piece(stretch.first, stretch.len);
        (run.as_ptr().addr() == stretch.at && run.len() == stretch.len).then_some(&*run)
    })
}

/// The reader whose message a guess speaks of, if it does of one.
fn reading_of<'a, 'b>(guess: Guess, reading: &'a mut Option<(usize, &mut Reading<'b>)>) -> Option<&'a mut Reading<'b>> {
    let Guess::Rest { channel, message, .. } = guess else { return None };
    reading
        .as_mut()
        .filter(|(reader, reading)| (*reader, reading.message) == (channel, message))
        .map(|(_, reading)| &mut **reading)
}
