//! Calls end in their time, however much others ask of who waits for them.

mod two;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cutthrough::am::{Args, CallError, Node, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use cutthrough::{Channel, Config};
use two::{Over, PATIENCE, Server, until};

over_both! {
    a_call_ends_in_its_time_whatever_others_ask, a_wait_for_a_call_ends_in_its_time_whatever_others_ask,
    a_clients_call_ends_in_its_time_whatever_others_ask,
}

const NEVER_ANSWERED: u16 = 1;
const LONG: u16 = 2;
/// How long a handler takes, at least, and how long a call waits.
const STEP: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_millis(20);
/// Handlers that may run in a call that waits so long, each of which takes a step: those that end in its time, and
/// sixteen each until a client has the node, until its time begins, and until somebody sees that it is over.
const MOST: u32 = 20 + 4 * 16;

/// A node that serves requests of somebody who never stops, and has a channel to a node that answers nothing.
struct Busy {
    node: Option<Node>,
    channel: Channel,
    silent: Server,
    runs: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    asker: Option<JoinHandle<()>>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.asker.take().expect("a thread").join().expect("it has asked");
    }
}

impl Busy {
    fn new(over: Over) -> Self {
        let (mut silent, address) = over.listening(Config::default(), Settings::default());
        // Whoever is put off and kept is never answered.
        let mut kept = Vec::new();
        silent.short(NEVER_ANSWERED, Args::Any, move |request| kept.push(request.defer()));
        let silent = Server::run(silent, address);

        let (mut node, address) = over.listening(Config::default(), Settings::default());
        let runs = Arc::new(AtomicU32::new(0));
        let its = Arc::clone(&runs);
        node.short(LONG, Args::Any, move |request| {
            std::thread::sleep(STEP);
            its.fetch_add(1, Ordering::Relaxed);
            request.reply(&[]);
        });
        let stop = Arc::new(AtomicBool::new(false));
        let over_yet = Arc::clone(&stop);
        let asker = std::thread::spawn(move || {
            let mut asker = Over::node(Config::default(), Settings::default());
            let channel = asker.connect(&address, PATIENCE).expect("a channel");
            while !over_yet.load(Ordering::Relaxed) {
                while asker.request(channel, LONG, &[]).is_ok() {}
                while asker.poll().is_some() {}
                std::thread::yield_now();
            }
        });
        let channel = node.connect(&silent.address, PATIENCE).expect("a channel");
        until("it is asked", || {
            let _ = node.poll();
            runs.load(Ordering::Relaxed) > 100
        });
        Self { node: Some(node), channel, silent, runs, stop, asker: Some(asker) }
    }

    /// How many handlers run in a call of the node's.
    fn runs(&mut self, call: impl FnOnce(&mut Node, Channel)) -> u32 {
        let before = self.runs.load(Ordering::Relaxed);
        call(self.node.as_mut().expect("the node"), self.channel);
        self.runs.load(Ordering::Relaxed) - before
    }
}

fn a_call_ends_in_its_time_whatever_others_ask(over: Over) {
    let mut busy = Busy::new(over);
    let runs = busy.runs(|node, channel| {
        let late = node.call(channel, NEVER_ANSWERED, &[], WAIT).map(drop);
        assert_eq!(late, Err(CallError::Late.into()));
    });
    assert!((1..=MOST).contains(&runs), "{runs} handlers of a millisecond in a call of twenty");
}

fn a_wait_for_a_call_ends_in_its_time_whatever_others_ask(over: Over) {
    let mut busy = Busy::new(over);
    let runs = busy.runs(|node, channel| {
        let call = node.request(channel, NEVER_ANSWERED, &[]).expect("room");
        let late = node.wait_for(call, WAIT).map(drop);
        assert_eq!(late, Err(CallError::Late.into()));
    });
    assert!((1..=MOST).contains(&runs), "{runs} handlers of a millisecond in a call of twenty");
}

fn a_clients_call_ends_in_its_time_whatever_others_ask(over: Over) {
    let mut busy = Busy::new(over);
    let node = busy.node.take().expect("the node");
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let client = Client::connect(service, &busy.silent.address, PATIENCE).expect("a channel").within(WAIT);
    let before = busy.runs.load(Ordering::Relaxed);
    assert!(client.call_raw(Raw::new(NEVER_ANSWERED)).is_err());
    let runs = busy.runs.load(Ordering::Relaxed) - before;
    assert!((1..=MOST).contains(&runs), "{runs} handlers of a millisecond in a call of twenty");
}
