//! The node's timer: when a sleep ends though nothing comes, and what has to be looked at again: senders that stand
//! still in the middle of a payload, callers who say nothing, and those for whom there was no file.
//!
//! It is not stopped when something ends a sleep earlier. To stop the timer that is the next one of its core has the
//! kernel program the core's clock anew, which a virtual machine has to ask its host for: that takes as long as all the
//! rest of waking up, and whoever waits for the message waits for it, too. So it is left to go off, or set anew before
//! the next sleep, when nobody waits.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::{ALARM, Node};
use crate::clock;

/// Wakes whoever sleeps on the node's file descriptor. Made with the node: later there may be no file for it.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    /// When it goes off.
    set: Option<Instant>,
    /// When something is to be looked at again.
    due: Option<Instant>,
}

impl Alarm {
    pub(super) fn new(sleepers: &OwnedFd) -> Result<Self, Errno> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(sleepers, &timer, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self { timer, set: None, due: None })
    }

    /// Has it go off at this time, for something that is to be looked at then, unless it goes off earlier for that.
    pub(super) fn set(&mut self, due: Instant, now: Instant) {
        if self.due.is_some_and(|before| before <= due) {
            return;
        }
        self.due = Some(due);
        if self.set.is_none_or(|set| set > due) {
            self.wind(Some(due), now);
        }
    }

    /// Has it end a sleep that begins now: by then at the latest, and perhaps earlier, once. False if it cannot be set.
    pub(super) fn ends_sleep(&mut self, end: Option<Instant>, now: Instant) -> bool {
        let end = end.into_iter().chain(self.due).min();
        stays(self.set, end, now) || self.wind(end, now)
    }

    fn wind(&mut self, when: Option<Instant>, now: Instant) -> bool {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        // No time at all would stop it.
        let left = when.map(|when| Duration::from_nanos(when.saturating_since(now).max(1)));
        let it_value =
            left.map_or(never, |left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, ..never }));
        let timer = Itimerspec { it_interval: never, it_value };
        let is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer).is_ok();
        if is_set {
            self.set = when;
        }
        is_set
    }
}

/// Whether a timer that goes off then is left as it is before a sleep that has to end by `end`: one that goes off too
/// early costs a look for nothing, one that is set anew costs about as much, each time. So it may go off early if that
/// is not soon, and who sleeps for long is woken for nothing a few times at most.
fn stays(set: Option<Instant>, end: Option<Instant>, now: Instant) -> bool {
    match (set, end) {
        (Some(set), Some(end)) => set <= end && set.saturating_since(now) >= end.saturating_since(now) / 2,
        (None, None) => true,
        _ => false,
    }
}

impl Node {
    /// The alarm has gone off. True if anything has come of it, but that a sleep has ended.
    pub(super) fn go_off(&mut self) -> bool {
        let now = clock::now();
        self.alarm.set = None;
        match self.alarm.due {
            Some(due) if due > now => {
                self.alarm.wind(Some(due), now);
                false
            }
            Some(_) => {
                self.alarm.due = None;
                self.open_door();
                self.forget_silent(now);
                self.look_after_payloads(now)
            }
            None => false,
        }
    }

    /// Ends the channels whose senders have stood still for too long. True if there are any; for the others the alarm
    /// is set.
    pub(super) fn look_after_payloads(&mut self, now: Instant) -> bool {
        let mut found = false;
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some(link) = seat.link.as_mut().filter(|link| link.is_midway() && link.ending().is_none()) else {
                continue;
            };
            match link.look_after_payload(now) {
                Some(due) => self.alarm.set(due, now),
                None => {
                    found = true;
                    if link.disarm() {
                        self.awake.push(index);
                    }
                    self.turn.warm(index);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant as Clock;

    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;
    use crate::node::WaitError;

    /// Nobody who waits for so long means well.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Waits up to so long; another thread ends that at once, as a rule after this one has gone to sleep.
    fn is_cut_short(node: &mut Node, most: Duration) {
        let waker = node.waker().clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                waker.wake();
            });
            assert_eq!(node.wait(Some(most)).unwrap_err(), WaitError::Woken);
        });
    }

    #[test]
    fn a_sleep_that_is_cut_short_leaves_its_timer_and_later_ones_end_in_time() {
        let mut node = Node::open(Config::default()).unwrap();
        let begun = Clock::now();
        while node.alarm.set.is_none() {
            is_cut_short(&mut node, PATIENCE);
            assert!(begun.elapsed() < PATIENCE / 3, "it was stopped, which takes as long as waking up");
        }
        // A shorter one is not as long as what was left.
        let begun = Clock::now();
        assert_eq!(node.wait(Some(Duration::from_millis(20))).unwrap_err(), WaitError::TimedOut);
        assert!(begun.elapsed() < PATIENCE / 2);
        // A longer one does not end when that goes off.
        is_cut_short(&mut node, Duration::from_millis(200));
        let begun = Clock::now();
        assert_eq!(node.wait(Some(Duration::from_millis(390))).unwrap_err(), WaitError::TimedOut);
        assert!(begun.elapsed() >= Duration::from_millis(390));
    }

    #[test]
    fn a_timer_stays_that_ends_the_sleep_in_time_and_not_soon() {
        let at = |us: u64| Instant::from_nanos(us * 1000);
        let stays = |set: u64, end: u64| stays(Some(at(set)), Some(at(end)), at(1000));
        assert!(stays(2000, 2000), "the same end");
        assert!(stays(1800, 2000) && stays(1500, 2000), "a little earlier");
        assert!(!stays(1499, 2000), "soon: it would go off for nothing");
        assert!(!stays(2001, 2000), "too late");
        assert!(!stays(900, 2000), "it has gone off");
        assert!(!super::stays(None, Some(at(2000)), at(1000)) && !super::stays(Some(at(2000)), None, at(1000)));
        assert!(super::stays(None, None, at(1000)));
    }

    proptest! {
        /// Sleeps of one length that something ends early: the timer is set anew every other time at most, as long as
        /// something comes twice in that time.
        #[test]
        fn who_is_woken_often_seldom_sets_it_anew(length in 1000_u64..1_000_000_000, part in 2_u64..50) {
            let (mut set, mut times) = (None, 0);
            for turn in 0..100 {
                let now = Instant::from_nanos(1 + turn * (length / part));
                let end = Some(now.after(length));
                if !stays(set, end, now) {
                    (set, times) = (end, times + 1);
                }
                prop_assert!(set.is_some_and(|set| set > now && set <= now.after(length)));
            }
            prop_assert!(times <= 51, "{times} of 100");
        }
    }
}
