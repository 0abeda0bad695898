//! A second socket at the endpoint's port, joined to the peer with which it has most to do.
//!
//! For a socket that is joined to nobody the kernel looks up a way for each datagram, on its way out and on its way in:
//! 0.7 of the 4.1 microseconds that 64 bytes take across a veth pair. An endpoint needs such a socket, because anybody
//! may call it; but what goes to one peer, again and again, and what comes from there, goes through one that the kernel
//! knows the way of. Whatever that one cannot do, the other one does.

use std::cell::Cell;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cutthrough_engine::time::Instant;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use super::glances::Glances;
use super::overruns::Overruns;
use super::splices::{Fate, Splices};
use crate::sys::datagram::Datagrams;
use crate::sys::spliced::{Berth, Spliced};

/// How many batches more than to all others together have to go to a peer.
const ENOUGH: u32 = 64;

/// Batches that may go by the joined socket without anything coming back, and for how long, in nanoseconds, before it
/// is believed that the kernel's other ways may be better: it was joined where one was, and that may be no more.
const UNANSWERED: u32 = 4;
const UNANSWERED_NS: u64 = 300_000_000;

/// How often the second socket was joined to a peer, how often that could not be had, and the trains that the kernel
/// has sent from where they lay.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Joins {
    pub(crate) made: u64,
    pub(crate) refused: u64,
    pub(crate) spliced: u64,
}

/// The second socket, and whom it is joined to.
#[derive(Debug)]
pub(super) struct Joined {
    socket: Datagrams,
    /// What it is bound to, if it ever was joined.
    bound: Option<SocketAddr>,
    /// To whom it is joined, and by which address of this machine.
    peer: Option<(SocketAddr, IpAddr)>,
    /// To which address of this machine comes what comes there: it hears the last peer also when it is left to nobody.
    hears_at: Option<IpAddr>,
    most: Most,
    /// Batches that have gone there since anything came, and whether anything has since it was doubted last, and since
    /// when it is doubted.
    unanswered: u32,
    heard: bool,
    doubted: Option<Instant>,
    lone: Lone,
    pub(super) joins: Joins,
    /// What looks at it came to.
    pub(super) glances: Glances,
    overruns: Overruns,
    /// Trains to the peer that it is joined to, which the kernel sends from where they lie.
    splices: Splices,
    /// Bytes after which the socket cuts what a call does not cut; 0 for not at all.
    cut: Cell<u16>,
}

impl Joined {
    /// For an endpoint whose socket is bound to such an address.
    pub(super) fn new(like: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            socket: Datagrams::unbound(like)?,
            bound: None,
            peer: None,
            hears_at: None,
            most: Most::default(),
            unanswered: 0,
            heard: false,
            doubted: None,
            lone: Lone::default(),
            joins: Joins::default(),
            glances: Glances::default(),
            overruns: Overruns::default(),
            splices: Splices::default(),
            cut: Cell::new(0),
        })
    }

    /// The socket, if anything may have come there: it stays with the last peer it was joined to.
    #[inline]
    pub(super) fn hears(&self) -> Option<&Datagrams> {
        self.bound.is_some().then_some(&self.socket)
    }

    /// Whether most of what comes, comes there.
    #[inline]
    pub(super) const fn is_joined(&self) -> bool {
        self.peer.is_some()
    }

    /// How many datagrams it had no room for.
    pub(super) fn overruns(&mut self) -> u64 {
        self.overruns.look(&self.socket)
    }

    /// To which address of this machine comes what comes there.
    #[inline]
    pub(super) const fn local(&self) -> Option<IpAddr> {
        self.hears_at
    }

    /// The socket, if it is joined to this peer, and what goes there goes from this address of the machine, or from the
    /// one that the kernel chooses.
    #[inline]
    pub(super) fn leads(&self, to: SocketAddr, from: Option<IpAddr>) -> Option<&Datagrams> {
        let (peer, local) = self.peer?;
        (peer == to && from.is_none_or(|from| from == local)).then_some(&self.socket)
    }

    /// Sends by it, as [`Datagrams::send`].
    pub(super) fn send(&self, parts: &[IoSlice<'_>], segment: Option<u16>) -> Result<usize, Errno> {
        let cut = usize::from(self.cut.get());
        if cut > 0 && segment.is_none() && parts.iter().map(|part| part.len()).sum::<usize>() > cut {
            self.cut_at(0)?;
        }
        self.socket.send(None, parts, segment)
    }

    /// Sends a train from where it lies, cut every `segment` bytes. Nothing if the kernel does not: it may do so in
    /// another way.
    pub(super) fn splice(&mut self, train: &Berth, segment: u16) -> Option<Result<usize, Errno>> {
        if self.cut.get() != segment {
            self.cut_at(segment).ok()?;
        }
        match self.splices.learn(train.len(), train.send(&self.socket)) {
            Fate::Went => {
                self.joins.spliced += 1;
                return Some(Ok(train.len()));
            }
            Fate::Full(full) => return Some(Err(full)),
            Fate::InPart => {
                let _ = self.socket.push_out();
            }
            Fate::Not => {}
        }
        None
    }

    fn cut_at(&self, segment: u16) -> Result<(), Errno> {
        let cut = self.socket.set_cut(segment).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
        cut.map(|()| self.cut.set(segment))
    }

    /// Memory for trains to the peer that it is joined to; none if trains to peers before hold theirs.
    pub(super) fn berths(&mut self) -> Option<Arc<Spliced>> {
        self.splices.memory().map(Arc::clone)
    }

    /// Whether there is no memory yet for trains to that peer.
    pub(super) const fn has_no_berths(&self) -> bool {
        self.splices.has_no_memory()
    }

    /// Has the socket take nothing any more; returns what has to live as long.
    #[cfg(test)]
    pub(super) fn stand_still(&mut self) -> rustix::fd::OwnedFd {
        self.socket.stand_still(usize::MAX)
    }

    #[cfg(test)]
    pub(super) fn trains_under_way(&self) -> usize {
        self.splices.taken()
    }

    /// Whether trains to this peer may be sent from where they lie.
    pub(super) fn splices_to(&self, to: SocketAddr) -> bool {
        self.splices.is_worth_it() && self.peer.is_some_and(|(peer, _)| peer == to)
    }

    /// Whether trains to that peer are to be laid out for that now.
    pub(super) fn lays_out(&self) -> bool {
        self.splices.pays()
    }

    /// How many trains have been sent so.
    pub(super) const fn spliced(&self) -> u64 {
        self.joins.spliced
    }

    /// A train to that peer has gone, which might have been sent either way, and cost its sender so many picoseconds a
    /// byte. Whether that is less than it will be, or more, as long as the two are compared.
    pub(super) fn took(&mut self, spliced: bool, cost: u64) -> bool {
        self.splices.took(spliced, cost);
        self.splices.is_undecided()
    }

    /// A batch has gone to a peer; joins it to that one if most do. `main` is the endpoint's socket, which is bound to
    /// `at`.
    #[inline]
    pub(super) fn sent(&mut self, to: SocketAddr, from: Option<IpAddr>, (main, at): (&Datagrams, SocketAddr)) {
        self.unanswered = self.unanswered.saturating_add(1);
        if self.most.sent(to) && self.peer.is_none_or(|(peer, _)| peer != to) {
            self.most = Most::default();
            // Where it cannot be had, all goes by the endpoint's own socket, as it does at the beginning.
            self.peer = self.join(to, from, (main, at)).unwrap_or_default();
            match self.peer {
                Some(_) => self.joins.made += 1,
                None => self.joins.refused += 1,
            }
            (self.unanswered, self.doubted) = (0, None);
            self.splices.begin();
            // What lies there is of others yet, and has to say of whom.
            if self.lone.begin() {
                let _ = self.socket.set_trains(true);
            }
        }
    }

    /// Whether to look at it another time, because there are rings: `any` says whether these had something. That has
    /// come by the same wire, so what goes by this socket is not unanswered.
    #[inline]
    pub(super) fn passes(&mut self, rarely: u32, any: bool) -> bool {
        if any {
            (self.unanswered, self.heard) = (0, true);
        }
        self.glances.passes(rarely, any)
    }

    /// It was looked at: nothing has come, or a train, and whether that was one short frame.
    #[inline]
    pub(super) fn looked(&mut self, came: Option<bool>) {
        if came.is_some() {
            (self.unanswered, self.heard) = (0, true);
        }
        let Some(alone) = self.lone.looked(came) else { return };
        // Where the kernel does not do so, all goes on as it was.
        if self.socket.set_trains(!alone).is_err() {
            self.lone = Lone { alone: !alone, ..self.lone };
        }
    }

    /// Whom it hears, if datagrams come one by one there, and from nobody else.
    #[inline]
    pub(super) fn comes_alone(&self) -> Option<SocketAddr> {
        self.peer.filter(|_| self.lone.alone).map(|(peer, _)| peer)
    }

    /// Believes no more in the way that it is joined by, if nothing has come back there for long.
    pub(super) fn doubt(&mut self, now: Instant) {
        if std::mem::take(&mut self.heard) || self.unanswered < UNANSWERED {
            self.doubted = None;
        } else if now.saturating_since(*self.doubted.get_or_insert(now)) > UNANSWERED_NS {
            self.let_go();
        }
    }

    /// Sends nothing by it any more, until most goes to one peer again. It hears the last one all the same.
    pub(super) fn let_go(&mut self) {
        (self.peer, self.most, self.doubted) = (None, Most::default(), None);
    }

    fn join(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        (main, at): (&Datagrams, SocketAddr),
    ) -> std::io::Result<Option<(SocketAddr, IpAddr)>> {
        match self.bound {
            None => {
                let bound = SocketAddr::new(from.unwrap_or(at.ip()), at.port());
                self.socket.bind_beside(main, bound)?;
                self.bound = Some(bound);
                self.hears_at = Some(bound.ip()).filter(|local| !local.is_unspecified());
            }
            // The kernel chooses an address again only for who has none.
            Some(bound) if bound.ip().is_unspecified() => {
                self.socket.part()?;
                self.hears_at = None;
            }
            // It would be another one than the kernel chooses for the endpoint's own socket.
            Some(bound) if from != Some(bound.ip()) && at.ip().is_unspecified() => return Ok(None),
            Some(_) => {}
        }
        if let Err(refused) = self.socket.connect(to) {
            if self.hears_at.is_none() {
                // Joined to nobody, it takes a part of what comes from anybody, to whatever address.
                let _ = self.socket.tell_local();
            }
            return Err(refused);
        }
        let local = self.socket.local()?.ip();
        self.hears_at = Some(local);
        Ok(from.is_none_or(|from| from == local).then_some((to, local)))
    }
}

impl AsFd for Joined {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Looks that found a lone short frame, one after the other, after which frames are taken one by one, at first; twice
/// as many whenever that was wrong, and how many at last.
const ALONE: u32 = 256;
const ALONE_AT_LAST: u32 = 1 << 16;
/// Frames without a look in vain in between, from which on they are taken as trains again.
const TRAIN: u32 = 32;

/// Finds out whether frames come alone. To take one without asking for what the kernel has to say of trains saves 0.2
/// microseconds; to have a train cut into its frames costs more than all else.
#[derive(Debug, Clone, Copy)]
struct Lone {
    alone: bool,
    /// Lone short frames, one after the other; while frames are taken one by one, those since the last look in vain.
    seen: u32,
    enough: u32,
}

impl Default for Lone {
    fn default() -> Self {
        Self { alone: false, seen: 0, enough: ALONE }
    }
}

impl Lone {
    /// A look has found nothing, or a train, and whether that was one short frame. Whether frames are taken one by one
    /// from now on, if that changes.
    #[inline]
    fn looked(&mut self, came: Option<bool>) -> Option<bool> {
        let seen = self.seen;
        self.seen = match came {
            Some(true) => seen.saturating_add(1),
            None if !self.alone => seen,
            Some(false) | None => 0,
        };
        if self.alone && (came == Some(false) || self.seen >= TRAIN) {
            *self = Self { alone: false, seen: 0, enough: (self.enough * 2).min(ALONE_AT_LAST) };
            return Some(false);
        }
        // Nothing lies there that was joined to a train.
        if !self.alone && came.is_none() && seen >= self.enough {
            (self.alone, self.seen) = (true, 0);
            return Some(true);
        }
        None
    }

    /// Begins anew, with another peer. Whether frames were taken one by one.
    fn begin(&mut self) -> bool {
        std::mem::take(self).alone
    }
}

/// Finds the peer that gets most of what goes (Boyer and Moore's majority vote).
#[derive(Debug, Default, Clone, Copy)]
struct Most {
    peer: Option<SocketAddr>,
    /// How many batches more it got than all others since it is the one.
    ahead: u32,
}

impl Most {
    /// A batch has gone to this peer: whether that gets most.
    #[inline]
    fn sent(&mut self, to: SocketAddr) -> bool {
        if self.peer == Some(to) {
            self.ahead = (self.ahead + 1).min(ENOUGH);
        } else if self.ahead > 0 {
            self.ahead -= 1;
            return false;
        } else {
            (self.peer, self.ahead) = (Some(to), 1);
        }
        self.ahead == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use cutthrough_engine::net::memory::Hold as _;
    use rustix::io::Errno;

    use super::*;

    fn bind(at: &str) -> (Datagrams, SocketAddr) {
        let socket = Datagrams::bind(at.parse().unwrap()).unwrap();
        let address = socket.local().unwrap();
        (socket, address)
    }

    /// Whether a datagram from this peer comes to this socket, and not to that one.
    fn comes(peer: &Datagrams, port: u16, there: &Datagrams, not_there: &Datagrams) -> bool {
        let to = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        peer.send(Some(to), &[IoSlice::new(b"a")], None).unwrap();
        let mut room = [0];
        let mut look = |at: &Datagrams| at.receive(&mut [IoSliceMut::new(&mut room)]).is_ok();
        // Loopback delivers before the call returns, or, on a busy machine, soon.
        for _ in 0..100 {
            if look(there) {
                return !look(not_there);
            }
            if look(not_there) {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn whoever_gets_most_is_joined_and_another_one_once_it_gets_most() {
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let ((main, bound), (a, to_a), (b, to_b)) = (bind(at), bind("127.0.0.1:0"), bind("127.0.0.1:0"));
            let mut joined = Joined::new(bound).unwrap();
            for _ in 1..ENOUGH {
                joined.sent(to_a, None, (&main, bound));
            }
            assert!(!joined.is_joined() && joined.hears().is_none());
            joined.sent(to_a, None, (&main, bound));
            let there = joined.leads(to_a, None).expect("joined to a");
            assert!(joined.leads(to_b, None).is_none());
            assert!(comes(&a, bound.port(), there, &main) && comes(&b, bound.port(), &main, there));
            assert_eq!(joined.local(), Some("127.0.0.1".parse().unwrap()));
            for _ in 0..2 * ENOUGH {
                joined.sent(to_b, None, (&main, bound));
            }
            let there = joined.leads(to_b, None).expect("joined to b");
            assert!(joined.leads(to_a, None).is_none());
            assert!(comes(&b, bound.port(), there, &main) && comes(&a, bound.port(), &main, there));
            // Nothing has come as far as it was told: for so long that the way may be none.
            joined.sent(to_b, None, (&main, bound));
            joined.doubt(Instant::from_nanos(1));
            (0..UNANSWERED).for_each(|_| joined.sent(to_b, None, (&main, bound)));
            joined.doubt(Instant::from_nanos(UNANSWERED_NS));
            assert!(joined.is_joined());
            joined.doubt(Instant::from_nanos(UNANSWERED_NS + 2));
            assert!(!joined.is_joined() && joined.leads(to_b, None).is_none());
            assert!(joined.hears().is_some(), "what is on its way comes there all the same");
        }
    }

    #[test]
    fn a_stream_is_not_doubted_while_anything_comes_nor_is_who_was_idle() {
        let ((main, bound), (_peer, to)) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let mut joined = Joined::new(bound).unwrap();
        let send = |joined: &mut Joined, batches| (0..batches).for_each(|_| joined.sent(to, None, (&main, bound)));
        send(&mut joined, ENOUGH);
        // Acknowledgements come between two looks, and there is always something on its way.
        for ms in 0..2000 {
            joined.looked(Some(true));
            send(&mut joined, 2 * UNANSWERED);
            joined.doubt(Instant::from_nanos(ms * 1_000_000));
            assert!(joined.is_joined(), "after {ms} ms");
        }
        joined.looked(Some(true));
        joined.doubt(Instant::from_nanos(2_000_000_000));
        send(&mut joined, 2 * UNANSWERED);
        joined.doubt(Instant::from_nanos(60_000_000_000));
        assert!(joined.is_joined(), "nothing can have come yet");
        joined.doubt(Instant::from_nanos(60_000_000_001 + UNANSWERED_NS));
        assert!(!joined.is_joined());
    }

    #[test]
    fn what_goes_from_another_address_is_not_joined() {
        let ((main, bound), (_, to)) = (bind("0.0.0.0:0"), bind("127.0.0.1:0"));
        let mut joined = Joined::new(bound).unwrap();
        let [one, two] = ["127.0.0.1", "127.0.0.2"].map(|from| Some(from.parse().unwrap()));
        for _ in 0..ENOUGH {
            joined.sent(to, two, (&main, bound));
        }
        assert_eq!(joined.local(), two);
        assert!(joined.leads(to, two).is_some() && joined.leads(to, one).is_none());
        // It is bound to that address from now on: what the kernel would send from another one is not for it.
        let (_, other) = bind("127.0.0.1:0");
        for from in [one, None] {
            for _ in 0..2 * ENOUGH {
                joined.sent(other, from, (&main, bound));
            }
            assert!(joined.leads(other, from).is_none());
        }
    }

    #[test]
    fn a_socket_that_could_not_be_joined_says_where_things_come() {
        let ((main, bound), (peer, _)) = (bind("0.0.0.0:0"), bind("127.0.0.1:0"));
        main.tell_local().unwrap();
        let mut joined = Joined::new(bound).unwrap();
        // The kernel joins nobody to everybody.
        for _ in 0..ENOUGH {
            joined.sent("255.255.255.255:9".parse().unwrap(), None, (&main, bound));
        }
        assert_eq!((joined.joins.refused, joined.local()), (1, None));
        let there = joined.hears().expect("it is bound");
        for at in ["127.0.0.2", "127.0.0.3"].map(|at| at.parse().unwrap()) {
            peer.send(Some(SocketAddr::new(at, bound.port())), &[IoSlice::new(b"a")], None).unwrap();
            let mut room = [0];
            let mut look = |at: &Datagrams| at.receive(&mut [IoSliceMut::new(&mut room)]).ok();
            let came = (0..100).find_map(|_| {
                let came = look(there).or_else(|| look(&main));
                came.or_else(|| {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    None
                })
            });
            assert_eq!(came.expect("it comes").local, Some(at));
        }
    }

    #[test]
    fn a_peer_that_is_not_there_is_no_trouble_of_the_others() {
        let ((main, bound), (a, to)) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let mut joined = Joined::new(bound).unwrap();
        for _ in 0..ENOUGH {
            joined.sent(to, None, (&main, bound));
        }
        drop(a);
        let there = joined.leads(to, None).unwrap();
        there.send(None, &[IoSlice::new(b"a")], None).unwrap();
        assert_eq!(there.receive(&mut []), Err(Errno::CONNREFUSED));
        assert_eq!(main.receive(&mut []), Err(Errno::AGAIN));
    }

    /// A probe of what a way carries is longer than the frames before it.
    #[test]
    fn one_datagram_is_not_cut_as_the_train_before_it() {
        let ((main, bound), (a, to_a)) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let mut joined = Joined::new(bound).unwrap();
        for _ in 0..ENOUGH {
            joined.sent(to_a, None, (&main, bound));
        }
        if !joined.splices_to(to_a) {
            crate::skipped("this kernel copies what it sends by UDP (before Linux 6.5)");
            return;
        }
        a.set_trains(false).unwrap();
        let mut room = vec![0; 4000];
        let mut came = || (0..).find_map(|_| a.receive(&mut [IoSliceMut::new(&mut room)]).ok()).unwrap().bytes;
        for _ in 0..2 {
            let mut train = joined.berths().unwrap().berth().unwrap();
            assert!(train.grow(2500));
            assert_eq!(joined.splice(&train, 1000), Some(Ok(2500)));
            assert_eq!([(); 3].map(|()| came()), [1000, 1000, 500]);
            assert_eq!(joined.send(&[IoSlice::new(&[8; 1000]), IoSlice::new(&[8; 1000])], None), Ok(2000));
            assert_eq!(came(), 2000);
            assert_eq!(joined.send(&[IoSlice::new(&[8; 1800])], Some(900)), Ok(1800));
            assert_eq!([(); 2].map(|()| came()), [900, 900]);
        }
    }

    #[test]
    fn frames_are_taken_one_by_one_where_they_come_alone() {
        let mut lone = Lone::default();
        // A ping-pong: some looks in vain for each frame.
        let ping_pong = |lone: &mut Lone| {
            (0..u32::MAX).find(|_| [None, None, Some(true)].into_iter().any(|came| lone.looked(came) == Some(true)))
        };
        assert_eq!(ping_pong(&mut lone), Some(ALONE));
        assert_eq!(
            [Some(true), Some(true), None].map(|came| lone.looked(came)),
            [None; 3],
            "an answer and its message"
        );
        let crowd = |lone: &mut Lone| (1..=TRAIN).find(|_| lone.looked(Some(true)) == Some(false));
        assert_eq!(crowd(&mut lone), Some(TRAIN));
        assert_eq!(ping_pong(&mut lone), Some(2 * ALONE));
        for _ in 0..20 {
            assert_eq!(lone.looked(Some(false)), Some(false), "a long one may be the first of several");
            ping_pong(&mut lone);
        }
        assert_eq!(crowd(&mut lone), Some(TRAIN));
        assert_eq!(ping_pong(&mut lone), Some(ALONE_AT_LAST), "who is wrong again and again tries seldom");
        // Trains in between.
        let mut lone = Lone::default();
        for _ in 0..10_000 {
            assert!([Some(true); 200].into_iter().chain([Some(false), None]).all(|came| lone.looked(came).is_none()));
        }
        // Nor does a stream of lone frames without an end count: what lies there may be a train.
        assert!([Some(true); 1000].into_iter().all(|came| lone.looked(came).is_none()));
    }

    #[test]
    fn most_is_what_the_majority_is() {
        let [a, b] = [1, 2].map(|port| SocketAddr::new("127.0.0.1".parse().unwrap(), port));
        let after = |peers: &mut dyn Iterator<Item = SocketAddr>| {
            let mut most = Most::default();
            peers.take(1000).position(|peer| most.sent(peer))
        };
        assert_eq!(after(&mut std::iter::repeat(a)), Some(63));
        assert_eq!(after(&mut [a, b].into_iter().cycle()), None);
        // One of four to the other: two ahead after each four.
        let mixed = after(&mut [a, a, b, a].into_iter().cycle()).unwrap();
        assert!((120..130).contains(&mixed), "{mixed}");
    }
}
