//! `info`: which adapters work here, why others do not, and the limits of this machine that matter.

pub mod raw;
pub mod shm;
pub mod system;
pub mod udp;

use clap::ValueEnum;
use serde::Serialize;

use crate::args::Adapter;
use crate::failure::Failure;
use crate::hint;
use crate::machine::Machine;
use crate::output::Output;
use crate::table::{hanging, wrapped};
use crate::units::Size;

use system::System;

/// Everything that `info` says, as one JSON object.
#[derive(Debug, Serialize)]
pub struct Info {
    /// The version of this program.
    pub version: &'static str,
    /// The version of the wire, hello and memory between two processes of a machine: the same on both sides.
    pub wire_version: u16,
    /// The version of the frames between machines: the same on both sides.
    pub frame_version: u8,
    /// The machine.
    pub machine: Machine,
    /// Every adapter, usable or not, best first.
    pub adapters: Vec<AdapterInfo>,
    /// What the kernel and its settings give this process.
    pub system: System,
    /// Most bytes of a control message.
    pub control_max: u64,
    /// Most bytes of a payload.
    pub payload_max: u64,
}

/// One adapter and whether it can be used here.
#[derive(Debug, Serialize)]
pub struct AdapterInfo {
    /// The name, as in `--adapter`.
    pub name: String,
    /// Whether it can be used here and now.
    pub usable: bool,
    /// Why not; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// What it needs, each tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// One thing that an adapter needs, tried.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was tried.
    pub what: &'static str,
    /// Whether it works.
    pub ok: bool,
    /// Whether the adapter works without it, only worse.
    pub optional: bool,
    /// What was found, or what went wrong and what to do; absent if there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Info {
    /// Looks at this machine; takes milliseconds and leaves nothing behind.
    #[must_use]
    pub fn gather() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            wire_version: cutthrough::WIRE_VERSION,
            frame_version: cutthrough::FRAME_VERSION,
            machine: Machine::here(),
            adapters: Adapter::value_variants().iter().map(|&adapter| adapter_info(adapter)).collect(),
            system: System::here(),
            control_max: cutthrough::CONTROL_MAX as u64,
            payload_max: cutthrough::PAYLOAD_MAX,
        }
    }
}

fn adapter_info(adapter: Adapter) -> AdapterInfo {
    let checks = match adapter {
        Adapter::Shm => shm::checks(),
        Adapter::Udp => udp::checks(),
        Adapter::Net => [udp::checks(), raw::beside_a_socket()].concat(),
        Adapter::Packet => raw::packet(),
        Adapter::Xdp => raw::xdp(),
        Adapter::Fabric => Vec::new(),
    };
    let why_not = match adapter {
        Adapter::Shm | Adapter::Udp | Adapter::Packet | Adapter::Xdp | Adapter::Net => failed(&checks),
        Adapter::Fabric => Some("not built yet".to_string()),
    };
    AdapterInfo { name: adapter.name(), usable: why_not.is_none(), why_not, checks }
}

/// The first thing that an adapter cannot do without and does not have.
fn failed(checks: &[Check]) -> Option<String> {
    let failed = checks.iter().find(|check| !check.ok && !check.optional)?;
    Some(format!("{}: {}", failed.what, failed.detail))
}

impl Adapter {
    /// The name, as in `--adapter`.
    #[must_use]
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Prints what [`Info::gather`] finds.
///
/// # Errors
/// If the output cannot be written.
pub fn run(output: Output) -> Result<(), Failure> {
    let info = Info::gather();
    if output.is_json() {
        return output.line(&info);
    }
    output.say(&text(&info))
}

/// What `info` says, for people.
fn text(info: &Info) -> String {
    let machine = &info.machine;
    let mut lines = vec![
        format!("cutthrough {} on Linux {}", info.version, machine.kernel),
        wrapped(&format!(
            "{}, {} cores, {} of them for this process",
            machine.cpu,
            machine.cores,
            info.system.cores_allowed.len()
        )),
        String::new(),
        "Adapters".into(),
    ];
    for adapter in &info.adapters {
        let verdict = adapter.why_not.as_ref().map_or_else(|| "usable".into(), |why| format!("no: {why}"));
        lines.push(hanging(&format!("  {:<8} {verdict}", adapter.name), 11));
        lines.extend(adapter.checks.iter().map(check_line));
    }
    lines.extend([String::new(), "Pages and limits".into()]);
    lines.extend(info.system.lines().iter().map(|(what, value)| hanging(&format!("  {what:<20} {value}"), 23)));
    lines.push(format!("  {:<20} {} B, at most one payload of {}", "control message", info.control_max, Size::MAX));
    let versions = format!("wire {}, frames {}; both sides need the same", info.wire_version, info.frame_version);
    lines.push(format!("  {:<20} {versions}", "versions"));
    lines.push(String::new());
    lines.push(format!("Next: {}", hint::command("demo")));
    lines.join("\n")
}

fn check_line(check: &Check) -> String {
    let verdict = match (check.ok, check.optional) {
        (true, _) => "yes",
        (false, true) => "no, can do without",
        (false, false) => "NO",
    };
    let detail = if check.detail.is_empty() { String::new() } else { format!(" ({})", check.detail) };
    hanging(&format!("    {:<22} {verdict}{detail}", check.what), 27)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ok: bool, optional: bool) -> Check {
        Check { what: "a feature", ok, optional, detail: "found".into() }
    }

    #[test]
    fn only_what_cannot_be_done_without_makes_an_adapter_unusable() {
        assert_eq!(failed(&[check(true, false), check(false, true)]), None);
        assert_eq!(failed(&[check(false, true), check(false, false)]).as_deref(), Some("a feature: found"));
    }

    #[test]
    fn every_adapter_is_listed_and_an_unusable_one_says_why() {
        let info = Info::gather();
        let names: Vec<&str> = info.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
        assert_eq!(names, ["shm", "udp", "xdp", "packet", "net", "fabric"]);
        for adapter in &info.adapters {
            assert_eq!(adapter.usable, adapter.why_not.is_none(), "{adapter:?}");
        }
    }

    #[test]
    fn the_adapter_net_says_which_rings_it_has() {
        let info = adapter_info(Adapter::Net);
        for (what, tried) in [("ring of AF_PACKET", raw::packet()), ("ring of AF_XDP", raw::xdp())] {
            let ring = info.checks.iter().find(|check| check.what == what).expect(what);
            // It does without, and so is usable.
            assert!(ring.optional, "{ring:?}");
            let missing = tried.iter().find(|check| !check.ok);
            assert_eq!(ring.ok, missing.is_none(), "{ring:?}");
            assert!(missing.is_none_or(|missing| ring.detail == missing.detail), "{ring:?} {missing:?}");
        }
    }

    #[test]
    fn the_object_is_one_line_and_the_text_names_the_adapters() {
        let info = Info::gather();
        let json = serde_json::to_string(&info).expect("serializable");
        assert!(!json.contains('\n') && json.contains(r#""adapters":[{"name":"shm","usable":"#), "{json}");
        let text = text(&info);
        assert!(text.contains("\n  fabric   no: not built yet\n"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_missing_feature_stands_out() {
        assert_eq!(check_line(&check(false, false)), "    a feature              NO (found)");
        assert_eq!(check_line(&check(false, true)), "    a feature              no, can do without (found)");
    }
}
