//! What a peer that lies can have kept.

use std::time::{Duration, Instant};

use cutthrough_engine::am::message::{Kind, Message};
use cutthrough_wire::slot::CONTROL_MAX;

use crate::am::{Args, Event, tests::joined};

#[test]
fn lies_about_calls_that_have_ended_are_not_kept() {
    const CALLS: usize = 4;
    let (mut far, mut node, channel) = joined("lies");
    far.short(1, Args::Any, |request| request.reply(&[]));
    let back = far.channels().next().expect("a channel");
    for round in 1..50 {
        let calls: Vec<_> = (0..CALLS).map(|_| node.request(channel, 1, &[]).expect("room")).collect();
        for call in &calls {
            let mut control = [0; CONTROL_MAX];
            let len = Message::new(Kind::Direct, call.0).encode(&mut control).expect("short");
            for _ in 0..3 {
                let lie = far.inside.endpoint.outgoing(back).expect("room").write(&control[..len]);
                lie.attach_copy(&[7; 100]).send().expect("room");
                assert!(node.poll().is_none());
            }
        }
        let heap = &node.early.0[&channel];
        assert_eq!((heap.replies.len(), heap.bytes), (CALLS, CALLS * 100), "in round {round}");
        assert!(calls.iter().all(|call| heap.replies.contains_key(&call.0)));
        let since = Instant::now();
        let mut replied = 0;
        while replied < CALLS {
            assert!(far.poll().is_none());
            replied += usize::from(matches!(node.poll(), Some(Event::Replied(_))));
            assert!(since.elapsed() < Duration::from_secs(20));
        }
    }
}
