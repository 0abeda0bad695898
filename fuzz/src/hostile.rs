//! The side that keeps no rule: it writes what it likes wherever it may write, in any order with what the victim does.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use arbitrary::Arbitrary;
use cutthrough_engine::token::Token;
use cutthrough_node::config::Config;
use cutthrough_node::shm::handshake::{self, Heard, Offer};
use cutthrough_node::shm::link::CloseReason;
use cutthrough_node::shm::rendezvous;
use cutthrough_segment::copy::Copying;
use cutthrough_segment::landing::LandingMemory;
use cutthrough_segment::map::Mapping;
use cutthrough_segment::sync::Ordering;
use cutthrough_wire::layout::{LINE_BYTES, Layout, Line, RECORDS, RUNS};
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{SLOT_BYTES, SLOT_WORDS};
use cutthrough_wire::token::TOKENS;

use crate::victim::{self, Victim};

/// The longest payload that the peer announces: more than twice the victim's staging ring.
const LONGEST: u32 = 300 << 10;

/// What happens next: on the hostile side, or at the victim.
#[derive(Debug, Arbitrary)]
pub enum Step {
    /// The peer stores a word.
    Store(Place, Value),
    /// The peer stamps its next slot, so that the victim takes it for a message.
    Message(Message),
    /// The peer publishes a payload as it should: aligned, so many bytes long, so many of them there. Its lap is the
    /// whole ring, the shortest one, or longer than the ring.
    Stage(u32, u32, u8, bool, Value),
    /// The peer puts so many more bytes into its staging ring.
    Staged(u16),
    /// The peer appends a word to its run ring, to its free ring or to its return ring, and counts it.
    Append(Ring, Value),
    /// The peer writes into the victim's landing pages.
    Land(u16, u8),
    /// The peer sends this many bytes over the socket.
    Ring(u8),
    /// The victim looks what has happened.
    Poll,
    /// The victim reads a payload and waits for the rest of it.
    Read(u8),
    /// The victim reads what is there of a payload.
    ReadSome(u8),
    /// The victim takes a payload out of its message.
    Take(u8),
    /// The victim drops something.
    Release(u8),
    /// The victim sends a control message.
    SendControl(u8),
    /// The victim sends private memory.
    SendCopy(u32, Name),
    /// The victim sends pages.
    SendPages(u8, Name),
    /// The victim takes a page of its pool.
    Page(u16),
    /// The victim grants a place, of pages or private.
    Grant(bool, u32),
    /// The victim revokes a place.
    Revoke(u8),
    /// The victim posts landing pages.
    Post(u16, u8),
    /// The victim arms.
    Arm,
    /// The victim looks for room, and if there is none, arms to wait for it.
    Room,
    /// The victim takes back what it has posted.
    Recall,
    /// The victim sends a payload back that came in pages.
    Forward(u8, Name),
}

/// A word in the memory that one side writes and the other reads.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Place {
    /// A counter, or the word behind it.
    Counter(u8),
    /// A word of a slot.
    Slot(u8, u8),
    /// A word of the run ring.
    Run(u8),
    /// A word of the free ring.
    Free(u8),
    /// A word of the return ring.
    Return(u8),
    /// A word of a token.
    Token(u8, bool),
    /// A claim.
    Claim(u8),
    /// Any word.
    Any(u16),
}

/// A value to be written.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Value {
    /// Any.
    Any(u64),
    /// A small one.
    Small(u8),
    /// As it was, and a little more or less.
    Near(i8),
    /// A run.
    Run(u8, u8, u8),
    /// What lies at a place of the victim's memory: keys, numbers of lends, runs that it has posted.
    Victim(Place),
}

/// Words 1 to 3 of a slot.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Message {
    /// Bytes of control message.
    pub control_len: u8,
    /// Kind; nearly always one that exists.
    pub kind: u8,
    /// Number of runs.
    pub runs: u16,
    /// Bytes of payload.
    pub len: Length,
    /// Word 2.
    pub detail: Value,
    /// Word 3.
    pub name: Value,
}

/// The length of a payload.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Length {
    /// Any.
    Any(u32),
    /// Within a few pages.
    Pages(u16),
}

/// The token that the victim attaches to a payload.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Name {
    /// None.
    None,
    /// One that the peer may have written into its table.
    Peer(u8),
    /// One that the peer has just written into its table: landing pages, or private memory.
    Given(u8, bool, u8, u8),
    /// Any.
    Any(u16, u64),
}

/// A ring of words.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Ring {
    /// Runs of the messages' payloads.
    Runs,
    /// Runs posted for the victim.
    Free,
    /// Lends returned to the victim.
    Returns,
}

/// The hostile side of a channel.
#[derive(Debug)]
struct Peer {
    socket: OwnedFd,
    layout: Layout,
    out: Arc<Mapping>,
    sight: Arc<Mapping>,
    landing: LandingMemory,
    landing_bytes: u64,
    messages: u64,
    runs: u64,
}

/// Lets all of it happen: why the victim's channel has ended.
///
/// # Panics
/// If the victim does not come out of it in good order.
pub fn run(steps: &[Step]) -> CloseReason {
    let config = victim::config();
    let (mut victim, (socket, offer)) = Victim::let_in(|| call(&config));
    let mut peer = Peer::new(socket, offer, &config);
    for step in steps {
        act(step, &mut peer, &mut victim);
    }
    drop(peer);
    victim.part()
}

fn call(config: &Config) -> (OwnedFd, Offer) {
    let path = rendezvous::socket_path(&victim::address()).expect("a name");
    let socket = rendezvous::reach(&path).expect("the victim listens");
    let offer = Offer::make(1, &config.sizes().expect("settings within bounds")).expect("memory");
    offer.say(&socket).expect("the victim hears");
    (socket, offer)
}

fn act(step: &Step, peer: &mut Peer, victim: &mut Victim) {
    match *step {
        Step::Store(place, value) => peer.store(place, value),
        Step::Message(message) => peer.message(message),
        Step::Stage(len, ready, lap, by_token, name) => peer.stage(len, ready, lap, by_token, name),
        Step::Staged(more) => peer.count(Line::Staged, u64::from(more)),
        Step::Append(ring, value) => peer.append(ring, value),
        Step::Land(at, byte) => peer.landing.copy_in(u64::from(at) % peer.landing_bytes, &[byte], Copying::Pieces),
        Step::Ring(bytes) => peer.ring(bytes),
        Step::Poll => victim.poll(),
        Step::Read(which) => victim.read(which, true),
        Step::ReadSome(which) => victim.read(which, false),
        Step::Take(which) => victim.take(which),
        Step::Release(which) => victim.release(which),
        Step::SendControl(len) => victim.send_control(len),
        Step::SendCopy(len, name) => victim.send_copy(len, peer.token(name)),
        Step::SendPages(count, name) => victim.send_pages(count, peer.token(name)),
        Step::Page(bytes) => victim.page(u32::from(bytes)),
        Step::Grant(private, bytes) => victim.grant(private, bytes),
        Step::Revoke(which) => victim.revoke(which),
        Step::Post(bytes, count) => victim.post(u32::from(bytes), count),
        Step::Arm => victim.arm(),
        Step::Room => victim.room(),
        Step::Recall => victim.recall(),
        Step::Forward(which, name) => victim.forward(which, peer.token(name)),
    }
}

impl Peer {
    fn new(socket: OwnedFd, offer: Offer, config: &Config) -> Self {
        let Offer { own, .. } = offer;
        let Heard { greeting, peer } = handshake::listen(&socket).ok().flatten().expect("the victim's answer");
        let layout = config.sizes().ok().and_then(|sizes| sizes.layout().ok()).expect("settings within bounds");
        Self {
            socket,
            layout,
            out: own.lawless(),
            sight: peer.staging().0,
            landing: peer.landing().clone(),
            landing_bytes: greeting.layout.landing_bytes,
            messages: 0,
            runs: 0,
        }
    }

    fn offset(&self, place: Place) -> u64 {
        match place {
            Place::Counter(number) => u64::from(number / 2 % 16) * LINE_BYTES + u64::from(number % 2) * 8,
            Place::Slot(slot, word) => {
                self.layout.slots + u64::from(slot % 16) * SLOT_BYTES as u64 + u64::from(word) % SLOT_WORDS as u64 * 8
            }
            Place::Run(index) => self.layout.runs + u64::from(index) * 8,
            Place::Free(index) => self.layout.free + u64::from(index) * 8,
            Place::Return(index) => self.layout.returns + u64::from(index) * 8,
            Place::Token(index, second) => self.layout.tokens + u64::from(index) * 16 + u64::from(second) * 8,
            Place::Claim(index) => self.layout.claims + u64::from(index) * 8,
            Place::Any(word) => u64::from(word) * 8 % self.layout.out_bytes,
        }
    }

    fn value(&self, value: Value, before: u64) -> u64 {
        match value {
            Value::Any(value) => value,
            Value::Small(value) => u64::from(value),
            Value::Near(by) => before.wrapping_add_signed(i64::from(by)),
            Value::Run(first, count, id) => run_word(first, count, id),
            Value::Victim(place) => self.sight.load(self.offset(place), Ordering::Relaxed),
        }
    }

    fn store(&self, place: Place, value: Value) {
        let word = self.out.word(self.offset(place));
        word.store(self.value(value, word.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// Adds to a counter.
    fn count(&self, line: Line, more: u64) {
        let word = self.out.word(line.offset());
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Release);
    }

    fn message(&mut self, message: Message) {
        let Message { control_len, kind, runs, len, detail, name } = message;
        let len = match len {
            Length::Any(len) => len,
            Length::Pages(len) => u32::from(len),
        };
        let head =
            u64::from(control_len % 99) | u64::from(kind % 9) << 8 | u64::from(runs) << 16 | u64::from(len) << 32;
        self.publish([head, self.value(detail, 0), self.value(name, 0)]);
    }

    /// Writes the next slot as the victim expects it.
    fn publish(&mut self, header: [u64; 3]) {
        let slot = self.layout.slots + self.messages % 16 * SLOT_BYTES as u64;
        for (word, value) in (1..).zip(header) {
            self.out.word(slot + word * 8).store(value, Ordering::Relaxed);
        }
        self.messages += 1;
        self.out.word(slot).store(self.messages, Ordering::Release);
    }

    fn stage(&mut self, len: u32, ready: u32, lap: u8, by_token: bool, name: Value) {
        let len = len % LONGEST;
        let lap = [0, 16, 17, 18][usize::from(lap % 4)];
        let staged = self.out.word(Line::Staged.offset());
        let base = staged.load(Ordering::Relaxed) & !127;
        let base = base.wrapping_add(if base == staged.load(Ordering::Relaxed) { 0 } else { 128 });
        let ready = ready.min(len);
        staged.store(base.wrapping_add(u64::from(ready)), Ordering::Release);
        let (kind, index) = match name {
            Value::Victim(Place::Token(index, _)) if by_token => (5, u64::from(index)),
            _ if by_token => (5, 0),
            _ => (4, 0),
        };
        self.publish([
            8 | kind << 8 | lap << 16 | u64::from(len) << 32,
            u64::from(ready) | index << 32,
            self.value(name, 0),
        ]);
    }

    fn append(&mut self, ring: Ring, value: Value) {
        let (start, words, line) = match ring {
            Ring::Runs => (self.layout.runs, RUNS, None),
            Ring::Free => (self.layout.free, RECORDS, Some(Line::Posted)),
            Ring::Returns => (self.layout.returns, RECORDS, Some(Line::Returned)),
        };
        let written = line.map_or(self.runs, |line| self.out.word(line.offset()).load(Ordering::Relaxed));
        let word = self.out.word(start + written % u64::from(words) * 8);
        word.store(self.value(value, word.load(Ordering::Relaxed)), Ordering::Relaxed);
        match line {
            Some(line) => self.count(line, 1),
            None => self.runs += 1,
        }
    }

    fn ring(&self, bytes: u8) {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.socket, &[0; 256][..usize::from(bytes)], flags);
    }

    /// A token for the victim to use.
    fn token(&self, name: Name) -> Option<Token> {
        let entry = |index: u8| u64::from(index) % u64::from(TOKENS) * 16 + self.layout.tokens;
        match name {
            Name::None => None,
            Name::Peer(index) => {
                Some(Token { index: index.into(), key: self.out.word(entry(index)).load(Ordering::Relaxed) })
            }
            Name::Given(index, private, first, count) => {
                let place =
                    if private { 1 << 63 | u64::from(count) << 9 } else { u64::from(first) | u64::from(count) << 32 };
                self.out.word(entry(index) + 8).store(place, Ordering::Relaxed);
                self.out.word(entry(index)).store(99, Ordering::Release);
                Some(Token { index: index.into(), key: 99 })
            }
            Name::Any(index, key) => Some(Token { index, key }),
        }
    }
}

fn run_word(first: u8, count: u8, id: u8) -> u64 {
    Run { first: first.into(), count: count.into(), id: id.into() }.to_word()
}
