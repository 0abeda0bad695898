//! Long replies wait for room as short ones do: in a queue, and in nobody's way.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod two;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Event, Failure, Node, RequestError, Service, Settings};
use cutthrough::rma::{Owner, Region, Remote};
use cutthrough::rpc::{self, Client, Method};
use cutthrough::{Channel, Config, Endpoint, Landing};
use two::{Over, PATIENCE, Server, small};

over_both! {
    who_takes_no_long_reply_in_stands_in_nobody_elses_way, three_that_answer_at_length_do_not_wait_for_each_other,
    a_long_request_waits_for_nobody,
}

const LONG: u16 = 1;
const SHORT: u16 = 2;
const LENGTH: Method<Vec<u8>, u64> = Method::new(3);
const BYTES: usize = 1 << 20;

/// Whoever waits for room waits longer than any test.
fn patient() -> Config {
    Config { deadline: Duration::from_secs(600), silence: Duration::from_secs(600), ..small() }
}

fn at_length(node: &mut Node) {
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    node.short(LONG, Args::Any, move |request| request.reply_with(&[], Body::Copy(&bytes)));
    node.short(SHORT, Args::Any, |request| request.reply(&[]));
    rpc::serve(node, LENGTH, |bytes| Ok(bytes.len() as u64));
}

fn who_takes_no_long_reply_in_stands_in_nobody_elses_way(over: Over) {
    let (mut far, address) = over.listening(patient(), Settings::default());
    at_length(&mut far);
    let region = Region::new(BYTES, 4096);
    let key = Owner::new(&mut far).register(&region);
    let server = Server::run(far, address);
    let mut idle = Over::node(patient(), Settings::default());
    let to_far = idle.connect(&server.address, PATIENCE).expect("a channel");
    let mut calls = Vec::new();
    for number in 0..6 {
        let asking = idle.ask(to_far, LONG).within(PATIENCE * 3);
        // A place for the payload that its sender cannot reach.
        let asking = if number % 2 == 1 { asking.reply_into(Landing::Buffer(vec![0; BYTES])) } else { asking };
        calls.push(asking.send().expect("room"));
    }
    let its = server.address.clone();
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let mut other = Over::node(patient(), Settings::default());
        let to_far = other.connect(&its, PATIENCE).expect("a channel");
        for _ in 0..100 {
            other.call(to_far, SHORT, &[], PATIENCE).expect("a reply");
        }
        // And a region is read.
        let mut into = vec![0; BYTES];
        let got = Remote::new(&mut other, to_far, key, PATIENCE).get(0, &mut into);
        done.send(got).expect("somebody waits");
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(Ok(())), "one that takes no replies in holds up others");
    for call in calls {
        let mut reply = idle.wait_for(call, PATIENCE).expect("a reply");
        let mut into = vec![0; BYTES];
        idle.read(&mut reply, &mut into).expect("its payload");
        assert!((0..BYTES).all(|i| into[i] == (i % 251) as u8));
    }
}

/// Asks for long replies, some at a time.
fn ask_at_length(node: &mut Node, channel: Channel, many: u32) {
    let (mut asked, mut answered, since) = (0, 0, Instant::now());
    let mut into = vec![0; BYTES];
    while answered < many {
        while asked < many.min(answered + 4) && node.request(channel, LONG, &[]).is_ok() {
            asked += 1;
        }
        match node.poll() {
            Some(Event::Replied(mut reply)) => {
                node.read(&mut reply, &mut into).expect("its payload");
                assert!((0..BYTES).all(|i| into[i] == (i % 251) as u8));
                answered += 1;
            }
            // It keeps no more than 32 MiB for a peer.
            Some(Event::Failed(failed)) => {
                assert_eq!(failed.error, CallError::Failed(Failure::Abandoned));
                asked -= 1;
            }
            _ => {}
        }
        assert!(since.elapsed() < PATIENCE * 2, "{answered} of {asked} were answered");
    }
}

/// Each of three asks the next one and answers the one before, all on one thread each.
fn three_that_answer_at_length_do_not_wait_for_each_other(over: Over) {
    let (mut servers, addresses): (Vec<Node>, Vec<String>) =
        (0..3).map(|_| over.listening(patient(), Settings::default())).unzip();
    let mut channels = Vec::new();
    for i in 0..3 {
        at_length(&mut servers[i]);
        // Whoever connects waits for the other to answer, so they connect one after the other.
        let next = Server::run(servers.remove((i + 1) % 3), String::new());
        let place = if i < 2 { i } else { 1 };
        channels.push(servers[place].connect(&addresses[(i + 1) % 3], PATIENCE).expect("a channel"));
        servers.insert((i + 1) % 3, next.end());
    }
    let done = Arc::new(AtomicU32::new(0));
    for (mut node, channel) in servers.into_iter().zip(channels) {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            ask_at_length(&mut node, channel, 30);
            done.fetch_add(1, Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < 4 {
                let _ = node.wait(Some(Duration::from_millis(5)));
            }
        });
    }
    let since = Instant::now();
    while done.load(Ordering::SeqCst) < 3 {
        assert!(since.elapsed() < PATIENCE, "they wait for each other");
        std::thread::sleep(Duration::from_millis(5));
    }
    done.fetch_add(1, Ordering::SeqCst);
}

/// A server that does not look takes nothing in: a call is under way or to be made again, and its task goes on.
fn a_long_request_waits_for_nobody(over: Over) {
    let (mut far, address) = over.listening(patient(), Settings::default());
    at_length(&mut far);
    let far = Server::run(far, address);
    let address = far.address.clone();
    let endpoint = Endpoint::open(Config { insecure: true, ..patient() }).expect("an endpoint");
    let service = Arc::new(Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(service, &address, PATIENCE).expect("a channel");
    let mut far = far.end();
    let (polled, is_polled) = mpsc::channel();
    let tasks = std::thread::spawn(move || {
        let mut calls: Vec<_> = (0..80).map(|_| client.start(LENGTH, &vec![1; BYTES])).collect();
        let mut context = Context::from_waker(Waker::noop());
        for call in &mut calls {
            assert!(Pin::new(call).poll(&mut context).is_pending());
        }
        polled.send(()).expect("somebody waits");
        let since = Instant::now();
        while !calls.is_empty() {
            calls.retain_mut(|call| match Pin::new(call).poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    assert_eq!(result, Ok(BYTES as u64));
                    false
                }
            });
            assert!(since.elapsed() < PATIENCE, "{} calls are left", calls.len());
        }
    });
    is_polled.recv_timeout(PATIENCE).expect("a poll does not wait");
    while !tasks.is_finished() {
        let _ = far.wait(Some(Duration::from_millis(1)));
    }
    tasks.join().expect("all calls end");
}

/// A reply beyond what is kept for one peer ended as if its method had not run: so the call was made again.
#[test]
fn a_method_whose_reply_is_not_kept_does_not_run_twice() {
    const CALLS: u32 = 60;
    const COUNTED: Method<u64, Vec<u8>> = Method::new(4);
    let config = Config { slots: 256, pool_bytes: 4 << 20, ..patient() };
    let (mut far, address) = Over::Shm.listening(config.clone(), Settings::default());
    let runs = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&runs);
    rpc::serve(&mut far, COUNTED, move |_| {
        its.fetch_add(1, Ordering::SeqCst);
        Ok(vec![7; BYTES])
    });
    let server = Server::run(far, address.clone());
    let endpoint = Endpoint::open(Config { insecure: true, ..config }).expect("an endpoint");
    let service = Arc::new(Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel").within(PATIENCE * 2);
    let mut far = server.end();
    let mut calls: Vec<_> = (0..CALLS).map(|number| client.start(COUNTED, &u64::from(number))).collect();
    let mut context = Context::from_waker(Waker::noop());
    // A poll that finds the node in use makes no call; one of these does not.
    for _ in 0..10 {
        for call in &mut calls {
            assert!(Pin::new(call).poll(&mut context).is_pending(), "nobody serves");
        }
    }
    // Nobody takes a reply in before all of them are made.
    service.with(|_| {
        let since = Instant::now();
        while runs.load(Ordering::SeqCst) < CALLS && since.elapsed() < PATIENCE {
            let _ = far.wait(Some(Duration::from_millis(1)));
        }
    });
    assert_eq!(runs.load(Ordering::SeqCst), CALLS);
    let _server = Server::run(far, address);
    let (mut replied, mut thrown_away, since) = (0, 0, Instant::now());
    while !calls.is_empty() {
        calls.retain_mut(|call| match Pin::new(call).poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(Ok(bytes)) => {
                assert!(bytes == [7; BYTES]);
                replied += 1;
                false
            }
            Poll::Ready(Err(error)) => {
                assert_eq!(error, CallError::Failed(Failure::Abandoned).into());
                thrown_away += 1;
                false
            }
        });
        assert!(since.elapsed() < PATIENCE, "{} calls are left", calls.len());
    }
    assert_eq!((runs.load(Ordering::SeqCst), replied + thrown_away), (CALLS, CALLS), "a method has run twice");
    assert!(replied >= 32 && thrown_away > 0, "{replied} replies of 1 MiB are kept, or on their way");
}

/// The ring in which lists of pages travel is full long before that of the messages.
#[test]
fn a_request_whose_list_of_pages_finds_no_room_says_so_and_can_be_made_again() {
    const PAGES: usize = 400;
    let (mut far, address) = Over::Shm.listening(patient(), Settings::default());
    far.long(LONG, Args::Any, 64 << 20, |request| {
        let len = request.payload_len() as u32;
        request.reply(&[len]);
    });
    let server = Server::run(far, address.clone());
    let mut node = Over::node(patient(), Settings::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    let far = server.end();
    let page_bytes = node.endpoint().page_bytes() as usize;
    let ask = |node: &mut Node| {
        let pages = (0..PAGES).map(|_| node.page(channel, page_bytes).expect("the pages of refused lists are back"));
        let pages: Vec<_> = pages.collect();
        node.ask(channel, LONG).body(Body::Pages(pages)).send()
    };
    let mut made = 0;
    let refused = loop {
        match ask(&mut node) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(refused == RequestError::Full && (1..16).contains(&made), "{refused:?} after {made}");
    assert_eq!(ask(&mut node), Err(RequestError::Full));
    let _server = Server::run(far, address);
    let since = Instant::now();
    let mut answered = 0;
    while answered <= made {
        if let Some(Event::Replied(reply)) = node.poll() {
            assert_eq!(reply.word(0) as usize, PAGES * page_bytes);
            answered += 1;
            if answered == made {
                ask(&mut node).expect("room");
            }
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

/// A reply whose list of pages found no room there ended as one that is too long.
#[test]
fn a_reply_whose_list_of_pages_finds_no_room_waits_for_it() {
    const PAGES: usize = 400;
    const CALLS: usize = 12;
    let config = Config { pool_bytes: 64 << 20, ..patient() };
    let (mut far, address) = Over::Shm.listening(config.clone(), Settings::default());
    let page_bytes = far.endpoint().page_bytes() as usize;
    let served = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&served);
    far.short(LONG, Args::Any, move |mut request| {
        let pages = (0..PAGES).map(|_| request.page(page_bytes).expect("pages for all replies")).collect();
        request.reply_with(&[], Body::Pages(pages));
        its.fetch_add(1, Ordering::SeqCst);
    });
    let server = Server::run(far, address);
    let mut node = Over::node(config, Settings::default());
    let channel = node.connect(&server.address, PATIENCE).expect("a channel");
    for _ in 0..CALLS {
        node.request(channel, LONG, &[]).expect("room");
    }
    // Nobody takes a reply in before all of them are made.
    let since = Instant::now();
    while served.load(Ordering::SeqCst) < CALLS as u32 {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_micros(200));
    }
    for _ in 0..CALLS {
        match node.wait(Some(PATIENCE)) {
            Ok(Event::Replied(reply)) => assert_eq!(reply.payload_len(), PAGES * page_bytes),
            other => panic!("instead of a reply: {other:?}"),
        }
    }
}
