//! Calls: channels that are being opened, while the application waits or does something else.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use rustix::event::{Timespec, epoll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::doors::hello_number;
use super::{ConnectError, Node};
use crate::clock;
use crate::incoming::{Channel, Connecting, Event};
use crate::shm::handshake::{self, Offer};
use crate::shm::rendezvous::{self, AddressError};
use crate::shm::strangers::{self, Stranger};
use crate::udp::address;
use crate::udp::calls::UdpCallError;

/// How long a caller waits before it tries again, where too many others wait.
const AGAIN: Duration = Duration::from_millis(1);
/// Calls of one address over a network at a time; others of it wait for them. A listener remembers some 64 callers of
/// whom it has not heard since it let them in, and lets go of the first for others.
const NET_CALLS: usize = 16;
/// Longest time that is told to a timer: a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A channel that is being opened.
#[derive(Debug)]
pub(super) struct Call {
    /// Its number among the things that wake a sleeper.
    number: u64,
    begun: Instant,
    timeout: Duration,
    /// Wakes when it has to be looked at, though nothing comes.
    pub(super) timer: OwnedFd,
    pub(super) stage: Stage,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Too many others wait where this one wants to.
    Outside(PathBuf),
    /// The hello was said.
    Said { path: PathBuf, socket: Stranger, offer: Box<Offer>, seat: u32 },
    /// Too many others to the same address are being opened: it, and as it was named.
    Queued(SocketAddr, String),
    /// It is the network side's, under this number.
    Net(SocketAddr, usize),
    /// There is a channel, or will be none.
    Over,
}

impl Call {
    fn left(&self) -> Duration {
        self.timeout.saturating_sub(Duration::from_nanos(clock::now().saturating_since(self.begun)))
    }

    /// The address that is called over a network.
    const fn calls_at(&self) -> Option<SocketAddr> {
        match self.stage {
            Stage::Net(to, _) => Some(to),
            _ => None,
        }
    }

    /// The endpoint goes before the call is answered.
    pub(super) fn hang_up(&self) {
        if let Stage::Said { offer, .. } = &self.stage {
            offer.withdraw();
        }
    }

    /// Has the timer wake when the call is to be looked at again.
    fn wait(&self) -> Result<(), ConnectError> {
        // The kernel's timers know nothing of simulated time: see `Node::look_at_late_calls`.
        if clock::is_simulated() {
            return Ok(());
        }
        let time = if matches!(self.stage, Stage::Outside(_)) { AGAIN } else { self.timeout };
        // No time at all would stop it.
        let time = time.min(self.left()).clamp(Duration::from_nanos(1), FOR_EVER);
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(time).expect("a hundred years fit");
        let timer = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer).map(drop).map_err(ConnectError::System)
    }
}

impl Node {
    /// Opens a channel to whoever listens at `address`. Peers of our own are let in meanwhile, so that two nodes, or a
    /// node with itself, can connect from one thread.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        if address::Ways::of(address).is_some() {
            return self.connect_net(address, timeout);
        }
        let connecting = self.begin_connect(address, timeout)?;
        loop {
            if let Some(outcome) = self.outcome(connecting) {
                return outcome;
            }
            self.keep_house();
            // Whatever there is to be heard; what cannot be waited for is looked for again.
            let _ = self.hear(1);
        }
    }

    /// Begins to open a channel to whoever listens at `address`; [`Event::Connected`] says what has become of it.
    ///
    /// # Errors
    /// [`ConnectError`], if it has failed already.
    pub fn begin_connect(&mut self, address: &str, timeout: Duration) -> Result<Connecting, ConnectError> {
        let number = hello_number();
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(ConnectError::System)?;
        epoll::add(&self.sleepers, &timer, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
            .map_err(ConnectError::System)?;
        let stage = if address::Ways::of(address).is_some() {
            // Looked up once, and not again when it is its turn.
            let address = address::all_numbers(address)?.from(self.net_address());
            let (_, to) = address::parse_peer(address::named(&address)?.0)?;
            if self.calls_enough(to) { Stage::Queued(to, address) } else { self.call_net(to, &address)? }
        } else {
            Stage::Outside(rendezvous::socket_path(address)?)
        };
        let mut call = Call { number, begun: clock::now(), timeout, timer, stage };
        match self.advance(&mut call).and_then(|channel| call.wait().map(|()| channel)) {
            Ok(None) => self.calls.push(call),
            Ok(Some(channel)) => {
                self.forget(call);
                self.events.push_back(Event::Connected(Connecting(number), Ok(channel)));
            }
            Err(error) => {
                self.forget(call);
                return Err(error);
            }
        }
        Ok(Connecting(number))
    }

    /// Gives up opening a channel. False if what has become of it was told already.
    pub fn cancel_connect(&mut self, connecting: Connecting) -> bool {
        if let Some(place) = self.calls.iter().position(|call| call.number == connecting.0) {
            let call = self.calls.swap_remove(place);
            let to = call.calls_at();
            self.forget(call);
            self.call_queued(to);
            return true;
        }
        let outcome = self.outcome(connecting);
        if let Some(Ok(channel)) = outcome {
            self.close(channel);
        }
        outcome.is_some()
    }

    /// What has become of a channel that is being opened, if that is known by now; then no event tells of it. Callers
    /// are let in meanwhile. Messages, and whatever else happens, stay where they are until they are polled for.
    pub fn look_for(&mut self, connecting: Connecting) -> Option<Result<Channel, ConnectError>> {
        self.keep_house();
        // Those of others make room for this one.
        let answers = self.net.as_ref().map(|net| net.answers());
        let mut over = Vec::new();
        for (index, answer) in answers.into_iter().flatten() {
            let event = self.net_told(index, answer, |to| over.push(to));
            self.events.extend(event);
        }
        // Behind all of them: the numbers of those that have failed are the next ones' from now on.
        over.into_iter().for_each(|to| self.call_queued(Some(to)));
        self.outcome(connecting)
    }

    /// Prepares to sleep on the node's file descriptor until [`Node::look_for`] may have something to tell: what waits
    /// to be polled for keeps nobody awake. False if it is to be asked again at once.
    pub fn arm_to_look_for(&mut self) -> bool {
        self.armed = true;
        self.pace.sleeps();
        if self.net.as_ref().is_some_and(|net| !net.before_answers()) {
            return false;
        }
        let sleeps = self.waker.sleep();
        if !sleeps {
            self.look_at_shelves();
        }
        sleeps
    }

    /// What has become of a call, if that is known and was not told.
    fn outcome(&mut self, connecting: Connecting) -> Option<Result<Channel, ConnectError>> {
        let tells = |event: &Event| matches!(event, Event::Connected(of, _) if *of == connecting);
        let place = self.events.iter().position(tells)?;
        match self.events.remove(place) {
            Some(Event::Connected(_, outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// A call's socket or its timer has something to say.
    pub(super) fn look_at_call(&mut self, number: u64) {
        let Some(place) = self.calls.iter().position(|call| call.number == number) else { return };
        let mut call = self.calls.swap_remove(place);
        let outcome = match self.advance(&mut call) {
            Ok(Some(channel)) => Ok(channel),
            Ok(None) if call.left().is_zero() => match self.too_late(&call) {
                Some(error) => Err(error),
                // Its answer is about to be told.
                None => return self.calls.push(call),
            },
            Ok(None) => match call.wait() {
                Ok(()) => return self.calls.push(call),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let to = call.calls_at();
        self.forget(call);
        self.events.push_back(Event::Connected(Connecting(number), outcome));
        self.call_queued(to);
    }

    /// Looks at those whose time is over, where time is simulated and no timer says so.
    pub(super) fn look_at_late_calls(&mut self) {
        let late = self.calls.iter().filter(|call| call.left().is_zero()).map(|call| call.number);
        late.collect::<Vec<_>>().into_iter().for_each(|number| self.look_at_call(number));
    }

    /// The network side has the answer to a call of its own: what is told of that.
    pub(super) fn net_answered(&mut self, index: usize, answer: Result<(), UdpCallError>) -> Option<Event> {
        let mut over = None;
        let event = self.net_told(index, answer, |to| over = Some(to));
        self.call_queued(over);
        event
    }

    /// The same; `over` gets the address of a call that is over by that, for others of which there may be room now.
    fn net_told(
        &mut self,
        index: usize,
        answer: Result<(), UdpCallError>,
        over: impl FnOnce(SocketAddr),
    ) -> Option<Event> {
        let is_its = |call: &Call| matches!(call.stage, Stage::Net(_, of) if of == index);
        let Some(place) = self.calls.iter().position(is_its) else {
            // It was given up meanwhile.
            if let (Ok(()), Some(net)) = (answer, &self.net) {
                net.close(index);
            }
            return None;
        };
        let call = self.calls.swap_remove(place);
        self.ignore(&call.timer);
        let outcome = match answer {
            Ok(()) => self.seat_net(index).ok_or(ConnectError::Channels(self.config.channels)),
            Err(error) => Err(error.into()),
        };
        if let Some(to) = call.calls_at() {
            over(to);
        }
        Some(Event::Connected(Connecting(call.number), outcome))
    }

    /// Brings a call forward as far as it goes by now: to a channel at best.
    fn advance(&mut self, call: &mut Call) -> Result<Option<Channel>, ConnectError> {
        if let Stage::Outside(path) = &call.stage {
            // Whoever answers may bring files, too.
            let reached =
                if strangers::has_room() { rendezvous::reach(path) } else { Err(AddressError::Busy(path.clone())) };
            let socket = match reached {
                Err(AddressError::Busy(_)) if !call.left().is_zero() => return Ok(None),
                reached => Stranger::new(reached?),
            };
            let offer = Box::new(Offer::make(self.generation, &self.sizes)?);
            let seat = self.take_seat_here().ok_or(ConnectError::Channels(self.config.channels))?;
            call.stage = Stage::Said { path: path.clone(), socket, offer, seat };
            self.say(call)?;
        }
        if let Stage::Queued(to, address) = &call.stage
            && !self.calls_enough(*to)
            && !call.left().is_zero()
        {
            call.stage = self.call_net(*to, address)?;
        }
        let Stage::Said { socket, .. } = &call.stage else { return Ok(None) };
        let Some(heard) = handshake::listen(socket)? else { return Ok(None) };
        self.ignore(socket);
        let said = std::mem::replace(&mut call.stage, Stage::Over);
        let Stage::Said { path, socket, offer, seat } = said else { return Ok(None) };
        match self.join(socket, *offer, heard, seat) {
            Ok(channel) => {
                self.reached.push((channel, path));
                Ok(Some(channel))
            }
            Err(errno) => {
                self.free_seat_here(seat);
                Err(ConnectError::System(errno))
            }
        }
    }

    /// Whether as many calls of this address are the network side's as may be at a time.
    fn calls_enough(&self, to: SocketAddr) -> bool {
        self.calls.iter().filter(|call| matches!(call.stage, Stage::Net(of, _) if of == to)).count() >= NET_CALLS
    }

    fn call_net(&mut self, to: SocketAddr, address: &str) -> Result<Stage, ConnectError> {
        Ok(Stage::Net(to, self.begin_connect_net(address)?))
    }

    /// A call of this address is over, if it is named: makes those that have waited for that, the first one first.
    fn call_queued(&mut self, to: Option<SocketAddr>) {
        let Some(to) = to else { return };
        let queued = |call: &&Call| matches!(call.stage, Stage::Queued(of, _) if of == to);
        while !self.calls_enough(to)
            && let Some(number) = self.calls.iter().filter(queued).map(|call| call.number).min()
        {
            // It is the network side's from now on, or has failed.
            self.look_at_call(number);
        }
    }

    /// Says hello.
    fn say(&self, call: &Call) -> Result<(), ConnectError> {
        let Stage::Said { socket, offer, .. } = &call.stage else { return Ok(()) };
        offer.say(socket)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.sleepers, socket, epoll::EventData::new_u64(call.number), flags).map_err(ConnectError::System)
    }

    /// A call is over, and gives back what it held.
    fn forget(&mut self, call: Call) {
        let Call { stage, timeout, timer, .. } = call;
        self.ignore(&timer);
        match stage {
            Stage::Outside(_) | Stage::Queued(..) | Stage::Over => {}
            Stage::Said { socket, offer, seat, .. } => {
                self.ignore(&socket);
                offer.withdraw();
                self.free_seat_here(seat);
            }
            // One that has been answered is closed when that is told.
            Stage::Net(_, index) => drop(self.net.as_ref().and_then(|net| net.give_up(index, timeout))),
        }
    }

    /// A call's time is over: why it has failed. `None` if it has been answered at the last moment.
    fn too_late(&self, call: &Call) -> Option<ConnectError> {
        match &call.stage {
            Stage::Outside(path) => Some(AddressError::Busy(path.clone()).into()),
            Stage::Said { .. } => Some(ConnectError::Timeout(call.timeout)),
            Stage::Queued(..) => Some(UdpCallError::Silence(call.timeout).into()),
            Stage::Net(_, index) => {
                let net = self.net.as_ref().filter(|net| !net.is_answered(*index))?;
                Some(net.give_up(*index, call.timeout)?.into())
            }
            Stage::Over => None,
        }
    }
}
