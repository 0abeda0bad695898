//! A message to be sent.

use std::sync::Arc;

use cutthrough_engine::receipt::Receipt;
use cutthrough_engine::token::Token;
use cutthrough_engine::transfer::Trace;
use cutthrough_node::incoming::Channel;
use cutthrough_node::node::Node;
use cutthrough_node::shm::link::{CloseReason, SendError};
use cutthrough_node::shm::send::{Cargo, Control, Load, Sheaf};
use cutthrough_segment::page::{Frozen, Landed, Page};
use cutthrough_wire::slot::CONTROL_MAX;

/// How the message leaves.
#[derive(Debug)]
enum Way<'a> {
    /// Through memory that both sides share.
    Shared,
    /// Over a network; a control message is written here before it is sent.
    Net(&'a mut [u8; CONTROL_MAX]),
}

/// A borrowed send slot. Write the control message in place, attach a payload, [`send`](Self::send). Dropped unsent,
/// the slot is free again and attached pages go back to their pool.
#[derive(Debug)]
pub struct Outgoing<'a> {
    node: &'a mut Node,
    channel: Channel,
    way: Way<'a>,
    control: Control<'a>,
    /// Private memory as payload; then the cargo has none.
    copy: Option<&'a [u8]>,
    cargo: Cargo<'a>,
}

impl<'a> Outgoing<'a> {
    #[inline]
    pub(crate) const fn new(node: &'a mut Node, channel: Channel) -> Self {
        Self::by(node, channel, Way::Shared)
    }

    pub(crate) const fn over_net(node: &'a mut Node, channel: Channel, slot: &'a mut [u8; CONTROL_MAX]) -> Self {
        Self::by(node, channel, Way::Net(slot))
    }

    #[inline]
    const fn by(node: &'a mut Node, channel: Channel, way: Way<'a>) -> Self {
        let cargo = Cargo { load: Load::None, token: None, cookie: None };
        Self { node, channel, way, control: Control::InPlace(0), copy: None, cargo }
    }

    /// Sets the control message: up to 96 bytes; a longer one is not sent. It is copied when the message is sent.
    #[inline(always)]
    #[must_use]
    pub const fn write(mut self, control: &'a [u8]) -> Self {
        self.control = Control::Borrowed(control);
        self
    }

    /// The first `len` bytes (at most 96) of the slot's control message, to be written in place. What they hold at
    /// first is left over from earlier messages.
    #[inline(always)]
    pub fn control_mut(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(CONTROL_MAX);
        self.control = Control::InPlace(u8::try_from(len).unwrap_or(0));
        match &mut self.way {
            // It is open: while its slot is borrowed nobody closes it.
            Way::Shared => self.node.control_mut(self.channel).map_or(&mut [], |control| &mut control[..len]),
            Way::Net(slot) => &mut slot[..len],
        }
    }

    /// Attaches a page of this channel. It goes by reference: the receiver reads it where it is, and it comes back to
    /// the pool when the receiver releases it.
    ///
    /// Over a network it stays as it is until it has arrived. The kernel copies it from there, or copies nothing, where
    /// that costs less, and it is copied once before that. The receipt counts that copy, and none of the kernel's.
    #[inline(always)]
    #[must_use]
    pub fn attach(self, page: Page) -> Self {
        self.load(None, Load::Pages(Sheaf::One(page)))
    }

    /// Attaches a page of this channel that was frozen ([`Page::freeze`]): as [`Self::attach`], but it stays where it
    /// is, and may be sent again at once, however many have not read it yet. Over shared memory up to 1,024 messages
    /// of such pages are lent at a time; [`Endpoint::has_room_for_list`](crate::Endpoint::has_room_for_list) says
    /// whether there is room for one.
    #[must_use]
    pub fn attach_frozen(self, page: &Frozen) -> Self {
        self.attach(page.view())
    }

    /// Attaches pages of this channel that were frozen, as [`Self::attach_list`] does others.
    #[must_use]
    pub fn attach_frozen_list(self, pages: &[&Frozen]) -> Self {
        self.attach_list(pages.iter().map(|page| page.view()).collect())
    }

    /// Attaches pages of this channel, which together are the payload, in this order; all but the last are full. No
    /// pages are no payload.
    #[must_use]
    pub fn attach_list(self, mut pages: Vec<Page>) -> Self {
        self.load(
            None,
            match pages.pop() {
                None => Load::None,
                Some(page) if pages.is_empty() => Load::Pages(Sheaf::One(page)),
                Some(page) => {
                    pages.push(page);
                    Load::Pages(Sheaf::Many(pages))
                }
            },
        )
    }

    /// Attaches a payload that was received in pages ([`Payload::Landed`](crate::Payload::Landed)), on whatever channel
    /// of whatever endpoint of this process: it is sent on. It is held until the message needs it no more, and then
    /// goes back to where it came from; to send it several times, or to read it meanwhile, pass an [`Arc`] of it.
    ///
    /// Over a network it goes from where it lies, if it came over a network, too (not by a cut of `xdp`), and what came
    /// by shared memory is copied once, behind the headers of its frames: whoever has sent that may still write there.
    /// Over shared memory it is copied once, to where the receiver has named a place, or into pages of this channel, if
    /// there are any, which go by reference; the receiver has mapped nothing else. The receipt counts the copies.
    ///
    /// A peer's pages are held with it: who sends on slowly has the peer run out of pages, as who reads slowly does.
    #[must_use]
    pub fn attach_landed(self, payload: impl Into<Arc<Landed>>) -> Self {
        self.load(None, Load::Landed(payload.into()))
    }

    /// The same message with this payload. What had been attached before is dropped by itself, not in its place: then
    /// the compiler need not keep all of this in memory.
    #[inline(always)]
    fn load(self, copy: Option<&'a [u8]>, load: Load<'a>) -> Self {
        let Self { node, channel, way, control, copy: _, cargo: Cargo { load: before, token, cookie } } = self;
        if !matches!(before, Load::None) {
            drop(before);
        }
        Self { node, channel, way, control, copy, cargo: Cargo { load, token, cookie } }
    }

    /// Attaches borrowed private memory. It is copied before [`Self::send`] returns.
    #[inline(always)]
    #[must_use]
    pub fn attach_copy(self, payload: &'a [u8]) -> Self {
        self.load(Some(payload), Load::None)
    }

    /// Says where the payload shall land: a token that the receiver has granted.
    #[inline(always)]
    #[must_use]
    pub const fn to(mut self, token: Token) -> Self {
        self.cargo.token = Some(token);
        self
    }

    /// Asks for [`Event::Completed`](crate::Event::Completed) with this number when the payload's memory may be used
    /// again. None comes once the channel has ended, whoever has ended it.
    #[inline(always)]
    #[must_use]
    pub const fn track(mut self, cookie: u64) -> Self {
        self.cargo.cookie = Some(cookie);
        self
    }

    /// Sends. Returns when the payload's private memory may be used again; waits only where a private payload is longer
    /// than what is used of the staging ring (256 KiB at least) and the receiver is behind, and then at most for the
    /// endpoint's deadline without progress. After 50 us of that, what others send to this endpoint is set aside: then
    /// processes that send to each other, or in a circle, do not wait for each other. Who has a thousand messages of
    /// this peer set aside already does not wait, but gets [`SendError::Full`]: receive some of them first.
    ///
    /// Over a network a private payload of up to `Config::staging_bytes` is copied instead (there is no next slot while
    /// copies of so much are kept); but while some 256 KiB are under way on the channel and anything moves there, it
    /// waits before that, no longer without progress than the copy would take, and 50 us.
    ///
    /// In a stream of messages over a network, the last up to 64 KiB may wait up to 20 us for others to share a call
    /// of the kernel. They go when the endpoint is next polled, waits or sends, and at once with
    /// [`Endpoint::flush`](crate::Endpoint::flush); if it does nothing, after 5 to 10 ms.
    ///
    /// # Errors
    /// [`SendError`]: the message does not arrive, and attached pages have gone back to their pool, with what was
    /// written there. Whoever has borrowed a slot has room for a page; before a list of pages, or pages for a token,
    /// ask [`Endpoint::has_room_for_list`](crate::Endpoint::has_room_for_list).
    #[inline(always)]
    pub fn send(self) -> Result<Receipt, SendError> {
        self.send_traced(&mut ())
    }

    /// [`Self::send`], telling `trace` of every pulse.
    ///
    /// # Errors
    /// As [`Self::send`].
    #[inline(always)]
    pub fn send_traced(self, trace: &mut impl Trace) -> Result<Receipt, SendError> {
        if matches!(self.control, Control::Borrowed(control) if control.len() > CONTROL_MAX) {
            return Err(SendError::TooLong);
        }
        let Self { node, channel, way, control, copy, cargo: Cargo { load, token, cookie } } = self;
        match way {
            // By itself: what need not be dropped stays in registers. In memory it would be written in two parts, and
            // read as a whole, which has to wait until everything stored before has left this processor.
            Way::Shared if let Some(payload) = copy => {
                let (link, mut others, stat) = node.link_to_wait(channel)?;
                link.send_private(control, payload, token, cookie, trace, (&mut others, stat))
            }
            Way::Shared => {
                let (link, mut others, stat) = node.link_to_wait(channel)?;
                link.send(control, Cargo { load, token, cookie }, trace, (&mut others, stat))
            }
            Way::Net(slot) => {
                let control = match control {
                    Control::InPlace(len) => &slot[..usize::from(len).min(CONTROL_MAX)],
                    Control::Borrowed(control) => control,
                };
                let Some((net, index, mut others, stat)) = node.wire_to_wait(channel) else {
                    return Err(SendError::Closed(CloseReason::Here));
                };
                let load = copy.map_or(load, Load::Copy);
                net.send(index, control, Cargo { load, token, cookie }, (&mut others, stat))
            }
        }
    }
}
