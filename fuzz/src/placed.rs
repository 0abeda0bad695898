//! An endpoint whose ring places payloads, two honest peers, and a kernel that does as it is told: it loses frames,
//! repeats, changes and delays them, stops anywhere, and lies.

mod peer;
mod rest;

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use cutthrough::simulated::{Frames, Interrupts, Network, Time, Wire};
use cutthrough::{
    Channel, CloseReason, Config, Endpoint, Event, Incoming, Keys, Landing, Payload, Placement, Refused, SharedKey, now,
};
use cutthrough_node::fuzz::Deed;

use self::peer::{Peer, Sent, State, holds, host};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes of the pool and of the landing memory of a channel.
const MEMORY: usize = 64 * PAGE;
/// The longest payload.
const LONGEST: usize = 24_000;
/// Lengths of payloads that come in streams: one more often than others, so that what is expected comes.
const STREAMED: [usize; 8] = [8000, 8000, 3000, 8000, 4096, 8000, 20_000, 8000];
/// Messages that are held at most.
const HELD: usize = 24;
/// The longest time between two looks at everybody.
const STEP: Duration = Duration::from_micros(200);
/// How long a step takes at least, in nanoseconds.
const MOMENT_NS: u64 = 2000;
/// How long anything may take once nothing goes wrong any more, in nanoseconds.
const LONG_NS: u64 = 20_000_000_000;

/// A play: who is there, and what happens.
#[derive(Debug, Arbitrary)]
pub struct Play {
    /// What is left to chance.
    pub seed: u16,
    /// How long frames are.
    pub mtu: u8,
    /// Whether frames are sealed.
    pub sealed: bool,
    /// How often the kernel stops by chance, of 255 frames.
    pub stops: u8,
    /// How often a frame comes to the other processor, of 255.
    pub elsewhere: u8,
    /// Whether the kernel refuses to say when it has done with what it had begun.
    pub refuses: bool,
    /// By how many microseconds sockets are slower than rings.
    pub socket: u8,
    /// How many runs are posted for each peer to begin with, beside eight.
    pub posted: u8,
    /// What happens.
    pub steps: Vec<Step>,
}

/// What happens next. The first field says which of the two peers it concerns, if it concerns one.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Step {
    /// A peer sends a control message.
    Say(bool),
    /// It sends private memory, or pages; perhaps to a token.
    Send(bool, u16, bool, Option<u8>),
    /// It sends so many pages alike.
    Stream(bool, u8, u8),
    /// The endpoint posts memory for what comes in streams.
    Post(bool, u8, u8),
    /// It takes back what it has posted.
    Recall(bool),
    /// It grants a place, private or in pages.
    Grant(bool, bool, u16),
    /// It revokes one.
    Revoke(bool, u8),
    /// It sends something to a peer, from private memory or from a page.
    Answer(bool, u16, bool),
    /// It looks what has happened, so many times.
    Poll(u8),
    /// It reads what is there of a message that it holds.
    Read(u8),
    /// It is done with a message.
    Drop(u8),
    /// It looks at all that it holds.
    Look,
    /// It sleeps, for two to the power of this in microseconds, up to a second.
    Sleep(u8),
    /// So much time passes, while everybody looks.
    Pass(u8),
    /// A peer ends the channel in good order, and comes again.
    Anew(bool),
    /// The kernel does something out of turn, after so many of its steps.
    Kernel(u8, Do),
}

/// What the kernel is told.
#[derive(Debug, Clone, Copy)]
pub struct Do(pub Deed);

impl<'a> Arbitrary<'a> for Do {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let which: u8 = u.arbitrary()?;
        Ok(Self(match which % 20 {
            0 => Deed::Lose(u.arbitrary()?),
            1 => Deed::Repeat(u.arbitrary()?),
            2 => Deed::Move(u.arbitrary()?, u.arbitrary()?),
            3 => Deed::Spoil(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?),
            4 => Deed::Stack(u.arbitrary()?),
            5 => Deed::Hold(u.arbitrary()?),
            6 => Deed::Return,
            7 => Deed::Stray,
            8 => Deed::Look(u.arbitrary()?),
            9 => Deed::Stop(u.arbitrary()?),
            10 => Deed::GoOn,
            11 => Deed::Finish,
            12 => Deed::Drop,
            13 => Deed::Half,
            14 => Deed::Lie(u.arbitrary()?, u.arbitrary()?),
            15 => Deed::Swap,
            16 => Deed::Twice,
            17 => Deed::Later,
            18 => Deed::Then,
            _ => Deed::Complete(u.arbitrary()?),
        }))
    }
}

/// What has happened at the endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// What has become of frames at rings.
    pub frames: Frames,
    /// Frames whose payload has landed where it belongs, and such whose payload was copied.
    pub placed: u64,
    /// See `placed`.
    pub mended: u64,
    /// Messages that have come.
    pub messages: u64,
    /// Rings that were given up.
    pub rings_lost: u64,
}

/// A message that has come, and the memory that its payload is read into.
struct Held {
    message: Incoming,
    sent: Sent,
    into: Vec<u8>,
}

struct World {
    network: Network,
    victim: Endpoint,
    peers: [Peer; 2],
    held: Vec<Held>,
    ids: u64,
    messages: u64,
    /// Bytes of payloads that have come and were not copied, as receipts say.
    bytes: u64,
    /// Whether channels may end because nobody can say when the kernel writes no more; and whether the kernel lies.
    refuses: bool,
    lies: bool,
    /// After all that knows the time.
    time: Time,
}

/// Plays it.
///
/// # Panics
/// If a byte of a payload is another one than was sent, or changes; if a message is lost, doubled or out of order, or
/// does not come when nothing goes wrong any more; if a channel ends, pages are missing, or something was not counted.
pub fn run(play: &Play) -> Ran {
    let mut world = World::new(play);
    for step in &play.steps {
        world.step(*step);
        world.pass(MOMENT_NS);
    }
    world.rest()
}

impl World {
    fn new(play: &Play) -> Self {
        let time = Time::begin(play.seed.into());
        let mtu = [1500, 1280, 9000][usize::from(play.mtu) % 3];
        let network = Network::new(play.seed.into(), Wire { mtu, ..Wire::default() });
        network.interrupt(Interrupts {
            elsewhere: f64::from(play.elsewhere / 4) / 255.0,
            stops: f64::from(play.stops / 2) / 255.0,
            refuses: play.refuses,
            socket: Duration::from_micros(play.socket.into()),
            ..Interrupts::default()
        });
        let keys = play.sealed.then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32]))));
        let config = Config {
            insecure: keys.is_none(),
            keys,
            slots: 64,
            pool_bytes: MEMORY as u64,
            landing_bytes: MEMORY as u64,
            staging_bytes: 256 << 10,
            silence: Duration::from_secs(5),
            ..Config::default()
        };
        let open = |index, placement| {
            let config = Config { host: Some(network.host(host(index))), placement, ..config.clone() };
            let mut endpoint = Endpoint::open(config).expect("an endpoint");
            endpoint.listen(&peer::address(index)).expect("a free port");
            endpoint
        };
        let victim = open(0, Placement::HeaderCut);
        let peers = [1, 2].map(|index| Peer::new(open(index, Placement::Copy)));
        let (held, refuses) = (Vec::new(), play.refuses);
        let (ids, messages, bytes, lies) = (0, 0, 0, false);
        let mut world = Self { network, victim, peers, held, ids, messages, bytes, refuses, lies, time };
        for index in 0..2 {
            world.join(index);
            if let Some(channel) = world.peers[index].here {
                let _ = world.victim.post(channel, STREAMED[0], (8 + play.posted % 16).into());
            }
        }
        // What is alike is expected to go on.
        for index in [1, 1, 0, 0] {
            world.send(index, Some(STREAMED[0]), true, None);
            world.pass(100_000);
        }
        world.held.clear();
        world
    }

    /// A peer opens its channel.
    fn join(&mut self, index: usize) {
        let calling = self.peers[index].endpoint.begin_connect(&peer::address(0), Duration::from_secs(5));
        calling.expect("a call");
        self.peers[index].calls();
        self.until("a channel", |world| world.peers[index].is_open());
    }

    /// Lets time pass until this is so.
    fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) {
        let until = now().after(LONG_NS);
        let mut step = STEP;
        while !is(self) {
            assert!(now() < until, "{what}: it never comes");
            self.hear();
            self.time.pass(step);
            step = (step + step / 8).min(Duration::from_millis(20));
        }
    }

    /// Everybody looks.
    fn hear(&mut self) {
        for _ in 0..HELD {
            let Some(event) = self.victim.poll() else { break };
            self.hear_one(event);
        }
        for peer in &mut self.peers {
            peer.hear(self.refuses);
        }
    }

    fn hear_one(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.come(message),
            Event::Opened(channel) => {
                let calling = self.peers.iter_mut().find(|peer| peer.calls && peer.here.is_none());
                let peer = calling.expect("somebody calls");
                (peer.calls, peer.here) = (false, Some(channel));
            }
            Event::Closed(channel, reason) => {
                let stalls = reason == CloseReason::Stalled && self.refuses;
                assert!(reason == CloseReason::Peer || stalls, "ended: {reason}");
                let peer = self.peer(channel);
                assert!(stalls || peer.closes && peer.sent.is_empty(), "{:?} were sent, and are lost", peer.sent);
                peer.ends();
            }
            Event::Completed(_) | Event::Room(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn peer(&mut self, channel: Channel) -> &mut Peer {
        let peer = self.peers.iter_mut().find(|peer| peer.here == Some(channel));
        peer.expect("a channel that is open")
    }

    fn come(&mut self, message: Incoming) {
        self.messages += 1;
        let peer = self.peer(message.channel());
        let sent = peer.sent.pop_front().expect("a message that was sent");
        assert_eq!(message.control(), sent.id.to_le_bytes(), "lost, doubled or out of order");
        let state = sent.token.map(|token| std::mem::replace(&mut peer.tokens[token].1, State::Used));
        let receipt = message.receipt();
        match message.payload() {
            Payload::None => assert!(sent.bytes.is_none_or(|bytes| bytes == 0), "a payload is missing: {sent:?}"),
            Payload::Dropped(why) => {
                let revoked = state == Some(State::Revoked) && *why == Refused::Revoked;
                assert!(revoked || state == Some(State::Used), "{why}: {sent:?}");
            }
            Payload::Landed(landed) => {
                holds(&sent, &landed.to_vec());
                assert_eq!(receipt.copies == 0, receipt.placed == receipt.bytes, "{receipt:?}");
            }
            Payload::Buffer(bytes) => holds(&sent, bytes),
            Payload::Arriving(_) => assert_eq!(Some(message.payload_len()), sent.bytes),
            other => panic!("{other:?}"),
        }
        self.bytes += receipt.placed;
        if message.is_loaded() {
            if self.held.len() >= HELD {
                let first = self.held.remove(0);
                Self::check(&first);
            }
            self.held.push(Held { message, sent, into: Vec::new() });
        }
    }

    /// Looks at a payload that is held.
    fn check(held: &Held) {
        match held.message.payload() {
            Payload::Landed(landed) => holds(&held.sent, &landed.to_vec()),
            Payload::Buffer(bytes) => holds(&held.sent, bytes),
            _ => {}
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Say(peer) => self.send(peer.into(), None, false, None),
            Step::Send(peer, bytes, pages, token) => {
                self.send(peer.into(), Some(usize::from(bytes) % LONGEST), pages, token);
            }
            Step::Stream(peer, bytes, count) => {
                let bytes = STREAMED[usize::from(bytes) % STREAMED.len()];
                (0..1 + count % 8).for_each(|_| self.send(peer.into(), Some(bytes), true, None));
            }
            Step::Post(peer, bytes, count) => {
                let Some(channel) = self.peers[usize::from(peer)].here else { return };
                let bytes = STREAMED[usize::from(bytes) % STREAMED.len()];
                let _ = self.victim.post(channel, bytes, (1 + count % 8).into());
            }
            Step::Recall(peer) => {
                let Some(channel) = self.peers[usize::from(peer)].here else { return };
                self.victim.recall(channel).expect("it is open");
            }
            Step::Grant(peer, private, bytes) => self.grant(peer.into(), private, usize::from(bytes) % LONGEST),
            Step::Revoke(peer, which) => self.revoke(peer.into(), which),
            Step::Answer(peer, bytes, page) => self.answer(peer.into(), usize::from(bytes) % LONGEST, page),
            Step::Poll(times) => {
                for _ in 0..=times % 32 {
                    if let Some(event) = self.victim.poll() {
                        self.hear_one(event);
                    }
                }
            }
            Step::Read(which) => {
                if let Some(index) = usize::from(which).checked_rem(self.held.len()) {
                    self.read(index);
                }
            }
            Step::Drop(which) => {
                if let Some(index) = usize::from(which).checked_rem(self.held.len()) {
                    Self::check(&self.held[index]);
                    self.held.swap_remove(index);
                }
            }
            Step::Look => self.held.iter().for_each(Self::check),
            Step::Sleep(long) => {
                if let Ok(event) = self.victim.wait(Some(Duration::from_micros(1 << (long % 21)))) {
                    self.hear_one(event);
                }
            }
            Step::Pass(long) => self.pass(1000 << (long % 21)),
            Step::Anew(peer) => self.anew(peer.into()),
            Step::Kernel(after, Do(deed)) => {
                self.lies |= deed.is_lie();
                self.network.tell(host(0), after, deed);
            }
        }
    }

    fn pass(&mut self, for_ns: u64) {
        let until = now().after(for_ns);
        let mut step = STEP;
        loop {
            self.hear();
            let left = Duration::from_nanos(until.saturating_since(now()));
            if left.is_zero() {
                return;
            }
            self.time.pass(step.min(left));
            step = (step + step / 8).min(Duration::from_millis(20));
        }
    }

    fn send(&mut self, index: usize, bytes: Option<usize>, pages: bool, token: Option<u8>) {
        let id = self.ids;
        self.ids += 1;
        self.peers[index].send(id, bytes, pages, token);
    }

    fn answer(&mut self, index: usize, bytes: usize, page: bool) {
        let peer = &mut self.peers[index];
        let Some(channel) = peer.here.filter(|_| peer.is_open() && !peer.closes) else { return };
        let sent = Sent { id: self.ids, bytes: Some(bytes), token: None };
        self.ids += 1;
        if peer::send(&mut self.victim, channel, &sent, page, None) {
            peer.back.push_back(sent);
        }
    }

    fn grant(&mut self, index: usize, private: bool, bytes: usize) {
        let peer = &mut self.peers[index];
        let Some(channel) = peer.here else { return };
        let landing = if private { Landing::Buffer(vec![0; bytes]) } else { Landing::Pages(bytes.max(1)) };
        if let Ok(token) = self.victim.grant(channel, landing) {
            peer.tokens.push((token, State::Good(bytes.max(usize::from(!private)))));
        }
    }

    fn revoke(&mut self, index: usize, which: u8) {
        let peer = &mut self.peers[index];
        let Some((channel, at)) = peer.here.zip(usize::from(which).checked_rem(peer.tokens.len())) else { return };
        let (token, state) = peer.tokens[at];
        if self.victim.revoke(channel, token).is_ok() {
            assert!(matches!(state, State::Good(_)), "a token that was {state:?} was good");
            peer.tokens[at].1 = State::Revoked;
        }
    }

    /// Reads what is there of a payload, if it is one that waits for that.
    fn read(&mut self, index: usize) {
        let Held { message, sent, into } = &mut self.held[index];
        if !matches!(message.payload(), Payload::Arriving(_)) {
            return;
        }
        let bytes = sent.bytes.unwrap_or(0);
        into.resize(bytes, 0);
        match self.victim.read_some(message, into) {
            Ok(valid) => {
                peer::holds_begin(sent, &into[..valid]);
                if valid == bytes {
                    self.held.swap_remove(index);
                }
            }
            Err(error) => {
                let channel = self.held.swap_remove(index).message.channel();
                assert!(self.peers.iter().all(|peer| peer.here != Some(channel)), "{error}");
            }
        }
    }

    /// A peer says goodbye, which comes after all that it has sent, and opens a channel anew.
    fn anew(&mut self, index: usize) {
        if self.peers[index].is_open() {
            self.peers[index].close();
            self.until("the end of a channel", |world| {
                world.make_room();
                world.peers[index].here.is_none()
            });
        }
        self.peers[index].forget();
        self.join(index);
    }

    /// Reads all that is held, and gives the memory of the oldest of the rest back: what comes may wait for either.
    fn make_room(&mut self) {
        for index in (0..self.held.len()).rev() {
            self.read(index);
        }
        self.held.iter().for_each(Self::check);
        if let Some(oldest) = self.held.iter().position(|held| !matches!(held.message.payload(), Payload::Arriving(_)))
        {
            self.held.remove(oldest);
        }
    }
}
