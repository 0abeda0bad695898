//! What a thread that looks for an answer knows of its core: it belongs to no node, and whoever makes way has none.

use std::cell::RefCell;

use cutthrough_node::clock;
use cutthrough_node::idle::Idle;

thread_local! {
    static IDLE: RefCell<Idle> = const { RefCell::new(Idle::new()) };
}

/// What a thread that ends knows is that of one that has just begun. So it is where time is simulated: what was on that
/// thread before changes nothing there, not even how often it looks at the clock.
fn with<R>(work: impl Fn(&mut Idle) -> R) -> R {
    if clock::is_simulated() {
        return work(&mut Idle::new());
    }
    let known = IDLE.try_with(|idle| idle.try_borrow_mut().map(|mut idle| work(&mut idle)).ok());
    known.ok().flatten().unwrap_or_else(|| work(&mut Idle::new()))
}

/// Whether whoever waits had better sleep at once.
pub(super) fn rests() -> bool {
    with(Idle::rests)
}

/// So many looks have found nothing: others have the core now and then, if they want it.
pub(super) fn looked(looks: u32) {
    with(|idle| {
        if idle.look_often(looks) {
            idle.let_others_run();
        }
    });
}

/// Looked long enough: perhaps whoever shall answer waits for this core.
pub(super) fn make_way() {
    with(|idle| {
        idle.let_others_run();
    });
}
