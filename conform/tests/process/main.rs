//! Processes that die, stop, are in each other's way, or have too little of everything.
//!
//! Each test starts this program again as its other side: the test `other_side` does nothing unless it is told to.

mod child;
mod deaths;
mod limits;
mod names;
mod network;
mod rings;
mod slow;

#[test]
fn other_side() {
    child::run();
}
