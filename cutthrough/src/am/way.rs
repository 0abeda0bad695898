//! The way out of an endpoint: how requests and answers become messages.

use cutthrough_engine::am::{Keep, Transport, Unsent};
use cutthrough_engine::token::Token;
use cutthrough_node::incoming::Channel;
use cutthrough_node::shm::grant::NoMemory;
use cutthrough_node::shm::link::SendError;
use cutthrough_segment::page::Page;

use crate::Endpoint;

/// The payload of a request or a reply.
#[derive(Debug, Default)]
pub enum Body<'a> {
    /// None.
    #[default]
    None,
    /// Borrowed memory. Up to a page of it is copied into a page of the endpoint; more is sent from where it lies, and
    /// may then wait for the peer as [`Outgoing::send`](crate::Outgoing::send) does.
    Copy(&'a [u8]),
    /// A page of the channel ([`Node::page`](super::Node::page), [`Request::page`](super::Request::page)): it goes by
    /// reference, or is put straight to where a token says.
    Page(Page),
    /// Pages of the channel, one behind the other; all but the last are full.
    Pages(Vec<Page>),
}

impl Body<'_> {
    /// Bytes of the payload.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Copy(bytes) => bytes.len(),
            Self::Page(page) => page.len(),
            Self::Pages(pages) => pages.iter().map(|page| page.len()).sum(),
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A payload that waits for room.
#[derive(Debug)]
pub(super) enum Kept {
    Bytes(Vec<u8>),
    Pages(Vec<Page>),
}

impl Keep<Kept> for Body<'_> {
    fn keep(self) -> Option<Kept> {
        match self {
            Self::None => None,
            Self::Copy(bytes) => Some(Kept::Bytes(bytes.to_vec())),
            Self::Page(page) => Some(Kept::Pages(vec![page])),
            Self::Pages(pages) => Some(Kept::Pages(pages)),
        }
    }

    fn bytes(&self) -> usize {
        if let Self::Copy(bytes) = self { bytes.len() } else { 0 }
    }
}

impl Keep<Kept> for () {
    fn keep(self) -> Option<Kept> {
        None
    }
}

/// An endpoint, and its channels by row.
#[derive(Debug)]
pub(super) struct Way<'a> {
    pub(super) endpoint: &'a mut Endpoint,
    pub(super) doors: &'a [Option<Channel>],
}

impl Way<'_> {
    #[inline]
    fn door(&self, row: u32) -> Result<Channel, Unsent> {
        self.doors.get(row as usize).copied().flatten().ok_or(Unsent::Closed)
    }
}

impl Transport<()> for Way<'_> {
    #[inline]
    fn send(&mut self, row: u32, control: &[u8], _: Option<Token>, (): ()) -> Result<(), (Unsent, ())> {
        let door = self.door(row).map_err(|why| (why, ()))?;
        self.endpoint.send(door, control).map_err(|error| (unsent(error), ()))
    }
}

impl<'a> Transport<Body<'a>> for Way<'_> {
    fn send(
        &mut self,
        row: u32,
        control: &[u8],
        token: Option<Token>,
        body: Body<'a>,
    ) -> Result<(), (Unsent, Body<'a>)> {
        if matches!(body, Body::None) {
            return self.send(row, control, token, ()).map_err(|(why, ())| (why, Body::None));
        }
        let door = match self.door(row) {
            Ok(door) => door,
            Err(why) => return Err((why, body)),
        };
        // A payload of up to a page goes by way of a page: private memory might have to wait for the receiver.
        let body = match body {
            Body::Copy(bytes) if token.is_none() && bytes.len() <= self.endpoint.page_bytes() as usize => {
                if let Err(error) = self.endpoint.outgoing(door) {
                    return Err((unsent(error), body));
                }
                match self.endpoint.page(door, bytes.len()) {
                    Ok(mut page) => {
                        page.copy_from_slice(bytes);
                        Body::Page(page)
                    }
                    Err(NoMemory::Closed(_)) => return Err((Unsent::Closed, body)),
                    Err(_) => return Err((Unsent::Full, body)),
                }
            }
            body => body,
        };
        // Asked before the payload is given away, which a refused message takes with it.
        let outgoing = match self.endpoint.outgoing(door) {
            Ok(outgoing) => outgoing.write(control),
            Err(error) => return Err((unsent(error), body)),
        };
        let outgoing = match body {
            Body::None => outgoing,
            Body::Copy(bytes) => outgoing.attach_copy(bytes),
            Body::Page(page) => outgoing.attach(page),
            Body::Pages(pages) => outgoing.attach_list(pages),
        };
        let outgoing = match token {
            Some(token) => outgoing.to(token),
            None => outgoing,
        };
        outgoing.send().map(drop).map_err(|error| (refused(error), Body::None))
    }
}

impl Transport<Option<Kept>> for Way<'_> {
    fn send(
        &mut self,
        row: u32,
        control: &[u8],
        token: Option<Token>,
        kept: Option<Kept>,
    ) -> Result<(), (Unsent, Option<Kept>)> {
        let (body, bytes) = match kept {
            None => (Body::None, Vec::new()),
            Some(Kept::Pages(pages)) => (Body::Pages(pages), Vec::new()),
            Some(Kept::Bytes(bytes)) => (Body::None, bytes),
        };
        let borrowed = !bytes.is_empty();
        let body = if borrowed { Body::Copy(&bytes) } else { body };
        match self.send(row, control, token, body) {
            Ok(()) => Ok(()),
            Err((why, Body::Pages(pages))) => Err((why, Some(Kept::Pages(pages)))),
            Err((why, Body::Page(page))) => Err((why, Some(Kept::Pages(vec![page])))),
            Err((why, _)) => Err((why, borrowed.then_some(Kept::Bytes(bytes)))),
        }
    }
}

/// What a message for which there was room is to the engine: it was refused for its payload's sake.
const fn refused(error: SendError) -> Unsent {
    if matches!(error, SendError::Closed(_)) { Unsent::Closed } else { Unsent::Refused }
}

/// What a refused message is to the engine.
pub(super) const fn unsent(error: SendError) -> Unsent {
    match error {
        SendError::Full | SendError::TooManyRuns => Unsent::Full,
        SendError::Closed(_) => Unsent::Closed,
        SendError::TooLong | SendError::ListTooLong | SendError::ForeignPage | SendError::PartialPage => {
            Unsent::Refused
        }
    }
}
