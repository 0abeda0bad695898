//! An endpoint for tokio: waits on the endpoint's file descriptor.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::time::Duration;

use cutthrough_node::sys::readable::Readable;
use rustix::io::Errno;

use crate::{Channel, ConnectError, Connecting, Endpoint, Event};

/// An [`Endpoint`] whose events can be awaited. Dereferences to the endpoint for everything else.
#[derive(Debug)]
pub struct AsyncEndpoint {
    endpoint: Endpoint,
    readable: Readable,
    /// What happened while a channel was being opened.
    meanwhile: VecDeque<Event>,
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
        Ok(Self { endpoint, readable, meanwhile: VecDeque::new() })
    }

    /// Opens a channel to whoever listens at `address`, as [`Endpoint::connect`], but keeps nothing else of the runtime
    /// waiting. Events that come meanwhile are told afterwards. Dropping the future gives the channel up.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        let connecting = self.endpoint.begin_connect(address, timeout)?;
        let mut giving_up = GivingUp { endpoint: self, connecting: Some(connecting) };
        loop {
            let AsyncEndpoint { endpoint, readable, meanwhile } = &mut *giving_up.endpoint;
            match endpoint.poll() {
                Some(Event::Connected(of, outcome)) if of == connecting => {
                    giving_up.connecting = None;
                    return outcome;
                }
                Some(event) => {
                    meanwhile.push_back(event);
                    endpoint.tells_later(true);
                }
                None if endpoint.arm() => readable
                    .readable()
                    .await
                    .map_err(|error| ConnectError::System(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?,
                None => {}
            }
        }
    }

    /// The next event. Dropping the future loses nothing: an event is taken only when it is returned.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    pub async fn next(&mut self) -> std::io::Result<Event> {
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
            }
            if self.endpoint.arm() {
                self.readable.readable().await?;
            }
        }
    }

    /// The next event, if there is one: [`Endpoint::poll`].
    pub fn poll(&mut self) -> Option<Event> {
        let Some(event) = self.meanwhile.pop_front() else { return self.endpoint.poll() };
        self.endpoint.tells_later(!self.meanwhile.is_empty());
        Some(event)
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
