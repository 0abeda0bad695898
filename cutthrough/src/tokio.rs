//! An endpoint for tokio: waits on the endpoint's file descriptor.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cutthrough_node::clock;
use cutthrough_node::sys::readable::Readable;
use cutthrough_segment::page::Waker as Bell;
use rustix::io::Errno;

use crate::{Channel, ConnectError, Connecting, Endpoint, Event, Incoming, Payload, ReadError, Receipt, RoomError};

/// Most events, and rooms, that are told before the other tasks of their thread have a turn.
const TURN: u32 = 64;

/// An [`Endpoint`] whose events, channels, payloads and room can be awaited. Dereferences to the endpoint for
/// everything else; where another one is put in its place, the next wait is for that one.
///
/// While a call waits that is not awaited, no other task of its thread runs. These of the endpoint may wait for the
/// peer, or for a name server:
///
/// - [`Endpoint::wait`], for whatever happens next. Instead: [`AsyncEndpoint::next`].
/// - [`Endpoint::connect`], for the answer. Instead: [`AsyncEndpoint::connect`].
/// - [`Endpoint::read`] and [`Endpoint::read_traced`], for the rest of a payload that is still arriving. Instead:
///   [`AsyncEndpoint::read`].
/// - [`Endpoint::wait_for_room`], for room. Instead: [`AsyncEndpoint::room`].
/// - [`Outgoing::send`](crate::Outgoing::send), for room, with private memory that is longer than what is used of the
///   staging ring (256 KiB at least); over a network a little while, with some 256 KiB under way. Instead: pages of the
///   channel ([`Endpoint::page`]), which never wait, or shorter payloads.
/// - [`Endpoint::listen`] and [`Endpoint::begin_connect`], for a name server, if a host is not named by its number.
/// - Dropping an endpoint, until what it has sent over a network has arrived: up to five seconds.
///
/// A message that finds no room is refused, as [`SendError::Full`](crate::SendError::Full), and not awaited: wait for
/// room, and send it again; or ask for room ([`Endpoint::ask_for_room`]) and go on, and [`AsyncEndpoint::next`] tells
/// when there is some.
///
/// ```
/// use std::error::Error;
/// use cutthrough::{AsyncEndpoint, Event, SendError};
///
/// /// Sends back whatever comes, as fast as whoever sent it takes it.
/// async fn echo(endpoint: &mut AsyncEndpoint) -> Result<(), Box<dyn Error>> {
///     loop {
///         let Event::Message(message) = endpoint.next().await? else { continue };
///         while let Err(error) = endpoint.send(message.channel(), message.control()) {
///             match error {
///                 SendError::Full => endpoint.room(message.channel()).await?,
///                 other => return Err(other.into()),
///             }
///         }
///     }
/// }
/// ```
///
/// A [`Waker`](crate::Waker) ends [`Endpoint::wait`] and none of these futures: let the runtime choose between them and
/// a message of its own, as by `tokio::select!`.
#[derive(Debug)]
pub struct AsyncEndpoint {
    endpoint: Endpoint,
    readable: Readable,
    /// Of the endpoint whose descriptor is watched: another one may have been put in its place.
    watched: Arc<Bell>,
    /// Events and rooms since others were given a turn.
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
        let watched = endpoint.bell();
        Ok(Self { endpoint, readable, watched, told: 0 })
    }

    /// The endpoint, with its channels: the runtime watches it no more.
    #[must_use]
    pub fn into_inner(self) -> Endpoint {
        self.endpoint
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
            let this = &mut *giving_up.endpoint;
            if let Some(outcome) = this.endpoint.look_for(connecting) {
                giving_up.connecting = None;
                return outcome;
            }
            if this.endpoint.arm_to_look_for() {
                let woken = this.readable().await;
                woken.map_err(|error| ConnectError::System(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            } else {
                let_others_run().await;
            }
        }
    }

    /// Copies a message's payload into private memory, as [`Endpoint::read`], but keeps nothing else of the runtime
    /// waiting for what has not arrived yet. Nothing else is taken in meanwhile: messages wait, and their senders,
    /// where there is no more room. Dropping the future leaves the payload as [`Endpoint::read_some`] does: it can be
    /// read on, into the same memory. For how long a sender may stand still (`Config::deadline`) is counted anew by
    /// each future: whoever gives them up sooner, as a loop over `select!` with a tick may, sees to that itself.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub async fn read(&mut self, message: &mut Incoming, into: &mut [u8]) -> Result<Receipt, ReadError> {
        let (mut valid, mut stall) = (0, self.endpoint.stall());
        loop {
            let before = std::mem::replace(&mut valid, self.endpoint.read_some(message, into)?);
            if !matches!(message.payload(), Payload::Arriving(_)) {
                return Ok(message.receipt());
            }
            if valid > before {
                stall.moves(clock::now());
            } else if self.endpoint.arm_to_read(message, &mut stall)? {
                // Where the runtime cannot tell, it is looked for again and again.
                if self.readable().await.is_ok() {
                    continue;
                }
            }
            let_others_run().await;
        }
    }

    /// Waits until there is room for a message of this channel, as [`Endpoint::wait_for_room`], but keeps nothing else
    /// of the runtime waiting. What happens meanwhile is set aside, as there, and told by [`AsyncEndpoint::next`] in
    /// its order. Dropping the future loses nothing. However much room there is, the other tasks of the thread have
    /// their turn, as there.
    ///
    /// # Errors
    /// [`RoomError::Closed`] when the channel has ended; [`RoomError::System`], an I/O error of the runtime.
    pub async fn room(&mut self, channel: Channel) -> Result<(), RoomError> {
        self.take_turns().await;
        let waiting = WaitingForRoom(self);
        loop {
            let this = &mut *waiting.0;
            if this.endpoint.look_for_room(channel)? {
                this.told += 1;
                return Ok(());
            }
            if this.endpoint.arm_for_room(channel) {
                let woken = this.readable().await;
                woken.map_err(|error| RoomError::System(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            } else {
                let_others_run().await;
            }
        }
    }

    /// The next event. Dropping the future loses nothing: an event is taken only when it is returned. However much
    /// comes, the other tasks of the thread have a turn after every 64 events.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    pub async fn next(&mut self) -> std::io::Result<Event> {
        loop {
            self.take_turns().await;
            if let Some(event) = self.endpoint.poll() {
                self.told += 1;
                return Ok(event);
            }
            if self.endpoint.arm() {
                self.readable().await?;
            } else {
                let_others_run().await;
            }
        }
    }

    /// Waits until the descriptor of the endpoint, which is armed, is readable.
    async fn readable(&mut self) -> std::io::Result<()> {
        let bell = self.endpoint.bell();
        if !Arc::ptr_eq(&bell, &self.watched) {
            self.readable = Readable::watch(self.endpoint.as_fd())?;
            self.watched = bell;
        }
        self.readable.readable().await
    }

    /// Gives the other tasks of the thread a turn, if so much was told since their last one.
    async fn take_turns(&mut self) {
        if self.told == TURN {
            // Before the turn: where this future is dropped meanwhile, the next one finds an event at once.
            self.told = 0;
            let_others_run().await;
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

/// Waits for room, until it is dropped.
struct WaitingForRoom<'a>(&'a mut AsyncEndpoint);

impl Drop for WaitingForRoom<'_> {
    fn drop(&mut self) {
        self.0.endpoint.want_no_room();
    }
}
