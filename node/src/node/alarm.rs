//! What has to be looked at again though nothing comes: senders that stand still in the middle of a payload, and
//! callers for whom there was no file.

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
    due: Option<Instant>,
}

impl Alarm {
    pub(super) fn new(sleepers: &OwnedFd) -> Result<Self, Errno> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(sleepers, &timer, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self { timer, due: None })
    }

    /// Has it go off at this time, unless it goes off earlier.
    pub(super) fn set(&mut self, due: Instant, now: Instant) {
        if self.due.is_some_and(|before| before <= due) {
            return;
        }
        self.due = Some(due);
        // No time at all would stop it.
        let left = Duration::from_nanos(due.saturating_since(now).max(1));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, ..never });
        let timer = Itimerspec { it_interval: never, it_value };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer);
    }
}

impl Node {
    /// The alarm has gone off. True if anything has come of it.
    pub(super) fn go_off(&mut self) -> bool {
        self.alarm.due = None;
        self.open_door();
        self.look_after_payloads(clock::now())
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
