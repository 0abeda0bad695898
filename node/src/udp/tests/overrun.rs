//! What comes while a socket has no room.

use std::net::UdpSocket;

use super::*;

/// A socket is full, and nobody looks: what it could not take is counted, and what comes later is heard.
#[test]
fn what_a_socket_has_no_room_for_is_counted() {
    let (near, far, channel) = pair();
    assert_eq!(far.tally().1.overruns, 0);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sent = {
        // Its attendant takes nothing meanwhile.
        let core = &mut *far.shared.lock();
        rustix::net::sockopt::set_socket_recv_buffer_size(&core.socket, 4096).unwrap();
        (0..100).map(|_| stranger.send_to(&[7; 1000], far.local()).unwrap()).sum::<usize>()
    };
    let begun = Instant::now();
    while far.tally().1.overruns == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing of {sent} bytes is counted");
        far.turn(64, |_, _| ());
    }
    let overruns = far.tally().1.overruns;
    assert!(overruns < 100, "{overruns} were too many");
    assert_eq!(near.tally().1.overruns, 0);
    send(&near, channel, b"heard", Cargo { load: Load::None, token: None, cookie: None });
    let mut heard = false;
    while !heard {
        near.turn(64, |_, _| ());
        far.turn(64, |_, what| heard |= matches!(what, Told::Message(..)));
        assert!(begun.elapsed() < PATIENCE, "it hears nothing any more");
    }
}
