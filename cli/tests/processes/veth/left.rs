//! However a measuring process ends, its namespaces, devices and processes are gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::pair;
use crate::folder::{Folder, Running, kill, runs, until};

/// Where the links of a folder of `/proc` lead that name network namespaces.
fn spaces(folder: &Path) -> BTreeSet<PathBuf> {
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("net:[")).collect()
}

/// The network namespaces that a process is in or holds, with all of its threads.
fn held_by(process: &Path) -> BTreeSet<PathBuf> {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let mut held = spaces(&process.join("fd"));
    held.extend(threads.flat_map(|thread| spaces(&thread.path().join("ns"))));
    held
}

/// Every network namespace that any process is in or holds.
pub(crate) fn all() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.flat_map(|process| held_by(&process.path())).collect()
}

/// The names of this machine's own devices.
pub(crate) fn devices() -> BTreeSet<String> {
    let output = Command::new("ip").args(["-o", "link"]).output().expect("it was there when a pair was made");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
}

/// The two namespaces that a measuring process has made.
pub(crate) fn made_by(running: &Running) -> BTreeSet<PathBuf> {
    let process = PathBuf::from(format!("/proc/{}", running.pid()));
    let mut made = BTreeSet::new();
    until("it has made its namespaces", || {
        made = spaces(&process.join("fd"));
        made.len() == 2
    });
    made
}

/// The other end that a measuring process has started, after the programs that made the link.
pub(crate) fn other_end(running: &Running, word: &str) -> u32 {
    let mut found = 0;
    until("it has started its other end", || {
        found = running.other_end();
        fs::read_to_string(format!("/proc/{found}/cmdline")).is_ok_and(|words| words.contains(word))
    });
    found
}

#[test]
fn nothing_is_left_of_limits_that_were_killed() {
    if pair(1500).is_none() {
        return;
    }
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let folder = Folder::new("veth-killed");
        let before = devices();
        let running = folder.start(&["perf", "limits", "--veth", "1500", "--seconds", "60"]);
        let made = made_by(&running);
        until("it measures", || held_by(Path::new(&format!("/proc/{}", running.pid()))).len() >= 3);
        kill(running.pid(), signal);
        if signal == Signal::KILL {
            assert_eq!(running.end().0, None);
        } else {
            drop(running);
        }
        until("its namespaces are gone", || all().is_disjoint(&made));
        assert_eq!(devices(), before);
    }
}

#[test]
fn nothing_is_left_of_a_measurement_and_its_other_end_that_were_killed() {
    if pair(1500).is_none() {
        return;
    }
    let folder = Folder::new("veth-pair-killed");
    let first = folder.start(&["perf", "lat", "--veth", "1500", "--seconds", "60"]);
    let made = made_by(&first);
    let second = other_end(&first, "serve");
    let of = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default();
    until("each end is in its own", || of(first.pid()) != of(second) && made == [of(first.pid()), of(second)].into());
    kill(first.pid(), Signal::KILL);
    assert_eq!(first.end().0, None);
    until("the other end has ended", || !runs(second));
    until("its namespaces are gone", || all().is_disjoint(&made));
    folder.wait_until_empty();
}

/// It is started last and has not come to anything yet: the other end must not wait for a dead one.
#[test]
fn an_other_end_that_has_just_been_started_ends_too() {
    if pair(1500).is_none() {
        return;
    }
    let folder = Folder::new("veth-young");
    for _ in 0..10 {
        let first = folder.start(&["perf", "lat", "--veth", "1500", "--seconds", "60"]);
        let second = other_end(&first, "serve");
        kill(first.pid(), Signal::KILL);
        drop(first);
        until("the other end has ended", || !runs(second));
    }
    folder.wait_until_empty();
}
