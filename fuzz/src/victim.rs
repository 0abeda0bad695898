//! The side that keeps the rules: a node with one channel, used in every way that its interface allows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use cutthrough_engine::token::Token;
use cutthrough_node::config::Config;
use cutthrough_node::incoming::{Channel, Event, Incoming, Payload};
use cutthrough_node::node::Node;
use cutthrough_node::shm::grant::Landing;
use cutthrough_node::shm::link::{CloseReason, SendError};
use cutthrough_node::shm::send::{Cargo, Control, Load, Sheaf};
use cutthrough_segment::page::Page;

/// The longest memory that the victim sends from and reads into: more than three times its staging ring.
const LONGEST: usize = 400 << 10;

/// How long the victim waits for the peer in the middle of a message. Short, because most peers never answer.
const DEADLINE: Duration = Duration::from_micros(200);

/// The longest that anything here may take that is bound to happen.
const BOUND: Duration = Duration::from_secs(5);

/// A node that listens, and its channel to the hostile peer.
#[derive(Debug)]
pub struct Victim {
    node: Node,
    channel: Channel,
    held: Vec<Incoming>,
    taken: Vec<Payload>,
    pages: Vec<Page>,
    tokens: Vec<Token>,
    cookies: u64,
    /// Whether it has asked to be told of room.
    asked: bool,
    closed: Option<CloseReason>,
}

thread_local! {
    /// Making a node costs more than a whole run, so one serves all runs of a thread, one at a time.
    static NODE: RefCell<Option<Node>> = const { RefCell::new(None) };
}

/// Under which name the victim of this thread listens.
#[must_use]
pub fn address() -> String {
    let thread = format!("{:?}", std::thread::current().id()).replace(|c: char| !c.is_ascii_digit(), "");
    format!("shm:fuzz-{}-{thread}", std::process::id())
}

/// The victim's settings: everything as small as it may be, so that every edge is near.
#[must_use]
pub fn config() -> Config {
    Config {
        slots: 16,
        pool_bytes: 8 * 4096,
        landing_bytes: 8 * 4096,
        staging_bytes: 128 << 10,
        deadline: DEADLINE,
        channels: 4,
        ..Config::default()
    }
}

impl Victim {
    /// The node of this thread, listening, before anybody has called; `call` calls it, and then it has a channel.
    ///
    /// # Panics
    /// If it cannot listen, or the caller is not let in.
    pub fn let_in<T>(call: impl FnOnce() -> T) -> (Self, T) {
        let mut node = NODE.take().unwrap_or_else(|| {
            let mut node = Node::open(config()).expect("a node");
            node.listen(&address()).expect("a free name");
            node
        });
        let caller = call();
        let channel = match node.wait(Some(BOUND)).expect("the caller is let in") {
            Event::Opened(channel) => channel,
            other => panic!("{other:?} of an old channel"),
        };
        let (held, taken, pages, tokens) = Default::default();
        (Self { node, channel, held, taken, pages, tokens, cookies: 0, asked: false, closed: None }, caller)
    }

    /// Looks once for what has happened.
    ///
    /// # Panics
    /// If something happens on a channel that has ended, or two payloads have landed in the same pages.
    pub fn poll(&mut self) {
        if let Some(event) = self.node.poll() {
            self.note(event);
        }
    }

    fn note(&mut self, event: Event) {
        assert!(self.closed.is_none(), "{event:?} after the channel was closed");
        match event {
            Event::Message(message) => {
                assert!(message.control().len() <= 96);
                self.held.push(message);
                self.check_landed();
            }
            Event::Completed(completion) => assert!(completion.cookie < self.cookies),
            Event::Closed(channel, reason) => {
                assert_eq!(channel, self.channel);
                assert!(self.node.link(channel).is_err());
                self.closed = Some(reason);
            }
            Event::Room(channel) => {
                assert_eq!(channel, self.channel);
                assert!(std::mem::take(&mut self.asked), "told of room without being asked");
            }
            Event::Opened(channel) => panic!("{channel:?} was opened by nobody"),
            Event::Connected(connecting, _) => panic!("{connecting:?} was begun by nobody"),
            other => panic!("{other:?}: the victim does not know of it"),
        }
    }

    /// Payloads that lie in landing pages have them for themselves, until they are dropped. What lies in the peer's
    /// pages may lie where it likes.
    fn check_landed(&self) {
        let mut used = BTreeMap::new();
        let landed = self.held.iter().filter_map(|message| match message.payload() {
            Payload::Landed(landed) if message.receipt().copies == 1 => Some(landed),
            _ => None,
        });
        for (address, bytes) in landed.flat_map(|landed| landed.pieces()) {
            used.insert(address.addr(), address.addr() + bytes);
        }
        let ends = used.values().zip(used.keys().skip(1));
        assert!(ends.into_iter().all(|(end, next)| end <= next), "two payloads in the same pages");
    }

    /// Reads the payload of a held message, waiting for the rest of it, or as far as it is there.
    pub fn read(&mut self, which: u8, wait: bool) {
        let Some(message) = pick(&mut self.held, which) else { return };
        let mut into = vec![0; message.payload_len().min(LONGEST)];
        if wait {
            if let Ok(receipt) = self.node.read(message, &mut into, &mut ()) {
                assert!(receipt.bytes <= into.len() as u64);
            }
        } else if let Ok(valid) = self.node.read_some(message, &mut into) {
            assert!(valid <= into.len());
        }
    }

    /// Takes the payload out of a held message and drops the rest of it.
    pub fn take(&mut self, which: u8) {
        if self.held.is_empty() {
            return;
        }
        let mut message = self.held.swap_remove(usize::from(which) % self.held.len());
        self.taken.push(message.take_payload());
    }

    /// Drops a message, a payload or a page.
    pub fn release(&mut self, which: u8) {
        let place = usize::from(which / 3);
        match which % 3 {
            0 if !self.held.is_empty() => drop(self.held.swap_remove(place % self.held.len())),
            1 if !self.taken.is_empty() => drop(self.taken.swap_remove(place % self.taken.len())),
            2 if !self.pages.is_empty() => drop(self.pages.swap_remove(place % self.pages.len())),
            _ => {}
        }
    }

    /// Sends a control message.
    pub fn send_control(&mut self, len: u8) {
        if let Ok((link, stat)) = self.node.link(self.channel) {
            let sent = link.send_control(&[7; 96][..usize::from(len % 97)], stat);
            if sent == Err(SendError::Full) {
                self.asked |= self.node.ask_for_room(self.channel).is_ok();
            }
        }
    }

    /// Sends private memory.
    pub fn send_copy(&mut self, len: u32, token: Option<Token>) {
        let len = len as usize % LONGEST;
        let payload: Vec<u8> = (0..len).map(|at| at.to_le_bytes()[0]).collect();
        self.send(Load::Copy(&payload), token);
    }

    /// Sends some of the pages that it holds.
    pub fn send_pages(&mut self, count: u8, token: Option<Token>) {
        let keep = self.pages.len() - usize::from(count).min(self.pages.len());
        let mut pages = self.pages.split_off(keep);
        let sheaf = if pages.len() == 1 { pages.pop().map(Sheaf::One) } else { Some(Sheaf::Many(pages)) };
        self.send(sheaf.map_or(Load::None, Load::Pages), token);
    }

    /// Sends a payload back that came in pages.
    pub fn forward(&mut self, which: u8, token: Option<Token>) {
        if self.held.is_empty() {
            return;
        }
        let mut message = self.held.swap_remove(usize::from(which) % self.held.len());
        if let Payload::Landed(landed) = message.take_payload() {
            self.send(Load::Landed(landed.into()), token);
        }
    }

    fn send(&mut self, load: Load<'_>, token: Option<Token>) {
        let cookie = Some(self.cookies);
        self.cookies += 1;
        if let Ok((link, mut others, stat)) = self.node.link_to_wait(self.channel)
            && link.check_room(stat).is_ok()
        {
            let _ = link.send(Control::InPlace(8), Cargo { load, token, cookie }, &mut (), (&mut others, stat));
            self.node.warm(self.channel);
        }
    }

    /// Takes a page of the pool, and fills it.
    ///
    /// # Panics
    /// If it is held already.
    pub fn page(&mut self, bytes: u32) {
        let Ok((link, stat)) = self.node.link(self.channel) else { return };
        let Ok(mut page) = link.page(bytes as usize, stat) else { return };
        page.fill(9);
        let (start, end) = (page.as_ptr().addr(), page.as_ptr().addr() + page.len());
        let apart = |other: &Page| other.as_ptr().addr() >= end || other.as_ptr().addr() + other.len() <= start;
        assert!(self.pages.iter().all(apart), "a page was lent twice");
        self.pages.push(page);
    }

    /// Grants a place for a payload.
    pub fn grant(&mut self, private: bool, bytes: u32) {
        let Ok((link, stat)) = self.node.link(self.channel) else { return };
        let bytes = bytes as usize % LONGEST;
        let landing = if private { Landing::Buffer(vec![0; bytes]) } else { Landing::Pages(bytes) };
        self.tokens.extend(link.grant(landing, stat));
    }

    /// Revokes a place that it has granted at some time.
    pub fn revoke(&mut self, which: u8) {
        let Ok((link, _)) = self.node.link(self.channel) else { return };
        if let Some(token) = pick(&mut self.tokens, which) {
            let _ = link.revoke(*token);
        }
    }

    /// Posts landing pages into its free queue.
    pub fn post(&mut self, bytes: u32, count: u8) {
        if let Ok((link, stat)) = self.node.link(self.channel) {
            let _ = link.post(bytes as usize, u32::from(count), stat);
        }
    }

    /// Takes back what it has posted.
    pub fn recall(&mut self) {
        if let Ok((link, stat)) = self.node.link(self.channel) {
            let _ = link.recall(stat);
        }
    }

    /// Gets ready to sleep, and does not sleep.
    pub fn arm(&mut self) {
        self.node.arm();
    }

    /// Looks for room; if there is none, gets ready to sleep until there is some, and does not sleep.
    pub fn room(&mut self) {
        if self.node.look_for_room(self.channel) == Ok(false) {
            self.node.arm_for_room(self.channel);
        }
        self.node.want_no_room();
    }

    /// The peer is gone: the channel has to end, everything has to come back, and the node has to be as it was. Why the
    /// channel has ended.
    ///
    /// # Panics
    /// If one of that is not so.
    pub fn part(mut self) -> CloseReason {
        let reason = loop {
            match self.closed {
                Some(reason) => break reason,
                None => {
                    let event = self.node.wait(Some(BOUND)).expect("a channel ends soon after its peer");
                    self.note(event);
                }
            }
        };
        for which in 0..u8::try_from(self.held.len()).unwrap_or(u8::MAX) {
            self.read(which, true);
        }
        self.held.clear();
        self.taken.clear();
        self.pages.clear();
        assert_eq!(self.node.channels().count(), 0);
        assert!(self.node.poll().is_none());
        NODE.set(Some(self.node));
        reason
    }
}

fn pick<T>(things: &mut [T], which: u8) -> Option<&mut T> {
    let len = things.len();
    things.get_mut(usize::from(which) % len.max(1))
}
