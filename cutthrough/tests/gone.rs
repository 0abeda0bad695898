//! Requesters that are gone before they are answered: they have left, or were killed. Whoever answers them learns it,
//! and lives.

mod two;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Deferred, Failure, Node, RequestError, Settings, WINDOW};
use cutthrough::rpc::{self, Answer, Message as _, Method};
use cutthrough::{Channel, Config, Counter, Landing, Page};
use two::{Over, PATIENCE, Server, small, until};

over_both! {
    answers_to_who_has_left_go_nowhere, answers_to_who_was_killed_go_nowhere,
    what_is_handed_over_for_who_has_left_ends, what_is_handed_over_for_who_was_killed_ends,
}

const ECHO: u16 = 1;
const LATER: u16 = 2;
const SQUARE: Method<u64, u64> = Method::new(3);
/// The giver hands these over, the second once it is told to.
const PASS: u16 = 4;
const PASS_IN_TIME: u16 = 5;
const PASSED: u16 = 6;

/// How many requests of [`LATER`] each requester makes.
const PUT_OFF: usize = 5;
/// How many answers it waits for, with those of [`SQUARE`] and [`PASS`].
const ASKED: usize = PUT_OFF + 2;

/// Where the giver and the taker of a requester are that is a process of its own, and which requests it makes.
const TO: &str = "CUTTHROUGH_GONE";

/// Both servers notice soon that a process has died whose socket is silent.
fn config() -> Config {
    Config { silence: Duration::from_secs(2), insecure: true, ..small() }
}

/// A requester with channels to the giver and the taker, which has asked both, or has one request handed over in time.
fn requester(at: [&str; 2], in_time: bool) -> (Node, [Channel; 2]) {
    let mut node = Over::node(config(), Settings::default());
    let [giver, taker] = at.map(|address| node.connect(address, PATIENCE).expect("a channel"));
    if in_time {
        node.request(giver, PASS_IN_TIME, &[]).expect("room");
    } else {
        for _ in 0..PUT_OFF {
            node.ask(taker, LATER).reply_into(Landing::Buffer(vec![0; 5000])).send().expect("room");
        }
        let mut number = Vec::new();
        7_u64.encode(&mut number);
        node.ask(taker, SQUARE.number()).args(&number).send().expect("room");
        node.request(giver, PASS, &[]).expect("room");
    }
    (node, [giver, taker])
}

/// The part of the other process.
#[test]
fn other_side() {
    let Ok(to) = std::env::var(TO) else { return };
    let [giver, taker, which] = to.split(' ').collect::<Vec<_>>().try_into().expect("two addresses, and what to ask");
    let (mut node, _) = requester([giver, taker], which == "in-time");
    println!("\nASKED");
    let _ = std::io::stdout().flush();
    let since = Instant::now();
    while since.elapsed() < 3 * PATIENCE {
        let _ = node.wait(Some(Duration::from_millis(100)));
    }
}

/// A requester, of this process or another.
enum Asks {
    Here(Box<Node>),
    There(Child),
}

impl Asks {
    fn start(killed: bool, at: [&str; 2], in_time: bool) -> Self {
        if !killed {
            return Self::Here(Box::new(requester(at, in_time).0));
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "other_side", "--nocapture", "--test-threads=1"]).stdout(Stdio::piped());
        command.env(TO, format!("{} {} {}", at[0], at[1], if in_time { "in-time" } else { "all" }));
        let mut child = command.spawn().expect("another process");
        let mut lines = BufReader::new(child.stdout.as_mut().expect("its output")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "ASKED")), "it has ended without a word");
        Self::There(child)
    }

    /// It is polled, if that is for this process to do.
    fn poll(&mut self) {
        if let Self::Here(node) = self {
            assert!(node.poll().is_none(), "nobody has answered");
        }
    }

    /// Ends it: what is left when this returns is what its peers know.
    fn end(self) {
        if let Self::There(mut child) = self {
            child.kill().expect("it is there");
            child.wait().expect("it has ended");
        }
    }
}

type List<T> = Arc<Mutex<Vec<T>>>;

/// Puts something on a list.
fn put<T>(list: &List<T>, it: T) {
    list.lock().expect("the list").push(it);
}

fn take<T>(list: &List<T>) -> Vec<T> {
    std::mem::take(&mut *list.lock().expect("the list"))
}

/// A giver and a taker, which keeps what it shall answer.
struct Two {
    giver: Server,
    taker: Server,
    to_taker: Channel,
    /// Each with a page of its channel.
    later: List<(Deferred, Page)>,
    square: List<Answer<u64>>,
    passed: List<Deferred>,
    /// The giver's handler has begun, and what it waits for.
    begun: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl Two {
    fn new(over: Over) -> Self {
        let settings = Settings { serve: ASKED, ..Settings::default() };
        let (mut taker, at_taker) = over.listening(config(), settings);
        let (later, square, passed) = (List::default(), List::default(), List::default());
        taker.short(ECHO, Args::Any, |request| request.reply(&[7]));
        let its = Arc::clone(&later);
        taker.short(LATER, Args::Any, move |mut request| {
            let page = request.page(3000).expect("a page");
            put(&its, (request.defer(), page));
        });
        let its = Arc::clone(&square);
        rpc::serve_later(&mut taker, SQUARE, move |_, answer| put(&its, answer));
        let its = Arc::clone(&passed);
        taker.short(PASSED, Args::Any, move |request| {
            assert!(request.is_handed_over());
            if request.args().is_empty() { put(&its, request.defer()) } else { request.reply(&[8]) }
        });
        let taker = Server::run(taker, at_taker);
        let (mut giver, at_giver) = over.listening(config(), Settings::default());
        let to_taker = giver.connect(&taker.address, PATIENCE).expect("a channel");
        giver.short(PASS, Args::Any, move |request| {
            let args = request.args().to_vec();
            assert!(request.hand_over(to_taker, PASSED, &args, Body::None).is_ok());
        });
        let ((begins, begun), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
        giver.short(PASS_IN_TIME, Args::Any, move |request| {
            begins.send(()).expect("somebody waits");
            goes_on.recv_timeout(PATIENCE).expect("somebody says so");
            if let Err((error, request)) = request.hand_over(to_taker, PASSED, &[1], Body::None) {
                assert_eq!(error, RequestError::Closed);
                request.fail(Failure::Gone);
            }
        });
        let giver = Server::run(giver, at_giver);
        Self { giver, taker, to_taker, later, square, passed, begun, go_on }
    }

    fn at(&self) -> [&str; 2] {
        [&self.giver.address, &self.taker.address]
    }

    /// How many wait for the taker's answer, and for how many of them nobody does.
    fn put_off(&self) -> (usize, usize) {
        let (later, square) = (self.later.lock().expect("the list"), self.square.lock().expect("the list"));
        let passed = self.passed.lock().expect("the list");
        let over = later.iter().map(|(deferred, _)| deferred.is_over());
        let over = over.chain(square.iter().map(Answer::is_over)).chain(passed.iter().map(Deferred::is_over));
        (later.len() + square.len() + passed.len(), over.filter(|over| *over).count())
    }
}

/// Somebody who comes later is served as ever, and hears nothing of what was meant for others.
fn is_served(node: &mut Node, [giver, taker]: [Channel; 2]) {
    for _ in 0..10 {
        assert_eq!(node.call(taker, ECHO, &[], PATIENCE).expect("a reply").word(0), 7);
        assert_eq!(node.call(giver, PASS, &[1], PATIENCE).expect("the taker's reply").word(0), 8);
    }
    until("the giver answers, too", || {
        assert!(node.poll().is_none(), "an answer to another's request");
        node.room(giver) == WINDOW
    });
}

/// A node that has asked for nothing, with its channels.
fn newcomer(at: [&str; 2]) -> (Node, [Channel; 2]) {
    let mut node = Over::node(config(), Settings::default());
    let channels = at.map(|address| node.connect(address, PATIENCE).expect("a channel"));
    (node, channels)
}

/// The taker has answered all that was handed over to it.
fn giver_is_free(giver: Server, to_taker: Channel) {
    let mut giver = giver.end();
    until("the taker has answered", || {
        let _ = giver.poll();
        giver.room(to_taker) == WINDOW
    });
}

fn answers_go_nowhere(over: Over, killed: bool) {
    let two = Two::new(over);
    let mut asks = Asks::start(killed, two.at(), false);
    until("all have come", || {
        asks.poll();
        two.put_off() == (ASKED, 0)
    });
    asks.end();
    until("whoever shall answer learns that nobody waits", || two.put_off() == (ASKED, ASKED));
    // Whoever comes next has the place of who has gone. As many are in service as may be.
    let (mut node, channels) = newcomer(two.at());
    let busy = node.call(channels[1], LATER, &[], PATIENCE).map(drop);
    assert_eq!(busy, Err(CallError::Failed(Failure::Busy).into()));
    let Two { giver, taker, to_taker, later, square, passed, .. } = two;
    let address = taker.address.clone();
    let mut taker = taker.end();
    let count = |taker: &Node| {
        let count = |counter| taker.endpoint().counter(counter);
        (count(Counter::RepliesAbandoned), count(Counter::RequestsRefused))
    };
    let before = count(&taker);
    let mut put_off = take(&later).into_iter();
    let mut next = || put_off.next().expect("one of those");
    taker.answer(next().0, b"too late", Body::Copy(&[1; 5000]));
    let (deferred, page) = next();
    taker.answer(deferred, b"too late", Body::Page(page));
    taker.refuse(next().0, Failure::Refused, b"too late");
    assert_eq!(count(&taker), (before.0 + 2, before.1 + 1), "at once");
    let [(replied, _), (thrown, _)] = [next(), next()];
    let others = std::thread::spawn(move || {
        replied.reply(b"too late", vec![2; 5000]);
        drop(thrown);
        take(&square).into_iter().for_each(|answer| answer.give(Ok(49)));
    });
    others.join().expect("no panic");
    take(&passed).into_iter().for_each(|deferred| taker.answer(deferred, &[], Body::Owned(vec![3; 5000])));
    let taker = Server::run(taker, address);
    is_served(&mut node, channels);
    let call = node.request(channels[1], LATER, &[]).expect("room");
    until("none of them is in service any more", || !later.lock().expect("the list").is_empty());
    take(&later).into_iter().for_each(|(deferred, _)| deferred.reply(b"in time", Vec::new()));
    assert_eq!(node.wait_for(call, PATIENCE).expect("a reply").args(), b"in time");
    giver_is_free(giver, to_taker);
    // What was handed over has ended as late, if the giver was the first to say that nobody waits.
    let counted = count(&taker.end());
    assert_eq!(counted, if before.1 == 0 { (6, 1) } else { (5, 2) }, "each once");
}

fn answers_to_who_has_left_go_nowhere(over: Over) {
    answers_go_nowhere(over, false);
}

fn answers_to_who_was_killed_go_nowhere(over: Over) {
    answers_go_nowhere(over, true);
}

fn what_is_handed_over_ends(over: Over, killed: bool) {
    let two = Two::new(over);
    let asks = Asks::start(killed, two.at(), true);
    two.begun.recv_timeout(PATIENCE).expect("the giver's handler runs");
    // The giver hears of that behind what it does now.
    asks.end();
    two.go_on.send(()).expect("somebody waits");
    let (mut node, channels) = newcomer(two.at());
    is_served(&mut node, channels);
    let Two { giver, taker, to_taker, .. } = two;
    giver_is_free(giver, to_taker);
    drop(taker.end());
}

fn what_is_handed_over_for_who_has_left_ends(over: Over) {
    what_is_handed_over_ends(over, false);
}

fn what_is_handed_over_for_who_was_killed_ends(over: Over) {
    what_is_handed_over_ends(over, true);
}
