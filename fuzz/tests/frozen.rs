//! What random steps seldom bring together.

use cutthrough_fuzz::pair;

/// A frozen page goes alone, behind another one and to a token, is read while it goes again, and is dropped before the
/// last of its readers.
#[test]
fn frozen_pages_go_again_and_again() {
    use pair::Step::{Drop, DropFrozen, Freeze, Frozen, Grant, Page, Poll};
    let steps = [
        Page(false, 4096),
        Freeze(false),
        Grant(true, true, 5000),
        Page(false, 4096),
        Frozen(false, 0, false, None),
        Frozen(false, 0, false, Some(0)),
        Frozen(false, 0, true, None),
        Frozen(false, 0, false, None),
        Poll(15),
        Drop(true, 0),
        Frozen(false, 0, false, None),
        DropFrozen(false, 0),
        Poll(15),
        Drop(true, 1),
        Drop(true, 0),
    ];
    pair::run(&steps);
}
