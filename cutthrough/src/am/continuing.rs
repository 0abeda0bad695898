//! What takes the answer to one call, and what it may do.

use std::sync::Arc;

use cutthrough_node::incoming::Channel;
use cutthrough_node::shm::grant::NoMemory;
use cutthrough_node::shm::receive::ReadError;
use cutthrough_segment::page::Page;

use super::{Failed, Reply};
use crate::Endpoint;

/// What runs once with the answer to a call.
type Once = Box<dyn FnOnce(&mut Continuing<'_>, Result<Reply, Failed>) + Send>;

/// What takes the answer to one call.
pub(crate) enum Continuation {
    /// It runs.
    Run(Once),
    /// It is there before and after the call, which allocates nothing for it.
    Leave(Arc<dyn Taker>),
}

/// Where answers to calls are left.
pub(crate) trait Taker: Send + Sync {
    /// Takes the answer, on the thread that has the node.
    fn leave(&self, answer: Result<Reply, Failed>);
}

impl Continuation {
    pub(super) fn run(self, inside: &mut Continuing<'_>, answer: Result<Reply, Failed>) {
        match self {
            Self::Run(run) => run(inside, answer),
            Self::Leave(taker) => taker.leave(answer),
        }
    }
}

/// What a continuation ([`Asking::send_then`](super::Asking::send_then)) has of its node's endpoint: it reads the reply
/// and gives back what that holds, and takes pages. It can neither poll nor wait, nor close a channel: requests and
/// replies that it took in would be the node's, which never heard of them.
///
/// ```
/// use cutthrough::am::{Continuing, Reply};
///
/// fn take(inside: &mut Continuing<'_>, mut reply: Reply) {
///     let mut bytes = vec![0; reply.payload_len()];
///     reply.read(inside, &mut bytes).expect("all of it has come");
///     inside.release(reply);
/// }
/// ```
///
/// There is nothing to poll by:
///
/// ```compile_fail,E0599
/// use cutthrough::am::{Continuing, Reply};
///
/// fn take(inside: &mut Continuing<'_>, mut reply: Reply) {
///     let mut bytes = vec![0; reply.payload_len()];
///     reply.read(inside, &mut bytes).expect("all of it has come");
///     inside.poll();
/// }
/// ```
#[derive(Debug)]
pub struct Continuing<'n> {
    pub(super) endpoint: &'n mut Endpoint,
}

impl Continuing<'_> {
    /// Copies the payload of a reply into memory: [`Reply::read`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&mut self, reply: &mut Reply, into: &mut [u8]) -> Result<(), ReadError> {
        self.endpoint.read(&mut reply.incoming, into).map(drop)
    }

    /// Gives back what a reply still holds, as dropping it does, but without locked instructions.
    pub fn release(&mut self, reply: Reply) {
        self.endpoint.release(reply.incoming);
    }

    /// Pages of a channel's pool for the payload of a later request: [`Endpoint::page`].
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn page(&mut self, channel: Channel, bytes: usize) -> Result<Page, NoMemory> {
        self.endpoint.page(channel, bytes)
    }
}
