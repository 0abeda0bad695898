//! One turn of the network side: takes in what has come, by the rings and both sockets in turn, and does what follows
//! from that, or from the time.

use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::time::Instant;

use super::door::{Core, STUCK_NS};
use super::glances::Look;
use crate::clock;

/// Trains that are taken in before anything else is looked at.
const TRAINS: u32 = 16;
/// Looks between two at what dropped values have left.
const LOOKS_PER_TIDY: u32 = 32;
/// Looks at the rings alone for one at a socket beside them that is quiet.
const RARELY: u32 = 64;
/// Looks at the joined socket alone for one at the other one, if that is quiet.
const SELDOM: u32 = 8;

impl Core {
    /// Takes in what has come, does what is due, sends what there is to send, for the application, which is awake. True
    /// if anything came.
    pub(super) fn turn(&mut self, mut reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let look = self.take_in_all(reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading)));
        if look.any {
            self.has_found();
        }
        self.follow(look, false, reading)
    }

    /// As [`Core::turn`], for who may not look again before long: what waits for a busy sink goes, too.
    pub(super) fn last_turn(&mut self) {
        let look = self.take_in_all(None);
        self.follow(look, true, None);
    }

    /// The sockets may hold what nothing wakes us for, until they are looked at.
    pub(super) fn rung(&mut self) {
        self.glances.doubt();
        if let Some(joined) = self.joined.as_mut().filter(|joined| joined.hears().is_some()) {
            joined.glances.doubt();
        }
    }

    /// Whether a socket may hold what nothing wakes us for.
    pub(super) fn is_unlooked(&self) -> bool {
        self.glances.is_unlooked() || self.joined.as_ref().is_some_and(|joined| joined.glances.is_unlooked())
    }

    /// When there is something to do next, at the latest: by the engine's times, because the socket has not taken a
    /// batch, or because a call is given up.
    pub(super) fn timer(&self) -> Option<Instant> {
        let again = self.stuck.is_some().then(|| clock::now().after(STUCK_NS));
        self.net.timer().into_iter().chain(again).chain(self.releases_at()).chain(self.calls_until()).min()
    }

    /// As [`Core::turn`]; but if something has come for the application, the rest has time until it has been told.
    pub(super) fn glance(&mut self) {
        if self.owed {
            self.follow(Look { any: true, all: false }, false, None);
        }
        let look = self.take_in_all(None);
        if look.any && self.has_news() {
            self.owed = true;
        } else {
            self.follow(look, false, None);
        }
        if look.any {
            self.has_found();
        }
    }

    /// Takes in what has come, and takes back what has arrived on the other side.
    fn take_in_all(&mut self, reading: Option<(usize, &mut Reading<'_>)>) -> Look {
        let look = self.take_in_frames(reading);
        self.release_pages();
        self.look_after_calls();
        look
    }

    pub(super) fn take_in_frames(&mut self, mut reading: Option<(usize, &mut Reading<'_>)>) -> Look {
        if !self.process.is_this() {
            return Look { any: false, all: true };
        }
        let mut any = false;
        if self.sources.is_some() {
            // What is not an answer to what comes now.
            self.greet();
        }
        if self.lanes.is_some() {
            self.take_ring_in();
            self.wake();
            let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            any = self.take_rings(reading);
            if any && self.net.has_message() {
                self.sink.heard();
            }
            self.aim();
        }
        // A look at a ring costs next to nothing, one at a socket a system call.
        let by_rings = self.lanes.as_ref().is_some_and(|lanes| lanes.has_rings());
        let rarely = match &self.joined {
            _ if by_rings => RARELY,
            Some(joined) if joined.is_joined() => SELDOM,
            _ => 0,
        };
        let passes = self.glances.passes(rarely, any);
        let joined = self.joined.as_mut();
        let hears = joined.is_some_and(|joined| !(by_rings && joined.passes(RARELY, any)) && joined.hears().is_some());
        // What the peer sent before it was joined lies in the other one; but each is the first one now and then.
        let left = self.lanes.as_ref().is_some_and(|lanes| lanes.has_frames());
        let mut look = Look { any: false, all: !any || !left && !passes };
        let first = std::mem::take(&mut self.joined_first);
        for joined in [first, !first] {
            if look.any && self.net.has_event() {
                (self.joined_first, look.all) = (joined, false);
            } else if if joined { hears } else { !passes } {
                let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
                let one = self.take_trains(joined, reading);
                look = Look { any: look.any || one.any, all: look.all && one.all };
            }
        }
        Look { any: any || look.any, all: look.all }
    }

    /// Takes in what has come by one of the sockets, up to what the application is to be told of.
    fn take_trains(&mut self, joined: bool, mut reading: Option<(usize, &mut Reading<'_>)>) -> Look {
        let mut any = false;
        for _ in 0..TRAINS {
            let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            let came = self.receive(joined, reading);
            match self.joined.as_mut().filter(|_| joined) {
                Some(joined) => joined.glances.looked(came),
                None => self.glances.looked(came),
            }
            if !came {
                return Look { any, all: true };
            }
            any = true;
            // Acknowledgements alone say that it works on what it has.
            if self.net.has_message() {
                self.sink.heard();
            }
            // Another look costs as much as a system call; what has come is told first.
            if self.net.has_event() {
                break;
            }
        }
        Look { any, all: false }
    }

    /// What follows from what has come, or from the time: asks, repeats, acknowledges, sends; with `all`, also what
    /// waits for a busy sink. True if anything has come, by this look or by another one, which is taken before frames
    /// are given up.
    pub(super) fn follow(&mut self, look: Look, all: bool, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let now = clock::again();
        let look = if self.net.doubts(now) {
            let again = self.take_in_all(reading);
            Look { any: look.any || again.any, all: again.all }
        } else {
            look
        };
        self.owed = false;
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_TIDY) {
            self.tidy(now);
        }
        if look.all {
            self.net.looked(now);
        } else {
            self.net.grant(now);
        }
        if self.net.timer().is_some_and(|timer| timer <= now) {
            self.net.tick(now);
            if let Some(joined) = &mut self.joined {
                joined.doubt(now);
            }
        }
        if self.stuck.is_some() || self.net.has_work() {
            self.transmit(now, all);
        }
        look.any
    }
}
