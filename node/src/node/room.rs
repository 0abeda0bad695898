//! Waiting for room: until a message can be sent in a channel that has none; or being told of it, among other events.
//!
//! The peer may wait for room itself, with messages of this side before it that it takes only when it goes on. So
//! whoever waits here sets aside what happens meanwhile, to be polled for afterwards, and two that wait for each other
//! go on. When much was set aside, the rest stays where it is, as it does while nobody polls: then this side holds
//! others up as it is held up itself.

use std::time::Duration;

use rustix::io::Errno;

use super::sleep::{Woken, left_of};
use super::{Node, SPIN_NS, WaitError};
use crate::clock;
use crate::incoming::{Channel, Event};
use crate::shm::link::{CloseReason, SendError};

/// Events that may wait to be polled for before nothing more is set aside: as many as a send that waits takes out of
/// the way of one peer.
const ASIDE: usize = 16 << 10;
/// Events that are set aside between two looks for room.
const ASIDE_AT_ONCE: usize = 64;

/// Why a wait for room has ended without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoomError {
    /// The channel has ended: there will be none.
    #[error("the channel has ended: {0}")]
    Closed(CloseReason),
    /// The time is over.
    #[error("no room in time: the receiver is behind")]
    TimedOut,
    /// A [`Waker`](super::Waker) has ended it.
    #[error("woken before there was room")]
    Woken,
    /// The system refused to wait.
    #[error("waiting failed: {0}")]
    System(Errno),
}

impl From<WaitError> for RoomError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::TimedOut => Self::TimedOut,
            WaitError::Woken => Self::Woken,
            WaitError::System(errno) => Self::System(errno),
        }
    }
}

impl Node {
    /// Waits until there is room for a message of this channel: looks for a while, then sleeps. `None` waits for ever.
    /// Whatever happens meanwhile is there to be polled for afterwards.
    ///
    /// # Errors
    /// [`RoomError`].
    pub fn wait_for_room(&mut self, channel: Channel, timeout: Option<Duration>) -> Result<(), RoomError> {
        if self.has_room(channel)? {
            return Ok(());
        }
        let waited = self.look_and_sleep_for_room(channel, timeout);
        self.want_no_room();
        if let Some(net) = &self.net {
            net.has_waited();
        }
        waited
    }

    fn look_and_sleep_for_room(&mut self, channel: Channel, timeout: Option<Duration>) -> Result<(), RoomError> {
        let begun = clock::now();
        let mut looking_since = Some(begun);
        loop {
            if self.woken.take() {
                return Err(RoomError::Woken);
            }
            if self.look_for_room(channel)? {
                return Ok(());
            }
            let now = clock::now();
            let left = left_of(timeout, begun, now)?;
            if looking_since.is_some_and(|since| now.saturating_since(since) < SPIN_NS) {
                std::hint::spin_loop();
                continue;
            }
            // Perhaps the peer waits for this core.
            if looking_since.is_some() {
                self.let_others_run();
                if self.look_for_room(channel)? {
                    return Ok(());
                }
            }
            let by = if self.arm_wanting(channel, false) { self.sleep(left)? } else { Woken::Nothing };
            // Of a sign of life of the network nothing follows, nor of the end of a nap.
            looking_since = matches!(by, Woken::Nothing | Woken::Else).then(clock::now);
        }
    }

    /// Whether there is room for a message of this channel by now. If not, sets aside some of what has happened.
    ///
    /// # Errors
    /// [`RoomError::Closed`].
    pub fn look_for_room(&mut self, channel: Channel) -> Result<bool, RoomError> {
        if self.has_room(channel)? {
            return Ok(true);
        }
        if self.events.len() >= ASIDE {
            return Ok(false);
        }
        // Those that wait already are told first, and would be told here.
        let mut aside = std::mem::take(&mut self.events);
        aside.extend(std::iter::from_fn(|| self.poll()).take(ASIDE_AT_ONCE));
        aside.append(&mut self.events);
        self.events = aside;
        self.has_room(channel)
    }

    /// Has [`Event::Room`] told, once, when there is room for a message of this channel: by the next poll, if there is
    /// some now. If the channel ends before, that is told, and nothing of room. Asked again before it was told, that
    /// there is room is told once for both.
    ///
    /// # Errors
    /// [`RoomError::Closed`].
    pub fn ask_for_room(&mut self, channel: Channel) -> Result<(), RoomError> {
        let has_room = self.has_room(channel)?;
        let tells = |event: &Event| matches!(event, Event::Room(of) if *of == channel);
        if self.asked.contains(&channel) || has_room && self.events.iter().any(tells) {
            return Ok(());
        }
        // Room that was found for it before is gone.
        self.events.retain(|event| !tells(event));
        self.asked.push(channel);
        match self.wire(channel) {
            Some((net, index)) => net.ask_for_room(index),
            None => self.arm_anew(channel),
        }
        Ok(())
    }

    /// Looks for room where the application has asked to be told of it.
    pub(super) fn tell_of_room(&mut self) {
        let mut asked = std::mem::take(&mut self.asked);
        asked.retain(|channel| {
            let found = match self.wire(*channel) {
                // What has come is taken in by the same poll anyway.
                Some((net, index)) => net.found_room(index),
                None => self.has_room(*channel).ok(),
            };
            if found == Some(true) {
                self.events.push_back(Event::Room(*channel));
            }
            // The end of a channel is told by itself.
            found == Some(false)
        });
        self.asked = asked;
    }

    /// Whether there is room where the application has asked to be told of it, of the channels of this machine.
    pub(super) fn has_asked_room(&mut self) -> bool {
        let asked = std::mem::take(&mut self.asked);
        let found = asked.iter().any(|channel| self.link(*channel).is_ok_and(|(link, _)| link.look_for_room().is_ok()));
        self.asked = asked;
        found
    }

    fn has_room(&mut self, channel: Channel) -> Result<bool, RoomError> {
        let room = match self.wire(channel) {
            Some((net, index)) => net.check_room(index),
            None => self.link(channel).and_then(|(link, _)| link.look_for_room()),
        };
        match room {
            Ok(()) => Ok(true),
            Err(SendError::Closed(reason)) => Err(RoomError::Closed(reason)),
            Err(_) => Ok(false),
        }
    }

    /// Prepares to sleep on the node's file descriptor until there may be room for a message of this channel, or
    /// something to be set aside. False if it is to be looked for again at once. [`Node::want_no_room`] comes at the
    /// end.
    pub fn arm_for_room(&mut self, channel: Channel) -> bool {
        self.arm_wanting(channel, true)
    }

    /// Nobody waits for room any more: the peer need not ring for it.
    pub fn want_no_room(&mut self) {
        self.want_room(None);
    }

    fn want_room(&mut self, channel: Option<Channel>) {
        if self.wanting == channel {
            return;
        }
        let before = std::mem::replace(&mut self.wanting, channel);
        [before, channel].into_iter().flatten().for_each(|changed| self.arm_anew(changed));
    }

    /// Has a channel of this machine armed anew before the next sleep, with what holds then.
    fn arm_anew(&mut self, channel: Channel) {
        if let Ok((link, _)) = self.link(channel)
            && link.disarm()
        {
            self.awake.push(channel.index as usize);
        }
    }

    fn arm_wanting(&mut self, channel: Channel, outside: bool) -> bool {
        self.want_room(Some(channel));
        if self.events.len() >= ASIDE {
            return self.arm_for_nothing_else(channel, outside);
        }
        // What was set aside keeps nobody awake.
        let mut aside = std::mem::take(&mut self.events);
        let sleeps = self.arm_for(outside);
        aside.append(&mut self.events);
        self.events = aside;
        sleeps
    }

    /// The same while nothing more is set aside: messages that wait keep nobody awake.
    fn arm_for_nothing_else(&mut self, channel: Channel, outside: bool) -> bool {
        // Rings and deaths. What wakes a sleeper is an edge: all that there is has to be taken in first.
        let _ = self.hear(0);
        self.armed = true;
        self.pace.sleeps();
        self.net_timer = None;
        if let Some((net, index)) = self.wire(channel) {
            self.net_timer = net.before_room(index, outside, true);
            if self.net_timer.is_none() {
                return false;
            }
        } else if !self.arm_link_for_room(channel) {
            return false;
        }
        if self.waker.sleep() {
            return self.nap();
        }
        self.look_at_shelves();
        false
    }

    /// Has the peer ring for room. False if there is some, or none will be.
    fn arm_link_for_room(&mut self, channel: Channel) -> bool {
        let index = channel.index as usize;
        let Ok((link, _)) = self.link(channel) else { return false };
        link.arm(true);
        self.fence_off();
        let full = self.link(channel).is_ok_and(|(link, _)| link.look_for_room() == Err(SendError::Full));
        // Nobody has looked for messages since it is armed: that is done before the next sleep of another kind.
        self.awake.retain(|awake| *awake != index);
        self.awake.push(index);
        full
    }
}
