//! Payloads whose sender stands still in the middle, read in a tokio runtime.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cutthrough::{
    AsyncEndpoint, CloseReason, Config, Event, Incoming, Instant, Policy, ReadError, Receipt, SendError, Stage, Trace,
};

use super::{beside_tokio, config, in_time};
use crate::bytes::{check, pattern};
use crate::join::{PATIENCE, keep_house};
use crate::{Join, Pair, Side};

/// Far more than the ring between the two holds.
const LEN: usize = 2 << 20;

/// Stands still in the middle of a payload until it is told to go on, or never comes back.
struct Midway {
    told: Receiver<()>,
    comes_back: bool,
    /// Whether it was told in time, once it has stood still.
    in_time: Option<bool>,
}

impl Trace for Midway {
    fn pulse(&mut self, _: Stage, offset: u64, len: u64, _: Instant, _: Instant) {
        if self.in_time.is_none() && offset + len > LEN as u64 / 2 {
            self.in_time = Some(self.told.recv_timeout(PATIENCE).is_ok());
            if !self.comes_back {
                resume_unwind(Box::new("gone"));
            }
        }
    }
}

/// Sends the payload that stands still in its middle.
fn send(side: &mut Side, midway: &mut Midway) -> Result<Receipt, SendError> {
    let payload = pattern(7, LEN);
    let outgoing = side.endpoint.outgoing(side.channel).expect("a slot").write(b"long");
    outgoing.attach_copy(&payload).send_traced(midway)
}

async fn message(a: &mut AsyncEndpoint) -> Incoming {
    match in_time(a.next()).await.expect("an event") {
        Event::Message(message) => message,
        other => panic!("instead of a message: {other:?}"),
    }
}

/// While a payload is read whose sender stands still, other tasks of the thread run: the sender goes on because one of
/// them says so.
pub fn a_read_in_tokio_keeps_no_other_task_waiting(join: &dyn Join) {
    read_beside_a_task(join, Policy::default(), false);
}

/// The same where the reader takes nothing before the ring between the two is full: then nobody rings for it again.
pub fn a_read_in_tokio_empties_a_full_ring(join: &dyn Join) {
    read_beside_a_task(join, Policy::StoreAndForward, false);
}

/// The same where the payload was set aside before it is read, because its sender had no more room.
pub fn a_read_in_tokio_of_what_was_set_aside(join: &dyn Join) {
    if join.crosses_wire() {
        // Messages that follow the payload do not wait for it to be sent, and come while house is kept.
        return;
    }
    read_beside_a_task(join, Policy::default(), true);
}

fn read_beside_a_task(join: &dyn Join, policy: Policy, aside: bool) {
    // So late that it is no way out for who misses a wake-up.
    let deadline = PATIENCE * 3;
    let Pair { a, mut b, .. } = join.pair(Config { deadline, policy, ..config() }, Config { deadline, ..config() });
    let (go_on, told) = channel();
    beside_tokio(
        |_| {
            // Over a network others send it, and nobody stands still.
            let mut midway = Midway { told, comes_back: true, in_time: None };
            send(&mut b, &mut midway).expect("sent");
            assert_ne!(midway.in_time, Some(false), "the task beside the reader did not run");
            b.say(b"after");
            assert_eq!(b.closed(), CloseReason::Peer);
        },
        async {
            let mut a = AsyncEndpoint::new(a.endpoint).expect("an endpoint in a runtime");
            let mut long = message(&mut a).await;
            if aside {
                keep_house(&mut a, |event| panic!("unasked: {event:?}"));
            }
            let beside = tokio::spawn(async move {
                // Until the reader sleeps.
                tokio::time::sleep(Duration::from_millis(20)).await;
                // Over a network nobody may be there any more.
                let _ = go_on.send(());
            });
            let mut bytes = vec![0; LEN];
            let receipt = in_time(a.read(&mut long, &mut bytes)).await.expect("a payload");
            assert_eq!(receipt.bytes, LEN as u64);
            check(7, &bytes);
            beside.await.expect("the task beside it");
            assert_eq!(message(&mut a).await.control(), b"after");
            // It can be read once.
            assert!(matches!(in_time(a.read(&mut long, &mut bytes)).await, Err(ReadError::Nothing)));
        },
    );
}

/// A read whose sender goes, or stands still for the deadline, ends.
pub fn a_read_in_tokio_ends_with_its_sender(join: &dyn Join) {
    if join.crosses_wire() {
        // A thread of the sender's endpoint delivers what was sent, whatever becomes of the one that has sent it.
        return;
    }
    for (comes_back, why) in [(false, CloseReason::Peer), (true, CloseReason::Stalled)] {
        let deadline = if comes_back { Duration::from_millis(200) } else { PATIENCE };
        let Pair { a, mut b, .. } = join.pair(Config { deadline, ..config() }, config());
        let (go_on, told) = channel();
        beside_tokio(
            |_| {
                let mut midway = Midway { told, comes_back, in_time: None };
                let sent = catch_unwind(AssertUnwindSafe(|| send(&mut b, &mut midway)));
                assert!(!matches!(sent, Ok(Ok(_))), "{sent:?}");
                drop(b);
            },
            async {
                let mut a = AsyncEndpoint::new(a.endpoint).expect("an endpoint in a runtime");
                let mut long = message(&mut a).await;
                let mut bytes = vec![0; LEN];
                if !comes_back {
                    go_on.send(()).expect("it will stand still");
                }
                let read = in_time(a.read(&mut long, &mut bytes)).await;
                assert_eq!(read.map(|_| ()), Err(ReadError::Closed(why)));
                let told = in_time(a.next()).await.expect("an event");
                assert!(matches!(told, Event::Closed(_, reason) if reason == why), "{told:?}");
                drop(go_on);
            },
        );
    }
}
