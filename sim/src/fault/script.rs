//! A script, from one endpoint to another, over a network without faults: what the same engine delivers that runs over
//! sockets, to be held against what it delivers there.

use std::collections::VecDeque;

use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::{Net, NetEvent};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;

use super::address;
use super::calm::{BODY, Node};
use super::memory::{Cargo, Host};
use super::network::Frame;

/// Nanoseconds of a frame's way.
const WAY_NS: u64 = 10_000;
/// Moments, at most, for each message.
const MOMENTS: usize = 100_000;

/// A message: its control message and its payload, which is empty if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// At most 96 bytes.
    pub control: Vec<u8>,
    /// See above.
    pub payload: Vec<u8>,
}

/// What has come.
#[derive(Default)]
struct Taken {
    messages: Vec<Message>,
    /// Payloads that are not read yet: the channel, which message of it, and which one of ours.
    unread: VecDeque<(usize, u64, usize)>,
    /// Bytes of the first one that are.
    valid: usize,
}

/// What is delivered of these messages, each second payload into pages, with frames sealed or not.
///
/// # Panics
/// If a call or a message is refused, or not all of them come.
#[must_use]
pub fn deliver(script: &[Message], policy: Policy, sealed: bool) -> Vec<Message> {
    let mut nodes = [0, 1].map(|index| Node::new(index, 2, policy, sealed));
    let mut wire: VecDeque<(u64, Frame)> = VecDeque::new();
    let (mut taken, mut sent, mut now) = (Taken::default(), 0, 1);
    let channel = nodes[1].net.call(Instant::from_nanos(now), address(0), BODY).expect("room to call");
    for _ in 0..MOMENTS * (script.len() + 1) {
        let at = Instant::from_nanos(now);
        for (index, node) in nodes.iter_mut().enumerate() {
            node.receive(at);
            while let Some(event) = node.net.next_event() {
                taken.event(event);
            }
            if index == 0 {
                taken.read(&mut node.net, at);
            } else {
                sent += send(&mut node.net, channel, &script[sent..], sent);
            }
            node.transmit(now, index, |frame| wire.push_back((now + WAY_NS, frame)));
        }
        if taken.messages.len() == script.len() && taken.unread.is_empty() {
            return taken.messages;
        }
        let timers = nodes.iter().filter_map(|node| node.net.timer()).map(Instant::as_nanos);
        let next = wire.front().map(|(at, _)| *at).into_iter().chain(timers).min();
        now = next.expect("something happens until all has come").max(now + 1);
        while let Some((_, frame)) = wire.pop_front_if(|(at, _)| *at <= now) {
            nodes[frame.to].queue.push_back(frame);
        }
    }
    panic!("{} of {} messages have come", taken.messages.len(), script.len());
}

/// Sends as many of these messages as there is room for, the first one being number `first`.
fn send(net: &mut Net<Host>, channel: usize, script: &[Message], first: usize) -> usize {
    let room = usize::try_from(net.room(channel).unwrap_or(0)).unwrap_or(usize::MAX);
    for (number, Message { control, payload }) in (first..).zip(script.iter().take(room)) {
        let _counts = net.memory.cargoes.clone();
        let load = Cargo { bytes: payload.clone(), page: 4096, _counts };
        let cargo = cutthrough_engine::net::Cargo { load, token: None, pages: number % 2 == 0, cookie: None };
        let sent = net.send(channel, control, (!payload.is_empty()).then_some(cargo));
        assert!(sent.is_ok(), "message {number} was refused, where there was room");
    }
    room.min(script.len())
}

impl Taken {
    fn event(&mut self, event: NetEvent<super::memory::Pages>) {
        let NetEvent::Message(channel, ready) = event else {
            let greets = matches!(event, NetEvent::Opened(_) | NetEvent::Connected(_));
            assert!(greets, "without faults: {event:?}");
            return;
        };
        let payload = match ready.payload {
            ReadyPayload::None => Vec::new(),
            ReadyPayload::Landed(place, story) => place.bytes[..story.bytes as usize].to_vec(),
            ReadyPayload::Arriving(message, story) => {
                self.unread.push_back((channel, message, self.messages.len()));
                vec![0; story.bytes as usize]
            }
            ReadyPayload::Refused(why, _) => panic!("{why:?}, without a token"),
        };
        let control = ready.control[..usize::from(ready.control_len)].to_vec();
        self.messages.push(Message { control, payload });
    }

    /// Reads what has come of the payloads that are read.
    fn read(&mut self, net: &mut Net<Host>, now: Instant) {
        while let Some((channel, message, at)) = self.unread.front().copied() {
            let mut reading = Reading { message, into: &mut self.messages[at].payload };
            let valid = self.valid;
            let (valid, whole) = net.read(now, channel, &mut reading, valid, false).expect("the channel does not end");
            if !whole {
                self.valid = valid;
                return;
            }
            self.valid = 0;
            net.forget(channel, message);
            self.unread.pop_front();
        }
    }
}
