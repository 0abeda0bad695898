//! The way out of an endpoint: how requests and answers become messages.

use std::sync::Arc;

use cutthrough_engine::am::message::Short;
use cutthrough_engine::am::{Keep, Transport, Unsent};
use cutthrough_engine::token::Token;
use cutthrough_node::incoming::Channel;
use cutthrough_node::shm::grant::NoMemory;
use cutthrough_node::shm::link::SendError;
use cutthrough_segment::page::{Frozen, Landed, Page};
use cutthrough_wire::slot::PAYLOAD_MAX;

use crate::Endpoint;

/// The payload of a request or a reply.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Body<'a> {
    /// None.
    #[default]
    None,
    /// Borrowed memory. Up to a page of it is copied into a page of the endpoint. More is sent from where it lies: a
    /// request may then wait for the peer as [`Outgoing::send`](crate::Outgoing::send) does. A reply does not: where it
    /// would, it is copied into pages, and waits in a queue where there are none. Only one that is longer than the
    /// channel's pool waits for the peer, too.
    Copy(&'a [u8]),
    /// Memory that is given away, which goes as borrowed memory does: for what is sent later than it is at hand.
    Owned(Vec<u8>),
    /// A page of the channel ([`Node::page`](super::Node::page), [`Request::page`](super::Request::page)): it goes by
    /// reference, or is put straight to where a token says. As a reply that has to wait behind copies it becomes one
    /// itself, as long as there is room for copies: they may want its page.
    Page(Page),
    /// Pages of the channel, one behind the other; all but the last are full.
    Pages(Vec<Page>),
    /// A payload that was received in pages, by whatever channel of this process: it is sent on
    /// ([`Outgoing::attach_landed`](crate::Outgoing::attach_landed)). A reply waits in a queue where it would wait for
    /// the peer.
    Landed(Arc<Landed>),
}

impl From<Landed> for Body<'_> {
    fn from(payload: Landed) -> Self {
        Self::Landed(Arc::new(payload))
    }
}

/// What was received, as often as one likes.
impl From<&Arc<Landed>> for Body<'_> {
    fn from(payload: &Arc<Landed>) -> Self {
        Self::Landed(Arc::clone(payload))
    }
}

/// A frozen page, as often as one likes: the page that it becomes can be read, and not be written.
impl From<&Frozen> for Body<'_> {
    fn from(page: &Frozen) -> Self {
        Self::Page(page.view())
    }
}

impl Body<'_> {
    /// Bytes of the payload.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Copy(bytes) => bytes.len(),
            Self::Owned(bytes) => bytes.len(),
            Self::Page(page) => page.len(),
            Self::Pages(pages) => pages.iter().map(|page| page.len()).sum(),
            Self::Landed(landed) => landed.len(),
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, wherever they lie.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Copy(bytes) => bytes.to_vec(),
            Self::Owned(bytes) => bytes,
            Self::Page(page) => page.to_vec(),
            Self::Pages(pages) => pages.iter().flat_map(|page| page.iter().copied()).collect(),
            Self::Landed(landed) => landed.to_vec(),
        }
    }
}

/// A payload that waits for room.
#[derive(Debug)]
pub(super) enum Kept {
    Bytes(Vec<u8>),
    Pages(Vec<Page>),
    Landed(Arc<Landed>),
}

impl Keep<Kept> for Body<'_> {
    fn keep(self) -> Option<Kept> {
        match self {
            Self::None => None,
            Self::Copy(bytes) => Some(Kept::Bytes(bytes.to_vec())),
            Self::Owned(bytes) => Some(Kept::Bytes(bytes)),
            Self::Page(page) => Some(Kept::Pages(vec![page])),
            Self::Pages(pages) => Some(Kept::Pages(pages)),
            Self::Landed(landed) if landed.is_sole() => Some(Kept::Landed(landed)),
            // The peer that has lent these pages may have none left for what this waits for.
            Self::Landed(landed) => Some(Kept::Bytes(landed.to_vec())),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Copy(bytes) => bytes.len(),
            Self::Owned(bytes) => bytes.len(),
            Self::Landed(landed) if !landed.is_sole() => landed.len(),
            Self::None | Self::Page(_) | Self::Pages(_) | Self::Landed(_) => 0,
        }
    }

    fn in_own_memory(self, most: usize) -> Self {
        let lies_in_pages = matches!(self, Self::Page(_) | Self::Pages(_) | Self::Landed(_));
        if lies_in_pages && self.len() <= most { Self::Owned(self.into_bytes()) } else { self }
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
    /// Whether who sends may wait for the peer.
    pub(super) patient: bool,
}

impl Way<'_> {
    #[inline]
    fn door(&self, row: u32) -> Result<Channel, Unsent> {
        self.doors.get(row as usize).copied().flatten().ok_or(Unsent::Closed)
    }

    /// Whether a payload has to be copied into pages, because it would wait for the peer otherwise.
    fn goes_by_pages(&mut self, door: Channel, body: &Body<'_>, token: Option<Token>) -> bool {
        let is_copied = match body {
            Body::Copy(_) => true,
            Body::Landed(_) => !self.endpoint.crosses_net(door),
            Body::None | Body::Owned(_) | Body::Page(_) | Body::Pages(_) => false,
        };
        let may = !self.patient && body.len() as u64 <= self.endpoint.pool_bytes().min(PAYLOAD_MAX);
        is_copied && may && self.endpoint.would_wait(door, body.len(), token)
    }

    /// Copies a payload that does not lie in pages of the channel into such: as few runs of them as there are.
    fn paged(&mut self, door: Channel, body: &Body<'_>) -> Result<Vec<Page>, NoMemory> {
        let (page_bytes, bytes) = (self.endpoint.page_bytes() as usize, body.len());
        let (mut pages, mut room, mut run) = (Vec::<Page>::new(), 0, bytes);
        while room < bytes {
            match self.endpoint.page(door, run.min(bytes - room)) {
                Ok(page) => {
                    room += page.len();
                    pages.push(page);
                }
                Err(NoMemory::NoPages) if run > page_bytes && pages.len() < RUNS => {
                    run = (run / 2).next_multiple_of(page_bytes);
                }
                Err(error) => return Err(error),
            }
        }
        let mut at = 0;
        for page in &mut pages {
            let end = at + page.len();
            match body {
                Body::Copy(bytes) => page.copy_from_slice(&bytes[at..end]),
                Body::Landed(landed) => landed.read_at(at, page),
                other => unreachable!("{} bytes that go as they are", other.len()),
            }
            at = end;
        }
        Ok(pages)
    }
}

/// Most runs of pages that a payload is cut into.
const RUNS: usize = 64;

impl Transport<()> for Way<'_> {
    #[inline]
    fn send(&mut self, row: u32, control: &[u8], _: Option<Token>, (): ()) -> Result<(), (Unsent, ())> {
        let door = self.door(row).map_err(|why| (why, ()))?;
        self.endpoint.send(door, control).map_err(|error| (unsent(error), ()))
    }
}

/// The way out on one channel, which has not ended as far as the node knows.
#[derive(Debug)]
pub(super) struct Straight<'a> {
    pub(super) endpoint: &'a mut Endpoint,
    pub(super) door: Channel,
}

impl Transport<()> for Straight<'_> {
    fn send(&mut self, _: u32, control: &[u8], _: Option<Token>, (): ()) -> Result<(), (Unsent, ())> {
        self.endpoint.send(self.door, control).map_err(|error| (unsent(error), ()))
    }

    #[inline(always)]
    fn send_short(&mut self, _: u32, message: Short<'_>, _: Option<Token>, (): ()) -> Result<(), (Unsent, ())> {
        self.endpoint.send_short(self.door, message).map_err(|error| (unsent(error), ()))
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
        let body = match body {
            Body::None => return self.send(row, control, token, ()).map_err(|(why, ())| (why, Body::None)),
            Body::Owned(bytes) => {
                let sent = self.send(row, control, token, Body::Copy(&bytes)).map_err(|(why, _)| why);
                return sent.map_err(|why| (why, Body::Owned(bytes)));
            }
            body => body,
        };
        let door = match self.door(row) {
            Ok(door) => door,
            Err(why) => return Err((why, body)),
        };
        // What was copied into pages for want of another way can wait as it was.
        let mut copied = None;
        // A payload of up to a page goes by way of a page: private memory might have to wait for the receiver.
        let body = match body {
            Body::Copy(bytes) if token.is_none() && bytes.len() <= self.endpoint.page_bytes() as usize => {
                if let Err(error) = self.endpoint.outgoing(door) {
                    return Err((unsent(error), body));
                }
                match self.endpoint.page(door, bytes.len()) {
                    Ok(mut page) => {
                        page.copy_from_slice(bytes);
                        copied = Some(Body::Copy(bytes));
                        Body::Page(page)
                    }
                    Err(NoMemory::Closed(_)) => return Err((Unsent::Closed, body)),
                    Err(_) => return Err((Unsent::Full, body)),
                }
            }
            // Whoever answers must not wait for who has asked: others are to be served.
            body if self.goes_by_pages(door, &body, token) => {
                if let Err(error) = self.endpoint.outgoing(door) {
                    return Err((unsent(error), body));
                }
                match self.paged(door, &body) {
                    Ok(pages) => {
                        copied = Some(body);
                        Body::Pages(pages)
                    }
                    Err(NoMemory::Closed(_)) => return Err((Unsent::Closed, body)),
                    Err(_) => return Err((Unsent::Full, body)),
                }
            }
            body => body,
        };
        // Asked before the payload is given away, which a refused message takes with it.
        let (listed, free) = match &body {
            Body::Pages(pages) => (pages.len(), usize::from(!pages.iter().any(Page::is_view))),
            Body::Page(page) => (1, usize::from(!page.is_view())),
            Body::None | Body::Copy(_) | Body::Owned(_) | Body::Landed(_) => (0, 0),
        };
        let free = if token.is_none() { free } else { 0 };
        if listed > free && !self.endpoint.has_room_for_list(door, listed) {
            return Err((Unsent::Full, copied.unwrap_or(body)));
        }
        // Such a payload is there still when it was not sent. And it moves while it is sent, and its message comes with
        // the first of it: what was received may, but where it goes from where it lies.
        let (again, moves) = match &body {
            Body::Copy(bytes) => (Body::Copy(bytes), true),
            Body::Landed(landed) => (Body::Landed(Arc::clone(landed)), !self.endpoint.crosses_net(door)),
            Body::None | Body::Owned(_) | Body::Page(_) | Body::Pages(_) => (Body::None, false),
        };
        let outgoing = match self.endpoint.outgoing(door) {
            Ok(outgoing) => outgoing.write(control),
            Err(error) => return Err((unsent(error), copied.unwrap_or(body))),
        };
        let outgoing = match body {
            // What is owned goes as what is borrowed, above.
            Body::None | Body::Owned(_) => outgoing,
            Body::Copy(bytes) => outgoing.attach_copy(bytes),
            Body::Page(page) => outgoing.attach(page),
            Body::Pages(pages) => outgoing.attach_list(pages),
            Body::Landed(landed) => outgoing.attach_landed(landed),
        };
        let outgoing = match token {
            Some(token) => outgoing.to(token),
            None => outgoing,
        };
        let sent = outgoing.send().map(drop);
        sent.map_err(|error| (refused(error, moves, !matches!(again, Body::None)), again))
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
        let body = match kept {
            None => Body::None,
            Some(Kept::Pages(pages)) => Body::Pages(pages),
            Some(Kept::Landed(landed)) => Body::Landed(landed),
            Some(Kept::Bytes(bytes)) => Body::Owned(bytes),
        };
        self.send(row, control, token, body).map_err(|(why, body)| (why, body.keep()))
    }
}

/// What a message for which there was room is to the engine: it was refused for its payload's sake. One whose payload
/// moves while it is sent may have come by then. One whose payload is there still can wait for the receiver, or for the
/// lists of pages that are on their way; another one would go without it.
const fn refused(error: SendError, moves: bool, is_there: bool) -> Unsent {
    match error {
        SendError::Closed(_) if moves => Unsent::Lost,
        SendError::Closed(_) => Unsent::Closed,
        SendError::Full | SendError::TooManyRuns if is_there => Unsent::Full,
        _ => Unsent::Refused,
    }
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
