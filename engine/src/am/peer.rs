//! What one side knows of a channel: requests under way in both directions, and what waits for room.

use alloc::collections::VecDeque;

use cutthrough_wire::slot::CONTROL_MAX;
use cutthrough_wire::token::Token;

use super::budget::Waits;
use super::message::Kind;
use super::{LARGE, LOAN, WINDOW};

/// A message that waits for room.
#[derive(Debug)]
pub(super) struct Kept<L> {
    pub(super) kind: Kind,
    pub(super) control: [u8; CONTROL_MAX],
    pub(super) len: usize,
    pub(super) token: Option<Token>,
    pub(super) load: Option<L>,
    /// Bytes that keeping the load takes.
    pub(super) bytes: usize,
}

/// One channel.
#[derive(Debug)]
pub(super) struct Peer<L> {
    pub(super) open: bool,
    /// Tells this channel from earlier ones of the same row.
    pub(super) life: u32,
    /// Generation of the endpoint on the other side.
    pub(super) generation: u64,
    /// Our requests that were not answered.
    pub(super) outstanding: u32,
    /// Whether our window was found full, and was not larger since.
    pub(super) wants: bool,
    /// Whether we have the peer's larger window, and requests sent since.
    pub(super) lent: bool,
    pub(super) spent: u32,
    /// The peer's requests that were not answered.
    pub(super) serving: u32,
    /// Whether the peer has our larger window, and whether it has yet to be told.
    pub(super) borrower: bool,
    pub(super) tell: bool,
    /// What waits for room: answers, direct replies to requests that others have handed over, and notices.
    pub(super) kept: VecDeque<Kept<L>>,
    /// How many of them are answers. The peer has not seen those, so their units of its window are still taken.
    pub(super) answers: u32,
    /// How many are direct replies.
    pub(super) direct: u32,
    /// Bytes that keeping their loads takes.
    pub(super) bytes: usize,
    /// How long its requests have lain before they are taken in.
    pub(super) waits: Waits,
}

impl<L> Default for Peer<L> {
    fn default() -> Self {
        Self {
            open: false,
            life: 0,
            generation: 0,
            outstanding: 0,
            wants: false,
            lent: false,
            spent: 0,
            serving: 0,
            borrower: false,
            tell: false,
            kept: VecDeque::new(),
            answers: 0,
            direct: 0,
            bytes: 0,
            waits: Waits::default(),
        }
    }
}

impl<L> Peer<L> {
    /// Requests that may be under way. A loan that is used up is paid back as its requests are answered.
    #[inline]
    pub(super) const fn limit(&self, window: u32) -> u32 {
        if self.lent && self.spent < LOAN { LARGE } else { window }
    }

    /// Whether the peer may send another request. Those whose answers it has not seen are under way.
    #[inline]
    pub(super) const fn may_ask(&self) -> bool {
        self.serving + self.answers < if self.borrower { LARGE } else { WINDOW }
    }

    /// One of its requests is being answered. There is one: the right to answer is given out with each, and used up.
    #[inline]
    pub(super) const fn answers_one(&mut self) {
        debug_assert!(self.serving > 0, "an answer to no request of this channel");
        self.serving = self.serving.saturating_sub(1);
    }

    /// A message waits for room, behind the others.
    pub(super) fn push(&mut self, kept: Kept<L>) {
        self.waits(kept.kind, kept.bytes);
        self.kept.push_back(kept);
    }

    /// A message waits for room, before the others.
    pub(super) fn push_front(&mut self, kept: Kept<L>) {
        self.waits(kept.kind, kept.bytes);
        self.kept.push_front(kept);
    }

    const fn waits(&mut self, kind: Kind, bytes: usize) {
        self.bytes += bytes;
        match kind {
            Kind::Reply | Kind::Failed | Kind::Handed => self.answers += 1,
            Kind::Direct => self.direct += 1,
            _ => {}
        }
    }

    /// A message of this kind waits no more, nor do so many bytes of its load.
    pub(super) const fn gone(&mut self, kind: Kind, bytes: usize) {
        self.bytes -= bytes;
        match kind {
            Kind::Reply | Kind::Failed | Kind::Handed => self.answers -= 1,
            Kind::Direct => self.direct -= 1,
            _ => {}
        }
    }

    /// Whether an answer to a request of this life of the channel can go at once, and says nothing of windows.
    #[inline]
    pub(super) fn answers_plainly(&self, life: u32) -> bool {
        self.open && self.life == life && !self.tell && self.kept.is_empty()
    }

    /// A request has gone.
    #[inline]
    pub(super) const fn sent(&mut self) {
        self.outstanding += 1;
        if self.lent {
            self.spent += 1;
        }
    }

    /// One of our requests was answered; `lent` says that the larger window is ours.
    #[inline]
    pub(super) const fn answered(&mut self, lent: bool) {
        self.outstanding -= 1;
        if lent {
            self.lent = true;
            self.wants = false;
            self.spent = 0;
        }
    }

    /// Whether the larger window goes back now: nothing is under way, or the loan is used up and the ordinary window is
    /// enough for what is under way.
    pub(super) const fn gives_back(&self) -> bool {
        self.outstanding == 0 || (self.spent >= LOAN && self.outstanding <= WINDOW)
    }

    /// The larger window goes back.
    pub(super) const fn give_back(&mut self) {
        self.lent = false;
        self.spent = 0;
    }
}
