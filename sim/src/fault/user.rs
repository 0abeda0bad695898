//! The user of a simulated endpoint: calls, sends, takes, reads, keeps, closes; and tells the watch of all of it.

mod doubted;
mod reads;

use std::collections::VecDeque;

use cutthrough_engine::net::channel::Ending;
use cutthrough_engine::net::inbox::{Ready, ReadyPayload};
use cutthrough_engine::net::{CallError, Cargo as Load, Net, NetEvent};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_wire::frame::Refusal;

use self::doubted::Doubted;
use self::reads::Read;
use super::calls::{Habits, Message, Party};
use super::memory::{Cargo, Host, Pages};
use super::options::Options;
use super::random::Random;
use super::watch::{Life, Watch};
use super::{Summary, address, node_of};

/// Events that a user takes at a time.
const EVENTS: usize = 64;

/// What a user does depends on.
pub(super) struct Around<'a> {
    pub(super) watch: &'a mut Watch,
    pub(super) random: &'a mut Random,
    pub(super) options: &'a Options,
    pub(super) summary: &'a mut Summary,
    /// The time, and what the endpoint's clock says.
    pub(super) time: u64,
    pub(super) now: Instant,
    /// Nothing goes wrong any more: for so long.
    pub(super) calm: Option<u64>,
    /// The present life of each endpoint; 0 of one that is down.
    pub(super) lives: &'a [u64],
    /// The ways that this endpoint has now, a bit for each.
    pub(super) ways: u8,
    /// The endpoint has slept since it looked at its clock, or that was set.
    pub(super) held: bool,
}

/// A channel, as its user sees it.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) index: usize,
    pub(super) peer: Life,
    /// The line that goes out.
    pub(super) line: usize,
    left: u64,
    tokens: Vec<Token>,
    /// The ways that it may go, a bit for each.
    pub(super) ways: u8,
    /// Whether active messages go over it, and nothing else.
    calls: bool,
    /// Whether the peer is one that lies.
    lies: bool,
}

#[derive(Debug)]
struct Call {
    index: usize,
    to: usize,
    until: Instant,
    messages: u64,
    /// When it has to be answered, if nothing goes wrong any more.
    due: Option<Instant>,
    /// Whether it is of one that lies, and may do what it likes.
    lies: bool,
}

/// The user of one life.
#[derive(Debug)]
pub(super) struct User {
    me: Life,
    pub(super) talks: Vec<Talk>,
    party: Party,
    calls: Vec<Call>,
    reads: VecDeque<Read>,
    /// Payloads of those that lie.
    doubted: VecDeque<Doubted>,
    /// Whom to call when, and how much to say.
    plans: Vec<(Instant, usize, u64)>,
    kept: Vec<Pages>,
    /// Channels whose payloads could not be read.
    gone: Vec<usize>,
    /// Calls that were given up.
    dropped: Vec<usize>,
    /// Who was taken for dead while something went wrong, and the line that went out from there.
    pub(super) silent: Vec<(Life, usize)>,
    /// How many channels have ended because a peer broke a rule.
    pub(super) breached: u64,
    /// How much it has done.
    pub(super) did: u64,
}

impl User {
    pub(super) fn new(me: Life, habits: &Habits) -> Self {
        Self {
            me,
            talks: Vec::new(),
            party: Party::new(me, habits),
            calls: Vec::new(),
            reads: VecDeque::new(),
            doubted: VecDeque::new(),
            breached: 0,
            plans: Vec::new(),
            kept: Vec::new(),
            gone: Vec::new(),
            dropped: Vec::new(),
            silent: Vec::new(),
            did: 0,
        }
    }

    /// Calls another endpoint then, and sends it so many messages.
    pub(super) fn plan(&mut self, at: Instant, to: usize, messages: u64) {
        self.plans.push((at, to, messages));
    }

    /// There is more to say on every channel. False if there is none, and nobody is called.
    pub(super) fn talk_on(&mut self, random: &mut Random) -> bool {
        self.talks.iter_mut().for_each(|talk| talk.left += random.between(1, 16));
        !self.talks.is_empty() || !self.calls.is_empty() || !self.plans.is_empty()
    }

    /// Nothing goes wrong from now on: what was planned is done with so many messages for everybody, and who was called
    /// has to answer by `due`.
    pub(super) fn calm(&mut self, messages: u64, due: Instant) {
        self.plans.clear();
        self.calls.iter_mut().filter(|call| !call.lies).for_each(|call| call.due = Some(due));
        self.talks.iter_mut().for_each(|talk| talk.left = messages);
    }

    /// Whether there is something to do without anything coming.
    pub(super) fn is_busy(&self) -> bool {
        !self.plans.is_empty()
            || !self.calls.is_empty()
            || !self.reads.is_empty()
            || !self.doubted.is_empty()
            || !self.kept.is_empty()
            || self.party.is_busy()
            || self.talks.iter().any(|talk| talk.left > 0)
    }

    /// How many payloads of a channel it reads; nothing of one that it has closed, or whose peer says what it likes.
    pub(super) fn reads(&self, index: usize) -> Option<u64> {
        let reads = || self.reads.iter().filter(|read| read.index == index).count() as u64;
        self.talks.iter().any(|talk| talk.index == index && !talk.lies).then(reads)
    }

    /// When it has to look at its clock, whatever comes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.party.due()
    }

    /// The reader whose memory is lent, if there is one.
    pub(super) fn lends(&mut self) -> Option<super::receive::Lent<'_>> {
        match self.reads.front_mut().filter(|read| read.lent) {
            Some(read) => {
                Some(super::receive::Lent { channel: read.index, message: read.message, into: &mut read.into })
            }
            None => self.doubted.front_mut().and_then(Doubted::lends),
        }
    }

    /// Closes a channel in good order, or a call.
    pub(super) fn close(&mut self, net: &mut Net<Host>, around: &mut Around<'_>) -> Result<(), String> {
        if self.talks.is_empty() {
            return Ok(());
        }
        let talk = self.talks.swap_remove(around.random.index(self.talks.len()));
        net.close(talk.index);
        self.party.closed(net, row(talk.index), around)?;
        self.gone(net, talk.index);
        Ok(())
    }

    /// Closes every channel in good order.
    pub(super) fn close_all(&mut self, net: &mut Net<Host>, around: &mut Around<'_>) -> Result<(), String> {
        while !self.talks.is_empty() {
            self.close(net, around)?;
        }
        Ok(())
    }

    /// Whether all memory is where it has to be after a channel has ended: with those that are left, or back.
    pub(super) fn has_all_back(&self, net: &Net<Host>) -> Result<(), String> {
        if let Some(what) = net.leak() {
            return Err(format!("{:?}: a channel has ended and still has {what}", self.me));
        }
        if let Some(channel) = net.memory.grants().find(|index| self.talks.iter().all(|talk| talk.index != *index)) {
            return Err(format!("{:?}: channel {channel} has ended and still has places that were granted", self.me));
        }
        let (used, waiting) = net.memory.in_use();
        let (landing, kept) = (net.places(), self.kept.len());
        if used != waiting + landing + kept {
            let others = format!("{waiting} wait, {landing} are payloads' and {kept} the user's");
            return Err(format!("{:?}: of {used} places in use {others}", self.me));
        }
        Ok(())
    }

    /// Whether all memory is back after the last channel has ended.
    pub(super) fn has_ended(&self, net: &Net<Host>) -> Result<(), String> {
        self.has_all_back(net)?;
        let left = (net.asked(), net.unasked(), net.places(), net.memory.cargoes.get());
        if left != (0, 0, 0, 0) {
            let (asked, unasked, landing, sent) = left;
            return Err(format!(
                "{:?} has no channel, {asked} bytes that were asked for, {unasked} that may come, {landing} places of \
                 payloads that come and {sent} payloads that are sent",
                self.me
            ));
        }
        Ok(())
    }

    /// A channel is not ours any more.
    fn gone(&mut self, net: &mut Net<Host>, index: usize) {
        self.reads.retain(|read| read.index != index);
        self.doubted.retain(|read| read.index != index);
        self.gone.retain(|gone| *gone != index);
        net.memory.clear(index);
    }

    /// Does what there is to do.
    pub(super) fn act(
        &mut self,
        net: &mut Net<Host>,
        now: Instant,
        slow: bool,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        if !slow {
            for _ in 0..EVENTS {
                let Some(event) = net.next_event() else {
                    self.party.idle = now;
                    break;
                };
                self.did += 1;
                self.event(net, now, event, around)?;
            }
            self.read(net, now, around)?;
            self.read_doubted(net, now, around)?;
            if around.random.chance(700) && !self.kept.is_empty() {
                let pages = self.kept.swap_remove(around.random.index(self.kept.len()));
                net.memory.kept -= pages.bytes.len();
                net.memory_came_back(now);
            }
        }
        self.call(net, now, around)?;
        if around.random.chance(300) {
            let bytes = around.random.between(1, around.options.longest + 100);
            if net.memory.post(usize::try_from(bytes).unwrap_or(1)) && !self.talks.is_empty() {
                net.expect(self.talks[around.random.index(self.talks.len())].index);
            }
        }
        self.party.act(net, now, around.held, around)?;
        self.send(net, now, around)
    }

    fn call(&mut self, net: &mut Net<Host>, now: Instant, around: &mut Around<'_>) -> Result<(), String> {
        let due = |plan: &(Instant, usize, u64)| plan.0 <= now;
        while let Some(at) = self.plans.iter().position(due) {
            let (_, to, messages) = self.plans.swap_remove(at);
            match net.call(now, address(to), around.options.body) {
                Some(index) => {
                    let until = now.after(around.random.between(1_000_000, around.options.silence_ns));
                    let due = around.calm.map(|_| now.after(around.options.notice_ns()));
                    self.calls.push(Call { index, to, until, messages, due, lies: around.options.lies(to) });
                }
                None if around.calm.is_some() => return Err(format!("{:?} has no room to call {to}", self.me)),
                None => {}
            }
        }
        if let Some(call) = self.calls.iter().find(|call| call.due.is_some_and(|due| due < now)) {
            return Err(format!("a call of {:?} to {} is not answered in time", self.me, call.to));
        }
        let is_calm = around.calm.is_some();
        while let Some(at) = self.calls.iter().position(|call| call.until <= now && (!is_calm || call.lies)) {
            let call = self.calls.swap_remove(at);
            net.close(call.index);
            self.dropped.push(call.index);
            if !is_calm {
                self.again(now, call.to, call.messages, around);
            }
        }
        Ok(())
    }

    fn send(&mut self, net: &mut Net<Host>, now: Instant, around: &mut Around<'_>) -> Result<(), String> {
        for talk in &mut self.talks {
            let burst = if around.calm.is_some() { 1 } else { around.random.below(12) };
            for _ in 0..burst.min(talk.left).min(net.room(talk.index).unwrap_or(0)) {
                if !talk.calls {
                    send(net, talk, self.me, around)?;
                } else if !self.party.ask(net, row(talk.index), now, around)? {
                    break;
                }
                talk.left -= 1;
                self.did += 1;
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        net: &mut Net<Host>,
        now: Instant,
        event: NetEvent<Pages>,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        match event {
            NetEvent::Opened(index) => self.opened(net, index, around),
            NetEvent::Connected(index) => {
                let Some(at) = self.calls.iter().position(|call| call.index == index) else {
                    // Closed in the same moment.
                    let known = self.dropped.iter().position(|dropped| *dropped == index);
                    let known = known.map(|at| self.dropped.swap_remove(at));
                    return known.map(drop).ok_or_else(|| format!("channel {index} is open, and nobody has called"));
                };
                let to = self.calls.swap_remove(at).to;
                self.opened(net, index, around)?;
                match self.talks.iter().find(|talk| talk.index == index && talk.peer.0 != to) {
                    Some(talk) => Err(format!("{:?} answered instead of {to}", talk.peer)),
                    None => Ok(()),
                }
            }
            NetEvent::Failed(index, error) => {
                let call = self.calls.iter().position(|call| call.index == index);
                let call = call.map(|at| self.calls.swap_remove(at));
                // Of one that was given up in the same moment nobody knows any more whose it was.
                let lies = call.as_ref().map_or(around.options.liars.count > 0, |call| call.lies);
                if let Some(call) = call.filter(|_| !lies || around.calm.is_none()) {
                    let messages = if around.calm.is_some() { 2 } else { call.messages };
                    self.again(now, call.to, messages, around);
                }
                match error {
                    _ if lies => Ok(()),
                    CallError::Refused(Refusal::Channels | Refusal::Nobody) => Ok(()),
                    // Who can see a hello can refuse it, and who sees a welcome can spoil its proof.
                    CallError::Refused(_) | CallError::Version(_) | CallError::Unknown(_) | CallError::Key
                        if around.summary.injected.forged > 0 =>
                    {
                        around.summary.injected.misled += 1;
                        Ok(())
                    }
                    other => Err(format!("a call failed: {other:?}")),
                }
            }
            NetEvent::Message(index, ready) => {
                around.watch.received(self.me);
                self.message(net, index, ready, around)
            }
            NetEvent::Completed(index, cookie) => match self.talks.iter().find(|talk| talk.index == index) {
                Some(talk) => around.watch.completed(talk.line, cookie),
                None => Ok(()),
            },
            NetEvent::Closed(index, ending) => self.closed(net, now, index, ending, around),
        }
    }

    fn opened(&mut self, net: &mut Net<Host>, index: usize, around: &mut Around<'_>) -> Result<(), String> {
        if self.talks.iter().any(|talk| talk.index == index) {
            return Err(format!("channel {index} is opened twice"));
        }
        // It may have ended since: then the next events say so.
        let Some((at, _, _, life)) = net.peer(index) else { return Ok(()) };
        let peer = (node_of(at), life);
        let Some(ends) = net.ends(index) else { return Ok(()) };
        let line = around.watch.open((self.me, peer), ends);
        around.summary.channels += 1;
        let habits = &around.options.calls;
        let lies = around.options.lies(peer.0);
        let calls = !lies && habits.between(self.me.0, peer.0);
        let most = around.options.messages + if calls { habits.more } else { 0 };
        let left = if around.calm.is_some() { 1 } else { around.random.below(most) };
        net.set_ways(index, around.ways);
        if calls {
            self.party.opened(row(index), line, peer);
        }
        let ways = around.ways;
        self.talks.push(Talk { index, peer, line, left, tokens: Vec::new(), ways, calls, lies });
        Ok(())
    }

    fn closed(
        &mut self,
        net: &mut Net<Host>,
        now: Instant,
        index: usize,
        ending: Ending,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        self.breached += u64::from(matches!(ending, Ending::Breach(_)));
        let Some(at) = self.talks.iter().position(|talk| talk.index == index) else { return Ok(()) };
        let talk = self.talks.swap_remove(at);
        drop(net.take_begun(index));
        let gone = self.gone.iter().filter(|gone| **gone == index).count();
        let unread = gone + self.reads.iter().filter(|read| read.index == index).count();
        self.party.closed(net, row(index), around)?;
        self.gone(net, index);
        // Also where nothing has come: whatever was sent is lost then.
        if let Some(line) = around.watch.back(talk.line) {
            around.watch.ended(line, ending == Ending::Peer)?;
        }
        around.summary.endings += 1;
        match ending {
            Ending::Breach(breach) if talk.lies => around.summary.lies.breaches[breach as usize] += 1,
            Ending::Peer | Ending::Silent if talk.lies => {}
            Ending::Peer if unread > 0 => {
                return Err(format!("{unread} payloads were taken away before they were read"));
            }
            Ending::Breach(breach) => return Err(format!("{:?} broke a rule: {breach:?}", talk.peer)),
            Ending::Here => return Err("an end that this side has asked for is told".into()),
            Ending::Stalled => return Err("an end by an operation that nobody has begun is told".into()),
            Ending::Silent if around.calm.is_some_and(|calm| calm > around.options.notice_ns()) => {
                if around.lives[talk.peer.0] == talk.peer.1 {
                    return Err(format!("{:?} is taken for dead by {:?}", talk.peer, self.me));
                }
            }
            Ending::Silent => self.silent.extend(around.watch.back(talk.line).map(|line| (talk.peer, line))),
            Ending::Peer => {}
        }
        if around.calm.is_none() {
            self.again(now, talk.peer.0, talk.left, around);
        }
        Ok(())
    }

    /// Calls again later, with half of what there was to say.
    fn again(&mut self, now: Instant, to: usize, messages: u64, around: &mut Around<'_>) {
        if messages > 1 {
            let at = now.after(around.random.below(around.options.silence_ns));
            self.plan(at, to, messages / 2);
        }
    }

    fn message(
        &mut self,
        net: &mut Net<Host>,
        index: usize,
        ready: Ready<Pages>,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        // Of a channel that this side has closed.
        let Some(talk) = self.talks.iter_mut().find(|talk| talk.index == index) else { return Ok(()) };
        if talk.lies {
            return self.doubt(net, index, ready, around);
        }
        let (line, number, token) = around.watch.delivered(self.me, talk.line, &ready)?;
        if !talk.calls {
            talk.tokens.extend(token);
            return self.payload(net, index, (line, number), ready.payload, around);
        }
        let control = ready.control[Watch::BEFORE..usize::from(ready.control_len)].to_vec();
        let sent = &around.watch.line(line).sent[number];
        let (payload, to) = (sent.payload.map(|(seed, _)| seed), sent.token);
        let dropped = matches!(ready.payload, ReadyPayload::Refused(..));
        self.payload(net, index, (line, number), ready.payload, around)?;
        self.party.message(net, &Message { row: row(index), control, payload, to, dropped }, around)
    }

    /// A channel to who has died, as a sentence.
    pub(super) fn talks_to_dead(&self, lives: &[u64]) -> Option<String> {
        let talk = self.talks.iter().find(|talk| !talk.lies && lives[talk.peer.0] != talk.peer.1)?;
        Some(format!("{:?} has not noticed that {:?} is dead", self.me, talk.peer))
    }

    /// Whether all is said and done; what is not, as a sentence.
    pub(super) fn is_settled(&self, watch: &mut Watch) -> Result<(), String> {
        if let Some(call) = self.calls.iter().find(|call| !call.lies) {
            return Err(format!("a call of {:?} to {} is not answered", self.me, call.to));
        }
        if let Some(read) = self.reads.front() {
            return Err(format!("line {}: {} of {} bytes are read", read.line, read.valid, read.into.len()));
        }
        if let Some(index) = self.gone.first() {
            return Err(format!("{:?}: channel {index} is open, and a payload of it could not be read", self.me));
        }
        if let Some(talk) = self.talks.iter().find(|talk| talk.left > 0 && !talk.lies) {
            return Err(format!("there is no room for a message: {}", watch.story(talk.line)));
        }
        if !self.plans.is_empty() || !self.kept.is_empty() {
            return Err(format!("{:?} has something to do", self.me));
        }
        self.party.is_settled()?;
        match self.talks.iter().find(|talk| !talk.lies && !watch.is_settled(talk.line)) {
            Some(talk) => Err(watch.story(talk.line)),
            None => Ok(()),
        }
    }
}

/// The row of a channel, as active messages have it.
fn row(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Sends one message; there is room for it.
fn send(net: &mut Net<Host>, talk: &mut Talk, me: Life, around: &mut Around<'_>) -> Result<(), String> {
    let (random, watch) = (&mut *around.random, &mut *around.watch);
    let longest = around.options.longest;
    let most = match random.below(8) {
        0..=3 => 0,
        4 | 5 => longest.min(1500),
        6 => longest / 4,
        _ => longest,
    };
    let len = usize::try_from(random.below(most + 1)).unwrap_or(0);
    let payload = (len > 0).then_some(len);
    let token = payload.and_then(|_| talk.tokens.last().copied()).filter(|_| random.chance(700));
    if token.is_some() && random.chance(900) {
        talk.tokens.pop();
    }
    let tells = random.chance(100).then(|| {
        let bytes = usize::try_from(random.between(1, longest)).unwrap_or(1);
        net.memory.grant(talk.index, bytes).map(|(token, place)| (token, place, bytes))
    });
    if let Some((token, place, bytes)) = tells.flatten() {
        watch.granted(me, token, place, bytes);
    }
    let tells = tells.flatten().map(|(token, ..)| token);
    let number = watch.line(talk.line).sent.len() as u64;
    let pages = random.chance(600);
    let control = watch.compose(talk.line, tells, (payload, pages), token, random);
    let cargo = watch.line(talk.line).sent.last().and_then(|sent| sent.payload).map(|(seed, len)| Load {
        load: Cargo {
            bytes: super::memory::pattern(seed, len),
            page: around.options.page,
            _counts: net.memory.cargoes.clone(),
        },
        token,
        pages,
        cookie: Some((talk.line as u64) << 32 | number),
    });
    match net.send(talk.index, &control, cargo) {
        Ok(_) => {
            watch.posted(talk.line);
            Ok(())
        }
        Err((why, _)) => Err(format!("there was room for a message, and it was not taken: {why:?}")),
    }
}
