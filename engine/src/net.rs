//! Messages over a network that loses, repeats, reorders and forges frames.
//!
//! [`Net`] is the whole of it without memory, clock or socket: whoever has those brings frames in ([`Net::frame`]),
//! fetches batches to be sent ([`Net::batch`]), looks after the time ([`Net::timer`], [`Net::tick`]) and takes what has
//! happened ([`Net::next_event`]). The simulator runs this same code.
//!
//! | step | file |
//! |---|---|
//! | who is there, with which key, and is there room? | `greet`, `porter`, `seats` |
//! | a message, until the other side has it | `outbox` |
//! | frames that go in one call | [`batch`], `leaving` |
//! | one channel: numbers, acknowledgements, times | [`channel`] |
//! | where will the next frames land? | `guess` |
//! | frames that come in one call, scattered by that | [`trains`] |
//! | a message, until it can be handed over | [`inbox`], `spans` |
//! | whose payload is asked for | [`grants`] |
//! | a payload that is read while it comes | `reading` |
//! | the end of a channel | `ending`, `held`, `parted` |
//! | what the user is told | `told` |
//! | when which channel is looked at | `timers` |
//! | by which adapter, where there are several | [`ways`] |
//! | what a caller may know of a channel, and change | `views` |
//! | whose memory it is | [`memory`] |

mod asking;
pub mod batch;
pub mod channel;
mod ending;
mod forecast;
pub mod grants;
mod greet;
mod guess;
mod held;
pub mod inbox;
mod leaving;
pub mod memory;
mod outbox;
mod own;
mod parted;
pub mod placing;
mod porter;
mod pulses;
mod quiet;
mod reading;
mod release;
mod seats;
mod shares;
mod spans;
mod timers;
mod told;
pub mod trains;
mod views;
pub mod ways;
mod words;

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::SocketAddr;

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, Malformed};
use cutthrough_wire::token::Token;

use self::channel::{Bodies, Body, Channel, Ending};
use self::grants::Turns;
use self::greet::{Call, Welcomed};
use self::inbox::{Left, Reading};
use self::memory::Memory;
pub use self::outbox::Cargo;
pub use self::parted::PARTED_MAX;
use self::parted::Partings;
use self::placing::Placing;
use self::porter::Porter;
use self::pulses::Worth;
use self::shares::Shares;
use self::ways::{Most, WAYS};
pub use self::words::{CallError, CargoOf, Guess, NetEvent, Planted, Refused, Settings, Tally};
use crate::check::Breach;
use crate::flow::quiet::Calls;
use crate::seal::Guard;
use crate::time::Instant;

/// Nanoseconds between two looks at the times of one channel, at least.
const LOOK_NS: u64 = 1_000;

/// One state of a seat.
enum State<M: Memory> {
    Free,
    Calling(Box<Call>),
    Open(Box<Channel<M>>),
}

struct Seat<M: Memory> {
    generation: u32,
    /// Why the last channel of this seat has ended.
    ended: Option<Ending>,
    /// What it has left that may still be read.
    left: Vec<Left>,
    /// Places that payloads of it have got by their tokens, and have not filled.
    begun: Vec<(Token, M::Place)>,
    state: State<M>,
}

/// The network side of an endpoint.
pub struct Net<M: Memory> {
    /// Whoever has the memory.
    pub memory: M,
    guard: Box<dyn Guard + Send>,
    settings: Settings,
    listening: bool,
    seats: Vec<Seat<M>>,
    free: Vec<usize>,
    open: usize,
    /// How many of those their users have closed; and how many there are of another kind, which count as well.
    closing: usize,
    others: usize,
    /// Bytes that may be on their way unasked, as they were dealt to channels, and to calls that have told of them.
    dealt: u64,
    shares: Shares,
    calls: Calls,
    /// Channels that were let in and have not been heard of since.
    welcomed: Vec<Welcomed>,
    porter: Porter,
    /// Channels that their peers have closed.
    partings: Partings,
    /// Frames of handshakes, and of channels that have ended, ready to be sent; and the numbers of those channels.
    greetings: VecDeque<(SocketAddr, Vec<u8>, Option<usize>)>,
    work: VecDeque<usize>,
    ready: VecDeque<usize>,
    wants: Vec<usize>,
    /// Channels with payloads that may wait for a reader, and some that had such.
    unread: Vec<usize>,
    /// Channels that may owe an acknowledgement which waits for company.
    owing: Vec<usize>,
    /// Channels that have changed since they were last looked at as a whole.
    changed: Vec<usize>,
    /// Channels of whose payloads an adapter may still read some that have arrived.
    in_use: Vec<usize>,
    /// Channels that are over, but for payloads that their user may still read.
    through: Vec<usize>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    happened: VecDeque<NetEvent<M::Place>>,
    /// When there was last nothing to receive.
    looked: Instant,
    /// The channel that a payload came on last.
    last_loaded: Option<usize>,
    /// The channel in whose memory frames may land at any time.
    aimed: Option<usize>,
    /// Bytes of a batch at most, for each way.
    most: Most,
    /// What is worth a batch of its own, where the way is free.
    worth: Option<Worth>,
    /// How often anything has come that brings messages on.
    strides: u64,
    /// By which way frames come, and how often they were copied before.
    by: u8,
    before: u32,
    /// How payloads are placed that come by a ring.
    pub placing: Placing,
    /// First numbers of every channel.
    begin: u64,
    /// Of whom payloads are asked for.
    turns: Turns<usize>,
    #[cfg(feature = "planted")]
    planted: Option<Planted>,
    tally: Tally,
}

impl<M: Memory<Load: core::fmt::Debug, Place: core::fmt::Debug>> core::fmt::Debug for Net<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let channels = self.open_channels().map(|(_, channel)| channel);
        f.debug_struct("Net")
            .field("tally", &self.tally)
            .field("channels", &channels.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<M: Memory> Net<M> {
    /// The network side of an endpoint without channels.
    #[must_use]
    pub fn new(settings: Settings, memory: M, guard: Box<dyn Guard + Send>) -> Self {
        Self {
            memory,
            guard,
            settings,
            listening: false,
            seats: Vec::new(),
            free: Vec::new(),
            open: 0,
            closing: 0,
            others: 0,
            dealt: 0,
            shares: Shares::default(),
            calls: Calls::default(),
            welcomed: Vec::new(),
            porter: Porter::default(),
            partings: Partings::default(),
            greetings: VecDeque::new(),
            work: VecDeque::new(),
            ready: VecDeque::new(),
            wants: Vec::new(),
            unread: Vec::new(),
            owing: Vec::new(),
            changed: Vec::new(),
            in_use: Vec::new(),
            through: Vec::new(),
            timers: BinaryHeap::new(),
            happened: VecDeque::new(),
            looked: Instant::default(),
            last_loaded: None,
            aimed: None,
            most: [usize::MAX; WAYS],
            worth: None,
            strides: 0,
            by: 0,
            before: 0,
            placing: Placing::default(),
            begin: 0,
            turns: Turns::new(),
            #[cfg(feature = "planted")]
            planted: None,
            tally: Tally::default(),
        }
    }

    /// Lets every channel number its frames and messages from `begin` on, and count unasked bytes from there. All
    /// endpoints have to agree on it. It is there to see what happens when low halves of numbers wrap, long before a
    /// channel could have sent so much; the keys of the crate `seal` go with numbers of their first epoch only.
    pub const fn begin_at(&mut self, begin: u64) {
        self.begin = begin;
    }

    /// Asks for so many payloads at a time, not for [`grants::ADMITTED`]: to compare.
    pub const fn admit(&mut self, admitted: usize) {
        self.turns.admitted = admitted;
    }

    /// Plants a bug.
    #[cfg(feature = "planted")]
    pub const fn plant(&mut self, bug: Option<Planted>) {
        self.planted = bug;
    }

    /// Lets peers in from now on, or not.
    pub const fn listen(&mut self, listening: bool) {
        self.listening = listening;
    }

    /// What has been counted.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Open channels.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.open
    }

    /// The channels that are open, and their numbers.
    fn open_channels(&self) -> impl Iterator<Item = (usize, &Channel<M>)> {
        self.seats.iter().enumerate().filter_map(|(index, seat)| match &seat.state {
            State::Open(channel) => Some((index, &**channel)),
            State::Free | State::Calling(_) => None,
        })
    }

    fn channel(&mut self, index: usize) -> Option<&mut Channel<M>> {
        match self.seats.get_mut(index).map(|seat| &mut seat.state) {
            Some(State::Open(channel)) => Some(channel),
            _ => None,
        }
    }

    /// Sends a message, if fewer than the settings allow are on their way: its number.
    ///
    /// # Errors
    /// [`Refused`]; the payload comes back with it.
    #[inline]
    pub fn send(
        &mut self,
        index: usize,
        control: &[u8],
        cargo: Option<CargoOf<M>>,
    ) -> Result<u64, (Refused, Option<CargoOf<M>>)> {
        let slots = self.settings.slots;
        if self.channel(index).is_some_and(|channel| channel.outbox.waiting() as u64 >= slots) {
            self.heed(index);
        }
        let Some(channel) = self.channel(index).filter(|channel| channel.end == channel::End::None) else {
            return Err((Refused::Closed, cargo));
        };
        if channel.outbox.waiting() as u64 >= slots || channel.outbox.room() == 0 {
            return Err((Refused::Full, cargo));
        }
        let before = channel.outbox.payload_bytes;
        let number = channel.outbox.push(control, cargo);
        let bytes = channel.outbox.payload_bytes - before;
        if !channel.listed {
            channel.listed = true;
            self.work.push_back(index);
        }
        self.tally.messages_sent += 1;
        self.tally.payload_sent += bytes;
        Ok(number)
    }

    /// Says that the user has seen all messages so far and had the time to read their payloads: those that are left
    /// unread do not keep a channel any more that the other side has closed.
    pub fn let_go(&mut self) {
        for index in core::mem::take(&mut self.through) {
            if let Some(channel) = self.channel(index) {
                channel.let_go = true;
                self.touch(index);
            }
        }
    }

    /// Whether any channel still waits for acknowledgements, or has something to send.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.seats.iter().all(|seat| match &seat.state {
            State::Open(channel) => channel.outbox.waiting() == 0 && matches!(channel.end, channel::End::None),
            State::Free | State::Calling(_) => true,
        })
    }

    /// Takes in a frame that has come from `from`. `head` is its header. True unless the payload had landed in a place
    /// that its message did not get: then those behind it in the same guess have to be brought in from aside.
    pub fn frame(
        &mut self,
        now: Instant,
        from: SocketAddr,
        head: &[u8; HEADER_BYTES],
        body: Body<'_>,
        reading: Option<(usize, &mut Reading<'_>)>,
    ) -> bool {
        let header = match Header::from_bytes(head) {
            Ok(header) => header,
            Err(Malformed::Version(_)) => {
                self.other_version(now, from, head, body);
                return true;
            }
            Err(_) => {
                self.tally.stale += 1;
                return true;
            }
        };
        let body = match fit(&header, body) {
            Some(body) => body,
            None => {
                self.tally.stale += 1;
                return true;
            }
        };
        if header.kind.greets() {
            if let Body::Aside(body) = body {
                self.greeted(now, from, &header, head, body);
            }
            return true;
        }
        let Some(index) = self.whose(&header, from) else {
            self.tally.stale += 1;
            if let Body::Aside(body) = body {
                self.closed_again(&header, head, body, from);
            }
            return true;
        };
        let reading = reading.filter(|(reader, _)| *reader == index).map(|(_, reading)| reading);
        let mut held = true;
        self.take_in(index, (header.kind, now), |channel, memory, looked, tally| {
            let taken = channel.receive((&header, head), body, reading, memory, (now, looked), tally);
            held = !core::mem::take(&mut channel.guess_failed);
            taken
        });
        held
    }

    /// Takes in frames that have come from `from` together, parts of one payload without an opening: how many of them,
    /// from the first on. The rest has to be brought in frame by frame; so has the first, if there is none.
    pub fn run(
        &mut self,
        now: Instant,
        from: SocketAddr,
        (heads, bodies): (&[[u8; HEADER_BYTES]], Bodies<'_>),
        reading: Option<(usize, &mut Reading<'_>)>,
    ) -> usize {
        let Some(Ok(first)) = heads.first().map(Header::from_bytes) else { return 0 };
        let Some(index) = self.whose(&first, from).filter(|_| first.kind == Kind::Data) else { return 0 };
        let reading = reading.filter(|(reader, _)| *reader == index).map(|(_, reading)| reading);
        self.take_in(index, (first.kind, now), |channel, _, looked, tally| {
            channel.receive_run((heads, bodies), reading, (now, looked), tally)
        })
        .unwrap_or(0)
    }

    /// The channel that a frame is of.
    fn whose(&mut self, header: &Header, from: SocketAddr) -> Option<usize> {
        let index = header.tag as usize;
        let known = self.seats.get(index).is_some_and(|seat| seat.generation == header.generation);
        #[cfg(feature = "planted")]
        let known = known || self.planted == Some(Planted::Stale);
        self.channel(index).filter(|channel| known && channel.peer.address == from).map(|_| index)
    }

    /// Has a channel take frames in, and sees what that has changed. `None` if the peer has broken a rule.
    fn take_in<T>(
        &mut self,
        index: usize,
        (kind, now): (Kind, Instant),
        receive: impl FnOnce(&mut Channel<M>, &mut M, Instant, &mut Tally) -> Result<T, Breach>,
    ) -> Option<T> {
        let looked = self.looked;
        self.heed(index);
        let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else { return None };
        let (was_confirmed, strides, opened) = (channel.confirmed, channel.strides, self.tally.opened());
        (channel.inbox.by, channel.inbox.before, channel.inbox.choice) = (self.by, self.before, self.placing.now());
        #[cfg(feature = "planted")]
        channel.plant(self.planted);
        let taken = receive(channel, &mut self.memory, looked, &mut self.tally);
        let asked = (core::mem::take(&mut channel.call_asked), channel.distance().round_ns);
        self.strides += channel.strides - strides;
        for story in channel.inbox.whole.drain(..) {
            self.placing.landed((story.choice, story.way), story.bytes, story.begun);
        }
        if channel.owes() && !core::mem::replace(&mut channel.owing, true) {
            self.owing.push(index);
        }
        if !was_confirmed && channel.confirmed {
            self.confirmed(index);
        }
        if asked.0 > 0 {
            self.asked_for_quiet(asked, now);
        }
        match taken {
            Ok(taken) => {
                // What nobody has proved steers nothing.
                if self.tally.opened() > opened {
                    if kind == Kind::Open {
                        self.deal(index, now);
                    }
                    self.received(index, kind);
                }
                self.touch(index);
                Some(taken)
            }
            Err(breach) => {
                self.end(index, Ending::Breach(breach));
                None
            }
        }
    }

    /// What a frame has changed for others than its channel.
    fn received(&mut self, index: usize, kind: Kind) {
        if matches!(kind, Kind::Open | Kind::Data) {
            self.last_loaded = Some(index);
        }
        let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else { return };
        let in_use = !channel.outbox.in_use.is_empty();
        if channel.inbox.has_ready() && !core::mem::replace(&mut channel.queued, true) {
            self.ready.push_back(index);
        }
        if !channel.outbox.completed.is_empty() {
            let completed = channel.outbox.completed.drain(..);
            self.happened.extend(completed.map(|cookie| NetEvent::Completed(index, cookie)));
        }
        if in_use && !self.in_use.contains(&index) {
            self.in_use.push(index);
        }
        if kind == Kind::Open && !self.wants.contains(&index) {
            self.wants.push(index);
        }
    }

    /// Sees what has become of a channel's frames by what came with its last messages: those were told first.
    fn heed(&mut self, index: usize) {
        let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else { return };
        let strides = channel.strides;
        if channel.heed(&mut self.tally) {
            self.strides += channel.strides - strides;
            self.received(index, Kind::Records);
        }
    }

    /// A channel has changed. What follows from that is seen once for everything that changes at the same time.
    fn touch(&mut self, index: usize) {
        if let Some(channel) = self.channel(index)
            && !core::mem::replace(&mut channel.changed, true)
        {
            self.changed.push(index);
        }
    }

    fn settle(&mut self, now: Instant) {
        while !self.changed.is_empty() {
            let mut changed = core::mem::take(&mut self.changed);
            changed.drain(..).for_each(|index| self.settle_channel(index, now));
            if self.changed.is_empty() {
                self.changed = changed;
            }
        }
    }

    /// After a channel has changed: whether it has something to send, when it has to be looked at, whether it is over.
    fn settle_channel(&mut self, index: usize, now: Instant) {
        let settings = self.settings;
        self.heed(index);
        let Some(channel) = self.channel(index) else { return };
        channel.changed = false;
        channel.begins_to_end(now);
        if channel.is_over().is_some() && !channel.queued {
            return self.over(index);
        }
        let unread = channel.inbox.has_unread();
        if channel.waits_for_reader() && !channel.queued && !self.through.contains(&index) {
            self.through.push(index);
        }
        if unread && !self.unread.contains(&index) {
            self.unread.push(index);
        }
        let Some(channel) = self.channel(index) else { return };
        // What is due already is sent by the next batch; looking again at once would find the same.
        let timer = channel.timer(&settings, now).max(now.after(LOOK_NS));
        let sooner = channel.timer_set.is_none_or(|set| timer < set);
        if sooner {
            channel.timer_set = Some(timer);
        }
        if !channel.listed && channel.has_work(now) {
            channel.listed = true;
            self.work.push_back(index);
        }
        if sooner {
            self.set_timer(timer, index);
        }
    }

    /// There is nothing to receive at this moment: what came is acknowledged before long, and payloads are asked for.
    pub fn looked(&mut self, now: Instant) {
        self.looked = now;
        self.grant(now);
    }

    /// Whether any channel has something to send, or may have.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.work.is_empty() || !self.changed.is_empty() || !self.greetings.is_empty()
    }

    /// A frame of a handshake to be sent, or of a channel that has ended.
    pub fn greeting(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.greeting_of().map(|(to, frame, _)| (to, frame))
    }

    /// As [`Net::greeting`]; with the number that the channel had, if it is of one that has ended.
    pub fn greeting_of(&mut self) -> Option<(SocketAddr, Vec<u8>, Option<usize>)> {
        self.greetings.pop_front()
    }

    /// Sends every acknowledgement that waits for company: this side goes to sleep.
    pub fn hurry(&mut self) {
        let mut owing = core::mem::take(&mut self.owing);
        for index in owing.drain(..) {
            let Some(channel) = self.channel(index) else { continue };
            channel.owing = false;
            if channel.owes() {
                channel.hurry();
                self.touch(index);
            }
        }
        self.owing = owing;
    }
}

/// Cuts padding off a body; `None` if bytes are missing.
fn fit<'a>(header: &Header, body: Body<'a>) -> Option<Body<'a>> {
    let len = usize::from(header.body);
    match body {
        Body::Aside(bytes) => bytes.get_mut(..len).map(Body::Aside),
        Body::Landed { opening, len: landed } => {
            let before = opening.as_ref().map_or(0, |opening| opening.len());
            let payload = len.checked_sub(before)?;
            (payload <= landed).then_some(Body::Landed { opening, len: payload })
        }
    }
}
