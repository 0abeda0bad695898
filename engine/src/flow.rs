//! Did it get there? What has arrived, what is lost and goes again, and how much may be under way.
//!
//! An adapter between machines loses frames, delays them and brings them out of order. Six small machines mend that.
//! None of them knows what a frame carries, reads a clock or sends anything:
//!
//! | where | file | what it decides |
//! |---|---|---|
//! | receiver | [`seen`] | which frame numbers have arrived; no number is taken twice |
//! | receiver | [`owed`] | when an acknowledgement goes out although nothing else does |
//! | sender | [`sent`] | which frames are acknowledged, which are lost |
//! | sender | [`rtt`] | how long a round trip takes, and when waiting longer is in vain |
//! | both | [`quiet`] | when all who send to one receiver hold still, to see how long their ways are |
//! | sender | [`window`] | how many bytes may be in flight, and how they are spread over a round trip |
//!
//! # How they work together
//!
//! Every frame that a side sends on a channel has a number of its own, one more than the last. What was in a lost frame
//! goes again in a frame with a new number, so an acknowledgement always says which of the two arrived (RFC 9000,
//! section 13). A sender pushes what it sends to [`Sent`](sent::Sent). The receiver inserts the numbers to
//! [`Seen`](seen::Seen), and each of its headers carries [`Ack`](seen::Ack): up to where all is there, and which of the
//! 64 numbers after that; a longer list of ranges, where that is not enough.
//!
//! With an acknowledgement in hand a sender does, in this order: [`acked`](sent::Sent::acked) (and
//! [`acked_range`](sent::Sent::acked_range)); where some were overtaken ([`Acked::overtaken`](sent::Acked::overtaken)),
//! [`found`](window::Window::found) and [`bear`](sent::Sent::bear); [`sample`](rtt::Rtt::sample) and
//! [`Window::acked`](window::Window::acked) with what that says, then [`lost`](sent::Sent::lost). When
//! [`timer`](sent::Sent::timer) has run out: `lost`, then [`probe`](sent::Sent::probe).
//!
//! A number that was lost leaves a gap that nothing will ever fill. So a sender says in its headers below which number
//! it waits for nothing any more ([`oldest`](sent::Sent::oldest), or its next number), and the receiver closes the gaps
//! below that ([`forget_below`](seen::Seen::forget_below)).
//!
//! Numbers come from the wire. Nothing here panics on any of them, and what they can make it remember is bounded.

pub mod owed;
pub mod quiet;
pub mod rtt;
pub mod seen;
pub mod sent;
pub mod window;
