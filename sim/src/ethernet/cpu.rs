//! A host's processor: one thing at a time, interrupts before the stack before processes.
//!
//! Linux 2.2 on one processor: the driver's interrupt handler stops everything else, the stack ("bottom half") runs
//! when no handler does, and processes get the rest. What is stopped goes on later where it was.

use std::collections::VecDeque;

use super::wire::Meter;
use crate::time::{Span, Time};

/// Who may stop whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The driver's interrupt handler.
    Interrupt,
    /// The protocol stack.
    Stack,
    /// Processes, in the order in which they became ready.
    Process,
}

/// What the processor's time goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Copies, the checksum among them: it is summed up while copying.
    Copy,
    /// Entering and leaving interrupt handlers.
    Interrupt,
    /// TCP, UDP and IP.
    Stack,
    /// The driver: descriptors.
    Driver,
    /// Exchanging pages between kernel and process.
    Remap,
    /// System calls and waking processes; all else.
    System,
}

/// Names of the parts, in the order of [`Part`].
pub(crate) const PARTS: [&str; 6] = ["copy and checksum", "interrupt", "TCP/IP", "driver", "remapping", "system calls"];

/// Time by part.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost([Span; PARTS.len()]);

impl Cost {
    pub(crate) fn of(part: Part, span: Span) -> Self {
        Self::default().and(part, span)
    }

    pub(crate) fn and(mut self, part: Part, span: Span) -> Self {
        self.0[part as usize] += span;
        self
    }

    pub(crate) fn plus(mut self, other: Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
        self
    }

    /// The same, but `thousandths` of it.
    pub(crate) fn scaled(mut self, thousandths: u64) -> Self {
        for span in &mut self.0 {
            *span = Span::from_ps(span.as_ps() / 1000 * thousandths);
        }
        self
    }

    pub(crate) fn total(self) -> Span {
        self.0.into_iter().sum()
    }

    pub(crate) fn part(self, part: usize) -> Span {
        self.0[part]
    }
}

#[derive(Debug)]
struct Job<T> {
    left: Span,
    then: T,
}

/// A processor; `T` is what happens when a job is done.
#[derive(Debug)]
pub(crate) struct Cpu<T> {
    waiting: [VecDeque<Job<T>>; 3],
    running: Option<(Level, Time, Job<T>)>,
    /// Names the job that runs since the last change: the end of one that was stopped does not count.
    ticket: u64,
    spent: Cost,
    /// When the first job began, and the last one ended.
    at_work: Option<(Time, Time)>,
    jobs: u64,
}

/// When to come back, and with which ticket.
pub(crate) type Appointment = (Time, u64);

impl<T> Cpu<T> {
    pub(crate) fn new() -> Self {
        let waiting = [const { VecDeque::new() }; 3];
        Self { waiting, running: None, ticket: 0, spent: Cost::default(), at_work: None, jobs: 0 }
    }

    /// Time spent so far, jobs that wait included.
    pub(crate) fn spent(&self) -> Cost {
        self.spent
    }

    /// When it was at work.
    pub(crate) fn meter(&self) -> Meter {
        Meter { span: self.at_work, busy: self.spent.total(), pulses: self.jobs }
    }

    /// Takes in a job. Returns the end of the job that runs now, if that has changed.
    pub(crate) fn submit(&mut self, now: Time, level: Level, cost: Cost, then: T) -> Option<Appointment> {
        self.spent = self.spent.plus(cost);
        self.waiting[level as usize].push_back(Job { left: cost.total(), then });
        match self.running.take() {
            Some((running, since, mut job)) if level < running => {
                job.left = job.left - (now - since);
                self.waiting[running as usize].push_front(job);
            }
            busy @ Some(_) => {
                self.running = busy;
                return None;
            }
            None => {}
        }
        self.next(now)
    }

    /// The job of this ticket is done: what happens then, and the end of the next job. `None` if it was stopped.
    pub(crate) fn done(&mut self, now: Time, ticket: u64) -> Option<(T, Option<Appointment>)> {
        if ticket != self.ticket {
            return None;
        }
        let (_, _, job) = self.running.take()?;
        self.at_work = self.at_work.map(|(first, _)| (first, now));
        self.jobs += 1;
        Some((job.then, self.next(now)))
    }

    fn next(&mut self, now: Time) -> Option<Appointment> {
        let levels = [Level::Interrupt, Level::Stack, Level::Process];
        let level = levels.into_iter().find(|&level| !self.waiting[level as usize].is_empty())?;
        let job = self.waiting[level as usize].pop_front()?;
        self.ticket += 1;
        self.at_work = self.at_work.or(Some((now, now)));
        let end = now + job.left;
        self.running = Some((level, now, job));
        Some((end, self.ticket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Span {
        Span::from_ns(1000 * us)
    }

    #[test]
    fn an_interrupt_stops_a_process_and_the_process_goes_on() {
        let mut cpu = Cpu::new();
        let (end, first) = cpu.submit(Time::START, Level::Process, Cost::of(Part::Copy, us(10)), "copy").unwrap();
        assert_eq!(end, Time::START + us(10));
        let at = Time::START + us(4);
        let (end, second) = cpu.submit(at, Level::Interrupt, Cost::of(Part::Interrupt, us(3)), "interrupt").unwrap();
        assert_eq!(end, at + us(3));
        assert!(cpu.done(Time::START + us(10), first).is_none(), "it was stopped");
        assert_eq!(cpu.submit(at, Level::Stack, Cost::of(Part::Stack, us(1)), "stack"), None);
        let (then, next) = cpu.done(end, second).unwrap();
        let (end, third) = next.unwrap();
        assert_eq!((then, end), ("interrupt", Time::START + us(8)));
        let (then, next) = cpu.done(end, third).unwrap();
        let (end, fourth) = next.unwrap();
        assert_eq!((then, end), ("stack", Time::START + us(14)), "10 of its own, 4 of others");
        assert_eq!(cpu.done(end, fourth), Some(("copy", None)));
        assert_eq!(cpu.spent().total(), us(14));
    }
}
