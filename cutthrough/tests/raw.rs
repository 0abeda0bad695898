//! Raw calls: payloads from where they lie to where the caller says, and what becomes of the place when a call fails.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod two;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cutthrough::am::{Body, CallError, Deferred, Failure, Node, Request, RequestError, Service, Settings, WINDOW};
use cutthrough::rpc::{self, Client, Method, Raw, RawPending};
use cutthrough::{Config, Landing, NoMemory, Path, Payload};
use two::{Over, PATIENCE, Server, small, until};

over_both! {
    a_reply_comes_from_the_servers_pages, a_reply_lands_in_the_callers_pages, a_reply_lands_in_the_callers_buffer,
    a_payload_goes_from_the_callers_pages, a_place_that_is_not_used_comes_back, a_call_that_fails_gives_the_place_back,
    nothing_is_written_to_the_place_of_a_dropped_call, a_call_may_be_dropped_at_any_time,
    a_late_place_is_used_again_when_its_token_is_dead, more_calls_than_tokens_are_answered,
    a_continuation_gets_the_reply, what_cannot_be_called_comes_back, pages_go_once,
    an_idempotent_call_finds_a_server_that_comes_again, a_call_is_handed_over,
}

const PAGE: usize = 4096;
/// All of the landing memory of a caller's channel.
const PLACE: usize = 4 * PAGE;
/// Answers with as many bytes as the first word says, from a page or from private memory.
const FROM_PAGE: u16 = 1;
const FROM_MEMORY: u16 = 2;
/// Answers with the first and the last byte, and the number of bytes, of a payload.
const ENDS: u16 = 3;
const LATER: u16 = 4;
const REFUSES: u16 = 5;
const REVERSE: Method<Vec<u8>, Vec<u8>> = Method::new(6);
const POISON: u8 = 0xa5;

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(byte).collect()
}

fn methods(node: &mut Node) {
    rpc::serve_raw(node, FROM_PAGE, |mut request| {
        let mut page = request.page(request.word(0) as usize).expect("a page");
        page.iter_mut().enumerate().for_each(|(at, place)| *place = byte(at));
        request.reply_with(b"paged", Body::Page(page));
    });
    rpc::serve_raw(node, FROM_MEMORY, |request| {
        let bytes = bytes(request.word(0) as usize);
        request.reply_with(b"borrowed", Body::Copy(&bytes));
    });
    rpc::serve_raw(node, ENDS, |mut request| {
        let payload = read(&mut request);
        let ends = [payload.first(), payload.last()].map(|byte| byte.map_or(0, |byte| u32::from(*byte)));
        request.reply(&[ends[0], ends[1], payload.len() as u32]);
    });
    rpc::serve_raw(node, REFUSES, |request| request.refuse(b"no"));
    rpc::serve(node, REVERSE, |mut bytes| {
        bytes.reverse();
        Ok(bytes)
    });
}

/// The payload of a request.
fn read(request: &mut Request<'_>) -> Vec<u8> {
    let mut payload = vec![0; request.payload_len()];
    if !payload.is_empty() {
        request.read(&mut payload).expect("all of it has come");
    }
    payload
}

fn service(config: Config, settings: Settings) -> Arc<Service> {
    Arc::new(Service::spawn(Over::node(config, settings), |_| ()).expect("a thread"))
}

/// A server on a thread of its own, the calls that it has put off, a client whose landing memory is `PLACE`, and its
/// service.
fn serve(over: Over) -> (Arc<Service>, List, Client, Arc<Service>) {
    serve_with(over, Settings::default())
}

fn serve_with(over: Over, settings: Settings) -> (Arc<Service>, List, Client, Arc<Service>) {
    let (mut node, address) = over.listening(small(), settings);
    methods(&mut node);
    let list = putting_off(&mut node);
    let server = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let (client, service) = connect(&address);
    (server, list, client, service)
}

fn connect(address: &str) -> (Client, Arc<Service>) {
    let service = service(Config { landing_bytes: PLACE as u64, ..small() }, Settings::default());
    (Client::connect(Arc::clone(&service), address, PATIENCE).expect("a channel"), service)
}

type List = Arc<Mutex<Vec<Deferred>>>;

fn putting_off(node: &mut Node) -> List {
    let list = List::default();
    let its = Arc::clone(&list);
    rpc::serve_raw(node, LATER, move |request| its.lock().expect("the list").push(request.defer()));
    list
}

fn count(list: &List) -> usize {
    list.lock().expect("the list").len()
}

/// Polls a call until its server has put it off.
fn make(call: &mut RawPending<'_>, list: &List) {
    until("the request comes", || {
        assert!(Pin::new(&mut *call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        count(list) == 1
    });
}

/// A call for so many bytes.
fn asks<'a>(number: u16, len: usize) -> Raw<'a> {
    Raw::new(number).args(&(len as u32).to_le_bytes())
}

fn poisoned(len: usize) -> Landing {
    Landing::Buffer(vec![POISON; len])
}

fn a_reply_comes_from_the_servers_pages(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    // Over a network those that find no room in landing memory are taken in elsewhere.
    for len in [1, PAGE, PLACE - 9, PLACE + 1, 9 * PLACE] {
        let mut reply = client.within(PATIENCE / 4).call_raw(asks(FROM_PAGE, len)).expect("a reply");
        assert_eq!((reply.args(), reply.payload_len()), (&b"paged"[..], len));
        if over == Over::Shm {
            assert_eq!((reply.receipt().path, reply.receipt().copies), (Path::Reference, 0));
        }
        match reply.take_payload() {
            Payload::Landed(landed) => assert_eq!(landed.to_vec(), bytes(len)),
            Payload::Buffer(buffer) if over == Over::Udp => assert_eq!(buffer, bytes(len)),
            other => panic!("instead of pages: {other:?}"),
        }
    }
}

fn a_reply_lands_in_the_callers_pages(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    for number in [FROM_MEMORY, FROM_PAGE] {
        for len in [1, PAGE, PLACE - 9] {
            let mut reply = client.call_raw(asks(number, len).reply_into(Landing::Pages(PLACE))).expect("a reply");
            let said: &[u8] = if number == FROM_PAGE { b"paged" } else { b"borrowed" };
            assert_eq!((reply.args(), reply.payload_len()), (said, len));
            match over {
                Over::Shm => assert_eq!((reply.receipt().path, reply.receipt().copies), (Path::Put, 1)),
                Over::Udp => assert!(reply.receipt().path == Path::Wire && reply.receipt().copies <= 1),
            }
            let Payload::Landed(landed) = reply.take_payload() else { panic!("no pages") };
            assert_eq!(landed.to_vec(), bytes(len));
        }
    }
}

fn a_reply_lands_in_the_callers_buffer(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    for number in [FROM_MEMORY, FROM_PAGE] {
        for len in [1, PAGE, 100_000] {
            let buffer = vec![POISON; len];
            let place = buffer.as_ptr();
            let raw = asks(number, len).reply_into(Landing::Buffer(buffer));
            let mut reply = client.call_raw(raw).expect("a reply");
            if over == Over::Shm && number == FROM_PAGE {
                assert_eq!((reply.receipt().path, reply.receipt().copies), (Path::Get, 1));
            }
            let Payload::Buffer(buffer) = reply.take_payload() else { panic!("no buffer") };
            assert_eq!((buffer.as_ptr(), &buffer), (place, &bytes(len)), "the same memory");
        }
    }
}

fn a_payload_goes_from_the_callers_pages(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    let ends = |raw: Raw<'_>| {
        let reply = client.call_raw(raw).expect("a reply");
        [0, 1, 2].map(|word| reply.word(word) as usize)
    };
    for len in [1, PAGE, 100_000] {
        let payload = bytes(len);
        let expected = [0, usize::from(byte(len - 1)), len];
        assert_eq!(ends(Raw::new(ENDS).body(Body::Copy(&payload))), expected);
        let mut page = client.page(len).expect("a page");
        page.copy_from_slice(&payload);
        assert_eq!(ends(Raw::new(ENDS).body(Body::Page(page))), expected);
        assert_eq!(ends(Raw::new(ENDS).body(Body::Owned(payload))), expected);
    }
    assert_eq!(ends(Raw::new(ENDS)), [0; 3]);
}

fn a_place_that_is_not_used_comes_back(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    for landing in [Landing::Pages(PLACE), poisoned(99)] {
        let mut reply = client.call_raw(Raw::new(ENDS).reply_into(landing.clone())).expect("a reply");
        assert_eq!(reply.take_landing(), Some(landing));
    }
}

/// What fails at either side, and a place that is too short.
fn a_call_that_fails_gives_the_place_back(over: Over) {
    let (_server, list, client, _service) = serve(over);
    for landing in [Landing::Pages(PAGE), poisoned(99)] {
        let fails = |raw: Raw<'_>| {
            let failed = client.call_raw(raw.reply_into(landing.clone())).expect_err("no reply");
            assert_eq!(failed.landing, Some(landing.clone()), "after {}", failed.error);
            (failed.error, failed.args)
        };
        assert_eq!(fails(Raw::new(REFUSES)), (CallError::Failed(Failure::Refused), b"no".to_vec()));
        assert_eq!(fails(Raw::new(99)).0, CallError::Failed(Failure::Unknown));
        assert_eq!(fails(Raw::new(ENDS).args(&[0; 65])).0, RequestError::TooLong.into());
        assert_eq!(fails(asks(FROM_MEMORY, 100_000)).0, CallError::Failed(Failure::Token));
        // Where another thread has the node just then, the place does not come back.
        let client = client.within(Duration::from_millis(50));
        until("a late call gives it back", || {
            let failed = client.call_raw(Raw::new(LATER).reply_into(landing.clone())).expect_err("no reply");
            assert_eq!(failed.error, CallError::Late);
            assert!(failed.landing.is_none() || failed.landing == Some(landing.clone()));
            failed.landing.is_some()
        });
        list.lock().expect("the list").clear();
    }
    let much = client.call_raw(Raw::new(ENDS).reply_into(Landing::Pages(PLACE + 1))).expect_err("no such place");
    assert_eq!(much.error, RequestError::NoMemory(NoMemory::NoPages).into());
    assert_eq!(much.landing, Some(Landing::Pages(PLACE + 1)));
}

/// Answers what was put off first, at length.
fn answer(server: &Service, list: &List, payload: &[u8]) {
    let deferred = list.lock().expect("the list").remove(0);
    server.with(|node| node.answer(deferred, &[], Body::Copy(payload)));
}

/// The pages of a dropped call are granted anew and filled; then the answer to that call comes. And a buffer that was
/// given back stays as it was.
fn nothing_is_written_to_the_place_of_a_dropped_call(over: Over) {
    let (server, list, client, service) = serve(over);
    let late = vec![POISON; PLACE];
    for _ in 0..20 {
        let mut call = client.start_raw(Raw::new(LATER).reply_into(Landing::Pages(PLACE)));
        make(&mut call, &list);
        drop(call);
        let landed = {
            let mut reply = None;
            until("the pages are free again", || {
                let raw = asks(FROM_MEMORY, PLACE).reply_into(Landing::Pages(PLACE));
                reply = client.call_raw(raw).ok();
                reply.is_some()
            });
            let Payload::Landed(landed) = reply.expect("a reply").take_payload() else { panic!("no pages") };
            landed
        };
        answer(&server, &list, &late);
        // Behind this, that answer has come, too.
        client.call_raw(Raw::new(ENDS)).expect("a reply");
        assert!(landed.to_vec() == bytes(PLACE), "the answer to a call that was dropped was written");
    }
    let mut back = None;
    until("a place comes back", || {
        let mut call = client.start_raw(Raw::new(LATER).reply_into(poisoned(PLACE)));
        make(&mut call, &list);
        back = call.cancel();
        answer(&server, &list, &bytes(PLACE));
        back.is_some()
    });
    client.call_raw(Raw::new(ENDS)).expect("a reply");
    assert!(back == Some(poisoned(PLACE)), "the answer to a call that was cancelled was written");
    has_all_its_credit(&client, &service);
}

/// Nothing is under way on the client's channel any more.
fn has_all_its_credit(client: &Client, service: &Service) {
    until("all units of the window are free", || {
        let _ = client.call_raw(Raw::new(ENDS));
        service.with(|node| node.channels().all(|channel| node.room(channel) == WINDOW))
    });
}

/// Before it is made, while its reply comes, or when it has: token, pages and credit come back.
fn a_call_may_be_dropped_at_any_time(over: Over) {
    let (_server, _list, client, service) = serve(over);
    let mut done = 0;
    for round in 0..600 {
        let number = if round % 2 == 0 { FROM_MEMORY } else { FROM_PAGE };
        let landing = if round % 3 == 0 { poisoned(PLACE) } else { Landing::Pages(PLACE) };
        let mut call = client.start_raw(asks(number, PLACE).reply_into(landing));
        for _ in 0..round % 7 {
            match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {}
                Poll::Ready(Ok(_)) => {
                    done += 1;
                    break;
                }
                Poll::Ready(Err(failed)) => {
                    assert_eq!(failed.error, RequestError::NoMemory(NoMemory::NoPages).into());
                    break;
                }
            }
        }
        if round % 5 == 0 { drop(call.cancel()) } else { drop(call) }
    }
    assert!(done < 600, "none was dropped");
    until("all pages are free", || {
        let reply = client.call_raw(asks(FROM_MEMORY, PLACE).reply_into(Landing::Pages(PLACE)));
        reply.is_ok_and(|reply| matches!(reply.payload(), Payload::Landed(_)))
    });
    has_all_its_credit(&client, &service);
}

/// A call that is late while another thread has the node cannot give its place back; nor is that used for others.
fn a_late_place_is_used_again_when_its_token_is_dead(over: Over) {
    let (server, list, client, service) = serve(over);
    // Long enough that the node is in use before, on a busy machine too.
    let its = client.within(Duration::from_secs(1));
    let calling = std::thread::spawn(move || {
        its.call_raw(Raw::new(LATER).reply_into(Landing::Pages(PLACE))).expect_err("no reply")
    });
    until("the request comes", || count(&list) == 1);
    let holding = service.with(|_| {
        let failed = calling.join().expect("the caller");
        assert_eq!(failed.error, CallError::Late);
        failed.landing
    });
    assert_eq!(holding, None);
    let mut reply = None;
    until("the pages are free again", || {
        reply = client.call_raw(asks(FROM_MEMORY, PLACE).reply_into(Landing::Pages(PLACE))).ok();
        reply.is_some()
    });
    answer(&server, &list, &[POISON; PLACE]);
    client.call_raw(Raw::new(ENDS)).expect("a reply");
    let Payload::Landed(landed) = reply.expect("a reply").take_payload() else { panic!("no pages") };
    assert!(landed.to_vec() == bytes(PLACE), "the answer to a call that was late was written");
}

/// A channel has 256 tokens; who finds none waits for one, and who has the place has it still.
fn more_calls_than_tokens_are_answered(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    let start = |len| client.start_raw(asks(FROM_MEMORY, len).reply_into(poisoned(len)));
    let mut calls: Vec<_> = (100..700).map(|len| Some(start(len))).collect();
    let (mut left, since) = (calls.len(), Instant::now());
    while left > 0 {
        for (len, slot) in (100..).zip(&mut calls) {
            let Some(call) = slot else { continue };
            if let Poll::Ready(outcome) = Pin::new(call).poll(&mut Context::from_waker(Waker::noop())) {
                let Payload::Buffer(buffer) = outcome.expect("a reply").take_payload() else { panic!("no buffer") };
                assert_eq!(buffer, bytes(len));
                (*slot, left) = (None, left - 1);
            }
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

fn a_continuation_gets_the_reply(over: Over) {
    let (_server, _list, client, _service) = serve(over);
    let (told, hears) = mpsc::channel();
    for (number, landing) in [(FROM_MEMORY, poisoned(PAGE)), (REFUSES, poisoned(PAGE))] {
        let told = told.clone();
        let raw = asks(number, PAGE).reply_into(landing);
        client.call_raw_then(raw, move |outcome| told.send(outcome).expect("somebody listens")).expect("room");
    }
    let mut reply = hears.recv_timeout(PATIENCE).expect("an answer").expect("a reply");
    assert!(matches!(reply.take_payload(), Payload::Buffer(buffer) if buffer == bytes(PAGE)));
    let failed = hears.recv_timeout(PATIENCE).expect("an answer").expect_err("a refusal");
    assert_eq!((failed.error, failed.landing), (CallError::Failed(Failure::Refused), Some(poisoned(PAGE))));
}

/// Where there is no room, and where there is no server any more.
fn what_cannot_be_called_comes_back(over: Over) {
    let (server, list, client, service) = serve(over);
    #[allow(clippy::result_large_err, reason = "the error gives the call back")]
    let fill = || client.call_raw_then(Raw::new(LATER).reply_into(poisoned(9)), |_| ());
    let (why, raw) = (0..).find_map(|_| fill().err()).expect("no room at last");
    assert!(matches!(why, RequestError::Full | RequestError::NoMemory(NoMemory::NoTokens)), "{why:?}");
    until("there is room", || {
        list.lock().expect("the list").clear();
        client.call_raw(Raw::new(ENDS)).is_ok() && service.with(|node| node.channels().count() == 1)
    });
    let (told, hears) = mpsc::channel();
    let mut raw = Some(raw);
    until("the call that came back is made", || {
        let told = told.clone();
        let then = move |outcome: Result<_, rpc::RawError>| told.send(outcome.map(drop)).expect("somebody listens");
        raw = client.call_raw_then(raw.take().expect("it came back"), then).err().map(|(_, raw)| raw);
        raw.is_none()
    });
    let ended = until_told(&hears, &list);
    assert_eq!((ended.error, ended.landing), (CallError::Failed(Failure::Abandoned), Some(poisoned(9))));
    drop(Arc::into_inner(server).and_then(Service::stop).expect("nobody shares it"));
    let mut raw = Raw::new(ENDS).reply_into(poisoned(9));
    until("the client hears of the end", || match client.call_raw_then(raw_of(&mut raw), |_| ()) {
        Ok(()) => false,
        Err((why, back)) => {
            raw = back;
            why == RequestError::Closed
        }
    });
}

fn raw_of<'a>(raw: &mut Raw<'a>) -> Raw<'a> {
    std::mem::replace(raw, Raw::new(ENDS))
}

/// Throws what was put off away until somebody is told.
fn until_told(hears: &mpsc::Receiver<Result<(), rpc::RawError>>, list: &List) -> rpc::RawError {
    let mut told = None;
    until("the continuation is told", || {
        list.lock().expect("the list").clear();
        told = hears.try_recv().ok();
        told.is_some()
    });
    told.expect("an answer").expect_err("no reply")
}

/// A busy server has given the pages back already: the caller hears that it is.
fn pages_go_once(over: Over) {
    let (_server, list, client, _service) = serve_with(over, Settings { serve: 1, ..Settings::default() });
    let mut first = client.start_raw(Raw::new(LATER));
    make(&mut first, &list);
    let raw = Raw::new(ENDS).body(Body::Page(client.page(PAGE).expect("a page"))).reply_into(poisoned(9));
    let failed = client.call_raw(raw).expect_err("it is busy");
    assert_eq!((failed.error, failed.landing), (CallError::Failed(Failure::Busy), Some(poisoned(9))));
    // What lies in memory is sent again.
    let its = Arc::clone(&list);
    let frees = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        its.lock().expect("the list").clear();
    });
    let raw = Raw::new(ENDS).body(Body::Owned(bytes(PAGE))).reply_into(poisoned(9));
    let mut reply = client.call_raw(raw).expect("a reply, once it is not busy any more");
    assert_eq!((reply.word(2), reply.take_landing()), (PAGE as u32, Some(poisoned(9))));
    frees.join().expect("the other thread");
}

/// With the same place; and one that is not idempotent gives it back.
fn an_idempotent_call_finds_a_server_that_comes_again(over: Over) {
    for idempotent in [false, true] {
        for landing in [Landing::Pages(PLACE), poisoned(PLACE)] {
            let (mut node, address) = over.listening(small(), Settings::default());
            let list = putting_off(&mut node);
            let server = Server::run(node, address);
            let (client, _service) = connect(&server.address);
            let address = server.address.clone();
            let place = landing.clone();
            let calling = std::thread::spawn(move || {
                let raw = Raw::new(LATER).body(Body::Owned(bytes(100))).reply_into(place);
                client.call_raw(if idempotent { raw.idempotent() } else { raw })
            });
            until("the call comes", || count(&list) == 1);
            drop(server.end());
            let mut node = Over::node(small(), Settings::default());
            let (told, hears) = mpsc::channel();
            rpc::serve_raw(&mut node, LATER, move |mut request| {
                told.send(read(&mut request)).expect("somebody listens");
                request.reply_with(&[], Body::Copy(&bytes(PLACE)));
            });
            until("the address is free", || node.listen(&address).is_ok());
            let _server = Server::run(node, address);
            let outcome = calling.join().expect("the caller");
            if idempotent {
                let mut reply = outcome.expect("a reply of the other server");
                let came = match reply.take_payload() {
                    Payload::Landed(landed) => landed.to_vec(),
                    Payload::Buffer(buffer) => buffer,
                    other => panic!("no payload: {other:?}"),
                };
                assert!(came == bytes(PLACE) && hears.try_iter().eq([bytes(100)]), "once");
            } else {
                let failed = outcome.expect_err("it may have run");
                assert!(matches!(failed.error, CallError::Closed(_)), "{:?}", failed.error);
                // The pages have gone with the channel.
                let back = Some(landing).filter(|landing| matches!(landing, Landing::Buffer(_)));
                assert!(failed.landing == back, "{:?}", failed.landing);
                assert_eq!(hears.try_iter().count(), 0);
            }
        }
    }
}

/// A asks B, B hands the call to C, C replies to A: with arguments, payloads and types.
fn a_call_is_handed_over(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings::default());
    methods(&mut c);
    let _c = Service::spawn(c, |_| ()).expect("a thread");
    let (mut b, at_b) = over.listening(small(), Settings::default());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    for number in [FROM_PAGE, FROM_MEMORY, ENDS, REVERSE.number()] {
        rpc::serve_raw(&mut b, number, move |mut request| {
            let (args, payload) = (request.args().to_vec(), read(&mut request));
            if let Err((error, request)) = request.hand_over(b_to_c, number, &args, Body::Owned(payload)) {
                assert_eq!(error, RequestError::Full);
                request.fail(Failure::Busy);
            }
        });
    }
    let _b = Service::spawn(b, |_| ()).expect("a thread");
    let a = service(small(), Settings::default());
    let to_c = Client::connect(Arc::clone(&a), &at_c, PATIENCE).expect("a channel");
    let to_b = Client::connect(a, &at_b, PATIENCE).expect("a channel");
    for round in 0..50 {
        let len = 1 + round * 200;
        for number in [FROM_PAGE, FROM_MEMORY] {
            // A token is good on one channel only: who takes the call cannot use it, and the place comes back.
            let mut reply = to_b.call_raw(asks(number, len).reply_into(poisoned(99))).expect("a reply");
            assert_eq!(reply.take_landing(), Some(poisoned(99)));
            if over == Over::Shm && number == FROM_PAGE {
                assert_eq!((reply.receipt().path, reply.receipt().copies), (Path::Reference, 0));
            }
            let came = match reply.take_payload() {
                Payload::Landed(landed) => landed.to_vec(),
                Payload::Buffer(buffer) => buffer,
                other => panic!("no payload: {other:?}"),
            };
            assert_eq!(came, bytes(len));
        }
        let reply = to_b.call_raw(Raw::new(ENDS).body(Body::Copy(&bytes(len)))).expect("a reply");
        assert_eq!(reply.word(2), len as u32);
        let back = to_b.call(REVERSE, &bytes(len)).expect("a reply");
        assert!(back.iter().rev().copied().eq(bytes(len)));
    }
    drop(to_c);
}

#[test]
#[cfg(feature = "tokio")]
fn tokio_awaits_raw_calls() {
    let (_server, _list, client, _service) = serve(Over::Shm);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (1..100)
            .map(|len| {
                let call = client.start_raw(asks(FROM_MEMORY, len).reply_into(poisoned(len)));
                (len, tokio::spawn(call))
            })
            .collect();
        for (len, task) in tasks {
            let mut reply = task.await.expect("no panic").expect("a reply");
            assert!(matches!(reply.take_payload(), Payload::Buffer(buffer) if buffer == bytes(len)));
        }
    });
}

#[test]
fn a_place_of_no_bytes_takes_no_payload() {
    let (_server, _list, client, _service) = serve(Over::Shm);
    let nowhere = Landing::Buffer(Vec::new());
    let failed = client.call_raw(asks(FROM_MEMORY, 5).reply_into(nowhere.clone())).expect_err("no room");
    assert!(failed.to_string().ends_with("or its place is too short"), "{failed}");
    assert_eq!((failed.error, failed.landing), (CallError::Failed(Failure::Token), Some(nowhere)));
}
