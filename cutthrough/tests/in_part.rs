//! A long payload moves while its request is served already, and that of a reply while its requester knows of it. If
//! the channel ends meanwhile, nobody knows what has become of the call, and it is not made again unless it may be.

mod two;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cutthrough::am::{Args, Body, CallError, RequestError, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use cutthrough::{Config, Payload};
use two::{Over, PATIENCE, small};

over_both! { a_call_that_was_sent_in_part_is_not_made_again }

fn a_call_that_was_sent_in_part_is_not_made_again(over: Over) {
    // More than the receiver lets come unasked and aside, with the longest buffer that there may be.
    const LONG: usize = 60 << 20;
    let tight = || Config { pool_bytes: 64 << 10, deadline: Duration::from_millis(200), ..small() };
    // Over a network this server is held by the payload that was given up, longer than the other side waits.
    for idempotent in [false, true].into_iter().take(if over == Over::Shm { 2 } else { 1 }) {
        let (mut node, address) = over.listening(small(), Settings::default());
        let runs = Arc::new(Mutex::new(0));
        let its = Arc::clone(&runs);
        node.long(20, Args::Any, LONG, move |mut request| {
            let run = {
                let mut runs = its.lock().expect("no panic");
                *runs += 1;
                *runs
            };
            if run == 1 {
                // Longer than the other side waits.
                std::thread::sleep(Duration::from_millis(600));
                return request.refuse(b"late");
            }
            // Those that were given up, too.
            let mut bytes = vec![0; request.payload_len()];
            match request.read(&mut bytes) {
                Ok(_) => request.reply(&[u32::try_from(bytes.len()).expect("few")]),
                Err(_) => request.refuse(b"gone"),
            }
        });
        let _server = Service::spawn(node, |_| ()).expect("a thread");
        let service = Arc::new(Service::spawn(Over::node(tight(), Settings::default()), |_| ()).expect("a thread"));
        let client = Client::connect(service, &address, PATIENCE).expect("a channel");
        let long = vec![1; LONG];
        let raw = Raw::new(20).body(Body::Copy(&long));
        let raw = if idempotent { raw.idempotent() } else { raw };
        let outcome = client.within(PATIENCE).call_raw(raw);
        if idempotent {
            assert_eq!(outcome.expect("a reply").word(0) as usize, LONG);
            assert!(*runs.lock().expect("no panic") > 1);
        } else {
            assert_eq!(outcome.expect_err("no reply").error, RequestError::Lost.into());
            std::thread::sleep(Duration::from_millis(600));
            assert_eq!(*runs.lock().expect("no panic"), 1, "it was made again");
        }
    }
}

/// What was received and is sent on moves as private memory does, where there are too few pages to copy it to. Then the
/// channel was said to have ended before anything was sent, and the call was made again.
#[test]
fn a_call_that_was_sent_on_in_part_is_not_made_again() {
    const LONG: usize = 16 << 20;
    const FETCH: u16 = 21;
    let source = || Config { pool_bytes: 2 * LONG as u64, ..small() };
    let (mut node, origin) = Over::Shm.listening(source(), Settings::default());
    node.short(FETCH, Args::Any, |mut request| {
        let page = request.page(LONG).expect("a page");
        request.reply_with(&[], Body::Page(page));
    });
    let _origin = Service::spawn(node, |_| ()).expect("a thread");
    let (mut node, address) = Over::Shm.listening(small(), Settings::default());
    let runs = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&runs);
    node.long(20, Args::Any, LONG, move |request| {
        if its.fetch_add(1, Ordering::Relaxed) == 0 {
            // Longer than the other side waits.
            thread::sleep(Duration::from_millis(600));
        }
        request.reply(&[]);
    });
    let _server = Service::spawn(node, |_| ()).expect("a thread");
    let tight = Config { pool_bytes: 64 << 10, deadline: Duration::from_millis(200), ..small() };
    let service = Arc::new(Service::spawn(Over::node(tight, Settings::default()), |_| ()).expect("a thread"));
    let from = Client::connect(Arc::clone(&service), &origin, PATIENCE).expect("a channel");
    let Payload::Landed(landed) = from.call_raw(Raw::new(FETCH)).expect("a reply").take_payload() else {
        panic!("no pages")
    };
    let client = Client::connect(service, &address, PATIENCE).expect("a channel");
    let outcome = client.within(PATIENCE).call_raw(Raw::new(20).body(landed.into()));
    assert_eq!(outcome.map(drop).map_err(|failed| failed.error), Err(RequestError::Lost.into()));
    thread::sleep(Duration::from_millis(600));
    assert_eq!(runs.load(Ordering::Relaxed), 1, "it was made again");
}

/// Passes on what a server and its caller send, up to so many bytes of the server's: then nothing of either.
struct Wire {
    address: String,
    left: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        front.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
        let address = format!("udp:{}", front.local_addr().expect("its address"));
        let (left, over) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicBool::new(false)));
        let (its, ends) = (Arc::clone(&left), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let (mut caller, mut bytes) = (None, vec![0; 1 << 16]);
            while !ends.load(Ordering::Relaxed) {
                let Ok((len, from)) = front.recv_from(&mut bytes) else { continue };
                let back = from == server;
                let to = if back { caller } else { Some(server) };
                caller = if back { caller } else { Some(from) };
                let spent = |left: u64| Some(left.saturating_sub(if back { len as u64 } else { 0 }));
                let left = its.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).unwrap_or(0);
                if let Some(to) = to.filter(|_| left > 0) {
                    let _ = front.send_to(&bytes[..len], to);
                }
            }
        });
        Self { address, left, over, thread: Some(thread) }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Another thread has the node from before the reply comes until the channel has ended in the middle of it.
#[test]
fn a_call_whose_reply_broke_off_unseen_has_lost_its_channel() {
    const SILENCE: Duration = Duration::from_millis(300);
    const LONG: usize = 4 << 20;
    // A payload that is longer than the memory where it could land is on its way until it is read.
    let config = || Config { silence: SILENCE, landing_bytes: 64 << 10, ..small() };
    for idempotent in [false, true] {
        let (mut node, address) = Over::Udp.listening(config(), Settings::default());
        let (comes, has_come) = mpsc::channel();
        let (answer, may_answer) = mpsc::channel();
        let mut runs = 0_u32;
        node.long(20, Args::Any, 64, move |request| {
            runs += 1;
            if runs == 1 {
                comes.send(()).expect("somebody waits");
                may_answer.recv_timeout(PATIENCE).expect("the node is held");
            }
            request.reply_with(&runs.to_le_bytes(), Body::Copy(&vec![7; LONG]));
        });
        let _server = Service::spawn(node, |_| ()).expect("a thread");
        let wire = Wire::to(address.trim_start_matches("udp:").parse().expect("its address"));
        let service = Arc::new(Service::spawn(Over::node(config(), Settings::default()), |_| ()).expect("a thread"));
        let client = Client::connect(Arc::clone(&service), &wire.address, PATIENCE).expect("a channel");
        let calling = thread::spawn(move || {
            let raw = Raw::new(20);
            client.within(PATIENCE).call_raw(if idempotent { raw.idempotent() } else { raw })
        });
        has_come.recv_timeout(PATIENCE).expect("the request comes");
        wire.left.store(64 << 10, Ordering::Relaxed);
        service.with(|_| {
            answer.send(()).expect("the server waits");
            thread::sleep(SILENCE * 5);
        });
        wire.left.store(u64::MAX, Ordering::Relaxed);
        let outcome = calling.join().expect("the caller");
        if idempotent {
            let reply = outcome.expect("a reply");
            assert_eq!((reply.word(0), reply.payload_len()), (2, LONG));
        } else {
            let error = outcome.expect_err("no reply").error;
            assert!(matches!(error, CallError::Closed(_)), "{error:?}");
        }
    }
}
