//! What a payload that was read leaves to be done.

use super::*;

/// It has time, but whoever sleeps then has done it before, and its peer hears of it.
#[test]
fn what_follows_from_a_payload_is_not_slept_over() {
    let (near, far, channel) = pair();
    send(&near, channel, b"", Cargo { load: Load::Copy(&[7; 1000]), token: None, cookie: None });
    let begun = Instant::now();
    let message = loop {
        if let Some(message) = arriving(&far) {
            break message;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not come");
    };
    let mut bytes = [0; 1000];
    far.read(channel, message, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 1000]);
    while far.before_sleep(false).is_none() {
        far.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "it does not sleep");
    }
    // Held, so that nobody else sends it.
    let core = far.shared.lock();
    assert!(!core.owed && !core.net.has_work());
    while !near.shared.lock().net.is_settled() {
        near.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "its sender does not hear of it");
    }
}
