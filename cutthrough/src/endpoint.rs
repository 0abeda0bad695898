//! The endpoint: a process's own door.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::am::message::Short;
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::Receipt;
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_engine::transfer::Trace;
use cutthrough_node::config::Config;
use cutthrough_node::incoming::{Channel, Connecting, Event, Incoming};
use cutthrough_node::node::{ConnectError, ListenError, Node, OpenError, WaitError, Waker};
use cutthrough_node::shm::grant::{Landing, NoMemory, RevokeError};
use cutthrough_node::shm::link::{CloseReason, Identity, SendError};
use cutthrough_node::shm::meanwhile::Alone;
use cutthrough_node::shm::receive::ReadError;
use cutthrough_node::shm::send::{Cargo, Load};
#[cfg(feature = "tokio")]
use cutthrough_node::stall::Stall;
use cutthrough_node::udp::Offer;
use cutthrough_segment::bell::Fence;
use cutthrough_segment::page::{Page, Waker as Bell};
use cutthrough_wire::slot::CONTROL_MAX;

use crate::outgoing::Outgoing;

mod room;

/// A process's own door: listens, connects, sends, receives. One thread uses it at a time.
pub struct Endpoint {
    node: Node,
    /// Where a control message is written that goes over a network.
    slot: [u8; CONTROL_MAX],
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Opens an endpoint. It has no name and no channels yet.
    ///
    /// # Errors
    /// [`OpenError`], if a setting is out of its bounds or the system gives no memory.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        Ok(Self { node: Node::open(config)?, slot: [0; CONTROL_MAX] })
    }

    /// Takes an address and lets peers in: `shm:NAME` (or `shm:/PATH` for a socket file of one's own) for processes of
    /// this machine, `udp:HOST:PORT` for others; one of each at a time. A second one takes the place of the first,
    /// which is free again; channels that were opened by it stay. To listen at the same one again changes nothing. With
    /// `packet:` or `xdp:` instead of `udp:` frames go by rings shared with the kernel, which needs rights; with `net:`
    /// each batch goes the way that has cost the least. All of these understand each other. At `udp:[::]:PORT` peers
    /// reach it by every address of this machine, at `udp:0.0.0.0:PORT` by those of IPv4. An endpoint with channels
    /// over a network stays at the address that it has there. Peers appear as [`Event::Opened`]. The address is free
    /// again when the endpoint is dropped or its process ends in any way.
    ///
    /// # Errors
    /// [`ListenError`], whose text says what to do.
    pub fn listen(&mut self, address: &str) -> Result<(), ListenError> {
        self.node.listen(address)
    }

    /// Gives up the addresses at which it listens, and lets no more peers in: who calls is told that nobody listens,
    /// and who has called and was not let in yet, that this side went away. Open channels stay, and so does the
    /// endpoint's address on the network. A peer that was let in before may still appear as [`Event::Opened`].
    pub fn stop_listening(&mut self) {
        self.node.stop_listening();
    }

    /// Opens a channel to whoever listens at `address`, and waits up to `timeout` for the answer. Who has the public
    /// keys of several peers says which one is called, by its 64 digits behind the address: `udp:HOST:PORT#HEX`.
    /// Over a network an endpoint cannot call itself.
    ///
    /// On this machine it is known at once that nobody listens: it fails with
    /// [`AddressError::Nobody`](crate::AddressError::Nobody), whatever time is left. Whoever starts both sides together
    /// calls again:
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use cutthrough::{AddressError, Channel, ConnectError, Endpoint};
    /// fn connect(endpoint: &mut Endpoint, address: &str, until: Instant) -> Result<Channel, ConnectError> {
    ///     loop {
    ///         match endpoint.connect(address, until.saturating_duration_since(Instant::now())) {
    ///             Err(ConnectError::Address(AddressError::Nobody(_))) if Instant::now() < until => {
    ///                 std::thread::sleep(Duration::from_millis(5));
    ///             }
    ///             outcome => return outcome,
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// Over a network nothing tells that from a lost frame, unless another endpoint is there: it calls again and again,
    /// and may be there before the listening side.
    ///
    /// # Errors
    /// [`ConnectError`], whose text says what to do.
    pub fn connect(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        self.node.connect(address, timeout)
    }

    /// Begins to open a channel to whoever listens at `address`, and goes on: [`Event::Connected`] says what has become
    /// of it, after `timeout` at the latest; on this machine that nobody listens is told at once, as with
    /// [`Endpoint::connect`]. It never waits, but for the name of a host to be looked up: give its number where that
    /// matters.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cutthrough::{Config, Endpoint, Event};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut endpoint = Endpoint::open(Config::default())?;
    /// # let address = format!("shm:begin-connect-{}", std::process::id());
    /// # endpoint.listen(&address)?;
    /// let connecting = endpoint.begin_connect(&address, Duration::from_secs(1))?;
    /// let channel = loop {
    ///     match endpoint.wait(None)? {
    ///         Event::Connected(of, outcome) if of == connecting => break outcome?,
    ///         other => println!("meanwhile: {other:?}"),
    ///     }
    /// };
    /// endpoint.send(channel, b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConnectError`], if it has failed already: then there is no event.
    pub fn begin_connect(&mut self, address: &str, timeout: Duration) -> Result<Connecting, ConnectError> {
        self.node.begin_connect(address, timeout)
    }

    /// Gives up opening a channel: nothing will be told of it. False if that was told already.
    pub fn cancel_connect(&mut self, connecting: Connecting) -> bool {
        self.node.cancel_connect(connecting)
    }

    /// The next event, if there is one. Never waits for one, and makes no system call, takes no lock and allocates
    /// nothing on the path of a control message. In a stream of messages, where that is measured to be worth it, a poll
    /// that has caught up with the sender lets it get ahead for a few microseconds (`docs/architecture.md`; the counter
    /// `lingers`).
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.node.poll()
    }

    /// The next event: spins briefly, then sleeps until there is one. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] when the time is over, [`WaitError::Woken`] when a [`Waker`] has ended it.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Event, WaitError> {
        self.node.wait(timeout)
    }

    /// Whether polls in vain let others have the core now and then.
    pub(crate) const fn set_yields(&mut self, yields: bool) {
        self.node.set_yields(yields);
    }

    /// The same, but the time is over, too, once `over` says so: whoever has it say so rings this endpoint then. Only
    /// with `heeds` does a [`Waker`] end it.
    pub(crate) fn wait_unless(
        &mut self,
        timeout: Option<Duration>,
        heeds: bool,
        over: impl Fn() -> bool,
    ) -> Result<Event, WaitError> {
        self.node.wait_unless(timeout, heeds, over)
    }

    /// What ends this endpoint's waits, from any thread: to have it stop, or look at what others have left for it. A
    /// wait that it ends says [`WaitError::Woken`].
    ///
    /// ```
    /// use cutthrough::{Config, Endpoint, WaitError};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut endpoint = Endpoint::open(Config::default())?;
    /// let waker = endpoint.waker();
    /// std::thread::spawn(move || waker.wake());
    /// assert!(matches!(endpoint.wait(None), Err(WaitError::Woken)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.node.waker().clone()
    }

    /// Where the names of calls begin: at another number for each endpoint.
    #[allow(clippy::cast_possible_truncation, reason = "any half of a random number is one")]
    pub(crate) fn first_nonce(&self) -> u32 {
        self.node.generation() as u32
    }

    /// When it has last woken from a sleep that began when there was nothing to poll for.
    pub(crate) const fn rested(&self) -> Instant {
        self.node.rested()
    }

    /// Whether the peer is reached over a network.
    pub(crate) fn is_wire(&self, channel: Channel) -> bool {
        self.node.is_wire(channel)
    }

    /// What has this endpoint look while it sleeps, from any thread.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(self.node.bell())
    }

    /// What has become of a channel that is being opened, if that is known by now. Messages wait to be polled for.
    #[cfg(feature = "tokio")]
    pub(crate) fn look_for(&mut self, connecting: Connecting) -> Option<Result<Channel, ConnectError>> {
        self.node.look_for(connecting)
    }

    /// As [`Endpoint::arm`], for who waits for that alone.
    #[cfg(feature = "tokio")]
    pub(crate) fn arm_to_look_for(&mut self) -> bool {
        self.node.arm_to_look_for()
    }

    /// For how long a payload stands still whose reader waits from now on.
    #[cfg(feature = "tokio")]
    pub(crate) fn stall(&self) -> Stall {
        self.node.stall()
    }

    /// As [`Endpoint::arm`], for who waits for more of a payload than [`Endpoint::read_some`] has found, until it has
    /// stood still for too long.
    #[cfg(feature = "tokio")]
    pub(crate) fn arm_to_read(&mut self, message: &Incoming, stall: &mut Stall) -> Result<bool, ReadError> {
        self.node.arm_to_read(message, stall)
    }

    /// Prepares to sleep on the endpoint's file descriptor ([`AsFd`]; readable means: poll). False if there is
    /// something to poll for already. The order that loses no wake-up: poll until there is nothing, arm, sleep only if
    /// this says true. What comes to an endpoint that is not armed need not make it readable.
    pub fn arm(&mut self) -> bool {
        self.node.arm()
    }

    /// Sends a control message of up to 96 bytes without payload. Never waits, and makes no system call (unless the
    /// peer sleeps), takes no lock and allocates nothing.
    ///
    /// # Errors
    /// [`SendError::Full`] if the receiver is behind: poll, then try again; or wait for room
    /// ([`Endpoint::wait_for_room`]), or ask to be told of it ([`Endpoint::ask_for_room`]).
    #[inline]
    pub fn send(&mut self, channel: Channel, control: &[u8]) -> Result<(), SendError> {
        match self.node.link(channel) {
            Ok((link, stat)) => link.send_control(control, stat),
            Err(error) => self.send_far(channel, control, error),
        }
    }

    /// [`Endpoint::send`] for a short message, which is written in place.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    #[inline(always)]
    pub(crate) fn send_short(&mut self, channel: Channel, message: Short<'_>) -> Result<(), SendError> {
        match self.node.link(channel) {
            Ok((link, stat)) => {
                link.check_room(stat)?;
                let len = message.write(link.control_mut());
                link.send_in_place(len, stat);
                Ok(())
            }
            Err(error) => self.send_short_far(channel, message, error),
        }
    }

    /// Over a network, or nowhere.
    #[inline(never)]
    fn send_short_far(&mut self, channel: Channel, message: Short<'_>, error: SendError) -> Result<(), SendError> {
        let mut control = [0; CONTROL_MAX];
        let len = message.write(&mut control);
        self.send_far(channel, &control[..len], error)
    }

    /// Over a network, or nowhere: `error` says why.
    fn send_far(&mut self, channel: Channel, control: &[u8], error: SendError) -> Result<(), SendError> {
        let Some((net, index)) = self.node.wire(channel) else { return Err(error) };
        let cargo = Cargo { load: Load::None, token: None, cookie: None };
        let sent = net.send(index, control, cargo, (&mut Alone, self.node.stat())).map(|_| ());
        sent.inspect_err(|error| self.node.refused(*error))
    }

    /// Borrows the next send slot of a channel: write the control message in place, attach a payload, send. Dropped
    /// unsent, the slot is free again. Over a network there is no slot while copies of as much private memory as
    /// `Config::staging_bytes` says are kept for the peer, beside what is on its way.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Closed`].
    #[inline(always)]
    pub fn outgoing(&mut self, channel: Channel) -> Result<Outgoing<'_>, SendError> {
        if self.node.is_wire(channel) {
            return self.outgoing_far(channel);
        }
        let (link, stat) = self.node.link(channel)?;
        link.check_room(stat)?;
        link.expect_send();
        Ok(Outgoing::new(&mut self.node, channel))
    }

    /// Over a network.
    fn outgoing_far(&mut self, channel: Channel) -> Result<Outgoing<'_>, SendError> {
        let Some((net, index)) = self.node.wire(channel) else { return Err(SendError::Closed(CloseReason::Here)) };
        net.check_room(index).inspect_err(|error| self.node.refused(*error))?;
        Ok(Outgoing::over_net(&mut self.node, channel, &mut self.slot))
    }

    /// Contiguous pages for `bytes` bytes in the channel's shared pool: to be filled in place and sent by reference.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[inline(always)]
    pub fn page(&mut self, channel: Channel, bytes: usize) -> Result<Page, NoMemory> {
        match self.node.link(channel) {
            Ok((link, stat)) => link.page(bytes, stat),
            Err(error) => self.page_far(channel, bytes).unwrap_or_else(|| Err(closed(error))),
        }
    }

    /// Over a network, if the channel is one of those.
    fn page_far(&mut self, channel: Channel, bytes: usize) -> Option<Result<Page, NoMemory>> {
        let (net, index) = self.node.wire(channel)?;
        Some(net.page(index, bytes))
    }

    /// Whether a channel leads over a network.
    pub(crate) fn crosses_net(&mut self, channel: Channel) -> bool {
        self.node.wire(channel).is_some()
    }

    /// Whether so many bytes of private memory would wait for the peer, sent now to where the token says.
    pub(crate) fn would_wait(&mut self, channel: Channel, bytes: usize, token: Option<Token>) -> bool {
        match self.node.wire(channel) {
            Some((net, index)) => net.would_wait(index, bytes),
            None => self.node.link(channel).is_ok_and(|(link, _)| link.would_wait(bytes, token)),
        }
    }

    /// Bytes of a channel's pool, which has whole pages.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.node.config().pool_bytes.next_multiple_of(u64::from(self.page_bytes()))
    }

    /// Posts up to `count` runs of landing pages, each for `bytes` bytes, into the channel's free queue, and says how
    /// many were posted. Private payloads of the peer are put there with one copy. A released payload's pages are
    /// posted again by themselves.
    ///
    /// # Errors
    /// [`NoMemory`], if not one could be posted.
    pub fn post(&mut self, channel: Channel, bytes: usize, count: u32) -> Result<u32, NoMemory> {
        if let Some((net, index)) = self.node.wire(channel) {
            return net.post(index, bytes, count);
        }
        let (link, stat) = self.node.link(channel).map_err(closed)?;
        link.post(bytes, count, stat)
    }

    /// Takes the runs back that are posted in the channel's free queue, and says how many are still out. A payload that
    /// is on its way to one arrives, and its pages are not posted again when it is released. What is posted later is
    /// not meant.
    ///
    /// Over a network none is out then, as a rule: some are while a ring of `xdp` may have frames land there. Over
    /// shared memory the peer may be writing to them at this moment, so they come back when it has looked after its
    /// endpoint: some 20 ms later if it polls, at once if it sleeps. Ask again to see how many it still has; what was
    /// posted in between is taken back then, too. A peer that computes, or knows nothing of this, gives none back.
    ///
    /// # Errors
    /// Why the channel has ended, and its memory with it.
    pub fn recall(&mut self, channel: Channel) -> Result<u32, CloseReason> {
        if let Some((net, index)) = self.node.wire(channel) {
            return net.recall(index);
        }
        let (link, stat) = self.node.link(channel).map_err(reason)?;
        link.recall(stat)
    }

    /// Grants a place for one coming payload of a channel. Send the token to the peer, which passes it to
    /// [`Outgoing::to`].
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn grant(&mut self, channel: Channel, landing: Landing) -> Result<Token, NoMemory> {
        self.grant_or_return(channel, landing).map_err(|(why, _)| why)
    }

    /// The same; where it cannot be granted the landing is given back, and with it the memory of
    /// [`Landing::Buffer`].
    ///
    /// # Errors
    /// [`NoMemory`], and the landing.
    pub fn grant_or_return(&mut self, channel: Channel, landing: Landing) -> Result<Token, (NoMemory, Landing)> {
        if let Some((net, index)) = self.node.wire(channel) {
            return net.grant(index, landing);
        }
        match self.node.link(channel) {
            Ok((link, stat)) => link.grant(landing, stat),
            Err(error) => Err((closed(error), landing)),
        }
    }

    /// Takes a token back. A payload that carries it later is dropped, and its control message says so.
    ///
    /// Private memory that was granted comes back from a channel that has ended, too, if it is asked for when
    /// [`Event::Closed`] tells of that: it is kept for 200 ms from then on.
    ///
    /// # Errors
    /// [`RevokeError::InFlight`] if the sender has begun to write: the message is about to arrive. If it says
    /// [`Refused::Revoked`](crate::Refused::Revoked), nothing was written after all, and the token is revoked.
    pub fn revoke(&mut self, channel: Channel, token: Token) -> Result<Landing, RevokeError> {
        if let Some(buffer) = self.node.take_grant(channel, token) {
            return Ok(Landing::Buffer(buffer));
        }
        if let Some((net, index)) = self.node.wire(channel) {
            return net.revoke(index, token);
        }
        let (link, _) = self.node.link(channel).map_err(|error| match error {
            SendError::Closed(reason) => RevokeError::Closed(reason),
            _ => RevokeError::Closed(CloseReason::Here),
        })?;
        link.revoke(token)
    }

    /// Copies a message's payload into private memory, which must be at least as long, and says what happened to it. A
    /// payload that is still arriving is copied out at the same time as the peer copies it in (cut-through), and this
    /// waits for the rest of it. If a part of it has been read by [`Endpoint::read_some`], the same memory has to be
    /// passed: it holds that part. Of no payload no bytes can be read, and nothing else.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub fn read(&mut self, message: &mut Incoming, into: &mut [u8]) -> Result<Receipt, ReadError> {
        self.read_traced(message, into, &mut ())
    }

    /// [`Endpoint::read`], telling `trace` of every pulse.
    ///
    /// # Errors
    /// As [`Endpoint::read`].
    pub fn read_traced(
        &mut self,
        message: &mut Incoming,
        into: &mut [u8],
        trace: &mut impl Trace,
    ) -> Result<Receipt, ReadError> {
        self.node.read(message, into, trace)
    }

    /// Reads what has arrived of a payload, without waiting: how many bytes at the start of `into` are valid by now.
    /// All of them have arrived when it says [`Incoming::payload_len`]. The same memory has to be passed each time.
    ///
    /// # Errors
    /// As [`Endpoint::read`].
    pub fn read_some(&mut self, message: &mut Incoming, into: &mut [u8]) -> Result<usize, ReadError> {
        self.node.read_some(message, into)
    }

    /// Gives back what a message still holds, as dropping it does. But what is dropped may be dropped on any thread,
    /// which takes locked instructions; here the pages go back without one, at the next look at the endpoint. In shared
    /// memory that saves some tens of nanoseconds a message; over a network it is the same as to drop it.
    pub fn release(&mut self, message: Incoming) {
        self.node.release(message);
    }

    /// Sends now what waits for company: over a network the last messages of a stream may do so ([`Outgoing::send`]).
    /// For who has sent something and turns to other work before the next look at the endpoint; [`Endpoint::poll`] and
    /// [`Endpoint::wait`] need no flush before them. Waits for nothing: what the other side has no room for goes later.
    pub fn flush(&self) {
        self.node.flush();
    }

    /// Closes a channel. Messages that have arrived and were not polled for are thrown away. What was sent to another
    /// machine is delivered first, unless its peer takes nothing of it for as long as `Config::deadline` says.
    pub fn close(&mut self, channel: Channel) {
        self.node.close(channel);
    }

    /// Who is on the other side of a channel, as it says, and the public key that it has proved to hold, if it has one;
    /// `None` if the channel has ended.
    #[must_use]
    pub fn peer(&self, channel: Channel) -> Option<Identity> {
        self.node.identity(channel)
    }

    /// Where peers on other machines reach this endpoint, once it listens at `udp:HOST:PORT` or has connected to such
    /// an address. With port 0 the system has chosen one. Where it listens at every address of its machine, the host is
    /// `0.0.0.0` or `[::]`: peers name one of these addresses instead.
    #[must_use]
    pub fn net_address(&self) -> Option<SocketAddr> {
        self.node.net_address()
    }

    /// Which adapters beside the UDP socket this endpoint's address has asked for (`packet:`, `xdp:`, `net:`): whether
    /// each is used, and if not, why. Where the address begins with `packet:` or `xdp:` there is no other: opening it
    /// fails instead.
    #[must_use]
    pub fn net_offers(&self) -> Vec<Offer> {
        self.node.net_offers()
    }

    /// Whether channels to other machines are sealed: encrypted and authenticated.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.node.config().keys.is_some()
    }

    /// Bytes of the pages that this endpoint lends and lands payloads in.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        self.node.config().page_size.bytes()
    }

    /// Open channels.
    pub fn channels(&self) -> impl Iterator<Item = Channel> + '_ {
        self.node.channels()
    }

    /// A counter of this endpoint. `cutthrough stat` shows all of them from outside.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.node.stat().value(counter)
    }

    /// Counts what was decided above the endpoint.
    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        self.node.stat().add(counter, amount);
    }

    /// How this kernel lets a sleeper be woken; anything but [`Fence::Expedited`] makes sleeping slower.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.node.fence()
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.node.as_fd()
    }
}

fn closed(error: SendError) -> NoMemory {
    NoMemory::Closed(reason(error))
}

fn reason(error: SendError) -> CloseReason {
    if let SendError::Closed(reason) = error { reason } else { CloseReason::Here }
}
