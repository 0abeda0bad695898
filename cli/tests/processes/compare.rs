//! Two sides in turn: other adapters, other modes, rows of requests. No figure is judged here.

use serde_json::Value;

use crate::folder::Folder;
use crate::veth::modes::has_xdp;
use crate::veth::pair;

/// Briefly, across a wire.
const ACROSS: [&str; 6] = ["--veth", "1500", "--size", "64", "--count", "31"];

/// Compares with these options, and returns the lines, each of which has a ratio.
fn compared(folder: &Folder, words: &[&str], [a, b]: [&str; 2]) -> Vec<Value> {
    let lines = folder.lines(&[&["perf", "compare"], words, &["--a", a, "--b", b]].concat());
    for line in &lines {
        assert_eq!((&line["test"], &line["a"], &line["b"]), (&"compare".into(), &a.into(), &b.into()), "{line}");
        let ratio = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("no {field} in {line}"));
        assert!(0.0 < ratio("ratio_lo") && ratio("ratio_lo") <= ratio("ratio_p50"), "{line}");
        assert!(ratio("ratio_p50") <= ratio("ratio_hi") && line["rounds"] == 31, "{line}");
    }
    lines
}

#[test]
fn sides_may_have_adapters_of_their_own() {
    let folder = Folder::new("compare-adapters");
    let sealed = |line: &Value| [&line["a_sealed"], &line["b_sealed"]].map(Value::as_bool);
    let few = ["--size", "64,8KiB", "--count", "31"];
    for test in ["lat", "bw", "fetch"] {
        let lines = compared(&folder, &[&[test], &few[..]].concat(), ["--adapter shm", "--adapter udp"]);
        assert_eq!(lines.iter().map(sealed).collect::<Vec<_>>(), [[None, Some(false)]; 2], "{lines:?}");
        assert!(lines.iter().all(|line| line["what"].is_null()), "{lines:?}");
    }
    let lines = compared(&folder, &["lat", "--size", "64", "--count", "31"], ["--adapter net --seal", "--adapter udp"]);
    assert_eq!(sealed(&lines[0]), [Some(true), Some(false)]);
    for ([a, b], head) in [
        (["--adapter shm", "--adapter udp"], "A shm, B udp (plain text)"),
        (["--adapter udp", "--adapter net"], "A udp, B net, plain text"),
        (["--adapter net --seal", "--adapter net"], "net, A sealed, B plain text"),
    ] {
        let output = folder.run(&["perf", "compare", "lat", "--size", "64", "--count", "31", "--a", a, "--b", b]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.lines().nth(1), Some(head), "{said}");
    }
    folder.wait_until_empty();
}

#[test]
fn rows_of_requests_and_calls_are_compared() {
    let folder = Folder::new("compare-rows");
    let rows = |lines: &[Value]| -> Vec<(String, u64)> {
        let row = |line: &Value| Some((line["what"].as_str()?.to_owned(), line["size"].as_u64()?));
        lines.iter().map(|line| row(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
    };
    let named = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
        rows.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
    };
    let few = ["--count", "31"];
    let am = [&["am"], &few[..]].concat();
    let lines = compared(&folder, &am, ["--policy adaptive", "--policy fixed:8192"]);
    let all = [("short", 64), ("medium", 4096), ("store", 64 << 10), ("store", 1 << 20), ("rate", 16)];
    assert_eq!(rows(&lines), named(&all));
    let sized = [&am[..], &["--size", "64"]].concat();
    let lines = compared(&folder, &sized, ["--memory private", "--memory reference"]);
    assert_eq!(rows(&lines), named(&[("medium", 64), ("store", 64)]));
    let rpc = [&["rpc"], &few[..]].concat();
    let some = [&rpc[..], &["--rows", "raw,tokio,served,shared,fetch,am-call"]].concat();
    let lines = compared(&folder, &some, ["--adapter shm", "--adapter udp"]);
    let fetched = [("fetch_put", 8192), ("fetch_reference", 8192), ("am_call", 64)];
    let expected = [&[("raw", 64), ("tokio", 64), ("served", 64), ("shared", 64)][..], &fetched].concat();
    assert_eq!(rows(&lines), named(&expected));
    let fetched = [&rpc[..], &["--rows", "am_fetch,fetch", "--size", "4KiB,16KiB"]].concat();
    let lines = compared(&folder, &fetched, ["--memory pool", "--memory reference"]);
    let expected = [("am_fetch", 4096), ("am_fetch", 16 << 10), ("fetch", 4096), ("fetch", 16 << 10)];
    assert_eq!(rows(&lines), named(&expected));
    folder.wait_until_empty();
}

#[test]
fn what_cannot_be_compared_is_refused_in_one_line() {
    let folder = Folder::new("compare-refused");
    for (words, [a, b], why) in [
        (&["lat", "--veth", "1500"][..], ["--adapter shm", "--adapter udp"], "; leave --veth away, or --adapter"),
        (&["lat"], ["--adapter udp", "--adapter xdp"], "the adapter xdp needs a network interface"),
        (&["lat"], ["", "--xdp-mode native"], "and this is shm; give --adapter xdp, or leave --xdp-mode away"),
        (&["lat", "--seal"], ["--adapter shm", "--adapter udp"], "shared memory is not sealed"),
        (&["lat", "--rows", "short"], ["", ""], "--rows are those of am and rpc"),
        (&["am", "--rows", "pages"], ["", ""], "measure it by 'cutthrough perf am pages'"),
        (&["rpc"], ["--memory private", "--memory pool"], "give --memory pool or --memory reference"),
        (&["am", "--rows", "raw"], ["", ""], "give --rows of short, medium, store, rate, pages"),
    ] {
        let said = folder.refuses(&[&["perf", "compare"], words, &["--a", a, "--b", b]].concat());
        assert!(said.contains(why), "{words:?} {a} {b}: {said}");
    }
}

/// A ring takes in what comes for the other side: who is compared with it waits for its turn.
#[test]
fn a_ring_and_another_adapter_are_compared_in_turn() {
    if pair(1500).is_none() {
        return;
    }
    let folder = Folder::new("compare-rings");
    compared(&folder, &[&["lat"], &ACROSS[..]].concat(), ["--adapter packet", "--adapter net"]);
    compared(&folder, &[&["am", "--rows", "short"], &ACROSS[..]].concat(), ["--adapter packet", "--adapter udp"]);
    folder.wait_until_empty();
}

/// A ring of AF_XDP has the only queue of its interface.
#[test]
fn a_ring_of_xdp_is_compared_with_other_adapters() {
    if pair(1500).is_none() || !has_xdp() {
        return;
    }
    let folder = Folder::new("compare-xdp");
    compared(&folder, &[&["lat"], &ACROSS[..]].concat(), ["--adapter udp", "--adapter xdp"]);
    compared(&folder, &[&["rpc", "--rows", "am_call"], &ACROSS[..]].concat(), ["--adapter xdp", "--adapter udp"]);
    folder.wait_until_empty();
}

#[test]
fn two_modes_of_xdp_are_compared_in_turn() {
    if pair(1500).is_none() || !has_xdp() {
        return;
    }
    let folder = Folder::new("compare-modes");
    let lat = [&["lat"], &ACROSS[..]].concat();
    compared(&folder, &lat, ["--adapter net --net-xdp", "--adapter net --net-xdp --xdp-mode native"]);
    compared(&folder, &[&lat[..], &["--adapter", "xdp"]].concat(), ["--xdp-mode generic", "--xdp-mode native"]);
    folder.wait_until_empty();
}

/// So are a row and its raw messages, and policies.
#[test]
fn rows_and_raw_messages_have_a_ring_of_xdp_in_turn() {
    if pair(1500).is_none() || !has_xdp() {
        return;
    }
    let folder = Folder::new("compare-xdp-rows");
    let across = ["--adapter", "xdp", "--veth", "1500", "--count", "20"];
    for (words, lines) in
        [(&["perf", "am", "short", "rate"][..], 2), (&["perf", "rpc"], 3), (&["perf", "sweep", "--size", "1KiB"], 4)]
    {
        assert_eq!(folder.lines(&[words, &across].concat()).len(), lines, "{words:?}");
    }
    for words in [&["perf", "am", "pages"], &["perf", "rpc", "served"]] {
        let said = folder.refuses(&[&words[..], &across].concat());
        assert!(said.contains(&format!("the row {} has two endpoints at a time", words[2])), "{said}");
    }
    folder.wait_until_empty();
}
