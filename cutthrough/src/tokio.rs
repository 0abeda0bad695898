//! An endpoint for tokio: waits on the endpoint's file descriptor.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::task::Poll;
use std::time::Duration;

use cutthrough_node::clock;
use cutthrough_node::sys::readable::Readable;
use rustix::io::Errno;

use crate::{Channel, ConnectError, Connecting, Endpoint, Event, Incoming, Payload, ReadError, Receipt};

/// Most events that are told before the other tasks of their thread have a turn.
const TURN: u32 = 64;

/// An [`Endpoint`] whose events, channels and payloads can be awaited. Dereferences to the endpoint for everything
/// else.
///
/// While a call waits that is not awaited, no other task of its thread runs. These of the endpoint may wait for the
/// peer, or for a name server:
///
/// - [`Endpoint::wait`], for whatever happens next. Instead: [`AsyncEndpoint::next`].
/// - [`Endpoint::connect`], for the answer. Instead: [`AsyncEndpoint::connect`].
/// - [`Endpoint::read`] and [`Endpoint::read_traced`], for the rest of a payload that is still arriving. Instead:
///   [`AsyncEndpoint::read`].
/// - [`Outgoing::send`](crate::Outgoing::send), for room, with private memory that is longer than what is used of the
///   staging ring (256 KiB at least); over a network a little while, with some 256 KiB under way. Instead: pages of the
///   channel ([`Endpoint::page`]), which never wait, or shorter payloads.
/// - [`Endpoint::listen`] and [`Endpoint::begin_connect`], for a name server, if a host is not named by its number.
/// - Dropping an endpoint, until what it has sent over a network has arrived: up to five seconds.
///
/// Nothing tells when there is room for a message that was refused as [`SendError::Full`](crate::SendError::Full): put
/// `tokio::time::timeout` of a millisecond around [`AsyncEndpoint::next`], heed what that brings, and try again.
///
/// A [`Waker`](crate::Waker) ends [`Endpoint::wait`] and none of these futures: let the runtime choose between them and
/// a message of its own, as by `tokio::select!`.
#[derive(Debug)]
pub struct AsyncEndpoint {
    endpoint: Endpoint,
    readable: Readable,
    /// Events since others were given one.
    told: u32,
}

impl AsyncEndpoint {
    /// Registers the endpoint with the current runtime.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub fn new(endpoint: Endpoint) -> std::io::Result<Self> {
        let readable = Readable::watch(endpoint.as_fd())?;
        Ok(Self { endpoint, readable, told: 0 })
    }

    /// Opens a channel to whoever listens at `address`, as [`Endpoint::connect`], but keeps nothing else of the runtime
    /// waiting. Nothing is taken in of other channels meanwhile: their messages wait, and their senders, where there is
    /// no more room. Dropping the future gives the channel up.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        let connecting = self.endpoint.begin_connect(address, timeout)?;
        let mut giving_up = GivingUp { endpoint: self, connecting: Some(connecting) };
        loop {
            let AsyncEndpoint { endpoint, readable, .. } = &mut *giving_up.endpoint;
            if let Some(outcome) = endpoint.look_for(connecting) {
                giving_up.connecting = None;
                return outcome;
            }
            if endpoint.arm_to_look_for() {
                let woken = readable.readable().await;
                woken.map_err(|error| ConnectError::System(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            } else {
                let_others_run().await;
            }
        }
    }

    /// Copies a message's payload into private memory, as [`Endpoint::read`], but keeps nothing else of the runtime
    /// waiting for what has not arrived yet. Nothing else is taken in meanwhile: messages wait, and their senders,
    /// where there is no more room. Dropping the future leaves the payload as [`Endpoint::read_some`] does: it can be
    /// read on, into the same memory.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub async fn read(&mut self, message: &mut Incoming, into: &mut [u8]) -> Result<Receipt, ReadError> {
        let (mut valid, mut since) = (0, clock::now());
        loop {
            let before = std::mem::replace(&mut valid, self.endpoint.read_some(message, into)?);
            if !matches!(message.payload(), Payload::Arriving(_)) {
                return Ok(message.receipt());
            }
            if valid > before {
                since = clock::now();
            } else if self.endpoint.arm_to_read(message, since)? {
                // Where the runtime cannot tell, it is looked for again and again.
                if self.readable.readable().await.is_ok() {
                    continue;
                }
            }
            let_others_run().await;
        }
    }

    /// The next event. Dropping the future loses nothing: an event is taken only when it is returned. However much
    /// comes, the other tasks of the thread have a turn after every 64 events.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    pub async fn next(&mut self) -> std::io::Result<Event> {
        loop {
            if self.told == TURN {
                // Before the turn: where this future is dropped meanwhile, the next one finds an event at once.
                self.told = 0;
                let_others_run().await;
            }
            if let Some(event) = self.endpoint.poll() {
                self.told += 1;
                return Ok(event);
            }
            if self.endpoint.arm() {
                self.readable.readable().await?;
            } else {
                let_others_run().await;
            }
        }
    }
}

impl Deref for AsyncEndpoint {
    type Target = Endpoint;
    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl DerefMut for AsyncEndpoint {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }
}

/// Lets other tasks of the runtime have their turn.
async fn let_others_run() {
    let mut had = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut had, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Gives a channel up that is being opened, unless that has ended.
struct GivingUp<'a> {
    endpoint: &'a mut AsyncEndpoint,
    connecting: Option<Connecting>,
}

impl Drop for GivingUp<'_> {
    fn drop(&mut self) {
        if let Some(connecting) = self.connecting.take() {
            self.endpoint.endpoint.cancel_connect(connecting);
        }
    }
}
