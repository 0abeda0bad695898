//! Two sides that keep the rules, against a model: nothing that they do may be taken for a breach, every message comes
//! once, in order, with its own bytes, and in the end everything is where it was.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use arbitrary::Arbitrary;
use cutthrough_engine::token::Token;
use cutthrough_node::incoming::{Channel, Event, Incoming, Payload};
use cutthrough_node::node::Node;
use cutthrough_node::shm::grant::Landing;
use cutthrough_node::shm::link::{CloseReason, SendError};
use cutthrough_node::shm::send::{Cargo, Control, Load, Sheaf};
use cutthrough_segment::page::{Frozen, Page};

use crate::victim;

/// Bytes of a page, of the pool and of the landing memory.
const PAGE: usize = 4096;
const MEMORY: usize = 8 * PAGE;

/// The longest private payload: several fit into the staging ring, so that a sender seldom waits for its own thread.
const LONGEST: usize = 20_000;

/// What happens next. The first field says at which of the two sides.
#[derive(Debug, Arbitrary)]
pub enum Step {
    /// Sends a control message.
    Control(bool),
    /// Sends private memory, perhaps to a token of the other side.
    Copy(bool, u16, Option<u8>),
    /// Sends so many of the pages that it holds, perhaps to a token of the other side.
    Pages(bool, u8, Option<u8>),
    /// Takes a page of its pool.
    Page(bool, u16),
    /// Grants a place: private or pages.
    Grant(bool, bool, u16),
    /// Revokes a place.
    Revoke(bool, u8),
    /// Posts landing pages.
    Post(bool, u16, u8),
    /// Both look, so many times, what has happened.
    Poll(u8),
    /// Reads a message's payload and waits for the rest of it.
    Read(bool, u8),
    /// Reads what is there of a message's payload.
    ReadSome(bool, u8),
    /// Drops a message.
    Drop(bool, u8),
    /// Drops a page.
    DropPage(bool, u8),
    /// Both get ready to sleep, and do not sleep.
    Arm,
    /// Looks for room, and if there is none, gets ready to sleep until there is some.
    Room(bool),
    /// Freezes the last page that it holds.
    Freeze(bool),
    /// Sends a frozen page, perhaps behind a page that it holds, perhaps to a token of the other side.
    Frozen(bool, u8, bool, Option<u8>),
    /// Drops a frozen page.
    DropFrozen(bool, u8),
    /// Sends a payload back that came in pages, perhaps to a token of the other side.
    Forward(bool, u8, Option<u8>),
    /// Takes back what it has posted.
    Recall(bool),
}

/// What has become of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Good for so many bytes.
    Good(usize),
    Used,
    Revoked,
}

/// A message on its way.
#[derive(Debug)]
struct Sent {
    id: u64,
    made: Made,
    /// Bytes of payload, if there is one.
    bytes: Option<usize>,
    /// Its token's place in the receiver's list.
    token: Option<usize>,
}

/// A message that has arrived, and the memory that its payload is read into.
#[derive(Debug)]
struct Held {
    message: Incoming,
    made: Made,
    into: Vec<u8>,
}

/// By which number bytes were made; and from which of them on by another one, from its own beginning.
#[derive(Debug, Clone, Copy)]
struct Made(u64, Option<(usize, u64)>);

#[derive(Debug)]
struct Side {
    channel: Channel,
    sent: VecDeque<Sent>,
    held: Vec<Held>,
    pages: Vec<Page>,
    /// Frozen pages, and by which number their bytes were made.
    frozen: Vec<(u64, Frozen)>,
    tokens: Vec<(Token, State)>,
    /// Messages whose memory may not be used again yet.
    uncompleted: BTreeSet<u64>,
}

#[derive(Debug)]
struct Pair {
    node: Node,
    sides: [Side; 2],
    ids: u64,
    /// One side has waited in vain for the other, which is this same thread: nothing more can be said.
    stalled: bool,
}

thread_local! {
    static NODE: RefCell<Option<Node>> = const { RefCell::new(None) };
}

/// Lets all of it happen.
///
/// # Panics
/// If the two sides and the model disagree.
pub fn run(steps: &[Step]) {
    let mut pair = Pair::join();
    for step in steps {
        pair.act(step);
        if pair.stalled {
            break;
        }
    }
    pair.part();
}

/// Byte `at` of the payload of message `id`.
fn byte(id: u64, at: usize) -> u8 {
    (id.wrapping_mul(41) ^ (at as u64).wrapping_mul(7) ^ (at as u64 >> 8)).to_le_bytes()[0]
}

impl Pair {
    fn join() -> Self {
        let address = victim::address().replace("fuzz", "pair");
        let mut node = NODE.take().unwrap_or_else(|| {
            let mut node = Node::open(victim::config()).expect("a node");
            node.listen(&address).expect("a free name");
            node
        });
        let caller = node.connect(&address, Duration::from_secs(5)).expect("a node lets itself in");
        let called = match node.wait(Some(Duration::from_secs(5))) {
            Ok(Event::Opened(channel)) => channel,
            other => panic!("{other:?} instead of a channel"),
        };
        Self { node, sides: [caller, called].map(Side::new), ids: 0, stalled: false }
    }

    fn act(&mut self, step: &Step) {
        match *step {
            Step::Control(side) => self.send(side, Load::None, Made(0, None), None, None),
            Step::Copy(side, len, token) => {
                let id = self.ids;
                let payload: Vec<u8> = (0..usize::from(len) % LONGEST).map(|at| byte(id, at)).collect();
                self.send(side, Load::Copy(&payload), Made(id, None), Some(payload.len()), token);
            }
            Step::Pages(side, count, token) => self.send_pages(side, count, token),
            Step::Page(side, bytes) => {
                let side = &mut self.sides[usize::from(side)];
                let (link, stat) = self.node.link(side.channel).expect("an open channel");
                side.pages.extend(link.page(usize::from(bytes), stat));
            }
            Step::Grant(side, private, bytes) => self.grant(side, private, bytes.into()),
            Step::Revoke(side, which) => self.revoke(side, which),
            Step::Post(side, bytes, count) => {
                let side = &mut self.sides[usize::from(side)];
                let (link, stat) = self.node.link(side.channel).expect("an open channel");
                let _ = link.post(bytes.into(), count.into(), stat);
            }
            Step::Recall(side) => {
                let (link, stat) = self.node.link(self.sides[usize::from(side)].channel).expect("an open channel");
                link.recall(stat).expect("a peer that keeps the rules");
            }
            Step::Forward(side, which, token) => self.forward(side, which, token),
            Step::Poll(times) => (0..=times % 16).for_each(|_| self.poll()),
            Step::Read(side, which) => self.read(side, which, true),
            Step::ReadSome(side, which) => self.read(side, which, false),
            Step::Drop(side, which) => {
                let held = &mut self.sides[usize::from(side)].held;
                if !held.is_empty() {
                    let Held { message, made, .. } = held.swap_remove(usize::from(which) % held.len());
                    // Nobody has written there meanwhile.
                    if let Payload::Landed(landed) = message.payload() {
                        check(made, &landed.to_vec(), landed.len());
                    }
                }
            }
            Step::Freeze(side) => {
                let side = &mut self.sides[usize::from(side)];
                if let Some(mut page) = side.pages.pop() {
                    fill(&mut page, self.ids, 0);
                    side.frozen.push((self.ids, page.freeze()));
                }
            }
            Step::Frozen(side, which, behind, token) => self.send_frozen(side, which, behind, token),
            Step::DropFrozen(side, which) => {
                let frozen = &mut self.sides[usize::from(side)].frozen;
                if !frozen.is_empty() {
                    frozen.swap_remove(usize::from(which) % frozen.len());
                }
            }
            Step::DropPage(side, which) => {
                let pages = &mut self.sides[usize::from(side)].pages;
                if !pages.is_empty() {
                    pages.swap_remove(usize::from(which) % pages.len());
                }
            }
            Step::Arm => {
                self.node.arm();
            }
            Step::Room(side) => {
                let channel = self.sides[usize::from(side)].channel;
                if !self.node.look_for_room(channel).expect("an open channel") {
                    self.node.arm_for_room(channel);
                }
                self.node.want_no_room();
            }
        }
    }

    fn send_pages(&mut self, side: bool, count: u8, token: Option<u8>) {
        let pages = &mut self.sides[usize::from(side)].pages;
        let keep = pages.len().saturating_sub(usize::from(count % 8));
        let mut pages = pages.split_off(keep);
        let mut at = 0;
        for page in &mut pages {
            at = fill(page, self.ids, at);
        }
        let (load, bytes) = match pages.len() {
            0 => (Load::Pages(Sheaf::Many(pages)), None),
            1 => (pages.pop().map_or(Load::None, |page| Load::Pages(Sheaf::One(page))), Some(at)),
            _ => (Load::Pages(Sheaf::Many(pages)), Some(at)),
        };
        self.send(side, load, Made(self.ids, None), bytes, token);
    }

    fn forward(&mut self, side: bool, which: u8, token: Option<u8>) {
        let held = &mut self.sides[usize::from(side)].held;
        let place = usize::from(which) % held.len().max(1);
        if !held.get(place).is_some_and(|held| matches!(held.message.payload(), Payload::Landed(_))) {
            return;
        }
        let Held { mut message, made, .. } = held.swap_remove(place);
        if let Payload::Landed(landed) = message.take_payload() {
            let bytes = landed.len();
            self.send(side, Load::Landed(landed.into()), made, Some(bytes), token);
        }
    }

    fn send_frozen(&mut self, side: bool, which: u8, behind: bool, token: Option<u8>) {
        let id = self.ids;
        let here = &mut self.sides[usize::from(side)];
        let Some((made, frozen)) = here.frozen.get(usize::from(which) % here.frozen.len().max(1)) else { return };
        let (made, view) = (*made, frozen.view());
        let first = here.pages.pop_if(|page| behind && page.is_full());
        let (load, made, bytes) = match first {
            None => (Sheaf::One(view), Made(made, None), frozen.len()),
            Some(mut page) => {
                let begins = fill(&mut page, id, 0);
                let bytes = begins + view.len();
                (Sheaf::Many(vec![page, view]), Made(id, Some((begins, made))), bytes)
            }
        };
        self.send(side, Load::Pages(load), made, Some(bytes), token);
    }

    fn send(&mut self, side: bool, load: Load<'_>, made: Made, bytes: Option<usize>, token: Option<u8>) {
        let [here, there] = self.split(side);
        let place = token.map(|token| usize::from(token) % there.tokens.len().max(1));
        let token = place.and_then(|place| there.tokens.get(place)).map(|token| token.0);
        let (channel, place) = (here.channel, place.filter(|_| token.is_some()));
        let id = self.ids;
        let (link, mut others, stat) = self.node.link_to_wait(channel).expect("an open channel");
        if link.check_room(stat).is_err() {
            return;
        }
        link.control_mut()[..8].copy_from_slice(&id.to_le_bytes());
        match link.send(Control::InPlace(8), Cargo { load, token, cookie: Some(id) }, &mut (), (&mut others, stat)) {
            Ok(_) => {
                let here = &mut self.sides[usize::from(side)];
                here.sent.push_back(Sent { id, made, bytes, token: place });
                here.uncompleted.insert(id);
                self.ids += 1;
            }
            Err(SendError::Full | SendError::TooManyRuns | SendError::PartialPage | SendError::TooLong) => {}
            Err(SendError::Closed(CloseReason::Stalled)) => self.stalled = true,
            Err(error) => panic!("{error}"),
        }
    }

    /// The side, and the other one.
    fn split(&mut self, side: bool) -> [&mut Side; 2] {
        let [first, second] = &mut self.sides;
        if side { [second, first] } else { [first, second] }
    }

    fn grant(&mut self, side: bool, private: bool, bytes: usize) {
        let side = &mut self.sides[usize::from(side)];
        let (link, stat) = self.node.link(side.channel).expect("an open channel");
        let (landing, room) = if private {
            (Landing::Buffer(vec![0; bytes]), bytes)
        } else {
            (Landing::Pages(bytes), bytes.max(1).next_multiple_of(PAGE))
        };
        side.tokens.extend(link.grant(landing, stat).ok().map(|token| (token, State::Good(room))));
    }

    fn revoke(&mut self, side: bool, which: u8) {
        let side = &mut self.sides[usize::from(side)];
        let place = usize::from(which) % side.tokens.len().max(1);
        let Some((token, state)) = side.tokens.get_mut(place) else { return };
        let (link, _) = self.node.link(side.channel).expect("an open channel");
        let revoked = link.revoke(*token);
        if let State::Good(_) = state {
            // In one thread no payload can be in the middle of its way, unless a staged one is; that takes its token
            // when its message arrives.
            if revoked.is_ok() {
                *state = State::Revoked;
            }
        } else {
            assert!(revoked.is_err(), "{token:?} was {state:?}");
        }
    }

    fn poll(&mut self) {
        let Some(event) = self.node.poll() else { return };
        match event {
            // A message whose payload has stalled may have been announced, and its channel ends.
            _ if self.stalled => {}
            Event::Message(message) => self.arrive(message),
            Event::Completed(completion) => {
                let side = self.sides.iter_mut().find(|side| side.channel == completion.channel);
                let side = side.expect("one of the two sides");
                assert!(side.uncompleted.remove(&completion.cookie), "{completion:?} was completed before");
            }
            Event::Closed(_, CloseReason::Stalled) => self.stalled = true,
            other => panic!("{other:?}"),
        }
    }

    fn arrive(&mut self, message: Incoming) {
        let side = self.sides[1].channel == message.channel();
        let [here, there] = self.split(side);
        let sent = there.sent.pop_front().expect("a message that was sent");
        assert_eq!(message.control(), sent.id.to_le_bytes(), "a message out of its order");
        let state = sent.token.map(|place| &mut here.tokens[place].1);
        match (message.payload(), state, sent.bytes) {
            (Payload::None, _, None) => {}
            (Payload::Dropped(_), Some(State::Good(room)), Some(bytes)) => {
                assert!(bytes > *room, "dropped, and its token was good: {bytes} of {room} bytes");
            }
            (Payload::Dropped(_), Some(State::Used | State::Revoked), Some(_)) => {}
            (Payload::Arriving(_), None, Some(bytes)) => assert_eq!(message.payload_len(), bytes),
            (Payload::Landed(landed), None, Some(bytes)) => check(sent.made, &landed.to_vec(), bytes),
            (Payload::Landed(landed), Some(state), Some(bytes)) => {
                assert!(matches!(state, State::Good(room) if bytes <= *room), "{state:?} for {bytes} bytes");
                check(sent.made, &landed.to_vec(), bytes);
                *state = State::Used;
            }
            (Payload::Buffer(buffer), Some(state), Some(bytes)) => {
                assert!(matches!(state, State::Good(room) if bytes <= *room), "{state:?} for {bytes} bytes");
                check(sent.made, buffer, bytes);
                *state = State::Used;
            }
            (payload, state, bytes) => panic!("{payload:?} of {bytes:?} bytes with token {state:?}"),
        }
        let into = vec![0; message.payload_len()];
        here.held.push(Held { message, made: sent.made, into });
    }

    fn read(&mut self, side: bool, which: u8, wait: bool) {
        let held = &mut self.sides[usize::from(side)].held;
        let place = usize::from(which) % held.len().max(1);
        let Some(Held { message, made, into }) = held.get_mut(place) else { return };
        if !matches!(message.payload(), Payload::Arriving(_)) {
            return;
        }
        let valid = if wait {
            self.node.read(message, into, &mut ()).map(|_| into.len())
        } else {
            self.node.read_some(message, into)
        };
        // The sender has put all of it into the ring before it went on.
        check(
            *made,
            &into[..valid.expect("a payload that is there")],
            if wait { into.len() } else { valid.unwrap_or(0) },
        );
    }

    /// Looks until nothing more happens. Returned pages are not asked for at every look, nor is a side to which nothing
    /// came for a while looked at.
    fn settle(&mut self) {
        (0..100).for_each(|_| self.poll());
    }

    /// In the end everything that was sent arrives, and everything that was lent comes back.
    fn part(mut self) {
        for _ in 0..2 {
            while !self.stalled && self.sides.iter().any(|side| !side.sent.is_empty()) {
                let before: usize = self.sides.iter().map(|side| side.sent.len()).sum();
                self.settle();
                let after: usize = self.sides.iter().map(|side| side.sent.len()).sum();
                assert!(self.stalled || after < before, "messages that never arrive: {:?}", self.sides);
                self.sides.iter_mut().for_each(|side| side.held.clear());
            }
            self.sides.iter_mut().for_each(|side| side.held.clear());
            self.settle();
        }
        if !self.stalled {
            self.check_returned();
        }
        for side in &self.sides {
            self.node.close(side.channel);
        }
        while self.node.poll().is_some() {}
        assert_eq!(self.node.channels().count(), 0);
        NODE.set(Some(self.node));
    }

    /// Everything that was posted comes back.
    fn take_back(&mut self) {
        let [one, other] = [&self.sides[0], &self.sides[1]].map(|side| side.channel);
        for (here, there) in [(one, other), (other, one)] {
            let link = |node: &mut Node, channel, recall: bool| {
                let (link, stat) = node.link(channel).expect("an open channel");
                if recall { link.recall(stat) } else { link.tidy(stat).map(|()| 0).map_err(CloseReason::Breach) }
            };
            link(&mut self.node, here, true).expect("a peer that keeps the rules");
            link(&mut self.node, there, false).expect("a peer that keeps the rules");
            assert_eq!(link(&mut self.node, here, true), Ok(0), "all that was posted is there again");
        }
    }

    fn check_returned(&mut self) {
        self.take_back();
        for side in &mut self.sides {
            assert!(side.uncompleted.is_empty(), "never completed: {:?}", side.uncompleted);
            side.pages.clear();
            side.frozen.clear();
            let (link, stat) = self.node.link(side.channel).expect("an open channel");
            for (token, state) in &side.tokens {
                let good = matches!(state, State::Good(_));
                assert_eq!(link.revoke(*token).is_ok(), good, "{token:?} is {state:?}");
            }
            link.tidy(stat).expect("a peer that keeps the rules");
            assert!(link.page(MEMORY, stat).is_ok(), "the whole pool is there again");
            assert!(link.grant(Landing::Pages(MEMORY), stat).is_ok(), "all landing pages are there again");
        }
    }
}

/// Fills a page with the bytes of this number from `at` on: where those behind it begin.
fn fill(page: &mut Page, id: u64, at: usize) -> usize {
    page.iter_mut().zip(at..).for_each(|(place, at)| *place = byte(id, at));
    at + page.len()
}

/// Checks that these are the bytes of a payload.
fn check(made: Made, payload: &[u8], bytes: usize) {
    assert_eq!(payload.len(), bytes);
    let Made(id, then) = made;
    let of = |at: usize| match then {
        Some((begins, other)) if at >= begins => byte(other, at - begins),
        _ => byte(id, at),
    };
    let wrong = payload.iter().enumerate().find(|(at, got)| **got != of(*at));
    assert!(wrong.is_none(), "a message of {bytes} bytes, {made:?}, has the bytes of another from {wrong:?} on");
}

impl Side {
    fn new(channel: Channel) -> Self {
        let (sent, held, pages, frozen, tokens, uncompleted) = Default::default();
        Self { channel, sent, held, pages, frozen, tokens, uncompleted }
    }
}
