//! Frames that are lost on purpose, and many senders at once. No figure of speed is judged here.

use std::process::Command;

use cutthrough_cli::perf::loss::Lossy;
use cutthrough_cli::veth::Space;
use rustix::process::Signal;
use serde_json::Value;

use super::left::{devices, made_by, other_end};
use super::pair;
use crate::folder::{Folder, kill, runs, until};

/// Whether frames can be lost here; if not, the reason goes where the test's output goes.
fn can_lose(mtu: u32) -> bool {
    let Some(pair) = pair(mtu) else { return false };
    Lossy::between(&pair).map_err(|why| crate::skipped(format_args!("no frames can be lost: {why}"))).is_ok()
}

fn count(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("no {field} in {line}"))
}

#[test]
fn frames_are_lost_as_often_as_was_asked_for_and_everything_arrives() {
    for mtu in [1500_u32, 9000] {
        if !can_lose(mtu) {
            return;
        }
        let folder = Folder::new("veth-loss");
        let across = ["--veth", &mtu.to_string(), "--size", "100000", "--count", "400"];
        for (loss, range) in [("0", 0.0..=0.0), ("1", 0.004..=0.02), ("10.5", 0.08..=0.13)] {
            let lines = folder.lines(&[&["perf", "bw", "--loss", loss], &across[..]].concat());
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!(count(line, "loss"), loss.parse::<f64>().expect("a number"));
            let (frames, lost) = (count(line, "frames"), count(line, "frames_lost"));
            // Trains cross in frames of the MTU, each of which may be lost.
            assert!(frames * f64::from(mtu) >= 400.0 * 1e5, "{line}");
            assert!(range.contains(&(lost / frames)), "{lost} of {frames} at {loss} %");
            assert_eq!((count(line, "count"), &line["adapter"]), (400.0, &"udp".into()));
        }
    }
}

#[test]
fn every_test_that_can_lose_frames_does() {
    if !can_lose(1500) {
        return;
    }
    let folder = Folder::new("veth-loss-tests");
    for test in ["lat", "rate", "fetch"] {
        let lines = folder.lines(&["perf", test, "--veth", "1500", "--loss", "20", "--size", "4KiB", "--count", "50"]);
        assert!(lines.iter().all(|line| line["loss"] == 20.0 && count(line, "frames_lost") > 0.0), "{lines:?}");
    }
    let sides = ["--a", "--loss 5", "--b", "--loss 0", "--size", "64", "--seconds", "0.1"];
    let lines = folder.lines(&[&["perf", "compare", "lat", "--veth", "1500"], &sides[..]].concat());
    assert!(count(&lines[0], "ratio_p50") > 0.0, "{lines:?}");
    let lines = folder.lines(&["perf", "lat", "--veth", "1500", "--size", "64", "--count", "10"]);
    assert!(lines[0]["loss"].is_null() && lines[0]["frames"].is_null(), "{lines:?}");
}

#[test]
fn loss_where_none_can_be_is_one_line() {
    let folder = Folder::new("veth-loss-refused");
    for (words, why) in [
        (&["perf", "lat", "--loss", "1"][..], "give --veth 1500"),
        (&["perf", "bw", "--veth", "1500", "--loss", "1", "--adapter", "xdp"], "a ring of xdp has its own"),
        (&["perf", "bw", "--veth", "1500", "--loss", "1", "--adapter", "shm"], "for the adapter udp"),
        (&["perf", "rate", "--veth", "1500", "--loss", "51"], "from 0 to 50"),
        (&["perf", "compare", "lat", "--a", "--loss 1", "--b", ""], "give --veth 1500"),
        (&["perf", "incast", "--veth", "1500", "--placement", "copy"], "what rings of the adapter xdp do"),
        (&["perf", "incast", "--senders", "0"], "from 1 to 256"),
        (&["perf", "incast", "--size", "0"], "--size of 1"),
    ] {
        let output = folder.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words:?}: {said}");
        assert!(output.stdout.is_empty() && said.contains(why) && said.contains("; "), "{words:?}: {said}");
    }
    // Who is root in a namespace alone may make the pair, and no program.
    let by = |words: &[&str]| Command::new("unshare").arg("-Ur").args(words).output();
    if pair(1500).is_none() || !by(&["true"]).is_ok_and(|output| output.status.success()) {
        crate::skipped("'unshare -Ur' does not work here");
        return;
    }
    let words = [env!("CARGO_BIN_EXE_cutthrough"), "perf", "lat", "--veth", "1500", "--loss", "1", "--size", "64"];
    let output = by(&words).expect("it just worked");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("CAP_BPF") && said.contains("run it as root"), "{said}");
}

#[test]
fn nothing_is_left_of_lost_frames_and_of_senders_that_were_killed() {
    if !can_lose(1500) {
        return;
    }
    let folder = Folder::new("veth-loss-killed");
    for (words, other) in [
        (&["perf", "bw", "--veth", "1500", "--loss", "1", "--seconds", "60"][..], "serve"),
        (&["perf", "incast", "--veth", "1500", "--senders", "4", "--seconds", "60"], "--to"),
    ] {
        let before = devices();
        let first = folder.start(words);
        let made = made_by(&first);
        let second = other_end(&first, other);
        // Held open from here on, the namespaces outlive their processes, and can be looked into.
        let spaces =
            [first.pid(), second].map(|pid| Space::at(format!("/proc/{pid}/ns/net").as_ref()).expect("it runs"));
        kill(first.pid(), Signal::KILL);
        assert_eq!(first.end().0, None);
        until("the other end has ended", || !runs(second));
        for space in &spaces {
            let shown = || Command::new("ip").args(["link", "show"]).output().expect("ip runs").stdout;
            until("its programs are gone", || {
                let shown = space.within(shown).expect("the namespace");
                !String::from_utf8_lossy(&shown).contains("xdp")
            });
        }
        drop(spaces);
        until("its namespaces are gone", || super::left::all().is_disjoint(&made));
        assert_eq!(devices(), before);
        folder.wait_until_empty();
    }
}

fn incast(folder: &Folder, options: &[&str]) -> Value {
    let few = ["perf", "incast", "--senders", "3", "--size", "100000", "--seconds", "0.3"];
    let mut lines = folder.lines(&[&few[..], options].concat());
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = lines.remove(0);
    assert_eq!((&line["test"], &line["senders"], &line["size"]), (&"incast".into(), &3.into(), &100_000.into()));
    for field in ["count", "bytes_per_s", "one_bytes_per_s", "ratio", "most_share", "memory_bytes"] {
        assert!(count(&line, field) > 0.0, "{field}: {line}");
    }
    assert_eq!(count(&line, "posted_bytes") > 0.0, !options.contains(&"--unposted"), "{line}");
    assert!(count(&line, "least_share") <= 1.0 && count(&line, "most_share") >= 1.0, "{line}");
    line
}

#[test]
fn many_senders_are_held_against_one() {
    let folder = Folder::new("incast");
    let line = incast(&folder, &["--adapter", "shm"]);
    assert!(line["overruns"].is_null() && line["sealed"].is_null(), "{line}");
    let line = incast(&folder, &["--adapter", "udp", "--seal"]);
    assert_eq!((&line["sealed"], &line["veth"]), (&true.into(), &Value::Null), "{line}");
    incast(&folder, &["--adapter", "udp", "--insecure", "--unposted"]);
    folder.wait_until_empty();
    if pair(9000).is_none() {
        return;
    }
    let line = incast(&folder, &["--veth", "9000"]);
    assert_eq!((&line["adapter"], &line["veth"], &line["sealed"]), (&"udp".into(), &9000.into(), &false.into()));
    assert!(line["overruns"].is_number() && count(&line, "queue_limit_bytes") > 0.0, "{line}");
    if !can_lose(9000) {
        return;
    }
    let line = incast(&folder, &["--veth", "9000", "--adapter", "xdp", "--placement", "header-cut"]);
    assert_eq!(line["adapter"], "xdp", "{line}");
    assert!(count(&line, "one_placed") > 0.5 && count(&line, "placed") > 0.0, "{line}");
    let line = incast(&folder, &["--veth", "9000", "--adapter", "xdp", "--placement", "copy"]);
    assert_eq!((count(&line, "one_placed"), count(&line, "placed")), (0.0, 0.0), "{line}");
}
