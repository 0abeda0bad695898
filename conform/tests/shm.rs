//! The behaviour suite over shared memory.

mod shared_memory;

use std::time::Instant;

use cutthrough::{Config, Endpoint, Event};
use cutthrough_conform::Join as _;
use cutthrough_conform::join::PATIENCE;
use shared_memory::SharedMemory;

cutthrough_conform::suite!(SharedMemory::new());

/// More callers than a socket lets wait: the others stand outside, and come in when the listener looks again.
#[test]
fn callers_wait_while_the_listener_looks_away() {
    let join = SharedMemory::new();
    let address = join.address();
    let mut b = join.listening(Config::default(), &address);
    let mut a = Endpoint::open(Config::default()).expect("an endpoint");
    for _ in 0..200 {
        a.begin_connect(&address, PATIENCE).expect("begun");
    }
    assert!(a.poll().is_none(), "nobody has looked");
    let (since, mut connected, mut opened) = (Instant::now(), 0, 0);
    while connected < 200 || opened < 200 {
        match a.poll() {
            Some(Event::Connected(_, outcome)) => {
                outcome.expect("a channel");
                connected += 1;
            }
            Some(other) => panic!("unasked: {other:?}"),
            None => {}
        }
        opened += usize::from(matches!(b.poll(), Some(Event::Opened(_))));
        assert!(since.elapsed() < PATIENCE, "{connected} and {opened} of 200");
    }
}
