//! What was asked of other ranks and has not come yet, and what has come and was not taken yet.

use cutthrough::am::{Call, Node, Reply};

use crate::part::GET_INLINE;

/// One request under way.
#[derive(Debug, Clone, Copy)]
struct Asked {
    call: Option<Call>,
    slot: u32,
    at: usize,
    len: usize,
}

/// A place for what comes.
#[derive(Debug, Default)]
struct Slot {
    bytes: Vec<u8>,
    /// Requests under way for it.
    missing: u32,
}

/// The requests and places of a rank. Places and tickets are used again, and keep their memory, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Gets {
    asked: Vec<Asked>,
    free_tickets: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    /// Bytes of memory that free places have kept.
    kept: usize,
}

/// Bytes of memory that free places keep. Memory that is new costs more to touch first than to copy into.
const KEPT: usize = 4 << 20;

#[allow(clippy::cast_possible_truncation, reason = "memory ends long before so many are under way")]
impl Gets {
    /// A place of `len` bytes. What they are is nobody's business before all of it has come.
    pub(crate) fn open(&mut self, len: usize) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize].bytes;
        self.kept -= place.capacity();
        place.resize(len, 0);
        slot
    }

    /// The bytes of a place.
    pub(crate) fn bytes(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].bytes
    }

    /// How many answers for a place have not come yet.
    pub(crate) fn missing(&self, slot: u32) -> u32 {
        self.slots[slot as usize].missing
    }

    /// Gives a place back.
    pub(crate) fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize].bytes;
        if self.kept + place.capacity() > KEPT {
            *place = Vec::new();
        }
        self.kept += place.capacity();
        self.free_slots.push(slot);
    }

    /// A ticket for a request for part of a place.
    pub(crate) fn ticket(&mut self, slot: u32, at: usize, len: usize) -> u32 {
        let asked = Asked { call: None, slot, at, len };
        self.slots[slot as usize].missing += 1;
        match self.free_tickets.pop() {
            Some(ticket) => {
                self.asked[ticket as usize] = asked;
                ticket
            }
            None => {
                self.asked.push(asked);
                self.asked.len() as u32 - 1
            }
        }
    }

    /// The request of a ticket was made.
    pub(crate) fn made(&mut self, ticket: u32, call: Call) {
        self.asked[ticket as usize].call = Some(call);
    }

    /// Takes a reply in. Says what is wrong with it, if something is.
    pub(crate) fn take(&mut self, mut reply: Reply, node: &mut Node) -> Result<(), &'static str> {
        let ticket = reply.word(0) as usize;
        let asked = self.asked.get(ticket).copied();
        let Some(asked) = asked.filter(|asked| asked.call == Some(reply.call())) else {
            return Err("it answered what was not asked");
        };
        let place = &mut self.slots[asked.slot as usize];
        let into = &mut place.bytes[asked.at..asked.at + asked.len];
        let inline = asked.len <= GET_INLINE;
        let came = if inline { reply.args().len().checked_sub(4) } else { Some(reply.payload_len()) };
        if came != Some(asked.len) {
            return Err("it answered with another number of bytes than were asked for");
        }
        if inline {
            into.copy_from_slice(&reply.args()[4..]);
        } else {
            node.read(&mut reply, into).map_err(|_| "its answer did not arrive as a whole")?;
        }
        place.missing -= 1;
        self.asked[ticket].call = None;
        self.free_tickets.push(ticket as u32);
        Ok(())
    }
}
