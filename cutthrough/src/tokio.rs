//! An endpoint for tokio: waits on the endpoint's file descriptor.

use std::ops::{Deref, DerefMut};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::endpoint::{Endpoint, Event};

/// An [`Endpoint`] whose events can be awaited. Dereferences to the endpoint for everything else.
#[derive(Debug)]
pub struct AsyncEndpoint {
    endpoint: AsyncFd<Endpoint>,
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
        Ok(Self { endpoint: AsyncFd::register_with_interest(endpoint, Interest::READABLE)? })
    }

    /// The next event. Dropping the future loses nothing: an event is taken only when it is returned.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    pub async fn next(&mut self) -> std::io::Result<Event> {
        loop {
            if let Some(event) = self.endpoint.get_mut().poll() {
                return Ok(event);
            }
            if !self.endpoint.get_mut().arm() {
                continue;
            }
            self.endpoint.readable_mut().await?.clear_ready();
        }
    }
}

impl Deref for AsyncEndpoint {
    type Target = Endpoint;
    fn deref(&self) -> &Endpoint {
        self.endpoint.get_ref()
    }
}

impl DerefMut for AsyncEndpoint {
    fn deref_mut(&mut self) -> &mut Endpoint {
        self.endpoint.get_mut()
    }
}
