//! An endpoint for tokio: waits on the endpoint's file descriptor.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;

use cutthrough_node::sys::readable::Readable;

use crate::{Endpoint, Event};

/// An [`Endpoint`] whose events can be awaited. Dereferences to the endpoint for everything else.
#[derive(Debug)]
pub struct AsyncEndpoint {
    endpoint: Endpoint,
    readable: Readable,
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
        Ok(Self { endpoint, readable })
    }

    /// The next event. Dropping the future loses nothing: an event is taken only when it is returned.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    pub async fn next(&mut self) -> std::io::Result<Event> {
        loop {
            if let Some(event) = self.endpoint.poll() {
                return Ok(event);
            }
            if self.endpoint.arm() {
                self.readable.readable().await?;
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
