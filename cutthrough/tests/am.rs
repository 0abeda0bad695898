//! Active messages through their public interface, over shared memory and over UDP.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod two;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Continuing, Deferred, Ended, Event, Failed, Failure, Node, Reply};
use cutthrough::am::{RequestError, Service, Settings, WINDOW};
use cutthrough::{Channel, CloseReason, Config, Landing, Payload};
use two::{Over, PATIENCE, Server, small};

over_both! {
    words_come_back, a_request_without_a_reply_is_acknowledged, medium_payloads_are_copied,
    long_payloads_land_where_they_are_read, a_long_payload_lands_where_its_token_says,
    replies_land_where_their_token_says, replies_come_by_reference, wrong_requests_are_refused_by_name,
    a_panic_is_an_error_and_the_node_lives, answers_may_be_put_off, a_thrown_away_request_is_abandoned,
    a_deadline_ends_a_call, a_cancelled_call_gives_its_memory_back,
    a_channel_that_is_closed_gives_the_memory_of_its_calls_back, a_server_says_that_it_is_busy,
    a_dead_peer_ends_every_call, two_that_flood_each_other_do_not_deadlock, three_in_a_ring_do_not_deadlock,
    a_full_window_says_so, reply_handlers_are_called,
    a_service_serves_by_itself, what_is_no_active_message_closes_the_channel,
    every_request_is_served_once_and_in_order,
}

const ECHO: u16 = 1;

fn echo(node: &mut Node) {
    node.short(ECHO, Args::Any, |request| {
        let args = request.args().to_vec();
        request.reply_bytes(&args);
    });
}

/// The answer to a call: the next event that tells of one.
fn answer(node: &mut Node) -> Result<Reply, CallError> {
    loop {
        match node.wait(Some(PATIENCE)).expect("an event in time") {
            Event::Replied(reply) => return Ok(reply),
            Event::Failed(failed) => return Err(failed.error),
            _ => {}
        }
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed).to_le_bytes()[0]).collect()
}

fn words_come_back(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(9, Args::Words(16), |request| {
            let sums: Vec<u32> = (0..16).map(|i| request.word(i) + 1).collect();
            request.reply(&sums);
        });
    });
    for round in 0..1000 {
        let words: Vec<u32> = (0..16).map(|i| i * round).collect();
        let reply = node.call(channel, 9, &words, PATIENCE).expect("a reply");
        assert_eq!(reply.args().len(), 64);
        assert!((0..16).all(|i| reply.word(i) == words[i] + 1) && reply.word(16) == 0);
    }
}

fn a_request_without_a_reply_is_acknowledged(over: Over) {
    let seen = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&seen);
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(2, Args::Words(1), move |request| its.store(request.word(0), Ordering::SeqCst));
    });
    let reply = node.call(channel, 2, &[77], PATIENCE).expect("an acknowledgement");
    assert_eq!((reply.args(), seen.load(Ordering::SeqCst)), (&[][..], 77));
}

fn medium_payloads_are_copied(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| {
        node.medium(3, Args::Any, |request| {
            let mut back = request.medium().to_vec();
            back.reverse();
            request.reply_with(b"reversed", Body::Copy(&back));
        });
    });
    for len in [1, 63, 64, 1000, 4096] {
        let payload = pattern(len, len);
        node.ask(channel, 3).body(Body::Copy(&payload)).send().expect("room");
        let mut reply = answer(&mut node).expect("a reply");
        assert_eq!((reply.args(), reply.payload_len()), (&b"reversed"[..], len));
        let mut back = vec![0; len];
        node.read(&mut reply, &mut back).expect("the payload");
        back.reverse();
        assert_eq!(back, payload);
    }
    // No payload at all is no payload, not an error.
    assert_eq!(node.call(channel, 3, &[], PATIENCE).expect("a reply").payload_len(), 0);
}

fn long_payloads_land_where_they_are_read(over: Over) {
    let place = Arc::new(Mutex::new(vec![0_u8; 3 << 20]));
    let its = Arc::clone(&place);
    let (_server, mut node, channel) = over.serve(|node| {
        node.long(4, Args::Words(1), 1 << 20, move |mut request| {
            let (at, len) = (request.word(0) as usize, request.payload_len());
            request.read(&mut its.lock().expect("the place")[at..at + len]).expect("the payload");
        });
    });
    for (at, len) in [(0, 5), (100, 70_000), (1 << 20, 1 << 20)] {
        let payload = pattern(at, len);
        let word = u32::try_from(at).expect("small").to_le_bytes();
        node.ask(channel, 4).args(&word).body(Body::Copy(&payload)).send().expect("room");
        answer(&mut node).expect("an acknowledgement");
        assert_eq!(place.lock().expect("the place")[at..at + len], payload);
    }
}

fn a_long_payload_lands_where_its_token_says(over: Over) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&got);
    let (mut far, address) = over.listening(small(), Settings::default());
    far.long(5, Args::Any, 1 << 20, move |mut request| match request.take_payload() {
        Payload::Buffer(bytes) => *its.lock().expect("the place") = bytes,
        other => panic!("not in its buffer: {other:?}"),
    });
    let mut node = Over::node(small(), Settings::default());
    let channel = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect(&address, PATIENCE).expect("a channel"));
        let Event::Opened(at_far) = far.wait(Some(PATIENCE)).expect("a caller") else { panic!("no caller") };
        (connecting.join().expect("the other thread"), at_far)
    });
    let unused = far.grant(channel.1, Landing::Buffer(vec![7; 9])).expect("a token");
    assert_eq!(far.revoke(channel.1, unused), Ok(Landing::Buffer(vec![7; 9])));
    let token = far.grant(channel.1, Landing::Buffer(vec![0; 9000])).expect("a token");
    let server = Server::run(far, address);
    let payload = pattern(1, 9000);
    node.ask(channel.0, 5).body(Body::Copy(&payload)).to(token).send().expect("room");
    answer(&mut node).expect("an acknowledgement");
    assert_eq!(*got.lock().expect("the place"), payload);
    // The token was good once.
    node.ask(channel.0, 5).body(Body::Copy(&payload)).to(token).send().expect("room");
    assert!(matches!(answer(&mut node), Err(CallError::Failed(Failure::Token))));
    drop(server);
}

/// A server of pages: the number of a page is the argument.
fn pages(node: &mut Node) {
    node.short(6, Args::Words(2), |request| {
        let page = pattern(request.word(0) as usize, request.word(1) as usize);
        request.reply_with(b"page", Body::Copy(&page));
    });
    node.short(7, Args::Words(2), |mut request| {
        let page = pattern(request.word(0) as usize, request.word(1) as usize);
        let mut own = request.page(page.len()).expect("a page");
        own.copy_from_slice(&page);
        request.reply_with(b"page", Body::Page(own));
    });
}

fn args(number: usize, len: usize) -> [u8; 8] {
    (number as u64 | (len as u64) << 32).to_le_bytes()
}

fn replies_land_where_their_token_says(over: Over) {
    let (_server, mut node, channel) = over.serve(pages);
    for (handler, len) in [(6, 100), (6, 8192), (6, 100_000), (7, 8192), (7, 100_000)] {
        for landing in [Landing::Pages(len), Landing::Buffer(vec![0; len])] {
            node.ask(channel, handler).args(&args(len, len)).reply_into(landing.clone()).send().expect("room");
            let mut reply = answer(&mut node).expect("a reply");
            let bytes = match (reply.take_payload(), landing) {
                (Payload::Landed(landed), Landing::Pages(_)) => landed.to_vec(),
                (Payload::Buffer(bytes), Landing::Buffer(_)) => bytes,
                (other, _) => panic!("elsewhere: {other:?}"),
            };
            assert_eq!(bytes, pattern(len, len));
            assert!(reply.take_landing().is_none());
        }
    }
    // A place that is too short is given back, and the requester is told.
    node.ask(channel, 6).args(&args(1, 5000)).reply_into(Landing::Buffer(vec![7; 4999])).send().expect("room");
    match node.wait(Some(PATIENCE)).expect("an event") {
        Event::Failed(failed) => {
            assert_eq!(failed.error, CallError::Failed(Failure::Token));
            assert_eq!(failed.landing, Some(Landing::Buffer(vec![7; 4999])));
        }
        other => panic!("{other:?}"),
    }
    // So is one that is not needed.
    node.ask(channel, 6).args(&args(1, 0)).reply_into(Landing::Buffer(vec![8; 10])).send().expect("room");
    let mut reply = answer(&mut node).expect("a reply");
    assert_eq!(reply.take_landing(), Some(Landing::Buffer(vec![8; 10])));
}

fn replies_come_by_reference(over: Over) {
    let (_server, mut node, channel) = over.serve(pages);
    for round in 0..500 {
        node.ask(channel, 7).args(&args(round, 8192)).send().expect("room");
        let mut reply = answer(&mut node).expect("a reply");
        if over == Over::Shm {
            assert_eq!((reply.receipt().path, reply.receipt().copies), (cutthrough::Path::Reference, 0));
        }
        let mut bytes = vec![0; 8192];
        node.read(&mut reply, &mut bytes).expect("the payload");
        assert_eq!(bytes, pattern(round, 8192));
    }
}

fn wrong_requests_are_refused_by_name(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| {
        echo(node);
        node.short(2, Args::Words(3), |request| request.reply(&[]));
        node.medium(3, Args::Any, |request| request.reply(&[]));
        node.short(4, Args::AtLeast(5), |request| request.refuse(b"no"));
        node.short(5, Args::Any, |request| request.reply(&[0; 17]));
    });
    let mut failure = |handler, args: &[u8], body| {
        node.ask(channel, handler).args(args).body(body).send().expect("room");
        match node.wait(Some(PATIENCE)).expect("an event") {
            Event::Failed(failed) => (failed.error, failed.args),
            other => panic!("{other:?}"),
        }
    };
    let says = |why| (CallError::Failed(why), Vec::new());
    assert_eq!(failure(400, &[], Body::None), says(Failure::Unknown));
    assert_eq!(failure(u16::MAX, &[], Body::None), says(Failure::Unknown));
    assert_eq!(failure(2, &[0; 8], Body::None), says(Failure::Arguments));
    assert_eq!(failure(2, &[0; 13], Body::None), says(Failure::Arguments));
    assert_eq!(failure(4, &[0; 4], Body::None), says(Failure::Arguments));
    assert_eq!(failure(ECHO, &[], Body::Copy(b"x")), says(Failure::TooLong));
    assert_eq!(failure(3, &[], Body::Copy(&[0; 4097])), says(Failure::TooLong));
    assert_eq!(failure(5, &[], Body::None), says(Failure::TooLong));
    assert_eq!(failure(4, &[0; 5], Body::None), (CallError::Failed(Failure::Refused), b"no".to_vec()));
    assert_eq!(node.request(channel, ECHO, &[0; 17]).err(), Some(RequestError::TooLong));
    assert_eq!(node.request_bytes(channel, ECHO, &[0; 65]).err(), Some(RequestError::TooLong));
    assert_eq!(node.call(channel, ECHO, &[5], PATIENCE).expect("still there").word(0), 5);
}

fn a_panic_is_an_error_and_the_node_lives(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| {
        echo(node);
        node.short(2, Args::Any, |request| {
            assert!(request.word(0) != 1, "a handler that panics, as it shall");
            request.reply(&[]);
        });
    });
    for _ in 0..3 {
        let error = node.call(channel, 2, &[1], PATIENCE).map(drop).expect_err("a panic");
        assert_eq!(error, CallError::Failed(Failure::Panicked).into());
        assert_eq!(node.call(channel, ECHO, &[5], PATIENCE).expect("still there").word(0), 5);
        node.call(channel, 2, &[2], PATIENCE).expect("the same handler is");
    }
}

/// A node that puts all requests off, and what it has put off.
fn putting_off(node: &mut Node, handler: u16) -> Arc<Mutex<Vec<Deferred>>> {
    let put_off = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&put_off);
    node.short(handler, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    put_off
}

fn answers_may_be_put_off(over: Over) {
    let mut put_off = None;
    let (server, mut node, channel) = over.serve(|node| put_off = Some(putting_off(node, 2)));
    let put_off = put_off.expect("the list");
    let calls: Vec<_> = (0..5).map(|i| node.request(channel, 2, &[i]).expect("room")).collect();
    while put_off.lock().expect("the list").len() < 5 {
        let _ = node.poll();
    }
    let mut far = server.end();
    // In another order.
    for (i, deferred) in put_off.lock().expect("the list").drain(..).enumerate().rev() {
        assert!(!deferred.is_over());
        far.answer(deferred, &[i as u8], Body::None);
    }
    let _server = Server::run(far, String::new());
    for _ in 0..5 {
        let reply = answer(&mut node).expect("a reply");
        let place = calls.iter().position(|call| *call == reply.call());
        assert_eq!(place, Some(usize::from(reply.args()[0])));
    }
}

fn a_thrown_away_request_is_abandoned(over: Over) {
    let mut put_off = None;
    let (_server, mut node, channel) = over.serve(|node| put_off = Some(putting_off(node, 2)));
    let put_off = put_off.expect("the list");
    node.request(channel, 2, &[]).expect("room");
    while put_off.lock().expect("the list").is_empty() {
        assert!(node.poll().is_none());
    }
    put_off.lock().expect("the list").clear();
    assert_eq!(answer(&mut node).map(drop), Err(CallError::Failed(Failure::Abandoned)));
}

fn a_deadline_ends_a_call(over: Over) {
    let mut put_off = None;
    let (server, mut node, channel) = over.serve(|node| put_off = Some(putting_off(node, 2)));
    let put_off = put_off.expect("the list");
    // Long enough that the handler runs before, on a busy machine too.
    let call = node.ask(channel, 2).within(Duration::from_millis(300)).send().expect("room");
    match node.wait(Some(PATIENCE)).expect("an event") {
        Event::Failed(failed) => assert_eq!((failed.call, failed.error), (call, CallError::Late)),
        other => panic!("{other:?}"),
    }
    // The server learns of it, by the time that the call has carried and by a notice.
    let since = Instant::now();
    let deferred = loop {
        let _ = node.poll();
        if let Some(deferred) = put_off.lock().expect("the list").pop() {
            break deferred;
        }
        assert!(since.elapsed() < PATIENCE, "the call never came");
    };
    while !deferred.is_over() || deferred.remaining() != Some(Duration::ZERO) {
        let _ = node.poll();
        assert!(since.elapsed() < PATIENCE);
    }
    // It frees the window, and a late answer does no harm.
    let since = Instant::now();
    while node.room(channel) < WINDOW {
        assert!(node.poll().is_none());
        assert!(since.elapsed() < PATIENCE);
    }
    let mut far = server.end();
    far.answer(deferred, b"late", Body::None);
    let _server = Server::run(far, String::new());
    assert!(node.wait(Some(Duration::from_millis(20))).is_err(), "nobody is told of it");
    // A call whose time is over when it is made is not served.
    node.ask(channel, 2).within(Duration::ZERO).send().expect("room");
    assert!(matches!(answer(&mut node).map(drop), Err(CallError::Late | CallError::Failed(Failure::Late))));
    assert_eq!(node.call(channel, 2, &[], Duration::from_millis(20)).map(drop), Err(CallError::Late.into()));
}

fn a_channel_that_is_closed_gives_the_memory_of_its_calls_back(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| drop(putting_off(node, 2)));
    let place = Landing::Buffer(vec![0xee; 5000]);
    let call = node.ask(channel, 2).reply_into(place.clone()).send().expect("room");
    let (sender, given_back) = std::sync::mpsc::channel();
    let take = move |_: &mut Continuing<'_>, reply: Result<Reply, Failed>| {
        sender.send(reply.map_or_else(|failed| failed.landing, |_| None)).expect("somebody waits");
    };
    node.ask(channel, 2).reply_into(place.clone()).send_then(take).expect("room");
    node.close(channel);
    let failed = match node.poll() {
        Some(Event::Failed(failed)) => failed,
        other => panic!("{other:?}"),
    };
    let here = CallError::Closed(Ended::Closed(CloseReason::Here));
    assert_eq!((failed.call, failed.error, failed.landing), (call, here, Some(place.clone())));
    assert_eq!(given_back.try_recv(), Ok(Some(place)));
}

fn a_cancelled_call_gives_its_memory_back(over: Over) {
    let mut put_off = None;
    let (server, mut node, channel) = over.serve(|node| {
        put_off = Some(putting_off(node, 2));
        echo(node);
    });
    let put_off = put_off.expect("the list");
    let place = Landing::Buffer(vec![0xee; 5000]);
    let call = node.ask(channel, 2).reply_into(place.clone()).send().expect("room");
    assert_eq!(node.cancel(call), Some(place));
    assert_eq!(node.cancel(call), None);
    while !put_off.lock().expect("the list").first().is_some_and(Deferred::is_over) {
        let _ = node.poll();
    }
    // The server has heard of it, and replies all the same: nothing goes. See `too_late.rs` for one that has not.
    let mut far = server.end();
    let deferred = put_off.lock().expect("the list").pop().expect("a request");
    far.answer(deferred, b"too late", Body::Copy(&[1; 5000]));
    let _server = Server::run(far, String::new());
    node.call(channel, ECHO, &[1], PATIENCE).expect("a reply");
    assert!(node.poll().is_none());
    assert_eq!(node.room(channel), WINDOW);
}

fn a_server_says_that_it_is_busy(over: Over) {
    let settings = Settings { serve: 2, ..Settings::default() };
    let mut put_off = None;
    let (_server, mut node, channel) = over.serve_with(small(), settings, |node| {
        put_off = Some(putting_off(node, 2));
    });
    let put_off = put_off.expect("the list");
    for _ in 0..3 {
        node.request(channel, 2, &[]).expect("room");
    }
    assert_eq!(answer(&mut node).map(drop), Err(CallError::Failed(Failure::Busy)));
    put_off.lock().expect("the list").clear();
    for _ in 0..2 {
        assert_eq!(answer(&mut node).map(drop), Err(CallError::Failed(Failure::Abandoned)));
    }
    node.request(channel, 2, &[]).expect("room");
    while put_off.lock().expect("the list").is_empty() {
        assert!(node.poll().is_none());
    }
}

fn a_dead_peer_ends_every_call(over: Over) {
    let mut put_off = None;
    let (server, mut node, channel) = over.serve(|node| put_off = Some(putting_off(node, 2)));
    for _ in 0..5 {
        node.request(channel, 2, &[]).expect("room");
    }
    let put_off = put_off.expect("the list");
    while put_off.lock().expect("the list").len() < 5 {
        let _ = node.poll();
    }
    drop(server.end());
    for _ in 0..5 {
        assert!(matches!(answer(&mut node), Err(CallError::Closed(_))));
    }
    assert!(matches!(node.wait(Some(PATIENCE)), Ok(Event::Closed(closed, _)) if closed == channel));
    assert_eq!(node.request(channel, 2, &[]).err(), Some(RequestError::Closed));
    assert_eq!(node.wait_for_room(channel, Some(PATIENCE)), Err(RequestError::Closed));
}

/// Makes requests until so many were answered; serves meanwhile.
fn flood(node: &mut Node, channel: Channel, many: u32) {
    let (mut asked, mut answered) = (0, 0);
    let since = Instant::now();
    while answered < many {
        while asked < many && node.request(channel, ECHO, &[asked]).is_ok() {
            asked += 1;
        }
        if let Some(event) = node.poll() {
            match event {
                Event::Replied(reply) => {
                    assert_eq!(reply.word(0), answered);
                    answered += 1;
                }
                Event::Opened(_) | Event::Connected(..) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(since.elapsed() < PATIENCE * 2, "{answered} of {asked} were answered");
    }
}

/// Serves until all have their answers.
fn serve_on(node: &mut Node, done: &AtomicU32, all: u32) {
    done.fetch_add(1, Ordering::SeqCst);
    while done.load(Ordering::SeqCst) < all {
        let _ = node.wait(Some(Duration::from_millis(5)));
    }
}

fn two_that_flood_each_other_do_not_deadlock(over: Over) {
    let (mut far, address) = over.listening(small(), Settings::default());
    echo(&mut far);
    let many = 20_000;
    let done = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&done);
    let far = std::thread::spawn(move || {
        let Ok(Event::Opened(channel)) = far.wait(Some(PATIENCE)) else { panic!("no caller") };
        flood(&mut far, channel, many);
        serve_on(&mut far, &its, 2);
    });
    let mut node = Over::node(small(), Settings::default());
    echo(&mut node);
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    flood(&mut node, channel, many);
    serve_on(&mut node, &done, 2);
    far.join().expect("the other side");
}

/// Each of three calls the next one and serves the one before, all on one thread each.
fn three_in_a_ring_do_not_deadlock(over: Over) {
    let made: Vec<_> = (0..3).map(|_| over.listening(small(), Settings::default())).collect();
    let addresses: Vec<String> = made.iter().map(|(_, address)| address.clone()).collect();
    // Whoever connects waits for the other to answer, so they connect one after the other.
    let mut servers: Vec<Node> = made.into_iter().map(|(node, _)| node).collect();
    let mut channels = Vec::new();
    for i in 0..3 {
        echo(&mut servers[i]);
        let next = Server::run(servers.remove((i + 1) % 3), String::new());
        let place = if i < 2 { i } else { 1 };
        channels.push(servers[place].connect(&addresses[(i + 1) % 3], PATIENCE).expect("a channel"));
        servers.insert((i + 1) % 3, next.end());
    }
    let done = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = servers
        .into_iter()
        .zip(channels)
        .map(|(mut node, channel)| {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                flood(&mut node, channel, 5000);
                serve_on(&mut node, &done, 3);
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("one of three");
    }
}

fn a_full_window_says_so(over: Over) {
    let settings = Settings { window: 3, ..Settings::default() };
    let mut put_off = None;
    let (_server, mut node, channel) = over.serve_with(small(), settings, |node| {
        put_off = Some(putting_off(node, 2));
        echo(node);
    });
    for left in (0..3).rev() {
        node.request(channel, 2, &[]).expect("room");
        assert_eq!(node.room(channel), left);
    }
    assert_eq!(node.request(channel, 2, &[]).err(), Some(RequestError::Full));
    let short = Duration::from_millis(10);
    assert_eq!(node.wait_for_room(channel, Some(short)), Err(RequestError::TimedOut(short)));
    put_off.expect("the list").lock().expect("the list").clear();
    node.wait_for_room(channel, Some(PATIENCE)).expect("room");
    assert_eq!(node.call(channel, ECHO, &[9], PATIENCE).expect("a reply").word(0), 9);
    // The other answers were kept for those who poll for them.
    for _ in 0..3 {
        assert_eq!(answer(&mut node).map(drop), Err(CallError::Failed(Failure::Abandoned)));
    }
}

fn reply_handlers_are_called(over: Over) {
    let (_server, mut node, channel) = over.serve(echo);
    let sum = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&sum);
    node.on_reply(4, move |reply| {
        its.fetch_add(reply.map_or(1000, |reply| u64::from(reply.word(0))), Ordering::SeqCst);
    });
    for i in 1..=4_u32 {
        node.ask(channel, ECHO).args(&i.to_le_bytes()).then(4).send().expect("room");
    }
    node.ask(channel, 99).then(4).send().expect("room");
    assert_eq!(node.ask(channel, ECHO).then(5).send(), Err(RequestError::NoHandler));
    let since = Instant::now();
    while sum.load(Ordering::SeqCst) < 1010 {
        assert!(node.poll().is_none());
        assert!(since.elapsed() < PATIENCE);
    }
    assert_eq!(sum.load(Ordering::SeqCst), 1010);
}

fn a_service_serves_by_itself(over: Over) {
    let (mut far, address) = over.listening(small(), Settings::default());
    echo(&mut far);
    let opened = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&opened);
    let far = Service::spawn(far, move |event| {
        if matches!(event, Event::Opened(_)) {
            its.fetch_add(1, Ordering::SeqCst);
        }
    })
    .expect("a thread");
    let mut node = Over::node(small(), Settings::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    for i in 0..200 {
        if i % 50 == 0 {
            // Long enough for the service to sleep.
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(node.call(channel, ECHO, &[i], PATIENCE).expect("a reply").word(0), i);
        // Other threads use the node meanwhile.
        assert!(far.with(|node| node.channels().count()) <= 1);
    }
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    let mut far = far.stop().expect("the node");
    assert!(far.poll().is_none());
}

fn what_is_no_active_message_closes_the_channel(over: Over) {
    let (mut far, address) = over.listening(small(), Settings::default());
    echo(&mut far);
    let server = Server::run(far, address.clone());
    let lies: [&[u8]; 5] = [b"", b"hello", &[9; 40], &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], &[1; 96]];
    for lie in lies {
        let mut liar = cutthrough::Endpoint::open(Config { insecure: true, ..small() }).expect("an endpoint");
        let channel = liar.connect(&address, PATIENCE).expect("a channel");
        liar.send(channel, lie).expect("room");
        let since = Instant::now();
        while !matches!(liar.wait(Some(PATIENCE)), Ok(cutthrough::Event::Closed(..))) {
            assert!(since.elapsed() < PATIENCE, "{lie:?} was believed");
        }
    }
    let mut node = Over::node(small(), Settings::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    assert_eq!(node.call(channel, ECHO, &[3], PATIENCE).expect("others are served").word(0), 3);
    drop(server);
}

fn every_request_is_served_once_and_in_order(over: Over) {
    let next = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&next);
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(ECHO, Args::Words(1), move |request| {
            let number = request.word(0);
            assert_eq!(its.fetch_add(1, Ordering::SeqCst), number);
            request.reply(&[number]);
        });
    });
    flood(&mut node, channel, 30_000);
    assert_eq!(next.load(Ordering::SeqCst), 30_000);
}
