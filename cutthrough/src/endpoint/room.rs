//! Room for what is to be sent: waited for, asked for, or looked for.

use std::time::Duration;

use cutthrough_node::incoming::Channel;
use cutthrough_node::node::room::RoomError;

use super::Endpoint;

impl Endpoint {
    /// Waits until there is room for a message of this channel, so that neither [`Endpoint::send`] nor
    /// [`Endpoint::outgoing`] says [`SendError::Full`](crate::SendError::Full): looks for a while, then sleeps. `None`
    /// waits for ever. For who has something to send, and nothing better to do until it has gone:
    ///
    /// ```
    /// # use cutthrough::{Channel, Endpoint, RoomError, SendError};
    /// fn send(endpoint: &mut Endpoint, channel: Channel, control: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    ///     while let Err(error) = endpoint.send(channel, control) {
    ///         match error {
    ///             SendError::Full => endpoint.wait_for_room(channel, None)?,
    ///             other => return Err(other.into()),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The peer may wait for room itself, in a channel to this endpoint. So what happens meanwhile is set aside, at any
    /// channel, in its order, and polled or waited for afterwards: messages, and that channels have begun or ended.
    /// When 16,384 events wait like that, the rest stays where it is, and who sends it waits for room as this side
    /// does. Then it is for this side to poll, if the receiver goes on only when it has more than that of this side's
    /// hands: wait with a timeout where that can be.
    ///
    /// The receiver says how far it is after every eighth of the ring, and when it goes to sleep; over a network with
    /// what it acknowledges. Until then there is no room, though it has taken some messages.
    ///
    /// This is for the message alone: for what else its pages need see [`Endpoint::has_room_for_list`]; and a long
    /// private payload is refused as full while a thousand messages of its peer, which an earlier one has taken out of
    /// the way, wait to be received ([`Outgoing::send`](crate::Outgoing::send)).
    ///
    /// # Errors
    /// [`RoomError::Closed`] when the channel has ended, [`RoomError::TimedOut`] when the time is over,
    /// [`RoomError::Woken`] when a [`Waker`](crate::Waker) has ended it.
    pub fn wait_for_room(&mut self, channel: Channel, timeout: Option<Duration>) -> Result<(), RoomError> {
        self.node.wait_for_room(channel, timeout)
    }

    /// Asks to be told, by [`Event::Room`](crate::Event::Room), once there is room for a message of this channel, as
    /// [`Endpoint::wait_for_room`] would find it: next, if there is some already. For who has several channels, or
    /// something else to do meanwhile. It is told once, also to whoever asks again before that; whoever finds no room
    /// after it asks again.
    ///
    /// ```
    /// use std::error::Error;
    /// use cutthrough::{Channel, Endpoint, Event, SendError};
    ///
    /// /// Sends a message, or asks for room: whether it has gone.
    /// fn send(endpoint: &mut Endpoint, channel: Channel, control: &[u8]) -> Result<bool, Box<dyn Error>> {
    ///     match endpoint.send(channel, control) {
    ///         Err(SendError::Full) => Ok(endpoint.ask_for_room(channel).map(|()| false)?),
    ///         sent => Ok(sent.map(|()| true)?),
    ///     }
    /// }
    ///
    /// /// Sends a message to each of several receivers, however far behind one of them is.
    /// fn publish(endpoint: &mut Endpoint, to: &[Channel], control: &[u8]) -> Result<(), Box<dyn Error>> {
    ///     let mut behind = Vec::new();
    ///     for channel in to {
    ///         if !send(endpoint, *channel, control)? {
    ///             behind.push(*channel);
    ///         }
    ///     }
    ///     while !behind.is_empty() {
    ///         // Or by `poll`, by the file descriptor (`Endpoint::arm`), or awaited in tokio.
    ///         match endpoint.wait(None)? {
    ///             Event::Room(channel) if !send(endpoint, channel, control)? => {}
    ///             Event::Room(channel) | Event::Closed(channel, _) => behind.retain(|of| *of != channel),
    ///             _ => {}
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Unlike there nothing is set aside: what happens meanwhile is polled for. If the channel ends before there is
    /// room, [`Event::Closed`](crate::Event::Closed) is told alone.
    ///
    /// # Errors
    /// [`RoomError::Closed`] when the channel has ended.
    pub fn ask_for_room(&mut self, channel: Channel) -> Result<(), RoomError> {
        self.node.ask_for_room(channel)
    }

    /// Whether a list of so many runs of pages ([`Outgoing::attach_list`](crate::Outgoing::attach_list)), or one run
    /// for a token, or of frozen pages, can be sent now, which needs room of its own over shared memory. Sent without
    /// it is refused as [`SendError::TooManyRuns`](crate::SendError::TooManyRuns), and what was written to the pages
    /// is lost, but for frozen ones. A list that is too long for any room can be sent: it is refused for that.
    ///
    /// ```
    /// # fn send(endpoint: &mut cutthrough::Endpoint, channel: cutthrough::Channel, pages: Vec<cutthrough::Page>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// while !endpoint.has_room_for_list(channel, pages.len()) {
    ///     if let Some(event) = endpoint.poll() {
    ///         println!("meanwhile: {event:?}");
    ///     }
    /// }
    /// endpoint.outgoing(channel)?.attach_list(pages).send()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn has_room_for_list(&mut self, channel: Channel, pages: usize) -> bool {
        self.node.link(channel).map_or(true, |(link, stat)| link.has_room_for_list(pages, stat))
    }

    /// Whether there is room for a message of a channel by now; if not, some of what has happened is set aside.
    #[cfg(feature = "tokio")]
    pub(crate) fn look_for_room(&mut self, channel: Channel) -> Result<bool, RoomError> {
        self.node.look_for_room(channel)
    }

    /// As [`Endpoint::arm`], for who waits for that; [`Endpoint::want_no_room`] comes at the end.
    #[cfg(feature = "tokio")]
    pub(crate) fn arm_for_room(&mut self, channel: Channel) -> bool {
        self.node.arm_for_room(channel)
    }

    /// Nobody waits for room any more.
    #[cfg(feature = "tokio")]
    pub(crate) fn want_no_room(&mut self) {
        self.node.want_no_room();
    }
}
