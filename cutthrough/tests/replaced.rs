//! Another endpoint in the place of one that is awaited.
#![cfg(feature = "tokio")]

mod two;

use cutthrough::{AsyncEndpoint, Config, Endpoint, Event};
use two::PATIENCE;

fn endpoint() -> Endpoint {
    Endpoint::open(Config { insecure: true, ..Config::default() }).expect("an endpoint")
}

/// The descriptor of the one before was watched for ever, and every wait was in vain.
#[test]
fn what_comes_to_another_endpoint_in_its_place_is_awaited() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        replace_and_await();
        let _ = done.send(());
    });
    is_done.recv_timeout(PATIENCE).expect("it was woken");
}

fn replace_and_await() {
    let address = format!("shm:replaced-{}", std::process::id());
    let mut far = endpoint();
    far.listen(&address).expect("a free name");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut near = AsyncEndpoint::new(endpoint()).expect("a runtime");
        for by_hand in [false, true] {
            if by_hand {
                // Whose descriptor may have the same number as the one before.
                drop(std::mem::replace(&mut *near, endpoint()));
            }
            *near = endpoint();
            let thread = std::thread::spawn(move || {
                // The one of the endpoint before ends at some time.
                let channel = loop {
                    match far.wait(Some(PATIENCE)).expect("somebody comes") {
                        Event::Opened(channel) => break channel,
                        other => assert!(matches!(other, Event::Closed(..)), "{other:?}"),
                    }
                };
                std::thread::sleep(std::time::Duration::from_millis(100));
                far.send(channel, b"late").expect("room");
                far
            });
            near.connect(&address, PATIENCE).await.expect("a channel");
            let event = near.next().await.expect("an event");
            assert!(matches!(&event, Event::Message(message) if message.control() == b"late"), "{event:?}");
            far = thread.join().expect("no panic");
            let mut again = near.into_inner();
            assert_eq!(again.channels().count(), 1);
            assert!(again.poll().is_none_or(|event| matches!(event, Event::Closed(..))));
            near = AsyncEndpoint::new(again).expect("a runtime");
        }
    });
}
