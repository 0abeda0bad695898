//! What others' functions do on the thread of a service does not end it.

mod two;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cutthrough::Channel;
use cutthrough::am::{Args, Event, Service, Settings};
use two::{Over, PATIENCE, Server, small};

over_both! { a_panic_in_an_upcall_does_not_end_the_service }

const ECHO: u16 = 1;

/// A server, and a service with a channel to it.
fn serviced(over: Over, event: impl FnMut(Event) + Send + 'static) -> (Server, Service, Channel) {
    let (server, mut node, channel) = over.serve_with(small(), Settings::default(), |node| {
        node.short(ECHO, Args::Any, |request| request.reply(&[1]));
    });
    node.on_reply(3, |_| panic!("a reply handler"));
    (server, Service::spawn(node, event).expect("a thread"), channel)
}

/// Whether the service's own thread takes an answer in.
fn is_alive(service: &Service, channel: Channel) -> bool {
    let (tell, told) = mpsc::channel();
    let asked = service.with(|node| {
        node.ask(channel, ECHO).send_then(move |_, reply| {
            let _ = tell.send((reply.is_ok(), std::thread::current().id()));
        })
    });
    let own = std::thread::current().id();
    asked.is_ok() && told.recv_timeout(PATIENCE / 4).is_ok_and(|(replied, by)| replied && by != own)
}

fn a_panic_in_an_upcall_does_not_end_the_service(over: Over) {
    let events = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&events);
    let (_server, service, channel) = serviced(over, move |_| {
        its.fetch_add(1, Ordering::SeqCst);
        panic!("an event");
    });
    assert!(is_alive(&service, channel));
    service.with(|node| node.ask(channel, ECHO).then(3).send()).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after a reply handler");
    service.with(|node| node.ask(channel, ECHO).send_then(|_, _| panic!("a continuation"))).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after a continuation");
    service.with(|node| node.request(channel, ECHO, &[])).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after an event");
    assert_eq!(events.load(Ordering::SeqCst), 1);
    assert!(service.stop().is_some());
}
