//! The senders of an incast: a process with a thread and an endpoint for each. They sleep until they are told to send.

use std::time::Duration;

use cutthrough::{Channel, CloseReason, Config, Counter, Endpoint, Event, SendError};

use super::super::lane::{LaneError, PATIENCE};
use super::super::peer::{open, unreachable};
use super::super::way::{self, Seal};
use super::IncastArgs;
use super::receiver::{GO, PAYLOAD, STOP, STOPPED, TAKEN, under_way};
use crate::args::ServeArgs;
use crate::cpu;
use crate::failure::Failure;
use crate::units::Size;

/// How long to wait where the receiver is behind, before looking again.
const BEHIND: Duration = Duration::from_millis(1);

/// Sends to `to` until the receiver has gone.
///
/// # Errors
/// If the receiver cannot be reached, or goes away otherwise than in good order.
pub fn run(args: &IncastArgs, to: &str) -> Result<(), Failure> {
    way::take_place(&args.started)?;
    let (insecure, started) = (args.across.insecure, args.started.clone());
    let seal = Seal::of_server(&ServeArgs { listen: to.into(), insecure, started, ..ServeArgs::default() })?;
    let payload = vec![0x5a; args.size.unwrap_or(Size(1 << 20)).bytes()];
    std::thread::scope(|scope| {
        let (seal, payload) = (&seal, &payload[..]);
        let cannot = |error| Failure::of_start("a sender cannot be started", &error);
        let begin = |_| cpu::spawn(scope, || Sender::call(to, seal)?.obey(payload)).map_err(cannot);
        let threads = (0..args.senders).map(begin).collect::<Result<Vec<_>, _>>()?;
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.fold(Ok(()), Result::and)
    })
}

/// One of them.
struct Sender {
    endpoint: Endpoint,
    channel: Channel,
    /// Frames that went again, as far as they were told.
    lost: u64,
    /// Payloads that were sent, and not taken yet.
    under_way: u32,
}

/// What the receiver wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Nothing,
    Taken,
    Go,
    Stop,
    End,
}

impl Sender {
    fn call(to: &str, seal: &Seal) -> Result<Self, Failure> {
        let mut endpoint = open(seal.apply(Config::default())?)?;
        let channel = endpoint.connect(to, PATIENCE).map_err(|error| unreachable(&error, seal, None))?;
        Ok(Self { endpoint, channel, lost: 0, under_way: 0 })
    }

    /// Does what the receiver says, until it has gone.
    fn obey(mut self, payload: &[u8]) -> Result<(), Failure> {
        loop {
            match self.wait(None)? {
                Want::Go => {
                    if self.stream(payload)? == Want::End {
                        return Ok(());
                    }
                }
                Want::End => return Ok(()),
                Want::Stop | Want::Taken | Want::Nothing => {}
            }
        }
    }

    /// Sends payloads until it is told to stop, and says so then; or until the receiver has gone.
    fn stream(&mut self, payload: &[u8]) -> Result<Want, LaneError> {
        let most = under_way(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        loop {
            let want = if self.under_way >= most { self.wait(None)? } else { self.send_one(payload)? };
            match want {
                Want::Stop => break,
                Want::End => return Ok(want),
                Want::Go | Want::Taken | Want::Nothing => {}
            }
        }
        let lost = self.endpoint.counter(Counter::FramesLost);
        let mut told = [STOPPED; 9];
        told[1..].copy_from_slice(&(lost - self.lost).to_le_bytes());
        self.lost = lost;
        loop {
            match self.endpoint.send(self.channel, &told) {
                Ok(()) => return Ok(Want::Stop),
                Err(SendError::Full) => drop(self.wait(Some(BEHIND))?),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends one payload, and looks what the receiver wants.
    fn send_one(&mut self, payload: &[u8]) -> Result<Want, LaneError> {
        match self.send(payload) {
            Ok(()) => {
                self.under_way += 1;
                let event = self.endpoint.poll();
                event.map_or(Ok(Want::Nothing), |event| self.understand(&event))
            }
            Err(SendError::Full) => self.wait(Some(BEHIND)),
            Err(SendError::Closed(CloseReason::Peer)) => Ok(Want::End),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        let message = self.endpoint.outgoing(self.channel)?.write(&[PAYLOAD; 9]);
        message.attach_copy(payload).send().map(drop)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Want, LaneError> {
        self.endpoint.wait(timeout).map_or(Ok(Want::Nothing), |event| self.understand(&event))
    }

    fn understand(&mut self, event: &Event) -> Result<Want, LaneError> {
        let want = understood(event)?;
        if want == Want::Taken {
            self.under_way = self.under_way.saturating_sub(1);
        }
        Ok(want)
    }
}

fn understood(event: &Event) -> Result<Want, LaneError> {
    match event {
        Event::Message(message) => match message.control() {
            [GO] => Ok(Want::Go),
            [STOP] => Ok(Want::Stop),
            [TAKEN] => Ok(Want::Taken),
            _ => Err(LaneError::Unexpected),
        },
        Event::Closed(_, CloseReason::Peer) => Ok(Want::End),
        Event::Closed(_, reason) => Err(LaneError::Closed(*reason)),
        _ => Ok(Want::Nothing),
    }
}
