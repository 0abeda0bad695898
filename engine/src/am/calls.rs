//! The requester's table: every call that was made and not yet answered.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::message::CallId;
use crate::time::Instant;

/// Nobody's row.
const NOBODY: u32 = u32::MAX;

/// What becomes of the answer.
#[derive(Debug)]
enum State<K> {
    Free,
    /// Somebody waits for it.
    Waiting(K),
    /// Nobody waits any more, but the answer must still come: until then the window's unit and the number are taken.
    Forgotten,
}

/// Somebody's request that was handed over: row and life of its channel, and its number there.
pub(super) type Theirs = (u32, u32, CallId);

/// Who may reply to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Who was asked, or whom it names.
    Asked,
    /// Who was asked, and nobody else: it hands this request over.
    Taker(Theirs),
    /// The endpoint of this generation, which it was handed to.
    Other(u64),
}

#[derive(Debug)]
struct Entry<K> {
    nonce: u32,
    row: u32,
    state: State<K>,
    deadline: Instant,
    /// Whether the deadline is one for all ([`Calls::date`]), which one of its own replaces.
    common: bool,
    by: By,
    /// Whether whom it was handed by has answered: then only the direct reply is missing.
    handed: bool,
}

/// A call that has ended without a reply, and the channel on which its peer has to be told, if it has.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended<K> {
    /// Which one.
    pub call: CallId,
    /// The row of the channel.
    pub row: u32,
    /// What was to become of it.
    pub context: K,
    /// Whether the peer still serves it.
    pub served: bool,
}

/// Calls by number. `K` is what shall happen with the answer.
#[derive(Debug)]
pub struct Calls<K> {
    entries: Vec<Entry<K>>,
    free: Vec<u32>,
    waiting: usize,
    /// Requests that were handed over, each with the place of the call that somebody waits for instead.
    handing: BTreeSet<(Theirs, u32)>,
    /// Calls that have no deadline yet.
    undated: usize,
    /// Where the numbers of calls of one place begin.
    first: u32,
    /// No deadline is earlier than this.
    due: Instant,
    /// How many were looked at by those who ask for the next one that is late, and for the next one that is lost.
    looked: usize,
    swept: usize,
}

/// The deadline of a call that begins without a look at the clock: [`Calls::date`] sets it later.
pub const UNDATED: Instant = Instant::from_nanos(0);
/// A deadline that never comes.
pub const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl<K> Default for Calls<K> {
    fn default() -> Self {
        Self::beginning_at(1)
    }
}

/// What an answer means for a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered<K> {
    /// The call is over.
    Now(K),
    /// Nobody waits for it any more, or somebody still does, for another's reply.
    Later,
}

impl<K> Calls<K> {
    /// No calls. The first one of each place gets this nonce: whose tables begin elsewhere have other calls.
    #[must_use]
    pub const fn beginning_at(first: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            waiting: 0,
            handing: BTreeSet::new(),
            undated: 0,
            first,
            due: NEVER,
            looked: 0,
            swept: 0,
        }
    }

    /// Calls whose answers somebody waits for.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// When the first deadline may have passed; [`NEVER`] if no call has one.
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// When the answer to a call is due, or was, if it has just come; `None` if it has no deadline yet, or its number
    /// was given to another call.
    #[must_use]
    pub fn deadline(&self, call: CallId) -> Option<Instant> {
        let entry = self.entries.get(call.index() as usize).filter(|entry| entry.nonce == call.nonce())?;
        Some(entry.deadline).filter(|deadline| *deadline != UNDATED)
    }

    /// Begins a call on a row. Once the table has grown to the size of the window, nothing is allocated.
    #[inline]
    pub fn begin(&mut self, row: u32, deadline: Instant, context: K) -> CallId {
        self.waiting += 1;
        if deadline == UNDATED {
            self.undated += 1;
        } else if deadline < self.due {
            self.due = deadline;
        }
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.nonce = entry.nonce.wrapping_add(1);
            entry.row = row;
            entry.state = State::Waiting(context);
            entry.deadline = deadline;
            entry.common = false;
            return CallId::new(index, entry.nonce);
        }
        let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let state = State::Waiting(context);
        let nonce = self.first;
        self.entries.push(Entry { nonce, row, state, deadline, common: false, by: By::Asked, handed: false });
        self.free.reserve(self.entries.len());
        CallId::new(index, nonce)
    }

    /// A call hands somebody's request over: nobody but who was asked may reply to it.
    pub(super) fn pass(&mut self, call: CallId, of: Theirs) {
        if let Some(entry) = self.entry(call) {
            entry.by = By::Taker(of);
            self.handing.insert((of, call.index()));
        }
    }

    /// A call that hands over a request of this channel and life, of this number if one is given.
    pub(super) fn passing(&self, (row, life): (u32, u32), call: Option<CallId>) -> Option<CallId> {
        let least = call.unwrap_or(CallId::new(0, 0));
        let ((its_row, its_life, its_call), index) = *self.handing.range(((row, life, least), 0)..).next()?;
        let its = (its_row, its_life) == (row, life) && call.is_none_or(|call| call == its_call);
        let entry = self.entries.get(index as usize).filter(|_| its)?;
        Some(CallId::new(index, entry.nonce))
    }

    /// Nobody waits any more for the call of this place.
    fn passes_no_more(&mut self, index: u32) {
        if let By::Taker(of) = self.entries[index as usize].by {
            self.handing.remove(&(of, index));
        }
    }

    /// Whether calls may have been made since the last [`Calls::date`] that had no deadline.
    #[inline]
    pub const fn has_undated(&self) -> bool {
        self.undated > 0
    }

    /// Gives this deadline to all calls that have none.
    pub fn date(&mut self, deadline: Instant) {
        for entry in &mut self.entries {
            if entry.deadline == UNDATED {
                entry.deadline = deadline;
                entry.common = true;
            }
        }
        self.undated = 0;
        self.due = self.due.min(deadline);
    }

    /// Gives this deadline to one call, unless it was made with one.
    pub fn date_one(&mut self, call: CallId, deadline: Instant) {
        let Some(entry) = self.entry(call) else { return };
        if entry.deadline != UNDATED && !entry.common {
            return;
        }
        let undated = entry.deadline == UNDATED;
        entry.deadline = deadline;
        entry.common = false;
        self.undated = self.undated.saturating_sub(usize::from(undated));
        self.due = self.due.min(deadline);
    }

    fn entry(&mut self, call: CallId) -> Option<&mut Entry<K>> {
        self.entries.get_mut(call.index() as usize).filter(|entry| entry.nonce == call.nonce() && entry.row != NOBODY)
    }

    /// What is to become of the answer to a call that somebody waits for.
    pub fn context_mut(&mut self, call: CallId) -> Option<&mut K> {
        match &mut self.entry(call)?.state {
            State::Waiting(context) => Some(context),
            State::Free | State::Forgotten => None,
        }
    }

    /// Whether somebody waits for this call, and it was not handed over to anybody yet.
    #[must_use]
    pub fn may_be_announced(&self, call: CallId) -> bool {
        let entry = self.entries.get(call.index() as usize).filter(|entry| entry.nonce == call.nonce());
        entry.is_some_and(|entry| entry.by == By::Asked && matches!(entry.state, State::Waiting(_)))
    }

    fn release(&mut self, index: u32) {
        self.passes_no_more(index);
        let entry = &mut self.entries[index as usize];
        entry.row = NOBODY;
        entry.state = State::Free;
        entry.by = By::Asked;
        entry.handed = false;
        self.free.push(index);
    }

    /// The answer to a call that somebody waits for, and that nobody was handed, or has handed over; `None` if it is
    /// not such a call. Then nothing has happened.
    #[inline(always)]
    pub fn answer_plain(&mut self, call: CallId, row: u32) -> Option<K> {
        let entry = self.entries.get_mut(call.index() as usize)?;
        let its = entry.nonce == call.nonce() && entry.row == row && entry.by == By::Asked;
        if !its || !matches!(entry.state, State::Waiting(_)) {
            return None;
        }
        let State::Waiting(context) = core::mem::replace(&mut entry.state, State::Free) else { return None };
        entry.row = NOBODY;
        self.waiting -= 1;
        self.free.push(call.index());
        Some(context)
    }

    /// The answer to a call has come on this row; `handed` says that it promises another's reply. `None` if no such
    /// call is under way there.
    #[inline]
    pub fn answer(&mut self, call: CallId, row: u32, handed: bool) -> Option<Answered<K>> {
        let entry = self.entries.get_mut(call.index() as usize)?;
        if entry.nonce != call.nonce() || entry.row != row || entry.handed {
            return None;
        }
        match core::mem::replace(&mut entry.state, State::Forgotten) {
            State::Free => {
                entry.state = State::Free;
                None
            }
            State::Forgotten => {
                self.release(call.index());
                Some(Answered::Later)
            }
            State::Waiting(context) if handed => {
                if !matches!(entry.by, By::Other(_)) {
                    entry.state = State::Waiting(context);
                    return None;
                }
                entry.handed = true;
                entry.state = State::Waiting(context);
                Some(Answered::Later)
            }
            State::Waiting(context) => {
                self.waiting -= 1;
                self.release(call.index());
                Some(Answered::Now(context))
            }
        }
    }

    /// The peer of `row` says that the endpoint of this generation will reply. False if it cannot say so.
    pub fn hand_over(&mut self, call: CallId, row: u32, generation: u64) -> bool {
        let Some(entry) = self.entry(call).filter(|entry| entry.row == row && entry.by == By::Asked) else {
            return false;
        };
        entry.by = By::Other(generation);
        true
    }

    /// A direct reply has come from the endpoint of this generation. `None` if the call is not (or not yet) handed
    /// over to it.
    pub fn direct(&mut self, call: CallId, generation: u64) -> Option<Answered<K>> {
        let entry = self.entry(call).filter(|entry| entry.by == By::Other(generation))?;
        let handed = entry.handed;
        let state = core::mem::replace(&mut entry.state, State::Forgotten);
        if handed {
            self.release(call.index());
        }
        match state {
            State::Waiting(context) => {
                self.waiting -= 1;
                Some(Answered::Now(context))
            }
            State::Forgotten | State::Free => Some(Answered::Later),
        }
    }

    /// Stops waiting for a call: what was to become of it, and whether its peer still serves it. The number stays taken
    /// until the peer has answered.
    pub fn forget(&mut self, call: CallId) -> Option<Ended<K>> {
        let entry = self.entry(call)?;
        if !matches!(entry.state, State::Waiting(_)) {
            return None;
        }
        let (row, handed) = (entry.row, entry.handed);
        let State::Waiting(context) = core::mem::replace(&mut entry.state, State::Forgotten) else { return None };
        self.waiting -= 1;
        if handed {
            self.release(call.index());
        } else {
            self.passes_no_more(call.index());
        }
        Some(Ended { call, row, context, served: !handed })
    }

    /// Takes a call back that was never sent: what was to become of it.
    pub fn undo(&mut self, call: CallId) -> Option<K> {
        let ended = self.forget(call)?;
        if ended.served {
            self.release(call.index());
        }
        Some(ended.context)
    }

    /// The next call whose deadline has passed. Call it until there is none: all calls together are looked at once.
    pub fn expire(&mut self, now: Instant) -> Option<Ended<K>> {
        if self.looked == 0 {
            if now < self.due {
                return None;
            }
            // Whatever gets a deadline meanwhile makes it earlier, too.
            self.due = NEVER;
        }
        while let Some(entry) = self.entries.get(self.looked) {
            let index = u32::try_from(self.looked).unwrap_or(u32::MAX);
            self.looked += 1;
            if !matches!(entry.state, State::Waiting(_)) || entry.deadline == UNDATED {
                continue;
            }
            if entry.deadline <= now {
                return self.forget(CallId::new(index, entry.nonce));
            }
            self.due = self.due.min(entry.deadline);
        }
        self.looked = 0;
        None
    }

    /// The channel of a row has ended, whose peer had this generation: the next call that ends with it. Calls that were
    /// handed to that peer end too. Call it until there is none: all calls together are looked at once.
    pub fn lose(&mut self, row: u32, generation: u64) -> Option<Ended<K>> {
        while let Some(entry) = self.entries.get_mut(self.swept) {
            let index = u32::try_from(self.swept).unwrap_or(u32::MAX);
            self.swept += 1;
            let here = entry.row == row && !entry.handed;
            let there = entry.by == By::Other(generation) && entry.row != NOBODY;
            if !here && !there {
                continue;
            }
            let call = CallId::new(index, entry.nonce);
            let row = entry.row;
            let served = !here && !entry.handed;
            let state = core::mem::replace(&mut entry.state, State::Forgotten);
            if served {
                entry.by = By::Asked;
            } else {
                self.release(index);
            }
            if let State::Waiting(context) = state {
                self.waiting -= 1;
                return Some(Ended { call, row, context, served });
            }
        }
        self.swept = 0;
        None
    }
}
