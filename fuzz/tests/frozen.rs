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

/// What came in pages goes back alone, to a token, and into what is posted, which is taken back meanwhile; what is
/// filled then, or waits for its reader, is whole.
#[test]
fn pages_go_back_while_what_is_posted_is_taken_back() {
    use pair::Step::{Copy, Drop, Forward, Grant, Page, Pages, Poll, Post, Recall};
    let steps = [
        Post(true, 5000, 3),
        Page(false, 4096),
        Pages(false, 1, None),
        Copy(false, 4096, None),
        Copy(false, 9000, None),
        Poll(15),
        Recall(true),
        Copy(false, 100, None),
        Grant(false, true, 5000),
        Post(false, 4096, 2),
        Forward(true, 0, Some(0)),
        Forward(true, 1, None),
        Recall(false),
        Poll(15),
        Forward(true, 0, None),
        Post(true, 4096, 8),
        Poll(15),
        Drop(false, 1),
        Forward(false, 0, None),
        Recall(true),
        Recall(true),
    ];
    pair::run(&steps);
}

/// A side to which nothing has come for a while is looked at seldom while the other one has something: all that was
/// sent to it comes, if somebody looks often enough.
#[test]
fn who_has_heard_nothing_for_a_while_hears_all() {
    use pair::Step::{Control, Copy, Poll};
    let controls = |count| (0..count).map(|_| Control(true));
    let mut steps = vec![Poll(11)];
    steps.extend(controls(12));
    steps.push(Poll(11));
    steps.extend(controls(14));
    steps.extend([Copy(true, 2827, None), Poll(11)]);
    steps.extend(controls(4));
    steps.extend([Copy(true, 3023, None), Control(false), Control(true), Copy(true, 2827, None), Poll(11)]);
    steps.extend(controls(8));
    pair::run(&steps);
}
