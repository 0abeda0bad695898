//! How a client waits for a channel: without the node, which others use meanwhile.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, Connecting};
use cutthrough_node::node::ConnectError;
use cutthrough_node::udp::address::{Numbers, UdpAddressError, all_numbers, is_number};
use rustix::io::Errno;

use crate::am::{Service, nanos};

/// How much longer than its time a channel is waited for: the node, where nobody keeps it from that, says why there is
/// none.
const GRACE: Duration = Duration::from_millis(100);

/// How long simulated time passes between two looks.
const STEP: Duration = Duration::from_micros(100);

/// What has become of a channel.
#[derive(Debug)]
enum Fate {
    /// Nothing yet; whom to wake then, if a task waits, and what the node knows it by, once that has begun.
    Opening(Option<Waker>, Option<Connecting>),
    Told(Result<Channel, ConnectError>),
    /// Nobody waits for it any more.
    GivenUp,
}

/// A channel that is being opened, and that a thread or a task waits for.
#[derive(Debug)]
struct Opening {
    fate: Mutex<Fate>,
    told: Condvar,
}

impl Opening {
    fn new() -> Arc<Self> {
        Arc::new(Self { fate: Mutex::new(Fate::Opening(None, None)), told: Condvar::new() })
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what has become of it. The channel, if there is one and nobody waits for it any more.
    fn tell(&self, outcome: Result<Channel, ConnectError>) -> Option<Channel> {
        let mut fate = self.fate();
        if matches!(*fate, Fate::GivenUp) {
            return outcome.ok();
        }
        let before = std::mem::replace(&mut *fate, Fate::Told(outcome));
        // Whoever is woken may look here at once.
        drop(fate);
        self.told.notify_one();
        if let Fate::Opening(Some(waker), _) = before {
            waker.wake();
        }
        None
    }

    /// The node opens it, and knows it by this. False if nobody waits for it any more.
    fn has_begun(&self, connecting: Connecting) -> bool {
        let mut fate = self.fate();
        let Fate::Opening(_, known) = &mut *fate else { return false };
        *known = Some(connecting);
        true
    }

    /// Waits until it is known what becomes of it, but no longer than this.
    fn wait(&self, time: Duration) {
        let waits = |fate: &mut Fate| matches!(fate, Fate::Opening(..));
        drop(self.told.wait_timeout_while(self.fate(), time, waits));
    }

    /// What has become of it, if that is known. It is given up otherwise: what the node does for it ends, and takes
    /// nothing any more.
    fn take(&self, service: &Service) -> Option<Result<Channel, ConnectError>> {
        // To drop a waker may run anything, which may wait for who looks here.
        let before = std::mem::replace(&mut *self.fate(), Fate::GivenUp);
        match before {
            Fate::Told(outcome) => Some(outcome),
            Fate::Opening(_, Some(connecting)) => {
                // The node may be in use just now, by this thread, too.
                service.leave_to_thread(move |node| {
                    node.lock().cancel_connect(connecting);
                });
                None
            }
            Fate::Opening(_, None) | Fate::GivenUp => None,
        }
    }

    /// What has become of it, if that is known. Else `waker` is woken then.
    fn poll(&self, waker: &Waker) -> Poll<Result<Channel, ConnectError>> {
        // To copy a waker may run anything, too.
        let waker = waker.clone();
        let mut fate = self.fate();
        let next = match *fate {
            Fate::Opening(_, connecting) => Fate::Opening(Some(waker), connecting),
            Fate::Told(_) | Fate::GivenUp => Fate::GivenUp,
        };
        let before = std::mem::replace(&mut *fate, next);
        drop(fate);
        match before {
            Fate::Told(outcome) => Poll::Ready(outcome),
            Fate::Opening(..) | Fate::GivenUp => Poll::Pending,
        }
    }

    /// Has the service's thread open the channel. No name is looked up.
    fn begin(self: &Arc<Self>, service: &Arc<Service>, address: Numbers, timeout: Duration) {
        let (its, closes) = (Arc::clone(self), Arc::downgrade(service));
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
            let address = address.from(node.inside.endpoint.net_address());
            match node.connect_then(&address, timeout, then) {
                // Nothing is told before the node is polled.
                Ok(connecting) => {
                    if !its.has_begun(connecting) {
                        node.cancel_connect(connecting);
                    }
                }
                Err(error) => drop(its.tell(Err(error))),
            }
        });
    }
}

/// A task that waits for a channel; dropped before it has it, the channel is given up.
struct Waiting<'s> {
    opening: Arc<Opening>,
    service: &'s Arc<Service>,
}

impl Future for Waiting<'_> {
    type Output = Result<Channel, ConnectError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.opening.poll(context.waker())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(Ok(channel)) = self.opening.take(self.service) {
            close(self.service, channel);
        }
    }
}

/// Has the service's thread open a channel, and waits for it up to `timeout`. A name is looked up on this thread.
///
/// # Panics
/// Where this thread has the node.
pub(super) fn open(service: &Arc<Service>, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
    service.assert_elsewhere();
    let address = all_numbers(address)?;
    let opening = Opening::new();
    opening.begin(service, address, timeout);
    let longest = timeout.saturating_add(GRACE);
    if clock::is_simulated() {
        let until = clock::now().after(nanos(longest));
        while matches!(*opening.fate(), Fate::Opening(..)) && clock::now() < until {
            service.rest(STEP);
        }
    } else {
        opening.wait(longest);
    }
    opening.take(service).unwrap_or(Err(ConnectError::Timeout(timeout)))
}

/// The same for a task, which is woken. A name is looked up on a thread of its own.
pub(super) async fn opened(
    service: &Arc<Service>,
    address: String,
    timeout: Duration,
) -> Result<Channel, ConnectError> {
    let waiting = Waiting { opening: Opening::new(), service };
    let (tells, its) = (Arc::clone(&waiting.opening), Arc::downgrade(service));
    look_up(address, move |found| match (found, its.upgrade()) {
        (Ok(address), Some(service)) => tells.begin(&service, address, timeout),
        (Ok(_), None) => {}
        (Err(error), _) => drop(tells.tell(Err(error.into()))),
    })?;
    waiting.await
}

/// Gives `then` the address with the host's numbers in place of its name, at once, or on a thread that lives as long as
/// to look them up takes.
pub(super) fn look_up(
    address: String,
    then: impl FnOnce(Result<Numbers, UdpAddressError>) + Send + 'static,
) -> Result<(), ConnectError> {
    if is_number(&address) {
        then(all_numbers(&address));
        return Ok(());
    }
    let looking = std::thread::Builder::new().name("cutthrough-name".into()).spawn(move || then(all_numbers(&address)));
    looking.map(drop).map_err(|error| ConnectError::System(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))
}

/// Has a channel closed that nobody uses any more. The node may be in use just now, by this thread, too.
pub(super) fn close(service: &Service, channel: Channel) {
    service.leave_to_thread(move |node| node.lock().close(channel));
}
