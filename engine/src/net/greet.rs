//! The handshake: who is there, with which key, and what the path carries (rules N10, N11).
//!
//! The caller says hello, is told a cookie, says it again with the cookie and the first message of the cipher's
//! handshake, and is welcomed with the second. No memory is spent on a caller before it has shown, by the cookie, that
//! it hears what is sent to its address. Hello and welcome are as long as the longest frame that their sender hopes
//! for, so whichever arrives proves that the path carries that (compare RFC 8899); each repetition hopes for less.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use cutthrough_wire::frame::{
    BODY_MIN, FRAME_VERSION, GREETING_BYTES, Greeting, HEADER_BYTES, Header, Kind, Limits, Refusal, SEAL_BYTES,
    SEALED_BYTES, low,
};

use super::channel::{Agreed, Body, Channel};
use super::memory::Memory;
use super::porter::host;
use super::{CallError, Net, NetEvent, Seat, State};
use crate::seal::{Handshake, Seal};
use crate::time::Instant;

/// Nanoseconds before a hello is repeated for the first time; doubled each time.
const AGAIN_NS: u64 = 10_000_000;
/// Callers that were let in and may be unheard of at a time.
const WELCOMED: usize = 64;
/// Nanoseconds for which such a caller is waited for at least: on its side the channel is open, and stays so for as
/// long as a silent peer counts as alive.
pub(super) const CONFIRM_NS: u64 = 1_000_000_000;
/// Nanoseconds after which such a caller gives way to any other, if there is no room.
const GRACE_NS: u64 = 20_000_000;
/// Bodies that are tried when longer ones do not come through: Ethernet's 1,500 bytes over IPv6, and what every path
/// carries.
pub(super) const SHORTER: [u16; 2] = [1452 - 64, BODY_MIN];

/// A call of ours.
pub(super) struct Call {
    address: SocketAddr,
    cookie: u64,
    /// From the first hello with a cookie on: the cipher's handshake, its first message, and the greeting to which that
    /// is bound.
    handshake: Option<(Box<dyn Handshake + Send>, Vec<u8>, Greeting)>,
    body: u16,
    most: u16,
    tries: u32,
    /// When the first hello with that handshake was said.
    said: Instant,
    /// When the hello is said again.
    again: Instant,
    /// Whether a cookie was followed at once since the hello was last said because it was time for that.
    followed: bool,
}

impl Call {
    /// Bytes that may come unasked, as the hello says, counted from `begin`.
    pub(super) fn unasked(&self, begin: u64) -> u64 {
        let said = self.handshake.as_ref().map(|(_, _, greeting)| greeting.limits.unasked);
        said.map_or(0, |unasked| u64::from(unasked.wrapping_sub(low(begin))))
    }

    /// Whether it is looked after at this time.
    pub(super) fn is_due_at(&self, at: Instant) -> bool {
        self.again == at
    }
}

/// A caller that was let in and not heard of since.
#[derive(Debug)]
pub(super) struct Welcomed {
    address: SocketAddr,
    tag: u32,
    generation: u32,
    index: usize,
    /// When it was let in, and until when it may be unheard of.
    since: Instant,
    until: Instant,
    greeting: Greeting,
    handshake: Vec<u8>,
}

impl Welcomed {
    pub(super) const fn is_for(&self, index: usize) -> bool {
        self.index == index
    }
}

impl<M: Memory> Net<M> {
    /// A generation.
    pub(super) fn draw(&mut self) -> u32 {
        let bytes = self.guard.random().to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).max(1)
    }

    /// Calls whoever listens at `address`, over a path that is believed to carry bodies of `body` bytes: the channel,
    /// which is open when the event says so. `None` if there are as many as the settings allow.
    pub fn call(&mut self, now: Instant, address: SocketAddr, body: u16) -> Option<usize> {
        if !self.has_seat() {
            // One may have ended that its user has closed.
            self.settle(now);
        }
        if !self.has_seat()
            && let Some(index) = self.late_caller(now)
        {
            self.free_seat(index, false);
        }
        let (index, _) = self.seat()?;
        let most = body.clamp(BODY_MIN, self.settings.body.max(BODY_MIN));
        let (said, again) = (now, now);
        let (handshake, followed) = (None, false);
        let call = Call { address, cookie: 0, handshake, body: most, most, tries: 0, said, again, followed };
        self.seats[index].state = State::Calling(Box::new(call));
        self.call_again(index, now);
        Some(index)
    }

    fn own_greeting(&self, index: usize, cookie: u64, body: u16, allowance: u64) -> Greeting {
        let limits = Limits { messages: low(self.begin + self.settings.slots), unasked: low(self.begin + allowance) };
        Greeting {
            tag: u32::try_from(index).unwrap_or(u32::MAX),
            generation: self.seats[index].generation,
            life: self.settings.life,
            cookie,
            body,
            limits,
            process: self.settings.process,
            user: self.settings.user,
        }
    }

    /// Says hello again, if it is time for that: a hello that was repeated for another reason has a later one.
    pub(super) fn call_is_due(&mut self, index: usize, at: Instant, now: Instant) {
        if let State::Calling(call) = &mut self.seats[index].state
            && call.is_due_at(at)
        {
            call.followed = false;
            self.call_again(index, now);
        }
    }

    /// Says hello, again.
    pub(super) fn call_again(&mut self, index: usize, now: Instant) {
        let Some(State::Calling(call)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else { return };
        let (tries, most) = (call.tries, call.most);
        call.tries += 1;
        call.again = now.after(AGAIN_NS << tries.min(3));
        // Twice as long as hoped, then shorter.
        let shorter = SHORTER.get(((tries / 2) as usize).wrapping_sub(1)).copied();
        call.body = if tries < 2 { most } else { shorter.unwrap_or(BODY_MIN).min(most) };
        let (address, cookie, body) = (call.address, call.cookie, call.body);
        let said = call.handshake.as_ref().map(|(_, first, greeting)| (first.clone(), *greeting));
        let again = call.again;
        self.set_timer(again, index);
        let (first, greeting) = match said {
            Some(said) => said,
            None if cookie == 0 => (Vec::new(), self.own_greeting(index, cookie, self.settings.body, 0)),
            None => {
                let allowance = self.allowance(self.open + 1, self.dealt);
                let greeting = self.own_greeting(index, cookie, self.settings.body, allowance);
                let Ok((handshake, first)) = self.guard.call(&prologue(&greeting)) else {
                    return self.call_failed(index, CallError::Key);
                };
                if let State::Calling(call) = &mut self.seats[index].state {
                    call.handshake = Some((handshake, first.clone(), greeting));
                    call.said = now;
                    self.dealt += allowance;
                }
                (first, greeting)
            }
        };
        self.greet(address, Kind::Hello, [0, 0], &greeting, &first, usize::from(body));
    }

    fn call_failed(&mut self, index: usize, error: CallError) {
        self.free_seat(index, true);
        self.happened.push_back(NetEvent::Failed(index, error));
    }

    /// Queues a frame of the handshake, padded to a body of `body` bytes.
    fn greet(
        &mut self,
        to: SocketAddr,
        kind: Kind,
        [tag, generation]: [u32; 2],
        greeting: &Greeting,
        handshake: &[u8],
        body: usize,
    ) {
        let mut bytes = vec![0; GREETING_BYTES];
        bytes.copy_from_slice(&greeting.to_bytes(u16::try_from(handshake.len()).unwrap_or(0)));
        bytes.extend_from_slice(handshake);
        bytes.resize(bytes.len().max(body), 0);
        self.greet_with(to, kind, [tag, generation], &bytes);
    }

    fn greet_with(&mut self, to: SocketAddr, kind: Kind, [tag, generation]: [u32; 2], body: &[u8]) {
        let header = Header {
            kind,
            body: u16::try_from(body.len()).unwrap_or(u16::MAX),
            tag,
            generation,
            awaited: 0,
            number: 0,
            below: 0,
            held: 0,
            waits: false,
            calls: 0,
            asks: 0,
            bits: 0,
            words: [0, 0],
        };
        let mut frame = header.to_bytes().to_vec();
        frame.extend_from_slice(body);
        let (head, body) = frame.split_at_mut(HEADER_BYTES);
        let (protected, place) = head.split_at_mut(SEALED_BYTES);
        place.copy_from_slice(&self.guard.plain().seal(0, protected, body));
        self.greetings.push_back((to, frame, None));
    }

    fn refuse(&mut self, to: SocketAddr, caller: [u32; 2], why: Refusal) {
        self.tally.refused += 1;
        self.greet_with(to, Kind::Refuse, caller, &[why as u8, FRAME_VERSION]);
    }

    /// A frame of another version: a hello is refused by name; tag and generation lie where they do in every version.
    pub(super) fn other_version(&mut self, now: Instant, from: SocketAddr, head: &[u8; HEADER_BYTES], body: Body<'_>) {
        self.tally.stale += 1;
        // With ours in its place its seal fits: the wire has changed the version, and nobody speaks another.
        let mut ours = *head;
        ours[0] = FRAME_VERSION;
        let (protected, seal) = ours.split_at(SEALED_BYTES);
        let seal: [u8; SEAL_BYTES] = seal.try_into().unwrap_or_default();
        let Body::Aside(body) = body else { return };
        if head[1] == Kind::Hello as u8
            && !self.guard.plain().open(0, protected, &seal, body)
            && let Some((tag, rest)) = body.split_first_chunk::<4>()
            && let Some(generation) = rest.first_chunk::<4>()
            && self.porter.told.takes(now, from)
        {
            return self.refuse(from, [u32::from_le_bytes(*tag), u32::from_le_bytes(*generation)], Refusal::Version);
        }
        // A refusal by name lies where it does in every version, too. One that the wire has changed comes again.
        let [tag, generation] =
            [4, 8].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        if head[1] == Kind::Refuse as u8
            && body.first() == Some(&(Refusal::Version as u8))
            && self.is_called(tag as usize, generation, from)
        {
            self.call_failed(tag as usize, refusal(body));
        }
    }

    /// A frame of a handshake has come.
    pub(super) fn greeted(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        head: &[u8; HEADER_BYTES],
        body: &mut [u8],
    ) {
        let (protected, seal) = head.split_at(SEALED_BYTES);
        let seal: [u8; SEAL_BYTES] = seal.try_into().unwrap_or_default();
        if !self.guard.plain().open(0, protected, &seal, body) {
            self.tally.forged += 1;
            return;
        }
        if header.kind == Kind::Hello {
            return self.hello(now, from, body);
        }
        // An answer: only to a call of ours, from where we have called.
        let index = header.tag as usize;
        if !self.is_called(index, header.generation, from) {
            self.tally.stale += 1;
            return;
        }
        match header.kind {
            Kind::Retry => self.told_cookie(index, body, now),
            Kind::Welcome => self.welcome(index, from, head, body, now),
            Kind::Refuse => self.call_failed(index, refusal(body)),
            _ => self.tally.stale += 1,
        }
    }

    /// Whether a call of ours with this tag and generation waits for an answer from there.
    fn is_called(&self, index: usize, generation: u32, from: SocketAddr) -> bool {
        let calling = |seat: &Seat<M>| matches!(&seat.state, State::Calling(call) if call.address == from);
        self.seats.get(index).is_some_and(|seat| seat.generation == generation && calling(seat))
    }

    fn told_cookie(&mut self, index: usize, body: &[u8], now: Instant) {
        let Some(cookie) = body.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { return };
        if let State::Calling(call) = &mut self.seats[index].state
            && call.cookie != cookie
        {
            // Also another one than before: whoever listens may have started anew.
            self.dealt -= call.unasked(self.begin);
            // Hellos that were said while the first answer was on its way were not lost.
            call.tries = if call.cookie == 0 { 0 } else { call.tries };
            call.cookie = cookie;
            let answered = call.handshake.take().is_some();
            let follows = !core::mem::replace(&mut call.followed, true);
            if answered {
                // The handshake that ends here may have been answered. Whoever has answered it would say that again to
                // the next hello of the same call.
                self.seats[index].generation = self.draw();
            }
            // Once at a time: what is forged on the way must not make us say more than it does.
            if follows {
                self.call_again(index, now);
            }
        }
    }

    /// Somebody wants a channel.
    fn hello(&mut self, now: Instant, from: SocketAddr, body: &[u8]) {
        // It is as long as the least frame of a channel at least, so that no answer is longer.
        let long = body.len() >= usize::from(BODY_MIN);
        let Some((greeting, first)) = Greeting::from_bytes(body).ok().filter(|_| long) else {
            self.tally.stale += 1;
            return;
        };
        let caller = [greeting.tag, greeting.generation];
        let proof = address_bytes(from);
        if !self.listening || !self.guard.knows(&proof, greeting.cookie) {
            // Of a flood the least is answered, so that there is time left for those who are in.
            if !self.porter.told.takes(now, from) {
                self.tally.refused += 1;
                return;
            }
            if !self.listening {
                return self.refuse(from, caller, Refusal::Nobody);
            }
            let cookie = self.guard.cookie(&proof).max(1);
            return self.greet_with(from, Kind::Retry, caller, &cookie.to_le_bytes());
        }
        // Who sends its hello back to a side that has a shared key would have it take itself for its peer (RFC 9257).
        if greeting.life == self.settings.life {
            return self.refuse(from, caller, Refusal::Itself);
        }
        let proven = u16::try_from(body.len()).unwrap_or(u16::MAX).min(greeting.body).min(self.settings.body);
        let late: Vec<usize> =
            self.welcomed.iter().filter(|known| known.until <= now).map(|known| known.index).collect();
        late.into_iter().for_each(|index| self.free_seat(index, false));
        let again = self.welcomed.iter().position(|known| {
            known.address == from && known.tag == greeting.tag && known.generation == greeting.generation
        });
        if let Some(again) = again {
            return self.welcome_again(again, proven, now);
        }
        if self.porter.has((from, greeting.tag, greeting.generation)) {
            // A late repetition of a hello that has been answered and used.
            self.tally.duplicates += 1;
            return;
        }
        // Who gets no answer says hello again. Of a flood that is nearly everybody, so this is looked at first.
        if !self.porter.ration.has(now, from) {
            self.tally.refused += 1;
            return;
        }
        let all_wait = self.welcomed.len() >= WELCOMED;
        let all_taken = !self.has_seat();
        let yields = if all_wait || all_taken { self.who_yields(now, from) } else { None };
        if all_wait && yields.is_none() {
            self.tally.refused += 1;
            return;
        }
        self.porter.ration.take(from);
        let Ok((seal, second)) = self.guard.answer(&prologue(&greeting), first) else {
            return self.refuse(from, caller, Refusal::Key);
        };
        if let Some(index) = yields {
            self.free_seat(index, false);
        }
        let Some((index, _)) = self.seat() else { return self.refuse(from, caller, Refusal::Channels) };
        let allowance = self.allowance(self.open + 1, self.dealt);
        let ours = self.own_greeting(index, 0, proven, allowance);
        let agreed = Agreed {
            address: from,
            tag: greeting.tag,
            generation: greeting.generation,
            life: greeting.life,
            process: greeting.process,
            user: greeting.user,
            body: proven,
            limits: greeting.limits,
        };
        self.porter.lets_in(agreed.caller(), index);
        let mut channel = Channel::new(index, agreed, seal, (&self.settings, self.begin), allowance, now);
        let mut second = second;
        second.extend_from_slice(&channel.vouch(&vouched(&ours)));
        self.seats[index].state = State::Open(Box::new(channel));
        self.open += 1;
        self.dealt += allowance;
        let [tag, generation] = caller;
        self.welcomed.push(Welcomed {
            address: from,
            tag,
            generation,
            index,
            since: now,
            until: now.after(self.confirm_ns()),
            greeting: ours,
            handshake: second,
        });
        self.welcome_again(self.welcomed.len() - 1, proven, now);
        self.touch(index);
    }

    /// Who of those that were let in and not heard of since gives way to a caller from there: the first one of the host
    /// that most of them are from, so that nobody keeps others out from a single host. If the caller's own host would
    /// have as many then, the first one of the port that most of that host are from, so that no process keeps others of
    /// its host out. If the caller's own port would have as many then, only one that has waited for a while: what a
    /// flood of such callers costs stays bounded.
    fn who_yields(&self, now: Instant, from: SocketAddr) -> Option<usize> {
        let host_of = |known: &Welcomed| host(known.address.ip());
        let own = host(from.ip());
        let hosts = counts(self.welcomed.iter().map(host_of));
        // The first of those that have as many is the one that waits longest.
        let of_fullest = self.welcomed.iter().rev().max_by_key(|known| hosts.get(&host_of(known)))?;
        let had = |of| hosts.get(&of).copied().unwrap_or(0);
        if had(host_of(of_fullest)) > had(own) + 1 {
            return Some(of_fullest.index);
        }
        let neighbours = || self.welcomed.iter().rev().filter(|known| host_of(known) == own);
        let ports = counts(neighbours().map(|known| known.address));
        let had = |port| ports.get(&port).copied().unwrap_or(0);
        if let Some(known) = neighbours().max_by_key(|known| had(known.address))
            && had(known.address) > had(from) + 1
        {
            return Some(known.index);
        }
        self.has_waited(now, of_fullest).then_some(of_fullest.index)
    }

    /// Whether a caller that was let in has been silent for a while.
    fn has_waited(&self, now: Instant, known: &Welcomed) -> bool {
        now.after(self.confirm_ns() - GRACE_NS) >= known.until
    }

    /// The one that has been silent for longest, and for a while.
    pub(super) fn late_caller(&self, now: Instant) -> Option<usize> {
        self.welcomed.first().filter(|known| self.has_waited(now, known)).map(|known| known.index)
    }

    /// How long a caller that was let in may be silent from its first frame on, in ns.
    fn confirm_ns(&self) -> u64 {
        CONFIRM_NS.max(self.settings.silence_ns)
    }

    /// Lets a caller in, perhaps once more: over a path that carries what has come.
    fn welcome_again(&mut self, position: usize, proven: u16, now: Instant) {
        let Some(known) = self.welcomed.get_mut(position) else { return };
        known.greeting.body = known.greeting.body.min(proven);
        let (to, caller, index) = (known.address, [known.tag, known.generation], known.index);
        let (greeting, handshake) = (known.greeting, known.handshake.clone());
        if let Some(channel) = self.channel(index) {
            channel.narrow(now, greeting.body);
            self.greet(to, Kind::Welcome, caller, &greeting, &handshake, usize::from(greeting.body));
        }
    }

    /// We are let in.
    fn welcome(&mut self, index: usize, from: SocketAddr, _head: &[u8; HEADER_BYTES], body: &[u8], now: Instant) {
        let Ok((greeting, second)) = Greeting::from_bytes(body) else {
            self.tally.stale += 1;
            return;
        };
        let State::Calling(call) = &mut self.seats[index].state else { return };
        let (most, round) = (call.most, now.saturating_since(call.said));
        let Some((handshake, _, said)) = &mut call.handshake else { return };
        // As much as was told with the hello: by now it might be less.
        let allowance = u64::from(said.limits.unasked.wrapping_sub(low(self.begin)));
        let answer = second.split_last_chunk::<SEAL_BYTES>();
        let finished = answer.and_then(|(second, sum)| Some((handshake.finish(second).ok()?, sum)));
        let Some((mut seal, sum)) = finished else {
            // The answer to an earlier hello, or a forger's: the true one may still come.
            self.tally.forged += 1;
            return;
        };
        if !seal.open(0, &vouched(&greeting), sum, &mut []) {
            return self.call_failed(index, CallError::Key);
        }
        if greeting.life == self.settings.life {
            return self.call_failed(index, CallError::Refused(Refusal::Itself));
        }
        let agreed = Agreed {
            address: from,
            tag: greeting.tag,
            generation: greeting.generation,
            life: greeting.life,
            process: greeting.process,
            user: greeting.user,
            body: greeting.body.min(most),
            limits: greeting.limits,
        };
        let mut channel = Channel::new(index, agreed, seal, (&self.settings, self.begin), allowance, now);
        channel.confirmed = true;
        channel.expects(now, round);
        channel.hopes(now, most);
        // Shows the other side that we have heard its answer.
        channel.probe(0);
        self.seats[index].state = State::Open(Box::new(channel));
        self.open += 1;
        self.happened.push_back(NetEvent::Connected(index));
        self.touch(index);
    }

    /// A caller that was let in has been heard of.
    pub(super) fn confirmed(&mut self, index: usize) {
        let known = self.welcomed.iter().position(|known| known.index == index);
        if let Some(known) = known.map(|at| self.welcomed.remove(at))
            && let Some(channel) = self.channel(index)
        {
            let round = channel.heard.saturating_since(known.since);
            channel.expects(channel.heard, round);
        }
        self.happened.push_back(NetEvent::Opened(index));
    }
}

impl<M: Memory> Channel<M> {
    /// The path carries no longer bodies than this.
    fn narrow(&mut self, now: Instant, body: u16) {
        self.peer.body = self.peer.body.min(body);
        self.reaches(now, body);
    }

    /// The seal of what is said in a welcome: number 0 of this side, which no frame uses. Once only.
    fn vouch(&mut self, said: &[u8]) -> [u8; SEAL_BYTES] {
        self.number = self.number.max(1);
        Seal::seal(&mut *self.seal, 0, said, &mut [])
    }
}

/// What a call is told by the body of a refusal.
fn refusal(body: &[u8]) -> CallError {
    let [why, version] = [0, 1].map(|at| body.get(at).copied().unwrap_or(0));
    match Refusal::from_raw(why) {
        Some(Refusal::Version) => CallError::Version(version),
        Some(known) => CallError::Refused(known),
        None => CallError::Unknown(why),
    }
}

/// What of a welcome is bound to the key: all but how long frames may be, which depends on how often it is repeated.
fn vouched(greeting: &Greeting) -> [u8; GREETING_BYTES] {
    Greeting { body: BODY_MIN, ..*greeting }.to_bytes(0)
}

/// What a handshake is bound to: everything that the hello says, and the version whose frames its key shall seal.
fn prologue(greeting: &Greeting) -> [u8; GREETING_BYTES + 1] {
    let mut bytes = [FRAME_VERSION; GREETING_BYTES + 1];
    bytes[..GREETING_BYTES].copy_from_slice(&greeting.to_bytes(0));
    bytes
}

/// How often there is each of these.
fn counts<K: Ord>(of: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    of.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

fn address_bytes(address: SocketAddr) -> [u8; 18] {
    let mut bytes = [0; 18];
    let ip = match address {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
        SocketAddr::V6(v6) => *v6.ip(),
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}
