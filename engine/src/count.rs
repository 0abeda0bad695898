//! Every event, drop and refusal has a counter here (design contract 5, "counted").
//!
//! The engine names what happened; whoever runs it decides where the numbers live (a page that `cutthrough stat` can
//! read from outside, a table in a simulator). Counters only ever grow, and wrap at 2^64.

/// Declares [`Counter`] once: variants, names and descriptions cannot drift apart.
macro_rules! counters {
    ($($(#[doc = $text:literal])+ $variant:ident = $name:literal,)+) => {
        /// One thing that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[doc = $text])+ $variant,)+
        }

        impl Counter {
            /// Every counter, in the order in which tables show them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name in tables and machine-readable output: lower case with underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// One sentence for people: what a unit of this counter means.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($text),+).trim_ascii(),)+
                }
            }
        }
    };
}

counters! {
    /// Messages handed to the peer.
    MessagesSent = "messages_sent",
    /// Messages taken from the peer.
    MessagesReceived = "messages_received",
    /// Payload bytes of messages sent.
    PayloadBytesSent = "payload_bytes_sent",
    /// Payload bytes of messages received, as far as they were delivered.
    PayloadBytesReceived = "payload_bytes_received",
    /// Payloads that changed hands by reference, without a copy.
    ByReference = "by_reference",
    /// Payloads that the sender wrote straight into the receiver's page.
    Put = "put",
    /// Payloads that the receiver read straight out of the sender's page.
    Get = "get",
    /// Payloads that both sides copied at the same time, from the sender's page to the receiver's.
    Shared = "shared",
    /// Payloads that went from private memory to private memory in overlapping pulses.
    CutThrough = "cut_through",
    /// Times this side changed how much of its staging ring it uses.
    LapChanges = "lap_changes",
    /// Times this side left a sender alone for a while, in order to find many messages at its next look.
    Lingers = "lingers",
    /// Copies of a payload made by this side.
    Copies = "copies",
    /// Bytes moved by those copies.
    CopiedBytes = "copied_bytes",
    /// Pulses that this side started.
    Pulses = "pulses",
    /// Pages that came back from the peer for re-use.
    PagesReturned = "pages_returned",
    /// Sends refused for want of room: in the peer's receive queue, in the ring of lists, or in the staging ring.
    Full = "full",
    /// Requests refused because no free page was left to send from, to post or to grant.
    NoPage = "no_page",
    /// Times a sleeping peer was woken.
    WakesSent = "wakes_sent",
    /// Times this side went to sleep for want of work.
    Sleeps = "sleeps",
    /// Times this side gave its core away while it waited; threads that share a node do so uncounted.
    Yields = "yields",
    /// Rounds of rare work: deadlines, dead peers, new peers.
    Housekeeping = "housekeeping",
    /// Channels opened.
    ChannelsOpened = "channels_opened",
    /// Channels closed, for whatever reason.
    ChannelsClosed = "channels_closed",
    /// Peers that ended without closing their channels.
    PeersDied = "peers_died",
    /// Hellos refused: version, sizes or keys did not fit, nobody listens, or there was no room.
    HellosRefused = "hellos_refused",
    /// Payloads that carried a token with the wrong key.
    TokenWrong = "token_wrong",
    /// Payloads that carried a token which had been revoked.
    TokenRevoked = "token_revoked",
    /// Payloads that carried a token which had been used before.
    TokenReused = "token_reused",
    /// Payloads that were longer than the place that their token names.
    TokenShort = "token_short",
    /// Payloads dropped, whose control message was delivered.
    PayloadDropped = "payload_dropped",
    /// Requests answered with a failure: no such handler, other arguments, too late, refused or panicked.
    RequestsRefused = "requests_refused",
    /// Requests refused because as many as may be at a time were being served.
    RequestsBusy = "requests_busy",
    /// Requests refused because their handler served as many as it may.
    HandlersBusy = "handlers_busy",
    /// Calls that had no reply by their deadline.
    CallsLate = "calls_late",
    /// Requests whose reply was thrown away, or never given. One that is given when its requester's channel has ended
    /// is thrown away, too.
    RepliesAbandoned = "replies_abandoned",
    /// Channels closed because the peer wrote an impossible ring index.
    BreachIndex = "breach_index",
    /// Channels closed because the peer wrote a descriptor that makes no sense.
    BreachDescriptor = "breach_descriptor",
    /// Channels closed because the peer alleged an impossible length.
    BreachLength = "breach_length",
    /// Channels closed because the peer named a page that it may not name.
    BreachPage = "breach_page",
    /// Channels closed because the peer reported impossible progress of a payload.
    BreachProgress = "breach_progress",
    /// Channels closed because the peer sent what is no active message, or none that it may send.
    BreachMessage = "breach_message",
    /// Payloads that crossed a network.
    Wire = "wire",
    /// Frames sent over a network, without those that only acknowledge or grant.
    FramesSent = "frames_sent",
    /// Frames that only acknowledge or grant, sent over a network.
    NotesSent = "notes_sent",
    /// Frames received over a network and taken in.
    FramesReceived = "frames_received",
    /// Frames taken for lost, whose contents were sent again unless they proved to have arrived before that.
    FramesLost = "frames_lost",
    /// Frames taken for lost that proved to have arrived, as far as that is known: they were late, not lost.
    FramesLate = "frames_late",
    /// Times nothing was heard for so long that frames were sent again.
    Timeouts = "timeouts",
    /// Frames that had arrived before.
    FramesRepeated = "frames_repeated",
    /// Frames refused because their seal was wrong.
    FramesForged = "frames_forged",
    /// Frames refused because they belong to no channel: malformed, from elsewhere, or of an earlier life.
    FramesStale = "frames_stale",
    /// Frames for which there was no memory, so that they had to come again.
    FramesUnplaced = "frames_unplaced",
    /// Calls to send frames that the system refused for good; what was in them is sent again.
    CallsRefused = "calls_refused",
    /// Trains of frames that were longer than the memory for them; they come again.
    TrainsCut = "trains_cut",
    /// Trains of frames that the system would not take as one, so that their frames went one by one.
    TrainsDivided = "trains_divided",
    /// Datagrams, or trains of them, for which a socket had no room, or whose check sum was wrong; not counted beside a
    /// ring of AF_PACKET.
    SocketOverruns = "socket_overruns",
    /// Frames that came by a ring and are no datagrams for this endpoint.
    RingStrays = "ring_strays",
    /// Frames that were lost because a ring was full.
    RingOverflows = "ring_overflows",
    /// Frames that a ring could not send.
    RingRefused = "ring_refused",
    /// Rings that were given up because the kernel refused to send by them, or no frames came to them any more.
    RingsLost = "rings_lost",
    /// Rings that were opened again after they were given up.
    RingsReopened = "rings_reopened",
    /// Times a socket of its own was joined to the peer with which there is most to do.
    SocketsJoined = "sockets_joined",
    /// Times that could not be had; all goes by the endpoint's one socket then.
    JoinsRefused = "joins_refused",
    /// Trains that the kernel has sent from where they lay, without a copy of its own.
    TrainsSpliced = "trains_spliced",
    /// Frames whose payload was received where it belongs.
    PlacedFrames = "placed_frames",
    /// Frames whose payload was received elsewhere, though where it belongs was known, and had to be copied there.
    MendedFrames = "mended_frames",
    /// Payload bytes received where they belong.
    PlacedBytes = "placed_bytes",
    /// Payload bytes copied to where they belong after they had been received elsewhere, as receipts say; but not of
    /// what a channel has left to be read when it ended.
    MendedBytes = "mended_bytes",
}

impl Counter {
    /// How many counters there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`Counter::ALL`], for arrays with one entry per counter.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Where counts go.
pub trait Count {
    /// Adds `amount` to `counter`. Must not block, and costs no more than an addition.
    fn add(&self, counter: Counter, amount: u64);
}

/// Counts nothing, for callers that do not want to know.
impl Count for () {
    fn add(&self, _counter: Counter, _amount: u64) {}
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;

    use super::Counter;

    #[test]
    fn counters_index_their_own_table() {
        for (position, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter.index(), position);
        }
    }

    #[test]
    fn names_are_distinct_machine_words() {
        let names: BTreeSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert_eq!(names.len(), Counter::COUNT);
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        }
    }

    #[test]
    fn descriptions_are_sentences() {
        for counter in Counter::ALL {
            let text = counter.describe();
            assert!(text.starts_with(|first: char| first.is_ascii_uppercase()), "{text}");
            assert!(text.ends_with('.') && !text.ends_with(".."), "{text}");
        }
    }
}
