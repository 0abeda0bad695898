//! Active messages of hostile peers: a victim with calls of its own, two channels on which anything comes, and a third
//! to an endpoint that keeps the rules.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::calls::NEVER;
use cutthrough_engine::am::message::{ARGS_MAX, Arguments, CallId, Kind, Message, Origin};
use cutthrough_engine::am::{Ask, Core, Failure, Got, Keep, LARGE, Plain, ReplyTo, Transport, Unsent, WINDOW};
use cutthrough_engine::time::Instant;
use cutthrough_wire::slot::CONTROL_MAX;
use cutthrough_wire::token::Token;

/// The victim's channel to the honest endpoint; the others are hostile.
const HONEST: u32 = 1;
const ROWS: u32 = 3;
/// Generations of the endpoints behind the rows, and of the victim.
const GENERATIONS: [u64; 4] = [10, 20, 30, 40];
const VICTIM: u64 = GENERATIONS[3];
/// Replies at once.
const ECHO: u16 = 1;
/// Replies later.
const LATER: u16 = 2;
/// Control messages of a ring.
const SLOTS: usize = 64;

/// What happens next. Rows and indexes are taken modulo how many there are.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    /// The victim makes a request: on which row, of which handler, and how long it waits.
    Ask(u8, bool, u16),
    /// It cancels one of its calls.
    Cancel(u8),
    /// It answers a request that was put off: with a reply, or not.
    Answer(u8, bool),
    /// It hands such a request over to another row.
    Pass(u8, u8),
    /// Its clock goes on, by so much or 2^16 times as much.
    Tick(u16, bool),
    /// It sends what waits for room.
    Flush,
    /// A hostile peer's ring has so much room from now on.
    Room(bool, u8),
    /// A hostile peer takes what the victim has sent.
    Swallow(bool),
    /// Bytes of a hostile peer.
    Bytes(bool, Vec<u8>),
    /// A message of a hostile peer, and whether the victim looks for plain ones first.
    Message(bool, Forged, bool),
    /// A message of a hostile peer of which a byte is changed.
    Changed(bool, Forged, u8, u8),
    /// A hostile channel ends, and there is another one, to an endpoint that perhaps says it is the honest one.
    Again(bool, bool),
    /// The honest endpoint makes a request.
    HonestAsks(bool),
    /// The honest endpoint takes a message in.
    HonestTakes,
    /// The victim takes a message of the honest endpoint in.
    VictimTakes,
}

/// A message that somebody writes who knows the rules.
#[derive(Debug, Clone, Arbitrary)]
pub struct Forged {
    /// What it is for.
    pub kind: u8,
    /// Whether the larger window is wanted, or had.
    pub window: bool,
    /// Why a request failed.
    pub code: u8,
    /// The handler.
    pub handler: u8,
    /// Which of the victim's calls, and how far its nonce is off.
    pub call: (u8, i8),
    /// Bytes of arguments.
    pub args: u8,
    /// A place.
    pub token: Option<u64>,
    /// A budget, and its stamp.
    pub budget: Option<(u32, u16)>,
    /// Whose generation, and for which call.
    pub origin: Option<(u8, u8, i8)>,
}

type Load = Option<Vec<u8>>;

/// Messages that are on their way.
struct Ring {
    room: usize,
    messages: VecDeque<Vec<u8>>,
}

/// The way out of an endpoint, by row.
struct Out(Vec<Ring>);

impl Out {
    fn new(rows: u32) -> Self {
        Self((0..rows).map(|_| Ring { room: SLOTS, messages: VecDeque::new() }).collect())
    }
}

impl Transport<Load> for Out {
    fn send(&mut self, row: u32, control: &[u8], _: Option<Token>, load: Load) -> Result<(), (Unsent, Load)> {
        let Some(ring) = self.0.get_mut(row as usize) else { return Err((Unsent::Closed, load)) };
        if ring.messages.len() >= ring.room {
            return Err((Unsent::Full, load));
        }
        if load.as_ref().is_some_and(|load| load.len() > 100) {
            return Err((Unsent::Refused, load));
        }
        ring.messages.push_back(control.to_vec());
        Ok(())
    }
}

struct Kept(Load);

impl Keep<Vec<u8>> for Kept {
    fn keep(self) -> Load {
        self.0
    }
}

impl Transport<Kept> for Out {
    fn send(&mut self, row: u32, control: &[u8], token: Option<Token>, load: Kept) -> Result<(), (Unsent, Kept)> {
        self.send(row, control, token, load.0).map_err(|(why, load)| (why, Kept(load)))
    }
}

#[derive(Debug)]
enum Context {
    Own(usize),
    /// Somebody's request that was handed over.
    Passed(ReplyTo),
}

/// A call, as who made it knows it.
struct Own {
    call: CallId,
    row: u32,
    ended: bool,
}

/// An endpoint.
struct Side {
    core: Core<Context, Vec<u8>>,
    out: Out,
    calls: Vec<Own>,
    /// Every call that was made, with those that hand a request over.
    known: Vec<CallId>,
    put_off: Vec<(ReplyTo, Vec<u8>)>,
    /// Of the requests of the honest channel: no number below is served any more.
    served: u32,
    open: Vec<bool>,
}

impl Side {
    fn new(rows: &[(u32, u64)]) -> Self {
        let mut core = Core::new(WINDOW);
        rows.iter().for_each(|(row, generation)| core.opened(*row, *generation));
        let out = Out::new(rows.len().try_into().expect("three at most"));
        Self {
            core,
            out,
            calls: Vec::new(),
            known: Vec::new(),
            put_off: Vec::new(),
            served: 0,
            open: vec![true; rows.len()],
        }
    }

    fn ask(&mut self, row: u32, handler: u16, deadline: Instant) {
        let number = self.calls.len();
        let args = u32::try_from(number).expect("few calls").to_le_bytes();
        let ask = Ask { handler, args: Arguments::Bytes(&args), ..Ask::default() };
        let context = Context::Own(number);
        if let Ok(call) = self.core.request(&mut self.out, row, &ask, None, deadline, context) {
            self.calls.push(Own { call, row, ended: false });
            self.known.push(call);
        }
    }

    /// A call has ended; `by` is the row of the message that says so.
    fn over(&mut self, context: Context, by: Option<u32>, failure: Option<Failure>, args: &[u8]) {
        match context {
            Context::Own(number) => {
                let own = &mut self.calls[number];
                assert!(!own.ended, "call {number} has ended twice");
                own.ended = true;
                if own.row == HONEST && self.open.len() > 1 {
                    assert!(by.is_none_or(|by| by == HONEST), "row {by:?} has ended a call of the honest channel");
                    let wanted = u32::try_from(number).expect("few calls").to_le_bytes();
                    assert!(failure.is_some() || args == wanted, "call {number}: {args:?}");
                }
            }
            Context::Passed(to) => self.core.handed(&to, failure),
        }
    }

    /// A channel has ended.
    fn close(&mut self, row: u32) {
        self.core.closed(row);
        while let Some(ended) = self.core.lost(row) {
            self.over(ended.context, Some(row), Some(Failure::Gone), &[]);
        }
        self.out.0[row as usize].messages.clear();
    }

    /// A message has come. False if the rules are broken.
    fn take(&mut self, row: u32, control: &[u8], plain_first: bool, now: Instant) -> bool {
        let honest = row == HONEST || self.open.len() == 1;
        let before = self.core.waiting_to_go();
        let plain = if plain_first { self.core.accept_plain(row, control) } else { Plain::Other };
        let got = match plain {
            Plain::Request(handler, len, budget, to) => {
                let message = Message::decode(control).expect("a plain request is a request");
                assert_eq!((message.handler, message.args.len()), (handler, usize::from(len)));
                assert_eq!(message.budget, budget);
                Got::Request(message, to)
            }
            Plain::Reply(call, context, len) => Got::Reply(call, context, &control[16..16 + usize::from(len)]),
            Plain::Other => match self.core.accept(row, control) {
                Ok(got) => got,
                Err(_) => return false,
            },
        };
        // At most the larger window goes back.
        assert!(self.core.waiting_to_go() <= before + 1, "a message makes an endpoint send");
        match got {
            Got::Request(message, to) => {
                self.counts(row, &message, now);
                if honest {
                    let number = u32::from_le_bytes(message.args.try_into().expect("a number"));
                    assert!(number >= self.served, "requests in order, each once");
                    self.served = number + 1;
                }
                if message.handler == LATER {
                    self.put_off.push((to, message.args.to_vec()));
                } else if message.handler == ECHO {
                    self.core.reply(&mut self.out, to, Arguments::Bytes(message.args), None, Kept(None));
                } else {
                    self.core.fail(&mut self.out, to, Failure::Unknown, &[], Kept(None));
                }
            }
            Got::Reply(_, context, args) => self.over(context, Some(row), None, args),
            Got::Failed(_, context, why, args) => self.over(context, Some(row), Some(why), args),
            Got::Cancelled(call) => {
                if let Some(context) = self.core.cancel_handed(row, call) {
                    self.over(context, None, Some(Failure::Cancelled), &[]);
                }
            }
            Got::Early(_) | Got::Announced(_) | Got::Nothing => {}
        }
        true
    }

    /// Whatever a stamp says: nothing has waited for longer than since nothing lay there.
    fn counts(&mut self, row: u32, message: &Message<'_>, now: Instant) {
        let Some(budget) = message.budget else { return };
        let idle = u64::from(budget.stamp()) << 8;
        if self.core.has_not_waited(row, budget, now) {
            return;
        }
        let left = self.core.left(row, budget, now, Instant::from_nanos(now.as_nanos().saturating_sub(idle)));
        assert!(left <= budget.nanos() && left >= budget.nanos().saturating_sub(idle), "{left} of {budget:?}");
    }

    fn answer(&mut self, which: usize, replies: bool) {
        if self.put_off.is_empty() {
            return;
        }
        let (to, args) = self.put_off.swap_remove(which % self.put_off.len());
        if replies {
            let load = Some(vec![0; which]);
            self.core.reply(&mut self.out, to, Arguments::Bytes(&args), None, Kept(load));
        } else {
            self.core.fail(&mut self.out, to, Failure::Abandoned, &[], Kept(None));
        }
    }

    fn pass(&mut self, which: usize, row: u32) {
        if self.put_off.is_empty() {
            return;
        }
        let (to, args) = self.put_off.swap_remove(which % self.put_off.len());
        let ask = Ask { handler: ECHO, args: Arguments::Bytes(&args), ..Ask::default() };
        // The honest endpoint counts its requests by what they carry, so none of others goes there.
        let row = if row == HONEST { 0 } else { row };
        match self.core.hand_over(&mut self.out, to, row, &ask, None, NEVER, Context::Passed) {
            Ok(call) => self.known.push(call),
            Err((_, _, to)) => {
                self.core.fail(&mut self.out, to, Failure::Busy, &[], Kept(None));
            }
        }
    }

    fn flush(&mut self) {
        Core::flush(&mut self.core, &mut self.out);
    }
}

struct World {
    victim: Side,
    honest: Side,
    now: u64,
}

/// Takes the steps.
///
/// # Panics
/// If anything panics, a call ends twice or never, memory grows without bound, or the honest channel suffers.
pub fn run(steps: &[Step]) {
    let rows: Vec<(u32, u64)> = (0..ROWS).zip(GENERATIONS).collect();
    let mut world = World { victim: Side::new(&rows), honest: Side::new(&[(0, VICTIM)]), now: 1 };
    for step in steps {
        world.step(step);
        let victim = &world.victim;
        // A window of answers on each row, one of which is the larger, and as many words of requests handed over;
        // direct replies; and two words for each call: that it was cancelled, that the larger window goes back.
        let windows = (ROWS - 1) * WINDOW + LARGE;
        let most = (2 * windows + ROWS * LARGE) as usize + 2 * victim.calls.len();
        assert!(victim.core.waiting_to_go() <= most && victim.put_off.len() <= (ROWS * LARGE) as usize);
        for row in 0..ROWS {
            let (under_way, _) = victim.core.under_way(row);
            assert!(under_way <= LARGE, "row {row} has {under_way} requests under way");
        }
    }
    world.end();
}

const fn hostile(second: bool) -> u32 {
    if second { 2 } else { 0 }
}

impl World {
    fn step(&mut self, step: &Step) {
        let victim = &mut self.victim;
        match step {
            Step::Ask(row, later, patience) => {
                let handler = if *later { LATER } else { ECHO };
                let deadline = Instant::from_nanos(self.now + 1 + u64::from(*patience));
                victim.ask(u32::from(*row) % ROWS, handler, deadline);
            }
            Step::Cancel(which) => {
                let own = (!victim.calls.is_empty()).then(|| &victim.calls[usize::from(*which) % victim.calls.len()]);
                let ended = own.map(|own| (own.call, own.ended));
                if let Some((call, ended)) = ended {
                    let context = victim.core.cancel(call);
                    assert_eq!(context.is_some(), !ended, "a call can be cancelled until it has ended");
                    context.into_iter().for_each(|context| victim.over(context, None, Some(Failure::Cancelled), &[]));
                }
            }
            Step::Answer(which, replies) => victim.answer(usize::from(*which), *replies),
            Step::Pass(which, row) => victim.pass(usize::from(*which), u32::from(*row) % ROWS),
            Step::Tick(nanos, long) => {
                self.now += u64::from(*nanos) << if *long { 16 } else { 0 };
                self.expire();
            }
            Step::Flush => victim.flush(),
            Step::Room(second, room) => victim.out.0[hostile(*second) as usize].room = usize::from(*room),
            Step::Swallow(second) => victim.out.0[hostile(*second) as usize].messages.clear(),
            Step::Bytes(second, bytes) => {
                let bytes = &bytes[..bytes.len().min(CONTROL_MAX)];
                self.comes(hostile(*second), bytes, bytes.len() % 2 == 0);
            }
            Step::Message(second, forged, plain_first) => {
                let (control, len) = self.write(forged);
                self.comes(hostile(*second), &control[..len], *plain_first);
            }
            Step::Changed(second, forged, at, byte) => {
                let (mut control, len) = self.write(forged);
                control[usize::from(*at) % CONTROL_MAX] = *byte;
                let len = if at % 7 == 0 { usize::from(*byte) % (CONTROL_MAX + 1) } else { len };
                self.comes(hostile(*second), &control[..len], false);
            }
            Step::Again(second, lies) => {
                let row = hostile(*second);
                victim.close(row);
                victim.core.opened(row, GENERATIONS[if *lies { HONEST } else { row } as usize]);
            }
            Step::HonestAsks(later) => {
                self.honest.ask(0, if *later { LATER } else { ECHO }, Instant::from_nanos(1 << 60))
            }
            Step::HonestTakes => {
                self.honest_takes();
            }
            Step::VictimTakes => {
                self.victim_takes();
            }
        }
    }

    fn expire(&mut self) {
        while let Some((_, _, context)) = self.victim.core.expire(Instant::from_nanos(self.now)) {
            self.victim.over(context, None, Some(Failure::Late), &[]);
        }
    }

    /// Bytes have come on a hostile row.
    fn comes(&mut self, row: u32, bytes: &[u8], plain_first: bool) {
        if let Ok(message) = Message::decode(bytes) {
            let mut again = [0; CONTROL_MAX];
            assert_eq!(message.encode(&mut again), Some(bytes.len()), "what is understood says the same again");
            assert_eq!(&again[..bytes.len()], bytes);
        }
        if !self.victim.take(row, bytes, plain_first, Instant::from_nanos(self.now)) {
            self.victim.close(row);
            self.victim.core.opened(row, GENERATIONS[row as usize]);
        }
    }

    fn call(&self, index: u8, off: i8) -> CallId {
        let known = &self.victim.known;
        let call = (!known.is_empty()).then(|| known[usize::from(index) % known.len()]);
        let call = call.unwrap_or(CallId::new(index.into(), 1));
        CallId::new(call.index(), call.nonce().wrapping_add_signed(off.into()))
    }

    fn write(&self, forged: &Forged) -> ([u8; CONTROL_MAX], usize) {
        const KINDS: [Kind; 8] = [
            Kind::Request,
            Kind::Reply,
            Kind::Failed,
            Kind::Handed,
            Kind::Cancel,
            Kind::HandOver,
            Kind::Direct,
            Kind::Back,
        ];
        let args = [7; ARGS_MAX];
        let message = Message {
            window: forged.window,
            code: forged.code,
            handler: u16::from(forged.handler % 4),
            args: &args[..usize::from(forged.args) % (ARGS_MAX + 1)],
            token: forged.token.map(|key| Token { index: 3, key }),
            budget: forged.budget.map(|(nanos, stamp)| Budget::new(nanos.into(), stamp)),
            origin: forged.origin.map(|(who, index, off)| Origin {
                generation: GENERATIONS[usize::from(who) % GENERATIONS.len()],
                call: self.call(index, off),
            }),
            ..Message::new(KINDS[usize::from(forged.kind) % 8], self.call(forged.call.0, forged.call.1))
        };
        let mut control = [0; CONTROL_MAX];
        let len = message.encode(&mut control).unwrap_or(CONTROL_MAX);
        (control, len)
    }

    fn honest_takes(&mut self) -> bool {
        let Some(control) = self.victim.out.0[HONEST as usize].messages.pop_front() else { return false };
        let now = Instant::from_nanos(self.now);
        assert!(self.honest.take(0, &control, true, now), "the honest endpoint is told nonsense: {control:?}");
        true
    }

    fn victim_takes(&mut self) -> bool {
        let Some(control) = self.honest.out.0[0].messages.pop_front() else { return false };
        let now = Instant::from_nanos(self.now);
        assert!(self.victim.take(HONEST, &control, true, now), "the honest endpoint broke no rule: {control:?}");
        true
    }

    /// Nobody is hostile any more: everything comes to its end.
    fn end(&mut self) {
        for row in [0, 2] {
            self.victim.close(row);
            self.victim.open[row as usize] = false;
        }
        loop {
            let mut moved = false;
            for side in [&mut self.victim, &mut self.honest] {
                while !side.put_off.is_empty() {
                    side.answer(0, true);
                    moved = true;
                }
                side.flush();
            }
            while self.honest_takes() | self.victim_takes() {
                moved = true;
            }
            if !moved && !self.victim.core.has_backlog() && !self.honest.core.has_backlog() {
                break;
            }
        }
        let waits = self.victim.calls.iter().find(|own| own.row == HONEST && !own.ended);
        assert!(waits.is_none(), "a call of the honest channel has not ended");
        assert!(self.honest.calls.iter().all(|own| own.ended), "a call of the honest endpoint has not ended");
        assert_eq!((self.victim.core.under_way(HONEST).0, self.honest.core.under_way(0).0), (0, 0));
        self.now = 1 << 61;
        self.expire();
        assert!(self.victim.calls.iter().all(|own| own.ended), "a call has not ended by its deadline");
        assert_eq!(self.victim.core.calls().waiting(), 0, "a request that was handed over is never answered");
    }
}
