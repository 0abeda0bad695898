//! One side of a storm: what it sends, and what it makes of what comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use super::{SILENCE, rest};
use crate::bytes::{check, fill, pattern};
use crate::random::Random;
use cutthrough::{
    Channel, CloseReason, Endpoint, Event, Incoming, Instant, Landing, Payload, RevokeError, SendError, Token, now,
};

/// Payloads of a channel that are kept unread at most.
const KEPT: usize = 8;
/// Bytes of payloads that come in streams.
pub(super) const STREAMED: [usize; 3] = [3000, 8000, 20_000];
/// Channels that a process opens at most.
const CHANNELS: usize = 6;
/// How long a call may take.
const CALL: Duration = Duration::from_secs(2);

/// What comes next.
#[derive(Debug)]
pub struct Chance(Random);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end.max(1))
    }

    /// True once in so many times.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(super) fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    /// Bytes of a payload: short ones mostly.
    fn length(&mut self) -> usize {
        let most = [64, 4096, 4097, 20_000, 70_000, 300_000, 3 << 20];
        let most = most[if self.one_in(3) { self.index(most.len()) } else { self.index(4) }];
        self.index(most + 1)
    }
}

/// What a control message says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    number: u64,
    kind: u8,
    seed: u64,
    len: u32,
    token: Token,
}

/// Nothing goes with it.
const SAY: u8 = 0;
/// A payload goes with it.
const LOAD: u8 = 1;
/// A payload for this token goes with it.
const AIMED: u8 = 2;
/// A payload of up to so many bytes may come to this token.
const GRANT: u8 = 3;
/// The last one.
pub(super) const BYE: u8 = 4;
/// Nothing but the next two comes from now on, and nothing is kept.
pub(super) const REST: u8 = 5;
/// All that was the sender's is its own again.
pub(super) const WELL: u8 = 6;

impl Word {
    fn to_bytes(self) -> [u8; 37] {
        let mut bytes = [0; 37];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8] = self.kind;
        bytes[9..17].copy_from_slice(&self.seed.to_le_bytes());
        bytes[17..21].copy_from_slice(&self.len.to_le_bytes());
        bytes[21..].copy_from_slice(&self.token.to_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let bytes: [u8; 37] = bytes.try_into().expect("a word of the storm");
        Self {
            number: u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")),
            kind: bytes[8],
            seed: u64::from_le_bytes(bytes[9..17].try_into().expect("8 bytes")),
            len: u32::from_le_bytes(bytes[17..21].try_into().expect("4 bytes")),
            token: Token::from_bytes(bytes[21..].try_into().expect("16 bytes")),
        }
    }
}

/// One channel.
#[derive(Default)]
pub(super) struct Talk {
    sent: u64,
    come: u64,
    pub(super) bye: bool,
    /// What the peer has said of its rest, and what was said to it: [`REST`] or [`WELL`].
    pub(super) rests: u8,
    pub(super) told: u8,
    /// Landing pages that were posted; and bytes of what they were posted for, if that comes in a stream.
    pub(super) posted: usize,
    pub(super) awaited: usize,
    /// Tokens of the peer's that are not used yet.
    granted_there: Vec<(Token, usize)>,
    /// Tokens of ours that nothing has come to, and such that were revoked.
    pub(super) granted: BTreeMap<[u8; 16], usize>,
    revoked: BTreeSet<[u8; 16]>,
    begun: BTreeSet<[u8; 16]>,
    pub(super) kept: VecDeque<(Incoming, Word)>,
    pub(super) cookies: BTreeSet<u64>,
    /// Whether it was asked to be told of room.
    asked: bool,
}

/// One process of the storm.
pub struct Node {
    pub(super) endpoint: Endpoint,
    /// What comes next.
    pub random: Chance,
    pub(super) talks: BTreeMap<Channel, Talk>,
    closed: BTreeSet<Channel>,
    others: Vec<String>,
    /// Calls that are not answered yet.
    calling: usize,
    called: Instant,
    cookies: u64,
    messages: u64,
    bytes: u64,
    /// Whether channels may end because nobody can say when a ring is not written to any more.
    pub(super) stalls: bool,
    /// Whether a ring places what comes: streams come, and runs are posted for them; and whether one is being sent.
    pub(super) places: bool,
    pub(super) cuts: bool,
    pub(super) streams: bool,
    /// Where streams go for a while, and how long what they bring is.
    pub(super) stretch: Option<(Channel, usize)>,
    /// Whether it posts runs for what comes in streams.
    pub(super) awaits: bool,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("talks", &self.talks.len()).finish_non_exhaustive()
    }
}

impl Node {
    /// A side that calls the others by these addresses.
    #[must_use]
    pub fn new(endpoint: Endpoint, random: Random, others: Vec<String>) -> Self {
        let (talks, closed) = (BTreeMap::new(), BTreeSet::new());
        let (calling, called) = (0, Instant::from_nanos(0));
        Self {
            endpoint,
            random: Chance(random),
            talks,
            closed,
            others,
            calling,
            called,
            cookies: 0,
            messages: 0,
            bytes: 0,
            stalls: false,
            places: false,
            cuts: false,
            streams: false,
            stretch: None,
            awaits: false,
        }
    }

    /// Messages that have come, and bytes of payloads that were read.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// What happens next, if anything does: to be [heard](Self::hear) in its turn.
    pub fn poll(&mut self) -> Option<Event> {
        self.endpoint.poll()
    }

    /// The same within so long.
    pub fn wait(&mut self, longest: Duration) -> Option<Event> {
        self.endpoint.wait(Some(longest)).ok()
    }

    /// Whether it has channels.
    #[must_use]
    pub fn has_channels(&self) -> bool {
        !self.talks.is_empty()
    }

    /// Says the last word on every channel, and closes it.
    ///
    /// # Panics
    /// As of [`Node::act`].
    pub fn close_all(&mut self) {
        let open: Vec<Channel> = self.talks.iter().filter(|(_, talk)| !talk.bye).map(|(&channel, _)| channel).collect();
        open.into_iter().for_each(|channel| self.close(channel));
    }

    fn word(&mut self, channel: Channel, kind: u8, len: usize, token: Option<Token>) -> Word {
        let seed = self.random.next();
        let number = self.talks.get(&channel).map_or(0, |talk| talk.sent);
        let token = token.unwrap_or(Token::from_bytes([0; 16]));
        Word { number, kind, seed, len: u32::try_from(len).expect("few bytes"), token }
    }

    /// What a send came to: whether the message is on its way.
    fn sent(&mut self, channel: Channel, outcome: Result<(), SendError>) -> bool {
        match outcome {
            Ok(()) => {
                if let Some(talk) = self.talks.get_mut(&channel) {
                    talk.sent += 1;
                }
                true
            }
            Err(SendError::Full) => {
                let asks = self.random.one_in(2) && self.endpoint.ask_for_room(channel).is_ok();
                if let Some(talk) = self.talks.get_mut(&channel).filter(|_| asks) {
                    talk.asked = true;
                }
                false
            }
            Err(SendError::TooManyRuns) => false,
            Err(SendError::Closed(reason)) => {
                self.ended(reason);
                false
            }
            Err(error) => panic!("not sent: {error}"),
        }
    }

    pub(super) fn say(&mut self, channel: Channel, kind: u8, len: usize, token: Option<Token>) -> bool {
        let word = self.word(channel, kind, len, token);
        let outcome = self.endpoint.send(channel, &word.to_bytes());
        self.sent(channel, outcome)
    }

    /// Sends a payload, from private memory or from pages, to a token or not.
    pub(super) fn load(&mut self, channel: Channel, len: usize, token: Option<Token>) -> bool {
        let word = self.word(channel, if token.is_some() { AIMED } else { LOAD }, len, token);
        let control = word.to_bytes();
        let pages = match self.random.below(3) {
            draw if draw == 0 || self.streams => self.pages(channel, word),
            _ => None,
        };
        let cookie = self.random.one_in(3).then(|| {
            self.cookies += 1;
            self.cookies
        });
        let private = if pages.is_none() { pattern(word.seed, len) } else { Vec::new() };
        let outcome = self.endpoint.outgoing(channel).and_then(|outgoing| {
            let mut outgoing = outgoing.write(&control);
            outgoing = match pages {
                Some(pages) => outgoing.attach_list(pages),
                None => outgoing.attach_copy(&private),
            };
            if let Some(token) = token {
                outgoing = outgoing.to(token);
            }
            if let Some(cookie) = cookie {
                outgoing = outgoing.track(cookie);
            }
            outgoing.send()
        });
        let sent = self.sent(channel, outcome.map(drop));
        if let (true, Some(cookie), Some(talk)) = (sent, cookie, self.talks.get_mut(&channel)) {
            talk.cookies.insert(cookie);
        }
        sent
    }

    /// Pages with a payload in them, if there are some.
    fn pages(&mut self, channel: Channel, word: Word) -> Option<Vec<cutthrough::Page>> {
        let (mut pages, mut left) = (Vec::new(), word.len as usize);
        if left == 0 {
            return None;
        }
        while left > 0 {
            let whole = if self.random.one_in(2) { left } else { 4096 * (1 + self.random.index(4)) };
            let page = self.endpoint.page(channel, left.min(whole)).ok()?;
            left -= page.len();
            pages.push(page);
        }
        let mut payload = vec![0; word.len as usize];
        fill(word.seed, &mut payload);
        let mut rest = payload.as_slice();
        for page in &mut pages {
            let (now, later) = rest.split_at(page.len());
            page.copy_from_slice(now);
            rest = later;
        }
        Some(pages)
    }

    fn grant(&mut self, channel: Channel) {
        let len = self.random.length().max(1);
        let landing = if self.random.one_in(2) { Landing::Pages(len) } else { Landing::Buffer(vec![0; len]) };
        let Ok(token) = self.endpoint.grant(channel, landing) else { return };
        if self.say(channel, GRANT, len, Some(token)) {
            if let Some(talk) = self.talks.get_mut(&channel) {
                talk.granted.insert(token.to_bytes(), len);
            }
        } else {
            let _ = self.endpoint.revoke(channel, token);
        }
    }

    pub(super) fn revoke(&mut self, channel: Channel) {
        let Some(talk) = self.talks.get_mut(&channel) else { return };
        let Some(token) = talk.granted.keys().next().copied() else { return };
        match self.endpoint.revoke(channel, Token::from_bytes(token)) {
            Ok(_) => {
                talk.granted.remove(&token);
                talk.revoked.insert(token);
            }
            // The message says whether it was written.
            Err(RevokeError::InFlight) => drop(talk.begun.insert(token)),
            // What has come to it is not told yet.
            Err(RevokeError::Refused(_)) => {}
            Err(RevokeError::Closed(reason)) => self.ended(reason),
            Err(error) => panic!("{error}: this storm does not know of it"),
        }
    }

    /// One thing that comes to its mind: how long it sleeps before the next.
    ///
    /// # Panics
    /// If an endpoint does not do as it says.
    pub fn act(&mut self) -> Duration {
        let begun = now();
        let sleeps = self.do_one_thing();
        // What is waited for in between is not looked at.
        self.called = self.called.after(now().saturating_since(begun));
        sleeps
    }

    pub(super) fn post(&mut self, channel: Channel, len: usize, count: u32) {
        let posted = self.endpoint.post(channel, len, count);
        if let (Ok(posted), Some(talk)) = (posted, self.talks.get_mut(&channel)) {
            talk.posted += posted as usize * rest::pages(len);
        }
    }

    fn do_one_thing(&mut self) -> Duration {
        if self.talks.len() < CHANNELS && self.calling == 0 && !self.others.is_empty() {
            let to = self.random.index(self.others.len());
            if self.endpoint.begin_connect(&self.others[to], CALL).is_ok() {
                (self.calling, self.called) = (self.calling + 1, now());
            }
        }
        let waits = Duration::from_nanos(now().saturating_since(self.called));
        assert!(self.calling == 0 || waits < CALL + SILENCE, "a call is never answered");
        let open: Vec<Channel> = self.talks.iter().filter(|(_, talk)| !talk.bye).map(|(&channel, _)| channel).collect();
        if open.is_empty() {
            return Duration::ZERO;
        }
        if let Some((channel, len)) = self.stretch
            && open.contains(&channel)
            && !self.random.one_in(8)
        {
            self.stream(channel, len);
            return Duration::ZERO;
        }
        let channel = open[self.random.index(open.len())];
        if self.places {
            match self.random.below(4) {
                0 => {
                    let len = STREAMED[self.random.index(STREAMED.len())];
                    self.stream(channel, len);
                    return Duration::ZERO;
                }
                1 => {
                    let len = STREAMED[self.random.index(STREAMED.len())];
                    self.post(channel, len, 4);
                    return Duration::ZERO;
                }
                _ => {}
            }
        }
        match self.random.below(100) {
            0..30 => drop(self.say(channel, SAY, 0, None)),
            30..60 => {
                let len = self.random.length();
                self.load(channel, len, None);
            }
            60..70 => self.grant(channel),
            70..80 => {
                let token = self.talks.get_mut(&channel).and_then(|talk| talk.granted_there.pop());
                if let Some((token, room)) = token {
                    let len = self.random.index(room + 1);
                    self.load(channel, len, Some(token));
                }
            }
            80..83 => self.revoke(channel),
            83..86 => {
                let (len, count) = (self.random.length().max(1), 1 + self.random.below(3));
                let len = len.min(70_000);
                self.post(channel, len, u32::try_from(count).unwrap_or(1));
            }
            86..95 => self.settle(channel),
            95..97 => return Duration::from_millis(self.random.below(5)),
            97 if self.random.one_in(40) => self.close(channel),
            _ => {}
        }
        Duration::ZERO
    }

    /// Looks at what was kept longest.
    pub(super) fn settle(&mut self, channel: Channel) {
        if let Some((message, word)) = self.talks.get_mut(&channel).and_then(|talk| talk.kept.pop_front()) {
            self.take(message, word);
        }
    }

    pub(super) fn close(&mut self, channel: Channel) {
        if self.say(channel, BYE, 0, None) {
            self.endpoint.close(channel);
            self.talks.remove(&channel);
            self.closed.insert(channel);
        }
    }

    /// Looks at what has landed and is kept: nobody writes there.
    ///
    /// # Panics
    /// If somebody has.
    pub fn look(&self) {
        for (message, word) in self.talks.values().flat_map(|talk| &talk.kept) {
            if let Payload::Landed(landed) = message.payload() {
                check(word.seed, &landed.to_vec());
            }
        }
    }

    /// A payload: read, or thrown away.
    fn take(&mut self, mut message: Incoming, word: Word) {
        let len = word.len as usize;
        if self.random.one_in(10) {
            return;
        }
        match message.payload() {
            Payload::None => assert_eq!(len, 0, "a payload is missing: {word:?}"),
            Payload::Landed(landed) => {
                assert_eq!(landed.len(), len);
                check(word.seed, &landed.to_vec());
            }
            Payload::Buffer(bytes) => {
                assert_eq!(bytes.len(), len);
                check(word.seed, bytes);
            }
            Payload::Dropped(_) => return,
            Payload::Arriving(_) => {
                assert_eq!(message.payload_len(), len);
                let mut bytes = vec![0; len];
                if self.random.one_in(4) {
                    match self.endpoint.read_some(&mut message, &mut bytes) {
                        Ok(valid) => check(word.seed, &bytes[..valid]),
                        Err(_) => return,
                    }
                }
                match self.endpoint.read(&mut message, &mut bytes) {
                    Ok(_) => check(word.seed, &bytes),
                    Err(cutthrough::ReadError::Closed(reason)) => return self.ended(reason),
                    // It was whole when a part of it was asked for.
                    Err(cutthrough::ReadError::Nothing) => check(word.seed, &bytes),
                    Err(error) => panic!("{error}: {word:?}"),
                }
            }
            other => panic!("{other:?}: this storm does not know of it"),
        }
        self.bytes += word.len as u64;
        if self.random.one_in(2) {
            self.endpoint.release(message);
        }
    }

    /// A channel may end because the peer was killed, or wants it to.
    fn ended(&self, reason: CloseReason) {
        let stalls = reason == CloseReason::Stalled && !self.stalls;
        assert!(!matches!(reason, CloseReason::Breach(_)) && !stalls, "ended: {reason}");
    }

    fn come(&mut self, message: Incoming) {
        let (channel, word) = (message.channel(), Word::from_bytes(message.control()));
        let Some(talk) = self.talks.get_mut(&channel) else {
            panic!(
                "a message on {channel:?}, which is not open: {word:?}; closed here: {}",
                self.closed.contains(&channel)
            );
        };
        assert_eq!(word.number, talk.come, "lost, doubled or out of order: {word:?}");
        assert!(!talk.bye, "after the last one: {word:?}");
        talk.come += 1;
        self.messages += 1;
        match word.kind {
            GRANT => talk.granted_there.push((word.token, word.len as usize)),
            BYE => talk.bye = true,
            REST | WELL => talk.rests = word.kind,
            AIMED => {
                let (token, dropped) = (word.token.to_bytes(), matches!(message.payload(), Payload::Dropped(_)));
                let (granted, revoked) = (talk.granted.remove(&token).is_some(), talk.revoked.contains(&token));
                assert!(granted != revoked, "a token of ours, used once: {word:?}");
                let fits = dropped == revoked || talk.begun.remove(&token) || word.len == 0;
                assert!(fits, "dropped: {dropped}, revoked: {revoked}, {word:?}");
            }
            SAY => assert!(!message.is_loaded()),
            _ => assert!(!matches!(message.payload(), Payload::Dropped(_)), "dropped: {word:?}"),
        }
        if word.kind == LOAD && self.awaits {
            self.awaits(channel, word.len as usize);
        }
        if message.is_loaded() {
            // Long ones hold their sender when nobody reads them, and who is held does not read what it keeps.
            let keeps = word.len <= 20_000 && self.random.one_in(4);
            if let Some(talk) = self.talks.get_mut(&channel).filter(|talk| keeps && talk.kept.len() < KEPT) {
                return talk.kept.push_back((message, word));
            }
            self.take(message, word);
        }
    }

    /// Something has happened.
    ///
    /// # Panics
    /// If that is not what an endpoint promises.
    pub fn hear(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.come(message),
            Event::Opened(channel) => drop(self.talks.insert(channel, Talk::default())),
            Event::Connected(_, outcome) => {
                self.calling -= 1;
                // Whom it has called may have been killed.
                if let Ok(channel) = outcome {
                    self.talks.insert(channel, Talk::default());
                }
            }
            Event::Closed(channel, reason) => {
                self.ended(reason);
                let talk = self.talks.remove(&channel).expect("a channel that is open");
                // Who has called may have given the call up when it was answered; then nothing has come.
                let missing = reason == CloseReason::Peer && !talk.bye && talk.come > 0;
                assert!(
                    !missing,
                    "closed in good order, and what came last is missing: {} came, {} sent",
                    talk.come, talk.sent
                );
                for (message, word) in talk.kept {
                    if reason == CloseReason::Peer {
                        self.take(message, word);
                    }
                }
            }
            Event::Completed(completion) => {
                if let Some(talk) = self.talks.get_mut(&completion.channel) {
                    assert!(talk.cookies.remove(&completion.cookie), "completed twice: {completion:?}");
                }
            }
            Event::Room(channel) => {
                if let Some(talk) = self.talks.get_mut(&channel) {
                    assert!(std::mem::take(&mut talk.asked), "told of room without being asked");
                }
            }
            other => panic!("{other:?}: this storm does not know of it"),
        }
    }
}
