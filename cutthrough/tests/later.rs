//! Methods that answer later: on any thread, at most as many at a time as the server allows, each once.

mod two;

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Deferred, Event, Failure, Node, RequestError, Service, Settings};
use cutthrough::rpc::{self, Answer, Client, Method, Pending, Raw, RpcError};
use cutthrough::{Channel, Landing, Payload};
use two::{Over, PATIENCE, small, until};

over_both! {
    answers_come_from_other_threads, an_answer_wakes_a_server_that_sleeps, no_answer_of_many_threads_is_lost,
    an_answer_that_is_thrown_away_ends_the_call, an_answer_may_be_given_at_once, no_more_calls_run_than_may,
    who_gives_up_is_not_answered, who_is_gone_is_not_answered, an_answer_may_outlive_its_server,
    a_long_answer_lands_in_the_callers_memory, an_answer_given_at_another_node_goes_to_who_has_asked,
    what_was_answered_is_sent_before_a_service_ends, a_raw_request_is_answered_by_another_thread,
}

const TWICE: Method<Vec<u8>, Vec<u8>> = Method::new(1);
const WAIT: Method<u32, u32> = Method::new(2);

type Held = Arc<Mutex<Vec<(u32, Answer<u32>)>>>;

/// A worker that answers with what it was asked for, twice.
fn work(node: &mut Node) -> JoinHandle<()> {
    let (sender, worker) = mpsc::channel::<(Vec<u8>, Answer<Vec<u8>>)>();
    rpc::serve_later(node, TWICE, move |asked, answer| sender.send((asked, answer)).expect("a worker"));
    std::thread::spawn(move || {
        for (asked, answer) in worker {
            let result = if asked.is_empty() { Err("nothing asked".into()) } else { Ok([&asked[..], &asked].concat()) };
            answer.give(result);
        }
    })
}

/// Keeps all answers to itself.
fn hold(node: &mut Node) -> Held {
    let held = Held::default();
    let its = Arc::clone(&held);
    rpc::serve_later(node, WAIT, move |number, answer| its.lock().expect("the list").push((number, answer)));
    held
}

fn connect(address: &str) -> Client {
    let service = Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread");
    Client::connect(Arc::new(service), address, PATIENCE).expect("a channel")
}

fn serve<T>(over: Over, settings: Settings, prepare: impl FnOnce(&mut Node) -> T) -> (Service, T, Client) {
    let (mut node, address) = over.listening(small(), settings);
    let made = prepare(&mut node);
    let server = Service::spawn(node, |_| ()).expect("a thread");
    (server, made, connect(&address))
}

fn poll(call: &mut Pending<u32>) -> Poll<Result<u32, RpcError>> {
    std::future::Future::poll(Pin::new(call), &mut Context::from_waker(Waker::noop()))
}

fn answers_come_from_other_threads(over: Over) {
    let (server, worker, client) = serve(over, Settings::default(), work);
    for len in [1, 29, 30, 58, 59, 4096, 100_000] {
        let asked: Vec<u8> = (0..len).map(|at: u32| at.to_le_bytes()[0]).collect();
        let twice = client.call(TWICE, &asked).expect("an answer");
        assert!(twice == [&asked[..], &asked].concat(), "{len} bytes");
    }
    assert_eq!(client.call(TWICE, &Vec::new()), Err(RpcError::Refused("nothing asked".into())));
    drop(server);
    worker.join().expect("its calls have ended");
}

/// It looked for answers of other threads each 10 ms.
fn an_answer_wakes_a_server_that_sleeps(over: Over) {
    const CALLS: u32 = 1500;
    for with_thread in [false, true] {
        let (mut node, address) = over.listening(small(), Settings::default());
        let (sender, worker) = mpsc::channel::<(u32, Answer<u32>)>();
        rpc::serve_later(&mut node, WAIT, move |number, answer| sender.send((number, answer)).expect("a worker"));
        std::thread::spawn(move || {
            for (number, answer) in worker {
                // By then the server has nothing to do.
                std::thread::sleep(Duration::from_micros(100));
                answer.give(Ok(number));
            }
        });
        let serving: Box<dyn FnOnce()> = if with_thread {
            let service = Service::spawn(node, |_| ()).expect("a thread");
            Box::new(move || drop(service))
        } else {
            let waits = move || while !matches!(node.wait(Some(PATIENCE)), Ok(Event::Closed(..)) | Err(_)) {};
            let thread = std::thread::spawn(waits);
            Box::new(move || thread.join().expect("no panic outside of handlers"))
        };
        let client = connect(&address);
        for number in 0..CALLS {
            let since = Instant::now();
            assert_eq!(client.call(WAIT, &number), Ok(number));
            assert!(since.elapsed() < PATIENCE / 2, "answer {number} does not wake the server");
        }
        drop(client);
        serving();
    }
}

/// Callers and workers at once, some of whom throw answers away, while the server now sleeps and now does not.
fn no_answer_of_many_threads_is_lost(over: Over) {
    const THREADS: u32 = 4;
    const CALLS: u32 = 400;
    let prepare = |node: &mut Node| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let (sender, worker) = mpsc::channel::<(u32, Answer<u32>)>();
                std::thread::spawn(move || {
                    for (number, answer) in worker {
                        match number % 16 {
                            0 => drop(answer),
                            1 => answer.give(Err("odd".into())),
                            _ => answer.give(Ok(number)),
                        }
                    }
                });
                sender
            })
            .collect();
        rpc::serve_later(node, WAIT, move |number, answer| {
            workers[(number / 16 % THREADS) as usize].send((number, answer)).expect("a worker");
        });
    };
    let (_server, (), client) = serve(over, Settings::default(), prepare);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = client.within(PATIENCE);
            scope.spawn(move || {
                for number in thread * CALLS..(thread + 1) * CALLS {
                    let expected = match number % 16 {
                        0 => Err(CallError::Failed(Failure::Abandoned).into()),
                        1 => Err(RpcError::Refused("odd".into())),
                        _ => Ok(number),
                    };
                    assert_eq!(client.call(WAIT, &number), expected);
                }
            });
        }
    });
}

/// And makes room for another.
fn an_answer_that_is_thrown_away_ends_the_call(over: Over) {
    let (_server, held, client) = serve(over, Settings { serve: 1, ..Settings::default() }, hold);
    for number in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| until("the call comes", || held.lock().expect("the list").pop().is_some()));
            assert_eq!(client.call(WAIT, &number), Err(CallError::Failed(Failure::Abandoned).into()));
        });
    }
}

fn an_answer_may_be_given_at_once(over: Over) {
    let prepare = |node: &mut Node| {
        rpc::serve_later(node, WAIT, |number, answer| match number {
            0 => panic!("a method that panics with the answer in hand"),
            number => answer.give(Ok(number + 1)),
        });
    };
    let (_server, (), client) = serve(over, Settings::default(), prepare);
    for number in 1..200 {
        assert_eq!(client.call(WAIT, &number), Ok(number + 1));
    }
    assert_eq!(client.call(WAIT, &0), Err(CallError::Failed(Failure::Panicked).into()));
    assert_eq!(client.call(WAIT, &3), Ok(4));
}

/// Those beyond them are told that the server is busy, and asked again until they run: once each. What is late before
/// has not run.
fn no_more_calls_run_than_may(over: Over) {
    const MOST: usize = 3;
    const CALLS: u32 = 40;
    let (_server, held, client) = serve(over, Settings { serve: MOST, ..Settings::default() }, hold);
    let mut calls: Vec<_> = (0..CALLS).map(|number| Some(client.start(WAIT, &number))).collect();
    let mut poll_all = || {
        let mut left = 0;
        for (number, slot) in (0..).zip(&mut calls) {
            let Some(call) = slot else { continue };
            match poll(call) {
                Poll::Ready(result) => {
                    assert_eq!(result, Ok(number * 2));
                    *slot = None;
                }
                Poll::Pending => left += 1,
            }
        }
        left
    };
    until("as many are put off as may", || {
        poll_all();
        held.lock().expect("the list").len() == MOST
    });
    // Who says that it is busy has a name, and a call that is made once hears it.
    let (told, hears) = mpsc::channel();
    until("there is room", || {
        let told = told.clone();
        match client.call_then(WAIT, &1000, move |result| told.send(result).expect("somebody listens")) {
            Err(RequestError::Full) => false,
            made => made.map(|()| true).expect("a call"),
        }
    });
    let busy = || CallError::Failed(Failure::Busy).into();
    assert_eq!(hears.recv_timeout(PATIENCE).expect("an answer"), Err(busy()));
    let short = Duration::from_millis(20);
    let late = client.within(short).call(WAIT, &1000);
    // It may be late before it has left, where others keep the node in use for so long.
    let not_sent = CallError::NotSent(RequestError::TimedOut(short));
    assert!([busy(), CallError::Late.into(), not_sent.into()].map(Err).contains(&late), "{late:?}");
    let mut ran = Vec::new();
    let since = Instant::now();
    while poll_all() > 0 {
        let mut held = held.lock().expect("the list");
        assert!(held.len() <= MOST, "{} run at a time", held.len());
        for (number, answer) in held.drain(..) {
            ran.push(number);
            answer.give(Ok(number * 2));
        }
        assert!(since.elapsed() < PATIENCE);
    }
    // What is late may be done all the same.
    ran.retain(|number| *number != 1000);
    ran.sort_unstable();
    assert_eq!(ran, (0..CALLS).collect::<Vec<_>>(), "each once");
}

fn who_gives_up_is_not_answered(over: Over) {
    let (_server, held, client) = serve(over, Settings { serve: 1, ..Settings::default() }, hold);
    let mut call = client.start(WAIT, &1);
    until("the call comes", || {
        assert!(poll(&mut call).is_pending());
        !held.lock().expect("the list").is_empty()
    });
    let (_, answer) = held.lock().expect("the list").remove(0);
    assert!(!answer.is_over() && answer.remaining().is_some_and(|left| left > Duration::from_secs(1)));
    drop(call);
    until("the server hears of it", || answer.is_over());
    // It counts until it is answered.
    let ran = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| client.call(WAIT, &2));
        std::thread::sleep(Duration::from_millis(5));
        assert!(held.lock().expect("the list").is_empty(), "one more than may runs");
        answer.give(Ok(9));
        until("the other runs", || {
            let Some((number, answer)) = held.lock().expect("the list").pop() else { return false };
            ran.fetch_add(1, Ordering::Relaxed);
            answer.give(Ok(number));
            true
        });
        assert_eq!(calling.join().expect("the caller"), Ok(2));
    });
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

fn who_is_gone_is_not_answered(over: Over) {
    let (mut node, address) = over.listening(small(), Settings { serve: 1, ..Settings::default() });
    let held = hold(&mut node);
    let _server = Service::spawn(node, |_| ()).expect("a thread");
    let client = connect(&address);
    let mut call = client.start(WAIT, &1);
    until("the call comes", || {
        assert!(poll(&mut call).is_pending());
        !held.lock().expect("the list").is_empty()
    });
    drop((call, client));
    let (_, answer) = held.lock().expect("the list").remove(0);
    until("the server hears of it", || answer.is_over());
    answer.give(Ok(1));
    // Whoever comes in its place is not told, and there is room for its own.
    let client = connect(&address);
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| client.call(WAIT, &2));
        until("the other runs", || {
            let Some((number, answer)) = held.lock().expect("the list").pop() else { return false };
            answer.give(Ok(number * 10));
            true
        });
        assert_eq!(calling.join().expect("the caller"), Ok(20));
    });
}

/// A server that answered all and then ended took most of these answers with it.
fn what_was_answered_is_sent_before_a_service_ends(over: Over) {
    for stops in [false, true] {
        let (server, held, client) = serve(over, Settings::default(), hold);
        let calls: Vec<_> = (0..8)
            .map(|number| {
                let client = client.clone();
                std::thread::spawn(move || client.call(WAIT, &number))
            })
            .collect();
        until("all calls come", || held.lock().expect("the list").len() == 8);
        for (number, answer) in held.lock().expect("the list").drain(..) {
            answer.give(Ok(number + 1));
        }
        if stops {
            drop(server.stop().expect("nobody shares it"));
        } else {
            drop(server);
        }
        for (call, number) in calls.into_iter().zip(1..) {
            assert_eq!(call.join().expect("no panic"), Ok(number));
        }
    }
}

fn an_answer_may_outlive_its_server(over: Over) {
    let (server, held, client) = serve(over, Settings::default(), hold);
    let mut calls: Vec<_> = (0..2).map(|number| client.start(WAIT, &number)).collect();
    until("both calls come", || {
        assert!(calls.iter_mut().all(|call| poll(call).is_pending()));
        held.lock().expect("the list").len() == 2
    });
    let mut answers = std::mem::take(&mut *held.lock().expect("the list"));
    assert!(!answers[0].1.is_over());
    drop(server);
    assert!(answers.iter().all(|(_, answer)| answer.is_over()), "nobody is there to send an answer");
    answers.pop().expect("two").1.give(Ok(0));
    drop(answers);
    for mut call in calls {
        until("the call ends with its channel", || match poll(&mut call) {
            Poll::Pending => false,
            Poll::Ready(outcome) => {
                assert!(matches!(outcome, Err(RpcError::Call(CallError::Closed(_)))), "{outcome:?}");
                true
            }
        });
    }
}

/// The answer to a raw call of a typed method is its bytes.
fn a_long_answer_lands_in_the_callers_memory(over: Over) {
    let (_server, _worker, client) = serve(over, Settings::default(), work);
    let asked = vec![7; 3000];
    let place = Landing::Buffer(vec![0; 6000]);
    let raw = Raw::new(TWICE.number()).body(cutthrough::am::Body::Copy(&asked)).reply_into(place);
    let mut reply = client.call_raw(raw).expect("an answer");
    assert!(matches!(reply.take_payload(), Payload::Buffer(bytes) if bytes == [7; 6000]));
}

/// A node that puts one answer off at a time, and another with a channel to it; both are polled by this thread.
struct Asked {
    server: Node,
    put_off: Arc<Mutex<Option<Deferred>>>,
    client: Node,
    channel: Channel,
}

impl Asked {
    fn new(over: Over) -> Self {
        let (mut server, address) = over.listening(small(), Settings::default());
        let put_off: Arc<Mutex<Option<Deferred>>> = Arc::default();
        let its = Arc::clone(&put_off);
        server.short(1, Args::Any, move |request| *its.lock().expect("a place") = Some(request.defer()));
        let mut client = Over::node(small(), Settings::default());
        let channel = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| client.connect(&address, PATIENCE).expect("a channel"));
            assert!(matches!(server.wait(Some(PATIENCE)), Ok(Event::Opened(_))));
            connecting.join().expect("the other thread")
        });
        Self { server, put_off, client, channel }
    }

    fn ask(&mut self) -> Deferred {
        self.client.request(self.channel, 1, &[]).expect("room");
        let mut put_off = None;
        until("the request comes", || {
            assert!(self.server.poll().is_none() && self.client.poll().is_none());
            put_off = self.put_off.lock().expect("a place").take();
            put_off.is_some()
        });
        put_off.expect("it has come")
    }

    /// The words of the answer, or the first bytes of its payload.
    fn answer(&mut self) -> Vec<u8> {
        let mut told = None;
        until("the answer comes", || {
            assert!(self.server.poll().is_none());
            told = self.client.poll();
            told.is_some()
        });
        match told.expect("it has come") {
            Event::Failed(failed) => failed.args,
            Event::Replied(mut reply) if reply.payload_len() > 0 => {
                let mut bytes = vec![0; reply.payload_len()];
                self.client.read(&mut reply, &mut bytes).expect("the payload");
                [reply.args(), &bytes].concat()
            }
            Event::Replied(reply) => reply.args().to_vec(),
            event => panic!("{event:?}"),
        }
    }
}

/// The same numbers stand for the request of another there.
fn an_answer_given_at_another_node_goes_to_who_has_asked(over: Over) {
    let (mut one, mut two) = (Asked::new(over), Asked::new(over));
    type Give = fn(&mut Node, Deferred, &[u8]);
    let ways: [(&str, Give); 4] = [
        ("words", |node, deferred, words| node.answer(deferred, words, Body::None)),
        ("a payload", |node, deferred, words| node.answer(deferred, &[], Body::Copy(words))),
        ("both", |node, deferred, words| node.answer(deferred, &words[..1], Body::Owned(words[1..].to_vec()))),
        ("a refusal", |node, deferred, words| node.refuse(deferred, Failure::Refused, words)),
    ];
    for (name, give) in ways {
        let (of_one, of_two) = (one.ask(), two.ask());
        give(&mut two.server, of_one, b"one");
        give(&mut one.server, of_two, b"two");
        assert_eq!((one.answer(), two.answer()), (b"one".to_vec(), b"two".to_vec()), "{name}");
        // Only one of both has asked.
        let of_one = one.ask();
        give(&mut two.server, of_one, b"one again");
        assert_eq!(one.answer(), b"one again", "{name}");
    }
}

#[test]
#[cfg(feature = "tokio")]
fn tokio_answers_and_awaits() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let tasks = tokio::runtime::Handle::current();
        let prepare = |node: &mut Node| {
            rpc::serve_later(node, WAIT, move |number, answer| {
                tasks.spawn(async move {
                    tokio::task::yield_now().await;
                    answer.give(Ok(number + 1));
                });
            });
        };
        let (_server, (), client) = serve(Over::Shm, Settings::default(), prepare);
        for number in 0..100 {
            assert_eq!(client.start(WAIT, &number).await, Ok(number + 1));
        }
    });
}

/// Only who had the node could, and whoever waits for nothing else has no reason to look.
fn a_raw_request_is_answered_by_another_thread(over: Over) {
    const RAW: u16 = 9;
    let (server, worker, client) = serve(over, Settings::default(), |node| {
        let (sender, worker) = mpsc::channel::<(u32, Deferred)>();
        rpc::serve_raw(node, RAW, move |request| {
            let word = request.word(0);
            drop(sender.send((word, request.defer())));
        });
        std::thread::spawn(move || {
            for (word, asked) in worker {
                match word {
                    0 => asked.fail(Failure::Refused, b"no such thing"),
                    1 => asked.reply(&[0; 65], Vec::new()),
                    len => asked.reply(&word.to_le_bytes(), vec![7; len as usize]),
                }
            }
        })
    });
    let call = |word: u32| Raw::new(RAW).args(&word.to_le_bytes());
    for len in [2, 100, 300_000_u32] {
        let mut reply = client.call_raw(call(len)).expect("an answer");
        assert_eq!((reply.word(0), reply.payload_len()), (len, len as usize));
        let place = Landing::Buffer(vec![0; len as usize]);
        reply = client.call_raw(call(len).reply_into(place)).expect("an answer");
        assert!(matches!(reply.take_payload(), Payload::Buffer(bytes) if bytes == vec![7; len as usize]));
    }
    let refused = client.call_raw(call(0)).expect_err("a refusal");
    assert_eq!((refused.error, &refused.args[..]), (CallError::Failed(Failure::Refused), &b"no such thing"[..]));
    let refused = client.call_raw(call(1)).expect_err("too many arguments");
    assert_eq!(refused.error, CallError::Failed(Failure::TooLong));
    drop((server, client));
    worker.join().expect("its requests have ended");
}
