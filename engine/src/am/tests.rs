//! Endpoints that talk over rings of any length, down to one slot: every call ends once, nothing deadlocks.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::calls::NEVER;
use super::*;

mod greedy;
mod handed;

type Rings = BTreeMap<(u32, u32), VecDeque<(Vec<u8>, Option<Vec<u8>>)>>;

/// The way out of one endpoint.
struct Out<'a> {
    from: u32,
    rings: &'a mut Rings,
    slots: usize,
}

impl Transport<Option<Vec<u8>>> for Out<'_> {
    fn send(
        &mut self,
        row: u32,
        control: &[u8],
        _: Option<Token>,
        load: Option<Vec<u8>>,
    ) -> Result<(), (Unsent, Option<Vec<u8>>)> {
        let Some(ring) = self.rings.get_mut(&(self.from, row)) else { return Err((Unsent::Closed, load)) };
        if ring.len() >= self.slots {
            return Err((Unsent::Full, load));
        }
        ring.push_back((control.to_vec(), load));
        Ok(())
    }
}

impl Keep<Vec<u8>> for Option<Vec<u8>> {
    fn keep(self) -> Option<Vec<u8>> {
        self
    }

    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, Vec::len)
    }
}

/// What becomes of a call: of the test's own, or to be passed on to who has asked first.
#[derive(Debug)]
enum Context {
    Own(u64),
    Passed(ReplyTo),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Replied(Vec<u8>),
    Failed(Failure),
    Lost,
}

/// Endpoints, each with a channel to each other. The row of a channel is the number of its other end.
struct World {
    nodes: Vec<Core<Context, Vec<u8>>>,
    rings: Rings,
    slots: usize,
    asked: u64,
    served: Vec<u64>,
    outcomes: BTreeMap<u64, Outcome>,
    early: Vec<(u32, u32, Vec<u8>)>,
    put_off: Vec<(u32, ReplyTo)>,
    calls: BTreeMap<u64, (u32, CallId)>,
    now: u64,
}

const ECHO: u16 = 1;
const PASS: u16 = 2;
const FAIL: u16 = 3;
const LATER: u16 = 4;

impl World {
    fn new(nodes: u32, slots: usize, window: u32) -> Self {
        let mut world = Self {
            nodes: (0..nodes).map(|_| Core::new(window)).collect(),
            rings: BTreeMap::new(),
            slots,
            asked: 0,
            served: Vec::new(),
            outcomes: BTreeMap::new(),
            early: Vec::new(),
            put_off: Vec::new(),
            calls: BTreeMap::new(),
            now: 0,
        };
        for (a, b) in (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            world.nodes[a as usize].opened(b, u64::from(b) + 100);
            world.rings.insert((a, b), VecDeque::new());
        }
        world
    }

    fn ask(&mut self, from: u32, to: u32, handler: u16, patience: u64) -> Result<u64, Unasked> {
        let number = self.asked;
        let mut out = Out { from, rings: &mut self.rings, slots: self.slots };
        let args = number.to_le_bytes();
        let ask = Ask { handler, args: Arguments::Bytes(&args), ..Ask::default() };
        let deadline = if patience == 0 { NEVER } else { Instant::from_nanos(self.now + patience) };
        let context = Context::Own(number);
        let made = self.nodes[from as usize].request(&mut out, to, &ask, None, deadline, context);
        let call = made.map_err(|(why, _)| why)?;
        self.calls.insert(number, (from, call));
        self.asked += 1;
        Ok(number)
    }

    fn over(&mut self, at: u32, context: Context, outcome: Outcome) {
        match context {
            Context::Own(number) => {
                let before = self.outcomes.insert(number, outcome);
                assert_eq!(before, None, "call {number} has ended twice");
            }
            Context::Passed(to) => {
                let failure = match outcome {
                    Outcome::Replied(_) => None,
                    Outcome::Failed(why) => Some(why),
                    Outcome::Lost => Some(Failure::Gone),
                };
                self.nodes[at as usize].handed(&to, failure);
            }
        }
    }

    /// Takes in one message from one ring.
    fn step(&mut self, from: u32, at: u32) -> bool {
        let Some((control, load)) = self.rings.get_mut(&(from, at)).and_then(VecDeque::pop_front) else { return false };
        self.take_in(from, at, &control, load);
        true
    }

    fn take_in(&mut self, from: u32, at: u32, control: &[u8], load: Option<Vec<u8>>) {
        let node = &mut self.nodes[at as usize];
        let mut out = Out { from: at, rings: &mut self.rings, slots: self.slots };
        match node.accept(from, control).expect("only what the rules allow") {
            Got::Request(message, to) => {
                let number = u64::from_le_bytes(message.args.try_into().expect("eight bytes"));
                match message.handler {
                    ECHO => {
                        self.served.push(number);
                        node.reply(&mut out, to, Arguments::Bytes(message.args), None, load);
                    }
                    FAIL => {
                        self.served.push(number);
                        node.fail(&mut out, to, Failure::Refused, &[], None);
                    }
                    PASS => {
                        let next = (0..self.nodes.len()).map(|n| n as u32).find(|n| *n != at && *n != from);
                        let node = &mut self.nodes[at as usize];
                        let ask = Ask { handler: ECHO, args: Arguments::Bytes(message.args), ..Ask::default() };
                        let row = next.unwrap_or(99);
                        if let Err((_, load, to)) =
                            node.hand_over(&mut out, to, row, &ask, load, NEVER, Context::Passed)
                        {
                            node.fail(&mut out, to, Failure::Busy, &[], load);
                        }
                    }
                    LATER => self.put_off.push((at, to)),
                    _ => {
                        node.fail(&mut out, to, Failure::Unknown, &[], None);
                    }
                }
            }
            Got::Reply(_, context, args) => {
                let outcome = Outcome::Replied(args.to_vec());
                self.over(at, context, outcome);
            }
            Got::Failed(_, context, why, _) => self.over(at, context, Outcome::Failed(why)),
            Got::Early(_) => self.early.push((from, at, control.to_vec())),
            Got::Announced(call) => {
                let early = core::mem::take(&mut self.early);
                for (sender, place, control) in early {
                    let its = Message::decode(&control).expect("was good before").call;
                    if place == at && its == call {
                        self.take_in(sender, place, &control, None);
                    } else {
                        self.early.push((sender, place, control));
                    }
                }
            }
            Got::Cancelled(call) => {
                if let Some(context) = node.cancel_handed(from, call) {
                    self.over(at, context, Outcome::Failed(Failure::Cancelled));
                }
            }
            Got::Nothing => {}
        }
    }

    fn flush(&mut self, at: u32) -> bool {
        let mut out = Out { from: at, rings: &mut self.rings, slots: self.slots };
        self.nodes[at as usize].flush(&mut out)
    }

    fn answer_put_off(&mut self) {
        for (at, to) in core::mem::take(&mut self.put_off) {
            let mut out = Out { from: at, rings: &mut self.rings, slots: self.slots };
            self.nodes[at as usize].reply(&mut out, to, Arguments::Bytes(b"later"), None, None);
        }
    }

    fn expire(&mut self) {
        for at in 0..self.nodes.len() {
            while let Some((_, _, context)) = self.nodes[at].expire(Instant::from_nanos(self.now)) {
                self.over(at as u32, context, Outcome::Lost);
            }
        }
    }

    /// Ends the channel between two endpoints on both sides.
    fn part(&mut self, a: u32, b: u32) {
        for (at, row) in [(a, b), (b, a)] {
            self.rings.remove(&(at, row));
            self.nodes[at as usize].closed(row);
            while let Some(ended) = self.nodes[at as usize].lost(row) {
                self.over(at, ended.context, Outcome::Lost);
            }
        }
    }

    /// Lets everybody poll until nothing moves any more.
    fn settle(&mut self) {
        let nodes = self.nodes.len() as u32;
        for _ in 0..1_000_000 {
            self.answer_put_off();
            let mut moved = false;
            for (from, at) in (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))) {
                moved |= self.step(from, at);
                self.flush(at);
            }
            if !moved && self.nodes.iter().all(|node| !node.has_backlog()) {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn check(&self) {
        for number in 0..self.asked {
            assert!(self.outcomes.contains_key(&number), "call {number} has not ended");
        }
        let mut served = self.served.clone();
        served.sort_unstable();
        served.dedup();
        assert_eq!(served.len(), self.served.len(), "a request was served twice");
        for (number, outcome) in &self.outcomes {
            if let Outcome::Replied(args) = outcome {
                assert!(args == b"later" || *args == number.to_le_bytes(), "{number}: {args:?}");
            }
        }
        for node in &self.nodes {
            assert_eq!(node.calls().waiting(), 0);
            for row in 0..self.nodes.len() as u32 {
                assert_eq!(node.under_way(row).0, 0, "row {row}");
            }
        }
    }
}

#[test]
fn two_that_flood_each_other_through_one_slot_do_not_deadlock() {
    let mut world = World::new(2, 1, WINDOW);
    for _ in 0..20_000 {
        let full = world.ask(0, 1, ECHO, 0).is_err() & world.ask(1, 0, ECHO, 0).is_err();
        if full {
            // Everybody takes in a message: that is always possible, and makes room.
            assert!(world.step(0, 1) | world.step(1, 0));
            world.flush(0);
            world.flush(1);
        }
    }
    assert!(world.asked > 1000, "{} calls", world.asked);
    world.settle();
    world.check();
}

#[test]
fn three_in_a_ring_do_not_deadlock() {
    let mut world = World::new(3, 1, WINDOW);
    for round in 0..20_000_u32 {
        let at = round % 3;
        if world.ask(at, (at + 1) % 3, ECHO, 0).is_err() {
            world.step((at + 2) % 3, at);
            world.flush(at);
        }
    }
    world.settle();
    world.check();
    assert!(world.asked > 0, "nothing was asked");
}

#[test]
fn answers_that_wait_for_room_are_never_more_than_a_window() {
    let mut world = World::new(2, 2000, 64);
    let mut most = 0;
    for _ in 0..10_000 {
        while world.ask(0, 1, ECHO, 0).is_ok() {}
        // The server's way back is shut: every answer waits.
        world.slots = 0;
        while world.step(0, 1) {}
        most = most.max(world.nodes[1].waiting_to_go());
        world.slots = 2000;
        world.flush(1);
        world.step(1, 0);
    }
    assert!((32..=64).contains(&most), "{most}");
    world.settle();
    world.check();
}

/// A way out with room for so many messages, which keeps what it was given.
struct Narrow(usize, Vec<(Vec<u8>, Option<Token>)>);

impl Transport<Option<Vec<u8>>> for Narrow {
    fn send(
        &mut self,
        _: u32,
        control: &[u8],
        token: Option<Token>,
        load: Option<Vec<u8>>,
    ) -> Result<(), (Unsent, Option<Vec<u8>>)> {
        if self.1.len() >= self.0 {
            return Err((Unsent::Full, load));
        }
        self.1.push((control.to_vec(), token));
        Ok(())
    }
}

#[test]
fn a_reply_that_waits_for_room_still_goes_where_its_token_says() {
    let token = Some(Token { index: 3, key: 0x0123_4567_89ab_cdef });
    let mut asking: Core<(), Vec<u8>> = Core::new(WINDOW);
    let mut serving: Core<(), Vec<u8>> = Core::new(WINDOW);
    asking.opened(0, 1);
    serving.opened(0, 2);
    for room in [1, 0] {
        let mut way = Narrow(1, Vec::new());
        let ask = Ask { handler: ECHO, token, ..Ask::default() };
        asking.request(&mut way, 0, &ask, None, NEVER, ()).expect("room");
        let Ok(Got::Request(message, to)) = serving.accept(0, &way.1[0].0) else { panic!("no request") };
        assert_eq!(message.token, token);
        let mut back = Narrow(room, Vec::new());
        let went = serving.reply(&mut back, to, Arguments::Bytes(b"page"), token, Some(vec![1]));
        assert_eq!((went, back.1.len()), (room == 1, room));
        back.0 = 1;
        assert!(serving.flush(&mut back));
        assert_eq!(back.1[0].1, token);
        let answer = asking.accept(0, &back.1[0].0);
        assert!(matches!(answer, Ok(Got::Reply(_, (), b"page"))), "{answer:?}");
    }
}

#[test]
fn the_larger_window_is_lent_to_one_at_a_time() {
    let mut world = World::new(3, 10_000, WINDOW);
    let fill = |world: &mut World, from| while world.ask(from, 0, ECHO, 0).is_ok() {};
    for from in [1, 2] {
        fill(&mut world, from);
        assert_eq!(world.nodes[from as usize].under_way(0), (WINDOW, WINDOW));
    }
    // The first answer makes room for a request that says how full the window was, and its answer lends.
    for _ in 0..2 * WINDOW {
        for from in [1, 2] {
            world.step(from, 0);
            world.step(0, from);
            fill(&mut world, from);
        }
    }
    let loans = [1, 2].map(|from| world.nodes[from].has_loan(0));
    assert!(loans[0] ^ loans[1], "{loans:?}");
    let borrower = if loans[0] { 1 } else { 2 };
    assert_eq!(world.nodes[borrower].under_way(0), (LARGE, LARGE));
    // The loan is used up in the end, and the other has its turn, though both always have more to send.
    let other = 3 - borrower;
    let mut turned = false;
    for _ in 0..20 * LOAN {
        for from in [1, 2] {
            world.step(from, 0);
            world.step(0, from);
            fill(&mut world, from);
            world.flush(from);
        }
        let loans = [1, 2].map(|from| world.nodes[from].has_loan(0));
        assert!(!(loans[0] && loans[1]));
        turned |= world.nodes[other].has_loan(0);
        if turned {
            break;
        }
    }
    assert!(turned, "the other has never had the larger window");
    world.settle();
    world.check();
    assert!(world.nodes.iter().all(|node| !node.has_loan(0)), "a loan outlives its use");
}

#[test]
fn a_direct_reply_is_believed_only_where_it_was_announced() {
    let mut world = World::new(4, 100, WINDOW);
    let number = world.ask(0, 1, PASS, 0).expect("room");
    let (_, call) = world.calls[&number];
    // Somebody else claims to reply to it.
    let mut control = [0; CONTROL_MAX];
    let forged = Message { args: b"forged", ..Message::new(Kind::Direct, call) };
    let len = forged.encode(&mut control).expect("short");
    world.take_in(3, 0, &control[..len], None);
    assert_eq!(world.outcomes.len(), 0);
    world.settle();
    assert_eq!(world.outcomes[&number], Outcome::Replied(number.to_le_bytes().to_vec()));
    assert_eq!(world.early.len(), 0, "the forged reply is thrown away once the call is announced to another");
    world.check();
}

/// Who takes a request over could say that yet another endpoint replies, which nobody waits for: the call of who had
/// handed it over never ended, and the window of who had asked first was less by one for ever.
#[test]
fn a_request_that_was_handed_over_is_not_handed_on() {
    for kind in [Kind::HandOver, Kind::Handed] {
        let mut world = World::new(4, 100, WINDOW);
        let number = world.ask(0, 1, PASS, 0).expect("room");
        world.step(0, 1);
        let call = Message::decode(&world.rings[&(1, 2)][0].0).expect("a request").call;
        let origin = (kind == Kind::HandOver).then_some(Origin { generation: 103, call });
        let mut control = [0; CONTROL_MAX];
        let len = Message { origin, ..Message::new(kind, call) }.encode(&mut control).expect("short");
        assert_eq!(world.nodes[1].accept(2, &control[..len]).err(), Some(Malformed::Unexpected), "{kind:?}");
        world.part(1, 2);
        world.settle();
        assert_eq!(world.outcomes[&number], Outcome::Failed(Failure::Gone));
        world.check();
    }
}

#[test]
fn a_call_that_began_without_a_look_at_the_clock_is_late_from_the_next_look_on() {
    let mut core: Core<u8, ()> = Core::new(4);
    core.opened(0, 1);
    let call = core.calls.begin(0, calls::UNDATED, 7);
    assert!(core.calls().has_undated());
    assert_eq!(core.expire(Instant::from_nanos(1_000_000)), None);
    core.date(Instant::from_nanos(2_000_000));
    assert_eq!((core.calls().has_undated(), core.calls().due()), (false, Instant::from_nanos(2_000_000)));
    assert_eq!(core.expire(Instant::from_nanos(1_999_999)), None);
    assert_eq!(core.expire(Instant::from_nanos(2_000_000)), Some((call, 0, 7)));
    assert_eq!(core.expire(Instant::from_nanos(3_000_000)), None);
}

#[test]
fn a_deadline_of_its_own_replaces_one_for_all() {
    let mut core: Core<u8, ()> = Core::new(4);
    core.opened(0, 1);
    let [undated, dated, made_with] =
        [calls::UNDATED, calls::UNDATED, Instant::from_nanos(50)].map(|deadline| core.calls.begin(0, deadline, 7));
    core.date_one(undated, Instant::from_nanos(300));
    core.date(Instant::from_nanos(100));
    core.date_one(dated, Instant::from_nanos(200));
    core.date_one(made_with, Instant::from_nanos(200));
    assert!(!core.calls().has_undated());
    for (now, late) in [(50, made_with), (200, dated), (300, undated)] {
        assert_eq!(core.expire(Instant::from_nanos(now - 1)), None);
        assert_eq!(core.expire(Instant::from_nanos(now)), Some((late, 0, 7)));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut world = World::new(2, 100, WINDOW);
    let node = &mut world.nodes[0];
    let mut control = [0; CONTROL_MAX];
    let call = CallId::new(3, 9);
    for kind in [Kind::Reply, Kind::Failed, Kind::Handed, Kind::Back] {
        let len = Message::new(kind, call).encode(&mut control).expect("short");
        assert_eq!(node.accept(1, &control[..len]).err(), Some(Malformed::Unexpected), "{kind:?}");
        assert_eq!(node.accept(7, &control[..len]).err(), Some(Malformed::Unexpected), "{kind:?} on no channel");
    }
    let origin = Some(Origin { generation: 101, call });
    let len = Message { origin, ..Message::new(Kind::HandOver, call) }.encode(&mut control).expect("short");
    assert_eq!(node.accept(1, &control[..len]).err(), Some(Malformed::Unexpected));
    // One request more than a window.
    let len = Message::new(Kind::Request, call).encode(&mut control).expect("short");
    for _ in 0..WINDOW {
        assert!(matches!(node.accept(1, &control[..len]), Ok(Got::Request(..))));
    }
    assert_eq!(node.accept(1, &control[..len]).err(), Some(Malformed::Unexpected));
}

/// Something that happens in the world.
#[derive(Debug, Clone)]
enum Happens {
    Ask(u32, u32, u16, u64),
    Step(u32, u32),
    Flush(u32),
    Cancel(u64),
    Later,
    Tick(u64),
    Part(u32, u32),
}

fn happenings() -> impl Strategy<Value = Happens> {
    let node = 0_u32..4;
    prop_oneof![
        8 => (node.clone(), node.clone(), 1_u16..=5, prop_oneof![Just(0), 1_u64..50])
            .prop_map(|(a, b, handler, patience)| Happens::Ask(a, b, handler, patience)),
        12 => (node.clone(), node.clone()).prop_map(|(a, b)| Happens::Step(a, b)),
        4 => node.clone().prop_map(Happens::Flush),
        1 => (0_u64..200).prop_map(Happens::Cancel),
        2 => Just(Happens::Later),
        1 => (1_u64..30).prop_map(Happens::Tick),
        1 => (node.clone(), node).prop_map(|(a, b)| Happens::Part(a, b)),
    ]
}

proptest! {
    /// Whatever happens in whatever order, every call ends exactly once, and every window is free again.
    #[test]
    fn every_call_ends_once(
        slots in 1_usize..5,
        window in 1_u32..6,
        parting in any::<bool>(),
        happenings in proptest::collection::vec(happenings(), 0..300),
    ) {
        let mut world = World::new(4, slots, window);
        for happening in happenings {
            match happening {
                Happens::Ask(a, b, handler, patience) => {
                    if a != b {
                        let _ = world.ask(a, b, handler, patience);
                    }
                }
                Happens::Step(a, b) => {
                    world.step(a, b);
                }
                Happens::Flush(at) => {
                    world.flush(at);
                }
                Happens::Cancel(number) => {
                    if let Some((at, call)) = world.calls.get(&number).copied()
                        && let Some(context) = world.nodes[at as usize].cancel(call)
                    {
                        world.over(at, context, Outcome::Lost);
                    }
                }
                Happens::Later => world.answer_put_off(),
                Happens::Tick(nanos) => {
                    world.now += nanos;
                    world.expire();
                }
                Happens::Part(a, b) => {
                    if parting && a != b && world.rings.contains_key(&(a, b)) {
                        world.part(a, b);
                    }
                }
            }
        }
        world.settle();
        world.check();
    }

    /// No bytes make an endpoint panic, and none make it send.
    #[test]
    fn hostile_messages_are_harmless(messages in proptest::collection::vec(
        (1_u8..=9, any::<u8>(), 0_u8..70, proptest::collection::vec(any::<u8>(), 0..=CONTROL_MAX - 3)), 0..50)) {
        let mut world = World::new(2, 10, 4);
        let _ = world.ask(0, 1, ECHO, 0);
        for (kind, flags, len, rest) in messages {
            let bytes: Vec<u8> = vec![kind, flags & 15, len].into_iter().chain(rest).collect();
            let _ = world.nodes[0].accept(1, &bytes);
        }
    }
}
