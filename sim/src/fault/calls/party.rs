//! Who makes calls and is told how they end: the core of active messages over one life of an endpoint.

use std::collections::BTreeMap;

use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::calls::{NEVER, UNDATED};
use cutthrough_engine::am::message::{Arguments, CallId, Kind, Message as Request};
use cutthrough_engine::am::{Ask, Core, Failure, Got, Keep, LARGE, Plain, ReplyTo, Transport, Unasked, Unsent, WINDOW};
use cutthrough_engine::net::{Cargo as Load, Net};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;

use super::super::memory::{Cargo, Host, pattern};
use super::super::random::Random;
use super::super::user::Around;
use super::super::watch::{Life, Watch};
use super::ledger::{self, Asked, End};
use super::{ECHO, GRANT, Habits, PAGE, PASS};

/// Bytes of a payload that no endpoint can send.
pub(super) const UNSENDABLE: usize = 1 << 40;
/// A stamp that is so much less than one before has begun anew.
const FAR: u16 = 1 << 15;
/// A clock's tick in nanoseconds: an endpoint that is not held looks at its calls no later than that.
const TICK_NS: u64 = 1000;

/// A payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freight {
    pub(super) seed: u64,
    pub(super) len: usize,
    /// Whether it wants pages, or a reader.
    pub(super) pages: bool,
}

impl Keep<Freight> for Option<Freight> {
    fn keep(self) -> Self {
        self
    }
}

/// A channel that a request has come on: its row, and which of those that had the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) row: u32,
    pub(super) line: usize,
}

/// What becomes of an answer.
#[derive(Debug)]
pub(super) enum Context {
    Own(u64),
    /// It is passed on to who asked first.
    Passed(ReplyTo, Came),
}

#[derive(Debug)]
pub(super) struct Door {
    pub(super) line: usize,
    pub(super) peer: Life,
    /// Requests that went out and were not answered, and that came and were not answered, as they are counted here.
    asked: u32,
    pub(super) serving: u32,
    /// The last stamp that a request has brought.
    stamp: Option<u16>,
}

/// A call that somebody waits for.
#[derive(Debug)]
struct Mine {
    call: CallId,
    row: u32,
    token: Option<Token>,
    /// In nanoseconds of the endpoint's clock, once it is known.
    deadline: Option<u64>,
}

/// A request whose answer was put off.
#[derive(Debug)]
pub(super) struct PutOff {
    pub(super) number: u64,
    pub(super) to: ReplyTo,
    pub(super) came: Came,
    pub(super) token: Option<Token>,
    /// The requester has cancelled it.
    pub(super) over: bool,
}

/// An active message that has come, behind what the watch puts before it.
#[derive(Debug, Clone)]
pub(in super::super) struct Message {
    pub(in super::super) row: u32,
    pub(in super::super) control: Vec<u8>,
    /// The seed of its payload, and where that was sent.
    pub(in super::super) payload: Option<u64>,
    pub(in super::super) to: Option<Token>,
    /// The payload was dropped.
    pub(in super::super) dropped: bool,
}

/// The active messages of one life of an endpoint.
#[derive(Debug)]
pub(in super::super) struct Party {
    pub(super) me: Life,
    pub(super) core: Core<Context, Freight>,
    pub(super) doors: BTreeMap<u32, Door>,
    mine: BTreeMap<u64, Mine>,
    pub(super) put_off: Vec<PutOff>,
    early: Vec<(CallId, Message)>,
    /// Places that peers have granted, and how long they are.
    pub(super) offers: Vec<(u32, Token, usize)>,
    window: u32,
    /// When nothing had come.
    pub(in super::super) idle: Instant,
}

/// The way out of an endpoint.
pub(super) struct Out<'a> {
    pub(super) net: &'a mut Net<Host>,
    pub(super) watch: &'a mut Watch,
    pub(super) doors: &'a mut BTreeMap<u32, Door>,
    pub(super) page: usize,
}

impl Transport<Option<Freight>> for Out<'_> {
    fn send(
        &mut self,
        row: u32,
        control: &[u8],
        token: Option<Token>,
        load: Option<Freight>,
    ) -> Result<(), (Unsent, Option<Freight>)> {
        let Some(door) = self.doors.get_mut(&row) else { return Err((Unsent::Closed, load)) };
        match self.net.room(row as usize) {
            None => return Err((Unsent::Closed, load)),
            Some(0) => return Err((Unsent::Full, load)),
            Some(_) => {}
        }
        if load.is_some_and(|load| load.len >= UNSENDABLE) {
            return Err((Unsent::Refused, load));
        }
        let token = token.filter(|_| load.is_some());
        let payload = load.map(|load| (load.seed, load.len));
        let waits = load.is_some_and(|load| load.pages && token.is_none());
        let (control, cookie) = self.watch.say(door.line, control, payload, token, waits);
        let cargo = load.map(|Freight { seed, len, pages }| Load {
            load: Cargo { bytes: pattern(seed, len), page: self.page, _counts: self.net.memory.cargoes.clone() },
            token,
            pages,
            cookie: Some(cookie),
        });
        if self.net.send(row as usize, &control, cargo).is_err() {
            self.watch.unsay(door.line);
            return Err((Unsent::Full, load));
        }
        self.watch.posted(door.line);
        door.asked += u32::from(control.get(Watch::BEFORE) == Some(&(Kind::Request as u8)));
        Ok(())
    }
}

impl Party {
    pub(in super::super) fn new(me: Life, habits: &Habits) -> Self {
        let window = habits.window;
        Self {
            me,
            core: Core::naming_from(window, habits.first),
            doors: BTreeMap::new(),
            mine: BTreeMap::new(),
            put_off: Vec::new(),
            early: Vec::new(),
            offers: Vec::new(),
            window,
            idle: Instant::default(),
        }
    }

    /// When something has to be looked at, whatever comes.
    pub(in super::super) fn due(&self) -> Option<Instant> {
        Some(self.core.calls().due()).filter(|due| *due != NEVER)
    }

    /// Whether there may be something to do without anything coming.
    pub(in super::super) fn is_busy(&self) -> bool {
        !self.mine.is_empty() || !self.put_off.is_empty() || self.core.has_backlog()
    }

    pub(in super::super) fn opened(&mut self, row: u32, line: usize, peer: Life) {
        self.doors.insert(row, Door { line, peer, asked: 0, serving: 0, stamp: None });
        self.core.opened(row, peer.1);
    }

    /// A channel has ended, here or there: so have its calls.
    pub(in super::super) fn closed(
        &mut self,
        net: &mut Net<Host>,
        row: u32,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        if self.doors.remove(&row).is_none() {
            return Ok(());
        }
        self.offers.retain(|offer| offer.0 != row);
        self.core.closed(row);
        while let Some(ended) = self.core.lost(row) {
            match ended.context {
                Context::Own(number) => self.end(net, number, End::Lost, around)?,
                Context::Passed(to, came) => self.handed(&to, came, Some(Failure::Gone)),
            }
        }
        let calls = self.core.calls();
        self.early.retain(|(call, early)| early.row != row && calls.may_be_announced(*call));
        Ok(())
    }

    /// Does what there is to do beside what comes.
    pub(in super::super) fn act(
        &mut self,
        net: &mut Net<Host>,
        now: Instant,
        held: bool,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        if !around.options.calls.of[self.me.0] {
            return Ok(());
        }
        while let Some((_, _, context)) = self.core.expire(now) {
            let number = match context {
                Context::Own(number) => number,
                Context::Passed(to, came) => {
                    self.handed(&to, came, Some(Failure::Late));
                    continue;
                }
            };
            let late = self.mine.get(&number).and_then(|mine| mine.deadline).map(|at| now.as_nanos().checked_sub(at));
            match late {
                Some(Some(late)) if held || late <= TICK_NS => {}
                other => return Err(format!("call {number} is late after its deadline by {other:?} ns")),
            }
            self.end(net, number, End::Late, around)?;
        }
        if self.core.calls().has_undated() && (around.calm.is_some() || around.random.chance(300)) {
            let deadline = now.after(around.random.between(1, around.options.calls.patience));
            self.core.date(deadline);
            self.mine.values_mut().for_each(|mine| mine.deadline = mine.deadline.or(Some(deadline.as_nanos())));
        }
        if around.random.chance(around.options.calls.cancels) && !self.mine.is_empty() {
            let at = around.random.index(self.mine.len());
            let Some((number, call)) = self.mine.iter().nth(at).map(|(number, mine)| (*number, mine.call)) else {
                return Ok(());
            };
            match self.core.cancel(call) {
                Some(Context::Own(its)) if its == number => self.end(net, number, End::Cancelled, around)?,
                other => return Err(format!("call {number} was cancelled, and that was {other:?}")),
            }
        }
        self.answer_put_off(net, around)?;
        self.flush(net, around);
        self.check(now, around)
    }

    /// A request has come: how much of its time is left.
    fn ages(&mut self, request: &Request<'_>, row: u32, handed: bool, around: &mut Around<'_>) -> Result<(), String> {
        let Some(budget) = request.budget else { return Ok(()) };
        if let Some(door) = self.doors.get_mut(&row).filter(|_| !handed) {
            let before = door.stamp.replace(budget.stamp());
            around.summary.wraps.stamps +=
                u64::from(before.is_some_and(|before| before - before.min(budget.stamp()) > FAR));
        }
        if self.core.has_not_waited(row, budget, around.now) {
            return Ok(());
        }
        let left = self.core.left(row, budget, around.now, self.idle);
        around.summary.calls.aged += u64::from(left < budget.nanos());
        if handed {
            return Ok(());
        }
        let lain = around.now.saturating_since(self.idle);
        around.watch.calls.is_left(request.args, left, around.time, lain)
    }

    pub(super) fn flush(&mut self, net: &mut Net<Host>, around: &mut Around<'_>) {
        if self.core.has_backlog() {
            let mut out = Out { net, watch: around.watch, doors: &mut self.doors, page: around.options.page };
            self.core.flush(&mut out);
        }
    }

    /// What is true between any two steps.
    fn check(&self, now: Instant, around: &mut Around<'_>) -> Result<(), String> {
        let first = self.mine.iter().filter_map(|(number, mine)| Some((mine.deadline?, number))).min();
        if let Some((deadline, number)) = first
            && (deadline <= now.as_nanos() || self.core.calls().due().as_nanos() > deadline)
        {
            return Err(format!("call {number} waits at {now:?} until {deadline}, {:?}", self.core.calls().due()));
        }
        if self.core.calls().waiting() < self.mine.len() {
            return Err(format!("{} calls wait, not {}", self.core.calls().waiting(), self.mine.len()));
        }
        let mut large = 0;
        for (row, door) in &self.doors {
            let lent = self.core.has_loan(*row);
            around.summary.calls.lent += u64::from(lent);
            let most = if lent { LARGE } else { self.window };
            if door.asked > most || door.asked != self.core.under_way(*row).0 {
                return Err(format!("{door:?} has {:?} under way", self.core.under_way(*row)));
            }
            large += usize::from(door.serving > self.window);
        }
        let most = usize::from(self.window == WINDOW);
        if large > most || self.doors.values().any(|door| door.serving > LARGE) {
            return Err(format!("{large} peers have more than their window under way"));
        }
        Ok(())
    }

    /// Makes a request. False if there was no room for it.
    pub(in super::super) fn ask(
        &mut self,
        net: &mut Net<Host>,
        row: u32,
        now: Instant,
        around: &mut Around<'_>,
    ) -> Result<bool, String> {
        let Some(door) = self.doors.get(&row) else { return Ok(false) };
        let (random, longest) = (&mut *around.random, around.options.longest);
        let handler = pick_handler(random, &around.options.calls.weights);
        let number = around.watch.calls.next();
        let offer = (0..self.offers.len()).find(|at| self.offers[*at].0 == row).filter(|_| random.chance(600));
        let to = offer.map(|at| if random.chance(900) { self.offers.swap_remove(at) } else { self.offers[at] });
        let load = (to.is_some() || random.chance(300)).then(|| {
            let most = to.map_or(longest, |(_, _, bytes)| bytes as u64 + 20);
            freight(random, most)
        });
        let place = (handler == PAGE && random.chance(700)).then(|| random.between(1, longest));
        // The answer to a request that was handed over can be lost with a channel that nobody else knows of.
        let unhurried = around.calm.is_some() && handler != PASS;
        let deadline = match random.below(5) {
            _ if unhurried => now.after(1 << 47),
            0 => UNDATED,
            _ => now.after(random.between(1, around.options.calls.patience)),
        };
        let dated = (deadline != UNDATED).then(|| deadline.as_nanos());
        let budget = dated.map(|at| Budget::at(now, at - now.as_nanos())).filter(|_| random.chance(700));
        let most = if handler == PASS { 50 } else { 56 };
        let args = ledger::args(number, random.index(most + 1));
        let peer = door.peer;
        let token = place.and_then(|bytes| self.grant(net, row, bytes, around));
        let ask = Ask { handler, args: Arguments::Bytes(&args), token, to: to.map(|to| to.1), budget };
        let mut out = Out { net, watch: around.watch, doors: &mut self.doors, page: around.options.page };
        let made = self.core.request(&mut out, row, &ask, load, deadline, Context::Own(number));
        match made {
            Ok(call) => {
                let asked = Asked { from: self.me, to: peer, handler, token, budget, at: around.time };
                around.watch.calls.asked(asked, args);
                around.summary.calls.asked += 1;
                around.summary.wraps.calls += u64::from(call.nonce() < around.options.calls.first);
                self.mine.insert(number, Mine { call, row, token, deadline: dated });
                Ok(true)
            }
            Err((why, _)) => {
                self.kill(net, row, token, around)?;
                let (under_way, most) = self.core.under_way(row);
                let room = net.room(row as usize);
                let had_room = under_way < most && !self.core.has_backlog() && room.is_some_and(|room| room > 0);
                around.summary.calls.full += 1;
                if why == Unasked::Full && !had_room || why == Unasked::Closed && room.is_none() {
                    return Ok(false);
                }
                Err(format!("call {number} was not made: {why:?}"))
            }
        }
    }

    /// Grants a place.
    pub(super) fn grant(&self, net: &mut Net<Host>, row: u32, bytes: u64, around: &mut Around<'_>) -> Option<Token> {
        let bytes = usize::try_from(bytes).unwrap_or(1);
        let (token, place) = net.memory.grant(row as usize, bytes)?;
        around.watch.granted(self.me, token, place, bytes);
        Some(token)
    }

    /// Kills a token: its place is given back, unless a payload has landed there or is about to.
    fn kill(
        &self,
        net: &mut Net<Host>,
        row: u32,
        token: Option<Token>,
        around: &mut Around<'_>,
    ) -> Result<bool, String> {
        let Some(token) = token else { return Ok(false) };
        let Some(place) = net.memory.revoke(row as usize, token) else { return Ok(false) };
        around.watch.given_back(self.me, token, &place)?;
        Ok(true)
    }

    /// A call of ours has ended.
    fn end(&mut self, net: &mut Net<Host>, number: u64, end: End, around: &mut Around<'_>) -> Result<(), String> {
        let Some(mine) = self.mine.remove(&number) else {
            return Err(format!("call {number} ends by {end:?}, and nobody waits for it"));
        };
        let given_back = self.kill(net, mine.row, mine.token, around)?;
        let calls = &mut around.summary.calls;
        match &end {
            End::Replied(..) => calls.replied += 1,
            End::Failed(why, _) => calls.failed[*why as usize - 1] += 1,
            End::Dropped => calls.failed[Failure::Token as usize - 1] += 1,
            End::Late => calls.late += 1,
            End::Cancelled => calls.cancelled += 1,
            End::Lost => calls.lost += 1,
        }
        calls.given_back += u64::from(given_back && matches!(end, End::Late | End::Cancelled));
        around.watch.calls.ended(number, self.me, end)
    }

    /// Whoever a request was handed to has answered, or is gone.
    fn handed(&mut self, to: &ReplyTo, came: Came, failure: Option<Failure>) {
        self.answered(came);
        self.core.handed(to, failure);
    }

    /// A request that has come there is not under way any more.
    pub(super) fn answered(&mut self, came: Came) {
        if let Some(door) = self.doors.get_mut(&came.row).filter(|door| door.line == came.line) {
            door.serving -= 1;
        }
    }

    /// A message has come.
    pub(in super::super) fn message(
        &mut self,
        net: &mut Net<Host>,
        message: &Message,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        let (row, control) = (message.row, &message.control[..]);
        let answers = [Kind::Reply, Kind::Failed, Kind::Handed].map(|kind| kind as u8);
        let door = self.doors.get_mut(&row).ok_or("a message of no channel")?;
        if control.first().is_some_and(|kind| answers.contains(kind)) {
            door.asked = door.asked.checked_sub(1).ok_or("an answer to no request")?;
        }
        let got = match self.core.accept_plain(row, control) {
            Plain::Request(.., to) => {
                let decoded = Request::decode(control);
                Got::Request(decoded.map_err(|why| why.to_string())?, to)
            }
            Plain::Reply(call, context, len) => {
                Got::Reply(call, context, control.get(16..16 + usize::from(len)).unwrap_or_default())
            }
            Plain::Other => self.core.accept(row, control).map_err(|why| format!("{why}: {message:?}"))?,
        };
        match got {
            Got::Request(request, to) => {
                self.ages(&request, row, to.is_handed_over(), around)?;
                self.serve(net, &request, to, message, around)
            }
            Got::Reply(_, Context::Own(number), args) => {
                let end = match message.dropped {
                    true => End::Dropped,
                    false => End::Replied(args.to_vec(), message.payload, message.to),
                };
                self.learn(row, args, &end);
                self.end(net, number, end, around)
            }
            Got::Failed(_, Context::Own(number), why, args) => {
                self.end(net, number, End::Failed(why, args.to_vec()), around)
            }
            Got::Reply(_, Context::Passed(to, came), _) => {
                self.handed(&to, came, None);
                Ok(())
            }
            Got::Failed(_, Context::Passed(to, came), why, _) => {
                self.handed(&to, came, Some(why));
                Ok(())
            }
            Got::Early(call) => {
                around.summary.calls.early += 1;
                // One of each call and channel, while the call may be announced, as in the library.
                let calls = self.core.calls();
                self.early.retain(|(its, _)| calls.may_be_announced(*its));
                if !self.early.iter().any(|(its, early)| *its == call && early.row == row) {
                    self.early.push((call, message.clone()));
                }
                Ok(())
            }
            Got::Announced(call) => {
                let early = std::mem::take(&mut self.early);
                let (now, later): (Vec<_>, Vec<_>) = early.into_iter().partition(|(its, _)| *its == call);
                self.early = later;
                now.iter().try_for_each(|(_, early)| self.message(net, early, around))
            }
            Got::Cancelled(call) => {
                let its = |put_off: &&mut PutOff| (put_off.to.row(), put_off.to.call()) == (row, call);
                self.put_off.iter_mut().filter(its).for_each(|put_off| put_off.over = true);
                if let Some(Context::Passed(to, came)) = self.core.cancel_handed(row, call) {
                    self.handed(&to, came, Some(Failure::Cancelled));
                }
                Ok(())
            }
            Got::Nothing => Ok(()),
        }
    }

    /// A reply may tell of a place for a later payload.
    fn learn(&mut self, row: u32, args: &[u8], end: &End) {
        let rest = args.get(ledger::NUMBER..).and_then(|rest| rest.first_chunk::<16>());
        if let (End::Replied(..), Some(offer)) = (end, rest)
            && offer[..2] == GRANT.to_le_bytes()
        {
            let key = u64::from_le_bytes(core::array::from_fn(|at| offer[4 + at]));
            let bytes = u32::from_le_bytes(core::array::from_fn(|at| offer[12 + at]));
            let token = Token { index: u16::from_le_bytes([offer[2], offer[3]]), key };
            self.offers.push((row, token, bytes as usize));
        }
    }

    /// Whether all calls have ended, and all windows are as they were; what is not so, as a sentence.
    pub(in super::super) fn is_settled(&self) -> Result<(), String> {
        let me = self.me;
        if let Some((number, mine)) = self.mine.first_key_value() {
            return Err(format!("call {number} of {me:?} has not ended: {mine:?}"));
        }
        if self.core.has_backlog() || !self.put_off.is_empty() || self.core.calls().waiting() > 0 {
            return Err(format!("{me:?} has calls to pass on or to answer"));
        }
        let full = self.doors.iter().find(|(row, door)| {
            door.serving > 0 || self.core.under_way(**row) != (0, self.window) || self.core.has_loan(**row)
        });
        full.map_or(Ok(()), |(row, door)| {
            Err(format!("the window of {me:?} is not free: {door:?}, {:?}", self.core.under_way(*row)))
        })
    }
}

/// A payload of up to so many bytes.
pub(super) fn freight(random: &mut Random, most: u64) -> Freight {
    let len = random.pick(&[most, most.min(1500), most / 4]);
    let len = usize::try_from(random.between(1, len.max(1))).unwrap_or(1);
    Freight { seed: random.next(), len, pages: random.chance(600) }
}

fn pick_handler(random: &mut Random, weights: &[u64]) -> u16 {
    let mut at = random.below(weights.iter().sum());
    for (handler, weight) in (ECHO..).zip(weights) {
        if at < *weight {
            return handler;
        }
        at -= weight;
    }
    ECHO
}
