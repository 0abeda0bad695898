//! Payloads that a ring has placed where they belong, and what it has put aside.
//!
//! The register at the interface is aimed at the frames that the engine expects next. While it is, the kernel may write
//! to the memory of these at any time. Why nobody ever sees a byte of it that was not checked, or that changes:
//!
//! * A frame that has landed is an allegation like any other: it goes to the engine as [`Body::Landed`], which opens
//!   its seal where it lies before the bytes count. A message is handed over when all of its bytes count.
//! * What the kernel may still write to are the places of listed frames that have not landed. When it is listed, each
//!   is a part of a gap of one message, or of a run that no message has ([`Net::forecast`]); and it is written to once
//!   at most, by the frame that lands. So nothing that counts is in it, as long as nothing begins to count there in
//!   another way.
//! * Another way is to copy. A frame that came by a slot and brings bytes to such a place ([`Core::meets`]), or by the
//!   socket and brings bytes to that channel, is brought in when the register is closed, and the kernel writes nowhere:
//!   after [`Core::settle`]. So is one that has landed, but not where it belongs ([`Core::take_astray`]), and one that
//!   opens a message of which parts have come before, for these are copied to the place that it gets. A message that
//!   waits for a place gets none meanwhile ([`Net::aim_at`]), nor is the register aimed at its channel.
//! * Yet another way is that the memory becomes somebody else's. Memory for guesses is held ([`Store::held`]); a run
//!   that was posted goes to a message of that channel, whose bytes count there only by one of the two ways above; and
//!   memory of a channel that has ended goes to another one after the register was settled, or not at all.
//! * A run may be longer than the payload that has got it, and more of it be listed. Of that run the user sees the
//!   payload alone, and nobody else gets it before he has dropped it; then the rules above hold for it.
//!
//! If the register cannot be settled at once, frames are lost and sent again. See `raw::xdp::cut` for what happens if
//! it never can.
//!
//! [`Net::forecast`]: cutthrough_engine::net::Net::forecast
//! [`Net::aim_at`]: cutthrough_engine::net::Net::aim_at
//! [`Store::held`]: super::memory::Store

use std::io;

use cutthrough_engine::net::Guess;
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::memory::Place as _;
use cutthrough_engine::net::trains::Train;
use cutthrough_engine::receipt::Placement;
use cutthrough_engine::register::{AHEAD, Expected, Whose};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES};

use super::door::Core;
use super::lanes::PLACING;
use crate::clock;
use crate::raw::xdp::XdpRing;
use crate::raw::xdp::cut::{Cut, Landed};

/// Nanoseconds for which a frame on its way from the register to its place is waited for.
const PATIENCE_NS: u64 = 20_000;
/// Looks at a ring that takes no more frames, to take in what has come.
const LOOKS: u32 = 64;

/// Frames that the register lets pass at most, so that it is aimed when the next one comes.
const PASS: usize = 64;
/// Frames that may come before the one that the register awaits, if it was not aimed ahead: others were faster.
const NEAR: usize = 4;
/// Looks without a frame after which a stream has paused.
const STILL: u32 = 64;

/// Whether frames keep coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// One has come since the last look.
    Comes,
    /// None has.
    Waits,
    /// None has for a while.
    Still,
}

/// How the register follows what comes.
#[derive(Debug, Default)]
pub(super) struct Aiming {
    /// What is expected.
    list: Vec<Expected>,
    /// Frames that are let pass before those that it is aimed at.
    ahead: usize,
    /// Listed frames that were left when more were listed last.
    extended: usize,
    /// Frames that had come at the last look, and looks without another one.
    came: u32,
    still: u32,
}

impl Aiming {
    /// The ring has brought so many frames.
    fn look(&mut self, came: u32) -> Pace {
        if self.came != came {
            (self.came, self.still) = (came, 0);
            return Pace::Comes;
        }
        self.still = self.still.saturating_add(1);
        if self.still < STILL { Pace::Waits } else { Pace::Still }
    }
}

impl Core {
    fn ring(&mut self) -> Option<&mut XdpRing> {
        self.lanes.as_mut().and_then(|lanes| lanes.placing())
    }

    /// Whether a ring places payloads.
    #[inline]
    pub(super) fn is_placing(&mut self) -> bool {
        if !self.lanes.as_ref().is_some_and(|lanes| lanes.places) {
            return false;
        }
        if self.ring().is_some() {
            return true;
        }
        self.drop_broken();
        false
    }

    /// Takes in what has landed and what was put aside, in the order in which it came, and of the latter at most
    /// `most`: how many frames.
    pub(super) fn take_placed(&mut self, mut reading: Option<(usize, &mut Reading<'_>)>, most: usize) -> usize {
        if !self.is_placing() {
            return 0;
        }
        let before = self.net.came_by(PLACING);
        let (mut taken, mut left) = (0, most);
        loop {
            let landed = self.take_landed(false);
            let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            if left == 0 || !self.take_aside(reading) {
                self.net.came_by(before);
                return taken + landed;
            }
            left -= 1;
            taken += landed + 1;
        }
    }

    /// Takes in what has landed; unless `all`, up to a frame that something was put aside before.
    fn take_landed(&mut self, all: bool) -> usize {
        let before = self.net.came_by(PLACING);
        let mut taken = 0;
        while let Some(landed) = self.ring().and_then(|ring| ring.landed(all)) {
            taken += 1;
            if let Some(astray) = self.bring_landed(landed) {
                taken += self.take_astray(astray);
            }
        }
        self.net.came_by(before);
        taken
    }

    /// Brings a frame in that has landed where it belongs. One that has not comes back.
    fn bring_landed(&mut self, mut landed: Landed) -> Option<Landed> {
        let ring = self.lanes.as_mut().and_then(|lanes| lanes.placing())?;
        let header = Header::from_bytes(&landed.head).ok();
        let belongs = header.and_then(|header| self.net.belongs(&header, landed.bytes));
        let there = belongs.is_some_and(|there| there.len() == landed.bytes && ring.place_of(there) == Some(landed.at));
        if !there {
            return Some(landed);
        }
        let opening = landed.opening.as_mut().map(|opening| &mut opening[..]);
        let body = Body::Landed { opening, len: landed.bytes };
        self.net.frame(clock::again(), landed.from.into(), &landed.head, body, None);
        None
    }

    /// Brings a frame in that has landed where it does not belong, and what has landed behind it: copies them, closes
    /// the register, and has the engine copy them to their places when the kernel writes nowhere. How many came behind
    /// it. If that takes too long they are lost.
    fn take_astray(&mut self, first: Landed) -> usize {
        let begun = clock::now();
        let mut astray = Vec::new();
        let mut next = Some(first);
        loop {
            if let Some((landed, ring)) = next.take().zip(self.ring()) {
                let opening = landed.opening.as_ref().map_or(&[][..], |opening| opening);
                let body = [opening, ring.landed_bytes(&landed)].concat();
                astray.push((landed, body));
            }
            if self.is_quiet() {
                break;
            }
            next = self.ring().and_then(|ring| ring.landed(true));
            if next.is_none() && clock::now().saturating_since(begun) > PATIENCE_NS {
                self.troubles.cut_trains += 1;
                return astray.len() - 1;
            }
        }
        let before = self.net.were_copied(1);
        for (landed, body) in &mut astray {
            self.net.frame(clock::again(), landed.from.into(), &landed.head, Body::Aside(body), None);
        }
        self.net.were_copied(before);
        astray.len().saturating_sub(1)
    }

    /// Takes in the next frame that was put aside. Whether there was one.
    fn take_aside(&mut self, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let Some(ring) = self.ring() else { return false };
        let Some((from, body)) = ring.aside() else { return false };
        let (front, now) = (Front::of(body), clock::again());
        // A frame that cannot be taken in now is lost, and sent again.
        let good = self.is_harmless(&front) || !self.meets(&front) || self.settle();
        let Some(ring) = self.lanes.as_mut().and_then(|lanes| lanes.placing()) else { return false };
        if good && let Some((_, body)) = ring.aside() {
            self.net.frame_in_one_piece(now, from.into(), body, reading);
        }
        ring.done_aside(good);
        true
    }

    /// Whether a frame brings no bytes to memory of the channel that the register is aimed at.
    fn is_harmless(&mut self, front: &Front) -> bool {
        let Front::Of { kind, tag, .. } = *front else { return true };
        if !self.is_placing() || !self.ring().and_then(|ring| ring.cut()).is_some_and(|cut| cut.watches(tag)) {
            return true;
        }
        kind != Kind::Open as u8 && kind != Kind::Data as u8
    }

    /// Whether a frame brings bytes to where others may land, or may do so. It is the next one that is brought in.
    fn meets(&mut self, front: &Front) -> bool {
        let Front::Of { head, .. } = front else { return false };
        let Ok(header) = Header::from_bytes(head) else { return false };
        let opening = if header.kind == Kind::Open { OPENING_BYTES } else { 0 };
        let len = usize::from(header.body).saturating_sub(opening);
        if header.kind == Kind::Open && self.net.is_opened(&header) {
            return false;
        }
        // Parts that came before it are copied to the place that it gets.
        if self.net.has_parts(head) {
            return true;
        }
        let Some(there) = self.net.belongs(&header, len) else { return false };
        let Some(ring) = self.lanes.as_mut().and_then(|lanes| lanes.placing()) else { return true };
        let (at, cut) = (ring.place_of(there), ring.cut());
        // What lies elsewhere, the register does not know.
        let known = |at: u64| cut.is_some_and(|cut| cut.register().reaches(at, len as u64));
        there.len() < len || at.is_some_and(known)
    }

    /// Sees to it that frames may be brought in that have come by the socket; false if they have to be lost.
    pub(super) fn may_bring_in(&mut self, train: &Train) -> bool {
        let fronts: Vec<Front> = self.trains.aside(train).map(Front::of).collect();
        fronts.iter().all(|front| self.is_harmless(front)) || self.settle()
    }

    /// Aims the register at what is expected next, if it is not, and if headers shall be cut off; else closes it.
    ///
    /// While frames keep coming they are faster than that: what is due has come when the register awaits it, and goes
    /// aside, and so does all that comes behind it. Then the register is aimed some frames ahead, and these are let
    /// pass.
    pub(super) fn aim(&mut self) {
        if !self.is_placing() {
            self.exchange();
            return;
        }
        // What was let through until now was placed by what was chosen until now.
        if self.net.placing.is_due() && !self.settle() {
            return;
        }
        let mut list = std::mem::take(&mut self.aiming.list);
        self.aim_by(&mut list);
        self.aiming.list = list;
    }

    fn aim_by(&mut self, list: &mut Vec<Expected>) {
        let wanted = self.wanted(1, list);
        let Some(cut) = self.lanes.as_mut().and_then(|lanes| lanes.placing()).and_then(|ring| ring.cut()) else {
            return;
        };
        let register = cut.register();
        let Some((next, of)) = list.first().zip(wanted) else {
            if register.is_aimed() {
                self.settle();
            }
            return;
        };
        if register.awaits(of, next) || register.is_through(of) {
            if register.is_low() && register.left() <= self.aiming.extended / 4 * 3 {
                self.wanted(AHEAD, list);
                self.ring().iter_mut().for_each(|ring| ring.extend(list.drain(..)));
                self.aiming.extended = self.ring().and_then(|ring| ring.cut()).map_or(0, |cut| cut.register().left());
            }
            return;
        }
        let pace = self.aiming.look(cut.came());
        if pace == Pace::Waits && self.aiming.ahead > 0 {
            return;
        }
        let missed = register.is_aimed() && register.landed() == 0;
        if register.is_open() && pace == Pace::Comes {
            // What comes until then is let pass.
            self.wanted(NEAR.max(2 * self.aiming.ahead), list);
            let cut = self.ring().and_then(|ring| ring.cut());
            if cut.is_some_and(|cut| list.iter().any(|frame| cut.register().awaits(of, frame))) {
                return;
            }
        }
        self.aiming.ahead = match pace {
            Pace::Still => 0,
            _ if missed => (2 * self.aiming.ahead).clamp(2, PASS),
            _ => self.aiming.ahead / 2,
        };
        // What is taken in meanwhile may change what is expected.
        if !self.settle() {
            return;
        }
        let pass = self.aiming.ahead + self.ring().and_then(|ring| ring.cut()).map_or(0, Cut::waiting);
        if let Some(of) = self.wanted(pass + AHEAD, list)
            && let Some(ring) = self.ring()
        {
            // Which message goes on then is known of the first one alone.
            let begins = |frame: &Expected| frame.whose != Whose::Opened;
            let pass = pass.min(list.len() / 2);
            ring.aim(of, list.drain(..).skip(pass).skip_while(|frame| !begins(frame)));
            let aimed = ring.cut().filter(|cut| cut.is_aimed()).map(|cut| cut.register().left());
            if let Some(left) = aimed {
                self.aiming.extended = left;
                self.hold(Some(of.0 as usize));
            }
        }
    }

    /// Lists the frames that are expected next, up to `most`, if their headers shall be cut off: on which channel, and
    /// in which life of it. Nothing while a message of that channel waits for a place, or if nothing that is expected
    /// belongs into the memory of the ring.
    fn wanted(&mut self, most: usize, list: &mut Vec<Expected>) -> Option<(u32, u32)> {
        list.clear();
        if !self.net.placing.is_due() && self.net.placing.now().placement == Placement::Copy {
            return None;
        }
        let (guess, full) = self.net.guess(None)?;
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        let slice = u32::try_from(full.checked_sub(HEADER_BYTES)?).ok()?;
        if self.net.awaits_place(channel) {
            return None;
        }
        let of = (u32::try_from(channel).ok()?, self.net.generation(channel)?.0);
        let ring = self.lanes.as_mut()?.placing()?;
        self.net.forecast((guess, full), most, |bytes| ring.place_of(bytes), list);
        // Of a message whose first frame cannot land nothing does before it has begun.
        let begins = list.iter().position(|frame| frame.whose != Whose::Opened).unwrap_or(list.len());
        list.drain(..begins);
        (!list.is_empty() && self.net.cuts(guess, slice, clock::now)).then_some(of)
    }

    /// Has the ring exchanged for one that places payloads, when that is wanted and the next payload could land there.
    fn exchange(&mut self) {
        if !self.net.placing.is_due() {
            return;
        }
        let Some((guess, full)) = self.net.guess(None) else { return };
        let slice = u32::try_from(full.saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX);
        self.net.placing.choose(clock::now(), slice);
        if !self.net.placing.wants_ring() {
            return;
        }
        let piece = self.net.guessed(guess).map(|(place, begin)| place.piece(begin, usize::MAX));
        let Some(lanes) = self.lanes.as_mut().filter(|lanes| piece.is_some_and(|piece| lanes.could_place(piece)))
        else {
            return;
        };
        lanes.stop(PLACING);
        // What has come until then.
        for _ in 0..LOOKS {
            if !self.take_rings(None) {
                break;
            }
        }
        self.lanes.iter_mut().for_each(|lanes| lanes.exchange());
        self.tend_lanes(clock::now());
    }

    /// Which channel's memory the kernel may write to.
    pub(super) fn hold(&mut self, channel: Option<usize>) {
        let before = self.net.aim_at(channel);
        for (index, held) in [(before, false), (channel, true)] {
            if let Some(store) = index.and_then(|index| self.net.memory.get(index)) {
                store.held = held;
            }
        }
    }

    /// Sees to it that memory of this channel can go that was held for frames that may land there. Whether there was
    /// any.
    pub(super) fn lets_go(&mut self, channel: usize) -> bool {
        self.net.memory.get(channel).is_some_and(|store| store.held) && self.settle()
    }

    /// Closes the register, and takes in what it has let through. True if the kernel writes to no memory any more;
    /// false if a frame is on its way for longer than can be waited for.
    pub(super) fn settle(&mut self) -> bool {
        if !self.lanes.as_ref().is_some_and(|lanes| lanes.places) {
            return true;
        }
        let begun = clock::now();
        loop {
            let taken = self.take_landed(true);
            if self.is_quiet() {
                return true;
            }
            if taken == 0 && clock::now().saturating_since(begun) > PATIENCE_NS {
                return false;
            }
        }
    }

    /// Closes the register. True if the kernel writes to no memory any more, and all that has landed was taken.
    fn is_quiet(&mut self) -> bool {
        let now = clock::now();
        let quiet = match self.ring() {
            Some(ring) => !ring.cut().is_some_and(Cut::is_aimed) || ring.is_quiet(now),
            None => self.drop_broken(),
        };
        if quiet {
            self.hold(None);
        }
        quiet
    }

    /// Gives a ring up: memory that was held for frames that might land there is free again.
    pub(super) fn give_up(&mut self, way: u8, why: &io::Error) {
        let quiet = self.lanes.as_mut().is_none_or(|lanes| lanes.drop_ring(way, why));
        self.ring_is_gone(quiet);
    }

    /// Drops a ring that is broken. Whether it was.
    fn drop_broken(&mut self) -> bool {
        if let Some(why) = self.lanes.as_ref().and_then(|lanes| lanes.broken()) {
            self.give_up(PLACING, &io::Error::other(why));
        }
        self.lanes.as_ref().is_none_or(|lanes| !lanes.places)
    }

    /// A ring may be gone. If it is, and nobody can say when the kernel writes to its memory no more, the channel ends
    /// to whose part of that frames may have been on their way. What its user has got of it was whole, and is not
    /// written to; and nobody else gets it.
    pub(super) fn ring_is_gone(&mut self, quiet: bool) {
        if !quiet && let Some(channel) = self.net.aim_at(None) {
            self.net.abandon(channel);
        }
        self.has_ring_or_not();
    }

    /// The ring that places payloads may be gone, or there again: payloads are placed by what means there are.
    pub(super) fn has_ring_or_not(&mut self) {
        let Some(lanes) = &self.lanes else { return };
        let (means, places) = (lanes.means(), lanes.places);
        if means != self.net.placing.means() {
            self.net.placing.set_means(means);
        }
        if !places {
            self.hold(None);
        }
    }

    /// The application does not look from now on: what comes wakes it, by the socket or the ring. False if something
    /// has come, or what comes could wake nobody.
    pub(super) fn doze(&mut self) -> bool {
        let quiet = self.ring().is_none_or(|ring| ring.doze()) & self.listens();
        if self.is_placing() || self.joined.is_some() {
            // The sockets are looked at first.
            self.glances.rest();
            if let Some(joined) = &mut self.joined {
                joined.glances.rest();
            }
        }
        quiet
    }

    /// It looks again.
    #[inline]
    pub(super) fn wake(&mut self) {
        if let Some(ring) = self.ring() {
            ring.wake();
        }
    }
}

/// What the first bytes of a frame say.
#[derive(Debug, Clone, Copy)]
enum Front {
    /// Its header; kind and channel.
    Of { head: [u8; HEADER_BYTES], kind: u8, tag: u32 },
    /// Nothing: it is too short.
    Short,
}

impl Front {
    fn of(frame: &[u8]) -> Self {
        let Some(head) = frame.first_chunk::<HEADER_BYTES>() else { return Self::Short };
        Self::Of { head: *head, kind: head[1], tag: u32::from_le_bytes([head[4], head[5], head[6], head[7]]) }
    }
}
