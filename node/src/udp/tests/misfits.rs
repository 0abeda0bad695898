//! Datagrams that are no frames.

use std::net::UdpSocket;

use cutthrough_wire::frame::HEADER_BYTES;

use super::*;

/// Nothing is refused without being counted, be it too short for a header, or empty; alone, and behind another one.
#[test]
fn what_is_shorter_than_a_header_is_counted() {
    let (_near, far, _) = pair();
    let before = far.tally().0.stale;
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let lengths = [0, 1, 12, HEADER_BYTES - 1, HEADER_BYTES];
    for len in lengths {
        stranger.send_to(&vec![7; len], far.local()).unwrap();
    }
    let begun = Instant::now();
    while far.tally().0.stale < before + lengths.len() as u64 {
        far.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "{} were counted", far.tally().0.stale - before);
    }
}
