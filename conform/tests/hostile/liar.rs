//! The liar and its victim.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cutthrough::{Breach, Channel, CloseReason, Config, Endpoint, Event, Incoming};
use cutthrough_node::shm::handshake::{self, Offer};
use cutthrough_node::shm::rendezvous;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::Mapping;
use cutthrough_segment::ring::Slots;
use cutthrough_wire::layout::{Line, Sizes};
use cutthrough_wire::slot::{Header, Kind, SLOT_BYTES};
use rustix::net::{SendFlags, send};

/// Nothing may take longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Small rings on both sides; an operation in which the peer does not move ends soon.
pub(crate) fn config() -> Config {
    Config {
        slots: 64,
        staging_bytes: 64 << 10,
        pool_bytes: 1 << 20,
        landing_bytes: 1 << 20,
        deadline: Duration::from_millis(300),
        ..Config::default()
    }
}

/// Somebody with a channel to a liar and a channel to somebody honest.
pub(crate) struct Victim {
    pub(crate) endpoint: Endpoint,
    honest: Endpoint,
    to_honest: Channel,
    to_victim: Channel,
    pub(crate) address: String,
    kept: Vec<Incoming>,
}

impl Victim {
    pub(crate) fn open() -> Self {
        Self::with(config())
    }

    /// A victim with settings of its own.
    pub(crate) fn with(settings: Config) -> Self {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        let address = format!("shm:cutthrough-hostile-{}-{number}", std::process::id());
        let mut endpoint = Endpoint::open(settings).expect("an endpoint");
        endpoint.listen(&address).expect("a free name");
        let mut honest = Endpoint::open(config()).expect("an endpoint");
        let (to_victim, to_honest) = cutthrough_conform::join::connect(&mut honest, &mut endpoint, &address);
        Self { endpoint, honest, to_honest, to_victim, address, kept: Vec::new() }
    }

    /// Sends and receives on the honest channel: messages and payloads both ways.
    pub(crate) fn honest_channel_works(&mut self, round: u64) {
        let payload = cutthrough_conform::bytes::pattern(round, 3000);
        self.endpoint.send(self.to_honest, &round.to_le_bytes()).expect("sent");
        match self.honest.wait(Some(PATIENCE)).expect("the victim's message") {
            Event::Message(message) => assert_eq!(message.control(), round.to_le_bytes()),
            other => panic!("{other:?}"),
        }
        let outgoing = self.honest.outgoing(self.to_victim).expect("a slot");
        outgoing.write(b"payload").attach_copy(&payload).send().expect("sent");
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "the honest message does not come");
            match self.endpoint.poll() {
                Some(Event::Message(mut message)) if message.channel() == self.to_honest => {
                    let mut bytes = vec![0; 3000];
                    self.endpoint.read(&mut message, &mut bytes).expect("the payload");
                    assert_eq!(bytes, payload);
                    return;
                }
                Some(Event::Closed(channel, reason)) => assert_ne!(channel, self.to_honest, "{reason}"),
                _ => {}
            }
        }
    }

    /// The next message of the liar.
    pub(crate) fn message(&mut self) -> Incoming {
        match self.endpoint.wait(Some(PATIENCE)).expect("a message") {
            Event::Message(message) => message,
            other => panic!("instead of a message: {other:?}"),
        }
    }

    /// Holds a message to the end.
    pub(crate) fn forget(&mut self, message: Incoming) {
        self.kept.push(message);
    }

    /// Polls until the liar's channel is closed: why.
    pub(crate) fn closed(&mut self) -> CloseReason {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(Event::Closed(channel, reason)) = self.endpoint.poll() {
                assert_ne!(channel, self.to_honest, "the honest channel was closed: {reason}");
                return reason;
            }
        }
        panic!("the liar's channel is still open");
    }
}

/// A peer that keeps no rule.
pub(crate) struct Liar {
    pub(crate) own: Own,
    pub(crate) peer: Peer,
    pub(crate) socket: OwnedFd,
    /// Its out memory.
    pub(crate) out: Arc<Mapping>,
    /// The victim's channel to this liar.
    pub(crate) channel: Channel,
    next: u64,
    /// Where the next staged payload begins.
    base: u64,
    /// How many of the victim's messages were taken.
    taken: u64,
}

/// What the liar says of its memory.
pub(crate) fn sizes() -> Sizes {
    config().sizes().expect("good sizes")
}

impl Liar {
    /// Joins the victim by hand.
    pub(crate) fn join(victim: &mut Victim) -> Self {
        Self::join_with(victim, &sizes())
    }

    /// The same with memory of these sizes.
    pub(crate) fn join_with(victim: &mut Victim, sizes: &Sizes) -> Self {
        let path = rendezvous::socket_path(&victim.address).expect("a path");
        let socket = rendezvous::reach(&path).expect("the victim listens");
        let offer = Offer::make(1, sizes).expect("memory");
        offer.say(&socket).expect("said hello");
        let channel = loop {
            if let Event::Opened(channel) = victim.endpoint.wait(Some(PATIENCE)).expect("the liar comes") {
                break channel;
            }
        };
        let heard = handshake::listen(&socket).expect("an answer").expect("at once");
        let out = offer.own.lawless();
        Self { own: offer.own, peer: heard.peer, socket, out, channel, next: 0, base: 0, taken: 0 }
    }

    /// Where a slot lies.
    pub(crate) fn slot(&self, index: u64) -> u64 {
        self.own.sizes().layout().expect("good sizes").slots + index * SLOT_BYTES as u64
    }

    /// Publishes a slot with these words 1 to 3, true or not.
    pub(crate) fn publish(&mut self, words: [u64; 3]) {
        let slot = self.slot(self.next % u64::from(self.own.sizes().slots));
        for (place, word) in (1..).zip(words) {
            self.out.word(slot + 8 * place).store(word, Ordering::Relaxed);
        }
        self.next += 1;
        self.out.word(slot).store(self.next, Ordering::Release);
    }

    /// Says that a payload of so many bytes has been staged, if there is room for it in the ring: keeps the rules.
    pub(crate) fn stage(&mut self, len: u32) {
        let end = self.base + u64::from(len);
        if end <= self.peer.get(Line::Drained) + (64 << 10) {
            self.own.set(Line::Staged, end);
            self.say(Kind::Staged, 0, len, u64::from(len), 0);
            self.base = end.next_multiple_of(128);
        }
    }

    /// Takes everything that the victim has sent and staged, and wakes it if it waits for that: keeps the rules.
    pub(crate) fn take(&mut self) {
        let slots = self.peer.slots(64);
        let place = |taken: u64| usize::try_from(taken % 64).unwrap_or(0);
        while Slots::slot(&slots, place(self.taken)).load(0, Ordering::Acquire) == self.taken + 1 {
            self.taken += 1;
        }
        self.own.set(Line::Consumed, self.taken);
        self.own.set(Line::Drained, self.peer.get(Line::Staged));
        if self.peer.armed() {
            let _ = send(&self.socket, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Whether the victim has taken so much that another slot can be published without harm.
    pub(crate) fn has_room(&self) -> bool {
        self.next < self.peer.get(Line::Consumed) + 32
    }

    /// Publishes a slot with a well-formed header.
    pub(crate) fn say(&mut self, kind: Kind, runs: u16, payload_len: u32, detail: u64, name: u64) {
        self.publish(Header { control_len: 3, kind, runs, payload_len, detail, name }.to_words());
    }
}

/// The reason of a breach.
pub(crate) const fn breach(reason: CloseReason) -> Option<Breach> {
    match reason {
        CloseReason::Breach(breach) => Some(breach),
        _ => None,
    }
}
