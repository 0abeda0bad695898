//! Payloads that stop in the middle: they hold who sends them, and nobody else.

mod two;

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Failure, Node, RESERVED, RequestError, Service, Settings};
use cutthrough::rma::{Owner, Region, Remote};
use cutthrough::rpc::{self, Client, Method, RpcError};
use cutthrough::{Channel, Config, Endpoint, Event, Policy, Stage, Trace};
use two::{Over, PATIENCE, Server, small};

over_both! { requests_are_served_in_order_whatever_they_carry }

const DOUBLE: Method<u64, u64> = Method::new(1);
const REVERSE: Method<Vec<u8>, Vec<u8>> = Method::new(2);
const MEDIUM: u16 = 3;
/// Shorter than anybody's patience.
const SHORT: Duration = Duration::from_millis(300);

/// Whoever reads a payload of these waits for it longer than any test.
fn patient() -> Config {
    Config { deadline: Duration::from_secs(600), insecure: true, ..small() }
}

/// Stops after the first pulse of a payload, until it is told to go on.
struct Halt {
    reached: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
    halted: bool,
}

impl Trace for Halt {
    fn pulse(&mut self, _: Stage, _: u64, _: u64, _: cutthrough::Instant, _: cutthrough::Instant) {
        if !std::mem::replace(&mut self.halted, true) {
            self.reached.send(()).expect("somebody waits");
            // Whoever waits no more wants it to go on, too.
            let _ = self.go_on.recv();
        }
    }
}

/// A peer that stops in the middle of a payload.
struct Slow {
    go_on: mpsc::Sender<()>,
    thread: JoinHandle<Answer>,
}

/// What a slow peer was answered: kind, code, payload.
type Answer = (u8, u8, Vec<u8>);

impl Slow {
    /// Waits until it has stopped: `work` sends one message that is traced.
    fn begin(work: impl FnOnce(&mut Endpoint, Halt) -> Answer + Send + 'static) -> (Self, mpsc::Receiver<()>) {
        let (reached, is_reached) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pulse = NonZeroU64::new(512).expect("a number");
            let config = Config { policy: Policy::Fixed(pulse), ..patient() };
            let mut endpoint = Endpoint::open(config).expect("an endpoint");
            work(&mut endpoint, Halt { reached, go_on: goes_on, halted: false })
        });
        (Self { go_on, thread }, is_reached)
    }

    /// Requests something of the server at this address: has sent the first bytes of the payload.
    fn ask(address: &str, handler: u16, args: &[u8], payload: Vec<u8>) -> Self {
        Self::ask_by(address, control(1, handler, 7, args), payload)
    }

    fn ask_by(address: &str, control: Vec<u8>, payload: Vec<u8>) -> Self {
        let address = address.to_owned();
        let (slow, reached) = Self::begin(move |endpoint, mut halt| {
            let channel = endpoint.connect(&address, PATIENCE).expect("a channel");
            send(endpoint, channel, &control, &payload, &mut halt);
            let mut reply = next_message(endpoint);
            let (kind, code) = (reply.control()[0], reply.control()[3]);
            let mut bytes = vec![0; reply.payload_len()];
            if !bytes.is_empty() {
                endpoint.read(&mut reply, &mut bytes).expect("its payload");
            }
            (kind, code, bytes)
        });
        reached.recv_timeout(PATIENCE).expect("the first bytes");
        slow
    }

    /// Answers the first request that comes, and stops in the middle of that: its address, and when it has stopped.
    fn answering() -> (Self, String, mpsc::Receiver<()>) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let address = format!("shm:cutthrough-trickle-{}-{number}", std::process::id());
        let (its, (listens, is_listening)) = (address.clone(), mpsc::channel());
        let (slow, reached) = Self::begin(move |endpoint, mut halt| {
            endpoint.listen(&its).expect("a free name");
            listens.send(()).expect("somebody waits");
            let request = next_message(endpoint);
            let call = u64::from_le_bytes(request.control()[8..16].try_into().expect("eight bytes"));
            send(endpoint, request.channel(), &control(2, 0, call, &[]), &vec![5; 100_000], &mut halt);
            Answer::default()
        });
        is_listening.recv_timeout(PATIENCE).expect("a listener");
        (slow, address, reached)
    }

    /// Lets it go on, and waits for its end.
    fn end(self) -> Answer {
        drop(self.go_on);
        self.thread.join().expect("the slow peer")
    }
}

fn control(kind: u8, handler: u16, call: u64, args: &[u8]) -> Vec<u8> {
    let [low, high] = handler.to_le_bytes();
    let head = [kind, 0, u8::try_from(args.len()).expect("few"), 0, low, high, 0, 0];
    [&head[..], &call.to_le_bytes(), args].concat()
}

fn send(endpoint: &mut Endpoint, channel: Channel, control: &[u8], payload: &[u8], halt: &mut Halt) {
    // If nobody is there to read it any more, that is well too.
    let outgoing = endpoint.outgoing(channel).expect("room").write(control).attach_copy(payload);
    let _ = outgoing.send_traced(halt);
}

fn next_message(endpoint: &mut Endpoint) -> cutthrough::Incoming {
    loop {
        match endpoint.wait(Some(PATIENCE)).expect("a message in time") {
            Event::Message(message) => return message,
            Event::Closed(_, why) => panic!("{why}"),
            _ => {}
        }
    }
}

fn methods(node: &mut Node) {
    rpc::serve(node, DOUBLE, |number| Ok(number * 2));
    rpc::serve(node, REVERSE, |mut bytes| {
        bytes.reverse();
        Ok(bytes)
    });
    node.medium(MEDIUM, Args::Any, |request| {
        let payload = request.medium();
        request.reply_with(&[], Body::Copy(payload));
    });
}

fn service() -> Arc<Service> {
    let endpoint = Endpoint::open(patient()).expect("an endpoint");
    Arc::new(Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread"))
}

#[test]
fn others_are_served_while_a_payload_comes() {
    let (mut node, address) = Over::Shm.listening(patient(), Settings::default());
    methods(&mut node);
    let region = Region::new(1 << 20, 4096);
    let key = Owner::new(&mut node).register(&region).0.to_le_bytes();
    let server = Server::run(node, address);
    let client = Client::connect(service(), &server.address, PATIENCE).expect("a channel").within(PATIENCE);
    let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
    let run = |offset: u64, len: u64| [offset.to_le_bytes(), len.to_le_bytes()].concat();
    let put = [&key[..], &3_u64.to_le_bytes()].concat();
    let scatter = [&key[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let gather = [&key[..], &[100, 0, 0, 0]].concat();
    let list: Vec<u8> = (0..100).flat_map(|i| run(200_003 + i * 1000, 1000)).collect();
    let cases = [
        (REVERSE.number(), Vec::new(), bytes.clone(), reversed),
        (MEDIUM, Vec::new(), bytes[..4000].to_vec(), bytes[..4000].to_vec()),
        (RESERVED, put, bytes.clone(), Vec::new()),
        (RESERVED + 3, scatter, [run(200_003, 100_000), bytes.clone()].concat(), Vec::new()),
        (RESERVED + 4, gather, list, bytes.clone()),
    ];
    for (handler, args, payload, expected) in cases {
        let slow = Slow::ask(&server.address, handler, &args, payload);
        for number in 0..20 {
            assert_eq!(client.call(DOUBLE, &number), Ok(number * 2), "beside a payload for {handler}");
        }
        assert!(slow.end() == (2, 0, expected), "the reply of {handler}");
    }
    assert!(region.lock()[3..100_003] == bytes && region.lock()[200_003..300_003] == bytes);
}

#[test]
fn a_request_whose_payload_comes_too_late_is_not_served() {
    let (mut node, address) = Over::Shm.listening(patient(), Settings::default());
    methods(&mut node);
    let server = Server::run(node, address);
    let mut control = control(1, REVERSE.number(), 7, &[]);
    // With a budget, in nanoseconds.
    control[1] = 2;
    control.extend_from_slice(&50_000_000_u64.to_le_bytes()[..6]);
    let slow = Slow::ask_by(&server.address, control, vec![0; 100_000]);
    std::thread::sleep(SHORT);
    assert_eq!(slow.end(), (3, Failure::Late as u8, Vec::new()));
}

#[test]
fn a_request_for_no_region_is_refused_before_its_payload_has_come() {
    let (mut node, address) = Over::Shm.listening(patient(), Settings::default());
    let region = Region::new(4096, 4096);
    let key = Owner::new(&mut node).register(&region).0;
    let server = Server::run(node, address);
    let refused = (3, Failure::Refused as u8, Vec::new());
    for (key, len) in [(key, 100_000), (key ^ 1, 4096)] {
        let args = [&key.to_le_bytes()[..], &0_u64.to_le_bytes()].concat();
        assert_eq!(Slow::ask(&server.address, RESERVED, &args, vec![1; len]).end(), refused);
    }
    assert!(region.lock().iter().all(|byte| *byte == 0));
}

/// Some of them come with payloads that take their time, others with none; some are cancelled, and perhaps not served.
fn requests_are_served_in_order_whatever_they_carry(over: Over) {
    let next = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&next);
    let (_server, mut node, channel) = over.serve_with(patient(), Settings::default(), |node| {
        node.whole(5, Args::Words(1), 1 << 20, move |mut request| {
            let number = request.word(0);
            assert!(its.swap(number + 1, Ordering::SeqCst) <= number, "request {number} was overtaken");
            let mut bytes = vec![0; request.payload_len()];
            if !bytes.is_empty() {
                request.read(&mut bytes).expect("all of it has come");
            }
            let sum = bytes.iter().map(|byte| u32::from(*byte)).sum();
            request.reply(&[number, sum]);
        });
    });
    for number in 0..300_u32 {
        let len = [0, 70_000, 0, 0, 300_000, 9000][number as usize % 6];
        let payload = vec![3; len];
        let until = Instant::now();
        let call = loop {
            let asking = node.ask(channel, 5).within(PATIENCE);
            match asking.args(&number.to_le_bytes()).body(Body::Copy(&payload)).send() {
                Ok(call) => break call,
                Err(error) => assert_eq!(error, RequestError::Full),
            }
            assert!(until.elapsed() < PATIENCE && node.poll().is_none());
        };
        if number % 3 == 2 {
            let reply = node.wait_for(call, PATIENCE).expect("a reply");
            assert_eq!((reply.word(0), reply.word(1) as usize), (number, 3 * len));
        } else {
            node.cancel(call);
        }
    }
}

/// Whatever runs in a thread of its own ends in time.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} does not end"))
}

#[test]
fn a_call_whose_reply_stops_in_the_middle_ends_by_its_deadline() {
    let (mut node, address) = Over::Shm.listening(patient(), Settings::default());
    methods(&mut node);
    let honest = Server::run(node, address);
    let late: Result<Vec<u8>, RpcError> = Err(CallError::Late.into());
    for way in ["a blocking call", "a future", "a continuation"] {
        let (slow, address, reached) = Slow::answering();
        let service = service();
        let other = Client::connect(Arc::clone(&service), &honest.address, PATIENCE).expect("a channel");
        let client = Client::connect(service, &address, PATIENCE).expect("a channel").within(SHORT);
        let asking = std::thread::spawn(move || match way {
            "a blocking call" => client.call(REVERSE, &vec![1]),
            "a future" => {
                let mut call = std::pin::pin!(client.start(REVERSE, &vec![1]));
                loop {
                    if let std::task::Poll::Ready(result) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                    {
                        return result;
                    }
                }
            }
            _ => {
                let (sender, receiver) = mpsc::channel();
                client.call_then(REVERSE, &vec![1], move |result| drop(sender.send(result))).expect("room");
                receiver.recv().expect("a result")
            }
        });
        reached.recv_timeout(PATIENCE).expect("the first bytes");
        // Other calls of the same node go on.
        assert_eq!(ends(way, move || other.within(PATIENCE).call(DOUBLE, &4)), Ok(8), "beside {way}");
        assert_eq!(ends(way, || asking.join().expect("no panic")), late, "{way}");
        slow.end();
    }
}

#[test]
fn a_reply_that_is_read_and_stops_in_the_middle_ends_by_its_deadline() {
    for memory in [false, true] {
        let (slow, address, _reached) = Slow::answering();
        let result = ends("a read", move || {
            let mut node = Node::new(Endpoint::open(patient()).expect("an endpoint"), Settings::default());
            let channel = node.connect(&address, PATIENCE).expect("a channel");
            let mut into = vec![0; 100_000];
            if memory {
                let key = Owner::new(&mut node).register(&Region::new(4096, 4096));
                return Remote::new(&mut node, channel, key, SHORT).get(0, &mut into);
            }
            let mut reply = node.call(channel, 9, &[], SHORT)?;
            node.read(&mut reply, &mut into)?;
            Ok(())
        });
        assert_eq!(result, Err(CallError::Late.into()));
        slow.end();
    }
}

/// Bytes of this process that lie in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("what the system says of this process");
    let pages: u64 = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}

#[test]
fn memory_for_a_payload_grows_as_it_comes() {
    const CLAIMED: usize = 256 << 20;
    let (mut node, address) = Over::Shm.listening(patient(), Settings::default());
    methods(&mut node);
    let server = Server::run(node, address);
    let client = Client::connect(service(), &server.address, PATIENCE).expect("a channel");
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
    let before = resident();
    // Zeros that nobody has written lie in no memory.
    let slow: Vec<Slow> = (0..2).map(|_| Slow::ask(&server.address, REVERSE.number(), &[], vec![0; CLAIMED])).collect();
    let since = Instant::now();
    while since.elapsed() < SHORT {
        assert_eq!(client.call(DOUBLE, &4), Ok(8));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < CLAIMED as u64 / 4, "{grown} bytes for two payloads of which 512 bytes have come");
    drop(server);
    for slow in slow {
        drop(slow.go_on);
    }
}
