//! Payloads that a user reads while they come, or has got whole.

use cutthrough_engine::net::Net;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::time::Instant;

use super::super::memory::{Host, Pages};
use super::super::random::mix;
use super::{Around, User};

#[derive(Debug)]
pub(super) struct Read {
    pub(super) index: usize,
    pub(super) message: u64,
    pub(super) line: usize,
    pub(super) number: usize,
    pub(super) into: Vec<u8>,
    pub(super) valid: usize,
    pub(super) lent: bool,
    /// Reads no further than this.
    pub(super) most: usize,
}

impl Read {
    /// Whether its memory is lent to nobody: a fifth of them.
    const fn is_piecemeal(&self) -> bool {
        mix((self.line as u64) << 32 | self.number as u64).is_multiple_of(5)
    }
}

impl User {
    /// The payload of a message, or what has become of it.
    pub(super) fn payload(
        &mut self,
        net: &mut Net<Host>,
        index: usize,
        (line, number): (usize, usize),
        payload: ReadyPayload<Pages>,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        let wanted = around.watch.line(line).sent[number].payload.map(|(_, len)| len);
        match payload {
            ReadyPayload::None if wanted.is_none() => Ok(()),
            ReadyPayload::None => Err(format!("line {line}: message {number} has lost its payload")),
            ReadyPayload::Landed(place, story) => {
                around.watch.landed(line, number, &place, story.bytes as usize)?;
                if around.random.chance(300) {
                    net.memory.kept += place.bytes.len();
                    self.kept.push(place);
                }
                Ok(())
            }
            ReadyPayload::Refused(why, _) => around.watch.refused(line, number, why),
            ReadyPayload::Arriving(message, story) => {
                let len = story.bytes as usize;
                if wanted != Some(len) {
                    return Err(format!("line {line}: message {number} has {len} bytes, not {wanted:?}"));
                }
                let most = if around.random.chance(100) { around.random.index(len) } else { len };
                let read = Read { index, message, line, number, into: vec![0; len], valid: 0, lent: false, most };
                self.reads.push_back(read);
                Ok(())
            }
        }
    }

    pub(super) fn read(&mut self, net: &mut Net<Host>, now: Instant, around: &mut Around<'_>) -> Result<(), String> {
        for _ in 0..4 {
            let Some(read) = self.reads.front_mut() else { return Ok(()) };
            let lend = !read.is_piecemeal() && (read.lent || around.random.chance(700));
            let mut reading = Reading { message: read.message, into: &mut read.into };
            let Some((valid, whole)) = net.read(now, read.index, &mut reading, read.valid, lend) else {
                self.gone.push(read.index);
                self.reads.pop_front();
                continue;
            };
            if valid < read.valid || whole != (valid == read.into.len()) {
                return Err(format!("line {}: {valid} bytes are valid after {}", read.line, read.valid));
            }
            around.watch.part(read.line, read.number, read.valid, &read.into[read.valid..valid])?;
            read.lent |= lend;
            read.valid = valid;
            if !whole && valid <= read.most {
                return Ok(());
            }
            if !whole && read.most == read.into.len() {
                return Ok(());
            }
            around.watch.payload(read.line, read.number, &read.into[..valid])?;
            net.forget(read.index, read.message);
            self.reads.pop_front();
        }
        Ok(())
    }
}
