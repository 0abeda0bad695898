//! What a user makes of messages whose sender lies: it believes nothing that they say, and sees to it that they lie
//! nowhere but where they may, and stay as they were shown.

use cutthrough_engine::net::Net;
use cutthrough_engine::net::inbox::{Reading, Ready, ReadyPayload};
use cutthrough_engine::time::Instant;
use cutthrough_wire::slot::PAYLOAD_MAX;

use super::super::memory::{Host, Pages};
use super::super::receive::Lent;
use super::super::watch;
use super::{Around, User};

/// Payload bytes that are read; of longer ones nothing is.
const LONGEST: usize = 300_000;
/// How often a payload is looked at before it is given up.
const LOOKS: u32 = 40;
/// Tokens that are kept.
const TOKENS: usize = 16;

/// A payload that is read.
#[derive(Debug)]
pub(super) struct Doubted {
    pub(super) index: usize,
    message: u64,
    into: Vec<u8>,
    /// What was shown of it.
    shown: Vec<u8>,
    lent: bool,
    looks: u32,
}

impl Doubted {
    /// Its memory, if that is lent.
    pub(super) fn lends(&mut self) -> Option<Lent<'_>> {
        let Self { index, message, into, lent, .. } = self;
        lent.then_some(Lent { channel: *index, message: *message, into })
    }
}

impl User {
    /// A message of one who lies.
    pub(super) fn doubt(
        &mut self,
        net: &mut Net<Host>,
        index: usize,
        ready: Ready<Pages>,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        around.summary.lies.messages += 1;
        let Some(control) = ready.control.get(..usize::from(ready.control_len)) else {
            return Err(format!("a control message of {} bytes", ready.control_len));
        };
        if let Some(talk) = self.talks.iter_mut().find(|talk| talk.index == index && talk.tokens.len() < TOKENS) {
            talk.tokens.extend(watch::token(control));
        }
        match ready.payload {
            ReadyPayload::None | ReadyPayload::Refused(..) => Ok(()),
            ReadyPayload::Landed(place, story) => {
                around.watch.landed_by_a_liar(self.me, &place, story.bytes as usize)?;
                if around.random.chance(300) {
                    net.memory.kept += place.bytes.len();
                    self.kept.push(place);
                }
                Ok(())
            }
            ReadyPayload::Arriving(message, story) => {
                let len = story.bytes as usize;
                if len as u64 > PAYLOAD_MAX {
                    return Err(format!("a payload of {len} bytes"));
                }
                if len > LONGEST && around.random.chance(500) || around.random.chance(100) {
                    net.forget(index, message);
                } else if len <= LONGEST {
                    let (into, shown) = (vec![0; len], Vec::new());
                    self.doubted.push_back(Doubted { index, message, into, shown, lent: false, looks: 0 });
                }
                Ok(())
            }
        }
    }

    /// Reads what has come. Who lies may never send the rest: nobody waits for it.
    pub(super) fn read_doubted(
        &mut self,
        net: &mut Net<Host>,
        now: Instant,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        for _ in 0..self.doubted.len().min(4) {
            let Some(mut read) = self.doubted.pop_front() else { break };
            let lend = !read.message.is_multiple_of(5) && (read.lent || around.random.chance(700));
            let before = read.shown.len();
            let mut reading = Reading { message: read.message, into: &mut read.into };
            let Some((valid, whole)) = net.read(now, read.index, &mut reading, before, lend) else { continue };
            if valid < before || whole != (valid == read.into.len()) {
                return Err(format!("{valid} bytes are valid after {before}, of {}", read.into.len()));
            }
            if read.into[..before] != read.shown[..] {
                return Err(format!("message {}: bytes have changed that were shown", read.message));
            }
            read.shown.extend_from_slice(&read.into[before..valid]);
            (read.lent, read.looks) = (read.lent || lend, read.looks + 1);
            if whole || read.looks > LOOKS {
                net.forget(read.index, read.message);
            } else {
                self.doubted.push_back(read);
            }
        }
        Ok(())
    }
}
