//! Calls: channels that are being opened, by a caller who waits, or does something else meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use cutthrough_engine::net::CallError;
use cutthrough_engine::time::Instant;
use cutthrough_seal::{PublicKey, SealError};
use cutthrough_wire::frame::{BODY_MIN, FRAME_VERSION, HEADER_BYTES, Refusal};
use rustix::io::Errno;

use super::door::{Awaits, BODY_MAX, Core, Udp};
use super::line::{SPIN_NS, UNREAD_NS, nap};
use super::told::Happened;
use crate::clock;
use crate::shm::link::CloseReason;

/// How long a channel that nobody waits for may look for the ways that its endpoint's address asks for, in nanoseconds:
/// messages wait meanwhile, on other channels too.
const WAY_NS: u64 = 500_000_000;
/// Looks at what has come, behind which the answer to a call may lie, before that is given up.
const LOOKS: u32 = 64;

/// Why a call over UDP has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UdpCallError {
    /// Other versions of the frames: this is the other side's.
    #[error(
        "the listening side speaks version {0} of the frames, and not {ours}; use the same release on both",
        ours = FRAME_VERSION
    )]
    Version(u8),
    /// It refuses for a reason that this release has no word for.
    #[error("the listening side refuses, for reason {0}, which this release does not know; use the same on both")]
    Unknown(u8),
    /// It has as many channels as it may have.
    #[error("the listening side has all channels that its settings allow")]
    Channels,
    /// The keys do not fit.
    #[error("the keys do not fit: both sides need the same key, or both plain text (Config::insecure)")]
    Key,
    /// The keys do not say whom to call, or do not go with the one who was named.
    #[error("{0}")]
    Peer(SealError),
    /// A public key was named, and there is no key of ours.
    #[error("only who has a key can call a peer by its public key: set Config::keys")]
    NoKey,
    /// The other endpoint is there, but does not listen.
    #[error("the endpoint at that address does not listen")]
    Nobody,
    /// The call has come back to this endpoint.
    #[error("an endpoint cannot call itself: open another one")]
    Itself,
    /// This endpoint has all its channels.
    #[error("this endpoint has all channels that its settings allow")]
    Full,
    /// The kernel says that no way leads there.
    #[error("{address} cannot be reached from this endpoint: {why}")]
    Unreachable {
        /// Who was called.
        address: SocketAddr,
        /// What the kernel said.
        why: Errno,
    },
    /// An IPv4 address, where the socket is bound to one of IPv6, or the other way round.
    #[error("{address} cannot be reached from {local}, which this endpoint is bound to: open another one for it")]
    OtherFamily {
        /// Who was called.
        address: SocketAddr,
        /// The endpoint's own.
        local: SocketAddr,
    },
    /// Nobody has answered, and could not: the interface sends no frames as long as the greetings are.
    #[error(
        "the interface towards {address} has an MTU of {mtu}, less than the {least} that the shortest greetings need: \
         set it to {least} or more"
    )]
    Mtu {
        /// Who was called.
        address: SocketAddr,
        /// The MTU of the way there.
        mtu: u32,
        /// What is needed.
        least: usize,
    },
    /// The peer answers, but no frames of a ring would reach it.
    #[error("the peer cannot be reached by {0}: it is not beyond the interface of this endpoint; use udp: or net:")]
    Way(&'static str),
    /// The peer has answered, and the channel has ended since, before there was a way that it should go.
    #[error("the peer has answered, but its channel has ended since: {0}")]
    Ended(CloseReason),
    /// Nobody has answered.
    #[error("no answer within {0:?}: is anybody listening there, and does a firewall let UDP through?")]
    Silence(Duration),
}

impl From<CallError> for UdpCallError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Key | CallError::Refused(Refusal::Key) => Self::Key,
            CallError::Version(version) => Self::Version(version),
            // It comes with the version, as above.
            CallError::Refused(why @ Refusal::Version) => Self::Unknown(why as u8),
            CallError::Unknown(why) => Self::Unknown(why),
            CallError::Refused(Refusal::Channels) => Self::Channels,
            CallError::Refused(Refusal::Nobody) => Self::Nobody,
            CallError::Refused(Refusal::Itself) => Self::Itself,
        }
    }
}

/// A channel that is being opened.
#[derive(Debug)]
pub(super) struct Call {
    index: usize,
    address: SocketAddr,
    /// Whether its caller waits, and looks after it; else what becomes of it is told.
    waits: bool,
    /// What the other side has said, and when.
    answer: Option<Result<(), CallError>>,
    answered: Instant,
    /// What the ways are called that it has to go.
    scheme: &'static str,
}

impl Udp {
    /// Begins to open a channel to whoever listens at `address`, and holds the key pair of `peer`: its number. What
    /// becomes of it is told, as [`Happened::Answered`].
    pub(crate) fn begin_call(&self, address: SocketAddr, peer: Option<PublicKey>) -> Result<usize, UdpCallError> {
        let mut core = self.enter();
        let index = self.say_hello(&mut core, (address, peer), false)?;
        core.turn(None);
        Ok(index)
    }

    /// Opens a channel to whoever listens at `address`, and holds the key pair of `peer`: its number.
    pub(crate) fn call(
        &self,
        address: SocketAddr,
        peer: Option<PublicKey>,
        timeout: Duration,
    ) -> Result<usize, UdpCallError> {
        let _stay = self.stay();
        let begun = clock::now();
        let mut core = self.shared.lock();
        let index = self.say_hello(&mut core, (address, peer), true)?;
        let (mut heard, mut relieved) = (begun, begun);
        loop {
            let any = core.turn(None);
            if let Some(answer) = core.outcome(index) {
                return answer.map(|()| index);
            }
            let now = clock::now();
            if Duration::from_nanos(now.saturating_since(begun)) > timeout {
                return Err(self.end_call(&mut core, index, timeout).unwrap_or(UdpCallError::Silence(timeout)));
            }
            heard = if any { now } else { heard };
            if now.saturating_since(relieved) > UNREAD_NS {
                core.relieve(UNREAD_NS);
                relieved = now;
            }
            if now.saturating_since(heard) > SPIN_NS {
                let (timer, quiet) = (core.timer(), core.doze());
                // Others that share this endpoint's thread of life may want the lock.
                drop(core);
                if quiet {
                    nap(self, timer);
                }
                core = self.shared.lock();
            }
        }
    }

    /// Looks once at everything: which calls, for which nobody waits here, have been answered. Messages, and whatever
    /// else has happened, stay where they are.
    pub(crate) fn answers(&self) -> Vec<(usize, Result<(), UdpCallError>)> {
        let mut core = self.enter();
        core.turn(None);
        core.answers()
    }

    /// Whether a call has been answered by what has come, and nobody was told of it. Who looks late may not have taken
    /// that in.
    pub(crate) fn is_answered(&self, index: usize) -> bool {
        let mut core = self.enter();
        for _ in 0..LOOKS {
            let any = core.turn(None);
            if !any || core.net.has_answer(index) {
                break;
            }
        }
        core.net.has_answer(index)
    }

    /// Ends a call that was begun `timeout` ago: why it has failed. `None` if it has been answered.
    pub(crate) fn give_up(&self, index: usize, timeout: Duration) -> Option<UdpCallError> {
        self.end_call(&mut self.enter(), index, timeout)
    }

    /// Has the engine call: the number of the channel to be.
    fn say_hello(
        &self,
        core: &mut Core,
        (address, peer): (SocketAddr, Option<PublicKey>),
        waits: bool,
    ) -> Result<usize, UdpCallError> {
        let peer = match &self.keys {
            Some(keys) => keys.callee(peer).map_err(UdpCallError::Peer)?,
            None if peer.is_some() => return Err(UdpCallError::NoKey),
            None => None,
        };
        if address.is_ipv4() != self.local.is_ipv4() {
            return Err(UdpCallError::OtherFamily { address, local: self.local });
        }
        let body = core.socket.mtu(address).map_or(1500, |mtu| mtu as usize);
        let body = u16::try_from(body.saturating_sub(headers(address)).min(BODY_MAX)).unwrap_or(u16::MAX);
        let index = core.net.call(clock::now(), address, body).ok_or(UdpCallError::Full)?;
        core.sources.iter_mut().for_each(|sources| sources.set(index, None));
        core.unreachable = core.unreachable.filter(|(to, _)| *to != address);
        self.callees.set(index, peer);
        core.calls.push(Call {
            index,
            address,
            waits,
            answer: None,
            answered: Instant::default(),
            scheme: self.ways().scheme(),
        });
        Ok(index)
    }

    fn end_call(&self, core: &mut Core, index: usize, timeout: Duration) -> Option<UdpCallError> {
        let place = core.calls.iter().position(|call| call.index == index)?;
        let call = core.calls.swap_remove(place);
        core.net.close(index);
        core.transmit(clock::now(), true);
        if call.answer.is_some() {
            return Some(UdpCallError::Way(call.scheme));
        }
        let (address, least) = (call.address, headers(call.address) + usize::from(BODY_MIN));
        let short = core.socket.mtu(address).ok().filter(|mtu| (*mtu as usize) < least);
        Some(short.map_or(UdpCallError::Silence(timeout), |mtu| UdpCallError::Mtu { address, mtu, least }))
    }
}

/// Bytes of a datagram to `address` that are not a frame's body: the headers of IP, UDP and the frame.
const fn headers(address: SocketAddr) -> usize {
    HEADER_BYTES + if address.is_ipv4() { 28 } else { 48 }
}

impl Core {
    /// What has become of a call whose caller waits. Its end is told once.
    fn outcome(&mut self, index: usize) -> Option<Result<(), UdpCallError>> {
        if let Some(answer) = self.net.answer(index) {
            self.answered(index, answer);
        }
        let place = self.calls.iter().position(|call| call.index == index)?;
        let outcome = self.look_at_call(place)?;
        self.calls.swap_remove(place);
        if outcome.is_err() {
            self.net.close(index);
        }
        Some(outcome)
    }

    /// The other side has answered a call. What became of it, if nobody waits for that and it is known by now.
    pub(super) fn answered(&mut self, index: usize, answer: Result<(), CallError>) -> Option<Happened> {
        let place = self.calls.iter().position(|call| call.index == index)?;
        (self.calls[place].answer, self.calls[place].answered) = (Some(answer), clock::now());
        if answer.is_ok() {
            self.furnish(index);
        }
        if self.calls[place].waits {
            return None;
        }
        let outcome = self.look_at_call(place)?;
        self.calls.swap_remove(place);
        Some(Happened::Answered(index, outcome))
    }

    /// What has become of calls for which nobody waits, as far as it is known by now: told out of its turn.
    fn answers(&mut self) -> Vec<(usize, Result<(), UdpCallError>)> {
        let begun: Vec<usize> = self.calls.iter().filter(|call| !call.waits).map(|call| call.index).collect();
        for index in begun {
            if let Some(answer) = self.net.answer(index) {
                let told = self.answered(index, answer);
                self.events.extend(told);
            }
        }
        let mut answers = Vec::new();
        for event in std::mem::take(&mut self.events) {
            match event {
                Happened::Answered(index, outcome) => answers.push((index, outcome)),
                other => self.events.push_back(other),
            }
        }
        // Their numbers may be others' from now on.
        answers.iter().filter(|(_, outcome)| outcome.is_err()).for_each(|(index, _)| self.net.close(*index));
        answers
    }

    /// Whether [`Udp::answers`] has something to tell.
    fn has_answers(&self) -> bool {
        let answered = |call: &Call| !call.waits && self.net.has_answer(call.index);
        self.events.iter().any(|event| matches!(event, Happened::Answered(..))) || self.calls.iter().any(answered)
    }

    /// Whether there is what the application sleeps for.
    pub(super) fn has_awaited(&mut self) -> bool {
        match self.awaits {
            Awaits::News => self.has_news() || self.has_asked_room(),
            Awaits::Answers => self.has_answers(),
            Awaits::Payload => {
                let (index, strides) = self.looked_at;
                self.net.strides_of(index) != strides || self.net.peer(index).is_none()
            }
            Awaits::NewsOrRoom(index) => self.has_news() || !self.is_full(index) || self.has_asked_room(),
            Awaits::Room(index) => !self.is_full(index),
        }
    }

    /// Looks after the calls for which nobody waits. One that has failed keeps its number until that is told: whoever
    /// gets the number next must not be taken for it.
    #[inline]
    pub(super) fn look_after_calls(&mut self) {
        for place in (0..self.calls.len()).rev() {
            if self.calls[place].waits {
                continue;
            }
            if let Some(outcome) = self.look_at_call(place) {
                let call = self.calls.swap_remove(place);
                self.events.push_back(Happened::Answered(call.index, outcome));
            }
        }
    }

    /// Whether messages have to wait because a channel has begun of which its user does not know yet: they may be of
    /// that.
    pub(super) fn holds_messages(&self) -> bool {
        self.calls.iter().any(|call| call.answer == Some(Ok(())))
    }

    /// A channel has ended. What is told of that in its place, if it is a call's of which nobody knows yet.
    pub(super) fn call_ended(&mut self, index: usize) -> Option<Happened> {
        let place = self.calls.iter().position(|call| call.index == index && !call.waits)?;
        self.calls.swap_remove(place);
        Some(Happened::Answered(index, Err(UdpCallError::Ended(Udp::closed(self, index)))))
    }

    /// Whether the application has something to be told now: messages that wait are nothing yet.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.events.is_empty() || self.net.has_event() && (!self.holds_messages() || self.net.has_happened())
    }

    /// When a call that was answered, and for which nobody waits, is given up unless its ways have been found.
    pub(super) fn calls_until(&self) -> Option<Instant> {
        let answered = self.calls.iter().filter(|call| !call.waits && call.answer == Some(Ok(())));
        answered.map(|call| call.answered.after(WAY_NS)).min()
    }

    /// What has become of a call, if that is known: refused, let in and reached by the ways that were asked for, or out
    /// of reach.
    fn look_at_call(&mut self, place: usize) -> Option<Result<(), UdpCallError>> {
        let Call { index, address, waits, answer, answered, scheme } = self.calls[place];
        match answer {
            Some(Err(error)) => return Some(Err(error.into())),
            Some(Ok(())) if self.lanes.as_ref().is_none_or(|lanes| lanes.is_as_asked(index)) => return Some(Ok(())),
            Some(Ok(())) if self.net.peer(index).is_none() => {
                return Some(Err(UdpCallError::Ended(Udp::closed(self, index))));
            }
            Some(Ok(())) if waits || clock::now().saturating_since(answered) < WAY_NS => return None,
            Some(Ok(())) => return Some(Err(UdpCallError::Way(scheme))),
            None => {}
        }
        let (_, why) = self.unreachable.filter(|(to, _)| *to == address)?;
        Some(Err(UdpCallError::Unreachable { address, why }))
    }
}
