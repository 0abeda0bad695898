//! Who comes and who goes: names, callers, handshakes, what the dead have left.

use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::hello::Refusal;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::{Caller, HELLO, HELLOS, LISTENER, ListenError, Node, ORPHAN_NS, Seat};
use crate::clock;
use crate::incoming::{Channel, Event};
use crate::shm::handshake::{self, HandshakeError, Heard, Offer};
use crate::shm::link::{Identity, Link, Terms};
use crate::shm::rendezvous::{self, AddressError, Listener};
use crate::shm::strangers::{self, Stranger};
use crate::sys::credentials;
use crate::udp::address;

/// Callers that are looked at one behind the other.
const LET_IN: u32 = 16;
/// Nanoseconds until a listener looks again for callers for whom it had no file.
const SHUT_NS: u64 = 50_000_000;

/// Where it is and what channels it has; of what they carry, nothing: this comes into logs.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("listener", &self.listener.as_ref().map(Listener::path))
            .field("net_address", &self.net_address())
            .field("channels", &self.channels().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A new number for a hello in progress. No other in this process has it, since it names a channel that is being
/// opened.
pub(super) fn hello_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(HELLO);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

impl Node {
    /// Takes a name and listens under it, instead of any name before. One that it has already it keeps.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, address: &str) -> Result<(), ListenError> {
        if address::Ways::of(address).is_some() {
            return Ok(self.listen_net(address)?);
        }
        let path = rendezvous::socket_path(address)?;
        if self.listener.as_ref().is_some_and(|listener| listener.is_at(&path)) {
            return Ok(());
        }
        if self.listener.as_ref().is_some_and(|listener| listener.path() == path) {
            // Somebody has removed what lay there, and nobody reaches it: its lock would be in the way.
            self.leave_door();
        }
        let listener = Listener::open(address)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.sleepers, listener.socket(), epoll::EventData::new_u64(LISTENER), flags)
            .map_err(|errno| AddressError::System { path: listener.path().to_owned(), error: errno.into() })?;
        self.stat.set_name(address);
        self.leave_door();
        self.listener = Some(listener);
        Ok(())
    }

    /// Gives up the name before, if there is one.
    fn leave_door(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.ignore(listener.socket());
        }
    }

    /// Gives up the names under which this node listens, and lets nobody in any more. Channels stay.
    pub fn stop_listening(&mut self) {
        self.leave_door();
        self.crowded = false;
        // Who has called and not said hello is hung up on.
        self.hang_up(|_| true);
        if let Some(net) = &self.net {
            net.stop_listening();
        }
        self.stat.set_name("");
    }

    /// Makes a channel of a finished handshake.
    pub(super) fn join(&mut self, socket: Stranger, offer: Offer, heard: Heard, seat: u32) -> Result<Channel, Errno> {
        let (identity, seed) = self.meet(&socket, &heard, seat).inspect_err(|_| offer.withdraw())?;
        let channel = Channel::name(seat);
        let place = &mut self.seats[seat as usize];
        place.life = channel.life;
        let terms = Terms {
            sizes: self.sizes,
            policy: self.config.policy,
            deadline: self.config.deadline,
            fence: self.fence,
            waker: Arc::clone(&self.waker),
            seed,
            channel,
        };
        let link = Link::new(socket.met(), offer, heard, identity, &terms);
        link.show_open(&self.stat);
        self.seats[seat as usize].link = Some(Box::new(link));
        self.turn.add(seat as usize);
        self.stat.add(Counter::ChannelsOpened, 1);
        self.awake.push(seat as usize);
        Ok(channel)
    }

    /// What may still fail when a channel is made: who the peer is, and a random number for its tokens. From now on its
    /// socket wakes a sleeper.
    fn meet(&self, socket: &Stranger, heard: &Heard, seat: u32) -> Result<(Identity, u64), Errno> {
        let (process, user) = credentials::of_peer(socket)?;
        let identity = Identity { process, user, generation: heard.greeting.generation, key: None };
        let seed = crate::entropy::number()?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.sleepers, socket, epoll::EventData::new_u64(u64::from(seat)), flags)?;
        Ok((identity, seed))
    }

    pub(super) fn take_seat(&mut self) -> Option<u32> {
        if let Some(seat) = self.free_seats.pop() {
            return Some(seat);
        }
        let seat = u32::try_from(self.seats.len()).ok().filter(|seat| *seat < self.config.channels)?;
        self.seats.push(Seat::default());
        Some(seat)
    }

    /// A channel to whoever listens by this name has ended: the name is removed if its owner turns out to be dead. It
    /// is remembered once, however many channels there were.
    pub(super) fn look_after(&mut self, path: PathBuf) {
        self.orphans.retain(|(orphan, _)| *orphan != path);
        // Those before it are looked at from time to time: there may be thousands.
        if !rendezvous::sweep_name(&path) {
            self.orphans.push((path, clock::now()));
        }
    }

    /// Removes what peers that have ended left of their names, as soon as they are dead for certain.
    pub(super) fn sweep(&mut self) {
        let now = clock::now();
        self.orphans.retain(|(path, since)| !rendezvous::sweep_name(path) && now.saturating_since(*since) < ORPHAN_NS);
    }

    /// Lets callers in, but no more than some: the next poll goes on, so that they keep nobody else waiting.
    /// Those who have said hello already, as whoever comes by this library has, need not wait for others.
    pub(super) fn let_in(&mut self) {
        for _ in 0..LET_IN {
            let Some(listener) = &self.listener else { return };
            // Files of others wait to be closed for as long as their senders like: nobody may bring more without end.
            if !strangers::has_room() {
                return self.shut_door();
            }
            let socket = match accept_with(listener.socket(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => Stranger::new(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return self.shut_door(),
            };
            match handshake::listen(&socket).transpose() {
                Some(heard) => self.reply(socket, heard),
                None if self.callers.len() >= HELLOS => {
                    self.stat.add(Counter::HellosRefused, 1);
                    handshake::refuse(&socket, Refusal::Channels);
                }
                None => self.wait_for(socket),
            }
        }
        (self.armed, self.crowded) = (true, true);
    }

    /// There is no file for a caller, or too many of others wait to be closed. Whoever calls waits, and nobody is woken
    /// for it before the alarm goes off.
    fn shut_door(&mut self) {
        self.watch_door(epoll::EventFlags::empty());
        let now = clock::now();
        self.alarm.set(now.after(SHUT_NS), now);
    }

    /// There may be files again.
    pub(super) fn open_door(&self) {
        self.watch_door(epoll::EventFlags::IN);
    }

    fn watch_door(&self, flags: epoll::EventFlags) {
        if let Some(listener) = &self.listener {
            let _ = epoll::modify(&self.sleepers, listener.socket(), epoll::EventData::new_u64(LISTENER), flags);
        }
    }

    /// A caller has not said hello yet.
    fn wait_for(&mut self, socket: Stranger) {
        let number = hello_number();
        let data = epoll::EventData::new_u64(number);
        if epoll::add(&self.sleepers, &socket, data, epoll::EventFlags::IN | epoll::EventFlags::RDHUP).is_ok() {
            let now = clock::now();
            self.callers.push(Caller { socket, number, since: now });
            self.forget_silent(now);
        }
    }

    /// A caller has said something.
    pub(super) fn answer(&mut self, number: u64) {
        let Some(place) = self.callers.iter().position(|caller| caller.number == number) else { return };
        let Some(heard) = handshake::listen(&self.callers[place].socket).transpose() else { return };
        let Caller { socket, .. } = self.callers.swap_remove(place);
        self.ignore(&socket);
        self.reply(socket, heard);
    }

    /// Hangs up on those callers.
    pub(super) fn hang_up(&mut self, on: impl Fn(&Caller) -> bool) {
        for caller in self.callers.extract_if(.., |caller| on(caller)) {
            let _ = epoll::delete(&self.sleepers, &caller.socket);
        }
    }

    /// A file wakes nobody any more. The kernel would watch it for as long as anybody has it, a child that was forked
    /// or a thread that closes it, and what is over is always ready.
    pub(super) fn ignore(&self, file: &impl AsFd) {
        let _ = epoll::delete(&self.sleepers, file);
    }

    /// What comes of what a caller has said: a channel, or a refusal.
    fn reply(&mut self, socket: Stranger, heard: Result<Heard, HandshakeError>) {
        let refusal = match heard {
            Ok(heard) => match self.welcome(socket, heard) {
                Ok(channel) => return self.events.push_back(Event::Opened(channel)),
                Err(refusal) => refusal,
            },
            Err(error) => error.answer().map(|refusal| (socket, refusal)),
        };
        self.stat.add(Counter::HellosRefused, 1);
        if let Some((socket, refusal)) = refusal {
            handshake::refuse(&socket, refusal);
        }
    }

    /// Makes our side of a channel, answers, and joins; else what to refuse with, if anybody is left to hear it.
    pub(super) fn welcome(&mut self, socket: Stranger, heard: Heard) -> Result<Channel, Option<(Stranger, Refusal)>> {
        let Some(seat) = self.take_seat_here() else { return Err(Some((socket, Refusal::Channels))) };
        let offer = match Offer::make(self.generation, &self.sizes) {
            Ok(offer) => offer,
            Err(error) => {
                self.free_seat_here(seat);
                return Err(error.answer().map(|refusal| (socket, refusal)));
            }
        };
        let joined = match offer.say(&socket) {
            Ok(()) => self.join(socket, offer, heard, seat).ok(),
            Err(_) => None,
        };
        joined.ok_or_else(|| {
            self.free_seat_here(seat);
            None
        })
    }
}
