//! How a client waits for a channel: without the node, which others use meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutthrough_node::clock;
use cutthrough_node::incoming::Channel;
use cutthrough_node::node::ConnectError;
use cutthrough_node::udp::address::numbers;

use crate::am::{Service, nanos};

/// How much longer than its time a channel is waited for: the node, where nobody keeps it from that, says why there is
/// none.
const GRACE: Duration = Duration::from_millis(100);

/// How long simulated time passes between two looks.
const STEP: Duration = Duration::from_micros(100);

/// What has become of a channel.
#[derive(Debug)]
enum Fate {
    Opening,
    Told(Result<Channel, ConnectError>),
    /// Nobody waits for it any more.
    GivenUp,
}

/// A channel that is being opened, and that somebody waits for.
#[derive(Debug)]
struct Opening {
    fate: Mutex<Fate>,
    told: Condvar,
}

impl Opening {
    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what has become of it. The channel, if there is one and nobody waits for it any more.
    fn tell(&self, outcome: Result<Channel, ConnectError>) -> Option<Channel> {
        let mut fate = self.fate();
        if matches!(*fate, Fate::GivenUp) {
            return outcome.ok();
        }
        *fate = Fate::Told(outcome);
        self.told.notify_one();
        None
    }

    /// Waits for what becomes of it. `None` if that is not known in time: then it is given up.
    fn wait(&self, time: Duration) -> Option<Result<Channel, ConnectError>> {
        let waits = |fate: &mut Fate| matches!(fate, Fate::Opening);
        let waited = self.told.wait_timeout_while(self.fate(), time, waits);
        let (mut fate, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *fate, Fate::GivenUp) {
            Fate::Told(outcome) => Some(outcome),
            Fate::Opening | Fate::GivenUp => None,
        }
    }
}

/// Has the service's thread open a channel, and waits for it up to `timeout`. A name is looked up on this thread.
pub(super) fn open(service: &Arc<Service>, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
    let address = numbers(address)?;
    let opening = Arc::new(Opening { fate: Mutex::new(Fate::Opening), told: Condvar::new() });
    let (its, closes) = (Arc::clone(&opening), Arc::downgrade(service));
    service.leave_to_thread(move |node| {
        let mut node = node.lock();
        if matches!(*its.fate(), Fate::GivenUp) {
            return;
        }
        let tells = Arc::clone(&its);
        let then = move |outcome| {
            if let (Some(channel), Some(service)) = (tells.tell(outcome), closes.upgrade()) {
                close(&service, channel);
            }
        };
        if let Err(error) = node.connect_then(&address, timeout, then) {
            its.tell(Err(error));
        }
    });
    let longest = timeout.saturating_add(GRACE);
    if clock::is_simulated() {
        let until = clock::now().after(nanos(longest));
        while matches!(*opening.fate(), Fate::Opening) && clock::now() < until {
            service.rest(STEP);
        }
        return opening.wait(Duration::ZERO).unwrap_or(Err(ConnectError::Timeout(timeout)));
    }
    opening.wait(longest).unwrap_or(Err(ConnectError::Timeout(timeout)))
}

/// Has a channel closed that nobody uses any more. The node may be in use just now, by this thread, too.
pub(super) fn close(service: &Service, channel: Channel) {
    service.leave_to_thread(move |node| node.lock().close(channel));
}
