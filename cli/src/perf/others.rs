//! What else ran on the cores of a measurement meanwhile: two ends that spin and wait for their core say what the
//! scheduler does, and nothing of messages.

use std::fs;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

use super::peer::{Peer, cores};
use super::serve::cpu_time;
use crate::failure::Failure;
use crate::stats::nanoseconds;

/// A larger share of the cores' time makes itself felt in times and ratios, and is told.
const TOLD: f64 = 0.1;

/// The kernel counts in steps of 10 ms or so: of less time than this nothing is told.
const SHORTEST: Duration = Duration::from_millis(200);

/// The processor time of the measured cores, and what the ends of the measurement have used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    /// Nanoseconds that these cores were busy, all of them together; none if the kernel does not say.
    busy_ns: Option<u64>,
    /// Nanoseconds of processor time of both ends.
    own_ns: u64,
}

/// A look at the cores before something is measured.
#[derive(Debug)]
pub struct Others {
    begun: Instant,
    before: Used,
    cores: Vec<usize>,
}

impl Others {
    /// Looks now. The other end is not at work.
    ///
    /// # Errors
    /// If it has gone.
    pub fn watch(peer: &mut Peer) -> Result<Self, Failure> {
        let far_ns = time_of(peer)?;
        Ok(Self::on(seen(peer), far_ns))
    }

    /// Looks now at these cores, on which this process runs, and another end that has used so much processor time.
    #[must_use]
    pub fn on(cores: Vec<usize>, far_ns: u64) -> Self {
        let before = used(&cores, far_ns);
        Self { begun: Instant::now(), before, cores }
    }

    /// Which share of the cores' time other work has had since, 0 to 1. None if that cannot be told.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn share(&self, peer: &mut Peer) -> Result<Option<f64>, Failure> {
        Ok(self.share_beside(time_of(peer)?))
    }

    /// The same, if the other end has used so much processor time by now.
    #[must_use]
    pub fn share_beside(&self, far_ns: u64) -> Option<f64> {
        share(self.before, used(&self.cores, far_ns), self.begun.elapsed(), self.cores.len())
    }
}

/// What to say of the greatest of these shares; nothing if it is none that matters.
#[must_use]
pub fn told(shares: impl IntoIterator<Item = Option<f64>>) -> Option<String> {
    let most = shares.into_iter().flatten().fold(0.0, f64::max);
    (most > TOLD).then(|| {
        format!(
            "Other work had up to {:.0} % of the time of the cores of both ends: these figures and ratios say little \
             of messages. Measure again when it has ended.",
            most * 100.0
        )
    })
}

/// The cores of which both ends can be told from others. Another end that somebody has started may run anywhere.
fn seen(peer: &Peer) -> Vec<usize> {
    let pair = cores();
    if peer.is_own() && pair.first != pair.second { vec![pair.first, pair.second] } else { vec![pair.first] }
}

/// Processor time of another end that is on one of these cores.
fn time_of(peer: &mut Peer) -> Result<u64, Failure> {
    if peer.is_own() { peer.cpu_time() } else { Ok(0) }
}

fn used(cores: &[usize], far_ns: u64) -> Used {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    Used { busy_ns: busy_ticks(&stat, cores).map(|ticks| ticks * tick_ns()), own_ns: far_ns + cpu_time() }
}

/// Nanoseconds of the unit in which the kernel counts time there.
fn tick_ns() -> u64 {
    1_000_000_000 / clock_ticks_per_second().max(1)
}

/// Nanoseconds of processor time that a process has used, to such a unit; 0 if there is none.
#[must_use]
pub fn time_of_process(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks_of_process(&stat).unwrap_or_default() * tick_ns()
}

/// In user and in system mode, by `/proc/PID/stat`: what stands behind the name, which may have any characters.
fn ticks_of_process(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
    Some(fields.next()? + fields.next()?)
}

/// How long these cores were busy with programs, or the machine beneath this one was, by `/proc/stat`. What the kernel
/// does for the network is work of the measurement, too, and left out.
fn busy_ticks(stat: &str, cores: &[usize]) -> Option<u64> {
    let of_core = |core: &usize| {
        let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} ")))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
        // User, nice, system; steal.
        Some(ticks.get(..3)?.iter().sum::<u64>() + ticks.get(7).copied().unwrap_or_default())
    };
    cores.iter().map(of_core).sum()
}

/// The share of the time of so many cores that was none of our own. None if it was too short to tell.
fn share(before: Used, after: Used, wall: Duration, cores: usize) -> Option<f64> {
    if wall < SHORTEST || cores == 0 {
        return None;
    }
    let busy = after.busy_ns?.saturating_sub(before.busy_ns?);
    let others = busy.saturating_sub(after.own_ns.saturating_sub(before.own_ns));
    Some((others as f64 / (nanoseconds(wall) as f64 * cores as f64)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\n\
                        cpu0 100 20 3 5000 7 0 11 4 0 0\n\
                        cpu1 200 0 50 5000 7 0 11 0 0 0\n\
                        cpu10 1 1 1 1 1 1 1 1 0 0\n\
                        intr 77\n";

    #[test]
    fn a_core_is_busy_with_programs_and_with_what_is_stolen() {
        assert_eq!(busy_ticks(STAT, &[0]), Some(127));
        assert_eq!(busy_ticks(STAT, &[0, 1]), Some(377));
        assert_eq!([busy_ticks(STAT, &[0, 2]), busy_ticks("", &[0])], [None, None]);
    }

    #[test]
    fn the_time_of_a_process_stands_behind_its_name() {
        let stat = "77 (a ) name) S 1 77 77 0 -1 4194304 100 0 0 0 41 9 0 0 20 0 1 0 100 0 0";
        assert_eq!(ticks_of_process(stat), Some(50));
        assert_eq!([ticks_of_process(""), ticks_of_process("1 (x) S 1 2")], [None, None]);
        assert_eq!(time_of_process(0), 0);
    }

    #[test]
    fn what_both_ends_have_used_is_not_the_work_of_others() {
        let used = |busy_ms: u64, own_ms: u64| Used { busy_ns: Some(busy_ms * 1_000_000), own_ns: own_ms * 1_000_000 };
        let second = Duration::from_secs(1);
        let share = |after, wall| share(used(500, 300), after, wall, 2);
        // Both ends had both cores.
        assert_eq!(share(used(2500, 2290), second), Some(0.005));
        // Each core had another spinning program besides.
        assert_eq!(share(used(2500, 1300), second), Some(0.5));
        // Threads of ours were on other cores.
        assert_eq!(share(used(2500, 5300), second), Some(0.0));
        assert_eq!(share(used(900, 400), Duration::from_millis(100)), None);
        assert_eq!(share(Used { busy_ns: None, own_ns: 0 }, second), None);
    }

    #[test]
    fn only_what_is_felt_is_told() {
        assert_eq!(told([None, Some(0.02), Some(0.1)]), None);
        let text = told([Some(0.02), None, Some(0.476)]).expect("it matters");
        assert!(text.contains("up to 48 % of the time of the cores") && text.contains("say little"), "{text}");
    }
}
