//! The table of calls, where many end at the same time.

use std::time::Duration;

use cutthrough_engine::am::calls::{Calls, NEVER};
use cutthrough_engine::time::Instant;

const ROWS: u32 = 500;
/// Nothing takes so long that is done once for each.
const PATIENCE: Duration = Duration::from_secs(20);

fn calls() -> Calls<u32> {
    let mut calls = Calls::default();
    for number in 0..ROWS * 256 {
        calls.begin(number % ROWS, Instant::from_nanos(100), number);
    }
    calls
}

/// For each of them all were looked at again: with so many that took minutes.
#[test]
fn however_many_are_late_or_lost_at_the_same_time_takes_no_longer_than_a_look_at_each() {
    let since = std::time::Instant::now();
    let mut late = calls();
    assert_eq!(late.expire(Instant::from_nanos(99)), None);
    let ended = core::iter::from_fn(|| late.expire(Instant::from_nanos(100))).map(|ended| ended.context);
    assert!(ended.eq(0..ROWS * 256));
    assert_eq!((late.waiting(), late.due()), (0, NEVER));
    let mut lost = calls();
    for row in 0..ROWS {
        let ended = core::iter::from_fn(|| lost.lose(row, 7)).map(|ended| ended.context);
        assert!(ended.eq((row..ROWS * 256).step_by(ROWS as usize)));
    }
    assert_eq!(lost.waiting(), 0);
    assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
}

/// What begins while those that are late are asked for is found when its time has come.
#[test]
fn a_call_that_begins_between_two_that_are_late_is_late_in_its_time() {
    let mut calls = Calls::default();
    let late = [1, 2].map(|number| calls.begin(0, Instant::from_nanos(100), number));
    let next = |calls: &mut Calls<i32>, now| calls.expire(Instant::from_nanos(now)).map(|ended| ended.context);
    assert_eq!(next(&mut calls, 100), Some(1));
    assert!(calls.answer(late[0], 0, false).is_some());
    // In the place of the first.
    calls.begin(0, Instant::from_nanos(150), 3);
    assert_eq!((next(&mut calls, 100), next(&mut calls, 100)), (Some(2), None));
    assert_eq!(calls.due(), Instant::from_nanos(150));
    assert_eq!((next(&mut calls, 149), next(&mut calls, 150), next(&mut calls, 150)), (None, Some(3), None));
}
