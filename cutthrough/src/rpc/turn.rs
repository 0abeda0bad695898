//! How many calls of a thread's tasks are answered one behind the other before its other tasks have a turn.
//!
//! A call that is answered while it is polled gives its executor no moment for others: a task that makes one after the
//! other would keep its thread.

use std::cell::Cell;

/// Calls that are answered by their first poll before one lets others run: each takes a microsecond or less over shared
/// memory, and ten at most.
const TURN: u32 = 32;

thread_local! {
    static ANSWERED: Cell<u32> = const { Cell::new(0) };
}

/// Whether a call that was never polled lets others run first. Then another turn begins.
pub(super) fn is_over() -> bool {
    // A thread that ends has no others.
    let over = ANSWERED.try_with(|answered| {
        let over = answered.get() >= TURN;
        if over {
            answered.set(0);
        }
        over
    });
    over.unwrap_or(false)
}

/// A poll has answered a call; or others have a turn, since it has not.
pub(super) fn polled(is_answered: bool) {
    let _ = ANSWERED.try_with(|answered| answered.set(if is_answered { answered.get().saturating_add(1) } else { 0 }));
}
