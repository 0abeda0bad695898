//! What has happened, as the application is told.

use std::sync::Arc;

use cutthrough_engine::net::NetEvent;
use cutthrough_engine::net::channel::Ending;
use cutthrough_engine::net::inbox::{Left, Ready};
use cutthrough_engine::token::Token;
use cutthrough_segment::page::Shelf;

use super::calls::UdpCallError;
use super::door::Core;
use super::memory::{Spot, Stores};
use crate::incoming::Channel;

/// Something that has happened, by the number of its channel.
#[derive(Debug)]
pub(crate) enum Happened {
    /// A peer has been let in.
    Opened(usize),
    /// What has become of a call that was begun.
    Answered(usize, Result<(), UdpCallError>),
    /// A message has come.
    Message(usize, Ready<Spot>),
    /// The memory of a message may be used again.
    Completed(usize, u64),
    /// A channel has ended, and leaves this.
    Closed(usize, Ending, Option<Leaves>),
}

/// What a channel leaves: payloads that were here whole when it ended, and memory that was granted.
#[derive(Debug)]
pub(crate) struct Leaves {
    /// Where it is said which of them were dropped.
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) payloads: Vec<Left>,
    /// Private memory that tokens named.
    pub(crate) grants: Vec<(Token, Vec<u8>)>,
}

/// What an application is told of most often, where it lies.
pub(crate) enum Told<'a> {
    /// A message has come.
    Message(usize, &'a mut Ready<Spot>),
    /// The memory of a message may be used again.
    Completed(usize, u64),
}

impl Core {
    /// The next thing that has happened.
    pub(super) fn next_event(&mut self) -> Option<Happened> {
        if let Some(event) = self.next_here() {
            return Some(event);
        }
        loop {
            let event = self.net.next_event()?;
            if let Some(happened) = self.happened(event) {
                return Some(happened);
            }
        }
    }

    /// Tells `each` up to `most` times what has come; up to what is neither a message nor a completion. That comes
    /// rarely, and is boxed: nothing is moved faster where it takes one word.
    pub(super) fn tell(&mut self, most: usize, mut each: impl FnMut(&mut Stores, Told<'_>)) -> Option<Box<Happened>> {
        let mut told = 0;
        while told < most {
            let Some(event) = self.next_but_messages() else {
                if self.holds_messages() {
                    break;
                }
                let rest = most - told;
                match self.net.messages(rest, |stores, index, ready| each(stores, Told::Message(index, ready))) {
                    0 => break,
                    messages => told += messages,
                }
                continue;
            };
            told += 1;
            let stores = &mut self.net.memory;
            match event {
                Happened::Message(index, mut message) => each(stores, Told::Message(index, &mut message)),
                Happened::Completed(index, cookie) => each(stores, Told::Completed(index, cookie)),
                other => return Some(Box::new(other)),
            }
        }
        None
    }

    fn next_but_messages(&mut self) -> Option<Happened> {
        if let Some(event) = self.next_here() {
            return Some(event);
        }
        loop {
            let event = self.net.next_happened()?;
            if let Some(happened) = self.happened(event) {
                return Some(happened);
            }
        }
    }

    /// What has happened here, and not in the engine.
    #[inline]
    fn next_here(&mut self) -> Option<Happened> {
        let event = self.events.pop_front()?;
        if let Happened::Answered(index, Err(_)) = event {
            // Its number may be another's from now on.
            self.net.close(index);
        }
        Some(event)
    }

    /// What an event of the engine is to the application, if it is anything.
    fn happened(&mut self, event: NetEvent<Spot>) -> Option<Happened> {
        Some(match event {
            NetEvent::Opened(channel) => {
                self.furnish(channel);
                Happened::Opened(channel)
            }
            NetEvent::Connected(channel) => return self.answered(channel, Ok(())),
            NetEvent::Failed(channel, why) => return self.answered(channel, Err(why)),
            NetEvent::Message(channel, message) => Happened::Message(channel, message),
            NetEvent::Completed(channel, cookie) => Happened::Completed(channel, cookie),
            NetEvent::Closed(channel, ending) => {
                self.settle();
                self.lanes.iter_mut().for_each(|lanes| lanes.leave(channel));
                let mut payloads = self.net.take_left(channel);
                let begun = self.net.take_begun(channel);
                let leaves = self.net.memory.get(channel).map(|store| {
                    let (shelf, dropped) = store.retire();
                    payloads.retain(|left| !dropped.contains(&left.message));
                    Leaves { shelf, payloads, grants: store.take_grants(begun) }
                });
                self.call_ended(channel).unwrap_or(Happened::Closed(channel, ending, leaves))
            }
        })
    }
}

/// The name of a channel that its user knows, by number of the network side.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<Option<Channel>>);

impl Names {
    pub(crate) fn set(&mut self, index: usize, channel: Option<Channel>) {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = channel;
    }

    pub(crate) fn get(&self, index: usize) -> Option<Channel> {
        self.0.get(index).copied().flatten()
    }
}
