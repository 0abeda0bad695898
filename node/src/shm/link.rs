//! One channel over shared memory: the rings, the pages, the staging rings, and who is on the other side.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::adapter::Stage;
use cutthrough_engine::check::Breach;
use cutthrough_engine::choose::Chooser;
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::lap::Laps;
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::token::{Refused, Token};
use cutthrough_engine::trail::{STREAM, Trail};
use cutthrough_engine::tune::Tuner;
use cutthrough_segment::bell::Fence;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::{Array, OwnArray};
use cutthrough_segment::page::{Shelf, Waker};
use cutthrough_segment::record::{Reader, Writer};
use cutthrough_segment::ring::{Consumer, Impossible, Producer};
use cutthrough_segment::stage::Staging;
use cutthrough_segment::sync::{AtomicU64, Eviction, Slot};
use cutthrough_wire::layout::{Line, RUNS, Sizes};

use super::copier::Copier;
use super::handshake::{Heard, Offer};
use super::pages::Traffic;
use super::patience::{self, Waited};
use super::receive::Inbox;
use super::send::{Halves, least_lap};
use super::unmap;
use crate::clock;
use crate::incoming::Channel;
use crate::parcel::Parcel;
use crate::stat::{Cell, Stat};

/// Most runs of pages of one payload: with a token's two words they fill the run ring.
pub const LIST_MAX: usize = RUNS as usize - 2;

/// Looks in vain between two questions for returned pages.
const LOOKS_PER_RECLAIM: u32 = 16;

/// Why a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it.
    #[error("closed by this side")]
    Here,
    /// The peer closed it, or ended in good order.
    #[error("closed by the peer")]
    Peer,
    /// The peer died.
    #[error("the peer died")]
    Died,
    /// The peer broke a rule; nothing that it says is believed any more.
    #[error("the peer broke a rule: {0}")]
    Breach(Breach),
    /// The peer made no progress within the deadline, in the middle of a payload. What it had sent before is delivered.
    #[error("the peer made no progress within the deadline")]
    Stalled,
}

impl From<Breach> for CloseReason {
    fn from(breach: Breach) -> Self {
        Self::Breach(breach)
    }
}

/// Why a message was not sent. It does not arrive; pages that were attached to it have gone back to their pool, with
/// what was written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The ring is full: the peer has not taken enough messages, or, over a network, the word that it has is still on
    /// its way, or copies of as much private memory are kept for it as the settings allow (`Config::staging_bytes`). A
    /// long private payload, which would have to wait for the peer, is refused, too, while a thousand of the peer's
    /// messages have come that were not received. Poll, then try again; or wait for room (`Endpoint::wait_for_room`).
    /// Over a network do not wait for a message instead, for none need come.
    #[error("no room: the receiver is behind, or this side is; poll, then try again")]
    Full,
    /// The control message is longer than 96 bytes, or the payload longer than 1 GiB.
    #[error("too long: a control message has at most 96 bytes, a payload at most 1 GiB")]
    TooLong,
    /// The lists of pages that are on their way leave no room for this one. Poll, then try again; `has_room_for_list`
    /// of the endpoint says so before the pages are attached.
    #[error("too many runs of pages: the receiver has not taken the last lists yet")]
    TooManyRuns,
    /// The list of pages has more than [`LIST_MAX`] runs, and can never be sent.
    #[error("a list has at most {LIST_MAX} runs of pages: take longer runs, or send several messages")]
    ListTooLong,
    /// A page was taken from another channel.
    #[error("a page goes only through the channel that it was taken from")]
    ForeignPage,
    /// A page in the middle of a list is not full.
    #[error("only the last page of a list may be partly filled")]
    PartialPage,
    /// The channel has ended.
    #[error("the channel has ended: {0}")]
    Closed(CloseReason),
}

/// Who is on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Process number, as this process's name space counts; 0 if it has none there, as from within a container.
    pub process: u32,
    /// User.
    pub user: u32,
    /// Random number of this life of the peer's endpoint.
    pub generation: u64,
    /// The public key that it has proved to hold, on another machine; none with a shared key, or in plain text.
    pub key: Option<[u8; 32]>,
}

/// One channel.
#[derive(Debug)]
pub struct Link {
    pub(super) producer: Producer<OwnArray<Slot>>,
    pub(super) consumer: Consumer<Array<Slot>>,
    pub(super) peer: Peer,
    pub(super) own: Own,
    pub(super) socket: OwnedFd,
    /// How many messages the sender was told that we have taken, and after how many it is told again: an eighth of its
    /// ring, whichever way they were taken.
    pub(super) reported: u64,
    pub(super) report_every: u64,
    /// How to follow the sender; and as it says now for how long this side leaves it alone, nanoseconds, after how many
    /// messages right behind one another. For that, how many messages this side had sent when it was looked at last.
    pub(super) trail: Trail,
    pub(super) linger: u64,
    pub(super) lingers_after: u64,
    pub(super) sent_before: u64,
    pub(super) eviction: Option<Eviction>,
    pub(super) ending: Option<CloseReason>,
    armed: bool,
    pub(super) channel: Channel,
    pub(super) inbox: Inbox,
    pub(super) traffic: Traffic,
    pub(super) outbox: Outbox,
    pub(super) sizes: Sizes,
    pub(super) peer_sizes: Sizes,
    pub(super) policy: Policy,
    pub(super) deadline: Duration,
    pub(super) fence: Fence,
    pub(super) tuners: [Tuner; Stage::COUNT],
    /// Whether to copy alone or together with the peer.
    pub(super) chooser: Chooser,
    identity: Identity,
    /// Messages sent and received that the endpoint's counters know of.
    shown: (u64, u64),
    /// Rings for room that they do not know of yet.
    rung_for_room: u64,
}

/// What the sending side remembers of its staging ring and its run ring.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) staging: Staging,
    /// How to copy into the staging ring, and into the peer's landing memory.
    pub(super) copier: Copier,
    pub(super) putter: Copier,
    /// Whether to show a short payload by halves.
    pub(super) halves: Halves,
    pub(super) laps: Laps,
    /// Where the ring stood when the receiver was last let finish what it has, for another lap.
    pub(super) urged: u64,
    /// How many messages had come when the last payload was staged.
    pub(super) heard: u64,
    pub(super) staged: u64,
    pub(super) drained: u64,
    pub(super) runs: Writer<OwnArray<AtomicU64>>,
    /// Number of a message with a list of runs, and how far the run ring was written with it.
    pub(super) lists: std::collections::VecDeque<(u64, u64)>,
    pub(super) payload_bytes: u64,
    /// What the peer found worth a pulse when it was last looked at, and payloads sent since.
    pub(super) wanted: u64,
    pub(super) wanted_age: u32,
    /// The key that was last written to in each place of the peer's table of tokens.
    pub(super) used: Vec<u64>,
}

impl Outbox {
    /// Copies bytes to a place in the peer's landing memory.
    #[inline]
    pub(super) fn put(&mut self, peer: &Peer, offset: u64, bytes: &[u8]) {
        self.putter.copy(bytes.len(), |copying| peer.landing().copy_in(offset, bytes, copying));
    }

    /// Remembers that a payload has gone to where this token says: it is good for one.
    pub(super) fn use_up(&mut self, token: Token) {
        let place = usize::from(token.index);
        if self.used.len() <= place {
            self.used.resize(place + 1, 0);
        }
        self.used[place] = token.key;
    }
}

/// What a link needs of its node.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Sizes of this side.
    pub sizes: Sizes,
    /// How stages cut payloads.
    pub policy: Policy,
    /// Longest time without progress.
    pub deadline: Duration,
    /// The fence to use before sleeping.
    pub fence: Fence,
    /// Wakes the node when a page is dropped while it sleeps.
    pub waker: Arc<Waker>,
    /// Random number for the keys of tokens.
    pub seed: u64,
    /// The channel's name; its number is its row in the counters.
    pub channel: Channel,
}

impl Link {
    /// A channel from the two halves of a handshake.
    #[must_use]
    pub fn new(socket: OwnedFd, offer: Offer, heard: Heard, identity: Identity, terms: &Terms) -> Self {
        let Offer { own, .. } = offer;
        let Heard { greeting, peer } = heard;
        let (sizes, peer_sizes) = (terms.sizes, greeting.sizes);
        let ring = u64::from(sizes.staging_bytes);
        let eviction = Eviction::of_this_processor();
        let laps = Laps::new(ring, least_lap(terms.policy, ring), eviction.is_some());
        let mut staging = own.staging();
        staging.set_lap(laps.lap().bytes);
        Self {
            producer: Producer::new(own.slots()),
            consumer: Consumer::new(peer.slots(peer_sizes.slots)),
            reported: 0,
            report_every: u64::from(peer_sizes.slots / 8),
            trail: Trail::new(u64::from(peer_sizes.slots), eviction.is_some()),
            linger: 0,
            lingers_after: STREAM,
            sent_before: 0,
            eviction,
            ending: None,
            armed: false,
            channel: terms.channel,
            inbox: Inbox::new(
                Staging::new(peer.staging(), u64::from(peer_sizes.staging_bytes)),
                Reader::new(peer.runs()),
            ),
            traffic: Traffic::new(&own, &peer, &sizes, &peer_sizes, terms.seed, &terms.waker),
            outbox: Outbox {
                staging,
                copier: Copier::there(),
                putter: Copier::there(),
                halves: Halves::default(),
                laps,
                urged: 0,
                heard: 0,
                staged: 0,
                drained: 0,
                runs: Writer::new(own.runs()),
                lists: std::collections::VecDeque::new(),
                payload_bytes: 0,
                wanted: 0,
                wanted_age: 0,
                used: Vec::new(),
            },
            sizes,
            peer_sizes,
            policy: terms.policy,
            deadline: terms.deadline,
            fence: terms.fence,
            tuners: core::array::from_fn(|_| Tuner::default()),
            chooser: Chooser::default(),
            identity,
            shown: (0, 0),
            rung_for_room: 0,
            peer,
            own,
            socket,
        }
    }

    /// Who is on the other side.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Bytes of this side's pages.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        self.sizes.page_bytes
    }

    /// The socket that rings and tells of death.
    #[must_use]
    pub const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Why the channel is ending, if it is.
    #[must_use]
    pub const fn ending(&self) -> Option<CloseReason> {
        self.ending
    }

    /// Ends the channel; the first reason stays.
    pub fn end(&mut self, reason: CloseReason) {
        self.ending.get_or_insert(reason);
        match reason {
            CloseReason::Breach(_) => self.inbox.stop(),
            CloseReason::Stalled => self.inbox.finish(self.peer_sizes.slots),
            CloseReason::Here | CloseReason::Peer | CloseReason::Died => {}
        }
    }

    /// Whether the peer may still be there but nothing that it says counts any more.
    pub(super) const fn disbelieved(&self) -> bool {
        matches!(self.ending, Some(CloseReason::Breach(_)))
    }

    /// Looks whether the peer's socket is still there. One system call.
    pub fn look_after_peer(&mut self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = poll(&mut polled, Some(&none));
        if polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            self.peer_gone();
        }
    }

    /// The peer's socket is gone: it left, or it died.
    pub fn peer_gone(&mut self) {
        let left = self.peer.get(Line::Left) != 0;
        self.end(if left { CloseReason::Peer } else { CloseReason::Died });
    }

    /// Asks to be rung for, with `room` also for room; the caller executes the heavy fence afterwards. False if that
    /// was done before.
    pub fn arm(&mut self, room: bool) -> bool {
        if self.armed {
            return false;
        }
        // Two who wait for room must not wake each other again and again by going to sleep.
        if self.own.get(Line::Consumed) != self.consumer.taken() {
            self.report();
        }
        self.tell_drained();
        // Sockets are watched for edges: rings left over from earlier sleeps, and from waits in the middle of a
        // message, would fill the socket up in the end, and then no ring makes an edge any more.
        patience::drain(&self.socket);
        if room {
            self.own.arm_for_room();
        } else {
            self.own.arm();
        }
        self.armed = true;
        true
    }

    /// Does not need to be rung for any more. False if it had not asked for it.
    #[inline]
    pub fn disarm(&mut self) -> bool {
        self.armed && self.disarm_now()
    }

    #[cold]
    fn disarm_now(&mut self) -> bool {
        // What has woken this side stays in the socket until it is armed again: a message is told of before that.
        self.own.disarm();
        self.armed = false;
        true
    }

    /// The channel's name.
    #[must_use]
    #[inline]
    pub const fn channel(&self) -> Channel {
        self.channel
    }

    /// Wakes the peer, if it sleeps.
    #[inline]
    pub(super) fn wake_peer(&self, stat: &Stat) {
        if patience::wake(&self.peer, &self.socket) {
            stat.add(Counter::WakesSent, 1);
        }
    }

    /// Tells the sender how many of its messages were taken, and wakes it if it waits for that.
    #[cold]
    pub(super) fn report(&mut self) {
        self.own.set(Line::Consumed, self.consumer.taken());
        self.rung_for_room += u64::from(patience::wake_for_room(&self.peer, &self.socket));
    }

    /// Where dropped values leave what they give back.
    #[must_use]
    pub const fn shelf(&self) -> &Arc<Shelf> {
        &self.traffic.shelf
    }

    /// What a wait for the peer came to.
    pub(super) fn waited(&mut self, waited: Waited) -> Result<(), CloseReason> {
        match waited {
            Waited::Again => return Ok(()),
            Waited::PeerGone => self.peer_gone(),
            Waited::Deadline => self.end(CloseReason::Stalled),
        }
        Err(self.ending.unwrap_or(CloseReason::Died))
    }

    /// Takes back what dropped values and the peer have left: pages, lends, completions.
    ///
    /// # Errors
    /// The [`Breach`] of the peer.
    pub fn tidy(&mut self, stat: &Stat) -> Result<(), Breach> {
        self.tell_drained();
        let reclaimed = self.traffic.reclaim(&self.own, &self.peer)?;
        if reclaimed.pages > 0 {
            stat.add(Counter::PagesReturned, reclaimed.pages);
        }
        if self.traffic.tidy(&self.own, &self.peer, &mut self.inbox.unread)? || reclaimed.was_full {
            self.wake_peer(stat);
        }
        self.discard_unread(stat)?;
        self.release_sender(stat)
    }

    /// Takes back a payload that has been used.
    #[inline]
    pub(crate) fn release(&mut self, parcel: Parcel) {
        self.traffic.release(parcel);
    }

    /// The cookie of a message whose pages may be used again.
    pub fn completed(&mut self) -> Option<u64> {
        self.traffic.completed.pop_front()
    }

    /// Whether dropped values wait to be given back.
    #[must_use]
    pub fn shelf_filled(&self) -> bool {
        self.traffic.untidy()
    }

    /// Whether [`Link::tidy`] and [`Link::completed`] are due: dropped values wait to be given back, completions to be
    /// told, a payload is on its way through the ring, or somebody waits for the return of pages, or for room to return
    /// them, and this is one of the looks at which they are asked for. Asking at every look would take the counter's
    /// line away from the peer just when it writes there; pages whose return nobody waits for are asked for when new
    /// ones are taken, and by housekeeping.
    #[must_use]
    #[inline]
    pub fn untidy(&self, look: u32) -> bool {
        self.traffic.untidy()
            || !self.traffic.completed.is_empty()
            || self.inbox.has_front()
            || self.inbox.untold()
            || ((self.traffic.awaits_returns() || self.traffic.holds_back()) && look.is_multiple_of(LOOKS_PER_RECLAIM))
    }

    /// Whether nothing is to be done for this channel but to look for a message, of which there is none.
    #[inline]
    pub(crate) fn is_quiet(&self, look: u32) -> bool {
        !self.inbox.is_stuck() && self.ending.is_none() && !self.untidy(look)
    }

    /// Shows the channel's state in its row, and counts its messages: on their own path they are not counted, because
    /// the rings know how many there were.
    pub fn show(&mut self, stat: &Stat) {
        let (sent, received) = (self.producer.next(), self.consumer.taken());
        stat.add(Counter::MessagesSent, sent - self.shown.0);
        stat.add(Counter::MessagesReceived, received - self.shown.1);
        stat.add(Counter::WakesSent, std::mem::take(&mut self.rung_for_room));
        self.shown = (sent, received);
        if self.producer.refresh(self.peer.get(Line::Consumed)) == Err(Impossible) {
            self.end(CloseReason::Breach(Breach::Index));
        }
        let cells = [
            (Cell::Sent, self.producer.next()),
            (Cell::Acknowledged, self.producer.consumed()),
            (Cell::Received, self.consumer.taken()),
            (Cell::PayloadSent, self.outbox.payload_bytes),
            (Cell::PayloadReceived, self.inbox.payload_bytes),
            (Cell::Lent, u64::from(self.traffic.pages.lent())),
            (Cell::Posted, self.traffic.posted()),
            (Cell::Staged, self.outbox.staged.wrapping_sub(self.peer.get(Line::Drained))),
        ];
        for (cell, value) in cells {
            stat.set(self.channel.index as usize, cell, value);
        }
    }

    /// Opens the channel's row.
    pub fn show_open(&self, stat: &Stat) {
        stat.clear(self.channel.index as usize);
        stat.set(self.channel.index as usize, Cell::Peer, u64::from(self.identity.process));
        stat.set(self.channel.index as usize, Cell::User, u64::from(self.identity.user));
        stat.set(self.channel.index as usize, Cell::Opened, clock::now().as_nanos() / 1_000_000);
        stat.set(self.channel.index as usize, Cell::Open, 1);
    }

    /// Leaves in good order: says so, so that the peer need not think that this side died. A child that was forked may
    /// have the socket for as long as it lives; the peer hears of the end all the same.
    pub fn leave(&self) {
        self.own.set(Line::Consumed, self.consumer.taken());
        self.own.set(Line::Left, 1);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Closes the socket, and gives the memory back without waiting for that.
    pub fn part(self) {
        let Self { socket, producer, consumer, peer, own, inbox, traffic, outbox, sizes, peer_sizes, .. } = self;
        drop(socket);
        let bytes = |sizes: Sizes| sizes.layout().map_or(0, |layout| layout.out_bytes + layout.landing_bytes);
        let memory = (producer, consumer, peer, own, inbox, traffic, outbox);
        if bytes(sizes) + bytes(peer_sizes) >= unmap::LARGE { unmap::later(memory) } else { drop(memory) }
    }

    /// Says what was refused, by counter.
    pub(crate) fn count_refused(stat: &Stat, refused: Refused) {
        stat.add(refused.counter(), 1);
        stat.add(Counter::PayloadDropped, 1);
    }

    /// Whether a look at the rings would find something: the last look before sleeping.
    #[must_use]
    pub fn ready(&self) -> bool {
        (self.consumer.ready() && !self.inbox.waits_for_payload())
            || self.ending.is_some()
            || self.inbox.busy(&self.peer)
            || self.returned()
            || self.traffic.can_return(&self.peer)
            || self.traffic.is_recalled(&self.peer)
            || self.traffic.untidy()
            || !self.traffic.completed.is_empty()
    }

    /// Whether the peer has sent anything that can be taken out of its way.
    pub fn can_be_relieved(&self) -> bool {
        let more = self.consumer.ready() && self.inbox.takes_more();
        self.ending.is_none() && (more || self.inbox.bytes_wait(&self.peer) || self.inbox.is_filled())
    }

    /// Whether the peer has returned pages that somebody waits for.
    fn returned(&self) -> bool {
        self.traffic.awaits_returns() && self.traffic.has_returns(&self.peer)
    }
}
