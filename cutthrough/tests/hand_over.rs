//! Requests that are handed over: A asks B, B hands over to C, C replies to A.

mod two;

use std::time::Instant;

use cutthrough::am::{Args, Body, CallError, Failure, RequestError, Settings, WINDOW};
use two::{Over, PATIENCE, Server, small};

over_both! { a_request_is_handed_over, handing_over_to_a_stranger_fails }

const ECHO: u16 = 1;

fn a_request_is_handed_over(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings::default());
    let (mut b, at_b) = over.listening(small(), Settings::default());
    c.short(8, Args::Any, |mut request| {
        assert!(request.is_handed_over());
        let args = request.args().to_vec();
        let mut page = request.page(args.len()).expect("a page");
        page.copy_from_slice(&args);
        request.reply_with(&args, Body::Page(page));
    });
    let _c = Server::run(c, at_c.clone());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    b.short(7, Args::Any, move |request| {
        let args = request.args().to_vec();
        if let Err((error, request)) = request.hand_over(b_to_c, 8, &args, Body::None) {
            assert_eq!(error, RequestError::Full);
            request.fail(Failure::Busy);
        }
    });
    let _b = Server::run(b, at_b.clone());
    let mut a = Over::node(small(), Settings::default());
    let to_b = a.connect(&at_b, PATIENCE).expect("a channel");
    let to_c = a.connect(&at_c, PATIENCE).expect("a channel");
    for round in 0..500_u32 {
        match a.call(to_b, 7, &[round, 5], PATIENCE) {
            Ok(mut reply) => {
                assert_eq!((reply.word(0), reply.word(1), reply.channel()), (round, 5, to_c));
                let mut bytes = [0; 8];
                a.read(&mut reply, &mut bytes).expect("the payload");
                assert_eq!(bytes, reply.args());
            }
            Err(error) => assert_eq!(error, CallError::Failed(Failure::Busy)),
        }
    }
    let since = Instant::now();
    while a.room(to_b) < WINDOW {
        assert!(a.poll().is_none());
        assert!(since.elapsed() < PATIENCE);
    }
}

fn handing_over_to_a_stranger_fails(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings::default());
    let (mut b, at_b) = over.listening(small(), Settings::default());
    c.short(ECHO, Args::Any, |request| request.reply(&[]));
    let c = Server::run(c, at_c.clone());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    b.short(7, Args::Any, move |request| {
        if let Err((error, request)) = request.hand_over(b_to_c, ECHO, &[], Body::None) {
            assert_eq!(error, RequestError::Closed);
            request.refuse(b"gone");
        }
    });
    let _b = Server::run(b, at_b.clone());
    let mut a = Over::node(small(), Settings::default());
    let to_b = a.connect(&at_b, PATIENCE).expect("a channel");
    assert_eq!(a.call(to_b, 7, &[], PATIENCE).map(drop), Err(CallError::Failed(Failure::NoRoute)));
    assert_eq!(a.call(to_b, 7, &[], PATIENCE).map(drop), Err(CallError::Failed(Failure::NoRoute)));
    drop(c);
    let since = Instant::now();
    while a.call(to_b, 7, &[], PATIENCE).map(drop) != Err(CallError::Failed(Failure::Refused)) {
        assert!(since.elapsed() < PATIENCE);
    }
}
