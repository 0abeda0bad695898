//! Counters that have gone past their end: those whose low halves travel, as frames show it, and those of calls.

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, low};
use serde::Serialize;

/// Where the low half of a number ends.
const END: u64 = 1 << 32;

/// What has come past the end of a counter, in worlds that begin before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Wraps {
    /// Frames that were sent with such a number.
    pub frames: u64,
    /// Frames that were sent with messages of such numbers.
    pub messages: u64,
    /// Openings that were sent, each of which alone takes the bytes that come unasked past it.
    pub unasked: u64,
    /// Calls of which the name has begun anew.
    pub calls: u64,
    /// Requests whose clock's stamp has begun anew since the one before on their channel.
    pub stamps: u64,
}

impl Wraps {
    /// A frame is sent where frames, messages and unasked bytes are counted from `begin` on.
    pub(super) fn sent(&mut self, begin: u64, frame: &[u8]) {
        let Some((head, body)) = frame.split_first_chunk::<HEADER_BYTES>() else { return };
        let Some(header) = Header::from_bytes(head).ok().filter(|header| !header.kind.greets() && begin > 0) else {
            return;
        };
        self.frames += u64::from(header.number >= END);
        if matches!(header.kind, Kind::Records | Kind::Open | Kind::Data) {
            self.messages += u64::from(header.words[0] < low(begin));
        }
        let opening = body.first_chunk::<OPENING_BYTES>().filter(|_| header.kind == Kind::Open);
        if let Some(Ok(opening)) = opening.map(Opening::from_bytes) {
            self.unasked += u64::from(begin + u64::from(opening.unasked) >= END);
        }
    }

    /// Adds what has happened elsewhere.
    pub(super) const fn add(&mut self, other: &Self) {
        let Self { frames, messages, unasked, calls, stamps } = other;
        self.frames += *frames;
        self.messages += *messages;
        self.unasked += *unasked;
        self.calls += *calls;
        self.stamps += *stamps;
    }
}
