//! The machine that a figure was measured on.

use std::fmt;
use std::fs;

use serde::Serialize;

/// What to know about a machine before comparing figures with another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor's model as it names itself.
    pub cpu: String,
    /// How many processors the kernel runs.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The day of the measurement in UTC, `2026-01-31`.
    pub date: String,
}

impl Machine {
    /// This machine, today.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            cores: online_cores(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            date: today(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, Linux {}, {}", self.cpu, self.cores, self.kernel, self.date)
    }
}

/// A number that processes of this machine agree about, and that another machine does not have: its kernel's since it
/// was started. None if it is not told.
#[must_use]
pub fn number() -> Option<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// The processors that the kernel runs, also those this process may not use.
fn online_cores() -> usize {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    match crate::cpu::parse_list(&online).len() {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        cores => cores,
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn today() -> String {
    let now = jiff::Timestamp::now().to_string();
    now.split('T').next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_found_and_tidied() {
        let text = "processor\t: 0\nmodel name\t: AMD  EPYC   7R13 \nflags\t: fpu\n";
        assert_eq!(cpu_model(text).as_deref(), Some("AMD EPYC 7R13"));
        assert_eq!(cpu_model("processor : 0\n"), None);
    }

    #[test]
    fn this_machine_has_a_number_that_stays() {
        assert!(number().is_some());
        assert_eq!(number(), number());
    }

    #[test]
    fn this_machine_is_described_in_full() {
        let machine = Machine::here();
        assert!(!machine.cpu.is_empty());
        assert!(machine.cores >= 1);
        assert!(!machine.kernel.is_empty());
        assert_eq!(machine.date.len(), "2026-01-31".len());
    }
}
