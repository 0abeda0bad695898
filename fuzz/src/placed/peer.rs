//! An honest peer of the endpoint whose ring places payloads.

use std::collections::VecDeque;

use cutthrough::{Channel, CloseReason, Endpoint, Event, Payload, SendError, Token};

/// A message on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) id: u64,
    /// Bytes of payload, if there is one.
    pub(super) bytes: Option<usize>,
    /// Its token's place in the receiver's list.
    pub(super) token: Option<usize>,
}

/// What has become of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Good for so many bytes.
    Good(usize),
    Used,
    Revoked,
}

pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    /// The channel, as the endpoint and as this one has it; whether it calls, or has closed it.
    pub(super) here: Option<Channel>,
    there: Option<Channel>,
    pub(super) calls: bool,
    pub(super) closes: bool,
    /// What is on its way to the endpoint, and back.
    pub(super) sent: VecDeque<Sent>,
    pub(super) back: VecDeque<Sent>,
    pub(super) tokens: Vec<(Token, State)>,
}

pub(super) const fn host(index: u8) -> [u8; 4] {
    [10, 0, 0, 1 + index]
}

pub(super) fn address(index: u8) -> String {
    let [a, b, c, d] = host(index);
    format!("xdp:{a}.{b}.{c}.{d}:7000")
}

/// Word `place` of the payload of message `id`.
fn word(id: u64, place: u64) -> [u8; 8] {
    let value = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (value ^ (value >> 27)).to_le_bytes()
}

fn payload(id: u64, bytes: usize) -> Vec<u8> {
    let mut all: Vec<u8> = (0..bytes.div_ceil(8) as u64).flat_map(|place| word(id, place)).collect();
    all.truncate(bytes);
    all
}

/// These are the bytes of a message.
pub(super) fn holds(sent: &Sent, bytes: &[u8]) {
    assert_eq!(Some(bytes.len()), sent.bytes, "{sent:?}");
    holds_begin(sent, bytes);
}

/// These are its first ones.
pub(super) fn holds_begin(sent: &Sent, bytes: &[u8]) {
    for (place, part) in (0..).zip(bytes.chunks(8)) {
        assert_eq!(part, &word(sent.id, place)[..part.len()], "word {place} of {sent:?}");
    }
}

/// Sends it, from a page or from private memory: whether there was room.
pub(super) fn send(endpoint: &mut Endpoint, channel: Channel, sent: &Sent, page: bool, token: Option<Token>) -> bool {
    let control = sent.id.to_le_bytes();
    let Some(bytes) = sent.bytes else { return taken(endpoint.send(channel, &control)) };
    let private = payload(sent.id, bytes);
    let page = if page && bytes > 0 {
        let Ok(mut page) = endpoint.page(channel, bytes) else { return false };
        page.copy_from_slice(&private);
        Some(page)
    } else {
        None
    };
    let outcome = endpoint.outgoing(channel).and_then(|outgoing| {
        let outgoing = outgoing.write(&control);
        let mut outgoing = match page {
            Some(page) => outgoing.attach(page),
            None => outgoing.attach_copy(&private),
        };
        if let Some(token) = token {
            outgoing = outgoing.to(token);
        }
        outgoing.send().map(drop)
    });
    taken(outcome)
}

fn taken(outcome: Result<(), SendError>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(SendError::Full | SendError::Closed(_)) => false,
        Err(error) => panic!("not sent: {error}"),
    }
}

impl Peer {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let (sent, back, tokens) = (VecDeque::new(), VecDeque::new(), Vec::new());
        Self { endpoint, here: None, there: None, calls: false, closes: false, sent, back, tokens }
    }

    pub(super) const fn calls(&mut self) {
        self.calls = true;
    }

    pub(super) const fn is_open(&self) -> bool {
        self.here.is_some() && self.there.is_some()
    }

    pub(super) const fn there(&self) -> Option<Channel> {
        self.there
    }

    pub(super) fn send(&mut self, id: u64, bytes: Option<usize>, page: bool, token: Option<u8>) {
        // What is sent before this side hears that the other one has given the channel up is lost.
        let Some(channel) = self.there.filter(|_| !self.closes && self.here.is_some()) else { return };
        let at = token.zip(bytes).and_then(|(token, _)| usize::from(token).checked_rem(self.tokens.len()));
        let (token, bytes) = match at.map(|at| self.tokens[at]) {
            // What a token names is as long as that, or longer.
            Some((token, State::Good(room))) => (Some(token), bytes.map(|bytes| bytes.min(room))),
            Some((token, _)) => (Some(token), bytes),
            None => (None, bytes),
        };
        let sent = Sent { id, bytes, token: at };
        if send(&mut self.endpoint, channel, &sent, page, token) {
            self.sent.push_back(sent);
        }
    }

    /// Looks what has happened.
    pub(super) fn hear(&mut self, refuses: bool) {
        while let Some(event) = self.endpoint.poll() {
            match event {
                Event::Connected(_, outcome) => {
                    self.there = Some(outcome.expect("an endpoint that lets everybody in"));
                }
                Event::Message(message) => {
                    let sent = self.back.pop_front().expect("a message that was sent");
                    assert_eq!(message.control(), sent.id.to_le_bytes(), "lost, doubled or out of order");
                    self.take(message, &sent);
                }
                Event::Closed(_, reason) => {
                    let stalls = refuses && !matches!(reason, CloseReason::Breach(_));
                    assert!(stalls, "ended: {reason}");
                    self.there = None;
                }
                Event::Completed(_) | Event::Room(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn take(&mut self, mut message: cutthrough::Incoming, sent: &Sent) {
        match message.payload() {
            Payload::None => assert!(sent.bytes.is_none_or(|bytes| bytes == 0)),
            Payload::Landed(landed) => holds(sent, &landed.to_vec()),
            Payload::Arriving(_) => {
                let mut into = vec![0; sent.bytes.unwrap_or(0)];
                // The rest of it is not waited for.
                if let Ok(valid) = self.endpoint.read_some(&mut message, &mut into) {
                    holds_begin(sent, &into[..valid]);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Says goodbye.
    pub(super) fn close(&mut self) {
        if let Some(channel) = self.there.take() {
            self.endpoint.close(channel);
        }
        self.closes = true;
    }

    /// The endpoint's side of the channel has ended.
    pub(super) fn ends(&mut self) {
        self.here = None;
        self.sent.clear();
    }

    /// There was never a channel.
    pub(super) fn forget(&mut self) {
        (self.there, self.here) = (None, None);
        (self.calls, self.closes) = (false, false);
        self.sent.clear();
        self.back.clear();
        self.tokens.clear();
    }
}
