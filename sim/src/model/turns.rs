//! A processor that goes round a loop: when it looks next.

use crate::time::{Span, Time};

/// The first turn after `event` of a loop that begins its next turn at `anchor` and takes `turn` for each idle one.
///
/// A turn sees what happened before it began, not what happens at that very moment; so the answer does not depend on
/// the order in which events of the same time are handled. A loop that skips the turns in between therefore acts
/// exactly when one that spins through them would. `turn` must not be zero; if it is, one picosecond is taken.
#[must_use]
pub fn first_turn_after(anchor: Time, turn: Span, event: Time) -> Time {
    if event < anchor {
        return anchor;
    }
    anchor + turn * ((event - anchor).as_ps() / turn.as_ps().max(1) + 1)
}

#[cfg(test)]
mod tests {
    use super::first_turn_after;
    use crate::time::{Span, Time};

    #[test]
    fn the_loop_looks_at_the_first_turn_after_the_event() {
        let (anchor, turn) = (Time::from_ps(100), Span::from_ps(30));
        let next = |event| first_turn_after(anchor, turn, Time::from_ps(event)).as_ps();
        assert_eq!([next(0), next(99), next(100), next(129), next(130), next(131)], [100, 100, 130, 130, 160, 160]);
    }
}
